"""Nodes of a cluster with other code, without Motley, without the user's module or without a file
are named and not used; tokens.

``make test-ray`` runs these in an environment of their own; elsewhere they are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.motley_ray.ray_nodes import RayNodes
from tests.places import PYTHONPATH, ROOT

HERE = importlib.util.find_spec("ray") is not None
pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not HERE, reason="needs Ray, which make test-ray installs"),
]
PROGRAM = "import sys; from motley.cli import call; sys.exit(call(sys.argv[1:]))"
EXPERIMENT = """
population = 6
cohort = 4
stop = { rounds = 2 }
task = { name = "image", data = "digits", model = "digits_mlp" }
engine = { name = "ray", threads = 2, workers = 2 }
"""


def copied(folder: Path) -> Path:
    """A copy of Motley's package, to be changed; returns what a node's PYTHONPATH is then."""
    shutil.copytree(
        ROOT / "packages/motley/src/motley",
        folder / "motley",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return folder


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) >= 1
    path.write_text(text.replace(before, after))


def adds_one(folder: Path) -> None:
    """Have a copy add 1.0 to each reported loss."""
    path = folder / "motley" / "engines" / "workers.py"
    changed(
        path,
        "        found.append(result)\n",
        '        result.signals["loss"] += 1.0\n        found.append(result)\n',
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """A head of one core, to which each test adds nodes."""
    with RayNodes(cores=1) as made:
        yield made


@pytest.fixture
def head(cluster: RayNodes) -> Iterator[RayNodes]:
    """The cluster, whose further nodes end with the test."""
    yield cluster
    while cluster.nodes:
        cluster.nodes.pop().kill()


def motley(
    folder: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder where no copy of Motley lies, for Ray's workers look into the
    driver's folder first."""
    command = [sys.executable, "-c", PROGRAM, *words]
    home = {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", **(env or {})}
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def run(
    folder: Path, address: str, *more: str, name: str = "run"
) -> subprocess.CompletedProcess[str]:
    file = folder / "exp.toml"
    if not file.exists():
        file.write_text(EXPERIMENT)
    words = [
        "run",
        "exp.toml",
        "--out",
        name,
        "--no-report",
        "--set",
        f"engine.address={address}",
        *more,
    ]
    return motley(folder, *words)


def losses(folder: Path, name: str = "run") -> list[float]:
    import motley as package

    return package.load(folder / name).column("rounds", "train_loss").tolist()


def test_a_node_with_other_code_is_named_and_not_used(head: RayNodes, tmp_path: Path) -> None:
    old = copied(tmp_path / "old")
    adds_one(old)
    changed(old / "motley" / "__init__.py", '__version__ = "0.1.0"', '__version__ = "0.0.9"')
    node = head.add_node(env={"PYTHONPATH": str(old)})
    (tmp_path / "exp.toml").write_text(EXPERIMENT.replace(", threads = 2, workers = 2", ""))
    done = run(tmp_path, head.address)
    assert done.returncode == 0, done.stderr
    where = node.ip if head.namespaces else f"{node.ip} ("
    assert f"the node {where}" in done.stderr
    assert "is not used: Motley 0.0.9 in place of 0.1.0" in done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert sorted(said.partition(":")[0] for said in record["nodes"].values()) == [
        "left out",
        "worked",
    ]
    alone = motley(
        tmp_path,
        "run",
        "exp.toml",
        "--out",
        "alone",
        "--no-report",
        "--set",
        "engine.name=sequential",
    )
    assert alone.returncode == 0, alone.stderr
    assert losses(tmp_path) == pytest.approx(losses(tmp_path, "alone"), rel=1e-5)
    refused = run(tmp_path, head.address, "--set", "engine.differing_nodes=refuse", name="refused")
    assert refused.returncode == 2
    assert "nodes of the cluster differ from this process" in refused.stderr
    assert 'engine.differing_nodes = "skip"' in refused.stderr


ABSENT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "motley":
            raise ModuleNotFoundError("No module named 'motley'", name="motley")

sys.meta_path.insert(0, Without())
"""


def test_other_code_under_the_same_version_and_no_motley_at_all(
    head: RayNodes, tmp_path: Path
) -> None:
    other = copied(tmp_path / "other")
    absent = tmp_path / "absent"
    adds_one(other)
    absent.mkdir()
    (absent / "sitecustomize.py").write_text(ABSENT)
    nodes = [head.head, *(head.add_node(env={"PYTHONPATH": str(of)}) for of in (other, absent))]
    (tmp_path / "exp.toml").write_text(EXPERIMENT.replace(", threads = 2, workers = 2", ""))
    done = run(tmp_path, head.address)
    assert done.returncode == 0, done.stderr
    assert "is not used: other code in motley/engines/workers.py\n" in done.stderr
    assert "is not used: ModuleNotFoundError: No module named 'motley'\n" in done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    # Ray may still list the killed node of the test before
    ours = [
        said for name, said in record["nodes"].items() if name.split()[0] in {n.ip for n in nodes}
    ]
    assert sorted(said.partition(":")[0] for said in ours) == ["left out", "left out", "worked"]


SCRIPT = """
import sys
import numpy as np
import motley
import my_model
from motley.tasks import from_arrays, own_task

rng = np.random.default_rng(0)
data = from_arrays(rng.normal(size=(40, 3)), np.arange(40) % 2, np.arange(40) % 4)
keys = {"cohort": 2, "stop": {"rounds": 1}, "engine": {"name": "ray", "address": sys.argv[1]}}
try:
    motley.run(keys, task=own_task(data, my_model.make), out=sys.argv[2], progress=False)
except motley.core.errors.UserError as error:
    sys.exit(str(error))
"""
MODEL = """
from pathlib import Path
from torch import nn

def make():
    Path("sizes.txt").read_text()
    return nn.Linear(3, 2)
"""


def test_a_module_or_a_file_that_only_the_driver_has(head: RayNodes, tmp_path: Path) -> None:
    here = tmp_path / "here"
    lib = tmp_path / "lib"
    for folder in (here, lib):
        folder.mkdir()
    (here / "sizes.txt").write_text("3 2")
    (lib / "my_model.py").write_text(MODEL)

    def told(name: str) -> str:
        env = {**os.environ, "PYTHONPATH": f"{PYTHONPATH}:{lib}", "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-c", SCRIPT, head.address, name]
        done = subprocess.run(
            words, cwd=here, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 1
        return done.stderr

    said = told("first")
    assert "no node of the cluster can be used" in said
    assert f"{head.head.ip}: ModuleNotFoundError: No module named 'my_model'" in said
    # Ray's workers look into the driver's folder, but do not work there
    shutil.copy(lib / "my_model.py", here)
    said = told("second")
    assert f"on the node {head.head.ip}: " in said
    assert "FileNotFoundError" in said
    assert "sizes.txt" in said


def test_a_token_is_found_asked_for_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exp.toml").write_text(EXPERIMENT.replace(", threads = 2, workers = 2", ""))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    local = motley(tmp_path, "run", "exp.toml", "--out", "local", "--no-report")
    assert local.returncode == 0, local.stderr
    assert not (home / ".ray").exists()  # else the next "ray start --head" would want a token
    with monkeypatch.context() as tokened:
        tokened.setenv("RAY_AUTH_MODE", "token")
        tokened.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
        cluster = RayNodes(cores=1)
    with cluster:
        said = run(tmp_path, cluster.address, name="none")
        assert said.returncode == 2
        assert (
            "whose cluster wants a token, and there is none here; copy ~/.ray/auth_token"
            in said.stderr
        )
        monkeypatch.setenv("RAY_AUTH_TOKEN", "fedcba9876543210" * 4)
        said = run(tmp_path, cluster.address, name="wrong")
        assert said.returncode == 2
        assert "refuses the token here (of RAY_AUTH_TOKEN)" in said.stderr
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        said = run(tmp_path, cluster.address, name="off")
        assert "RAY_AUTH_MODE = disabled here sends none; unset it" in said.stderr
        monkeypatch.delenv("RAY_AUTH_MODE")
        monkeypatch.delenv("RAY_AUTH_TOKEN")
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
        done = run(tmp_path, cluster.address)
        assert done.returncode == 0, done.stderr


PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
BLOCKS = dict(
    re.findall(r'^```sh title="([^"]+)"\n(.*?)^```$', PAGE, flags=re.DOTALL | re.MULTILINE)
)


def test_ray_knows_the_options_of_the_page_and_of_the_batch_script() -> None:
    from ray.scripts.scripts import cli as of_ray

    lines = re.findall(r"^ray .*$", PAGE, flags=re.MULTILINE)
    assert len(lines) >= 4
    script = (ROOT / "scripts" / "slurm").read_text().replace("\\\n", " ")
    starts = re.findall(r'^ *start "[^"]*" (--.*)$', script, flags=re.MULTILINE)
    (always,) = re.findall(r'ray start "\$@" (--.*?) +>>', script)
    assert len(starts) == 2
    lines += [
        f"ray start {one} {always}".replace("${address##*:}", "1").replace(
            "${SLURM_CPUS_ON_NODE:-1}", "1"
        )
        for one in starts
    ]
    for line in lines:
        words = [word for word in shlex.split(line.partition(" > ")[0])[1:] if word != "job"]
        command = of_ray
        if " job " in line:
            # Ray's extra "default" has what it needs to run
            from ray.dashboard.modules.job.cli import job_cli_group as command
        name, found, rest = command.resolve_command(
            command.make_context("ray", list(words)), list(words)
        )
        assert found is not None, line
        found.make_context(name, list(rest))


IN_NAMESPACES = """
set -eu
mkdir -p /tmp/ray
mount -t tmpfs tmpfs /tmp/ray
ip link set lo up
ip addr add 10.0.0.1/24 dev lo
export HOME=/tmp/ray/home
mkdir /tmp/ray/home /tmp/ray/work
cd /tmp/ray/work
cat > exp.toml
motley() { "$PYTHON" -c "$PROGRAM" "$@"; }
for turn in before after; do
    (FIRST)
    (SECOND)
    LINE --out $turn --no-report
    grep -q '"finished": true' $turn/run.json
    ray stop --force
    [ $turn = after ] || motley run exp.toml --set engine.name=ray --out local --no-report
done
echo all is well
"""


def test_the_commands_of_the_page_work_before_and_after_a_local_run() -> None:
    """As they stand there, addresses and ports too: in namespaces of their own, where "ray stop"
    finds nobody else's processes."""
    apart = ["unshare", "--pid", "--fork", "--net", "--mount", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine refuses namespaces, and the page's ports may be others'")
    text = IN_NAMESPACES.replace("FIRST", BLOCKS["first node"] + "\n").replace(
        "SECOND", BLOCKS["second node"] + "\n"
    )
    text = text.replace("LINE", BLOCKS["run"].strip())
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    env |= {
        "PYTHON": sys.executable,
        "PROGRAM": PROGRAM,
        "PYTHONPATH": PYTHONPATH,
        "OMP_NUM_THREADS": "1",
    }
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    experiment = EXPERIMENT.replace(", threads = 2, workers = 2", "")
    done = subprocess.run(
        [*apart, "bash", "-c", text],
        env=env,
        input=experiment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.endswith("all is well\n")
