"""Google ADK on Temporal, by its plugin: model and tools are activities, the session is the workflow's.

The plugin gives plain arguments to its activities, so the workflow names conversation and turn.
"""

from __future__ import annotations

import contextlib
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import LLMRegistry
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import Field
from temporalio import activity, workflow
from temporalio.google_adk import GoogleAdkPlugin, TemporalModel
from temporalio.google_adk.workflow import activity_as_tool

from semel.integrations.temporal import conversation, turn
from tests.agents import google_adk_agent, shop
from tests.agents.script import Job

plugin = GoogleAdkPlugin

job: Job
tool: Any  # the activity
how: tuple[Any, Any]  # activities of tools, and of models, are run


class Registered(google_adk_agent.Scripted):
    """The scripted model, as the activity that asks a model makes it by its name."""

    job: Any = Field(default_factory=lambda: job)

    @classmethod
    def supported_models(cls) -> list[str]:
        return ["scripted"]


def prepare(given: Job, tools: Any, models: Any) -> list[Any]:
    """The activities of a worker that does this job, beside the plugin's own: the tool itself."""
    global job, tool, how
    [function] = shop.tools(given.tools, given.guarded)
    job, tool, how = given, activity.defn(function), (tools, models)
    LLMRegistry.register(Registered)
    return [tool]


@workflow.defn(sandboxed=False)
class AdkTurns:
    """Answers the same message so often, each time as a turn of its own, if it is named."""

    @workflow.run
    async def run(self, thread: str, turns: list[str], named: bool) -> list[Any]:
        of_tools, of_models = how
        model = TemporalModel("scripted", of_models)
        agent = LlmAgent(name="support", model=model, tools=[activity_as_tool(tool, **of_tools)])
        runner = InMemoryRunner(agent, app_name="shop")
        session = await runner.session_service.create_session(app_name="shop", user_id="customer-1")
        answers, text = list[str](), ""
        for message_id in turns:
            with conversation(thread), turn(message_id) if named else contextlib.nullcontext():
                events = [each async for each in runner.run_async(**_message(session.id))]
            for event in events:
                answers += [str((each.response or {})["result"]) for each in event.get_function_responses()]
            text = events[-1].content.parts[-1].text
        return [answers, text]


def _message(session: str) -> Any:
    message = types.Content(role="user", parts=[types.Part(text="refund p-1")])
    return {"user_id": "customer-1", "session_id": session, "new_message": message}
