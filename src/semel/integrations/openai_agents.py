"""OpenAI Agents: an effect lands once in a turn, however often model, runner or a crash repeat the call.

    agent = Agent("support", tools=tools(issue_refund))
    with turn(ledger, session, message_id):
        result = await Runner.run(agent, message, session=session)

Session and message name the turn: give the same ones when you run it again. A stream is consumed inside the
block; what runs after it is in no turn (NO_STEP). A contract with `approval` interrupts the run, and `decide`
hands the person's answer to the ledger and to the run:

    state = result.to_state()
    for item in result.interruptions:
        await decide(state, item, {"approved": True, "by": "ada"})
    result = await Runner.run(agent, state, session=session)
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from functools import partial
from typing import Any

from agents import FunctionTool, RunContextWrapper, RunState, Tool, ToolApprovalItem, function_tool
from agents.tool_context import ToolContext
from pydantic_core import from_json

from semel import agents
from semel.agents import UNNAMED, Told, Turn, Undecorated
from semel.call.step import current_step
from semel.contract.result import ToolCall
from semel.errors import ApprovalError, CallError
from semel.ledger.ledger import Ledger
from semel.questions.approvals import Question


def turn(
    ledger: Ledger, session: Any, message_id: str, scopes: Iterable[str] = (), principal: str = ""
) -> Turn:
    """The turn that answers this message; `session` is a Session or its id."""
    return agents.turn(ledger, getattr(session, "session_id", session), message_id, scopes, principal)


def tools(*given: Any, undecorated: Undecorated = "pass", approver: str = UNNAMED) -> list[Tool]:
    """The tools of an agent, functions or their FunctionTools: those with a contract guarded.

    `undecorated="guard"` gives plain functions the bare contract. `approver` is who has decided what
    `state.approve` let through, and `state.reject` turned away, without `decide`.
    """
    return [_guarded(each, undecorated, approver) for each in given]


def _guarded(given: Any, undecorated: Undecorated, approver: str) -> Any:
    shown = function_tool(given) if callable(given) else given
    tool = agents.with_contract(getattr(shown, "__wrapped__", None), undecorated)
    if tool is None:
        return shown
    agents.refuse_shown(tool, shown.params_json_schema.get("properties", {}))
    calls = _Calls(tool, shown.name, approver)
    made = copy.copy(shown)
    made.on_invoke_tool = calls.invoke
    if tool.contract.approval is not None:
        made.needs_approval = calls.asks
        made.is_enabled = partial(calls.is_enabled, shown.is_enabled)
    return made


# Questions that wait in this process, and were not decided through the ledger; no more for ever.
_ASKED_MAX = 1_000


class _Calls:
    """What the framework calls in place of the function."""

    def __init__(self, tool: Any, name: str, approver: str) -> None:
        self.tool = tool
        self._name, self._approver = name, approver
        self._asked: dict[tuple[str, str, str], ToolCall] = {}

    async def invoke(self, context: ToolContext[Any], written: str) -> Any:
        # What the framework lets through was approved by a person, who may not have told the ledger.
        ask = _approved if self._is_approved(context, context.tool_call_id) else None
        perform = partial(agents.aperform, self.tool, _filled(self.tool, _read(written), context))
        try:
            value = await perform(ask=ask, approver=self._approver)
        except _NotAsked:
            value = await perform()
        return value.text if isinstance(value, Told) else value

    def _is_approved(self, context: RunContextWrapper[Any], call_id: str) -> bool:
        """Whether a person has approved this very call: one verdict is for one question, never for good."""
        approved = [each.approved for each in context._approvals.values()]
        by_id = any(isinstance(each, list) and call_id in each for each in approved)
        return by_id and bool(context.is_tool_approved(self._name, call_id))

    async def asks(self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        """Whether the run has to wait for a person."""
        if self._is_approved(context, call_id):
            return True  # the call finds out whether the question is still the one that was answered
        try:
            call = ToolCall(_filled(self.tool, arguments, context))
            waits = (await self.tool.aask(call)).status == "waiting"
        except CallError as error:
            agents.tell(error)  # raises NO_STEP; everything else is told by the call
            return False
        if waits and (step := current_step()) is not None:
            self._asked[step.conversation, step.path_text, call_id] = call
            if len(self._asked) > _ASKED_MAX:
                del self._asked[next(iter(self._asked))]
        return waits

    async def is_enabled(self, given: Any, context: RunContextWrapper[Any], agent: Any) -> bool:
        """Asked before each round. What was rejected never reaches the tool, so the ledger is told here."""
        for record in context._approvals.values():
            for call_id in record.rejected if isinstance(record.rejected, list) else ():
                await self._rejected(call_id, record.rejection_messages.get(call_id))
        enabled = given(context, agent) if callable(given) else given
        return bool(await enabled if inspect.isawaitable(enabled) else enabled)

    async def _rejected(self, call_id: str, reason: str | None) -> None:
        if (step := current_step()) is None:
            return
        place = (step.conversation, step.path_text, call_id)
        if (call := self._asked.get(place)) is None:
            return
        asked = await self.tool.aask(call)
        if asked.status == "waiting" and not asked.new:
            with agents.unless_decided():
                verdict = {"approved": False, "reason": reason}
                await agents.adecide(step.ledger, asked, verdict, self._approver)
        self._asked.pop(place, None)


class _NotAsked(Exception):
    """The person approved another question: this one was put by the call itself."""


def _approved(_: dict[str, Any], new: bool) -> bool:
    if new:
        raise _NotAsked
    return True


def _read(written: str) -> Any:
    try:
        return from_json(written or "{}")
    except ValueError:
        return None  # which the contract refuses


def _filled(tool: Any, arguments: Any, context: Any) -> Any:
    injected = dict.fromkeys(tool.contract.injected_parameters, context)
    return {**arguments, **injected} if isinstance(arguments, dict) else arguments


async def question(item: ToolApprovalItem) -> Question:
    """What a person is asked about this interruption. Inside its turn."""
    asked: Question = await _tool_of(item).aask(ToolCall(_asked_about(item)))
    return asked


async def decide(
    state: RunState[Any, Any], item: ToolApprovalItem, verdict: Any, approver: str = UNNAMED
) -> Question:
    """The person's answer becomes the ledger's decision, and the run's. Inside the turn of the interruption.

    The first decision stands, and the run goes on with it; the question that is returned says which it was.
    If that question had expired it is put anew, and waits: nobody has seen it yet. ApprovalError, and nothing
    is decided, if this is no answer to it.
    """
    asked, step = await question(item), current_step()
    assert step is not None, "without one there was no question"
    if asked.status == "waiting" and not asked.new:
        with agents.unless_decided():
            await agents.adecide(step.ledger, asked, verdict, approver)
        asked = await question(item)
    if asked.status == "rejected":
        # The framework never calls what was rejected, so what its contract answers is read here.
        told = await agents.aperform(_tool_of(item), _asked_about(item))
        state.reject(item, rejection_message=told.text if isinstance(told, Told) else None)
    elif asked.status != "waiting":
        state.approve(item)
    return asked


def _tool_of(item: ToolApprovalItem) -> Any:
    by_name = {each.name: each for each in item.agent.tools if isinstance(each, FunctionTool)}
    calls = getattr(getattr(by_name.get(item.tool_name or ""), "on_invoke_tool", None), "__self__", None)
    if not isinstance(calls, _Calls):
        raise ApprovalError(f"{item.tool_name} has no contract; nothing was decided.")
    return calls.tool


def _asked_about(item: ToolApprovalItem) -> Any:
    return _filled(_tool_of(item), _read(getattr(item.raw_item, "arguments", "")), None)
