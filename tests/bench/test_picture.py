"""The picture of the figures: one line for each goal, nothing beyond the edge, no text upon another."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bench.experiments import EXPERIMENTS
from bench.figures import BenchReport, Figure, Goal, Row, Unit
from bench.picture import LETTERS_MAX, SCALE_LEFT, SCALE_RIGHT, WIDTH, better, drawn

SVG = "{http://www.w3.org/2000/svg}"


AT_MOST_2 = Goal("≤", 2.0)


def figure(value: float, goal: Goal | None = AT_MOST_2) -> Figure:
    return Figure(Row("r", "a call / <by hand>", Unit.TIMES, goal, "ours", "theirs"), (value,) * 3)


def picture(*figures: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(drawn(BenchReport(False, {}, list(figures))))


def points(root: ElementTree.Element) -> list[tuple[str, float]]:
    return [(each.attrib["class"], float(each.attrib["cx"])) for each in root.iter(f"{SVG}circle")]


def test_what_is_better_than_its_goal_is_right_of_the_middle() -> None:
    middle = (SCALE_LEFT + SCALE_RIGHT) / 2
    root = picture(figure(1.0), figure(4.0), figure(4.0, Goal("≥", 2.0)), figure(2.0))
    assert [kind for kind, _ in points(root)] == ["reached", "missed", "reached", "reached"]
    good, bad, also_good, just = (x for _, x in points(root))
    assert good == also_good > middle > bad
    assert good - middle == middle - bad
    assert just == middle


def test_figures_without_a_goal_and_those_besides_are_left_out() -> None:
    beside = replace(figure(1.0), row=replace(figure(1.0).row, extra=True))
    assert points(picture(figure(1.0, None), beside)) == []


@pytest.mark.parametrize("value", [0.001, 1.0, 2.0, 5_000.0])
def test_the_scale_reaches_as_far_as_the_farthest(value: float) -> None:
    ((_, x),) = points(picture(figure(value)))
    assert SCALE_LEFT <= x <= SCALE_RIGHT
    numbers = [
        each
        for each in picture(figure(value)).iter(f"{SVG}text")
        if each.attrib.get("text-anchor") == "middle"
    ]
    assert 3 <= len(numbers) <= 5


def test_better_than_a_goal_means_the_same_for_both_kinds() -> None:
    assert better(figure(1.0, Goal("≤", 2.0)), 1.0) == better(figure(1.0, Goal("≥", 2.0)), 4.0) == 2.0


def test_every_goal_of_the_plan_has_a_line_whose_words_fit() -> None:
    rows = [row for one in EXPERIMENTS for row in one.rows if row.goal is not None and not row.extra]
    root = picture(*(Figure(row, (row.goal.value,) * 3) for row in rows if row.goal is not None))
    texts = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert len(points(root)) == len(rows)
    assert not any("…" in text for text in texts)
    assert max(map(len, texts)) <= LETTERS_MAX
    assert all(0 <= float(each.attrib["x"]) <= WIDTH for each in root.iter(f"{SVG}text"))
