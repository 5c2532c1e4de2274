"""A gateway with its console, and a browser without JavaScript: what it is sent back, it can send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from semel.console.app import pages
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import SYSTEM
from tests.gateway.conftest import Served
from tests.patience import PATIENCE_S
from tests.stores import BY_NAME, Kind


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: dict[str, dict[str, str]] = {}
        self._fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._fields = {}
            # Two forms of one address differ by what they send: the first one stays under its address.
            self.forms.setdefault(given.get("action", ""), self._fields)
        if tag in ("input", "textarea") and "name" in given:
            self._fields[given["name"]] = given.get("value", "")


class Browser:
    """Follows redirects, keeps cookies, says where its forms came from."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=PATIENCE_S, follow_redirects=True)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(f"/console{path}")

    def forms(self, path: str) -> dict[str, dict[str, str]]:
        return forms_of(self.get(path).text)

    def send(self, page: str, action: str, **typed: str) -> httpx.Response:
        """The form of the page that goes to this address, filled in."""
        fields = self.forms(page)[f"/console{action}"]
        return self.post(action, fields | typed)

    def post(self, action: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        sent = {"origin": str(self.http.base_url).rstrip("/")} | headers
        return self.http.post(f"/console{action}", data=fields, headers=sent)

    def sign_in(self, **typed: str) -> httpx.Response:
        return self.send("/sign-in", "/sign-in", **typed)


def forms_of(text: str) -> dict[str, dict[str, str]]:
    reader = _Forms()
    reader.feed(text)
    return reader.forms


Console = Callable[..., tuple[Served, Browser]]


@pytest.fixture(
    params=[BY_NAME["memory"], BY_NAME["sqlite"], BY_NAME["postgres"]], ids=lambda kind: kind.name
)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def console(tmp_path: Any, kind: Kind) -> Iterator[Console]:
    """Starts a gateway with a console on the store; `--dev` unless told otherwise."""
    with ExitStack() as stack:

        def start(**settings: Any) -> tuple[Served, Browser]:
            store = kind.open(tmp_path, SYSTEM, True)
            options: dict[str, Any] = {"url": "memory://", "dev": True, "log": "none"}
            chosen = GatewaySettings(**options | settings)
            url, services = stack.enter_context(embedded(chosen, store, pages=pages()))
            served = Served(url, services)
            stack.enter_context(served.clients)
            browser = Browser(url)
            stack.enter_context(browser.http)
            return served, browser

        yield start
