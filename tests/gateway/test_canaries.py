"""Secrets are planted in a gateway's life and looked for in everything that comes out of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import define, limit, start_run
from tests.gateway.serving import ROOT, Gateway, Gateways, quiet_environment, semel
from tests.patience import PATIENCE_S
from tests.postgres_server import shared_url as postgres_url
from tests.redis_server import RedisServer

# Told apart, so that a failure says which one was seen where.
PASSWORD = "canary-password-7f3a"
INPUT = "canary-input-91bc"
KEY = "canary-key-55d0"
WRONG_KEY = "canary-wrong-key-c27e"
WRONG_CREDENTIAL = "semel_0123456789abcdef_canary-credential-e8a1"


def made_key(store: str, *roles: str) -> str:
    words = [word for role in roles for word in ("--role", role)]
    made = semel("keys", "create", "--url", store, "--tenant", "acme", "--principal", "ann", *words)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip().splitlines()[-1]


def everything_goes_wrong(gateway: Gateway, client: httpx.Client) -> list[httpx.Response]:
    """Refusals of every kind, each to a request that carries canaries."""
    schema = {"type": "object", "properties": {"order": {"type": "integer", "enum": [1, 2]}}}
    define(client, "strict", input_schema=schema)
    stranger = gateway.client(X_API_Key=WRONG_CREDENTIAL)
    runs = "/api/v1/workflows/hello/runs"
    return [
        start_run(client, {"order": INPUT}, KEY + "-2", "strict"),
        start_run(client, {"order": "other"}, KEY),
        start_run(client, {"order": INPUT}, "another", "absent"),
        start_run(client, {"order": INPUT}, WRONG_KEY * 100),
        start_run(stranger, {"order": INPUT}, KEY),
        client.post(runs, content=f'{{"order": "{INPUT}"'.encode(), headers={"Idempotency-Key": KEY}),
        client.post(runs, content=f'["{INPUT}"]'.encode()),
        client.post(runs, json={}, params={"idempotency_key": [WRONG_KEY, WRONG_KEY + "-2"]}),
        client.post(runs, json={}, params={"password": INPUT}),
        client.post("/api/v1/jobs", json={"topic": {"order": INPUT}, "input": INPUT}),
        client.post("/api/v1/leases", json={"topics": [INPUT + " "], "max": INPUT, "lease_s": 1}),
        client.put("/api/v1/workflows/bad", json={"steps": [{"id": INPUT + "!", "topic": 5}]}),
        client.get("/api/v1/records", params={"state": INPUT, "key": KEY}),
        client.get("/api/v1/runs", params={"cursor": INPUT}),
        client.get(f"/api/v1/runs/run_{INPUT}"),
        client.get(f"/{INPUT}"),
    ]


def public_text(client: httpx.Client) -> dict[str, str]:
    paths = ("/metrics", "/openapi.json", "/readyz", "/healthz")
    return {path: client.get(path).text for path in paths}


def check_absent(canaries: dict[str, str], outputs: dict[str, str]) -> None:
    seen = [
        f"{name} in {where}"
        for name, canary in canaries.items()
        for where in outputs
        if canary in outputs[where]
    ]
    assert seen == []


def secret_of(api_key: str) -> str:
    return api_key.split("_", 2)[2]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'semel.db'}"


@pytest.mark.parametrize("strategy", ["atomic", "lock"])
def test_no_secret_comes_out_of_a_gateway(strategy: str, store: str, tmp_path: Path, begin: Gateways) -> None:
    admin, approver = made_key(store, "admin", "submitter"), made_key(store, "approver")
    gateway = begin(store, f"--admission={strategy}", dev=False, log="all")
    client = gateway.client(X_API_Key=admin)
    define(client)
    assert client.put("/api/v1/tenants/acme", json={"max_concurrent_runs": 1}).status_code == 200
    first = start_run(client, {"order": INPUT}, KEY)
    again = start_run(client, {"order": INPUT}, KEY)
    full = start_run(client, {"order": INPUT}, WRONG_KEY)
    assert [first.status_code, again.status_code, full.status_code] == [200, 200, 429]
    forbidden = start_run(gateway.client(X_API_Key=approver), {"order": INPUT}, KEY)
    refusals = [full, forbidden, *everything_goes_wrong(gateway, client)]
    assert {answer.status_code // 100 for answer in refusals} == {4}
    outputs = {f"refusal {number}": answer.text for number, answer in enumerate(refusals)}
    outputs |= {"started": first.text, "again": again.text, **public_text(client)}
    assert gateway.stop() == 0
    outputs["process"] = gateway.said()

    assert len(outputs["process"].splitlines()) > len(refusals), "the log was on"
    canaries = {
        "admin's key": secret_of(admin),
        "approver's key": secret_of(approver),
        "refused credential": "canary-credential",
        "idempotency key": KEY,
        "refused idempotency key": WRONG_KEY,
        "input": INPUT,
    }
    check_absent(canaries, outputs)
    files = {path.name: path.read_bytes().decode("latin-1") for path in tmp_path.glob("semel.db*")}
    assert any(INPUT in text for text in files.values()), "what is kept is looked for in the right place"
    check_absent({"admin's key": secret_of(admin), "refused credential": "canary-credential"}, files)


@pytest.fixture
def guarded_redis() -> Iterator[RedisServer]:
    server = RedisServer(requirepass=PASSWORD)
    server.start()
    yield server
    server.remove()


def test_the_password_of_redis_comes_out_nowhere(guarded_redis: RedisServer, begin: Gateways) -> None:
    url = f"redis://:{PASSWORD}@127.0.0.1:{guarded_redis.port}"
    gateway = begin(url, log="all")
    outputs = life_and_death_of_a_store(gateway, guarded_redis)
    assert "Serving redis://" in outputs["process"]
    check_absent({"password": PASSWORD}, outputs | said_by_commands(url))


def life_and_death_of_a_store(gateway: Gateway, server: RedisServer) -> dict[str, str]:
    client = gateway.client(X_Tenant_ID="acme")
    define(client)
    limit(client, 1)
    answers = [start_run(client, key="1"), start_run(client, key="2")]
    server.kill()
    answers += [start_run(client, key="3"), client.get("/api/v1/runs"), client.get("/readyz")]
    assert [answer.status_code for answer in answers] == [200, 429, 503, 503, 503]
    outputs = {f"answer {number}": answer.text for number, answer in enumerate(answers)}
    outputs |= public_text(client)
    assert gateway.stop() == 0
    return outputs | {"process": gateway.said()}


def said_by_commands(url: str) -> dict[str, str]:
    """Commands on a store that is away: all of them complain."""
    commands = (
        ("serve", "--dev", "--port=0", "--url", url),
        ("keys", "create", "--url", url, "--tenant", "t", "--role", "admin", "--principal", "p"),
        ("runbook", "admission", "--url", url),
    )
    ended = {" ".join(words[:2]): semel(*words) for words in commands}
    assert all(done.returncode == 4 for done in ended.values()), ended
    return {name: done.stdout + done.stderr for name, done in ended.items()}


def test_the_password_of_postgres_comes_out_nowhere(begin: Gateways) -> None:
    url = postgres_url("canary_passwords").replace("semel@", f"semel:{PASSWORD}@")
    gateway = begin(url, log="all")
    client = gateway.client(X_Tenant_ID="acme")
    define(client)
    outputs = {"started": start_run(client, {}).text, **public_text(client)}
    assert gateway.stop() == 0
    outputs["process"] = gateway.said()
    assert "Serving postgresql://" in outputs["process"]
    check_absent({"password": PASSWORD}, outputs | said_by_commands(_without_server(url)))


def _without_server(url: str) -> str:
    """The URL with a port on which nobody listens."""
    before, _, rest = url.partition("127.0.0.1:")
    return f"{before}127.0.0.1:1/{rest.partition('/')[2]}"


def test_a_wrong_setting_is_named_without_the_secret_that_it_may_hold() -> None:
    ended = [
        semel("serve", "--dev", "--url", f"nonsense://ann:{PASSWORD}@host"),
        semel(
            "serve", "--dev", "--url", "sqlite:////nowhere/semel.db", SEMEL_BUS=f"http://ann:{PASSWORD}@host"
        ),
        semel("serve", "--url", f"redis://:{PASSWORD}@[broken"),
        semel("serve", "--dev", "--host", "0.0.0.0", "--url", f"redis://:{PASSWORD}@127.0.0.1:1"),
    ]
    for done in ended:
        assert done.returncode not in (0, 1)
        assert PASSWORD not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_no_other_process_reads_a_credential_from_the_command_line_of_a_gateway(
    store: str, begin: Gateways
) -> None:
    """Keys are in the store, as hashes: a gateway is started without any."""
    key = made_key(store, "admin")
    gateway = begin(store, dev=False)
    assert gateway.client(X_API_Key=key).get("/api/v1/runs").status_code == 200
    assert secret_of(key).encode() not in Path(f"/proc/{gateway.pid}/cmdline").read_bytes()
    assert secret_of(key).encode() not in Path(f"/proc/{gateway.pid}/environ").read_bytes()


def test_a_key_is_shown_once_and_lists_do_not_have_it(store: str) -> None:
    key = made_key(store, "admin")
    listed = semel("keys", "list", "--url", store, "--json")
    assert listed.returncode == 0, listed.stderr
    kept: Any = json.loads(listed.stdout)
    assert "ann" in json.dumps(kept)
    assert secret_of(key) not in listed.stdout


def test_a_crash_at_start_shows_no_environment() -> None:
    """What a supervisor keeps of a gateway that cannot begin is one message."""
    done = subprocess.run(
        [sys.executable, "-m", "semel", "serve", "--port", "0"],
        cwd=ROOT,
        env=quiet_environment() | {"SEMEL_URL": f"postgresql://ann:{PASSWORD}@127.0.0.1:1/x"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
