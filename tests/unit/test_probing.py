"""Probes in the background: what is in doubt is settled although nobody calls."""

import asyncio
import itertools
import sys
import threading
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

import semel
from semel.audit.events import RESOLVED
from semel.errors import ContractError, OwnershipLost, ResultUnavailable, StoreCorrupt
from semel.kernel.clock import SYSTEM
from semel.kernel.record import State
from semel.ledger import probing
from semel.ledger.ledger import Ledger
from semel.ledger.probing import Prober, ProbeReport, contracts_in
from semel.stores.base import ListRecords, Query
from semel.stores.memory import MemoryStore
from semel.testing import Crash, FlakyStore, WrappedStore, crashing
from tests.patience import PATIENCE_S
from tests.tools import a_step, another_process, declared, events, keyed, state, the_record

NOTHING = ProbeReport(0, 0, 0)
SETTLED, CLEARED, UNDECIDED = ProbeReport(1, 0, 0), ProbeReport(0, 1, 0), ProbeReport(0, 0, 1)


class Downstream:
    """Every payment times out; what its probe was asked, and what it says."""

    def __init__(self, answer: Any = semel.CannotTell) -> None:
        self.answer = answer
        self.request: list[tuple[str, dict[str, Any]]] = []
        self.paid: list[str] = []

    def probe(self, key: semel.Key, **arguments: Any) -> Any:
        self.request.append((key, arguments))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def aprobe(self, key: semel.Key, **arguments: Any) -> Any:
        await asyncio.sleep(0)
        return self.probe(key, **arguments)

    def tool(self, *, probe: Any = None, **said: Any) -> Any:
        @declared(**{"name": "pay", "probe": probe or self.probe, "ignore": ("reason",), **said})
        def pay(to: str, reason: str = "") -> int:
            self.paid.append(to)
            raise TimeoutError

        return pay


def leave_in_doubt(ledger: Ledger, tool: Any, *to: str, step: str = "refund-1") -> None:
    with a_step(ledger, step):
        for each in to or ("a",):
            with pytest.raises(TimeoutError):
                tool(each, "first")


class Told(list[tuple[str, dict[str, Any]]]):
    """What a prober said."""

    def __call__(self, event: str, **facts: Any) -> None:
        self.append((event, facts))

    def names(self) -> list[str]:
        return [event for event, _ in self]


def once(prober: Prober) -> ProbeReport:
    return asyncio.run(prober.run_once())


@pytest.fixture(params=["def", "async def"])
def way_to_ask(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def a_probe(downstream: Downstream, way_to_ask: str) -> Any:
    return downstream.aprobe if way_to_ask == "async def" else downstream.probe


# --- what the probe says ----------------------------------------------------------------------------


def test_what_happened_is_settled_without_anybody_calling_and_replays(ledger, way_to_ask):
    downstream = Downstream(semel.Happened(7))
    pay = downstream.tool(probe=a_probe(downstream, way_to_ask))
    leave_in_doubt(ledger, pay)
    assert once(Prober(ledger, [pay.contract])) == SETTLED
    record = the_record(ledger)
    assert (record.state, record.by) == (State.DONE, "probe")
    assert downstream.request == [(record.request.at.key, {"to": "a", "reason": "first"})]
    with a_step(ledger):
        assert pay("a", "second") == 7
    assert (downstream.paid, len(downstream.request)) == (["a"], 1)


def test_what_did_not_happen_is_claimable_again_and_keeps_its_history(ledger, way_to_ask):
    downstream = Downstream(semel.DidNotHappen)
    pay = downstream.tool(probe=a_probe(downstream, way_to_ask))
    leave_in_doubt(ledger, pay)
    assert once(Prober(ledger, [pay.contract])) == CLEARED
    assert the_record(ledger).state is State.CLEARED
    leave_in_doubt(ledger, pay)
    assert (downstream.paid, the_record(ledger).attempts) == (["a", "a"], 2)


def test_what_the_probe_cannot_tell_is_left_alone(ledger, way_to_ask):
    downstream = Downstream(semel.CannotTell)
    pay = downstream.tool(probe=a_probe(downstream, way_to_ask))
    leave_in_doubt(ledger, pay)
    before = the_record(ledger)
    assert once(Prober(ledger, [pay.contract])) == UNDECIDED
    assert the_record(ledger) == before


@pytest.mark.parametrize(
    "raised", [ConnectionError("secret-canary"), SystemExit(3), asyncio.CancelledError()], ids=repr
)
def test_a_probe_that_raises_cannot_tell_and_its_words_go_nowhere(ledger, way_to_ask, raised, caplog):
    downstream = Downstream(raised)
    pay = downstream.tool(probe=a_probe(downstream, way_to_ask))
    leave_in_doubt(ledger, pay)
    assert once(Prober(ledger, [pay.contract])) == UNDECIDED
    assert state(ledger) == "in_doubt"
    [told] = caplog.messages
    assert f'"raised":"{type(raised).__name__}"' in told
    assert "canary" not in told
    assert "first" not in told


def test_an_answer_that_is_none_decides_nothing(ledger):
    downstream = Downstream(True)
    pay = downstream.tool()
    leave_in_doubt(ledger, pay)
    assert once(Prober(ledger, [pay.contract])) == UNDECIDED
    assert state(ledger) == "in_doubt"


def test_a_synchronous_probe_may_return_what_has_to_be_awaited(ledger):
    downstream = Downstream(semel.Happened(7))
    pay = downstream.tool(probe=lambda key, **others: downstream.aprobe(key, **others))
    leave_in_doubt(ledger, pay)
    assert once(Prober(ledger, [pay.contract])) == SETTLED


def test_a_result_that_the_probe_does_not_know_replays_as_unavailable(ledger):
    downstream = Downstream(semel.Happened())

    @declared(probe=downstream.probe)
    def pay(to: str) -> int:
        raise TimeoutError

    with a_step(ledger), pytest.raises(TimeoutError):
        pay("a")
    assert once(Prober(ledger, [pay.contract])) == SETTLED
    with a_step(ledger), pytest.raises(ResultUnavailable):
        pay("a")


def test_the_audit_names_the_probe_and_the_prober_tells_record_and_tool(ledger):
    downstream = Downstream(semel.Happened(7))
    pay, told = downstream.tool(), Told()
    leave_in_doubt(ledger, pay)
    once(Prober(ledger, [pay.contract], tell=told))
    assert [event.by for event in events(ledger) if event.kind == RESOLVED] == ["probe"]
    facts = {"tenant": "acme", "tool": "pay", "record_id": the_record(ledger).request.id}
    assert told == [("probe.settled", facts)]


# --- which records ----------------------------------------------------------------------------------


def test_a_record_whose_lease_lapsed_is_asked_about_swept_or_not(ledger, clock):
    downstream = Downstream(semel.Happened(7))

    @declared(probe=downstream.probe, lease="10s")
    def pay(to: str) -> int:
        return 1

    with a_step(crashing(ledger, "before settle")), pytest.raises(Crash):
        pay("a")
    prober = Prober(ledger, [pay.contract])
    assert once(prober) == NOTHING
    clock.advance("11s")
    assert once(prober) == SETTLED


@pytest.mark.parametrize("policy", ["probe", "park", "retry"])
def test_a_probe_is_asked_whatever_the_next_caller_would_do(ledger, policy):
    downstream = Downstream(semel.Happened(7))

    @keyed(probe=downstream.probe, on_unknown=policy)
    def pay(to: str, key: semel.Key) -> int:
        raise TimeoutError

    with a_step(ledger), pytest.raises(TimeoutError):
        pay("a")
    assert once(Prober(ledger, [pay.contract])) == SETTLED


def test_records_of_other_tools_versions_and_states_are_left_alone(ledger):
    downstream = Downstream(semel.Happened(7))
    pay = downstream.tool(version="2.0.0")
    others = [downstream.tool(name="refund"), downstream.tool(version="1.9.0"), declared()(unsure)]
    for number, tool in enumerate(others):
        leave_in_doubt(ledger, tool, step=f"step-{number}")
    with a_step(another_process(ledger), "done"):
        declared(name="pay", version="2.0.0")(lambda: None)()
    assert once(Prober(ledger, [pay.contract, others[2].contract])) == NOTHING
    leave_in_doubt(ledger, downstream.tool(version="2.7.1"))
    assert once(Prober(ledger, [pay.contract])) == SETTLED


def unsure(to: str, reason: str) -> int:
    raise TimeoutError


def test_every_record_is_found_however_many_there_are(ledger, monkeypatch):
    monkeypatch.setattr(probing, "_PAGE", 3)
    downstream = Downstream(semel.Happened(7))
    pay = downstream.tool()
    leave_in_doubt(ledger, pay, *map(str, range(10)))
    assert once(Prober(ledger, [pay.contract])) == ProbeReport(10, 0, 0)


def test_one_prober_serves_the_tenants_that_it_is_told(ledger):
    downstream = Downstream(semel.Happened(7))
    pay = downstream.tool()
    ledgers = {name: Ledger(ledger.store, tenant=name) for name in ("acme", "globex", "initech")}
    for each in ledgers.values():
        leave_in_doubt(each, pay)

    async def tenants() -> list[str]:
        await asyncio.sleep(0)
        return ["acme", "globex"]

    assert once(Prober(ledger, [pay.contract], tenants=tenants)) == ProbeReport(2, 0, 0)
    assert [state(each) for each in ledgers.values()] == ["done", "done", "in_doubt"]


# --- secrets ----------------------------------------------------------------------------------------


class Card(BaseModel):
    number: str
    cvc: str


def pay_by_token(to: str, token: str) -> int:
    raise TimeoutError


def pay_by_typed_token(to: str, token: SecretStr) -> int:
    raise TimeoutError


def pay_by_card(to: str, card: Card) -> int:
    raise TimeoutError


SECRETIVE = [
    (pay_by_token, ("token",), "a secret token", lambda key, to, token: semel.Happened(7)),
    (pay_by_typed_token, (), SecretStr("s"), lambda key, **others: semel.Happened(7)),
    (pay_by_card, ("card.cvc",), Card(number="1", cvc="2"), lambda key, to, **others: semel.Happened(7)),
]


@pytest.mark.parametrize(("function", "secret", "given", "probe"), SECRETIVE)
def test_a_probe_that_needs_secrets_is_left_alone_and_that_is_said_once(
    ledger, function, secret, given, probe
):
    pay, told = declared(secret=secret, probe=probe)(function), Told()
    with a_step(ledger), pytest.raises(TimeoutError):
        pay("a", given)
    prober = Prober(ledger, [pay.contract], tell=told)
    assert (once(prober), once(prober)) == (NOTHING, NOTHING)
    assert told.names() == ["probe.left_alone"]
    assert state(ledger) == "in_doubt"
    with a_step(ledger):
        assert pay("a", given) == 7  # a caller has the secrets


def test_a_probe_that_does_not_name_the_secret_arguments_is_asked_without_them(ledger):
    downstream = Downstream(semel.Happened(7))
    pay = declared(secret="token", probe=downstream.probe)(pay_by_token)
    with a_step(ledger), pytest.raises(TimeoutError):
        pay("a", "secret")
    assert once(Prober(ledger, [pay.contract])) == SETTLED
    assert downstream.request[0][1] == {"to": "a"}


def test_arguments_that_fit_the_tool_no_more_are_not_asked_about(ledger):
    downstream = Downstream(semel.DidNotHappen)
    leave_in_doubt(ledger, downstream.tool())

    @declared(name="pay", probe=lambda key, to: downstream.probe(key))
    def pay(to: int) -> int:
        return 1

    assert once(Prober(ledger, [pay.contract])) == UNDECIDED
    assert downstream.request == []
    assert state(ledger) == "in_doubt"


# --- who cannot tell is not hammered ----------------------------------------------------------------


def test_who_cannot_tell_is_asked_again_later_and_later_up_to_a_bound(clock):
    ledger, downstream = Ledger(MemoryStore(clock=clock)), Downstream(semel.CannotTell)
    pay, told = downstream.tool(), Told()
    leave_in_doubt(ledger, pay)
    prober = Prober(ledger, [pay.contract], tell=told)
    asked_at = []

    async def look_every_second_for_an_hour() -> None:
        for _ in range(3_600):
            if (await prober.run_once()).undecided:
                asked_at.append(clock.monotonic())
            clock.advance("1s")

    asyncio.run(look_every_second_for_an_hour())
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked_at)]
    # The fake clock's chance is a half, so a pause is three quarters of 5, 10, 20, … seconds, up to 600.
    assert pauses[:6] == [4, 8, 15, 30, 60, 120]
    assert pauses[7:] == [450] * len(pauses[7:])
    assert [facts["tries"] for _, facts in told] == list(range(1, len(asked_at) + 1))


def test_a_new_attempt_of_the_same_key_is_asked_about_at_once(ledger):
    downstream = Downstream(semel.CannotTell)
    pay = downstream.tool(on_unknown="rerun")
    prober = Prober(ledger, [pay.contract])
    for _ in range(2):
        leave_in_doubt(ledger, pay)
        assert (once(prober), once(prober)) == (UNDECIDED, NOTHING)


def test_what_is_no_longer_in_doubt_is_forgotten(ledger):
    downstream = Downstream(semel.CannotTell)
    pay = downstream.tool()
    leave_in_doubt(ledger, pay, "a", "b")
    prober = Prober(ledger, [pay.contract])
    once(prober)
    assert len(prober._undecided) == 2
    ledger.records.resolve(ledger.records.list()[0].request.id, "happened", by="ann")
    once(prober)
    assert len(prober._undecided) == 1


def test_more_undecided_records_than_can_be_remembered_wait_for_their_turn(ledger, clock, monkeypatch):
    monkeypatch.setattr(probing, "_UNDECIDED_MAX", 2)
    monkeypatch.setattr(probing, "_PAGE", 1)
    downstream = Downstream(semel.CannotTell)
    pay = downstream.tool()
    leave_in_doubt(ledger, pay, "a", "b", "c")
    prober = Prober(ledger, [pay.contract])
    assert once(prober) == ProbeReport(0, 0, 2)
    assert once(prober) == NOTHING
    clock.advance("5s")
    downstream.answer = semel.Happened(7)
    assert once(prober).settled + once(prober).settled == 3


# --- others at the same time ------------------------------------------------------------------------


def test_two_probers_at_once_settle_once(real):
    both_asked = threading.Barrier(2)

    def probe(key: semel.Key, **arguments: Any) -> Any:
        both_asked.wait(PATIENCE_S)
        return semel.Happened(threading.get_ident())

    pay = Downstream().tool(probe=probe)
    leave_in_doubt(real, pay)

    async def play() -> list[ProbeReport]:
        probers = [Prober(real, [pay.contract]) for _ in range(2)]
        return await asyncio.gather(*(prober.run_once() for prober in probers))

    assert sorted(asyncio.run(play()), key=lambda report: report.settled) == [NOTHING, SETTLED]
    assert [event.kind for event in events(real)].count(RESOLVED) == 1
    with a_step(real):
        assert pay("a", "second") == pay("a", "third")


def test_an_owner_that_comes_back_after_the_probe_cannot_overwrite_it(ledger, clock):
    downstream = Downstream(semel.Happened(7))

    @declared(probe=downstream.probe, lease="10s")
    def pay(to: str) -> int:
        clock.advance("11s")
        assert once(Prober(ledger, [pay.contract])) == SETTLED
        return 1

    with a_step(ledger), pytest.raises(OwnershipLost):
        pay("a")
    with a_step(ledger):
        assert pay("a") == 7


def test_an_owner_that_settles_while_the_probe_is_asked_is_not_overwritten(ledger, clock):
    prober: Prober

    def probe(key: semel.Key, **arguments: Any) -> Any:
        owner_may_settle.set()
        assert settled.wait(PATIENCE_S)
        return semel.DidNotHappen

    @declared(probe=probe, lease="10s")
    def pay(to: str) -> int:
        clock.advance("11s")
        asking.start()
        assert owner_may_settle.wait(PATIENCE_S)
        return 1

    owner_may_settle, settled, reports = threading.Event(), threading.Event(), []
    prober = Prober(ledger, [pay.contract])
    asking = threading.Thread(target=lambda: reports.append(once(prober)))
    with a_step(ledger):
        assert pay("a") == 1
        settled.set()
        asking.join(PATIENCE_S)
        assert (reports, pay("a")) == ([NOTHING], 1)


def test_no_more_probes_run_at_once_than_it_was_told(ledger):
    running, most = set[str](), [0]

    async def probe(key: semel.Key, **arguments: Any) -> Any:
        running.add(key)
        most.append(len(running))
        await asyncio.sleep(0)
        running.discard(key)
        return semel.Happened(7)

    pay = Downstream().tool(probe=probe)
    leave_in_doubt(ledger, pay, *map(str, range(8)))
    assert once(Prober(ledger, [pay.contract], concurrency=2)) == ProbeReport(8, 0, 0)
    assert max(most) == 2


# --- what goes wrong --------------------------------------------------------------------------------


def test_a_probe_that_does_not_end_cannot_tell_and_its_late_answer_is_nobodys(real, way_to_ask):
    let_go = threading.Event()

    async def ask_for_ever(key: semel.Key, **arguments: Any) -> Any:
        await asyncio.Event().wait()

    def ask_long(key: semel.Key, **arguments: Any) -> Any:
        let_go.wait(PATIENCE_S)
        return semel.DidNotHappen

    told = Told()
    pay = Downstream().tool(probe=ask_for_ever if way_to_ask == "async def" else ask_long)
    leave_in_doubt(real, pay)
    assert once(Prober(real, [pay.contract], limit_s=0.01, tell=told)) == UNDECIDED
    let_go.set()
    assert told[0][1]["raised"] == "TimeoutError"
    assert state(real) == "in_doubt"


def test_probes_that_hang_are_given_no_more_threads_and_others_go_on(real):
    let_go, begun = threading.Event(), []

    def hang(key: semel.Key, **arguments: Any) -> Any:
        begun.append(key)
        let_go.wait(PATIENCE_S)

    hanging = Downstream().tool(probe=hang)
    quick = Downstream(semel.Happened(7)).tool(name="quick")
    leave_in_doubt(real, hanging, *map(str, range(10)))
    leave_in_doubt(real, quick)
    prober = Prober(real, [hanging.contract, quick.contract], concurrency=1, limit_s=0.01)
    assert once(prober) == ProbeReport(1, 0, 10)
    assert len(begun) == 2
    let_go.set()


def test_a_resolution_that_the_store_does_not_take_is_tried_again_later(shaky, flaky, clock):
    downstream = Downstream(semel.Happened(7))
    pay = downstream.tool()
    leave_in_doubt(shaky, pay)
    flaky.refuse("resolve")
    prober = Prober(shaky, [pay.contract])
    assert once(prober) == UNDECIDED
    clock.advance("5s")
    assert once(prober) == SETTLED


def test_a_resolution_whose_reply_is_lost_counts(shaky, flaky):
    pay = Downstream(semel.Happened(7)).tool()
    leave_in_doubt(shaky, pay)
    flaky.lose_reply("resolve")
    prober = Prober(shaky, [pay.contract])
    assert (once(prober), once(prober)) == (UNDECIDED, NOTHING)
    with a_step(shaky):
        assert pay("a") == 7


class DamagedTenant(WrappedStore):
    async def aask(self, query: Query[Any]) -> Any:
        if isinstance(query, ListRecords) and query.tenant == "acme":
            raise StoreCorrupt
        return await super().aask(query)


def test_one_tenants_damage_is_not_the_others(clock):
    store = MemoryStore(clock=clock)
    pay, told = Downstream(semel.Happened(7)).tool(), Told()
    globex = Ledger(store, tenant="globex")
    leave_in_doubt(globex, pay)

    async def tenants() -> list[str]:
        await asyncio.sleep(0)
        return ["acme", "globex"]

    damaged = Ledger(DamagedTenant(store))
    assert once(Prober(damaged, [pay.contract], tenants=tenants, tell=told)) == SETTLED
    assert told[0] == ("probe.put_off", {"tenant": "acme", "code": "STORE_CORRUPT"})


# --- the loop ---------------------------------------------------------------------------------------


async def until(ask: Any, what: str) -> None:
    give_up_at = SYSTEM.monotonic() + PATIENCE_S
    while not ask():
        assert SYSTEM.monotonic() < give_up_at, f"waited in vain until {what}"
        await asyncio.sleep(0.001)


def test_it_goes_on_when_the_store_comes_back():
    ledger, pay, told = Ledger(MemoryStore()), Downstream(semel.Happened(7)).tool(), Told()
    leave_in_doubt(ledger, pay)
    store = FlakyStore(ledger.store)
    store.refuse("listrecords", times=3)
    prober = Prober(Ledger(store), [pay.contract], tell=told)

    async def play() -> None:
        running = asyncio.ensure_future(prober.run(every_s=0.001))
        await until(lambda: told, "something is told")
        running.cancel()

    asyncio.run(play())
    assert told.names() == ["probe.settled"]


def test_whatever_goes_wrong_in_a_round_there_is_another():
    ledger, pay, told = Ledger(MemoryStore()), Downstream(semel.Happened(7)).tool(), Told()
    leave_in_doubt(ledger, pay)
    rounds = itertools.count()

    async def tenants() -> list[str]:
        await asyncio.sleep(0)
        return ["default"] if next(rounds) else [1 / 0]  # type: ignore[list-item]

    prober = Prober(ledger, [pay.contract], tenants=tenants, tell=told)

    async def play() -> None:
        running = asyncio.ensure_future(prober.run(every_s=0.001))
        await until(lambda: len(told) == 2, "it goes on")
        running.cancel()

    asyncio.run(play())
    assert told == [("probe.broken", {"kind": "ZeroDivisionError"}), told[1]]
    assert told.names()[1] == "probe.settled"


def test_a_stop_from_another_thread_wakes_it_from_its_longest_pause():
    ledger, pay, told = Ledger(MemoryStore()), Downstream(semel.Happened(7)).tool(), Told()
    leave_in_doubt(ledger, pay)
    prober = Prober(ledger, [pay.contract], tell=told)

    async def play() -> None:
        running = asyncio.ensure_future(prober.run(every_s=3_600))
        await until(lambda: told, "the first round is over")
        threading.Thread(target=prober.stop).start()
        done, _ = await asyncio.wait((running,), timeout=PATIENCE_S)
        assert done

    asyncio.run(play())


def test_a_stop_before_the_start_is_a_stop(ledger):
    prober = Prober(ledger, [])
    prober.stop()
    asyncio.run(prober.run())


class SlowToList(WrappedStore):
    """Reading all there is takes ten seconds of the fake clock."""

    def before(self, name: str) -> None:
        if name == "listrecords":
            self.clock.sleep(10.0)


def test_however_long_it_takes_to_look_it_looks_again_after_its_usual_pause(clock):
    ledger = Ledger(SlowToList(MemoryStore(clock=clock)))
    prober = Prober(ledger, [Downstream().tool().contract])
    looks = []

    async def play() -> None:
        running = asyncio.ensure_future(prober.run())
        for _ in range(200):
            looks.append(clock.monotonic())
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(play())
    assert {round(later - earlier) for earlier, later in itertools.pairwise(looks)} <= {
        0,
        2,
        10,
        12,
    }
    assert looks[-1] > 100


# --- which contracts --------------------------------------------------------------------------------


def a_module(**names: Any) -> ModuleType:
    module = ModuleType("shop")
    vars(module).update(names)
    return module


class Desk:
    @declared(name="of-a-method", key_of=lambda self: None, probe=lambda key, **others: semel.CannotTell)
    def pay(self, to: str) -> int:
        return 1

    @staticmethod
    @declared(name="of-a-static-method")
    def refund(to: str) -> int:
        return 1


def test_the_contracts_of_a_module_are_those_of_its_functions_and_classes():
    pay = Downstream().tool()
    found = contracts_in(a_module(pay=pay, again=pay, desk=Desk, number=1, sys=sys, contract="no contract"))
    assert [contract.name for contract in found] == ["pay", "of-a-method", "of-a-static-method"]


def test_a_method_in_doubt_is_asked_about(ledger):
    class Till:
        @declared(key_of=lambda self: None, probe=lambda key, to: semel.Happened(7))
        def pay(self, to: str) -> int:
            raise TimeoutError

    with a_step(ledger), pytest.raises(TimeoutError):
        Till().pay("a")
    assert once(Prober(ledger, contracts_in(a_module(till=Till)))) == SETTLED


def test_two_contracts_of_one_name_and_major_version_are_refused(ledger):
    first, second = Downstream().tool(), Downstream().tool(version="1.3.0")
    with pytest.raises(ContractError, match="'pay', version 1"):
        Prober(ledger, [first.contract, second.contract])
    Prober(ledger, [first.contract, first.contract, Downstream().tool(version="2.0.0").contract])


def test_only_contracts_with_a_probe_need_a_prober(ledger):
    assert not Prober(ledger, [declared()(unsure).contract]).needed
    assert Prober(ledger, [Downstream().tool().contract]).needed
