"""Fixtures: gateways as real processes, of one test or shared by a module. None is left afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.serving import Gateways, Park, gateways


@pytest.fixture
def begin() -> Iterator[Gateways]:
    with gateways() as start:
        yield start


@pytest.fixture(scope="module")
def park(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Park]:
    with gateways() as start:
        yield Park(start, tmp_path_factory.mktemp("park"))
