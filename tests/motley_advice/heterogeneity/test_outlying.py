"""Outlying clients: the statistics by hand, faults planted in real tables, and federations without
any."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import nbinom, poisson
from sklearn import datasets

from motley.core.keys import Key
from motley.tasks import from_arrays
from motley_advice.heterogeneity.class_faults import absent_classes, shared_rows
from motley_advice.heterogeneity.column_faults import Rows, excess, normal_scores, spread_ratio
from motley_advice.heterogeneity.findings import Inspection, OutlyingClient
from motley_advice.heterogeneity.measure import measure, measure_arrays

Array = NDArray[np.float64]
Classes = NDArray[np.int64]


def cancer(seed: int, clients: int = 10) -> tuple[Array, Classes, Classes]:
    """Columns, classes and owners of scikit-learn's breast cancer."""
    given = datasets.load_breast_cancer()
    owner = np.random.default_rng(seed).permutation(np.arange(len(given.target)) % clients)
    return given.data.astype(float), given.target.astype(np.int64), owner


def told(x: Array, y: Classes, owner: Classes) -> list[OutlyingClient]:
    return list(measure_arrays(x, y, owner, Key(0)).outlying)


def test_normal_scores_of_equal_values_are_equal() -> None:
    scores = normal_scores(np.array([[1.0], [2.0], [2.0], [9.0]]))[:, 0]
    # ranks 1, 2.5, 2.5, 4 of 4: the quantiles of 1/8, 1/2, 1/2, 7/8
    assert scores.tolist() == pytest.approx([-1.1503, 0.0, 0.0, 1.1503], abs=1e-4)


def test_what_clients_differ_beyond_chance_by_hand() -> None:
    """Means of 50 clients of variance 4 / n by chance and 1 beyond: sums have variance 4 n +
    n^2."""
    n = np.full(50, 20.0)
    draw = np.random.default_rng(0)
    sums = draw.normal(size=(50, 1)) * np.sqrt(4 * 20 + 400)
    together, own = excess(sums, np.full((50, 1), 80.0), n)
    assert 0.3 < together + own[0] < 2.5  # the median of 50 squares is within a factor of 2
    alike = draw.normal(size=(50, 1)) * np.sqrt(80.0)
    assert excess(alike, np.full((50, 1), 80.0), n)[0] < 0.1


def test_spread_is_compared_within_classes_and_an_offset_does_not_hide_it() -> None:
    draw = np.random.default_rng(1)
    owner = np.arange(400) % 4
    y = (np.arange(400) // 4) % 2
    x = draw.normal(size=(400, 1)) + 100.0 * y[:, None]
    x[owner == 2] = 7 * x[owner == 2] + 1000
    ratio = spread_ratio(Rows(owner, y, x, 4, 2), 2, 0, Key(0))
    assert 5 < ratio < 10  # the median of 50 ratios of equal laws is within 40 % of 7


def test_absent_classes_by_hand() -> None:
    alike = np.full((10, 2), 30.0)
    alike[3] = (60, 0)
    found = absent_classes(alike)
    assert [(one.client, one.label) for one in found] == [(3, 1)]
    assert found[0].share_elsewhere == pytest.approx(0.5)
    few = np.full((10, 2), 30.0)
    few[3] = (6, 0)  # (1/2)^6 = 1/64 is no wonder among 10 clients
    assert absent_classes(few) == []
    skewed = np.array([[60.0, 0.0], [0.0, 60.0]] * 5)
    assert absent_classes(skewed) == []  # nobody has both


def test_an_absent_class_is_found_among_few_equal_clients() -> None:
    """Wine's classes vary over six equal clients by chance alone, so that all shares tell how they
    vary; (1 - 0.4)^16 = 1 / 3,500 is just below 2 % of 1 / 18."""
    y = datasets.load_wine(return_X_y=True)[1]
    found = 0
    for seed in range(20):
        owner = np.random.default_rng(seed).permutation(np.arange(len(y)) % 6)
        counts = np.bincount(owner * 3 + y, minlength=18).reshape(6, 3).astype(float)
        assert absent_classes(counts) == []
        counts[2, counts[2].argmax()] = 0
        found += [one.client for one in absent_classes(counts)] == [2]
    assert found >= 10
    assert (
        absent_classes(np.array([[50.0, 50], [50, 50], [50, 50], [50, 50], [99, 0]])) == []
    )  # few


def test_shared_rows_by_hand() -> None:
    hashes = np.arange(100, dtype=np.uint64)
    owner = np.arange(100) // 10
    hashes[20:26] = hashes[50:56]  # client 2 has six samples of client 5
    y = np.zeros(100, np.int64)
    counts = np.full((10, 1), 10.0)
    assert [tuple(one) for one in shared_rows(hashes, owner, y, counts)] == [(2, 5, 6)]
    # 6 equal pairs fall to a given pair of clients 2 x 10 x 10 / 100^2 times each, 0.12 in all
    assert poisson.sf(5, 0.12) < 1e-6
    # five pairs within each client: none stands out
    assert shared_rows(np.arange(100, dtype=np.uint64) // 2, owner, y, counts) == []
    # one common sample is no copy
    assert shared_rows(np.zeros(100, np.uint64), owner, y, counts) == []


def test_equal_samples_come_together_by_hand() -> None:
    """15 samples lie four times each among ten clients with ten samples: 90 pairs, each between two
    given clients with 2 x 10 x 10 / 100^2, 1.8 in all; the other two samples of four add 2 (.1 +
    .1) = .4 of that to the variance. Ten pairs or more of 45 pairs of clients and ten clients are
    told below 2 x .005 / 110 = 9.1e-5: a Poisson law has them in 2e-5 of cases, the negative
    binomial one with the variance 2.52 in 7e-4, and fourteen in 1e-5."""
    first = [[2, 2, 5, 5], [2, 2, 5, 5]]
    elsewhere = [0, 1, 3, 4, 6, 7, 8, 9]
    rest = [[elsewhere[(5 * row + at) % 8] for at in range(4)] for row in range(12)]
    found = []
    for more in ([[2, 2, 5, 0], rest[0]], [[2, 2, 5, 5], [2, 2, 5, 0]]):
        hashes = np.arange(100, 200).astype(np.uint64)
        used = np.zeros(10, int)
        for row, clients in enumerate([*first, *more, *rest[1:]]):
            for client in clients:
                hashes[10 * client + used[client]] = row
                used[client] += 1
        y = np.zeros(100, np.int64)
        pairs = shared_rows(hashes, np.arange(100) // 10, y, np.full((10, 1), 10.0))
        found.append([tuple(one) for one in pairs])
    assert found == [[], [(2, 5, 14)]]
    assert poisson.sf(9, 1.8) < 9.1e-5 < nbinom.sf(9, 1.8 / 0.4, 1 / 1.4)
    assert nbinom.sf(13, 1.8 / 0.4, 1 / 1.4) < 9.1e-5


def test_few_values_are_no_copies() -> None:
    """Three small integers a row, 12 clients alike: of these seeds three were accused."""
    for seed in (1, 57, 99):
        draw = np.random.default_rng(seed)
        weights = draw.normal(size=(6, 3)) * 1.5
        rows = []
        labels = []
        for _ in range(12):
            some = draw.normal(size=(120, 6))
            labels.append(np.argmax(some @ weights + draw.gumbel(size=(120, 3)) * 0.3, 1))
            rows.append(np.round(some[:, :3]))
        found = told(np.concatenate(rows), np.concatenate(labels), np.arange(1440) // 120)
        assert [one for one in found if one.kind == "copied data"] == []


def centred(seed: int) -> tuple[Array, Classes, Classes]:
    """Six columns around 0 of 12 clients alike, the third times 100 at client 9."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(1440, 6))
    y = np.argmax(x @ draw.normal(size=(6, 3)) * 1.5 + draw.gumbel(size=(1440, 3)) * 0.3, 1)
    owner = np.arange(1440) // 120
    x[owner == 9, 2] *= 100
    return x, y, owner


@pytest.mark.parametrize("seed", range(5))
def test_a_factor_of_a_column_around_0_is_told_and_no_other_column_is(seed: int) -> None:
    """The median size of 120 normal values is known to 11 %."""
    x, y, owner = centred(seed)
    (one,) = told(x, y, owner)
    assert (one.client, one.kind, one.columns) == (9, "units", ("column 2",))
    said = re.fullmatch(
        r"column 2 (\S+) times the others' \(median size(?: of class '\d')? (\S+) against (\S+)\)",
        one.said,
    )
    assert said is not None, one.said
    factor, here, there = (float(number.replace(",", "")) for number in said.groups())
    assert 67 < factor < 150
    assert factor == pytest.approx(here / there, rel=5e-3)


def units(x: Array, y: Classes, mine: Classes) -> None:
    x[mine, 3] *= 100


def inches(x: Array, y: Classes, mine: Classes) -> None:
    x[mine, 3] *= 2.54


def offset(x: Array, y: Classes, mine: Classes) -> None:
    x[mine, 4] += 2 * x[:, 4].std()


def constant(x: Array, y: Classes, mine: Classes) -> None:
    x[mine, 7] = np.median(x[:, 7])


def swapped(x: Array, y: Classes, mine: Classes) -> None:
    y[mine] = 1 - y[mine]


def random(x: Array, y: Classes, mine: Classes) -> None:
    y[mine] = np.random.default_rng(0).integers(2, size=len(mine))


PLANTED: list[tuple[Callable[[Array, Classes, Classes], None], str, str]] = [
    (units, "units", "times the others' (median"),
    (inches, "units", "the others' (median"),
    (offset, "offset", "lies elsewhere and spreads as the others'"),
    (constant, "constant column", "column 7 is always "),
    (swapped, "swapped labels", "they agree if what it calls 0 is 1, 1 is 0"),
    (random, "random labels", "denies "),
]


@pytest.mark.parametrize(("fault", "kind", "words"), PLANTED)
def test_a_planted_fault_is_named_with_its_kind_and_nobody_else(
    fault: Callable[[Array, Classes, Classes], None], kind: str, words: str
) -> None:
    for seed in (0, 1):
        x, y, owner = cancer(seed)
        fault(x, y, np.flatnonzero(owner == 6))
        found = told(x, y, owner)
        assert {(one.client, one.kind) for one in found} == {(6, kind)}
        assert words in found[0].said
        assert found[0].remedy


def test_copies_name_both_clients() -> None:
    x, y, owner = cancer(0)
    copies = np.flatnonzero(owner == 6)[:12]
    source = np.flatnonzero(owner == 0)[:12]
    x[copies], y[copies] = x[source], y[source]
    found = told(x, y, owner)
    assert [(one.client, one.kind) for one in found] == [(0, "copied data"), (6, "copied data")]
    assert found[0].said == "12 of 57 samples also lie at client 6"


def test_an_absent_class_names_its_client() -> None:
    x, y, owner = cancer(0)
    kept = (owner != 2) | (y == 1)
    assert [(one.client, one.kind) for one in told(x[kept], y[kept], owner[kept])] == [
        (2, "absent class")
    ]


def test_faults_of_digits_under_label_skew_are_told_apart() -> None:
    x, y = (np.asarray(one) for one in datasets.load_digits(return_X_y=True))
    draw = np.random.default_rng(3)
    owner = np.zeros(len(y), np.int64)
    for label in range(10):
        at = np.flatnonzero(y == label)
        owner[at] = draw.choice(10, len(at), p=draw.dirichlet(np.full(10, 0.5)))
    assert told(x, y, owner) == []
    odd = int(np.bincount(owner).argmax())
    renamed = y.copy()
    renamed[owner == odd] = (y[owner == odd] + 1) % 10
    assert {(one.client, one.kind) for one in told(x, renamed, owner)} == {(odd, "swapped labels")}


@pytest.mark.parametrize("clients", [10, 60])
def test_clean_federations_name_nobody(clients: int) -> None:
    """At most 5 % of clean federations may name a client, so that more than two of eight have a
    probability below 0.6 %."""
    named = 0
    for seed in range(8):
        x, y, owner = cancer(seed, clients)
        if seed % 2:  # unequal: a quarter of all rows moves to the first three clients
            owner[np.random.default_rng(seed).permutation(len(y))[: len(y) // 4]] %= 3
        named += bool(told(x, y, owner))
    assert named <= 2


def test_clients_that_all_differ_are_no_outlying_ones() -> None:
    x, y, owner = cancer(0)
    x[:, 3] *= 10.0 ** (owner % 5)
    assert told(x, y, owner) == []


@pytest.mark.parametrize("size", [0.15, 0.3])
def test_clients_that_all_differ_a_little_name_nobody(size: float) -> None:
    """Offsets of all clients from one normal law: the largest is no outlier."""
    for seed in range(8):
        x, y, owner = cancer(seed)
        offsets = np.random.default_rng(seed).normal(size=(10, x.shape[1])) * size
        assert told(x + (offsets * x.std(axis=0))[owner], y, owner) == []


def test_a_fault_that_two_clients_share_is_found_at_both() -> None:
    x, y, owner = cancer(0)
    units(x, y, np.flatnonzero((owner == 6) | (owner == 3)))
    assert {(one.client, one.kind) for one in told(x, y, owner)} == {(3, "units"), (6, "units")}


def test_the_numbers_of_a_sentence_agree_and_are_plain_medians() -> None:
    x, y, owner = cancer(0)
    units(x, y, np.flatnonzero(owner == 6))
    (one,) = told(x, y, owner)
    here, there = (float(np.median(x[part, 3])) for part in (owner == 6, owner != 6))
    assert numbers(one) == pytest.approx([here / there, here, there], rel=5e-3)


def test_where_classes_mix_otherwise_the_medians_are_of_one_class() -> None:
    x, y, owner = cancer(0)
    kept = ((owner == 6) == (y == 1)) | (np.arange(len(y)) % 4 == 0)  # it has class 1, they 0
    x, y, owner = x[kept], y[kept], owner[kept]
    units(x, y, np.flatnonzero(owner == 6))
    (one,) = (each for each in told(x, y, owner) if each.kind == "units")
    here, there = (float(np.median(x[part & (y == 1), 3])) for part in (owner == 6, owner != 6))
    assert "median of class '1' " in one.said
    assert numbers(one) == pytest.approx([here / there, here, there], rel=5e-3)


def numbers(one: OutlyingClient) -> list[float]:
    """The factor and both medians of a sentence."""
    said = re.fullmatch(
        r"column 3 (\S+) times the others' \(median(?: of class '1')? (\S+) against (\S+)\)",
        one.said,
    )
    assert said is not None, one.said
    return [float(number.replace(",", "")) for number in said.groups()]


def test_a_column_that_is_always_0_is_told_as_0() -> None:
    x, y, owner = cancer(0)
    x[owner == 6, 2] = 0
    named = {f"c{j}": x[:, j] for j in range(6)}
    (one,) = measure(from_arrays(named, y, owner, table={"scale": "federated"}), Key(0)).outlying
    assert one.said == "c2 is always 0"


def test_a_column_of_gaps_alone_is_told_as_gaps() -> None:
    """No row of the client holds the number that fills them."""
    x, y, owner = cancer(0)
    x[owner == 6, 2] = np.nan
    named = {f"c{j}": x[:, j] for j in range(6)}
    (one,) = measure(from_arrays(named, y, owner, table={"scale": "federated"}), Key(0)).outlying
    assert (one.client, one.kind) == (6, "constant column")
    assert re.fullmatch(r"c2 has no value, or always \d\S+, which fills gaps", one.said)


def test_what_to_do_about_pictures_asks_for_no_key_of_a_table() -> None:
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(8), 60)
    y = draw.integers(2, size=480)
    x = draw.normal(size=(2, 1, 16, 16))[y] + draw.normal(size=(480, 1, 16, 16)) + 3
    x[owner == 3, :, :8] = 0
    x[owner == 5] *= 5
    for client in (3, 5):
        others = owner != 8 - client  # one fault alone
        faults = told(x[others], y[others], owner[others])
        assert len({one.client for one in faults}) == 1
        assert {one.remedy for one in faults} == {"look how samples are prepared there"}
        if client == 3:
            assert "some of the inputs are always the same" in [one.said for one in faults]


def test_names_reach_the_sentence_and_json() -> None:
    x, y, owner = cancer(0)
    units(x, y, np.flatnonzero(owner == 6))
    found = measure_arrays(x, y, np.array([f"hospital_{'ABCDEFGHIJ'[k]}" for k in owner]), Key(0))
    (one,) = found.outlying
    assert one.shown == "hospital_G"
    assert one.sentence.startswith("hospital_G: column 3 ")
    assert one.sentence.endswith('(units): repair the unit, or set task.scale = "client"')
    again = Inspection.from_json(found.to_json())
    assert again.outlying == found.outlying
    assert again.to_json() == found.to_json()
    assert dataclasses.replace(one, name="").shown == "client 6"


def test_the_columns_of_a_table_have_their_names_and_units() -> None:
    x, y, owner = cancer(0)
    units(x, y, np.flatnonzero(owner == 6))
    named = {f"c{j}": x[:, j] for j in range(6)}
    (one,) = measure(from_arrays(named, y, owner, table={"scale": "federated"}), Key(0)).outlying
    assert (one.client, one.kind, one.columns) == (6, "units", ("c3",))
    there, here = (float(np.median(x[part, 3])) for part in (owner != 6, owner == 6))
    assert here > 50 * there
    # the remedy
    assert measure(from_arrays(named, y, owner, table={"scale": "client"}), Key(0)).outlying == ()


# ------------------------------------------------------------------------------------------- copies


def drawn_table(
    seed: int, clients: int = 10, size: int = 60, classes: int = 2, apart: float = 3.0
) -> tuple[Array, Classes, Classes, np.random.Generator]:
    """Normal columns in units of their own around a centre of each class, and equal clients."""
    draw = np.random.default_rng([seed, 74])
    owner = np.repeat(np.arange(clients), size)
    y = draw.integers(classes, size=len(owner))
    x = draw.normal(size=(len(owner), 6)) + apart * draw.normal(size=(classes, 6))[y]
    return x * [1, 10, 100, 5, 2, 50] + [10, 100, 1000, 20, 30, 400], y, owner, draw


def with_copies(
    seed: int, holders: tuple[int, ...], number: int = 50, clients: int = 10
) -> tuple[Array, Classes, Classes]:
    """The first samples of one client also at others, there in another order."""
    x, y, owner, draw = drawn_table(seed, clients)
    source = np.flatnonzero(owner == holders[0])[:number]
    for holder in holders[1:]:
        at = draw.permutation(np.flatnonzero(owner == holder))[:number]
        x[at], y[at] = x[source], y[source]
    return x, y, owner


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_copies_at_more_than_a_quarter_of_the_clients_are_named(seed: int) -> None:
    found = told(*with_copies(seed, (1, 4, 7)))
    assert [(one.client, one.kind, one.said) for one in found] == [
        (1, "copied data", "50 of 60 samples also lie at client 4, client 7"),
        (4, "copied data", "50 of 60 samples also lie at client 1, client 7"),
        (7, "copied data", "50 of 60 samples also lie at client 1, client 4"),
    ]


@pytest.mark.parametrize(
    ("holders", "clients", "number"),
    [((0, 1), 2, 50), ((0, 1, 2, 3), 4, 50), (tuple(range(10)), 10, 50), ((2, 5), 10, 60)],
)
def test_copies_are_named_however_many_clients_hold_them(
    holders: tuple[int, ...], clients: int, number: int
) -> None:
    found = told(*with_copies(0, holders, number, clients))
    assert [one.client for one in found] == list(holders)
    assert all(one.said.startswith(f"{number} of 60 samples also lie at client") for one in found)
    if len(holders) == 10:
        assert found[0].said.endswith(
            "client 1, client 2, client 3, client 4, client 5 and 4 more clients"
        )


def test_few_copies_of_large_clients_are_named() -> None:
    found = told(*with_copies(0, (2, 5), 5))  # a twelfth of the samples
    assert [one.client for one in found] == [2, 5]


def test_copies_within_clients_are_named_by_how_many_repeat_others() -> None:
    x, y, owner, _ = drawn_table(0)
    for k in (1, 3, 5, 7):
        at = np.flatnonzero(owner == k)
        x[at[20:40]], y[at[20:40]] = x[at[:20]], y[at[:20]]
        x[at[40:60]], y[at[40:60]] = x[at[:20]], y[at[:20]]
    found = told(x, y, owner)
    # 20 samples three times each: 40 repeat an earlier one, 60 pairs are equal
    assert [(one.client, one.said) for one in found] == [
        (k, "40 of 60 samples repeat others there") for k in (1, 3, 5, 7)
    ]


def test_copies_of_a_regression_are_named() -> None:
    x, _, owner = with_copies(0, (1, 4, 7))
    found = measure_arrays(x, x[:, 0] / 7, owner, Key(0)).outlying
    assert {one.client for one in found if one.kind == "copied data"} == {1, 4, 7}


def test_samples_of_few_values_are_no_certain_copies() -> None:
    x, y, owner, draw = drawn_table(0)
    few = draw.integers(3, size=x.shape).astype(float)
    found = measure_arrays(few, y, owner, Key(0))
    assert found["duplicates"].value > 0.3  # 600 samples of 729 possible ones
    assert found["copied"].value == 0
    assert not found.outlying


def test_copies_in_a_table_that_chance_dealt_are_no_clients_but_a_share() -> None:
    """A table drawn with replacement: copies lie at all clients as chance deals them."""
    x, y, owner, draw = drawn_table(0)
    at = draw.choice(len(x), len(x))
    found = measure_arrays(x[at], y[at], owner, Key(0))
    assert not found.outlying
    # a sample is drawn k more times by a Poisson law of mean 1, of which 9 in 10 fall elsewhere
    assert found["copied"].value == pytest.approx(1 - np.exp(-0.9), abs=0.06)


def test_a_column_of_measured_numbers_makes_equal_samples_certain_copies() -> None:
    """One column of many values beside columns of few: the half with it is the proof."""
    x, y, owner = with_copies(0, (1, 4, 7))
    x[:, 1:] = np.rint(x[:, 1:] / 50) % 3
    assert {one.client for one in told(x, y, owner)} == {1, 4, 7}


# ---------------------------------------------------------------------------------- columns, labels


def test_every_column_of_a_fault_is_named() -> None:
    x, y, owner, _ = drawn_table(0)
    x[owner == 6] *= [1, 30, 1, 30, 1, 1]
    x[owner == 6, 4] -= 4 * x[:, 4].std()
    offset, units = told(x, y, owner)
    assert (offset.kind, offset.columns) == ("offset", ("column 4",))
    assert (units.kind, units.columns) == ("units", ("column 1", "column 3"))
    assert "column 1 " in units.said
    assert "; column 3 " in units.said


def test_of_many_columns_the_names_are_told() -> None:
    x, y, owner, _ = drawn_table(0)
    x[owner == 6] *= 30
    x[owner == 3, 1:] = 5
    constant, units = told(x, y, owner)
    assert units.columns == tuple(f"column {j}" for j in range(6))
    assert units.said.endswith("; the same of column 3, column 4, column 5")
    assert constant.columns == tuple(f"column {j}" for j in range(1, 6))
    assert constant.said == (
        "column 1 is always 5; column 2 is always 5; column 3 is always 5; the same of column 4, "
        "column 5"
    )


@pytest.mark.parametrize("labels", ["swapped labels", "random labels"])
def test_columns_are_named_beside_labels(labels: str) -> None:
    for seed in (0, 1):
        x, y, owner, draw = drawn_table(seed, classes=3)
        mine = np.flatnonzero(owner == 6)
        y[mine] = (y[mine] + 1) % 3 if labels == "swapped labels" else draw.integers(3, size=60)
        assert [(one.client, one.kind) for one in told(x, y, owner)] == [(6, labels)]
        x[mine, 1] *= 30
        kinds = {one.kind: one.columns for one in told(x, y, owner)}
        assert kinds == {labels: (), "units": ("column 1",)}


@pytest.mark.parametrize(
    ("share", "kind", "renamed"),
    [
        (0.3, "random labels", False),
        (0.5, "random labels", False),
        (0.7, "swapped labels", False),
        (0.85, "swapped labels", False),
        (1.0, "swapped labels", True),
    ],
)
def test_classes_are_renamed_only_where_all_rows_have_swapped_labels(
    share: float, kind: str, renamed: bool
) -> None:
    for seed in (0, 1):
        x, y, owner, draw = drawn_table(seed, size=120)
        at = draw.permutation(np.flatnonzero(owner == 4))[: round(share * 120)]
        y[at] = 1 - y[at]
        (one,) = told(x, y, owner)
        assert (one.client, one.kind) == (4, kind)
        assert (one.remedy == "rename these classes there") == renamed
        assert one.said.endswith("if what it calls 0 is 1, 1 is 0") == renamed


def test_a_part_of_two_classes_of_several_advises_no_renaming() -> None:
    x, y, owner, draw = drawn_table(2, size=120, classes=3)
    pair = np.flatnonzero((owner == 4) & (y < 2))
    at = draw.permutation(pair)[: round(0.75 * len(pair))]
    y[at] = 1 - y[at]
    (one,) = told(x, y, owner)
    assert one.kind == "swapped labels"
    assert re.search(r"; if what it calls 0 is 1, 1 is 0, it still denies 1\d%$", one.said)
    assert one.remedy.startswith("look which of its rows have swapped labels")


# ----------------------------------------------------------------------- columns that differ


def differing(x: Array, y: Array | Classes, owner: Classes) -> list[tuple[str, str]]:
    found = measure_arrays(x, y, owner, Key(0))
    assert not found.outlying
    return [(one.column, one.said) for one in found.columns]


def test_a_shift_that_grows_over_clients_names_its_column_and_both_ends() -> None:
    for seed in (0, 1, 2):
        x, y, owner, draw = drawn_table(seed, size=120)
        assert differing(x, y, owner) == []
        order = draw.permutation(10)  # grows by this order, not by number
        x[:, 2] += order[owner] / 9 * 2 * x[:, 2].std()
        ((column, said),) = differing(x, y, owner)
        assert column == "column 2"
        low, high = (f"client {int(np.flatnonzero(order == k)[0])}" for k in (0, 9))
        assert re.fullmatch(
            rf"column 2: median from \S+ at {low} to \S+ at {high}, at equal classes", said
        )


def test_columns_that_grow_shrink_or_spread_are_all_named() -> None:
    x, y, owner, _ = drawn_table(0, size=120)
    grown = owner / 9
    x[:, 0] += 2 * grown * x[:, 0].std()
    x[:, 3] -= 2 * grown * x[:, 3].std()
    x[:, 5] = 400 + (x[:, 5] - 400) * np.exp(1.5 * grown)
    named = dict(differing(x, y, owner))
    assert set(named) == {"column 0", "column 3", "column 5"}
    assert re.search(r"median from \S+ at client 0 to \S+ at client 9", named["column 0"])
    assert re.search(r"median from \S+ at client 9 to \S+ at client 0", named["column 3"])
    assert re.search(r"spreads \S+ times as far as elsewhere at client 0, ", named["column 5"])


def test_shares_at_equal_classes_of_clients_with_one_class_each() -> None:
    """Half of all rows have a 1: 15 % of one class, 85 % of the other."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(8), 400)
    ones = np.repeat([0.05, 0.1, 0.05, 0.4, 0.95, 0.9, 0.95, 0.6], 400)
    first = np.arange(3200) % 400 < 400 * ones
    y = owner // 4
    x = np.concatenate([first[:, None], y[:, None] + 0.25 * draw.normal(size=(3200, 4))], axis=1)
    ((_, said),) = differing(x, y, owner)
    assert said == (
        "column 0: 1 in 25% of the samples at client 7, in 75% at client 3, at equal classes"
    )


def test_place_and_spread_have_ends_of_their_own() -> None:
    x, y, owner, draw = drawn_table(0, clients=8, size=300)
    wide = np.array([1, 0.4, 1, 3, 1, 2, 0.6, 1])
    x[:, 1] = owner / 3.5 + wide[owner] * draw.normal(size=len(owner))
    ((_, said),) = differing(x, y, owner)
    assert re.search(r"median from \S+ at client 0 to \S+ at client 7", said)
    assert re.search(r"spreads 0\.\d+ times .* at client 1, [23]\.\d+ times at client 3$", said)


def test_other_units_at_half_of_the_clients_or_at_one_of_two_name_their_column() -> None:
    x, y, owner, _ = drawn_table(0)
    x[:, 3] *= np.where(owner % 2, 10, 1)
    assert [column for column, _ in differing(x, y, owner)] == ["column 3"]
    two = owner < 2
    assert [column for column, _ in differing(x[two], y[two], owner[two])] == ["column 3"]


def test_the_medians_of_a_column_that_differs_by_hand() -> None:
    x, y, owner, _ = drawn_table(0, clients=2)
    y[:] = 0
    x[owner == 1, 3] += 1000
    ((_, said),) = differing(x, y, owner)
    low, high = (float(np.median(x[owner == k, 3])) for k in (0, 1))
    numbers = re.fullmatch(
        r"column 3: median from (\S+) at client 0 to (\S+) at client 1, at equal classes", said
    )
    assert numbers is not None
    read = [float(number.replace(",", "")) for number in numbers.groups()]
    assert read == pytest.approx([low, high], rel=5e-3)


def test_label_skew_and_labels_that_mean_something_else_are_no_shift_of_columns() -> None:
    for seed in (0, 1):
        x, y, owner, draw = drawn_table(seed, classes=3)
        skewed = np.zeros(len(y), np.int64)
        for label in range(3):
            at = np.flatnonzero(y == label)
            skewed[at] = draw.choice(10, len(at), p=draw.dirichlet(np.full(10, 0.3)))
        assert measure_arrays(x, y, skewed, Key(0)).columns == ()
        y[owner < 5] = (y[owner < 5] + 1) % 3
        assert measure_arrays(x, y, owner, Key(0)).columns == ()


def test_columns_of_a_regression_are_named() -> None:
    x, _, owner, draw = drawn_table(0)
    target = x[:, 0] + draw.normal(size=len(x))
    x[:, 2] += owner / 9 * 2 * x[:, 2].std()
    assert [column for column, _ in differing(x, target, owner)] == ["column 2"]


def test_larger_targets_of_a_regression_are_no_fault_of_a_column_that_tells_them() -> None:
    """What a column is like at equal targets is the same at all clients."""
    for seed in (1, 2, 3):
        draw = np.random.default_rng(seed)
        owner = np.repeat(np.arange(8), 100)
        target = 3.0 * (owner == 7) + draw.normal(size=800)
        x = np.stack([target + 0.3 * draw.normal(size=800), draw.normal(size=800)], axis=1)
        assert differing(x, target, owner) == []


def test_an_outlying_client_is_not_told_again_as_a_column_that_differs() -> None:
    x, y, owner, _ = drawn_table(0)
    x[owner == 6, 1] *= 30
    found = measure_arrays(x, y, owner, Key(0))
    assert [one.client for one in found.outlying] == [6]
    assert found.columns == ()


def test_columns_that_differ_are_in_the_json() -> None:
    x, y, owner, _ = drawn_table(0)
    x[:, 2] += owner / 9 * 2 * x[:, 2].std()
    found = measure_arrays(x, y, owner, Key(0))
    assert len(found.columns) == 1
    again = Inspection.from_json(found.to_json())
    assert again.columns == found.columns


def test_odd_clients_are_named_beside_columns_that_grow_over_clients() -> None:
    """By all columns more than a quarter of the clients lie far out; by the others, two."""
    x, y, owner, _ = drawn_table(0, size=120, classes=3)
    for j in (1, 4):
        x[:, j] += owner / 9 * 2 * x[:, j].std()
    x[owner == 6] *= [30, 1, 30, 30, 1, 30]
    y[owner == 2] = (y[owner == 2] + 1) % 3
    found = measure_arrays(x, y, owner, Key(0))
    assert [(one.client, one.kind, one.columns) for one in found.outlying] == [
        (2, "swapped labels", ()),
        (6, "units", ("column 0", "column 2", "column 3", "column 5")),
    ]
    assert {one.column for one in found.columns} == {"column 1", "column 4"}


def test_the_ends_of_a_column_that_grows_are_no_outlying_clients() -> None:
    for seed in range(4):
        x, y, owner, _ = drawn_table(seed, size=120)
        x[:, 2] = x[:, 2] * np.exp(owner / 9 * 0.7)  # its spread grows, too
        x[:, 4] += owner / 9 * x[:, 4].std()
        assert told(x, y, owner) == []
