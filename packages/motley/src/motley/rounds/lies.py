"""What a simulated server is told: reports in which claims of dishonest clients
(:mod:`motley.world.dishonest`) replace the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids
from motley.core.claims import MEASURED_BY_SERVER, TOPICS, row_sizes, said, with_values
from motley.core.keys import Key
from motley.core.records import Outcome, Reports
from motley.core.saved_state import built
from motley.rounds.round import Round
from motley.rounds.stage import ChosenCohort, Stage
from motley.rounds.state import RunState
from motley.world.interfaces import Dishonest

Heard = Mapping[str, float]
"""Occasion and name of a signal -> the goal of the liars when honest clients last said something
about it."""
MOST_EXAMPLES = 1e12
"""Samples that a client can have at most where updates are weighed: so large a claim owns the
model, and sums stay whole numbers."""
_LESS_ATTRACTS = frozenset(name for name in TOPICS["durations"] if name.endswith("_s"))


class Lies(Stage):
    """Lets the selector hear what dishonest clients claim, and writes it beside the truth.

    Parameters
    ----------
    dishonest: what they claim.
    key: of failures.
    examples: true numbers of samples, ``[K]``.
    measured: whether the server measures itself what it can, so that nobody is believed about it.

    Attributes
    ----------
    heard: what liars remember.
    """

    name = "lies"

    def __init__(self, dishonest: Dishonest, key: Key, examples: Ids, measured: bool) -> None:
        self.dishonest = dishonest
        self.key = key
        self.examples = examples
        self.measured = measured
        self.heard: Heard = {}
        self._rows: list[dict[str, Any]] = []
        self._chosen = (0, 0.0)  # server step, and the liars that were chosen in it so far

    @override
    def save(self, state: RunState[Any]) -> Mapping[str, Any]:
        return {"heard": dict(self.heard)}

    @override
    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        self.heard = built(dict[str, float], saved["heard"], "heard")

    def claimed_examples(self, draw_index: int) -> Ids:
        """Return the number of samples by which each client's update is weighed, ``[K]``."""
        return claimed_examples(
            self.dishonest, self.key, self.examples, round_index=draw_index, bounded=self.measured
        )

    @override
    def chosen(self, state: RunState[Any], step: Round, choice: ChosenCohort) -> Round:
        """Note how many liars were chosen since the last server step."""
        ids = choice.cohort.ids
        number, count = self._chosen
        before = count if number == step.number else 0.0
        count = before + float(self.dishonest.liars(self.key, ids, state.draw_index).sum())
        self._chosen = (step.number, count)
        return step.noted({"liars": count})

    @override
    def reports(self, state: RunState[Any], reports: Reports) -> Reports:
        outcome = Outcome(int(reports.outcome[0])) if len(reports) else Outcome.ACCEPTED
        # nothing was drawn yet when the first clients enrol
        enrolled = outcome == Outcome.ENROLLED
        draw_index = 0 if enrolled else state.draw_index
        number = 0 if enrolled else state.version + (outcome == Outcome.PROBED)
        result = told(
            self.dishonest,
            self.key,
            reports,
            round_index=draw_index,
            examples=self.claimed_examples(draw_index),
            heard=self.heard,
            measured=self.measured,
        )
        self.heard = result.heard
        if result.rows:
            self._rows.append({"round": number, **result.rows})
        return result.reports

    @override
    def rows(self, state: RunState[Any], last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        rows = self._rows
        self._rows = []
        return [("claims", columns) for columns in rows]


class Told(NamedTuple):
    """Reports as the server hears them, what liars remember, and rows of the table ``claims``
    without the column ``round``."""

    reports: Reports
    heard: Heard
    rows: dict[str, Any]


def told(
    dishonest: Dishonest,
    key: Key,
    reports: Reports,
    round_index: int,
    examples: Ids,
    heard: Heard,
    measured: bool,
) -> Told:
    """Return reports with the liars' claims in place of the truth.

    Parameters
    ----------
    key: of failures.
    round_index: 0 at enrolment.
    examples: samples that every client claims to have, ``[K]``.
    heard: by liars so far.
    measured: whether the server measures itself what it can, so that nobody is believed about it.
    """
    liar = dishonest.liars(key, reports.ids, round_index)
    remembered = dict(heard)
    when, values = said(reports)
    names = {name for topic in dishonest.topics() for name in TOPICS[topic]} - (
        MEASURED_BY_SERVER if measured else frozenset()
    )
    claims: dict[str, Floats] = {}
    # a set of names has another order in every process, and rows follow this one
    for name in sorted(names & values.keys()):
        if name == "num_examples":
            claims[name] = np.where(liar, examples[reports.ids], values[name])
            continue
        appeal = _appeal(name, _amounts(name, values[name]))
        honest = appeal[~liar & ~np.isnan(appeal)]
        if len(honest):
            remembered[f"{when} {name}"] = dishonest.goal(honest)
        lying = liar & ~np.isnan(appeal)
        goal = remembered.get(f"{when} {name}", np.nan)
        claims[name] = _claimed(name, values[name], lying, dishonest.claims(appeal[lying], goal))
    rows = _rows(reports.ids, liar, when, values, claims=claims)
    return Told(with_values(reports, claims) if claims else reports, remembered, rows)


def claimed_examples(
    dishonest: Dishonest, key: Key, examples: Ids, round_index: int, bounded: bool
) -> Ids:
    """Return the number of samples by which each client's update is weighed, ``[K]``: whole numbers
    from 0 to 10^12.

    Parameters
    ----------
    examples: true numbers.
    bounded: whether nobody may claim more than at enrolment.
    """
    if not dishonest.lies or "num_examples" not in dishonest.topics():
        return examples
    ids = np.arange(len(examples))
    truth = examples.astype(np.float64)
    liar = dishonest.liars(key, ids, round_index)
    honest = truth[~liar]
    goal = dishonest.goal(honest) if len(honest) else np.nan
    # What NaN or infinity becomes as int64 is undefined, and differs between machines.
    claims = np.nan_to_num(
        dishonest.claims(truth[liar], goal), nan=0.0, posinf=MOST_EXAMPLES, neginf=0.0
    )
    out = examples.copy()
    out[liar] = np.clip(claims, 0.0, MOST_EXAMPLES).astype(np.int64)
    if bounded:
        out = np.minimum(
            out, claimed_examples(dishonest, key, examples, round_index=0, bounded=False)
        )
    return out


def _amounts(name: str, values: Floats) -> Floats:
    """Return one number for each row ``[n]``: the samples of a histogram, the length of another
    vector, the number itself."""
    return np.asarray(values.sum(axis=1)) if name == "label_histogram" else row_sizes(values)


def _appeal(name: str, values: Floats) -> Floats:
    """Return how attractive numbers are, and from their appeal the numbers: seconds attract where
    they are few."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(1.0 / values) if name in _LESS_ATTRACTS else values


def _claimed(name: str, truth: Floats, lying: Bools, appeal: Floats) -> Floats:
    """Return a column in which these clients claim numbers of this appeal, ``[n]`` or
    ``[n, d]``."""
    out = truth.copy()
    claims = _appeal(name, appeal)
    if name == "label_histogram":
        out[lying] = (claims / truth.shape[1])[:, None]
    elif truth.ndim == 1:
        out[lying] = claims
    else:
        sizes = row_sizes(truth[lying])
        # A liar may claim more than a float holds; whoever hears it has to cope, so it is sent.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            out[lying] = truth[lying] / np.where(sizes > 0, sizes, 1.0)[:, None] * claims[:, None]
    return out


def _rows(
    ids: Ids, liar: Bools, when: str, values: Mapping[str, Floats], claims: Mapping[str, Floats]
) -> dict[str, Any]:
    """Return one row for each liar and signal; of vectors what :func:`_amounts` makes of them."""
    n = int(liar.sum())
    if not n or not claims:
        return {}
    return {
        "client": np.tile(ids[liar], len(claims)),
        "occasion": [when] * (n * len(claims)),
        "signal": np.repeat(list(claims), n).tolist(),
        "claimed": np.concatenate([_amounts(name, claim[liar]) for name, claim in claims.items()]),
        "true": np.concatenate([_amounts(name, values[name][liar]) for name in claims]),
    }
