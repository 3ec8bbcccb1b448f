"""IFCA in whole runs: what is billed and noted, whom it puts together, what is stored, kills and
resumes, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.cli import _lines
from motley.core.errors import ConfigError
from motley.experiments import registry
from motley.experiments.build import build
from motley.rounds.loop import RoundLoop
from motley_report.report import report
from tests.motley.experiments.test_personalised_runs import (
    BASE,
    HEAD,
    KEYS,
    killed_and_resumed,
    scopes,
)
from tests.rows import Rows

IFCA: dict[str, Any] = {**KEYS, "algorithm": {"name": "ifca", "k": 3}}
SWAPPED: dict[str, Any] = {
    "task": {"name": "tabular", "data": "breast_cancer"},
    "population": 8,
    "cohort": 6,
    "partition": "iid",
    "concept_shift": {"name": "swap", "clusters": 2, "share": 1.0},
    "split": {"test": "client"},
    "stop": {"rounds": 3},
    "local": {"batch_size": 16, "optimizer": {"lr": 0.1}},
    "engine": {"name": "sequential", "threads": 1},
    "algorithm": "ifca",
    "evaluate": {"every": 1},
}
"""Two kinds of tumours, whose names half of the clients swap."""


def run_to_end(loop: RoundLoop) -> RoundLoop:
    while not loop.done:
        loop.step()
    return loop


def choices(loop: RoundLoop) -> np.ndarray:
    """The model that each client would take now."""
    ids = np.arange(len(loop.federation))
    states = loop.engine.choose(ids, loop.algorithm.local.download(loop.state.server), {})
    return np.array([int(state["choice"]) for state in states.values()])


@pytest.mark.parametrize("more", [{}, {"average": "gradients"}, {"shared_base": True}], ids=str)
def test_clients_with_the_same_labels_come_together(more: dict[str, Any]) -> None:
    """One model is right for half of the clients and wrong for the others; two are right for
    all."""
    rows = Rows()
    loop = run_to_end(build({**SWAPPED, "algorithm": {"name": "ifca", **more}}, writer=rows))
    group = loop.federation.cluster
    found = choices(loop)
    assert {tuple(pair) for pair in zip(group, found, strict=True)} in (
        {(0, 0), (1, 1)},
        {(0, 1), (1, 0)},
    )
    assert (
        loop.state.scores.headline
        > run_to_end(build({**SWAPPED, "algorithm": "fedavg"})).state.scores.headline + 0.15
    )
    for row, note in zip(rows.tables["clients"], rows.notes, strict=True):
        taken = np.bincount(found[row["client"]], minlength=2)
        assert [note["cluster.0"], note["cluster.1"]] == taken.tolist()


@pytest.mark.parametrize(
    ("more", "down"),
    [({}, 3 * (BASE + HEAD)), ({"shared_base": True}, BASE + 3 * HEAD)],
    ids=["whole models", "heads"],
)
def test_all_models_go_down_and_one_comes_up_with_its_number(
    more: dict[str, Any], down: int
) -> None:
    rows = Rows()
    plain = Rows()
    build({**IFCA, "algorithm": {**IFCA["algorithm"], **more}}, writer=rows).step()
    build({**KEYS, "algorithm": "fedavg"}, writer=plain).step()
    row = rows.tables["rounds"][0]
    other = plain.tables["rounds"][0]
    assert (row["down_bits"], row["up_paper_bits"]) == (2 * 32 * down, 2 * 32 * (BASE + HEAD))
    assert 2 * 64 < row["up_bits"] - other["up_bits"] < 2 * 512  # an int64 and its head


def test_the_clock_counts_a_pass_forward_for_every_model() -> None:
    """One step is one second and one pass over the samples; three passes forward take as long. A
    probe adds as many."""
    spent = {}
    for name in ("fedavg", "ifca"):
        rows = Rows()
        keys = {
            **IFCA,
            "device": {"name": "constant", "seconds": 1.0},
            "algorithm": IFCA["algorithm"] if name == "ifca" else name,
        }
        build(keys, writer=rows).step()
        spent[name] = np.asarray(rows.tables["clients"][0]["compute_s"])
        rows = Rows()
        loop = build({**keys, "selector": {"name": "power_of_choice", "d": 6}}, writer=rows)
        loop.step()
        spent[name, "probe"] = np.asarray(rows.tables["clients"][0]["start_s"])
        longest = loop.setting.work.batches(loop.federation.seen).max()
    np.testing.assert_allclose(spent["ifca"], 2 * spent["fedavg"], rtol=1e-12)
    np.testing.assert_allclose(spent["fedavg", "probe"], longest / 3, rtol=1e-12)
    np.testing.assert_allclose(spent["ifca", "probe"], longest / 3 + longest, rtol=1e-12)


@pytest.mark.parametrize("test", ["client", "global"])
def test_there_is_no_common_model_to_examine(test: str) -> None:
    rows = Rows()
    run_to_end(build({**IFCA, "split": {"test": test}}, writer=rows))
    assert scopes(rows) == {"mean", "client"}


def test_a_run_stores_the_model_that_each_client_takes(tmp_path: Path, drawn: None) -> None:
    """Also of clients that never took part; the accuracies are those of the last evaluation."""
    keys = {**SWAPPED, "cohort": 2, "stop": {"rounds": 2}}
    done = motley.run(keys, out=tmp_path / "run")
    loop = run_to_end(build(keys))
    last = (done.column("evaluations", "scope") == "client") & (
        done.column("evaluations", "round") == 2
    )
    told = dict(
        zip(
            done.column("evaluations", "client")[last],
            done.column("evaluations", "accuracy")[last],
            strict=True,
        )
    )
    weights = {}
    data = loop.federation
    for k, model in enumerate(motley.load(tmp_path / "run").clients()):
        at = torch.from_numpy(data.test[k])
        right = model.module()(data.x[at]).argmax(1) == data.y[at]
        assert right.double().mean().item() == pytest.approx(told[k])
        weights[k] = torch.cat([value.flatten() for value in model.module().state_dict().values()])
    found = choices(loop)
    for k, own in weights.items():
        assert [torch.equal(own, other) for other in weights.values()] == (
            found == found[k]
        ).tolist()
    page = report([motley.load(tmp_path / "run")], tmp_path / "report.html")
    assert (
        "clients in each cluster"
        in Path(str(page[0] if isinstance(page, list | tuple) else page)).read_text()
    )


@pytest.mark.parametrize(
    "more",
    [{}, {"compressor": "topk", "budget": {"name": "constant", "average": 0.2}}],
    ids=["plain", "topk"],
)
def test_a_killed_run_goes_on_to_the_same_bits(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {**IFCA, **more}
    whole = motley.run(keys, out=tmp_path / "whole")
    killed_and_resumed(keys, whole, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "engine", ["batched", "vmap", "threads", pytest.param("processes", marks=pytest.mark.slow)]
)
def test_engines_agree(engine: str) -> None:
    loops = [
        build({**IFCA, "dtype": "float64", "engine": {"name": name, "threads": 2}})
        for name in ("sequential", engine)
    ]
    one, two = (run_to_end(loop).state.server for loop in loops)
    for loop in loops:
        loop.engine.close()
    for name, value in {"x": one.model.x, **one.extra}.items():
        torch.testing.assert_close(
            {"x": two.model.x, **two.extra}[name], value, rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("test", ["client", "global"])
def test_one_cluster_is_fedavg_bit_for_bit_and_examined_as_it_is(test: str) -> None:
    found = []
    for name in ({"name": "ifca", "k": 1}, "fedavg"):
        rows = Rows()
        keys = {**KEYS, "algorithm": name, "weights": "uniform", "split": {"test": test}}
        loop = run_to_end(build(keys, writer=rows))
        found.append((loop.state.server.model.x, scopes(rows), loop.state.scores.newest))
    (one, scopes_one, newest_one), (two, scopes_two, newest_two) = found
    assert torch.equal(one, two)
    assert (scopes_one, newest_one) == (scopes_two, newest_two)


@pytest.mark.parametrize(
    "keys",
    [
        {"synchrony": {"name": "buffered", "buffer": 2}, "device": "log_normal"},
        {"synchrony": {"name": "deadline", "seconds": 100.0}},
        {"selector": "fedcor"},
        {"selector": "divfl"},
        {"selector": {"name": "power_of_choice", "d": 4}},
        {"selector": "oort"},
        {"selector": "delta"},
        {"selector": "flash", "split": {"test": "client", "validation": 0.2}},
        {"compressor": "qsgd"},
        {"drift": {"name": "window", "share": 0.5, "period": 3}},
        {"algorithm": {"name": "fine_tuned", "epochs": 1, "method": {"name": "ifca"}}},
    ],
    ids=str,
)
def test_what_goes_with_it(keys: dict[str, Any]) -> None:
    rows = Rows()
    loop = run_to_end(build({**IFCA, **keys}, writer=rows))
    assert np.isfinite(loop.state.scores.headline)
    sizes = [
        sum(value for name, value in note.items() if name.startswith("cluster."))
        for note in rows.notes
    ]
    stepped = [row["accepted"] for row in rows.tables["rounds"]]
    assert [a for a, b in zip(sizes, stepped, strict=True) if a] == [
        b for a, b in zip(sizes, stepped, strict=True) if a
    ]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"synchrony": "asynchronous"},
            "synchrony: asynchronous mixing is defined for models, but this algorithm also uploads "
            "cluster",
        ),
        (
            {
                "compressor": "topk",
                "budget": {"name": "constant", "average": 0.2},
                "feedback": "fixed",
            },
            "feedback: BestOfModels: a client's error memory belongs to one model, and here a "
            "client may take another one",
        ),
        (
            {"aggregator": "krum", "weights": "uniform"},
            "algorithm: IFCA's server keeps 3 models and averages each over its own",
        ),
        ({"server": "adam"}, "leave aggregator and server out"),
        (
            {"weights": "horvitz_thompson"},
            "IFCA divides by the weights of a cluster's clients, and 'horvitz_thompson' by "
            "something",
        ),
        (
            {
                "recalibrate": {},
                "task": {**KEYS["task"], "model": {"name": "mlp", "hidden": [16], "norm": "batch"}},
            },
            "recalibrate: 'ifca' has several models, and statistics are estimated of one; leave "
            "the key out",
        ),
        ({"evaluate": {"diagnostics": True}}, "evaluate.diagnostics"),
        (
            {"algorithm": {"name": "ifca", "k": 0}},
            "algorithm: got k = 0; expected a whole number of at least 1",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(list(value)),
)
def test_what_does_not_go_with_it_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        build({**IFCA, **keys})
    assert said in str(error.value)


def test_weights_from_a_file_would_make_all_models_alike(tmp_path: Path) -> None:
    first = motley.run(
        {**KEYS, "algorithm": "fedavg", "stop": {"rounds": 1}}, out=tmp_path / "first"
    )
    with pytest.raises(
        ConfigError, match="would begin alike, and equal models never separate; leave init out"
    ):
        build({**IFCA, "init": {"path": str(first.directory)}})


def test_the_list_says_what_an_upload_reveals() -> None:
    (row,) = [row for row in registry.listing("algorithm") if row["name"] == "ifca"]
    assert _lines(row)[0].endswith("[reveals which cluster a client is in]")
