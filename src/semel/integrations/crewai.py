"""CrewAI: an effect lands once in a turn, whoever repeats the call.

    agent = Agent(role=…, goal=…, backstory=…, tools=tools(issue_refund))
    with turn(ledger, conversation, message_id):
        Crew(agents=[agent], tasks=[…]).kickoff()

Conversation and message are names that you keep: give the same ones when you run it again. A stream is
consumed inside the block; what runs after it is in no turn (NO_STEP).

CrewAI runs a tool that raises again, up to six times; so what the contract answers is returned, as a
ToolFailure. It keeps the answers of tools for as long as the crew lives; not those of a contract, which knows
its turns.

There is no interrupt. Of a contract with `approval` the model is told that a person has to agree; once they
have, a later call of the turn, or the turn run again, goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crewai.tools.base_tool import BaseTool
from crewai.tools.base_tool import tool as crewai_tool
from crewai.tools.tool_failure import ToolFailure

from semel import agents
from semel.agents import Told, Turn, Undecorated
from semel.ledger.ledger import Ledger


def turn(
    ledger: Ledger, conversation: str, message_id: str, scopes: Iterable[str] = (), principal: str = ""
) -> Turn:
    """The turn that answers this message; the same names give the same keys, in whichever process."""
    return agents.turn(ledger, conversation, message_id, scopes, principal)


def tools(*given: Any, undecorated: Undecorated = "pass") -> list[BaseTool]:
    """The tools of an agent, functions or the Tools of these: those with a contract guarded.

    `undecorated="guard"` gives plain functions the bare contract.
    """
    return [_guarded(each, undecorated) for each in given]


def _guarded(given: Any, undecorated: Undecorated) -> BaseTool:
    made: BaseTool = given if isinstance(given, BaseTool) else crewai_tool(given)
    tool = agents.with_contract(getattr(made, "func", None), undecorated)
    if tool is None:
        return made

    agents.refuse_shown(tool, made.args_schema.model_fields)

    def call(**arguments: Any) -> Any:
        value = agents.perform(tool, arguments)
        return (
            ToolFailure(message=value.text, retryable=value.error.retriable)
            if isinstance(value, Told)
            else value
        )

    return made.model_copy(update={"func": call, "cache_function": _never})


def _never(*_: Any) -> bool:
    return False
