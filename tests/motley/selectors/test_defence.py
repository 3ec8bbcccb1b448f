"""The defence between reports and rules: limits, cuts, caps; every rule under a liar of 1e308."""

import math

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.records import Outcome, Reports
from motley.selectors import CATALOGUE, Defence, Selector, build
from motley.selectors.oort import Oort
from motley.testing.selectors import SyntheticFederation, assert_same_state

OFF = {"outliers": None, "cap": None}


def test_limits_by_hand():
    """Of 1, 1, 2, 4, 1e308 the median is 2; the logarithms are log 2, log 2, 0, log 2 and 707 away
    from it, in the middle log 2: the limits are 2 / f and 2 f with f = exp(1.4826 log 2)."""
    limits = Defence(outliers=1.0).limits(np.array([1.0, 1.0, 2.0, 4.0, 1e308]))
    factor = math.exp(1.4826 * math.log(2.0))
    assert limits == pytest.approx((2.0 / factor, 2.0 * factor, 2.0, math.inf))


def test_limits_where_half_say_the_same():
    """The spread is 0 then: half to twice the median is believed."""
    assert Defence().limits(np.array([3.0, 3.0, 3.0, 9.0]))[:3] == pytest.approx((1.5, 6.0, 3.0))


def test_the_clip_is_oorts():
    """The 0.95 quantile of 1 .. 20 is the entry at floor(0.95 * 20) = 19: 20; of 1 .. 100 it is
    96."""
    clip = Defence(clip=0.95, **OFF)
    assert clip.limits(np.arange(1.0, 21.0)).top == 20.0
    assert clip.limits(np.arange(1.0, 101.0)).top == 96.0


def test_two_numbers_judge_nobody():
    assert Defence().limits(np.array([1.0, 1e308]))[:2] == (0.0, math.inf)
    # mostly zeros have no logarithm
    assert Defence().limits(np.array([np.nan, 0.0, 0.0, 0.0, 5.0]))[:2] == (0.0, math.inf)


@pytest.mark.parametrize(
    ("beyond", "counts_as"), [("median", 1.0), ("limit", 2.0), ("absent", np.nan)]
)
def test_what_an_outlier_counts_as(beyond, counts_as):
    """1, 1, 1 and 1e308: from 0.5 to 2 is believed. A loss below 0 is none, and no cosine is above
    1."""
    losses = {"loss": [1.0, 1.0, 1.0, -1.0, 1e308], "cosine": [0, 0, 0, 0, 9.0]}
    said = Reports(
        np.arange(5), Outcome.ACCEPTED, compute_s=[1.0, 1.0, 1.0, 1.0, 0.0], signals=losses
    )
    defence = Defence(beyond=beyond)
    shown = defence.believed(defence.init(), said)[1]
    assert shown.signal("loss").tolist() == pytest.approx([1, 1, 1, np.nan, counts_as], nan_ok=True)
    assert shown.signal("cosine").tolist() == [0, 0, 0, 0, 1]
    assert shown.compute_s[4] == pytest.approx(1.0 if beyond == "median" else 0.5), (
        "never absent: phases are added up"
    )


def test_vectors_keep_their_direction_and_histograms_their_shape():
    """Four vectors of length 5 and one of 5e200, which counts as one of 5. Samples 10, 10, 10, 40:
    the last counts as 10."""
    gradients = np.array([[3.0, 4.0]] * 4 + [[3e200, 4e200]])
    probed = Defence().believed(
        Defence().init(), Reports(np.arange(5), Outcome.PROBED, signals={"gradient": gradients})
    )[1]
    assert probed.signal("gradient")[4] == pytest.approx([3.0, 4.0])
    assert probed.signal("gradient")[:4].tolist() == gradients[:4].tolist()
    counts = np.array([[5.0, 5.0], [10.0, 0.0], [5.0, 5.0], [30.0, 10.0], [4.0, -1.0], [0.0, 0.0]])
    enrolled = Reports(np.arange(6), Outcome.ENROLLED, signals={"label_histogram": counts})
    shown = Defence().believed(Defence().init(), enrolled)[1].signal("label_histogram")
    assert shown[3].tolist() == pytest.approx([7.5, 2.5])
    assert np.isnan(shown[4]).all()
    assert shown[5].tolist() == [0.0, 0.0]


def test_limits_remember_what_others_said_before():
    """Three honest clients in round 1; in round 2 a single liar, alone, is judged by them."""
    defence = Defence()
    memory, _ = defence.believed(
        defence.init(), Reports([0, 1, 2], Outcome.ACCEPTED, signals={"loss": [1.0, 1.0, 1.0]})
    )
    _, shown = defence.believed(memory, Reports([3], Outcome.ACCEPTED, signals={"loss": [1e308]}))
    assert shown.signal("loss").tolist() == pytest.approx([1.0])


def test_the_cap():
    """Ten clients, two a round: after round t the even share is 0.2 t. With cap = 2, client 0 may
    be asked while its count is below 1 + 0.4 t: in rounds 1 and 2 (0 < 1, 1 < 1.4), not before
    round 4 (2 < 1 + 0.4 * 3 = 2.2)."""
    defence = Defence()
    ids = np.arange(10)
    memory = defence.believed(defence.init(), Reports(ids, Outcome.ENROLLED))[0].grow(ids)
    offered = []
    for t in range(1, 5):
        free = defence.offered(memory, ids, 2)
        offered.append(0 in free)
        others = [7, 8] if not offered[-1] else [0, t]
        memory = defence.believed(memory, Reports(sorted(others), Outcome.DROPPED))[0]
    assert offered == [True, True, False, True]


def test_a_cohort_is_always_full():
    """Where too few are below the cap, those who were asked least are offered, too."""
    defence = Defence(cap=1e-9)
    memory = defence.init()
    for ids in ([0, 1], [0, 1], [0, 2], [3, 4]):
        memory = defence.believed(memory, Reports(ids, Outcome.ACCEPTED))[0]
    memory = defence.believed(memory, Reports([2], Outcome.LATE))[0]  # asked: 3, 2, 2, 1, 1
    assert defence.offered(memory, np.arange(5), 3).tolist() == [1, 3, 4]


def test_sizes_in_the_aggregation():
    assert Defence().sizes(np.array([10, 10, 10, 10**12, 0])).tolist() == [10, 10, 10, 10, 0]
    assert Defence(beyond="limit").sizes(np.array([10, 10, 10, 10**12])).tolist() == [
        10,
        10,
        10,
        20,
    ]
    assert Defence(**OFF).sizes(np.array([10, 10, 10**12])).tolist() == [10, 10, 10**12]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outliers": 0.0}, "got outliers = 0.0; expected a finite number above 0"),
        ({"cap": math.inf}, "got cap = inf"),
        ({"clip": 1.5}, "got clip = 1.5; expected a quantile"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        Defence(**options)


def test_without_a_defence_nothing_changes_and_with_one_it_is_saved():
    federation = SyntheticFederation()
    plain = federation.selector(Oort())
    guarded = Selector(Oort(), 0, federation.horizon, Defence(clip=0.9))
    federation.enrol(guarded, federation.ids)
    for selector in (plain, guarded):
        federation.play(selector, range(1, 4))
    assert b"defence" not in plain.to_bytes()
    again = Selector.from_bytes(guarded.to_bytes())
    assert again.defence == Defence(clip=0.9)
    assert_same_state(again.memory, guarded.memory)
    for one, other in zip(
        federation.play(guarded, (4, 5)), federation.play(again, (4, 5)), strict=True
    ):
        assert one.ids.tolist() == other.ids.tolist()


class LyingFederation(SyntheticFederation):
    """A federation in which the client with id 3 claims ``claim`` in every number."""

    claim = 1e308

    def reports(self, names, round, ids, outcome):
        honest = super().reports(names, round, ids, outcome)
        liar = honest.ids == 3
        told = {
            name: np.where(liar.reshape(-1, *[1] * (v.ndim - 1)), self.claim, v)
            for name, v in honest.signals.items()
        }
        columns = {
            name: np.where(liar, self.claim, getattr(honest, name))
            for name in ("num_examples", "compute_s")
        }
        rest = {
            name: getattr(honest, name)
            for name in ("version", "local_steps", "staleness", "download_s", "upload_s")
        }
        return Reports(
            honest.ids,
            honest.outcome,
            **columns,
            **rest,
            bits_up=3200.0,
            bits_down=3200.0,
            signals=told,
        )


@pytest.mark.parametrize("defence", [None, Defence()], ids=["off", "on"])
@pytest.mark.parametrize("claim", [1e308, 0.0, -1e308])
@pytest.mark.parametrize("name", sorted(CATALOGUE.builtin))
def test_no_claim_breaks_a_rule(name, claim, defence):
    """No crash and no warning (warnings are errors here), and finite columns. With the defence the
    liar has at most 1 + 2 even shares of the requests, and one more that began just below: of 12
    rounds with 4 of 12 clients, an even share is 4."""
    federation = type("Lying", (LyingFederation,), {"claim": claim})(horizon=12)
    options = {
        "fedcs": {"deadline": 5.0},
        "fedcor": {"warmup": 2, "first_iterations": 5, "iterations": 2},
    }.get(name, {})
    selector = build(
        {"name": name, **options},
        seed=int(Key(0).fold(name).numpy().integers(9)),
        horizon=12,
        defence=defence,
    )
    federation.enrol(selector, federation.ids)
    cohorts = federation.play(selector, range(1, 13))
    for cohort in cohorts:
        for column in (cohort.weights, cohort.scores, cohort.local_steps, cohort.lr_scale):
            assert column is None or np.isfinite(column).all()
    if defence is not None:
        asked = sum(3 in cohort.ids for cohort in cohorts)
        assert asked <= 1 + 2 * sum(len(cohort.ids) for cohort in cohorts) / len(federation.ids) + 1
