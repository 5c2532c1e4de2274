"""How many bytes a settled call takes on Redis, with its events sealed: `python -m bench.redis_bytes`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import semel
from bench.servers import RedisServer
from bench.sides import SyncCalls
from bench.workload import seal

CALLS = 5_000

# Before the count begins: what a store has once, and what a contract's first calls carry besides.
_BEFORE = 200


def bytes_per_record(server: RedisServer, calls: int = CALLS, prefix: str = "bytes") -> float:
    """By how much the server's memory grew, by its own account, for each guarded call."""
    with semel.open(server.url(prefix)) as ledger:
        side = SyncCalls("calls", ledger)
        side.round(_BEFORE)
        seal(ledger.store)
        before = used_bytes(server)
        side.round(calls)
        seal(ledger.store)
        return (used_bytes(server) - before) / calls


def used_bytes(server: RedisServer) -> int:
    import redis

    with redis.Redis(port=server.port) as client:
        told: Any = client.info("memory")
        return int(told["used_memory"])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="semel-bench-") as inside:
        os.chmod(inside, 0o711)  # the server does not run as root
        with RedisServer(Path(inside, "redis")) as server:
            print(f"{bytes_per_record(server):.0f} bytes per settled record with its audit")


if __name__ == "__main__":
    main()
