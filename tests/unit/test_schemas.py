"""Schemas that users wrote: which can be used, and what is said about an input."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from semel.flow.schemas import misfit, unusable


def usable(schema: Any) -> str:
    return unusable(orjson.dumps(schema)) or "usable"


def said(schema: Any, value: Any) -> str | None:
    return misfit(orjson.dumps(schema), orjson.dumps(value))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "no such type"}, "no JSON Schema"),
        ({"minimum": "low"}, "no JSON Schema"),
        ({"pattern": "("}, "no regular expression"),
        ({"pattern": "(?=a)b"}, "linear time"),
        ({"items": {"pattern": "(a)\\1"}}, "at items.pattern"),
        ({"patternProperties": {"(?<!a)b": True}}, "linear time"),
        ({"$ref": "https://example.invalid/schema.json"}, "not part of it"),
        ({"$ref": "file:///etc/hostname"}, "not part of it"),
        ({"$ref": "#/nowhere"}, "not part of it"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_the_reason(schema, words):
    assert words in usable(schema)
    # One that an older Semel has kept: nothing is checked by it, and what to do is said.
    told = said(schema, {})
    assert told is not None
    assert told.startswith("The workflow has to be put again: ")


@pytest.mark.parametrize(
    "schema",
    [True, {}, {"$ref": "#"}, {"pattern": "^(a+)+$"}, {"allOf": [{"$ref": "#"}]}, {"format": "regex"}],
)
def test_other_schemas_are_used_and_an_endless_one_demands_nothing(schema):
    assert usable(schema) == "usable"
    assert said(schema, {"a": 1}) is None


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (
            {"properties": {"n": {"type": "integer"}}},
            {"n": "x"},
            '$.n: The value does not fit {"type":"integer"}.',
        ),
        (
            {"properties": {"a b": {"items": {"maximum": 3}}}},
            {"a b": [1, 5]},
            '$["a b"][1]: The value does not fit',
        ),
        ({"required": ["n"]}, {}, '$: The value does not fit {"required":["n"]}.'),
        ({"additionalProperties": False}, {"n": 1}, 'does not fit {"additionalProperties":false}.'),
        ({"properties": {"n": False}}, {"n": 1}, "$.n: The schema allows no value here."),
        (False, {}, "$: The schema allows no value here."),
        (
            {"properties": {"n": {"$ref": "#/$defs/few"}}, "$defs": {"few": {"maximum": 3}}},
            {"n": 5},
            '{"maximum":3}',
        ),
    ],
)
def test_an_input_that_does_not_fit_is_told_where_and_by_which_rule(schema, value, words):
    assert words in str(said(schema, value))


def test_a_value_is_never_repeated():
    secret = "4242 4242 4242 4242"
    assert secret not in str(said({"properties": {"card": {"maxLength": 3}}}, {"card": secret}))
