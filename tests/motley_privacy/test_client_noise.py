"""Simulated rounds with noise by clients: whole numbers from the seed, too few survivors, kill and
resume, updates that are not finite, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley_privacy.private_rounds import PrivateRounds

pytest.importorskip("dp_accounting")
OPTIONS = {
    "clip": 0.5,
    "delta": 1e-5,
    "noise_multiplier": 1.0,
    "noise_by": "clients",
    "noise_seed": 0,
}
LOSS = {"low": 0.0, "high": 4.0, "multiplier": 5.0}
BASE = {
    "task": "quadratic",
    "population": 12,
    "cohort": 6,
    "partition": "by_writer",
    "stop": {"rounds": 4},
    "weights": "uniform",
    "evaluate": {"every": 2},
    "engine": "sequential",
    "local": {"steps": 3},
}


def loop_of(privacy=None, **keys):
    return build({**BASE, "privacy": {**OPTIONS, **(privacy or {})}, **keys})


def finished(privacy=None, **keys):
    loop = loop_of(privacy, **keys)
    while not loop.done:
        loop.step()
    return loop


def moved(loop):
    return loop.state.server.model.x.detach().numpy().copy()


def test_the_claim_is_against_the_server():
    plan = loop_of().config.privacy
    said = " ".join(plan.claim(simulated=False))
    assert "against the server itself, also together with 1 of its clients, as far as" in said
    assert "opened only with 5 clients or more, so that the noise of 4" in said
    assert "must be trusted" not in said
    assert "Tables and checkpoints of the server are secrets" not in said
    assert plan.bound.accountant == "rdp"
    record = plan.record(simulated=True)
    assert (record["noise_by"], record["survivors"], record["colluders"]) == ("clients", 5, 1)
    alone = " ".join(loop_of({"colluders": 0}).config.privacy.claim(simulated=False))
    assert "no client's help, and not against clients, who know their own noise" in alone
    trusted = build({**BASE, "privacy": {**OPTIONS, "noise_by": "server"}}).config.privacy
    assert "must be trusted" in " ".join(trusted.claim(simulated=False))
    assert "noise_by" not in trusted.record(simulated=True)


def test_the_sum_is_that_of_whole_numbers_with_the_noise_of_each_client(monkeypatch):
    """What a step moves is the opened sum over the cohort; each client's part is its encoding by
    the key of the client and of how many sums it was in."""
    loop = loop_of()
    sent = []
    noise = loop.config.privacy.client_noise
    encoded = PrivateRounds._encoded

    def noted(self, state, upload, by):
        out = encoded(self, state, upload, by)
        key = self.source.fold("client", upload.client, 1)  # everybody's first sum
        value = upload.parts["delta"].value.numpy()
        np.testing.assert_array_equal(
            out.parts["delta"].value.numpy().reshape(-1), noise.encode(value, key.numpy().bytes)
        )
        sent.append(out.parts["delta"].value.numpy().reshape(-1).astype(np.int64))
        return out

    monkeypatch.setattr(PrivateRounds, "_encoded", noted)
    before = moved(loop)
    loop.step()
    assert len(sent) == 6
    expected = np.sum(sent, axis=0) * noise.grid / 6
    np.testing.assert_allclose(moved(loop) - before, expected.reshape(before.shape), atol=1e-6)


def test_noise_is_of_what_clients_send():
    """Under FedPer the last of 64 x 16 + 16 + 16 x 10 + 10 weights, its layer, stays with them."""
    image = {"name": "image", "data": "digits", "scale": "unit"}
    model = {"name": "digits_mlp", "hidden": [16]}
    loop = loop_of(task={**image, "model": model}, partition="iid", algorithm="fedper")
    assert loop.config.privacy.client_noise.size == 64 * 16 + 16
    loop.step()


def test_noise_is_a_function_of_its_seed_alone_where_one_is_given():
    first, second, other = (moved(finished({"noise_seed": seed})) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_kill_and_resume_is_the_same_run(tmp_path):
    keys = Experiment(**{**BASE, "privacy": OPTIONS, "checkpoint": {"every_rounds": 1}})
    whole = motley.run(keys, out=tmp_path / "whole")
    again = build(keys)
    again.step()
    saved = again.save()
    third = build(keys)
    third.restore(saved)
    while not third.done:
        third.step()
    last = finished()
    np.testing.assert_array_equal(moved(third), moved(last))
    assert whole.meta["privacy"]["noise_by"] == "clients"


def test_with_fewer_than_the_survivors_the_model_stays():
    """Half of six drop out, and five must remain: nothing is opened, and time goes on."""
    loop = loop_of(failures={"name": "drop_out", "rate": 0.5})
    before = moved(loop)
    steps = []
    while not loop.done:
        steps.append(loop.step())
        if steps[-1].accepted == 0:
            np.testing.assert_array_equal(moved(loop), before)
        before = moved(loop)
    accepted = {step.accepted for step in steps}
    assert 0 in accepted
    assert accepted <= {0, 5, 6}


def test_an_update_that_is_not_finite_is_noise_alone(monkeypatch):
    """Nobody is rejected: the client's own process replaces it by zeros, and the sum is opened."""
    loop = loop_of(privacy={"survivors": 6})
    train = type(loop.engine).train

    def broken(self, *given):
        for result in train(self, *given):
            yield dataclasses.replace(result, finite=False, client_state={"h": torch.ones(1)})

    monkeypatch.setattr(type(loop.engine), "train", broken)
    before = moved(loop)
    assert loop.step().accepted == 6
    assert np.isfinite(moved(loop)).all()
    assert (moved(loop) != before).any()


def test_a_sum_that_wrapped_changes_nothing(monkeypatch):
    loop = loop_of()
    monkeypatch.setattr(type(loop.config.privacy.client_noise), "largest", 1)
    before = moved(loop)
    assert loop.step().accepted == 0
    np.testing.assert_array_equal(moved(loop), before)


def test_the_run_id_knows_who_adds_the_noise():
    one = {**BASE, "cohort": 4}
    server = {key: value for key, value in OPTIONS.items() if key != "noise_by"}
    ids = [
        Experiment(**one, privacy={**server, **more}).run_id()
        for more in (
            {},
            {"noise_by": "server"},
            {"noise_by": "clients"},
            {"noise_by": "clients", "colluders": 0},
        )
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("privacy", "keys", "said"),
    [
        (
            {"cohorts": "hidden"},
            {"stop": {"rounds": 4}},
            r"privacy.cohorts: the server, against which the claim holds, sees the cohorts; write "
            r'cohorts = "seen"',
        ),
        ({"clip": {"initial": 0.1}}, {}, "a clip that adapts needs a count of clear norms"),
        ({"part_clips": {"delta": 0.2}}, {}, "one vector is masked"),
        ({}, {"algorithm": "scaffold"}, "clients send the update alone"),
        (
            {"signal_noise": {"loss": {**LOSS, "noise": "gumbel"}, "num_examples": LOSS}},
            {"selector": "power_of_choice"},
            "Gumbel noise is the server's, which is not trusted",
        ),
        (
            {"max_examples": 10},
            {"weights": "examples"},
            'under masks all weigh the same; write weights = "uniform"',
        ),
        ({}, {"compressor": "qsgd"}, "compressed updates cannot be masked"),
        (
            {},
            {"synchrony": {"name": "buffered", "buffer": 3}},
            "no cohort that is summed as a whole",
        ),
        (
            {},
            {"selector": "poisson"},
            'a cohort of coins has no fixed size; write selector = "uniform"',
        ),
        ({"accountant": "pld"}, {}, "pld"),
        ({"accountant": "closed_form"}, {}, "the closed form is of Gaussians alone"),
        ({"adjacency": "add_remove"}, {}, "the roster is public here"),
        ({"survivors": 7}, {}, "got survivors = 7 of 6 clients"),
        (
            {},
            {"cohort": 4, "synchrony": {"name": "deadline", "over_select": 1.5}},
            "of 6 clients asked 5 must remain, and the server steps when 4 have delivered; lower "
            "over_select",
        ),
        (
            {"noise_by": "server", "colluders": 2},
            {},
            'colluders: got 2, which is of noise by clients; write noise_by = "clients"',
        ),
    ],
)
def test_what_is_refused(privacy, keys, said):
    with pytest.raises(ConfigError, match=said):
        loop_of(privacy, **keys)
