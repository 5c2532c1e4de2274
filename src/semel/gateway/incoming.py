"""A request before the flow sees it: bounded, parsed, checked. What does not fit is a Refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from semel.flow.problems import Refused
from semel.gateway import idempotency

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
M = TypeVar("M", bound=BaseModel)

BODY_BYTES_MAX = 2 << 20

# Read on the loop up to here: in less than a millisecond, and nearly all bodies are shorter.
SMALL_BYTES_MAX = 64 << 10

# What a client calls its request; the answer repeats it.
REQUEST_ID = b"x-request-id"

# In a scope: somebody waits for more of its body.
LISTENING = "semel.listening"

# In a scope: what the server has to do once somebody waits for more of its body, which will not come.
BROKEN = "semel.broken"

# No route takes a handful of names; a query with more is an attempt to make us work.
_QUERY_NAMES_MAX = 32

# Enough to correct a request by; a list with a thousand wrong members needs no thousand lines.
_ERRORS_SHOWN_MAX = 20


class Disconnected(Exception):
    """The client went away before its request was whole; nothing was done."""


class Incoming:
    """One request."""

    __slots__ = (
        "_first", "_headers", "_pairs", "_receive", "_scope",
        "header", "method", "path", "query_string",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._scope = scope
        self._pairs: list[tuple[str, str]] | None = None
        self.method: str = scope["method"]
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._first = dict(reversed(self._headers))
        self.header = self._first.get  # the first value of a header
        self.path: Mapping[str, str] = scope.get("path_params", {})
        self.query_string: bytes = scope["query_string"]

    # --- headers and query ------------------------------------------------------------------------

    def header_values(self, name: bytes) -> Sequence[bytes]:
        """Every value of a header, in order."""
        if (first := self._first.get(name)) is None:
            return ()
        if len(self._first) == len(self._headers):  # none is given twice
            return (first,)
        return [value for header, value in self._headers if header == name]

    def query_pairs(self) -> list[tuple[str, str]]:
        if self._pairs is None:
            self._pairs = _pairs(self.query_string) if self.query_string else []
        return self._pairs

    def idempotency_key(self) -> str | None:
        headers = [value for name in idempotency.HEADERS for value in self.header_values(name)]
        if not self.query_string:
            return idempotency.key_of(headers, ())
        queries = [value for name, value in self.query_pairs() if name == idempotency.QUERY]
        return idempotency.key_of(headers, queries)

    def query(self, model: type[M], *, keyed: bool = False) -> M:
        """The query as the route takes it; on a keyed route the idempotency key is not part of it."""
        if not self.query_string:
            nothing: M = _no_query(model)
            return nothing
        values: dict[str, str] = {}
        for name, value in self.query_pairs():
            if keyed and name == idempotency.QUERY:
                continue
            if name in values:
                raise Refused("request_invalid", f"The query names {name!r} twice.", names=[name])
            values[name] = value
        return checked(model, values, "query")

    # --- body -------------------------------------------------------------------------------------

    async def body(self, large: Callable[[int], None] = lambda _: None) -> bytes:
        """All of it, or Refused `body_too_large` as soon as that is certain.

        `large` hears of a body that is not small before it has arrived: how long it is, or may be.
        """
        announced = _announced(self.header(b"content-length"))
        if announced > BODY_BYTES_MAX:
            raise Refused("body_too_large")
        if announced > SMALL_BYTES_MAX:
            large(announced)
        scope, parts = self._scope, list[bytes]()
        size, more = 0, True
        while more:
            # Only meanwhile the server may end the request: nothing has been begun.
            scope[LISTENING] = True
            if BROKEN in scope:
                scope[BROKEN]()
            message = await self._receive()
            scope[LISTENING] = False
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            if size <= SMALL_BYTES_MAX < size + len(part) and announced <= SMALL_BYTES_MAX:
                large(BODY_BYTES_MAX)
            size += len(part)
            if size > BODY_BYTES_MAX:
                raise Refused("body_too_large")
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def gone(self) -> None:
        """Returns when the client has gone away; only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _announced(content_length: bytes | None) -> int:
    """What the client says; whether it keeps to it shows while reading."""
    return int(content_length) if content_length is not None and content_length.isdigit() else 0


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_NAMES_MAX
        )
    except ValueError:  # UnicodeDecodeError is one
        raise Refused("request_invalid", "The query cannot be read.") from None


@cache
def _no_query(model: type[M]) -> M:
    """What the route takes where nothing is said; the same for everybody, who cannot change it."""
    return checked(model, {}, "query")


def checked(model: type[M], value: Any, what: str) -> M:
    """The value as the model has it; Refused `request_invalid` that names what does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as wrong:
        raise _misfit(wrong, what) from None


def _misfit(wrong: ValidationError, what: str) -> Refused:
    # Without the input: it may hold what belongs in no log and no answer.
    errors = wrong.errors(include_url=False, include_input=False, include_context=False)[:_ERRORS_SHOWN_MAX]
    shown = [{"at": _member_path(error["loc"], what), "what": error["msg"]} for error in errors]
    first = shown[0]
    names = [each["at"] for each in shown]
    return Refused("request_invalid", f"{first['at']}: {first['what']}.", names=names, errors=shown)


def _member_path(loc: Iterable[int | str], what: str) -> str:
    return ".".join(str(part) for part in loc)[:200] or what
