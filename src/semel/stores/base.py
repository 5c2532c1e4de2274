"""The protocol that every store keeps.

A store performs *commands* (kernel/record.py) as one atomic step each, together with their event, and answers
*queries*. It does both for synchronous callers (`perform`, `ask`) and for asynchronous ones (`aperform`,
`aask`), which never block their event loop. What a command means is written in `semel.kernel.record.apply`.

What a store must hold to, and what tests/conformance checks:
- a reply is given only after the step is as durable as `durability` says;
- a command may be repeated by its owner after a lost reply: same answer, no second event;
- a store that cannot answer raises StoreUnavailable, one that finds damage StoreCorrupt: no driver's errors;
- once an asynchronous command is submitted it is carried out, also if its caller is cancelled meanwhile;
- whoever comes back in on a thread that is in the middle of it is refused at once (`waiting.entering`).
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from semel.audit.events import Event, Seal
from semel.contract.transaction import Transaction
from semel.errors import ContractError, StoreUnavailable
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.limits import SETTLE_WAIT_S
from semel.kernel.record import Address, Command, Record, Reply, State, closed, effective_state
from semel.kernel.waiting import Flag, inside

T = TypeVar("T")


class Query(Generic[T]):
    """A question to the store whose answer is a T."""


@dataclass(frozen=True, slots=True)
class ListRecords(Query[Sequence[Record]]):
    """Records of a tenant, or of all, whose window is open, newest first, older than `before`.

    `states` means effective states: a lapsed record is in doubt, swept or not. Where all of them are
    unsettled ones (`record.UNSETTLED`), no history of settled records is read, however long it is.
    """

    tenant: str | None
    scope: str | None = None
    states: frozenset[State] = frozenset()
    key: str | None = None
    tool: str | None = None
    before: tuple[int, str] | None = None  # created_at, id
    limit: int = 50

    def wants(self, record: Record, now_us: int) -> bool:
        """Whether this is one of the records that are asked for, at this time."""
        at = record.request.at
        return (
            self.tenant in (None, at.tenant)
            and self.scope in (None, at.scope)
            and self.key in (None, at.key)
            and self.tool in (None, record.request.tool)
            and (not self.states or effective_state(record, now_us) in self.states)
            and (self.before is None or (record.created_at, record.request.id) < self.before)
            and not closed(record, now_us)
        )


@dataclass(frozen=True, slots=True)
class FindRecord(Query[Record | None]):
    """The record with this id."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class ReadEvents(Query[Sequence[Event]]):
    """Events of a lane in the order of their `seq`, after `after`: all, or those of one tenant.

    With a record's id: the events of that record, wherever they are.
    """

    after: int = 0
    limit: int = 1_000
    tenant: str | None = None
    record_id: str | None = None
    lane: int = 0


@dataclass(frozen=True, slots=True)
class AppendEvents(Query[None]):
    """Write counted events (replays, refusals) in one batch."""

    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Sweep(Query["Swept"]):
    """Mark lapsed records as in doubt, remove those whose window closed, drop sealed events that are too old.

    At most `limit` of each in one step, so that nobody waits long for the sweeper.
    """

    limit: int = 500


@dataclass(frozen=True, slots=True)
class Swept:
    lapsed: int
    closed: int
    more: bool


@dataclass(frozen=True, slots=True)
class SealEvents(Query[Seal | None]):
    """Seal the next `limit` events of a lane that no seal covers; None if there are none."""

    limit: int = 1_000
    lane: int = 0


@dataclass(frozen=True, slots=True)
class ReadSeals(Query[Sequence[Seal]]):
    """Seals of a lane in the order of their number, after `after`."""

    after: int = 0
    limit: int = 1_000
    lane: int = 0


@dataclass(frozen=True, slots=True)
class CountRecords(Query[dict[State, int]]):
    """How many records there are in each state, over all tenants."""


class Whose(NamedTuple):
    """Whose unsettled records are counted together, and how they stand."""

    tenant: str
    tool: str
    state: State


@dataclass(frozen=True, slots=True)
class CountUnsettled(Query[Mapping[Whose, int]]):
    """How many unsettled records there are by tenant, tool and effective state, as ListRecords lists them.

    Of one tenant, or of all; in these states, each of `semel.kernel.record.UNSETTLED`.
    """

    states: frozenset[State] = frozenset((State.IN_DOUBT,))
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What `semel doctor` says about one side of a store."""

    level: Literal["ok", "note", "danger"]
    subject: str
    text: str
    fix: str = ""


class Store(ABC):
    """Records, their events, and who waits for them."""

    name: str
    clock: Clock = SYSTEM
    audit: bool = True

    # How many histories there are side by side, each with its own order and chain of seals: one, unless the
    # store is spread over machines that share no order. All events of a record are in one lane.
    lanes: int = 1

    # Longer than a year, so that a yearly audit still finds the whole of it.
    audit_kept_us: int = 400 * 86_400_000_000

    # How long a call that has run goes on trying to record itself; `?settle_wait=` on the URL.
    settle_wait_s: float = SETTLE_WAIT_S

    def __init__(self) -> None:
        self.waiters = Waiters()

    @property
    @abstractmethod
    def durability(self) -> str:
        """What an acknowledged write survives, in words."""

    @property
    @abstractmethod
    def secret_key(self) -> bytes:
        """32 random bytes of this store's own: secrets count in keys only through an HMAC under it."""

    @abstractmethod
    def perform(self, command: Command) -> Reply: ...

    @abstractmethod
    async def aperform(self, command: Command) -> Reply: ...

    @abstractmethod
    def ask(self, query: Query[T]) -> T: ...

    @abstractmethod
    async def aask(self, query: Query[T]) -> T: ...

    @abstractmethod
    def submit(self, command: Command) -> None:
        """Carry the command out soon, after those submitted before it by this caller; nobody reads the reply.

        For a caller that is being cancelled and may neither wait nor leave its claim behind.
        """

    looks_first: bool = False
    """Whether a look costs little beside a claim: then a synchronous caller that expects a settlement looks
    for it first, and makes its claim only if there is none."""

    transactional: bool = False
    """Whether a tool may write into the database of the records, in one transaction with its settlement."""

    def begin(self, *, asynchronous: bool) -> Transaction:
        """An open transaction, for a tool that is a coroutine or not. It may block."""
        del asynchronous
        raise ContractError(
            f"The {self.name} store is no database that a tool could write to.",
            corrective_action="Open the ledger in the database that the tool writes to.",
        )

    def watch(self) -> None:  # noqa: B027  most stores need nothing
        """Someone begins to wait: start noticing what other processes settle, if that takes anything."""

    def findings(self) -> list[Finding]:
        """What a person should know about the safety of this store."""
        return []

    def forked(self) -> None:
        """In a forked child: no lock is held, nobody waits."""
        self.waiters.reset()

    @abstractmethod
    def close(self) -> None: ...

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)


class Waiter:
    """One caller that waits for a record to change. It holds no connection."""

    __slots__ = ("_event", "_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._event = Flag() if loop is None else None
        self._future: asyncio.Future[None] | None = loop.create_future() if loop else None

    def wake(self) -> None:
        """From any thread."""
        if self._event is not None:
            self._event.set()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def wait(self, clock: Clock, seconds: float) -> bool:
        assert self._event is not None
        return clock.wait(self._event, seconds)

    async def await_change(self, clock: Clock, seconds: float) -> bool:
        assert self._future is not None
        return await clock.await_future(self._future, seconds)


class Waiters:
    """Who waits for which record, in this process."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nobody waits: as in a forked child, where those who waited do not exist."""
        self._lock = threading.Lock()
        self._waiting: dict[Address, list[Waiter]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def addresses(self) -> list[Address]:
        return list(self._waiting)

    def add(self, at: Address, loop: asyncio.AbstractEventLoop | None = None) -> Waiter:
        waiter = Waiter(loop)
        with inside(), self._lock:
            self._waiting.setdefault(at, []).append(waiter)
        return waiter

    def remove(self, at: Address, waiter: Waiter) -> None:
        with inside(), self._lock:
            present = self._waiting.get(at, [])
            if waiter in present:
                present.remove(waiter)
            if not present:
                self._waiting.pop(at, None)

    def wake(self, at: Address) -> None:
        """The record changed: whoever waits looks again."""
        if not self._waiting:
            return
        with inside(), self._lock:
            woken = self._waiting.pop(at, [])
        for waiter in woken:
            waiter.wake()


def store_closed() -> StoreUnavailable:
    return StoreUnavailable("The ledger is closed; nothing was done.", corrective_action="Open it anew.")
