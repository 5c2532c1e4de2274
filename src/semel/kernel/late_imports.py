"""Modules that are imported at first use, when other threads may run already.

Python keeps a lock for each module that is being imported, and a child that is forked meanwhile has it locked
for ever: nobody is left there to finish the import. So a fork waits until ours are done.
"""

from __future__ import annotations

import os
import threading

# Re-entrant: a module that is imported may import others so, and may fork.
late_import = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=late_import.acquire, after_in_parent=late_import.release, after_in_child=late_import.release
    )
