"""OpenAI Agents: the session in SQLite, the state of an interrupted run in a file."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import asdict
from typing import Annotated, Any

from agents import (
    Agent,
    FunctionTool,
    RunContextWrapper,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

import semel
from semel.integrations import openai_agents as integration
from tests.agents import calling_again, shop
from tests.agents.script import Job, Seen, new_call_id

# A session keeps what was said, not what was being done: after a crash the program says the same again.
DURABLE = False

set_tracing_disabled(True)


def say(job: Job) -> Seen:
    return _run(job, job.message)


def resume(job: Job) -> Seen:
    """A question is answered, and the run goes on from its saved state."""
    return _run(job, None if (job.folder / "state").exists() else job.message)


def shown(job: Job) -> dict[str, Any]:
    tools = [each for each in integration.tools(*shop.tools(job.tools)) if isinstance(each, FunctionTool)]
    return {each.name: each.params_json_schema for each in tools}


def _run(job: Job, message: str | None) -> Seen:
    agent = _agent(job)
    with semel.open(job.ledger_url) as ledger, integration.turn(ledger, job.conversation, job.message_id):
        given = message or asyncio.run(_answered(job, agent))
        if job.mode == "invoke":
            # It uses the thread's event loop, and leaves it open for the next run.
            with asyncio.Runner() as runner:
                runner.get_loop()
                result: Any = Runner.run_sync(agent, given, session=_session(job))
                return runner.run(_seen(job, result))
        return asyncio.run(_arun(job, agent, given))


async def _arun(job: Job, agent: Agent[Any], given: Any) -> Seen:
    if job.mode == "async":
        return await _seen(job, await Runner.run(agent, given, session=_session(job)))
    stream = Runner.run_streamed(agent, given, session=_session(job))
    async for _ in stream.stream_events():
        pass
    return await _seen(job, stream)


async def _answered(job: Job, agent: Agent[Any]) -> RunState[Any, Any]:
    state = await RunState.from_json(agent, json.loads((job.folder / "state").read_text()))
    for item in state.get_interruptions():
        await integration.decide(state, item, job.verdict, **calling_again.only(job, "approver"))
    return state


async def _seen(job: Job, result: Any) -> Seen:
    questions = [asdict(await integration.question(item)) for item in result.interruptions]
    if questions:
        (job.folder / "state").write_text(json.dumps(result.to_state().to_json()))
    return Seen(
        answers=[item.output for item in result.new_items if item.type == "tool_call_output_item"],
        questions=questions,
        text=str(result.final_output or ""),
    )


def _agent(job: Job) -> Agent[Any]:
    given = shop.tools(job.tools, job.guarded)
    if job.guarded:
        tools = integration.tools(*given, **calling_again.options(job))
    else:
        tools = [function_tool(each) for each in given]
    return Agent("support", model=model(job), tools=tools)


def model(job: Job) -> ScriptedModel:
    # More steps than any script has; each answers by the history that it is shown.
    return ScriptedModel([ModelStep.respond(lambda call: _says(job, call.input)) for _ in range(30)])


def _says(job: Job, history: str | list[Any]) -> list[Any]:
    items = [{"role": "user"}] if isinstance(history, str) else history
    users = [place for place, item in enumerate(items) if item.get("role") == "user"]
    since = items[users[-1] + 1 :]
    kinds = [item.get("type") for item in since]
    # Calls of one answer follow each other.
    rounds = sum(pair[1] == "function_call" != pair[0] for pair in itertools.pairwise([None, *kinds]))
    answer = str(since[-1].get("output", "")) if since else ""
    said = calling_again.says(job, len(users), rounds, answer)
    if isinstance(said, str):
        return [assistant_message(said)]
    return [function_call(call.tool, call.arguments, call_id=new_call_id()) for call in said]


def _session(job: Job) -> SQLiteSession:
    return SQLiteSession(job.conversation, job.folder / "session.db")


# --- what only this framework does ----------------------------------------------------------------


def late_stream(job: Job) -> Seen:
    """The stream is read after its turn is over."""

    async def run() -> None:
        with semel.open(job.ledger_url) as ledger:
            async with integration.turn(ledger, _session(job), job.message_id):
                stream = Runner.run_streamed(_agent(job), job.message, session=_session(job))
            async for _ in stream.stream_events():
                pass

    asyncio.run(run())
    return Seen()


def approved_by_the_state_alone(job: Job) -> Seen:
    """The program approves as it would without Semel."""

    async def run() -> Seen:
        agent = _agent(job)
        with semel.open(job.ledger_url) as ledger:
            async with integration.turn(ledger, _session(job), job.message_id):
                result = await Runner.run(agent, job.message, session=_session(job))
                state = result.to_state()
                for item in result.interruptions:
                    state.approve(item)
                return await _seen(job, await Runner.run(agent, state, session=_session(job)))

    return asyncio.run(run())


def given_the_context(job: Job) -> Seen:
    """A tool that the framework hands its context, and one with settings of its own."""

    @semel.tool_contract(approval="required")
    def note(context: Annotated[RunContextWrapper[Any], semel.Injected], text: str) -> str:
        """Write it down."""
        return f"{text} for {context.context}"

    async def run() -> Seen:
        [tool] = integration.tools(function_tool(note, timeout=None, name_override="note"))
        says = function_call("note", {"text": "hello"}, call_id="1")
        agent = Agent("clerk", model=ScriptedModel([[says], [assistant_message("done")]]), tools=[tool])
        with semel.open(job.ledger_url) as ledger, integration.turn(ledger, "notes", "1"):
            result = await Runner.run(agent, "note it", context="ann")
            state = result.to_state()
            [item] = result.interruptions
            await integration.decide(state, item, True)
            return await _seen(job, await Runner.run(agent, state))

    return asyncio.run(run())
