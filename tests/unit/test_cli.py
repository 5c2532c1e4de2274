"""The command line: what it answers, how it exits, and that it says what to do next."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import semel
from semel.cli import main
from semel.cli.output import clean
from semel.errors import ApprovalRejected, ApprovalRequired, ResultUnavailable
from semel.ledger import catalogue

LOOKING = [
    ("records", "list"),
    ("records", "show", "rec_1"),
    ("records", "resolve", "rec_1", "--happened"),
    ("records", "amend", "rec_1", "--result", "1"),
    ("tools", "list"),
    ("tools", "show", "send"),
    ("approvals", "list"),
    ("approvals", "approve", "job_1"),
    ("approvals", "reject", "job_1"),
    ("runs", "list"),
    ("runs", "show", "run_1"),
    ("runs", "cancel", "run_1"),
    ("runs", "rerun", "run_1", "--from-step", "a"),
    ("jobs", "list"),
    ("jobs", "show", "job_1"),
    ("jobs", "cancel", "job_1"),
    ("dead-letters", "list"),
    ("dead-letters", "show", "dead_1"),
    ("dead-letters", "retry", "dead_1"),
    ("records", "list", "--all-tenants"),
    ("audit", "verify"),
    ("audit", "duplicates"),
    ("audit", "export"),
    ("windows",),
    ("doctor",),
]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store that is not there yet, and an environment without one."""
    for name in ("SEMEL_URL", "SEMEL_SERVER", "SEMEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/semel.db"


@pytest.fixture
def ledger(url: str):
    with semel.open(url) as opened:
        yield opened


class Post:
    """A post office that answers, or does not."""

    def __init__(self) -> None:
        self.answers = False
        self.sent: list[str] = []


POST = Post()


@pytest.fixture(autouse=True)
def _new_post() -> None:
    POST.__init__()  # type: ignore[misc]


@semel.tool_contract(class_="write-non-idempotent")
def send(to: str) -> dict[str, str]:
    POST.sent.append(to)
    if not POST.answers:
        raise TimeoutError
    return {"message": to}


@semel.tool_contract(class_="write-non-idempotent")
def measure(what: str) -> float:
    return float("nan")


@semel.tool_contract(class_="irreversible", approval="required")
def wire(amount: int) -> int:
    return amount


def run(*words: str, **environment: str) -> Result:
    result = CliRunner(env=environment).invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def answer(*words: str) -> Any:
    """The JSON that a command answers with; it must succeed."""
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def in_step(ledger: semel.Ledger, tool: Any, step: str = "s-1", **arguments: Any) -> Any:
    with ledger.step(conversation="conv-42", step=step, principal="bot"):
        return tool(**arguments)


def doubtful(ledger: semel.Ledger, to: str = "ann", step: str = "s-1") -> str:
    """The id of a record in doubt."""
    with pytest.raises(TimeoutError):
        in_step(ledger, send, step, to=to)
    return ledger.records.list()[0].request.id


def settled(ledger: semel.Ledger, to: str = "ann", step: str = "s-1") -> str:
    POST.answers = True
    in_step(ledger, send, step, to=to)
    POST.answers = False
    return ledger.records.list()[0].request.id


# --- which store ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_looking_for_a_store_that_is_not_there_makes_none(url: str, tmp_path: Path, words) -> None:
    for named in (("--url", url), ()):
        result = run(*words, *named, "--as", "ann")
        assert result.exit_code == 4
        assert "does not exist" in result.stderr
        assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bad", ["nothing", "mysql://x", "sqlite://x.db", "sqlite:///semel.db?x=1", "sqlite://["]
)
def test_a_url_that_is_none_is_refused_without_a_traceback(ledger: semel.Ledger, bad: str) -> None:
    result = run("records", "list", "--url", bad)
    assert result.exit_code == 4
    assert result.stderr.startswith("semel: ")


@pytest.mark.parametrize("bad", ["sqlite:semel.db", "sqlite:/semel.db", "SQLITE:///semel.db"])
def test_a_url_with_a_slip_in_it_is_not_taken_for_a_missing_file(bad: str) -> None:
    result = run("records", "list", "--url", bad)
    assert result.exit_code == 4
    assert "is not a store's URL" in result.stderr


def test_a_file_that_is_no_store_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "semel.db").write_text("this is a letter, not a database" * 100)
    assert run("records", "list").exit_code == 4
    assert run("doctor").exit_code == 1


def test_the_store_is_the_named_one_else_that_of_the_environment(ledger: semel.Ledger, url: str) -> None:
    settled(ledger)
    assert len(answer("records", "list", "--url", url)["items"]) == 1
    assert "rec_" in run("records", "list", SEMEL_URL=url).stdout
    assert run("records", "list", "--url", url, SEMEL_URL="sqlite:///missing.db").exit_code == 0


def test_a_tenant_sees_only_its_own(ledger: semel.Ledger) -> None:
    record_id = settled(ledger)
    assert answer("records", "list", "--tenant", "other") == {"items": []}
    assert run("records", "show", record_id, "--tenant", "other").exit_code == 3
    assert run("records", "list", "--tenant", "not a tenant").exit_code == 2


# --- records ----------------------------------------------------------------------------------------------


def test_the_list_shows_each_record_and_doubt_stands_out(ledger: semel.Ledger) -> None:
    done, doubt = settled(ledger, "ann", "s-1"), doubtful(ledger, "bob", "s-2")
    lines = run("records", "list").stdout.splitlines()
    assert lines[0].split()[:3] == ["ID", "STATE", "ATTEMPTS"]
    rows = [line for line in lines if line.startswith("rec_")]
    assert rows[0].startswith(f"{doubt}  IN DOUBT  1")
    assert rows[1].startswith(f"{done}  done  ")
    assert lines[2] == "  step: conv-42 / s-2"


def test_the_list_is_narrowed_by_what_is_asked_for(ledger: semel.Ledger) -> None:
    done, doubt = settled(ledger, "ann", "s-1"), doubtful(ledger, "bob", "s-2")
    key = ledger.records.get(done).request.at.key

    def ids(*options: str) -> list[str]:
        return [item["id"] for item in answer("records", "list", *options)["items"]]

    assert ids() == [doubt, done]
    assert ids("--state", "in_doubt") == [doubt]
    assert ids("--key", key) == [done]
    assert ids("--tool", "other") == []
    assert ids("--scope", "approval") == []
    assert ids("--limit", "1") == [doubt]
    assert run("records", "list", "--state", "lost").exit_code == 2
    assert "No records that fit" in run("records", "list", "--tool", "other").stdout


def test_a_record_in_doubt_is_explained_and_the_command_to_type_works(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    told = run("records", "show", record_id).stdout
    assert "IN DOUBT" in told
    assert "TimeoutError" in told
    assert "nobody enters again until a person resolves it" in told
    assert ledger.records.get(record_id).request.at.key in told
    assert '{"to":"ann"}' in told
    assert [line.split()[1] for line in told.splitlines() if "Z  " in line] == ["claimed", "parked"]
    [typed] = [line for line in told.splitlines() if "--did-not-happen" in line]
    assert run(*shlex.split(typed)[1:], "--as", "ann").exit_code == 0
    assert ledger.records.get(record_id).state == "cleared"


@pytest.mark.parametrize(
    "words",
    [
        "records show rec_0",
        "approvals approve job_0",
        "runs show run_0",
        "jobs show job_0",
        "dead-letters retry 0",
    ],
)
def test_what_is_not_there_may_be_another_tenants(ledger: semel.Ledger, words: str) -> None:
    refused = run(*words.split())
    assert refused.exit_code == 3
    group = words.split()[0]
    assert f"`semel {group} list --all-tenants` shows what there is" in " ".join(refused.stderr.split())
    assert run(group, "list", "--all-tenants").exit_code == 0


def catalogued(ledger: semel.Ledger) -> None:
    """What was run is in the catalogue now, and not in a second."""
    ledger.sightings.merge()


def test_what_happened_is_proposed_with_a_result_to_fill_in(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    catalogued(ledger)
    happened = answer("records", "show", record_id)["next"][0]
    words = shlex.split(happened)[1:]
    assert "--result '{<name>: <string>}'" in happened
    refused = run(*words, "--as", "ann")  # not filled in: nobody sends an outline by mistake
    assert (refused.exit_code, ledger.records.get(record_id).state) == (2, "in_doubt")
    assert "A text stands in quotes" in " ".join(refused.stderr.replace("│", " ").split())
    words[words.index("--result") + 1] = '{"message": "ann"}'
    assert run(*words, "--as", "ann").exit_code == 0
    assert in_step(ledger, send, to="ann") == {"message": "ann"}


@semel.tool_contract(class_="write-non-idempotent")
def ping(to: str) -> None:
    raise TimeoutError


def test_of_a_tool_that_returns_nothing_the_proposed_command_is_whole(ledger: semel.Ledger) -> None:
    with pytest.raises(TimeoutError):
        in_step(ledger, ping, to="ann")
    catalogued(ledger)
    [item] = answer("records", "list")["items"]
    happened, _ = answer("records", "show", item["id"])["next"]
    assert run(*shlex.split(happened)[1:], "--as", "ann").exit_code == 0
    assert in_step(ledger, ping, to="ann") is None


def test_the_command_to_type_names_store_and_tenant(url: str) -> None:
    with semel.open(url, tenant="acme") as acme:
        record_id = doubtful(acme)
    told = answer("records", "show", record_id, "--url", url, "--tenant", "acme")
    assert all(f"--url {url} --tenant acme" in command for command in told["next"])
    assert run(*shlex.split(told["next"][1])[1:], "--as", "ann").exit_code == 0


def test_a_settled_record_is_shown_with_its_outcome(ledger: semel.Ledger) -> None:
    record_id = settled(ledger)
    shown = answer("records", "show", record_id)
    assert (shown["state"], shown["outcome"], shown["next"]) == ("done", {"message": "ann"}, [])
    assert [event["type"] for event in shown["history"]] == ["claimed", "settled"]
    assert '{"message":"ann"}' in run("records", "show", record_id).stdout


def test_a_result_that_json_does_not_know_is_shown(ledger: semel.Ledger) -> None:
    in_step(ledger, measure, what="x")
    [item] = answer("records", "list")["items"]
    assert item["outcome"] == "NaN"
    assert "NaN" in run("records", "show", item["id"]).stdout


def test_what_happened_is_replayed_with_the_given_result(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    value = '{"message": "found in the book"}'
    shown = answer("records", "resolve", record_id, "--happened", "--result", value, "--as", "ann")
    assert (shown["state"], shown["by"]) == ("done", "ann")
    assert in_step(ledger, send, to="ann") == {"message": "found in the book"}
    assert POST.sent == ["ann"]


@semel.tool_contract(class_="write-non-idempotent")
def count(what: str) -> int:
    raise TimeoutError


def test_every_digit_of_a_given_result_is_kept(ledger: semel.Ledger) -> None:
    with pytest.raises(TimeoutError):
        in_step(ledger, count, what="grains")
    [item] = answer("records", "list")["items"]
    number = 2**70 + 1
    shown = answer("records", "resolve", item["id"], "--happened", "--result", str(number), "--as", "ann")
    assert shown["outcome"] == number
    assert in_step(ledger, count, what="grains") == number


@pytest.mark.parametrize(
    "words",
    [("approvals", "approve", "job_1", "--reason", "\udcff"), ("records", "list", "--tool", "\udcff")],
)
def test_bytes_that_are_no_text_are_wrong_usage(ledger: semel.Ledger, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


def test_what_happened_without_a_value_says_that_there_is_none(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    assert "RESULT_UNAVAILABLE" in run("records", "resolve", record_id, "--happened", "--as", "ann").stdout
    with pytest.raises(ResultUnavailable):
        in_step(ledger, send, to="ann")


def test_what_did_not_happen_runs_again(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    assert run("records", "resolve", record_id, "--did-not-happen", "--as", "ann").exit_code == 0
    POST.answers = True
    assert in_step(ledger, send, to="ann") == {"message": "ann"}
    assert POST.sent == ["ann", "ann"]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--happened", "--did-not-happen"),
        ("--did-not-happen", "--happened", "--result", "1"),
        ("--did-not-happen", "--result", "1"),
        ("--happened", "--result", "{"),
        ("--happened", "--result", "NaN"),
    ],
)
def test_a_resolution_that_makes_no_sense_changes_nothing(ledger: semel.Ledger, options) -> None:
    record_id = doubtful(ledger)
    result = run("records", "resolve", record_id, *options, "--as", "ann")
    assert result.exit_code == 2
    assert "Nothing was changed" in result.stderr
    assert ledger.records.get(record_id).state == "in_doubt"


def test_a_result_of_another_type_is_wrong_usage_and_changes_nothing(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    catalogued(ledger)
    result = run("records", "resolve", record_id, "--happened", "--result", '{"message": 5}', "--as", "ann")
    assert result.exit_code == 2
    assert "$.message: string is wanted, not integer. Nothing was changed." in result.stderr
    assert ledger.records.get(record_id).state == "in_doubt"


def test_a_result_is_checked_also_if_the_process_ended_before_it_could_write_the_catalogue(
    ledger: semel.Ledger,
) -> None:
    ledger.keeper.abandon()
    record_id = doubtful(ledger)
    said = run("records", "resolve", record_id, "--happened", "--result", "5", "--as", "ann")
    assert said.exit_code == 2
    assert "Nothing was changed" in said.stderr


def test_a_result_that_nobody_can_check_is_taken_and_said_to_be_unchecked(
    ledger: semel.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_TERMS_BYTES_MAX", 0)  # as if its schema were too large
    ledger.keeper.abandon()
    record_id = doubtful(ledger)
    said = run("records", "resolve", record_id, "--happened", "--result", "5", "--as", "ann")
    assert "not checked: the catalogue does not know send 1.0.0" in said.stdout


def test_what_a_person_said_is_amended_and_replayed_everywhere(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    catalogued(ledger)
    told = run("records", "resolve", record_id, "--happened", "--as", "ann").stdout
    assert f"until `semel records amend {record_id}` gives it" in told
    with pytest.raises(ResultUnavailable):
        in_step(ledger, send, to="ann")
    amend = ("records", "amend", record_id, "--as", "bob", "--result")
    assert run(*amend, '"text"').exit_code == 2
    assert "amended by bob" in run(*amend, '{"message": "1"}').stdout
    assert in_step(ledger, send, to="ann") == {"message": "1"}
    assert "already; nothing was changed" in run(*amend, '{"message": "1"}').stdout
    answer(*amend, '{"message": "2"}')
    assert in_step(ledger, send, to="ann") == {"message": "2"}
    shown = answer("records", "show", record_id)
    # Replays are written when the keeper comes round to it, before or after the last of these.
    changes = [event["type"] for event in shown["history"] if event["type"] != "dedup_hit"]
    assert changes == ["claimed", "parked", "resolved", "amended", "amended"]
    assert "as bob corrected" in shown["explanation"]["known"]
    assert shown["next"][0].startswith(f"semel records amend {record_id} --result")
    assert run("audit", "verify").exit_code == 0


def test_what_the_tool_itself_settled_cannot_be_amended(ledger: semel.Ledger) -> None:
    record_id = settled(ledger)
    result = run("records", "amend", record_id, "--result", '{"message": "x"}', "--as", "ann")
    assert result.exit_code == 3
    assert "Nothing was changed" in result.stderr
    assert run("records", "amend", record_id, "--as", "ann").exit_code == 2


def test_tools_are_listed_and_shown_as_their_contracts_say(ledger: semel.Ledger) -> None:
    assert "No tools were run" in run("tools", "list").stdout
    settled(ledger)
    catalogued(ledger)
    [tool] = answer("tools", "list")["items"]
    assert (tool["name"], tool["window"], tool["on_unknown"]) == ("send", "1d", "park")
    listed = run("tools", "list").stdout
    assert max(map(len, listed.splitlines())) <= 80
    shown = run("tools", "show", "send").stdout
    assert "write-non-idempotent" in shown
    assert "waits for a person" in shown
    assert answer("tools", "show", "send", "--version", "1.3") == tool
    for words in (("send", "--version", "2"), ("nothing",)):
        missing = run("tools", "show", *words)
        assert (missing.exit_code, "No ledger" in missing.stderr) == (3, True)


def test_only_doubt_is_resolved(ledger: semel.Ledger) -> None:
    result = run("records", "resolve", settled(ledger), "--did-not-happen", "--as", "ann")
    assert result.exit_code == 3
    assert "not in doubt" in result.stderr
    assert "semel records show" in result.stderr


def test_the_same_resolution_again_changes_nothing_and_is_no_error(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    for person in ("ann", "bob"):
        shown = answer("records", "resolve", record_id, "--happened", "--as", person)
        assert shown["by"] == "ann"


def test_who_resolves_is_the_named_person_else_the_user(ledger: semel.Ledger) -> None:
    record_id = doubtful(ledger)
    assert run("records", "resolve", record_id, "--happened", USER="ursula").exit_code == 0
    assert ledger.records.get(record_id).by == "ursula"


# --- approvals --------------------------------------------------------------------------------------------


def asked_for(ledger: semel.Ledger) -> str:
    with pytest.raises(ApprovalRequired) as refused:
        in_step(ledger, wire, amount=5)
    return str(refused.value.details["job_id"])


def test_an_approved_call_runs(ledger: semel.Ledger) -> None:
    job = asked_for(ledger)
    assert job in run("approvals", "list", "--status", "waiting").stdout
    told = answer("approvals", "approve", job, "--as", "ann", "--reason", "fine")
    assert (told["status"], told["approved_by"]) == ("approved", "ann")
    assert in_step(ledger, wire, amount=5) == 5
    [item] = answer("approvals", "list")["items"]
    assert (item["status"], item["reason"], item["input"]) == ("approved", "fine", {"amount": 5})


def test_a_question_shows_what_is_asked_and_the_command_to_type_is_bound_to_it(ledger: semel.Ledger) -> None:
    job = asked_for(ledger)
    shown = run("approvals", "show", job).stdout
    request = answer("approvals", "show", job)
    for name in ("topic", "submitted_by", "expires_at", "job_hash", "status"):
        assert request[name] in shown, name
    assert '{"amount":5}' in shown
    (approve,) = [line.strip() for line in shown.splitlines() if line.startswith("  semel approvals approve")]
    assert request["job_hash"] in approve
    assert run(*shlex.split(approve)[1:], "--as", "ann", "--reason", "fine").exit_code == 0
    shown = run("approvals", "show", job).stdout
    assert "semel approvals approve" not in shown
    for fact in ("approved", "ann", "fine", answer("approvals", "show", job)["decided_at"]):
        assert fact in shown


def test_a_rejected_call_does_not(ledger: semel.Ledger) -> None:
    assert run("approvals", "reject", asked_for(ledger), "--as", "ann").exit_code == 0
    with pytest.raises(ApprovalRejected):
        in_step(ledger, wire, amount=5)


def test_the_same_decision_again_is_answered_with_the_first(ledger: semel.Ledger) -> None:
    job = asked_for(ledger)
    answer("approvals", "approve", job, "--as", "ann")
    again = answer("approvals", "approve", job, "--as", "bob")
    assert (again["status"], again["approved_by"]) == ("already_approved", "ann")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("reject", "{job}", "--as", "ann"), "approval_already_resolved"),
        (("approve", "{job}", "--as", "bot"), "self_approval_denied"),
        (("approve", "job_0", "--as", "ann"), "job_not_found"),
    ],
)
def test_a_decision_that_cannot_be_taken_is_refused_with_its_code(ledger: semel.Ledger, words, code) -> None:
    job = asked_for(ledger)
    answer("approvals", "approve", job, "--as", "ann")
    result = run("approvals", *(word.format(job=job) for word in words), "--json")
    assert result.exit_code == 3
    assert json.loads(result.stderr)["error"]["code"] == code


def test_a_decision_is_bound_to_what_was_seen(ledger: semel.Ledger) -> None:
    job = asked_for(ledger)
    assert run("approvals", "approve", job, "--as", "ann", "--job-hash", "00").exit_code == 3
    assert answer("approvals", "list")["items"][0]["status"] == "waiting"


# --- checks -----------------------------------------------------------------------------------------------


def test_the_doctor_exits_by_what_it_finds(ledger: semel.Ledger) -> None:
    assert answer("doctor")["safe"] is True
    assert "Nothing dangerous" in run("doctor").stdout
    result = run("doctor", "--url", "memory://", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["safe"] is False


def test_a_whole_log_is_told_from_one_that_was_touched(ledger: semel.Ledger, tmp_path: Path) -> None:
    settled(ledger)
    ledger.sweeper.run_once()
    assert answer("audit", "verify")["whole"] is True
    assert "The log is whole." in run("audit", "verify").stdout
    with sqlite3.connect(tmp_path / "semel.db") as connection:
        connection.execute("UPDATE semel_events SET tool = 'other' WHERE seq = 1")
    connection.close()
    result = run("audit", "verify")
    assert result.exit_code == 1
    assert "CHANGED  Seal 1" in result.stdout
    broken = json.loads(run("audit", "verify", "--json").stdout)["breaks"]
    assert [(each["seal"], each["wrong"]) for each in broken] == [(1, "changed")]


def test_duplicates_are_reported_and_fail_only_a_check(ledger: semel.Ledger) -> None:
    none = run("audit", "duplicates", "--check").stdout
    assert "none with another key" in none
    assert "No key came again after its window." in none
    assert "No two calls of a tool in one step differ in one argument only." in none
    settled(ledger, step="try-1")
    settled(ledger, step="try-2")
    told = answer("audit", "duplicates", "--within", "1h")
    assert (told["duplicates"], told["tools"][0]["tool"]) == (1, "send")
    plain = run("audit", "duplicates")
    assert plain.exit_code == 0
    assert "conv-42 / try-1  conv-42 / try-2" in plain.stdout
    assert run("audit", "duplicates", "--check").exit_code == 1
    assert run("audit", "duplicates", "--within", "soon").exit_code == 2


def test_the_advice_on_windows_of_all_tenants_says_whose_it_is(url: str) -> None:
    for tenant in ("default", "acme"):
        with semel.open(url, tenant=tenant) as tenants:
            settled(tenants)
            settled(tenants)
    text = run("windows", "--all-tenants").stdout
    assert [text.count(f"send, tenant {name}\n") for name in ("default", "acme")] == [1, 1]
    assert "send\n" in run("windows").stdout


# --- manners ----------------------------------------------------------------------------------------------


def test_an_error_says_what_to_do_as_text_and_as_json(ledger: semel.Ledger) -> None:
    told = run("records", "show", "rec_0")
    assert told.exit_code == 3
    assert told.stdout == ""
    assert "There is no record rec_0" in told.stderr
    assert "(RECORD_NOT_FOUND)" in told.stderr
    error = json.loads(run("records", "show", "rec_0", "--json").stderr)["error"]
    assert error["code"] == "RECORD_NOT_FOUND"
    assert error["message"]
    assert error["corrective_action"]


def test_wrong_usage_with_json_is_an_object_too(ledger: semel.Ledger) -> None:
    result = run("records", "resolve", "rec_0", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stderr)["error"]["code"] == "USAGE"


@pytest.mark.parametrize("words", [("nonsense",), ("records", "list", "--nonsense"), ("records", "show")])
def test_wrong_usage_exits_with_2(words) -> None:
    assert run(*words).exit_code == 2


def test_the_version_is_the_librarys() -> None:
    assert run("--version").stdout == f"semel {semel.__version__}\n"


def test_colours_are_for_terminals_that_want_them(ledger: semel.Ledger) -> None:
    doubtful(ledger)
    assert "\x1b[" not in run("records", "list").stdout
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}
    assert "\x1b[1;31mIN DOUBT" in run("records", "list", **terminal).stdout
    assert "31m" not in run("records", "list", **terminal, NO_COLOR="1").stdout


def test_a_name_from_outside_cannot_steer_the_terminal(ledger: semel.Ledger) -> None:
    doubtful(ledger, step="\x1b[2J[red]step")
    told = run("records", "list").stdout
    assert "\x1b" not in told
    assert r"\x1b[2J[red]step" in told
    assert clean("a\u202eb\nc") == r"a\u202eb\nc"


def module(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "semel", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_the_module_is_the_command(ledger: semel.Ledger, url: str) -> None:
    record_id = doubtful(ledger)
    told = module("records", "list", "--json", SEMEL_URL=url)
    assert told.returncode == 0
    assert json.loads(told.stdout)["items"][0]["id"] == record_id
    missing = module("doctor", "--url", f"{url}.missing")
    assert (missing.returncode, missing.stdout) == (4, "")
    assert "Traceback" not in missing.stderr


def test_a_reader_that_goes_away_is_no_traceback(ledger: semel.Ledger, url: str) -> None:
    for number in range(30):
        settled(ledger, step=f"s-{number}")
    command = [sys.executable, "-m", "semel", "records", "list", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        assert listing.stderr.read() == ""
