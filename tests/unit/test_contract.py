"""What a contract declares, what it refuses to declare, and what frameworks see of it."""

import inspect
import json
import typing
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from pydantic import BaseModel

import semel
from semel.errors import ContractError, InvalidArguments
from tests.tools import a_step, declared, keyed


class Refund(BaseModel):
    id: str
    token: str = ""


class Unstorable:
    """Pydantic knows nothing about it."""


class UpstreamTimeout(Exception):
    """The downstream did not answer."""


def refund(payment_id: str, amount_minor: int = 100, reason: str = "") -> Refund:
    """Pay money back."""
    return Refund(id=payment_id)


def keyed_refund(payment_id: str, key: semel.Key) -> Refund:
    return Refund(id=payment_id)


def ask_bank(key: semel.Key, **others: object) -> object:
    return semel.CannotTell


# --- defaults -------------------------------------------------------------------------------------


def test_a_contract_takes_its_identity_from_the_function():
    told = declared()(refund).contract.describe()
    assert (told["name"], told["version"], told["owner"]) == ("refund", "1.0.0", "")
    assert told["purpose"] == "Pay money back."


@pytest.mark.parametrize(
    ("said", "window"),
    [
        ({}, "1d"),
        ({"value": "low"}, "1d"),
        ({"value": "high"}, "7d"),
        ({"class_": "irreversible"}, "30d"),
        ({"class_": "irreversible", "value": "low"}, "30d"),
        ({"window": "90m"}, "90m"),
        ({"window": timedelta(hours=3)}, "3h"),
    ],
)
def test_class_and_value_decide_the_window_unless_it_is_given(said, window):
    assert declared(**said)(refund).contract.describe()["window"] == window


def test_the_other_defaults_are_those_of_the_interface():
    told = declared()(refund).contract.describe()
    assert (told["lease"], told["run_limit"], told["in_flight"], told["wait"]) == ("1m", "15m", "wait", "30s")
    assert (told["attempts"], told["backoff"], told["approval"]) == (1, "exponential", None)
    assert (told["ignore"], told["secret"], told["scopes"]) == ([], [], [])


@pytest.mark.parametrize(
    ("said", "function", "policy"),
    [
        ({}, refund, "park"),
        ({"probe": ask_bank}, refund, "probe"),
        ({"downstream_window": "24h"}, keyed_refund, "retry"),
        ({"downstream_window": "24h", "probe": ask_bank}, keyed_refund, "retry"),
        ({}, keyed_refund, "park"),
        ({"downstream_window": "24h"}, refund, "park"),
        ({"class_": "irreversible", "downstream_window": "24h"}, keyed_refund, "park"),
        ({"class_": "irreversible", "downstream_window": "24h", "probe": ask_bank}, keyed_refund, "probe"),
        (
            {"class_": "irreversible", "downstream_window": "24h", "on_unknown": "retry"},
            keyed_refund,
            "retry",
        ),
        ({"on_unknown": "rerun"}, refund, "rerun"),
        ({"on_unknown": "park", "probe": ask_bank}, refund, "park"),
    ],
)
def test_what_follows_a_doubt_depends_on_key_window_and_probe(said, function, policy):
    assert declared(**said)(function).contract.describe()["on_unknown"] == policy


def test_the_whole_contract_is_json_data():
    tool = keyed(
        scopes={"payments:refund"},
        transient=(UpstreamTimeout,),
        attempts=3,
        approval=semel.Approval(expires_in="2d"),
        owner="payments",
    )(keyed_refund)
    told = json.loads(json.dumps(tool.contract.describe()))
    assert told["transient"] == [f"{__name__}.UpstreamTimeout"]
    assert told["approval"] == {"expires_in": "2d"}
    assert told["forwards_key"] is True
    assert (told["owner"], told["scopes"]) == ("payments", ["payments:refund"])


def test_a_downstream_that_forgets_before_the_window_ends_is_reported():
    [warning] = keyed(value="high")(keyed_refund).contract.describe()["warnings"]
    assert "1h" in warning
    assert "7d" in warning


def test_a_downstream_that_remembers_long_enough_is_not_reported():
    assert keyed(downstream_window="2d")(keyed_refund).contract.describe()["warnings"] == []


# --- what cannot be kept --------------------------------------------------------------------------


def takes_args(*ids: str) -> None: ...
def takes_kwargs(**ids: str) -> None: ...
def by_position(id: str, /) -> None: ...
def generates(id: str) -> Iterator[int]:
    yield 1


async def generates_asynchronously(id: str) -> AsyncIterator[int]:
    yield 1


def returns_something_odd(id: str) -> Unstorable:
    return Unstorable()


def takes_something_odd(connection: Unstorable) -> None: ...
def has_an_odd_default(amount: int = "many") -> None: ...  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("said", "function", "fix"),
    [
        ({"ignore": ("raeson",)}, refund, "reason"),
        ({"ignore": "raeson"}, refund, "reason"),
        ({"secret": ("tokne",)}, refund, "tokne"),
        ({"resource": "payment"}, refund, "payment"),
        ({"on_unknown": "retry"}, refund, "semel.Key"),
        ({"on_unknown": "retry"}, keyed_refund, "downstream_window"),
        ({"on_unknown": "retry", "downstream_window": "1h"}, refund, "semel.Key"),
        ({"on_unknown": "probe"}, refund, "probe="),
        ({"on_unknown": "guess"}, refund, "retry, probe, park, rerun"),
        ({"attempts": 2}, refund, "downstream_window"),
        ({"attempts": 2}, keyed_refund, "downstream_window"),
        ({"attempts": 0}, refund, "from 1"),
        ({"attempts": 1.5}, refund, "whole number"),
        ({"probe": lambda key: None}, refund, "**others"),
        ({"probe": "ask"}, refund, "probe(key"),
        ({"class_": "write"}, refund, "write-non-idempotent"),
        ({"value": "huge"}, refund, "'low' or 'high'"),
        ({"in_flight": "queue"}, refund, "'wait' or 'refuse'"),
        ({"approval": "maybe"}, refund, "semel.Approval"),
        ({"approval": semel.Approval(expires_in="soon")}, refund, "'7d'"),
        ({"name": "issue refund"}, refund, "letters, digits"),
        ({"version": "two"}, refund, "2.1.0"),
        ({"window": "a while"}, refund, "window"),
        ({"window": "forever"}, refund, "window"),
        ({"lease": "0s"}, refund, "lease"),
        ({"backoff": "a while"}, refund, "'exponential'"),
        ({"backoff": None}, refund, "'exponential'"),
        ({"wait": timedelta(0)}, refund, "wait"),
        ({"transient": ("UpstreamTimeout",)}, refund, "exception classes"),
        ({"refused": (int,)}, refund, "exception classes"),
        ({}, takes_args, "one list"),
        ({}, takes_kwargs, "one dict"),
        ({}, by_position, "`/`"),
        ({}, generates, "Return a list"),
        ({}, generates_asynchronously, "Return a list"),
        ({}, returns_something_odd, "pydantic model, a dataclass or JSON"),
        ({}, takes_something_odd, "attribute of its self"),
        ({}, has_an_odd_default, "default"),
        ({}, lambda id: None, "name="),
        ({}, staticmethod(refund), "below @classmethod or @staticmethod"),
        ({}, classmethod(refund), "below @classmethod or @staticmethod"),  # type: ignore[arg-type]
        ({}, 5, "`def`"),
    ],
)
def test_what_cannot_be_kept_is_refused_where_it_is_declared_and_the_fix_is_named(said, function, fix):
    with pytest.raises(ContractError) as refused:
        declared(**said)(function)
    assert fix in str(refused.value)
    assert refused.value.code == "CONTRACT_ERROR"


@pytest.mark.parametrize("class_", ["read", "write-idempotent"])
@pytest.mark.parametrize(
    "said",
    [
        {"lease": "60s"},
        {"window": "1h"},
        {"run_limit": "1h"},
        {"on_unknown": "park"},
        {"refused": (ValueError,)},
        {"probe": ask_bank},
        {"approval": "required"},
        {"in_flight": "wait"},
        {"wait": "1s"},
        {"value": "high"},
    ],
    ids=lambda said: next(iter(said)),
)
def test_a_tool_without_a_record_has_no_use_for_what_belongs_to_one(class_, said):
    with pytest.raises(ContractError, match=r"write-non-idempotent|nothing to release"):
        declared(class_=class_, **said)(refund)


@pytest.mark.parametrize("class_", ["read", "write-idempotent"])
def test_a_tool_without_a_record_makes_no_key(class_):
    with pytest.raises(ContractError, match="Key parameter has no meaning"):
        declared(class_=class_)(keyed_refund)


def test_a_name_that_never_comes_is_told_before_the_tool_runs(ledger):
    ran = []

    @declared()
    def lookup(id: str) -> "NeverDefined":  # type: ignore[name-defined]  # noqa: F821
        ran.append(id)

    with a_step(ledger), pytest.raises(ContractError, match="NeverDefined"):
        lookup("1")
    assert ran == []
    assert ledger.records.list() == []


@declared(secret=("tokne",))
def misspelled(ran: list[str]) -> "DefinedLater":
    raise AssertionError("the contract cannot be kept")


def test_a_secret_path_into_a_type_of_later_is_checked_before_the_tool_runs(ledger):
    with a_step(ledger), pytest.raises(ContractError, match="tokne"):
        misspelled([])
    assert ledger.records.list() == []


class DefinedLater(BaseModel):
    token: str


# --- what frameworks see --------------------------------------------------------------------------


def test_nobody_sees_the_key_parameter():
    tool = keyed()(keyed_refund)
    assert list(inspect.signature(tool).parameters) == ["payment_id"]
    assert typing.get_type_hints(tool) == {"payment_id": str, "return": Refund}
    assert list(tool.contract.schema["properties"]) == ["payment_id"]
    assert not hasattr(tool, "__wrapped__")


def test_an_optional_key_parameter_is_a_key_parameter():
    @declared()
    def send(to: str, key: semel.Key | None = None) -> str:
        return str(key)

    assert list(inspect.signature(send).parameters) == ["to"]
    assert send.contract.describe()["forwards_key"] is True


def test_the_schema_says_what_is_required_and_what_is_not():
    schema = declared()(refund).contract.schema
    assert schema["required"] == ["payment_id"]
    assert schema["properties"]["amount_minor"]["type"] == "integer"
    assert schema["additionalProperties"] is False


def test_annotations_written_as_text_are_shown_as_the_types_they_mean():
    @declared()
    def pay(amount: "Decimal", to: "Refund", key: "semel.Key") -> "Refund | None":
        return to

    assert typing.get_type_hints(pay) == {"amount": Decimal, "to": Refund, "return": Refund | None}
    assert inspect.signature(pay).parameters["amount"].annotation is Decimal


def test_the_wrapper_is_a_function_with_the_name_and_docstring_of_the_tool():
    tool = declared()(refund)
    assert inspect.isfunction(tool)
    assert (tool.__name__, tool.__doc__) == ("refund", "Pay money back.")


def test_the_wrapper_of_an_async_tool_is_a_coroutine_function():
    @declared()
    async def send(to: str) -> str:
        return to

    assert inspect.iscoroutinefunction(send)


def test_a_caller_who_passes_a_key_is_told_that_semel_makes_it(ledger):
    tool = keyed()(keyed_refund)
    with a_step(ledger), pytest.raises(InvalidArguments, match="Semel makes the key"):
        tool("p-1", key=semel.Key("0" * 64))


def test_names_from_around_the_definition_resolve(ledger):
    class Local(BaseModel):
        id: str

    @semel.tool_contract(class_="write-non-idempotent")
    def make(id: str) -> "Local":
        return Local(id=id)

    with a_step(ledger):
        assert make("1") == make("1") == Local(id="1")


@declared()
def make(given: "GivenLater") -> "list[GivenLater]":
    return [given]


def test_names_that_are_defined_after_the_tool_resolve(ledger):
    with a_step(ledger):
        assert make({"id": 1}) == make(GivenLater(id=1)) == [GivenLater(id=1)]
    assert "id" in json.dumps(make.contract.schema)


class GivenLater(BaseModel):
    id: int
