"""The examples run, and land once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server, redis_server
from tests.missing import library
from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def told_by(example: str, folder: Path, url: str | None = None) -> list[str]:
    """What the example prints, run in an empty folder; it checks itself that nothing landed twice."""
    environment = {name: value for name, value in os.environ.items() if name != "SEMEL_URL"}
    if url is not None:
        environment["SEMEL_URL"] = url
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_has_a_test_here() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {"refund.py", "same_transaction.py", "send_email.py", "upsert.py"}


def url_of(kind: str) -> str:
    match kind:
        case "redis":
            return redis_server.shared_url("example")
        case "postgres":
            return postgres_server.shared_url("example")
        case "sqlite":
            return "sqlite:///refund.db"
    return "memory://"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres"])
def test_the_refund_is_paid_once_although_it_is_asked_for_three_times(tmp_path: Path, kind: str) -> None:
    lines = told_by("refund.py", tmp_path, url_of(kind))
    assert [line for line in lines if "pays" in line] == ["  provider: pays 1400000 back for p-1 (damaged)"]
    assert [line for line in lines if "agent:" in line] == [
        "  agent: Refund(id='re-1', amount_minor=1400000)"
    ] * 2
    assert lines[-1] == "Requests: 3. Refunds: 1."


def test_each_mail_leaves_once_whether_its_process_died_before_or_after(tmp_path: Path) -> None:
    lines = told_by("send_email.py", tmp_path)
    assert [line.split("'")[1] for line in lines if "sends" in line] == ["Your refund", "Your parcel"]
    probes = [line for line in lines if "probe:" in line]
    assert probes == [
        "  probe: the message is in the sent box",
        "  probe: the message is not in the sent box",
    ]
    assert lines[-1] == "Messages: 2. Actions: 2."


def test_the_upsert_repeats_and_leaves_one_customer(tmp_path: Path) -> None:
    lines = told_by("upsert.py", tmp_path)
    assert [line.split()[1] for line in lines if "crm:" in line] == ["adds", "sets", "sets", "sets"]
    assert lines[-1] == "Customers: 1."


def rows(url: str, statement: str) -> list[Any]:
    plain = url.partition("?")[0]
    if plain.startswith("postgresql:"):
        psycopg = library("psycopg")
        with closing(psycopg.connect(plain, autocommit=True)) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []
    with closing(sqlite3.connect(plain.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_transfer_leaves_the_database_that_it_is_shown_as_it_was(tmp_path: Path, kind: str) -> None:
    shown = {
        "sqlite": f"sqlite:///{tmp_path}/app.db?shared=yes",
        "postgres": postgres_server.shared_url("example"),
    }
    url = shown[kind]
    rows(url, "DROP TABLE IF EXISTS accounts")
    rows(url, "CREATE TABLE accounts (name varchar(20), balance integer)")
    rows(url, "INSERT INTO accounts VALUES ('carol', 5)")
    for _ in range(2):
        assert told_by("same_transaction.py", tmp_path, url)[-1] == "Balances: {'ann': 70, 'bob': 30}."
    assert rows(url, "SELECT name, balance FROM accounts") == [("carol", 5)]
    catalogue = "sqlite_master" if kind == "sqlite" else "pg_class"
    name = "name" if kind == "sqlite" else "relname"
    assert rows(url, f"SELECT {name} FROM {catalogue} WHERE {name} LIKE 'example_%'") == []
    rows(url, "DROP TABLE accounts")


def test_the_transfer_commits_with_its_record_or_not_at_all(tmp_path: Path) -> None:
    lines = told_by("same_transaction.py", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert [line for line in lines if "agent:" in line] == ["  agent: 30 moved"] * 2
    # Once in the transaction that went with its process, once in the one that was committed.
    assert len([line for line in lines if "books:" in line]) == 2
    assert lines[-1] == "Balances: {'ann': 70, 'bob': 30}."
