"""What a store keeps beyond records and questions: no business of a ledger, but its decisions touch it.

Who puts the library together (semel/__init__.py) says here what knows of it. It imports nothing, because
everybody who imports `semel` comes by here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semel.ledger.sweep import Chore
    from semel.questions.change import WhatFollows

    Parts = tuple[WhatFollows, Sequence[Chore]]

parts: Callable[[], Parts]
"""What follows a decision, and what a sweep does besides; asked when a ledger is made."""
