"""For tests, yours and ours: a clock that you turn, a store that fails on demand, a crash, a hammer.

    clock = FakeClock()
    ledger = semel.open("memory://", clock=clock)
    clock.advance("25h")                            # the window is over

    store = FlakyStore(MemoryStore())
    store.lose_reply("settle")                      # the next settle is carried out, but nobody hears of it

    doomed = crashing(ledger, "before settle")      # this process dies there; `ledger` comes after
    with pytest.raises(Crash), doomed.step(...):
        refund(...)

    report = hammer(refund, {"payment_id": "p-1"})  # 16 callers at once, one key
    assert report.effects == 1

    with step():                                    # in memory, gone afterwards
        refund(...)

    report = check_downstream(lambda key: provider.refund("p-1", key=key), after=["10m", "25h"])
    assert report.deduplicates and report.remembered_for >= timedelta(minutes=10)

All of it works on every store; `memory://` is the quickest.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from semel.call.step import Step
from semel.contract.result import ToolCall, ToolResult
from semel.contract.transaction import Transaction
from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM, Clock, Happening
from semel.kernel.durations import Duration, microseconds
from semel.kernel.keys import Key
from semel.kernel.record import Command, Reply, Settle
from semel.ledger.default import use
from semel.ledger.keeper import KEEPER_THREAD
from semel.ledger.ledger import Ledger
from semel.stores.base import Finding, Query, Store
from semel.stores.memory import MemoryStore

T = TypeVar("T")


# --- time -----------------------------------------------------------------------------------------


class FakeClock:
    """Time that passes only when you say so, or when someone would sleep. Nothing runs in the background."""

    runs = False

    def __init__(self, at_us: int = 1_800_000_000_000_000) -> None:
        self._now_us = at_us
        self._passed_s = 0.0

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._passed_s

    def advance(self, duration: Duration) -> None:
        """Let time pass."""
        self.sleep(microseconds(duration) / 1e6)

    def set_back(self, duration: Duration) -> None:
        """The wall clock steps back, as a clock that is corrected does; nothing becomes younger by it."""
        self._now_us -= microseconds(duration)

    def sleep(self, seconds: float) -> None:
        self._now_us += round(seconds * 1e6)
        self._passed_s += seconds

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)
        await SYSTEM.asleep(0)

    def wait(self, event: Happening, seconds: float) -> bool:
        if not event.is_set():
            self.sleep(seconds)
        return event.is_set()

    async def await_future(self, future: asyncio.Future[None], seconds: float) -> bool:
        if not future.done():
            await self.asleep(seconds)
        return future.done()

    def random(self) -> float:
        return 0.5

    def token(self, times: int = 1) -> bytes:
        return SYSTEM.token(times)


# --- stores that misbehave ------------------------------------------------------------------------


class WrappedStore(Store):
    """Another store, with something to say before and after each command."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.name = inner.name
        self.clock = inner.clock
        self.audit = inner.audit
        self.lanes = inner.lanes
        self.transactional = inner.transactional
        self.looks_first = inner.looks_first
        self.settle_wait_s = inner.settle_wait_s
        self.waiters = inner.waiters

    def before(self, name: str) -> None:
        """Raise here, and the command is not carried out."""

    def after(self, name: str) -> None:
        """Raise here, and the command was carried out, but its reply is lost."""

    def perform(self, command: Command) -> Reply:
        name = _name_of(command)
        self.before(name)
        reply = self.inner.perform(command)
        self.after(name)
        return reply

    async def aperform(self, command: Command) -> Reply:
        name = _name_of(command)
        self.before(name)
        reply = await self.inner.aperform(command)
        self.after(name)
        return reply

    def ask(self, query: Query[T]) -> T:
        name = _name_of(query)
        self.before(name)
        answer = self.inner.ask(query)
        self.after(name)
        return answer

    async def aask(self, query: Query[T]) -> T:
        name = _name_of(query)
        self.before(name)
        answer = await self.inner.aask(query)
        self.after(name)
        return answer

    def submit(self, command: Command) -> None:
        self.inner.submit(command)

    def begin(self, *, asynchronous: bool) -> Transaction:
        return _WrappedTransaction(self, self.inner.begin(asynchronous=asynchronous))

    def watch(self) -> None:
        self.inner.watch()

    @property
    def durability(self) -> str:
        return self.inner.durability

    @property
    def secret_key(self) -> bytes:
        return self.inner.secret_key

    def findings(self) -> list[Finding]:
        return self.inner.findings()

    def forked(self) -> None:
        self.inner.forked()

    def close(self) -> None:
        self.inner.close()


class _WrappedTransaction(Transaction):
    def __init__(self, store: WrappedStore, inner: Transaction) -> None:
        self._store = store
        self._inner = inner
        self.connection = inner.connection

    def settle(self, command: Settle) -> Reply:
        name = _name_of(command)
        try:
            self._store.before(name)
        except BaseException:
            self._inner.roll_back()
            raise
        reply = self._inner.settle(command)
        self._store.after(name)
        return reply

    def roll_back(self) -> None:
        self._inner.roll_back()
        self.broken = self._inner.broken


def _name_of(command: object) -> str:
    return type(command).__name__.lower()


class FlakyStore(WrappedStore):
    """A store that refuses commands, loses replies, or is down, as you tell it.

    Commands are named as in semel.kernel.record: claim, retake, renew, settle, park, release, resolve, look.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.down = False
        self._refused: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    def refuse(self, name: str, times: int = 1) -> None:
        """The next so many of these are not carried out."""
        self._refused[name] += times

    def lose_reply(self, name: str, times: int = 1) -> None:
        """The next so many of these are carried out, but their reply is lost."""
        self._lost[name] += times

    def before(self, name: str) -> None:
        if self.down or self._take(self._refused, name):
            raise StoreUnavailable()

    def after(self, name: str) -> None:
        if self._take(self._lost, name):
            raise StoreUnavailable()

    def submit(self, command: Command) -> None:
        if not self.down:
            super().submit(command)

    @staticmethod
    def _take(counts: Counter[str], name: str) -> bool:
        if counts[name] <= 0:
            return False
        counts[name] -= 1
        return True


# --- processes that die ---------------------------------------------------------------------------


class Crash(BaseException):
    """The process would be gone here."""


CRASH_POINTS = tuple(
    f"{when} {name}"
    for name in ("claim", "retake", "settle", "park", "release", "resolve", "renew", "sweep", "sealevents")
    for when in ("before", "after")
)


class CrashingStore(WrappedStore):
    """The store as a process sees it that dies at the given point: from there on it can do nothing at all."""

    def __init__(self, inner: Store, point: str, die: Callable[[], None]) -> None:
        super().__init__(inner)
        if point not in CRASH_POINTS:
            raise ValueError(f"no such crash point as {point!r}; there are {', '.join(CRASH_POINTS)}")
        self._point = point
        self._die = die
        self._dead = False

    def before(self, name: str) -> None:
        self._reach(f"before {name}")

    def after(self, name: str) -> None:
        self._reach(f"after {name}")

    def submit(self, command: Command) -> None:
        if not self._dead:
            super().submit(command)

    def _reach(self, point: str) -> None:
        if point == self._point:
            self._dead = True
            self._die()
        if self._dead and threading.current_thread().name == KEEPER_THREAD:
            raise StoreUnavailable()  # the thread in the background of a dead process ends without a word
        if self._dead:
            raise Crash(self._point)

    def close(self) -> None:
        """The store belongs to whoever comes after."""


def crashing(ledger: Ledger, point: str, *, kill: bool = False) -> Ledger:
    """A ledger on the same store, in a process that dies at `point`: "before settle", "after claim", ….

    By default the death is played: `Crash` is raised, and whatever the dead process still tries is not done.
    With `kill=True` it is real: this process ends by SIGKILL; for tests that start one.
    """
    store = CrashingStore(ledger.store, point, _kill if kill else lambda: doomed.keeper.abandon())
    doomed = Ledger(store, tenant=ledger.tenant)
    return doomed


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# --- a step in one line ---------------------------------------------------------------------------


@contextmanager
def step(
    conversation: str = "test",
    step: str = "test",
    *,
    scopes: Iterable[str] = (),
    principal: str = "",
    clock: Clock = SYSTEM,
) -> Iterator[Step]:
    """A step on a fresh ledger in memory, which is also the default ledger until the block ends."""
    with Ledger(MemoryStore(clock=clock)) as ledger, use(ledger):
        opened = ledger.step(conversation=conversation, step=step, scopes=scopes, principal=principal)
        with opened:
            yield opened


# --- what a downstream does with a key ------------------------------------------------------------


@dataclass(frozen=True)
class DownstreamReport:
    """What a downstream answered when one key was sent again and again."""

    answers: list[Any]
    """One for each time that it was sent; an exception stands for itself."""

    deduplicates: bool
    """Whether the second one at once was answered as the first."""

    remembered_for: timedelta | None
    """The longest of the given times after which it still was; None if it does not deduplicate at all."""


def check_downstream(
    call: Callable[[str], Any],
    *,
    key: str | None = None,
    after: Iterable[Duration] = (),
    clock: Clock = SYSTEM,
) -> DownstreamReport:
    """Send one key twice, and again after each given time since the first, and compare the answers.

    `call(key)`, sync or async, asks the real downstream (its sandbox); what it returns should tell one effect
    from another, as the id of a refund does. An exception of the first call is raised. The longest of the
    times is what `downstream_window` may say at most.
    """
    key = Key(clock.token().hex() * 2) if key is None else key
    began, first = clock.monotonic(), _answer_of(call, key)
    answers, remembered = [first, _answer_or_error(call, key)], None
    deduplicates = bool(answers[1] == first)
    if deduplicates:
        remembered = timedelta(0)
    still = deduplicates
    for pause in sorted(timedelta(microseconds=microseconds(each)) for each in after):
        clock.sleep(max(0.0, began + pause.total_seconds() - clock.monotonic()))
        answers.append(_answer_or_error(call, key))
        still = still and bool(answers[-1] == first)
        remembered = pause if still else remembered
    return DownstreamReport(answers, deduplicates, remembered)


def _answer_of(call: Callable[[str], Any], key: str) -> Any:
    answer = call(key)
    return _in_thread(lambda: asyncio.run(_awaited(answer))) if inspect.isawaitable(answer) else answer


def _answer_or_error(call: Callable[[str], Any], key: str) -> Any:
    try:
        return _answer_of(call, key)
    except Exception as error:
        return error


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


# --- the hammer -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HammerReport:
    """What many callers with one key at once led to: `effects` is how often the tool was entered."""

    effects: int
    results: list[ToolResult[Any]]


def hammer(
    tool: Any,
    arguments: Mapping[str, Any],
    callers: int = 16,
    *,
    ledger: Ledger | None = None,
    instance: Any = None,
) -> HammerReport:
    """Call the tool from many callers at once, in one step, and count its effects."""
    own = ledger or Ledger(MemoryStore())
    request = ToolCall(
        arguments, idempotency_key=f"hammer-{SYSTEM.token().hex()}", scopes=tool.contract.scopes
    )
    try:
        with _counted_entries(tool) as entries:
            if inspect.iscoroutinefunction(tool):
                results = _in_thread(lambda: asyncio.run(_gather(tool, request, callers, own, instance)))
            else:
                results = _threads(lambda: tool.call(request, own, instance=instance), callers)
        return HammerReport(len(entries), results)
    finally:
        if ledger is None:
            own.close()


async def _gather(tool: Any, request: ToolCall, callers: int, ledger: Ledger, instance: Any) -> list[Any]:
    return await asyncio.gather(*(tool.call(request, ledger, instance=instance) for _ in range(callers)))


def _threads(call: Callable[[], Any], callers: int) -> list[Any]:
    start = threading.Barrier(callers)
    results: list[Any] = []

    def run() -> None:
        start.wait()
        results.append(call())

    threads = [threading.Thread(target=run) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _in_thread(work: Callable[[], Any]) -> Any:
    """Off this thread, which may have an event loop of its own running."""
    with ThreadPoolExecutor(1) as one:
        return one.submit(work).result()


@contextmanager
def _counted_entries(tool: Any) -> Iterator[list[None]]:
    contract = tool.contract
    entries: list[None] = []
    function = contract.function

    def counting(*args: Any, **kwargs: Any) -> Any:
        entries.append(None)
        return function(*args, **kwargs)

    contract.function = counting
    try:
        yield entries
    finally:
        contract.function = function
