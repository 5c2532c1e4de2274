"""`semel console`: the console of a store that has no gateway, as a process."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from semel.cli import main
from semel.ledger.ledger import Ledger
from semel.stores.urls import open_store
from tests.console.conftest import Browser
from tests.console.scenes import in_doubt, probed_payment
from tests.gateway.serving import PATIENCE_S, quiet_environment, until


@contextmanager
def console(url: str, folder: Path, *more: str) -> Iterator[str]:
    """The address that it prints."""
    output = folder / "output"
    with output.open("wb") as out:
        words = [sys.executable, "-m", "semel", "console", "--url", url, "--port", "0", "--as", "ann", *more]
        process = subprocess.Popen(words, env=quiet_environment(), stdout=out, stderr=out)
    try:
        yield until(lambda: (re.findall(r"http://\S+", output.read_text()) or [""])[0], "it serves")
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, output.read_text()


def test_the_printed_address_opens_once_and_its_owner_settles(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/semel.db"
    store = open_store(url)
    record = in_doubt(store)
    with console(url, tmp_path) as address:
        where, _, path = address.partition("/console")
        browser = Browser(where)
        with browser.http:
            assert browser.http.head(address).status_code == 401  # looking does not use it up
            assert record["id"] in browser.get(path).text
            page = f"/records/{record['id']}"
            assert "it happened" in browser.send(page, f"{page}/resolve").text
        assert httpx.get(address).status_code == 401
        assert httpx.get(f"{where}/api/v1/runs").status_code == 404
    resolved = Ledger(store).records.get(record["id"])
    store.close()
    assert (resolved.state.value, resolved.by) == ("done", "ann")


def test_consoles_of_two_stores_are_open_in_one_browser(tmp_path: Path) -> None:
    with ExitStack() as stack:
        addresses = []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            open_store(f"sqlite:///{folder}/semel.db").close()
            addresses.append(stack.enter_context(console(f"sqlite:///{folder}/semel.db", folder)))
        browser = stack.enter_context(httpx.Client(follow_redirects=True, timeout=PATIENCE_S))
        for address in addresses:
            assert browser.get(address).status_code == 200
        for address in addresses:
            assert "What needs a person" in browser.get(f"{address.partition('/console')[0]}/console/").text


def test_a_probe_is_asked_and_what_was_typed_is_shown_when_the_session_is_gone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/semel.db"
    store = open_store(url)
    record = in_doubt(store, payment="n-1", call=partial(probed_payment, payment_id="n-1"))
    store.close()
    with console(url, tmp_path, "--probes", probed_payment.__module__) as address:
        where, _, path = address.partition("/console")
        browser = Browser(where)
        with browser.http:
            browser.get(path)
            page = f"/records/{record['id']}"
            assert "cannot tell" in browser.send(page, f"{page}/probe").text
            fields = browser.forms(page)[f"/console{page}/resolve"]
            browser.http.cookies.clear()
            answer = browser.post(f"{page}/resolve", fields | {"result": '{"refund": "re_8"}'})
            assert "Not done yet" in answer.text
            assert "re_8" in answer.text


def test_the_command_that_is_copied_settles_the_same_record_of_this_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/semel.db"
    store = open_store(url)
    record = in_doubt(store)
    with console(url, tmp_path) as address:
        where, _, path = address.partition("/console")
        browser = Browser(where)
        with browser.http:
            browser.get(path)
            (command,) = re.findall(
                r'data-copy="semel ([^"]*)"', browser.get(f"/records/{record['id']}").text
            )
    words = [sys.executable, "-m", "semel", *shlex.split(html.unescape(command))]
    subprocess.run(words, env=quiet_environment(), check=True, capture_output=True)
    assert Ledger(store).records.get(record["id"]).state.value == "done"
    store.close()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "semel", "console", "--url", f"sqlite:///{tmp_path}/no.db", "--port", "0"]
    ended = subprocess.run(words, env=quiet_environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 4
    assert "Nothing was created" in ended.stderr
    assert not (tmp_path / "no.db").exists()


@pytest.mark.parametrize(("option", "wrong"), [("--tenant", ".semel"), ("--as", "a\nb")])
def test_a_name_that_nobody_can_have_starts_nothing(tmp_path: Path, option: str, wrong: str) -> None:
    words = ["console", "--url", f"sqlite:///{tmp_path}/semel.db", option, wrong]
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code == 2
    assert re.search(r"[a-z]\. Nothing was started\.$", answer.stderr.strip())
