"""Settings that hold for every test."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: how long one example takes says more about the machine than about the code.
settings.register_profile("desk", deadline=None)
# In CI the same commit has to give the same answer; finding new examples is for the desk.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
