"""An e-mail at a server that takes no key: the message id is derived from it, and a probe asks the sent box.

python send_email.py
"""

from __future__ import annotations

from typing import Any

import semel
from semel import tool_contract
from semel.testing import Crash, crashing


class MailServer:
    """Sends whatever it is given, as often as it is given, and lists what it sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []

    def send(self, message_id: str, to: str, subject: str, body: str) -> None:
        self.sent.append((message_id, to, subject, body))
        print(f"  server: sends {subject!r} to {to}")

    def find(self, message_id: str) -> bool:
        return message_id in (message[0] for message in self.sent)


server = MailServer()


def message_id(key: semel.Key) -> str:
    """The same for every attempt of one action, so that the sent box can be asked for it."""
    return f"<{key.uuid()}@shop.example>"


def in_sent_box(key: semel.Key, **_: Any) -> Any:
    found = server.find(message_id(key))
    print(f"  probe: the message is {'' if found else 'not '}in the sent box")
    return semel.Happened(message_id(key)) if found else semel.DidNotHappen


@tool_contract(class_="irreversible", ignore=("body",), probe=in_sent_box, lease="1s")
def send_email(to: str, subject: str, body: str, key: semel.Key = semel.filled) -> str:
    """Send an e-mail; the answer is its message id."""
    server.send(message_id(key), to, subject, body)
    return message_id(key)


def die_while_sending(ledger: semel.Ledger, step: str, point: str, subject: str) -> None:
    try:
        with crashing(ledger, point).step(conversation="conv-42", step=step):
            send_email("ada@shop.example", subject, "We are sorry.")
    except Crash:
        print("  process: gone")


def send_again(ledger: semel.Ledger, step: str, subject: str) -> None:
    with ledger.step(conversation="conv-42", step=step):
        print(f"  agent: {send_email('ada@shop.example', subject, 'We are very sorry.')}")


def main() -> None:
    with semel.open("memory://") as ledger:
        print("The process dies after the message left, before that was recorded:")
        die_while_sending(ledger, "mail-1", "before settle", "Your refund")
        print("The agent is restarted; the probe finds the message:")
        send_again(ledger, "mail-1", "Your refund")

        print("The process dies before the message left:")
        die_while_sending(ledger, "mail-2", "after claim", "Your parcel")
        print("The agent is restarted; the probe does not find it, so it is sent:")
        send_again(ledger, "mail-2", "Your parcel")
        send_again(ledger, "mail-2", "Your parcel")

    print(f"Messages: {len(server.sent)}. Actions: 2.")
    assert len({message[0] for message in server.sent}) == len(server.sent) == 2, "a message left twice"


if __name__ == "__main__":
    main()
