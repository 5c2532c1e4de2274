"""What every answer has besides its members."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

A = TypeVar("A", bound="Answer")


class Answer:
    """What a gateway answered: its members as attributes, times as `datetime`."""

    replayed: bool = False
    """Whether an earlier request of the same meaning was answered with this before."""

    raw: Mapping[str, Any]
    """The JSON as it came, with members that this version of the client does not know."""


def read(model: type[A], raw: Mapping[str, Any], *, replayed: bool = False) -> A:
    """The JSON as this model; ValueError if it is something else."""
    hashable: Any = model
    answer: A = _adapter(hashable).validate_python(raw)
    # Whoever holds an answer cannot change it; until here nobody does.
    object.__setattr__(answer, "replayed", replayed)
    object.__setattr__(answer, "raw", raw)
    return answer


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    """Made at first use: a program that asks for runs alone does not wait for the other models."""
    return TypeAdapter(model)
