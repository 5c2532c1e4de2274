"""The worker, at a store and at a gateway: handlers, results, failures, steps, leases, stopping."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

import semel
from semel.call.step import current_step
from semel.contract import handlers as marking
from semel.contract.handlers import Handler, handler
from semel.errors import ApprovalError, ContractError, OpenError, SemelError
from semel.flow.assembly import Flow, Policy
from semel.flow.bus.local import LocalBus
from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.flow.views import job_key
from semel.kernel.answers import JobJson
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from semel.worker import module as modules
from semel.worker import outcome, traces
from semel.worker.gateway_jobs import GatewayJobs
from semel.worker.job_source import Away, JobSource
from semel.worker.store_jobs import StoreJobs
from semel.worker.worker import Worker
from tests.faults.checks import PATIENCE_S
from tests.faults.checks import until as wait_until
from tests.gateway.conftest import Serve, define, refused
from tests.stores import BY_NAME

ANN = Caller("default", "ann")
SOURCES = ("store", "server")


async def _silence(*_: Any) -> None:
    await asyncio.sleep(0)


def flow_on(store: Store) -> Flow:
    return Flow(store, Policy(), send=_silence, wait=_silence)


class Told(NamedTuple):
    event: str
    facts: Mapping[str, Any]


class World:
    """A store with jobs, and workers that reach them by one kind of job source."""

    def __init__(self, store: Store, source: Callable[[str], JobSource]) -> None:
        self.store = store
        self.flow = flow_on(store)
        self.ledger = Ledger(store)
        self.told: list[Told] = []
        self._source = source

    def worker(self, functions: Mapping[str, Callable[..., Any]], name: str = "w1", **terms: Any) -> Worker:
        found = {topic: Handler(topic, function, frozenset()) for topic, function in functions.items()}
        found |= terms.pop("handlers", {})
        terms = {"lease_s": 60.0, "concurrency": 4, "grace_s": PATIENCE_S} | terms
        return Worker(self._source(name), self.ledger, found, worker_id=name, tell=self.tell, **terms)

    def tell(self, event: str, **facts: Any) -> None:
        self.told.append(Told(event, facts))

    def events(self) -> list[str]:
        return [each.event for each in self.told]

    async def create(self, topic: str = "email", input: Any = None, **terms: Any) -> str:
        answer = await self.flow.jobs.create(
            ANN, None, topic, input, terms.get("approval"), terms.get("labels")
        )
        return str(orjson.loads(answer.body)["job_id"])

    async def job(self, job_id: str) -> JobJson:
        return await self.flow.jobs.get("default", job_id)

    async def ended(self, job_id: str) -> JobJson:
        await until(self.has_status(job_id, "succeeded", "failed", "cancelled"), f"{job_id} has ended")
        return await self.job(job_id)

    def has_status(self, job_id: str, *statuses: str) -> Callable[[], Awaitable[bool]]:
        async def ask() -> bool:
            return (await self.job(job_id))["status"] in statuses

        return ask

    async def has_told(self, event: str) -> None:
        async def ask() -> bool:
            return event in self.events()

        await until(ask, f"{event} was told")


async def until(ask: Callable[[], Awaitable[Any]], what: str) -> None:
    give_up_at = SYSTEM.monotonic() + PATIENCE_S
    while not await ask():
        assert SYSTEM.monotonic() < give_up_at, f"waited in vain until {what}"
        await asyncio.sleep(0.01)


@pytest.fixture(params=SOURCES)
def world(request: pytest.FixtureRequest, tmp_path: Path, serve: Serve) -> Iterator[World]:
    store = BY_NAME["sqlite"].open(tmp_path, SYSTEM, True)
    if request.param == "store":
        world = World(store, lambda name: StoreJobs(store, LocalBus(SYSTEM), "default", name))
    else:
        served = serve(BY_NAME["sqlite"].open(tmp_path, SYSTEM, True), dev=True)
        world = World(store, lambda name: GatewayJobs(served.url, None, name, "default"))
    with world.ledger:
        yield world


def working(worker: Worker, scene: Callable[[], Awaitable[Any]]) -> Any:
    """What the scene gives while the worker runs; it has stopped in order afterwards."""

    async def play() -> Any:
        running = asyncio.ensure_future(worker.run())
        try:
            return await asyncio.wait_for(scene(), 2 * PATIENCE_S)
        finally:
            worker.stop()
            await asyncio.wait_for(running, 2 * PATIENCE_S)

    return asyncio.run(play())


# --- results --------------------------------------------------------------------------------------


def test_what_a_handler_returns_is_the_result(world: World) -> None:
    async def scene() -> tuple[Any, ...]:
        jobs = [await world.create("sync", {"n": 1}), await world.create("async", {"n": 2})]
        return tuple([(await world.ended(job))["result"] for job in jobs])

    async def double(job: semel.Job) -> Any:
        await asyncio.sleep(0)
        return {"doubled": job.input["n"] * 2}

    worker = world.worker({"sync": lambda job: {"doubled": job.input["n"] * 2}, "async": double})
    assert working(worker, scene) == ({"doubled": 2}, {"doubled": 4})


def test_a_handler_gets_its_job(world: World) -> None:
    seen: list[semel.Job] = []

    async def scene() -> str:
        job_id = await world.create("email", {"to": "ann"}, labels={"team": "red"})
        await world.ended(job_id)
        return job_id

    job_id = working(world.worker({"email": seen.append}), scene)
    (job,) = seen
    assert job == semel.Job(
        job_id, None, None, "email", {"to": "ann"}, {"team": "red"}, 1, job_key("default", job_id)
    )
    with pytest.raises(FrozenInstanceError):
        job.attempt = 2  # type: ignore[misc]


def test_rich_results_are_kept_as_json(world: World) -> None:
    @dataclass
    class Sent:
        at: str
        parts: tuple[int, ...]

    async def scene() -> Any:
        return (await world.ended(await world.create()))["result"]

    assert working(world.worker({"email": lambda _: Sent("noon", (1, 2))}), scene) == {
        "at": "noon",
        "parts": [1, 2],
    }


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (object(), "RESULT_UNSTORABLE"),
        (float("nan"), "RESULT_UNSTORABLE"),
        (2**70, "RESULT_UNSTORABLE"),
        ("\ud800", "RESULT_UNSTORABLE"),
        ("x" * (1 << 20), "RESULT_TOO_LARGE"),
    ],
    ids=["object", "nan", "huge number", "lone surrogate", "too large"],
)
def test_a_result_that_cannot_be_kept_is_a_failure_that_is_not_tried_again(value: Any, code: str) -> None:
    report = outcome.succeeded(value)
    assert report.error is not None
    assert (report.status, report.error["code"], report.error["retriable"]) == ("failed", code, False)


def test_a_result_that_is_too_deep_is_refused_before_it_is_sent() -> None:
    deep: Any = 0
    for _ in range(64):
        deep = [deep]
    assert outcome.succeeded(deep).status == "failed"
    assert outcome.succeeded(deep[0]).status == "succeeded"


def test_the_steps_of_a_run_follow_each_other_on_one_worker(world: World) -> None:
    async def scene() -> Any:
        steps = [{"id": "one", "topic": "a"}, {"id": "two", "topic": "b", "depends_on": ["one"]}]
        await world.flow.workflows.put("default", "w", {"steps": steps})
        started = await world.flow.runs.start(ANN, "w", "key", {"x": 1})
        run_id = orjson.loads(started.body)["run_id"]

        async def over() -> bool:
            return (await world.flow.runs.get("default", run_id))["status"] == "succeeded"

        await until(over, "the run has ended")
        return (await world.flow.runs.get("default", run_id))["result"]

    assert working(world.worker({"a": lambda _: 1, "b": lambda job: job.step_id}), scene) == {"two": "two"}


# --- failures -------------------------------------------------------------------------------------


class Stubborn(Exception):
    retriable = False
    code = "STUBBORN"


def test_a_failure_that_says_so_is_not_tried_again(world: World) -> None:
    def refuse(job: semel.Job) -> None:
        raise Stubborn("never")

    async def scene() -> JobJson:
        return await world.ended(await world.create())

    job = working(world.worker({"email": refuse}), scene)
    assert (job["status"], job["attempt"]) == ("failed", 1)
    assert job["error"] == {"code": "STUBBORN", "message": "never", "retriable": False}


def test_any_other_failure_is_tried_three_times(world: World) -> None:
    attempts: list[int] = []

    async def fail(job: semel.Job) -> None:
        attempts.append(job.attempt)
        raise LookupError("nobody there")

    async def scene() -> JobJson:
        return await world.ended(await world.create())

    job = working(world.worker({"email": fail}), scene)
    assert (job["status"], attempts) == ("failed", [1, 2, 3])
    assert job["error"] == {"code": "LookupError", "message": "nobody there", "retriable": True}
    assert world.events().count("job.retried") == 2


def test_a_second_attempt_may_succeed(world: World) -> None:
    def fail_once(job: semel.Job) -> int:
        if job.attempt == 1:
            raise TimeoutError
        return job.attempt

    async def scene() -> Any:
        return (await world.ended(await world.create()))["result"]

    assert working(world.worker({"email": fail_once}), scene) == 2


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_nothing_that_a_handler_raises_ends_the_worker(
    world: World, error: BaseException, asynchronous: bool
) -> None:
    def leave(job: semel.Job) -> str:
        if job.topic == "bad":
            raise error
        return "alive"

    async def aleave(job: semel.Job) -> str:
        return leave(job)

    async def scene() -> Any:
        bad = await world.create("bad")
        await world.has_told("job.started")
        good = (await world.ended(await world.create("good")))["result"]
        # Its first attempt is reported, not lost.
        await world.has_told("job.retried")
        return good, (await world.job(bad))["error"] is not None

    function = aleave if asynchronous else leave
    assert working(world.worker({"bad": function, "good": function}), scene) == ("alive", True)


def test_messages_of_errors_are_bounded_and_are_text() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    for error in (ValueError("x" * 5_000), ValueError("\ud800\0"), Unprintable()):
        told = outcome.failed(error).error
        assert told is not None
        assert len(told["message"]) <= 2_000
        orjson.dumps(told)


def test_an_answer_of_a_tools_own_is_not_tried_again_and_is_told_without_secrets(world: World) -> None:
    class CardDeclined(Exception):
        pass

    @semel.tool_contract(secret=("pin",), raises=(CardDeclined,))
    def pay(pin: str) -> int:
        raise CardDeclined(f"pin {pin}")

    def handle(job: semel.Job) -> Any:
        pay("geheim-4711")

    async def scene() -> Any:
        return await world.ended(await world.create())

    ended = working(world.worker({"email": handle}), scene)
    assert (ended["status"], ended["attempt"], ended["error"]["code"]) == ("failed", 1, "CardDeclined")
    assert ended["error"]["message"].startswith("CardDeclined: pin ***")


def test_a_code_that_is_no_text_is_not_taken_for_one() -> None:
    error = OSError("gone")
    error.code = 404  # type: ignore[attr-defined]
    told = outcome.failed(error).error
    assert told is not None
    assert told["code"] == "OSError"


def fail_deep_inside(secret: str) -> None:
    raise OSError(f"canary {secret}")


def test_a_traceback_has_files_lines_and_functions_and_nothing_else() -> None:
    try:
        fail_deep_inside("canary-local")
    except OSError as error:
        report = outcome.failed(error)
    assert report.error is not None
    outer, inner = report.error["traceback"].splitlines()
    line = fail_deep_inside.__code__.co_firstlineno + 1
    assert inner == f"{__file__}:{line} fail_deep_inside"
    assert outer.endswith("test_a_traceback_has_files_lines_and_functions_and_nothing_else")
    assert "canary" not in report.error["traceback"]


def test_a_failed_job_is_logged_with_its_traceback_and_what_led_to_it(world: World) -> None:
    def handle(job: semel.Job) -> Any:
        try:
            fail_deep_inside("")
        except OSError as first:
            raise Stubborn from first

    async def scene() -> None:
        await world.ended(await world.create())

    working(world.worker({"email": handle}), scene)
    (failed,) = [each.facts for each in world.told if each.event == "job.failed"]
    frames = [line.rpartition(" ")[2] for line in failed["traceback"]]
    assert [frame.rpartition(".")[2] for frame in frames] == ["handle", "fail_deep_inside", "to", "handle"]
    assert "semel/worker" not in str(failed["traceback"])


def test_a_traceback_is_bounded_and_keeps_its_innermost_frames() -> None:
    def sink(depth: int) -> None:
        if depth:
            sink(depth - 1)
        fail_deep_inside("")

    error: BaseException | None = None
    for _ in range(50):
        try:
            try:
                sink(200)
            except OSError as again:
                raise again from error
        except OSError as raised:
            error = raised
    assert error is not None
    text = traces.trace(error)
    assert len(text.encode()) <= 16 * 1024
    assert text.endswith("fail_deep_inside")


def test_only_those_who_may_read_a_traceback_are_shown_it(serve: Serve) -> None:
    served = serve()
    submitter, worker = served.holder("submitter"), served.holder("worker")
    define(submitter_admin := served.holder("admin"), "w", {"id": "a", "topic": "t"})
    run_id = submitter.post("/api/v1/workflows/w/runs", json={}).json()["run_id"]
    for retriable in (True, False):
        (lease,) = worker.post("/api/v1/leases", json={"topics": ["t"]}).json()["jobs"]
        error = {"code": "X", "message": "m", "retriable": retriable, "traceback": "shop.py:7 canary"}
        told = {"fence": lease["fence"], "status": "failed", "error": error}
        path = f"/api/v1/jobs/{lease['job_id']}"
        too_long = told | {"error": error | {"traceback": "é" * 8_193}}
        refused(worker.post(f"{path}/result", json=too_long), 400, "request_invalid")
        answer = worker.post(f"{path}/result", json=told)
        assert (answer.status_code, "canary" in answer.text) == (200, False)
    for role, shown in (("submitter", False), ("worker", False), ("approver", False), ("auditor", True)):
        assert ("canary" in served.holder(role).get(path).text) == shown, role
    assert submitter_admin.get(path).json()["error"] == error
    for place in (f"/api/v1/runs/{run_id}", f"/api/v1/runs/{run_id}/timeline"):
        assert "canary" not in submitter_admin.get(place).text


def test_no_log_line_has_an_input_result_key_or_message(world: World) -> None:
    def fail(job: semel.Job) -> None:
        raise Stubborn("canary-message")

    async def scene() -> None:
        await world.ended(await world.create("bad", "canary-input"))
        good = await world.create("good", "canary-input", labels={"a": "canary-label"})
        await world.ended(good)
        world.tell("key", key=str(job_key("default", good)))

    working(world.worker({"bad": fail, "good": lambda _: "canary-result"}), scene)
    key = next(each.facts["key"] for each in world.told if each.event == "key")
    logged = str([each for each in world.told if each.event != "key"])
    assert "canary" not in logged
    assert key not in logged


# --- steps and contracts --------------------------------------------------------------------------


def test_a_handler_runs_in_a_step_of_its_job_that_is_the_same_on_every_attempt(world: World) -> None:
    steps: list[Any] = []

    def look(job: semel.Job) -> None:
        step = current_step()
        assert step is not None
        steps.append(step.carry())
        if job.attempt == 1:
            raise TimeoutError

    async def scene() -> None:
        await world.ended(await world.create())
        await world.ended(await world.create())

    working(world.worker({"email": look}), scene)
    one, again, other, _ = steps
    assert one == again
    assert one != other


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_tool_has_one_effect_however_often_its_job_is_attempted(world: World, asynchronous: bool) -> None:
    paid: list[str] = []

    @semel.tool_contract(class_="write-non-idempotent", scopes={"pay"})
    def pay(amount: int, key: semel.Key = semel.filled) -> int:
        paid.append(key)
        return len(paid)

    def perform(job: semel.Job) -> int:
        receipt = pay(amount=5)
        if job.attempt < 3:
            raise TimeoutError
        return receipt

    async def aperform(job: semel.Job) -> int:
        return await asyncio.to_thread(perform, job)

    async def scene() -> Any:
        return (await world.ended(await world.create()))["result"]

    granted = Handler("email", aperform if asynchronous else perform, frozenset({"pay"}))
    assert working(world.worker({}, handlers={"email": granted}), scene) == 1
    assert len(paid) == 1


def test_a_job_waits_for_an_approval_without_using_up_attempts_or_hands(world: World) -> None:
    paid: list[int] = []

    @semel.tool_contract(class_="irreversible", approval="required")
    def wire(amount: int) -> int:
        paid.append(amount)
        return amount

    async def scene() -> tuple[Any, ...]:
        job_id = await world.create("wire", 7)
        await world.has_told("job.waiting")
        # The only hand is free for others meanwhile.
        await world.ended(await world.create("quick"))
        (request,) = world.ledger.approvals.list("waiting")
        world.ledger.approvals.approve(request.job_id, by="ben")
        job = await world.ended(job_id)
        return job["status"], job["attempt"], job["result"], list(paid)

    functions = {"wire": lambda job: wire(amount=job.input), "quick": lambda _: None}
    assert working(world.worker(functions, concurrency=1), scene) == ("succeeded", 1, 7, [7])


def test_who_submitted_a_job_does_not_decide_on_a_tool_call_in_it(world: World) -> None:
    @semel.tool_contract(class_="irreversible", approval="required")
    def wire(amount: int) -> int:
        return amount

    async def scene() -> str:
        await world.create("wire", 7)
        await world.has_told("job.waiting")
        (request,) = world.ledger.approvals.list("waiting")
        with pytest.raises(ApprovalError) as refused:
            world.ledger.approvals.approve(request.job_id, by=ANN.principal)
        return refused.value.code

    assert (
        working(world.worker({"wire": lambda job: wire(amount=job.input)}), scene) == "self_approval_denied"
    )


def test_a_rejected_tool_call_fails_its_job_at_once(world: World) -> None:
    @semel.tool_contract(class_="irreversible", approval="required")
    def wire(amount: int) -> int:
        raise AssertionError("it must not run")

    async def scene() -> tuple[Any, ...]:
        job_id = await world.create("wire", 7)
        await world.has_told("job.waiting")
        (request,) = world.ledger.approvals.list("waiting")
        world.ledger.approvals.reject(request.job_id, by="ben")
        job = await world.ended(job_id)
        return job["status"], job["attempt"], job["error"]["code"]

    worker = world.worker({"wire": lambda job: wire(amount=job.input)})
    assert working(worker, scene) == ("failed", 1, "APPROVAL_REJECTED")


def test_a_worker_that_stops_hands_back_what_waits_for_a_person(world: World) -> None:
    @semel.tool_contract(class_="irreversible", approval="required")
    def wire(amount: int) -> int:
        return amount

    functions = {"wire": lambda job: wire(amount=job.input)}

    async def first() -> str:
        job_id = await world.create("wire", 7)
        await world.has_told("job.waiting")
        return job_id

    job_id = working(world.worker(functions, "w1", lease_s=3_600.0), first)
    assert "job.handed_back" in world.events()
    (request,) = world.ledger.approvals.list("waiting")
    world.ledger.approvals.approve(request.job_id, by="ben")

    async def second() -> Any:
        job = await world.ended(job_id)
        return job["result"], job["attempt"]

    assert working(world.worker(functions, "w2"), second) == (7, 1)


# --- leases ---------------------------------------------------------------------------------------


def test_a_heartbeat_keeps_the_job_of_a_handler_that_blocks(world: World) -> None:
    """The handler blocks its thread, and the handlers' loop, for several leases."""
    attempts: list[int] = []
    released = threading.Event()

    async def block(job: semel.Job) -> str:
        attempts.append(job.attempt)
        released.wait(PATIENCE_S)
        return "done"

    async def scene() -> Any:
        job_id = await world.create()
        await world.has_told("job.started")
        first = await lease_of(world, job_id)
        for _ in range(3):  # renewed three times: longer than one lease lasts

            async def renewed(before: int = first) -> bool:
                return await lease_of(world, job_id) > before

            await until(renewed, "the lease is renewed")
            first = await lease_of(world, job_id)
        released.set()
        return (await world.ended(job_id))["result"]

    assert working(world.worker({"email": block}, lease_s=0.6), scene) == "done"
    assert attempts == [1]


async def lease_of(world: World, job_id: str) -> int:
    document = await world.flow.jobs.document("default", job_id)
    return int(orjson.loads(document.body)["lease_until_us"] or 0)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_result_of_a_job_that_was_cancelled_meanwhile_is_dropped(
    world: World, asynchronous: bool
) -> None:
    released = threading.Event()
    cancelled: list[bool] = []

    def wait(job: semel.Job) -> str:
        released.wait(PATIENCE_S)
        return "too late"

    async def await_(job: semel.Job) -> str:
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return "too late"

    async def scene() -> JobJson:
        await world.flow.workflows.put("default", "w", {"steps": [{"id": "one", "topic": "email"}]})
        run_id = orjson.loads((await world.flow.runs.start(ANN, "w", None, {})).body)["run_id"]
        await world.has_told("job.started")
        await world.flow.runs.cancel(ANN, run_id)
        await world.has_told("job.lost")
        released.set()
        job_id = world.told[-1].facts["job_id"]
        return await world.job(job_id)

    function = await_ if asynchronous else wait
    job = working(world.worker({"email": function}, lease_s=0.6), scene)
    assert (job["status"], job["result"]) == ("cancelled", None)
    assert cancelled == ([True] if asynchronous else [])


def test_no_more_handlers_run_at_once_than_it_was_told(world: World) -> None:
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def count(job: semel.Job) -> None:
        with lock:
            running.append(1)
            most.append(len(running))
        threading.Event().wait(0.01)
        with lock:
            running.pop()

    async def scene() -> None:
        for job_id in [await world.create() for _ in range(12)]:
            await world.ended(job_id)

    working(world.worker({"email": count}, concurrency=2), scene)
    assert (len(most), max(most)) == (12, 2)


# --- stopping -------------------------------------------------------------------------------------


def test_a_stop_lets_running_jobs_end_and_takes_no_new_ones(world: World) -> None:
    async def scene() -> tuple[str, str, int]:
        released = threading.Event()
        worker = world.worker({"email": lambda _: released.wait(PATIENCE_S)}, concurrency=1)
        running = asyncio.ensure_future(worker.run())
        first = await world.create()
        await world.has_told("job.started")
        second = await world.create()
        worker.stop()
        released.set()
        left = await asyncio.wait_for(running, PATIENCE_S)
        return (await world.job(first))["status"], (await world.job(second))["status"], left

    assert asyncio.run(scene()) == ("succeeded", "queued", 0)


def test_a_stop_does_not_wait_longer_than_its_grace(world: World) -> None:
    async def scene() -> tuple[int, str]:
        never = threading.Event()
        worker = world.worker({"email": lambda _: never.wait(PATIENCE_S)}, grace_s=0.05)
        running = asyncio.ensure_future(worker.run())
        job_id = await world.create()
        await world.has_told("job.started")
        worker.stop()
        left = await asyncio.wait_for(running, PATIENCE_S)
        never.set()
        return left, (await world.job(job_id))["status"]

    assert asyncio.run(scene()) == (1, "leased")


# --- the gateway as a worker sees it --------------------------------------------------------------


def test_a_server_that_is_not_there_is_told_at_the_start(world: World) -> None:
    async def scene() -> None:
        source = GatewayJobs("http://127.0.0.1:1", None, "w1", "default")
        await Worker(source, world.ledger, {}, worker_id="w1", tell=world.tell).run()

    with pytest.raises(Away):
        asyncio.run(scene())


@pytest.mark.parametrize(("roles", "code"), [((), "unauthenticated"), (("auditor",), "forbidden")])
def test_a_worker_that_may_not_lease_ends_with_the_reason(
    serve: Serve, world: World, roles: tuple[str, ...], code: str
) -> None:
    served = serve()
    key = served.key(*roles, tenant="default") if roles else "semel_no_key"

    async def scene() -> None:
        source = GatewayJobs(served.url, key, "w1", "default")
        functions = {"email": Handler("email", print, frozenset())}
        await Worker(source, world.ledger, functions, worker_id="w1", tell=world.tell).run()

    with pytest.raises(SemelError) as refused:
        asyncio.run(scene())
    assert refused.value.code == code


def test_a_worker_with_a_key_works_for_the_keys_tenant(serve: Serve, world: World) -> None:
    served = serve()
    submitter, key = served.holder("submitter"), served.key("worker")

    async def scene() -> None:
        created = submitter.post("/api/v1/jobs", json={"topic": "email", "input": 1}).json()
        source = GatewayJobs(served.url, key, "w1", "acme")
        functions = {"email": Handler("email", lambda job: job.input + 1, frozenset())}
        ledger = Ledger(world.store, tenant="acme")
        worker = Worker(source, ledger, functions, worker_id="w1", tell=world.tell)
        running = asyncio.ensure_future(worker.run())
        await world.has_told("job.succeeded")
        worker.stop()
        await running
        job = submitter.get(f"/api/v1/jobs/{created['job_id']}").json()
        assert (job["status"], job["result"]) == ("succeeded", 2)

    asyncio.run(scene())


def test_jobs_of_one_tenant_are_not_worked_on_with_the_records_of_another(serve: Serve, world: World) -> None:
    served = serve()
    submitter, source = (
        served.holder("submitter"),
        GatewayJobs(served.url, served.key("worker"), "w1", "acme"),
    )
    created = submitter.post("/api/v1/jobs", json={"topic": "email", "input": 1}).json()
    functions = {"email": Handler("email", print, frozenset())}
    worker = Worker(source, world.ledger, functions, worker_id="w1", tell=world.tell)
    with pytest.raises(OpenError, match="Nothing was leased"):
        asyncio.run(worker.run())
    assert submitter.get(f"/api/v1/jobs/{created['job_id']}").json()["status"] == "queued"


def test_a_question_in_another_store_than_the_gateways_names_who_submitted_the_job(
    serve: Serve, tmp_path: Path
) -> None:
    served = serve()
    submitter = served.holder("submitter", principal="ann")
    world = World(BY_NAME["sqlite"].open(tmp_path, SYSTEM, True), lambda _: source)
    source = GatewayJobs(served.url, served.key("worker", principal="robot"), "w1", "acme")

    @semel.tool_contract(class_="irreversible", approval="required")
    def wire(amount: int) -> int:
        return amount

    async def scene() -> str:
        submitter.post("/api/v1/jobs", json={"topic": "wire", "input": 7})
        await world.has_told("job.waiting")
        (request,) = world.ledger.approvals.list("waiting")
        return request.submitted_by

    with Ledger(world.store, tenant="acme") as world.ledger:
        worker = world.worker({"wire": lambda job: wire(amount=job.input)})
        assert working(worker, scene) == "ann"


class Flaky:
    """A job source that often does not answer, after or before it did what it was asked."""

    def __init__(self, inner: JobSource) -> None:
        self._inner = inner
        self._turn = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("report", "lease"):
            return found

        async def ask(*words: Any) -> Any:
            self._turn += 1
            if self._turn % 3 == 1:
                raise Away
            answer = await found(*words)
            if self._turn % 3 == 2 and name == "report":
                raise Away  # the answer was lost on its way
            return answer

        return ask


def test_a_result_is_reported_until_it_is_taken_and_counts_once(world: World) -> None:
    async def scene() -> list[str]:
        jobs = [await world.create() for _ in range(3)]
        return [(await world.ended(job))["status"] for job in jobs]

    inner = world._source
    world._source = lambda name: Flaky(inner(name))
    assert working(world.worker({"email": lambda _: None}), scene) == ["succeeded"] * 3
    assert "worker.away" in world.events()


def test_a_result_that_a_gateway_refuses_fails_the_job_and_says_so(world: World) -> None:
    class Refusing(Flaky):
        def __getattr__(self, name: str) -> Any:
            found = getattr(self._inner, name)
            if name != "report":
                return found

            async def report(leased: Any, told: Any) -> None:
                if told.error is None:
                    raise Refused("request_invalid", "not like this")
                await found(leased, told)

            return report

    async def scene() -> Any:
        return (await world.ended(await world.create()))["error"]

    inner = world._source
    world._source = lambda name: Refusing(inner(name))
    error = working(world.worker({"email": lambda _: None}), scene)
    assert (error["code"], error["retriable"]) == ("RESULT_REFUSED", False)
    assert "not like this" in error["message"]


# --- marking and finding handlers -----------------------------------------------------------------


@pytest.fixture
def nothing_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "_marked", {})
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("nothing_marked")
def test_a_marked_function_stays_as_it_is() -> None:
    def send(job: semel.Job) -> str:
        return job.topic

    assert semel.handler("email", scopes="mail")(send) is send
    assert marking.marked()["email"].scopes == {"mail"}


@pytest.mark.usefixtures("nothing_marked")
def test_two_functions_for_one_topic_are_refused() -> None:
    handler("email")(lambda job: 1)
    with pytest.raises(ContractError, match="has a handler already"):
        handler("email")(print)


def _generator(job: semel.Job) -> Iterator[int]:
    yield 1


@pytest.mark.usefixtures("nothing_marked")
@pytest.mark.parametrize("function", [lambda: 1, lambda one, two: 1, lambda *, job: 1, _generator])
def test_a_function_that_cannot_take_a_job_is_refused(function: Any) -> None:
    with pytest.raises(ContractError):
        handler("email")(function)


@pytest.mark.parametrize("topic", ["", " ", "a b", ".x", "x" * 129, None])
def test_a_topic_that_is_no_name_is_refused(topic: Any) -> None:
    with pytest.raises(ContractError, match="not a topic"):
        handler(topic)


HANDLERS = """
from __future__ import annotations
import semel
from beside import ANSWER

@semel.handler("email")
def send(job: semel.Job) -> int:
    return ANSWER
"""


@pytest.mark.usefixtures("nothing_marked")
@pytest.mark.parametrize("by", ["path", "name"])
def test_a_module_is_found_by_its_path_and_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    name = f"shop_{by}"
    (tmp_path / f"{name}.py").write_text(HANDLERS)
    (tmp_path / "beside.py").write_text("ANSWER = 42")
    monkeypatch.chdir(tmp_path)
    found = modules.load(name if by == "name" else str(tmp_path / f"{name}.py"))
    assert found["email"].function(None) == 42  # type: ignore[arg-type]
    del sys.modules[name], sys.modules["beside"]


@pytest.mark.usefixtures("nothing_marked")
def test_a_module_that_is_missing_or_marks_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty_one.py").write_text("")
    for module in ("no_such_module.at_all", str(tmp_path / "nowhere.py"), str(tmp_path / "empty_one.py")):
        with pytest.raises(modules.NoHandlers):
            modules.load(module)


@pytest.mark.usefixtures("nothing_marked")
def test_what_a_module_itself_misses_is_shown_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "missing_one.py").write_text("import no_such_module_either")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_either"):
        modules.load(str(tmp_path / "missing_one.py"))


def test_importing_semel_brings_no_server_client_or_bus() -> None:
    heavy = ["starlette", "uvicorn", "httpx", "nats", "prometheus_client", "jsonschema_rs", "rich", "click"]
    text = f"import sys, semel; print([name for name in {heavy!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


# --- the command ----------------------------------------------------------------------------------

SHOP = """
import pathlib, semel, sys, time

@semel.handler("quick")
def quick(job):
    return job.input

@semel.handler("slow")
def slow(job):
    pathlib.Path(job.input).write_text("begun")
    while True:
        time.sleep(0.01)
        if pathlib.Path(job.input).read_text() == "end":
            return "ended"
"""


class Command:
    """`semel worker` as a process."""

    def __init__(self, folder: Path, *words: str) -> None:
        (folder / "shop.py").write_text(SHOP)
        self.url = f"sqlite:///{folder / 'semel.db'}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "semel", "worker", str(folder / "shop.py"), "--url", self.url, *words],
            cwd=folder,
            env={**os.environ, "COLUMNS": "200"},
            stderr=subprocess.PIPE,
            text=True,
        )

    def hear(self, event: str) -> dict[str, Any]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            said: dict[str, Any] = json.loads(line)
            if said["event"] == event:
                return said
        raise AssertionError(f"it ended without saying {event}")

    def end(self) -> int:
        code = self.process.wait(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("import semel\n\nimport no_such_module", "line 3, in <module>\n    import no_such_module\n"),
        ("def refund(:", "line 1\n    def refund(:\n"),
    ],
)
@pytest.mark.parametrize("by", ["path", "name"])
def test_a_module_that_cannot_be_imported_is_shown_from_its_own_first_line(
    tmp_path: Path, text: str, shown: str, by: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "semel", "worker", "broken" if by == "name" else "broken.py"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert shown in done.stderr
    assert "cannot be imported" in done.stderr
    assert "No job was leased." in done.stderr
    assert "click" not in done.stderr
    assert done.stderr.count('  File "') == 1
    assert not (tmp_path / "semel.db").exists()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*words: str) -> Command:
        started.append(Command(tmp_path, *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.end()


def create(url: str, topic: str, input: Any) -> str:
    async def play() -> str:
        answer = await flow_on(ledger.store).jobs.create(ANN, None, topic, input, None, None)
        return str(orjson.loads(answer.body)["job_id"])

    with semel.open(url) as ledger:
        return asyncio.run(play())


def read(url: str, job_id: str) -> JobJson:
    with semel.open(url) as ledger:
        return asyncio.run(flow_on(ledger.store).jobs.get("default", job_id))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_end_and_exits_with_nought(
    command: Callable[..., Command], tmp_path: Path, number: signal.Signals
) -> None:
    worker = command()
    worker.hear("worker.started")
    job_id = create(worker.url, "slow", str(tmp_path / "gate"))
    gate = tmp_path / "gate"
    wait_until(lambda: gate.exists() and gate.read_text() == "begun", "the handler has begun")
    worker.process.send_signal(number)
    worker.hear("worker.stopping")
    gate.write_text("end")
    worker.hear("worker.stopped")
    assert worker.end() == 0
    assert read(worker.url, job_id)["result"] == "ended"


def test_a_second_signal_ends_it_at_once(command: Callable[..., Command], tmp_path: Path) -> None:
    worker = command()
    worker.hear("worker.started")
    job_id = create(worker.url, "slow", str(tmp_path / "gate"))
    worker.hear("job.started")
    worker.process.send_signal(signal.SIGTERM)
    worker.hear("worker.stopping")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end() == 128 + signal.SIGTERM
    assert read(worker.url, job_id)["status"] == "leased"


def test_a_grace_that_is_over_exits_with_one(command: Callable[..., Command], tmp_path: Path) -> None:
    worker = command("--grace", "10ms")
    worker.hear("worker.started")
    create(worker.url, "slow", str(tmp_path / "gate"))
    worker.hear("job.started")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.hear("worker.stopped")["left"] == 1
    assert worker.end() == 1


def test_only_the_topics_that_were_named_are_worked_on(command: Callable[..., Command]) -> None:
    worker = command("--topics", "quick")
    assert worker.hear("worker.started")["topics"] == ["quick"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--topics", "nonsense"), 2),
        (("--lease", "nonsense"), 2),
        (("--server", "http://127.0.0.1:1"), 4),
        (("--bus", "kafka://x"), 4),
    ],
)
def test_what_cannot_work_ends_with_the_exit_code_of_its_kind(
    command: Callable[..., Command], words: tuple[str, ...], code: int
) -> None:
    assert command(*words).end() == code
