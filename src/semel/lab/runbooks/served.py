"""A gateway to work on: one that runs already, or one of our own, a real process on a free loopback port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM

# A cold start takes a second of a processor, of which a busy machine may give a thirtieth. One that ends
# is noticed at once.
_START_S = 120.0

_HEARTBEAT_S = 0.05


@dataclass(frozen=True)
class ServedGateway:
    """Where the gateway is and how people are told apart there: by keys, or on a --dev gateway by name."""

    url: str
    api_key: str | None = None
    approver_key: str | None = None
    tenant: str | None = None

    @property
    def dev(self) -> bool:
        return self.api_key is None

    @asynccontextmanager
    async def client(
        self, person: str = "runbook", *, approver: bool = False
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client that acts as this person; as an approver with the approver's key."""
        headers = {"X-Principal-Id": person} if self.dev else {}
        if self.dev and self.tenant:
            headers["X-Tenant-ID"] = self.tenant
        key = self.approver_key if approver else self.api_key
        if key:
            headers["X-API-Key"] = key
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, limits=limits) as client:
            yield client


@contextmanager
def own_gateway(store: str | None = None, tenant: str = "runbook", **flags: str) -> Iterator[ServedGateway]:
    """A --dev gateway of our own on this store, or on SQLite in a temporary folder; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="semel-runbook-") as folder:
        url = store or f"sqlite:///{Path(folder) / 'semel.db'}"
        port = _free_port()
        words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        command = [sys.executable, "-m", "semel", "serve", "--dev", f"--url={url}", f"--port={port}", *words]
        log = Path(folder) / "gateway.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=_environment())
        try:
            server = ServedGateway(f"http://127.0.0.1:{port}", tenant=tenant)
            _wait_until_ready(server, process, log)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=_START_S)


def _environment() -> dict[str, str]:
    """Ours, without what would change the gateway behind the flags' back."""
    flags = {"SEMEL_BUS", "SEMEL_HOST", "SEMEL_PORT", "SEMEL_ADMISSION", "SEMEL_LOCK_RETRY", "SEMEL_DEV"}
    return {"SEMEL_LOG": "problems"} | {
        name: value for name, value in os.environ.items() if name not in flags
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(server: ServedGateway, process: subprocess.Popen[Any], log: Path) -> None:
    give_up = SYSTEM.monotonic() + _START_S
    while SYSTEM.monotonic() < give_up and process.poll() is None:
        try:
            if httpx.get(f"{server.url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        SYSTEM.sleep(_HEARTBEAT_S)
    process.kill()
    log_end = log.read_text(errors="replace")[-2_000:]
    raise StoreUnavailable(f"The gateway did not start; nothing was checked. It said: {log_end}")
