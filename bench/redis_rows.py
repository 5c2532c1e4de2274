"""The rows about Redis. Both sides of a row write to one server; its file is forced to disk every second."""

from __future__ import annotations

from collections.abc import Iterator

import semel
from bench.figures import Row, Unit, alone, at_least, at_most, rate, times
from bench.plan import Experiment, ExperimentResources
from bench.rivals import leaves_out, rival
from bench.sides import AsyncCalls, Side, StoreReplays, SyncCalls

CROWD = 64

# Drivers are optional: what needs them is imported when a row is measured, after its server was found.


def _sync(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import TwoRoundTrips

    yield SyncCalls("call", semel.open(server.url("calls")))
    yield TwoRoundTrips(server)
    yield rival("powertools", "powertools", "redis", server.address)


def _replay(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import Reads, claims

    replays = StoreReplays("replay", semel.open(server.url("replays")), keys=100)
    yield replays
    yield Reads("the same step", server, claims(replays.ledger, server, "replays"))


def _tasks(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import AsyncTwoRoundTrips

    yield AsyncCalls("calls", semel.open(server.url("calls")), CROWD)
    yield AsyncTwoRoundTrips(server, CROWD)
    yield rival("exactly-once", "exactly-once", "redis", server.address, tasks=CROWD)
    yield rival("idemkit", "idemkit", "redis", server.address, tasks=CROWD)


def _bytes(resources: ExperimentResources) -> Iterator[Side]:
    records = 200 if resources.quick else 20_000
    server = resources.redis("ours")
    from bench.redis_memory import size_of

    yield size_of(SyncCalls("semel", semel.open(server.url("sizes"))), server, records)
    for package, tasks in (("exactly-once", 0), ("idemkit", 1), ("powertools", 0)):
        server = resources.redis(package)
        yield size_of(rival(package, package, "redis", server.address, tasks=tasks), server, records)


def _rival_size(package: str) -> Row:
    return alone(f"redis-bytes-{package}", f"Redis: bytes per record of {package}", Unit.BYTES, package)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "redis-sync",
        (
            times(
                "redis-sync-by-hand",
                "Redis, 1 caller: guarded call / two round trips by hand",
                at_most(1.1),
                "call",
                "by hand",
            ),
            times(
                "redis-sync-powertools",
                "Redis, 1 caller: guarded call / powertools",
                None,
                "call",
                "powertools",
                leaves_out("powertools"),
            ),
        ),
        _sync,
        operations=300,
        quick_operations=10,
        needs="redis",
    ),
    Experiment(
        "redis-replay",
        (
            times(
                "redis-replay-step",
                "Redis, 1 caller: replay from the store / the same step by hand",
                at_most(1.15),
                "replay",
                "the same step",
            ),
        ),
        _replay,
        operations=500,
        quick_operations=20,
        needs="redis",
    ),
    Experiment(
        "redis-tasks",
        (
            rate(
                "redis-tasks-by-hand",
                "Redis, 64 tasks: guarded calls per second / two round trips each by hand",
                at_least(2),
                "calls",
                "by hand",
            ),
            rate(
                "redis-tasks-exactly-once",
                "Redis, 64 tasks: guarded calls per second / exactly-once",
                at_least(2),
                "calls",
                "exactly-once",
                leaves_out("exactly-once"),
            ),
            rate(
                "redis-tasks-idemkit",
                "Redis, 64 tasks: guarded calls per second / idemkit",
                None,
                "calls",
                "idemkit",
                leaves_out("idemkit"),
            ),
        ),
        _tasks,
        operations=CROWD * 16,
        quick_operations=CROWD,
        needs="redis",
    ),
    Experiment(
        "redis-bytes",
        (
            Row(
                "redis-bytes-record",
                "Redis: bytes per settled record with audit",
                Unit.BYTES,
                at_most(800),
                "semel",
            ),
            *map(_rival_size, ("exactly-once", "idemkit", "powertools")),
        ),
        _bytes,
        operations=1,
        quick_operations=1,
        preparing="settling 20 000 calls of each",
        needs="redis",
    ),
)
