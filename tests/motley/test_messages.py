"""Messages that a new user met: each names what is wrong, and the line that mends it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import motley
from motley.cli import call
from motley.commands.shared_options import raise_failures
from motley.core.errors import ConfigError, DataError, suggest
from motley.experiments.config import Experiment
from motley.experiments.sweep import Failure
from motley.experiments.sweep_point import Point
from motley.results.model_health import model_health
from motley_flower import free_ports
from motley_flower.operator import pages
from tests.motley.results import fake
from tests.places import PYTHONPATH

ROOT = Path(__file__).resolve().parents[2]
KEYS: dict[str, Any] = {
    "task": {"name": "tabular", "data": "iris"},
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 2},
}
WITHOUT = {key: value for key, value in KEYS.items() if key != "stop"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"rounds": 2},
            "rounds: there is no such key; it belongs to stop, write stop = { rounds = 2 } (and 2 "
            "more)",
        ),
        (
            {**WITHOUT, "rounds": 2},
            "rounds: there is no such key; it belongs to stop, write stop = { rounds = 2 } (and 1 "
            "more)",
        ),
        (
            {**KEYS, "epochs": 3},
            "epochs: there is no such key; it belongs to local, write local = { epochs = 3 }",
        ),
        ({**KEYS, "lr": 0.1}, "lr: there is no such key; write local.optimizer.lr"),
        ({**KEYS, "num_clients": 4}, "num_clients: there is no such key; write population"),
        (
            {**WITHOUT, "stop": 2},
            "stop: got 2; expected a table that says of what, e.g. stop = { rounds = 2 }",
        ),
        (
            {**KEYS, "engine": "cuda"},
            "engine: got 'cuda'; that is a device, and an engine is how clients are computed: "
            "write "
            'engine = { device = "cuda" }',
        ),
        (
            {**KEYS, "engine": "cuda:1"},
            "engine: got 'cuda:1'; that is a device, and an engine is how clients are computed: "
            "write "
            'engine = { device = "cuda:1" }',
        ),
        (
            {**KEYS, "engine": "gpu"},
            "engine: got 'gpu'; that is a device, and an engine is how clients are computed: write "
            'engine = { device = "cuda" }',
        ),
    ],
)
def test_keys(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        motley.Experiment(**keys)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("table", "column", "message"),
    [
        (
            "evaluations",
            "acc",
            "evaluations has no column 'acc' (did you mean 'accuracy'?); its columns: round, "
            "selections, time_s, paper_s, total_bits, total_up_paper_bits, scope, client, "
            "examples, loss, accuracy",
        ),
        (
            "timings",
            "accuracy",
            "timings has no column 'accuracy' (evaluations has it); its columns: round, wall_s, ",
        ),
        (
            "evaluation",
            "loss",
            "there is no table 'evaluation' (did you mean 'evaluations'?); there are: rounds, "
            "clients, ",
        ),
    ],
)
def test_columns(table: str, column: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        fake.run().column(table, column)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("over", "seeds", "message"),
    [
        (
            {"selector.name": ["uniform"]},
            3,
            "seeds: got 3; expected a list of whole numbers, e.g. seeds=[0, 1, 2]",
        ),
        (
            {"selector.name": "oort"},
            [0],
            "selector.name: got 'oort'; expected a list of values, e.g. ['oort']",
        ),
    ],
)
def test_values_of_a_comparison(over: Any, seeds: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        motley.compare(KEYS, over, seeds=seeds)
    assert str(error.value) == message


def test_a_spelling_is_near_whatever_its_capitals() -> None:
    assert suggest("hosp_b", ["hosp_A", "hosp_B", "hosp_C"]) == " (did you mean 'hosp_B'?)"
    assert suggest("FedAvg", ["fedavg", "fedprox"]) == " (did you mean 'fedavg'?)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "age,y\n1,0\n".encode("utf-16"),
            'is not in UTF-8 (line 1); it is likely UTF-16; write encoding = "utf-16"',
        ),
        (
            "größe,y\n1,0\n".encode("latin-1"),
            "is not in UTF-8 (line 1); it is likely Latin-1 (ISO-8859-1), in which it says "
            '"größe,y"; write encoding = "latin-1"',
        ),
    ],
)
def test_tables_that_other_programs_write(text: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_bytes(text)
    with pytest.raises(DataError) as error:
        motley.run(
            {**KEYS, "task": {"name": "tabular", "data": str(path), "label": "y"}},
            out=tmp_path / "run",
        )
    assert str(error.value) == f"{path} {said}"


def test_a_folder_in_place_of_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "hospitals"
    folder.mkdir()
    said = re.escape(f"from_files({str(folder)!r}, label='y') of motley.tasks")
    with pytest.raises(DataError, match=f"is a folder; this task reads one table.*{said}$"):
        motley.run(
            {**KEYS, "task": {"name": "tabular", "data": str(folder), "label": "y"}},
            out=tmp_path / "run",
        )


def test_failures_of_one_error_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    points = [
        Failure(Point(label, Experiment(**KEYS)), ConfigError("no data"))
        for label in ("a", "b", "c")
    ]
    with pytest.raises(typer.Exit):
        raise_failures(
            [*points, Failure(Point("d", Experiment(**KEYS)), ConfigError("no time"))], good=1
        )
    assert capsys.readouterr().err.splitlines() == [
        "motley: failed: a seed 0 and 2 more: no data",
        "motley: failed: d seed 0: no time",
        "motley: 1 of 5 runs finished; the same command tries the others again",
    ]


@pytest.mark.parametrize("accepted", [[2, 0, 0, 0], [2, 2, 0, 0]])
def test_rounds_in_which_nobody_delivers_are_told(accepted: list[int]) -> None:
    """Of four rounds, three without an upload are more than half, and two are not."""
    columns = {"round": [1, 2, 3, 4], "accepted": accepted}
    outcomes = ["accepted"] * 2 + ["dropped"] * 3
    run = fake.run(
        rounds=fake.table("rounds", **columns), clients=fake.table("clients", outcome=outcomes)
    )
    told = [
        "no upload was accepted in 3 of 4 rounds (rounds 2, 3, 4), and nothing was learned in them "
        "(what came of all dispatches: 3 dropped, 2 accepted)"
    ]
    assert model_health(run) == (told if accepted.count(0) == 3 else [])


@pytest.mark.filterwarnings("always:local.epochs is in the file's grid")
def test_values_over_those_of_a_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = '\n[[grid]]\n"local.epochs" = [1, 2]\n\n[[grid]]\nname = "g"\nseed = [0]\n'
    lines = (
        'population = 4\ncohort = 2\nstop = { rounds = 1 }\ntask = { name = "tabular", data = '
        '"iris" }\n'
    )
    Path("g.toml").write_text(lines + grid)
    assert call(["compare", "g.toml", "--over", "local.epochs=3", "--no-report"]) == 0
    said = capsys.readouterr().err
    assert said.startswith(
        "motley: note: local.epochs is in the file's grid, [1, 2]; the values given take its "
        "place, [3]\n"
    )
    assert (
        call(["compare", "g.toml", "--over", "local.batch_size=8", "--grid", "g", "--no-report"])
        == 0
    )
    assert "file's grid" not in capsys.readouterr().err


# ------------------------------------------------------------------------ ports of Flower's scripts


@pytest.fixture
def taken() -> Any:
    """A port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """An environment with this Python, in which everything else that the scripts start ends at once
    with 9."""
    for name in ("flwr", "flower-superlink", "flower-supernode", "nginx", "motley"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 9\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": PYTHONPATH, "TMPDIR": str(tmp_path)}


def said_by(script: Path, tools: dict[str, str], *argv: str) -> tuple[int, str]:
    found = subprocess.run(
        ["/bin/sh", script, *argv],
        env=tools,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return found.returncode, found.stderr


def test_the_example_says_at_once_that_a_port_is_in_use(
    taken: int, tools: dict[str, str], tmp_path: Path
) -> None:
    code, said = said_by(
        ROOT / "examples" / "flower" / "run",
        tools,
        "--port",
        str(taken - 1),
        "--folder",
        str(tmp_path / "out"),
    )
    assert (code, said) == (
        2,
        f"port {taken} on 127.0.0.1 is in use by another process (ss -ltnp shows which); end that "
        f"one, or give the first of five others: --port {taken + 9}\n",
    )
    assert not list((tmp_path / "out").iterdir())  # nothing was started


@pytest.mark.parametrize("who", ["server", "client"])
def test_the_scripts_of_a_deployment_say_at_once_that_a_port_is_in_use(
    who: str, taken: int, tools: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "start"
    names = {"name": "oak", "client": 0, "server": "here", "port": taken, "link_port": taken}
    script.write_text(
        (pages.SERVER_START if who == "server" else pages.CLIENT_START).format(**names)
    )
    (tmp_path / "node.key").touch()
    code, said = said_by(script, {**tools, "PORT": str(taken)})
    remedy = (
        "write another into start, config.toml and nginx.conf"
        if who == "server"
        else "choose another: PORT=9095 ./start"
    )
    assert (code, said) == (
        2,
        f"port {taken} on 127.0.0.1 is in use by another process (ss -ltnp shows which); end that "
        f"one, or {remedy}\n",
    )


def test_a_port_is_free_again_when_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert free_ports.in_use("127.0.0.1", port)
        assert free_ports.in_use("0.0.0.0", port)
    assert not free_ports.in_use("127.0.0.1", port)
    assert free_ports.main(["nothing", f"127.0.0.1:{port}"]) is None


# ----------------------------------------------------------------------------------------- packages


def test_no_hint_names_a_package_that_no_index_has() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("motley", "examples")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in ("", ".py", ".toml", ".txt", ".md", ".j2")
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if "motley-fl[" in line or re.search(r"pip install.* ['\"]?motley", line)
    ]
    assert found == []
