"""Which requests are guarded, and the order of checks: key, caller, size, then the guard."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Literal, TypeVar, get_args

from semel.call.guarded_call import Call
from semel.call.step import Step
from semel.contract.http_answer import HttpAnswer, RouteContract
from semel.errors import ContractError
from semel.integrations.asgi import incoming
from semel.integrations.asgi.incoming import Headers, KeyedRequest, Left
from semel.integrations.asgi.outgoing import (
    RELEASED_BY_DEFAULT,
    Application,
    Receive,
    RequestRefused,
    Scope,
    Send,
    send_again,
    send_problem,
)
from semel.integrations.asgi.passage import EdgeRules, On5xx, Passage
from semel.kernel.durations import Duration
from semel.kernel.keys import derive, tool_frame
from semel.ledger.ledger import Ledger

T = TypeVar("T")

CallerOf = Callable[[Scope], str | Awaitable[str | None] | None]

# A record is read and written whole: a longer answer is not one to keep in it.
_BODY_BYTES_MAX = 16 << 20

# The key of a request follows from its caller and what the caller sent; this makes it no key of a tool.
_FRAME = tool_frame("http", 1)

# In a scope: who guards the request already.
_GUARDED = "semel.guarded"

# Names of routes that are held: more than an application has.
_ROUTES_MAX = 1_024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class IdempotencyMiddleware:
    """The same request with the same `Idempotency-Key` reaches the application once, and has one answer.

    `docs/how-to/http-edge.md` has every case. Requests without a key, other methods and paths, websockets and
    the lifespan pass untouched. ContractError for options that cannot be kept.
    """

    def __init__(
        self,
        application: Application | None = None,
        /,
        *,
        ledger: Ledger,
        methods: Iterable[str] = ("POST", "PATCH"),
        paths: Iterable[str | re.Pattern[str]] | str | re.Pattern[str] | None = None,
        required: bool = False,
        caller: CallerOf | None = None,
        cookies: Iterable[str] = ("session", "sessionid"),
        anonymous: Literal["share"] | None = None,
        window: Duration = "24h",
        run_limit: Duration = "15m",
        max_body: int = 1 << 20,
        on_unknown: Literal["park", "rerun"] = "park",
        on_5xx: On5xx = "replay",
        release: Iterable[int] = RELEASED_BY_DEFAULT,
        app: str | Application = "",
    ) -> None:
        if not isinstance(app, str):
            application, app = app, ""  # as some frameworks hand it over: by that name
        if not callable(application):
            raise ContractError("IdempotencyMiddleware(app, ledger=…) goes around an ASGI application.")
        self._application = application
        self._ledger = _checked_ledger(ledger)
        self._methods = frozenset(_texts("methods", methods, upper=True))
        self._prefixes, self._patterns = _paths(paths)
        self._everywhere = paths is None
        self._required = required
        self._caller = _function(caller)
        self._cookies = _texts("cookies", cookies)
        self._shares = _one_of("anonymous", anonymous, ("share", None)) == "share"
        self._conversation = _conversation(app)
        self._mark = (id(ledger), self._conversation)
        self._bytes_max = _bounded(max_body)
        self._rules = EdgeRules(
            self._bytes_max, _one_of("on_5xx", on_5xx, get_args(On5xx)), _statuses(release)
        )
        policy = _one_of("on_unknown", on_unknown, ("park", "rerun"))
        contract = RouteContract(window=window, run_limit=run_limit, on_unknown=policy)
        self._route = lru_cache(_ROUTES_MAX)(contract.named)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._covers(scope) or self._guards_already(scope):
            await self._application(scope, receive, send)
            return
        try:
            admitted = await self._admitted(scope, receive, send)
        except RequestRefused as refused:
            await send_problem(send, refused)
            return
        except Left:
            return
        match admitted:
            case None:
                await self._application(scope, receive, send)
            case HttpAnswer():
                await send_again(send, admitted)
            case Passage():
                scope[_GUARDED] = (*scope.get(_GUARDED, ()), self._mark)
                await admitted.run(self._application, scope)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> Passage | HttpAnswer | None:
        """The way through the application, an earlier request's answer, or None for one without a key."""
        request = await self._request(scope, receive)
        if request is None:
            return None
        passage = Passage(self._call(request), request, self._rules, receive, send)
        return await passage.claim() or passage

    def _guards_already(self, scope: Scope) -> bool:
        """Whether this is the second of two around one application, which would wait for the first."""
        return self._mark in scope.get(_GUARDED, ())

    def _covers(self, scope: Scope) -> bool:
        if scope["method"].upper() not in self._methods:
            return False
        if self._everywhere:
            return True
        path = incoming.own_path(scope)
        return path.startswith(self._prefixes) or any(pattern.search(path) for pattern in self._patterns)

    # --- the request ------------------------------------------------------------------------------

    async def _request(self, scope: Scope, receive: Receive) -> KeyedRequest | None:
        """The request, whole; None if it has no key and needs none. Nothing has been done with it."""
        headers = incoming.headers_of(scope)
        key = incoming.key_of(headers)
        if key is None and self._required:
            raise RequestRefused(
                "idempotency_key_missing",
                "The application was not called. Send the header Idempotency-Key with a new UUID for each "
                "request that you mean, and the same one whenever you send that request again.",
            )
        if key is None:
            return None
        caller = await self._digest_of_caller(scope, headers)
        body = await incoming.read_body(headers, receive, self._bytes_max)
        return KeyedRequest(
            key,
            caller,
            scope["method"].upper(),  # as some frameworks take small letters
            incoming.full_path(scope),
            scope.get("query_string", b""),
            b", ".join(headers.get(b"content-type", ())),
            body,
            scope.get("scheme", "http"),
            b"".join(headers.get(b"host", ())[:1]),
            scope.get("raw_path") or b"",
        )

    async def _digest_of_caller(self, scope: Scope, headers: Headers) -> str:
        parts: tuple[bytes, ...] | None
        if self._caller is None:
            parts = incoming.credentials(headers, self._cookies)
        else:
            given = self._caller(scope)
            name = await given if inspect.isawaitable(given) else given
            if not (name is None or isinstance(name, str)):
                raise TypeError(f"caller= gives a text that names the caller, or None, not {name!r}")
            parts = (b"caller", name.encode("utf-8", "surrogatepass")) if name else None
        if parts is None and not self._shares:
            raise RequestRefused(
                "idempotency_caller_unknown",
                "A key belongs to who sends it, and this request does not say who that is; the application "
                "was not called. Send it with the credentials that the application knows you by.",
            )
        return incoming.caller_digest(self._ledger.store.secret_key, parts or (b"anonymous",))

    def _call(self, request: KeyedRequest) -> Call:
        """The request as a call of the application; the request is a step, whose name is the client's key."""
        ledger = self._ledger
        step = Step(ledger, self._conversation + request.caller, (request.key,))
        key = derive(step.seed, _FRAME, b"")
        canonical = request.digest(ledger.store.secret_key)
        call = Call(
            self._route(request.route), ledger, key, request.shown(), None, canonical, None, None, None
        )
        call.step = step
        return call


# --- options --------------------------------------------------------------------------------------


def _checked_ledger(ledger: Ledger) -> Ledger:
    if not isinstance(ledger, Ledger):
        raise ContractError(f"ledger= is a ledger, as semel.open(…) gives one, not {ledger!r}.")
    return ledger


def _conversation(app: str) -> str:
    """What the conversations of all callers of an application begin with."""
    if app and not _NAME.fullmatch(app):
        raise ContractError(
            f"app= names the application with letters, digits and . _ : -, at most 128 of them, not {app!r}."
        )
    return f"http/{app}/" if app else "http/"


def _texts(option: str, given: Iterable[str], *, upper: bool = False) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(text, str) and text for text in texts):
        raise ContractError(f"{option}= takes texts, not {given!r}.")
    return tuple(text.upper() for text in texts) if upper else texts


def _paths(
    given: Iterable[str | re.Pattern[str]] | str | re.Pattern[str] | None,
) -> tuple[tuple[str, ...], tuple[re.Pattern[str], ...]]:
    paths = (given,) if isinstance(given, str | re.Pattern) else tuple(given or ())
    prefixes = tuple(path for path in paths if isinstance(path, str))
    patterns = tuple(path for path in paths if isinstance(path, re.Pattern) and isinstance(path.pattern, str))
    if len(prefixes) + len(patterns) < len(paths) or not all(path.startswith("/") for path in prefixes):
        raise ContractError(f"paths= takes prefixes like '/charges' or compiled patterns, not {given!r}.")
    return prefixes, patterns


def _one_of(option: str, given: T, choices: tuple[T, ...]) -> T:
    if given not in choices:
        raise ContractError(f"{option}= is one of {', '.join(map(repr, choices))}, not {given!r}.")
    return given


def _bounded(max_body: int) -> int:
    if not isinstance(max_body, int) or isinstance(max_body, bool) or not 1 <= max_body <= _BODY_BYTES_MAX:
        raise ContractError(f"max_body= is a number of bytes from 1 to {_BODY_BYTES_MAX}, not {max_body!r}.")
    return max_body


def _function(caller: CallerOf | None) -> CallerOf | None:
    if caller is not None and not callable(caller):
        raise ContractError(f"caller= is a function of the ASGI scope that names the caller, not {caller!r}.")
    return caller


def _statuses(given: Iterable[int]) -> frozenset[int]:
    statuses = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(status, int) and 200 <= status <= 599 for status in statuses):
        raise ContractError(f"release= takes statuses of HTTP, such as {{412}}, not {given!r}.")
    return frozenset(map(int, statuses))
