"""Stages: called where they override a place, with a memory of their own; the average of the
server's model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motley
from motley.core.errors import ConfigError, ContractError
from motley.experiments.build import build
from motley.rounds.stage import Stage, StageOptions, Stages

KEYS: dict[str, Any] = {
    "task": {"name": "quadratic", "minima": [1.0]},
    "population": 1,
    "cohort": 1,
    "stop": {"rounds": 4},
    "local": {"steps": 1, "optimizer": {"lr": 0.5}},
    "stage": {"name": "server_average", "decay": 0.5},
}


class Counting(Stage):
    """Counts the steps of the server."""

    name = "counting"
    steps = 0

    def save(self, state: Any) -> dict[str, int]:
        """Return the count."""
        return {"steps": self.steps}

    def restore(self, state: Any, saved: Any) -> None:
        """Take the count over."""
        self.steps = saved["steps"]

    def after(self, state: Any, step: Any) -> None:
        """Count a step."""
        self.steps += 1


def test_a_stage_is_called_only_where_it_overrides_a_place() -> None:
    counting = Counting()
    stages = Stages([Stage(), counting])
    assert stages.after == (counting,)
    assert stages.upload == stages.reports == stages.rows == ()


def test_two_stages_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two stages are named 'counting'; name each once"):
        Stages([Counting(), Counting()])


class Forgetful(Stage):
    """Saves what it does not restore."""

    def save(self, state: Any) -> dict[str, int]:
        """Return a count."""
        return {"steps": 1}


class Silent(Counting):
    """Saves nothing that could be restored."""

    name = "silent"

    def save(self, state: Any) -> Any:
        """Return nothing."""


def test_a_stage_that_would_forget_is_refused() -> None:
    with pytest.raises(ConfigError, match="the stage 'Forgetful' has one of save and restore"):
        Stages([Forgetful()])
    with pytest.raises(ContractError, match="save of the stage 'silent' returned NoneType"):
        Stages([Silent()]).save(None)  # type: ignore[arg-type]


def test_what_a_stage_remembers_is_in_the_checkpoint_under_its_name() -> None:
    first = Stages([Counting()])
    first.all[0].after(None, None)  # type: ignore[arg-type]
    saved = first.save(None)  # type: ignore[arg-type]
    assert saved == {"counting": {"steps": 1}}
    again = Stages([Counting()])
    again.restore(None, saved)  # type: ignore[arg-type]
    assert again.save(None) == saved  # type: ignore[arg-type]
    # one that joins a run later begins anew
    again.restore(None, {})  # type: ignore[arg-type]
    assert again.save(None) == saved  # type: ignore[arg-type]


def test_the_average_of_four_steps_by_hand(tmp_path: Path) -> None:
    """f(w) = (w - 1)^2 / 2 and one local step of rate 1/2: the model has 1/2, 1/4, 1/8, 1/16 of the
    distance to go; with decay 1/2 the average has 3/4, 1/2, 5/16, 3/16 of it."""
    run = motley.run(
        {**KEYS, "evaluate": {"every": 1}, "dtype": "float64"}, out=tmp_path, progress=False
    )
    scope = np.array(run.column("evaluations", "scope"))
    loss = np.array(run.column("evaluations", "loss"))
    averaged = loss[scope == "server_average_mean"]
    assert averaged / averaged[0] == pytest.approx(np.array([1, 3 / 4, 1 / 2, 5 / 16, 3 / 16]) ** 2)
    plain = loss[scope == "mean"]
    assert plain / plain[0] == pytest.approx(0.25 ** np.arange(5))
    assert plain[0] == averaged[0] > 0


def test_the_average_changes_nothing_else_and_goes_on_after_a_kill() -> None:
    plain = build({key: value for key, value in KEYS.items() if key != "stage"})
    loop = build(KEYS)
    again = build(KEYS)
    loop.step()
    plain.step()
    again.restore(loop.save())
    for run in (plain, loop, again):
        while not run.done:
            run.step()
    assert plain.state.server.model.x.item() == loop.state.server.model.x.item()
    one, two = (run.stages.all[-1].models(run.state)["server_average"].x for run in (loop, again))
    assert one.item() == two.item()


class Discreet(Stage):
    """Doubles the durations of uploads, and leaves losses out of the tables."""

    def landed(self, state: Any, reports: Any) -> Any:
        """Double the seconds of uploads."""
        return dataclasses.replace(reports, upload_s=2 * reports.upload_s)

    def written(self, table: str, columns: Any) -> Any:
        """Leave the losses out."""
        return {name: value for name, value in columns.items() if name != LEFT_OUT.get(table)}


LEFT_OUT = {"rounds": "train_loss", "clients": "loss"}


@dataclass(frozen=True)
class DiscreetOptions(StageOptions):
    """Makes the stage."""

    def make(self) -> Discreet:
        """Return it."""
        return Discreet()


def test_tables_hold_what_the_stages_let_be_written(tmp_path: Path) -> None:
    keys = {**KEYS, "network": {"name": "uniform", "up_mbps": [8.0, 8.0]}}
    told = []
    plain, discreet = (
        motley.run(
            {**keys, "stage": stage},
            out=tmp_path / name,
            progress=False,
            on_round=lambda summary: told.append(summary.train_loss),
        )
        for name, stage in (("plain", None), ("discreet", DiscreetOptions()))
    )
    assert np.isfinite(told[:4]).all()
    assert np.isnan(told[4:]).all()
    for table, column in LEFT_OUT.items():
        assert discreet.tables[table][column].null_count == 4
        assert plain.tables[table][column].null_count == 0
    seconds = [np.array(run.column("clients", "upload_s")) for run in (plain, discreet)]
    assert seconds[0].min() > 0
    assert (seconds[1] == 2 * seconds[0]).all()
    for run in (plain, discreet):
        assert list(run.column("rounds", "accepted")) == [1, 1, 1, 1]


def test_a_stage_counts_for_the_run_id() -> None:
    ids = {
        motley.Experiment(**{**KEYS, "stage": stage}).run_id()
        for stage in (None, "server_average", {"name": "server_average", "decay": 0.5})
    }
    assert len(ids) == 3


def test_bad_options_and_private_runs_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"stage.*got decay = 1.0; expected at least 0"):
        motley.Experiment(**{**KEYS, "stage": {"name": "server_average", "decay": 1.0}})
    private = {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "max_rounds": 4}
    with pytest.raises(ConfigError, match=r"stage: a stage may look at every upload.*leave it out"):
        build({**KEYS, "population": 1, "privacy": private})
