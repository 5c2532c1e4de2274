"""Opening a store: its facts are read, or written by whoever comes first, and the servers are looked at.

Every lane carries the store's id. A store that is ready has all of its lanes: a missing one is lost data.
A store of the first form goes on in it, so that processes of release 0.1 can read all of it, until somebody
says that there are none any more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import hiredis

from semel.errors import OpenError, StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.stores.redis import scripts, settings, trouble
from semel.stores.redis.commands import FIRST_FORM, FORM, NO_TENANT, LaneKeys, lane
from semel.stores.redis.nodes import Nodes
from semel.stores.redis.options import Node, RedisOptions
from semel.stores.redis.settings import ServerSettings
from semel.stores.redis.thread_requests import ThreadRequests


class Facts(NamedTuple):
    id: bytes
    secret: bytes
    lanes: int
    form: bytes
    writes: bytes  # the form of new records
    settings: tuple[ServerSettings, ...]


def begin(options: RedisOptions, nodes: Nodes, calls: ThreadRequests) -> Facts:
    """The store's facts, after its servers were found fit and all its lanes there."""
    try:
        return _begin(options, nodes, calls)
    except StoreUnavailable as error:
        raise trouble.unopened(error) from error.__cause__


def _begin(options: RedisOptions, nodes: Nodes, calls: ThreadRequests) -> Facts:
    key = f"{options.prefix}:{{{options.prefix}}}:meta".encode()
    home = nodes.meta(key)
    nodes.refresh(options.lanes)
    servers = tuple(settings.read(node, calls.to_node) for node in nodes.all())
    settings.check(servers, options)
    for node in nodes.all():
        _load(node, calls)
    form, id_, secret, lanes, ready, writes = _meta(home, key, options, calls)
    if form not in (FIRST_FORM, FORM):
        raise OpenError(
            f"The store was written by another version of Semel (format {form!r}).",
            corrective_action="Open it with a version at least as new as the one that wrote it.",
        )
    nodes.refresh(int(lanes))
    _mark(
        id_, [lane(number, options.prefix, form) for number in range(int(lanes))], nodes, calls, bool(ready)
    )
    if not ready:
        _checked(calls.to_node(home, b"HSET", key, b"ready", b"1"))
    if options.compacting and form != FORM:
        writes = FORM
        _checked(calls.to_node(home, b"HSET", key, b"writes", writes))
    return Facts(id_, secret, int(lanes), form, writes or form, servers)


def _load(node: Node, calls: ThreadRequests) -> None:
    if not _checked(calls.to_node(node, b"FUNCTION", b"LIST", b"LIBRARYNAME", scripts.LIBRARY)):
        _checked(calls.to_node(node, *scripts.LOAD))


def _meta(home: Node, key: bytes, options: RedisOptions, calls: ThreadRequests) -> list[Any]:
    # Chance is the machine's own, also under a test's clock: two stores must never have one secret.
    secret = SYSTEM.token() + SYSTEM.token()
    words = (key, SYSTEM.token(), secret, b"%d" % options.lanes, FORM)
    answer: list[Any] = _checked(calls.to_node(home, b"EVAL", scripts.BEGIN, b"1", *words))
    if None in answer[:4]:
        raise StoreCorrupt(f"The facts of the store under the prefix {options.prefix!r} are damaged.")
    return answer


def _mark(id_: bytes, lanes: list[LaneKeys], nodes: Nodes, calls: ThreadRequests, ready: bool) -> None:
    for each in lanes:
        home = nodes.home(each.number)
        if not ready:
            _checked(calls.to_node(home, b"HSETNX", each.lane, b"id", id_))
        if _checked(calls.to_node(home, b"HGET", each.lane, b"id")) != id_:
            raise StoreCorrupt(
                f"A part of the store on {home} is missing or belongs to another store; nothing was opened.",
                corrective_action="Restore it from a backup, or begin another store under another ?prefix=.",
            )
        _keep_present(each, home, calls)


def _keep_present(lane: LaneKeys, home: Node, calls: ThreadRequests) -> None:
    """Indexes are never empty: a cluster that moves a slot refuses every step that names an absent key."""
    keys = (lane.book, lane.pages, lane.list)
    # A server that is full takes no write, not even one that changes nothing; but it can be read.
    if _checked(calls.to_node(home, b"EXISTS", *keys)) < len(keys):
        _checked(calls.to_node(home, b"HSETNX", lane.book, NO_TENANT, b""))
        _checked(calls.to_node(home, b"ZADD", lane.pages, b"NX", b"-inf", b""))
        _checked(calls.to_node(home, b"ZADD", lane.list, b"NX", b"0", b""))


def _checked(answer: Any) -> Any:
    if isinstance(answer, hiredis.ReplyError):
        raise trouble.refused(answer)
    return answer
