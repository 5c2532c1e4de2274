"""What a gateway is compared with: a bare ASGI application that starts runs.

    python -m bench.bare_app URL PORT

It keeps what a start promises, and nothing else: the key is claimed once and its first answer replayed, the
same key with another payload is refused, a tenant has no more active runs than its limit, which is read like
the workflow in the step that starts the run, and run, key, line of the timeline, audit event and outgoing
message are committed together before the answer leaves. It writes the same rows with the plain client
library, and commits what waits at the same time as one (bare_rows.py).

Nobody is asked who they are. There is no routing table, no schema of inputs, no metrics, no problem document,
no rate or storage limit, no other route than those that the load needs. The server under it is the gateway's,
with the same settings.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
import uvicorn

from bench.bare_rows import FULL, REUSED, UNKNOWN, RunRow, RunRows, open_rows
from semel.kernel.clock import SYSTEM

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answered = tuple[int, bytes]

# As many as may wait at the gateway.
_BACKLOG = 2_048


class BareApp:
    """The routes that the load needs; what is not one of them is answered as if it were done."""

    def __init__(self, rows: RunRows) -> None:
        self._rows = rows

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        status, body = await self._answer(scope, await _read(receive))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._rows.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._rows.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Message, body: bytes) -> Answered:
        headers = dict(scope["headers"])
        tenant = headers.get(b"x-tenant-id", b"default").decode()
        match scope["method"], scope["path"].removeprefix("/api/v1/").split("/"):
            case "POST", ["workflows", workflow, "runs"]:
                return await self._start(tenant, workflow, headers[b"idempotency-key"].decode(), body)
            case "POST", ["runs", run_id, "complete"]:
                await self._rows.end(tenant, run_id, orjson.loads(body)["status"])
            case "PUT", ["workflows", workflow]:
                await self._rows.define(tenant, workflow)
            case "PUT", ["tenants", _]:
                await self._rows.limit(tenant, orjson.loads(body)["max_concurrent_runs"])
            case "GET", ["runs"]:
                return 200, orjson.dumps({"items": await self._rows.listed(tenant), "next_cursor": None})
        return 200, b"{}"

    async def _start(self, tenant: str, workflow: str, key: str, body: bytes) -> Answered:
        canonical = orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
        fingerprint = hashlib.sha256(f"{workflow}\n".encode() + canonical).hexdigest()
        run_id = f"run_{SYSTEM.token().hex()}"
        answer = orjson.dumps({"run_id": run_id, "workflow_id": workflow, "status": "running"})
        outcome, said = await self._rows.start(
            RunRow(
                tenant,
                hashlib.sha256(f"{tenant}\nrun\n{key}".encode()).hexdigest(),
                key,
                fingerprint,
                run_id,
                workflow,
                canonical,
                answer,
                SYSTEM.now_us(),
            )
        )
        return {REUSED: 409, FULL: 429, UNKNOWN: 404}.get(outcome, 200), said


async def _read(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def main(url: str, port: int) -> None:
    """Serve until a signal asks for the stop."""
    uvicorn.run(
        BareApp(open_rows(url)),
        host="127.0.0.1",
        port=port,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
