"""JSON values of the flow, compared."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from semel.flow.values import is_same_json
from semel.kernel.keys import canonical

SPELLINGS = (
    "0", "-0.0", "1", "1.0", "true", "false", "null", "[]", "{}", '"true"', '"1"', '"1.0"', "[1,2]", "[12]",
    "[1.0,2]", "[true,2]", "[1,true]", "1e300", "9007199254740992.0", "9007199254740992", "9007199254740993",
    '{"a":1,"b":true}', '{"b":true,"a":1.0}', '{"a":true,"b":1}', '{"1":1}', '{"1.0":1}',
    '["1",1]', '["1",true]', '{"$float":"0.1"}', "0.1", '["a\\"1",0]', '["a\\"1",false]', '["a\\"1",0.0]',
)  # fmt: skip


@pytest.mark.parametrize("one", SPELLINGS)
def test_values_are_the_same_as_their_canonical_forms_say(one: str) -> None:
    value = json.loads(one)
    same = [other for other in SPELLINGS if is_same_json(value, json.loads(other))]
    assert same == [other for other in SPELLINGS if canonical(value) == canonical(json.loads(other))]


@pytest.mark.parametrize("other", ["[[1.5],1]", "[[1.5],1.0]", "[[1.5],true]", "[[2.5],1]"])
def test_a_large_value_is_compared_without_a_step_of_python_for_each_part(other: str) -> None:
    """Two megabytes, member by member, would hold up everybody who shares the process for a second."""

    def steps(times: int) -> int:
        one, two = json.loads("[[1.5],1]"), json.loads(other)
        return _calls(lambda: is_same_json([one] * times, [two] * times))

    assert steps(1_000) == steps(1)


def _calls(run: Any) -> int:
    """How many functions of Python were called."""
    calls = 0

    def count(frame: Any, event: str, what: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls
