"""Questions as people and programs read them, and as the audit log tells them: JSON-ready, times as text."""

from __future__ import annotations

import hashlib

import orjson

from semel.audit.events import Event
from semel.kernel.answers import ApprovalJson, RecordJson
from semel.kernel.clock import rfc3339
from semel.kernel.large import as_json
from semel.questions.job import StoredJob, question_status


def approval(value: StoredJob, now_us: int = 0) -> ApprovalJson:
    """As of this time: a question that nobody answered is over when its time is, swept or not."""
    question, decision = value.question, value.decision
    assert question is not None
    return {
        "job_id": value.job_id,
        "run_id": value.run_id,
        "topic": value.topic,
        "input": value.input,
        "labels": value.labels or {},
        "status": _status(value, now_us),
        "revision": question.revision,
        "job_hash": job_hash(value),
        "submitted_by": value.submitted_by,
        "created_at": rfc3339(value.created_us),
        "expires_at": rfc3339(question.expires_us),
        "decided_by": decision.by if decision else None,
        "decided_at": rfc3339(decision.at_us) if decision else None,
        "reason": decision.reason if decision else question.reason,
    }


def _status(value: StoredJob, now_us: int) -> str:
    assert value.question is not None
    status = question_status(value)
    return "expired" if status == "waiting" and value.question.expires_us <= now_us else status


QUESTION_SCOPE = "approval"


def question_event(tenant: str, kind: str, value: StoredJob, now_us: int, by: str, why: str) -> Event:
    """What became of the question, as a line of the audit log; the digest is what the person saw."""
    assert value.question is not None
    return _event(tenant, kind, kind, value, now_us, value.question.expires_us, by, why)


def refusal_event(tenant: str, value: StoredJob, now_us: int, by: str, code: str, verb: str) -> Event:
    """A decision that a rule refused, as a line of the audit log; it changed nothing."""
    return _event(tenant, "refused", code, value, now_us, None, by, verb)


def _event(
    tenant: str,
    kind: str,
    state: str,
    value: StoredJob,
    now_us: int,
    expires_us: int | None,
    by: str,
    note: str,
) -> Event:
    return Event(
        seq=0,
        at_us=now_us,
        tenant=tenant,
        scope=QUESTION_SCOPE,
        key=value.job_id,
        record_id=question_record_id(value.job_id),
        kind=kind,
        state=state,
        fence=0,
        tool=value.topic,
        version="1",
        digest=bytes.fromhex(job_hash(value)),
        expires_at=expires_us,
        conversation=value.run_id or "",
        step=orjson.dumps([value.step_id] if value.step_id else []).decode(),
        by=by,
        note=note,
        times=1,
    )


def question_record_id(job_id: str) -> str:
    """A question is a record too, under the job's own random number."""
    return "rec_" + job_id.removeprefix("job_")


def job_of_question(record_id: str) -> str:
    return "job_" + record_id.removeprefix("rec_")


# What a question is as a record.
_AS_RECORD = {"waiting": "pending", "approved": "done", "rejected": "done"}


def question_record(value: StoredJob, now_us: int) -> RecordJson:
    """The question as `GET /api/v1/records` shows it."""
    shown = approval(value, now_us)
    over = shown["expires_at"] if shown["status"] == "expired" else rfc3339(value.ended_us)
    return {
        "id": question_record_id(value.job_id),
        "scope": "approval",
        "tool": value.topic,
        "key": value.job_id,
        "state": _AS_RECORD.get(shown["status"], "failed"),
        "fence": None,
        "attempts": 1,
        "created_at": shown["created_at"],
        "settled_at": shown["decided_at"] or (None if shown["status"] == "waiting" else over),
        "expires_at": shown["expires_at"],
        "run_id": value.run_id,
        "job_id": value.job_id,
        "status": shown["status"],
        "by": shown["decided_by"],
    }


def job_hash(value: StoredJob) -> str:
    """Over everything that a person sees before deciding."""
    seen = (
        value.job_id,
        value.run_id,
        value.step_id,
        value.topic,
        value.input,
        value.labels,
        value.submitted_by,
        value.created_us,
        value.question,
    )
    return hashlib.sha256(orjson.dumps(seen, as_json, orjson.OPT_SORT_KEYS)).hexdigest()
