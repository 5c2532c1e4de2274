"""Documents: what every store makes of Commit, Fetch, Scan, Count, Tenants and Weigh."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeVar

import pytest

from semel.audit.events import Event
from semel.audit.verify import verify
from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address
from semel.stores.base import Query, ReadEvents, SealEvents, Store
from semel.stores.documents import (
    Capacity,
    Commit,
    Committed,
    Count,
    Document,
    Draft,
    Entry,
    Fetch,
    Scan,
    Tenants,
    Weigh,
    score_on,
)
from tests.commands import A, claim, look
from tests.conformance.conftest import StoreHandles
from tests.fake_clock import PATIENCE_S, START_US, FakeClock
from tests.handles import StoreHandle
from tests.stores import CONFORMING, Kind

T = TypeVar("T")

# The largest score that a store has to keep exactly: what a double can hold.
HIGHEST = 2**53 - 1

MEBIBYTE = 1 << 20


def fresh() -> str:
    return SYSTEM.token().hex()


def on(index: str, score: int = 0) -> tuple[Entry, ...]:
    return (Entry(index, score),)


def commit(
    *put: Draft,
    tenant: str = "acme",
    tag: str = "",
    expect: Mapping[str, str | None] | None = None,
    drop: tuple[str, ...] = (),
    capacity: tuple[Capacity, ...] = (),
) -> Commit:
    return Commit(tenant, tag or fresh(), expect or {}, put, drop, capacity)


def written(handle: StoreHandle, *put: Draft, tenant: str = "acme") -> list[Document]:
    """The documents as they stand after they were written."""
    asked = commit(*put, tenant=tenant)
    assert handle.ask(asked).done
    return [Document(draft.id, draft.body, asked.tag, draft.entries) for draft in put]


def fetched(handle: StoreHandle, *ids: str, tenant: str = "acme") -> dict[str, Document]:
    return dict(handle.ask(Fetch(tenant, ids)).documents)


def scanned(handle: StoreHandle, index: str, tenant: str = "acme", limit: int = 1_000) -> list[str]:
    return [document.id for document in handle.ask(Scan(tenant, index, limit)).documents]


# --- weight ----------------------------------------------------------------------------------------------


def test_a_tenants_documents_weigh_what_their_bodies_have(handle):
    assert handle.ask(Weigh("acme")) == 0
    written(handle, Draft("run-1", b"x" * MEBIBYTE, on("runs")), Draft("job-1", b"12345"))
    written(handle, Draft("run-1", b"another tenant's"), tenant="other")
    assert handle.ask(Weigh("acme")) == MEBIBYTE + 5
    written(handle, Draft("run-1", b"shorter", on("runs")))
    assert handle.ask(Weigh("acme")) == 12
    assert not handle.ask(commit(Draft("job-2", b"refused"), expect={"run-1": None})).done
    repeated = commit(Draft("job-3", b"once"))
    assert handle.ask(repeated).done
    assert handle.ask(repeated).done
    assert handle.ask(Weigh("acme")) == 16
    assert handle.ask(commit(Draft("job-1", b""), drop=("run-1", "none"))).done
    assert handle.ask(Weigh("acme")) == 4


# --- writing and reading ---------------------------------------------------------------------------------


def test_a_document_comes_back_as_it_was_written(handle):
    draft = Draft("run-1", b"body", (Entry("runs", 7), Entry("due", 9)))
    asked = commit(draft)
    assert handle.ask(asked) == Committed(True, START_US, {})
    document = Document("run-1", b"body", asked.tag, (Entry("runs", 7), Entry("due", 9)))
    answer = handle.ask(Fetch("acme", ("run-1",)))
    assert (answer.documents, answer.now_us) == ({"run-1": document}, START_US)
    (same,) = handle.ask(Scan("acme", "runs", 10)).documents
    assert same == document
    assert score_on(same, "due") == 9


def test_what_comes_back_has_the_types_that_it_was_written_with(handle):
    written(handle, Draft("run-1", b"body", on("runs", 7)))
    (document,) = fetched(handle, "run-1").values()
    assert type(document) is Document
    assert [type(entry) for entry in document.entries] == [Entry]
    assert [type(part) for part in (*document[:3], *document.entries[0])] == [str, bytes, str, str, int]


def test_places_come_back_in_the_order_in_which_they_were_given(handle):
    entries = (Entry("z", 3), Entry("a", 1), Entry("m", 2))
    written(handle, Draft("run-1", b"", entries))
    assert fetched(handle, "run-1")["run-1"].entries == entries


def test_fetching_leaves_out_what_is_absent_and_tells_each_document_once(handle):
    one, two = written(handle, Draft("one", b"1"), Draft("two", b"2"))
    assert fetched(handle, "two", "none", "one", "two") == {"one": one, "two": two}
    assert fetched(handle, "none") == {}
    assert fetched(handle) == {}


def test_all_documents_of_a_commit_are_written_with_its_tag(handle):
    asked = commit(*(Draft(f"job-{number}", b"j", on("jobs", number)) for number in range(20)))
    assert handle.ask(asked).done
    documents = handle.ask(Scan("acme", "jobs", 100)).documents
    assert {document.tag for document in documents} == {asked.tag}
    assert len(documents) == 20


def test_an_unconditional_commit_replaces_what_is_there_and_its_tag(handle):
    (before,) = written(handle, Draft("run-1", b"before"))
    (after,) = written(handle, Draft("run-1", b"after"))
    assert fetched(handle, "run-1") == {"run-1": after}
    assert before.tag != after.tag


def test_a_commit_without_writes_judges_and_changes_nothing(handle):
    (document,) = written(handle, Draft("run-1", b"x"))
    assert handle.ask(commit()).done
    assert handle.ask(commit(expect={"run-1": document.tag, "run-2": None})).done
    assert not handle.ask(commit(expect={"run-1": None})).done
    assert fetched(handle, "run-1", "run-2") == {"run-1": document}


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff\x00\xfe", b'{"a":"\xc3\xa9"}', bytes(range(256))])
def test_any_bytes_are_a_body(handle, body):
    (document,) = written(handle, Draft("run-1", body, on("runs")))
    assert fetched(handle, "run-1") == {"run-1": document}
    assert handle.ask(Scan("acme", "runs", 1)).documents[0].body == body


@pytest.mark.parametrize("size", [2 * MEBIBYTE, 4 * MEBIBYTE])
def test_a_body_of_mebibytes_comes_back(handle, size):
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    written(handle, Draft("run-1", body, on("runs")), Draft("run-2", body[::-1]))
    assert fetched(handle, "run-1")["run-1"].body == body
    assert handle.ask(Scan("acme", "runs", 1)).documents[0].body == body
    assert fetched(handle, "run-2")["run-2"].body == body[::-1]


def test_a_document_may_stand_in_many_indexes(handle):
    entries = tuple(Entry(f"index-{number}", number) for number in range(50))
    written(handle, Draft("run-1", b"", entries))
    assert all(scanned(handle, entry.index_name) == ["run-1"] for entry in entries)
    written(handle, Draft("run-1", b"", entries[:1]))
    assert [entry.index_name for entry in entries if handle.ask(Count("acme", entry.index_name))] == [
        "index-0"
    ]


# --- expectations ----------------------------------------------------------------------------------------


def test_what_was_expected_to_be_absent_and_is_lets_the_commit_pass(handle):
    assert handle.ask(commit(Draft("key", b"1"), expect={"key": None})).done
    assert fetched(handle, "key")["key"].body == b"1"


def test_what_was_expected_to_be_absent_and_is_there_is_found_and_nothing_is_written(handle):
    (present,) = written(handle, Draft("key", b"1", on("keys", 4)))
    answer = handle.ask(commit(Draft("key", b"2"), Draft("run", b"r", on("runs")), expect={"key": None}))
    assert answer == Committed(False, START_US, {"key": present})
    assert fetched(handle, "key", "run") == {"key": present}
    assert scanned(handle, "runs") == []


def test_a_document_with_the_tag_that_was_seen_is_replaced(handle):
    (seen,) = written(handle, Draft("run", b"1"))
    assert handle.ask(commit(Draft("run", b"2"), expect={"run": seen.tag})).done
    assert fetched(handle, "run")["run"].body == b"2"


def test_a_document_that_was_written_since_it_was_seen_is_found(handle):
    (seen,) = written(handle, Draft("run", b"1"))
    (newer,) = written(handle, Draft("run", b"1"))
    answer = handle.ask(commit(Draft("run", b"2"), expect={"run": seen.tag}))
    assert answer == Committed(False, START_US, {"run": newer})
    assert fetched(handle, "run") == {"run": newer}


def test_a_document_that_was_seen_and_is_gone_is_found_as_none(handle):
    (seen,) = written(handle, Draft("run", b"1"))
    assert handle.ask(commit(drop=("run",))).done
    answer = handle.ask(commit(Draft("run", b"2"), expect={"run": seen.tag}))
    assert answer == Committed(False, START_US, {"run": None})
    assert fetched(handle, "run") == {}


def test_found_has_every_unmet_expectation_and_no_other(handle):
    kept, changed, there = written(handle, Draft("kept", b"k"), Draft("changed", b"c"), Draft("there", b"t"))
    expect = {"kept": kept.tag, "changed": fresh(), "there": None, "gone": fresh(), "absent": None}
    answer = handle.ask(commit(Draft("run", b"r"), expect=expect))
    assert answer == Committed(False, START_US, {"changed": changed, "there": there, "gone": None})
    assert fetched(handle, "run") == {}


def test_a_refused_commit_neither_writes_moves_nor_drops_anything(handle):
    before = written(handle, Draft("run", b"r", on("runs", 1)), Draft("key", b"k", on("keys", 2)))
    attempt = commit(
        Draft("run", b"other", on("done", 9)),
        Draft("new", b"n", on("runs", 3)),
        expect={"key": None},
        drop=("key",),
    )
    assert not handle.ask(attempt).done
    assert fetched(handle, "run", "key", "new") == {document.id: document for document in before}
    assert (scanned(handle, "runs"), scanned(handle, "keys"), scanned(handle, "done")) == (
        ["run"],
        ["key"],
        [],
    )


def test_tags_are_compared_whole(handle):
    (seen,) = written(handle, Draft("run", b"1"))
    for close in (seen.tag[:-1], seen.tag + "0", seen.tag.swapcase() + "x", ""):
        assert handle.ask(commit(expect={"run": close})).unexpected == {"run": seen}


# --- repeats ---------------------------------------------------------------------------------------------


def test_a_commit_asked_again_is_done_and_writes_nothing_again(handle):
    first = commit(
        Draft("run", b"1", on("runs", 1)),
        Draft("job", b"1", on("jobs", 1)),
        expect={"run": None, "job": None},
    )
    assert handle.ask(first).done
    (job,) = written(handle, Draft("job", b"2", on("jobs", 2)))
    assert handle.ask(first) == Committed(True, START_US, {})
    assert fetched(handle, "run", "job")["job"] == job
    assert handle.ask(Count("acme", "jobs")) == 1


def test_a_repeat_is_recognised_by_the_tag_and_not_by_what_it_would_write(handle):
    asked = commit(Draft("run", b"1", on("runs", 1)))
    assert handle.ask(asked).done
    assert handle.ask(commit(Draft("run", b"2", on("runs", 2)), tag=asked.tag)).done
    assert fetched(handle, "run")["run"] == Document("run", b"1", asked.tag, on("runs", 1))


def test_a_repeat_does_not_drop_what_was_written_since(handle):
    written(handle, Draft("job", b"old"))
    asked = commit(Draft("run", b"1"), drop=("job",))
    assert handle.ask(asked).done
    (job,) = written(handle, Draft("job", b"new"))
    assert handle.ask(asked).done
    assert fetched(handle, "job") == {"job": job}


def test_a_repeat_is_recognised_in_a_full_house(handle):
    asked = commit(Draft("run", b"1", on("slots")), expect={"run": None}, capacity=(Capacity("slots", 1),))
    assert handle.ask(asked).done
    assert handle.ask(asked) == Committed(True, START_US, {})
    assert handle.ask(Count("acme", "slots")) == 1


def test_only_the_first_document_of_a_commit_tells_a_repeat(handle):
    asked = commit(Draft("run", b"1"), Draft("job", b"1"))
    assert handle.ask(asked).done
    swapped = commit(Draft("new", b"2"), Draft("job", b"2"), tag=asked.tag)
    assert handle.ask(swapped).done
    assert fetched(handle, "new", "job")["job"].body == b"2"
    assert fetched(handle, "new")["new"].body == b"2"


def test_the_same_tag_with_another_tenant_is_another_commit(handle):
    asked = commit(Draft("run", b"1"))
    assert handle.ask(asked).done
    assert handle.ask(commit(Draft("run", b"2"), tag=asked.tag, tenant="globex")).done
    assert fetched(handle, "run", tenant="globex")["run"].body == b"2"


def test_a_commit_that_was_replaced_since_is_no_longer_recognised(handle):
    asked = commit(Draft("run", b"1"), expect={"run": None})
    assert handle.ask(asked).done
    (newer,) = written(handle, Draft("run", b"2"))
    assert handle.ask(asked) == Committed(False, START_US, {"run": newer})


def test_a_commit_that_only_drops_finds_its_document_gone_when_asked_again(handle):
    (seen,) = written(handle, Draft("run", b"1"))
    asked = commit(expect={"run": seen.tag}, drop=("run",))
    assert handle.ask(asked).done
    assert handle.ask(asked) == Committed(False, START_US, {"run": None})


# --- capacity -----------------------------------------------------------------------------------------------


def test_there_is_room_while_fewer_than_the_limit_stand_on_the_index(handle):
    capacity = Capacity("slots", 3)
    answers = [
        handle.ask(commit(Draft(f"run-{n}", b"", on("slots", n)), capacity=(capacity,))) for n in range(5)
    ]
    assert answers == [Committed(True, START_US, {})] * 3 + [Committed(False, START_US, {}, capacity, 3)] * 2
    assert scanned(handle, "slots") == ["run-0", "run-1", "run-2"]


def test_a_commit_without_room_writes_nothing(handle):
    before = written(handle, Draft("run-0", b"", on("slots")), Draft("job", b"", on("jobs")))
    attempt = commit(
        Draft("run-1", b"", on("slots")), Draft("key", b""), drop=("job",), capacity=(Capacity("slots", 1),)
    )
    assert not handle.ask(attempt).done
    assert fetched(handle, "run-0", "run-1", "job", "key") == {document.id: document for document in before}
    assert scanned(handle, "jobs") == ["job"]


def test_room_is_counted_before_the_commit_also_for_one_who_stands_there_already(handle):
    written(handle, Draft("run", b"1", on("slots")))
    capacity = Capacity("slots", 1)
    assert handle.ask(commit(Draft("run", b"2", on("slots")), capacity=(capacity,))).full == capacity
    assert handle.ask(commit(drop=("run",), capacity=(capacity,))).full == capacity
    assert fetched(handle, "run")["run"].body == b"1"


def test_many_may_enter_at_once_where_there_is_room_for_one(handle):
    """A condition on what was before, not on what will be: a run enters with all that belongs to it."""
    drafts = [Draft(f"run-{number}", b"", on("slots")) for number in range(3)]
    assert handle.ask(commit(*drafts, capacity=(Capacity("slots", 1),))).done
    assert handle.ask(Count("acme", "slots")) == 3


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_a_full_index_is_counted_exactly_also_where_the_limit_was_lowered(handle, limit):
    written(handle, *(Draft(f"run-{number}", b"", on("slots", number)) for number in range(5)))
    answer = handle.ask(commit(Draft("run", b""), capacity=(Capacity("slots", limit),)))
    assert answer == Committed(False, START_US, {}, Capacity("slots", limit), 5)


def test_a_limit_of_zero_is_never_room(handle):
    capacity = Capacity("slots", 0)
    assert handle.ask(commit(Draft("run", b""), capacity=(capacity,))) == Committed(
        False, START_US, {}, capacity, 0
    )


def test_the_first_full_index_of_several_is_told(handle):
    written(handle, Draft("run", b"", (Entry("small", 1), Entry("large", 1))))
    capacities = (Capacity("empty", 1), Capacity("large", 2), Capacity("small", 1), Capacity("large", 1))
    assert handle.ask(commit(Draft("new", b""), capacity=capacities)) == Committed(
        False, START_US, {}, capacities[2], 1
    )
    assert handle.ask(commit(Draft("new", b""), capacity=capacities[:2])).done


def test_expectations_are_judged_before_any_room(handle):
    (run,) = written(handle, Draft("run", b"", on("slots")))
    answer = handle.ask(commit(Draft("run", b"2"), expect={"run": None}, capacity=(Capacity("slots", 1),)))
    assert answer == Committed(False, START_US, {"run": run}, None, 0)


def test_who_leaves_the_index_makes_room(handle):
    capacity = (Capacity("slots", 1),)
    written(handle, Draft("one", b"", on("slots")))
    written(handle, Draft("one", b"", on("done")))
    assert handle.ask(commit(Draft("two", b"", on("slots")), capacity=capacity)).done
    assert handle.ask(commit(drop=("two",))).done
    assert handle.ask(commit(Draft("three", b"", on("slots")), capacity=capacity)).done


# --- entries ----------------------------------------------------------------------------------------------


def test_a_replacement_moves_the_document_to_its_new_places(handle):
    written(handle, Draft("job", b"1", (Entry("due", 5), Entry("jobs", 1))))
    written(handle, Draft("job", b"2", (Entry("jobs", 8), Entry("done", 9))))
    assert (scanned(handle, "due"), scanned(handle, "jobs"), scanned(handle, "done")) == (
        [],
        ["job"],
        ["job"],
    )
    assert list(handle.ask(Scan("acme", "jobs", 10, upto=7)).documents) == []
    assert handle.ask(Scan("acme", "jobs", 10)).documents[0].entries == (Entry("jobs", 8), Entry("done", 9))


def test_a_replacement_without_places_stands_nowhere(handle):
    written(handle, Draft("job", b"1", (Entry("due", 5), Entry("jobs", 1))))
    (nowhere,) = written(handle, Draft("job", b"2"))
    assert (scanned(handle, "due"), handle.ask(Count("acme", "jobs"))) == ([], 0)
    assert fetched(handle, "job") == {"job": nowhere}


def test_a_replacement_at_the_same_places_stands_there_once_with_its_new_body(handle):
    for body in (b"1", b"2", b"3"):
        (document,) = written(handle, Draft("job", body, on("jobs", 4)))
    assert list(handle.ask(Scan("acme", "jobs", 10)).documents) == [document]
    assert handle.ask(Count("acme", "jobs")) == 1


def test_a_dropped_document_is_gone_from_every_index(handle):
    written(
        handle, Draft("job", b"1", (Entry("due", 5), Entry("jobs", 1))), Draft("other", b"", on("jobs", 2))
    )
    assert handle.ask(commit(drop=("job",))).done
    assert fetched(handle, "job") == {}
    assert (scanned(handle, "due"), scanned(handle, "jobs")) == ([], ["other"])


def test_dropping_what_is_absent_does_nothing(handle):
    assert handle.ask(commit(drop=("none", "none"))).done
    assert handle.ask(commit(Draft("run", b"1"), drop=("none",))).done
    assert list(fetched(handle, "run", "none")) == ["run"]


def test_what_is_dropped_and_put_in_one_commit_is_put(handle):
    written(handle, Draft("run", b"1", on("runs", 1)))
    assert handle.ask(commit(Draft("run", b"2", on("done", 2)), drop=("run",))).done
    assert fetched(handle, "run")["run"].body == b"2"
    assert (scanned(handle, "runs"), scanned(handle, "done")) == ([], ["run"])


def test_the_last_of_two_drafts_of_one_document_stands(handle):
    assert handle.ask(commit(Draft("run", b"1", on("first")), Draft("run", b"2", on("second")))).done
    assert fetched(handle, "run")["run"].body == b"2"
    assert (scanned(handle, "first"), scanned(handle, "second")) == ([], ["run"])


# --- scanning --------------------------------------------------------------------------------------------

# Scores and ids in the order of an index: by number, then byte by byte.
INDEX = [
    (-HIGHEST, "low"),
    (-1, "z"),
    (0, "a"),
    (1, ""),
    (1, "A"),
    (1, "B"),
    (1, "a"),
    (1, "a "),
    (1, "aa"),
    (1, "b"),
    (1, "é"),
    (1, "\uffee"),
    (1, "🦊"),
    (2, "10"),
    (2, "9"),
    (10, "m"),
    (START_US, "now"),
    (HIGHEST - 1, "next to last"),
    (HIGHEST, "last"),
]


def fill(handle: StoreHandle) -> None:
    """The index is as above, and the ids of two that share a name are told apart by their scores."""
    drafts = [Draft(name(entry), b"", on("index", entry[0])) for entry in INDEX]
    for draft in sorted(drafts, key=lambda draft: draft.id[::-1]):
        written(handle, draft)


def name(entry: tuple[int, str]) -> str:
    """An id is there once: the two `a` stand at different scores, so the lower one has another id."""
    return "a0" if entry == (0, "a") else entry[1]


IDS = [name(entry) for entry in INDEX]


def test_an_index_is_scanned_by_score_then_byte_by_byte(handle):
    fill(handle)
    assert scanned(handle, "index") == IDS
    newest = handle.ask(Scan("acme", "index", 100, newest=True)).documents
    assert [document.id for document in newest] == IDS[::-1]


def expected(limit: int, newest: bool, after: tuple[int, str] | None, upto: int | None) -> list[str]:
    """The scan, said in another way: each entry by itself is in or out."""
    entries = [(score, id_) for (score, _), id_ in zip(INDEX, IDS, strict=True)]
    chosen = [
        entry
        for entry in (reversed(entries) if newest else entries)
        if (upto is None or entry[0] <= upto)
        and (after is None or (entry < after if newest else entry > after))
    ]
    return [id_ for _, id_ in chosen[:limit]]


AFTER = [
    None,
    (-HIGHEST, "low"),
    (0, "zz"),
    (1, ""),
    (1, "a"),
    (1, "a!"),
    (1, "🦊"),
    (5, "x"),
    (HIGHEST, "last"),
]
UPTO = [None, -HIGHEST, -2, 0, 1, 2, 9, START_US, HIGHEST]


@pytest.mark.parametrize("newest", [False, True], ids=["oldest", "newest"])
@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_after_upto_and_limit_choose_their_part_in_every_combination(handle, newest, limit):
    fill(handle)
    for after, upto in itertools.product(AFTER, UPTO):
        answer = handle.ask(Scan("acme", "index", limit, newest, after, upto))
        assert [document.id for document in answer.documents] == expected(limit, newest, after, upto), (
            after,
            upto,
        )
        assert answer.now_us == START_US


@pytest.mark.parametrize("newest", [False, True], ids=["oldest", "newest"])
@pytest.mark.parametrize("limit", [1, 3, 5])
def test_pages_show_every_document_once(handle, newest, limit):
    fill(handle)
    seen: list[str] = []
    after = None
    while page := handle.ask(Scan("acme", "index", limit, newest, after)).documents:
        assert len(page) <= limit
        seen += [document.id for document in page]
        after = (score_on(page[-1], "index"), page[-1].id)
    assert seen == (IDS[::-1] if newest else IDS)


def test_a_limit_of_nothing_shows_nothing(handle):
    written(handle, Draft("run", b"", on("runs")))
    assert list(handle.ask(Scan("acme", "runs", 0)).documents) == []
    assert list(handle.ask(Scan("acme", "runs", 0, newest=True)).documents) == []


def test_an_empty_index_is_empty(handle):
    answer = handle.ask(Scan("acme", "nothing", 10))
    assert (list(answer.documents), answer.now_us) == ([], START_US)
    assert handle.ask(Count("acme", "nothing")) == 0


def test_a_scan_shows_other_places_of_its_documents_but_goes_by_its_own(handle):
    written(handle, Draft("a", b"", (Entry("one", 1), Entry("two", 20))))
    written(handle, Draft("b", b"", (Entry("one", 2), Entry("two", 10))))
    assert (scanned(handle, "one"), scanned(handle, "two")) == (["a", "b"], ["b", "a"])
    assert len(handle.ask(Scan("acme", "two", 10)).documents[0].entries) == 2


def test_counting_counts_every_document_of_the_index_and_no_other(handle):
    written(handle, *(Draft(f"run-{number}", b"", on("runs", number % 3)) for number in range(40)))
    written(handle, Draft("job", b"", on("jobs")), Draft("nowhere", b""))
    assert (handle.ask(Count("acme", "runs")), handle.ask(Count("acme", "jobs"))) == (40, 1)


# --- tenants ---------------------------------------------------------------------------------------------


def test_two_tenants_do_not_meet(handle):
    (ours,) = written(handle, Draft("run", b"ours", on("runs", 1)))
    (theirs,) = written(handle, Draft("run", b"theirs", on("runs", 2)), tenant="globex")
    assert fetched(handle, "run") == {"run": ours}
    assert fetched(handle, "run", tenant="globex") == {"run": theirs}
    assert list(handle.ask(Scan("globex", "runs", 10)).documents) == [theirs]
    assert handle.ask(commit(drop=("run",), tenant="globex", expect={"run": theirs.tag})).done
    assert fetched(handle, "run") == {"run": ours}
    assert (handle.ask(Count("acme", "runs")), handle.ask(Count("globex", "runs"))) == (1, 0)


def test_what_one_tenant_has_takes_no_room_from_another(handle):
    written(handle, Draft("run", b"", on("slots")), tenant="globex")
    assert handle.ask(
        commit(Draft("run", b"", on("slots")), expect={"run": None}, capacity=(Capacity("slots", 1),))
    ).done


def due(handle: StoreHandle, index: str, upto: int | None = None) -> list[str]:
    told: Sequence[str] = handle.ask(Tenants(index, upto))
    return sorted(told)


def test_tenants_are_those_with_something_at_a_score_of_at_most_upto(handle):
    written(handle, *(Draft(f"job-{number}", b"", on("due", number)) for number in (5, 9, 900)))
    written(handle, Draft("job", b"", on("due", 7)), tenant="globex")
    written(handle, Draft("job", b"", on("other", 1)), tenant="initech")
    assert (due(handle, "due", 4), due(handle, "due", 5), due(handle, "due", 6)) == ([], ["acme"], ["acme"])
    assert due(handle, "due", 7) == due(handle, "due", HIGHEST) == ["acme", "globex"]
    assert (due(handle, "other", 1), due(handle, "nothing", HIGHEST)) == (["initech"], [])


def test_tenants_are_told_by_the_stores_clock_unless_a_score_is_given(handle, clock):
    written(handle, Draft("job", b"", on("due", START_US + 1_000_000)))
    assert due(handle, "due") == []
    clock.advance(0.999_999)
    assert due(handle, "due") == []
    clock.advance(0.000_001)
    assert due(handle, "due") == ["acme"]


def test_a_tenant_is_no_longer_told_once_its_documents_have_left_the_index(handle):
    written(handle, Draft("one", b"", on("due", 1)), Draft("two", b"", on("due", 5)))
    assert handle.ask(commit(drop=("one",))).done
    assert (due(handle, "due", 1), due(handle, "due", 5)) == ([], ["acme"])
    written(handle, Draft("two", b"", on("due", 9)))
    assert (due(handle, "due", 5), due(handle, "due", 9)) == ([], ["acme"])
    written(handle, Draft("two", b""))
    assert due(handle, "due", HIGHEST) == []


def test_many_tenants_are_all_told_once(handle):
    names = [f"tenant-{number:03}" for number in range(120)]
    for number, tenant in enumerate(names):
        written(
            handle, Draft("one", b"", on("due", number)), Draft("two", b"", on("due", number)), tenant=tenant
        )
    assert due(handle, "due", HIGHEST) == names
    assert due(handle, "due", 59) == names[:60]


# --- names -----------------------------------------------------------------------------------------------

HOSTILE = [
    "",
    " ",
    " leading and trailing ",
    "🦊🦊",
    "'; DROP TABLE documents; --",
    '"double" and `back`',
    "{}",
    "{acme}",
    "a{b}c",
    "%",
    "%s %d _",
    "*?[a-z]",
    "a:b",
    ":",
    "a/b\\c",
    "line\nbreak\r\ttab",
    "\x01\x7f\x80",
    "é",
    "e\u0301",
    "ß",
    "SS",
    "ss",
    "\u202eright to left",
    "\ufeffbom",
    "null",
    "None",
    "0",
    "00",
    "-1",
    "x" * 512,
    "x" * 511 + "y",
    "é" * 256,
    "🦊" * 128,
]


def test_any_text_is_an_id(handle):
    documents = [
        document for text in HOSTILE for document in written(handle, Draft(text, text.encode(), on("all")))
    ]
    assert fetched(handle, *HOSTILE) == {document.id: document for document in documents}
    assert scanned(handle, "all") == sorted(HOSTILE)
    expect = {document.id: document.tag for document in documents}
    assert handle.ask(commit(expect=expect, drop=tuple(HOSTILE))).done
    assert fetched(handle, *HOSTILE) == {}
    assert handle.ask(Count("acme", "all")) == 0


def test_any_text_is_the_name_of_a_index(handle):
    for number, text in enumerate(HOSTILE):
        written(handle, Draft(f"run-{number}", b"", on(text, number)))
    assert [scanned(handle, text) for text in HOSTILE] == [
        [f"run-{number}"] for number in range(len(HOSTILE))
    ]
    assert [handle.ask(Count("acme", text)) for text in HOSTILE] == [1] * len(HOSTILE)
    assert [due(handle, text, HIGHEST) for text in HOSTILE] == [["acme"]] * len(HOSTILE)
    full = [handle.ask(commit(capacity=(Capacity(text, 1),))).full for text in HOSTILE]
    assert full == [Capacity(text, 1) for text in HOSTILE]


def test_any_text_is_a_tenant(handle):
    for text in HOSTILE:
        written(handle, Draft("run", text.encode(), on("runs")), tenant=text)
    bodies = [fetched(handle, "run", tenant=text)["run"].body for text in HOSTILE]
    assert bodies == [text.encode() for text in HOSTILE]
    assert [scanned(handle, "runs", tenant=text) for text in HOSTILE] == [["run"]] * len(HOSTILE)
    assert due(handle, "runs", HIGHEST) == sorted(HOSTILE)


def test_names_that_would_run_together_are_told_apart(handle):
    pairs = [("a", "b:c"), ("a:b", "c"), ("a", "b c"), ("a b", "c"), ("ab", "c"), ("a", "bc"), ("", "abc")]
    for tenant, id_ in pairs:
        written(handle, Draft(id_, f"{tenant}|{id_}".encode(), on(id_)), tenant=tenant)
    for tenant, id_ in pairs:
        assert fetched(handle, id_, tenant=tenant)[id_].body == f"{tenant}|{id_}".encode()
        assert scanned(handle, id_, tenant=tenant) == [id_]


def test_documents_and_records_of_one_name_do_not_meet(handle):
    at = Address("acme", "tool", "run")
    handle.perform(claim(A, at))
    written(handle, Draft("run", b"body", on("tool")))
    record = handle.perform(look(at)).record
    assert record is not None
    assert handle.ask(commit(drop=("run",))).done
    assert handle.perform(look(at)).record == record
    assert len(handle.ask(ReadEvents())) == 1


# --- the store's clock -----------------------------------------------------------------------------------


def test_every_answer_tells_the_stores_own_time(handle, clock):
    clock.advance(1.5)
    now_us = clock.now_us()
    assert handle.ask(commit(Draft("run", b""))).now_us == now_us
    assert handle.ask(commit(expect={"run": None})).now_us == now_us
    assert handle.ask(commit(capacity=(Capacity("slots", 0),))).now_us == now_us
    assert handle.ask(Fetch("acme", ("run",))).now_us == now_us
    assert handle.ask(Scan("acme", "runs", 1)).now_us == now_us


# --- several handles -------------------------------------------------------------------------------------

shared_only = pytest.mark.parametrize(
    "kind", [kind for kind in CONFORMING if kind.shared], ids=lambda kind: kind.name, indirect=True
)


@shared_only
def test_what_one_handle_wrote_another_reads_and_replaces_at_once(handles, clock):
    one, other = handles.open(clock), handles.open(clock)
    (seen,) = written(one, Draft("run", b"1", on("runs", 1)))
    assert fetched(other, "run") == {"run": seen}
    assert other.ask(commit(Draft("run", b"2", on("done", 2)), expect={"run": seen.tag})).done
    assert one.ask(commit(Draft("run", b"3"), expect={"run": seen.tag})).unexpected == fetched(other, "run")
    assert (scanned(one, "runs"), scanned(one, "done")) == ([], ["run"])


@shared_only
def test_a_repeat_is_recognised_by_another_handle(handles, clock):
    asked = commit(Draft("run", b"1", on("slots")), expect={"run": None}, capacity=(Capacity("slots", 1),))
    assert handles.open(clock).ask(asked).done
    assert handles.open(clock).ask(asked).done


@shared_only
def test_documents_outlive_the_handle_that_wrote_them(handles, clock):
    first = handles.open(clock)
    (document,) = written(first, Draft("run", b"1", on("runs", 1)))
    first.store.close()
    second = handles.open(clock)
    assert fetched(second, "run") == {"run": document}
    assert scanned(second, "runs") == ["run"]


@shared_only
@pytest.mark.parametrize(
    "query",
    [
        commit(Draft("run", b"")),
        Fetch("acme", ("run",)),
        Scan("acme", "runs", 1),
        Count("acme", "runs"),
        Tenants("due"),
    ],
    ids=lambda query: type(query).__name__,
)
def test_a_closed_store_says_that_it_is_unavailable(
    handles: StoreHandles, clock: FakeClock, query: Query[object]
):
    handle = handles.open(clock)
    handle.store.close()
    with pytest.raises(StoreUnavailable):
        handle.ask(query)


# --- races -----------------------------------------------------------------------------------------------

THREADS, TURNS = 8, 200
PROCESSES, RACES = 4, 50
PLENTY = 3  # handles on the same documents, each with several of the threads


@pytest.fixture
def stores(kind: Kind, tmp_path: Path) -> Iterator[list[Store]]:
    """As many handles on the same documents as the store allows."""
    opened = [kind.open(tmp_path, SYSTEM, True) for _ in range(PLENTY if kind.shared else 1)]
    yield opened
    for store in opened:
        store.close()


def in_threads(work: Callable[[int], T]) -> list[T]:
    """What each of the threads made of its number, all of which began together."""
    start, got = threading.Barrier(THREADS), dict[int, T]()

    def run(number: int) -> None:
        start.wait(PATIENCE_S)
        got[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == THREADS
    return list(got.values())


def test_an_index_takes_exactly_its_limit_however_many_come_at_once(stores):
    capacity = Capacity("slots", 100)

    def enter(number: int) -> int:
        ids = [f"run-{number}-{turn}" for turn in range(TURNS)]
        answers = [
            stores[number % len(stores)].ask(
                commit(Draft(id_, b"", on("slots")), expect={id_: None}, capacity=(capacity,))
            )
            for id_ in ids
        ]
        assert all(answer.done or (answer.full, answer.count) == (capacity, 100) for answer in answers)
        return sum(answer.done for answer in answers)

    assert sum(in_threads(enter)) == 100
    assert stores[0].ask(Count("acme", "slots")) == 100


def test_never_do_more_than_the_limit_hold_a_slot_while_they_come_and_go(stores):
    capacity = Capacity("slots", 3)

    def come_and_go(number: int) -> list[int]:
        """How many held a slot, each time that this one did."""
        store, counted = stores[number % len(stores)], []
        for turn in range(TURNS // 4):
            id_ = f"run-{number}-{turn}"
            if store.ask(commit(Draft(id_, b"", on("slots")), capacity=(capacity,))).done:
                counted.append(store.ask(Count("acme", "slots")))
                assert store.ask(commit(drop=(id_,))).done
        return counted

    counted = {count for counts in in_threads(come_and_go) for count in counts}
    assert counted
    assert counted <= {1, 2, 3}
    assert stores[0].ask(Count("acme", "slots")) == 0


def test_no_update_is_lost_between_reading_and_writing(stores):
    assert stores[0].ask(commit(Draft("sum", b"0"))).done

    def add_ten(number: int) -> None:
        store = stores[number % len(stores)]
        seen = store.ask(Fetch("acme", ("sum",))).documents["sum"]
        for _ in range(10):
            while found := store.ask(
                commit(Draft("sum", b"%d" % (int(seen.body) + 1)), expect={"sum": seen.tag})
            ).unexpected:
                assert found["sum"] is not None
                seen = found["sum"]
            seen = store.ask(Fetch("acme", ("sum",))).documents["sum"]

    in_threads(add_ten)
    assert stores[0].ask(Fetch("acme", ("sum",))).documents["sum"].body == b"%d" % (10 * THREADS)


def test_whoever_reads_sees_all_of_a_commit_or_nothing(stores):
    names, finished = ("one", "two", "three"), threading.Event()

    def write(store: Store) -> None:
        for turn in range(TURNS):
            drafts = [Draft(name, b"%d" % turn, on(f"index-{turn % 2}")) for name in names]
            assert store.ask(commit(*drafts)).done

    def read(store: Store) -> None:
        seen = store.ask(Fetch("acme", names)).documents.values()
        assert len(seen) in (0, 3)
        assert len({(document.tag, document.body) for document in seen}) <= 1
        index = store.ask(Scan("acme", "index-0", 10)).documents
        assert len({document.tag for document in index}) <= 1
        assert all(document.entries == on("index-0") for document in index)
        assert store.ask(Count("acme", "index-1")) in (0, 3)

    def write_or_read(number: int) -> None:
        store = stores[number % len(stores)]
        if number == 0:
            try:
                write(store)
            finally:
                finished.set()
        while not finished.is_set():
            read(store)

    in_threads(write_or_read)


def test_tasks_of_one_loop_see_each_other_in_their_commits(stores):
    """They may share a transaction, and still no two of them get the same."""
    capacity = Capacity("slots", 7)

    async def enter_all() -> tuple[list[Committed], list[Committed]]:
        entering = [commit(Draft(f"run-{n}", b"", on("slots")), capacity=(capacity,)) for n in range(40)]
        taking = [commit(Draft("key", b"%d" % n), expect={"key": None}) for n in range(40)]
        answers = await asyncio.gather(*(stores[0].aask(query) for query in (*entering, *taking)))
        return answers[:40], answers[40:]

    entered, taken = asyncio.run(enter_all())
    assert sum(answer.done for answer in entered) == 7
    assert sum(answer.done for answer in taken) == 1
    (winner,) = stores[0].ask(Fetch("acme", ("key",))).documents.values()
    assert all(answer.unexpected == {"key": winner} for answer in taken if not answer.done)


def take_each(kind: str, at: str, start: Barrier, told: Queue[list[str]]) -> None:
    """In a process of its own: puts each document if it is absent, and tells which tags it then saw there."""
    (found,) = (known for known in CONFORMING if known.name == kind)
    store = found.open(Path(at), SYSTEM, True)
    start.wait(PATIENCE_S)
    seen = []
    for number in range(RACES):
        asked = commit(Draft(f"key-{number}", b"", on("keys")), expect={f"key-{number}": None})
        answer = store.ask(asked)
        winner = answer.unexpected.get(f"key-{number}")
        seen.append(asked.tag + " done" if answer.done else "" if winner is None else winner.tag)
    store.close()
    told.put(seen)


@shared_only
def test_of_processes_that_put_what_is_absent_exactly_one_does(
    kind: Kind, stores: list[Store], tmp_path: Path
):
    spawn = multiprocessing.get_context("spawn")
    start, told = spawn.Barrier(PROCESSES), spawn.Queue()
    racers = [
        spawn.Process(target=take_each, args=(kind.name, str(tmp_path), start, told))
        for _ in range(PROCESSES)
    ]
    for racer in racers:
        racer.start()
    heard = [told.get(timeout=2 * PATIENCE_S) for _ in racers]
    for racer in racers:
        racer.join()
    told.close()
    for number, seen in enumerate(zip(*heard, strict=True)):
        (done,) = (tag for tag in seen if tag.endswith(" done"))
        (document,) = stores[0].ask(Fetch("acme", (f"key-{number}",))).documents.values()
        assert done == f"{document.tag} done"
        assert [tag for tag in seen if tag != done] == [document.tag] * (PROCESSES - 1)
    assert stores[0].ask(Count("acme", "keys")) == RACES


# --- events of a commit ---------------------------------------------------------------------------


def told(key: str, tenant: str = "acme") -> Event:
    """One line of the audit log about a document; which one is up to the flow."""
    return Event(
        0, START_US, tenant, "approval", key, key, "approved", "approved", 0, "pay", "1", b"\x01" * 32, None,
        "", "[]", "ada", "seen", 1,
    )  # fmt: skip


def heard(handle: StoreHandle, tenant: str = "acme") -> list[Event]:
    """The tenant's events of all lanes, without the numbers that the store gave them."""
    lanes = (handle.ask(ReadEvents(tenant=tenant, lane=lane)) for lane in range(handle.store.lanes))
    return [event._replace(seq=0) for lane in lanes for event in lane]


def test_the_events_of_a_commit_are_in_the_audit_log_in_their_order(handle: StoreHandle) -> None:
    events = (told("job_1"), told("job_2")._replace(digest=b"", note="", by="bob"))
    assert handle.ask(Commit("acme", fresh(), {}, (Draft("a", b"1"),), events=events)).done
    assert heard(handle) == [*events]
    assert handle.ask(ReadEvents(record_id="job_2"))[0]._replace(seq=0) == events[1]


def test_a_commit_that_only_drops_tells_its_events_too(handle: StoreHandle) -> None:
    written(handle, Draft("a", b"1"))
    assert handle.ask(Commit("acme", fresh(), {}, drop=("a",), events=(told("job_1"),))).done
    assert heard(handle) == [told("job_1")]


def test_a_commit_that_is_refused_tells_nothing(handle: StoreHandle) -> None:
    written(handle, Draft("a", b"1", on("full")))
    events = (told("job_1"),)
    assert not handle.ask(Commit("acme", fresh(), {"a": None}, (Draft("a", b"2"),), events=events)).done
    full = Commit("acme", fresh(), {}, (Draft("b", b"2"),), capacity=(Capacity("full", 1),), events=events)
    assert not handle.ask(full).done
    assert heard(handle) == []


def test_a_commit_that_is_repeated_tells_its_events_once(handle: StoreHandle) -> None:
    asked = Commit("acme", fresh(), {"a": None}, (Draft("a", b"1"),), events=(told("job_1"),))
    assert handle.ask(asked).done
    assert handle.ask(asked).done
    assert heard(handle) == [told("job_1")]


def test_events_of_commits_and_of_records_are_one_sealed_chain(handle: StoreHandle) -> None:
    handle.perform(claim(A))
    assert handle.ask(Commit("acme", fresh(), {}, (Draft("a", b"1"),), events=(told("job_1"),))).done
    for lane in range(handle.store.lanes):
        handle.ask(SealEvents(lane=lane))
    report = verify(handle.store, tenants=("acme",))
    assert report.whole
    assert (report.events, report.unsealed) == (2, 0)


def test_a_store_without_audit_keeps_no_events_of_commits(handles: StoreHandles, clock: FakeClock) -> None:
    handle = handles.open(clock, audit_on=False)
    assert handle.ask(Commit("acme", fresh(), {}, (Draft("a", b"1"),), events=(told("job_1"),))).done
    assert heard(handle) == []
