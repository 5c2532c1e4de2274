"""The two drivers of a decider: `drive` carries its wishes out by calling, `adrive` by awaiting.

So what is decided (guard.py) is written once, and nothing of it runs on a hidden event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from semel import errors
from semel.call.entering import aenter, aenter_in_transaction, enter, enter_in_transaction, within
from semel.call.wishes import Ask, Await, CommitEffect, Deciding, Elapsed, Pause, Unrecorded, Wish
from semel.kernel import owner
from semel.kernel.clock import Clock
from semel.kernel.record import Claim, Look, Reply, Settle, State
from semel.ledger.running import RunningCall
from semel.stores.base import Query, Store

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
                    answer = enter(wish, wish.passed)
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
            return enter_in_transaction(_of(store), wish)
        case Unrecorded():
            return enter(wish, wish.arguments)
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
                    answer = await aenter(wish, wish.passed)
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
            return await aenter_in_transaction(_of(store), wish)
        case Unrecorded():
            return await aenter(wish, wish.arguments)
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

    def inside(self) -> AbstractContextManager[None]:
        """What is called here is called by the tool: it has its key and fence."""
        return within(self._call)


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
