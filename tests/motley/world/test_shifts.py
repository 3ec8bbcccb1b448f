"""Feature shift, concept shift, drift: what is changed, whose, and when; pure in (key, client,
time)."""

import itertools

import numpy as np
import pytest
from scipy import ndimage

from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.world import CONCEPT_SHIFT, DRIFT, FEATURE_SHIFT
from motley.world.shift.appearance import blurred, rotated
from motley.world.shift.concept_shift import ClassSwap, NoConceptShift, swapped
from motley.world.shift.drift import NoDrift, SwapDrift, WindowDrift
from motley.world.shift.feature_shift import (
    DOMAINS,
    Domains,
    ImageTransforms,
    NiidBenchNoise,
    NoFeatureShift,
    PixelNoise,
    shifted,
)

KEY = Streams(0).key("shift")
RNG = np.random.default_rng(0)
PICTURES = RNG.random((12, 2, 7, 9)).astype(np.float32)
OWNER = np.repeat(np.arange(4), 3)
FEATURES = [
    PixelNoise(0.3),
    NiidBenchNoise(0.3, "paper"),
    ImageTransforms(),
    Domains(("plain", "inverted", "noisy", "rotated")),
    Domains(),
]


def near(share, p, n):
    return abs(share - p) <= 4 * np.sqrt(p * (1 - p) / n)


# ---------------------------------------------------------------- features


@pytest.mark.parametrize("shift", FEATURES, ids=repr)
def test_feature_shifts_are_pure_and_leave_their_input_alone(shift):
    before = PICTURES.copy()
    first = shifted(shift, KEY, PICTURES, OWNER, 4)
    assert (first == shifted(shift, KEY, PICTURES, OWNER, 4)).all()
    assert (before == PICTURES).all()
    assert first.dtype == np.float32
    some = np.array([7, 2])
    assert np.allclose(
        shifted(shift, KEY, PICTURES[some], OWNER[some], 4, rows=some), first[some], atol=1e-6
    )
    assert (shifted(shift, Streams(1).key("shift"), PICTURES, OWNER, 4) != first).any()


def test_plain_features_stay():
    assert np.allclose(shifted(NoFeatureShift(), KEY, PICTURES, OWNER, 4), PICTURES, atol=1e-7)


def test_noise_grows_with_the_clients_number():
    """NIID-Bench: deviation sigma i / (K - 1): 0, 0.1, 0.2, 0.3 for sigma = 0.3, K = 4; nothing is
    cut."""
    x = np.full((4000, 1, 5, 5), 0.95, np.float32)
    owner = np.repeat(np.arange(4), 1000)
    off = (shifted(PixelNoise(0.3), KEY, x, owner, 4) - x).reshape(4, -1)
    assert (np.abs(off[0]) < 1e-6).all()
    assert np.allclose(off.std(axis=1), [0, 0.1, 0.2, 0.3], rtol=0.03, atol=1e-6)
    assert (np.abs(off.mean(axis=1)) <= 4 * np.array([1e-6, 0.1, 0.2, 0.3]) / np.sqrt(25_000)).all()
    assert PixelNoise(0.3).appearance(KEY, np.array([0]), 1).noise.tolist() == [0.0]


def test_noise_of_niid_bench_by_hand():
    """Ten clients and noise 0.1, as its script has it. Code: client 3 has the standard deviation .1
    * 3 / 9. Paper: party P_1 the variance .1 / 10, so .1; P_4 .04, so .2; P_10 .1, so .3162."""
    ids = np.array([0, 3, 9])
    code = NiidBenchNoise(0.1).appearance(KEY, ids, 10).noise
    assert code == pytest.approx([0.0, 0.033333, 0.1], rel=1e-4)
    paper = NiidBenchNoise(0.1, as_published="paper").appearance(KEY, ids, 10).noise
    assert paper == pytest.approx([0.1, 0.2, 0.316228], rel=1e-4)
    x = np.full((2000, 1, 5, 5), 0.5, np.float32)
    owner = np.repeat([0, 1], 1000)
    off = (shifted(NiidBenchNoise(0.5, "paper"), KEY, x, owner, 2) - x).reshape(2, -1)
    assert off.std(axis=1) == pytest.approx([0.5, 0.70711], rel=0.02)  # variances .25 and .5
    assert shifted(NiidBenchNoise(), KEY, x, owner, 2)[0] == pytest.approx(0.5)


def test_noise_of_niid_bench_knows_two_forms():
    with pytest.raises(ConfigError, match="got as_published = 'both'; expected 'code' or 'paper'"):
        NiidBenchNoise(as_published="both")


def test_noise_suits_tables_too():
    table = np.zeros((2000, 3), np.float32)
    assert shifted(PixelNoise(2.0), KEY, table, np.ones(2000, int), 2).std() == pytest.approx(
        2.0, rel=0.05
    )


def test_transforms_are_drawn_from_their_ranges():
    looks = ImageTransforms().appearance(KEY, np.arange(20_000), 20_000)
    for values, low, high in (
        (looks.brightness, 0.6, 1.4),
        (looks.degrees, -30, 30),
        (looks.blur, 0, 1.5),
    ):
        assert low < values.min() < low + 0.01 * (high - low)
        assert abs(values.mean() - (low + high) / 2) < 4 * (high - low) / np.sqrt(12 * 20_000)
    assert (looks.contrast == 1).all()
    assert (
        ImageTransforms().appearance(KEY, np.array([9, 4]), 20_000).degrees == looks.degrees[[9, 4]]
    ).all()


def test_a_client_has_one_look():
    same = np.repeat(PICTURES[:1], 12, axis=0)
    out = shifted(ImageTransforms(), KEY, same, OWNER, 4).reshape(4, 3, -1)
    assert (out == out[:, :1]).all()
    assert len(np.unique(out[:, 0], axis=0)) == 4


def test_domains_by_hand():
    """Inverted 1 - x, dim 0.4 x, rotated by a quarter; equally many clients in each."""
    shift = Domains(("plain", "inverted", "dim"))
    group = shift.group(KEY, np.arange(60), 60)
    assert np.bincount(group).tolist() == [20, 20, 20]
    x = np.repeat(PICTURES[:1], 60, axis=0)
    out = shifted(shift, KEY, x, np.arange(60), 60)
    for name, wanted in enumerate((x[0], 1 - x[0], 0.4 * x[0])):
        assert np.allclose(out[group == name], wanted, atol=1e-6)
    turned = shifted(Domains(("rotated",)), KEY, PICTURES[:, :, :7, :7], OWNER, 4)
    assert np.allclose(turned, np.rot90(PICTURES[:, :, :7, :7], axes=(2, 3)), atol=1e-5)


def test_all_named_looks_work():
    out = shifted(Domains(tuple(DOMAINS)), KEY, PICTURES, OWNER, 4)
    assert np.isfinite(out).all()


def test_rotation_is_bilinear_about_the_middle():
    """SciPy's linear interpolation on the same grid."""
    degrees = np.array([0.0, 17.0, -30.0, 90.0])
    out = rotated(PICTURES[:4], degrees)
    for picture, angle, found in zip(PICTURES[:4], degrees, out, strict=True):
        wanted = ndimage.rotate(
            picture, angle, axes=(2, 1), reshape=False, order=1, mode="grid-constant", cval=0.0
        )
        assert np.allclose(found, wanted, atol=1e-5)


def test_blur_is_gaussian():
    """SciPy's filter with the border repeated; the weights are cut at the same reach."""
    sigma = np.array([0.0, 0.4, 1.5])
    out = blurred(PICTURES[:3], sigma)
    for picture, s, found in zip(PICTURES[:3], sigma, out, strict=True):
        wanted = (
            ndimage.gaussian_filter(picture, (0, s, s), mode="nearest", radius=5) if s else picture
        )
        assert np.allclose(found, wanted, atol=1e-5)


def test_standardised_pixels_are_shifted_as_the_pixels_they_stand_for():
    """Black and white are given per channel; the result is the shifted picture, standardized."""
    mean = np.array([0.3, 0.6]).reshape(1, 2, 1, 1)
    deviation = np.array([0.2, 0.5]).reshape(1, 2, 1, 1)
    shift = ImageTransforms(contrast=(0.5, 0.9))
    units = ((PICTURES - mean) / deviation).astype(np.float32)
    black = (-mean / deviation).ravel()
    white = ((1 - mean) / deviation).ravel()
    wanted = (shifted(shift, KEY, PICTURES, OWNER, 4) - mean) / deviation
    assert np.allclose(shifted(shift, KEY, units, OWNER, 4, black, white), wanted, atol=1e-5)


def test_pictures_are_wanted():
    with pytest.raises(
        ConfigError, match=r"feature_shift: this shift transforms images .* the data is \[5, 3\]"
    ):
        shifted(Domains(), KEY, np.zeros((5, 3), np.float32), np.zeros(5, int), 4)


# ---------------------------------------------------------------- concepts


def test_swaps_are_disjoint_pairs():
    """floor(share C / 2) pairs: share 0.5 of 10 classes: 2 pairs; 0.6: 3 (not 2: 0.6 * 10 / 2 falls
    short of 3 in floats); 1: 5."""
    for share, pairs in ((0.5, 2), (0.6, 3), (1.0, 5), (0.39, 1)):
        table = swapped(KEY, share, 10)
        assert (table[table] == np.arange(10)).all()
        assert (table != np.arange(10)).sum() == 2 * pairs


def test_cluster_zero_keeps_its_labels():
    labels = np.tile(np.arange(10), 300)
    owner = np.repeat(np.arange(300), 10)
    shift = ClassSwap(3, share=0.4)
    found, cluster = shift.apply(KEY, labels, owner, 10, 300)
    assert all(near((cluster == j).mean(), 1 / 3, 300) for j in range(3))
    wrong = np.bincount(owner, found != labels)
    assert (wrong == np.where(cluster == 0, 0, 4)).all()
    tables = found.reshape(300, 10)
    assert all((tables[cluster == j] == tables[cluster == j][0]).all() for j in range(3))
    assert (tables[cluster == 1][0] != tables[cluster == 2][0]).any()
    assert (shift.group(KEY, np.array([9, 4])) == cluster[[9, 4]]).all()


def test_the_same_concept():
    labels = np.array([2, 0, 1])
    found, cluster = NoConceptShift().apply(KEY, labels, np.array([0, 1, 1]), 3, 2)
    assert found.tolist() == [2, 0, 1]
    assert cluster.tolist() == [0, 0]


def test_a_share_without_a_pair_is_refused():
    with pytest.raises(
        ConfigError, match=r"swaps no pair of 3 classes; expected at least 0.666667"
    ):
        ClassSwap(share=0.5).apply(KEY, np.zeros(3, int), np.zeros(3, int), 3, 1)


def test_what_no_number_can_hold_is_refused():
    looks = PixelNoise(1e300)
    x = np.zeros((4, 1, 2, 2), np.float32)
    with pytest.raises(
        ConfigError,
        match=r"feature_shift: with these options features overflow 32-bit numbers; use smaller "
        r"values",
    ):
        shifted(looks, KEY, x, np.arange(4), 4)
    with pytest.raises(
        ConfigError,
        match=r"got blur = \[0.0, 10000.0\]; expected a deviation of at most 100 pixels",
    ):
        FEATURE_SHIFT.build({"name": "transform", "blur": [0, 1e4]})


# ---------------------------------------------------------------- drift

LABELS = np.tile(np.arange(5), 40)
HOLDER = np.repeat(np.arange(10), 20)


def test_nothing_moves():
    first, seen = NoDrift().window(KEY, np.arange(3), np.array([4, 5, 6]), 7, 8.0)
    assert first.tolist() == [0, 0, 0]
    assert seen.tolist() == [4, 5, 6]
    assert (NoDrift().order(KEY, LABELS, HOLDER, 5, 10) == np.arange(200)).all()
    assert (NoDrift().tables(KEY, np.arange(3), 4, 7, 8.0) == np.arange(4)).all()


@pytest.mark.parametrize("common", [True, False])
def test_the_ring_goes_class_by_class(common):
    order = WindowDrift(common=common).order(KEY, LABELS, HOLDER, 5, 10)
    assert (HOLDER[order] == HOLDER).all()
    assert (np.sort(order) == np.arange(200)).all()
    rings = LABELS[order].reshape(10, 5, 4)
    assert (rings == rings[:, :, :1]).all()
    assert (len(np.unique(rings[:, :, 0], axis=0)) == 1) == common


def test_a_window_goes_round_in_its_period_and_keeps_its_size():
    """Share 0.5 of 20 in a period of 10 rounds, all together: round t begins at 2 t, modulo 20, and
    sees 10."""
    window = WindowDrift(0.5, 10, common=True)
    found = [window.window(KEY, np.array([3]), np.array([20]), t, 0.0) for t in range(12)]
    assert [int(first[0]) for first, _ in found] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 0, 2]
    assert {int(seen[0]) for _, seen in found} == {10}


def test_clients_begin_anywhere_unless_together():
    window = WindowDrift(0.3, 50.0, "seconds")
    ids = np.arange(20_000)
    sizes = np.full(20_000, 100)
    first, seen = window.window(KEY, ids, sizes, 9, 125.0)
    assert abs(first.mean() - 49.5) < 4 * 100 / np.sqrt(12 * 20_000)
    assert (seen == 30).all()
    # a turn of 0.5 and one of 2.5
    assert (window.window(KEY, ids, sizes, 1, 25.0)[0] == first).all()
    assert (window.window(KEY, np.array([9, 4]), sizes[:2], 9, 125.0)[0] == first[[9, 4]]).all()


def test_small_and_empty_clients_have_windows():
    first, seen = WindowDrift(0.1).window(KEY, np.arange(3), np.array([0, 1, 3]), 5, 0.0)
    assert seen.tolist() == [0, 1, 1]
    assert (first <= [0, 0, 2]).all()


def test_a_sudden_swap():
    drift = SwapDrift(start=10, share=1.0)
    tables = [drift.tables(KEY, np.arange(4), 6, t, 0.0) for t in (9, 10, 11)]
    assert (tables[0] == np.arange(6)).all()
    assert (tables[1] != np.arange(6)).all()
    assert (tables[1] == tables[2]).all()
    assert (tables[1] == tables[1][0]).all()


def test_a_swap_that_spreads():
    """From second 100 over 200 s: half of the clients have changed at 200 s, and none changes
    back."""
    drift = SwapDrift(start=100.0, width=200.0, clock="seconds")
    ids = np.arange(20_000)
    changed = [
        (drift.tables(KEY, ids, 6, 1, t) != np.arange(6)).any(axis=1)
        for t in (99.0, 150.0, 200.0, 300.0)
    ]
    assert all(
        near(flags.mean(), share, 20_000)
        for flags, share in zip(changed, (0, 0.25, 0.5, 1), strict=True)
    )
    assert all((late | ~early).all() for early, late in itertools.pairwise(changed))


@pytest.mark.parametrize(
    ("catalogue", "record", "message"),
    [
        (
            FEATURE_SHIFT,
            {"name": "noise", "sigma": 0},
            "got sigma = 0.0; expected a finite number above 0",
        ),
        (
            FEATURE_SHIFT,
            {"name": "transform", "blur": [-1, 1]},
            "got blur = \\[-1.0, 1.0\\]; .* of at least 0",
        ),
        (
            FEATURE_SHIFT,
            {"name": "transform", "degrees": [30, -30]},
            "got degrees = \\[30.0, -30.0\\]",
        ),
        (
            FEATURE_SHIFT,
            {"name": "domains", "names": ["plain", "invertd"]},
            "did you mean 'inverted'",
        ),
        (
            FEATURE_SHIFT,
            {"name": "domains", "names": ["plain", "plain"]},
            "at least one name, each once",
        ),
        (CONCEPT_SHIFT, {"name": "swap", "clusters": 1}, "got clusters = 1; expected at least 2"),
        (
            CONCEPT_SHIFT,
            {"name": "swap", "share": 0},
            "got share = 0.0; expected a share in \\(0, 1\\]",
        ),
        (DRIFT, {"name": "window", "period": 0}, "got period = 0.0"),
        (DRIFT, {"name": "window", "clock": "hours"}, "got 'hours'"),
        (DRIFT, {"name": "swap"}, "'swap' needs this option"),
        (DRIFT, {"name": "swap", "start": -1}, "got start = -1.0"),
    ],
)
def test_bad_options_are_named(catalogue, record, message):
    with pytest.raises(ConfigError, match=message):
        catalogue.build(record)


def test_every_name_builds():
    assert {type(FEATURE_SHIFT.build(name)) for name in FEATURE_SHIFT.names()} == {
        Domains,
        NiidBenchNoise,
        PixelNoise,
        NoFeatureShift,
        ImageTransforms,
    }
    assert {type(CONCEPT_SHIFT.build(name)) for name in CONCEPT_SHIFT.names()} == {
        NoConceptShift,
        ClassSwap,
    }
    assert {DRIFT.get(name) for name in DRIFT.names()} == {NoDrift, SwapDrift, WindowDrift}
