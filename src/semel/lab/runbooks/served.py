"""A gateway to work on: one that runs already, or one of our own, a real process on a free loopback port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from semel.client import Answer, AsyncGateway, Problem
from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM

# A cold start takes a second of a processor, of which a busy machine may give a thirtieth. One that ends
# is noticed at once.
_START_S = 120.0

_HEARTBEAT_S = 0.05

# A crowd on a busy machine is answered in its turn.
_ANSWER = "30s"

_SEEN_CHARS = 200

# As `semel serve` says where it is.
_SERVING = re.compile(r"^Serving .* on (http://\S+)$", re.MULTILINE)

A = TypeVar("A", bound=Answer)


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

    def gateway(self, person: str = "runbook", *, approver: bool = False) -> AsyncGateway:
        """A client that acts as this person, as an approver with that key; it shows every refusal."""
        key = self.approver_key if approver else self.api_key
        tenant, principal = (self.tenant, person) if self.dev else (None, None)
        return AsyncGateway(
            self.url, key, tenant=tenant, principal=principal, within=_ANSWER, try_for=_ANSWER, tries=1
        )


async def outcome(asking: Awaitable[A]) -> A | Problem:
    """What the gateway says, be it a refusal; Problem if it says nothing."""
    try:
        return await asking
    except Problem as problem:
        if problem.status is None:
            raise
        return problem


def seen(outcome: Answer | Problem) -> str:
    if isinstance(outcome, Problem):
        return f"{outcome.status} {outcome.code}: {outcome.message}"[:_SEEN_CHARS]
    return f"200 {orjson.dumps(outcome.raw).decode()}"[:_SEEN_CHARS]


@contextmanager
def own_gateway(
    store: str | None = None, tenant: str = "runbook", program: Sequence[str] = ("semel",), **flags: str
) -> Iterator[ServedGateway]:
    """A --dev gateway of our own on this store, or on SQLite in a temporary folder; gone afterwards.

    Another `program` than the command itself is a module with its arguments, and serves as the command does.
    """
    with tempfile.TemporaryDirectory(prefix="semel-runbook-") as folder:
        url = store or f"sqlite:///{Path(folder) / 'semel.db'}"
        words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        command = [sys.executable, "-m", *program, "serve", "--dev", f"--url={url}", "--port=0", *words]
        log = Path(folder) / "gateway.log"
        with log.open("wb") as output:
            # A session of its own: Ctrl-C is for us, who still need it to clean up.
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=_environment(), start_new_session=True
            )
        try:
            yield ServedGateway(_address_of(process, log), tenant=tenant)
        finally:
            process.terminate()
            process.wait(timeout=_START_S)


def _environment() -> dict[str, str]:
    """Ours, without what would change the gateway behind the flags' back."""
    flags = {"SEMEL_BUS", "SEMEL_HOST", "SEMEL_PORT", "SEMEL_ADMISSION", "SEMEL_LOCK_RETRY", "SEMEL_DEV"}
    return {"SEMEL_LOG": "problems"} | {
        name: value for name, value in os.environ.items() if name not in flags
    }


def _address_of(process: subprocess.Popen[Any], log: Path) -> str:
    """Where the gateway serves, which it says once it does."""
    give_up_at = SYSTEM.monotonic() + _START_S
    while True:
        running, output = process.poll() is None, log.read_text(errors="replace")
        if serving := _SERVING.search(output):
            return serving[1]
        if not running or SYSTEM.monotonic() > give_up_at:
            process.kill()
            raise StoreUnavailable(
                f"The gateway did not start; nothing was checked. It said: {output[-2_000:]}"
            )
        SYSTEM.sleep(_HEARTBEAT_S)
