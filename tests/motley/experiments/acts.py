"""What workers call in the tests of several runs at a time; a module of its own, for each worker
imports it."""

from __future__ import annotations

import os
import signal
import time
import warnings

import torch
from threadpoolctl import threadpool_info

from motley.experiments.progress import OneRun


def act(number: int, way: str, progress: OneRun) -> None:
    """What a worker calls in the tests."""
    if way == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "raises":
        raise ZeroDivisionError(f"number {number}")
    if way == "warns":
        # libraries do so, and Python forgets which warnings it has shown
        with warnings.catch_warnings():
            pass
        warnings.warn(f"number {number} is odd", stacklevel=1)
    if way == "sleeps":
        time.sleep(600)
    if way == "counts":
        pools = threadpool_info()
        blas = {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}
        print(torch.get_num_threads(), blas, os.environ["OMP_NUM_THREADS"], flush=True)
