"""A SuperNode whose thread has ended does not go on without a word."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import signal, sys, threading, time
from motley_flower.operator.supernode import end_with_a_thread

if {hears}:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
end_with_a_thread(leave_s=0.2)

def heartbeat():
    raise OSError("500 Internal Server Error")

threading.Thread(target=heartbeat, name="heartbeat").start()
time.sleep(60)
"""


@pytest.mark.parametrize(("hears", "status"), [(True, 143), (False, 1)])
def test_it_ends_with_its_thread_whether_it_hears_or_not(hears, status):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(hears=hears)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "OSError: 500 Internal Server Error" in done.stderr
    assert "heartbeat of the SuperNode has ended, and so does the SuperNode" in done.stderr


REFUSED = """
import os, signal, sys, threading, time, types
from motley_flower.operator import supernode

def flower_supernode():
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    if {itself}:
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    else:
        signal.raise_signal(signal.SIGINT)
    time.sleep(60)

supernode.flower = lambda name: types.SimpleNamespace(flower_supernode=flower_supernode)
supernode.main()
"""


@pytest.mark.parametrize(("itself", "status"), [(True, 1), (False, 0)])
def test_it_says_why_it_interrupts_itself_and_ends_with_1(itself, status):
    """As Flower does where a heartbeat is answered with 401; Ctrl-C stays what it is."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSED.format(itself=itself)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == status, done.stderr
    said = "the SuperLink no longer takes this node's signatures: its key was revoked, or this"
    assert done.stderr.count(said) == status
