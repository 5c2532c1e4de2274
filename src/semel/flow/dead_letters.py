"""Dead letters: messages that a consumer failed on too often, put aside to be read and retried once.

document      id                  indexes, and what the score is
dead letter   dead_<digest>       dead: when it was put aside; expiry: when it is forgotten
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson

from semel.flow.document_store import DocumentStore
from semel.flow.idempotency_keys import Keys
from semel.flow.inbox import KEPT_US, RETRY
from semel.flow.problems import Refused
from semel.flow.values import Caller, JsonAnswer, Page, written
from semel.kernel.answers import DeadLetterJson
from semel.kernel.clock import rfc3339
from semel.kernel.keys import frame
from semel.kernel.limits import MESSAGE_CHARS_MAX
from semel.questions import job_index
from semel.questions.job import Message
from semel.stores.document_bytes import to_bytes
from semel.stores.documents import Document, Draft, Entry, Scan, score_on
from semel.stores.index_names import EXPIRY

DEAD = "dead"

# Read at once where a filter leaves some out, and how often for one page.
_BATCH, _BATCHES_MAX = 200, 10


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: str
    consumer: str
    message: Message
    deliveries: int
    error: str
    dead_us: int
    retried_us: int | None = None
    retried_by: str | None = None
    retry_key: str | None = None  # the key's own id, which tells nobody what the key is

    def draft(self, kept_us: int | None = KEPT_US) -> Draft:
        entries = [Entry(DEAD, self.dead_us)]
        if kept_us is not None:
            entries.append(Entry(EXPIRY, self.dead_us + kept_us))
        return Draft(self.id, to_bytes(self), tuple(entries))


def letter(consumer: str, message: Message, deliveries: int, error: str, now_us: int) -> DeadLetter:
    digest = hashlib.sha256(frame("semel/dead/1", consumer, message.id)).digest()[:16].hex()
    return DeadLetter(f"dead_{digest}", consumer, message, deliveries, error[:MESSAGE_CHARS_MAX], now_us)


def letter_of(body: bytes) -> DeadLetter:
    data = orjson.loads(body)
    return DeadLetter(**data | {"message": Message(**data["message"])})


class LetterFilter(NamedTuple):
    """Which letters; None: whichever."""

    status: str | None = None  # put_aside, retried
    consumer: str | None = None

    def fits(self, dead: DeadLetter) -> bool:
        status = "put_aside" if dead.retried_us is None else "retried"
        return self.status in (None, status) and self.consumer in (None, dead.consumer)


class DeadLetters:
    """For `GET /api/v1/dead-letters` and `POST /api/v1/dead-letters/{id}/retry`."""

    def __init__(self, document_store: DocumentStore, keys: Keys) -> None:
        self._document_store = document_store
        self._keys = keys

    async def list(
        self,
        tenant: str,
        after: tuple[int, str] | None,
        limit: int,
        filters: LetterFilter = LetterFilter(),  # noqa: B008  it cannot be changed
    ) -> Page[DeadLetterJson]:
        """Newest first. A page may be shorter than `limit` and still not be the last."""
        items: list[DeadLetterJson] = []
        size = limit
        for _ in range(_BATCHES_MAX):
            scanned = await self._document_store.scan(Scan(tenant, DEAD, size, newest=True, after=after))
            for document in scanned.documents:
                after = score_on(document, DEAD), document.id
                dead = letter_of(document.body)
                if filters.fits(dead):
                    items.append(view(dead))
                if len(items) == limit:
                    return Page(items, after)
            if len(scanned.documents) < size:
                return Page(items, None)
            size = _BATCH
        return Page(items, after)

    async def get(self, tenant: str, id_: str) -> DeadLetterJson:
        return view(letter_of((await self._document(tenant, id_)).body))

    async def retry(self, caller: Caller, id_: str, key: str | None) -> JsonAnswer[DeadLetterJson]:
        """The message is sent again, once: the same key again is replayed, anything else refused."""
        key_id = None if key is None else self._keys.id(caller.tenant, "dead-letter", key)
        while True:
            document = await self._document(caller.tenant, id_)
            dead = letter_of(document.body)
            if dead.retried_us is not None:
                if key_id is None or dead.retry_key != key_id:
                    raise Refused("message_already_retried")
                return written(view(dead), replayed=True)
            retried = await self._retried(caller, dead, key_id)
            put = (retried.draft(self._keys.kept_us), job_index.message_draft(_again(retried)))
            if (await self._document_store.commit(caller.tenant, {id_: document.tag}, put)).done:
                return written(view(retried))

    async def _retried(self, caller: Caller, dead: DeadLetter, key_id: str | None) -> DeadLetter:
        now_us = await self._document_store.now_us()
        return replace(dead, retried_us=now_us, retried_by=caller.principal, retry_key=key_id)

    async def _document(self, tenant: str, id_: str) -> Document:
        document = (await self._document_store.fetch(tenant, id_)).get(id_)
        if document is None or not id_.startswith("dead_"):
            raise Refused("message_not_found")
        return document


def _again(dead: DeadLetter) -> Message:
    """Under an id of its own, or a broker would drop it; consumers that handled the first one know it."""
    assert dead.retried_us is not None
    return replace(dead.message, id=dead.message.id + RETRY, at_us=dead.retried_us)


def view(dead: DeadLetter) -> DeadLetterJson:
    message = dead.message
    return {
        "id": dead.id,
        "message_id": message.id,
        "type": message.type,
        "topic": message.topic,
        "run_id": message.run_id,
        "job_id": message.job_id,
        "consumer": dead.consumer,
        "deliveries": dead.deliveries,
        "error": dead.error,
        "created_at": rfc3339(message.at_us),
        "dead_at": rfc3339(dead.dead_us),
        "retried_at": rfc3339(dead.retried_us),
        "retried_by": dead.retried_by,
    }
