"""How long a test waits for something that is sure to come.

No result depends on these: a machine that is busy with other things makes a test slow, not red.
"""

from __future__ import annotations

# Whatever takes longer is stuck: what takes seconds on a quiet machine has time enough at a load of thirty.
PATIENCE_S = 120.0

# The time-out of a store whose server does not answer, which a test sits out: as short as an answer that does
# come, on a busy machine, allows.
HURRIED = "3s"
