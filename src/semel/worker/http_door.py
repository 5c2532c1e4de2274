"""Jobs through a gateway, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from semel.errors import SemelError
from semel.worker.doors import LOST, Away, Leased, Lost, Report, leased_of

# Beyond what a gateway is asked to wait for: a busy one needs a while to answer.
_ANSWER_S = 15.0


class Refused(SemelError):
    """The gateway refused."""


class HttpDoor:
    """Who the worker is, and of which tenant, the API key says; `tenant` is only checked against it."""

    def __init__(self, server: str, api_key: str | None, worker_id: str, tenant: str | None = None) -> None:
        headers = {"Content-Type": "application/json"}
        headers |= {"X-API-Key": api_key} if api_key else {}
        headers |= {"X-Tenant-ID": tenant} if tenant else {}
        self._server = server
        self._worker_id = worker_id
        self._client = httpx.AsyncClient(base_url=server, headers=headers, timeout=_ANSWER_S)

    async def open(self) -> None:
        """Somebody answers there."""
        await self._send("GET", "/healthz", None, 0)

    async def close(self) -> None:
        await self._client.aclose()

    async def lease(self, topics: Sequence[str], count: int, lease_s: float, wait_s: float) -> list[Leased]:
        body = {
            "topics": list(topics),
            "max": count,
            "lease_s": lease_s,
            "worker_id": self._worker_id,
            "wait_s": wait_s,
        }
        answer = await self._send("POST", "/api/v1/leases", body, wait_s)
        return [leased_of(each) for each in answer["jobs"]]

    def hurry(self) -> None:
        """It cannot: a request that is given up might have leased something."""

    async def heartbeat(self, leased: Leased, lease_s: float) -> None:
        body = {"fence": leased.fence, "lease_s": lease_s}
        await self._send("POST", f"/api/v1/jobs/{leased.job.job_id}/heartbeat", body, 0)

    async def report(self, leased: Leased, report: Report) -> None:
        body: dict[str, Any] = {"fence": leased.fence, "status": report.status}
        body |= {"result": report.result} if report.error is None else {"error": report.error}
        await self._send("POST", f"/api/v1/jobs/{leased.job.job_id}/result", body, 0)

    async def _send(self, method: str, path: str, body: Any, wait_s: float) -> Any:
        content = None if body is None else orjson.dumps(body)
        try:
            response = await self._client.request(method, path, content=content, timeout=_ANSWER_S + wait_s)
        except httpx.HTTPError as wrong:
            raise Away(f"{self._server} does not answer: {type(wrong).__name__}.") from wrong
        if response.is_success:
            return _json(response)
        raise _refusal(response, self._server)


def _json(response: httpx.Response) -> Any:
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return {}


def _refusal(response: httpx.Response, server: str) -> SemelError:
    """What a refusal means to a worker: the job is lost, nobody is there, or the worker may not."""
    problem = _json(response)
    problem = problem if isinstance(problem, dict) else {}
    code, detail = problem.get("code", ""), problem.get("detail", "")
    if code in LOST:
        return Lost()
    if response.status_code >= 500 or response.status_code == 429:
        return Away(f"{server} answers {response.status_code} {code}.".replace(" .", "."))
    refused = Refused(detail or f"{server} answers {response.status_code}.")
    refused.code = code or f"HTTP_{response.status_code}"
    return refused
