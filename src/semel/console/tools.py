"""A tool: its contract; and, asked for, what its retries say, and calls that look like one intention."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from semel.console.visit import PageVisit


async def show(visit: PageVisit) -> Response:
    return await _shown(visit)


async def ages(visit: PageVisit) -> Response:
    """Reads the whole log of the tenant, as `semel windows` does: so it is a page of its own."""
    answer = await visit.operations.get("list_windows", {"tool": visit.path["tool_name"]})
    return await _shown(visit, windows=answer["items"])


async def duplicates(visit: PageVisit) -> Response:
    """Reads the whole log too, as `semel audit duplicates` does."""
    name, report = visit.path["tool_name"], await visit.operations.get("find_duplicates")
    kinds = ("tools", "late_tools", "near_tools")
    its_own = [each for kind in kinds for each in report[kind] if each["tool"] == name]
    return await _shown(visit, duplicates=its_own)


async def _shown(
    visit: PageVisit,
    windows: list[dict[str, Any]] | None = None,
    duplicates: list[dict[str, Any]] | None = None,
) -> Response:
    name = visit.path["tool_name"]
    tool = await visit.operations.get("get_tool", tool_name=name)
    calls = await visit.operations.get("list_records", {"tool": name, "limit": "10"})
    return visit.page(
        "tool.html",
        tool=tool,
        calls=calls["items"],
        older=calls["next_cursor"],
        windows=windows,
        duplicates=duplicates,
    )
