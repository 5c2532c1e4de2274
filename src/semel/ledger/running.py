"""The calls of a ledger that are under way: who runs them, and how far each has come with its key.

Closing waits for them, and for none that its own thread or task is in the middle of: that would be for ever.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from semel.contract.transaction import Transaction
from semel.errors import StoreUnavailable
from semel.kernel.record import Address, Record
from semel.kernel.waiting import WaitingThreads, is_reserved


class Attempt:
    """How far a call has come with its key: for when it is interrupted, or its ledger closed."""

    __slots__ = (
        "at",
        "entered",
        "opened",
        "outer",
        "record",
        "settled",
        "task",
        "thread",
        "token",
        "window_us",
    )

    def __init__(self, at: Address, window_us: int, outer: Attempt | None = None) -> None:
        self.at = at
        self.outer = outer  # the call whose tool made this one
        self.window_us = window_us
        self.token: bytes | None = None  # while it may hold the key, and has not written its last word
        self.entered = False  # whether the tool may have begun
        self.record: Record | None = None  # as the store last gave it
        self.settled = False  # whether its answer is on record
        self.opened: list[Transaction] = []  # for the tool
        self.thread = threading.get_ident()
        self.task = _task()

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


def _task() -> asyncio.Task[Any] | None:
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


class Running:
    """Kept as a set, not a number: a call that is interrupted on its way in or out is not miscounted."""

    def __init__(self) -> None:
        self.calls: set[Attempt] = set()
        self.closing = False  # what is not under way is refused
        self.ended = False  # no tool is entered any more
        self._hurried = False
        self._excused: set[Attempt] = set()
        self._left = WaitingThreads()
        _all.add(self)

    def refuse(self, attempt: Attempt) -> None:
        """StoreUnavailable if this call must not begin: the ledger closes, or the thread is not for it."""
        if self.ended or (self.closing and attempt.outer not in self.calls):
            raise StoreUnavailable(
                "The ledger is closed; the tool did not run.", corrective_action="Open it anew."
            )
        if is_reserved():
            raise StoreUnavailable(
                "This thread keeps the leases of running calls, and a finaliser called a tool on it; "
                "the tool did not run.",
                corrective_action="Call it from another thread.",
            )

    def gone(self) -> None:
        """A call has left."""
        if self.closing:
            self._left.wake()

    def above(self, attempt: Attempt) -> bool:
        """Whether whoever makes this call is in the middle of another one of the same key."""
        doer = (attempt.thread, attempt.task)
        beside = (call for call in list(self.calls) if (call.thread, call.task) == doer)
        return any(call is not attempt and call.at == attempt.at for call in (*beside, *_chain(attempt)))

    # --- closing ----------------------------------------------------------------------------------

    def interrupted(self, innermost: Attempt | None) -> bool:
        """Whether this thread is in the middle of calls besides those whose tool it is that asks.

        Then a handler came in between two of their steps, or they are other tasks of this thread's loop: they
        can end once it goes on, and not before.
        """
        thread, own = threading.get_ident(), set(_chain(innermost))
        return any(call.thread == thread and call not in own for call in list(self.calls))

    def excuse(self, innermost: Attempt | None) -> None:
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
        self.calls = {attempt for attempt in list(self.calls) if attempt.thread == threading.get_ident()}
        self._left = WaitingThreads()


def _chain(attempt: Attempt | None) -> Iterator[Attempt]:
    """The call, the one whose tool made it, and so on."""
    while attempt is not None:
        yield attempt
        attempt = attempt.outer


_all: weakref.WeakSet[Running] = weakref.WeakSet()


def _in_child() -> None:
    for running in list(_all):
        running.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
