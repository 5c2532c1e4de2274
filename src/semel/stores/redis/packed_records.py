"""Records as bytes.

A record is one string, in one of two forms. What is made now has the second, which steps/record.lua reads
and writes as well: a head, the token, the body, the digest of the outcome, and the outcome. The head of a
*plain* record, entered once and settled by its owner if at all, leaves out what the others need; behind it
they have `by` and a note. The body never changes while the record lives: fingerprint, identity, a checksum,
terms, job and arguments. The identity goes into the record's events as it is: id, key, and whose they are.
Keys and ids that are digits stand as the bytes that they mean; terms, those of a contract and not of
a call, are deflated.

The first form (first_form.py) is still read, and still written to records that have it: whoever made them may
run beside us.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from functools import lru_cache
from zlib import crc32

from semel.errors import StoreCorrupt
from semel.kernel.record import Address, CallRequest, Record, State, is_possible, new
from semel.stores.redis import first_form
from semel.stores.redis.packing import LENGTH, NONE, or_none
from semel.stores.redis.scripts import CODES, STATES

_PLAIN_HEAD = struct.Struct(">BBBQQIQQ")
_FULL_HEAD = struct.Struct(">BBBQQIQIIQQQQ")

# What the third byte of a record says: it has an outcome, its head is a full one.
_TOLD, _FULL = 1, 2

# How deflated terms begin, for ever: what nearly all terms say.
_TERMS_BEFORE = (
    b'{"class":"read-only{"class":"write-idempotent{"class":"write-non-idempotent","on_unknown":"retry'
    b'","on_unknown":"rerun","on_unknown":"park","on_unknown":"probe","window_us":604800000000,"lease_us":60000000,'
    b'"downstream_us":86400000000,"ignore":["],"returns":{"schema":{"additionalProperties":{"type":"string"},'
    b'"type":"object"},"secret":[]}}'
)

_PENDING = CODES[State.PENDING]


def record_of(data: bytes) -> Record:
    """The record in these bytes; StoreCorrupt if it is none."""
    try:
        record = _record(data) if data[0] == 2 else first_form.record_of(data)
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
        start, fence, attempts, entries, entered, settled = _PLAIN_HEAD.size, created, 1, 1, created, NONE
        if state != _PENDING:
            lease, settled = NONE, lease
    if flags & _FULL:
        token, end = long_part_at(data, start)
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
        by, end = long_part_at(data, end)
        note, end = long_part_at(data, end)
    outcome = data[end:]
    if (hashlib.sha256(outcome).digest() if flags & _TOLD else b"") != digest or (
        outcome and not flags & _TOLD
    ):
        raise ValueError("not what was written")
    return new(Record, (
        request, STATES[state], token, fence, attempts, entries, created, or_none(entered), or_none(lease),
        or_none(settled), or_none(expires), outcome if flags & _TOLD else None, note.decode(), by.decode(),
    ))  # fmt: skip


def link_of(data: bytes) -> int:
    """The seq of the record's last event."""
    try:
        return int(first_form.link_of(data) if data[0] == 1 else _PLAIN_HEAD.unpack_from(data)[3])
    except (struct.error, IndexError) as error:
        raise StoreCorrupt() from error


def end_of(data: bytes) -> int:
    """When a sweeper has to look at this record; 0, so that it does at once, if the record is damaged."""
    try:
        record = record_of(data)
    except StoreCorrupt:
        return 0
    ends = record.expires_at if record.lease_until is None else record.lease_until
    return NONE if ends is None else ends


# --- what never changes while a record lives --------------------------------------------------------


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
    return b"%b%b%b%b" % (len(begins).to_bytes(3, "big"), begins, LENGTH.pack(check), terms), _field(packed)


def _request_in(body: bytes) -> CallRequest:
    end = 3 + int.from_bytes(body[:3], "big")
    begins, rest = body[3:end], body[end + 4 :]
    (check,) = LENGTH.unpack_from(body, end)
    fingerprint, start = part_at(begins, 0)
    id_, start = part_at(begins, start)
    if check != crc32(rest, crc32(begins[start:], crc32(fingerprint))):
        raise ValueError("not what was written")
    key, end = part_at(begins, start)
    tenant, scope, tool, version, conversation, step, principal = whose_of(begins[end:])
    terms, start = part_at(rest, 0)
    job_id, start = part_at(rest, start)
    return new(CallRequest, (
        new(Address, (tenant, scope, _key(key))), _id(id_), tool, version, fingerprint, rest[start:],
        _terms(terms), conversation, step, principal, job_id.decode(),
    ))  # fmt: skip


def identity(data: bytes) -> tuple[str, str, bytes]:
    """Id, key, and whose they are, with the key once more as it is packed."""
    id_, start = part_at(data, 0)
    key, end = part_at(data, start)
    return _id(id_), _key(key), data[end:]


@lru_cache(maxsize=1_024)
def _whose(*texts: str) -> bytes:
    """Most calls of a step have these in common."""
    return b"".join([_behind_length(text.encode()) for text in texts])


@lru_cache(maxsize=1_024)
def whose_of(data: bytes) -> tuple[str, ...]:
    texts, start = [], 0
    for _ in range(7):
        part, start = part_at(data, start)
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


# --- keys and ids -----------------------------------------------------------------------------------


def id_fields(id_: str) -> list[bytes]:
    """Under which fields `ids` may have an id: a short one, or the id itself."""
    field, itself = _field(packed_id(id_)), id_.encode()
    return [itself] if field == itself else [field, itself]


def packed_id(id_: str) -> bytes:
    if len(id_) == 36 and id_[:4] == "rec_" and (meant := _digits(id_[4:])) is not None:
        return b"\0" + meant
    return b"\1" + id_.encode()


def _id(data: bytes) -> str:
    return "rec_" + data[1:].hex() if data[0] == 0 else data[1:].decode()


def _field(packed: bytes) -> bytes:
    return packed[3:] if packed[0] == 0 else packed[1:]


def _packed_key(key: str) -> bytes:
    if len(key) == 64 and (meant := _digits(key)) is not None:
        return b"\0" + meant
    return b"\1" + key.encode()


def _key(data: bytes) -> str:
    return data[1:].hex() if data[0] == 0 else data[1:].decode()


def _digits(text: str) -> bytes | None:
    """The bytes that these hexadecimal digits mean; None if they are none, or written in another way."""
    try:
        meant = bytes.fromhex(text)
    except ValueError:
        return None
    return meant if meant.hex() == text else None


# --- strings behind their lengths -------------------------------------------------------------------


def _behind_length(part: bytes) -> bytes:
    """One byte of length; for what is longer than 254, that one is 255 and four more follow."""
    length = len(part)
    return b"%c%b" % (length, part) if length < 255 else b"\xff" + LENGTH.pack(length) + part


def part_at(data: bytes, start: int) -> tuple[bytes, int]:
    """What stands there behind its length, and where it ends."""
    length = data[start]
    start += 1
    if length == 255:
        (length,) = LENGTH.unpack_from(data, start)
        start += 4
    end = start + length
    if end > len(data):
        raise ValueError("the lengths do not add up")
    return data[start:end], end


def long_part_at(data: bytes, start: int) -> tuple[bytes, int]:
    (length,) = LENGTH.unpack_from(data, start)
    end = start + 4 + length
    if end > len(data):
        raise ValueError("the lengths do not add up")
    return data[start + 4 : end], end
