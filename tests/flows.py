"""Flows on any store: opened as gateways open them, and closed with the loop that they ran on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson

from semel.errors import SemelError
from semel.flow.assembly import Flow, Policy
from semel.flow.lock import LockPolicy
from semel.flow.model import Message
from semel.flow.values import Caller, JsonAnswer
from semel.kernel.clock import SYSTEM, Clock
from semel.stores.base import Store
from semel.stores.documents import Document, Scan
from tests.fake_clock import PATIENCE_S
from tests.stores import Kind

DAY_US = 86_400_000_000

ANN = Caller("acme", "ann")
BEN = Caller("acme", "ben")


class World:
    """One place with its documents; each `flow()` is another gateway on it."""

    def __init__(self, kind: Kind, place: Path, admission: Literal["atomic", "lock"] = "atomic") -> None:
        self.kind = kind
        self.admission = admission
        self.failures: list[str] = []  # contexts of cleanups that failed
        self.sent: list[Message] = []
        self._place = place
        self._stores: list[Store] = []

    def store(self, clock: Clock = SYSTEM) -> Store:
        """A handle on the place's documents: another one each time, if the store can be shared."""
        if not self._stores or self.kind.shared:
            self._stores.append(self.kind.open(self._place, clock, True))
        return self._stores[-1]

    def flow(
        self,
        clock: Clock = SYSTEM,
        *,
        wrap: Callable[[Store], Store] = lambda store: store,
        lock: LockPolicy | None = None,
        kept_us: int | None = 90 * DAY_US,
    ) -> Flow:
        policy = Policy(self.admission, lock or LockPolicy(), kept_us)
        return Flow(
            wrap(self.store(clock)),
            policy,
            send=self._send,
            wait=_never_rings,
            cleanup_failed=self.failures.append,
        )

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def close(self) -> None:
        for store in reversed(self._stores):
            await store.aclose()


async def _never_rings(tenant: str, topics: Sequence[str], seconds: float) -> None:
    await asyncio.sleep(0)


def played(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """An asynchronous test on a loop of its own, which closes its `world` in the end."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(_play(test(*args, **kwargs), kwargs["world"]))

    return run


async def _play(test: Awaitable[None], world: World) -> None:
    try:
        await asyncio.wait_for(test, 2 * PATIENCE_S)
    finally:
        await world.close()


async def told(asked: Awaitable[JsonAnswer]) -> tuple[str, dict[str, Any]]:
    """How an attempt ended: "done", "replayed" or the code of the refusal; and what was said."""
    try:
        answer = await asked
    except SemelError as refusal:
        return refusal.code, dict(refusal.details)
    return "replayed" if answer.replayed else "done", orjson.loads(answer.body)


async def index(flow: Flow, name: str, tenant: str = "acme") -> list[Document]:
    return list((await flow.document_store.scan(Scan(tenant, name, 10_000))).documents)
