"""`semel audit`: is the log whole, what ran twice, and the log itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any

import click
import orjson

from semel.audit.events import Seal
from semel.audit.export import exported_lines
from semel.audit.verify import Verification
from semel.audit.verify import verify as verify_chain
from semel.cli.operations import Data
from semel.cli.target import Target, lists_tenants, looks_at_store, looks_at_store_itself
from semel.kernel.durations import microseconds

_HASH = re.compile("[0-9A-Fa-f]{64}")


@click.group("audit")
def audit_() -> None:
    """Look at the audit log."""


def _hashes(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[bytes, ...]:
    if wrong := [each for each in given if not _HASH.fullmatch(each)]:
        raise click.BadParameter(f"{wrong[0]!r} is no head: those that verify prints have 64 hex digits.")
    return tuple(map(bytes.fromhex, given))


@audit_.command()
@click.option("--head", "heads", multiple=True, metavar="HASH", callback=_hashes,
              help="A head that was kept elsewhere: does the chain contain it. May be repeated.")  # fmt: skip
@looks_at_store_itself
def verify(target: Target, heads: tuple[bytes, ...]) -> int:
    """Is the sealed chain whole, and does it tell what the records tell. Only reads. Exits 1 if not.

    Keep the head that it prints where whoever can write to the store cannot, and hand it back with --head:
    a log that was rewritten as a whole, seals included, is noticed by that alone.
    """
    with target.out.progress("Verifying events") as progress, target.ledger() as ledger:
        report = verify_chain(ledger.store, tenants=(target.tenant,), heads=heads, progress=progress)
    if target.out.as_json:
        target.out.data(_verified(report))
    else:
        _tell_verified(target, report)
    return 0 if report.whole else 1


def _verified(report: Verification) -> dict[str, Any]:
    return {
        "whole": report.whole,
        "seals": report.seals,
        "events": report.events,
        "unsealed": report.unsealed,
        "dropped_seals": report.dropped,
        "records_compared": report.compared,
        "records_incomplete": report.incomplete,
        "questions_compared": report.questions,
        "head": _seal(report.head) if report.head else None,
        "heads": [{"lane": lane, **_seal(head)} for lane, head in report.heads.items()],
        "kept_heads": [_seal(seal) for seal in report.kept.values()],
        "break_count": report.break_count,
        "breaks": [each._asdict() for each in report.breaks],
        "difference_count": report.difference_count,
        "differences": [each._asdict() for each in report.differences],
    }


def _seal(seal: Seal) -> dict[str, Any]:
    return {"seal": seal.number, "hash": seal.hash.hex()}


def _tell_verified(target: Target, report: Verification) -> None:
    out = target.out
    for broken in report.breaks:
        out.say(f"{broken.wrong.upper()}  {broken.text}", "bold red")
    for difference in report.differences:
        where = f"{difference.record_id} (tenant {difference.tenant})"
        out.say(f"DIFFERS  {where}: {difference.text}", "bold red")
    unnamed = report.break_count + report.difference_count - len(report.breaks) - len(report.differences)
    if unnamed:
        out.say(f"and {unnamed} more")
    out.say(
        f"{report.seals} seals over {report.events - report.unsealed} events; {report.unsealed} newer events "
        f"are not sealed yet; {report.compared} records and {report.questions} questions were compared with "
        "theirs."
    )
    if report.dropped:
        out.say(f"The events of the first {report.dropped} seals were too old to keep.")
    for kept in report.kept.values():
        out.say(f"The chain contains the head that was kept: it is seal {kept.number}, {kept.hash.hex()}")
    for lane, head in report.heads.items():
        of = f" of lane {lane}" if len(report.heads) > 1 else ""
        out.say(f"Head{of}: seal {head.number}, {head.hash.hex()}")
    out.say("The log is whole." if report.whole else "The log is NOT whole.")


@audit_.command()
@click.option("--within", default="60s", show_default=True, metavar="DURATION", help="How soon.")
@click.option("--check", is_flag=True, help="Exit 1 if there are any.")
@looks_at_store
@lists_tenants
def duplicates(target: Target, within: str, check: bool) -> int:
    """Calls that look like one intention and ran more than once.

    With other keys and the same arguments within seconds: keys made in the wrong place. One key again after
    its window: a window that was too short. One step and one tool, differing in one argument only: probably
    free text that is missing from `ignore`.
    """
    try:
        microseconds(within, "within")
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param_hint="--within") from None
    if target.all_tenants:
        return _duplicates_of_all(target, within, check)
    with target.out.progress("Reading events") as progress, target.operations() as operations:
        report = operations.duplicates(within, progress)
    if target.out.as_json:
        target.out.data(report)
    else:
        _tell_duplicates(target, report)
    return 1 if check and _any(report) else 0


def _any(report: Data) -> bool:
    return bool(report["duplicates"] or report["late_repeats"] or report["near_repeats"])


def _duplicates_of_all(target: Target, within: str, check: bool) -> int:
    """One report after the other."""
    with target.out.progress("Reading events") as progress, target.every_tenant() as tenants:
        reports = tenants.duplicates(within, progress)
    if target.out.as_json:
        target.out.data({"items": reports})
    else:
        for report in reports:
            target.out.say(f"Tenant {report['tenant']}", "bold")
            _tell_duplicates(target, report)
            target.out.say()
    return 1 if check and any(map(_any, reports)) else 0


def _tell_duplicates(target: Target, report: Data) -> None:
    out, within, calls = target.out, report["within"], report["calls"]
    if not report["duplicates"]:
        out.say(f"{calls} calls, none with another key and the same arguments as one {within} before.")
    else:
        _tell_same_arguments(target, report["tools"])
    for tool in report["late_tools"]:
        out.say()
        one = tool["count"] == 1
        came = "1 key came again after its" if one else f"{tool['count']} keys came again after their"
        out.say(f"{tool['tool']}: {came} window. {tool['meaning']}")
        out.table(("SETTLED", "WINDOW CLOSED", "AGAIN"), [_late(each) for each in tool["examples"][:5]])
    for tool in report["near_tools"]:
        out.say()
        differ = "1 call differs" if tool["count"] == 1 else f"{tool['count']} calls differ"
        out.say(f"{tool['tool']}: {differ} in {tool['argument']} only. {tool['meaning']}")
        out.table(("ONE", "OTHER", "AFTER"), [_example(pair) for pair in tool["examples"][:5]])
    if not report["late_repeats"]:
        out.say("No key came again after its window.")
    if not report["near_repeats"]:
        out.say("No two calls of a tool in one step differ in one argument only.")
    if report["flooded"]:
        out.say("There were more calls than could be held at once: some may be missing.")


def _tell_same_arguments(target: Target, tools: Sequence[Data]) -> None:
    target.out.table(
        ("TOOL", "CALLS", "SAME CONVERSATION"),
        [(tool["tool"], str(tool["count"]), str(tool["same_conversation"])) for tool in tools],
    )
    for tool in tools:
        target.out.say()
        target.out.say(f"{tool['tool']}: {tool['meaning']}")
        target.out.table(("FIRST", "AGAIN", "AFTER"), [_example(pair) for pair in tool["examples"][:5]])


def _late(repeat: Data) -> tuple[str, str, str]:
    return repeat["settled_at"], repeat["closed_at"], f"{repeat['again']['at']}  {_where(repeat['again'])}"


def _example(pair: Data) -> tuple[str, str, str]:
    first, second = (datetime.fromisoformat(pair[name]["at"]) for name in ("first", "second"))
    after_s = max(0.0, (second - first).total_seconds())
    return _where(pair["first"]), _where(pair["second"]), f"{after_s:.1f}s"


def _where(call: Data) -> str:
    return " / ".join((call["conversation"], *call["step"])) if call["conversation"] else call["record_id"]


@audit_.command()
@looks_at_store
@lists_tenants
def export(target: Target) -> None:
    """Write the log as JSON lines, oldest first. No arguments and no results are in it, only digests."""
    with _watched(target) as progress, _events(target) as events:
        stream = sys.stdout.buffer
        for number, event in enumerate(events, 1):
            stream.write(orjson.dumps(event) + b"\n")
            progress(number)
        stream.flush()


@contextmanager
def _events(target: Target) -> Iterator[Iterator[Data]]:
    if target.all_tenants:
        with target.ledger("A gateway's key opens one tenant, so --all-tenants reads the store") as ledger:
            yield exported_lines(ledger.store, None)
        return
    with target.operations() as operations:
        yield operations.events()


def _watched(target: Target) -> AbstractContextManager[Callable[[int | str], None]]:
    """Progress, unless the lines themselves run over the same terminal."""
    if sys.stdout.isatty():
        return nullcontext(_silent)
    return target.out.progress("Exporting events")


def _silent(_: int | str) -> None:
    """Nobody watches."""
