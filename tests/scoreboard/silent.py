"""An adapter that keeps one effect and never answers a second caller."""

import os
import time

NAME, STORES, INSTALL, BUSY = "silent", ("sqlite",), [], ()
PROMISES = {"here": "exiting"}


def guard(effect, place):
    def call(order, amount):
        try:
            os.close(os.open(f"{place.url}-{order}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            while True:
                time.sleep(1)
        return effect(order, amount)

    return call
