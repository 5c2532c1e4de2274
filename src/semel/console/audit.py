"""The audit log: its events, what of them one looks for, and all of them as lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.responses import Response, StreamingResponse

from semel.console.protection import HEADERS
from semel.console.visit import PageVisit
from semel.gateway.audit import chain_heads
from semel.kernel.clock import rfc3339

# By what one looks for events, and where an event says it.
SEARCHED = {"key": "key", "tool": "tool", "conversation": "conversation", "by": "by"}

_ROWS, _PAGE = "50", "200"

# Read for one page, where few events fit: so a page takes as long at a million events as at a thousand.
_READ_MAX = 10


async def show(visit: PageVisit) -> Response:
    chosen = {name: value for name in SEARCHED if (value := visit.query.get(name, "").strip())}
    order = "oldest" if visit.query.get("order") == "oldest" else "newest"
    cursor = visit.query.get("cursor", "")
    events: list[dict[str, Any]] = []
    looked_at = 0
    wanted = _PAGE if chosen else _ROWS
    for _ in range(_READ_MAX):
        query = {"limit": wanted, "cursor": cursor, "order": order}
        page = await visit.operations.get("list_events", query)
        looked_at += len(page["items"])
        events += [event for event in page["items"] if _fits(event, chosen)]
        cursor = page["next_cursor"] or ""
        if not cursor or len(events) >= int(wanted):
            break
    of_key = []
    if "key" in chosen:  # found at once, wherever its events are in the log
        of_key = (await visit.operations.get("list_records", {"key": chosen["key"]}))["items"]
    turned = {"order": order} if order == "oldest" else {}  # the usual one is in no address
    return visit.page(
        "audit.html",
        order=order,
        other=urlencode({**chosen, **({} if turned else {"order": "oldest"})}),
        of_key=of_key,
        heads=await chain_heads(visit.services),
        events=events,
        chosen=chosen,
        looked_at=looked_at,
        rfc3339=rfc3339,
        next=f"?{urlencode({**chosen, **turned, 'cursor': cursor})}" if cursor else "",
    )


def _fits(event: Mapping[str, Any], chosen: Mapping[str, str]) -> bool:
    return all(event[SEARCHED[name]] == value for name, value in chosen.items())


async def export(visit: PageVisit) -> Response:
    """Every event of the tenant, a page of them in memory."""
    first = await visit.operations.get("list_events", {"limit": _PAGE})

    async def lines() -> AsyncIterator[bytes]:
        page = first
        while True:
            for event in page["items"]:
                yield orjson.dumps(event) + b"\n"
            if not page["next_cursor"]:
                return
            page = await visit.operations.get("list_events", {"limit": _PAGE, "cursor": page["next_cursor"]})

    headers = HEADERS | {"content-disposition": 'attachment; filename="semel-audit.jsonl"'}
    return StreamingResponse(lines(), headers=headers, media_type="application/jsonl")
