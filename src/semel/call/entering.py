"""Running the tool: with its key and fence, on its own thread where it would block, inside a transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from semel import errors
from semel.call.wishes import Entered, Entering, Unrecorded
from semel.contract.result import ToolError, ToolResult
from semel.contract.transaction import Transaction
from semel.kernel.keys import Key
from semel.kernel.own_thread import NoThread, on_own_thread
from semel.kernel.pools import forget_in_pools
from semel.ledger.running import NeverEntered, RunningCall
from semel.stores.base import Store

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


def enter(entering: Entering, arguments: dict[str, Any]) -> Any:
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


async def aenter(entering: Entering, arguments: dict[str, Any]) -> Any:
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
        return await on_own_thread(enter, entering, arguments)
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


@contextmanager
def within(call: RunningCall) -> Iterator[None]:
    """What is called here is called by the call's tool: it has its key and fence."""
    outer = _running.get()
    _running.set(call)
    try:
        yield
    finally:
        if _running.get() is call:
            _running.set(outer)


# --- running the tool inside a transaction ---------------------------------------------------------


def enter_in_transaction(store: Store, call: RunningCall) -> Entered:
    transaction = store.begin(asynchronous=False)
    call.opened += (transaction,)
    try:
        try:
            entered = Entered(enter(call, _with(transaction, call)), transaction)
        except errors.PartialSuccess as partly:
            entered = _part_done(partly, transaction)
        for write in transaction.unwritten:
            write()
        return entered
    except BaseException:
        transaction.roll_back()
        raise


async def aenter_in_transaction(store: Store, call: RunningCall) -> Entered:
    transaction = await _begun(store)
    call.opened += (transaction,)
    try:
        try:
            entered = Entered(await aenter(call, _with(transaction, call)), transaction)
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
