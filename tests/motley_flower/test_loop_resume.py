"""Motley's own loop: a server that was killed, told to end or out of disk goes on bit for bit;
sites that lost theirs begin anew."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

import motley
from motley.rounds.checkpoint import Checkpoints
from tests.motley.experiments.trackers.backends import FakeMLflow, FakeWandB
from tests.motley_flower.client_runtimes import columns, deploy, experiment, federation, same_model


class KilledError(BaseException):
    """As if the process were gone."""


def killed_after(steps):
    def told(done):
        if done.round == steps:
            raise KilledError

    return told


HARD = {
    "algorithm": {"name": "scaffold"},
    "compressor": {"name": "topk"},
    "budget": {"name": "constant", "average": 0.1},
    "feedback": {"name": "fixed"},
    "selector": {"name": "hetero_select_v1"},
    "stop": {"rounds": 6},
}


def dies_in_round(grid, round):
    """Kill the server in this round, after its sites have trained and written down what they would
    go on from."""
    push = grid.push_messages
    asked = []

    def pushed(messages):
        messages = list(messages)
        asked.extend(m for m in messages if m.metadata.message_type == "train.motley")
        sent = push(messages)
        if len(asked) > 3 * (round - 1):
            grid.sleep(2.0)
            assert len(grid.pull_messages(list(grid.waiting))) == 3
            raise KilledError
        return sent

    grid.push_messages = pushed


@pytest.mark.parametrize(
    "moment", ["between two steps", "in round 1", "in round 3", "before the state is written"]
)
def test_a_killed_server_goes_on_bit_for_bit(moment, tmp_path, monkeypatch):
    """Also what clients keep on their disks (control variates, unsent updates) must be that of the
    last step that counts."""
    setup = experiment(**HARD)
    whole = deploy(federation(setup, tmp_path / "a"), setup, tmp_path / "whole")
    grid = federation(setup, tmp_path / "b")
    save = Checkpoints.save
    saved = []

    def fails(self, round, state, tables):
        saved.append(round)
        if len(saved) == 4:
            raise KilledError
        save(self, round, state, tables)

    with monkeypatch.context() as patch:
        if moment.startswith("in round"):
            dies_in_round(grid, int(moment[-1]))
        elif moment == "before the state is written":
            patch.setattr(Checkpoints, "save", fails)
        with pytest.raises(KilledError):
            deploy(grid, setup, tmp_path / "cut", told=killed_after(3))
    done = deploy(federation(setup, tmp_path / "b"), setup, tmp_path / "cut")
    assert same_model(whole, done)
    for column in (
        "round",
        "selections",
        "dispatch",
        "accepted",
        "train_loss",
        "update_norm",
        "up_bits",
    ):
        np.testing.assert_array_equal(
            whole.column("rounds", column), done.column("rounds", column), column
        )
    for column in ("round", "client", "dispatch", "outcome", "loss", "bits_down"):
        assert whole.tables["clients"][column].equals(done.tables["clients"][column]), column
    assert (np.diff(done.column("rounds", "time_s")) > 0).all()


def test_a_full_disk_stops_the_server_in_a_sentence_and_it_goes_on_bit_for_bit(
    tmp_path, monkeypatch, caplog
):
    setup = experiment(stop={"rounds": 4})
    whole = deploy(federation(setup, tmp_path / "a"), setup, tmp_path / "whole")

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:

        def full(done):
            if done.round == 2:
                patch.setattr(os, "pwrite", no_space)

        with pytest.raises(motley.StoreError, match="No space left on device; make room") as raised:
            deploy(federation(setup, tmp_path / "b"), setup, tmp_path / "cut", told=full)
    assert raised.value.__cause__ is None
    assert "the deployment stops: cannot write" in (tmp_path / "cut" / "stopped.txt").read_text()
    assert "the deployment stops: cannot write" in caplog.text
    assert (
        f"submitted again with out = {tmp_path / 'cut'} it goes on after its last finished round"
        in caplog.text
    )
    done = deploy(federation(setup, tmp_path / "b"), setup, tmp_path / "cut")
    assert same_model(whole, done)
    assert done.column("rounds", "round").tolist() == [1, 2, 3, 4]
    assert not (tmp_path / "cut" / "stopped.txt").exists()


def test_a_server_that_is_told_to_end_says_so(tmp_path):
    def ends(done):
        raise SystemExit(0)

    setup = experiment(stop={"rounds": 3})
    with pytest.raises(SystemExit):
        deploy(federation(setup, tmp_path), setup, tmp_path / "real", told=ends)
    said = (tmp_path / "real" / "stopped.txt").read_text()
    assert (
        "the deployment stops: its process was told to end: somebody stopped the run, or the "
        "SuperLink or the machine has ended (see" in said
    )


def test_a_killed_server_goes_on_in_the_same_run_of_each_tracker(tmp_path, monkeypatch):
    setup = experiment(stop={"rounds": 5}, log=["mlflow", "wandb"])
    tools = FakeMLflow(monkeypatch), FakeWandB(monkeypatch)
    grid = federation(setup, tmp_path)
    with pytest.raises(KilledError):
        deploy(grid, setup, tmp_path / "cut", told=killed_after(3))
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "cut")
    for tool in tools:
        found = tool.steps(tmp_path / "cut")
        assert found["train_loss"] == dict(
            enumerate(done.column("rounds", "train_loss").tolist(), 1)
        )
        assert found["time_s"] == dict(enumerate(done.column("rounds", "time_s").tolist(), 1))
    assert tools[0].store(tmp_path / "cut")["tags"]["motley.kind"] == "deployment"


def test_who_was_under_way_when_the_server_died_is_dropped(tmp_path):
    setup = experiment(
        cohort=4,
        synchrony={"name": "buffered", "refill": "idle", "buffer": 2},
        stop={"rounds": 6},
        weights="uniform",
    )
    delays = {k: 1.0 + 2 * k for k in range(6)}
    with pytest.raises(KilledError):
        deploy(federation(setup, tmp_path, delays), setup, tmp_path / "real", told=killed_after(3))
    done = deploy(federation(setup, tmp_path, delays), setup, tmp_path / "real")
    clients = columns(done, "clients")
    dropped = clients["outcome"] == "dropped"
    assert done.column("rounds", "round").tolist() == [1, 2, 3, 4, 5, 6]
    assert dropped.any()
    assert set(clients["round"][dropped]) == {done.column("rounds", "round")[3]}
    assert len(set(clients["dispatch"])) == len(clients["dispatch"])


def test_who_stays_away_after_a_kill_is_waited_for_once(tmp_path):
    setup = experiment(population=3, cohort=3, stop={"rounds": 4})
    with pytest.raises(KilledError):
        deploy(federation(setup, tmp_path), setup, tmp_path / "real", told=killed_after(2))
    grid = federation(setup, tmp_path)
    del grid.nodes[102]
    rounds = columns(deploy(grid, setup, tmp_path / "real"), "rounds")
    assert rounds["accepted"].tolist() == [3, 3, 2, 2]
    assert 28 < rounds["time_s"][2] - rounds["time_s"][1] < 40
    assert rounds["time_s"][3] - rounds["time_s"][2] < 5


def test_a_finished_deployment_is_only_loaded(tmp_path):
    setup = experiment()
    first = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    grid = federation(setup, tmp_path)
    again = deploy(grid, setup, tmp_path / "real")
    assert not grid.sent
    assert again.tables["rounds"].equals(first.tables["rounds"])


def test_a_folder_is_a_runs_folder_and_no_simulations(tmp_path):
    """Reports read it; a simulation of the same experiment does not mistake it for its own, nor the
    other way round."""
    setup = experiment()
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    page = motley.report([done], tmp_path / "report.html")
    assert "deployed" in page.read_text()
    with pytest.raises(motley.StoreError, match="holds another run"):
        motley.run(setup, out=tmp_path / "real", resume=True)
    motley.run(setup, out=tmp_path / "simulated")
    with pytest.raises(motley.StoreError, match="holds another run"):
        deploy(federation(setup, tmp_path), setup, tmp_path / "simulated")


def test_a_site_that_lost_its_disk_begins_anew(tmp_path, caplog):
    setup = experiment(population=3, cohort=3, algorithm={"name": "scaffold"}, stop={"rounds": 3})

    def told(done):
        if done.round == 2:
            for path in (tmp_path / "sites").rglob("client-1.safetensors"):
                path.unlink()

    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real", told=told)
    assert (done.column("rounds", "accepted") == 3).all()
    assert "client 1 has lost what it kept" in caplog.text
    assert "client 0 has lost" not in caplog.text
