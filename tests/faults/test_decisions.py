"""Decisions under fire: gateways killed around them, a bus that is away or repeats itself, callers elsewhere.

Whatever happens, one decision is on file, whoever retries is told of it, and it is announced under one id.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.flow.bus.consumer import Consumer
from semel.flow.bus.nats import NatsBus, NatsDelivery
from semel.flow.bus.subjects import message_in
from semel.flow.document_store import DocumentStore
from semel.flow.model import Message
from semel.questions import job_index
from semel.stores.base import Store
from semel.stores.documents import Count
from semel.stores.urls import open_store
from tests.faults.bank import Bank
from tests.faults.places import PLACES
from tests.gateway.conftest import new_tenant, refused
from tests.gateway.serving import (
    PATIENCE_S,
    ROOT,
    Gateway,
    Gateways,
    Park,
    quiet_environment,
    until,
)
from tests.nats_server import NatsServer, on_bus

STORES = [place.name for place in PLACES]

PAST = {"approve": "approved", "reject": "rejected"}
both = pytest.mark.parametrize("verb", PAST)


@pytest.fixture(scope="module")
def shared_nats() -> Iterator[NatsServer]:
    yield from _nats()


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """One that the test may kill, or change the stream of."""
    yield from _nats()


def _nats() -> Iterator[NatsServer]:
    server = NatsServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


# --- asking and deciding --------------------------------------------------------------------------------


def person(gateway: Gateway, tenant: str, name: str) -> httpx.Client:
    return gateway.client(X_Tenant_ID=tenant, X_Principal_Id=name)


def ask(client: httpx.Client) -> str:
    answer = client.post("/api/v1/jobs", json={"topic": "pay", "input": {"amount": 5}, "approval": True})
    assert answer.status_code == 200, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


def decide(client: httpx.Client, job_id: str, verb: str = "approve") -> httpx.Response:
    return client.post(f"/api/v1/approvals/{job_id}/{verb}", json={"reason": "checked", "revision": 1})


def lose(client: httpx.Client, job_id: str, verb: str) -> httpx.Response | None:
    """The decision that the gateway dies over; its answer if there was one."""
    try:
        return decide(client, job_id, verb)
    except httpx.TransportError:
        return None


def check_decided(answer: httpx.Response, verb: str, by: str, *, again: bool) -> dict[str, Any]:
    past, said = PAST[verb], answer.json()
    assert answer.status_code == 200, answer.text
    assert said["status"] == (f"already_{past}" if again else past)
    assert said[f"{past}_by"] == by
    assert answer.headers.get("idempotent-replayed") == ("true" if again else None)
    told: dict[str, Any] = {**said, "status": f"already_{past}"}
    return told


# --- what left, and what is left ------------------------------------------------------------------------


def until_all_is_sent(store_url: str, tenant: str) -> None:
    """The tenant's outbox is empty: whatever was to be published was taken by the bus."""
    with closing(open_store(store_url)) as store:
        until(lambda: store.ask(Count(tenant, job_index.OUTBOX)) == 0, "the outbox is empty")


async def kept(bus: NatsBus) -> list[Message]:
    """All that the broker keeps, in order."""
    stream, name = bus.link().stream, bus.settings.stream
    state = (await stream.stream_info(name)).state
    found = []
    for number in range(state.first_seq, state.last_seq + 1):
        raw = await stream.get_msg(name, number)
        message = message_in(name, raw.subject or "", raw.data or b"")
        assert message is not None
        found.append(message)
    return found


async def decisions(bus: NatsBus) -> list[Message]:
    return [each for each in await kept(bus) if each.type.startswith("approval.")]


def announced(nats: NatsServer, tenant: str) -> list[tuple[str, str]]:
    """Ids and types of the decisions of this tenant that the broker keeps."""
    messages: list[Message] = on_bus(nats.url(), decisions)
    return [(each.id, each.type) for each in messages if each.tenant == tenant]


def handled(nats: NatsServer, store_url: str, tenant: str) -> list[str]:
    """What a consumer of decisions handles of this tenant."""
    found: list[str] = []

    async def scene(bus: NatsBus) -> None:
        working = consumer(bus, store, tenant, found)
        for _ in await decisions(bus):
            assert await working.run_once(PATIENCE_S)

    with closing(open_store(store_url)) as store:
        on_bus(nats.url(), scene)
    return found


def consumer(bus: NatsBus, store: Store, tenant: str, found: list[str]) -> Consumer:
    async def handle(message: Message) -> None:
        if message.tenant == tenant:
            found.append(message.id)

    return Consumer(bus, DocumentStore(store), f"mailer-{tenant}", handle, about="approval")


# --- killed around the commit ---------------------------------------------------------------------------

POINTS = ("on request", "before decide", "after decide", "before answer", "within answer", "after answer")

# From these points on the decision is on file.
DECIDED = POINTS[2:]


@pytest.mark.parametrize(
    ("point", "store", "verb"),
    [
        (point, store, verb)
        for point in POINTS
        for store in STORES
        for verb in PAST
        if not (point == "on request" and verb == "reject")
    ],
)
def test_a_decision_whose_gateway_is_killed_is_taken_once_and_announced_once(
    point: str, store: str, verb: str, park: Park, begin: Gateways, shared_nats: NatsServer
) -> None:
    bus = f"--bus={shared_nats.url()}"
    doomed = begin(park.store(store), bus, fate=(point, "KILL"))
    survivor, tenant = park.one(store, bus), new_tenant()
    job_id = ask(person(survivor, tenant, "ann"))
    lost = lose(person(doomed, tenant, "ben"), job_id, verb)
    assert doomed.wait() == -signal.SIGKILL
    if lost is not None:
        assert point == "after answer"
        check_decided(lost, verb, "ben", again=False)

    # Ben's client does not know whether he was heard; it sends his decision once more, elsewhere.
    retried = decide(person(survivor, tenant, "ben"), job_id, verb)
    told = check_decided(retried, verb, "ben", again=point in DECIDED)
    cat = person(survivor, tenant, "cat")
    assert decide(cat, job_id, verb).json() == told
    other = "reject" if verb == "approve" else "approve"
    refused(decide(cat, job_id, other), 409, "approval_already_resolved")
    until_all_is_sent(park.store(store), tenant)
    assert announced(shared_nats, tenant) == [(f"approval:{job_id}", f"approval.{PAST[verb]}")]


@pytest.mark.parametrize("point", ["before publish", "after publish"])
def test_what_a_killed_gateway_did_not_publish_or_not_forget_is_handled_once(
    url: str, point: str, begin: Gateways, shared_nats: NatsServer
) -> None:
    """Nobody else is there while it dies: a gateway that lives would send the message in its place."""
    tenant, bus = new_tenant(), f"--bus={shared_nats.url()}"
    doomed = begin(url, bus, fate=(point, "KILL"))
    job_id = ask(person(doomed, tenant, "ann"))
    lose(person(doomed, tenant, "ben"), job_id, "approve")
    assert doomed.wait() == -signal.SIGKILL
    message = (f"approval:{job_id}", "approval.approved")
    assert announced(shared_nats, tenant) == ([message] if point == "after publish" else [])

    survivor = begin(url, bus)
    check_decided(decide(person(survivor, tenant, "ben"), job_id), "approve", "ben", again=True)
    until_all_is_sent(url, tenant)
    assert announced(shared_nats, tenant) == [message]
    assert handled(shared_nats, url, tenant) == [f"approval:{job_id}"]


# --- a bus that is away, or repeats itself --------------------------------------------------------------


def until_ready(gateway: Gateway, status: int) -> None:
    client = gateway.client()
    until(lambda: client.get("/readyz").status_code == status, f"/readyz is {status}")


@both
def test_a_decision_while_the_bus_is_away_is_announced_once_it_is_back(
    url: str, verb: str, begin: Gateways, own_nats: NatsServer
) -> None:
    gateway, tenant = begin(url, f"--bus={own_nats.url()}"), new_tenant()
    job_id = ask(person(gateway, tenant, "ann"))
    until_all_is_sent(url, tenant)
    own_nats.kill()
    until_ready(gateway, 503)
    told = check_decided(decide(person(gateway, tenant, "ben"), job_id, verb), verb, "ben", again=False)
    assert decide(person(gateway, tenant, "cat"), job_id, verb).json() == told
    leases = person(gateway, tenant, "wes").post(
        "/api/v1/leases", json={"topics": ["pay"], "max": 5, "lease_s": 60}
    )
    assert [job["job_id"] for job in leases.json()["jobs"]] == ([job_id] if verb == "approve" else [])
    with closing(open_store(url)) as store:
        assert store.ask(Count(tenant, job_index.OUTBOX)) == 1

    own_nats.start()
    until_all_is_sent(url, tenant)
    assert announced(own_nats, tenant) == [(f"approval:{job_id}", f"approval.{PAST[verb]}")]
    assert handled(own_nats, url, tenant) == [f"approval:{job_id}"]


def test_a_decision_is_sent_twice_to_a_frozen_bus_and_kept_once(
    tmp_path: Path, begin: Gateways, own_nats: NatsServer
) -> None:
    """What the gateway gave up on, because nobody acknowledged it, waits in the broker's own socket."""
    url, tenant = PLACES[0].url(tmp_path), new_tenant()
    gateway = begin(url, f"--bus={own_nats.url()}")
    job_id = ask(person(gateway, tenant, "ann"))
    until_all_is_sent(url, tenant)
    own_nats.freeze()
    try:
        check_decided(decide(person(gateway, tenant, "ben"), job_id), "approve", "ben", again=False)
        until_ready(gateway, 503)
    finally:
        own_nats.thaw()
    until_all_is_sent(url, tenant)
    assert announced(own_nats, tenant) == [(f"approval:{job_id}", "approval.approved")]


DELIVERIES = 10


def test_an_announcement_that_comes_ten_times_and_once_more_after_the_window_is_handled_once(
    url: str, begin: Gateways, own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, tenant = begin(url, f"--bus={own_nats.url()}"), new_tenant()
    job_id = ask(person(gateway, tenant, "ann"))
    check_decided(decide(person(gateway, tenant, "ben"), job_id), "approve", "ben", again=False)
    until_all_is_sent(url, tenant)
    assert gateway.stop() == 0
    found: list[str] = []

    async def within(bus: NatsBus) -> None:
        """Published ten times, the broker keeps one; it delivers that ten times."""
        (message,) = await decisions(bus)
        for _ in range(DELIVERIES - 1):
            await bus.publish(message)
        assert len(await decisions(bus)) == 1
        working = consumer(bus, store, tenant, found)
        for _ in range(DELIVERIES):
            assert await working.run_once(PATIENCE_S)
        assert not await working.run_once(0.1)

    async def after(bus: NatsBus) -> None:
        """The broker has forgotten the id: it keeps a second one."""
        (message,) = await decisions(bus)
        while len(await decisions(bus)) == 1:
            await bus.publish(message)
        working = consumer(bus, store, tenant, found)
        assert await working.run_once(PATIENCE_S)
        assert not await working.run_once(0.1)

    with closing(open_store(url)) as store:
        with monkeypatch.context() as fault:
            lose_acknowledgements(fault)
            on_bus(own_nats.url(), within)
        on_bus(own_nats.url(duplicates="100ms"), after)
    assert found == [f"approval:{job_id}"]


def lose_acknowledgements(fault: pytest.MonkeyPatch) -> None:
    """All but the last: the broker hears that the message is wanted again."""
    acknowledge = NatsDelivery.ack

    async def lose(self: NatsDelivery) -> None:
        await (self.again(0.0) if self.count < DELIVERIES else acknowledge(self))

    fault.setattr(NatsDelivery, "ack", lose)


# --- a tool's question, from another process ------------------------------------------------------------

# Calls one tool whenever it is told to, and says what came of it. As a module of `semel worker` it has a
# handler that does the same.
TILL = """
import json, os, sys
import semel
from tests.faults.bank import Bank

bank = Bank(os.environ["TILL_BANK"])

@semel.tool_contract(class_="irreversible", approval="required", ignore=("note",))
def wire(account: str, amount: int, note: str, key: semel.Key) -> int:
    bank.pay(key, semel.current_fence(), account, amount, note)
    return amount

@semel.handler("wire")
def wire_for_a_job(job):
    return wire(account="acc-1", amount=job.input["amount"], note="in a worker")

if __name__ == "__main__":
    with semel.open(os.environ["TILL_URL"], tenant=os.environ["TILL_TENANT"]) as ledger:
        for note in sys.stdin:
            with ledger.step(conversation="c-1", step="s-1", principal="bot"):
                try:
                    said = ["paid", wire(account="acc-1", amount=1_400, note=note.strip())]
                except semel.errors.SemelError as error:
                    said = [error.code, error.details.get("job_id")]
            print(json.dumps(said), flush=True)
"""


class Till:
    """Another process beside a bank: it pays when it may."""

    def __init__(self, url: str, tenant: str, folder: Path) -> None:
        self.bank = Bank(folder / "bank.jsonl")
        self.module = folder / "till.py"
        self.module.write_text(TILL)
        told = {"TILL_URL": url, "TILL_TENANT": tenant, "TILL_BANK": self.bank.path}
        self._environment = quiet_environment() | {"PYTHONPATH": str(ROOT), **told}
        self.url, self.tenant = url, tenant
        self._processes: list[subprocess.Popen[str]] = []

    def caller(self) -> Callable[[str], list[Any]]:
        """A process that calls the tool once for each note it is given: what it says of it."""
        process = self._begin([str(self.module)])

        def call(note: str) -> list[Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{note}\n")
            process.stdin.flush()
            said: list[Any] = json.loads(process.stdout.readline())
            return said

        return call

    def worker(self) -> None:
        words = ["worker", str(self.module), "--url", self.url, "--tenant", self.tenant]
        self._begin(["-m", "semel", *words])

    def _begin(self, words: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def clean_up(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def till(url: str, tmp_path: Path) -> Iterator[Till]:
    till = Till(url, new_tenant(), tmp_path)
    yield till
    till.clean_up()


def test_a_tool_in_another_process_runs_once_after_a_gateway_s_yes(
    url: str, till: Till, begin: Gateways
) -> None:
    gateway, call = begin(url), till.caller()
    ben = person(gateway, till.tenant, "ben")
    code, job_id = call("first")
    assert (code, call("again")) == ("APPROVAL_REQUIRED", ["APPROVAL_REQUIRED", job_id])
    (question,) = ben.get("/api/v1/approvals", params={"status": "waiting"}).json()["items"]
    assert (question["job_id"], question["topic"], question["submitted_by"]) == (job_id, "wire", "bot")
    assert question["input"] == {"account": "acc-1", "amount": 1_400, "note": "first"}
    refused(decide(person(gateway, till.tenant, "bot"), job_id), 403, "self_approval_denied")
    told = check_decided(decide(ben, job_id), "approve", "ben", again=False)
    assert till.bank.entries() == []

    assert call("after the yes") == ["paid", 1_400]
    assert call("once more") == ["paid", 1_400]
    assert till.caller()("in another process") == ["paid", 1_400]
    # With what the person saw, not with what the last caller said.
    assert [(entry.amount, entry.note) for entry in till.bank.entries()] == [(1_400, "first")]
    assert decide(ben, job_id).json() == told


def test_a_tool_in_another_process_never_runs_after_a_gateway_s_no(
    url: str, till: Till, begin: Gateways
) -> None:
    gateway, call = begin(url), till.caller()
    _, job_id = call("first")
    ben = person(gateway, till.tenant, "ben")
    check_decided(decide(ben, job_id, "reject"), "reject", "ben", again=False)
    for caller in (call, call, till.caller()):
        assert caller("after the no")[0] == "APPROVAL_REJECTED"
    refused(decide(ben, job_id), 409, "approval_already_resolved")
    assert till.bank.entries() == []


@both
def test_a_worker_s_job_goes_on_as_a_gateway_decides_on_its_tool(
    url: str, verb: str, till: Till, begin: Gateways
) -> None:
    gateway = begin(url)
    ann, ben = person(gateway, till.tenant, "ann"), person(gateway, till.tenant, "ben")
    made = ann.post("/api/v1/jobs", json={"topic": "wire", "input": {"amount": 7}})
    job = f"/api/v1/jobs/{made.json()['job_id']}"
    till.worker()

    def questions() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ben.get("/api/v1/approvals").json()["items"]
        return found

    until(questions, "the tool asks")
    (question,) = questions()
    assert (question["topic"], question["input"]["amount"], question["run_id"]) == ("wire", 7, None)
    assert till.bank.entries() == []
    check_decided(decide(ben, question["job_id"], verb), verb, "ben", again=False)
    until(lambda: ann.get(job).json()["ended_at"], "the worker's job ends")
    ended = ann.get(job).json()
    if verb == "approve":
        assert (ended["status"], ended["result"], ended["attempt"]) == ("succeeded", 7, 1)
    else:
        assert (ended["status"], ended["error"]["code"]) == ("failed", "APPROVAL_REJECTED")
    assert [entry.amount for entry in till.bank.entries()] == ([7] if verb == "approve" else [])
    check_decided(decide(ben, question["job_id"], verb), verb, "ben", again=True)
