"""Records in one SQLite file, shared by threads, event loops and processes of one machine."""

from __future__ import annotations

import asyncio
import atexit
import os
import sqlite3
import weakref
from collections.abc import Callable
from typing import TypeVar, cast

from semel.contract.transaction import Transaction
from semel.errors import OpenError, StoreUnavailable
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Address, Claim, Command, Look, Record, Reply, apply
from semel.kernel.waiting import alone, entering
from semel.stores.base import Finding, Query, Store, Waiters
from semel.stores.sqlite import findings, forks, queries, statements, trouble
from semel.stores.sqlite.commands import Performer, plain
from semel.stores.sqlite.connection import Durability, Readers, connect, connect_as
from semel.stores.sqlite.file_identity import FileIdentity, refuse_lost_log
from semel.stores.sqlite.lent import LentConnection
from semel.stores.sqlite.rows import record_of
from semel.stores.sqlite.schema import open_database
from semel.stores.sqlite.transaction import SqliteTransaction
from semel.stores.sqlite.watcher import FileWatcher
from semel.stores.sqlite.writer import CommandToCommit, CommandToWrite, CommitBatcher

T = TypeVar("T")
Connected = TypeVar("Connected", bound=sqlite3.Connection)

_DURABILITY: dict[str, str] = {
    "full": "An acknowledged write survives a crash of the process and of the machine, and power loss as far "
    "as the disk keeps what it says it has written (SQLite WAL, synchronous=FULL).",
    "normal": "An acknowledged write survives a crash of the process; a crash of the machine or power loss "
    "may take the last ones back (SQLite WAL, synchronous=NORMAL).",
}

# A reader is through in milliseconds; whoever closes waits for a long list, not for one that hangs.
_CLOSE_S = 5.0


class SqliteStore(Store):
    """Opens the file, or makes it. Raises OpenError, StoreCorrupt or StoreUnavailable if that cannot be."""

    name = "sqlite"
    transactional = True

    def __init__(
        self,
        path: str,
        *,
        clock: Clock = SYSTEM,
        durability: Durability = "full",
        audit_on: bool = True,
        busy_s: float = 5.0,
        shared: bool = False,
    ) -> None:
        super().__init__()
        if durability not in _DURABILITY:
            raise OpenError(
                f"There is no durability {durability!r}; nothing was created.",
                corrective_action="Use full or normal.",
            )
        # Absolute, so that a later chdir does not move the store.
        self.path = os.path.abspath(path)
        self.clock = clock
        self.audit = audit_on
        self._mode: Durability = durability
        self._busy_s = busy_s
        self._usable = self._open = True
        connection, self._secret_key = open_database(
            self.path, durability, clock, busy_s, statements.SCHEMAS, shared=shared
        )
        self._place = FileIdentity(self.path)
        self._readers = Readers(self._connect, busy_s)
        self._performer = Performer(self)
        self._writer = CommitBatcher(
            self._connect, connection, self._place, self._performer, self.waiters, busy_s
        )
        self._watcher = FileWatcher(self._connect, clock, self.waiters)
        forks.register(self)
        _unflushed.add(self)

    @property
    def durability(self) -> str:
        return _DURABILITY[self._mode]

    @property
    def secret_key(self) -> bytes:
        return self._secret_key

    @property
    def commits(self) -> int:
        """How many transactions this process has committed: fewer than commands when callers share them."""
        return self._writer.commits

    # --- commands --------------------------------------------------------------------------------

    def perform(self, command: Command) -> Reply:
        writer, kind = self._writer, type(command)
        with alone():
            if kind is Look and not writer.owed:
                record = self._look(command.at, command)  # type: ignore[union-attr]
                return Reply(record, self.clock.now_us(), False)
            if kind is Claim and writer.worth_a_look():
                # A look beside the leader may answer it.
                record = self._look(command.request.at, command)  # type: ignore[union-attr]
                now_us = self.clock.now_us()
                if record is not None and apply(record, command, now_us) is None:
                    return Reply(record, now_us, False)
                reply: Reply = writer.perform(CommandToWrite(command))
            else:
                reply = writer.perform(CommandToCommit(command))
        return reply

    async def aperform(self, command: Command) -> Reply:
        reply: Reply = await self._writer.aperform(CommandToCommit(command))
        return reply

    @entering
    def submit(self, command: Command) -> None:
        self._writer.submit(CommandToCommit(command))

    def _look(self, at: Address, command: Command) -> Record | None:
        try:
            row = self._readers.row(statements.LOOK, plain(at))
        except sqlite3.Error as error:
            raise trouble.translated(error, command) from error
        return None if row is None else record_of(row)

    @entering
    def begin(self, *, asynchronous: bool) -> Transaction:
        return SqliteTransaction(
            self._connect_to_lend,
            self._performer,
            self.waiters,
            self._busy_s,
            self._place.check,
            asynchronous=asynchronous,
        )

    # --- queries ---------------------------------------------------------------------------------

    @entering
    def ask(self, query: Query[T]) -> T:
        answer = queries.ANSWERS.get(type(query))
        if answer is None:
            return cast(T, self._writer.perform(CommandToCommit(query)))
        if self._writer.owed:
            self._writer.flush()
        try:
            return cast(T, self._readers.use(lambda reader: answer(reader, query, self.clock.now_us())))
        except sqlite3.Error as error:
            raise trouble.translated(error, query) from error

    async def aask(self, query: Query[T]) -> T:
        if type(query) in queries.ANSWERS:
            return await asyncio.to_thread(self.ask, query)
        return cast(T, await self._writer.aperform(CommandToCommit(query)))

    # --- around ----------------------------------------------------------------------------------

    @entering
    def watch(self) -> None:
        self._watcher.start()

    @entering
    def findings(self) -> list[Finding]:
        def look_at(reader: sqlite3.Connection) -> list[Finding]:
            return findings.of(reader, self.path, self._mode, self.audit, self.clock.now_us())

        try:
            return self._readers.use(look_at)
        except sqlite3.Error as error:
            raise trouble.translated(error) from error

    @entering
    def flush(self) -> None:
        """What was submitted before is carried out."""
        if self._open:
            self._writer.flush()

    @entering
    def close(self) -> None:
        self._open = False
        self._writer.close()
        self._watcher.close()
        self._readers.close(SYSTEM.monotonic() + _CLOSE_S)

    def _connect(self) -> sqlite3.Connection:
        return self._at_its_place(lambda: connect(self.path, self._mode, self._busy_s))

    def _connect_to_lend(self) -> LentConnection:
        return self._at_its_place(lambda: connect_as(LentConnection, self.path, self._mode, self._busy_s))

    def _at_its_place(self, connecting: Callable[[], Connected]) -> Connected:
        self._refuse_in_a_child()
        # Before, because SQLite would make what is missing; and after, because it may have gone meanwhile.
        self._place.check()
        refuse_lost_log(self.path, self._busy_s)
        connection = connecting()
        try:
            self._place.check()
        except BaseException:
            sqlite3.Connection.close(connection)
            raise
        return connection

    def _refuse_in_a_child(self) -> None:
        if not self._usable:
            raise StoreUnavailable(
                "This process was forked while the store was in use, so it cannot use it; nothing was done.",
                corrective_action="Fork before the ledger is busy, or start processes by spawning.",
            )

    # --- forks -----------------------------------------------------------------------------------

    def pause(self, give_up_at: float) -> bool:
        if not self._writer.pause(give_up_at):
            return False
        if not self._readers.pause(give_up_at):
            self._writer.resume()
            return False
        self._watcher.pause()
        return True

    def resume(self) -> None:
        self._watcher.resume()
        self._readers.resume()
        self._writer.resume()

    def renew(self, *, usable: bool) -> None:
        self._usable = usable
        self.waiters = Waiters()
        self._readers.renew()
        self._writer.renew(self.waiters)
        self._watcher.renew(self.waiters)


_unflushed: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    """What a cancelled caller submitted is carried out before the process ends."""
    for store in list(_unflushed):
        try:
            store.flush()
        except Exception:
            pass  # the process ends, and a lease heals what could not be written
