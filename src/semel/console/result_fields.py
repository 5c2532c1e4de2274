"""Fields for what a tool returned, made from its schema: of an object with plain members, one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from semel.contract.shapes import referred
from semel.flow.problems import Refused
from semel.gateway import strict_json

# More are easier to paste than to fill in.
_FIELDS_MAX = 12

# What a value of each kind is once it is read. A whole number with a point is not sure to fit an `int` again.
_TYPES: Mapping[str, Sequence[type]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class ResultField(NamedTuple):
    """`sent` is its name in the form: it says what kind of value the text is."""

    sent: str
    label: str
    kind: str
    needed: bool
    choices: Sequence[str]


def result_fields(schema: Any) -> list[ResultField]:
    """None where the result is no object, or a member of it is no plain value: then it is given as JSON."""
    made = _something(schema)
    if "$ref" in made:
        made = _something(referred(made["$ref"], schema))
    if made.get("type") != "object":
        return []
    members = made.get("properties") or {}
    fields = [_field(name, member, name in made.get("required", ())) for name, member in members.items()]
    plain = [field for field in fields if field is not None]
    return plain if len(plain) == len(fields) <= _FIELDS_MAX else []


def _something(schema: Any) -> Mapping[str, Any]:
    """What it is unless it is null; empty where it may be one of several things."""
    if not isinstance(schema, Mapping):
        return {}
    options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return options[0] if len(options) == 1 else {}


def _field(name: str, schema: Any, needed: bool) -> ResultField | None:
    made = _something(schema)
    kind = made.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        return None
    choices = ("true", "false") if kind == "boolean" else made.get("enum", ())
    if not all(isinstance(choice, str) for choice in choices):
        return None
    return ResultField(f"result:{kind}:{name}", name, kind, needed, choices)


def result_in(form: Mapping[str, str]) -> Mapping[str, Any]:
    """The fields that were filled in, as an object.

    Refused `input_invalid` if one is not of its kind; ValueError if it is none of ours.
    """
    sent = {name: text for name, text in form.items() if name.startswith("result:") and text.strip()}
    return dict(_member(name, text) for name, text in sent.items())


def _member(sent: str, text: str) -> tuple[str, Any]:
    _, kind, name = sent.split(":", 2)
    if kind == "string":
        return name, text
    try:
        value = strict_json.parse(text.encode())
    except Refused:
        value = None
    if type(value) not in _TYPES.get(kind, ()):
        raise Refused("input_invalid", f"{name} has to be of the type {kind}. Nothing was changed.")
    return name, value
