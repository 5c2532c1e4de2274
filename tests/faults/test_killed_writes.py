"""A process is killed at its n-th word to the store, wherever that is; then every promise is checked.

To a file it writes and flushes; to a server it sends, and receives: killed there it never reads the reply.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

import semel
from semel.kernel.record import State
from tests.faults.bank import Bank
from tests.faults.caller import Heard, call
from tests.faults.checks import all_records, assert_history_holds, assert_rising, until
from tests.faults.conftest import Start
from tests.faults.payment import LEASE, payment
from tests.faults.places import PLACES
from tests.faults.process import Process
from tests.missing import cannot

ACCOUNTS = [f"acc-{n}" for n in range(8)]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (place,) = (place for place in PLACES if place.name == request.param)
    return place.url(tmp_path)


@pytest.fixture(autouse=True)
def strace() -> None:
    if not shutil.which("strace"):
        cannot("strace is missing, so death at the n-th write is not tested: apt-get install strace")


def killed_at(start: Start, syscall: str, number: int, **told: object) -> list[str]:
    """The accounts whose payment the process heard of before it was killed at its n-th such call."""
    inject = f"inject={syscall}:signal=KILL:when={number}"
    under = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={syscall}", "-e", inject]
    process = start("calls", under=under, accounts=ACCOUNTS, **told)
    accounts = _heard(process)
    assert process.end() == -signal.SIGKILL
    return accounts


def _heard(process: Process) -> list[str]:
    heard: list[str] = []
    while (line := process.next_line()) is not None:
        assert line[0] == "heard", "it was to die before its last call"
        heard.append(line[1][0])
    return heard


Case = tuple[str, str, int, bool]


def cases(place: str, syscall: str, *numbers: int, asynchronous: bool = False) -> list[Case]:
    return [(place, syscall, number, asynchronous) for number in numbers]


# Numbers count per thread.
# SQLite: opening takes 33 writes and 7 flushes, a claim 10 and 1, a settle 4 and 1. Numbers of the
# asynchronous cases lie beyond the opening: another thread writes for the loop.
# Redis: opening takes 8 requests, claim and settle 1 each. A loop also wakes itself, and has a new connection
# for every call.
# PostgreSQL: opening takes 32 requests, claim and settle 1 each, and a request two receptions. In the
# asynchronous cases the loop dies while another thread speaks for it.
CASES = [
    *cases("sqlite", "pwrite64", 2, 6, 20, 34, 37, 43, 44, 45, 47, 52, 60),
    *cases("sqlite", "fdatasync", 2, 4, 7, 8, 9, 10, 11),
    *cases("sqlite", "pwrite64", 34, 40, 45, asynchronous=True),
    *cases("sqlite", "fdatasync", 8, 9, asynchronous=True),
    *cases("redis", "sendto", 3, 8, 9, 10, 11, 14),
    *cases("redis", "recvfrom", 5, 9, 10, 11),
    *cases("redis", "sendto", 9, 11, 14, asynchronous=True),
    *cases("redis", "recvfrom", 14, 18, 22, asynchronous=True),
    *cases("postgres", "sendto", 6, 20, 33, 34, 35, 36, 39),
    *cases("postgres", "recvfrom", 40, 68, 70, 72, 75),
    *cases("postgres", "recvfrom", 70, 76, 82, asynchronous=True),
]


@pytest.mark.parametrize(("url", "syscall", "number", "asynchronous"), CASES, indirect=["url"])
def test_whatever_was_acknowledged_is_there_and_nobody_pays_twice(
    syscall: str, number: int, asynchronous: bool, start: Start, bank: Bank, url: str
) -> None:
    acknowledged = killed_at(start, syscall, number, policy="park", asynchronous=asynchronous)
    assert set(acknowledged) <= {entry.account for entry in bank.entries()}
    with semel.open(url) as ledger:
        assert_history_holds(ledger)
        assert_no_amnesia(ledger, bank, len(acknowledged))
        until(lambda: not ledger.records.list(state="pending"), f"leases of {LEASE} lapsed")
        come_again(ledger, bank, acknowledged)
        assert_history_holds(ledger)


def assert_no_amnesia(ledger: semel.Ledger, bank: Bank, acknowledged: int) -> None:
    """Whatever reached the bank has a record, and at least what was acknowledged is done."""
    keys = {record.request.at.key for record in all_records(ledger)}
    assert {entry.key for entry in bank.entries()} <= keys
    done = [record for record in all_records(ledger) if record.state is State.DONE]
    assert len(done) >= acknowledged


def come_again(ledger: semel.Ledger, bank: Bank, acknowledged: list[str]) -> None:
    before = Counter(entry.account for entry in bank.entries())
    tool = payment(bank, "park")
    for account in ACCOUNTS:
        heard = call(ledger, tool, account=account, note="second")
        after = bank.entries(account)
        if account in acknowledged:
            assert heard == Heard(receipt=bank.receipt(after[0].key))
        assert heard.receipt is not None or heard.code == "OUTCOME_UNKNOWN"
        assert len(after) == 1 or (heard.code == "OUTCOME_UNKNOWN" and not after)
        assert before[account] <= 1
    assert max(Counter(entry.key for entry in bank.entries()).values()) == 1


@pytest.mark.parametrize(
    ("url", "syscall", "number"),
    [
        ("sqlite", "pwrite64", 38),
        ("sqlite", "pwrite64", 45),
        ("sqlite", "fdatasync", 9),
        ("redis", "sendto", 10),
        ("redis", "recvfrom", 11),
        ("postgres", "sendto", 36),
        ("postgres", "recvfrom", 73),
    ],
    indirect=["url"],
)
def test_under_retry_every_entry_carries_the_first_calls_key_and_arguments(
    syscall: str, number: int, start: Start, bank: Bank, url: str
) -> None:
    killed_at(start, syscall, number, policy="retry")
    with semel.open(url) as ledger:
        until(lambda: not ledger.records.list(state="pending"), f"leases of {LEASE} lapsed")
        begun = {entry.account for entry in bank.entries()}
        for account in ACCOUNTS:
            assert call(ledger, payment(bank, "retry"), account=account, note="second").receipt
            entries = bank.entries(account)
            assert len({(entry.key, entry.amount, entry.note) for entry in entries}) == 1
            assert entries[0].note == "first" or account not in begun
            assert_rising([entry.fence for entry in entries])
        assert {record.state for record in all_records(ledger)} == {State.DONE}
        assert_history_holds(ledger)
