"""How a worker reaches its jobs: at a store, or at a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from semel.contract.handlers import Job
from semel.errors import SemelError
from semel.kernel.keys import Key


class Away(SemelError):
    """Nobody answers about jobs at the moment; asking again later is right."""

    code = "SERVER_UNAVAILABLE"
    retriable = True


class Lost(SemelError):
    """The job is no longer this worker's: its lease lapsed, or it was cancelled."""

    code = "OWNERSHIP_LOST"


class Leased(NamedTuple):
    """A job, the fence under which it is this worker's, and who wants it done."""

    job: Job
    fence: int
    submitted_by: str = ""


class JobReport(NamedTuple):
    """How an attempt ended."""

    status: str  # succeeded, failed
    result: Any = None
    error: Mapping[str, Any] | None = None


class JobSource(Protocol):
    """Every method raises Away if nobody answers, and what a rule refuses as a SemelError."""

    @property
    def tenant(self) -> str:
        """Whose jobs are behind it."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def lease(self, topics: Sequence[str], count: int, lease_s: float, wait_s: float) -> list[Leased]:
        """At most so many jobs; none if none is queued, after a wait of so long."""

    def hurry(self) -> None:
        """The worker stops: whoever waits for jobs need not wait on."""

    async def heartbeat(self, leased: Leased, lease_s: float) -> None:
        """The lease lasts for so long from now; Lost if it is somebody else's."""

    async def report(self, leased: Leased, report: JobReport) -> None:
        """The attempt has ended so, however often it is said; Lost if it is somebody else's."""


# Codes for: the job is gone, or somebody else's, so its result is not taken.
LOST = frozenset({"ownership_lost", "job_not_found", "run_not_found"})


def leased_of(data: Mapping[str, Any]) -> Leased:
    """From what a lease answers."""
    job = Job(
        job_id=data["job_id"],
        run_id=data["run_id"],
        step_id=data["step_id"],
        topic=data["topic"],
        input=data["input"],
        labels=data["labels"],
        attempt=data["attempt"],
        key=Key(data["key"]),
    )
    return Leased(job, data["fence"], data.get("submitted_by") or "")
