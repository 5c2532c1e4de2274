"""`semel serve`: the gateway."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from semel.cli.output import Output
from semel.errors import OpenError
from semel.ledger.ledger import DEFAULT_URL
from semel.stores.urls import hide_password, need, open_store

if TYPE_CHECKING:
    from semel.gateway.app import Pages
    from semel.gateway.services import Services

_BODY = """ -d '{"order": 1}'"""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Each also as SEMEL_…; what a text means is said in one place, `semel.gateway.settings`."""
    for flag, metavar, help_ in (
        ("--tenant-bytes", "1GiB", "What a tenant's runs, jobs and workflows may take; 0: no limit. [1GiB]"),
        ("--run-key-window", "90d|forever", "How long keys are honoured. [90d]"),
        ("--lock-ttl", "10s", "Life of a lock whose owner is gone. [10s]"),
        ("--lock-wait", "2s", "How long a start waits for the lock. [2s]"),
        ("--lock-retry", "jitter|fixed", "Pause between looks at the lock. [jitter]"),
        ("--admission", "atomic|lock", "How runs are admitted. [atomic]"),
        ("--public-url", "https://…", "How browsers reach the console behind a proxy."),
        ("--port", "N", "0: any that is free. [8765]"),
        ("--host", "ADDRESS", "[127.0.0.1]"),
        ("--bus", "local|nats://…", "Who is told that there is something to look at. [local]"),
        ("--url", "STORE", f"[SEMEL_URL, else {DEFAULT_URL}]"),
    ):
        function = click.option(flag, metavar=metavar, help=help_)(function)
    return function


@click.command()
@_options
@click.option("--probes", multiple=True, metavar="MODULE",
              help="Ask the probes of its contracts about calls in doubt; may be repeated.")  # fmt: skip
@click.option("--dev", is_flag=True, default=None, help="No credentials, every role, this machine only.")
@click.option("--sample", is_flag=True, help="With --dev: a worker and three refunds to try things with.")
def serve(sample: bool, probes: tuple[str, ...], **given: Any) -> None:
    """Serve runs, jobs, approvals and records over HTTP until Ctrl-C or SIGTERM.

    A stop takes no new requests, ends those in flight and closes the store; no answer that was given is lost.
    Each flag is also read from SEMEL_…, as SEMEL_LOCK_WAIT.
    """
    for module in ("uvicorn", "prometheus_client", "jsonschema_rs"):
        need("gateway", module)
    # Here, not on top: the other commands should not wait for what only this one needs.
    from semel.gateway import server
    from semel.gateway.settings import read

    try:
        settings = read({**given, "probes": ",".join(probes) if probes else None}, os.environ)
    except ValueError as wrong:
        raise click.UsageError(f"{wrong}. Nothing was started.") from None
    if sample and not settings.dev:
        raise click.UsageError(
            "--sample starts runs that nobody asked for: it needs --dev. Nothing was started."
        )
    server.log_to_stderr()
    store, out, pages = open_store(settings.url), Output(), _pages()
    if sample:
        # Here, not on top: only this needs a worker.
        from semel.cli.serve_sample import ServedSample

        with_sample = ServedSample(out, console=pages is not None)
        server.run(settings, store, with_sample.began, with_sample.play, pages=pages)
    else:
        server.run(settings, store, lambda where, services: _tell(out, where, services), pages=pages)
    out.say("Stopped; everything that was answered is kept.")


def _pages() -> Pages | None:
    """The console, if what it is made of is installed."""
    try:
        need("console", "starlette")
        need("console", "jinja2")
    except OpenError:
        return None
    from semel.console.app import pages

    return pages()


def _tell(out: Output, where: str, services: Services) -> None:
    settings = services.settings
    tell_where(out, where, services)
    if not settings.dev:
        out.say("Make a key, once:")
        out.command(_key_command(settings.url))
        out.say()
    out.say("Try:")
    for line in _lines(where, settings.dev):
        out.command(line)
    out.say()
    if _pages() is not None:
        out.say(f"Look: {settings.public_url or where}/console/")
    out.say("The start a second time answers with the same run and `idempotent-replayed: true`.")
    out.say("Ctrl-C stops.")


def tell_where(out: Output, where: str, services: Services) -> None:
    settings = services.settings
    out.say(f"Serving {hide_password(settings.url)} on {where}", "bold")
    out.say(services.store.durability)
    if settings.dev:
        out.say("Nobody is asked who they are (--dev), so only this machine is served.")
    out.say()


def _key_command(url: str) -> str:
    words = ["semel", "keys", "create", "--tenant", "default", "--role", "admin", "--principal", "me"]
    words += [] if url == DEFAULT_URL else ["--url", hide_password(url)]
    return f"export SEMEL_API_KEY=$({shlex.join(words)})"


def _lines(where: str, dev: bool) -> list[str]:
    """Three lines that work as they stand."""
    api, name = f"{where}/api/v1", "hello"
    as_whom = "" if dev else ' -H "X-API-Key: $SEMEL_API_KEY"'
    define = f"curl -X PUT {api}/workflows/{name}{as_whom}" + """ -d '{"steps": []}'"""
    start = f"curl -i {api}/workflows/{name}/runs{as_whom} -H 'Idempotency-Key: order-1'{_BODY}"
    return [define, start, f"curl {api}/runs{as_whom}"]
