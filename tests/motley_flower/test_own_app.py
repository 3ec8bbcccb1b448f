"""An app in the shape of Flower's public examples gets a selector by at most five lines, server and
client together."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tomllib
import types
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.motley_flower.app_texts import APPS, CHANGES, changed, changed_lines
from tests.motley_flower.conftest import HERE
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.places import ROOT

LIMIT_S = 900.0
RUFF = Path(sys.executable).with_name("ruff")
CONFIG = {"rounds": 3, "fraction-evaluate": 1.0, "rate": 0.05}


@pytest.mark.parametrize(("app", "rule"), CHANGES)
def test_at_most_five_lines_change(app, rule):
    before = APPS[app]
    after = changed(app, rule)
    lines = {file: changed_lines(before[file], after[file]) for file in before}
    assert lines == {"server": 2, "client": 2 if rule == "oort" else 0, "task": 0}


@pytest.mark.skipif(not RUFF.exists(), reason="ruff is not installed in this environment")
@pytest.mark.parametrize(("app", "rule"), [*((app, None) for app in APPS), *CHANGES])
def test_the_code_is_clean_and_formatted_by_ruff_s_own_defaults_before_and_after(
    app, rule, tmp_path
):
    (tmp_path / "loopback").mkdir()
    (tmp_path / "ruff.toml").touch()
    for file, text in (APPS[app] if rule is None else changed(app, rule)).items():
        (tmp_path / "loopback" / f"{file}.py").write_text(text)
    for command in (["check", "--select", "E,F,I"], ["format", "--check"]):
        done = subprocess.run(
            [RUFF, *command, "--no-cache", tmp_path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_the_app_of_the_loop_s_page_is_one_for_flower():
    """The page shows every file that its ``pyproject.toml`` names; Flower builds the app of them
    where it is installed."""
    page = (ROOT / "docs" / "deploy" / "loop.md").read_text()
    toml = re.search(r'```toml title="pyproject.toml"\n(.*?)```', page, re.DOTALL)[1]
    shown = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page, re.DOTALL)
    parts = tomllib.loads(toml)["tool"]["flwr"]["app"]["components"]
    for part in ("serverapp", "clientapp"):
        module, _, name = parts[part].partition(":")
        assert f"\n{name} = " in dict(shown)[f"{module.replace('.', '/')}.py"]
    if HERE:
        from flwr.cli.build import build_fab_from_files

        files = {name: text.encode() for name, text in shown}
        files |= {"pyproject.toml": toml.encode(), "ward_7/experiment.toml": b""}
        built, _ = build_fab_from_files(files)
        assert {"ward_7/server_app.py", "ward_7/experiment.toml"} <= set(
            zipfile.ZipFile(io.BytesIO(built)).namelist()
        )


def modules(texts, monkeypatch):
    """The app's modules, imported as the package ``loopback``."""
    package = types.ModuleType("loopback")
    monkeypatch.setitem(sys.modules, "loopback", package)
    for name in ("task", "client", "server"):
        module = types.ModuleType(f"loopback.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        setattr(package, name, module)
        exec(compile(texts[name], f"{name}.py", "exec"), vars(module))  # noqa: S102 - the very point
    return package


@pytest.mark.skipif(not HERE, reason="Flower is not installed; make test-flower runs these")
@pytest.mark.parametrize(("app", "rule"), CHANGES)
def test_it_runs_with_the_selector(app, rule, monkeypatch, capfd):
    from flwr.app import Context, RecordDict

    package = modules(changed(app, rule), monkeypatch)
    grid = FakeGrid(
        {
            70 - k: FakeNode(
                package.client.app, {"partition-id": k, "num-partitions": 3}, delay_s=0
            )
            for k in range(3)
        }
    )
    package.server.app(
        grid,
        Context(
            run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=CONFIG, series_id=1
        ),
    )
    said = capfd.readouterr()
    assert "the end" in said.out
    assert "round 3 of 3, asked" in said.err
    assert said.err.count("2 accepted") == 3


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("flower-superlink", path=str(Path(sys.executable).parent)) is None,
    reason="needs Flower",
)
@pytest.mark.parametrize(("app", "rule"), [("images", "oort"), ("table", "fedcs")])
def test_it_runs_in_a_deployment(app, rule, tmp_path):
    from tests.motley_flower.loopback import Loopback, write_app

    there = Loopback(tmp_path / "there", 3)
    made = write_app(tmp_path / "app", **changed(app, rule))
    project = made / "pyproject.toml"
    project.write_text(
        project.read_text() + "".join(f"{name} = {value}\n" for name, value in CONFIG.items())
    )
    with ExitStack() as stack:
        stack.callback(there.stop)
        there.up()
        log = there.run("first", made, "")
        there.wait_for(log, "the end", LIMIT_S)
        text = log.read_text()
    assert text.count("2 accepted") == 3
    assert ("the history of a client ends" in text) == (rule == "fedcs")
