"""Requests to an application behind the middleware: in this process message by message, and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count as counting
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from bench.gateway_sides import PORT, HttpServer
from bench.http_load import HttpLoad, request
from bench.sides import settled_in
from semel.integrations.asgi import IdempotencyMiddleware
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger

BODY = orjson.dumps({"order": 4711, "amount_minor": 1_400_000})
ANSWER = orjson.dumps({"charged": 1_400_000})
USER = (b"authorization", b"Bearer of-the-bench")
LENGTH = (b"content-length", str(len(ANSWER)).encode())


class Charges:
    """A bare ASGI application: it reads the request, and answers."""

    def __init__(self) -> None:
        self.effects = 0

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        await receive()
        self.effects += 1
        headers = [(b"content-type", b"application/json"), LENGTH]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})


async def ask(application: Any, key: str) -> int:
    """One request; how many bytes its answer has."""
    size = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal size
        size += len(message.get("body", b""))

    headers = [
        (b"host", b"shop"),
        USER,
        (b"content-type", b"application/json"),
        (b"idempotency-key", key.encode()),
    ]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/charges",
        "root_path": "",
        "query_string": b"",
        "headers": headers,
    }
    await application(scope, receive, send)
    return size


class Requests:
    """Requests of so many tasks, one after the other, to an application in this process."""

    def __init__(self, name: str, application: Any, charges: Charges, tasks: int, work: str) -> None:
        self.name, self._application, self._charges = name, application, charges
        self._tasks, self._work = tasks, work
        self._numbers, self._keys_used = counting(), 0
        self._runner = asyncio.Runner()

    def round(self, count: int) -> float:
        return self._runner.run(self._all(count // self._tasks)) / (count // self._tasks * self._tasks)

    async def _all(self, each: int) -> float:
        keys = [self._keys(each) for _ in range(self._tasks)]
        if self._work == "replays":
            await asyncio.gather(*(ask(self._application, some[0]) for some in keys))
        began = perf_counter()
        await asyncio.gather(*(self._some(some) for some in keys))
        return perf_counter() - began

    def _keys(self, each: int) -> list[str]:
        self._keys_used += 1 if self._work == "replays" else each
        if self._work == "replays":
            return [f"key-{next(self._numbers)}"] * each
        return [f"key-{next(self._numbers)}" for _ in range(each)]

    async def _some(self, keys: Sequence[str]) -> None:
        for key in keys:
            assert await ask(self._application, key) == len(ANSWER)

    def did(self) -> dict[str, int]:
        return {"keys": self._keys_used, "reached": self._charges.effects}

    def close(self) -> None:
        self._runner.close()


class Guarded:
    """The same behind the middleware."""

    def __init__(self, name: str, ledger: Ledger, tasks: int = 1, work: str = "calls") -> None:
        self.name, self.ledger = name, ledger
        charges = Charges()
        self._requests = Requests(name, IdempotencyMiddleware(charges, ledger=ledger), charges, tasks, work)

    def round(self, count: int) -> float:
        return self._requests.round(count)

    def did(self) -> dict[str, int]:
        return self._requests.did() | settled_in(self.ledger)

    def close(self) -> None:
        self._requests.close()
        self.ledger.close()


def bare(name: str, tasks: int = 1) -> Requests:
    charges = Charges()
    return Requests(name, charges, charges, tasks, "calls")


# --- over HTTP --------------------------------------------------------------------------------------


def served(directory: Path, url: str) -> HttpServer:
    return HttpServer(directory, "bench.edge_app", url, PORT)


class Posts:
    """Charges sent over HTTP: each connection the next one as soon as it is answered."""

    def __init__(self, name: str, server: HttpServer, connections: int, work: str = "calls") -> None:
        self.name, self._work, self._posts = name, work, 0
        self._load = HttpLoad([server.port], connections)

    def round(self, count: int) -> float:
        if self._work == "replays":
            requests = [_post(SYSTEM.token().hex())] * count
            self._ask(requests[:1])
        else:
            requests = [_post(SYSTEM.token().hex()) for _ in range(count)]
        took = self._ask(requests)
        self._posts += count
        return took / count

    def _ask(self, requests: list[bytes]) -> float:
        replies, took = self._load.crowd(requests)
        for reply in replies:
            assert (reply.status, reply.body) == (201, ANSWER), reply
        return took

    def did(self) -> dict[str, int]:
        return {"posts": self._posts}

    def close(self) -> None:
        self._load.close()


def _post(key: str) -> bytes:
    headers = {
        "Authorization": USER[1].decode(),
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    return request("POST", "/charges", headers, BODY)
