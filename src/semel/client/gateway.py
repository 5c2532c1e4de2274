"""`Gateway` and `AsyncGateway`: what can be asked, as methods in groups.

A method is a function of `operations.py`, whose parameters type checkers and editors see. The groups of the
one answer by calling, those of the other by awaiting; nothing else differs.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import httpx

from semel.client import operations
from semel.client.driving import AwaitingDriver, CallingDriver, ServerAddress
from semel.client.retrying import Asking, ListedPages, Patience
from semel.errors import OpenError
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.durations import Duration, microseconds
from semel.stores.urls import hide_password

P = ParamSpec("P")
T = TypeVar("T")

_CONTROL = re.compile("[\x00-\x1f\x7f]")

# --- a function of operations.py as a method ---------------------------------------------------------


class CallingGroup:
    def __init__(self, driver: CallingDriver) -> None:
        self._driver = driver


class AwaitingGroup:
    def __init__(self, driver: AwaitingDriver) -> None:
        self._driver = driver


class Called(Generic[P, T]):
    """The answer, by calling."""

    def __init__(self, operation: Callable[P, Asking[T]]) -> None:
        self._operation = operation

    def __get__(self, group: CallingGroup, _: object = None) -> Callable[P, T]:
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return group._driver.ask(self._operation(*args, **kwargs))

        return update_wrapper(method, self._operation)


class Awaited(Generic[P, T]):
    """The answer, by awaiting."""

    def __init__(self, operation: Callable[P, Asking[T]]) -> None:
        self._operation = operation

    def __get__(self, group: AwaitingGroup, _: object = None) -> Callable[P, Coroutine[Any, Any, T]]:
        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await group._driver.ask(self._operation(*args, **kwargs))

        return update_wrapper(method, self._operation)


class Iterated(Generic[P, T]):
    """The items of all pages; the next page is asked for when the last one is used up."""

    def __init__(self, operation: Callable[P, ListedPages[T]]) -> None:
        self._operation = operation

    def __get__(self, group: CallingGroup, _: object = None) -> Callable[P, Iterator[T]]:
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return group._driver.items(self._operation(*args, **kwargs))

        return update_wrapper(method, self._operation)


class AsyncIterated(Generic[P, T]):
    """The same, for `async for`."""

    def __init__(self, operation: Callable[P, ListedPages[T]]) -> None:
        self._operation = operation

    def __get__(self, group: AwaitingGroup, _: object = None) -> Callable[P, AsyncIterator[T]]:
        def method(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            return group._driver.items(self._operation(*args, **kwargs))

        return update_wrapper(method, self._operation)


# --- the groups --------------------------------------------------------------------------------------


class RunsGroup(CallingGroup):
    start = Called(operations.start_run)
    get = Called(operations.get_run)
    list = Iterated(operations.list_runs)
    timeline = Iterated(operations.timeline)
    wait = Called(operations.wait_for_run)
    complete = Called(operations.complete_run)
    cancel = Called(operations.cancel_run)
    rerun = Called(operations.rerun)


class JobsGroup(CallingGroup):
    create = Called(operations.create_job)
    get = Called(operations.get_job)
    list = Iterated(operations.list_jobs)
    cancel = Called(operations.cancel_job)
    lease = Called(operations.lease_jobs)
    heartbeat = Called(operations.heartbeat_job)
    result = Called(operations.result_job)


class ApprovalsGroup(CallingGroup):
    list = Iterated(operations.list_approvals)
    get = Called(operations.get_approval)
    approve = Called(operations.approve)
    reject = Called(operations.reject)


class RecordsGroup(CallingGroup):
    list = Iterated(operations.list_records)
    get = Called(operations.get_record)
    resolve = Called(operations.resolve_record)
    amend = Called(operations.amend_record)


class DeadLettersGroup(CallingGroup):
    list = Iterated(operations.list_dead_letters)
    get = Called(operations.get_dead_letter)
    retry = Called(operations.retry_dead_letter)


class WorkflowsGroup(CallingGroup):
    put = Called(operations.put_workflow)
    get = Called(operations.get_workflow)
    list = Iterated(operations.list_workflows)
    delete = Called(operations.delete_workflow)


class TenantsGroup(CallingGroup):
    put = Called(operations.put_tenant)
    get = Called(operations.get_tenant)


class ToolsGroup(CallingGroup):
    get = Called(operations.get_tool)
    list = Iterated(operations.list_tools)


class WindowsGroup(CallingGroup):
    list = Iterated(operations.list_windows)


class AuditGroup(CallingGroup):
    list = Iterated(operations.list_events)
    duplicates = Called(operations.duplicates)


class AsyncRunsGroup(AwaitingGroup):
    start = Awaited(operations.start_run)
    get = Awaited(operations.get_run)
    list = AsyncIterated(operations.list_runs)
    timeline = AsyncIterated(operations.timeline)
    wait = Awaited(operations.wait_for_run)
    complete = Awaited(operations.complete_run)
    cancel = Awaited(operations.cancel_run)
    rerun = Awaited(operations.rerun)


class AsyncJobsGroup(AwaitingGroup):
    create = Awaited(operations.create_job)
    get = Awaited(operations.get_job)
    list = AsyncIterated(operations.list_jobs)
    cancel = Awaited(operations.cancel_job)
    lease = Awaited(operations.lease_jobs)
    heartbeat = Awaited(operations.heartbeat_job)
    result = Awaited(operations.result_job)


class AsyncApprovalsGroup(AwaitingGroup):
    list = AsyncIterated(operations.list_approvals)
    get = Awaited(operations.get_approval)
    approve = Awaited(operations.approve)
    reject = Awaited(operations.reject)


class AsyncRecordsGroup(AwaitingGroup):
    list = AsyncIterated(operations.list_records)
    get = Awaited(operations.get_record)
    resolve = Awaited(operations.resolve_record)
    amend = Awaited(operations.amend_record)


class AsyncDeadLettersGroup(AwaitingGroup):
    list = AsyncIterated(operations.list_dead_letters)
    get = Awaited(operations.get_dead_letter)
    retry = Awaited(operations.retry_dead_letter)


class AsyncWorkflowsGroup(AwaitingGroup):
    put = Awaited(operations.put_workflow)
    get = Awaited(operations.get_workflow)
    list = AsyncIterated(operations.list_workflows)
    delete = Awaited(operations.delete_workflow)


class AsyncTenantsGroup(AwaitingGroup):
    put = Awaited(operations.put_tenant)
    get = Awaited(operations.get_tenant)


class AsyncToolsGroup(AwaitingGroup):
    get = Awaited(operations.get_tool)
    list = AsyncIterated(operations.list_tools)


class AsyncWindowsGroup(AwaitingGroup):
    list = AsyncIterated(operations.list_windows)


class AsyncAuditGroup(AwaitingGroup):
    list = AsyncIterated(operations.list_events)
    duplicates = Awaited(operations.duplicates)


# --- the clients ------------------------------------------------------------------------------------


class Gateway:
    """A gateway, asked by calling. Threads may share it; `close` it, or use it as a context manager.

    All tries of one call together take at most `within`, each of them at most `try_for`; there are at most
    `tries` of them, if that is said. `tenant` and `principal` are believed by a `--dev` gateway alone.
    OpenError if there can be no gateway at `url`.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        tenant: str | None = None,
        principal: str | None = None,
        within: Duration = "30s",
        try_for: Duration = "5s",
        tries: int | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        server = _server(url, api_key, tenant, principal)
        driver = self._driver = CallingDriver(server, _patience(url, within, try_for, tries, clock))
        self.runs = RunsGroup(driver)
        self.jobs = JobsGroup(driver)
        self.approvals = ApprovalsGroup(driver)
        self.records = RecordsGroup(driver)
        self.dead_letters = DeadLettersGroup(driver)
        self.workflows = WorkflowsGroup(driver)
        self.tenants = TenantsGroup(driver)
        self.tools = ToolsGroup(driver)
        self.windows = WindowsGroup(driver)
        self.audit = AuditGroup(driver)

    def close(self) -> None:
        """Its connections are closed."""
        self._driver.close()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncGateway:
    """A gateway, asked by awaiting, on one event loop; `aclose` it, or use it as a context manager.

    The same in all else. Whoever is cancelled has made the tries that it has made, and makes no more.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        tenant: str | None = None,
        principal: str | None = None,
        within: Duration = "30s",
        try_for: Duration = "5s",
        tries: int | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        server = _server(url, api_key, tenant, principal)
        driver = self._driver = AwaitingDriver(server, _patience(url, within, try_for, tries, clock))
        self.runs = AsyncRunsGroup(driver)
        self.jobs = AsyncJobsGroup(driver)
        self.approvals = AsyncApprovalsGroup(driver)
        self.records = AsyncRecordsGroup(driver)
        self.dead_letters = AsyncDeadLettersGroup(driver)
        self.workflows = AsyncWorkflowsGroup(driver)
        self.tenants = AsyncTenantsGroup(driver)
        self.tools = AsyncToolsGroup(driver)
        self.windows = AsyncWindowsGroup(driver)
        self.audit = AsyncAuditGroup(driver)

    async def aclose(self) -> None:
        """Its connections are closed."""
        await self._driver.aclose()

    async def __aenter__(self) -> AsyncGateway:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _patience(url: str, within: Duration, try_for: Duration, tries: int | None, clock: Clock) -> Patience:
    if tries is not None and tries < 1:
        raise ValueError(f"tries must be at least 1, not {tries!r}")
    within_s, try_for_s = microseconds(within, "within") / 1e6, microseconds(try_for, "try_for") / 1e6
    return Patience(clock, hide_password(url), within_s, try_for_s, tries)


def _server(url: str, api_key: str | None, tenant: str | None, principal: str | None) -> ServerAddress:
    """OpenError for what would fail with every request."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as wrong:
        raise _no_address(url, str(wrong)) from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _no_address(url, "it is no http:// or https:// address")
    if parsed.query or parsed.fragment:
        raise _no_address(url, "it goes on after its path")
    headers = {}
    credentials = (("X-API-Key", api_key or None), ("X-Tenant-ID", tenant), ("X-Principal-Id", principal))
    for name, value in credentials:
        if value is not None and _CONTROL.search(value):
            raise _no_address(url, f"{name} cannot be sent, for it contains control characters")
        if value is not None:
            headers[name] = value.encode()  # names of people are not all ASCII
    return ServerAddress(url.rstrip("/"), headers)


def _no_address(url: str, why: str) -> OpenError:
    return OpenError(
        f"{hide_password(str(url))!r} cannot be asked: {why}. Nothing was sent.",
        corrective_action="Name the address that `semel serve` prints.",
    )
