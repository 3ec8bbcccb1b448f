"""What is settled before the first run of a comparison: which variants cannot run, whether
*stable* will be empty, and the runs that ``motley compare --controls`` adds.

A control is the reference with another method's value of one setting, or of all settings in which
they differ beside the method (:mod:`motley.results.aspects`). It is stored in ``controls`` below
the comparison's folder, with its name in ``run.json``, so that a later report finds it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motley.algorithms.fedavg import plain_fedavg
from motley.core.errors import ConfigError, DataError, ModelError, UserError
from motley.core.keys import Streams
from motley.core.own_code import in_one_line, place_in_own_code
from motley.experiments.build import check_build
from motley.experiments.chosen_jobs import RunSize, size_of
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.experiments.store import RunFolder
from motley.experiments.sweep_point import Point
from motley.results.aspects import (
    LOCAL_WORK,
    OPTIMIZER,
    TUNES_ITSELF,
    TUNING,
    WEIGHTS,
    Aspect,
    ComparedMethod,
    Pair,
    in_list,
    pairs_of,
    value_at,
    wanted_words,
    world_sentences,
)
from motley.results.labels import IGNORED, group_runs
from motley.results.load import Run, read_table
from motley.results.measures import STABLE
from motley.tasks.task import Task

Refuses = Callable[[str, Experiment], UserError | None]
MOST = 100
"""Controls up to which nobody is asked."""
_TASK_KEYS = (
    *("task", "split", "partition", "population", "public", "seed", "pin"),
    *("label_noise", "feature_shift", "concept_shift"),
)
"""Keys that the samples of a run depend on."""


@dataclass(frozen=True)
class Controls:
    """The controls of a comparison: named experiments, and what cannot be made, in sentences."""

    experiments: Sequence[tuple[str, Experiment]]
    refused: Sequence[str]


def controls_of(
    points: Sequence[Point],
    refusal: Refuses = lambda name, experiment: None,
    base: Path = Path(),
) -> Controls:
    """Return the experiments that make each method equal to its reference in one setting, and in
    all that the reference takes; without those that the comparison has.

    Parameters
    ----------
    refusal: returns why an experiment of this name cannot run; None if it can.
    base: folder of the comparison, which remembers its reference.
    """
    groups, reference = _groups(points, base)
    methods = [_method(label, members[0].experiment) for label, members in groups.items()]
    controls = _Found(methods, groups, {point.experiment.result_id() for point in points}, refusal)
    pairs = pairs_of(methods, reference)
    controls.refused |= dict.fromkeys(world_sentences(pairs))
    for pair in pairs:
        if pair.world:  # no setting of the reference makes them comparable
            continue
        possible = [aspect for aspect in pair.aspects if controls.add(pair, (aspect,))]
        if len(pair.aspects) > 1 and not controls.add(pair, pair.aspects, report=False):
            controls.add(pair, possible if len(possible) > 1 else ())
    return Controls(list(controls.experiments.values()), list(controls.refused))


@dataclass
class _Found:
    """Controls as they are found. ``there``: ids of what the comparison runs."""

    methods: Sequence[ComparedMethod]
    groups: Mapping[str, Sequence[Point]]
    there: Collection[str]
    refusal: Refuses
    experiments: dict[str, tuple[str, Experiment]] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    def add(self, pair: Pair, aspects: Sequence[Aspect], report: bool = True) -> bool:
        """Add the runs of a control; return whether there are any, here or in the comparison.
        ``report``: whether a control that cannot run is kept with its reason."""
        if not aspects or not all(map(pair.takes, aspects)):
            return False
        if any(method.is_control(pair.reference, pair.method, aspects) for method in self.methods):
            return True
        name = _name(pair, aspects, self.methods)
        changed = []
        try:
            for experiment in _like(pair, self.groups):
                changed.append(_changed(experiment, _changes(pair, aspects), aspects))
                reason = self.refusal(name, changed[-1])
                if reason is not None:
                    raise reason
        except UserError as error:
            if report:
                self.refused[f"{name} cannot run ({error})"] = None
            return False
        for experiment in changed:
            if experiment.result_id() not in self.there:
                self.experiments.setdefault(experiment.result_id(), (name, experiment))
        return bool(changed)


def _groups(points: Sequence[Point], base: Path) -> tuple[dict[str, list[Point]], str]:
    """Return label as in reports -> points, and the label of the reference."""
    there = {point.folder(base): point for point in points}
    groups = group_runs(
        [
            Run(
                folder,
                {
                    "name": point.experiment.name,
                    "seed": point.experiment.seed,
                    "config": point.experiment.resolved(),
                },
                {},
            )
            for folder, point in there.items()
        ]
    )
    by_label = {label: [there[run.directory] for run in runs] for label, runs in groups.items()}
    return by_label, groups.reference


def _method(label: str, experiment: Experiment) -> ComparedMethod:
    personal = experiment.part("algorithm").change(plain_fedavg()).personal
    return ComparedMethod.of(label, experiment.resolved(), personal)


def _like(pair: Pair, groups: Mapping[str, Sequence[Point]]) -> Iterator[Experiment]:
    """Yield the reference with each seed that both methods have."""
    seeds = {point.experiment.seed for point in groups[pair.method.label]}
    for point in groups[pair.reference.label]:
        if point.experiment.seed in seeds:
            yield point.experiment


def _name(pair: Pair, aspects: Sequence[Aspect], methods: Sequence[ComparedMethod]) -> str:
    keys = [method.keys for method in methods]
    words = [
        wanted_words(aspect.name, aspect.held_against(pair.method.keys, keys)) for aspect in aspects
    ]
    return f"{pair.reference_name} with {in_list(words)}"


def _changed(
    experiment: Experiment, changes: Mapping[str, Any], aspects: Sequence[Aspect]
) -> Experiment:
    """Return the reference with changes; a part that weighs clients otherwise where nothing is
    written leaves the weights as they were."""
    changed = experiment.replace(changes)
    weights = experiment.weighting()
    if WEIGHTS not in aspects and changed.weighting() != weights:
        return changed.replace({"weights": weights})
    return changed


def _changes(pair: Pair, aspects: Sequence[Aspect]) -> dict[str, Any]:
    """Return the keys that give the reference the method's values of some aspects."""
    changes: dict[str, Any] = {}
    for aspect in aspects:
        mine = aspect.of(pair.method.keys)
        theirs = aspect.of(pair.reference.keys)
        if aspect is TUNING:
            inner = pair.reference.keys["algorithm"]
            tuning = pair.method.keys["fine-tuning"]
            if tuning is None and TUNES_ITSELF & inner.keys():
                tuning = {"epochs": 0, "steps": 0}
            changes["algorithm"] = (
                inner if tuning is None else {"name": "fine_tuned", "method": inner, **tuning}
            )
        elif aspect is OPTIMIZER and pair.method.with_own_optimizer(pair.reference):
            changes["local.optimizer"] = value_at(pair.method.keys, "local.optimizer")
        elif aspect is OPTIMIZER:  # the rest of the table is other aspects', and stays
            options = mine["local.optimizer"]
            changes |= {
                f"local.optimizer.{option}": value
                for option, value in options.items()
                if value != theirs["local.optimizer"].get(option)
            }
        elif aspect is LOCAL_WORK:
            changes |= {
                key: value
                for key, value in mine.items()
                if value != theirs[key]
                and not (value is None and key in ("local.epochs", "local.steps"))
            }
        else:
            changes |= {key: value for key, value in mine.items() if value != theirs[key]}
    return changes


def place_of(point: Point, base: Path) -> Path:
    """Return the folder of a control: where it is already, else below ``base/controls``."""
    run_id = point.experiment.run_id()
    for folder in sorted(base.glob(f"*/{run_id}")):
        if RunFolder(folder).finished(point.experiment):
            return folder
    begun = sorted((base / "controls").glob(f"*/{run_id}"))
    return begun[0] if begun else point.folder(base / "controls")


class BuildCheck:
    """Says which experiments cannot be built. One seed of each variant is tried; data that cannot
    be read are left to the runs.

    Parameters
    ----------
    data: folder searched first for data packs.
    """

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._reasons: dict[str, UserError | None] = {}
        self._sizes: dict[str, RunSize] = {}
        self._held: tuple[str, Task] | None = None

    def of(self, experiment: Experiment) -> UserError | None:
        """Return why an experiment cannot be built; None if it can."""
        variant = _variant(experiment)
        if variant not in self._reasons:
            try:
                task = self._task(experiment)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # its run says them
                    self._sizes[variant] = size_of(*check_build(experiment, self._data, task))
                self._reasons[variant] = None
            except (DataError, MemoryError):
                self._reasons[variant] = None
            except (ConfigError, ModelError) as error:
                self._reasons[variant] = error
            except Exception as error:  # a class of the user's own may raise anything
                place = place_in_own_code(error)
                if not place:
                    raise
                self._reasons[variant] = ConfigError(f"{in_one_line(error)}{place}")
        return self._reasons[variant]

    def size(self, experiment: Experiment) -> RunSize | None:
        """Return what an experiment needs that was found to be built; None of others."""
        return self._sizes.get(_variant(experiment))

    def _task(self, experiment: Experiment) -> Task:
        """Return the experiment's samples, those of the experiment before where they are the
        same."""
        keys = experiment.resolved()
        samples = repr({key: keys[key] for key in _TASK_KEYS})
        if self._held is None or self._held[0] != samples:
            streams = Streams(experiment.seed, experiment.pin)
            self._held = (samples, task_of(experiment, streams, self._data))
        return self._held[1]


def _variant(experiment: Experiment) -> str:
    """Return what seeds of one variant have in common."""
    keys = experiment.resolved()
    return repr({key: value for key, value in keys.items() if key not in IGNORED})


def empty_stable(experiment: Experiment) -> str | None:
    """Return the sentence for a run whose *stable* will be empty for want of evaluations past its
    half; None for others, and where nothing says how many rounds it has."""
    rounds = experiment.stop.rounds
    if rounds is None:
        return None
    evaluated = [
        version
        for version in range(1, rounds + 1)
        if experiment.evaluate.due(version) or version == rounds
    ]
    late = sum(version > rounds / 2 for version in evaluated)
    if late >= STABLE:
        return None
    every = rounds // (2 * STABLE)
    if every:
        mend = f"write evaluate.every = {every}"
    else:
        mend = f"a run of at least {2 * STABLE - 1} rounds, with evaluate.every = 1, has one"
    count = f"{late} evaluation{'s' if late != 1 else ''}"
    return (
        f"stable will be empty: {count} past half of the run, and it is the mean of {STABLE}; "
        f"{mend}; without it methods are compared by their last evaluations"
    )


def wall_s(folder: Path) -> float:
    """Return the wall seconds of a finished run; 0 where nothing was timed."""
    return float(np.nansum(read_table(folder, "timings")["wall_s"].to_numpy()))


def in_minutes(seconds: float) -> str:
    """Return a time in minutes, rounded up to a tenth.

    >>> in_minutes(61.0)
    '1.1 minutes'
    """
    return f"{np.ceil(seconds / 6) / 10:.1f} minutes"
