"""Opening and closing a ledger."""

import asyncio
import threading
from pathlib import Path

import pytest

import semel
from semel.errors import OpenError, SemelError, StoreUnavailable
from semel.ledger.ledger import Ledger
from tests.tools import a_step, declared, state


@declared()
def pay(to: str) -> str:
    return to


@declared()
async def apay(to: str) -> str:
    return to


# --- opening --------------------------------------------------------------------------------------


def test_without_a_url_the_environment_says_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMEL_URL", "sqlite:///named.db")
    with semel.open() as ledger:
        assert ledger.store.name == "sqlite"
    assert (tmp_path / "named.db").exists()
    assert not (tmp_path / "semel.db").exists()


def test_without_url_and_environment_it_is_a_file_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEMEL_URL", raising=False)
    with semel.open() as ledger, a_step(ledger):
        pay("a")
    assert (tmp_path / "semel.db").exists()


def test_a_url_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("SEMEL_URL", "nonsense://")
    with semel.open("memory://") as ledger:
        assert ledger.store.name == "memory"


def test_an_absolute_path_has_four_slashes(tmp_path):
    with semel.open(f"sqlite:///{tmp_path}/a b.db"):
        assert (tmp_path / "a b.db").exists()


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("nonsense", "memory://"),
        ("mysql://host/db", "sqlite:///relative.db"),
        ("sqlite:", "sqlite:///relative.db"),
        ("sqlite://", "sqlite:///relative.db"),
        ("sqlite:///", "sqlite:///relative.db"),
        ("sqlite://semel.db", "sqlite:///relative.db"),
        ("memory://name", "takes none"),
        ("memory://?durability", "durability"),
        ("memory://?audit=maybe", "on, off"),
        ("sqlite:///x.db?durability=high", "full, normal"),
        ("sqlite:///x.db?sync=off", "durability, audit"),
        ("sqlite:///x.db?audit=on&audit=off", "twice"),
        ("", "memory://"),
    ],
)
def test_a_bad_url_is_one_clear_error_and_nothing_is_created(url, fix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMEL_URL", "also nonsense")
    with pytest.raises(OpenError) as refused:
        semel.open(url)
    assert fix in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_password_in_a_bad_url_is_not_shown():
    with pytest.raises(OpenError) as refused:
        semel.open("mysql://user:canary@host/db")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("place", ["missing/dir/x.db", "."])
def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path, place):
    with pytest.raises(SemelError):
        semel.open(f"sqlite:///{tmp_path}/{place}")


@pytest.mark.parametrize("tenant", ["", "a b", "-a", "ä", "x" * 129, None, 5, "a\n"], ids=repr)
def test_a_name_that_is_none_of_a_tenant_is_refused(tenant, tmp_path):
    with pytest.raises(OpenError, match="tenant"):
        semel.open(f"sqlite:///{tmp_path}/x.db", tenant=tenant)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tenant", ["a", "9", "Acme.eu:prod_1-x", "x" * 128])
def test_names_of_tenants(tenant):
    with semel.open("memory://", tenant=tenant) as ledger:
        assert ledger.tenant == tenant


def test_a_ledger_says_in_words_what_a_write_survives(tmp_path):
    words = set()
    for url in ("memory://", f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db?durability=normal"):
        with semel.open(url) as ledger:
            words.add(ledger.durability)
    assert len(words) == 3
    assert all("surviv" in text or "process" in text for text in words)


# --- using ----------------------------------------------------------------------------------------


def test_one_ledger_serves_threads_and_several_loops(real):
    results: list[str] = []

    def from_a_thread(number: int) -> None:
        results.append(a_step(real).run(pay, "a"))
        results.append(asyncio.run(within(real)))

    async def within(ledger: Ledger) -> str:
        async with a_step(ledger):
            result: str = await apay("a")
            return result

    threads = [threading.Thread(target=from_a_thread, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["a"] * 12
    assert len(real.records.list()) == 2


def test_two_ledgers_on_one_file_share_what_is_settled(tmp_path):
    ran = []

    @declared()
    def count(to: str) -> int:
        ran.append(to)
        return len(ran)

    url = f"sqlite:///{tmp_path}/semel.db"
    with semel.open(url) as one, semel.open(url) as other:
        for ledger in (one, other):
            with a_step(ledger):
                assert count("a") == 1


def test_two_memory_ledgers_share_nothing():
    with semel.open("memory://") as one, semel.open("memory://") as other:
        for ledger in (one, other):
            with a_step(ledger):
                pay("a")
        assert [len(ledger.records.list()) for ledger in (one, other)] == [1, 1]


# --- closing --------------------------------------------------------------------------------------


def test_what_was_settled_is_there_after_closing_and_opening(tmp_path, clock):
    url = f"sqlite:///{tmp_path}/semel.db"
    with semel.open(url, clock=clock) as ledger, a_step(ledger):
        pay("a")
    with semel.open(url, clock=clock) as ledger:
        assert state(ledger) == "done"


def test_async_with_closes_too(tmp_path):
    async def main() -> Ledger:
        async with semel.open(f"sqlite:///{tmp_path}/semel.db") as ledger:
            async with a_step(ledger):
                assert await apay("a") == "a"
            return ledger

    ledger = asyncio.run(main())
    with pytest.raises(StoreUnavailable):
        ledger.records.list()


def test_a_closed_ledger_refuses_and_the_tool_does_not_run(tmp_path: Path, way):
    ran = []

    @way.tool()
    def count(to: str) -> None:
        ran.append(to)

    ledger = semel.open(f"sqlite:///{tmp_path}/semel.db")
    ledger.close()
    with a_step(ledger), pytest.raises(StoreUnavailable):
        way.call(count, "a")
    assert ran == []


def test_closing_twice_is_harmless(kind, tmp_path, clock):
    ledger = Ledger(kind.open(tmp_path, clock, True))
    ledger.close()
    ledger.close()
    asyncio.run(ledger.aclose())


def test_closing_ends_the_thread_in_the_background(tmp_path):
    with semel.open(f"sqlite:///{tmp_path}/semel.db") as ledger, a_step(ledger):
        pay("a")
        assert any(thread.name == "semel-keeper" for thread in threading.enumerate())
    ours = {ledger.keeper._thread}
    assert ours.isdisjoint(threading.enumerate())


def test_the_public_names_are_there():
    for name in semel.__all__:
        assert getattr(semel, name) is not None


@pytest.mark.parametrize("url", ["", "  "])
def test_an_empty_url_is_no_store(url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OpenError, match="empty"):
        semel.open(url)
    monkeypatch.setenv("SEMEL_URL", url)
    with pytest.raises(OpenError, match="empty"):
        semel.open()
    assert list(tmp_path.iterdir()) == []
