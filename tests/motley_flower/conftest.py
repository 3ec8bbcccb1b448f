"""Flower's words: the real ones where Flower is installed, else stand-ins, put in place for these
tests alone."""

from __future__ import annotations

import importlib.util
import signal
import sys
import warnings

import pytest

HERE = importlib.util.find_spec("flwr") is not None
if HERE:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Flower's own dependencies
        import flwr.app
        import flwr.serverapp.strategy  # noqa: F401
        from flwr.supercore.task_identity import TaskIdentity

        # a message says by whose task it was written
        TaskIdentity.task_id = 1
        TaskIdentity.run_id = 1
        TaskIdentity.node_id = 1
else:
    from tests.motley_flower import stand_ins

    STAND_INS = stand_ins.modules()


@pytest.fixture(autouse=True)
def words(monkeypatch):
    if not HERE:
        for name, module in STAND_INS.items():
            monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def interruptible():
    """SIGINT interrupts, also where the tests were started in the background by a shell, which has
    it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
