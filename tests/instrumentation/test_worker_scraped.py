"""`semel worker --metrics-port`: a real worker, scraped over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

import semel
from semel.cli import main
from semel.flow.assembly import Flow, Policy
from semel.flow.values import Caller
from tests.faults.checks import until
from tests.patience import PATIENCE_S

SHOP = """
import semel

semel.instrumentation.use()  # --metrics-port is asked for all the same

@semel.tool_contract(name="pay")
def pay(to: str) -> str:
    return to

@semel.handler("order")
def order(job):
    return [pay(job.input), pay(job.input)]
"""


class Scraped:
    """A worker as a process."""

    def __init__(self, folder: Path) -> None:
        (folder / "shop.py").write_text(SHOP)
        self.url = f"sqlite:///{folder / 'semel.db'}"
        words = ["worker", "shop.py", "--url", self.url, "--metrics-port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "semel", *words], cwd=folder, stderr=subprocess.PIPE, text=True
        )

    def hear(self, event: str) -> dict[str, Any]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            said: dict[str, Any] = json.loads(line)
            if said["event"] == event:
                return said
        raise AssertionError(f"it ended without saying {event}")


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[Scraped]:
    worker = Scraped(tmp_path)
    with worker.process:
        yield worker
        worker.process.kill()


async def _silence(*_: Any) -> None:
    await asyncio.sleep(0)


def create(url: str) -> str:
    with semel.open(url) as ledger:
        jobs = Flow(ledger.store, Policy(), send=_silence, wait=_silence).jobs
        answer = asyncio.run(jobs.create(Caller("default", "ann"), None, "order", "ann", None, None))
    return str(orjson.loads(answer.body)["job_id"])


def test_a_worker_says_where_it_is_scraped_and_shows_the_calls_of_its_handlers(scraped: Scraped) -> None:
    address = scraped.hear("worker.opened")["metrics"]
    assert address.startswith("http://127.0.0.1:")
    scraped.hear("worker.started")
    create(scraped.url)
    scraped.hear("job.succeeded")

    def text() -> str:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    until(lambda: 'semel_calls_total{answer="done",tool="pay"} 1.0' in text(), "the call is shown")
    assert 'semel_calls_total{answer="replayed",tool="pay"} 1.0' in text()
    assert 'semel_call_seconds_count{stage="claim",tool="pay"} 1.0' in text()
    assert 'semel_retry_age_seconds_count{tool="pay"} 1.0' in text()
    assert "process_cpu_seconds_total" in text()
    scraped.process.send_signal(signal.SIGTERM)
    assert scraped.process.wait(PATIENCE_S) == 0


def test_a_port_that_is_taken_is_named_and_no_job_is_leased(tmp_path: Path, no_hooks: None) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace('"order"', '"taken"'))
    url = f"sqlite:///{tmp_path / 'semel.db'}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["worker", str(tmp_path / "shop.py"), "--url", url, "--metrics-port", port]
        ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 4
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "--metrics-port" in ended.stderr
    assert not (tmp_path / "semel.db").exists()


def test_without_prometheus_client_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_hooks: None
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    # A topic has one handler in a process, and this one has loaded the other test's.
    (tmp_path / "shop.py").write_text(SHOP.replace('"order"', '"unscraped"'))
    ended = CliRunner().invoke(main, ["worker", str(tmp_path / "shop.py"), "--metrics-port", "0"])
    assert ended.exit_code == 4
    assert 'pip install "semel[metrics]"' in ended.stderr
