"""Noticing what other processes settle, while somebody here waits for it.

One connection listens. Who waits is marked on the record itself, and only a change of a marked record is sent
on the channel: a notification with every settlement would halve the throughput of all.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address
from semel.kernel.waiting import entering
from semel.stores.base import Waiters
from semel.stores.postgres import statements as sql
from semel.stores.postgres.packing import binaries, digest
from semel.stores.postgres.wire import PostgresConnection

# Notifications come at once; this look is for those that a broken connection lost.
_LOOK_AGAIN_S = 1.0

# Waiters come in crowds; thread and connection stay for the next one.
_STAYS_S = 5.0


class Listener:
    """A thread that runs while somebody waits."""

    def __init__(
        self,
        connect: Callable[[], PostgresConnection],
        channel: str,
        now: Callable[[], bytes | None],
        waiters: Waiters,
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._now = now
        self._link: PostgresConnection | None = None
        self._orphans: list[PostgresConnection] = []
        self.renew(waiters)

    def renew(self, waiters: Waiters) -> None:
        """As new, without touching what was open: for the child of a fork."""
        if self._link is not None:
            self._orphans.append(self._link)
        self._waiters = waiters
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._link = None
        self._marked: dict[bytes, tuple[Address, bytes]] = {}
        self._wake_end: int | None = None
        self._closed = False

    def start(self) -> None:
        """The thread runs, and looks at who waits now."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                read_end, self._wake_end = os.pipe()
                os.set_blocking(self._wake_end, False)
                self._thread = threading.Thread(
                    target=entering(self._listen),
                    args=(read_end, self._wake_end),
                    name="semel-postgres-listener",
                    daemon=True,
                )
                self._thread.start()
            else:
                self._wake_up()

    def _wake_up(self) -> None:
        if self._wake_end is not None:
            try:
                os.write(self._wake_end, b"!")
            except BlockingIOError:
                pass  # the pipe is full, so the thread wakes anyway

    def _listen(self, read_end: int, wake_end: int) -> None:
        idle_since = SYSTEM.monotonic()
        try:
            while True:
                with self._lock:
                    if self._waiters:
                        idle_since = SYSTEM.monotonic()
                    elif self._closed or SYSTEM.monotonic() - idle_since > _STAYS_S:
                        self._thread = self._wake_end = None
                        return
                    if self._closed:
                        self._thread = self._wake_end = None
                        return
                self._listen_once(read_end)
        finally:
            os.close(read_end)
            os.close(wake_end)
            self._drop_link()

    def _listen_once(self, read_end: int) -> None:
        try:
            if self._link is None:
                self._link = self._connect()
                self._link.script(f'LISTEN "{self._channel}"')
            self._mark()
            self._wait(self._link.socket, read_end)
            for payload in self._link.notifications():
                self._tell(payload)
        except Exception:
            # Waiters ask the store themselves when their time is over, and are told what is wrong with it.
            self._drop_link()
            self._wait(None, read_end)

    def _wait(self, socket: int | None, read_end: int) -> None:
        poll = select.poll()
        poll.register(read_end, select.POLLIN)
        if socket is not None:
            poll.register(socket, select.POLLIN)
        for ready, _ in poll.poll(_LOOK_AGAIN_S * 1000):
            if ready == read_end:
                os.read(read_end, 4096)

    def _mark(self) -> None:
        """Everyone who waits is marked; woken if the record is not underway, or not with the same owner."""
        assert self._link is not None
        waited = {digest(at): at for at in self._waiters.addresses()}
        if not waited:
            self._marked = {}
            return
        rows: dict[bytes, bytes] = dict(
            self._link.run(sql.MARK_WAITED, (self._now(), binaries(sorted(waited))))
        )
        marked = {}
        for under, at in waited.items():
            token = rows.get(under)
            before = self._marked.get(under)
            if token is None or (before is not None and before[1] != token):
                self._waiters.wake(at)
            else:
                marked[under] = (at, token)
        self._marked = marked

    def _tell(self, payload: str) -> None:
        try:
            marked = self._marked.pop(bytes.fromhex(payload), None)
        except ValueError:
            return
        if marked is not None:
            self._waiters.wake(marked[0])

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
            self._wake_up()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STAYS_S)
