"""FedAdamW: local AdamW with moments of all, by hand and beside torch's."""

from __future__ import annotations

import math

import pytest
import torch

from motley.algorithms.fedadamw import FedAdamW
from motley.algorithms.local_optimisers import SGD
from motley.core.errors import ConfigError
from tests.motley.algorithms.toys import B, Toy
from tests.motley.theory.test_algorithms import simulate

PLAIN = {"weight_decay": 0.0}


def test_two_rounds_of_one_step():
    """v = .999 * .01 + .001 * 3.9^2 and 1.9^2; over 1 - .999^2 = .001999."""
    toy = Toy(FedAdamW(**PLAIN), targets=(4.0, 2.0))
    toy.round()
    assert toy.x == pytest.approx([0.1], rel=1e-6)
    extra = toy.server.extra
    assert extra["direction"].item() == pytest.approx(-1.0, rel=1e-6)
    assert extra["moments"].tolist() == pytest.approx([0.01], rel=1e-9)
    assert extra["steps"].item() == 1.0
    toy.round()
    steps = [3.9 / math.sqrt(0.0252 / 0.001999), 1.9 / math.sqrt(0.0136 / 0.001999)]
    wanted = 0.1 + 0.1 * (sum(steps) / 2 + 0.5)
    assert wanted == pytest.approx(0.2413431, abs=1e-7)
    assert toy.x == pytest.approx([wanted], rel=1e-7)
    assert toy.server.extra["moments"].tolist() == pytest.approx([0.0194], rel=1e-6)


def test_weights_decay_beside_the_moments():
    """From x = 1, c = 4, lr .1, decay .2: 1 - .1 * .2 + .1."""
    toy = Toy(FedAdamW(weight_decay=0.2), start=(1.0,))
    toy.round()
    assert toy.x == pytest.approx([1.08], rel=1e-7)


def test_a_first_round_is_torchs_adamw():
    """One client, three steps of the product of two weights, no step before."""
    toy = Toy(FedAdamW(weight_decay=0.1), model=B, start=(1.0, 2.0), targets=(4.0,))
    toy.round(steps=3)
    w = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    adamw = torch.optim.AdamW([w], lr=0.1, weight_decay=0.1)
    for _ in range(3):
        adamw.zero_grad()
        ((w[0] * w[1] - 4.0) ** 2 / 2).backward()
        adamw.step()
    assert toy.x == pytest.approx(w.tolist(), rel=1e-12)


def test_rounds_of_the_codes_form_are_torchs_adamw_with_moments_put_in():
    """One client, three rounds of two steps: torch begins each with exp_avg 0, the last exp_avg_sq
    and the steps of the run, and .5 lr / 2 of the last round's step over lr follows every step."""
    method = FedAdamW(moments="coordinates", first_moment="run")
    toy = Toy(method, model=B, start=(1.0, 2.0), targets=(4.0,))
    w = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    second, leant = torch.zeros_like(w), torch.zeros_like(w)
    for number in range(3):
        toy.round(steps=2)
        adamw = torch.optim.AdamW([w], lr=0.1, weight_decay=0.01)
        kept = {"exp_avg": torch.zeros_like(w), "exp_avg_sq": second.clone()}
        adamw.state[w] = {"step": torch.tensor(2.0 * number), **kept}
        before = w.detach().clone()
        for _ in range(2):
            adamw.zero_grad()
            ((w[0] * w[1] - 4.0) ** 2 / 2).backward()
            adamw.step()
            w.data.add_(leant * 0.5 * 0.1 / 2)
        second, leant = adamw.state[w]["exp_avg_sq"], (w.detach() - before) / 0.1
        assert toy.x == pytest.approx(w.tolist(), rel=1e-10)


@pytest.mark.parametrize("moments", ["blocks", "coordinates"])
def test_blocks_of_one_weight_are_coordinates(moments):
    """Residuals 2 h b - c: of (b, h) = (1, 2), c = (-2, 0): gradients (8, 4), (4, 2)."""
    toy = Toy(FedAdamW(moments=moments), model=B, start=(1.0, 2.0), targets=(-2.0, 0.0))
    toy.round()
    squares = ((8.0**2 + 4.0**2) / 2, (4.0**2 + 2.0**2) / 2)
    assert toy.server.extra["moments"].tolist() == pytest.approx(
        [0.001 * square for square in squares], rel=1e-9
    )


def test_the_first_moment_is_corrected_by_the_steps_of_the_run_in_the_code():
    """Round 2: m = .1 g over 1 - .9^2 = .19 where the text has 1 - .9: .526316 of its step."""
    ends = {}
    for name in ("round", "run"):
        toy = Toy(FedAdamW(alignment=0.0, first_moment=name, **PLAIN))
        toy.round()
        toy.round()
        ends[name] = toy.x[0] - 0.1
    assert ends["run"] / ends["round"] == pytest.approx(0.1 / 0.19, rel=1e-6)


def test_moments_keep_their_size_where_uploads_are_stale():
    """A discounted upload shortens the step and leaves what the server knows of moments."""
    keys = {
        "minima": (1.0, 3.0, 5.0),
        "taus": (1, 1, 1),
        "cohort": 3,
        "rounds": 5,
        "algorithm": "fedadamw",
        "synchrony": {"name": "buffered", "buffer": 1},
    }
    simulation = simulate(**keys)
    while not simulation.done:
        simulation.step()
    extra = simulation.state.server.extra
    assert extra["steps"].item() == pytest.approx(5.0, rel=1e-12)
    g = (simulation.state.server.model.x.abs().item() + 5.0) ** 2
    assert 0.0 < extra["moments"].item() < 0.001 * g * 5


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"server": "adam"}, "which the server rule ServerAdam does not keep; leave server out"),
        (
            {"local": {"optimizer": {"name": "adamw", "lr": 0.1}}},
            "AlignedAdamW brings its own local steps and takes the learning rate alone; write",
        ),
        ({"algorithm": {"name": "fedadamw", "beta2": 1.0}}, "got beta2 = 1.0; expected at least 0"),
        (
            {"algorithm": {"name": "fedadamw", "moments": "rows"}},
            "got 'rows'; expected one of 'blocks', 'coordinates'",
        ),
        (
            {"algorithm": {"name": "fedadamw", "alignment": -1.0}},
            "got alignment = -1.0; expected at least 0",
        ),
        ({"engine": "vmap"}, "takes steps in directions of its own"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "fedadamw", **keys})


def test_words_that_are_no_option():
    with pytest.raises(ConfigError, match="got first_moment = 'all'; expected 'round' or 'run'"):
        FedAdamW(first_moment="all")


def test_plain_sgd_is_taken():
    made = FedAdamW().change(Toy(FedAdamW()).algorithm)
    assert made.local.refuses(made, SGD(lr=0.1), "uniform") is None
    assert made.local.refuses(made, SGD(lr=0.1, momentum=0.9), "uniform") is not None
