"""Somebody else's service, which takes money and parcels: `python -m examples.shop.provider FILE PORT`.

It does what it is asked once for each `Idempotency-Key`, and is no good at answering: it takes its time, and
of ten answers one is lost after the work was done. Its books are a file, so its death loses nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PAYMENTS, PARCELS = "payments", "parcels"

# Long enough for a kill to come before and after the work.
_PAUSE_S = 0.03

_LOST_OF = 10

_TABLES = """
CREATE TABLE IF NOT EXISTS asked (number INTEGER PRIMARY KEY, kind TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, for_order TEXT NOT NULL, amount_minor INTEGER NOT NULL
);
"""


class Done(NamedTuple):
    """A line of the books."""

    key: str
    kind: str
    for_order: str
    amount_minor: int


class Books:
    def __init__(self, file: str) -> None:
        self._books = sqlite3.connect(file, isolation_level=None)
        self._books.executescript(_TABLES)

    def asked(self, kind: str) -> int:
        """Noted before anything else: which request this is."""
        noted = self._books.execute("INSERT INTO asked (kind) VALUES (?)", [kind])
        assert noted.lastrowid is not None
        return noted.lastrowid

    def do(self, wanted: Done) -> Done:
        """It is done, by this or an earlier request; what was done."""
        self._books.execute("INSERT INTO done VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", wanted)
        line = self._books.execute("SELECT * FROM done WHERE key = ?", [wanted.key]).fetchone()
        return Done(*line)

    def times_asked(self, kind: str) -> int:
        (count,) = self._books.execute("SELECT count(*) FROM asked WHERE kind = ?", [kind]).fetchone()
        return int(count)

    def all_done(self, kind: str) -> list[Done]:
        return [Done(*line) for line in self._books.execute("SELECT * FROM done WHERE kind = ?", [kind])]

    def close(self) -> None:
        self._books.close()


class LostAnswer(JSONResponse):
    """Its head is sent, and then the connection ends."""

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})


def application(file: str) -> Starlette:
    books = Books(file)

    async def do(request: Request) -> JSONResponse:
        kind = request.url.path.strip("/")
        number = books.asked(kind)
        await asyncio.sleep(_PAUSE_S)
        body = await request.json()
        wanted = Done(request.headers["Idempotency-Key"], kind, body["order"], body["amount_minor"])
        done = books.do(wanted)
        if done != wanted:
            return JSONResponse({"problem": "This key was used for something else."}, 422)
        await asyncio.sleep(_PAUSE_S)
        answer = LostAnswer if number % _LOST_OF == 0 else JSONResponse
        return answer({"id": f"{kind[:3]}_{done.key[:12]}", "order": done.for_order}, 201)

    return Starlette(routes=[Route(f"/{kind}", do, methods=["POST"]) for kind in (PAYMENTS, PARCELS)])


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), port=int(sys.argv[2]), log_level="critical")
