"""Flower's SuperNode, which ends when one of its threads does:
``python -m motley_flower.operator.supernode``, with the options of ``flower-supernode``.

A SuperLink whose disk is full answers a heartbeat with an error. The SuperNode's thread that sends
heartbeats ends then, and the process goes on for ever without a word to the SuperLink, for which
the node stays offline. One that ends is started again by its supervisor.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import Any

from motley_flower.messages import flower

__all__ = ["end_with_a_thread", "main"]

LEAVE_S = 20.0
"""Seconds in which Flower may end its own processes."""


def end_with_a_thread(leave_s: float = LEAVE_S) -> None:
    """Let this process be told to end (SIGTERM) when an exception ends one of its threads, and end
    it with status 1 where it is still there ``leave_s`` later."""

    def end(problem: Any) -> None:
        traceback.print_exception(problem.exc_value)
        name = problem.thread.name if problem.thread is not None else "a thread"
        sys.stderr.write(f"{name} of the SuperNode has ended, and so does the SuperNode\n")
        late = threading.Timer(leave_s, os._exit, [1])
        late.daemon = True
        late.start()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.excepthook = end


def main() -> None:
    """Run Flower's SuperNode."""
    end_with_a_thread()
    flower("supernode.cli").flower_supernode()


if __name__ == "__main__":
    main()
