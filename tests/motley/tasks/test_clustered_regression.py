from pathlib import Path

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.results import measures
from motley.tasks import TASKS
from motley.tasks.clustered_regression import ClusteredRegression
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.task import Dataset


def still(examples: int, intercept: bool, sigma_theta: float) -> ClusteredRegression:
    """One cluster with x = 2 and theta = 3."""
    return ClusteredRegression(
        1, intercept, examples, (2.0, 2.0), (0.0, 0.0), (3.0, 3.0), (sigma_theta, sigma_theta)
    )


def of(pool: Dataset, client: int) -> tuple[np.ndarray, np.ndarray]:
    assert pool.groups is not None
    rows = pool.groups == client
    return pool.x.numpy().astype(float)[rows], pool.y.numpy().astype(float)[rows, 0]


def test_without_deviations_all_samples_are_known() -> None:
    """x = 2 and theta = 3: y = 3 * 2 = 6; with an intercept x = (2, 1), theta = (3, 3): y = 3 * 2 +
    3 * 1 = 9."""
    slope = still(5, False, 0.0).load(Key(0), 2)
    assert slope.x.tolist() == [[2.0]] * 10
    assert slope.y.tolist() == [[6.0]] * 10
    both = still(5, True, 0.0).load(Key(0), 2)
    assert both.x.tolist() == [[2.0, 1.0]] * 10
    assert both.y.tolist() == [[9.0]] * 10


@pytest.mark.parametrize(("intercept", "least"), [(False, 4.0), (True, 5.0)])
def test_the_least_error_at_x(intercept: bool, least: float) -> None:
    """At x = 2 with sigma_theta = 1, y is normal with variance sigma_theta^2 |x|^2 = 2^2, or 2^2 +
    1^2 with an intercept."""
    source = still(40_000, intercept, 1.0)
    _, y = of(source.load(Key(1), 1), 0)
    assert y.var() == pytest.approx(least, rel=0.03)  # sd of a variance: sqrt(2 / 40,000) = 0.7 %
    assert source.cluster(Key(1), 0).min_mse == least


def test_the_noise_is_multiplicative() -> None:
    """``(y - theta x)^2 / x^2`` has mean sigma_theta^2 near 0 as far from it; a noise that is added
    would have none such."""
    source = ClusteredRegression(1, examples=60_000, mu_x=(0.0, 0.0), sigma_x=(1.0, 1.0))
    law = source.cluster(Key(2), 0)
    x, y = of(source.load(Key(2), 1), 0)
    error = (y - law.theta[0] * x[:, 0]) ** 2
    for part in (np.abs(x[:, 0]) < 0.5, np.abs(x[:, 0]) > 1.5):
        assert (error[part] / x[part, 0] ** 2).mean() == pytest.approx(law.sigma_theta**2, rel=0.06)
    assert error.mean() == pytest.approx(law.min_mse, rel=0.06)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_model_of_least_squares_finds_a_cluster_s_line_and_its_least_error(
    intercept: bool,
) -> None:
    source = ClusteredRegression(2, intercept, 40_000, mu_x=(-1.0, 1.0))
    pool = source.load(Key(3), 4)
    member = source.members(Key(3), 4)
    assert set(member) == {0, 1}
    for k in range(4):
        law, (x, y) = source.cluster(Key(3), member[k]), of(pool, k)
        found = np.linalg.lstsq(x, y, rcond=None)[0]
        assert found == pytest.approx(law.theta, abs=0.05)
        assert ((y - x @ found) ** 2).mean() == pytest.approx(law.min_mse, rel=0.05)
        assert x[:, 0].mean() == pytest.approx(law.mu_x, abs=0.03)
        assert x[:, 0].std() == pytest.approx(law.sigma_x, rel=0.03)


def test_one_cluster_is_iid_and_two_are_not() -> None:
    """Of one cluster: the means of x over clients differ as 50 draws of N(mu, sigma^2 / n) do. Of
    two: far more, and half each."""
    one = ClusteredRegression(1, examples=400)
    two = ClusteredRegression(2, examples=400)
    assert not one.members(Key(4), 50).any()
    assert one.cluster(Key(4), 0) == two.cluster(Key(4), 0)
    law = one.cluster(Key(4), 0)
    means = [
        np.array([of(source.load(Key(4), 50), k)[0][:, 0].mean() for k in range(50)])
        for source in (one, two)
    ]
    assert means[0].std() == pytest.approx(law.sigma_x / 20, rel=0.35)
    assert means[1].std() > 10 * means[0].std()
    assert two.members(Key(4), 4000).mean() == pytest.approx(0.5, abs=0.03)


def test_parameters_lie_in_their_ranges() -> None:
    source = ClusteredRegression(intercept=True)
    laws = [source.cluster(Key(seed), j) for seed in range(40) for j in range(2)]
    for name in ("mu_x", "sigma_x", "theta", "sigma_theta"):
        low, high = getattr(source, name)
        drawn = np.concatenate([np.ravel(getattr(law, name)) for law in laws])
        assert low <= drawn.min() < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < drawn.max() <= high


def test_a_client_depends_on_its_number_and_the_key_alone() -> None:
    few, many = (ClusteredRegression().load(Key(0), n) for n in (2, 6))
    for one, other in zip(of(few, 1), of(many, 1), strict=True):
        assert np.array_equal(one, other)
    assert not np.array_equal(of(few, 1)[0], of(ClusteredRegression().load(Key(1), 2), 1)[0])


def test_every_client_keeps_a_fifth_for_testing() -> None:
    pool = ClusteredRegression().load(Key(0), 3)
    rows = partition_input(pool, Split(), Key(0))
    assert rows.groups is not None
    parts = Ragged.of([np.flatnonzero(rows.groups == k) for k in range(3)])
    federation = federate(pool, rows, parts, Split(), Key(0))
    assert federation.train.sizes.tolist() == [80] * 3
    assert federation.test.sizes.tolist() == [20] * 3


def test_averaging_ends_at_the_least_error(tmp_path: Path) -> None:
    """IID, everybody takes part: the mean squared error on test data, twice the loss, is the least
    one."""
    task = {
        "name": "clustered_regression",
        "clusters": 1,
        "intercept": True,
        "examples": 1000,
        "mu_x": [0.5, 1.0],
    }
    local = {"steps": 20, "batch_size": 1000, "optimizer": {"name": "sgd", "lr": 0.3}}
    experiment = motley.Experiment(
        task=task, population=10, cohort=10, stop={"rounds": 15}, local=local, partition="by_writer"
    )
    run = motley.run(experiment, out=tmp_path / "run")
    least = ClusteredRegression(
        **{key: value for key, value in task.items() if key != "name"}
    ).cluster(  # type: ignore[arg-type]
        Key(0).fold("data"), 0
    )
    assert 2 * measures.curve(run).y[-1] == pytest.approx(least.min_mse, rel=0.1)


def test_task_and_bad_options() -> None:
    source = TASKS.build({"name": "clustered_regression", "intercept": True, "theta": [-1, 1]})
    pool = source.load(Key(0), 3)
    assert pool.x.dtype == torch.float32
    module = source.factory(pool)()
    assert module(pool.x[:2]).shape == (2, 1)
    assert sum(p.numel() for p in module.parameters()) == 2
    for options, words in (
        ({"clusters": 0}, "task: clusters: got 0; expected at least 1"),
        ({"examples": 1}, "task: examples: got 1; expected at least 2"),
        (
            {"sigma_theta": [-0.1, 1]},
            r"task: sigma_theta: got \[-0.1, 1\]; expected two deviations of at least 0",
        ),
        (
            {"theta": [2, 1]},
            r"task: theta: got \[2, 1\]; expected two finite numbers, the least and the greatest "
            r"value",
        ),
        ({"mu_x": [0, float("inf")]}, r"task: mu_x: got \[0, inf\]; expected two finite numbers"),
    ):
        with pytest.raises(ConfigError, match=words):
            TASKS.build({"name": "clustered_regression", **options})
