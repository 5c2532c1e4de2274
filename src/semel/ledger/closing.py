"""The end of a ledger: running calls are let end, what is left is parked, then the store is closed.

A handler of a signal may close on a thread that is in the middle of the store, or between steps of a call.
That thread cannot wait for itself: another one closes for it, once the call has had its last word.
"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import NamedTuple

from semel.errors import SemelError, StoreUnavailable
from semel.kernel.record import Park, Release
from semel.kernel.waiting import WaitingThreads, is_inside, is_reserved
from semel.ledger.keeper import Keeper
from semel.ledger.running import Running, RunningCall
from semel.stores.base import Store

log = logging.getLogger("semel")

PARKED = "the ledger was closed while the call was running"

# At the end of the process: what is written then takes a round trip or two, and a store that is away longer.
_AT_EXIT_S = 10.0


class Closer(NamedTuple):
    """One call of `close`: by which thread."""

    thread: int
    mark: object


class Closing:
    def __init__(self, store: Store, keeper: Keeper, running: Running) -> None:
        self._store = store
        self._keeper = keeper
        self._running = running
        self._closer: dict[str, Closer] = {}  # at most one
        self._closed = False
        self._changed = WaitingThreads()

    def close(self, within_s: float, innermost: RunningCall | None = None) -> None:
        """The store is closed; by another thread soon, where this one cannot be waited for.

        `innermost` is the call whose tool closes.
        """
        self._running.closing = True
        mine = Closer(threading.get_ident(), object())
        if self._closed or self._further_up(mine):
            return
        if is_inside() or is_reserved() or self._running.interrupted(innermost):
            self._hand_over(within_s)
            return
        self._running.excuse(innermost)
        while not self._closed:
            try:
                if self._closer.setdefault("it", mine) is mine:
                    self._end(within_s)
            finally:
                if self._closer.get("it") is mine:
                    del self._closer["it"]
                self._changed.wake()
            self._changed.wait(lambda: self._closed or not self._closer)

    def _further_up(self, mine: Closer) -> bool:
        """Whether this very thread is closing, and a handler came in between."""
        closer = self._closer.get("it")
        return closer is not None and closer.thread == mine.thread

    def _hand_over(self, within_s: float) -> None:
        thread = threading.Thread(target=self.close, args=(within_s,), name="semel-closing", daemon=True)
        _handed_over[:] = [(other, running) for other, running in _handed_over if other.is_alive()]
        _handed_over.append((thread, self._running))
        thread.start()

    def _end(self, within_s: float) -> None:
        self._running.wait(within_s)
        self._running.ended = True
        self._let_go()
        self._keeper.close()
        for at in self._store.waiters.addresses():
            self._store.waiters.wake(at)
        try:
            self._store.close()
        except Exception:
            self._closed = True
            raise
        self._closed = True

    def _let_go(self) -> None:
        """What has not ended is in doubt at once; what has not begun, and now never will, is given back."""
        for call in list(self._running.calls):
            last_word = _last_word(call)
            if last_word is None:
                continue
            self._keeper.end(call)
            try:
                self._store.perform(last_word)
            except StoreUnavailable as away:
                log.warning("semel: closed with calls under way that their leases will tell of: %s", away)
                return
            except SemelError as error:
                log.error("semel: cannot write %s: %s", type(last_word).__name__, error)


def _last_word(call: RunningCall) -> Park | Release | None:
    token = call.token
    if token is None:
        return None
    # `ended` was set before this look, and a call looks at that after it has set `entered`: so what is not
    # entered now is not going to be.
    if call.entered:
        return Park(call.at, token, PARKED)
    return Release(call.at, token, call.contract.window_us)


_handed_over: list[tuple[threading.Thread, Running]] = []


@atexit.register
def _wait_for_closers() -> None:
    """What was closed in the middle of a call is closed before the process ends."""
    for _, running in _handed_over:
        running.hurry()
    for thread, _ in _handed_over:
        if thread.ident is not None:
            thread.join(_AT_EXIT_S)
