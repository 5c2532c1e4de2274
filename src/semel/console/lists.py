"""Every list of the console: an address that can be shared, filters as its query, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args
from urllib.parse import urlencode

from starlette.responses import Response

from semel.console import words
from semel.console.visit import ROOT, PageVisit
from semel.gateway import bodies
from semel.questions.refusals import Refusal

# As many as fit a screen or two.
_ROWS = "25"


class PageCell(NamedTuple):
    """`kind` is how it is shown: text, name, id, time, state. `id` tells links of one name apart."""

    text: str | None
    kind: str = "text"
    href: str = ""
    id: str = ""


class Filter(NamedTuple):
    """`choices` empty: free text."""

    name: str
    label: str
    choices: Sequence[str] = ()


@dataclass(frozen=True)
class Listing:
    title: str
    route: str
    columns: Sequence[str]
    row: Callable[[Mapping[str, Any]], Sequence[PageCell]]
    empty: str
    filters: Sequence[Filter] = ()
    fixed: tuple[tuple[str, str], ...] = ()
    live: bool = True
    intro: str = ""


async def _shown(visit: PageVisit, listing: Listing) -> Response:
    chosen = {
        each.name: value for each in listing.filters if (value := visit.query.get(each.name, "").strip())
    }
    query = {**chosen, **dict(listing.fixed), "limit": _ROWS, "cursor": visit.query.get("cursor", "")}
    refused = None
    try:
        answer = await visit.operations.get(listing.route, query)
    except Refusal as wrong:
        if wrong.code != "request_invalid":
            raise
        # Somebody mistyped: they find their filter where they left it.
        answer, refused = {"items": [], "next_cursor": None}, wrong
    cursor = answer["next_cursor"]
    return visit.page(
        "list.html",
        listing=listing,
        rows=[listing.row(item) for item in answer["items"]],
        chosen=chosen,
        first="cursor" not in visit.query,
        next=f"?{urlencode({**chosen, 'cursor': cursor})}" if cursor else "",
        refused=refused,
    )


def _name(name: str, kind: str, id_: str) -> PageCell:
    """What it is called, and where it is; people know it by that, programs by its id."""
    return PageCell(name, "name", f"{ROOT}/{kind}/{id_}", id_)


def _id(id_: str) -> PageCell:
    return PageCell(id_, "id")


DOUBTS = ("Tool", "Arguments", "Begun", "Record")


def doubt_row(item: Mapping[str, Any]) -> Sequence[PageCell]:
    arguments = item.get("arguments")
    return (
        _name(item["tool"] or item["scope"], "records", item["id"]),
        PageCell(words.brief(arguments) if arguments is not None else ""),
        PageCell(item["created_at"], "time"),
        _id(item["id"]),
    )


def record_row(item: Mapping[str, Any]) -> Sequence[PageCell]:
    name, *others = doubt_row(item)
    return (name, PageCell(item["state"], "state"), *others)


_RECORDS = ("Tool", "State", "Arguments", "Begun", "Record")


IN_DOUBT = "Each of these may have happened. Open one: it says what to ask the other side, and settles it."
WAITING = "Each of these waits for a person. Open one to approve or reject it."
PUT_ASIDE = "Each of these messages failed too often. Open one to see why, and to send it again."


async def in_doubt(visit: PageVisit) -> Response:
    return await _shown(
        visit,
        Listing(
            "In doubt",
            "list_records",
            DOUBTS,
            doubt_row,
            "Nothing is in doubt. A call whose process died, or whose answer was lost, would be here "
            "until somebody has looked whether it happened.",
            (Filter("tool", "Tool"),),
            (("state", "in_doubt"),),
            intro=IN_DOUBT,
        ),
    )


async def records(visit: PageVisit) -> Response:
    return await _shown(
        visit,
        Listing(
            "Records",
            "list_records",
            _RECORDS,
            record_row,
            "No record yet. Every call of a recorded tool, and every key, would be here.",
            (
                Filter("state", "State", get_args(bodies.RecordState)),
                Filter("scope", "Kind", get_args(bodies.Scope)),
                Filter("tool", "Tool"),
                Filter("key", "Key"),
            ),
            live=False,
        ),
    )


APPROVALS = ("What", "Status", "With", "Asked by", "Until", "Job")


def approval_row(item: Mapping[str, Any]) -> Sequence[PageCell]:
    return (
        _name(item["topic"], "approvals", item["job_id"]),
        PageCell(item["status"], "state"),
        PageCell(words.brief(item["input"])),
        PageCell(item["submitted_by"]),
        PageCell(item["expires_at"], "time"),
        _id(item["job_id"]),
    )


async def approvals(visit: PageVisit) -> Response:
    return await _shown(
        visit,
        Listing(
            "Approvals",
            "list_approvals",
            APPROVALS,
            approval_row,
            "Nobody is asked anything. Calls and steps that need a person's approval would wait here.",
            (Filter("status", "Status", get_args(bodies.ApprovalStatus)),),
            intro="A call or step waits for a person until its time is over. Open one to decide it.",
        ),
    )


def run_row(item: Mapping[str, Any]) -> Sequence[PageCell]:
    return (
        _name(item["workflow_id"], "runs", item["run_id"]),
        PageCell(item["status"], "state"),
        PageCell(words.brief(item["input"])),
        PageCell(item["created_at"], "time"),
        _id(item["run_id"]),
    )


async def runs(visit: PageVisit) -> Response:
    return await _shown(
        visit,
        Listing(
            "Runs",
            "list_runs",
            ("Workflow", "Status", "Input", "Begun", "Run"),
            run_row,
            "No run yet. Every start of a workflow over the gateway would be here.",
            (Filter("status", "Status", get_args(bodies.RunStatus)), Filter("workflow_id", "Workflow")),
        ),
    )


def job_row(item: Mapping[str, Any]) -> Sequence[PageCell]:
    return (
        _name(item["topic"], "jobs", item["job_id"]),
        PageCell(item["status"], "state"),
        PageCell(str(item["attempt"])),
        PageCell(words.brief(item["input"])),
        PageCell(item["created_at"], "time"),
        _id(item["job_id"]),
    )


async def jobs(visit: PageVisit) -> Response:
    return await _shown(
        visit,
        Listing(
            "Jobs",
            "list_jobs",
            ("Topic", "Status", "Attempt", "Input", "Made", "Job"),
            job_row,
            "No job yet. What workers lease, and questions of tools, would be here.",
            (
                Filter("status", "Status", get_args(bodies.JobStatus)),
                Filter("topic", "Topic"),
                Filter("run_id", "Run"),
            ),
        ),
    )


LETTERS = ("Message", "Consumer", "Status", "Error", "Put aside", "Letter")


def letter_row(item: Mapping[str, Any]) -> Sequence[PageCell]:
    return (
        _name(item["type"], "dead-letters", item["id"]),
        PageCell(item["consumer"]),
        PageCell("retried" if item["retried_at"] else "put_aside", "state"),
        PageCell(words.brief(item["error"])),
        PageCell(item["dead_at"], "time"),
        _id(item["id"]),
    )


async def dead_letters(visit: PageVisit) -> Response:
    return await _shown(
        visit,
        Listing(
            "Dead letters",
            "list_dead_letters",
            LETTERS,
            letter_row,
            "No message was put aside. One that a consumer could not handle would be here.",
            (Filter("status", "Status", get_args(bodies.LetterStatus)), Filter("consumer", "Consumer")),
        ),
    )


def tool_row(item: Mapping[str, Any]) -> Sequence[PageCell]:
    return (
        PageCell(item["name"], "name", f"{ROOT}/tools/{item['name']}"),
        PageCell(item["version"]),
        PageCell(item["class"]),
        PageCell(item["on_unknown"] or "keeps no record"),
        PageCell(item["window"] or ""),
        PageCell(item["last_seen_at"], "time"),
    )


async def tools(visit: PageVisit) -> Response:
    return await _shown(
        visit,
        Listing(
            "Tools",
            "list_tools",
            ("Tool", "Version", "Class", "If in doubt", "Window", "Last seen"),
            tool_row,
            "No tool was called yet. Every contract that a ledger of this store has run would be here.",
            live=False,
        ),
    )
