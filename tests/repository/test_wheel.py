"""The wheel holds all it needs: it is built, installed into an environment of its own, and run far
from the source."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DIGITS = """
name = "far away"
method = "fedprox"
population = 8
cohort = 3
stop = { rounds = 3 }
task = { name = "image", data = "digits", model = "digits_mlp" }
partition = { name = "dirichlet", alpha = 0.5 }
"""


def said(*command: str | Path, cwd: Path) -> str:
    """What a command prints, run without a way back to the source."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name != "VIRTUAL_ENV"
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(package: str, kind: str, ending: str, out: Path) -> Path:
    """The distribution of a package and a kind (``wheel``, ``sdist``) built into a folder."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = ROOT / "packages" / package
    said(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        f"--{kind}",
        "--outdir",
        out,
        folder,
        cwd=out,
    )
    (found,) = out.glob(f"{package.replace('-', '_')}*{ending}")
    return found


def environment(wheel: Path, folder: Path) -> Path:
    """An environment with this wheel alone, beside the libraries of the one that runs the tests."""
    home = folder / "environment"
    venv.create(home, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    borrowed = [
        path
        for path in (*site.getsitepackages(), sysconfig.get_path("purelib"))
        if Path(path).is_dir()
    ]
    # the heavy packages are those of this environment; an editable install of the source among them
    # stays out: its .pth is not read
    (packages / "borrowed.pth").write_text("\n".join(dict.fromkeys(borrowed)) + "\n")
    said(
        sys.executable,
        "-m",
        "pip",
        "--python",
        home / "bin" / "python",
        "install",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        "--quiet",
        wheel,
        cwd=folder,
    )
    return home


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("motley", "wheel", ".whl", tmp_path_factory.mktemp("dist"))


def test_what_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    folder = ROOT / "packages/motley/src/motley/experiments/presets"
    presets = {f"motley/experiments/presets/{path.name}" for path in folder.glob("*.toml")}
    assert presets
    assert names >= presets | {"motley/py.typed", "motley/cli.py"}
    assert all(name.startswith(("motley/", "motley_fl-")) for name in names)
    assert not [name for name in names if "__pycache__" in name]


def test_what_is_in_the_other_wheels(tmp_path: Path) -> None:
    """The papers' wheel has what advice rests on, and no numbers of runs."""
    with zipfile.ZipFile(built("motley-papers", "wheel", ".whl", tmp_path)) as archive:
        names = set(archive.namelist())
    assert names >= {"motley_papers/flash/recipe.toml", "motley_papers/league/named.csv"}
    assert not [name for name in names if name.endswith(("measured.csv", ".gz", ".html"))]
    with zipfile.ZipFile(built("motley-flower", "wheel", ".whl", tmp_path)) as archive:
        names = set(archive.namelist())
    assert names >= {"motley_flower/command.py", "motley_flower/secure/terms.py"}
    with zipfile.ZipFile(built("motley-advice", "wheel", ".whl", tmp_path)) as archive:
        names = set(archive.namelist())
    assert names >= {"motley_advice/commands/twin.py", "motley_advice/py.typed"}
    with zipfile.ZipFile(built("motley-data", "wheel", ".whl", tmp_path)) as archive:
        names = set(archive.namelist())
    assert names >= {"motley_data/commands/data.py", "motley_data/public_data/facts.py"}
    with zipfile.ZipFile(built("motley-privacy", "wheel", ".whl", tmp_path)) as archive:
        names = set(archive.namelist())
    assert names >= {"motley_privacy/audit_command.py", "motley_privacy/privacy_table.py"}
    with zipfile.ZipFile(built("motley-ray", "wheel", ".whl", tmp_path)) as archive:
        names = set(archive.namelist())
    assert names >= {"motley_ray/cluster.py", "motley_ray/spread_runs.py"}
    with zipfile.ZipFile(built("motley-report", "wheel", ".whl", tmp_path)) as archive:
        names = set(archive.namelist())
    assert names >= {"motley_report/page.html.j2", "motley_report/py.typed"}


def test_what_is_in_the_source_distribution(tmp_path: Path) -> None:
    with tarfile.open(built("motley", "sdist", ".tar.gz", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"src/motley/cli.py", "README.md", "LICENSE", "pyproject.toml"}


def test_without_the_other_distributions_the_command_says_where_they_are(
    wheel: Path, tmp_path: Path
) -> None:
    home = environment(wheel, tmp_path)
    for command in (
        "data",
        "deployment",
        "explain",
        "inspect",
        "report",
        "reproduce",
        "tune",
        "twin",
        "what-if",
    ):
        done = subprocess.run(
            [home / "bin" / "motley", command, "x", "--some"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 2
        assert f"{command!r} comes with motley-" in done.stderr
        assert "pip install ./packages/motley-" in done.stderr


def test_the_wheel_runs_far_from_the_source(wheel: Path, tmp_path: Path) -> None:
    home = environment(wheel, tmp_path)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    far = tmp_path / "far" / "away"
    far.mkdir(parents=True)
    (far / "exp.toml").write_text(DIGITS)
    where = said(home / "bin" / "python", "-c", "import motley; print(motley.__file__)", cwd=far)
    assert Path(where.strip()).is_relative_to(packages)
    printed = said(home / "bin" / "motley", "run", "exp.toml", "--out", "out", cwd=far)
    assert printed.splitlines()[-1] == "tables: out"
    written = {path.name for path in (far / "out").iterdir()}
    assert written >= {"run.json", "rounds.parquet", "model.safetensors"}
    assert "report.html" not in written  # motley-report would write it
    assert "motley" in said(home / "bin" / "motley", "--version", cwd=far)
