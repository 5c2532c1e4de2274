"""The steps of a run as a drawing: from left to right, with a line for what waits for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE = 150, 40, 200, 60, 8

# A drawing of more steps than this is no help; their list stands below it.
_STEPS_MAX = 200


class Box(NamedTuple):
    id: str
    label: str
    status: str
    job_id: str | None
    x: int
    y: int


class Drawing(NamedTuple):
    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[str]  # as the path of an SVG


def drawn(steps: Sequence[Mapping[str, Any]]) -> Drawing | None:
    if not steps or len(steps) > _STEPS_MAX:
        return None
    depths = _depths({step["id"]: step["depends_on"] for step in steps})
    filled: dict[int, int] = {}
    boxes: dict[str, Box] = {}
    for step in steps:
        column = depths[step["id"]]
        row = filled.get(column, 0)
        filled[column] = row + 1
        x, y = _EDGE + column * _ACROSS, _EDGE + row * _DOWN
        boxes[step["id"]] = Box(step["id"], _label(step["id"]), step["status"], step["job_id"], x, y)
    lines = [_line(boxes[before], boxes[step["id"]]) for step in steps for before in step["depends_on"]]
    width = 2 * _EDGE + _WIDTH + max(filled) * _ACROSS
    height = 2 * _EDGE + _HEIGHT + (max(filled.values()) - 1) * _DOWN
    return Drawing(width, height, list(boxes.values()), lines)


def _depths(before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Steps stand after all that they depend on; a definition has no circles."""
    depths: dict[str, int] = {}
    for _ in before:
        for step, needed in before.items():
            if step not in depths and all(each in depths for each in needed):
                depths[step] = max((depths[each] + 1 for each in needed), default=0)
    return depths


def _label(name: str) -> str:
    """What fits its box; of a long name its two ends, since numbers are behind."""
    return name if len(name) <= 18 else f"{name[:9]}…{name[-8:]}"


def _line(start: Box, end: Box) -> str:
    x1, y1, x2, y2 = start.x + _WIDTH, start.y + _HEIGHT // 2, end.x, end.y + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"
