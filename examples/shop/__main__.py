"""`python -m examples.shop`: a minute under fire. Exits 1 if an order was not paid once."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from examples.shop.story import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the shop is open")
    parser.add_argument("--seed", type=int, default=7, help="of who clicks what, and who is killed when")
    parser.add_argument("--url", help="the store; without it a SQLite file that is removed afterwards")
    options = parser.parse_args()
    # As Ctrl-C: the parts are ended first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"The shop is open for {options.seconds:g} seconds, and each part is killed at random.", flush=True)
    with tempfile.TemporaryDirectory(prefix="semel-shop-") as folder:
        ending = play(Path(folder), options.seconds, options.seed, options.url)
    print("\n".join(ending.lines))
    for line in ending.wrong:
        print(f"NOT AS IT SHOULD BE: {line}")
    if not ending.wrong:
        print("Every order was paid once and sent once, and all answers to it are equal.")
    return 1 if ending.wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Stopped; nothing was counted.")
