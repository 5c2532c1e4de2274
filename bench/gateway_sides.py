"""Gateways under load, and what they are compared with. Gateways are processes, started as people start them.

They run with --dev and without a line of log per request: the other sides ask nobody for credentials either,
and log nothing. Each start has an idempotency key and a small body; the workflow has no steps, as one that an
outside engine executes. Runs are ended between the rounds, outside of the clock, and the messages about them
have left before the next round begins. All sides are asked the same, over HTTP: nobody looks into a store.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count as counting
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Self
from urllib.parse import quote

import orjson

from bench.http_load import HttpLoad, HttpReply, is_ready, request
from bench.servers import REPOSITORY, ServerMissing, free_port
from semel.flow.assembly import Flow, Policy
from semel.flow.values import Caller
from semel.kernel.clock import SYSTEM
from semel.stores.urls import open_store

# As the default of the gateway allows: nobody had to raise a limit.
ACTIVE_MAX = 10

# Never reached: where one tenant starts everything, its limit is not what is measured.
NO_LIMIT = 1_000_000

WORKFLOW = "bench"
INPUT = orjson.dumps({"order": 4711, "amount_minor": 1_400_000, "reason": "damaged"})

# Where a command names the port that its server gets.
PORT = "{port}"

# A cold start takes a second; on a busy machine with a slow disk it takes longer.
_START_S = 60.0
_LOOK_S = 0.005

# Messages leave within milliseconds; between two rounds nobody counts.
_SENT_WITHIN_S = 0.05

# What a list gives at once.
_PAGE = 200


class HttpServer:
    """A process of our own that answers on a free port of this machine."""

    def __init__(self, directory: Path, *words: str, source: Path | None = None) -> None:
        """It is ready. ServerMissing if it ends before it is. `source` is that of another tree than ours."""
        self.port = free_port()
        self._log = directory / f"{self.port}.log"
        command = [sys.executable, "-m", *(word.replace(PORT, str(self.port)) for word in words)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(source),
                cwd=REPOSITORY,
            )
        give_up_at = SYSTEM.monotonic() + _START_S
        while not is_ready(self.port):
            if self._process.poll() is not None or SYSTEM.monotonic() > give_up_at:
                self.close()
                raise ServerMissing(f"{words[0]} does not start: {self._last_words()}")
            SYSTEM.sleep(_LOOK_S)

    def _last_words(self) -> str:
        return " ".join(self._log.read_text(encoding="utf-8", errors="replace").split())[-300:]

    def memory_bytes(self) -> int:
        """What the process holds in memory."""
        statm = Path(f"/proc/{self._process.pid}/statm")
        if statm.exists():
            return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        command = ["ps", "-o", "rss=", "-p", str(self._process.pid)]
        return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """It was asked to stop, and has."""
        self._process.terminate()
        self._process.wait(_START_S)


def gateway(directory: Path, url: str, *flags: str, source: Path | None = None) -> HttpServer:
    """`semel serve` on this store; ServerMissing if that is not installed here."""
    for module in ("uvicorn", "uvloop", "httptools"):
        if find_spec(module) is None:
            raise ServerMissing(f'The gateway is not installed ({module}): pip install "semel[gateway]"')
    return HttpServer(directory, "semel", "serve", f"--url={url}", f"--port={PORT}", *flags, source=source)


def bare(directory: Path, url: str) -> HttpServer:
    return HttpServer(directory, "bench.bare_app", url, PORT)


def _environment(source: Path | None) -> dict[str, str]:
    """Ours, without what would change a gateway behind its flags' back."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    if source is not None:
        kept["PYTHONPATH"] = str(source)
    # No tenant is held back: how fast one can be is what is asked.
    return {**kept, "SEMEL_LOG": "none", "SEMEL_TENANT_RATE": "0"}


def tenants(count: int, prefix: str = "tenant") -> tuple[str, ...]:
    return tuple(f"{prefix}-{number:04}" for number in range(count))


class Starts:
    """Runs started over HTTP: each connection the next one as soon as it is answered."""

    def __init__(
        self,
        name: str,
        servers: Sequence[HttpServer],
        whose: Sequence[str],
        *,
        connections: int,
        limit: int = ACTIVE_MAX,
    ) -> None:
        self.name = name
        self._whose = whose
        self._next, self._started = counting(), 0
        self.last_s: float | None = None  # what a start took in the last round
        self._load = HttpLoad([each.port for each in servers], connections)
        self._define(limit)

    def _define(self, limit: int) -> None:
        workflow = orjson.dumps({"steps": []})
        requests = [self._request("PUT", f"workflows/{WORKFLOW}", one, workflow) for one in self._whose]
        if limit != ACTIVE_MAX:
            body = orjson.dumps({"max_concurrent_runs": limit})
            requests += [self._request("PUT", f"tenants/{one}", one, body) for one in self._whose]
        self._all_done(requests)

    def _request(self, method: str, path: str, tenant: str, body: bytes = b"", **headers: str) -> bytes:
        return request(method, f"/api/v1/{path}", {"X-Tenant-ID": tenant, **headers}, body)

    def _all_done(self, requests: list[bytes]) -> list[HttpReply]:
        replies, _ = self._load.crowd(requests)
        check(replies)
        return replies

    def round(self, count: int) -> float:
        whose = self.next_tenants(count)
        replies, took = self._load.crowd([self.start_of(tenant) for tenant in whose])
        self.end(whose, replies)
        self.last_s = took / len(whose)
        return self.last_s

    def next_tenants(self, count: int) -> list[str]:
        return [self._whose[number % len(self._whose)] for number in islice(self._next, count)]

    def start_of(self, tenant: str) -> bytes:
        key = {"Idempotency-Key": SYSTEM.token().hex()}
        return self._request("POST", f"workflows/{WORKFLOW}/runs", tenant, INPUT, **key)

    def begin(self, count: int) -> None:
        """So many runs more, which stay active."""
        self._all_done([self.start_of(tenant) for tenant in self.next_tenants(count)])
        self._started += count

    def end(self, whose: Sequence[str], replies: Sequence[HttpReply]) -> None:
        """All of them were admitted and have ended: their slots are free, and nothing waits to be sent."""
        check(replies)
        self._started += len(replies)
        ids = [orjson.loads(reply.body)["run_id"] for reply in replies]
        body = orjson.dumps({"status": "succeeded"})
        pairs = zip(whose, ids, strict=True)
        self._all_done([self._request("POST", f"runs/{id_}/complete", one, body) for one, id_ in pairs])
        SYSTEM.sleep(_SENT_WITHIN_S)

    def did(self) -> dict[str, int]:
        runs = [run for tenant in self._whose for run in self._runs(tenant)]
        active = sum(run["status"] == "running" for run in runs)
        return {"starts": self._started, "runs": len(runs), "active": active}

    def _runs(self, tenant: str) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            after = f"&cursor={quote(cursor)}" if cursor else ""
            (reply,) = self._all_done([self._request("GET", f"runs?limit={_PAGE}{after}", tenant)])
            page = orjson.loads(reply.body)
            runs += page["items"]
            cursor = page["next_cursor"]
        return runs

    def close(self) -> None:
        self._load.close()


class OnSchedule(Starts):
    """Runs started at half the rate that `top` reached last. A round is not its mean time but its P99."""

    def __init__(self, name: str, served: HttpServer, top: Starts, **options: Any) -> None:
        super().__init__(name, [served], **options)
        self._top = top

    def round(self, count: int) -> float:
        each_s = self._top.last_s or self._top.round(count)
        whose = self.next_tenants(count)
        replies = self._load.schedule([self.start_of(tenant) for tenant in whose], 0.5 / each_s)
        self.end(whose, replies)
        return sorted(reply.took_s for reply in replies)[int(0.99 * count)]


class StoreStarts:
    """Runs of one tenant admitted in this process by so many callers: nothing but admission is measured."""

    def __init__(self, name: str, url: str, policy: Policy, *, callers: int, share: float = 1) -> None:
        self.name = name
        self._callers, self._share, self._started = callers, share, 0
        self._who = Caller("hot", "bench")
        self._store = open_store(url)
        self._runner = asyncio.Runner()
        self._flow = Flow(self._store, policy, send=_send, wait=_wait)
        self._runner.run(self._define())

    async def _define(self) -> None:
        await self._flow.workflows.put_tenant(self._who.tenant, NO_LIMIT)
        await self._flow.workflows.put(self._who.tenant, WORKFLOW, {"steps": []})

    def round(self, count: int) -> float:
        count = max(1, round(count * self._share))
        self._started += count
        return self._runner.run(self._start_and_end(count)) / count

    def begin(self, count: int) -> None:
        """So many runs are started, and not ended."""
        self._started += count
        self._runner.run(self._begin(_keys(count)))

    async def _begin(self, keys: Sequence[str]) -> list[str]:
        body, ids = orjson.loads(INPUT), list[str]()

        async def start(key: str) -> None:
            answer = await self._flow.runs.start(self._who, WORKFLOW, key, body)
            ids.append(orjson.loads(answer.body)["run_id"])

        await self._crowd(start, keys)
        return ids

    async def _start_and_end(self, count: int) -> float:
        async def end(run_id: str) -> None:
            await self._flow.runs.complete(self._who, run_id, "succeeded", None)

        keys = _keys(count)
        began = perf_counter()
        ids = await self._begin(keys)
        took = perf_counter() - began
        await self._crowd(end, ids)
        await self._flow.outbox.run_once()
        return took

    async def _crowd(self, work: Any, items: Sequence[str]) -> None:
        left = iter(items)

        async def caller() -> None:
            for item in left:
                await work(item)

        await asyncio.gather(*(caller() for _ in range(self._callers)))

    def did(self) -> dict[str, int]:
        runs, active = (self._runner.run(self._count(status)) for status in (None, "running"))
        return {"starts": self._started, "runs": runs, "active": active}

    async def _count(self, status: str | None) -> int:
        runs, after = 0, None
        while True:
            page = await self._flow.runs.list(self._who.tenant, None, status, after, _PAGE)
            runs += len(page.items)
            if page.next_after is None:
                return runs
            after = page.next_after

    def close(self) -> None:
        self._runner.run(self._store.aclose())
        self._runner.close()


def _keys(count: int) -> list[str]:
    return [SYSTEM.token().hex() for _ in range(count)]


class Beginnings:
    """A gateway is started on a store that exists, until it says that it is ready; and stopped again."""

    def __init__(self, name: str, directory: Path, url: str) -> None:
        self.name = name
        self._directory, self._url, self._begun = directory, url, 0

    def round(self, count: int) -> float:
        return sum(self._begin() for _ in range(count)) / count

    def _begin(self) -> float:
        began = perf_counter()
        with gateway(self._directory, self._url, "--dev"):
            self._begun += 1
            return perf_counter() - began

    def did(self) -> dict[str, int]:
        return {"beginnings": self._begun}

    def close(self) -> None:
        """Nothing of it runs between the rounds."""


def check(replies: Sequence[HttpReply]) -> None:
    """All were done: a refusal is quick, and would be counted as a success."""
    wrong = next((reply for reply in replies if reply.status != 200), None)
    if wrong is not None:
        raise RuntimeError(f"The gateway answered {wrong.status}: {wrong.body.decode()[:300]}")


async def _send(_: object) -> None:
    """Nobody listens here."""


async def _wait(_: str, __: Sequence[str], seconds: float) -> None:
    await SYSTEM.asleep(seconds)
