"""The examples run, and the files beside the code say the same version."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

import motley
from motley.core.components import imports
from motley.experiments.config import load
from motley.experiments.sweep import expand

ROOT = Path(__file__).resolve().parents[3]


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name
)
def test_experiments_are_experiments(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))  # where a model of one's own lies
    with imports(allowed=True):
        assert expand(load(path, allow_import=True))


def test_the_notebook_runs_cell_by_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell is executed as a notebook does, and its value shown; pandas, which Motley does not
    need, is a stand-in."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    names: dict[str, Any] = {}
    values = []
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        source = "".join(cell["source"])
        if source == "found.table()":
            monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: rows))
        tree = ast.parse(source)
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - the very point
        values.append(eval(compile(last, "cell", "eval"), names))
    experiment, found, table, picture, run, curve = values
    assert all("<table>" in one._repr_html_() for one in (experiment, found, run))
    assert [(row["label"], row["seed"]) for row in table] == [
        ("uniform", 0),
        ("uniform", 1),
        ("oort", 0),
        ("oort", 1),
    ]
    assert [line.get_label() for line in picture.axes[0].lines] == ["uniform", "oort"]
    assert curve.axes[0].get_xlabel() == "traffic (MB)"


def test_a_selector_alone_serves_the_worst_better_than_chance() -> None:
    example = _example("selector_alone")
    largest = {
        name: example.loss(example.main(name), np.arange(20)).max()
        for name in ("uniform", "power_of_choice")
    }
    assert largest["power_of_choice"] < largest["uniform"]


def test_own_data_and_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    accuracy = _example("own_data").main(rounds=8)
    assert set(accuracy) == {"uniform", "power_of_choice"}
    assert min(accuracy.values()) > 0.5


def test_a_table_with_gaps_and_words_from_its_file_to_predictions(tmp_path: Path) -> None:
    table = _example("tables/make_patients").main(tmp_path, count=800)
    keys = [f"task.data={table}", "stop.rounds=10"]
    done = motley.run(
        ROOT / "examples" / "tables" / "patients.toml", out=tmp_path / "run", overrides=keys
    )
    mean = done.column("evaluations", "scope") == "mean"
    assert done.column("evaluations", "accuracy")[mean][-1] > 0.7
    assert set(done.column("metrics", "metric")) >= {"macro_f1", "auroc"}
    found = _example("tables/predict").main(str(done.directory), tmp_path / "new_patients.csv")
    assert len(found) == 10
    assert all((outcome == "ill") == (share > 0.5) for outcome, share in found)


def test_an_adapter_on_a_frozen_backbone_extended(tmp_path: Path) -> None:
    """Layers of 64 x 128 and 128 x 128 with biases are frozen; 4 (64 + 128) + 4 (128 + 128) + 128 x
    10 + 10 = 3,082 weights train."""
    found = _example("adapter").main(tmp_path, rounds=2, longer=4)
    assert found["weights trained"] == 3082
    assert found["weights"] == 3082 + 65 * 128 + 129 * 128
    assert found["bits per upload and weight trained"] == 32
    frozen = load_file(tmp_path / "backbone.safetensors")
    final = load_file(tmp_path / "run" / "model.safetensors")
    assert all(final[name].equal(value) for name, value in frozen.items())


def test_the_citation_file_is_valid_and_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == motley.__version__
    assert all(
        {"name"} <= set(author) or {"family-names", "given-names"} <= set(author)
        for author in citation["authors"]
    )


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    found = re.search(
        r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE
    )
    assert found is not None
    assert found[1] == motley.__version__
