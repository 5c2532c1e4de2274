"""Values as the bytes that PostgreSQL sends and takes, and back.

PostgreSQL refuses NUL in a text. So NUL is written as U+0001 "0" and U+0001 itself as U+0001 "1", which also
keeps the order of texts; every other text is written as it is, so that a person can read it in the tables.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

from semel.kernel.record import Address

_BOOL, _BYTEA, _INT8, _INT4, _TEXT, _VOID, _XID8 = 16, 17, 20, 23, 25, 2278, 5069

_int8 = struct.Struct("!q").pack
_length = struct.Struct("!i").pack
_head = struct.Struct("!iiiii").pack
_NULL = _length(-1)
_TRUE, _FALSE = b"\x01", b"\x00"


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


def _array(oid: int, packed: Sequence[bytes | None]) -> bytes:
    if not packed:
        return struct.pack("!iii", 0, 0, oid)
    parts = [_head(1, 1, oid, len(packed), 1)]
    for value in packed:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_length(len(value)))
            parts.append(value)
    return b"".join(parts)


def texts(values: Sequence[str | None]) -> bytes:
    return _array(_TEXT, [text(value) for value in values])


def numbers(values: Sequence[int | None]) -> bytes:
    return _array(_INT8, [number(value) for value in values])


def truths(values: Sequence[bool]) -> bytes:
    return _array(_BOOL, [truth(value) for value in values])


def binaries(values: Sequence[bytes | None]) -> bytes:
    return _array(_BYTEA, values)


def _text_of(value: bytes) -> str:
    return unescaped(value.decode())


def _number_of(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _truth_of(value: bytes) -> bool:
    return value == _TRUE


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


def digest(at: Address) -> bytes:
    """Under which a record is kept. Each part carries its length, so that no two addresses run together."""
    parts = [part.encode() for part in at]
    return hashlib.sha256(b"".join(piece for part in parts for piece in (_length(len(part)), part))).digest()
