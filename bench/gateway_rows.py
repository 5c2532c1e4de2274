"""The rows about the gateway: run starts over HTTP, one hot tenant, two processes, memory, readiness.

Gateways run with --dev and SEMEL_LOG=none; "bare ASGI" is bare_app.py under the same server, which writes the
same rows, checks key and slot, and commits in groups. The client is in the bench's own process, so that of
two cores it has one: what two gateways gain on them is less than they would gain elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from bench.figures import Row, Unit, alone, at_least, rate, times
from bench.gateway_sides import (
    NO_LIMIT,
    Beginnings,
    HttpServer,
    OnSchedule,
    Starts,
    StoreStarts,
    bare,
    gateway,
    tenants,
)
from bench.plan import Experiment, ExperimentResources
from bench.release import WHY_NOT, release_tree
from bench.sides import MissingSide, Side, Size
from semel.flow.assembly import Policy
from semel.flow.lock import LockPolicy

Kind = Literal["redis", "postgres"]

CONNECTIONS = 32
CROWD = 100

# A round of run starts fits into their limits as they are by default, ten active runs each.
TENANTS = 100

# The lock is slower by an order of magnitude, so it is given fewer runs to admit: towards the end of a round
# its crowd thins out and meets less contention, which favours the lock.
ADMISSIONS, LOCK_SHARE = CROWD * 6, 0.2

# Admissions are counted, not patience: nobody gives up.
LOCK_WAIT_S = 60

TITLES: dict[Kind | None, str] = {None: "SQLite FULL", "redis": "Redis", "postgres": "PostgreSQL"}
NAMES: dict[Kind | None, str] = {None: "sqlite", "redis": "redis", "postgres": "postgres"}

# One file has one writer, whoever it is; a server works while its clients do.
TWO_PROCESSES = {None: at_least(1.0), "redis": at_least(1.7), "postgres": at_least(1.7)}

BARE_LEAVES_OUT = (
    "Bare ASGI asks for no credentials, validates no input, has no routes, metrics, problem documents, "
    "rate or storage limits."
)


def _urls(resources: ExperimentResources, kind: Kind | None) -> Callable[[str], str]:
    """Stores of this kind by name, each of them empty. ServerMissing if there is no such server."""
    if kind is None:
        return lambda name: f"sqlite:///{resources.file(name)}"
    server = resources.redis() if kind == "redis" else resources.postgres()
    # One PostgreSQL serves all experiments: its schemas are told apart by theirs.
    return lambda name: server.url(f"{resources.directory.name.replace('-', '_')}_{name}")


def _gateway(resources: ExperimentResources, url: str, *flags: str) -> HttpServer:
    return resources.ending.enter_context(gateway(resources.directory, url, "--dev", *flags))


def _bare(resources: ExperimentResources, url: str) -> HttpServer:
    return resources.ending.enter_context(bare(resources.directory, url))


# --- run starts -----------------------------------------------------------------------------------


def _starts(kind: Kind | None) -> Callable[[ExperimentResources], Iterator[Side]]:
    def sides(resources: ExperimentResources) -> Iterator[Side]:
        url, whose = _urls(resources, kind), tenants(TENANTS)
        yield Starts("starts", [_gateway(resources, url("gateway"))], whose, connections=CONNECTIONS)
        yield Starts("bare", [_bare(resources, url("bare"))], whose, connections=CONNECTIONS)
        source = release_tree(resources.directory)
        if source is None:
            yield MissingSide("release 0.1", WHY_NOT)
        else:
            earlier = gateway(resources.directory, url("earlier"), "--dev", source=source)
            served = [resources.ending.enter_context(earlier)]
            yield Starts("release 0.1", served, whose, connections=CONNECTIONS)

    return sides


def _starts_experiment(kind: Kind | None) -> Experiment:
    name = f"gateway-{NAMES[kind]}"
    work = f"{TITLES[kind]}, {CONNECTIONS} connections, {TENANTS} tenants: run starts over HTTP"
    rows = (
        rate(
            f"{name}-bare",
            f"{work} per second / bare ASGI with the same rows",
            at_least(0.8),
            "starts",
            "bare",
            BARE_LEAVES_OUT,
        ),
        rate(f"{name}-release", f"{work} per second / release 0.1", at_least(1.8), "starts", "release 0.1"),
        alone(f"{name}-starts", work, Unit.PER_SECOND, "starts"),
    )
    return Experiment(name, rows, _starts(kind), operations=640, quick_operations=32, needs=kind or "gateway")


# --- one hot tenant -------------------------------------------------------------------------------


def _hot(kind: Kind | None) -> Callable[[ExperimentResources], Iterator[Side]]:
    lock = LockPolicy(retry="jitter", wait_us=LOCK_WAIT_S * 1_000_000)

    def sides(resources: ExperimentResources) -> Iterator[Side]:
        url = _urls(resources, kind)
        for name, serve in (("http", _gateway), ("bare", _bare)):
            served = [serve(resources, url(name))]
            yield Starts(name, served, tenants(1, "hot"), connections=CROWD, limit=NO_LIMIT)
        yield StoreStarts("atomic", url("atomic"), Policy("atomic"), callers=CROWD)
        yield StoreStarts("lock", url("lock"), Policy("lock", lock), callers=CROWD, share=LOCK_SHARE)

    return sides


def _hot_experiment(kind: Kind | None) -> Experiment:
    name = f"gateway-hot-{NAMES[kind]}"
    work = f"{TITLES[kind]}, one hot tenant, {CROWD}"
    over_http = f"{work} connections: run starts over HTTP per second / bare ASGI with the same rows"
    at_the_store = f"{work} callers at the store: admissions per second / lock with jitter"
    rows = (
        rate(f"{name}-bare", over_http, at_least(0.7), "http", "bare", BARE_LEAVES_OUT),
        rate(f"{name}-lock", at_the_store, at_least(15), "atomic", "lock"),
    )
    return Experiment(
        name, rows, _hot(kind), operations=ADMISSIONS, quick_operations=CROWD, needs=kind or "gateway"
    )


# --- two processes --------------------------------------------------------------------------------


def _two(kind: Kind | None) -> Callable[[ExperimentResources], Iterator[Side]]:
    def sides(resources: ExperimentResources) -> Iterator[Side]:
        url, whose = _urls(resources, kind), tenants(TENANTS)
        for name, number in (("one", 1), ("two", 2)):
            served = [_gateway(resources, url(name)) for _ in range(number)]
            yield Starts(name, served, whose, connections=CONNECTIONS)

    return sides


def _two_experiment(kind: Kind | None) -> Experiment:
    name = f"gateway-two-{NAMES[kind]}"
    work = f"{TITLES[kind]}: run starts over HTTP per second, two gateway processes / one"
    rows = (rate(f"{name}-one", work, TWO_PROCESSES[kind], "two", "one"),)
    return Experiment(name, rows, _two(kind), operations=640, quick_operations=32, needs=kind or "gateway")


# --- latency and the process ----------------------------------------------------------------------


def _latency(resources: ExperimentResources) -> Iterator[Side]:
    served = _gateway(resources, _urls(resources, None)("latency"))
    top = Starts("top", [served], tenants(TENANTS), connections=CONNECTIONS)
    yield top
    # More connections than requests are ever on their way: what waits, waits for the gateway.
    yield OnSchedule("half", served, top, whose=tenants(TENANTS, "half"), connections=CROWD)


def _memory(resources: ExperimentResources) -> Iterator[Side]:
    served = _gateway(resources, _urls(resources, None)("memory"))
    starts = Starts("starts", [served], tenants(TENANTS), connections=CONNECTIONS, limit=NO_LIMIT)
    resources.ending.callback(starts.close)
    done = 0
    for name, runs in (("few", resources.small), ("many", 300 if resources.quick else 100_000)):
        while done < runs:
            starts.begin(resources.small)
            done += resources.small
        yield Size(name, served.memory_bytes(), runs=done)


def _beginnings(resources: ExperimentResources) -> Iterator[Side]:
    yield Beginnings("ready", resources.directory, _urls(resources, None)("beginnings"))


_MEMORY = "gateway: memory after 100 000 runs"
_P99 = "SQLite FULL: P99 of a run start at half of the top rate, sent on schedule"

_OF_THE_PROCESS: tuple[
    tuple[str, tuple[Row, ...], Callable[[ExperimentResources], Iterator[Side]], int], ...
] = (
    ("gateway-latency", (alone("gateway-latency-p99", _P99, Unit.MILLISECONDS, "half"),), _latency, 500),
    (
        "gateway-memory",
        (
            times("gateway-memory-growth", f"{_MEMORY} / after 1 000", None, "many", "few"),
            alone("gateway-memory-bytes", _MEMORY, Unit.BYTES, "many"),
        ),
        _memory,
        1,
    ),
    (
        "gateway-start",
        (alone("gateway-start-ready", "gateway: from its start to ready", Unit.MILLISECONDS, "ready"),),
        _beginnings,
        1,
    ),
)


def _process_experiment(
    name: str,
    rows: tuple[Row, ...],
    sides: Callable[[ExperimentResources], Iterator[Side]],
    operations: int,
) -> Experiment:
    quick = min(operations, CONNECTIONS)
    return Experiment(name, rows, sides, operations=operations, quick_operations=quick, needs="gateway")


EXPERIMENTS: tuple[Experiment, ...] = (
    *map(_starts_experiment, TITLES),
    *map(_hot_experiment, TITLES),
    *map(_two_experiment, TITLES),
    *(_process_experiment(*each) for each in _OF_THE_PROCESS),
)
