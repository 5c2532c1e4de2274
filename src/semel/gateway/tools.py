"""Handlers of the catalogue: which tools the ledgers of the tenant have run."""

from __future__ import annotations

from semel.flow.problems import Refused
from semel.gateway.bodies import ToolQuery
from semel.gateway.exchange import Exchange, HttpReply, Listed, shown
from semel.kernel.answers import ToolJson
from semel.ledger import catalogue


async def list_tools(call: Exchange) -> Listed[ToolJson]:
    """By when they were first seen, newest first."""
    page = await call.services.flow.catalogue.list(call.tenant, call.after(), call.query.limit)
    return shown(call.listed(page))


async def get_tool(call: Exchange) -> HttpReply[ToolJson]:
    """The newest major version, or the one that is asked for."""
    query: ToolQuery = call.query
    entry = await call.services.flow.catalogue.get(call.tenant, call.path["tool_name"])
    tool = catalogue.shown_as(entry, query.version)
    if tool is None:
        raise Refused("tool_not_found")
    return shown(tool)
