"""Does this JSON value fit this JSON Schema? Answered in words, without quoting the value.

For results that people give, and for arguments of tools that have a schema and no typed function. Understood
are the validating words of draft 2020-12, but for `unevaluated…` and `$dynamicRef`, and what older drafts
wrote for them; all other words let pass. Whoever wrote the schema does not decide how long checking takes:
patterns are matched by an engine that never goes back, no reference leaves the schema, and steps are counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any
from uuid import UUID

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from semel.contract.shapes import referred
from semel.kernel.limits import DEPTH_MAX

Schema = Mapping[str, Any]

# Steps of one check: a schema of people's applies some ten rules to each value, one whose references double
# at every turn any number.
_STEPS_MIN, _STEPS_PER_VALUE = 10_000, 100

# Comparing with one choice of an `enum` is a small part of a step. A refusal shows the first of them.
_CHOICES_PER_STEP, _CHOICES_SHOWN = 10, 20

# What a text has to be if it is to be read back as a value of its type.
_FORMATS: dict[str, TypeAdapter[Any]] = {
    "date-time": TypeAdapter(datetime),
    "date": TypeAdapter(date),
    "time": TypeAdapter(time),
    "duration": TypeAdapter(timedelta),
    "uuid": TypeAdapter(UUID),
    "decimal": TypeAdapter(Decimal),
    "ipv4": TypeAdapter(IPv4Address),
    "ipv6": TypeAdapter(IPv6Address),
}

_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def misfit(value: Any, schema: Schema, *, kept: bool = False) -> str | None:
    """Where and why a JSON value does not fit the schema; None if it fits.

    `kept` is for a value that is read back as the type that the schema was made of: formats count too, what
    is write-only is to be left out, and of the choices of a `oneOf` several may fit.
    """
    effort = _Effort(_STEPS_MIN + _STEPS_PER_VALUE * _size(value))
    try:
        return next(_misfits(value, schema, _Spot(schema, effort, kept)), None)
    except _TooLong:
        return "$: checking it takes too long by this schema."


class _TooLong(Exception):
    pass


class _Effort:
    def __init__(self, steps: int) -> None:
        self.steps_left = steps

    def step(self, steps: int = 1) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise _TooLong


class _Spot:
    """Where in the value we are, and the schema that references point into."""

    def __init__(self, root: Schema, effort: _Effort, kept: bool, path: str = "$", depth: int = 0) -> None:
        self.root = root
        self.effort = effort
        self.kept = kept
        self.path = path
        self.depth = depth

    def at(self, key: str | int) -> _Spot:
        plain = isinstance(key, str) and key.isidentifier()
        path = f"{self.path}.{key}" if plain else f"{self.path}[{json.dumps(key)}]"
        return _Spot(self.root, self.effort, self.kept, path, self.depth + 1)

    def deeper(self) -> _Spot:
        return _Spot(self.root, self.effort, self.kept, self.path, self.depth + 1)

    def fits(self, value: Any, schema: Any) -> bool:
        return next(_misfits(value, schema, self.deeper()), None) is None


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _misfits(value: Any, schema: Any, spot: _Spot) -> Iterator[str]:
    spot.effort.step()
    if schema is False:
        yield f"{spot.path}: nothing may be here."
    if not isinstance(schema, Mapping):
        return
    if spot.depth > 4 * DEPTH_MAX:
        yield f"{spot.path}: nested too deeply."
        return
    if spot.kept and schema.get("writeOnly") and value is not None:
        yield f"{spot.path}: a secret is kept nowhere; leave it out."
    if "$ref" in schema:
        yield from _misfits(value, referred(schema["$ref"], spot.root), spot.deeper())
    yield from _of_type(value, schema, spot)
    yield from _of_choices(value, schema, spot)
    yield from _of_conditions(value, schema, spot)
    if isinstance(value, dict):
        yield from _of_object(value, schema, spot)
    elif isinstance(value, list):
        yield from _of_array(value, schema, spot)
    elif isinstance(value, str):
        yield from _of_text(value, schema, spot)
    elif _is_number(value):
        yield from _of_number(value, schema, spot)


def _of_type(value: Any, schema: Schema, spot: _Spot) -> Iterator[str]:
    names = types_of(schema)
    if names and not any(_TYPES.get(name, lambda _: True)(value) for name in names):
        yield f"{spot.path}: {' or '.join(names)} is wanted, not {_kind(value)}."
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{spot.path}: only {compact(schema['const'])} may be here."
    if "enum" in schema:
        yield from _of_enum(value, schema["enum"], spot)


def _of_enum(value: Any, choices: Sequence[Any], spot: _Spot) -> Iterator[str]:
    spot.effort.step(len(choices) // _CHOICES_PER_STEP)
    # `in` is fast over many, and takes more for equal than JSON does (true and 1).
    if value not in choices or not any(_same(value, choice) for choice in choices if choice == value):
        more = ", …" if len(choices) > _CHOICES_SHOWN else ""
        yield f"{spot.path}: one of {', '.join(map(compact, choices[:_CHOICES_SHOWN]))}{more} is wanted."


def types_of(schema: Schema) -> list[str]:
    declared = schema.get("type")
    return [declared] if isinstance(declared, str) else list(declared or ())


def _of_choices(value: Any, schema: Schema, spot: _Spot) -> Iterator[str]:
    for part in schema.get("allOf", ()):
        yield from _misfits(value, part, spot.deeper())
    for word in ("anyOf", "oneOf"):
        choices = schema.get(word)
        if choices is None:
            continue
        reasons = [next(_misfits(value, choice, spot.deeper()), None) for choice in choices]
        if None not in reasons:
            yield _nearest(reasons, spot)
        elif word == "oneOf" and not spot.kept and reasons.count(None) > 1:
            yield f"{spot.path}: more than one of the choices fits."


def _nearest(reasons: list[str | None], spot: _Spot) -> str:
    """The reason of the choice that went furthest into the value; where none did, that none fits."""
    inside = [reason for reason in reasons if reason and not reason.startswith(f"{spot.path}:")]
    if inside:
        return inside[0]
    texts = [reason.removeprefix(f"{spot.path}: ").rstrip(".") for reason in reasons if reason]
    return f"{spot.path}: none of the choices fits ({'; '.join(dict.fromkeys(texts))})."


def _of_conditions(value: Any, schema: Schema, spot: _Spot) -> Iterator[str]:
    if "not" in schema and spot.fits(value, schema["not"]):
        yield f"{spot.path}: the schema says what may not be here, and this is it."
    if "if" in schema:
        follows = schema.get("then" if spot.fits(value, schema["if"]) else "else", True)
        yield from _misfits(value, follows, spot.deeper())


# --- objects --------------------------------------------------------------------------------------


def _of_object(value: dict[str, Any], schema: Schema, spot: _Spot) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{spot.path}: {name!r} is missing."
    for name, member in value.items():
        yield from _of_member(name, member, schema, spot)
        if "propertyNames" in schema:
            yield from _misfits(name, schema["propertyNames"], spot.at(name))
    yield from _of_dependencies(value, schema, spot)
    yield from _of_size(len(value), schema, "Properties", spot)


def _of_member(name: str, member: Any, schema: Schema, spot: _Spot) -> Iterator[str]:
    rules = [schema["properties"][name]] if name in schema.get("properties", {}) else []
    patterns = schema.get("patternProperties", {})
    rules += [rule for pattern, rule in patterns.items() if _matches(pattern, name) is True]
    if not rules and schema.get("additionalProperties") is False:
        yield f"{spot.path}: {name!r} is not part of it."
        return
    for rule in rules or [schema.get("additionalProperties", True)]:
        yield from _misfits(member, rule, spot.at(name))


def _of_dependencies(value: dict[str, Any], schema: Schema, spot: _Spot) -> Iterator[str]:
    for word in ("dependentRequired", "dependentSchemas", "dependencies"):
        for name, rule in schema.get(word, {}).items():
            if name not in value:
                continue
            if not isinstance(rule, list):
                yield from _misfits(value, rule, spot.deeper())
                continue
            for other in rule:
                if other not in value:
                    yield f"{spot.path}: {other!r} is missing, which {name!r} needs."


# --- arrays, texts, numbers -----------------------------------------------------------------------


def _of_array(value: list[Any], schema: Schema, spot: _Spot) -> Iterator[str]:
    items = schema.get("items", True)
    first, others = schema.get("prefixItems", ()), items
    if isinstance(items, list):  # as older drafts have it
        first, others = items, schema.get("additionalItems", True)
    for number, item in enumerate(value):
        yield from _misfits(item, first[number] if number < len(first) else others, spot.at(number))
    if "contains" in schema:
        fitting = sum(spot.fits(item, schema["contains"]) for item in value)
        yield from _of_size(fitting, {"minContains": 1, **schema}, "Contains", spot)
    if schema.get("uniqueItems") is True and len({_text(item) for item in value}) < len(value):
        yield f"{spot.path}: no item may be here twice."
    yield from _of_size(len(value), schema, "Items", spot)


def _of_text(value: str, schema: Schema, spot: _Spot) -> Iterator[str]:
    yield from _of_size(len(value), schema, "Length", spot)
    kind = schema.get("format")
    if spot.kept and kind in _FORMATS and not _accepts(_FORMATS[kind], value):
        yield f"{spot.path}: a text of format {kind} is wanted."
    if isinstance(schema.get("pattern"), str) and _matches(schema["pattern"], value) is False:
        yield f"{spot.path}: a text that matches {schema['pattern']} is wanted."


def _of_number(value: float, schema: Schema, spot: _Spot) -> Iterator[str]:
    bounds: dict[str, Callable[[Any], bool]] = {
        "minimum": lambda bound: value >= bound,
        "maximum": lambda bound: value <= bound,
        "exclusiveMinimum": lambda bound: value > bound,
        "exclusiveMaximum": lambda bound: value < bound,
        "multipleOf": lambda bound: _is_multiple(value, bound),
    }
    for word, holds in bounds.items():
        bound = schema.get(word)
        if isinstance(bound, bool):  # as draft 4 has it
            bound = schema.get(word.removeprefix("exclusive").lower()) if bound else None
        if bound is not None and not holds(bound):
            yield f"{spot.path}: {word} is {compact(bound)}."


def _is_multiple(value: float, of: float) -> bool:
    try:
        return Decimal(str(value)) % Decimal(str(of)) == 0
    except InvalidOperation:  # larger than Decimal divides
        return False


def _of_size(size: int, schema: Schema, what: str, spot: _Spot) -> Iterator[str]:
    if size < schema.get(f"min{what}", 0):
        yield f"{spot.path}: min{what} is {schema[f'min{what}']}."
    if size > schema.get(f"max{what}", size):
        yield f"{spot.path}: max{what} is {schema[f'max{what}']}."


def _matches(pattern: str, text: str) -> bool | None:
    """None for a pattern that cannot be matched in linear time: whatever it is about is let pass."""
    matcher = _matcher(pattern)
    return None if matcher is None else _accepts(matcher, text)


def _accepts(made: TypeAdapter[Any], value: str) -> bool:
    try:
        made.validate_python(value)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:
        return None


# --- what belongs to the schema -------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1, and 1.0 is."""
    return _text(value) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(whole(value), sort_keys=True)


# Beyond this a float stands for more than one whole number.
_WHOLE_MAX = 2.0**53


def whole(value: Any) -> Any:
    """The value with 5 for 5.0: JSON has one kind of number."""
    match value:
        case dict():
            return {name: whole(member) for name, member in value.items()}
        case list():
            return [whole(item) for item in value]
        case float() if value.is_integer() and abs(value) <= _WHOLE_MAX:
            return int(value)
    return value


def _kind(value: Any) -> str:
    return next(name for name, fits in _TYPES.items() if fits(value))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- can the schema be used? ----------------------------------------------------------------------


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_schema_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_schema_map(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


_WORDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), ("a list of schemas", _is_schema_list)),
    **dict.fromkeys(
        ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"),
        ("an object of schemas", _is_schema_map),
    ),
    **dict.fromkeys(
        ("additionalProperties", "propertyNames", "contains", "not", "if", "then", "else", "additionalItems"),
        ("a schema", _is_schema),
    ),
    **dict.fromkeys(
        [
            f"{bound}{what}"
            for bound in ("min", "max")
            for what in ("Length", "Items", "Properties", "Contains")
        ],
        ("a whole number from 0", _is_count),
    ),
    **dict.fromkeys(("minimum", "maximum"), ("a number", _is_number)),
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"),
        ("a number", lambda value: _is_number(value) or isinstance(value, bool)),
    ),
    "multipleOf": ("a number above 0", lambda value: _is_number(value) and value > 0),
    "type": ("the name of a type, or a list of them", lambda value: _are_types(value)),
    "required": ("a list of texts", _is_text_list),
    "enum": ("a list", lambda value: isinstance(value, list)),
    "pattern": ("a text", lambda value: isinstance(value, str)),
    "items": ("a schema", lambda value: _is_schema(value) or _is_schema_list(value)),
    "dependentRequired": (
        "an object of lists of texts",
        lambda value: isinstance(value, dict) and all(map(_is_text_list, value.values())),
    ),
    "dependencies": (
        "an object of schemas or lists of texts",
        lambda value: (
            isinstance(value, dict)
            and all(_is_schema(rule) or _is_text_list(rule) for rule in value.values())
        ),
    ),
}


def _are_types(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return isinstance(names, list) and bool(names) and all(isinstance(n, str) and n in _TYPES for n in names)


def unusable(schema: Schema) -> str | None:
    """Why nothing can be checked by this schema, in words; None if it can."""
    return next(_wrong(schema, schema, "$"), None)


def _wrong(schema: Any, root: Schema, path: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    for word, value in schema.items():
        wanted, fits = _WORDS.get(word, ("", lambda _: True))
        if not fits(value):
            yield f"{path}: {word!r} is {wanted}"
        if word == "$ref" and referred(value, root, None) is None:
            yield f"{path}: it refers to {compact(value)}, which is not part of it"
        for name, inner in _inner(word, value):
            yield from _wrong(inner, root, f"{path}.{word}{name}")


def _inner(word: str, value: Any) -> Iterable[tuple[str, Any]]:
    """The schemas in the value of a word."""
    if word not in _WORDS or word in ("enum", "required", "type"):
        return ()
    if isinstance(value, Mapping) and _WORDS[word][1] is _WORDS["properties"][1]:
        return ((f".{name}", inner) for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ((f"[{number}]", inner) for number, inner in enumerate(value))
    return (("", value),)
