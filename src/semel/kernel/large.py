"""A large JSON value that nobody here looks into: it is carried as the bytes that it will be written as.

To make objects of two megabytes of JSON, to walk over them and to throw them away holds up everybody who
shares the process. Whoever reads large bodies (gateway/bounded_process.py) hands on the two forms needed.
"""

from __future__ import annotations

from typing import Any

import orjson

from semel.kernel.keys import unknown


class LargeJson:
    """`json`: the value with the members of every object sorted, so that digests over it agree with those of
    a value that was read; `canonical`: as semel.kernel.keys has it.
    """

    __slots__ = ("canonical", "json")

    def __init__(self, json: bytes, canonical: bytes) -> None:
        self.json = json
        self.canonical = canonical


def as_json(value: Any) -> orjson.Fragment:
    """For orjson, which asks about what it does not know."""
    if isinstance(value, LargeJson):
        return orjson.Fragment(value.json)
    raise TypeError(type(value).__qualname__)


def as_canonical(value: Any) -> Any:
    """For semel.kernel.keys.canonical, which asks likewise."""
    if isinstance(value, LargeJson):
        return orjson.Fragment(value.canonical)
    raise unknown(value)
