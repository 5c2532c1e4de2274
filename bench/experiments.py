"""The table of what is measured: which sides run against each other, and which rows that makes."""

from __future__ import annotations

from collections.abc import Iterator

import semel
from bench import by_hand, gateway_rows, postgres_rows, redis_rows, window_rows, workload
from bench.figures import Row, Unit, at_least, at_most
from bench.plan import FLAT, Experiment, ExperimentResources
from bench.sides import (
    AsyncCalls,
    CachedReplays,
    Doubts,
    FreshCalls,
    HeldLoop,
    OldCalls,
    Side,
    StoreReplays,
    SyncCalls,
    ThreadedCalls,
    timed_refunds,
)
from semel.ledger.ledger import Ledger

CROWD = 64

# A tenth of the time for which the database is held: far above a hiccup, far below standing still.
PAUSE_MS = at_most(HeldLoop.HELD_S * 1e3 / 10)


def _memory(_: ExperimentResources) -> Iterator[Side]:
    yield SyncCalls("call", semel.open("memory://"))
    yield CachedReplays(
        "replay", semel.open("memory://"), workload.refund, payment_id="p-1", amount_minor=1, reason="x"
    )
    yield StoreReplays("store replay", semel.open("memory://"), keys=500)


def _memory_growth(resources: ExperimentResources) -> Iterator[Side]:
    yield FreshCalls("call, few", 10)
    old = OldCalls("call, many", semel.open("memory://"))
    workload.remember(old.ledger.store, resources.large)
    workload.seal(old.ledger.store)
    yield old
    yield StoreReplays("replay, few", semel.open("memory://"), keys=10)
    # One history is enough: a second ledger on the same store has a cache of its own.
    yield StoreReplays("replay, many", Ledger(old.ledger.store), keys=10)


def _sqlite_sync(resources: ExperimentResources) -> Iterator[Side]:
    yield SyncCalls("call", resources.ledger("sync"))
    yield by_hand.ClaimAndSettle(resources.file("by-hand"))
    yield by_hand.TwoCommits(resources.file("commits"))


def _sqlite_async(resources: ExperimentResources) -> Iterator[Side]:
    yield AsyncCalls("call", resources.ledger("async"))
    yield by_hand.TwoCommits(resources.file("commits"))


def _sqlite_loop(resources: ExperimentResources) -> Iterator[Side]:
    yield HeldLoop("pause", resources.file("held"))


def _sqlite_tasks(resources: ExperimentResources) -> Iterator[Side]:
    yield AsyncCalls("calls", resources.ledger("tasks"), CROWD)
    yield by_hand.ClaimAndSettle(resources.file("by-hand"))


def _sqlite_threads(resources: ExperimentResources) -> Iterator[Side]:
    yield ThreadedCalls("calls", resources.ledger("threads"), CROWD)
    yield by_hand.ClaimAndSettle(resources.file("by-hand"))


def _sqlite_replay(resources: ExperimentResources) -> Iterator[Side]:
    replays = StoreReplays("store replay", resources.ledger("replay"), keys=100)
    yield replays
    arguments = {"payment_id": "p-1", "amount_minor": 1, "reason": "x"}
    yield CachedReplays("cache replay", resources.ledger("cached"), workload.refund, **arguments)
    keys = [record.request.at.key for record in replays.ledger.records.list(limit=100)]
    yield by_hand.RawSelect(resources.file("replay"), keys)


def _sqlite_growth(resources: ExperimentResources) -> Iterator[Side]:
    for name, size in (("few", resources.small), ("many", resources.large)):
        # Closed again before its history is made: a copy of a million rows holds the database for long.
        with resources.ledger(name) as ledger, ledger.step(conversation="first", step="refund-1"):
            timed_refunds(1)
        workload.remember_in_bulk(resources.file(name), size)
        with resources.ledger(name) as ledger:
            workload.seal(ledger.store)
        yield StoreReplays(f"replay, {name}", resources.ledger(name), keys=100)
        yield OldCalls(f"call, {name}", resources.ledger(name))
        yield Doubts(f"doubt, {name}", resources.ledger(name))


def _cache(_: ExperimentResources) -> Iterator[Side]:
    yield CachedReplays("plain", semel.open("memory://"), workload.note, payment_id="p-1")
    yield CachedReplays("rich", semel.open("memory://"), workload.pay, payment_id="p-1")


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "memory",
        (
            Row("memory-call", "memory: guarded call", Unit.MICROSECONDS, at_most(15), "call"),
            Row("memory-replay", "memory: replay", Unit.MICROSECONDS, at_most(6), "replay"),
            Row(
                "memory-store-replay",
                "memory: replay past an empty cache",
                Unit.MICROSECONDS,
                None,
                "store replay",
            ),
        ),
        _memory,
        operations=500,
        quick_operations=20,
    ),
    Experiment(
        "memory-growth",
        (
            Row(
                "memory-growth-call",
                "memory: guarded call with 1 000 000 records / with 10",
                Unit.TIMES,
                FLAT,
                "call, many",
                "call, few",
            ),
            Row(
                "memory-growth-replay",
                "memory: replay past an empty cache with 1 000 000 records / with 10",
                Unit.TIMES,
                FLAT,
                "replay, many",
                "replay, few",
            ),
        ),
        _memory_growth,
        operations=200,
        quick_operations=20,
        preparing="making a long history, which takes a while",
    ),
    Experiment(
        "sqlite-sync",
        (
            Row(
                "sqlite-sync-by-hand",
                "SQLite FULL, 1 sync caller: guarded call / the same statements by hand",
                Unit.TIMES,
                at_most(1.3),
                "call",
                "by hand",
            ),
            Row(
                "sqlite-sync-commits",
                "SQLite FULL, 1 sync caller: guarded call / two bare commits",
                Unit.TIMES,
                at_most(1.5),
                "call",
                "two bare commits",
            ),
        ),
        _sqlite_sync,
        operations=50,
        quick_operations=5,
    ),
    Experiment(
        "sqlite-async",
        (
            Row(
                "sqlite-async-commits",
                "SQLite FULL, 1 async caller: guarded call / two bare commits",
                Unit.TIMES,
                at_most(2.3),
                "call",
                "two bare commits",
            ),
        ),
        _sqlite_async,
        operations=50,
        quick_operations=5,
    ),
    Experiment(
        "sqlite-loop",
        (
            Row(
                "sqlite-loop-pause",
                "SQLite, async: longest pause of the loop while its commit is held up for 200 ms",
                Unit.MILLISECONDS,
                PAUSE_MS,
                "pause",
            ),
        ),
        _sqlite_loop,
        operations=1,
        quick_operations=1,
    ),
    Experiment(
        "sqlite-replay",
        (
            Row(
                "sqlite-replay-store",
                "SQLite: replay from the store / raw SELECT",
                Unit.TIMES,
                at_most(3.0),
                "store replay",
                "raw SELECT",
            ),
            Row(
                "sqlite-replay-cache",
                "SQLite: replay from the cache / raw SELECT",
                Unit.TIMES,
                at_most(1.0),
                "cache replay",
                "raw SELECT",
            ),
        ),
        _sqlite_replay,
        operations=500,
        quick_operations=20,
    ),
    Experiment(
        "sqlite-tasks",
        (
            Row(
                "sqlite-tasks-by-hand",
                "SQLite FULL, 64 tasks: guarded calls per second / one commit per write by hand",
                Unit.RATE,
                at_least(3.5),
                "calls",
                "by hand",
            ),
        ),
        _sqlite_tasks,
        operations=CROWD * 8,
        quick_operations=CROWD,
    ),
    Experiment(
        "sqlite-threads",
        (
            Row(
                "sqlite-threads-by-hand",
                "SQLite FULL, 64 threads: guarded calls per second / one commit per write by hand",
                Unit.RATE,
                at_least(1.5),
                "calls",
                "by hand",
            ),
        ),
        _sqlite_threads,
        operations=CROWD * 8,
        quick_operations=CROWD,
    ),
    Experiment(
        "cache",
        (
            Row(
                "cache-plain",
                "replay from the cache: plain result",
                Unit.PER_SECOND,
                at_least(250_000),
                "plain",
            ),
            Row(
                "cache-rich", "replay from the cache: rich model", Unit.PER_SECOND, at_least(150_000), "rich"
            ),
        ),
        _cache,
        operations=5_000,
        quick_operations=20,
    ),
    Experiment(
        "sqlite-growth",
        (
            Row(
                "sqlite-growth-call",
                "SQLite FULL: guarded call with 1 000 000 records / with 1 000",
                Unit.TIMES,
                FLAT,
                "call, many",
                "call, few",
            ),
            Row(
                "sqlite-growth-replay",
                "SQLite: replay from the store with 1 000 000 records / with 1 000",
                Unit.TIMES,
                FLAT,
                "replay, many",
                "replay, few",
            ),
            Row(
                "sqlite-growth-doubt",
                "SQLite: what is in doubt with 1 000 000 settled records / with 1 000",
                Unit.TIMES,
                FLAT,
                "doubt, many",
                "doubt, few",
            ),
        ),
        _sqlite_growth,
        operations=50,
        quick_operations=5,
        preparing="making a long history, which takes a while",
    ),
    *redis_rows.EXPERIMENTS,
    *postgres_rows.EXPERIMENTS,
    *window_rows.EXPERIMENTS,
    *gateway_rows.EXPERIMENTS,
)
