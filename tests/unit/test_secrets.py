"""Secrets are nowhere: not in the store's files, events, logs, errors or what people are shown."""

import base64
import html
import json
import logging
import re
import sqlite3
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from pydantic import BaseModel, SecretStr

import semel
from semel.contract.result import ToolCall, ToolResult
from semel.errors import (
    EffectFailed,
    InvalidArguments,
    OutcomeUnknown,
    PartialSuccess,
    SemelError,
    UpstreamUnavailable,
)
from semel.ledger.ledger import Ledger
from tests.tools import a_step, declared, events, the_record

CANARY = "canary-7f3a9"


class Card(BaseModel):
    holder: str
    number: str


class Account(BaseModel):
    id: str
    password: SecretStr


@dataclass
class Session:
    id: str
    token: str | None = None


def written_anywhere(ledger: Ledger, place: Path) -> str:
    """Everything that could be read of the store: its files, its events, and what people are shown."""
    ledger.keeper.flush()
    ledger.sweeper.run_once()
    shown = [ledger.records.show(record) for record in ledger.records.list()]
    files = [path.read_bytes().decode(errors="replace") for path in place.iterdir() if path.is_file()]
    return repr((shown, events(ledger), ledger.approvals.list(), files, dump_of(place)))


def dump_of(place: Path) -> list[str]:
    """Every row of the database, in case a page of the file holds it in another form."""
    if not (place / "semel.db").exists():
        return []
    reader = sqlite3.connect(place / "semel.db")
    try:
        return list(reader.iterdump())
    finally:
        reader.close()


def pay_by_card(to: str, card: Card) -> str:
    return "paid"


def fail_with(text: str) -> Any:
    def pay(to: str, token: str) -> None:
        raise LookupError(text.format(token=token))

    return pay


@pytest.fixture
def assert_nowhere(ledger, tmp_path, caplog):
    """After the test the canary is in no file, event, page or log."""
    caplog.set_level(logging.DEBUG)
    yield
    assert CANARY not in written_anywhere(ledger, tmp_path)
    assert CANARY not in caplog.text


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("assert_nowhere")
def test_a_secret_argument_reaches_the_tool_and_nothing_else(ledger, way):
    got = []

    @way.tool(secret=("token",))
    def pay(to: str, token: str) -> str:
        got.append(token)
        return "paid"

    with a_step(ledger):
        way.call(pay, "a", CANARY)
    assert got == [CANARY]


@pytest.mark.usefixtures("assert_nowhere")
def test_a_secret_field_of_an_argument_reaches_the_tool_and_nothing_else(ledger):
    got = []

    @declared(secret=("card.number",))
    def pay(to: str, card: Card) -> str:
        got.append(card.number)
        return card.holder

    with a_step(ledger):
        assert pay("a", {"holder": "Ann", "number": CANARY}) == "Ann"
    assert got == [CANARY]
    assert ledger.records.show(the_record(ledger))["arguments"] == {"to": "a", "card": {"holder": "Ann"}}


@pytest.mark.usefixtures("assert_nowhere")
def test_a_secret_type_is_secret_without_being_named(ledger):
    @declared()
    def log_in(account: Account) -> str:
        return account.password.get_secret_value()[:6]

    with a_step(ledger):
        assert log_in(Account(id="1", password=SecretStr(CANARY))) == CANARY[:6]


@pytest.mark.usefixtures("assert_nowhere")
def test_secrets_tell_actions_apart(ledger):
    got = []

    @declared(secret=("token",))
    def pay(to: str, token: str) -> None:
        got.append(token)

    with a_step(ledger):
        for token in (CANARY, CANARY + "-other", CANARY):
            pay("a", token)
    assert got == [CANARY, CANARY + "-other"]


def test_a_secret_counts_in_the_key_under_a_key_of_the_stores_own(tmp_path, clock):
    keys = set()
    for name in ("one", "other"):
        with semel.open(f"sqlite:///{tmp_path}/{name}.db", clock=clock) as ledger, a_step(ledger):
            keys.add(declared(secret=("token",))(key_for)("canary"))
    assert len(keys) == 2


def test_the_same_store_opened_again_makes_the_same_key_of_a_secret(tmp_path, clock):
    keys = set()
    for _ in range(2):
        with semel.open(f"sqlite:///{tmp_path}/semel.db", clock=clock) as ledger, a_step(ledger):
            keys.add(declared(secret=("token",))(key_for)("canary"))
    assert len(keys) == 1


def key_for(token: str) -> str:
    return str(semel.current_key())


@pytest.mark.usefixtures("assert_nowhere")
@pytest.mark.parametrize("ignored", [True, False], ids=["ignored", "not ignored"])
def test_a_re_entry_gets_the_secret_of_the_present_call(ledger, way, ignored):
    got = []

    @way.tool(secret=("token",), ignore=("token", "reason") if ignored else ("reason",), on_unknown="rerun")
    def pay(to: str, reason: str, token: str) -> None:
        got.append((reason, token))
        if len(got) == 1:
            raise TimeoutError

    second = CANARY + "-renewed" if ignored else CANARY
    with a_step(ledger):
        with pytest.raises(TimeoutError):
            way.call(pay, "a", "first", CANARY)
        way.call(pay, "a", "second", second)
    assert got == [("first", CANARY), ("first", second)]


@pytest.mark.usefixtures("assert_nowhere")
def test_a_re_entry_gets_the_secret_field_of_the_present_call(ledger):
    got = []

    @declared(secret=("card.number",), ignore=("card",), on_unknown="rerun")
    def pay(to: str, card: Card) -> None:
        got.append((card.holder, card.number))
        if len(got) == 1:
            raise TimeoutError

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            pay("a", Card(holder="first", number=CANARY))
        pay("a", Card(holder="second", number=CANARY + "-renewed"))
    assert got == [("first", CANARY), ("first", CANARY + "-renewed")]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("assert_nowhere")
@pytest.mark.parametrize("text", ["bad {token}", "{token}", "<{token}{token}>"])
def test_a_failure_that_spells_the_secret_is_kept_without_it(ledger, text):
    tool = declared(secret=("token",))(fail_with(text))
    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(EffectFailed) as failed:
                tool("a", CANARY)
            assert CANARY not in str(failed.value)
            assert "***" in str(failed.value)


@pytest.mark.usefixtures("assert_nowhere")
@pytest.mark.parametrize("spelling", [repr, lambda text: repr(text.encode())], ids=["repr", "bytes"])
def test_a_secret_with_quotes_in_it_is_found_in_other_spellings(ledger, spelling):
    @declared(secret=("token",))
    def pay(token: str) -> None:
        raise LookupError(f"bad {spelling(token)}")

    with a_step(ledger), pytest.raises(EffectFailed) as failed:
        pay(f'it\'s "{CANARY}"')
    assert CANARY not in str(failed.value)


@pytest.mark.usefixtures("assert_nowhere")
def test_a_secret_that_the_tool_takes_out_of_its_arguments_is_still_found(ledger):
    @declared(secret=("config.token",))
    def pay(config: dict[str, str]) -> None:
        raise LookupError(f"bad {config.pop('token')}")

    with a_step(ledger), pytest.raises(EffectFailed) as failed:
        pay({"token": CANARY, "kind": "x"})
    assert CANARY not in str(failed.value)


@pytest.mark.usefixtures("assert_nowhere")
@pytest.mark.parametrize("raises", [True, False])
def test_details_that_hold_a_secret_are_dropped(ledger, raises):
    @declared(secret=("token",))
    def pay(to: str, token: str) -> None:
        if raises:
            raise PartialSuccess(done=[{"used": token}], remaining=[], corrective_action=f"use {token}")
        return ToolResult.failure("NO", f"not with {token}", details={"used": token})  # type: ignore[return-value]

    with a_step(ledger), pytest.raises(SemelError) as told:
        pay("a", CANARY)
    assert CANARY not in repr((str(told.value), told.value.details))


@pytest.mark.usefixtures("assert_nowhere")
def test_a_code_of_the_tools_own_is_kept_without_the_secret(ledger):
    @declared(secret=("token",))
    def pay(to: str, token: str) -> ToolResult[str]:
        return ToolResult.failure(f"NO_{token}", "no")

    with a_step(ledger):
        for _ in range(2):
            assert pay.call(ToolCall({"to": "a", "token": CANARY})).error.code == "NO_***"


def test_a_secret_that_is_spelled_like_a_code_of_ours_does_not_change_it(ledger):
    tool = declared(secret=("token",))(fail_with("no"))
    with a_step(ledger):
        assert tool.call(ToolCall({"to": "a", "token": "EFFECT_FAILED"})).error.code == "EFFECT_FAILED"


@pytest.mark.usefixtures("assert_nowhere")
def test_a_doubt_names_the_exception_and_not_its_text(ledger):
    @declared(secret=("token",))
    def pay(token: str) -> None:
        raise TimeoutError(f"no answer for {token}")

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            pay(CANARY)
        with pytest.raises(OutcomeUnknown) as parked:
            pay(CANARY)
    assert CANARY not in repr((str(parked.value), parked.value.details))


@pytest.mark.usefixtures("assert_nowhere")
@pytest.mark.parametrize("said", [{"secret": ("token",)}, {"secret": ("token",), "class_": "read"}], ids=str)
def test_arguments_that_do_not_fit_are_refused_without_the_secret(ledger, said):
    @declared(**said)
    def pay(token: int) -> None: ...

    with a_step(ledger), pytest.raises(InvalidArguments) as refused:
        pay(CANARY)
    assert CANARY not in "".join(traceback.format_exception(refused.value))


def test_the_error_of_a_tool_without_a_record_is_told_as_data_without_the_secret():
    tool = declared(class_="read", secret=("token",))(fail_with("bad {token}"))
    result = tool.call(ToolCall({"to": "a", "token": CANARY}))
    assert CANARY not in repr(result)
    assert "***" in result.error.message


@pytest.mark.usefixtures("assert_nowhere")
@pytest.mark.parametrize("raises", [True, False])
def test_what_a_tool_says_of_a_doubt_is_told_without_the_secret(ledger, raises):
    @declared(secret=("token",))
    def pay(to: str, token: str) -> ToolResult[str]:
        error = UpstreamUnavailable(f"not with {token}", retry_after_s=3, used=token)
        if raises:
            raise error
        return ToolResult(ok=False, error=semel.ToolError.of(error))

    with a_step(ledger):
        error = pay.call(ToolCall({"to": "a", "token": CANARY})).error
        assert CANARY not in repr(error) + error.for_model
        assert (error.code, error.retriable, error.retry_after_s) == ("UPSTREAM_TIMEOUT", True, 3)
        assert the_record(ledger).state == "in_doubt"


@pytest.mark.parametrize("raises", [True, False])
def test_what_a_tool_without_a_record_says_of_its_failure_is_told_without_the_secret(raises):
    @declared(class_="read", secret=("token",))
    def look(token: str) -> ToolResult[str]:
        if raises:
            raise PartialSuccess(done=[token], remaining=[], corrective_action=f"use {token}")
        return ToolResult.failure(
            f"NO_{token}", f"not with {token}", retriable=True, retry_after_s=3, details={"used": token}
        )

    error = look.call(ToolCall({"token": CANARY})).error
    assert CANARY not in repr(error) + error.for_model
    assert raises or (error.code, error.retriable, error.retry_after_s) == ("NO_***", True, 3)


@pytest.mark.usefixtures("assert_nowhere")
def test_a_refusal_is_told_as_data_without_the_secret(ledger):
    tool = declared(refused=(LookupError,), secret=("token",))(fail_with("bad {token}"))
    result = tool.call(ToolCall({"to": "a", "token": CANARY}, idempotency_key="k"), ledger)
    assert CANARY not in repr(result)


@pytest.mark.usefixtures("assert_nowhere")
def test_the_resource_in_the_audit_is_left_out_where_it_holds_a_secret(ledger):
    with a_step(ledger):
        for path in ("card", "card.number"):
            declared(class_="write-idempotent", resource="card", secret=(path,), name="put")(pay_by_card)(
                "a", Card(holder="Ann", number=CANARY)
            )
    assert events(ledger) == []


# --- results --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("assert_nowhere")
def test_a_secret_field_of_the_result_is_returned_once(ledger, way):
    @way.tool(secret=("token",))
    def log_in(user: str) -> Session:
        return Session("s-1", CANARY)

    with a_step(ledger):
        assert way.call(log_in, "ann") == Session("s-1", CANARY)
        assert way.call(log_in, "ann") == Session("s-1", None)


@pytest.mark.usefixtures("assert_nowhere")
def test_a_result_that_is_nothing_without_its_secret_is_not_kept(ledger):
    @declared(secret=("number",))
    def make_card(user: str) -> Card:
        return Card(holder=user, number=CANARY)

    with a_step(ledger):
        assert make_card("ann").number == CANARY
        with pytest.raises(semel.errors.ResultUnavailable):
            make_card("ann")


@pytest.mark.usefixtures("assert_nowhere")
def test_a_secret_in_the_result_of_a_probe_is_not_kept_either(ledger):
    @declared(secret=("token",), probe=lambda key, **others: semel.Happened(Session("s-1", CANARY)))
    def log_in(user: str) -> Session:
        raise TimeoutError

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            log_in("ann")
        assert log_in("ann") == Session("s-1", None)


SPELLINGS: dict[str, Callable[[str], object]] = {
    "as it is": lambda secret: secret,
    "inside a text": lambda secret: f"used {secret} just now",
    "json": json.dumps,
    "json in ascii, twice": lambda secret: json.dumps(json.dumps(secret)),
    "repr of an exception": lambda secret: repr(LookupError(f"no {secret}")),
    "repr of its repr": lambda secret: repr(repr(secret)),
    "repr of bytes": lambda secret: repr(secret.encode()),
    "quoted for a URL": lambda secret: f"https://example.test/?t={quote(secret)}",
    "quoted for a form": lambda secret: quote_plus(secret),
    "quoted in small letters": lambda secret: re.sub("%..", lambda code: code[0].lower(), quote(secret)),
    "escaped for a page": lambda secret: f"<b>{html.escape(secret)}</b>",
    "base64": lambda secret: base64.b64encode(secret.encode()).decode().rstrip("="),
    "hexadecimal": lambda secret: secret.encode().hex().upper(),
    "credentials": lambda secret: "Basic " + base64.b64encode(f"ann:{secret}".encode()).decode(),
    "every byte quoted": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "json, three times": lambda secret: json.dumps(json.dumps(json.dumps(secret))),
    "repr of bytes beside a quote": lambda secret: repr(f"'\"{secret}".encode()),
    "repr of bytes in a repr": lambda secret: repr(repr(repr(secret.encode()))),
    "quoted three times": lambda secret: quote(quote(quote(secret))),
    "every letter as a number of a page": lambda secret: "".join(f"&#{ord(sign)};" for sign in secret),
    "a name": lambda secret: {secret: 1},
    "a name with credentials": lambda secret: {base64.b64encode(f"ann:{secret}".encode()).decode(): 1},
    "deep inside": lambda secret: [{"a": [{"b": secret}]}],
}

# Each has characters that some form escapes: quotes, a backslash, a line's end, beyond ASCII, beyond 16 bits.
TRICKY = ['it\'s "so"\\n', "it's so", "pässwörd-ключ", "a/b c+d&e=f", "emoji-\U0001f511-key", CANARY]


KNOWN = (
    "as it is",
    "credentials",
    "every byte quoted",
    "json",
    "repr of bytes",
    "quoted for a URL",
    "base64",
    "hexadecimal",
)


def nothing_of_them(ledger: Ledger, place: Path) -> None:
    """No file holds a secret in any spelling that this test knows."""
    everything = written_anywhere(ledger, place)
    rows = "".join(dump_of(place))
    for name, secret in product(KNOWN, TRICKY):
        spelling = str(SPELLINGS[name](secret)).removeprefix("b").strip("'\"")
        assert spelling not in everything, name
        assert spelling.encode().hex().upper() not in rows, name  # how a blob is dumped


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_result_that_contains_a_secret_argument_is_not_kept(ledger, tmp_path, caplog, spelling):
    @declared(secret=("token",))
    def pay(token: str) -> Any:
        return SPELLINGS[spelling](token)

    for secret in TRICKY:
        with a_step(ledger):
            assert pay(secret) == SPELLINGS[spelling](secret)
            with pytest.raises(semel.errors.ResultUnavailable):
                pay(secret)
        assert secret not in caplog.text
    nothing_of_them(ledger, tmp_path)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("raises", [True, False], ids=["partial", "failed"])
def test_no_detail_of_an_error_contains_a_secret(ledger, tmp_path, spelling, raises):
    @declared(secret=("token",))
    def pay(token: str) -> None:
        spelled = SPELLINGS[spelling](token)
        if raises:
            raise PartialSuccess(done=[spelled], remaining=[], corrective_action=f"use {spelled}")
        return ToolResult.failure("NO", f"not with {spelled}", details={"used": spelled})  # type: ignore[return-value]

    for secret in TRICKY * 2:
        with a_step(ledger), pytest.raises(SemelError) as refused:
            pay(secret)
        assert secret not in str(refused.value)
    nothing_of_them(ledger, tmp_path)


def test_bytes_with_a_secret_in_their_middle_are_not_kept(ledger):
    @declared(secret=("token",))
    def pay(token: str) -> bytes:
        return b"receipt " + token.encode() + b" end"

    with a_step(ledger):
        assert CANARY.encode() in pay(CANARY)
        with pytest.raises(semel.errors.ResultUnavailable):
            pay(CANARY)


def test_a_short_secret_counts_where_it_stands_alone(ledger):
    @declared(secret=("cvc",))
    def pay(order: str, cvc: str) -> str:
        return {"told": f"cvc={cvc}", "by chance": f"re_9{cvc}7"}[order]

    with a_step(ledger):
        pay("told", "123")
        pay("by chance", "123")
        with pytest.raises(semel.errors.ResultUnavailable):
            pay("told", "123")
        assert pay("by chance", "123") == "re_91237"


def test_a_probe_that_tells_the_secret_is_not_quoted(ledger, tmp_path):
    @declared(secret=("token",), probe=lambda key, token: semel.Happened(f"paid with {token}"))
    def pay(token: str) -> str:
        raise TimeoutError

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            pay(CANARY)
        with pytest.raises(semel.errors.ResultUnavailable):
            pay(CANARY)
    nothing_of_them(ledger, tmp_path)


# --- shown ----------------------------------------------------------------------------------------


def test_the_schema_does_not_publish_a_secret_default():
    @declared(secret=("token",))
    def pay(to: str, token: str = CANARY) -> None: ...

    assert CANARY not in repr(pay.contract.describe())


@pytest.mark.usefixtures("assert_nowhere")
def test_a_stolen_database_does_not_confirm_a_guessed_secret_by_a_plain_hash(ledger, tmp_path):
    import hashlib

    @declared(secret=("pin",))
    def unlock(pin: str) -> None: ...

    with a_step(ledger):
        unlock("1234")
    everything = written_anywhere(ledger, tmp_path)
    for guess in (b"1234", b'"1234"', b'{"pin":"1234"}', b'{"v":"1234"}'):
        assert hashlib.sha256(guess).hexdigest() not in everything
