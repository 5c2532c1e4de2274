"""Noticing what others settle, while somebody here waits for it.

One thread with one connection listens on the channels of the records that are waited for. It sleeps until the
server tells something, or until somebody here begins to wait.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

import hiredis

from semel.errors import SemelError
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Reply, State, lapsed
from semel.kernel.waiting import entering
from semel.stores.base import Waiters
from semel.stores.redis.thread_connections import ThreadConnection, packed

# Waiters come in crowds; the thread stays for the next one.
_STAYS_S = 1.0

# After a broken connection: not at once again and again, and not so late that a waiter notices.
_PAUSE_S = 0.1


class RedisWatcher:
    def __init__(
        self,
        connect: Callable[[], ThreadConnection],
        channel_of: Callable[[Address], bytes],
        look: Callable[[Address], Reply],
        waiters: Waiters,
    ) -> None:
        self._connect = connect
        self._channel_of = channel_of
        self._look = look
        self._wake_pipe: tuple[int, int] | None = None
        self.reset(waiters)

    def reset(self, waiters: Waiters) -> None:
        """As new, and in a forked child without the parent's pipe to its thread."""
        self._waiters = waiters
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        ends, self._wake_pipe = self._wake_pipe, None
        for end in ends or ():
            os.close(end)

    def start(self) -> None:
        """The thread runs, and learns that somebody began to wait."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._wake_pipe = os.pipe()
                os.set_blocking(self._wake_pipe[1], False)
                self._thread = threading.Thread(
                    target=entering(self._run), name="semel-redis-watcher", daemon=True
                )
                self._thread.start()
            self._wake_up()

    def _wake_up(self) -> None:
        if self._wake_pipe is not None:
            try:
                os.write(self._wake_pipe[1], b"!")
            except BlockingIOError:
                pass  # the pipe is full, so the thread wakes anyway

    def _run(self) -> None:
        while True:
            connection: ThreadConnection | None = None
            try:
                connection = self._connect()
                if self._listen(connection):
                    return
            except (SemelError, OSError, hiredis.HiredisError):
                # Waiters ask the store when their time is over, and are told what is wrong with it.
                SYSTEM.sleep(_PAUSE_S)
                if self._ended():
                    return
            finally:
                if connection is not None:
                    connection.close()

    def _listen(self, connection: ThreadConnection) -> bool:
        """True once nobody waits any more; OSError when the connection breaks."""
        subscribed: dict[bytes, Address] = {}
        idle_since = SYSTEM.monotonic()
        assert self._wake_pipe is not None
        while True:
            self._follow(connection, subscribed)
            if subscribed:
                idle_since = SYSTEM.monotonic()
            elif SYSTEM.monotonic() - idle_since >= _STAYS_S and self._ended():
                return True
            ready, _, _ = select.select([connection.fileno(), self._wake_pipe[0]], [], [], _STAYS_S)
            if self._wake_pipe[0] in ready:
                os.read(self._wake_pipe[0], 4096)
            if self._closed and self._ended():
                return True
            if connection.fileno() in ready:
                self._hear(connection, subscribed)

    def _follow(self, connection: ThreadConnection, subscribed: dict[bytes, Address]) -> None:
        """The channels are those of the records that are waited for now."""
        waited_for = {self._channel_of(at): at for at in self._waiters.addresses()}
        gone, new = subscribed.keys() - waited_for.keys(), waited_for.keys() - subscribed.keys()
        if gone:
            connection.send(packed((b"UNSUBSCRIBE", *gone)))
        if new:
            connection.send(packed((b"SUBSCRIBE", *new)))
        for channel in gone:
            del subscribed[channel]
        subscribed.update((channel, waited_for[channel]) for channel in new)

    def _hear(self, connection: ThreadConnection, subscribed: dict[bytes, Address]) -> None:
        for message in connection.receive():
            kind, channel = message[0], message[1]
            at = subscribed.get(channel)
            if at is None:
                continue
            # It may have changed before the server knew that we listen.
            if kind == b"message" or (kind == b"subscribe" and not self._underway(at)):
                subscribed.pop(channel)
                connection.send(packed((b"UNSUBSCRIBE", channel)))
                self._waiters.wake(at)

    def _underway(self, at: Address) -> bool:
        reply = self._look(at)
        record = reply.record
        return record is not None and record.state is State.PENDING and not lapsed(record, reply.now_us)

    def _ended(self) -> bool:
        """Whether the thread may end, and if so, it counts as ended."""
        with self._lock:
            if self._waiters and not self._closed:
                return False
            self._thread = None
            ends, self._wake_pipe = self._wake_pipe, None
        for end in ends or ():
            os.close(end)
        return True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._wake_up()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
