"""How the clients' speed, links and availability differ, and what that costs a round: findings
without any training.

    speed_spread, link_spread   log10(ratio of the 90th to the 10th percentile) / 2, at most 1:
                                0 alike, 0.5 tenfold, 1 a hundredfold
    availability                mean share of moments at which a client is online
    availability_bias           half the sum over classes of |online law - pooled law|, less what
                                shuffled shares give: 0 unbiased
    waiting                     share of a synchronous round that clients wait for the slowest of
                                their cohort, cohorts drawn uniformly

Seconds and megabits are those of round 1; waiting and dropouts are of :data:`ROUNDS` planned
rounds.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from motley.core.arrays import Floats
from motley.core.keys import Key
from motley.rounds import probing
from motley.rounds.loop import RoundLoop
from motley.rounds.planning import WorkPlanner
from motley.timing.timeline import probe_s
from motley.transport.ledger import VALUE_BITS, message_bits
from motley_advice.heterogeneity.findings import Finding
from motley_advice.inspection.planned import PlannedRounds, planned_rounds

ROUNDS = 50
"""Rounds that are planned for waiting and dropouts."""
_MOMENTS = 168
_QUERIES = 4_000_000
"""Moments at which everybody is asked whether they are online, one in each hour of a week; fewer,
so that there are at most so many questions."""
_WITHIN = (5**0.5 - 1) / 2
"""By what share of an hour the place of a moment within its hour moves on from one to the next, so
that no period of an hour or less is met at one phase alone."""
_SHUFFLES = 20
_LOGGED = "the server's own log"


def system_findings(loop: RoundLoop) -> list[Finding]:
    """Return the findings about speed, links, availability, waiting and probing of a loop before
    its first step, which is used up."""
    findings = [*_speed(loop), *_links(loop), *_availability(loop), *_probing(loop)]
    return [*findings, *_rounds(loop, planned_rounds(loop, ROUNDS))]


def scaled_ratio(values: Floats) -> tuple[float, float]:
    """Return the ratio of the 90th to the 10th percentile of positive numbers, and
    ``log10(ratio) / 2``, at most 1.

    >>> ratio, scaled = scaled_ratio(np.array([1.0] * 5 + [10.0] * 5))
    >>> round(ratio, 6), round(scaled, 6)
    (10.0, 0.5)
    """
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return 1.0, 0.0
    low, high = np.percentile(positive, [10, 90])
    ratio = float(high / low)
    return ratio, min(1.0, math.log10(ratio) / 2.0)


def _planner(loop: RoundLoop) -> WorkPlanner:
    return WorkPlanner(loop.config, loop.state.selector.rule.needs().reported)


def _speed(loop: RoundLoop) -> list[Finding]:
    ids = np.arange(len(loop.federation))
    seconds = np.asarray(_planner(loop).local_step_s(ids, 1), np.float64)
    ratio, scaled = scaled_ratio(seconds)
    exact = partial(
        Finding,
        how="exact",
        needs="one number from each client's own clock, its seconds per step",
        federated="a histogram of 64 bins as a secure sum",
        federated_bytes=256,
    )
    return [
        exact(
            "speed_spread",
            scaled,
            unit="share",
            note=f"the 90th percentile of seconds per local step is {ratio:.3g} times the 10th",
        ),
        exact(
            "step_s",
            float(np.median(seconds)),
            unit="s",
            per_client=seconds,
            note="median seconds of a local step",
        ),
    ]


def _links(loop: RoundLoop) -> list[Finding]:
    ids = np.arange(len(loop.federation))
    network = loop.config.world.network
    mbps = np.asarray(network.uplink_mbps(loop.setting.streams.key("network"), ids, 1), np.float64)
    ratio, scaled = scaled_ratio(mbps)
    exact = partial(
        Finding,
        how="exact",
        needs="nothing: the server times each upload",
        federated=_LOGGED,
        federated_bytes=0,
    )
    if np.isinf(mbps).all():
        note = "every link is infinitely fast"
    else:
        note = f"the 90th percentile of uplinks is {ratio:.3g} times the 10th"
    spread = exact("link_spread", scaled, unit="share", note=note)
    if np.isinf(mbps).all():
        return [spread]
    median = float(np.median(mbps))
    return [spread, exact("up_mbps", median, unit="Mb/s", per_client=mbps, note="median uplink")]


# ------------------------------------------------------------------------------------- availability


def _availability(loop: RoundLoop) -> list[Finding]:
    """Return the share of time that clients are online, and how far that moves the labels that a
    round meets."""
    ids = np.arange(len(loop.federation))
    model = loop.config.world.availability
    key = loop.setting.streams.key("available")
    moments = max(24, min(_MOMENTS, _QUERIES // max(len(ids), 1)))
    apart_s = _MOMENTS * 3600.0 / moments
    total = np.zeros(len(ids))
    for moment in range(moments):
        time_s = (moment + moment * _WITHIN % 1.0) * apart_s
        total += model.online(key, ids, moment + 1, time_s)
    shares = total / moments
    low, high = np.percentile(shares, [10, 90])
    note = (
        f"share of {moments} moments of a week; a tenth of the clients have less than "
        f"{low:.0%}, a tenth more than {high:.0%}"
    )
    note = "everybody is always online" if shares.min() == 1.0 else note
    online = Finding(
        "availability",
        float(shares.mean()),
        unit="share",
        per_client=shares,
        how="estimated",
        needs="nothing: the server sees who answers",
        federated=_LOGGED,
        federated_bytes=0,
        note=note,
    )
    bias = _availability_bias(loop, shares, key.fold("shuffled"))
    return [online] if bias is None else [online, bias]


def _availability_bias(loop: RoundLoop, shares: Floats, key: Key) -> Finding | None:
    """Return how far the labels of those online lie from those of all; None without classes."""
    data = loop.federation
    if not data.classes or not len(data.train.values):
        return None
    counts = data.histogram()
    distance = _law_distance(counts, shares)
    draw = key.numpy()
    by_chance = [_law_distance(counts, draw.permutation(shares)) for _ in range(_SHUFFLES)]
    return Finding(
        "availability_bias",
        max(0.0, distance - float(np.mean(by_chance))),
        unit="share",
        how="estimated",
        needs="label counts",
        federated="label counts of those online and of all as two secure sums",
        federated_bytes=8 * data.classes,
        note=f"share of labels that would have to change class; {np.mean(by_chance):.3g} by chance "
        "is taken off",
    )


def _law_distance(counts: Floats, shares: Floats) -> float:
    """Return the total variation between the label law of all clients and that weighted by their
    shares online."""
    met = shares @ counts
    if not met.sum():
        return 0.0
    pooled = counts.sum(0)
    return 0.5 * float(np.abs(met / met.sum() - pooled / pooled.sum()).sum())


# ------------------------------------------------------------------------------------- a round


def _probing(loop: RoundLoop) -> list[Finding]:
    """Return what it costs to ask all clients with data once for their loss on all their
    samples."""
    planner = _planner(loop)
    setting = loop.setting
    ids = planner.with_data
    network = loop.config.world.network
    key = setting.streams.key("network")
    bits_down = message_bits(loop.algorithm.local.download(loop.state.server))
    batches = probing.passes({"loss": None}, loop.federation, setting.work, ids)
    up = network.uplink_mbps(key, ids, 1)
    down = network.downlink_mbps(key, ids, 1)
    seconds = probe_s(
        bits_down=bits_down,
        down_mbps=down,
        batches=batches,
        step_s=planner.step_s(ids, 1),
        bits_up=VALUE_BITS,
        up_mbps=up,
    )
    each = (bits_down + VALUE_BITS) // 8
    exact = partial(
        Finding,
        how="exact",
        needs="a loss of each client",
        federated="a probe before the choice (selectors say whom they ask)",
        federated_bytes=each,
    )
    return [
        exact(
            "probe_all_bytes",
            float(len(ids) * each),
            unit="bytes",
            note=f"the model to {len(ids)} clients with samples, and a number back",
        ),
        exact(
            "probe_all_s",
            float(seconds.max(initial=0.0)),
            unit="s",
            note="until the slowest client has measured all its samples",
        ),
    ]


def _rounds(loop: RoundLoop, planned: PlannedRounds) -> list[Finding]:
    """Return how long synchronous rounds take, and how much of that is waiting and lost work."""
    lengths = planned.lengths_s
    waiting = planned.waiting
    if not len(lengths):
        return []
    low, high = _interval(waiting)
    parts = {
        "download": planned.column("downloaded_s") - planned.column("start_s"),
        "computing": planned.column("computed_s") - planned.column("downloaded_s"),
        "upload": planned.column("arrives_s") - planned.column("computed_s"),
    }
    total = sum(float(part.sum()) for part in parts.values())
    if total:
        split = ", ".join(f"{name} {part.sum() / total:.0%}" for name, part in parts.items())
    else:
        split = "no time passes"
    estimated = partial(
        Finding,
        needs="nothing: the server times its rounds",
        federated=_LOGGED,
        federated_bytes=0,
    )
    return [
        estimated(
            "waiting",
            float(waiting.mean()),
            low,
            high,
            unit="share",
            note=f"{len(lengths)} planned synchronous rounds of {loop.config.cohort} clients",
        ),
        estimated(
            "round_s",
            float(np.median(lengths)),
            unit="s",
            note=f"median length of these rounds; a client's own part is {split}",
        ),
        estimated(
            "dropouts",
            float(planned.dropped.mean()),
            unit="share",
            note="share of clients sent out that drop out before they deliver",
        ),
    ]


def _interval(values: Floats) -> tuple[float, float]:
    """Return a 95 % interval of the mean, by the normal law."""
    if len(values) < 2:
        return math.nan, math.nan
    error = 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    return max(0.0, mean - error), min(1.0, mean + error)
