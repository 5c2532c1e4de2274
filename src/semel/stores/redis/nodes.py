"""Which server has which lane: the only one, or what the cluster says."""

from __future__ import annotations

import binascii

import hiredis

from semel.errors import SemelError, StoreUnavailable
from semel.stores.redis import trouble
from semel.stores.redis.commands import lane
from semel.stores.redis.connection_pool import ConnectionPool
from semel.stores.redis.options import Node, RedisOptions
from semel.stores.redis.thread_connections import ThreadConnection, packed

_SLOTS = 16_384


def slot_of(key: bytes) -> int:
    """The cluster's slot of a key: of what is between its first braces."""
    start = key.find(b"{")
    stop = key.find(b"}", start + 1)
    tag = key[start + 1 : stop] if 0 <= start < stop - 1 else key
    return binascii.crc_hqx(tag, 0) % _SLOTS


class Nodes:
    """The map of lanes to servers. A server that answers MOVED corrects it."""

    def __init__(self, options: RedisOptions, connections: ConnectionPool) -> None:
        self._options = options
        self._connections = connections
        self._servers: tuple[Node, ...] = options.nodes
        self._homes: list[Node] = [options.nodes[0]] * options.lanes

    def home(self, number: int) -> Node:
        return self._homes[number]

    def all(self) -> tuple[Node, ...]:
        """Every server that has a lane; before the first `refresh` those of the URL."""
        return tuple(dict.fromkeys(self._homes))

    def moved(self, number: int, node: Node) -> None:
        self._homes[number] = node

    def refresh(self, lanes: int) -> None:
        """The map as the cluster tells it now; StoreUnavailable if no server tells."""
        if not self._options.cluster:
            self._homes = [self._options.nodes[0]] * lanes
            return
        slots = self._ask_around()
        self._servers = tuple(dict.fromkeys((*slots.values(), *self._options.nodes)))
        prefix = self._options.prefix
        self._homes = [self._of_slot(slots, slot_of(lane(number, prefix).lane)) for number in range(lanes)]

    def meta(self, key: bytes) -> Node:
        """The server of a key outside the lanes."""
        if not self._options.cluster:
            return self._options.nodes[0]
        return self._of_slot(self._ask_around(), slot_of(key))

    def _of_slot(self, slots: dict[range, Node], slot: int) -> Node:
        for span, node in slots.items():
            if slot in span:
                return node
        raise trouble.refused("CLUSTERDOWN")

    def _ask_around(self) -> dict[range, Node]:
        error: SemelError = StoreUnavailable()
        for node in self._servers:
            try:
                connection = self._connections.take(node)
                try:
                    return self._slots(connection)
                except (OSError, hiredis.HiredisError) as broken:
                    connection.close()
                    error = trouble.broken(broken, node)
            except StoreUnavailable as away:
                error = away
        raise error

    def _slots(self, connection: ThreadConnection) -> dict[range, Node]:
        (answer,) = connection.call_all([packed((b"CLUSTER", b"SLOTS"))])
        self._connections.give_back(connection)
        if isinstance(answer, hiredis.ReplyError):
            raise trouble.refused(answer)
        return {
            range(first, last + 1): Node(primary[0].decode() or connection.node.host, primary[1])
            for first, last, primary, *_ in answer
        }


def node_of(address: str, sender: Node) -> Node:
    """The node that MOVED or ASK names; without a host it is the server that says so."""
    host, _, port = address.rpartition(":")
    return Node(host or sender.host, int(port))
