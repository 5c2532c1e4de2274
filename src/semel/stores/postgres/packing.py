"""Values as the bytes that PostgreSQL sends and takes, and back.

PostgreSQL refuses NUL in a text. So NUL is written as U+0001 "0" and U+0001 itself as U+0001 "1", which also
keeps the order of texts; every other text is written as it is, so that a person can read it in the tables.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

from semel.kernel.record import Address

_BOOL, _BYTEA, _INT8, _INT4, _TEXT, _VOID, _XID8 = 16, 17, 20, 23, 25, 2278, 5069

_int8 = struct.Struct("!q").pack
_length = struct.Struct("!i").pack
_head = struct.Struct("!iiiii").pack
_field = struct.Struct("!Ii").unpack_from
_NULL = _length(-1)
_TRUE, _FALSE = b"\x01", b"\x00"

_OIDS = {"bigint": _INT8, "boolean": _BOOL, "bytea": _BYTEA, "text": _TEXT}


def escaped(text: str) -> str:
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x011").replace("\x00", "\x010")
    return text


def unescaped(text: str) -> str:
    return text.replace("\x010", "\x00").replace("\x011", "\x01") if "\x01" in text else text


def text(value: str | None) -> bytes | None:
    return None if value is None else escaped(value).encode()


def number(value: int | None) -> bytes | None:
    return None if value is None else _int8(value)


def truth(value: bool) -> bytes:
    return _TRUE if value else _FALSE


def binary(value: bytes | None) -> bytes | None:
    return value


def encoded(*values: str) -> Iterator[bytes]:
    """Texts that are not NULL, together: hardly ever does one of them need an escape."""
    together = "".join(values)
    if "\x00" in together or "\x01" in together:
        return map(str.encode, map(escaped, values))
    return map(str.encode, values)


def array(type_: str, packed: Sequence[bytes | None]) -> bytes:
    """An array of values that are packed already, of this type."""
    return _array(_OIDS[type_], packed)


def _array(oid: int, packed: Sequence[bytes | None]) -> bytes:
    if not packed:
        return struct.pack("!iii", 0, 0, oid)
    head = _head(1, 1, oid, len(packed), 1)
    if None not in packed and len(set(map(len, packed))) == 1:  # type: ignore[arg-type]
        # As most columns of a batch are: the same size is in front of each value, so one join makes them all.
        size = _length(len(packed[0]))  # type: ignore[arg-type]
        return head + size + size.join(packed)  # type: ignore[arg-type]
    return head + b"".join([_NULL if value is None else _length(len(value)) + value for value in packed])


def texts(values: Sequence[str | None]) -> bytes:
    return _array(_TEXT, [text(value) for value in values])


def numbers(values: Sequence[int | None]) -> bytes:
    return _array(_INT8, [number(value) for value in values])


def binaries(values: Sequence[bytes | None]) -> bytes:
    return _array(_BYTEA, values)


def _text_of(value: bytes) -> str:
    text = value.decode()
    return unescaped(text) if "\x01" in text else text


_number_of = partial(int.from_bytes, byteorder="big", signed=True)
_truth_of = _TRUE.__eq__


def row_of(value: bytes) -> tuple[Any, ...]:
    """The columns of a row that came as one value: their number, then of each its type, size and bytes."""
    columns: list[Any] = []
    at = 4
    while at < len(value):
        oid, size = _field(value, at)
        at += 8
        if size < 0:
            columns.append(None)
        else:
            # Of a type that is not known here: it was added by somebody who knows it.
            columns.append(READERS.get(oid, bytes)(value[at : at + size]))
            at += size
    return tuple(columns)


# By the number of PostgreSQL's type.
READERS: dict[int, Callable[[bytes], Any]] = {
    _BOOL: _truth_of,
    _BYTEA: bytes,
    _INT8: _number_of,
    _INT4: _number_of,
    _TEXT: _text_of,
    _VOID: bytes,
    _XID8: _number_of,
}


@lru_cache(maxsize=1_024)  # of the calls that are under way, so that a settlement finds its claim's
def digest(at: Address) -> bytes:
    """Under which a record is kept. Each part carries its length, so that no two addresses run together."""
    tenant, scope, key = map(str.encode, at)
    sizes = _length(len(tenant)), _length(len(scope)), _length(len(key))
    return hashlib.sha256(b"".join((sizes[0], tenant, sizes[1], scope, sizes[2], key))).digest()
