"""What users get for their own tests: a clock, a flaky store, crash points, a hammer."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import semel
import semel.testing
from semel.errors import EffectFailed, InFlight, OutcomeUnknown, StoreUnavailable
from semel.ledger.ledger import Ledger
from semel.stores.base import ReadEvents
from semel.stores.memory import MemoryStore
from semel.testing import CRASH_POINTS, Crash, FakeClock, check_downstream, crashing, hammer
from tests.tools import a_step, declared, kinds, state, the_record

# --- the clock ------------------------------------------------------------------------------------


def test_time_passes_only_when_it_is_told_to():
    clock = FakeClock()
    before = clock.now_us(), clock.monotonic()
    assert (clock.now_us(), clock.monotonic()) == before
    clock.advance("90s")
    assert (clock.now_us() - before[0], clock.monotonic() - before[1]) == (90_000_000, 90.0)


def test_sleeping_lets_the_time_pass_at_once():
    clock = FakeClock()
    clock.sleep(3600)
    asyncio.run(clock.asleep(3600))
    assert clock.monotonic() == 7200


def test_a_clock_that_is_set_back_makes_nothing_younger():
    clock = FakeClock()
    clock.advance("1h")
    clock.set_back("30m")
    assert clock.monotonic() == 3600


def test_a_wait_ends_at_once_when_the_event_is_there_and_takes_its_time_when_not():
    clock, event = FakeClock(), threading.Event()
    assert not clock.wait(event, 5)
    event.set()
    assert clock.wait(event, 5)
    assert clock.monotonic() == 5


def test_nothing_runs_in_the_background_of_a_clock_that_stands_still():
    before = set(threading.enumerate())
    ledger = Ledger(MemoryStore(clock=FakeClock()))
    with a_step(ledger):
        declared()(effect)("a")
    assert set(threading.enumerate()) <= before  # those of earlier ledgers may end meanwhile


def test_a_clock_set_back_neither_reopens_a_window_nor_frees_a_lease(ledger, clock):
    ran: list[str] = []

    @declared(window="1h")
    def pay(to: str) -> int:
        ran.append(to)
        clock.set_back("3h")
        return len(ran)

    with a_step(ledger):
        assert pay("a") == 1
    with a_step(Ledger(ledger.store, tenant="acme")):
        assert pay("a") == 1


# --- the flaky store ------------------------------------------------------------------------------


def effect(to: str) -> str:
    return to


def test_a_refused_command_is_not_carried_out(shaky, flaky):
    flaky.refuse("claim")
    with a_step(shaky), pytest.raises(StoreUnavailable):
        declared()(effect)("a")
    assert shaky.records.list() == []


def test_a_lost_reply_was_carried_out(shaky, flaky):
    flaky.lose_reply("claim")
    with a_step(shaky), pytest.raises(StoreUnavailable):
        declared()(effect)("a")
    assert the_record(shaky).state == "pending"


def test_trouble_comes_as_often_as_it_was_asked_for(shaky, flaky):
    flaky.refuse("claim", times=2)
    tool, refused = declared()(effect), 0
    with a_step(shaky):
        for _ in range(4):
            try:
                tool("a")
            except StoreUnavailable:
                refused += 1
    assert refused == 2


def test_a_store_that_is_down_answers_nothing(shaky, flaky):
    flaky.down = True
    with pytest.raises(StoreUnavailable):
        shaky.records.list()
    with pytest.raises(StoreUnavailable):
        asyncio.run(flaky.aask(ReadEvents()))


# --- crashes --------------------------------------------------------------------------------------


def test_there_is_no_other_crash_point(ledger):
    with pytest.raises(ValueError, match="before settle"):
        crashing(ledger, "at noon")


@pytest.mark.parametrize(
    ("point", "entered", "left"),
    [
        ("before claim", 0, None),
        ("after claim", 0, "pending"),
        ("before settle", 1, "pending"),
        ("after settle", 1, "done"),
    ],
)
def test_a_process_dies_where_it_is_told_to_and_does_nothing_any_more(
    ledger, clock, way, point, entered, left
):
    ran: list[str] = []

    @way.tool(lease="10s")
    def pay(to: str) -> int:
        ran.append(to)
        return len(ran)

    doomed = crashing(ledger, point)
    with a_step(doomed), pytest.raises(Crash):
        way.call(pay, "a")
    assert len(ran) == entered
    states = [ledger.records.effective_state(record) for record in ledger.records.list()]
    assert states == ([left] if left else [])
    clock.advance("11s")
    with a_step(ledger):
        if left == "pending":
            with pytest.raises(OutcomeUnknown):
                way.call(pay, "a")
        else:
            assert way.call(pay, "a") == 1


def test_a_dead_process_writes_nothing_more_and_can_be_closed(ledger):
    tool, doomed = declared()(effect), crashing(ledger, "before settle")
    with a_step(ledger):
        tool("done before")
    with a_step(doomed):
        assert tool("done before") == "done before"
        with pytest.raises(Crash):
            tool("a")
    doomed.keeper.close()
    assert kinds(ledger) == ["claimed", "settled", "claimed"]


def test_crash_points_are_named_before_and_after_every_write():
    assert {"before claim", "after claim", "before settle", "after settle", "before renew"} <= set(
        CRASH_POINTS
    )


# --- the hammer -----------------------------------------------------------------------------------


def test_a_guarded_tool_has_one_effect_however_many_call_it(way):
    ran = []

    @way.tool()
    def pay(to: str) -> int:
        ran.append(to)
        return len(ran)

    report = hammer(pay, {"to": "a"})
    assert (report.effects, len(report.results)) == (1, 16)
    assert {result.value for result in report.results} == {1}
    assert sum(result.replayed for result in report.results) == 15
    assert ran == ["a"]


def test_the_hammer_runs_on_the_users_own_store(real, way):
    report = hammer(way.tool()(effect), {"to": "a"}, callers=8, ledger=real)
    assert (report.effects, len(report.results)) == (1, 8)
    assert state(real) == "done"


def test_an_unguarded_tool_shows_its_every_effect(way):
    report = hammer(way.tool(class_="write-idempotent")(effect), {"to": "a"}, callers=5)
    assert report.effects == 5


def test_two_hammerings_are_two_actions(way):
    tool = way.tool()(effect)
    assert [hammer(tool, {"to": "a"}).effects for _ in range(2)] == [1, 1]


def test_the_hammer_grants_the_scopes_and_reports_failures(way):
    @way.tool(scopes={"pay"})
    def pay(to: str) -> None:
        raise LookupError

    report = hammer(pay, {"to": "a"}, callers=4)
    assert report.effects == 1
    assert {type(result.error.exception()) for result in report.results if result.error} == {EffectFailed}


def test_the_hammer_works_inside_a_running_loop():
    async def main() -> Any:
        return hammer(declared()(effect), {"to": "a"}, callers=4), hammer(
            async_effect, {"to": "a"}, callers=4
        )

    for report in asyncio.run(main()):
        assert report.effects == 1


@declared()
async def async_effect(to: str) -> str:
    await asyncio.sleep(0)
    return to


def test_refusing_tools_are_entered_once_too():
    report = hammer(declared(in_flight="refuse")(effect), {"to": "a"})
    assert report.effects == 1
    refused = {type(result.error.exception()) for result in report.results if result.error}
    assert refused <= {InFlight}


def test_the_hammer_leaves_the_tool_as_it_was():
    tool = declared()(effect)
    hammer(tool, {"to": "a"})
    assert tool.contract.function is effect


# --- a step in one line ---------------------------------------------------------------------------


def test_a_step_in_one_line_has_a_fresh_ledger_each_time():
    paid = []

    @semel.tool_contract()
    def pay(order: str) -> int:
        paid.append(order)
        return len(paid)

    with semel.testing.step() as step:
        assert (pay("a"), pay("a")) == (1, 1)
    with semel.testing.step(scopes={"payments"}, principal="ann") as granted:
        assert pay("a") == 2
    assert step.ledger is not granted.ledger
    assert granted.scopes == {"payments"}
    assert granted.principal == "ann"


def test_code_under_test_that_uses_the_default_ledger_meets_the_same_one():
    with semel.testing.step() as step:
        assert semel.step(conversation="c", step="s").ledger is step.ledger


# --- what a downstream does with a key ------------------------------------------------------------


class Provider:
    """Forgets a key after a while, as the real ones do."""

    def __init__(self, clock: FakeClock, forgets_after_s: float) -> None:
        self.clock = clock
        self.forgets_after_s = forgets_after_s
        self.refunds: dict[str, tuple[float, int]] = {}
        self.count = 0

    def refund(self, key: str) -> int:
        known = self.refunds.get(key)
        if known is None or self.clock.monotonic() - known[0] > self.forgets_after_s:
            self.count += 1
            known = self.refunds[key] = (self.clock.monotonic(), self.count)
        return known[1]


def test_a_downstream_that_deduplicates_is_known_by_its_answers_and_by_how_long(clock):
    provider = Provider(clock, forgets_after_s=3600)
    report = check_downstream(provider.refund, after=["10m", "59m", "2h"], clock=clock)
    assert report.answers == [1, 1, 1, 1, 2]
    assert (report.deduplicates, report.remembered_for) == (True, timedelta(minutes=59))


def test_a_downstream_that_ignores_keys_is_found_out(clock):
    provider = Provider(clock, forgets_after_s=-1)
    report = check_downstream(provider.refund, key="k-1", after=["1m"], clock=clock)
    assert (report.answers, report.deduplicates, report.remembered_for) == ([1, 2, 3], False, None)


def test_an_asynchronous_downstream_is_asked_too_also_inside_a_loop_and_its_errors_are_answers(clock):
    asked = []

    async def refund(key: str) -> int:
        asked.append(key)
        if len(asked) > 2:
            raise ConnectionError("down")
        return 1

    async def inside_a_loop():
        return check_downstream(refund, after=["1m"], clock=clock)

    report = asyncio.run(inside_a_loop())
    assert report.answers[:2] == [1, 1]
    assert isinstance(report.answers[2], ConnectionError)
    assert (report.deduplicates, report.remembered_for) == (True, timedelta(0))


def test_without_a_first_answer_there_is_nothing_to_compare(clock):
    def refund(key: str) -> int:
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        check_downstream(refund, clock=clock)
