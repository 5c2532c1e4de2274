"""What a tool's failure leads to: recorded, released, tried again."""

from decimal import Decimal
from enum import Enum
from itertools import pairwise
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, model_validator

import semel
from semel.contract.result import ToolResult
from semel.errors import (
    EffectFailed,
    InvalidArguments,
    OutcomeUnknown,
    PartialSuccess,
    ResultUnavailable,
    StoreCorrupt,
    UpstreamUnavailable,
)
from semel.kernel.limits import RESULT_BYTES_MAX
from semel.ledger.ledger import Ledger
from semel.testing import FlakyStore
from tests.tools import a_step, declared, keyed, kinds, state, the_record


class UpstreamTimeout(Exception):
    """The downstream did not answer."""


class Declined(Exception):
    """The downstream did nothing."""


# --- failures -------------------------------------------------------------------------------------


def test_a_failure_is_recorded_and_replays_and_only_the_first_has_a_cause(ledger, way):
    ran = []

    @way.tool()
    def pay(to: str) -> None:
        ran.append(to)
        raise LookupError("no such account")

    with a_step(ledger):
        with pytest.raises(EffectFailed, match="LookupError: no such account") as first:
            way.call(pay, "a")
        with pytest.raises(EffectFailed, match="LookupError: no such account") as second:
            way.call(pay, "a")
    assert isinstance(first.value.__cause__, LookupError)
    assert second.value.__cause__ is None
    assert (first.value.replayed, second.value.replayed) == (False, True)
    assert (ran, state(ledger)) == (["a"], "failed")


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("I do not speak")


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        ({"code": "DECLINED", "message": ValueError("no funds")}, "DECLINED", "no funds"),
        ({"code": "DECLINED", "message": Mute()}, "DECLINED", "Mute"),
        ({"code": 402, "message": "no funds"}, "402", "no funds"),
        ({"code": None, "message": "no funds"}, "EFFECT_FAILED", "no funds"),
        ({"code": "DECLINED", "message": "no", "corrective_action": None}, "DECLINED", "no"),
        ({"code": "DECLINED", "message": "no", "details": ["a", "b"]}, "DECLINED", "no"),
    ],
)
def test_a_failure_that_is_told_in_something_else_than_text_is_recorded_all_the_same(
    ledger, way, said, code, message
):
    ran = []

    @way.tool()
    def pay(to: str) -> ToolResult[str]:
        ran.append(to)
        return ToolResult.failure(**said)

    with a_step(ledger):
        results = [way.ask(pay, semel.ToolCall({"to": "a"})) for _ in range(2)]
    assert [(result.error.code, result.error.message) for result in results] == [(code, message)] * 2
    assert (ran, state(ledger)) == (["a"], "failed")


class Code(str, Enum):  # noqa: UP042 - in programs older than StrEnum
    NO_FUNDS = "no_funds"


def test_a_code_out_of_an_enumeration_of_texts_is_that_text(ledger, way):
    @way.tool()
    def pay(to: str) -> ToolResult[str]:
        return ToolResult.failure(Code.NO_FUNDS, "no")

    with a_step(ledger):
        for _ in range(2):
            assert way.ask(pay, semel.ToolCall({"to": "a"})).error.code == "no_funds"


# Answers of a call inside the tool, which say that its effect may still come or have come.
LEAVE_OPEN = [
    semel.errors.InFlight(),
    semel.errors.StoreUnavailable(),
    UpstreamUnavailable(),
    semel.errors.ApprovalRequired(),
    OutcomeUnknown(),
    semel.errors.OwnershipLost(),
    StoreCorrupt(),
]


@pytest.mark.parametrize("error", LEAVE_OPEN, ids=lambda error: error.code)
def test_an_open_answer_leaves_the_call_open_also_when_it_is_returned_as_data(ledger, way, error):
    @way.tool()
    def pay(to: str) -> ToolResult[str]:
        return ToolResult(ok=False, error=semel.ToolError.of(error))

    with a_step(ledger):
        with pytest.raises(type(error)) as raised:
            way.call(pay, "a")
        assert (raised.value.code, raised.value.replayed) == (error.code, False)
        assert state(ledger) == "in_doubt"
        with pytest.raises(OutcomeUnknown):
            way.call(pay, "a")


@pytest.mark.parametrize(
    ("error", "left"), [(OutcomeUnknown(), "in_doubt"), (semel.errors.KeyReused(), "failed")]
)
def test_an_exception_of_a_call_inside_that_is_returned_as_it_is_means_the_same(ledger, way, error, left):
    @way.tool()
    def pay(to: str) -> ToolResult[str]:
        return ToolResult(ok=False, error=error)

    with a_step(ledger):
        assert way.ask(pay, semel.ToolCall({"to": "a"})).error.code == error.code
        assert state(ledger) == left


def test_an_open_answer_in_a_tools_own_words_leaves_the_call_open_too(ledger, way):
    @way.tool()
    def pay(to: str) -> ToolResult[str]:
        return ToolResult.failure("UPSTREAM_TIMEOUT", "the bank does not answer")

    with a_step(ledger):
        with pytest.raises(UpstreamUnavailable, match="does not answer") as raised:
            way.call(pay, "a")
        assert raised.value.retriable
        assert state(ledger) == "in_doubt"


def test_a_code_of_a_tools_own_is_recorded_however_retriable_it_calls_itself(ledger, way):
    @way.tool()
    def pay(to: str) -> ToolResult[str]:
        return ToolResult.failure("RATE_LIMITED", "later", retriable=True)

    with a_step(ledger), pytest.raises(EffectFailed, match="later"):
        way.call(pay, "a")
    assert state(ledger) == "failed"


def test_a_part_that_is_told_in_something_else_than_text_is_recorded_all_the_same(ledger, way):
    @way.tool()
    def pay(to: str) -> None:
        raise PartialSuccess(5)  # type: ignore[arg-type]

    with a_step(ledger), pytest.raises(PartialSuccess):
        way.call(pay, "a")
    assert state(ledger) == "partial"


class Receipt(BaseModel):
    """Made of a row of a table only, so not of what was stored of it."""

    number: int

    @model_validator(mode="before")
    @classmethod
    def of_row(cls, row: Any) -> Any:
        return {"number": row.number}


def test_a_result_whose_class_does_not_read_it_back_has_happened_all_the_same(ledger, way):
    ran = []

    @way.tool()
    def pay(to: str) -> Receipt:
        ran.append(to)
        return Receipt.model_validate(SimpleNamespace(number=5))

    with a_step(ledger):
        assert way.call(pay, "a").number == 5
        with pytest.raises(ResultUnavailable):
            way.call(pay, "a")
    assert (ran, state(ledger)) == (["a"], "done")


def test_a_stored_result_that_its_class_does_not_read_any_more_has_happened(ledger, way):
    reads = [True]

    def checked(number: int) -> int:
        return number if reads[0] else {}[number]  # type: ignore[index]

    @way.tool()
    def pay(to: str) -> Annotated[int, AfterValidator(checked)]:
        return 5

    with a_step(ledger):
        assert way.call(pay, "a") == 5
        reads[0] = False
        with pytest.raises(ResultUnavailable):
            way.call(pay, "a")


@pytest.mark.parametrize("value", [float("inf"), [float("nan")], (2**80, float("-inf"))], ids=str)
def test_a_result_that_is_no_json_beside_a_secret_is_recorded(ledger, way, value):
    @way.tool(secret=("token",))
    def pay(to: str, token: str) -> Any:
        return value

    with a_step(ledger):
        assert way.call(pay, "a", "t-secret") is value
        assert way.ask(pay, semel.ToolCall({"to": "a", "token": "t-secret"})).replayed
    assert state(ledger) == "done"


def test_a_mistake_of_ours_after_the_tool_leaves_the_call_in_doubt_at_once(ledger, way, monkeypatch):
    def mistaken(*_: object) -> bytes:
        raise ZeroDivisionError

    @way.tool()
    def pay(to: str) -> int:
        return 5

    monkeypatch.setattr("semel.call.guard.stored_value", mistaken)
    with a_step(ledger), pytest.raises(ZeroDivisionError):
        way.call(pay, "a")
    assert state(ledger) == "in_doubt"


class NoResponse(Exception):
    """As of a client whose exceptions have an answer only if there was one."""

    @property
    def response(self) -> object:
        raise RuntimeError("there was none")


def test_a_failure_whose_attributes_cannot_be_read_is_recorded_all_the_same(ledger, way):
    @way.tool()
    def pay(to: str) -> None:
        raise NoResponse("no")

    with a_step(ledger), pytest.raises(EffectFailed, match="NoResponse: no"):
        way.call(pay, "a")
    assert state(ledger) == "failed"


def test_a_validator_that_breaks_is_a_refusal_before_anything_happens(ledger, way):
    ran = []

    @way.tool()
    def pay(receipt: Receipt) -> None:
        ran.append(receipt)

    with a_step(ledger):
        for receipt in ({"number": 5}, SimpleNamespace(number=5)):  # not even validated; not read back
            with pytest.raises(InvalidArguments, match="AttributeError"):
                way.call(pay, receipt)
    assert (ran, list(ledger.records.list(scope="tool"))) == ([], [])


def test_a_failure_that_cannot_be_printed_is_recorded_all_the_same(ledger):
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("I do not speak")

    @declared()
    def pay(to: str) -> None:
        raise Mute

    with a_step(ledger), pytest.raises(EffectFailed, match="Mute"):
        pay("a")
    assert state(ledger) == "failed"


@pytest.mark.parametrize("text", ["\ud800", "\0", "x" * 100_000], ids=["surrogate", "NUL", "long"])
def test_a_failure_with_a_hostile_text_is_recorded_and_replays(ledger, text):
    @declared()
    def pay(to: str) -> None:
        raise LookupError(text)

    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(EffectFailed) as failed:
                pay("a")
            assert len(failed.value.message) <= 2_000


@pytest.mark.parametrize("raises", [True, False], ids=["raised", "returned"])
def test_partial_success_is_recorded_replays_and_is_never_run_again(ledger, way, raises):
    ran = []

    @way.tool()
    def pay(to: str) -> dict:
        ran.append(to)
        if raises:
            raise PartialSuccess(done=["a"], remaining=["b"], corrective_action="Pay b.")
        return ToolResult.partial(done=["a"], remaining=["b"], corrective_action="Pay b.")  # type: ignore[return-value]

    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(PartialSuccess) as told:
                way.call(pay, "a")
            assert told.value.details == {"done": ["a"], "remaining": ["b"]}
            assert told.value.corrective_action == "Pay b."
    assert (ran, state(ledger)) == (["a"], "partial")


def test_a_tool_may_answer_with_a_result(ledger):
    @declared()
    def pay(to: str) -> ToolResult[Decimal]:
        return ToolResult.success(Decimal("1.5"))

    with a_step(ledger):
        assert pay("a") == pay("a") == Decimal("1.5")


def test_a_tool_may_answer_with_a_failure_of_its_own_code(ledger):
    @declared()
    def pay(to: str) -> ToolResult[int]:
        return ToolResult.failure("CARD_DECLINED", "no", details={"message": "m", "retry_after_s": 1})

    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(EffectFailed) as failed:
                pay("a")
            assert failed.value.code == "CARD_DECLINED"
            assert failed.value.details == {"message": "m", "retry_after_s": 1}


def test_a_result_that_is_not_ok_is_a_failure_also_without_an_error(ledger):
    @declared()
    def pay(to: str) -> ToolResult[int]:
        return ToolResult(ok=False)

    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(EffectFailed):
                pay("a")
    assert state(ledger) == "failed"


def test_a_record_that_is_found_damaged_when_it_is_settled_does_not_deny_that_the_tool_ran(flaky):
    class Damaged(FlakyStore):
        def before(self, name: str) -> None:
            if name == "settle":
                raise StoreCorrupt

    @declared()
    def pay(to: str) -> None: ...

    with a_step(Ledger(Damaged(flaky.inner))), pytest.raises(StoreCorrupt, match="The tool ran"):
        pay("a")


def test_details_that_are_too_large_are_dropped_and_the_failure_is_kept(ledger):
    @declared()
    def pay(to: str) -> None:
        raise PartialSuccess(done="x" * (RESULT_BYTES_MAX + 1), remaining=[])

    with a_step(ledger), pytest.raises(PartialSuccess):
        pay("a")
    assert len(the_record(ledger).outcome or b"") < 1_000


def test_a_refusal_of_the_first_entry_frees_the_key(ledger, way):
    ran = []

    @way.tool(refused=(Declined,))
    def pay(to: str) -> int:
        ran.append(to)
        if len(ran) == 1:
            raise Declined
        return len(ran)

    with a_step(ledger):
        with pytest.raises(Declined):
            way.call(pay, "a")
        assert way.call(pay, "a") == 2
    assert kinds(ledger) == ["claimed", "released", "claimed", "settled"]


def test_after_a_refusal_the_present_calls_arguments_count(ledger):
    ran = []

    @declared(refused=(Declined,), ignore=("reason",))
    def pay(to: str, reason: str) -> None:
        ran.append(reason)
        if len(ran) == 1:
            raise Declined

    with a_step(ledger):
        with pytest.raises(Declined):
            pay("a", "first")
        pay("a", "second")
    assert ran == ["first", "second"]


def test_a_refusal_of_a_later_entry_leaves_the_doubt(ledger, way):
    script = [TimeoutError(), Declined()]

    @way.tool(refused=(Declined,), on_unknown="rerun")
    def pay(to: str) -> None:
        raise script.pop(0)

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            way.call(pay, "a")
        with pytest.raises(OutcomeUnknown, match="earlier entry"):
            way.call(pay, "a")
    assert state(ledger) == "in_doubt"


def test_a_refusal_after_a_transient_failure_of_the_same_attempt_leaves_the_doubt(ledger, way):
    script = [UpstreamTimeout(), Declined()]

    @way.tool(refused=(Declined,), transient=(UpstreamTimeout,), attempts=3, downstream_window="1h")
    def pay(to: str, key: semel.Key) -> None:
        raise script.pop(0)

    with a_step(ledger), pytest.raises(UpstreamUnavailable, match="earlier entry"):
        way.call(pay, "a")
    assert state(ledger) == "in_doubt"


def test_a_refusal_that_is_returned_after_a_transient_failure_leaves_the_doubt_too(ledger, way):
    ran = []

    @way.tool(
        refused=(semel.errors.InFlight,), transient=(UpstreamTimeout,), attempts=3, downstream_window="1h"
    )
    def pay(to: str, key: semel.Key) -> ToolResult[str]:
        ran.append(to)
        if len(ran) == 1:
            raise UpstreamTimeout
        return ToolResult(ok=False, error=semel.ToolError.of(semel.errors.InFlight()))

    with a_step(ledger), pytest.raises(UpstreamUnavailable):
        way.call(pay, "a")
    assert state(ledger) == "in_doubt"


# --- transient ------------------------------------------------------------------------------------


def test_transient_failures_are_tried_again_with_the_same_key_fence_and_arguments(ledger, way):
    seen = []

    @way.tool(transient=(UpstreamTimeout,), attempts=3, downstream_window="1h")
    def pay(to: list[str], key: semel.Key) -> int:
        seen.append((list(to), key, semel.current_key(), semel.current_fence()))
        to.append("changed by the tool")
        if len(seen) < 3:
            raise UpstreamTimeout
        return len(seen)

    with a_step(ledger):
        assert way.call(pay, ["a"]) == way.call(pay, ["a"]) == 3
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert kinds(ledger)[:2] == ["claimed", "settled"]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({}, UpstreamUnavailable),
        ({"on_unknown": "park"}, OutcomeUnknown),
        ({"on_unknown": "rerun"}, OutcomeUnknown),
        ({"on_unknown": "probe", "probe": lambda key, **others: semel.CannotTell}, UpstreamUnavailable),
    ],
    ids=["retry", "park", "rerun", "probe"],
)
def test_transient_failures_used_up_leave_the_key_reserved_and_in_doubt(ledger, way, said, answer):
    ran = []

    @way.tool(transient=(UpstreamTimeout,), attempts=2, downstream_window="1h", **said)
    def pay(to: str, key: semel.Key) -> None:
        ran.append(key)
        raise UpstreamTimeout

    with a_step(ledger), pytest.raises(answer) as told:
        way.call(pay, "a")
    assert isinstance(told.value.__cause__, UpstreamTimeout)
    assert (len(ran), state(ledger)) == (2, "in_doubt")


def test_one_attempt_is_the_default_also_for_transient_failures(ledger):
    ran = []

    @declared(transient=(UpstreamTimeout,))
    def pay(to: str) -> None:
        ran.append(to)
        raise UpstreamTimeout

    with a_step(ledger), pytest.raises(OutcomeUnknown):
        pay("a")
    assert ran == ["a"]


def test_no_entry_inside_the_contract_begins_once_the_downstream_may_have_forgotten(ledger, clock):
    ran = []

    @keyed(transient=(UpstreamTimeout,), attempts=5, downstream_window="10s", backoff="1s")
    def pay(to: str, key: semel.Key) -> None:
        ran.append(clock.now_us())
        clock.advance("4s")
        raise UpstreamTimeout

    with a_step(ledger), pytest.raises(UpstreamUnavailable):
        pay("a")
    assert len(ran) == 3
    assert ran[-1] - ran[0] < 10_000_000


def test_no_entry_inside_the_contract_begins_after_the_run_limit(ledger, clock):
    ran = []

    @keyed(transient=(UpstreamTimeout,), attempts=5, run_limit="5s", backoff="1s")
    def pay(to: str, key: semel.Key) -> None:
        ran.append(to)
        clock.advance("4s")
        raise UpstreamTimeout

    with a_step(ledger), pytest.raises(UpstreamUnavailable):
        pay("a")
    assert len(ran) == 2


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [("exponential", [0.075, 0.15]), ("2s", [1.5, 1.5]), (lambda entry: entry * 7.0, [7.0, 14.0])],
    ids=["exponential", "fixed", "own"],
)
def test_the_pause_between_two_entries_is_the_declared_one(ledger, clock, backoff, pauses):
    at = []

    @keyed(transient=(UpstreamTimeout,), attempts=3, backoff=backoff)
    def pay(to: str, key: semel.Key) -> None:
        at.append(clock.monotonic())
        raise UpstreamTimeout

    with a_step(ledger), pytest.raises(UpstreamUnavailable):
        pay("a")
    assert [later - sooner for sooner, later in pairwise(at)] == pytest.approx(pauses)


def test_a_pause_that_cannot_be_told_leaves_the_call_in_doubt(way, ledger):
    def backoff(entry: int) -> float:
        raise ZeroDivisionError

    @way.tool(transient=(UpstreamTimeout,), attempts=3, backoff=backoff, downstream_window="1h")
    def pay(to: str, key: semel.Key) -> None:
        raise UpstreamTimeout

    with a_step(ledger), pytest.raises(UpstreamUnavailable):
        way.call(pay, "a")
    assert state(ledger) == "in_doubt"


def test_arguments_that_no_longer_fit_before_a_further_try_leave_the_call_in_doubt(way, ledger):
    """What was accepted may depend on the time; the first entry may have landed all the same."""
    ran: list[str] = []

    def before_noon(text: str) -> str:
        assert not ran, "it is past noon"
        return text

    @way.tool(transient=(UpstreamTimeout,), attempts=3, backoff="1ms", downstream_window="1h")
    def pay(to: Annotated[str, AfterValidator(before_noon)], key: semel.Key) -> None:
        ran.append(to)
        raise UpstreamTimeout

    with a_step(ledger), pytest.raises(UpstreamUnavailable):
        way.call(pay, "a")
    assert (len(ran), state(ledger)) == (1, "in_doubt")


@pytest.mark.parametrize(
    ("message", "action", "text"),
    [
        ("ValueError: no", "Decide anew.", "ValueError: no. Decide anew."),
        ("It failed.", "Decide anew.", "It failed. Decide anew."),
        ("What now?", "Decide anew.", "What now? Decide anew."),
        ("ValueError: no", "", "ValueError: no"),
    ],
)
def test_a_tools_own_text_and_our_advice_are_two_sentences(message, action, text):
    assert str(EffectFailed(message, corrective_action=action)) == text
