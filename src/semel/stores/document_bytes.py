"""The values that documents are made of, as bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import orjson

from semel.errors import StoreCorrupt
from semel.kernel.large import as_json

T = TypeVar("T")


def to_bytes(value: Any) -> bytes:
    return orjson.dumps(value, as_json)


def reads(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Bytes that are no such value are a damaged document, which is not an absent one."""

    @wraps(read)
    def checked(body: bytes) -> T:
        try:
            return read(body)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(
                "A document is damaged, and a damaged document is not an absent one."
            ) from error

    return checked
