"""A store that outlives its processes, a bank beside it, and processes that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from tests.faults.bank import Bank
from tests.faults.places import PLACES
from tests.faults.process import Process
from tests.gateway.started import begin, park  # noqa: F401  fixtures

Start = Callable[..., Process]


@pytest.fixture(params=PLACES, ids=lambda place: place.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    where: str = request.param.url(tmp_path)
    return where


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path / "bank.jsonl")


@pytest.fixture
def ledger(url: str) -> Iterator[semel.Ledger]:
    """The ledger of this process: the one that comes after those that died."""
    with semel.open(url) as ledger:
        yield ledger


@pytest.fixture
def start(url: str, bank: Bank) -> Iterator[Start]:
    """Starts a process that plays a scene on the test's store and bank."""
    processes: list[Process] = []

    def play(scene: str, *, under: Any = (), **told: Any) -> Process:
        process = Process(scene, {"url": url, "bank": bank.path, **told}, under=under)
        processes.append(process)
        return process

    yield play
    for process in processes:
        process.clean_up()
