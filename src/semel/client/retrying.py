"""One intention from its first try to its answer: what is tried again, when, and for how long.

Written once, for both clients: a decider yields a wish, `Try` or `PauseFor`, and receives what came of it. It
reads the clock and draws chance, and does nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic_core import from_json

from semel.client.answer import Answer, read
from semel.client.problem import Problem, problem
from semel.client.routes import ClientRoute, Repeat
from semel.kernel.clock import Clock
from semel.kernel.problem_details import MEDIA

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A", bound=Answer)

# Full jitter: evenly between nothing and this, which doubles with every try. A gateway that restarts is back
# after the fourth or fifth; nobody is asked less often than every few seconds.
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0

# Refusals that come before anything is begun, so that not even a lease can have happened.
NOT_BEGUN = frozenset({"too_many_requests", "gateway_stopping", "request_timeout", "check_unavailable"})

# Whole ones, as HTTP has it; parts of them are understood too.
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

# As many items as a page may have: each page is a round trip.
PAGE_MAX = 200


# --- wishes, and what comes of them -----------------------------------------------------------------


class Try(NamedTuple):
    """Send this; the answer is a WireAnswer, or Silence."""

    method: str
    path: str
    query: Mapping[str, str]
    content: bytes | None
    headers: Mapping[str, bytes]
    request_id: str
    for_s: float  # everything: connecting, sending, and the whole answer


class PauseFor(NamedTuple):
    """Let so many seconds pass; the answer is whether the client was closed meanwhile."""

    seconds: float


class WireAnswer(NamedTuple):
    """Somebody answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Silence(NamedTuple):
    """Nobody answered, or not to this request."""

    cause: str
    begun: bool  # whether the request may have arrived
    code: str = "unreachable"
    last: bool = False  # whether the client was closed meanwhile, and cannot try again


Wish = Try | PauseFor
Deciding = Generator[Wish, Any, T]


class Patience(NamedTuple):
    """How long one intention is pursued, and where."""

    clock: Clock
    shown: str  # the gateway's address, without a password
    within_s: float
    try_for_s: float
    tries: int | None = None  # None: as many as there is time for

    def rest(self, give_up: float) -> Patience:
        """What is left of it at this moment."""
        return self._replace(within_s=max(0.0, give_up - self.clock.monotonic()))


class Asking(Protocol[T_co]):
    """Something to ask a gateway for."""

    def decide(self, patience: Patience) -> Generator[Wish, Any, T_co]: ...


# --- one request ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientRequest(Generic[T]):
    """One request, with however many tries it takes."""

    route: ClientRoute
    path: str
    understand: Callable[[Any, bool], T]  # what the JSON of a success is, and whether it is a replay
    query: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    key: str | None = None
    waits_s: float = 0.0  # as long the gateway was asked to wait, which is not its being slow
    gone: T | None = None  # what is answered if an earlier try did it

    def decide(self, patience: Patience) -> Deciding[T]:
        """The answer; Problem if it is refused for good, or time or tries are over."""
        clock = patience.clock
        give_up = clock.monotonic() + patience.within_s + self.waits_s
        tries, unsure = 0, False
        while True:
            tries += 1
            answer = yield self._try(patience, give_up - clock.monotonic())
            try:
                return self._understood(answer, patience.shown)
            except Problem as wrong:
                if unsure and self.gone is not None and wrong.code == self.route.gone:
                    return self.gone
                unsure = unsure or _may_have_begun(answer, wrong)
                if not self._goes_on(answer, wrong) or tries == patience.tries:
                    raise
                pause_s = _pause_s(tries, wrong.retry_after_s, clock)
                if clock.monotonic() + pause_s >= give_up:
                    raise
                refusal = wrong
            if (yield PauseFor(pause_s)):
                raise refusal

    def _try(self, patience: Patience, left_s: float) -> Try:
        request_id = patience.clock.token().hex()
        headers = {**self.headers, "X-Request-Id": request_id.encode()}
        for_s = min(left_s, patience.try_for_s + self.waits_s)
        return Try(self.route.method, self.path, self.query, self.content, headers, request_id, for_s)

    def _goes_on(self, answer: WireAnswer | Silence, wrong: Problem) -> bool:
        if not wrong.retriable or (isinstance(answer, Silence) and answer.last):
            return False
        return self.route.repeat is not Repeat.NOT_BEGUN or not _may_have_begun(answer, wrong)

    def _understood(self, answer: WireAnswer | Silence, shown: str) -> T:
        wrong: Problem
        match answer:
            case Silence(cause, code=code):
                wrong = problem(code, f"{shown} does not answer: {cause}.", retriable=True, cause=cause)
            case WireAnswer(status=200):
                try:
                    replayed = answer.headers.get("idempotent-replayed") == "true"
                    return self.understand(from_json(answer.content), replayed)
                except ValueError:
                    wrong = _bad_gateway(answer, shown)
            case WireAnswer():
                wrong = _refusal(answer) or _bad_gateway(answer, shown)
                wrong.tenant = answer.headers.get("x-tenant-id")
        wrong.key = self.key
        raise wrong


def _may_have_begun(answer: WireAnswer | Silence, wrong: Problem) -> bool:
    return answer.begun if isinstance(answer, Silence) else wrong.code not in NOT_BEGUN


def _pause_s(tries: int, floor_s: float | None, clock: Clock) -> float:
    """Above the floor too they come back spread: all who were told the same do not come at once."""
    most_s: float = min(PAUSE_S_MAX, PAUSE_S * 2 ** min(tries, 16))
    return max(0.0, floor_s or 0.0) + clock.random() * most_s


# --- what an answer says ----------------------------------------------------------------------------


def understood_as(model: type[A]) -> Callable[[Any, bool], A]:
    return lambda raw, replayed: read(model, raw, replayed=replayed)


def _refusal(reply: WireAnswer) -> Problem | None:
    """The gateway's own words; None if they are somebody else's."""
    if not reply.headers.get("content-type", "").startswith(MEDIA):
        return None
    try:
        members = dict(from_json(reply.content))
        code, retriable, detail = (members.pop(name) for name in ("code", "retriable", "detail"))
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(code, str) or not isinstance(retriable, bool):
        return None
    for name in ("type", "title", "status"):
        members.pop(name, None)
    after_s = _retry_after_s(reply)
    made = problem(code, str(detail), retriable=retriable, status=reply.status, retry_after_s=after_s)
    made.details.update(members)
    return made


def _bad_gateway(reply: WireAnswer, shown: str) -> Problem:
    return problem(
        "bad_gateway",
        f"{shown} answers {reply.status}, and not as a gateway does.",
        retriable=True,
        status=reply.status,
        retry_after_s=_retry_after_s(reply),
    )


def _retry_after_s(reply: WireAnswer) -> float | None:
    """Seconds, or the moment that somebody else's page names, counted from the moment of its answer."""
    value = reply.headers.get("retry-after", "")
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        then, now = (parsedate_to_datetime(text) for text in (value, reply.headers.get("date", "")))
        return max(0.0, (then - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


# --- several requests -------------------------------------------------------------------------------


class ListedPages(Generic[T]):
    """A list, page by page: `request` asks for the next one, `took` gives its items."""

    def __init__(
        self, first: ClientRequest[ListedPage[T]], limit: int | None, *, whole: bool = False
    ) -> None:
        self._first, self._left = first, limit
        self._whole = whole  # the list has one page, and takes no limit
        self._cursor: str | None = None
        self._more = limit != 0

    def request(self) -> ClientRequest[ListedPage[T]] | None:
        """None at the end."""
        if not self._more:
            return None
        if self._whole:
            return self._first
        size = PAGE_MAX if self._left is None else min(self._left, PAGE_MAX)
        cursor = {} if self._cursor is None else {"cursor": self._cursor}
        return replace(self._first, query={**self._first.query, "limit": str(size), **cursor})

    def took(self, page: ListedPage[T]) -> list[T]:
        if self._left is not None:
            self._left -= len(page.items)
        self._cursor = page.next_cursor
        self._more = self._cursor is not None and self._left != 0
        return page.items


class ListedPage(NamedTuple, Generic[T]):
    items: list[T]
    next_cursor: str | None


def pages_of(model: type[A]) -> Callable[[Any, bool], ListedPage[A]]:
    def understand(raw: Any, _: bool) -> ListedPage[A]:
        try:
            return ListedPage([read(model, item) for item in raw["items"]], raw.get("next_cursor"))
        except (TypeError, KeyError, AttributeError):
            raise ValueError("no list") from None

    return understand
