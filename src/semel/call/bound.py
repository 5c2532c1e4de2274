"""Guarded methods: `account.pay.call(…)` knows its account, which a plain function's bound method would not.

Both classes pass for what they stand for, a function and its bound method: frameworks, pydantic and
`inspect` ask by `isinstance`, and read the signature and the flags of the code.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.contract.result import ToolCall
    from semel.ledger.ledger import Ledger


class GuardedMethod:
    """A guarded function as it stands in a class; what is read from it or set on it is the function's."""

    def __init__(self, function: Any) -> None:
        named = ("__module__", "__name__", "__qualname__", "__doc__")
        self.__dict__.update({name: getattr(function, name) for name in named}, __wrapped__=function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.__wrapped__ if instance is None else BoundTool(self.__wrapped__, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__wrapped__"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return FunctionType


class BoundTool:
    # In place of a docstring, because `__doc__` is the function's: a guarded method of one instance.

    __slots__ = ("__func__", "__self__", "__weakref__")

    def __init__(self, function: Any, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def call(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """How the call ended, on this instance unless another one is given; awaitable for an async tool."""
        return self.__func__.call(request, ledger, instance=self.__self__ if instance is None else instance)

    def acall(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """The same from an event loop, for every tool."""
        return self.__func__.acall(request, ledger, instance=self.__self__ if instance is None else instance)

    def ask(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """The question of a contract with `approval`; runs nothing."""
        return self.__func__.ask(request, ledger, instance=self.__self__ if instance is None else instance)

    def aask(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """The same from an event loop."""
        return self.__func__.aask(request, ledger, instance=self.__self__ if instance is None else instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not BoundTool:
            return NotImplemented
        return self.__self__ is other.__self__ and self.__func__ is other.__func__

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__func__))

    def __repr__(self) -> str:
        return f"<guarded method {self.__func__.__qualname__} of {self.__self__!r}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        return getattr, (self.__self__, self.__func__.contract.function.__name__)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return MethodType

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        doc: str | None = self.__func__.__doc__
        return doc

    @property
    def __module__(self) -> str:  # type: ignore[override]
        module: str = self.__func__.__module__
        return module
