"""What is kept of an idempotency key that came with a request for a run, a job or a rerun.

A key's document has the answer itself, to the byte, so that a replay needs nothing else. Under the lock
strategy it exists before the run does, as a *reservation* with a short life.

The window of a key is counted from the end of its run or job, which nobody knows when the key is claimed: its
document says when the window would close if all had ended at once. It is forgotten with its run or job, which
has the time of its key. A reservation stands among what expires itself, and so do early keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from semel.stores.document_bytes import reads, to_bytes
from semel.stores.documents import Document, Draft, Entry
from semel.stores.index_names import EXPIRY, keys_of


@dataclass(frozen=True, slots=True)
class KeyRecord:
    id: str
    scope: str  # run, job, rerun
    key: str
    fingerprint: str
    created_us: int
    expires_us: int | None  # not before this time, and not before its run or job has ended and been kept
    answer: str | None = None  # None: reserved, until `reserved_until_us`
    reserved_until_us: int = 0
    run_id: str | None = None
    job_id: str | None = None

    def draft(self) -> Draft:
        listed = Entry(keys_of(self.scope), self.created_us)
        if self.subject_id is not None or self.expires_us is None:
            return Draft(self.id, to_bytes(self), (listed,))  # it is forgotten together with its run or job
        return Draft(self.id, to_bytes(self), (listed, Entry(EXPIRY, self.expires_us)))

    @property
    def subject_id(self) -> str | None:
        """The run or job that it stands for."""
        return self.run_id or self.job_id

    def closes_us(self, subject: Document | None) -> int | None:
        """When its window closes; None: never, or its run or job lives. Without these, by its own time."""
        if self.expires_us is None or subject is None:
            return self.expires_us
        forgotten_us = next((entry.score for entry in subject.entries if entry.index_name == EXPIRY), None)
        return None if forgotten_us is None else max(forgotten_us, self.expires_us)

    def look_again_us(self, subject: Document | None, now_us: int) -> int | None:
        """When a sweeper looks at it next; None if its window has closed.

        While its run or job lives, after another window: should that end at once, the look is in time.
        """
        assert self.expires_us is not None
        closes_us = self.closes_us(subject)
        if closes_us is None:
            return now_us + self.expires_us - self.created_us
        return closes_us if closes_us > now_us else None


def key_record(document: Document) -> KeyRecord:
    return _key_record(document.body)


@reads
def _key_record(body: bytes) -> KeyRecord:
    return KeyRecord(**orjson.loads(body))
