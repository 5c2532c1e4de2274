"""The support agent in Pydantic AI: python -m examples.agents.pydantic_ai_support

pip install "semel[pydantic-ai]"
"""

from __future__ import annotations

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import semel
from examples.agents import support
from semel.integrations.pydantic_ai import SemelCapability


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    said = support.says(sum(isinstance(each, ModelResponse) for each in messages))
    if isinstance(said, str):
        return ModelResponse([TextPart(said)])
    return ModelResponse([ToolCallPart(name, arguments) for name, arguments in said])


def main() -> None:
    with semel.open("memory://") as ledger:
        agent = Agent(
            FunctionModel(scripted),
            tools=support.TOOLS,
            capabilities=[SemelCapability(ledger)],
            output_type=[str, DeferredToolRequests],
        )
        print("The user writes.")
        asked = agent.run_sync(support.MESSAGE, conversation_id="ticket-42", run_id="message-1")
        answers = DeferredToolResults()
        for call_id, question in asked.output.metadata.items():
            verdict = support.ask_a_person(question)
            answers.approvals[call_id], answers.metadata[call_id] = verdict["approved"], verdict
        print("The run goes on with the answer.")
        history = asked.all_messages()
        print(" ", agent.run_sync(message_history=history, deferred_tool_results=answers).output)
        print(
            "The process died, and the history up to the answer is all that was saved: it goes on from there."
        )
        print(" ", agent.run_sync(message_history=history, deferred_tool_results=answers).output)
        support.check(ledger)


if __name__ == "__main__":
    main()
