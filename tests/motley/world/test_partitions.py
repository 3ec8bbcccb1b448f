"""Partitions: invariants that hold for all of them, each one's law, and the checked numbers of
docs/methods/timing-and-world.md."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.keys import Key, Streams
from motley.world import PARTITIONS
from motley.world.partition.assignment import cut, topped_up
from motley.world.partition.basic import IID, ByWriter, Shards
from motley.world.partition.class_subsets import LabelCount, MissingClasses
from motley.world.partition.dirichlet import Dirichlet
from motley.world.partition.mixture import draw_counts
from motley.world.partition.psi import Psi, released_counts
from motley.world.partition.quantity import Quantity
from motley.world.partition.skewed_share import SkewedShare

KEY = Streams(0).key("partition")
WHOLE = [  # these use every sample
    IID(),
    Dirichlet(0.1, min_size=1),
    Dirichlet(0.1, mask=True, min_size=1),
    Dirichlet(0.1, law="per_client", min_size=1),
    Psi(0.4, variant="clean"),
    Quantity(min_size=1),
    Quantity("log_normal", sigma=1.0, alpha=0.5, min_size=1),
    Shards(1),
]
SOME = [Psi(0.4), Psi(0.0), SkewedShare(), LabelCount(2), MissingClasses(1)]


def balanced(classes, each):
    return np.repeat(np.arange(classes), each)


def histogram(split, labels, classes):
    owner = split.rows.owner
    return np.bincount(
        owner * classes + labels[split.rows.values], minlength=len(split.rows) * classes
    ).reshape(-1, classes)


@pytest.mark.parametrize("partition", WHOLE + SOME, ids=repr)
@given(
    labels=st.lists(st.integers(0, 5), min_size=12, max_size=150).filter(lambda y: len(set(y)) > 1),
    population=st.integers(1, 12),
    seed=st.integers(0, 5),
)
@settings(max_examples=15, deadline=None)
def test_parts_are_disjoint_sorted_and_the_same_twice(partition, labels, population, seed):
    labels = np.array(labels)
    rows = partition.split(Key(seed), labels, population).rows
    assert len(rows) == population
    assert len(np.unique(rows.values)) == len(rows.values)
    assert rows.sizes.sum() == len(rows.values)
    assert all((np.diff(part) > 0).all() for part in rows)
    if partition in WHOLE:
        assert (np.sort(rows.values) == np.arange(len(labels))).all()
        assert rows.sizes.min() >= 1
    again = partition.split(Key(seed), labels, population).rows
    assert (again.values == rows.values).all()
    assert (again.offsets == rows.offsets).all()


@pytest.mark.parametrize("partition", WHOLE + SOME, ids=repr)
def test_another_seed_is_another_partition(partition):
    labels = balanced(10, 100)
    first, second = (partition.split(Key(seed), labels, 10).rows for seed in (0, 1))
    assert not np.array_equal(
        first.owner[np.argsort(first.values)], second.owner[np.argsort(second.values)]
    )


@pytest.mark.parametrize("partition", WHOLE + SOME, ids=repr)
def test_more_clients_than_samples_are_refused_with_the_numbers(partition):
    with pytest.raises(
        ConfigError,
        match=r"31 clients .* need 31 samples, the data has 30; set population to at most 30",
    ):
        partition.split(KEY, balanced(3, 10), 31)


def test_nobody_is_told_to_ask_no_clients():
    with pytest.raises(
        ConfigError,
        match=r"need 100 samples, the data has 6; leave more of the data to the clients",
    ):
        Dirichlet(0.5, min_size=10).split(KEY, balanced(3, 2), 10)


@pytest.mark.parametrize("partition", WHOLE + SOME, ids=repr)
def test_no_clients_are_refused(partition):
    with pytest.raises(ConfigError, match="population: got 0; expected at least 1 client"):
        partition.split(KEY, balanced(3, 10), 0)


def test_iid_sizes_differ_by_one():
    assert IID().split(KEY, balanced(2, 50), 7).rows.sizes.tolist() == [15, 15, 14, 14, 14, 14, 14]


def test_iid_sizes_that_are_given() -> None:
    given = IID(sizes=(20, 1, 9)).split(KEY, balanced(2, 50), 3)
    assert given.rows.sizes.tolist() == [20, 1, 9]
    assert len(set(given.rows.values.tolist())) == 30
    assert given.notes == {"iid": "70 of 100 samples belong to no client"}
    whole = IID(sizes=(50, 50)).split(KEY, balanced(2, 50), 2)
    assert not whole.notes
    assert whole.rows.values.tolist() == IID().split(KEY, balanced(2, 50), 2).rows.values.tolist()
    for sizes, words in (
        ((20, 1), r"got 2 sizes and population = 3; write population = 2"),
        ((90, 9, 2), r"got sizes of together 101 samples, and the data has 100"),
    ):
        with pytest.raises(ConfigError, match=words):
            IID(sizes=sizes).split(KEY, balanced(2, 50), 3)
    with pytest.raises(ConfigError, match="got 0; expected at least 1 sample for each client"):
        IID(sizes=(3, 0))


def test_iid_needs_no_classes():
    assert IID().split(KEY, np.linspace(0, 1, 12), 3).rows.sizes.tolist() == [4, 4, 4]


# ---------------------------------------------------------------- Dirichlet, per class


@pytest.mark.parametrize("population", [10, 100])
def test_huge_alpha_gives_every_client_its_even_share(population):
    """alpha = 10^6 puts every client-class count within 3 of n_c / K (n_c = 5000)."""
    labels = balanced(10, 5000)
    counts = histogram(Dirichlet(1e6).split(KEY, labels, population), labels, 10)
    assert np.abs(counts - 5000 / population).max() <= 3


def test_the_per_class_shares_are_dirichlet():
    """q ~ Dir(alpha 1_K) has mean 1/K and variance (K - 1) / (K^2 (K alpha + 1)); for K = 5, alpha
    = 0.5: 0.2 and 4 / 87.5. 400 classes of 1000 samples are 400 independent draws for client 0."""
    labels = balanced(400, 1000)
    share = histogram(Dirichlet(0.5, min_size=0).split(KEY, labels, 5), labels, 400)[0] / 1000
    variance = 4 / (25 * 3.5)
    assert abs(share.mean() - 0.2) < 4 * np.sqrt(variance / 400)
    assert abs(share.var() / variance - 1) < 0.25


def test_the_mask_holds_full_clients_back():
    """A client at n/K gets nothing of later classes, so only one class can carry it past: sizes
    stay below n/K + n_c."""
    labels = balanced(10, 200)
    free = Dirichlet(0.1, min_size=0).split(KEY, labels, 10).rows.sizes
    masked = Dirichlet(0.1, mask=True, min_size=0).split(KEY, labels, 10).rows.sizes
    assert masked.max() <= 400
    assert masked.std() < free.std()


def test_min_size_is_met_by_moving_samples_and_the_notes_say_so():
    split = Dirichlet(0.05, min_size=10).split(KEY, balanced(10, 120), 100)
    assert split.rows.sizes.min() == 10
    assert "after 10 redraws" in split.notes["min_size"]
    assert "samples were moved" in split.notes["min_size"]


def test_min_size_that_uses_up_everything_is_met():
    assert (
        Dirichlet(0.05, min_size=12).split(KEY, balanced(10, 120), 100).rows.sizes.tolist()
        == [12] * 100
    )


def test_a_redraw_is_noted():
    notes = [
        Dirichlet(0.5, min_size=10).split(Key(seed), balanced(5, 40), 8).notes.get("min_size", "")
        for seed in range(20)
    ]
    assert any(note.startswith("redrawn") for note in notes)


def test_impossible_min_size_is_refused_up_front():
    message = (
        "100 clients with at least 10 samples each need 1000 samples, the data has 300; set "
        "min_size to at most 3"
    )
    with pytest.raises(ConfigError, match=message):
        Dirichlet(0.1).split(KEY, balanced(3, 100), 100)


# ---------------------------------------------------------------- Dirichlet, per client


def naive_counts(rng, sizes, mixtures, available):
    """The law word for word, one sample after the other; mixtures have no zeros, so none becomes
    empty before its client is full."""
    counts = np.zeros_like(mixtures, dtype=np.int64)
    left = available.copy()
    while (room := sizes - counts.sum(axis=1)).any():
        k = rng.choice(np.flatnonzero(room))
        mix = mixtures[k] * (left > 0)
        c = rng.choice(len(mix), p=mix / mix.sum())
        counts[k, c] += 1
        left[c] -= 1
    return counts


def test_the_vectorised_law_is_the_one_sample_at_a_time_law():
    """First and second moments of all counts agree within 4 standard errors, in a case where two of
    three classes run out."""
    sizes = np.array([3, 4, 5])
    available = np.array([3, 4, 9])
    mixtures = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.9, 0.06, 0.04]])
    runs = 1500
    fast = np.array(
        [
            draw_counts(np.random.default_rng([1, i]), sizes, mixtures, available)
            for i in range(runs)
        ]
    )
    slow = np.array(
        [
            naive_counts(np.random.default_rng([2, i]), sizes, mixtures, available)
            for i in range(runs)
        ]
    )
    assert (fast.sum(axis=2) == sizes).all()
    assert (fast.sum(axis=1) <= available).all()
    for power in (1, 2):
        a = fast**power
        b = slow**power
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / runs) + 1e-9
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4 * error).all()


def test_an_empty_mixture_takes_from_what_is_left():
    """Both clients want class 0 alone, of which there are 3; the other 5 samples come from classes
    1 and 2."""
    counts = draw_counts(
        np.random.default_rng(0),
        np.array([4, 4]),
        np.array([[1.0, 0, 0], [1.0, 0, 0]]),
        np.array([3, 4, 4]),
    )
    assert counts.sum(axis=1).tolist() == [4, 4]
    assert counts[:, 0].sum() == 3


def test_per_client_mixtures_are_dirichlet_where_nothing_runs_out():
    """The share of class 0 has mean 1/C and variance (C - 1) / (C^2 (C alpha + 1)), plus the
    sampling of 200 draws; C = 4, alpha = 0.5: 1/4 and 1/16."""
    labels = balanced(4, 200 * 60)
    shares = []
    for seed in range(40):
        rows = draw_counts(
            rng := np.random.default_rng(seed),
            np.full(30, 200),
            rng.dirichlet(np.full(4, 0.5), 30),
            np.bincount(labels),
        )
        shares.append(rows[:, 0] / 200)
    share = np.concatenate(shares)
    assert abs(share.mean() - 0.25) < 4 * np.sqrt((1 / 16 + 0.25 / 200) / len(share))
    assert abs(share.var() / (1 / 16) - 1) < 0.15


def test_per_client_sizes_are_even():
    split = Dirichlet(0.1, law="per_client").split(KEY, balanced(10, 101), 100)
    assert sorted(set(split.rows.sizes.tolist())) == [10, 11]


@pytest.mark.parametrize("law", ["per_class", "per_client"])
def test_a_tiny_alpha_still_ends(law):
    rows = Dirichlet(1e-9, law=law, min_size=5).split(KEY, balanced(10, 60), 100).rows
    assert rows.sizes.sum() == 600
    assert rows.sizes.min() >= 5


# ---------------------------------------------------------------- psi


@pytest.mark.parametrize(
    ("psi", "smallest", "mean"),
    [
        (0, 270, 489.80),
        (0.2, 248, 490.16),
        (0.4, 165, 475.12),
        (0.6, 110, 460.08),
        (0.8, 55, 445.04),
    ],
)
def test_psi_deals_what_the_released_code_dealt(psi, smallest, mean):
    """The checked numbers: the code's order of draws is one RandomState(42), ten lists of 5000
    shuffled, then one randint per client; n = 50 000, K = 100. Only the dominant classes depend on
    it."""
    legacy = np.random.RandomState(42)
    for rows in np.split(np.arange(50_000), 10):
        legacy.shuffle(rows)
    dominant = np.array([legacy.randint(10) for _ in range(100)])
    sizes = released_counts(psi, dominant, 500, np.full(10, 5000)).sum(axis=1)
    assert sizes.min() == smallest
    assert round(sizes.mean(), 2) == mean


def test_psi_by_hand():
    """n_per = 500, psi = 0.4: 200 of the dominant class and floor(300 / 9) = 33 of each other:
    497."""
    counts = released_counts(0.4, np.array([3]), 500, np.full(10, 5000))
    assert counts[0].tolist() == [33, 33, 33, 200, 33, 33, 33, 33, 33, 33]


def test_psi_zero_misses_a_class():
    labels = balanced(10, 5000)
    counts = histogram(Psi(0.0).split(KEY, labels, 20), labels, 10)
    assert ((counts == 0).sum(axis=1) >= 1).all()


def test_clean_psi_balances_dominant_classes_and_keeps_sizes():
    """psi = 0.7, 50 clients of 100: 5 clients per class, 350 of 500 samples wanted of it. The mean
    dominant share is 0.7 +- 4 standard errors (plus what running out moves: less than 2 %)."""
    labels = balanced(10, 500)
    split = Psi(0.7, variant="clean").split(KEY, labels, 50)
    counts = histogram(split, labels, 10)
    assert (split.rows.sizes == 100).all()
    assert np.bincount(counts.argmax(axis=1), minlength=10).tolist() == [5] * 10
    assert abs(counts.max(axis=1).mean() / 100 - 0.7) < 4 * np.sqrt(0.21 / 5000) + 0.02


# ------------------------------------------------------------- missing classes, label count, shards


def test_missing_classes_as_released():
    """CIFAR-100 with 40 of 100 missing, K = 100: (100 - 40) floor(500 / 100) = 300 samples each, 30
    000 draws of 50 000; the pool is never emptied, so clients overlap: by chance about 50 000 (1 -
    (1 - 1/100)^60) = 22 642 different samples."""
    labels = balanced(100, 500)
    split = MissingClasses(40, variant="code").split(KEY, labels, 100)
    counts = histogram(split, labels, 100)
    assert split.overlap
    assert (split.rows.sizes == 300).all()
    assert set(np.unique(counts)) == {0, 5}
    assert abs(len(np.unique(split.rows.values)) - 22_642) < 400
    assert all((np.diff(part) > 0).all() for part in split.rows)
    assert "30000 draws" in split.notes["missing_classes"]


def test_missing_classes_without_overlap():
    """Tiny-ImageNet's 80 of 200 missing: every class goes in equal pieces to its about 60
    holders."""
    labels = balanced(200, 500)
    split = MissingClasses(80).split(KEY, labels, 100)
    counts = histogram(split, labels, 200)
    assert not split.overlap
    assert ((counts > 0).sum(axis=1) == 120).all()
    assert split.rows.sizes.sum() == 100_000
    held = np.where(counts > 0, counts, 10**6)
    assert (np.where(counts > 0, counts, 0).max(axis=0) - held.min(axis=0) <= 1).all()


def test_what_is_left_of_even_pieces_does_not_always_go_to_the_first():
    """10 samples of each of 50 classes for 4 holders: 2 each and 2 more, which begin at a random
    holder: client 0 gets one of them with chance 1/2."""
    counts = histogram(LabelCount(50).split(KEY, balanced(50, 10), 4), balanced(50, 10), 50)
    assert set(np.unique(counts)) == {2, 3}
    assert abs((counts[0] == 3).mean() - 0.5) < 4 * np.sqrt(0.25 / 50)


def test_a_class_that_nobody_has_is_noted():
    """2 clients with 1 of 5 classes each hold classes 0 and 1; the other 3 x 10 samples are left
    over."""
    split = LabelCount(1).split(KEY, balanced(5, 10), 2)
    assert split.rows.sizes.tolist() == [10, 10]
    assert "30 of 50 samples are of classes that no client has" in split.notes["label_count"]


def test_label_count_gives_client_i_class_i_mod_c():
    labels = balanced(10, 100)
    counts = histogram(LabelCount(3).split(KEY, labels, 30), labels, 10)
    assert ((counts > 0).sum(axis=1) == 3).all()
    assert (counts[np.arange(30), np.arange(30) % 10] > 0).all()


def test_all_missing_or_too_many_labels_are_refused():
    with pytest.raises(
        ConfigError, match="got missing = 3, the data has 3 classes; expected at most 2"
    ):
        MissingClasses(3).split(KEY, balanced(3, 10), 2)
    with pytest.raises(ConfigError, match="got labels = 4, the data has 3 classes"):
        LabelCount(4).split(KEY, balanced(3, 10), 2)
    with pytest.raises(
        ConfigError, match="set population to at most 10, or use variant 'disjoint'"
    ):
        MissingClasses(1, variant="code").split(KEY, balanced(3, 10), 20)


def test_shards_of_mcmahan():
    """200 shards of 300 digits for 100 clients: class sizes are multiples of 300, so nobody has
    more than 2 classes."""
    labels = balanced(10, 6000)
    split = Shards(2).split(KEY, labels, 100)
    counts = histogram(split, labels, 10)
    assert (split.rows.sizes == 600).all()
    assert (counts > 0).sum(axis=1).max() == 2
    assert set(np.unique(counts)) == {0, 300, 600}


def test_shards_of_what_does_not_divide():
    """100 samples in 3 x 2 shards: 17, 17, 17, 17, 16, 16; clients get 32 to 34."""
    sizes = Shards(2).split(KEY, balanced(4, 25), 3).rows.sizes
    assert sizes.sum() == 100
    assert (sizes >= 32).all()
    assert (sizes <= 34).all()


def test_more_shards_than_samples_are_refused():
    with pytest.raises(
        ConfigError,
        match="10 clients with 5 shards each need 50 samples, the data has 30; set shards to at "
        "most 3",
    ):
        Shards(5).split(KEY, balanced(3, 10), 10)


# ---------------------------------------------------------------- quantity


def test_dirichlet_sizes():
    """q ~ Dir(beta 1_K): mean 1/K, variance (K - 1) / (K^2 (K beta + 1)); K = 20, beta = 0.5 over
    200 seeds."""
    shares = np.concatenate(
        [
            Quantity(beta=0.5, min_size=0).split(Key(seed), np.zeros(10_000, int), 20).rows.sizes
            / 10_000
            for seed in range(200)
        ]
    )
    variance = 19 / (400 * 11)
    assert shares.mean() == pytest.approx(0.05)
    assert abs(shares.var() / variance - 1) < 0.2


def test_log_normal_sizes():
    """log n_k = log(n / K) + sigma Z up to a common constant; n / K = 1000, so rounding is
    small."""
    sizes = Quantity("log_normal", sigma=0.3).split(KEY, np.zeros(1_000_000, int), 1000).rows.sizes
    assert sizes.sum() == 1_000_000
    assert abs(np.log(sizes).std() - 0.3) < 4 * 0.3 / np.sqrt(2 * 1000)


def test_equal_limits():
    labels = balanced(2, 5000)
    assert np.abs(Quantity(beta=1e9).split(KEY, labels, 10).rows.sizes - 1000).max() <= 1
    assert (
        np.abs(Quantity("log_normal", sigma=0.0).split(KEY, labels, 10).rows.sizes - 1000).max()
        <= 1
    )


def test_both_skews_at_once():
    """Sizes follow their own law whatever alpha says; at alpha = 0.01 nearly all of a client is one
    class."""
    labels = balanced(10, 5000)
    even, skewed = (
        Quantity("log_normal", sigma=1.0, alpha=alpha).split(KEY, labels, 20)
        for alpha in (None, 0.01)
    )
    assert even.rows.sizes.tolist() == skewed.rows.sizes.tolist()
    largest = [
        histogram(split, labels, 10).max(axis=1) / split.rows.sizes for split in (even, skewed)
    ]
    assert largest[0].mean() < 0.2
    assert np.median(largest[1]) > 0.6


def test_quantity_min_size_is_met_and_noted():
    split = Quantity(beta=0.05).split(KEY, np.zeros(2000, int), 100)
    assert split.rows.sizes.min() == 10
    assert "after 10 redraws" in split.notes["quantity"]


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12), lowest=st.integers(0, 10))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_topping_up_is_one_sample_at_a_time_from_the_largest(sizes, lowest):
    sizes = np.array(sizes)
    if len(sizes) * lowest > sizes.sum():
        return
    slow = sizes.copy()
    while (slow < lowest).any():
        slow[np.argmax(slow)] -= 1
        slow[np.argmin(slow)] += 1
    fast = topped_up(sizes, lowest)
    assert fast.sum() == sizes.sum()
    assert fast.min() >= min(lowest, sizes.min()) if lowest == 0 else fast.min() >= lowest
    assert sorted(fast) == sorted(slow)


def test_cut_by_hand():
    """0.25, 0.25, 0.5 of 10: cut points floor(2.5) = 2, floor(5) = 5, and the rest."""
    assert cut(np.array([0.25, 0.25, 0.5]), 10).tolist() == [2, 3, 5]
    assert cut(np.full(10, 0.1), 10).tolist() == [1] * 10


# ---------------------------------------------------------------- skewed share, writers


def test_flash_thirty_percent():
    """K = 50 on 10 x 5000: 15 skewed clients with exactly 800 of 1000 from one class, classes in
    turn; 35 uniform."""
    labels = balanced(10, 5000)
    split = SkewedShare(0.3).split(KEY, labels, 50)
    counts = histogram(split, labels, 10)
    assert (split.rows.sizes == 1000).all()
    skewed = counts.max(axis=1) >= 700
    assert skewed.sum() == 15
    assert (counts[skewed].max(axis=1) == 800).all()
    assert np.bincount(counts[skewed].argmax(axis=1), minlength=10).max() == 2
    others = counts[skewed][counts[skewed] < 800]
    assert abs(others.mean() - 200 / 9) < 1e-9
    assert "15 of 50 clients skewed" in split.notes["skewed_share"]


def test_nobody_skewed_is_uniform():
    """One client of 1000 draws from a pool of 10 x 5000: each class Binomial(1000, 0.1), deviation
    9.5."""
    labels = balanced(10, 5000)
    counts = histogram(SkewedShare(0.0).split(KEY, labels, 50), labels, 10)
    # the last ones served get what is left
    likely = np.sort(np.abs(counts - 100).ravel())[: 500 * 9 // 10]
    assert likely.max() < 2.5 * 9.5
    assert "0 of 50 clients skewed" in SkewedShare(0.0).split(KEY, labels, 50).notes["skewed_share"]


def test_writers_are_the_clients():
    split = ByWriter().split(KEY, np.zeros(6, int), 0, groups=np.array([7, 3, 7, 9, 3, 7]))
    assert [part.tolist() for part in split.rows] == [[1, 4], [0, 2, 5], [3]]
    assert ByWriter().fixed_population(np.array([7, 3, 7, 9])) == 3
    assert IID().fixed_population(None) is None


def test_another_population_than_the_writers_is_refused():
    with pytest.raises(
        ConfigError,
        match="population: got 5, the data has 3 clients; leave population out or set 3",
    ):
        ByWriter().split(KEY, np.zeros(4, int), 5, groups=np.array([7, 3, 7, 9]))


def test_data_without_writers_is_refused():
    with pytest.raises(
        ConfigError, match=r"partition\.name: by_writer needs data that says who made each sample"
    ):
        ByWriter().split(KEY, np.zeros(6, int), 3)


# ---------------------------------------------------------------- bad options


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"name": "dirichlet", "alpha": 0},
            "partition: got alpha = 0.0; expected a finite number above 0",
        ),
        ({"name": "dirichlet", "alpha": float("nan")}, "got (alpha = )?nan"),
        ({"name": "dirichlet", "law": "per_clinet"}, "did you mean 'per_client'"),
        (
            {"name": "dirichlet", "law": "per_client", "mask": True},
            "mask balances the per-class law",
        ),
        ({"name": "dirichlet", "min_size": -1}, "got min_size = -1"),
        ({"name": "psi", "psi": 1.5}, "got psi = 1.5; expected a share"),
        ({"name": "skewed_share", "dominant": -0.1}, "got dominant = -0.1"),
        ({"name": "shards", "shards": 0}, "got shards = 0; expected at least 1 per client"),
        (
            {"name": "missing_classes", "missing": -1},
            "got missing = -1; expected a number of classes",
        ),
        (
            {"name": "missing_classes", "missing": 1, "variant": "disjunct"},
            "did you mean 'disjoint'",
        ),
        ({"name": "label_count", "labels": 0}, "got labels = 0; expected at least 1 class"),
        ({"name": "quantity", "beta": 0}, "got beta = 0.0; expected a finite number above 0"),
        ({"name": "quantity", "sigma": -1}, "got sigma = -1.0"),
        ({"name": "quantity", "alpha": 0}, "got alpha = 0.0"),
        ({"name": "quantity", "min_size": -1}, "got min_size = -1"),
        ({"name": "quantity", "law": "lognormal"}, "did you mean 'log_normal'"),
        ({"name": "dirchlet"}, "did you mean 'dirichlet'"),
    ],
)
def test_bad_options_are_named(record, message):
    with pytest.raises(ConfigError, match=message):
        PARTITIONS.build(record)


@pytest.mark.parametrize("partition", [Psi(), SkewedShare()], ids=repr)
def test_one_class_is_refused(partition):
    with pytest.raises(ConfigError, match="needs at least 2 classes, the data has 1"):
        partition.split(KEY, np.zeros(20, int), 2)


def test_targets_that_are_no_classes_are_refused():
    with pytest.raises(ConfigError, match=r"needs one whole number .* got float64"):
        Dirichlet().split(KEY, np.linspace(0, 1, 100), 2)


def test_every_name_builds():
    assert {PARTITIONS.get(name).__name__ for name in PARTITIONS.names()} == {
        "ByWriter",
        "Dirichlet",
        "FlowerNiidBench",
        "FlwrDirichlet",
        "FlwrPathological",
        "HeteroFLShards",
        "IID",
        "JiShards",
        "LabelCount",
        "MissingClasses",
        "NiidBench",
        "Psi",
        "Quantity",
        "Shards",
        "SkewedShare",
    }
