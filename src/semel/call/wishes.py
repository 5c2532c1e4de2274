"""What a decider may wish of its driver. A decider (guard.py) yields a wish and receives the answer.

A wish is a store command, a query, one of those below, or a call itself: run its tool, and the answer is what
that returns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from semel.contract.contract import Contract
from semel.contract.transaction import Transaction
from semel.kernel.keys import Key
from semel.kernel.record import Address, Command, Settle
from semel.ledger.running import RunningCall
from semel.stores.base import Query


class Unrecorded(NamedTuple):
    """A call of a tool that keeps no record."""

    contract: Contract
    arguments: dict[str, Any]
    instance: Any
    outer: RunningCall | None  # the recorded call whose tool made it
    began: float | None  # the clock's seconds, if somebody wants to know how long it takes
    injected: Mapping[str, Any] = MappingProxyType({})  # what the caller fills besides the arguments


class Entered(NamedTuple):
    """What a tool returned that wrote into a transaction, which is still open."""

    value: Any
    transaction: Transaction


class CommitEffect(NamedTuple):
    """Commit what the tool wrote together with its settlement; the answer is the reply."""

    transaction: Transaction
    settle: Settle


class Ask(NamedTuple):
    """Ask the probe; the answer is what it says."""

    probe: Callable[..., Any]
    key: Key
    arguments: dict[str, Any]


class Pause(NamedTuple):
    """Let so many seconds pass."""

    seconds: float


class Await(NamedTuple):
    """Wait until the record is no longer held by this token, or so many seconds passed."""

    at: Address
    token: bytes
    seconds: float


class Elapsed(NamedTuple):
    """The answer is the clock's seconds, for measuring a wait."""


Entering = RunningCall | Unrecorded
Wish = Command | Query[Any] | Entering | CommitEffect | Ask | Pause | Await | Elapsed
Deciding = Generator[Wish, Any, Any]

ELAPSED = Elapsed()
