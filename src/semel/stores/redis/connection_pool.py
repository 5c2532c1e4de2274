"""Connections that threads are done with, kept for the next caller."""

from __future__ import annotations

import hiredis

from semel.errors import SemelError
from semel.stores.redis import sentinel, trouble
from semel.stores.redis.options import Node, RedisOptions
from semel.stores.redis.thread_connections import ThreadConnection

# More threads than this at once open and close their own.
_IDLE_MAX = 64


class ConnectionPool:
    """Connections to all nodes, each for one thread at a time."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._idle: dict[Node, list[ThreadConnection]] = {}
        self._closed = False

    def take(self, node: Node) -> ThreadConnection:
        try:
            return self._idle[node].pop()
        except (KeyError, IndexError):
            return self.fresh(node)

    def fresh(self, node: Node) -> ThreadConnection:
        if self._closed:
            raise trouble.closed()
        at = sentinel.address(node, self._options)
        try:
            return ThreadConnection(node, self._options, at)
        except SemelError:
            raise
        except (OSError, hiredis.HiredisError) as error:
            raise trouble.broken(error, at) from error

    def give_back(self, connection: ThreadConnection) -> None:
        idle = self._idle.get(connection.node)
        if idle is None:
            idle = self._idle.setdefault(connection.node, [])
        if self._closed or len(idle) >= _IDLE_MAX or connection.unasked():
            connection.close()
        else:
            idle.append(connection)

    def discard(self, connection: ThreadConnection) -> None:
        """It broke, and so did probably those that were idle meanwhile."""
        connection.close()
        idle = self._idle.get(connection.node, [])
        while idle:
            try:
                idle.pop().close()
            except IndexError:
                return

    def close(self) -> None:
        self._closed = True
        self.drop()

    def drop(self) -> None:
        """No connection is open; in a forked child this ends none of the parent's."""
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()
