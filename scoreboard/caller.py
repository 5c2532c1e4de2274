"""The parent's hold on worker processes, and on what they did outside of any library."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from bench.servers import REPOSITORY
from scoreboard.libraries import Library, Row
from scoreboard.stores import Store, opened
from semel.kernel.clock import SYSTEM

# How long a claim may go without a sign of life in these trials, where a library lets it be set. Long
# enough for a process that is alive to be seen alive on a busy machine.
LEASE_S = 3.0
WINDOW_S = 3_600.0

# How long a caller may take to answer before it counts as not answering.
ANSWER_S = 20.0

# A process that does not come up by then is stuck.
START_S = 120.0


class Stuck(Exception):
    """A worker did not do what only a broken machine keeps it from doing."""


class Nursery:
    """A process that has imported the row's library and forks callers: a process takes milliseconds, not a
    second.
    """

    def __init__(self, library: Library, folder: Path, **environment: str) -> None:
        self._folder, self._environment, self._lock = folder, environment, Lock()
        self._library, self._modules, self._numbers = library, "[]", count()
        self.log = folder / "log"
        self._start()

    def _start(self) -> None:
        words = [
            str(self._library.python),
            "-W",
            "ignore",
            "-m",
            "scoreboard.worker",
            str(self._library.file),
        ]
        # Nothing of ours may reach a library: it is tried as it comes.
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with open(self.log, "ab") as errors:
            self._process = subprocess.Popen(
                [*words, self._modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=REPOSITORY,
                env={**inherited, **self._environment},
                start_new_session=True,
                text=True,
            )
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Stuck(f"{self._library.name} does not start: {self.log.read_text(errors='replace')[-400:]}")
        return line

    def warm(self, store: Store) -> None:
        """What one call imports is imported before the next callers are forked."""
        place = {
            "url": store.where,
            "lease_s": LEASE_S,
            "window_s": WINDOW_S,
            "effects": str(self._folder / "warm"),
        }
        caller = self.caller(place)
        caller.ask("call", START_S, order="warm")
        answer = caller.ask("modules")
        caller.close()
        self.close()
        self._modules = json.dumps(answer["modules"] if answer else [])
        self._start()

    def caller(self, place: dict[str, Any]) -> Caller:
        address = str(self._folder / f"caller-{next(self._numbers)}")
        with socket.socket(socket.AF_UNIX) as listening, self._lock:
            listening.bind(address)
            listening.listen()
            assert self._process.stdin is not None
            request = {"socket": address, "place": place}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            pid = int(self._line())
            listening.settimeout(START_S)
            connection, _ = listening.accept()
        return Caller(pid, connection)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()


class Caller:
    """One worker process."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid, self._connection = pid, connection
        self._lines = connection.makefile("r")
        # Its number may be another's when it has died; this may not.
        self._handle = os.pidfd_open(pid)

    def tell(self, do: str, **command: Any) -> None:
        self._connection.sendall((json.dumps({"do": do, **command}) + "\n").encode())

    def hear(self, within_s: float = ANSWER_S) -> dict[str, Any] | None:
        """Its next answer; None if there is none by then, or if it died."""
        if not select.select([self._connection], [], [], within_s)[0]:
            return None
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def ask(self, do: str, within_s: float = ANSWER_S, **command: Any) -> dict[str, Any] | None:
        self.tell(do, **command)
        return self.hear(within_s)

    def signal(self, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            pass

    def ended(self, within_s: float) -> bool:
        return bool(select.select([self._handle], [], [], within_s)[0])

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.ended(START_S)

    def close(self) -> None:
        self.kill()
        self._lines.close()
        self._connection.close()
        os.close(self._handle)


class Scene:
    """A row on a store of its own, for one trial: it starts callers, opens gates and counts effects."""

    def __init__(self, row: Row, nursery: Nursery, store: Store, folder: Path, ends: ExitStack) -> None:
        self.row, self.store, self.folder, self._nursery, self._ends = row, store, folder, nursery, ends
        self._numbers = count()
        self._file = folder / "effects"
        self._file.touch()

    def caller(
        self,
        lease_s: float | None = LEASE_S,
        window_s: float | None = WINDOW_S,
        nursery: Nursery | None = None,
    ) -> Caller:
        place = {
            "url": self.store.where,
            "lease_s": lease_s,
            "window_s": window_s,
            "effects": str(self._file),
        }
        made = (nursery or self._nursery).caller(place)
        self._ends.callback(made.close)
        return made

    def nursery(self, **environment: str) -> Nursery:
        """Another one of the same library, whose processes have these variables."""
        folder = self.folder / f"nursery-{next(self._numbers)}"
        folder.mkdir()
        made = Nursery(self.row.library, folder, **environment)
        self._ends.callback(made.close)
        return made

    def receipts(self, order: str) -> list[str]:
        """One for each time that the effect of this order happened."""
        lines = [line.split(" ") for line in self._file.read_text().splitlines()]
        return [receipt for counted, receipt in lines if counted == order]

    def effects(self, order: str) -> int:
        return len(self.receipts(order))

    def happened(self) -> bool:
        """Some effect, of whatever order."""
        return self._file.stat().st_size > 0

    def gate(self, name: str) -> Path:
        return self.folder / f"gate-{name}"

    def wait(self, came_true: Callable[[], bool], within_s: float = ANSWER_S) -> bool:
        give_up_at = SYSTEM.monotonic() + within_s
        while not came_true():
            if SYSTEM.monotonic() > give_up_at:
                return False
            SYSTEM.sleep(0.01)
        return True

    def sleep(self, seconds: float) -> None:
        SYSTEM.sleep(seconds)

    def enter(self, caller: Caller, order: str, **plan: Any) -> None:
        """The caller is inside of the effect of this order, and stays there until its gate is opened."""
        caller.tell("call", order=order, plan={"gate": str(self.gate(order)), **plan})
        if not self.wait(lambda: self.effects(order) > 0):
            raise Stuck(f"{self.row.title}: the effect did not begin: {caller.hear(0.1)}")


@contextmanager
def scene(row: Row, nursery: Nursery, folder: Path) -> Iterator[Scene]:
    folder.mkdir(parents=True)
    with opened(row.store, folder / "store") as store, ExitStack() as ends:
        yield Scene(row, nursery, store, folder, ends)


@contextmanager
def nursery(row: Row, folder: Path) -> Iterator[Nursery]:
    """Warm, for all trials of a row."""
    folder.mkdir(parents=True)
    made = Nursery(row.library, folder)
    try:
        with opened(row.store, folder / "store") as store:
            made.warm(store)
        yield made
    finally:
        made.close()
