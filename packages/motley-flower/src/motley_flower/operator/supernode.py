"""Flower's SuperNode, which ends when one of its threads does:
``python -m motley_flower.operator.supernode``, with the options of ``flower-supernode``.

A SuperLink whose disk is full answers a heartbeat with an error. The SuperNode's thread that sends
heartbeats ends then, and the process goes on for ever without a word to the SuperLink, for which
the node stays offline. One that ends is started again by its supervisor.

A SuperNode whose signatures are refused in mid-run, because its key was revoked or the machine's
clock was set, interrupts itself, and ends with status 0 and no word about it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import Any

from motley_flower.messages import flower

LEAVE_S = 20.0
"""Seconds in which Flower may end its own processes."""
_REFUSED = (
    "the SuperLink no longer takes this node's signatures: its key was revoked, or this machine's "
    "clock was set to another time; start it again, which checks the clock first\n"
)


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


def tell_of_a_refusal() -> threading.Event:
    """Let a sentence say why where this process interrupts itself, as Flower does when its
    signatures are refused; return what is then set."""
    refused = threading.Event()
    kill = os.kill

    def told(pid: int, number: int) -> None:
        if pid == os.getpid() and number == signal.SIGINT and not refused.is_set():
            refused.set()
            sys.stderr.write(_REFUSED)
        kill(pid, number)

    os.kill = told
    return refused


def main() -> None:
    """Run Flower's SuperNode; one whose signatures are refused ends with status 1."""
    end_with_a_thread()
    refused = tell_of_a_refusal()
    try:
        flower("supernode.cli").flower_supernode()
    finally:
        if refused.is_set():
            sys.exit(1)


if __name__ == "__main__":
    main()
