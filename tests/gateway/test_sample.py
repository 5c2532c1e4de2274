"""`semel serve --dev --sample`: what it tells is so, what it suggests works, a second start goes on there."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.lab import sample
from tests.gateway.conftest import Serve
from tests.gateway.serving import Gateway, Gateways, quiet_environment, semel, until
from tests.missing import cannot
from tests.patience import PATIENCE_S

WAITING, FAILED, SUCCEEDED = "waiting", "failed", "succeeded"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/semel.db"


def told(gateway: Gateway) -> dict[str, tuple[str, str]]:
    """By order: how its run stands, and what came of it, as soon as all is told."""
    until(lambda: gateway.url and "Ctrl-C stops." in gateway.said(), "it has told all")
    rows = re.findall(r"^(\d) +[\d,.]+ +(\w+) +(.*)$", gateway.said(), re.MULTILINE)
    return {order: (status, story) for order, status, story in rows}


def lines(gateway: Gateway) -> list[str]:
    """The commands that it suggests, the one that follows a settlement last."""
    told(gateway)
    return re.findall(r"^  +((?:curl|semel) .*)$", gateway.said(), re.MULTILINE)


def typed(line: str) -> str:
    """What the line writes, given to a shell as it stands, where `semel` is the one of this interpreter."""
    if shutil.which("curl") is None:
        cannot("curl is not installed: apt-get install curl")
    environment = quiet_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs(client: httpx.Client) -> dict[int, dict[str, Any]]:
    """By order: its newest run."""
    items = client.get("/api/v1/runs").json()["items"]
    return {run["input"]["order"]: run for run in reversed(items)}


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run: dict[str, Any] = client.get(f"/api/v1/runs/{run_id}").json()
        return run if run["status"] in (FAILED, SUCCEEDED) else None

    run: dict[str, Any] = until(look, f"{run_id} has ended")
    return run


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_one_ends_one_waits_one_is_in_doubt_as_told(begin: Gateways, store: str, url: str) -> None:
    gateway = begin(store if url == "sqlite" else url, "--sample")
    stories = told(gateway)
    client = gateway.client()
    expected = {1: SUCCEEDED, 2: WAITING, 3: FAILED}
    assert {number: run["status"] for number, run in runs(client).items()} == expected
    assert {int(number): status for number, (status, _) in stories.items()} == expected
    [doubt] = client.get("/api/v1/records?scope=tool&state=in_doubt").json()["items"]
    [question] = client.get("/api/v1/approvals?status=waiting").json()["items"]
    assert stories["3"][1].startswith("IN DOUBT")
    assert doubt["id"] in gateway.said()
    assert question["job_id"] in gateway.said()


def test_the_lines_to_try_lead_every_run_to_its_end(begin: Gateways, store: str) -> None:
    gateway = begin(store, "--sample")
    again, approve, settle, rerun = lines(gateway)
    client = gateway.client()
    before = runs(client)

    head, _, body = typed(again.replace("curl -i", "curl -sSi")).partition("\n\n")
    assert "idempotent-replayed: true" in head
    assert json.loads(body)["run_id"] == before[1]["run_id"]

    typed(approve)
    assert ended(client, before[2]["run_id"])["status"] == SUCCEEDED

    typed(settle)
    run_id = json.loads(typed(f"{rerun} --json"))["run_id"]
    assert run_id != before[3]["run_id"]
    last = ended(client, run_id)
    assert (last["status"], last["result"]) == (SUCCEEDED, {"pay": sample.ORDERS[2].booked})

    calls = client.get("/api/v1/records?scope=tool").json()["items"]
    assert sorted((call["state"], call["attempts"]) for call in calls) == [("done", 1)] * 3


def test_a_second_start_on_the_store_tells_the_same_runs(begin: Gateways, store: str) -> None:
    first = begin(store, "--sample")
    stories = told(first)
    before = runs(first.client())
    assert first.stop() == 0
    second = begin(store, "--sample")
    assert told(second) == stories
    assert runs(second.client()) == before


def test_a_second_start_tells_what_people_did_since(begin: Gateways, store: str) -> None:
    first = begin(store, "--sample")
    _, approve, settle, _ = lines(first)
    typed(approve.replace(" approve ", " reject "))
    typed(settle)
    assert first.stop() == 0
    second = begin(store, "--sample")
    stories = told(second)
    assert stories["2"] == (FAILED, "nobody approved it: nothing was paid")
    assert stories["3"][1].startswith("a person has settled it")
    for line in lines(second):
        typed(line.replace("curl ", "curl -sS ", 1))


def test_its_worker_performs_what_else_is_started(begin: Gateways, store: str) -> None:
    gateway = begin(store, "--sample")
    told(gateway)
    client = gateway.client()
    started = client.post(
        f"/api/v1/workflows/{sample.REFUND}/runs", json={"order": 4, "amount_minor": 100}
    ).json()
    assert ended(client, started["run_id"])["result"] == {"pay": {"refund": "re-4"}}
    wrong = client.post(f"/api/v1/workflows/{sample.REFUND}/runs", json={"order": "four"})
    assert wrong.json()["code"] == "input_invalid"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_gateway_and_worker(begin: Gateways, store: str, number: signal.Signals) -> None:
    gateway = begin(store, "--sample")
    told(gateway)
    gateway.send(number)
    assert gateway.wait() == 0
    assert gateway.said().endswith("Stopped; everything that was answered is kept.\n")
    assert "Traceback" not in gateway.said()
    verified = semel("audit", "verify", "--url", store, "--json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["unsealed"] == 0


def test_a_stop_before_all_is_told_is_in_order_too(begin: Gateways, store: str) -> None:
    gateway = begin(store, "--sample")
    assert gateway.url
    gateway.send(signal.SIGINT)
    assert gateway.wait() == 0
    assert "Traceback" not in gateway.said()


def test_without_room_for_its_runs_the_gateway_serves_all_the_same(begin: Gateways, store: str) -> None:
    full = begin(store)
    client = full.client()
    assert client.put("/api/v1/tenants/default", json={"max_concurrent_runs": 1}).status_code == 200
    assert client.put("/api/v1/workflows/long", json={"steps": []}).status_code == 200
    assert client.post("/api/v1/workflows/long/runs", json={}).status_code == 200
    assert full.stop() == 0
    gateway = begin(store, "--sample")
    assert told(gateway) == {}
    assert "The sample is not there" in gateway.said()
    assert gateway.client().get("/api/v1/runs").status_code == 200
    assert gateway.stop() == 0


# --- the page at / ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", [True, False])
def test_without_the_console_the_front_page_links_to_what_is_there(serve: Serve, dev: bool) -> None:
    client = serve(dev=dev).client()
    page = client.get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    links = re.findall(r'href="([^"]+)"', page.text)
    assert "/openapi.json" in links
    assert {link: client.get(link).status_code for link in links if link.startswith("/")} == {
        link: 200 for link in links if link.startswith("/")
    }
    assert ("semel keys create" in page.text) is not dev
    assert client.post("/").status_code == 405


def test_with_the_console_the_front_page_leads_to_it(begin: Gateways, store: str) -> None:
    answer = begin(store).client().get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")


def test_without_the_console_the_sample_names_no_page_of_it(store: str) -> None:
    without = "import sys; sys.modules['starlette'] = None; import semel.cli; semel.cli.main()"
    words = ["serve", "--dev", "--sample", "--port", "0", "--url", store]
    with subprocess.Popen(
        [sys.executable, "-c", without, *words],
        stdout=subprocess.PIPE,
        text=True,
        env=quiet_environment(),
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] not in ("Ctrl-C stops.\n", ""):
            lines.append(process.stdout.readline())
        process.terminate()
    text = "".join(lines)
    assert "ORDER" in text
    assert "/console/" not in text
    assert 'pip install "semel[console]"' in text
