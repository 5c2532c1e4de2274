"""One request as a handler gets it, and what a handler gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import orjson
from pydantic_core import to_json
from typing_extensions import TypeVar

from semel.flow.values import Caller, JsonAnswer, Page
from semel.gateway.bodies import ListQuery
from semel.gateway.incoming import Incoming
from semel.gateway.services import Services
from semel.kernel.answers import ListJson
from semel.questions.refusals import Refusal

JSON = "application/json"

A = TypeVar("A", default=Any)


class HttpReply(NamedTuple, Generic[A]):
    """What goes out: an `A` as JSON, unless it is a problem."""

    body: bytes
    status: int = 200
    media: str = JSON
    replayed: bool = False
    problem: Refusal | None = None
    location: str = ""
    applied: str = ""  # the preference that was honoured


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
    body: Any = None  # as the route's model has it
    data: Any = None  # the same, as it was sent
    may_wait: bool = True  # nobody else waits for what this request holds
    applied: str = ""  # the preference that was honoured

    @property
    def tenant(self) -> str:
        return self.caller.tenant

    def after(self) -> tuple[int, str] | None:
        """Where this page of a list begins."""
        query: ListQuery = self.query
        if query.cursor is None:
            return None
        return self.services.cursors.read(query.cursor, *self._bound())

    def page(self, page: Page[A]) -> Listed[A]:
        return data(self.listed(page))

    def listed(self, page: Page[A]) -> ListJson[A]:
        """Part of a list, and the cursor of the next part."""
        cursor = None
        if page.next_after is not None:
            cursor = self.services.cursors.write(page.next_after, *self._bound())
        return {"items": page.items, "next_cursor": cursor}

    def _bound(self) -> tuple[str, ...]:
        """What a cursor is good for: this tenant, this list, this filter."""
        filters = orjson.dumps([dict(self.path), self.query.filters()], option=orjson.OPT_SORT_KEYS)
        return self.tenant, self.route, filters.decode()


Listed = HttpReply[ListJson[A]]
Handler = Callable[[Exchange], Awaitable[HttpReply]]


def data(value: A) -> HttpReply[A]:
    return HttpReply(orjson.dumps(value))


def shown(value: A) -> HttpReply[A]:
    """Data with what a tool returned: numbers that JSON does not know, as text."""
    return HttpReply(to_json(value, inf_nan_mode="strings", fallback=str))


def answer(given: JsonAnswer[A]) -> HttpReply[A]:
    return HttpReply(given.body, replayed=given.replayed)
