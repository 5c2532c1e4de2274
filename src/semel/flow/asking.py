"""Questions to a store as generators: written once, carried out by calling or by awaiting.

A generator yields a query and receives its answer, as the decider of tool calls does with commands. `ask` is
the driver for synchronous callers; `DocumentStore.carry_out` the one for asynchronous ones.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from semel.errors import StoreUnavailable
from semel.kernel.clock import Clock
from semel.stores.base import Query, Store
from semel.stores.documents import Commit

T = TypeVar("T")

Asking = Generator[Query[Any], Any, T]


def ask(store: Store, asking: Asking[T]) -> T:
    """What the generator returns, its queries answered by the store one after the other."""
    answer: Any = None
    while True:
        try:
            query = asking.send(answer)
        except StopIteration as stop:
            found: T = stop.value
            return found
        answer = _insist(store, query) if isinstance(query, Commit) else store.ask(query)


def _insist(store: Store, commit: Commit) -> Any:
    try:
        return store.ask(commit)
    except StoreUnavailable:
        # Perhaps only the reply was lost; the tag makes asking again harmless.
        return store.ask(commit)


def new_id(clock: Clock, kind: str) -> str:
    return f"{kind}_{clock.token().hex()}"


def new_tag(clock: Clock) -> str:
    return clock.token().hex()
