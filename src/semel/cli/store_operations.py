"""The operator's commands at a store itself: of one tenant, or of all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click
import orjson

from semel.audit import duplicate_report, export
from semel.cli.operations import Data, Progress, Verdict
from semel.errors import ResultInvalid
from semel.flow import indexes
from semel.flow.assembly import Flow, Policy
from semel.flow.dead_letters import DEAD
from semel.flow.job_admin import JobFilter
from semel.flow.problems import ILL_FORMED, Refused
from semel.flow.run_progress import RunsFollow
from semel.flow.values import Caller, JsonAnswer, Page
from semel.gateway import settings
from semel.gateway.every_record import Correction, DoubtAnswer, EveryRecord, RecordFilter
from semel.kernel.answers import ApprovalJson
from semel.kernel.record import UNSETTLED, State
from semel.ledger import catalogue
from semel.ledger.catalogue import INDEX as TOOLS
from semel.questions import job_index
from semel.questions.approvals import ApprovalRequest, Approvals
from semel.questions.deciding import Decided
from semel.stores.base import CountUnsettled, Store
from semel.stores.documents import Tenants
from semel.stores.index_names import KEYS
from semel.stores.urls import need
from semel.windows import advice
from semel.windows.age_counters import INDEX as AGES

T = TypeVar("T")

# Read at once from a list.
_PAGE = 200

# Every tenant that has used the store has an entry in one of these, or a record that is not settled.
_INDEXES = (
    TOOLS, AGES, DEAD, indexes.RUNS, indexes.SLOTS, indexes.WORKFLOWS, job_index.JOBS, job_index.LIVE,
    job_index.APPROVALS, *KEYS,
)  # fmt: skip

# Above every score: nothing in the index is left out.
_ANY_SCORE = (1 << 53) - 1


class StoreOperations:
    """`person` is asked for only where somebody has to answer for what is done."""

    def __init__(self, store: Store, tenant: str, person: Callable[[], str]) -> None:
        self._store = store
        self._tenant = tenant
        self._person = person
        # What changes here is told to the bus by the gateways: a message waits for them in the outbox.
        self._flow = Flow(store, Policy(kept_us=_kept_us()), send=_nobody, wait=_nobody)
        self._records = EveryRecord(store, tenant, self._flow.keys, self._flow.approvals)

    # --- records ---------------------------------------------------------------------------------

    def records(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        chosen = RecordFilter(**filters)
        return _whole(lambda after, size: self._records.list(chosen, after, size), limit)

    def record(self, id_: str) -> Data:
        return asyncio.run(self._records.get(id_))

    def resolve(self, id_: str, verdict: Verdict) -> tuple[Data, bool]:
        answer = DoubtAnswer(verdict.outcome, self._person(), verdict.result, verdict.fence)
        return _run(self._records.resolve(id_, answer))

    def amend(self, id_: str, result: Any) -> tuple[Data, bool]:
        return _run(self._records.amend(id_, Correction(self._person(), result)))

    # --- tools -----------------------------------------------------------------------------------

    def tools(self, limit: int) -> list[Data]:
        return _whole(lambda after, size: self._flow.catalogue.list(self._tenant, after, size), limit)

    def tool(self, name: str, version: str | None) -> Data:
        tool = catalogue.shown_as(asyncio.run(self._flow.catalogue.get(self._tenant, name)), version)
        if tool is None:
            raise Refused("tool_not_found")
        return tool

    # --- questions to people -----------------------------------------------------------------------

    def approvals(self, status: str | None, limit: int) -> list[Data]:
        return [_request(each) for each in self._approvals().list(status, limit)]

    def approval(self, job_id: str) -> Data:
        return _request(self._approvals().get(job_id))

    def _approvals(self) -> Approvals:
        return Approvals(self._store, self._tenant, RunsFollow())

    def decide(self, verb: str, job_id: str, details: dict[str, Any]) -> Data:
        decide = getattr(self._approvals(), verb)
        answer: Decided = decide(job_id, by=self._person(), **details)
        return answer.as_data()

    # --- runs, jobs, dead letters ------------------------------------------------------------------

    def runs(self, workflow_id: str | None, status: str | None, limit: int) -> list[Data]:
        runs = self._flow.runs
        return _whole(lambda after, size: runs.list(self._tenant, workflow_id, status, after, size), limit)

    def run(self, run_id: str) -> Data:
        runs = self._flow.runs
        run = _run(runs.get(self._tenant, run_id))
        events = _whole(lambda after, size: runs.timeline(self._tenant, run_id, after, size))
        return {**run, "timeline": events}

    def cancel_run(self, run_id: str) -> tuple[Data, bool]:
        return _answered(self._flow.runs.cancel(self._caller(), run_id))

    def rerun(self, run_id: str, from_step: str, key: str) -> tuple[Data, bool]:
        need("gateway", "jsonschema")
        return _answered(self._flow.runs.rerun(self._caller(), run_id, from_step, key))

    def jobs(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        job_filter = JobFilter(**filters)
        return _whole(
            lambda after, size: self._flow.job_admin.list(self._tenant, job_filter, after, size), limit
        )

    def job(self, job_id: str) -> Data:
        return _run(self._flow.jobs.get(self._tenant, job_id))

    def cancel_job(self, job_id: str) -> tuple[Data, bool]:
        return _answered(self._flow.job_admin.cancel(self._caller(), job_id))

    def dead_letters(self, limit: int) -> list[Data]:
        return _whole(lambda after, size: self._flow.dead_letters.list(self._tenant, after, size), limit)

    def dead_letter(self, id_: str) -> Data:
        return _run(self._flow.dead_letters.get(self._tenant, id_))

    def retry_dead_letter(self, id_: str, key: str) -> tuple[Data, bool]:
        return _answered(self._flow.dead_letters.retry(self._caller(), id_, key))

    # --- reports -----------------------------------------------------------------------------------

    def windows(self, tool: str | None) -> list[Data]:
        advices = advice.advise(self._store, self._tenant, tool)
        return [advice.as_data(each) for each in advices]

    def duplicates(self, within: str, progress: Progress) -> Data:
        report = duplicate_report.find_duplicates(self._store, self._tenant, within=within, progress=progress)
        return export.duplicates(report)

    def events(self) -> Iterator[Data]:
        return export.exported_lines(self._store, self._tenant)

    def _caller(self) -> Caller:
        return Caller(self._tenant, self._person())


class EveryTenantLists:
    """The lists of all tenants, as one: each item says whose it is, the newest come first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def records(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        # The store counts what is in doubt by tenant, so the other tenants need not be read.
        doubtful = filters.get("state") == "in_doubt"
        tenants = _unsettled(self._store, frozenset((State.IN_DOUBT,))) if doubtful else self._tenants()
        return self._newest(
            lambda operations: operations.records(filters, limit), "created_at", limit, tenants
        )

    def tools(self, limit: int) -> list[Data]:
        return self._newest(lambda operations: operations.tools(limit), "first_seen_at", limit)

    def approvals(self, status: str | None, limit: int) -> list[Data]:
        return self._newest(lambda operations: operations.approvals(status, limit), "created_at", limit)

    def runs(self, workflow_id: str | None, status: str | None, limit: int) -> list[Data]:
        return self._newest(
            lambda operations: operations.runs(workflow_id, status, limit), "created_at", limit
        )

    def jobs(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        return self._newest(lambda operations: operations.jobs(filters, limit), "created_at", limit)

    def dead_letters(self, limit: int) -> list[Data]:
        return self._newest(lambda operations: operations.dead_letters(limit), "dead_at", limit)

    def windows(self, tool: str | None) -> list[Data]:
        """By tenant."""
        return self._each(lambda operations: operations.windows(tool), self._tenants())

    def duplicates(self, within: str, progress: Progress) -> list[Data]:
        """One report for each tenant."""
        return self._each(lambda operations: [operations.duplicates(within, progress)], self._tenants())

    def _newest(
        self,
        read: Callable[[StoreOperations], list[Data]],
        by: str,
        limit: int,
        tenants: Sequence[str] | None = None,
    ) -> list[Data]:
        items = self._each(read, self._tenants() if tenants is None else tenants)
        return sorted(items, key=lambda item: str(item[by]), reverse=True)[:limit]

    def _each(self, read: Callable[[StoreOperations], list[Data]], tenants: Sequence[str]) -> list[Data]:
        operations = ((tenant, StoreOperations(self._store, tenant, _no_person)) for tenant in tenants)
        return [{"tenant": tenant, **item} for tenant, operations in operations for item in read(operations)]

    def _tenants(self) -> Sequence[str]:
        used = (self._store.ask(Tenants(index, _ANY_SCORE)) for index in _INDEXES)
        return sorted({*_unsettled(self._store, UNSETTLED), *(tenant for each in used for tenant in each)})


def _unsettled(store: Store, states: frozenset[State]) -> Sequence[str]:
    return sorted({whose.tenant for whose in store.ask(CountUnsettled(states))})


def _kept_us() -> int | None:
    """For how long what has ended is kept: as the gateways on this store are told."""
    name = "SEMEL_RUN_KEY_WINDOW"
    try:
        environ = {name: os.environ[name]} if name in os.environ else {}
        return settings.read({}, environ).run_key_window_us
    except ValueError as wrong:
        raise click.UsageError(f"{wrong}. Nothing was done.") from None


async def _nobody(*_: Any) -> None:
    """Nothing is sent from here, and nobody waits."""


def _no_person() -> NoReturn:
    raise AssertionError("a list changes nothing")


# --- asking, and what the answer is --------------------------------------------------------------


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The answer. What a gateway would call a bad request is wrong usage here too."""
    with _refused():
        return asyncio.run(coroutine)


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except ResultInvalid as misfit:
        raise click.UsageError(misfit.message) from None
    except Refused as problem:
        if problem.code not in ILL_FORMED:
            raise
        raise click.UsageError(problem.message) from None


def _answered(coroutine: Coroutine[Any, Any, JsonAnswer[Any]]) -> tuple[Data, bool]:
    answer = _run(coroutine)
    data: Data = orjson.loads(answer.body)
    return data, answer.replayed


def _whole(
    read: Callable[[tuple[int, str] | None, int], Coroutine[Any, Any, Page[Any]]], limit: int | None = None
) -> list[Data]:
    """A list from its beginning, to its end or until there are so many."""

    async def pages() -> list[Data]:
        items: list[Data] = []
        after: tuple[int, str] | None = None
        while limit is None or len(items) < limit:
            page = await read(after, _PAGE if limit is None else min(_PAGE, limit - len(items)))
            items += page.items
            after = page.next_after
            if after is None:
                break
        return items

    return _run(pages())


def _request(request: ApprovalRequest) -> Data:
    return {name: getattr(request, name) for name in ApprovalJson.__annotations__}
