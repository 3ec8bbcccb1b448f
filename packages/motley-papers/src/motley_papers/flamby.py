"""The data, models, batches and one strategy of FLamby's benchmarks of Fed-Heart-Disease and
Fed-TCGA-BRCA, for the tables ``flamby_heart`` and ``flamby_brca``.

du Terrail, Ayed, Cyffers, et al.: *FLamby: Datasets and Benchmarks for Cross-Silo Federated
Learning in Realistic Healthcare Settings*, NeurIPS 2022 Datasets and Benchmarks. The choices that
only its code states are in each table's file.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from typing_extensions import override

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.parts import Upload
from motley.core.arrays import Floats
from motley.core.errors import DataError
from motley.core.files import no_file
from motley.core.ragged import Ragged
from motley.core.records import Cohort, SelectionContext
from motley.selectors.selector import SelectionRule
from motley.tasks.batch_orders import BatchOrder, Carried, TorchLoaders, drawn_number
from motley.tasks.metrics import Metric
from motley.tasks.own import own_task
from motley.tasks.task import Federation, Task
from motley_data.public_data.places import places

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease"
HEART = {
    "processed.cleveland.data": "2d91a8ff69cfd9616aa47b59d6f843db",
    "processed.hungarian.data": "22e96bee155b5973568101c93b3705f6",
    "processed.switzerland.data": "9a87f7577310b3917730d06ba9349e20",
    "processed.va.data": "4249d03ca7711e84f4444768c9426170",
}
"""File -> md5."""
GITHUB = "https://github.com/owkin/FLamby, flamby/datasets/fed_tcga_brca (split: its scripts)"
BRCA = {
    "brca.csv": "989df4ddec084f749d9593146d7ba92f",
    "train_test_split.csv": "e648057e47463ee7763924d779cd7f2d",
}
"""File -> md5."""
TURN = 100
"""Batches of a client's turn."""


def checked(folder: Path | None, name: str, files: Mapping[str, str], source: str) -> Path:
    """Return the folder with a table's files, ``folder`` itself or the folder ``name`` in it or in
    another place where data lies (:func:`motley_data.public_data.places.places`).

    Parameters
    ----------
    files: name -> md5 sum.
    source: address of the folder they are published in.

    Raises
    ------
    DataError: a file is missing or another one.
    """
    folders = [place / name for place in places(folder)] + ([folder] if folder else [])
    there = next((f for f in folders if no_file(f / next(iter(files))) is None), None)
    if there is None:
        raise DataError(
            f"this table's data is not on this machine; download {', '.join(files)} from {source} "
            f"into a folder {name} of a folder DIR, and write --data DIR"
        )
    for file, wanted in files.items():
        if no_file(there / file) is not None:
            raise DataError(f"{there} has no {file}; download it from {source}")
        found = hashlib.md5((there / file).read_bytes(), usedforsecurity=False).hexdigest()
        if found != wanted:
            raise DataError(
                f"{there / file} has the md5 sum {found}, not {wanted}: it is another file; "
                f"download it from {source}"
            )
    return there


# -------------------------------------------------------------------------------- fed_heart_disease


@dataclass(frozen=True)
class Centre:
    """Rows of one centre: inputs ``[n, d]``, targets ``[n, ...]``, and which train, ``[n]``."""

    x: Tensor
    y: Tensor
    train: Tensor

    def part(self, train: bool) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of the rows that train, or of those that do not."""
        rows = self.train == train
        return self.x[rows], self.y[rows]


def heart_centres(folder: Path) -> list[Centre]:
    """Return the four centres with raw inputs ``[n, 13]`` and targets 0 or 1, rows in the order of
    the files."""
    tables = [_heart_rows(folder / file) for file in HEART]
    every = np.concatenate(tables)
    kept = [column for column in range(10) if column not in (2, 6)]
    levels = [(column, np.unique(every[:, column])[1:]) for column in (2, 6)]
    out = []
    for table in tables:
        coded = [table[:, [column]] == values for column, values in levels]
        x = np.concatenate([table[:, kept], *coded], axis=1).astype(np.float32)
        y = (table[:, -1] > 0).astype(np.int64)
        rare = np.bincount(y, minlength=2).min() <= 2
        train, _ = train_test_split(
            np.arange(len(y)),
            train_size=0.66,
            test_size=1 - 0.66,
            random_state=43,
            shuffle=True,
            stratify=None if rare else y,
        )
        trains = torch.zeros(len(y), dtype=torch.bool)
        trains[torch.from_numpy(train)] = True
        out.append(Centre(torch.from_numpy(x), torch.from_numpy(y), trains))
    return out


def _heart_rows(file: Path) -> Floats:
    """Return the rows without gaps of a file of UCI, ``[n, 11]``: 10 columns and the target."""
    cells = [line.split(",") for line in file.read_text(encoding="utf-8").split()]
    wanted = [row[:10] + row[13:] for row in cells]
    return np.array([row for row in wanted if "?" not in row], dtype=np.float64)


def scaled(x: Tensor, by: Tensor) -> Tensor:
    """Return inputs minus the mean of other rows, divided by their standard deviation (n - 1); a
    constant column is 0."""
    return (x - by.mean(0)) / (by.std(0) + 1e-9)


def heart(
    folder: Path | None,
    *,
    seed: int,
    trains: str = "clients",
    order: str = "torch",
    files: Sequence[int] = (0, 1, 2, 3),
) -> Task:
    """Return the task of a run of Fed-Heart-Disease.

    Parameters
    ----------
    folder: with the four files, or with a folder ``heart`` of them.
    seed: of the first weights.
    trains: ``clients``, all four; ``cyclic``, in the turns of FLamby's Cyclic; ``pooled``, one more
    client that has the training rows of all; or ``0`` to ``3``, that client alone.
    order: ``torch``, the batches of FLamby's loaders, or ``carried``, of the run's own streams.
    files: the order of the centres' rows in pooled training.
    """
    if sorted(files) != [0, 1, 2, 3]:
        raise DataError(f"got files = {list(files)}; expected 0, 1, 2 and 3 in any order")
    centres = heart_centres(checked(folder, "heart", HEART, UCI))
    raw = [centre.part(True) for centre in centres]
    raw_tests = [centre.part(False) for centre in centres]
    tests = [(scaled(x, own), y) for (x, y), (own, _) in zip(raw_tests, raw, strict=True)]
    together = [
        [torch.cat([halves[at][part] for at in files]) for part in (0, 1)]
        for halves in (raw, raw_tests)
    ]
    pooled, pooled_test = [(scaled(x, together[0][0]), y) for x, y in together]
    parts = _who_trains(trains, [(scaled(x, x), y) for x, y in raw], pooled)
    federation = _federation(parts, tests, pooled_test)
    return own_task(
        federation,
        _first_weights(13, seed),
        loss="bce",
        batches=_order(trains, order, parts, batch_size=4, rounds=15, seed=seed),
        name="fed_heart_disease",
    )


def _who_trains(
    trains: str, parts: Sequence[tuple[Tensor, Tensor]], pooled: tuple[Tensor, Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """Return the training parts of the clients, empty for those that do not train."""
    if trains in ("clients", "cyclic"):
        return list(parts)
    empty = [(x[:0], y[:0]) for x, y in parts]
    if trains == "pooled":
        return [*empty, pooled]
    if not trains.isdigit() or int(trains) >= len(parts):
        raise DataError(
            f"got trains = {trains!r}; expected clients, cyclic, pooled or the number of a client, "
            f"0 to {len(parts) - 1}"
        )
    empty[int(trains)] = parts[int(trains)]
    return empty


def _federation(
    train: Sequence[tuple[Tensor, Tensor]],
    tests: Sequence[tuple[Tensor, Tensor]],
    pooled: tuple[Tensor, Tensor],
) -> Federation:
    """Return clients with training and test parts of their own, and a common test set; a client
    beyond the test parts has none."""
    blocks = [*train, *tests, pooled]
    x, y = (torch.cat([block[part] for block in blocks]) for part in (0, 1))
    sizes = [len(block[1]) for block in blocks]
    ends = np.cumsum([0, *sizes])
    k = len(train)
    none = Ragged(np.zeros(k + 1, np.int64), np.zeros(0, np.int64))
    bounds = ends[k : k + len(tests) + 1]
    tested = np.concatenate([bounds, np.full(k - len(tests), bounds[-1])]) - bounds[0]
    return Federation(
        x=x,
        y=y,
        train=Ragged(ends[: k + 1], np.arange(ends[k])),
        labels=y[: ends[k]],
        validation=none,
        test=Ragged(tested, np.arange(bounds[0], bounds[-1])),
        global_test=np.arange(bounds[-1], ends[-1]),
        classes=2 if y.ndim == 1 else None,
        own_rows=True,
    )


def _first_weights(inputs: int, seed: int) -> Callable[[], nn.Module]:
    """Return a function that makes a linear model with the weights that torch gives one right after
    it was seeded."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return partial(_with_weights, nn.Linear(inputs, 1).state_dict())


def _with_weights(weights: dict[str, Tensor]) -> nn.Module:
    model = nn.Linear(weights["weight"].shape[1], 1)
    model.load_state_dict(weights)
    return model


def _order(
    trains: str,
    order: str,
    parts: Sequence[tuple[Tensor, Tensor]],
    batch_size: int,
    rounds: int,
    seed: int,
    first_seeds: tuple[int, ...] = (),
) -> BatchOrder:
    """Return the order of batches of a run."""
    sizes = tuple(len(y) for _, y in parts)
    if order == "carried":
        return Carried(sizes, batch_size)
    if order != "torch":
        raise DataError(f"got order = {order!r}; expected torch or carried")
    turns: tuple[int, ...] = ()
    if trains == "cyclic":
        turns = tuple(_turns(seed, rounds, len(parts)))
    return TorchLoaders(
        sizes,
        batch_size,
        TURN,
        turns,
        made_before=trains in ("clients", "cyclic") and not first_seeds,
        first_seeds=first_seeds,
    )


# ------------------------------------------------------------------------------------ fed_tcga_brca


def brca_centres(folder: Path) -> tuple[list[Centre], Centre]:
    """Return the six regions, and all of them together, rows in the order of the file: raw inputs
    ``[n, 39]``, targets ``[n, 2]``: whether the event was seen, and days."""
    with (folder / "train_test_split.csv").open(encoding="utf-8", newline="") as file:
        fold = {row["pid"]: row["fold2"].split("_") for row in csv.DictReader(file)}
    with (folder / "brca.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in list(csv.reader(file))[1:] if row[0] in fold]
    numbers = torch.tensor([[float(cell) for cell in row[1:]] for row in rows])
    together = Centre(
        numbers[:, :39],
        numbers[:, 39:41],
        torch.tensor([fold[row[0]][0] == "train" for row in rows]),
    )
    region = torch.tensor([int(fold[row[0]][1]) for row in rows])
    return [
        Centre(together.x[at], together.y[at], together.train[at])
        for at in (region == number for number in range(6))
    ], together


def _latest_first(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return log risks and events ``[B]`` of a batch, the latest first; of rows of equal days the
    first counts as the later one."""
    order = torch.sort(targets[:, 1], descending=True, stable=True).indices
    return outputs.squeeze(1)[order], targets[order, 0]


def cox(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log partial likelihood of Cox within a batch, divided by all its rows.

    Parameters
    ----------
    outputs: log risks ``[B, 1]``.
    targets: event and days ``[B, 2]``.
    """
    score, event = _latest_first(outputs, targets)
    return (event * (torch.logcumsumexp(score, 0) - score)).mean()


def cox_as_run(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return :func:`cox` as the published runs computed it: exponentials below the batch's largest
    risk lose digits, and their gradients with them."""
    score, event = _latest_first(outputs, targets)
    below = score - score.max()
    return (event * (below.exp().cumsum(0).log() - below)).mean()


def concordance(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of comparable pairs in which the one with the earlier event has the higher
    risk, equal risks a half; NaN without pairs. A pair is comparable if the earlier of both is an
    event, and at equal days if one of both is."""
    seen = targets[:, 0].bool()
    days = targets[:, 1]
    later = (days[:, None] < days) | ((days[:, None] == days) & ~seen)
    comparable = seen[:, None] & later
    risk = outputs.squeeze(1)
    right = (risk[:, None] > risk).double() + 0.5 * (risk[:, None] == risk)
    return float(right[comparable].mean())


def brca(
    folder: Path | None,
    *,
    seed: int,
    trains: str = "clients",
    order: str = "torch",
    after: str = "strategy",
    formula: str = "as_run",
) -> Task:
    """Return the task of a run of Fed-TCGA-BRCA.

    Parameters
    ----------
    folder: with the two files, or with a folder ``brca`` of them.
    after: the run that FLamby's script made before: ``local``, ``cyclic`` or another ``strategy``,
    which decides the first pass of each client. Others as of :func:`heart`.
    formula: of the loss: ``as_run``, or ``stable``, which FLamby has since October 2022.
    """
    if formula not in ("as_run", "stable"):
        raise DataError(f"got formula = {formula!r}; expected as_run or stable")
    centres, together = brca_centres(checked(folder, "brca", BRCA, GITHUB))
    parts = _who_trains(trains, [c.part(True) for c in centres], together.part(True))
    federation = _federation(parts, [c.part(False) for c in centres], together.part(False))
    federated = trains in ("clients", "cyclic")
    with warnings.catch_warnings():
        # the age is not scaled in the published runs
        warnings.filterwarnings("ignore", "the model's first layer receives")
        return own_task(
            federation,
            _first_weights(39, seed),
            loss=cox_as_run if formula == "as_run" else cox,
            over="batch",
            metric=Metric("concordance", concordance, share=True),
            batches=_order(
                trains,
                order,
                parts,
                batch_size=8,
                rounds=5,
                seed=seed,
                first_seeds=_first_seeds(seed, centres, after) if federated else (),
            ),
            name="fed_tcga_brca",
        )


def _first_seeds(seed: int, centres: Sequence[Centre], after: str) -> tuple[int, ...]:
    """Return the seeds of the clients' first passes: loaders with workers draw them when a strategy
    is made, before the script seeds torch again, so after all that the run before has drawn."""
    passes = [-(-int(centre.train.sum()) // 8) for centre in centres]  # batches of a pass
    counts = {
        "strategy": [5 * TURN] * len(passes),
        "cyclic": [
            TURN * turns for turns in np.bincount(_turns(seed, 5), minlength=len(passes)).tolist()
        ],
    }
    if after == "local":
        drawn = 2 * 30
    elif after in counts:
        begun = [-(-count // size) for count, size in zip(counts[after], passes, strict=True)]
        drawn = 2 * sum(max(passes - 1, 0) for passes in begun)
    else:
        raise DataError(f"got after = {after!r}; expected local, cyclic or strategy")
    generator = torch.Generator().manual_seed(seed)
    for _ in range(drawn + len(centres) + 1):  # then one of each test loader
        drawn_number(generator)
    numbers = [drawn_number(generator) for _ in range(2 * len(centres))]
    return tuple(numbers[1::2])


def _turns(seed: int, rounds: int, clients: int = 6) -> list[int]:
    return list(itertools.islice(cyclic_turns(seed, clients), rounds))


# ------------------------------------------------------------------------------------------- cyclic


def cyclic_turns(seed: int, clients: int) -> Iterator[int]:
    """Yield clients in cycles, each in an order of its own, as numpy's default generator permutes
    them."""
    generator = np.random.Generator(np.random.PCG64(seed))  # the published code's own stream
    while True:
        yield from generator.permutation(clients).tolist()


@dataclass(frozen=True)
class Cyclic(SelectionRule[int]):
    """One client a round, in cycles, each in an order of its own.

    Parameters
    ----------
    seed: of numpy's generator.
    clients: how many there are.
    """

    seed: int = 0
    clients: int = 1

    @override
    def init(self) -> int:
        return 0

    @override
    def select(self, state: int, context: SelectionContext) -> Cohort:
        turn = next(itertools.islice(cyclic_turns(self.seed, self.clients), context.draw - 1, None))
        return Cohort(np.array([turn], np.int64))


@dataclass(frozen=True)
class OfClient(Mean):
    """The update of one client, those of all others dropped: what FLamby's Cyclic examines, whose
    models are never handed on.

    Parameters
    ----------
    client: whose updates count.
    """

    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    joins: ClassVar[bool] = False
    client: int = 0

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        if upload.client != self.client:
            zero = {
                name: part._replace(value=part.value * 0) for name, part in upload.parts.items()
            }
            upload = upload._replace(parts=zero)
        return super().add(total, upload)
