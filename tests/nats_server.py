"""Real NATS servers, private to the tests: on free ports, in temporary directories, ended by their id."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from bench.servers import free_port
from semel.flow.bus import nats, open_bus
from semel.flow.bus.nats import NatsBus
from tests.fake_clock import PATIENCE_S
from tests.missing import cannot
from tests.server_process import ServerProcess

# A server starts in milliseconds; on a busy machine it takes longer.
START_S = PATIENCE_S


def need_nats() -> str:
    """Skips with one clear line where there is no NATS; in CI that is a failure."""
    # Debian puts it where only root looks.
    where = shutil.which("nats-server", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    if where is None:
        cannot("NATS is not installed: apt-get install nats-server")
    return where


class NatsServer(ServerProcess):
    """One server with JetStream, not yet started."""

    def __init__(self, *arguments: str, jetstream: bool = True) -> None:
        self._binary = need_nats()
        self._arguments = arguments
        self._jetstream = jetstream
        self.directory = Path(tempfile.mkdtemp(prefix="semel-nats-"))
        self.port = free_port()

    def start(self) -> None:
        """It answers, with its streams recovered."""
        kept = ["-js", "-sd", str(self.directory / "data")] if self._jetstream else []
        words = [self._binary, "-a", "127.0.0.1", "-p", str(self.port), *kept, *self._arguments]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        give_up_at = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, self.log()[-2_000:]
            assert time.monotonic() < give_up_at, "NATS does not start"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=START_S) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def empty(self) -> None:
        """What a stopped server kept is gone."""
        shutil.rmtree(self.directory / "data", ignore_errors=True)

    def url(self, who: str = "", **options: str) -> str:
        asked = "&".join(f"{name}={value}" for name, value in options.items())
        return f"nats://{who}127.0.0.1:{self.port}" + (f"?{asked}" if asked else "")


def on_bus(url: str, scene: Callable[[NatsBus], Awaitable[Any]], *, served: bool = True) -> Any:
    """What a scene with a bus of its own answers.

    A bus goes on without a server that does not answer within seconds. One that is there may take longer on a
    busy machine, and is waited for unless it is not `served`.
    """

    async def play() -> Any:
        bus = open_bus(url)
        assert isinstance(bus, NatsBus)
        await bus.start()
        try:
            return await asyncio.wait_for(scene(bus), 2 * PATIENCE_S)
        finally:
            await bus.stop()

    with mock.patch.object(nats, "_START_S", PATIENCE_S) if served else nullcontext():
        return asyncio.run(play())
