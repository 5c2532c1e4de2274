"""The rows about the HTTP edge: what the middleware adds to a request, and how fast a repeat is answered.

In one process, message by message, beside the fastest other middleware; and over HTTP in front of FastAPI,
beside the same application without it. The application does nothing, so that nothing hides the difference.
"""

from __future__ import annotations

from collections.abc import Iterator

import semel
from bench.edge_sides import Guarded, Posts, bare, served
from bench.figures import Unit, alone, at_least, rate, times
from bench.plan import Experiment, ExperimentResources
from bench.rivals import leaves_out, rival
from bench.sides import Side

PEER = "fastapi-idempotency-key"

CONNECTIONS = 32


def _memory(_: ExperimentResources) -> Iterator[Side]:
    yield Guarded("request", semel.open("memory://"))
    yield bare("bare")
    yield rival("peer", PEER, "memory", tasks=1)
    yield Guarded("replay", semel.open("memory://"), work="replays")
    yield rival("peer replay", PEER, "memory", work="replays", tasks=1)


def _sqlite(resources: ExperimentResources) -> Iterator[Side]:
    yield Guarded("requests", resources.ledger("edge"), CONNECTIONS)
    yield rival("peer", PEER, "sqlite", resources.file("peer"), tasks=CONNECTIONS)


def _http(resources: ExperimentResources) -> Iterator[Side]:
    guarded = resources.ending.enter_context(
        served(resources.directory, f"sqlite:///{resources.file('http')}")
    )
    unguarded = resources.ending.enter_context(served(resources.directory, "-"))
    yield Posts("posts", guarded, CONNECTIONS)
    yield Posts("replays", guarded, CONNECTIONS, "replays")
    yield Posts("bare", unguarded, CONNECTIONS)


_PEER_LEAVES_OUT = leaves_out(PEER)
_FASTAPI = f"SQLite FULL, FastAPI, {CONNECTIONS} connections"

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "edge-memory",
        (
            times(
                f"edge-memory-{PEER}",
                f"memory: keyed request through the middleware / {PEER}",
                None,
                "request",
                "peer",
                _PEER_LEAVES_OUT,
            ),
            times(
                f"edge-memory-replay-{PEER}",
                f"memory: keyed request replayed / {PEER}",
                None,
                "replay",
                "peer replay",
                _PEER_LEAVES_OUT,
            ),
            alone(
                "edge-memory-request",
                "memory: keyed request through the middleware",
                Unit.MICROSECONDS,
                "request",
            ),
            alone("edge-memory-replay", "memory: keyed request replayed", Unit.MICROSECONDS, "replay"),
            alone("edge-memory-bare", "the same request without the middleware", Unit.MICROSECONDS, "bare"),
        ),
        _memory,
        operations=300,
        quick_operations=20,
    ),
    Experiment(
        "edge-sqlite",
        (
            rate(
                f"edge-sqlite-{PEER}",
                f"SQLite, {CONNECTIONS} tasks: keyed requests per second / {PEER}",
                at_least(1.5),
                "requests",
                "peer",
                _PEER_LEAVES_OUT,
            ),
        ),
        _sqlite,
        operations=640,
        quick_operations=64,
    ),
    Experiment(
        "edge-http",
        (
            rate(
                "edge-http-bare",
                f"{_FASTAPI}: keyed requests per second / without middleware",
                at_least(0.35),
                "posts",
                "bare",
                "Without the middleware nothing is written.",
            ),
            rate(
                "edge-http-replay",
                f"{_FASTAPI}: replays per second / the application",
                at_least(1.0),
                "replays",
                "bare",
            ),
            alone("edge-http-posts", f"{_FASTAPI}: keyed requests", Unit.PER_SECOND, "posts"),
        ),
        _http,
        operations=640,
        quick_operations=32,
        needs="gateway",
    ),
)
