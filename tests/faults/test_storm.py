"""Random processes, threads, tasks, signals and policies on one store; effects are counted outside.

`SEMEL_STORM_S` says how many seconds each store's storm takes, `SEMEL_STORM_SEED` repeats one as far as a
machine lets it be repeated.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import semel
from semel.audit.events import CLAIMED, RELEASED, RESOLVED, RETAKEN, SETTLED, Event
from semel.audit.verify import verify
from semel.kernel.record import State
from semel.stores.base import ReadEvents
from tests.evidence import Deeds
from tests.faults.bank import Entry, Receipt
from tests.faults.caller import Heard, call
from tests.faults.checks import assert_history_holds, assert_rising, until
from tests.faults.payment import payment
from tests.faults.places import PLACES, REDIS, SQLITE, Place
from tests.faults.storm import NO_CALL, Answer, Storm, nursery_of_callers, pending, policy_of
from tests.proxy import Proxy

# Long enough that every kind of strike meets every kind of call some hundred times.
LONG_S = float(os.environ.get("SEMEL_STORM_S", "150"))
# Long enough to see that the storm itself works.
SHORT_S = 8.0

# What a caller may hear in a storm; anything else is a defect.
CODES = {
    None,
    "OUTCOME_UNKNOWN",
    "OWNERSHIP_LOST",
    "RETRY_IN_FLIGHT",
    "STORE_UNAVAILABLE",
    "UPSTREAM_TIMEOUT",
}
RAISED = {None, "CancelledError", "Declined", "KeyboardInterrupt", "SystemExit", "TimeoutError"}


@pytest.fixture
def seed() -> int:
    """Printed, so that a failure names it."""
    seed = int(os.environ.get("SEMEL_STORM_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"repeat it with SEMEL_STORM_SEED={seed}")
    return seed


def test_a_short_storm_breaks_no_promise(tmp_path, evidence) -> None:
    weather(SQLITE, tmp_path, 1, SHORT_S, evidence)


def test_a_short_storm_on_a_network_breaks_no_promise(tmp_path, evidence) -> None:
    weather(REDIS, tmp_path, 1, SHORT_S, evidence)


def test_a_storm_in_which_nothing_lands_is_none(tmp_path) -> None:
    shows_nothing = pytest.raises(AssertionError, match="such a storm shows nothing")
    with nursery_of_callers() as nursery, semel.open("memory://") as ledger, shows_nothing:
        judge(ledger, Storm("memory://", tmp_path, 1, nursery))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_storm_breaks_no_promise(place, tmp_path, seed, evidence) -> None:
    weather(place, tmp_path, seed, LONG_S, evidence)


@contextmanager
def network_of(url: str) -> Iterator[tuple[str, Proxy | None]]:
    """The way that callers take to the store, and what can be cut of it: a file has none."""
    port = urlsplit(url).port
    if port is None:
        yield url, None
        return
    proxy = Proxy(port)
    try:
        # In clear text, and with so little patience that a partition is noticed while it lasts.
        plain = "&sslmode=disable" if url.startswith("postgresql") else ""
        yield url.replace(f":{port}", f":{proxy.port}") + f"{plain}&timeout=1s", proxy
    finally:
        proxy.close()


def weather(place: Place, folder: Path, seed: int, seconds: float, evidence: Deeds) -> None:
    url = place.url(folder)
    with (
        nursery_of_callers() as nursery,
        semel.open(url) as ledger,
        network_of(url) as (way, network),
    ):
        storm = Storm(way, folder, seed, nursery, network)
        storm.rage(ledger, seconds)
        count(storm, evidence)
        until(lambda: not pending(ledger), "nobody holds a key any more")
        judge(ledger, storm)


def count(storm: Storm, evidence: Deeds) -> None:
    strikes = storm.strikes
    print(f"{strikes}")
    evidence.count(
        operations=sum(answer.account != NO_CALL for answer in storm.answers.read()),
        effects=len(storm.bank.entries()),
        kills=strikes["kill"],
        freezes=strikes["freeze"],
        interrupts=strikes["interrupt"] + strikes["end"],
        clock_steps=strikes["step_clock"],
    )
    if storm.network is not None:
        evidence.count(partitions=strikes["partition"])


def judge(ledger: semel.Ledger, storm: Storm) -> None:
    entries, answers = by_account(storm.bank.entries()), storm.answers.read()
    assert [answer for answer in answers if unexpected(answer)] == []
    assert any(answer.receipt for answer in answers), "nobody got a receipt: such a storm shows nothing"
    histories = by_key(events_of(ledger))
    for account, paid in entries.items():
        judge_entries(policy_of(account), paid, histories[paid[0].key])
        judge_settlement(paid, histories[paid[0].key], answers)
    judge_replays(ledger, storm, answers)
    assert_history_holds(ledger)
    assert verify(ledger.store, tenants=["default"]).whole


def unexpected(answer: Answer) -> bool:
    return answer.code not in CODES or answer.raised not in RAISED


def by_account(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    grouped: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        grouped[entry.account].append(entry)
    return grouped


def events_of(ledger: semel.Ledger) -> Iterator[Event]:
    after = 0
    while events := ledger.store.ask(ReadEvents(after=after)):
        yield from events
        after = events[-1].seq


def by_key(events: Iterator[Event]) -> dict[str, list[Event]]:
    grouped: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        grouped[event.key].append(event)
    return grouped


def judge_entries(policy: str, entries: list[Entry], history: list[Event]) -> None:
    """Every effect belongs to an attempt that was acknowledged, and the policy allowed that attempt."""
    attempts = [event.fence for event in history if event.kind in (CLAIMED, RETAKEN)]
    assert_rising(attempts)
    fences = [entry.fence for entry in entries]
    assert len(fences) == len(set(fences)), f"an attempt had two effects: {entries}"
    assert set(fences) <= set(attempts), f"an effect without an acknowledged claim: {entries}"
    assert len({(entry.key, entry.account, entry.amount) for entry in entries}) == 1
    if policy in ("park", "probe"):
        freed = sum(frees(event) for event in history)
        assert len(attempts) <= 1 + freed, (
            f"entered again, though nobody said that it did not happen: {history}"
        )
    if policy == "retry":
        assert len({entry.note for entry in entries}) == 1, f"not the first call's arguments: {entries}"


def judge_settlement(entries: list[Entry], history: list[Event], answers: Sequence[Answer]) -> None:
    """What its callers settled is the result of the newest attempt: an older one changes nothing."""
    last = [event for event in history if event.kind in (SETTLED, RESOLVED)][-1:]
    if not last or last[0].kind == RESOLVED:
        return
    account, fence = entries[0].account, last[0].fence
    for answer in answers:
        if answer.account == account and answer.receipt is not None:
            assert answer.receipt["fence"] == fence, f"{account}: an older owner settled: {history}"


def frees(event: Event) -> bool:
    """Whether a key may be entered again after it: its tool was refused, or somebody said so."""
    return event.kind == RELEASED or (event.kind == RESOLVED and event.state == State.CLEARED.value)


def judge_replays(ledger: semel.Ledger, storm: Storm, answers: Sequence[Answer]) -> None:
    """Everybody who got a receipt of an account got the same one, and whoever comes now gets it too."""
    receipts: dict[str, list[Receipt]] = defaultdict(list)
    for answer in answers:
        if answer.receipt is not None:
            receipts[answer.account].append(Receipt(**answer.receipt))
    for account, heard in receipts.items():
        before = storm.bank.entries(account)
        now = after_the_storm(ledger, storm, account)
        assert {*heard, now.receipt} == {heard[0]}, f"{account}: not everybody heard the same, now {now}"
        assert storm.bank.entries(account) == before
    for account in by_account(storm.bank.entries()).keys() - receipts.keys():
        assert_service_goes_on(ledger, storm, account)


def assert_service_goes_on(ledger: semel.Ledger, storm: Storm, account: str) -> None:
    """Nobody heard a result: whoever comes now gets one, or hears that a person has to say."""
    heard = after_the_storm(ledger, storm, account)
    parked = Heard(code="OUTCOME_UNKNOWN")
    assert heard.receipt is not None or (policy_of(account) == "park" and heard == parked), (account, heard)


def after_the_storm(ledger: semel.Ledger, storm: Storm, account: str) -> Heard:
    """What a new caller hears, once the store answers: a busy machine may take it a while."""
    tool = payment(storm.bank, policy_of(account))

    def answered() -> Heard | None:
        heard = call(ledger, tool, account=account, note="after the storm")
        return None if heard.code in ("STORE_UNAVAILABLE", "RETRY_IN_FLIGHT") else heard

    heard = until(answered, f"{account} is answered")
    assert heard is not None
    return heard
