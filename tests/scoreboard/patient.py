"""An adapter that waits for its store for as long as that takes, and keeps its records in a file."""

import sqlite3

NAME, STORES, INSTALL, BUSY = "patient", ("sqlite",), [], ()
PROMISES = {"here": "outages"}


def guard(effect, place):
    def call(order, amount):
        run = sqlite3.connect(place.url, isolation_level=None, timeout=600).execute
        run("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY)")
        run("INSERT INTO done VALUES (?)", (order,))
        return effect(order, amount)

    return call
