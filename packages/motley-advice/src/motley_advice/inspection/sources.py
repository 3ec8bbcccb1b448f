"""What is given to an inspection: an experiment with the variants of its grid, finished runs, or a
federation made in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motley.core.components import imports
from motley.core.errors import ConfigError
from motley.core.files import is_folder
from motley.experiments.config import Experiment
from motley.experiments.document import parse_settings
from motley.experiments.run import as_experiment, with_own
from motley.experiments.sweep import expand
from motley.results.load import Run, load_all
from motley.tasks.task import Federation, Task
from motley_advice.inspection.own_tables import (
    experiment_of,
    federation_of,
    holds_tables,
    table_name,
)
from motley_data.formats import recognises

_SAME = (
    "task",
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "drift",
    "split",
    "public",
    "population",
    "device",
    "network",
    "availability",
    "capacity",
    "failures",
)
"""Keys that make a federation: runs of the same ones (and seed) have the same clients."""
_DATA = (
    "seed",
    "pin",
    "task",
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "split",
    "public",
    "population",
)
"""Keys on which the samples of clients depend."""
_EXPECTED = (
    "expected an experiment file (.toml), a table (.csv, .parquet), a folder of runs or of tables, "
    "an Experiment, its keys, runs, or a federation"
)


@dataclass(frozen=True)
class InspectionSource:
    """One federation to inspect.

    Parameters
    ----------
    label: file, folder or name.
    experiment: whose clients are inspected, the first run where no run of a grid has those of the
    file; None for a federation without one.
    federation: made in Python; None where the experiment makes it.
    variants: label -> experiment, of a grid or of finished runs, seeds aside.
    keys: all keys of every run, planned or finished.
    runs: the finished ones.
    toml: an experiment with the table that was given, empty where none was.
    """

    label: str
    experiment: Experiment | None = None
    federation: Federation | None = None
    variants: Mapping[str, Experiment] = field(default_factory=dict)
    keys: Sequence[Mapping[str, Any]] = ()
    runs: Sequence[Run] = ()
    toml: str = ""


def source_of(
    subject: Any,
    overrides: Sequence[str] = (),
    task: Task | None = None,
    allow_import: bool = False,
    label: str | None = None,
    client: str | None = None,
    table: Mapping[str, Any] | None = None,
) -> InspectionSource:
    """Return what is to be inspected; ``label`` and ``client`` are columns of tables, ``table``
    says how these are written, as ``overrides`` do, which otherwise are an experiment's.

    Raises
    ------
    ConfigError: nothing of the kind, or runs of several federations. StoreError: a folder without
    runs. DataError: damaged runs.
    """
    if isinstance(subject, Task):
        subject = subject.federation
    if isinstance(subject, Federation):
        return InspectionSource("federation", federation=subject)
    if isinstance(subject, str | Path) and holds_tables(Path(subject)):
        path = Path(subject)
        options = {**(table or {}), **_of_task(overrides)}
        federation = federation_of(path, label, client, options)
        toml = (
            ""
            if path.is_dir()
            else experiment_of(
                federation=federation, path=path, label=label, client=client, table=options
            )
        )
        return InspectionSource(table_name(path), federation=federation, toml=toml)
    if label is not None or client is not None or table:
        if (
            isinstance(subject, str | Path)
            and is_folder(Path(subject))
            and next(Path(subject).rglob("run.json"), None) is None
        ):
            raise ConfigError(
                f"the folder {subject} holds no table (.csv, .parquet or .npz); name one that "
                "does, or a file"
            )
        key, option = next(
            (key, value)
            for key, value in {"label": label, "client": client, **(table or {})}.items()
            if value is not None
        )
        raise ConfigError(
            f"got {option!r}, and {subject} is no table; an experiment names its columns "
            "itself: "
            'task = { name = "tabular", data = "all.csv", label = "y", client = "hospital" }',
            key,
        )
    if isinstance(subject, str | Path) and is_folder(Path(subject)):
        _refuse_samples(Path(subject))
        return _of_runs(load_all(subject), str(subject), task, allow_import)
    if isinstance(subject, Run):
        return _of_runs([subject], subject.name, task, allow_import)
    if isinstance(subject, Sequence) and not isinstance(subject, str):
        if not subject or not all(isinstance(entry, Run) for entry in subject):
            raise ConfigError(f"got {_brief(subject)}; {_EXPECTED}")
        return _of_runs(list(subject), subject[0].name, task, allow_import)
    if not isinstance(subject, str | Path | Experiment | Mapping):
        raise ConfigError(f"got {_brief(subject)}; {_EXPECTED}")
    with imports(allow_import):
        experiment = as_experiment(subject if task is None else with_own(subject, task), overrides)
        points = expand(experiment)
    variants: dict[str, Experiment] = {}
    for point in points:
        variants.setdefault(point.label, point.experiment)
    name = Path(subject).stem if isinstance(subject, str | Path) else experiment.name
    of_file = any(same_data(point.experiment, experiment) for point in points)
    return InspectionSource(
        label=name,
        experiment=experiment if of_file else points[0].experiment,
        federation=None,
        variants=variants,
        keys=[point.experiment.resolved() for point in points],
    )


def same_data(first: Experiment, second: Experiment) -> bool:
    """Return whether the clients of two experiments hold the same samples."""
    a = first.resolved()
    b = second.resolved()
    return all(a[key] == b[key] for key in _DATA)


def _refuse_samples(folder: Path) -> None:
    """Refuse a folder of pictures or other samples, which says nothing of clients."""
    if next(folder.rglob("run.json"), None) is None and recognises(folder):
        raise ConfigError(
            f"{folder} holds samples and no runs; an experiment says whose they are: write a file "
            f'with [task] name = "image", data = "{folder}" and [partition] name = "dirichlet" (or '
            '"by_writer", where the folder says whose they are), and inspect that'
        )


def _of_task(settings: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a table's task: ``trim=true``, ``task.trim=true``."""
    keys = parse_settings(settings)
    return {key.removeprefix("task."): value for key, value in keys.items()}


def _of_runs(
    runs: Sequence[Run], label: str, task: Task | None, allow_import: bool
) -> InspectionSource:
    """Return the federation of finished runs."""
    from motley.results.labels import label_runs

    _check_one_federation(runs, label)
    first = min(runs, key=lambda run: run.seed)
    with imports(allow_import):
        experiments = {
            name: _experiment(run, task) for name, run in zip(label_runs(runs), runs, strict=True)
        }
        return InspectionSource(
            label=label,
            experiment=_experiment(first, task),
            federation=None,
            variants=experiments,
            keys=[run.config for run in runs],
            runs=runs,
        )


def _check_one_federation(runs: Sequence[Run], label: str) -> None:
    """Refuse runs of several federations, and of clients elsewhere."""
    if any(run.deployed for run in runs):
        raise ConfigError(
            f"the samples of {label} lie at the clients of a deployment, and nobody can inspect "
            "them here; give the experiment file, or a federation like theirs"
        )
    differing = [key for key in _SAME if len({repr(run.config.get(key)) for run in runs}) > 1]
    if differing:
        raise ConfigError(
            f"the runs in {label} are of several federations (they differ in "
            f"{', '.join(differing)}); give a folder for each, which then stand side by side: "
            "motley inspect runs/a runs/b"
        )


def _experiment(run: Run, task: Task | None) -> Experiment:
    """Return the experiment of a run again."""
    if task is not None:
        return with_own({key: value for key, value in run.config.items() if key != "task"}, task)
    if (run.config.get("task") or {}).get("name") == "own":
        raise ConfigError(
            f"{run.name} is of a task made in Python, which a run does not keep; give it: "
            "motley.inspect(runs, task=...)",
            "task",
        )
    return Experiment(**run.config)


def _brief(subject: Any) -> str:
    return f"an object of type {type(subject).__name__}"
