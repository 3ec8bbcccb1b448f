"""The task ``text``: windows and targets by hand, clients left out, folders, and runs to the
end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import motley
from motley.core.errors import ConfigError, DataError, ModelError
from motley.core.keys import Key
from motley.experiments.build import build
from motley.tasks.models import Model
from motley.tasks.task import IGNORED
from motley_data.text import NextCharacter

SAID = {"ann": "abcabcabca", "bob": "aabbaabbaabbaab", "cy": "ab"}
"""Ten characters (train 8, test 2), fifteen (12, 3), and two (1, 1)."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in SAID.items():
        (tmp_path / "texts" / f"{name}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    return tmp_path / "texts"


def load(folder: Path, **options: Any) -> Any:
    return NextCharacter(data=str(folder), **options).load(Key(0), 0)


def test_windows_and_targets_by_hand(folder: Path) -> None:
    """Windows of 3. Ann's training text abcabcab: abc -> bca and abc -> bca from 3; from 6 no whole
    window is left. Her test text ca is shorter than a window: c -> a and two empty places. Bob's
    aabbaabbaabb: aab -> abb, baa -> aab, bba -> baa; test aab: one window of two characters. Cy has
    one character in each half, none to predict."""
    data = load(folder, window=3)
    a, b, c = range(3)
    no = IGNORED
    assert data.x.tolist() == [
        [a, b, c],
        [a, b, c],
        [c, a, a],
        [a, a, b],
        [b, a, a],
        [b, b, a],
        [a, a, b],
    ]
    assert data.y.tolist() == [
        [b, c, a],
        [b, c, a],
        [a, no, no],
        [a, b, b],
        [a, a, b],
        [b, a, a],
        [a, b, no],
    ]
    assert data.test.tolist() == [False, False, True, False, False, False, True]
    assert data.groups.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert data.names == ("a", "b", "c", "unknown")
    assert data.classes == 4
    assert (
        data.notes["clients"]
        == "2; 1 left out, with fewer than 1 training windows or no test window"
    )
    assert (
        data.notes["alphabet"]
        == "4 characters, the last of them for characters that no client trains on"
    )
    assert data.x.dtype == data.y.dtype == torch.int64


def test_strides_and_the_last_character_alone(folder: Path) -> None:
    """Windows of 2 of ann's abcabcab from 0, 2, 4 (six would leave no character after it), and no
    test window of her ca."""
    every = load(folder, window=2, stride=1)
    assert every.x[every.groups == 0].tolist() == [
        [0, 1],
        [1, 2],
        [2, 0],
        [0, 1],
        [1, 2],
        [2, 0],
        [2, 0],
    ]
    # test windows follow each other
    assert every.test[every.groups == 0].tolist() == [False] * 6 + [True]
    last = load(folder, window=2, stride=2, targets="last")
    assert set(last.groups.tolist()) == {1}
    # aa|b bb|a aa|b bb|a aa|b, and the test text
    assert last.x.tolist() == [[0, 0], [1, 1], [0, 0], [1, 1], [0, 0], [0, 0]]
    assert last.y.tolist() == [1, 0, 1, 0, 1, 1]


def test_clients_with_few_windows_are_left_out(folder: Path) -> None:
    assert set(load(folder, window=3, min_examples=3).groups.tolist()) == {1}
    with pytest.raises(
        DataError, match=r"no client of .* has 4 training windows of 3 characters and a test window"
    ):
        load(folder, window=3, min_examples=4)
    with pytest.raises(ConfigError, match="stride: got 0; expected at least 1"):
        NextCharacter(stride=0)


def test_sub_folders_and_halves_of_their_own(tmp_path: Path) -> None:
    """A sub-folder is a client whose files follow each other; characters that nobody trains on are
    one class."""
    for half, text in {"train": "abab", "test": "bzb"}.items():
        (tmp_path / half / "one").mkdir(parents=True)
        (tmp_path / half / "one" / "a.txt").write_text(text[:2])
        (tmp_path / half / "one" / "b.txt").write_text(text[2:])
    data = load(tmp_path, window=2)
    assert data.x.tolist() == [[0, 1], [1, 2]]
    assert data.y.tolist() == [[1, 0], [2, 1]]
    assert data.notes["data"].endswith("1 clients, with halves of their own")


def test_what_is_no_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"task.data: got 'shakespear' \(did you mean 'shakespeare'\?\)"
    ):
        load(Path("shakespear"))
    with pytest.raises(DataError, match=r"holds no .txt files and no LEAF JSON"):
        load(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="has a text that cannot be read"):
        load(tmp_path)


def test_texts_of_one_character_are_too_short(tmp_path: Path) -> None:
    for client in "ab":
        (tmp_path / f"{client}.txt").write_text("a")
    with pytest.raises(DataError, match="are too short: no client has a character to train on"):
        NextCharacter(str(tmp_path)).load(Key(0), 0)


TINY = {
    "leaf_lstm": {"hidden": 5, "embedding": 3},
    "transformer": {"width": 8, "heads": 2, "layers": 1},
}


def keys(folder: Path, model: str, dropout: float = 0.0, **more: Any) -> dict[str, Any]:
    task = {
        "name": "text",
        "data": str(folder),
        "window": 3,
        "model": {"name": model, "dropout": dropout, **TINY[model]},
    }
    local = {"epochs": 1, "batch_size": 2, "optimizer": {"name": "adamw", "lr": 0.01}}
    return {
        "task": {**task, **more.pop("task", {})},
        "cohort": 2,
        "stop": {"rounds": 3},
        "local": local,
        "dtype": "float64",
        **more,
    }


@pytest.mark.parametrize("targets", ["every", "last"])
@pytest.mark.parametrize("model", TINY)
def test_engines_agree(folder: Path, model: str, targets: str) -> None:
    """Natural clients without a partition named; dropout is the same on every engine."""
    found = {}
    for engine in ("sequential", "threads", "vmap"):
        if (model, engine) == ("leaf_lstm", "vmap"):
            continue
        dropout = 0.0 if model == "transformer" else 0.5
        task = {"targets": targets, "window": 2, "stride": 1}
        loop = build(
            keys(
                folder,
                model,
                dropout,
                task=task,
                engine=engine,
                cohort=1,
                local={"epochs": 2, "batch_size": 2},
            )
        )
        assert len(loop.setting.task.federation) == (2 if targets == "every" else 1)
        while not loop.done:
            loop.step()
        found[engine] = loop.state.server.model.x, loop.state.scores.headline
    for x, score in found.values():
        torch.testing.assert_close(x, found["sequential"][0], rtol=1e-9, atol=1e-12)
        assert score == pytest.approx(found["sequential"][1], rel=1e-9)
        assert np.isfinite(score)


@pytest.mark.parametrize("model", TINY)
def test_resumed_runs_with_dropout_have_the_same_bits(
    folder: Path, model: str, tmp_path: Path
) -> None:
    """Interrupted after round 2 of 4, and gone on with."""
    experiment = motley.Experiment(
        **keys(folder, model, 0.5, stop={"rounds": 4}, checkpoint={"every_rounds": 1})
    )
    whole = motley.run(experiment, out=tmp_path / "whole")

    def stop(summary: Any) -> None:
        if summary.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        motley.run(experiment, out=tmp_path / "cut", on_round=stop)
    again = motley.run(experiment, out=tmp_path / "cut", resume=True)
    for name in ("loss", "accuracy"):
        assert (
            again.column("evaluations", name).tolist() == whole.column("evaluations", name).tolist()
        )
    assert (again.directory / "model.safetensors").read_bytes() == (
        whole.directory / "model.safetensors"
    ).read_bytes()


def test_perplexity_is_measured_beside_accuracy(folder: Path, tmp_path: Path) -> None:
    split = {"test": "global"}
    run = motley.run(
        keys(folder, "leaf_lstm", split=split, stop={"rounds": 1}, evaluate={"every": 1}),
        out=tmp_path / "run",
    )
    rows = [row for row in run.tables["metrics"].to_pylist() if row["scope"] == "global"]
    assert [row["metric"] for row in rows] == ["perplexity"] * 2
    assert all(1.0 < row["value"] < 20.0 for row in rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"task": {"model": "mlp"}},
            r"task.model: got 'mlp', a model of numbers; this task has sequences of characters, "
            r"use one of: leaf_lstm, transf",
        ),
        (
            {"feature_shift": "noise"},
            "feature_shift: a feature shift changes numbers, and the samples of this task are char",
        ),
        (
            {"partition": {"name": "dirichlet", "alpha": 1.0}, "population": 2},
            "partition: 'dirichlet' divides samples by",
        ),
        (
            {"task": {"model": {"name": "transformer", "width": 6, "heads": 4}}},
            "width: got 6 with 4 heads; expected a mul",
        ),
        (
            {"task": {"model": {"name": "leaf_lstm", "hidden": 0}}},
            "hidden: got 0; expected at least 1",
        ),
        ({"task": {"dropout": 1.0, "model": "leaf_lstm"}}, "dropout: got 1.0; expected a share"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(keys(folder, "leaf_lstm", **change))


@dataclass(frozen=True)
class Counted(Model):
    """Scores of the next character by the last one alone, with dropout of torch's."""

    sequences: ClassVar[bool] = True
    kind: str = "layer"

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _Counts(self.kind, outputs)


class _Counts(nn.Module):
    def __init__(self, kind: str, outputs: int) -> None:
        super().__init__()
        self.kind = kind
        self.embed = nn.Embedding(outputs, outputs)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.embed(x)
        if self.kind == "last":
            return scores[:, -1]
        return (
            nn.functional.dropout(scores, 0.2, self.training)
            if self.kind == "function"
            else self.drop(scores)
        )


def test_a_model_of_ones_own(folder: Path) -> None:
    """As an object or by module:Class; its dropout is tied to the key, or refused where it cannot
    be."""
    tried = keys(folder, "leaf_lstm")
    found = []
    for model in (Counted(), f"{__name__}:Counted"):
        loop = build({**tried, "task": {**tried["task"], "model": model}}, allow_import=True)
        while not loop.done:
            loop.step()
        found.append(loop.state.server.model.x)
    assert torch.equal(*found)
    for kind, message in {
        "function": "draws from torch's process-wide generator",
        "last": r"the _Counts gives \[2, 4\] for a batch of 2; expected \[2, 3, 4\]",
    }.items():
        with pytest.raises(ModelError, match=message):
            build({**tried, "task": {**tried["task"], "model": Counted(kind)}})


def test_a_model_of_sequences_is_refused_for_pictures() -> None:
    with pytest.raises(
        ConfigError,
        match=r"task.model: got 'leaf_lstm', a model of sequences of characters; this task has "
        r"numbers",
    ):
        build(
            {
                "task": {"name": "image", "model": "leaf_lstm"},
                "population": 2,
                "cohort": 1,
                "stop": {"rounds": 1},
            }
        )
