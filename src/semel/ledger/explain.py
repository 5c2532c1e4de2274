"""A record in words: what is known, what the contract says, what to ask the downstream, what may be answered.

The command line and the gateway say the same, because both ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.audit import events
from semel.audit.events import Event
from semel.kernel import owner
from semel.kernel.answers import ExplanationJson, HappeningJson
from semel.kernel.clock import rfc3339
from semel.kernel.durations import words
from semel.kernel.record import (
    AMENDED,
    OF_HTTP,
    OWNER_GONE,
    Record,
    State,
    amendable,
    closed,
    effective_state,
)
from semel.ledger.records import DID_NOT_HAPPEN, HAPPENED, terms

_DOUBTING = (events.LAPSED, events.PARKED, events.RELEASED)

_POLICIES = {
    "retry": "the next call with the same step enters again with the same key",
    "probe": "the next call asks the tool's probe",
    "park": "nobody enters again until a person resolves it",
    "rerun": "the next call runs it again, and the effect may land twice",
}

AMEND = "amend"
DECISIONS = ["approve", "reject"]

# What a person may answer, by state; nothing where nothing is asked.
_CHOICES = {State.IN_DOUBT: [HAPPENED, DID_NOT_HAPPEN], State.WAITING: DECISIONS}


def explained(record: Record, history: Sequence[Event], now_us: int) -> ExplanationJson:
    """The record for a person, as JSON data. `since` and `question` only of a record in doubt."""
    state = effective_state(record, now_us)
    if state is State.PENDING and owner.is_gone(record.token):
        state = State.IN_DOUBT  # whoever answers need not wait for the lease either
    explanation: ExplanationJson = {
        "known": summary(record, history, now_us),
        "attempt": record.attempts,
        "promised": promised(record, now_us),
        "choices": [AMEND] if _may_amend(record, now_us) else _CHOICES.get(state, []),
    }
    if state is State.IN_DOUBT:
        explanation["since"] = rfc3339(_doubt_since(record, history, now_us))
        explanation["question"] = question(record)
    return explanation


def _may_amend(record: Record, now_us: int) -> bool:
    return amendable(record) and not closed(record, now_us)


def summary(record: Record, history: Sequence[Event], now_us: int) -> str:
    """What is known of it, in a sentence or two."""
    attempt = f"attempt {record.attempts} (fence {record.fence})"
    match effective_state(record, now_us):
        case State.IN_DOUBT:
            since = _doubt_since(record, history, now_us)
            why = record.note or "the lease lapsed without a sign of life"
            return f"In doubt since {rfc3339(since)}: {why}. It may have happened, last in {attempt}."
        case State.PENDING if owner.is_gone(record.token):
            return f"{OWNER_GONE.capitalize()}: it may have happened, last in {attempt}."
        case State.PENDING:
            return f"Being performed: {attempt}, alive until at least {rfc3339(record.lease_until)}."
        case State.WAITING:
            return "A person has to approve it first; nothing ran."
        case State.RELEASED:
            doer = "application" if record.request.at.scope == OF_HTTP else "tool"
            return f"Nothing happened, the {doer} proved it: the key is free."
        case State.CLEARED:
            return f"{record.by} said that it did not happen: the key is free."
        case state:
            word = "corrected" if record.note == AMENDED else "said"
            by = f", as {record.by} {word}" if record.by else ""
            replayed = "its value was not kept" if record.outcome is None else "this answer is replayed"
            return f"Settled as {state.value} at {rfc3339(record.settled_at)} in {attempt}{by}; {replayed}."


def _doubt_since(record: Record, history: Sequence[Event], now_us: int) -> int | None:
    if record.lease_until is not None:
        return min(record.lease_until, now_us)  # a lease that still runs is that of a process that is gone
    times_us = [event.at_us for event in history if event.kind in _DOUBTING]
    return times_us[-1] if times_us else record.entered_at


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
    since, request = rfc3339(record.entered_at or record.created_at), record.request
    if request.at.scope == OF_HTTP:
        return (
            f"Look at what {request.tool} acts on: did the request take effect since {since}? What it called "
            f"that has a contract has a record of its own, in the conversation {request.conversation}."
        )
    return (
        f"Ask what {request.tool} acts on: did it take effect since {since}, with these arguments? "
        f"Where it takes keys, look for {request.at.key}."
    )


def happening(event: Event) -> HappeningJson:
    """One line of a record's history, as JSON data."""
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
