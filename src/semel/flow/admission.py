"""A run starts: replay, then workflow, then input, then slot; key, run and messages in one atomic step.

A refusal leaves nothing behind, so there is nothing to clean up, and no crash can make a key unusable. A
replay is answered before anything else is judged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from semel.audit.events import Event
from semel.flow import indexes, views
from semel.flow.document_store import DocumentStore
from semel.flow.idempotency_keys import Keys
from semel.flow.problems import Refused
from semel.flow.run_progress import Change
from semel.flow.tenant_turns import TenantTurns
from semel.flow.values import Caller, JsonAnswer, written
from semel.flow.workflows import AdmissionRules, Workflows
from semel.kernel.answers import RunStartedJson
from semel.ledger.request_keys import KeyRecord
from semel.stores.documents import Capacity, Commit, Committed, Draft

# How often a definition may change, or a key lapse, under one request.
_TRIES = 20

# Starts of one tenant that are at the store at once. A crowd of them would stand before whatever comes later:
# the end of a run, which frees the slot that all of them want, and other tenants.
AT_ONCE = 32


class Start(NamedTuple):
    """A request for a run. `begin` begins it in a change, by the rules of its workflow and tenant."""

    caller: Caller
    scope: str  # run or rerun
    workflow_id: str
    key: str | None
    fingerprint: str
    begin: Callable[[Change, AdmissionRules], None]
    objection: Callable[[AdmissionRules], Awaitable[Refused | None]]


class Plan(NamedTuple):
    """What would be written, and on which conditions."""

    answer: JsonAnswer[RunStartedJson]
    run_id: str
    key_id: str | None
    expect: Mapping[str, str | None]
    put: tuple[Draft, ...]
    capacity: tuple[Capacity, ...]
    events: tuple[Event, ...]


class Admission:
    """The atomic strategy."""

    def __init__(self, document_store: DocumentStore, workflows: Workflows, keys: Keys) -> None:
        self.document_store = document_store
        self.workflows = workflows
        self.keys = keys
        self._turns = TenantTurns(AT_ONCE)

    async def admit(self, start: Start) -> JsonAnswer[RunStartedJson]:
        """The run goes, or a Refused; in its turn, one of a few of its tenant at a time."""
        tenant = start.caller.tenant
        await self._turns.take(tenant)
        try:
            return await self.admit_next(start)
        finally:
            self._turns.give_back(tenant)

    async def admit_next(self, start: Start) -> JsonAnswer[RunStartedJson]:
        """The same without a turn, for whoever is first of those who wait for a slot."""
        return await self._admit(start)

    async def _admit(self, start: Start) -> JsonAnswer[RunStartedJson]:
        key_tag: str | None = None
        for _ in range(_TRIES):
            rules = await self.workflows.rules(start.caller.tenant, start.workflow_id)
            if await start.objection(rules) is not None:
                rules = await self.fresh(start)
                if problem := await start.objection(rules):
                    return await self.replay_or(
                        problem, start.caller.tenant, start.scope, start.key, start.fingerprint
                    )
            plan = await self.plan(start, rules, key_tag)
            if problem := await self.document_store.storage.objection(start.caller.tenant, plan.put):
                return await self.replay_or(
                    problem, start.caller.tenant, start.scope, start.key, start.fingerprint
                )
            committed = await self.commit(start, plan)
            if committed.done or plan.run_id in committed.unexpected:
                return plan.answer  # found: its reply was lost, and the run has gone on since
            if committed.full is not None:
                raise no_slot(committed.full, committed.count)
            if plan.key_id is not None and plan.key_id in committed.unexpected:
                document = committed.unexpected[plan.key_id]
                tenant, now_us = start.caller.tenant, committed.now_us
                if answer := await self.keys.replay(tenant, document, start.fingerprint, now_us):
                    return answer
                key_tag = document and document.tag
            self.workflows.forget(start.caller.tenant, start.workflow_id)
        raise Refused(
            "store_unavailable", "Definitions change faster than a run can start. Nothing was kept."
        )

    async def answer_without_slot(self, start: Start) -> JsonAnswer[RunStartedJson] | None:
        """What the start is answered with whether or not a slot is free; None if it is a matter of slots."""
        tenant = start.caller.tenant
        await self._turns.take(tenant)
        try:
            if answer := await self.keys.first_answer(tenant, start.scope, start.key, start.fingerprint):
                return answer
            if problem := await start.objection(await self.fresh(start)):
                raise problem
        finally:
            self._turns.give_back(tenant)
        return None

    async def fresh(self, start: Start) -> AdmissionRules:
        """As it is in the store: a refusal is not based on what was true a while ago."""
        self.workflows.forget(start.caller.tenant, start.workflow_id)
        return await self.workflows.rules(start.caller.tenant, start.workflow_id)

    async def replay_or(
        self, problem: Refused, tenant: str, scope: str, key: str | None, fingerprint: str
    ) -> JsonAnswer[RunStartedJson]:
        """The answer that the key had before what it began from changed or went; else the problem."""
        answer = await self.keys.first_answer(tenant, scope, key, fingerprint)
        if answer is None:
            raise problem
        return answer

    async def plan(self, start: Start, rules: AdmissionRules, key_tag: str | None) -> Plan:
        change = Change(start.caller.tenant, await self.document_store.now_us(), self.document_store.new_id)
        start.begin(change, rules)
        run = change.run
        assert run is not None
        answer = written(views.started(run))
        # A run that exists already is this one: writing it again would take back what it has done since.
        expect: dict[str, str | None] = {**rules.tags, run.run_id: None}
        put, key_id = change.drafts(self.keys.kept_us), None
        if start.key is not None:
            record = self._key_record(start, change.now_us, answer.body, run.run_id)
            key_id = record.id
            put, expect = (*put, record.draft()), expect | {key_id: key_tag}
        capacity, events = capacity_of(rules, run.workflow_id), tuple(change.audited)
        return Plan(answer, run.run_id, key_id, expect, put, capacity, events)

    async def commit(self, start: Start, plan: Plan) -> Committed:
        # The run's id is as fresh as any tag: it was drawn for this plan.
        tag = plan.run_id.removeprefix("run_")
        return await self.document_store.write(
            Commit(start.caller.tenant, tag, plan.expect, plan.put, (), plan.capacity, plan.events)
        )

    def _key_record(self, start: Start, now_us: int, answer: bytes, run_id: str) -> KeyRecord:
        assert start.key is not None
        return KeyRecord(
            id=self.keys.id(start.caller.tenant, start.scope, start.key),
            scope=start.scope,
            key=start.key,
            fingerprint=start.fingerprint,
            created_us=now_us,
            expires_us=self.keys.expires_us(now_us),
            answer=answer.decode(),
            run_id=run_id,
        )


def capacity_of(rules: AdmissionRules, workflow_id: str) -> tuple[Capacity, ...]:
    capacities = [Capacity(indexes.SLOTS, rules.limit)]
    if rules.workflow is not None and rules.workflow.max_concurrent_runs is not None:
        capacities.append(Capacity(indexes.slots_of(workflow_id), rules.workflow.max_concurrent_runs))
    return tuple(capacities)


def no_slot(full: Capacity, count: int) -> Refused:
    return Refused(
        "max_concurrent_runs_reached",
        f"{count} of {full.limit} runs are active. Nothing was kept: the same key works once a slot is free.",
        current=count,
        limit=full.limit,
        scope="tenant" if full.index_name == indexes.SLOTS else "workflow",
    )
