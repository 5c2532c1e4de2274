"""Microsoft Agent Framework: the session in a file, after each run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)
from agent_framework import tool as function_tool

import semel
from semel.integrations import agent_framework as integration
from tests.agents import calling_again, shop
from tests.agents.script import Job, Seen, new_call_id

# A session is what the program keeps of it: after a crash it says the same again.
DURABLE = False


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        contents = _says(self._job, messages)
        if not stream:
            return _response(contents)

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(role="assistant", contents=contents)

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


model = Scripted


async def _response(contents: list[Content]) -> ChatResponse:
    return ChatResponse(messages=[Message(role="assistant", contents=contents)])


def _says(job: Job, messages: list[Message]) -> list[Content]:
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    since = messages[users[-1] :]
    rounds = sum(message.role == "assistant" for message in since)
    said = calling_again.says(job, len(users), rounds, str(since[-1].contents[-1].result))
    if isinstance(said, str):
        return [Content.from_text(said)]
    return [Content.from_function_call(new_call_id(), call.tool, arguments=call.arguments) for call in said]


def say(job: Job) -> Seen:
    return asyncio.run(_work(job, job.message))


def resume(job: Job) -> Seen:
    return asyncio.run(_work(job, _answers(job) or job.message))


def shown(job: Job) -> dict[str, Any]:
    return {each.name: each.parameters() for each in integration.tools(*shop.tools(job.tools))}


def _answers(job: Job) -> Message | None:
    asked = job.folder / "asked"
    if not asked.exists():
        return None
    said = job.verdict if isinstance(job.verdict, dict) else {"approved": job.verdict in (True, "approve")}
    answers = []
    for each in json.loads(asked.read_text()):
        answer = Content.from_dict(each).to_function_approval_response(said["approved"])
        answer.additional_properties.update(said)
        answers.append(answer)
    return Message(role="user", contents=answers)


async def _work(job: Job, message: Any) -> Seen:
    kept = job.folder / f"session of {job.conversation}"
    session = AgentSession(session_id=job.conversation)
    if kept.exists():
        session = AgentSession.from_dict(json.loads(kept.read_text()))
    with semel.open(job.ledger_url) as ledger:
        async with integration.turn(ledger, session, job.message_id):
            response = await _run(job, _agent(job, ledger), message, session)
    kept.write_text(json.dumps(session.to_dict()))
    if response.user_input_requests:
        (job.folder / "asked").write_text(
            json.dumps([each.to_dict() for each in response.user_input_requests])
        )
    contents = [content for message in response.messages for content in message.contents]
    return Seen(
        answers=[content.result for content in contents if content.type == "function_result"],
        questions=[each.additional_properties["question"] for each in response.user_input_requests],
        text=response.text,
    )


def _agent(job: Job, ledger: semel.Ledger) -> Agent:
    given = shop.tools(job.tools, job.guarded)
    if not job.guarded:
        return Agent(client=Scripted(job), tools=[function_tool(each) for each in given])
    middleware = [integration.SemelMiddleware(ledger, **calling_again.only(job, "approver"))]
    tools = integration.tools(*given, **calling_again.only(job, "undecorated"))
    return Agent(client=Scripted(job), tools=tools, middleware=middleware)


async def _run(job: Job, agent: Agent, message: Any, session: AgentSession) -> Any:
    if job.mode != "astream":
        return await agent.run(message, session=session)
    stream = agent.run(message, session=session, stream=True)
    async for _ in stream:
        pass
    return await stream.get_final_response()


# --- what only this framework does ----------------------------------------------------------------


def reject(job: Job) -> Seen:
    """The program makes the response itself, from the call that it answers; the verdict is what it adds."""
    [asked] = json.loads((job.folder / "asked").read_text())
    request = Content.from_dict(asked)
    response = Content.from_function_approval_response(
        approved=False,
        id=request.id,
        function_call=request.function_call,
        additional_properties=job.verdict,
    )
    return asyncio.run(_work(job, Message(role="user", contents=[response])))
