"""`python -m bench.start_parts sqlite redis postgres`: the opcodes of a run start, by room of the package.

The gateway's application and the bare one are called without a server, 32 requests at a time of 100 tenants;
with `--hot` 100 at a time of one tenant. Counted is what is done for a request, and on the threads of the
stores; not the loop itself, and not what gateways do in the background. It is nearly the same each time: it
hangs on how many starts share a commit.

`--hot` also counts admissions at the store, without HTTP: in one atomic step, and behind a lock for which
nobody waits. A crowd before the lock looks at it again and again, as its clock says; so there the questions
to the store and the looks are counted, not the opcodes: counting them makes everything slow.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

import click
import orjson

from bench.bare_app import BareApp, Message
from bench.bare_rows import open_rows
from bench.gateway_rows import CONNECTIONS, CROWD, LOCK_WAIT_S, TENANTS
from bench.gateway_sides import INPUT, NO_LIMIT, WORKFLOW, tenants
from bench.parts import inside
from bench.plan import ExperimentResources
from bench.run import run_resources
from semel.flow.assembly import Flow, Policy
from semel.flow.lock import LockListener, LockPolicy
from semel.flow.values import Caller
from semel.gateway.app import build
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import SYSTEM
from semel.stores.urls import open_store

BENCH = Path(__file__).parent

STARTS = CONNECTIONS * 4

# As in the rows of `make bench`: nothing is logged, and nobody held back.
_SETTINGS = GatewaySettings(dev=True, log="none", tenant_rate_per_s=0)

# Which of the package's rooms are worth a line of their own.
_ROOMS = ("gateway", "flow", "stores", "instrumentation", "audit", "kernel")


_in_request: ContextVar[bool] = ContextVar("in_request", default=False)


class OpcodeCounter:
    """Counts while it is told to: what is done for a request, and on the threads that serve a store."""

    def __init__(self) -> None:
        self.codes: Counter[CodeType] = Counter()
        self.counting = False
        self._serving = {get_ident(): False}
        threading.settrace(self)
        sys.settrace(self)

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode" and self.counting and (_in_request.get() or self._serves(get_ident())):
            self.codes[frame.f_code] += 1
        return self

    def _serves(self, thread: int) -> bool:
        """Not the loop's threads: sweeping and sealing go on there, which is nobody's request."""
        if thread not in self._serving:
            self._serving[thread] = not threading.current_thread().name.startswith("asyncio_")
        return self._serving[thread]

    def close(self) -> None:
        sys.settrace(None)
        threading.settrace(None)


class Crowd(NamedTuple):
    """Who calls: so many at a time, for these tenants."""

    callers: int
    whose: tuple[str, ...]
    limit: int | None = None  # of active runs; None: as by default


SPREAD = Crowd(CONNECTIONS, tenants(TENANTS))
HOT = Crowd(CROWD, tenants(1, "hot"), NO_LIMIT)

# Sides of admission behind the lock.
LONELY, CROWDED = "lock, nobody waits", "lock, a crowd waits"


class Calls(Protocol):
    async def begin(self) -> None: ...

    async def start(self, count: int) -> None: ...

    async def end(self) -> None: ...


async def _together(callers: int, count: int, one: Callable[[int], Any]) -> None:
    """One thing so many times, by so many callers."""
    numbers = iter(range(count))

    async def caller() -> None:
        _in_request.set(True)
        for number in numbers:
            await one(number)

    await asyncio.gather(*(caller() for _ in range(callers)))


class AsgiCalls:
    """Requests to an application, as a server would make them."""

    def __init__(self, app: Callable[..., Any], crowd: Crowd) -> None:
        self._app, self._crowd = app, crowd
        self._stop = asyncio.Event()
        self._next = 0

    async def begin(self) -> None:
        """The application has started, and every tenant has the workflow."""
        started, asked = asyncio.Event(), False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await self._stop.wait()
                return {"type": "lifespan.shutdown"}
            asked = True
            return {"type": "lifespan.startup"}

        async def send(_: Message) -> None:
            started.set()

        self._life = asyncio.create_task(self._app({"type": "lifespan"}, receive, send))
        await started.wait()
        body = orjson.dumps({"steps": []})
        for tenant in self._crowd.whose:
            await self._ask("PUT", f"workflows/{WORKFLOW}", tenant, body)
            if self._crowd.limit is not None:
                limit = orjson.dumps({"max_concurrent_runs": self._crowd.limit})
                await self._ask("PUT", f"tenants/{tenant}", tenant, limit)

    async def end(self) -> None:
        self._stop.set()
        await self._life

    async def start(self, count: int) -> None:
        """So many runs, by as many callers as there are connections."""
        whose, first = self._crowd.whose, self._next
        self._next += count

        async def one(number: int) -> None:
            tenant = whose[(first + number) % len(whose)]
            await self._ask("POST", f"workflows/{WORKFLOW}/runs", tenant, INPUT)

        await _together(self._crowd.callers, count, one)

    async def _ask(self, method: str, path: str, tenant: str, body: bytes) -> None:
        headers = {
            "host": "127.0.0.1",
            "x-tenant-id": tenant,
            "idempotency-key": SYSTEM.token().hex(),
            "content-length": str(len(body)),
        }
        path = f"/api/v1/{path}"
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": fields,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1), "scheme": "http", "root_path": "",
        }  # fmt: skip
        statuses: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self._app(scope, receive, send)
        if statuses != [200]:
            raise RuntimeError(f"The application answered {statuses}")


class StoreCalls(LockListener):
    """Admissions of one tenant at the store itself; counts what it is asked, and the looks at the lock."""

    def __init__(self, url: str, policy: Policy, callers: int) -> None:
        self._who, self._callers = Caller(HOT.whose[0], "bench"), callers
        self._store = open_store(url)
        self._flow = Flow(self._store, policy, send=_send, wait=_wait, lock_listener=self)
        self.asked, self.looks = 0, 0
        ask: Any = self._store.aask

        async def counted_ask(query: Any) -> Any:
            self.asked += 1
            return await ask(query)

        self._store.aask = counted_ask  # type: ignore[method-assign]

    def looked(self, outcome: str) -> None:  # noqa: ARG002
        self.looks += 1

    async def begin(self) -> None:
        await self._flow.workflows.put_tenant(self._who.tenant, NO_LIMIT)
        await self._flow.workflows.put(self._who.tenant, WORKFLOW, {"steps": []})

    async def start(self, count: int) -> None:
        async def one(_: int) -> None:
            body = orjson.loads(INPUT)
            await self._flow.runs.start(self._who, WORKFLOW, SYSTEM.token().hex(), body)

        await _together(self._callers, count, one)

    async def end(self) -> None:
        await self._store.aclose()


async def _send(*_: Any) -> None:
    """The bus is elsewhere."""


async def _wait(*_: Any) -> None:
    """Nobody waits for jobs."""


async def asked_per_start(make: Callable[[], StoreCalls]) -> tuple[float, float]:
    """Questions to the store for an admission, and looks at the lock, at the speed of the machine."""
    calls = make()
    await calls.begin()
    await calls.start(STARTS)
    calls.asked = calls.looks = 0
    await calls.start(STARTS)
    await calls.end()
    return calls.asked / STARTS, calls.looks / STARTS


async def counted(make: Callable[[], Calls]) -> Counter[str]:
    """The opcodes of a start, by room and function: those of so many without those of half as many."""
    counter = OpcodeCounter()
    try:
        calls = make()
        await calls.begin()
        await calls.start(STARTS)
        few, many = [await _counted(counter, calls, STARTS * times) for times in (1, 2)]
        await calls.end()
    finally:
        counter.close()
    return Counter({name: (many[name] - few[name]) / STARTS for name in many})


async def _counted(counter: OpcodeCounter, calls: Calls, starts: int) -> Counter[str]:
    counter.codes.clear()
    counter.counting = True
    await calls.start(starts)
    counter.counting = False
    functions: Counter[str] = Counter()
    for code, opcodes in counter.codes.items():
        functions[f"{_room(code.co_filename)} {Path(code.co_filename).name} {code.co_qualname}"] += opcodes
    return functions


def _room(file_name: str) -> str:
    names = inside(file_name)
    if not names:
        return "bare" if Path(file_name).is_relative_to(BENCH) else "others"
    return names[0] if names[0] in _ROOMS else "others"


@contextmanager
def _urls(kind: str, directory: str | None) -> Iterator[Callable[[str], str]]:
    with run_resources(directory) as shared, ExitStack() as opened:
        resources = ExperimentResources(shared.directory / kind, True, shared, opened)
        resources.directory.mkdir()
        if kind == "sqlite":
            yield lambda name: f"sqlite:///{resources.file(name)}"
        else:
            server = resources.redis() if kind == "redis" else resources.postgres()
            # Counting takes its time, and is no reason to give a server up.
            patience = "&timeout=60s" if kind == "redis" else ""
            yield lambda name: server.url(name) + patience


@click.command()
@click.argument("stores", nargs=-1, type=click.Choice(["sqlite", "redis", "postgres"]), required=True)
@click.option(
    "--dir", "directory", type=click.Path(exists=True, file_okay=False), help="Where files are made."
)
@click.option("--functions", default=0, help="List so many functions of each side.")
@click.option(
    "--hot", is_flag=True, help="One tenant and 100 callers; also at the store, with and without a lock."
)
def main(stores: tuple[str, ...], directory: str | None, functions: int, hot: bool) -> None:
    """The opcodes of a run start, by room, of the gateway and of the bare application."""
    rooms, crowd = (*_ROOMS, "bare", "others"), HOT if hot else SPREAD
    click.echo(f"| store | side | all | {' | '.join(rooms)} |")
    click.echo("|---" * (3 + len(rooms)) + "|")
    for store in stores:
        with _urls(store, directory) as url:
            sides: dict[str, Callable[[], Calls]] = {
                "gateway": lambda: AsgiCalls(build(_SETTINGS, open_store(url("gateway"))), crowd),
                "bare": lambda: AsgiCalls(BareApp(open_rows(url("bare"))), crowd),
            }
            at_store = _at_store(url) if hot else {}
            traced = sides | {name: make for name, make in at_store.items() if name != CROWDED}
            for name, make in traced.items():
                opcodes = asyncio.run(counted(make))
                of_rooms = Counter[str]()
                for function, number in opcodes.items():
                    of_rooms[function.partition(" ")[0]] += round(number)
                numbers = " | ".join(str(of_rooms[room]) for room in rooms)
                click.echo(f"| {store} | {name} | {of_rooms.total()} | {numbers} |")
                for function, number in opcodes.most_common(functions):
                    click.echo(f"    {number:7.1f}  {function}")
            for name, make_calls in at_store.items():
                asked, looks = asyncio.run(asked_per_start(make_calls))
                click.echo(
                    f"{store}, {name}: asks the store {asked:.1f} times, looks at a lock {looks:.1f} times"
                )


def _at_store(url: Callable[[str], str]) -> dict[str, Callable[[], StoreCalls]]:
    """Each made twice, on stores of their own."""
    lock = Policy("lock", LockPolicy(retry="jitter", wait_us=LOCK_WAIT_S * 1_000_000))
    number = count()

    def calls(policy: Policy, callers: int) -> Callable[[], StoreCalls]:
        return lambda: StoreCalls(url(f"store_{next(number)}"), policy, callers)

    return {"atomic": calls(Policy("atomic"), CROWD), LONELY: calls(lock, 1), CROWDED: calls(lock, CROWD)}


if __name__ == "__main__":
    main(prog_name="python -m bench.start_parts")
