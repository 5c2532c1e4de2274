"""What a tool declares: identity, class, windows, and what follows when nobody knows whether it happened."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin

import orjson

from semel.contract import shapes
from semel.contract.arguments import Arguments
from semel.contract.result import Approval, ToolResult
from semel.contract.undeclared import returned_class
from semel.contract.values import Values
from semel.errors import ContractError, SemelError
from semel.kernel import keys
from semel.kernel.durations import Duration, microseconds, words
from semel.kernel.keys import tool_frame
from semel.kernel.record import OF_TOOL

ToolClass = Literal["read", "write-idempotent", "write-non-idempotent", "irreversible"]
ToolValue = Literal["low", "high"]
InFlightRule = Literal["wait", "refuse"]
UnknownRule = Literal["retry", "probe", "park", "rerun"]

CLASSES = get_args(ToolClass)
RECORDED = frozenset(("write-non-idempotent", "irreversible"))
POLICIES = get_args(UnknownRule)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){0,2}([-+][0-9A-Za-z.+-]+)?")

# A day covers an orchestrator's night, a week a weekend and a holiday, a month a forgotten queue.
_WINDOWS: dict[tuple[str, str], Duration] = {
    ("write-non-idempotent", "low"): "24h",
    ("write-non-idempotent", "high"): "7d",
    ("irreversible", "low"): "30d",
    ("irreversible", "high"): "30d",
}

# What a tool may declare only if its calls are recorded.
_OF_RECORDS = (
    "window", "lease", "run_limit", "value", "in_flight", "wait", "on_unknown", "probe", "approval", "key_of",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The arguments of `@tool_contract` as they were written; None where nothing was."""

    class_: ToolClass = "write-non-idempotent"
    name: str | None = None
    version: str = "1.0.0"
    owner: str = ""
    purpose: str | None = None
    value: ToolValue | None = None
    window: Duration | None = None
    lease: Duration | None = None
    run_limit: Duration | None = None
    ignore: Iterable[str] = ()
    resource: str | None = None
    scopes: Iterable[str] = ()
    downstream_window: Duration | None = None
    transient: Iterable[type[BaseException]] = ()
    attempts: int = 1
    backoff: Duration | Callable[[int], float] = "exponential"
    refused: Iterable[type[BaseException]] = ()
    raises: Iterable[type[Exception]] = ()
    in_flight: InFlightRule | None = None
    wait: Duration | None = None
    on_unknown: UnknownRule | None = None
    probe: Callable[..., Any] | None = None
    approval: Literal["required"] | Approval | None = None
    key_of: Callable[[Any], Any] | None = None
    secret: Iterable[str] = ()


class Contract:
    """One tool's declaration, checked and ready for use. Durations are in microseconds."""

    record_scope: ClassVar[str] = OF_TOOL

    def __init__(
        self,
        function: Callable[..., Any],
        declared: Declaration,
        local_names: Mapping[str, Any],
        arguments_of: Callable[..., Arguments] = Arguments.of,
    ) -> None:
        _check_function(function)
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.function_name = (str(function.__module__), function.__qualname__)
        self.declared = declared
        self.name = declared.name or function.__name__
        self.version = declared.version
        self.purpose = (
            inspect.cleandoc(function.__doc__ or "") if declared.purpose is None else declared.purpose
        )
        self._check_identity()
        self.class_ = declared.class_
        self.recorded = self.class_ in RECORDED
        self.major = int(self.version.partition(".")[0].partition("-")[0].partition("+")[0])
        self.frame = tool_frame(self.name, self.major)
        self.ignore = _names(declared.ignore)
        self.secret = _names(declared.secret)
        self.scopes = frozenset(_names(declared.scopes))
        self.transient = _exceptions("transient", declared.transient)
        self.refused = _exceptions("refused", declared.refused)
        self.raises = _exceptions("raises", declared.raises)
        self._check_raises()
        self.attempts = declared.attempts
        self.in_flight = declared.in_flight or "wait"
        self.approval = _approval(declared.approval)
        self.lease_us = self._duration("lease", "60s")
        self.run_limit_us = self._duration("run_limit", "15m")
        self.wait_us = self._duration("wait", "30s")
        self.window_us = self._duration("window", _WINDOWS.get((self.class_, declared.value or "low"), "24h"))
        self.downstream_us = self._duration("downstream_window", None) if declared.downstream_window else None
        self.arguments = arguments_of(
            function, ignore=self.ignore, secret=self.secret, tool=self.name, local_names=local_names
        )
        self._read_parameters()
        returned = inspect.signature(function).return_annotation
        self.values = Values.of(
            _within_tool_result(returned, function, local_names),
            secret=self.secret,
            function=function,
            local_names=local_names,
        )
        self._check_class()
        self._check_doubt()
        self._check_key_of()
        self._check_declared(returned, function)
        self.ready = self.arguments.ready and self.values.ready
        if self.ready:
            self._check_secrets()
        self.on_unknown = self._on_unknown()
        self.terms = orjson.dumps(self._terms()).decode()

    # --- what others read -------------------------------------------------------------------------

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, as a model should see them: without keys."""
        return self.arguments.schema

    def describe(self) -> dict[str, Any]:
        """The whole contract as data."""
        declared, recorded = self.declared, self.recorded
        return {
            "name": self.name,
            "version": self.version,
            "owner": declared.owner,
            "purpose": self.purpose,
            "class": self.class_,
            "recorded": recorded,
            "value": (declared.value or "low") if recorded else None,
            "window": words(self.window_us) if recorded else None,
            "lease": words(self.lease_us) if recorded else None,
            "run_limit": words(self.run_limit_us) if recorded else None,
            "ignore": list(self.ignore),
            "resource": declared.resource,
            "scopes": sorted(self.scopes),
            "downstream_window": words(self.downstream_us) if self.downstream_us else None,
            "forwards_key": bool(self.arguments.key_parameters),
            "same_transaction": bool(self.transaction_parameters),
            "transient": [_name_of(kind) for kind in self.transient],
            "attempts": self.attempts,
            "backoff": declared.backoff if isinstance(declared.backoff, str) else "custom",
            "refused": [_name_of(kind) for kind in self.refused],
            "raises": [_name_of(kind) for kind in self.raises],
            "in_flight": self.in_flight if recorded else None,
            "wait": words(self.wait_us) if recorded else None,
            "on_unknown": self.on_unknown if recorded else None,
            "probe": declared.probe is not None,
            "approval": {"expires_in": words(self.approval.expires_us())} if self.approval else None,
            "key_of": declared.key_of is not None,
            "secret": list(self.secret),
            "schema": self.schema,
            "result_schema": self.values.schema,
            "warnings": self.warnings(),
        }

    def warnings(self) -> list[str]:
        """What works, but not as long or as well as it may look."""
        texts = []
        if self.recorded and self.downstream_us is not None and self.downstream_us < self.window_us:
            texts.append(
                f"The downstream forgets keys after {words(self.downstream_us)}, the window is "
                f"{words(self.window_us)}: a call in doubt for longer is not retried but "
                f"{'probed' if self.declared.probe else 'parked'}."
            )
        if self.recorded and self.on_unknown == "park":
            texts.append("A call in doubt waits for a person: there is neither a forwarded key nor a probe.")
        if self.recorded and self.on_unknown == "rerun":
            texts.append("A call in doubt is run again: the effect may land twice.")
        return texts

    def backoff_s(self, entry: int, chance: float) -> float:
        """How long to wait after the entry-th try. Jittered over the whole span, so that a herd spreads."""
        backoff = self.declared.backoff
        if callable(backoff):
            return max(0.0, float(backoff(entry)))
        if backoff == "exponential":
            # From a tenth of a second; capped, since a caller waits.
            return min(10.0, 0.1 * 2.0 ** (entry - 1)) * (0.5 + chance / 2)
        return microseconds(backoff, "backoff") / 1e6 * (0.5 + chance / 2)

    # --- checks, each naming the fix --------------------------------------------------------------

    def _error(self, text: str) -> ContractError:
        return ContractError(f"Tool {self.name!r}: {text}")

    def _check_identity(self) -> None:
        declared = self.declared
        if not _NAME.fullmatch(self.name):
            raise self._error("the name has letters, digits and . _ : - only, at most 128: give name=….")
        if not _VERSION.fullmatch(declared.version):
            raise self._error(f"version is like '2.1.0', not {declared.version!r}.")
        if declared.class_ not in CLASSES:
            raise self._error(f"class_ is one of {', '.join(CLASSES)}, not {declared.class_!r}.")
        if declared.value not in (None, *get_args(ToolValue)):
            raise self._error(f"value is 'low' or 'high', not {declared.value!r}.")
        if declared.in_flight not in (None, *get_args(InFlightRule)):
            raise self._error(f"in_flight is 'wait' or 'refuse', not {declared.in_flight!r}.")
        if declared.on_unknown not in (None, *POLICIES):
            raise self._error(f"on_unknown is one of {', '.join(POLICIES)}, not {declared.on_unknown!r}.")
        if not isinstance(declared.attempts, int) or declared.attempts < 1:
            raise self._error(f"attempts is a whole number from 1, not {declared.attempts!r}.")
        self._check_backoff()

    def _check_backoff(self) -> None:
        backoff = self.declared.backoff
        if callable(backoff) or backoff == "exponential":
            return
        try:
            microseconds(backoff, "backoff")
        except ValueError as wrong:
            raise self._error(f"{wrong}; it may also be 'exponential' or a function.") from None

    def _check_raises(self) -> None:
        for kind in self.raises:
            if not issubclass(kind, Exception) or issubclass(kind, SemelError | BaseExceptionGroup):
                raise self._error(
                    f"raises= takes exceptions of the tool's own that are answers, not {kind.__name__}: "
                    "leave it out, and it means what it means by itself."
                )
            for name, others in (("transient", self.transient), ("refused", self.refused)):
                for other in others:
                    if issubclass(kind, other) or issubclass(other, kind):
                        raise self._error(
                            f"raises={kind.__name__} is an answer, {name}={other.__name__} is none, and an "
                            "exception can be both: list each where it belongs, and no base of both."
                        )

    def _check_class(self) -> None:
        declared = self.declared
        if declared.resource is not None and declared.resource not in self.argument_names:
            raise self._error(f"resource={declared.resource!r} is not an argument.")
        if self.recorded:
            return
        for name in _OF_RECORDS:
            if getattr(declared, name) is not None:
                raise self._error(
                    f"{name}= has no meaning for class {self.class_!r}, which keeps no record: "
                    "drop it, or choose write-non-idempotent."
                )
        if declared.refused:
            raise self._error(
                f"refused= has no meaning for class {self.class_!r}: there is nothing to release."
            )
        if self.arguments.key_parameters:
            raise self._error(
                f"a Key parameter has no meaning for class {self.class_!r}, which makes no key: drop "
                f"{self.arguments.key_parameters[0]!r}, or choose write-non-idempotent."
            )
        if self.transaction_parameters:
            raise self._error(
                f"a Transaction has no meaning for class {self.class_!r}, which settles nothing: drop "
                f"{self.transaction_parameters[0]!r}, or choose write-non-idempotent."
            )

    def _check_doubt(self) -> None:
        declared, forwards = self.declared, bool(self.arguments.key_parameters)
        keyed = forwards and self.downstream_us is not None
        if declared.on_unknown == "retry" and not keyed:
            raise self._error(
                "on_unknown='retry' enters again with the same key: it needs a parameter of type semel.Key, "
                "handed to the downstream, and downstream_window=… for how long that deduplicates."
            )
        if declared.on_unknown == "probe" and declared.probe is None:
            raise self._error("on_unknown='probe' needs probe=…, a function that asks the downstream.")
        if self.transaction_parameters and (declared.on_unknown or declared.probe):
            raise self._error("a tool with a Transaction leaves no doubt: drop on_unknown= and probe=.")
        if self.recorded and self.attempts > 1 and not (keyed or self.transaction_parameters):
            raise self._error(
                "attempts > 1 tries again inside the contract, so it needs a parameter of type semel.Key and "
                "downstream_window=…; without them a second try may be a second effect."
            )
        if declared.probe is not None:
            self._check_probe(declared.probe)

    def _check_key_of(self) -> None:
        key_of, of_instances = self.declared.key_of, self.arguments.takes_self
        if key_of is None:
            if self.recorded and of_instances:
                warnings.warn(
                    f"Tool {self.name!r} is a method without key_of=…: equal calls on two instances (or "
                    "subclasses) are one action, and the second gets the first one's answer. Say what tells "
                    "them apart, as key_of=lambda self: self.account, or that nothing does: "
                    "key_of=lambda self: None.",
                    stacklevel=5,  # the line of the declaration
                )
            return
        if not of_instances:
            raise self._error("key_of= tells instances apart, and a plain function has none: drop it.")
        if not callable(key_of):
            raise self._error(f"key_of is a function key_of(self), not {key_of!r}.")

    def _check_declared(self, returned: Any, function: Callable[..., Any]) -> None:
        """A class that is returned and not declared is said now, not when the first replay lacks it."""
        kind = returned_class(function) if self.recorded and returned is inspect.Signature.empty else None
        if kind is not None:
            warnings.warn(
                f"Tool {self.name!r} returns {kind.__name__} and does not declare it, so a replay could not "
                f"give it back (RESULT_UNAVAILABLE): annotate the function with -> {kind.__name__}.",
                stacklevel=5,  # the line of the declaration
            )

    def told_apart(self, canonical: bytes, instance: Any, secret_key: bytes) -> bytes:
        """The canonical arguments with what tells this instance from others; ContractError if nothing can."""
        key_of = self.declared.key_of
        if key_of is None:
            return canonical
        try:
            value = key_of(instance)
            of_instance = keys.canonical({"self": value}, unfold=shapes.unfolding(secret_key))
        except keys.Uncanonical as error:
            raise self._error(f"what key_of(self) gave {error}; the tool did not run.") from None
        except Exception as error:
            raise self._error(f"key_of(self) ended with {type(error).__name__}; it did not run.") from error
        # Behind a NUL, which the arguments cannot hold: no other arguments and instance make these bytes.
        return canonical + b"\0" + of_instance

    def _read_parameters(self) -> None:
        self.key_parameters = self.arguments.key_parameters
        self.transaction_parameters = self.arguments.transaction_parameters
        self.injected_parameters = self.arguments.injected_parameters
        self.argument_names = self.arguments.argument_names

    def check_late_names(self) -> None:
        """The checks that had to wait for names defined after the tool; made before its first call."""
        self.values.resolve()
        self._read_parameters()
        self._check_class()
        self._check_secrets()
        self.ready = True

    def _check_secrets(self) -> None:
        for path in self.arguments.unknown_secrets:
            if not self.values.accepts_path(path):
                raise self._error(f"secret={path!r} names neither an argument nor a field of the result.")

    def _check_probe(self, probe: Callable[..., Any]) -> None:
        if not callable(probe):
            raise self._error("probe is a function probe(key, **arguments).")
        try:
            inspect.signature(probe).bind("key", **dict.fromkeys(self.argument_names))
        except TypeError as misfit:
            shown = ", ".join(f"{name}=…" for name in self.argument_names)
            raise self._error(
                f"probe is called as probe(key, {shown}): {misfit}; take what you need and **others."
            ) from None

    def _duration(self, name: str, default: Duration | None) -> int:
        declared: Duration | None = getattr(self.declared, name)
        chosen = default if declared is None else declared
        assert chosen is not None
        try:
            return microseconds(chosen, name)
        except ValueError as wrong:
            raise self._error(f"{wrong}.") from None

    def _on_unknown(self) -> UnknownRule:
        if self.declared.on_unknown is not None:
            return self.declared.on_unknown
        if self.transaction_parameters:
            return "retry"
        keyed = self.arguments.key_parameters and self.downstream_us is not None
        if keyed and self.class_ != "irreversible":
            return "retry"
        return "probe" if self.declared.probe is not None else "park"

    def _terms(self) -> dict[str, Any]:
        return {
            "class": self.class_,
            "on_unknown": self.on_unknown,
            "window_us": self.window_us,
            "lease_us": self.lease_us,
            "downstream_us": self.downstream_us,
            **({"ignore": list(self.ignore)} if self.ignore else {}),
        }


def _check_function(function: Any) -> None:
    if isinstance(function, type):
        raise ContractError(f"{function.__qualname__} is a class: declare the contract on its methods.")
    if isinstance(function, staticmethod | classmethod) or not hasattr(function, "__name__"):
        raise ContractError(
            f"{function!r} is no function: declare the contract on a `def`, below @classmethod or "
            "@staticmethod; what it says is given by name, as in @tool_contract(name=…)."
        )


def _within_tool_result(returned: Any, function: Callable[..., Any], local_names: Mapping[str, Any]) -> Any:
    """The type of the value: a tool that is annotated with ToolResult[X] keeps an X."""
    try:
        kind = shapes.annotation(returned, function, local_names)
    except shapes.NotYet:
        return returned
    if kind is ToolResult:
        return Any
    return get_args(kind)[0] if get_origin(kind) is ToolResult else returned


def _names(given: Iterable[str]) -> tuple[str, ...]:
    """The names as a tuple; one name may be given as a plain text."""
    return (given,) if isinstance(given, str) else tuple(given)


def _exceptions(name: str, kinds: Iterable[type[BaseException]]) -> tuple[type[BaseException], ...]:
    given: tuple[Any, ...] = (kinds,) if isinstance(kinds, type) else tuple(kinds)
    for kind in given:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ContractError(f"{name}= takes exception classes, not {kind!r}.")
    return given


def _approval(declared: Literal["required"] | Approval | None) -> Approval | None:
    if declared is None or isinstance(declared, Approval):
        approval = declared
    elif declared == "required":
        approval = Approval()
    else:
        raise ContractError(f"approval is 'required' or semel.Approval(expires_in=…), not {declared!r}.")
    if approval is not None:
        try:
            approval.expires_us()
        except ValueError as wrong:
            raise ContractError(f"{wrong}.") from None
    return approval


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
