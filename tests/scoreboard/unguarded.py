"""An adapter that guards nothing and promises everything: each call is an effect."""

NAME, STORES, INSTALL, BUSY = "unguarded", ("sqlite",), [], ()
PROMISES = {
    "here": "races async kills freezes interrupts outages window-closes clocks-apart other-payload "
    "dead-owner result-types plain-results"
}


def guard(effect, place):
    open(place.url, "a").close()
    return lambda order, amount: effect(order, amount)


def aguard(effect, place):
    return effect
