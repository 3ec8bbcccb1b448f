"""Sweeps: runs of one experiment for every combination of some keys' values, one after the other or
on a cluster.

A finished run is not run again, an interrupted one is resumed, and one that fails does not stop the
others.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from motley.core.card import Carded, html_rows
from motley.core.components import imports
from motley.core.errors import ConfigError, UserError, suggest
from motley.core.extensions import required_extension
from motley.core.files import user_path
from motley.core.own_code import in_one_line, own_code_in
from motley.engines.processes import workers_kept
from motley.experiments import document, registry
from motley.experiments.checks import with_metrics
from motley.experiments.chosen_jobs import WORTH_FORKED_S, WORTH_S, chosen_jobs, joint_runs
from motley.experiments.config import Experiment
from motley.experiments.controls import (
    MOST,
    BuildCheck,
    controls_of,
    empty_stable,
    in_minutes,
    place_of,
    wall_s,
)
from motley.experiments.data_variants import check_variants
from motley.experiments.parallel import prepare_workers, run_jobs, share_among, start_at_once
from motley.experiments.progress import (
    OneRun,
    ProgressDisplay,
    display,
    in_notebook,
    last_line,
    watched,
)
from motley.experiments.run import OnEnd, as_experiment, run_in, with_own
from motley.experiments.run_data import task_of
from motley.experiments.shown import in_cell, run_rows, runs_in_words, to_frame
from motley.experiments.store import RunFolder, default_folder
from motley.experiments.sweep_point import Point
from motley.experiments.trackers.tracker import RunGroup
from motley.experiments.trained import TrainedRun, load
from motley.results.aspects import in_list, value_at
from motley.results.comparison_file import (
    read_comparison,
    record_comparison,
    reference_runs,
)
from motley.results.labels import group_runs, label_runs
from motley.results.load import Run
from motley.results.method_groups import check_flags, unknown_reference, usual_reference
from motley.results.method_rows import target_of
from motley.results.model_health import learned_nothing
from motley.tasks.kept_data import last_kept
from motley.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Say = Callable[[str], object]
_NAMED = 3
"""Variants of one reason that are named."""


@dataclass(frozen=True)
class Failure:
    """A run that failed, and its error."""

    point: Point
    error: Exception

    @property
    def reason(self) -> str:
        """The error in one line, with the user's own code that raised it."""
        own_code = own_code_in(self.error)
        return str(self.error) if own_code is None else f"{in_one_line(self.error)}; {own_code}"


@dataclass(frozen=True, repr=False)
class Comparison(Carded):
    """The outcome of a sweep: finished runs, failures, the folder of all, and the runs that were
    added as controls. ``told``: lines that the same comparison tells before the first run when all
    are finished; None where that hangs on something beside its files. ``made``: whether any run was
    made.

    Example
    -------
    ``found = motley.compare("exp.toml")``, then ``found``, ``found.table()`` or
    ``found.plot(over="virtual_seconds")`` in a notebook
    """

    runs: list[TrainedRun]
    failures: list[Failure]
    directory: Path
    controls: list[TrainedRun] = field(default_factory=list)
    told: tuple[str, ...] | None = None
    made: bool = True

    @override
    def facts(self) -> dict[str, Any]:
        """Return how many runs there are of how many methods, and where."""
        methods = {"methods": len(group_runs(self.runs))} if self.runs else {}
        return {
            "runs": len(self.runs),
            **methods,
            **({"controls": len(self.controls)} if self.controls else {}),
            "failed": len(self.failures),
            "folder": self.directory,
        }

    def _repr_html_(self) -> str:
        rows = run_rows(self.runs) if self.runs else []
        failed = [
            (failure.point.label, failure.point.experiment.seed, failure.reason)
            for failure in self.failures
        ]
        shown = [[in_cell(value) for value in row.values()] for row in rows]
        return html_rows(repr(self).strip("<>"), shown, rows[0] if rows else ()) + (
            html_rows("Failed", failed) if failed else ""
        )

    def table(self) -> Any:
        """Return a pandas DataFrame with a row per run: its label as in reports, seed, the headline
        metric's final value, peak and stable value (:class:`~motley.results.measures.Ends`),
        rounds, virtual seconds, megabytes both ways, and folder.

        Raises
        ------
        ConfigError: pandas is not installed.
        """
        return to_frame(run_rows(self.runs) if self.runs else [])

    def plot(self, metric: str | None = None, over: str = "rounds") -> Figure:
        """Return a matplotlib figure of each method's mean over seeds, shaded by one standard
        deviation.

        Parameters
        ----------
        metric: the headline by default.
        over: ``rounds``, ``virtual_seconds`` or ``traffic``.

        Raises
        ------
        ConfigError: no such metric, nothing to draw over by this name, no finished run, or
        ``motley-report``, which draws it, is not installed.
        """
        figure: Figure = required_extension("function", "plot")(group_runs(self.runs), metric, over)
        return figure


def expand(
    experiment: Experiment,
    over: Mapping[str, Sequence[Any]] | None = None,
    seeds: Sequence[int] | None = None,
    grids: Sequence[str] | None = None,
) -> list[Point]:
    """Return every combination of the values in each ``grid`` (or in those of these names), in
    ``over`` (which replaces its values of a key) and ``seeds``.

    A run that several grids contain occurs once.

    Raises
    ------
    ConfigError: no values for a key, a value the experiment refuses, the same run twice, seeds in
    ``over`` and in ``seeds``, or no such grid.
    """
    changes: dict[str, tuple[Experiment, dict[str, Any]]] = {}
    values = document.of_python({key: repeatable(held) for key, held in dict(over or {}).items()})
    numbers = document.of_python(repeatable(seeds))
    if "seed" in values and numbers is not None:
        raise ConfigError(
            f"got {numbers}, and over the key seed {values['seed']}; give one of the two",
            "seeds",
        )
    for grid in _chosen(experiment, grids):
        for result_id, variant in _combinations(experiment, {**grid, **values}, numbers).items():
            changes.setdefault(result_id, variant)
    return _labelled(list(changes.values()), experiment.name)


def repeatable(values: Any) -> Any:
    """Return a list of what an iterator gives, which gives it once; anything else as it is."""
    return list(values) if isinstance(values, Iterator) else values


def _chosen(experiment: Experiment, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the grids with these names (all by default), without their names."""
    grids = {
        grid["name"] if isinstance(grid.get("name"), str) else number: grid
        for number, grid in enumerate(experiment.grid)
    }
    grid_names = [name for name in grids if isinstance(name, str)]
    for name in names or ():
        if name not in grid_names:
            if grid_names:
                hint = f"expected one of: {', '.join(grid_names)}"
            else:
                hint = 'none has a name; write name = "..." in a [[grid]]'
            raise ConfigError(
                f"there is no grid {name!r}{suggest(name, grid_names)}; {hint}", "grid"
            )
    selected = [grid for name, grid in grids.items() if names is None or name in names]
    return [
        {key: values for key, values in grid.items() if not isinstance(values, str)}
        for grid in selected
    ] or [{}]


def _replaced(
    experiment: Experiment, over: Mapping[str, Sequence[Any]], grids: Sequence[str] | None
) -> dict[str, Any]:
    """Return the keys of the grids that ``over`` replaces, and their values."""
    return {
        key: values
        for grid in _chosen(experiment, grids)
        for key, values in grid.items()
        if key in over
    }


def _combinations(
    experiment: Experiment, grid: dict[str, Sequence[Any]], seeds: Sequence[int] | None
) -> dict[str, tuple[Experiment, dict[str, Any]]]:
    """Return result id -> experiment and what was changed, for every combination of one grid's
    values."""
    if seeds is not None:
        if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
            raise ConfigError(
                f"got {seeds!r}; expected a list of whole numbers, e.g. seeds=[0, 1, 2]", "seeds"
            )
        grid = {**{key: values for key, values in grid.items() if key != "seed"}, "seed": seeds}
    for key, values in grid.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise ConfigError(f"got {values!r}; expected a list of values, e.g. [{values!r}]", key)
        if not list(values):
            raise ConfigError("got no values; give at least one", key)
    out: dict[str, tuple[Experiment, dict[str, Any]]] = {}
    for combination in itertools.product(*grid.values()):
        changes = dict(zip(grid, combination, strict=True))
        variant = experiment.replace({**changes, "grid": []})
        result_id = variant.result_id()
        if result_id in out:
            raise ConfigError(
                f"the same run occurs twice ({_words(changes)}); name each value once", "grid"
            )
        out[result_id] = variant, changes
    return out


def _labelled(variants: Sequence[tuple[Experiment, dict[str, Any]]], otherwise: str) -> list[Point]:
    """Return the points with labels: of the keys that were changed, those in which the runs
    differ."""
    plain = [
        {key: value for key, value in changes.items() if key != "seed"} for _, changes in variants
    ]
    resolved = [experiment.resolved() for experiment, _ in variants]
    keys = list(dict.fromkeys(key for changes in plain for key in changes))
    differing = [
        key for key in keys if len({repr(value_at(settings, key)) for settings in resolved}) > 1
    ]
    last = [key.rpartition(".")[2] for key in differing]
    twins = {
        key
        for key, word in zip(differing, last, strict=True)
        if word != "name" and last.count(word) > 1
    }
    short = [
        _words({key: value for key, value in changes.items() if key in differing}, twins)
        for changes in plain
    ]
    meant: dict[str, set[str]] = {}  # label -> the runs that it would name, seeds aside
    for label, settings in zip(short, resolved, strict=True):
        meant.setdefault(label, set()).add(repr({**settings, "seed": 0}))
    points = []
    for (experiment, _), changes, label in zip(variants, plain, short, strict=True):
        if len(meant[label]) > 1:  # two keys have the same value in words
            label = ", ".join(
                f"{key} = {value}" for key, value in changes.items() if key in differing
            )
        points.append(Point(label or otherwise, experiment, _words(changes) or otherwise))
    return points


def _words(changes: Mapping[str, Any], full_keys: Collection[str] = ()) -> str:
    """Return what was changed in words: ``{"selector.name": "uniform", "partition.alpha": 0.1}`` ->
    ``"uniform alpha=0.1"``.

    ``full_keys``: keys that are written out.
    """
    return " ".join(
        _label_of(key if key in full_keys else key.rpartition(".")[2], value)
        for key, value in changes.items()
    )


def _label_of(key: str, value: Any) -> str:
    if isinstance(value, Task):
        return value.name
    if dataclasses.is_dataclass(value):
        value = {"name": type(value).__name__, **registry.chosen(value)}
    if isinstance(value, Mapping):
        return " ".join(
            [
                str(value.get("name", key)),
                *(_label_of(k, v) for k, v in value.items() if k != "name"),
            ]
        )
    return str(value) if key == "name" or isinstance(value, str) else f"{key}={value}"


def parse_axes(
    texts: Sequence[str] | None, option: str = "--over", example: str = "selector.name=uniform,oort"
) -> dict[str, list[Any]]:
    """Return key -> values of options like ``--over selector.name=uniform,oort``.

    Raises
    ------
    ConfigError: one is not ``key=value,value``, or a key occurs twice.
    """
    axes: dict[str, list[Any]] = {}
    for text in texts or []:
        key, values = parse_over(text, option, example)
        if key in axes:
            raise ConfigError(
                f"got {key!r} twice; expected it once, with all values: {option} {example}", option
            )
        axes[key] = values
    return axes


def parse_over(
    text: str, option: str = "--over", example: str = "selector.name=uniform,oort"
) -> tuple[str, list[Any]]:
    """Parse ``"selector.name=uniform,oort"`` -> ``("selector.name", ["uniform", "oort"])``; commas
    inside brackets and quotes stay.

    Parameters
    ----------
    option, example: for messages.

    Raises
    ------
    ConfigError: not ``key=value,value``.
    """
    key, values = document.parse_setting(text, option, example)
    pieces = [""]
    depth = 0
    quote = ""
    for char in values:
        if quote:
            quote = "" if char == quote else quote
        else:
            quote = char if char in "\"'" else ""
        depth += (char in "[{") - (char in "]}") if not quote else 0
        if char == "," and not depth and not quote:
            pieces.append("")
        else:
            pieces[-1] += char
    if not all(piece.strip() for piece in pieces):
        raise ConfigError(f"got {text!r} with an empty value; expected key=value,value", option)
    return key, [document.parse_value(piece.strip()) for piece in pieces]


@last_kept()
def compare(
    experiment: Experiment | str | Path | Mapping[str, Any],
    over: Mapping[str, Sequence[Any]] | None = None,
    seeds: Sequence[int] | None = None,
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    progress: bool | None = None,
    on_ray: str | None = None,
    jobs: int | None = None,
    task: Task | None = None,
    on_end: OnEnd | None = None,
    allow_import: bool = False,
    grids: Sequence[str] | None = None,
    allow_other_numerics: bool = False,
    against: str | None = None,
    controls: bool = False,
    many_controls: bool = False,
    skip_refused: bool = False,
    say: Say | None = None,
) -> Comparison:
    """Run one experiment in many variants.

    Parameters
    ----------
    experiment: an Experiment, its keys, or the path of its TOML file.
    over: key path -> values, over the file's ``[grid]``.
    seeds: values of ``seed``.
    out: folder of all runs, ``runs/<name>`` by default.
    data: folder of data packs.
    overrides: settings like ``"local.epochs=2"``.
    progress: show the runs on standard error, as bars on a terminal or lines in a log; left out: on
    a terminal and in a notebook, with a line at the end.
    on_ray: address of a Ray cluster over which the runs are spread, ``auto``, or ``local`` for one
    that is started here.
    jobs: runs at a time on this machine, each in a process that computes on its share of the cores;
    left out: as many as there are cores where every run fills one, on a GPU several in this process
    (:mod:`.chosen_jobs`).
    task: a federation and module of your own, as for :func:`~motley.experiments.run.run`.
    on_end: called in this process with the results of each run as soon as they are there; an error
    in it ends the comparison, and the same call goes on with it.
    allow_import: let components be named ``"module:Class"``, which imports the module.
    grids: names of the file's grids that are run; all by default.
    allow_other_numerics: resume runs although torch, processor, threads, engine or device
    differ.
    against: label of the method that the others are compared with, as tables call it; ``out``
    remembers it (the usual one where none is given), and the grid's order, for every later report.
    controls: add the runs of the reference that remove, one by one and together, the settings in
    which the methods differ beside the method; they are ``controls`` of what is returned.
    many_controls: also where these are more than 100.
    skip_refused: go on without variants that cannot run, each with a warning.
    say: told before the first run what the controls cost and whether *stable* will be empty; left
    out: the lines are printed where progress is shown.

    In a notebook an interrupted comparison is returned with the runs that were finished.

    Raises
    ------
    ConfigError: before anything is run, where any of the variants is not an experiment, or cannot
    run (unless ``skip_refused``), where there are too many controls, or none for
    ``many_controls``, or ``against`` is none of the methods.

    Example
    -------
    ``compare("exp.toml", {"selector.name": ["uniform", "power_of_choice"]}, seeds=[0, 1, 2]).runs``
    """
    check_flags(
        {"controls": controls, "many_controls": many_controls, "skip_refused": skip_refused}
    )
    _check_jobs(1 if jobs is None else jobs, on_ray is not None)
    if many_controls and not controls:
        raise ConfigError(
            "it allows many controls, and none are asked for; add --controls (controls=True)",
            "--yes (many_controls)",
        )
    with imports(allow_import):
        base_experiment = as_experiment(
            experiment if task is None else with_own(experiment, task), overrides
        )
        over = {key: repeatable(values) for key, values in dict(over or {}).items()}
        points = expand(base_experiment, over, seeds, grids)
    for key, values in _replaced(base_experiment, over, grids).items():
        warnings.warn(
            f"{key} is in the file's grid, {values!r}; the values given take its place, "
            f"{list(over[key])!r}",
            stacklevel=2,
        )
    base = default_folder(base_experiment).parent if out is None else user_path(out)
    packs = None if data is None else user_path(data)
    by_itself = progress is None and watched()
    shown = by_itself or bool(progress)
    told: list[str] = []
    say = _both(told.append, say or (last_line if shown else _quiet))
    # a cluster may have what this machine lacks
    checked = BuildCheck(packs) if on_ray is None else None
    labels = _labels_of(points, base)
    if against is not None and against not in labels:
        raise unknown_reference(against, dict.fromkeys(labels))
    every_label = dict(zip([point.folder(base) for point in points], labels, strict=True))
    done = all(_done(point, base) for point in points)
    if not done:
        prepare_workers()  # before anything is built
    wanted = len(points)
    if checked is not None:
        points = _that_can_run(points, base, checked, skip_refused)
    folders = [point.folder(base) for point in points]
    _check_folders(points, folders)
    named = {folder: every_label[folder] for folder in folders}
    reference = _told_first(points, named, against=against, base=base, say=say)
    record_comparison(base, folders, reference)
    every = [*points, *(_controls(points, base, checked, say) if controls else [])]
    _tell_empty_stable(points, say)
    done = done and all(_done(point, base) for point in every)
    jointly = False
    if jobs is None:
        jobs, jointly = _chosen_jobs(every, base, packs, checked, say=say)
    del checked  # it holds samples
    cost = _Cost(every, base, jobs, say)
    if controls:
        cost.begin(many_controls)
    runs, failures = run_points(
        points=every,
        folders=cost.folders,
        data=packs,
        progress=shown,
        on_ray=on_ray,
        jobs=jobs,
        jointly=jointly,
        on_end=partial(cost.ended, on_end) if controls else on_end,
        allow_other_numerics=allow_other_numerics,
    )
    own_folders = {
        folder for folder, point in zip(cost.folders, every, strict=True) if not point.control
    }
    number = sum(run.directory in own_folders for run in runs)
    # a control may be a method of an earlier comparison in the folder
    names = {folder: point.label for folder, point in zip(cost.folders, every, strict=True)}
    added = [
        dataclasses.replace(run, meta={**run.meta, "control": names[run.directory]})
        for run in runs[number:]
    ]
    if not done:
        told.clear()
        _told_first(points, named, against=against, base=base, say=told.append)
        _tell_empty_stable(points, told.append)
    known = wanted == len(points) and (done or not controls) and not any(map(_of_ones_own, every))
    comparison = Comparison(
        runs[:number],
        failures,
        base,
        controls=added,
        told=tuple(told) if known else None,
        made=not done,
    )
    if against is not None:
        _check_reference(comparison.runs, reference, against)
    if progress is None:
        _warn_of_nothing_learned(comparison.runs)
    if by_itself:
        last_line(runs_in_words(base_experiment.name, comparison.runs, len(failures), base))
    return comparison


def _check_reference(runs: Sequence[Run], reference: Sequence[Path], against: str) -> None:
    """Warn where the chosen reference has no finished run among others."""
    if runs and not any(run.directory in reference for run in runs):
        warnings.warn(
            f"no run of {against}, the reference, was finished: nothing is compared with it",
            stacklevel=3,
        )


def _warn_of_nothing_learned(runs: Sequence[Run]) -> None:
    """Warn of runs in which no upload was accepted."""
    for run in runs:
        if trouble := learned_nothing(run):
            warnings.warn(f"{run.name} seed {run.seed}: {trouble}", stacklevel=3)


def _both(first: Say, second: Say) -> Say:
    """Return a function that tells both."""

    def tell(line: str) -> None:
        first(line)
        second(line)

    return tell


def _told_first(
    points: Sequence[Point],
    labels: Mapping[Path, str],
    against: str | None,
    base: Path,
    say: Say,
) -> list[Path]:
    """Return the runs of the reference as :func:`_reference` does; say with what one run alone is
    compared."""
    if len(points) == 1 and not read_comparison(base).runs:
        say(
            "one run is made, and nothing is compared with it; write a [grid], or --over "
            'selector.name=uniform,oort (over={"selector.name": ["uniform", "oort"]})'
        )
    return _reference(against, labels, base, say)


def _tell_empty_stable(points: Sequence[Point], say: Say) -> None:
    for line in dict.fromkeys(filter(None, (empty_stable(point.experiment) for point in points))):
        say(line)


def _of_ones_own(point: Point) -> bool:
    """Return whether something beside the files that an experiment reads decides what its run is:
    code of the user's, a secret, or weights to begin with."""
    experiment = point.experiment
    secret = experiment.privacy is not None
    return bool(experiment.own_code or experiment.own_task or secret or experiment.init)


def _chosen_jobs(
    points: Sequence[Point], base: Path, data: Path | None, checked: BuildCheck | None, say: Say
) -> tuple[int, bool]:
    """Return how many runs go on at a time where nobody says it, and whether all in this process;
    say so."""
    if checked is None:
        return 1, False
    unfinished = [point for point in points if not _done(point, base)]
    left = [point.experiment for point in unfinished]
    begun_jointly = _begun_jointly(unfinished, base)
    if len(left) < 2:
        return 1, begun_jointly == {True}
    try:
        for experiment in left:
            checked.of(experiment)  # seeds of one variant alone were not tried yet
    except Exception:  # code of the user's: its runs are the failures
        return 1, False
    calls = [{"experiment": experiment, "data": data} for experiment in left]
    sizes = [checked.size(experiment) for experiment in left]
    jobs = 1 if False in begun_jointly else joint_runs(sizes)
    if jobs > 1:
        say(
            f"{jobs} runs at a time in one process, whose clients train together on the GPU where "
            "they are alike (--jobs 1: one after the other)"
        )
    if jobs > 1 or begun_jointly == {True}:
        return jobs, True
    jobs = chosen_jobs(sizes, calls, WORTH_FORKED_S if start_at_once() else WORTH_S)
    if jobs > 1:
        say(f"{jobs} runs at a time, for each fills one core (--jobs 1: one after the other)")
    return jobs, False


def check_target(
    experiment: Experiment | str | Path,
    target: float,
    data: Path | None = None,
    overrides: Sequence[str] = (),
    allow_import: bool = False,
) -> None:
    """Refuse a target that is no value of an experiment's headline metric, before anything is run;
    the parameters are those of :func:`compare`. Data are read only where the metric decides.

    Raises
    ------
    ConfigError: a share that is not above 0 and at most 1, another metric that is not positive.
    """
    if 0 < target <= 1:
        return
    with imports(allow_import):
        resolved = as_experiment(experiment, overrides)
        try:
            task = with_metrics(resolved, task_of(resolved, data=data))
        except UserError:  # the runs say it, or the grid mends it
            return
    metrics = [{"name": metric.name, "share": metric.share} for metric in task.metrics]
    target_of(Run(Path(), {"task": {"metric": task.metric, "metrics": metrics}}, {}), target)


def _quiet(line: str) -> None:
    """Print nothing."""


def _controls(
    points: Sequence[Point], base: Path, checked: BuildCheck | None, say: Say
) -> list[Point]:
    """Return the controls of a comparison; say why some cannot run."""

    def refusal(name: str, experiment: Experiment) -> UserError | None:
        if checked is None or _done(Point(name, experiment, control=True), base):
            return None
        return checked.of(experiment)

    controls = controls_of(points, refusal, base)
    for line in controls.refused:
        say(f"no control: {line}")
    return [Point(name, control, control=True) for name, control in controls.experiments]


def _that_can_run(
    points: Sequence[Point], base: Path, checked: BuildCheck, skip_refused: bool
) -> list[Point]:
    """Return the points that can be built or are finished.

    Raises
    ------
    ConfigError: a variant cannot run, unless ``skip_refused`` and others can.
    """
    variants = {point.label for point in points}
    if len(variants) < 2:  # the run itself says so at once
        return [*points]
    reasons = {
        number: reason
        for number, point in enumerate(points)
        if not _done(point, base) and (reason := checked.of(point.experiment)) is not None
    }
    refused: dict[str, str] = {}
    for number, reason in reasons.items():
        refused.setdefault(points[number].label, str(reason))
    if refused and (not skip_refused or variants <= refused.keys()):
        raise _cannot_run(refused, len(variants))
    for label, text in refused.items():
        warnings.warn(f"left out, for it cannot run: {label}: {text}", stacklevel=3)
    return [point for number, point in enumerate(points) if number not in reasons]


def _cannot_run(refused: Mapping[str, str], number: int) -> ConfigError:
    """Return the error for variants (label -> reason) that cannot run, of so many."""
    same: dict[str, list[str]] = {}
    for label, text in refused.items():
        same.setdefault(text, []).append(label)
    if len(same) == 1 and len(refused) == number:
        return ConfigError(next(iter(same)))
    reasons = "; ".join(f"{_some(labels)}: {text}" for text, labels in same.items())
    if len(refused) == number:
        mend = ""
    else:
        mend = "; mend them, or go on without with --skip-refused (skip_refused=True)"
    return ConfigError(
        f"{len(refused)} of {number} variants cannot run, so no run was begun: {reasons}{mend}"
    )


def _some(labels: Sequence[str]) -> str:
    """Return labels as a list; of many the first ones."""
    more = len(labels) - _NAMED
    return in_list([*labels[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def _done(point: Point, base: Path) -> bool:
    return _folder(point, base).finished(point.experiment)


def _folder(point: Point, base: Path) -> RunFolder:
    return RunFolder(place_of(point, base) if point.control else point.folder(base))


def _begun_jointly(points: Sequence[Point], base: Path) -> set[bool]:
    """Return whether the points that have begun did so with clients of several runs in one
    computation: nothing, one answer or both."""
    records = (_folder(point, base).read() for point in points)
    return {
        bool(record["numerics"].get("joint", False))
        for record in records
        if record and "numerics" in record
    }


class _Cost:
    """Says what the controls of a comparison cost: how many there are before the first run, and how
    long they take by the runs that are there, else by the first.

    Parameters
    ----------
    points: of the comparison and its controls.
    base: folder of all.
    jobs: runs at a time.
    """

    def __init__(self, points: Sequence[Point], base: Path, jobs: int, say: Say) -> None:
        self.folders = [
            place_of(point, base) if point.control else point.folder(base) for point in points
        ]
        self._points = points
        self._jobs = max(jobs, 1)
        self._say = say
        self._timed = False

    def begin(self, allow_many: bool) -> None:
        """Say how many runs the controls are, and how long they take where a run tells.

        Raises
        ------
        ConfigError: more than :data:`~motley.experiments.controls.MOST` and not ``allow_many``.
        """
        done = [
            RunFolder(folder).finished(point.experiment)
            for folder, point in zip(self.folders, self._points, strict=True)
        ]
        pairs = list(zip(self._points, done, strict=True))
        self._controls = sum(point.control and not there for point, there in pairs)
        self._others = sum(not point.control and not there for point, there in pairs)
        if self._controls > MOST and not allow_many:
            raise ConfigError(
                f"the controls are {self._controls} runs beside {self._others} of the comparison, "
                f"more than {MOST}; run them with --yes (in Python many_controls=True), or compare "
                "fewer methods",
                "--controls",
            )
        names = dict.fromkeys(point.label for point, _ in pairs if point.control)
        if not names:
            self._say("controls: nothing to add")
            self._timed = True
            return
        if not self._controls:
            self._say(f"controls: all are there already ({'; '.join(names)})")
            self._timed = True
            return
        timed = [wall_s(folder) for folder, there in zip(self.folders, done, strict=True) if there]
        self._timed = bool(timed)
        if timed:
            estimate = self._estimate(sum(timed) / len(timed))
        else:
            estimate = "how long they take is said after the first run"
        self._say(
            f"controls: {self._controls} runs beside {self._others} of the comparison "
            f"({'; '.join(names)}); {estimate}"
        )

    def _estimate(self, seconds: float) -> str:
        each = seconds / self._jobs
        return (
            f"the controls take about {in_minutes(self._controls * each)}, all runs "
            f"{in_minutes((self._controls + self._others) * each)}"
        )

    def ended(self, on_end: OnEnd | None, run: TrainedRun) -> None:
        """Say after the first run how long the controls take, and pass the run on."""
        if not self._timed:
            self._timed = True
            self._say(self._estimate(wall_s(run.directory)))
        if on_end is not None:
            on_end(run)


def _labels_of(points: Sequence[Point], base: Path) -> list[str]:
    """Return what tables call each point."""
    return label_runs(
        [
            Run(
                point.folder(base),
                {
                    "name": point.experiment.name,
                    "seed": point.experiment.seed,
                    "config": point.experiment.resolved(),
                },
                {},
            )
            for point in points
        ]
    )


def _reference(against: str | None, labels: Mapping[Path, str], base: Path, say: Say) -> list[Path]:
    """Return the folders of the runs of the reference that a comparison's folder is to remember;
    none where it remembers one already, or has one method.

    Parameters
    ----------
    labels: by folder of a run.
    say: told where what is remembered is not what is usual.

    Raises
    ------
    ConfigError: the method ``against`` is not there, for it cannot run.
    """
    methods = list(dict.fromkeys(labels.values()))
    if against is not None and against not in methods:
        raise ConfigError(
            f"{against!r} was left out, for it cannot run; expected one of: {'; '.join(methods)}",
            "against",
        )
    chosen = against or usual_reference(methods)
    if against is None:
        remembered = read_comparison(base).against
        there = {labels[folder] for folder in reference_runs(labels)}
        if remembered and chosen not in there:
            own = " and ".join(sorted({name.partition("/")[0] for name in remembered}))
            held = next(iter(there), "")
            if held:
                say(f"compared with {held}, as before in {base}; choose another with --against")
            else:
                say(
                    f"the reference of {base} is {own}, of which nothing is run now: these runs "
                    f"are compared with {chosen}"
                )
        if remembered or len(methods) < 2:
            return []
    return [folder for folder, label in labels.items() if label == chosen]


def _check_jobs(jobs: int, on_ray: bool) -> None:
    """Raise ConfigError unless so many runs can go on at a time."""
    if jobs < 1:
        raise ConfigError(f"got {jobs}; expected at least 1", "jobs")
    if jobs > 1 and on_ray:
        raise ConfigError(
            "runs are spread over a cluster (on_ray), which decides how many run at a time; give "
            "one of the two",
            "jobs",
        )


def run_points(
    points: Sequence[Point],
    folders: Sequence[Path],
    data: Path | None,
    progress: bool = False,
    on_ray: str | None = None,
    jobs: int = 1,
    on_end: OnEnd | None = None,
    allow_other_numerics: bool = False,
    jointly: bool = False,
) -> tuple[list[TrainedRun], list[Failure]]:
    """Run each experiment in its folder unless it is finished there; return the runs in the order
    of the points, and the failures. The other parameters are those of :func:`compare`.

    ``jointly``: whether the runs that go on at a time are all in this process and train their
    clients together (:mod:`.joint_runs`).

    Raises
    ------
    ConfigError: before anything is run, two runs in the same folder, or options that exclude each
    other. StoreError: a folder cannot be made.
    """
    _check_jobs(jobs, on_ray is not None)
    _check_folders(points, folders)
    shown = _display(points) if progress else None
    calls = [
        {"experiment": p.experiment, "folder": folder, "data": data}
        for p, folder in zip(points, folders, strict=True)
    ]
    errors: dict[int, Exception | None] = {}
    groups = {
        folder.resolve(): RunGroup(folder.parent.parent, p.name or p.label, p.control)
        for p, folder in zip(points, folders, strict=True)
    }
    jobs = share_among(jobs, len(calls))
    work = partial(_one, groups=groups, allow_other_numerics=allow_other_numerics)
    try:
        with (
            workers_kept(),
            last_kept(),
            shown or nullcontext(),
            closing(
                _outcomes(
                    work=work,
                    calls=calls,
                    shown=shown,
                    on_ray=on_ray,
                    jobs=share_among(jobs, len(calls)),
                    jointly=jointly,
                )
            ) as outcomes,
        ):
            for number, error in outcomes:
                errors[number] = error
                if shown is not None:
                    shown.end(number, error)
                if error is None and on_end is not None:
                    on_end(load(folders[number], points[number].experiment.own_task))
    except KeyboardInterrupt:
        if not in_notebook():
            raise
        last_line(
            f"interrupted: {sum(error is None for error in errors.values())} of {len(points)} runs "
            "finished and are returned; the same call goes on"
        )
    failures = [
        Failure(points[number], error)
        for number, error in sorted(errors.items())
        if error is not None
    ]
    good = [number for number in sorted(errors) if errors[number] is None]
    return [load(folders[number], points[number].experiment.own_task) for number in good], failures


def _check_folders(points: Sequence[Point], folders: Sequence[Path]) -> None:
    """Refuse folders that cannot be made, and two runs in one folder: the second would go on with
    the first."""
    held: dict[Path, Point] = {}
    for point, folder in zip(points, folders, strict=True):
        RunFolder(folder).check()
        holder = held.setdefault(folder.resolve(), point)
        if holder is not point:
            names = " and ".join(repr(owner.name or owner.label) for owner in (holder, point))
            raise ConfigError(
                f"the runs {names} would be written into the same folder {folder}; run each of "
                "them with an --out of its own"
            )


def _display(points: Sequence[Point]) -> ProgressDisplay:
    return display(
        [point.experiment for point in points],
        [f"{point.label} seed {point.experiment.seed}" for point in points],
    )


def _outcomes(
    work: Callable[..., object],
    calls: Sequence[dict[str, Any]],
    shown: ProgressDisplay | None,
    on_ray: str | None,
    jobs: int,
    jointly: bool,
) -> Generator[tuple[int, Exception | None]]:
    """Run all experiments; yield the number of each when it ended, and its error."""
    if on_ray is not None:
        yield from _spread(work, calls, shown, on_ray)
    elif jointly:
        from motley.experiments.joint_runs import run_jointly  # on a GPU alone

        yield from run_jointly(jobs, work, calls, shown)
    elif jobs > 1:
        yield from run_jobs(jobs, work, calls, shown)
    else:
        for number, call in enumerate(calls):
            if shown is not None:
                shown.start(number)
            try:
                work(**call, progress=False if shown is None else shown.run(number))
            except Exception as error:
                yield number, error
            else:
                yield number, None


def _spread(
    work: Callable[..., object],
    calls: Sequence[dict[str, Any]],
    shown: ProgressDisplay | None,
    address: str,
) -> Generator[tuple[int, Exception | None]]:
    """Run each experiment on a node of a cluster, which reports when it is done."""
    experiments, folders, data = (
        [call[name] for call in calls] for name in ("experiment", "folder", "data")
    )
    spread = required_extension("runner", "ray", "on_ray").spread
    with closing(
        spread(address, work, experiments, folders, data=next(iter(data), None))
    ) as outcomes:
        for number, error in outcomes:
            if shown is not None:
                shown.start(number)
            yield number, error


def _one(
    experiment: Experiment,
    folder: Path,
    data: Path | None,
    progress: OneRun | bool = False,
    *,
    groups: Mapping[Path, RunGroup],
    allow_other_numerics: bool = False,
) -> None:
    """Run an experiment in its folder unless it is finished there."""
    if RunFolder(folder).finished(experiment):
        check_variants(RunFolder(folder).read() or {}, experiment, data)
        return
    run_in(
        experiment,
        path=folder,
        resume=True,
        data=data,
        progress=progress,
        allow_other_numerics=allow_other_numerics,
        group=groups[folder.resolve()],
    )
