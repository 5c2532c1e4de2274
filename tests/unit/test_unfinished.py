"""A numbered step does not move on while a call in it is unfinished, however its caller was told."""

import asyncio
import threading
from typing import Any

import pytest

import semel
from semel import errors
from semel.audit.verify import verify
from semel.call.unfinished import Action, Unfinished
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore
from tests.tools import a_step, declared, events, keyed


class Declined(Exception):
    """Proves that nothing happened."""


class Bank:
    """Fails as it is told to, then pays."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.paid: list[str] = []

    def pay(self, account: str) -> str:
        if self.failures:
            raise self.failures.pop(0)
        self.paid.append(account)
        return f"paid {account}"


@pytest.fixture
def bank() -> Bank:
    return Bank()


def tool_of(bank: Bank, **said: Any) -> Any:
    def pay(account: str, key: semel.Key) -> str:
        return bank.pay(account)

    return keyed(name="pay", refused=(Declined,), **said)(pay)


def codes(conversation: Any) -> list[tuple[str, str]]:
    return [(call.tool, call.code) for call in conversation.unfinished]


def as_data(pay: Any) -> None:
    assert not pay.call(semel.ToolCall({"account": "a"})).ok


def caught(pay: Any) -> None:
    with pytest.raises(BaseException):  # noqa: B017, PT011  the caller catches whatever comes
        pay("a")


HANDED = pytest.mark.parametrize("handed", [as_data, caught], ids=lambda way: way.__name__)


# --- what is unfinished -----------------------------------------------------------------------------


@HANDED
def test_a_retriable_call_is_made_again_with_the_same_key(ledger, bank, handed):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step():
        handed(pay)
    assert conversation.position == 0
    assert codes(conversation) == [("pay", "UPSTREAM_TIMEOUT")]
    with conversation.step():
        pay("a")
    assert (conversation.position, conversation.unfinished, bank.paid) == (1, (), ["a"])
    assert len(ledger.records.list()) == 1


@HANDED
def test_a_call_in_doubt_that_only_a_person_can_clear_holds_the_step(ledger, bank, handed):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank, on_unknown="park"), ledger.conversation("conv-42")
    for _ in range(3):
        with conversation.step():
            handed(pay)
    [call] = conversation.unfinished
    [record] = ledger.records.list()
    assert (conversation.position, call.code, call.record_id) == (0, "OUTCOME_UNKNOWN", record.request.id)
    ledger.records.resolve(record.request.id, "happened", result="paid", by="ann")
    with conversation.step():
        assert pay("a") == "paid"
    assert (conversation.position, bank.paid) == (1, [])


@HANDED
def test_a_call_that_waits_for_a_person_holds_the_step_and_asks_once(ledger, bank, handed):
    pay, conversation = tool_of(bank, approval="required"), ledger.conversation("conv-42")
    for _ in range(3):
        with conversation.step():
            handed(pay)
    [question] = ledger.approvals.list()
    [call] = conversation.unfinished
    assert (conversation.position, call.code, call.job_id) == (0, "APPROVAL_REQUIRED", question.job_id)
    ledger.approvals.approve(question.job_id, by="ann")
    with conversation.step():
        pay("a")
    assert (conversation.position, bank.paid) == (1, ["a"])


def test_a_rejected_call_is_finished(ledger, bank):
    pay, conversation = tool_of(bank, approval="required"), ledger.conversation("conv-42")
    with conversation.step():
        as_data(pay)
    ledger.approvals.reject(conversation.unfinished[0].job_id, by="ann")
    with conversation.step():
        as_data(pay)
    assert (conversation.position, bank.paid) == (1, [])


@HANDED
def test_a_store_that_is_away_holds_the_step(shaky, flaky, bank, handed):
    pay, conversation = tool_of(bank), shaky.conversation("conv-42")
    flaky.down = True
    with conversation.step():
        handed(pay)
    assert codes(conversation) == [("pay", "STORE_UNAVAILABLE")]
    flaky.down = False
    with conversation.step():
        pay("a")
    assert (conversation.position, bank.paid) == (1, ["a"])


@HANDED
def test_a_call_that_someone_else_performs_holds_the_step(ledger, bank, handed):
    conversation, seen = ledger.conversation("conv-42"), []
    pay = tool_of(bank, in_flight="refuse")

    def another() -> None:
        with conversation.step():
            handed(pay)
        seen.append((conversation.position, codes(conversation)))

    def meanwhile(account: str) -> str:
        thread_of(another)
        return "paid"

    bank.pay = meanwhile
    a_step(ledger, "0").run(pay, "a")
    assert seen == [(0, [("pay", "RETRY_IN_FLIGHT")])]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_interrupt_that_is_caught_in_the_block_holds_the_step(ledger, bank, interrupt):
    bank.failures = [interrupt()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step(), pytest.raises(interrupt):
        pay("a")
    assert conversation.position == 0
    with conversation.step():
        pay("a")
    assert (conversation.position, bank.paid) == (1, ["a"])


@HANDED
def test_what_proved_that_nothing_happened_may_be_called_again_in_its_step(ledger, bank, handed):
    bank.failures = [Declined()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step():
        handed(pay)
    assert conversation.position == 0
    with conversation.step():
        pay("a")
    assert (conversation.position, bank.paid) == (1, ["a"])


def test_who_lost_its_key_to_another_reads_what_that_one_recorded(ledger, clock, bank):
    pay, conversation = tool_of(bank, lease="10s"), ledger.conversation("conv-42")

    def frozen(account: str) -> str:
        del bank.pay  # the next entry pays
        clock.advance("11s")
        thread_of(lambda: a_step(ledger, "0").run(pay, "a"))
        return "paid too late"

    bank.pay = frozen
    with conversation.step():
        result = pay.call(semel.ToolCall({"account": "a"}))
    assert result.error.code == "OWNERSHIP_LOST"
    assert (conversation.position, codes(conversation)) == (0, [("pay", "OWNERSHIP_LOST")])
    with conversation.step():
        assert pay("a") == "paid a"
    assert conversation.position == 1


def test_a_damaged_record_holds_the_step(bank, clock):
    class Damaged(MemoryStore):
        def perform(self, command):
            raise errors.StoreCorrupt

    conversation = Ledger(Damaged(clock=clock)).conversation("conv-42")
    with conversation.step():
        as_data(tool_of(bank))
    assert codes(conversation) == [("pay", "STORE_CORRUPT")]


# --- what is finished -------------------------------------------------------------------------------


def test_failures_on_record_are_finished_also_those_that_call_themselves_retriable(ledger):
    @declared()
    def fail(how: str) -> semel.ToolResult[str]:
        if how == "raise":
            raise LookupError(how)
        if how == "partial":
            return semel.ToolResult.partial(done=1, remaining=2)
        return semel.ToolResult.failure("RATE_LIMITED", retriable=True)

    conversation = ledger.conversation("conv-42")
    for how in ("raise", "partial", "retriable"):
        with conversation.step():
            assert not fail.call(semel.ToolCall({"how": how})).ok
    assert conversation.position == 3


def test_refusals_before_the_claim_are_finished(ledger, bank):
    pay = tool_of(bank, scopes={"pay"})
    conversation = ledger.conversation("conv-42", scopes={"pay"})
    with conversation.step():
        assert pay.call(semel.ToolCall({"account": 1, "x": 2})).error.code == "INVALID_ARGUMENTS"
        assert pay.call(semel.ToolCall({"account": "a"}, scopes=())).error.code == "SCOPE_DENIED"
        assert pay.call(semel.ToolCall({"account": "a"}, version="7.0.0")).error.code == "VERSION_MISMATCH"
        assert pay.call(semel.ToolCall({"account": "a" * 2_000_000})).error.code == "TOO_LARGE"
    assert conversation.position == 1


def test_a_refused_use_of_its_key_does_not_finish_a_call(ledger, bank):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step():
        pay.call(semel.ToolCall({"account": "a"}, idempotency_key="k"))
        assert pay.call(semel.ToolCall({"account": "b"}, idempotency_key="k")).error.code == "KEY_REUSED"
    assert codes(conversation) == [("pay", "UPSTREAM_TIMEOUT")]


def test_the_same_key_of_another_tenant_or_store_does_not_finish_a_call(ledger, bank, clock):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step():
        given = semel.ToolCall({"account": "a"}, idempotency_key="k")
        pay.call(given)
        for another in (
            Ledger(ledger.store, tenant="bank"),
            Ledger(MemoryStore(clock=clock), tenant="default"),
        ):
            assert pay.call(given, another).ok
    assert codes(conversation) == [("pay", "UPSTREAM_TIMEOUT")]


def test_a_call_that_is_finished_later_in_the_block_lets_it_move_on(ledger, bank):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step():
        as_data(pay)
        pay("a")
    assert conversation.position == 1


def test_a_replay_from_memory_finishes_a_call_too(ledger, bank):
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step() as step:
        thread_of(lambda: a_step(ledger, "0").run(pay, "a"))
        key = pay_key(ledger)
        action = Action(ledger.store.secret_key, ledger.tenant, key)
        step.open_calls.leave(action, Unfinished("pay", "X", "", "", key))
        pay("a")
    assert conversation.position == 1


def test_another_turn_without_the_call_does_not_finish_it(ledger, bank):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step():
        as_data(pay)
    with conversation.step():
        pay("b")
    assert (conversation.position, len(conversation.unfinished)) == (0, 1)


def test_tools_that_keep_no_record_have_nothing_to_finish(ledger):
    @declared(class_="read", transient=(TimeoutError,))
    def look() -> str:
        raise TimeoutError

    conversation = ledger.conversation("conv-42")
    with conversation.step():
        assert look.call(semel.ToolCall({})).error.retriable
    assert conversation.position == 1


# --- wherever it is called --------------------------------------------------------------------------


def in_a_task(ledger: Ledger, pay: Any, step: Any) -> None:
    async def main() -> None:
        await asyncio.gather(asyncio.to_thread(as_data, pay), return_exceptions=True)

    asyncio.run(main())


def in_a_nested_step(ledger: Ledger, pay: Any, step: Any) -> None:
    with ledger.step(step="inner"), ledger.step(step="innermost"):
        as_data(pay)


def through_run(ledger: Ledger, pay: Any, step: Any) -> None:
    with pytest.raises(TimeoutError):
        step.run(pay, "a")


def through_run_on_a_thread(ledger: Ledger, pay: Any, step: Any) -> None:
    thread_of(lambda: through_run(ledger, pay, step))


def through_run_of_a_nested_step(ledger: Ledger, pay: Any, step: Any) -> None:
    with pytest.raises(TimeoutError):
        ledger.step(step="inner").run(pay, "a")


def in_a_resumed_step(ledger: Ledger, pay: Any, step: Any) -> None:
    with ledger.resume(step.carry()):
        as_data(pay)


def with_a_key_of_its_own(ledger: Ledger, pay: Any, step: Any) -> None:
    assert not pay.call(semel.ToolCall({"account": "a"}, idempotency_key="k")).ok


WAYS = (
    in_a_task,
    in_a_nested_step,
    through_run,
    through_run_on_a_thread,
    through_run_of_a_nested_step,
    in_a_resumed_step,
    with_a_key_of_its_own,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_call_is_noted_wherever_in_the_block_it_is_made(ledger, bank, way):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step() as step:
        way(ledger, pay, step)
    assert (conversation.position, codes(conversation)) == (0, [("pay", "UPSTREAM_TIMEOUT")])
    with conversation.step() as step:
        if way is with_a_key_of_its_own:
            assert pay.call(semel.ToolCall({"account": "a"}, idempotency_key="k")).ok
        elif "nested" in way.__name__:
            again = ledger.step(step="inner")
            if way is in_a_nested_step:
                with again:
                    again = ledger.step(step="innermost")
            again.run(pay, "a")
        else:
            pay("a")
    assert (conversation.position, bank.paid) == (1, ["a"])


def test_a_task_that_is_still_running_holds_the_step(real):
    conversation = real.conversation("conv-42")

    begun, goes_on = asyncio.Event(), asyncio.Event()

    @declared()
    async def slow() -> str:
        begun.set()
        await goes_on.wait()
        return "late"

    async def main() -> None:
        async with conversation.step():
            task = asyncio.create_task(slow())
            await begun.wait()
        assert codes(conversation) == [("slow", "RETRY_IN_FLIGHT")]
        assert conversation.position == 0
        goes_on.set()
        await task
        async with conversation.step():
            pass

    asyncio.run(main())
    assert (conversation.position, conversation.unfinished) == (1, ())


def test_a_caller_that_was_told_to_come_again_may_although_another_one_finished_meanwhile(real):
    """Two equal calls of one turn: who was refused asks again in the next turn, and meets the same key."""
    conversation, runs = real.conversation("conv-42"), []

    begun, refused = asyncio.Event(), asyncio.Event()

    @declared(in_flight="refuse")
    async def send(text: str) -> str:
        runs.append(text)
        begun.set()
        await refused.wait()
        return text

    async def second() -> None:
        with pytest.raises(errors.InFlight):
            await send("hi")
        refused.set()

    async def main() -> None:
        async with conversation.step():
            first = asyncio.create_task(send("hi"))
            await begun.wait()
            await asyncio.gather(first, second())
        assert codes(conversation) == [("send", "RETRY_IN_FLIGHT")]
        async with conversation.step():
            await send("hi")

    asyncio.run(main())
    assert (conversation.position, runs) == (1, ["hi"])


def test_an_inner_conversation_holds_the_outer_one_too(ledger, bank):
    bank.failures = [TimeoutError()]
    pay = tool_of(bank)
    outer, inner = ledger.conversation("outer"), ledger.conversation("inner")
    with outer.step(), inner.step():
        as_data(pay)
    assert (outer.position, inner.position) == (0, 0)
    with outer.step(), inner.step():
        pay("a")
    assert (outer.position, inner.position) == (1, 1)


def test_a_call_outside_the_block_does_not_hold_it(ledger, bank):
    bank.failures = [TimeoutError()]
    pay, conversation = tool_of(bank), ledger.conversation("conv-42")
    with conversation.step():
        pass
    with a_step(ledger):
        as_data(pay)
    with conversation.step():
        pass
    assert conversation.position == 2


# --- moving on openly -------------------------------------------------------------------------------


def test_skipping_moves_on_and_the_audit_says_what_was_left(ledger, bank):
    bank.failures = [TimeoutError()]
    pay = tool_of(bank)
    conversation = ledger.conversation("conv-42", principal="bot")
    with conversation.step():
        as_data(pay)
    [call] = conversation.unfinished
    conversation.skip()
    assert (conversation.position, conversation.unfinished) == (1, ())
    [line] = [event for event in events(ledger) if event.kind == "skipped"]
    assert (line.record_id, line.key, line.state, line.tool) == (call.record_id, call.key, call.code, "pay")
    assert (line.conversation, line.step, line.by) == ("conv-42", '["0"]', "bot")
    with conversation.step():
        pay("a")
    assert conversation.position == 2


def test_a_skip_without_anything_unfinished_is_in_the_audit_too(ledger):
    conversation = ledger.conversation("conv-42")
    conversation.skip()
    assert conversation.position == 1
    assert [(event.kind, event.step) for event in events(ledger)] == [("skipped", '["0"]')]


def test_a_step_is_not_skipped_while_it_is_open(ledger):
    conversation = ledger.conversation("conv-42")
    with conversation.step(), pytest.raises(errors.StepError, match="open"):
        conversation.skip()
    assert conversation.position == 1


def test_a_skip_outlives_a_store_that_is_away_and_the_chain_is_whole(bank, clock):
    bank.failures = [TimeoutError()]
    store = MemoryStore(clock=clock)
    flaky = FlakyStore(store)
    ledger = Ledger(flaky, tenant="acme")
    conversation = ledger.conversation("conv-42")
    with conversation.step():
        as_data(tool_of(bank))
    flaky.down = True
    conversation.skip()
    ledger.keeper.flush()
    flaky.down = False
    ledger.keeper.close()
    reader = Ledger(store, tenant="acme")
    assert [event.kind for event in events(reader)].count("skipped") == 1
    assert verify(store).whole


def test_a_task_that_ends_after_the_skip_is_no_business_of_the_next_step(real):
    conversation = real.conversation("conv-42")

    begun = asyncio.Event()

    @declared()
    async def slow() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "late"

    async def main() -> None:
        async with conversation.step():
            task = asyncio.create_task(slow())
            await begun.wait()
        conversation.skip()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with conversation.step():
            pass

    asyncio.run(main())
    assert conversation.position == 2


def thread_of(work: Any) -> None:
    """On a thread of its own, and so in no step."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed, failed


def pay_key(ledger: Ledger) -> str:
    [record] = ledger.records.list()
    return record.request.at.key


def test_a_call_that_comes_after_its_step_is_refused(ledger, bank):
    conversation, pay = ledger.conversation("c"), tool_of(bank)
    with conversation.step() as step:
        pay("a")
    with pytest.raises(errors.StepError, match="over"):
        step.run(pay, "b")
    assert bank.paid == ["a"]
