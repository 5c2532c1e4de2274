"""Where the records of these tests live: one table, every store by its URL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    name: str
    url: Callable[[Path], str]
    """The URL of an empty store for one test, whose own folder is given."""


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'semel.db'}"


def _redis(folder: Path) -> str:
    from tests.redis_server import shared_url

    return shared_url("f_" + hashlib.sha256(str(folder).encode()).hexdigest()[:16])


def _postgres(folder: Path) -> str:
    from tests.postgres_server import shared_url

    return shared_url("f_" + hashlib.sha256(str(folder).encode()).hexdigest()[:16])


SQLITE, REDIS, POSTGRES = Place("sqlite", _sqlite), Place("redis", _redis), Place("postgres", _postgres)
PLACES: tuple[Place, ...] = (SQLITE, REDIS, POSTGRES)
