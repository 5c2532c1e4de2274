"""A bounded number of connections, shared by whoever needs one for a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from semel.stores.postgres import trouble
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import Link

# A parent's connections in its forked child: collecting one would say goodbye on the parent's socket.
_orphans: list[Link] = []


class Pool:
    """The connection used last is used next, because its server process is warm."""

    def __init__(self, connect: Callable[[], Link], size: int, patience_s: float) -> None:
        self._connect = connect
        self._size = size
        self._patience_s = patience_s
        self._out: set[Link] = set()
        self._idle: list[Link] = []
        self.renew()

    def renew(self) -> None:
        """As new, without touching what was open: for the child of a fork."""
        _orphans.extend(self._idle)
        _orphans.extend(self._out)
        self._places = threading.Semaphore(self._size)
        self._idle = []
        self._out = set()
        self._closed = False

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A connection with no transaction open on it; it comes back, unless it broke."""
        link = self.take()
        try:
            yield link
        except Failure as failure:
            if trouble.gone(failure):
                self.forget_idle()
            raise
        finally:
            self.give(link)

    def take(self) -> Link:
        if self._closed:
            raise trouble.closed()
        if not self._places.acquire(timeout=self._patience_s):
            raise Failure("every connection of the pool is in use", late=True)
        try:
            link = self._next()
            self._out.add(link)
            return link
        except BaseException:
            self._places.release()
            raise

    def _next(self) -> Link:
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return self._connect()
            if not link.broken:
                return link

    def give(self, link: Link) -> None:
        self._out.discard(link)
        if self._closed or not link.idle:
            link.close()
        else:
            self._idle.append(link)
        self._places.release()

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
