"""Conflicts, lost acknowledgements, refusals, a full disk, wrong clocks and TLS: PostgreSQL at its worst."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.errors import OpenError, StoreUnavailable
from semel.kernel.clock import SYSTEM, SystemClock
from semel.kernel.record import Address, Look, Settle, State, ours, settled_by
from semel.stores.base import CountRecords, ListRecords, ReadEvents, ReadSeals
from semel.stores.postgres import PostgresStore, statements
from semel.stores.postgres.statements import Migration
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection
from semel.stores.urls import open_store
from tests.commands import A, B, claim, look, park, release, renew, retake, settle
from tests.faults.bank import Bank
from tests.faults.caller import Heard, acall, call
from tests.faults.certificates import certify
from tests.faults.checks import all_records, assert_history_holds, assert_rising, only_record, until
from tests.faults.disk import fill, free, small_disk
from tests.faults.payment import LONG_LEASE, payment
from tests.faults.till import CREATE, INSERT
from tests.missing import library
from tests.patience import HURRIED, PATIENCE_S
from tests.postgres_server import DATABASE, USER, PostgresServer
from tests.proxy import Fate, Proxy

psycopg = library("psycopg")

# Ann has to say her password; a ghost would be let in, if there were one; Una is always serializable.
ANN, ANNS_PASSWORD, GHOST, UNA = "ann", "pa55-of-ann", "ghost", "una"
_PG_HBA = f"""
host all {USER},{GHOST},{UNA} 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""

# So short that the store's side of a deadlock gives way first.
_DEADLOCK = "20ms"

# A new cluster takes 40 MB, half of it for its log.
_DISK_BYTES = 96 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer(deadlock_timeout=_DEADLOCK, log_line_prefix="%a ")
    try:
        (server.data / "pg_hba.conf").write_text(_PG_HBA)
        certificate, key = certify(server.directory, "server")
        server.start(ssl="on", ssl_cert_file=str(certificate), ssl_key_file=str(key))
        administer(
            server,
            f"CREATE ROLE {ANN} LOGIN PASSWORD '{ANNS_PASSWORD}'",
            f"CREATE ROLE {UNA} LOGIN SUPERUSER",
            f"ALTER ROLE {UNA} SET default_transaction_isolation = serializable",
        )
        yield server
    finally:
        server.remove()


def administer(server: PostgresServer, *orders: str) -> None:
    with psycopg.connect(
        host="127.0.0.1", port=server.port, user=USER, dbname=DATABASE, autocommit=True
    ) as connection:
        for order in orders:
            connection.execute(order)


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return f"s{abs(hash(request.node.name)):x}"


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Stores and ledgers that are closed after the test."""
    those: list[Any] = []
    yield those
    for each in those:
        each.close()


@pytest.fixture
def near(server: PostgresServer, schema: str, opened: list[Any]) -> semel.Ledger:
    """The ledger by the direct way: what it says is so."""
    opened.append(semel.open(server.url(schema)))
    ledger: semel.Ledger = opened[-1]
    return ledger


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def far(server: PostgresServer, proxy: Proxy, schema: str, opened: list[Any]) -> semel.Ledger:
    """The ledger behind the proxy, in clear text, with little patience."""
    url = server.url(schema, timeout=HURRIED, sslmode="disable")
    opened.append(semel.open(url.replace(f":{server.port}/", f":{proxy.port}/")))
    ledger: semel.Ledger = opened[-1]
    return ledger


@contextmanager
def other(server: PostgresServer, schema: str) -> Iterator[Any]:
    """Somebody else's transaction on the same tables, who is patient with deadlocks."""
    options = f"-c search_path={schema} -c deadlock_timeout=30s"
    connection = psycopg.connect(
        host="127.0.0.1",
        port=server.port,
        user=USER,
        dbname=DATABASE,
        options=options,
        application_name="other",
    )
    try:
        yield connection
    finally:
        connection.close()


def complaints(server: PostgresServer, words: str) -> int:
    """How often the server said this to a store."""
    log = (server.directory / "log").read_text(errors="replace")
    return log.count(f"semel ERROR:  {words}")


def blocked(server: PostgresServer, schema: str) -> bool:
    with other(server, schema) as eye:
        found = eye.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'semel' AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        return bool(found.fetchone()[0])


def place(name: object) -> Address:
    return Address("acme", "tool", str(name))


def kinds(store: Any) -> list[str]:
    return [event.kind for event in store.ask(ReadEvents(limit=10_000))]


def paid_once(bank: Bank, accounts: set[str]) -> bool:
    paid = [entry.account for entry in bank.entries()]
    return sorted(paid) == sorted(accounts)


def conninfo(server: PostgresServer, user: str = USER) -> str:
    return f"host=127.0.0.1 port={server.port} user={user} dbname={DATABASE} fallback_application_name=semel"


# --- serialization failures and deadlocks --------------------------------------------------------------


class SerializableStore(PostgresStore):
    """What an administrator makes of a store who insists on it: its own statements conflict for real."""

    def _connect(self) -> PostgresConnection:
        link = super()._connect()
        link.script("SET default_transaction_isolation = serializable")
        return link


def insist(ledger: semel.Ledger, tool: Any, account: str) -> Heard:
    """Called again while the store is unavailable: what the caller hears in the end."""

    def ask() -> Heard | None:
        heard = call(ledger, tool, account=account)
        return None if heard.code == "STORE_UNAVAILABLE" else heard

    heard = until(ask, "the store answers")
    assert heard is not None
    return heard


def test_calls_whose_transactions_cannot_be_serialized_land_once_and_hear_no_driver_error(
    server, schema, bank, opened
):
    before = complaints(server, "could not serialize access")
    for _ in range(4):
        store = SerializableStore(conninfo(server), schema_name=schema)
        opened.append(semel.Ledger(store))
    tool = payment(bank, "park", lease=LONG_LEASE)
    accounts = [f"acc-{number}" for number in range(30)]
    start = threading.Barrier(8)

    def work(worker: int) -> list[Heard]:
        heard = []
        for account in accounts:
            start.wait()
            heard.append(insist(opened[worker % 4], tool, account))
        return heard

    with ThreadPoolExecutor(8) as pool:
        everyone = list(pool.map(work, range(8)))
    assert complaints(server, "could not serialize access") > before
    assert all(heard == everyone[0] for heard in everyone)
    assert all(heard.receipt for heard in everyone[0])
    assert paid_once(bank, set(accounts))
    assert_history_holds(opened[0])


def test_a_settlement_that_cannot_be_serialized_is_repeated_without_a_word(server, schema, opened):
    before = complaints(server, "could not serialize access")
    opened.append(SerializableStore(conninfo(server), schema_name=schema))
    opened[0].perform(claim(A))
    with other(server, schema) as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("UPDATE records SET waited = true")
        settling = pool.submit(opened[0].perform, settle(A))
        until(lambda: blocked(server, schema), "the settlement waits")
        connection.commit()
        assert settled_by(settling.result().record, settle(A))
    assert complaints(server, "could not serialize access") > before
    assert kinds(opened[0]) == ["claimed", "settled"]


def test_effects_that_cannot_be_serialized_are_rolled_back_and_come_again(server, schema, opened):
    """Each reads what the others write and writes what the others read: only one after the other will do."""
    administer(server, f"CREATE SCHEMA {schema}", CREATE.replace("payments", f"{schema}.payments"))
    before = complaints(server, "could not serialize access")
    for _ in range(2):
        opened.append(semel.Ledger(PostgresStore(conninfo(server, UNA), schema_name=schema)))
    meeting = threading.Barrier(2)
    tools_own: list[Exception] = []
    escaped: list[Exception] = []

    @semel.tool_contract(name="pay", class_="write-non-idempotent", ignore=("meets",))
    def pay(account: str, meets: bool, books: semel.Transaction) -> str:
        try:
            books.connection.execute(f"SELECT count(*) FROM {schema}.payments").fetchall()
            if meets:
                meet(meeting)
            insert = INSERT["postgres"].replace("payments", f"{schema}.payments")
            books.connection.execute(insert, (account, 1))
        except psycopg.errors.SerializationFailure as failure:
            tools_own.append(failure)
            raise
        return account

    def attempt(worker: int, number: int, *, meets: bool) -> bool:
        step = opened[worker].step(conversation="c", step=f"{worker}-{number}")
        try:
            return bool(step.run(pay, account=f"acc-{worker}-{number}", meets=meets))
        except StoreUnavailable:
            return False
        except psycopg.errors.SerializationFailure as failure:
            escaped.append(failure)
            return False

    def work(worker: int) -> list[bool]:
        return [attempt(worker, number, meets=True) for number in range(5)]

    def paid() -> int:
        with other(server, schema) as eye:
            return int(eye.execute("SELECT count(*) FROM payments").fetchone()[0])

    with ThreadPoolExecutor(2) as pool:
        went = [done for workers in pool.map(work, range(2)) for done in workers]
    assert complaints(server, "could not serialize access") > before
    assert set(escaped) == set(tools_own), "only what the tool itself was told gets out"
    assert sum(went) == paid() < 10
    for worker in range(2):
        for number in range(5):
            assert attempt(worker, number, meets=False)
    assert paid() == 10
    assert {record.state for record in all_records(opened[0])} == {State.DONE}
    assert_history_holds(opened[0])


def test_a_deadlock_in_which_the_store_gives_way_is_not_noticed_by_its_callers(
    server, schema, bank, near
) -> None:
    """They hold the record that the store locks last, and then want the one that it locks first."""
    before = complaints(server, "deadlock detected")
    pairs: list[list[str]] = []

    def met() -> bool:
        pairs.append([f"acc-{2 * len(pairs)}", f"acc-{2 * len(pairs) + 1}"])
        settle_against_the_order(server, schema, bank, near, pairs[-1])
        return complaints(server, "deadlock detected") > before

    # Whether one statement settles both, is for whoever looks into the queue at that moment.
    until(met, "a statement that settles both gives way")
    accounts = {account for pair in pairs for account in pair}
    assert paid_once(bank, accounts)
    assert sorted(kinds(near.store)) == ["claimed"] * len(accounts) + ["settled"] * len(accounts)
    assert_history_holds(near)


def settle_against_the_order(
    server: PostgresServer, schema: str, bank: Bank, near: semel.Ledger, accounts: list[str]
) -> None:
    """Two calls have their receipts, though somebody locked their records in the other order meanwhile."""
    leaving: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []
    gate = asyncio.Event()

    async def leave_together() -> None:
        leaving.append("one")
        await gate.wait()

    tool = payment(bank, "park", asynchronous=True, lease=LONG_LEASE, parting=leave_together)

    async def call_both() -> list[Heard]:
        loops.append(asyncio.get_running_loop())
        return await asyncio.gather(*(acall(near, tool, account=account) for account in accounts))

    with other(server, schema) as connection, ThreadPoolExecutor(1) as pool:
        calls = pool.submit(lambda: asyncio.run(call_both()))
        until(lambda: len(leaving) == len(accounts), "both are about to leave the tool")
        rows = connection.execute("SELECT address FROM records WHERE state = 'pending' ORDER BY address")
        first, last = (row[0] for row in rows)
        lock = "SELECT 1 FROM records WHERE address = %s FOR UPDATE"
        connection.execute(lock, (last,))
        # Both wake in one turn of the loop, so that mostly one statement settles them.
        loops[0].call_soon_threadsafe(gate.set)
        until(lambda: blocked(server, schema), "the store's statement waits")
        connection.execute(lock, (first,))
        connection.rollback()
        assert all(each.receipt for each in calls.result())


def meet(barrier: threading.Barrier) -> None:
    barrier.wait(PATIENCE_S)


def test_statements_of_two_processes_that_want_the_same_records_do_not_deadlock(server, schema, opened):
    before = complaints(server, "deadlock detected")
    opened += [open_store(server.url(schema)) for _ in range(2)]
    places = [place(number) for number in range(40)]

    async def all_at_once(store: Any, commands: list[Any]) -> list[Any]:
        return await asyncio.gather(*map(store.aperform, commands))

    def renew_all(worker: int) -> None:
        for _ in range(20):
            order = places if worker else places[::-1]
            replies = asyncio.run(all_at_once(opened[worker], [renew(A, at) for at in order]))
            assert all(reply.applied for reply in replies)

    asyncio.run(all_at_once(opened[0], [claim(A, at) for at in places]))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(renew_all, range(2)))
    assert complaints(server, "deadlock detected") == before


# --- acknowledgements that are lost or come twice ------------------------------------------------------


def test_a_claim_whose_commit_was_not_acknowledged_is_asked_again_and_is_the_same_owners(proxy, near, far):
    proxy.deafens = b"\0claim\0"
    with pytest.raises(StoreUnavailable, match="the tool did not run"):
        far.store.perform(claim(A))
    assert near.store.perform(look()).record.token == A, "it was committed"
    fence = near.store.perform(look()).record.fence
    again = far.store.perform(claim(A))
    assert ours(again.record, claim(A))
    assert again.record.fence == fence
    assert not near.store.perform(claim(B)).applied
    assert kinds(near.store) == ["claimed"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_call_whose_claim_was_not_acknowledged_runs_nothing_and_the_next_one_pays_once(
    asynchronous, proxy, near, far, bank
):
    tool = payment(bank, "park", asynchronous=asynchronous, lease=LONG_LEASE)
    proxy.deafens = b"\0claim\0"
    assert call(far, tool, note="first") == Heard(code="STORE_UNAVAILABLE")
    assert bank.entries() == []
    assert until(lambda: call(near, tool, note="second").receipt, "the key is free again")
    assert [entry.note for entry in bank.entries()] == ["second"]
    assert_history_holds(near)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_call_whose_settlement_was_not_acknowledged_finds_it_settled_once(
    asynchronous, proxy, near, far, bank
):
    def lose() -> None:
        proxy.deafens = b"\0settle\0"

    tool = payment(bank, "park", asynchronous=asynchronous, lease=LONG_LEASE, after=lose)
    first = call(far, tool, note="first")
    assert first.receipt is not None
    assert proxy.deafens is None, "the reply was lost"
    assert call(near, payment(bank, "park", lease=LONG_LEASE), note="second") == first
    assert len(bank.entries()) == 1
    assert kinds(near.store).count("settled") == 1
    assert_history_holds(near)


def test_an_effect_whose_commit_was_not_acknowledged_is_found_committed(server, schema, proxy, near, far):
    """The tool's own transaction: commit and settlement came through, and only nobody said so."""
    administer(server, CREATE.replace("payments", f"{schema}.payments"))

    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    def pay(account: str, books: semel.Transaction) -> str:
        statement = INSERT["postgres"].replace("payments", f"{schema}.payments")
        books.connection.execute(statement, (account, 1))
        proxy.deafens = b"COMMIT\n"
        return "paid"

    for ledger in (far, near):
        assert ledger.step(conversation="c", step="s").run(pay, account="acc-1") == "paid"
    assert proxy.deafens is None, "the reply was lost"
    with other(server, schema) as eye:
        assert eye.execute("SELECT count(*) FROM payments").fetchone() == (1,)
    assert kinds(near.store).count("settled") == 1
    assert only_record(near).attempts == 1


def test_replies_that_arrive_twice_are_never_taken_for_others(proxy, near, far):
    places = [place(number) for number in range(20)]
    commands = [
        command for at in places for command in (claim(A, at), settle(A, at, outcome=at.key.encode()))
    ]
    warm(far)
    proxy.doubles_replies = True
    answered = 0
    for command in commands:
        try:
            assert_answers(command, far.store.perform(command))
            answered += 1
        except StoreUnavailable:
            pass  # it may give up a connection that says more than it was asked
    assert answered
    proxy.restore()
    for command in commands:
        in_the_end(far, command)
    for at in places:
        assert_answers(settle(A, at, outcome=at.key.encode()), near.store.perform(look(at)))
    assert sorted(kinds(near.store)) == ["claimed"] * 21 + ["settled"] * 21


def assert_answers(command: Any, reply: Any) -> None:
    if isinstance(command, Settle):
        assert settled_by(reply.record, command)
    else:
        assert ours(reply.record, command)
        assert reply.record.request == command.request


def in_the_end(ledger: semel.Ledger, command: Any) -> Any:
    """The reply, asked for again as an owner may."""

    def ask() -> Any:
        try:
            return ledger.store.perform(command)
        except StoreUnavailable:
            return None

    return until(ask, "the store answers")


def perform_and_hear_twice(proxy: Proxy, ledger: semel.Ledger, command: Any) -> Any:
    """The reply; it came a second time, after it was read."""
    before = proxy.repeated
    proxy.repeats_replies = True
    reply = ledger.store.perform(command)
    until(lambda: proxy.repeated > before, "it came again")
    proxy.restore()
    return reply


def test_a_reply_that_comes_again_late_is_no_acknowledgement_of_what_was_asked_next(
    server, schema, proxy, near, far
):
    warm(far)
    perform_and_hear_twice(proxy, far, claim(A))
    with other(server, schema) as connection:
        connection.execute("SELECT 1 FROM records FOR UPDATE")
        with pytest.raises(StoreUnavailable):
            far.store.perform(settle(A))
    assert near.store.perform(look()).record.state is State.PENDING
    assert settled_by(far.store.perform(settle(A)).record, settle(A))


def test_replies_that_come_again_late_leave_every_answer_where_it_belongs(proxy, near, far):
    for number in range(5):
        at = place(number)
        warm(far)
        assert perform_and_hear_twice(proxy, far, claim(A, at)).record.request.at == at
        assert far.store.perform(settle(A, at)).record == near.store.perform(look(at)).record
        warm(far)
        assert perform_and_hear_twice(proxy, far, look(at)).record.request.at == at
        assert far.store.perform(look(place("nobody's"))).record is None
    assert sorted(kinds(near.store)) == ["claimed"] * 6 + ["settled"] * 6


def test_a_reply_that_comes_again_when_something_else_is_asked_is_not_the_answer_to_that(proxy, near, far):
    globex = Address("globex", "tool", "k")
    for at in (place("one"), place("two"), globex):
        near.store.perform(claim(A, at))
    near.store.perform(settle(A, place("two")))
    questions: list[Any] = [look(place("one")), look(place("two")), look(globex), look(place("nobody's"))]
    questions += [ListRecords("acme"), ListRecords("globex"), CountRecords(), ReadEvents(), ReadSeals()]
    for question in questions:
        told(far, question)
    for first, second in itertools.permutations(questions, 2):
        repeated = proxy.repeated
        proxy.repeats_to_next = True
        assert told(far, first) == told(near, first)
        assert told(far, second) == told(near, second)
        assert proxy.repeated == repeated + 1


def told(ledger: semel.Ledger, question: Any) -> Any:
    """What the store has to say, apart from the time."""
    if isinstance(question, Look):
        return ledger.store.perform(question).record
    return ledger.store.ask(question)


def test_an_old_reply_that_comes_again_does_not_hide_what_happened_since(proxy, near, far):
    for ledger in (far, near):
        warm(ledger)
    far.store.perform(claim(A))
    far.store.perform(renew(A))
    proxy.repeats_to_next = True
    assert far.store.perform(renew(A)).applied
    near.store.perform(park(A))
    near.store.perform(retake(A, B))
    assert not far.store.perform(renew(A)).applied
    proxy.repeats_to_next = True
    assert told(far, look()).state is State.PENDING
    near.store.perform(settle(B))
    assert told(far, look()).state is State.DONE
    assert proxy.repeated == 2


REFUSES_INSERTS = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON records
    FOR EACH ROW WHEN (NEW.key = 'refused') EXECUTE FUNCTION refuse()
"""


READY = b"Z\x00\x00\x00\x05I"  # the last piece of a reply


class RefusingAgain(Proxy):
    """The first refusal of a full disk comes again, whole or a piece, once that is ordered."""

    def __init__(self, port: int, *, whole: bool, ordered: bool) -> None:
        super().__init__(port)
        self.ordered = ordered
        self.whole = whole
        self.refusal: bytes | None = None

    def _keep(self, reply: bytes, fate: Fate) -> None:
        super()._keep(reply, fate)
        if b"C53100" in reply and not self.repeated:
            self.refusal = reply.removesuffix(READY) + (READY if self.whole else b"")

    def _repeat(self, client: socket.socket, fate: Fate) -> None:
        if self.ordered and self.refusal is not None:
            fate.kept, self.refusal = self.refusal, None
        super()._repeat(client, fate)


def refuse_what_is_called_refused(server: PostgresServer, schema: str) -> None:
    with other(server, schema) as connection:
        connection.execute(REFUSES_INSERTS)
        connection.commit()


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "a piece"])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_a_refusal_that_comes_again_is_not_the_answer_to_what_is_asked_next(
    late, whole, server, schema, near, opened
):
    proxy = RefusingAgain(server.port, whole=whole, ordered=not late)
    url = server.url(schema, timeout=HURRIED, sslmode="disable")
    opened.append(semel.open(url.replace(f":{server.port}/", f":{proxy.port}/")))
    far = opened[-1]
    refuse_what_is_called_refused(server, schema)
    warm(far)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        far.store.perform(claim(A, place("refused")))
    proxy.ordered = True
    assert ours(far.store.perform(claim(A, place("next"))).record, claim(A, place("next")))
    assert settled_by(far.store.perform(settle(A, place("next"))).record, settle(A, place("next")))
    assert proxy.repeated == 1
    assert sorted(kinds(near.store)) == ["claimed"] * 2 + ["settled"] * 2
    proxy.close()


class TwiceAtOnce:
    """A socket to which a refusal of a full disk goes twice, in one piece."""

    def __init__(self, to: socket.socket) -> None:
        self._to, self._held = to, b""

    def sendall(self, chunk: bytes) -> None:
        self._held += chunk
        if b"C53100" in self._held:
            if not self._held.endswith(READY):
                return  # the rest of it follows
            self._held *= 2
        self._to.sendall(self._held)
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


def test_a_refusal_behind_which_more_has_arrived_is_not_believed(server, schema, far, proxy, monkeypatch):
    refuse_what_is_called_refused(server, schema)
    carry = proxy._carry

    def carry_twice(source, target, replies, fate):
        carry(source, TwiceAtOnce(target) if replies else target, replies, fate)

    monkeypatch.setattr(proxy, "_carry", carry_twice)
    proxy.cut()
    warm(far)
    with pytest.raises(StoreUnavailable, match="another question"):
        far.store.perform(claim(A, place("refused")))


def test_a_commit_is_not_acknowledged_by_the_reply_to_what_was_said_before_it(proxy, far):
    link = far.store._connect()
    link.script("BEGIN")
    proxy.repeats_to_next = True
    link.script("SELECT 1")
    with pytest.raises(Failure, match="another question"):
        link.script("COMMIT")
    assert link.broken


def test_beginning_a_tools_transaction_leaves_its_isolation_level_to_the_tool(near):
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    def pay(books: semel.Transaction) -> str:
        books.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return str(books.connection.execute("SHOW transaction_isolation").fetchone()[0])

    assert near.step(conversation="c", step="s").run(pay) == "repeatable read"


def warm(ledger: semel.Ledger) -> None:
    """Its connection knows the statements, so that each reply is one piece."""
    at = place("warm")
    for command in (look(at), claim(A, at), settle(A, at)):
        ledger.store.perform(command)


# --- refusals to connect -------------------------------------------------------------------------------


def refusal(url: str) -> OpenError:
    with pytest.raises(OpenError) as refused:
        open_store(url)
    return refused.value


def everything_said(error: BaseException | None) -> str:
    """The error and all that lies behind it, as a log would show it."""
    said = []
    while error is not None:
        said += [str(error), repr(error), str(vars(error))]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(said)


def url_of(server: PostgresServer, who: str, database: str = DATABASE, schema: str = "semel") -> str:
    return f"postgresql://{who}@127.0.0.1:{server.port}/{database}?schema={schema}"


REFUSED = {
    "wrong password": ("ann:hush-hush", DATABASE, "user or password", "Correct them in the URL"),
    "no password": ("ann", DATABASE, "wants a password", "Put it into the URL"),
    "no such user": (f"{GHOST}:hush-hush", DATABASE, GHOST, "Create it"),
    "no such database": (f"ann:{ANNS_PASSWORD}", "nowhere", "nowhere", "Create it"),
    "no right to connect": (f"ann:{ANNS_PASSWORD}", "shut", "may not use the database", "CONNECT"),
    "no right to create": (f"ann:{ANNS_PASSWORD}", DATABASE, "no such schema", "CREATE on the database"),
}


@pytest.fixture(scope="module")
def shut(server: PostgresServer) -> None:
    administer(server, "CREATE DATABASE shut", "REVOKE ALL ON DATABASE shut FROM PUBLIC")


@pytest.mark.parametrize(("who", "database", "cause", "fix"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_to_connect_names_the_fix_and_not_the_password(who, database, cause, fix, server, shut):
    refused = refusal(url_of(server, who, database, "not_there"))
    assert cause in refused.message
    assert fix in refused.corrective_action
    assert "hush" not in everything_said(refused)
    assert ANNS_PASSWORD not in everything_said(refused)


RIGHTS = [
    "GRANT USAGE ON SCHEMA {schema} TO ann",
    "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO ann",
    "GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO ann",
]


def test_each_right_that_is_missing_is_asked_for_until_the_store_opens(server, schema, near, opened):
    url = url_of(server, f"ann:{ANNS_PASSWORD}", schema=schema)
    for right in RIGHTS:
        refused = refusal(url)
        assert "this user may not use the" in refused.message
        assert "Grant it" in refused.corrective_action
        assert ANNS_PASSWORD not in everything_said(refused)
        administer(server, right.format(schema=schema))
    opened.append(open_store(url))
    assert opened[-1].perform(claim(A)).applied


def test_a_right_taken_away_is_a_refusal_and_service_resumes_with_it(server, schema, near, opened):
    administer(server, *(right.format(schema=schema) for right in RIGHTS))
    opened.append(open_store(url_of(server, f"ann:{ANNS_PASSWORD}", schema=schema)))
    store = opened[-1]
    store.perform(claim(A))
    administer(server, f"REVOKE UPDATE ON {schema}.records FROM ann")
    with pytest.raises(StoreUnavailable, match="Grant it all rights") as refused:
        store.perform(settle(A))
    assert ANNS_PASSWORD not in everything_said(refused.value)
    administer(server, f"GRANT UPDATE ON {schema}.records TO ann")
    assert store.perform(settle(A)).applied
    assert kinds(near.store) == ["claimed", "settled"]


@pytest.mark.parametrize(
    "password", ["hush@hush", "hush/hush", "hush?hush", "hush#hush", "hush%hush", "@/hush@"]
)
def test_a_password_that_breaks_the_url_is_not_shown(password, server):
    assert "hush" not in everything_said(refusal(url_of(server, f"ann:{password}")))


def test_a_password_with_an_at_in_it_opens(server, schema, near, opened):
    administer(
        server,
        f"CREATE ROLE {schema} LOGIN SUPERUSER PASSWORD 'a@b'",
    )
    for written in ("a@b", "a%40b"):
        opened.append(open_store(url_of(server, f"{schema}:{written}", schema=schema)))
        assert opened[-1].perform(look()).record is None


# --- a full disk ---------------------------------------------------------------------------------------


@pytest.fixture
def tight() -> Iterator[tuple[PostgresServer, Path]]:
    """A server whose data directory is on a small disk of its own."""
    folder = Path(tempfile.mkdtemp(prefix="semel-postgres-disk-"))
    folder.chmod(0o755)  # the server runs as somebody else
    try:
        with small_disk(folder / "disk", _DISK_BYTES) as disk:
            # Nobody tidies up in between: what is full stays full until the test makes room.
            server = PostgresServer(disk / "data", autovacuum="off")
            try:
                server.start()
                yield server, disk
            finally:
                server.remove()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def claim_many(ledger: semel.Ledger) -> None:
    for number in range(1_000):
        ledger.store.perform(claim(A, place(number), arguments=os.urandom(4_000)))


def test_a_full_disk_under_the_server_refuses_calls_keeps_what_is_settled_and_resumes(tight, bank, opened):
    server, disk = tight
    opened.append(semel.open(server.url()))
    ledger = opened[0]
    tool = payment(bank, "park", lease=LONG_LEASE)
    told = {"acc-first": call(ledger, tool, account="acc-first")}
    fill(disk)
    while list(told.values())[-1].receipt is not None:
        account = f"acc-{len(told)}"
        told[account] = call(ledger, tool, account=account, note="x" * 4_000)
    last = list(told)[-1]
    assert told[last].code in ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN")
    assert len(bank.entries(last)) == (told[last].code == "OUTCOME_UNKNOWN")
    with pytest.raises(StoreUnavailable, match=r"disk is full.*the tool did not run.*Free some space"):
        claim_many(ledger)
    with semel.open(server.url()) as fresh:
        assert call(fresh, tool, account="acc-first") == told["acc-first"], "what is settled can be read"
    free(disk)
    until(lambda: call(ledger, tool, account=last).receipt, "service resumes by itself")
    assert paid_once(bank, set(told))
    assert_history_holds(ledger)


# --- the server's clock --------------------------------------------------------------------------------


class ServersClock(SystemClock):
    """The time of the server, as told to it: it steps for everybody at once."""

    def __init__(self) -> None:
        self.shift_s = 0
        self.now_us = lambda: SYSTEM.now_us() + self.shift_s * 1_000_000


HOUR_S = 3_600
BOTH_WAYS = pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S], ids=["an hour ahead", "an hour back"])


@pytest.fixture
def clock() -> ServersClock:
    return ServersClock()


@pytest.fixture
def ledger_at(server: PostgresServer, schema: str, clock: ServersClock, opened: list[Any]) -> Callable:
    def open_another() -> semel.Ledger:
        opened.append(semel.open(server.url(schema), clock=clock))
        ledger: semel.Ledger = opened[-1]
        return ledger

    return open_another


def test_fences_rise_however_the_servers_clock_steps(clock, ledger_at):
    store = ledger_at().store
    fences = []
    for number, shift_s in enumerate([0, HOUR_S, -HOUR_S, 0, -HOUR_S, HOUR_S]):
        clock.shift_s = shift_s
        token = number.to_bytes(16, "big")
        fences.append(store.perform(claim(token)).record.fence)
        assert store.perform(release(token, window_us=None)).applied
    assert_rising(fences)


@BOTH_WAYS
def test_a_step_of_the_servers_clock_lets_nobody_in_beside_the_owner(shift_s, clock, ledger_at, bank):
    owner, another = ledger_at(), ledger_at()
    impatient = payment(bank, "park", lease=LONG_LEASE, wait="1ms")
    heard: list[Heard] = []

    def step() -> None:
        clock.shift_s = shift_s
        another.sweeper.run_once()
        # On a thread of its own: called from here it would be this very call's own.
        caller = threading.Thread(target=lambda: heard.append(call(another, impatient, note="second")))
        caller.start()
        caller.join()

    first = call(owner, payment(bank, "park", lease=LONG_LEASE, after=step), note="first")
    assert heard == [Heard(code="OUTCOME_UNKNOWN" if shift_s > 0 else "RETRY_IN_FLIGHT")]
    assert first.receipt is not None
    assert call(another, payment(bank, "park", lease=LONG_LEASE), note="third") == first
    assert [entry.note for entry in bank.entries()] == ["first"]
    assert_history_holds(another)


@BOTH_WAYS
def test_a_window_that_is_longer_than_the_step_stays_open(shift_s, clock, ledger_at, bank):
    tool = payment(bank, "park", window="2h")
    first = call(ledger_at(), tool, note="first")
    for shift in (shift_s, 0, shift_s):
        clock.shift_s = shift
        fresh = ledger_at()
        assert fresh.sweeper.run_once().closed == 0
        assert call(fresh, tool, note="second") == first
    assert len(bank.entries()) == 1
    clock.shift_s = 2 * HOUR_S + 1
    assert call(ledger_at(), tool, note="after the window").receipt != first.receipt
    assert_rising([entry.fence for entry in bank.entries()])


# --- TLS -----------------------------------------------------------------------------------------------


def secured(server: PostgresServer, schema: str, **options: Any) -> str:
    """By the name that the certificate is for."""
    said = {name: str(value) for name, value in options.items()}
    return server.url(schema, **said).replace("@127.0.0.1:", "@localhost:")


@pytest.mark.parametrize(("sslmode", "has_it"), [("require", True), ("disable", False)])
def test_a_connection_that_asks_for_tls_has_it(sslmode, has_it, server, schema, opened):
    opened.append(open_store(secured(server, schema, sslmode=sslmode)))
    assert opened[0].perform(claim(A)).applied
    with other(server, schema) as eye:
        found = eye.execute(
            "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE application_name = 'semel'"
        )
        assert found.fetchone() == (has_it,)


def test_a_server_that_can_be_verified_is_let_be_the_server(server, schema, opened):
    known = server.directory / "server.crt"
    opened.append(open_store(secured(server, schema, sslmode="verify-full", sslrootcert=known)))
    assert opened[0].perform(claim(A)).applied


def test_a_server_that_somebody_else_vouches_for_is_refused(server, schema, tmp_path):
    wrong, _ = certify(tmp_path, "wrong")
    refused = refusal(secured(server, schema, sslmode="verify-full", sslrootcert=wrong))
    assert "could not be verified" in refused.message
    assert "sslrootcert" in refused.corrective_action


def test_a_certificate_for_another_name_is_refused(server, schema):
    refused = refusal(
        server.url(schema, sslmode="verify-full", sslrootcert=str(server.directory / "server.crt"))
    )
    assert "another name" in refused.message


def test_a_missing_certificate_is_not_taken_for_a_missing_database(server, schema, tmp_path):
    refused = refusal(secured(server, schema, sslmode="verify-full", sslrootcert=tmp_path / "none.crt"))
    assert "no certificate" in refused.message
    assert "sslrootcert" in refused.corrective_action


# --- two versions of the schema, under load ------------------------------------------------------------


WIDER = Migration(
    "ALTER TABLE events ADD COLUMN colour text DEFAULT 'red';"
    "ALTER TABLE records ADD COLUMN colour text DEFAULT 'red'",
    works_with=1,
)


def test_old_and_new_versions_call_on_while_the_schema_is_widened_under_them(server, schema, bank, opened):
    def version(*later: Migration) -> semel.Ledger:
        known = [*statements.migrations(), *later]
        opened.append(semel.Ledger(PostgresStore(conninfo(server), schema_name=schema, migrations=known)))
        ledger: semel.Ledger = opened[-1]
        return ledger

    tool = payment(bank, "park", lease=LONG_LEASE)
    stop, heard = threading.Event(), {"old": [], "new": []}  # type: ignore[var-annotated]

    def work(name: str, ledger: semel.Ledger) -> None:
        number = 0
        while not stop.is_set():
            heard[name].append(call(ledger, tool, account=f"acc-{number}"))
            number += 1

    def until_both_called(count: int) -> None:
        until(lambda: all(len(each) >= count for each in heard.values()), f"{count} calls")

    with ThreadPoolExecutor(4) as pool:
        try:
            working = [pool.submit(work, "old", version()) for _ in range(2)]
            until(lambda: len(heard["old"]) > 20, "the old one calls")
            working.append(pool.submit(work, "new", version(WIDER)))
            so_far = len(heard["old"])
            until(lambda: len(heard["old"]) > so_far + 20, "the old one goes on")
            until_both_called(40)
        finally:
            stop.set()
        for each in working:
            each.result()
    assert not [each for each in heard["old"] + heard["new"] if not each.receipt]
    paid = [entry.account for entry in bank.entries()]
    assert len(paid) == len(set(paid))
    assert_history_holds(opened[0])
