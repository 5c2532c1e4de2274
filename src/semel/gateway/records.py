"""Handlers of records, and of what their retries say."""

from __future__ import annotations

import asyncio

from semel import window_advice
from semel.errors import RecordNotInDoubt
from semel.flow.problems import Problem
from semel.flow.values import Page
from semel.gateway.audit import watching
from semel.gateway.bodies import RecordsQuery, ResolveBody, WindowsQuery
from semel.gateway.call import Call, Reply, shown
from semel.gateway.every_record import EveryRecord, Said, Wanted
from semel.records import NO_RESULT


async def list_windows(call: Call) -> Reply:
    """What the ages of retries say about windows: a few items, so one page."""
    query: WindowsQuery = call.query
    async with watching(call) as look:
        found = await asyncio.to_thread(
            window_advice.advise, call.services.store, call.tenant, query.tool, look
        )
    return call.page(Page([window_advice.as_data(each) for each in found], None))


async def list_records(call: Call) -> Reply:
    query: RecordsQuery = call.query
    wanted = Wanted(query.scope, query.state, query.key, query.tool)
    return call.page(await _records(call).list(wanted, call.after(), query.limit), shown)


async def get_record(call: Call) -> Reply:
    return shown(await _records(call).get(call.path["record_id"]))


async def resolve_record(call: Call) -> Reply:
    """The same answer again is a replay: it changed nothing, and says who answered first."""
    body: ResolveBody = call.body
    result = body.result if "result" in body.model_fields_set else NO_RESULT
    said = Said(body.outcome, call.caller.principal, result, body.fence)
    try:
        record, replayed = await _records(call).resolve(call.path["record_id"], said)
    except RecordNotInDoubt as refused:
        raise Problem("record_not_in_doubt", refused.message) from None  # settled, or another attempt's
    return shown(record)._replace(replayed=replayed)


def _records(call: Call) -> EveryRecord:
    flow = call.services.flow
    return EveryRecord(call.services.store, call.tenant, flow.keys, flow.approvals)
