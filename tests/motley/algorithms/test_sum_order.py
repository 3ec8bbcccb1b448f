"""The order of sums: a tree over blocks of eight positions, whoever adds which part of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from motley.algorithms.aggregators.cluster_means import ClusterMeans
from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.aggregators.robust import Median
from motley.algorithms.parts import BLOCK, BlockRun, Part, Upload, aggregate
from motley.engines.placement import aligned_runs

TINY = 2.0**-53
"""1 + TINY is 1 in float64, and 1 + 2 TINY is not."""


def upload(value: float, position: int = -1, weight: float = 1.0) -> Upload:
    return Upload(
        {"delta": Part(torch.tensor([value]).double(), "mean")}, weight, position=position
    )


def total(values, divide="none"):
    return aggregate(Mean(), [upload(value) for value in values], divide)["delta"].item()


def test_eight_positions_are_added_one_after_the_other():
    """1, then seven tiny numbers, each of which is lost in rounding."""
    assert total([1.0, *[TINY] * 7]) == 1.0


def test_a_block_is_summed_before_it_is_added():
    """Eight tiny numbers are 2^-50, which is not lost beside 1, as each of them is alone."""
    assert total([1.0, *[0.0] * 7, *[TINY] * 8]) == 1.0 + 2.0**-50


def test_blocks_are_added_in_pairs():
    """Blocks 1, 0, TINY, TINY: (1 + 0) + (TINY + TINY) keeps what ((1 + 0) + TINY) + TINY loses."""
    blocks = [1.0, 0.0, TINY, TINY]
    assert total([value for block in blocks for value in (block, *[0.0] * 7)]) == 1.0 + 2 * TINY


def test_a_node_without_a_second_half_is_its_first():
    """Blocks TINY, TINY, 1: (TINY + TINY) + 1; blocks 1, TINY, TINY: (1 + TINY) + TINY loses
    both."""
    eight = [0.0] * 7
    assert total([TINY, *eight, TINY, *eight, 1.0]) == 1.0 + 2 * TINY
    assert total([1.0, *eight, TINY, *eight, TINY]) == 1.0


def test_an_upload_that_cannot_be_used_leaves_its_position_empty():
    """Without position 7 the block before 8 is shorter, and 8 still begins the next: 1 + (TINY +
    TINY)."""
    given = [upload(1.0, 0), upload(TINY, 8), upload(TINY, 9)]
    assert aggregate(Mean(), given, "none")["delta"].item() == 1.0 + 2 * TINY
    assert (
        aggregate(Mean(), [one._replace(position=-1) for one in given], "none")["delta"].item()
        == 1.0
    )


def tree(leaves, first, last):
    """The sum of blocks by the definition: halves of the next power of two."""
    if last - first == 1:
        return leaves.get(first)
    half = (first + last) // 2
    left = tree(leaves, first, half)
    right = tree(leaves, half, last)
    return left if right is None else right if left is None else left + right


def by_definition(values, present):
    leaves = {}
    for position in present:
        block = position // BLOCK
        leaves[block] = leaves.get(block, 0.0) + values[position]
    size = 1
    while size <= max(leaves):
        size *= 2
    return tree(leaves, 0, size)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 17, 40, 100])
@pytest.mark.parametrize("lost", [0.0, 0.4])
def test_parts_that_are_joined_have_the_bits_of_the_definition(count, lost):
    """Numbers of all sizes, so that another order rounds otherwise; cut anywhere between blocks."""
    rng = np.random.default_rng(count)
    values = rng.normal(size=count) * 10.0 ** rng.integers(-12, 12, count)
    present = [i for i in range(count) if rng.random() >= lost] or [0]
    wanted = by_definition(values.tolist(), present)
    uploads = {i: upload(values[i], i) for i in present}
    assert aggregate(Mean(), uploads.values(), "none")["delta"].item() == wanted
    blocks = -(-count // BLOCK)
    for _ in range(10):
        cuts = sorted({0, blocks, *rng.integers(0, blocks + 1, 3).tolist()})
        joined = Mean().init()
        for first, last in itertools.pairwise(cuts):
            for run in aligned_runs(first, last):
                part = Mean().init()
                for position in run.positions:
                    if position in uploads:
                        part = Mean().add(part, uploads[position])
                joined = Mean().join(joined, run, Mean().partial(part))
        assert Mean().finish(joined, "none")["delta"].item() == wanted


def test_joined_sums_have_every_kind_of_part():
    """Two blocks of one upload each: weights 1 and 3, of which the second holds the second
    number."""
    held = torch.tensor([[True, False], [True, True]])

    def parts(i):
        value = torch.tensor([1.0, 2.0]) + i
        return {
            "a": Part(value, "mean"),
            "b": Part(value, "convex"),
            "c": Part(value.long(), "max"),
            "d": Part(value, "covered", held[i]),
            "e": Part(value, "sum"),
        }

    whole = [Upload(parts(0), 1.0, position=0), Upload(parts(1), 3.0, position=8)]
    joined = Mean().init()
    for block, one in enumerate(whole):
        joined = Mean().join(
            joined, BlockRun(0, block), Mean().partial(Mean().add(Mean().init(), one))
        )
    found = Mean().finish(joined, "weight")
    assert found["a"].tolist() == [(1 + 3 * 2) / 4, (2 + 3 * 3) / 4]
    assert found["b"].tolist() == found["a"].tolist()
    assert found["c"].tolist() == [2, 3]
    assert found["d"].tolist() == [(1 + 3 * 2) / 4, 3.0]
    assert found["e"].tolist() == [3.0, 5.0]
    assert list(found) == list(aggregate(Mean(), whole, "weight"))


def test_rules_that_see_single_uploads_join_no_sums():
    for rule in (Gather(), ClusterMeans(), Median()):
        assert not rule.joins
    with pytest.raises(NotImplementedError, match="Median joins no sums"):
        Median().partial([])
    with pytest.raises(NotImplementedError, match="Median joins no sums"):
        Median().join([], BlockRun(0, 0), None)
