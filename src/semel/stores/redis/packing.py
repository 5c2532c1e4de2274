"""Records, events, seals and documents as bytes. Bytes that make no sense are damage, never absence.

A record is one string: a head of fixed length, then strings that each follow their length. Lua reads and
writes the same form (steps/record.lua). What never changes while a record lives is packed here and opaque to
Lua: `who` goes into every event as it is, `rest` does not. A checksum covers both and the fingerprint.

A document is one string too: format, checksum, the lengths of its head and its body, how many entries, then
head and body. The head has tag, tenant, id and entries, each behind its length. Lua reads it
(steps/document.lua), and writes nothing but what was packed here.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

from semel.audit.events import Event, Seal
from semel.errors import StoreCorrupt
from semel.kernel.record import SETTLED, Address, CallRequest, Record, State
from semel.stores.documents import Document, Draft, Entry
from semel.stores.redis.scripts import STATES

_FORMAT = 1
_NONE = (1 << 64) - 1
_HEAD = struct.Struct(">BBBQIIQQQQQQ")
_STRINGS = 9
_LENGTH = struct.Struct(">I")
_REST = struct.Struct(">IIII")
_EVENT = struct.Struct(">QQQQI")
_SEAL = struct.Struct(">QQQI32s")
_TIME = struct.Struct(">Q")
_DOCUMENT = struct.Struct(">BIIII")
_SCORE_BYTES = 8
_DAMAGED = "A document is damaged, and a damaged document is not an absent one."

# Added to a score, so that the order of its bytes is the order of numbers, negative ones included.
_SCORE_BIAS = 1 << 63

_FREE_OR_CLOSING = frozenset((State.WAITING, State.RELEASED, State.CLEARED, *SETTLED))


def time(us: int | None) -> bytes:
    """A time or a span as the scripts take it; nothing for None."""
    return b"" if us is None else _TIME.pack(us)


# A call asks for its address twice, and whoever waits for it once more.
@lru_cache(maxsize=1_024)
def digest_of(at: Address) -> bytes:
    """Where a record lives: 32 bytes over its address, each part behind its length."""
    parts = [part.encode() for part in at]
    return hashlib.sha256(b"".join(_LENGTH.pack(len(part)) + part for part in parts)).digest()


def tenant_prefix(tenant: str) -> bytes:
    name = tenant.encode()
    return _LENGTH.pack(len(name)) + name


def tenant_of(member: bytes) -> str:
    """The tenant that these bytes begin with."""
    return member[4 : 4 + _LENGTH.unpack_from(member)[0]].decode()


def packed_strings(parts: Sequence[str]) -> bytes:
    return b"".join([_LENGTH.pack(len(part)) + part for part in [text.encode() for text in parts]])


def who_of(request: CallRequest) -> bytes:
    """What every event of the record repeats; it begins with the tenant."""
    return packed_strings(
        (*request.at, request.tool, request.version, request.conversation, request.step, request.principal)
    )


def rest_of(request: CallRequest, who: bytes) -> bytes:
    terms, job_id = request.terms.encode(), request.job_id.encode()
    body = b"".join((request.arguments, terms, job_id))
    check = _check(request.fingerprint, who, body)
    return _REST.pack(check, len(request.arguments), len(terms), len(job_id)) + body


def tail_of(
    request: CallRequest, who: bytes, rest: bytes, token: bytes, by: str, outcome: bytes, digest: bytes
) -> bytes:
    """The record behind its head; it has no note."""
    parts = (token, b"", by.encode(), request.id.encode(), digest, request.fingerprint, who, rest, outcome)
    return b"".join([_LENGTH.pack(len(part)) + part for part in parts])


def event_tail(kind: str, state: str, digest: bytes, by: str, id_: str, who: bytes) -> bytes:
    """The event of a transition behind its times; it has no note."""
    parts = (digest, by.encode(), b"", id_.encode(), who)
    names = b"%c%b%c%b" % (len(kind), kind.encode(), len(state), state.encode())
    return names + b"".join([_LENGTH.pack(len(part)) + part for part in parts])


def _check(*parts: bytes) -> int:
    check = 0
    for part in parts:
        check = zlib.crc32(part, check)
    return check


def _strings(data: bytes, start: int, count: int) -> list[bytes]:
    """So many strings, of which the last ends where the data end."""
    strings = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, start)
        start += 4 + length
        strings.append(data[start - length : start])
    if start != len(data):
        raise ValueError("the lengths do not add up")
    return strings


def _or_none(number: int) -> int | None:
    return None if number == _NONE else number


# --- records --------------------------------------------------------------------------------------


def record_of(data: bytes) -> Record:
    """The record in these bytes; StoreCorrupt if it is none."""
    try:
        record = _record(data)
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise StoreCorrupt() from error
    if not _possible(record):
        raise StoreCorrupt()
    return record


def _record(data: bytes) -> Record:
    (form, state, has_outcome, fence, attempts, entries, created, entered, lease, settled, expires, _) = (
        _HEAD.unpack_from(data)
    )
    token, note, by, id_, digest, fingerprint, who, rest, outcome = _strings(data, _HEAD.size, _STRINGS)
    if form != _FORMAT or has_outcome > 1 or (has_outcome and hashlib.sha256(outcome).digest() != digest):
        raise ValueError("not what was written")
    return Record(
        _request(id_.decode(), fingerprint, who, rest), STATES[state], token, fence, attempts, entries,
        created, _or_none(entered), _or_none(lease), _or_none(settled), _or_none(expires),
        outcome if has_outcome else None, note.decode(), by.decode(),
    )  # fmt: skip


def _request(id_: str, fingerprint: bytes, who: bytes, rest: bytes) -> CallRequest:
    check, arguments_end, terms, job_id = _REST.unpack_from(rest)
    body = rest[_REST.size :]
    terms_end = arguments_end + terms
    if check != _check(fingerprint, who, body) or len(body) != terms_end + job_id:
        raise ValueError("not what was written")
    tenant, scope, key, tool, version, conversation, step, principal = _texts(who)
    return CallRequest(
        Address(tenant, scope, key), id_, tool, version, fingerprint, body[:arguments_end],
        body[arguments_end:terms_end].decode(), conversation, step, principal, body[terms_end:].decode(),
    )  # fmt: skip


def _texts(who: bytes) -> list[str]:
    return [part.decode() for part in _strings(who, 0, 8)]


def _possible(record: Record) -> bool:
    """Whether its times fit its state."""
    state, settled_at = record.state, record.settled_at
    if state is State.PENDING:
        return record.lease_until is not None and record.expires_at is None and settled_at is None
    if record.lease_until is not None or (settled_at is not None) != (state in SETTLED):
        return False
    return record.expires_at is None or state in _FREE_OR_CLOSING


def link_of(data: bytes) -> int:
    """The seq of the record's last event."""
    try:
        return int(_HEAD.unpack_from(data)[-1])
    except struct.error as error:
        raise StoreCorrupt() from error


# --- events ---------------------------------------------------------------------------------------


def event_body(event: Event) -> bytes:
    """An event that no step makes, but for its link to the one before it."""
    expires = _NONE if event.expires_at is None else event.expires_at
    head = _EVENT.pack(0, event.at_us, event.fence, expires, event.times)[8:]
    kind, state = event.kind.encode(), event.state.encode()
    names = bytes((len(kind),)) + kind + bytes((len(state),)) + state
    digest = _LENGTH.pack(len(event.digest)) + event.digest
    who = packed_strings(
        (event.tenant, event.scope, event.key, event.tool, event.version, event.conversation, event.step, "")
    )
    texts = packed_strings((event.by, event.note, event.record_id))
    return head + names + digest + texts + _LENGTH.pack(len(who)) + who


def event_of(seq: int, data: bytes) -> tuple[Event, int]:
    """The event, and the seq of the record's event before it."""
    try:
        return _event(seq, data)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"Event {seq} is damaged.") from error


def _event(seq: int, data: bytes) -> tuple[Event, int]:
    link, at_us, fence, expires, times = _EVENT.unpack_from(data)
    start = _EVENT.size
    kind, start = _short(data, start)
    state, start = _short(data, start)
    digest, by, note, id_, who = _strings(data, start, 5)
    tenant, scope, key, tool, version, conversation, step, principal = _texts(who)
    event = Event(
        seq, at_us, tenant, scope, key, id_.decode(), kind, state, fence, tool, version, digest,
        _or_none(expires), conversation, step, by.decode() or principal, note.decode(), times,
    )  # fmt: skip
    return event, link


def _short(data: bytes, start: int) -> tuple[str, int]:
    end = start + 1 + data[start]
    return data[start + 1 : end].decode(), end


# --- seals ----------------------------------------------------------------------------------------


def seal_body(seal: Seal) -> bytes:
    """A seal, but for its time, which is the server's."""
    return _SEAL.pack(seal.number, seal.first_seq, seal.last_seq, seal.events, seal.hash)


def seal_of(data: bytes) -> Seal:
    try:
        number, first_seq, last_seq, events, link = _SEAL.unpack(data[: _SEAL.size])
        (at_us,) = _TIME.unpack(data[_SEAL.size :])
        return Seal(number, first_seq, last_seq, events, link, at_us)
    except struct.error as error:
        raise StoreCorrupt("A seal is damaged.") from error


# --- documents ------------------------------------------------------------------------------------


def tenant_digest(tenant: str) -> bytes:
    return hashlib.sha256(tenant_prefix(tenant)).digest()


def document_digest(tenant: str, id_: str) -> bytes:
    return hashlib.sha256(packed_strings((tenant, id_))).digest()


def packed_score(score: int) -> bytes:
    return _TIME.pack(score + _SCORE_BIAS)


def packed_entry(entry: Entry) -> bytes:
    return packed_strings((entry.index_name,)) + packed_score(entry.score)


def _entry(data: bytes) -> Entry:
    (index,) = _strings(data[:-_SCORE_BYTES], 0, 1)
    return Entry(index.decode(), _TIME.unpack(data[-_SCORE_BYTES:])[0] - _SCORE_BIAS)


def member_of(index: bytes, member: bytes) -> tuple[int, str]:
    """Score and id of what stands in an index, which is given as it is packed."""
    try:
        end = len(index) + _SCORE_BYTES
        return _entry(member[:end]).score, member[end:].decode()
    except (struct.error, ValueError) as error:
        raise StoreCorrupt("An index is damaged.") from error


def document_bytes(tenant: str, tag: str, draft: Draft) -> bytes:
    entries = [packed_entry(entry) for entry in draft.entries]
    packed_entries = b"".join([_LENGTH.pack(len(entry)) + entry for entry in entries])
    head, body = packed_strings((tag, tenant, draft.id)) + packed_entries, draft.body
    numbers = _DOCUMENT.pack(_FORMAT, _check(head, body), len(head), len(body), len(entries))
    return b"".join((numbers, head, body))


def document_of(tenant: str, id_: str, data: bytes) -> Document:
    """The document in these bytes, which has to be this one; StoreCorrupt if it is not."""
    try:
        document, owner = _document(data)
    except (struct.error, ValueError) as error:
        raise StoreCorrupt(_DAMAGED) from error
    if (owner, document.id) != (tenant, id_):
        raise StoreCorrupt(_DAMAGED)
    return document


def _document(data: bytes) -> tuple[Document, str]:
    form, check, head_bytes, body_bytes, entries = _DOCUMENT.unpack_from(data)
    start = _DOCUMENT.size + head_bytes
    head, body = data[_DOCUMENT.size : start], data[start:]
    if form != _FORMAT or len(body) != body_bytes or check != _check(head, body):
        raise ValueError("not what was written")
    tag, owner, id_, *packed_entries = _strings(head, 0, 3 + entries)
    return Document(id_.decode(), body, tag.decode(), tuple(map(_entry, packed_entries))), owner.decode()
