"""Noticing what other processes settle, while somebody here waits for it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Address, Record, State, lapsed
from semel.kernel.waiting import entering
from semel.stores.base import Waiters
from semel.stores.sqlite.commands import look

# A look at the database's version costs 3 µs: at this pace a thousandth of a core, and no delay one notices.
_EVERY_S = 0.003

# Waiters come in crowds; the thread stays for the next one.
_STAYS_S = 1.0


class FileWatcher:
    """A thread that runs while somebody waits. Its connection sees every commit as a new version."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], clock: Clock, waiters: Waiters) -> None:
        self._connect = connect
        self._clock = clock
        self.renew(waiters)

    def renew(self, waiters: Waiters) -> None:
        """As new, without touching what was open: for the child of a fork."""
        self._waiters = waiters
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._version = -1
        self._seen: dict[Address, bytes | None] = {}
        self._closed = False

    def start(self) -> None:
        """The thread runs."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=entering(self._watch), name="semel-sqlite-watcher", daemon=True
                )
                self._thread.start()

    def _watch(self) -> None:
        idle_since = SYSTEM.monotonic()
        while True:
            with self._lock:
                if self._waiters:
                    idle_since = SYSTEM.monotonic()
                elif self._closed or SYSTEM.monotonic() - idle_since > _STAYS_S:
                    self._close()
                    return
                if not self._closed:
                    self._look_around()
            SYSTEM.sleep(_EVERY_S)

    def _look_around(self) -> None:
        try:
            self.look_once()
        except sqlite3.Error:
            # Waiters ask the store themselves when their time is over, and are told what is wrong with it.
            self._version = -1

    def look_once(self) -> None:
        """Whoever waits for a record that changed since the last look is woken."""
        if self._connection is None:
            self._connection = self._connect()
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        moved, self._version = version != self._version, version
        waited = self._waiters.addresses()
        for at in waited:
            if moved or at not in self._seen:
                self._compare(self._connection, at)
        if len(self._seen) > len(waited):
            self._seen = {at: self._seen[at] for at in waited if at in self._seen}

    def _compare(self, connection: sqlite3.Connection, at: Address) -> None:
        record = look(connection, at)
        token = None if record is None else record.token
        if not _underway(record, self._clock.now_us()) or self._seen.setdefault(at, token) != token:
            self._seen.pop(at, None)
            self._waiters.wake(at)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._thread = None
        if connection is not None:
            connection.close()

    def pause(self) -> None:
        """The connection is closed, and none is opened until `resume`."""
        self._lock.acquire()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._version = -1

    def resume(self) -> None:
        self._lock.release()

    def close(self) -> None:
        self.pause()
        self._closed = True
        self.resume()


def _underway(record: Record | None, now_us: int) -> bool:
    return record is not None and record.state is State.PENDING and not lapsed(record, now_us)
