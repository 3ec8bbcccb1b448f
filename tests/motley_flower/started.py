"""Processes of a deployment on this machine, found by Flower's folder in their environment: where
they listen, whether any is left."""

from __future__ import annotations

import contextlib
import signal
import time

import psutil


def started_by(folder):
    """Processes that belong to a deployment: they carry its folder in their environment."""
    found = []
    for process in psutil.process_iter(["pid", "name"]):
        try:
            home = process.environ().get("FLWR_HOME", "")
            zombie = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if home.startswith(str(folder)) and not zombie:
            found.append(process)
    return found


def nothing_left(folder):
    end = time.monotonic() + 30
    while (left := started_by(folder)) and time.monotonic() < end:
        time.sleep(0.5)
    return left


def listening(folder):
    """Addresses at which processes of a deployment can be reached."""
    found = set()
    for process in started_by(folder):
        with contextlib.suppress(psutil.Error):  # gone in between
            found |= {
                one.laddr.ip
                for one in process.net_connections()
                if one.status == psutil.CONN_LISTEN
            }
    return found


@contextlib.contextmanager
def ended_like_interrupted():
    """Inside the block whoever is told to end (make, a time limit) tidies up first, as after
    Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
