"""What a model is told of an error."""

from __future__ import annotations

import re

import pytest

import semel
import semel.testing
from semel import errors
from semel.contract.for_model import _WORDS

OURS = re.compile(r"`|semel|ledger|--|rec_|job_|[0-9a-f]{32}|/|\bkey=|idempotency_key|step")


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_every_code_has_words_that_begin_with_it_and_name_nothing_of_ours(code: str) -> None:
    error = semel.ToolError.of(errors.BY_CODE[code]())
    assert error.for_model.startswith(f"{code}: ")
    assert "\n" not in error.for_model
    assert OURS.search(error.for_model) is None


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_what_is_retriable_is_called_again_and_nothing_else_is(code: str) -> None:
    said = semel.ToolError.of(errors.BY_CODE[code]()).for_model
    if errors.BY_CODE[code].retriable:
        assert "Call it again" in said
    elif code in ("OUTCOME_UNKNOWN", "PARTIAL_SUCCESS", "RESULT_UNAVAILABLE", "APPROVAL_REJECTED"):
        assert "Do not" in said


def test_the_table_has_no_code_that_does_not_exist() -> None:
    assert set(_WORDS) == set(errors.BY_CODE)


def test_a_tools_own_words_stay() -> None:
    @semel.tool_contract(secret=("card",))
    def pay(card: str) -> str:
        raise ValueError(f"the card {card} was stolen")

    with semel.testing.step():
        error = pay.call(semel.ToolCall({"card": "4242424242424242"})).error
    assert error is not None
    assert error.for_model.startswith("EFFECT_FAILED: The tool ran and failed. ")
    assert "was stolen" in error.for_model
    assert "4242" not in error.for_model


def test_a_code_of_the_tools_own_is_told_with_its_message() -> None:
    error = semel.ToolResult.failure("CARD_DECLINED", "The card was declined", retriable=False).error
    assert error is not None
    assert error.for_model == (
        "CARD_DECLINED: The card was declined. The same call again gets the same answer."
    )


def test_which_argument_was_wrong_is_said() -> None:
    @semel.tool_contract()
    def pay(amount: int) -> str:
        return "paid"

    with semel.testing.step():
        error = pay.call(semel.ToolCall({"amount": "many"})).error
    assert error is not None
    assert "amount" in error.for_model


def test_a_part_that_was_done_is_named_with_what_remains_and_what_its_author_advises() -> None:
    result = semel.ToolResult.partial(done=["a"], remaining={"b": 2}, corrective_action="Send b by hand")
    assert result.error is not None
    said = result.error.for_model
    assert 'Done: ["a"]. Remaining: {"b":2}. Send b by hand.' in said


def test_when_to_call_again_is_said() -> None:
    error = semel.ToolError.of(errors.InFlight(retry_after_s=2.6))
    assert "Wait 3 s first." in error.for_model
