"""The world outside Semel: a bank that writes down every payment that reaches it, and asks no questions."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One payment as it arrived: a second line is money paid twice."""

    key: str
    fence: int
    account: str
    amount: int
    note: str
    pid: int


@dataclass(frozen=True)
class Receipt:
    account: str
    amount: int
    note: str
    fence: int  # tells from which entry it came


class Bank:
    """Its book outlives the processes that pay: a line is there as soon as `pay` did its one write."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def pay(self, key: str, fence: int, account: str, amount: int, note: str) -> Receipt:
        line = json.dumps(Entry(key, fence, account, amount, note, os.getpid())) + "\n"
        book = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(book, line.encode())
        finally:
            os.close(book)
        return Receipt(account, amount, note, fence)

    def entries(self, account: str | None = None) -> list[Entry]:
        """All payments in the order in which they arrived."""
        if not os.path.exists(self.path):
            return []
        lines = Path(self.path).read_text().splitlines()
        found = [Entry(*json.loads(line)) for line in lines]
        return [entry for entry in found if account in (None, entry.account)]

    def receipt(self, key: str) -> Receipt | None:
        """What the bank knows of a key: the first payment that carried it."""
        for entry in self.entries():
            if entry.key == key:
                return Receipt(entry.account, entry.amount, entry.note, entry.fence)
        return None
