"""What goes into a tool call and what comes out of it, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from semel import errors
from semel.contract.for_model import for_model
from semel.kernel.durations import Duration, microseconds
from semel.kernel.keys import Key

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class ToolCall:
    """One call as a framework hands it over. An explicit key replaces the derived one and needs no step."""

    arguments: Mapping[str, Any]
    idempotency_key: str | None = None
    version: str | None = None
    scopes: Iterable[str] | None = None


@dataclass(frozen=True)
class ToolError:
    """Why a call has no value: for a program (`code`, `retriable`) and for a person or model (the rest)."""

    code: str
    message: str = ""
    retriable: bool = False
    retry_after_s: float | None = None
    corrective_action: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A tool that has run says this, so what is no text (an exception, None) is made one: a refusal here
        # would leave open how the tool ended.
        vars(self).update(
            code=_as_text(self.code) or errors.EffectFailed.code,
            message=_as_text(self.message),
            retriable=self.retriable is True,
            corrective_action=_as_text(self.corrective_action),
            details=_as_details(self.details),
        )

    @classmethod
    def of(cls, error: errors.SemelError) -> ToolError:
        return cls(
            error.code,
            error.message,
            error.retriable,
            error.retry_after_s,
            error.corrective_action,
            error.details,
        )

    @property
    def for_model(self) -> str:
        """The same in words for a model, beginning with the code: what happened, and what to do about it."""
        return for_model(self)

    def exception(self) -> errors.CallError:
        """The exception that says the same."""
        kind = errors.BY_CODE.get(self.code, errors.EffectFailed)
        error = kind(
            self.message or None,
            retry_after_s=self.retry_after_s,
            corrective_action=self.corrective_action or None,
        )
        error.code, error.retriable, error.details = self.code, self.retriable, dict(self.details)
        return error


def _as_text(given: object) -> str:
    if isinstance(given, str):
        return str.__str__(given)  # also of a member of an enumeration of texts, which prints its name
    try:
        return "" if given is None else str(given)
    except Exception:  # one that cannot be printed
        return type(given).__name__


def _as_details(given: object) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    return {} if given is None else {"details": given}


@dataclass(frozen=True)
class ToolResult(Generic[T]):
    """How one call ended. A tool may also return one, to say partial or failed without an exception."""

    ok: bool
    value: T | None = None
    error: ToolError | None = None
    replayed: bool = False
    key: Key | None = None

    def __post_init__(self) -> None:
        error: object = self.error  # some hand over the exception that they caught
        if isinstance(error, errors.SemelError) or (error is None and not self.ok):
            object.__setattr__(self, "error", ToolError.of(error or errors.EffectFailed()))

    # Static, with types of their own, so that nobody has to write `ToolResult[Refund].success(…)`.

    @staticmethod
    def success(value: V) -> ToolResult[V]:
        return ToolResult(ok=True, value=value)

    @staticmethod
    def failure(
        code: str,
        message: str = "",
        *,
        retriable: bool = False,
        retry_after_s: float | None = None,
        corrective_action: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> ToolResult[Any]:
        error = ToolError(code, message, retriable, retry_after_s, corrective_action, details or {})
        return ToolResult(ok=False, error=error)

    @staticmethod
    def partial(*, done: Any, remaining: Any, corrective_action: str = "") -> ToolResult[Any]:
        error = errors.PartialSuccess(
            done=done, remaining=remaining, corrective_action=corrective_action or None
        )
        return ToolResult(ok=False, error=ToolError.of(error))

    def unwrap(self) -> T:
        """The value, or the exception that says why there is none."""
        if self.error is not None:
            raise self.error.exception()
        return cast(T, self.value)


@dataclass(frozen=True)
class Happened(Generic[T]):
    """A probe's answer: the effect took place, with this result."""

    result: T | None = None


class _Answer:
    """A probe's answer without a value. It is its own only instance; calling it gives it back."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> _Answer:
        return self

    def __repr__(self) -> str:
        return f"semel.{self._name}"


DidNotHappen = _Answer("DidNotHappen")
CannotTell = _Answer("CannotTell")


@dataclass(frozen=True)
class Approval:
    """A person has to say yes first, within this time."""

    expires_in: Duration = "7d"
    reason: str = ""

    def expires_us(self) -> int:
        return microseconds(self.expires_in, "approval expires_in")
