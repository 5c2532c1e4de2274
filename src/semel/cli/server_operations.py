"""The operator's commands through a gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from semel.cli.operations import Data, Progress, Verdict
from semel.client import Answer, Gateway, Problem
from semel.errors import (
    ApprovalError,
    OpenError,
    RecordNotFound,
    RecordNotInDoubt,
    SemelError,
    StoreCorrupt,
    StoreUnavailable,
)
from semel.flow.problems import ILL_FORMED
from semel.ledger.records import NO_RESULT

# A busy gateway needs a while; a report over a year of events needs longer than a person likes to wait.
_ANSWER, _REPORT = "30s", "10m"

# A lost answer is asked for again. Whoever waits at a terminal is told soon that nobody is there.
_TRIES = 3

# What the same refusal is called at a store. What is not named here is refused under its own code.
_SAME_AT_A_STORE: dict[str, type[SemelError]] = {
    "record_not_found": RecordNotFound,
    "record_not_in_doubt": RecordNotInDoubt,
    "store_unavailable": StoreUnavailable,
    "store_corrupt": StoreCorrupt,
}

# Neither wrong usage nor a rule: the gateway, or what is behind it, cannot do its work.
_UNREACHABLE = frozenset(
    {"internal_error", "check_unavailable", "gateway_stopping",
     "admission_gate_unavailable", "tenant_storage_full"}
)  # fmt: skip


class ServerOperations:
    def __init__(self, url: str, api_key: str | None, tenant: str | None, person: str | None) -> None:
        self._connect = partial(Gateway, url, api_key, tenant=tenant, principal=person, tries=_TRIES)
        try:
            self._gateway = self._connect(within=_ANSWER, try_for=_ANSWER)
        except OpenError as wrong:
            raise click.UsageError(f"{wrong.message} Correct --server, or what it is told.") from None

    def __enter__(self) -> ServerOperations:
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.close()

    # --- what is asked for --------------------------------------------------------------------------

    def records(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        return self._listed(self._gateway.records.list, limit=limit, **filters)

    def record(self, id_: str) -> Data:
        return self._shown_as(self._gateway.records.get, id_)

    def resolve(self, id_: str, verdict: Verdict) -> tuple[Data, bool]:
        result = {} if verdict.result is NO_RESULT else {"result": verdict.result}
        return self._changed(
            self._gateway.records.resolve, id_, verdict.outcome, fence=verdict.fence, **result
        )

    def amend(self, id_: str, result: Any) -> tuple[Data, bool]:
        return self._changed(self._gateway.records.amend, id_, result)

    def tools(self, limit: int) -> list[Data]:
        return self._listed(self._gateway.tools.list, limit=limit)

    def tool(self, name: str, version: str | None) -> Data:
        return self._shown_as(self._gateway.tools.get, name, version)

    def approvals(self, status: str | None, limit: int) -> list[Data]:
        return self._listed(self._gateway.approvals.list, limit=limit, status=status)

    def approval(self, job_id: str) -> Data:
        with self._refused(about_people=True):
            return self._gateway.approvals.get(job_id).raw

    def decide(self, verb: str, job_id: str, details: dict[str, Any]) -> Data:
        approvals = self._gateway.approvals
        decide = approvals.approve if verb == "approve" else approvals.reject
        with self._refused(about_people=True, changing=True):
            return decide(job_id, **details).raw

    def runs(self, workflow_id: str | None, status: str | None, limit: int) -> list[Data]:
        return self._listed(self._gateway.runs.list, limit=limit, workflow_id=workflow_id, status=status)

    def run(self, run_id: str) -> Data:
        timeline = self._listed(self._gateway.runs.timeline, run_id)
        return {**self._shown_as(self._gateway.runs.get, run_id), "timeline": timeline}

    def cancel_run(self, run_id: str) -> tuple[Data, bool]:
        return self._changed(self._gateway.runs.cancel, run_id)

    def rerun(self, run_id: str, from_step: str, key: str) -> tuple[Data, bool]:
        return self._changed(self._gateway.runs.rerun, run_id, from_step, key)

    def jobs(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        return self._listed(self._gateway.jobs.list, limit=limit, **filters)

    def job(self, job_id: str) -> Data:
        return self._shown_as(self._gateway.jobs.get, job_id)

    def cancel_job(self, job_id: str) -> tuple[Data, bool]:
        return self._changed(self._gateway.jobs.cancel, job_id)

    def dead_letters(self, limit: int) -> list[Data]:
        return self._listed(self._gateway.dead_letters.list, limit=limit)

    def dead_letter(self, id_: str) -> Data:
        return self._shown_as(self._gateway.dead_letters.get, id_)

    def retry_dead_letter(self, id_: str, key: str) -> tuple[Data, bool]:
        return self._changed(self._gateway.dead_letters.retry, id_, key)

    def windows(self, tool: str | None) -> list[Data]:
        with self._connect(within=_REPORT, try_for=_REPORT) as gateway:
            return self._listed(gateway.windows.list, tool)

    def duplicates(self, within: str, progress: Progress) -> Data:
        del progress  # the gateway reads the log, and tells when it is done
        with self._connect(within=_REPORT, try_for=_REPORT) as gateway:
            return self._shown_as(gateway.audit.duplicates, within)

    def events(self) -> Iterator[Data]:
        with self._refused():
            for event in self._gateway.audit.list():
                yield event.raw

    # --- how it is told -----------------------------------------------------------------------------

    def _listed(self, ask: Callable[..., Iterable[Answer]], *args: Any, **filters: Any) -> list[Data]:
        with self._refused():
            return [item.raw for item in ask(*args, **filters)]

    def _shown_as(self, ask: Callable[..., Answer], *args: Any) -> Data:
        with self._refused():
            return ask(*args).raw

    def _changed(self, ask: Callable[..., Answer], *args: Any, **more: Any) -> tuple[Data, bool]:
        """What stands afterwards, and whether it stood before."""
        with self._refused(changing=True):
            answer = ask(*args, **more)
        return answer.raw, answer.replayed

    @contextmanager
    def _refused(self, *, about_people: bool = False, changing: bool = False) -> Iterator[None]:
        """The problem as the error that a store would raise, so that both exit alike."""
        try:
            yield
        except Problem as problem:
            raise self._refusal(problem, about_people, changing) from None

    def _refusal(self, problem: Problem, about_people: bool, changing: bool) -> Exception:
        code = problem.code
        if code in ILL_FORMED:
            return click.UsageError(problem.message)
        if kind := _SAME_AT_A_STORE.get(code):
            return kind(problem.message)
        if code == "unreachable":
            return _silent(problem, changing=changing)
        if code == "bad_gateway":
            return OpenError(problem.message, corrective_action=_ADDRESS)
        if code in _UNREACHABLE:
            again = "Ask again; what was done is done once."
            return _coded(OpenError(problem.message, corrective_action=again), code)
        kind = ApprovalError if about_people and code not in _FIXES else SemelError
        return _coded(kind(problem.message, corrective_action=_FIXES.get(code)), code)


def _coded(error: SemelError, code: str) -> SemelError:
    error.code = code
    return error


_ADDRESS = "Correct --server: it is the address that `semel serve` prints."

_FIXES: Mapping[str, str] = {
    "unauthenticated": "Give a key with --api-key or SEMEL_API_KEY; `semel keys create` makes one.",
    "forbidden": "Use a key with the role that this takes; `semel keys create --role` makes one.",
    "tenant_mismatch": "Leave --tenant out: the key says which tenant it opens.",
}


def _silent(problem: Problem, *, changing: bool) -> OpenError:
    key = problem.key
    again = "the same command again" if key is None else f"the same command with --key {key}"
    unknown = f" Whether it was done is unknown; {again} is safe." if changing else ""
    return OpenError(
        f"{problem.message}{unknown}", corrective_action="Start the gateway, or correct --server."
    )
