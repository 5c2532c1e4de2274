"""Where a request goes next if the server sent it on, or lacks the library."""

from __future__ import annotations

from typing import NamedTuple

from semel.stores.redis import trouble
from semel.stores.redis.nodes import Nodes, node_of
from semel.stores.redis.options import Node
from semel.stores.redis.scripts import LOAD
from semel.stores.redis.thread_connections import packed

# A slot that moves is announced once or twice; a request that is sent around more often runs in circles.
TURNS_MAX = 6

# How long a cluster takes to move the keys of one slot on, roughly.
PAUSE_S = 0.02


class NodeTurn(NamedTuple):
    """Ask there, after loading the library or not, behind an ASKING or not, after a while or at once."""

    node: Node
    loading: bool = False
    asking: bool = False
    pause_s: float = 0.0


def next_turn(error: object, lane: int, turn: NodeTurn, nodes: Nodes) -> NodeTurn | None:
    """What to try after this refusal; None if it is the answer."""
    match trouble.word_of(error):
        case "ERR" if "Function not found" in str(error) and not turn.loading:
            return turn._replace(loading=True)
        case "MOVED":
            node = node_of(str(error).split()[2], turn.node)
            nodes.moved(lane, node)
            return turn._replace(node=node, asking=False)
        case "ASK":
            return turn._replace(node=node_of(str(error).split()[2], turn.node), asking=True)
        case "TRYAGAIN":
            return turn._replace(pause_s=PAUSE_S)
    return None


def demoted(error: object, turn: NodeTurn) -> bool:
    """Whether the server is no primary any more, and Sentinels know another. It has then done nothing."""
    return turn.node.way == "sentinel" and trouble.word_of(error) in ("READONLY", "MASTERDOWN")


def preceding(turn: NodeTurn) -> list[bytes]:
    """What is sent before the request; the answers to it do not matter."""
    return ([_LOAD] if turn.loading else []) + ([_ASKING] if turn.asking else [])


_LOAD, _ASKING = packed(LOAD), packed((b"ASKING",))
