"""Cursors: where a list goes on. Opaque to clients, and good only for the list that they were given with.

A cursor is a position in a list and a mark over position, tenant, list and filter. The mark is made under a
key of the store's own: every gateway on the store accepts it, and nobody can make one up or carry it to
another tenant.
"""

from __future__ import annotations

import base64
import hmac

import orjson

from semel.flow.problems import Refused
from semel.kernel.keys import frame

ListPosition = tuple[int, str]

# Guessing 128 bits is hopeless, and a cursor stays short enough for every URL.
_MARK_BYTES = 16


class Cursors:
    def __init__(self, secret_key: bytes) -> None:
        # A key of its own, so that a mark made here means nothing wherever else the store's key is used.
        self._key = hmac.digest(secret_key, b"semel/cursor/1", "sha256")

    def write(self, position: ListPosition, *bound: str) -> str:
        """The cursor of a position in the list that `bound` names: tenant, list, filter."""
        body = orjson.dumps(position)
        return base64.urlsafe_b64encode(self._mark(body, bound) + body).decode().rstrip("=")

    def read(self, cursor: str, *bound: str) -> ListPosition:
        """The position; Refused `request_invalid` unless the cursor was written for this very list."""
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raise _invalid() from None
        mark, body = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
        if not hmac.compare_digest(mark, self._mark(body, bound)):
            raise _invalid()
        score, id_ = orjson.loads(body)
        return score, id_

    def _mark(self, body: bytes, bound: tuple[str, ...]) -> bytes:
        return hmac.digest(self._key, frame(body, *bound), "sha256")[:_MARK_BYTES]


def _invalid() -> Refused:
    return Refused("request_invalid", "The cursor is not one of this list.", names=["cursor"])
