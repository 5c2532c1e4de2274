"""An upsert of a customer: its resource id makes it idempotent, so it keeps no record and needs no step.

python upsert.py
"""

from __future__ import annotations

import semel
from semel import tool_contract


class Crm:
    """Customers by id. The first two answers get lost."""

    def __init__(self) -> None:
        self.customers: dict[str, dict[str, str]] = {}
        self.answers_to_lose = 2

    def put(self, customer_id: str, fields: dict[str, str]) -> None:
        new = customer_id not in self.customers
        self.customers[customer_id] = fields
        print(f"  crm: {'adds' if new else 'sets'} {customer_id} to {fields}")
        if self.answers_to_lose > 0:
            self.answers_to_lose -= 1
            raise TimeoutError


crm = Crm()


@tool_contract(
    class_="write-idempotent",
    resource="customer_id",  # goes to the audit, where a step says who asked
    transient=(TimeoutError,),
    attempts=3,
    backoff="1ms",
)
def upsert_customer(customer_id: str, name: str, email: str) -> str:
    """Add a customer, or set its name and e-mail address."""
    crm.put(customer_id, {"name": name, "email": email})
    return customer_id


def main() -> None:
    print("Two answers are lost; writing the same customer three times is harmless:")
    upsert_customer("c-7", "Ada", "ada@shop.example")

    print("A later call runs again and is not answered from a record: the newest values win:")
    with (
        semel.open("memory://") as ledger,
        ledger.step(conversation="conv-42", step="customer", principal="support-bot"),
    ):
        upsert_customer("c-7", "Ada L.", "ada@shop.example")

    print(f"Customers: {len(crm.customers)}.")
    assert crm.customers == {"c-7": {"name": "Ada L.", "email": "ada@shop.example"}}, "not one customer"


if __name__ == "__main__":
    main()
