"""Cost must not grow with history: what is done on a store with 1 000 000 settled records / with 1 000."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import semel
from bench import workload
from bench.figures import Row, at_most, times
from bench.plan import Experiment, ExperimentResources
from bench.sides import OldCalls, Side, StoreReplays, UnsettledLists, timed_refunds

# What is left is the depth of the trees and the width of the caches.
FLAT = at_most(1.5)

Kind = Literal["redis", "postgres"]
History = Callable[[ExperimentResources, str, int], str]
"""Makes a store of this name and so many settled records, whose events are all sealed; gives its URL."""


def _on_sqlite(resources: ExperimentResources, name: str, size: int) -> str:
    # Closed again before its history is made: a copy of a million rows holds the database for long.
    with resources.ledger(name) as ledger, ledger.step(conversation="first", step="refund-1"):
        timed_refunds(1)
    workload.remember_in_bulk(resources.file(name), size)
    with resources.ledger(name) as ledger:
        workload.seal(ledger.store)
    return f"sqlite:///{resources.file(name)}"


def _on_redis(resources: ExperimentResources, name: str, size: int) -> str:
    # A server for each: the table of all keys is one for the whole server.
    server = resources.redis(name)
    from bench.histories import remember_in_redis

    remember_in_redis(server, "old", size)
    return server.url("old")


def _on_postgres(resources: ExperimentResources, name: str, size: int) -> str:
    server = resources.postgres()
    from bench.histories import remember_in_postgres

    remember_in_postgres(server, name, size)
    return server.url(name)


def _sides(history: History) -> Callable[[ExperimentResources], Iterator[Side]]:
    def sides(resources: ExperimentResources) -> Iterator[Side]:
        for name, size in (("few", resources.small), ("many", resources.large)):
            url = history(resources, name, size)
            yield UnsettledLists(f"unsettled, {name}", semel.open(url))
            yield StoreReplays(f"replay, {name}", semel.open(url), keys=100)
            yield OldCalls(f"call, {name}", semel.open(url))

    return sides


def _experiment(name: str, title: str, history: History, needs: Kind | None = None) -> Experiment:
    def row(side: str, work: str) -> Row:
        work = f"{title}: {work} with 1 000 000 settled records / with 1 000"
        return times(f"{name}-growth-{side}", work, FLAT, f"{side}, many", f"{side}, few")

    return Experiment(
        f"{name}-growth",
        (
            row("unsettled", "unsettled records listed"),
            replace(row("call", "guarded call"), extra=True),
            replace(row("replay", "replay from the store"), extra=True),
        ),
        _sides(history),
        operations=50,
        quick_operations=5,
        preparing="making a long history, which takes minutes",
        needs=needs,
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    _experiment("sqlite", "SQLite FULL", _on_sqlite),
    _experiment("redis", "Redis", _on_redis, "redis"),
    _experiment("postgres", "PostgreSQL", _on_postgres, "postgres"),
)
