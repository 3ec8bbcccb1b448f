"""MIFA and FedVARP: memories worked by hand, and what partial participation does no more."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.mifa import MIFA, FedVARP
from motley.algorithms.parts import Part, ServerContext, Upload, aggregate
from motley.core import codec
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.tasks.task import ModelState
from tests.motley.theory.test_algorithms import run, simulate

MINIMA = (1.0, 3.0)


def server_of(method, population=2):
    server = method.change(simulate().algorithm).server
    model = ModelState(torch.zeros(1, dtype=torch.float64), torch.zeros(0), torch.zeros(0))
    return server, server.init(model, population)


def stepped(server, state, uploads, population=2, samples=None):
    """Return the next state after uploads ``client -> (update by rate, rate)``; ``samples``: of
    every client, by which they weigh, None: they weigh alike."""
    own = dict.fromkeys(uploads, 1.0) if samples is None else dict(enumerate(samples))
    made = [
        Upload(
            {
                "delta": Part(torch.tensor([g], dtype=torch.float64), "mean"),
                "rate": Part(torch.tensor([rate], dtype=torch.float64), "mean"),
            },
            own[client],
            client=client,
            own_weight=own[client],
        )
        for client, (g, rate) in uploads.items()
    ]
    total = aggregate(Gather(), made, "weight")
    sums = None if samples is None else (sum(own[client] for client in uploads), sum(samples))
    context = ServerContext(Layout(()), population, len(made), own_weights=sums)
    return server.update(state, total, context)


@pytest.mark.parametrize(
    ("method", "samples", "path"),
    [
        (MIFA(), None, [0.05, 0.2475, 0.432625]),
        (FedVARP(), None, [0.1, 0.44, 0.591]),
        (MIFA(), (1, 3), [0.025, 0.273125, 0.514421875]),
        (FedVARP(), (1, 3), [0.1, 0.415, 0.616]),
    ],
    ids=["MIFA", "FedVARP", "MIFA by samples", "FedVARP by samples"],
)
def test_one_client_a_round(method, samples, path) -> None:
    """By samples, p = (1/4, 3/4), MIFA: G_0 = 1, v = .25; G_1 = 2.975, v = .25 + .75 * 2.975 =
    2.48125; G_0 = .726875, v = 2.48125 - .25 * .273125 = 2.41296875. FedVARP: v = 1; G_1 = 2.9, v =
    .25 + 2.9; G_0 = .585, v = .25 + .75 * 2.9 + .585 - 1 = 2.01."""
    server, state = server_of(method)
    found = []
    for client in (0, 1, 0):
        g = MINIMA[client] - state.model.x.item()
        state = stepped(server, state, {client: (g, 0.1)}, samples=samples)
        found.append(state.model.x.item())
    assert found == pytest.approx(path, rel=1e-12)
    memories = [state.extra[f"memory.{client}"].item() for client in (0, 1)]
    mean = np.average(memories, weights=samples)
    assert state.extra["mean"].item() == pytest.approx(mean, rel=1e-12)


def test_an_old_update_takes_part_at_the_rate_of_today() -> None:
    """Client 0 sent 4 at rate .1; client 1 sends 2 at rate .01: MIFA steps by .01 (4 + 2) / 2."""
    server, state = server_of(MIFA())
    state = stepped(server, state, {0: (4.0, 0.1)})
    before = state.model.x.item()
    state = stepped(server, state, {1: (2.0, 0.01)})
    assert before == pytest.approx(0.2)
    assert state.model.x.item() - before == pytest.approx(0.03)


def test_only_clients_that_were_heard_take_memory() -> None:
    """Two of a million clients are two rows, and a row is not a view of all uploads of a round."""
    server, state = server_of(MIFA(), 1_000_000)
    state = stepped(server, state, {7: (1.0, 0.1), 999_999: (1.0, 0.1)}, 1_000_000)
    rows = {name: v for name, v in state.extra.items() if name.startswith("memory.")}
    assert set(rows) == {"memory.7", "memory.999999"}
    assert {v.untyped_storage().nbytes() for v in rows.values()} == {8}
    assert server.notes(state) == {"memories": 2.0}
    assert state.model.x.item() == pytest.approx(0.1 * 2e-6)


@pytest.mark.parametrize("weights", ["uniform", "examples"])
@pytest.mark.parametrize("name", ["mifa", "fedvarp"])
def test_with_everybody_it_is_averaging(name, weights) -> None:
    keys = {"taus": (2, 7), "rounds": 4, "lr": 0.1, "weights": weights}
    assert run(algorithm=name, **keys) == pytest.approx(run(**keys), rel=1e-12)


@pytest.mark.parametrize("method", [MIFA(), FedVARP()], ids=lambda value: type(value).__name__)
def test_absence_moves_the_fixed_point_no_more(method) -> None:
    """Minima 1 and 3, one client drawn a round, one step of rate .1: the memories come to rest at
    2, where averaging would swing by up to .1."""
    server, state = server_of(method)
    for client in Key(0).fold("who").numpy().integers(2, size=300).tolist():
        state = stepped(server, state, {client: (MINIMA[client] - state.model.x.item(), 0.1)})
    assert state.model.x.item() == pytest.approx(2.0, abs=1e-4)


def test_a_checkpoint_has_the_memories() -> None:
    """A run goes on from what another saved after two rounds as that one does."""
    keys = {"minima": range(6), "taus": (1,) * 6, "algorithm": "mifa", "cohort": 2, "rounds": 6}
    whole, other = simulate(**keys), simulate(**keys)
    for _ in range(2):
        whole.step()
    other.restore(codec.decode(codec.encode(whole.save())))
    for loop in (whole, other):
        while not loop.done:
            loop.step()
    kept = [loop.state.server for loop in (whole, other)]
    assert kept[0].extra.keys() == kept[1].extra.keys()
    assert kept[0].model.x.item() == kept[1].model.x.item()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"server": "adam"}, "the server rule ServerAdam does not undo; leave server out"),
        ({"aggregator": "median"}, "Median"),
        ({"algorithm": {"name": "mifa", "server_lr": 0}}, "got lr = 0.0; expected a positive"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "mifa", **keys})
