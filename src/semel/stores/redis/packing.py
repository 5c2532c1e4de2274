"""What all that is packed as bytes has in common. Bytes that make no sense are damage, never absence.

What a record is: packed_records, and first_form, in which older releases wrote it; an event, a seal:
packed_events; a document: packed_documents; a page of the book: book.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from zlib import crc32

from semel.kernel.record import Address

NONE = (1 << 64) - 1
LENGTH = struct.Struct(">I")
TIME = struct.Struct(">Q")


def time(us: int | None) -> bytes:
    """A time or a span as the scripts take it; nothing for None."""
    return b"" if us is None else TIME.pack(us)


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
    return LENGTH.pack(len(name)) + name


def tenant_of(member: bytes) -> str:
    """The tenant that these bytes begin with."""
    return member[4 : 4 + LENGTH.unpack_from(member)[0]].decode()


def packed_strings(parts: Sequence[str]) -> bytes:
    texts = [*map(str.encode, parts)]
    return b"".join(chain.from_iterable(zip(map(LENGTH.pack, map(len, texts)), texts, strict=True)))


def strings(data: bytes, start: int, count: int) -> list[bytes]:
    """So many strings, of which the last ends where the data end."""
    parts = []
    for _ in range(count):
        (length,) = LENGTH.unpack_from(data, start)
        start += 4 + length
        parts.append(data[start - length : start])
    if start != len(data):
        raise ValueError("the lengths do not add up")
    return parts


def check_of(*parts: bytes) -> int:
    check = 0
    for part in parts:
        check = crc32(part, check)
    return check


def or_none(number: int) -> int | None:
    return None if number == NONE else number
