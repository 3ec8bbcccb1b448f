"""Labels of methods, made of what differs between the resolved experiments of the runs at hand; and
tables of many runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from motley.core.errors import ConfigError, StoreError, suggest
from motley.results.load import Run, load_all
from motley.results.method_groups import MethodGroups
from motley.results.schema import TABLES

IGNORED = (
    "name",
    "seed",
    "pin",
    "method",
    "grid",
    "engine",
    "client_state",
    "checkpoint",
    "evaluate",
    "log",
    "tuned",
)
"""Top-level keys of an experiment that do not make another method."""

_TELL_TWINS = ("pin", "evaluate")
"""Those of them that tell runs of one method and seed apart, and are part of the run id."""

_NO_RESULT = ("privacy.data_set",)
"""Options that change no result, and make no other method."""

_DERIVED = ("weights", "probe.batches")
"""Keys that the algorithm or the selector sets where they are left out: they tell runs apart only
where nothing else does."""


def label_runs(runs: Sequence[Run]) -> list[str]:
    """Return one label per run; runs that differ only in seed (or in what cannot change results)
    get the same.

    Where the runs ask for several presets (``method``), a run is called by its own, and told from
    those of the same preset only. A component is called by its name (``"power_of_choice"``);
    options are added (``"alpha 0.1"``) where they differ between runs with the same component. In
    an ablation a run is called by what it changes; where that is nothing, by its preset, or by its
    components and values where others change something. When nothing differs the label is the
    preset's name, or the experiment's. A deployment beside simulations is called so; a control
    beside methods has a name of its own. Runs of one method and seed that are pinned or evaluated
    otherwise are called by that, too.
    """
    controls = [run.control for run in runs]
    if any(controls) and not all(controls):
        methods = iter(label_runs([run for run in runs if not run.control]))
        return [control or next(methods) for control in controls]
    labels = _twins_told_apart(_by_experiment(runs), runs)
    if len({run.deployed for run in runs}) == 1:
        return labels
    return [
        f"{label} (deployed)" if run.deployed else label
        for label, run in zip(labels, runs, strict=True)
    ]


def _by_experiment(runs: Sequence[Run]) -> list[str]:
    flat = [_method_keys(run) for run in runs]
    names = [repr(config) for config in flat]
    first = {
        name: run.config.get("method")
        for name, run in zip(reversed(names), reversed(runs), strict=True)
    }
    # the same experiment without its preset's name is no other method
    presets = [first[name] for name in names]
    if len(set(presets)) == 1:
        return _labels(runs, otherwise=presets[0])
    labels = [""] * len(runs)
    for preset in dict.fromkeys(presets):
        mine = [i for i, run_preset in enumerate(presets) if run_preset == preset]
        for i, label in zip(mine, _labels([runs[i] for i in mine], preset), strict=True):
            labels[i] = label
    # a component may be called as another preset is
    return _told_apart(labels, list(dict.fromkeys(key for config in flat for key in config)), flat)


def _twins_told_apart(labels: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Return the labels, with what is pinned or how evaluation differs where a label has a seed
    more than once."""
    out = list(labels)
    flat = [_flat({key: run.config.get(key) for key in _TELL_TWINS}) for run in runs]
    for label in dict.fromkeys(labels):
        mine = [i for i, run_label in enumerate(labels) if run_label == label]
        if len({runs[i].seed for i in mine}) == len(mine):
            continue
        keys = dict.fromkeys(key for i in mine for key in flat[i])
        differing = [key for key in keys if len({repr(flat[i].get(key)) for i in mine}) > 1]
        for i in mine:
            values = {key: flat[i].get(key) for key in differing if key not in _TELL_TWINS}
            words = [
                f"no {key}" if value is None else f"{key} {value}" for key, value in values.items()
            ]
            out[i] = ", ".join([label, *words])
    return out


def _labels(
    runs: Sequence[Run], preset: str | None = None, otherwise: str | None = None
) -> list[str]:
    flat = [_method_keys(run) for run in runs]
    keys = list(dict.fromkeys(key for config in flat for key in config))
    differing = [key for key in keys if len({repr(config.get(key)) for config in flat}) > 1]
    leading = [key for key in differing if key not in _DERIVED]
    differing = [key for key in differing if key in leading or not _follows(key, leading, flat)]
    usual = _usual(differing, flat)
    labels = []
    for run, config in zip(runs, flat, strict=True):
        shown = [key for key in differing if config.get(key) != usual[key]] if usual else differing
        shown = [
            key
            for key in shown
            if _tells(key, config, flat) and not _comes_with_a_name(key, config, flat)
        ]
        words = [*([preset] if preset else []), *(_words(key, config[key], shown) for key in shown)]
        labels.append(", ".join(words) or otherwise or _own_name(differing, config) or run.name)
    return _told_apart(labels, differing, flat)


def _own_name(differing: Sequence[str], config: Mapping[str, Any]) -> str:
    """Return the names of a run's components, and its plain values, in which others differ; where
    it has none of them, the name of its algorithm. Empty where nothing differs."""
    own: dict[str, None] = {}
    for key in differing:
        owner = f"{key.rpartition('.')[0]}.name"
        named = key if key.endswith(".name") or config.get(owner) is None else owner
        if config.get(named) is not None:
            own[_words(named, config[named], differing)] = None
    tables = {key.partition(".")[0] for key in differing}
    if len(own) > 1 and len(tables) == 1 and not any(f"{table}.name" in config for table in tables):
        return tables.pop()  # a table that others have not
    names = own or [str(config.get("algorithm.name") or "")] if differing else []
    return ", ".join(names)


def _told_apart(
    labels: Sequence[str], differing: Sequence[str], flat: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the labels, with more words where runs that differ share one: also what a run lacks,
    ``"no privacy"``."""
    out = list(labels)
    for label in dict.fromkeys(labels):
        mine = [i for i, run_label in enumerate(labels) if run_label == label]
        keys = [key for key in differing if len({repr(flat[i].get(key)) for i in mine}) > 1]
        for i in mine if keys else ():
            words = dict.fromkeys(_lack_or_words(key, flat[i], keys) for key in keys)
            out[i] = ", ".join(dict.fromkeys([label, *(word for word in words if word)]))
    return out


def _lack_or_words(key: str, config: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return a key in words, what the run lacks if it has none, or nothing where the name of its
    component says it."""
    owner, _, last = key.rpartition(".")
    table = owner.partition(".")[0]
    if owner and f"{table}.name" not in keys and f"{table}.name" not in config:
        return table if _has(table, config) else f"no {table}"
    if config.get(key) is None:
        return f"no {last}"
    return "" if last != "name" and f"{owner}.name" in keys else _words(key, config[key], keys)


def _follows(key: str, leading: Sequence[str], flat: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether runs that are alike in the keys ``leading`` are alike in ``key``."""
    return len({repr([config.get(k) for k in leading]) for config in flat}) == len(
        {repr([config.get(k) for k in (*leading, key)]) for config in flat}
    )


def _usual(differing: Sequence[str], flat: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values that most runs share, where one run has all of them (an ablation); else
    nothing."""
    usual = {}
    each = list({repr(config): config for config in flat}.values())
    for key in differing:
        values = [config.get(key) for config in each]
        most = max(values, key=values.count)
        if 2 * values.count(most) <= len(values):
            return {}
        usual[key] = most
    if any(all(config.get(key) == value for key, value in usual.items()) for config in flat):
        return usual
    return {}


def clock(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return which time the runs' seconds are: ``"virtual"``, ``"wall"`` (deployments), or
    ``"virtual or wall"`` for both kinds."""
    kinds = {run.deployed for runs in groups.values() for run in runs}
    return " or ".join(
        word for word, deployed in (("virtual", False), ("wall", True)) if deployed in kinds
    )


def clock_in_words(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return the sentence that says which time a table of costs has."""
    return {
        "virtual": "Virtual time is the federation's; wall time was measured on the machine that "
        "simulated it.",
        "wall": "Wall time is the server's, from its first look for clients, without hours in "
        "which it was not running.",
    }.get(
        clock(groups),
        "Hours are virtual for simulations and wall time for deployments; the rest is wall time.",
    )


def group_runs(
    runs: Sequence[Run], against: str | None = None, plain_intervals: bool = False
) -> MethodGroups:
    """Return label -> runs by seed; labels in the order of first appearance. Controls are left out,
    unless there is nothing else; a run that lies in several folders counts once, with a warning.

    Parameters
    ----------
    against, plain_intervals: as for :class:`~motley.results.method_groups.MethodGroups`.

    Raises
    ------
    ConfigError: ``against`` is none of the labels.
    """
    groups: dict[str, list[Run]] = {}
    runs = [run for run in runs if not run.control] or runs
    for label, run in _each_once(zip(label_runs(runs), runs, strict=True)):
        groups.setdefault(label, []).append(run)
    by_seed = {
        label: sorted(members, key=lambda run: run.seed) for label, members in groups.items()
    }
    return MethodGroups(by_seed, against, plain_intervals)


def _each_once(labelled: Iterable[tuple[str, Run]]) -> list[tuple[str, Run]]:
    """Return runs with their labels, of simulations with the same id, label, seed and secret of
    their noise one, the first finished."""
    labelled_runs: dict[tuple[object, ...], tuple[str, Run]] = {}
    left = []
    for number, (label, run) in enumerate(labelled):
        run_id = run.meta.get("run_id")
        same = (label, run.seed, run_id, _secret_of(run))
        key = same if run_id and not run.deployed else (number,)
        if key not in labelled_runs:
            labelled_runs[key] = label, run
            continue
        before = labelled_runs[key][1]
        better = run.finished and not before.finished
        labelled_runs[key] = label, run if better else before
        left.append((before, run) if better else (run, before))
    if left:
        copy, original = left[0]
        subject = "1 run lies" if len(left) == 1 else f"{len(left)} runs lie each"
        count = "it counts" if len(left) == 1 else "each counts"
        warnings.warn(
            f"{subject} in two folders (the same run id), and {count} once: {copy.directory} is "
            f"{original.directory} again",
            stacklevel=3,
        )
    return list(labelled_runs.values())


def _flat(node: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(node, Mapping):
        return {path: node}
    out: dict[str, Any] = {}
    for key, value in node.items():
        out |= _flat(value, f"{path}.{key}" if path else str(key))
    return out


def _method_keys(run: Run) -> dict[str, Any]:
    """Return the keys of a run that make it one of its method, by path."""
    keys = _flat({key: value for key, value in run.config.items() if key not in IGNORED})
    return {path: value for path, value in keys.items() if path not in _NO_RESULT}


def _tells(key: str, config: Mapping[str, Any], flat: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an option tells this run from another that uses the same component."""
    if config.get(key) is None:
        return False
    owner = key.rpartition(".")[0] + ".name"
    if key != owner:
        alike = [run_config for run_config in flat if run_config.get(owner) == config.get(owner)]
    else:
        alike = list(flat)
    if len({repr(run_config.get(key)) for run_config in alike}) == 1:
        return False
    table = key.partition(".")[0]
    if (
        table == key
        or f"{table}.name" in config
        or all(_has(table, run_config) for run_config in flat)
    ):
        return True
    # a table that some runs have not
    names = {name: value for name, value in config.items() if name.endswith(".name")}
    mine = [
        run_config
        for run_config in flat
        if _has(table, run_config)
        and all(run_config.get(name) == value for name, value in names.items())
    ]
    return len({repr(run_config.get(key)) for run_config in mine}) > 1


def _has(table: str, config: Mapping[str, Any]) -> bool:
    return any(key.startswith(f"{table}.") for key in config)


def _comes_with_a_name(
    key: str, config: Mapping[str, Any], flat: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether an option that some runs have not is the same in all runs that share the name
    of one of this run's components."""
    if key.endswith(".name") or None not in [run_config.get(key) for run_config in flat]:
        return False
    names = [
        name
        for name in config
        if name.endswith(".name") and len({repr(run_config.get(name)) for run_config in flat}) > 1
    ]
    components = [
        name
        for name in names
        if not name.startswith(key.partition(".")[0]) and config[name] is not None
    ]
    return any(
        all(
            run_config.get(key) == config[key]
            for run_config in flat
            if run_config.get(name) == config[name]
        )
        for name in components
    )


def _words(key: str, value: Any, shown: Sequence[str]) -> str:
    owner, _, last = key.rpartition(".")
    if last == "name":
        return str(value)
    twin = any(shown_key != key and shown_key.rpartition(".")[2] == last for shown_key in shown)
    return f"{f'{owner}.{last}' if twin and owner else last} {value}"


def _secret_of(run: Run) -> str | None:
    """Return what a private run's record holds of the secret of its noise; None where a seed, or
    nothing, makes noise."""
    privacy = run.meta.get("privacy") or {}
    return privacy.get("commitment") if privacy.get("noise") == "secret" else None


def frame(runs: str | Path | Sequence[Run], table: str) -> pa.Table:
    """Return one table of all runs with three columns before its own: ``run_id``, ``label`` (as in
    reports), ``seed``.

    ``motley.frame("runs/whom", "evaluations").to_pandas()`` is a pandas frame,
    ``polars.from_arrow(...)`` of it a Polars one.

    Parameters
    ----------
    runs: a folder with runs in or below it, or loaded runs.
    table: rounds, clients, choices, evaluations, metrics, federation, incidents, claims, privacy
    or timings.

    Raises
    ------
    ConfigError: there is no such table. StoreError: there are no runs. DataError: a run's files are
    damaged.
    """
    if table not in TABLES:
        raise ConfigError(
            f"got {table!r}{suggest(table, TABLES)}; expected one of {', '.join(TABLES)}", "table"
        )
    loaded = load_all(runs) if isinstance(runs, str | Path) else list(runs)
    if not loaded:
        raise StoreError("a table of runs needs at least one run, got none")
    parts = []
    for run, label in zip(loaded, label_runs(loaded), strict=True):
        rows = run.tables[table]
        first = {
            "run_id": pa.repeat(
                pa.scalar(str(run.meta.get("run_id", run.directory.name))), rows.num_rows
            ),
            "label": pa.repeat(pa.scalar(label), rows.num_rows),
            "seed": pa.repeat(pa.scalar(run.seed), rows.num_rows),
        }
        parts.append(pa.table([*first.values(), *rows.columns], names=[*first, *rows.column_names]))
    return pa.concat_tables(parts)
