"""Group commit: whoever comes while a commit is under way shares the next one.

One caller at a time leads: it takes what is queued, runs it in one transaction, hands the answers out and
passes the lead on. A synchronous caller that finds nobody leading leads at once, on its own thread. One that
finds somebody leading queues, and is either served by that leader's successor or becomes it. Asynchronous
callers never lead, because a leader waits for the disk: a thread that is started with the first of them leads
for them.

An event loop rings for that thread once its other tasks have come as far as they get: then one commit serves
them all, and the thread does not fight with them for the interpreter. Until then their commands are queued,
and whoever leads first takes them along. While nobody leads, nothing else is queued; the lock guards just
that and is never held during I/O.

An interrupt raises in the main thread, between any two steps of it: so that thread leads for itself only, and
others never wait for it to go on.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from semel.errors import SemelError, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Claim, Look, Record, Reply, apply
from semel.kernel.waiting import ServingThread, alone, inside, on_main_thread
from semel.stores.base import Waiters
from semel.stores.sqlite import trouble
from semel.stores.sqlite.commands import Performer, look
from semel.stores.sqlite.connection import patiently, shorten_log
from semel.stores.sqlite.place import FilePlace

# Four times what 64 callers reach: beyond that a commit's fixed cost no longer shows, and latency does.
BATCH_MAX = 128

# A look at the log's length costs as much as a statement: not with every commit.
_COMMITS_PER_LOOK = 32

# With so many waiting for the next commit, reading beside them takes the interpreter from its leader at every
# statement: 64 threads get a third more done without. With fewer, an answer at once is worth more.
_CROWD = 4

# How often a fork asks whether the present leader is through.
_ASK_AGAIN_S = 0.0002


class Work:
    """A command on its way, and who waits for its answer: a thread at a gate, a task, or nobody."""

    __slots__ = (
        "alone",
        "answer",
        "command",
        "done",
        "error",
        "future",
        "gate",
        "leads",
        "looked",
        "loop",
        "owed",
    )

    def __init__(self, command: Any, *, looked: bool = False, owed: bool = False) -> None:
        self.command = command
        self.looked = looked  # the caller has read the record already and found that it has to write
        self.owed = owed  # submitted by somebody who does not wait
        self.answer: Any = None
        self.error: SemelError | None = None
        self.done = False
        self.leads = False
        self.alone = False  # it leads for nobody else
        self.gate: threading.Lock | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


class Writer:
    """The one place of a process where the database is written."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        connection: sqlite3.Connection,
        place: FilePlace,
        performer: Performer,
        waiters: Waiters,
        busy_s: float,
    ) -> None:
        self._connect = connect
        self._place = place
        self._performer = performer
        self._waiters = waiters
        self._busy_s = busy_s
        self.commits = 0
        self.renew(waiters)
        self._connection: sqlite3.Connection | None = connection
        place.log_opened()

    def renew(self, waiters: Waiters) -> None:
        """As new, without touching what was open: for the child of a fork."""
        self._waiters = waiters
        self._lock = threading.Lock()
        self._queue: deque[Work] = deque()
        self.leading = False  # whether somebody does
        self._paused = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._bell = threading.Lock()
        self._bell.acquire()
        self._connection = None
        self._place.log_closed()
        self._held_up = False  # whether the leader waits for another process
        self.owed = 0  # submitted and not yet carried out

    def worth_a_look(self) -> bool:
        """Whether a caller that may only have to read should read beside the leader, and not queue."""
        return self.leading and not self.owed and (self._held_up or len(self._queue) < _CROWD)

    # --- coming in -------------------------------------------------------------------------------

    def perform(self, command: Any, *, looked: bool = False) -> Any:
        """The command's answer, after its commit; alone this takes no thread but the caller's."""
        work = Work(command, looked=looked)
        try:
            with self._lock:
                if self._closed:
                    raise trouble.closed()
                self._come_in(work)
            self._carry_out(work)
        except BaseException:
            self._abandon(work)
            raise
        return work.result()

    async def aperform(self, command: Any) -> Any:
        work = Work(command)
        work.loop = asyncio.get_running_loop()
        work.future = work.loop.create_future()
        with alone():
            if self._enqueue(work):
                work.loop.call_soon(self._ring)
        return await work.future

    def submit(self, command: Any) -> None:
        self._enqueue(Work(command, owed=True))
        self._ring()

    def _come_in(self, work: Work) -> None:
        """It is queued, and leads if nobody does and it may."""
        work.alone = on_main_thread()
        if self.leading or self._paused or (work.alone and self._queue):
            work.gate = threading.Lock()
            work.gate.acquire()
        else:
            self.leading = work.leads = True
            if work.alone:
                return
        self._queue.append(work)
        if not self.leading and not self._paused:
            self._call_the_thread()

    def _carry_out(self, work: Work) -> None:
        """It is done: by another leader, or by leading."""
        if (gate := work.gate) is not None:
            gate.acquire()
        while not work.done:
            self._lead([work] if work.alone else self._take(), work)

    def _enqueue(self, work: Work) -> bool:
        """Whether somebody has to ring, because nobody leads."""
        with self._lock:
            if self._closed:
                raise trouble.closed()
            self.owed += work.owed
            self._queue.append(work)
            return not self.leading

    def _ring(self) -> None:
        """What is queued is being served, or will be after the pause."""
        with inside(), self._lock:
            if not self.leading and not self._paused and self._queue:
                self._call_the_thread()

    def _call_the_thread(self) -> None:
        """With the lock held: the thread that serves event loops leads."""
        self._start_thread()
        self.leading = True  # and nothing between this and the bell, where an interrupt would lose the lead
        self._bell.release()

    def _abandon(self, work: Work) -> None:
        """The caller was interrupted: its command stays queued, if it is, but nobody waits for it to lead."""
        with self._lock:
            work.gate = None
        if work.leads:
            self._pass_on(work)

    # --- leading ---------------------------------------------------------------------------------

    def _take(self) -> list[Work]:
        with self._lock:
            queue = self._queue
            if len(queue) > BATCH_MAX:
                return [queue.popleft() for _ in range(BATCH_MAX)]
            batch = list(queue)
            queue.clear()
            return batch

    def _lead(self, batch: list[Work], leader: Work) -> None:
        try:
            self._run(batch)
        except BaseException:
            self._finish(batch)
            raise
        finally:
            try:
                if leader.done:
                    self._pass_on(leader)
            finally:
                if batch != [leader]:
                    self._deliver(batch, leader)

    def _finish(self, batch: list[Work]) -> None:
        for work in batch:
            if not work.done:
                # Only an interrupt of the leader gets here; whether the commit was made is unknown.
                work.error = StoreUnavailable("The commit was interrupted; nothing was acknowledged.")
                work.done = True

    def _pass_on(self, leader: Work) -> None:
        """Someone else leads from here on, or nobody and nothing is queued that a pause does not hold."""
        with self._lock:
            # The leader leads until its successor is known: an interrupt on the way must not lose the lead.
            gate = None if self._paused or not self._queue else self._next_gate()
            leader.leads = False
            if gate is None:
                self.leading = False
            else:
                gate.release()

    def _next_gate(self) -> threading.Lock:
        """Where the next leader waits: the first waiting thread, else the one that serves event loops."""
        for work in self._queue:
            if work.gate is not None and not work.alone:
                work.leads = True
                return work.gate
        self._start_thread()
        return self._bell

    def _deliver(self, batch: list[Work], leader: Work | None) -> None:
        """Every answer to whoever waits for it; an event loop is woken once for all of its tasks."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
        owed = 0
        for work in batch:
            if work is leader:
                continue
            if work.loop is not None:
                by_loop.setdefault(work.loop, []).append(work)
            elif (gate := work.gate) is not None:
                gate.release()
            owed += work.owed
        for loop, works in by_loop.items():
            try:
                loop.call_soon_threadsafe(_arrive, works)
            except RuntimeError:
                pass  # the loop was closed: what was asked is done, and nobody is left to be told
        if owed:
            with self._lock:
                self.owed -= owed

    # --- the thread that leads for event loops ---------------------------------------------------

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = ServingThread(target=self._serve, name="semel-sqlite-writer", daemon=True)
            thread.start()
            self._thread = thread  # once it runs: one too many, after an interrupt, does no harm

    def _serve(self) -> None:
        while True:
            self._bell.acquire()
            if self._closed and not self._queue:
                return
            while self._keep_leading():
                batch = self._take()
                self._run(batch)
                self._deliver(batch, None)

    def _keep_leading(self) -> bool:
        with self._lock:
            if self._queue and not self._paused:
                return True
            self.leading = False
            return False

    # --- the transaction -------------------------------------------------------------------------

    def _run(self, batch: list[Work]) -> None:
        """Every work of the batch is done: it has its answer, durably, or its error."""
        changed: list[Address] = []
        try:
            self._attempt(batch, changed)
        except Exception as error:
            if len(batch) > 1 and not trouble.busy(error):
                # One of them may be to blame, and the others have not deserved it.
                for work in batch:
                    if not work.done:
                        self._run([work])
                return
            for work in batch:
                work.error = None if work.done else trouble.translated(error, work.command)
        for work in batch:
            work.done = True
        for at in changed:
            self._waiters.wake(at)

    def _attempt(self, batch: list[Work], changed: list[Address]) -> None:
        connection = self._connection
        if connection is None:
            connection = self._open_connection()
        writing = self._answer_reads(connection, batch)
        if not writing:
            return
        try:
            # Inside, because an interrupt may come between the transaction's beginning and here.
            self._begin(connection)
            for work in writing:
                work.answer = self._performer.perform(connection, work.command, changed)
            # Last of all: a file that moves from here on moves with what is acknowledged.
            self._place.check()
            connection.execute("COMMIT")
        except BaseException:
            changed.clear()
            self._roll_back(connection)
            raise
        self.commits += 1
        for work in writing:
            self._performer.committed(work.command, work.answer)
        if self.commits % _COMMITS_PER_LOOK == 0:
            shorten_log(connection, self._place.log_path)

    def _open_connection(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            # Reading opens the log.
            patiently(lambda: connection.execute("PRAGMA schema_version").fetchone(), self._busy_s)
        except BaseException:
            connection.close()
            raise
        self._place.log_opened()
        self._connection = connection
        return connection

    def _begin(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not trouble.busy(error):
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

    def _answer_reads(self, connection: sqlite3.Connection, batch: list[Work]) -> list[Work]:
        """What is left from the first write on: a read behind a write has to see it."""
        for position, work in enumerate(batch):
            if not self._only_reads(connection, work):
                return batch[position:] if position else batch
            work.done = True
        return []

    def _only_reads(self, connection: sqlite3.Connection, work: Work) -> bool:
        """Whether a look answers it: then no transaction is opened for it."""
        command = work.command
        kind = type(command)
        if work.looked or (kind is not Claim and kind is not Look):
            return command is None
        record = self._look(connection, command.asked.at if kind is Claim else command.at)
        now_us = self._performer.now_us()
        if kind is Claim and (record is None or apply(record, command, now_us) is not None):
            return False
        work.answer = Reply(record, now_us, False)
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
        """Whether nobody leads, and nobody will until `resume`; the connection is closed."""
        with self._lock:
            self._paused = True
        while not self._lead_nothing():
            if SYSTEM.monotonic() > give_up_at:
                self._give_up_pause()
                return False
            SYSTEM.sleep(_ASK_AGAIN_S)
        self._close_connection()
        return True

    def _lead_nothing(self) -> bool:
        with self._lock:
            free, self.leading = not self.leading, True
            return free

    def _give_up_pause(self) -> None:
        with self._lock:
            self._paused = False
            if self.leading or not self._queue:
                return
            self.leading = True
        self._pass_on(Work(None))

    def resume(self) -> None:
        """Who waited for the pause to end goes on."""
        with self._lock:
            self._paused = False
        self._pass_on(Work(None))

    def flush(self) -> None:
        """What was queued before this call is carried out."""
        self.perform(None)

    def close(self) -> None:
        """What is queued is carried out, and nothing is taken any more."""
        last = Work(None)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._come_in(last)
        self._carry_out(last)
        self._close_connection()
        if self._thread is not None:
            self._bell.release()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._place.log_closed()
        if connection is not None:
            connection.close()


def _arrive(works: list[Work]) -> None:
    for work in works:
        future = work.future
        assert future is not None
        if future.done():
            continue  # the task was cancelled meanwhile
        if work.error is not None:
            future.set_exception(work.error)
        else:
            future.set_result(work.answer)
