"""Values held to JSON Schemas: the same verdict as a full implementation gives, within bounds."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.contract.schema_check import misfit, unusable

LEAVES = [None, True, False, 0, 1, 2, 3, -2, 0.5, 1.0, -2.5, "", "a", "ab", "b1", "ccc", "ä"]
VALUES: list[Any] = [
    *LEAVES,
    *(
        [],
        [1],
        [1, 1.0],
        [True, 1],
        ["a", 1],
        ["a", "b"],
        [1, 2, 3],
        [[], []],
        [{"a": 1}, {"a": 1.0}],
        [[1], [2]],
    ),
    *(
        {},
        {"a": 1},
        {"a": "a"},
        {"b": 1},
        {"a": 1, "b": 1},
        {"b1": "a"},
        {"ccc": 2},
        {"a": {"a": 1}},
        {"a": [1]},
    ),
    *({"c": 1}, {"a": 1, "c": 1}, {"a": 1, "b": "a", "c": None}),
]
DEFS = {"text": {"type": "string", "minLength": 1}, "some/thing": {"type": ["array", "object"]}}

INNER = st.sampled_from(
    [
        *(
            True,
            False,
            {},
            {"type": "string"},
            {"type": "integer"},
            {"minimum": 1},
            {"const": 1},
            {"minItems": 1},
        ),
        *(
            {"required": ["a"]},
            {"properties": {"a": {"type": "integer"}}},
            {"enum": [1, "a"]},
            {"maxLength": 1},
        ),
        *({"not": {"type": "string"}}, {"items": {"type": "integer"}}, {"$ref": "#/$defs/text"}),
    ]
)
NAME = st.sampled_from(["a", "b", "c"])
NAMES = st.lists(NAME, max_size=2, unique=True)
SOME, EACH = st.lists(INNER, min_size=1, max_size=3), st.dictionaries(NAME, INNER, min_size=1, max_size=2)
COUNT, NUMBER = st.integers(0, 2), st.sampled_from([-2, 0, 0.5, 1, 1.0, 2])
PATTERN = st.sampled_from(["^a", "b$", "[0-9]", "^(a|b)+$", "c{2,}"])
TYPE = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])

# Words that speak of the same, so that each is met with the others.
WORDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "type": {"type": TYPE | st.lists(TYPE, min_size=1, max_size=3, unique=True)},
    "values": {
        "const": st.sampled_from(VALUES),
        "enum": st.lists(st.sampled_from(VALUES), min_size=1, max_size=4),
    },
    "choices": {"allOf": SOME, "anyOf": SOME, "oneOf": SOME, "not": INNER},
    "conditions": {"if": INNER, "then": INNER, "else": INNER},
    "members": {
        "properties": EACH,
        "patternProperties": st.dictionaries(PATTERN, INNER, min_size=1, max_size=2),
        "additionalProperties": INNER,
        "propertyNames": INNER | st.fixed_dictionaries({"pattern": PATTERN}),
    },
    "presence": {
        "required": NAMES,
        "dependentRequired": st.dictionaries(NAME, NAMES, min_size=1, max_size=2),
        "dependentSchemas": EACH,
        "minProperties": COUNT,
        "maxProperties": COUNT,
    },
    "items": {"prefixItems": SOME, "items": INNER, "minItems": COUNT, "maxItems": COUNT},
    "sets": {"uniqueItems": st.booleans(), "contains": INNER, "minContains": COUNT, "maxContains": COUNT},
    "texts": {"minLength": COUNT, "maxLength": COUNT, "pattern": PATTERN},
    "numbers": {
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBER),
        "multipleOf": st.sampled_from([1, 2, 0.5, 0.1]),
    },
    "references": {"$ref": st.sampled_from(["#/$defs/text", "#/$defs/some~1thing"]), "type": TYPE},
}


@pytest.mark.parametrize("about", WORDS)
def test_the_verdict_is_that_of_a_full_implementation(about: str) -> None:
    @given(st.fixed_dictionaries({}, optional=WORDS[about]))
    @settings(max_examples=60)
    def check(schema: dict[str, Any]) -> None:
        root = {"$defs": DEFS, "allOf": [schema]}
        full = jsonschema_rs.Draft202012Validator(
            root, validate_formats=False, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
        assert unusable(root) is None
        verdicts = {repr(value): misfit(value, root) is None for value in VALUES}
        assert verdicts == {repr(value): full.is_valid(value) for value in VALUES}

    check()


@pytest.mark.parametrize(
    ("schema", "fitting", "unfitting"),
    [
        ({"minimum": 3, "exclusiveMinimum": True}, [4, "a"], [3, 2]),
        ({"minimum": 3, "exclusiveMinimum": False}, [3, 4], [2]),
        ({"maximum": 3, "exclusiveMaximum": True}, [2], [3]),
        ({"items": [{"type": "string"}], "additionalItems": False}, [[], ["a"]], [[1], ["a", "b"]]),
        (
            {"dependencies": {"a": ["b"], "c": {"required": ["b"]}}},
            [{}, {"a": 1, "b": 1}],
            [{"a": 1}, {"c": 1}],
        ),
    ],
)
def test_what_older_drafts_wrote_is_understood(schema, fitting, unfitting):
    full = jsonschema_rs.Draft4Validator(schema)
    assert unusable(schema) is None
    for value in fitting:
        assert misfit(value, schema) is None
        assert full.is_valid(value)
    for value in unfitting:
        assert misfit(value, schema) is not None
        assert not full.is_valid(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"type": []},
        {"type": 5},
        {"required": [1]},
        {"enum": 5},
        {"properties": {"a": 5}},
        {"properties": {"a": {"items": "text"}}},
        {"allOf": []},
        {"anyOf": [{"not": 5}]},
        {"minLength": "1"},
        {"maxItems": -1},
        {"minimum": "1"},
        {"multipleOf": 0},
        {"pattern": 5},
        {"dependentRequired": {"a": "b"}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}}},
        {"$ref": "other.json"},
    ],
)
def test_what_is_no_schema_is_told_so(schema):
    assert unusable(schema) is not None


@pytest.mark.parametrize("value", [[], {}, "a", 5, None, [{"a": [1]}]])
def test_a_schema_that_refers_to_itself_ends(value):
    assert misfit(value, {"$ref": "#"}) is not None
    listed = {"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}
    assert misfit(value, listed) is None


def test_a_pattern_that_nobody_matches_in_linear_time_lets_pass():
    assert misfit("b", {"pattern": "^(?=a)"}) is None


def test_no_value_is_quoted():
    secret = "geheim-4711"
    schemas: tuple[dict[str, Any], ...] = (
        {"type": "integer"},
        {"const": "x"},
        {"pattern": "^x"},
        {"maxLength": 2},
        {"not": {}},
    )
    for schema in schemas:
        assert secret not in str(misfit({"a": secret}, {"properties": {"a": schema}}))
