"""A record in words: what is known, what the contract says, whom to ask, what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel import audit
from semel.audit import Event
from semel.cli.desk import Desk
from semel.clock import rfc3339
from semel.durations import words
from semel.record import Record, State, effective_state
from semel.records import terms

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))

_DOUBTING = (audit.LAPSED, audit.PARKED, audit.RELEASED)

_POLICIES = {
    "retry": "the next call with the same step enters again with the same key",
    "probe": "the next call asks the tool's probe",
    "park": "nobody enters again until a person resolves it",
    "rerun": "the next call runs the tool again, and the effect may land twice",
}


def age(us: int) -> str:
    """About how long, in the largest unit that fits."""
    seconds = max(0, us // 1_000_000)
    return next((f"{seconds // size}{unit}" for unit, size in _UNITS if seconds >= size), "0s")


def place(record: Record, path: Sequence[str]) -> str:
    """Which conversation and step; nothing for a key that the caller gave."""
    return " / ".join((record.asked.conversation, *path)) if record.asked.conversation else ""


def known(record: Record, history: Sequence[Event], now_us: int) -> str:
    """What is known of it, in a sentence or two."""
    attempt = f"attempt {record.attempts} (fence {record.fence})"
    match effective_state(record, now_us):
        case State.IN_DOUBT:
            since = _doubt_since(record, history)
            why = record.note or "the lease lapsed without a sign of life"
            return f"In doubt since {rfc3339(since)}: {why}. It may have happened, last in {attempt}."
        case State.PENDING:
            return f"Being performed: {attempt}, alive until at least {rfc3339(record.lease_until)}."
        case State.WAITING:
            return "A person has to approve it first; nothing ran."
        case State.RELEASED:
            return "Nothing happened, the tool proved it: the key is free."
        case State.CLEARED:
            return f"{record.by} said that it did not happen: the key is free."
        case state:
            by = f", as {record.by} said" if record.by else ""
            settled = f"Settled as {state.value} at {rfc3339(record.settled_at)} in {attempt}{by}"
            return f"{settled}; this answer is replayed."


def _doubt_since(record: Record, history: Sequence[Event]) -> int | None:
    if record.lease_until is not None:
        return record.lease_until
    told = [event.at_us for event in history if event.kind in _DOUBTING]
    return told[-1] if told else record.entered_at


def promised(record: Record, now_us: int) -> str:
    """What the contract said when the key was claimed."""
    contract = terms(record)
    if "class" not in contract:
        return "a question to a person"
    window, lease = _words(contract.get("window_us")), _words(contract.get("lease_us"))
    doubt = _policy(contract, record, now_us)
    return f"{contract['class']}, window {window}, lease {lease}. In doubt: {doubt}."


def _words(us: int | None) -> str:
    return "for ever" if us is None else words(us)


def _policy(contract: dict[str, Any], record: Record, now_us: int) -> str:
    policy, downstream_us = str(contract.get("on_unknown", "park")), contract.get("downstream_us")
    text = _POLICIES.get(policy, policy)
    if policy != "retry" or downstream_us is None:
        return text
    if record.entered_at is None:
        return f"{text}, for {words(downstream_us)} since the first entry"
    until = record.entered_at + downstream_us
    if until <= now_us:
        return f"the downstream forgot the key at {rfc3339(until)}, so nobody enters again by itself"
    return f"{text}, until {rfc3339(until)}"


def question(record: Record) -> str:
    """What to ask the downstream."""
    since = rfc3339(record.entered_at or record.created_at)
    return (
        f"Ask what {record.asked.tool} acts on: did it take effect since {since}, with the arguments above? "
        f"Where it takes keys, look for {record.asked.at.key}."
    )


def next_commands(desk: Desk, record: Record, now_us: int) -> list[str]:
    """What to type next, if something is to be done."""
    state, id_ = effective_state(record, now_us), record.asked.id
    if state is State.IN_DOUBT:
        return [
            desk.next_command("records", "resolve", id_, "--happened"),
            desk.next_command("records", "resolve", id_, "--did-not-happen"),
        ]
    if state is State.WAITING:
        job = record.asked.job_id
        return [desk.next_command("approvals", verb, job) for verb in ("approve", "reject")]
    return []
