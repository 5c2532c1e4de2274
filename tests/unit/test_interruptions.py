"""Nobody knows: timeouts, cancellation, and a store that is away while a call is made."""

import asyncio
from typing import Any

import pytest

import semel
from semel.errors import (
    OutcomeUnknown,
    StoreUnavailable,
    UpstreamUnavailable,
)
from semel.ledger.ledger import Ledger
from semel.testing import FakeClock, FlakyStore
from tests.tools import a_step, declared, keyed, kinds, state, the_record


class UpstreamTimeout(Exception):
    """The downstream did not answer."""


async def _run(begun: Any) -> Any:
    return await begun


def list_of(id: str) -> list[str]:
    return [id]


# --- nobody knows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [TimeoutError("t"), ConnectionResetError(), BrokenPipeError(), SystemExit(3), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
def test_what_leaves_the_outcome_open_is_in_doubt_at_once_and_raised_as_it_is(ledger, error):
    @declared()
    def pay(to: str) -> None:
        raise error

    with a_step(ledger):
        with pytest.raises(type(error)) as raised:
            pay("a")
        assert raised.value is error
        assert state(ledger) == "in_doubt"
        with pytest.raises(OutcomeUnknown) as parked:
            pay("a")
    assert type(error).__name__ in parked.value.details["reason"]
    assert parked.value.details["record_id"] == the_record(ledger).request.id


def test_generator_exit_in_a_tool_is_in_doubt_and_raised(ledger):
    @declared()
    def pay(to: str) -> None:
        raise GeneratorExit

    with a_step(ledger), pytest.raises(GeneratorExit):
        pay("a")
    flushed(ledger)
    assert state(ledger) == "in_doubt"


def test_a_cancelled_async_tool_is_in_doubt_and_its_caller_cancelled(ledger):
    entered = asyncio.Event()

    @declared()
    async def pay(to: str) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def cancel() -> None:
        task = asyncio.create_task(pay("a"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with a_step(ledger):
        asyncio.run(cancel())
    assert state(ledger) == "in_doubt"


def test_a_coroutine_that_is_thrown_away_in_the_tool_leaves_a_doubt(ledger):
    entered = asyncio.Event()

    @declared()
    async def pay(to: str) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def throw_away() -> None:
        task = asyncio.create_task(pay("a"))
        await entered.wait()
        task.get_coro().close()
        task.cancel()

    with a_step(ledger):
        asyncio.run(throw_away())
    flushed(ledger)
    assert state(ledger) == "in_doubt"


def flushed(ledger: Ledger) -> None:
    getattr(ledger.store, "flush", lambda: None)()


class Held(FlakyStore):
    """Asynchronous commands of one name stay without an answer until the caller gives up."""

    def __init__(self, inner: Any, name: str) -> None:
        super().__init__(inner)
        self.name_held = name
        self.reached = asyncio.Event()

    async def aperform(self, command: Any) -> Any:
        reply = await super().aperform(command)
        if type(command).__name__.lower() == self.name_held:
            self.reached.set()
            await asyncio.Event().wait()
        return reply


@pytest.mark.parametrize(
    ("name", "left"), [("claim", "released"), ("settle", "done")], ids=["claim in flight", "settle in flight"]
)
def test_a_caller_cancelled_while_the_store_works_leaves_nothing_for_a_person_to_clear(
    kind, clock, tmp_path, name, left
):
    ran = []

    @declared()
    async def pay(to: str) -> int:
        ran.append(to)
        return 1

    async def cancel(ledger: Ledger, store: Held) -> None:
        task = asyncio.create_task(pay("a"))
        await store.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main() -> Ledger:
        store = Held(kind.open(tmp_path, clock, True), name)
        ledger = Ledger(store, tenant="acme")
        with a_step(ledger):
            await cancel(ledger, store)
        return ledger

    ledger = asyncio.run(main())
    flushed(Ledger(ledger.store.inner))  # type: ignore[attr-defined]
    assert the_record(ledger).state == left
    with a_step(ledger):
        ledger.store.name_held = ""  # type: ignore[attr-defined]
        assert asyncio.run(_run(pay("a"))) == 1
    assert ran == ["a"]
    ledger.close()


def test_a_caller_cancelled_while_it_repeats_the_settlement_leaves_it_to_the_keeper(shaky, flaky):
    class Cancelling(FakeClock):
        async def asleep(self, seconds: float) -> None:
            raise asyncio.CancelledError

    shaky.clock = Cancelling()
    flaky.refuse("settle")

    @declared()
    async def pay(to: str) -> int:
        return 1

    with a_step(shaky), pytest.raises(asyncio.CancelledError):
        asyncio.run(_run(pay("a")))
    assert state(shaky) == "pending"
    shaky.keeper.run_once()
    assert state(shaky) == "done"


def test_an_interrupted_settlement_is_written_all_the_same(shaky, flaky):
    class Interrupted(FlakyStore):
        def before(self, name: str) -> None:
            if name == "settle":
                raise KeyboardInterrupt

    ledger = Ledger(Interrupted(flaky.inner), tenant="acme")
    with a_step(ledger), pytest.raises(KeyboardInterrupt):
        declared()(list_of)("a")
    assert state(ledger) == "done"


# --- the store is away ----------------------------------------------------------------------------


def test_without_an_acknowledged_claim_the_tool_does_not_run(shaky, flaky, way):
    ran = []

    @way.tool()
    def pay(to: str) -> None:
        ran.append(to)

    flaky.down = True
    with a_step(shaky), pytest.raises(StoreUnavailable) as refused:
        way.call(pay, "a")
    assert ran == []
    assert refused.value.retriable


def test_a_claim_whose_reply_is_lost_is_given_back_and_the_next_call_runs(shaky, flaky, way):
    ran = []

    @way.tool()
    def pay(to: str) -> int:
        ran.append(to)
        return len(ran)

    flaky.lose_reply("claim")
    with a_step(shaky):
        with pytest.raises(StoreUnavailable):
            way.call(pay, "a")
        assert ran == []
        shaky.keeper.run_once()
        assert way.call(pay, "a") == 1
    assert kinds(shaky)[:4] == ["claimed", "released", "refused", "claimed"]


def test_a_settlement_whose_reply_is_lost_is_asked_again_and_is_one_event(shaky, flaky, way):
    @way.tool()
    def pay(to: str) -> int:
        return 7

    flaky.lose_reply("settle")
    with a_step(shaky):
        assert way.call(pay, "a") == way.call(pay, "a") == 7
    assert kinds(shaky).count("settled") == 1


@pytest.mark.parametrize("said", [{}, {"on_unknown": "rerun"}], ids=["park", "rerun"])
def test_an_outcome_that_the_store_does_not_take_is_put_off_and_the_caller_told(shaky, flaky, way, said):
    ran = []

    @way.tool(**said)
    def pay(to: str) -> int:
        ran.append(to)
        flaky.down = True
        return len(ran)

    with a_step(shaky):
        with pytest.raises(OutcomeUnknown, match="did not take its outcome"):
            way.call(pay, "a")
        flaky.down = False
        shaky.keeper.run_once()
        assert way.call(pay, "a") == 1
    assert ran == ["a"]


def test_a_store_that_returns_within_the_budget_is_not_noticed(shaky, flaky, way):
    @way.tool()
    def pay(to: str) -> int:
        flaky.refuse("settle", times=5)
        return 1

    with a_step(shaky):
        assert way.call(pay, "a") == 1
    assert state(shaky) == "done"


def test_a_doubt_that_the_store_does_not_take_is_put_off_too(shaky, flaky):
    @keyed(transient=(UpstreamTimeout,))
    def pay(to: str, key: semel.Key) -> None:
        flaky.down = True
        raise UpstreamTimeout

    with a_step(shaky), pytest.raises(UpstreamUnavailable):
        pay("a")
    flaky.down = False
    assert state(shaky) == "pending"
    shaky.keeper.run_once()
    assert state(shaky) == "in_doubt"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_an_interruption_is_raised_as_it_is_also_when_the_store_is_away(shaky, flaky, way, error):
    @way.tool()
    def pay(to: str) -> None:
        flaky.down = True
        raise error

    with a_step(shaky), pytest.raises(type(error)):
        way.call(pay, "a")
    flaky.down = False
    shaky.keeper.run_once()
    assert state(shaky) == "in_doubt"


def test_a_cancelled_waiter_leaves_the_owner_alone_and_waits_no_more(real):
    entered, go = asyncio.Event(), asyncio.Event()

    @declared()
    async def pay(to: str) -> int:
        entered.set()
        await go.wait()
        return 1

    async def main() -> int:
        owner = asyncio.create_task(pay("a"))
        await entered.wait()
        waiter = asyncio.create_task(pay("a"))
        while not real.store.waiters:  # noqa: ASYNC110  the store has no event for it
            await asyncio.sleep(0.001)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert not real.store.waiters
        go.set()
        return await owner

    with a_step(real):
        assert asyncio.run(main()) == 1
    assert kinds(real) == ["claimed", "settled"]


def test_a_caller_cancelled_while_it_re_enters_leaves_the_doubt(kind, clock, tmp_path):
    ran = []

    @declared(on_unknown="rerun")
    async def pay(to: str) -> None:
        ran.append(to)
        raise TimeoutError

    async def main() -> Ledger:
        store = Held(kind.open(tmp_path, clock, True), "retake")
        ledger = Ledger(store, tenant="acme")
        with a_step(ledger):
            with pytest.raises(TimeoutError):
                await pay("a")
            task = asyncio.create_task(pay("a"))
            await store.reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return ledger

    with asyncio.run(main()) as ledger:
        flushed(Ledger(ledger.store.inner))  # type: ignore[attr-defined]
        assert the_record(ledger).state == "in_doubt"
    assert ran == ["a"]
