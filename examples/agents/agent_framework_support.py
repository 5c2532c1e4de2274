"""The support agent in Microsoft Agent Framework: python -m examples.agents.agent_framework_support

pip install "semel[agent-framework]"
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

import semel
from examples.agents import support
from semel.integrations.agent_framework import SemelMiddleware, tools, turn


class Scripted(FunctionInvocationLayer, BaseChatClient):
    async def _inner_get_response(self, *, messages: Any, **options: Any) -> ChatResponse:
        said = support.says(sum(each.role == "assistant" for each in messages))
        if isinstance(said, str):
            contents = [Content.from_text(said)]
        else:
            place = len(messages)
            contents = [
                Content.from_function_call(f"{place}-{name}", name, arguments=arguments)
                for name, arguments in said
            ]
        return ChatResponse(messages=[Message(role="assistant", contents=contents)])


async def answer_the_user(agent: Agent, ledger: semel.Ledger) -> str:
    session = AgentSession(session_id="ticket-42")
    async with turn(ledger, session, "message-1"):
        response = await agent.run(support.MESSAGE, session=session)
        while response.user_input_requests:
            answers = []
            for asked in response.user_input_requests:
                verdict = support.ask_a_person(asked.additional_properties["question"])
                answer = asked.to_function_approval_response(verdict["approved"])
                answer.additional_properties.update(verdict)
                answers.append(answer)
            response = await agent.run(Message(role="user", contents=answers), session=session)
    return str(response.text)


async def main() -> None:
    logging.disable(logging.ERROR)  # it logs every question as a failed function
    with semel.open("memory://") as ledger:
        agent = Agent(Scripted(), tools=tools(*support.TOOLS), middleware=[SemelMiddleware(ledger)])
        print("The user writes.")
        print(" ", await answer_the_user(agent, ledger))
        print("The process died, and nothing was saved: the same message is answered again.")
        print(" ", await answer_the_user(agent, ledger))
        support.check(ledger)


if __name__ == "__main__":
    asyncio.run(main())
