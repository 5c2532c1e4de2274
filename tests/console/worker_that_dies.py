"""Run as a program: a refund that is killed with -9 in its effect; or the agent that asks again.

python -m tests.console.worker_that_dies URL kill
python -m tests.console.worker_that_dies URL wait     prints the answer once there is one
"""

from __future__ import annotations

import os
import signal
import sys
import time

import semel
from semel.errors import SemelError


@semel.tool_contract(name="pay_out", value="high")
def pay_out(payment_id: str, amount_minor: int) -> dict[str, str]:
    """Pays a customer back."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def main(url: str, how: str) -> None:
    with semel.open(url) as ledger:
        while True:
            try:
                with ledger.step(conversation="conv-9", step="refund-1", principal="support-bot"):
                    print(pay_out(payment_id="p-9", amount_minor=4_200), flush=True)
                return
            except SemelError:
                if how != "wait":
                    raise
                time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
