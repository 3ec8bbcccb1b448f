"""How much the label rule of some clients fails on others beyond its own error.

A rule is what the nearest samples vote. It is asked where both clients have samples near, so that
features which only one of them has are no concept shift; it is the class with most votes, so that
wrong labels of less than half of the samples change nothing.

1. Clients whose labels agree with their neighbours' more than their own and the other's reliability
   explains are put into groups, at most eight: leading eigenvectors of the excess agreement,
   k-means, then each client moves to the group whose rule predicts it best.
2. Every group's samples are halved at random. Rules of two halves disagree on a share ``cross`` of
   samples if the halves are of two groups, with their own classes' shares and with the other's, so
   that label skew changes nothing, and ``own`` if they are of one. ``(cross - own) / (1 - own)`` is
   the share of samples that the two groups call differently.
3. ``concept_shift`` is its mean over all pairs of clients. Two clusters of equal size that differ
   in half of the classes make 1/4.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from motley.core.arrays import Bools, Floats, Ints
from motley.core.keys import Key
from motley_advice.heterogeneity.client_data import Sample
from motley_advice.heterogeneity.findings import Finding
from motley_advice.heterogeneity.neighbours import Near, foreign, votes

_GROUPS = 8
_PER_GROUP = 4
"""Groups of clients at most, and drawn clients a group on average at least."""
_GROUP_SAMPLES = 300
"""Samples a group on average at least."""
_NEIGHBOURS = 15
"""Votes of a rule; fewer than a third of them near a sample: the rule says nothing there."""
_AGREEING = 20
_STEPS = 5
_FAR = 1.1
"""How many times as far as its own group's samples another's may lie for its rule to be asked."""
_COMPARED = 0.05
"""Share of pairs of clients that must be comparable."""
_RIGHT = 0.3
"""Share of labels, beyond those of the group's most frequent class, that rules must name right."""
_SAME = 0.05
"""Groups that differ in a smaller share of samples do not conflict."""


class Rules(NamedTuple):
    """Which drawn clients have equal label rules.

    Parameters
    ----------
    group: of each drawn client ``[S]``.
    conflicts: whether two groups are known to call samples differently ``[G, G]``.
    """

    group: Ints
    conflicts: Bools


def concept_finding(sample: Sample, near: Near, population: int, key: Key) -> tuple[Finding, Rules]:
    """Return the finding ``concept_shift``, and the groups of drawn clients with equal rules.

    Its error: 0.03 where clients hold a fair mix of classes, 0.1 under strong label skew or where
    features are shifted, too; IID clients give 0 up to 0.02. More than eight rules, or rules of few
    samples each, are told apart in part. Where clients of different groups have no samples near
    each other, nothing can be said.
    """
    group, differ, seen = _compared(sample, near, key)
    number = int(group.max()) + 1
    weight = np.where(seen, np.bincount(group, minlength=number) / len(group), 0.0)
    shift = partial(
        Finding,
        "concept_shift",
        unit="share",
        needs="the updates of a small model, and a table of labels and predictions",
        federated="ten rounds of federated averaging of a linear model per group, as IFCA does; "
        "then a table from each client",
        federated_bytes=10 * 8 * sample.classes * (sample.x.shape[1] + 1) + 8 * sample.classes**2,
    )
    why = _not_comparable(sample, near, group, seen)
    if why:
        missing = shift(math.nan, how="not measurable", note=why)
        return missing, Rules(group, np.zeros((number, number), bool))
    each = (weight * differ).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-12)
    mean = float(each.mean())
    error = 1.96 * float(each.std(ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    clients = np.full(population, np.nan)
    clients[sample.clients] = np.clip(each, 0, 1)
    finding = shift(
        min(max(mean, 0.0), 1.0),
        max(mean - error, 0.0),
        min(max(mean + error, 0.0), 1.0),
        per_client=clients,
        note="share of samples that two clients call by different classes beyond each one's own "
        f"error ({_coverage(group, seen):.0%} of the pairs of unlike clients could be compared)",
    )
    return finding, Rules(group, _conflicts(group, differ, seen))


def _compared(sample: Sample, near: Near, key: Key) -> tuple[Ints, Floats, Bools]:
    """Return groups of the drawn clients ``[S]``, and what :func:`_differences` makes of them.

    Fewer groups are tried where more cannot be compared; those with the most pairs of clients to
    compare are taken.
    """
    half = key.fold("half").numpy().permutation(len(near.at)) % 2
    best: tuple[Ints, Floats, Bools] | None = None
    for wanted in (_GROUPS, _GROUPS // 2, 2):
        group = groups_of(sample, near, wanted, key)
        compared = (group, *_differences(sample, near, group, half))
        if best is None or _coverage(group, compared[2]) > _coverage(best[0], best[2]):
            best = compared
        if _coverage(best[0], best[2]) >= 0.5:
            break
    return best  # type: ignore[return-value]


def _not_comparable(sample: Sample, near: Near, group: Ints, seen: Bools) -> str:
    """Return why rules cannot be compared; an empty text if they can."""
    if _coverage(group, seen) < _COMPARED:
        return "clients' samples lie so far apart that no rule of one says anything of another"
    member = group[sample.owner]
    ballots = votes(
        sample, near, foreign(sample, near) & (member[:, None] == member[near.at]), _NEIGHBOURS
    )
    counts = np.bincount(
        member * sample.classes + sample.y, minlength=(member.max() + 1) * sample.classes
    )
    # right of a rule that names the most frequent class of its group
    most = counts.reshape(-1, sample.classes).max(axis=1)
    right = float((ballots.winner == sample.y).mean())
    chance = float(most.sum() / len(sample.y))
    if (right - chance) / max(1 - chance, 1e-9) < _RIGHT:
        return (
            f"the nearest samples of like clients name {right:.0%} of the labels right: too "
            "few for a rule to be compared"
        )
    return ""


def _coverage(group: Ints, seen: Bools) -> float:
    """Return the share of pairs of clients in different groups that can be compared; 1 for a single
    group."""
    size = np.bincount(group, minlength=seen.shape[1]) / len(group)
    other_groups = np.where(np.arange(seen.shape[1]) == group[:, None], 0.0, size)
    return float((other_groups * seen).sum() / other_groups.sum()) if other_groups.any() else 1.0


def groups_of(sample: Sample, near: Near, wanted: int, key: Key) -> Ints:
    """Return the group of each drawn client, by which labels agree, ``[S]`` of 0 .. G - 1.

    Parameters
    ----------
    wanted: groups at most; fewer where clients or samples are few.
    """
    from sklearn.cluster import KMeans  # slow to import, and many commands need none

    clients = len(sample.clients)
    wanted = min(wanted, clients // _PER_GROUP, len(near.at) // _GROUP_SAMPLES)
    if clients <= _PER_GROUP:
        return np.arange(clients)
    if wanted < 2:
        return np.zeros(clients, np.int64)
    _, vectors = np.linalg.eigh(_excess_agreement(sample, near))
    group = KMeans(wanted, n_init=5, random_state=key.words()[0] % 2**31).fit_predict(
        vectors[:, 1 - wanted :]
    )
    for _ in range(_STEPS):
        moved = _scores(sample, near, group).argmax(axis=1)
        if (moved == group).all():
            break
        group = moved
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


def _excess_agreement(sample: Sample, near: Near) -> Floats:
    """Return how much more the labels of two clients agree among neighbours than their
    reliabilities explain, ``[S, S]``."""
    clients = len(sample.clients)
    closest = near.at[:, :_AGREEING]
    mine = np.repeat(sample.owner, closest.shape[1])
    yours = sample.owner[closest].ravel()
    agree = (sample.y[:, None] == sample.y[closest]).ravel()
    keep = mine != yours
    at = (mine * clients + yours)[keep]
    same = np.bincount(at, agree[keep], minlength=clients**2).reshape(clients, clients)
    number = np.bincount(at, minlength=clients**2).reshape(clients, clients).astype(float)
    same = same + same.T
    number = number + number.T
    rate = same.sum(axis=1) / np.maximum(number.sum(axis=1), 1)
    expected = number * np.outer(rate, rate) / max(float(same.sum() / max(number.sum(), 1)), 1e-9)
    excess: Floats = (same - expected) / np.sqrt(np.maximum(number, 1))
    return excess


def _scores(sample: Sample, near: Near, group: Ints) -> Floats:
    """Return the mean share of votes that each group gives the labels of each client,
    ``[S, G]``."""
    clients = len(sample.clients)
    number = int(group.max()) + 1
    member = group[sample.owner][near.at]
    from_others = foreign(sample, near)
    scores = np.full((clients, number), -1.0)
    for g in range(number):
        ballots = votes(sample, near, from_others & (member == g), _NEIGHBOURS)
        share = ballots.share[np.arange(len(near.at)), sample.y]
        heard = ballots.number * 3 >= _NEIGHBOURS
        total = np.bincount(sample.owner, heard, minlength=clients)
        mean = np.bincount(sample.owner, share * heard, minlength=clients) / np.maximum(total, 1)
        scores[:, g] = np.where(total > 0, mean, -1.0)
    return scores


def _differences(sample: Sample, near: Near, group: Ints, half: Ints) -> tuple[Floats, Bools]:
    """Return the share of each client's samples that its group and another call differently, and
    where it is known, ``[S, G]``."""
    clients = len(sample.clients)
    number = int(group.max()) + 1
    member = group[sample.owner]
    place = (half * number + member)[near.at]
    from_others = foreign(sample, near)
    ballots = [
        [
            votes(sample, near, from_others & (place == h * number + g), _NEIGHBOURS)
            for g in range(number)
        ]
        for h in (0, 1)
    ]
    winners = np.stack([[ballot.winner for ballot in side] for side in ballots])  # [2, G, m]
    heard = np.stack(
        [[ballot.number * 3 >= _NEIGHBOURS for ballot in side] for side in ballots]
    ).min(axis=0)
    far = np.stack([[ballot.far for ballot in side] for side in ballots]).mean(axis=0)
    rows = np.arange(len(near.at))
    counts = _counts(sample, member, half, number)
    own = (winners[0] != winners[1]).astype(float)
    held = (counts >= _NEIGHBOURS).min(axis=0)
    law = counts.sum(axis=0) / np.maximum(counts.sum(axis=(0, 2))[:, None], 1)
    differ = np.zeros((clients, number))
    seen = np.zeros((clients, number), bool)
    for g in range(number):
        use = heard[member, rows] & heard[g] & (far[g] <= _FAR * far[member, rows])
        cross = np.zeros(len(rows))
        for h in (0, 1):
            mine = winners[h, member, rows]
            yours = winners[1 - h, g]
            use &= held[g, mine] & held[member, yours]  # both groups know both classes
            even = (ballots[1 - h][g].share * law[member] / np.maximum(law[g], 1e-12)).argmax(
                axis=1
            )
            # also with the classes of both equally frequent
            cross += (mine != yours) & (mine != even)
        base = (own[member, rows] + own[g]) / 2
        total = np.bincount(sample.owner, use, minlength=clients)
        apart = np.bincount(sample.owner, (cross / 2 - base) * use, minlength=clients)
        agreed = np.bincount(sample.owner, (1 - base) * use, minlength=clients)
        seen[:, g] = (agreed > 0) & (total * 20 >= np.bincount(sample.owner, minlength=clients))
        differ[:, g] = np.where(seen[:, g], apart / np.maximum(agreed, 1e-9), 0.0)
    return differ, seen


def _counts(sample: Sample, member: Ints, half: Ints, number: int) -> Ints:
    """Return the number of samples of each class in either half of each group, ``[2, G, C]``."""
    at = (half * number + member) * sample.classes + sample.y
    return np.bincount(at, minlength=2 * number * sample.classes).reshape(2, number, sample.classes)


def _conflicts(group: Ints, differ: Floats, seen: Bools) -> Bools:
    """Return which groups are known to call samples differently, ``[G, G]``."""
    number = int(group.max()) + 1
    out = np.zeros((number, number), np.bool_)
    for g in range(number):
        for h in range(number):
            rows = (group == g) & seen[:, h]
            out[g, h] = bool(rows.any()) and bool(differ[rows, h].mean() >= _SAME)
    return np.logical_or(out, out.T)
