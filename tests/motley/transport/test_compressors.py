"""Every compressor against its paper's numbers, and what all of them share.

Worked numbers: docs/methods/compression.md#curvature, docs/methods/compression.md#signs,
docs/methods/compression.md#qsgd.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import CodecError, ConfigError, ContractError
from motley.core.keys import Key
from motley.core.layout import Entry, Layout
from motley.transport.compressors.chain import Chain
from motley.transport.compressors.compressor import Compressor, kept_of
from motley.transport.compressors.fedpaq import FedPAQ
from motley.transport.compressors.identity import Identity
from motley.transport.compressors.largest import _SHORT, largest
from motley.transport.compressors.qsgd import QSGD
from motley.transport.compressors.randomk import RandomK
from motley.transport.compressors.signs import Signs
from motley.transport.compressors.tensor_drop import TensorDrop
from motley.transport.compressors.terngrad import TernGrad
from motley.transport.compressors.topk import TopK
from motley.transport.packet import Codes
from motley.transport.wire import decode, encode, length

KEY = Key(0).fold("compress", 7, 3)


def layout_of(*sizes: int) -> Layout:
    """One layer with a weight of each size."""
    starts = np.cumsum((0, *sizes)).tolist()
    return Layout(
        tuple(Entry(f"l{i}.weight", f"l{i}", (n,), starts[i]) for i, n in enumerate(sizes))
    )


FLAT = layout_of(4)
ALL: list[Compressor] = [
    Identity(),
    TopK(),
    TopK(rounding="floor"),
    TopK(per_tensor=True),
    TopK(criterion="curvature"),
    TopK(criterion="curvature", rescale=True, guard="clamp"),
    RandomK(),
    RandomK(unbiased=False),
    QSGD(),
    QSGD(1, 0),
    QSGD(255, 5, "max"),
    QSGD(40_000, 7),
    FedPAQ(),
    FedPAQ(5),
    Signs(),
    Signs("unit"),
    TernGrad(),
    TernGrad(None, "vector"),
    TensorDrop(),
    TensorDrop(rescale=True),
    Chain(TopK(), QSGD()),
    Chain(TopK(), Signs()),
    Chain(TopK(), TernGrad()),
    Chain(RandomK(), QSGD(4, 3)),
    Chain(TensorDrop(), FedPAQ(3)),
]


# ----------------------------------------------------------------------------------- what all share


@pytest.mark.parametrize("compressor", ALL, ids=repr)
@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    theta=st.sampled_from([0.0, 0.005, 0.07, 0.3, 0.9, 1.0]),
    seed=st.integers(0, 2**31),
    double=st.booleans(),
    scale=st.sampled_from([0.0, 1e-30, 1.0, 1e20]),
)
def test_the_form_is_known_beforehand_and_the_bytes_tell_the_same_vector(
    compressor: Compressor, sizes: list[int], theta: float, seed: int, double: bool, scale: float
) -> None:
    layout = layout_of(*sizes)
    key = Key(seed)
    dtype = torch.float64 if double else torch.float32
    rng = np.random.default_rng(seed)
    v = torch.from_numpy(rng.standard_normal(layout.size) * scale).to(dtype)
    before = v.clone()
    form = compressor.spec(theta, layout, key, dtype)
    curvature = {
        name: v[layout.layers[name]].clone()
        for name in compressor.curvature_layers(theta, layout, key, None)
    }
    packet = compressor.compress(v, theta, layout, key, curvature)
    assert torch.equal(v, before)  # the update is not changed
    assert packet.spec == form
    data = encode({"delta": packet})
    assert len(data) == length({"delta": form})
    assert torch.equal(decode(data)["delta"].dense(), packet.dense())
    assert packet.dense().dtype == dtype
    again = compressor.compress(v, theta, layout, key, curvature)
    assert encode({"delta": again}) == data  # a function of values and key alone
    if not v.any() and not isinstance(compressor, Signs):
        assert not packet.dense().any()


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_what_is_not_finite_is_refused(compressor: Compressor) -> None:
    for bad in (math.nan, math.inf):
        with pytest.raises(CodecError, match="not finite"):
            compressor.compress(torch.tensor([1.0, bad, 0.0, 2.0]), 0.5, FLAT, KEY)


@pytest.mark.parametrize(
    "compressor",
    [Identity(), TopK(), TopK(criterion="curvature"), RandomK(), TensorDrop()],
    ids=repr,
)
def test_theta_one_sends_everything_as_it_is(compressor: Compressor) -> None:
    v = torch.from_numpy(np.random.default_rng(0).standard_normal(4))
    assert torch.equal(compressor.compress(v, 1.0, FLAT, KEY).dense(), v)


def test_how_many_values_a_share_is() -> None:
    """ceil(theta N - 1e-6): .07 * 100 is 7.000000000000001 in floating point, and stays 7."""
    assert [kept_of(theta, 100) for theta in (0.07, 0.0701, 0.001, 0.0, 1.0)] == [7, 8, 1, 1, 100]
    assert kept_of(0.1, 0) == 0
    assert kept_of(0.05, 2_780_000) == 139_000
    assert [TopK(rounding="floor").kept(theta, 100) for theta in (0.07, 0.0799, 0.001, 1.0)] == [
        7,
        7,
        1,
        100,
    ]
    with pytest.raises(ConfigError, match=r"got an upload ratio of 1.1; expected 0 to 1"):
        kept_of(1.1, 10)


def test_paper_bits() -> None:
    """The papers' account: 32 theta N, not rounded up, places free; quantizers count their own
    width."""
    layout = layout_of(7850)
    assert TopK().paper_bits(0.005, layout, KEY) == round(32 * 0.005 * 7850) == 1256
    assert (
        RandomK().paper_bits(0.2, layout, KEY)
        == Identity().paper_bits(0.2, layout, KEY) // 5
        == 50_240
    )
    assert QSGD(15, 0).paper_bits(0.2, layout, KEY) == 5 * 7850 + 32
    assert Chain(TopK(), QSGD(15, 0)).paper_bits(0.2, layout, KEY) == 5 * 1570 + 32
    # of tensors that are drawn whole those that are
    tensors = layout_of(7000, 850)
    drawn = {key: TensorDrop().spec(0.5, tensors, Key(key)).sent for key in range(9)}
    assert set(drawn.values()) == {0, 850, 7000, 7850}
    for key, sent in drawn.items():
        assert TensorDrop().paper_bits(0.5, tensors, Key(key)) == 32 * sent
        chain = Chain(TensorDrop(), Signs())
        assert chain.paper_bits(0.5, tensors, Key(key)) == sent + 32 * bool(sent)


# ------------------------------------------------------------------------------------ the k largest


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 45))
def test_ties_go_to_the_lowest_index(values: list[int], k: int) -> None:
    score = np.array(values, np.float32)
    expected = np.sort(np.argsort(-score, kind="stable")[:k])
    assert largest(score, k).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["normal", "sorted", "few values", "constant", "periodic"])
def test_long_vectors_take_the_same_coordinates_as_a_stable_sort(kind: str) -> None:
    n = 4 * _SHORT + 3
    rng = np.random.default_rng(1)
    score = {
        "normal": rng.standard_normal(n),
        "sorted": np.arange(n),
        "few values": rng.integers(0, 3, n),
        "constant": np.ones(n),
        # what the sample sees is not the rest
        "periodic": np.where(np.arange(n) % (n // (1 << 14)) == 0, 5.0, rng.random(n)),
    }[kind].astype(np.float32)
    order = np.argsort(-score, kind="stable")
    for k in (1, 2, 50, n // 1000, n // 20, n // 5, n // 2, n - 2, n - 1, n):
        assert np.array_equal(largest(score, k), np.sort(order[:k])), k


# ------------------------------------------------------------------------------------- top-k


def test_small_values_do_not_underflow_into_ties() -> None:
    """Squares of 1e-30 and 2e-30 are both 0 in float32; the first would win a tie."""
    v = torch.tensor([1e-30, 2e-30, 0.0, 0.0])
    assert TopK().compress(v, 0.25, FLAT, KEY).indices().tolist() == [1]


@given(st.integers(0, 2**31), st.sampled_from([0.1, 0.3, 0.75]))
@settings(max_examples=50, deadline=None)
def test_top_k_contracts(seed: int, theta: float) -> None:
    """||v - C(v)||^2 <= (1 - kappa / N) ||v||^2 for s = v^2."""
    v = torch.from_numpy(np.random.default_rng(seed).standard_normal(40))
    left = v - TopK().compress(v, theta, layout_of(40), KEY).dense()
    assert float(left @ left) <= (1 - kept_of(theta, 40) / 40) * float(v @ v) + 1e-12


def test_curvature_turns_the_order_around() -> None:
    """v = (3, 2, 1), H = (10, 1, .1): s = (9/10, 4/1, 1/.1) = (.9, 4, 10)."""
    rule = TopK(criterion="curvature", eps=1e-12)
    layout = layout_of(3)
    v = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
    h = {"l0": torch.tensor([10.0, 1.0, 0.1])}
    assert torch.allclose(
        rule.roots(v, layout, h).square(), torch.tensor([0.9, 4.0, 10.0], dtype=torch.float64)
    )
    assert rule.compress(v, 0.3, layout, KEY, h).indices().tolist() == [2]


def test_the_worked_numbers_of_hetero_select() -> None:
    """``motley.selectors.hetero_select`` (c): v = (3, -2, 1, .5), k = 2, layer {0, 1} with |H| =
    (10, 1): literal scores (9/10, 4/1, 1, .25) send {1, 2}. Rescaled by (9 + 4) / (.9 + 4) = 13 /
    4.9 = 2.653061: (2.387755, 10.612245, 1, .25) send {0, 1}."""
    layout = layout_of(2, 2)
    v = torch.tensor([3.0, -2.0, 1.0, 0.5], dtype=torch.float64)
    h = {"l0": torch.tensor([-10.0, 1.0], dtype=torch.float64)}
    literal, rescaled = (TopK(criterion="curvature", rescale=on, eps=1e-12) for on in (False, True))
    assert literal.roots(v, layout, h).square().numpy() == pytest.approx([0.9, 4.0, 1.0, 0.25])
    assert literal.compress(v, 0.5, layout, KEY, h).indices().tolist() == [1, 2]
    assert rescaled.roots(v, layout, h).square().numpy() == pytest.approx(
        [2.387755, 10.612245, 1.0, 0.25], abs=1e-6
    )
    assert rescaled.compress(v, 0.5, layout, KEY, h).indices().tolist() == [0, 1]
    # magnitude does not look
    assert TopK().compress(v, 0.5, layout, KEY, h).indices().tolist() == [0, 1]


def test_per_tensor_each_tensor_keeps_its_share() -> None:
    v = torch.tensor([9.0, 8.0, 7.0, 6.0, 0.1, 0.2])
    layout = layout_of(4, 2)
    assert TopK().compress(v, 0.5, layout, KEY).indices().tolist() == [0, 1, 2]
    assert TopK(per_tensor=True).compress(v, 0.5, layout, KEY).indices().tolist() == [0, 1, 5]
    assert TopK(per_tensor=True).spec(0.05, layout, KEY).sent == 2  # at least one each


def test_flat_directions_and_missing_curvature() -> None:
    layout = layout_of(2, 2)
    v = torch.tensor([0.1, 0.2, 3.0, 1.0])
    flat = {"l0": torch.zeros(2)}
    # inflated, literally
    assert TopK(criterion="curvature").compress(v, 0.5, layout, KEY, flat).indices().tolist() == [
        0,
        1,
    ]
    # not measured: v^2
    assert TopK(criterion="curvature").compress(v, 0.5, layout, KEY, {}).indices().tolist() == [
        2,
        3,
    ]
    assert TopK(criterion="curvature", rescale=True).compress(
        v, 0.5, layout, KEY, flat
    ).indices().tolist() == [2, 3]
    assert TopK(criterion="curvature").compress(
        torch.zeros(4), 0.5, layout, KEY, flat
    ).indices().tolist() == [0, 1]
    h = {"l0": torch.tensor([1.0, 1e-9], dtype=torch.float64)}
    roots = (
        TopK(criterion="curvature", guard="clamp", eps=1e-6).roots(v.double(), layout, h).square()
    )
    assert roots[1].item() == pytest.approx(0.04 / 1e-6)
    roots = TopK(criterion="curvature", eps=1e-6).roots(v.double(), layout, h).square()
    assert roots[1].item() == pytest.approx(0.04 / (1e-9 + 1e-6))
    with pytest.raises(ContractError, match=r"a curvature of shape \[3\] for a layer of 2"):
        TopK(criterion="curvature").compress(v, 0.5, layout, KEY, {"l0": torch.zeros(3)})


def test_layer_probabilities() -> None:
    """Shares q = (.6, .3, .1, 0), lambda = .2, L = 4: .8 q + .05 = (.53, .29, .13, .05). Layers of
    10: 6, 3, 1, 0 picked."""
    rule = TopK(criterion="curvature")
    layout = layout_of(10, 10, 10, 10)
    memory = {"picked": torch.tensor([6.0, 3.0, 1.0, 0.0])}
    assert rule.layer_probabilities(layout, memory) == pytest.approx([0.53, 0.29, 0.13, 0.05])
    assert rule.layer_probabilities(layout, None) == pytest.approx([0.25] * 4)
    assert rule.layer_probabilities(layout, {"picked": torch.zeros(4)}) == pytest.approx([0.25] * 4)


def test_density_and_count() -> None:
    """Sizes (1000, 10), picked (100, 5): density (.1, .5) -> (.1667, .8333); count (100, 5) / 105
    -> (.9524, .0476)."""
    layout = layout_of(1000, 10)
    memory = {"picked": torch.tensor([100.0, 5.0])}
    density = TopK(criterion="curvature", uniform=0.0).layer_probabilities(layout, memory)
    count = TopK(criterion="curvature", uniform=0.0, share="count").layer_probabilities(
        layout, memory
    )
    assert density == pytest.approx([1 / 6, 5 / 6])
    assert count == pytest.approx([100 / 105, 5 / 105])


def test_the_first_layer_is_drawn_with_these_probabilities_and_no_layer_twice() -> None:
    layout = layout_of(10, 10, 10, 10)
    memory = {"picked": torch.tensor([6.0, 3.0, 1.0, 0.0])}
    one = TopK(criterion="curvature", layers=1)
    three = TopK(criterion="curvature")
    hits = dict.fromkeys(layout.layers, 0)
    for seed in range(4000):
        (name,) = one.curvature_layers(0.2, layout, Key(seed), memory)
        hits[name] += 1
        if seed < 50:
            assert len(set(three.curvature_layers(0.2, layout, Key(seed), memory))) == 3
    for got, p in zip(hits.values(), (0.53, 0.29, 0.13, 0.05), strict=True):
        assert abs(got / 4000 - p) < 4 * (p * (1 - p) / 4000) ** 0.5
    assert TopK().curvature_layers(0.2, layout, KEY, memory) == ()
    assert three.curvature_layers(1.0, layout, KEY, memory) == ()  # everything is sent
    assert TopK(criterion="curvature", layers=9).curvature_layers(
        0.2, layout, KEY, memory
    ) == tuple(layout.layers)


def test_a_client_remembers_how_many_of_each_layer_it_sent() -> None:
    rule = TopK(criterion="curvature")
    layout = layout_of(3, 1, 2)
    packet = rule.compress(torch.tensor([5.0, 0.0, 4.0, 3.0, 0.0, 0.0]), 0.5, layout, KEY)
    assert rule.next_state(packet, layout)["picked"].tolist() == [2.0, 1.0, 0.0]
    assert TopK().next_state(packet, layout) == {}
    crossed = Layout(
        (Entry("a.w", "a", (1,), 0), Entry("b.w", "b", (1,), 1), Entry("a.b", "a", (1,), 2))
    )
    with pytest.raises(ContractError, match="do not follow each other"):
        rule.curvature_layers(0.3, crossed, KEY, None)


# ------------------------------------------------------------------------------------- random-k


def test_random_k_is_unbiased_with_its_variance() -> None:
    """v = (1, 2, 3), kappa = 1: each of (3, 0, 0), (0, 6, 0), (0, 0, 9) with 1/3; variance
    (3 - 1) * 14 = 28."""
    v = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    layout = layout_of(3)
    n = 4000
    draws = torch.stack(
        [RandomK().compress(v, 0.3, layout, Key(seed)).dense() for seed in range(n)]
    )
    assert {tuple(row) for row in draws.tolist()} == {(3.0, 0, 0), (0, 6.0, 0), (0, 0, 9.0)}
    assert ((draws.mean(0) - v).abs() < 4 * (2 * v**2 / n).sqrt()).all()
    square = (draws - v).square().sum(1)
    assert float(square.mean()) == pytest.approx(28, abs=4 * float(square.std()) / n**0.5)
    plain = RandomK(unbiased=False).compress(v, 0.3, layout, KEY)
    assert torch.equal(plain.values, v[plain.indices()])


# ------------------------------------------------------------------------------------- quantizers


def draws(compressor: QSGD | TernGrad, v: torch.Tensor, n: int) -> torch.Tensor:
    """``n`` independent codings of ``v``: a bucket each."""
    codes = compressor.quantize(v.repeat(n), (len(v),) * n, Key(5))
    return codes.values().view(n, -1).double()


@pytest.mark.parametrize(
    ("levels", "variance", "bound"), [(1, 14.792156, 52.0), (4, 0.839215, 6.5)]
)
def test_qsgd_is_unbiased_within_its_variance(levels: int, variance: float, bound: float) -> None:
    """v = (3, -4, 0, 1), ||v|| = sqrt(26) = 5.099020; f = frac(s |v| / ||v||); (26 / s^2) sum f
    (1 - f). Bound min(N / s^2, sqrt(N) / s) ||v||^2 = min(4, 2) * 26 = 52 at s = 1, min(1/4, 1/2) *
    26 = 6.5 at s = 4."""
    v = torch.tensor([3.0, -4.0, 0.0, 1.0], dtype=torch.float64)
    n = 200_000
    f = (levels * v.abs() / v.norm()).frac()
    assert float(26 / levels**2 * (f * (1 - f)).sum()) == pytest.approx(variance, abs=1e-6)
    found = draws(QSGD(levels), v, n)
    errors = (found.mean(0) - v).abs()
    assert (errors <= 4 * found.std(0) / n**0.5 + 1e-12).all()
    square = (found - v).square().sum(1)
    assert abs(float(square.mean()) - variance) < 4 * float(square.std()) / n**0.5
    assert variance <= bound
    assert not found[:, 2].any()


def test_qsgd_at_the_edges() -> None:
    one = torch.tensor([-1e-38, 3.3, -7.1, 0.0])
    # a bucket of one is exact
    assert torch.equal(QSGD(3, 1).compress(one, 1.0, FLAT, KEY).dense(), one)
    maximal = QSGD(7, 0, "max").compress(torch.tensor([1.0, -4.0, 2.0, 0.0]), 1.0, FLAT, KEY)
    assert float(maximal.values.scales[0]) == 4.0  # max of absolute values: max(v) alone would be 2
    with pytest.raises(CodecError, match="does not fit"):
        QSGD().compress(torch.full((4,), 3e38), 1.0, FLAT, KEY)
    near = torch.from_numpy(np.random.default_rng(0).standard_normal(1000)).float()
    fine = QSGD(2**20, 0).compress(near, 1.0, layout_of(1000), KEY).dense()
    # FedPAQ with s to infinity: off by at most ||v|| / s
    assert (fine - near).abs().max() <= near.norm() / 2**20 * 1.01


def test_norms_are_rounded_up() -> None:
    """Half of all norms would be rounded down to 32 bits: r_i could pass s, and a coordinate that
    holds the whole norm be cut."""
    v = torch.from_numpy(np.random.default_rng(0).standard_normal(3000)).float()
    scales = QSGD(4, 3).compress(v, 1.0, layout_of(3000), KEY).values.scales.double()
    exact = v.double().view(1000, 3).norm(dim=1)
    assert (scales >= exact).all()
    assert (scales <= exact * (1 + 2e-7)).all()


def test_buckets_are_normed_apart_and_a_short_last_one_too() -> None:
    v = torch.tensor([3.0, 4.0, 0.0, 0.0, -5.0])
    packet = QSGD(1, 2).compress(v, 1.0, layout_of(5), KEY)
    assert packet.values.scales.tolist() == [5.0, 0.0, 5.0]
    assert packet.dense()[2:].tolist() == [0.0, 0.0, -5.0]


def test_fedpaq_is_qsgd_with_one_norm() -> None:
    v = torch.randn(30, generator=torch.Generator().manual_seed(0))
    same = [c.compress(v, 1.0, layout_of(30), KEY) for c in (FedPAQ(5), QSGD(5, 0))]
    assert torch.equal(same[0].dense(), same[1].dense())
    assert same[0].spec == same[1].spec


def test_terngrad_is_unbiased_with_its_variance() -> None:
    """v = (.5, -1, .25), S = 1: variance sum (S |v| - v^2) = .25 + 0 + .1875 = .4375."""
    v = torch.tensor([0.5, -1.0, 0.25], dtype=torch.float64)
    n = 20_000
    found = draws(TernGrad(None), v, n)
    assert set(found.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert ((found.mean(0) - v).abs() <= 4 * found.std(0) / n**0.5 + 1e-12).all()
    square = (found - v).square().sum(1)
    assert abs(float(square.mean()) - 0.4375) < 4 * float(square.std()) / n**0.5


def test_terngrad_clips_each_tensor_at_its_own_spread() -> None:
    """99 zeros and a 10: mean .1, sigma sqrt(1 - .01) = .994987; clipped at 2.5 sigma = 2.487469.
    The other tensor is apart."""
    v = torch.zeros(102)
    v[5], v[100], v[101] = 10.0, -30.0, 30.0
    scales = TernGrad().compress(v, 1.0, layout_of(100, 2), KEY).values.scales
    assert scales.tolist() == pytest.approx([2.487469, 30.0], rel=1e-5)
    assert TernGrad(None).compress(v, 1.0, layout_of(100, 2), KEY).values.scales.tolist() == [
        10.0,
        30.0,
    ]
    assert TernGrad(None, "vector").compress(
        v, 1.0, layout_of(100, 2), KEY
    ).values.scales.tolist() == [30.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_values_are_not_clipped_to_what_rounding_leaves(dtype: torch.dtype) -> None:
    """Their deviation is 0, but that of the mean as it is rounded is some 1e-8 of them."""
    for size in (2, 3, 7, 10, 100, 1000):
        for value in (0.1, -7.7, 1 / 3, 1e-3):
            v = torch.full((size,), value, dtype=dtype)
            assert torch.equal(TernGrad().compress(v, 1.0, layout_of(size), KEY).dense(), v)


def test_a_spread_near_the_largest_number_clips_nothing() -> None:
    v = torch.tensor([3e38, -3e38])
    assert torch.equal(TernGrad().compress(v, 1.0, layout_of(2), KEY).dense(), v)


def test_the_scale_of_signs_has_the_dtype_of_the_update() -> None:
    """(.1 + .2 + .4) / 3, and numbers that 32 bits cannot hold."""
    v = torch.tensor([0.1, 0.2, -0.4], dtype=torch.float64)
    for factor in (1.0, 1e-60, 1e60):
        sent = Signs().compress(factor * v, 1.0, layout_of(3), KEY).dense()
        assert sent.tolist() == pytest.approx([0.7 / 3 * factor] * 2 + [-0.7 / 3 * factor], 1e-14)


def test_signs_contract_by_the_mean_absolute_value() -> None:
    """v = (2, -1, 0, 1): ||v||_1 / N = 1, C(v) = (1, -1, 1, 1) with sgn(0) = +1; ||v - C(v)||^2 =
    1 + 0 + 1 + 0 = 2, and
    ||v||^2 (1 - ||v||_1^2 / (N ||v||^2)) = 6 - 16 / 4 = 2."""
    v = torch.tensor([2.0, -1.0, 0.0, 1.0])
    sent = Signs().compress(v, 1.0, FLAT, KEY).dense()
    assert sent.tolist() == [1.0, -1.0, 1.0, 1.0]
    assert float((v - sent).square().sum()) == 2.0
    assert Signs("unit").compress(5 * v, 1.0, FLAT, KEY).dense().tolist() == [1.0, -1.0, 1.0, 1.0]


# ------------------------------------------------------------------------------- tensors and chains


def test_tensor_drop_is_a_coin_for_each_tensor() -> None:
    layout = layout_of(3, 2, 4)
    v = torch.arange(1.0, 10.0)
    n = 2000
    seen = torch.zeros(3)
    for seed in range(n):
        packet = TensorDrop().compress(v, 0.7, layout, Key(seed))
        dense = packet.dense()
        for i, place in enumerate(layout.layers.values()):
            sent = bool(dense[place].any())
            assert torch.equal(dense[place], v[place] if sent else torch.zeros_like(v[place]))
            seen[i] += sent
    assert ((seen / n - 0.7).abs() < 4 * (0.21 / n) ** 0.5).all()
    assert not TensorDrop().compress(v, 0.0, layout, KEY).dense().any()
    packet = TensorDrop(rescale=True).compress(v, 0.5, layout, Key(2))
    assert torch.equal(packet.dense(), 2 * TensorDrop().compress(v, 0.5, layout, Key(2)).dense())


def test_a_chain_quantises_what_was_chosen_and_nothing_else() -> None:
    v = torch.tensor([0.1, -8.0, 0.2, 6.0])
    packet = Chain(TopK(), QSGD(1, 0)).compress(v, 0.5, FLAT, KEY)
    assert packet.indices().tolist() == [1, 3]
    assert isinstance(packet.values, Codes)
    assert packet.values.scales.tolist() == [10.0]  # the norm of (-8, 6), not of v
    with pytest.raises(ConfigError, match="got QSGD then TopK"):
        Chain(QSGD(), TopK())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TopK(criterion="size"),
            "got criterion = 'size'; expected 'magnitude' or 'curvature'",
        ),
        (lambda: TopK(layers=0), "expected at least 1"),
        (lambda: TopK(uniform=2.0), "expected a share between 0 and 1"),
        (lambda: TopK(eps=0.0), "small positive number"),
        (lambda: QSGD(0), "got levels = 0"),
        (lambda: QSGD(bucket=-1), "got bucket = -1"),
        (lambda: QSGD(norm="l1"), "expected 'l2' or 'max'"),
        (lambda: FedPAQ(0), "got levels = 0"),
        (lambda: Signs("sum"), "expected 'mean'"),
        (lambda: TernGrad(clip=0.0), "got clip = 0.0"),
        (lambda: TernGrad(per="row"), "expected 'layer' or 'vector'"),
    ],
)
def test_options_are_checked(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
