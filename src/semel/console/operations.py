"""The gateway's routes, asked in this process on behalf of whoever is signed in.

So a page can do what a request with that person's key can do, and nothing else: roles, checks, limits and
refusals are those of the routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.gateway.app import GatewayChecks
from semel.gateway.incoming import Incoming
from semel.gateway.routes import ROUTES

_BY_NAME = {route.name: route for route in ROUTES}


class RouteAnswer(NamedTuple):
    data: Any
    replayed: bool


class RouteOperations:
    """Refusals are raised as the routes raise them."""

    def __init__(self, gateway: GatewayChecks, caller: Caller) -> None:
        self._gateway = gateway
        self.caller = caller

    def may(self, name: str) -> bool:
        """Whether the caller's roles allow this operation."""
        return bool(_BY_NAME[name].roles & self.caller.roles)

    async def get(self, name: str, query: Mapping[str, str] | None = None, **path: str) -> Any:
        return (await self._ask(name, path, query or {}, b"", None)).data

    async def post(
        self, name: str, body: Mapping[str, Any], key: str | None = None, **path: str
    ) -> RouteAnswer:
        try:
            sent = orjson.dumps(body)
        except orjson.JSONEncodeError:
            why = "What was entered is nested too deeply, or a number in it is too large. Nothing was done."
            raise Refused("request_invalid", why) from None
        return await self._ask(name, path, {}, sent, key)

    async def _ask(
        self, name: str, path: Mapping[str, str], query: Mapping[str, str], body: bytes, key: str | None
    ) -> RouteAnswer:
        route = _BY_NAME[name]
        parts = [body]

        async def receive() -> dict[str, Any]:
            if not parts:
                await asyncio.Event().wait()  # whoever asks whether the client has gone is cancelled
            return {"type": "http.request", "body": parts.pop()}

        scope = {
            "method": route.method,
            "path_params": path,
            "query_string": urlencode({name: value for name, value in query.items() if value}).encode(),
            "headers": [] if key is None else [(b"idempotency-key", key.encode())],
        }
        if not route.takes_body:
            parts.clear()
        reply = await self._gateway.answer_to(self.caller, route, Incoming(scope, receive))
        if reply.problem is not None:
            raise reply.problem
        return RouteAnswer(orjson.loads(reply.body), reply.replayed)
