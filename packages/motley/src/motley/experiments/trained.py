"""Runs with their models: the trained module, predictions for new samples, and the models of the
clients.

>>> from motley.experiments.run import run
>>> import tempfile
>>> task = {"name": "tabular", "data": "iris"}
>>> keys = {"task": task, "population": 4, "cohort": 2, "stop": {"rounds": 3}}
>>> with tempfile.TemporaryDirectory() as folder:
...     done = run(keys, out=folder + "/run")
...     done.predict([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]).shape
(2,)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from motley.core.adapters import MERGED
from motley.core.card import html_rows
from motley.core.client_names import number_of
from motley.core.components import imports
from motley.core.errors import ConfigError, DataError, ModelError, StoreError
from motley.core.extensions import required_extension
from motley.core.files import changed, disk_error, replacing, with_digest
from motley.core.strict_json import restored, to_json
from motley.experiments.shown import facts_of_keys, in_cell, run_rows
from motley.results import load as results
from motley.results.client_table import client_table
from motley.results.marks import checked
from motley.results.model_health import model_health
from motley.results.record import read_json

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from motley.tasks.preparation import Preparation
    from motley.tasks.task import Dataset, Federation, Task, TaskSource

_PREPARATION = "preparation.json"
_CHUNK = 1024
"""Samples that are predicted at a time."""


def describe_samples(task: Task) -> dict[str, Any]:
    """Return what a run's record says of its samples, so that its model can be made again without
    them; the same whatever form its engine holds them in."""
    from motley.engines.stored_images import StoredImages

    federation = task.federation
    dtype = "float32" if isinstance(task.transform, StoredImages) else str(federation.x.dtype)
    return {
        "shape": list(federation.x.shape[1:]),
        "dtype": dtype.removeprefix("torch."),
        "classes": federation.classes,
        "targets": federation.targets,
        "target_shape": list(federation.y.shape[1:]),
        "clients": len(federation),
        "prepared": federation.preparation is not None,
    }


def _tensor(x: Any, shape: list[int]) -> Tensor:
    """Return new samples as a tensor; ``shape``: of one that the model takes."""
    import torch

    try:
        return torch.from_numpy(np.array(x))
    except (TypeError, ValueError):  # words, mappings, rows of different lengths
        raise DataError(
            f"got a {type(x).__name__} that is no array of numbers; expected samples of shape "
            f"{['n', *shape]}"
        ) from None


def save_preparation(federation: Federation, folder: Path, private: bool = False) -> None:
    """Write ``preparation.json``: how new samples become model inputs; nothing where they are model
    inputs already.

    ``private``: of a private run, which keeps what single clients measured of their own rows, and
    what cells hold, to itself."""
    own = getattr(federation.preparation, "clients", False)
    if federation.preparation is not None and not (private and own):
        saved = federation.preparation.save()
        if federation.reading is not None and not private:
            column_table = required_extension("data", "column_table")
            saved["read"] = column_table(federation).as_json()
        text = to_json(with_digest(saved), indent=1)
        try:
            with replacing(folder / _PREPARATION) as file:
                file.write(f"{text}\n".encode())
        except OSError as error:
            raise disk_error(error, folder / _PREPARATION) from None


@dataclass(frozen=True, repr=False)
class TrainedRun(results.Run):
    """One run as it is stored on disk, with its models.

    Parameters
    ----------
    task: the task of a run whose data and model came from Python, or the source of its task; None:
    the run's record says how its model is made.
    allow_import: whether a task or model that the record names ``module:Class`` may be imported.
    """

    task: Task | TaskSource | None = field(default=None, compare=False, repr=False)
    allow_import: bool = field(default=False, compare=False, repr=False)

    def module(
        self, which: str = "final", factory: Callable[[], nn.Module] | None = None
    ) -> nn.Module:
        """Return the trained module with its weights, in evaluation mode, on the CPU.

        Parameters
        ----------
        which: ``final``, the model after the last round, or ``best``, that of the best round by
        validation samples.
        factory: makes a fresh module; needed where the model came from Python and the run was
        loaded without its task.

        Raises
        ------
        StoreError: the run is not finished, or kept no best round. ConfigError: nothing says how
        the module is made.
        ModelError: the factory makes another module.
        """
        from motley.tasks.weight_files import read_weights

        names = {"final": "model.safetensors", "best": "best.safetensors"}
        if which not in names:
            raise ConfigError(f"got {which!r}; expected 'final' or 'best'")
        path = self.directory / names[which]
        if not path.is_file():
            if which == "final":
                remedy = "its model is written at the end"
            else:
                remedy = "set split = { validation = 0.2 }"
            raise StoreError(f"{self.directory} has no {path.name}: {remedy}")
        return self._filled(
            factory or self._factory(), read_weights(checked(self.directory, self.meta, path.name))
        )

    def predict(self, x: Any, *, probabilities: bool = False, which: str = "final") -> NDArray[Any]:
        """Return the predictions for new samples, scaled as the run's own were.

        Parameters
        ----------
        x: ``[n, ...]`` samples as the data set has them. Texts: one, or a list of equally long
        ones. Rows of a table: a path, DataFrame, Arrow table, mapping of columns, list of records,
        or array ``[n, columns]``.
        which: see :meth:`module`.
        probabilities: return those of the classes, ``[n, C]``, instead of classes (their names,
        where the data has names). With several labels per sample both are ``[n, C]``, with a class
        per position ``[n, T]`` or ``[n, T, C]``; numbers are ``[n]`` or ``[n, d]``.

        Raises
        ------
        DataError: the samples do not have the form of the run's own. Others as in :meth:`module`.

        Example
        -------
        ``motley.load("runs/patients/3f9a").predict("new_patients.csv")``
        """
        return self._predict(self.module(which), x, None, probabilities)

    def to_onnx(self, path: str | Path, x: Any, which: str = "final") -> float:
        """Write the trained module as an ONNX file for batches of any size, after comparing what
        onnxruntime computes with torch, and return the largest difference, relative to the largest
        output where that is above 1.

        The file takes model inputs: samples as :meth:`predict` scales them. Its outputs are those
        of the module, before any softmax.

        Parameters
        ----------
        path: of the file.
        x: samples on which both are compared, as for :meth:`predict`.
        which: see :meth:`module`.

        Raises
        ------
        ConfigError: the extra ``onnx`` is not installed. ModelError: torch cannot export the
        module, or onnxruntime computes something else. StoreError: the file cannot be written.
        Others as in :meth:`predict`.

        Example
        -------
        ``run.to_onnx("patients.onnx", "patients.csv")``
        """
        from motley.experiments.onnx_export import export

        return export(self.module(which), self._inputs(x, None), Path(path))

    def plot(self, metric: str | None = None, over: str = "rounds") -> Figure:
        """Return a matplotlib figure of the run's evaluations.

        Parameters
        ----------
        metric: the headline by default.
        over: ``rounds``, ``virtual_seconds`` or ``traffic``.

        Raises
        ------
        ConfigError: no such metric, nothing to draw over by this name, or ``motley-report``, which
        draws it, is not installed.
        """
        figure: Figure = required_extension("function", "plot")({self.name: [self]}, metric, over)
        return figure

    @override
    def __repr__(self) -> str:
        """Return what was run, and what went wrong with its model."""
        return "; ".join([super().__repr__(), *self._troubles()])

    def _troubles(self) -> list[str]:
        return model_health(self) if self.finished else []

    def _repr_html_(self) -> str:
        """Return what was run and what came of it as a table, which a notebook shows."""
        if self.column("evaluations", "round").size:
            figures = run_rows([self])[0]
        else:
            figures = {"rounds": self.tables["rounds"].num_rows}
        facts = {**facts_of_keys(self.config), "finished": "yes" if self.finished else "no"}
        facts |= {
            name: in_cell(value) for name, value in figures.items() if name not in ("label", "seed")
        }
        if troubles := self._troubles():
            facts["note"] = "; ".join(troubles)
        return html_rows(f"{type(self).__name__} {self.name}", facts.items())

    def clients(self) -> ClientModels:
        """Return the models of the clients: ``run.clients()[7].predict(x)``, or by name,
        ``run.clients()["hosp_H"]``.

        Where an algorithm gives clients models of their own (FedBN, Ditto), each has its own,
        fine-tuned where the run examined it so; else all have the shared model. A client that never
        took part has the model it would start from. Where clients scale by their own rows, each
        predicts with its own scaling.
        """
        return ClientModels(self)

    def client_table(self) -> pa.Table:
        """Return every metric of every client at the last evaluation, a row for each, by name where
        clients have names.

        :func:`motley.results.client_table.client_table` lists the columns; ``.to_pandas()`` makes a
        pandas frame of it.
        """
        return client_table(self)

    @property
    def personal(self) -> bool:
        """Whether clients have models of their own."""
        return bool(self.meta.get("personal", False))

    @property
    def _own(self) -> Task | None:
        """The task whose data and model came from Python."""
        from motley.tasks.task import Task

        return self.task if isinstance(self.task, Task) else None

    @property
    def has_unlike_models(self) -> bool:
        """Whether clients hold models of different architectures."""
        if self._own is not None:
            return self._own.architectures is not None
        return self.config.get("models") is not None

    def _factory(self, number: int = 0) -> Callable[[], nn.Module]:
        """Return the function that makes the run's module, of several the one with this number."""
        from motley.tasks.task import Task

        if isinstance(self.task, Task):
            unlike = self.task.architectures
            return self.task.model if unlike is None else unlike.factories[number]
        record = self.config["task"]
        if record["name"] == "own":
            raise ConfigError(
                "this run's model came from Python, and nothing here knows it; write "
                "motley.load(directory, task=task), or .module(factory=make_module)"
            )
        from motley.experiments import registry

        with imports(self.allow_import):  # the task and, when its factory is made, its model
            source: Any = self.task or registry.build("task", record, "task")
            if self.has_unlike_models:
                source = replace(source, model=self.config["models"]["of"][number])
            factory: Callable[[], nn.Module] = source.factory(self._samples())
        return factory

    def _samples(self) -> Dataset:
        """Return a data set without samples that has the form of the run's own."""
        import torch

        from motley.tasks.task import Dataset

        about = self._about()
        integer = about["targets"] in ("classes", "positions")
        y = torch.zeros(0, *about["target_shape"], dtype=torch.int64 if integer else torch.float32)
        x = torch.zeros(0, *about["shape"], dtype=getattr(torch, about["dtype"]))
        return Dataset(
            x, y, about["classes"], np.zeros(0, bool), names=tuple(self.meta["task"]["classes"])
        )

    def _about(self) -> Mapping[str, Any]:
        about = self.meta.get("task", {}).get("samples")
        if not isinstance(about, dict):
            raise StoreError(
                f"{self.directory} was made by an older version, which did not write down the form "
                "of its samples"
            )
        return about

    def _filled(self, factory: Callable[[], nn.Module], weights: Mapping[str, Tensor]) -> nn.Module:
        import torch

        from motley.tasks.flat import construct, placed
        from motley.tasks.merged import merging

        if any(name.endswith(MERGED) for name in weights):
            factory = partial(merging, factory)
        dtype = getattr(torch, self.config.get("dtype", "float32"))
        module = placed(construct(factory, 0), dtype, "cpu")
        try:
            module.load_state_dict(weights)
        except RuntimeError as error:
            reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3])
            raise ModelError(f"the module is not the one of this run: {reason}") from None
        return module.eval()

    def _preparation(self) -> Preparation | None:
        from motley.tasks.preparation import restore_preparation

        if self._own is not None:
            return self._own.federation.preparation
        if not self._about()["prepared"]:
            return None
        if "privacy" in self.meta and not (self.directory / _PREPARATION).is_file():
            message = (
                "each client of this private run scales by its own rows, and what it measured "
                "of them is not in the run's folder"
            )
            raise StoreError(f"{message}; give the task to load(..., task=...)")
        path = checked(self.directory, self.meta, _PREPARATION)
        saved = read_json(path)
        try:
            if not isinstance(saved, dict) or changed(saved):
                raise ValueError("it was changed after it was written")
            plain = restored(saved)
        except ValueError as error:
            raise DataError(
                f"{path} cannot be read ({error}); it says how new samples become model inputs"
            ) from None
        return restore_preparation({key: value for key, value in plain.items() if key != "digest"})

    def _inputs(self, x: Any, client: int | None) -> Tensor:
        import torch

        from motley.tasks.task import model_input

        prepare = self._preparation()
        dtype = getattr(torch, self.config.get("dtype", "float32"))
        if prepare is not None:
            raw = prepare(x, client)
        else:
            about = self._about()
            raw = x.detach().cpu() if isinstance(x, torch.Tensor) else _tensor(x, about["shape"])
            if list(raw.shape[1:]) != about["shape"]:
                raise DataError(
                    f"got samples of shape {list(raw.shape)}; expected {['n', *about['shape']]}"
                )
            if raw.dtype == torch.uint8 and about["dtype"].startswith("float"):
                warnings.warn(
                    "got bytes (uint8), and this run learned from floating-point samples that were "
                    "scaled before they came here; scale these alike, e.g. predict(x / 255)",
                    stacklevel=4,
                )
            raw = raw.to(getattr(torch, about["dtype"]))
        if self._own is not None and self._own.transform is not None:
            raw = self._own.transform(raw, None)
        return model_input(raw, dtype)

    def _predict(
        self, module: nn.Module, x: Any, client: int | None, probabilities: bool
    ) -> NDArray[Any]:
        import torch

        inputs = self._inputs(x, client)
        with torch.no_grad():
            outputs = torch.cat([module(batch) for batch in torch.split(inputs, _CHUNK)])
        about = self._about()
        kind = about["targets"]
        classes = about["classes"]
        if self._own is not None and (dense := self._own.federation.target_shape):
            outputs = outputs.reshape(len(outputs), *dense, *outputs.shape[2:])
        if kind == "numbers":
            return np.asarray(outputs.numpy()[:, 0] if outputs.shape[1] == 1 else outputs.numpy())
        outputs = outputs[..., :classes]
        if kind == "multilabel":
            shares = outputs.sigmoid()
            return np.asarray(
                shares.numpy() if probabilities else (shares >= 0.5).to(torch.int64).numpy()
            )
        if probabilities:
            return np.asarray(outputs.softmax(-1).numpy())
        indices = outputs.argmax(-1).numpy()
        names = self.meta["task"]["classes"]
        return np.asarray(names)[indices] if len(names) == classes else np.asarray(indices)


@dataclass(frozen=True)
class ClientModel:
    """The model of one client; see :meth:`TrainedRun.clients`."""

    run: TrainedRun
    client: int

    def module(self, factory: Callable[[], nn.Module] | None = None) -> nn.Module:
        """Return the client's module in evaluation mode; ``factory`` and errors as in
        :meth:`TrainedRun.module`."""
        if not self.run.personal:
            return self.run.module(factory=factory)
        from motley.experiments.client_models import client_entries, holder_of

        own = client_entries(self.run.directory, self.run.meta, self.client)
        if self.run.has_unlike_models:
            number = holder_of(self.run.directory, self.run.meta, self.client)
            return self.run._filled(factory or self.run._factory(number), own)
        module = self.run.module(factory=factory)
        if own:
            module.load_state_dict({**module.state_dict(), **own})
        return module

    def predict(self, x: Any, *, probabilities: bool = False) -> NDArray[Any]:
        """Return the client's predictions; parameters and errors as in
        :meth:`TrainedRun.predict`."""
        return self.run._predict(self.module(), x, self.client, probabilities)


class ClientModels(Sequence[ClientModel]):
    """The models of all clients of a run, by client id (from the end where it is negative) or,
    where the clients have names, by name."""

    def __init__(self, run: TrainedRun) -> None:
        self._run = run
        self._count = int(run._about()["clients"])

    @overload
    def __getitem__(self, client: int | str) -> ClientModel: ...
    @overload
    def __getitem__(self, client: slice) -> list[ClientModel]: ...
    @override
    def __getitem__(self, client: int | str | slice) -> ClientModel | list[ClientModel]:
        if isinstance(client, slice):
            return [self[k] for k in range(self._count)[client]]
        if isinstance(client, str):
            client = number_of(client, self._run.client_names)
        if not -self._count <= client < self._count:
            raise IndexError(
                f"there is no client {client}; this run has clients 0 .. {self._count - 1}"
            )
        return ClientModel(self._run, client % self._count)

    @override
    def __iter__(self) -> Iterator[ClientModel]:
        return (self[k] for k in range(self._count))

    @override
    def __len__(self) -> int:
        return self._count


def load(
    directory: str | Path, task: Task | TaskSource | None = None, allow_import: bool = False
) -> TrainedRun:
    """Return the run in ``directory``; it may still be running, or have been killed while writing.

    Parameters
    ----------
    task: the task of a run whose data and model came from Python, for :meth:`TrainedRun.module` and
    what needs it.
    allow_import: let a task or model be named ``"module:Class"``, which imports the module when the
    model is made.

    Raises
    ------
    StoreError: there is no run there. DataError: its files are damaged.
    """
    return _trained(results.load(directory), task, allow_import)


def load_all(
    directory: str | Path, task: Task | TaskSource | None = None, allow_import: bool = False
) -> list[TrainedRun]:
    """Return every run in and below ``directory`` with its models, by path; parameters as in
    :func:`load`.

    Raises
    ------
    StoreError: there is none. DataError: the files of one are damaged.
    """
    return [_trained(run, task, allow_import) for run in results.load_all(directory)]


def _trained(run: results.Run, task: Task | TaskSource | None, allow_import: bool) -> TrainedRun:
    return TrainedRun(
        **{field.name: getattr(run, field.name) for field in fields(run)},
        task=task,
        allow_import=allow_import,
    )
