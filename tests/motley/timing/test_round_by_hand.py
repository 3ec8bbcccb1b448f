"""A three-client round worked out on paper, to the last digit: probe, download, compute, upload,
round end, bits."""

import numpy as np
import torch

from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Synchronous, Wait
from motley.timing.timeline import Timelines, VirtualClock, plan, probe_s
from motley.transport.ledger import Ledger, message_bits, paper_bits

IDS = np.array([0, 1, 2])
STEPS = np.array([10, 20, 4])
STEP_S = np.array([0.1, 0.05, 0.5])
UP = np.array([1.0, 2.0, 4.0])
DOWN = np.array([2.0, 4.0, np.inf])
MESSAGE = {
    "x": torch.zeros(1246),
    "buffers": torch.zeros(2),
    "counters": torch.zeros(1, dtype=torch.int64),
}


def digits(values):
    return np.round(values, 12).tolist()


def test_the_round():
    """The message: 1246 weights and 2 buffers at 32 bits, 1 counter at 64: 1248 * 32 + 64 = 40 000
    bits; on paper 1246 * 32 = 39 872.

    Clients 0 and 2 are probed on 3 batches each, one number (32 bits) comes back. A forward pass is
    a third of a step:

        client 0   down 40000 / 2e6 = 0.02   3 * 0.1 / 3 = 0.1   up 32 / 1e6 = 0.000032
                   sum 0.120032
        client 2   down 0 (infinite)         3 * 0.5 / 3 = 0.5   up 32 / 4e6 = 0.000008
                   sum 0.500008

    The phase ends at 0.500008. All three are asked; 0 and 2 hold the model, only 1 downloads:

        client  downloaded                     computed                 arrives
        0       0.500008                       + 10 * 0.1  = 1.500008   + 40000 / 1e6 = 0.04
                                                                        1.540008
        1       + 40000 / 4e6 = 0.01 0.510008  + 20 * 0.05 = 1.510008   + 40000 / 2e6 = 0.02
                                                                        1.530008
        2       0.500008                       + 4 * 0.5   = 2.500008   + 40000 / 4e6 = 0.01
                                                                        2.510008

    The round ends with client 2 at 2.510008. Bits: probe 2 * 40 000 down and 64 up, model 40 000
    down, updates 120 000 up: down 120 000, up 120 064, together 240 064; on paper 119 616.
    """
    bits = message_bits(MESSAGE)
    assert bits == 40_000

    clock = VirtualClock()
    ledger = Ledger()
    probed = np.array([0, 2])
    took = probe_s(bits, DOWN[probed], 3, STEP_S[probed], 32, UP[probed])
    assert digits(took) == [0.120032, 0.500008]
    clock.advance(clock.now_s + took.max(initial=0.0))
    ledger.post("probe", "down", probed, bits, round=1)
    ledger.post("probe", "up", probed, 32, round=1)

    bits_down = np.where(np.isin(IDS, probed), 0, bits)
    lines = plan(IDS, np.arange(3), 0, STEPS, clock.now_s, STEP_S, bits_down, DOWN, bits, UP)
    assert digits(lines.start_s) == [0.500008] * 3
    assert digits(lines.downloaded_s) == [0.500008, 0.510008, 0.500008]
    assert digits(lines.computed_s) == [1.500008, 1.510008, 2.500008]
    assert digits(lines.arrives_s) == [1.540008, 1.530008, 2.510008]
    ledger.post("model", "down", IDS, bits_down, round=1)

    synchrony = Synchronous()
    assert synchrony.decide(ServerView(clock.now_s, 3, 0, False, Timelines.empty())) == Dispatch(3)
    wait = synchrony.decide(ServerView(clock.now_s, 3, 0, True, lines))
    assert isinstance(wait, Wait)
    clock.advance(wait.until_s)
    assert digits(clock.now_s) == 2.510008
    step = synchrony.decide(ServerView(clock.now_s, 3, 0, True, lines))
    assert isinstance(step, ServerStep)
    assert step.accept.tolist() == [True, True, True]
    ledger.post("upload", "up", IDS, bits, round=1, paper_bits=paper_bits({"x": MESSAGE["x"]}))

    assert ledger.total(direction="down") == 120_000
    assert ledger.total(direction="up") == 120_064
    assert ledger.total_bits == 240_064
    assert ledger.paper_bits == 119_616
    assert ledger.of(IDS, "down").tolist() == [40_000, 40_000, 40_000]
    assert ledger.of(IDS, "up").tolist() == [40_032, 40_000, 40_032]
