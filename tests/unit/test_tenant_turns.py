"""Starts of one tenant take turns: so many at once, the others in line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from semel.flow.tenant_turns import TenantTurns


class Comers:
    """Who comes for a turn of `acme` or another tenant; `going` have been given one, in this order."""

    def __init__(self, at_once: int) -> None:
        self.turns = TenantTurns(at_once)
        self.going: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def come(self, *names: str, tenant: str = "acme") -> None:
        for name in names:
            self._tasks[name] = self._loop.create_task(self._take(name, tenant))
        self._settle()

    def end(self, *, settled: bool = True) -> None:
        """One of `acme` has ended; `settled`: whoever is next has run since."""
        self.turns.give_back("acme")
        if settled:
            self._settle()

    def leave(self, *names: str) -> None:
        """Their clients have gone away."""
        for name in names:
            self._tasks[name].cancel()
        self._settle()

    def close(self) -> None:
        self.leave(*self._tasks)
        self._loop.close()

    async def _take(self, name: str, tenant: str) -> None:
        await self.turns.take(tenant)
        self.going.append(name)

    def _settle(self) -> None:
        """Every task has come as far as it gets."""
        for _ in range(10):
            self._loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def one_turn() -> Iterator[Comers]:
    comers = Comers(1)
    yield comers
    comers.close()


@pytest.fixture
def two_turns() -> Iterator[Comers]:
    comers = Comers(2)
    yield comers
    comers.close()


def test_no_more_go_on_than_there_are_turns(two_turns: Comers) -> None:
    two_turns.come("a", "b", "c", "d")
    assert two_turns.going == ["a", "b"]
    two_turns.end()
    assert two_turns.going == ["a", "b", "c"]


def test_whoever_came_first_is_next(one_turn: Comers) -> None:
    one_turn.come("a", "b", "c")
    one_turn.end()
    one_turn.come("d")
    one_turn.end()
    one_turn.end()
    assert one_turn.going == ["a", "b", "c", "d"]


def test_a_newcomer_does_not_overtake_whoever_was_given_the_turn_a_moment_ago(one_turn: Comers) -> None:
    one_turn.come("a", "b")
    one_turn.end(settled=False)
    one_turn.come("c")
    assert one_turn.going == ["a", "b"]


def test_another_tenant_does_not_wait(one_turn: Comers) -> None:
    one_turn.come("a", "b")
    one_turn.come("other", tenant="zeta")
    assert one_turn.going == ["a", "other"]


def test_one_who_leaves_the_line_is_passed_over(one_turn: Comers) -> None:
    one_turn.come("a", "b", "c", "d")
    one_turn.leave("b", "c")
    one_turn.end()
    assert one_turn.going == ["a", "d"]


def test_one_who_leaves_as_the_turn_comes_hands_it_on(one_turn: Comers) -> None:
    one_turn.come("a", "b", "c")
    one_turn.end(settled=False)
    one_turn.leave("b")
    assert one_turn.going == ["a", "c"]


def test_nothing_is_left_of_a_tenant_that_has_nobody_here(one_turn: Comers) -> None:
    one_turn.come("a", "b", "c")
    one_turn.leave("b")
    one_turn.end()
    assert len(one_turn.turns) == 1
    one_turn.end()
    assert len(one_turn.turns) == 0
