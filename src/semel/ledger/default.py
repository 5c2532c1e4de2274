"""The default ledger: `semel.step(…)` without opening anything first.

It is opened at first use from `SEMEL_URL`, else on `sqlite:///semel.db`, closed at exit, and opened anew in a
child that was forked: the same store, wherever the child is by then. `use` puts another in its place.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from semel.ledger import ledger as ledgers
from semel.stores.urls import from_anywhere

if TYPE_CHECKING:
    from types import TracebackType

    from semel.call.step import Conversation, Step
    from semel.ledger.ledger import Ledger


class _DefaultLedger:
    def __init__(self) -> None:
        # Re-entrant: a handler of a signal may open a step while this thread is in the middle of opening.
        self._lock = threading.RLock()
        self._opened: Ledger | None = None
        self._url: str | None = None  # of what was opened first
        self._uses: list[Use] = []

    def get(self) -> Ledger:
        """The ledger that was put in place last, else the one that is opened at first use."""
        uses = self._uses
        if uses:
            return uses[-1].ledger
        with self._lock:
            if self._opened is None:
                url = self._url or ledgers.url_of_store(None)
                self._opened = ledgers.open(url)
                # A daemon forks and goes to another directory. A second file there would know nothing.
                self._url = from_anywhere(url)
            return self._opened

    def put(self, use: Use) -> None:
        with self._lock:
            self._uses = [*self._uses, use]

    def take_away(self, use: Use) -> None:
        with self._lock:
            self._uses = [each for each in self._uses if each is not use]

    def close(self) -> None:
        """Close what was opened here; what was put in place belongs to whoever opened it."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def forked(self) -> None:
        """The child opens a ledger of its own; one of the parent's threads may hold the lock for ever."""
        self._lock = threading.RLock()
        self._opened = None


class Use:
    """A ledger in the place of the default one: for good, or until the block ends."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        _default.put(self)

    def __enter__(self) -> Ledger:
        return self.ledger

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _default.take_away(self)

    async def __aenter__(self) -> Ledger:
        return self.ledger

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _default.take_away(self)


_default = _DefaultLedger()
atexit.register(_default.close)
os.register_at_fork(after_in_child=_default.forked)


def default_ledger() -> Ledger:
    """The one that is in place; opened if it is the first time that somebody asks for it."""
    return _default.get()


def use(ledger: Ledger) -> Use:
    """Put this ledger in the place of the default one, in the whole process; it closes nothing.

    For good, or as `with semel.use(ledger):` until the block ends. Of several, the last one counts.
    """
    if not isinstance(ledger, ledgers.Ledger):
        raise TypeError(f"semel.use takes a ledger, as semel.open(…) gives it, not {type(ledger).__name__}")
    return Use(ledger)


def step(
    *,
    conversation: str | None = None,
    step: str,
    scopes: Iterable[str] | None = None,
    principal: str | None = None,
) -> Step:
    """A step of the default ledger: see `Ledger.step`."""
    return default_ledger().step(conversation=conversation, step=step, scopes=scopes, principal=principal)


def conversation(name: str, *, at: int = 0, scopes: Iterable[str] = (), principal: str = "") -> Conversation:
    """A conversation of the default ledger, which numbers its steps: see `Ledger.conversation`."""
    return default_ledger().conversation(name, at=at, scopes=scopes, principal=principal)


def resume(carried: Mapping[str, Any]) -> Step:
    """The step of the default ledger that `step.carry()` described: see `Ledger.resume`."""
    return default_ledger().resume(carried)
