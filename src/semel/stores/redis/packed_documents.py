"""Documents as bytes.

A document is one string: format, checksum, the lengths of its head and its body, how many entries, then
head and body. The head has tag, tenant, id and entries, each behind its length. Lua reads it
(steps/document.lua), and writes nothing but what was packed here.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache

from semel.errors import StoreCorrupt
from semel.stores.documents import Document, Draft, Entry
from semel.stores.redis.packing import LENGTH, TIME, check_of, packed_strings, strings, tenant_prefix

_DOCUMENT_FORM = 1
_DOCUMENT = struct.Struct(">BIIII")
_SCORE_BYTES = 8
_DAMAGED = "A document is damaged, and a damaged document is not an absent one."

# Added to a score, so that the order of its bytes is the order of numbers, negative ones included.
_SCORE_BIAS = 1 << 63


def document_bytes(tenant: str, tag: str, draft: Draft) -> bytes:
    entries = [packed_entry(entry) for entry in draft.entries]
    packed_entries = b"".join([LENGTH.pack(len(entry)) + entry for entry in entries])
    head, body = packed_strings((tag, tenant, draft.id)) + packed_entries, draft.body
    numbers = _DOCUMENT.pack(_DOCUMENT_FORM, check_of(head, body), len(head), len(body), len(entries))
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
    if form != _DOCUMENT_FORM or len(body) != body_bytes or check != check_of(head, body):
        raise ValueError("not what was written")
    tag, owner, id_, *packed_entries = strings(head, 0, 3 + entries)
    return Document(id_.decode(), body, tag.decode(), tuple(map(_entry, packed_entries))), owner.decode()


def tenant_digest(tenant: str) -> bytes:
    return hashlib.sha256(tenant_prefix(tenant)).digest()


def document_digest(tenant: str, id_: str) -> bytes:
    return hashlib.sha256(packed_strings((tenant, id_))).digest()


# --- entries --------------------------------------------------------------------------------------


def packed_entry(entry: Entry) -> bytes:
    return packed_index(entry.index_name) + packed_score(entry.score)


def _entry(data: bytes) -> Entry:
    return Entry(_index_of(data[:-_SCORE_BYTES]), TIME.unpack(data[-_SCORE_BYTES:])[0] - _SCORE_BIAS)


# There are few, and most entries stand in one of three.
@lru_cache(maxsize=1_024)
def packed_index(name: str) -> bytes:
    return packed_strings((name,))


@lru_cache(maxsize=1_024)
def _index_of(packed: bytes) -> str:
    (index,) = strings(packed, 0, 1)
    return index.decode()


def packed_score(score: int) -> bytes:
    return TIME.pack(score + _SCORE_BIAS)


def member_of(index: bytes, member: bytes) -> tuple[int, str]:
    """Score and id of what stands in an index, which is given as it is packed."""
    try:
        end = len(index) + _SCORE_BYTES
        return _entry(member[:end]).score, member[end:].decode()
    except (struct.error, ValueError) as error:
        raise StoreCorrupt("An index is damaged.") from error
