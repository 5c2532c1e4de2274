"""A run starts once for its key and never over the limit: on every store, by both strategies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from semel.errors import StoreUnavailable
from semel.flow import indexes
from semel.flow.assembly import Flow
from semel.flow.lock import Lock, LockPolicy
from semel.flow.model import run_of
from semel.flow.problems import Refused
from semel.flow.values import Caller, JsonAnswer
from semel.questions import job_index
from semel.questions.job import job_of
from semel.questions.refusals import Refusal
from semel.stores.base import Query, Store
from semel.stores.documents import Commit, Count, Document
from semel.stores.index_names import KEYS
from semel.testing import WrappedStore
from tests.fake_clock import FakeClock
from tests.flows import ANN, BEN, World, index, played, told
from tests.patience import PATIENCE_S
from tests.stores import Kind

T = TypeVar("T")

LIMIT = 2
CALLERS = 10
# Few by default: a race that is lost once in a hundred rounds is for the gateway's longer suite to find.
ROUNDS = 4
RESERVED_S = 12.0  # wait and life of the lock together, as LockPolicy has them
# Of a crowd everybody gets the lock, however busy the machine is.
PATIENT = LockPolicy(wait_us=int(PATIENCE_S * 1_000_000))


@pytest.fixture(params=["atomic", "lock"])
def world(request: pytest.FixtureRequest, kind: Kind, tmp_path: Path) -> World:
    return World(kind, tmp_path, request.param)


async def define(flow: Flow, limit: int = LIMIT, tenant: str = "acme", **more: Any) -> None:
    """A workflow `w` that an outside engine executes, and so many slots."""
    await flow.workflows.put_tenant(tenant, limit)
    await flow.workflows.put(tenant, "w", {"steps": [], **more})


async def end(flow: Flow, run_id: str) -> None:
    await flow.runs.complete(ANN, run_id, "succeeded", None)


async def slots(flow: Flow, tenant: str = "acme") -> set[str]:
    return {document.id for document in await index(flow, indexes.SLOTS, tenant)}


async def keys(flow: Flow) -> list[Document]:
    return [document for name in KEYS for document in await index(flow, name)]


async def runs(flow: Flow, tenant: str = "acme") -> list[Document]:
    return await flow.document_store.newest(tenant, indexes.listed_runs(None, None), 10_000, None)


async def until_settled(flow: Flow, key: str, caller: Caller = ANN) -> dict[str, Any]:
    """What the key stands for, as a client learns it that asks again while it is on its way."""
    while True:
        word, said = await told(flow.runs.start(caller, "w", key, {}))
        if word in ("done", "replayed"):
            return said
        assert word == "idempotency_in_flight"
        await asyncio.sleep(0.005)


# --- never over the limit --------------------------------------------------------------------------------


@played
async def test_of_ten_callers_at_once_on_two_gateways_exactly_two_get_the_two_slots(world):
    one, other = world.flow(lock=PATIENT), world.flow(lock=PATIENT)
    await define(one)
    for _ in range(ROUNDS):
        attempts = (
            told((one, other)[number % 2].runs.start(ANN, "w", f"key-{number}", {}))
            for number in range(CALLERS)
        )
        results = await asyncio.gather(*attempts)
        words = Counter(word for word, _ in results)
        assert words == {"done": LIMIT, "max_concurrent_runs_reached": CALLERS - LIMIT}
        admitted = {said["run_id"] for word, said in results if word == "done"}
        assert await slots(one) == admitted
        for run_id in admitted:
            await end(one, run_id)
        # No key of this round may stand in the way of the next: those that were refused have left nothing.
        assert len(await keys(one)) == LIMIT
        for document in await keys(one):
            await one.document_store.commit("acme", {}, drop=(document.id,))


@played
async def test_callers_without_a_key_are_held_to_the_limit_too(world):
    one, other = world.flow(lock=PATIENT), world.flow(lock=PATIENT)
    await define(one)
    results = await asyncio.gather(
        *(told((one, other)[number % 2].runs.start(ANN, "w", None, {})) for number in range(CALLERS))
    )
    assert Counter(word for word, _ in results) == {"done": 2, "max_concurrent_runs_reached": 8}
    assert len(await slots(one)) == LIMIT


@played
async def test_a_refusal_names_what_is_full_and_keeps_nothing(world):
    flow = world.flow()
    await define(flow, limit=1)
    await flow.runs.start(ANN, "w", "first", {})
    word, details = await told(flow.runs.start(ANN, "w", "second", {}))
    assert details.pop("retry_after_s") > 0
    assert (word, details) == ("max_concurrent_runs_reached", {"current": 1, "limit": 1, "scope": "tenant"})
    assert await flow.keys.find("acme", "run", "second") is None
    assert len(await index(flow, job_index.OUTBOX)) == 1


@played
async def test_a_workflow_has_a_limit_of_its_own(world):
    flow = world.flow()
    await define(flow, limit=5, max_concurrent_runs=1)
    await flow.runs.start(ANN, "w", None, {})
    word, details = await told(flow.runs.start(ANN, "w", "k", {}))
    assert (word, details["scope"], details["limit"]) == ("max_concurrent_runs_reached", "workflow", 1)
    assert await flow.keys.find("acme", "run", "k") is None
    await flow.workflows.put("acme", "another", {"steps": []})
    assert (await told(flow.runs.start(ANN, "another", "k", {})))[0] == "done"


@played
async def test_a_limit_that_another_gateway_lowered_holds_at_once(world):
    one, other = world.flow(), world.flow()
    await define(one, limit=2)
    await one.runs.start(ANN, "w", None, {})
    await other.workflows.put_tenant("acme", 1)
    assert (await told(one.runs.start(ANN, "w", None, {})))[0] == "max_concurrent_runs_reached"


@played
async def test_a_rerun_needs_a_slot_like_any_run(world):
    flow = world.flow()
    await define(flow, limit=1)
    await flow.workflows.put("acme", "s", {"steps": [{"id": "a", "topic": "t"}]})
    run_id = orjson.loads((await flow.runs.start(ANN, "s", None, {})).body)["run_id"]
    assert (await told(flow.runs.rerun(ANN, run_id, "a", "again")))[0] == "run_not_ended"
    await flow.runs.cancel(ANN, run_id)
    _, filler = await told(flow.runs.start(ANN, "w", None, {}))
    assert (await told(flow.runs.rerun(ANN, run_id, "a", "again")))[0] == "max_concurrent_runs_reached"
    await end(flow, filler["run_id"])
    word, said = await told(flow.runs.rerun(ANN, run_id, "a", "again"))
    assert word == "done"
    assert await told(flow.runs.rerun(ANN, run_id, "a", "again")) == ("replayed", said)
    assert (await flow.runs.get("acme", said["run_id"]))["rerun_of"] == run_id


# --- one key, one run ------------------------------------------------------------------------------------


@played
async def test_twenty_callers_with_one_key_get_one_run(world):
    one, other = world.flow(lock=PATIENT), world.flow(lock=PATIENT)
    await define(one)
    for number in range(ROUNDS):
        key = f"key-{number}"
        answers = await asyncio.gather(*(until_settled((one, other)[n % 2], key) for n in range(20)))
        assert len({answer["run_id"] for answer in answers}) == 1
        assert await slots(one) == {answers[0]["run_id"]}
        await end(one, answers[0]["run_id"])
    assert len(await runs(one)) == ROUNDS


@played
async def test_a_replay_has_the_bytes_of_the_first_answer_whatever_happened_since(world):
    one, other = world.flow(), world.flow()
    await define(one)
    first = await one.runs.start(ANN, "w", "k", {"a": 1, "b": 2})
    await end(one, orjson.loads(first.body)["run_id"])
    again = await other.runs.start(ANN, "w", "k", {"b": 2, "a": 1})
    assert again == (first.body, True)


@played
async def test_the_same_key_with_another_payload_or_workflow_is_refused(world):
    flow = world.flow()
    await define(flow)
    await flow.workflows.put("acme", "another", {"steps": []})
    await flow.runs.start(ANN, "w", "k", {"amount": 1})
    for workflow, body in (("w", {"amount": 2}), ("w", {}), ("another", {"amount": 1})):
        assert await told(flow.runs.start(ANN, workflow, "k", body)) == ("idempotency_key_reused", {})
    assert len(await slots(flow)) == 1


@played
async def test_the_same_key_in_another_tenant_is_unrelated(world):
    flow = world.flow()
    await define(flow)
    await define(flow, tenant="globex")
    _, ours = await told(flow.runs.start(ANN, "w", "k", {}))
    word, theirs = await told(flow.runs.start(Caller("globex", "gus"), "w", "k", {"other": True}))
    assert word == "done"
    assert ours["run_id"] != theirs["run_id"]
    with pytest.raises(Refused, match="no such run"):
        await flow.runs.get("globex", ours["run_id"])


@played
async def test_run_job_and_rerun_keys_are_of_separate_scopes(world):
    flow = world.flow()
    await define(flow)
    assert (await told(flow.runs.start(ANN, "w", "k", {})))[0] == "done"
    assert (await told(flow.jobs.create(ANN, "k", "t", {}, None, {})))[0] == "done"
    assert len(await keys(flow)) == 2


@played
async def test_after_a_refusal_the_same_key_works_once_a_slot_is_free(world):
    flow = world.flow()
    await define(flow, limit=1)
    _, blocker = await told(flow.runs.start(ANN, "w", None, {}))
    assert (await told(flow.runs.start(ANN, "w", "k", {})))[0] == "max_concurrent_runs_reached"
    await end(flow, blocker["run_id"])
    word, said = await told(flow.runs.start(ANN, "w", "k", {}))
    assert word == "done"
    record = await flow.keys.find("acme", "run", "k")
    assert record is not None
    assert (record["run_id"], record["state"]) == (said["run_id"], "done")


@played
async def test_a_refused_request_leaves_its_key_to_another_payload(world):
    flow = world.flow()
    await define(flow, input_schema={"type": "object", "required": ["amount"]})
    assert (await told(flow.runs.start(ANN, "none", "k", {})))[0] == "workflow_not_found"
    assert (await told(flow.runs.start(ANN, "w", "k", {})))[0] == "input_invalid"
    assert await keys(flow) == []
    assert (await told(flow.runs.start(ANN, "w", "k", {"amount": 1})))[0] == "done"


@played
async def test_a_replay_needs_neither_slot_nor_lock_nor_workflow_nor_a_valid_input(world):
    flow, other = world.flow(lock=LockPolicy(wait_us=1_000)), world.flow()
    await define(flow, limit=1)
    first = await flow.runs.start(ANN, "w", "k", {"amount": 1})
    await Lock(other.document_store, LockPolicy()).take("acme")
    replay = (first.body, True)
    assert await flow.runs.start(ANN, "w", "k", {"amount": 1}) == replay
    await other.workflows.put("acme", "w", {"steps": [], "input_schema": {"required": ["reason"]}})
    assert await flow.runs.start(ANN, "w", "k", {"amount": 1}) == replay
    await other.workflows.delete("acme", "w")
    assert await flow.runs.start(ANN, "w", "k", {"amount": 1}) == replay
    # Reuse is judged before the workflow too.
    assert (await told(flow.runs.start(ANN, "w", "k", {"amount": 2})))[0] == "idempotency_key_reused"
    assert (await told(flow.runs.start(ANN, "w", "other", {"amount": 2})))[0] == "workflow_not_found"


@played
async def test_a_rerun_replays_after_the_run_it_came_from_is_forgotten(world):
    clock = FakeClock()
    flow = world.flow(clock, kept_us=100_000_000)
    await define(flow)
    await flow.workflows.put("acme", "s", {"steps": [{"id": "a", "topic": "t"}]})
    _, run = await told(flow.runs.start(ANN, "s", None, {}))
    await flow.runs.cancel(ANN, run["run_id"])
    clock.advance(90)
    first = await flow.runs.rerun(ANN, run["run_id"], "a", "again")
    clock.advance(20)
    await flow.upkeep.run_once()
    assert (await told(flow.runs.rerun(ANN, run["run_id"], "a", None)))[0] == "run_not_found"
    assert await flow.runs.rerun(ANN, run["run_id"], "a", "again") == (first.body, True)


@played
async def test_what_a_rerun_keeps_outlives_the_run_it_came_from(world):
    clock = FakeClock()
    flow = world.flow(clock, kept_us=100_000_000)
    await define(flow)
    await flow.workflows.put("acme", "s", {"steps": [{"id": "a", "topic": "a"}, {"id": "b", "topic": "b"}]})
    _, run = await told(flow.runs.start(ANN, "s", None, {}))
    await work_off(flow, "a", "b")
    clock.advance(90)
    _, again = await told(flow.runs.rerun(ANN, run["run_id"], "b", None))
    await work_off(flow, "b")
    clock.advance(20)
    await flow.upkeep.run_once()
    assert (await told(flow.runs.get("acme", run["run_id"])))[0] == "run_not_found"
    shown = await flow.runs.get("acme", again["run_id"])
    assert (shown["status"], shown["result"]) == ("succeeded", {"a": "a done", "b": "b done"})


async def work_off(flow: Flow, *topics: str) -> None:
    """One job of each topic is leased and succeeds."""
    for topic in topics:
        (job,) = (await flow.jobs.lease(ANN, [topic], 1, 30, None))["jobs"]
        await flow.jobs.result(ANN, job["job_id"], job["fence"], "succeeded", f"{topic} done", None)


@played
async def test_after_its_window_a_key_is_new(world):
    clock = FakeClock()
    flow = world.flow(clock, kept_us=60_000_000)
    await define(flow)
    _, first = await told(flow.runs.start(ANN, "w", "k", {}))
    await end(flow, first["run_id"])
    clock.advance(59)
    assert (await told(flow.runs.start(ANN, "w", "k", {})))[0] == "replayed"
    clock.advance(1)
    word, second = await told(flow.runs.start(ANN, "w", "k", {"another": True}))
    assert (word, len({first["run_id"], second["run_id"]})) == ("done", 2)


async def is_kept(flow: Flow, clock: FakeClock, repeat: Callable[[], Awaitable[JsonAnswer]]) -> bool:
    """Whether the key is honoured over many windows of a minute, swept and unswept."""
    words = []
    for _ in range(3):
        clock.advance(100)
        words.append((await told(repeat()))[0])
        await flow.upkeep.run_once()
        words.append((await told(repeat()))[0])
    return set(words) == {"replayed"}


async def closes_a_minute_from_now(
    flow: Flow, clock: FakeClock, repeat: Callable[[], Awaitable[JsonAnswer]]
) -> bool:
    """Whether the key's window of a minute has just begun, swept or not; the last repeat is a new request."""
    clock.advance(59)
    await flow.upkeep.run_once()
    late = (await told(repeat()))[0]
    clock.advance(1)
    return (late, (await told(repeat()))[0]) == ("replayed", "done")


@played
async def test_while_its_run_lives_a_key_is_honoured_and_its_window_begins_with_the_end(world):
    clock = FakeClock()
    flow = world.flow(clock, kept_us=60_000_000)
    await define(flow)
    _, run = await told(flow.runs.start(ANN, "w", "k", {}))

    def repeat() -> Awaitable[JsonAnswer]:
        return flow.runs.start(ANN, "w", "k", {})

    assert await is_kept(flow, clock, repeat)
    assert len(await slots(flow)) == 1
    assert (await told(flow.runs.start(ANN, "w", "k", {"other": 1})))[0] == "idempotency_key_reused"
    await end(flow, run["run_id"])
    assert await closes_a_minute_from_now(flow, clock, repeat)


@played
async def test_while_its_job_lives_a_key_is_honoured_and_its_window_begins_with_the_end(world):
    clock = FakeClock()
    flow = world.flow(clock, kept_us=60_000_000)
    terms = {"expires_in": "1d", "reason": ""}
    _, job = await told(flow.jobs.create(ANN, "k", "t", {}, terms, {}))

    def repeat() -> Awaitable[JsonAnswer]:
        return flow.jobs.create(ANN, "k", "t", {}, terms, {})

    assert await is_kept(flow, clock, repeat)  # while it waits for a person
    await flow.approvals.decide(BEN, job["job_id"], "approved")
    assert await is_kept(flow, clock, repeat)  # while nobody leases it
    await work_off(flow, "t")
    assert await closes_a_minute_from_now(flow, clock, repeat)


@played
async def test_while_its_rerun_lives_a_key_is_honoured_though_the_first_run_is_forgotten(world):
    clock = FakeClock()
    flow = world.flow(clock, kept_us=60_000_000)
    await flow.workflows.put("acme", "s", {"steps": [{"id": "a", "topic": "t"}]})
    _, run = await told(flow.runs.start(ANN, "s", None, {}))
    await flow.runs.cancel(ANN, run["run_id"])
    _, again = await told(flow.runs.rerun(ANN, run["run_id"], "a", "k"))
    assert await is_kept(flow, clock, lambda: flow.runs.rerun(ANN, run["run_id"], "a", "k"))
    assert (await told(flow.runs.get("acme", run["run_id"])))[0] == "run_not_found"
    assert len(await slots(flow)) == 1
    await flow.runs.cancel(ANN, again["run_id"])
    clock.advance(60)
    await flow.upkeep.run_once()
    assert (await told(flow.runs.rerun(ANN, run["run_id"], "a", "k")))[0] == "run_not_found"
    assert await keys(flow) == []


@played
async def test_the_end_of_a_keys_window_is_shown_once_it_is_known(world):
    clock = FakeClock()
    flow = world.flow(clock, kept_us=60_000_000)
    await define(flow)
    _, run = await told(flow.runs.start(ANN, "w", "k", {}))
    shown = await flow.keys.find("acme", "run", "k")
    assert shown is not None
    assert shown["expires_at"] is None
    assert (await flow.keys.list("acme", "run", None, 10)).items == [shown]
    clock.advance(30)
    await end(flow, run["run_id"])
    shown = await flow.keys.find("acme", "run", "k")
    assert shown is not None
    ended = (await flow.runs.get("acme", run["run_id"]))["ended_at"]
    window = datetime.fromisoformat(shown["expires_at"]) - datetime.fromisoformat(ended)
    assert window == timedelta(minutes=1)
    assert (await flow.keys.list("acme", "run", None, 10)).items == [shown]


@played
async def test_twenty_callers_with_one_key_create_one_job(world):
    one, other = world.flow(), world.flow()
    answers = await asyncio.gather(
        *((one, other)[n % 2].jobs.create(ANN, "k", "t", {"n": 1}, None, {}) for n in range(20))
    )
    assert len({answer.body for answer in answers}) == 1
    assert [answer.replayed for answer in answers].count(False) == 1
    assert len(await index(one, job_index.ready("t"))) == 1


# --- lost replies ----------------------------------------------------------------------------------------


class LostReply(WrappedStore):
    """Carries a chosen commit out, lets `meanwhile` happen, and then loses the reply."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.chosen: Callable[[Commit], bool] = lambda _: False
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def aask(self, query: Query[T]) -> T:
        answer = await self.inner.aask(query)
        if isinstance(query, Commit) and self.meanwhile is not None and self.chosen(query):
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
            raise StoreUnavailable()
        return answer


def writes(kind: str) -> Callable[[Commit], bool]:
    return lambda commit: any(draft.id.startswith(kind) for draft in commit.put)


def lossy(world: World) -> tuple[Flow, LostReply]:
    flow = world.flow(wrap=LostReply)
    store = flow.document_store.store
    assert isinstance(store, LostReply)
    return flow, store


@pytest.mark.parametrize("key", ["k", None], ids=["with a key", "without"])
@played
async def test_a_run_whose_answer_was_lost_is_not_begun_again_after_it_has_gone_on(world, key):
    (flow, store), other = lossy(world), world.flow()
    await define(flow)
    await flow.workflows.put("acme", "s", {"steps": [{"id": "a", "topic": "t"}]})

    async def finish() -> None:
        (job,) = (await other.jobs.lease(ANN, ["t"], 1, 60, None))["jobs"]
        await other.jobs.result(ANN, job["job_id"], job["fence"], "succeeded", 7, None)

    store.chosen, store.meanwhile = writes("run_"), finish
    _, said = await told(flow.runs.start(ANN, "s", key, {}))
    assert (await flow.runs.get("acme", said["run_id"]))["status"] == "succeeded"
    assert len(await runs(flow)) == 1
    assert await index(flow, job_index.ready("t")) == []


@pytest.mark.parametrize("key", ["k", None], ids=["with a key", "without"])
@played
async def test_a_job_whose_answer_was_lost_stays_with_the_worker_that_leased_it(world, key):
    (flow, store), other = lossy(world), world.flow()
    store.chosen, store.meanwhile = writes("job_"), lambda: other.jobs.lease(ANN, ["t"], 1, 60, "w1")
    _, said = await told(flow.jobs.create(ANN, key, "t", {}, None, {}))
    job = await flow.jobs.get("acme", said["job_id"])
    assert (job["status"], job["attempt"]) == ("leased", 1)


# --- the lock --------------------------------------------------------------------------------------------


class Frozen(WrappedStore):
    """Stops before the first query that is `chosen`, until it is thawed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.chosen: Callable[[Query[Any]], bool] = lambda _: False
        self.reached = asyncio.Event()
        self.thawed = asyncio.Event()

    async def aask(self, query: Query[T]) -> T:
        if not self.reached.is_set() and self.chosen(query):
            self.reached.set()
            await self.thawed.wait()
        return await self.inner.aask(query)


def creates_run(query: Query[Any]) -> bool:
    return isinstance(query, Commit) and writes("run_")(query)


@played
async def test_a_holder_frozen_past_the_locks_life_does_not_over_admit(world):
    clock = FakeClock()
    frozen_flow, other = world.flow(clock, wrap=Frozen), world.flow(clock)
    store = frozen_flow.document_store.store
    assert isinstance(store, Frozen)
    await define(other, limit=1)
    store.chosen = creates_run
    frozen = asyncio.ensure_future(told(frozen_flow.runs.start(ANN, "w", "k", {})))
    await store.reached.wait()
    clock.advance(RESERVED_S)
    assert (await told(other.runs.start(ANN, "w", "other", {})))[0] == "done"
    store.thawed.set()
    word, _ = await frozen
    assert word in ("admission_gate_unavailable", "max_concurrent_runs_reached")
    assert len(await slots(other)) == 1
    # And its key is not poisoned by what happened.
    (run_id,) = await slots(other)
    await end(other, run_id)
    assert (await told(other.runs.start(ANN, "w", "k", {})))[0] == "done"


@played
async def test_a_frozen_caller_whose_key_went_to_another_is_told_no_lie(world):
    clock = FakeClock()
    frozen_flow, other = world.flow(clock, wrap=Frozen), world.flow(clock)
    store = frozen_flow.document_store.store
    assert isinstance(store, Frozen)
    await define(other, limit=5)
    store.chosen = creates_run
    frozen = asyncio.ensure_future(told(frozen_flow.runs.start(ANN, "w", "k", {})))
    await store.reached.wait()
    clock.advance(RESERVED_S)
    _, said = await told(other.runs.start(ANN, "w", "k", {}))
    store.thawed.set()
    # Atomic: it is the same request, and reads the run that exists. Behind the lock: refused, to ask again.
    assert await frozen in (("replayed", said), ("admission_gate_unavailable", {}))
    assert await told(frozen_flow.runs.start(ANN, "w", "k", {})) == ("replayed", said)
    assert len(await slots(other)) == 1


by_lock = pytest.mark.parametrize("world", ["lock"], indirect=True)


@by_lock
@played
async def test_what_creates_a_run_checks_the_lock_itself(world):
    clock = FakeClock()
    frozen_flow, other = world.flow(clock, wrap=Frozen), world.flow(clock)
    store = frozen_flow.document_store.store
    assert isinstance(store, Frozen)
    await define(other, limit=5)
    store.chosen = creates_run
    frozen = asyncio.ensure_future(told(frozen_flow.runs.start(ANN, "w", None, {})))
    await store.reached.wait()
    clock.advance(RESERVED_S)
    await Lock(other.document_store, LockPolicy()).take("acme")
    store.thawed.set()
    assert (await frozen)[0] == "admission_gate_unavailable"
    assert await slots(other) == set()


@by_lock
@played
async def test_no_gate_in_time_is_a_refusal_that_keeps_nothing(world):
    flow = world.flow(lock=LockPolicy(wait_us=20_000))
    await define(flow)
    lock = Lock(flow.document_store, LockPolicy())
    tag = await lock.take("acme")
    assert (await told(flow.runs.start(ANN, "w", "k", {})))[0] == "admission_gate_unavailable"
    assert (await keys(flow), world.failures) == ([], [])
    await lock.give_back("acme", tag)
    assert (await told(flow.runs.start(ANN, "w", "k", {})))[0] == "done"


@by_lock
@played
async def test_the_lock_of_one_tenant_does_not_stop_another(world):
    flow = world.flow(lock=LockPolicy(wait_us=20_000))
    await define(flow, tenant="globex")
    await Lock(flow.document_store, LockPolicy()).take("acme")
    assert (await told(flow.runs.start(Caller("globex", "gus"), "w", "k", {})))[0] == "done"


@by_lock
@played
async def test_only_the_token_that_holds_the_lock_gives_it_back(world):
    clock = FakeClock()
    flow = world.flow(clock)
    lock = Lock(flow.document_store, LockPolicy(wait_us=0))
    late = await lock.take("acme")
    clock.advance(10)
    present = await lock.take("acme")
    await lock.give_back("acme", late)
    with pytest.raises(Refused, match="lock"):
        await lock.take("acme")
    await lock.give_back("acme", present)
    await lock.take("acme")


@pytest.mark.parametrize("retry", ["jitter", "fixed"])
@by_lock
@played
async def test_waiters_get_the_lock_one_after_the_other(world, retry):
    flow = world.flow(lock=LockPolicy(retry=retry, wait_us=PATIENT.wait_us))
    await define(flow, limit=CALLERS)
    results = await asyncio.gather(*(told(flow.runs.start(ANN, "w", None, {})) for _ in range(CALLERS)))
    assert [word for word, _ in results] == ["done"] * CALLERS


# --- those who die, and those who clean up ---------------------------------------------------------------


class Dead(BaseException):
    """The process would be gone here."""


class Mortal(WrappedStore):
    """A process's view of the store: it dies when it reaches its `last` query, and does nothing after it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.left: int | None = None

    async def aask(self, query: Query[T]) -> T:
        if self.left is not None:
            if self.left <= 0:
                raise Dead
            self.left -= 1
        return await self.inner.aask(query)


# More than an admission asks by either strategy: the last ones are not met.
POINTS = range(1, 10)


@played
async def test_a_process_that_dies_in_the_middle_leaves_a_key_that_heals(world):
    clock = FakeClock()
    doomed, other = world.flow(clock, wrap=Mortal), world.flow(clock)
    store = doomed.document_store.store
    assert isinstance(store, Mortal)
    died = 0
    for point in POINTS:
        ann = Caller(f"tenant-{point}", "ann")
        await define(other, limit=1, tenant=ann.tenant)
        store.left = point - 1
        try:
            await doomed.runs.start(ann, "w", "k", {})
        except Dead:
            died += 1
        word, _ = await told(other.runs.start(ann, "w", "k", {}))
        assert word in ("done", "replayed", "idempotency_in_flight")
        clock.advance(RESERVED_S)
        healed, said = await told(other.runs.start(ann, "w", "k", {}))
        assert healed in ("done", "replayed")
        assert await slots(other, ann.tenant) == {said["run_id"]}
    assert 0 < died < len(POINTS)


class Failing(WrappedStore):
    """Refuses every query that is `chosen`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.chosen: Callable[[Query[Any]], bool] = lambda _: False

    async def aask(self, query: Query[T]) -> T:
        if self.chosen(query):
            raise StoreUnavailable()
        return await self.inner.aask(query)


def takes_back_a_key(query: Query[Any]) -> bool:
    return isinstance(query, Commit) and any(id_.startswith("rec_") for id_ in query.drop)


def counts(query: Query[Any]) -> bool:
    return isinstance(query, Count)


CONTEXTS = {
    "limit_reached": (None, "max_concurrent_runs_reached"),
    "count_failed": (counts, "STORE_UNAVAILABLE"),
    "create_failed": (creates_run, "STORE_UNAVAILABLE"),
    "request_refused": (None, "input_invalid"),
    "gate_unavailable": (None, "admission_gate_unavailable"),
}


@pytest.mark.parametrize("context", CONTEXTS)
@by_lock
@played
async def test_a_cleanup_that_fails_is_counted_by_context_and_done_later(world, context):
    flow = world.flow(wrap=Failing, lock=LockPolicy(wait_us=20_000))
    store = flow.document_store.store
    assert isinstance(store, Failing)
    await define(flow, limit=1, input_schema={"required": ["ok"]})
    body: dict[str, Any] = {"ok": 1}
    held = await obstruct(flow, context)
    if context == "request_refused":
        body = {}
    also, code = CONTEXTS[context]
    store.chosen = lambda query: takes_back_a_key(query) or (also is not None and also(query))
    word, _ = await told(flow.runs.start(ANN, "w", "k", body))
    assert (word, world.failures) == (code, [context])
    record = await flow.keys.find("acme", "run", "k")
    assert record is not None
    assert record["state"] == "pending"
    store.chosen = lambda _: False
    await asyncio.gather(*flow.admission._cleaning)
    assert await flow.keys.find("acme", "run", "k") is None
    await held()
    assert (await told(flow.runs.start(ANN, "w", "k", {"ok": 1})))[0] == "done"


async def obstruct(flow: Flow, context: str) -> Callable[[], Awaitable[None]]:
    """What makes an admission fail in this way; calling the result removes it."""
    if context == "limit_reached":
        _, run = await told(flow.runs.start(ANN, "w", None, {"ok": 1}))
        return lambda: end(flow, run["run_id"])
    if context == "gate_unavailable":
        lock = Lock(flow.document_store, LockPolicy())
        tag = await lock.take("acme")
        return lambda: lock.give_back("acme", tag)
    return lambda: asyncio.sleep(0)


class Gated(WrappedStore):
    """Lets each query through only when it is told to, and then carries it out whoever still waits for it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.late: list[asyncio.Future[Any]] = []
        self.close_at(0)

    def close_at(self, point: int) -> None:
        """The query of this number, counted from now, waits for `open`."""
        self.left = point
        self.stopped = asyncio.Event()
        self.open = asyncio.Event()

    async def aask(self, query: Query[T]) -> T:
        self.left -= 1
        if self.left != 0:
            return await self.inner.aask(query)
        self.stopped.set()
        carried_out = asyncio.ensure_future(self._later(query))
        self.late.append(carried_out)
        return await asyncio.shield(carried_out)

    async def _later(self, query: Query[T]) -> T:
        await self.open.wait()
        return await self.inner.aask(query)


@played
async def test_a_caller_that_goes_away_in_the_middle_leaves_nothing_poisoned(world):
    # On this clock no reservation lapses: what is left behind stays, and is found.
    clock = FakeClock()
    flow, other = world.flow(clock, wrap=Gated), world.flow(clock)
    store = flow.document_store.store
    assert isinstance(store, Gated)
    await flow.document_store.now_us()
    went_away = 0
    for point in POINTS:
        ann = Caller(f"tenant-{point}", "ann")
        await define(other, limit=1, tenant=ann.tenant)
        store.close_at(point)
        caller = asyncio.ensure_future(told(flow.runs.start(ann, "w", "k", {})))
        stopped = asyncio.ensure_future(store.stopped.wait())
        await asyncio.wait((caller, stopped), return_when=asyncio.FIRST_COMPLETED)
        went_away += caller.cancel()
        stopped.cancel()
        await asyncio.wait((caller, stopped))
        store.open.set()
        await asyncio.gather(*store.late)
        said = await until_settled(other, "k", ann)
        assert await slots(other, ann.tenant) == {said["run_id"]}
    assert 0 < went_away < len(POINTS)


# --- hostile names ---------------------------------------------------------------------------------------

HOSTILE = [
    "run_",
    "run_\x00",
    "run_" + "x" * 5_000,
    "run_/../lock",
    "lock",
    "tenant",
    "workflow/w",
    "",
    "run_ü{}%",
]


@pytest.mark.parametrize("world", ["atomic"], indirect=True)
@played
async def test_an_id_that_is_none_is_not_found_whatever_it_looks_like(world):
    flow = world.flow()
    await define(flow)
    for id_ in HOSTILE:
        for asked in (
            flow.runs.get("acme", id_),
            flow.runs.cancel(ANN, id_),
            flow.runs.rerun(ANN, id_, "a", "k"),
            flow.runs.timeline("acme", id_, None, 10),
            flow.jobs.get("acme", id_.replace("run_", "job_")),
            flow.approvals.decide(ANN, id_.replace("run_", "job_"), "approved"),
        ):
            with pytest.raises(Refusal, match=r"There is no such (run|job) in this tenant"):
                await asked
        assert await flow.keys.get("acme", id_) is None


@pytest.mark.parametrize("world", ["atomic"], indirect=True)
@played
async def test_names_with_every_allowed_sign_do_not_meet_on_a_index(world):
    flow = world.flow()
    await flow.workflows.put_tenant("acme", 10)
    names = ["status:running", "status.running", "a:b", "a", "w" * 128]
    for name in names:
        await flow.workflows.put("acme", name, {"steps": [{"id": name, "topic": name}]})
        await flow.runs.start(ANN, name, None, {})
    for name in names:
        page = await flow.runs.list("acme", name, "running", None, 10)
        assert [run["workflow_id"] for run in page.items] == [name]
        (job,) = (await flow.jobs.lease(ANN, [name], 10, 60, None))["jobs"]
        assert job["topic"] == name
    assert len((await flow.runs.list("acme", None, "running", None, 10)).items) == len(names)


@pytest.mark.parametrize("world", ["atomic"], indirect=True)
@played
async def test_what_was_admitted_is_written_whole(world):
    flow = world.flow()
    steps = [{"id": "a", "topic": "t"}, {"id": "b", "topic": "t", "approval": True}]
    await flow.workflows.put("acme", "s", {"steps": steps})
    _, said = await told(flow.runs.start(ANN, "s", "k", {"x": 1}))
    (document,) = await runs(flow)
    run = run_of(document.body)
    jobs = [job_of(each.body) for each in await index(flow, job_index.LIVE)]
    assert {job.job_id for job in jobs} == {step.job_id for step in run.steps}
    assert len((await flow.runs.timeline("acme", run.run_id, None, 100)).items) == run.seq
    assert len(await index(flow, job_index.OUTBOX)) == 3
    assert said["run_id"] == run.run_id
