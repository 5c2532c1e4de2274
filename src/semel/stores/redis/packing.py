"""Records, events, seals and documents as bytes. Bytes that make no sense are damage, never absence.

A record is one string, in one of two forms. What is made now has the second, which steps/record.lua reads
and writes as well: a head, the token, the body, the digest of the outcome, and the outcome. The head of a
*plain* record, entered once and settled by its owner if at all, leaves out what the others need; behind it
they have `by` and a note. The body never changes while the record lives: fingerprint, identity, a checksum,
terms, job and arguments. The identity goes into the record's events as it is: id, key, and whose they are.
Keys and ids that are digits stand as the bytes that they mean; terms, those of a contract and not of
a call, are deflated.

An event of the second form has one byte each for kind and state. One that settles what was claimed a moment
before leaves out what the claim's event says, and refers to that.

The first form, a head of fixed length and strings behind their lengths, is still read, and still written to
records that have it: whoever made them may run beside us. Events that no step makes have it too.

A document is one string: format, checksum, the lengths of its head and its body, how many entries, then
head and body. The head has tag, tenant, id and entries, each behind its length. Lua reads it
(steps/document.lua), and writes nothing but what was packed here.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from semel.audit.events import Event, Seal
from semel.errors import StoreCorrupt
from semel.kernel.record import Address, CallRequest, Record, State, is_possible, new
from semel.stores.documents import Document, Draft, Entry
from semel.stores.redis.scripts import CODES, KINDS, STATES

_DOCUMENT_FORM = 1
_NONE = (1 << 64) - 1
_OLD_HEAD = struct.Struct(">BBBQIIQQQQQQ")
_OLD_STRINGS = 9
_PLAIN_HEAD = struct.Struct(">BBBQQIQQ")
_FULL_HEAD = struct.Struct(">BBBQQIQIIQQQQ")
_LENGTH = struct.Struct(">I")
_OLD_REST = struct.Struct(">IIII")
_OLD_EVENT = struct.Struct(">QQQQI")
# Form, kind, state, flags, time.
_EVENT = struct.Struct(">BBBB7s")
_PAGE = struct.Struct(">IIIQBQ")
_SEAL = struct.Struct(">QQQI32s")
_TIME = struct.Struct(">Q")
_DOCUMENT = struct.Struct(">BIIII")
_SCORE_BYTES = 8
_DAMAGED = "A document is damaged, and a damaged document is not an absent one."

# How many records a page of the book has (steps/record.lua says the same).
PAGE_RECORDS = 16

# What the third byte of a record says: it has an outcome, its head is a full one. And the fourth of an event.
_TOLD, _FULL, _SPOKEN_OF = 1, 2, 4
_REFERS, _EXPIRES, _FENCED, _SAID, _LINKED = 1, 2, 4, 8, 16

# How deflated terms begin, for ever: what nearly all terms say.
_TERMS_BEFORE = (
    b'{"class":"read-only{"class":"write-idempotent{"class":"write-non-idempotent","on_unknown":"retry'
    b'","on_unknown":"rerun","on_unknown":"park","on_unknown":"probe","window_us":604800000000,"lease_us":60000000,'
    b'"downstream_us":86400000000,"ignore":["],"returns":{"schema":{"additionalProperties":{"type":"string"},'
    b'"type":"object"},"secret":[]}}'
)

# Added to a score, so that the order of its bytes is the order of numbers, negative ones included.
_SCORE_BIAS = 1 << 63

_PENDING = CODES[State.PENDING]


def time(us: int | None) -> bytes:
    """A time or a span as the scripts take it; nothing for None."""
    return b"" if us is None else _TIME.pack(us)


# A call asks for its address twice, and whoever waits for it once more.
@lru_cache(maxsize=1_024)
def digest_of(at: Address) -> bytes:
    """Where a record lives: 32 bytes over its address, each part behind its length."""
    tenant, scope, key = at[0].encode(), at[1].encode(), at[2].encode()
    lengths = len(tenant).to_bytes(4, "big"), len(scope).to_bytes(4, "big"), len(key).to_bytes(4, "big")
    joined = b"%b%b%b%b%b%b" % (lengths[0], tenant, lengths[1], scope, lengths[2], key)
    return hashlib.sha256(joined).digest()


def tenant_prefix(tenant: str) -> bytes:
    name = tenant.encode()
    return _LENGTH.pack(len(name)) + name


def tenant_of(member: bytes) -> str:
    """The tenant that these bytes begin with."""
    return member[4 : 4 + _LENGTH.unpack_from(member)[0]].decode()


def packed_strings(parts: Sequence[str]) -> bytes:
    texts = [*map(str.encode, parts)]
    return b"".join(chain.from_iterable(zip(map(_LENGTH.pack, map(len, texts)), texts, strict=True)))


def _check(*parts: bytes) -> int:
    check = 0
    for part in parts:
        check = crc32(part, check)
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


# --- what never changes while a record lives --------------------------------------------------------


def _behind_length(part: bytes) -> bytes:
    """One byte of length; for what is longer than 254, that one is 255 and four more follow."""
    length = len(part)
    return b"%c%b" % (length, part) if length < 255 else b"\xff" + _LENGTH.pack(length) + part


def _part_at(data: bytes, start: int) -> tuple[bytes, int]:
    """What stands there behind its length, and where it ends."""
    length = data[start]
    start += 1
    if length == 255:
        (length,) = _LENGTH.unpack_from(data, start)
        start += 4
    end = start + length
    if end > len(data):
        raise ValueError("the lengths do not add up")
    return data[start:end], end


def _digits(text: str) -> bytes | None:
    """The bytes that these hexadecimal digits mean; None if they are none, or written in another way."""
    try:
        meant = bytes.fromhex(text)
    except ValueError:
        return None
    return meant if meant.hex() == text else None


def packed_id(id_: str) -> bytes:
    if len(id_) == 36 and id_[:4] == "rec_" and (meant := _digits(id_[4:])) is not None:
        return b"\0" + meant
    return b"\1" + id_.encode()


def _id(data: bytes) -> str:
    return "rec_" + data[1:].hex() if data[0] == 0 else data[1:].decode()


def id_fields(id_: str) -> list[bytes]:
    """Under which fields `ids` may have an id: a short one, or the id itself."""
    field, itself = _field(packed_id(id_)), id_.encode()
    return [itself] if field == itself else [field, itself]


def _packed_key(key: str) -> bytes:
    if len(key) == 64 and (meant := _digits(key)) is not None:
        return b"\0" + meant
    return b"\1" + key.encode()


def _key(data: bytes) -> str:
    return data[1:].hex() if data[0] == 0 else data[1:].decode()


@lru_cache(maxsize=1_024)
def _whose(*texts: str) -> bytes:
    """Most calls of a step have these in common."""
    return b"".join([_behind_length(text.encode()) for text in texts])


@lru_cache(maxsize=1_024)
def _whose_of(data: bytes) -> tuple[str, ...]:
    texts, start = [], 0
    for _ in range(7):
        part, start = _part_at(data, start)
        texts.append(part.decode())
    if start != len(data):
        raise ValueError("the lengths do not add up")
    return tuple(texts)


@lru_cache(maxsize=256)
def packed_terms(terms: str, job_id: str) -> bytes:
    data = terms.encode()
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=_TERMS_BEFORE)
    deflated = b"\1" + deflate.compress(data) + deflate.flush()
    shorter = deflated if len(deflated) <= len(data) else b"\0" + data
    return _behind_length(shorter) + _behind_length(job_id.encode())


@lru_cache(maxsize=256)
def _terms(data: bytes) -> str:
    if data[0] == 0:
        return data[1:].decode()
    try:
        return zlib.decompressobj(-15, zdict=_TERMS_BEFORE).decompress(data[1:]).decode()
    except zlib.error as error:
        raise ValueError("not what was written") from error


def body_of(request: CallRequest) -> tuple[bytes, bytes]:
    """What never changes while the record lives, and the field under which `ids` has its id.

    The checksum leaves out the id: a released key keeps the one that it had.
    """
    at, fingerprint = request.at, request.fingerprint
    packed = packed_id(request.id)
    whose = _behind_length(_packed_key(at.key)) + _whose(
        at.tenant, at.scope, request.tool, request.version, request.conversation, request.step,
        request.principal,
    )  # fmt: skip
    terms = packed_terms(request.terms, request.job_id) + request.arguments
    begins = _behind_length(fingerprint) + _behind_length(packed) + whose
    check = crc32(terms, crc32(whose, crc32(fingerprint)))
    return b"%b%b%b%b" % (len(begins).to_bytes(3, "big"), begins, _LENGTH.pack(check), terms), _field(packed)


def old_parts_of(request: CallRequest) -> bytes:
    """What a record of the first form has of its request: id, fingerprint, who and rest."""
    who = packed_strings(
        (*request.at, request.tool, request.version, request.conversation, request.step, request.principal)
    )
    terms, job_id = request.terms.encode(), request.job_id.encode()
    body = request.arguments + terms + job_id
    check = _check(request.fingerprint, who, body)
    rest = _OLD_REST.pack(check, len(request.arguments), len(terms), len(job_id)) + body
    parts = (request.id.encode(), request.fingerprint, who, rest)
    return b"".join([_LENGTH.pack(len(part)) + part for part in parts])


def _field(packed: bytes) -> bytes:
    return packed[3:] if packed[0] == 0 else packed[1:]


def _identity(data: bytes) -> tuple[str, str, bytes]:
    """Id, key, and whose they are, with the key once more as it is packed."""
    id_, start = _part_at(data, 0)
    key, end = _part_at(data, start)
    return _id(id_), _key(key), data[end:]


def _request_in(body: bytes) -> CallRequest:
    end = 3 + int.from_bytes(body[:3], "big")
    begins, rest = body[3:end], body[end + 4 :]
    (check,) = _LENGTH.unpack_from(body, end)
    fingerprint, start = _part_at(begins, 0)
    id_, start = _part_at(begins, start)
    if check != crc32(rest, crc32(begins[start:], crc32(fingerprint))):
        raise ValueError("not what was written")
    key, end = _part_at(begins, start)
    tenant, scope, tool, version, conversation, step, principal = _whose_of(begins[end:])
    terms, start = _part_at(rest, 0)
    job_id, start = _part_at(rest, start)
    return new(CallRequest, (
        new(Address, (tenant, scope, _key(key))), _id(id_), tool, version, fingerprint, rest[start:],
        _terms(terms), conversation, step, principal, job_id.decode(),
    ))  # fmt: skip


# --- records --------------------------------------------------------------------------------------


def record_of(data: bytes) -> Record:
    """The record in these bytes; StoreCorrupt if it is none."""
    try:
        record = _record(data) if data[0] == 2 else _old_record(data)
    except (struct.error, ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise StoreCorrupt() from error
    if not is_possible(record):
        raise StoreCorrupt()
    return record


def _record(data: bytes) -> Record:
    if data[2] & _FULL:
        head = _FULL_HEAD.unpack_from(data)
        _, state, flags, _, created, _, fence, attempts, entries, entered, lease, settled, expires = head
        start = _FULL_HEAD.size
    else:
        _, state, flags, _, created, _, lease, expires = _PLAIN_HEAD.unpack_from(data)
        start, fence, attempts, entries, entered, settled = _PLAIN_HEAD.size, created, 1, 1, created, _NONE
        if state != _PENDING:
            lease, settled = _NONE, lease
    if flags & _FULL:
        token, end = _long_part_at(data, start)
    else:
        end = start + 1 + data[start]
        token = data[start + 1 : end]
    start = end + 3
    end = start + int.from_bytes(data[end:start], "big")
    request = _request_in(data[start:end])
    start = end + 1
    end = start + data[end]
    digest, by, note = data[start:end], b"", b""
    if flags & _FULL:
        by, end = _long_part_at(data, end)
        note, end = _long_part_at(data, end)
    outcome = data[end:]
    if (hashlib.sha256(outcome).digest() if flags & _TOLD else b"") != digest or (
        outcome and not flags & _TOLD
    ):
        raise ValueError("not what was written")
    return new(Record, (
        request, STATES[state], token, fence, attempts, entries, created, _or_none(entered), _or_none(lease),
        _or_none(settled), _or_none(expires), outcome if flags & _TOLD else None, note.decode(), by.decode(),
    ))  # fmt: skip


def _long_part_at(data: bytes, start: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, start)
    end = start + 4 + length
    if end > len(data):
        raise ValueError("the lengths do not add up")
    return data[start + 4 : end], end


def _old_record(data: bytes) -> Record:
    (form, state, has_outcome, fence, attempts, entries, created, entered, lease, settled, expires, _) = (
        _OLD_HEAD.unpack_from(data)
    )
    strings = _strings(data, _OLD_HEAD.size, _OLD_STRINGS)
    token, note, by, id_, digest, fingerprint, who, rest, outcome = strings
    if form != 1 or has_outcome > 1 or (has_outcome and hashlib.sha256(outcome).digest() != digest):
        raise ValueError("not what was written")
    return Record(
        _old_request(id_.decode(), fingerprint, who, rest), STATES[state], token, fence, attempts, entries,
        created, _or_none(entered), _or_none(lease), _or_none(settled), _or_none(expires),
        outcome if has_outcome else None, note.decode(), by.decode(),
    )  # fmt: skip


def _old_request(id_: str, fingerprint: bytes, who: bytes, rest: bytes) -> CallRequest:
    check, arguments_end, terms, job_id = _OLD_REST.unpack_from(rest)
    body = rest[_OLD_REST.size :]
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


def link_of(data: bytes) -> int:
    """The seq of the record's last event."""
    try:
        return int(_OLD_HEAD.unpack_from(data)[-1] if data[0] == 1 else _PLAIN_HEAD.unpack_from(data)[3])
    except (struct.error, IndexError) as error:
        raise StoreCorrupt() from error


def end_of(data: bytes) -> int:
    """When a sweeper has to look at this record; 0, so that it does at once, if the record is damaged."""
    try:
        record = record_of(data)
    except StoreCorrupt:
        return 0
    ends = record.expires_at if record.lease_until is None else record.lease_until
    return _NONE if ends is None else ends


# --- events ---------------------------------------------------------------------------------------


def event_body(event: Event) -> bytes:
    """An event that no step makes, but for its link to the one before it."""
    expires = _NONE if event.expires_at is None else event.expires_at
    head = _OLD_EVENT.pack(0, event.at_us, event.fence, expires, event.times)[8:]
    kind, state = event.kind.encode(), event.state.encode()
    names = bytes((len(kind),)) + kind + bytes((len(state),)) + state
    digest = _LENGTH.pack(len(event.digest)) + event.digest
    who = packed_strings(
        (event.tenant, event.scope, event.key, event.tool, event.version, event.conversation, event.step, "")
    )
    texts = packed_strings((event.by, event.note, event.record_id))
    return head + names + digest + texts + _LENGTH.pack(len(who)) + who


def event_of(seq: int, data: bytes) -> tuple[Event, int]:
    """The event, and the seq of the record's event before it. See `refers`."""
    try:
        return _event(seq, data) if data[0] == 2 else _old_event(seq, data)
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
        (expires_at,) = _TIME.unpack_from(data, start)
        start += 8
    stage = KINDS[kind], STATES[state].value
    if flags & _REFERS:
        event = Event(
            seq, at_us, "", "", "", "", *stage, 0, "", "", data[start:], expires_at, "", "", "", "", 1
        )  # fmt: skip
        return event, link
    fence, by, note = at_us, b"", b""
    if flags & _FENCED:
        (fence,) = _TIME.unpack_from(data, start)
        start += 8
    if flags & _SAID:
        by, start = _long_part_at(data, start)
        note, start = _long_part_at(data, start)
    digest, start = _part_at(data, start)
    id_, key, whose = _identity(data[start:])
    tenant, scope, tool, version, conversation, step, principal = _whose_of(whose)
    event = Event(
        seq, at_us, tenant, scope, key, id_, *stage, fence, tool, version, digest, expires_at, conversation,
        step, by.decode() or principal, note.decode(), 1,
    )  # fmt: skip
    return event, link


def _old_event(seq: int, data: bytes) -> tuple[Event, int]:
    link, at_us, fence, expires, times = _OLD_EVENT.unpack_from(data)
    start = _OLD_EVENT.size
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


# --- pages of the book ------------------------------------------------------------------------------


class BookPage(NamedTuple):
    """What stands on one page of a tenant's book, and what is known of the others."""

    number: int
    lowest: int  # of the page that is being filled: no page has a lower number
    back: int  # and this one the highest whose records' times are not in their order
    high: int  # the latest time at which something up to here was created
    entries: bytes
    digests: list[bytes]
    name: bytes  # if it is known


def page_of(data: bytes, digest_bytes: int, name: bytes = b"") -> BookPage:
    try:
        number, lowest, back, _, _, high = _PAGE.unpack_from(data)
    except struct.error as error:
        raise StoreCorrupt("A list of records is damaged.") from error
    entries = data[_PAGE.size :]
    if len(entries) % digest_bytes:
        raise StoreCorrupt("A list of records is damaged.")
    starts = range(0, len(entries), digest_bytes)
    digests = [entries[start : start + digest_bytes] for start in starts]
    return BookPage(number, lowest, back, high, entries, digests, name)


def page_name(tenant: str, number: int) -> bytes:
    return tenant.encode() + b"\xff" + _LENGTH.pack(number)


def page_named(name: bytes) -> tuple[str, int]:
    """Whose page this is, and which."""
    tenant, number = name[:-5], name[-4:]
    return tenant.decode(), int.from_bytes(number, "big")


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
    return packed_index(entry.index_name) + packed_score(entry.score)


# There are few, and most entries stand in one of three.
@lru_cache(maxsize=1_024)
def packed_index(name: str) -> bytes:
    return packed_strings((name,))


def _entry(data: bytes) -> Entry:
    return Entry(_index_of(data[:-_SCORE_BYTES]), _TIME.unpack(data[-_SCORE_BYTES:])[0] - _SCORE_BIAS)


@lru_cache(maxsize=1_024)
def _index_of(packed: bytes) -> str:
    (index,) = _strings(packed, 0, 1)
    return index.decode()


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
    numbers = _DOCUMENT.pack(_DOCUMENT_FORM, _check(head, body), len(head), len(body), len(entries))
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
    if form != _DOCUMENT_FORM or len(body) != body_bytes or check != _check(head, body):
        raise ValueError("not what was written")
    tag, owner, id_, *packed_entries = _strings(head, 0, 3 + entries)
    return Document(id_.decode(), body, tag.decode(), tuple(map(_entry, packed_entries))), owner.decode()
