"""Settled records in the process: they cannot change before their window closes, so reading them is safe.

Records that a person may still amend (`record.amendable`) are never put here.
"""

from __future__ import annotations

from semel.kernel.limits import CACHE_BYTES_MAX, CACHE_RECORDS_MAX
from semel.kernel.record import Record


class SettledCache:
    """Two generations: when the young one is full it becomes the old one, and the old one is forgotten.

    That bounds records and bytes, keeps what is asked for, and costs a dictionary look-up; a list in the
    order of use would cost a write on every read. Racing threads may at worst forget something early.
    """

    def __init__(self, records_max: int = CACHE_RECORDS_MAX, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._records_max = records_max // 2
        self._bytes_max = bytes_max // 2
        self._young: dict[str, tuple[Record, int | None]] = {}
        self._old: dict[str, tuple[Record, int | None]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: str, now_us: int) -> Record | None:
        """The record, if it is here and its window is still open."""
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
            if entry is None:
                return None
            self.put(key, *entry)
        record, until_us = entry
        if until_us is not None and until_us <= now_us:
            return None
        return record

    def put(self, key: str, record: Record, until_us: int | None) -> None:
        """Keep a settled record until `until_us` by the clock that `get` is asked with."""
        size = len(record.request.arguments) + (len(record.outcome) if record.outcome else 0)
        if size > self._bytes_max // 64:
            return  # one very large record would push out all others
        if len(self._young) >= self._records_max or self._bytes + size > self._bytes_max:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[key] = record, until_us
        self._bytes += size
