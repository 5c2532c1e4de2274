"""How the store on Redis finds its records: by pages of sixteen; and what events leave out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel.audit.events import Event, fold, new_event, told_by
from semel.audit.verify import verify
from semel.kernel.record import Address, Record, State
from semel.stores.base import AppendEvents, FindRecord, ListRecords, ReadEvents, SealEvents, Sweep
from semel.stores.memory import MemoryStore
from semel.stores.urls import StoreUrl
from tests.commands import LEASE, SECOND, WINDOW, A, asked, claim, look, park, settle
from tests.fake_clock import FakeClock
from tests.missing import library
from tests.redis_server import RedisServer

library("hiredis")

from semel.kernel.record import Claim  # noqa: E402
from semel.stores.redis import RedisStore  # noqa: E402
from semel.stores.redis.options import read  # noqa: E402

LANE = "semel:{semel.00}:"
UNDER_WAY = frozenset((State.PENDING,))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer(save="")
    server.start()
    yield server
    server.remove()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(server: RedisServer, clock: FakeClock) -> Iterator[RedisStore]:
    store = RedisStore(read(StoreUrl(server.url())), clock=clock)
    yield store
    store.close()


def at(number: int, tenant: str = "acme") -> Address:
    return Address(tenant, "tool", f"{number:064x}")


def token(number: int) -> bytes:
    return number.to_bytes(16, "big")


def call(store: Any, number: int, tenant: str = "acme", window_us: int | None = WINDOW) -> None:
    request = asked(token(number), at(number, tenant), id=f"rec_{number:032x}")
    assert store.perform(Claim(request, token(number), LEASE)).applied
    assert store.perform(settle(token(number), at(number, tenant), window_us=window_us)).applied


def swept(store: RedisStore) -> None:
    while store.ask(Sweep()).more:
        pass


def pages(server: RedisServer) -> int:
    """How many there are; besides, an entry in each index keeps it from being absent."""
    in_book, filed = server.ask("HLEN", f"{LANE}book"), server.ask("ZCARD", f"{LANE}pages")
    assert in_book == filed
    return int(str(filed)) - 1


def read_on(store: Any, limit: int) -> list[Record]:
    """All records, so many at a time."""
    records: list[Record] = []
    page = store.ask(ListRecords("acme", limit=limit))
    while page:
        records += page
        last = page[-1]
        page = store.ask(ListRecords("acme", limit=limit, before=(last.created_at, last.request.id)))
    return records


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_long_list_is_read_page_by_page_and_in_order_also_when_the_clock_was_set_back(store, clock, limit):
    memory = MemoryStore(clock=clock)
    for number in range(120):
        for each in (store, memory):
            call(each, number)
            call(each, 1_000 + number, tenant="globex")
        # Some in one moment, some later, and one earlier than those before it.
        clock.advance({0: 1, 1: 0, 2: 3, 3: 0}[number % 4] if number != 70 else -100)
    expected = [record.request.id for record in read_on(memory, 1_000)]
    assert len(expected) == 120
    assert [record.request.id for record in read_on(store, limit)] == expected


def test_nothing_is_left_of_records_that_closed_and_of_their_pages(server, store, clock):
    for number in range(40):
        call(store, number)
        call(store, 100 + number, tenant="globex", window_us=WINDOW // 2)
    assert pages(server) == 6
    clock.advance(LEASE / SECOND)
    swept(store)
    clock.advance(WINDOW / 2 / SECOND)
    swept(store)
    assert pages(server) == 3
    clock.advance(WINDOW / SECOND)
    swept(store)
    assert pages(server) == 0
    assert server.ask("ZCARD", f"{LANE}list") == 1
    assert store.ask(ListRecords(None)) == []
    clock.advance(store.audit_kept_us / SECOND)
    while store.ask(SealEvents()):
        pass
    clock.advance(store.audit_kept_us / SECOND)
    swept(store)
    assert server.ask("HLEN", f"{LANE}ids") == server.ask("XLEN", f"{LANE}events") == 0


def test_a_record_that_stays_keeps_its_page_and_the_others_go(server, store, clock):
    for number in range(40):
        call(store, number, window_us=None if number == 5 else WINDOW)
    clock.advance((WINDOW + LEASE) / SECOND)
    swept(store)
    assert [record.request.at for record in store.ask(ListRecords("acme"))] == [at(5)]
    call(store, 100)
    assert [record.request.at for record in store.ask(ListRecords("acme"))] == [at(100), at(5)]
    assert pages(server) == 2


@pytest.mark.parametrize("lease_us", [LEASE, 2 * WINDOW])
def test_what_is_pending_is_found_on_a_page_whose_others_were_settled_and_swept(store, clock, lease_us):
    """Whether it is due before those, or after them."""
    for number in range(5):
        call(store, number)
    clock.advance(LEASE / SECOND)
    swept(store)
    assert store.ask(ListRecords("acme", states=UNDER_WAY)) == []
    store.perform(claim(A, at(50), lease_us=lease_us))
    assert [record.request.at for record in store.ask(ListRecords("acme", states=UNDER_WAY))] == [at(50)]
    clock.advance(lease_us / SECOND)
    assert store.ask(Sweep()).lapsed == 1


def test_a_window_shorter_than_the_lease_closes_in_time(store, clock):
    call(store, 1, window_us=SECOND)
    clock.advance(1)
    assert store.ask(Sweep()).closed == 1


def test_a_window_of_many_thousand_years_does_not_close(store, clock):
    call(store, 1, window_us=(1 << 63) - 1)
    for seconds in (LEASE / SECOND, 1e9):
        clock.advance(seconds)
        swept(store)
    assert [record.request.at for record in store.ask(ListRecords("acme"))] == [at(1)]


def test_a_store_on_a_server_that_is_full_can_be_opened_and_read(server, store, clock):
    call(store, 1)
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    with closing(RedisStore(read(StoreUrl(server.url())), clock=clock)) as another:
        assert [record.request.at for record in another.ask(ListRecords("acme"))] == [at(1)]


def test_whoever_is_swept_in_small_pieces_is_swept(store, clock):
    for number in range(40):
        store.perform(claim(token(number), at(number), lease_us=LEASE * (1 + number % 2)))
    clock.advance(LEASE / SECOND)
    pieces = [store.ask(Sweep(limit=3)) for _ in range(7)]
    assert [piece.lapsed for piece in pieces] == [3, 3, 3, 3, 3, 3, 2]
    assert [piece.more for piece in pieces] == [True] * 6 + [False]


IDS = (
    "",
    "rec_",
    "rec_" + "A" * 32,
    "rec_" + "g" * 32,
    "rec_" + "0" * 31,
    "rec_" + "ab" * 16,
    "\x00id",
    "ü" * 200,
)
KEYS = ("", "a" * 63, "AB" * 32, "ab" * 32, "zz" * 32, "k" * 300, "\x00")


def test_ids_keys_and_terms_of_every_kind_come_back_and_are_found(store):
    for number, id_ in enumerate(IDS):
        for key in KEYS:
            place = Address(f"tenant-{number}", "tool", key)
            terms = '{"class":"' + "x" * (number * 100) + '"}'
            request = asked(A, place, id=f"{id_}{len(key)}" if len(id_) != 36 else id_ + key, terms=terms)
            record = store.perform(Claim(request, A, LEASE)).record
            assert store.perform(look(place)).record == record
            assert store.ask(FindRecord(place.tenant, request.id)) == record
            events = store.ask(ReadEvents(record_id=request.id, tenant=place.tenant))
            assert [event.key for event in events if event.key == key] == [key]


def test_two_ids_that_end_alike_are_both_found_and_so_are_their_stories(server, store, clock):
    """Of an id fourteen bytes are indexed; by chance no two end alike."""
    ids = [f"rec_{number:04x}{0:028x}" for number in range(3)]
    for number, id_ in enumerate(ids):
        assert store.perform(Claim(asked(A, at(number), id=id_), A, LEASE)).applied
    records = [store.perform(look(at(number))).record for number in range(3)]
    assert [store.ask(FindRecord("acme", id_)) for id_ in ids] == records
    for record in records:
        assert store.ask(AppendEvents([new_event("dedup_hit", record, clock.now_us())])) is None
        assert store.perform(settle(A, record.request.at)).applied
    for record in (records[1], records[0], records[2]):
        kinds = [event.kind for event in store.ask(ReadEvents(record_id=record.request.id))]
        assert kinds == ["claimed", "dedup_hit", "settled"]
    clock.advance((LEASE + WINDOW) / SECOND)
    swept(store)
    for id_ in ids:
        kinds = [event.kind for event in store.ask(ReadEvents(record_id=id_))]
        assert kinds == ["claimed", "dedup_hit", "settled", "closed"]
        assert store.ask(FindRecord("acme", id_)) is None


# --- what events leave out ----------------------------------------------------------------------------


def events_of(store: RedisStore, number: int) -> list[Event]:
    return [*store.ask(ReadEvents(record_id=f"rec_{number:032x}"))]


def stored(server: RedisServer) -> dict[int, bytes]:
    entries: Any = server.ask("XRANGE", f"{LANE}events", "-", "+")
    return {int(id_.split(b"-")[1]): data for id_, (_, data) in entries}


def test_a_settlement_says_what_its_claim_said_and_stores_it_once(server, store):
    call(store, 1)
    claimed, settled = events_of(store, 1)
    assert settled._replace(
        seq=1, kind=claimed.kind, state=claimed.state, digest=claimed.digest, expires_at=None
    ) == (claimed)
    assert b"conv-42" in stored(server)[1]
    assert b"conv-42" not in stored(server)[2]
    record = store.perform(look(at(1))).record
    assert record is not None
    assert fold([claimed, settled]) == told_by(record)


def test_a_settlement_long_after_its_claim_says_all_of_it(server, store, clock):
    request = asked(A, at(1), id=f"rec_{1:032x}")
    store.perform(Claim(request, A, 3_600 * SECOND))
    clock.advance(1_200)
    store.perform(settle(A, at(1)))
    assert b"conv-42" in stored(server)[2]
    assert [event.conversation for event in events_of(store, 1)] == ["conv-42"] * 2


def test_a_claims_event_stays_for_a_settlement_that_was_sealed_later_and_is_read_no_more(
    server, store, clock
):
    request = asked(A, at(1), id=f"rec_{1:032x}")
    store.perform(Claim(request, A, LEASE))
    store.perform(claim(token(2), at(2)))
    store.perform(park(token(2), at(2)))
    store.ask(SealEvents())
    clock.advance(30)
    store.perform(settle(A, at(1), window_us=None))
    call(store, 3, window_us=None)
    store.ask(SealEvents())
    clock.advance(store.audit_kept_us / SECOND - 20)
    swept(store)
    assert list(stored(server)) == [1, 4, 5, 6]
    assert [event.seq for event in store.ask(ReadEvents())] == [4, 5, 6]
    assert [(event.kind, event.key) for event in events_of(store, 1)] == [("settled", at(1).key)]
    assert verify(store).whole
    clock.advance(30)
    swept(store)
    assert stored(server) == {}
    assert store.ask(ReadEvents()) == []


def test_a_settlement_whose_claim_was_removed_is_told_as_changed(server, store, tmp_path: Path):
    call(store, 1)
    store.ask(SealEvents())
    server.ask("XDEL", f"{LANE}events", "0-1")
    assert [event.key for event in store.ask(ReadEvents())] == [""]
    assert not verify(store).whole
