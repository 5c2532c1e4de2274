"""CrewAI: a crew of one agent, whose task is the message."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool as crewai_tool
from crewai.utilities.agent_utils import convert_tools_to_openai_schema

import semel
from semel.integrations import crewai as integration
from tests.agents import calling_again, shop, told_questions
from tests.agents.script import Job, Seen, new_call_id

logging.disable(logging.WARNING)


class Scripted(BaseLLM):
    """Says what the job's script says: as calls, or as the text that CrewAI reads calls from."""

    job: Any
    seen: Any
    text: bool

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        answers = [
            _answer(each) for each in messages if each["role"] == ("assistant" if self.text else "tool")
        ]
        self.seen.answers = answers
        rounds = sum(each["role"] == "assistant" for each in messages)
        said = calling_again.says(self.job, 1, rounds, answers[-1] if answers else "")
        if isinstance(said, str):
            return f"Thought: I know the final answer\nFinal Answer: {said}" if self.text else said
        if self.text:
            return f"Thought: now\nAction: {said[0].tool}\nAction Input: {json.dumps(said[0].arguments)}"
        functions = [{"name": call.tool, "arguments": json.dumps(call.arguments)} for call in said]
        return [{"id": new_call_id(), "type": "function", "function": each} for each in functions]

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def supports_function_calling(self) -> bool:
        return not self.text

    def supports_stop_words(self) -> bool:
        return True


def model(job: Job) -> Scripted:
    return Scripted(model="scripted", job=job, seen=Seen(), text=False)


def _answer(message: dict[str, Any]) -> str:
    return str(message["content"]).rpartition("Observation:")[2].strip()


def say(job: Job) -> Seen:
    seen = Seen()
    with semel.open(job.ledger_url) as ledger:
        told_questions.answer(job, ledger)
        with integration.turn(ledger, job.conversation, job.message_id) as turn:
            seen.text = _run(job, _crew(job, seen))
        seen.questions = told_questions.kept(job, ledger, turn)
    return seen


# Nothing is kept of a crew that died: the program says the same again.
resume = say


def shown(job: Job) -> dict[str, Any]:
    schemas, _, _ = convert_tools_to_openai_schema(integration.tools(*shop.tools(job.tools)))
    return {each["function"]["name"]: each["function"]["parameters"] for each in schemas}


def _crew(job: Job, seen: Seen) -> Crew:
    given = shop.tools(job.tools, job.guarded)
    tools = (
        integration.tools(*given, **calling_again.only(job, "undecorated"))
        if job.guarded
        else [crewai_tool(each) for each in given]
    )
    # Tools that are called by text are those that CrewAI itself tries again.
    text = job.mode == "text" or (not job.guarded and bool(job.options.get("retry")))
    llm = Scripted(model="scripted", job=job, seen=seen, text=text)
    agent = Agent(role="support", goal="help", backstory="kind", llm=llm, tools=tools)
    task = Task(description=job.message, expected_output="an answer", agent=agent)
    return Crew(agents=[agent], tasks=[task], stream="stream" in job.mode)


def _run(job: Job, crew: Crew) -> str:
    if job.mode == "astream":
        return asyncio.run(_astreamed(crew))
    if job.mode == "async":
        return str(asyncio.run(crew.akickoff()))
    if job.mode != "stream":
        return str(crew.kickoff())
    stream = crew.kickoff()
    for _ in stream:
        pass
    return str(stream.result)


async def _astreamed(crew: Crew) -> str:
    stream = await crew.akickoff()
    async for _ in stream:
        pass
    return str(stream.result)
