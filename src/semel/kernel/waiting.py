"""Waiting for another thread, so that an interrupt at any moment strands nobody.

The standard library's Condition, Event and Semaphore take their locks in Python code: a ctrl-C between two of
its lines leaves such a lock locked for good. The locks here are taken and released by single calls.

And nobody waits for itself. A handler of a signal, or a finaliser, runs on a thread that may be in the middle
of a store: it holds a lock, or leads a commit for which others wait. Whoever begins something in a store does
so under a mark of its thread (`alone`), and code that comes back in on that thread is refused at once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar, cast

from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM

F = TypeVar("F", bound=Callable[..., Any])

# Waiting threads are woken; this bounds the wait of one whose waker was interrupted.
_LOOK_AGAIN_S = 1.0


def on_main_thread() -> bool:
    """Whether an interrupt can raise here: Python runs the handlers of signals in its main thread only."""
    return threading.current_thread() is threading.main_thread()


class WaitingThreads:
    """Threads that wait until something has come true."""

    def __init__(self) -> None:
        self._locked: set[threading.Lock] = set()

    def wait(self, came_true: Callable[[], bool], seconds: float = inf) -> bool:
        """Whether it came true within so many seconds."""
        give_up_at = SYSTEM.monotonic() + seconds
        while not came_true():
            lock = threading.Lock()
            lock.acquire()
            self._locked.add(lock)
            try:
                # Once more, because whoever made it true a moment ago did not see this lock.
                if came_true():
                    return True
                left_s = give_up_at - SYSTEM.monotonic()
                if left_s <= 0:
                    return False
                lock.acquire(timeout=min(left_s, _LOOK_AGAIN_S))
            finally:
                self._locked.discard(lock)
        return True

    def wake(self) -> None:
        """Wake all waiting threads: each checks again whether it came true."""
        while self._locked:
            try:
                self._locked.pop().release()
            except KeyError:
                return  # another thread released the last one


class Flag:
    """A threading.Event that an interrupt cannot leave locked."""

    def __init__(self) -> None:
        self._up = False
        self._waiting = WaitingThreads()

    def is_set(self) -> bool:
        return self._up

    def set(self) -> None:
        self._up = True
        self._waiting.wake()

    def clear(self) -> None:
        self._up = False

    def wait(self, seconds: float = inf) -> bool:
        return self._waiting.wait(self.is_set, seconds)


# --- nobody waits for itself ----------------------------------------------------------------------

_threads = threading.local()


class ServingThread(threading.Thread):
    """A store's own, for which callers wait: in the middle of the store from its first moment to its last."""


def _mark() -> threading.Lock:
    """This thread's mark, locked while it is in the middle of a store. In one call: a handler may come."""
    mark = getattr(_threads, "mark", None)
    return cast(threading.Lock, mark or _threads.__dict__.setdefault("mark", _new_mark()))


def _new_mark() -> threading.Lock:
    mark = threading.Lock()
    if isinstance(threading.current_thread(), ServingThread):
        mark.acquire()
    return mark


def is_inside() -> bool:
    """Whether this thread is in the middle of a store, so that the code that asks interrupted it."""
    return _mark().locked()


def alone() -> threading.Lock:
    """The mark to hold by `with` from the beginning of something in a store to its end.

    StoreUnavailable if this thread holds it already: it would wait for itself.
    """
    mark = _mark()
    if mark.locked():
        raise StoreUnavailable(
            "This thread is in the middle of the store, and this call came in between (from a signal handler "
            "or a finaliser); nothing was done.",
            corrective_action="Call again when the handler has returned, or from another thread.",
            retry_after_s=0.1,
        )
    return mark


def inside() -> threading.Lock:
    """The same for a part of it: not refused where this thread holds the mark already."""
    mark = _mark()
    return threading.Lock() if mark.locked() else mark


def entering(method: F) -> F:
    """A method that begins something in a store: `alone` from its beginning to its end."""

    @functools.wraps(method)
    def entered(*args: Any, **kwargs: Any) -> Any:
        with alone():
            return method(*args, **kwargs)

    return cast(F, entered)


def within(method: F) -> F:
    """A method that does a part of it: `inside`, and never refused."""

    @functools.wraps(method)
    def entered(*args: Any, **kwargs: Any) -> Any:
        with inside():
            return method(*args, **kwargs)

    return cast(F, entered)


def reserve_thread() -> None:
    """This thread is Semel's own, and others wait for what it does: no tool runs on it."""
    _threads.reserved = True


def is_reserved() -> bool:
    return getattr(_threads, "reserved", False)
