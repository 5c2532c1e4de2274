"""Microsoft Agent Framework: an effect lands once in a turn, whoever repeats the call.

    agent = Agent(client, tools=tools(issue_refund), middleware=[SemelMiddleware(ledger)])
    with turn(ledger, session, message_id):
        response = await agent.run(message, session=session)

Session and message name the turn: give the same ones when you run it again. A stream is consumed inside the
block; what runs after it is in no turn (NO_STEP).

A contract with `approval` becomes an approval request of the framework; what is asked is in its
`additional_properties["question"]`. The framework binds the response to it, and the ledger has the same
decision; `additional_properties` of the response may say `by` and `reason`.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from agent_framework import (
    AgentContext,
    AgentMiddleware,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    MiddlewareBundle,
    MiddlewareFailure,
)
from agent_framework import tool as function_tool
from agent_framework._tools import _load_pending_approval_requests
from pydantic_core import to_jsonable_python

from semel import agents
from semel.agents import UNNAMED, Told, Turn, Undecorated
from semel.errors import NoStep
from semel.ledger.ledger import Ledger

_QUESTION = "question"


def turn(
    ledger: Ledger, session: Any, message_id: str, scopes: Iterable[str] = (), principal: str = ""
) -> Turn:
    """The turn that answers this message; `session` is an AgentSession or its id."""
    return agents.turn(ledger, getattr(session, "session_id", session), message_id, scopes, principal)


def tools(*given: Any, undecorated: Undecorated = "pass") -> list[Any]:
    """The tools of an agent, functions or their FunctionTools: those with a contract guarded.

    `undecorated="guard"` gives plain functions the bare contract.
    """
    return [_guarded(each, undecorated) for each in given]


def _guarded(given: Any, undecorated: Undecorated) -> Any:
    shown = function_tool(given) if callable(given) and not isinstance(given, FunctionTool) else given
    tool = agents.with_contract(getattr(shown, "func", None), undecorated)
    if tool is None:
        return given
    agents.refuse_shown(tool, shown.parameters().get("properties", {}))
    made = copy.copy(shown)
    made.func = agents.afunction(tool)
    return made


class SemelMiddleware(MiddlewareBundle):
    """Tells the model what contracts answer, and the ledger what people do; `approver` is who they are."""

    def __init__(self, ledger: Ledger, approver: str = UNNAMED) -> None:
        super().__init__([_ToldCalls(approver), _Rejections(ledger, approver)])


class _AwaitsResponse(Exception):
    """The run ends here, until a person has answered."""


class _ToldCalls(FunctionMiddleware):
    def __init__(self, approver: str) -> None:
        self._approver = approver

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        if agents.contract_of(context.function.func) is None:
            await call_next()
            return
        response = context.metadata.get("approval_response")

        def ask(question: dict[str, Any], new: bool) -> dict[str, Any]:
            if new or response is None:
                context.result = _request(context, question)
                raise _AwaitsResponse
            return _verdict(response)

        try:
            answer = await agents.aguard(call_next, ask=ask, approver=self._approver)
        except NoStep as error:
            raise MiddlewareFailure(str(error)) from error
        except _AwaitsResponse:
            return
        if isinstance(answer, Told):
            context.result = answer.text


def _request(context: FunctionInvocationContext, question: dict[str, Any]) -> Content:
    """The question as the framework asks it; it keeps what was asked in the session, and binds the answer."""
    call_id = context.metadata["call_id"]
    occurrence = context.metadata.get("function_call_occurrence_id", call_id)
    arguments = to_jsonable_python(dict(context.arguments))
    call = Content.from_function_call(call_id, context.function.name, arguments=arguments, id=occurrence)
    return Content.from_function_approval_request(
        occurrence, call, additional_properties={_QUESTION: question}
    )


def _verdict(response: Content) -> dict[str, Any]:
    details = {name: response.additional_properties.get(name) for name in ("by", "reason")}
    return {**details, "approved": response.approved is True}


class _Rejections(AgentMiddleware):
    """The framework never calls what was rejected, so the ledger is told before the run goes on."""

    def __init__(self, ledger: Ledger, approver: str) -> None:
        self._ledger = ledger
        self._approver = approver

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        waiting: Mapping[Any, Content] = _load_pending_approval_requests(context.session)
        for content in (each for message in context.messages for each in message.contents):
            if content.type != "function_approval_response" or content.approved:
                continue
            # As the framework binds it: to the request of its id, whatever else came with the response.
            request = content if context.session is None else waiting.get(content.id)
            question = None if request is None else request.additional_properties.get(_QUESTION)
            if question:
                with agents.unless_decided():
                    await agents.adecide(self._ledger, question, _verdict(content), self._approver)
        await call_next()
