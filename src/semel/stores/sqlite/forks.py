"""Forks: no connection is open while a process forks.

SQLite keeps what it knows of a file's locks in the process. A child inherits that knowledge without the
locks themselves, would take them for granted, and another process could then clear the write-ahead log away
under it. So every store closes its connections before a fork, and parent and child open their own when they
next need one.
"""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import Protocol

from semel.kernel.clock import SYSTEM
from semel.kernel.waiting import inside, is_inside

# Longer than a store waits for another process by default. After that the fork goes ahead all the same, and
# the store refuses in the child.
_WAIT_S = 10.0


class Forking(Protocol):
    def pause(self, give_up_at: float) -> bool:
        """Whether no connection is open any more, and none will be until `resume`."""

    def resume(self) -> None: ...

    def renew(self, *, usable: bool) -> None:
        """In the child: as newly opened, without touching anything of the parent's."""


_stores: weakref.WeakSet[Forking] = weakref.WeakSet()
_paused: list[tuple[Forking, bool]] = []
_marks: list[Lock] = []


def register(store: Forking) -> None:
    _stores.add(store)


def _before() -> None:
    if is_inside():
        # What this thread is in the middle of does not end before it has forked.
        _paused.extend((store, False) for store in list(_stores))
        return
    # Until it has forked it is in the middle of all of them: code that comes back in would wait for itself.
    _marks.append(inside())
    _marks[-1].acquire()
    give_up_at = SYSTEM.monotonic() + _WAIT_S
    _paused.extend((store, store.pause(give_up_at)) for store in list(_stores))


def _go_on() -> None:
    while _marks:
        mark = _marks.pop()
        if mark.locked():
            mark.release()


def _in_parent() -> None:
    paused = _paused.copy()
    _paused.clear()
    for store, quiet in paused:
        if quiet:
            store.resume()
    _go_on()


def _in_child() -> None:
    paused = _paused.copy()
    _paused.clear()
    for store, quiet in paused:
        store.renew(usable=quiet)
    _go_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
