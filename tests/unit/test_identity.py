"""One name is one function, and what tells two instances apart is part of the key."""

import enum
import functools
import warnings
from dataclasses import dataclass

import pytest

import semel
from semel.errors import ContractError
from semel.ledger.ledger import Ledger
from tests.tools import a_step, declared, keyed, kinds

# --- one name, one function -------------------------------------------------------------------------


def mail_and_sms(sent: list[str], **second: str):
    @declared(name="send")
    def send_mail(to: str) -> str:
        sent.append(f"mail to {to}")
        return "mailed"

    @declared(**{"name": "send", **second})
    def send_sms(to: str) -> str:
        sent.append(f"sms to {to}")
        return "texted"

    return send_mail, send_sms


def test_another_function_of_the_same_name_is_refused_and_does_not_run(ledger):
    sent: list[str] = []
    mail, sms = mail_and_sms(sent)
    with a_step(ledger):
        assert mail("ann") == "mailed"
        with pytest.raises(ContractError, match=r"send_sms.*send_mail") as refusal:
            sms("ann")
        assert "name=" in str(refusal.value)
        assert mail("ann") == "mailed"
    assert sent == ["mail to ann"]
    assert "refused" not in kinds(ledger)


def test_as_data_it_is_a_result_that_says_so(ledger):
    sent: list[str] = []
    mail, sms = mail_and_sms(sent)
    assert mail.call(semel.ToolCall({"to": "ann"}, idempotency_key="k"), ledger).ok
    result = sms.call(semel.ToolCall({"to": "ann"}, idempotency_key="k"), ledger)
    assert (result.ok, result.error.code, result.value) == (False, "CONTRACT_ERROR", None)
    assert sent == ["mail to ann"]


def test_it_does_not_matter_whether_the_first_is_in_the_cache_or_ever_succeeded(ledger):
    sent: list[str] = []
    mail, sms = mail_and_sms(sent)
    with a_step(ledger):
        mail("ann")
    with a_step(ledger, "another"), pytest.raises(ContractError):
        sms("ben")
    assert sent == ["mail to ann"]


@pytest.mark.parametrize("second", [{"name": "send_sms"}, {"version": "2.0.0"}], ids=str)
def test_another_name_or_major_version_is_another_tool(ledger, second):
    sent: list[str] = []
    mail, sms = mail_and_sms(sent, **second)
    with a_step(ledger):
        assert (mail("ann"), sms("ann")) == ("mailed", "texted")


def test_another_minor_version_is_the_same_tool(ledger):
    mail, sms = mail_and_sms([], version="1.1.0")
    with a_step(ledger):
        mail("ann")
        with pytest.raises(ContractError):
            sms("ann")


def test_a_function_that_is_defined_again_is_the_same(ledger):
    def define():
        @declared()
        def send(to: str) -> str:
            return to

        return send

    with a_step(ledger):
        assert define()("ann") == define()("ann") == "ann"


def test_a_function_behind_a_decorator_is_the_one_that_it_wraps(ledger):
    def send(to: str) -> str:
        return to

    @functools.wraps(send)
    def logged(to: str) -> str:
        return send(to)

    with a_step(ledger):
        assert declared()(send)("ann") == declared()(logged)("ann")


def test_ledgers_do_not_share_their_names(ledger, clock):
    mail, sms = mail_and_sms([])
    with a_step(ledger):
        mail("ann")
    with a_step(Ledger(ledger.store, tenant="globex")):
        assert sms("ann") == "texted"


def test_tools_that_keep_no_record_are_held_to_it_too(ledger):
    @declared(name="look", class_="read")
    def look_here() -> str:
        return "here"

    @declared(name="look")
    def look_there() -> str:
        return "there"

    with a_step(ledger):
        look_there()
        with pytest.raises(ContractError):
            look_here()
    assert look_here() == "here"  # on no ledger there is nobody to be mistaken for


# --- what tells two instances apart -----------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Place:
    town: str


class Account:
    def __init__(self, number: object) -> None:
        self.number = number
        self.entries: list[str] = []

    @keyed(key_of=lambda self: self.number)
    def charge(self, item: str, key: semel.Key) -> str:
        self.entries.append(key)
        return f"{self.number}: {item}"

    @declared(key_of=lambda self: self.number)
    async def acharge(self, item: str) -> str:
        self.entries.append(item)
        return f"{self.number}: {item}"


def test_equal_calls_on_two_instances_are_two_actions(ledger):
    first, second = Account("a"), Account("b")
    with a_step(ledger):
        assert (first.charge("x"), second.charge("x")) == ("a: x", "b: x")
        assert (first.charge("x"), second.charge("x")) == ("a: x", "b: x")
    assert len({*first.entries, *second.entries}) == 2
    assert len(first.entries) == len(second.entries) == 1


def test_instances_that_answer_alike_are_one(ledger):
    with a_step(ledger):
        assert Account("a").charge("x") == Account("a").charge("x")
        again = Account("a")
        again.charge("x")
    assert again.entries == []


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), (None, "None"), (Place("Rome"), Place("Bonn")), (("a", "b"), ("ab",)), (Colour.RED, "blue")],
    ids=str,
)
def test_any_canonical_value_tells_apart(ledger, one, other):
    with a_step(ledger):
        for number in (one, other, one):
            assert Account(number).charge("x") == f"{number}: x"
    assert len(ledger.records.list()) == 2


def test_an_explicit_key_for_one_instance_is_reused_by_another(ledger):
    request = semel.ToolCall({"item": "x"}, idempotency_key="k")
    first, second = Account("a"), Account("b")
    assert first.charge.call(request, ledger).ok
    assert second.charge.call(request, ledger).error.code == "KEY_REUSED"
    assert second.entries == []


def test_instance_and_arguments_are_never_joined(ledger):
    with a_step(ledger):
        Account('b"}').charge("a")
        Account("b").charge('a"}')
    assert len(ledger.records.list()) == 2


@pytest.mark.parametrize("number", [object(), float("nan")], ids=["object", "nan"])
def test_what_has_no_canonical_form_is_refused_before_anything_runs(ledger, number):
    account = Account(number)
    with a_step(ledger), pytest.raises(ContractError, match="key_of"):
        account.charge("x")
    assert (account.entries, ledger.records.list()) == ([], [])


def test_a_key_of_that_fails_is_refused_before_anything_runs(ledger):
    account = Account("a")
    del account.number
    with a_step(ledger), pytest.raises(ContractError, match=r"key_of.*AttributeError"):
        account.charge("x")
    assert account.entries == []


def test_a_key_of_on_a_plain_function_is_an_error():
    with pytest.raises(ContractError, match="key_of"):

        @declared(key_of=lambda self: 1)
        def send(to: str) -> str:
            return to


def test_a_key_of_without_a_key_is_an_error():
    with pytest.raises(ContractError, match="key_of"):

        class Reader:
            @declared(class_="read", key_of=lambda self: 1)
            def look(self) -> str:
                return "x"


@pytest.mark.parametrize("wrong", ["number", 5])
def test_a_key_of_is_a_function(wrong):
    with pytest.raises(ContractError, match="key_of"):

        class Other:
            @declared(key_of=wrong)
            def look(self) -> str:
                return "x"


def test_a_method_without_a_key_of_warns_once_where_it_is_declared(ledger):
    with pytest.warns(UserWarning, match="key_of") as warned:

        class Bank:
            @declared()
            def pay(self, to: str) -> str:
                return to

    assert len(warned) == 1
    assert warned[0].filename == __file__
    with a_step(ledger):
        assert Bank().pay("a") == Bank().pay("a")


def test_a_class_method_without_a_key_of_warns_and_one_with_it_tells_subclasses_apart(ledger):
    with pytest.warns(UserWarning, match="key_of"):

        class Till:
            @classmethod
            @declared()
            def shut(cls) -> str:
                return cls.__name__

    class Bank:
        @classmethod
        @declared(key_of=lambda cls: cls.__name__)
        def pay(cls, to: str) -> str:
            return f"{cls.__name__} pays {to}"

    class Abroad(Bank):
        pass

    with a_step(ledger):
        assert (Bank.pay("a"), Abroad.pay("a")) == ("Bank pays a", "Abroad pays a")


def test_nothing_warns_where_instances_are_told_apart_or_no_record_is_kept():
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Bank:
            @declared(key_of=lambda self: None)
            def pay(self, to: str) -> str:
                return to

            @declared(class_="read")
            def look(self) -> str:
                return "x"

        assert Bank.pay.contract.describe()["key_of"] is True
        assert Bank.look.contract.describe()["key_of"] is False
