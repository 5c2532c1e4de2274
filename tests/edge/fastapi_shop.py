"""The shop as a FastAPI application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import BackgroundTasks, FastAPI, Request, Response, WebSocket
from fastapi.responses import JSONResponse, StreamingResponse

from tests.edge.shop import Shop, on_thread, peak_bytes


def application(shop: Shop, guard: Callable[[Any], Any]) -> Any:
    """With the middleware added as its users do it: inside the framework's own handler of errors."""
    app = FastAPI()

    @app.api_route("/charges", methods=["POST", "PATCH", "PUT", "HEAD"], status_code=201)
    @app.post("/orders/{order}/refund", status_code=201)
    async def charge(request: Request, response: Response) -> Any:
        what = (await request.body()).decode()
        response.headers["X-Shop"] = "open"
        response.headers.append("Link", "<a>")
        response.headers.append("Link", "<b>")
        response.set_cookie("session", "secret")
        return await shop.charge(what)

    @app.post("/slow", status_code=201)
    async def slow(request: Request) -> Any:
        return await shop.slowly((await request.body()).decode())

    @app.post("/gates/{name}")
    async def open_gate(name: str) -> None:
        shop.gate(name).set()

    @app.post("/status/{status}")
    async def status(status: int, request: Request) -> Any:
        return JSONResponse(await shop.charge((await request.body()).decode()), status)

    @app.post("/raises")
    async def raises(request: Request) -> Any:
        await shop.charge((await request.body()).decode())
        raise RuntimeError("no")

    @app.post("/stream")
    async def stream(request: Request, parts: int, gated: bool = False) -> Any:
        what = (await request.body()).decode()
        shop.effect(what)
        return StreamingResponse(shop.stream(what, parts, gated), 201)

    @app.post("/pay")
    def pay(body: dict[str, str]) -> Any:  # on a thread
        what = body["what"]
        number = shop.effect(what)
        key = shop.pay(what)
        return JSONResponse(
            {"paid": key, "thread": on_thread()}, 502 if number == 1 and body.get("fails") else 201
        )

    @app.post("/background", status_code=201)
    async def background(request: Request, tasks: BackgroundTasks) -> Any:
        what = (await request.body()).decode()

        async def later() -> None:
            await shop.gate(what).wait()
            shop.effect(f"{what} later")

        tasks.add_task(later)
        return await shop.charge(what)

    @app.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(f"{await socket.receive_text()} {socket.headers.get('idempotency-key')}")
        await socket.close()

    @app.get("/peak")
    async def peak() -> int:
        return peak_bytes()

    return guard(app)
