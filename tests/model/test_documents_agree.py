"""Documents of every store against those in memory, operation by operation, as Hypothesis thinks of them.

Answers are equal as they are. Not compared: the order in which tenants are told, which is the store's own.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from semel.stores.base import Query
from semel.stores.documents import (
    Capacity,
    Commit,
    Committed,
    Count,
    Draft,
    Entry,
    Fetch,
    Scan,
    Tenants,
    Weigh,
)
from semel.stores.memory import MemoryStore
from tests.fake_clock import START_US, FakeClock
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.stores import KINDS, Kind

TENANTS = ["acme", "globex:ü"]
# Their bytes are in another order than their letters in a dictionary.
IDS = ["run", "Run", "run 2", "é", "🦊", ""]
SHELVES = ["runs", "slots", "due {x}%"]
SCORES = [-5, 0, 1, 2, START_US, START_US + 1_000_000, 2**53 - 1]

# What an expectation says of a document: mostly the truth, else hardly a commit is carried out.
TRUE, ABSENT, STALE = "its tag", "absent", "another tag"

tenants = st.sampled_from([TENANTS[0]] * 3 + TENANTS[1:])
ids = st.sampled_from(IDS)
indexes = st.sampled_from(SHELVES)
scores = st.sampled_from(SCORES)
entries = st.dictionaries(indexes, scores, max_size=3).map(
    lambda chosen: tuple(Entry(index, score) for index, score in chosen.items())
)
bodies = st.sampled_from([b"", b"\x00\xff", b'{"state":"queued"}', b"x" * 5_000])
drafts = st.lists(st.builds(Draft, ids, bodies, entries), max_size=4, unique_by=lambda draft: draft.id)
expectations = st.dictionaries(ids, st.sampled_from([TRUE] * 5 + [ABSENT, STALE]), max_size=3)
capacities = st.lists(st.builds(Capacity, indexes, st.sampled_from([0, 1, 2, 3, 50])), max_size=2)


class Agreement(RuleBasedStateMachine):
    """Two handles on one store, and the specification, side by side under one clock."""

    kind: ClassVar[Kind]
    manner: ClassVar[type[StoreHandle]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.directory = Path(tempfile.mkdtemp(prefix="semel-documents-"))
        self.memory = MemoryStore(clock=self.clock)
        self.handle, self.other_handle = self.open_handle(), self.open_handle()
        self.asked: list[Commit] = []

    def open_handle(self) -> StoreHandle:
        return self.manner(self.kind.open(self.directory, self.clock, True))

    def compare(self, query: Query[Any]) -> Any:
        ours, theirs = self.memory.ask(query), self.handle.ask(query)
        assert theirs == ours
        return ours

    # --- writing -----------------------------------------------------------------------------------

    @rule(
        tenant=tenants,
        expect=expectations,
        put=drafts,
        drop=st.lists(ids, max_size=2),
        capacity=st.just([]) | capacities,
    )
    def commits(self, tenant, expect, put, drop, capacity):
        seen = {id_: self.tag_said(tenant, id_, said) for id_, said in expect.items()}
        self.asked.append(
            Commit(tenant, f"{len(self.asked):032x}", seen, tuple(put), tuple(drop), tuple(capacity))
        )
        self.compare(self.asked[-1])

    def tag_said(self, tenant: str, id_: str, said: str) -> str | None:
        if said == TRUE:
            present = self.memory.ask(Fetch(tenant, (id_,))).documents.get(id_)
            return None if present is None else present.tag
        return None if said == ABSENT else "f" * 32

    @rule(tenant=tenants, id_=ids, body=bodies, at=scores, limit=st.integers(1, 4))
    def enters(self, tenant, id_, body, at, limit):
        """What admission does: a document that is absent takes a slot, if there is one."""
        draft = Draft(id_, body, (Entry("slots", at), Entry("runs", at)))
        tag = f"{len(self.asked):032x}"
        self.asked.append(Commit(tenant, tag, {id_: None}, (draft,), (), (Capacity("slots", limit),)))
        self.compare(self.asked[-1])

    @precondition(lambda self: self.asked)
    @rule(back=st.integers(0, 3))
    def asks_again(self, back):
        answer: Committed = self.compare(self.asked[-1 - min(back, len(self.asked) - 1)])
        assert answer.done or answer.unexpected or answer.full

    # --- reading -----------------------------------------------------------------------------------

    @rule(
        tenant=tenants,
        index=indexes,
        limit=st.sampled_from([0, 1, 2, 50]),
        newest=st.booleans(),
        after=st.none() | st.tuples(scores, ids),
        upto=st.none() | scores,
    )
    def scans(self, tenant, index, limit, newest, after, upto):
        query = Scan(tenant, index, limit, newest, after, upto)
        ours, theirs = self.memory.ask(query), self.handle.ask(query)
        assert (theirs.now_us, [*theirs.documents]) == (ours.now_us, [*ours.documents])

    @rule(tenant=tenants, chosen=st.lists(ids, max_size=6))
    def fetches(self, tenant, chosen):
        self.compare(Fetch(tenant, tuple(chosen)))

    @rule(tenant=tenants)
    def weighs(self, tenant):
        assert self.handle.ask(Weigh(tenant)) == self.memory.ask(Weigh(tenant))

    @rule(index=indexes, upto=st.none() | scores)
    def asks_for_tenants(self, index, upto):
        ours, theirs = (store.ask(Tenants(index, upto)) for store in (self.memory, self.handle))
        assert sorted(theirs) == sorted(ours)

    # --- time and others ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.000_001, 1, -1]))
    def time_passes_or_the_clock_is_set_back(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def another_process_goes_on(self):
        self.handle, self.other_handle = self.other_handle, self.handle

    # --- after every step --------------------------------------------------------------------------

    @invariant()
    def all_documents_and_indexes_are_equal(self):
        for tenant in TENANTS:
            self.compare(Fetch(tenant, tuple(IDS)))
            for index in SHELVES:
                self.compare(Count(tenant, index))
                self.scans(tenant, index, 50, False, None, None)

    def teardown(self) -> None:
        self.handle.close()
        self.other_handle.close()
        shutil.rmtree(self.directory)


MACHINES = [
    pytest.param(kind, manner, id=f"{kind.name}-{name}")
    for kind in KINDS
    if kind.shared
    for name, manner in (("sync", StoreHandle), ("async", AsyncStoreHandle))
]

ORDINARY = settings(
    max_examples=18, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow], deadline=None
)


def agree(kind: Kind, manner: type[StoreHandle], how: settings) -> None:
    machine = type("Agreement", (Agreement,), {"kind": kind, "manner": manner})
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.parametrize(("kind", "manner"), MACHINES)
def test_a_store_keeps_documents_like_memory_operation_by_operation(kind, manner):
    agree(kind, manner, ORDINARY)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "manner"), MACHINES)
def test_a_store_keeps_documents_like_memory_for_a_long_time(kind, manner):
    agree(kind, manner, settings(ORDINARY, max_examples=1_000, stateful_step_count=80))
