"""Idempotency keys of runs, jobs and reruns: claimed in the commit that does what they stand for.

What is kept of one is in semel.ledger.request_keys.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from semel.flow.document_store import DocumentStore
from semel.flow.problems import Refused
from semel.flow.values import JsonAnswer, Page, next_after
from semel.kernel.answers import RecordJson
from semel.kernel.clock import rfc3339
from semel.kernel.keys import canonical, frame
from semel.kernel.large import as_canonical
from semel.ledger.request_keys import KeyRecord, key_record
from semel.stores.documents import Document
from semel.stores.index_names import KEYS, keys_of

Items = list[RecordJson]


def fingerprint_of(scope: str, target: str, body: Any) -> str:
    """What a key stands for: the same route, target and JSON value, however it was spelt."""
    return hashlib.sha256(
        frame("semel/request/1", scope, target, canonical(body, unfold=as_canonical))
    ).hexdigest()


class Keys:
    """The keys of every tenant of a store."""

    def __init__(self, document_store: DocumentStore, kept_us: int | None) -> None:
        self._document_store = document_store
        self.kept_us = kept_us

    def id(self, tenant: str, scope: str, key: str) -> str:
        """Derived from the key, and tells nobody what the key is."""
        secret = self._document_store.store.secret_key
        return "rec_" + hmac.digest(secret, frame("semel/rec/1", tenant, scope, key), "sha256")[:16].hex()

    def expires_us(self, now_us: int) -> int | None:
        return None if self.kept_us is None else now_us + self.kept_us

    async def replay(
        self, tenant: str, document: Document | None, fingerprint: str, now_us: int
    ) -> JsonAnswer[Any] | None:
        """The first answer; None if the key is free. A Refused if it is another request's, or on its way."""
        if document is None:
            return None
        record = key_record(document)
        if record.expires_us is not None and record.expires_us <= now_us:
            subjects = await self._subjects(tenant, record)
            closes_us = record.closes_us(subjects.get(record.subject_id or ""))
            if closes_us is not None and closes_us <= now_us:
                return None
        if record.answer is None and record.reserved_until_us <= now_us:
            return None  # whoever reserved it is gone, and nothing was created
        if record.fingerprint != fingerprint:
            raise Refused("idempotency_key_reused")
        if record.answer is None:
            raise Refused("idempotency_in_flight", retry_after_s=1)
        return JsonAnswer(record.answer.encode(), replayed=True)

    async def _subjects(self, tenant: str, *records: KeyRecord) -> Mapping[str, Document]:
        ids = [record.subject_id for record in records if record.subject_id is not None]
        return await self._document_store.fetch(tenant, *ids) if ids else {}

    async def first_answer(
        self, tenant: str, scope: str, key: str | None, fingerprint: str
    ) -> JsonAnswer[Any] | None:
        """What the key was answered with before; None if it is free or there is none."""
        if key is None:
            return None
        id_ = self.id(tenant, scope, key)
        document = (await self._document_store.fetch(tenant, id_)).get(id_)
        return await self.replay(tenant, document, fingerprint, await self._document_store.now_us())

    async def get(self, tenant: str, id_: str) -> RecordJson | None:
        document = (await self._document_store.fetch(tenant, id_)).get(id_)
        if document is None or not id_.startswith("rec_"):
            return None
        return (await self._views(tenant, [document]))[0]

    async def _views(self, tenant: str, documents: Sequence[Document]) -> Items:
        records = [key_record(each) for each in documents]
        subjects = await self._subjects(tenant, *records)
        return [view(each, subjects.get(each.subject_id or "")) for each in records]

    async def find(self, tenant: str, scope: str, key: str) -> RecordJson | None:
        return await self.get(tenant, self.id(tenant, scope, key))

    async def list(
        self, tenant: str, scope: str | None, after: tuple[int, str] | None, limit: int
    ) -> Page[RecordJson]:
        indexes = (keys_of(scope),) if scope else KEYS
        documents = await self._document_store.newest(tenant, indexes, limit, after)
        return Page(await self._views(tenant, documents), next_after(documents, limit, *indexes))


def view(record: KeyRecord, subject: Document | None) -> RecordJson:
    """As `GET /api/v1/records` shows it, beside its run or job."""
    done = record.answer is not None
    return {
        "id": record.id,
        "scope": "run" if record.scope == "rerun" else record.scope,
        "tool": None,
        "key": record.key,
        "state": "done" if done else "pending",
        "fence": None,
        "attempts": 1,
        "created_at": rfc3339(record.created_us),
        "settled_at": rfc3339(record.created_us) if done else None,
        "expires_at": rfc3339(record.closes_us(subject)),
        "run_id": record.run_id,
        "job_id": record.job_id,
    }
