"""The key that a client sends: in a header (kernel/key_header.py), or as `?idempotency_key=`."""

from __future__ import annotations

from collections.abc import Collection

from semel.flow.problems import Refused
from semel.kernel import key_header
from semel.kernel.key_header import HEADERS as HEADERS

QUERY = "idempotency_key"


def key_of(headers: Collection[bytes], queries: Collection[str]) -> str | None:
    """The one key that these values name, None if there are none; Refused `idempotency_key_invalid`."""
    try:
        return key_header.key_of(headers, queries)
    except key_header.KeyInvalid as wrong:
        raise Refused("idempotency_key_invalid", f"The idempotency key cannot be used. {wrong}") from None
