"""What goes in and out of the flow: who asks, an answer as bytes, a page of a list."""

from __future__ import annotations

import re
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from semel.kernel.large import as_json
from semel.stores.documents import Document

A = TypeVar("A")


class Caller(NamedTuple):
    """Who asks, as far as a credential tells."""

    tenant: str
    principal: str
    roles: frozenset[str] = frozenset()


class JsonAnswer(NamedTuple, Generic[A]):
    """An `A` as JSON bytes. A replay has the bytes of the first answer where the interface promises that."""

    body: bytes
    replayed: bool = False


def written(value: A, *, replayed: bool = False) -> JsonAnswer[A]:
    return JsonAnswer(orjson.dumps(value, as_json), replayed)


_NUMBER = re.compile(rb"[-0-9][-+.0-9e]*")


def is_same_json(one: Any, other: Any) -> bool:
    """Whether both are one JSON value: 1 and 1.0 are, and 1 and true, which are equal to Python, are not.

    No large value is walked over here member by member: everybody would wait for that.
    """
    return bool(one == other) and _without_numbers(one) == _without_numbers(other)


def _without_numbers(value: Any) -> bytes:
    """Of equal values, all texts are alike: what is left to differ is where they have `true` and `false`."""
    return _NUMBER.sub(b"0", orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


class Page(NamedTuple, Generic[A]):
    """Part of a list, and where the next part begins; None at the end."""

    items: list[A]
    next_after: tuple[int, str] | None


# A page that has so many bytes is full. To read and write them takes as long as some hundred usual requests.
PAGE_BYTES_MAX = 4 << 20


def is_heavy(documents: list[Document]) -> bool:
    return sum(len(document.body) for document in documents) >= PAGE_BYTES_MAX


def cut(documents: list[Document]) -> list[Document]:
    """Up to the one that makes the page full by its bytes."""
    size = 0
    for number, document in enumerate(documents, start=1):
        size += len(document.body)
        if size >= PAGE_BYTES_MAX:
            return documents[:number]
    return documents


def next_after(documents: list[Document], limit: int, *indexes: str) -> tuple[int, str] | None:
    """Where to go on after a full page. A page that is full neither by number nor by bytes was the last."""
    if len(documents) < limit and not is_heavy(documents):
        return None
    return position_of(documents[-1], *indexes)


def position_of(document: Document, *indexes: str) -> tuple[int, str]:
    """Where it stands in whichever of the indexes it stands in: at one score, if in several of a list."""
    return next(entry.score for entry in document.entries if entry.index_name in indexes), document.id
