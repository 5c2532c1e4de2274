"""In the background: signs of life, writes put off, counts, and the sweep."""

import asyncio
import os
import threading

import pytest

import semel
from semel.errors import EffectFailed, OwnershipLost, StoreUnavailable
from semel.kernel.record import Look, Renew
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore
from tests.patience import PATIENCE_S
from tests.tools import a_step, declared, events, keyed, kinds, state, the_record


def lease_left_s(ledger: Ledger) -> float:
    record = the_record(ledger)
    assert record.lease_until is not None
    return (record.lease_until - ledger.clock.now_us()) / 1e6


# --- signs of life --------------------------------------------------------------------------------


def test_the_lease_is_renewed_while_the_tool_runs(ledger, clock, way):
    @way.tool(lease="60s")
    def pay(to: str) -> None:
        for _ in range(10):
            clock.advance("30s")
            ledger.keeper.run_once()
            assert lease_left_s(ledger) == 60.0
        assert state(ledger) == "pending"

    with a_step(ledger):
        way.call(pay, "a")
    assert kinds(ledger)[:2] == ["claimed", "settled"]


def test_a_lease_is_renewed_after_a_third_of_it_and_not_before(ledger, clock):
    @declared(lease="60s")
    def pay(to: str) -> None:
        clock.advance("19s")
        ledger.keeper.run_once()
        assert lease_left_s(ledger) == 41.0
        clock.advance("1s")
        ledger.keeper.run_once()
        assert lease_left_s(ledger) == 60.0

    with a_step(ledger):
        pay("a")


def test_renewal_stops_at_the_run_limit_and_the_record_is_in_doubt_after_its_lease(ledger, clock):
    @declared(lease="60s", run_limit="2m")
    def pay(to: str) -> None:
        for _ in range(4):
            clock.advance("30s")
            ledger.keeper.run_once()
        assert state(ledger) == "pending"
        clock.advance("30s")
        ledger.keeper.run_once()
        assert state(ledger) == "in_doubt"

    with a_step(ledger):
        pay("a")


def test_nothing_is_renewed_after_the_tool_ended(ledger, clock):
    @declared()
    def pay(to: str) -> None:
        raise TimeoutError

    with a_step(ledger), pytest.raises(TimeoutError):
        pay("a")
    clock.advance("30s")
    ledger.keeper.run_once()
    assert state(ledger) == "in_doubt"


def test_a_forked_child_does_not_renew_the_lease_of_the_call_that_forked_it(ledger):
    def renewals() -> int:
        return sum(call.renewed for call in ledger.running.calls)

    @declared()
    def pay(to: str) -> int:
        child = os.fork()
        if child == 0:
            os._exit(renewals())
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) * 10 + renewals()

    with a_step(ledger):
        assert pay("a") == 1, "the parent renews it, the child does not"


def test_a_store_that_is_away_for_a_while_does_not_cost_the_lease(shaky, flaky, clock):
    @declared(lease="60s")
    def pay(to: str) -> None:
        clock.advance("20s")
        flaky.down = True
        shaky.keeper.run_once()
        flaky.down = False
        clock.advance("1s")
        shaky.keeper.run_once()
        assert lease_left_s(shaky) == 60.0

    with a_step(shaky):
        pay("a")


def test_an_owner_that_woke_up_late_revives_its_lapsed_record_if_nobody_went_on(ledger, clock):
    @declared(lease="10s")
    def pay(to: str) -> None:
        clock.advance("1m")
        ledger.sweeper.run_once()
        ledger.keeper.run_once()
        assert state(ledger) == "pending"

    with a_step(ledger):
        pay("a")
    assert kinds(ledger) == ["claimed", "lapsed", "revived", "settled"]


def test_an_attempt_that_was_overtaken_does_not_enter_again(ledger, clock):
    class Busy(Exception):
        pass

    entered = []

    @keyed(lease="10s", transient=(Busy,), attempts=5)
    def pay(to: str, key: semel.Key) -> None:
        entered.append(to)
        if len(entered) > 1:
            return
        clock.advance("1m")
        with a_step(Ledger(ledger.store, tenant="acme")):
            pay("a")
        ledger.keeper.run_once()
        raise Busy

    with a_step(ledger), pytest.raises(OwnershipLost):
        pay("a")
    assert len(entered) == 2
    assert state(ledger) == "done"


def test_the_heartbeat_goes_on_while_a_tool_blocks_the_event_loop(kind, tmp_path):
    """Real time is the point: nobody but a thread of its own can renew here."""
    from semel.kernel.clock import SYSTEM

    renewed = threading.Event()

    class Watched(FlakyStore):
        def after(self, name: str) -> None:
            if name == "renew":
                renewed.set()

    @declared(lease="300ms")
    async def pay(to: str) -> bool:
        return renewed.wait(PATIENCE_S)  # blocking the loop is what this test is about

    async def call() -> bool:
        result: bool = await pay("a")
        return result

    with Ledger(Watched(kind.open(tmp_path, SYSTEM, True))) as ledger:
        with a_step(ledger):
            assert asyncio.run(call())
        assert state(ledger) == "done"


# --- put off --------------------------------------------------------------------------------------


def test_a_write_put_off_is_repeated_until_the_store_takes_it(shaky, flaky):
    @declared()
    def pay(to: str) -> None:
        flaky.down = True
        raise LookupError

    with a_step(shaky), pytest.raises(semel.errors.OutcomeUnknown):
        pay("a")
    for _ in range(3):
        shaky.keeper.run_once()
    flaky.down = False
    assert state(shaky) == "pending"
    shaky.keeper.run_once()
    assert state(shaky) == "failed"
    with a_step(shaky), pytest.raises(EffectFailed):
        pay("a")


def test_a_write_put_off_is_given_up_when_its_lease_is_long_over(shaky, flaky, clock, caplog):
    @declared(lease="10s")
    def pay(to: str) -> None:
        flaky.down = True

    with a_step(shaky), pytest.raises(semel.errors.OutcomeUnknown):
        pay("a")
    clock.advance("1h")
    shaky.keeper.run_once()
    assert "gave up settling" in caplog.text
    flaky.down = False
    shaky.keeper.run_once()
    assert state(shaky) == "in_doubt"


def test_closing_writes_what_was_put_off_and_what_was_counted(shaky, flaky):
    @declared()
    def pay(to: str) -> None:
        flaky.down = True

    with a_step(shaky), pytest.raises(semel.errors.OutcomeUnknown):
        pay("a")
    flaky.down = False
    shaky.close()
    after = Ledger(flaky.inner, tenant="acme")
    assert state(after) == "done"
    assert "refused" in kinds(after)


def test_closing_while_the_store_is_away_does_not_raise(shaky, flaky):
    @declared()
    def pay(to: str) -> None: ...

    flaky.down = True
    with a_step(shaky), pytest.raises(StoreUnavailable):
        pay("a")
    shaky.close()
    shaky.close()


# --- counts ---------------------------------------------------------------------------------------


def test_what_was_counted_is_written_in_the_background(ledger):
    @declared()
    def pay(to: str) -> None: ...

    with a_step(ledger):
        for _ in range(3):
            pay("a")
    ledger.keeper.run_once()
    [hit] = [
        event for event in ledger.records.history(the_record(ledger).request.id) if event.kind == "dedup_hit"
    ]
    assert hit.times == 2


def test_counts_that_the_store_does_not_take_are_dropped_without_a_fuss(shaky, flaky):
    @declared()
    def pay(to: str) -> None: ...

    with a_step(shaky):
        pay("a"), pay("a")
    flaky.down = True
    shaky.keeper.run_once()
    flaky.down = False
    assert kinds(shaky) == ["claimed", "settled"]


def test_without_an_audit_nothing_is_written_down(clock):
    ledger = Ledger(MemoryStore(clock=clock, audit_on=False))

    @declared()
    def pay(to: str) -> int:
        return 1

    with a_step(ledger):
        assert pay("a") == pay("a") == 1
    assert events(ledger) == []


# --- the sweep ------------------------------------------------------------------------------------


def test_the_keeper_sweeps_now_and_then(ledger, clock):
    @declared(window="1h")
    def pay(to: str) -> None: ...

    with a_step(ledger):
        pay("a")
    at = the_record(ledger).request.at
    clock.advance("2h")
    ledger.keeper.run_once()
    assert ledger.store.perform(Look(at)).record is None


def test_a_keeper_that_cannot_sweep_goes_on(shaky, flaky, clock):
    clock.advance("2h")
    flaky.down = True
    assert shaky.keeper.run_once() > 0


def test_a_renewal_by_nobody_changes_nothing(ledger):
    @declared()
    def pay(to: str) -> None: ...

    with a_step(ledger):
        pay("a")
    before = the_record(ledger)
    assert not ledger.store.perform(Renew(before.request.at, before.token, 1_000)).applied
    assert the_record(ledger) == before
