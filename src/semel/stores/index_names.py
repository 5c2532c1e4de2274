"""Indexes that documents of several kinds stand in. The map of all of them is in semel.flow.indexes."""

from __future__ import annotations

# When a document is forgotten: whoever sweeps drops what has been kept for as long as it had to be.
EXPIRY = "expiry"

# Idempotency keys of requests, of each kind by when they were first sent. Early ones stand in `keys` as well.
KEY_SCOPES = ("run", "rerun", "job")
KEYS = tuple(f"keys/{scope}" for scope in KEY_SCOPES)


def keys_of(scope: str) -> str:
    return f"keys/{scope}"
