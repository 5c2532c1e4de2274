"""Handlers of records, and of what their retries say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from semel.errors import RecordNotInDoubt, ResultInvalid
from semel.flow.problems import Refused
from semel.flow.values import Page
from semel.gateway.audit import watching
from semel.gateway.bodies import AmendBody, RecordsQuery, ResolveBody, WindowsQuery
from semel.gateway.every_record import Correction, DoubtAnswer, EveryRecord, RecordFilter
from semel.gateway.exchange import Exchange, HttpReply, Listed, shown
from semel.kernel.answers import ExplainedRecordJson, RecordJson, WindowJson
from semel.ledger.records import DID_NOT_HAPPEN, NO_RESULT
from semel.windows import advice


async def list_windows(call: Exchange) -> Listed[WindowJson]:
    """What the ages of retries say about windows: a few items, so one page."""
    query: WindowsQuery = call.query
    async with watching(call) as look:
        advices = await asyncio.to_thread(advice.advise, call.services.store, call.tenant, query.tool, look)
    return call.page(Page([advice.as_data(each) for each in advices], None))


async def list_records(call: Exchange) -> Listed[RecordJson]:
    query: RecordsQuery = call.query
    filters = RecordFilter(query.scope, query.state, query.key, query.tool)
    return shown(call.listed(await _records(call).list(filters, call.after(), query.limit)))


async def get_record(call: Exchange) -> HttpReply[ExplainedRecordJson]:
    return shown(await _records(call).get(call.path["record_id"]))


async def resolve_record(call: Exchange) -> HttpReply[RecordJson]:
    """The same answer again is a replay: it changed nothing, and says who answered first."""
    body: ResolveBody = call.body
    result = body.result if "result" in body.model_fields_set else NO_RESULT
    if body.outcome == DID_NOT_HAPPEN and body.result is not None:
        raise Refused("request_invalid", "What did not happen has no result.", names=["result"])
    answer = DoubtAnswer(body.outcome, call.caller.principal, result, body.fence)
    return await _answered(_records(call).resolve(call.path["record_id"], answer))


async def amend_record(call: Exchange) -> HttpReply[RecordJson]:
    """The same result again is a replay."""
    body: AmendBody = call.body
    correction = Correction(call.caller.principal, body.result)
    return await _answered(_records(call).amend(call.path["record_id"], correction))


async def _answered(answering: Awaitable[tuple[RecordJson, bool]]) -> HttpReply[RecordJson]:
    try:
        record, replayed = await answering
    except RecordNotInDoubt as refused:
        raise Refused("record_not_in_doubt", refused.message) from None  # settled, or another attempt's
    except ResultInvalid as misfit:
        raise Refused("input_invalid", misfit.message) from None
    return shown(record)._replace(replayed=replayed)


def _records(call: Exchange) -> EveryRecord:
    flow = call.services.flow
    return EveryRecord(call.services.store, call.tenant, flow.keys, flow.approvals)
