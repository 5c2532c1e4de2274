"""Waiting for another thread, so that an interrupt at any place strands nobody.

The standard library's Condition, Event and Semaphore take their locks in Python code: a ctrl-C between two of
its lines leaves such a lock locked for good. The locks here are taken and released by single calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf

from semel.clock import SYSTEM

# Who waits is woken; this is for the one whose waker was interrupted on the way.
_LOOK_AGAIN_S = 1.0


def on_main_thread() -> bool:
    """Whether an interrupt can raise here: Python runs the handlers of signals in its main thread only."""
    return threading.current_thread() is threading.main_thread()


class Gates:
    """Threads that wait until something has come true."""

    def __init__(self) -> None:
        self._shut: set[threading.Lock] = set()

    def wait(self, came_true: Callable[[], bool], seconds: float = inf) -> bool:
        """Whether it came true within so many seconds."""
        give_up_at = SYSTEM.monotonic() + seconds
        while not came_true():
            gate = threading.Lock()
            gate.acquire()
            self._shut.add(gate)
            try:
                # Once more, because whoever made it true a moment ago did not see this gate.
                if came_true():
                    return True
                left_s = give_up_at - SYSTEM.monotonic()
                if left_s <= 0:
                    return False
                gate.acquire(timeout=min(left_s, _LOOK_AGAIN_S))
            finally:
                self._shut.discard(gate)
        return True

    def open(self) -> None:
        """Whoever waits looks again."""
        while self._shut:
            try:
                self._shut.pop().release()
            except KeyError:
                return  # another thread opened the last


class Flag:
    """Up or not, for threads that wait until it is."""

    def __init__(self) -> None:
        self._up = False
        self._gates = Gates()

    def is_set(self) -> bool:
        return self._up

    def set(self) -> None:
        self._up = True
        self._gates.open()

    def clear(self) -> None:
        self._up = False

    def wait(self, seconds: float = inf) -> bool:
        return self._gates.wait(self.is_set, seconds)
