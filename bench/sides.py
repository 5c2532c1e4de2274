"""Semel's side of every comparison. A side does so many operations in a round and says how long one took."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count as counting
from time import perf_counter
from typing import Any, Protocol

from bench import bare, workload
from semel.call.cache import SettledCache
from semel.kernel.record import UNSETTLED, State
from semel.ledger.ledger import Ledger
from semel.stores.base import CountRecords, ListRecords, ReadEvents


class Side(Protocol):
    name: str

    def round(self, count: int) -> float:
        """So many operations are done; the seconds that one took."""

    def did(self) -> dict[str, int]:
        """What the rounds left behind, read back from where it was written."""

    def close(self) -> None: ...


@dataclass
class MissingSide:
    """A side that is not here: the rows that need it say why, and the others are measured."""

    name: str
    why: str

    def round(self, count: int) -> float:
        raise NotImplementedError(self.why)

    def did(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        """There is nothing to close."""


class Size:
    """A number of bytes that is the same in each round."""

    def __init__(self, name: str, size: float, **did: int) -> None:
        self.name, self._size, self._did = name, size, did

    def round(self, count: int) -> float:  # noqa: ARG002  # a side's signature
        return self._size

    def did(self) -> dict[str, int]:
        return self._did

    def close(self) -> None:
        pass


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


class UnsettledLists(Ledgered):
    """Lists of what is not settled: some records are in doubt, all the others of the store are done."""

    IN_DOUBT = 20
    _QUERY = ListRecords("default", states=UNSETTLED, limit=200)

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        workload.leave_in_doubt(ledger.store, self.IN_DOUBT)
        self._listed = 0

    def round(self, count: int) -> float:
        began = perf_counter()
        for _ in range(count):
            self._listed += len(self.ledger.store.ask(self._QUERY))
        self.calls += count
        return (perf_counter() - began) / count

    def did(self) -> dict[str, int]:
        return {"lists": self.calls, "listed": self._listed}


def timed_refunds(count: int, refund: Callable[..., Any] = workload.refund) -> float:
    ids = [f"p-{number:06}" for number in range(count)]
    began = perf_counter()
    for payment_id in ids:
        refund(payment_id=payment_id, amount_minor=1_400_000, reason="damaged")
    return (perf_counter() - began) / count


def timed_replays(count: int, tool: Callable[..., Any], arguments: dict[str, Any]) -> float:
    """Repeats of a call that is made first."""
    tool(**arguments)
    began = perf_counter()
    for _ in range(count):
        tool(**arguments)
    return (perf_counter() - began) / count


class CachedReplays(Ledgered):
    """Replays of one settled call, as an agent in a loop makes them: read in this process."""

    def __init__(self, name: str, ledger: Ledger, tool: Callable[..., Any], **arguments: Any) -> None:
        super().__init__(name, ledger)
        self._tool, self._arguments = tool, arguments
        self._replays = 0

    def round(self, count: int) -> float:
        self.calls += 1
        self._replays += count
        with self.step():
            return timed_replays(count, self._tool, self._arguments)

    def did(self) -> dict[str, int]:
        return super().did() | {"replays": self._replays}


class StoreReplays(Ledgered):
    """Replays in a process that has just started: its cache is empty, so each of them reads the store."""

    def __init__(self, name: str, ledger: Ledger, keys: int) -> None:
        super().__init__(name, ledger)
        self._keys = self.calls = keys
        self._replays = 0
        with self._settled():
            timed_refunds(keys)

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


class BareCalls:
    """Calls without layers (bare.py), one after the other."""

    def __init__(self, name: str) -> None:
        self.name, self._rounds, self._calls, self._replays = name, counting(), 0, 0
        self._bare = bare.Bare()

    def step(self) -> bare.BareStep:
        return bare.BareStep(f"round-{next(self._rounds)}", "refund-1", "support-bot")

    def round(self, count: int) -> float:
        self._calls += count
        with self.step():
            return timed_refunds(count, self._bare.refund)

    def did(self) -> dict[str, int]:
        settled = sum(record["state"] == "done" for record in self._bare.records.values())
        events = sum(event[6] != "dedup_hit" for event in self._bare.events)
        return {"calls": self._calls, "settled": settled, "events": events}

    def close(self) -> None:
        self._bare.close()


class BareReplays(BareCalls):
    """Repeats of one settled call without layers."""

    def __init__(self, name: str, tool: str, **arguments: Any) -> None:
        super().__init__(name)
        self._tool, self._arguments = getattr(self._bare, tool), arguments

    def round(self, count: int) -> float:
        self._calls += 1
        self._replays += count
        with self.step():
            return timed_replays(count, self._tool, self._arguments)

    def did(self) -> dict[str, int]:
        return super().did() | {"replays": self._replays}


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
