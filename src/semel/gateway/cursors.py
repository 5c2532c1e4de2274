"""Cursors: where a list goes on. Opaque to clients, and good only for the list that they were given with.

A cursor is a place in a list and a mark over place, tenant, list and filter, made under a key of the store's
own: every gateway on the store accepts it, and nobody can make one up or carry it to another tenant.
"""

from __future__ import annotations

import base64
import hmac

import orjson

from semel.flow.problems import Problem
from semel.kernel.keys import frame

Place = tuple[int, str]

# Guessing 128 bits is hopeless, and a cursor stays short enough for every URL.
_MARK_BYTES = 16


class Cursors:
    def __init__(self, secret_key: bytes) -> None:
        # A key of its own, so that a mark made here means nothing wherever else the store's key is used.
        self._key = hmac.digest(secret_key, b"semel/cursor/1", "sha256")

    def write(self, place: Place, *bound: str) -> str:
        """The cursor of a place in the list that `bound` names: tenant, list, filter."""
        said = orjson.dumps(place)
        return base64.urlsafe_b64encode(self._mark(said, bound) + said).decode().rstrip("=")

    def read(self, cursor: str, *bound: str) -> Place:
        """The place; Problem `request_invalid` unless the cursor was written for this very list."""
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raise _invalid() from None
        mark, said = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
        if not hmac.compare_digest(mark, self._mark(said, bound)):
            raise _invalid()
        score, id_ = orjson.loads(said)
        return score, id_

    def _mark(self, said: bytes, bound: tuple[str, ...]) -> bytes:
        return hmac.digest(self._key, frame(said, *bound), "sha256")[:_MARK_BYTES]


def _invalid() -> Problem:
    return Problem("request_invalid", "The cursor is not one of this list.", names=["cursor"])
