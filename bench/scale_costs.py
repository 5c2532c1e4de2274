"""What a guarded call costs at the store, with so many settled records in it already.

Processor time is measured, not the clock's: it says what a server has to give, also on a machine that is busy
with other things. The commands of a call go straight to the store, so that no keeper works beside them.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from bench import workload
from bench.by_hand import LEASE_US, OUTCOME, WINDOW_US
from bench.by_hand_redis import call_request
from bench.histories import remember_in_postgres, remember_in_redis
from bench.plan import ExperimentResources, RunResources
from bench.sides import timed_refunds
from semel.kernel import owner
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Claim, Settle, State
from semel.stores.redis.commands import lane
from semel.stores.urls import open_store

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# So many tasks call at once.
TASKS = 64

# Of the rate: the best of so many.
ROUNDS = 8

# Enough that a server's hundredths of a second are counted to a few per cent.
CALLS = 80 * TASKS

# A larger SQLite file is not written anew to see what its events weigh: that takes three times its disk.
VACUUMED_MAX = 1_000_000


class StoreCost(NamedTuple):
    """Of one guarded call, with so many records before it."""

    store: str
    records: int
    bytes_per_record: int
    server_us: int  # of the server's processors; SQLite has none
    caller_us: int  # of the caller's, for the store's part of the call
    tasks_server_us: int  # the same where 64 tasks of a process call at once
    tasks_caller_us: int
    best_per_s: int  # calls of that process, in the round that others disturbed least
    connections: int  # that it holds then
    event_bytes: int = 0  # of the record's bytes, its two events', which stay when it goes; 0: not known
    load: str = ""  # of the machine, before


class Place(NamedTuple):
    """A store with a history, and how to look at its server."""

    url: str
    bytes_used: Callable[[], int]
    server_pids: Callable[[], list[int]]
    connections: Callable[[], int]
    event_bytes: Callable[[], int]  # of all events; asked last, because they may be gone then


def measured(store: str, records: int, directory: str) -> StoreCost:
    """The cost at this store. ServerMissing if it has no server here. Nothing is left on the disk."""
    with (
        tempfile.TemporaryDirectory(prefix="semel-scale-", dir=directory) as inside,
        ExitStack() as ending,
    ):
        os.chmod(inside, 0o711)
        shared = RunResources(Path(inside).resolve(), ending)
        own = shared.directory / store
        own.mkdir()
        resources = ExperimentResources(own, False, shared, ending)
        place = _PLACES[store](resources, records)
        return _cost(store, records, place)


def _cost(store: str, records: int, place: Place) -> StoreCost:
    size = place.bytes_used() / records
    alone = [round(each) for each in _calls(place)]
    together = [round(each) for each in _tasks(place)]
    # By now there are the calls' own records too.
    all_records = records + 2 * (CALLS + CALLS // 10) + CALLS
    event_bytes = round(place.event_bytes() / all_records)
    return StoreCost(
        store,
        records,
        round(size),
        server_us=alone[0],
        caller_us=alone[1],
        tasks_server_us=together[0],
        tasks_caller_us=together[1],
        best_per_s=together[2],
        connections=together[3],
        event_bytes=event_bytes,
    )


def _calls(place: Place) -> tuple[float, float]:
    """Microseconds of processor time of one call by one caller: the server's and the caller's."""
    store = open_store(place.url)
    try:
        return _timed(place, lambda calls: _call(store, calls))
    finally:
        store.close()


def _tasks(place: Place) -> tuple[float, float, float, int]:
    """The same where many tasks call at once; how many calls a second, and the connections that they take."""
    store = open_store(place.url)

    async def all_of(calls: int) -> None:
        await asyncio.gather(*(_acall(store, calls // TASKS) for _ in range(TASKS)))

    with asyncio.Runner() as runner:
        try:
            costs = _timed(place, lambda calls: runner.run(all_of(calls)))
            return *costs, max(_rate(runner, all_of) for _ in range(ROUNDS)), place.connections()
        finally:
            store.close()


def _rate(runner: asyncio.Runner, work: Callable[[int], Coroutine[Any, Any, None]]) -> float:
    began = perf_counter()
    runner.run(work(CALLS // ROUNDS))
    return CALLS / ROUNDS / (perf_counter() - began)


def _timed(place: Place, work: Callable[[int], None]) -> tuple[float, float]:
    work(CALLS // 10)
    server, own = _spent(place.server_pids()), _spent([os.getpid()])
    work(CALLS)
    server, own = _spent(place.server_pids()) - server, _spent([os.getpid()]) - own
    return server / CALLS * 1e6, own / CALLS * 1e6


def _commands() -> tuple[Claim, Settle]:
    """Of a call that nobody made yet."""
    token = owner.token(SYSTEM)
    at = Address("default", "tool", (SYSTEM.token() + SYSTEM.token()).hex())
    return Claim(call_request(at, token), token, LEASE_US), Settle(at, token, State.DONE, OUTCOME, WINDOW_US)


def _call(store: Any, count: int) -> None:
    for _ in range(count):
        claim, settle = _commands()
        store.perform(claim)
        assert store.perform(settle).applied


async def _acall(store: Any, count: int) -> None:
    for _ in range(count):
        claim, settle = _commands()
        await store.aperform(claim)
        assert (await store.aperform(settle)).applied


def _spent(pids: list[int]) -> float:
    """Seconds of processor time of these processes, and of those of their children that have ended."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))
    return total / _TICKS_PER_S


# --- stores -----------------------------------------------------------------------------------------


def _sqlite(resources: ExperimentResources, records: int) -> Place:
    path = resources.file("scale")
    with resources.ledger("scale") as ledger, ledger.step(conversation="first", step="refund-1"):
        timed_refunds(1)
    workload.remember_in_bulk(path, records, logged=False)

    def event_bytes() -> int:
        return _event_bytes_of(path) if records <= VACUUMED_MAX else 0

    return Place(f"sqlite:///{path}", lambda: os.stat(path).st_size, list, lambda: 0, event_bytes)


def _event_bytes_of(path: str) -> int:
    """What the file shrinks by without its events."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        sizes = []
        for statement in ("SELECT 1", "DELETE FROM semel_events"):
            connection.execute(statement)
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            sizes.append(os.stat(path).st_size)
        return sizes[0] - sizes[1]
    finally:
        connection.close()


def _redis(resources: ExperimentResources, records: int) -> Place:
    import redis

    server = resources.redis()
    empty = _used_by_redis(server.port)
    remember_in_redis(server, "scale", records)

    def connections() -> int:
        with redis.Redis(port=server.port) as client:
            listed: Any = client.client_list()
            return len(listed) - 1

    def used() -> int:
        return _used_by_redis(server.port) - empty

    def event_bytes() -> int:
        before = used()
        with redis.Redis(port=server.port) as client:
            client.delete(lane(0, "scale").events)
        return before - used()

    return Place(server.url("scale"), used, lambda: [server.pid], connections, event_bytes)


def _used_by_redis(port: int) -> int:
    import redis

    with redis.Redis(port=port) as client:
        memory: Any = client.info("memory")
        return int(memory["used_memory"])


def _postgres(resources: ExperimentResources, records: int) -> Place:
    server = resources.postgres()
    # Sealing tens of millions of events takes most of an hour, and adds a row for each 20 000 of them.
    remember_in_postgres(server, "scale", records, sealed=False)
    sizes = (
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'scale' AND relkind = 'r'"
    )
    events = f"{sizes} AND relname IN ('events', 'traces')"
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'"

    def pids() -> list[int]:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
        return [server.pid, *map(int, children.split())]

    def asked(question: str) -> Callable[[], int]:
        return lambda: _number(server.conninfo("scale"), question)

    return Place(server.url("scale"), asked(sizes), pids, asked(count), asked(events))


def _number(conninfo: str, question: str) -> int:
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as connection:
        row = connection.execute(question).fetchone()
        assert row is not None
        return int(row[0])


_PLACES: dict[str, Callable[[ExperimentResources, int], Place]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "postgres": _postgres,
}
STORES = tuple(_PLACES)
