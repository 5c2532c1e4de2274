"""Canonical bytes, keys and fingerprints: what makes two calls one action. No I/O, no clock.

The canonical form, version 1, is JSON in UTF-8 without spaces, members sorted by name:

- text, true, false, null and integers of 64 bits stand for themselves
- a float that is a whole number is that integer; any other is {"$float": "0.1"}, Python's shortest spelling
- everything else is a tagged text: {"$decimal": "15E-1"}, {"$instant": "microseconds since 1970"}, ...
- a set is {"$set": [...]}, ordered by the bytes of its elements; a tuple is a list
- a name that begins with "$" gets one more, and a key that is no text becomes "$" and its own canonical
  form, so nothing that a caller writes can look like a tag

It is not RFC 8785. A change of any byte of it is a new KEY_FORMAT.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import struct
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson

from semel.kernel.limits import DEPTH_MAX, KEY_BYTES_MAX

if TYPE_CHECKING:
    from hashlib import _Hash

KEY_FORMAT = 1

# Looked up once, because every call comes by here.
_dumps = orjson.dumps
_SORTED = orjson.OPT_SORT_KEYS
_new = str.__new__

# What orjson writes as a number; anything larger travels as text.
_INT_MIN = -(1 << 63)
_INT_MAX = (1 << 64) - 1

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As integers, because looking for one byte is ten times as fast as looking for a bytes object.
_BACKSLASH = ord("\\")
_DOLLAR = ord("$")
_HEX = frozenset("0123456789abcdef")
_PLAIN = frozenset({str, int, bool, type(None)})


class Uncanonical(ValueError):
    """A value has no canonical form."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.path: tuple[str, ...] = ()
        super().__init__(what)

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'the value'} {self.what}"

    def within(self, name: object) -> Uncanonical:
        """The same error, seen from the container that holds the value under this name."""
        self.path = (printable(name), *self.path)
        return self


class UnknownType(Uncanonical):
    """A value's type has no canonical form."""


class Tagged(dict[str, Any]):
    """A one-member dict that is canonical already; a caller's own dict never is one."""


Unfold = Callable[[Any], Any]
"""Turns an object of a foreign type into values of known ones, or into a `Tagged`; raises UnknownType."""


def canonical(value: Any, *, depth_max: int = DEPTH_MAX, unfold: Unfold | None = None) -> bytes:
    """The bytes that are the same for equal values, in every process, and differ for different ones.

    Raises Uncanonical, which names the path, for what has no such form: NaN and the infinities, NUL and lone
    surrogates in text, more than `depth_max` containers inside each other, types that nobody knows.
    """
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())):
        data = plain(value)
        if data is not None:
            return data
    return _encoded(_Walk(depth_max, unfold).walk(value, depth_max))


def plain(flat: dict[Any, Any]) -> bytes | None:
    """The canonical bytes of a dict of text, integers, booleans and None; None if it needs the long way."""
    try:
        data = _dumps(flat, None, _SORTED)
    except TypeError:  # a key that is no text, a surrogate, an integer beyond 64 bits
        return None
    if _BACKSLASH in data and holds_nul(data):
        return None
    if _DOLLAR in data and (data.startswith(b'{"$') or data.find(b',"$') >= 0):
        return None
    return data


def holds_nul(data: bytes) -> bool:
    """Whether what orjson wrote may hold a NUL, which canonical bytes never do."""
    return data.find(b"\\u0000") >= 0


def leaf_form(kind: type) -> Callable[[Any], Any] | None:
    """What turns values of exactly this type into what orjson writes as their canonical bytes.

    None for text, integers, booleans and None: orjson writes them as they are, or raises.
    """
    return None if kind in _PLAIN else _LEAVES[kind]


def stand_for_themselves(names: Iterable[Any]) -> bool:
    """Whether all keys of a dict are text that the canonical form writes as it is."""
    return all(type(name) is str and not name.startswith("$") for name in names)


class _Walk:
    """Turns one value into what orjson writes as canonical bytes."""

    def __init__(self, depth_max: int, unfold: Unfold | None) -> None:
        self._depth_max = depth_max
        self._unfold = unfold

    def walk(self, value: Any, depth: int) -> Any:
        """The JSON form of the value; `depth` containers may still be opened."""
        kind = type(value)
        leaf = _LEAVES.get(kind)
        if leaf is not None:
            return leaf(value)
        if kind is Tagged:
            return value
        container = _CONTAINERS.get(kind)
        if container is not None:
            if depth == 0:
                raise Uncanonical(f"is nested deeper than {self._depth_max} levels")
            return container(self, value, depth - 1)
        return self.walk(self._converted(value), depth)

    def _converted(self, value: Any) -> Any:
        """The same value as one of exactly the known types."""
        kind: Any = type(value)
        convert = _conversion(kind) or self._unfold
        if convert is None:
            raise unknown(value)
        return convert(value)

    def members(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        walked = {}
        key = None
        try:
            for key, member in value.items():
                # Names of fields are the usual case, and an identifier needs no second look.
                name = key if type(key) is str and key.isidentifier() else self._name(key, depth)
                walked[name] = self.walk(member, depth)
        except Uncanonical as error:
            raise error.within(key) from None
        if len(walked) != len(value):  # an Enum key beside its own value
            raise Uncanonical("has two keys with one canonical form")
        return walked

    def items(self, value: Iterable[Any], depth: int) -> list[Any]:
        walked: list[Any] = []
        try:
            for item in value:
                walked.append(self.walk(item, depth))  # noqa: PERF401  its length tells where it went wrong
        except Uncanonical as error:
            raise error.within(len(walked)) from None
        return walked

    def unordered(self, value: Iterable[Any], depth: int) -> dict[str, Any]:
        return {"$set": sorted(self.items(value, depth), key=_encoded)}

    def _name(self, key: Any, depth: int) -> str:
        while isinstance(key, Enum):
            key = key.value
        if not isinstance(key, str):
            return f"${_encoded(self.walk(key, depth)).decode()}"
        text = _text(str.__str__(key))
        return f"${text}" if text.startswith("$") else text


class Bag(list[Any]):
    """Elements whose order means nothing, though they cannot be hashed."""


def unknown(value: Any) -> UnknownType:
    """The error for a value whose type nobody knows."""
    kind = type(value)
    return UnknownType(f"is of type {kind.__module__}.{kind.__qualname__}, which has no canonical form")


def _encoded(walked: Any) -> bytes:
    return _dumps(walked, None, _SORTED)


def _text(value: str) -> str:
    if "\0" in value:
        raise Uncanonical("contains a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Uncanonical("contains a lone surrogate, which is not text") from None
    return value


def _int(value: int) -> int | dict[str, str]:
    # Hexadecimal, because Python limits how long a decimal text of an integer may be.
    return value if _INT_MIN <= value <= _INT_MAX else {"$int": hex(value)}


def _float(value: float) -> Any:
    if not math.isfinite(value):
        raise Uncanonical(f"is {value}, which is not a number that JSON has")
    # Not orjson's spelling: keys must outlive the float printer of a dependency.
    return _int(int(value)) if value.is_integer() else {"$float": repr(value)}


def _decimal(value: Decimal) -> dict[str, str]:
    # By hand, because Decimal.normalize rounds to the caller's context.
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise Uncanonical(f"is {value}, which is not a number that JSON has")
    text = "".join(map(str, digits))
    stripped = text.rstrip("0")
    if not stripped:
        return {"$decimal": "0E0"}
    exponent += len(text) - len(stripped)
    return {"$decimal": f"{'-' if sign else ''}{stripped}E{exponent}"}


def _datetime(value: datetime) -> dict[str, str]:
    if value.utcoffset() is None:
        return {"$naive": value.replace(tzinfo=None, fold=0).isoformat()}
    # Counted instead of converted: near the years 1 and 9999 astimezone overflows.
    return {"$instant": str((value - _EPOCH) // _MICROSECOND)}


def _time(value: time) -> dict[str, str]:
    offset = value.utcoffset()
    bare = value.replace(tzinfo=None, fold=0)
    if offset is None:
        return {"$time": bare.isoformat()}
    since_midnight = datetime.combine(_EPOCH, bare, UTC) - _EPOCH
    return {"$time_utc": str((since_midnight - offset) // _MICROSECOND)}


def _timedelta(value: timedelta) -> dict[str, str]:
    return {"$duration": str(value // _MICROSECOND)}


def _bytes(value: bytes) -> dict[str, str]:
    return {"$bytes": base64.b64encode(value).decode()}


def _same(value: Any) -> Any:
    return value


_LEAVES: Mapping[type, Callable[[Any], Any]] = {
    str: _text,
    int: _int,
    bool: _same,
    type(None): _same,
    float: _float,
    Decimal: _decimal,
    datetime: _datetime,
    date: lambda value: {"$date": value.isoformat()},
    time: _time,
    timedelta: _timedelta,
    uuid.UUID: lambda value: {"$uuid": value.hex},
    bytes: _bytes,
    orjson.Fragment: _same,  # bytes that are canonical already, from an `unfold`
}

_CONTAINERS: Mapping[type, Callable[[_Walk, Any, int], Any]] = {
    dict: _Walk.members,
    list: _Walk.items,
    tuple: _Walk.items,
    set: _Walk.unordered,
    frozenset: _Walk.unordered,
    Bag: _Walk.unordered,
}


def _bare_datetime(value: datetime) -> datetime:
    return datetime.combine(_bare_date(value), _bare_time(datetime.timetz(value)))


def _bare_date(value: date) -> date:
    return date(value.year, value.month, value.day)


def _bare_time(value: time) -> time:
    clock = (value.hour, value.minute, value.second, value.microsecond)
    return time(*clock, tzinfo=value.tzinfo, fold=value.fold)


# Subclasses count as what they are built on, whatever they print. The first base that fits is taken, so the
# order matters: a text or integer Enum is an Enum first, and a datetime is a date.
_BASES: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (Enum, lambda value: value.value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (Decimal, Decimal),
    (datetime, _bare_datetime),
    (date, _bare_date),
    (time, _bare_time),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (uuid.UUID, lambda value: uuid.UUID(int=value.int)),
    ((bytes, bytearray, memoryview), bytes),
    ((list, tuple, deque), list),
    ((set, frozenset), frozenset),
    (Mapping, dict),
)


# Bounded, because a program may make classes without end.
@lru_cache(maxsize=1024)
def _conversion(kind: type) -> Callable[[Any], Any] | None:
    """How values of a subclass become values of a known type; None for a foreign type."""
    return next((convert for base, convert in _BASES if issubclass(kind, base)), None)


def printable(name: object) -> str:
    """A name as it may stand in an error text."""
    # Names come from callers: they may be endless or unprintable, and land in error texts.
    text = name if isinstance(name, str) else str(name)
    return ascii(text)[1:-1][:80] if not text.isprintable() or len(text) > 80 else text


# --- keys ----------------------------------------------------------------------------------------


_EIGHT_BYTES = struct.Struct(">Q").pack


def frame(*parts: str | bytes) -> bytes:
    """The parts as one text that no other parts make: each behind its length in eight bytes."""
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(chain.from_iterable(zip(map(_EIGHT_BYTES, map(len, encoded)), encoded, strict=True)))


class Key(str):
    """The identity of one action: 64 lower-case hexadecimal digits."""

    __slots__ = ()

    def __new__(cls, text: str) -> Key:
        if len(text) != 64 or not _HEX.issuperset(text):
            raise ValueError("A key is 64 lower-case hexadecimal digits.")
        return str.__new__(cls, text)

    def part(self, name: str) -> Key:
        """The key of one of several downstream calls of this action; the same for the same name."""
        return _digest("part", self, name)

    def uuid(self) -> uuid.UUID:
        """This key for downstreams that want a UUID: its first 128 bits, marked as version 8 (RFC 9562)."""
        bits = int(self[:32], 16)
        bits = bits & ~(0xF << 76) | 8 << 76
        return uuid.UUID(int=bits & ~(0b11 << 62) | 0b10 << 62)


def _digest(purpose: str, *parts: str) -> Key:
    # The purpose comes first, so that keys made for different purposes never meet.
    return str.__new__(Key, hashlib.sha256(frame(f"semel.{purpose}", str(KEY_FORMAT), *parts)).hexdigest())


def step_seed(tenant: str, conversation: str, path: tuple[str, ...]) -> _Hash:
    """The hash that every key of this step begins with; `derive` copies it."""
    return hashlib.sha256(frame("semel.key", str(KEY_FORMAT), tenant, conversation, frame(*path)))


def tool_frame(tool: str, major: int) -> bytes:
    """The tool's own part of its keys."""
    return frame(tool, str(major))


def derive(seed: _Hash, tool: bytes, canonical_arguments: bytes) -> Key:
    """The key of one call of one tool in one step."""
    return _new(Key, derive_digits(seed, tool, canonical_arguments))


def derive_digits(seed: _Hash, tool: bytes, canonical_arguments: bytes) -> str:
    """The digits of that key: enough to look it up."""
    # The arguments end the message, so they need no length of their own.
    state = seed.copy()
    state.update(tool + canonical_arguments)
    return state.hexdigest()


def key_with(digits: str) -> Key:
    """The key with these digits, which `derive_digits` gave."""
    return _new(Key, digits)


def explicit(tenant: str, text: str) -> Key:
    """The key of an idempotency key that a caller gave; a `Key` is taken as it is.

    Raises ValueError for a text that is empty, over 255 bytes, or holds control characters or surrogates.
    """
    if isinstance(text, Key):
        return text
    problem = _key_problem(text)
    if problem:
        raise ValueError(f"The idempotency key {problem}.")
    return _digest("explicit", tenant, text)


def _key_problem(text: object) -> str | None:
    if not isinstance(text, str):
        return f"has to be text, not {type(text).__name__}"
    if not text:
        return "is empty"
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in text):
        return "contains control characters"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "contains a lone surrogate, which is not text"
    return f"is {size} bytes long; {KEY_BYTES_MAX} are allowed" if size > KEY_BYTES_MAX else None


def fingerprint(tool: str, canonical_arguments: bytes) -> bytes:
    """32 bytes that tell whether a key is used for the same tool and arguments again."""
    return hashlib.sha256(_fingerprint_frame(tool) + canonical_arguments).digest()


# A program has few tools, and every claim comes by here.
@lru_cache(maxsize=1024)
def _fingerprint_frame(tool: str) -> bytes:
    return frame("semel.fingerprint", str(KEY_FORMAT), tool)


def secret_mark(secret_key: bytes, value: Any, *, unfold: Unfold | None = None) -> Tagged:
    """What stands for a secret in canonical bytes: it tells two secrets apart and discloses neither."""
    try:
        message = canonical({"v": value}, unfold=unfold)
    except Uncanonical as error:
        error.path = ("a secret",)
        raise
    return Tagged({"$hmac": hmac.digest(secret_key, message, "sha256").hex()})
