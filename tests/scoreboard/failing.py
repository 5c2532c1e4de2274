"""An adapter whose library cannot be imported: nothing ever happens."""

NAME, STORES, INSTALL, BUSY = "failing", ("sqlite",), [], ()
PROMISES = {"here": "races"}


def guard(effect, place):
    raise ImportError("there is no such library")


aguard = guard
