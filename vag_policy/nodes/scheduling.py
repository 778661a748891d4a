"""Asks the operating system to run a process on time. What it does not grant is left as it is."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_SHORT_SLICE_NS = 400_000  # enough for a command; the kernel's own is 1.4 ms and more
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


def ask_for_short_slices() -> bool:
    """Ask for CPU time in short slices for this thread and all that it starts from now on; return whether it was heard.

    On Linux 6.12 and later a thread with short slices is let in when it wakes, instead of waiting for the slice of a
    busy neighbour to end. It gets no more CPU time than before, and needs no privilege. Older kernels take no notice.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if platform.system() != "Linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    # struct sched_attr: size, policy, flags, nice, priority, runtime (for SCHED_OTHER: the slice), deadline, period
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, _SHORT_SLICE_NS, 0, 0)
    return ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0


def ask_for_priority(nice: int, realtime_priority: int = 0) -> str:
    """Ask for a niceness and, unless 0, a SCHED_FIFO priority; return why they were not granted, or an empty string.

    Like slices they are this thread's, and that of the threads it starts from now on.
    """
    try:
        if nice:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
        if realtime_priority:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(realtime_priority))
    except OSError as error:
        return f"nice {nice}, SCHED_FIFO {realtime_priority}: {error.strerror}"
    return ""
