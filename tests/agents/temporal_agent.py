"""Agents on Temporal, by their frameworks' plugins: a workflow is a turn or several, a tool an activity.

Each of these runs in a child of the server. What is read of the job: `folder`, `script`, `tools` (one),
`guarded`, `mode` ("pydantic_ai", "langgraph" or "google_adk"), `message_id` and `conversation`, which name
the workflow too, and of its options `address` (of Temporal's server), `turns` (in one workflow), `named`
(whether the program names its turns) and `crash`, a point of semel.testing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, TemporalDurability
from pydantic_ai.messages import ToolReturnPart
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.langgraph import LangGraphPlugin, graph
from temporalio.worker import Worker

import semel
from semel.integrations.pydantic_ai import SemelCapability
from semel.integrations.temporal import Guard, turn
from semel.testing import crashing
from tests.agents import pydantic_ai_agent, shop
from tests.agents.script import Job, Seen, refund
from tests.patience import PATIENCE_S

# With the other imports, so that no child of the server has to do it.
if find_spec("temporalio.google_adk"):
    from tests.agents import temporal_adk

_SOON = RetryPolicy(initial_interval=timedelta(milliseconds=50), backoff_coefficient=1.0)

# How soon Temporal tries again what a dead worker held. A slow attempt that is overtaken goes on, and ends.
_TOOL: Any = {"start_to_close_timeout": timedelta(seconds=6), "retry_policy": _SOON}
_MODEL: Any = {"start_to_close_timeout": timedelta(seconds=PATIENCE_S), "retry_policy": _SOON}

agent: Agent[None, str]
job: Job


@workflow.defn(sandboxed=False)
class PydanticTurns:
    """Answers the same message so often, each time as a turn of its own."""

    @workflow.run
    async def run(self, conversation: str, turns: list[str], named: bool) -> list[Any]:
        history, answers, text = None, list[str](), ""
        for message_id in turns:
            ids: Any = {"conversation_id": conversation, "run_id": message_id} if named else {}
            result = await agent.run("refund p-1", message_history=history, **ids)
            parts = [part for message in result.new_messages() for part in message.parts]
            answers += [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
            history, text = result.all_messages(), result.output
        return [answers, text]


@workflow.defn(sandboxed=False)
class GraphTurns:
    @workflow.run
    async def run(self, conversation: str, turns: list[str], named: bool) -> list[Any]:
        answers: list[str] = []
        for message_id in turns:
            message = HumanMessage("refund p-1", id=message_id if named else None)
            with turn(message_id) if not named else contextlib.nullcontext():
                state = (
                    await graph("shop")
                    .compile()
                    .ainvoke({"messages": [message]}, {"configurable": {"thread_id": conversation}})
                )
            answers.append(str(state["messages"][-1].content))
        return [answers, "done"]


def start(given: Job) -> Seen:
    global job
    job = given
    return asyncio.run(_work(job))


# Another worker takes over: that is how Temporal goes on.
resume = start


async def _work(job: Job) -> Seen:
    client = await _client(job)
    with semel.open(job.ledger_url) as ledger, ThreadPoolExecutor(4) as threads:
        async with _worker(job, client, ledger, threads):
            handle = await _started(job, client)
            try:
                answers, text = await handle.result()
            except Exception as error:
                described = await handle.describe()
                failed = described.status == WorkflowExecutionStatus.FAILED
                return Seen(text="failed" if failed else "?", answers=_causes(error))
            return Seen(answers=answers, text=text)


async def _client(job: Job) -> Client:
    plugins: list[Any] = []
    if job.mode != "langgraph":
        plugins = [PydanticAIPlugin() if job.mode == "pydantic_ai" else temporal_adk.plugin()]
    return await Client.connect(job.options["address"], plugins=plugins)


def _turns(job: Job) -> Any:
    if job.mode == "google_adk":
        return temporal_adk.AdkTurns
    return PydanticTurns if job.mode == "pydantic_ai" else GraphTurns


async def _started(job: Job, client: Client) -> Any:
    named = job.options.get("named", True)
    return await client.start_workflow(
        _turns(job).run,
        args=[job.conversation, job.options.get("turns", [job.message_id]), named],
        id=f"{job.folder}-{job.options.get('workflow', '')}",
        task_queue=str(job.folder),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
    )


@contextlib.asynccontextmanager
async def _worker(job: Job, client: Client, ledger: semel.Ledger, threads: Any) -> AsyncIterator[None]:
    global agent
    if "crash" in job.options:
        ledger = crashing(ledger, job.options["crash"], kill=True)
    plugins, activities = list[Any](), list[Any]()
    if job.mode == "pydantic_ai":
        agent = _agent(job, ledger)
        PydanticTurns.__pydantic_ai_agents__ = [agent]  # type: ignore[attr-defined]
    elif job.mode == "google_adk":
        activities = temporal_adk.prepare(job, _TOOL, _MODEL)
    else:
        plugins = [LangGraphPlugin(graphs={"shop": _graph()})]
    worker = Worker(
        client,
        task_queue=str(job.folder),
        workflows=[_turns(job)],
        activities=activities,
        activity_executor=threads,
        interceptors=[Guard(ledger)] if job.guarded else [],
        plugins=plugins,
        debug_mode=True,  # else a workflow that a busy machine holds up for two seconds counts as stuck
    )
    async with worker:
        yield


def _agent(job: Job, ledger: semel.Ledger) -> Agent[None, str]:
    capabilities: list[Any] = [TemporalDurability(activity_config=_TOOL, model_activity_config=_MODEL)]
    if job.guarded:
        capabilities.append(SemelCapability(ledger))
    tools = shop.tools(job.tools, job.guarded)
    return Agent(pydantic_ai_agent.model(job), name="support", tools=tools, capabilities=capabilities)


def pay(state: MessagesState) -> dict[str, Any]:
    tool = shop.tools(job.tools, job.guarded)[0]
    return {"messages": [AIMessage(str(tool(**refund().arguments)))]}


def _graph() -> StateGraph[MessagesState]:
    made = StateGraph(MessagesState)
    made.add_node("pay", pay, metadata={"execute_in": "activity", **_TOOL})
    made.add_edge(START, "pay")
    return made


def _causes(error: BaseException | None) -> list[str]:
    """What is said, from the outermost to the first."""
    said = []
    while error is not None:
        said.append(f"{getattr(error, 'type', '')}: {error}")
        error = error.__cause__
    return said
