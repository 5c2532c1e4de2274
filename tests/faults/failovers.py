"""Servers that die while another one takes their place, and what is lost then: said first, then counted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import semel
from semel.call.cache import SettledCache
from tests.faults.bank import Bank
from tests.faults.caller import Heard, call
from tests.faults.checks import until
from tests.faults.payment import payment
from tests.patience import HURRIED
from tests.postgres_server import PostgresPair
from tests.redis_server import ReplicatedCluster, WatchedPair

# So many threads call at once.
CALLERS = 4

# Longer than a failover takes, as a rule. Whoever comes anew waits for it where an owner could not settle.
LEASE = "10s"


class Replicated(Protocol):
    """A primary and the one that follows it."""

    def start(self) -> None: ...
    def caught_up(self) -> bool: ...
    def sever(self) -> None: ...
    def fail_over(self) -> None: ...
    def url(self, **options: str) -> str: ...
    def remove(self) -> None: ...


class Kind(NamedTuple):
    """One kind of failover, and what is expected of it before it is measured."""

    name: str
    title: str
    make: Callable[[], Replicated]
    waits: bool  # an acknowledged write is at the other one already
    followed: str  # what may be lost while the other one followed
    behind: str  # and after it was cut off


NOTHING = "nothing that was acknowledged; no effect lands twice"
_LAST = (
    "claims and results acknowledged in the last moment, which the replica had not received; each of these "
    "calls may land once more"
)
_ALL_SINCE = (
    "every acknowledged call since the cut; each lands once more if it is repeated by a process that had not "
    "seen it"
)

KINDS = (
    Kind(
        "postgres-waits",
        "PostgreSQL, synchronous standby",
        lambda: PostgresPair(synchronous=True),
        True,
        NOTHING,
        "nothing: while the standby is cut off no call is acknowledged, and no tool runs",
    ),
    Kind(
        "postgres-runs-ahead",
        "PostgreSQL, asynchronous standby",
        lambda: PostgresPair(synchronous=False),
        False,
        _LAST,
        _ALL_SINCE,
    ),
    Kind("sentinel", "Redis, Sentinel", WatchedPair, False, _LAST, _ALL_SINCE),
    Kind(
        "cluster",
        "Redis, Cluster",
        ReplicatedCluster,
        False,
        _LAST,
        f"{_ALL_SINCE}; only what the dead server kept",
    ),
)


class Losses(NamedTuple):
    """What came of a failover."""

    calls: int
    acknowledged: set[str]  # accounts whose caller got a receipt
    ran: set[str]  # accounts that were paid before the failover was over
    lost: set[str]  # acknowledged, and paid again by whoever came anew
    twice: set[str]  # paid more than once
    safe: set[str]  # acknowledged while the other one had everything
    noticed: bool  # the process that had seen them refused to go on


class Scene:
    """Calls before a failover, during it, and by a new process after it."""

    def __init__(self, pair: Replicated, bank: Bank) -> None:
        self._pair, self._bank = pair, bank
        self._tool = payment(bank, "park", lease=LEASE, wait="1s")
        self._acknowledged: set[str] = set()
        self._codes: set[str | None] = set()
        self._numbers = itertools.count()

    def while_followed(self, calls: int) -> Losses:
        """The primary is killed in the middle of so many calls."""
        with self._open() as ledger:
            safe = self._before(ledger)
            accounts = self._accounts(calls)
            threads = self._start(ledger, accounts, self._insist)
            until(lambda: len(self._acknowledged) >= len(safe) + calls // 4, "calls are acknowledged")
            self._pair.fail_over()
            for thread in threads:
                thread.join()
        return self._after(safe, accounts)

    def when_behind(self, calls: int) -> Losses:
        """So many calls that the other one does not hear of, and then the primary is killed."""
        with self._open() as ledger:
            safe = self._before(ledger)
            self._pair.sever()
            accounts = self._accounts(calls)
            for thread in self._start(ledger, accounts, self._once):
                thread.join()
            self._pair.fail_over()
            # Else it would repeat its own results without asking.
            ledger.cache = SettledCache()
            for account in accounts:
                self._insist(ledger, account)
        return self._after(safe, accounts)

    def _open(self) -> semel.Ledger:
        """As a process that is started again until its store is there: a cluster is down a moment longer."""

        def opened() -> semel.Ledger | None:
            try:
                return semel.open(self._pair.url(timeout=HURRIED))
            except semel.errors.StoreUnavailable:
                return None

        ledger = until(opened, "the store can be opened")
        assert ledger is not None
        return ledger

    def _before(self, ledger: semel.Ledger) -> set[str]:
        """Calls that the other one knows of."""
        for account in self._accounts(CALLERS):
            self._once(ledger, account)
        until(self._pair.caught_up, "the other one has everything")
        return set(self._acknowledged)

    def _accounts(self, count: int) -> list[str]:
        return [f"acc-{number}" for number in itertools.islice(self._numbers, count)]

    def _start(
        self, ledger: semel.Ledger, accounts: list[str], work: Callable[[semel.Ledger, str], object]
    ) -> list[threading.Thread]:
        queue = iter(accounts)
        lock = threading.Lock()

        def run() -> None:
            while True:
                with lock:
                    account = next(queue, None)
                if account is None:
                    return
                work(ledger, account)

        threads = [threading.Thread(target=run) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        return threads

    def _once(self, ledger: semel.Ledger, account: str) -> Heard:
        heard = call(ledger, self._tool, account=account)
        self._codes.add(heard.code)
        if heard.receipt is not None:
            self._acknowledged.add(account)
        return heard

    def _insist(self, ledger: semel.Ledger, account: str) -> None:
        until(lambda: self._settled(ledger, account), f"{account} is answered for good")

    def _settled(self, ledger: semel.Ledger, account: str) -> bool:
        """Whether it would change nothing to repeat it: a receipt, a doubt, no trust in the store."""
        heard = self._once(ledger, account)
        return heard.receipt is not None or heard.code in ("OUTCOME_UNKNOWN", "STORE_CORRUPT")

    def _after(self, safe: set[str], accounts: list[str]) -> Losses:
        """A new process repeats every call. What it pays again was lost."""
        before = {entry.account for entry in self._bank.entries()}
        acknowledged, noticed = set(self._acknowledged), "STORE_CORRUPT" in self._codes
        with self._open() as fresh:
            for account in (*safe, *accounts):
                self._insist(fresh, account)
        paid = [entry.account for entry in self._bank.entries()]
        twice = {account for account in paid if paid.count(account) > 1}
        return Losses(
            len(safe) + len(accounts), acknowledged, before, acknowledged & twice, twice, safe, noticed
        )
