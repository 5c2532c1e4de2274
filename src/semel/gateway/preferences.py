"""What a client would like, if it can be had (`Prefer`, RFC 7240): here, to wait for a slot."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Nobody holds a connection for longer, and no balancer in between gives up sooner.
WAIT_MAX_S = 30

# More than all registered preferences together; what is longer is not read.
_BYTES_MAX = 512

# One preference of a list: up to a comma that is in no quoted string.
_ONE = re.compile(rb'(?:[^,"]|"(?:[^"\\]|\\.)*")+')
_WAIT = re.compile(rb'\s*wait\s*=\s*(?:([0-9]+)|"([0-9]+)")\s*(?:;.*)?', re.IGNORECASE | re.DOTALL)


def wait_s(values: Sequence[bytes]) -> int:
    """The seconds of `wait=S`, at most 30; 0 if there is none that can be meant.

    As the RFC has it: what is not understood is ignored; of a preference given twice the first one counts.
    """
    text = b",".join(values)
    if len(text) > _BYTES_MAX:
        return 0
    for one in _ONE.findall(text):
        if one.partition(b"=")[0].partition(b";")[0].strip().lower() == b"wait":
            match = _WAIT.fullmatch(one)
            return min(int(match[1] or match[2]), WAIT_MAX_S) if match else 0
    return 0
