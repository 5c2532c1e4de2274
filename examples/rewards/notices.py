"""The message about a new tier: once in the customer's mailbox, however often Temporal runs the activity.

The mailbox is a file with a line for each message that was delivered. It takes a message id, as mail does,
but it does not look for it: delivered twice is there twice.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from temporalio import activity

import semel

MAILBOX = "REWARDS_MAILBOX"
ATTEMPTS = "REWARDS_ATTEMPTS"

# A worker that is told so dies after its first delivery, before the ledger or before Temporal hears of it.
DIES = "REWARDS_DIES"
UNRECORDED, UNREPORTED = "unrecorded", "unreported"


def mailbox() -> Path:
    return Path(os.environ[MAILBOX])


def delivered(text: str = "") -> list[str]:
    """The messages in the mailbox, or those that hold this text."""
    lines = mailbox().read_text(encoding="utf-8").splitlines() if mailbox().exists() else []
    return [line for line in lines if text in line]


def was_delivered(key: semel.Key, **_: Any) -> Any:
    """Asked when a worker died in between: the message id is in the mailbox, or it is not."""
    return semel.Happened(f"<{key}>") if delivered(f"<{key}>") else semel.DidNotHappen


@semel.tool_contract(
    class_="irreversible",
    # Short, because here workers die to show something; a lease of a minute would be waited for.
    lease="1s",
    probe=was_delivered,
)
def deliver(customer: str, text: str, key: semel.Key = semel.filled) -> str:
    """The message is in the customer's mailbox; its id."""
    append(mailbox(), f"<{key}> to {customer}: {text}")
    die_if(UNRECORDED)
    return f"<{key}>"


@activity.defn
def send_notice(customer: str, text: str) -> str:
    """What the workflow asks for; Temporal runs it again until it hears of an end."""
    append(Path(os.environ[ATTEMPTS]), f"{customer}: {text}")
    message_id = deliver(customer, text)
    die_if(UNREPORTED)
    return message_id


def die_if(place: str) -> None:
    if os.environ.get(DIES) == place:
        os.kill(os.getpid(), signal.SIGKILL)


def append(path: Path, line: str) -> None:
    # One write: several workers append to the same file.
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
