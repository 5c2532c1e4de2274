"""What a tool's result looks like, without the tool: a value held to a JSON Schema, a form to fill in.

The schemas are those that `describe()` gives, so the words of JSON Schema that pydantic writes are understood
and all others let pass. Patterns are matched by an engine that never goes back, so that no text takes long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any
from uuid import UUID

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from semel.kernel.limits import DEPTH_MAX

Schema = Mapping[str, Any]

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


def misfit(value: Any, schema: Schema, secret: Iterable[str] = ()) -> str | None:
    """Where and why a JSON value does not fit the schema, without quoting it; None if it fits.

    Nor does it fit if it has something at a `secret` path: what is secret is written nowhere.
    """
    secret_path = next((path for path in secret if _present(value, path.split("."))), None)
    if secret_path is not None:
        return f"$.{secret_path}: a secret is kept nowhere; leave it out."
    return next(_misfits(value, schema, _Spot(schema)), None)


def _present(value: Any, path: Sequence[str]) -> bool:
    """Whether something is there. Lists are passed through; `*` is every key of an object."""
    if isinstance(value, list):
        return any(_present(item, path) for item in value)
    if not path:
        return value is not None
    if not isinstance(value, dict):
        return False
    inner = value.values() if path[0] == "*" else [value.get(path[0])]
    return any(_present(member, path[1:]) for member in inner)


class _Spot:
    """Where in the value we are, and the schema that references point into."""

    def __init__(self, root: Schema, path: str = "$", depth: int = 0) -> None:
        self.root = root
        self.path = path
        self.depth = depth

    def at(self, key: str | int) -> _Spot:
        path = f"{self.path}[{key}]" if isinstance(key, int) else f"{self.path}.{key}"
        return _Spot(self.root, path, self.depth + 1)

    def deeper(self) -> _Spot:
        return _Spot(self.root, self.path, self.depth + 1)


def _misfits(value: Any, schema: Any, spot: _Spot) -> Iterator[str]:
    if schema is False:
        yield f"{spot.path}: nothing may be here."
    if not isinstance(schema, Mapping):
        return
    if spot.depth > 4 * DEPTH_MAX:
        yield f"{spot.path}: nested too deeply."
        return
    if schema.get("writeOnly") and value is not None:
        yield f"{spot.path}: a secret is kept nowhere; leave it out."
    if "$ref" in schema:
        yield from _misfits(value, _target(schema["$ref"], spot.root), spot.deeper())
    yield from _of_type(value, schema, spot)
    yield from _of_choices(value, schema, spot)
    if isinstance(value, dict):
        yield from _of_object(value, schema, spot)
    elif isinstance(value, list):
        yield from _of_array(value, schema, spot)
    elif isinstance(value, str):
        yield from _of_text(value, schema, spot)
    elif _is_number(value):
        yield from _of_number(value, schema, spot)


def _of_type(value: Any, schema: Schema, spot: _Spot) -> Iterator[str]:
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else list(declared or ())
    if names and not any(_TYPES.get(name, lambda _: True)(value) for name in names):
        yield f"{spot.path}: {' or '.join(names)} is wanted, not {_kind(value)}."
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{spot.path}: only {compact(schema['const'])} may be here."
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        yield f"{spot.path}: one of {', '.join(map(compact, schema['enum']))} is wanted."


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


def _nearest(reasons: list[str | None], spot: _Spot) -> str:
    """The reason of the choice that went furthest into the value; where none did, that none fits."""
    inside = [reason for reason in reasons if reason and not reason.startswith(f"{spot.path}:")]
    if inside:
        return inside[0]
    texts = [reason.removeprefix(f"{spot.path}: ").rstrip(".") for reason in reasons if reason]
    return f"{spot.path}: none of the choices fits ({'; '.join(dict.fromkeys(texts))})."


def _of_object(value: dict[str, Any], schema: Schema, spot: _Spot) -> Iterator[str]:
    members, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{spot.path}: {name!r} is missing."
    for name, member in value.items():
        if name in members:
            yield from _misfits(member, members[name], spot.at(name))
        elif more is False:
            yield f"{spot.path}: {name!r} is not part of it."
        else:
            yield from _misfits(member, more, spot.at(name))
        if "propertyNames" in schema:
            yield from _misfits(name, schema["propertyNames"], spot.at(name))
    yield from _of_size(len(value), schema, "Properties", spot)


def _of_array(value: list[Any], schema: Schema, spot: _Spot) -> Iterator[str]:
    first = schema.get("prefixItems", ())
    for number, item in enumerate(value):
        rule = first[number] if number < len(first) else schema.get("items", True)
        yield from _misfits(item, rule, spot.at(number))
    yield from _of_size(len(value), schema, "Items", spot)


def _of_text(value: str, schema: Schema, spot: _Spot) -> Iterator[str]:
    yield from _of_size(len(value), schema, "Length", spot)
    kind = schema.get("format")
    if kind in _FORMATS and not _accepts(_FORMATS[kind], value):
        yield f"{spot.path}: a text of format {kind} is wanted."
    if isinstance(schema.get("pattern"), str):
        matcher = _matcher(schema["pattern"])
        if matcher is not None and not _accepts(matcher, value):
            yield f"{spot.path}: a text that matches {schema['pattern']} is wanted."


def _of_number(value: float, schema: Schema, spot: _Spot) -> Iterator[str]:
    bounds: dict[str, Callable[[Any], bool]] = {
        "minimum": lambda bound: value >= bound,
        "maximum": lambda bound: value <= bound,
        "exclusiveMinimum": lambda bound: value > bound,
        "exclusiveMaximum": lambda bound: value < bound,
    }
    for word, holds in bounds.items():
        if word in schema and not holds(schema[word]):
            yield f"{spot.path}: {word} is {compact(schema[word])}."


def _of_size(size: int, schema: Schema, what: str, spot: _Spot) -> Iterator[str]:
    if size < schema.get(f"min{what}", 0):
        yield f"{spot.path}: min{what} is {schema[f'min{what}']}."
    if size > schema.get(f"max{what}", size):
        yield f"{spot.path}: max{what} is {schema[f'max{what}']}."


def _accepts(made: TypeAdapter[Any], value: str) -> bool:
    try:
        made.validate_python(value)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> TypeAdapter[Any] | None:
    """None for a pattern that cannot be matched in linear time: such a text is let pass."""
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:
        return None


def _target(reference: Any, root: Schema) -> Any:
    """What a reference into the schema itself means; anything may be where it leads elsewhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return True
    target: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        if name:
            target = target.get(name, True) if isinstance(target, Mapping) else True
    return target


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    """Equal as JSON: `true` is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _kind(value: Any) -> str:
    return next(name for name, fits in _TYPES.items() if fits(value))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- a form to fill in ----------------------------------------------------------------------------

# Beyond this a form helps nobody.
_FORM_DEPTH = 12


def returns_nothing(schema: Schema) -> bool:
    """Whether null is the only value: then there is nothing to fill in."""
    return schema.get("type") == "null"


def template(schema: Schema) -> str:
    """The result's outline. It is no JSON until it is filled in, so that nobody sends it as it stands."""
    return "null" if returns_nothing(schema) else _outline(schema, schema, 0)


def _outline(schema: Any, root: Schema, depth: int) -> str:
    if not isinstance(schema, Mapping) or not schema or depth > _FORM_DEPTH:
        return "<any JSON>"
    if "$ref" in schema:
        return _outline(_target(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return compact(schema["const"])
    if "enum" in schema:
        return f"<{' | '.join(map(compact, schema['enum'][:5]))}>"
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if choices:
        return _outline(choices[0], root, depth + 1)
    return _outline_of_type(schema, root, depth)


def _outline_of_type(schema: Schema, root: Schema, depth: int) -> str:
    match schema.get("type"):
        case "object" if schema.get("properties"):
            members = schema["properties"]
            names = [name for name in members if name in schema.get("required", members)] or list(members)
            return (
                "{" + ", ".join(f"{compact(n)}: {_outline(members[n], root, depth + 1)}" for n in names) + "}"
            )
        case "object":
            return "{<name>: " + _outline(schema.get("additionalProperties", True), root, depth + 1) + "}"
        case "array" if "prefixItems" in schema:
            return "[" + ", ".join(_outline(item, root, depth + 1) for item in schema["prefixItems"]) + "]"
        case "array":
            return f"[{_outline(schema.get('items', True), root, depth + 1)}, …]"
        case str(name):
            return f"<{schema.get('format', name)}>"
    return "<any JSON>"
