"""When to ask again for a slot: by how fast slots have been freed lately."""

from __future__ import annotations

from itertools import pairwise

from semel.flow.slot_pace import AHEAD_MAX_S, FREED_MAX, TENANTS_MAX, SlotPace
from semel.testing import FakeClock


class Wavering(FakeClock):
    """A clock whose chance goes round in a circle."""

    drawn = 0

    def random(self) -> float:
        self.drawn += 1
        return (self.drawn * 37 % 100) / 100


def moments(pace: SlotPace, clock: FakeClock, number: int) -> list[float]:
    return [clock.monotonic() + pace.retry_after_s("acme") for _ in range(number)]


def freed(pace: SlotPace, clock: FakeClock, number: int, every_s: int) -> None:
    for _ in range(number):
        clock.advance(f"{every_s}s")
        pace.freed("acme")


def test_no_two_refusals_in_a_row_say_the_same_moment() -> None:
    clock = Wavering()
    pace = SlotPace(clock)
    for _ in range(5):
        told = moments(pace, clock, 200)
        assert all(one != other for one, other in pairwise(told))
        freed(pace, clock, 3, 1)


def test_it_follows_how_fast_slots_are_freed() -> None:
    for every_s in (1, 4, 9):
        clock = FakeClock()
        pace = SlotPace(clock)
        freed(pace, clock, 5, every_s)
        assert pace.retry_after_s("acme") == every_s


def test_it_grows_while_nothing_is_freed_and_is_bounded() -> None:
    clock = FakeClock()
    pace = SlotPace(clock)
    told = []
    for _ in range(20):
        told.append(pace.retry_after_s("acme"))
        clock.advance("2s")
    assert told[0] < 1 < told[1] < told[2]
    assert max(told) <= AHEAD_MAX_S


def test_those_who_are_refused_together_are_asked_back_one_after_the_other_four_for_each_slot() -> None:
    clock = FakeClock()
    pace = SlotPace(clock)
    freed(pace, clock, 10, 2)
    assert [pace.retry_after_s("acme") for _ in range(5)] == [2, 2.5, 3, 3.5, 4]


def test_nobody_is_sent_away_for_longer_than_the_bound() -> None:
    clock = Wavering()
    pace = SlotPace(clock)
    freed(pace, clock, 10, 3)
    told = [pace.retry_after_s("acme") for _ in range(1_000)]
    assert 0 < min(told) <= max(told) <= AHEAD_MAX_S
    assert max(told) > AHEAD_MAX_S / 2  # and the whole of it is used


def test_a_burst_after_a_quiet_hour_does_not_pay_for_the_hour() -> None:
    clock = FakeClock()
    pace = SlotPace(clock)
    freed(pace, clock, 10, 10)
    pace.retry_after_s("acme")
    clock.advance("1h")
    assert pace.retry_after_s("acme") < 1


def test_only_the_time_in_which_somebody_wanted_a_slot_counts() -> None:
    clock = FakeClock()
    pace = SlotPace(clock)
    for _ in range(5):
        clock.advance("10s")  # nobody is there
        pace.retry_after_s("acme")
        clock.advance("1s")
        pace.freed("acme")
    assert pace.retry_after_s("acme") == 1


def test_tenants_do_not_meet_and_memory_is_bounded() -> None:
    clock = FakeClock()
    pace = SlotPace(clock)
    freed(pace, clock, 10 * FREED_MAX, 5)
    assert pace.retry_after_s("other") < pace.retry_after_s("acme")
    for number in range(2 * TENANTS_MAX):
        pace.retry_after_s(f"t-{number}")
        pace.freed(f"t-{number}")
    assert len(pace) == TENANTS_MAX
    assert all(len(each.freed) <= FREED_MAX for each in pace._tenants.values())
