"""Every way in which a decision is refused: code, one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from semel.errors import SemelError


class RefusalKind(NamedTuple):
    title: str
    retriable: bool = False


KINDS: Mapping[str, RefusalKind] = {
    "self_approval_denied": RefusalKind("Nobody decides on what they submitted themselves."),
    "job_not_found": RefusalKind("There is no such job in this tenant."),
    "approval_already_resolved": RefusalKind("The other decision was taken before."),
    "approval_not_actionable": RefusalKind("There is nothing to decide on this job."),
    "approval_terminal_run": RefusalKind("The run has ended."),
    "approval_stale_request": RefusalKind("The job is not what this decision was made for."),
    "approval_expired": RefusalKind("The question expired before this decision."),
}


class Refusal(SemelError):
    """A refusal, as `code` says. Nothing was changed unless the message says so."""

    kinds: ClassVar[Mapping[str, RefusalKind]] = KINDS

    def __init__(
        self, code: str, message: str | None = None, *, retry_after_s: float | None = None, **details: Any
    ) -> None:
        kind = self.kinds[code]
        super().__init__(message or kind.title, retry_after_s=retry_after_s, corrective_action="", **details)
        self.code = code
        self.title = kind.title
        self.retriable = kind.retriable
