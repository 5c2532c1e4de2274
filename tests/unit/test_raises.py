"""`raises=…`: exceptions of the tool's own that are answers, raised as themselves by every call."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

import semel
from semel import ToolCall, errors
from semel.contract import raised
from semel.errors import ContractError, EffectFailed
from tests.patience import PATIENCE_S
from tests.tools import a_step, another_process, declared, kinds, state, the_record


class CardDeclined(Exception):
    def __init__(self, code: str, *, amount: int, advice: dict[str, Any] | None = None) -> None:
        super().__init__(f"declined: {code}")
        self.code, self.amount, self.advice = code, amount, advice

    def __str__(self) -> str:
        return f"declined: {self.code} ({self.amount})"


class CardStolen(CardDeclined):
    pass


@dataclass
class OutOfStock(Exception):
    sku: str
    left: int


class Busy(TimeoutError):
    """A timeout by its base, an answer by itself."""


def as_data_and_back(error: Exception, *kinds_: type[Exception], secrets: Any = ()) -> Any:
    data = raised.as_data(error, secrets)
    return (
        None if data is None else raised.rebuilt(orjson.loads(orjson.dumps(data)), kinds_ or (type(error),))
    )


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def pay(way, ran):
    @way.tool(raises=(CardDeclined,))
    def pay(to: str) -> int:
        ran.append(to)
        raise CardDeclined("no-funds", amount=5, advice={"wait": ["a", 1]})

    return pay


# --- as themselves --------------------------------------------------------------------------------


def test_the_first_call_and_every_replay_raise_it_as_itself(ledger, way, pay, ran):
    for where in (ledger, ledger, another_process(ledger)):
        with a_step(where), pytest.raises(CardDeclined) as declined:
            way.call(pay, "ann")
        error = declined.value
        assert type(error) is CardDeclined
        assert (error.code, error.amount, error.advice) == ("no-funds", 5, {"wait": ["a", 1]})
        assert error.args == ("declined: no-funds",)
        assert str(error) == "declined: no-funds (5)"
        assert (error.__cause__, error.__context__) == (None, None)
    assert ran == ["ann"]
    assert state(ledger) == "failed"


def test_the_first_call_raises_the_very_object_with_what_is_no_data(ledger, way, caplog):
    original = CardDeclined("x", amount=1)
    original.response = object()  # type: ignore[attr-defined]

    @way.tool(raises=(CardDeclined,))
    def pay(to: str) -> int:
        raise original

    with a_step(ledger):
        with pytest.raises(CardDeclined) as first:
            way.call(pay, "ann")
        with pytest.raises(CardDeclined) as again:
            way.call(pay, "ann")
    assert first.value is original
    assert again.value is not original
    assert not hasattr(again.value, "response")
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        "semel: CardDeclined will be replayed without response: no plain data"
    ]


def test_each_replay_is_an_object_of_its_own(ledger, way, pay):
    caught = []
    for _ in range(3):
        with a_step(ledger), pytest.raises(CardDeclined) as declined:
            way.call(pay, "ann")
        declined.value.amount = 7
        caught.append(declined.value)
    assert len(set(map(id, caught))) == 3


def test_the_call_as_data_says_it_in_words(ledger, way, pay):
    with a_step(ledger):
        first, again = way.ask(pay, ToolCall({"to": "ann"})), way.ask(pay, ToolCall({"to": "ann"}))
    assert (first.error.code, first.error.message) == (
        "EFFECT_FAILED",
        "CardDeclined: declined: no-funds (5)",
    )
    assert first.error == again.error
    assert (first.replayed, again.replayed, first.error.retriable) == (False, True, False)
    with pytest.raises(EffectFailed):
        again.unwrap()


def test_a_waiting_caller_gets_it_too(real, ran):
    begun, go = threading.Event(), threading.Event()

    @declared(raises=(CardDeclined,))
    def pay(to: str) -> int:
        ran.append(to)
        begun.set()
        assert go.wait(PATIENCE_S)
        raise CardDeclined("no-funds", amount=5)

    caught: list[BaseException] = []

    def call() -> None:
        try:
            with a_step(real):
                pay("ann")
        except CardDeclined as error:
            caught.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    assert begun.wait(PATIENCE_S)
    go.set()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert len(caught) == 4
    assert ran == ["ann"]


def test_it_settles_a_numbered_step(ledger, way, pay):
    conversation = ledger.conversation("c")
    with conversation.step(), pytest.raises(CardDeclined):
        way.call(pay, "ann")
    assert (conversation.unfinished, conversation.position) == ((), 1)


def test_an_outer_tool_meets_it_as_any_exception_of_its_own(ledger):
    @declared(name="inner", raises=(CardDeclined,))
    def inner(to: str) -> int:
        raise CardDeclined("no-funds", amount=5)

    @declared(name="outer")
    def outer(to: str) -> str:
        try:
            inner(to)
        except CardDeclined as declined:
            return declined.code
        return "paid"

    with a_step(ledger):
        assert outer("ann") == "no-funds"


def test_what_is_not_listed_is_what_it_was(ledger, way):
    @way.tool(raises=(CardDeclined,))
    def pay(to: str) -> int:
        raise ValueError(to)

    with a_step(ledger), pytest.raises(EffectFailed) as failed:
        way.call(pay, "ann")
    assert isinstance(failed.value.__cause__, ValueError)


def test_a_contract_that_lists_it_no_more_replays_it_as_effect_failed(ledger, way, pay):
    with a_step(ledger), pytest.raises(CardDeclined):
        way.call(pay, "ann")
    bare = way.tool(name="pay")(lambda to: 1)
    with a_step(another_process(ledger)), pytest.raises(EffectFailed) as failed:
        way.call(bare, "ann")
    assert type(failed.value) is EffectFailed
    assert failed.value.replayed


def test_a_tool_without_a_record_raises_it_anyway(way):
    @way.tool(class_="read", raises=(CardDeclined,))
    def look(to: str) -> int:
        raise CardDeclined("x", amount=1)

    with pytest.raises(CardDeclined):
        way.call(look, "ann")
    assert way.ask(look, ToolCall({"to": "ann"})).error.code == "EFFECT_FAILED"


# --- families -------------------------------------------------------------------------------------


def test_one_that_derives_from_a_listed_one_is_itself_too(ledger, way):
    @way.tool(name="pay", raises=(CardDeclined,))
    def pay(to: str) -> int:
        raise CardStolen("stolen", amount=1)

    for _ in range(2):
        with a_step(ledger), pytest.raises(CardDeclined) as stolen:
            way.call(pay, "ann")
        assert type(stolen.value) is CardStolen


def test_one_that_leaves_open_what_happened_has_to_be_listed_itself(ledger, way):
    family = way.tool(name="family", raises=(Exception,))(raising(Busy("late")))
    itself = way.tool(name="itself", raises=(Busy,))(raising(Busy("late")))
    with a_step(ledger):
        with pytest.raises(Busy):
            way.call(family, "ann")
        with pytest.raises(errors.OutcomeUnknown):  # a timeout: nobody knows
            way.call(family, "ann")
        for _ in range(2):
            with pytest.raises(Busy):
                way.call(itself, "ann")
    by_tool = {each.request.tool: each.state.value for each in ledger.records.list(scope="tool")}
    assert by_tool == {"family": "in_doubt", "itself": "failed"}


def raising(error: BaseException) -> Any:
    def tool(to: str) -> int:
        raise error

    return tool


def test_a_group_is_no_answer_though_its_members_are(ledger, way):
    tool = way.tool(name="pay", raises=(Exception,))(
        raising(ExceptionGroup("two", [ValueError(1), KeyError(2)]))
    )
    with a_step(ledger), pytest.raises(EffectFailed):
        way.call(tool, "ann")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()])
def test_who_lists_everything_does_not_mean_an_end(ledger, error):
    tool = declared(name="pay", raises=(Exception,))(raising(error))
    with a_step(ledger), pytest.raises(type(error)):
        tool("ann")
    assert state(ledger) == "in_doubt"


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("text", 5, None, [1.5, {"a": True}]),
        KeyError("missing"),
        OSError(2, "No such file", "name"),
        OutOfStock("sku-1", 3),
        LookupError(),
        Busy("late"),
    ],
    ids=repr,
)
def test_arguments_and_attributes_come_back(error):
    again = as_data_and_back(error)
    assert type(again) is type(error)
    assert (again.args, str(again), vars(again)) == (error.args, str(error), vars(error))
    if isinstance(error, OSError):
        assert (again.errno, again.strerror, again.filename) == (error.errno, error.strerror, error.filename)


class Slotted(Exception):
    __slots__ = ("code", "unset")

    def __init__(self, code: str) -> None:
        self.code = code


def test_what_is_kept_in_slots_comes_back():
    again = as_data_and_back(Slotted("x"))
    assert (type(again), again.code, hasattr(again, "unset")) == (Slotted, "x", False)


class Both(KeyError, OSError):
    """Laid out like the second one."""


def test_one_of_two_kinds_comes_back():
    again = as_data_and_back(Both(2, "gone"))
    assert (type(again), again.errno, again.args) == (Both, 2, (2, "gone"))


def test_bytes_are_no_plain_data():
    assert as_data_and_back(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")) is None


def test_a_note_comes_back():
    error = ValueError("x")
    error.add_note("asked twice")
    assert as_data_and_back(error).__notes__ == ["asked twice"]


@pytest.mark.parametrize("odd", [object(), Decimal(1), (1, 2), {1: 2}, b"x", float("nan"), 1 << 70, "\ud800"])
def test_an_attribute_that_is_no_plain_data_is_left_out_and_an_argument_cannot_be(odd):
    error = ValueError("x")
    error.odd = odd  # type: ignore[attr-defined]
    assert vars(as_data_and_back(error)) == {}
    assert as_data_and_back(ValueError(odd)) is None


class NeedsItsClient(Exception):
    def __init__(self, client: Any) -> None:
        super().__init__("x")
        self.client = client

    def __str__(self) -> str:
        return f"{self.client!r}"


def test_what_cannot_be_rebuilt_is_itself_once_and_then_effect_failed(ledger, way, caplog):
    @way.tool(raises=(NeedsItsClient,))
    def pay(to: str) -> int:
        raise NeedsItsClient(object())

    with caplog.at_level(logging.WARNING, "semel"), a_step(ledger):
        with pytest.raises(NeedsItsClient):
            way.call(pay, "ann")
        for _ in range(2):
            with pytest.raises(EffectFailed) as failed:
                way.call(pay, "ann")
    assert type(failed.value) is EffectFailed
    assert "NeedsItsClient cannot be rebuilt" in caplog.text


def test_one_that_is_too_large_is_recorded_without_itself(ledger, way):
    @way.tool(raises=(ValueError,))
    def pay(to: str) -> int:
        raise ValueError("x" * 2_000_000)

    with a_step(ledger):
        with pytest.raises(ValueError, match="xxx"):
            way.call(pay, "ann")
        with pytest.raises(EffectFailed):
            way.call(pay, "ann")


# --- secrets --------------------------------------------------------------------------------------


def test_secrets_stay_out_of_what_is_kept(ledger, way):
    @way.tool(secret=("pin",), raises=(CardDeclined,))
    def pay(pin: str) -> int:
        error = CardDeclined(f"pin {pin} is wrong", amount=1, advice={"pin": pin})
        error.pin = pin  # type: ignore[attr-defined]
        raise error

    with a_step(ledger):
        with pytest.raises(CardDeclined) as first:
            way.call(pay, "geheim-4711")
        with pytest.raises(CardDeclined) as again:
            way.call(pay, "geheim-4711")
    assert "geheim-4711" in first.value.code  # the caller's own
    assert (again.value.code, again.value.pin) == ("pin *** is wrong", "***")  # type: ignore[attr-defined]
    assert not hasattr(again.value, "advice")
    assert b"geheim-4711" not in (the_record(ledger).outcome or b"")


def test_who_tells_it_to_others_has_the_words_of_the_record(ledger, way):
    @way.tool(secret=("pin",), raises=(CardDeclined,))
    def pay(pin: str) -> int:
        raise CardDeclined(f"pin {pin}", amount=1)

    for _ in range(2):
        with a_step(ledger), pytest.raises(CardDeclined) as declined:
            way.call(pay, "geheim-4711")
        answer = raised.contracts_answer(declined.value)
        assert type(answer) is EffectFailed
        assert (answer.message, answer.retriable) == ("CardDeclined: declined: pin *** (1)", False)
    assert raised.contracts_answer(CardDeclined("x", amount=1)) is None


def test_a_model_reads_the_tools_own_words(ledger, way):
    @way.tool(secret=("pin",), raises=(CardDeclined,))
    def pay(pin: str) -> int:
        raise CardDeclined(f"pin {pin}", amount=1)

    with a_step(ledger):
        error = way.ask(pay, ToolCall({"pin": "geheim-4711"})).error
    assert error.for_model.startswith("EFFECT_FAILED: ")
    assert "CardDeclined: declined: pin *** (1)" in error.for_model


# --- safety ---------------------------------------------------------------------------------------


class Dangerous(Exception):
    made: list[str] = []  # noqa: RUF012

    def __new__(cls, *args: Any) -> Dangerous:
        cls.made.append("new")
        return super().__new__(cls, *args)

    def __init__(self, *args: Any) -> None:
        self.made.append("init")
        super().__init__(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        self.made.append(name)

    def __setstate__(self, state: Any) -> None:
        self.made.append("state")

    def __reduce__(self) -> Any:
        self.made.append("reduce")
        return eval, ("1",)


def test_rebuilding_runs_no_code_of_the_class():
    error = Dangerous("x")
    Dangerous.made.clear()
    assert as_data_and_back(error).args == ("x",)
    assert Dangerous.made == []


class Closed(Exception):
    """One that lets nobody look at what it is made of."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise RuntimeError("nobody looks")
        return super().__getattribute__(name)


def test_one_that_cannot_be_looked_at_is_recorded_all_the_same(ledger, way):
    ran: list[int] = []

    @way.tool(raises=(Closed,))
    def pay(to: str) -> int:
        ran.append(1)
        raise Closed("declined")

    for expected in (Closed, EffectFailed):
        with a_step(ledger), pytest.raises(expected, match="declined"):
            way.call(pay, "ann")
    assert ran == [1]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        {},
        {"module": "builtins", "name": "SystemExit", "args": [1], "attributes": {}},
        {"module": "builtins", "name": "KeyboardInterrupt", "args": [], "attributes": {}},
        {"module": "os", "name": "system", "args": ["true"], "attributes": {}},
        {"module": __name__, "name": "OutOfStock", "args": [], "attributes": {}},
        {"module": "elsewhere", "name": "CardDeclined", "args": [], "attributes": {}},
        {"module": __name__, "name": "CardDeclined", "args": 5, "attributes": {}},
        {"module": __name__, "name": "CardDeclined", "args": [], "attributes": 5},
        {"module": __name__, "name": "CardDeclined", "args": []},
    ],
)
def test_what_somebody_else_wrote_into_a_store_builds_nothing_that_is_not_listed(data):
    assert raised.rebuilt(data, (CardDeclined,)) is None


def test_what_somebody_else_wrote_changes_nothing_but_attributes():
    data = {
        "module": __name__,
        "name": "CardDeclined",
        "args": ["x"],
        "attributes": {
            "__class__": "x",
            "__traceback__": 1,
            "__cause__": "y",
            "args": ["z"],
            "code": "c",
            "amount": 1,
        },
    }
    error = raised.rebuilt(data, (CardDeclined,))
    assert type(error) is CardDeclined
    assert (error.args, error.__cause__, error.__traceback__, str(error)) == (
        ("x",),
        None,
        None,
        "declined: c (1)",
    )


# --- other processes ------------------------------------------------------------------------------

SHOP = """
    import sys
    import semel

    class CardDeclined(Exception):
        def __init__(self, code, amount):
            super().__init__(code)
            self.amount = amount

    @semel.tool_contract(raises=(CardDeclined,))
    def pay(to: str) -> int:
        print("ran")
        raise CardDeclined("no-funds", 5)

    def main():
        with semel.open("sqlite:///shop.db") as ledger, ledger.step(conversation="c", step="1"):
            try:
                pay("ann")
            except CardDeclined as declined:
                print(type(declined).__module__, declined.args, declined.amount)

    if __name__ == "__main__":
        main()
"""


def test_it_is_itself_in_another_process_also_where_its_module_was_the_program(tmp_path: Path):
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP))
    told = [
        subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(semel.__file__).parents[1]), "."])},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout.splitlines()
        for command in (["shop.py"], ["shop.py"], ["-c", "import shop; shop.main()"])
    ]
    assert told == [
        ["ran", "__main__ ('no-funds',) 5"],
        ["__main__ ('no-funds',) 5"],
        ["shop ('no-funds',) 5"],
    ]


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"raises": ("CardDeclined",)}, "exception classes"),
        ({"raises": (SystemExit,)}, "of the tool's own"),
        ({"raises": (BaseException,)}, "of the tool's own"),
        ({"raises": (errors.EffectFailed,)}, "of the tool's own"),
        ({"raises": (ExceptionGroup,)}, "of the tool's own"),
        ({"raises": (CardDeclined,), "refused": (CardDeclined,)}, "refused=CardDeclined"),
        ({"raises": (CardStolen,), "transient": (CardDeclined,)}, "transient=CardDeclined"),
        ({"raises": (Exception,), "transient": (TimeoutError,)}, "transient=TimeoutError"),
    ],
)
def test_what_cannot_be_an_answer_is_refused_where_it_is_declared(said, says):
    with pytest.raises(ContractError, match=says):
        declared(name="pay", **said)(lambda to: to)


def test_one_may_be_given_without_a_tuple_and_is_described():
    tool = declared(name="pay", raises=CardDeclined)(lambda to: to)
    assert tool.contract.raises == (CardDeclined,)
    assert tool.contract.describe()["raises"] == [f"{__name__}.CardDeclined"]


def test_the_events_are_those_of_any_failure(ledger, way, pay):
    with a_step(ledger), pytest.raises(CardDeclined):
        way.call(pay, "ann")
    assert kinds(ledger)[:2] == ["claimed", "settled"]
