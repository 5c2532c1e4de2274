"""Closing a ledger: running calls are let end, what is left is in doubt, and nobody waits for itself."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

import semel
from semel.errors import OutcomeUnknown, StepError, StoreUnavailable
from semel.kernel.record import State
from semel.ledger.closing import PARKED
from semel.ledger.ledger import Ledger
from semel.testing import FlakyStore
from tests.patience import PATIENCE_S
from tests.tools import a_step, declared, keyed


class Held:
    """A tool that stays inside until it is let go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.let_go = threading.Event()

        @declared(lease="10m")
        def pay(to: str) -> str:
            self.inside.set()
            assert self.let_go.wait(PATIENCE_S)
            return to

        self.pay = pay


@pytest.fixture
def held():
    held = Held()
    yield held
    held.let_go.set()


@contextmanager
def beside(work: Callable[[], Any]):
    """Done on another thread, and over when the block is; gives where its answer or error will be."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield answers
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def in_a_step(ledger: Ledger, tool: Any, *args: Any) -> Any:
    return ledger.step(conversation="c", step="1").run(tool, *args)


def refused_as_closed(ledger: Ledger, tool: Any, *args: Any) -> bool:
    try:
        in_a_step(ledger, tool, *args)
    except StoreUnavailable as refusal:
        return "closed" in refusal.message
    return False


def reopened(real: Ledger, kind: Any, tmp_path: Any) -> Ledger:
    if kind.name == "memory":
        return Ledger(real.store, tenant="acme")
    return Ledger(kind.open(tmp_path, real.clock, True), tenant="acme")


def until(came_true: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(int(PATIENCE_S / 0.005)):
        if came_true():
            return
        waiting.wait(0.005)
    raise AssertionError("it never came true")


@declared()
def quick(to: str) -> str:
    return to


# --- running calls --------------------------------------------------------------------------------


def test_a_running_call_is_let_end_and_new_ones_are_refused_meanwhile(real, held):
    with beside(lambda: in_a_step(real, held.pay, "a")) as answers:
        held.inside.wait(PATIENCE_S)
        with beside(real.close):
            until(lambda: refused_as_closed(real, quick, "b"))
            held.let_go.set()
    assert answers == ["a"]


def test_what_does_not_end_in_time_is_in_doubt_at_once_and_says_why(real, held, kind, tmp_path):
    with beside(lambda: in_a_step(real, held.pay, "a")) as answers:
        held.inside.wait(PATIENCE_S)
        real.close(within="1ms")
        with reopened(real, kind, tmp_path) as later:
            (record,) = later.records.list()
            assert (record.state, record.note) == (State.IN_DOUBT, PARKED)
        held.let_go.set()
    if kind.name == "memory":
        assert answers == ["a"]  # it has nothing to close, and the owner may still settle
    else:
        (answer,) = answers
        assert isinstance(answer, OutcomeUnknown)
        assert "closed" in answer.message


def test_a_call_that_has_its_key_when_the_ledger_closes_enters_no_tool_and_gives_it_back(
    kind, tmp_path, clock
):
    class ClosedAfterTheClaim(FlakyStore):
        def after(self, name: str) -> None:
            if name == "claim":
                with beside(lambda: ledger.close("1ms")):
                    pass

    @declared()
    def pay(to: str) -> str:
        raise AssertionError("the ledger is closed")

    ledger = Ledger(ClosedAfterTheClaim(kind.open(tmp_path, clock, True)))
    assert refused_as_closed(ledger, pay, "a")
    if kind.name == "sqlite":
        with Ledger(kind.open(tmp_path, clock, True)) as after:
            assert [record.state for record in after.records.list(scope="tool")] == [State.RELEASED]


def test_a_call_between_two_tries_when_the_ledger_is_closed_enters_its_tool_no_more(real, kind, tmp_path):
    entered: list[str] = []

    @keyed(transient=(TimeoutError,), attempts=2, backoff="1ms", on_unknown="park", lease="10m")
    def pay(to: str, key: semel.Key = semel.filled) -> str:
        entered.append(to)
        if len(entered) > 1:
            return to
        raise TimeoutError("no answer")

    def pause(seconds: float) -> None:
        with beside(lambda: real.close(within="1ms")):
            pass

    with patch.object(real.clock, "sleep", pause), pytest.raises(OutcomeUnknown):
        in_a_step(real, pay, "a")
    assert entered == ["a"]
    with reopened(real, kind, tmp_path) as again:
        assert [each.note for each in again.records.list()] == [PARKED]


def test_a_tool_that_calls_another_one_while_the_ledger_closes_is_served(real):
    inside, closing = threading.Event(), threading.Event()

    @declared()
    def outer(to: str) -> str:
        inside.set()
        assert closing.wait(PATIENCE_S)
        return quick(to)

    with beside(lambda: in_a_step(real, outer, "a")) as answers:
        inside.wait(PATIENCE_S)
        with beside(real.close):
            until(lambda: refused_as_closed(real, quick, "b"))
            closing.set()
    assert answers == ["a"]


def test_calls_of_other_tasks_are_let_end(real):
    entered = asyncio.Event()

    @declared()
    async def pay(to: str) -> str:
        entered.set()
        await asyncio.sleep(0.05)
        return to

    async def main() -> str:
        with a_step(real):
            task = asyncio.create_task(pay("a"))
            await entered.wait()
        await real.aclose()
        return await task

    assert asyncio.run(main()) == "a"


# --- nobody waits for itself ----------------------------------------------------------------------


def test_a_tool_that_closes_its_ledger_does_not_wait_for_itself(real, kind, tmp_path):
    @declared(lease="10m")
    def pay(to: str) -> str:
        real.close(within="1h")
        return to

    with beside(lambda: in_a_step(real, pay, "a")) as answers:
        pass
    assert answers == ["a"] if kind.name == "memory" else isinstance(answers[0], OutcomeUnknown)
    with reopened(real, kind, tmp_path) as later:
        (record,) = later.records.list()
        assert record.state is (State.DONE if kind.name == "memory" else State.IN_DOUBT)


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_tool_that_closes_and_leaves_is_left_by_that_and_nothing_else(real, leaving):
    @declared(lease="10m")
    def pay(to: str) -> None:
        real.close()
        raise leaving

    with pytest.raises(leaving):
        in_a_step(real, pay, "a")


def test_a_task_whose_tool_closes_its_ledger_does_not_wait_for_itself(real):
    @declared(lease="10m", on_unknown="park")
    async def pay(to: str) -> str:
        await real.aclose(within="1h")
        return to

    async def main() -> None:
        with a_step(real):
            try:
                await asyncio.wait_for(pay("a"), PATIENCE_S)
            except OutcomeUnknown:
                pass

    asyncio.run(main())


def test_a_tool_that_closes_through_a_tool_on_another_thread_does_not_wait_for_itself(real):
    @declared(lease="10m", on_unknown="park")
    async def pay(to: str) -> str:
        await asyncio.to_thread(real.close, "1h")
        return to

    async def main() -> None:
        with a_step(real):
            try:
                await asyncio.wait_for(pay("a"), PATIENCE_S)
            except OutcomeUnknown:
                pass

    asyncio.run(main())


def test_two_tools_that_close_at_once_do_not_wait_for_each_other(real):
    together = threading.Barrier(2)

    @declared(lease="10m")
    def pay(to: str) -> str:
        together.wait(PATIENCE_S)
        real.close(within="1h")
        return to

    with beside(lambda: in_a_step(real, pay, "a")), beside(lambda: in_a_step(real, pay, "b")):
        pass
    assert refused_as_closed(real, quick, "c")


def test_a_call_that_would_wait_for_itself_is_told_so_at_once(real):
    @declared(wait="1h", lease="10m")
    def pay(to: str) -> str:
        with pytest.raises(StepError, match="waits for itself"):
            pay(to)
        return to

    with beside(lambda: in_a_step(real, pay, "a")) as answers:
        pass
    assert answers == ["a"]


# --- closing twice --------------------------------------------------------------------------------


def test_closing_twice_is_closing_once(real):
    in_a_step(real, quick, "a")
    real.close()
    real.close()
    assert refused_as_closed(real, quick, "b")


def test_of_two_that_close_at_once_both_return_when_it_is_closed(real, held):
    with beside(lambda: in_a_step(real, held.pay, "a")):
        held.inside.wait(PATIENCE_S)
        with beside(real.close), beside(real.close):
            until(lambda: refused_as_closed(real, quick, "b"))
            held.let_go.set()
    assert refused_as_closed(real, quick, "c")


@pytest.mark.parametrize("within", ["0s", "soon", "", None, 5])
def test_a_wrong_patience_is_an_error_and_closes_nothing(real, within):
    with pytest.raises(ValueError, match="within"):
        real.close(within)
    assert in_a_step(real, quick, "a") == "a"


# --- how long a call tries to record itself -------------------------------------------------------


def seconds_until_told(clock: Any, shaky: Ledger, flaky: FlakyStore, wait_s: float) -> float:
    flaky.settle_wait_s = wait_s
    began = []

    @declared(lease="10m")
    def pay(to: str) -> None:
        began.append(clock.monotonic())
        flaky.down = True

    with pytest.raises(OutcomeUnknown, match="did not take its outcome"):
        in_a_step(shaky, pay, "a")
    return float(clock.monotonic() - began[0])


@pytest.mark.parametrize("wait_s", [0.1, 1.0, 5.0, 60.0])
def test_a_call_goes_on_trying_to_record_itself_for_as_long_as_the_url_says(clock, shaky, flaky, wait_s):
    assert wait_s / 2 - 0.5 <= seconds_until_told(clock, shaky, flaky, wait_s) <= wait_s


@pytest.mark.parametrize("wait_s", [3.0, 5.0])
def test_the_time_of_the_first_try_is_a_part_of_how_long(clock, shaky, flaky, wait_s, monkeypatch):
    """A store that takes four seconds to say that it is away adds the time of one try at most."""
    refuse, try_s = flaky.before, 4.0

    def slowly(name: str) -> None:
        if flaky.down:
            clock.sleep(try_s)
        refuse(name)

    monkeypatch.setattr(flaky, "before", slowly)
    assert seconds_until_told(clock, shaky, flaky, wait_s) <= wait_s + try_s


@pytest.mark.parametrize("scheme", ["memory://", "sqlite:///semel.db"])
def test_the_url_says_how_long(scheme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with semel.open(f"{scheme}?settle_wait=200ms") as ledger:
        assert ledger.store.settle_wait_s == 0.2
    with semel.open(scheme) as ledger:
        assert ledger.store.settle_wait_s == 5.0


@pytest.mark.parametrize("wait", ["0s", "soon", "", "5", "-1s"])
@pytest.mark.parametrize(
    "url", ["memory://", "sqlite:///semel.db", "redis://localhost:1", "postgresql://localhost:1/x"]
)
def test_a_wrong_settle_wait_is_one_clear_error_and_nothing_is_opened(url, wait, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(semel.errors.OpenError, match="settle_wait"):
        semel.open(f"{url}?settle_wait={wait}")
    assert list(tmp_path.iterdir()) == []
