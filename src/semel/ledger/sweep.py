"""The sweeper: lapsed leases become doubt, closed windows go, events are sealed.

Any number of sweepers may run, in any number of processes: each step of theirs is atomic in the store.
Nothing depends on it for safety: a lapsed record reads as in doubt, and a closed one as absent, swept or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from semel.audit.leaves import keep
from semel.flow.asking import ask
from semel.flow.indexes import CALLS_KEPT_US, DUE_CALLS
from semel.flow.upkeep import close_windows, pass_time
from semel.stores.base import SealEvents, Store, Sweep

# Small batches, so that a call never waits long behind the sweeper.
_BATCH = 500
_SEAL_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class SweepReport:
    lapsed: int
    closed: int
    sealed: int


class Sweeper:
    def __init__(self, store: Store) -> None:
        self._store = store

    def run_once(self, stopped: Callable[[], bool] = lambda: False) -> SweepReport:
        """One pass over everything that is due now; once `stopped`, the rest is left for the next."""
        lapsed = closed = 0
        more = True
        while more and not stopped():
            swept = self._store.ask(Sweep(_BATCH))
            lapsed, closed, more = lapsed + swept.lapsed, closed + swept.closed, swept.more
        sealed = self.seal(stopped)
        if not stopped():
            self._questions()
        return SweepReport(lapsed, closed, sealed)

    def seal(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """What no seal covers now is sealed, or what can be until `stopped`; how many events."""
        sealed = 0
        for lane in range(self._store.lanes):
            while not stopped() and (seal := self._store.ask(SealEvents(_SEAL_BATCH, lane))) is not None:
                keep(self._store, lane, seal)
                sealed += seal.events
                if seal.events < _SEAL_BATCH:
                    break  # what comes meanwhile is for the next round, or each event would get a seal
        return sealed

    def _questions(self) -> None:
        """What tools ask people is over in time, and forgotten in time, also where no gateway runs."""
        clock = self._store.clock
        ask(self._store, pass_time(clock, DUE_CALLS, CALLS_KEPT_US))
        ask(self._store, close_windows(clock))

    def run(self, every_s: float, stop: threading.Event) -> None:
        """A pass now and every so many seconds until told to stop."""
        while not stop.is_set():
            self.run_once(stop.is_set)
            self._store.clock.wait(stop, every_s)
