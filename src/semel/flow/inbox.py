"""Messages arrive: each is handled once by a consumer, however often and however late it is delivered.

document    id                          indexes
inbox       inbox/<consumer>/<message>  expiry: when its window closes, or its claim has long lapsed

Claimed before it is handled, settled in one commit with what handling it writes. A claim whose consumer died
lapses, and the next delivery takes it over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from semel.flow.document_store import DocumentStore
from semel.questions.job import Message
from semel.stores.documents import Document, Draft, Entry
from semel.stores.index_names import EXPIRY

# As long as keys are kept: the longest time after which a broker was seen to deliver something again.
KEPT_US = 90 * 86_400_000_000

RETRY = ":retry"


class Claimed(NamedTuple):
    """The message is this consumer's to handle."""

    message: Message
    id: str
    tag: str


class Busy(NamedTuple):
    """Somebody else is at it, at most until then."""

    until_us: int


@dataclass(frozen=True, slots=True)
class Handled:
    """It was handled before."""


class Inbox:
    """The inbox of one consumer, for messages of any tenant."""

    def __init__(self, document_store: DocumentStore, consumer: str, kept_us: int | None = KEPT_US) -> None:
        self._document_store = document_store
        self._consumer = consumer
        self._kept_us = kept_us

    async def claim(self, message: Message, lease_us: int) -> Claimed | Busy | Handled:
        """Whose the message is from now on."""
        id_, seen, tag = self.id(message), None, self._document_store.new_tag()
        while True:
            now_us = await self._document_store.now_us()
            draft = _claim(id_, now_us + lease_us, self._kept_us)
            committed = await self._document_store.commit(message.tenant, {id_: seen}, (draft,), tag=tag)
            if committed.done:
                return Claimed(message, id_, tag)
            document = committed.unexpected[id_]
            if (status := _status(document, committed.now_us)) is not None:
                return status
            seen = document and document.tag

    async def settle(self, claimed: Claimed, drafts: Iterable[Draft] = ()) -> bool:
        """Handled, together with what that writes; False, and nothing is written, if the claim was lost."""
        now_us = await self._document_store.now_us()
        handled = _document(claimed.id, {"handled_us": now_us}, now_us, self._kept_us)
        expect = {claimed.id: claimed.tag}
        committed = await self._document_store.commit(claimed.message.tenant, expect, (handled, *drafts))
        return committed.done

    async def release(self, claimed: Claimed, drafts: Iterable[Draft] = ()) -> bool:
        """Not handled: the next delivery may try. False if the claim was lost."""
        expect = {claimed.id: claimed.tag}
        tenant = claimed.message.tenant
        return (await self._document_store.commit(tenant, expect, tuple(drafts), (claimed.id,))).done

    def id(self, message: Message) -> str:
        """A message that is retried by hand is the same one: whoever has handled it does nothing."""
        return f"inbox/{self._consumer}/{original_id(message.id)}"


def original_id(message_id: str) -> str:
    while message_id.endswith(RETRY):
        message_id = message_id.removesuffix(RETRY)
    return message_id


def _claim(id_: str, until_us: int, kept_us: int | None) -> Draft:
    return _document(id_, {"until_us": until_us}, until_us, kept_us)


def _document(id_: str, body: dict[str, int], at_us: int, kept_us: int | None) -> Draft:
    entries = () if kept_us is None else (Entry(EXPIRY, at_us + kept_us),)
    return Draft(id_, orjson.dumps(body), entries)


def _status(document: Document | None, now_us: int) -> Busy | Handled | None:
    """Why it cannot be claimed; None if it can."""
    if document is None:
        return None
    body = orjson.loads(document.body)
    if "handled_us" in body:
        return Handled()
    return Busy(body["until_us"]) if body["until_us"] > now_us else None
