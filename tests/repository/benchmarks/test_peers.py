"""The comparison with other frameworks, without them: work, command lines, the driver's records,
tables and picture."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
HERE = ROOT / "benchmarks" / "peers"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The driver's modules, imported as its scripts import them."""
    monkeypatch.syspath_prepend(str(HERE))
    import collect
    import drive
    import tree
    import work

    names = {"collect": collect, "drive": drive, "tree": tree, "work": work}
    for name in names:
        monkeypatch.setitem(sys.modules, name, names[name])
    return names


def test_steps_of_the_workloads(modules: dict[str, ModuleType]) -> None:
    """Ten clients: 10 epochs of 600 / 100 batches are 600 steps, 320 / 32 are 100, 32 / 16 are 20.
    Whole: 2 steps a client."""
    work = modules["work"]
    assert {name: load.steps for name, load in work.WORKLOADS.items()} == {
        "logistic": 600,
        "mlp": 600,
        "cnn": 100,
        "lstm": 20,
    }
    runs = {name: work.Run(load, Path(), Path(), 3) for name, load in work.WORKLOADS.items()}
    assert {name: run.steps for name, run in runs.items()} == {
        "logistic": 1800,
        "mlp": 1800,
        "cnn": 300,
        "lstm": 60,
    }
    assert work.Run(work.WORKLOADS["cnn"], Path(), Path(), 1, whole=True).steps == 20


def test_models_are_motleys_and_begin_alike(modules: dict[str, ModuleType]) -> None:
    """Parameters: 7,850, 199,210, 259,914, 818,860, as those of the models of the same kind here;
    the same weights every time."""
    work = modules["work"]
    sizes = {
        name: len(work.flat(work.network(load).parameters()))
        for name, load in work.WORKLOADS.items()
    }
    assert sizes == {"logistic": 7850, "mlp": 199_210, "cnn": 259_914, "lstm": 818_860}
    mlp = work.WORKLOADS["mlp"]
    assert (
        work.flat(work.network(mlp).parameters()) == work.flat(work.network(mlp).parameters())
    ).all()


def test_a_command_line_makes_the_same_run_again(
    modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    work = modules["work"]
    for whole, parallel, precision in (
        (False, False, "float32"),
        (True, False, "bfloat16"),
        (False, True, "float32"),
    ):
        run = work.Run(
            work.WORKLOADS["mlp"], tmp_path, tmp_path / "out", 4, whole, parallel, precision
        )
        assert work.parse(run.arguments()) == run


def test_in_bfloat16_a_model_keeps_its_parameters_and_rounds_products(
    modules: dict[str, ModuleType],
) -> None:
    """Scores differ from float32's by about a part in 2^8, are float32, and gradients arrive in
    the model's own parameters."""
    torch = pytest.importorskip("torch")
    work = modules["work"]
    load = work.WORKLOADS["mlp"]
    plain = work.model_of(work.Run(load, Path(), Path(), 1))
    rounded = work.model_of(work.Run(load, Path(), Path(), 1, precision="bfloat16"))
    x = torch.randn(8, 784, generator=torch.Generator().manual_seed(1))
    expected = plain(x)
    scores = rounded(x)
    assert scores.dtype == torch.float32
    assert 0 < (scores - expected).abs().max() < 0.05 * expected.abs().max()
    scores.sum().backward()
    parts = list(rounded.parameters())
    assert [part.shape for part in parts] == [part.shape for part in plain.parameters()]
    assert all(part.dtype == part.grad.dtype == torch.float32 for part in parts)


def test_every_peer_has_its_file_which_parses_the_common_options(
    modules: dict[str, ModuleType],
) -> None:
    """Its main begins with ``parse()``, marks rounds and finishes; its pinned versions name it and
    torch, or need none."""
    for peer in modules["drive"].PEERS.values():
        script = ast.parse((HERE / f"with_{peer.name}.py").read_text(encoding="utf-8"))
        main = next(
            node
            for node in script.body
            if isinstance(node, ast.FunctionDef) and node.name == "main"
        )
        assert "parse()" in ast.unparse(main)
        if peer.package:
            pinned = (
                (HERE / "requirements" / f"{peer.name}.txt")
                .read_text(encoding="utf-8")
                .splitlines()[1:]
            )
            assert all("==" in line and "+cpu" not in line for line in pinned)
            assert modules["drive"].versions()[peer.name]
            assert "torch==2.13.0" in pinned or peer.name == "fedjax"


def mean_of_gradient_steps(start: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Logistic regression by hand: two steps w <- w - X^T (softmax(X w + b) - Y) / n for each
    client, then the mean."""
    total = [np.zeros_like(part) for part in start]
    for inputs, labels in zip(x, y, strict=True):
        weight, bias = (part.copy() for part in start)
        for _ in range(2):
            scores = inputs @ weight.T + bias
            error = np.exp(scores - scores.max(1, keepdims=True))
            error = error / error.sum(1, keepdims=True) - np.eye(10)[labels]
            weight = weight - error.T @ inputs / len(inputs)
            bias = bias - error.mean(0)
        total = [total[0] + weight / len(x), total[1] + bias / len(x)]
    return np.concatenate([part.ravel() for part in total])


@pytest.mark.parametrize("peer", ["plain", "processes"])
def test_plain_pytorch_on_whole_batches_is_the_mean_of_gradient_steps(
    modules: dict[str, ModuleType], tmp_path: Path, peer: str
) -> None:
    work = modules["work"]
    load = work.WORKLOADS["logistic"]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, load.samples, 784), dtype=np.float32)
    y = rng.integers(0, 10, (10, load.samples))
    np.save(tmp_path / "logistic-x.npy", x)
    np.save(tmp_path / "logistic-y.npy", y)
    run = work.Run(load, tmp_path, tmp_path, 1, whole=True)
    script = [sys.executable, str(HERE / f"with_{peer}.py"), *run.arguments()]
    subprocess.run(script, check=True, timeout=120)
    start = [part.detach().numpy().astype(float) for part in work.network(load).parameters()]
    expected = mean_of_gradient_steps(start, x, y)
    model = np.load(tmp_path / "model.npy")
    assert modules["collect"].distance(model, expected, work.flat(start)) < 1e-5
    assert json.loads((tmp_path / "steps.json").read_text()) == 20
    assert len((tmp_path / "marks").read_text().split()) == 1


def test_a_row_takes_the_faster_turn_and_the_best_round(modules: dict[str, ModuleType]) -> None:
    """Rounds of 2, 4, 3 and 1, 5, 5 s: medians 3 and 5, the best 1; 600 steps / 3 s = 200. First
    rounds 2 and 4 s: median 3."""
    common = {"workload": "logistic", "peer": "pfl", "precision": "float32", "processes": 1}
    turns = [
        {**common, "parallel": False, "marks_s": [2.0, 4.0, 8.0, 11.0], "peak_mib": 100.0},
        {**common, "parallel": True, "marks_s": [4.0, 5.0, 10.0, 15.0], "peak_mib": 120.0},
    ]
    found = modules["collect"].row(turns)
    assert found["round_s"] == {"median": 3.0, "best": 1.0}
    assert found["steps_per_s"] == {"median": 200.0, "best": 600.0}
    assert found["turns"] == [200.0, 120.0]
    assert found["first_s"] == {"median": 3.0, "best": 2.0}
    assert (found["peak_mib"], found["parallel"]) == (120.0, False)
    other = {**turns[0], "peer": "motley", "marks_s": [1.0, 1.5]}
    rounded = {**turns[0], "precision": "bfloat16", "marks_s": [1.0, 3.0]}
    assert [
        (one["peer"], one["precision"])
        for one in modules["collect"].table([*turns, other, rounded])
    ] == [("motley", "float32"), ("pfl", "bfloat16"), ("pfl", "float32")]


def test_turns_and_what_only_chooses(modules: dict[str, ModuleType]) -> None:
    drive = modules["drive"]
    planned = [(peer.name, *rest) for peer, *rest in drive.planned("")]
    assert len(planned) == len(set(planned)) == 8 * sum(peer.turns for peer in drive.PEERS.values())
    assert planned[0] == ("plain", "logistic", "float32", 0)
    assert planned[1] == ("plain", "logistic", "bfloat16", 0)
    assert [
        (peer.name, load, precision)
        for peer, load, precision, turn in drive.planned("motley,pfl/mlp")
        if turn == 0
    ] == [
        ("motley", "mlp", "float32"),
        ("motley", "mlp", "bfloat16"),
        ("pfl", "mlp", "float32"),
        ("pfl", "mlp", "bfloat16"),
    ]
    assert {load for _, load, *_ in drive.planned("/cnn")} == {"cnn"}


def test_a_run_is_made_once_and_a_wrong_number_of_steps_is_a_failure(
    modules: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drive = modules["drive"]
    work = modules["work"]
    monkeypatch.setattr(drive, "RESULTS", tmp_path)
    taken = []
    counted = iter((199, 200))

    def watched(
        command: list[str], environment: object, folder: Path, log: object, limit: float
    ) -> object:
        taken.append(command)
        (folder / "steps.json").write_text(json.dumps(next(counted)))
        (folder / "marks").write_text("1.0\n2.0\n")
        return modules["tree"].Watched(0, 50.0, 1)

    monkeypatch.setattr(drive.tree, "watched", watched)
    run = work.Run(work.WORKLOADS["cnn"], tmp_path, tmp_path / "out", 2)
    for made in (False, True, True):
        drive.make(drive.PEERS["plain"], run, 0, load_before=0.1)
        assert (tmp_path / "runs" / "cnn-plain-float32-0.json").is_file() is made
    assert len(taken) == 2
    assert "199 of 200 steps" in capsys.readouterr().out


def test_memory_of_a_tree_and_what_is_left_of_it(
    modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child with 64 MiB, which ends when it has been seen, counts; a child that would outlive the
    command is killed with it."""
    psutil = pytest.importorskip("psutil")
    tree = modules["tree"]
    child = (
        "import os, time; x = bytearray(2**26)\nwhile not "
        f"os.path.exists({str(tmp_path / 'seen')!r}): time.sleep(0.05)"
    )
    sleeper = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    script = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {sleeper!r}])\n"
        "while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.05)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    size = tree._size

    def seen(process: object) -> int:
        found = size(process)
        if found > 2**26:
            (tmp_path / "seen").touch()
        return found

    monkeypatch.setattr(tree, "_size", seen)
    with (tmp_path / "log").open("w") as log:
        found = tree.watched([sys.executable, "-c", script], {}, tmp_path, log, 60)
    assert found.code == 0
    assert 64 < found.peak_mib < 256
    assert found.processes == 3
    left = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


def test_the_picture_and_the_tables_say_what_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import from_peers

    found = json.loads(
        (ROOT / "benchmarks" / "measured" / "peers.json").read_text(encoding="utf-8")
    )
    whole = from_peers.beside_peers()
    drawn = ElementTree.fromstring(from_peers.picture_of_peers())
    texts = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    fastest = {}
    for row in sorted(found["rows"], key=lambda row: row["steps_per_s"]["median"]):
        # Motley's logistic regression is float32 in both
        if row["precision"] == "float32" or from_peers._rounds(row):
            fastest[row["workload"], row["peer"]] = row
    assert fastest["logistic", "motley"]["precision"] == "float32"
    equal = [row for row in found["rows"] if row["precision"] == "float32"]
    assert {row["precision"] for row in fastest.values()} == {"float32", "bfloat16"}
    for row in (*equal, *fastest.values()):
        speed = from_peers.rate(row["steps_per_s"]["median"])
        assert speed in whole
        assert speed in texts
    assert (
        max(float(text.get("x")) for text in drawn.iter("{http://www.w3.org/2000/svg}text"))
        < from_peers.WIDTH - 30
    )
