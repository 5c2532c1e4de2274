"""Group commit: what is queued goes into one transaction, and only one of them is under way at a time.

`stores/batching.py` says who carries a batch out; here is how.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from math import inf
from typing import Any

from semel.errors import SemelError
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Claim, Look, Record, Reply, Settle, apply
from semel.stores.base import Waiters
from semel.stores.batching import BATCH_MAX, Batcher, QueuedCommand
from semel.stores.sqlite import trouble
from semel.stores.sqlite.commands import EventRow, Performer, look
from semel.stores.sqlite.connection import let_log_grow, patiently, shorten_log
from semel.stores.sqlite.file_identity import FileIdentity

# SQLite has one writer.
_ABREAST = 1

# A look at the log's length costs as much as a statement: not with every commit.
_COMMITS_PER_LOOK = 32

# With so many waiting for the next commit, reading beside them takes the interpreter from its leader at every
# statement: 64 threads get a third more done without. With fewer, an answer at once is worth more.
_CROWD = 4


class CommandToCommit(QueuedCommand):
    """A command or a writing query; None is answered once all before it are."""

    __slots__ = ()
    looked = False  # whether its caller has read the record, and found that it has to be written


class CommandToWrite(CommandToCommit):
    __slots__ = ()
    looked = True


class CommitBatcher(Batcher[CommandToCommit]):
    """The one place of a process where the database is written."""

    thread_name = "semel-sqlite-writer"
    unit = "commit"

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        connection: sqlite3.Connection,
        place: FileIdentity,
        performer: Performer,
        waiters: Waiters,
        busy_s: float,
    ) -> None:
        self._connect = connect
        self._place = place
        self._performer = performer
        self._busy_s = busy_s
        self.commits = 0
        self._looks_at = _COMMITS_PER_LOOK  # so many commits, and the log is looked at
        self._shared = 0  # by so many commands, since then
        super().__init__(waiters, _ABREAST)
        self._connection: sqlite3.Connection | None = connection
        place.log_opened()

    def renew(self, waiters: Waiters) -> None:
        super().renew(waiters)
        self._abreast = _ABREAST
        self._connection = None
        self._place.log_closed()
        self._crowded = False  # whether many have shared commits on this connection
        self._held_up = False  # whether the leader waits for another process
        self._taken = 0  # how many are out of the queue, and their commit has not begun
        self.expects_records = False  # whether the last claim met one: then the next is looked up first

    def worth_a_look(self) -> bool:
        """Whether a caller that may only have to read should read beside the leader, and not queue."""
        if not self._running or self.owed:
            return False
        return self._held_up or (self.expects_records and self._taken + len(self._queue) < _CROWD)

    # --- which batch -----------------------------------------------------------------------------

    def _take_alone(self, queued: CommandToCommit) -> bool:
        queued.batch = [queued]
        return True

    def _take(self) -> list[CommandToCommit]:
        queue = self._queue
        if len(queue) > BATCH_MAX:
            batch = [queue.popleft() for _ in range(BATCH_MAX)]
        else:
            batch = list(queue)
            queue.clear()
        self._taken = len(batch)
        return batch

    def _take_along(self, batch: list[CommandToCommit]) -> None:
        # A commit's price hardly depends on its size: four threads share it by 2.4 on average, else by 2.
        with self._lock:
            while self._queue and len(batch) < BATCH_MAX:
                batch.append(self._queue.popleft())

    def _set_free(self, batch: list[CommandToCommit]) -> None:
        """Nothing waits for a particular batch."""

    # --- the transaction -------------------------------------------------------------------------

    def _carry_out(self, batch: list[CommandToCommit]) -> None:
        self._taken = 0
        connection = self._connection
        if connection is None:
            connection = self._open_connection()
        looks = self.expects_records
        writing = self._answer_reads(connection, batch)
        if not writing:
            return
        # Whether the first of them may be a claim that a look would answer, and nobody has looked.
        unseen = not looks and type(writing[0].command) is Claim and not writing[0].looked
        changed: list[Address] = []
        try:
            # Inside, because an interrupt may come between the transaction's beginning and here.
            self._begin(connection, patient=not unseen)
            before = connection.total_changes
            performer = self._performer
            events: list[EventRow] | None = None if len(writing) == 1 else []
            for queued in writing:
                queued.answer = performer.perform(connection, queued.command, changed, events)
            if events:
                performer.write_events(connection, events)
            if connection.total_changes == before:
                connection.execute("ROLLBACK")
            else:
                # Last of all: a file that moves from here on moves with what is acknowledged.
                self._place.check()
                unseen = False
                connection.execute("COMMIT")
                self.commits += 1
        except BaseException as error:
            self._roll_back(connection)
            if not unseen or not isinstance(error, sqlite3.Error):
                raise
            # What is on record can be read, whatever kept it from being written.
            self.expects_records = True
            self._carry_out(writing)
            return
        self._note_done(writing)
        self._shared += len(writing)
        if self.commits >= self._looks_at:
            self._look_at_log(connection)
        for at in changed:
            self._waiters.wake(at)

    def _look_at_log(self, connection: sqlite3.Connection) -> None:
        if self._shared >= _CROWD * _COMMITS_PER_LOOK and not self._crowded:
            self._crowded = True
            let_log_grow(connection)
        self._looks_at, self._shared = self.commits + _COMMITS_PER_LOOK, 0
        shorten_log(connection, self._place.log_path)
        self._place.distrust()

    def _note_done(self, written: list[CommandToCommit]) -> None:
        committed = self._performer.committed
        for queued in written:
            command, answer = queued.command, queued.answer
            kind = type(command)
            if kind is Claim:
                self.expects_records = not answer.applied
            if kind is Claim or kind is Settle:
                committed(command, answer)
            queued.done = True

    def _one_is_to_blame(self, error: Exception) -> bool:
        return not trouble.busy(error)

    def _error_of(self, error: Exception, command: Any) -> SemelError:
        return trouble.translated(error, command)

    def _open_connection(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            # Reading opens the log.
            patiently(lambda: connection.execute("PRAGMA schema_version").fetchone(), self._busy_s)
        except BaseException:
            connection.close()
            raise
        self._place.log_opened()
        self._crowded = False
        self._connection = connection
        return connection

    def _begin(self, connection: sqlite3.Connection, *, patient: bool) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not patient or not trouble.busy(error):
                raise
            self._held_up = True
            try:
                patiently(lambda: connection.execute("BEGIN IMMEDIATE"), self._busy_s)
            finally:
                self._held_up = False

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            # Closing rolls back as well; the next batch opens another.
            self._close_connection()

    def _answer_reads(
        self, connection: sqlite3.Connection, batch: list[CommandToCommit]
    ) -> list[CommandToCommit]:
        """What is left from the first write on: a read behind a write has to see it."""
        for position, queued in enumerate(batch):
            if not self._only_reads(connection, queued):
                return batch[position:] if position else batch
            queued.done = True
        return []

    def _only_reads(self, connection: sqlite3.Connection, queued: CommandToCommit) -> bool:
        """Whether a look answers it: then no transaction is opened for it."""
        command = queued.command
        kind = type(command)
        if kind is Claim:
            if queued.looked or not self.expects_records:
                return False
            record = self._look(connection, command.request.at)
            now_us = self._performer.now_us()
            self.expects_records = record is not None
            if record is None or apply(record, command, now_us) is not None:
                return False
        elif kind is Look:
            record = self._look(connection, command.at)
            now_us = self._performer.now_us()
        else:
            return command is None
        queued.answer = Reply(record, now_us, False)
        return True

    def _look(self, connection: sqlite3.Connection, at: Address) -> Record | None:
        try:
            return look(connection, at)
        except sqlite3.OperationalError as error:
            if not trouble.busy(error):
                raise
            return patiently(lambda: look(connection, at), self._busy_s)

    # --- fork and close --------------------------------------------------------------------------

    def pause(self, give_up_at: float) -> bool:
        """Whether nothing is under way, and nothing will be until `resume`; the connection is closed."""
        with self._lock:
            self._abreast = 0
        if not self._changed.wait(lambda: not self._running, give_up_at - SYSTEM.monotonic()):
            self.resume()
            return False
        self._close_connection()
        return True

    def resume(self) -> None:
        """Who waited for the pause to end goes on."""
        with self._lock:
            self._abreast = _ABREAST
            self._go_on()

    def flush(self) -> None:
        """What was queued before this call is carried out."""
        self.perform(CommandToCommit(None))

    def close(self) -> None:
        """What is queued is carried out, and nothing is taken any more."""
        if self._end(inf):
            self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._place.log_closed()
        if connection is not None:
            connection.close()
