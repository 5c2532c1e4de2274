"""Definitions: what is taken, and what is refused before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from semel.flow.problems import Refused
from semel.flow.workflows import STEPS_MAX, gate, parsed, view


def steps(*depends: tuple[str, list[str]]) -> dict[str, Any]:
    return {"steps": [{"id": id_, "topic": "t", "depends_on": before} for id_, before in depends]}


def refusal(definition: dict[str, Any]) -> str:
    with pytest.raises(Refused) as refused:
        parsed("w", definition)
    assert refused.value.code == "request_invalid"
    return refused.value.message


def test_what_was_defined_is_shown_as_it_was_given():
    definition = {
        "steps": [
            {"id": "a", "topic": "t", "depends_on": [], "input": None},
            {
                "id": "b",
                "topic": "u",
                "depends_on": ["a"],
                "approval": {"expires_in": "5000ms", "reason": "r"},
            },
        ],
        "max_concurrent_runs": 3,
        "input_schema": {"type": "object"},
    }
    assert view(parsed("w", definition)) == {"workflow_id": "w", **definition}


def test_steps_may_be_written_in_any_order():
    assert [step.id for step in parsed("w", steps(("b", ["a"]), ("a", []))).steps] == ["b", "a"]


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (steps(("a", []), ("a", [])), "same id"),
        (steps(("a", ["a"])), "depend on each other"),
        (steps(("a", ["b"]), ("b", ["a"]), ("c", [])), "a, b"),
        (steps(("a", ["missing"])), "none that exists"),
        (steps(*((f"s{n}", []) for n in range(STEPS_MAX + 1))), f"at most {STEPS_MAX}"),
        ({"steps": [{"id": "a", "topic": "t", "approval": {"expires_in": "soon"}}]}, "expires_in"),
        ({"steps": [{"id": "a", "topic": "t", "approval": {"expires_in": "36526d"}}]}, "a century"),
    ],
)
def test_a_definition_that_cannot_work_is_refused_with_the_reason(definition, words):
    assert words in refusal(definition)


def test_a_chain_of_as_many_steps_as_there_may_be_is_taken():
    chain = [("s0", []), *((f"s{n}", [f"s{n - 1}"]) for n in range(1, STEPS_MAX))]
    assert len(parsed("w", steps(*reversed(chain))).steps) == STEPS_MAX


@pytest.mark.parametrize("approval", [None, False])
def test_no_approval_is_no_gate(approval):
    assert gate(approval) is None


@pytest.mark.parametrize("approval", [True, {}, {"expires_in": "7d"}])
def test_an_approval_waits_for_a_week_unless_it_says_otherwise(approval):
    asked = gate(approval)
    assert asked is not None
    assert asked.expires_in_us == 7 * 86_400_000_000
