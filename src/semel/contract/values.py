"""A tool's result: stored as JSON and read back as what it was."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Union, cast, get_args, get_origin

import orjson
from pydantic import ConfigDict, ValidationError
from pydantic_core import from_json, to_json

from semel.contract import plain_data, secrecy, shapes
from semel.contract.exact import exact_check
from semel.contract.shapes import READ, WRITE, NotYet, Paths, Unfit
from semel.errors import ContractError
from semel.kernel.limits import DEPTH_MAX, RESULT_BYTES_MAX

_CONFIG = ConfigDict(ser_json_inf_nan="constants", ser_json_bytes="base64", val_json_bytes="base64")

# Stands before what pydantic wrote. orjson would read its NaN not at all and its large integers as floats.
FOR_PYDANTIC = b" "
# Stands before what was kept by its structure. JSON begins with neither.
BY_STRUCTURE = b"\t"
_BLANK = FOR_PYDANTIC[0]

# What orjson writes as it reads it back, or raises.
_EASY = frozenset({str, int, bool, type(None)})
_SCALARS = _EASY | {float}  # it writes NaN as null
_NO_NAMES: Mapping[str, Any] = types.MappingProxyType({})

Fits = Callable[[Any, int], bool]
"""Whether a value, in which so many containers may be opened, is sure to come back equal from orjson."""


class Unstorable(Exception):
    """The result cannot be stored so that it reads back equal; the reason says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Values:
    """The results of one tool. Made by `Values.of`."""

    def __init__(self, resolve: Callable[[], Any], secret: tuple[str, ...]) -> None:
        self._resolve = resolve
        self._secret = secret

    @classmethod
    def of(
        cls,
        annotation: Any,
        *,
        secret: Iterable[str] = (),
        function: Callable[..., Any] = lambda: None,
        local_names: Mapping[str, Any] = _NO_NAMES,
    ) -> Values:
        """The results of a type; raises ContractError for a type that cannot be stored and read back.

        An annotation written as text means what it means in `function`. While a name in it is not there yet,
        the reading and its checks wait for the first use.
        """
        made = cls(lambda: shapes.annotation(annotation, function, local_names), tuple(secret))
        try:
            made.__dict__["_shape"] = made._read_shape()
        except NotYet:
            pass
        return made

    @cached_property
    def _shape(self) -> _Shape:
        try:
            return self._read_shape()
        except NotYet as missing:
            raise ContractError(
                f"The return annotation cannot be resolved ({missing}). "
                "Define or import that name at run time in the tool's module."
            ) from None

    def _read_shape(self) -> _Shape:
        kind = self._resolve()
        try:
            shape = _Shape(kind, self._secret)
        except Unfit as reason:
            raise ContractError(
                f"A result of type {_spelled(kind)} cannot be stored and read back ({reason}). "
                "Return a pydantic model, a dataclass or JSON values, and annotate it so."
            ) from None
        self._resolve = lambda: kind  # the first one may keep a whole frame alive
        return shape

    @property
    def ready(self) -> bool:
        """Whether the return annotation is resolved, so that all checks were made."""
        return "_shape" in self.__dict__

    def resolve(self) -> None:
        """The return annotation is resolved afterwards; raises ContractError if it cannot be."""
        _ = self._shape

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of a result as it is stored: what `load` reads back, by the names of fields."""
        return self._shape.stored_schema()

    def accepts_path(self, path: str) -> bool:
        """Whether a dotted path names a field of the result."""
        return self._shape.accepts_path(path)

    def dump(self, value: Any) -> bytes:
        """The result as JSON, without its secret fields; `load` gives an equal value. Raises Unstorable."""
        shape = self._shape
        data = None if shape.fits is None else shape.plainly(value)
        if data is None:
            data = shape.dump(value)
        if len(data) > RESULT_BYTES_MAX:
            raise Unstorable(f"the result takes {len(data)} bytes; {RESULT_BYTES_MAX} are allowed")
        return data

    def load(self, data: bytes) -> Any:
        """The stored result, a fresh object each time; raises ValueError for damaged data."""
        shape = self._shape
        if shape.fits is not None and not (data and data[0] <= _BLANK):
            return orjson.loads(data)
        if data.startswith(BY_STRUCTURE):
            return plain_data.load(data)
        try:
            # As READ says, spelled out: unpacking it takes a seventh of the time of reading a small model.
            return shape.validator.validate_json(data, by_alias=False, by_name=True)
        except ValueError:
            raise
        except Exception as error:  # a type's own validator may raise anything
            raise ValueError(f"It is not read back: {type(error).__name__}.") from error


class _Shape:
    """What follows from a return type once it is known."""

    def __init__(self, kind: Any, secret: tuple[str, ...]) -> None:
        made = shapes.adapter(kind, _CONFIG)
        self.schema = shapes.json_schema(made, by_alias=False, stored=True)
        self.validator = made.validator
        self.fits = _fits(kind)
        self._serializer = made.serializer
        self._is_dataclass = dataclasses.is_dataclass(kind)
        self._is_open = _is_open(kind)
        # The others are arguments.
        self._secret = Paths.of(path for path in secret if self.accepts_path(path))
        self._withholds = bool(self._secret)
        # Types of plain values are asked by `fits` already.
        asks = not self._secret and self.fits is None
        self._exact = exact_check(cast(Any, made.core_schema), _spelled(kind)) if asks else None

    def accepts_path(self, path: str) -> bool:
        return shapes.names_instead(self.schema, path) is None

    def stored_schema(self) -> dict[str, Any]:
        choices = self.schema.get("anyOf", ())
        if self._is_dataclass and len(choices) == 2 and choices[1] == {"type": "null"}:
            # shapes.adapter lets None through for a dataclass; a result is never None.
            rest = {name: part for name, part in self.schema.items() if name != "anyOf"}
            return {**choices[0], **rest}
        return self.schema

    def plainly(self, value: Any) -> bytes | None:
        """The value as orjson writes it, if it is sure to read back equal."""
        if self._withholds or self.fits is None or not self.fits(value, DEPTH_MAX):
            return None
        try:
            return orjson.dumps(value)
        except orjson.JSONEncodeError:  # an integer beyond 64 bits, a lone surrogate, a key that is no text
            return None

    def dump(self, value: Any) -> bytes:
        """The value as pydantic writes it, or by its structure where no type is declared for all of it."""
        try:
            return FOR_PYDANTIC + self._annotated(value)
        except Unstorable:
            data = _by_structure(secrecy.plain_rest(value, self._secret)) if self._is_open else None
            if data is None:
                raise
            return data

    def _annotated(self, value: Any) -> bytes:
        """The value as pydantic writes it, if it does read back equal but for its secrets."""
        if value is None and self._is_dataclass:
            raise Unstorable("the result does not fit its annotation")  # shapes.adapter lets None through
        data = self._write(value)
        if self._is_exact(value):
            return data  # not read back to be compared: such values are known to come back equal
        if _is_deep(data):
            raise Unstorable(f"the result is nested deeper than {DEPTH_MAX} levels")
        if self._secret or secrecy.present_in(value):
            return self._dump_without_secrets(value, data)
        path = shapes.difference(value, self._read(data))
        if path is not None:
            raise Unstorable(f"{_named(path)} does not read back equal; annotate it with its exact type")
        return data

    def _is_exact(self, value: Any) -> bool:
        try:
            return self._exact is not None and self._exact(value)
        except LookupError:  # a model without one of its fields
            return False

    def _dump_without_secrets(self, value: Any, data: bytes) -> bytes:
        try:
            kept = secrecy.shed(value, from_json(data), self._secret)
        except secrecy.Misplaced:
            raise Unstorable("a serializer of its own writes a secret field to another place") from None
        data = to_json(kept, inf_nan_mode="constants")
        try:
            read = self._read(data)
        except Unstorable:
            raise Unstorable("the result does not read back without its secret fields") from None
        if not secrecy.alike(value, read, self._secret):
            raise Unstorable("what is not secret does not read back equal; annotate it with its exact type")
        return data

    def _write(self, value: Any) -> bytes:
        try:
            return self._serializer.to_json(value, **WRITE)
        except Exception as error:  # a type's own serializer may raise anything
            raise Unstorable(f"the result cannot be written as JSON ({type(error).__name__})") from None

    def _read(self, data: bytes) -> Any:
        try:
            return self.validator.validate_json(data, **READ)
        except ValidationError:
            raise Unstorable("the result does not fit its annotation") from None
        except Exception as error:  # a type's own validator may raise anything
            raise Unstorable(f"the result is not read back ({type(error).__name__})") from None


# --- values that orjson alone can carry -----------------------------------------------------------


def _fits(kind: Any) -> Fits | None:
    """The check for a type whose plain values orjson reads back equal; None for every other type."""
    if kind is Any or kind is object:
        return _plain_fits
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer in (Union, types.UnionType):
        return _one_of([_fits(choice) for choice in inner])
    if outer is dict and (not inner or inner[0] is str):
        member = inner[1] if inner else Any
        return _dict_of_easy(member) if any(member is easy for easy in _EASY) else _dict_of(_fits(member))
    if outer is list:
        return _list_of(_fits(inner[0] if inner else Any))
    return _exactly(kind) if any(kind is scalar for scalar in _SCALARS) else None


def _is_open(kind: Any) -> bool:
    """Whether the type leaves open what it, or what it holds, is made of."""
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer in (Union, types.UnionType):
        return any(map(_is_open, inner))
    if outer is dict or outer is list:
        return not inner or _is_open(inner[-1])
    return kind is Any or kind is object


def _by_structure(value: Any) -> bytes | None:
    """Plain data of any kind, if it does read back equal."""
    try:
        data = BY_STRUCTURE + plain_data.dump(value)
        return data if shapes.difference(value, plain_data.load(data)) is None else None
    except (plain_data.NotPlain, ValueError):
        return None


def is_plain(value: Any) -> bool:
    """Whether it is made of JSON's own kinds of values, and comes back from JSON as it was."""
    try:
        return _plain_fits(value, DEPTH_MAX) and bool(orjson.loads(orjson.dumps(value)) == value)
    except TypeError:  # a number, a text or the key of a dict that JSON does not carry
        return False


def _plain_fits(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in _EASY:
        return True
    if kind is float:
        return math.isfinite(value)
    if not depth or kind not in (dict, list):
        return False
    for each in value.values() if kind is dict else value:
        # Asked here too, because most of what a result holds is easy, and a call costs more than a look.
        if type(each) not in _EASY and not _plain_fits(each, depth - 1):
            return False
    return True


def _exactly(kind: type) -> Fits:
    if kind is float:
        return lambda value, _: type(value) is float and math.isfinite(value)
    return lambda value, _: type(value) is kind


def _one_of(choices: list[Fits | None]) -> Fits | None:
    checks = [choice for choice in choices if choice is not None]
    return (lambda value, depth: any(fit(value, depth) for fit in checks)) if checks == choices else None


def _dict_of(member: Fits | None) -> Fits | None:
    if member is None:
        return None
    if member is _plain_fits:
        return lambda value, depth: type(value) is dict and _plain_fits(value, depth)
    return lambda value, depth: (
        type(value) is dict and all(member(each, depth - 1) for each in value.values())
    )


def _dict_of_easy(kind: type) -> Fits:
    """For the commonest of results, without a call per member."""
    only = frozenset((kind,))
    return lambda value, _: type(value) is dict and only.issuperset(map(type, value.values()))


def _list_of(item: Fits | None) -> Fits | None:
    if item is None:
        return None
    if item is _plain_fits:
        return lambda value, depth: type(value) is list and _plain_fits(value, depth)
    return lambda value, depth: type(value) is list and all(item(each, depth - 1) for each in value)


def _is_deep(data: bytes) -> bool:
    # Counting is cheap, and what opens few containers cannot be deep.
    openings = data.count(b"{") + data.count(b"[")
    return openings > DEPTH_MAX and _is_deeper(from_json(data), DEPTH_MAX)


def _is_deeper(written: Any, depth: int) -> bool:
    if not isinstance(written, (dict, list)):
        return False
    inside = written.values() if isinstance(written, dict) else written
    return depth == 0 or any(_is_deeper(member, depth - 1) for member in inside)


def _named(path: tuple[str, ...]) -> str:
    return f"the result's {'.'.join(path)}" if path else "the result"


def _spelled(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
