"""A shop that takes payments, as a FastAPI and as a Django application, behind the middleware, under uvicorn.

Run as a program it serves: `python -m tests.edge.shop '{"framework": "fastapi", "url": …, "folder": …}'`
prints the port. What it did is in the file `effects`, one line each, so that it outlives the process.
Requests choose by `X-Variant` which options of the middleware they meet.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

import semel
from semel.integrations.asgi import IdempotencyMiddleware

VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "required": {"required": True},
    "in-doubt": {"on_5xx": "in_doubt"},
    "release": {"on_5xx": "release"},
    "rerun": {"on_unknown": "rerun", "on_5xx": "in_doubt"},
    "small": {"max_body": 1_000},
    "shared": {"anonymous": "share"},
    "some-paths": {"paths": ["/charges", re.compile(r"^/orders/\d+/refund$")]},
    "other-app": {"app": "other"},
    "tenant": {"caller": lambda scope: dict(scope["headers"]).get(b"x-user", b"").decode() or None},
}

PART = b"x" * 65_536


class Shop:
    """What the handlers of both frameworks do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gates: dict[str, asyncio.Event] = {}
        self.pay = _payment(self)

    def effect(self, what: str) -> int:
        """Written down at once; how many there are of it now."""
        with (self._folder / "effects").open("a+") as file:
            os.write(file.fileno(), f"{what}\n".encode())
            file.seek(0)
            return file.read().split("\n").count(what)

    def gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def charge(self, what: str) -> dict[str, Any]:
        number = self.effect(what)
        await self._fate(what, "after the effect")
        return {"id": number, "key": semel.current_key(), "step": _step()}

    async def slowly(self, what: str) -> dict[str, Any]:
        charged = await self.charge(what)
        await self.gate(what).wait()
        return charged

    async def stream(self, what: str, parts: int, gated: bool) -> AsyncIterator[bytes]:
        for number in range(parts):
            if gated and number == 1:
                await self.gate(what).wait()
            yield PART
        self.effect(f"{what} streamed")

    async def _fate(self, what: str, when: str) -> None:
        if what.startswith(f"killed {when}"):
            os.kill(os.getpid(), signal.SIGKILL)


def _payment(shop: Shop) -> Callable[..., Any]:
    @semel.tool_contract(name="pay", downstream_window="24h")
    def pay(what: str, key: semel.Key = semel.filled) -> str:
        shop.effect(f"{what} paid with {key}")
        return str(key)

    return pay


def _step() -> Any:
    from semel.call.step import current_step

    step = current_step()
    return None if step is None else [step.conversation, *step.path]


def on_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- serving --------------------------------------------------------------------------------------


def guarded_apps(framework: str, shop: Shop, ledger: semel.Ledger, **more: Any) -> dict[str, Any]:
    """The application behind each variant."""
    application = importlib.import_module(f"tests.edge.{framework}_shop").application

    def guard(options: dict[str, Any]) -> Callable[[Any], Any]:
        def around(app: Any) -> Any:
            if framework == "django":
                return IdempotencyMiddleware(app, ledger=ledger, **{**options, **more})
            app.add_middleware(IdempotencyMiddleware, ledger=ledger, **{**options, **more})
            return app

        return around

    return {name: application(shop, guard(options)) for name, options in VARIANTS.items()}


def chosen(apps: dict[str, Any]) -> Callable[..., Awaitable[None]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        variant = dict(scope.get("headers", ())).get(b"x-variant", b"").decode()
        await apps[variant](scope, receive, send)

    return app


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


def main(told: dict[str, Any]) -> None:
    ledger = semel.open(told["url"])
    apps = guarded_apps(told["framework"], Shop(Path(told["folder"])), ledger, **told.get("options", {}))
    # Django has no lifespan.
    lifespan = "on" if told["framework"] == "fastapi" else "off"
    config = uvicorn.Config(chosen(apps), port=0, log_level="error", lifespan=lifespan)  # type: ignore[arg-type]
    Server(config).run()
    ledger.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
