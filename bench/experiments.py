"""The table of what is measured: which sides run against each other, and which rows that makes.

The rows with a goal are those of the plan for speed; what is `extra` is measured besides.
"""

from __future__ import annotations

from collections.abc import Iterator

import semel
from bench import (
    agent_rows,
    by_hand,
    client_rows,
    edge_rows,
    gateway_rows,
    growth_rows,
    postgres_rows,
    redis_rows,
    window_rows,
    workload,
)
from bench.figures import Unit, alone, at_least, at_most, rate, times
from bench.imports import Imports
from bench.plan import Experiment, ExperimentResources
from bench.rivals import leaves_out, rival
from bench.sides import (
    AsyncCalls,
    BareCalls,
    BareReplays,
    CachedReplays,
    Side,
    StoreReplays,
    SyncCalls,
    ThreadedCalls,
)

CROWD = 64

REFUND = {"payment_id": "p-1", "amount_minor": 1_400_000, "reason": "damaged"}


def _memory(_: ExperimentResources) -> Iterator[Side]:
    yield SyncCalls("call", semel.open("memory://"))
    yield BareCalls("bare call")
    yield rival("exactly-once call", "exactly-once", "memory")
    yield CachedReplays("replay", semel.open("memory://"), workload.refund, **REFUND)
    yield BareReplays("bare replay", "refund", **REFUND)
    yield rival("exactly-once replay", "exactly-once", "memory", work="replays")


def _cache(_: ExperimentResources) -> Iterator[Side]:
    yield CachedReplays("plain", semel.open("memory://"), workload.refund, **REFUND)
    yield BareReplays("bare plain", "refund", **REFUND)
    yield CachedReplays("rich", semel.open("memory://"), workload.pay, payment_id="p-1")
    yield BareReplays("bare rich", "pay", payment_id="p-1")


def _sqlite_sync(resources: ExperimentResources) -> Iterator[Side]:
    yield SyncCalls("call", resources.ledger("sync"))
    yield by_hand.ClaimAndSettle(resources.file("by-hand"))
    yield rival("agent-once", "agent-once", "sqlite", resources.file("agent-once"))


def _sqlite_normal(resources: ExperimentResources) -> Iterator[Side]:
    yield SyncCalls("call", resources.ledger("normal", "?durability=normal"))
    yield rival("exactly-once", "exactly-once", "sqlite", resources.file("exactly-once"))


def _sqlite_replay(resources: ExperimentResources) -> Iterator[Side]:
    replays = StoreReplays("store replay", resources.ledger("replay"), keys=100)
    yield replays
    keys = [record.request.at.key for record in replays.ledger.records.list(limit=100)]
    yield by_hand.RawSelect(resources.file("replay"), keys)


def _sqlite_tasks(resources: ExperimentResources) -> Iterator[Side]:
    yield AsyncCalls("calls", resources.ledger("tasks"), CROWD)
    yield by_hand.ClaimAndSettle(resources.file("by-hand"))


def _sqlite_threads(resources: ExperimentResources) -> Iterator[Side]:
    yield ThreadedCalls("calls", resources.ledger("threads"), CROWD)
    yield by_hand.ClaimAndSettle(resources.file("by-hand"))


def _imports(_: ExperimentResources) -> Iterator[Side]:
    yield Imports("semel", "import semel")
    yield Imports("pydantic", "import pydantic")
    yield Imports("semel's names", "from semel import open, step, tool_contract")
    yield Imports("pydantic's names", "from pydantic import BaseModel, TypeAdapter")


_RIVAL, _AGENT = leaves_out("exactly-once"), leaves_out("agent-once")

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "memory",
        (
            times("memory-call-bare", "memory: guarded call / bare", at_most(1.6), "call", "bare call"),
            times(
                "memory-call-exactly-once",
                "memory: guarded call / exactly-once",
                at_most(1.2),
                "call",
                "exactly-once call",
                _RIVAL,
            ),
            times("memory-replay-bare", "memory: replay / bare", at_most(1.2), "replay", "bare replay"),
            times(
                "memory-replay-exactly-once",
                "memory: replay / exactly-once",
                at_most(0.5),
                "replay",
                "exactly-once replay",
                _RIVAL,
            ),
            alone("memory-call", "memory: guarded call", Unit.MICROSECONDS, "call"),
            alone("memory-replay", "memory: replay", Unit.MICROSECONDS, "replay"),
        ),
        _memory,
        operations=500,
        quick_operations=20,
    ),
    Experiment(
        "cache",
        (
            rate(
                "cache-plain",
                "replays of a plain result from the cache per second / bare",
                at_least(0.8),
                "plain",
                "bare plain",
            ),
            rate(
                "cache-rich",
                "replays of a rich model from the cache per second / bare",
                at_least(0.8),
                "rich",
                "bare rich",
            ),
        ),
        _cache,
        operations=5_000,
        quick_operations=20,
    ),
    Experiment(
        "sqlite-sync",
        (
            times(
                "sqlite-sync-by-hand",
                "SQLite FULL, 1 sync caller: guarded call / by hand",
                at_most(1.2),
                "call",
                "by hand",
            ),
            times(
                "sqlite-sync-agent-once",
                "SQLite FULL, 1 sync caller: guarded call / agent-once",
                at_most(0.9),
                "call",
                "agent-once",
                _AGENT,
            ),
        ),
        _sqlite_sync,
        operations=50,
        quick_operations=5,
    ),
    Experiment(
        "sqlite-normal",
        (
            times(
                "sqlite-normal-exactly-once",
                "SQLite NORMAL, 1 sync caller: guarded call / exactly-once (NORMAL)",
                at_most(1.5),
                "call",
                "exactly-once",
                _RIVAL,
            ),
        ),
        _sqlite_normal,
        operations=200,
        quick_operations=5,
    ),
    Experiment(
        "sqlite-replay",
        (
            times(
                "sqlite-replay-store",
                "SQLite: replay from the store / raw SELECT",
                at_most(3.0),
                "store replay",
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
            rate(
                "sqlite-tasks-by-hand",
                "SQLite FULL, 64 tasks: guarded calls per second / one commit per write by hand",
                at_least(4),
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
            rate(
                "sqlite-threads-by-hand",
                "SQLite FULL, 64 threads: guarded calls per second / one commit per write by hand",
                at_least(2),
                "calls",
                "by hand",
            ),
        ),
        _sqlite_threads,
        operations=CROWD * 8,
        quick_operations=CROWD,
    ),
    *redis_rows.EXPERIMENTS,
    *postgres_rows.EXPERIMENTS,
    *growth_rows.EXPERIMENTS,
    *gateway_rows.EXPERIMENTS,
    *edge_rows.EXPERIMENTS,
    *client_rows.EXPERIMENTS,
    *agent_rows.EXPERIMENTS,
    Experiment(
        "import",
        (
            times("import-pydantic", "import semel / import pydantic", at_most(1.3), "semel", "pydantic"),
            times(
                "import-names",
                "first use: a contract and a ledger / a model of pydantic's",
                None,
                "semel's names",
                "pydantic's names",
            ),
        ),
        _imports,
        operations=1,
        quick_operations=1,
    ),
    *window_rows.EXPERIMENTS,
)
