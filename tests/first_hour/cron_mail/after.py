"""Started by cron on the first of the month: every customer gets a statement by e-mail."""

import os
import smtplib
import sys
from email.message import EmailMessage

import semel

CUSTOMERS = ("ann@example.org", "bob@example.org")

month = sys.argv[1]


@semel.tool_contract
def send(to: str, month: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", to, f"Your statement of {month}"
    message.set_content("You owe us nothing.")
    with smtplib.SMTP("127.0.0.1", int(os.environ["SMTP_PORT"]), local_hostname="localhost") as server:
        server.send_message(message)


for to in CUSTOMERS:
    semel.step(conversation=month, step=to).run(send.call, semel.ToolCall({"to": to, "month": month}))
