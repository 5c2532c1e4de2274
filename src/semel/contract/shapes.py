"""What arguments and results have in common: types that pydantic knows, looked into and compared."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Optional, get_type_hints
from urllib.parse import unquote
from uuid import UUID

from pydantic import BaseModel, ConfigDict, RootModel, Secret, SecretBytes, SecretStr, TypeAdapter
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import core_schema

from semel.kernel.keys import Bag, Tagged, Unfold, secret_mark, unknown

# What is stored is written and read by field names, so that no alias, alone or swapped, changes what is read.
WRITE: Mapping[str, Any] = {"by_alias": False, "round_trip": True, "warnings": False}
READ: Mapping[str, Any] = {"by_alias": False, "by_name": True}

SECRETS = (SecretStr, SecretBytes, Secret)

# Most values are one of these, and asking each whether it is a model costs more than all else.
_LEAVES = frozenset({str, int, bool, type(None), float, Decimal, datetime, date, UUID, bytes})


class NotYet(Exception):
    """A name that an annotation uses is not defined yet."""


class Unfit(Exception):
    """pydantic cannot write values of this type as JSON and read them back."""


# --- types ---------------------------------------------------------------------------------------


def annotation(written: Any, function: Callable[..., Any], local_names: Mapping[str, Any]) -> Any:
    """The type that an annotation of this function means; raises NotYet for a name that is not there."""
    if written is inspect.Parameter.empty:
        return Any
    function = inspect.unwrap(function)
    holder = types.SimpleNamespace(__annotations__={"it": written})
    names = {**local_names, **_closure(function)}
    try:
        return get_type_hints(holder, getattr(function, "__globals__", {}), names, include_extras=True)["it"]
    except NameError as error:
        raise NotYet(str(error)) from None


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    return dict(_filled(zip(code.co_freevars, cells, strict=True))) if code else {}


def _filled(cells: Iterable[tuple[str, types.CellType]]) -> Iterator[tuple[str, Any]]:
    for name, cell in cells:
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable gets its value later
            continue


def adapter(kind: Any, config: ConfigDict | None = None) -> TypeAdapter[Any]:
    """The finished validator and serializer of a type; raises NotYet, or Unfit with the reason."""
    try:
        made: TypeAdapter[Any] = _configured(kind, config)
        # Building is lazy where names are missing; this is where it shows.
        made.rebuild(force=False, raise_errors=True)
    except (PydanticUndefinedAnnotation, NameError) as error:
        raise NotYet(str(error)) from None
    except PydanticSchemaGenerationError as error:
        raise Unfit(str(error).split(". ")[0]) from None
    except PydanticUserError as error:
        if error.code == "class-not-fully-defined":
            raise NotYet(str(error)) from None
        raise Unfit(str(error).split("\n")[0]) from None
    if _has_generator(made.core_schema):
        raise Unfit("an iterator can be read only once; use list[…] instead")
    return made


def _configured(kind: Any, config: ConfigDict | None) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind, config=config)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
    # pydantic refuses a config beside a dataclass, though one inside a union takes it. That None is let
    # through is harmless: what does not read back equal is refused anyway.
    return TypeAdapter(Optional[kind], config=config)  # noqa: UP045  kind is a value here


def _has_generator(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("type") == "generator" or any(map(_has_generator, schema.values()))
    return isinstance(schema, (list, tuple)) and any(map(_has_generator, schema))


class _StrictJsonSchema(GenerateJsonSchema):
    """A schema, or a refusal: no member of a union is left out in silence."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)


class _StoredJsonSchema(_StrictJsonSchema):
    """The schema of what is stored: a decimal is a number, or a text of format `decimal`."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        del schema
        return {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}


def json_schema(made: TypeAdapter[Any], *, by_alias: bool = True, stored: bool = False) -> dict[str, Any]:
    """The JSON Schema of what the type accepts; raises Unfit for types that JSON cannot carry."""
    generator = _StoredJsonSchema if stored else _StrictJsonSchema
    try:
        return made.json_schema(by_alias=by_alias, schema_generator=generator)
    except PydanticInvalidForJsonSchema as error:
        raise Unfit(str(error).split("\n")[0]) from None


# --- paths ---------------------------------------------------------------------------------------


class Paths:
    """Dotted paths into nested values, as a tree. Lists are passed through; `*` is every key of a dict."""

    __slots__ = ("members", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.members: dict[str, Paths] = {}

    @classmethod
    def of(cls, dotted: Iterable[str]) -> Paths:
        root = cls()
        for path in dotted:
            node = root
            for name in path.split("."):
                node = node.members.setdefault(name, cls())
            node.whole = True
        return root

    def below(self, key: object) -> Paths:
        """What the paths say about the member of this name."""
        return self.members.get(name_of(key)) or self.members.get("*") or NOWHERE

    def tops(self) -> frozenset[str]:
        """The names that are named as a whole."""
        return frozenset(name for name, node in self.members.items() if node.whole)

    def below_top(self) -> bool:
        """Whether a path leads below the first name."""
        return any(node.members for node in self.members.values())

    def __bool__(self) -> bool:
        return self.whole or bool(self.members)


NOWHERE = Paths()


def name_of(key: object) -> str:
    """How JSON spells the key of a dict."""
    while isinstance(key, Enum):
        key = key.value
    return key if isinstance(key, str) else str(key)


def names_instead(schema: Mapping[str, Any], path: str) -> list[str] | None:
    """None if the path leads somewhere in values of this schema; else the names where it goes astray."""
    schemas = [schema]
    for name in path.split("."):
        objects = [inner for each in schemas for inner in _objects(each, schema, frozenset())]
        schemas = [inner for each in objects for inner in _member(each, name)]
        if not schemas:
            return sorted({member for each in objects for member in each.get("properties", {})})
    return None


def _objects(node: Any, root: Mapping[str, Any], seen: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    """The object schemas of this node, through references, unions and lists."""
    if not isinstance(node, Mapping):
        yield from [{}] if node is True else []
        return
    reference = node.get("$ref")
    if reference is not None:
        if reference not in seen:
            yield from _objects(referred(reference, root), root, seen | {reference})
        return
    inner = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
    inner += [*node.get("prefixItems", ()), *_one(node.get("items"))]
    for schema in inner:
        yield from _objects(schema, root, seen)
    types = node.get("type", "object")
    is_object = "object" in types and "enum" not in node and "const" not in node
    if is_object and (not inner or "properties" in node):
        yield node


def referred(reference: Any, root: Mapping[str, Any], elsewhere: Any = True) -> Any:
    """What a reference into the schema itself means, or `elsewhere`: anything may be where it leads out."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return elsewhere
    there: Any = root
    for step in unquote(reference[1:]).strip("/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(there, list) and name.isdecimal() and int(name) < len(there):
            there = there[int(name)]
        elif name:
            there = there.get(name, elsewhere) if isinstance(there, Mapping) else elsewhere
    return there


def _one(schema: Any) -> list[Any]:
    return [schema] if isinstance(schema, Mapping) else []


def _member(object_schema: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    properties = object_schema.get("properties", {})
    if name in properties:
        return [properties[name]]
    more = object_schema.get("additionalProperties", "properties" not in object_schema)
    if more is True:
        return [{}]
    return _one(more)


# --- values --------------------------------------------------------------------------------------


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a model or dataclass by name; None for anything else."""
    if isinstance(value, BaseModel):
        # Not all of __dict__: cached properties live there too.
        inside = value.__dict__
        fields = {name: inside[name] for name in type(value).__pydantic_fields__ if name in inside}
        return {**fields, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return None


def opened(value: Any) -> dict[Any, Any] | list[Any] | None:
    """The value as a dict or list of its members, one level deep; None for what has no members."""
    if type(value) in _LEAVES:
        return None
    if isinstance(value, (dict, list)):
        return value
    if isinstance(value, (set, frozenset)):
        return Bag(value)
    if isinstance(value, (tuple, deque)):
        return list(value)
    if isinstance(value, RootModel):
        return opened(value.root)
    return fields_of(value)


def unfolding(secret_key: bytes) -> Unfold:
    """How the canonical form sees models, dataclasses, secrets, URLs, paths and the like."""

    def unfold(value: Any) -> Any:
        if isinstance(value, SECRETS):
            return secret_mark(secret_key, value.get_secret_value(), unfold=unfold)
        if isinstance(value, RootModel):
            return value.root
        fields = fields_of(value)
        return Tagged({"$text": _text_of(value)}) if fields is None else fields

    return unfold


def _text_of(value: Any) -> str:
    """The text of a value that is one text in JSON and nothing but that text."""
    kind: Any = type(value)
    made = _adapter_of_class(kind)
    try:
        text = made and made.dump_python(value, mode="json", warnings=False)
        # Reading it back shows whether the text is the whole value: a compiled pattern, say, loses its flags.
        if made and isinstance(text, str) and made.validate_python(text) == value:
            return text
    except ValueError:  # pydantic could not write it, or not read it
        pass
    raise unknown(value)


@lru_cache(maxsize=256)
def _adapter_of_class(kind: type) -> TypeAdapter[Any] | None:
    try:
        return adapter(kind)
    except (NotYet, Unfit):
        return None


def without(value: Any, ignored: Paths, secret: Paths, mark: Callable[[Any], Any]) -> Any:
    """The value without its ignored members, and with `mark(member)` in place of its secret ones."""
    if secret.whole:
        return mark(value)
    if not ignored and not secret:
        return value
    members = opened(value)
    if isinstance(members, dict):
        return {
            key: without(member, ignored.below(key), secret.below(key), mark)
            for key, member in members.items()
            if not ignored.below(key).whole
        }
    if members is None:
        return value
    return type(members)(without(item, ignored, secret, mark) for item in members)


def difference(given: Any, read: Any, *, loose: bool = False) -> tuple[str, ...] | None:
    """The path to the first difference of two values, or None; `loose` takes a list for a tuple."""
    if _equal(given, read):
        return None
    alike = type(given) is type(read) or (loose and isinstance(given, tuple) and isinstance(read, list))
    pairs = _pairs(opened(given), opened(read)) if alike else None
    if pairs is None:
        return ()
    for name, one, other in pairs:
        path = difference(one, other, loose=loose)
        if path is not None:
            return (name_of(name), *path)
    return None


def _pairs(left: Any, right: Any) -> list[tuple[Any, Any, Any]] | None:
    """The members of two dicts or lists of the same outline, side by side."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return [(key, left[key], right[key]) for key in left]
    ordered = isinstance(left, list) and isinstance(right, list) and not isinstance(left, Bag)
    if ordered and len(left) == len(right):
        return [(index, left[index], right[index]) for index in range(len(left))]
    return None


def _equal(given: Any, read: Any) -> bool:
    try:
        if given == read:
            return True
    except Exception:
        return False
    if isinstance(given, float) and isinstance(read, float):
        return given != given and read != read  # NaN is stored as NaN
    if isinstance(given, datetime) and isinstance(read, datetime) and given.tzinfo and read.tzinfo:
        # In the hour that a clock is set back, Python calls times of two zones unequal whatever they are.
        return given.astimezone(UTC) == read.astimezone(UTC)
    return False
