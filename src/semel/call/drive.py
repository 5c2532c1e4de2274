"""Wishes, and two drivers that carry them out: `drive` by calling, `adrive` by awaiting.

A decider (guard.py) is a generator: it yields a wish and receives the answer. A wish is a store command, one
of those below, or a call itself: run its tool, and the answer is what that returns. So what is decided is
written once, and nothing of it runs on a hidden event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MappingProxyType
from typing import Any, NamedTuple

from semel import errors
from semel.contract.contract import Contract
from semel.contract.result import ToolError, ToolResult
from semel.contract.transaction import Transaction
from semel.kernel import owner
from semel.kernel.clock import Clock
from semel.kernel.keys import Key
from semel.kernel.own_thread import NoThread, on_own_thread
from semel.kernel.pools import forget_in_pools
from semel.kernel.record import Address, Claim, Command, Look, Reply, Settle, State
from semel.ledger.running import NeverEntered, RunningCall
from semel.stores.base import Query, Store


class Unrecorded(NamedTuple):
    """A call of a tool that keeps no record."""

    contract: Contract
    arguments: dict[str, Any]
    instance: Any
    outer: RunningCall | None  # the recorded call whose tool made it
    began: float | None  # the clock's seconds, if somebody wants to know how long it takes
    injected: Mapping[str, Any] = MappingProxyType({})  # what the caller fills besides the arguments


class Entered(NamedTuple):
    """What a tool returned that wrote into a transaction, which is still open."""

    value: Any
    transaction: Transaction


class CommitEffect(NamedTuple):
    """Commit what the tool wrote together with its settlement; the answer is the reply."""

    transaction: Transaction
    settle: Settle


class Ask(NamedTuple):
    """Ask the probe; the answer is what it says."""

    probe: Callable[..., Any]
    key: Key
    arguments: dict[str, Any]


class Pause(NamedTuple):
    """Let so many seconds pass."""

    seconds: float


class Await(NamedTuple):
    """Wait until the record is no longer held by this token, or so many seconds passed."""

    at: Address
    token: bytes
    seconds: float


class Elapsed(NamedTuple):
    """The answer is the clock's seconds, for measuring a wait."""


Entering = RunningCall | Unrecorded
Wish = Command | Query[Any] | Entering | CommitEffect | Ask | Pause | Await | Elapsed
Deciding = Generator[Wish, Any, Any]

ELAPSED = Elapsed()

# How often a waiting caller looks whether the owner's process is gone: microseconds, without the store.
_OWNER_LOOKED_AT_S = 0.5


def drive(deciding: Deciding, store: Store | None, clock: Clock) -> Any:
    """What the decider returns, its wishes being carried out by calling."""
    send: Callable[[Any], Wish] = deciding.send
    answer: Any = None
    try:
        while True:
            wish: Any = send(answer)
            send = deciding.send
            kind = type(wish)
            try:
                # First what every call wishes.
                if kind is Claim or kind is Settle:
                    assert store is not None
                    answer = store.perform(wish)
                elif isinstance(wish, RunningCall) and not wish.contract.transaction_parameters:
                    answer = _enter(wish, wish.passed)
                else:
                    answer = _carried_out(wish, store, clock)
            except BaseException as error:
                send, answer = deciding.throw, error
    except StopIteration as stop:
        return stop.value
    except BaseException:
        deciding.close()  # for an interrupt between its wish and the answer, which it did not see
        raise


def _carried_out(wish: Any, store: Store | None, clock: Clock) -> Any:
    match wish:
        case Elapsed():
            return clock.monotonic()
        case RunningCall():
            return _enter_in_transaction(_of(store), wish)
        case Unrecorded():
            return _enter(wish, wish.arguments)
        case Pause(seconds):
            return clock.sleep(seconds)
        case Await():
            return _await_change(_of(store), clock, wish)
        case Ask():
            return _ask(wish)
        case CommitEffect(transaction, settle):
            return transaction.settle(settle)
        case Query():
            return _of(store).ask(wish)
        case _:
            return _of(store).perform(wish)


async def adrive(deciding: Deciding, store: Store | None, clock: Clock) -> Any:
    """What the decider returns, its wishes being carried out by awaiting."""
    send: Callable[[Any], Wish] = deciding.send
    answer: Any = None
    try:
        while True:
            wish: Any = send(answer)
            send = deciding.send
            kind = type(wish)
            try:
                if kind is Claim or kind is Settle:
                    assert store is not None
                    answer = await store.aperform(wish)
                elif isinstance(wish, RunningCall) and not wish.contract.transaction_parameters:
                    answer = await _aenter(wish, wish.passed)
                else:
                    answer = await _acarried_out(wish, store, clock)
            except BaseException as error:
                send, answer = deciding.throw, error
    except StopIteration as stop:
        return stop.value
    except BaseException:
        deciding.close()  # for an interrupt between its wish and the answer, which it did not see
        raise


async def _acarried_out(wish: Any, store: Store | None, clock: Clock) -> Any:
    match wish:
        case Elapsed():
            return clock.monotonic()
        case RunningCall():
            return await _aenter_in_transaction(_of(store), wish)
        case Unrecorded():
            return await _aenter(wish, wish.arguments)
        case Pause(seconds):
            return await clock.asleep(seconds)
        case Await():
            return await _aawait_change(_of(store), clock, wish)
        case Ask():
            return await _aask(wish)
        case CommitEffect(transaction, settle):
            return await asyncio.to_thread(transaction.settle, settle)
        case Query():
            return await _of(store).aask(wish)
        case _:
            return await _of(store).aperform(wish)


# --- a tool that somebody else enters ---------------------------------------------------------------


ENTERED = object()
"""The answer of a decider that stopped at its tool."""


class HandedOver:
    """A decider that stops where its tool is entered, and goes on when whoever entered it says how it ended.

    For a tool that answers before it returns: an application whose answer is settled before its last byte.
    """

    def __init__(self, deciding: Deciding, call: RunningCall, store: Store, clock: Clock) -> None:
        self._deciding = deciding
        self._call = call
        self._store = store
        self._clock = clock

    async def begin(self) -> Any:
        """ENTERED if the tool is to be entered, else what the call is answered with; raises its error."""
        return await self._go_on(self._deciding.send, None)

    async def returned(self, value: Any) -> Any:
        """What the call is answered with after its tool gave this value."""
        return await self._go_on(self._deciding.send, value)

    async def raised(self, error: BaseException) -> Any:
        """The same after it ended with an exception."""
        return await self._go_on(self._deciding.throw, error)

    async def _go_on(self, resume: Callable[[Any], Wish], answer: Any) -> Any:
        return await adrive(_short_of_tool(self._deciding, resume, answer), self._store, self._clock)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is called here is called by the tool: it has its key and fence."""
        outer = _running.get()
        _running.set(self._call)
        try:
            yield
        finally:
            if _running.get() is self._call:
                _running.set(outer)


def _short_of_tool(deciding: Deciding, resume: Callable[[Any], Wish], answer: Any) -> Deciding:
    """What the decider wishes and returns, but for the wish to enter its tool: there it is left."""
    while True:
        try:
            wish = resume(answer)
        except StopIteration as end:
            return end.value
        if isinstance(wish, RunningCall):
            return ENTERED
        try:
            answer, resume = (yield wish), deciding.send
        except BaseException as error:
            answer, resume = error, deciding.throw


def _of(store: Store | None) -> Store:
    assert store is not None, "an unrecorded tool wishes nothing of a store"
    return store


# --- running the tool -----------------------------------------------------------------------------


_running: ContextVar[Entering | None] = ContextVar("semel_running", default=None)
forget_in_pools(_running)

# The caller iterates or awaits them: their effect would come after the call was recorded as done.
_LAZY = frozenset((CoroutineType, GeneratorType, AsyncGeneratorType, map, filter))


def current_key() -> Key | None:
    """The key of the tool that runs here."""
    running = _current()
    return running.key if isinstance(running, RunningCall) else None


def current_fence() -> int | None:
    """The fence of the tool that runs here: it rises with every attempt of the key."""
    running = _current()
    if running is None:
        return None
    return 0 if isinstance(running, Unrecorded) else running.fence


def current_call() -> RunningCall | None:
    """The recorded call whose tool runs here, or has called the one that does."""
    running = _running.get()
    if running is None:
        return None
    call = running.outer if isinstance(running, Unrecorded) else running
    return None if call is None or call.token is None else call


def _current() -> Entering | None:
    """The tool that runs here; None if its call has ended, but an interrupt kept it from being unset."""
    running = _running.get()
    call = running.outer if isinstance(running, Unrecorded) else running
    return None if call is not None and call.token is None else running


def _enter(entering: Entering, arguments: dict[str, Any]) -> Any:
    outer = _running.get()
    try:
        _running.set(entering)
        value = _invoke(entering, arguments)
    finally:
        # A coroutine that is dropped is closed in another context, in which there is nothing to reset.
        if _running.get() is entering:
            _running.set(outer)
    if type(value) in _LAZY or type(value) is ToolResult:
        _refuse_lazy(entering, value)
    return value


async def _aenter(entering: Entering, arguments: dict[str, Any]) -> Any:
    if not entering.contract.is_async:
        return await _enter_on_thread(entering, arguments)
    outer = _running.get()
    try:
        _running.set(entering)
        value = await _invoke(entering, arguments)
    finally:
        if _running.get() is entering:
            _running.set(outer)
    if type(value) in _LAZY or type(value) is ToolResult:
        _refuse_lazy(entering, value)
    return value


async def _enter_on_thread(entering: Entering, arguments: dict[str, Any]) -> Any:
    """What a tool that is no coroutine returns to a caller that must not block."""
    try:
        return await on_own_thread(_enter, entering, arguments)
    except NoThread as full:
        if isinstance(entering, Unrecorded):
            raise errors.StoreUnavailable(full.text, corrective_action=full.fix) from full
        raise NeverEntered(full.text, full.fix) from full


def _invoke(entering: Entering, arguments: dict[str, Any]) -> Any:
    contract = entering.contract
    if contract.key_parameters:
        assert isinstance(entering, RunningCall), "who keeps no record has no key"
        arguments = arguments.copy()
        for name in contract.key_parameters:
            arguments[name] = entering.key
    if contract.injected_parameters:
        arguments = {**arguments, **entering.injected}
    if contract.arguments.takes_self:
        return contract.function(entering.instance, **arguments)
    return contract.function(**arguments)


def _refuse_lazy(entering: Entering, value: Any) -> None:
    """TypeError for a value that is work still to be done; it is ended as far as it was begun."""
    lazy = value.value if type(value) is ToolResult else value
    if type(lazy) is CoroutineType:
        lazy.close()
        raise TypeError("the tool returned a coroutine, which was not run: await it in an `async def`")
    if type(lazy) in _LAZY and entering.contract.recorded:
        if isinstance(lazy, GeneratorType):
            lazy.close()
        name = type(lazy).__name__
        raise TypeError(f"the tool returned a {name}, whose items were not made: return a list of them")


# --- running the tool inside a transaction ---------------------------------------------------------


def _enter_in_transaction(store: Store, call: RunningCall) -> Entered:
    transaction = store.begin(asynchronous=False)
    call.opened += (transaction,)
    try:
        try:
            entered = Entered(_enter(call, _with(transaction, call)), transaction)
        except errors.PartialSuccess as partly:
            entered = _part_done(partly, transaction)
        for write in transaction.unwritten:
            write()
        return entered
    except BaseException:
        transaction.roll_back()
        raise


async def _aenter_in_transaction(store: Store, call: RunningCall) -> Entered:
    transaction = await _begun(store)
    call.opened += (transaction,)
    try:
        try:
            entered = Entered(await _aenter(call, _with(transaction, call)), transaction)
        except errors.PartialSuccess as partly:
            entered = _part_done(partly, transaction)
        for write in transaction.unwritten:
            written = write()
            if inspect.isawaitable(written):
                await written
        return entered
    except BaseException:
        transaction.roll_back()
        raise


async def _begun(store: Store) -> Transaction:
    beginning = asyncio.create_task(asyncio.to_thread(store.begin, asynchronous=True))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        # It is being opened all the same, and nobody will use it.
        beginning.add_done_callback(lambda begun: begun.exception() or begun.result().roll_back())
        raise


def _with(transaction: Transaction, call: RunningCall) -> dict[str, Any]:
    return call.passed | dict.fromkeys(call.contract.transaction_parameters, transaction)


def _part_done(partly: errors.PartialSuccess, transaction: Transaction) -> Entered:
    """What the tool did of its work is committed with the record that says so."""
    return Entered(ToolResult(ok=False, error=ToolError.of(partly)), transaction)


# --- waiting for another caller -------------------------------------------------------------------


def _await_change(store: Store, clock: Clock, wish: Await) -> None:
    if asyncio._get_running_loop() is not None:
        # Blocking here would stop the very loop on which the owner may be running.
        raise errors.InFlight(
            "Someone else is performing this very call, and a synchronous wait would block this event loop; "
            "the tool did not run a second time.",
            retry_after_s=0.1,
        )
    waiter = store.waiters.add(wish.at)
    try:
        store.watch()
        # It may have changed before the waiter was added.
        if _unchanged(store.perform(Look(wish.at)), wish):
            for nap_s in _naps(wish):
                if waiter.wait(clock, nap_s) or owner.is_gone(wish.token):
                    break
    finally:
        store.waiters.remove(wish.at, waiter)


async def _aawait_change(store: Store, clock: Clock, wish: Await) -> None:
    waiter = store.waiters.add(wish.at, asyncio.get_running_loop())
    try:
        store.watch()
        if _unchanged(await store.aperform(Look(wish.at)), wish):
            for nap_s in _naps(wish):
                if await waiter.await_change(clock, nap_s) or owner.is_gone(wish.token):
                    break
    finally:
        store.waiters.remove(wish.at, waiter)


def _naps(wish: Await) -> Iterator[float]:
    """The wait, in pieces if the owner is another process of this machine: its death wakes nobody."""
    left_s = wish.seconds
    while left_s > _OWNER_LOOKED_AT_S and owner.is_neighbour(wish.token):
        yield _OWNER_LOOKED_AT_S
        left_s -= _OWNER_LOOKED_AT_S
    yield left_s


def _unchanged(reply: Reply, wish: Await) -> bool:
    record = reply.record
    return record is not None and record.state is State.PENDING and record.token == wish.token


# --- probes ---------------------------------------------------------------------------------------


def _ask(wish: Ask) -> Any:
    answer = wish.probe(wish.key, **wish.arguments)
    return _result_of(answer) if inspect.isawaitable(answer) else answer


async def _aask(wish: Ask) -> Any:
    if inspect.iscoroutinefunction(wish.probe):
        return await wish.probe(wish.key, **wish.arguments)
    answer = await asyncio.to_thread(wish.probe, wish.key, **wish.arguments)
    return await answer if inspect.isawaitable(answer) else answer


def _result_of(awaitable: Any) -> Any:
    """What an asynchronous probe says to a synchronous tool: run on a thread of its own, for this once."""

    async def awaited() -> Any:
        return await awaitable

    results: list[Any] = []

    def run() -> None:
        try:
            results.append(asyncio.run(awaited()))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, name="semel-probe")
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]
