"""What a twin predicts of rules that were never tried: seconds and traffic of the recorded number
of rounds or until a target, and who would take no part.

Every seed draws another federation that the records allow (:mod:`motley.world.recorded`) and other
chances in it, so the spread over seeds holds both. A quantity y of n seeds has the prediction
interval of log y, ``mean +- t_{n-1} s sqrt(1 + 1/n)``.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, DataError
from motley.core.files import is_file, user_path
from motley.core.strict_json import restored
from motley.core.untrusted import printable
from motley.experiments.registry import catalogue, record_of
from motley.experiments.run import as_experiment
from motley.experiments.store import default_folder
from motley.experiments.sweep import Failure, check_target, compare, expand, repeatable
from motley.results.blocks import DASH, Table, TableCell, TableRow
from motley.results.labels import group_runs
from motley.results.load import Run
from motley.results.measures import Axis, Censored, costs, until_target
from motley.results.number_text import MB, short_number
from motley_advice.twin.fit import LEVEL
from motley_advice.twin.predictions import Predicted

__all__ = ["Forecast", "Predicted", "Rule", "predicted", "what_if"]

_SEEDS = 10
"""Federations that are drawn unless seeds are given."""
OFTEN = 0.8
"""Share of the seeds in which a client takes no part, from which it is named."""


@dataclass(frozen=True)
class Rule:
    """What is predicted of one rule.

    Parameters
    ----------
    rule: what it is found again by, see :func:`_keys`.
    seconds: of the recorded number of rounds.
    bits: of all messages until then.
    reached: share of the seeds that reach the target.
    to_target_s, to_target_bits: until then, NaN unless all do.
    left_out: clients that take no part in at least 80 % of the seeds.
    """

    label: str
    recorded: bool
    rule: Mapping[str, Sequence[Any]]
    seconds: Predicted
    bits: Predicted
    reached: float
    to_target_s: Predicted
    to_target_bits: Predicted
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Forecast:
    """The predictions of a twin beside what was recorded.

    Parameters
    ----------
    rules: the recorded rule first.
    source: folder of the recording.
    clients: how many.
    rounds, seconds, bits, left_out: what was recorded.
    failures: variants that could not be run.
    directory: of the runs.
    """

    rules: tuple[Rule, ...]
    source: str
    clients: int
    rounds: int
    seconds: float
    bits: float
    left_out: tuple[str, ...]
    target: float | None
    failures: Sequence[Failure]
    directory: Path

    @property
    def holds(self) -> bool:
        """Whether the recorded seconds lie within the interval of the twin under the same rule."""
        return self.rules[0].seconds.holds(self.seconds)

    def sentence(self) -> str:
        """Return in words whether the twin gives back what was recorded."""
        own = self.rules[0]
        sentence = (
            f"under the recorded rule the twin takes {own.seconds} s for {self.rounds} rounds, "
            f"and {short_number(self.seconds)} s were recorded"
        )
        if self.holds:
            return f"{sentence}: within its {LEVEL:.0%} interval."
        return (
            f"{sentence}: OUTSIDE its {LEVEL:.0%} interval. Believe none of the predictions before "
            "you know why."
        )

    def table(self) -> Table:
        """Return the predictions as a table, the recording in its first row."""
        heads = ["", f"s in {self.rounds} rounds", "MB"]
        recorded = [TableCell(short_number(self.seconds)), TableCell(short_number(self.bits / MB))]
        if self.target is not None:
            heads += [f"reach {self.target:g}", "s until then", "MB until then"]
            recorded += [TableCell(DASH)] * 3
        heads.append("never take part")
        recorded.append(TableCell(", ".join(self.left_out) or "none"))
        rows = [TableRow("recorded", recorded)]
        for rule in self.rules:
            cells = [str(rule.seconds), str(rule.bits.scaled(1 / MB))]
            if self.target is not None:
                cells += [f"{rule.reached:.0%}", str(rule.to_target_s)]
                cells.append(str(rule.to_target_bits.scaled(1 / MB)))
            cells.append(", ".join(rule.left_out) or "none")
            label = f"{rule.label} (the recorded rule)" if rule.recorded else rule.label
            rows.append(TableRow(label, [TableCell(cell) for cell in cells]))
        note = (
            f"Median and {LEVEL:.0%} prediction interval of a log-normal law with the seeds' mean "
            f"and deviation of logarithms; never take part: in at least {OFTEN:.0%} of the seeds. "
            "Measured on simulations the intervals hold fewer truths than they say (docs/twin.md)."
        )
        return Table(tuple(heads), rows, note)

    def record(self) -> dict[str, Any]:
        """Return everything as plain values, for ``prediction.json``; what is not predicted is
        NaN."""
        return {
            "level": LEVEL,
            "source": self.source,
            "clients": self.clients,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "bits": self.bits,
            "target": self.target,
            "holds": self.holds,
            "rules": [asdict(rule) for rule in self.rules],
        }


def what_if(
    path: str | Path,
    over: Mapping[str, Sequence[Any]] | None = None,
    seeds: Sequence[int] | None = None,
    *,
    target: float | None = None,
    out: str | Path | None = None,
    data: str | Path | None = None,
    overrides: Sequence[str] = (),
    progress: bool | None = None,
    jobs: int = 1,
) -> Forecast:
    """Run a twin under its recorded rule and under others, and predict.

    Parameters
    ----------
    path: the twin's file, ``twin.json`` beside it.
    over: key path -> values, as for :func:`~motley.experiments.sweep.compare`.
    seeds: at least two; ten other than the recorded one's by default, under which the cohorts of
    the recording would be drawn again.
    target: of the headline metric.
    out, data, overrides, progress, jobs: as for :func:`~motley.experiments.sweep.compare`.

    Raises
    ------
    ConfigError: fewer than two seeds, or a target where accuracy cannot be predicted. DataError: no
    twin. What :func:`~motley.experiments.sweep.compare` raises.
    """
    recorded = _recorded(user_path(path))
    packs = None if data is None else user_path(data)
    experiment = as_experiment(path, overrides)
    if seeds is None:
        seeds = tuple(islice((seed for seed in count() if seed != experiment.seed), _SEEDS))
    seeds = repeatable(seeds)
    over = {key: repeatable(values) for key, values in (over or {}).items()}
    if len(set(seeds)) < 2:
        raise ConfigError(
            f"got {len(set(seeds))} seed(s), which give no interval; give at least two, better "
            "ten, or leave them out",
            "--seeds",
        )
    if target is not None and recorded["stand_in"]:
        raise ConfigError(
            "this twin has clients of the recorded sizes without their data, so no accuracy can "
            "be predicted; leave the target out",
            "--target",
        )
    if target is not None and not np.isfinite(target):
        raise ConfigError(f"got {target}; expected a finite number", "--target")
    if target is not None:
        check_target(experiment, target, packs)
    folder = default_folder(experiment).parent if out is None else user_path(out)
    mine, wanted = (
        {point.experiment.run_id() for point in expand(experiment, keys, seeds)}
        for keys in ({}, over)
    )
    sweeps = [over] if mine <= wanted else [{}, over]
    if experiment.privacy is not None and experiment.privacy.noise_seed is None:
        warnings.warn(
            f"the twin has [privacy]: each of its {len(mine | wanted)} runs trains on the clients' "
            "data and releases more of them (motley privacy-ledger shows how much)",
            stacklevel=2,
        )
    done = [
        compare(experiment, keys, seeds, out=folder, data=packs, progress=progress, jobs=jobs)
        for keys in sweeps
    ]
    runs = [run for sweep in done for run in sweep.runs]
    failures = [failure for sweep in done for failure in sweep.failures]
    own = [run for run in runs if run.meta["run_id"] in mine]
    if len(own) < len(mine):
        raise next(
            failure.error for failure in failures if failure.point.experiment.run_id() in mine
        )
    rounds = min([recorded["rounds"], *(run.tables["rounds"].num_rows for run in own)])
    scale = _bits_scale(own, recorded)
    changed = tuple(key.partition(".")[0] for key in over or {})
    rules = [
        _rule(
            label,
            recorded=members[0].meta["run_id"] in mine,
            changed=changed,
            runs=members,
            rounds=rounds,
            target=target,
            server_s=recorded["server_s"],
            scale=scale,
        )
        for label, members in group_runs(runs).items()
    ]
    rules.sort(key=lambda rule: not rule.recorded)
    seconds, bits = (recorded[name][rounds - 1] for name in ("seconds", "bits"))
    missing = recorded["never_accepted"]
    clients = own[0].tables["federation"].num_rows
    source = recorded["source"]
    return Forecast(
        rules=tuple(rules),
        source=source,
        clients=clients,
        rounds=rounds,
        seconds=seconds,
        bits=bits,
        left_out=missing,
        target=target,
        failures=failures,
        directory=folder,
    )


def _recorded(path: Path) -> dict[str, Any]:
    beside = path.with_suffix(".json")
    if not is_file(path) or not is_file(beside):
        missing = beside if is_file(path) else path
        raise DataError(
            f"there is no file {str(missing)!r}; motley twin RUN --out {path} writes it"
        )
    try:
        record = restored(json.loads(beside.read_text(encoding="utf-8")))
        columns = {name: [float(number) for number in record[name]] for name in ("seconds", "bits")}
        rounds = len(columns["seconds"])
        if not rounds or len(columns["bits"]) != rounds:
            raise ValueError(f"{rounds} rounds have seconds, {len(columns['bits'])} bits")
        return {
            **columns,
            "rounds": rounds,
            "source": printable(str(record["source"])),
            "server_s": float(record["server_s"]),
            "never_accepted": tuple(str(name) for name in record["never_accepted"]),
            "dispatched": int(record["dispatched"]),
            "stand_in": bool(record["stand_in"]),
        }
    except (ValueError, KeyError, TypeError, OSError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{beside} is not what motley twin writes ({type(error).__name__}: {error}); make the "
            "twin anew"
        ) from None


def _bits_scale(runs: Sequence[Run], recorded: Mapping[str, Any]) -> float:
    """Return the recorded bits of a dispatch over those of the twin's, whose model is another where
    its data is a stand-in; 1 otherwise."""
    total = recorded["bits"][-1]
    if not recorded["stand_in"] or not total > 0:
        return 1.0
    all_costs = [costs(run) for run in runs]
    own = sum(cost.total_bits for cost in all_costs) / max(
        sum(cost.dispatched for cost in all_costs), 1
    )
    return float(total / recorded["dispatched"] / own)


def _rule(
    label: str,
    recorded: bool,
    changed: Sequence[str],
    runs: Sequence[Run],
    rounds: int,
    target: float | None,
    server_s: float,
    scale: float,
) -> Rule:
    """Return what the runs of a rule say; ``server_s`` is added to each round, and bits are
    ``scale`` times the runs'."""
    ends = [_at_round(run, "time_s", rounds) + server_s * rounds for run in runs]
    bits = [scale * _at_round(run, "total_bits", rounds) for run in runs]
    nothing = Predicted(float("nan"), float("nan"), float("nan"))
    common = label, recorded, _keys(runs[0].config, changed), predicted(ends), predicted(bits)
    left_out = _left_out(runs, rounds)
    if target is None:
        unasked = float("nan"), nothing, nothing
        return Rule(*common, *unasked, left_out)
    axes: tuple[Axis, ...] = ("round", "seconds", "bits")
    hits = {axis: [_hit(run, axis, target) for run in runs] for axis in axes}
    reached = float(np.mean([hit.reached for hit in hits["round"]]))
    until = nothing, nothing
    if reached == 1:
        pairs = zip(hits["seconds"], hits["round"], strict=True)
        until = (
            predicted([hit.value + server_s * at.value for hit, at in pairs]),
            predicted([scale * hit.value for hit in hits["bits"]]),
        )
    return Rule(*common, reached, *until, left_out)


def _keys(config: Mapping[str, Any], changed: Sequence[str]) -> dict[str, list[Any]]:
    """Return of each key of a rule the values that say the same, by which a real run is recognized;
    of a selector the options that are not its defaults, too, which is what a Flower strategy
    records; of the probe what a deployment records, which measures speeds whatever is said.
    ``changed``: keys that were varied beside selector, synchrony and cohort."""
    keys = {
        key: [config.get(key)]
        for key in dict.fromkeys(("selector", "synchrony", "cohort", *changed))
    }
    rule = catalogue("selector").build(config["selector"])
    keys["selector"].append(record_of("selector", rule))
    if "probe" in keys:
        keys["probe"].append({**config["probe"], "speeds": "known"})
    return keys


def _hit(run: Run, axis: Axis, target: float) -> Censored:
    return until_target(run, axis, target, untrained=False)


def _at_round(run: Run, column: str, rounds: int) -> float:
    at = run.column("rounds", "round") <= rounds
    return float(np.asarray(run.column("rounds", column), float)[at][-1])


def _left_out(runs: Sequence[Run], rounds: int) -> tuple[str, ...]:
    seeds_without: dict[int, int] = {}
    for run in runs:
        taken = run.column("clients", "outcome") == "accepted"
        taken &= run.column("clients", "round") <= rounds
        missing = np.setdiff1d(
            run.column("federation", "client"), run.column("clients", "client")[taken]
        )
        for client in missing.tolist():
            seeds_without[client] = seeds_without.get(client, 0) + 1
    named = sorted(client for client, seeds in seeds_without.items() if seeds >= OFTEN * len(runs))
    return tuple(runs[0].client_name(client) for client in named)


def predicted(values: Sequence[float]) -> Predicted:
    """Return the median and the prediction interval of a log-normal law with the mean and deviation
    of the logarithms of values of at least two seeds, all at least 0; the median of the values, and
    the least and the largest, where one is 0.

    >>> print(predicted([1.0, np.e**2]))
    2.72 (0.013 to 561.6)
    """
    numbers = np.asarray(values, float)
    if (numbers <= 0).any():
        return Predicted(float(np.median(numbers)), float(numbers.min()), float(numbers.max()))
    from scipy.special import stdtrit

    logs = np.log(numbers)
    n = len(logs)
    half = float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * logs.std(ddof=1) * np.sqrt(1 + 1 / n)
    middle = float(logs.mean())
    return Predicted(*(float(np.exp(middle + sign * half)) for sign in (0, -1, 1)))
