"""Inspect federations: read them, measure their clients, plan their rounds, and look for
pitfalls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.arrays import Floats, Ints
from motley.core.client_names import name_of
from motley.core.errors import ConfigError, UserError
from motley.core.extensions import extension, extensions
from motley.core.files import user_path
from motley.core.keys import Key, Streams
from motley.experiments.build import Ready, prepare
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.results.blocks import Picture
from motley.results.load import Run
from motley.results.measures import grouped_notes
from motley.tasks.task import Federation, Task
from motley_advice.heterogeneity.findings import Finding, Inspection
from motley_advice.heterogeneity.measure import measure
from motley_advice.inspection.client_drift import (
    among_clients,
    beside_chance,
    drift_after,
    drift_at_start,
)
from motley_advice.inspection.federation import InspectedFederation, clients_of
from motley_advice.inspection.inspected import Inspected
from motley_advice.inspection.own_tables import LEFT_OUT
from motley_advice.inspection.pitfalls import Examined, of_data, pitfalls
from motley_advice.inspection.pitfalls_of_sets import one_constant_for_all, pitfalls_of_set
from motley_advice.inspection.planned import synchronous_loop
from motley_advice.inspection.sources import InspectionSource, same_data, source_of
from motley_advice.inspection.system import system_findings
from motley_data.column_table import column_table
from motley_report.selection_plots import class_picture

VARIANTS = 40
"""Variants of an experiment that are searched for pitfalls, at most."""
_DIAGNOSED = {
    "B^2": ("diversity", "B2"),
    "G^2": ("diversity", "mean_gradient"),
    "drift of clients": ("drift", "measured"),
}
OTHER_CLIENTS = "other clients in"
"""The fact of variants whose clients hold other samples, which are not inspected."""
_NAMED = 3
"""Such variants that are named, at most."""
Tell = Callable[[str], None]


def inspect(
    subject: Any,
    *more: Any,
    rounds: int = 0,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    task: Task | None = None,
    allow_import: bool = False,
    tell: Tell | None = None,
    label: str | None = None,
    client: str | None = None,
    table: Mapping[str, Any] | None = None,
) -> Inspected:
    """Measure how the clients of a federation differ, what its rounds cost, and which pitfalls its
    experiment commits.

    Nothing is trained unless ``rounds`` asks for it, and nothing is written:
    :meth:`~motley_advice.inspection.inspected.Inspected.write` writes the page.

    Parameters
    ----------
    subject: the path of an experiment file or of a folder of runs, an Experiment, its keys,
    finished runs, a Federation or a Task; or of a table (``.csv``, ``.parquet``), or a folder with
    a file of samples for each client.
    more: further ones, which stand beside it.
    rounds: server steps of a short run, after which drift is measured again.
    data: folder searched first for data packs.
    overrides: settings like ``"partition.alpha=0.1"`` for experiments, ``'decimal=","'`` for
    tables.
    task: data and model of your own, for ``task = "own"``.
    allow_import: let components be named ``"module:Class"``.
    tell: is told what goes on, a few words at a time.
    label, client: the columns of a table that hold the labels and the clients.
    table: how the files of a table are written and its columns read, e.g. ``{"decimal": ",",
    "gaps": ["", "-9"]}``; options of :class:`~motley_data.table_options.TableOptions`.

    Raises
    ------
    ConfigError: an experiment with a fault, runs of several federations, or nothing that can be
    inspected. StoreError: a folder without runs. DataError: data that is missing or damaged.

    Example
    -------
    >>> import motley
    >>> task = {"name": "tabular", "data": "iris"}
    >>> keys = {"task": task, "population": 5, "cohort": 2, "stop": {"rounds": 1}}
    >>> found = motley.inspect(keys)
    >>> found.federations[0].inspection["speed_spread"].value
    0.0
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
        raise ConfigError(f"got {rounds!r}; expected a whole number of at least 0", "rounds")
    report: Tell = tell or (lambda text: None)
    sources = [
        source_of(
            subject=named,
            overrides=overrides,
            task=task,
            allow_import=allow_import,
            label=label,
            client=client,
            table=table,
        )
        for named in (subject, *more)
    ]
    folder = None if data is None else user_path(data)
    labels = _labels([source.label for source in sources])
    federations = [
        _one(source, label, rounds, data=folder, tell=report)
        for source, label in zip(sources, labels, strict=True)
    ]
    shared = (
        one_constant_for_all([keys for source in sources for keys in source.keys]) if more else None
    )
    advice = [] if more else _advice(federations[0])
    return Inspected(federations, [shared] if shared else [], advice)


def _advice(inspected: InspectedFederation) -> list[str]:
    """Return what installed packages advise for clients that differ so, at most five lines each,
    after whether outlying clients count for it."""
    advisers = [extension("advice", name) for name in extensions("advice")]
    profile = inspected.profile_without_outlying
    if profile is None:
        profile = inspected.inspection.differences()
    lines = [line for advise in advisers if advise is not None for line in advise(profile)]
    names = dict.fromkeys(each.shown for each in inspected.inspection.outlying)
    if not lines or not names:
        return lines
    if inspected.profile_without_outlying is None:
        return ["Outlying clients are too many to be left out, and count here.", *lines]
    return [f"Outlying clients left out: {', '.join(names)}.", *lines]


def _without_outlying(
    inspection: Inspection, measured: Callable[[set[int]], Inspection]
) -> dict[str, float] | None:
    """Return the profile of a federation in which outlying clients do not count; None where none
    is outlying, or so many that the others are no measure.

    Parameters
    ----------
    measured: returns what is measured of the samples without some clients.
    """
    odd = {each.client for each in inspection.outlying}
    if not 0 < len(odd) <= inspection.population / 2:
        return None
    without_outlying = measured(odd).differences()
    return {
        name: value if np.isnan(without_outlying[name]) else without_outlying[name]
        for name, value in inspection.differences().items()
    }


def _labels(names: Sequence[str]) -> list[str]:
    """Return the names, with a number where several are the same."""
    return [
        name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})"
        for i, name in enumerate(names)
    ]


def _one(
    source: InspectionSource, label: str, rounds: int, data: Path | None, tell: Tell
) -> InspectedFederation:
    """Return the inspection of one federation."""
    if source.experiment is None:
        if source.federation is None:
            raise ConfigError("got nothing to inspect")
        tell(f"{label}: measuring the data")
        inspection = measure(source.federation, Key(0))
        federation = source.federation
        return InspectedFederation(
            label=label,
            inspection=inspection,
            facts=_facts(federation),
            pitfalls=of_data(inspection),
            classes=_classes(federation, label),
            clients=clients_of(federation),
            profile_without_outlying=_without_outlying(
                inspection, lambda without: measure(federation, Key(0), without=without)
            ),
            columns=column_table(federation),
            toml=source.toml,
        )
    tell(f"{label}: reading the data")
    experiment = _here(source.experiment)
    task = task_of(experiment, Streams(experiment.seed, experiment.pin), data)
    ready = prepare(experiment, data, task)
    federation = ready.config.setting.task.federation
    try:
        tell(f"{label}: measuring the data")
        key = ready.config.setting.streams.key("probe")
        views = _first_views(ready)
        inspection = measure(federation, key, *views)
        tell(f"{label}: planning rounds")
        inspection = inspection.with_findings(system_findings(synchronous_loop(ready)))
        tell(f"{label}: measuring gradients")
        inspection = inspection.with_findings(
            beside_chance(
                drift_at_start(synchronous_loop(ready)), _by_chance(experiment, ready, data)
            )
        )
        committed = _pitfalls(
            source=source, experiment=experiment, ready=ready, inspection=inspection, task=task
        )
        without_outlying = _without_outlying(
            inspection, lambda without: measure(federation, key, *views, without)
        )
        if rounds:
            inspection = inspection.with_findings(
                drift_after(ready, rounds, lambda step: tell(f"{label}: round {step} of {rounds}"))
            )
    finally:
        ready.engine.close()
    facts = _facts(federation) + _settings(ready) + _other_clients(source, source.experiment)
    classes = _classes(federation, label)
    diagnosed = _diagnosed(source.runs)
    clients = clients_of(federation)
    columns = column_table(federation)
    return InspectedFederation(
        label=label,
        inspection=inspection,
        facts=facts,
        pitfalls=committed,
        classes=classes,
        drift=diagnosed,
        clients=clients,
        profile_without_outlying=without_outlying,
        columns=columns,
    )


def _by_chance(experiment: Experiment, ready: Ready, data: Path | None) -> list[Finding]:
    """Return the findings of gradients of the same clients with rows permuted among all of them."""
    task = ready.config.setting.task
    key = ready.config.setting.streams.key("probe")
    unlike = task.architectures
    if unlike is not None and experiment.models is not None:
        # the experiment says who holds which model, as it has
        unlike = dataclasses.replace(unlike, numbers=np.zeros(0, np.int64))
    federation = among_clients(task.federation, key)
    permuted = prepare(
        experiment, data, dataclasses.replace(task, federation=federation, architectures=unlike)
    )
    try:
        return drift_at_start(synchronous_loop(permuted))
    finally:
        permuted.engine.close()


def _first_views(ready: Ready) -> tuple[Ints | None, Ints | None]:
    """Return the first position of each client's window ``[K]`` and what it calls each class
    ``[K, C]`` in round 1; None: no drift."""
    drift = ready.config.world.drift
    data = ready.config.setting.task.federation
    if not (drift.moves_window or drift.renames_classes) or data.classes is None:
        return None, None
    key = ready.config.setting.streams.key("shift").fold("drift")
    ids = np.arange(len(data))
    return drift.window(key=key, ids=ids, sizes=data.train.sizes, round_index=1, time_s=0.0)[
        0
    ], drift.tables(key, ids, data.classes, 1, 0.0)


def _here(experiment: Experiment) -> Experiment:
    """Return the experiment with an engine in this process."""
    engine = experiment.engine
    return experiment.replace({"engine": {"name": "auto", "device": engine.device}, "grid": []})


# ------------------------------------------------------------------------------------- pitfalls


def _pitfalls(
    source: InspectionSource,
    experiment: Experiment,
    ready: Ready,
    inspection: Inspection,
    task: Task,
) -> list[str]:
    """Return the pitfalls of the experiment and of its variants, which are named where not all
    commit one."""
    variants = {
        label: variant
        for label, variant in list(source.variants.items())[:VARIANTS]
        if same_data(variant, experiment)
    }
    variants_of: dict[str, list[str]] = {}
    for label, variant in (variants or {"": experiment}).items():
        for sentence in _of_variant(_here(variant), inspection, task, ready):
            variants_of.setdefault(sentence, []).append(label)
    most = max(len(variants), 1)
    own = [
        text if len(labels) == most else f"{', '.join(labels)}: {text}"
        for text, labels in variants_of.items()
    ]
    return [*own, *pitfalls_of_set(source.keys)]


def _of_variant(variant: Experiment, inspection: Inspection, task: Task, ready: Ready) -> list[str]:
    """Return the pitfalls of one variant, or why it cannot run."""
    try:
        prepared = prepare(variant, None, task)
    except UserError as error:
        return [f"this variant cannot run: {error}"]
    prepared.engine.close()
    return pitfalls(Examined(variant, prepared, inspection))


# ------------------------------------------------------------------ what stands beside the findings


def _facts(federation: Federation) -> list[tuple[str, str]]:
    """Return the facts about the samples."""
    facts = [
        ("clients", f"{len(federation):,}"),
        ("training samples", f"{len(federation.train.values):,}"),
    ]
    facts += [("classes", str(federation.classes))] if federation.classes else []
    return facts + (
        [(LEFT_OUT, federation.notes[LEFT_OUT])] if LEFT_OUT in federation.notes else []
    )


def _settings(ready: Ready) -> list[tuple[str, str]]:
    """Return the facts about the experiment."""
    config = ready.config
    return [
        ("per round", str(config.cohort)),
        ("parameters", f"{config.setting.task.layout.size:,}"),
    ]


def _other_clients(source: InspectionSource, experiment: Experiment) -> list[tuple[str, str]]:
    """Return the fact that variants have other clients than the experiment that is inspected."""
    labels = [
        label
        for label, variant in source.variants.items()
        if not same_data(variant.replace({"seed": experiment.seed}), experiment)
    ]
    if not labels:
        return []
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return [(OTHER_CLIENTS, f"{'; '.join(labels[:_NAMED])}{more}")]


def _classes(federation: Federation, label: str) -> Picture | None:
    """Return the picture of who holds which class; None without a class per sample."""
    if not federation.classes or federation.targets != "classes":
        return None
    counts = federation.histogram()
    with_samples = counts.sum(1) > 0
    noise = federation.noise if len(federation.noise) else np.zeros(len(federation))
    if not with_samples.any():
        return None
    names = federation.client_names
    named = [name_of(k, names) for k in np.flatnonzero(with_samples).tolist()] if names else ()
    return class_picture(
        counts=counts[with_samples],
        noise=noise[with_samples],
        classes=list(federation.names),
        title=f"Who holds what: {label}",
        clients=named,
    )


def _diagnosed(runs: Sequence[Run]) -> Mapping[str, tuple[Floats, Floats]]:
    """Return what diagnostics measured over the rounds of the first run that has them."""
    for run in runs:
        notes = grouped_notes(run)
        curves = {name: notes.get(head, {}).get(tail) for name, (head, tail) in _DIAGNOSED.items()}
        curves_of_run = {
            name: (curve.x, curve.y)
            for name, curve in curves.items()
            if curve is not None and len(curve.x) > 1
        }
        if curves_of_run:
            return curves_of_run
    return {}
