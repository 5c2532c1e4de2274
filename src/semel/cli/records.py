"""`semel records`: list, show, resolve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import orjson
from rich.text import Text

from semel.audit import Event
from semel.cli import explain
from semel.cli.desk import Desk, looks_at_store
from semel.cli.output import Cell, compact
from semel.clock import rfc3339
from semel.ledger import Ledger
from semel.record import Record
from semel.records import DID_NOT_HAPPEN, HAPPENED, NO_RESULT, STATES

_STYLES = {
    "in_doubt": "bold red",
    "pending": "yellow",
    "failed": "magenta",
    "partial": "magenta",
    "done": "green",
}

_SCOPES = ("tool", "run", "job", "approval")


@click.group()
def records() -> None:
    """Look at records; resolve those in doubt."""


@records.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--tool", metavar="NAME", help="Only of this tool.")
@click.option("--key", metavar="KEY", help="A Semel key, or the idempotency key that a caller gave.")
@click.option("--scope", type=click.Choice(_SCOPES), help="Only of this kind.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
def list_(desk: Desk, **filters: Any) -> None:
    """Records, newest first."""
    with desk.ledger() as ledger:
        found = ledger.records.list(**filters)
        if desk.out.as_json:
            desk.out.data({"items": [ledger.records.show(record) for record in found]})
        elif not found:
            fit = " that fit" if _narrowed(filters) else ""
            desk.out.say(f"No records{fit} in tenant {desk.tenant}.")
        else:
            columns = ("ID", "TOOL", "STATE", "ATTEMPTS", "AGE", "CONVERSATION / STEP")
            desk.out.table(columns, [_row(ledger, record) for record in found])


def _narrowed(filters: dict[str, Any]) -> bool:
    return any(value for name, value in filters.items() if name != "limit")


def _row(ledger: Ledger, record: Record) -> Sequence[Cell]:
    asked = record.asked
    return (
        asked.id,
        asked.tool,
        state(ledger.records.effective_state(record)),
        str(record.attempts),
        explain.age(ledger.clock.now_us() - record.created_at),
        explain.place(record, orjson.loads(asked.step)),
    )


def state(name: str) -> Text:
    """The state so that doubt stands out, with and without colours."""
    return Text("IN DOUBT" if name == "in_doubt" else name, _STYLES.get(name, ""))


@records.command()
@click.argument("id_", metavar="ID")
@looks_at_store
def show(desk: Desk, id_: str) -> None:
    """Explain a record: what is known, what the contract says, what to do next."""
    with desk.ledger() as ledger:
        record = ledger.records.get(id_)
        history = ledger.records.history(id_)
        shown = ledger.records.show(record)
        now_us = ledger.clock.now_us()
    commands = explain.next_commands(desk, record, now_us)
    if desk.out.as_json:
        events = [_event(event) for event in history]
        told = {"known": explain.known(record, history, now_us), "next": commands}
        desk.out.data(shown | told | {"history": events})
        return
    desk.out.facts(_facts(record, shown, history, now_us))
    _tell_next(desk, commands)
    _tell_history(desk, history)


def _facts(
    record: Record, shown: dict[str, Any], history: Sequence[Event], now_us: int
) -> list[tuple[str, str]]:
    where = explain.place(record, shown["step"]) or "a key that the caller gave"
    facts = [
        ("Record", shown["id"]),
        ("State", state(shown["state"]).plain),
        ("Tool", f"{shown['tool']} {shown['version']}"),
        ("Where", where + (f", for {shown['principal']}" if shown["principal"] else "")),
        ("Key", shown["key"]),
        ("Known", explain.known(record, history, now_us)),
        ("Contract", explain.promised(record, now_us)),
        ("Arguments", compact(shown["arguments"])),
    ]
    if record.outcome is not None:
        facts.append(("Outcome", compact(shown["outcome"])))
    if record.expires_at is not None:
        facts.append(("Until", f"{shown['expires_at']}: then a repeat is new"))
    if shown["state"] == "in_doubt":
        facts.append(("Ask", explain.question(record)))
    return facts


def _tell_next(desk: Desk, commands: Sequence[str]) -> None:
    if commands:
        desk.out.say()
        desk.out.say("Then type one of")
        for command in commands:
            desk.out.say(f"  {command}", "bold")


def _tell_history(desk: Desk, history: Sequence[Event]) -> None:
    desk.out.say()
    if not history:
        desk.out.say("No events are kept of it.")
        return
    columns = ("AT", "EVENT", "STATE", "FENCE", "BY", "TIMES", "NOTE")
    desk.out.table(columns, [_line(event) for event in history])


def _line(event: Event) -> Sequence[Cell]:
    fence = str(event.fence) if event.fence else ""
    at = rfc3339(event.at_us) or ""
    return (at, event.kind, event.state, fence, event.by, str(event.times), event.note)


def _event(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": rfc3339(event.at_us),
        "type": event.kind,
        "state": event.state,
        "fence": event.fence,
        "by": event.by,
        "note": event.note,
        "times": event.times,
    }


@records.command()
@click.argument("id_", metavar="ID")
@click.option("--happened", "outcome", flag_value=HAPPENED, help="It took effect: settle it as done.")
@click.option("--did-not-happen", "outcome", flag_value=DID_NOT_HAPPEN, help="It did not: free its key.")
@click.option("--result", metavar="JSON", help="With --happened: the value that replays return.")
@looks_at_store
def resolve(desk: Desk, id_: str, outcome: str | None, result: str | None) -> None:
    """Settle a record in doubt, after asking the downstream."""
    if outcome is None:
        raise click.UsageError("Say which: --happened or --did-not-happen. Nothing was changed.")
    if result is not None and outcome != HAPPENED:
        raise click.UsageError("What did not happen has no --result. Nothing was changed.")
    value, person = _json(result), desk.person
    with desk.ledger() as ledger:
        record = ledger.records.resolve(id_, outcome, by=person, result=value)
        shown = ledger.records.show(record)
    if desk.out.as_json:
        desk.out.data(shown)
    elif outcome == HAPPENED:
        without = "no value was given: replays say RESULT_UNAVAILABLE"
        kept = "its value is replayed" if record.outcome else without
        desk.out.say(f"{id_} is settled as done by {record.by}; {kept}.")
    else:
        desk.out.say(f"{id_} did not happen, says {record.by}: the next call with its key runs the tool.")


def _json(text: str | None) -> Any:
    try:
        return NO_RESULT if text is None else orjson.loads(text)
    except orjson.JSONDecodeError as wrong:
        raise click.BadParameter(f"not JSON ({wrong}). Nothing was changed.", param_hint="--result") from None
