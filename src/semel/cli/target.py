"""What every command that looks at a store takes: which store or gateway, which tenant, who acts."""

from __future__ import annotations

import functools
import getpass
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click
from click.core import ParameterSource

from semel.cli.operations import Data, Lists, Operations
from semel.cli.output import Cell, Output
from semel.errors import OpenError
from semel.ledger.ledger import DEFAULT_URL, Ledger, url_of_store
from semel.stores.urls import hide_password, need, open_store

if TYPE_CHECKING:
    from semel.cli.store_operations import EveryTenantLists

Items = Sequence[Data]
Columns = Sequence[str]
Row = Callable[[Data], Sequence[Cell]]

_DEFAULT_TENANT = "default"


@dataclass(frozen=True)
class Target:
    """The store or gateway that a command works on, which tenant, and who acts."""

    url: str
    tenant: str
    who: str | None
    out: Output
    server: str | None = None
    api_key: str | None = None
    tenant_named: bool = True  # else a gateway's key says which
    all_tenants: bool = False  # lists of everybody, straight from the store

    @contextmanager
    def ledger(self, because: str = "This reads what no gateway shows") -> Iterator[Ledger]:
        """The store, which has to be there already: looking makes nothing."""
        if self.server is not None:
            raise click.UsageError(f"{because}: name the store itself with --url, where it can be reached.")
        store = open_present(self.url)
        try:
            ledger = Ledger(store, tenant=self.tenant)
        except OpenError as wrong:
            store.close()
            raise click.BadParameter(str(wrong), param_hint="--tenant") from None
        with ledger:
            yield ledger

    @contextmanager
    def operations(self) -> Iterator[Operations]:
        """The store, or the gateway in front of it."""
        if self.server is None:
            from semel.cli.store_operations import StoreOperations

            with self.ledger() as ledger:

                def person() -> str:
                    """Who answers for what is done now: it is about to be written, and has to be sealed."""
                    ledger.keeper.notice()
                    return self.person

                yield StoreOperations(ledger.store, ledger.tenant, person)
            return
        need("client", "httpx")
        # Here, not on top: whoever works at a store needs no HTTP client.
        from semel.cli.server_operations import ServerOperations

        # Without a name it is the key's own, with --dev the usual ones.
        tenant = self.tenant if self.tenant_named else None
        with ServerOperations(self.server, self.api_key, tenant, self.who) as operations:
            yield operations

    @contextmanager
    def lists(self) -> Iterator[Lists]:
        """The operations, for what can be listed of all tenants."""
        if not self.all_tenants:
            with self.operations() as operations:
                yield operations
            return
        with self.every_tenant() as lists:
            yield lists

    @contextmanager
    def every_tenant(self) -> Iterator[EveryTenantLists]:
        from semel.cli.store_operations import EveryTenantLists

        with self.ledger("A gateway's key opens one tenant, so --all-tenants reads the store") as ledger:
            yield EveryTenantLists(ledger.store)

    def show_list(
        self, nothing: str, items: Items, columns: Columns, row: Row, filtered: bool = False
    ) -> None:
        """The items as a table or as JSON; `nothing` says that there are none: "No runs"."""
        if self.out.as_json:
            self.out.data({"items": items})
        elif items:
            self.table(items, columns, row)
        else:
            fit = " that fit" if filtered else ""
            self.out.say(f"{nothing}{fit}{self.in_tenant}.")

    def table(self, items: Items, columns: Columns, row: Row) -> None:
        """Of all tenants, each row ends with whose the item is."""
        if self.all_tenants:
            self.out.table((*columns, "TENANT"), [(*row(item), item["tenant"]) for item in items])
        else:
            self.out.table(columns, [row(item) for item in items])

    @property
    def person(self) -> str:
        """Who answers for what is done here."""
        name = self.who or os.environ.get("USER") or _login_name()
        if not name:
            raise click.UsageError("Who answers for this? Give --as NAME. Nothing was changed.")
        return name

    @property
    def in_tenant(self) -> str:
        """Where nothing was found, as far as we know."""
        if self.all_tenants:
            return " in any tenant"
        return f" in tenant {self.tenant}" if self.server is None or self.tenant_named else ""

    def next_command(self, *words: str) -> str:
        """A command to type, with the store and tenant of this one. No key: it would stay on the screen."""
        if self.server is not None:
            where = ["--server", hide_password(self.server)]
            where += ["--tenant", self.tenant] if self.tenant_named else []
        else:
            where = [] if self.url == DEFAULT_URL else ["--url", hide_password(self.url)]
            where += [] if self.tenant == _DEFAULT_TENANT else ["--tenant", self.tenant]
        return shlex.join(["semel", *words, *where])


def looks_at_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name store or gateway, and hands the function a `Target` in their place."""

    @click.option("--url", envvar="SEMEL_URL", metavar="STORE", help=f"[SEMEL_URL, else {DEFAULT_URL}]")
    @click.option(
        "--server", envvar="SEMEL_SERVER", metavar="URL", help="A gateway, not --url. [SEMEL_SERVER]"
    )
    @click.option("--api-key", envvar="SEMEL_API_KEY", metavar="K", help="For --server. [SEMEL_API_KEY]")
    @click.option("--tenant", metavar="NAME", help=f"[{_DEFAULT_TENANT}; with --server the key's own]")
    @click.option("--as", "who", metavar="NAME", help="Who acts. [the login name; with --server the key's]")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
    @functools.wraps(function)
    def command(tenant: str | None, who: str | None, as_json: bool, **options: Any) -> Any:
        url, server, api_key = (options.pop(name) for name in ("url", "server", "api_key"))
        url, server = _one_of(url, server)
        target = Target(
            url_of_store(url),
            _DEFAULT_TENANT if tenant is None else tenant,
            who,
            Output(as_json),
            server,
            api_key and api_key.strip(),
            tenant_named=tenant is not None,
        )
        return function(target, **options)

    return command


def looks_at_store_itself(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for what no gateway can answer, because it concerns all tenants: the store has to be named."""

    @click.option("--url", envvar="SEMEL_URL", metavar="STORE", help=f"[SEMEL_URL, else {DEFAULT_URL}]")
    @click.option("--tenant", default=_DEFAULT_TENANT, show_default=True, metavar="NAME")
    @click.option("--as", "who", metavar="NAME", help="Who acts. [the login name]")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
    @functools.wraps(function)
    def command(url: str | None, tenant: str, who: str | None, as_json: bool, **options: Any) -> Any:
        return function(Target(url_of_store(url), tenant, who, Output(as_json)), **options)

    return command


def lists_tenants(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--all-tenants` to a command that looks at a store; stands below `looks_at_store`."""

    @click.option("--all-tenants", is_flag=True, help="Of every tenant; only with --url.")
    @functools.wraps(function)
    def command(target: Target, all_tenants: bool, **options: Any) -> Any:
        if all_tenants and target.server is None and target.tenant_named:
            raise click.UsageError("--all-tenants is every tenant and --tenant one: give one of them.")
        return function(replace(target, all_tenants=all_tenants), **options)

    return command


def _one_of(url: str | None, server: str | None) -> tuple[str | None, str | None]:
    """The store or the gateway that is meant: a flag wins over a variable, and only one may be given."""
    typed = {name for name in ("url", "server", "api_key") if _typed(name)}
    if "server" in typed and not (server or "").strip():
        raise click.UsageError("--server is empty: it is the address that `semel serve` prints.")
    if {"url", "server"} <= typed:
        raise click.UsageError("--url names a store and --server a gateway: give one of them.")
    if "api_key" in typed and (server is None or "url" in typed):
        raise click.UsageError("--api-key is for --server; a store asks for none.")
    if url and server and not {"url", "server"} & typed:
        raise click.UsageError("SEMEL_URL and SEMEL_SERVER are both set: say which with --url or --server.")
    return (url, None) if "url" in typed or server is None else (None, server.strip().rstrip("/"))


def asks_gateway(words: Sequence[str]) -> bool:
    """Whether a command line means a gateway, also if it could not be read to its end."""
    flags = {word.partition("=")[0] for word in words}
    return "--url" not in flags and ("--server" in flags or bool(os.environ.get("SEMEL_SERVER")))


def _typed(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def open_present(url: str) -> Any:
    try:
        path = _file(url)
        if path is not None and not os.path.exists(path):
            raise OpenError(
                f"There is no store at {hide_password(url)}: {path} does not exist. Nothing was created.",
                corrective_action="Name it with --url or SEMEL_URL; a program that opens it makes it.",
            )
        return open_store(url)
    except ValueError as wrong:
        raise OpenError(f"{hide_password(url)!r} is not a URL: {wrong}. Nothing was opened.") from None


def _file(url: str) -> str | None:
    """The file that a SQLite URL names."""
    parts = urlsplit(url)
    if not url.startswith("sqlite://") or parts.netloc or not parts.path.strip("/"):
        return None
    return unquote(parts.path[1:])


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
