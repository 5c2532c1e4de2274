"""Handlers of records: those of tools and their approvals, and the idempotency keys of runs and jobs.

The first live in the ledger and are read synchronously, so on a thread; the second are documents of the flow.
A list over both is one list, newest first.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from semel.flow.problems import Problem
from semel.flow.values import Page
from semel.gateway.bodies import RecordsQuery, ResolveBody
from semel.gateway.call import Call, Reply, data
from semel.records import NO_RESULT, Records

# Scopes kept in the ledger, and scopes kept by the flow with the names that it files them under.
_TOOL_SCOPES = ("tool", "approval")
_KEY_SCOPES = {"run": ("run", "rerun"), "job": ("job",)}

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")

Place = tuple[int, str]


async def list_records(call: Call) -> Reply:
    query: RecordsQuery = call.query
    after = call.after()
    found: list[dict[str, Any]] = []
    if query.scope is None or query.scope in _TOOL_SCOPES:
        found += await asyncio.to_thread(_tool_records, call, query, after)
    for scope in _KEY_SCOPES if query.scope is None else [query.scope]:
        for filed in _KEY_SCOPES.get(scope, ()):
            found += await _key_records(call, query, filed, after)
    found.sort(key=_place, reverse=True)
    items = found[: query.limit]
    more = len(found) >= query.limit and query.key is None
    return call.page(Page(items, _place(items[-1]) if more else None))


def _tool_records(call: Call, query: RecordsQuery, after: Place | None) -> list[dict[str, Any]]:
    records = Records(call.services.store, call.tenant)
    found = records.list(scope=query.scope, state=query.state, key=query.key, before=after, limit=query.limit)
    return [records.show(record) for record in found]


async def _key_records(
    call: Call, query: RecordsQuery, filed: str, after: Place | None
) -> list[dict[str, Any]]:
    keys = call.services.flow.keys
    if query.key is not None:
        found = await keys.find(call.tenant, filed, query.key)
        items = [found] if found is not None and (after is None or _place(found) < after) else []
    else:
        items = (await keys.list(call.tenant, filed, after, query.limit)).items
    return [item for item in items if query.state in (None, item["state"])]


def _place(item: dict[str, Any]) -> Place:
    """Where an item stands in the list: when it was made, then its id."""
    created = datetime.fromisoformat(item["created_at"])
    return (created - _EPOCH) // timedelta(microseconds=1), item["id"]


async def get_record(call: Call) -> Reply:
    return data(await _shown(call))


async def _shown(call: Call) -> dict[str, Any]:
    id_ = call.path["record_id"]
    found = await call.services.flow.keys.get(call.tenant, id_)
    return found if found is not None else await asyncio.to_thread(_tool_record, call, id_)


def _tool_record(call: Call, id_: str) -> dict[str, Any]:
    records = Records(call.services.store, call.tenant)
    return records.show(records.get(id_))


async def resolve_record(call: Call) -> Reply:
    id_ = call.path["record_id"]
    if await call.services.flow.keys.get(call.tenant, id_) is not None:
        raise Problem("record_not_in_doubt")  # a key's answer commits with what it stands for
    return data(await asyncio.to_thread(_resolve, call, id_))


def _resolve(call: Call, id_: str) -> dict[str, Any]:
    body: ResolveBody = call.body
    result = body.result if "result" in body.model_fields_set else NO_RESULT
    records = Records(call.services.store, call.tenant)
    return records.show(records.resolve(id_, body.outcome, by=call.caller.principal, result=result))
