"""`semel approvals`: list, show, approve, reject."""

from __future__ import annotations

from typing import Any

import click

from semel.cli.operations import Data
from semel.cli.output import compact
from semel.cli.target import Target, lists_tenants, looks_at_store

_STATUSES = ("waiting", "approved", "rejected", "expired", "cancelled")


@click.group()
def approvals() -> None:
    """Decide on calls and jobs that wait for a person."""


@approvals.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
@lists_tenants
def list_(target: Target, status: str | None, limit: int) -> None:
    """Questions, newest first."""
    with target.lists() as lists:
        items = lists.approvals(status, limit)
    columns = ("JOB", "TOOL", "STATUS", "FOR", "EXPIRES", "ARGUMENTS")
    target.show_list("No approvals", items, columns, _row, filtered=status is not None)


def _row(request: Data) -> tuple[str, ...]:
    names = ("job_id", "topic", "status", "submitted_by", "expires_at")
    return (*(request[name] or "" for name in names), compact(request["input"]))


@approvals.command()
@click.argument("job_id", metavar="JOB")
@looks_at_store
def show(target: Target, job_id: str) -> None:
    """What exactly is asked, by whom, until when, and what was decided."""
    with target.operations() as operations:
        request = operations.approval(job_id)
    if target.out.as_json:
        target.out.data(request)
        return
    target.out.facts(_facts(request))
    if request["status"] == "waiting":
        # Bound to what was just read: if the question is another by then, the decision is refused.
        bound = ("--job-hash", request["job_hash"])
        target.out.say()
        for verb in ("approve", "reject"):
            target.out.command(target.next_command("approvals", verb, job_id, *bound))


def _facts(request: Data) -> list[tuple[str, str]]:
    facts = [
        ("job", request["job_id"]),
        ("asks for", request["topic"]),
        ("with", compact(request["input"])),
        ("for", request["submitted_by"]),
        ("status", request["status"]),
        ("asked at", request["created_at"]),
        ("until", request["expires_at"]),
    ]
    facts += [("run", request["run_id"])] if request["run_id"] else []
    facts += [("labels", compact(request["labels"]))] if request["labels"] else []
    facts += [("reason", request["reason"])] if request["reason"] else []
    if request["decided_by"]:
        facts += [("decided by", request["decided_by"]), ("decided at", request["decided_at"])]
    return [*facts, ("revision", str(request["revision"])), ("job hash", request["job_hash"])]


def _decides(verb: str, help_: str) -> None:
    @approvals.command(verb, help=help_)
    @click.argument("job_id", metavar="JOB")
    @click.option("--reason", default="", metavar="TEXT", help="Kept with the decision.")
    @click.option("--revision", type=int, help="Refuse if the question is of another revision.")
    @click.option("--job-hash", metavar="HEX", help="Refuse if the question is not this one.")
    @looks_at_store
    def decide(target: Target, job_id: str, **details: Any) -> None:
        with target.operations() as operations:
            decision = operations.decide(verb, job_id, details)
        _tell(target, decision)


_decides("approve", "What waits under JOB may run.")
_decides("reject", "What waits under JOB is told that a person said no.")


def _tell(target: Target, decision: Data) -> None:
    if target.out.as_json:
        target.out.data(decision)
        return
    taken = decision["status"].removeprefix("already_")
    again = " before; nothing was changed" if taken != decision["status"] else ""
    by, at = decision[f"{taken}_by"], decision[f"{taken}_at"]
    target.out.say(f"{decision['job_id']} was {taken} by {by} at {at}{again}.")
