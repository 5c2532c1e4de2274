"""`semel records`: list, show, resolve, amend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click
from pydantic_core import from_json
from rich.text import Text

from semel.cli.operations import Data, Verdict
from semel.cli.output import Cell, compact
from semel.cli.target import Target, lists_tenants, looks_at_store
from semel.kernel.clock import SYSTEM
from semel.kernel.record import OF_HTTP, OF_TOOL
from semel.ledger.records import DID_NOT_HAPPEN, HAPPENED, NO_RESULT, STATES

_STYLES = {
    "in_doubt": "bold red",
    "pending": "yellow",
    "failed": "magenta",
    "partial": "magenta",
    "done": "green",
}

_SCOPES = (OF_TOOL, OF_HTTP, "run", "job", "approval")

# Their records are of calls: they have a conversation and a step.
_CALL_SCOPES = (OF_TOOL, OF_HTTP)

# Stands where nobody knows what to fill in; no JSON, so that it is not sent as it stands.
_ANY_RESULT = "<any JSON>"

_SETTLED = ("done", "failed", "partial")

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


@click.group()
def records() -> None:
    """Look at records; resolve those in doubt; amend what was said of them."""


@records.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--tool", metavar="NAME", help="Only of this tool.")
@click.option("--key", metavar="KEY", help="A Semel key, or the idempotency key that a caller gave.")
@click.option("--scope", type=click.Choice(_SCOPES), help="Only of this kind.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@looks_at_store
@lists_tenants
def list_(target: Target, limit: int, **filters: str | None) -> None:
    """Records, newest first."""
    with target.lists() as lists:
        items = lists.records(filters, limit)
    columns = ("ID", "STATE", "ATTEMPTS", "AGE", "TOOL", "STEP")
    target.show_list("No records", items, columns, _row, filtered=any(filters.values()))


def _row(record: Data) -> Sequence[Cell]:
    return (
        record["id"],
        state(record["state"]),
        str(record["attempts"]),
        age(record["created_at"]),
        record["tool"] or f"({record['scope']})",
        _conversation_and_step(record) if record["scope"] in _CALL_SCOPES else record["key"],
    )


def state(name: str) -> Text:
    """The state so that doubt stands out, with and without colours."""
    return Text("IN DOUBT" if name == "in_doubt" else name, _STYLES.get(name, ""))


def age(since: str) -> str:
    """About how long ago, in the largest unit that fits."""
    since_us = (datetime.fromisoformat(since) - _EPOCH) // timedelta(microseconds=1)
    seconds = max(0, SYSTEM.now_us() - since_us) // 1_000_000
    return next((f"{seconds // size}{unit}" for unit, size in _UNITS if seconds >= size), "0s")


def _conversation_and_step(record: Data) -> str:
    """Which conversation and step; nothing for a key that the caller gave."""
    return " / ".join((record["conversation"], *record["step"])) if record["conversation"] else ""


@records.command()
@click.argument("id_", metavar="ID")
@looks_at_store
def show(target: Target, id_: str) -> None:
    """Explain a record: what is known, what the contract says, what to do next."""
    with target.operations() as operations:
        record = operations.record(id_)
    commands = _next_commands(target, record)
    if target.out.as_json:
        target.out.data({**record, "next": commands})
        return
    target.out.facts(_facts(record))
    _tell_next(target, commands, record["explanation"].get("result"))
    _tell_history(target, record)


def _facts(record: Data) -> list[tuple[str, str]]:
    explanation = record["explanation"]
    facts = [
        ("Record", record["id"]),
        ("State", state(record["state"]).plain),
        *_subject(record),
        ("Key", record["key"]),
        ("Known", explanation["known"]),
    ]
    if "promised" in explanation:
        facts.append(("Contract", explanation["promised"]))
    if "arguments" in record:
        facts.append(("Arguments", compact(record["arguments"])))
    if record["state"] in _SETTLED and "outcome" in record:
        facts.append(("Outcome", compact(record["outcome"])))
    if record["scope"] == "approval":
        facts += [("Until", f"{record['expires_at']}: then it is too late")] if explanation["choices"] else []
    elif record["expires_at"] is not None:
        facts.append(("Until", f"{record['expires_at']}: then a repeat is new"))
    if "question" in explanation:
        facts.append(("Ask", explanation["question"]))
    return facts


def _subject(record: Data) -> list[tuple[str, str]]:
    """What was asked for: a tool call in its step, or the run or job that a key or question is about."""
    if record["scope"] not in _CALL_SCOPES:
        return [("For", record["run_id"] or record["job_id"] or f"a {record['scope']}")]
    where = _conversation_and_step(record) or "a key that the caller gave"
    person = f", for {record['principal']}" if record["principal"] else ""
    if record["scope"] == OF_HTTP:
        # Its conversation is its caller, and its step the key that the caller sent.
        return [("Request", record["tool"]), ("From", where)]
    return [("Tool", f"{record['tool']} {record['version']}"), ("Where", where + person)]


def _next_commands(target: Target, record: Data) -> list[str]:
    """What to type next, if something is to be done; bound to the attempt that is shown."""
    return [target.next_command(*_words(choice, record)) for choice in record["explanation"]["choices"]]


def _words(choice: str, record: Data) -> list[str]:
    template = (record["explanation"].get("result") or {}).get("template")
    result = [] if template is None else ["--result", template]
    match choice:
        case "happened":
            flags = ["--happened", *result, "--fence", str(record["fence"])]
            return ["records", "resolve", record["id"], *flags]
        case "did_not_happen":
            return ["records", "resolve", record["id"], "--did-not-happen", "--fence", str(record["fence"])]
        case "amend":
            return ["records", "amend", record["id"], *(result or ["--result", _ANY_RESULT])]
    return ["approvals", choice, record["job_id"]]


def _tell_next(target: Target, commands: Sequence[str], result: Data | None) -> None:
    if not commands:
        return
    target.out.say()
    target.out.say("Then type one of" if len(commands) > 1 else "To correct its result type")
    for command in commands:
        target.out.command(command)
    if result is not None and result["template"] is None:
        target.out.say("The catalogue does not know the tool: add --result JSON if it returns something.")
    elif result is not None and "<" in result["template"]:
        target.out.say(
            "with what it returned in place of <…>, as JSON: a text stands in quotes of its own. Without"
            " --result, replays say RESULT_UNAVAILABLE."
        )


def _tell_history(target: Target, record: Data) -> None:
    target.out.say()
    if not record["history"]:
        target.out.say("No events are kept of it.")
        return
    columns = ("AT", "EVENT", "STATE", "FENCE", "BY", "TIMES", "NOTE")
    target.out.table(columns, [_line(event) for event in record["history"]])


def _line(event: Data) -> Sequence[Cell]:
    fence = str(event["fence"]) if event["fence"] else ""
    return (
        event["at"],
        event["type"],
        event["state"],
        fence,
        event["by"],
        str(event["times"]),
        event["note"],
    )


@records.command()
@click.argument("id_", metavar="ID")
@click.option("--happened", is_flag=True, help="It took effect: settle it as done.")
@click.option("--did-not-happen", is_flag=True, help="It did not: free its key.")
@click.option("--result", metavar="JSON", help="With --happened: the value that replays return.")
@click.option("--fence", type=int, metavar="N", help="Refuse if another attempt is in doubt by now.")
@looks_at_store
def resolve(
    target: Target, id_: str, happened: bool, did_not_happen: bool, result: str | None, fence: int | None
) -> None:
    """Settle a record in doubt, after asking the downstream."""
    if happened == did_not_happen:
        both = "It cannot be both." if happened else "Say which."
        raise click.UsageError(f"{both} Give --happened or --did-not-happen. Nothing was changed.")
    if result is not None and did_not_happen:
        raise click.UsageError("What did not happen has no --result. Nothing was changed.")
    verdict = Verdict(HAPPENED if happened else DID_NOT_HAPPEN, _json(result), fence)
    with target.operations() as operations:
        record, replayed = operations.resolve(id_, verdict)
    if target.out.as_json:
        target.out.data(record)
    else:
        target.out.say(_resolved(record, verdict) + (" It was said before." if replayed else ""))


def _resolved(record: Data, verdict: Verdict) -> str:
    id_, by = record["id"], record["by"]
    if verdict.outcome != HAPPENED:
        return f"{id_} did not happen, says {by}: the next call with its key runs the tool."
    has_value = verdict.result is not NO_RESULT or record["outcome"] is not None
    if has_value:
        return f"{id_} is settled as done by {by}; its value is replayed.{_unchecked(record)}"
    amend = f"`semel records amend {id_}` gives it"
    return (
        f"{id_} is settled as done by {by}; no value was given: replays say RESULT_UNAVAILABLE until {amend}."
    )


def _unchecked(record: Data) -> str:
    """Said of a result that nobody could check."""
    if record["result_checked"] is not False:
        return ""
    return f" It was not checked: the catalogue does not know {record['tool']} {record['version']}."


@records.command()
@click.argument("id_", metavar="ID")
@click.option("--result", metavar="JSON", required=True, help="The value that replays return from now on.")
@looks_at_store
def amend(target: Target, id_: str, result: str) -> None:
    """Give or correct the result of a record that a person resolved."""
    value = _json(result)
    with target.operations() as operations:
        record, replayed = operations.amend(id_, value)
    if target.out.as_json:
        target.out.data(record)
    elif replayed:
        target.out.say(f"{id_} says so already; nothing was changed.")
    else:
        target.out.say(f"{id_} is amended by {record['by']}; replays give this value.{_unchecked(record)}")


def _json(text: str | None) -> Any:
    try:
        # Every digit of a whole number counts, also beyond 64 bits.
        return NO_RESULT if text is None else from_json(text, allow_inf_nan=False)
    except ValueError as wrong:
        why = f"not JSON ({wrong}). A text stands in quotes of its own: '\"text\"'. Nothing was changed."
        raise click.BadParameter(why, param_hint="--result") from None
