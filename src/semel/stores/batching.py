"""Many callers, few batches: whoever comes while others are under way shares the next one.

A synchronous caller that finds capacity runs its own command at once, on its own thread. One that finds none
queues, and the first to finish hands what is queued to one of those who wait, or to a thread of the store's
own where only tasks wait: asynchronous callers never lead, because whoever leads waits for a disk or a
server. What the tasks of a loop ask in one tick goes together: the loop calls for a thread once its other
tasks have come as far as they get, and whoever leads first takes them along.

An interrupt raises in the main thread, between any two steps of it. So that thread runs what is its own and
nothing of others, what is under way is a set and not a count, and finishing may be repeated
(docs/decisions/0026). The lock is never held while a batch is carried out.

How a batch is made and carried out is the store's: `stores/sqlite/writer.py`, `stores/postgres/dispatch.py`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, TypeVar

from semel.errors import SemelError, StoreUnavailable
from semel.kernel.waiting import ServingThread, WaitingThreads, alone, inside, on_main_thread
from semel.stores.base import Waiters, store_closed

# Four times what 64 callers reach: beyond that a batch's fixed cost no longer shows, and latency does.
BATCH_MAX = 128


class QueuedCommand:
    """A command on its way, and who waits for its answer: a thread at a latch, a task, or nobody."""

    __slots__ = ("answer", "batch", "command", "done", "error", "future", "latch", "leads", "loop")

    def __init__(self, command: Any) -> None:
        self.command = command
        self.answer: Any = None
        self.error: SemelError | None = None
        self.done = False  # whether it has its answer, or its error
        self.batch: list[Any] | None = None  # what its thread is to run
        self.latch: threading.Lock | None = None  # opens once there is a batch to run, or the answer
        self.leads = False  # whether the thread at the latch may run what others asked
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None


Q = TypeVar("Q", bound=QueuedCommand)


class Batcher(ABC, Generic[Q]):
    """Commands in, answers out, over a bounded number of batches at a time."""

    thread_name: str  # of the store's own threads
    unit: str  # what carries a batch out, as an error calls it

    def __init__(self, waiters: Waiters, abreast: int) -> None:
        self._abreast = abreast  # so many batches may be under way
        self.renew(waiters)

    def renew(self, waiters: Waiters) -> None:
        """As new, without touching what was open: for the child of a fork."""
        self._waiters = waiters
        self._lock = threading.Lock()
        self._changed = WaitingThreads()
        self._queue: deque[Q] = deque()
        self._running: set[Q] = set()  # the first of each batch that is under way
        self._threads = 0
        self._batches: queue.SimpleQueue[list[Q] | None] = queue.SimpleQueue()
        self._called = False  # whether a thread was told to look into the queue, and has not yet
        self.owed: set[Q] = set()  # submitted by somebody who does not wait
        self._closed = False

    # --- the store's part ------------------------------------------------------------------------

    @abstractmethod
    def _take_alone(self, queued: Q) -> bool:
        """With the lock held: whether nothing under way hinders it. Then it is its thread's batch."""

    @abstractmethod
    def _take(self) -> list[Q]:
        """With the lock held: what goes together next, out of the queue; empty if that has to wait.

        Never called on the main thread, where an interrupt in the middle would lose what others asked.
        """

    def _take_along(self, batch: list[Q]) -> None:
        """The batch was handed over a moment ago: what came meanwhile may join it. Not on the main thread."""

    @abstractmethod
    def _set_free(self, batch: list[Q]) -> None:
        """With the lock held: what waited for this batch may be taken. May be repeated."""

    @abstractmethod
    def _carry_out(self, batch: list[Q]) -> None:
        """Every command of the batch is done, durably. If it raises, those that are not may be repeated."""

    @abstractmethod
    def _one_is_to_blame(self, error: Exception) -> bool:
        """Whether the others of a batch that failed so may do better alone."""

    @abstractmethod
    def _error_of(self, error: Exception, command: Any) -> SemelError:
        """The error as the command's caller should see it."""

    # --- coming in -------------------------------------------------------------------------------

    def perform(self, queued: Q) -> Any:
        """The command's answer, once it is durable; where there is capacity, by the caller's own thread."""
        try:
            latch: threading.Lock | None = None
            with self._lock:
                if self._closed:
                    raise store_closed()
                if not self._queue and len(self._running) < self._abreast and self._take_alone(queued):
                    self._running.add(queued)
                else:
                    latch = self._come_in(queued)
            if latch is None:
                self._run_alone(queued)
            else:
                latch.acquire()
                if queued.batch is not None:
                    if self._queue:
                        self._take_along(queued.batch)
                    self._run(queued.batch)
                    self._finish(queued.batch, queued)
        except BaseException:
            self._abandon(queued)
            raise
        if queued.error is not None:
            raise queued.error
        return queued.answer

    def _run_alone(self, queued: Q) -> None:
        """Its answer or its error is there, and what was queued meanwhile is on its way.

        As `_run` and `_finish`, for a batch of which nobody else waits for anything.
        """
        batch: Any = queued.batch
        try:
            self._carry_out(batch)
        except Exception as error:
            if not queued.done:
                queued.error = self._error_of(error, queued.command)
        with self._lock:
            self._running.discard(queued)
            self._set_free(batch)
            if self._queue:
                self._go_on()
        self._changed.wake()

    def _come_in(self, queued: Q) -> threading.Lock:
        """With the lock held: it is queued, and here is the latch to wait at."""
        latch = queued.latch = threading.Lock()
        latch.acquire()
        queued.leads = not on_main_thread()
        self._queue.append(queued)
        self._go_on()
        return latch

    async def aperform(self, queued: Q) -> Any:
        """The same for a task. Once it is queued it is carried out, whatever becomes of the task."""
        loop = queued.loop = asyncio.get_running_loop()
        queued.future = loop.create_future()
        with alone(), self._lock:
            if self._closed:
                raise store_closed()
            self._queue.append(queued)
            if not self._called and len(self._running) < self._abreast:
                # With every command: a call that an interrupt of the loop swallowed is made good by the next.
                loop.call_soon(self._tick)
        return await queued.future

    def _tick(self) -> None:
        if self._called or not self._queue:
            return  # as for all but the first of the tasks that came in one tick
        with inside(), self._lock:
            if self._queue and len(self._running) < self._abreast:
                self._send([])

    def submit(self, queued: Q) -> None:
        """It is carried out, though nobody waits for it."""
        with self._lock:
            if self._closed:
                raise store_closed()
            self._queue.append(queued)
            self.owed.add(queued)
            self._go_on()

    def _abandon(self, queued: Q) -> None:
        """The caller was interrupted: its command goes its way, but nobody counts on its thread any more."""
        with self._lock:
            queued.latch, batch = None, queued.batch
            self._go_on()
        if batch is not None:
            self._finish(batch, queued)

    # --- who runs what ---------------------------------------------------------------------------

    def _go_on(self) -> None:
        """With the lock held: as much of the queue as may be is on its way, or will be soon."""
        if not self._queue or len(self._running) >= self._abreast:
            return
        if not on_main_thread():
            while batch := self._next_batch():
                self._send(batch)
        elif not self._called:
            self._send([])

    def _next_batch(self) -> list[Q]:
        """With the lock held: a batch, under way now, that a thread of the store's own has to run.

        What a thread that waits for one of its commands can run is handed to that thread.
        """
        while self._queue and len(self._running) < self._abreast and (batch := self._take()):
            self._running.add(batch[0])
            for queued in batch:
                if queued.leads and queued.latch is not None:
                    queued.batch = batch
                    queued.latch.release()
                    break
            else:
                return batch
        return []

    def _send(self, batch: list[Q]) -> None:
        """With the lock held: a thread of the store's own runs it, or looks into the queue if it is empty."""
        if self._threads < self._abreast:
            # Counted once it runs: one thread too many does no harm.
            ServingThread(target=self._serve, name=self.thread_name, daemon=True).start()
            self._threads += 1
        self._batches.put(batch)
        if not batch:
            self._called = True  # last: one call too many does no harm, one too few would

    def _serve(self) -> None:
        batches = self._batches
        while (batch := batches.get()) is not None:
            if not batch:
                with self._lock:
                    self._called = False
                    batch = self._next_batch()
                    if self._queue:
                        self._go_on()
            elif self._queue:
                self._take_along(batch)
            if batch:
                try:
                    self._run(batch)
                finally:
                    self._finish(batch, None)
        batches.put(None)  # the others end as well

    # --- carrying out, and telling ---------------------------------------------------------------

    def _run(self, batch: list[Q]) -> None:
        """Every command of the batch has its answer, durably, or its error."""
        try:
            self._carry_out(batch)
        except Exception as error:
            if len(batch) > 1 and self._one_is_to_blame(error):
                for queued in batch:  # each alone, so that the others succeed
                    if not queued.done:
                        self._run([queued])
                return
            for queued in batch:
                if not queued.done:
                    queued.error = self._error_of(error, queued.command)
                    queued.done = True

    def _finish(self, batch: list[Q], runner: Q | None) -> None:
        """Every answer is with whoever waits for it, and what was queued meanwhile is on its way.

        May be repeated: whoever was interrupted in the middle of it begins anew.
        """
        by_loop: dict[asyncio.AbstractEventLoop, list[Q]] = {}
        with self._lock:
            self._running.discard(batch[0])
            self._set_free(batch)
            if self._queue:
                self._go_on()
            for queued in batch:
                if not queued.done:
                    # Only an interrupt of the running thread gets here: what became of it is unknown.
                    queued.error = StoreUnavailable(
                        f"The {self.unit} was interrupted; nothing was acknowledged."
                    )
                    queued.done = True
                self.owed.discard(queued)
                if queued.loop is not None:
                    by_loop.setdefault(queued.loop, []).append(queued)
                elif queued.latch is not None and queued is not runner:
                    latch, queued.latch = queued.latch, None
                    latch.release()
        self._changed.wake()
        for loop, commands in by_loop.items():
            try:
                loop.call_soon_threadsafe(_arrive, commands)
            except RuntimeError:
                pass  # the loop was closed: what was asked is done, and nobody is left to be told

    # --- the end ---------------------------------------------------------------------------------

    def _end(self, within_s: float) -> bool:
        """Whether it had not ended before. Nothing is taken any more, and what is queued is carried out,
        unless that takes longer.
        """
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            self._go_on()
        self._changed.wait(self._idle, within_s)
        self._batches.put(None)
        return True

    def _idle(self) -> bool:
        with self._lock:
            return not self._running and not self._queue


def _arrive(commands: list[Any]) -> None:
    """On the loop's own thread: their tasks go on."""
    for queued in commands:
        if queued.future.done():
            continue  # the task was cancelled meanwhile
        if queued.error is not None:
            queued.future.set_exception(queued.error)
        else:
            queued.future.set_result(queued.answer)
