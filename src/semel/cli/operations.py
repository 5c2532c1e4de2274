"""What the operator's commands ask for, wherever the answer comes from: a store, or a gateway in front of it.

Everything goes in and out as JSON data, so that a command is written once and says the same in both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

Data = Mapping[str, Any]
Progress = Callable[[int], None]


class Verdict(NamedTuple):
    """What a person says of a record in doubt."""

    outcome: str  # happened, did_not_happen
    result: Any
    fence: int | None


class Operations(Protocol):
    """Refusals are SemelErrors; OpenError and StoreUnavailable if nobody answers."""

    def records(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        """Newest first, at most so many."""

    def record(self, id_: str) -> Data:
        """The record with its `explanation` and its `history`."""

    def resolve(self, id_: str, verdict: Verdict) -> tuple[Data, bool]:
        """The record as it stands, and whether the same was said before."""

    def amend(self, id_: str, result: Any) -> tuple[Data, bool]:
        """The record as it stands, and whether it said so before."""

    def tools(self, limit: int) -> list[Data]:
        """The catalogue, newest first."""

    def tool(self, name: str, version: str | None) -> Data:
        """The tool as its contract says, in its newest major version or this one."""

    def approvals(self, status: str | None, limit: int) -> list[Data]:
        """Newest first, at most so many."""

    def approval(self, job_id: str) -> Data:
        """The question about this job, as it stands."""

    def decide(self, verb: str, job_id: str, details: dict[str, Any]) -> Data:
        """The decision that stands: `approve` or `reject`, with a reason, a revision, a job_hash."""

    def runs(self, workflow_id: str | None, status: str | None, limit: int) -> list[Data]:
        """Newest first, at most so many."""

    def run(self, run_id: str) -> Data:
        """The run with its `timeline`."""

    def cancel_run(self, run_id: str) -> tuple[Data, bool]:
        """The run as it ended, and whether it was cancelled before."""

    def rerun(self, run_id: str, from_step: str, key: str) -> tuple[Data, bool]:
        """The new run, and whether this key had begun it before."""

    def jobs(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        """Newest first, at most so many."""

    def job(self, job_id: str) -> Data: ...

    def cancel_job(self, job_id: str) -> tuple[Data, bool]:
        """The job as it ended, and whether it was cancelled before."""

    def dead_letters(self, limit: int) -> list[Data]:
        """Newest first, at most so many."""

    def dead_letter(self, id_: str) -> Data: ...

    def retry_dead_letter(self, id_: str, key: str) -> tuple[Data, bool]:
        """The letter, and whether this key had retried it before."""

    def windows(self, tool: str | None) -> list[Data]:
        """What the ages of retries say, per tool."""

    def duplicates(self, within: str, progress: Progress) -> Data: ...

    def events(self) -> Iterator[Data]:
        """The tenant's audit log, oldest first."""


class Lists(Protocol):
    """What can be asked of all tenants at once; each item says whose it is."""

    def records(self, filters: dict[str, str | None], limit: int) -> list[Data]: ...

    def tools(self, limit: int) -> list[Data]: ...

    def approvals(self, status: str | None, limit: int) -> list[Data]: ...

    def runs(self, workflow_id: str | None, status: str | None, limit: int) -> list[Data]: ...

    def jobs(self, filters: dict[str, str | None], limit: int) -> list[Data]: ...

    def dead_letters(self, limit: int) -> list[Data]: ...

    def windows(self, tool: str | None) -> list[Data]: ...
