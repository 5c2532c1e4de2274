"""The doctor says what a store survives, what is in doubt, and what would be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import semel
from semel.kernel.clock import rfc3339
from semel.ledger import doctor
from semel.stores.base import Finding
from semel.testing import FakeClock


@semel.tool_contract(class_="write-non-idempotent")
def send(to: str) -> str:
    if to == "nobody":
        raise TimeoutError
    return to


@semel.tool_contract(class_="write-non-idempotent", value="high", downstream_window="24h")
def refund(payment: str, key: semel.Key = semel.filled) -> str:
    return payment


def about(findings: list[Finding], subject: str) -> Finding:
    [found] = [finding for finding in findings if finding.subject == subject]
    return found


def test_a_store_in_memory_is_not_safe() -> None:
    with semel.open("memory://") as ledger:
        findings = doctor.examine(ledger.store)
    assert not doctor.safe(findings)
    assert about(findings, "durability").level == "danger"


def test_a_file_is_safe_and_says_what_it_survives(tmp_path: Path) -> None:
    with semel.open(f"sqlite:///{tmp_path}/semel.db") as ledger:
        findings = doctor.examine(ledger.store)
        assert doctor.safe(findings)
        assert about(findings, "promise").text == ledger.durability
    assert about(findings, "audit").level == "ok"


@pytest.mark.parametrize("url", ["memory://?audit=off", "sqlite:///{}/semel.db?audit=off"])
def test_a_log_that_is_off_withdraws_a_promise_and_says_so(tmp_path: Path, url: str) -> None:
    with semel.open(url.format(tmp_path)) as ledger:
        found = about(doctor.examine(ledger.store), "audit")
    assert found.level == "note"
    assert "withdraws the audit promise" in found.text


def test_doubts_are_counted_from_the_oldest() -> None:
    clock = FakeClock()
    with semel.open("memory://", clock=clock) as ledger:
        began = rfc3339(clock.now_us())
        for step in ("1", "2"):
            with pytest.raises(TimeoutError), ledger.step(conversation="c", step=step):
                send(to="nobody")
            clock.advance("1h")
        found = about(doctor.examine(ledger.store), "in doubt")
    assert found.level == "note"
    assert found.text.startswith("2 of tenant default")
    assert str(began) in found.text


def test_doubts_of_other_tenants_are_mentioned() -> None:
    with semel.open("memory://", tenant="acme") as acme:
        with pytest.raises(TimeoutError), acme.step(conversation="c", step="1"):
            send(to="nobody")
        texts = [found.text for found in doctor.examine(acme.store, "other") if found.subject == "in doubt"]
    assert texts == ["no record of tenant other", "1 of other tenants"]


def test_without_doubts_there_is_nothing_to_do() -> None:
    with semel.open("memory://") as ledger:
        assert about(doctor.examine(ledger.store), "in doubt").level == "ok"


def test_a_downstream_that_forgets_before_the_window_is_reported() -> None:
    with semel.open("memory://") as ledger, ledger.step(conversation="c", step="1"):
        refund(payment="p-1")  # Semel passes the key
        send(to="ann")
        findings = doctor.examine(ledger.store)
    assert "1d, the window is 7d" in about(findings, "tool refund").text
    assert not [finding for finding in findings if finding.subject == "tool send"]


def test_what_would_be_lost_is_counted() -> None:
    with semel.open("memory://") as ledger:
        with ledger.step(conversation="c", step="1"):
            send(to="ann")
        with pytest.raises(TimeoutError), ledger.step(conversation="c", step="2"):
            send(to="nobody")
        assert "1 settled and 1 open keys" in about(doctor.examine(ledger.store), "loss").text
