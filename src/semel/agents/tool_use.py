"""One call of a model, from what its framework calls it to what stands in the history as its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypedDict, TypeVar, Unpack, cast, get_args

import orjson

from semel.agents.asking import UNNAMED
from semel.agents.calling import refuse_shown
from semel.agents.guarding import Ask, Told, aguard, guard
from semel.agents.history import Repeat, Written, contract_of, place
from semel.agents.turns import Turn, turn
from semel.call.declare import contract_for
from semel.call.step import current_step
from semel.contract.filled import Injected
from semel.errors import NoStep, StepError
from semel.ledger.ledger import Ledger

T = TypeVar("T")


class Rules(TypedDict, total=False):
    """The options of every integration."""

    scopes: Iterable[str]  # what its turns grant to tools
    principal: str  # on whose behalf they call, for the audit
    approver: str  # who decides where a verdict names nobody
    repeat: Repeat
    undecorated: Literal["pass", "guard"]  # what happens to plain functions


def check_rules(given: Mapping[str, Any], kind: Any) -> None:
    """StepError for a name that is none of its options: what is misspelt must not count for nothing."""
    if unknown := sorted(given.keys() - kind.__annotations__.keys()):
        raise StepError(f"{unknown[0]}= is no option; they are {', '.join(sorted(kind.__annotations__))}.")


# The conversation, the names of what the agent runs within, and the calls up to the one that is to be made.
Location = tuple[str, tuple[str, ...], Sequence[Written]]


@dataclass(frozen=True)
class ToolUse:
    """A call of the model, as its framework has it."""

    tool: Any  # what the agent was given as the tool
    name: str
    arguments: Mapping[str, Any]
    locate: Callable[[], Location]  # NoStep if nobody knows
    schema: Callable[[], Mapping[str, Any]]  # of its arguments, as the model is shown them
    hints: Mapping[str, Any] | None = None  # what a plain function says of itself, as MCP writes it


@dataclass(frozen=True)
class Kept:
    """In place of a plain function's value: the data that was kept of it."""

    data: Any


class AgentGuard:
    """A ledger and the rules of its user: how the calls of an agent are made."""

    def __init__(self, ledger: Ledger, **rules: Unpack[Rules]) -> None:
        check_rules(rules, Rules)
        self.ledger, self.rules = ledger, rules
        self.approver = rules.get("approver", UNNAMED)
        self._bare: dict[tuple[str, bytes, bool], Any] = {}
        for name, allowed in (("repeat", get_args(Repeat)), ("undecorated", ("pass", "guard"))):
            if rules.get(name, allowed[0]) not in allowed:
                raise StepError(f"{name}= is one of {', '.join(allowed)}, not {rules.get(name)!r}.")

    def turn(self, conversation: str, path: tuple[str, ...]) -> Turn:
        scopes, principal = self.rules.get("scopes", ()), self.rules.get("principal", "")
        return turn(self.ledger, conversation, path, scopes, principal)

    def run(
        self, use: ToolUse, do: Callable[[], T], ask: Ask | None, as_data: Callable[[T], Any]
    ) -> T | Told | Kept:
        """The value that `do` gives, or what stands in its place; `as_data` is what is kept of it."""
        call, at, result = self._planned(use, do, as_data, is_async=False)
        return cast("T | Told | Kept", result(guard(call, at, ask, self.approver)))

    async def arun(
        self, use: ToolUse, do: Callable[[], Awaitable[T]], ask: Ask | None, as_data: Callable[[T], Any]
    ) -> T | Told | Kept:
        """The same from an event loop."""
        call, at, result = self._planned(use, do, as_data, is_async=True)
        return cast("T | Told | Kept", result(await aguard(call, at, ask, self.approver)))

    def _planned(
        self, use: ToolUse, do: Callable[[], Any], as_data: Callable[[Any], Any], *, is_async: bool
    ) -> tuple[Callable[[], Any], Turn | None, Callable[[Any], Any]]:
        """The call to be made, where, and what its outcome means."""
        contract = contract_of(use.tool)
        if contract is not None and contract.injected_parameters:
            refuse_shown(use.tool, use.schema().get("properties") or {})
        if not self._is_to_be_guarded(use):
            return do, self.at(use.tool, use.locate), lambda outcome: outcome
        bare, values = self._bare_contract(use, is_async), list[Any]()

        def keep(value: Any) -> Any:
            values.append(value)
            return as_data(value)

        async def aperform() -> Any:
            return keep(await do())

        perform = aperform if is_async else lambda: keep(do())
        return (
            # Ours last: a model may write anything.
            partial(bare, **{**use.arguments, "semel_perform": perform}),
            self.at(bare, use.locate),
            lambda outcome: outcome if isinstance(outcome, Told) else values[-1] if values else Kept(outcome),
        )

    def at(self, tool: Any, locate: Callable[[], Location]) -> Turn | None:
        """The turn of a call; None where there is none, for a plain function, which does without.

        An agent that is a tool of another one acts in that one's turn: what it is sent there is written anew,
        under another name, whenever the tool is called again.
        """
        outer = current_step()
        try:
            conversation, within, history = locate()
        except NoStep:
            if isinstance(outer, Turn):
                return self._within(outer, ())
            if contract_of(tool) is None:
                return None
            raise
        action = place(history, tool, self.ledger, self.rules.get("repeat", "never"))
        message, *number = action.path
        if isinstance(outer, Turn):
            return self._within(outer, number)
        around = within if action.within is None else action.within
        made = self.turn(conversation, (*around, message, *number))
        made.within = around
        return made

    def _within(self, outer: Turn, number: Iterable[str]) -> Turn:
        """Its place among equal calls of that turn, its open calls, and the scopes of this agent's user."""
        made = self.turn(outer.conversation, (*outer.path, *number))
        made.open_calls = outer.open_calls
        return made

    def _is_to_be_guarded(self, use: ToolUse) -> bool:
        """Whether it is a plain function that gets the bare contract: none that says that it only reads."""
        hints = use.hints or {}
        reads = hints.get("readOnlyHint") or (hints.get("annotations") or {}).get("readOnlyHint")
        return self.rules.get("undecorated") == "guard" and contract_of(use.tool) is None and not reads

    def _bare_contract(self, use: ToolUse, is_async: bool) -> Any:
        schema = use.schema()
        identity = (use.name, orjson.dumps(schema, option=orjson.OPT_SORT_KEYS), is_async)
        if identity not in self._bare:
            perform = _aperform if is_async else _perform
            self._bare[identity] = contract_for(use.name, schema, perform)
        return self._bare[identity]


# What is called is injected, so that one contract serves all calls of a tool.


def _perform(*, semel_perform: Annotated[Callable[[], Any], Injected], **_: Any) -> Any:
    return semel_perform()


async def _aperform(*, semel_perform: Annotated[Callable[[], Any], Injected], **_: Any) -> Any:
    return await semel_perform()


# One tool, whichever way it is called.
_aperform.__qualname__ = _perform.__qualname__
