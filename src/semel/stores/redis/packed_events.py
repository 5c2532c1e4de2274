"""Events and seals as bytes.

An event of the second form has one byte each for kind and state. One that settles what was claimed a moment
before leaves out what the claim's event says, and refers to that. Events that no step makes have the first
form (first_form.py).
"""

from __future__ import annotations

import struct

from semel.audit.events import Event, Seal
from semel.errors import StoreCorrupt
from semel.stores.redis import first_form
from semel.stores.redis.packed_records import identity, long_part_at, part_at, whose_of
from semel.stores.redis.packing import TIME
from semel.stores.redis.scripts import KINDS, STATES

# Form, kind, state, flags, time.
_EVENT = struct.Struct(">BBBB7s")
_SEAL = struct.Struct(">QQQI32s")

# What the fourth byte of an event says.
_REFERS, _EXPIRES, _FENCED, _SAID, _LINKED = 1, 2, 4, 8, 16


def event_of(seq: int, data: bytes) -> tuple[Event, int]:
    """The event, and the seq of the record's event before it. See `refers`."""
    try:
        return _event(seq, data) if data[0] == 2 else first_form.event_of(seq, data)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"Event {seq} is damaged.") from error


def refers(data: bytes) -> bool:
    """Whether the event leaves out what the one before it says."""
    return len(data) > 3 and data[0] == 2 and bool(data[3] & _REFERS)


def completed(event: Event, before: Event) -> Event:
    """An event that refers, with what the one before it says."""
    return before._replace(
        seq=event.seq, at_us=event.at_us, kind=event.kind, state=event.state, digest=event.digest,
        expires_at=event.expires_at,
    )  # fmt: skip


def _event(seq: int, data: bytes) -> tuple[Event, int]:
    _, kind, state, flags, at = _EVENT.unpack_from(data)
    start, at_us, link, expires_at = _EVENT.size, int.from_bytes(at, "big"), 0, None
    if flags & _REFERS:
        link = seq - int.from_bytes(data[start : start + 2], "big")
        start += 2
    elif flags & _LINKED:
        link = int.from_bytes(data[start : start + 6], "big")
        start += 6
    if flags & _EXPIRES:
        (expires_at,) = TIME.unpack_from(data, start)
        start += 8
    stage = KINDS[kind], STATES[state].value
    if flags & _REFERS:
        event = Event(
            seq, at_us, "", "", "", "", *stage, 0, "", "", data[start:], expires_at, "", "", "", "", 1
        )  # fmt: skip
        return event, link
    fence, by, note = at_us, b"", b""
    if flags & _FENCED:
        (fence,) = TIME.unpack_from(data, start)
        start += 8
    if flags & _SAID:
        by, start = long_part_at(data, start)
        note, start = long_part_at(data, start)
    digest, start = part_at(data, start)
    id_, key, whose = identity(data[start:])
    tenant, scope, tool, version, conversation, step, principal = whose_of(whose)
    event = Event(
        seq, at_us, tenant, scope, key, id_, *stage, fence, tool, version, digest, expires_at, conversation,
        step, by.decode() or principal, note.decode(), 1,
    )  # fmt: skip
    return event, link


# --- seals ----------------------------------------------------------------------------------------


def seal_body(seal: Seal) -> bytes:
    """A seal, but for its time, which is the server's."""
    return _SEAL.pack(seal.number, seal.first_seq, seal.last_seq, seal.events, seal.hash)


def seal_of(data: bytes) -> Seal:
    try:
        number, first_seq, last_seq, events, link = _SEAL.unpack(data[: _SEAL.size])
        (at_us,) = TIME.unpack(data[_SEAL.size :])
        return Seal(number, first_seq, last_seq, events, link, at_us)
    except struct.error as error:
        raise StoreCorrupt("A seal is damaged.") from error
