"""What is unsettled is found without reading what is settled: counted by what is read, not timed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel.kernel.record import UNSETTLED, Address, State
from semel.stores.base import CountUnsettled, ListRecords, Query, Sweep
from semel.stores.sqlite import SqliteStore
from tests.commands import LEASE, SECOND, claim, park, settle
from tests.fake_clock import FakeClock
from tests.missing import library
from tests.stores import BY_NAME

IN_DOUBT = frozenset((State.IN_DOUBT,))
STOPPED = frozenset((State.IN_DOUBT, State.WAITING))

QUERIES: dict[str, Query[Any]] = {
    "one tenant's doubts": ListRecords("acme", states=IN_DOUBT),
    "one tool's": ListRecords("acme", "tool", STOPPED, tool="issue_refund"),
    "all tenants'": ListRecords(None, states=IN_DOUBT),
    "what is under way": ListRecords("acme", states=UNSETTLED),
    "the count": CountUnsettled(),
    "the count of all": CountUnsettled(UNSETTLED),
}
each_query = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)


def at(number: int) -> Address:
    return Address("acme", "tool", f"key-{number:05}")


def token(number: int) -> bytes:
    return number.to_bytes(16, "big")


def grow(store: Any, clock: FakeClock, first: int, count: int) -> None:
    """So many settled records more, which the sweeper has passed."""
    for number in range(first, first + count):
        store.perform(claim(token(number), at(number)))
        store.perform(settle(token(number), at(number)))
    clock.advance(LEASE / SECOND)
    while store.ask(Sweep()).more:
        pass


def begin(store: Any, clock: FakeClock) -> None:
    """A few of each kind that is unsettled, between settled ones."""
    grow(store, clock, 0, 20)
    for number in range(10_000, 10_003):
        store.perform(claim(token(number), at(number), lease_us=10 * LEASE * SECOND))
        store.perform(park(token(number), at(number)))
    store.perform(claim(token(10_003), at(10_003), lease_us=1_000 * LEASE))
    store.perform(claim(token(10_004), at(10_004), lease_us=1_000 * LEASE, waiting=True))


@each_query
def test_sqlite_looks_into_indexes_of_what_is_not_settled(query, tmp_path):
    clock = FakeClock()
    with closing(SqliteStore(str(tmp_path / "s.db"), clock=clock)) as store:
        begin(store, clock)
        few = sqlite_steps(store, query)
        grow(store, clock, 100, 400)
        assert sqlite_steps(store, query) == few


def sqlite_steps(store: SqliteStore, query: Query[Any]) -> int:
    """How many instructions SQLite's machine takes to answer, in tens: what it reads is among them."""
    from semel.stores.sqlite.queries import ANSWERS

    steps = 0

    def one_more() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite3.connect(store.path)) as connection:
        connection.set_progress_handler(one_more, 10)
        ANSWERS[type(query)](connection, query, store.clock.now_us())
    assert steps
    return steps


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[tuple[Any, FakeClock]]:
    library("psycopg")
    clock = FakeClock()
    store = BY_NAME["postgres"].open(tmp_path, clock, True)
    yield store, clock
    store.close()


@each_query
def test_postgres_reads_no_more_rows_for_a_longer_history(query, postgres):
    store, clock = postgres
    begin(store, clock)
    few = postgres_rows(store, query)
    grow(store, clock, 100, 400)
    assert postgres_rows(store, query) == few


def postgres_rows(store: Any, query: Query[Any]) -> int:
    """How many live rows of `records` the statement fetches, with the settings and plans that calls have."""
    fetched = (
        "SELECT pg_stat_get_xact_tuples_fetched(c) + pg_stat_get_xact_tuples_returned(c) "
        "FROM (SELECT 'records'::regclass::oid AS c) AS counted"
    )
    from semel.stores.postgres.statements import Statement

    with store._pool.link() as link:
        link.script("BEGIN")
        try:
            store._answers.answer(link, query)
            return int(link.run(Statement(b"fetched", fetched.encode()))[0][0])
        finally:
            link.script("ROLLBACK")


def test_postgres_settles_without_touching_an_index(postgres):
    """Heap-only: as long as no index depends on a column that a settlement changes."""
    from semel.stores.postgres.statements import Statement

    store, _ = postgres
    depend = """
        SELECT DISTINCT a.attname::text
        FROM pg_index AS i
            JOIN pg_depend AS d ON d.objid = i.indexrelid AND d.refobjid = i.indrelid
            JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = d.refobjsubid
        WHERE i.indrelid = 'records'::regclass
    """
    with store._pool.link() as link:
        indexed = {name for (name,) in link.run(Statement(b"indexed", depend.encode()))}
    assert {"due", "stopped", "closes"} <= indexed
    assert indexed.isdisjoint(
        ("state", "lease_until", "settled_at", "expires_at", "outcome", "note", "by_whom")
    )


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[Any, FakeClock]]:
    library("redis")
    clock = FakeClock()
    store = BY_NAME["redis"].open(tmp_path, clock, True)
    yield store, clock
    store.close()


@each_query
def test_redis_fetches_no_more_records_for_a_longer_history(query, redis, monkeypatch):
    store, clock = redis
    begin(store, clock)
    grow(store, clock, 50, 16)  # the page on which the unsettled ones stand is full
    few = redis_words(store, query, monkeypatch)
    grow(store, clock, 100, 400)
    assert redis_words(store, query, monkeypatch) == few


def redis_words(store: Any, query: Query[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many requests it takes, and how many words they have: a record that is fetched is one of them."""
    asked: list[int] = []
    call_all = store._calls.call_all

    def counted(requests: Any, why: Any) -> Any:
        asked.extend(len(request.words()) for request in requests)
        return call_all(requests, why)

    with monkeypatch.context() as patched:
        patched.setattr(store._calls, "call_all", counted)
        store.ask(query)
    return len(asked), sum(asked)
