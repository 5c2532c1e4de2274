"""`semel serve` and `semel keys` as processes: what they say works, and a stop loses nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from semel.cli import main
from tests.gateway.conftest import define, refused, start_run
from tests.missing import cannot
from tests.patience import PATIENCE_S


class Process:
    """`semel serve` on a free port."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "semel", "serve", "--port=0", f"--url={database(folder)}", *words],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        self.said = self._until("Ctrl-C stops.")
        self.url = re.findall(r"http://\S+", self.said)[0]

    def _until(self, last: str) -> str:
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if last in line:
                return said
        raise AssertionError(f"it ended after: {said}{self.process.communicate()}")

    @property
    def lines(self) -> list[str]:
        """The commands that it suggests."""
        return [line.strip() for line in self.said.splitlines() if line.startswith("  ")]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        said, logged = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said, logged


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    # The suggested lines say `semel`: the one that belongs to this interpreter.
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def database(folder: Path) -> str:
    return f"sqlite:///{folder}/semel.db"


def dialled(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*words: str) -> Process:
        started.append(Process(tmp_path, *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize("words", [("--dev",), ()], ids=["dev", "keys"])
def test_the_lines_that_it_suggests_work_as_they_stand(run, tmp_path: Path, words: tuple[str, ...]) -> None:
    if shutil.which("curl") is None:
        cannot("curl is not installed: apt-get install curl")
    served = run(*words)
    curls = [line for line in served.lines if line.startswith("curl")]
    before = [line for line in served.lines if not line.startswith("curl")]
    assert len(curls) == 3
    script = "\n".join([*before, *(line.replace("curl ", "curl -sS --fail-with-body ", 1) for line in curls)])
    shell = subprocess.run(
        ["bash", "-e", "-c", f"{script}\n{script}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert shell.returncode == 0, shell.stdout + shell.stderr
    assert len(set(re.findall(r"run_[0-9a-f]{32}", shell.stdout))) == 1
    assert "idempotent-replayed: true" in shell.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_in_order(run, number: signal.Signals) -> None:
    served = run("--dev")
    with httpx.Client(base_url=served.url) as client:
        define(client)
        assert start_run(client, {"n": 1}, "order-1").status_code == 200
    code, said, logged = served.stop(number)
    assert (code, said.strip()) == (0, "Stopped; everything that was answered is kept.")
    assert [json.loads(line)["route"] for line in logged.splitlines()] == ["put_workflow", "start_run"]


def test_what_was_answered_before_a_stop_is_there_afterwards(run) -> None:
    served = run("--dev")
    with httpx.Client(base_url=served.url) as client:
        define(client)
        first = start_run(client, {"n": 1}, "order-1")
    served.stop()
    with httpx.Client(base_url=run("--dev").url) as client:
        assert start_run(client, {"n": 1}, "order-1").content == first.content


def test_what_was_told_before_a_stop_is_sealed(run, tmp_path: Path) -> None:
    served = run("--dev")
    with httpx.Client(base_url=served.url) as client:
        define(client)
        assert start_run(client, {"n": 1}, "order-1").status_code == 200
    served.stop()
    words = ("audit", "verify", "--url", f"sqlite:///{tmp_path}/semel.db", "--json")
    told = json.loads(CliRunner().invoke(main, words).stdout)
    assert (told["whole"], told["events"], told["unsealed"]) == (True, 1, 0)


def test_a_stop_answers_who_still_waits(run) -> None:
    served = run("--dev")
    body = b'{"topics": ["mail"], "max": 1, "lease_s": 30, "wait_s": 60}'
    head = f"POST /api/v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with dialled(served.url) as waiting:
        waiting.sendall(head.encode() + body)
        for _ in range(3):
            httpx.get(f"{served.url}/healthz")  # whoever came first was read first
        code, _, _ = served.stop()
        answer = waiting.makefile("rb").read()
    assert code == 0
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b'{"jobs":[]}')


def test_a_client_that_leaves_in_the_middle_of_its_body_starts_nothing(run) -> None:
    served = run("--dev")
    head = b"POST /api/v1/workflows/hello/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    with httpx.Client(base_url=served.url) as client:
        define(client)
        with dialled(served.url) as half:
            half.sendall(head + b'{"a":')
        assert client.get("/api/v1/runs").json()["items"] == []
    assert served.stop()[0] == 0


# --- refusals to begin ----------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in [name for name in os.environ if name.startswith("SEMEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/semel.db"


def ask(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--dev", "--host", "0.0.0.0"), 3, "this machine only"),
        (("--port", "many"), 2, "--port"),
        (("--admission", "luck"), 2, "--admission"),
        (("--lock-wait", "2"), 2, "--lock-wait"),
        (("--bus", "amqp://x"), 2, "--bus"),
        (("--sample",), 2, "it needs --dev"),
        (("--host", "203.0.113.7"), 4, "Nothing can listen"),
        (("--url", "nothing://"), 4, "not a store"),
    ],
)
def test_what_cannot_be_served_is_told_and_nothing_is_started(url: str, words, code: int, why: str) -> None:
    answer = ask("serve", *words)
    assert (answer.exit_code, why in answer.output) == (code, True), answer.output


def test_a_port_that_is_taken_is_told(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = ask("serve", "--dev", "--url", "memory://", "--port", str(taken.getsockname()[1]))
    assert (answer.exit_code, "Choose another --port" in answer.output) == (4, True), answer.output


# --- keys -----------------------------------------------------------------------------------------


def make(url: str, *words: str) -> dict[str, Any]:
    answer = ask("keys", "create", "--url", url, "--tenant", "acme", "--principal", "ann", "--json", *words)
    assert answer.exit_code == 0, answer.output
    made: dict[str, Any] = json.loads(answer.stdout)
    return made


def test_a_key_is_shown_once_alone_on_standard_output(url: str) -> None:
    answer = ask("keys", "create", "--url", url, "--tenant", "acme", "--role", "worker", "--principal", "ann")
    assert re.fullmatch(r"semel_[0-9a-f]{16}_[\w-]{43}\n", answer.stdout)
    listed = ask("keys", "list", "--url", url)
    assert answer.stdout.strip().split("_", 2)[2] not in listed.output
    assert "worker" in listed.output


def test_keys_are_listed_and_revoked(url: str) -> None:
    made = make(url, "--role", "worker", "--role", "auditor")
    assert ask("keys", "revoke", made["id"], "--url", url).exit_code == 0
    [shown] = json.loads(ask("keys", "list", "--url", url, "--json").stdout)["items"]
    assert (shown["roles"], shown["id"]) == (["auditor", "worker"], made["id"])
    assert shown["revoked_at"] is not None
    assert json.loads(ask("keys", "list", "--tenant", "umbra", "--url", url, "--json").stdout)["items"] == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("create", "--tenant", "acme", "--role", "king", "--principal", "ann"), 2),
        (("create", "--tenant", ".semel", "--role", "admin", "--principal", "ann"), 3),
        (("create", "--tenant", "acme", "--principal", "ann"), 2),
        (("revoke", "0000000000000000"), 4),
        (("list",), 4),
    ],
)
def test_what_cannot_be_done_with_keys_is_told(url: str, words, code: int) -> None:
    assert ask("keys", *words, "--url", url).exit_code == code


def test_an_unknown_key_is_not_revoked_and_memory_keeps_none(url: str) -> None:
    make(url, "--role", "worker")
    assert ask("keys", "revoke", "0000000000000000", "--url", url).exit_code == 3
    assert ask("keys", "list", "--url", "memory://").exit_code == 2


def test_a_key_made_beside_a_running_gateway_opens_it(run, tmp_path: Path) -> None:
    served = run()
    command = next(line for line in served.lines if line.startswith("export"))
    words = shlex.split(command[command.index("(") + 1 : -1])
    key = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    with httpx.Client(base_url=served.url, headers={"X-API-Key": key.stdout.strip()}) as client:
        assert client.get("/api/v1/runs").status_code == 200
        refused(client.get("/api/v1/runs", headers={"X-API-Key": "semel_0_0"}), 401, "unauthenticated")
