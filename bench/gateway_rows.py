"""The rows about the gateway: run starts over HTTP, a crowd at one tenant, memory, and how soon it is there.

Gateways run with --dev and SEMEL_LOG=none; "bare ASGI" is bare_app.py under the same server. The client is in
the bench's own process, so that of two cores it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from bench.figures import Row, Unit, at_least, at_most
from bench.gateway_sides import (
    NO_LIMIT,
    BareWrites,
    Beginnings,
    HttpServer,
    OnSchedule,
    Starts,
    StoreStarts,
    api_key,
    bare,
    gateway,
    tenants,
)
from bench.plan import FLAT, Experiment, ExperimentResources
from bench.sides import Side
from bench.window_rows import Size
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


def _urls(resources: ExperimentResources, kind: Kind | None) -> Callable[[str], str]:
    """Stores of this kind by name, each of them empty. ServerMissing if there is no such server."""
    if kind is None:
        return lambda name: f"sqlite:///{resources.file(name)}"
    server = resources.redis() if kind == "redis" else resources.postgres()
    # One PostgreSQL serves all experiments: its schemas are told apart by theirs.
    return lambda name: server.url(f"{resources.directory.name.replace('-', '_')}_{name}")


def _gateway(resources: ExperimentResources, url: str, *flags: str) -> HttpServer:
    return resources.ending.enter_context(gateway(resources.directory, url, *flags))


# --- run starts -----------------------------------------------------------------------------------


def _starts(kind: Kind | None) -> Callable[[ExperimentResources], Iterator[Side]]:
    def sides(resources: ExperimentResources) -> Iterator[Side]:
        url, whose = _urls(resources, kind), tenants(TENANTS)
        ours, theirs = url("gateway"), url("bare")
        yield Starts("starts", ours, [_gateway(resources, ours, "--dev")], whose, connections=CONNECTIONS)
        served = resources.ending.enter_context(bare(resources.directory, theirs))
        yield BareWrites(theirs, served, whose, CONNECTIONS)

    return sides


def _starts_experiment(kind: Kind | None) -> Experiment:
    name, title = f"gateway-{NAMES[kind]}", TITLES[kind]
    work = f"{title}, {CONNECTIONS} connections: run starts over HTTP"
    against = f"{work} per second / bare ASGI + one store round trip"
    rows = (
        Row(f"{name}-bare", against, Unit.RATE, at_least(0.5), "starts", "bare"),
        Row(f"{name}-starts", work, Unit.PER_SECOND, None, "starts"),
    )
    return Experiment(name, rows, _starts(kind), operations=320, quick_operations=32, needs=kind or "gateway")


# --- one hot tenant -------------------------------------------------------------------------------


def _hot_at_the_store(kind: Kind | None) -> Callable[[ExperimentResources], Iterator[Side]]:
    lock = LockPolicy(retry="jitter", wait_us=LOCK_WAIT_S * 1_000_000)

    def sides(resources: ExperimentResources) -> Iterator[Side]:
        url = _urls(resources, kind)
        yield StoreStarts("atomic", url("atomic"), Policy("atomic"), callers=CROWD)
        yield StoreStarts("lock", url("lock"), Policy("lock", lock), callers=CROWD, share=LOCK_SHARE)

    return sides


def _hot_over_http(resources: ExperimentResources) -> Iterator[Side]:
    url = _urls(resources, None)
    flags = {
        "atomic": ("--admission=atomic",),
        "lock": ("--admission=lock", "--lock-retry=jitter", f"--lock-wait={LOCK_WAIT_S}s"),
    }
    for name, share in (("atomic", 1.0), ("lock", LOCK_SHARE)):
        two = [_gateway(resources, url(name), "--dev", *flags[name]) for _ in range(2)]
        yield Starts(name, url(name), two, tenants(1, "hot"), connections=CROWD, limit=NO_LIMIT, share=share)


def _hot_experiment(kind: Kind | None) -> Experiment:
    name, title = f"gateway-hot-{NAMES[kind]}", TITLES[kind]
    work = f"{title}, one hot tenant, {CROWD} callers: admissions per second / by lock with jitter"
    rows = (Row(f"{name}-lock", work, Unit.RATE, at_least(20), "atomic", "lock"),)
    sides = _hot_at_the_store(kind)
    return Experiment(
        name, rows, sides, operations=ADMISSIONS, quick_operations=CROWD, needs=kind or "gateway"
    )


# --- many tenants, credentials, latency -----------------------------------------------------------


def _many_tenants(resources: ExperimentResources) -> Iterator[Side]:
    url = _urls(resources, None)("tenants")
    served = [_gateway(resources, url, "--dev")]
    many = tenants(resources.small)
    yield Starts("many", url, served, many, connections=CONNECTIONS)
    yield Starts("one", url, served, tenants(1, "one"), connections=CONNECTIONS, limit=NO_LIMIT)
    whose = tenants(1, "known")
    authenticated = [_gateway(resources, url)]
    key = api_key(url, whose[0])
    yield Starts("known", url, authenticated, whose, connections=CONNECTIONS, limit=NO_LIMIT, api_key=key)


def _latency(resources: ExperimentResources) -> Iterator[Side]:
    url = _urls(resources, None)("latency")
    served = _gateway(resources, url, "--dev")
    top = Starts("top", url, [served], tenants(TENANTS), connections=CONNECTIONS)
    yield top
    # More connections than requests are ever on their way: what waits, waits for the gateway.
    yield OnSchedule("half", url, served, top, whose=tenants(TENANTS, "half"), connections=CROWD)


# --- the process ----------------------------------------------------------------------------------


def _memory(resources: ExperimentResources) -> Iterator[Side]:
    url = _urls(resources, None)("memory")
    served = _gateway(resources, url, "--dev")
    starts = Starts("starts", url, [served], tenants(TENANTS), connections=CONNECTIONS, limit=NO_LIMIT)
    resources.ending.callback(starts.close)
    done = 0
    for name, runs in (("few", resources.small), ("many", 300 if resources.quick else 100_000)):
        while done < runs:
            starts.begin(resources.small)
            done += resources.small
        yield Size(name, served.memory_bytes(), runs=starts.did()["runs"])


def _beginnings(resources: ExperimentResources) -> Iterator[Side]:
    yield Beginnings("ready", resources.directory, _urls(resources, None)("beginnings"))


EXPERIMENTS: tuple[Experiment, ...] = (
    *map(_starts_experiment, TITLES),
    *map(_hot_experiment, TITLES),
    Experiment(
        "gateway-hot-http",
        (
            Row(
                "gateway-hot-http-lock",
                f"SQLite FULL, one hot tenant, {CROWD} callers at two gateways: "
                "run starts per second / by lock with jitter",
                Unit.RATE,
                at_least(10),
                "atomic",
                "lock",
            ),
        ),
        _hot_over_http,
        operations=ADMISSIONS,
        quick_operations=CROWD,
        needs="gateway",
    ),
    Experiment(
        "gateway-tenants",
        (
            Row(
                "gateway-tenants-one",
                "SQLite FULL: run starts per second spread over 1 000 tenants / of one tenant",
                Unit.RATE,
                # As far apart as figures of a long history and of a short one may be.
                at_least(1 / FLAT.value),
                "many",
                "one",
            ),
            Row(
                "gateway-tenants-api-key",
                "SQLite FULL: run starts per second with an API key / with --dev",
                Unit.RATE,
                None,
                "known",
                "one",
            ),
        ),
        _many_tenants,
        operations=320,
        quick_operations=CONNECTIONS,
        preparing="defining a workflow for 1 000 tenants",
        needs="gateway",
    ),
    Experiment(
        "gateway-latency",
        (
            Row("gateway-latency-top", "SQLite FULL: top rate of run starts", Unit.PER_SECOND, None, "top"),
            Row(
                "gateway-latency-p99",
                "SQLite FULL: P99 of a run start at half of the top rate, sent on schedule",
                Unit.MILLISECONDS,
                None,
                "half",
            ),
        ),
        _latency,
        operations=500,
        quick_operations=CONNECTIONS,
        needs="gateway",
    ),
    Experiment(
        "gateway-memory",
        (
            Row(
                "gateway-memory-growth",
                "gateway: memory after 100 000 runs / after 1 000",
                Unit.TIMES,
                at_most(1.5),
                "many",
                "few",
            ),
            Row("gateway-memory-bytes", "gateway: memory after 100 000 runs", Unit.BYTES, None, "many"),
        ),
        _memory,
        operations=1,
        quick_operations=1,
        preparing="starting 100 000 runs, which takes a minute",
        needs="gateway",
    ),
    Experiment(
        "gateway-start",
        (Row("gateway-start-ready", "gateway: from its start to ready", Unit.MILLISECONDS, None, "ready"),),
        _beginnings,
        operations=1,
        quick_operations=1,
        needs="gateway",
    ),
)
