"""A worker: leases as many jobs as it has slots for, until it has to stop; then it ends what it began.

Meanwhile it asks the probes of its contracts about what is in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from semel.contract.contract import Contract
from semel.contract.handlers import Handler
from semel.errors import OpenError
from semel.ledger.ledger import Ledger
from semel.ledger.probing import Prober
from semel.worker.attempt import AttemptContext, JobAttempt, Slots, Tell
from semel.worker.handler_loops import HandlerEnd, HandlerLoops
from semel.worker.job_source import Away, JobSource, Leased
from semel.worker.traces import whole_trace

# How long one request for jobs waits: a lost message costs at most this, and so does a stop.
_WAIT_S = 1.0

# After an attempt to reach a store or gateway that is away.
_AWAY_S = 1.0

# Jobs in hand, those that wait for people included: each has a heartbeat to send.
_IN_HAND_MAX = 1_000

# What a gateway gives at once.
_LEASED_MAX = 200

# A prober that is told to stop does so at once, unless an asynchronous handler or probe blocks their loop.
_PROBES_END_S = 1.0


class Worker:
    """`run` once. `stop` may be called at any time, on the loop that it runs on."""

    def __init__(
        self,
        source: JobSource,
        ledger: Ledger,
        handlers: Mapping[str, Handler],
        *,
        worker_id: str,
        concurrency: int = 8,
        lease_s: float = 60.0,
        grace_s: float = 30.0,
        tell: Tell,
        contracts: Iterable[Contract] = (),
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._handlers = handlers
        self._worker_id = worker_id
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._tell = tell
        self._prober = Prober(ledger, contracts, tell=self._tell_from_probes)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempts: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Future[None] | None = None
        self._asked_to_stop = False
        self._away = False

    def stop(self) -> None:
        """No new leases; what runs may end."""
        self._asked_to_stop = True
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)
            self._source.hurry()
            self._tell("worker.stopping", running=len(self._attempts))

    async def run(self) -> int:
        """How many jobs were left unfinished when the grace was over; SemelError if it may not work here."""
        context = self._new_context()
        self._stopping = context.stopping
        if self._asked_to_stop:
            context.stopping.set_result(None)
        try:
            self._check_tenant()
            await self._source.open()
            self._ledger.keeper.notice()  # what ends here is in the audit log, and somebody has to seal it
            self._tell("worker.started", worker_id=self._worker_id, topics=sorted(self._handlers))
            probing = self._begin_probing(context)
            try:
                await self._lease_until_stopped(context)
            finally:
                self.stop()
                left = await self._finish()
                await self._end_probing(probing)
            self._tell("worker.stopped", left=left)
            return left
        finally:
            context.loops.close()
            await self._source.close()

    def _check_tenant(self) -> None:
        if self._source.tenant != self._ledger.tenant:
            raise OpenError(
                f"The jobs are of the tenant {self._source.tenant}, and the ledger keeps records of "
                f"{self._ledger.tenant}: other workers would not know what was done. Nothing was leased."
            )

    def _new_context(self) -> AttemptContext:
        return AttemptContext(
            source=self._source,
            ledger=self._ledger,
            loops=HandlerLoops(),
            slots=Slots(self._concurrency),
            stopping=asyncio.get_running_loop().create_future(),
            lease_s=self._lease_s,
            worker_id=self._worker_id,
            tell=self._tell,
        )

    def _begin_probing(self, context: AttemptContext) -> Future[HandlerEnd] | None:
        """On the loop of the handlers: they and the probes may share clients that belong to a loop."""
        if not (self._prober.needed and context.clock.runs):
            return None
        self._loop = asyncio.get_running_loop()
        return context.loops.run(self._prober.run)

    async def _end_probing(self, probing: Future[HandlerEnd] | None) -> None:
        if probing is not None:
            self._prober.stop()
            await asyncio.wait((asyncio.wrap_future(probing),), timeout=_PROBES_END_S)

    def _tell_from_probes(self, event: str, **facts: Any) -> None:
        """Reported on our own loop, as everything else is."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(partial(self._tell, event, **facts))
        except RuntimeError:
            pass  # the worker has ended

    async def _lease_until_stopped(self, context: AttemptContext) -> None:
        while not context.stopping.done():
            most = min(_LEASED_MAX, _IN_HAND_MAX - len(self._attempts))
            reserved = context.slots.reserve(max(0, most))
            if not reserved:
                await self._rest(context)
                continue
            leased: Sequence[Leased] = ()
            try:
                leased = await self._lease(context, reserved)
            finally:
                context.slots.give(reserved - len(leased))
            for each in leased:
                self._begin(context, each)

    async def _lease(self, context: AttemptContext, count: int) -> Sequence[Leased]:
        try:
            # Not cancelled by a stop: a lease whose answer nobody reads would have to lapse first.
            leased = await self._source.lease(list(self._handlers), count, self._lease_s, _WAIT_S)
        except Away as away:
            if not self._away:
                self._tell("worker.away", why=away.message)
            self._away = True
            await context.pause(_AWAY_S)
            return ()
        self._away = False
        return leased

    async def _rest(self, context: AttemptContext) -> None:
        """Until a slot is free, an attempt has ended, or the worker stops."""
        change = asyncio.ensure_future(context.slots.change())
        await asyncio.wait((change, context.stopping, *self._attempts), return_when=asyncio.FIRST_COMPLETED)
        change.cancel()

    def _begin(self, context: AttemptContext, leased: Leased) -> None:
        attempt = JobAttempt(context, leased, self._handlers[leased.job.topic])
        task = asyncio.ensure_future(attempt.run())
        self._attempts.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._attempts.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its lease lapses, and it is tried again.
            self._tell("job.broken", kind=type(error).__qualname__, traceback=whole_trace(error).splitlines())

    async def _finish(self) -> int:
        """What runs has ended, or the grace is over: then its leases lapse, and others go on."""
        if not self._attempts:
            return 0
        _, left = await asyncio.wait(self._attempts, timeout=self._grace_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return len(left)
