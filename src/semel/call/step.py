"""The step: where keys are made.

The outermost layer that can decide to retry opens a step and names it from its own state. Everything below,
however often it retries, meets the same step and therefore the same keys.
"""

from __future__ import annotations

import hmac
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

import orjson

from semel.call.unfinished import OpenCalls, Unfinished
from semel.errors import StepError
from semel.kernel.keys import step_seed
from semel.kernel.limits import NAME_BYTES_MAX
from semel.kernel.pools import forget_in_pools
from semel.ledger.counters import skipped_events

if TYPE_CHECKING:
    from types import TracebackType

    from semel.ledger.ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")

CARRY_FORMAT = 2

# Says what the store's key is used for here, so that nothing that it signed elsewhere is taken for a step.
_CARRY_PURPOSE = b"semel carried step, format 2"

_CARRIED = frozenset(("format", "tenant", "conversation", "path", "scopes", "principal", "signature"))


class Step:
    """One step of a conversation: `with` and `async with`; not shared by two users at once."""

    open_calls: OpenCalls | None = None
    """Where a numbered step notes its unfinished calls."""

    def __init__(
        self,
        ledger: Ledger,
        conversation: str,
        path: tuple[str, ...],
        scopes: Iterable[str] = (),
        principal: str = "",
    ) -> None:
        self.ledger = ledger
        self.conversation = _name("conversation", conversation)
        self.path = tuple(_name("step", part) for part in path)
        self.scopes = frozenset((scopes,) if isinstance(scopes, str) else scopes)
        self.principal = principal
        self.path_text = orjson.dumps(self.path).decode()
        self.seed = step_seed(ledger.tenant, self.conversation, self.path)
        self._visit: Visit | None = None
        self._outer: Token[Visit | None] | None = None

    def carry(self) -> dict[str, Any]:
        """Plain JSON data that `ledger.resume` turns into this same step, on another thread or machine.

        Signed with the store's key: whoever has it on its way can read it, and change nothing.
        """
        carried = {
            "format": CARRY_FORMAT,
            "tenant": self.ledger.tenant,
            "conversation": self.conversation,
            "path": list(self.path),
            "scopes": sorted(self.scopes),
            "principal": self.principal,
        }
        return carried | {"signature": _signature(self.ledger.store.secret_key, carried)}

    def run(self, tool: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the tool in this step, whatever the context of the caller is; awaitable if the tool is."""
        self._refuse_if_over()
        if inspect.iscoroutinefunction(tool):
            return cast("T", self._run_async(tool, args, kwargs))
        visit = Visit(self)
        try:
            visit.__enter__()
            return tool(*args, **kwargs)
        finally:
            # First, and by an assignment: an interrupt inside a call would leave the step open.
            visit.open = False
            visit.__exit__()

    def _refuse_if_over(self) -> None:
        """Does nothing: a named step may be entered again at any time."""

    async def _run_async(
        self, tool: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with Visit(self):
            return await tool(*args, **kwargs)

    def __enter__(self) -> Self:
        if self._visit is not None:
            raise StepError("This step is already open; open another one, or leave this one first.")
        self._visit = Visit(self).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        visit, self._visit = self._visit, None
        if visit is not None:
            visit.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class Visit:
    """The time between entering a step and leaving it.

    Tasks and threads copy the context, and with it this visit. Once it is over, whoever still holds the copy
    is in no step: a stale step would make keys for work that nobody retries any more.
    """

    __slots__ = ("_outer", "_token", "open", "open_calls", "step")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.open = True
        self._outer = _visit.get()
        # Where a call made here is noted until it is finished. What is called in a step is called in all
        # steps around it, and keeps each of them from moving on.
        around = current_visit()
        self.open_calls: tuple[OpenCalls, ...] = () if around is None else around.open_calls
        if step.open_calls is not None:
            self.open_calls += (step.open_calls,)
        self._token: Token[Visit | None] | None = None

    def __enter__(self) -> Visit:
        self._token = _visit.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False
        if self._token is None:
            if _visit.get() is self:  # interrupted on the way in
                _visit.set(self._outer)
            return
        try:
            _visit.reset(self._token)
        except ValueError:
            # Left in another context than entered (an async generator, a fixture): closing it is enough.
            pass


_visit: ContextVar[Visit | None] = ContextVar("semel_step", default=None)
forget_in_pools(_visit)


def current_visit() -> Visit | None:
    """The step that this code runs in, with the lists in which a call made here is noted."""
    visit = _visit.get()
    return visit if visit is not None and visit.open else None


def current_step() -> Step | None:
    """The step that this code runs in."""
    visit = current_visit()
    return None if visit is None else visit.step


@contextmanager
def outside_step() -> Iterator[None]:
    """Hide the present step from what is called inside: a server in its client's process is not in it."""
    token = _visit.set(None)
    try:
        yield
    finally:
        try:
            _visit.reset(token)
        except ValueError:
            # Left in another context than entered, where nothing was hidden.
            pass


def open_step(
    ledger: Ledger,
    conversation: str | None,
    step: str,
    scopes: Iterable[str] | None,
    principal: str | None,
) -> Step:
    """A step; inside another one of its conversation it continues that one's path, scopes and principal."""
    outer = current_step()
    if outer is None or outer.ledger is not ledger or conversation not in (None, outer.conversation):
        if conversation is None:
            raise StepError("A step needs a conversation, unless it is opened inside another step.")
        return Step(ledger, conversation, (step,), scopes or (), principal or "")
    return Step(
        ledger,
        outer.conversation,
        (*outer.path, step),
        outer.scopes if scopes is None else scopes,
        outer.principal if principal is None else principal,
    )


def resumed_step(ledger: Ledger, carried: Mapping[str, Any]) -> Step:
    """The step that `carry()` described; StepError if it is of another tenant or store, or was changed."""
    if not isinstance(carried, Mapping):
        raise StepError(f"This is not what step.carry() gave, but {type(carried).__name__}.")
    _check_format(carried)
    if missing := _CARRIED - carried.keys():
        raise StepError(f"This is not what step.carry() gave: {', '.join(sorted(missing))} is missing.")
    if carried["tenant"] != ledger.tenant:
        raise StepError("The carried step belongs to another tenant.")
    if not _is_signed(carried, ledger.store.secret_key):
        raise StepError(
            "The carried step is not as step.carry() gave it: it was changed on its way, or is of another "
            "store. Nothing was opened."
        )
    return Step(
        ledger, carried["conversation"], tuple(carried["path"]), carried["scopes"], carried["principal"]
    )


def _check_format(carried: Mapping[str, Any]) -> None:
    form = carried.get("format")
    if form == 1:
        raise StepError(
            "The carried step was made by an older version, which did not sign it: carry it anew with this."
        )
    if form != CARRY_FORMAT:
        raise StepError(f"The carried step has format {form!r}; this version reads {CARRY_FORMAT}.")


def _is_signed(carried: Mapping[str, Any], secret_key: bytes) -> bool:
    content = {name: value for name, value in carried.items() if name != "signature"}
    try:
        expected = _signature(secret_key, content)
        return hmac.compare_digest(expected.encode(), str(carried["signature"]).encode())
    except (TypeError, UnicodeEncodeError):  # what no JSON has
        return False


def _signature(secret_key: bytes, content: Mapping[str, Any]) -> str:
    """An HMAC over all of it, under a key that is made for this purpose alone."""
    key = hmac.digest(secret_key, _CARRY_PURPOSE, "sha256")
    return hmac.digest(key, orjson.dumps(dict(content), option=orjson.OPT_SORT_KEYS), "sha256").hex()


class Conversation:
    """Numbers its steps. The number advances only when a step ends without an exception and unfinished calls.

    So a retry, in place or in the next turn, meets the number, and with it the keys, of what it retries.
    """

    def __init__(
        self, ledger: Ledger, name: str, at: int, scopes: Iterable[str] = (), principal: str = ""
    ) -> None:
        if not isinstance(at, int) or isinstance(at, bool) or at < 0:
            raise StepError(f"A conversation's position is a whole number from 0, not {at!r}.")
        self._ledger = ledger
        self.name = _name("conversation", name)
        self._scopes = frozenset((scopes,) if isinstance(scopes, str) else scopes)
        self._principal = principal
        self._open: Step | None = None
        self._calls = OpenCalls()
        self._path_text = ""  # of the steps at this position, once there was one
        self.position = at

    @property
    def unfinished(self) -> tuple[Unfinished, ...]:
        """The calls at the present position that are in doubt, in flight, waiting for a person or retriable.

        Calls that were made elsewhere, through `carry` or by an earlier process, are not among them.
        """
        return self._calls.listed()

    def skip(self) -> None:
        """Move on although calls are unfinished: the next step has other keys. The audit log says so.

        StepError while a step is open. What was in doubt stays so, and may be performed once more from here.
        """
        if self._open is not None:
            raise StepError("The step is still open: leave it, then skip it.")
        keeper, store = self._ledger.keeper, self._ledger.store
        path = self._path_text or orjson.dumps((str(self.position),)).decode()
        now_us = store.clock.now_us()
        keeper.write(
            skipped_events(self._ledger.tenant, self.name, path, self._principal, self.unfinished, now_us)
        )
        self._advance()

    def _advance(self) -> None:
        # A new list, because tasks that outlive the step still hold the one that they were noted in.
        self._calls, self._path_text = OpenCalls(), ""
        self.position += 1

    def step(self, *, scopes: Iterable[str] | None = None, principal: str | None = None) -> Step:
        """The step at the present position; a retry in place meets the same number."""
        return _NumberedStep(
            self,
            self._scopes if scopes is None else scopes,
            self._principal if principal is None else principal,
        )


class _NumberedStep(Step):
    def __init__(self, conversation: Conversation, scopes: Iterable[str], principal: str) -> None:
        ledger, self._number = conversation._ledger, conversation.position
        outer = current_step()
        nested = outer is not None and outer.ledger is ledger and outer.conversation == conversation.name
        path = outer.path if outer is not None and nested else ()
        super().__init__(ledger, conversation.name, (*path, str(self._number)), scopes, principal)
        self._of = conversation
        self.open_calls = conversation._calls

    def _refuse_if_over(self) -> None:
        # A call that comes late would be in no list of unfinished ones, and its retry has another key.
        if self._number != self._of.position:
            raise StepError("This step is over: ask the conversation for its next one.")

    def __enter__(self) -> Self:
        if self._of._open is not None:
            raise StepError(
                "This conversation already has an open step; steps of one conversation follow each other."
            )
        self._refuse_if_over()
        super().__enter__()
        self._of._open, self._of._path_text = self, self.path_text
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._of._open = None
        if kind is None and not self._of._calls:
            self._of._advance()


def _name(what: str, text: object) -> str:
    """A conversation's or step's name as it goes into keys; StepError if it cannot."""
    if not isinstance(text, str) or not text:
        raise StepError(f"The {what} is named by a text that is not empty, not by {text!r}.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise StepError(f"The {what}'s name is not valid text: it has a lone surrogate.") from None
    if size > NAME_BYTES_MAX:
        raise StepError(f"The {what}'s name has {size} bytes; at most {NAME_BYTES_MAX} are allowed.")
    return text
