"""Pydantic AI on DBOS: the agent runs in a workflow, and its tool is a step of that workflow."""

from __future__ import annotations

import asyncio
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability

from semel.integrations.dbos import step
from semel.integrations.pydantic_ai import SemelCapability
from tests.agents import dbos_engine, pydantic_ai_agent, shop
from tests.agents.script import Job, Seen

agent: Agent[None, str]


@DBOS.step()
def keyed_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back; the provider knows the key."""
    with step(dbos_engine.ledger, "refund"):
        return shop.keyed_refund(payment_id, amount_minor, reason)


def plain_refund(payment_id: str, amount_minor: int, reason: str) -> str:
    """Pay money back, in the workflow's own code."""
    return shop.issue_refund(payment_id, amount_minor, reason)


@DBOS.workflow()
async def answer_the_user(message: str) -> str:
    return str((await agent.run(message)).output)


def start(job: Job) -> Seen:
    with dbos_engine.program(job, _make_agent), SetWorkflowID(job.message_id):
        return Seen(text=asyncio.run(answer_the_user(job.message)))


def recover(job: Job) -> Seen:
    """A new process: DBOS recovers the workflow by itself."""
    with dbos_engine.program(job, _make_agent):
        return Seen(text=DBOS.retrieve_workflow(job.message_id).get_result())


def _make_agent(job: Job) -> None:
    global agent
    model: Any = pydantic_ai_agent.model(job)
    capabilities = [DBOSDurability(), SemelCapability(dbos_engine.ledger)]
    tools = [globals()[name] for name in job.tools]
    agent = Agent(model, name="support", tools=tools, capabilities=capabilities)
