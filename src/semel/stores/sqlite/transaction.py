"""A tool's transaction: what it writes and the settlement of its call, in one commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from semel.contract.transaction import End, Transaction, TransactionBroken
from semel.kernel.record import Address, Reply, Settle
from semel.kernel.waiting import entering
from semel.stores.base import Waiters
from semel.stores.sqlite import trouble
from semel.stores.sqlite.commands import Performer
from semel.stores.sqlite.connection import patiently
from semel.stores.sqlite.lent import LentConnection


class SqliteTransaction(Transaction):
    """It holds the file's only write lock from the beginning, so nothing that it read can change under it."""

    connection: LentConnection

    def __init__(
        self,
        connect: Callable[[], LentConnection],
        performer: Performer,
        waiters: Waiters,
        busy_s: float,
        check_place: Callable[[], None],
        *,
        asynchronous: bool,
    ) -> None:
        self._performer = performer
        self._waiters = waiters
        self._check_place = check_place
        self._end = End(asynchronous=asynchronous)
        # There for as long as the transaction that is begun here, and not in one that follows it.
        self._mark = f"semel_{performer.token().hex()}"
        try:
            self.connection = connect()
            try:
                patiently(lambda: self.connection.execute("BEGIN IMMEDIATE"), busy_s)
                self.connection.execute(f"SAVEPOINT {self._mark}")
                self.connection.lend()
            except BaseException:
                self.connection.give_up()
                raise
        except sqlite3.Error as error:
            raise trouble.translated(error) from error

    @entering
    def settle(self, command: Settle) -> Reply:
        changed: list[Address] = []
        self._end.commit()
        try:
            self._take_back()
            reply: Reply = self._performer.perform(self.connection, command, changed)
            self._check_place()
            self.connection.execute("COMMIT" if reply.applied else "ROLLBACK")
        except sqlite3.Error as error:
            raise trouble.translated(error, command) from error
        finally:
            # Closing rolls back what was not committed.
            self.connection.give_up()
        self._performer.committed(command, reply)
        for at in changed:
            self._waiters.wake(at)
        return reply

    def _take_back(self) -> None:
        self.connection.take_back()
        try:
            self.connection.execute(f"RELEASE {self._mark}")
        except sqlite3.OperationalError as error:
            if trouble.code_of(error) != sqlite3.SQLITE_ERROR:
                raise
            raise TransactionBroken from error

    def roll_back(self) -> None:
        if not self._end.roll_back():
            return
        # Where none is open any more, SQLite has rolled it back for an error; what came after was refused.
        try:
            self.connection.give_up()
        except sqlite3.Error:
            pass  # a statement that is still running ends with the process, and nothing of it was committed
