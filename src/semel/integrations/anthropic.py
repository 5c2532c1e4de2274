"""Anthropic's tool runner: an effect lands once in a turn, whoever repeats the call.

    with turn(ledger, conversation, message_id):
        client.beta.messages.tool_runner(model=…, tools=tools(issue_refund), messages=messages).until_done()

Conversation and message are names that you keep: give the same ones when you run it again. The runner is used
up inside the block; what runs after it is in no turn (NO_STEP). `AsyncAnthropic` takes `atools(…)`.

There is no interrupt. Of a contract with `approval` the model is told that a person has to agree; once they
have, a later call of the turn, or the turn run again, goes on.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, cast

from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool, ToolError
from pydantic_core import to_json

from semel import agents
from semel.agents import Told, Turn, Undecorated
from semel.ledger.ledger import Ledger


def turn(
    ledger: Ledger, conversation: str, message_id: str, scopes: Iterable[str] = (), principal: str = ""
) -> Turn:
    """The turn that answers this message; the same names give the same keys, in whichever process."""
    return agents.turn(ledger, conversation, message_id, scopes, principal)


def tools(*given: Any, undecorated: Undecorated = "pass") -> list[Any]:
    """The tools of a runner: those with a contract guarded, the others as they are.

    `undecorated="guard"` gives plain functions the bare contract.
    """
    return [_guarded(each, undecorated, GuardedBetaTool, beta_tool) for each in given]


def atools(*given: Any, undecorated: Undecorated = "pass") -> list[Any]:
    """The same for the runner of an `AsyncAnthropic`, also for tools that block."""
    return [_guarded(each, undecorated, GuardedBetaAsyncTool, _async_tool) for each in given]


def _guarded(given: Any, undecorated: Undecorated, guarded: Any, plain: Any) -> Any:
    tool = agents.with_contract(given, undecorated)
    if tool is not None:
        made = guarded(tool)
        agents.refuse_shown(tool, made.input_schema.get("properties", {}))
        return made
    return plain(given) if inspect.isroutine(given) else given


def _async_tool(function: Any) -> Any:
    return beta_async_tool(function if inspect.iscoroutinefunction(function) else agents.afunction(function))


class GuardedBetaTool(BetaFunctionTool[Any]):
    def call(self, input: object) -> Any:
        return _content(agents.perform(self.func, cast(Any, input)))


class GuardedBetaAsyncTool(BetaAsyncFunctionTool[Any]):
    async def call(self, input: object) -> Any:
        return _content(await agents.aperform(self.func, cast(Any, input)))


def _content(value: Any) -> Any:
    """As the runner sends it: a text or blocks, and an error marked as one."""
    if isinstance(value, Told):
        raise ToolError(value.text)
    return value if isinstance(value, str | list) else to_json(value).decode()
