"""Anthropic's tool runner over a transport that answers from the script; the conversation in a file."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool

import semel
from semel.integrations import anthropic as integration
from tests.agents import calling_again, shop, told_questions
from tests.agents.script import Job, Seen, new_call_id

_USE = {"model": "scripted", "max_tokens": 100, "thread": False}


def say(job: Job) -> Seen:
    messages = [*_kept(job), {"role": "user", "content": job.message}]
    scripted = Scripted(job)
    with semel.open(job.ledger_url) as ledger:
        told_questions.answer(job, ledger)
        with integration.turn(ledger, job.conversation, job.message_id) as turn:
            if job.mode in ("async", "astream"):
                asyncio.run(_arun(job, scripted, messages))
            else:
                _run(job, scripted, messages)
        questions = told_questions.kept(job, ledger, turn)
    (job.folder / f"messages of {job.conversation}").write_text(json.dumps(scripted.history))
    return _seen(scripted.history, questions)


# The conversation is what the program keeps of it: after a crash it says the same again.
resume = say


def shown(job: Job) -> dict[str, Any]:
    return {each.name: each.to_dict()["input_schema"] for each in integration.tools(*shop.tools(job.tools))}


def _kept(job: Job) -> list[Any]:
    kept = job.folder / f"messages of {job.conversation}"
    return json.loads(kept.read_text()) if kept.exists() else []


class Scripted:
    """What the service would answer, and the last request that it had."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.history: list[Any] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        asked = json.loads(request.content)
        is_whole = isinstance(asked["messages"][0]["content"], str)
        # The service may be asked to hold the conversation; it is then sent only what is new.
        messages = asked["messages"] if is_whole else [*self.history, *asked["messages"]]
        content = _says(self._job, messages)
        self.history = [*messages, {"role": "assistant", "content": content}]
        message = {
            "id": "message",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content,
            "stop_reason": "tool_use" if content[0]["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if not asked.get("stream"):
            return httpx2.Response(200, json=message)
        events = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in _events(message))
        return httpx2.Response(200, text=events, headers={"content-type": "text/event-stream"})


def model(job: Job) -> Anthropic:
    """The client whose model is scripted."""
    return _client(Scripted(job))


def _client(scripted: Scripted) -> Anthropic:
    return Anthropic(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(scripted)))


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The message as it is streamed."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "content": []}}]
    for index, block in enumerate(message["content"]):
        is_use = block["type"] == "tool_use"
        begun = {**block, "input": {}} if is_use else {**block, "text": ""}
        partial = {"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}
        delta = partial if is_use else {"type": "text_delta", "text": block["text"]}
        events += [
            {"type": "content_block_start", "index": index, "content_block": begun},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [
        *events,
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _says(job: Job, messages: list[Any]) -> list[dict[str, Any]]:
    users = [place for place, each in enumerate(messages) if isinstance(each["content"], str)]
    since = messages[users[-1] :]
    rounds = sum(each["role"] == "assistant" for each in since)
    answer = str(since[-1]["content"][-1]["content"]) if rounds else ""
    said = calling_again.says(job, len(users), rounds, answer)
    if isinstance(said, str):
        return [{"type": "text", "text": said}]
    return [
        {"type": "tool_use", "id": new_call_id(), "name": call.tool, "input": call.arguments} for call in said
    ]


def _run(job: Job, scripted: Scripted, messages: list[Any]) -> None:
    given = shop.tools(job.tools, job.guarded)
    tools = (
        integration.tools(*given, **calling_again.only(job, "undecorated"))
        if job.guarded
        else [beta_tool(each) for each in given]
    )
    with _client(scripted) as client:
        runner = client.beta.messages.tool_runner(
            tools=tools, messages=messages, stream=job.mode == "stream", **_USE
        )
        for message in runner:
            if job.mode == "stream":
                message.until_done()


async def _arun(job: Job, scripted: Scripted, messages: list[Any]) -> None:
    given = shop.tools(job.tools, job.guarded)
    tools = (
        integration.atools(*given, **calling_again.only(job, "undecorated"))
        if job.guarded
        else [beta_async_tool(_async(each)) for each in given]
    )
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(scripted))
    async with AsyncAnthropic(api_key="none", http_client=http) as client:
        runner = client.beta.messages.tool_runner(
            tools=tools, messages=messages, stream=job.mode == "astream", **_USE
        )
        async for message in runner:
            if job.mode == "astream":
                await message.until_done()


def _async(function: Any) -> Any:
    async def call(payment_id: str, amount_minor: int, reason: str) -> str:
        """Pay money back."""
        return await asyncio.to_thread(function, payment_id, amount_minor, reason)

    call.__name__ = function.__name__
    return call


def _seen(history: list[Any], questions: list[Any]) -> Seen:
    users = [place for place, each in enumerate(history) if isinstance(each["content"], str)]
    blocks = [block for each in history[users[-1] + 1 :] for block in each["content"]]
    return Seen(
        answers=[block["content"] for block in blocks if block["type"] == "tool_result"],
        questions=questions,
        text=next((block["text"] for block in reversed(blocks) if block["type"] == "text"), ""),
    )
