"""Every test of this folder runs on every store, synchronously and asynchronously."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from semel.kernel.clock import Clock
from tests.fake_clock import FakeClock
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.stores import CONFORMING, Kind


class StoreHandles:
    """Opens handles on the store of one directory, and closes them all in the end."""

    def __init__(self, kind: Kind, directory: Path, manner: type[StoreHandle]) -> None:
        self.kind = kind
        self._directory = directory
        self._manner = manner
        self._handles: list[StoreHandle] = []

    def open(self, clock: Clock, audit_on: bool = True) -> StoreHandle:
        """A handle on the records of this directory: the same ones each time, if it can be shared."""
        handle = self._manner(self.kind.open(self._directory, clock, audit_on))
        self._handles.append(handle)
        return handle

    def close(self) -> None:
        for handle in reversed(self._handles):
            handle.close()


@pytest.fixture(params=CONFORMING, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture(params=[StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def handles(request: pytest.FixtureRequest, kind: Kind, tmp_path: Path) -> Iterator[StoreHandles]:
    handles = StoreHandles(kind, tmp_path, request.param)
    yield handles
    handles.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def handle(handles: StoreHandles, clock: FakeClock) -> StoreHandle:
    return handles.open(clock)
