import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.tasks import TASKS
from motley.tasks.synthetic import Synthetic
from motley.tasks.task import Dataset


def of(pool: Dataset, client: int) -> tuple[np.ndarray, np.ndarray]:
    assert pool.groups is not None
    rows = pool.groups == client
    return pool.x.numpy()[rows], pool.y.numpy()[rows]


def test_sizes_and_halves() -> None:
    pool = Synthetic().load(Key(0), 200)
    assert pool.groups is not None
    sizes = np.bincount(pool.groups)
    assert sizes.min() >= 50
    # log(n - 50) is normal(4, 2): the median client has about e^4 = 55 samples more than 50
    assert np.log(np.maximum(sizes - 50, 0.5)).mean() == pytest.approx(4.0, abs=0.5)
    train = np.bincount(pool.groups[~pool.test])
    assert np.array_equal(train, np.floor(0.9 * sizes + 1e-6).astype(int))
    equal = Synthetic(sizes="equal", examples=30).load(Key(0), 4)
    assert np.bincount(equal.groups).tolist() == [30] * 4  # type: ignore[arg-type]


def test_the_test_part_may_be_left_to_the_split() -> None:
    own, left = (Synthetic(own_test=own).load(Key(0), 3) for own in (True, False))
    assert own.test.any()
    assert not left.test.any()
    assert torch.equal(own.x, left.x)


def test_a_client_depends_on_its_number_and_the_key_alone() -> None:
    few, many = (Synthetic().load(Key(0), n) for n in (2, 6))
    assert np.array_equal(of(few, 1)[0], of(many, 1)[0])
    assert not np.array_equal(of(few, 1)[0], of(Synthetic().load(Key(1), 2), 1)[0])


@pytest.mark.parametrize("at_once", [1, 5 * 3 * 12, 2**19])
def test_clients_drawn_together_are_those_drawn_one_by_one(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's own stream gives v, the rule and the samples, in this order; 60 features, 10
    classes and (1, 1) where nothing is said."""
    said_nothing = Synthetic()
    assert (said_nothing.dim, said_nothing.classes) == (60, 10)
    assert (said_nothing.alpha, said_nothing.beta) == (1.0, 1.0)
    monkeypatch.setattr("motley.tasks.synthetic._AT_ONCE", at_once)
    monkeypatch.setattr("motley.tasks.synthetic._BLOCK", 4)
    task = Synthetic(alpha=0.5, beta=2.0, sizes="equal", examples=5, dim=3, classes=2)
    pool = task.load(Key(4), 9)
    u, centre = (Key(4).fold(name).normal(np.arange(9))[:, 0] for name in ("u", "B"))
    for k in range(9):
        rng = Key(4).fold("client", k).numpy()
        v = rng.standard_normal(3) + 2.0 * centre[k]
        rule = rng.standard_normal((4, 2)) + 0.5 * u[k]
        x = v + rng.standard_normal((5, 3)) * np.arange(1, 4) ** -0.6
        assert np.array_equal(of(pool, k)[0], x.astype(np.float32))
        assert np.array_equal(of(pool, k)[1], (x @ rule[:3] + rule[3]).argmax(1))


def test_features_have_the_stated_covariance() -> None:
    """Within a client, column j has variance j^-1.2 around v_j."""
    x, _ = of(Synthetic(sizes="equal", examples=20_000, dim=12).load(Key(3), 1), 0)
    # sd of a variance: 0.01
    assert x.var(0) * np.arange(1, 13) ** 1.2 == pytest.approx(np.ones(12), abs=0.06)


def test_beta_moves_clients_and_alpha_is_a_standard_deviation() -> None:
    """The mean of v over 60 coordinates is normal(B, 1/60) and B has standard deviation beta =
    3."""
    pool = Synthetic(0.0, 3.0, sizes="equal", examples=20).load(Key(0), 400)
    centres = np.array([of(pool, k)[0].mean() for k in range(400)])
    assert centres.std() == pytest.approx(3.0, abs=0.35)


def rules_agree(pool: Dataset) -> float:
    """How well a linear rule fitted to client 0 does on client 1 (least squares on one-hot
    labels)."""
    (x, y), (x1, y1) = of(pool, 0), of(pool, 1)
    columns = np.c_[x, np.ones(len(x))]
    w = np.linalg.lstsq(columns, np.eye(10)[y], rcond=None)[0]
    return float(((np.c_[x1, np.ones(len(x1))] @ w).argmax(1) == y1).mean())


def test_zero_zero_is_not_iid_and_the_iid_variant_is() -> None:
    """At (0, 0) every client still has its own W."""
    assert rules_agree(Synthetic(0.0, 0.0, sizes="equal", examples=2000).load(Key(0), 2)) < 0.35
    assert rules_agree(Synthetic(iid=True, sizes="equal", examples=2000).load(Key(0), 2)) > 0.6


def test_task_and_bad_options() -> None:
    source = TASKS.build({"name": "synthetic", "alpha": 1, "beta": 1})
    pool = source.load(Key(0), 3)
    assert pool.x.dtype == torch.float32
    assert source.factory(pool)()(pool.x[:2]).shape == (2, 10)
    with pytest.raises(
        ConfigError, match=r"task: alpha: got -1.0; expected a standard deviation of at least 0"
    ):
        TASKS.build({"name": "synthetic", "alpha": -1})
    with pytest.raises(ConfigError, match="task: classes: got 1; expected at least 2"):
        TASKS.build({"name": "synthetic", "classes": 1})
