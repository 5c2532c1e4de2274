"""Definitions of workflows, and the limits of tenants."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from semel.flow import indexes
from semel.flow.document_store import DocumentStore
from semel.flow.model import Workflow, WorkflowStep, workflow_of
from semel.flow.problems import Refused
from semel.flow.schemas import Checks, HereAndNow
from semel.flow.values import Page, next_after
from semel.kernel.answers import StepJson, TenantJson, WorkflowJson
from semel.kernel.durations import microseconds
from semel.questions.job import Gate
from semel.stores.document_bytes import to_bytes
from semel.stores.documents import Document, Draft, Entry, Scan

MAX_CONCURRENT_RUNS = 10

# More steps than a person can oversee; a run is one document, read and written whole.
STEPS_MAX = 200

# How long a question stays open by default: one that nobody looks at for a week is a problem of process.
APPROVAL_EXPIRES_IN = "7d"

# Definitions kept in the process. Each commit checks that they are still the present ones.
_CACHED_MAX = 1_000


class AdmissionRules(NamedTuple):
    """By what a run is admitted: its workflow and the tenant's limit, as they were read."""

    workflow: Workflow | None
    schema: bytes | None  # of its inputs, as JSON
    limit: int
    tags: Mapping[str, str | None]


class Workflows:
    def __init__(self, document_store: DocumentStore, checks: Checks | None = None) -> None:
        self._document_store = document_store
        self._checks = checks or HereAndNow()
        self._cached: OrderedDict[tuple[str, str], AdmissionRules] = OrderedDict()

    async def put_tenant(self, tenant: str, max_concurrent_runs: int) -> TenantJson:
        """The tenant's limit is this from now on."""
        body: TenantJson = {"tenant": tenant, "max_concurrent_runs": max_concurrent_runs}
        await self._overwrite(tenant, Draft(indexes.TENANT, to_bytes(body)))
        return body

    async def get_tenant(self, tenant: str) -> TenantJson:
        documents = await self._document_store.fetch(tenant, indexes.TENANT)
        return {"tenant": tenant, "max_concurrent_runs": _limit_in(documents.get(indexes.TENANT))}

    async def put(self, tenant: str, id_: str, definition: Mapping[str, Any]) -> WorkflowJson:
        """The workflow is this from now on; runs that have begun keep what they began with."""
        workflow = parsed(id_, definition)
        await self._check_schema(tenant, workflow)
        entry = Entry(indexes.WORKFLOWS, await self._document_store.now_us())
        draft = Draft(indexes.workflow_id(id_), to_bytes(workflow), (entry,))
        if problem := await self._document_store.storage.objection(tenant, (draft,)):
            raise problem
        await self._overwrite(tenant, draft)
        return view(workflow)

    async def get(self, tenant: str, id_: str) -> WorkflowJson:
        document = await self._document(tenant, id_)
        return view(workflow_of(document.body))

    async def list(self, tenant: str, after: tuple[int, str] | None, limit: int) -> Page[WorkflowJson]:
        scanned = await self._document_store.scan(
            Scan(tenant, indexes.WORKFLOWS, limit, newest=True, after=after)
        )
        documents = list(scanned.documents)
        items = [view(workflow_of(each.body)) for each in documents]
        return Page(items, next_after(documents, limit, indexes.WORKFLOWS))

    async def delete(self, tenant: str, id_: str) -> None:
        """No run of it can start any more; runs that have begun go on."""
        document = await self._document(tenant, id_)
        await self._document_store.commit(tenant, {}, drop=(document.id,))

    async def rules(self, tenant: str, id_: str) -> AdmissionRules:
        """Perhaps not the present one: whoever acts on it expects its tags."""
        rules = self._cached.get((tenant, id_))
        if rules is None:
            documents = await self._document_store.fetch(tenant, indexes.workflow_id(id_), indexes.TENANT)
            rules = _rules_in(documents, id_)
            if rules.workflow is None:
                return rules  # absence is never remembered
            self._cached[tenant, id_] = rules
            if len(self._cached) > _CACHED_MAX:
                self._cached.popitem(last=False)
        return rules

    async def input_misfit(self, tenant: str, rules: AdmissionRules, input: Any) -> str | None:
        """What is wrong with an input for this workflow, in words; None if nothing is."""
        if rules.schema is None:
            return None
        return await self._checks.input(tenant, rules.schema, to_bytes(input))

    async def _check_schema(self, tenant: str, workflow: Workflow) -> None:
        schema = _schema_of(workflow)
        if schema is None:
            return
        if wrong := await self._checks.schema(tenant, schema):
            raise Refused("request_invalid", f"{wrong}.")

    def forget(self, tenant: str, id_: str) -> None:
        self._cached.pop((tenant, id_), None)

    async def _document(self, tenant: str, id_: str) -> Document:
        name = indexes.workflow_id(id_)
        document = (await self._document_store.fetch(tenant, name)).get(name)
        if document is None:
            raise Refused("workflow_not_found")
        return document

    async def _overwrite(self, tenant: str, draft: Draft) -> None:
        """Whatever was there, this is there now."""
        await self._document_store.commit(tenant, {}, put=(draft,))


def _rules_in(documents: Mapping[str, Document], id_: str) -> AdmissionRules:
    name = indexes.workflow_id(id_)
    document, limits = documents.get(name), documents.get(indexes.TENANT)
    workflow = None if document is None else workflow_of(document.body)
    limit = _limit_in(limits)
    tags = {name: document and document.tag, indexes.TENANT: limits and limits.tag}
    return AdmissionRules(workflow, _schema_of(workflow), limit, tags)


def _limit_in(limits: Document | None) -> int:
    if limits is None:
        return MAX_CONCURRENT_RUNS
    limit: int = orjson.loads(limits.body)["max_concurrent_runs"]
    return limit


def _schema_of(workflow: Workflow | None) -> bytes | None:
    """The schema of its inputs; None if any input will do."""
    if workflow is None or workflow.input_schema is None:
        return None
    return to_bytes(workflow.input_schema)


def view(workflow: Workflow) -> WorkflowJson:
    shown: WorkflowJson = {
        "workflow_id": workflow.id,
        "steps": [_step_view(step) for step in workflow.steps],
    }
    if workflow.max_concurrent_runs is not None:
        shown["max_concurrent_runs"] = workflow.max_concurrent_runs
    if workflow.input_schema is not None:
        shown["input_schema"] = workflow.input_schema
    return shown


def _step_view(step: WorkflowStep) -> StepJson:
    shown: StepJson = {"id": step.id, "topic": step.topic, "depends_on": list(step.depends_on)}
    if step.own_input:
        shown["input"] = step.input
    if step.gate is not None:
        shown["approval"] = {"expires_in": f"{step.gate.expires_in_us // 1000}ms", "reason": step.gate.reason}
    return shown


# --- reading a definition -------------------------------------------------------------------------


def parsed(id_: str, definition: Mapping[str, Any]) -> Workflow:
    """The workflow, or a Refused that says what is wrong with its definition."""
    steps = tuple(_step(step) for step in definition.get("steps", ()))
    if len(steps) > STEPS_MAX:
        raise Refused("request_invalid", f"A workflow has at most {STEPS_MAX} steps, not {len(steps)}.")
    _check_order(steps)
    return Workflow(id_, steps, definition.get("max_concurrent_runs"), definition.get("input_schema"))


def _step(data: Mapping[str, Any]) -> WorkflowStep:
    return WorkflowStep(
        id=data["id"],
        topic=data["topic"],
        depends_on=tuple(data.get("depends_on") or ()),
        gate=gate(data.get("approval")),
        own_input="input" in data,
        input=data.get("input"),
    )


def gate(approval: Any) -> Gate | None:
    """What `approval` means on a step or a job: true, or {expires_in, reason}."""
    if not approval and not isinstance(approval, dict):
        return None
    terms = approval if isinstance(approval, dict) else {}
    try:
        expires_in_us = microseconds(terms.get("expires_in", APPROVAL_EXPIRES_IN), "expires_in")
    except ValueError as wrong:
        raise Refused("request_invalid", f"{wrong}.") from None
    return Gate(expires_in_us, terms.get("reason", ""))


def _check_order(steps: tuple[WorkflowStep, ...]) -> None:
    """Every name once, every dependence on a step that exists, and no cycle."""
    names = {step.id for step in steps}
    if len(names) < len(steps):
        raise Refused("request_invalid", "Two steps have the same id.")
    waits_for = {step.id: set(step.depends_on) for step in steps}
    if stuck := _stuck(waits_for):
        listed = ", ".join(step.id for step in steps if step.id in stuck)
        raise Refused(
            "request_invalid", f"These steps depend on each other or on none that exists: {listed}."
        )


def _stuck(waits_for: Mapping[str, Iterable[str]]) -> set[str]:
    """Steps that can never begin. Each dependence is looked at once: users write them."""
    left = {id_: set(before) for id_, before in waits_for.items()}
    followers: dict[str, list[str]] = {}
    for id_, before in left.items():
        for name in before:
            followers.setdefault(name, []).append(id_)
    free = [id_ for id_, before in left.items() if not before]
    while free:
        done = free.pop()
        del left[done]
        for id_ in followers.get(done, ()):
            left[id_].discard(done)
            if not left[id_]:
                free.append(id_)
    return set(left)
