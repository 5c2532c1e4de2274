"""A store as release 0.1 left it: it is read and goes on; what is new in it has the present form."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel.audit.events import fold, told_by
from semel.audit.verify import verify
from semel.kernel.record import Address, Record, State
from semel.stores.base import CountRecords, FindRecord, ListRecords, ReadEvents, ReadSeals, SealEvents, Sweep
from semel.stores.urls import StoreUrl
from tests.commands import LEASE, SECOND, WINDOW, A, B, claim, look, release, renew, retake, settle
from tests.fake_clock import FakeClock
from tests.missing import library
from tests.redis_server import RedisServer

library("hiredis")

from semel.stores.redis import RedisStore  # noqa: E402
from semel.stores.redis.options import read  # noqa: E402

# Records in every state, one that closed, counted events and a seal: each key as DUMP gave it.
LEFT = json.loads(Path(__file__).with_name("redis_first_form.json").read_text("utf-8"))
STOPPED = frozenset((State.WAITING, State.IN_DOUBT))
DONE, FAILED, PENDING, LAPSED, WAITING, RELEASED, CLEARED = 1, 2, 3, 4, 6, 7, 8


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer(save="")
    server.start()
    for key, dumped in LEFT["keys"].items():
        assert server.ask("RESTORE", key, "0", base64.b64decode(dumped)) == b"OK"
    yield server
    server.remove()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(LEFT["now_us"])


@pytest.fixture(params=["keep", "compact"])
def layout(request: pytest.FixtureRequest) -> str:
    """As long as others may read the store, or once nobody does who reads the first form alone."""
    return str(request.param)


@pytest.fixture
def store(server: RedisServer, clock: FakeClock, layout: str) -> Iterator[RedisStore]:
    store = RedisStore(read(StoreUrl(server.url(layout=layout))), clock=clock)
    yield store
    store.close()


@pytest.fixture
def new(layout: str) -> int:
    """The form of what is new."""
    return {"keep": 1, "compact": 2}[layout]


def place(number: int, tenant: str = "acme") -> Address:
    return Address(tenant, "tool", f"{number:064x}")


def owner(number: int) -> bytes:
    return bytes([number]) * 16


def form_of(server: RedisServer, store: Any, at: Address) -> int:
    data: Any = server.ask("GET", store._channel_of(at))
    return int(data[0])


def listed(store: RedisStore, **filters: Any) -> list[Record]:
    return [*store.ask(ListRecords("acme", limit=100, **filters))]


def story(store: RedisStore, id_: str) -> list[str]:
    return [event.kind for event in store.ask(ReadEvents(record_id=id_))]


def test_everything_reads_as_the_release_that_wrote_it_read_it(store):
    records = [
        record for tenant in ("acme", "globex") for record in store.ask(ListRecords(tenant, limit=100))
    ]
    assert [repr(record) for record in records] == LEFT["records"]
    assert [repr(event) for event in store.ask(ReadEvents())] == LEFT["events"]
    assert [repr(seal) for seal in store.ask(ReadSeals())] == LEFT["seals"]
    assert {state.value: count for state, count in store.ask(CountRecords()).items()} == LEFT["counts"]
    assert [record.request.id for record in listed(store, states=STOPPED)] == LEFT["stopped"]
    for record in records:
        assert store.ask(FindRecord(record.request.at.tenant, record.request.id)) == record
        events = store.ask(ReadEvents(record_id=record.request.id))
        assert fold(events) == told_by(record)


def test_a_settled_key_is_replayed_and_not_claimed(store):
    reply = store.perform(claim(A, place(DONE)))
    assert not reply.applied
    assert reply.record.state is State.DONE
    assert reply.record.outcome == b'{"refund":"r-1"}'


def test_what_was_under_way_is_renewed_and_settled_in_the_form_that_its_owner_reads(server, store):
    assert store.perform(renew(owner(PENDING), place(PENDING))).applied
    assert form_of(server, store, place(PENDING)) == 1
    assert store.perform(settle(owner(PENDING), place(PENDING))).applied
    assert form_of(server, store, place(PENDING)) == 1
    assert store.perform(look(place(PENDING))).record.state is State.DONE
    assert store.ask(CountRecords())[State.DONE] == LEFT["counts"]["done"] + 1


def test_what_is_in_doubt_is_taken_again_in_the_form_that_it_has(server, store):
    assert store.perform(retake(owner(LAPSED), B, place(LAPSED))).applied
    assert form_of(server, store, place(LAPSED)) == 1
    assert len(listed(store, states=STOPPED)) == len(LEFT["stopped"]) - 1
    assert story(store, f"rec_{LAPSED:032x}") == ["claimed", "lapsed", "retaken"]


def test_a_key_that_was_free_is_claimed_under_the_id_that_it_had(server, store, clock, new):
    reply = store.perform(claim(A, place(RELEASED)))
    assert reply.applied
    assert reply.record.request.id == f"rec_{RELEASED:032x}"
    assert form_of(server, store, place(RELEASED)) == new
    assert store.ask(FindRecord("acme", reply.record.request.id)) == reply.record
    assert len(listed(store)) == len(LEFT["records"]) - 1  # the other tenant has one
    assert store.perform(settle(A, place(RELEASED))).applied
    assert story(store, reply.record.request.id) == ["claimed", "released", "claimed", "settled"]
    clock.advance(WINDOW / SECOND)
    store.ask(Sweep())
    assert store.ask(FindRecord("acme", reply.record.request.id)) is None
    assert story(store, reply.record.request.id)[-1] == "closed"


def test_a_cleared_key_goes_on_in_the_form_that_it_has(server, store):
    reply = store.perform(claim(A, place(CLEARED)))
    assert reply.applied
    assert form_of(server, store, place(CLEARED)) == 1
    under_way = listed(store, states=frozenset((State.PENDING,)))
    assert {record.request.at for record in under_way} == {place(PENDING), place(CLEARED)}


def test_new_records_stand_among_the_old_ones_in_their_order(server, store, clock, new):
    clock.advance(1)
    newer = [store.perform(claim(A, place(number))).record for number in (101, 102)]
    assert form_of(server, store, place(101)) == new
    records = listed(store)
    assert {record.request.at for record in records[:2]} == {record.request.at for record in newer}
    assert [repr(record) for record in records[2:]] == LEFT["records"][:-1]
    first, *_ = records
    assert listed(store, before=(first.created_at, first.request.id)) == records[1:]


def test_the_log_goes_on_and_is_whole(store):
    store.perform(claim(A, place(101)))
    store.perform(settle(A, place(101)))
    while store.ask(SealEvents()):
        pass
    assert verify(store, tenants=("acme", "globex")).whole


def test_nothing_is_left_of_what_closed(server, store, clock):
    """All but the one without an end, what is in doubt and what is pending, which lapses."""
    clock.advance(WINDOW / SECOND + LEASE)
    while store.ask(Sweep()).more:
        pass
    assert {record.state for record in listed(store)} == {State.FAILED, State.IN_DOUBT}
    ids: Any = server.ask("HVALS", "semel:{semel.00}:ids")
    assert sorted(map(len, ids)) == [8] * 7 + [32] * 4
    assert server.ask("ZCARD", "semel:{semel.00}:list") == 4 + 3 + 1  # one keeps it from being absent


def test_what_a_semel_wrote_that_listed_nothing_twice_is_found(server, store):
    """And what such a one resolved is no longer found: by the lane's own counts, which it keeps too."""
    key, twice = "semel:{semel.00}:list", b"[\xff"
    server.ask("ZREMRANGEBYLEX", key, twice, b"+")
    assert [record.request.id for record in listed(store, states=STOPPED)] == LEFT["stopped"]
    assert server.ask("ZLEXCOUNT", key, twice, b"+") == len(LEFT["stopped"])
    stale: Any = server.ask("ZRANGEBYLEX", key, b"-", b"(\xff")
    server.ask("ZADD", key, "0", b"\xff" + stale[0])
    assert [record.request.id for record in listed(store, states=STOPPED)] == LEFT["stopped"]
    assert server.ask("ZLEXCOUNT", key, twice, b"+") == len(LEFT["stopped"])


def test_whoever_opens_it_later_goes_on_in_the_form_that_it_has_by_then(server, clock, store, new):
    """A ledger that was open before goes on as well: both read both."""
    with closing(RedisStore(read(StoreUrl(server.url())), clock=clock)) as later:
        later.perform(claim(B, place(101)))
        assert form_of(server, later, place(101)) == new
        assert store.perform(look(place(101))).record == later.perform(look(place(101))).record


def test_a_process_that_has_not_been_restarted_meets_the_compact_form(server, clock):
    """It claims a key that was released in the other form, and back."""
    before, after = (
        RedisStore(read(StoreUrl(server.url(layout=layout))), clock=clock) for layout in ("keep", "compact")
    )
    with closing(before), closing(after):
        for number, store in enumerate((after, before, after, before)):
            token = bytes([number]) * 16
            record = store.perform(claim(token, place(101))).record
            assert record is not None
            assert form_of(server, store, place(101)) == 2 - number % 2
            assert [each.request.at for each in listed(store)].count(place(101)) == 1
            assert store.ask(FindRecord("acme", record.request.id)) == record
            assert store.perform(release(token, place(101))).applied
        assert record is not None
        assert story(before, record.request.id) == ["claimed", "released"] * 4
        assert len(listed(after, states=frozenset((State.RELEASED,)))) == 2


def test_a_store_that_is_begun_now_is_compact_from_the_beginning(server, clock):
    with closing(RedisStore(read(StoreUrl(server.url("another"))), clock=clock)) as store:
        store.perform(claim(A))
        assert form_of(server, store, claim(A).request.at) == 2
        assert server.ask("HGET", "another:{another}:meta", "format") == b"2"
