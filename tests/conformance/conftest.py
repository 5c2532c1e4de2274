"""Every test of this folder runs on every store, and by both of its doors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from semel.kernel.clock import Clock
from tests.doors import AsyncDoor, Door
from tests.fake_clock import FakeClock
from tests.stores import CONFORMING, Kind


class House:
    """Opens doors to the stores of one place, and closes them all in the end."""

    def __init__(self, kind: Kind, place: Path, manner: type[Door]) -> None:
        self.kind = kind
        self._place = place
        self._manner = manner
        self._doors: list[Door] = []

    def open(self, clock: Clock, audit_on: bool = True) -> Door:
        """A door to the records of this place: the same records each time, if the store can be shared."""
        door = self._manner(self.kind.open(self._place, clock, audit_on))
        self._doors.append(door)
        return door

    def close(self) -> None:
        for door in reversed(self._doors):
            door.close()


@pytest.fixture(params=CONFORMING, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(params=[Door, AsyncDoor], ids=["sync", "async"])
def house(request: pytest.FixtureRequest, kind: Kind, tmp_path: Path) -> Iterator[House]:
    house = House(kind, tmp_path, request.param)
    yield house
    house.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def door(house: House, clock: FakeClock) -> Door:
    return house.open(clock)
