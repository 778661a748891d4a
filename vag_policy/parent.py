"""A worker process ends with the process that started it, however that ends."""

from __future__ import annotations

import os
import threading
import time

_LOOK_EVERY_S = 0.5


def end_with(parent: int) -> None:
    """From now on, end this process at once when its parent is no longer process ``parent``."""
    threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)
