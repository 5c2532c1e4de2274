"""A bounded number of connections, shared by whoever needs one for a moment.

An interrupt may come anywhere, also on the way in and on the way out. So leaving may be repeated, and what is
in use is a set of slots, never a count that goes up and down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from semel.kernel.waiting import WaitingThreads
from semel.stores.base import store_closed
from semel.stores.postgres import trouble
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection


class PoolSlot:
    """Capacity for one connection, and that connection while it is in use."""

    __slots__ = ("link",)

    def __init__(self) -> None:
        self.link: PostgresConnection | None = None


# A parent's connections in its forked child: collecting one would end the parent's session.
_orphans: list[PostgresConnection | PoolSlot] = []


class Pool:
    """The connection used last is used next, because its server process is warm."""

    def __init__(self, connect: Callable[[], PostgresConnection], size: int, patience_s: float) -> None:
        self._connect = connect
        self._size = size
        self._patience_s = patience_s
        self._inside: set[PoolSlot] = set()
        self._idle: list[PostgresConnection] = []
        self.renew()

    def renew(self) -> None:
        """As new, without touching what was open: for the child of a fork."""
        _orphans.extend(self._idle)
        _orphans.extend(self._inside)
        self._lock = threading.Lock()
        self._waiting = WaitingThreads()
        self._idle = []
        self._inside = set()
        self._closed = False

    @contextmanager
    def link(self) -> Iterator[PostgresConnection]:
        """A connection with no transaction open on it; it comes back, unless it broke."""
        slot = PoolSlot()
        try:
            yield self.enter(slot)
            self.leave(slot)
        except BaseException as error:
            self.leave_after(slot, error)
            raise

    def enter(self, slot: PoolSlot) -> PostgresConnection:
        """A connection for this slot. Whatever comes of it, the slot has to be left."""
        if self._closed:
            raise store_closed()
        if not self._let_in(slot) and not self._waiting.wait(lambda: self._let_in(slot), self._patience_s):
            raise Failure("every connection of the pool is in use", late=True)
        link = slot.link = self._next()
        return link

    def _let_in(self, slot: PoolSlot) -> bool:
        with self._lock:
            if len(self._inside) >= self._size:
                return False
            self._inside.add(slot)
            return True

    def _next(self) -> PostgresConnection:
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return self._connect()
            if not link.broken:
                return link

    def leave(self, slot: PoolSlot) -> None:
        """The slot is free for somebody else. May be repeated."""
        with self._lock:  # of two who leave it, one takes the connection along
            link, slot.link = slot.link, None
        if link is not None:
            if self._closed or not link.idle:
                link.close()
            else:
                self._idle.append(link)
        self._inside.discard(slot)
        self._waiting.wake()

    def leave_after(self, slot: PoolSlot, error: BaseException) -> None:
        """The same, after an error."""
        self.leave(slot)
        if isinstance(error, Failure) and trouble.gone(error):
            self.forget_idle()

    def forget_idle(self) -> None:
        """The server went away, so what was open to it is of no use."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def close(self) -> None:
        self._closed = True
        self.forget_idle()
