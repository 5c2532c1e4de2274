"""The support agent in LangGraph: python -m examples.agents.langgraph_support

pip install "semel[langgraph]"
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import semel
from examples.agents import support
from semel.integrations.langgraph import SemelMiddleware


class ScriptedModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *rest: Any, **options: Any) -> ChatResult:
        said = support.says(sum(isinstance(each, AIMessage) for each in messages))
        if isinstance(said, str):
            message = AIMessage(said)
        else:
            calls = [{"name": name, "args": arguments, "id": f"call-{name}"} for name, arguments in said]
            message = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def main() -> None:
    thread: Any = {"configurable": {"thread_id": "ticket-42"}}
    with semel.open("memory://") as ledger:
        agent = create_agent(
            ScriptedModel(),
            support.TOOLS,
            middleware=[SemelMiddleware(ledger)],
            checkpointer=InMemorySaver(),
        )
        print("The user writes.")
        state = agent.invoke({"messages": [HumanMessage(support.MESSAGE, id="message-1")]}, thread)
        verdict = support.ask_a_person(state["__interrupt__"][0].value)
        print("The graph is resumed with the answer.")
        print(" ", agent.invoke(Command(resume=verdict), thread)["messages"][-1].content)
        print("The process died, and an early checkpoint is all that was saved: it is resumed from there.")
        early = list(agent.get_state_history(thread))[-3]
        print(" ", agent.invoke(None, early.config)["messages"][-1].content)
        support.check(ledger)


if __name__ == "__main__":
    main()
