"""`semel console`: the console for a store without a gateway."""

from __future__ import annotations

import os
from typing import Any

import click

from semel.cli.output import Output
from semel.cli.target import Target, open_present
from semel.ledger.ledger import DEFAULT_URL, url_of_store
from semel.stores.urls import hide_password, need


@click.command()
@click.option("--url", envvar="SEMEL_URL", metavar="STORE", help=f"[SEMEL_URL, else {DEFAULT_URL}]")
@click.option("--tenant", default="default", show_default=True, metavar="NAME")
@click.option("--as", "who", metavar="NAME", help="Who acts. [the login name]")
@click.option("--port", default=8766, show_default=True, metavar="N", help="0: any that is free.")
@click.option("--probes", multiple=True, metavar="MODULE",
              help="Its contracts' probes can be asked about calls in doubt; may be repeated.")  # fmt: skip
def console(url: str | None, tenant: str, who: str | None, port: int, probes: tuple[str, ...]) -> None:
    """See what needs a person, and settle it, in a browser on this machine.

    The address that is printed opens the console once; whoever opens it acts as you, until Ctrl-C.
    """
    for module in ("uvicorn", "prometheus_client", "jsonschema_rs", "starlette", "jinja2"):
        need("console", module)
    # Here, not on top: the other commands should not wait for what only this one needs.
    from semel.console.app import OneTimeToken, pages
    from semel.console.sign_in import by_name
    from semel.flow.problems import Refused
    from semel.gateway import server
    from semel.gateway.settings import read

    address, out = url_of_store(url), Output()
    person = Target(address, tenant, who, out).person
    named = ",".join(probes) if probes else None
    given: dict[str, Any] = {"url": address, "port": port, "probes": named, "log": "none"}
    try:
        settings = read(
            given, {name: os.environ[name] for name in ("SEMEL_RUN_KEY_WINDOW",) if name in os.environ}
        )
        caller = by_name(person, tenant)
    except (ValueError, Refused) as wrong:
        raise click.UsageError(f"{str(wrong).rstrip('.')}. Nothing was started.") from None
    store = open_present(address)
    token = store.clock.token(2).hex()
    server.log_to_stderr()

    def began(where: str, _: Any) -> None:
        out.say(f"The console of {hide_password(address)}, tenant {tenant}, for {person}:", "bold")
        out.command(f"{where}/console/sign-in?token={token}")
        out.say("It opens once. Ctrl-C stops.")

    server.run(settings, store, began, pages=pages(OneTimeToken(token, caller)), alone=True)
    out.say("Stopped.")
