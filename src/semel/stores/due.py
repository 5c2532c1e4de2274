"""What time brings to documents: those whose score on an index has come are handled, or put off.

Any number of processes may do it at once: each change is committed on what was read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from semel.errors import StoreCorrupt
from semel.stores.documents import Document, Draft, Entry, Scan, Tenants, score_on
from semel.stores.inquiry import Inquiry

log = logging.getLogger("semel")

# Handled of one tenant before the next one's turn.
_BATCH = 200

Handle = Callable[[str, Document, int], Inquiry[bool]]
"""Whether the tenant's document changed, at the store's time."""


def each_due(index: str, handle: Handle) -> Inquiry[int]:
    """Every tenant's documents whose time on the index has come are handled; how many changed."""
    changed = 0
    for tenant in (yield Tenants(index)):
        scanned = yield Scan(tenant, index, _BATCH)
        for document in scanned.documents:
            if score_on(document, index) > scanned.now_us:
                continue
            try:
                changed += yield from handle(tenant, document, scanned.now_us)
            except StoreCorrupt:
                # One damaged document does not stop what is due for others.
                log.error("semel: the document %s is damaged, and is left as it is", document.id)
    return changed


def put_off(document: Document, index: str, until_us: int) -> Draft:
    """The document as it is, due at another time."""
    others = (entry for entry in document.entries if entry.index_name != index)
    return Draft(document.id, document.body, (*others, Entry(index, until_us)))
