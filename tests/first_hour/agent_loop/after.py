"""An agent's loop by hand. The conversation is kept in a file, once the agent has answered the customer."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import semel

customer, text = sys.argv[1:]
file = Path(f"{customer}.json")
world = httpx.Client(base_url=os.environ["WORLD"], timeout=None)


@semel.tool_contract
def issue_refund(payment: str, amount_minor: int) -> dict[str, str]:
    answer = world.post("/refunds", json={"payment": payment, "amount_minor": amount_minor})
    refund: dict[str, str] = answer.json()
    return refund


def take_turn(messages: list[dict[str, Any]]) -> None:
    turn = len(messages)
    while True:
        said = world.post("/model", json=messages).json()
        messages.append(said)
        if "tool" not in said:
            return
        result = semel.step(conversation=customer, step=f"turn-{turn}").run(issue_refund, **said["arguments"])
        messages.append({"role": "tool", "of_turn": turn, "result": result})


messages = json.loads(file.read_text()) if file.exists() else []
messages.append({"role": "user", "text": text})
take_turn(messages)
file.write_text(json.dumps(messages))
print(messages[-1]["text"])
