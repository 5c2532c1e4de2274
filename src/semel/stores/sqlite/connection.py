"""Connections: how one is opened, how long it waits for others, and a pool of those that only read."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from semel.kernel.clock import SYSTEM
from semel.stores.base import store_closed
from semel.stores.sqlite import trouble

T = TypeVar("T")
Durability = Literal["full", "normal"]

# Twice the statements that there are, so that none is ever prepared twice.
_STATEMENTS_KEPT = 128

# The upper part of the tree of a million records, so that a claim reads one or two pages from the file.
_CACHE_KIB = 8_192

# Of a file that is made for NORMAL, where a commit costs what it writes: whole pages, of which a call changes
# some hundred bytes. With FULL it costs a sync, and small pages only cost a crowd more steps.
_SMALL_PAGE_BYTES = 2_048

# A log so long goes into the file, while whoever commits waits for three syncs. Where a commit needs none,
# and where a crowd shares its own, twice SQLite's 4 MB are better. A caller alone has nothing of that with
# FULL, but that the syncs of a log that still grows take half as long again.
_CHECKPOINT_BYTES, _LONG_CHECKPOINT_BYTES = 4 << 20, 8 << 20

# Twice the longer. Checkpoints never finish while many processes write without pause.
_LOG_BYTES_MAX = 16 << 20
# One of them usually does it. Here SQLite itself waits: only it can do so with half a checkpoint done.
_SHORTENING_TRIES, _SHORTENING_MS = 5, 100

# A commit takes 0.2-1 ms: the first waits are of its length, the later ones let a crowd thin out.
_PAUSE_S, _PAUSE_S_MAX = 0.0005, 0.003


C = TypeVar("C", bound=sqlite3.Connection)


def connect(path: str, durability: Durability, busy_s: float) -> sqlite3.Connection:
    """An open connection that never begins a transaction by itself and never waits by itself."""
    return connect_as(sqlite3.Connection, path, durability, busy_s)


def connect_as(kind: type[C], path: str, durability: Durability, busy_s: float) -> C:
    connection = sqlite3.connect(
        path,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        factory=kind,
        cached_statements=_STATEMENTS_KEPT,
    )
    try:
        # Even a setting reads the file's head, which another process may just be writing for the first time.
        patiently(lambda: _set(connection, durability), busy_s)
    except BaseException:
        sqlite3.Connection.close(connection)  # not the kind's own, which may refuse
        raise
    return connection


def _set(connection: sqlite3.Connection, durability: Durability) -> None:
    if durability == "normal":
        connection.execute(f"PRAGMA page_size = {_SMALL_PAGE_BYTES}")  # a file that is there keeps its own
    _checkpoint_every(connection, _LONG_CHECKPOINT_BYTES if durability == "normal" else _CHECKPOINT_BYTES)
    for pragma in (
        f"synchronous = {durability.upper()}",
        # Elsewhere than on macOS these two mean nothing; there a plain fsync does not reach the disk.
        f"fullfsync = {int(durability == 'full')}",
        f"checkpoint_fullfsync = {int(durability == 'full')}",
        f"cache_size = -{_CACHE_KIB}",
        f"journal_size_limit = {_LOG_BYTES_MAX}",
        "cell_size_check = ON",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _checkpoint_every(connection: sqlite3.Connection, log_bytes: int) -> None:
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {log_bytes // page_bytes}")


def let_log_grow(connection: sqlite3.Connection) -> None:
    """A crowd commits here: checkpoints are as rare as where no commit needs a sync."""
    try:
        _checkpoint_every(connection, _LONG_CHECKPOINT_BYTES)
    except sqlite3.Error:
        pass  # then they come as often as before


def patiently(action: Callable[[], T], busy_s: float) -> T:
    """What the action returns, repeated while another process holds the lock, for at most `busy_s`.

    The waits are jittered and short: SQLite's own waiting starves one of several processes for seconds. They
    are real waits, whatever clock the records live by: the other process does not run on it.
    """
    give_up_at, pause_s = SYSTEM.monotonic() + busy_s, _PAUSE_S
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not trouble.busy(error) or SYSTEM.monotonic() >= give_up_at:
                raise
        SYSTEM.sleep(SYSTEM.random() * pause_s)
        pause_s = min(pause_s * 1.1, _PAUSE_S_MAX)


def shorten_log(connection: sqlite3.Connection, log_path: str) -> None:
    """A write-ahead log grown too long is empty, or somebody reads it and the next try may succeed."""
    try:
        if os.stat(log_path).st_size <= _LOG_BYTES_MAX:
            return
        connection.execute(f"PRAGMA busy_timeout = {_SHORTENING_MS}")
        try:
            for _ in range(_SHORTENING_TRIES):
                if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
                    return
                SYSTEM.sleep(SYSTEM.random() * _PAUSE_S)
        finally:
            connection.execute("PRAGMA busy_timeout = 0")
    except (OSError, sqlite3.Error):
        pass  # what was written is safe in the log; if something is wrong the next commit says so


class Readers:
    """Connections that only read; the one used last is used next, because its pages are warm."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], busy_s: float) -> None:
        self._connect, self._busy_s = connect, busy_s
        self.renew()

    def renew(self) -> None:
        """As new, without touching what was open: for the child of a fork."""
        self._opening = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._count = 0
        self._closed = False

    def row(self, sql: str, parameters: tuple[Any, ...]) -> Any:
        """The first row, or None."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            return connection.execute(sql, parameters).fetchone()
        except sqlite3.OperationalError as error:
            if not trouble.busy(error):
                raise
            return patiently(lambda: connection.execute(sql, parameters).fetchone(), self._busy_s)
        finally:
            self._idle.append(connection)

    def use(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """What the action makes of a connection."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            return patiently(lambda: action(connection), self._busy_s)
        finally:
            self._idle.append(connection)

    def _open(self) -> sqlite3.Connection:
        with self._opening:
            if self._closed:
                raise store_closed()
            connection = self._connect()
            self._count += 1
        connection.execute("PRAGMA query_only = ON")
        return connection

    def pause(self, give_up_at: float) -> bool:
        """Whether every connection is closed and none is opened until `resume`."""
        self._opening.acquire()
        while self._count:
            while self._idle:
                self._idle.pop().close()
                self._count -= 1
            if self._count and SYSTEM.monotonic() > give_up_at:
                self._opening.release()
                return False
            if self._count:
                SYSTEM.sleep(_PAUSE_S)
        return True

    def resume(self) -> None:
        self._opening.release()

    def close(self, give_up_at: float) -> None:
        if self.pause(give_up_at):
            self._closed = True
            self.resume()
