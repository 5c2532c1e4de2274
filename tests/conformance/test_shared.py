"""Several handles on the same records, as several processes have them."""

from __future__ import annotations

import asyncio

import pytest

from semel.audit.events import GENESIS, chain
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, State
from semel.stores.base import ReadEvents, ReadSeals, SealEvents, Sweep
from tests.commands import AT, LEASE, SECOND, A, B, claim, look, retake, settle
from tests.conformance.conftest import StoreHandles
from tests.fake_clock import PATIENCE_S, FakeClock
from tests.handles import StoreHandle
from tests.stores import CONFORMING, Kind


@pytest.fixture(params=[kind for kind in CONFORMING if kind.shared], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def two_handles(handles: StoreHandles, clock: FakeClock) -> tuple[StoreHandle, StoreHandle]:
    return handles.open(clock), handles.open(clock)


def test_what_one_handle_wrote_the_other_reads_at_once(two_handles):
    one, other = two_handles
    one.perform(claim(A))
    assert not other.perform(claim(B)).applied
    settled = one.perform(settle(A)).record
    assert other.perform(look()).record == settled
    assert other.ask(ReadEvents()) == one.ask(ReadEvents())
    assert len(one.ask(ReadEvents())) == 2


def test_what_was_written_outlives_the_handle(handles, clock, two_handles):
    one, _ = two_handles
    one.perform(claim(A))
    settled = one.perform(settle(A)).record
    one.store.close()
    assert handles.open(clock).perform(look()).record == settled


def test_all_handles_share_one_secret_and_other_stores_have_another(two_handles, kind, tmp_path_factory):
    one, other = two_handles
    assert len(one.store.secret_key) == 32
    assert one.store.secret_key == other.store.secret_key
    stranger = kind.open(tmp_path_factory.mktemp("elsewhere"), FakeClock(seed=1), True)
    assert stranger.secret_key != one.store.secret_key
    stranger.close()


def test_a_lease_holds_for_the_other_handle_too(two_handles, clock):
    one, other = two_handles
    one.perform(claim(A))
    clock.advance((LEASE - 1) / SECOND)
    assert not other.perform(retake(A, B)).applied
    clock.advance(1 / SECOND)
    assert other.perform(retake(A, B)).applied
    assert not one.perform(settle(A)).applied


def test_two_sweepers_write_one_event_for_each_record(two_handles, clock):
    one, other = two_handles
    for number in range(20):
        one.perform(claim(bytes([number]) * 16, Address("acme", "tool", f"key-{number}")))
    clock.advance(LEASE / SECOND)
    swept = [handle.ask(Sweep(limit=3)).lapsed for _ in range(20) for handle in two_handles]
    assert sum(swept) == 20
    kinds = [event.kind for event in other.ask(ReadEvents())]
    assert (kinds.count("claimed"), kinds.count("lapsed")) == (20, 20)


def test_two_sealers_make_one_chain(two_handles):
    one, other = two_handles
    one.perform(claim(A))
    first = one.ask(SealEvents())
    other.perform(settle(A))
    second = other.ask(SealEvents())
    assert one.ask(SealEvents()) is None
    assert first is not None
    assert second is not None
    # The leaves are told to whoever seals, who keeps them.
    kept = [first._replace(leaves=b""), second._replace(leaves=b"")]
    assert one.ask(ReadSeals()) == other.ask(ReadSeals()) == kept
    events = one.ask(ReadEvents())
    assert first.hash == chain(GENESIS, 1, events[:1])
    assert second.hash == chain(first.hash, 2, events[1:])


def test_who_waits_here_is_woken_by_what_another_handle_settles(handles):
    one, other = handles.open(SYSTEM), handles.open(SYSTEM)
    one.perform(claim(A))
    waiter = other.store.waiters.add(AT)
    other.store.watch()
    one.perform(settle(A))
    assert waiter.wait(SYSTEM, PATIENCE_S)
    assert other.perform(look()).record.state is State.DONE
    other.store.waiters.remove(AT, waiter)


def test_who_waits_on_an_event_loop_is_woken_by_what_another_handle_settles(handles):
    one, other = handles.open(SYSTEM), handles.open(SYSTEM)
    one.perform(claim(A))

    async def wait() -> bool:
        waiter = other.store.waiters.add(AT, asyncio.get_running_loop())
        other.store.watch()
        await asyncio.to_thread(one.store.perform, settle(A))
        woken = await waiter.await_change(SYSTEM, PATIENCE_S)
        other.store.waiters.remove(AT, waiter)
        return woken

    assert asyncio.run(wait())
