"""Personalized methods here and in PFLlib, on the same files, from the same initial weights:
accuracy and processor seconds.

    git clone https://github.com/TsingZ0/PFLlib && git -C PFLlib checkout d832e76
    # or --pfllib; its files are read, never changed
    export MOTLEY_PFLLIB=$PWD/PFLlib
    python benchmarks/pfllib.py run [--data mnist cifar10] [--seeds 0 1 2] \\
        [--methods fedavg ditto] [--work runs/pfllib]
    python benchmarks/pfllib.py run --protocol whole --data mnist --seeds 0
    # writes benchmarks/measured/pfllib.json
    python benchmarks/pfllib.py collect

``run`` makes the clients' files, then every run that is not done yet, one after the other, each in
a process and a thread of its own. It may be stopped and started again: the record of a finished run
lies in the folder ``--work``, or has been collected, and is not made again. ``collect`` adds the
records of that folder to those collected earlier.

The files: MNIST's are those that lie in PFLlib's repository; CIFAR-10's are made by PFLlib's
functions as its ``generate_Cifar10.py`` calls them (NumPy's seed 1, Dirichlet 0.1, 20 clients),
from the data pack. PFLlib drops a short last batch and Motley does not, so every training part is
cut to its first 300 rows at most, a multiple of 10. All test rows stay.

PFLlib sets the seed 0 everywhere; seed s replaces it. Its modules that are not needed here (HDF5,
torchvision, plots) are replaced by empty ones, and its own ``main.py`` is run. It evaluates after i
server steps as Motley does. The processor seconds of a round leave out evaluations, and are those
of the process (user and system), so that other work on the machine disturbs them less than wall
time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import random
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import nn

OUT = Path(__file__).with_name("measured") / "pfllib.json"
COMMIT = "d832e76f6a23b833038949ec1e4fdefe63a4d350"
CLIENTS = 20


class Protocol(NamedTuple):
    """How much of the data is used, and how long and how training goes; ``suffix``: of the data
    set's name."""

    suffix: str
    rows: int
    tests: int | None
    batch: int
    lr: float
    rounds: int
    every: int


PROTOCOLS = {
    "beside": Protocol("", rows=300, tests=None, batch=10, lr=0.005, rounds=50, every=5),
    "whole": Protocol("-whole", rows=20, tests=20, batch=20, lr=0.05, rounds=3, every=3),
}
"""``whole``: a client's part is one batch, in float64, so that both sides take the same steps and
must agree up to rounding."""


class Data(NamedTuple):
    """A data set: its name at PFLlib, the channels of an image, and the inputs of the model's first
    linear layer."""

    theirs: str
    channels: int
    width: int


DATA = {"mnist": Data("MNIST", 1, 1024), "cifar10": Data("Cifar10", 3, 1600)}


class Compared(NamedTuple):
    """A method: its name and options at PFLlib and here, and whether the model compared is the
    shared one."""

    theirs: tuple[str, ...]
    ours: Mapping[str, Any]
    shared: bool = False


METHODS = {
    "local": Compared(("Local",), {"name": "local_only"}),
    "fedavg": Compared(("FedAvg",), {"name": "fedavg"}, shared=True),
    "fedper": Compared(("FedPer",), {"name": "fedper"}),
    "fedrep": Compared(("FedRep",), {"name": "fedrep", "head_epochs": 1}),
    "fedbabu": Compared(
        ("FedBABU", "-fte", "0"), {"name": "fedbabu", "tune_epochs": 0}, shared=True
    ),
    "ditto": Compared(("Ditto", "-mu", "1"), {"name": "ditto", "lam": 1.0}),
    "fedala": Compared(("FedALA",), {"name": "fedala"}),
}
"""FedBABU is compared before its fine-tuning: PFLlib's starts from a client's last local model, and
happens once, at the end."""


# ---- the clients' files ----


def prepare(data: Data, protocol: Protocol, pfllib: Path, work: Path) -> None:
    """Write the clients' files in PFLlib's layout: ``dataset/NAME/train/K.npz`` and ``test``."""
    folder = work / "dataset" / (data.theirs + protocol.suffix)
    if (folder / "ready").is_file():
        return
    parts = _stored(pfllib / "dataset" / data.theirs) or _divided(pfllib)
    for half, clients in zip(("train", "test"), parts, strict=True):
        (folder / half).mkdir(parents=True, exist_ok=True)
        for k, (x, y) in enumerate(clients):
            rows = (
                min(len(y), protocol.rows) // protocol.batch * protocol.batch
                if half == "train"
                else protocol.tests
            )
            np.savez(folder / half / f"{k}.npz", data={"x": x[:rows], "y": y[:rows]})
    (folder / "ready").touch()


Parts = list[tuple[np.ndarray, np.ndarray]]


def _stored(folder: Path) -> tuple[Parts, Parts] | None:
    """Return the training and test parts that lie in PFLlib's repository; None if there are
    none."""
    if not (folder / "train" / "0.npz").is_file():
        return None
    train, test = (
        [_read(folder / half / f"{k}.npz") for k in range(CLIENTS)] for half in ("train", "test")
    )
    return train, test


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return one client's ``(x, y)``; the files hold a pickled dictionary, so read only files that
    you trust."""
    data = np.load(path, allow_pickle=True)["data"].tolist()
    return data["x"].astype(np.float32), data["y"].astype(np.int64)


def _divided(pfllib: Path) -> tuple[Parts, Parts]:
    """Return training and test parts of CIFAR-10 as PFLlib's functions divide it.

    Within a class, samples are in the order of the original files, and PFLlib shuffles class by
    class, so that the parts are PFLlib's.
    """
    from motley_data.datasets import load_dataset

    images = load_dataset("cifar10")
    spec = importlib.util.spec_from_file_location(
        "dataset_utils", pfllib / "dataset" / "utils" / "dataset_utils.py"
    )
    utils = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"ujson": json}), contextlib.redirect_stdout(io.StringIO()):
        spec.loader.exec_module(utils)
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 - what PFLlib draws from
        order = np.argsort(images.test, kind="stable")  # training half first
        x = images.x.numpy()[order]
        y = images.y.numpy()[order]
        divided = utils.separate_data((x, y), CLIENTS, 10, True, False, "dir", class_per_client=2)
        halves = utils.split_data(*divided[:2])
    scaled = [
        [((part["x"].astype(np.float32) / 255 - 0.5) / 0.5, part["y"]) for part in half]
        for half in halves
    ]
    return scaled[0], scaled[1]


# ---- a run ----


class Found(NamedTuple):
    """A run's record, and the models ``[K, D]`` with which the clients were examined last."""

    record: dict[str, Any]
    models: np.ndarray


def theirs(
    data: Data, protocol: Protocol, method: Compared, seed: int, pfllib: Path, work: Path
) -> Found:
    """Run PFLlib's ``main.py`` and return what its evaluations found."""
    (work / "theirs").mkdir(exist_ok=True)
    os.chdir(work / "theirs")  # it reads ../dataset
    sys.path.insert(0, str(pfllib / "system"))
    argv = [
        "main.py",
        "-dev",
        "cpu",
        "-data",
        data.theirs + protocol.suffix,
        "-algo",
        *method.theirs,
    ]
    argv += [
        "-gr",
        str(protocol.rounds),
        "-eg",
        str(protocol.every),
        "-lr",
        str(protocol.lr),
        "-lbs",
        str(protocol.batch),
    ]
    argv += ["-ls", "1", "-nc", str(CLIENTS), *(["-s", "100"] if protocol.suffix else [])]
    seeded = partial(_seeded, torch.manual_seed, seed)
    with mock.patch.dict(sys.modules, _absent()), mock.patch.object(torch, "manual_seed", seeded):
        from flcore.servers import serverbase, serverditto
        from flcore.trainmodel import models
        from utils import data_utils

        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - what PFLlib draws from
        watch = _Watch(protocol, serverbase.Server, "evaluate", "test_metrics")
        # the shared model is examined first, then each client's own
        if method.theirs[0] == "Ditto":
            watch = _Watch(
                protocol,
                serverditto.Ditto,
                "evaluate_personalized",
                "test_metrics_personalized",
                also=watch,
            )
        made = models.FedAvgCNN
        path = work / _weights(data, seed)
        kind = torch.float64 if protocol.suffix else torch.float32
        models.FedAvgCNN = lambda *args, **options: _remembered(made(*args, **options), path).to(
            kind
        )
        images = data_utils.process_image
        data_utils.process_image = lambda read: [(x.to(kind), y) for x, y in images(read)]
        files = dict.fromkeys(("save_results", "save_global_model"), lambda server: None)
        with mock.patch.object(sys, "argv", argv), mock.patch.multiple(serverbase.Server, **files):
            runpy.run_path(str(pfllib / "system" / "main.py"), run_name="__main__")
    return watch.record()


def _seeded(really: Callable[[int], Any], seed: int, theirs: int) -> Any:
    """Seed torch with ``seed``, whatever PFLlib asks for."""
    return really(seed + theirs)


def _absent() -> dict[str, ModuleType]:
    """Return empty modules in place of those that PFLlib imports and these methods do not use."""
    names = (
        "h5py",
        "torchvision",
        "torchvision.transforms",
        "matplotlib",
        "matplotlib.pyplot",
        "calmsize",
        "cvxpy",
    )
    modules = {
        name: mock.MagicMock()
        for name in names
        if importlib.util.find_spec(name.partition(".")[0]) is None
    }
    quiet = {"utils.result_utils": "average_data", "utils.mem_utils": "MemReporter"}
    return modules | {
        name: mock.MagicMock(**{member: mock.MagicMock()}) for name, member in quiet.items()
    }


def _weights(data: Data, seed: int) -> str:
    return f"weights-{data.theirs}-{seed}.npz"


def _remembered(module: nn.Module, path: Path) -> nn.Module:
    """Return PFLlib's model, with the stored initial weights if there are any; otherwise they are
    stored."""
    if not path.is_file():
        np.savez(path, *[parameter.detach().numpy() for parameter in module.parameters()])
    return _loaded(module, path)


def _loaded(module: nn.Module, path: Path) -> nn.Module:
    with np.load(path) as stored, torch.no_grad():
        for parameter, values in zip(module.parameters(), stored.values(), strict=True):
            parameter.copy_(torch.from_numpy(values))
    return module


class _Watch:
    """Notes what an evaluation of PFLlib's server finds, and the processor seconds spent in it."""

    def __init__(
        self,
        protocol: Protocol,
        server: type,
        evaluate: str,
        measure: str,
        also: _Watch | None = None,
    ) -> None:
        self.protocol = protocol
        self.due = protocol.rounds // protocol.every + 1
        self.found: list[dict[str, float]] = []
        self.models = np.zeros(0)
        self.seconds = 0.0
        self.start = time.process_time()
        self.also = also
        original = getattr(server, evaluate)
        metrics = getattr(server, measure)

        def noted(self_: Any) -> Any:
            found = metrics(self_)
            self.found.append(_figures(np.array(found[2]), np.array(found[1])))
            if len(self.found) == self.due:
                own = "model_per" if "personalized" in measure else "model"
                self.models = np.stack([_flat(getattr(client, own)) for client in self_.clients])
            return found

        def timed(self_: Any, *args: Any) -> None:
            before = time.process_time()
            original(self_, *args)
            self.seconds += time.process_time() - before

        setattr(server, evaluate, timed)
        setattr(server, measure, noted)

    def record(self) -> Found:
        """Return what was found; PFLlib trains once more after the last evaluation."""
        total = time.process_time() - self.start
        beside = self.also.seconds if self.also else 0.0
        # FedBABU examines its clients' last local models once more, as fine-tuned for 0 epochs
        rows, shared = (
            [
                {"round": self.protocol.every * i, **row}
                for i, row in enumerate(watch.found[: self.due])
            ]
            if watch
            else []
            for watch in (self, self.also)
        )
        seconds = (total - self.seconds - beside) / (self.protocol.rounds + 1)
        return Found(
            {"rows": rows, "shared": shared, "round_s": seconds, "total_s": total}, self.models
        )


def _flat(module: nn.Module) -> np.ndarray:
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


def _figures(right: np.ndarray, examples: np.ndarray) -> dict[str, float]:
    """Return the share of right answers over all clients' test samples, and the deviation of the
    clients' accuracies, in percent."""
    return {
        "accuracy": 100 * float(right.sum() / examples.sum()),
        "deviation": 100 * float(np.std(right / examples)),
    }


def ours(data: Data, protocol: Protocol, method: Compared, seed: int, work: Path) -> Found:
    """Run the method here and return the same."""
    import motley
    from motley.rounds import examining
    from motley.tasks import from_clients, own_task

    folder = work / "dataset" / (data.theirs + protocol.suffix)
    weights = work / _weights(data, seed)
    train, test = (
        [_read(folder / half / f"{k}.npz") for k in range(CLIENTS)] for half in ("train", "test")
    )
    task = own_task(from_clients(train, test=test), lambda: _loaded(network(data), weights))
    algorithm = {
        **method.ours,
        **({"share": 1.0} if protocol.suffix and method.ours["name"] == "fedala" else {}),
    }
    experiment = motley.Experiment(
        name="pfllib",
        task="own",
        seed=seed,
        cohort=CLIENTS,
        stop={"rounds": protocol.rounds},
        algorithm=algorithm,
        weights="examples",
        local={
            "epochs": 1,
            "batch_size": protocol.batch,
            "optimizer": {"name": "sgd", "lr": protocol.lr},
        },
        engine="sequential",
        evaluate={"every": protocol.every, "per_client": True},
        dtype="float64" if protocol.suffix else "float32",
    )
    spent = 0.0
    models = np.zeros(0)
    evaluate = examining.evaluate

    def timed(
        engine: Any,
        model: Any,
        federation: Any,
        per_client: bool,
        personal: Any,
        *args: Any,
        **options: Any,
    ) -> Any:
        nonlocal spent, models
        before = time.process_time()
        found = evaluate(engine, model, federation, per_client, personal, *args, **options)
        used = personal(range(CLIENTS)) if personal else [model] * CLIENTS
        models = np.stack([one.x.numpy() for one in used])
        spent += time.process_time() - before
        return found

    start = time.process_time()
    with (
        mock.patch.object(examining, "evaluate", timed),
        tempfile.TemporaryDirectory() as temporary,
    ):
        table = motley.run(experiment, task=task, out=Path(temporary) / "run").tables["evaluations"]
    total = time.process_time() - start
    rows, shared = (_rows(table, scope) for scope in ("client", "shared_client"))
    return Found(
        {
            "rows": rows,
            "shared": shared,
            "round_s": (total - spent) / protocol.rounds,
            "total_s": total,
        },
        models,
    )


def _rows(table: Any, scope: str) -> list[dict[str, float]]:
    scopes, versions, accuracy, examples = (
        table[name].to_numpy() for name in ("scope", "version", "accuracy", "examples")
    )
    mine = scopes == scope
    return [
        {"round": int(step), **_figures((accuracy * examples)[at], examples[at])}
        for step, at in ((step, mine & (versions == step)) for step in np.unique(versions[mine]))
    ]


def network(data: Data) -> nn.Sequential:
    """Return PFLlib's ``CNN`` for the data: two unpadded 5 x 5 convolutions with pooling, 512
    hidden units, 10 classes."""
    layers = [
        nn.Conv2d(data.channels, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(data.width, 512), nn.ReLU(), nn.Linear(512, 10)
    )


# ---- all the runs ----


def runs(args: argparse.Namespace) -> Iterator[tuple[str, int, str, str, Path]]:
    """Yield data set, seed, method, side and file of every run, seed by seed; PFLlib first, which
    stores the initial weights."""
    for data in args.data:
        for seed in args.seeds:
            for method in args.methods:
                for side in ("theirs", "ours"):
                    yield (
                        data,
                        seed,
                        method,
                        side,
                        args.work / f"{args.protocol}-{data}-{seed}-{method}-{side}.json",
                    )


def run_all(args: argparse.Namespace) -> None:
    """Make the files and every run that is not done yet, each in a process of its own."""
    one_thread = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    }
    args.work.mkdir(parents=True, exist_ok=True)
    made = (
        {_place(row) for row in _collected(args.out, "runs")}
        if args.protocol == "beside"
        else set()
    )
    for data, seed, method, side, path in runs(args):
        prepare(DATA[data], PROTOCOLS[args.protocol], args.pfllib, args.work)
        if path.is_file() or (data, seed, method, side) in made:
            continue
        command = [sys.executable, __file__, "one", data, str(seed), method, side, str(path)]
        command += [
            "--pfllib",
            str(args.pfllib),
            "--work",
            str(args.work),
            "--protocol",
            args.protocol,
        ]
        with (args.work / "log.txt").open("a", encoding="utf-8") as log:
            done = subprocess.run(command, env=one_thread, stdout=log, stderr=log, check=False)
        print(
            f"{time.strftime('%H:%M:%S')} {path.stem}: "
            f"{'done' if done.returncode == 0 else 'failed, see log.txt'}",
            flush=True,
        )


def run_one(args: argparse.Namespace) -> None:
    """Make one run and write its record."""
    torch.set_num_threads(1)
    data = DATA[args.one_data]
    method = METHODS[args.method]
    start = time.perf_counter()
    load = os.getloadavg()[0]
    common = (data, PROTOCOLS[args.protocol], method, args.seed)
    found = (
        theirs(*common, args.pfllib, args.work)
        if args.side == "theirs"
        else ours(*common, args.work)
    )
    if args.protocol == "whole":
        np.save(args.path.with_suffix(".npy"), found.models)
    record = {**found.record, "wall_s": time.perf_counter() - start, "load_before": load}
    part = args.path.with_suffix(".part")
    part.write_text(json.dumps(record), encoding="utf-8")
    part.rename(args.path)


def collect(args: argparse.Namespace) -> None:
    """Write the records of all finished runs to one file, and how far the clients' models of the
    two sides are apart."""
    args.protocol = "beside"
    found = [
        {
            "data": data,
            "seed": seed,
            "method": method,
            "side": side,
            **_rounded(json.loads(path.read_text(encoding="utf-8"))),
        }
        for data, seed, method, side, path in runs(args)
        if path.is_file()
    ]
    args.protocol = "whole"
    pairs = list(runs(args))
    whole = [
        {
            "data": data,
            "seed": seed,
            "method": method,
            **_apart(args.work, DATA[data], seed, one, two),
        }
        for (data, seed, method, _, one), (*_, two) in zip(pairs[::2], pairs[1::2], strict=True)
        if one.is_file() and two.is_file()
    ]
    found, whole = (
        _joined(_collected(args.out, name), rows)
        for name, rows in (("runs", found), ("whole", whole))
    )
    head = {"commit": COMMIT, "torch": torch.__version__, "cores": os.cpu_count()}
    lists = [
        f'"{name}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]"
        for name, rows in (("whole", whole), ("runs", found))
    ]
    args.out.write_text(f"{json.dumps(head)[:-1]}, {', '.join(lists)}}}\n", encoding="utf-8")
    print(f"{len(found)} runs, {len(whole)} pairs on whole batches")


def _apart(work: Path, data: Data, seed: int, theirs: Path, ours: Path) -> dict[str, Any]:
    """Return the largest distance between the two sides' models of a client, over how far PFLlib's
    has moved from where it began: of all weights, and of the base alone."""
    a, b = (np.load(path.with_suffix(".npy")).astype(float) for path in (theirs, ours))
    first = _flat(_loaded(network(data), work / _weights(data, seed))).astype(float)
    rows = [json.loads(path.read_text(encoding="utf-8"))["rows"] for path in (theirs, ours)]
    base = len(first) - 513 * 10
    apart = [
        (
            np.linalg.norm((a - b)[:, :end], axis=1) / np.linalg.norm((a - first)[:, :end], axis=1)
        ).max()
        for end in (None, base)
    ]
    found = {
        name: float(f"{value:.2g}") for name, value in zip(("apart", "base"), apart, strict=True)
    }
    return {**found, "accuracy": [round(side[-1]["accuracy"], 4) for side in rows]}


def _collected(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the records of a kind that were collected earlier."""
    return json.loads(path.read_text(encoding="utf-8"))[name] if path.is_file() else []


def _joined(earlier: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records of both, those of now where both have one, in the order in which they are
    run."""
    known = {_place(row): row for row in (*earlier, *now)}
    return sorted(
        known.values(),
        key=lambda row: (
            list(DATA).index(row["data"]),
            row["seed"],
            list(METHODS).index(row["method"]),
            row.get("side") == "ours",
        ),
    )


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells a record from the others: data set, seed, method, and side if it is of
    one."""
    return row["data"], row["seed"], row["method"], row.get("side")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "collect", "one"):
        command = commands.add_parser(name)
        if name == "one":
            command.add_argument("one_data", choices=DATA)
            command.add_argument("seed", type=int)
            command.add_argument("method", choices=METHODS)
            command.add_argument("side", choices=("theirs", "ours"))
            command.add_argument("path", type=Path)
        else:
            command.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
            command.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
            command.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
        command.add_argument(
            "--pfllib", type=Path, default=Path(os.environ.get("MOTLEY_PFLLIB", "PFLlib"))
        )
        command.add_argument("--work", type=Path, default=Path("runs/pfllib"))
        command.add_argument("--protocol", choices=PROTOCOLS, default="beside")
        command.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.work, args.pfllib = args.work.resolve(), args.pfllib.resolve()
    {"run": run_all, "collect": collect, "one": run_one}[args.command](args)


if __name__ == "__main__":
    main()
