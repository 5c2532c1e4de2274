"""The support agent in Google ADK: python -m examples.agents.google_adk_support

pip install "semel[google-adk]"
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

import semel
from examples.agents import support
from semel.integrations.google_adk import tools

CONFIRMATION = "adk_request_confirmation"
SESSION = {"user_id": "ada", "session_id": "ticket-42"}


class Scripted(BaseLlm):
    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        said = support.says(sum(content.role == "model" for content in llm_request.contents))
        if isinstance(said, str):
            parts = [types.Part(text=said)]
        else:
            calls = [types.FunctionCall(name=name, args=arguments) for name, arguments in said]
            parts = [types.Part(function_call=call) for call in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts), partial=False)


def message(part: types.Part) -> types.Content:
    return types.Content(role="user", parts=[part])


async def run(runner: Runner, **given: Any) -> tuple[list[Any], str, str]:
    """What a person is asked, the agent's last words, and the name of the invocation."""
    asked, text, invocation = [], "", ""
    async for event in runner.run_async(**SESSION, **given):
        asked += [call for call in event.get_function_calls() if call.name == CONFIRMATION]
        parts = event.content.parts or [] if event.content else []
        text = next((part.text for part in parts if part.text), text)
        invocation = event.invocation_id
    return asked, text, invocation


async def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="shop", **SESSION)
    with semel.open("memory://") as ledger:
        agent = LlmAgent(
            name="support", model=Scripted(model="scripted"), tools=tools(ledger, *support.TOOLS)
        )
        app = App(name="shop", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
        runner = Runner(app=app, session_service=sessions)
        print("The user writes.")
        [asked], _, invocation = await run(runner, new_message=message(types.Part(text=support.MESSAGE)))
        verdict = support.ask_a_person(asked.args["toolConfirmation"]["payload"])
        confirmation = {"confirmed": verdict["approved"], "payload": verdict}
        answer = types.FunctionResponse(id=asked.id, name=CONFIRMATION, response=confirmation)
        for what in ("The invocation goes on with the answer.", "The answer is posted a second time."):
            print(what)
            given = message(types.Part(function_response=answer))
            _, text, _ = await run(runner, new_message=given, invocation_id=invocation)
            print(" ", text or "The invocation is over; nothing runs.")
        support.check(ledger)


if __name__ == "__main__":
    asyncio.run(main())
