"""The operating checks pass on every store, and what `semel serve` prints to try does work."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.servers import free_port
from semel.flow.approvals import JobApprovals
from semel.flow.bus import open_bus
from semel.flow.document_store import DocumentStore
from semel.flow.outbox import Outbox
from semel.flow.values import JsonAnswer
from semel.kernel.clock import SYSTEM
from semel.lab.runbooks import contention, contention_report
from semel.lab.runbooks.contention import ContentionLab, Trial, Variant
from semel.lab.runbooks.contention_callers import CallerProcesses, CallerResults, Order, caller_processes
from semel.lab.runbooks.contention_report import ContentionFindings
from semel.lab.runbooks.runbook import Runbook
from semel.questions import change as change_of_job
from semel.questions.change import JobChange
from semel.questions.job import Decision, StoredJob
from semel.stores.urls import open_store
from tests.client.strangers import SeenRequest, answer, stranger
from tests.faults.places import PLACES
from tests.gateway.conftest import Serve, define, limit, start_run
from tests.gateway.serving import PATIENCE_S, Gateway, Gateways, quiet_environment, run_ids, semel, until
from tests.missing import cannot
from tests.nats_server import NatsServer

STORES = [place.name for place in PLACES]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    return store_url(request.param, tmp_path)


def store_url(name: str, folder: Path) -> str:
    found: str = next(place for place in PLACES if place.name == name).url(folder)
    return found


# --- admission ----------------------------------------------------------------------------------------


def check_passed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The names of the checks, all of which hold."""
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert [check for check in told["checks"] if not check["ok"]] == []
    return [check["name"] for check in told["checks"]]


@pytest.mark.parametrize(
    ("store", "strategy"), [("sqlite", "lock"), ("redis", "atomic"), ("postgres", "atomic")]
)
def test_the_runbook_of_admission_passes(store: str, strategy: str, tmp_path: Path) -> None:
    url = store_url(store, tmp_path)
    checks = check_passed(semel("runbook", "admission", "--json", "--url", url, "--admission", strategy))
    assert "limit 2, ten starts at once: 2 × 200 and 8 × 429" in checks
    assert "the same key starts a run now" in checks
    assert "the key's record maps to the new run" in checks


def test_the_runbook_of_admission_needs_nothing_and_says_each_step() -> None:
    done = semel("runbook", "admission")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    steps = [line for line in lines if line.startswith("ok ")]
    assert lines[-1] == f"{len(steps)} of {len(steps)} checks hold."
    assert len(steps) >= 12


@pytest.mark.full
def test_the_runbook_of_admission_works_on_a_gateway_that_runs_and_leaves_nothing_there(
    tmp_path: Path, begin: Gateways
) -> None:
    store = store_url("sqlite", tmp_path)
    made = semel(
        *("keys", "create", "--url", store, "--tenant", "acme", "--principal", "ops"), "--role", "admin"
    )
    key = made.stdout.strip().splitlines()[-1]
    gateway = begin(store, dev=False)
    client = gateway.client(X_API_Key=key)
    assert client.put("/api/v1/tenants/acme", json={"max_concurrent_runs": 7}).status_code == 200
    names = check_passed(semel("runbook", "admission", "--json", "--server", gateway.url, SEMEL_API_KEY=key))
    assert {"the tenant's limit is 1 run", "429 says that the tenant is full"} <= set(names)
    assert client.get("/api/v1/tenant").json() == {"tenant": "acme", "max_concurrent_runs": 7}
    assert run_ids(client, status="running") == []
    assert client.get("/api/v1/workflows").json()["items"] == []


@pytest.mark.full
def test_the_runbook_of_admission_leaves_a_tenant_alone_that_is_in_use_and_says_why(
    tmp_path: Path, begin: Gateways
) -> None:
    store = store_url("sqlite", tmp_path)
    made = semel(
        *("keys", "create", "--url", store, "--tenant", "acme", "--principal", "ops"), "--role", "admin"
    )
    key = made.stdout.strip().splitlines()[-1]
    gateway = begin(store, dev=False)
    client = gateway.client(X_API_Key=key)
    define(client)
    assert client.put("/api/v1/tenants/acme", json={"max_concurrent_runs": 1}).status_code == 200
    assert start_run(client).status_code == 200
    done = semel("runbook", "admission", "--json", "--server", gateway.url, SEMEL_API_KEY=key)
    assert done.returncode == 1, done.stdout + done.stderr
    (failed,) = [check for check in json.loads(done.stdout)["checks"] if not check["ok"]]
    assert failed["name"] == "nobody is at work in the tenant"
    assert "1 live runs of at most 1 in tenant acme" in failed["seen"]
    assert "semel keys create --tenant runbook" in failed["seen"]
    assert len(run_ids(client, status="running")) == 1
    assert client.get("/api/v1/tenant").json()["max_concurrent_runs"] == 1


@pytest.mark.full
def test_the_runbook_of_admission_makes_a_tenant_of_its_own_where_it_may(begin: Gateways) -> None:
    gateway = begin("memory://")
    client = gateway.client(X_Tenant_ID="default")
    define(client)
    limit(client, 1)
    assert start_run(client).status_code == 200
    check_passed(semel("runbook", "admission", "--json", "--server", gateway.url))
    assert len(run_ids(client, status="running")) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("runbook", "admission"),
        ("runbook", "approvals"),
        ("runbook", "contention"),
        ("runbook", "window", "--report", "plots"),
    ],
)
def test_a_runbook_without_its_extra_says_what_to_install(words: tuple[str, ...], tmp_path: Path) -> None:
    without = (
        "import sys; sys.modules |= {'httpx': None, 'matplotlib': None}; import semel.cli; semel.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", without, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert 'pip install "semel[lab]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_runbook_says_that_nobody_answers(tmp_path: Path) -> None:
    for name in ("admission", "approvals"):
        done = semel("runbook", name, "--server", f"http://127.0.0.1:{free_port()}")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "does not answer" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["admission", "approvals"])
def test_the_checks_of_a_runbook_are_left_as_a_page(name: str, tmp_path: Path) -> None:
    report = tmp_path / "of" / "today"
    checks = check_passed(semel("runbook", name, "--json", "--report", str(report)))
    text = (report / f"{name}.html").read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert f"{len(checks)} of {len(checks)} checks hold." in text
    assert all(f"<td>{html.escape(check)}</td>" in text for check in checks)


@pytest.mark.parametrize("name", ["admission", "approvals", "contention", "window"])
def test_a_folder_for_the_report_that_cannot_be_made_is_told_before_anything_is_begun(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    done = semel("runbook", name, "--report", str(tmp_path / "file" / "report"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Invalid value for '--report'" in done.stderr
    assert done.stdout == ""


def test_the_runbook_of_approvals_wants_the_key_of_somebody_who_approves() -> None:
    done = semel("runbook", "approvals", "--server", "http://127.0.0.1:9", "--api-key", "semel_a_b")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--approver-key" in done.stderr


# --- approvals ----------------------------------------------------------------------------------------

APPROVALS = [
    f"{verb}: {what}"
    for verb, past, state in (("approve", "approved", "queued"), ("reject", "rejected", "denied"))
    for what in (
        "a run waits",
        "not by who submitted it",
        "the question is shown",
        "decided",
        f"5 parallel retries are told already_{past}",
        "the other decision conflicts",
        "the message's id is approval:<job_id>",
        f"the job is {state}",
    )
]


def failed_checks(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The names of the checks that do not hold; there are some, and the exit code says so."""
    assert done.returncode == 1, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is False
    return [check["name"] for check in told["checks"] if not check["ok"]]


def test_the_runbook_of_approvals_passes(url: str) -> None:
    checks = check_passed(semel("runbook", "approvals", "--json", "--url", url))
    assert checks[1:] == APPROVALS


@pytest.mark.full
def test_the_runbook_of_approvals_passes_with_nats_which_keeps_its_two_decisions(tmp_path: Path) -> None:
    nats = NatsServer()
    try:
        nats.start()
        store = store_url("sqlite", tmp_path)
        check_passed(semel("runbook", "approvals", "--json", "--url", store, "--bus", nats.url()))
        kept = asyncio.run(_decisions_kept(nats.url(), store))
        assert kept == ["approval.approved", "approval.rejected"]
    finally:
        nats.remove()


async def _decisions_kept(bus_url: str, store_url: str) -> list[str]:
    bus, store = open_bus(bus_url), open_store(store_url)
    await bus.start()
    try:
        # What the gateway had not sent when it was stopped; what it had sent is known to the broker.
        await Outbox(DocumentStore(store), bus.publish).run_once()
        line = await bus.subscribe("test", "approval")
        found = [await line.next(PATIENCE_S) for _ in range(2)]
        return sorted(delivery.message.type for delivery in found if delivery)
    finally:
        await bus.stop()
        await store.aclose()


@pytest.mark.full
def test_the_runbook_of_approvals_works_with_keys_and_leaves_nothing_behind(serve: Serve) -> None:
    served = serve()
    admin, approver = served.key("admin", principal="ops"), served.key("approver", principal="boss")
    words = ("runbook", "approvals", "--json", "--server", served.url)
    check_passed(semel(*words, SEMEL_API_KEY=admin, SEMEL_APPROVER_KEY=approver))
    client = served.client(X_API_Key=admin)
    assert [run_ids(client, status=status) for status in ("running", "waiting")] == [[], []]
    assert client.get("/api/v1/workflows").json()["items"] == []


@pytest.mark.full
def test_the_runbook_of_approvals_fails_where_one_person_has_both_keys(serve: Serve) -> None:
    served = serve()
    admin, approver = served.key("admin", principal="ops"), served.key("approver", principal="ops")
    words = ("runbook", "approvals", "--json", "--server", served.url)
    done = semel(*words, SEMEL_API_KEY=admin, SEMEL_APPROVER_KEY=approver)
    assert {"approve: decided", "reject: decided"} <= set(failed_checks(done))


@pytest.mark.full
def test_the_runbook_of_approvals_starts_nothing_without_an_approver_s_key(serve: Serve) -> None:
    served = serve()
    done = semel(
        *("runbook", "approvals", "--json", "--server", served.url),
        SEMEL_API_KEY=served.key("admin", principal="ops"),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "give --approver-key" in done.stderr
    client = served.holder("admin")
    assert [run_ids(client, status=status) for status in ("running", "waiting")] == [[], []]


def names_another_person(answer: JsonAnswer) -> JsonAnswer:
    return answer._replace(body=answer.body.replace(b'"approver"', b'"another"'))


def is_no_replay(answer: JsonAnswer) -> JsonAnswer:
    return answer._replace(replayed=False)


def is_a_first_decision(answer: JsonAnswer) -> JsonAnswer:
    return answer._replace(body=answer.body.replace(b"already_", b""))


@pytest.mark.parametrize("flaw", [names_another_person, is_no_replay, is_a_first_decision])
def test_the_runbook_of_approvals_fails_where_retries_are_answered_wrongly(
    flaw: Callable[[JsonAnswer], JsonAnswer], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = JobApprovals.decide

    async def flawed(*asked: Any) -> JsonAnswer:
        answer = await decide(*asked)
        return flaw(answer) if answer.replayed else answer

    monkeypatch.setattr(JobApprovals, "decide", flawed)
    done = semel("runbook", "approvals", "--json", "--server", serve(dev=True).url)
    assert failed_checks(done) == [
        "approve: 5 parallel retries are told already_approved",
        "reject: 5 parallel retries are told already_rejected",
    ]


@pytest.mark.full
def test_the_runbook_of_approvals_fails_where_the_message_has_another_id(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = change_of_job.decide

    def renamed(change: JobChange, job: StoredJob, decision: Decision) -> None:
        decide(change, job, decision)
        change.jobs = {id_: replace(each, bus_msg_id="approval:1") for id_, each in change.jobs.items()}

    monkeypatch.setattr(change_of_job, "decide", renamed)
    done = semel("runbook", "approvals", "--json", "--server", serve(dev=True).url)
    assert failed_checks(done) == [
        "approve: the message's id is approval:<job_id>",
        "reject: the message's id is approval:<job_id>",
    ]


# --- contention ---------------------------------------------------------------------------------------

VARIANTS = {"atomic", "lock fixed", "lock jitter"}

# Small enough for a busy machine; what is checked holds at any size.
SMALL = ("--callers", "4", "--seconds", "1", "--lock-wait", "2s", "--lock-wait", "100ms", "--budget", "1")


@pytest.mark.full
def test_the_runbook_of_contention_draws_what_it_saw_and_what_follows(url: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    done = semel("runbook", "contention", *SMALL, "--url", url, "--report", str(report))
    assert done.returncode in (0, 1), done.stdout + done.stderr  # a busy machine may turn a comparison round
    assert all(variant in done.stdout for variant in VARIANTS)
    plots = sorted(report.glob("*.png"))
    assert [plot.stem for plot in plots] == ["admitted", "answers", "latency", "lock", "sweep"]
    assert all(plot.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for plot in plots)
    (page,) = report.glob("*.html")
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert all(plot.name in text for plot in plots)
    assert "4 callers that come back with jitter: atomic admission let" in text
    assert "atomic admission answered half of them in" in text  # a title says who did what
    assert "behind the lock: best with --lock-wait" in text
    assert "40 callers, jitter in the looks at the lock" in text
    assert "Keep atomic admission" in text
    assert str(page) in done.stdout


@pytest.mark.full
def test_the_runbook_of_contention_answers_a_program_with_every_variant(tmp_path: Path) -> None:
    done = semel("runbook", "contention", "--json", *SMALL)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = json.loads(done.stdout)
    kinds = {(row["strategy"], row["client"], row["callers"]) for row in told["rows"]}
    assert kinds == {
        (strategy, client, callers)
        for strategy in VARIANTS
        for client in ("none", "fixed", "jitter")
        for callers in (4, 40)
    }
    for row in told["rows"]:
        numbers = [row[name] for name in ("admitted", "refused_429", "refused_503", "p50_ms", "p95_ms")]
        assert all(isinstance(number, int | float) and number >= 0 for number in numbers)
        assert row["admitted"] + row["refused_429"] + row["refused_503"] <= row["requests"]
        assert (row["lock_looks"] > 0) == (row["strategy"] != "atomic")
        if row["client"] == "none":
            assert (row["admitted"], row["requests"]) == (2, row["callers"])
    assert {(row["lock_wait"], row["budget_s"]) for row in told["sweep"]} == {("2s", 1.0), ("100ms", 1.0)}
    assert "--lock-wait" in told["recommendation"]
    must = [check for check in told["checks"] if "no worse" not in check["name"]]
    assert [check for check in must if not check["ok"]] == []


@pytest.mark.full
def test_the_runbook_of_contention_works_on_a_gateway_with_keys_and_leaves_nothing_there(
    serve: Serve,
) -> None:
    served = serve()
    words = ("--server", served.url, "--callers", "3", "--seconds", "1")
    done = semel(
        "runbook", "contention", "--json", *words, SEMEL_API_KEY=served.key("admin", principal="ops")
    )
    check_passed(done)
    assert {row["client"] for row in json.loads(done.stdout)["rows"]} == {"none", "fixed", "jitter"}
    client = served.holder("admin")
    assert [run_ids(client, status=status) for status in ("running", "waiting")] == [[], []]
    assert client.get("/api/v1/workflows").json()["items"] == []


@pytest.mark.parametrize(
    "stop",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.full),
        pytest.param(signal.SIGHUP, marks=pytest.mark.full),
    ],
    ids=lambda stop: stop.name,
)
def test_an_interrupted_runbook_of_contention_leaves_nothing_behind(
    stop: signal.Signals, serve: Serve
) -> None:
    served = serve()
    client = served.holder("admin")
    command = [sys.executable, "-m", "semel", "runbook", "contention", "--server", served.url]
    process = subprocess.Popen(
        [*command, "--callers", "3", "--seconds", "60"],
        env=quiet_environment() | {"SEMEL_API_KEY": served.key("admin", principal="ops")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Who started the tests may have chosen to ignore it, as `nohup` does, and a child inherits that.
        preexec_fn=lambda: signal.signal(stop, signal.SIG_DFL),
    )
    try:
        until(lambda: run_ids(client, status="running") or process.poll() is not None, "runs are there")
        assert process.poll() is None
        process.send_signal(stop)
        said, complaint = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said + complaint
    assert b"Traceback" not in complaint
    assert [run_ids(client, status=status) for status in ("running", "waiting")] == [[], []]
    assert client.get("/api/v1/workflows").json()["items"] == []


def test_a_caller_that_is_refused_comes_back_with_its_key() -> None:
    starts: list[str] = []

    def answers(request: SeenRequest, _: int) -> list[bytes]:
        if request.line.startswith("GET /healthz "):
            return [answer(b"{}")]
        starts.append(request.headers["idempotency-key"])
        if len(starts) == 1:
            refusal = b'{"code": "gateway_stopping", "retriable": true, "detail": "No."}'
            return [answer(refusal, "503 Service Unavailable", "application/problem+json")]
        return [answer(b'{"run_id": "run_1", "workflow_id": "w", "status": "running"}')]

    with stranger(answers) as server, caller_processes() as processes:
        order = Order(server.url, None, "t", "w", ["k"], client="jitter", budget_s=PATIENCE_S, hold_s=None)
        results = processes.run(order)
    assert [status for _, _, status in results.requests] == [503, 200]
    assert len(results.admitted) == 1
    assert starts == ["k", "k"]


def test_a_caller_that_lets_the_gateway_wait_for_a_slot_comes_back_for_no_longer_than_one_that_does_not() -> (
    None
):
    """The time it asks the gateway to wait is a part of its budget here, or it would be tried for longer."""
    full = b'{"code": "max_concurrent_runs_reached", "retriable": true, "detail": "No."}'

    def answers(request: SeenRequest, _: int) -> list[bytes]:
        if request.line.startswith("GET /healthz "):
            return [answer(b"{}")]
        # Later than its budget, and sooner than its budget and the wait together.
        return [answer(full, "429 Too Many Requests", "application/problem+json", Retry_After="2")]

    with stranger(answers) as server, caller_processes() as processes:
        order = Order(
            server.url, None, "t", "w", ["k"], client="jitter", budget_s=1.0, hold_s=None, slot_wait="1h"
        )
        results = processes.run(order)
    assert [status for _, _, status in results.requests] == [429]


def a_trial(
    strategy: str, admitted: int, *, took_s: float = 0.1, at_once: int = 1, status: int = 200
) -> Trial:
    requests = [(0.0, took_s, status)] * 10
    runs = [(float(number // at_once), number // at_once + 0.5) for number in range(admitted)]
    return Trial(Variant(strategy, "jitter", 10), CallerResults(requests, runs, 1.0))


def failed_names(*trials: Trial) -> list[str]:
    book = Runbook()
    contention.judge(book, trials)
    return [check.name for check in book.checks if not check.ok]


def test_the_runbook_of_contention_fails_where_atomic_admission_does_worse_than_a_lock() -> None:
    assert failed_names(a_trial("atomic", 10), a_trial("lock jitter", 10), a_trial("lock fixed", 3)) == []
    assert failed_names(a_trial("atomic", 5), a_trial("lock jitter", 6), a_trial("lock fixed", 7)) == [
        "atomic, client jitter, 10 callers: no worse than lock fixed by admitted"
    ]


def test_the_runbook_of_contention_fails_on_a_broken_limit_and_on_wrong_answers() -> None:
    name = "atomic, client jitter, 10 callers"
    assert failed_names(a_trial("atomic", 6, at_once=3)) == [f"{name}: never over the limit"]
    assert failed_names(a_trial("atomic", 2, status=0)) == [f"{name}: only 200, 409, 429 and 503"]
    assert failed_names(a_trial("atomic", 2, status=503)) == [f"{name}: nobody is refused for want of a lock"]
    assert failed_names(a_trial("atomic", 0)) == [f"{name}: somebody is admitted"]


def test_without_retries_atomic_admission_has_to_answer_as_soon_as_the_lock() -> None:
    slow, quick = a_trial("atomic", 2, took_s=3.0), a_trial("lock jitter", 2, took_s=0.1)
    slow.variant, quick.variant = (each.variant._replace(client="none") for each in (slow, quick))
    assert failed_names(slow, quick) == ["atomic, client none, 10 callers: no worse than lock jitter by P95"]


def test_what_would_begin_too_late_is_left_out_and_named() -> None:
    lab = ContentionLab(CallerProcesses(()), ends_at=SYSTEM.monotonic())
    wanted = list(contention.variants("atomic", 2, 1.0))
    assert (lab.on_own_gateways(None, wanted), lab.left_out) == ([], wanted)


def test_the_recommendation_is_what_admits_most_and_is_over_soonest() -> None:
    tried = [a_trial("lock jitter", admitted) for admitted in (3, 10, 9)]
    for number, (trial, took_s) in enumerate(zip(tried, (1.0, 9.0, 2.0), strict=True)):
        trial.results.took_s = took_s
        trial.variant = trial.variant._replace(lock_wait=f"{number}s")
    assert contention.best(tried) is tried[2]
    recommended = contention.recommendation([a_trial("atomic", 1)], tried)
    assert "--lock-wait 2s" in recommended
    assert "9 of 10 were admitted, nearly as many as the most (10), and it was over soonest" in recommended
    assert contention.best([]) is None


def test_words_and_title_tell_the_same_of_jitter_in_the_looks_at_the_lock() -> None:
    trials = [a_trial(strategy, 9) for strategy in ("lock jitter", "lock fixed") for _ in ("none", "jitter")]
    for trial, looks in zip(trials, (3, 9, 5, 7), strict=True):
        trial.looks = [0.001] * looks
    for trial in trials[::2]:
        trial.variant = trial.variant._replace(client="none")
    seen = ContentionFindings(trials, ())
    (said,) = [each for each in contention_report.conclusions(seen) if "looks at the lock" in each]
    assert "at most 3 looks in 10 ms instead of 5" in said
    title = contention_report._looks_title(seen)
    assert "up to 3 requests for the lock in 10 ms with jitter, 5 without" in title


def test_the_page_says_for_how_long_callers_come_back_and_what_its_columns_are() -> None:
    page = contention_report._body(ContentionFindings([a_trial("atomic", 9)], ()), {})
    assert "they are admitted or their budget of 3 s is spent" in page
    assert "LONGEST / MEAN GAP" in page
    assert "longest time between two callers that were admitted, against the mean one" in page


# --- what `make serve` says ---------------------------------------------------------------------------


@pytest.fixture
def curl() -> str:
    found = shutil.which("curl")
    if found is None:
        cannot("curl is not installed: apt-get install curl")
    return found


def said_to_try(gateway: Gateway) -> list[str]:
    """The lines that are printed to be copied, once all of them are there."""
    until(lambda: "Ctrl-C stops." in gateway.said(), "it has said all")
    return re.findall(r"^  (curl .*)$", gateway.said(), re.MULTILINE)


def run_line(line: str, curl: str, **variables: str) -> str:
    """What the line, given to a shell as it stands, writes."""
    script = line.replace("curl ", f"{shlex.quote(curl)} -sS ", 1)
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_the_lines_work_with_the_key_that_the_line_above_them_makes(
    tmp_path: Path, begin: Gateways, curl: str
) -> None:
    store = store_url("sqlite", tmp_path)
    gateway = begin(store, dev=False)
    assert gateway.url
    define_, start, read = said_to_try(gateway)
    making = re.search(r"export SEMEL_API_KEY=\$\(semel (.*)\)", gateway.said())
    assert making, gateway.said()
    key = semel(*shlex.split(making[1])).stdout.strip()
    assert json.loads(run_line(define_, curl, SEMEL_API_KEY=key))["workflow_id"] == "hello"
    assert run_line(start, curl, SEMEL_API_KEY=key).startswith("HTTP/1.1 200")
    assert len(json.loads(run_line(read, curl, SEMEL_API_KEY=key))["items"]) == 1
    assert json.loads(run_line(read, curl, SEMEL_API_KEY="semel_no_key"))["code"] == "unauthenticated"
