"""Federations and models of your own: arrays per client, one array with client ids, or one file per client; any ``nn.Module``.

>>> import numpy as np
>>> from torch import nn
>>> clients = [(np.random.default_rng(k).normal(size=(20, 3)), np.arange(20) % 2) for k in range(4)]
>>> federation = from_clients(clients, test_fraction=0.25)
>>> task = own_task(federation, lambda: nn.Linear(3, 2))
>>> len(federation), federation.train.sizes.tolist(), task.layout.size
(4, [15, 15, 15, 15], 8)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from typing_extensions import override

from motley.core.errors import ConfigError, DataError, ModelError
from motley.core.fingerprint import UNKNOWN, fingerprint_or_reason
from motley.core.fingerprint import fingerprint as hash_of
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks.base import Dataset, Federation, Task, TaskSource, Transform, model_input
from motley.tasks.client_parts import (
    Part,
    array_of,
    input_pair,
    inputs_of,
    is_table,
    join_parts,
    mapped_arrays,
    owners,
    table_options,
)  # fmt: skip
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.flat import construct, layout_of
from motley.tasks.metrics import Metric, MetricFunction, chosen
from motley.tasks.nn import replace_stochastic, require_keyed
from motley.tasks.own_loss import LossFunction, checked_loss
from motley.tasks.public_classes import with_classes
from motley.tasks.raw_table import TableOptions, check_columns, raw_table
from motley.tasks.tables import make_dataset, read_columns, take_columns

__all__ = ["Own", "fingerprint", "from_arrays", "from_clients", "from_files", "outputs_of", "own_task", "sample_outputs"]

Where = Literal["client", "global"]
_LINE = "classes=10 to from_arrays, from_clients or from_files"


@dataclass(frozen=True)
class Own(TaskSource):
    """Data and a model made in Python, passed beside the experiment: ``motley.run(experiment, task=own_task(...))``.

    Parameters
    ----------
    fingerprint: hash of data, weights and code, set by ``motley.run``, so that the run id depends on them.
    """

    has_clients: ClassVar[bool] = True

    fingerprint: str = ""
    made: Task | None = field(init=False, repr=False, compare=False, default=None)
    """The task itself; None in an experiment that was read from a file."""

    @classmethod
    def of(cls, task: Task) -> Own:
        """Return the source that stands for a task in an experiment."""
        own = cls(fingerprint(task))
        object.__setattr__(own, "made", task)
        return own

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        raise ConfigError(
            "this task's data and model are Python objects; use motley.run(experiment, task=own_task(...))", "task"
        )

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        raise ConfigError(
            "this task's data and model are Python objects; use motley.run(experiment, task=own_task(...))", "task"
        )


def fingerprint(task: Task) -> str:
    """Return a hash of a task: its data, initial weights, trainable parameters, structure, and the code and values of its functions.

    Weights are those that the factory makes under one fixed seed of torch. Where something has no fingerprint (an open file, a lock, a
    factory that draws from another generator than torch's), the result is :data:`~motley.core.fingerprint.UNKNOWN` and the reason.
    """
    said = ("notes", "measured", "shares")
    data = {one.name: getattr(task.federation, one.name) for one in fields(task.federation) if one.name not in said}
    parts = {one.name: getattr(task, one.name) for one in fields(task) if one.name not in ("name", "federation")}
    weights, again = (fingerprint_or_reason(construct(task.model, 0)) for _ in range(2))
    if weights != again:
        return f"{UNKNOWN}the model has other weights each time it is made with the same seed of torch (numpy.random, random)"
    found = [weights, *map(fingerprint_or_reason, (data, parts))]
    return next((one for one in found if one.startswith(UNKNOWN)), hash_of(found))


def from_arrays(
    x: Any,
    y: ArrayLike | str,
    client: ArrayLike | str | None = None,
    *,
    offsets: ArrayLike | None = None,
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Where = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Return a federation from one array or DataFrame, with a client id per row or the position at which each client's rows begin.

    Parameters
    ----------
    x: ``[n, ...]`` model inputs; whole numbers (but uint8) stay so where the model takes them, see :func:`own_task`. Or a table: a
    DataFrame of pandas or Polars, an Arrow table, a mapping of columns. A memory-mapped array of float32, uint8 or int64
    (``numpy.load(..., mmap_mode="c")``) is not copied, so the samples may be larger than memory.
    y: ``[n]`` classes (numbers 0 .. C - 1, or strings); ``[n, T]`` a class per position (-100: none);
    numbers ``[n]``, ``[n, d]`` with ``regression``; labels 0 or 1 ``[n, C]`` with ``multilabel``, any number of them per sample.
    client: ``[n]`` numbers or strings; clients are numbered in sorted order. y and client may be names of columns of a table.
    offsets: ``[K + 1]`` in place of ``client``: rows ``offsets[k] .. offsets[k + 1] - 1`` are client k's.
    table: how columns become inputs, e.g. ``{"scale": "federated"}`` for columns with gaps or words, see
    :class:`~motley.tasks.raw_table.TableOptions`; left out: they are complete numbers, and stay as they are.
    classes: their number, or the list of their names; left out: those that the labels show, which a private run refuses.
    test, test_fraction, validation: see :class:`~motley.tasks.federate.Split`. seed: of the split.

    Raises
    ------
    DataError: a column that cannot be used, NaN features, labels out of range, lengths that differ. ConfigError: shares out of range;
    words or gaps that ``table`` does not allow.

    Example
    -------
    >>> x, y = np.zeros((6, 2), np.float32), np.array([0, 1, 0, 1, 0, 1])
    >>> from_arrays(x, y, offsets=[0, 2, 6]).train.sizes.tolist()
    [1, 3]
    """
    inputs, targets = _taken(inputs_of(x), y)
    if (client is None) == (offsets is None):
        raise DataError(
            f"got {'neither client nor' if client is None else 'both client and'} offsets; give one of them: the client of each "
            "row, or offsets, the positions at which the clients' rows begin"
        )
    inputs, ids = _taken(inputs, owners(offsets, len(targets)) if client is None else client)
    where = "the table given" if is_table(inputs) else "the arrays given"
    dataset = make_dataset(inputs, targets, ids, not regression, where, multilabel, whole=True, options=table_options(table))
    return _federation(with_classes(dataset, classes, where, _LINE), Split(test, test_fraction, validation), seed)


def from_clients(
    clients: Iterable[tuple[Any, ArrayLike]],
    *,
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Where | Iterable[tuple[Any, ArrayLike]] = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Return a federation from a list of ``(x, y)``, or a generator of them, client 0 first.

    Parameters
    ----------
    clients: samples and targets of each client; those of a generator are asked for once, and no object is kept for each.
    test: what a share of them is set aside for, or a second list or generator: the samples and targets that each client tests on.
    Then ``clients`` holds training (and validation) samples only, and ``test_fraction`` means nothing.
    Other parameters as in :func:`from_arrays`.

    Raises
    ------
    DataError: as in :func:`from_arrays`; not one test part per client.

    Example
    -------
    >>> import numpy as np
    >>> train = [(np.ones((6, 2)), [0, 1] * 3), (np.ones((4, 2)), [0, 1] * 2)]
    >>> from_clients(train, test=[(np.zeros((2, 2)), [0, 1]), (np.zeros((3, 2)), [0, 1, 1])]).test.sizes.tolist()
    [2, 3]
    """
    options, asked = table_options(table), [0, 0]

    def parts(pairs: Iterable[Any], kind: int, said: str) -> Iterator[Part]:
        for number, pair in enumerate(pairs):
            asked[kind] = number + 1
            yield input_pair(pair, f"{said} {number}")

    given = parts(clients, 0, "client")
    if isinstance(test, str):
        dataset = with_classes(join_parts(given, regression, multilabel, options), classes, "the clients given", _LINE)
        return _federation(dataset, Split(test, test_fraction, validation), seed)
    _check_test(test, clients)
    dataset = join_parts(chain(given, parts(test, 1, "the test part of client")), regression, multilabel, options)
    count, tests = asked
    if count != tests:
        raise _other_number(tests, count)
    number = np.zeros(0, np.int64) if dataset.groups is None else dataset.groups  # of the part: the training parts come first
    dataset = with_classes(dataset, classes, "the clients given", _LINE)
    dataset = dataclasses.replace(dataset, test=number >= count, groups=number % count)
    return _federation(dataset, Split("client", validation=validation), seed)


def _check_test(test: Any, clients: Any) -> None:
    """Refuse test parts that are no list or generator, or of another number than the clients where both are known."""
    if not isinstance(test, Iterable):
        raise DataError(
            f'got {type(test).__name__} as test; expected "client", "global", or a list with a pair (x, y) per client'
        )
    if isinstance(test, Sized) and isinstance(clients, Sized) and len(test) != len(clients):
        raise _other_number(len(test), len(clients))


def _other_number(tests: int, clients: int) -> DataError:
    return DataError(f"got {tests} test parts and {clients} clients; expected a pair (x, y) per client, in the same order")


def from_files(
    folder: str | Path,
    *,
    label: str = "label",
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Where = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Return a federation from a folder with one file or one sub-folder of files per client, in the order of their names.

    Files are ``.npz`` (arrays ``x``, ``y``), ``.parquet`` or ``.csv``. Of many clients: a folder with ``x.npy``, ``y.npy`` and
    ``offsets.npy`` or ``client.npy``, as in :func:`from_arrays`; the samples are memory-mapped.

    Parameters
    ----------
    label: the column of targets in ``.parquet`` and ``.csv``. Other parameters as in :func:`from_arrays`.
    """
    root = Path(folder)
    if (root / "x.npy").is_file():
        common: dict[str, Any] = {"regression": regression, "multilabel": multilabel, "table": table, "test": test}
        common["classes"] = classes
        return from_arrays(**mapped_arrays(root), **common, test_fraction=test_fraction, validation=validation, seed=seed)
    files = [(name, path) for name, paths in _client_files(root) for path in paths]
    parts = [(*read_columns(path, label)[:2], name) for name, path in files]
    first = next((x for x, _, _ in parts if is_table(x)), None)
    for (_, path), (x, _, _) in zip(files, parts, strict=True):
        if is_table(x):
            check_columns(x, first, str(path))
    options = table_options(table)
    try:
        dataset = join_parts(parts, regression, multilabel, options)
    except DataError:
        for (_, path), (x, _, _) in zip(files, parts, strict=True):
            if is_table(x):
                raw_table(x, options, str(path))  # says in which file
        raise
    dataset = with_classes(dataset, classes, str(root), _LINE)
    return _federation(dataset, Split(test, test_fraction, validation), seed)


def own_task(
    federation: Federation,
    model: Callable[[], nn.Module],
    *,
    loss: str | Mapping[str, Any] | LossFunction | None = None,
    metric: str | Metric | MetricFunction | Sequence[Any] | None = None,
    transform: Transform | None = None,
    name: str = "own",
) -> Task:
    """Return a task of your own data and model.

    Parameters
    ----------
    model: makes a fresh module; torch's dropout layers in it are replaced by layers that draw from the job's key.
    loss: name, or name and options (``{"name": "huber", "delta": 2.0}``), or a function of outputs ``[B, ...]`` and targets
    ``[B, ...]`` that returns the loss of each sample ``[B]``, or their mean, which is then computed sample by sample. Unless given,
    ``cross_entropy`` for classes, ``bce`` for several labels per sample or one output for two classes, ``half_squared_error`` for
    numbers.
    metric: one or several of: names (:mod:`motley.tasks.metrics`), functions of outputs ``[n, ...]`` and targets ``[n, ...]`` that
    return a number, :class:`~motley.tasks.metrics.Metric`, objects of torchmetrics. The first is the headline; unless given,
    ``accuracy`` or, in regression, ``loss``, which are always measured.
    transform: maps a raw batch to model input; see :data:`~motley.tasks.base.Transform`.

    Samples of whole numbers (int64: characters, words, categories) reach the model as they are if it takes them, for example in an
    ``nn.Embedding``; a model that does not take them gets floating-point numbers.

    Raises
    ------
    ModelError: a random layer that cannot be tied to a key, a module that cannot take the data, outputs of the wrong shape, or a loss
    that fails, has no gradient, or depends on more than one sample.
    """
    if isinstance(model, nn.Module):
        raise ModelError("got a module; give a function that makes a fresh one, e.g. lambda: copy.deepcopy(module)")

    if not callable(model):
        raise ModelError(f"got {model!r}; give a function that makes a fresh module")

    make = partial(_made, model)
    module = construct(make, 0)
    layout = layout_of(module)
    federation, outputs = _tried(make, federation, transform)
    kind = federation.targets
    if loss is None:
        single = kind == "classes" and outputs.shape[-1] == 1
        loss = "bce" if single or kind == "multilabel" else "half_squared_error" if kind == "numbers" else "cross_entropy"
    elif not isinstance(loss, str | Mapping):
        loss = checked_loss(loss, outputs, _targets(federation))
    given = ["loss" if kind == "numbers" else "accuracy"] if metric is None else metric
    given = given if isinstance(given, list | tuple) else [given]
    if not given:
        raise ConfigError("got no metric; leave metric out, or name one", "metric")
    headline, metrics = chosen(given, kind, federation.classes, key="metric")
    return Task(name, federation, make, loss, headline, transform, layout, metrics)


def _made(model: Callable[[], nn.Module]) -> nn.Module:
    """Return a fresh module whose random layers draw from keys."""
    made = model()
    if not isinstance(made, nn.Module):
        raise ModelError(f"the function that makes the model gave {type(made).__name__}; expected a torch.nn.Module")
    return replace_stochastic(made)


def _tried(make: Callable[[], nn.Module], federation: Federation, transform: Transform | None) -> tuple[Federation, Tensor]:
    """Return the federation with samples that the model takes, whole numbers as they are or, failing that, as float32; and outputs."""
    whole = federation.x.dtype == torch.int64
    try:
        return federation, _try(make, federation, transform)
    except ModelError:
        embeds = any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in make().modules())
        if not whole or embeds:  # an embedding's own message says what is wrong with the numbers
            raise
        federation = dataclasses.replace(federation, x=federation.x.float())
    return federation, _try(make, federation, transform)


def _try(make: Callable[[], nn.Module], federation: Federation, transform: Transform | None) -> Tensor:
    """Return outputs of two samples; two fresh modules with the same weights must give the same in training mode."""
    batch = _two_samples(federation, transform)
    want = (*(federation.y.shape[1:] if federation.targets == "positions" else ()), federation.classes or federation.y.shape[1])
    least = 1 if federation.targets == "classes" and want == (2,) else want[-1]  # one logit tells two classes apart
    first, second = (outputs_of(construct(make, 0), batch, want, least) for _ in range(2))
    if not torch.allclose(first, second, equal_nan=True):
        raise ModelError(
            "two modules of the same weights give different outputs for the same batch: something in them draws random numbers "
            "(numpy.random, random); use a motley.tasks.nn.Dropout layer instead"
        )
    return first


def sample_outputs(task: Task) -> tuple[Tensor, Tensor]:
    """Return the outputs of a fresh model in eval mode for two samples, and two targets."""
    batch = _two_samples(task.federation, task.transform)
    with torch.no_grad():
        outputs: Tensor = construct(task.model, 0).eval()(batch)
    return outputs, _targets(task.federation)[:2]


def _targets(federation: Federation) -> Tensor:
    """Return at least two targets, different ones if there are any, at most four."""
    rows = federation.train.values if len(federation.train.values) else np.arange(len(federation.y))
    some: Tensor = torch.unique(federation.y[torch.from_numpy(rows[:: max(1, len(rows) // 1000)])], dim=0)[:4]
    return some if len(some) > 1 else some[[0, 0]]


def _two_samples(federation: Federation, transform: Transform | None) -> Tensor:
    mine = federation.train.values[:2]
    batch = federation.x[torch.from_numpy(mine)] if len(mine) else federation.x[:2]  # a federation with test samples only
    shape = list(batch.shape)
    try:
        batch = transform(batch, None) if transform else batch
        return model_input(batch if len(batch) > 1 else batch.repeat(2, *(1,) * (batch.dim() - 1)), torch.float32)
    except Exception as error:  # a user's transform may raise or return anything
        raise ModelError(f"the transform cannot take a batch of shape {shape}: {_reason(error)}") from error


def outputs_of(module: nn.Module, batch: Tensor, want: tuple[int, ...], least: int) -> Tensor:
    """Return the module's outputs for a batch, ``[B, *want]``, or another width of at least ``least``.

    Raises
    ------
    ModelError: it cannot take the batch, gives another shape, draws from torch's process-wide generator, or has no gradient.
    """
    found: list[Any] = []

    def forward(fresh: nn.Module) -> None:
        with torch.enable_grad():
            found.append(fresh(batch))

    kind = type(module).__name__
    try:
        require_keyed(module, forward)
    except ModelError:
        raise
    except Exception as error:  # a user's forward may raise anything
        raise ModelError(f"the {kind} cannot take a batch of shape {list(batch.shape)}: {_reason(error)}") from error
    out, expected = found[0], [len(batch), *want]
    if not isinstance(out, Tensor) or list(out.shape[:-1]) != expected[:-1] or out.shape[-1] < least:
        got = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        why = " (a class per position, [n, T]; labels 0 or 1 [n, C] need multilabel=True)" if len(want) > 1 else ""
        raise ModelError(f"the {kind} gives {got} for a batch of {len(batch)}; expected {expected}{why}")
    if not out.requires_grad:
        raise ModelError(f"the outputs of the {kind} do not depend on its parameters (detach, no_grad, whole numbers)")
    return out.detach()


def _reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    plain = first and isinstance(error, RuntimeError | TypeError | ValueError)
    return first if plain else f"{type(error).__name__} {first}".strip()


def _taken(inputs: Any, given: ArrayLike | str) -> tuple[Any, NDArray[Any]]:
    """Return the inputs without a column that is given by its name, and its values."""
    if not isinstance(given, str):
        return inputs, array_of(given)
    if not is_table(inputs):
        raise DataError(f"got {given!r} as the name of a column, and x is an array; give an array, or x as a DataFrame")
    rest, values, _ = take_columns(inputs, given, None, "the table given")
    return rest, values


def _client_files(root: Path) -> list[tuple[str, list[Path]]]:
    """Return name and files of every client."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder")
    kinds = (".npz", ".parquet", ".csv")
    single = [(path.stem, [path]) for path in sorted(root.iterdir()) if path.suffix in kinds]
    nested = [
        (inner.name, [path for path in sorted(inner.iterdir()) if path.suffix in kinds])
        for inner in sorted(root.iterdir())
        if inner.is_dir()
    ]
    found = [(name, paths) for name, paths in (*single, *nested) if paths]
    if not found:
        raise DataError(f"{root} has no files of clients; expected one .npz, .parquet or .csv file (or sub-folder) per client")
    return found


def _federation(dataset: Dataset, split: Split, seed: int) -> Federation:
    """Return the federation of the natural clients."""
    key = Key(seed).fold("split")
    rows = partition_input(dataset, split, key)
    owner = rows.groups if rows.groups is not None else np.zeros(len(rows.rows), np.int64)
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=int(dataset.groups.max()) + 1 if dataset.groups is not None else 1)
    return federate(dataset, rows, Ragged(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), order), split, key)
