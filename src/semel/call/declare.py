"""`@tool_contract`: from a function to the guarded one that callers and frameworks see."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from semel.call.bound import GuardedMethod
from semel.call.frames import shown
from semel.call.tool import Tool
from semel.contract import shapes
from semel.contract.contract import Contract, Declaration, InFlightRule, ToolClass, ToolValue, UnknownRule
from semel.contract.filled import filled
from semel.contract.result import Approval, ToolCall, ToolResult
from semel.contract.signature import without_marker
from semel.errors import ContractError
from semel.kernel.durations import Duration
from semel.ledger.ledger import Ledger
from semel.questions.approvals import Question

P = ParamSpec("P")
Rest = ParamSpec("Rest")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Self_ = TypeVar("Self_")


class GuardedTool(Protocol[P, R_co]):
    """The function as its callers see it. For an `async def`, R is its coroutine."""

    contract: Contract
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The tool's value, of this call or of the one that was first; raises what the contract answers."""

    @overload
    def call(  # type: ignore[overload-overlap]
        self: GuardedTool[..., Awaitable[T]],
        request: ToolCall,
        ledger: Ledger | None = None,
        *,
        instance: Any = None,
    ) -> Coroutine[Any, Any, ToolResult[T]]: ...

    @overload
    def call(
        self: GuardedTool[..., T], request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None
    ) -> ToolResult[T]: ...

    def call(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """How the call ended; awaitable for an async tool. `instance` is for a method that is not bound."""

    @overload
    def acall(
        self: GuardedTool[..., Awaitable[T]],
        request: ToolCall,
        ledger: Ledger | None = None,
        *,
        instance: Any = None,
    ) -> Coroutine[Any, Any, ToolResult[T]]: ...

    @overload
    def acall(
        self: GuardedTool[..., T], request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None
    ) -> Coroutine[Any, Any, ToolResult[T]]: ...

    def acall(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """The same from an event loop, for every tool: one that is not async runs on a thread."""

    def ask(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Question:
        """The question of a contract with `approval`, put unless it was before; runs nothing."""

    def aask(
        self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None
    ) -> Coroutine[Any, Any, Question]:
        """The same from an event loop."""

    @overload
    def __get__(self, instance: None, owner: Any = None) -> GuardedTool[P, R_co]: ...

    @overload
    def __get__(
        self: GuardedTool[Concatenate[Self_, Rest], R], instance: Self_, owner: Any = None
    ) -> GuardedTool[Rest, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method is bound to its instance, as every function is."""


class Declare(Protocol):
    """Makes the guarded tool of a function. One that returns a ToolResult[T] gives its callers the T."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, ToolResult[T]]], /
    ) -> GuardedTool[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __call__(self, function: Callable[P, ToolResult[T]], /) -> GuardedTool[P, T]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> GuardedTool[P, R]: ...


# Bare, on a function; each overload as in `Declare`.


@overload
def tool_contract(
    function: Callable[P, Coroutine[Any, Any, ToolResult[T]]], /
) -> GuardedTool[P, Coroutine[Any, Any, T]]: ...


@overload
def tool_contract(function: Callable[P, ToolResult[T]], /) -> GuardedTool[P, T]: ...


@overload
def tool_contract(function: Callable[P, R], /) -> GuardedTool[P, R]: ...


@overload
def tool_contract(
    *,
    class_: ToolClass = "write-non-idempotent",
    name: str | None = None,
    version: str = "1.0.0",
    owner: str = "",
    purpose: str | None = None,
    value: ToolValue | None = None,
    window: Duration | None = None,
    lease: Duration | None = None,
    run_limit: Duration | None = None,
    ignore: Iterable[str] = (),
    resource: str | None = None,
    scopes: Iterable[str] = (),
    downstream_window: Duration | None = None,
    transient: Iterable[type[BaseException]] = (),
    attempts: int = 1,
    backoff: Duration | Callable[[int], float] = "exponential",
    refused: Iterable[type[BaseException]] = (),
    raises: Iterable[type[Exception]] = (),
    in_flight: InFlightRule | None = None,
    wait: Duration | None = None,
    on_unknown: UnknownRule | None = None,
    probe: Callable[..., Any] | None = None,
    approval: Literal["required"] | Approval | None = None,
    key_of: Callable[[Any], Any] | None = None,
    secret: Iterable[str] = (),
) -> Declare: ...


def tool_contract(function: Any = None, /, **contract: Any) -> Any:
    """Declare what a tool promises, on a `def`, `async def` or method. ContractError, naming the fix, if it
    cannot be kept. Every argument has a default, so bare `@tool_contract` is a complete contract. A duration
    is a timedelta or a text such as "500ms", "30s", "15m", "24h", "7d".

    Identity
        name: what the tool is called in keys, records and schemas; default: the function's name.
        version: as "2.1.0". Another major version has other keys.
        owner: whom to ask about it.
        purpose: what it is for, in words; default: the docstring.

    What a call does
        class_: "read" and "write-idempotent" keep no record and never replay; "write-non-idempotent" (the
            default) and "irreversible" are recorded, so that an effect lands once.
        value: "low" (the default) or "high": how long the window of a "write-non-idempotent" tool is.
        resource: the argument that names the resource of a "write-idempotent" tool; goes to the audit.
        scopes: what the step must grant.

    Which calls are the same action
        ignore: arguments (dotted paths) that do not tell two actions apart.
        key_of: for methods: `key_of(self)` gives what tells two instances apart. Without it none does.
        secret: arguments and fields of the result (dotted paths) that are written nowhere.

    How long
        window: how long a settled key is honoured, from its settlement; default: "24h" for low value, "7d"
            for high, "30d" for "irreversible".
        lease: how long a running call may go without a sign of life before it is in doubt; renewed while
            the tool runs; default: "60s".
        run_limit: how long the tool may run before renewal stops; default: "15m".
        in_flight: a second caller of a running call: "wait" (the default) for its answer, or "refuse".
        wait: for how long it waits at most; default: "30s".

    When it fails
        transient: exceptions after which the tool is tried again, inside the call and with the same key.
        attempts: how often it is tried in all. More than 1 needs a `Key` parameter and `downstream_window`.
        backoff: the pause between tries: "exponential", a duration, or `backoff(tries) -> seconds`.
        refused: exceptions that prove that nothing happened: the key is free again.
        raises: exceptions of the tool's own that are answers (a declined card): recorded as failed, and
            raised as themselves by this call and by every replay. Any other is raised as `EffectFailed`.

    When nobody knows whether it happened
        on_unknown: "retry" (enter again with the same key), "probe" (ask), "park" (wait for a person) or
            "rerun" (enter again, though the effect may land twice); default: "retry" if a `Key` parameter and
            `downstream_window` are there and the tool is not "irreversible", else "probe" if there is one,
            else "park".
        downstream_window: the downstream deduplicates by our key, for this long.
        probe: `probe(key, **arguments)`, sync or async, gives `semel.Happened(result)`,
            `semel.DidNotHappen` or `semel.CannotTell`.

    Before it happens
        approval: "required" or `semel.Approval(expires_in=…)`: a person has to say yes first.

    Parameters of the function of type `semel.Key` and `semel.Transaction` are filled by Semel, and are in no
    schema, key or record. Give them the default `semel.filled`, and no type checker asks callers for them.
    """
    declared = _declaration(contract)
    # The names around the definition, for annotations that are written as text.
    local_names = sys._getframe(1).f_locals

    def declare(function: Callable[..., Any]) -> Any:
        return _declared(function, declared, local_names)

    return declare if function is None else _declared(function, declared, local_names)


def _declared(function: Callable[..., Any], declared: Declaration, local_names: Mapping[str, Any]) -> Any:
    try:
        return _guarded(Tool(Contract(function, declared, local_names)), local_names)
    except ContractError as error:
        # Without our frames in between: what is wrong stands in the user's program.
        raise error.with_traceback(None) from error.__cause__


_OPTIONS = tuple(field.name for field in dataclasses.fields(Declaration))

# How alike a slip of the pen and what was meant are: `retries` is no slip for `raises`.
_SLIP = 0.8


def _declaration(contract: dict[str, Any]) -> Declaration:
    for name in contract:
        if name not in _OPTIONS:
            near = [*_parts_of(name), *difflib.get_close_matches(name, _OPTIONS, 1, _SLIP)]
            hint = f"; did you mean {near[0]!r}?" if near else f", but {', '.join(_OPTIONS)}"
            raise TypeError(f"a tool contract takes no {name!r}{hint}")
    return Declaration(**contract)


def _parts_of(name: str) -> list[str]:
    """Options whose name is a word of this one: elsewhere a window is an `idempotency_window`."""
    return [option for option in _OPTIONS if option.rstrip("_") in name.split("_")]


@overload
def contract_for(
    name: str, schema: Mapping[str, Any], function: Callable[..., Awaitable[T]], **contract: Any
) -> GuardedTool[..., Coroutine[Any, Any, T]]: ...


@overload
def contract_for(
    name: str, schema: Mapping[str, Any], function: Callable[..., T], **contract: Any
) -> GuardedTool[..., T]: ...


def contract_for(
    name: str, schema: Mapping[str, Any], function: Callable[..., Any], **contract: Any
) -> GuardedTool[..., Any]:
    """A tool of something that has a JSON Schema and no typed Python function: an MCP tool, a third party's.

    `function(**arguments)`, sync or async, gives plain data. Arguments are held to the schema before anything
    happens; `contract` is what `tool_contract` takes. Parameters of the function of type `semel.Key` and
    `semel.Transaction`, and injected ones, are filled as elsewhere. Raises ContractError.
    """
    # Only here, because few programs need it.
    from semel.contract.schema_arguments import SchemaArguments, by_name

    local_names = sys._getframe(1).f_locals
    declared = _declaration({**contract, "name": name})
    arguments_of = functools.partial(SchemaArguments.of_schema, schema=schema)
    made = Contract(by_name(function, schema, local_names), declared, local_names, arguments_of)
    guarded: GuardedTool[..., Any] = _guarded(Tool(made), local_names)
    return guarded


def _guarded(tool: Tool, local_names: Mapping[str, Any]) -> Any:
    """A real function, so that frameworks treat it like the one it stands for; in a class, nearly one."""
    function = tool.contract.function
    if tool.is_async:

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return await tool.arun(args, kwargs)
            except Exception as error:
                raised = shown(error)
                if raised is error:
                    raise
            try:
                raise raised
            finally:
                del raised  # which knows this frame

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return tool.run(args, kwargs)
            except Exception as error:
                raised = shown(error)
                if raised is error:
                    raise
            try:
                raise raised
            finally:
                del raised  # which knows this frame

    _hide_keys(wrapper, tool.contract, local_names)
    wrapper.__name__ = tool.contract.name
    wrapper.contract = tool.contract  # type: ignore[attr-defined]
    wrapper.call = tool.call  # type: ignore[attr-defined]
    wrapper.acall = tool.acall  # type: ignore[attr-defined]
    wrapper.ask = tool.ask  # type: ignore[attr-defined]
    wrapper.aask = tool.aask  # type: ignore[attr-defined]
    return GuardedMethod(wrapper) if tool.contract.arguments.takes_self else wrapper


def _hide_keys(wrapper: Any, contract: Contract, local_names: Mapping[str, Any]) -> None:
    """Take the parameters that Semel fills out of the signature that models and frameworks see."""
    signature = inspect.signature(contract.function)
    # By their default too: the name of an annotation may be defined later.
    to_be_filled = [name for name, each in signature.parameters.items() if each.default is filled]
    hidden = (*contract.key_parameters, *contract.transaction_parameters, *to_be_filled)

    def meant(written: Any) -> Any:
        return without_marker(_meant(written, contract, local_names))

    shown = [
        parameter.replace(annotation=meant(parameter.annotation))
        for name, parameter in signature.parameters.items()
        if name not in hidden
    ]
    wrapper.__signature__ = signature.replace(
        parameters=shown, return_annotation=meant(signature.return_annotation)
    )
    wrapper.__annotations__ = {
        name: meant(annotation) for name, annotation in wrapper.__annotations__.items() if name not in hidden
    }
    del wrapper.__wrapped__


def _meant(written: Any, contract: Contract, local_names: Mapping[str, Any]) -> Any:
    """The type behind a text: whoever asks the wrapper would look its names up in this module."""
    if not isinstance(written, str):
        return written
    try:
        kind = shapes.annotation(written, contract.function, local_names)
    except shapes.NotYet:
        return written
    return None if kind is type(None) else kind
