"""Restate: tool contracts in handlers, with keys that follow from the invocation.

    from semel.integrations.restate import run

    @shop.handler()
    async def buy(ctx: restate.Context, order: str) -> str:
        return await run(ctx, ledger, "charge", charge, order)

    conversation   the invocation's id, the same in every attempt of it
    step           the name that its author gives, which is also the name in Restate's journal

Inside a step of the ledger's own it continues that one: its conversation, scopes and principal.

What is retriable is raised for Restate to try again. What waits for a person (an approval, an outcome that
nobody knows) is looked at again after a durable sleep, without a limit of tries, and holds no worker
meanwhile. Every other answer is a `TerminalError`, with the code in its `metadata`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from restate import Context, RunOptions, TerminalError
from restate.exceptions import RetryableError
from restate.serde import Serde

from semel.call.declare import GuardedTool
from semel.call.step import current_step
from semel.contract.values import Values
from semel.errors import EffectFailed, SemelError
from semel.integrations.engines import EngineStep
from semel.ledger.ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")

# The first look comes soon, for a person who sits there; later ones seldom, because each is two entries in
# the journal: a week of them are some two thousand.
_FIRST_LOOK_S, _LAST_LOOK_S = 1, 300


@overload
async def run(
    ctx: Context,
    ledger: Ledger,
    name: str,
    tool: Callable[P, Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T: ...


@overload
async def run(
    ctx: Context, ledger: Ledger, name: str, tool: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T: ...


async def run(ctx: Context, ledger: Ledger, name: str, tool: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What the guarded tool answers, called in the step of this name: one action, whatever is retried."""
    step = _step(ctx, ledger, name)
    options: RunOptions[Any] = RunOptions(serde=_Answers(tool.contract.values))
    look_s = _FIRST_LOOK_S
    while True:
        answer = await ctx.run_typed(name, _attempt, options, step, tool, args, kwargs)
        if answer is not _WAITS:
            return answer
        await ctx.sleep(timedelta(seconds=look_s))
        look_s = min(2 * look_s, _LAST_LOOK_S)


def _step(ctx: Context, ledger: Ledger, name: str) -> EngineStep:
    outer = current_step()
    if outer is None or outer.ledger is not ledger:
        return EngineStep(ledger, f"restate:{ctx.request().id}", (name,), (), "")
    return EngineStep(ledger, outer.conversation, (*outer.path, name), outer.scopes, outer.principal)


async def _attempt(
    step: EngineStep, tool: GuardedTool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """One try of the action, for Restate's journal: its value, or that it waits for a person."""
    try:
        with step:
            if inspect.iscoroutinefunction(tool):
                return await tool(*args, **kwargs)
            return await asyncio.to_thread(tool, *args, **kwargs)
    except Exception as error:
        if step.waits_for_person:
            return _WAITS
        if not step.unfinished:
            code = error.code if isinstance(error, SemelError) else EffectFailed.code
            raise TerminalError(str(error), metadata={"code": code}) from error
        after_s = getattr(error, "retry_after_s", None)
        raise RetryableError(
            str(error), retry_after=None if after_s is None else timedelta(seconds=after_s)
        ) from error


# --- what the journal holds -----------------------------------------------------------------------


class _WaitsForPerson:
    """Said in place of a value: a person has to do something first."""


_WAITS = _WaitsForPerson()


class _Answers(Serde[Any]):
    """Values as the ledger keeps them, so that they come back as what they were."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def serialize(self, obj: Any) -> bytes:
        return b"" if obj is _WAITS else self._values.dump(obj)

    def deserialize(self, buf: bytes) -> Any:
        return self._values.load(buf) if buf else _WAITS
