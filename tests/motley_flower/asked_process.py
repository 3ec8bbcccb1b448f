"""What processes of one client do in a test; a module of its own, from which they are forked."""

from __future__ import annotations

import os

import numpy as np

from motley.core.errors import ConfigError
from motley_flower.deployed.client_ledger import ClientLedger


def asked_in_a_process(folder, start, out):
    ledger = ClientLedger(folder, "terms", 3, 2, 5)
    start.wait()
    found = {}
    for occasion in ("one", "two", "three", "four"):
        try:
            found[occasion] = float(
                ledger.release(occasion, {"loss": lambda: np.array(float(os.getpid()))}, True)[
                    "loss"
                ]
            )
        except ConfigError:
            found[occasion] = None
    out.put(found)
