"""The two sides that are compared: what each is, as a file, keys, a stored run or a folder of runs
has it, with its seeds and what is stored of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, UserError
from motley.core.extensions import required_extension
from motley.core.files import is_file, is_folder, no_file
from motley.core.own_code import is_motley
from motley.experiments.config import Experiment
from motley.experiments.run import as_experiment
from motley.experiments.store import RunFolder, installed_versions
from motley.experiments.sweep import expand
from motley.results.aspects import in_list
from motley.results.labels import group_runs
from motley.results.load import Run, load, load_all
from motley_advice.explanation.causes import READING, KeyDifference, leaves

Given = Experiment | str | Path | Mapping[str, Any]
RECIPE = "recipe:"
"""What the name of a recipe's row begins with."""
_RECORDED = ("numerics", "versions", "data", "parameters", "work", "task")
"""What ``run.json`` says of a run beside its keys."""


@dataclass(frozen=True)
class Reading:
    """How the figure is read off a run.

    Parameters
    ----------
    metric: its name.
    round: ``last`` or ``best``.
    scope: of ``evaluations``; None: that of the headline.
    """

    metric: str
    round: str = "last"
    scope: str | None = None


@dataclass(frozen=True)
class Side:
    """One of the two experiments that are compared.

    Parameters
    ----------
    label: what the caller gave, in words.
    experiment: with the first of the seeds.
    seeds: of its file's grid, or of the stored runs.
    stored: seed -> finished run that was given.
    unfinished: seeds of runs that were given and have not ended.
    unread: sentences on code beside its file that is not the code that is run.
    reading: how its figure is read.
    of_seed: seed -> experiment, where more than the key ``seed`` goes with it; None elsewhere.
    measures: of the columns in which its numbers are printed, of a row of a table.
    """

    label: str
    experiment: Experiment
    seeds: tuple[int, ...]
    stored: Mapping[int, Run] = field(default_factory=dict)
    reading: Reading = field(default_factory=lambda: Reading(""))
    of_seed: Callable[[int], Experiment] | None = None
    unfinished: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()

    @cached_property
    def document(self) -> dict[str, Any]:
        """The resolved experiment, with a table ``reading``."""
        return {**self.experiment.resolved(), READING: asdict(self.reading)}

    def with_seed(self, seed: int) -> Side:
        """Return the side whose experiment is that of a seed."""
        if self.of_seed is None:
            return replace(self, experiment=self.experiment.replace({"seed": seed}))
        return replace(self, experiment=self.of_seed(seed))


def made_here(folder: Path) -> bool:
    """Return whether the run in a folder is one of the versions that are installed here."""
    return (RunFolder(folder).read() or {}).get("versions") == installed_versions()


def why_run_again(a: Side, b: Side) -> str | None:
    """Return why the stored runs of both sides may not be what would be computed here, in a
    sentence; None where they are."""
    here = installed_versions()
    for label, side in (("A", a), ("B", b)):
        for seed, run in side.stored.items():
            versions = list(leaves(run.meta.get("versions") or {}, here))
            if versions:
                words = ", ".join(f"{row.key} {row.a}, here {row.b}" for row in versions[:3])
                return f"{label} was run under other versions ({words})"
            if run.meta.get("run_id") != side.with_seed(seed).experiment.run_id():
                return f"{label} was run on other files or code than there are now"
    runs = [run for side in (a, b) for run in side.stored.values()]
    if len({repr(run.meta.get("numerics")) for run in runs}) > 1:
        return "A and B were run under other numerics than each other"
    return None


def side_of(given: Given, overrides: Sequence[str] = (), data: Path | None = None) -> Side:
    """Return a side from an experiment file, its keys, the folder of a run or of one method's runs,
    a run id below ``runs``, or a recipe's row, ``recipe:NAME/ROW``, which may need its ``data``.

    Raises
    ------
    ConfigError: nothing of this kind, several experiments, or one that cannot be run again here.
    StoreError, DataError: no runs in a folder, or damaged ones.
    """
    if isinstance(given, str) and given.startswith(RECIPE):
        of_recipe = required_extension("explained", "recipe")
        return checked_side(of_recipe(given.removeprefix(RECIPE), overrides, data))
    folder = _folder_of(given) if isinstance(given, str | Path) else None
    if folder is not None:
        return _of_runs(folder, overrides)
    experiment = as_experiment(given, overrides)
    points = expand(experiment)
    labels = list(dict.fromkeys(point.label for point in points))
    label = str(given) if isinstance(given, str | Path) else experiment.name
    if len(labels) > 1:
        raise ConfigError(
            f"{label} is {len(labels)} experiments ({_some(labels)}), and one is compared with "
            "another; leave its [grid] out, or give the folder of one method's runs"
        )
    seeds = dict.fromkeys(point.experiment.seed for point in points)
    side = Side(label, points[0].experiment, tuple(seeds))
    if isinstance(given, str | Path):
        side = replace(side, unread=tuple(_unread_code(Path(given), side.experiment)))
    return checked_side(side)


def _unread_code(file: Path, experiment: Experiment) -> Iterator[str]:
    """Yield in a sentence each module beside an experiment's file that has the name of one that the
    experiment runs, and is another: modules are looked for in the working folder."""
    modules = {
        getattr(part, "__module__", type(part).__module__) for part in experiment.own_parts()
    }
    for name in sorted(module for module in modules if module and not is_motley(module)):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path is None:
            continue
        beside = file.parent / Path(path).name
        if is_file(beside) and beside.read_bytes() != Path(path).read_bytes():
            yield (
                f"{beside} is not read: {name} is {path} for A and for B; to compare both, give "
                "one of the files another name"
            )


def _folder_of(given: str | Path) -> Path | None:
    """Return the folder that a path or a run id names, or a run's record lies in; None for a
    file."""
    if Path(given).name == "run.json":
        return Path(given).parent
    if is_folder(Path(given)):
        return Path(given)
    if no_file(Path(given)) == "does not exist" and re.fullmatch(r"[0-9a-f]{12}", str(given)):
        places = sorted(Path("runs").glob(f"**/{given}/run.json"))
        if not places:
            raise ConfigError(f"there is no run {given} below runs; give the path of its folder")
        return places[0].parent
    return None


def _of_runs(folder: Path, overrides: Sequence[str]) -> Side:
    """Return the side of a folder with one run, or with one method's runs."""
    single = no_file(folder / "run.json") != "does not exist"
    runs = [load(folder)] if single else load_all(folder)
    groups = group_runs(runs)
    if len(groups) > 1:
        place = runs[0].directory
        example = place if place.parent == folder else place.parent
        raise ConfigError(
            f"{folder} has runs of {len(groups)} methods ({_some(list(groups))}); give one of "
            f"them, e.g. {example}"
        )
    first = runs[0]
    if first.deployed:
        raise ConfigError(f"the clients of {folder} were real, and nobody can run them again here")
    if (first.config.get("task") or {}).get("name") == "own":
        raise ConfigError(
            f"{folder} is of a task made in Python, which a run does not keep; give the experiment "
            "with its task: motley.explain(...)"
        )
    try:
        experiment = Experiment(**first.config)
    except (UserError, TypeError) as error:
        raise ConfigError(
            f"the run in {first.directory} is not one of this version ({error}); run its file again"
        ) from None
    if overrides:
        return checked_side(Side(str(folder), as_experiment(experiment, overrides), _seeds(runs)))
    stored = {run.seed: run for run in runs if run.finished}
    side = Side(str(folder), experiment, _seeds(runs), stored)
    unfinished = tuple(seed for seed in side.seeds if seed not in stored)
    return checked_side(replace(side, unfinished=unfinished))


def _seeds(runs: Sequence[Run]) -> tuple[int, ...]:
    return tuple(sorted({run.seed for run in runs}))


def checked_side(side: Side) -> Side:
    """Return the side.

    Raises
    ------
    ConfigError: it is private, and every run would release more of the data.
    """
    privacy = side.experiment.privacy
    if privacy is not None and privacy.noise_seed is None:
        raise ConfigError(
            f"{side.label} is private, and each run of an explanation would release more of its "
            "data; where they are public or made, write privacy.noise_seed = 0, with which nothing "
            "is private"
        )
    return side


def _some(labels: Sequence[str]) -> str:
    return in_list([*labels[:3], *(["others"] if len(labels) > 3 else [])])


def recorded_differences(a: Side, b: Side) -> list[KeyDifference]:
    """Return what the records of two stored sides say otherwise beside the keys: versions,
    numerics, variants of data, notes on the samples; nothing where one side is not stored."""
    if not a.stored or not b.stored:
        return []
    first, second = (
        {key: next(iter(side.stored.values())).meta.get(key) for key in _RECORDED}
        for side in (a, b)
    )
    return list(leaves(first, second))
