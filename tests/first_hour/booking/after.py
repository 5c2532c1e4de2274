"""Books a seat: a row in the theatre's own database, and then whoever asked is told."""

import os
import sqlite3
import sys
from collections.abc import Callable

import httpx
import semel

request, seat, guest = sys.argv[1:]


class Work:
    """One transaction of the theatre's database."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect("theatre.db")


def in_transaction(function: Callable[..., str], *arguments: str) -> str:
    work = Work()
    with work.connection:
        return function(*arguments, work)


def book(seat: str, guest: str, work: semel.Transaction = semel.filled) -> str:
    row = (seat, guest)
    return f"booking {work.connection.execute('INSERT INTO bookings VALUES (?, ?)', row).lastrowid}"


booked = semel.step(conversation="bookings", step=request).run(semel.tool_contract(book), seat, guest)
httpx.post(f"{os.environ['WORLD']}/booked", json={"request": request, "booked": booked}, timeout=None)
