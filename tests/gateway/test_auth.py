"""Who gets in, as whom, and what they may do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from semel.flow.document_store import DocumentStore
from semel.flow.problems import Refused
from semel.gateway.auth import CACHED_S, ApiKeys, KeyAuthenticator, KeyRefused
from semel.gateway.incoming import Incoming
from semel.gateway.routes import ROUTES, Route
from semel.gateway.settings import GatewaySettings, HostRefused
from semel.stores.base import Store
from semel.stores.documents import Scan
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock
from tests.gateway.conftest import Serve, Served, define, refused, start_run


async def _nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}


def request(*headers: tuple[bytes, bytes]) -> Incoming:
    return Incoming({"method": "GET", "headers": list(headers), "query_string": b""}, _nothing)


class Keys:
    """Keys on a store whose clock stands still, and the authenticator that they open."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.keys = ApiKeys(DocumentStore(self.store))
        self.authenticator = KeyAuthenticator(self.keys, self.clock)

    def make(self, *roles: str, tenant: str = "acme") -> str:
        return asyncio.run(self.keys.create(tenant, "ann", roles or ("admin",)))[1]

    def enter(self, *headers: tuple[bytes, bytes]) -> Any:
        return asyncio.run(self.authenticator.caller(request(*headers)))

    def refuse(self, *headers: tuple[bytes, bytes]) -> None:
        with pytest.raises(Refused) as refusal:
            self.enter(*headers)
        assert refusal.value.code == "unauthenticated"


@pytest.fixture
def keys() -> Keys:
    return Keys()


def test_a_key_says_who_its_holder_is(keys: Keys) -> None:
    key = keys.make("worker", "auditor").encode()
    for header in [
        (b"x-api-key", key),
        (b"authorization", b"Bearer " + key),
        (b"authorization", b"bearer  " + key),
    ]:
        assert keys.enter(header) == ("acme", "ann", frozenset({"worker", "auditor"}))


def test_the_same_key_in_both_headers_is_one_and_two_keys_are_none(keys: Keys) -> None:
    key, other = keys.make().encode(), keys.make().encode()
    assert keys.enter((b"x-api-key", key), (b"authorization", b"Bearer " + key)).principal == "ann"
    keys.refuse((b"x-api-key", key), (b"authorization", b"Bearer " + other))


def test_what_is_no_key_of_this_store_is_refused(keys: Keys) -> None:
    key = keys.make()
    foreign = Keys().make()
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    for text in (
        wrong,
        key[:-1],
        key + "x",
        foreign,
        "semel_",
        "semel_x_y",
        "",
        "Bearer",
        "semel__",
        "ü" * 10,
    ):
        keys.refuse((b"x-api-key", text.encode()))
    keys.refuse()
    keys.refuse((b"authorization", b"Basic " + key.encode()))


def test_the_store_has_nothing_that_opens_the_door(keys: Keys) -> None:
    key = keys.make()
    secret = key.split("_", 2)[2]
    documents = keys.store.ask(Scan(".semel", "api-keys", 10)).documents
    assert len(documents) == 1
    assert secret.encode() not in b"".join(document.body for document in documents)
    assert len(secret) == 43  # 256 bits in base64url


def test_a_revoked_key_is_dead_once_the_cache_is_stale_and_never_later(keys: Keys) -> None:
    key = keys.make().encode()
    keys.enter((b"x-api-key", key))
    asyncio.run(keys.keys.revoke(key.decode().split("_")[1]))
    keys.clock.advance(f"{int(CACHED_S)}s")
    keys.refuse((b"x-api-key", key))


def test_a_new_key_works_at_once_even_if_its_id_was_tried_before(keys: Keys) -> None:
    keys.refuse((b"x-api-key", b"semel_" + b"0" * 16 + b"_guess"))
    assert keys.enter((b"x-api-key", keys.make().encode())).tenant == "acme"


def test_revoking_again_changes_nothing_and_an_unknown_key_cannot_be_revoked(keys: Keys) -> None:
    id_ = keys.make().split("_")[1]
    first = asyncio.run(keys.keys.revoke(id_))
    keys.clock.advance("1m")
    assert asyncio.run(keys.keys.revoke(id_)) == first
    with pytest.raises(KeyRefused):
        asyncio.run(keys.keys.revoke("0" * 16))


@pytest.mark.parametrize(
    ("tenant", "principal", "roles"),
    [
        (".semel", "ann", ("admin",)),
        ("", "ann", ("admin",)),
        ("acme", "", ("admin",)),
        ("acme", "a\nb", ("admin",)),
        ("acme", "ann", ()),
        ("acme", "ann", ("king",)),
    ],
)
def test_a_key_for_nobody_or_for_an_unknown_role_is_not_made(keys: Keys, tenant, principal, roles) -> None:
    with pytest.raises(KeyRefused):
        asyncio.run(keys.keys.create(tenant, principal, roles))
    assert asyncio.run(keys.keys.list()) == []


def test_keys_are_listed_newest_first_and_by_tenant(keys: Keys) -> None:
    for tenant in ("acme", "umbra", "acme"):
        keys.make(tenant=tenant)
        keys.clock.advance("1s")
    assert [key.tenant for key in asyncio.run(keys.keys.list())] == ["acme", "umbra", "acme"]
    assert len(asyncio.run(keys.keys.list("umbra"))) == 1


# --- over HTTP ------------------------------------------------------------------------------------


def test_without_a_credential_nobody_gets_in(serve: Serve, store: Store) -> None:
    served = serve(store)
    answer = served.client().get("/api/v1/runs")
    refused(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    refused(served.client(X_Tenant_ID="acme").get("/api/v1/runs"), 401, "unauthenticated")
    assert served.holder("auditor").get("/api/v1/runs").json() == {"items": [], "next_cursor": None}


def test_the_tenant_is_the_credentials_and_nobody_elses(serve: Serve) -> None:
    served = serve()
    client = served.holder("admin")
    assert client.get("/api/v1/runs", headers={"X-Tenant-ID": "acme"}).status_code == 200
    refused(client.get("/api/v1/runs", headers={"X-Tenant-ID": "umbra"}), 403, "tenant_mismatch")
    twice = [("X-Tenant-ID", "acme"), ("X-Tenant-ID", "umbra")]
    refused(client.get("/api/v1/runs", headers=twice), 403, "tenant_mismatch")
    limits = {"max_concurrent_runs": 1}
    assert client.put("/api/v1/tenants/acme", json=limits).status_code == 200
    refused(client.put("/api/v1/tenants/umbra", json=limits), 403, "tenant_mismatch")


def test_a_lease_is_the_keys_that_took_it(serve: Serve, store: Store) -> None:
    served = serve(store)
    submitter, owner = served.holder("submitter"), served.holder("worker", principal="w1")
    others = [served.holder(role, principal=f"not-{role}") for role in ("worker", "admin")]
    job_id = submitter.post("/api/v1/jobs", json={"topic": "t", "input": 1}).json()["job_id"]
    (lease,) = owner.post("/api/v1/leases", json={"topics": ["t"]}).json()["jobs"]
    end = {"fence": lease["fence"], "status": "succeeded", "result": "forged"}
    for other in others:
        refused(other.post(f"/api/v1/jobs/{job_id}/result", json=end), 409, "ownership_lost")
        beat = other.post(f"/api/v1/jobs/{job_id}/heartbeat", json={"fence": lease["fence"]})
        refused(beat, 409, "ownership_lost")
    # Another key of the same principal is the same worker.
    again = served.holder("worker", principal="w1")
    assert again.post(f"/api/v1/jobs/{job_id}/result", json={**end, "result": 1}).status_code == 200
    assert submitter.get(f"/api/v1/jobs/{job_id}").json()["result"] == 1


def test_what_one_tenant_has_another_does_not_find(serve: Serve, store: Store) -> None:
    served = serve(store)
    acme, umbra = served.holder("admin"), served.holder("admin", tenant="umbra")
    define(acme)
    run_id = start_run(acme, {"n": 1}, "order-1").json()["run_id"]
    job_id = acme.post("/api/v1/jobs", json={"topic": "t", "input": 1, "approval": True}).json()["job_id"]
    record_id = acme.get("/api/v1/records").json()["items"][0]["id"]
    for path, code in [
        (f"/api/v1/runs/{run_id}", "run_not_found"),
        (f"/api/v1/runs/{run_id}/timeline", "run_not_found"),
        (f"/api/v1/jobs/{job_id}", "job_not_found"),
        (f"/api/v1/approvals/{job_id}", "job_not_found"),
        (f"/api/v1/records/{record_id}", "record_not_found"),
        ("/api/v1/workflows/hello", "workflow_not_found"),
    ]:
        assert acme.get(path).status_code == 200
        refused(umbra.get(path), 404, code)
    for path in ("runs", "records", "approvals", "workflows"):
        assert umbra.get(f"/api/v1/{path}").json()["items"] == []
    refused(start_run(umbra, {"n": 1}, "order-1"), 404, "workflow_not_found")


# The interface's table, written down once more: a slip in the code does not move this.
MAY: dict[str, str] = {
    "start_run": "submitter admin",
    "complete_run": "submitter admin",
    "cancel_run": "submitter admin",
    "rerun_run": "submitter admin",
    "create_job": "submitter admin",
    "cancel_job": "submitter admin",
    "lease_jobs": "worker admin",
    "heartbeat_job": "worker admin",
    "result_job": "worker admin",
    "approve_job": "approver",
    "reject_job": "approver",
    "put_workflow": "admin",
    "delete_workflow": "admin",
    "put_tenant": "admin",
    "resolve_record": "admin",
    "amend_record": "admin",
    "retry_dead_letter": "admin",
}
# What not everyone may read.
MAY_READ = {"list_events": "auditor admin", "find_duplicates": "auditor admin"}
ALL_ROLES = ("submitter", "worker", "approver", "auditor", "admin")
PATH = {"workflow_id": "hello", "tenant": "acme", "run_id": "run_" + "0" * 32, "job_id": "job_" + "0" * 32,
        "record_id": "rec_" + "0" * 32, "tool_name": "nothing",
        "letter_id": "dead_" + "0" * 32}  # fmt: skip


@pytest.fixture(scope="module")
def holders() -> Any:
    """A gateway, and a client for each role."""
    from semel.gateway.server import embedded

    with embedded(GatewaySettings(url="memory://"), MemoryStore()) as (url, services):
        served = Served(url, services)
        with served.clients:
            yield {role: served.holder(role) for role in ALL_ROLES}


def test_the_table_names_every_route_that_changes_something() -> None:
    assert {route.name for route in ROUTES if route.method != "GET"} == set(MAY)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_each_route_serves_its_roles_and_no_other(holders: dict[str, httpx.Client], route: Route) -> None:
    allowed = (MAY | MAY_READ).get(route.name, " ".join(ALL_ROLES)).split()
    for role, client in holders.items():
        answer = client.request(route.method, route.path.format(**PATH), content=b"no json")
        if role in allowed:
            assert answer.status_code not in (401, 403)
        else:
            refused(answer, 403, "forbidden")


# --- --dev ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.org", ""])
def test_dev_is_for_this_machine_only(host: str) -> None:
    with pytest.raises(HostRefused):
        GatewaySettings(host=host, dev=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
def test_this_machine_has_several_names(host: str) -> None:
    assert GatewaySettings(host=host, dev=True).dev


def test_in_dev_the_headers_say_who(dev: httpx.Client) -> None:
    job = dev.post(
        "/api/v1/jobs", json={"topic": "t", "input": 1}, headers={b"X-Principal-Id": "zoë".encode()}
    ).json()
    assert job["submitted_by"] == "zoë"
    assert dev.post("/api/v1/jobs", json={"topic": "t", "input": 1}).json()["submitted_by"] == "dev"


@pytest.mark.parametrize(
    "headers",
    [{"X-Tenant-ID": ".semel"}, {"X-Tenant-ID": ""}, {"X-Principal-Id": ""}, {"X-Principal-Id": "x" * 129}],
)
def test_in_dev_a_name_that_nobody_can_have_is_refused(shared: dict[str, Served], headers) -> None:
    refused(shared["memory"].client().get("/api/v1/runs", headers=headers), 400, "request_invalid")


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "evil.example:8765"}, {"Host": "127.0.0.1.evil.example"},
     {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost.evil.example"}],
)  # fmt: skip
def test_in_dev_a_page_in_a_browser_is_not_this_machine(dev: httpx.Client, headers: dict[str, str]) -> None:
    refused(dev.get("/api/v1/runs", headers=headers), 403, "forbidden")


@pytest.mark.parametrize(
    "headers", [{"Host": "localhost:8765"}, {"Host": "[::1]:8765"}, {"Origin": "http://127.0.0.1:8765"}]
)
def test_in_dev_a_page_of_this_machine_is_served(dev: httpx.Client, headers: dict[str, str]) -> None:
    assert dev.get("/api/v1/runs", headers=headers).status_code == 200


# --- shares ---------------------------------------------------------------------------------------


def test_a_tenant_that_sends_too_much_is_told_when_to_come_back_and_others_are_served(serve: Serve) -> None:
    served = serve(tenant_rate_per_s=0.001, tenant_burst=3)
    loud, quiet = served.holder("auditor"), served.holder("auditor", tenant="umbra")
    assert [loud.get("/api/v1/runs").status_code for _ in range(3)] == [200, 200, 200]
    answer = loud.get("/api/v1/runs")
    refused(answer, 429, "too_many_requests")
    assert int(answer.headers["retry-after"]) > 1
    assert quiet.get("/api/v1/runs").status_code == 200
