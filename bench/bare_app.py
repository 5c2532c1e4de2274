"""What a gateway is compared with: a bare ASGI application and one round trip to the same store.

    python -m bench.bare_app URL PORT

It reads the body, whatever it is, commits one small document of the tenant that the header names, and says
under which id. Nobody is asked who they are, nothing is validated, routed, counted or announced. The server
under it is the gateway's, with the same settings; the store is the same, with its group commit.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from semel.kernel.clock import SYSTEM
from semel.stores.base import Store
from semel.stores.documents import Commit, Draft
from semel.stores.urls import open_store

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# As many as may wait at the gateway.
_BACKLOG = 2_048


class BareApp:
    """Every request is a write, except the question whether it is ready."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["path"] == "/readyz":
            await _answer(send, b"ready")
        else:
            await _read(receive)
            await _answer(send, await self._write(_tenant(scope)))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._store.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _write(self, tenant: str) -> bytes:
        """The id of a document that is there now and was not before."""
        id_ = f"bare_{SYSTEM.token().hex()}"
        commit = Commit(tenant, SYSTEM.token().hex(), {id_: None}, (Draft(id_, b'{"status":"running"}'),))
        if not (await self._store.aask(commit)).done:
            raise RuntimeError("The document was not written.")
        return id_.encode()


def _tenant(scope: Message) -> str:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value.decode() for name, value in headers if name == b"x-tenant-id"), "default")


async def _read(receive: Receive) -> None:
    while (await receive()).get("more_body", False):
        pass


async def _answer(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main(url: str, port: int) -> None:
    """Serve until a signal asks for the stop."""
    uvicorn.run(
        BareApp(open_store(url)),
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
