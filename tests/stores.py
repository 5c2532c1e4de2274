"""Every store there is: a new one joins the suite with one line in KINDS."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from semel.kernel.clock import Clock
from semel.stores.base import Store
from semel.stores.memory import MemoryStore
from semel.stores.urls import open_store
from tests.patience import PATIENCE_S


def _memory(place: Path, clock: Clock, audit_on: bool) -> Store:
    return MemoryStore(clock=clock, audit_on=audit_on)


def _sqlite(place: Path, clock: Clock, audit_on: bool) -> Store:
    from semel.stores.sqlite import SqliteStore

    # Sixteen processes that share a busy machine wait longer for its lock than the usual five seconds.
    return SqliteStore(str(place / "semel.db"), clock=clock, audit_on=audit_on, busy_s=PATIENCE_S)


def _postgres(place: Path, clock: Clock, audit_on: bool) -> Store:
    from tests.postgres_server import shared_url

    # A crowd of connections is made more slowly on a busy machine than within the usual five seconds.
    patience = f"{PATIENCE_S:g}s"
    return open_store(shared_url(_name(place), timeout=patience, audit="on" if audit_on else "off"), clock)


def _redis(place: Path, clock: Clock, audit_on: bool) -> Store:
    from tests.redis_server import shared_url

    return open_store(shared_url(_name(place), audit="on" if audit_on else "off"), clock)


def _redis_cluster(place: Path, clock: Clock, audit_on: bool) -> Store:
    from tests.redis_server import shared_cluster_url

    # One lane, because the suite reads one: several are the subject of tests/faults/test_redis_cluster.py.
    return open_store(shared_cluster_url(_name(place), lanes="1", audit="on" if audit_on else "off"), clock)


def _redis_spread(place: Path, clock: Clock, audit_on: bool) -> Store:
    from tests.redis_server import shared_cluster_url

    # So many that each of the three servers has some, and so few that reading all of them takes no time.
    return open_store(shared_cluster_url(_name(place), lanes="8", audit="on" if audit_on else "off"), clock)


def _redis_tls(place: Path, clock: Clock, audit_on: bool) -> Store:
    from tests.redis_server import shared_tls

    url, certificate = shared_tls(_name(place), audit="on" if audit_on else "off")
    with trusting(certificate):
        return open_store(url, clock)


def _postgres_tls(place: Path, clock: Clock, audit_on: bool) -> Store:
    from tests.postgres_server import shared_tls_url

    return open_store(shared_tls_url(_name(place), audit="on" if audit_on else "off"), clock)


@contextmanager
def trusting(certificate: str | Path) -> Iterator[None]:
    """What is opened here trusts the certificate, and goes on trusting it."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(certificate)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


def _name(place: Path) -> str:
    """A place as a name that a server takes."""
    return "t_" + hashlib.sha256(str(place).encode()).hexdigest()[:16]


class Kind(NamedTuple):
    """One way to keep records: `open(place, clock, audit_on)` opens what is at a place, or begins it."""

    name: str
    open: Callable[[Path, Clock, bool], Store]
    shared: bool  # Opened again at the same place it shows the same records, in other processes too.


KINDS: tuple[Kind, ...] = (
    Kind("memory", _memory, shared=False),
    Kind("sqlite", _sqlite, shared=True),
    Kind("postgres", _postgres, shared=True),
    Kind("redis", _redis, shared=True),
)

# Over TLS every wait is another one.
TLS: tuple[Kind, ...] = (
    Kind("redis-tls", _redis_tls, shared=True),
    Kind("postgres-tls", _postgres_tls, shared=True),
)

# The same store behind another way to it: the suite runs on it.
CONFORMING: tuple[Kind, ...] = (*KINDS, Kind("redis-cluster", _redis_cluster, shared=True), *TLS)

# Records of one tenant on several servers, each with an order of its own.
SPREAD = Kind("redis-spread", _redis_spread, shared=True)

BY_NAME: dict[str, Kind] = {kind.name: kind for kind in (*KINDS, SPREAD)}
