"""A client of the gateway that retries for you: one key for one intention, whatever happens on the way.

    with Gateway("http://127.0.0.1:8765", api_key) as gateway:
        started = gateway.runs.start("refund", {"payment": "p-1"}, key="order-17")
        run = gateway.runs.wait(started.run_id, within="5m")

gateway     `Gateway` and `AsyncGateway`: methods in groups        problem    what is raised
operations  what can be asked, one function each                   models     what is answered, by a tool
routes      what is tried again, one line for each request         answer     what every answer has
retrying    one request from its first try to its answer           following  a run, to its end
driving     two drivers: by calling, by awaiting                   deadlines  of one try, on a thread
"""

from __future__ import annotations

from semel.stores.urls import need

need("client", "httpx")

from semel.client.answer import Answer  # noqa: E402  only where httpx is installed
from semel.client.gateway import AsyncGateway, Gateway  # noqa: E402
from semel.client.models import (  # noqa: E402
    ApprovalAnswer,
    DeadLetterAnswer,
    DecisionAnswer,
    DeletedAnswer,
    DuplicatesAnswer,
    EventAnswer,
    ExplainedRecordAnswer,
    HeartbeatAnswer,
    JobAnswer,
    LeasedJobAnswer,
    LeasesAnswer,
    RecordAnswer,
    RunAnswer,
    RunStartedAnswer,
    RunStepAnswer,
    StepAnswer,
    TenantAnswer,
    TimelineEventAnswer,
    ToolAnswer,
    WindowAnswer,
    WorkflowAnswer,
)
from semel.client.problem import Problem, StillRunning  # noqa: E402

__all__ = [
    "Answer",
    "ApprovalAnswer",
    "AsyncGateway",
    "DeadLetterAnswer",
    "DecisionAnswer",
    "DeletedAnswer",
    "DuplicatesAnswer",
    "EventAnswer",
    "ExplainedRecordAnswer",
    "Gateway",
    "HeartbeatAnswer",
    "JobAnswer",
    "LeasedJobAnswer",
    "LeasesAnswer",
    "Problem",
    "RecordAnswer",
    "RunAnswer",
    "RunStartedAnswer",
    "RunStepAnswer",
    "StepAnswer",
    "StillRunning",
    "TenantAnswer",
    "TimelineEventAnswer",
    "ToolAnswer",
    "WindowAnswer",
    "WorkflowAnswer",
]
