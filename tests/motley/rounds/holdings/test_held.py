"""What clients hold of the model, by algorithm: nothing of its own where that is all of it."""

import pytest

from motley.experiments.build import build
from motley.rounds.holdings.held import holding_of

KEYS = {"task": "synthetic", "population": 6, "cohort": 2, "stop": {"rounds": 1}}


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("fedavg", "NoneType"),
        ("fedproto", "HeldPrototypes"),
        ({"name": "ifca", "k": 2}, "ChosenModel"),
    ],
)
def test_the_algorithm_says_what_clients_hold(algorithm, kind):
    loop = build({**KEYS, "algorithm": algorithm})
    holding = holding_of(loop.setting, loop.config.world, lambda ids: ids * 0.1, None)
    assert type(holding).__name__ == kind
