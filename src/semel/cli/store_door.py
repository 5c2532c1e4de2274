"""The operator's commands at a store itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from semel import audit_export, audit_report, catalogue, window_advice
from semel.approvals import ApprovalRequest, Decision
from semel.cli.doors import Data, Progress, Verdict
from semel.flow.approvals import JobApprovals
from semel.flow.cabinet import Cabinet
from semel.flow.keys import Keys
from semel.flow.problems import Problem
from semel.flow.tools import ToolCatalogue
from semel.flow.values import Page
from semel.gateway.every_record import Correction, EveryRecord, Said, Wanted
from semel.ledger import Ledger

# Read at once from a list.
_PAGE = 200

# In the order in which the gateway says it.
_REQUEST = ("job_id", "run_id", "topic", "input", "labels", "status", "revision", "job_hash", "submitted_by",
            "created_at", "expires_at", "decided_by", "decided_at", "reason")  # fmt: skip


class StoreDoor:
    """`person` is asked for only where somebody has to answer for what is done."""

    def __init__(self, ledger: Ledger, person: Callable[[], str]) -> None:
        self._ledger = ledger
        self._asked_for = person
        # Only reads: how long keys and decisions are kept is the gateways' affair.
        cabinet = Cabinet(ledger.store)
        keys, questions = Keys(cabinet, kept_us=None), JobApprovals(cabinet, kept_us=None)
        self._tools = ToolCatalogue(cabinet)
        self._records = EveryRecord(ledger.store, ledger.tenant, keys, questions)

    def _person(self) -> str:
        """Who answers for what is done now: so it is about to be written, and somebody has to seal it."""
        self._ledger.keeper.notice()
        return self._asked_for()

    def records(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        return asyncio.run(self._records.list(Wanted(**filters), None, limit)).items

    def record(self, id_: str) -> Data:
        return asyncio.run(self._records.get(id_))

    def resolve(self, id_: str, verdict: Verdict) -> tuple[Data, bool]:
        said = Said(verdict.outcome, self._person(), verdict.result, verdict.fence)
        return asyncio.run(self._records.resolve(id_, said))

    def amend(self, id_: str, result: Any) -> tuple[Data, bool]:
        return asyncio.run(self._records.amend(id_, Correction(self._person(), result)))

    def tools(self, limit: int) -> list[Data]:
        return _whole(lambda after, size: self._tools.list(self._ledger.tenant, after, size), limit)

    def tool(self, name: str, version: str | None) -> Data:
        entry = asyncio.run(self._tools.get(self._ledger.tenant, name))
        found = catalogue.shown_as(entry, version)
        if found is None:
            raise Problem("tool_not_found")
        return found

    def approvals(self, status: str | None, limit: int) -> list[Data]:
        return [_request(each) for each in self._ledger.approvals.list(status, limit)]

    def approval(self, job_id: str) -> Data:
        return _request(self._ledger.approvals.get(job_id))

    def decide(self, verb: str, job_id: str, told: dict[str, Any]) -> Data:
        return _decision(getattr(self._ledger.approvals, verb)(job_id, by=self._person(), **told))

    def windows(self, tool: str | None) -> list[Data]:
        found = window_advice.advise(self._ledger.store, self._ledger.tenant, tool)
        return [window_advice.as_data(each) for each in found]

    def duplicates(self, within: str, progress: Progress) -> Data:
        ledger = self._ledger
        found = audit_report.duplicates(ledger.store, ledger.tenant, within=within, progress=progress)
        return audit_export.duplicates(found)

    def events(self) -> Iterator[Data]:
        return audit_export.lines(self._ledger.store, self._ledger.tenant)


def _whole(
    read: Callable[[tuple[int, str] | None, int], Coroutine[Any, Any, Page]], limit: int
) -> list[Data]:
    """A list from its beginning, to its end or until there are so many."""

    async def pages() -> list[Data]:
        items: list[Data] = []
        after: tuple[int, str] | None = None
        while len(items) < limit:
            page = await read(after, min(_PAGE, limit - len(items)))
            items += page.items
            after = page.next_after
            if after is None:
                break
        return items

    return asyncio.run(pages())


def _request(request: ApprovalRequest) -> Data:
    return {name: getattr(request, name) for name in _REQUEST}


def _decision(decision: Decision) -> Data:
    taken = decision.status.removeprefix("already_")
    return {
        "job_id": decision.job_id,
        "status": decision.status,
        f"{taken}_by": decision.by,
        f"{taken}_at": decision.at,
        "revision": decision.revision,
    }
