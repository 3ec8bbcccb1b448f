"""The measures that cells of an exhibit show: one number per run, computed from its tables.

>>> measure_of("stable").title
'stable (%)'
>>> measure_of("note.component.value.late").title
'component.value, last tenth'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, log

import numpy as np

from motley.core.errors import ConfigError, suggest
from motley.results import measures
from motley.results.load import Run
from motley.results.measures import Censored, Curve
from motley.results.number_text import MB
from motley.results.recorded_metrics import written_scope
from motley_papers import client_measures, picks, quadratic_measures

WALL_TIMES = ("choosing_ms", "wall_s")
"""Measures that depend on the machine: those of one machine are not compared with those of
another."""
OF_HEADLINE = (
    *("final", "peak", "stable", "client_mean", "pooled", "worst_tenth", "best_tenth"),
    *("validation", "validated"),
)
"""Measures in the unit of the headline metric, of which less is better where that is a loss."""
_NONE = Censored(float("nan"), True)
_PARTS = {
    "early": ", first tenth",
    "late": ", last tenth",
    "mean": ", all rounds",
    "least": ", its smallest round",
}


@dataclass(frozen=True)
class Measure:
    """A measure of a run. ``of(run, target)`` computes it; the value is not ``reached`` where it is
    only a lower bound.
    ``decimals``: digits as the papers print it. ``log``: whether it is a logarithm, so that a
    difference is a ratio. ``least``: the smallest value that it can have."""

    name: str
    title: str
    of: Callable[[Run, float | None], Censored]
    decimals: int | None = None
    log: bool = False
    least: float = -inf

    @property
    def unit(self) -> str:
        """The unit that the title begins with, or has in brackets: %, MB, ms, s or rounds; empty
        where it names none."""
        match = re.match(r"(?:virtual |wall )?(MB|ms|s|rounds)\b", self.title)
        if match:
            return match[1]
        return "%" if "(%)" in self.title else ""


def measure_of(name: str) -> Measure:
    """Return the measure of that name. ``note.NAME.early`` (``late``, ``mean``) is the mean of a
    rule's note NAME over the first tenth (last tenth, all) of the rounds, ``note.NAME.least`` the
    smallest of all rounds, ``chosen.NAME.early`` the same of what the rule noted of the clients
    that it chose, averaged over them; ``domain.NAME`` is the mean over the clients of one
    appearance, ``client.NUMBER`` the figure of one client on its own test samples.

    Raises
    ------
    ConfigError: there is no such measure.
    """
    head, _, tail = name.partition(".")
    note, _, part = tail.rpartition(".")
    if head in _NOTED and note and part in _PARTS:
        of_whom, curve = _NOTED[head]
        return Measure(name, note + of_whom + _PARTS[part], partial(_note_mean, curve, note, part))
    if head == "domain" and tail:
        return Measure(name, f"{tail} clients (%)", partial(client_measures.domain_metric, tail), 2)
    if head == "client" and tail.isdecimal():
        return Measure(name, f"client {tail} (%)", partial(client_measures.of_client, int(tail)), 2)
    if name not in MEASURES:
        near = suggest(name, MEASURES)
        usual = "" if near else "; expected e.g. final, peak or client_mean"
        raise ConfigError(f"there is no measure {name!r}{near}{usual}")
    return MEASURES[name]


def to_a_target(name: str) -> bool:
    """Return whether a measure looks at the cell's target."""
    return name in ("reached", "rounds_to_optimum") or name.endswith("_to_target")


def _percent(run: Run) -> float:
    return measures.percent_of(run)


def _end(kind: str, run: Run, target: float | None) -> Censored:
    return Censored(_percent(run) * float(getattr(measures.ends_of(run), kind)), True)


def _squared(kind: str, run: Run, target: float | None) -> Censored:
    """The mean squared error (summed over outputs, where there are several): a regression's loss is
    half of it."""
    if measures.metric_of(run)[0] != "loss":
        return _NONE
    value = 2.0 * _end("final" if kind == "log" else kind, run, target).value
    return Censored(log(value) if kind == "log" and value > 0 else value, True)


def _fairness(kind: str, run: Run, target: float | None) -> Censored:
    if measures.ruined(run, scope="mean"):  # the clients that are left would flatter the method
        return _NONE
    _name, better = measures.metric_of(run)
    served = measures.fairness(_percent(run) * measures.client_metric(run), better)
    return Censored(float(getattr(served, kind)), True)


def _pooled(run: Run, target: float | None) -> Censored:
    """Return the headline over the test samples of all clients together, where each client counts
    by their number."""
    return Censored(_percent(run) * measures.over_samples(run), True)


def _to_target(axis: measures.Axis, unit: float, run: Run, target: float | None) -> Censored:
    if target is None:
        return _NONE
    # what nobody has trained reaches no target, however well it does after fine-tuning
    crossing = measures.until_target(run, axis, target, untrained=False)
    return Censored(crossing.value / unit, crossing.reached)


def _use_seconds_to_target(run: Run, target: float | None) -> Censored:
    """Return the virtual seconds to the target, and those in which the slowest client fine-tunes
    the model before it uses it."""
    crossing = _to_target("seconds", 1.0, run, target)
    return Censored(crossing.value + client_measures.tuning_s(run), crossing.reached)


def _reached(run: Run, target: float | None) -> Censored:
    if target is None:
        return _NONE
    return Censored(float(_to_target("round", 1, run, target).reached), True)


def _cost(kind: str, unit: float, run: Run, target: float | None) -> Censored:
    return Censored(float(getattr(measures.costs(run), kind)) / unit, True)


def _participation(kind: str, run: Run, target: float | None) -> Censored:
    shares = measures.participation(run)
    if kind in ("least", "most"):
        value = {"least": shares.counts.min, "most": shares.counts.max}[kind]()
    else:
        value = getattr(shares, kind)
    return Censored(float(value), True)


def _wrong_labels(run: Run, target: float | None) -> Censored:
    """Return the share of wrong labels in percent of the samples of all participants, weighted by
    how often they took part."""
    noise, size = (
        np.asarray(run.column("federation", name), float) for name in ("noise", "num_train")
    )
    times = measures.participation(run).counts
    if len(times) != len(noise) or not (times * size).any():
        return _NONE
    return Censored(100.0 * float(np.average(noise, weights=times * size)), True)


def _picks(of: Callable[[Run], float], run: Run, target: float | None) -> Censored:
    return Censored(100.0 * of(run), True)


def _concentration(run: Run, target: float | None) -> Censored:
    values = measures.concentration(run).y
    return Censored(float(values.mean()) if len(values) else float("nan"), True)


def _best_mu(run: Run, target: float | None) -> Censored:
    values = measures.best_mu(run).y
    return Censored(float(values.mean()) if len(values) else float("nan"), True)


def _validation(run: Run, target: float | None) -> Censored:
    """Return the best value of the metric on the clients' validation samples."""
    scope = "validation" if written_scope(run) == "global" else "validation_mean"
    held = measures.trained(measures.curve(run, scope=scope))
    return Censored(_percent(run) * measures.ends(held, measures.metric_of(run)[1]).peak, True)


def _validated(run: Run, target: float | None) -> Censored:
    """Return the test metric at the best round by the clients' validation samples."""
    return Censored(_percent(run) * measures.by_validation(run), True)


def _choosing_ms(run: Run, target: float | None) -> Censored:
    seconds = np.asarray(run.column("timings", "select_s"), float)
    return Censored(
        1e3 * float(np.nanmean(seconds)) if np.isfinite(seconds).any() else float("nan"), True
    )


def _note_mean(
    curve: Callable[[Run, str], Curve], name: str, part: str, run: Run, target: float | None
) -> Censored:
    notes = curve(run, name)
    if not len(notes.y):
        return _NONE
    tenth = max(1, len(notes.y) // 10)
    chosen = {"early": notes.y[:tenth], "late": notes.y[-tenth:]}.get(part, notes.y)
    return Censored(float(np.nanmin(chosen) if part == "least" else np.nanmean(chosen)), True)


def _of_chosen(run: Run, name: str) -> Curve:
    return measures.choice_notes(run).get(name, Curve(np.empty(0), np.empty(0)))


_NOTED = {"note": ("", measures.note), "chosen": (" of the chosen", _of_chosen)}
"""First part of a measure's name -> whom it is about, and the curve of a note."""
MEASURES = {
    measure.name: measure
    for measure in (
        Measure("final", "final (%)", partial(_end, "final"), 2),
        Measure("peak", "peak (%)", partial(_end, "peak"), 2),
        Measure("stable", "stable (%)", partial(_end, "last_ten"), 2),
        Measure("drop", "peak - final", partial(_end, "drop"), 2, least=0.0),
        Measure("deviation", "deviation, last 10 rounds", partial(_end, "deviation"), 2),
        Measure("mse", "test MSE", partial(_squared, "final"), 4),
        Measure("mse_stable", "test MSE, mean of the last 10", partial(_squared, "last_ten"), 4),
        Measure("mse_log", "ln test MSE", partial(_squared, "log"), 4, log=True),
        Measure("client_mean", "clients' own mean (%)", partial(_fairness, "mean"), 2),
        Measure("pooled", "over all test samples (%)", _pooled, 2),
        Measure("worst_tenth", "worst tenth of clients (%)", partial(_fairness, "worst_decile"), 2),
        Measure("best_tenth", "best tenth of clients (%)", partial(_fairness, "best_decile"), 2),
        Measure("variance", "variance over clients", partial(_fairness, "variance"), 1),
        Measure("reached", "share of seeds at the target", _reached, 2),
        Measure("rounds_to_target", "rounds to target", partial(_to_target, "round", 1.0), 0),
        Measure("seconds_to_target", "virtual s to target", partial(_to_target, "seconds", 1.0), 0),
        Measure(
            "use_seconds_to_target",
            "virtual s to target, fine-tuning billed",
            _use_seconds_to_target,
            0,
        ),
        Measure(
            "paper_seconds_to_target",
            "s to target, papers' count",
            partial(_to_target, "paper_seconds", 1.0),
            0,
        ),
        Measure(
            "paper_mb_to_target",
            "MB to target, papers' count",
            partial(_to_target, "paper_bits", MB),
        ),
        Measure(
            "traffic_mb_to_target", "MB to target, all traffic", partial(_to_target, "bits", MB)
        ),
        Measure("seconds", "virtual s", partial(_cost, "time_s", 1.0), 0),
        Measure("paper_seconds", "s, papers' count", partial(_cost, "paper_s", 1.0), 0),
        Measure("paper_mb", "MB, papers' count", partial(_cost, "paper_bits", MB)),
        Measure("traffic_mb", "MB, all traffic", partial(_cost, "total_bits", MB)),
        Measure("wall_s", "wall s", partial(_cost, "wall_s", 1.0), 1),
        Measure("choosing_ms", "ms to choose, a round", _choosing_ms, 2),
        Measure("participation_std", "std of participation", partial(_participation, "std"), 2),
        Measure("participation_least", "least often", partial(_participation, "least"), 0),
        Measure("participation_most", "most often", partial(_participation, "most"), 0),
        Measure("gini", "Gini of participation", partial(_participation, "gini"), 3),
        Measure("all_seen", "round by which all were seen", partial(_participation, "all_seen"), 0),
        Measure("wrong_labels", "wrong labels trained on (%)", _wrong_labels, 2),
        Measure(
            "cohort_overlap",
            "of a cohort, also in the one before (%)",
            partial(_picks, picks.cohort_overlap),
            1,
        ),
        Measure(
            "noisy_picks",
            "picks with more wrong labels than the median (%)",
            partial(_picks, picks.noisy_picks),
            1,
        ),
        Measure(
            "skewed_picks",
            "picks with one class above a half (%)",
            partial(_picks, picks.skewed_picks),
            1,
        ),
        Measure("best_mu", "mu that Lemma A.4 calls best", _best_mu, 3),
        Measure("concentration", "std / mean of the probabilities", _concentration, 3),
        Measure("validation", "best by validation (%)", _validation, 2),
        Measure("validated", "at the best round by validation (%)", _validated, 2),
        Measure("loss", "test loss", client_measures.test_loss, 4),
        Measure("loss_rise", "largest rise of the test loss", client_measures.loss_rise, 4),
        Measure("diverged", "share of seeds that diverged", client_measures.diverged, 2),
        *(
            Measure(f"{name}_{part}", title.format(words), partial(of, quarter), digits)
            for name, words, quarter in (
                ("slow", "slowest quarter", client_measures.slow),
                ("seldom", "least present quarter", client_measures.seldom),
            )
            for part, title, of, digits in (
                ("share", "updates of the {} (%)", client_measures.share_of, 1),
                ("metric", "{} of clients (%)", client_measures.metric_of, 2),
                ("gap", "all others minus the {}", client_measures.gap_of, 2),
            )
        ),
        Measure("staleness", "mean staleness", client_measures.stale, 2),
        Measure("idle", "idle places (%)", client_measures.idle, 1),
        Measure("state_mb", "MB that a client keeps", client_measures.state_mb, 4),
        Measure(
            "optimum_distance", "distance to the optimum", quadratic_measures.optimum_distance, 4
        ),
        Measure(
            "rounds_to_optimum",
            "rounds to the target's share of the distance",
            quadratic_measures.rounds_to_optimum,
            0,
        ),
        *(
            Measure(f"{kind}_{part}", title.format(name), partial(of, kind), 4)
            for kind, name in (("fedavg", "FedAvg"), ("fednova", "FedNova"))
            for part, title, of in (
                ("bias", "distance by {}'s closed form", quadratic_measures.closed_form_distance),
                (
                    "gap",
                    "measured minus {}'s closed form, absolute",
                    quadratic_measures.closed_form_gap,
                ),
            )
        ),
    )
}
