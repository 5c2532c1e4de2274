"""Many callers, few statements: whoever comes while others are under way shares the next statement.

A synchronous caller that finds room runs its own command at once, on its own thread. One that finds none
queues, and the first to finish hands everything queued to one of those who wait, or to a thread of the
store's own where only tasks wait: asynchronous callers never wait for a socket. What the tasks of a loop ask
in one tick goes out together.

Commands for one record never run side by side, so they keep the order in which they came; that holds for a
claim whose task was cancelled and the release that follows it. Nor do commits of one tenant's documents: they
would wait for each other on the server; here they gather for the next transaction.

An interrupt raises in the main thread, between any two steps of it. So that thread runs what is its own and
nothing of others, what is under way is told by sets and not by counts, and finishing may be repeated.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from semel.errors import SemelError, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Command, Reply
from semel.kernel.waiting import ServingThread, WaitingThreads, alone, inside, on_main_thread
from semel.stores.base import Waiters
from semel.stores.documents import Commit, Committed
from semel.stores.postgres import trouble
from semel.stores.postgres.commands import Asked, Held, address_of
from semel.stores.postgres.documents import Commits, size_of, turn_of
from semel.stores.postgres.packing import digest
from semel.stores.postgres.pool import Pool
from semel.stores.postgres.trouble import Failure

# Beyond this a statement's fixed cost no longer shows, and latency does.
BATCH_MAX = 128

# Bodies of documents in one transaction: it is over soon, and whoever waits for the tenant's next is let in.
BATCH_BYTES_MAX = 1 << 20

# How often a command is repeated that met a deadlock, or lost its connection to a server that restarted.
_TRIES = 5

# A deadlock's other side is through by then.
_PAUSE_S = 0.01

_CLOSE_S = 10.0


class Work:
    """A command on its way, and who waits for its answer: a thread at a gate, a task, or nobody."""

    __slots__ = (
        "answer",
        "at",
        "batch",
        "command",
        "digest",
        "error",
        "future",
        "gate",
        "leads",
        "loop",
        "size",
    )

    def __init__(self, command: Command | Commit) -> None:
        self.command = command
        self.at: Address | None = None
        self.size = 0
        if type(command) is Commit:
            self.digest = turn_of(command)
            self.size = size_of(command)
        else:
            self.at = address_of(command)
            self.digest = digest(self.at)
        self.answer: Any = None
        self.error: SemelError | None = None
        self.batch: list[Work] | None = None  # what its thread is to run once the gate opens
        self.gate: threading.Lock | None = None
        self.leads = False  # whether the thread at the gate may run what others asked
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Dispatch:
    """Commands in, replies out, over a bounded number of connections."""

    def __init__(
        self,
        pool: Pool,
        common: Callable[[], tuple[bytes | None, ...]],
        waiters: Waiters,
        abreast: int,
        patience_s: float,
    ) -> None:
        self._pool = pool
        self._common = common
        self._abreast = abreast
        self._patience_s = patience_s
        self.newest_event = 0
        self.newest_commit = 0
        self.statements = 0
        self.held = Held()
        self.renew(waiters)

    def renew(self, waiters: Waiters) -> None:
        """As new, without touching what was open: for the child of a fork."""
        self._waiters = waiters
        self._lock = threading.Lock()
        self._changed = WaitingThreads()
        self._queue: deque[Work] = deque()
        self._flying: set[Work] = set()  # the first of each batch that is under way
        self._under_way: dict[bytes, list[Work]] = {}  # and the batch of each digest
        self._threads = 0
        self._batches: queue.SimpleQueue[list[Work] | None] = queue.SimpleQueue()
        self._ticking: set[asyncio.AbstractEventLoop] = set()
        self.owed: set[Work] = set()  # submitted by somebody who does not wait
        self._closed = False

    # --- coming in -------------------------------------------------------------------------------

    def perform(self, command: Command) -> Reply:
        """The command's reply, once it is durable; where there is room, by the caller's own thread."""
        reply: Reply = self._do(Work(command))
        return reply

    async def aperform(self, command: Command) -> Reply:
        reply: Reply = await self._ado(Work(command))
        return reply

    def commit(self, commit: Commit) -> Committed:
        """The same for a commit of documents."""
        answer: Committed = self._do(Work(commit))
        return answer

    async def acommit(self, commit: Commit) -> Committed:
        answer: Committed = await self._ado(Work(commit))
        return answer

    def _do(self, work: Work) -> Any:
        try:
            gate = self._come_in(work)
            if gate is not None:
                gate.acquire()
            if work.batch is not None:
                self._run(work.batch)
                self._finish(work.batch, work)
        except BaseException:
            self._abandon(work)
            raise
        return work.result()

    def _come_in(self, work: Work) -> threading.Lock | None:
        """It is under way, or queued; then there is a gate to wait at."""
        with self._lock:
            self._refuse_if_closed()
            if self._room() and not self._queue and work.digest not in self._under_way:
                work.batch = [work]
                self._depart(work.batch)
                return None
            gate = work.gate = threading.Lock()
            gate.acquire()
            work.leads = not on_main_thread()
            self._queue.append(work)
            self._go_on()
            return gate

    async def _ado(self, work: Work) -> Any:
        loop = work.loop = asyncio.get_running_loop()
        work.future = loop.create_future()
        with alone(), self._lock:
            self._refuse_if_closed()
            self._queue.append(work)
            if loop not in self._ticking:
                loop.call_soon(self._tick, loop)
                self._ticking.add(loop)
        return await work.future

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        with inside(), self._lock:
            self._ticking.discard(loop)
            self._go_on()

    def submit(self, command: Command) -> None:
        with self._lock:
            self._refuse_if_closed()
            work = Work(command)
            self._queue.append(work)
            self.owed.add(work)
            self._go_on()

    def flush(self) -> None:
        """What was submitted before is carried out, or patience is over."""
        self._changed.wait(lambda: not self.owed, self._patience_s)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise trouble.closed()

    def _abandon(self, work: Work) -> None:
        """The caller was interrupted: its command goes its way, but nobody counts on its thread any more."""
        with self._lock:
            work.gate, batch = None, work.batch
            self._go_on()
        if batch is not None:
            self._give_up(batch)
            self._finish(batch, work)

    # --- who runs what ---------------------------------------------------------------------------

    def _room(self) -> bool:
        return len(self._flying) < self._abreast

    def _depart(self, batch: list[Work]) -> None:
        """With the lock held: nothing else is to run at these addresses."""
        self._flying.add(batch[0])
        for work in batch:
            self._under_way[work.digest] = batch

    def _go_on(self) -> None:
        """With the lock held: as much of the queue as there is room for is on its way, or soon will be."""
        if not self._queue or not self._room():
            return
        if on_main_thread():
            self._send([])  # an interrupt in the middle of taking would lose what others asked
        else:
            self._start_batches()

    def _start_batches(self) -> None:
        while self._room() and self._queue:
            batch = self._take()
            if not batch:
                return
            self._depart(batch)
            self._hand_over(batch)

    def _take(self) -> list[Work]:
        """With the lock held: the next commands of one kind, at addresses where nothing is under way.

        Of one record there is one in a batch; commits of a tenant go together, in their order.
        """
        batch: list[Work] = []
        left: list[Work] = []
        busy: set[bytes] = set()
        kind, size = None, 0
        while self._queue and len(batch) < BATCH_MAX and size < BATCH_BYTES_MAX:
            work = self._queue.popleft()
            taken = work.digest in busy or work.digest in self._under_way
            if taken or (kind is not None and type(work.command) is not kind):
                left.append(work)
            else:
                kind = type(work.command)
                batch.append(work)
                size += work.size
                if kind is Commit:
                    continue
            busy.add(work.digest)
        self._queue.extendleft(reversed(left))
        return batch

    def _hand_over(self, batch: list[Work]) -> None:
        """With the lock held: a thread that waits for one of them runs all, else one of the store's own."""
        for work in batch:
            if work.leads and work.gate is not None:
                work.batch = batch
                work.gate.release()
                return
        self._send(batch)

    def _send(self, batch: list[Work]) -> None:
        """With the lock held: a thread of the store's own runs it, or looks into the queue if it is empty."""
        if self._threads < self._abreast:
            # Counted once it runs: one thread too many does no harm.
            ServingThread(target=self._serve, name="semel-postgres", daemon=True).start()
            self._threads += 1
        self._batches.put(batch)

    def _serve(self) -> None:
        batches = self._batches
        while (batch := batches.get()) is not None:
            if not batch:
                with self._lock:
                    self._start_batches()
                continue
            try:
                self._run(batch)
            finally:
                self._give_up(batch)
                self._finish(batch, None)
        batches.put(None)  # the others end as well

    def _give_up(self, batch: list[Work]) -> None:
        """Whoever has no answer is told so: only an interrupt of the running thread leaves one without."""
        for work in batch:
            if work.answer is None and work.error is None:
                work.error = StoreUnavailable("The statement was interrupted; nothing was acknowledged.")

    def _finish(self, batch: list[Work], runner: Work | None) -> None:
        """Every answer is with whoever waits for it, and what was queued meanwhile is on its way.

        May be repeated: whoever was interrupted in the middle of it begins anew.
        """
        by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
        with self._lock:
            self._flying.discard(batch[0])
            for work in batch:
                if self._under_way.get(work.digest) is batch:
                    del self._under_way[work.digest]
            self._go_on()
            for work in batch:
                self.owed.discard(work)
                if work.loop is not None:
                    by_loop.setdefault(work.loop, []).append(work)
                elif work.gate is not None and work is not runner:
                    gate, work.gate = work.gate, None
                    gate.release()
        self._changed.open()
        for loop, works in by_loop.items():
            try:
                loop.call_soon_threadsafe(_arrive, works)
            except RuntimeError:
                pass  # the loop was closed: what was asked is done, and nobody is left to be told

    # --- the statements --------------------------------------------------------------------------

    def _run(self, batch: list[Work]) -> None:
        """Every work of the batch has its answer, durably, or its error."""
        asked = self._asked(batch)
        try:
            self._ask(asked)
        except Exception as error:
            if len(batch) > 1 and isinstance(error, Failure) and not trouble.gone(error):
                # One of them may be to blame, and the others have not deserved it.
                for work in batch:
                    self._run([work])
                return
            for work in batch:
                work.error = trouble.translated(error, work.command)
            return
        self.newest_event = max(self.newest_event, asked.newest_event)
        self.newest_commit = max(self.newest_commit, asked.newest_commit)
        for work, reply in zip(batch, asked.replies, strict=True):
            if isinstance(reply, Exception):
                work.error = trouble.translated(reply, work.command)
            else:
                assert reply is not None
                work.answer = reply
                if isinstance(reply, Reply) and reply.applied:
                    assert work.at is not None
                    self._waiters.wake(work.at)

    def _asked(self, batch: list[Work]) -> Asked | Commits:
        commands: list[Any] = [work.command for work in batch]
        if type(commands[0]) is Commit:
            return Commits(commands)
        return Asked(commands, [work.digest for work in batch], self.held)

    def _ask(self, asked: Asked | Commits) -> None:
        """Statements until every command has its reply. Each may be repeated (promise 15), or says so."""
        give_up_at, failures = SYSTEM.monotonic() + self._patience_s, 0
        while asked.open:
            fresh = True
            try:
                with self._pool.link() as link:
                    fresh = not link.used
                    asked.run(link, self._common())
                    self.statements += 1
            except Failure as failure:
                failures += 1
                # A connection that worked before and is lost now met a restart; a new one may do.
                cut = trouble.gone(failure) and not fresh and asked.repeatable
                again = trouble.worth_repeating(failure) or cut
                if failure.late or not again or failures == _TRIES or SYSTEM.monotonic() > give_up_at:
                    raise
                if trouble.worth_repeating(failure):
                    SYSTEM.sleep(SYSTEM.random() * _PAUSE_S)
            else:
                if asked.open and SYSTEM.monotonic() > give_up_at:
                    raise Failure("the record changed again and again meanwhile", late=True)

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """What is queued is carried out, as far as the store answers, and nothing is taken any more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._go_on()
        self._changed.wait(self._idle, _CLOSE_S)
        self._batches.put(None)

    def _idle(self) -> bool:
        with self._lock:
            return not self._flying and not self._queue


def _arrive(works: list[Work]) -> None:
    for work in works:
        future = work.future
        assert future is not None
        if future.done():
            continue  # the task was cancelled meanwhile
        if work.error is not None:
            future.set_exception(work.error)
        else:
            assert work.answer is not None
            future.set_result(work.answer)
