"""Handlers: functions that perform the jobs of a topic. Nothing here runs them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from semel.errors import ContractError
from semel.kernel.keys import Key

_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Job:
    """What a handler is asked to do. `key` is the same on every attempt, for downstreams that take one."""

    job_id: str
    run_id: str | None
    step_id: str | None
    topic: str
    input: Any
    labels: Mapping[str, str]
    attempt: int
    key: Key


@dataclass(frozen=True, slots=True)
class Handler:
    topic: str
    function: Callable[[Job], Any]
    scopes: frozenset[str]

    @property
    def asynchronous(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


_marked: dict[str, Handler] = {}


def handler(topic: str, *, scopes: Iterable[str] = ()) -> Callable[[F], F]:
    """Marks the function, sync or async, that performs the jobs of this topic; it stays callable as it is.

    `scopes` are what its step grants to the tools that it calls. ContractError if the topic is no name, has a
    handler already, or the function does not take one job.
    """
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
        raise ContractError(
            f"{topic!r} is not a topic: letters, digits and, after the first, . _ : -, at most 128 of them."
        )
    granted = frozenset((scopes,) if isinstance(scopes, str) else scopes)

    def mark(function: F) -> F:
        _check(topic, function)
        _marked[topic] = Handler(topic, function, granted)
        return function

    return mark


def marked() -> Mapping[str, Handler]:
    """Every handler that was marked in this process, by topic."""
    return dict(_marked)


def _check(topic: str, function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ContractError(f"The handler of {topic!r} is a generator; it has to return its result.")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ContractError(f"The handler of {topic!r} has to take one argument, the job.") from None
    other = _marked.get(topic)
    if other is not None and _source(other.function) != _source(function):
        raise ContractError(
            f"The topic {topic!r} has a handler already: {_source(other.function)}.",
            corrective_action="Give one of the two another topic.",
        )


def _source(function: Callable[..., Any]) -> str:
    """Where it is written, so that a module that is loaded again may mark its functions again."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = code.co_filename if code else getattr(function, "__module__", "?")
    return f"{getattr(function, '__qualname__', repr(function))} in {where}"
