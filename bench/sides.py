"""Semel's side of every comparison. A side does so many operations in a round and says how long one took."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count as counting
from time import perf_counter
from typing import Any, Protocol

import semel
from bench import by_hand, workload
from semel.call.cache import SettledCache
from semel.kernel.clock import SYSTEM
from semel.kernel.record import State
from semel.ledger.ledger import Ledger
from semel.stores.base import CountRecords, ListRecords, ReadEvents


class Side(Protocol):
    name: str

    def round(self, count: int) -> float:
        """So many operations are done; the seconds that one took."""

    def did(self) -> dict[str, int]:
        """What the rounds left behind, read back from where it was written."""

    def close(self) -> None: ...


class Ledgered:
    """A side with a ledger of its own."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.calls = 0
        self._rounds = counting()

    def step(self) -> Any:
        """A step of its own for each round, so that no round meets the keys of an earlier one."""
        return self.ledger.step(
            conversation=f"round-{next(self._rounds)}", step="refund-1", principal="support-bot"
        )

    def did(self) -> dict[str, int]:
        return {"calls": self.calls, **settled_in(self.ledger)}

    def close(self) -> None:
        self.ledger.close()


def settled_in(ledger: Ledger) -> dict[str, int]:
    """Settled records of the ledger's store, and the events of their transitions."""
    settled = ledger.store.ask(CountRecords()).get(State.DONE, 0)
    events = after = 0
    while batch := ledger.store.ask(ReadEvents(after=after, limit=10_000)):
        events += sum(event.kind != "dedup_hit" for event in batch)
        after = batch[-1].seq
    return {"settled": settled, "events": events}


class SyncCalls(Ledgered):
    """Guarded calls of one synchronous caller, one after the other."""

    def round(self, count: int) -> float:
        self.calls += count
        with self.step():
            return timed_refunds(count)


class OldCalls(SyncCalls):
    """Guarded calls on a store with a history, which is not counted event by event."""

    def did(self) -> dict[str, int]:
        return {"calls": self.calls, "settled": self.ledger.store.ask(CountRecords()).get(State.DONE, 0)}


class Doubts(Ledgered):
    """Looks at what is in doubt, as a prober takes one every two seconds."""

    IN_DOUBT = 20
    _QUERY = ListRecords("default", states=frozenset((State.IN_DOUBT,)), limit=200)

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        workload.leave_in_doubt(ledger.store, self.IN_DOUBT)
        self._seen = 0

    def round(self, count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            self._seen += len(self.ledger.store.ask(self._QUERY))
        self.calls += count
        return (perf_counter() - began) / count

    def did(self) -> dict[str, int]:
        return {"looks": self.calls, "seen": self._seen}


class FreshCalls:
    """Guarded calls on a memory store that held `size` records when the round began."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self._size = name, size
        self._last: SyncCalls | None = None

    def round(self, count: int) -> float:
        self.close()
        self._last = SyncCalls(self.name, semel.open("memory://"))
        self._last.round(self._size)  # and by the way its background thread is running
        return self._last.round(count)

    def did(self) -> dict[str, int]:
        return self._last.did() if self._last else {}

    def close(self) -> None:
        if self._last is not None:
            self._last.close()


def timed_refunds(count: int) -> float:
    ids = [f"p-{number:06}" for number in range(count)]
    refund: Any = workload.refund  # callers leave the key out, which its type does not know
    began = perf_counter()
    for payment_id in ids:
        refund(payment_id=payment_id, amount_minor=1_400_000, reason="damaged")
    return (perf_counter() - began) / count


class CachedReplays(Ledgered):
    """Replays of one settled call, as an agent in a loop makes them: read in this process."""

    def __init__(self, name: str, ledger: Ledger, tool: Callable[..., Any], **arguments: Any) -> None:
        super().__init__(name, ledger)
        self._tool, self._arguments = tool, arguments
        self._replays = 0

    def round(self, count: int) -> float:
        tool, arguments = self._tool, self._arguments
        self.calls += 1
        self._replays += count
        with self.step():
            tool(**arguments)
            began = perf_counter()
            for _ in range(count):
                tool(**arguments)
            return (perf_counter() - began) / count

    def did(self) -> dict[str, int]:
        return super().did() | {"replays": self._replays}


class StoreReplays(Ledgered):
    """Replays in a process that has just started: its cache is empty, so each of them reads the store."""

    def __init__(self, name: str, ledger: Ledger, keys: int) -> None:
        super().__init__(name, ledger)
        self._keys = self.calls = keys
        self._replays = 0
        self._settle_first()

    def _settle_first(self) -> None:
        with self._settled():
            timed_refunds(self._keys)

    def _settled(self) -> Any:
        return self.ledger.step(conversation="settled", step="refund-1")

    def round(self, count: int) -> float:
        """Each key once per empty cache; `count` beyond the number of keys begins again with another."""
        self._replays += count
        took = 0.0
        for start in range(0, count, self._keys):
            self.ledger.cache = SettledCache()
            batch = min(self._keys, count - start)
            with self._settled():
                took += timed_refunds(batch) * batch
        return took / count

    def did(self) -> dict[str, int]:
        settled = self.ledger.store.ask(CountRecords()).get(State.DONE, 0)
        return {"calls": self.calls, "settled": settled, "replays": self._replays}


class AsyncCalls(Ledgered):
    """Guarded calls of so many tasks on one event loop, each task one call after the other."""

    def __init__(self, name: str, ledger: Ledger, tasks: int = 1) -> None:
        super().__init__(name, ledger)
        self._tasks = tasks
        self._runner = asyncio.Runner()

    def round(self, count: int) -> float:
        each = count // self._tasks
        self.calls += each * self._tasks
        return self._runner.run(self._all(each)) / (each * self._tasks)

    async def _all(self, each: int) -> float:
        steps = [self.step() for _ in range(self._tasks)]
        began = perf_counter()
        await asyncio.gather(*(_refunds(step, each) for step in steps))
        return perf_counter() - began

    def close(self) -> None:
        self._runner.close()
        super().close()


class AsyncStoreReplays(StoreReplays):
    """The same by one task on an event loop."""

    def __init__(self, name: str, ledger: Ledger, keys: int) -> None:
        self._runner = asyncio.Runner()
        super().__init__(name, ledger, keys)

    def _settle_first(self) -> None:
        self._runner.run(_refunds(self._settled(), self._keys))

    def round(self, count: int) -> float:
        self._replays += count
        return self._runner.run(self._all(count)) / count

    async def _all(self, count: int) -> float:
        took = 0.0
        for start in range(0, count, self._keys):
            self.ledger.cache = SettledCache()
            began = perf_counter()
            await _refunds(self._settled(), min(self._keys, count - start))
            took += perf_counter() - began
        return took

    def close(self) -> None:
        self._runner.close()
        super().close()


async def _refunds(step: Any, count: int) -> None:
    refund: Any = workload.arefund
    async with step:
        for number in range(count):
            await refund(payment_id=f"p-{number:06}", amount_minor=1_400_000, reason="damaged")


class ThreadedCalls(Ledgered):
    """Guarded calls of so many threads, which are started before the clock is."""

    def __init__(self, name: str, ledger: Ledger, threads: int) -> None:
        super().__init__(name, ledger)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)

    def round(self, count: int) -> float:
        each = count // self._threads
        self.calls += each * self._threads
        steps = [self.step() for _ in range(self._threads)]
        # All of them and the stopwatch start together; a pool starts a thread only for work that waits.
        ready = threading.Barrier(self._threads + 1)
        running = [self._pool.submit(_run, ready, step, each) for step in steps]
        ready.wait()
        began = perf_counter()
        for one in running:
            one.result()
        return (perf_counter() - began) / (each * self._threads)

    def close(self) -> None:
        self._pool.shutdown()
        super().close()


def _run(ready: threading.Barrier, step: Any, count: int) -> None:
    ready.wait()
    with step:
        timed_refunds(count)


class HeldLoop(AsyncCalls):
    """The longest pause of an event loop while its guarded call waits for a database that another holds.

    Another connection takes the write lock for HELD_S. A loop that is blocked by its call stands still for as
    long; one that is not goes on ticking.
    """

    HELD_S = 0.2
    _TICK_S = 0.001

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, semel.open(f"sqlite:///{path}"))
        self._other = by_hand.connect(path)

    def round(self, count: int) -> float:
        super().round(1)  # threads run and statements are prepared before it counts
        return max(self._runner.run(self._longest_pause()) for _ in range(count))

    async def _longest_pause(self) -> float:
        self.calls += 1
        self._other.execute("BEGIN IMMEDIATE")
        # From a thread: a loop that stands still could not even let go.
        release = threading.Timer(self.HELD_S, self._other.execute, ("COMMIT",))
        release.start()
        call = asyncio.ensure_future(_refunds(self.step(), 1))
        longest, last = 0.0, perf_counter()
        while not call.done():
            await SYSTEM.asleep(self._TICK_S)
            now = perf_counter()
            longest, last = max(longest, now - last), now
        await call
        release.join()
        return longest

    def close(self) -> None:
        _close_quietly(self._other)
        super().close()


def _close_quietly(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    connection.close()
