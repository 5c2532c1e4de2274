"""What every command that looks at a store takes: which store, which tenant, who acts, how to answer."""

from __future__ import annotations

import functools
import getpass
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from semel.cli.output import Output
from semel.errors import OpenError
from semel.ledger import DEFAULT_URL, Ledger
from semel.stores.urls import hide_password, open_store

_DEFAULT_TENANT = "default"


@dataclass(frozen=True)
class Desk:
    """Where a person sits while working on a store."""

    url: str
    tenant: str
    who: str | None
    out: Output

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The store, which has to be there already: looking makes nothing."""
        store = _open_present(self.url)
        try:
            ledger = Ledger(store, tenant=self.tenant)
        except OpenError as wrong:
            store.close()
            raise click.BadParameter(str(wrong), param_hint="--tenant") from None
        with ledger:
            yield ledger

    @property
    def person(self) -> str:
        """Who answers for what is done here."""
        name = self.who or os.environ.get("USER") or _login_name()
        if not name:
            raise click.UsageError("Who answers for this? Give --as NAME. Nothing was changed.")
        return name

    def next_command(self, *words: str) -> str:
        """A command to type, with the store and tenant of this one."""
        where = [] if self.url == DEFAULT_URL else ["--url", hide_password(self.url)]
        where += [] if self.tenant == _DEFAULT_TENANT else ["--tenant", self.tenant]
        return shlex.join(["semel", *words, *where])


def looks_at_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that name the store, and hands the function a `Desk` in their place."""

    @click.option("--url", envvar="SEMEL_URL", metavar="STORE", help=f"[SEMEL_URL, else {DEFAULT_URL}]")
    @click.option("--tenant", default=_DEFAULT_TENANT, show_default=True, metavar="NAME", help="Tenant.")
    @click.option("--as", "who", metavar="NAME", help="Who acts. [the login name]")
    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
    @functools.wraps(function)
    def command(url: str | None, tenant: str, who: str | None, as_json: bool, **options: Any) -> Any:
        return function(Desk(url or DEFAULT_URL, tenant, who, Output(as_json)), **options)

    return command


def _open_present(url: str) -> Any:
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
    if parts.scheme != "sqlite" or parts.netloc or not parts.path.strip("/"):
        return None
    return unquote(parts.path[1:])


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
