"""A process is stopped (SIGSTOP) while none of its threads holds the lock of a SQLite file.

Else a heartbeat that was just being written would keep everybody else from the file, by chance.
Run as a program, `python -m tests.freezing URL PID`, it does that for a process that freezes itself.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S

_PAUSE_S = 0.001


def freeze(pid: int, url: str) -> None:
    """The process stands still, and holds no lock of the store at the URL."""
    with _nobody_writes(url):
        os.kill(pid, signal.SIGSTOP)
        while not is_frozen(pid):
            time.sleep(_PAUSE_S)


def is_frozen(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def _nobody_writes(url: str) -> Iterator[None]:
    """The lock of a SQLite file is held here; other stores have none that outlives a command."""
    if not url.startswith("sqlite:///"):
        yield
        return
    path = url.removeprefix("sqlite:///").partition("?")[0]
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_S)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


if __name__ == "__main__":
    freeze(int(sys.argv[2]), sys.argv[1])
