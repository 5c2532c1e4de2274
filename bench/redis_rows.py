"""The rows about Redis. Both sides of a row write to one server; its file is forced to disk every second."""

from __future__ import annotations

from collections.abc import Iterator

import semel
from bench.distant import ROUND_TRIP_S, EmptyRoundTrips, distant_rows, distant_sides
from bench.figures import Row, Unit, at_least, at_most
from bench.plan import FLAT, Experiment, ExperimentResources
from bench.servers import RedisServer
from bench.sides import AsyncCalls, AsyncStoreReplays, Doubts, OldCalls, Side, StoreReplays, SyncCalls

CROWD = 64

# Drivers are optional: what needs them is imported when a row is measured, after its server was found.


def _sync(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import TwoRoundTrips

    yield SyncCalls("call", semel.open(server.url("calls")))
    yield TwoRoundTrips(server)


def _async(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import AsyncTwoRoundTrips

    yield AsyncCalls("call", semel.open(server.url("calls")))
    yield AsyncTwoRoundTrips(server)


def _replay(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import Reads, claims, gets

    replays = StoreReplays("replay", semel.open(server.url("replays")), keys=100)
    yield replays
    yield Reads("one GET", server, gets(replays.ledger, "replays"))
    yield Reads("the same step", server, claims(replays.ledger, server, "replays"))


def _async_replay(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import AsyncReads, claims, gets

    replays = AsyncStoreReplays("replay", semel.open(server.url("replays")), keys=100)
    yield replays
    yield AsyncReads("one GET", server, gets(replays.ledger, "replays"))
    yield AsyncReads("the same step", server, claims(replays.ledger, server, "replays"))


def _tasks(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()
    from bench.by_hand_redis import AsyncTwoRoundTrips

    yield AsyncCalls("calls", semel.open(server.url("calls")), CROWD)
    yield AsyncTwoRoundTrips(server, CROWD)


def _distance(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.redis()

    away = resources.away(server.port, ROUND_TRIP_S)
    import redis

    client = redis.Redis(port=away)
    yield EmptyRoundTrips(client.ping, client.close)
    yield from distant_sides(lambda name: server.url(name, away))


def _growth(resources: ExperimentResources) -> Iterator[Side]:
    # A server for each: the table of all keys is one for the whole server.
    for name, size in (("few", resources.small), ("many", resources.large)):
        server: RedisServer = resources.redis(name)
        from bench.histories import remember_in_redis

        remember_in_redis(server, "old", size)
        yield StoreReplays(f"replay, {name}", semel.open(server.url("old")), keys=100)
        yield OldCalls(f"call, {name}", semel.open(server.url("old")))
        yield Doubts(f"doubt, {name}", semel.open(server.url("old")))


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "redis-sync",
        (
            Row(
                "redis-sync-by-hand",
                "Redis, 1 sync caller: guarded call / two round trips by hand",
                Unit.TIMES,
                at_most(1.2),
                "call",
                "by hand",
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
            Row(
                "redis-replay-get",
                "Redis, 1 sync caller: replay from the store / one GET by hand",
                Unit.TIMES,
                at_most(1.2),
                "replay",
                "one GET",
            ),
            Row(
                "redis-replay-step",
                "Redis, 1 sync caller: replay from the store / the same step by hand",
                Unit.TIMES,
                None,
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
        "redis-async",
        (
            Row(
                "redis-async-by-hand",
                "Redis, 1 async caller: guarded call / two round trips by hand",
                Unit.TIMES,
                at_most(1.4),
                "call",
                "by hand",
            ),
        ),
        _async,
        operations=300,
        quick_operations=10,
        needs="redis",
    ),
    Experiment(
        "redis-async-replay",
        (
            Row(
                "redis-async-replay-get",
                "Redis, 1 async caller: replay from the store / one GET by hand",
                Unit.TIMES,
                at_most(1.4),
                "replay",
                "one GET",
            ),
            Row(
                "redis-async-replay-step",
                "Redis, 1 async caller: replay from the store / the same step by hand",
                Unit.TIMES,
                None,
                "replay",
                "the same step",
            ),
        ),
        _async_replay,
        operations=500,
        quick_operations=20,
        needs="redis",
    ),
    Experiment(
        "redis-tasks",
        (
            Row(
                "redis-tasks-by-hand",
                "Redis, 64 tasks: guarded calls per second / two round trips each by hand",
                Unit.RATE,
                at_least(2.0),
                "calls",
                "by hand",
            ),
        ),
        _tasks,
        operations=CROWD * 16,
        quick_operations=CROWD,
        needs="redis",
    ),
    Experiment(
        "redis-distance",
        distant_rows("redis", "Redis", "PING"),
        _distance,
        operations=CROWD * 4,
        quick_operations=CROWD,
        needs="redis",
    ),
    Experiment(
        "redis-growth",
        (
            Row(
                "redis-growth-call",
                "Redis: guarded call with 1 000 000 records / with 1 000",
                Unit.TIMES,
                FLAT,
                "call, many",
                "call, few",
            ),
            Row(
                "redis-growth-replay",
                "Redis: replay from the store with 1 000 000 records / with 1 000",
                Unit.TIMES,
                FLAT,
                "replay, many",
                "replay, few",
            ),
            Row(
                "redis-growth-doubt",
                "Redis: what is in doubt with 1 000 000 settled records / with 1 000",
                Unit.TIMES,
                FLAT,
                "doubt, many",
                "doubt, few",
            ),
        ),
        _growth,
        operations=200,
        quick_operations=10,
        preparing="making a long history, which takes minutes",
        needs="redis",
    ),
)
