"""`semel serve --probes MODULE`: calls in doubt are settled by the gateway although nobody calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.flow.document_store import DocumentStore
from semel.gateway.auth import ApiKeys
from semel.gateway.settings import read
from semel.kernel.record import State
from tests.faults.places import PLACES
from tests.gateway.conftest import define
from tests.gateway.serving import Gateway, Gateways, gateways, until
from tests.gateway.serving import semel as command

# Answers as a file says; every question is a line of another.
SHOP = """
import threading
from pathlib import Path
import semel

here = Path(__file__).parent

def probe(key, to):
    with (here / "asked").open("a") as asked:
        asked.write(f"{to}\\n")
    match (here / "answer").read_text():
        case "happened":
            return semel.Happened(f"receipt of {to}")
        case "hang":
            threading.Event().wait()
        case "raise":
            raise ConnectionError("canary")

@semel.tool_contract(class_="write-non-idempotent", probe=probe)
def pay(to: str) -> str:
    raise TimeoutError
"""


class Shop:
    """The module, its downstream, and calls in doubt in a store."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.module = folder / "a_shop.py"
        self.module.write_text(SHOP)
        self._folder = folder
        self.answer("happened")

    def answer(self, text: str) -> None:
        (self._folder / "answer").write_text(text)

    def asked(self) -> list[str]:
        path = self._folder / "asked"
        return path.read_text().split() if path.exists() else []

    def call(self, tenant: str = "default") -> Any:
        """What the call says: a receipt or the code of a refusal."""
        with semel.open(self.url, tenant=tenant) as ledger:
            return pay.call(semel.ToolCall({"to": tenant}, idempotency_key="k-1"), ledger)

    def state(self, tenant: str = "default") -> State:
        with semel.open(self.url, tenant=tenant) as ledger:
            [record] = ledger.records.list()
            return record.state

    def until_done(self, *tenants: str) -> None:
        until(lambda: all(self.state(tenant) is State.DONE for tenant in tenants), "all are settled")


@semel.tool_contract(class_="write-non-idempotent")
def pay(to: str) -> str:
    raise TimeoutError


@pytest.fixture(params=PLACES, ids=lambda place: place.name)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(tmp_path, request.param.url(tmp_path))


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, f"sqlite:///{tmp_path / 'semel.db'}")


@pytest.fixture
def serving() -> Iterator[Gateways]:
    with gateways() as start:
        yield start


def logged(gateway: Gateway) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gateway.said().splitlines() if line.startswith('{"event":"probe.')]


def make_key(url: str, tenant: str) -> None:
    with semel.open(url) as ledger:
        asyncio.run(ApiKeys(DocumentStore(ledger.store)).create(tenant, "ann", ("worker",)))


def test_calls_in_doubt_of_every_tenant_are_settled_and_replay(shop: Shop, serving: Gateways) -> None:
    tenants = ("default", "has-a-key", "has-a-workflow", "uses-no-gateway")
    for tenant in tenants:
        assert shop.call(tenant).error.code == "OUTCOME_UNKNOWN"
    make_key(shop.url, "has-a-key")
    gateway = serving(shop.url, f"--probes={shop.module}")
    define(gateway.client(X_Tenant_ID="has-a-workflow"))
    shop.until_done(*tenants)
    for tenant in tenants:
        replayed = shop.call(tenant)
        assert (replayed.value, replayed.replayed) == (f"receipt of {tenant}", True)
    assert sorted(shop.asked()) == sorted(tenants)
    assert {(line["event"], line["tenant"]) for line in logged(gateway)} == {
        ("probe.settled", tenant) for tenant in tenants
    }


def test_two_gateways_settle_it_once(shop: Shop, serving: Gateways) -> None:
    both = [serving(shop.url, f"--probes={shop.module}") for _ in range(2)]
    assert all(gateway.url for gateway in both), "both look for what is in doubt"
    shop.call()
    shop.until_done("default")
    assert [gateway.stop() for gateway in both] == [0, 0]
    assert [line["event"] for gateway in both for line in logged(gateway)] == ["probe.settled"]


def test_a_probe_that_raises_is_told_without_its_words_and_asked_again(
    sqlite_shop: Shop, serving: Gateways
) -> None:
    sqlite_shop.answer("raise")
    sqlite_shop.call()
    gateway = serving(sqlite_shop.url, f"--probes={sqlite_shop.module}")
    until(lambda: logged(gateway), "the failure is told")
    assert logged(gateway)[0]["raised"] == "ConnectionError"
    assert "canary" not in gateway.said()
    assert sqlite_shop.state() is State.IN_DOUBT
    sqlite_shop.answer("happened")
    sqlite_shop.until_done("default")


def test_a_probe_that_hangs_keeps_nobody_from_being_served_or_the_gateway_from_stopping(
    sqlite_shop: Shop, serving: Gateways
) -> None:
    sqlite_shop.answer("hang")
    sqlite_shop.call()
    gateway = serving(sqlite_shop.url, f"--probes={sqlite_shop.module}")
    until(sqlite_shop.asked, "the probe is asked")
    define(gateway.client())
    assert gateway.stop() == 0
    assert sqlite_shop.state() is State.IN_DOUBT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "There is no file"),
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        ("import semel", "no tool whose contract has a probe"),
        (f"{SHOP}\nshop = pay\n{SHOP.replace('import semel', '')}", "Two contracts"),
    ],
)
def test_a_module_that_cannot_be_asked_is_refused_before_anything_is_served(
    tmp_path: Path, text: str | None, words: str
) -> None:
    module = tmp_path / "a_shop.py"
    if text is not None:
        module.write_text(text)
    ended = command("serve", "--url=memory://", "--port=0", "--dev", f"--probes={module}")
    assert ended.returncode == 3
    assert words in ended.stderr
    assert "Serving" not in ended.stdout
    assert "Traceback" not in ended.stderr


def test_probes_are_named_by_flags_or_by_the_environment() -> None:
    assert read({}, {}).probes == ()
    assert read({"probes": "shop,bank.tools"}, {"SEMEL_PROBES": "other"}).probes == ("shop", "bank.tools")
    assert read({}, {"SEMEL_PROBES": "shop, bank.py"}).probes == ("shop", "bank.py")
    for wrong in ("", "shop,,bank", ","):
        with pytest.raises(ValueError, match="--probes "):
            read({"probes": wrong}, {})


def test_the_environment_names_probes_too(tmp_path: Path) -> None:
    ended = command(
        "serve", "--url=memory://", "--port=0", "--dev", SEMEL_PROBES=f"semel.no_such,{tmp_path / 'none.py'}"
    )
    assert ended.returncode == 3
    assert "There is no module semel.no_such here" in ended.stderr
