"""Problem details (RFC 9457), in the form that everything of Semel that speaks HTTP answers with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from semel.kernel.answers import ProblemJson

MEDIA = "application/problem+json"

# Where nobody knows better.
_RETRY_AFTER_S = 1.0


def body(
    code: str, status: int, *, title: str, detail: str, retriable: bool, more: Mapping[str, Any]
) -> bytes:
    """The problem as JSON. What one problem says `more` never replaces what every problem has."""
    members: ProblemJson = {
        "type": f"urn:semel:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "retriable": retriable,
    }
    added = {name: value for name, value in more.items() if name not in members}
    return orjson.dumps({**members, **added}, default=str)


def retry_after(seconds: float | None) -> tuple[bytes, bytes]:
    """The header that says to a client's HTTP library when to ask again: whole seconds, at least one."""
    return b"retry-after", str(max(1, math.ceil(seconds or _RETRY_AFTER_S))).encode()
