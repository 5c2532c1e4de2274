"""An application that takes charges and keeps nothing, with or without the middleware in front of it.

    python -m bench.edge_app URL PORT

`-` as URL: without. FastAPI under uvicorn, as its users run it.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

import semel
from semel.integrations.asgi import IdempotencyMiddleware


class Charge(BaseModel):
    order: int
    amount_minor: int


def application(url: str) -> FastAPI:
    app = FastAPI()

    @app.post("/charges", status_code=201)
    async def charge(body: Charge) -> dict[str, int]:
        return {"charged": body.amount_minor}

    @app.get("/readyz")
    async def ready() -> str:
        return "ready"

    if url != "-":
        app.add_middleware(IdempotencyMiddleware, ledger=semel.open(url))
    return app


def main(url: str, port: int) -> None:
    """Serve until a signal asks for the stop."""
    uvicorn.run(application(url), host="127.0.0.1", port=port, log_config=None, access_log=False, ws="none")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
