"""Indexes that documents of several kinds stand in. The map of all of them is in semel.flow.indexes."""

from __future__ import annotations

# When a document is forgotten: whoever sweeps drops what has been kept for as long as it had to be.
EXPIRY = "expiry"

# Idempotency keys of requests, by when they were first sent; of one kind: keys/<scope>.
KEYS = "keys"
