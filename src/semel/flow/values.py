"""What goes in and out of the flow: who asks, an answer as bytes, a page of a list."""

from __future__ import annotations

from typing import Any, NamedTuple

from semel.stores.documents import Document, score_on


class Caller(NamedTuple):
    """Who asks, as far as a credential tells."""

    tenant: str
    principal: str
    roles: frozenset[str] = frozenset()


class Answer(NamedTuple):
    """JSON bytes. A replay has the bytes of the first answer where the interface promises that."""

    body: bytes
    replayed: bool = False


class Page(NamedTuple):
    """Part of a list, and where the next part begins; None at the end."""

    items: list[dict[str, Any]]
    next_after: tuple[int, str] | None


def next_after(documents: list[Document], shelf: str, limit: int) -> tuple[int, str] | None:
    """Where to go on after a full page. A page that is not full was the last."""
    if len(documents) < limit:
        return None
    last = documents[-1]
    return score_on(last, shelf), last.id
