"""The operator's commands through a gateway, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import click
import httpx
from pydantic_core import from_json, to_json

from semel.cli.operations import Data, Progress, Verdict
from semel.errors import (
    ApprovalError,
    OpenError,
    RecordNotFound,
    RecordNotInDoubt,
    SemelError,
    StoreCorrupt,
    StoreUnavailable,
)
from semel.ledger.records import NO_RESULT
from semel.stores.urls import hide_password

_V1 = "/api/v1"

# A busy gateway needs a while; a report over a year of events needs longer than a person likes to wait.
_ANSWER_S = 30.0
_REPORT_S = 600.0

_ID = re.compile(r"[A-Za-z0-9_]+")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}")

# As many as a page may have: each page is a round trip.
_PAGE = 200

# What the same refusal is called at a store. What is not named here is refused under its own code.
_SAME_AT_A_STORE: dict[str, type[SemelError]] = {
    "record_not_found": RecordNotFound,
    "record_not_in_doubt": RecordNotInDoubt,
    "store_unavailable": StoreUnavailable,
    "store_corrupt": StoreCorrupt,
}


class ServerAddress(NamedTuple):
    """Which gateway, and what it is told about who asks."""

    url: str
    api_key: str | None = None
    tenant: str | None = None  # None: the key's own
    person: str | None = None  # believed with --dev only; else the key says who it is

    @property
    def shown(self) -> str:
        return hide_password(self.url)

    def headers(self) -> dict[bytes, bytes]:
        """As bytes: names of people are not all ASCII."""
        texts = {
            b"X-Tenant-ID": self.tenant,
            b"X-Principal-Id": self.person,
            b"X-API-Key": self.api_key or None,
        }
        return {name: value.encode() for name, value in texts.items() if value is not None}


class ServerOperations:
    def __init__(self, server: ServerAddress) -> None:
        self._server = server
        try:
            self._client = httpx.Client(
                base_url=server.url, headers=server.headers(), timeout=_ANSWER_S, follow_redirects=False
            )
        except (httpx.InvalidURL, ValueError) as wrong:
            raise _no_url(server, str(wrong)) from None

    def __enter__(self) -> ServerOperations:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    # --- what is asked for --------------------------------------------------------------------------

    def records(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        return list(self._pages("/records", limit, **filters))

    def record(self, id_: str) -> Data:
        return self._get(f"/records/{_in_path(id_)}")

    def resolve(self, id_: str, verdict: Verdict) -> tuple[Data, bool]:
        body: dict[str, Any] = {"outcome": verdict.outcome}
        body |= {} if verdict.result is NO_RESULT else {"result": verdict.result}
        body |= {} if verdict.fence is None else {"fence": verdict.fence}
        return self._changed(f"/records/{_in_path(id_)}/resolve", body)

    def amend(self, id_: str, result: Any) -> tuple[Data, bool]:
        return self._changed(f"/records/{_in_path(id_)}/amend", {"result": result})

    def tools(self, limit: int) -> list[Data]:
        return list(self._pages("/tools", limit))

    def tool(self, name: str, version: str | None) -> Data:
        name = name if _NAME.fullmatch(name) else "-"
        return self._get(f"/tools/{name}", None if version is None else {"version": version})

    def approvals(self, status: str | None, limit: int) -> list[Data]:
        return list(self._pages("/approvals", limit, status=status))

    def approval(self, job_id: str) -> Data:
        return self._get(f"/approvals/{_in_path(job_id)}")

    def decide(self, verb: str, job_id: str, details: dict[str, Any]) -> Data:
        body = {name: value for name, value in details.items() if value is not None}
        return self._data(self._send("POST", f"/approvals/{_in_path(job_id)}/{verb}", body=body))

    def runs(self, workflow_id: str | None, status: str | None, limit: int) -> list[Data]:
        return list(self._pages("/runs", limit, workflow_id=workflow_id, status=status))

    def run(self, run_id: str) -> Data:
        path = f"/runs/{_in_path(run_id)}"
        return {**self._get(path), "timeline": list(self._pages(f"{path}/timeline", None))}

    def cancel_run(self, run_id: str) -> tuple[Data, bool]:
        return self._changed(f"/runs/{_in_path(run_id)}/cancel", {})

    def rerun(self, run_id: str, from_step: str, key: str) -> tuple[Data, bool]:
        return self._changed(f"/runs/{_in_path(run_id)}/rerun", {"from_step": from_step}, key)

    def jobs(self, filters: dict[str, str | None], limit: int) -> list[Data]:
        return list(self._pages("/jobs", limit, **filters))

    def job(self, job_id: str) -> Data:
        return self._get(f"/jobs/{_in_path(job_id)}")

    def cancel_job(self, job_id: str) -> tuple[Data, bool]:
        return self._changed(f"/jobs/{_in_path(job_id)}/cancel", {})

    def dead_letters(self, limit: int) -> list[Data]:
        return list(self._pages("/dead-letters", limit))

    def dead_letter(self, id_: str) -> Data:
        return self._get(f"/dead-letters/{_in_path(id_)}")

    def retry_dead_letter(self, id_: str, key: str) -> tuple[Data, bool]:
        return self._changed(f"/dead-letters/{_in_path(id_)}/retry", {}, key)

    def windows(self, tool: str | None) -> list[Data]:
        filters = None if tool is None else {"tool": tool}
        items: list[Data] = self._data(self._send("GET", "/windows", filters, timeout_s=_REPORT_S))["items"]
        return items

    def duplicates(self, within: str, progress: Progress) -> Data:
        del progress  # the gateway reads the log, and tells when it is done
        return self._data(self._send("GET", "/audit/duplicates", {"within": within}, timeout_s=_REPORT_S))

    def events(self) -> Iterator[Data]:
        return self._pages("/audit", None)

    # --- how it is asked ----------------------------------------------------------------------------

    def _pages(self, path: str, limit: int | None, **filters: str | None) -> Iterator[Data]:
        """A list from its beginning, to its end or until there are so many; one page in memory."""
        query = {name: value for name, value in filters.items() if value is not None}
        left, more = limit, True
        while more:
            size = _PAGE if left is None else min(left, _PAGE)
            page = self._get(path, query | {"limit": str(size)})
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            more = page["next_cursor"] is not None and left != 0
            query["cursor"] = page["next_cursor"]

    def _changed(self, path: str, body: Data, key: str | None = None) -> tuple[Data, bool]:
        """What stands afterwards, and whether it stood before."""
        answer = self._send("POST", path, body=body, key=key)
        return self._data(answer), bool(answer.headers.get("idempotent-replayed") == "true")

    def _get(self, path: str, query: dict[str, str] | None = None) -> Data:
        return self._data(self._send("GET", path, query))

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: Data | None = None,
        key: str | None = None,
        timeout_s: float = _ANSWER_S,
    ) -> httpx.Response:
        content = None if body is None else to_json(body)
        headers = {} if key is None else {"Idempotency-Key": key}
        try:
            answer = self._client.request(
                method, _V1 + path, params=query, content=content, timeout=timeout_s, headers=headers
            )
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as wrong:
            raise _no_url(self._server, str(wrong)) from None
        except httpx.HTTPError as wrong:
            raise _silent(self._server, wrong, changing=method != "GET", key=key) from None
        if not answer.is_success:
            self._refuse(answer)
        return answer

    def _data(self, answer: httpx.Response) -> Data:
        try:
            data: Data = from_json(answer.content)  # whole numbers of any size stay whole
        except ValueError:
            raise _no_gateway(self._server, answer) from None
        return data

    def _refuse(self, answer: httpx.Response) -> NoReturn:
        try:
            problem = from_json(answer.content)
            code, detail = str(problem["code"]), str(problem["detail"])
        except (ValueError, TypeError, KeyError):
            raise _no_gateway(self._server, answer) from None
        about_people = answer.request.url.path.startswith(f"{_V1}/approvals/")
        raise _refusal(answer.status_code, code, detail, about_people)


def _in_path(id_: str) -> str:
    """The id; what cannot be one would lead to another address, so it becomes one that nothing has."""
    return id_ if _ID.fullmatch(id_) else "-"


def _refusal(status: int, code: str, detail: str, about_people: bool) -> Exception:
    """The problem as the error that a store would raise, so that both exit alike."""
    if status == 400:
        return click.UsageError(detail)
    if kind := _SAME_AT_A_STORE.get(code):
        return kind(detail)
    if status >= 500:
        return _coded(OpenError(detail, corrective_action="Ask again; what was done is done once."), code)
    kind = ApprovalError if about_people and code not in _FIXES else SemelError
    return _coded(kind(detail, corrective_action=_FIXES.get(code)), code)


def _coded(error: SemelError, code: str) -> SemelError:
    error.code = code
    return error


_FIXES = {
    "unauthenticated": "Give a key with --api-key or SEMEL_API_KEY; `semel keys create` makes one.",
    "forbidden": "Use a key with the role that this takes; `semel keys create --role` makes one.",
    "tenant_mismatch": "Leave --tenant out: the key says which tenant it opens.",
}


def _no_url(server: ServerAddress, why: str) -> click.UsageError:
    return click.UsageError(f"{server.shown!r} cannot be asked: {why}. Correct --server, or what it is told.")


def _silent(server: ServerAddress, wrong: httpx.HTTPError, *, changing: bool, key: str | None) -> OpenError:
    again = "the same command again" if key is None else f"the same command with --key {key}"
    unknown = f" Whether it was done is unknown; {again} is safe." if changing else ""
    return OpenError(
        f"{server.shown} does not answer: {type(wrong).__name__}.{unknown}",
        corrective_action="Start the gateway, or correct --server.",
    )


def _no_gateway(server: ServerAddress, answer: httpx.Response) -> OpenError:
    return OpenError(
        f"{server.shown} answers {answer.status_code}, and not as a gateway does.",
        corrective_action="Correct --server: it is the address that `semel serve` prints.",
    )
