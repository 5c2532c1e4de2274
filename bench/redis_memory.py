"""How much memory a record takes in Redis: what the server uses more after many of them, by their number."""

from __future__ import annotations

from typing import Any

import redis

from bench import workload
from bench.servers import RedisServer
from bench.sides import Ledgered, MissingSide, Side, Size

# Of clients and of the file that is being written: gone when they have had their turn.
_PASSING = ("mem_clients_normal", "mem_aof_buffer")


def size_of(side: Side, server: RedisServer, records: int) -> Side:
    """The bytes per record of a side that has this server to itself; it is closed then.

    Connections are open and scripts are loaded before it counts. Our events are sealed, as they are after a
    while in each store.
    """
    if isinstance(side, MissingSide):
        return side
    try:
        side.round(10)
        seal(side)
        before = used(server)
        side.round(records)
        seal(side)
        return Size(side.name, (used(server) - before) / records, records=records)
    finally:
        side.close()


def seal(side: Side) -> None:
    if isinstance(side, Ledgered):
        workload.seal(side.ledger.store)


def used(server: RedisServer) -> int:
    with redis.Redis(port=server.port) as client:
        memory: Any = client.info("memory")
        return int(memory["used_memory"]) - sum(int(memory.get(name, 0)) for name in _PASSING)
