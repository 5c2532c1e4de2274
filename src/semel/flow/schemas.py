"""JSON Schemas that users wrote: can this one be used, does this input fit it?

Whoever writes a schema decides what checking it costs: references that double at every turn, say. So the
gateway calls this in a process apart, whose processor time is bounded, and never on its loop.
Patterns are matched by an engine that takes linear time and has neither look-around nor references back;
nothing outside of the schema is ever fetched.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import orjson

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

# Schemas understood once and kept, in each process that checks.
_KEPT_MAX = 100

# Of a rule or a reason in a message: people read it, and more than this helps nobody.
_TEXT_CHARS_MAX = 500

# Rules of an object or list about members that no other rule names.
_OF_THE_OTHERS = ("additionalProperties", "unevaluatedProperties", "unevaluatedItems")


class Checks(Protocol):
    """Who checks for the flow, and where. Schemas and inputs are JSON as bytes; None: nothing is wrong."""

    def schema(self, tenant: str, schema: bytes) -> Awaitable[str | None]: ...

    def input(self, tenant: str, schema: bytes, input: bytes) -> Awaitable[str | None]: ...


class HereAndNow:
    """Checks on the caller's own thread: for programs that trust whoever writes their schemas."""

    async def schema(self, tenant: str, schema: bytes) -> str | None:
        del tenant
        return unusable(schema)

    async def input(self, tenant: str, schema: bytes, input: bytes) -> str | None:
        del tenant
        return misfit(schema, input)


def unusable(schema: bytes) -> str | None:
    """Why nothing can be checked by this schema, in words; None if it can."""
    from jsonschema_rs import ValidationError

    try:
        _validator(schema)
    except ValidationError as wrong:
        return _why_unusable(wrong)
    return None


def misfit(schema: bytes, input: bytes) -> str | None:
    """What is wrong with the input, in words; None if nothing is."""
    from jsonschema_rs import ValidationError

    try:
        validator = _validator(schema)
    except ValidationError as wrong:  # it was put when more was accepted
        return f"The workflow has to be put again: {_why_unusable(wrong)}"
    try:
        validator.validate(orjson.loads(input))
    except ValidationError as wrong:
        return _misfit(wrong, orjson.loads(schema))
    return None


@lru_cache(_KEPT_MAX)
def _validator(schema: bytes) -> Draft202012Validator:
    from jsonschema_rs import Draft202012Validator, RegexOptions

    # Formats are not checked, which the draft allows: nobody bounds what that would cost.
    return Draft202012Validator(
        orjson.loads(schema), validate_formats=False, offline=True, pattern_options=RegexOptions()
    )


def _why_unusable(wrong: ValidationError) -> str:
    at = ".".join(map(str, wrong.instance_path))
    if getattr(wrong.kind, "format", "") == "regex":
        return (
            f"input_schema is no JSON Schema that can be used: at {at} a pattern is no regular expression, "
            "or none that is matched in linear time (without look-around and references back)"
        )[:_TEXT_CHARS_MAX]
    message = str(wrong.message)
    if wrong.kind.name == "$ref":
        return f"input_schema refers to something that is not part of it: {message}"[:_TEXT_CHARS_MAX]
    return f"input_schema is no JSON Schema: {message}"[:_TEXT_CHARS_MAX]


def _misfit(wrong: ValidationError, schema: Any) -> str:
    """Where, and which rule of the schema; not the value, which may belong in no log and no answer."""
    path = "$" + "".join(_step(part) for part in wrong.instance_path)
    rule = _rule(schema, [*wrong.schema_path])
    keyword = str(wrong.schema_path[-1]) if wrong.schema_path else ""
    if wrong.kind.name == "falseSchema" and keyword not in _OF_THE_OTHERS:
        return f"{path}: The schema allows no value here."
    text = orjson.dumps({keyword: rule}, default=str).decode()
    return f"{path}: The value does not fit {text[:_TEXT_CHARS_MAX]}."


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if part.isidentifier() else f"[{orjson.dumps(part).decode()}]"


def _rule(schema: Any, path: list[str | int]) -> Any:
    """What the schema has at this path; None if it leads through another document."""
    for part in path:
        try:
            schema = schema[part]
        except (KeyError, IndexError, TypeError):
            return None
    return schema
