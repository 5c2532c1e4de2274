"""From a request to a page: whose it is, whether it may be believed, which page, and what went wrong."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Protocol
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, compile_path
from starlette.types import Receive, Scope, Send

from semel.console import audit, jobs, lists, overview, questions, records, runs, sign_in, tools
from semel.console.operations import RouteOperations
from semel.console.protection import HEADERS, Protection, is_token
from semel.console.sessions import ConsoleSession, Sessions
from semel.console.visit import ROOT, PageVisit, address_of, redirect, rendered
from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.gateway import problems
from semel.gateway.app import Asgi, GatewayChecks, Pages
from semel.gateway.auth import KeyAuthenticator
from semel.gateway.incoming import Disconnected, Incoming
from semel.gateway.ratelimit import RateLimit
from semel.questions.refusals import Refusal

Page = Callable[[PageVisit], Awaitable[Response]]


class FormPage(Protocol):
    """A page that can say that something was refused, with what was entered in its fields."""

    async def __call__(self, visit: PageVisit, refused: Refusal | None = None) -> Response: ...


COOKIE, BEFORE = "semel_console", "semel_sign_in"

# A person mistypes a few times; a program that guesses is slowed to ten tries a minute from one address.
_TRIES, _TRIES_PER_S = 10.0, 1 / 6

_FIELDS_MAX = 64

_NONCE = re.compile(r"[0-9a-f]{64}")

_OF_ANOTHER_SESSION = Refused(
    "forbidden",
    "This page was drawn for an earlier session of yours. What you entered is in its field: look once more "
    "and send it.",
)

_MEDIA = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}

_SHOWN: dict[str, Page] = {
    "/": overview.show,
    "/in-doubt": lists.in_doubt,
    "/records": lists.records,
    "/approvals": lists.approvals,
    "/runs": lists.runs,
    "/jobs": lists.jobs,
    "/dead-letters": lists.dead_letters,
    "/tools": lists.tools,
    "/tools/{tool_name}": tools.show,
    "/tools/{tool_name}/ages": tools.ages,
    "/tools/{tool_name}/duplicates": tools.duplicates,
    "/audit": audit.show,
    "/audit/export": audit.export,
}

_WITH_FORMS: dict[str, FormPage] = {
    "/records/{record_id}": records.show,
    "/approvals/{job_id}": questions.show,
    "/runs/{run_id}": runs.show,
    "/jobs/{job_id}": jobs.show,
    "/dead-letters/{letter_id}": jobs.show_letter,
}

DONE: dict[str, Page] = {
    "/records/{record_id}/resolve": records.resolve,
    "/records/{record_id}/amend": records.amend,
    "/records/{record_id}/probe": records.probe,
    "/approvals/{job_id}/approve": questions.approve,
    "/approvals/{job_id}/reject": questions.reject,
    "/runs/{run_id}/cancel": runs.cancel,
    "/runs/{run_id}/rerun": runs.rerun,
    "/jobs/{job_id}/cancel": jobs.cancel,
    "/dead-letters/{letter_id}/retry": jobs.retry_letter,
}

# The form that goes to an address stands on the page whose address is the same without what is done.
_FORMS_OF = [(compile_path(ROOT + path)[0], _WITH_FORMS[path.rpartition("/")[0]]) for path in DONE]


def pages(once: OneTimeToken | None = None) -> Pages:
    """The console of a gateway; with a one-time token, that of a store alone."""

    def make(gateway: GatewayChecks) -> Asgi:
        return Console(gateway, once).app

    return make


class OneTimeToken:
    """Whoever has it first is this person."""

    def __init__(self, token: str, caller: Caller) -> None:
        self._token: str | None = token
        self._caller = caller

    def take(self, given: str) -> Caller:
        if self._token is None or not hmac.compare_digest(given.encode(), self._token.encode()):
            raise Refused(
                "unauthenticated",
                "This address was used before, or it is an old one: it opens the console once. "
                "Start `semel console` again for a new one.",
            )
        self._token = None
        return self._caller


class Console:
    def __init__(self, gateway: GatewayChecks, once: OneTimeToken | None) -> None:
        self._gateway, self._services, self._once = gateway, gateway.services, once
        services = self._services
        way, self._cookie = "dev" if services.settings.dev else "key", COOKIE
        if once is not None:
            way = services.clock.token().hex()  # of this process: they end with it
            # A browser keeps one cookie of a name for all ports; every store has a console of its own.
            self._cookie = f"{COOKIE}_{way[:8]}"
        self._sessions = Sessions(services.flow.document_store, way)
        self._keys = KeyAuthenticator(services.api_keys, services.clock)
        self._protection = Protection(services.settings, services.store.secret_key)
        self._tries = RateLimit(_TRIES_PER_S, _TRIES, services.clock)
        table = [
            Route(f"{ROOT}/sign-in", self._guarded(self._sign_in), methods=["GET", "POST"]),
            Route(f"{ROOT}/sign-out", self._guarded(self._sign_out), methods=["POST"]),
            Route(f"{ROOT}/static/{{name}}", self._static, methods=["GET"]),
            Route(ROOT, self._to_root, methods=["GET"]),
        ]
        shown: dict[str, Page] = {**_SHOWN, **_WITH_FORMS}
        for path, page in shown.items():
            table.append(Route(ROOT + path, self._guarded(self._visited(page)), methods=["GET"]))
        for path, page in DONE.items():
            table.append(Route(ROOT + path, self._guarded(self._visited(page)), methods=["POST"]))
            table.append(Route(ROOT + path, _to_its_page, methods=["GET"]))
        self._starlette = Starlette(routes=table, exception_handlers={404: _nowhere, 405: _nowhere})
        # It would send browsers to whatever host the request names.
        self._starlette.router.redirect_slashes = False

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._starlette(scope, receive, send)

    # --- what every request passes ------------------------------------------------------------------

    def _guarded(
        self, answer: Callable[[Request, dict[str, str]], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                self._protection.check_host(request.headers)
                form: dict[str, str] = {}
                if request.method == "POST":
                    self._protection.check_origin(request.headers)
                    form = _fields(await Incoming(request.scope, request.receive).body())
                return await answer(request, form)
            except Disconnected:
                return Response()  # nobody is there to be answered, and nothing was done
            except Exception as error:
                return _refused(problems.problem_of(error, self._services.clock))

        return guarded

    def _visited(self, page: Page) -> Callable[[Request, dict[str, str]], Awaitable[Response]]:
        async def visited(request: Request, form: dict[str, str]) -> Response:
            session = await self._session(request)
            if session is None:
                if request.method == "POST":
                    form.pop("token", None)
                    return self._ask_in(request, action=request.url.path, kept=form)
                return self._ask_in(request, address_of(request))
            token = form.pop("token", "")
            if request.method == "POST" and not is_token(token, session.form_token(request.url.path)):
                return await self._drawn_again(request, session, request.url.path, form, _OF_ANOTHER_SESSION)
            visit = await self._visit(request, session, form)
            try:
                return await page(visit)
            except Disconnected:
                raise
            except Exception as error:
                return self._no_page(visit, error)

        return visited

    def _no_page(self, visit: PageVisit, error: Exception) -> Response:
        problem = problems.problem_of(error, self._services.clock)
        response = visit.refused(problem)
        _tell(response, problem)
        return response

    async def _visit(self, request: Request, session: ConsoleSession, form: Mapping[str, str]) -> PageVisit:
        operations = RouteOperations(self._gateway, session.caller)
        now_us = await self._services.flow.document_store.now_us()
        return PageVisit(request, self._services, session, operations, now_us, self._once is not None, form)

    async def _drawn_again(
        self,
        request: Request,
        session: ConsoleSession,
        action: str,
        form: Mapping[str, str],
        refused: Refusal | None = None,
        told: str = "",
    ) -> Response:
        """The page whose form goes to `action`, as it is now, with what was entered in its fields."""
        for pattern, show in _FORMS_OF:
            if match := pattern.match(action):
                address = action.rpartition("/")[0]
                scope: Scope = {
                    **request.scope,
                    "path": address,
                    "raw_path": address.encode(),
                    "query_string": f"told={told}".encode(),
                    "path_params": match.groupdict(),
                }
                return await show(await self._visit(Request(scope), session, form), refused)
        return redirect(f"{ROOT}/")

    async def _session(self, request: Request) -> ConsoleSession | None:
        token = request.cookies.get(self._cookie)
        # A page that refreshes itself says so; it is open, which is not the same as used.
        by_itself = request.headers.get("hx-request") == "true"
        session = await self._sessions.find(token, by_itself) if token else None
        if session is not None and session.key_id:
            key = await self._services.api_keys.find(session.key_id)
            if key is None or key.revoked_us is not None:
                return None
        return session

    # --- signing in and out ---------------------------------------------------------------------------

    def _ask_in(
        self,
        request: Request,
        back: str = "",
        action: str = "",
        kept: Mapping[str, str] | None = None,
        refused: Refusal | None = None,
    ) -> Response:
        """The page to sign in with. What was sent to `action` without a session is kept in it."""
        # The same in every tab, or signing in would work in the last one only.
        nonce = request.cookies.get(BEFORE, "")
        if not _NONCE.fullmatch(nonce):
            nonce = self._services.clock.token(2).hex()
        response = rendered(
            "sign_in.html",
            401 if refused is None else problems.status_of(refused),
            dev=self._services.settings.dev,
            alone=self._once is not None,
            refused=refused,
            token=self._protection.token_before(nonce),
            back=back,
            action=action,
            kept=kept or {},
        )
        if refused is not None:
            _tell(response, refused)
        self._set(response, BEFORE, nonce)
        return response

    async def _sign_in(self, request: Request, form: dict[str, str]) -> Response:
        if request.method != "POST":
            given = request.query_params.get("token")
            if self._once is None or given is None or request.method == "HEAD":
                return self._ask_in(request, f"{ROOT}/")
            return await self._begun(request, redirect(f"{ROOT}/"), self._once.take(given))
        back, action = (form.get(name, "") for name in ("back", "action"))
        kept = {name[5:]: value for name, value in form.items() if name.startswith("kept.")}
        try:
            caller, key_id = await self._person(request, form)
        except Refused as problem:
            return self._ask_in(request, back, action, kept, problem)
        if not action:
            page = redirect(back if _is_page(back) else f"{ROOT}/")
            return await self._begun(request, page, caller, key_id)
        return await self._begun(request, None, caller, key_id, action, kept)

    async def _person(self, request: Request, form: Mapping[str, str]) -> tuple[Caller, str]:
        """Who signs in, and the id of their key; Refused if nobody knows, or too many guesses came before."""
        address = request.client.host if request.client else ""
        try:
            self._tries.take(address)
        except Refused as slower:
            wait = slower.retry_after_s
            advice = "Too many sign-ins failed from your address. Wait a minute, and sign in again."
            raise Refused("too_many_requests", advice, retry_after_s=wait) from None
        expected = self._protection.token_before(request.cookies.get(BEFORE, ""))
        if not is_token(form.get("token", ""), expected):
            raise Refused("forbidden", "This page was too old to sign in with. Sign in once more.")
        person = await self._who(form)
        self._tries.give_back(address)  # only failed ones count
        return person

    async def _who(self, form: Mapping[str, str]) -> tuple[Caller, str]:
        if self._services.settings.dev:
            return sign_in.by_name(form.get("name", ""), form.get("tenant", "")), ""
        return await sign_in.by_key(self._keys, form.get("key", ""))

    async def _begun(
        self,
        request: Request,
        response: Response | None,
        caller: Caller,
        key_id: str = "",
        action: str = "",
        kept: Mapping[str, str] | None = None,
    ) -> Response:
        """Signed in, under a new token: one that was there before is good for nothing any more."""
        if before := request.cookies.get(self._cookie):
            await self._sessions.end(before)
        token = await self._sessions.begin(caller, key_id)
        if response is None:
            session = await self._sessions.find(token)
            assert session is not None
            try:
                response = await self._drawn_again(
                    request, session, action, kept or {}, told="signed-in-again"
                )
            except Exception as error:  # signed in all the same
                response = _refused(problems.problem_of(error, self._services.clock))
        self._set(response, self._cookie, token)
        self._drop(response, BEFORE)
        return response

    async def _sign_out(self, request: Request, form: dict[str, str]) -> Response:
        session, token = await self._session(request), request.cookies.get(self._cookie)
        if session is not None and token is not None:
            if not is_token(form.get("token", ""), session.form_token(request.url.path)):
                raise Refused("forbidden", "The form is of another session. You are still signed in.")
            await self._sessions.end(token)
        response = redirect(f"{ROOT}/sign-in")
        self._drop(response, self._cookie)
        return response

    def _set(self, response: Response, name: str, value: str) -> None:
        response.set_cookie(
            name, value, path=ROOT, httponly=True, samesite="strict", secure=self._protection.secure
        )

    def _drop(self, response: Response, name: str) -> None:
        response.delete_cookie(
            name, path=ROOT, httponly=True, samesite="strict", secure=self._protection.secure
        )

    # --- the rest -------------------------------------------------------------------------------------

    async def _static(self, request: Request) -> Response:
        file = _STATIC.get(request.path_params["name"])
        if file is None:
            return _refused(Refused("not_found"))
        # The same for everybody, and named by the version: a new release is another address.
        headers = HEADERS | {"cache-control": "public, max-age=3600"}
        return Response(file[0], headers=headers, media_type=file[1])

    async def _to_root(self, _: Request) -> RedirectResponse:
        return redirect(f"{ROOT}/")


def _read_static() -> dict[str, tuple[bytes, str]]:
    folder = resources.files("semel.console") / "static"
    return {
        file.name: (file.read_bytes(), _MEDIA[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _MEDIA
    }


_STATIC = _read_static()


def _fields(body: bytes) -> dict[str, str]:
    """A form as browsers send it; of a name that is given twice, the last value."""
    try:
        return dict(
            parse_qsl(
                body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
            )
        )
    except ValueError:
        raise Refused("request_invalid", "The form cannot be read. Nothing was done.") from None


async def _to_its_page(request: Request) -> Response:
    """Somebody opened the address of a form: its page, and nothing is done."""
    return redirect(request.url.path.rpartition("/")[0])


def _is_page(address: str) -> bool:
    """An address of ours, and of nobody else."""
    return address.startswith(f"{ROOT}/") and "\\" not in address and address.isprintable()


def _refused(problem: Refusal) -> Response:
    response = rendered("refused.html", problems.status_of(problem), problem=problem)
    _tell(response, problem)
    return response


def _tell(response: Response, problem: Refusal) -> None:
    headers = {name.decode(): value.decode() for name, value in problems.headers(problem)}
    headers.pop("www-authenticate", None)  # a browser would ask in its own way
    response.headers.update(headers)


async def _nowhere(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow", "").split(", ")
    return _refused(
        Refused("not_found") if error.status_code == 404 else Refused("method_not_allowed", allow=allowed)
    )
