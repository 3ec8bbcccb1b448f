"""The owner of the table ``[privacy]``: asked for where an experiment has the table, and named
where it is missing."""

from importlib import metadata

import numpy as np
import pytest

import motley
from motley.core import extensions
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.private_runs import private_training
from motley_privacy import privacy_table

KEYS = {
    "task": "quadratic",
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 1},
    "local": {"steps": 1},
    "weights": "uniform",
}
PRIVACY = {"clip": 0.5, "noise_multiplier": 1.0, "delta": 1e-5, "accountant": "closed_form"}


@pytest.fixture
def alone(monkeypatch):
    """Motley without any distribution beside it."""
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints())


@pytest.mark.usefixtures("alone")
def test_a_table_whose_owner_is_missing_says_what_to_install():
    line = (
        r"^privacy: 'privacy' comes with motley-privacy, which is not installed; in a checkout of "
        r"Motley: pip install ./packages/motley-privacy$"
    )
    with pytest.raises(ConfigError, match=line):
        Experiment(**KEYS, privacy=PRIVACY)
    with pytest.raises(ConfigError, match=line):
        Experiment(**KEYS).replace({"privacy.clip": 0.5})
    with pytest.raises(ConfigError, match=line):
        private_training()
    # without the table nothing is asked for
    with pytest.raises(ConfigError, match=r"^noise_multiplier: there is no such key; known"):
        Experiment(**KEYS, noise_multiplier=0.5)


@pytest.mark.usefixtures("alone")
def test_a_plain_run_needs_nothing_beside_motley(tmp_path):
    done = motley.run({**KEYS, "privacy": "off"}, out=tmp_path, progress=False)
    assert np.isfinite(done.column("rounds", "train_loss")).all()
    assert "privacy" not in done.meta


def test_the_owner_reads_the_table_and_plans_the_run():
    experiment = Experiment(**KEYS, privacy={**PRIVACY, "clip": {"initial": 0.25, "noise": 2.0}})
    assert (experiment.privacy.clip, experiment.privacy.adaptive.noise) == (0.25, 2.0)
    assert private_training() is privacy_table
    plan = build(experiment).config.privacy
    assert plan.divisor == 2
    assert not plan.noised_by_clients
    for keys, line in (
        ({"clip": -1.0}, r"^privacy.clip: got -1.0; expected above 0$"),
        ({"clips": 1.0}, r"^privacy.clips: there is no such key \(did you mean 'clip'\?\)"),
        ({"signal_noise": {"loss": {}}}, r"^privacy.signal_noise.loss.multiplier: this key is mis"),
    ):
        with pytest.raises(ConfigError, match=line):
            Experiment(**KEYS, privacy={**PRIVACY, **keys})
    with pytest.raises(ConfigError, match=r"it belongs to privacy, write privacy = \{ noise_mul"):
        Experiment(**KEYS, noise_multiplier=1.0)
    with pytest.raises(ConfigError, match=r'^privacy: got \'on\'; expected "off" or a table'):
        Experiment(**KEYS, privacy="on")
