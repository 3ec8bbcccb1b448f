"""Mistakes that a newcomer makes, by command and in Python: what each message names, the exit
status, and that nothing of what was finished is lost.

A row is a mistake, how it is made, and a regular expression that the message has to match: what
was got, and the line that mends it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import motley
from motley.cli import call
from motley.tasks import from_clients, own_task

DIGITS = """name = "small"
population = 10
cohort = 3
stop = { rounds = 2 }
task = { name = "image", data = "digits", model = "digits_mlp" }
partition = { name = "dirichlet", alpha = 0.5 }
"""
PATIENTS = """name = "patients"
cohort = 2
stop = { rounds = 2 }
partition = "by_writer"
[task]
name = "tabular"
data = "patients.csv"
client = "hospital"
label = "outcome"
"""


class SetKeys(NamedTuple):
    """``motley run`` with these keys over digits."""

    name: str
    keys: tuple[str, ...]
    message: str


_TWO_WEIGHTS = 'loss={name="cross_entropy",class_weights=[1,2]}'
_TWO_SIZES = 'partition={name="iid",sizes=[10,20]}'
KEYS = [
    SetKeys("a misspelt key", ("chohort=3",), r"chohort: .*did you mean 'cohort'"),
    SetKeys("a misspelt option", ("partition.alhpa=0.3",), r"alhpa: .*did you mean 'alpha'"),
    SetKeys("rounds beside stop", ("rounds=3",), r"rounds: .*write stop = \{ rounds = 3 \}"),
    SetKeys("the rate at the top", ("lr=0.1",), r"lr: .*write local\.optimizer\.lr"),
    SetKeys("a negative rate", ("local.optimizer.lr=-0.1",), r"lr = -0\.1; expected a positive"),
    SetKeys("a rate beyond float32", ("local.optimizer.lr=1e39",), r"lr: got 1e\+39; .*3\.4e\+38"),
    SetKeys("a pull beyond float32", ("algorithm={name='fedprox',mu=1e300}",), r"mu: got 1e\+300;"),
    SetKeys("an empty batch", ("local.batch_size=0",), r"batch_size: got 0; expected at least 1"),
    SetKeys("a share in percent", ("participation=10",), r"participation: got 10; .*at most 1"),
    SetKeys("more asked than there are", ("cohort=11",), r"got 11, more than .* 10; .*at most 10"),
    SetKeys("a number in words", ('cohort="three"',), r"cohort: got 'three'; .*whole number"),
    SetKeys("a skew of 0", ("partition.alpha=0",), r"alpha = 0\.0; .*above 0 \(0\.1 is strong"),
    SetKeys("half a round", ("stop.rounds=2.5",), r"stop\.rounds: got 2\.5; .*whole number"),
    SetKeys("no round", ("stop.rounds=0",), r"stop\.rounds: got 0; expected at least 1"),
    SetKeys("a target in percent", ("stop.target.accuracy=90",), r"accuracy: got 90; .*at most 1"),
    SetKeys("a misspelt rule", ("selector=orrt",), r"'orrt' \(did you mean 'oort'\?\)"),
    SetKeys("a misspelt algorithm", ("algorithm=fedavgg",), r"did you mean 'fedavg'"),
    SetKeys(
        "an algorithm as a rule",
        ("selector=fedprox",),
        r"'fedprox' \(write algorithm = \"fedprox\"\)",
    ),
    SetKeys("a rule as an algorithm", ("algorithm=oort",), r"'oort' \(write selector = \"oort\"\)"),
    SetKeys("a misspelt data set", ("task.data=mnits",), r"did you mean 'mnist'"),
    SetKeys("a misspelt model", ("task.model=resnet_18",), r"did you mean 'resnet18'"),
    SetKeys("a misspelt optimizer", ("local.optimizer=adm",), r"did you mean 'adam'"),
    SetKeys("a misspelt metric", ('metrics=["acuracy"]',), r"did you mean 'accuracy'"),
    SetKeys("a device as an engine", ("engine=cuda",), r"write engine = \{ device = \"cuda\" \}"),
    SetKeys("more clients than rows", ("population=5000",), r"set population to at most 179"),
    SetKeys(
        "two server rules",
        ("algorithm=fedadam", "server=average"),
        r"server: got 'average'.*leave server out",
    ),
    SetKeys(
        "SCAFFOLD with Adam",
        ("algorithm=scaffold", 'local.optimizer={name="adam"}'),
        r"not possible under Adam; use algorithm = .*option = \"I\"",
    ),
    SetKeys(
        "clients that data do not have", ("partition=by_writer",), r"use \"iid\" or \"dirichlet\""
    ),
    SetKeys(
        "noise in percent",
        ('label_noise={name="beta",mean=20}',),
        r"mean = 20\.0; expected a share in \(0, 1\)",
    ),
    SetKeys("a loss of numbers", ("loss=half_squared_error",), r"are classes; use 'cross_entropy'"),
    SetKeys("a speed in words", ("device=fast",), r"device\.name: got 'fast'; .*constant"),
    SetKeys(
        "a share above all",
        ("compressor=topk", 'budget={name="constant",average=5}'),
        r"average = 5\.0; expected a share in \(0, 1\]",
    ),
    SetKeys(
        "privacy without delta",
        ("weights=uniform", "privacy={clip=1.0,noise_multiplier=1.0}"),
        r"privacy\.delta: this key is missing",
    ),
    SetKeys("half precision", ("dtype=float16",), r"dtype: got 'float16'.*float32, float64"),
    SetKeys("an option of another", ("algorithm.mu=0.1",), r"algorithm: got no name; .*fedprox"),
    SetKeys("all rows test", ("split.test_fraction=1",), r"test_fraction: got 1; .*below 1"),
    SetKeys("momentum at the top", ("momentum=0.9",), r"write local\.optimizer\.momentum"),
    SetKeys("seeds in the file", ("seeds=[0,1]",), r"compare FILE --seeds 0,1,2"),
    SetKeys("a processor as a speed", ("device=cuda",), r"write engine = \{ device = \"cuda\" \}"),
    SetKeys("a graphics card as a key", ("gpu=0",), r"write engine = \{ device = \"cuda\" \}"),
    SetKeys("a data set as the task", ("task=mnist",), r"name = \"image\", data = \"mnist\" \}"),
    SetKeys("a goal beside the rounds", ("stop.accuracy=0.9",), r"write stop\.target\.accuracy"),
    SetKeys("every how many rounds", ("evaluate=5",), r"e\.g\. evaluate = \{ every = 5 \}"),
    SetKeys("a loss of others' name", ("loss=ce",), r"did you mean 'cross_entropy'"),
    SetKeys("a metric of others' name", ('metrics=["f1"]',), r"did you mean 'macro_f1'"),
    SetKeys("a rule of others' name", ("selector=random",), r"did you mean 'uniform'"),
    SetKeys("a skew in words", ("partition=non-iid",), r"did you mean 'dirichlet'"),
    SetKeys("momentum of 1.5", ("local.optimizer.momentum=1.5",), r"least 0 and less than 1"),
    SetKeys("weights of other classes", (_TWO_WEIGHTS,), r"2 numbers, and there are 10 classes"),
    SetKeys("sizes of other clients", (_TWO_SIZES,), r"write population = 2, or a size for each"),
    SetKeys("patience in quotes", ('stop.patience="5"',), r"got '5'; expected a whole number"),
    SetKeys("rows in percent", ("split.test_fraction=20",), r"got 20; expected below 1"),
]


class Text(NamedTuple):
    """``motley run`` of a file with this text."""

    name: str
    text: str
    message: str


TEXTS = [
    Text("a word without quotes", "name = small", r"line 1, column 8: .*quotes, \"small\""),
    Text("Python's True", DIGITS + "evaluate = { per_client = True }", r"line 7, .*write true"),
    Text("Python's None", "seed = None", r"leave the key out"),
    Text("a key twice", DIGITS + "cohort = 4", r"line 7.*stands twice; keep one"),
    Text("a table twice", "[local]\n[local]\n", r"line 2, .*stands twice; keep one"),
    Text("JSON", '{"name": "small"}', r"this is like JSON; a TOML file has lines such as"),
    Text("YAML", "cohort: 4", r"line 1, column 7: .*write = in place of :"),
    Text("a decimal comma", "local = { optimizer = { name = 'sgd', lr = 0,5 } }", r"is a point"),
    Text("a bare point", "seed = .5", r"write a 0 before the point, 0\.5"),
    Text("a bare point below 0", "seed = -.25", r"write a 0 before the point, -0\.25"),
    Text("curly quotes", "name = \u201csmall\u201d", r"write straight quotes, \""),
    Text("a path with \\", 'name = "C:\\data"', r"write paths with /"),
    Text("no task", DIGITS.replace("task =", "# task ="), r"task: this key is missing"),
    Text("an empty file", "", r"stop: this key is missing"),
]


class Command(NamedTuple):
    """A command beside a finished run in ``kept``."""

    name: str
    words: str
    message: str


COMPARED = "compare small.toml --over selector.name=uniform,oort"
COMMANDS = [
    Command("a misspelt command", "rnu small.toml", r"'rnu'\. Did you mean 'run'"),
    Command(
        "a misspelt file", "run smal.toml", r"no file 'smal\.toml' \(did you mean 'small\.toml"
    ),
    Command("a folder", "run .", r"'\.' is a folder; expected an experiment file"),
    Command("a key alone", "run small.toml --set seed", r"--set: got 'seed'; expected key=value"),
    Command("a misspelt axis", "compare small.toml --over selectr.name=a,b", r"mean 'selector'"),
    Command("an axis alone", "compare small.toml --over seed", r"--over: got 'seed'; .*key=value"),
    Command(
        "an axis twice",
        "compare small.toml --over cohort=2 --over cohort=3",
        r"--over: got 'cohort' twice; expected it once, with all values: --over .*=.*,",
    ),
    Command(
        "two files", "compare small.toml other.toml", r"\(other.toml\); compare takes one file and"
    ),
    Command("a range of seeds", f"{COMPARED} --seeds 0-2", r"got '0-2'; .*e\.g\. 0,1,2"),
    Command("no job", f"{COMPARED} --jobs 0", r"jobs: got 0; expected at least 1"),
    Command("an absent reference", f"{COMPARED} --against fedprox", r"expected one of.*uniform"),
    Command("an option of none", "run small.toml --rounds 3", r"No such option: --rounds"),
    Command("no folder", "report nowhere", r"there is no folder nowhere"),
    Command("no recipe", "reproduce fedavg", r"there is no recipe 'fedavg'; expected one of"),
    Command("no kind", "list optimzers", r"did you mean 'optimizers'"),
    Command("no name in Python", "new selector my-rule", r"got 'my-rule'; .*snake_case"),
    Command("no data", "run small.toml --data nodata", r"--data: there is no folder 'nodata'"),
    Command("a label of a run", "inspect small.toml --label x", r"task = \{ name = \"tabular\""),
    Command("no table", "inspect nowhere.csv", r"nowhere\.csv does not exist"),
    Command(
        "the folder of another run",
        "run small.toml --set seed=1 --out kept",
        r"kept holds another run .*choose another output folder",
    ),
]


class Rows(NamedTuple):
    """``motley run`` of a table with these lines below ``hospital,age,pressure,outcome``."""

    name: str
    lines: Callable[[int], str]
    message: str
    encoding: str = "utf-8"


class TaskKeys(NamedTuple):
    """``motley run`` of the table of patients with these keys."""

    name: str
    keys: tuple[str, ...]
    message: str


TASK_KEYS = [
    TaskKeys("the label as a client", ('task.client="outcome"',), r"which is the label, too"),
    TaskKeys("a dropped label", ('task.drop=["outcome"]',), r"no input 'outcome'; its inputs: age"),
    TaskKeys("a sheet of a text", ('task.sheet="A"',), r"changes nothing in patients.csv"),
    TaskKeys("groups of the label", ("task.test={groups=0.2,by='outcome'}",), r"beside the label"),
    TaskKeys("a share of 20", ("task.test={last=20,by='order'}",), r"last = 20; .*below 1"),
    TaskKeys("a column of the split", ("task.test={last=0.2,by='aeg'}",), r"did you mean 'age'"),
    TaskKeys("pictures' model", ('task.model="cnn"',), r"CNN needs images .*; try mlp"),
    TaskKeys(
        "a number of clients", ("population=10",), r"the data has 4 clients; leave population"
    ),
    TaskKeys("classes as a number", ("task.classes=3",), r"labels are words .*list of their names"),
    TaskKeys("other classes", ('task.classes=["a","b"]',), r"label 'ill' is not in task\.classes"),
    TaskKeys("an order of dates", ('task.dates="DMY"',), r"'day first', 'month first'"),
    TaskKeys("a metric of numbers", ('metrics=["rmse"]',), r"is of numbers, and the targets"),
    TaskKeys("a folder", ('task.data="."',), r"is a folder; .*from_files\('\.'"),
]


def _cells(
    i: int, hospital: str | None = None, age: str | None = None, outcome: str | None = None
) -> str:
    """Return row i of a table of 40 patients of four hospitals, with other cells in it."""
    outcome = outcome or ("ill" if i % 3 else "well")
    return f"{hospital or 'ABCD'[i % 4]},{age or f'{40 + i}.5'},{110 + i % 7},{outcome}"


TABLES = [
    Rows("a limit of detection", lambda i: _cells(i, age="<5" if i == 3 else None), r"\"<5\""),
    Rows("ids", lambda i: _cells(i, age=f"p{i:04d}"), r"column 'age'.*drop = \[\"age\"\]"),
    Rows("dates", lambda i: _cells(i, age=f"2024-01-{1 + i % 28:02d}"), r"drop = \[\"age\"\]"),
    Rows(
        "decimal commas",
        lambda i: _cells(i, age=f'"{40 + i},5"'),
        r"\"40,5\" among the numbers of column 'age'; write decimal = \",\"",
    ),
    Rows(
        "German dates",
        lambda i: _cells(i, age=f"{1 + i % 28:02d}.05.2024"),
        r"holds dates .*dates = \"day first\"",
    ),
    Rows("thousands", lambda i: _cells(i, age=f'"{1 + i},200"'), r"thousands = \",\" for 1200"),
    Rows("a unit", lambda i: _cells(i, age=f"{40 + i} kg"), r"units = \[\"kg\"\]"),
    Rows("percent", lambda i: _cells(i, age=f"{i}%"), r"units = \[\"%\"\]"),
    Rows(
        "capitals of labels",
        lambda i: _cells(i, outcome=("ill", "Ill", "well")[i % 3]),
        r"labels .* differ in capitals alone: 'Ill', 'ill'; write fold = true",
    ),
    Rows(
        "capitals of clients",
        lambda i: _cells(i, hospital=("AKH", "akh", "Nord")[i % 3]),
        r"clients .* differ in capitals alone: 'AKH', 'akh'; write fold = true",
    ),
    Rows(
        "blanks of labels",
        lambda i: _cells(i, outcome=("ill", "ill ", "well")[i % 3]),
        r"labels .* differ in blanks alone: .*; write trim = true",
    ),
    Rows(
        "labels that are missing",
        lambda i: _cells(i, outcome="?" if i % 9 == 4 else None),
        r"row 5 .*label is missing .*\(in 4 of 40 rows\).*drop_rows = true",
    ),
    Rows(
        "Latin-1",
        lambda i: _cells(i, hospital=("K\u00f6ln", "Bonn")[i % 2]),
        r"not in UTF-8 \(line 2\).*encoding = \"latin-1\"",
        encoding="latin-1",
    ),
    Rows("numbered rows", lambda i: _cells(i, age=str(i)), r"counts the rows .*drop = \[\"age\"\]"),
    Rows("labels with decimals", lambda i: _cells(i, outcome=f"{i}.5"), r"tabular_regression"),
    Rows(
        "a short row",
        lambda i: "A,1,ill" if i == 5 else _cells(i),
        r"line 7 .*most have 4: .*give it 4$",
    ),
    Rows("a total", lambda i: "Total,1,1,x" if i == 39 else _cells(i), r"comment = \"Total,\" to"),
    Rows("an empty column", lambda i: _cells(i).replace(f",{110 + i % 7},", ",,"), r"'pressure'"),
]


def _module() -> nn.Module:
    return nn.Linear(3, 2)


X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def _task(x: Any = X, y: Any = Y, module: Any = _module, **options: Any) -> Any:
    return own_task(from_clients([(x, y)] * 4), module, **options)


def _run(task: Any, **keys: Any) -> motley.Run:
    usual = {"name": "mine", "task": "own", "cohort": 2, "stop": {"rounds": 2}}
    return motley.run(motley.Experiment(**{**usual, **keys}), task=task)


def _normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def _numbers(y: Any) -> Any:
    return own_task(from_clients([(X, y)], regression=True), _module)


WORDS = np.char.add(Y.astype(str), "a")
ONE: dict[str, Any] = {"local": {"batch_size": 1}}
T = torch.zeros(4, 2)
TD = TensorDataset(T, T)
SINGLE: Any = TD
PAIRS: Any = [(X, Y)]


def _detached(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs.detach(), targets, reduction="none")


class Call(NamedTuple):
    """A call in Python."""

    name: str
    make: Callable[[], Any]
    message: str


SMALL = {"task": "quadratic", "population": 2, "cohort": 1, "stop": {"rounds": 1}}
CALLS = [
    Call("no path", lambda: motley.load(None), r"got None; expected a path"),
    Call("a number as a folder", lambda: motley.run(SMALL, out=3), r"got 3; expected a path"),
    Call("no function", lambda: motley.run(SMALL, on_round=3), r"on_round: got 3; .* a function"),
    Call("labels for fewer rows", lambda: _task(y=Y[:20]), r"24 samples and 20 labels"),
    Call("a gap among numbers", lambda: _task(x=np.where(X > 1, np.nan, X)), r"NaN in x"),
    Call("classes from 1", lambda: _run(_task(y=Y + 1)), r"label 2, and the model has 2 outputs"),
    Call("one-hot labels", lambda: _task(y=np.eye(2)[Y]), r"give y\.argmax\(1\)"),
    Call("a module, not how it is made", lambda: _task(module=_module()), r"lambda: copy\.deep"),
    Call("inputs of another size", lambda: _task(module=lambda: nn.Linear(5, 2)), r"\[2, 3\]"),
    Call("a loss without a gradient", lambda: _task(loss=_detached), r"has a gradient"),
    Call("a regression of words", lambda: _numbers(WORDS), r"labels are words \(row 1 is '1a'\)"),
    Call("two outputs for a number", lambda: _numbers(X[:, 0]), r"gives 2 outputs, .* has 1 to"),
    Call(
        "a loss's class", lambda: _task(loss=nn.CrossEntropyLoss), r"object, CrossEntropyLoss\(\)"
    ),
    Call("clients, not a federation", lambda: own_task(PAIRS, _module), r"got list; expected a f"),
    Call("batches of one", lambda: _run(_task(module=_normed), **ONE), r"batch_size: got 1, .*2$"),
    Call("a single data set", lambda: from_clients(SINGLE), r"got a single Tensor"),
    Call("a pair of loaders", lambda: from_clients([(TD, TD)]), r"say which is which"),
    Call(
        "words to predict", lambda: motley.load("kept").predict(["a"]), r"expected numbers of shape"
    ),
    Call("no clients", lambda: from_clients([]), r"there are no clients"),
    Call("more than there are", lambda: _run(_task(), cohort=9), r"population of 4; .*at most 4"),
    Call("a misspelt keyword", lambda: _run(_task(), loacl={}), r"did you mean 'local'"),
    Call("a task left out", lambda: _run(None), r"task=own_task\("),
    Call("a class for an object", lambda: _run(_task(), selector=motley.Selector), r"an object"),
    Call(
        "a misspelt column", lambda: motley.load("kept").column("clients", "lsos"), r"mean 'loss'"
    ),
    Call("a misspelt table", lambda: motley.load("kept").column("evals", "loss"), r"'evals'"),
    Call("runs of nowhere", lambda: motley.load("nowhere"), r"no folder nowhere"),
]


def _digest(folder: Path) -> str:
    """Return the digest of all files of a folder and their names."""
    seen = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        seen.update(str(path.relative_to(folder)).encode())
        seen.update(path.read_bytes() if path.is_file() else b"")
    return seen.hexdigest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment, and its finished run in ``kept``."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "small.toml").write_text(DIGITS)
    (folder / "patients.toml").write_text(PATIENTS)
    motley.run(folder / "small.toml", out=folder / "kept")
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of that folder, the current one; afterwards it holds nothing else, and no less."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    before = _digest(tmp_path)
    yield tmp_path
    (tmp_path / "mistake.toml").unlink(missing_ok=True)
    (tmp_path / "patients.csv").unlink(missing_ok=True)
    assert _digest(tmp_path) == before


Refused = Callable[..., None]


@pytest.fixture
def refused(place: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command and look at the one sentence it ends with."""

    def check(*words: str, message: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert call(words) == 2
        lines = capsys.readouterr().err.splitlines()
        assert not any("Traceback" in line for line in lines)
        assert lines[-1].startswith("motley: ")
        assert re.search(message, lines[-1]), lines[-1]

    return check


@pytest.mark.parametrize("row", KEYS, ids=lambda row: row.name)
def test_keys(row: SetKeys, refused: Refused) -> None:
    sets = [word for key in row.keys for word in ("--set", key)]
    refused("run", "small.toml", *sets, message=row.message)


@pytest.mark.parametrize("row", TEXTS, ids=lambda row: row.name)
def test_files(row: Text, refused: Refused) -> None:
    Path("mistake.toml").write_text(row.text)
    refused("run", "mistake.toml", message=row.message)


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_commands(row: Command, refused: Refused) -> None:
    refused(*row.words.split(), message=row.message)


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row.name)
def test_tables(row: Rows, refused: Refused) -> None:
    lines = ["hospital,age,pressure,outcome", *map(row.lines, range(40))]
    Path("patients.csv").write_text("\n".join(lines), encoding=row.encoding)
    refused("run", "patients.toml", "--no-report", message=row.message)


@pytest.mark.parametrize("row", TASK_KEYS, ids=lambda row: row.name)
def test_keys_of_a_table(row: TaskKeys, refused: Refused) -> None:
    lines = ["hospital,age,pressure,outcome", *map(_cells, range(40))]
    Path("patients.csv").write_text("\n".join(lines))
    sets = [word for key in row.keys for word in ("--set", key)]
    refused("run", "patients.toml", "--no-report", *sets, message=row.message)


def test_a_table_is_no_experiment(refused: Refused) -> None:
    Path("patients.csv").write_text("hospital,outcome\n")
    refused("run", "patients.csv", message=r"is a table; .*--client COLUMN --label COLUMN")


FIRST_BYTES = {b"PK\x03\x04": r"Excel file \(\.xlsx\)", b"\x1f\x8b\x08\0": r"gzip \(\.csv\.gz\)"}


@pytest.mark.parametrize("first", FIRST_BYTES)
def test_a_file_of_another_kind(first: bytes, refused: Refused) -> None:
    Path("patients.csv").write_bytes(first + bytes(range(200)))
    message = rf"{FIRST_BYTES[first]}.*; name it so"
    refused("run", "patients.toml", "--no-report", message=message)


ARRAYS = {"label='target'": "is called y", "sep=';'": "changes nothing", "drop=['a']": "changes n"}


@pytest.mark.parametrize("key", ARRAYS)
def test_keys_of_tables_beside_arrays(key: str, refused: Refused) -> None:
    np.savez("mistake.npz", x=X, y=Y)
    try:
        task = ("--set", "task.name='tabular'", "--set", "task.data='mistake.npz'")
        refused("run", "small.toml", *task, "--set", f"task.{key}", message=ARRAYS[key])
    finally:
        Path("mistake.npz").unlink()


@pytest.mark.filterwarnings("ignore:.*no sample has the label 0")
@pytest.mark.parametrize("row", CALLS, ids=lambda row: row.name)
def test_calls(row: Call, place: Path) -> None:
    with pytest.raises(motley.MotleyError, match=row.message):
        row.make()


class Told(NamedTuple):
    """``motley run`` of a table that runs, and what it says."""

    name: str
    lines: Callable[[int], str]
    rows: int
    message: str


def _priced(i: int) -> str:
    return _cells(i, age=f"{50 + i * 7 % 31}.5", outcome=str(1000 + 10 * (i % 110)))


TOLD = [
    Told("one label", lambda i: _cells(i, outcome="ill"), 40, r"have the label 'ill': there is no"),
    Told("prices as classes", _priced, 300, r"110 different numbers, and each is a class; .*reg"),
    Told("a row each", _cells, 4, r"no sample is set aside to test on .*split = \{ test = "),
]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("row", TOLD, ids=lambda row: row.name)
def test_what_runs_and_is_told(
    row: Told,
    place: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ["hospital,age,pressure,outcome", *map(row.lines, range(row.rows))]
    Path("patients.csv").write_text("\n".join(lines))
    out = tmp_path_factory.mktemp("told")
    assert call(["run", "patients.toml", "--no-report", "--out", str(out / "run")]) == 0
    assert re.search(row.message, capsys.readouterr().err)


def test_a_comparison_of_one_run_says_so(
    place: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path_factory.mktemp("compared")
    assert call(["compare", "small.toml", "--out", str(out), "--no-report"]) == 0
    assert "nothing is compared with it; write a [grid], or --over" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_a_private_run_tells_nothing_of_samples(
    place: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither that all labels are the same nor how many samples clients have."""
    lines = ["hospital,age,pressure,outcome", *(_cells(i, outcome="1") for i in range(4))]
    Path("patients.csv").write_text("\n".join(lines))
    private = "privacy={clip=1.0,noise_multiplier=1.0,delta=1e-5,max_rounds=2}"
    keys = (private, 'weights="uniform"', "task.classes=2", 'task.scale="none"')
    sets = [word for key in keys for word in ("--set", key)]
    out = tmp_path_factory.mktemp("private")
    assert call(["run", "patients.toml", "--no-report", "--out", str(out / "run"), *sets]) == 0
    printed = capsys.readouterr().err
    assert "have the label" not in printed
    assert "to test on" not in printed
