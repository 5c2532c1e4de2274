"""The catalogue of tools, for the gateway and the command line: listed and read."""

from __future__ import annotations

from semel.flow.document_store import DocumentStore
from semel.flow.values import Page, next_after
from semel.kernel.answers import ToolJson
from semel.ledger import catalogue
from semel.ledger.catalogue import INDEX, CatalogueEntry
from semel.stores.documents import Scan


class ToolCatalogue:
    def __init__(self, document_store: DocumentStore) -> None:
        self._document_store = document_store

    async def list(self, tenant: str, after: tuple[int, str] | None, limit: int) -> Page[ToolJson]:
        """By when they were first seen, newest first; what cannot be read is left out."""
        scanned = await self._document_store.scan(Scan(tenant, INDEX, limit, newest=True, after=after))
        documents = [*scanned.documents]
        entries = [entry for each in documents if (entry := catalogue.entry_of(each)) is not None]
        return Page([catalogue.shown(entry) for entry in entries], next_after(documents, limit, INDEX))

    async def get(self, tenant: str, name: str) -> CatalogueEntry | None:
        """What is known of the tool in all its major versions; None if nobody has run it."""
        id_ = catalogue.document_id(name)
        document = (await self._document_store.fetch(tenant, id_)).get(id_)
        return None if document is None else catalogue.entry_of(document)
