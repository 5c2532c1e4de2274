"""Shops behind the middleware: one process for each framework and store of a module, and others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edge.serving import ShopProcess, Shops, shops
from tests.faults.places import PLACES, Place

MEMORY = Place("memory", lambda _: "memory://")


@pytest.fixture(scope="module", params=["fastapi", "django"])
def framework(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module", params=(MEMORY, *PLACES), ids=lambda place: place.name)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    where: str = request.param.url(tmp_path_factory.mktemp("store"))
    return where


@pytest.fixture(scope="module")
def shop(framework: str, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopProcess]:
    """One process for the tests of a module: each has keys and effects of its own."""
    with shops(tmp_path_factory.mktemp("shop")) as start:
        yield start(framework, url)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Shops]:
    with shops(tmp_path) as starting:
        yield starting


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def what() -> str:
    """Something to do that nobody else does."""
    return f"order-{uuid.uuid4().hex}"
