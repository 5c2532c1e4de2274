"""Admission behind a lock per tenant: instead of the atomic one, and for policies that a commit cannot check.

Reserve the key, take the lock, count, create, give the lock back. What creates the run checks key, limit and
lock itself, so that the lock only orders the waiters. A reservation is taken back on every failing path, not
bound to the client's connection, again and again until it works; and it has a short life of its own, so that
a crash heals by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import orjson

from semel.errors import SemelError, StoreUnavailable
from semel.flow import indexes
from semel.flow.admission import Admission, Start, no_slot
from semel.flow.document_store import DocumentStore
from semel.flow.problems import Refused
from semel.flow.values import JsonAnswer
from semel.flow.workflows import AdmissionRules
from semel.kernel.answers import RunStartedJson
from semel.ledger.request_keys import KeyRecord
from semel.stores.documents import Capacity, Committed, Count, Draft

log = logging.getLogger("semel")

# How long a waiter pauses between two looks at the lock: fixed, or this on average.
_RETRY_S = 0.010

# Where an admission was when its reservation had to be taken back.
CONTEXTS = ("gate_unavailable", "request_refused", "count_failed", "limit_reached", "create_failed")

# How a look at the lock ended; and the whole wait for it.
LOOKS = ("taken", "busy", "failed")
WAITS = ("taken", "given_up", "failed")

# Between two attempts to take a reservation back.
_CLEAN_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class LockPolicy:
    retry: Literal["jitter", "fixed"] = "jitter"
    wait_us: int = 2_000_000
    ttl_us: int = 10_000_000


class LockListener:
    """Hears of the lock alone, not of the request: nothing is done with it here."""

    def looked(self, outcome: str) -> None:
        """At the lock, once: one of LOOKS."""

    def waited(self, outcome: str, seconds: float) -> None:
        """For the lock, with however many looks: one of WAITS."""


class Lock:
    """The tenant's lock, held by whoever's token is in it. Its life is judged by the store's clock."""

    def __init__(
        self, document_store: DocumentStore, policy: LockPolicy, listener: LockListener | None = None
    ) -> None:
        self._document_store = document_store
        self._policy = policy
        self._listener = listener or LockListener()

    async def take(self, tenant: str) -> str:
        """The tag under which it is held; a Refused if it was not free in time."""
        clock = self._document_store.clock
        began, outcome = clock.monotonic(), "failed"
        try:
            tag = await self._take(tenant, began + self._policy.wait_us / 1_000_000)
            outcome = "given_up" if tag is None else "taken"
        finally:
            self._listener.waited(outcome, clock.monotonic() - began)
        if tag is None:
            raise Refused("admission_gate_unavailable", retry_after_s=1)
        return tag

    async def _take(self, tenant: str, give_up: float) -> str | None:
        clock, tag, seen = self._document_store.clock, self._document_store.new_tag(), None
        while True:
            committed = await self._look(tenant, tag, seen)
            if committed.done:
                return tag
            holder = committed.unexpected[indexes.LOCK]
            if holder is None or orjson.loads(holder.body)["until_us"] <= committed.now_us:
                seen = holder and holder.tag
                continue
            seen = None
            if clock.monotonic() >= give_up:
                return None
            await clock.asleep(self._pause_s())

    async def _look(self, tenant: str, tag: str, seen: str | None) -> Committed:
        """The lock is taken, if it is as it was seen."""
        outcome = "failed"
        try:
            until_us = await self._document_store.now_us() + self._policy.ttl_us
            draft = Draft(indexes.LOCK, orjson.dumps({"until_us": until_us}))
            committed = await self._document_store.commit(tenant, {indexes.LOCK: seen}, (draft,), tag=tag)
            outcome = "taken" if committed.done else "busy"
        finally:
            self._listener.looked(outcome)
        return committed

    async def give_back(self, tenant: str, tag: str) -> None:
        """Free, if it is still held under this tag."""
        await self._document_store.commit(tenant, {indexes.LOCK: tag}, drop=(indexes.LOCK,))

    def _pause_s(self) -> float:
        return (
            _RETRY_S if self._policy.retry == "fixed" else 2 * _RETRY_S * self._document_store.clock.random()
        )


class LockedAdmission(Admission):
    """The lock strategy. `failed(context)` is called once for each reservation that did not go at once."""

    def __init__(
        self,
        admission: Admission,
        policy: LockPolicy,
        failed: Callable[[str], None] = lambda _: None,
        listener: LockListener | None = None,
    ) -> None:
        super().__init__(admission.document_store, admission.workflows, admission.keys)
        self._policy = policy
        self._failed = failed
        self._lock = Lock(self.document_store, policy, listener)
        self._cleaning: set[asyncio.Task[None]] = set()

    async def admit(self, start: Start) -> JsonAnswer[RunStartedJson]:
        """In no turn: the lock orders those who come."""
        return await self.admit_next(start)

    async def admit_next(self, start: Start) -> JsonAnswer[RunStartedJson]:
        # The client may go away in the middle; what was begun is ended all the same.
        return await asyncio.shield(asyncio.ensure_future(self._admit(start)))

    async def _admit(self, start: Start) -> JsonAnswer[RunStartedJson]:
        reserved = await self._reserve(start)
        if isinstance(reserved, JsonAnswer):
            return reserved
        context = "gate_unavailable"
        try:
            rules = await self.fresh(start)
            if problem := await start.objection(rules):
                context = "request_refused"
                raise problem
            lock = await self._lock.take(start.caller.tenant)
            try:
                context = "count_failed"
                await self._count(start, rules)
                context = "create_failed"
                return await self._create(start, rules, reserved, lock)
            finally:
                await self._give_back(start.caller.tenant, lock)
        except BaseException as error:
            if getattr(error, "code", "") == "max_concurrent_runs_reached":
                context = "limit_reached"
            await self._clean_up(start, reserved, context)
            raise

    async def _reserve(self, start: Start) -> JsonAnswer[RunStartedJson] | str | None:
        """The tag of the reservation; None without a key; the first answer if there is one."""
        if start.key is None:
            return None
        now_us = await self.document_store.now_us()
        record = KeyRecord(
            id=self.keys.id(start.caller.tenant, start.scope, start.key),
            scope=start.scope,
            key=start.key,
            fingerprint=start.fingerprint,
            created_us=now_us,
            expires_us=now_us + self._reserved_us(),
            reserved_until_us=now_us + self._reserved_us(),
        )
        tag, seen = self.document_store.new_tag(), None
        while True:
            expect = {record.id: seen}
            committed = await self.document_store.commit(
                start.caller.tenant, expect, (record.draft(),), tag=tag
            )
            if committed.done:
                return tag
            document = committed.unexpected[record.id]
            tenant, now_us = start.caller.tenant, committed.now_us
            if answer := await self.keys.replay(tenant, document, start.fingerprint, now_us):
                return answer
            seen = document and document.tag

    def _reserved_us(self) -> int:
        """Longer than an admission can take, short enough that a crash is forgotten within seconds."""
        return self._policy.wait_us + self._policy.ttl_us

    async def _count(self, start: Start, rules: AdmissionRules) -> None:
        """Refused here, a full tenant is spared the attempt to create."""
        count = await self.document_store.ask(Count(start.caller.tenant, indexes.SLOTS))
        if count >= rules.limit:
            raise no_slot(Capacity(indexes.SLOTS, rules.limit), count)

    async def _create(
        self, start: Start, rules: AdmissionRules, reserved: str | None, lock: str
    ) -> JsonAnswer[RunStartedJson]:
        plan = await self.plan(start, rules, reserved)
        plan = plan._replace(expect={**plan.expect, indexes.LOCK: lock})
        if problem := await self.document_store.storage.objection(start.caller.tenant, plan.put):
            raise problem
        committed = await self.commit(start, plan)
        if committed.done or plan.run_id in committed.unexpected:
            return plan.answer  # found: its reply was lost, and the run has gone on since
        if committed.full is not None:
            raise no_slot(committed.full, committed.count)
        # Frozen past the lock's or the reservation's life, or the workflow changed: nothing was created.
        raise Refused("admission_gate_unavailable", retry_after_s=1)

    async def _give_back(self, tenant: str, lock: str) -> None:
        try:
            await self._lock.give_back(tenant, lock)
        except SemelError:
            log.warning("a lock could not be given back; it ends with its life")

    # --- cleaning up -----------------------------------------------------------------------------

    async def _clean_up(self, start: Start, reserved: str | None, context: str) -> None:
        if reserved is None or start.key is None:
            return
        id_ = self.keys.id(start.caller.tenant, start.scope, start.key)
        if await self._dropped(start.caller.tenant, id_, reserved):
            return
        self._failed(context)
        task = asyncio.ensure_future(self._drop_until_done(start.caller.tenant, id_, reserved))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def _dropped(self, tenant: str, id_: str, tag: str) -> bool:
        """Whether the reservation is gone; one that is no longer ours is somebody else's to care for."""
        try:
            await self.document_store.commit(tenant, {id_: tag}, drop=(id_,))
        except StoreUnavailable:
            return False
        return True

    async def _drop_until_done(self, tenant: str, id_: str, tag: str) -> None:
        clock = self.document_store.clock
        give_up = clock.monotonic() + self._reserved_us() / 1_000_000  # then it has lapsed by itself
        while clock.monotonic() < give_up:
            await clock.asleep(_CLEAN_AGAIN_S)
            if await self._dropped(tenant, id_, tag):
                return
