"""The disk under the records is full: before the claim nothing runs, after the effect nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import semel
from semel.kernel.record import State
from tests.faults.bank import Bank
from tests.faults.caller import Heard, call
from tests.faults.checks import all_records, assert_history_holds, only_record, until, until_in_doubt
from tests.faults.conftest import Start
from tests.faults.disk import fill, free, small_disk
from tests.faults.payment import LONG_LEASE, payment


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def url(disk: Path) -> str:
    """Only a store that writes its own files has a disk of its own."""
    return f"sqlite:///{disk / 'semel.db'}"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_disk_full_before_the_claim_refuses_the_call_and_nothing_runs(
    asynchronous: bool, disk: Path, bank: Bank, ledger: semel.Ledger
) -> None:
    tool = payment(bank, "park", asynchronous=asynchronous, lease=LONG_LEASE)
    earlier = call(ledger, tool, account="acc-earlier")
    fill(disk)
    assert call(ledger, tool, note="full") == Heard(code="STORE_UNAVAILABLE")
    assert call(ledger, tool, account="acc-earlier") == earlier, "what is settled can still be read"
    assert bank.entries("acc-1") == []
    free(disk)
    until(lambda: call(ledger, tool, note="room again").receipt, "service resumes by itself")
    assert [entry.note for entry in bank.entries("acc-1")] == ["room again"]
    assert_history_holds(ledger)


@pytest.mark.parametrize(
    ("policy", "code", "asynchronous"),
    [("park", "OUTCOME_UNKNOWN", False), ("retry", "UPSTREAM_TIMEOUT", True)],
)
def test_a_disk_full_after_the_effect_is_doubt_until_the_outcome_is_written_late(
    policy: str, code: str, asynchronous: bool, disk: Path, bank: Bank, ledger: semel.Ledger
) -> None:
    tool = payment(bank, policy, asynchronous=asynchronous, lease=LONG_LEASE, after=lambda: fill(disk))
    assert call(ledger, tool, note="first").code == code
    assert only_record(ledger).state is State.PENDING
    free(disk)
    until(lambda: only_record(ledger).state is State.DONE, "the outcome is written late")
    later = call(ledger, tool, note="second")
    assert later.receipt == bank.receipt(only_record(ledger).request.at.key)
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


@pytest.mark.parametrize(("policy", "entries"), [("park", 1), ("probe", 1), ("retry", 2)])
def test_an_owner_that_dies_on_a_full_disk_leaves_doubt_behind(
    policy: str,
    entries: int,
    disk: Path,
    start: Start,
    bank: Bank,
    ledger: semel.Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEMEL_TEST_DISK", str(disk))
    owner = start("one_call", policy=policy, after="fill the disk and die", note="first")
    assert owner.end() == -signal.SIGKILL
    until_in_doubt(ledger)
    tool = payment(bank, policy)
    if policy != "park":
        assert call(ledger, tool, note="full").code == "STORE_UNAVAILABLE"
    assert len(bank.entries()) == 1, "a full disk lets nobody in"
    free(disk)
    heard = call(ledger, tool, note="second")
    assert (heard.code == "OUTCOME_UNKNOWN") is (policy == "park")
    assert [entry.note for entry in bank.entries()] == ["first"] * entries
    assert_history_holds(ledger)


def test_a_disk_that_fills_up_under_calls_loses_none_of_them(
    disk: Path, bank: Bank, ledger: semel.Ledger
) -> None:
    tool = payment(bank, "park", lease=LONG_LEASE)
    told: dict[str, Heard] = {}
    while not told or list(told.values())[-1].receipt is not None:
        account = f"acc-{len(told)}"
        told[account] = call(ledger, tool, account=account, note="x" * 20_000)
    last = list(told)[-1]
    assert len(told) > 2
    assert told[last].code in ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN")
    assert len(bank.entries(last)) == (told[last].code == "OUTCOME_UNKNOWN")
    ledger.close()
    with semel.open(f"sqlite:///{disk / 'semel.db'}") as after:
        assert [call(after, tool, account=account) for account in told if account != last] == [
            heard for account, heard in told.items() if account != last
        ]
        assert_history_holds(after)
        assert {record.state for record in all_records(after)} <= {State.DONE, State.PENDING}
