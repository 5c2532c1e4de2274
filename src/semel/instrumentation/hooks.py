"""Who is told of the calls of this process, and how: what a hook does wrong never reaches the call.

`LISTENERS` is asked on the way of every call. Nothing is made and no clock is read for it unless somebody
listens.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from semel.errors import OpenError
from semel.instrumentation.numbers import DOUBT, show

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("semel")

# Only these keep a record that can be in doubt.
_RECORDED = ("write-non-idempotent", "irreversible")


@dataclass(slots=True, eq=False, weakref_slot=True)
class CallEnded:
    """One call of a tool, and how it ended. No argument, key or result is in it.

    `started` gets the same object: what comes after `class_` is filled in at the end.
    """

    tool: str
    version: str
    class_: str
    answer: str = ""
    """`done`, `replayed` or the code of the error."""

    replayed: bool = False
    """Whether the answer, value or error, is an earlier call's."""

    claim_s: float = 0.0
    """Until the key was ours, or another call's answer was there; 0 if the store was not asked."""

    tool_s: float = 0.0
    """In the tool, with all its tries; 0 if it was not entered."""

    settle_s: float = 0.0
    """Until its outcome was on record; 0 if the tool was not entered, or keeps no record."""

    retry_age_s: float | None = None
    """Of a replay: how long ago its answer was settled."""

    @property
    def in_doubt(self) -> bool:
        """Whether it may have happened, and nobody can tell by itself."""
        return self.answer in DOUBT and self.class_ in _RECORDED


@runtime_checkable
class CallHook(Protocol):
    """Told of a call's start too, in the context of the caller: what `started` sets there, the tool sees."""

    def started(self, call: CallEnded, /) -> None: ...

    def ended(self, call: CallEnded, /) -> None: ...


class NumbersHook:
    """Shows the numbers of numbers.py when it is asked, instead of being told of each call."""

    def begin(self) -> None:
        """It is in use from here on."""

    def end(self) -> None:
        """It is not any more."""


class MadeLater(ABC):
    """Stands for a hook that is made when it is used."""

    @abstractmethod
    def hook(self) -> Hook:
        """The hook, the same one each time; OpenError if its library is not installed."""


Hook = Callable[[CallEnded], object] | CallHook | NumbersHook
GivenHook = Hook | MadeLater


class _Listener(NamedTuple):
    hook: Hook
    started: Callable[[CallEnded], object] | None
    ended: Callable[[CallEnded], object]


class Observed:
    """A call that somebody is told of: those who were told of its start are told of its end."""

    __slots__ = ("_listeners", "call")

    def __init__(self, call: CallEnded, listeners: tuple[_Listener, ...]) -> None:
        self.call = call
        self._listeners = listeners

    def begin(self) -> None:
        for listener in self._listeners:
            if listener.started is not None:
                _tell(listener, listener.started, self.call)

    def end(
        self,
        answer: str,
        replayed: bool,
        stages_s: Sequence[float | None],
        retry_age_s: float | None,
    ) -> None:
        """Told once, however often the caller is interrupted on the way."""
        listeners, self._listeners = self._listeners, ()
        call = self.call
        call.answer, call.replayed, call.retry_age_s = answer, replayed, retry_age_s
        call.claim_s, call.tool_s, call.settle_s = (seconds or 0.0 for seconds in stages_s)
        # The last one first, so that what hooks put around the tool is taken off in order.
        for listener in reversed(listeners):
            _tell(listener, listener.ended, self.call)


class _Telling(threading.local):
    """Whether this thread is in a hook: the calls that one makes are not told, or it would never end."""

    now = False


_telling = _Telling()


def _tell(listener: _Listener, tell: Callable[[CallEnded], object], call: CallEnded) -> None:
    _telling.now = True
    try:
        tell(call)
    except Exception:
        LISTENERS.complain(listener.hook)
    finally:
        _telling.now = False


class Listeners:
    """The hooks of this process."""

    def __init__(self) -> None:
        self.asks = True  # whether a call has to say that it starts
        self._listeners: tuple[_Listener, ...] = ()
        self._hooks: tuple[Hook, ...] = ()
        self._default: MadeLater | None = None
        self._complained: list[Hook] = []
        # Re-entrant: a handler of a signal may call a tool while this thread is in the middle of `use`.
        self._lock = threading.RLock()

    # --- on the way of a call ---------------------------------------------------------------------

    def started(self, tool: str, version: str, class_: str) -> Observed | None:
        """A call begins; None if nobody wants to know, or a hook makes it."""
        if self._default is not None:
            self._begin()
        if _telling.now or not self._listeners:
            return None
        observed = Observed(CallEnded(tool, version, class_), self._listeners)
        observed.begin()
        return observed

    def _begin(self) -> None:
        """The first call: what is in use by itself is, from here on."""
        with self._lock:
            hooks = self._hooks
            try:
                if self._default is not None:
                    hooks = (*hooks, self._default.hook())
            except OpenError:
                pass  # it is not installed
            except Exception:
                log.warning("semel: the calls of this process are not shown to Prometheus", exc_info=True)
            self.restore(hooks, None)

    def complain(self, hook: Hook) -> None:
        """Once for each hook: one that fails fails with every call."""
        if hook not in self._complained:
            self._complained = [*self._complained, hook]
            name = getattr(hook, "__qualname__", type(hook).__qualname__)
            log.exception(
                "semel: the hook %s failed; the call goes on. Its further errors are not logged", name
            )

    # --- who is told ------------------------------------------------------------------------------

    def by_default(self, default: MadeLater) -> None:
        """In use from the first call on, unless `use` says otherwise before."""
        self._default = default

    def use(self, given: tuple[GivenHook, ...]) -> HookUse:
        hooks = tuple(_made(each) for each in given)
        with self._lock:
            before = HookUse(self, self._hooks, self._default)
            self.restore(hooks, None)
        return before

    def add(self, given: tuple[GivenHook, ...]) -> None:
        hooks = tuple(_made(each) for each in given)
        with self._lock:
            self._put((*self._hooks, *hooks))

    def restore(self, hooks: tuple[Hook, ...], default: MadeLater | None) -> None:
        with self._lock:
            self._default = default
            self._put(hooks)

    def _put(self, hooks: tuple[Hook, ...]) -> None:
        before, self._hooks = self._hooks, _once_each(hooks)
        numbers = [each for each in self._hooks if isinstance(each, NumbersHook)]
        self._listeners = tuple(_listener(each) for each in self._hooks if not isinstance(each, NumbersHook))
        self.asks = bool(self._listeners) or self._default is not None
        show(bool(numbers))
        self._complained = [each for each in self._complained if each in self._hooks]
        for hook in before:
            if isinstance(hook, NumbersHook) and hook not in numbers:
                hook.end()
        for hook in numbers:
            if hook not in before:
                hook.begin()

    def forked(self) -> None:
        """In a child: one of the parent's threads may hold the lock for ever."""
        self._lock = threading.RLock()


class HookUse:
    """The hooks that were there before, which come back when the block ends."""

    def __init__(self, listeners: Listeners, hooks: tuple[Hook, ...], default: MadeLater | None) -> None:
        self._listeners = listeners
        self._hooks = hooks
        self._default = default

    def __enter__(self) -> None:
        """They are out of use already."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listeners.restore(self._hooks, self._default)


LISTENERS = Listeners()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LISTENERS.forked)


def use(*hooks: GivenHook) -> HookUse:
    """These hooks are told of every call of this process, and no others: `use()` leaves none.

    For good, or as `with use(hook):` until the block ends. TypeError for what is no hook.
    """
    return LISTENERS.use(hooks)


def add(*hooks: GivenHook) -> None:
    """These hooks are told too, besides those that are. One that is there already is not told twice."""
    LISTENERS.add(hooks)


def _once_each(hooks: tuple[Hook, ...]) -> tuple[Hook, ...]:
    each: list[Hook] = []
    for hook in hooks:
        if hook not in each:
            each.append(hook)
    return tuple(each)


def _made(given: Any) -> Hook:
    hook: Hook = given.hook() if isinstance(given, MadeLater) else given
    if not isinstance(hook, NumbersHook):
        _listener(hook)
    return hook


def _listener(hook: Any) -> _Listener:
    if isinstance(hook, type):
        raise TypeError(f"{hook.__qualname__} is a class: give an instance of it, {hook.__name__}().")
    started, ended = getattr(hook, "started", None), getattr(hook, "ended", hook)
    if not callable(ended) or not (started is None or callable(started)):
        raise TypeError(
            f"{hook!r} is no hook: that is a callable that gets a CallEnded, or has started and ended."
        )
    if _is_awaited(started) or _is_awaited(ended):
        raise TypeError(f"{hook!r} is asynchronous: a hook is called, and nobody awaits it.")
    return _Listener(hook, started, ended)


def _is_awaited(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004  # an object's own, which may be asynchronous
    )
