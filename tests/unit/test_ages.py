"""Ages of retries: counted, merged into the store once, and kept while the store is away."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semel
from semel.errors import InFlight, OutcomeUnknown, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from semel.stores.documents import Commit, Draft, Entry
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore
from semel.windows.age_counters import INDEX, KEY, OTHER, TOOL, TOOLS_MAX, AgeCounters, Subject, read_ages
from semel.windows.ages import BOUNDS_US, Ages, as_data, covering_us, from_data, later_than
from tests.patience import PATIENCE_S
from tests.stores import KINDS, Kind
from tests.tools import a_step, declared

ROOT = Path(__file__).resolve().parent.parent.parent

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
PAY = Subject("acme", TOOL, "pay")

YEARS_US = 3 * 365 * DAY

# As retries are: most within minutes, some much later.
ages_us = st.one_of(st.integers(0, 600 * SECOND), st.integers(0, 8 * DAY), st.integers(0, YEARS_US))


def counted(*ages_us: int) -> Ages:
    ages = Ages()
    for age_us in ages_us:
        ages.saw([age_us], 0)
    return ages


def kept(store: Store, tenant: str = "acme") -> dict[str, Ages]:
    return {page.name: page.ages for page in read_ages(store, tenant)}


# --- counting ---------------------------------------------------------------------------------------------


@given(st.lists(ages_us, min_size=1, max_size=3_000))
def test_the_window_covers_999_of_1000_and_the_next_shorter_bound_does_not(seen: list[int]) -> None:
    window_us = covering_us(counted(*seen).counts)
    needed = math.ceil(len(seen) * 999 / 1_000)
    assert sum(age_us < window_us for age_us in seen) >= needed
    shorter_us = max((bound_us for bound_us in BOUNDS_US if bound_us < window_us), default=0)
    assert sum(age_us < shorter_us for age_us in seen) < needed


def test_999_of_1000_are_enough_and_998_are_not() -> None:
    assert covering_us(counted(*[0] * 999, DAY).counts) == SECOND
    assert covering_us(counted(*[0] * 998, HOUR, DAY).counts) == HOUR + HOUR // 2


@given(st.lists(ages_us, min_size=1), st.sampled_from(BOUNDS_US))
def test_retries_later_than_a_usual_window_are_told_exactly(seen: list[int], window_us: int) -> None:
    assert later_than(counted(*seen).counts, window_us) == sum(age_us >= window_us for age_us in seen)


@given(st.lists(ages_us, min_size=1), st.integers(1, YEARS_US))
def test_of_retries_later_than_any_other_window_never_too_many_are_told(
    seen: list[int], window_us: int
) -> None:
    assert later_than(counted(*seen).counts, window_us) <= sum(age_us >= window_us for age_us in seen)


def test_every_window_by_default_is_a_bound_and_bounds_rise() -> None:
    assert {DAY, 3 * DAY, 7 * DAY, 30 * DAY, 90 * DAY} <= set(BOUNDS_US)
    assert list(BOUNDS_US) == sorted(set(BOUNDS_US))
    chosen = [bound_us for bound_us in BOUNDS_US if bound_us <= 2 * 365 * DAY]
    assert all(longer <= 2 * shorter or longer > 180 * DAY for shorter, longer in pairwise(chosen))


def test_clocks_that_disagree_make_ages_of_nothing_and_of_a_century() -> None:
    assert counted(-5 * SECOND, 10**18).counts == {BOUNDS_US[0]: 1, BOUNDS_US[-1]: 1}


@given(st.lists(st.lists(ages_us, min_size=1, max_size=20), min_size=1, max_size=5))
def test_parts_that_are_put_together_say_what_the_whole_says(parts: list[list[int]]) -> None:
    whole, together = Ages(), Ages()
    for times_us in parts:
        whole.met(times_us, 0, 2 * YEARS_US)
        part = Ages()
        part.met(times_us, 0, 2 * YEARS_US)
        together.absorb(from_data(as_data(part)))
    assert together == whole
    assert together.retries == sum(map(len, parts))


def test_a_retry_is_late_from_the_last_tenth_of_its_window_on() -> None:
    ages = Ages()
    ages.met([89, 90, 91, 99], 0, 100)
    assert ages.windows[100].late == 3
    assert ages.windows[100].retries == 4


def test_only_the_windows_that_were_met_last_are_remembered() -> None:
    ages = Ages()
    for number in range(1, 8):
        ages.met([number * DAY], 0, number * 10 * DAY)
    assert list(ages.windows) == [number * 10 * DAY for number in (4, 5, 6, 7)]
    assert ages.window_us == 70 * DAY
    assert ages.retries == 7


# --- what a ledger counts ---------------------------------------------------------------------------------


@pytest.fixture
def pay():
    @declared(name="pay", window="24h")
    def pay(to: str) -> int:
        return 1

    return pay


def test_replays_are_counted_by_their_age_since_settlement_and_kept_when_the_ledger_closes(
    kind, clock, tmp_path, pay
):
    store = kind.open(tmp_path, clock, True)
    ledger = Ledger(store, tenant="acme")
    ledger.store.close = lambda: None  # type: ignore[method-assign]
    with ledger, a_step(ledger):
        pay("a")
        pay("a")
        clock.advance("2h")
        pay("a")
        clock.advance("20h")
        pay("a")
    assert kept(store)["pay"].counts == {SECOND: 1, 3 * HOUR: 1, DAY: 1}
    [(window_us, met)] = kept(store)["pay"].windows.items()
    assert (window_us, met.retries, met.late) == (DAY, 3, 1)


def test_an_approval_that_took_days_is_not_an_age(ledger, clock):
    @declared(name="wire", approval="required")
    def wire(to: str) -> int:
        return 1

    with a_step(ledger):
        with pytest.raises(semel.errors.ApprovalRequired) as asked:
            wire("a")
        clock.advance("3d")
        ledger.approvals.approve(asked.value.details["job_id"], by="ann")
        wire("a")
        wire("a")
    ledger.keeper.close()
    assert kept(ledger.store)["wire"].counts == {SECOND: 1}


def test_the_keeper_merges_every_few_seconds_and_not_every_time(ledger, clock, pay):
    with a_step(ledger):
        pay("a"), pay("a")
    ledger.keeper.run_once()
    assert kept(ledger.store) == {}
    clock.advance("15s")
    ledger.keeper.run_once()
    assert kept(ledger.store)["pay"].retries == 1


def test_a_caller_refused_because_of_a_doubt_of_days_shows_how_late_retries_come(ledger, clock):
    @declared(name="pay", window="24h")
    def pay(to: str) -> None:
        raise TimeoutError

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            pay("a")
        clock.advance("5d")
        with pytest.raises(OutcomeUnknown):
            pay("a")
    ledger.keeper.close()
    assert later_than(kept(ledger.store)["pay"].counts, DAY) == 1


def test_the_first_caller_that_cannot_tell_is_no_retry(ledger):
    class Away(Exception):
        pass

    @declared(name="pay", transient=(Away,))
    def pay(to: str) -> None:
        raise Away

    with a_step(ledger), pytest.raises(OutcomeUnknown):
        pay("a")
    ledger.keeper.close()
    assert kept(ledger.store) == {}


def test_a_caller_refused_because_another_is_at_it_is_a_retry(ledger, clock):
    @declared(name="pay", in_flight="refuse")
    def pay(to: str, depth: int = 0) -> None:
        clock.advance("4s")
        # On a thread of its own: called from here it would be this very call's own.
        another = threading.Thread(target=call_meanwhile)
        another.start()
        another.join()

    def call_meanwhile() -> None:
        other = Ledger(ledger.store, tenant="acme")
        with a_step(other), pytest.raises(InFlight):
            pay("a")
        other.keeper.close()

    with a_step(ledger):
        pay("a")
    assert kept(ledger.store)["pay"].counts == {5 * SECOND: 1}


def test_ages_are_counted_without_an_audit_too(clock, pay):
    store = MemoryStore(clock=clock, audit_on=False)
    with Ledger(store, tenant="acme") as ledger, a_step(ledger):
        pay("a"), pay("a")
    assert kept(store)["pay"].retries == 1


# --- merging ----------------------------------------------------------------------------------------------


def test_a_store_that_is_away_gets_the_counts_later_and_once(flaky):
    book = AgeCounters()
    book.add(PAY, counted(SECOND))
    flaky.down = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            book.merge(flaky)
        book.add(PAY, counted(SECOND))
    flaky.down = False
    assert book.merge(flaky)
    assert book.merge(flaky)
    assert kept(flaky)["pay"].retries == 4


def test_a_lost_reply_does_not_count_twice_even_if_others_write_in_between(flaky):
    book, other = AgeCounters(), AgeCounters()
    book.add(PAY, counted(SECOND))
    flaky.lose_reply("commit")
    with pytest.raises(StoreUnavailable):
        book.merge(flaky)
    other.add(PAY, counted(HOUR, HOUR))
    assert other.merge(flaky)
    book.add(PAY, counted(DAY))
    assert book.merge(flaky)
    assert kept(flaky)["pay"].counts == counted(SECOND, HOUR, HOUR, DAY).counts


class Late(FlakyStore):
    """Carries out a commit only after its sender gave up and another writer came."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.held: list[Commit] = []

    def ask(self, query):
        if isinstance(query, Commit) and not self.held:
            self.held.append(query)
            raise StoreUnavailable
        return super().ask(query)


def test_a_commit_that_arrives_after_its_sender_gave_up_counts_once(clock):
    store, book = Late(MemoryStore(clock=clock)), AgeCounters()
    book.add(PAY, counted(SECOND))
    with pytest.raises(StoreUnavailable):
        book.merge(store)
    assert store.inner.ask(store.held[0]).done
    assert book.merge(store)
    assert kept(store)["pay"].retries == 1


class Busy(FlakyStore):
    """Another writer comes between each of the first reads and writes."""

    def __init__(self, inner: Store, times: int) -> None:
        super().__init__(inner)
        self.times = times

    def before(self, name: str) -> None:
        if name == "commit" and self.times:
            self.times -= 1
            book = AgeCounters()
            book.add(PAY, counted(HOUR))
            book.merge(self.inner)


def test_a_writer_that_was_overtaken_overwrites_nothing(clock):
    store, book = Busy(MemoryStore(clock=clock), 5), AgeCounters()
    book.add(PAY, counted(SECOND))
    assert book.merge(store)
    assert kept(store)["pay"].counts == counted(SECOND, *[HOUR] * 5).counts


def test_a_writer_that_is_always_overtaken_keeps_its_counts_for_later(clock):
    store, book = Busy(MemoryStore(clock=clock), 150), AgeCounters()
    book.add(PAY, counted(SECOND))
    assert not book.merge(store)
    assert book.merge(store)
    assert kept(store)["pay"].counts == counted(SECOND, *[HOUR] * 150).counts


def test_tools_beyond_the_bound_share_a_page_and_lose_nothing(clock):
    store, book = FlakyStore(MemoryStore(clock=clock)), AgeCounters()
    for number in range(TOOLS_MAX + 30):
        book.add(Subject("acme", TOOL, f"tool-{number}"), counted(SECOND))
    book.add(Subject("acme", KEY, "run"), counted(HOUR))
    assert book.merge(store)
    book.add(Subject("acme", TOOL, "tool-1"), counted(SECOND))
    book.add(Subject("acme", TOOL, "one-more"), counted(SECOND))
    store.lose_reply("commit", 2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            book.merge(store)
    assert book.merge(store)
    found = read_ages(store, "acme")
    assert len(found) == TOOLS_MAX + 2
    assert sum(page.ages.retries for page in found if page.kind == TOOL) == TOOLS_MAX + 32
    assert {(page.kind, page.ages.retries) for page in found if page.name == OTHER} == {(TOOL, 31), (KEY, 1)}
    assert kept(store)["tool-1"].retries == 2


def test_some_at_once_are_merged_if_that_is_asked_for(clock):
    store, book = MemoryStore(clock=clock), AgeCounters()
    for number in range(25):
        book.add(Subject("acme", TOOL, f"tool-{number}"), counted(SECOND))
    assert [book.merge(store, 10) for _ in range(3)] == [False, False, True]
    assert len(kept(store)) == 25


def test_a_page_grows_neither_with_retries_nor_with_writers(clock):
    store = MemoryStore(clock=clock)
    for number in range(300):
        book = AgeCounters()
        book.add(PAY, counted(number * HOUR))
        book.merge(store)
    [page] = read_ages(store, "acme")
    assert page.ages.retries == 300
    assert len(page.written) < 100
    assert len(page.ages.counts) <= len(BOUNDS_US)


def test_a_page_of_a_later_version_is_left_alone(clock, caplog):
    store, book = MemoryStore(clock=clock), AgeCounters()
    draft = Draft("ages/tool/pay", b'{"version":2}')
    assert store.ask(Commit("acme", "f" * 32, {draft.id: None}, (draft,))).done
    book.add(PAY, counted(SECOND))
    assert book.merge(store)
    assert "left alone" in caplog.text
    assert store.ask(Commit("acme", "e" * 32, {draft.id: "f" * 32}, (draft,))).done


def test_pages_of_a_later_version_do_not_hide_the_others(clock):
    store, book = MemoryStore(clock=clock), AgeCounters()
    draft = Draft("ages/tool/other", b'{"version":2}', (Entry(INDEX, 0),))
    assert store.ask(Commit("acme", "f" * 32, {draft.id: None}, (draft,))).done
    book.add(PAY, counted(SECOND))
    assert book.merge(store)
    assert [page.name for page in read_ages(store, "acme")] == [PAY.name]


def test_tenants_do_not_meet(clock):
    store, book = MemoryStore(clock=clock), AgeCounters()
    book.add(PAY, counted(SECOND))
    book.add(PAY._replace(tenant="other"), counted(HOUR, HOUR))
    book.merge(store)
    assert kept(store)["pay"].retries == 1
    assert kept(store, "other")["pay"].retries == 2


# --- real processes ---------------------------------------------------------------------------------------

RETRIES = 40

# Calls a tool, retries it and merges after each retry; then all is in the store, and it waits.
WORK = """
import sys
import threading
from pathlib import Path
import semel
from semel.windows.age_counters import read_ages
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from tests.stores import BY_NAME

@semel.tool_contract(class_="write-non-idempotent", name="pay")
def pay(to: str) -> int:
    return 1

def merge() -> int:
    ledger.keeper.flush()
    ledger.keeper._ages.merge(ledger.store)
    return sum(page.ages.retries for page in read_ages(ledger.store, "acme"))

kind, place, retries = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
ledger = Ledger(BY_NAME[kind].open(place, SYSTEM, True), tenant="acme")
print("ready", flush=True)
sys.stdin.readline()
before = merge()
with ledger.step(conversation="c", step="s"):
    pay("a")
    for _ in range(retries):
        pay("a")
        merge()
while merge() < before + retries:
    pass  # a thread of the ledger may have some of them in its hands
print("merged", flush=True)
sys.stdin.readline()
ledger.close()
"""

SHARED = [kind for kind in KINDS if kind.shared]


def started(kind: Kind, place: Path, retries: int = RETRIES) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WORK, kind.name, str(place), str(retries)]
    process = subprocess.Popen(words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.fixture(params=SHARED, ids=lambda kind: kind.name)
def shared(request: pytest.FixtureRequest, tmp_path: Path):
    """A kind of store that processes share, and a handle on it."""
    store = request.param.open(tmp_path, SYSTEM, True)
    yield request.param, store
    store.close()


@pytest.mark.full
def test_processes_that_merge_at_once_lose_nothing_and_count_nothing_twice(shared, tmp_path):
    kind, store = shared
    processes = [started(kind, tmp_path) for _ in range(3)]
    for process in processes:
        tell(process)
    for process in processes:
        tell(process)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    # One of the first calls performed; those of the others were retries too.
    assert kept(store)["pay"].retries == 3 * RETRIES + 2


def test_what_was_merged_outlives_a_process_that_is_killed(shared, tmp_path):
    kind, store = shared
    process = started(kind, tmp_path, 5)
    tell(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "merged\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert kept(store)["pay"].retries == 5
    after = started(kind, tmp_path, 3)
    tell(after)
    tell(after)
    after.communicate(timeout=PATIENCE_S)
    # Its first call is a retry as well: the killed one performed it.
    assert kept(store)["pay"].retries == 5 + 4


def test_a_forked_child_does_not_count_what_its_parent_counted(tmp_path, pay):
    store = KINDS[1].open(tmp_path, SYSTEM, True)
    ledger = Ledger(store, tenant="acme")
    with a_step(ledger):
        pay("a"), pay("a")
        ledger.keeper.flush()
        child = os.fork()
        if child == 0:
            try:
                pay("a")
                ledger.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    ledger.close()
    after = KINDS[1].open(tmp_path, SYSTEM, True)
    assert kept(after)["pay"].retries == 2
    after.close()
