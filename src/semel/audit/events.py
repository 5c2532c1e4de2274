"""Events: one for every transition, written in the same commit; folding them gives the record back.

Events are sealed off the hot path: a seal covers a run of events and the seal before it, so that a changed,
missing or added event breaks the chain from there on. `note` and `by` never hold arguments or results;
`digest` stands for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from semel.kernel.record import (
    Address,
    Amend,
    Claim,
    Command,
    Park,
    Record,
    Release,
    Renew,
    Resolve,
    Retake,
    Settle,
    State,
)

CLAIMED, ASKED, RETAKEN, REVIVED = "claimed", "asked", "retaken", "revived"
SETTLED, PARKED, RELEASED, RESOLVED = "settled", "parked", "released", "resolved"
AMENDED = "amended"
LAPSED, CLOSED = "lapsed", "closed"

# A conversation moved on although this call was unfinished; the record itself did not change.
SKIPPED = "skipped"

# Counted, not transitions: answers that changed nothing.
COUNTED = frozenset(("dedup_hit", "refused", "performed", SKIPPED))

# Of questions to a person, which are no records: committed with the job that they are about.
WAITING, APPROVED, REJECTED = "waiting", "approved", "rejected"
EXPIRED, CANCELLED = "expired", "cancelled"
DECIDED = frozenset((WAITING, APPROVED, REJECTED, EXPIRED, CANCELLED))

# Of runs, which are no records either: committed with the run.
STARTED, ENDED = "started", "ended"

# Lines that tell of something else than a record.
_OF_NO_RECORD = COUNTED | DECIDED | {STARTED, ENDED}


class Event(NamedTuple):
    """One line of history. `seq` is the store's; 0 before it is written."""

    seq: int
    at_us: int
    tenant: str
    scope: str
    key: str
    record_id: str
    kind: str
    state: str
    fence: int
    tool: str
    version: str
    digest: bytes  # of the arguments when claimed, of the outcome when settled
    expires_at: int | None
    conversation: str
    step: str
    by: str
    note: str
    times: int

    @property
    def at(self) -> Address:
        return Address(self.tenant, self.scope, self.key)


_KINDS: dict[type, str] = {
    Claim: CLAIMED,
    Retake: RETAKEN,
    Settle: SETTLED,
    Park: PARKED,
    Release: RELEASED,
    Resolve: RESOLVED,
    Amend: AMENDED,
}


_ASKED_FIRST = State.WAITING


def kind_of(before: Record | None, after: Record, command: Command) -> str:
    """The kind of event that a transition makes; empty for a renewal, which only moves the lease."""
    kind = type(command)
    if kind is Renew:
        return "" if before is None or before.state is after.state else REVIVED
    return ASKED if after.state is _ASKED_FIRST else _KINDS[kind]


def of(before: Record | None, after: Record, command: Command, now_us: int) -> Event | None:
    """The event of a transition; None for a renewal."""
    kind = kind_of(before, after, command)
    return new_event(kind, after, now_us) if kind else None


def new_event(kind: str, record: Record, now_us: int) -> Event:
    request = record.request
    return Event(
        0,
        now_us,
        request.at.tenant,
        request.at.scope,
        request.at.key,
        request.id,
        kind,
        record.state.value,
        record.fence,
        request.tool,
        request.version,
        digest(record),
        record.expires_at,
        request.conversation,
        request.step,
        record.by or request.principal,
        record.note,
        1,
    )


def digest(record: Record) -> bytes:
    """Stands for what must not be in the log: the outcome once there is one, else the arguments."""
    if record.outcome is None:
        return record.request.fingerprint
    return hashlib.sha256(record.outcome).digest()


# --- folding --------------------------------------------------------------------------------------


class Story(NamedTuple):
    """What the events of a record tell, and what the record itself tells: the two are equal."""

    state: str
    fence: int
    attempts: int
    created_at: int
    settled_at: int | None
    expires_at: int | None
    digest: bytes
    note: str


def told_by(record: Record) -> Story:
    return Story(
        record.state.value,
        record.fence,
        record.attempts,
        record.created_at,
        record.settled_at,
        record.expires_at,
        digest(record),
        record.note,
    )


def fold(events: Iterable[Event]) -> Story | None:
    """The story of one record; None once its window closed, or if nothing was told."""
    story: Story | None = None
    for line in events:
        if line.kind in _OF_NO_RECORD:
            continue
        story = None if line.kind == CLOSED else _next(story, line)
    return story


def _next(story: Story | None, line: Event) -> Story:
    settled = line.kind == SETTLED or (line.kind == RESOLVED and line.state == State.DONE)
    settled_at = line.at_us if settled else None
    if line.kind == AMENDED and story is not None:
        settled_at = story.settled_at  # only what it says changed
    return Story(
        state=line.state,
        fence=line.fence,
        attempts=(story.attempts if story else 0) + (line.kind in (CLAIMED, RETAKEN)),
        created_at=story.created_at if story else line.at_us,
        settled_at=settled_at,
        expires_at=line.expires_at,
        digest=line.digest,
        note=line.note,
    )


# --- sealing --------------------------------------------------------------------------------------


class Seal(NamedTuple):
    number: int
    first_seq: int
    last_seq: int
    events: int
    hash: bytes
    at_us: int
    leaves: bytes = b""  # of a seal just made: what tells its events apart, one `leaf` each; not in its row


GENESIS = hashlib.sha256(b"semel audit chain, format 1").digest()


def new_seal(previous: Seal | None, events: Sequence[Event], now_us: int) -> Seal:
    """The next link over these events, which follow those of the previous seal."""
    number = previous.number + 1 if previous else 1
    chained = chain(previous.hash if previous else GENESIS, number, events)
    leaves = b"".join(map(leaf_of, events))
    return Seal(number, events[0].seq, events[-1].seq, len(events), chained, now_us, leaves)


def chain(previous: bytes, number: int, events: Iterable[Event]) -> bytes:
    link = hashlib.sha256(previous)
    link.update(number.to_bytes(8, "big"))
    for line in events:
        body = _body(line)
        link.update(len(body).to_bytes(4, "big"))
        link.update(body)
    return link.digest()


# Long enough that a changed event has another one; which events were changed is said by the seal alone.
LEAF_BYTES = 8


def leaf_of(line: Event) -> bytes:
    """What tells the event from every other: it names the one that was changed under a seal."""
    return hashlib.sha256(_body(line)).digest()[:LEAF_BYTES]


def _body(line: Event) -> bytes:
    # A plain tuple: orjson refuses named ones.
    return orjson.dumps((*line[:11], line.digest.hex(), *line[12:]))
