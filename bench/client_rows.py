"""The rows about the client: what a start of a run takes with it, beside the same request written with httpx.

Both ask the same gateway, one request after the other, on a connection that is open. Its store is in memory:
where a disk is waited for, the client's share is smaller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import httpx
import orjson

from bench.figures import Unit, alone, at_most, times
from bench.gateway_sides import INPUT, NO_LIMIT, WORKFLOW, HttpServer, gateway
from bench.plan import Experiment, ExperimentResources
from bench.sides import Side
from semel.client import AsyncGateway, Gateway
from semel.kernel.clock import SYSTEM


class ClientStarts:
    """Starts of runs of a tenant of its own; they are ended between the rounds."""

    def __init__(self, name: str, server: HttpServer) -> None:
        self.name, self._started = name, 0
        self._url, self._tenant = f"http://127.0.0.1:{server.port}", name.replace(" ", "-")
        self._gateway = Gateway(self._url, tenant=self._tenant)
        self._gateway.workflows.put(WORKFLOW)
        self._gateway.tenants.put(self._tenant, NO_LIMIT)

    def round(self, count: int) -> float:
        keys = [SYSTEM.token().hex() for _ in range(count)]
        ids, took = self._start(keys)
        for run_id in ids:
            self._gateway.runs.complete(run_id, "succeeded")
        self._started += len(ids)
        return took / count

    def _start(self, keys: list[str]) -> tuple[list[str], float]:
        """The ids of the runs, and how long that took."""
        body = orjson.loads(INPUT)
        began = perf_counter()
        ids = [self._gateway.runs.start(WORKFLOW, body, key).run_id for key in keys]
        return ids, perf_counter() - began

    def did(self) -> dict[str, int]:
        return {"starts": self._started, "runs": len(list(self._gateway.runs.list(status="succeeded")))}

    def close(self) -> None:
        self._gateway.close()


class HttpxStarts(ClientStarts):
    """The same without the client: no second try, no check of what came back."""

    def __init__(self, name: str, server: HttpServer) -> None:
        super().__init__(name, server)
        self._http = httpx.Client(base_url=self._url, headers={"X-Tenant-ID": self._tenant})

    def _start(self, keys: list[str]) -> tuple[list[str], float]:
        body = orjson.loads(INPUT)
        began = perf_counter()
        ids = [self._posted(body, key) for key in keys]
        return ids, perf_counter() - began

    def _posted(self, body: Any, key: str) -> str:
        answer = self._http.post(_PATH, json=body, headers={"Idempotency-Key": key})
        answer.raise_for_status()
        run_id: str = answer.json()["run_id"]
        return run_id

    def close(self) -> None:
        super().close()
        self._http.close()


class AsyncClientStarts(ClientStarts):
    """By the asynchronous client."""

    def __init__(self, name: str, server: HttpServer) -> None:
        super().__init__(name, server)
        self._runner = asyncio.Runner()
        self._awaited = AsyncGateway(self._url, tenant=self._tenant)

    def _start(self, keys: list[str]) -> tuple[list[str], float]:
        return self._runner.run(self._all(keys))

    async def _all(self, keys: list[str]) -> tuple[list[str], float]:
        body = orjson.loads(INPUT)
        began = perf_counter()
        ids = [(await self._awaited.runs.start(WORKFLOW, body, key)).run_id for key in keys]
        return ids, perf_counter() - began

    def close(self) -> None:
        super().close()
        self._runner.run(self._awaited.aclose())
        self._runner.close()


class AsyncHttpxStarts(ClientStarts):
    """By httpx alone, awaited."""

    def __init__(self, name: str, server: HttpServer) -> None:
        super().__init__(name, server)
        self._runner = asyncio.Runner()
        self._http = httpx.AsyncClient(base_url=self._url, headers={"X-Tenant-ID": self._tenant})

    def _start(self, keys: list[str]) -> tuple[list[str], float]:
        return self._runner.run(self._all(keys))

    async def _all(self, keys: list[str]) -> tuple[list[str], float]:
        body, ids = orjson.loads(INPUT), list[str]()
        began = perf_counter()
        for key in keys:
            answer = await self._http.post(_PATH, json=body, headers={"Idempotency-Key": key})
            answer.raise_for_status()
            ids.append(answer.json()["run_id"])
        return ids, perf_counter() - began

    def close(self) -> None:
        super().close()
        self._runner.run(self._http.aclose())
        self._runner.close()


_PATH = f"/api/v1/workflows/{WORKFLOW}/runs"

_SIDES: dict[str, type[ClientStarts]] = {
    "client": ClientStarts,
    "httpx": HttpxStarts,
    "awaited client": AsyncClientStarts,
    "awaited httpx": AsyncHttpxStarts,
}


def _sides(resources: ExperimentResources) -> Iterator[Side]:
    served = resources.ending.enter_context(gateway(resources.directory, "memory://", "--dev"))
    for name, side in _SIDES.items():
        yield side(name, served)


_BARE = "httpx tries once, believes every answer, and gives back JSON."

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "client",
        (
            times(
                "client-start-httpx",
                "client: start of a run / bare httpx",
                at_most(1.3),
                "client",
                "httpx",
                _BARE,
            ),
            times(
                "client-awaited-start-httpx",
                "client: start of a run, awaited / bare httpx",
                at_most(1.3),
                "awaited client",
                "awaited httpx",
                _BARE,
            ),
            alone("client-start", "client: start of a run", Unit.MICROSECONDS, "client"),
        ),
        _sides,
        operations=50,
        quick_operations=10,
        needs="gateway",
    ),
)
