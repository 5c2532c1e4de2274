"""The stage of an engine's proofs: a server that forks its processes, and what they did to the provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import semel
from semel.kernel.record import Record
from tests.agents.provider import Provider
from tests.agents.script import Job, Seen
from tests.agents.server import Ended, Server
from tests.faults.checks import until
from tests.tools import events


class EngineProofs:
    adapter: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[Server]:
        server = Server(cls.adapter)
        yield server
        server.close()

    @pytest.fixture(autouse=True)
    def stage(self, server: Server, tmp_path: Path) -> Iterator[None]:
        self.server, self.folder, self.provider = server, tmp_path, Provider(tmp_path)
        with semel.open(f"sqlite:///{tmp_path}/ledger.db") as self.ledger:
            yield

    def job(self, tool: str = "issue_refund", **said: Any) -> Job:
        return Job(self.folder, [], tools=(tool,), **said)

    def run(self, do: str, job: Job) -> Ended:
        return self.server.run(do, job)

    def seen(self, do: str, job: Job) -> Seen:
        seen: Seen = self.run(do, job).unwrap()
        return seen

    @property
    def effects(self) -> int:
        return len(self.provider.effects())

    def record(self) -> Record:
        [record] = self.ledger.records.list(scope="tool")
        return record

    def it_happened(self) -> None:
        """What a person says of the call in doubt, who has asked the provider."""
        result = "refund of p-1, as the provider says"
        self.ledger.records.resolve(self.record().request.id, "happened", result=result, by="ann")

    def decide(self, verdict: str) -> None:
        """What a person says, as soon as they are asked."""
        [question] = until(lambda: self.ledger.approvals.list("waiting"), "a person is asked")
        said = self.ledger.approvals.approve if verdict == "approve" else self.ledger.approvals.reject
        said(question.job_id, by="ann")

    def deciders(self) -> set[str]:
        return {event.by for event in events(self.ledger) if event.kind in ("approved", "rejected")}

    def meanwhile(self, do: str, job: Job, act: Callable[[], None]) -> Seen:
        """What came out of a process while something else happened."""
        child = self.server.start(do, job)
        act()
        seen: Seen = self.server.wait(child).unwrap()
        return seen
