"""What needs a person now, and whether the store and the bus are well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.responses import Response

from semel.console import lists
from semel.console.lists import PageCell
from semel.console.visit import PageVisit
from semel.gateway import operate
from semel.gateway.last_hour import MinuteCounts
from semel.questions.refusals import Refusal

# Counted up to here, and a few of them shown: more than a person settles before looking again.
_COUNTED, _FEW = "51", 5

# Those whose own limits are shown.
_WORKFLOWS = 20


async def show(visit: PageVisit) -> Response:
    ask = visit.operations.get
    doubtful = (await ask("list_records", {"state": "in_doubt", "limit": _COUNTED}))["items"]
    waiting = (await ask("list_approvals", {"status": "waiting", "limit": _COUNTED}))["items"]
    letters = (await ask("list_dead_letters", {"status": "put_aside", "limit": _COUNTED}))["items"]
    needs = [
        _need("In doubt", "in-doubt", lists.IN_DOUBT, lists.DOUBTS, lists.doubt_row, doubtful),
        _need(
            "Waiting approvals",
            "approvals?status=waiting",
            lists.WAITING,
            lists.APPROVALS,
            lists.approval_row,
            waiting,
        ),
        _need(
            "Dead letters",
            "dead-letters?status=put_aside",
            lists.PUT_ASIDE,
            lists.LETTERS,
            lists.letter_row,
            letters,
        ),
    ]
    return visit.page(
        "overview.html",
        needs=needs,
        slots=await _slots(visit),
        trouble=await operate.trouble(visit.services),
        durability=visit.services.store.durability,
        hour=None if visit.alone else _hour(visit.services.metrics.last_hour.read()),
    )


class Need(NamedTuple):
    """What a person is needed for: how many, and the first of them."""

    title: str
    address: str
    intro: str
    how_many: int
    columns: Sequence[str]
    rows: Sequence[Sequence[PageCell]]

    @property
    def counted(self) -> str:
        return str(self.how_many) if self.how_many < int(_COUNTED) else f"{self.how_many - 1}+"


def _need(
    title: str,
    address: str,
    intro: str,
    columns: Sequence[str],
    row: Callable[[Mapping[str, Any]], Sequence[PageCell]],
    items: Sequence[Mapping[str, Any]],
) -> Need:
    return Need(title, address, intro, len(items), columns, [row(each) for each in items[:_FEW]])


class SlotUse(NamedTuple):
    """Of the tenant, or of one workflow."""

    name: str
    used: int
    limit: int
    address: str


async def _slots(visit: PageVisit) -> list[SlotUse]:
    """The tenant's; then those of its workflows, the fullest first."""
    holding = await _holding(visit, "")
    limit = (await visit.operations.get("get_tenant"))["max_concurrent_runs"]
    own = [
        SlotUse(f"Slots of {name}", len(await _holding(visit, name)), most, f"runs?workflow_id={quote(name)}")
        for name, most in await _limits(visit, [run["workflow_id"] for run in holding])
    ]
    own.sort(key=lambda slot: slot.used / slot.limit, reverse=True)
    return [SlotUse("Slots used", len(holding), limit, "runs"), *own]


async def _limits(visit: PageVisit, in_use: Sequence[str]) -> list[tuple[str, int]]:
    """Of workflows with a limit of their own: those in use, and the newest, some of all there are."""
    newest = (await visit.operations.get("list_workflows", {"limit": str(_WORKFLOWS)}))["items"]
    limits = {each["workflow_id"]: each.get("max_concurrent_runs") for each in newest}
    names = list(dict.fromkeys([*in_use, *limits]))[:_WORKFLOWS]
    for name in names:
        if name not in limits:
            limits[name] = await _limit(visit, name)
    return [(name, most) for name in names if (most := limits[name]) is not None]


async def _limit(visit: PageVisit, name: str) -> int | None:
    try:
        workflow: Mapping[str, int | None] = await visit.operations.get("get_workflow", workflow_id=name)
    except Refusal:  # it was deleted, and a run of it goes on
        return None
    return workflow.get("max_concurrent_runs")


async def _holding(visit: PageVisit, workflow: str) -> list[Mapping[str, Any]]:
    """Runs that hold a slot."""
    query = {"workflow_id": workflow, "limit": _COUNTED}
    pages = [
        await visit.operations.get("list_runs", {**query, "status": status})
        for status in ("running", "waiting")
    ]
    return [run for page in pages for run in page["items"]]


class Sparkline(NamedTuple):
    name: str
    total: int
    most: int
    points: str  # of an SVG polyline, 600 wide and 40 high


def _hour(counts: MinuteCounts) -> list[Sparkline]:
    return [_sparkline("Replays", counts.replays), _sparkline("Conflicts", counts.conflicts)]


def _sparkline(name: str, counts: list[int]) -> Sparkline:
    most = max(counts)
    points = " ".join(
        f"{minute * 10 + 5},{38 - 36 * count // (most or 1)}" for minute, count in enumerate(counts)
    )
    return Sparkline(name, sum(counts), most, points)
