"""Error feedback: nothing appears, and nothing is lost but what the decay says.

Worked numbers: docs/methods/compression.md#error-feedback.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from motley.core.errors import CodecError, ConfigError
from motley.core.keys import Key
from motley.core.layout import Entry, Layout
from motley.transport.compressors.chain import Chain
from motley.transport.compressors.compressor import Compressor
from motley.transport.compressors.fedpaq import FedPAQ
from motley.transport.compressors.identity import Identity
from motley.transport.compressors.qsgd import QSGD
from motley.transport.compressors.randomk import RandomK
from motley.transport.compressors.signs import Signs
from motley.transport.compressors.tensor_drop import TensorDrop
from motley.transport.compressors.topk import TopK
from motley.transport.feedback import (
    EF21,
    Adaptive,
    CompressedUpdate,
    Feedback,
    Fixed,
    NoFeedback,
    compress_update,
)

KEY = Key(0)
STEPS = ([4.0, -3.0, 2.0, 1.0], [0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0])


def layout(size: int) -> Layout:
    return Layout((Entry("w", "", (size,), 0),))


def once(
    feedback: Feedback,
    compressor: Compressor,
    delta: Tensor,
    client_state,
    theta: float,
    budget: float = 0.2,
    key: Key = KEY,
) -> CompressedUpdate:
    return compress_update(
        feedback, compressor, delta, client_state, theta, budget, layout(len(delta)), key
    )


def run(decay: float) -> tuple[Tensor, Tensor]:
    """Three steps of the example with k = 2: all that was sent ``[3, 4]``, and the last e."""
    client_state = None
    sent = []
    for delta in STEPS:
        done = once(
            Fixed(decay), TopK(), torch.tensor(delta, dtype=torch.float64), client_state, 0.5
        )
        client_state = done.client_state
        sent.append(done.update)
    return torch.stack(sent), client_state["e"]


def test_without_decay_nothing_is_lost() -> None:
    """Sends (4,-3,0,0), then v = (0,1,3,2): (0,0,3,2), then (1,1,0,0): (1,1,0,0); e = 0, sum =
    (5,-2,3,2)."""
    sent, e = run(1.0)
    assert sent.tolist() == [[4, -3, 0, 0], [0, 0, 3, 2], [1, 1, 0, 0]]
    assert e.tolist() == [0, 0, 0, 0]
    assert sent.sum(0).tolist() == torch.tensor(STEPS).sum(0).tolist() == [5, -2, 3, 2]


def test_decay_loses_a_tenth_of_what_waits() -> None:
    """With b = .9: e = (0,0,1.8,.9), v = (0,1,2.8,1.9) sends the last two; e = (0,.9,0,0), v =
    (1,.9,0,0) sends both. Lost: .1 (0,0,2,1) + .1 (0,1,0,0) = (0,.1,.2,.1)."""
    sent, e = run(0.9)
    assert sent.numpy() == pytest.approx(
        np.array([[4, -3, 0, 0], [0, 0, 2.8, 1.9], [1, 0.9, 0, 0]])
    )
    lost = torch.tensor(STEPS, dtype=torch.float64).sum(0) - sent.sum(0) - e
    assert lost.tolist() == pytest.approx([0, 0.1, 0.2, 0.1])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.01, 0.2, 0.7, 1.0]),
    st.sampled_from(["topk", "random", "drop"]),
    st.booleans(),
)
def test_sent_and_kept_are_v_bit_for_bit(seed: int, theta: float, which: str, double: bool) -> None:
    rng = np.random.default_rng(seed)
    dtype = torch.float64 if double else torch.float32
    compressor = {"topk": TopK(), "random": RandomK(unbiased=False), "drop": TensorDrop()}[which]
    delta, e = (torch.from_numpy(rng.standard_normal(50)).to(dtype) for _ in range(2))
    before = e.clone()
    done = once(Fixed(1.0), compressor, delta, {"e": e}, theta, key=Key(seed))
    assert torch.equal(done.update + done.client_state["e"], delta + e)
    assert not (done.update * done.client_state["e"]).any()  # every coordinate is here or there
    assert torch.equal(e, before)  # a lost upload leaves the old memory
    decayed = once(Adaptive(), compressor, delta, {"e": e}, theta, budget=0.28, key=Key(seed))
    assert torch.allclose(decayed.client_state["e"], 0.9364 * done.client_state["e"])
    assert torch.equal(decayed.update, done.update)


def test_what_is_left_of_quantised_values_is_kept() -> None:
    """v = (0, -8, 0, 6): the norm is 10, one level: coins make of (-8, 6) two of {-10, 0, 10}; the
    rest waits."""
    v = torch.tensor([0.1, -8.0, 0.2, 6.0])
    done = once(Fixed(1.0), Chain(TopK(), QSGD(1, 0)), v, None, 0.5)
    assert set(done.update.abs().tolist()) <= {0.0, 10.0}
    assert torch.allclose(done.update + done.client_state["e"], v)
    # not 0, as the unquantized value would leave it
    assert done.client_state["e"][1] in (-8.0, 2.0)
    signs = once(Fixed(1.0), Signs(), v, None, 1.0)
    assert torch.allclose(signs.update + signs.client_state["e"], v)


def test_theta_one_leaves_nothing() -> None:
    delta = torch.tensor([1.0, -2.0, 3.0])
    for feedback in (Fixed(1.0), Adaptive()):
        done = once(feedback, TopK(), delta, {"e": torch.ones(3)}, 1.0, budget=1.0)
        assert torch.equal(done.update, delta + 1)
        assert not done.client_state["e"].any()
    assert once(NoFeedback(), Identity(), delta, None, 1.0).client_state == {}


def test_the_adaptive_decay() -> None:
    """b(t) = .85 + .12 (1 - theta_t): 1 -> .85, .28 -> .9364, .12 -> .9556;
    ``motley.selectors.hetero_select`` (b): t = 1, 2, 20, 51, 100."""
    assert [Adaptive().factor(x) for x in (1.0, 0.28, 0.12)] == pytest.approx(
        [0.85, 0.9364, 0.9556]
    )
    schedule = (1.0, 0.279960, 0.265894, 0.198731, 0.12)
    assert [Adaptive().factor(x) for x in schedule] == pytest.approx(
        [0.85, 0.936405, 0.938093, 0.946152, 0.9556], abs=1e-6
    )
    assert all(0.85 <= Adaptive().factor(x) <= 0.97 + 1e-15 for x in np.linspace(0, 1, 101))


def test_the_worked_memory_of_hetero_select() -> None:
    """``motley.selectors.hetero_select`` (c): {0, 1} are sent of v = (3, -2, 1, .5); e = .938093
    (0, 0, 1, .5) = (0, 0, .938093, .469046)."""
    done = once(Adaptive(), TopK(), torch.tensor([3.0, -2.0, 1.0, 0.5]), None, 0.5, budget=0.265894)
    assert done.client_state["e"].tolist() == pytest.approx([0, 0, 0.938093, 0.469046], abs=1e-6)


def test_the_client_s_theta_does_not_set_the_decay() -> None:
    delta = torch.tensor([3.0, 1.0, 1.0, 1.0])
    found = [
        once(Adaptive(), TopK(), delta, None, theta, budget=0.2).client_state["e"][3].item()
        for theta in (0.1, 0.7)
    ]
    assert found == pytest.approx([0.946, 0.946])


def test_ef21_walks_to_a_fixed_target() -> None:
    """Target (3, 1), kappa = 1, g = 0: (3, 0), (3, 1), (3, 1)."""
    client_state = None
    seen = []
    for _ in range(3):
        done = once(EF21(), TopK(), torch.tensor([3.0, 1.0]), client_state, 0.5)
        client_state = done.client_state
        seen.append(client_state["g"].tolist())
    assert seen == [[3, 0], [3, 1], [3, 1]]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 5, 20]))
def test_ef21_contracts(seed: int, kept: int) -> None:
    """||g+ - target||^2 <= (1 - kappa / N) ||g - target||^2, step by step."""
    rng = np.random.default_rng(seed)
    target, g = (torch.from_numpy(rng.standard_normal(20)) for _ in range(2))
    for _ in range(5):
        after = once(EF21(), TopK(), target, {"g": g}, kept / 20).client_state["g"]
        assert (
            float((after - target).square().sum())
            <= (1 - kept / 20) * float((g - target).square().sum()) + 1e-12
        )
        g = after


def test_ef21_s_server_holds_the_mean_of_all_clients_vectors() -> None:
    """Partial participation: the absent keep g and still count. With kappa = N and everybody there
    it is the mean of the updates."""
    rng = np.random.default_rng(3)
    clients = 4
    memories: list[dict[str, Tensor] | None] = [None] * clients
    mean = torch.zeros(6, dtype=torch.float64)
    for t in range(12):
        there = rng.permutation(clients)[:2] if t < 11 else range(clients)
        theta = 0.4 if t < 11 else 1.0
        changes = torch.zeros(6, dtype=torch.float64)
        deltas = []
        for k in there:
            delta = torch.from_numpy(rng.standard_normal(6))
            done = once(EF21(), TopK(), delta, memories[k], theta)
            memories[k] = done.client_state
            changes += done.update
            deltas.append(delta)
        mean = EF21().update_mean(mean, changes, clients)
        held = torch.stack(
            [torch.zeros(6, dtype=torch.float64) if m is None else m["g"] for m in memories]
        ).mean(0)
        assert torch.allclose(mean, held)
    assert torch.allclose(mean, torch.stack(deltas).mean(0))
    assert EF21.incremental
    assert not Fixed().incremental


def test_an_update_that_is_not_finite_poisons_nothing() -> None:
    client_state = {"e": torch.ones(3)}
    with pytest.raises(CodecError, match="not finite"):
        once(Fixed(1.0), TopK(), torch.tensor([1.0, float("nan"), 0.0]), client_state, 0.5)
    with pytest.raises(CodecError, match="not finite"):  # each is finite, their sum is not
        once(Fixed(1.0), TopK(), torch.full((3,), 3e38), {"e": torch.full((3,), 3e38)}, 0.5)
    assert client_state["e"].tolist() == [1, 1, 1]


def test_what_does_not_contract_is_refused() -> None:
    for compressor in (
        RandomK(),
        Signs("unit"),
        TensorDrop(rescale=True),
        Chain(RandomK(), QSGD()),
    ):
        for feedback in (Fixed(), Adaptive(), EF21()):
            assert feedback.refuses(compressor, 50)
        assert NoFeedback().refuses(compressor, 50) is None
    for compressor in (TopK(), RandomK(unbiased=False), Signs(), TensorDrop(), Identity(), QSGD()):
        assert Fixed().refuses(compressor, 50) is None


@pytest.mark.parametrize(
    ("compressor", "size", "enough"),
    [
        (FedPAQ(), 1000, 16),
        (QSGD(7), 1000, 12),
        (Chain(TopK(), FedPAQ(4)), 1000, 16),
        (QSGD(15), 1000, None),
        (QSGD(4, 63), 1000, None),
        (FedPAQ(16), 1000, None),
        (FedPAQ(4), 63, None),
    ],
)
def test_rounding_by_more_than_the_update_is_refused(
    compressor: Compressor, size: int, enough: int | None
) -> None:
    """N values have one norm and s levels: f (1 - f) <= 1/4, so the variance is at most
    N / (4 s^2) ||v||^2. From N = 4 s^2 on the residual of an update that is the same in all rounds
    grows. 4 * 16^2 = 1024 > 1000; 4 * 12^2 = 576 > 512."""
    delta = torch.ones(size)
    state: Mapping[str, Tensor] | None = None
    for number in range(30):
        state = once(Fixed(1.0), compressor, delta, state, 0.5, key=Key(number)).client_state
    assert state is not None
    assert (float(state["e"].norm() / delta.norm()) > 20) == (enough is not None)
    refused = Fixed().refuses(compressor, size)
    if enough is None:
        assert refused is None
    else:
        assert f"set levels = {enough} or more" in str(refused)


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match='for no error feedback: feedback = "none"'):
        Fixed(0.0)
    with pytest.raises(ConfigError, match=r"got low = 0\.9, high = 0\.8"):
        Adaptive(0.9, 0.8)


def test_curvature_and_memory_travel_together() -> None:
    two = Layout((Entry("a.w", "a", (2,), 0), Entry("b.w", "b", (2,), 2)))
    rule = TopK(criterion="curvature", layers=1)
    v = torch.tensor([3.0, -2.0, 1.0, 0.5])
    done = compress_update(
        Fixed(1.0), rule, v, None, 0.5, 0.2, two, KEY, {"a": torch.tensor([10.0, 1.0])}
    )
    assert done.packet.indices().tolist() == [1, 2]
    assert set(done.client_state) == {"e", "picked"}
    assert done.client_state["picked"].tolist() == [1.0, 1.0]
