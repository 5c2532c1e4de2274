"""What goes wrong, as it is raised."""

from __future__ import annotations

from typing import Any

from semel.client.models import RunAnswer
from semel.errors import SemelError


class Problem(SemelError):
    """The gateway refused, or nobody who could have answered did.

    `code` is the gateway's own, or `unreachable` or `bad_gateway`. `details` has what this problem says
    besides: `current`, `limit` and `scope` of a full tenant, for one.
    """

    status: int | None = None
    """Of HTTP; None if there was no answer."""

    key: str | None = None
    """The key of the request, if it had one: whoever asks again uses it again, and no other."""

    tenant: str | None = None
    """Whose credential it was, if the gateway said so."""

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, state = super().__reduce__()
        return make, arguments, {**state, "status": self.status, "key": self.key, "tenant": self.tenant}


class StillRunning(Problem):
    """The run had not ended when the time was over; it goes on."""

    code = "still_running"
    retriable = True

    run: RunAnswer
    """The run as it was last seen."""

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, state = super().__reduce__()
        return make, arguments, {**state, "run": self.run}


def problem(
    code: str,
    message: str,
    *,
    retriable: bool,
    status: int | None = None,
    retry_after_s: float | None = None,
    **details: Any,
) -> Problem:
    made = Problem(message, retry_after_s=retry_after_s, corrective_action="")
    made.details.update(details)  # under whatever names the gateway chose
    made.code, made.retriable, made.status = code, retriable, status
    return made
