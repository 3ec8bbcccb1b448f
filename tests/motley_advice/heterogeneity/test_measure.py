"""Estimates on worlds whose truth is known: near zero for IID clients, growing with the cause, and
of one kind at a time.

Tolerances are wide against what was seen over seeds; each number is a function of the seed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from motley.core.errors import DataError
from motley.core.keys import Key, Streams
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.tasks import from_arrays
from motley.tasks.task import Task
from motley.world.shift.concept_shift import ClassSwap
from motley_advice.heterogeneity.client_data import of_arrays
from motley_advice.heterogeneity.findings import Inspection
from motley_advice.heterogeneity.label_skew import divergence, label_findings, sampling_error
from motley_advice.heterogeneity.measure import measure, measure_arrays
from motley_advice.heterogeneity.wrong_labels import _spread_interval

SKEWED = ("partition", "dirichlet", "alpha", 0.3)
TWO_RULES = ("concept_shift", "swap", "clusters", 2, "share", 1.0)


@functools.lru_cache(maxsize=1)
def _plain() -> dict[str, object]:
    return {
        "task": {"name": "image", "data": "digits", "model": "mlp"},
        "population": 30,
        "cohort": 5,
        "stop": {"rounds": 1},
    }


def _task(*parts: tuple[object, ...]) -> Task:
    """30 clients of the handwritten digits, with components as (key, name, option, value, ...)."""
    keys = {
        str(part[0]): {"name": part[1], **dict(zip(part[2::2], part[3::2], strict=True))}
        for part in parts
    }
    return task_of(Experiment(**{"partition": {"name": "iid"}, **_plain(), **keys}))


@functools.lru_cache(maxsize=64)
def _found(*parts: tuple[object, ...]) -> Inspection:
    return measure(_task(*parts), Key(0))


def _value(name: str, *parts: tuple[object, ...]) -> float:
    return _found(*parts)[name].value


def test_iid_clients_differ_in_nothing() -> None:
    profile = _found().profile()
    for name in (
        "label_divergence",
        "feature_shift",
        "concept_shift",
        "label_noise",
        "label_noise_spread",
    ):
        assert profile[name] < 0.03, name
    assert profile["size_gini"] < 0.02
    assert _value("domains") == 1


def test_label_skew_grows_as_alpha_falls_and_is_no_other_difference() -> None:
    skews = [_found(("partition", "dirichlet", "alpha", alpha)) for alpha in (100.0, 1.0, 0.3, 0.1)]
    for name, sign in (("label_divergence", 1), ("missing_classes", 1), ("effective_classes", -1)):
        values = [sign * one[name].value for one in skews]
        assert values == sorted(values)
        assert values[-1] - values[0] > 0.3
    for one in skews:
        assert one["feature_shift"].value < 0.05
        assert one["concept_shift"].value < 0.06
        assert one["label_noise"].value < 0.05
        assert one["domains"].value == 1


@pytest.mark.parametrize("kind", ["symmetric", "pair_flip"])
def test_label_noise_is_found_and_is_no_other_difference(kind: str) -> None:
    for rate in (0.1, 0.2, 0.4):
        found = _found(("label_noise", kind, "rate", rate))
        assert abs(found["label_noise"].value - rate) < 0.05
        assert found["label_noise"].low - 0.01 <= rate <= found["label_noise"].high + 0.01
        assert found["label_noise_spread"].value < 0.05
        assert found["concept_shift"].value < 0.03
        assert found["feature_shift"].value < 0.05


def test_noisy_clients_are_told_from_clean_ones_under_label_skew_too() -> None:
    noisy = ("label_noise", "pair_flip", "rate", 0.4, "share", 0.5)
    for parts in ((noisy,), (noisy, SKEWED)):
        found = _found(*parts)
        truth = _task(*parts).federation.noise
        rates = found["label_noise"].per_client
        assert rates is not None
        assert np.nanmean(rates[truth > 0]) > np.nanmean(rates[truth == 0]) + 0.3
        assert abs(found["label_noise"].value - truth.mean()) < 0.05
        assert abs(found["label_noise_spread"].value - truth.std()) < 0.05
        assert found["concept_shift"].value < 0.05
        assert found["feature_shift"].value < 0.06


def test_feature_shift_grows_with_its_strength_and_is_no_other_difference() -> None:
    values = [
        _value("feature_shift", ("feature_shift", "noise", "sigma", sigma))
        for sigma in (0.05, 0.1, 0.3)
    ]
    assert values == sorted(values)
    assert values[-1] > 0.3
    turned = ("feature_shift", "domains", "names", ("plain", "rotated"))
    for parts in ((turned,), (turned, SKEWED)):
        found = _found(*parts)
        assert found["feature_shift"].value > 0.35
        assert found["domains"].value == 2
        assert found["label_noise"].value < 0.05
        # or nothing was near enough to compare
        assert not found["concept_shift"].value > (0.05 if parts == (turned,) else 0.1)


def _apart(task: Task, clusters: int, share: float) -> float:
    """Return the share of samples that two random clients call differently, from the swapped pairs
    of classes."""
    tables = ClassSwap(clusters, share).tables(Streams().key("shift").fold("concept"), 10)
    cluster = task.federation.cluster
    return float((tables[:, None] != tables[None]).mean(axis=2)[cluster][:, cluster].mean())


@pytest.mark.parametrize(("clusters", "share"), [(2, 0.5), (2, 1.0)])
def test_concept_shift_is_the_share_that_two_clients_call_differently(
    clusters: int, share: float
) -> None:
    shift = ("concept_shift", "swap", "clusters", clusters, "share", share)
    found = _found(shift)
    assert abs(found["concept_shift"].value - _apart(_task(shift), clusters, share)) < 0.06
    assert found["label_noise"].value < 0.06
    assert found["feature_shift"].value < 0.06


def test_concept_shift_under_label_noise_and_under_label_skew() -> None:
    for other in (("label_noise", "symmetric", "rate", 0.2), SKEWED):
        found = _found(TWO_RULES, other)
        assert abs(found["concept_shift"].value - _apart(_task(TWO_RULES, other), 2, 1.0)) < 0.12
    assert (
        abs(_value("label_noise", TWO_RULES, ("label_noise", "symmetric", "rate", 0.2)) - 0.2)
        < 0.06
    )


def test_intervals_hold_their_values() -> None:
    for parts in ((), (SKEWED,), (TWO_RULES,)):
        for one in _found(*parts).findings.values():
            if not math.isnan(one.low):
                assert one.low <= one.value <= one.high, one.name


def test_the_same_key_gives_the_same_bits_and_the_task_is_not_changed() -> None:
    task = _task(SKEWED)
    before = task.federation.labels.clone()
    found = measure(task, Key(0)).to_json()
    assert found == _found(SKEWED).to_json()
    assert (task.federation.labels == before).all()


def test_samples_that_are_all_the_same_bytes_are_no_copies_of_one_another() -> None:
    """Such are the samples of ``quadratic``: a share of copies of 1 would say that every client has
    every other's data."""
    found = measure_arrays(np.zeros((40, 3)), np.arange(40) % 2, np.arange(40) % 4, Key(0))
    for name in ("duplicates", "duplicates_within"):
        assert not found[name].measured
        assert "all samples are the same bytes" in found[name].note


def test_sizes_labels_and_duplicates_of_a_federation_worked_by_hand() -> None:
    x = np.array([[1.0, 2], [3, 4], [1, 2], [5, 6], [5, 6], [7, 8]])
    found = measure_arrays(
        x, ["a", "b", "a", "a", "a", "a"], ["one", "one", "two", "two", "two", "two"], Key(0)
    )
    # sizes 2 and 4: (2*1-2-1)*2 + (2*2-2-1)*4 = 2, over K sum n = 12
    assert found["size_gini"].value == pytest.approx(2 / 12)
    assert found["largest_share"].value == pytest.approx(4 / 6)
    assert found["missing_classes"].value == 0.25  # client two lacks one of two classes
    # exp(entropy): of (1/2, 1/2) 2, of (1,) 1
    assert found["effective_classes"].value == pytest.approx(1.5)
    assert found["duplicates"].value == pytest.approx(2 / 6)  # (1, 2) lies at both
    np.testing.assert_allclose(found["duplicates"].per_client, [1 / 2, 1 / 4])
    assert found["duplicates_within"].value == pytest.approx(1 / 6)  # the second (5, 6)
    for name in ("feature_shift", "concept_shift", "label_noise"):
        assert found[name].how == "not measurable"
        assert found[name].note
    assert found["domains"].note == (
        "groups are looked for where 12 clients or more have 12 samples or more each; of the 2 "
        "clients that were looked at, 0 have them"
    )


def test_each_finding_says_what_leaves_a_client_and_how_much() -> None:
    for one in _found().findings.values():
        assert one.needs, one.name
        assert one.federated, one.name
        assert one.federated_bytes is not None
        assert one.note


def test_numbers_are_compared_by_quantile_bins_and_their_noise_is_not_measured() -> None:
    rng = Key(0).fold("test").numpy()
    x = rng.normal(size=(1200, 3))
    client = np.arange(1200) % 20
    sign = np.where(client < 10, 1.0, -1.0)
    same = measure_arrays(x, x[:, 0], client, Key(0))
    opposite = measure_arrays(x, sign * x[:, 0], client, Key(0))
    assert same["label_divergence"].value < 0.05
    assert same["concept_shift"].value < 0.03
    assert opposite["concept_shift"].value > 0.25  # 4 of 5 bins change, for half of all pairs
    assert same["label_noise"].how == "not measurable"
    assert any("quantile bins" in note for note in same.notes)


def test_of_a_class_per_position_only_laws_are_measured() -> None:
    tokens = np.arange(240).reshape(40, 6) % 7
    client = np.arange(40) % 4
    found = measure(from_arrays(tokens, tokens, client), Key(0))
    assert not math.isnan(found["label_divergence"].value)
    assert "tokens" in found["label_divergence"].note
    assert found["feature_shift"].how == "not measurable"
    assert "a class per position" in found["feature_shift"].note


def test_under_drift_the_window_and_the_names_of_now_are_measured() -> None:
    federation = _task().federation
    window = np.full(len(federation), 5)
    drifting = dataclasses.replace(federation, window=window)
    assert measure(drifting, Key(0))["size_gini"].value == 0  # five samples each
    names = np.tile(np.arange(10), (len(federation), 1))
    names[::2] = names[::2, ::-1]
    renamed = measure(federation, Key(0), names=names)
    assert renamed["concept_shift"].value > 0.35  # half of the clients call everything differently


@pytest.mark.parametrize(
    ("x", "y", "client", "message"),
    [
        (np.zeros((3, 2)), [0, 1], [0, 0, 0], "got 3 features, 2 labels and 3 client ids"),
        (np.zeros((0, 2)), [], [], "got 0 features"),
        (np.array([[np.nan], [1.0]]), [0, 1], [0, 1], "not all finite numbers"),
        (np.array([["a"], ["b"]]), [0, 1], [0, 1], "not all finite numbers"),
        (np.zeros((2, 1)), [0.5, np.nan], [0, 1], "1 of 2 labels are no finite numbers; leave"),
        (np.zeros((2, 1)), np.zeros((2, 2)), [0, 1], r"got labels \[2, 2\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    x: np.ndarray, y: object, client: object, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        measure_arrays(x, y, client, Key(0))  # type: ignore[arg-type]


# --------------------------------------------------------------- labels hard to predict or wrong


def overlapping(
    seed: int, rate: float, holders: Sequence[int] = range(10), slope: float = 8.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two classes by a logistic law of one of six columns, ten clients of 100 samples; a share of
    the labels of some clients is wrong."""
    draw = np.random.default_rng([seed, 99])
    x = draw.normal(size=(1000, 6))
    client = np.arange(1000) % 10
    y = (draw.random(1000) < 1 / (1 + np.exp(-slope * x[:, 0]))).astype(np.int64)
    wrong = (draw.random(1000) < rate) & np.isin(client, holders)
    return x, np.where(wrong, 1 - y, y), client


@pytest.mark.parametrize(("rate", "slope"), [(0.0, 1.0), (0.2, 8.0)])
def test_labels_that_are_as_hard_or_wrong_at_all_clients_are_no_difference(
    rate: float, slope: float
) -> None:
    """A table that says little of its classes, and one with a fifth of wrong labels everywhere."""
    high = 0
    for seed in range(8):
        found = measure_arrays(*overlapping(seed, rate, slope=slope), Key(0))
        high += found["label_noise"].value >= 0.1
        assert found.differences()["label_noise"] == 0
        assert found["label_noise_spread"].low == 0
    assert high >= 5  # the number is there, and says nothing of a difference


def test_unlike_rates_of_wrong_labels_are_a_difference_by_the_lower_end() -> None:
    for seed in range(4):
        found = measure_arrays(*overlapping(seed, 0.4, range(5)), Key(0))
        one, spread = found["label_noise"], found["label_noise_spread"]
        # five clients of ten with 0.4 have a mean of 0.2 and a deviation of 0.2
        assert one.low < 0.2 + 0.05
        assert one.value == pytest.approx(0.2, abs=0.06)
        assert 0.1 < spread.low <= spread.value <= spread.high
        assert found.differences()["label_noise"] == one.low >= 0.1


def test_the_interval_of_the_spread_by_hand() -> None:
    """Two clients of 100 samples of one class, 10 and 30 of them denied: 0.1 to each side of 0.2,
    with a variance of 0.0016 by chance. 0.02 / (0.0016 + v) is 5.024, the 97.5 % quantile of
    chi-squared with one degree of freedom, at v = 0.002381, and 0.000982 at v = 20.4, beyond 1."""
    low, high = _spread_interval(np.array([[100], [100]]), np.array([[10], [30]]))
    assert low == pytest.approx(0.0488, abs=1e-4)
    assert high == 1.0
    assert _spread_interval(np.array([[100], [100]]), np.array([[20], [20]])) == (0.0, 0.0)
    # classes of unlike rates explain it: 90 and 10 of a class of 0.1, 10 and 90 of one of 0.5
    number = np.array([[90, 10], [10, 90]])
    assert _spread_interval(number, np.array([[9, 5], [1, 45]])) == (0.0, 0.0)


def test_of_a_single_class_no_wrong_labels_are_measured() -> None:
    x = np.random.default_rng(0).normal(size=(120, 3))
    found = measure_arrays(x, np.zeros(120, np.int64), np.arange(120) % 4, Key(0))
    assert found["label_noise"].note == "all samples have the same label"
    assert math.isnan(found.differences()["label_noise"])


TWO_LAWS = np.array([[0.5, 0.3, 0.2], [0.15, 0.3, 0.55]])
"""Laws of the labels of two clients."""


def test_the_sampling_error_of_the_mean_distance_is_that_of_drawn_labels() -> None:
    draw = np.random.default_rng(0)
    sizes = (300, 150)
    counts = np.stack(
        [draw.multinomial(n, law, 1500) for n, law in zip(sizes, TWO_LAWS, strict=True)], axis=1
    )
    distances = [
        np.sqrt(divergence(two / two.sum(axis=1, keepdims=True), two.sum(axis=0) / two.sum()))
        for two in counts
    ]
    expected = sampling_error(TWO_LAWS * np.array(sizes)[:, None])
    assert np.mean(distances, axis=1).std() == pytest.approx(expected, rel=0.1)  # 5 errors of it


def test_labels_of_two_clients_are_as_far_apart_as_they_are_and_have_an_interval() -> None:
    """Each is half of all labels: of what few samples add by chance that takes half."""
    draw = np.random.default_rng(1)
    owner = np.repeat([0, 1], 30)
    truth = float(np.sqrt(divergence(TWO_LAWS, TWO_LAWS.mean(axis=0))).mean())
    values = []
    inside = []
    for _ in range(200):
        labels = np.concatenate([draw.choice(3, 30, p=law) for law in TWO_LAWS])
        found = label_findings(of_arrays(np.zeros((60, 1)), labels, owner))[0]
        values.append(found.value)
        inside.append(found.low <= truth <= found.high)
    assert np.mean(values) == pytest.approx(truth, abs=0.02)
    assert np.mean(inside) > 0.88  # 95 % less four standard errors


def test_labels_without_anything_in_common_are_as_far_apart_as_the_note_says() -> None:
    """Of two clients the middle of (1, 0) and (1/2, 1/2) is (3/4, 1/4)."""
    owner = np.repeat([0, 1], 200)
    found = label_findings(of_arrays(np.zeros((400, 1)), owner, owner))[0]
    by_hand = math.sqrt((math.log2(4 / 3) + 0.5 * math.log2(2 / 3) + 0.5 * math.log2(2)) / 2)
    assert found.value == pytest.approx(by_hand, abs=0.005)
    assert f"0: all alike, {by_hand:.2f}: 2 equal clients with nothing in common" in found.note


def test_how_well_two_clients_are_told_apart_has_the_interval_of_their_samples() -> None:
    draw = np.random.default_rng(3)
    owner = np.repeat([0, 1], 30)
    x = draw.normal(size=(60, 4)) + 0.5 * owner[:, None]
    found = measure_arrays(x, np.zeros(60, np.int64), owner, Key(1))["feature_shift"]
    error = 1.96 * math.sqrt((1 - found.value**2) / 60)
    assert found.value > 0
    assert found.low == max(found.value - error, 0.0)
    assert found.high == pytest.approx(found.value + error)
