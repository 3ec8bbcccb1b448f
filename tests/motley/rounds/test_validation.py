"""Validation samples are evaluated, and the best round by them is kept, through kills as well."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import motley
from motley.core.ragged import Ragged
from motley.engines.client import Client
from motley.results import measures
from motley.rounds.examining import PreparedOnce, validate, validation_view
from motley.rounds.loop import RoundLoop
from motley.tasks.task import Federation

SMALL = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 8,
    "cohort": 4,
    "stop": {"rounds": 9},
    "partition": {"name": "dirichlet", "alpha": 0.3},
    "split": {"test": "global", "test_fraction": 0.2, "validation": 0.25},
    "label_noise": {"name": "symmetric", "rate": 0.4, "share": 0.5},
    "evaluate": {"every": 2},
    "local": {"epochs": 1, "optimizer": {"name": "sgd", "lr": 0.3}},
    "engine": "sequential",
    "checkpoint": {"every_rounds": 3},
}


class Losses:
    """An engine that has fixed losses and hits per row, and remembers the labels it was given."""

    def __init__(self, losses, hits):
        self.losses = np.array(losses)
        self.hits = np.array(hits)
        self.labels = []

    def evaluate(self, model, rows, labels=None, *_, sizes=None):
        self.labels.append(labels)
        return {"loss": self.losses[rows], "hit": self.hits[rows]}


def federation(noisy=None):
    """Rows 0 to 5; clients hold out (1, 2, 3), nothing and (5); client 1's only row trains."""
    none = np.zeros(0, np.int64)
    return Federation(
        x=torch.zeros(6, 1),
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
        train=Ragged.of([np.array([0]), np.array([4]), none]),
        labels=torch.tensor([0, 0]),
        validation=Ragged.of([np.array([1, 2, 3]), none, np.array([5])]),
        test=Ragged.of([none] * 3),
        global_test=np.array([0, 4]),
        classes=2,
        noise=np.zeros(3),
        validation_labels=noisy,
    )


def test_figures_by_hand():
    """Client 0 has losses 1, 2, 3 and hits 1, 1, 0; client 2 loss 6 and hit 0. All samples: 12 / 4
    = 3 and 2 / 4; the clients' means: 2 and 6, 2/3 and 0; their mean 4 and 1/3."""
    engine = Losses([9, 1, 2, 3, 9, 6], [1, 1, 1, 0, 1, 0])
    view = validation_view(federation())
    found = validate(engine, None, view, True, None, None).rows
    assert found["scope"] == [
        "validation",
        "validation_mean",
        "validation_client",
        "validation_client",
    ]
    assert found["client"].tolist() == [-1, -1, 0, 2]
    assert found["examples"].tolist() == [4, 4, 3, 1]
    assert found["loss"].tolist() == [3.0, 4.0, 2.0, 6.0]
    assert found["accuracy"] == pytest.approx([0.5, 1 / 3, 2 / 3, 0.0])
    assert engine.labels == [None]
    brief = validate(engine, None, view, False, None, None).rows
    assert (brief["scope"], brief["loss"].tolist()) == (
        ["validation", "validation_mean"],
        [3.0, 4.0],
    )


def test_positions_weigh_as_many_as_there_are():
    """Client 0's samples have 2, 1 and 1 positions: (2 * 1 + 2 + 3) / 4 = 1.75; client 2's sample
    has 2: all together (4 * 1.75 + 2 * 6) / 6 = 19 / 6, and the clients' mean 3.875."""
    y = torch.tensor([[0, 1], [0, 1], [-100, 1], [1, -100], [0, 0], [1, 1]])
    view = validation_view(replace(federation(), y=y))
    found = validate(Losses([9, 1, 2, 3, 9, 6], [0] * 6), None, view, True, None, None).rows
    assert found["loss"] == pytest.approx([19 / 6, 3.875, 1.75, 6.0])


def test_labels_are_the_clients_own():
    """Row 3's label is wrong, 0 instead of 1; where client 2 calls class 1 by the name 0, its row 5
    has label 0."""
    engine = Losses(range(6), [0] * 6)
    view = validation_view(federation(noisy=torch.tensor([1, 0, 0, 1])))
    validate(engine, None, view, True, None, None)
    validate(engine, None, view, True, None, np.array([[0, 1], [0, 1], [1, 0]]))
    assert [labels.tolist() for labels in engine.labels] == [[1, 0, 0, 1], [1, 0, 0, 0]]


def test_without_validation_samples_there_is_nothing():
    assert (
        validation_view(replace(federation(), validation=Ragged.of([np.zeros(0, np.int64)] * 3)))
        is None
    )


def scores(run, scope):
    rows = run.tables["evaluations"].to_pylist()
    return {row["round"]: row["accuracy"] for row in rows if row["scope"] == scope}


def same(a, b):
    first = load_file(a)
    second = load_file(b)
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return motley.run(SMALL, out=tmp_path_factory.mktemp("whole") / "run")


def test_the_best_round_is_kept(whole, tmp_path):
    """Rounds 2, 4, 6 and 8 compete; round 0 and the last, which ``every`` does not ask for, do not.
    The model kept is that of a run which ends at the best round."""
    held = {at: score for at, score in scores(whole, "validation").items() if at in (2, 4, 6, 8)}
    best = max(held, key=held.get)
    assert whole.meta["best"] == {
        "round": best,
        "scope": "validation",
        "metric": "accuracy",
        "value": held[best],
    }
    shorter = motley.run({**SMALL, "stop": {"rounds": best}}, out=tmp_path / "shorter")
    assert same(whole.directory / "best.safetensors", shorter.directory / "model.safetensors")
    assert whole.module("best") is not None


def test_a_killed_run_keeps_the_same_best_round(whole, tmp_path):
    """Checkpoints are written after rounds 3, 6 and 9, so that rounds are done again, and with them
    the best one."""
    step = RoundLoop.step
    for at in (1, 4, 8):
        folder = tmp_path / f"killed-{at}"

        def killed(loop, at=at):
            done = step(loop)
            if done.round == at:
                raise RuntimeError("killed")
            return done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RoundLoop, "step", killed)
            with pytest.raises(RuntimeError, match="killed"):
                motley.run(SMALL, out=folder)
        again = motley.run(SMALL, out=folder, resume=True)
        assert again.meta["best"] == whole.meta["best"]
        assert (folder / "best.safetensors").read_bytes() == (
            whole.directory / "best.safetensors"
        ).read_bytes()
        assert again.tables["evaluations"].equals(whole.tables["evaluations"])


def test_an_extended_run_keeps_the_best_round_of_one_that_was_that_long_from_the_start(
    whole, tmp_path
):
    """Ended at round 3, of which ``every`` does not ask for an evaluation, and at round 6, of which
    it does."""
    for rounds in (3, 6):
        motley.run({**SMALL, "stop": {"rounds": rounds}}, out=tmp_path / str(rounds))
        longer = motley.run(SMALL, out=tmp_path / str(rounds), resume=True)
        assert longer.meta["best"] == whole.meta["best"]
        assert (longer.directory / "best.safetensors").read_bytes() == (
            whole.directory / "best.safetensors"
        ).read_bytes()
        assert longer.tables["evaluations"].equals(whole.tables["evaluations"])
        assert measures.by_validation(longer) == measures.by_validation(whole)


def test_it_costs_nothing_and_changes_nothing(whole, tmp_path, monkeypatch):
    """A run in which nothing is validated, though samples are held out, has the same rows but for
    those of validation."""
    monkeypatch.setattr("motley.rounds.examining.validation_view", lambda federation: None)
    without = motley.run(SMALL, out=tmp_path / "without")
    for name in ("rounds", "clients", "federation"):
        assert without.tables[name].equals(whole.tables[name])
    rows = [
        row
        for row in whole.tables["evaluations"].to_pylist()
        if not row["scope"].startswith("validation")
    ]
    assert without.tables["evaluations"].to_pylist() == rows
    assert same(without.directory / "model.safetensors", whole.directory / "model.safetensors")
    assert "best" not in json.loads((without.directory / "run.json").read_text())
    assert not (without.directory / "best.safetensors").exists()


def test_own_models_are_examined_as_they_are(tmp_path):
    """Under FedPer every client has its own head, and the mean over clients decides where they hold
    the test data."""
    keys = {
        **SMALL,
        "algorithm": "fedper",
        "split": {"test": "client", "validation": 0.25},
        "stop": {"rounds": 2},
    }
    keys["task"] = {"name": "image", "data": "digits", "model": "digits_mlp"}
    run = motley.run(keys, out=tmp_path / "run")
    each = [
        row["accuracy"]
        for row in run.tables["evaluations"].to_pylist()
        if row["scope"] == "validation_client" and row["round"] == 2
    ]
    assert run.meta["best"]["scope"] == "validation_mean"
    assert run.meta["best"]["value"] == pytest.approx(np.mean(each))


@pytest.mark.parametrize(("most_models", "prepared"), [(100, 8), (3, 13), (0, 16)])
def test_a_client_is_fine_tuned_once_for_test_and_validation(
    tmp_path, monkeypatch, most_models, prepared
):
    """... as far as memory allows; with one client after the other the figures are the same to the
    bit. All eight have both kinds."""
    keys = {
        **SMALL,
        "algorithm": "fine_tuned",
        "split": {"test": "client", "validation": 0.25},
        "stop": {"rounds": 2},
    }
    number = []
    plain = Client.adapt
    monkeypatch.setattr(
        Client, "adapt", lambda self, *given: (number.append(1), plain(self, *given))[1]
    )
    monkeypatch.setattr(PreparedOnce, "most_bytes", 0)
    every_time = motley.run(keys, out=tmp_path / "every_time")
    asked, number[:] = len(number), []
    assert asked == 2 * 16 + 8  # in rounds 0 and 2, and for the models that the run leaves
    weights = sum(
        tensor.nbytes for tensor in load_file(every_time.directory / "model.safetensors").values()
    )
    monkeypatch.setattr(PreparedOnce, "most_bytes", most_models * weights)
    once = motley.run(keys, out=tmp_path / "once")
    assert len(number) == 2 * prepared + 8
    assert once.tables["evaluations"].equals(every_time.tables["evaluations"])
