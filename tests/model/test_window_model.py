"""The window against a list that is searched from end to end: the same answers, whatever comes between."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from semel.windows.entity import DedupWindow

START = datetime(2026, 1, 1, tzinfo=UTC)

# Few keys and short ages, so that keys come back around the moment at which they are forgotten.
keys = st.sampled_from(["a", "b", "c", "d", "e", "long" * 40, "ü"])
seconds = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 8, 30, -1, -4, -20])
ages = st.integers(1, 12)
bounds = st.one_of(st.none(), st.integers(1, 5))


class NaiveWindow:
    """Every key that is live, with its second, in the order in which they came."""

    def __init__(self, age: int, bound: int | None) -> None:
        self.age, self.bound = age, bound
        self.latest: int | None = None
        self.live: list[tuple[str, int]] = []
        self.last_forgotten: int | None = None
        self.pushes = self.early = 0
        self.duplicates: list[int] = []  # their ages

    def push(self, key: str | None, now: int) -> bool:
        self.tell(now)
        self.pushes += 1
        if key in [known for known, _ in self.live]:
            assert self.latest is not None
            self.duplicates += [self.latest - at for known, at in self.live if known == key]
            return False
        if key is not None:
            assert self.latest is not None
            self.live.append((key, self.latest))
        self.forget()
        return True

    def tell(self, now: int) -> int:
        self.latest = now if self.latest is None else max(now, self.latest)
        return self.forget()

    def forget(self) -> int:
        if self.latest is None:
            return 0
        young = [(key, at) for key, at in self.live if self.latest - at <= self.age]
        kept = young[max(0, len(young) - self.bound) :] if self.bound else young
        self.early += len(young) - len(kept)
        gone = [at for key, at in self.live if (key, at) not in kept]
        if gone:
            self.last_forgotten = max(gone)
        self.live = kept
        return len(gone)


class WindowMachine(RuleBasedStateMachine):
    @initialize(age=ages, bound=bounds)
    def begin(self, age: int, bound: int | None) -> None:
        self.window = DedupWindow(timedelta(seconds=age), bound)
        self.model = NaiveWindow(age, bound)
        self.second = 0

    def at(self, passed: int) -> datetime:
        self.second += passed
        return START + timedelta(seconds=self.second)

    @rule(key=keys, passed=seconds)
    def push(self, key: str, passed: int) -> None:
        now = self.at(passed)
        assert self.window.push(key, now=now) == self.model.push(key, self.second)

    @rule(passed=seconds)
    def push_without_a_key(self, passed: int) -> None:
        now = self.at(passed)
        assert self.window.push(None, now) is self.model.push(None, self.second) is True

    @rule(passed=seconds)
    def evict(self, passed: int) -> None:
        now = self.at(passed)
        assert self.window.evict(now) == self.model.tell(self.second)

    @rule()
    def restart(self) -> None:
        state = json.loads(json.dumps(self.window.to_state()))
        self.window = DedupWindow.from_state(state)
        assert self.window.to_state() == state

    @rule()
    def restart_from_the_first_format(self) -> None:
        state = self.window.to_state()
        times, at = [], 0
        for gap in state.pop("gaps_us"):
            at += gap
            times.append(at)
        seen = [list(pair) for pair in zip(state.pop("keys"), times, strict=True)]
        self.window = DedupWindow.from_state({**state, "format": 1, "seen": seen})

    @rule(age=ages)
    def restart_with_another_age(self, age: int) -> None:
        self.window = DedupWindow.from_state(self.window.to_state(), max_age=f"{age}s")
        self.model.age = age
        self.model.forget()

    @rule(bound=bounds)
    def restart_with_another_bound(self, bound: int | None) -> None:
        self.window = DedupWindow.from_state(self.window.to_state(), max_keys=bound)
        self.model.bound = bound
        self.model.forget()

    @invariant()
    def both_know_the_same_keys(self) -> None:
        assert len(self.window) == len(self.model.live)
        for key, at in self.model.live:
            assert key in self.window
            assert self.window.first_seen(key) == START + timedelta(seconds=at)

    @invariant()
    def both_have_counted_the_same(self) -> None:
        stats = self.window.stats()
        assert (stats.pushes, stats.duplicates, stats.evicted_early) == (
            *(self.model.pushes, len(self.model.duplicates)),
            self.model.early,
        )
        told = [bound for bound, count in stats.ages.items() for _ in range(count)]
        ages = [timedelta(seconds=age) for age in sorted(self.model.duplicates)]
        assert all(age < bound for age, bound in zip(ages, told, strict=True))

    @invariant()
    def what_is_covered_was_not_forgotten(self) -> None:
        since = self.window.covered_since
        if self.model.latest is None:
            assert since is None
            return
        assert since is not None
        if self.model.last_forgotten is not None:
            assert since > START + timedelta(seconds=self.model.last_forgotten)
        else:
            # Nothing was lost yet, so no key that is known lies outside.
            assert all(since <= START + timedelta(seconds=at) for _, at in self.model.live)

    @invariant()
    def what_came_after_the_last_forgotten_key_is_covered(self) -> None:
        since, lost = self.window.covered_since, self.model.last_forgotten
        for _, at in self.model.live:
            if lost is None or at > lost:
                assert since is not None
                assert since <= START + timedelta(seconds=at)


WindowMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, suppress_health_check=[HealthCheck.too_slow]
)
TestTheWindowAnswersLikeAList = WindowMachine.TestCase
