"""Where keys are made: steps, conversations, and how a step follows the call."""

import asyncio
import base64
import contextvars
import hmac
import json
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

import pytest

import semel
from semel.call.step import current_step
from semel.errors import NoStep, ScopeDenied, StepError
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from tests.tools import a_step, another_process, declared, the_record


@declared()
def key_of(what: str = "x") -> str:
    """The key that this call got: the same for the same step."""
    return str(semel.current_key())


@declared(name="async_key_of")
async def async_key_of(what: str = "x") -> str:
    return str(semel.current_key())


async def awaited(call: Awaitable[str]) -> str:
    return await call


# --- one step -------------------------------------------------------------------------------------


def test_with_and_async_with_open_the_same_step(ledger):
    async def within() -> str:
        async with a_step(ledger):
            return key_of()

    there = asyncio.run(within())
    with a_step(ledger):
        assert key_of() == there


def test_leaving_a_step_clears_it_also_after_an_exception(ledger):
    with pytest.raises(LookupError), a_step(ledger):
        raise LookupError
    assert current_step() is None
    with pytest.raises(NoStep):
        key_of()


def test_a_step_that_is_open_cannot_be_opened_again(ledger):
    step = a_step(ledger)
    with step, pytest.raises(StepError, match="already open"):
        step.__enter__()
    with step:
        key_of()


def test_tasks_of_the_step_are_in_it(ledger):
    async def both() -> list[str]:
        return await asyncio.gather(async_key_of(), async_key_of())

    with a_step(ledger):
        assert set(asyncio.run(both())) == {asyncio.run(awaited(async_key_of()))}


def test_a_thread_of_asyncio_is_in_the_step(ledger):
    async def within() -> str:
        return await asyncio.to_thread(key_of)

    with a_step(ledger):
        assert asyncio.run(within()) == key_of()


def test_a_task_that_outlives_the_step_is_in_none(ledger):
    async def late(gone: asyncio.Event) -> None:
        await gone.wait()
        await async_key_of()

    async def main() -> None:
        gone = asyncio.Event()
        async with a_step(ledger):
            task = asyncio.create_task(late(gone))
            await asyncio.sleep(0)
        gone.set()
        with pytest.raises(NoStep):
            await task

    asyncio.run(main())
    assert ledger.records.list() == []


def test_a_task_that_outlives_the_step_stays_in_one_of_its_own(ledger):
    async def late(gone: asyncio.Event) -> str:
        async with ledger.step(step="own"):
            await gone.wait()
            return await async_key_of()

    async def main() -> str:
        gone = asyncio.Event()
        async with a_step(ledger):
            task = asyncio.create_task(late(gone))
            await asyncio.sleep(0)
        gone.set()
        return await task

    assert asyncio.run(main()) == the_record(ledger).request.at.key


def test_threads_and_executors_are_in_no_step(ledger):
    with a_step(ledger), ThreadPoolExecutor(1) as pool, pytest.raises(NoStep):
        pool.submit(key_of).result()


def test_a_worker_thread_with_a_copy_of_the_context_is_not_in_a_step_that_was_left(ledger):
    with a_step(ledger):
        copied = contextvars.copy_context()
        assert copied.run(key_of)
    with pytest.raises(NoStep):
        copied.run(key_of)


def test_an_async_generator_that_is_closed_elsewhere_leaves_its_step(ledger):
    async def numbers():
        async with a_step(ledger):
            yield 1
            yield 2

    async def main() -> None:
        generator = numbers()
        await asyncio.create_task(generator.__anext__())
        await generator.aclose()
        with pytest.raises(NoStep):
            key_of()

    asyncio.run(main())


# --- elsewhere ------------------------------------------------------------------------------------


def test_a_carried_step_is_json_and_resumes_as_the_same_step(ledger):
    with a_step(ledger, scopes={"b", "a"}, principal="bot") as step:
        here = key_of()
        carried = json.loads(json.dumps(step.carry()))
    resumed = ledger.resume(carried)
    with resumed:
        assert key_of() == here
    assert (resumed.scopes, resumed.principal) == ({"a", "b"}, "bot")


def test_a_nested_step_is_carried_with_its_path(ledger):
    with a_step(ledger), ledger.step(step="inner") as step:
        here = key_of()
        carried = step.carry()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: ledger.resume(carried).run(key_of)).result() == here


def test_a_resumed_step_ignores_the_step_around_it(ledger):
    with a_step(ledger) as step:
        here = key_of()
        carried = step.carry()
    with a_step(ledger, "other"), ledger.resume(carried):
        assert key_of() == here


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "globex"},
        {"format": 3},
        {"path": []},
        {"path": "refund-1"},
        {"path": [5]},
        {"path": [""]},
        {"conversation": ""},
        {"conversation": None},
        {"conversation": "conv-43"},
        {"path": ["refund-2"]},
        {"path": ["refund-1", "inner"]},
        {"scopes": ["pay", "admin"]},
        {"scopes": []},
        {"principal": "ann"},
        {"expires": "never"},
        {5: "five"},
        {"signature": ""},
        {"signature": None},
        {"signature": "0" * 64},
        {"signature": "ü"},
        {"principal": "\ud800"},
    ],
    ids=ascii,
)
def test_what_is_not_a_carried_step_of_this_tenant_is_refused(ledger, change):
    carried = a_step(ledger, scopes={"pay"}, principal="bot").carry()
    with pytest.raises(StepError):
        ledger.resume({**carried, **change})
    assert ledger.resume(carried).scopes == {"pay"}


def test_a_step_is_resumed_by_every_ledger_of_its_store_and_tenant_and_by_no_other(ledger, clock):
    carried = a_step(ledger, scopes={"pay"}).carry()
    assert another_process(ledger).resume(carried).scopes == {"pay"}
    with pytest.raises(StepError, match="of another store"):
        Ledger(MemoryStore(clock=clock), tenant="acme").resume(carried)


def test_a_step_that_was_carried_unsigned_by_an_older_version_is_refused_and_told_why(ledger):
    carried = a_step(ledger).carry() | {"format": 1}
    del carried["signature"]
    with pytest.raises(StepError, match="older version"):
        ledger.resume(carried)


def test_a_carried_step_does_not_hold_the_key_that_signed_it(ledger):
    secret = ledger.store.secret_key
    text = json.dumps(a_step(ledger).carry())
    assert secret.hex() not in text
    assert base64.b64encode(secret).decode() not in text
    assert hmac.digest(secret, a_step(ledger).path_text.encode(), "sha256").hex() not in text


@pytest.mark.parametrize(
    "missing", ["format", "tenant", "conversation", "path", "scopes", "principal", "signature"]
)
def test_a_carried_step_with_something_missing_is_refused(ledger, missing):
    carried = a_step(ledger).carry()
    del carried[missing]
    with pytest.raises(StepError, match=missing):
        ledger.resume(carried)


@pytest.mark.parametrize("nothing", [None, [], "step", 5])
def test_what_is_no_data_of_a_step_is_refused(ledger, nothing):
    with pytest.raises(StepError):
        ledger.resume(nothing)


def test_a_step_runs_a_tool_without_any_context(ledger):
    step = a_step(ledger)
    here = step.run(key_of, what="x")
    with step:
        assert key_of("x") == here
    there = asyncio.run(awaited(step.run(async_key_of, "x")))
    with step:
        assert asyncio.run(awaited(async_key_of("x"))) == there
    assert current_step() is None


def test_a_step_runs_tools_in_many_threads_at_once(real):
    step, found = a_step(real), set()
    threads = [threading.Thread(target=lambda: found.add(step.run(key_of))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_a_step_that_runs_an_async_tool_is_left_when_the_tool_ends(ledger):
    async def main() -> None:
        await a_step(ledger).run(async_key_of)
        assert current_step() is None

    asyncio.run(main())


# --- names ----------------------------------------------------------------------------------------


def test_names_are_never_joined(ledger):
    names = [("a", "b/c"), ("a/b", "c"), ("a", "b\x1fc"), ("ab", "c"), ("a", "bc")]
    keys = set()
    for conversation, name in names:
        with ledger.step(conversation=conversation, step=name):
            keys.add(key_of())
    assert len(keys) == len(names)


@pytest.mark.parametrize("name", ["", None, 5, "\ud800", "x" * 513, "ü" * 257], ids=repr)
def test_a_name_that_cannot_go_into_a_key_is_refused(ledger, name):
    with pytest.raises(StepError):
        ledger.step(conversation="conv", step=name)
    with pytest.raises(StepError):
        ledger.step(conversation=name, step="s")
    with pytest.raises(StepError):
        ledger.conversation(name)


def test_a_step_alone_needs_a_conversation(ledger):
    with pytest.raises(StepError, match="conversation"):
        ledger.step(step="s")


def test_a_single_scope_may_be_given_as_a_text(ledger):
    tool = declared(scopes="pay", name="pay")(key_of_unguarded)
    with a_step(ledger, scopes="pay"):
        tool()
    with a_step(ledger, "other", scopes="payments"), pytest.raises(ScopeDenied):
        tool()


def key_of_unguarded() -> str:
    return str(semel.current_key())


def test_the_key_does_not_depend_on_scopes_or_principal(ledger):
    with a_step(ledger, scopes={"a"}, principal="one"):
        first = key_of()
    with a_step(ledger, scopes={"b"}, principal="other"):
        assert key_of() == first


def test_tenants_make_other_keys(ledger):
    with a_step(ledger):
        here = key_of()
    with a_step(Ledger(ledger.store, tenant="globex")):
        assert key_of() != here


# --- nesting --------------------------------------------------------------------------------------


def test_nested_steps_get_a_path(ledger):
    found = []
    for outer in ("a", "b"):
        with a_step(ledger, outer):
            for inner in ("x", "y"):
                with ledger.step(step=inner) as step:
                    found.append((step.path, key_of()))
    assert [path for path, _ in found] == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert len({key for _, key in found}) == 4


def test_a_nested_step_is_not_a_step_with_a_joined_name(ledger):
    with a_step(ledger, "a"), ledger.step(step="b"):
        nested = key_of()
    for name in ("a/b", "a.b", "ab", '["a","b"]'):
        with a_step(ledger, name):
            assert key_of() != nested


def test_a_nested_step_inherits_scopes_and_principal_unless_it_says_otherwise(ledger):
    with a_step(ledger, scopes={"a"}, principal="bot"):
        with ledger.step(step="same") as same:
            assert (same.scopes, same.principal) == ({"a"}, "bot")
        with ledger.step(step="less", scopes=(), principal="") as less:
            assert (less.scopes, less.principal) == (set(), "")


def test_a_step_of_another_conversation_or_ledger_is_not_nested(ledger):
    with a_step(ledger):
        with ledger.step(conversation="conv-43", step="s") as other:
            assert other.path == ("s",)
        with Ledger(ledger.store, tenant="globex").step(conversation="conv-42", step="s") as abroad:
            assert abroad.path == ("s",)


def test_leaving_an_inner_step_returns_to_the_outer_one(ledger):
    with a_step(ledger):
        before = key_of()
        with ledger.step(step="inner"):
            assert key_of() != before
        assert key_of() == before


# --- conversations --------------------------------------------------------------------------------


def test_a_conversation_numbers_its_steps(ledger):
    conversation, keys = ledger.conversation("conv-42"), []
    for _ in range(3):
        with conversation.step() as step:
            keys.append((step.path, key_of()))
    assert [path for path, _ in keys] == [("0",), ("1",), ("2",)]
    assert len({key for _, key in keys}) == 3
    assert conversation.position == 3


def test_a_retry_in_place_meets_the_same_number(ledger):
    conversation, keys = ledger.conversation("conv-42"), []
    for fails in (True, True, False):
        try:
            with conversation.step():
                keys.append(key_of())
                if fails:
                    raise LookupError
        except LookupError:
            assert conversation.position == 0
    assert len(set(keys)) == 1
    assert conversation.position == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_the_number_stays_when_the_step_is_interrupted(ledger, error):
    conversation = ledger.conversation("conv-42")
    with pytest.raises(error), conversation.step():
        raise error
    assert conversation.position == 0


def test_a_conversation_goes_on_where_its_caller_says(ledger):
    first = ledger.conversation("conv-42")
    for _ in range(2):
        with first.step():
            pass
    with first.step():
        here = key_of()
    with ledger.conversation("conv-42", at=2).step():
        assert key_of() == here


def test_a_second_open_step_of_a_conversation_is_refused(ledger):
    conversation = ledger.conversation("conv-42")
    with conversation.step():
        with pytest.raises(StepError, match="already has an open step"), conversation.step():
            pass
        with ledger.step(step="inner") as inner:
            assert inner.path == ("0", "inner")
    assert conversation.position == 1


def test_a_numbered_step_is_used_once(ledger):
    conversation = ledger.conversation("conv-42")
    step = conversation.step()
    with step:
        pass
    with pytest.raises(StepError, match="over"), step:
        pass


def test_an_asynchronous_numbered_step_advances_too(ledger):
    conversation = ledger.conversation("conv-42")

    async def main() -> None:
        async with conversation.step():
            await async_key_of()

    asyncio.run(main())
    assert conversation.position == 1


def test_a_numbered_step_inside_a_step_of_the_same_conversation_is_nested(ledger):
    keys = set()
    for outer in ("a", "b"):
        with a_step(ledger, outer), ledger.conversation("conv-42").step() as step:
            assert step.path == (outer, "0")
            keys.add(key_of())
    assert len(keys) == 2


@pytest.mark.parametrize("at", [-1, True, "1", 1.0, None])
def test_a_position_is_a_whole_number_from_zero(ledger, at):
    with pytest.raises(StepError, match="position"):
        ledger.conversation("conv-42", at=at)


def test_a_conversations_scopes_are_those_of_its_steps(ledger):
    conversation = ledger.conversation("conv-42", scopes={"a"}, principal="bot")
    assert (conversation.step().scopes, conversation.step().principal) == ({"a"}, "bot")
    assert conversation.step(scopes={"b"}).scopes == {"b"}
