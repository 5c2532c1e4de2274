"""The rows about PostgreSQL. Both sides of a row write to one server, each into a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator

import semel
from bench.distant import ROUND_TRIP_S, EmptyRoundTrips, distant_rows, distant_sides
from bench.figures import Row, Unit, at_least
from bench.plan import FLAT, Experiment, ExperimentResources
from bench.sides import AsyncCalls, Doubts, OldCalls, Side, StoreReplays, ThreadedCalls

CROWD = 64

# As many as a pool usually has connections.
CALLERS = 16

# Drivers are optional: what needs them is imported when a row is measured, after its server was found.


def _tasks(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.postgres()
    from bench.by_hand_postgres import Pgbench

    yield AsyncCalls("calls", semel.open(server.url("tasks")), CALLERS)
    yield Pgbench(server, resources.directory, "pgbench_tasks", CALLERS)


def _threads(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.postgres()
    from bench.by_hand_postgres import Pgbench

    yield ThreadedCalls("calls", semel.open(server.url("threads")), CALLERS)
    yield Pgbench(server, resources.directory, "pgbench_threads", CALLERS)


def _distance(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.postgres()

    away = resources.away(server.port, ROUND_TRIP_S)
    import psycopg

    connection = psycopg.connect(server.conninfo("public", away), autocommit=True)
    yield EmptyRoundTrips(lambda: connection.execute("SELECT 1"), connection.close)
    yield from distant_sides(lambda name: server.url(f"away_{name}", away))


def _growth(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.postgres()
    from bench.histories import remember_in_postgres

    for name, size in (("few", resources.small), ("many", resources.large)):
        remember_in_postgres(server, name, size)
        yield StoreReplays(f"replay, {name}", semel.open(server.url(name)), keys=100)
        yield OldCalls(f"call, {name}", semel.open(server.url(name)))
        yield Doubts(f"doubt, {name}", semel.open(server.url(name)))


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "postgres-tasks",
        (
            Row(
                "postgres-tasks-pgbench",
                "PostgreSQL, 16 tasks: guarded calls per second / pgbench with the same two statements",
                Unit.RATE,
                at_least(1.0),
                "calls",
                "pgbench",
            ),
        ),
        _tasks,
        operations=CALLERS * 64,
        quick_operations=CALLERS,
        needs="postgres",
    ),
    Experiment(
        "postgres-threads",
        (
            Row(
                "postgres-threads-pgbench",
                "PostgreSQL, 16 threads: guarded calls per second / pgbench with the same two statements",
                Unit.RATE,
                at_least(0.55),
                "calls",
                "pgbench",
            ),
        ),
        _threads,
        operations=CALLERS * 64,
        quick_operations=CALLERS,
        needs="postgres",
    ),
    Experiment(
        "postgres-distance",
        distant_rows("postgres", "PostgreSQL", "SELECT 1"),
        _distance,
        operations=CROWD * 4,
        quick_operations=CROWD,
        needs="postgres",
    ),
    Experiment(
        "postgres-growth",
        (
            Row(
                "postgres-growth-call",
                "PostgreSQL: guarded call with 1 000 000 records / with 1 000",
                Unit.TIMES,
                FLAT,
                "call, many",
                "call, few",
            ),
            Row(
                "postgres-growth-replay",
                "PostgreSQL: replay from the store with 1 000 000 records / with 1 000",
                Unit.TIMES,
                FLAT,
                "replay, many",
                "replay, few",
            ),
            Row(
                "postgres-growth-doubt",
                "PostgreSQL: what is in doubt with 1 000 000 settled records / with 1 000",
                Unit.TIMES,
                FLAT,
                "doubt, many",
                "doubt, few",
            ),
        ),
        _growth,
        operations=50,
        quick_operations=5,
        preparing="making a long history, which takes minutes",
        needs="postgres",
    ),
)
