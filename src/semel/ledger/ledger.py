"""The ledger: one tenant's way to a store, for synchronous and asynchronous callers, threads and forks."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from semel.call.cache import SettledCache
from semel.call.entering import current_call
from semel.call.step import Conversation, Step, open_step, resumed_step
from semel.contract.tool_names import ToolNames
from semel.errors import OpenError
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.durations import Duration, microseconds
from semel.ledger import beyond
from semel.ledger.catalogue import Sightings
from semel.ledger.closing import Closing
from semel.ledger.counters import AnswerCounters
from semel.ledger.keeper import Keeper
from semel.ledger.records import Records
from semel.ledger.running import Running
from semel.ledger.sweep import Sweeper
from semel.questions.approvals import Approvals
from semel.stores.urls import open_store

if TYPE_CHECKING:
    from types import TracebackType

    from semel.stores.base import Store

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

DEFAULT_URL = "sqlite:///semel.db"

# What a call to a slow provider takes; shorter than what most supervisors wait after SIGTERM.
CLOSE_WITHIN = "30s"


def open(url: str | None = None, *, tenant: str = "default", clock: Clock = SYSTEM) -> Ledger:
    """A ledger on the store that the URL names; without one `SEMEL_URL`, else `sqlite:///semel.db`."""
    _check_tenant(tenant)
    return Ledger(open_store(url_of_store(url), clock), tenant=tenant)


def url_of_store(given: str | None) -> str:
    """The given URL, else `SEMEL_URL`, else the default.

    An empty one is not replaced, and refused on opening: another store knows nothing of its keys.
    """
    return os.environ.get("SEMEL_URL", DEFAULT_URL) if given is None else given


class Ledger:
    """Steps and conversations, records and approvals of one tenant. `with` and `async with` close it."""

    def __init__(self, store: Store, *, tenant: str = "default") -> None:
        _check_tenant(tenant)
        self.store = store
        self.tenant = tenant
        self.clock = store.clock
        self.cache = SettledCache()
        # Whether a call looks for a settlement before it claims, where the store says that this is worth it:
        # if the last one found one. A process that begins may be one that resumes.
        self.expects_settlements = True
        self.counters = AnswerCounters()
        self.tool_names = ToolNames()
        follows, chores = beyond.parts()
        self.sweeper = Sweeper(store, chores)
        self.running = Running()
        self.keeper = Keeper(store, self.counters, self.sweeper, self.running)
        self._closing = Closing(store, self.keeper, self.running)
        self.sightings = self.keeper.sightings = Sightings(store, tenant, self.keeper.notice)
        self.approvals = Approvals(store, tenant, follows, self.keeper.notice)
        self.records = Records(store, tenant, self.keeper.notice, self.sightings.contract_of)

    @property
    def durability(self) -> str:
        """What an acknowledged write survives, in words."""
        return self.store.durability

    def step(
        self,
        *,
        conversation: str | None = None,
        step: str,
        scopes: Iterable[str] | None = None,
        principal: str | None = None,
    ) -> Step:
        """The step in which tools make their keys; inside another one of the conversation, a part of it."""
        return open_step(self, conversation, step, scopes, principal)

    def resume(self, carried: Mapping[str, Any]) -> Step:
        """The same step as the one that `step.carry()` described."""
        return resumed_step(self, carried)

    def conversation(
        self, name: str, *, at: int = 0, scopes: Iterable[str] = (), principal: str = ""
    ) -> Conversation:
        """A conversation that numbers its steps from `at`."""
        return Conversation(self, name, at, scopes, principal)

    def close(self, within: Duration = CLOSE_WITHIN) -> None:
        """No call begins any more, running ones are let end, for at most so long; the rest is in doubt.

        Then what was counted is written, background work ends and the store is closed. A tool that closes is
        not waited for: its own call is in doubt. Where this thread is in the middle of other calls (a handler
        of a signal came in between, or they are tasks of its event loop) this returns at once, and the ledger
        is closed when they have ended.
        """
        self._closing.close(_seconds(within), current_call())

    async def aclose(self, within: Duration = CLOSE_WITHIN) -> None:
        """The same from an event loop, whose other tasks go on meanwhile."""
        await asyncio.to_thread(self._closing.close, _seconds(within), current_call())

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Ledger:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _seconds(within: Duration) -> float:
    return microseconds(within, "within") / 1e6


def _check_tenant(tenant: str) -> None:
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise OpenError(
            f"{tenant!r} is not a tenant's name: letters, digits and, after the first, . _ : -, at most 128."
        )
