"""The first form of records and events: a head of fixed length, and strings behind their lengths.

It is read for ever. A record is written in it where others have it: whoever made them may run beside us.
Events that no step makes have it too.
"""

from __future__ import annotations

import hashlib
import struct

from semel.audit.events import Event
from semel.kernel.record import Address, CallRequest, Record
from semel.stores.redis.packing import LENGTH, NONE, check_of, or_none, packed_strings, strings
from semel.stores.redis.scripts import STATES

_HEAD = struct.Struct(">BBBQIIQQQQQQ")
_STRINGS = 9
_REST = struct.Struct(">IIII")
_EVENT = struct.Struct(">QQQQI")


# --- records --------------------------------------------------------------------------------------


def parts_of(request: CallRequest) -> bytes:
    """What a record of the first form has of its request: id, fingerprint, who and rest."""
    who = packed_strings(
        (*request.at, request.tool, request.version, request.conversation, request.step, request.principal)
    )
    terms, job_id = request.terms.encode(), request.job_id.encode()
    body = request.arguments + terms + job_id
    check = check_of(request.fingerprint, who, body)
    rest = _REST.pack(check, len(request.arguments), len(terms), len(job_id)) + body
    parts = (request.id.encode(), request.fingerprint, who, rest)
    return b"".join([LENGTH.pack(len(part)) + part for part in parts])


def record_of(data: bytes) -> Record:
    (form, state, has_outcome, fence, attempts, entries, created, entered, lease, settled, expires, _) = (
        _HEAD.unpack_from(data)
    )
    parts = strings(data, _HEAD.size, _STRINGS)
    token, note, by, id_, digest, fingerprint, who, rest, outcome = parts
    if form != 1 or has_outcome > 1 or (has_outcome and hashlib.sha256(outcome).digest() != digest):
        raise ValueError("not what was written")
    return Record(
        _request(id_.decode(), fingerprint, who, rest), STATES[state], token, fence, attempts, entries,
        created, or_none(entered), or_none(lease), or_none(settled), or_none(expires),
        outcome if has_outcome else None, note.decode(), by.decode(),
    )  # fmt: skip


def link_of(data: bytes) -> int:
    return int(_HEAD.unpack_from(data)[-1])


def _request(id_: str, fingerprint: bytes, who: bytes, rest: bytes) -> CallRequest:
    check, arguments_end, terms, job_id = _REST.unpack_from(rest)
    body = rest[_REST.size :]
    terms_end = arguments_end + terms
    if check != check_of(fingerprint, who, body) or len(body) != terms_end + job_id:
        raise ValueError("not what was written")
    tenant, scope, key, tool, version, conversation, step, principal = _texts(who)
    return CallRequest(
        Address(tenant, scope, key), id_, tool, version, fingerprint, body[:arguments_end],
        body[arguments_end:terms_end].decode(), conversation, step, principal, body[terms_end:].decode(),
    )  # fmt: skip


# --- events ---------------------------------------------------------------------------------------


def event_body(event: Event) -> bytes:
    """An event that no step makes, but for its link to the one before it."""
    expires = NONE if event.expires_at is None else event.expires_at
    head = _EVENT.pack(0, event.at_us, event.fence, expires, event.times)[8:]
    kind, state = event.kind.encode(), event.state.encode()
    names = bytes((len(kind),)) + kind + bytes((len(state),)) + state
    digest = LENGTH.pack(len(event.digest)) + event.digest
    who = packed_strings(
        (event.tenant, event.scope, event.key, event.tool, event.version, event.conversation, event.step, "")
    )
    texts = packed_strings((event.by, event.note, event.record_id))
    return head + names + digest + texts + LENGTH.pack(len(who)) + who


def event_of(seq: int, data: bytes) -> tuple[Event, int]:
    link, at_us, fence, expires, times = _EVENT.unpack_from(data)
    start = _EVENT.size
    kind, start = _short(data, start)
    state, start = _short(data, start)
    digest, by, note, id_, who = strings(data, start, 5)
    tenant, scope, key, tool, version, conversation, step, principal = _texts(who)
    event = Event(
        seq, at_us, tenant, scope, key, id_.decode(), kind, state, fence, tool, version, digest,
        or_none(expires), conversation, step, by.decode() or principal, note.decode(), times,
    )  # fmt: skip
    return event, link


def _short(data: bytes, start: int) -> tuple[str, int]:
    end = start + 1 + data[start]
    return data[start + 1 : end].decode(), end


def _texts(who: bytes) -> list[str]:
    return [part.decode() for part in strings(who, 0, 8)]
