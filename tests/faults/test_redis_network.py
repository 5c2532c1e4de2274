"""What the network between a store and its Redis server can do: afterwards one owner, one event of each."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Look, State, ours, settled_by
from semel.stores.base import (
    CountRecords,
    FindRecord,
    ListRecords,
    ReadEvents,
    ReadSeals,
    SealEvents,
    Store,
)
from semel.stores.urls import open_store
from tests.commands import AT, A, B, claim, look, park, renew, retake, settle
from tests.fake_clock import PATIENCE_S
from tests.faults.checks import until
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.patience import HURRIED
from tests.proxy import Proxy
from tests.redis_server import shared_port, url_of


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return f"n_{abs(hash(str(tmp_path))):x}"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy(shared_port())
    yield proxy
    proxy.close()


@pytest.fixture
def near(prefix: str) -> Iterator[Store]:
    """The store by the direct way: what it says is so."""
    store = open_store(url_of(f"redis://127.0.0.1:{shared_port()}", prefix, {}))
    yield store
    store.close()


@pytest.fixture(params=[StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def far(request: pytest.FixtureRequest, proxy: Proxy, prefix: str) -> Iterator[StoreHandle]:
    """The store behind the proxy, with little patience."""
    url = url_of(f"redis://127.0.0.1:{proxy.port}", prefix, {"timeout": HURRIED})
    handle = request.param(open_store(url))
    handle.perform(look())
    yield handle
    proxy.restore()
    handle.close()


def kinds(store: Store) -> list[str]:
    return [event.kind for event in store.ask(ReadEvents())]


def in_the_end(handle: StoreHandle, command: Any) -> Any:
    """The reply, once the way is free: asked again and again, as an owner may."""

    def ask() -> Any:
        try:
            return handle.perform(command)
        except StoreUnavailable:
            return None

    return until(ask, "the store answers again")


def test_a_claim_whose_reply_is_lost_is_refused_and_asked_again_it_is_ours(far, proxy, near):
    proxy.drops_replies = True
    with pytest.raises(StoreUnavailable, match="did not answer in time; the tool did not run"):
        far.perform(claim(A))
    assert near.perform(look()).record.token == A
    proxy.restore()
    assert ours(in_the_end(far, claim(A)).record, claim(A))
    assert kinds(near) == ["claimed"]


def test_a_settlement_whose_reply_is_lost_is_settled_once(far, proxy, near):
    far.perform(claim(A))
    proxy.drops_replies = True
    with pytest.raises(StoreUnavailable, match="the outcome was not recorded"):
        far.perform(settle(A))
    proxy.restore()
    assert settled_by(in_the_end(far, settle(A)).record, settle(A))
    assert kinds(near) == ["claimed", "settled"]


@pytest.mark.parametrize("length", [0, 1, 5, 20])
def test_a_reply_cut_in_the_middle_is_asked_for_again_by_the_store_itself(far, proxy, near, length):
    proxy.cuts_after = length
    assert ours(far.perform(claim(A)).record, claim(A))
    assert kinds(near) == ["claimed"]


def test_replies_that_arrive_twice_are_never_taken_for_others(far, proxy, near):
    places = [Address("acme", "tool", f"key-{number}") for number in range(20)]
    proxy.doubles_replies = True
    for at in places:
        in_the_end(far, claim(A, at))
    proxy.restore()
    for number, at in enumerate(places):
        reply = in_the_end(far, settle(A, at, outcome=b"%d" % number))
        assert (reply.record.request.at, reply.record.outcome) == (at, b"%d" % number)
    assert sorted(kinds(near)) == ["claimed"] * 20 + ["settled"] * 20


def test_a_reply_that_comes_again_when_something_else_is_asked_is_not_the_answer_to_that(far, proxy, near):
    ends = [Address("acme", "tool", "one"), Address("acme", "tool", "two"), Address("globex", "tool", "k")]
    for at in ends:
        near.perform(claim(A, at))
    near.perform(settle(A, ends[0]))
    near.ask(SealEvents())
    ids = [near.perform(look(at)).record.request.id for at in ends]
    questions: list[Any] = [*map(look, ends), look(Address("acme", "tool", "nobody's"))]
    questions += [ListRecords("acme"), ListRecords("globex"), FindRecord("acme", ids[0]), CountRecords()]
    questions += [ReadEvents(), ReadEvents(record_id=ids[1]), ReadSeals()]
    for first, second in itertools.permutations(questions, 2):
        repeated = proxy.repeated
        # Again where the second question went over a new connection: then nothing was there to come twice.
        while proxy.repeated == repeated:
            proxy.repeats_to_next = True
            assert told(far, first) == told(StoreHandle(near), first)
            assert told(far, second) == told(StoreHandle(near), second)


def told(handle: StoreHandle, question: Any) -> Any:
    """What the store has to say, apart from the time."""
    return handle.perform(question).record if isinstance(question, Look) else handle.ask(question)


def test_an_old_reply_that_comes_again_does_not_hide_what_happened_since(far, proxy, near):
    far.perform(claim(A))
    proxy.repeats_to_next = True
    assert far.perform(renew(A)).applied
    near.perform(park(A))
    near.perform(retake(A, B))
    assert not far.perform(renew(A)).applied
    proxy.repeats_to_next = True
    assert far.ask(CountRecords()) == {State.PENDING: 1}
    near.perform(settle(B))
    assert far.ask(CountRecords()) == {State.DONE: 1}
    assert proxy.repeated == 2


def test_a_one_way_cut_is_a_refusal_and_nothing_happened(far, proxy, near):
    proxy.drops_requests = True
    with pytest.raises(StoreUnavailable):
        far.perform(claim(A))
    assert near.perform(look()).record is None
    proxy.restore()
    assert in_the_end(far, claim(A)).applied


def test_slow_replies_are_waited_for(far, proxy):
    proxy.delay_s = 0.05
    assert far.perform(claim(A)).applied
    assert far.perform(settle(A)).applied


def test_a_server_that_answers_drop_by_drop_does_not_get_longer_for_it(far, proxy, near):
    proxy.drips_s = 0.1
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        far.perform(claim(A))
    proxy.restore()
    assert ours(in_the_end(far, claim(A)).record, claim(A))
    assert kinds(near) == ["claimed"]


def test_broken_connections_are_made_anew_without_the_caller_noticing(far, proxy, near):
    for number in range(5):
        at = Address("acme", "tool", f"key-{number}")
        far.perform(claim(A, at))
        proxy.cut()
        assert far.perform(settle(A, at)).record.state is State.DONE
    assert sorted(kinds(near)) == ["claimed"] * 5 + ["settled"] * 5


def test_where_nobody_is_let_in_the_refusal_says_so_and_service_resumes(far, proxy):
    proxy.refuses = True
    proxy.cut()
    with pytest.raises(StoreUnavailable, match="broke"):
        far.perform(claim(A))
    proxy.restore()
    assert in_the_end(far, claim(A)).applied


def test_an_owner_behind_a_cut_does_not_own_what_somebody_else_went_on_with(far, proxy, near):
    far.perform(claim(A, lease_us=1))
    proxy.drops_requests = True
    near.perform(claim(B, Address("acme", "tool", "another")))
    until(lambda: near.perform(look()).now_us > near.perform(look()).record.lease_until, "the lease is over")

    assert near.perform(retake(A, B)).applied
    proxy.restore()
    reply = in_the_end(far, settle(A))
    assert (reply.applied, reply.record.token) == (False, B)


def test_tasks_in_flight_when_the_connection_breaks_all_get_their_answer(proxy, prefix, near):
    store = open_store(url_of(f"redis://127.0.0.1:{proxy.port}", prefix, {"timeout": "5s"}))
    places = [Address("acme", "tool", f"key-{number}") for number in range(200)]

    async def scene() -> list[Any]:
        await store.aperform(look())
        proxy.cuts_after = 300
        replies = await asyncio.gather(*(store.aperform(claim(A, at)) for at in places))
        await store.aclose()
        return replies

    replies = asyncio.run(scene())
    assert [reply.record.request.at for reply in replies] == places
    assert kinds(near) == ["claimed"] * 200


def test_a_waiter_is_woken_although_its_connection_broke_meanwhile(proxy, prefix, near):
    store = open_store(url_of(f"redis://127.0.0.1:{proxy.port}", prefix, {"timeout": HURRIED}))
    near.perform(claim(A))
    waiter = store.waiters.add(AT)
    store.watch()
    proxy.cut()
    near.perform(settle(A))
    assert waiter.wait(SYSTEM, PATIENCE_S)
    store.close()
