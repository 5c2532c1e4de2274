"""Plain data that JSON has no kinds for, kept by its structure: written as JSON with tags, read back as it
was.

For results whose type is not declared. A value is plain if it is made of JSON's kinds, tuples, sets, bytes,
numbers and times of the standard library; an object of a class is not, since nobody would know what to make
it of.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic_core import from_json, to_json

from semel.kernel.limits import DEPTH_MAX

# The member of an object that says what the object stands for. A dict that has one itself is written as
# pairs.
TAG, INSIDE = "$kind", "value"

_JSON = frozenset({str, int, float, bool, type(None)})
_MANY: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
_ONE: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", lambda value: value.decode("latin-1")),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
}
_READ: dict[str, Callable[[Any], Any]] = {
    "dict": lambda pairs: {_read(key): _read(value) for key, value in pairs},
    "tuple": lambda items: tuple(map(_read, items)),
    "set": lambda items: set(map(_read, items)),
    "frozenset": lambda items: frozenset(map(_read, items)),
    "bytes": lambda text: text.encode("latin-1"),
    "decimal": Decimal,
    "uuid": UUID,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
}


class NotPlain(Exception):
    """The value holds something that cannot be kept by its structure."""


def dump(value: Any) -> bytes:
    """The value as JSON; raises NotPlain."""
    try:
        return to_json(_written(value, DEPTH_MAX), inf_nan_mode="constants")
    except ValueError:  # a text that is no text: a lone surrogate
        raise NotPlain from None


def load(data: bytes) -> Any:
    """What was dumped; raises ValueError for damaged data."""
    try:
        return _read(from_json(data))
    except (ArithmeticError, LookupError, TypeError, AttributeError) as damage:
        raise ValueError("This is no plain data.") from damage


def _written(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _JSON:
        return value
    if kind in _ONE:
        name, write = _ONE[kind]
        return {TAG: name, INSIDE: write(value)}
    if not depth:
        raise NotPlain
    if kind is list:
        return [_written(item, depth - 1) for item in value]
    if kind in _MANY:
        return {TAG: _MANY[kind], INSIDE: [_written(item, depth - 1) for item in value]}
    if kind is not dict:
        raise NotPlain
    if TAG not in value and all(type(key) is str for key in value):
        return {key: _written(member, depth - 1) for key, member in value.items()}
    pairs = [[_written(key, depth - 1), _written(member, depth - 1)] for key, member in value.items()]
    return {TAG: "dict", INSIDE: pairs}


def _read(data: Any) -> Any:
    if type(data) is list:
        return [_read(item) for item in data]
    if type(data) is not dict:
        return data
    if TAG in data:
        return _READ[data[TAG]](data[INSIDE])
    return {key: _read(member) for key, member in data.items()}
