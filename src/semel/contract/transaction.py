"""The transaction in which a tool's effect and its settlement commit together."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from semel.errors import ContractError, StoreUnavailable
from semel.kernel.record import Reply, Settle

# Why a record is in doubt if its tool ended the transaction all the same. Only a person resolves that.
ENDED_BY_TOOL = "the tool ended its transaction itself, so what it wrote may be committed or not"


class Transaction(ABC):
    """Given to a tool that has a parameter of this type, where the store is a database that can.

    What the tool writes over `connection` is committed together with the record of its outcome, or not at
    all: no doubt is possible, and a call that was cut short is simply run again. The tool neither commits nor
    rolls back, which the connection refuses, and has no other effect than what it writes here.
    """

    connection: Any
    """Open, of the store's own driver: psycopg's (asynchronous for `async def`), or sqlite3's."""

    broken: bool = False
    """After `roll_back`: whether the tool had ended it before, so that nobody knows what became of it."""

    unwritten: tuple[Callable[[], Any], ...] = ()
    """Called when the tool has returned, before the settlement: who holds back what is to be written (the
    session of an ORM) writes it then. Awaited where the answer is awaitable."""

    @abstractmethod
    def settle(self, command: Settle) -> Reply:
        """The settlement and the effect are committed; neither if the key is no longer ours.

        Raises StoreUnavailable if the commit was not acknowledged: then the record says which it was. Raises
        TransactionBroken, and commits nothing, if this is no longer the transaction that was begun.
        """

    @abstractmethod
    def roll_back(self) -> None:
        """Nothing of it happens, unless `settle` has begun. Raises nothing: what is cut is rolled back."""


class TransactionBroken(Exception):
    """The tool ended its transaction itself: what it wrote may be committed or not."""


def refusal(what: str) -> ContractError:
    """For a tool that would end the transaction it was given."""
    return ContractError(
        f"A tool's transaction is not its own to end: {what} was refused, and nothing was committed.",
        corrective_action="Leave it out: Semel commits what the tool wrote together with its record, and "
        "rolls it back if the tool raises. For a part that may fail use a savepoint.",
    )


class End:
    """A commit and a cancelled caller's roll-back may meet: only the first of the two counts."""

    def __init__(self, *, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._begun = threading.Lock()
        self.committing = False  # the first was a commit

    def commit(self) -> None:
        if not self._begun.acquire(blocking=False):
            raise StoreUnavailable("The caller was cancelled, and what the tool wrote was rolled back.")
        self.committing = True

    def roll_back(self) -> bool:
        """Whether that is to be done. A commit goes on in the thread of a cancelled caller; one that was
        interrupted on the caller's own thread does not."""
        return self._begun.acquire(blocking=False) or not self._asynchronous
