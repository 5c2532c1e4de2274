"""Who waits for a slot: first come, first served, tenant by tenant, and for a bounded time.

Waiting is in this process alone and takes nothing of the store. One at a time of a tenant's waiters tries to
be admitted: when a run of the tenant has ended, as the bus tells, and now and then, because of what no
message tells (another gateway without a common bus, a raised limit). While somebody waits, whoever comes
later does not overtake; only those go past each other whose workflows have limits of their own. A waiter that
leaves is forgotten; if it is just being tried, that ends first, and its key has the answer.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter

from semel.errors import SemelError
from semel.flow import indexes
from semel.flow.admission import Admission, Start, capacity_of
from semel.flow.problems import Refused
from semel.flow.slot_pace import SlotPace
from semel.flow.values import JsonAnswer
from semel.kernel.answers import RunStartedJson
from semel.stores.documents import Count

Started = JsonAnswer[RunStartedJson]

# Each waiter holds a connection of its client: fewer in all than the files that a process may usually open,
# and a share for one tenant that leaves room for others.
WAITERS_MAX = 500
TENANT_WAITERS_MAX = 100

# Between two looks at the store, on average, while no message comes: the first, and the longest.
_LOOK_S = 0.1
_LOOK_MAX_S = 1.0

FULL = "max_concurrent_runs_reached"


@dataclass(slots=True)
class SlotPatience:
    """How long a caller is ready to wait. `ended` is done once it is not any more: why is its result."""

    seconds: float
    ended: asyncio.Future[Exception]
    honoured: bool = True
    waited_s: float = 0.0  # by choice, for a slot


@dataclass(slots=True, eq=False)
class WaitingStart:
    """A start that was refused for want of a slot, and waits for the next one."""

    start: Start
    number: int  # in the order of arrival
    refusal: Refused  # the last
    woken: asyncio.Future[None]  # by an answer, or because it leaves
    answer: Started | Exception | None = None
    trying: asyncio.Future[None] | None = None  # done when the present attempt has ended


@dataclass(slots=True, eq=False)
class Line:
    """The waiters of one tenant, the first one first."""

    woken: asyncio.Future[None]  # by a slot that may be free, or because nobody waits any more
    waiters: list[WaitingStart] = field(default_factory=list)
    tenant_full: bool = False  # else only workflows of those who wait are
    task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)

    def firsts(self) -> Iterator[WaitingStart]:
        """Of each workflow, who is next."""
        seen = set[str]()
        for waiter in self.waiters:
            if waiter.start.workflow_id not in seen:
                seen.add(waiter.start.workflow_id)
                yield waiter


class SlotQueue:
    """In front of admission, whatever its strategy. Used on one event loop."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._clock = admission.document_store.clock
        self._pace = SlotPace(self._clock)
        self._lines: dict[str, Line] = {}
        self._numbers = count()
        self._freed = 0  # how often, of any tenant

    def freed(self, tenant: str) -> None:
        """A run of the tenant has ended: whoever waits may try."""
        self._freed += 1
        self._pace.freed(tenant)
        if line := self._lines.get(tenant):
            line.wake()

    def __len__(self) -> int:
        """How many wait, of all tenants."""
        return sum(len(line.waiters) for line in self._lines.values())

    async def admit(self, start: Start, patience: SlotPatience | None = None) -> Started:
        """As Admission.admit; who is patient waits for a slot if there is none."""
        try:
            return await self._admitted(start, patience)
        except Refused as problem:
            if problem.code == FULL:
                problem.retry_after_s = self._pace.retry_after_s(start.caller.tenant)
                problem.details["retry_after_s"] = round(problem.retry_after_s, 3)
            raise

    async def _admitted(self, start: Start, patience: SlotPatience | None) -> Started:
        number = next(self._numbers)
        if before := self._before(start):
            if answer := await self._admission.answer_without_slot(start):
                return answer
            before = self._before(start)
        freed = self._freed
        if before:
            refusal = _behind(before)
        else:
            try:
                return await self._admission.admit(start)
            except Refused as problem:
                if problem.code != FULL:
                    raise
                refusal = problem
        if patience is None or self._is_crowded(start.caller.tenant):
            if patience is not None:
                patience.honoured = False
            raise refusal
        woken = asyncio.get_running_loop().create_future()
        waiter = WaitingStart(start, number, refusal, woken)
        return await self._wait(waiter, patience, missed=freed != self._freed)

    def _before(self, start: Start) -> WaitingStart | None:
        """Somebody who waits for what the start needs as well, and came earlier."""
        line = self._lines.get(start.caller.tenant)
        if line is None:
            return None
        for waiter in line.waiters:
            if line.tenant_full or waiter.start.workflow_id == start.workflow_id:
                return waiter
        return None

    def _is_crowded(self, tenant: str) -> bool:
        line = self._lines.get(tenant)
        return (line is not None and len(line.waiters) >= TENANT_WAITERS_MAX) or len(self) >= WAITERS_MAX

    # --- waiting ---------------------------------------------------------------------------------

    async def _wait(self, waiter: WaitingStart, patience: SlotPatience, *, missed: bool) -> Started:
        tenant = waiter.start.caller.tenant
        wake = _waking(waiter)
        patience.ended.add_done_callback(wake)
        line, began = self._join(tenant, waiter), self._clock.monotonic()
        if missed:
            line.wake()
        try:
            await self._clock.await_future(waiter.woken, patience.seconds)
            while waiter.answer is None and waiter.trying is not None:
                await asyncio.wait((waiter.trying,))  # what has begun is ended, and its answer is the answer
        finally:
            patience.ended.remove_done_callback(wake)
            patience.waited_s = self._clock.monotonic() - began
            self._leave(line, waiter)
        if isinstance(waiter.answer, Exception):
            raise waiter.answer
        if waiter.answer is not None:
            return waiter.answer
        if patience.ended.done():
            raise patience.ended.result()
        # Somebody may have been admitted with the same key elsewhere meanwhile.
        if answer := await self._admission.answer_without_slot(waiter.start):
            return answer
        raise waiter.refusal

    def _join(self, tenant: str, waiter: WaitingStart) -> Line:
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = Line(asyncio.get_running_loop().create_future())
            line.task = asyncio.ensure_future(self._serve(tenant, line))
        insort(line.waiters, waiter, key=attrgetter("number"))
        line.tenant_full |= waiter.refusal.details["scope"] == "tenant"
        return line

    def _leave(self, line: Line, waiter: WaitingStart) -> None:
        if waiter in line.waiters:
            line.waiters.remove(waiter)
        if not line.waiters:
            line.wake()  # nobody is left to be served

    # --- serving ---------------------------------------------------------------------------------

    async def _serve(self, tenant: str, line: Line) -> None:
        """Until nobody waits."""
        pause_s = _LOOK_S
        try:
            while line.waiters:
                woken = await self._clock.await_future(line.woken, pause_s * (0.5 + self._clock.random()))
                if woken:
                    line.woken, pause_s = asyncio.get_running_loop().create_future(), _LOOK_S
                else:
                    pause_s = min(2 * pause_s, _LOOK_MAX_S)
                    if not await self._looks_free(tenant, line):
                        continue
                await self._pass(line)
        finally:
            del self._lines[tenant]

    async def _looks_free(self, tenant: str, line: Line) -> bool:
        """Whether a slot seems to be free for somebody: reading costs less than an attempt in vain."""
        ask = self._admission.document_store.ask
        try:
            for waiter in list(line.firsts()):
                rules = await self._admission.fresh(waiter.start)
                slots, *narrower = capacity_of(rules, waiter.start.workflow_id)
                line.tenant_full = await ask(Count(tenant, indexes.SLOTS)) >= slots.limit
                if line.tenant_full:
                    return False
                if all([await ask(Count(tenant, each.index_name)) < each.limit for each in narrower]):
                    return True
        except SemelError:
            pass  # the store is away: the next look comes
        return False

    async def _pass(self, line: Line) -> None:
        """Everyone tries in turn until no slot is left."""
        full = set[str]()  # workflows
        for waiter in list(line.waiters):
            if waiter not in line.waiters or waiter.start.workflow_id in full:
                continue
            refusal = await self._try(line, waiter)
            if refusal is None:
                for same in [each for each in line.waiters if _same_key(each, waiter)]:
                    await self._try(line, same)  # the answer is there: it needs no slot
            elif refusal.details["scope"] == "tenant":
                line.tenant_full = True
                return
            else:
                full.add(waiter.start.workflow_id)
        line.tenant_full = False

    async def _try(self, line: Line, waiter: WaitingStart) -> Refused | None:
        """It has its answer and does not wait any more; or the refusal for want of a slot."""
        waiter.trying = asyncio.get_running_loop().create_future()
        try:
            waiter.answer = await self._admission.admit_next(waiter.start)
        except Refused as problem:
            if problem.code == FULL:
                waiter.refusal = problem
                return problem
            waiter.answer = problem
        except Exception as error:
            waiter.answer = error
        finally:
            waiter.trying.set_result(None)
            waiter.trying = None
        self._leave(line, waiter)
        _waking(waiter)()
        return None


def _waking(waiter: WaitingStart) -> Callable[..., None]:
    def wake(*_: object) -> None:
        if not waiter.woken.done():
            waiter.woken.set_result(None)

    return wake


def _behind(waiter: WaitingStart) -> Refused:
    """The refusal of somebody who came after the waiter."""
    return Refused(
        FULL,
        f"{waiter.refusal.message} The next slot is for a request that waits.",
        **{name: waiter.refusal.details[name] for name in ("current", "limit", "scope")},
    )


def _same_key(one: WaitingStart, other: WaitingStart) -> bool:
    if one is other or one.start.key is None:
        return False
    return (one.start.scope, one.start.key) == (other.start.scope, other.start.key)
