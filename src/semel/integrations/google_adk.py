"""Google ADK: an effect lands once in an invocation, whoever repeats the call.

    agent = LlmAgent(name="support", model=…, tools=tools(ledger, issue_refund))

The turn is the session and the invocation of the event that made the call, both from the session service: an
invocation that is resumed, and a call that was confirmed, meet the same keys. A new message is a new one.

A contract with `approval` asks by ADK's tool confirmation. Its payload is the question; the payload of the
answer may say `{"by": …, "reason": …}`.
"""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from functools import partial
from typing import Any, Unpack

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from semel.agents import (
    AgentGuard,
    History,
    Location,
    Rules,
    Told,
    aperform,
    is_told,
    refuse_shown,
    with_contract,
)
from semel.errors import NoStep
from semel.ledger.ledger import Ledger

# By its name, because nothing else tells such a session from one that is kept.
_OF_AN_AGENT_TOOL = "ForwardingArtifactService"


def tools(ledger: Ledger, *given: Any, **rules: Unpack[Rules]) -> list[Any]:
    """The tools of an agent: all run in the turn that calls them, those with a contract once.

    Also for an AgentTool: its agent's session is thrown away, so that the turn has to be the caller's.
    """
    guard = AgentGuard(ledger, **rules)
    return [_guarded(each, guard) for each in given]


def _guarded(given: Any, guard: AgentGuard) -> Any:
    if (tool := with_contract(given, guard.rules.get("undecorated", "pass"))) is not None:
        return AdkTool(tool, guard)
    tool = FunctionTool(given) if callable(given) else given
    if not isinstance(tool, BaseTool):
        return tool
    made = copy.copy(tool)
    made.run_async = partial(_run_in_turn, tool, guard)  # type: ignore[method-assign]
    return made


async def _run_in_turn(
    tool: BaseTool, guard: AgentGuard, *, args: dict[str, Any], tool_context: ToolContext
) -> Any:
    with guard.at(None, partial(_location, tool.name, args, tool_context)) or nullcontext():
        return await tool.run_async(args=args, tool_context=tool_context)


class _AwaitsConfirmation(Exception):
    """The invocation ends here, until a person has answered."""


class AdkTool(FunctionTool):
    """A tool with a contract, as ADK calls it; one that blocks does not hold up the event loop."""

    def __init__(self, tool: Any, guard: AgentGuard) -> None:
        super().__init__(tool)
        self._guard = guard
        shown = self._get_declaration().model_dump(include={"parameters", "parameters_json_schema"})
        for schema in filter(None, shown.values()):
            refuse_shown(tool, schema.get("properties") or {})

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        at = self._guard.at(self.func, partial(_location, self.name, args, tool_context))
        arguments = self._prepare_invocation_args(args, tool_context)
        ask = partial(_ask, tool_context)
        try:
            value = await aperform(self.func, arguments, at, ask, self._guard.approver)
        except _AwaitsConfirmation:
            tool_context.actions.skip_summarization = True
            return {"error": "APPROVAL_REQUIRED: A person is being asked."}
        return {"error": value.text} if isinstance(value, Told) else value


def _ask(context: ToolContext, question: dict[str, Any], new: bool) -> dict[str, Any]:
    """What the person said. They are asked if that was about another question."""
    answer = context.tool_confirmation
    if new or answer is None:
        context.request_confirmation(hint=f"Approve or reject {question['tool']}.", payload=question)
        raise _AwaitsConfirmation
    details = answer.payload if isinstance(answer.payload, dict) else {}
    return {**details, "approved": answer.confirmed}


def _location(tool: str, arguments: dict[str, Any], context: ToolContext) -> Location:
    session, history = context.session, History()
    if type(context._invocation_context.artifact_service).__name__ == _OF_AN_AGENT_TOOL:
        raise NoStep(
            "This agent runs as an AgentTool, in a session that is thrown away; its tool did not run.",
            corrective_action="Hand the AgentTool to tools(ledger, …), or make the agent one of sub_agents.",
        )
    for event in session.events:
        if calls := event.get_function_calls():
            history.user(event.invocation_id)
            history.model((call.id, call.name or "", call.args or {}) for call in calls)
        for answer in event.get_function_responses():
            error = str((answer.response or {}).get("error", ""))
            history.answer(answer.id, error if is_told(error) else "")  # else it is the tool's own value
    # For a call whose event was cut off the history.
    history.user(context.invocation_id)
    conversation = json.dumps([session.app_name, session.user_id, session.id])
    return conversation, (), history.until(context.function_call_id, tool, arguments)
