"""One Semel record as its users see it, one operation after the other and without time.

Leases, windows and clocks are left out: whoever records a history keeps leases longer than the recording.

| operation | answer |
|---|---|
| `claim(token)` | `"started"`, or `("other", state, token)` of what is there |
| `retake(new_token, seen_token)` | bool |
| `settle(token, outcome)`, `park(token)`, `release(token)` | bool |
| `look()` | `(state, token, outcome)` |
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

from tests.model.linearizability import Op

STARTED = "started"

Question = tuple[str, tuple[str, ...]]  # the name of an operation, and its arguments


class Record(NamedTuple):
    """What is known of a key; `entries`: how often its effect may have been entered, 2 for twice or more."""

    state: str
    token: str | None
    outcome: Any
    entries: int

    def owned_by(self, token: str) -> bool:
        """True for the newest owner as long as nothing is settled or released."""
        return self.state in ("pending", "in_doubt") and self.token == token


ABSENT = Record("absent", None, None, 0)


def claim(record: Record, token: str) -> tuple[Record, Any]:
    if record.state in ("absent", "released"):
        return Record("pending", token, None, 1), STARTED
    if record.state == "pending" and record.token == token:
        return record, STARTED
    return record, ("other", record.state, record.token)


def retake(record: Record, new_token: str, seen_token: str) -> tuple[Record, bool]:
    if record.state == "in_doubt" and record.token == seen_token:
        # Beyond the second no rule asks how many, and fewer different states make the check quick.
        return Record("pending", new_token, None, 2), True
    return record, record.state == "pending" and record.token == new_token


def settle(record: Record, token: str, outcome: Any) -> tuple[Record, bool]:
    if record.owned_by(token):
        return record._replace(state="done", outcome=outcome), True
    return record, (record.state, record.token, record.outcome) == ("done", token, outcome)


def park(record: Record, token: str) -> tuple[Record, bool]:
    if record.owned_by(token):
        return record._replace(state="in_doubt"), True
    return record, False


def release(record: Record, token: str) -> tuple[Record, bool]:
    if record.owned_by(token):
        # Only a first entry can prove that nothing happened; an earlier one may have left its effect behind.
        return record._replace(state="released" if record.entries == 1 else "in_doubt"), True
    return record, record.state == "released" and record.token == token


def look(record: Record) -> tuple[Record, Any]:
    return record, (record.state, record.token, record.outcome)


OPERATIONS: dict[str, Callable[..., tuple[Record, Any]]] = {
    "claim": claim,
    "retake": retake,
    "settle": settle,
    "park": park,
    "release": release,
    "look": look,
}


def every_question(tokens: tuple[str, ...]) -> list[Question]:
    """All operations with all arguments made of `tokens`, which serve as outcomes too."""
    alone = product(("claim", "park", "release"), product(tokens))
    paired = product(("retake", "settle"), product(tokens, tokens))
    return [("look", ()), *alone, *paired]


def apply(record: Record, name: str, args: tuple[Any, ...]) -> tuple[Record, Any]:
    """The record afterwards, and the answer."""
    return OPERATIONS[name](record, *args)


class RecordModel:
    """The specification in the form that the linearizability check asks for."""

    initial = ABSENT

    def step(self, state: Record, op: Op) -> Record | None:
        after, answer = apply(state, op.name, op.args)
        return after if not op.answered or answer == op.result else None

    def only_reads(self, op: Op) -> bool:
        if op.name == "claim":
            return bool(op.result != STARTED)
        return op.name == "look" or op.result is False
