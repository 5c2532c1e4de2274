"""The adapter of Pydantic AI: its program saves the messages before each tool runs, and goes on from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    Tool,
    ToolDenied,
)
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

import semel
from semel.integrations.pydantic_ai import SemelCapability
from tests.agents import shop
from tests.agents.script import Job, Round, Seen, new_call_id


def say(job: Job) -> Seen:
    return _run(job, job.message)


def resume(job: Job) -> Seen:
    return _run(job, None)


def shown(job: Job) -> dict[str, Any]:
    schemas: dict[str, Any] = {}

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        schemas.update({each.name: each.parameters_json_schema for each in info.function_tools})
        return ModelResponse([TextPart("hello")])

    with semel.open(job.ledger_url) as ledger:
        _agent(job, FunctionModel(model), ledger, Hooks()).run_sync("hello")
    return schemas


def _run(job: Job, prompt: str | None) -> Seen:
    file = job.folder / f"{job.conversation}.json"
    history = ModelMessagesTypeAdapter.validate_json(file.read_bytes()) if file.exists() else []
    options: dict[str, Any] = {"message_history": history, "conversation_id": job.conversation}
    if prompt is not None:
        options["run_id"] = job.message_id
    if job.verdict is not None:
        options["deferred_tool_results"] = _verdict(job.verdict, history)
    with semel.open(job.ledger_url) as ledger:
        agent = _agent(job, model(job), ledger, _saving(file))
        match job.mode:
            case "invoke":
                result: Any = agent.run_sync(prompt, **options)
            case "stream":
                result = agent.run_stream_sync(prompt, **options)
                result.get_output()
            case "async":
                result = asyncio.run(agent.run(prompt, **options))
            case _:
                result = asyncio.run(_streamed(agent, prompt, options))
        messages = result.all_messages()
        _save(file, messages)
        output = result.output if hasattr(result, "output") else result.get_output()
        return _seen(messages, output)


async def _streamed(agent: Agent[None, Any], prompt: str | None, options: dict[str, Any]) -> Any:
    async with agent.run_stream_events(prompt, **options) as events:
        async for event in events:
            if isinstance(event, AgentRunResultEvent):
                return event.result
    raise AssertionError("the run has no result")


def _agent(job: Job, model: FunctionModel, ledger: semel.Ledger, saving: Hooks[Any]) -> Agent[None, Any]:
    options = dict(job.options)
    if options.pop("retry", False):
        saving.on.tool_execute_error(_ask_the_model_again)
    metadata = {"readOnlyHint": options.pop("reads", False)}
    ours = [SemelCapability(ledger, **options)] if job.guarded else []
    tools = [Tool(each, metadata=metadata) for each in shop.tools(job.tools, job.guarded)]
    return Agent(model, tools=tools, capabilities=[saving, *ours], output_type=[str, DeferredToolRequests])


async def _ask_the_model_again(ctx: Any, *, error: Exception, **_: Any) -> Any:
    """This framework's own retry."""
    if isinstance(error, shop.Unsure):
        raise ModelRetry("try again")
    raise error


def _saving(file: Path) -> Hooks[Any]:
    """What a program does that wants to go on after a crash: nothing runs before its call is saved."""
    hooks = Hooks[Any]()

    async def save(ctx: Any, *, args: Any, **_: Any) -> Any:
        _save(file, ctx.messages)
        return args

    hooks.on.before_tool_execute(save)
    return hooks


def _save(file: Path, messages: list[ModelMessage]) -> None:
    new = file.with_suffix(f".{new_call_id()}")
    new.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))
    new.replace(file)


def _verdict(verdict: Any, history: list[ModelMessage]) -> DeferredToolResults:
    """As a program of this framework passes on what a person said."""
    said = verdict if isinstance(verdict, dict) else {"approved": verdict in (True, "approve")}
    last = next(each for each in reversed(history) if isinstance(each, ModelResponse))
    results = DeferredToolResults()
    for call in last.tool_calls:
        denied = ToolDenied(said.get("reason", "no"))
        results.approvals[call.tool_call_id] = True if said["approved"] else denied
        results.metadata[call.tool_call_id] = {name: said[name] for name in ("by", "reason") if name in said}
    return results


def model(job: Job) -> FunctionModel:
    def says(messages: list[ModelMessage]) -> Round:
        prompts = [place for place, each in enumerate(messages) if _is_prompt(each)]
        rounds = sum(isinstance(each, ModelResponse) for each in messages[prompts[-1] :])
        return job.says(len(prompts), rounds)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = says(messages)
        if isinstance(said, str):
            return ModelResponse([TextPart(said)])
        return ModelResponse([ToolCallPart(each.tool, each.arguments, new_call_id()) for each in said])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        said = says(messages)
        if isinstance(said, str):
            yield said
            return
        for number, call in enumerate(said):
            arguments = json.dumps(call.arguments)
            yield {number: DeltaToolCall(call.tool, arguments, tool_call_id=new_call_id())}

    return FunctionModel(answer, stream_function=stream)


def _is_prompt(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and any(
        isinstance(part, UserPromptPart) for part in message.parts
    )


def _seen(messages: list[ModelMessage], output: Any) -> Seen:
    last = max(place for place, each in enumerate(messages) if _is_prompt(each))
    parts = [part for each in messages[last:] for part in each.parts]
    answers = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
    if isinstance(output, DeferredToolRequests):
        return Seen(answers, questions=[*output.metadata.values()])
    return Seen(answers, text=output)
