"""An application behind HTTP as a contract: it is named by method and path, and its result is its answer.

The result is `{status, headers, body}`: a header that comes several times has a list of values; a body that
is no plain text is `{"base64": …}`.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple

import orjson
from pydantic import ConfigDict, Field

from semel.contract.contract import Contract, Declaration, UnknownRule
from semel.contract.values import FOR_PYDANTIC, Unstorable, Values
from semel.kernel.durations import Duration
from semel.kernel.record import OF_HTTP

RawHeaders = Iterable[tuple[bytes, bytes]]

# A text with these is written as base64: JSON would spell each of them in six characters.
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# What a person gives as a result is sent to clients: a name or value that ends its line would be two headers.
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class AnswerUnsure(Exception):
    """The application answered in a way that leaves open whether it took effect; the text says how."""


class AnswerReleases(Exception):
    """The application answered in a way that says that nothing happened: the key is free."""


class HttpAnswer(NamedTuple):
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes | None  # None: longer than is kept


# --- as it is stored ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as JSON data: `body` is text, {"base64": …}, or any other JSON, which is sent as such."""

    status: Annotated[int, Field(ge=200, le=599)]
    headers: dict[str, str | list[str]] = field(default_factory=dict)
    body: Any = ""

    __pydantic_config__ = ConfigDict(extra="forbid")


class AnswerValues(Values):
    """Answers as results."""

    def dump(self, value: Any) -> bytes:
        """The answer as JSON; Unstorable if its body is longer than is kept."""
        answer: HttpAnswer = value
        if answer.body is None:
            raise Unstorable("the body of the answer is longer than max_body")
        stored = {"status": answer.status, "headers": _headers(answer.headers), "body": _text(answer.body)}
        return orjson.dumps(stored)

    def load(self, data: bytes) -> HttpAnswer:
        """The stored answer; raises ValueError for what is none."""
        if data.startswith(FOR_PYDANTIC):
            return _of_person(super().load(data))
        try:
            stored = orjson.loads(data)
            return HttpAnswer(stored["status"], tuple(_raw(stored["headers"])), _bytes(stored["body"]))
        except (KeyError, TypeError, AttributeError) as misfit:
            raise ValueError(f"no answer: {misfit}") from None


def _of_person(stored: StoredAnswer) -> HttpAnswer:
    """Looked at closely: it goes to clients. How long it is shows itself."""
    headers = tuple(header for header in _raw(stored.headers) if header[0] != b"content-length")
    for name, value in headers:
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise ValueError(f"{name!r} is no header")
    if isinstance(stored.body, str) or _is_encoded(stored.body):
        return HttpAnswer(stored.status, headers, _bytes(stored.body))
    if not any(name == b"content-type" for name, _ in headers):
        headers += ((b"content-type", b"application/json"),)
    return HttpAnswer(stored.status, headers, orjson.dumps(stored.body))


def _is_encoded(body: Any) -> bool:
    return isinstance(body, dict) and list(map(type, body.values())) == [str] and "base64" in body


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else base64.b64decode(body["base64"], validate=True)


def _headers(headers: RawHeaders) -> dict[str, str | list[str]]:
    merged: dict[str, str | list[str]] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        earlier = merged.get(name)
        if earlier is None:
            merged[name] = value
        else:
            merged[name] = [*([earlier] if isinstance(earlier, str) else earlier), value]
    return merged


def _text(body: bytes) -> str | dict[str, str]:
    if not _CONTROL.search(body):
        try:
            return body.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": base64.b64encode(body).decode()}


def _raw(headers: dict[str, str | list[str]]) -> Iterable[tuple[bytes, bytes]]:
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            yield name.lower().encode("latin-1"), value.encode("latin-1")


@cache
def answer_values() -> AnswerValues:
    """All answers, of whichever application."""
    values = AnswerValues.of(StoredAnswer)
    assert isinstance(values, AnswerValues)
    return values


def answer_schema() -> dict[str, Any]:
    """JSON Schema of an answer as a result."""
    return answer_values().schema


# --- the contract ---------------------------------------------------------------------------------


def request(method: str, path: str, content_type: str, body_bytes: int) -> Any:
    """What a record says of a request; body, query and other headers may hold secrets. Nobody calls this."""
    return method, path, content_type, body_bytes


class RouteContract(Contract):
    """What is promised of the requests to one application; `named` makes that of one route."""

    record_scope: ClassVar[str] = OF_HTTP

    def __init__(self, *, window: Duration, run_limit: Duration, on_unknown: UnknownRule) -> None:
        declared = Declaration(
            name="http",
            class_="write-non-idempotent",
            window=window,
            run_limit=run_limit,
            on_unknown=on_unknown,
            # Whoever asks over HTTP has its own way to wait.
            in_flight="refuse",
            refused=(AnswerReleases,),
            transient=(AnswerUnsure,),
        )
        super().__init__(request, declared, {})
        self.values = answer_values()

    def named(self, name: str) -> RouteContract:
        """The same of requests that a person reads under this name."""
        route = copy.copy(self)
        route.name = name
        return route
