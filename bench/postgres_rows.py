"""The rows about PostgreSQL. Both sides of a row write to one server, each into a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator

import semel
from bench.figures import at_least, at_most, rate, times
from bench.plan import Experiment, ExperimentResources
from bench.sides import AsyncCalls, Side, SyncCalls, ThreadedCalls

# As many as a pool usually has connections.
CALLERS = 16

# Drivers are optional: what needs them is imported when a row is measured, after its server was found.


def _sync(resources: ExperimentResources) -> Iterator[Side]:
    server = resources.postgres()
    from bench.by_hand_postgres import TwoStatements

    yield SyncCalls("call", semel.open(server.url("sync")))
    yield TwoStatements(server, "two_statements")


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


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "postgres-sync",
        (
            times(
                "postgres-sync-by-hand",
                "PostgreSQL, 1 caller: guarded call / two plain statements by hand",
                at_most(1.2),
                "call",
                "by hand",
            ),
        ),
        _sync,
        operations=200,
        quick_operations=10,
        needs="postgres",
    ),
    Experiment(
        "postgres-tasks",
        (
            rate(
                "postgres-tasks-pgbench",
                "PostgreSQL, 16 tasks: guarded calls per second / pgbench with the same two statements",
                at_least(1.2),
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
            rate(
                "postgres-threads-pgbench",
                "PostgreSQL, 16 threads: guarded calls per second / pgbench with the same two statements",
                at_least(0.8),
                "calls",
                "pgbench",
            ),
        ),
        _threads,
        operations=CALLERS * 64,
        quick_operations=CALLERS,
        needs="postgres",
    ),
)
