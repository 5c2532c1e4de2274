"""Jobs through a gateway, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import orjson

from semel.errors import SemelError
from semel.worker.job_source import LOST, Away, JobReport, Leased, Lost, leased_of

# Beyond what a gateway is asked to wait for: a busy one needs a while to answer.
_ANSWER_S = 15.0

# Its answer says which tenant a key is of: any role may send it, and it changes nothing.
_LOOK = "/api/v1/workflows?limit=1"

_TENANT = "X-Tenant-ID"


class Refused(SemelError):
    """The gateway refused."""


async def tenant_at(server: str, api_key: str | None, named: str | None) -> str:
    """The tenant that a worker with this key works for: the key's own; under --dev the named one.

    Refused if another is named. Nothing is leased by asking.
    """
    async with httpx.AsyncClient(base_url=server, headers=_headers(api_key, named)) as client:
        response = await _answered(client, server, "GET", _LOOK, None, _ANSWER_S)
    own = response.headers.get(_TENANT)
    problem = _problem(response)
    if problem.get("code") == "tenant_mismatch":
        raise _other_tenant(str(named), own)
    if not response.is_success:
        raise _refusal(response, server)
    if own is None and named is None:
        raise Refused(
            f"{server} does not say which tenant the key is of. Nothing was leased.",
            corrective_action="Name it with --tenant: then the gateway checks it. Or update the gateway.",
        )
    return str(own or named)


def _headers(api_key: str | None, tenant: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    headers |= {"X-API-Key": api_key} if api_key else {}
    return headers | ({_TENANT: tenant} if tenant else {})


def _other_tenant(named: str, own: str | None) -> Refused:
    whose = f"the tenant {own}" if own else "another tenant"
    refused = Refused(
        f"The API key is of {whose}, not of {named}. Nothing was leased.",
        corrective_action="Leave --tenant out: the key says which tenant it works for.",
    )
    refused.code = "tenant_mismatch"
    return refused


class GatewayJobs:
    """Who the worker is, and of which tenant, the API key says; every request names the tenant."""

    def __init__(self, server: str, api_key: str | None, worker_id: str, tenant: str) -> None:
        self.tenant = tenant
        self._server = server
        self._api_key = api_key
        self._worker_id = worker_id
        headers = _headers(api_key, tenant)
        self._client = httpx.AsyncClient(base_url=server, headers=headers, timeout=_ANSWER_S)

    async def open(self) -> None:
        """Somebody answers there, and serves this tenant."""
        await tenant_at(self._server, self._api_key, self.tenant)

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

    async def report(self, leased: Leased, report: JobReport) -> None:
        body: dict[str, Any] = {"fence": leased.fence, "status": report.status}
        body |= {"result": report.result} if report.error is None else {"error": report.error}
        path = f"/api/v1/jobs/{leased.job.job_id}/result"
        try:
            await self._send("POST", path, body, 0)
        except Refused as refused:
            if refused.code != "request_invalid" or "traceback" not in (report.error or {}):
                raise
            # A gateway of an earlier version takes none; the failure itself is as it was.
            plain = {name: value for name, value in body["error"].items() if name != "traceback"}
            await self._send("POST", path, body | {"error": plain}, 0)

    async def _send(self, method: str, path: str, body: Any, wait_s: float) -> Any:
        response = await _answered(self._client, self._server, method, path, body, _ANSWER_S + wait_s)
        if response.is_success:
            return _json(response)
        raise _refusal(response, self._server)


async def _answered(
    client: httpx.AsyncClient, server: str, method: str, path: str, body: Any, within_s: float
) -> httpx.Response:
    content = None if body is None else orjson.dumps(body)
    try:
        return await client.request(method, path, content=content, timeout=within_s)
    except httpx.HTTPError as wrong:
        raise Away(f"{server} does not answer: {type(wrong).__name__}.") from wrong


def _json(response: httpx.Response) -> Any:
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return {}


def _problem(response: httpx.Response) -> dict[str, Any]:
    problem = _json(response)
    return problem if isinstance(problem, dict) else {}


def _refusal(response: httpx.Response, server: str) -> SemelError:
    """What a refusal means to a worker: the job is lost, nobody is there, or the worker may not."""
    problem = _problem(response)
    code, detail = problem.get("code", ""), problem.get("detail", "")
    if code in LOST:
        return Lost()
    if response.status_code >= 500 or response.status_code == 429:
        return Away(f"{server} answers {response.status_code} {code}.".replace(" .", "."))
    refused = Refused(detail or f"{server} answers {response.status_code}.")
    refused.code = code or f"HTTP_{response.status_code}"
    return refused
