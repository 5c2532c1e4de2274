"""`semel keys`: create, list, revoke."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from semel.cli.output import Output
from semel.cli.target import Target
from semel.flow.document_store import DocumentStore
from semel.gateway.auth import CACHED_S, ROLES, ApiKey, ApiKeys
from semel.ledger.ledger import DEFAULT_URL, url_of_store
from semel.stores.base import Store
from semel.stores.urls import open_store

T = TypeVar("T")

_url_option = click.option(
    "--url", envvar="SEMEL_URL", metavar="STORE", help=f"[SEMEL_URL, else {DEFAULT_URL}]"
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")


@click.group()
def keys() -> None:
    """API keys of the gateway."""


def _with_store(function: Callable[..., None]) -> Callable[..., None]:
    @_url_option
    @_json_option
    @functools.wraps(function)
    def command(url: str | None, as_json: bool, **options: Any) -> None:
        url = url_of_store(url)
        if url.startswith("memory:"):
            raise click.UsageError("A store in memory ends with its process, and keys with it: give --url.")
        function(url, Output(as_json), **options)

    return command


def _ask(store: Store, question: Callable[[ApiKeys], Awaitable[T]]) -> T:
    async def answer() -> T:
        return await question(ApiKeys(DocumentStore(store)))

    return asyncio.run(answer())


def _ask_present(url: str, question: Callable[[ApiKeys], Awaitable[T]]) -> T:
    """The answer of a store that has to be there already: looking makes nothing."""
    with Target(url, "default", None, Output()).ledger() as ledger:
        return _ask(ledger.store, question)


@keys.command()
@click.option("--tenant", required=True, metavar="NAME", help="Whose data the key opens.")
@click.option("--role", "roles", multiple=True, required=True, type=click.Choice(ROLES), help="One or more.")
@click.option("--principal", required=True, metavar="NAME", help="Who acts with it, as the audit names them.")
@_with_store
def create(url: str, out: Output, tenant: str, roles: tuple[str, ...], principal: str) -> None:
    """Make a key. It is shown this once: what the store keeps cannot be turned back into it."""
    store = open_store(url)
    try:
        made, key = _ask(store, lambda keys: keys.create(tenant, principal, roles))
    finally:
        store.close()
    if out.as_json:
        out.data({"key": key, **made.shown()})
        return
    # The key alone on standard output, so that `$(semel keys create …)` is the key.
    click.echo(f"Key {made.id} of {principal} in {tenant}, shown this once:", err=True)
    click.echo(key)


@keys.command("list")
@click.option("--tenant", metavar="NAME", help="Only of this tenant.")
@_with_store
def list_(url: str, out: Output, tenant: str | None) -> None:
    """Keys, newest first; never their secrets."""
    keys = _ask_present(url, lambda keys: keys.list(tenant))
    if out.as_json:
        out.data({"items": [key.shown() for key in keys]})
    elif not keys:
        out.say("No keys" + (f" of tenant {tenant}." if tenant else "."))
    else:
        out.table(("ID", "TENANT", "PRINCIPAL", "ROLES", "CREATED", "REVOKED"), [_row(key) for key in keys])


def _row(key: ApiKey) -> tuple[str, ...]:
    shown = key.shown()
    times = (str(shown["created_at"]), str(shown["revoked_at"] or ""))
    return key.id, key.tenant, key.principal, ", ".join(key.roles), *times


@keys.command()
@click.argument("id_", metavar="ID")
@_with_store
def revoke(url: str, out: Output, id_: str) -> None:
    """Refuse a key from now on. ID is what `semel keys list` shows, the part after `semel_`."""
    revoked = _ask_present(url, lambda keys: keys.revoke(id_))
    if out.as_json:
        out.data(revoked.shown())
    else:
        out.say(f"Key {id_} is revoked; every gateway refuses it within {CACHED_S:g} seconds.")
