"""Many callers, few statements: whoever comes while others are under way shares the next statement.

A synchronous caller that finds room runs its own command at once, on its own thread. One that finds none
queues, and the first to finish hands everything queued to one of those who wait, or to a thread of the
store's own where only tasks wait: asynchronous callers never wait for a socket. What the tasks of a loop ask
in one tick goes out together.

Commands for one record never run side by side, so they keep the order in which they came; that holds for a
claim whose task was cancelled and the release that follows it. Nor do commits of one tenant's documents: they
would wait for each other on the server; here they gather for the next transaction.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from semel.clock import SYSTEM
from semel.errors import SemelError, StoreUnavailable
from semel.record import Address, Command, Reply
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
        "loop",
        "owed",
        "size",
    )

    def __init__(self, command: Command | Commit, *, owed: bool = False) -> None:
        self.command = command
        self.at: Address | None = None
        self.size = 0
        if type(command) is Commit:
            self.digest = turn_of(command)
            self.size = size_of(command)
        else:
            self.at = address_of(command)
            self.digest = digest(self.at)
        self.owed = owed  # submitted by somebody who does not wait
        self.answer: Any = None
        self.error: SemelError | None = None
        self.batch: list[Work] | None = None  # what its thread is to run once the gate opens
        self.gate: threading.Lock | None = None
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
        self._settled = threading.Condition(self._lock)
        self._queue: deque[Work] = deque()
        self._under_way: set[bytes] = set()
        self._running = 0
        self._threads = 0
        self._batches: queue.SimpleQueue[list[Work] | None] = queue.SimpleQueue()
        self._ticking: set[asyncio.AbstractEventLoop] = set()
        self.owed = 0
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
        with self._lock:
            self._refuse_if_closed()
            if self._running < self._abreast and not self._queue and work.digest not in self._under_way:
                self._running += 1
                self._under_way.add(work.digest)
                work.batch = [work]
            else:
                work.gate = threading.Lock()
                work.gate.acquire()
                self._queue.append(work)
                self._start_tasks()
        try:
            if work.gate is not None:
                work.gate.acquire()
            if work.batch is not None:
                self._run_and_pass_on(work.batch, work)
        except BaseException:
            self._abandon(work)
            raise
        return work.result()

    async def _ado(self, work: Work) -> Any:
        loop = work.loop = asyncio.get_running_loop()
        work.future = loop.create_future()
        with self._lock:
            self._refuse_if_closed()
            self._queue.append(work)
            ticking = loop in self._ticking
            self._ticking.add(loop)
        if not ticking:
            loop.call_soon(self._tick, loop)
        return await work.future

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._ticking.discard(loop)
            self._start_tasks()

    def submit(self, command: Command) -> None:
        with self._lock:
            self._refuse_if_closed()
            self.owed += 1
            self._queue.append(Work(command, owed=True))
            self._start_tasks()

    def flush(self) -> None:
        """What was submitted before is carried out, or patience is over."""
        with self._settled:
            self._settled.wait_for(lambda: not self.owed, self._patience_s)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise trouble.closed()

    def _abandon(self, work: Work) -> None:
        """The caller was interrupted: its command goes its way, but nobody counts on its thread any more."""
        with self._lock:
            work.gate, batch = None, work.batch
        if batch is not None:
            self._give_up(batch)
            self._finish(batch, work)

    # --- who runs what ---------------------------------------------------------------------------

    def _start_tasks(self) -> None:
        """With the lock held: as much of the queue as there is room for is on its way."""
        while self._running < self._abreast and self._queue:
            batch = self._take()
            if not batch:
                return
            self._running += 1
            self._hand_over(batch)

    def _take(self) -> list[Work]:
        """With the lock held: the next commands of one kind, at addresses where nothing is under way.

        Of one record there is one in a batch; commits of a tenant go together, in their order.
        """
        batch: list[Work] = []
        left: list[Work] = []
        busy, kind, size = set(self._under_way), None, 0
        while self._queue and len(batch) < BATCH_MAX and size < BATCH_BYTES_MAX:
            work = self._queue.popleft()
            if work.digest in busy or (kind is not None and type(work.command) is not kind):
                left.append(work)
            else:
                kind = type(work.command)
                batch.append(work)
                size += work.size
                if kind is Commit:
                    continue
            busy.add(work.digest)
        self._queue.extendleft(reversed(left))
        self._under_way.update(work.digest for work in batch)
        return batch

    def _hand_over(self, batch: list[Work]) -> None:
        """With the lock held: a thread that waits for one of them runs all, else one of the store's own."""
        for work in batch:
            if work.gate is not None:
                work.batch = batch
                work.gate.release()
                return
        if self._threads < self._abreast:
            self._threads += 1
            threading.Thread(target=self._serve, name="semel-postgres", daemon=True).start()
        self._batches.put(batch)

    def _serve(self) -> None:
        batches = self._batches
        while (batch := batches.get()) is not None:
            self._run_and_pass_on(batch, None)

    def _run_and_pass_on(self, batch: list[Work], runner: Work | None) -> None:
        if runner is not None:
            runner.batch = None
        try:
            self._run(batch)
        finally:
            self._give_up(batch)
            self._finish(batch, runner)

    def _give_up(self, batch: list[Work]) -> None:
        """Whoever has no answer is told so: only an interrupt of the running thread leaves one without."""
        for work in batch:
            if work.answer is None and work.error is None:
                work.error = StoreUnavailable("The statement was interrupted; nothing was acknowledged.")

    def _finish(self, batch: list[Work], runner: Work | None) -> None:
        """Every answer is with whoever waits for it, and what was queued meanwhile is on its way."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
        with self._settled:
            self._running -= 1
            self._under_way.difference_update([work.digest for work in batch])
            self._start_tasks()
            owed = sum(work.owed for work in batch)
            if owed:
                self.owed -= owed
            if owed or self._closed:
                self._settled.notify_all()
            for work in batch:
                if work.loop is not None:
                    by_loop.setdefault(work.loop, []).append(work)
                elif work.gate is not None and work is not runner:
                    work.gate.release()
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
        with self._settled:
            if self._closed:
                return
            self._closed = True
            self._start_tasks()
            self._settled.wait_for(lambda: not self._running and not self._queue, _CLOSE_S)
            for _ in range(self._threads):
                self._batches.put(None)


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
