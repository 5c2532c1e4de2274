"""One request as a handler gets it, and what a handler gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from pydantic_core import to_json

from semel.flow.problems import Problem
from semel.flow.values import Caller, JsonAnswer, Page
from semel.gateway.bodies import ListQuery
from semel.gateway.incoming import Incoming
from semel.gateway.services import Services

JSON = "application/json"


class HttpReply(NamedTuple):
    """What goes out."""

    body: bytes
    status: int = 200
    media: str = JSON
    replayed: bool = False
    problem: Problem | None = None
    tenant: str | None = None  # the caller's, who may not know it


@dataclass(slots=True)
class Exchange:
    """A request that passed every check of HTTP: who asks, for what, with which key."""

    services: Services
    request: Incoming
    route: str
    caller: Caller
    path: Mapping[str, str]
    key: str | None
    query: Any
    body: Any  # as the route's model has it
    data: Any  # the same, as it was sent

    @property
    def tenant(self) -> str:
        return self.caller.tenant

    def after(self) -> tuple[int, str] | None:
        """Where this page of a list begins."""
        query: ListQuery = self.query
        if query.cursor is None:
            return None
        return self.services.cursors.read(query.cursor, *self._bound())

    def page(self, page: Page, reply: Callable[[Any], HttpReply] | None = None) -> HttpReply:
        """Part of a list; `reply` says how it is written, `data` unless told."""
        cursor = None
        if page.next_after is not None:
            cursor = self.services.cursors.write(page.next_after, *self._bound())
        return (reply or data)({"items": page.items, "next_cursor": cursor})

    def _bound(self) -> tuple[str, ...]:
        """What a cursor is good for: this tenant, this list, this filter."""
        filters = orjson.dumps([dict(self.path), self.query.filters()], option=orjson.OPT_SORT_KEYS)
        return self.tenant, self.route, filters.decode()


Handler = Callable[[Exchange], Awaitable[HttpReply]]


def data(value: Any) -> HttpReply:
    return HttpReply(orjson.dumps(value))


def shown(value: Any) -> HttpReply:
    """Data with what a tool returned: numbers that JSON does not know, as text."""
    return HttpReply(to_json(value, inf_nan_mode="strings", fallback=str))


def answer(given: JsonAnswer) -> HttpReply:
    return HttpReply(given.body, replayed=given.replayed)
