"""The support agent in OpenAI Agents: python -m examples.agents.openai_agents_support

pip install "semel[openai-agents]"
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import semel
from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from examples.agents import support
from semel.integrations.openai_agents import decide, question, tools, turn


def scripted(call: Any) -> list[Any]:
    items = [] if isinstance(call.input, str) else call.input
    answered = {each["call_id"] for each in items if each.get("type") == "function_call_output"}
    said = support.says(len(answered))  # until the last rounds one call is one round
    if isinstance(said, str):
        return [assistant_message(said)]
    return [function_call(name, arguments, call_id=f"{len(answered)}-{name}") for name, arguments in said]


async def answer_the_user(agent: Agent, ledger: semel.Ledger) -> str:
    async with turn(ledger, "ticket-42", "message-1"):
        result = await Runner.run(agent, support.MESSAGE)
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                verdict = support.ask_a_person(asdict(await question(item)))
                await decide(state, item, verdict)
            result = await Runner.run(agent, state)
    return str(result.final_output)


async def main() -> None:
    set_tracing_disabled(True)
    with semel.open("memory://") as ledger:
        steps = [ModelStep.respond(scripted) for _ in range(20)]
        agent = Agent("support", model=ScriptedModel(steps), tools=tools(*support.TOOLS))
        print("The user writes.")
        print(" ", await answer_the_user(agent, ledger))
        print("The process died, and nothing was saved: the same message is answered again.")
        print(" ", await answer_the_user(agent, ledger))
        support.check(ledger)


if __name__ == "__main__":
    asyncio.run(main())
