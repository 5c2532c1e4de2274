"""One job, from its lease to the report on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from semel.call.step import Step
from semel.contract.handlers import Handler
from semel.errors import ApprovalRequired, SemelError
from semel.flow.run_progress import HAND_BACK_S
from semel.kernel.clock import Clock
from semel.ledger.ledger import Ledger
from semel.questions.job import conversation
from semel.worker import outcome
from semel.worker.handler_loops import HandlerEnd, HandlerLoops
from semel.worker.job_source import Away, JobReport, JobSource, Leased, Lost

# Heartbeats within one lease: two may be lost.
_BEATS = 3

# Between two looks at a question that a person has to answer: soon at first, then less often.
_ASK_S, _ASK_MAX_S = 1.0, 15.0

# Before a failure is reported that leads to another attempt, and between reports that nobody took.
_PAUSE_S, _PAUSE_MAX_S = 1.0, 30.0

Tell = Callable[..., None]


class HandedBack(Exception):
    """The worker stops while the job waits for a person; another one goes on."""


class Slots:
    """How many handlers may run at once. A slot is held exactly while a handler runs."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._queue: deque[asyncio.Future[None]] = deque()
        self._watching: list[asyncio.Future[None]] = []

    def reserve(self, most: int) -> int:
        count = min(self.free, most)
        self.free -= count
        return count

    def give(self, count: int = 1) -> None:
        """To those who queue first: whoever reserves for new jobs would always be quicker than they."""
        self.free += count
        while self.free and self._queue:
            taker = self._queue.popleft()
            if not taker.done():
                self.free -= 1
                taker.set_result(None)
        watching, self._watching = self._watching, []
        for watcher in watching:
            if not watcher.done():
                watcher.set_result(None)

    async def take(self) -> None:
        if self.reserve(1):
            return
        taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(taker)
        try:
            await taker
        except asyncio.CancelledError:
            if not taker.cancelled():
                self.give()  # it was given just as the taker was cancelled
            raise

    async def change(self) -> None:
        """Returns when a slot was given back."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching.append(watcher)
        await watcher


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What the attempts of one worker share."""

    source: JobSource
    ledger: Ledger
    loops: HandlerLoops
    slots: Slots
    stopping: asyncio.Future[None]
    lease_s: float
    worker_id: str
    tell: Tell

    @property
    def clock(self) -> Clock:
        return self.ledger.clock

    async def pause(self, seconds: float) -> bool:
        """False if the worker stops meanwhile: then nobody waits on."""
        return not await self.clock.await_future(self.stopping, seconds)


class JobAttempt:
    """Begins with a slot, which its handler gives back."""

    def __init__(self, context: AttemptContext, leased: Leased, handler: Handler) -> None:
        self._context = context
        self._leased = leased
        self._handler = handler
        self._facts = {
            "job_id": leased.job.job_id,
            "topic": leased.job.topic,
            "attempt": leased.job.attempt,
        }

    async def run(self) -> None:
        """The attempt is reported, or lost, or handed back; `tell` says which."""
        started = self._context.clock.monotonic()
        self._tell("job.started")
        working, beating = asyncio.ensure_future(self._work()), asyncio.ensure_future(self._beat())
        try:
            await asyncio.wait((working, beating), return_when=asyncio.FIRST_COMPLETED)
            report = working.result() if working.done() else None
        except Lost:
            report = None
        except HandedBack:
            self._tell("job.handed_back")
            return
        finally:
            await _end(working, beating)
        self._tell_end(report, round((self._context.clock.monotonic() - started) * 1_000))

    def _tell_end(self, report: JobReport | None, ms: int) -> None:
        if report is None:
            self._tell("job.lost", ms=ms)
        elif report.error is None:
            self._tell("job.succeeded", ms=ms)
        else:
            # Without the message, which may quote what belongs in no log: files, lines and functions do not.
            final = outcome.is_final(report, self._leased.job.attempt)
            where = {"traceback": lines} if (lines := report.error.get("traceback", "").splitlines()) else {}
            self._tell("job.failed" if final else "job.retried", ms=ms, code=report.error["code"], **where)

    def _tell(self, event: str, **facts: Any) -> None:
        self._context.tell(event, **self._facts, **facts)

    async def _beat(self) -> None:
        """Returns when the job is lost."""
        context = self._context
        while True:
            await context.clock.asleep(context.lease_s / _BEATS)
            try:
                await context.source.heartbeat(self._leased, context.lease_s)
            except Lost:
                return
            except SemelError:
                pass  # nobody answers: the next beat may be in time

    async def _work(self) -> JobReport:
        report = await self._perform()
        await self._hold(report)
        return await self._deliver(report)

    # --- the handler ------------------------------------------------------------------------------

    async def _perform(self) -> JobReport:
        while True:
            value, error = await self._ended()
            if isinstance(error, ApprovalRequired):
                await self._until_decided(error)
                await self._context.slots.take()
            elif error is not None:
                return outcome.failed(error)
            else:
                return outcome.succeeded(value)

    async def _ended(self) -> HandlerEnd:
        """How the handler ended. If nobody wants to know any more it is cancelled, if that can be."""
        loop, running = asyncio.get_running_loop(), self._begun()
        ended: asyncio.Future[None] = loop.create_future()

        def tell(_: Future[HandlerEnd]) -> None:
            try:
                loop.call_soon_threadsafe(arrive)
            except RuntimeError:
                pass  # the worker has ended without waiting for it

        def arrive() -> None:
            self._context.slots.give()
            if not ended.done():
                ended.set_result(None)

        running.add_done_callback(tell)
        try:
            await ended
        except asyncio.CancelledError:
            running.cancel()
            raise
        return running.result()

    def _begun(self) -> Future[HandlerEnd]:
        job, function = self._leased.job, self._handler.function

        def perform() -> Any:
            with self._step():
                return function(job)

        async def aperform() -> Any:
            async with self._step():
                return await function(job)

        loops = self._context.loops
        return loops.run(aperform) if self._handler.asynchronous else loops.call(perform)

    def _step(self) -> Step:
        """Named after the job alone: the same on every attempt and every worker, and so are the keys."""
        job = self._leased.job
        return self._context.ledger.step(
            conversation=conversation(job.job_id),
            step=job.step_id or job.topic,
            scopes=self._handler.scopes,
            # On whose behalf: where the job's own document is not in this store, nobody else could tell.
            principal=self._leased.submitted_by or self._context.worker_id,
        )

    async def _until_decided(self, error: ApprovalRequired) -> None:
        """A person has answered, or can no longer. The job stays leased, and no slot is held for it."""
        context, job_id, pause_s = self._context, str(error.details.get("job_id", "")), _ASK_S
        self._tell("job.waiting", approval=job_id)
        while await context.pause(pause_s):
            try:
                request = await asyncio.to_thread(context.ledger.approvals.get, job_id)
            except SemelError:
                continue  # the store is away: the question is still there
            if request.status != "waiting":
                return
            pause_s = min(pause_s * 1.5, _ASK_MAX_S)
        await self._hand_back()

    async def _hand_back(self) -> None:
        try:
            await self._context.source.heartbeat(self._leased, HAND_BACK_S)
        except Away:
            pass  # then its lease lapses in its own time
        raise HandedBack

    # --- the report -------------------------------------------------------------------------------

    async def _hold(self, report: JobReport) -> None:
        """Waits if another attempt follows: else a downstream that is away a minute uses up all of them."""
        attempt = self._leased.job.attempt
        if not outcome.is_final(report, attempt):
            pause_s = min(_PAUSE_S * 2 ** (attempt - 1), _PAUSE_MAX_S)
            await self._context.pause(pause_s * (0.5 + self._context.clock.random() / 2))

    async def _deliver(self, report: JobReport) -> JobReport:
        """Reported, however long nobody takes it; the same report twice is one."""
        pause_s = _PAUSE_S
        while True:
            try:
                await self._context.source.report(self._leased, report)
                return report
            except Away:
                await self._context.clock.asleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            except Lost:
                raise
            except SemelError as refused:
                if report.error is not None and report.error["code"] == outcome.REFUSED:
                    raise Lost() from refused  # the report of the refusal was refused too
                report = outcome.refused(refused)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
