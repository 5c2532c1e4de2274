"""Commands whose caller does not wait: a thread carries them out, in their order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from semel.errors import SemelError, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Command
from semel.kernel.waiting import ServingThread, WaitingThreads, inside

log = logging.getLogger("semel")

# A server that restarts is back by then; after that the lease tells that something is in doubt.
_TRIES, _PAUSE_S = 8, 0.25

# Interrupted callers are rare; a store that is away for long must not fill the memory with them.
_WAITING_MAX = 10_000


class DeferredCommands:
    def __init__(self, perform: Callable[[Command], object]) -> None:
        self._perform = perform
        self.reset()

    def reset(self) -> None:
        """As new: also in a forked child, where the parent's thread and what it owes do not exist."""
        self.waiting: deque[Command] = deque(maxlen=_WAITING_MAX)  # not carried out yet
        self._changed = WaitingThreads()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, command: Command) -> None:
        self.waiting.append(command)
        with inside(), self._lock:
            if self._thread is None:
                thread = ServingThread(target=self._run, name="semel-redis-deferred", daemon=True)
                thread.start()
                self._thread = thread
        self._changed.wake()

    def _run(self) -> None:
        while self._changed.wait(lambda: bool(self.waiting) or self._closed) and self.waiting:
            command = self.waiting[0]
            self._carry_out(command)
            # If it is full, the oldest was dropped for a newer one.
            if self.waiting[0] is command:
                self.waiting.popleft()
            self._changed.wake()

    def _carry_out(self, command: Command) -> None:
        for _ in range(_TRIES):
            try:
                self._perform(command)
                return
            except StoreUnavailable:
                SYSTEM.sleep(_PAUSE_S * (0.5 + SYSTEM.random()))
            except SemelError as error:
                log.error("semel: cannot write %s: %s", type(command).__name__, error)
                return
        log.error("semel: gave up writing %s; the record will be in doubt", type(command).__name__)

    def flush(self, seconds: float) -> bool:
        """Whether what was added before is carried out, or given up, within so many seconds."""
        if threading.current_thread() is self._thread:
            return True
        return self._changed.wait(lambda: not self.waiting, seconds)

    def close(self) -> None:
        self._closed = True
        self._changed.wake()
