"""One call of a tool: what its contract answers is told to the model, what it asks is asked of a person.

The story is written once, as a generator that yields what is to be done; `guard` does it by calling, `aguard`
by awaiting.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from semel.agents.asking import UNNAMED, decide, question, unless_decided
from semel.agents.telling import tell
from semel.call.step import Step, current_step
from semel.contract.raised import contracts_answer
from semel.errors import ApprovalRequired, CallError
from semel.questions.approvals import Question

T = TypeVar("T")


@dataclass(frozen=True)
class Told:
    """In place of the tool's value: what its contract says to the model."""

    text: str
    error: CallError
    at: Step | None = None  # where the call was made, if that was said


# Shows the question by the framework's own means and gives the person's answer, or leaves by raising what the
# framework leaves a tool with. `new`: the question was put just now, so an answer that is there already was
# given to another one.
Ask = Callable[[dict[str, Any], bool], Any]


class _Wish(NamedTuple):
    """Something to be done; what only asks the store is done on a thread where a loop must not wait."""

    do: Callable[[], Any]
    asks_store: bool = False


_Story = Generator[_Wish, Any, Any]


def _guarded(call: Callable[[], Any], at: Step | None, ask: Ask | None, approver: str) -> _Story:
    """The tool's value, or what the contract says in its place. What the tool itself raises is raised."""
    while True:
        step = at or current_step()
        try:
            with at or nullcontext():
                return (yield _Wish(call))
        except Exception as error:
            answer = contracts_answer(error)
            if answer is None:
                raise
            if ask is None or step is None or not isinstance(answer, ApprovalRequired):
                return Told(tell(answer), answer, at)
            waiting = answer
        shown: Question = yield _Wish(partial(question, step.ledger, waiting), asks_store=True)
        verdict = yield _Wish(partial(ask, asdict(shown), bool(waiting.details.get("new"))))
        with unless_decided():
            yield _Wish(partial(decide, step.ledger, shown, verdict, approver), asks_store=True)


def guard(
    call: Callable[[], T], at: Step | None = None, ask: Ask | None = None, approver: str = UNNAMED
) -> T | Told:
    """One call, in the turn `at`, else in the one around.

    Without `ask` an approval that is missing is told to the model, like every other answer of the contract.
    """
    story = _guarded(call, at, ask, approver)
    resume, answer = story.send, None
    try:
        while True:
            wish = resume(answer)
            try:
                resume, answer = story.send, wish.do()
            except BaseException as error:
                resume, answer = story.throw, error
    except StopIteration as stop:
        value: T | Told = stop.value
        return value


async def aguard(
    call: Callable[[], Awaitable[T]], at: Step | None = None, ask: Ask | None = None, approver: str = UNNAMED
) -> T | Told:
    """The same from an event loop; what `ask` gives may be awaitable."""
    story = _guarded(call, at, ask, approver)
    resume, answer = story.send, None
    try:
        while True:
            wish = resume(answer)
            try:
                done = asyncio.to_thread(wish.do) if wish.asks_store else wish.do()
                resume, answer = story.send, (await done if inspect.isawaitable(done) else done)
            except BaseException as error:
                resume, answer = story.throw, error
    except StopIteration as stop:
        value: T | Told = stop.value
        return value
