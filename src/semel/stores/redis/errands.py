"""Commands whose caller does not wait: a thread carries them out, in their order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from semel.clock import SYSTEM
from semel.errors import SemelError, StoreUnavailable
from semel.record import Command

log = logging.getLogger("semel")

# A server that restarts is back by then; after that the lease tells that something is in doubt.
_TRIES, _PAUSE_S = 8, 0.25

# Interrupted callers are rare; a store that is away for long must not fill the memory with them.
_OWED_MAX = 10_000


class Errands:
    def __init__(self, perform: Callable[[Command], object]) -> None:
        self._perform = perform
        self.reset()

    def reset(self) -> None:
        """As new: also in a forked child, where the parent's thread and what it owes do not exist."""
        self._queue: deque[Command] = deque(maxlen=_OWED_MAX)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.owed = 0

    def add(self, command: Command) -> None:
        with self._changed:
            self._queue.append(command)
            self.owed = len(self._queue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="semel-redis-errands", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                command = self._queue[0]
            self._carry_out(command)
            with self._changed:
                self._queue.popleft()
                self.owed = len(self._queue)
                self._changed.notify_all()

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
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue, seconds)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
