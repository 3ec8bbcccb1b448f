import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks.federate import Split, federate, hold_out, partition_input, stratified
from motley.tasks.task import Dataset, Federation


def pool(
    n: int, classes: int = 3, test: np.ndarray | None = None, groups: np.ndarray | None = None
) -> Dataset:
    y = torch.arange(n) % classes
    return Dataset(
        torch.arange(n).float()[:, None],
        y,
        classes,
        np.zeros(n, bool) if test is None else test,
        groups,
    )


def dealt(count: int, clients: int) -> Ragged:
    """Position i to client i mod K."""
    return Ragged.of([np.arange(k, count, clients) for k in range(clients)])


def made(data: Dataset, clients: int, split: Split, seed: int = 0) -> Federation:
    rows = partition_input(data, split, Key(seed))
    return federate(data, rows, dealt(len(rows.rows), clients), split, Key(seed))


def test_a_share_of_every_class_is_set_aside_by_hand() -> None:
    """One owner, classes of 10, 5 and 5 rows, a fifth: 4 rows, exactly 2 + 1 + 1 whatever the
    key."""
    labels = np.repeat([0, 1, 2], [10, 5, 5])
    for seed in range(20):
        taken = stratified(np.arange(20), np.zeros(20, np.int64), labels, 0.2, Key(seed))
        assert np.bincount(labels[taken]).tolist() == [2, 1, 1]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    classes=st.integers(1, 5),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
def test_stratified_counts(sizes: list[int], classes: int, share: float, seed: int) -> None:
    """ceil(share n_k) rows but never all; every class gives its share rounded down or up."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, len(owner))
    rows = rng.permutation(len(owner)).astype(np.int64)
    taken = stratified(rows, owner, labels, share, Key(seed))
    for k, n in enumerate(sizes):
        want = min(int(np.ceil(share * n - 1e-6)), n - 1)
        assert taken[owner == k].sum() == want
        for c in range(classes):
            there = (owner == k) & (labels == c)
            assert abs(taken[there].sum() - want * there.sum() / n) < 1


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    share=st.floats(0.01, 0.99),
    in_order=st.booleans(),
)
def test_each_row_is_asked_whether_it_is_set_aside(
    sizes: list[int], share: float, in_order: bool
) -> None:
    """Of n rows sorted by class and by the number drawn, place i is set aside where
    ``((i + 1) t + r) // n`` is one more than ``(i t + r) // n``."""
    rng = np.random.default_rng(len(sizes))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    owner = owner if in_order else rng.permutation(owner)
    labels = rng.integers(0, 3, len(owner))
    numbers = rng.permutation(len(owner))
    key = Key(sum(sizes))
    drawn = key.uniform(numbers)[:, 0]
    chosen = np.zeros(len(owner), bool)
    for k, n in enumerate(sizes):
        mine = np.flatnonzero(owner == k)
        mine = mine[np.lexsort((drawn[mine], labels[mine]))]
        t = min(int(np.ceil(share * n - 1e-6)), n - 1)
        r = int(key.fold("start").uniform([k])[0, 0] * n)
        for i, row in enumerate(mine):
            chosen[row] = ((i + 1) * t + r) // n > (i * t + r) // n
    assert np.array_equal(stratified(numbers, owner, labels, share, key), chosen)


def test_a_client_is_split_the_same_whoever_else_is_there() -> None:
    rows = np.arange(60)
    labels = np.arange(60) % 4
    owner = np.repeat([0, 1, 2], 20)
    whole = stratified(rows, owner, labels, 0.3, Key(0))
    alone = stratified(rows[20:40], owner[20:40], labels[20:40], 0.3, Key(0))
    assert np.array_equal(whole[20:40], alone)


def test_parts_are_disjoint_and_complete_and_change_with_the_seed() -> None:
    data = pool(300)
    fed = made(data, 7, Split(test_fraction=0.2, validation=0.25))
    assert len(fed) == 7
    parts = np.concatenate([fed.train.values, fed.validation.values, fed.test.values])
    assert np.array_equal(np.sort(parts), np.arange(300))
    for k in range(7):
        mine = np.concatenate([fed.train[k], fed.validation[k], fed.test[k]])
        assert (mine % 7 == k).all()
    # 43 rows: 9 test, then ceil(34 / 4) = 9 validation
    assert (fed.test.sizes[0], fed.validation.sizes[0], fed.train.sizes[0]) == (9, 9, 25)
    assert fed.global_test is None
    assert torch.equal(fed.labels, data.y[torch.from_numpy(fed.train.values)])
    again = made(data, 7, Split(validation=0.25))
    other = made(data, 7, Split(validation=0.25), seed=1)
    assert np.array_equal(fed.test.values, again.test.values)
    assert not np.array_equal(fed.test.values, other.test.values)


def test_global_test_is_the_sets_own_half() -> None:
    test = np.arange(100) >= 80
    fed = made(pool(100, test=test), 4, Split("global"))
    assert fed.global_test is not None
    assert fed.global_test.tolist() == list(range(80, 100))
    assert fed.test.sizes.tolist() == [0] * 4
    assert fed.train.sizes.tolist() == [20] * 4
    assert fed.notes["test"] == "the data set's own test half, common to all"


def test_the_training_half_alone() -> None:
    """Of 100 samples the last 20 are the test half: 80 are divided, of whose 20 a client tests on a
    fifth."""
    split = Split(halves="training")
    fed = made(pool(100, test=np.arange(100) >= 80), 4, split)
    rows = np.sort(np.concatenate([fed.train.values, fed.test.values]))
    assert rows.tolist() == list(range(80))
    assert (fed.test.sizes.tolist(), fed.global_test) == ([4] * 4, None)
    assert fed.notes["test"] == "of the training half alone, each client keeps a test part"
    # no halves, nothing to leave out or to merge
    for each in (split, Split()):
        assert made(pool(100), 4, each).notes["test"] == "each client keeps a test part"
    both = made(pool(100, test=np.arange(100) >= 80), 4, Split()).notes["test"]
    assert both == "train and test halves merged, each client keeps a test part"


def test_global_test_is_made_where_there_is_none() -> None:
    fed = made(pool(90), 3, Split("global", test_fraction=0.2))
    assert fed.global_test is not None
    assert np.bincount(fed.global_test % 3).tolist() == [6, 6, 6]
    assert fed.train.sizes.sum() == 72


def test_writers_keep_the_test_rows_the_set_gives_them() -> None:
    groups = np.repeat([5, 9, 11], 20)
    test = np.tile(np.arange(20) >= 18, 3)
    data = pool(60, test=test, groups=groups)
    rows = partition_input(data, Split(), Key(0))
    assert rows.groups is not None
    whole = Ragged.of([np.flatnonzero(rows.groups == g) for g in (5, 9, 11)])
    fed = federate(data, rows, whole, Split(test_fraction=0.5), Key(0))
    assert np.array_equal(fed.test.values, np.flatnonzero(test))
    mixed = federate(data, rows, dealt(60, 3), Split(test_fraction=0.5), Key(0))
    assert mixed.test.sizes.tolist() == [10, 10, 10]  # the partition did not keep writers whole


def test_noise_reaches_training_and_validation_but_never_test() -> None:
    data = pool(200, classes=4)
    rows = partition_input(data, Split(validation=0.2), Key(0))
    asked: list[int] = []

    def flip(labels: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(len(labels))
        return (labels + 1) % 4, np.full(5, 1.0)

    fed = federate(data, rows, dealt(200, 5), Split(validation=0.2), Key(0), label_noise=flip)
    assert asked == [160]  # 200 less the fifth for testing
    clean = data.y[torch.from_numpy(fed.train.values)]
    assert torch.equal(fed.labels, (clean + 1) % 4)
    assert fed.validation_labels is not None
    assert torch.equal(
        fed.validation_labels, (data.y[torch.from_numpy(fed.validation.values)] + 1) % 4
    )
    assert torch.equal(fed.y, data.y)
    assert np.array_equal(fed.histogram(clean=True)[:, 0], fed.histogram()[:, 1])
    assert fed.noise.tolist() == [1.0] * 5


def test_tiny_clients_keep_a_training_sample() -> None:
    fed = made(pool(5), 4, Split(test_fraction=0.9, validation=0.9))  # sizes 2, 1, 1, 1
    assert fed.train.sizes.tolist() == [1, 1, 1, 1]
    assert fed.test.sizes.tolist() == [1, 0, 0, 0]


def test_ten_thousand_clients() -> None:
    fed = made(pool(60_000, classes=10), 10_000, Split(validation=0.1))
    assert len(fed) == 10_000
    assert fed.train.sizes.min() >= 1
    assert (fed.test.sizes == 2).all()


def test_rows_that_are_counted_in_blocks_are_those_of_each_client() -> None:
    """150,000 rows are counted in three blocks, whose borders cut through clients."""
    sizes = np.random.default_rng(5).integers(1, 8, 40_000)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = pool(int(offsets[-1]), classes=3)
    split = Split(test_fraction=0.4, validation=0.3)
    for values in (np.arange(offsets[-1]), np.random.default_rng(6).permutation(offsets[-1])):
        parts = Ragged(offsets, values)
        fed = federate(data, partition_input(data, split, Key(0)), parts, split, Key(0))
        for part in (fed.train, fed.validation, fed.test):
            chosen = np.zeros(len(values), bool)
            chosen[part.values] = True
            assert np.array_equal(values[chosen[values]], part.values)
            assert np.array_equal(np.add.reduceat(chosen[values], offsets[:-1]), part.sizes)
        assert (fed.train.sizes + fed.validation.sizes + fed.test.sizes == sizes).all()


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(
        ConfigError, match=r"test_fraction: got 1.5; expected a share above 0 and below 1"
    ):
        Split(test_fraction=1.5)
    with pytest.raises(ConfigError, match=r"validation: got -0.1"):
        Split(validation=-0.1)
    with pytest.raises(ConfigError, match=r"halves: got 'train' .*; expected both or training"):
        Split(halves="train")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="halves: got 'training' with test = 'global'"):
        Split("global", halves="training")
    data = pool(10)
    rows = partition_input(data, Split(), Key(0))
    with pytest.raises(DataError, match=r"1 clients got no samples \(client 1 first\)"):
        federate(
            data,
            rows,
            Ragged.of([np.arange(5), np.zeros(0, np.int64), np.arange(5, 10)]),
            Split(),
            Key(0),
        )
    with pytest.raises(DataError, match="the same row to two clients"):
        federate(data, rows, Ragged.of([np.arange(5), np.arange(5)]), Split(), Key(0))
    regression = Dataset(data.x, torch.zeros(10, 1), None, data.test)
    rows = partition_input(regression, Split(), Key(0))
    with pytest.raises(ConfigError, match="label_noise: label noise needs one class per sample"):
        federate(
            regression,
            rows,
            dealt(10, 2),
            Split(),
            Key(0),
            label_noise=lambda labels, owner: (labels, np.zeros(2)),
        )
    with pytest.raises(DataError, match="no training rows"):
        partition_input(pool(4, test=np.ones(4, bool)), Split("global"), Key(0))


# ---------------------------------------------------------------- samples that go to no client


def half_and_half(count=100, test=0, groups=None):
    """``count`` samples of two classes, the last ``test`` of them the set's own test half."""
    y = torch.arange(count) % 2
    return Dataset(
        torch.arange(count).float()[:, None], y, 2, np.arange(count) >= count - test, groups
    )


def rows_of(data):
    return partition_input(data, Split(), Key(0))


def test_a_share_is_kept_back_class_by_class_and_the_rest_is_divided():
    data = half_and_half()
    left, kept = hold_out(data, rows_of(data), 0.2, Key(1))
    assert len(kept) == 20
    assert np.bincount(data.y[torch.from_numpy(kept)]).tolist() == [10, 10]
    assert sorted([*left.rows, *kept]) == list(range(100))
    assert left.labels.tolist() == data.y[torch.from_numpy(left.rows)].tolist()


def test_the_test_half_is_never_held_out():
    """Half of the 60 training samples, also where a client's test part may come from both
    halves."""
    data = half_and_half(test=40)
    left, kept = hold_out(data, rows_of(data), 0.5, Key(1))
    assert len(kept) == 30
    assert kept.max() < 60
    assert set(range(60, 100)) <= set(left.rows.tolist())


def test_every_natural_client_gives_its_share_and_keeps_something():
    """Clients of 70, 29 and 1 samples give ceil(7), ceil(2.9) and none: nobody is emptied."""
    groups = np.repeat([0, 1, 2], [70, 29, 1])
    data = half_and_half(groups=groups)
    left, kept = hold_out(data, rows_of(data), 0.1, Key(1))
    assert np.bincount(groups[kept], minlength=3).tolist() == [7, 3, 0]
    assert np.bincount(left.groups).tolist() == [63, 26, 1]


def test_the_key_decides_and_nothing_else():
    data = half_and_half()
    one, two, other = (hold_out(data, rows_of(data), 0.2, Key(k))[1] for k in (1, 1, 2))
    assert one.tolist() == two.tolist() != other.tolist()


def test_nothing_to_keep_back_is_refused():
    data = half_and_half(count=1)
    with pytest.raises(
        ConfigError, match=r"a share of 0\.5 of 1 samples leaves nothing to keep back"
    ):
        hold_out(data, rows_of(data), 0.5, Key(1))
