"""Which tests `make test` runs, and which wait for `make test-all`.

make test       everything that decides, in minutes: each promise where it is cheapest to see it broken
make test-all   then the rest: every store, every fault, Temporal
make soak       long races with other chances each time: whatever carries the mark `slow`

A test is in `make test` unless a row below, or its own mark `full`, says otherwise: a new one needs no row.
Of two rows that fit, the longer one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent

EVERY_STORE = frozenset(
    {"memory", "sqlite", "redis", "postgres", "redis-cluster", "redis-spread", "redis-tls", "postgres-tls"}
)

NOTHING = None
SQLITE = frozenset({"sqlite"})
EMBEDDED = frozenset({"memory", "sqlite"})
PLAIN = frozenset({"memory", "sqlite", "redis", "postgres"})

# A folder or a file, and the stores on which `make test` runs it. What names no store runs as well,
# unless it says NOTHING.
ROWS: dict[str, frozenset[str] | None] = {
    "conformance": PLAIN,
    # On servers, documents are met by what admission and decisions make of them.
    "conformance/test_documents.py": EMBEDDED,
    "conformance/test_queries.py": EMBEDDED,
    "model": EMBEDDED,
    # A proxy that drops, cuts and doubles; what the client makes of it is in test_retrying.py.
    "client/test_wire.py": NOTHING,
    "edge": EMBEDDED,
    "edge/test_killed.py": SQLITE,
    "edge/test_chain.py": SQLITE,
    # Processes that die for a while.
    "edge/test_shop_under_fire.py": NOTHING,
    "console": SQLITE,
    # A browser, gateways and workers as processes.
    "console/test_browser.py": NOTHING,
    "gateway": SQLITE,
    "gateway/test_two_gateways.py": NOTHING,
    # Gateways and workers as processes, several each.
    "gateway/test_canaries.py": NOTHING,
    "gateway/test_operations_over_http.py": NOTHING,
    "gateway/test_probes.py": NOTHING,
    "gateway/test_sample.py": NOTHING,
    "gateway/test_worker.py": NOTHING,
    "gateway/test_worker_tenants.py": NOTHING,
    # They start servers, and measure.
    "bench": SQLITE,
    "bench/test_bench.py": NOTHING,
    "bench/test_command.py": NOTHING,
    "bench/test_client.py": NOTHING,
    "bench/test_gateway.py": NOTHING,
    "bench/test_redis_parts.py": NOTHING,
    "bench/test_servers.py": NOTHING,
    # Processes that die, by trial.
    "scoreboard": SQLITE,
    "scoreboard/test_trials.py": NOTHING,
    "temporal": NOTHING,
    # In environments of their own, which `make test-all` makes.
    "agents": NOTHING,
    # One death of each kind.
    "faults": NOTHING,
    "faults/test_crashes.py": SQLITE,
    "faults/test_dead_owners.py": SQLITE,
    "faults/test_demo.py": SQLITE,
    "faults/test_freezes.py": SQLITE,
    "faults/test_gateway_crashes.py": SQLITE,
    "faults/test_interrupts.py": SQLITE,
    "faults/test_killed_writes.py": SQLITE,
    "faults/test_nats.py": SQLITE,
    "faults/test_same_transaction.py": SQLITE,
    "faults/test_sqlalchemy.py": SQLITE,
    "faults/test_sqlite_disk.py": SQLITE,
    "faults/test_worker_killed.py": SQLITE,
}


def is_for_later(path: str, stores: frozenset[str]) -> bool:
    """Whether a test of this file (below tests/) on these stores is left to `make test-all`."""
    rows = [row for row in ROWS if path == row or path.startswith(f"{row}/")]
    if not rows:
        return False
    allowed = ROWS[max(rows, key=len)]
    return allowed is None or not stores <= allowed


def stores_of(item: pytest.Item) -> frozenset[str]:
    """The stores that a test names in its parameters."""
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters is not None else ()
    return frozenset(name for value in values for name in _names(value)) & EVERY_STORE


def _names(value: Any) -> Iterator[str]:
    """What a parameter is called: a name, something that has one, or several of these."""
    name = getattr(value, "name", value)
    if isinstance(name, str):
        yield name
    elif isinstance(value, tuple):
        for part in value:
            yield from _names(part)


def divide(items: list[pytest.Item]) -> None:
    """What is left to `make test-all` carries the mark `full`."""
    for item in items:
        if is_for_later(item.path.relative_to(FOLDER).as_posix(), stores_of(item)):
            item.add_marker(pytest.mark.full)
