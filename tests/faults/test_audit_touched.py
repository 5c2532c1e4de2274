"""One byte of a stored event is flipped behind the store: `semel audit verify` names it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import semel
from semel.audit import leaves
from semel.cli import main
from semel.kernel.record import Address
from semel.stores.base import SealEvents, Store
from semel.stores.urls import StoreUrl, open_store
from tests.commands import A, claim, settle
from tests.faults.checks import until
from tests.faults.places import PLACES, POSTGRES, REDIS, Place


@semel.tool_contract(class_="write-non-idempotent")
def pay(to: str) -> str:
    return to


# Two events each; a seal covers four, so there are three seals.
CALLS, SEALED = 6, 4


def _flip_in_sqlite(url: str, store: Store, seq: int) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        [digest] = connection.execute("SELECT digest FROM semel_events WHERE seq = ?", (seq,)).fetchone()
        connection.execute("UPDATE semel_events SET digest = ? WHERE seq = ?", (_flipped(digest), seq))
    connection.close()


def _flip_in_redis(url: str, store: Any, seq: int) -> None:
    change_in_redis(url, store, seq, lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:])


def change_in_redis(url: str, store: Any, seq: int, change: Callable[[bytes], bytes]) -> None:
    import redis

    client: Any = redis.Redis.from_url(url.partition("?")[0])
    key = store._translator.lanes[0].events
    entries = client.xrange(key)
    client.delete(key)
    for id_, fields in entries:
        number = int(id_.split(b"-")[1])
        changed = {name: change(data) if number == seq else data for name, data in fields.items()}
        client.xadd(key, changed, id=id_)
    client.close()


def _flip_in_postgres(url: str, store: Store, seq: int) -> None:
    import psycopg

    from semel.stores.postgres.options import read

    said = read(StoreUrl(url))
    with psycopg.connect(said.conninfo) as connection:
        connection.execute(f'SET search_path TO "{said.schema}"')
        changed = connection.execute(
            "UPDATE events SET digest = set_byte(digest, 5, get_byte(digest, 5) # 1) WHERE seq = %s", (seq,)
        )
        assert changed.rowcount == 1


def _flipped(data: bytes) -> bytes:
    """With one bit turned near the end."""
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


FLIPS: dict[str, Callable[[str, Any, int], None]] = {
    "sqlite": _flip_in_sqlite,
    "redis": _flip_in_redis,
    "postgres": _flip_in_postgres,
}


class Touched:
    """A sealed log on one of the stores, and a hand that reaches behind it."""

    def __init__(self, name: str, url: str, store: Store) -> None:
        self.url = url
        self._name = name
        self._store = store

    def flip(self, seq: int) -> None:
        FLIPS[self._name](self.url, self._store, seq)

    def verify(self, *words: str) -> Result:
        return CliRunner().invoke(main, ("audit", "verify", "--url", self.url, "--tenant", "acme", *words))


@pytest.fixture(params=PLACES, ids=lambda place: place.name)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Touched]:
    url = request.param.url(tmp_path)
    store = open_store(url)
    for number in range(CALLS):
        at = Address("acme", "tool", f"{number:064x}")
        store.perform(claim(A, at))
        store.perform(settle(A, at))
    for _ in range(2 * CALLS // SEALED):
        # PostgreSQL seals once no older transaction is open.
        seal = until(lambda: store.ask(SealEvents(SEALED)), "the next events are sealed")
        assert seal is not None
        leaves.keep(store, 0, seal)
    yield Touched(request.param.name, url, store)
    store.close()


def test_an_untouched_log_is_whole(log: Touched) -> None:
    found = log.verify("--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert (told["whole"], told["seals"], told["unsealed"]) == (True, 2 * CALLS // SEALED, 0)


@pytest.mark.parametrize("seq", [5, 6, 8])
def test_one_flipped_byte_is_found_and_the_first_break_is_named(log: Touched, seq: int) -> None:
    log.flip(seq)
    log.flip(11)
    found = log.verify("--json")
    assert found.exit_code == 1, found.output
    told = json.loads(found.stdout)
    assert told["whole"] is False
    assert [(broken["seal"], broken["seq"], broken["wrong"]) for broken in told["breaks"]] == [
        (2, seq, "changed"),
        (3, 11, "changed"),
    ]
    text = log.verify()
    assert text.exit_code == 1
    first = text.stdout.splitlines()[0]
    assert first.startswith("CHANGED  ")
    assert f"event {seq} was changed" in first
    assert text.stdout.splitlines()[-1] == "The log is NOT whole."


def test_what_a_claims_event_says_of_whose_it_is_was_changed_in_that_of_its_settlement_too(
    tmp_path: Path,
) -> None:
    """On Redis the one refers to the other: both are named."""
    url = REDIS.url(tmp_path)
    store = open_store(url)
    at = Address("acme", "tool", f"{1:064x}")
    store.perform(claim(A, at))
    store.perform(settle(A, at))
    seal = store.ask(SealEvents(SEALED))
    assert seal is not None
    leaves.keep(store, 0, seal)
    change_in_redis(url, store, 1, lambda data: data.replace(b"conv-42", b"conv-43"))
    text = Touched("redis", url, store).verify()
    assert "events 1, 2 were changed" in text.stdout
    assert text.exit_code == 1
    store.close()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_ledger_that_closes_at_once_leaves_a_sealed_log_that_tells_when_it_was_touched(
    place: Place, tmp_path: Path
) -> None:
    url = place.url(tmp_path)
    with semel.open(url, tenant="acme") as ledger:
        with ledger.step(conversation="c", step="1", principal="shop"):
            pay(to="ann")
        if place is POSTGRES:
            # A transaction of whoever else is on the server may hold the seal back for this close.
            until(ledger.sweeper.seal, "no older transaction is open")
    store = open_store(url)
    try:
        log = Touched(place.name, url, store)
        assert json.loads(log.verify("--json").stdout)["unsealed"] == 0
        log.flip(2)
        [broken] = json.loads(log.verify("--json").stdout)["breaks"]
        assert (broken["seal"], broken["seq"], broken["wrong"]) == (1, 2, "changed"), broken
    finally:
        store.close()
