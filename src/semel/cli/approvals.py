"""`semel approvals`: list, approve, reject."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from semel.approvals import Decision
from semel.cli.desk import Desk, looks_at_store
from semel.cli.output import compact

_STATUSES = ("waiting", "approved", "rejected", "expired")


@click.group()
def approvals() -> None:
    """Decide on calls that wait for a person."""


@approvals.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
def list_(desk: Desk, status: str | None, limit: int) -> None:
    """Questions, newest first."""
    with desk.ledger() as ledger:
        found = ledger.approvals.list(status, limit)
    if desk.out.as_json:
        desk.out.data({"items": [asdict(request) for request in found]})
    elif not found:
        desk.out.say(f"No approvals in tenant {desk.tenant}" + (f" are {status}." if status else "."))
    else:
        rows = [
            (request.job_id, request.topic, request.status, request.submitted_by, request.expires_at or "",
             compact(request.input))
            for request in found
        ]  # fmt: skip
        desk.out.table(("JOB", "TOOL", "STATUS", "FOR", "EXPIRES", "ARGUMENTS"), rows)


def _decides(verb: str, help_: str) -> None:
    @approvals.command(verb, help=help_)
    @click.argument("job_id", metavar="JOB")
    @click.option("--reason", default="", metavar="TEXT", help="Kept with the decision.")
    @click.option("--revision", type=int, help="Refuse if the question is of another revision.")
    @click.option("--job-hash", metavar="HEX", help="Refuse if the question is not this one.")
    @looks_at_store
    def decide(desk: Desk, job_id: str, **options: Any) -> None:
        person = desk.person
        with desk.ledger() as ledger:
            decision: Decision = getattr(ledger.approvals, verb)(job_id, by=person, **options)
        _tell(desk, decision)


_decides("approve", "The next call of the waiting key runs its tool.")
_decides("reject", "Every call of the waiting key is told that a person said no.")


def _tell(desk: Desk, decision: Decision) -> None:
    taken = decision.status.removeprefix("already_")
    if desk.out.as_json:
        who = {f"{taken}_by": decision.by, f"{taken}_at": decision.at}
        job = {"job_id": decision.job_id, "status": decision.status}
        desk.out.data(job | who | {"revision": decision.revision})
    else:
        again = " before; nothing was changed" if decision.replayed else ""
        desk.out.say(f"{decision.job_id} was {taken} by {decision.by} at {decision.at}{again}.")
