"""One daemon thread per ledger: signs of life, writes put off, counts, ages, sightings, now and then a sweep.

A thread of its own, because a tool may block the event loop, and one for all calls, because a timer per call
costs more than the call. Beginning and ending a call only sets what it says of itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable

import orjson

from semel.audit.events import Event
from semel.errors import InFlight, OutcomeUnknown, SemelError, StoreUnavailable
from semel.kernel.clock import Clock
from semel.kernel.record import Address, Command, Look, Record, Renew, Settle
from semel.kernel.waiting import Flag, reserve_thread
from semel.ledger.catalogue import Sightings
from semel.ledger.counters import REFUSED, AnswerCounters
from semel.ledger.running import Running, RunningCall
from semel.ledger.sweep import Sweeper
from semel.stores.base import AppendEvents, Store
from semel.windows.age_counters import TOOL, AgeCounters, Subject
from semel.windows.ages import Ages

log = logging.getLogger("semel")

KEEPER_THREAD = "semel-keeper"

# The longest nap: replays counted in the last second may be lost in a crash, not more.
_TICK_S = 1.0

# Microseconds of a lease to seconds until its renewal: a third of it, so that two renewals may fail before
# the record is in doubt.
_RENEWED_AFTER = 3e6

# Calls that met a store that was away. Beyond this the oldest are left to their lease.
_DEFERRED_MAX = 10_000

# Events that the store did not take yet. Beyond this the oldest are given up.
_OWED_MAX = 10_000

# Not during the first calls of a process, which need the store.
_CATALOGUE_AFTER_S = 1.0

# A process that is killed loses the ages of so long. Windows are chosen from months of them.
_MERGE_EVERY_S = 10.0

# Leases are renewed by the same thread: what is left is merged a tick later.
_MERGED_AT_ONCE = 10

# Refusals of a key that is being performed, or in doubt. To look one up costs a read: not all of a storm are.
_RETRIES_REFUSED = frozenset((InFlight.code, OutcomeUnknown.code))
_LOOKED_UP_MAX = 20

# Three times within the minute after which `semel audit verify` misses a seal.
_SEAL_EVERY_S = 20.0

# What is sealed when the ledger closes takes milliseconds; whoever closes does not wait for more.
_SEAL_LAST_S = 1.0

# Windows are counted in hours, so a minute late is nothing; spread, so that a fleet does not sweep in step.
_SWEEP_EVERY_S = 60.0


class Keeper:
    def __init__(self, store: Store, counters: AnswerCounters, sweeper: Sweeper, running: Running) -> None:
        self._store = store
        self._running = running
        self._clock: Clock = store.clock
        self._counters = counters
        self._sweeper = sweeper
        self._deferred: deque[tuple[Command, float]] = deque(maxlen=_DEFERRED_MAX)
        self._owed: deque[Event] = deque(maxlen=_OWED_MAX)
        self.sightings: Sightings | None = None
        self._closing = False
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        """As new: also in a forked child, where the parent's thread, calls and locks do not exist."""
        for call in list(self._running.calls):
            self.end(call)
        self._awake = Flag()
        self._thread: threading.Thread | None = None
        self._wake_at = float("inf")
        self._sweep_at = self._clock.monotonic() + _SWEEP_EVERY_S * self._clock.random()
        self._merge_at = self._clock.monotonic() + _MERGE_EVERY_S * self._clock.random()
        self._seal_at = self._clock.monotonic() + _SEAL_EVERY_S * self._clock.random()
        self._wrote = False  # whether this process may have written events that nobody has sealed
        self._catalogue_at = self._clock.monotonic() + (_CATALOGUE_AFTER_S if self._clock.runs else 0.0)
        self._ages = AgeCounters()
        self._deferred.clear()
        self._owed.clear()

    # --- called on the way of a call: quick -------------------------------------------------------

    def begin(self, call: RunningCall) -> None:
        """Renew this call's lease while it runs, for at most its `run_limit`."""
        now, contract = self._clock.monotonic(), call.contract
        call.began = now
        call.stop_at = now + contract.run_limit_us / 1e6
        due = call.due = now + contract.lease_us / _RENEWED_AFTER
        call.renewed = True
        if self._thread is None:
            self._start()
        if due < self._wake_at:
            self._awake.set()

    def end(self, call: RunningCall) -> None:
        """The call is over; nothing happens if it never began."""
        call.renewed = False
        if call.timed:
            call.left = self._clock.monotonic()

    def defer(self, command: Command, give_up_s: float) -> None:
        """Repeat this write in the background until the store takes it, for at most so long."""
        self._deferred.append((command, self._clock.monotonic() + give_up_s))
        self._start()
        self._awake.set()

    def write(self, events: Iterable[Event]) -> None:
        """Put these into the audit log soon: unlike counts, they are kept until the store takes them."""
        self._owed.extend(events)
        self._start()
        self._awake.set()

    def notice(self) -> None:
        """Something was counted or written: make sure that somebody writes it down, and seals it."""
        if self._thread is None:
            self._start()

    def saw(self, subject: Subject, ages: Ages) -> None:
        """Retries of somebody else's keys were counted: they are merged soon, if the thread runs."""
        self._ages.add(subject, ages)

    # --- the thread -------------------------------------------------------------------------------

    def _start(self) -> None:
        """Without a lock, on which a finaliser that comes in between would wait for itself."""
        self._wrote = True
        if self._thread is None and not self._closing and self._clock.runs:
            thread = threading.Thread(target=self._run, name=KEEPER_THREAD, daemon=True)
            thread.start()
            self._thread = thread  # once it runs; of two that were started at once the last goes on

    def _run(self) -> None:
        reserve_thread()
        while not self._closing and self._thread in (None, threading.current_thread()):
            nap = self.run_once()
            self._clock.wait(self._awake, nap)
            self._awake.clear()

    def run_once(self) -> float:
        """Do what is due; how many seconds until the next thing is."""
        now = self._clock.monotonic()
        self._wake_at = float("inf")  # whoever begins a call meanwhile has us look once more
        for call in self._renewed():
            if call.due <= now:
                self._renew(call, now)
        self._write_deferred(now)
        self.flush()
        if self._merge_at <= now:
            self._merge_at = now + _MERGE_EVERY_S * (0.75 + 0.5 * self._clock.random())
            self._quietly(lambda: self._merge_some(now))
        if self._seal_at <= now:
            self._seal_at = now + _SEAL_EVERY_S * (0.75 + 0.5 * self._clock.random())
            self._quietly(lambda: self._sweeper.seal(lambda: self._closing))
        if self.sightings and self._catalogue_at <= now:
            self._quietly(lambda: self._write_sightings(now))
        if self._sweep_at <= now:
            self._sweep_at = now + _SWEEP_EVERY_S * (0.75 + 0.5 * self._clock.random())
            self._quietly(lambda: self._sweeper.run_once(lambda: self._closing))
        self._wake_at = min((call.due for call in self._renewed()), default=now + _TICK_S)
        self._wake_at = min(self._wake_at, now + _TICK_S)
        return max(0.001, self._wake_at - self._clock.monotonic())

    def _renewed(self) -> list[RunningCall]:
        return [call for call in list(self._running.calls) if call.renewed]

    def _renew(self, call: RunningCall, now: float) -> None:
        token, lease_us = call.token, call.contract.lease_us
        if token is None:
            return  # it has just had its last word
        if now >= call.stop_at:
            self.end(call)  # run_limit: from here on the lease lapses, and the record is in doubt
            return
        try:
            reply = self._store.perform(Renew(call.at, token, lease_us))
        except StoreUnavailable:
            call.due = now + 0.1 + 0.1 * self._clock.random()
            return
        except SemelError as error:
            log.error("semel: cannot renew the lease of %s: %s", call.key, error)
            self.end(call)
            return
        if reply.applied:
            call.due = now + lease_us / _RENEWED_AFTER
        elif call.renewed:
            call.lost = True
            self.end(call)

    def _write_deferred(self, now: float) -> None:
        for _ in range(len(self._deferred)):
            command, give_up_at = self._deferred.popleft()
            try:
                self._store.perform(command)
            except StoreUnavailable:
                if now < give_up_at:
                    self._deferred.append((command, give_up_at))
                elif isinstance(command, Settle):
                    log.error("semel: gave up settling %s; the record will be in doubt", command.at.key)
            except SemelError as error:
                log.error("semel: cannot write %s: %s", type(command).__name__, error)

    def flush(self) -> None:
        """Write what was counted. Counts that the store does not take are lost: they are not worth a wait."""
        if self._owed:
            self._quietly(self._write_owed)
        if not self._counters:
            return
        events = self._counters.take()
        for (tenant, tool), ages in self._counters.take_ages().items():
            self._ages.add(Subject(tenant, TOOL, tool), ages)
        if events and self._store.audit:
            self._quietly(lambda: self._store.ask(AppendEvents(events)))
        refused = [event for event in events if event.kind == REFUSED and event.state in _RETRIES_REFUSED]
        if refused:
            self._quietly(lambda: self._look_up(refused[:_LOOKED_UP_MAX]))

    def _write_owed(self) -> None:
        events = list(self._owed)
        if self._store.audit:
            # Twice in the log after a lost reply, rather than not at all.
            self._store.ask(AppendEvents(events))
        for _ in events:
            self._owed.popleft()

    def _look_up(self, refused: list[Event]) -> None:
        """Count the ages of these retries. Their records are unsettled, so no window has removed one."""
        for event in refused:
            record = self._store.perform(Look(Address(event.tenant, event.scope, event.key))).record
            if record is None or (event.state == OutcomeUnknown.code and _may_be_first(record, event.at_us)):
                continue
            ages = Ages()
            ages.saw([event.at_us] * event.times, record.created_at)
            self._ages.add(Subject(event.tenant, TOOL, event.tool), ages)

    def _merge_some(self, now: float) -> None:
        if not self._ages.merge(self._store, _MERGED_AT_ONCE):
            self._merge_at = now

    def _write_sightings(self, now: float) -> None:
        """What is left over waits for the next tick; where the store is away, for longer."""
        assert self.sightings is not None
        self._catalogue_at = now + _MERGE_EVERY_S
        self.sightings.merge(_MERGED_AT_ONCE)
        self._catalogue_at = now

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except SemelError as error:
            log.warning("semel: background work put off: %s", error)
        except Exception:
            # Whatever it is, the leases of running calls have to be renewed all the same.
            log.exception("semel: background work failed")

    def abandon(self) -> None:
        """Nothing more is done, as in a process that is gone."""
        self._closing = True
        self._awake.set()

    def close(self) -> None:
        """What was counted or put off is written, if the store takes it now; the thread ends."""
        if self._closing:
            return
        self._closing = True
        self._awake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)
        self._write_deferred(self._clock.monotonic())
        self.flush()
        if self._owed:
            log.error("semel: closed before the store took %d events of the audit log", len(self._owed))
        self._quietly(lambda: self._ages.merge(self._store))
        if self.sightings:
            self._quietly(self.sightings.merge)
        self._quietly(self._seal_rest)

    def _seal_rest(self) -> None:
        """The process may have lived for a second: nobody else seals what it wrote. One that only read writes
        nothing."""
        if self._wrote:
            stop_at = self._clock.monotonic() + _SEAL_LAST_S
            self._sweeper.seal(lambda: self._clock.monotonic() >= stop_at)


def _may_be_first(record: Record, answered_us: int) -> bool:
    """Whether this answer may have gone to the first call itself, which is no retry.

    The first call gets it when its tool could not tell, which seldom takes longer than a lease.
    """
    lease_us: int = orjson.loads(record.request.terms).get("lease_us", 0)
    return answered_us - record.created_at <= lease_us


_all: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _after_fork() -> None:
    for keeper in list(_all):
        keeper._store.forked()
        keeper._counters.reset()
        keeper._reset()


def _at_exit() -> None:
    for keeper in list(_all):
        keeper.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
