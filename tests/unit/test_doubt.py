"""In doubt: what the next caller does about a call that may have happened."""

import asyncio
from typing import Any

import pytest

import semel
from semel.errors import (
    ApprovalRequired,
    InvalidArguments,
    OutcomeUnknown,
    RecordNotInDoubt,
    ResultInvalid,
    ResultUnavailable,
    StoreUnavailable,
    UpstreamUnavailable,
)
from semel.ledger.ledger import Ledger
from semel.testing import Crash, crashing
from tests.tools import a_step, another_process, declared, keyed, kinds, state, the_record


class Downstream:
    """A tool whose first entries end as the script says, and what it saw."""

    def __init__(self, *script: BaseException) -> None:
        self.script = list(script)
        self.seen: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> int:
        self.seen.append({**arguments, "key": semel.current_key()})
        if self.script:
            raise self.script.pop(0)
        return len(self.seen)


def in_doubt(way: Any, tool: Any, *args: Any) -> None:
    with pytest.raises(TimeoutError):
        way.call(tool, *args)


# --- retry ----------------------------------------------------------------------------------------


def test_retry_enters_again_with_the_same_key_and_the_first_calls_arguments(ledger, way):
    downstream = Downstream(TimeoutError())

    @way.tool(downstream_window="1h", ignore=("reason",))
    def pay(to: str, reason: str, key: semel.Key, amount: int = 5) -> int:
        return downstream(to=to, reason=reason, amount=amount, forwarded=key)

    with a_step(ledger):
        in_doubt(way, pay, "a", "first")
        assert way.call(pay, "a", "second") == 2
    first, second = downstream.seen
    assert first == second
    assert first["reason"] == "first"
    assert first["forwarded"] == first["key"]


def test_a_record_whose_lease_lapsed_is_retried_like_one_whose_owner_could_not_tell(ledger, clock, way):
    downstream = Downstream()

    @way.tool(downstream_window="1h", lease="10s")
    def pay(to: str, key: semel.Key) -> int:
        return downstream(to=to)

    with a_step(crashing(ledger, "before settle")), pytest.raises(Crash):
        way.call(pay, "a")
    clock.advance("11s")
    with a_step(ledger):
        assert way.call(pay, "a") == 2
    assert downstream.seen[0] == downstream.seen[1]


@pytest.mark.parametrize(
    ("probe", "outcome"),
    [(None, "parked"), (lambda key, **others: semel.Happened(9), 9)],
    ids=["without a probe it parks", "with a probe it asks"],
)
def test_nothing_is_entered_once_the_downstream_may_have_forgotten(ledger, clock, way, probe, outcome):
    downstream = Downstream(TimeoutError())

    @way.tool(downstream_window="1h", probe=probe)
    def pay(to: str, key: semel.Key) -> int:
        return downstream(to=to)

    with a_step(ledger):
        in_doubt(way, pay, "a")
        clock.advance("1h")
        if outcome == "parked":
            with pytest.raises(OutcomeUnknown):
                way.call(pay, "a")
        else:
            assert way.call(pay, "a") == outcome
    assert len(downstream.seen) == 1


def test_the_downstreams_window_counts_from_the_first_entry_not_from_the_last(ledger, clock, way):
    downstream = Downstream(TimeoutError(), TimeoutError(), TimeoutError())

    @way.tool(downstream_window="1h")
    def pay(to: str, key: semel.Key) -> int:
        return downstream(to=to)

    with a_step(ledger):
        in_doubt(way, pay, "a")
        clock.advance("59m")
        in_doubt(way, pay, "a")
        clock.advance("59m")
        with pytest.raises(OutcomeUnknown):
            way.call(pay, "a")
    assert len(downstream.seen) == 2


def test_an_entry_that_the_clock_overtakes_on_its_way_is_not_made(shaky, flaky, clock):
    downstream = Downstream(TimeoutError())

    @keyed()
    def pay(to: str, key: semel.Key) -> int:
        return downstream(to=to)

    class Slow(type(flaky)):  # type: ignore[misc]
        def before(self, name: str) -> None:
            if name == "retake":
                clock.advance("2h")

    slow = Ledger(Slow(flaky.inner), tenant="acme")
    with a_step(slow):
        with pytest.raises(TimeoutError):
            pay("a")
        with pytest.raises(OutcomeUnknown):
            pay("a")
    assert len(downstream.seen) == 1


def test_a_key_that_was_cleared_begins_a_new_downstream_window(ledger, clock):
    downstream = Downstream(TimeoutError(), TimeoutError())

    @keyed()
    def pay(to: str, key: semel.Key) -> int:
        return downstream(to=to)

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            pay("a")
        clock.advance("2h")
        ledger.records.resolve(the_record(ledger).request.id, "did_not_happen", by="ann")
        with pytest.raises(TimeoutError):
            pay("a")
        assert pay("a") == 3


# --- rerun, park ----------------------------------------------------------------------------------


def test_rerun_enters_again_without_a_forwarded_key(ledger, clock, way):
    downstream = Downstream(TimeoutError())

    @way.tool(on_unknown="rerun", ignore=("reason",))
    def pay(to: str, reason: str) -> int:
        return downstream(to=to, reason=reason)

    with a_step(ledger):
        in_doubt(way, pay, "a", "first")
        clock.advance("10h")
        assert way.call(pay, "a", "second") == 2
    assert downstream.seen[0] == downstream.seen[1]


def test_park_lets_nobody_enter_again_however_long_it_takes(ledger, clock, way):
    downstream = Downstream(TimeoutError())

    @way.tool(window="1h")
    def pay(to: str) -> int:
        return downstream(to=to)

    with a_step(ledger):
        in_doubt(way, pay, "a")
        for _ in range(3):
            clock.advance("3d")
            ledger.sweeper.run_once()
            with pytest.raises(OutcomeUnknown):
                way.call(pay, "a")
    assert len(downstream.seen) == 1


# --- probe ----------------------------------------------------------------------------------------


@pytest.fixture(params=["def", "async def"])
def probing(request):
    """The same probe, written both ways."""

    def written(answer: Any) -> Any:
        async def ask_slowly(key: semel.Key, **arguments: Any) -> Any:
            await asyncio.sleep(0)
            return answer(key, arguments)

        return ask_slowly if request.param == "async def" else lambda key, **arguments: answer(key, arguments)

    return written


def test_the_probe_is_asked_with_the_key_and_the_first_calls_arguments(ledger, way, probing):
    asked = []
    downstream = Downstream(TimeoutError())

    def happened(key: semel.Key, arguments: dict[str, Any]) -> Any:
        asked.append((key, arguments))
        return semel.Happened(7)

    @way.tool(probe=probing(happened), ignore=("reason",))
    def pay(to: str, reason: str) -> int:
        return downstream(to=to, reason=reason)

    with a_step(ledger):
        in_doubt(way, pay, "a", "first")
        assert way.call(pay, "a", "second") == way.call(pay, "a", "third") == 7
    assert asked == [(downstream.seen[0]["key"], {"to": "a", "reason": "first"})]
    assert (len(downstream.seen), state(ledger)) == (1, "done")


def test_what_the_probe_says_did_not_happen_is_entered_again_with_the_first_arguments(ledger, way, probing):
    downstream = Downstream(TimeoutError())

    @way.tool(probe=probing(lambda key, arguments: semel.DidNotHappen), ignore=("reason",))
    def pay(to: str, reason: str) -> int:
        return downstream(to=to, reason=reason)

    with a_step(ledger):
        in_doubt(way, pay, "a", "first")
        assert way.call(pay, "a", "second") == 2
    assert downstream.seen[0] == downstream.seen[1]
    assert kinds(ledger) == ["claimed", "parked", "resolved", "claimed", "settled"]


@pytest.mark.parametrize("answer", [semel.CannotTell, None, True, "yes"])
def test_a_probe_that_cannot_tell_or_gives_no_answer_parks(ledger, way, probing, answer, caplog):
    downstream = Downstream(TimeoutError())

    @way.tool(probe=probing(lambda key, arguments: answer))
    def pay(to: str) -> int:
        return downstream(to=to)

    with a_step(ledger):
        in_doubt(way, pay, "a")
        with pytest.raises(OutcomeUnknown):
            way.call(pay, "a")
    assert (len(downstream.seen), state(ledger)) == (1, "in_doubt")
    assert bool(caplog.records) is (answer is not semel.CannotTell)


def test_a_probe_that_fails_parks_and_says_why(ledger, way, probing):
    downstream = Downstream(TimeoutError())

    def broken(key: semel.Key, arguments: dict[str, Any]) -> Any:
        raise ConnectionError("bank is closed")

    @way.tool(probe=probing(broken))
    def pay(to: str) -> int:
        return downstream(to=to)

    with a_step(ledger):
        in_doubt(way, pay, "a")
        with pytest.raises(OutcomeUnknown) as parked:
            way.call(pay, "a")
    assert parked.value.details["reason"] == "the probe ended with ConnectionError"
    assert isinstance(parked.value.__cause__, ConnectionError)


def test_a_probe_that_knows_no_result_settles_it_without_one(ledger, way):
    from dataclasses import dataclass

    @dataclass
    class Refund:
        id: str

    def pay(to: str):
        raise TimeoutError

    pay.__annotations__["return"] = Refund
    tool = way.tool(probe=lambda key, **others: semel.Happened())(pay)
    with a_step(ledger):
        in_doubt(way, tool, "a")
        for _ in range(2):
            with pytest.raises(ResultUnavailable):
                way.call(tool, "a")
    assert state(ledger) == "done"


def test_the_answers_of_a_probe_may_be_called():
    assert semel.DidNotHappen() is semel.DidNotHappen
    assert semel.CannotTell() is semel.CannotTell
    assert repr(semel.CannotTell) == "semel.CannotTell"


# --- a person -------------------------------------------------------------------------------------


def test_a_person_who_says_that_it_happened_settles_it_with_the_result(ledger, way):
    downstream = Downstream(TimeoutError())

    @way.tool()
    def pay(to: str) -> int:
        return downstream(to=to)

    with a_step(ledger):
        in_doubt(way, pay, "a")
        ledger.records.resolve(the_record(ledger).request.id, "happened", by="ann", result=41)
        assert way.call(pay, "a") == 41
    assert len(downstream.seen) == 1


def test_a_missing_result_replays_as_unavailable_until_somebody_gives_it(ledger, way):
    @way.tool()
    def pay(to: str) -> int:
        raise TimeoutError

    with a_step(ledger):
        in_doubt(way, pay, "a")
        ledger.records.resolve(the_record(ledger).request.id, "happened", by="ann")
        for _ in range(2):
            with pytest.raises(ResultUnavailable):
                way.call(pay, "a")
        ledger.records.amend(the_record(ledger).request.id, by="bob", result=41)
        assert way.call(pay, "a") == 41


@pytest.mark.parametrize("result", [None, "no number", 4.5, [1]], ids=str)
def test_a_result_that_the_tool_never_returns_is_refused_and_changes_nothing(ledger, way, result):
    @way.tool()
    def pay(to: str) -> int:
        raise TimeoutError

    with a_step(ledger):
        in_doubt(way, pay, "a")
        with pytest.raises(ResultInvalid, match="Nothing was changed"):
            ledger.records.resolve(the_record(ledger).request.id, "happened", by="ann", result=result)
        with pytest.raises(OutcomeUnknown):
            way.call(pay, "a")


def test_a_person_who_says_that_it_did_not_happen_frees_the_key_and_keeps_its_history(ledger, way):
    downstream = Downstream(TimeoutError())

    @way.tool(ignore=("reason",))
    def pay(to: str, reason: str) -> int:
        return downstream(to=to, reason=reason)

    with a_step(ledger):
        in_doubt(way, pay, "a", "first")
        before = the_record(ledger)
        ledger.records.resolve(before.request.id, "did_not_happen", by="ann")
        assert way.call(pay, "a", "second") == 2
    after = the_record(ledger)
    assert downstream.seen[0] == downstream.seen[1]
    assert (after.request.id, after.attempts) == (before.request.id, 2)
    assert [event.by for event in ledger.records.history(after.request.id)] == ["", "", "ann", "", ""]


def test_only_what_is_in_doubt_can_be_resolved(ledger):
    @declared()
    def pay(to: str) -> int:
        return 1

    with a_step(ledger):
        pay("a")
    with pytest.raises(RecordNotInDoubt):
        ledger.records.resolve(the_record(ledger).request.id, "did_not_happen", by="ann")
    with a_step(ledger):
        assert pay("a") == 1


# --- on the way -----------------------------------------------------------------------------------


def test_arguments_of_the_first_call_that_fit_no_more_leave_the_doubt_for_the_next(ledger):
    def before(to: str, note: str) -> None:
        raise TimeoutError

    def after(to: str, note: int) -> None:
        raise AssertionError("the stored note is no number")

    said: Any = {"name": "pay", "ignore": ("note",), "on_unknown": "rerun"}
    with a_step(ledger), pytest.raises(TimeoutError):
        declared(**said)(before)("a", "words")
    with a_step(another_process(ledger)), pytest.raises(InvalidArguments, match="first call stored"):
        declared(**said)(after)("a", 5)
    assert state(ledger) == "in_doubt"


def test_a_retake_whose_reply_is_lost_leaves_the_doubt(shaky, flaky):
    downstream = Downstream(TimeoutError())

    @keyed()
    def pay(to: str, key: semel.Key) -> int:
        return downstream(to=to)

    with a_step(shaky):
        with pytest.raises(TimeoutError):
            pay("a")
        flaky.lose_reply("retake")
        with pytest.raises(StoreUnavailable):
            pay("a")
        assert len(downstream.seen) == 1
        shaky.keeper.run_once()
        assert state(shaky) == "in_doubt"
        assert pay("a") == 2


def test_a_failure_of_a_contract_inside_the_tool_that_leaves_it_open_is_a_doubt(ledger):
    @declared()
    def inner(to: str) -> None:
        raise TimeoutError

    @declared()
    def outer(to: str) -> None:
        try:
            inner(to)
        except TimeoutError:
            inner(to)

    with a_step(ledger), pytest.raises(OutcomeUnknown):
        outer("a")
    assert {record.state for record in ledger.records.list()} == {"in_doubt"}


def test_the_answer_to_a_used_up_call_says_whether_coming_again_helps(ledger):
    class Gone(Exception):
        pass

    @keyed(transient=(Gone,))
    def pay(to: str, key: semel.Key) -> None:
        raise Gone

    with a_step(ledger), pytest.raises(UpstreamUnavailable) as told:
        pay("a")
    assert told.value.retriable
    assert told.value.retry_after_s


def test_the_answer_names_the_record_that_a_person_has_to_settle(ledger):
    """It is what stands in the log of a job at night: the command that follows is in it, whole."""

    @semel.tool_contract
    def pay(to: str) -> int:
        raise TimeoutError

    with a_step(ledger):
        first = pay.call(semel.ToolCall({"to": "ann"})).error
        with pytest.raises(OutcomeUnknown) as later:
            pay("ann")
    record = the_record(ledger).request.id
    command = f"Ask the downstream, then `semel records resolve {record}`."
    assert first is not None
    assert (first.details["record_id"], first.corrective_action) == (record, command)
    assert str(later.value).endswith(command)
    assert record not in first.for_model


def test_the_answer_names_the_question_that_a_person_has_to_decide(ledger):
    @semel.tool_contract(approval="required")
    def pay(to: str) -> int:
        raise AssertionError

    with a_step(ledger), pytest.raises(ApprovalRequired) as waiting:
        pay("ann")
    [question] = ledger.approvals.list("waiting")
    assert str(waiting.value).endswith(f"after `semel approvals approve {question.job_id}`.")
