"""A small world for the bandit rules: losses and durations are told, everything else is the rules'
business."""

import numpy as np

from motley.core.records import Outcome, Reports, SelectionContext


class Fixed:
    """A generator whose next normal draw is known."""

    def __init__(self, z=()):
        self.z = np.array(z)

    def standard_normal(self, n):
        assert n == len(self.z)
        return self.z

    def permutation(self, values):
        return values


def context(round, ids, m, z=()):
    return SelectionContext(round, 0, np.asarray(ids), m, Fixed(z), round)


def probed(ids, robust, val=None):
    signals = {"robust_loss": np.asarray(robust, float)}
    return Reports(
        ids,
        Outcome.PROBED,
        signals=signals | ({} if val is None else {"val_loss": np.asarray(val, float)}),
    )


def back(ids, seconds=None, outcome=Outcome.ACCEPTED, **signals):
    signals = {name: np.asarray(value, float) for name, value in signals.items()}
    return Reports(ids, outcome, compute_s=seconds, signals=signals)


def play(selector, rounds, ids, m, robust, val, seconds):
    """Whole rounds with losses ``robust(t)``, ``val(t)`` and durations, each ``[K]``; ids are 0 ..
    K - 1. The cohorts."""
    chosen = []
    for t in rounds:
        asked = selector.probe(t, ids, m)
        if len(asked):
            selector.observe(t, probed(asked, robust(t)[asked], val(t)[asked]))
        cohort = selector.select(t, ids, m).ids
        selector.observe(
            t, back(cohort, seconds[cohort], robust_loss=robust(t)[cohort], val_loss=val(t)[cohort])
        )
        chosen.append(cohort.tolist())
    return chosen
