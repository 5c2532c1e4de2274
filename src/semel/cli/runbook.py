"""`semel runbook`: the operating checks, step by step, each with its result."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from semel.cli.output import Output
from semel.errors import StoreUnavailable
from semel.lab.runbooks.runbook import Check, Runbook
from semel.stores.urls import need


@click.group()
@click.pass_context
def runbook(context: click.Context) -> None:
    """The operating checks, step by step, each with its result; exits 1 if one fails."""
    context.with_resource(_stops_are_interruptions())


@contextmanager
def _stops_are_interruptions() -> Iterator[None]:
    """A supervisor's stop and a closed terminal are Ctrl-C: what was begun is ended, here and elsewhere."""
    # What somebody chose to ignore (`nohup`) stays so.
    stops = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for stop in stops:
        signal.signal(stop, signal.default_int_handler)
    try:
        yield
    finally:
        for stop in stops:
            signal.signal(stop, signal.SIG_DFL)


def _folder(context: click.Context, option: click.Parameter, folder: Path | None) -> Path | None:
    """The folder, made before the work: what takes minutes is not done for nothing."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as refusal:
            raise click.BadParameter(
                f"{folder} cannot be made: {refusal.strerror}.", context, option
            ) from None
    return folder


def _report(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--report",
        type=click.Path(file_okay=False, writable=True, path_type=Path),
        metavar="DIRECTORY",
        callback=_folder,
        help=f"Folder for {what}.",
    )


def _on_a_gateway(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name a gateway, or the store of one of our own."""

    @click.option("--server", metavar="URL", help="A gateway that runs already. [one of our own]")
    @click.option("--api-key", envvar="SEMEL_API_KEY", metavar="K", help="An admin's key there.")
    @click.option("--approver-key", envvar="SEMEL_APPROVER_KEY", metavar="K", help="An approver's key there.")
    @click.option("--url", metavar="STORE", help="Store of our own gateway. [SQLite in a temporary folder]")
    @click.option("--bus", default="local", show_default=True, help="Bus of our own gateway.")
    @click.option("--admission", type=click.Choice(["atomic", "lock"]), default="atomic", show_default=True)
    @_report("a page of the checks")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
    @functools.wraps(function)
    def command(as_json: bool, **options: Any) -> Any:
        return function(Output(as_json), **options)

    return command


@runbook.command()
@_on_a_gateway
def admission(out: Output, report: Path | None, **where: Any) -> int:
    """Limit 1; fill it; 429 with a key; free it; the same key starts a run, once."""
    _need_lab()
    from semel.lab.runbooks import admission as checks

    with _server(**where) as server:
        return _carried_out(out, lambda book: checks.admission(server, book), report)


@runbook.command()
@_on_a_gateway
def approvals(out: Output, report: Path | None, **where: Any) -> int:
    """Approve, then 5 parallel retries: all are told the same; reject likewise; the message's id."""
    _need_lab()
    from semel.lab.runbooks import approvals as checks

    if where["server"] and where["api_key"] and not where["approver_key"]:
        raise click.UsageError("Whoever submits may not approve: give --approver-key, another person's.")
    with _server(**where) as server:
        return _carried_out(out, lambda book: checks.approvals(server, book), report)


@runbook.command()
@click.option("--server", metavar="URL", help="A gateway that runs already. [one of our own per strategy]")
@click.option("--api-key", envvar="SEMEL_API_KEY", metavar="K", help="An admin's key there.")
@click.option("--url", metavar="STORE", help="Store of our own gateways. [SQLite in a temporary folder]")
@_report("plots and a page")
@click.option("--callers", default=100, show_default=True, type=click.IntRange(2, 1_000))
@click.option("--seconds", default=3.0, show_default=True, help="For how long a caller comes back.")
@click.option(
    "--lock-wait",
    "lock_waits",
    multiple=True,
    default=("500ms", "2s", "5s"),
    show_default=True,
    help="Waits for the lock that are tried; may be given several times.",
)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    type=float,
    default=(1.5, 3.0),
    show_default=True,
    help="Seconds for which a caller comes back that are tried with each of them; likewise.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
def contention(report: Path | None, as_json: bool, **options: Any) -> int:
    """Limit 2, 100 callers, then 10 times as many: atomic admission, and the lock with two kinds of retry."""
    _need_lab(report=report is not None)
    from semel.lab.runbooks import contention as lab
    from semel.lab.runbooks import contention_report as page

    out, book = Output(as_json), Runbook()
    seen = _contended(out, **options)
    lab.judge(book, seen.trials)
    written = page.write(report, seen) if report else None
    if as_json:
        out.data({"ok": book.ok, **seen.data(), "checks": [asdict(check) for check in book.checks]})
        return 0 if book.ok else 1
    out.table(page.COLUMNS, [page.row(each) for each in seen.trials])
    if seen.sweep:
        out.table(page.SWEEP_COLUMNS, [page.sweep_row(each) for each in seen.sweep])
    for conclusion in (*page.conclusions(seen), lab.recommendation(seen.trials, seen.sweep)):
        out.say(conclusion)
    for name in seen.left_out:
        out.say(f"Left out for want of time: {name}.")
    _conclude(out, book)
    if written:
        out.say(f"Plots and table: {written}")
    return 0 if book.ok else 1


def _contended(
    out: Output,
    server: str | None,
    api_key: str | None,
    url: str | None,
    callers: int,
    seconds: float,
    lock_waits: tuple[str, ...],
    budgets: tuple[float, ...],
) -> Any:
    """All that is tried, on somebody's gateway or on our own."""
    from semel.lab.runbooks import contention as lab
    from semel.lab.runbooks.contention_callers import caller_processes
    from semel.lab.runbooks.contention_report import ContentionFindings

    with out.progress("callers want slots") as tell, caller_processes() as processes:
        tried = lab.ContentionLab(processes, lambda variant: tell(variant.name))
        if server:
            with _server(server, api_key, None) as gateway:
                trials = tried.on_server(gateway, list(lab.variants(lab.SERVERS_OWN, callers, seconds)))
                return ContentionFindings(trials, (), [each.full_name for each in tried.left_out])
        wanted = [each for strategy in lab.STRATEGIES for each in lab.variants(strategy, callers, seconds)]
        trials = tried.on_own_gateways(url, wanted)
        together = lab.sweep_variants(callers, lock_waits, budgets)
        new = tried.on_own_gateways(url, [each for each in together if each not in wanted])
        sweep = [each for each in (*trials, *new) if each.variant in together]
        sweep.sort(key=lambda each: together.index(each.variant))
        return ContentionFindings(trials, sweep, [each.full_name for each in tried.left_out])


@runbook.command()
@click.option("--server", metavar="URL", expose_value=False, help="Not needed: a window is in no server.")
@_report("the plot")
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
def window(report: Path | None, as_json: bool) -> int:
    """Three years of an entity, without and with a window; what push and evict cost; what is carried."""
    if report is not None:
        need("lab", "matplotlib")
    from semel.lab.runbooks import window as lab
    from semel.lab.runbooks import window_report as page

    out = Output(as_json)
    book = Runbook(lambda check: None if as_json else _tell(out, check))
    seen = lab.window(book)
    written = page.write(report, seen) if report else None
    if as_json:
        out.data({"ok": book.ok, **seen.data(), "checks": [asdict(check) for check in book.checks]})
    else:
        out.table(page.GROWTH, list(page.growth_rows(seen)))
        out.table(page.COSTS, list(page.cost_rows(seen)))
        _conclude(out, book, shown=True)
        out.say(f"Plot: {written}" if written else "--report DIR draws this as a plot.")
    return 0 if book.ok else 1


def _need_lab(*, report: bool = False) -> None:
    """What runbooks are made of is installed, or one error says how to get it."""
    for module in ("httpx", "uvicorn", "prometheus_client", "jsonschema_rs"):
        need("lab", module)
    if report:
        need("lab", "matplotlib")


# --- around -----------------------------------------------------------------------------------------


@contextmanager
def _server(server: str | None, api_key: str | None, approver_key: str | None, **own: Any) -> Iterator[Any]:
    from semel.client import Problem
    from semel.lab.runbooks.served import ServedGateway, own_gateway

    if server:
        try:
            yield ServedGateway(server.rstrip("/"), api_key, approver_key)
        except Problem as wrong:
            raise StoreUnavailable(
                f"{wrong.message} Not all was checked.",
                corrective_action="Name the address that `semel serve` prints.",
            ) from None
        return
    with own_gateway(own["url"], bus=own["bus"], admission=own["admission"]) as started:
        yield started


def _carried_out(out: Output, checks: Callable[[Runbook], Any], report: Path | None) -> int:
    """The exit code, after each check was told."""
    from semel.lab.runbooks.report_page import write_checks

    book = Runbook(lambda check: None if out.as_json else _tell(out, check))
    asyncio.run(checks(book))
    command = click.get_current_context().command
    page = write_checks(report, str(command.name), command.help or "", book) if report else None
    if out.as_json:
        out.data({"ok": book.ok, "checks": [asdict(check) for check in book.checks]})
    else:
        _conclude(out, book, shown=True)
        if page:
            out.say(f"Page: {page}")
    return 0 if book.ok else 1


def _tell(out: Output, check: Check) -> None:
    out.say(f"{'ok    ' if check.ok else 'FAILED'}  {check.name}", "green" if check.ok else "red")
    if not check.ok:
        out.say(f"        seen: {check.seen}")


def _conclude(out: Output, book: Runbook, *, shown: bool = False) -> None:
    failed = [check for check in book.checks if not check.ok]
    for check in failed if not shown else ():
        _tell(out, check)
    out.say(f"{len(book.checks) - len(failed)} of {len(book.checks)} checks hold.")
