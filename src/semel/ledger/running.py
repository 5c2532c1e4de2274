"""The calls of a ledger that are under way: who makes them, and how far each has come with its key.

Closing waits for them, and for none that its own thread or task is in the middle of: that would be for ever.
"""

from __future__ import annotations

import os
import weakref
from asyncio import _get_running_loop, current_task
from collections.abc import Iterator
from threading import get_ident
from typing import Any

from semel.contract.contract import Contract
from semel.contract.transaction import Transaction
from semel.errors import StoreUnavailable
from semel.kernel.keys import Key
from semel.kernel.record import Address, Record, new
from semel.kernel.waiting import WaitingThreads, is_reserved


class RunningCall:
    """One call as far as it is under way: who makes it, how far it has come with its key, its lease.

    Who closes the ledger, the keeper, and the tool that runs here read it; what was called, and how it is
    decided, is added by `Call` (call/guarded_call.py). One object, because every call makes it.
    """

    __slots__ = (
        "asked_at",
        "at",
        "began",
        "contract",
        "due",
        "entered",
        "fence",
        "injected",
        "instance",
        "key",
        "left",
        "lost",
        "opened",
        "outer",
        "passed",
        "record",
        "renewed",
        "settled",
        "stop_at",
        "task",
        "thread",
        "timed",
        "token",
    )

    fence: int  # of the attempt whose tool is entered
    injected: dict[str, Any]  # what the present caller fills; set where the contract has such parameters
    asked_at: float  # in the clock's seconds, as are the next ones: when the store was first asked, if timed
    left: float  # when the tool ended; likewise
    began: float  # when the tool was entered; set by the keeper, with the next ones
    due: float  # when its lease is renewed next
    stop_at: float  # when that ends

    def __init__(
        self,
        contract: Contract,
        tenant: str,
        key: Key,
        arguments: dict[str, Any],
        instance: Any,
        outer: RunningCall | None,
    ) -> None:
        self.contract = contract
        self.key = key
        self.at = new(Address, (tenant, contract.record_scope, key))
        self.instance = instance  # the `self` of a method, or None
        self.outer = outer  # the call whose tool made this one
        self.thread = get_ident()
        loop = _get_running_loop()
        self.task = None if loop is None else current_task(loop)
        # How far it has come.
        self.token: bytes | None = None  # while it may hold the key, and has not written its last word
        self.entered = False  # whether the tool may have begun
        self.passed = arguments  # what the tool is given: at a re-entry the first call's
        self.opened: tuple[Transaction, ...] = ()  # for the tool
        self.record: Record | None = None  # as the store last gave it
        self.settled = False  # whether its answer is on record
        self.renewed = False  # whether the keeper renews its lease
        self.timed = False  # whether somebody wants to know how long it takes
        self.lost = False  # whether the keeper found that someone else went on

    def begin(self, token: bytes) -> None:
        self.token, self.entered = token, False

    def end(self) -> None:
        self.token = None

    def is_within(self, token: bytes) -> bool:
        """Whether the tool of the attempt that holds this token made the call, directly or not."""
        return any(outer.token == token for outer in _chain(self.outer))

    def roll_back(self) -> None:
        """Nobody is going to commit what the tool wrote."""
        for transaction in self.opened:
            transaction.roll_back()

    @property
    def broken(self) -> bool:
        """Whether the tool ended a transaction itself, so that what it wrote may be committed or not."""
        return any(transaction.broken for transaction in self.opened)


class NeverEntered(Exception):
    """Something came in between just before the tool: what, and what to do about it."""


class Running:
    """Kept as a set, not a number: a call that is interrupted on its way in or out is not miscounted."""

    def __init__(self) -> None:
        self.calls: set[RunningCall] = set()
        self.closing = False  # what is not under way is refused
        self.ended = False  # no tool is entered any more
        self._hurried = False
        self._excused: set[RunningCall] = set()
        self._left = WaitingThreads()
        _all.add(self)

    def refuse(self, call: RunningCall) -> None:
        """StoreUnavailable if this call must not begin: the ledger closes, or the thread is not for it."""
        if self.ended or (self.closing and call.outer not in self.calls):
            raise StoreUnavailable(
                "The ledger is closed; the tool did not run.", corrective_action="Open it anew."
            )
        if is_reserved():
            raise StoreUnavailable(
                "This thread keeps the leases of running calls, and a finaliser called a tool on it; "
                "the tool did not run.",
                corrective_action="RunningCall it from another thread.",
            )

    def enter(self, call: RunningCall) -> None:
        """The tool may have begun from here on; NeverEntered if it may not, because the ledger was closed."""
        call.entered = True
        # In this order: whoever closes sets `ended` first, and then looks at `entered`.
        if self.ended:
            raise NeverEntered("The ledger was closed; the tool did not run.", "Open it anew.")

    def gone(self) -> None:
        """A call has left."""
        if self.closing:
            self._left.wake()

    def above(self, call: RunningCall) -> bool:
        """Whether whoever makes this call is in the middle of another one of the same key."""
        doer = (call.thread, call.task)
        beside = (other for other in list(self.calls) if (other.thread, other.task) == doer)
        return any(other is not call and other.at == call.at for other in (*beside, *_chain(call)))

    # --- closing ----------------------------------------------------------------------------------

    def interrupted(self, innermost: RunningCall | None) -> bool:
        """Whether this thread is in the middle of calls besides those whose tool it is that asks.

        Then a handler came in between two of their steps, or they are other tasks of this thread's loop: they
        can end once it goes on, and not before.
        """
        thread, own = get_ident(), set(_chain(innermost))
        return any(call.thread == thread and call not in own for call in list(self.calls))

    def excuse(self, innermost: RunningCall | None) -> None:
        """Nobody waits for the call whose tool closes, and for those around it."""
        self._excused.update(_chain(innermost))
        self._left.wake()

    def hurry(self) -> None:
        """Nobody waits any more."""
        self._hurried = True
        self._left.wake()

    def wait(self, seconds: float) -> None:
        """Everyone has left, but those who are excused, or so many seconds have passed."""
        self._left.wait(lambda: self._hurried or self.calls <= self._excused, seconds)

    def forked(self) -> None:
        """In a forked child: of the calls only those of the thread that forked."""
        self.calls = {call for call in list(self.calls) if call.thread == get_ident()}
        self._left = WaitingThreads()


def _chain(call: RunningCall | None) -> Iterator[RunningCall]:
    """The call, the one whose tool made it, and so on."""
    while call is not None:
        yield call
        call = call.outer


_all: weakref.WeakSet[Running] = weakref.WeakSet()


def _in_child() -> None:
    for running in list(_all):
        running.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
