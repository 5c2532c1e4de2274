"""`semel worker`: runs a module's handlers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console
from rich.status import Status

from semel import instrumentation
from semel.cli.output import clean
from semel.contract.handlers import Handler
from semel.errors import OpenError
from semel.flow.bus import open_bus
from semel.kernel.clock import Clock, rfc3339
from semel.kernel.durations import microseconds
from semel.ledger.default import use
from semel.ledger.ledger import DEFAULT_URL, Ledger, url_of_store
from semel.ledger.probing import contracts_in
from semel.stores.urls import hide_password, need, open_store
from semel.worker import module as modules
from semel.worker.job_source import Away, JobSource
from semel.worker.worker import Worker

if TYPE_CHECKING:
    from types import FrameType, ModuleType, TracebackType

_DEFAULT_TENANT = "default"

# Between the command and the first line of MODULE.
_IMPORTING = ("semel.cli.worker", "semel.worker.module", "importlib")

# Events of jobs that a person at a terminal wants to read, besides the line that moves.
_SHOWN = ("job.failed", "job.retried", "job.lost", "job.waiting", "job.broken")


class _DurationParam(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            return value if isinstance(value, float) else microseconds(value, "it") / 1_000_000
        except ValueError as wrong:
            self.fail(str(wrong), param, ctx)


_DURATION = _DurationParam()


@click.command()
@click.argument("module")
@click.option("--url", envvar="SEMEL_URL", metavar="STORE", help=f"[SEMEL_URL, else {DEFAULT_URL}]")
@click.option("--server", metavar="URL", help="Get jobs from a gateway; tool records stay in --url.")
@click.option("--api-key", envvar="SEMEL_API_KEY", metavar="KEY", help="For --server. [SEMEL_API_KEY]")
@click.option("--tenant", metavar="NAME", help=f"[{_DEFAULT_TENANT}; with --server the key's, and no other]")
@click.option("--topics", multiple=True, metavar="NAME,…", help="Only these. [all that have a handler]")
@click.option("--concurrency", type=click.IntRange(1, 1_000), default=8, show_default=True, metavar="N")
@click.option("--bus", envvar="SEMEL_BUS", default="local", metavar="local|nats://…", help="[local]")
@click.option("--lease", "lease_s", type=_DURATION, default="60s", show_default=True, metavar="TIME")
@click.option("--grace", "grace_s", type=_DURATION, default="30s", show_default=True, metavar="TIME",
              help="How long running jobs may take to end after a signal.")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(0, 65_535), metavar="N",
              help="Serve /metrics for Prometheus there; 0: on a free one.")  # fmt: skip
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Where --metrics-port listens.")  # fmt: skip
@click.option("--run-key-window", envvar="SEMEL_RUN_KEY_WINDOW", default="90d", metavar="90d|forever",
              help="As the gateways on this store are told. [90d]")  # fmt: skip
def worker(module: str, url: str | None, server: str | None, topics: tuple[str, ...], **options: Any) -> int:
    """Run the functions that MODULE marks with @semel.handler("topic"), until Ctrl-C or SIGTERM.

    MODULE is a name that can be imported, or the path of a Python file. Probes of the contracts in it are
    asked about calls in doubt. A signal ends it in order: no new jobs, running ones may end. A second one
    ends it at once.
    """
    loaded, marked = _loaded(module)
    handlers = _chosen(marked, topics)
    store_url = url_of_store(url)
    scraped = _scraped(options["metrics_host"], options["metrics_port"])
    # Before anything is opened: which records a call meets depends on it.
    tenant = options["tenant"] or _DEFAULT_TENANT if server is None else _tenant(server, options)
    store = open_store(store_url)
    worker_id = f"{socket.gethostname()}:{os.getpid()}"
    # Handlers may open steps of their own: `semel.step(…)` is then of this store and tenant.
    with Ledger(store, tenant=tenant) as ledger, use(ledger), _board(store.clock) as board:
        operations = _operations(server, ledger, worker_id, options)
        board.tell("worker.opened", jobs=server or hide_password(store_url), records=hide_password(store_url),
                   tenant=tenant, durability=ledger.durability, **scraped)  # fmt: skip
        working = Worker(
            operations,
            ledger,
            handlers,
            worker_id=worker_id,
            concurrency=options["concurrency"],
            lease_s=options["lease_s"],
            grace_s=options["grace_s"],
            tell=board.tell,
            contracts=contracts_in(loaded),
        )
        left = asyncio.run(_run(working))
    return 1 if left else 0


def _loaded(module: str) -> tuple[ModuleType, Mapping[str, Handler]]:
    try:
        loaded = modules.run(module)
        return loaded, modules.handlers_of(loaded)
    except modules.NoHandlers as wrong:
        raise click.BadParameter(str(wrong), param_hint="MODULE") from None
    except Exception as raised:  # whatever the module is made of
        raised.__traceback__ = _of_the_module(raised.__traceback__)
        traceback.print_exception(raised)
        why = f"{module} cannot be imported ({type(raised).__name__}). No job was leased."
        raise click.BadParameter(why, param_hint="MODULE") from None


def _of_the_module(entry: TracebackType | None) -> TracebackType | None:
    """The traceback from the module's own first line on: who imports it is nobody's mistake."""
    while entry is not None and entry.tb_frame.f_globals.get("__name__", "").startswith(_IMPORTING):
        entry = entry.tb_next
    return entry


def _chosen(handlers: Mapping[str, Handler], topics: tuple[str, ...]) -> Mapping[str, Handler]:
    names = [name.strip() for text in topics for name in text.split(",")]
    unknown = sorted(set(names) - set(handlers))
    if unknown:
        there = ", ".join(sorted(handlers))
        raise click.BadParameter(
            f"{', '.join(unknown)}: no handler. There are {there}.", param_hint="--topics"
        )
    return {name: handlers[name] for name in names} if names else handlers


def _scraped(host: str, port: int | None) -> dict[str, str]:
    """Where this process is scraped, as a fact to tell; in use there whatever the module says of hooks."""
    if port is None:
        return {}
    need("metrics", "prometheus_client")
    # Here, not on top: only who is scraped needs it.
    from semel.instrumentation.prometheus_hook import serve

    instrumentation.add(instrumentation.prometheus)
    try:
        return {"metrics": serve(host, port)}
    except OSError as taken:
        raise OpenError(
            f"Nothing can listen on {host}:{port} ({taken.strerror or taken}); no job was leased.",
            corrective_action="Give another --metrics-port, or 0 for a free one.",
        ) from None


def _tenant(server: str, options: Mapping[str, Any]) -> str:
    """The tenant of the API key."""
    need("client", "httpx")
    from semel.worker.gateway_jobs import tenant_at

    with _there_at_the_start():
        return asyncio.run(tenant_at(server, options["api_key"], options["tenant"]))


def _operations(server: str | None, ledger: Ledger, worker_id: str, options: Mapping[str, Any]) -> JobSource:
    if server is not None:
        need("client", "httpx")
        # Here, not on top: a worker at a store needs no HTTP client.
        from semel.worker.gateway_jobs import GatewayJobs

        return GatewayJobs(server, options["api_key"], worker_id, ledger.tenant)
    from semel.worker.store_jobs import StoreJobs

    window = options["run_key_window"]
    kept_us = None if window == "forever" else int(_DURATION.convert(window, None, None) * 1_000_000)
    bus = open_bus(options["bus"], ledger.clock)
    return StoreJobs(ledger.store, bus, ledger.tenant, worker_id, kept_us)


async def _run(working: Worker) -> int:
    with _signals(working), _there_at_the_start():
        return await working.run()


@contextmanager
def _there_at_the_start() -> Iterator[None]:
    """OpenError if it is away at the start: its address is probably misspelt. Later it is waited for."""
    try:
        yield
    except Away as away:
        raise OpenError(
            away.message, corrective_action="Start it first, or correct --server or --url."
        ) from None


@contextmanager
def _signals(working: Worker) -> Iterator[None]:
    """The first one asks for a stop in order, the second one ends the process."""
    loop, stopping = asyncio.get_running_loop(), False

    def arrived(number: int, _: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            os._exit(128 + number)
        stopping = True
        loop.call_soon_threadsafe(working.stop)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.getsignal(number)
        # Python alone does not see a signal that comes just before the loop goes to sleep.
        loop.add_signal_handler(number, lambda: None)
        signal.signal(number, arrived)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


# --- progress -------------------------------------------------------------------------------------


@contextmanager
def _board(clock: Clock) -> Iterator[_Board]:
    """A line that moves on a terminal's standard error; lines of JSON elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield _Board(clock, console, None)
        return
    with console.status("Starting") as status:
        yield _Board(clock, console, status)


class _Board:
    """What happened, without inputs, results, keys or messages: those may hold what belongs in no log."""

    def __init__(self, clock: Clock, console: Console, status: Status | None) -> None:
        self._clock = clock
        self._console = console
        self._status = status
        self._count: Counter[str] = Counter()

    def tell(self, event: str, **facts: Any) -> None:
        self._count[event] += 1
        if self._status is None:
            line = {"at": rfc3339(self._clock.now_us()), "event": event, **facts}
            click.echo(orjson.dumps(line, default=str), err=True)
            return
        self._status.update(self._line())
        if not event.startswith("job.") or event in _SHOWN:
            frames = facts.pop("traceback", ())
            details = "  ".join(f"{name}={value}" for name, value in facts.items())
            for text in (f"{event}  {details}", *(f"    {frame}" for frame in frames)):
                self._console.print(clean(text), soft_wrap=True)

    def _line(self) -> str:
        count = self._count
        ended = sum(count[f"job.{end}"] for end in ("succeeded", "failed", "retried", "lost", "handed_back"))
        return (
            f"{count['job.started'] - ended} running, {count['job.succeeded']} succeeded,"
            f" {count['job.failed']} failed, {count['job.retried']} retried, {count['job.lost']} lost"
        )
