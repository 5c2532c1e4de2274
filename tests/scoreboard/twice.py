"""An adapter that does everything twice, and promises that it does not."""

NAME, STORES, INSTALL, BUSY = "twice", ("sqlite",), [], ()
PROMISES = {"here": "store-back"}


def guard(effect, place):
    open(place.url, "a").close()
    return lambda order, amount: [effect(order, amount), effect(order, amount)][0]
