"""`semel doctor`, `semel audit`: questions to a store whose answer may be no; and the log itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click
import orjson
from rich.text import Text

from semel import audit_export, audit_report, doctor
from semel.audit_report import Verification
from semel.cli.desk import Desk, lists_tenants, looks_at_store
from semel.cli.doors import Data
from semel.durations import microseconds
from semel.errors import StoreCorrupt
from semel.stores.base import Finding

_STYLES = {"ok": "green", "note": "yellow", "danger": "bold red"}


@click.command("doctor")
@looks_at_store
def examine(desk: Desk) -> int:
    """Is this store safe: what would be lost, and when. Exits 1 if something is dangerous."""
    with desk.out.progress("Looking at the store"):
        findings = _examined(desk)
    safe = doctor.safe(findings)
    if desk.out.as_json:
        desk.out.data({"safe": safe, "findings": [asdict(finding) for finding in findings]})
        return 0 if safe else 1
    desk.out.table(("", "WHAT", "FOUND"), [_row(finding) for finding in findings])
    fixes = [(finding.subject, finding.fix) for finding in findings if finding.fix]
    if fixes:
        desk.out.say()
        desk.out.table(("WHAT", "TO DO"), fixes)
    desk.out.say()
    desk.out.say("Nothing dangerous was found." if safe else "This store is not safe as it is.")
    return 0 if safe else 1


def _row(finding: Finding) -> tuple[Text, str, str]:
    return Text(finding.level, _STYLES[finding.level]), finding.subject, finding.text


def _examined(desk: Desk) -> list[Finding]:
    try:
        with desk.ledger("The doctor looks at the store's own settings") as ledger:
            return doctor.examine(ledger.store, desk.tenant)
    except StoreCorrupt as damage:
        return [Finding("danger", "integrity", damage.message, damage.corrective_action)]


@click.group("audit")
def audit_() -> None:
    """Look at the audit log."""


@audit_.command()
@looks_at_store
def verify(desk: Desk) -> int:
    """Is the sealed chain whole, and does it tell what the records tell. Only reads. Exits 1 if not."""
    whole = "A seal covers the events of all tenants, and a gateway shows those of one"
    with desk.out.progress("Verifying events") as progress, desk.ledger(whole) as ledger:
        found = audit_report.verify(ledger.store, tenants=(desk.tenant,), progress=progress)
    if desk.out.as_json:
        desk.out.data(_verified(found))
    else:
        _tell_verified(desk, found)
    return 0 if found.whole else 1


def _verified(found: Verification) -> dict[str, Any]:
    return {
        "whole": found.whole,
        "seals": found.seals,
        "events": found.events,
        "unsealed": found.unsealed,
        "dropped_seals": found.dropped,
        "records_compared": found.compared,
        "records_incomplete": found.incomplete,
        "head": {"seal": found.head.number, "hash": found.head.hash.hex()} if found.head else None,
        "break_count": found.break_count,
        "breaks": [each._asdict() for each in found.breaks],
        "difference_count": found.difference_count,
        "differences": [each._asdict() for each in found.differences],
    }


def _tell_verified(desk: Desk, found: Verification) -> None:
    out = desk.out
    for broken in found.breaks:
        out.say(f"{broken.wrong.upper()}  {broken.text}", "bold red")
    for difference in found.differences:
        where = f"{difference.record_id} (tenant {difference.tenant})"
        out.say(f"DIFFERS  {where}: {difference.text}", "bold red")
    unnamed = found.break_count + found.difference_count - len(found.breaks) - len(found.differences)
    if unnamed:
        out.say(f"and {unnamed} more")
    out.say(
        f"{found.seals} seals over {found.events - found.unsealed} events; {found.unsealed} newer events are "
        f"not sealed yet; {found.compared} records were compared with their events."
    )
    if found.dropped:
        out.say(f"The events of the first {found.dropped} seals were too old to keep.")
    if found.head:
        out.say(f"Head: seal {found.head.number}, {found.head.hash.hex()}")
    out.say("The log is whole." if found.whole else "The log is NOT whole.")


@audit_.command()
@click.option("--within", default="60s", show_default=True, metavar="DURATION", help="How soon.")
@click.option("--check", is_flag=True, help="Exit 1 if there are any.")
@looks_at_store
@lists_tenants
def duplicates(desk: Desk, within: str, check: bool) -> int:
    """Calls within seconds with other keys and the same arguments: keys made in the wrong place."""
    try:
        microseconds(within, "within")
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param_hint="--within") from None
    if desk.all_tenants:
        return _duplicates_of_all(desk, within, check)
    with desk.out.progress("Reading events") as progress, desk.door() as door:
        found = door.duplicates(within, progress)
    if desk.out.as_json:
        desk.out.data(found)
    else:
        _tell_duplicates(desk, found)
    return 1 if check and found["duplicates"] else 0


def _duplicates_of_all(desk: Desk, within: str, check: bool) -> int:
    """One report after the other."""
    with desk.out.progress("Reading events") as progress, desk.every_tenant() as tenants:
        reports = tenants.duplicates(within, progress)
    if desk.out.as_json:
        desk.out.data({"items": reports})
    else:
        for report in reports:
            desk.out.say(f"Tenant {report['tenant']}", "bold")
            _tell_duplicates(desk, report)
            desk.out.say()
    return 1 if check and any(report["duplicates"] for report in reports) else 0


def _tell_duplicates(desk: Desk, found: Data) -> None:
    out, within = desk.out, found["within"]
    if not found["duplicates"]:
        calls = found["calls"]
        out.say(f"{calls} calls, none with another key and the same arguments as one {within} before.")
        return
    out.table(
        ("TOOL", "CALLS", "SAME CONVERSATION"),
        [(tool["tool"], str(tool["count"]), str(tool["same_conversation"])) for tool in found["tools"]],
    )
    for tool in found["tools"]:
        out.say()
        out.say(f"{tool['tool']}: {tool['meaning']}")
        out.table(("FIRST", "AGAIN", "AFTER"), [_example(pair) for pair in tool["examples"][:5]])
    if found["flooded"]:
        out.say("There were more calls than could be held at once: some pairs may be missing.")


def _example(pair: Data) -> tuple[str, str, str]:
    first, second = (datetime.fromisoformat(pair[name]["at"]) for name in ("first", "second"))
    after_s = max(0.0, (second - first).total_seconds())
    return _where(pair["first"]), _where(pair["second"]), f"{after_s:.1f}s"


def _where(call: Data) -> str:
    return " / ".join((call["conversation"], *call["step"])) if call["conversation"] else call["record_id"]


@audit_.command()
@looks_at_store
@lists_tenants
def export(desk: Desk) -> None:
    """Write the log as JSON lines, oldest first. No arguments and no results are in it, only digests."""
    with _watched(desk) as progress, _events(desk) as events:
        stream = sys.stdout.buffer
        for number, event in enumerate(events, 1):
            stream.write(orjson.dumps(event) + b"\n")
            progress(number)
        stream.flush()


@contextmanager
def _events(desk: Desk) -> Iterator[Iterator[Data]]:
    if desk.all_tenants:
        with desk.ledger("A gateway's key opens one tenant, so --all-tenants reads the store") as ledger:
            yield audit_export.lines(ledger.store, None)
        return
    with desk.door() as door:
        yield door.events()


def _watched(desk: Desk) -> AbstractContextManager[Callable[[int | str], None]]:
    """Progress, unless the lines themselves run over the same terminal."""
    if sys.stdout.isatty():
        return nullcontext(_silent)
    return desk.out.progress("Exporting events")


def _silent(_: int | str) -> None:
    """Nobody watches."""
