"""Google ADK: sessions in SQLite, a resumable app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.reflect_retry_tool_plugin import ReflectAndRetryToolPlugin
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

import semel
from semel.integrations import google_adk as integration
from tests.agents import calling_again, shop
from tests.agents.script import Job, Seen, new_call_id

DURABLE = True

_CONFIRMATION = "adk_request_confirmation"


class Scripted(BaseLlm):
    job: Any

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = _says(self.job, llm_request.contents)
        yield LlmResponse(content=types.Content(role="model", parts=parts), partial=False)


class Delegating(BaseLlm):
    """Hands the message to the other agent, then gives its answer."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        answered = any(part.function_response for part in llm_request.contents[-1].parts)
        call = types.FunctionCall(id=new_call_id(), name="support", args={"request": "refund p-1"})
        part = types.Part(text="done") if answered else types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=False)


def model(job: Job) -> Scripted:
    return Scripted(model="scripted", job=job)


def _says(job: Job, contents: list[types.Content]) -> list[types.Part]:
    spoken = [place for place, content in enumerate(contents) if content.role == "user" and _texts(content)]
    since = contents[spoken[-1] :]
    answers = [
        part.function_response for content in since for part in content.parts if part.function_response
    ]
    rounds = sum(content.role == "model" for content in since)
    said = calling_again.says(job, len(spoken), rounds, _text(answers[-1].response) if answers else "")
    if isinstance(said, str):
        return [types.Part(text=said)]
    calls = [types.FunctionCall(id=new_call_id(), name=call.tool, args=call.arguments) for call in said]
    return [types.Part(function_call=call) for call in calls]


def _texts(content: types.Content) -> list[str]:
    return [part.text for part in content.parts or () if part.text]


def _text(response: dict[str, Any]) -> str:
    return str(response.get("error", response.get("result", response)))


def say(job: Job) -> Seen:
    return _run(job, types.Content(role="user", parts=[types.Part(text=job.message)]))


def resume(job: Job) -> Seen:
    return _run(job, None)


def shown(job: Job) -> dict[str, Any]:
    with semel.open(job.ledger_url) as ledger:
        declared = [each._get_declaration() for each in integration.tools(ledger, *shop.tools(job.tools))]
    return {each.name: each.parameters_json_schema for each in declared}


def _run(job: Job, message: types.Content | None) -> Seen:
    service = SqliteSessionService(str(job.folder / "sessions.db"))
    with semel.open(job.ledger_url) as ledger:
        runner = Runner(app=_app(job, ledger), session_service=service)
        return asyncio.run(_arun(job, runner, message))


def _app(job: Job, ledger: semel.Ledger) -> App:
    given = shop.tools(job.tools, job.guarded)
    tools = integration.tools(ledger, *given, **calling_again.options(job)) if job.guarded else given
    plugins = [ReflectAndRetryToolPlugin()] if job.options.get("retry") else []
    agent = LlmAgent(name="support", model=model(job), tools=tools)
    if job.mode in ("as a tool", "as a tool, unknown"):
        # The agent is a tool of another one, which does nothing but call it.
        as_tool = AgentTool(agent)
        its_tools = integration.tools(ledger, as_tool) if job.mode == "as a tool" else [as_tool]
        agent = LlmAgent(name="desk", model=Delegating(model="scripted"), tools=its_tools)
    return App(
        name="shop",
        root_agent=agent,
        resumability_config=ResumabilityConfig(is_resumable=job.mode != "not resumable"),
        plugins=plugins,
    )


async def _arun(job: Job, runner: Runner, message: types.Content | None) -> Seen:
    at = {"app_name": "shop", "user_id": "customer-1", "session_id": job.conversation}
    sessions = runner.session_service
    session = await sessions.get_session(**at) or await sessions.create_session(**at)
    goes_on = {"new_message": message} if message else _goes_on(job, session.events)
    mode = StreamingMode.SSE if job.mode == "astream" else StreamingMode.NONE
    events = runner.run_async(
        user_id="customer-1",
        session_id=job.conversation,
        run_config=RunConfig(streaming_mode=mode),
        **goes_on,
    )
    asked = [call.args async for event in events for call in _confirmations(event)]
    after = await sessions.get_session(**at)
    return _seen(after.events, [each["toolConfirmation"]["payload"] for each in asked])


def _confirmations(event: Any) -> list[Any]:
    return [call for call in event.get_function_calls() if call.name == _CONFIRMATION]


def _goes_on(job: Job, events: list[Any]) -> dict[str, Any]:
    """After a crash the invocation is named; a question is answered by a message."""
    last = events[-1].invocation_id
    if job.verdict is None:
        return {"invocation_id": last}
    asked = [call for event in events for call in _confirmations(event)]
    answer = types.FunctionResponse(id=asked[-1].id, name=_CONFIRMATION, response=_confirmation(job.verdict))
    message = types.Content(role="user", parts=[types.Part(function_response=answer)])
    resumed = {} if job.mode == "not resumable" else {"invocation_id": last}
    return {"new_message": message, **resumed}


def _confirmation(verdict: Any) -> dict[str, Any]:
    if isinstance(verdict, dict):
        return {"confirmed": verdict["approved"], "payload": verdict}
    return {"confirmed": verdict in (True, "approve")}


def _seen(events: list[Any], questions: list[Any]) -> Seen:
    spoken = [place for place, event in enumerate(events) if event.author == "user" and _texts(event.content)]
    since = events[spoken[-1] + 1 :]
    responses = [each for event in since for each in event.get_function_responses()]
    answers = {each.id: _text(each.response) for each in responses if each.name != _CONFIRMATION}
    texts = [text for event in since if event.content for text in _texts(event.content)]
    return Seen(answers=list(answers.values()), questions=questions, text=texts[-1] if texts else "")
