"""The gateway as an ASGI application: from a request to an answer; start and stop."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import orjson

from semel.errors import SemelError
from semel.flow.bus.base import Bus
from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.gateway import front_page, openapi, operate, problems, strict_json
from semel.gateway.auth import Authenticator, DevAuthenticator, KeyAuthenticator, check_role, check_tenant
from semel.gateway.background import background
from semel.gateway.exchange import Exchange, HttpReply
from semel.gateway.incoming import (
    REQUEST_ID,
    SMALL_BYTES_MAX,
    Disconnected,
    Incoming,
    Receive,
    Scope,
    checked,
)
from semel.gateway.key_ages import RetryAges
from semel.gateway.large_requests import LargeRequests
from semel.gateway.paths import PathTable
from semel.gateway.ratelimit import TOKEN_BYTES, RateLimit
from semel.gateway.retry_times import RetryTimes
from semel.gateway.routes import PATH_NAMES, ROUTES, Route
from semel.gateway.services import Services, assemble
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import rfc3339
from semel.kernel.large import LargeJson
from semel.stores.base import Store

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("semel.gateway.requests")

# Large bodies of one tenant that are here at once, arriving or waiting for their turn: each up to 2 MiB.
LARGE_BODIES_MAX = 16


Beside = Callable[[Services], Coroutine[Any, Any, None]]


Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Pages = Callable[["GatewayChecks"], Asgi]

# Where the pages of people are, if there are any.
CONSOLE = "/console"


def build(
    settings: GatewaySettings,
    store: Store,
    *,
    bus: Bus | None = None,
    beside: Beside | None = None,
    pages: Pages | None = None,
    alone: bool = False,
) -> GatewayApp:
    """The application on this store, which it closes when it stops.

    What is to go on `beside` requests is begun with it, and cancelled and waited for before it stops.
    `pages` makes the console; `alone` there is nothing but it, and nothing is sent to the bus.
    """
    return GatewayApp(assemble(settings, store, bus), beside, pages, alone=alone)


class GatewayApp:
    """What a server calls (ASGI): for each request, and once for start and stop."""

    def __init__(
        self,
        services: Services,
        beside: Beside | None = None,
        pages: Pages | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self.services = services
        self.failure: SemelError | None = None  # why it could not begin
        self._beside = beside
        self._alone = alone
        gateway = GatewayChecks(services)
        self._console = pages(gateway) if pages is not None else None
        resources = {} if alone else _resources(gateway)
        if self._console is not None:
            resources["/"] = OpenResource(gateway, front_page.to_console)
        self._resources: PathTable[Resource | OpenResource] = PathTable(resources)
        self._nowhere = Nowhere(gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._live(receive, send)
            return
        request_id = dict(reversed(scope["headers"])).get(REQUEST_ID)  # the first of several
        if request_id is not None:
            send = _with_request_id(send, request_id)
        path: str = scope["path"]
        if self._console is not None and path.startswith(CONSOLE) and path[len(CONSOLE) :][:1] in ("", "/"):
            await self._console(scope, receive, send)
            return
        resource, scope["path_params"] = self._resources.find(path)
        await (resource or self._nowhere)(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Started when the server says so, until it says stop; it hears of what goes wrong."""
        phase = "startup"
        await receive()
        try:
            async with self._running():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except BaseException:
            await send({"type": f"lifespan.{phase}.failed", "message": traceback.format_exc()})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Bus and background work run in between; afterwards they have ended and the store is closed."""
        services = self.services
        try:
            await services.bus.start()
        except SemelError as wrong:
            self.failure = wrong  # a server knows only that it could not begin; this says why
            raise
        works = background(services, alone=self._alone)
        if self._beside is not None:
            works.append(("beside", self._beside(services)))
        tasks = [asyncio.create_task(work, name=name) for name, work in works]
        try:
            yield
        finally:
            services.stopping.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            services.apart.close()
            await services.bus.stop()
            await services.store.aclose()


def _resources(gateway: GatewayChecks) -> dict[str, Resource | OpenResource]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    described = HttpReply(openapi.document())
    open_to_all: dict[str, Callable[[Services], Awaitable[HttpReply]]] = {
        "/healthz": operate.healthz,
        "/readyz": operate.readyz,
        "/metrics": operate.metrics_text,
        "/openapi.json": lambda _: _ready_made(described),
        "/": front_page.page,
    }
    return {
        **{path: Resource(gateway, routes) for path, routes in by_path.items()},
        **{path: OpenResource(gateway, answer) for path, answer in open_to_all.items()},
    }


def _with_request_id(send: Send, request_id: bytes) -> Send:
    """The answer says which request it is to: a client whose connection mixes answers up can tell."""

    async def named(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (REQUEST_ID, request_id)]
        await send(message)

    return named


async def _ready_made(reply: HttpReply) -> HttpReply:
    return reply


class GatewayChecks:
    """Checks in the order that the interface fixes, then the handler; whatever goes wrong is a problem."""

    def __init__(self, services: Services) -> None:
        settings, clock = services.settings, services.clock
        self.services = services
        self._dev, self._log = settings.dev, settings.log
        self._authenticator: Authenticator = (
            DevAuthenticator() if settings.dev else KeyAuthenticator(services.api_keys, clock)
        )
        # Under --dev tenants are free names, and nobody has to be protected from anybody.
        rate_per_s = 0.0 if settings.dev else settings.tenant_rate_per_s
        self._rate_limit = RateLimit(rate_per_s, settings.tenant_burst, clock)
        self._large = LargeRequests(LARGE_BODIES_MAX)
        self._ages = RetryAges(services)
        self._retry_times = RetryTimes(clock)

    async def answer(self, route: Route, request: Incoming) -> tuple[HttpReply, Caller | None]:
        """The reply, and who asked if that became known."""
        caller: Caller | None = None
        try:
            caller = await self._authenticator.caller(request)
        except Exception as error:
            return self.refusal(error), None
        return await self.answer_to(caller, route, request), caller

    async def answer_to(self, caller: Caller, route: Route, request: Incoming) -> HttpReply:
        """The reply to somebody who is known."""
        key: str | None = None
        call: Exchange | None = None
        try:
            check_role(caller, route.roles)
            if not self._dev:
                check_tenant(caller, request)
            self._rate_limit.take(caller.tenant)
            key = request.idempotency_key() if route.keyed else None
            query = request.query(route.query, keyed=bool(route.keyed))
            _check_path(request)
            call = Exchange(self.services, request, route.name, caller, request.path, key, query)
            reply = await (self._handled(route, call) if route.takes_body else route.handler(call))
        except Disconnected:
            raise
        except Exception as error:
            reply = self.refusal(error, caller.tenant)
        if call is not None and call.applied:
            reply = reply._replace(applied=call.applied)
        if route.keyed:
            self._count_claim(route, caller, key, reply)
        return reply

    async def _handled(self, route: Route, call: Exchange) -> HttpReply:
        """The answer to a request with a body. A large one counts as one of the tenant's until the end."""
        tenant = call.caller.tenant
        stack: ExitStack | None = None

        def large(size: int) -> None:
            nonlocal stack
            self._rate_limit.take(tenant, size / TOKEN_BYTES)
            stack = ExitStack()
            stack.enter_context(self._large.entry(tenant))

        if self.services.stopping.is_set():
            raise Refused("gateway_stopping")
        try:
            text = await call.request.body(large)
            if route.body_optional and not text.strip():
                return await _with_body(route, call, {})
            if len(text) <= SMALL_BYTES_MAX:
                return await _with_body(route, call, strict_json.parse(text))
            call.may_wait = False  # it has the turn, and is large
            async with self._large.turn(tenant):
                return await _with_body(route, call, await self._read_apart(route, tenant, text))
        finally:
            if stack is not None:
                stack.close()

    async def _read_apart(self, route: Route, tenant: str, text: bytes) -> Any:
        """A large body: what of it nobody looks into here stays bytes."""
        apart = self.services.apart
        if route.any_object:
            return await apart.forms(tenant, text)
        if route.large_member is None:
            await apart.check_sound(tenant, text)
            return orjson.loads(text)
        rest, member = await apart.member(tenant, route.large_member, text)
        sent = orjson.loads(rest)
        return sent if member is None else sent | {route.large_member: member}

    def refusal(self, error: Exception, tenant: str | None = None) -> HttpReply:
        problem = problems.problem_of(error, self.services.clock)
        if problems.tells_when(problem):
            problem.retry_after_s = self._retry_times.seconds(tenant, problem.retry_after_s)
        # The reply has the problem, whose traceback has the frames, one of which has the reply: together they
        # would stay until the collector comes, with bodies of megabytes among them.
        problem.__traceback__ = problem.__context__ = problem.__cause__ = None
        return HttpReply(problems.body(problem), problems.status_of(problem), problems.MEDIA, problem=problem)

    def _count_claim(self, route: Route, caller: Caller, key: str | None, reply: HttpReply) -> None:
        metrics = self.services.metrics
        if route.keyed in ("run", "rerun"):
            metrics.run_started(replayed=reply.replayed, problem=reply.problem)
        if key is not None and route.keyed is not None:
            metrics.claimed(route.keyed, replayed=reply.replayed, problem=reply.problem)
            if reply.replayed:
                self._ages.look_up(caller.tenant, route.keyed, key)

    def finish(self, name: str, method: str, reply: HttpReply, tenant: str | None, started: float) -> None:
        """The answer is counted and logged: which route, never which path; no header, body or key."""
        problem = reply.problem
        self.services.metrics.answered(name, reply.status, replayed=reply.replayed, problem=problem)
        if self._log == "none" or (self._log == "problems" and not problem):
            return
        clock = self.services.clock
        line = {
            "at": rfc3339(clock.now_us()),
            "method": _method_label(method),
            "route": name,
            "status": reply.status,
            "ms": round((clock.monotonic() - started) * 1_000, 3),
            "tenant": tenant,
            "replayed": reply.replayed,
            "code": problem and problem.code,
        }
        _log.info(orjson.dumps(line).decode())


def _with_body(route: Route, call: Exchange, sent: Any) -> Awaitable[HttpReply]:
    """The handler gets the body as the route's model has it, and as it was sent."""
    if route.body is not None:
        call.body = checked(route.body, sent, "body")
    elif not _is_object(sent):
        raise Refused("request_invalid", "The body is not a JSON object.", names=["body"])
    call.data = sent
    return route.handler(call)


def _is_object(sent: Any) -> bool:
    return isinstance(sent, dict) or (isinstance(sent, LargeJson) and sent.json[:1] == b"{")


def _check_path(request: Incoming) -> None:
    for name, value in request.path.items():
        pattern, code = PATH_NAMES[name]
        if not pattern.fullmatch(value):
            if code == "request_invalid":
                raise Refused(code, f"The {name} of the path is not a name.", names=[name])
            raise Refused(code)


class Resource:
    """One path of the table, with all its methods."""

    def __init__(self, gateway: GatewayChecks, routes: dict[str, Route]) -> None:
        self._gateway = gateway
        self._routes = routes
        self._allow = sorted([*routes, "HEAD"] if "GET" in routes else routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, request = self._gateway, Incoming(scope, receive)
        started = gateway.services.clock.monotonic()
        method = request.method
        route = self._routes.get("GET" if method == "HEAD" else method)
        tenant: str | None = None
        if route is None:
            name, reply = "wrong_method", gateway.refusal(Refused("method_not_allowed", allow=self._allow))
        else:
            name = route.name
            try:
                reply, caller = await gateway.answer(route, request)
            except Disconnected:
                return  # nobody is there to be answered, and nothing was done
            tenant = caller and caller.tenant
        await respond(send, reply, tenant)
        gateway.finish(name, method, reply, tenant, started)


class OpenResource:
    """A path for those who run the gateway; it asks nobody who they are."""

    def __init__(self, gateway: GatewayChecks, answer: Callable[[Services], Awaitable[HttpReply]]) -> None:
        self._gateway = gateway
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        if scope["method"] not in ("GET", "HEAD"):
            reply = self._gateway.refusal(Refused("method_not_allowed", allow=["GET", "HEAD"]))
        else:
            try:
                reply = await self._answer(self._gateway.services)
            except Exception as error:
                reply = self._gateway.refusal(error)
        await respond(send, reply)


class Nowhere:
    """Every other path."""

    def __init__(self, gateway: GatewayChecks) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        started = self._gateway.services.clock.monotonic()
        reply = self._gateway.refusal(Refused("not_found"))
        await respond(send, reply)
        self._gateway.finish("nowhere", scope["method"], reply, None, started)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})


def _method_label(method: str) -> str:
    """A method for the log: a client may send any word."""
    return method if method in _METHODS else "OTHER"


async def respond(send: Send, reply: HttpReply, tenant: str | None = None) -> None:
    """The reply is sent; it says whose credential it was, who may not know it."""
    headers = [
        (b"content-type", reply.media.encode()),
        (b"content-length", b"%d" % len(reply.body)),
        (b"cache-control", b"no-store"),
    ]
    if reply.replayed:
        headers.append((b"idempotent-replayed", b"true"))
    if tenant is not None:
        headers.append((b"x-tenant-id", tenant.encode()))
    if reply.location:
        headers.append((b"location", reply.location.encode()))
    if reply.applied:
        headers.append((b"preference-applied", reply.applied.encode()))
    if reply.problem is not None:
        headers += problems.headers(reply.problem)
        if reply.problem.code == "request_timeout":
            headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
