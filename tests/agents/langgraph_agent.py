"""The adapter of LangGraph: an agent on a saver in a file, resumed by invoking it without new input."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from pydantic import Field

import semel
from semel.integrations.langgraph import SemelMiddleware
from tests.agents import shop
from tests.agents.script import Job, Seen, new_call_id


class ScriptedModel(BaseChatModel):
    """Says what the job's script says; keeps the tools that it is shown."""

    job: Any
    shown: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        self.shown.extend(convert_to_openai_tool(each)["function"] for each in tools)
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **options: Any) -> ChatResult:
        users = [place for place, each in enumerate(messages) if isinstance(each, HumanMessage)]
        rounds = sum(isinstance(each, AIMessage) for each in messages[users[-1] :])
        said = self.job.says(len(users), rounds)
        if isinstance(said, str):
            message = AIMessage(said)
        else:
            calls = [{"name": each.tool, "args": each.arguments, "id": new_call_id()} for each in said]
            message = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def model(job: Job) -> ScriptedModel:
    return ScriptedModel(job=job)


def say(job: Job) -> Seen:
    return _run(job, {"messages": [HumanMessage(job.message, id=job.message_id)]})


def resume(job: Job) -> Seen:
    return _run(job, None if job.verdict is None else Command(resume=job.verdict))


def shown(job: Job) -> dict[str, Any]:
    model = ScriptedModel(job=job)
    with semel.open(job.ledger_url) as ledger:
        _agent(job, model, ledger, None).invoke(
            {"messages": [HumanMessage("hello")]}, {"configurable": {"thread_id": "shown"}}
        )
    return {each["name"]: each["parameters"] for each in model.shown}


def _agent(job: Job, model: ScriptedModel, ledger: semel.Ledger, saver: Any) -> Any:
    options = dict(job.options)
    outside = [ToolRetryMiddleware(max_retries=2, initial_delay=0.0)] if options.pop("retry", False) else []
    metadata = {"readOnlyHint": options.pop("reads", False)}
    inside = [SemelMiddleware(ledger, **options)] if job.guarded else []
    tools = [tool(each) for each in shop.tools(job.tools, job.guarded)]
    for each in tools:
        each.metadata = metadata
    return create_agent(model, tools, middleware=[*outside, *inside], checkpointer=saver)


def _run(job: Job, given: Any) -> Seen:
    if job.mode in ("async", "astream"):
        return asyncio.run(_arun(job, given))
    model, config = ScriptedModel(job=job), {"configurable": {"thread_id": job.conversation}}
    with (
        semel.open(job.ledger_url) as ledger,
        SqliteSaver.from_conn_string(f"{job.folder}/graph.db") as saver,
    ):
        agent = _agent(job, model, ledger, saver)
        if job.mode == "stream":
            for _ in agent.stream(given, config, stream_mode="updates"):
                pass
        else:
            agent.invoke(given, config)
        return _seen(agent.get_state(config))


async def _arun(job: Job, given: Any) -> Seen:
    model, config = ScriptedModel(job=job), {"configurable": {"thread_id": job.conversation}}
    async with (
        semel.open(job.ledger_url) as ledger,
        AsyncSqliteSaver.from_conn_string(f"{job.folder}/graph.db") as saver,
    ):
        agent = _agent(job, model, ledger, saver)
        if job.mode == "astream":
            async for _ in agent.astream(given, config, stream_mode="updates"):
                pass
        else:
            await agent.ainvoke(given, config)
        return _seen(await agent.aget_state(config))


def _seen(state: Any) -> Seen:
    messages = state.values["messages"]
    return Seen(
        answers=[str(each.content) for each in _since_user(messages) if isinstance(each, ToolMessage)],
        questions=[each.value for each in state.interrupts],
        text=str(messages[-1].content),
    )


def _since_user(messages: list[BaseMessage]) -> Iterator[BaseMessage]:
    last = max(place for place, each in enumerate(messages) if isinstance(each, HumanMessage))
    yield from messages[last:]
