"""Runs: start, read, end, rerun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from semel.flow import indexes, run_progress, views
from semel.flow.admission import Admission, Start
from semel.flow.document_store import DocumentStore
from semel.flow.idempotency_keys import fingerprint_of
from semel.flow.model import LIVE_RUN, Run, Workflow, run_of
from semel.flow.problems import Refused
from semel.flow.run_progress import Change
from semel.flow.slot_queue import SlotPatience, SlotQueue
from semel.flow.values import (
    Caller,
    JsonAnswer,
    Page,
    is_heavy,
    is_same_json,
    next_after,
    position_of,
    written,
)
from semel.flow.workflows import AdmissionRules
from semel.kernel.answers import RunJson, RunStartedJson, TimelineEventJson
from semel.kernel.large import LargeJson
from semel.questions.job import StoredJob, job_of
from semel.stores.documents import Document, Scan

# All copies of its input that a run may come to keep: 2 MiB for some thirty steps.
COPIES_BYTES_MAX = 64 << 20

# Pages of live runs that are read for one of a list: those that run may stand among many that wait.
_PAGES_MAX = 10

Waited = Callable[[str, str, str, float], None]
_End = Callable[[Change, list[StoredJob]], None]


class Runs:
    """`waited(scope, tenant, outcome, seconds)` hears how long each start was at admission.

    Without the time in which its caller chose to wait for a slot.
    """

    def __init__(
        self,
        document_store: DocumentStore,
        admission: Admission,
        slots: SlotQueue,
        waited: Waited = lambda *_: None,
    ) -> None:
        self._document_store = document_store
        self._admission = admission
        self._slots = slots
        self._waited = waited

    async def start(
        self,
        caller: Caller,
        workflow_id: str,
        key: str | None,
        body: Any,
        patience: SlotPatience | None = None,
    ) -> JsonAnswer[RunStartedJson]:
        """The run has a slot and goes, once for the key; or a Refused, and nothing is kept."""

        def begin(change: Change, rules: AdmissionRules) -> None:
            assert rules.workflow is not None
            run_progress.begin(change, _run(change, caller, workflow_id, body, rules.workflow.steps))

        async def objection(rules: AdmissionRules) -> Refused | None:
            if rules.workflow is None:
                return Refused("workflow_not_found")
            wrong = await self._admission.workflows.input_misfit(caller.tenant, rules, body)
            return (
                _copied_too_often(rules.workflow, body) if wrong is None else Refused("input_invalid", wrong)
            )

        fingerprint = fingerprint_of("run", workflow_id, body)
        start = Start(caller, "run", workflow_id, key, fingerprint, begin, objection)
        return await self._admitted(start, patience)

    async def rerun(
        self,
        caller: Caller,
        run_id: str,
        from_step: str,
        key: str | None,
        patience: SlotPatience | None = None,
    ) -> JsonAnswer[RunStartedJson]:
        """A new run that keeps what succeeded elsewhere than from this step on."""
        fingerprint = fingerprint_of("rerun", run_id, {"from_step": from_step})
        try:
            run = run_of((await self._document(caller.tenant, run_id)).body)
        except Refused as gone:  # its window may close before that of the rerun's key
            return await self._admission.replay_or(gone, caller.tenant, "rerun", key, fingerprint)

        steps = run_progress.rerun_steps(run, from_step)
        kept = await self._jobs_of(caller.tenant, *(step.job_id for step in steps if step.job_id))

        def begin(change: Change, _: AdmissionRules) -> None:
            again = _run(change, caller, run.workflow_id, run.input, steps)
            own = run_progress.adopted(change, again.run_id, steps, kept)
            run_progress.begin(change, replace(again, steps=own, rerun_of=run_id))

        async def objection(_: AdmissionRules) -> Refused | None:
            if run.status in LIVE_RUN:
                return Refused("run_not_ended")
            if all(step.id != from_step for step in run.steps):
                return Refused("request_invalid", f"The run has no step {from_step!r}.")
            return None

        start = Start(caller, "rerun", run.workflow_id, key, fingerprint, begin, objection)
        return await self._admitted(start, patience)

    async def _admitted(self, start: Start, patience: SlotPatience | None) -> JsonAnswer[RunStartedJson]:
        clock = self._document_store.clock
        began, outcome = clock.monotonic(), "refused"
        try:
            answer = await self._slots.admit(start, patience)
            outcome = "replayed" if answer.replayed else "admitted"
            return answer
        finally:
            by_choice_s = patience.waited_s if patience is not None else 0.0
            seconds = clock.monotonic() - began - by_choice_s
            self._waited(start.scope, start.caller.tenant, outcome, max(0.0, seconds))

    # --- reading ---------------------------------------------------------------------------------

    async def get(self, tenant: str, run_id: str) -> RunJson:
        run = run_of((await self._document(tenant, run_id)).body)
        return views.run(run, await self._jobs(tenant, run))

    async def list(
        self,
        tenant: str,
        workflow_id: str | None,
        status: str | None,
        after: tuple[int, str] | None,
        limit: int,
    ) -> Page[RunJson]:
        """Newest first. A page may be shorter than `limit` and still not be the last."""
        names, items = indexes.listed_runs(workflow_id, status), list[RunJson]()
        for _ in range(_PAGES_MAX):
            documents = await self._document_store.page(tenant, names, limit, after)
            for document in documents:
                run = run_of(document.body)
                if status in (None, run.status):
                    items.append(views.listed_run(run))
                if len(items) == limit:
                    return Page(items, position_of(document, *names))
            after = next_after(documents, limit, *names)
            if after is None or is_heavy(documents):
                break
        return Page(items, after)

    async def timeline(
        self, tenant: str, run_id: str, after: tuple[int, str] | None, limit: int
    ) -> Page[TimelineEventJson]:
        run, index = run_of((await self._document(tenant, run_id)).body), indexes.timeline(run_id)
        scanned = await self._document_store.scan(Scan(tenant, index, limit, after=after))
        documents = list(scanned.documents)
        if after is None and (not documents or documents[0].id != indexes.event_id(run_id, 1)):
            documents = [_first_event(run), *documents][:limit]
        items = [views.event(orjson.loads(each.body)) for each in documents]
        return Page(items, next_after(documents, limit, index))

    async def _jobs(self, tenant: str, run: Run) -> dict[str, StoredJob]:
        """Jobs that tell more than the run's own document: live ones, and results of the last."""
        ids = set(run.live_jobs)
        if run.status == "succeeded":
            ids |= {step.job_id for step in views.last_steps(run) if step.job_id}
        return await self._jobs_of(tenant, *ids)

    async def _jobs_of(self, tenant: str, *ids: str) -> dict[str, StoredJob]:
        documents = await self._document_store.fetch(tenant, *ids) if ids else {}
        return {id_: job_of(document.body) for id_, document in documents.items()}

    # --- ending ----------------------------------------------------------------------------------

    async def complete(self, caller: Caller, run_id: str, status: str, result: Any) -> JsonAnswer[RunJson]:
        """The run, which an outside engine executes, has ended so."""

        def end(change: Change, jobs: list[StoredJob]) -> None:
            del jobs
            run_progress.end_run(change, status, result=result, by=caller.principal)

        def objection(run: Run) -> Refused | None:
            return Refused("run_has_steps") if run.steps else None

        def same(run: Run) -> bool:
            return run.status == status and is_same_json(run.result, result)

        return await self._end(caller, run_id, end, objection, same)

    async def cancel(self, caller: Caller, run_id: str) -> JsonAnswer[RunJson]:
        """Nothing of the run goes on, and its slot is free."""

        def end(change: Change, jobs: list[StoredJob]) -> None:
            run_progress.cancel_run(change, jobs, caller.principal)

        return await self._end(caller, run_id, end, lambda _: None, lambda run: run.status == "cancelled")

    async def _end(
        self,
        caller: Caller,
        run_id: str,
        end: _End,
        objection: Callable[[Run], Refused | None],
        same: Callable[[Run], bool],
    ) -> JsonAnswer[RunJson]:
        """The run ends so; if it has ended before, in the `same` way, this is a replay."""
        while True:
            document = await self._document(caller.tenant, run_id)
            run = run_of(document.body)
            if problem := objection(run):
                raise problem
            if run.status not in LIVE_RUN:
                if not same(run):
                    raise Refused("run_already_ended", f"The run has ended as {run.status} before.")
                return written(views.run(run, {}), replayed=True)
            jobs = await self._document_store.fetch(caller.tenant, *run.live_jobs) if run.live_jobs else {}
            change = Change(
                caller.tenant, await self._document_store.now_us(), self._document_store.new_id, run
            )
            end(change, [job_of(each.body) for each in jobs.values()])
            expect = {each.id: each.tag for each in (document, *jobs.values())}
            commit = change.commit(self._document_store.new_tag(), expect, self._admission.keys.kept_us)
            if (await self._document_store.write(commit)).done:
                assert change.run is not None
                return written(views.run(change.run, {}))

    async def _document(self, tenant: str, run_id: str) -> Document:
        document = (await self._document_store.fetch(tenant, run_id)).get(run_id)
        if document is None or not run_id.startswith("run_"):
            raise Refused("run_not_found")
        return document


def _run(change: Change, caller: Caller, workflow_id: str, body: Any, steps: Any) -> Run:
    return Run(
        run_id=change.new_id("run"),
        workflow_id=workflow_id,
        status="running",
        input=body,
        steps=steps,
        submitted_by=caller.principal,
        created_us=change.now_us,
        seq=1,  # so that its beginning changes nothing of it
    )


def _first_event(run: Run) -> Document:
    """That the run was started, which the run itself tells; early ones have a document of it as well."""
    event = run_progress.event_draft(run.run_id, 1, run.created_us, "run.started", by=run.submitted_by)
    return Document(event.id, event.body, "", event.entries)


def _copied_too_often(workflow: Workflow, body: Any) -> Refused | None:
    """Each step without an input of its own gets the run's: a large one times many steps is refused."""
    if not isinstance(body, LargeJson):
        return None
    copies = 1 + sum(not step.own_input for step in workflow.steps)
    if copies * len(body.json) <= COPIES_BYTES_MAX:
        return None
    return Refused(
        "body_too_large",
        f"The run and its steps would keep {copies} copies of it, more than {COPIES_BYTES_MAX} bytes. "
        "Nothing was started. Give the steps inputs of their own, or send less.",
    )
