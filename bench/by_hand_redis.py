"""The same steps with plain redis-py: a round trip that claims and one that settles, on the same server.

The steps on the server are the store's own, called with the arguments that the store would send, so both
sides write the same keys. Words are made before the clock starts and answers are not read into records: what
is left is what redis-py and the server take. redis-py is used as it comes, with hiredis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple

import redis
import redis.asyncio

import semel
from bench.by_hand import ARGUMENTS, FINGERPRINT, LEASE_US, OUTCOME, TERMS, WINDOW_US, key_of
from bench.servers import RedisServer
from bench.sides import settled_in
from semel.kernel import owner
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, CallRequest, Claim, Settle, State, apply
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from semel.stores.redis.commands import Translator, lane
from semel.stores.redis.packing import time

Words = list[Any]


class CallRequests(NamedTuple):
    """The two requests of one guarded call."""

    claim: Words
    settle: Words


class RequestWriter:
    """Writes the requests of calls that nobody made yet, for the store under this prefix."""

    def __init__(self, store: Store, server: RedisServer, prefix: str) -> None:
        lane_key = lane(0, prefix).lane
        with redis.Redis(port=server.port) as client:
            self._translator = Translator(store, prefix, 1, client.hget(lane_key, "id"))
        self._made = 0

    def requests(self, count: int) -> Iterator[CallRequests]:
        for number in range(self._made, self._made + count):
            at, token = Address("default", "tool", key_of(number)), owner.token(SYSTEM)
            settle = Settle(at, token, State.DONE, OUTCOME, WINDOW_US)
            claim = Claim(call_request(at, token), token, LEASE_US)
            claimed = apply(None, claim, 0)
            assert claimed is not None
            self._translator.claimed.keep(claimed)
            yield CallRequests(self._words(claim), self._words(settle))
        self._made += count

    def claim(self, at: Address) -> Words:
        token = owner.token(SYSTEM)
        return self._words(Claim(call_request(at, token), token, LEASE_US))

    def _words(self, command: Claim | Settle) -> Words:
        return list(self._translator.request(command).words())


def call_request(at: Address, token: bytes) -> CallRequest:
    return CallRequest(
        at, f"rec_{token[:16].hex()}", "refund", "2.1.0", FINGERPRINT, ARGUMENTS, TERMS, "conv-42",
        '["refund-1"]', "support-bot", "",
    )  # fmt: skip


def owned(settle: Words, claimed: Any) -> Words:
    """The settlement names the fence that its claim was given, in the fourth word from the end."""
    settle[-4] = time(claimed[1])
    return settle


class TwoRoundTrips:
    """Two round trips for each call, one after the other."""

    name = "by hand"

    def __init__(self, server: RedisServer, prefix: str = "by-hand") -> None:
        self._ledger = semel.open(server.url(prefix))
        self._writer = RequestWriter(self._ledger.store, server, prefix)
        self._client = redis.Redis(port=server.port)

    def round(self, count: int) -> float:
        requests = list(self._writer.requests(count))
        execute: Any = self._client.execute_command
        began = perf_counter()
        for claim, settle in requests:
            execute(*owned(settle, execute(*claim)))
        return (perf_counter() - began) / count

    def did(self) -> dict[str, int]:
        return settled_in(self._ledger)

    def close(self) -> None:
        self._client.close()
        self._ledger.close()


class AsyncTwoRoundTrips:
    """Two round trips for each call, by so many tasks on one loop: a client and its pool, as it comes."""

    name = "by hand"

    def __init__(self, server: RedisServer, tasks: int = 1, prefix: str = "by-hand") -> None:
        self._tasks = tasks
        self._ledger = semel.open(server.url(prefix))
        self._writer = RequestWriter(self._ledger.store, server, prefix)
        self._runner = asyncio.Runner()
        self._client = redis.asyncio.Redis(port=server.port)

    def round(self, count: int) -> float:
        each = count // self._tasks
        work = [list(self._writer.requests(each)) for _ in range(self._tasks)]
        return self._runner.run(self._all(work)) / (each * self._tasks)

    async def _all(self, work: list[list[CallRequests]]) -> float:
        began = perf_counter()
        await asyncio.gather(*map(self._one_after_the_other, work))
        return perf_counter() - began

    async def _one_after_the_other(self, requests: list[CallRequests]) -> None:
        execute: Any = self._client.execute_command
        for claim, settle in requests:
            await execute(*owned(settle, await execute(*claim)))

    def did(self) -> dict[str, int]:
        return settled_in(self._ledger)

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
        self._ledger.close()


def claims(ledger: Ledger, server: RedisServer, prefix: str) -> list[Words]:
    """For each record of the ledger the words that claim its key, and are answered with its settlement."""
    writer = RequestWriter(ledger.store, server, prefix)
    return [writer.claim(record.request.at) for record in ledger.records.list(limit=100)]


class Reads:
    """One round trip that is answered with a record; nothing is made of its bytes."""

    def __init__(self, name: str, server: RedisServer, words: list[Words]) -> None:
        self.name = name
        self._words = words
        self._read = 0
        self._client = redis.Redis(port=server.port)

    def round(self, count: int) -> float:
        execute: Any = self._client.execute_command
        commands = [self._words[number % len(self._words)] for number in range(count)]
        began = perf_counter()
        answers = [execute(*words) for words in commands]
        took = perf_counter() - began
        # The record is the last part of the step's answer.
        self._read += sum(bool(answer[-1]) for answer in answers)
        return took / count

    def did(self) -> dict[str, int]:
        return {"records read": self._read}

    def close(self) -> None:
        self._client.close()
