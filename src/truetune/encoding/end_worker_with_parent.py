"""Ends a worker process when the process that gives out the work has ended, however that ended.

A process that is killed by SIGKILL can't end its workers. On Linux the kernel is asked to (PR_SET_PDEATHSIG);
everywhere a thread looks for the parent as well. This module imports nothing heavy: a worker sets both up before it
imports the rest.

The trade-off: a worker ends without cleaning up. What it writes is atomic, so that nothing half is left.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time

POLL_S = 0.5
"""Seconds between two checks of the parent. Chosen: a worker may live so long after it, at two cheap calls a second."""
_PR_SET_PDEATHSIG = 1
"""Of <sys/prctl.h>; Python has no name for it"""


def set_up_worker_process(parent: int) -> None:
    """Set up this worker process: it ends with the process `parent`, ignores Ctrl-C, and seldom
    collects garbage.

    Ctrl-C is for the process that gives out the work. What a shard makes holds no cycles: they are
    sought seldom.

    Ctrl-C is for the process that gives out the work. What a shard makes holds no cycles: they are sought seldom.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Default thresholds (700 objects) would walk through thousands of renderings again and again, for nothing.
    gc.set_threshold(200_000, 20, 20)


def end_with_parent(parent: int) -> None:
    """End this process when the process `parent`, which started it, is no more; at once where it is already gone."""
    if sys.platform == "linux":
        # The kernel sends the signal when the thread ends that started us. That is the one which waits for our work.
        with_kernel = ctypes.CDLL(None, use_errno=True)
        with_kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(
        target=_watch_parent, args=(parent,), name="truetune-parent-watch", daemon=True
    ).start()
    # It may have ended before the signal was asked for: then it never comes.
    if os.getppid() != parent:
        os._exit(1)


def _watch_parent(parent: int) -> None:
    """End this process once it has another parent: an orphan is given to init, or to a subreaper."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)
