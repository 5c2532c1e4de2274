"""`semel runbook contention`: many callers want few slots of one tenant; who waits, who is refused.

Each caller starts a run, again after every 429 and 503, until it is admitted or time is up; a run ends after
a moment and frees its slot. This is done with the atomic strategy and with the lock, its retries fixed and
jittered; and with clients whose own retries are fixed or jittered; then with ten times the callers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import httpx
import orjson

from semel.errors import SemelError
from semel.flow.assembly import Flow, Policy
from semel.flow.lock import LockPolicy
from semel.flow.values import Caller
from semel.kernel.clock import SYSTEM
from semel.lab.runbooks.runbook import Runbook
from semel.lab.runbooks.served import ServedGateway
from semel.stores.base import Store

CALLERS, BURST = 100, 10
LIMIT = 2

# How long a run lasts. The slots alone would let 400 runs a second through.
HOLD_S = 0.005

# What a client waits between two attempts: fixed, or evenly between none and twice as much.
CLIENT_RETRY_S = 0.1

# No burst is watched for longer.
TIME_S = 5.0

_WORKFLOW = "contention"

# A refusal as a gateway would say it; all others are 503.
_STATUS = {"max_concurrent_runs_reached": 429}

Retry = Literal["fixed", "jitter"]
Start = Callable[[], Awaitable[tuple[int, str | None]]]
End = Callable[[str], Awaitable[None]]


class Variant(NamedTuple):
    """One way to admit, and one way in which clients come back."""

    strategy: str  # atomic, lock fixed, lock jitter; or the server's own
    client: Retry
    callers: int

    @property
    def name(self) -> str:
        return f"{self.strategy}, client {self.client}, {self.callers} callers"


@dataclass
class Trial:
    """What happened, in seconds since the callers began."""

    variant: Variant
    requests: list[tuple[float, float, int]] = field(default_factory=list)  # begun, took, status
    admitted: list[tuple[float, float]] = field(default_factory=list)  # when, since the caller began
    looks: list[float] = field(default_factory=list)  # at the lock
    took_s: float = 0.0
    most_active: int = 0

    def share(self, status: int) -> float:
        codes = Counter(code for _, _, code in self.requests)
        return codes[status] / max(1, len(self.requests))

    def latency_ms(self, part: float) -> float:
        return 1000 * quantile([took for _, took, _ in self.requests], part)

    def waited_ms(self, part: float) -> float:
        return 1000 * quantile([waited for _, waited in self.admitted], part)

    def peak(self, times: Sequence[float], width_s: float = 0.01) -> int:
        """The most of them that fell into one slice of time."""
        slices = Counter(int(at / width_s) for at in times)
        return max(slices.values(), default=0)

    def spread(self) -> float:
        """How evenly successes are spread: the longest gap between two, against the mean gap."""
        times = sorted(at for at, _ in self.admitted)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        return max(gaps) / (sum(gaps) / len(gaps)) if gaps and sum(gaps) else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def variants(callers: int = CALLERS, burst: int = BURST) -> Iterator[Variant]:
    """Every strategy with every kind of client, at the usual number of callers and at a burst."""
    for count in (callers, callers * burst):
        for strategy in ("atomic", "lock jitter", "lock fixed"):
            for client in ("jitter", "fixed"):
                yield Variant(strategy, client, count)


def server_variants(callers: int = CALLERS, burst: int = BURST) -> Iterator[Variant]:
    """Both kinds of client against a gateway, which has one strategy."""
    for count in (callers, callers * burst):
        for client in ("jitter", "fixed"):
            yield Variant("the server's own", client, count)


async def on_store(store: Store, variant: Variant, time_s: float = TIME_S) -> Trial:
    """The variant on a store, in this process: nothing but admission is measured."""
    outcome = Trial(variant)

    def looked() -> None:
        outcome.looks.append(time.perf_counter() - began)

    flow = Flow(store, _policy(variant), send=_send, wait=_wait, lock_looked=looked)
    caller = Caller(f"contention-{SYSTEM.token().hex()[:12]}", "runbook")
    await flow.workflows.put_tenant(caller.tenant, LIMIT)
    await flow.workflows.put(caller.tenant, _WORKFLOW, {"steps": []})

    async def start() -> tuple[int, str | None]:
        try:
            answer = await flow.runs.start(caller, _WORKFLOW, SYSTEM.token().hex(), {})
        except SemelError as refused:
            return _STATUS.get(refused.code, 503), None
        return 200, orjson.loads(answer.body)["run_id"]

    async def end(run_id: str) -> None:
        await flow.runs.complete(caller, run_id, "succeeded", None)

    began = time.perf_counter()
    return await _crowd(outcome, start, end, began, time_s)


async def on_server(server: ServedGateway, variant: Variant, time_s: float = TIME_S) -> Trial:
    """The variant's clients against a gateway, by whatever strategy it has."""
    workflow = f"contention-{SYSTEM.token().hex()[:12]}"
    async with server.client() as client:
        body = {"steps": [], "max_concurrent_runs": LIMIT}
        (await client.put(f"/api/v1/workflows/{workflow}", json=body)).raise_for_status()

        async def start() -> tuple[int, str | None]:
            headers = {"Idempotency-Key": SYSTEM.token().hex()}
            try:
                answer = await client.post(f"/api/v1/workflows/{workflow}/runs", json={}, headers=headers)
            except httpx.TransportError:
                return 503, None
            return answer.status_code, answer.json().get("run_id")

        async def end(run_id: str) -> None:
            await client.post(f"/api/v1/runs/{run_id}/complete", json={"status": "succeeded"})

        try:
            return await _crowd(Trial(variant), start, end, time.perf_counter(), time_s)
        finally:
            await client.delete(f"/api/v1/workflows/{workflow}")


async def _crowd(outcome: Trial, start: Start, end: End, began: float, time_s: float) -> Trial:
    """Everyone begins at once and comes back until admitted."""
    active = 0
    give_up = began + time_s

    async def caller() -> None:
        nonlocal active
        begun = time.perf_counter()
        while time.perf_counter() < give_up:
            sent = time.perf_counter()
            status, run_id = await start()
            answered = time.perf_counter()
            outcome.requests.append((sent - began, answered - sent, status))
            if run_id is not None:
                active += 1
                outcome.most_active = max(outcome.most_active, active)
                outcome.admitted.append((answered - began, answered - begun))
                await SYSTEM.asleep(HOLD_S)
                active -= 1
                await end(run_id)
                return
            await SYSTEM.asleep(_client_pause_s(outcome.variant.client))

    await asyncio.gather(*(caller() for _ in range(outcome.variant.callers)))
    outcome.took_s = time.perf_counter() - began
    return outcome


def _client_pause_s(retry: Retry) -> float:
    return CLIENT_RETRY_S if retry == "fixed" else 2 * CLIENT_RETRY_S * SYSTEM.random()


def _policy(variant: Variant) -> Policy:
    if variant.strategy == "atomic":
        return Policy("atomic")
    return Policy("lock", LockPolicy(retry="fixed" if variant.strategy.endswith("fixed") else "jitter"))


async def _send(_: object) -> None:
    """Nobody listens here."""


async def _wait(_: str, __: Sequence[str], seconds: float) -> None:
    await SYSTEM.asleep(seconds)


def judge(book: Runbook, outcomes: Sequence[Trial]) -> None:
    """What has to hold under any contention: the limit, for everyone, and nothing but 200, 429 and 503."""
    for outcome in outcomes:
        name = outcome.variant.name
        book.check(f"{name}: never over the limit", outcome.most_active <= LIMIT, outcome.most_active)
        codes = {code for _, _, code in outcome.requests}
        book.check(f"{name}: only 200, 429 and 503", codes <= {200, 429, 503}, sorted(codes))
        book.check(f"{name}: somebody is admitted", bool(outcome.admitted), len(outcome.admitted))
        if outcome.variant.strategy == "atomic":
            turned_away = outcome.share(503)
            book.check(
                f"{name}: nobody is refused for want of a lock", turned_away == 0, f"{turned_away:.1%} 503"
            )
