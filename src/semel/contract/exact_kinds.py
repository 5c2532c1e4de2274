"""The types whose values the exact way takes (exact.py), read from the schemas that pydantic made of them.

A kind stands for a type of which is known: a value of exactly this type passes validation as it is, has a
canonical form, and reads back equal from what is stored. A schema with anything unknown in it, as a
validator or serializer of its own, has no kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import EnumMeta, Flag
from typing import Any, NamedTuple
from uuid import UUID


class Inexact(Exception):
    """There is no kind for this schema."""


class Condition(NamedTuple):
    """What keeps a value of the right type from being taken: a condition on `it`, compared with `than`."""

    text: str
    than: Any
    name: str = ""  # of `than` in the source


class Leaf(NamedTuple):
    """Values of one type that hold no others."""

    type: type
    unless: tuple[Condition, ...] = ()


class Choice(NamedTuple):
    """A value of one of these."""

    leaves: tuple[Leaf, ...]


class Nullable(NamedTuple):
    inner: Kind


class ListOf(NamedTuple):
    item: Kind


class DictOf(NamedTuple):
    """By names that are text."""

    member: Kind


class ModelOf(NamedTuple):
    """A pydantic model without validators, serializers, aliases of meaning, or extra fields."""

    type: type
    fields: tuple[tuple[str, Kind], ...]


Kind = Leaf | Choice | Nullable | ListOf | DictOf | ModelOf

Schema = Mapping[str, Any]

# Says nothing about values.
_ASIDE = frozenset({"type", "metadata", "ref"})

# A zone of another kind may not be written to the microsecond, or not be read back as equal.
_ZONE = Condition("({it}.tzinfo is not None and {it}.tzinfo is not {than})", UTC, "UTC")

_LEAVES: Mapping[str, Leaf] = {
    "none": Leaf(type(None)),
    "bool": Leaf(bool),
    "float": Leaf(float),
    "decimal": Leaf(Decimal),
    "date": Leaf(date),
    "uuid": Leaf(UUID),
}

_INT_BOUNDS = {"ge": "{it} < {than}", "gt": "{it} <= {than}", "le": "{it} > {than}", "lt": "{it} >= {than}"}
_LENGTHS = {"min_length": "{len}({it}) < {than}", "max_length": "{len}({it}) > {than}"}

# What is stored is written and read by the names of fields, whatever a model says.
_ALIASES = ("populate_by_name", "validate_by_name", "validate_by_alias", "serialize_by_alias")

# What a model may say of itself: none of it changes how its instances are taken, written or read.
_MODEL_CONFIG = frozenset({"title", "frozen", "extra_fields_behavior", *_ALIASES})
_FIELD = _ASIDE | {"schema", "validation_alias", "serialization_alias", "frozen"}
_DEFAULT = _ASIDE | {"schema", "default", "default_factory", "default_factory_takes_data", "copy_default"}


def kind_of(schema: Schema) -> Kind:
    """The kind of a schema's values; raises Inexact if there is none."""
    name = schema["type"]
    if name in _LEAVES:
        _only(schema, _ASIDE)
        return _LEAVES[name]
    read = _READERS.get(name)
    if read is None:
        raise Inexact
    return read(schema)


def _only(schema: Schema, members: frozenset[str]) -> None:
    if not members.issuperset(schema):
        raise Inexact


def _int(schema: Schema) -> Leaf:
    return _bounded(int, schema, _INT_BOUNDS)


def _str(schema: Schema) -> Leaf:
    return _bounded(str, schema, _LENGTHS)


def _bounded(kind: type, schema: Schema, bounds: Mapping[str, str]) -> Leaf:
    _only(schema, _ASIDE | bounds.keys())
    given = {name: schema[name] for name in bounds if name in schema}
    if any(type(bound) is not int for bound in given.values()):
        raise Inexact
    return Leaf(kind, tuple(Condition(bounds[name], bound) for name, bound in given.items()))


def _datetime(schema: Schema) -> Leaf:
    # How microseconds are cut off concerns texts alone.
    _only(schema, _ASIDE | {"microseconds_precision"})
    return Leaf(datetime, (_ZONE,))


def _literal(schema: Schema) -> Leaf:
    _only(schema, _ASIDE | {"expected"})
    expected = schema["expected"]
    if any(type(text) is not str for text in expected):
        raise Inexact
    return Leaf(str, (Condition("{it} not in {than}", frozenset(expected), "choices"),))


def _enum(schema: Schema) -> Leaf:
    """An Enum of texts or integers, which orjson writes by their values as the canonical form does."""
    _only(schema, _ASIDE | {"cls", "members", "sub_type"})
    kind, members = schema["cls"], schema["members"]
    usual = type(kind) is EnumMeta and not issubclass(kind, Flag)
    if not usual or kind.__eq__ not in (object.__eq__, str.__eq__, int.__eq__):
        raise Inexact
    values = [member.value for member in members]
    if {type(value) for value in values} == {str} or all(_is_small(value) for value in values):
        return Leaf(kind)
    raise Inexact


def _is_small(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _nullable(schema: Schema) -> Kind:
    _only(schema, _ASIDE | {"schema"})
    return Nullable(kind_of(schema["schema"]))


def _union(schema: Schema) -> Choice:
    """Plain leaves only: of several that fit, pydantic takes the one whose type the value has."""
    _only(schema, _ASIDE | {"choices"})
    leaves = []
    for choice in schema["choices"]:
        leaf = kind_of(choice) if not isinstance(choice, tuple) else None
        if not isinstance(leaf, Leaf) or leaf.unless or leaf.type not in (str, int, bool, float, type(None)):
            raise Inexact
        leaves.append(leaf)
    return Choice(tuple(leaves))


def _list(schema: Schema) -> ListOf:
    _only(schema, _ASIDE | {"items_schema"})
    return ListOf(kind_of(schema["items_schema"]))


def _dict(schema: Schema) -> DictOf:
    _only(schema, _ASIDE | {"keys_schema", "values_schema"})
    if kind_of(schema["keys_schema"]) != Leaf(str):
        raise Inexact
    return DictOf(kind_of(schema["values_schema"]))


def _model(schema: Schema) -> ModelOf:
    _only(schema, _ASIDE | {"cls", "config", "schema", "root_model", "custom_init"})
    config, inside = schema.get("config", {}), schema["schema"]
    _only(config, _MODEL_CONFIG)
    if schema.get("root_model") or schema.get("custom_init") or inside["type"] != "model-fields":
        raise Inexact
    if config.get("extra_fields_behavior") == "allow" or inside.get("computed_fields"):
        raise Inexact
    _only(inside, _ASIDE | {"fields", "model_name", "computed_fields"})
    return ModelOf(
        schema["cls"], tuple((name, _field(name, each)) for name, each in inside["fields"].items())
    )


def _field(name: str, field: Schema) -> Kind:
    _only(field, _FIELD)
    schema = field["schema"]
    if schema["type"] == "default":
        # It stands in for what is missing, and what is stored misses nothing.
        _only(schema, _DEFAULT)
        schema = schema["schema"]
    if not name.isidentifier():
        raise Inexact
    return kind_of(schema)


_READERS: Mapping[str, Callable[[Schema], Kind]] = {
    "int": _int,
    "str": _str,
    "datetime": _datetime,
    "literal": _literal,
    "enum": _enum,
    "nullable": _nullable,
    "union": _union,
    "list": _list,
    "dict": _dict,
    "model": _model,
}
