"""Which server is the primary now: asked of the Sentinels before every new connection.

After a failover the old primary may come back and still take itself for one, and a Sentinel may not have
heard of the new one yet. So all of them are asked, and what has the highest epoch counts. Whoever connects
then asks the server itself for its role (`trouble.check_primary`), before anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import hiredis

from semel.errors import SemelError, StoreUnavailable
from semel.stores.redis import trouble
from semel.stores.redis.options import Node, RedisOptions
from semel.stores.redis.thread_connections import ThreadConnection, packed

# There are others; the Redis project, too, tells clients to wait for none of them longer than that.
_PATIENCE_S = 0.5


class _Election(NamedTuple):
    """What one Sentinel takes for the primary, and since which failover."""

    epoch: int
    primary: Node


def address(node: Node, options: RedisOptions) -> Node:
    """Where the node is now; StoreUnavailable if no Sentinel knows."""
    return node if node.way != "sentinel" else _newest(node, options)


def _newest(node: Node, options: RedisOptions) -> Node:
    elections: list[_Election] = []
    errors: list[SemelError] = []
    for at in options.sentinels:
        try:
            elections.append(_ask(at, node.host, options))
        except SemelError as error:
            errors.append(error)
        except (OSError, hiredis.HiredisError) as broken:
            errors.append(trouble.broken(broken, f"{at} (a Sentinel)"))
    if not elections:
        raise _worst(errors)
    return max(elections, key=lambda election: election.epoch).primary


def _worst(errors: Sequence[SemelError]) -> SemelError:
    """What a Sentinel that answered said, rather than that others did not answer."""
    return next((error for error in errors if error.details.get("reason")), errors[-1])


def _ask(at: Node, service: str, options: RedisOptions) -> _Election:
    patience_s = min(_PATIENCE_S, options.connect_s)
    bare = replace(options, password=None, database=0, timeout_s=patience_s, connect_s=patience_s)
    connection = ThreadConnection(at, bare, at)
    try:
        if options.password is not None:
            # Refused by one without a password, or with other users than the server: its answer decides.
            connection.call(packed(options.login()))
        # The epoch first: the address is then at least as new.
        state = connection.call(packed((b"SENTINEL", b"MASTER", service.encode())))
        host_and_port = connection.call(packed((b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.encode())))
    finally:
        connection.close()
    return _read(state, host_and_port, at, service)


def _read(state: Any, host_and_port: Any, at: Node, service: str) -> _Election:
    if host_and_port is None:
        raise StoreUnavailable(
            f"The Sentinel at {at} watches no {service!r}; nothing was done.",
            corrective_action="Correct the name in the URL: `sentinel monitor name …` says it.",
            reason=trouble.UNKNOWN_SERVICE,
        )
    for answer in (state, host_and_port):
        trouble.check(answer)
    try:
        host, port = host_and_port
        facts = dict(zip(state[::2], state[1::2], strict=True))
        return _Election(int(facts[b"config-epoch"]), Node(host.decode(), int(port)))
    except (TypeError, ValueError, KeyError, AttributeError):
        raise trouble.broken(hiredis.ProtocolError(), f"{at} (a Sentinel)") from None
