"""Definitions of workflows, and the limits of tenants."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from semel.durations import microseconds
from semel.flow import shelves
from semel.flow.cabinet import Cabinet
from semel.flow.model import Gate, Step, Workflow, to_bytes, workflow_of
from semel.flow.problems import Problem
from semel.flow.values import Page, next_after
from semel.stores.documents import Document, Draft, Place, Scan

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_CONCURRENT_RUNS = 10

# More steps than a person can oversee; a run is one document, read and written whole.
STEPS_MAX = 200

# An approval that nobody looks at for a week is a process problem, not a pending question.
APPROVAL_EXPIRES_IN = "7d"

# Definitions kept in the process. Each commit checks that they are still the present ones.
_CACHED_MAX = 1_000

Check = Callable[[Any], str | None]


class Known(NamedTuple):
    """What admission goes by: a workflow and a tenant's limit, as they were read."""

    workflow: Workflow | None
    check: Check
    limit: int
    tags: Mapping[str, str | None]


class Workflows:
    def __init__(self, cabinet: Cabinet) -> None:
        self._cabinet = cabinet
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()

    async def put_tenant(self, tenant: str, max_concurrent_runs: int) -> dict[str, Any]:
        """The tenant's limit is this from now on."""
        body = {"tenant": tenant, "max_concurrent_runs": max_concurrent_runs}
        await self._overwrite(tenant, Draft(shelves.TENANT, to_bytes(body)))
        return body

    async def put(self, tenant: str, id_: str, definition: Mapping[str, Any]) -> dict[str, Any]:
        """The workflow is this from now on; runs that have begun keep what they began with."""
        workflow = parsed(id_, definition)
        place = Place(shelves.WORKFLOWS, await self._cabinet.now_us())
        await self._overwrite(tenant, Draft(shelves.workflow_id(id_), to_bytes(workflow), (place,)))
        return view(workflow)

    async def get(self, tenant: str, id_: str) -> dict[str, Any]:
        document = await self._document(tenant, id_)
        return view(workflow_of(document.body))

    async def list(self, tenant: str, after: tuple[int, str] | None, limit: int) -> Page:
        scanned = await self._cabinet.scan(Scan(tenant, shelves.WORKFLOWS, limit, newest=True, after=after))
        documents = list(scanned.documents)
        items = [view(workflow_of(each.body)) for each in documents]
        return Page(items, next_after(documents, shelves.WORKFLOWS, limit))

    async def delete(self, tenant: str, id_: str) -> None:
        """No run of it can start any more; runs that have begun go on."""
        document = await self._document(tenant, id_)
        await self._cabinet.commit(tenant, {}, drop=(document.id,))

    async def known(self, tenant: str, id_: str) -> Known:
        """Perhaps not the present one: whoever acts on it expects its tags."""
        known = self._known.get((tenant, id_))
        if known is None:
            found = await self._cabinet.fetch(tenant, shelves.workflow_id(id_), shelves.TENANT)
            known = _known(found, id_)
            if known.workflow is None:
                return known  # absence is never remembered
            self._known[tenant, id_] = known
            if len(self._known) > _CACHED_MAX:
                self._known.popitem(last=False)
        return known

    def forget(self, tenant: str, id_: str) -> None:
        self._known.pop((tenant, id_), None)

    async def _document(self, tenant: str, id_: str) -> Document:
        name = shelves.workflow_id(id_)
        document = (await self._cabinet.fetch(tenant, name)).get(name)
        if document is None:
            raise Problem("workflow_not_found")
        return document

    async def _overwrite(self, tenant: str, draft: Draft) -> None:
        """Whatever was there, this is there now."""
        await self._cabinet.commit(tenant, {}, put=(draft,))


def _known(found: Mapping[str, Document], id_: str) -> Known:
    name = shelves.workflow_id(id_)
    document, limits = found.get(name), found.get(shelves.TENANT)
    workflow = None if document is None else workflow_of(document.body)
    limit = MAX_CONCURRENT_RUNS if limits is None else orjson.loads(limits.body)["max_concurrent_runs"]
    tags = {name: document and document.tag, shelves.TENANT: limits and limits.tag}
    return Known(workflow, input_check(workflow.input_schema if workflow else None), limit, tags)


def view(workflow: Workflow) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "workflow_id": workflow.id,
        "steps": [_step_view(step) for step in workflow.steps],
    }
    if workflow.max_concurrent_runs is not None:
        shown["max_concurrent_runs"] = workflow.max_concurrent_runs
    if workflow.input_schema is not None:
        shown["input_schema"] = workflow.input_schema
    return shown


def _step_view(step: Step) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": step.id, "topic": step.topic, "depends_on": list(step.depends_on)}
    if step.own_input:
        shown["input"] = step.input
    if step.gate is not None:
        shown["approval"] = {"expires_in": f"{step.gate.expires_in_us // 1000}ms", "reason": step.gate.reason}
    return shown


# --- reading a definition -------------------------------------------------------------------------


def parsed(id_: str, definition: Mapping[str, Any]) -> Workflow:
    """The workflow, or a Problem that says what is wrong with its definition."""
    steps = tuple(_step(step) for step in definition.get("steps", ()))
    if len(steps) > STEPS_MAX:
        raise Problem("request_invalid", f"A workflow has at most {STEPS_MAX} steps, not {len(steps)}.")
    _check_order(steps)
    schema = definition.get("input_schema")
    _check_schema(schema)
    return Workflow(id_, steps, definition.get("max_concurrent_runs"), schema)


def _step(data: Mapping[str, Any]) -> Step:
    return Step(
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
        raise Problem("request_invalid", f"{wrong}.") from None
    return Gate(expires_in_us, terms.get("reason", ""))


def _check_order(steps: tuple[Step, ...]) -> None:
    """Every name once, every dependence on a step that exists, and no way round in a circle."""
    names = [step.id for step in steps]
    if len(set(names)) < len(names):
        raise Problem("request_invalid", "Two steps have the same id.")
    done: set[str] = set()
    left = list(steps)
    while left:
        possible = [step for step in left if done.issuperset(step.depends_on)]
        if not possible:
            stuck = ", ".join(step.id for step in left)
            raise Problem(
                "request_invalid", f"These steps depend on each other or on none that exists: {stuck}."
            )
        done.update(step.id for step in possible)
        left = [step for step in left if step.id not in done]


def _check_schema(schema: Any) -> None:
    if schema is None:
        return
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as wrong:
        raise Problem("request_invalid", f"input_schema is no JSON Schema: {wrong.message[:500]}") from None


def input_check(schema: Any) -> Check:
    """What is wrong with an input, in words; None if nothing is."""
    if schema is None:
        return lambda _: None
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An empty registry: a reference to another address is not fetched.
    validator = Draft202012Validator(schema, registry=Registry())

    def check(value: Any) -> str | None:
        try:
            wrong = next(validator.iter_errors(value), None)
        except Unresolvable as missing:
            return f"The schema refers to {missing.ref}, which is not part of it."
        except RecursionError:
            return "The schema refers to itself without an end."
        return wrong and _misfit(wrong)

    return check


def _misfit(wrong: ValidationError) -> str:
    """Where, and which rule of the schema; not the value, which may belong in no log and no answer."""
    if wrong.schema is False:
        return f"{wrong.json_path}: The schema allows no value here."
    rule = orjson.dumps({str(wrong.validator): wrong.validator_value}, default=str).decode()
    return f"{wrong.json_path}: The value does not fit {rule[:500]}."
