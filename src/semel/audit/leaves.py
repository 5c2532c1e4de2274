"""What a seal was made over, event by event, kept beside the chain: it names the event that was changed.

A seal's hash says that something under it was changed, not what. So whoever seals also keeps a few bytes for
each event. The chain alone is proof; these bytes are a second witness. If the seal with their number has
another hash, it was removed and made anew; if there is none, it was removed.

document             id                     indexes, in a tenant of its own
leaves of a seal     leaves/<lane>/<number> leaves/<lane>: number; expiry: when its events are too old to keep
"""

from __future__ import annotations

from typing import NamedTuple

from semel.audit.events import LEAF_BYTES, Seal
from semel.stores.base import Store
from semel.stores.documents import Commit, Draft, Entry, Fetch, Scan
from semel.stores.index_names import EXPIRY

# Events of all tenants are under one seal. No tenant of a caller begins with this sign.
TENANT = "_seals"

_HASH_BYTES = 32


class Leaves(NamedTuple):
    """`hash` of the seal when it was made, and one `leaf_of` for each event under it, in their order."""

    hash: bytes
    each: tuple[bytes, ...]


def keep(store: Store, lane: int, seal: Seal) -> None:
    """The leaves of a seal just made are in the store. Those of an earlier seal with its number stay."""
    id_ = _id(lane, seal.number)
    entries = (Entry(_index(lane), seal.number), Entry(EXPIRY, seal.at_us + store.audit_kept_us))
    draft = Draft(id_, seal.hash + seal.leaves, entries)
    store.ask(Commit(TENANT, store.clock.token().hex(), {id_: None}, (draft,)))


def read(store: Store, lane: int, number: int) -> Leaves | None:
    """Of the first seal that had this number; None if they were not kept, or no longer are."""
    id_ = _id(lane, number)
    document = store.ask(Fetch(TENANT, (id_,))).documents.get(id_)
    if document is None:
        return None
    hash_, leaves = document.body[:_HASH_BYTES], document.body[_HASH_BYTES:]
    starts = range(0, len(leaves), LEAF_BYTES)
    return Leaves(hash_, tuple(leaves[start : start + LEAF_BYTES] for start in starts))


def newest(store: Store, lane: int) -> int:
    """The highest number of a seal whose leaves are kept; 0 if there are none."""
    documents = store.ask(Scan(TENANT, _index(lane), 1, newest=True)).documents
    return int(documents[0].id.rpartition("/")[2]) if documents else 0


def _index(lane: int) -> str:
    return f"leaves/{lane}"


def _id(lane: int, number: int) -> str:
    return f"leaves/{lane}/{number}"
