"""Every exception of Semel. The tree:

    SemelError
    ├── ContractError            a tool was declared in a way that cannot work (definition time)
    ├── StepError                a step or conversation was used in a way that cannot work
    ├── OpenError                a store could not be opened as asked
    ├── ApprovalError            a decision on an approval that cannot be taken
    ├── RecordNotFound           no such record
    ├── RecordNotInDoubt         only a record in doubt can be resolved
    ├── ResultInvalid            what a person gives as a result is none of that tool
    └── CallError                what a contract answers to one call
        ├── NoStep  InvalidArguments  ScopeDenied  VersionMismatch  KeyReused  TooLarge  refused, nothing ran
        ├── InFlight  StoreUnavailable  StoreCorrupt                                     refused, nothing ran
        ├── ApprovalRequired  ApprovalRejected                                           refused, nothing ran
        ├── EffectFailed  PartialSuccess  ResultUnavailable                              settled, replays
        └── UpstreamUnavailable  OutcomeUnknown  OwnershipLost                           in doubt

The docstring of a class is its message: one sentence, written once.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar


class SemelError(Exception):
    """Semel refused."""

    code: str = "SEMEL_ERROR"
    retriable: bool = False
    fix: ClassVar[str] = ""
    fix_takes: ClassVar[str] = ""
    """The detail that the command of `fix` takes; told with it where it is known."""
    comes_back_s: ClassVar[float | None] = None
    """When to call again, where nobody knows better."""

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_s: float | None = None,
        corrective_action: str | None = None,
        **details: Any,
    ) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0]
        self.retry_after_s = self.comes_back_s if retry_after_s is None else retry_after_s
        self.corrective_action = self._fix_with(details) if corrective_action is None else corrective_action
        self.details: dict[str, Any] = details
        self.replayed = False
        super().__init__(self.message)

    def _fix_with(self, details: Mapping[str, Any]) -> str:
        taken = details.get(self.fix_takes)
        return self.fix.replace("`.", f" {taken}`.") if taken else self.fix

    def __str__(self) -> str:
        if not self.corrective_action:
            return self.message
        # A tool's own text, unlike ours, seldom ends as a sentence does.
        stop = "" if self.message.endswith((".", "!", "?", ":", "…")) else "."
        return f"{self.message}{stop} {self.corrective_action}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _rebuild,
            (type(self), self.message, self.corrective_action, self.retry_after_s, self.details),
            {
                "code": self.code,
                "retriable": self.retriable,
                "replayed": self.replayed,
            },
        )


def _rebuild(
    kind: type[SemelError],
    message: str,
    corrective_action: str,
    retry_after_s: float | None,
    details: Mapping[str, Any],
) -> SemelError:
    return kind(message, corrective_action=corrective_action, retry_after_s=retry_after_s, **details)


# --- outside a call -------------------------------------------------------------------------------


class ContractError(SemelError):
    """The tool contract cannot be kept as it is declared."""

    code = "CONTRACT_ERROR"


class StepError(SemelError):
    """The step cannot be used this way."""

    code = "STEP_ERROR"


class OpenError(SemelError):
    """The store could not be opened; nothing was created."""

    code = "OPEN_ERROR"


class ApprovalError(SemelError):
    """The decision was not taken."""

    code = "APPROVAL_ERROR"


class RecordNotFound(SemelError):
    """There is no such record in this tenant."""

    code = "RECORD_NOT_FOUND"


class RecordNotInDoubt(SemelError):
    """Only a record in doubt can be resolved; nothing was changed."""

    code = "RECORD_NOT_IN_DOUBT"


class ResultInvalid(SemelError):
    """The result does not fit what the tool returns; nothing was changed."""

    code = "RESULT_INVALID"
    fix = "Correct the result; `semel tools show` says what the tool returns."


# --- what a contract answers to one call ----------------------------------------------------------


class CallError(SemelError):
    """The call was not performed."""


class NoStep(CallError):
    """No key can be derived outside a step, so the tool did not run."""

    code = "NO_STEP"
    fix = (
        "Call it inside `with semel.step(conversation=…, step=…):`, or `ledger.step(…)` of a ledger that you "
        "opened, or give an idempotency_key. A step follows into tasks and asyncio.to_thread only: on other "
        "threads, executors, processes and machines re-enter it with `ledger.resume(step.carry())`."
    )


class InvalidArguments(CallError):
    """The arguments do not fit the tool's signature; the tool did not run."""

    code = "INVALID_ARGUMENTS"
    fix = "Correct the arguments and call again."


class ScopeDenied(CallError):
    """The step does not grant what the tool needs; the tool did not run."""

    code = "SCOPE_DENIED"
    fix = "Open the step with the missing scopes, or do not call this tool."


class VersionMismatch(CallError):
    """The caller, or the record of this key, is of another major version; the tool did not run."""

    code = "VERSION_MISMATCH"
    fix = "Use the tool's present major version, in a new step."


class InFlight(CallError):
    """Someone else is performing this very call; the tool did not run a second time."""

    code = "RETRY_IN_FLIGHT"
    retriable = True
    fix = "Call again later with the same step: the first call's result will be there."


class KeyReused(CallError):
    """This key was used for another tool or with other arguments; the tool did not run."""

    code = "KEY_REUSED"
    fix = "Use one key for one action: a new action takes a new key."


class StoreUnavailable(CallError):
    """The store did not acknowledge the claim, so the tool did not run."""

    code = "STORE_UNAVAILABLE"
    retriable = True
    comes_back_s = 1.0
    fix = "Call again when the store answers; `semel doctor` says what it sees."


class StoreCorrupt(CallError):
    """The record of this key is damaged, and a damaged record is not an absent one: the tool did not run."""

    code = "STORE_CORRUPT"
    fix = "Restore the store from a backup; do not delete the record to get past this."


class TooLarge(CallError):
    """The arguments are larger than a record may be; the tool did not run."""

    code = "TOO_LARGE"
    fix = "Pass a reference (an id, a path) instead of the content."


class ApprovalRequired(CallError):
    """A person has to approve this call first; the tool did not run."""

    code = "APPROVAL_REQUIRED"
    retriable = True
    fix = "Call again with the same step after `semel approvals approve`."
    fix_takes = "job_id"


class ApprovalRejected(CallError):
    """A person rejected this call; the tool did not run and will not."""

    code = "APPROVAL_REJECTED"
    fix = "Do something else: this answer stays."


class EffectFailed(CallError):
    """The tool ran and failed; every repeat gets this same answer."""

    code = "EFFECT_FAILED"
    fix = "Decide anew: trying it again takes another step."


class PartialSuccess(CallError):
    """The tool did a part of its work; a blind retry would do that part twice."""

    code = "PARTIAL_SUCCESS"
    fix = "Finish what remains in a new step."


class ResultUnavailable(CallError):
    """It happened, but its value was not kept."""

    code = "RESULT_UNAVAILABLE"
    fix = "Ask the downstream for the value; do not call the tool again for it."


class UpstreamUnavailable(CallError):
    """The downstream did not answer; whether it acted is unknown, and the key stays reserved."""

    code = "UPSTREAM_TIMEOUT"
    retriable = True
    fix = "Call again with the same step: it goes on with the same key."


class OutcomeUnknown(CallError):
    """The tool may have taken effect, and nobody can tell by itself; it was not run again."""

    code = "OUTCOME_UNKNOWN"
    fix = "Ask the downstream, then `semel records resolve`."
    fix_takes = "record_id"


class OwnershipLost(CallError):
    """This call was silent past its lease and someone else went on; its own outcome was not recorded."""

    code = "OWNERSHIP_LOST"
    fix = "Call again with the same step to read what was recorded."


def _leaves(kind: type[CallError]) -> list[type[CallError]]:
    return [leaf for child in kind.__subclasses__() for leaf in (child, *_leaves(child))]


BY_CODE: Mapping[str, type[CallError]] = {kind.code: kind for kind in _leaves(CallError)}
