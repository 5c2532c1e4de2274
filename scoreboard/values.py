"""The kinds of results that an effect returns, each made of its order, its amount and its receipt."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

try:
    from pydantic import BaseModel
except ImportError:  # an environment of a library that has no use for it
    BaseModel = object  # type: ignore[assignment,misc]


@dataclasses.dataclass(frozen=True)
class Paid:
    order: str
    amount: int
    receipt: str


class PaidModel(BaseModel):
    order: str
    amount: decimal.Decimal
    receipt: str


class Answer(enum.Enum):
    PAID = "paid"
    DECLINED = "declined"


class Kind(NamedTuple):
    type: Any
    value: Callable[[str, int, str], Any]


# Values that do not carry their receipt are the same on every run: equality is all that can be asked of them.
KINDS: dict[str, Kind] = {
    "str": Kind(str, lambda _order, _amount, receipt: receipt),
    "dict": Kind(
        dict[str, Any],
        lambda order, amount, receipt: {
            "order": order,
            "amount": amount,
            "receipt": receipt,
            "tags": ["a", None],
        },
    ),
    "dataclass": Kind(Paid, Paid),
    "model": Kind(
        PaidModel,
        lambda order, amount, receipt: PaidModel(
            order=order, amount=decimal.Decimal(amount), receipt=receipt
        ),
    ),
    "decimal": Kind(decimal.Decimal, lambda _order, amount, _receipt: decimal.Decimal(amount) / 8),
    "datetime": Kind(
        datetime.datetime,
        lambda *_: datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC),
    ),
    "uuid": Kind(uuid.UUID, lambda order, *_: uuid.uuid5(uuid.NAMESPACE_OID, order)),
    "enum": Kind(Answer, lambda *_: Answer.PAID),
}

# The same without an annotation: plain data, of which JSON knows the first only.
UNDECLARED: dict[str, Kind] = {
    "json": Kind(
        None, lambda order, amount, receipt: {"order": order, "amount": [amount, None], "receipt": receipt}
    ),
    "tuple": Kind(None, lambda order, amount, _receipt: (order, amount)),
    "set": Kind(None, lambda _order, amount, _receipt: {amount, 7}),
    "bytes": Kind(None, lambda order, *_: order.encode()),
    "bare-decimal": Kind(None, lambda _order, amount, _receipt: decimal.Decimal(amount) / 8),
    "bare-datetime": Kind(None, lambda *_: datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)),
    "int-keys": Kind(None, lambda order, amount, _receipt: {amount: {"order": order}}),
    "nested": Kind(
        None, lambda _order, amount, receipt: {"total": decimal.Decimal(amount), "receipt": receipt}
    ),
}


def described(value: Any) -> str:
    """Type and content, so that two processes can be compared.

    In which order a dict names its members is no matter, nor which class says that a time is UTC.
    """
    shown = sorted(value.items(), key=repr) if type(value) is dict else value
    content = value.isoformat() if isinstance(value, datetime.datetime) else repr(shown)
    return f"{type(value).__module__}.{type(value).__qualname__}: {content}"


def receipt_of(value: Any) -> str | None:
    """Which run of the effect this value is of."""
    if isinstance(value, dict):
        receipt = value.get("receipt")
    else:
        receipt = value if isinstance(value, str) else getattr(value, "receipt", None)
    return receipt if isinstance(receipt, str) else None
