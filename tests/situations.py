"""The situations a record can be in, how each comes about, and what every command does in each.

A situation is told by steps: a command, a number of microseconds that pass, or SWEEP. In all of them A is the
newest owner, and N is the token of whoever comes next.
"""

from __future__ import annotations

from semel.kernel.record import Command, State
from tests.commands import (
    LEASE,
    WINDOW,
    A,
    B,
    amend,
    claim,
    look,
    park,
    release,
    renew,
    resolve,
    retake,
    settle,
)

N = b"N" * 16

SWEEP = "sweep"
Step = Command | int | str

SITUATIONS: dict[str, tuple[Step, ...]] = {
    "absent": (),
    "pending": (claim(A),),
    "pending, with an earlier entry": (claim(B), park(B), retake(B, A)),
    "lapsed": (claim(A), LEASE),
    "lapsed and swept": (claim(A), LEASE, SWEEP),
    "lapsed, with an earlier entry": (claim(B), park(B), retake(B, A), LEASE),
    "parked": (claim(A), park(A)),
    "parked, with an earlier entry": (claim(B), park(B), retake(B, A), park(A)),
    "waiting": (claim(A, waiting=True),),
    "approved": (claim(B, waiting=True), retake(B, A)),
    "done": (claim(A), settle(A)),
    "failed": (claim(A), settle(A, state=State.FAILED)),
    "partial": (claim(A), settle(A, state=State.PARTIAL)),
    "rejected": (claim(A, waiting=True), settle(A, state=State.FAILED, by="ann")),
    "done for ever": (claim(A), settle(A, window_us=None), 1_000 * WINDOW),
    "released": (claim(A), release(A)),
    "released, before anybody entered": (claim(A, waiting=True), release(A)),
    "resolved: it happened": (claim(B), park(B), resolve(B, A, True)),
    "resolved by a probe: it happened": (claim(B), park(B), resolve(B, A, True, by="probe")),
    "resolved: it happened, its window closed": (claim(B), park(B), resolve(B, A, True), WINDOW),
    "amended": (claim(B), park(B), resolve(B, B, True), amend(B, A)),
    "amended by somebody named probe": (claim(B), park(B), resolve(B, B, True), amend(B, A, by="probe")),
    "resolved: it did not": (claim(B), park(B), resolve(B, A, False)),
    "done, one microsecond before its window closes": (claim(A), settle(A), WINDOW - 1),
    "done, its window closed": (claim(A), settle(A), WINDOW),
    "released, its window closed": (claim(A), release(A), WINDOW),
    "resolved: it did not, its window closed": (claim(B), park(B), resolve(B, A, False), WINDOW),
}

COMMANDS: dict[str, Command] = {
    "look": look(),
    "claim": claim(N),
    "claim, waiting": claim(N, waiting=True),
    "claim, other payload": claim(N, fingerprint=b"g" * 32),
    "retake": retake(A, N),
    "renew": renew(A),
    "settle": settle(A),
    "park": park(A),
    "release": release(A),
    "happened": resolve(A, N, True, outcome=b'"seen at the bank"'),
    "did not": resolve(A, N, False),
    "amend": amend(A, N),
}

# The same by someone who is not, or no longer, the newest owner.
COMMANDS_OF_OTHERS: dict[str, Command] = {
    "retake": retake(B, N),
    "renew": renew(B),
    "settle": settle(B),
    "park": park(B),
    "release": release(B),
    "happened": resolve(B, N, True),
    "did not": resolve(B, N, False),
    "amend": amend(B, N),
}
