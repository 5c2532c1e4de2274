"""A tool's transaction: what it writes and the settlement of its call, in one commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from semel.gates import entering
from semel.record import Address, Reply, Settle
from semel.stores.base import Waiters
from semel.stores.sqlite import trouble
from semel.stores.sqlite.commands import Performer
from semel.stores.sqlite.connection import patiently
from semel.transaction import End, Transaction


class SqliteTransaction(Transaction):
    """It holds the file's only write lock from the beginning, so nothing that it read can change under it."""

    connection: sqlite3.Connection

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
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
        try:
            self.connection = connect()
            try:
                patiently(lambda: self.connection.execute("BEGIN IMMEDIATE"), busy_s)
            except BaseException:
                self.connection.close()
                raise
        except sqlite3.Error as error:
            raise trouble.translated(error) from error

    @entering
    def settle(self, command: Settle) -> Reply:
        changed: list[Address] = []
        self._end.commit()
        try:
            if not self.connection.in_transaction:
                # The tool ended the transaction itself, and what it did is done.
                self.connection.execute("BEGIN IMMEDIATE")
            reply: Reply = self._performer.perform(self.connection, command, changed)
            self._check_place()
            self.connection.execute("COMMIT" if reply.applied else "ROLLBACK")
        except sqlite3.Error as error:
            raise trouble.translated(error, command) from error
        finally:
            # Closing rolls back what was not committed.
            self.connection.close()
        self._performer.committed(command, reply)
        for at in changed:
            self._waiters.wake(at)
        return reply

    def roll_back(self) -> None:
        if not self._end.roll_back():
            return
        try:
            self.connection.close()
        except sqlite3.Error:
            pass  # a statement that is still running ends with the process, and nothing of it was committed
