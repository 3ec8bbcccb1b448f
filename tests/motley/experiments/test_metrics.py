"""Metrics through the whole of a run: headline, tables, targets, kill and resume, what is
refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.run import run, with_own
from motley.results import measures
from motley.results.method_rows import method_rows, metric_rows, target_of
from motley.tasks import from_arrays, own_task
from motley.tasks.metrics import Metric
from motley.tasks.task import Task
from motley_report.report import report

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
CLIENT = np.arange(60) % 3
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
KEYS: dict[str, Any] = {"task": "own", "cohort": 2, "stop": {"rounds": 3}, "evaluate": {"every": 1}}


def mean_output(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.abs().mean()


def task(test: Any = "client", **given: Any) -> Task:
    return own_task(
        from_arrays(X, Y, CLIENT, test=test, test_fraction=0.4), lambda: nn.Linear(3, 3), **given
    )


def test_the_headline_is_the_first_metric(tmp_path: Path) -> None:
    done = run({**KEYS, "metrics": ["macro_f1", "auroc"]}, task=task(), out=tmp_path / "run")
    assert measures.metric_of(done) == ("macro_f1", True)
    curve = measures.curve(done)
    rows = done.tables["metrics"].to_pylist()
    mean = [row["value"] for row in rows if row["scope"] == "mean" and row["metric"] == "macro_f1"]
    assert curve.y.tolist() == mean
    each = [
        row["value"]
        for row in rows
        if (row["scope"], row["metric"], row["round"]) == ("client", "macro_f1", 3)
    ]
    assert measures.client_metric(done).tolist() == each
    assert np.mean(each) == pytest.approx(mean[-1])
    (headline, auroc) = metric_rows([done])
    assert headline.numbers[0].mean == pytest.approx(100 * mean[-1])
    assert headline.undefined == 0
    assert auroc.metric == "auroc"
    assert method_rows({"one": [done]})[0].end("final").mean == pytest.approx(100 * mean[-1])
    assert "macro_f1 (%)" in report([done], tmp_path / "r.html").read_text()


def test_metrics_beside_accuracy_are_shown_with_it(tmp_path: Path) -> None:
    """Accuracy has its column in ``evaluations`` and is not pooled; AUROC is."""
    done = run({**KEYS, "metrics": ["accuracy", "auroc"]}, task=task(), out=tmp_path / "run")
    (accuracy, auroc) = metric_rows([done])
    assert accuracy.numbers[0].mean == pytest.approx(100 * measures.ends_of(done).final)
    assert np.isnan(accuracy.numbers[2].mean)
    assert auroc.numbers[2].mean == pytest.approx(
        measures.percent_of(done, "auroc") * measures.pooled(done, "auroc").value
    )


def test_the_global_figure_is_that_of_scikit_learn_on_pooled_samples() -> None:
    from sklearn.metrics import f1_score

    loop = build(
        {**KEYS, "metrics": "macro_f1", "dtype": "float64", "split": {"test": "global"}},
        task=task("global"),
    )
    while not loop.done:
        loop.step()
    rows = loop.federation.global_test
    assert rows is not None
    x = loop.state.server.model.x
    said = (loop.federation.x[rows].double() @ x[:9].view(3, 3).T + x[9:]).argmax(1)
    assert loop.state.scores.headline == pytest.approx(
        f1_score(loop.federation.y[rows], said, average="macro")
    )


def test_metrics_change_nothing_else(tmp_path: Path) -> None:
    plain = run(KEYS, task=task(), out=tmp_path / "1")
    more = run(
        {**KEYS, "metrics": ["top2", "accuracy"]},
        task=task(metric=["accuracy", mean_output]),
        out=tmp_path / "2",
    )
    for table in ("rounds", "clients", "evaluations", "federation"):
        assert plain.tables[table].equals(more.tables[table])
    assert plain.tables["metrics"].num_rows == 0
    assert measures.metrics_of(plain) == ["accuracy"]


def test_metrics_are_part_of_the_run_id() -> None:
    ids = {with_own(KEYS, task(metric=metric)).run_id() for metric in (None, "auroc", mean_output)}
    assert len(ids | {with_own({**KEYS, "metrics": "auroc"}, task()).run_id()}) == 4


@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ({"auroc": 0.01}, 1),
        ({"perplexity": 0.5}, 3),
        ({"mean_output": 100.0}, 1),
        ({"accuracy": 1.0}, 3),
    ],
)
def test_a_target_of_any_metric_ends_the_run(target: dict[str, float], rounds: int) -> None:
    mine = Metric("mean_output", mean_output, higher_is_better=False)
    loop = build(
        {**KEYS, "stop": {"rounds": 3, "target": target}},
        task=task(metric=["accuracy", "auroc", "perplexity", mine]),
    )
    while not loop.done:
        loop.step()
    assert loop.state.version == rounds


def test_a_killed_run_goes_on_with_its_scores(tmp_path: Path) -> None:
    keys = {
        **KEYS,
        "metrics": ["macro_f1", "auroc"],
        "checkpoint": {"every_rounds": 1},
        "stop": {"rounds": 4, "target": {"auroc": 1.0}},
    }

    def stop_at_two(done: Any) -> None:
        if done.round == 2:
            raise KeyboardInterrupt

    whole = run(keys, task=task(), out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(keys, task=task(), out=tmp_path / "cut", on_round=stop_at_two)
    resumed = run(keys, task=task(), out=tmp_path / "cut", resume=True)
    assert resumed.tables["metrics"].equals(whole.tables["metrics"])


def test_targets_of_reports(tmp_path: Path) -> None:
    done = run(
        {**KEYS, "metrics": ["perplexity"], "stop": {"rounds": 1, "target": {"perplexity": 1.1}}},
        task=task(),
        out=tmp_path,
    )
    assert target_of(done) == 1.1
    assert target_of(done, 7.0) == 7.0
    assert measures.to_target(measures.curve(done), 100.0, measures.metric_of(done)[1]).reached


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"metrics": ["macro_f2"]}, r"metrics: got 'macro_f2' \(did you mean 'macro_f1'\?\)"),
        (
            {"metrics": ["r2"]},
            "metrics: got 'r2', which is of numbers, and the targets of this task are classes",
        ),
        ({"metric": "auroc"}, r"metric: .*did you mean 'metrics'"),
        ({"stop": {"rounds": 1, "target": {"f1": 0.5}}}, "stop.target.f1: got 'f1'"),
        (
            {"stop": {"rounds": 1, "target": {"auroc": 1.5}}},
            "stop.target.auroc: got 1.5; expected at most 1",
        ),
        (
            {"stop": {"rounds": 1, "target": {}}},
            r"stop.target: say what is good enough, e.g. target = \{ accuracy = 0.9 \}",
        ),
        (
            {"stop": {"patience": 3}},
            r"^stop.patience: the run would end by clients' validation samples, and none are held "
            r"out here; write from_clients\(..., validation=0.1\), or stop = ",
        ),
    ],
)
def test_what_is_no_metric_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, **keys}, task=task())


def test_the_best_round_by_validation_is_that_of_the_headline_metric(tmp_path: Path) -> None:
    data = from_arrays(X, Y, CLIENT, validation=0.3)
    held = own_task(data, lambda: nn.Linear(3, 3), metric=["perplexity", "auroc"])
    done = run(
        {**KEYS, "stop": {"rounds": 4}, "local": {"optimizer": {"lr": 2.0}}},
        task=held,
        out=tmp_path,
    )
    rows = [
        row
        for row in done.tables["metrics"].to_pylist()
        if row["metric"] == "perplexity" and row["round"]
    ]
    by_scope = {
        scope: {row["round"]: row["value"] for row in rows if row["scope"] == scope}
        for scope in ("validation_mean", "mean")
    }
    best = min(by_scope["validation_mean"], key=by_scope["validation_mean"].__getitem__)
    assert measures.by_validation(done) == by_scope["mean"][best]
    assert {row["scope"] for row in rows} >= {"validation", "validation_client", "pooled", "client"}
