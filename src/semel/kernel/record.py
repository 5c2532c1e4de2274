"""The record: what is known of one key, and how it may change. Pure: no I/O, no clock, no chance.

    absent ──claim──▶ pending ──settle──▶ done | failed | partial      immutable until the window closes
       │                │  ▲  └─release─▶ released                     it proved that nothing happened
       │      lease     │  └─renew        (claimable, as if absent)
       │      lapses,   ▼
       │      park   in doubt ──retake──▶ pending, next fence
       │                │     ──resolve─▶ done | cleared               cleared: someone said it did not happen
       │                │                 done ──amend─▶ done          a person's word, its result corrected
       └──claim──▶ waiting ──retake──▶ pending                         waiting: a person has to approve first

A store holds records and performs *commands* on them, one atomic step each. `apply` is the specification
of every command: the memory store runs it as it is, the others say the same in SQL or Lua and are compared
with it. All times are microseconds by the store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeGuard


class State(StrEnum):
    WAITING = "waiting"
    PENDING = "pending"
    IN_DOUBT = "in_doubt"
    DONE = "done"
    FAILED = "failed"
    PARTIAL = "partial"
    RELEASED = "released"
    CLEARED = "cleared"


# Looked up once, for the rules of every call: a member of an enumeration takes as long as a small object.
_PENDING, _WAITING, _IN_DOUBT = State.PENDING, State.WAITING, State.IN_DOUBT

SETTLED = frozenset((State.DONE, State.FAILED, State.PARTIAL))
UNSETTLED = frozenset((State.WAITING, State.PENDING, State.IN_DOUBT))

# States in which a record may have an end of its window; those that are open have none.
_CLOSING = frozenset((State.WAITING, State.RELEASED, State.CLEARED, *SETTLED))

# Why a record is in doubt when nobody said so: its lease ran out. Only then may its owner still renew it.
LEASE_LAPSED = "the lease lapsed without a sign of life"
OWNER_GONE = "the process that performed it is gone"
REFUSED_LATER = "a later entry was refused, which says nothing about the earlier one"

# How a settled record says that it was not its owner who settled it; by whom is in `by`.
RESOLVED, AMENDED = "resolved", "amended"

# `by` of a record that a probe resolved: such a record may not be amended.
PROBE = "probe"

# Scopes of the records of calls: of a tool, or of an application behind HTTP.
OF_TOOL, OF_HTTP = "tool", "http"


class Address(NamedTuple):
    """Where a record lives. The tenant is part of every address, so tenants cannot meet."""

    tenant: str
    scope: str
    key: str


class CallRequest(NamedTuple):
    """What the first claim of a key asked for; it does not change while the record lives."""

    at: Address
    id: str
    tool: str
    version: str
    fingerprint: bytes
    arguments: bytes
    terms: str  # the contract's terms as JSON: what a person or a sweeper needs to know without the code
    conversation: str
    step: str  # the path as a JSON list
    principal: str
    job_id: str  # the approval that this call waits for, or nothing


class Record(NamedTuple):
    """A request, and what became of it so far."""

    request: CallRequest
    state: State
    token: bytes  # who may write: the newest attempt
    fence: int
    attempts: int  # all entries that this record saw
    entries: int  # entries that may have taken effect: since the key was last known to be free
    created_at: int
    entered_at: int | None  # the first of `entries`
    lease_until: int | None  # of a pending record
    settled_at: int | None
    expires_at: int | None
    outcome: bytes | None
    note: str  # why it is in doubt, who resolved it
    by: str


# Makes a named tuple of a tuple: `new(Reply, (record, now_us, True))`. Their own constructor is a Python
# function around this and takes twice as long, which a call would pay for eight times.
new = tuple.__new__


# --- commands: what a store is asked to do --------------------------------------------------------


class Look(NamedTuple):
    """Read the record."""

    at: Address


class Claim(NamedTuple):
    """Make the key ours if nobody has it: absent, released, cleared, or its window closed."""

    request: CallRequest
    token: bytes
    lease_us: int  # while waiting: how long the question stands
    waiting: bool = False  # a person has to approve before anyone enters


class Retake(NamedTuple):
    """Enter again, or for the first time after an approval, in place of the attempt that we saw."""

    at: Address
    seen: bytes
    token: bytes
    lease_us: int
    within_us: int | None = None  # not once the first entry is older than this


class Renew(NamedTuple):
    """A sign of life."""

    at: Address
    token: bytes
    lease_us: int


class Settle(NamedTuple):
    """Record how it ended, for as long as the window."""

    at: Address
    token: bytes
    state: State
    outcome: bytes | None
    window_us: int | None  # None: for ever
    by: str = ""


class Park(NamedTuple):
    """The owner cannot tell whether it happened."""

    at: Address
    token: bytes
    note: str


class Release(NamedTuple):
    """Nothing happened in this entry: free the key, unless an earlier entry is still in doubt."""

    at: Address
    token: bytes
    window_us: int | None


class Resolve(NamedTuple):
    """A person or a probe says whether the attempt that we saw happened."""

    at: Address
    seen: bytes
    token: bytes
    happened: bool
    outcome: bytes | None
    window_us: int | None
    by: str


class Amend(NamedTuple):
    """A person gives or corrects the result of what a person resolved as happened."""

    at: Address
    seen: bytes
    token: bytes
    outcome: bytes
    by: str


Command = Look | Claim | Retake | Renew | Settle | Park | Release | Resolve | Amend


class Reply(NamedTuple):
    """The record as it stands after the command, the store's time, and whether the command changed it."""

    record: Record | None
    now_us: int
    applied: bool


# --- what may follow what -------------------------------------------------------------------------


def lapsed(record: Record, now_us: int) -> bool:
    """Pending without a sign of life for longer than its lease."""
    return record.lease_until is not None and record.lease_until <= now_us


def doubtful(record: Record, now_us: int) -> bool:
    return record.state is _IN_DOUBT or lapsed(record, now_us)


def closed(record: Record, now_us: int) -> bool:
    """Its window is over: settled, free or a question too old. Never true of a pending or doubtful record."""
    return record.expires_at is not None and record.expires_at <= now_us


def can_have(state: State, *, lease_until: bool, settled_at: bool, expires_at: bool) -> bool:
    """Whether a record of this state can have these of its times: a store that reads others is damaged."""
    if state is _PENDING:
        return lease_until and not expires_at and not settled_at
    if lease_until or settled_at != (state in SETTLED):
        return False
    return not expires_at or state in _CLOSING


def is_possible(record: Record) -> bool:
    """Whether its times fit its state."""
    lease_until, settled_at, expires_at = record.lease_until, record.settled_at, record.expires_at
    return can_have(
        record.state,
        lease_until=lease_until is not None,
        settled_at=settled_at is not None,
        expires_at=expires_at is not None,
    )


def amendable(record: Record) -> bool:
    """Resolved as happened by a person: the only settlement that may still change, again by a person."""
    by_a_person = record.note == AMENDED or (record.note == RESOLVED and record.by != PROBE)
    return record.state is State.DONE and by_a_person


def next_fence(previous: int, now_us: int) -> int:
    """Larger than every earlier fence of the key, also after the store lost or swept the record."""
    return now_us if now_us > previous else previous + 1


def apply(record: Record | None, command: Command, now_us: int) -> Record | None:
    """The record after the command, or None if the command may not change it."""
    kind = type(command)
    if kind is Claim:
        return _claim(record, command, now_us)
    if record is None or kind is Look:
        return None
    return _RULES[kind](record, command, now_us)


def _claim(record: Record | None, command: Any, now_us: int) -> Record | None:
    request, attempts, created_at, fence = command.request, 0, now_us, 0
    if record is not None:
        fence = record.fence
        if closed(record, now_us):
            pass  # its history ended with its window
        elif record.state is State.CLEARED and record.request.fingerprint == request.fingerprint:
            # A re-entry carries the first call's arguments, whatever the present call says.
            request, attempts, created_at = record.request, record.attempts, record.created_at
        elif record.state is State.RELEASED:
            request = request._replace(id=record.request.id)
            attempts, created_at = record.attempts, record.created_at
        else:
            return None
    ends_at, fence = now_us + command.lease_us, next_fence(fence, now_us)
    if command.waiting:
        state, token = _WAITING, command.token
        return Record(
            request, state, token, fence, attempts, 0, created_at, None, None, None, ends_at, None, "", ""
        )
    state, token, attempts = _PENDING, command.token, attempts + 1
    return new(
        Record,
        (request, state, token, fence, attempts, 1, created_at, now_us, ends_at, None, None, None, "", ""),
    )


def _retake(record: Record, command: Retake, now_us: int) -> Record | None:
    if record.token != command.seen or not (record.state is State.WAITING or doubtful(record, now_us)):
        return None
    first = now_us if record.entered_at is None else record.entered_at
    if command.within_us is not None and first + command.within_us <= now_us:
        return None
    return record._replace(
        state=State.PENDING,
        token=command.token,
        fence=next_fence(record.fence, now_us),
        attempts=record.attempts + 1,
        entries=record.entries + 1,
        entered_at=first,
        lease_until=now_us + command.lease_us,
        expires_at=None,
        note="",
        by="",
    )


def _renew(record: Record, command: Renew, now_us: int) -> Record | None:
    alive = record.state is State.PENDING or (record.state is State.IN_DOUBT and record.note == LEASE_LAPSED)
    if record.token != command.token or not alive:
        return None
    return record._replace(state=State.PENDING, lease_until=now_us + command.lease_us, note="")


def _settle(record: Record, command: Settle, now_us: int) -> Record | None:
    if record.token != command.token or record.state not in UNSETTLED:
        return None
    return new(
        Record,
        (
            record.request,
            command.state,
            record.token,
            record.fence,
            record.attempts,
            record.entries,
            record.created_at,
            record.entered_at,
            None,
            now_us,
            None if command.window_us is None else now_us + command.window_us,
            command.outcome,
            "",
            command.by,
        ),
    )


def _park(record: Record, command: Park, _now_us: int) -> Record | None:
    alive = record.state is State.PENDING or (record.state is State.IN_DOUBT and record.note == LEASE_LAPSED)
    if record.token != command.token or not alive:
        return None
    return record._replace(state=State.IN_DOUBT, lease_until=None, note=command.note)


def _release(record: Record, command: Release, now_us: int) -> Record | None:
    if record.token != command.token or record.state not in UNSETTLED:
        return None
    if record.entries > 1:
        if record.note == REFUSED_LATER:
            return None  # marked so already
        return record._replace(state=State.IN_DOUBT, lease_until=None, note=REFUSED_LATER)
    return record._replace(
        state=State.RELEASED,
        entries=0,
        entered_at=None,
        lease_until=None,
        expires_at=_later(now_us, command.window_us),
        note="",
    )


def _resolve(record: Record, command: Resolve, now_us: int) -> Record | None:
    if record.token != command.seen or not doubtful(record, now_us):
        return None
    # A new token: the owner that comes back is no longer the one who may write.
    resolved = record._replace(
        token=command.token,
        lease_until=None,
        expires_at=_later(now_us, command.window_us),
        note=RESOLVED,
        by=command.by,
    )
    if command.happened:
        return resolved._replace(state=State.DONE, settled_at=now_us, outcome=command.outcome)
    return resolved._replace(state=State.CLEARED, entries=0, entered_at=None)


def _amend(record: Record, command: Amend, now_us: int) -> Record | None:
    if record.token != command.seen or not amendable(record) or closed(record, now_us):
        return None
    # `settled_at` and `expires_at` stay as they are.
    return record._replace(token=command.token, outcome=command.outcome, note=AMENDED, by=command.by)


_RULES: Mapping[type, Callable[[Record, Any, int], Record | None]] = {
    Retake: _retake,
    Renew: _renew,
    Settle: _settle,
    Park: _park,
    Release: _release,
    Resolve: _resolve,
    Amend: _amend,
}


def sweep(record: Record, now_us: int) -> Record | None:
    """A lapsed record marked as in doubt; None if there is nothing to mark."""
    if not lapsed(record, now_us):
        return None
    return record._replace(state=State.IN_DOUBT, lease_until=None, note=LEASE_LAPSED)


def _later(now_us: int, by_us: int | None) -> int | None:
    return None if by_us is None else now_us + by_us


# --- reading a reply ------------------------------------------------------------------------------


def ours(record: Record | None, command: Claim | Retake) -> TypeGuard[Record]:
    """Whether we hold the key: also when an earlier, unanswered try of this very command won it."""
    return record is not None and record.token == command.token and record.state is _PENDING


def settled_by(record: Record | None, command: Settle) -> bool:
    """Whether the record says what we settled: also when an earlier, unanswered try did it."""
    return (
        record is not None
        and record.token == command.token
        and record.state is command.state
        and record.outcome == command.outcome
    )


def effective_state(record: Record, now_us: int) -> State:
    """The state as a person should read it: a lapsed record is in doubt, swept or not."""
    return State.IN_DOUBT if lapsed(record, now_us) else record.state


def unsettled_only(states: frozenset[State]) -> bool:
    """Whether whoever asks for these states asks for unsettled records alone."""
    return bool(states) and states <= UNSETTLED
