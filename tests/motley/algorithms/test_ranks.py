"""Low-rank adapters of which clients hold fewer ranks: factors and products by hand, what must
coincide, and what is billed."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import motley
from benchmarks.gpu.experiments import ADAPTED, BASE, NEW
from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.fedavg import FedAvg
from motley.algorithms.ffa_lora import FFALoRA
from motley.algorithms.flexlora import Redistributed, refactored
from motley.algorithms.flora import RANKS, FLoRA, Stacking
from motley.algorithms.hetlora import HetLoRA, PrunedTraining, SizedAverage
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.lora_fedavg import LoRAFedAvg, MeasuredFactors
from motley.algorithms.parts import JobContext, Part, ServerContext, ServerState, Upload, aggregate
from motley.core.adapters import adapters_of, merged_of, ranked
from motley.core.errors import ConfigError, ModelError
from motley.experiments.build import build
from motley.tasks import from_clients, own_task
from motley.tasks.flat import construct, layout_of
from motley.tasks.initial_weights import check
from motley.tasks.merged import merging
from motley.tasks.task import ModelState
from motley.testing.algorithms import Adapted, Play, adapted, mlp, normed
from tests.rows import Rows


class Narrow(nn.Module):
    """An adapter of two ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.lora_A = nn.Linear(3, 2, bias=False)
        self.lora_B = nn.Linear(2, 3, bias=False)


def layout(rank: int, merged: bool = False) -> Any:
    """Return the layout of one adapter of two inputs, two outputs and a rank."""
    module = nn.Module()
    module.lora_A = nn.Linear(2, rank, bias=False)
    module.lora_B = nn.Linear(rank, 2, bias=False)
    if merged:
        module.register_buffer("merged_product", torch.zeros(2, 2))
    return ranked(layout_of(module))


def stepped(server: Any, rank: int, old: Any, *clients: Any) -> ServerState:
    """Return the server's state after a step from ``old`` (A, B) on (weight, A, B) of clients, who
    hold as many ranks as their factors have."""
    model = layout(rank, issubclass(server, Stacking))
    a, b = (torch.tensor(value).float() for value in old)
    x = torch.cat([a.reshape(-1), b.reshape(-1)])
    uploads = []
    for k, (weight, own_a, own_b) in enumerate(clients):
        one, other = (torch.tensor(value).float() for value in (own_a, own_b))
        after = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
        for into, value in zip(after, (one, torch.ones_like(one).bool()), strict=True):
            into[: 2 * rank].view(rank, 2)[: len(one)] = value
        for into, value in zip(after, (other, torch.ones_like(other).bool()), strict=True):
            into[2 * rank :].view(2, rank)[:, : len(one)] = value
        value, held = after
        part = Part((value - x) * held, "covered", None if held.all() else held)
        uploads.append(Upload({"delta": part}, weight, client=k))
    total = aggregate(Gather(), uploads, "weight")
    buffers = torch.zeros(sum(entry.size for entry in model.buffers))
    rule = server(layout=model)
    state = rule.init(ModelState(x, buffers, buffers[:0].long()), 9)
    return rule.update(state, total, ServerContext(model, 9, len(clients)))


def factors(state: ServerState, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B of a state of one adapter."""
    x = state.model.x
    return x[: 2 * rank].view(rank, 2), x[2 * rank :].view(2, rank)


NOTHING = [[0.5, 0.5]], [[0.0], [0.0]]
ONE = 3.0, [[1.0, 0.0]], [[1.0], [0.0]]
OTHER = 1.0, [[0.0, 1.0]], [[0.0], [1.0]]
"""Weights 3 and 1, products diag(1, 0) and diag(0, 1), whose mean is diag(.75, .25)."""


def test_the_mean_of_factors_is_not_the_factor_of_the_mean():
    """Factors (.75, .25) give ((.5625, .1875), (.1875, .0625)), off by .1875 in each of four
    places: .375 of sqrt(.625)."""
    state = stepped(MeasuredFactors, 1, NOTHING, ONE, OTHER)
    a, b = factors(state, 1)
    assert a.tolist() == [[0.75, 0.25]]
    assert b.tolist() == [[0.75], [0.25]]
    noted = MeasuredFactors().notes(state)
    assert noted == pytest.approx({"bias": 0.375 / 0.625**0.5})
    assert noted["bias"] == pytest.approx(0.474342, abs=1e-6)


def test_with_the_same_first_factor_there_is_no_bias():
    same = 1.0, ONE[1], OTHER[2]
    state = stepped(MeasuredFactors, 1, NOTHING, ONE, same)
    assert MeasuredFactors().notes(state)["bias"] == pytest.approx(0.0, abs=1e-12)


def test_a_product_of_one_rank_is_the_largest_singular_value_of_the_mean():
    a, b = factors(stepped(Redistributed, 1, NOTHING, ONE, OTHER), 1)
    assert a.tolist() == [[1.0, 0.0]]
    torch.testing.assert_close(b, torch.tensor([[0.75], [0.0]]))


def test_with_enough_ranks_the_product_is_the_mean_of_products():
    """Of clients who hold one rank and two: P = .75 ((1, 2), (0, 0)) + .25 ((3, 0), (1, 2))."""
    whole = 1.0, [[1.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [1.0, 2.0]]
    narrow = 3.0, [[1.0, 2.0]], [[1.0], [0.0]]
    old = [[1.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    a, b = factors(stepped(Redistributed, 2, old, narrow, whole), 2)
    torch.testing.assert_close(b @ a, torch.tensor([[1.5, 1.5], [0.25, 0.5]]))
    torch.testing.assert_close(a @ a.mT, torch.eye(2))
    sizes = b.square().sum(0)
    assert sizes[0] > sizes[1]


def test_ranks_that_the_mean_does_not_have_are_empty_and_can_learn():
    """One client of one rank, B A = ((0, 2), (0, 0)): the second column of B is 0, the second row
    of A stays, or both would have no gradient for ever."""
    old = [[0.5, 0.5], [0.25, -1.0]], [[9.0, 9.0], [9.0, 9.0]]
    client = 1.0, [[0.0, 1.0]], [[2.0], [0.0]]
    a, b = factors(stepped(Redistributed, 2, old, client), 2)
    assert a.tolist() == [[0.0, 1.0], [0.25, -1.0]]
    assert b.tolist() == [[2.0, 0.0], [0.0, 0.0]]


def test_the_product_of_a_stack_is_the_mean_of_products():
    """diag(.75, .25) of two ranks, and of ranks one and two the product that FlexLoRA keeps whole;
    the adapters are empty after it."""
    state = stepped(Stacking, 1, NOTHING, ONE, OTHER)
    assert state.model.buffers.tolist() == [0.75, 0.0, 0.0, 0.25]
    assert state.extra[RANKS].tolist() == [[2]]
    whole = 1.0, [[1.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [1.0, 2.0]]
    narrow = 3.0, [[1.0, 2.0]], [[1.0], [0.0]]
    old = [[1.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    state = stepped(Stacking, 2, old, narrow, whole)
    assert state.model.buffers.tolist() == [1.5, 1.5, 0.25, 0.5]
    assert state.extra[RANKS].tolist() == [[3]]
    assert not factors(state, 2)[1].any()


def test_a_rank_that_nobody_holds_stays_where_factors_are_averaged():
    old = [[0.5, 0.5], [0.1, -1.0]], [[0.0, 0.3], [0.0, 9.0]]
    a, b = factors(stepped(MeasuredFactors, 2, old, ONE, OTHER), 2)
    assert a[1].tolist() == torch.tensor(old[0])[1].tolist()
    assert b[:, 1].tolist() == torch.tensor(old[1])[:, 1].tolist()
    assert a[0].tolist() == [0.75, 0.25]


def test_the_sign_of_singular_vectors_is_fixed():
    b, a = torch.randn(4, 3).double(), torch.randn(3, 5).double()
    one, other = refactored(b, a), refactored(-b, -a)
    for mine, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(one[0] @ one[1], b @ a)


def test_a_slice_has_the_first_ranks_of_every_adapter_and_all_else():
    module = nn.Sequential(Adapted(3, 5), nn.LayerNorm(5))
    made = ranked(layout_of(module))
    rows = {name: [len(i) for i in index] for name, index in made.slices(0.3).items()}
    assert rows == {
        "0.lora_A.weight": [2, 3],
        "0.lora_B.weight": [5, 2],
        "1.weight": [5],
        "1.bias": [5],
    }
    assert made.slices(0.3)["0.lora_A.weight"][0].tolist() == [0, 1]
    assert [adapter.rank for adapter in adapters_of(made)] == [4]


def test_one_rank_for_all_is_fedavg_on_the_adapters():
    ends = []
    for method in (FedAvg(), LoRAFedAvg(), LoRAFedAvg(measure_bias=True)):
        loop = build(keys(method))
        while not loop.done:
            loop.step()
        ends.append(loop.state.server.model.x)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


def test_with_the_first_factor_frozen_the_product_is_the_mean_of_products():
    play = Play(FFALoRA(), "examples", SGD(lr=0.1))
    made = layout_of(construct(play.setting.task.model, 0))
    first = play.algorithm.local.start(play.algorithm.local.download(play.server), play.first)
    results = play.round(0, (2, 0, 5))
    after = play.algorithm.local.start(play.algorithm.local.download(play.server), play.first)
    sizes = {2: 13.0, 0: 7.0, 5: 11.0}
    for a, b in adapters_of(made):
        assert torch.equal(first.x[a.slice], after.x[a.slice])
        factor = first.x[a.slice].view(a.shape)
        mean = sum(
            sizes[one.client]
            * (first.x + play.algorithm.local.update(one.parts))[b.slice].view(b.shape)
            @ factor
            for one in results
        )
        torch.testing.assert_close(after.x[b.slice].view(b.shape) @ factor, mean / 31.0)
    assert play.server.model.x.numel() == 4 * 5 + 4 * 4


def test_factors_weigh_by_the_size_of_their_products():
    """Products of norms 3 and sqrt(2); the client of one rank is padded with zeros."""
    narrow = 99.0, [[1.0, 0.0]], [[3.0], [0.0]]
    whole = 1.0, [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]
    old = [[9.0, 9.0], [9.0, 9.0]], [[9.0, 9.0], [9.0, 9.0]]
    one, other = 3 / (3 + 2**0.5), 2**0.5 / (3 + 2**0.5)
    assert (one, other) == pytest.approx((0.679623, 0.320377), abs=1e-6)
    a, b = factors(stepped(SizedAverage, 2, old, narrow, whole), 2)
    torch.testing.assert_close(a, torch.tensor([[1.0, 0.0], [0.0, other]]))
    torch.testing.assert_close(b, torch.tensor([[3 * one + other, 0.0], [0.0, other]]))


def test_products_of_one_size_are_averaged_alike_and_ranks_of_nobody_stay():
    old = [[0.5, 0.5], [0.1, -1.0]], [[0.0, 0.3], [0.0, 9.0]]
    a, b = factors(stepped(SizedAverage, 2, old, ONE, OTHER), 2)
    assert a.tolist() == [[0.5, 0.5], torch.tensor(old[0])[1].tolist()]
    assert b.tolist() == [[0.5, torch.tensor(0.3).item()], [0.5, 9.0]]
    nothing = 1.0, ONE[1], [[0.0], [0.0]]
    a, b = factors(stepped(SizedAverage, 1, NOTHING, nothing, nothing), 1)
    assert (a.tolist(), b.tolist()) == ([[1.0, 0.0]], [[0.0], [0.0]])


def pruning(gamma: float, x: torch.Tensor, ranks: int = 2) -> tuple[Any, JobContext]:
    """Return the rule on one adapter of two ranks, and the job of a client that received x."""
    made = layout(2)
    rule = PrunedTraining(gamma=gamma, lam=0.1).bound(made)
    kept = {"ranks": torch.tensor([ranks])}
    return rule, JobContext(x, {"x": x}, kept, 1, 0.1, 9, 1.0, made)


def test_the_term_pulls_at_the_last_ranks_alone():
    """B = ((1, 2), (0, 0)), A = ((1, 0), (0, 3)): |B'| = 2, |A'| = 3, so 3 (1, 0) by B' and
    2 (0, 1) by A', times lam = .1, beside the gradient of the loss."""
    x = torch.tensor([1.0, 0.0, 0.0, 3.0, 1.0, 2.0, 0.0, 0.0])
    rule, job = pruning(0.5, x)
    (phase,) = rule.phases(job)
    loss = torch.arange(8.0)
    found = phase.direction(lambda at: loss, {"": x}, 0)
    term = torch.tensor([0.0, 0.0, 0.0, 0.2, 0.0, 0.3, 0.0, 0.0])
    torch.testing.assert_close(found, loss + term)
    assert loss.tolist() == list(range(8))
    x = torch.tensor([1.0, 0.0, 0.0, 3.0, 1.0, 0.0, 0.0, 0.0])
    assert torch.equal(phase.direction(lambda at: loss, {"": x}, 0), loss)


def test_ranks_that_became_smaller_are_let_go_of():
    """|B'| |A'| was 6; a client that ends with 2 x 2 holds one rank from now on, one that ends with
    3 x 2 the two that it had."""
    x = torch.tensor([1.0, 0.0, 0.0, 3.0, 1.0, 2.0, 0.0, 0.0])
    rule, job = pruning(0.5, x)
    none = torch.zeros(0)
    for last, ranks, held in ((2.0, 1, [1, 1, 0, 0, 1, 0, 1, 0]), (3.0, 2, None)):
        after = torch.tensor([1.0, 0.0, 0.0, last, 1.0, 2.0, 0.0, 0.0])
        parts, kept = rule.finish(ModelState(after, none, none.long()), job)
        assert kept["ranks"].tolist() == [ranks]
        found = parts["delta"].held
        assert (None if found is None else found.int().tolist()) == held
        assert rule.held_share(kept) == ranks / 2
    rule, job = pruning(1.0, x)
    assert rule.finish(ModelState(0 * x, none, none.long()), job)[0]["delta"].held is None
    assert rule.initial_state(ModelState(x, none, none.long())) is None


def test_who_let_go_of_ranks_is_billed_for_what_is_left():
    """Everybody begins with 80 numbers of four ranks, and of gamma = .5 with two after a pruning:
    with a term that strong nobody keeps more than one for long."""
    local = {"steps": 4, "batch_size": 4, "optimizer": {"lr": 0.1}}
    loop = build(keys(PRUNING, 2, cohort=2, stop={"rounds": 6}, local=local))
    shares = []
    while not loop.done:
        held = loop.examining.widths(loop.state)
        before = [loop.state.ledger.total(kind, way) for kind, way in BOTH]
        loop.step()
        after = [loop.state.ledger.total(kind, way) for kind, way in BOTH]
        down, up = (end - begin for begin, end in zip(before, after, strict=True))
        assert down == 32 * 80 * held.sum()
        assert up > down  # headers
        shares.append(held.tolist())
        kept = loop.state.clients.client_states
        assert loop.examining.widths(loop.state).tolist() == [
            int(kept[k]["ranks"]) / 4 for k in (0, 1)
        ]
    assert shares[0] == [1.0, 1.0]
    assert max(shares[-1]) < 1.0
    assert all(now <= then for a, b in pairwise(shares) for then, now in zip(a, b, strict=True))
    paper = sum(32 * 80 * sum(held) for held in shares)
    assert loop.state.ledger.paper_bits == paper


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, r"got gamma = 0.0; expected a share in \(0, 1\]"),
        ({"gamma": 1.5}, "got gamma = 1.5; expected a share"),
        ({"lam": -1.0}, "got lam = -1.0; expected a finite number of at least 0"),
        ({"lam": float("nan")}, "got lam = nan"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        HetLoRA(**options)


def test_one_client_merges_the_model_that_it_trained():
    """With a stack of one client the model is that client's; FedAvg ends with the same."""
    outputs = []
    for method in (LoRAFedAvg(), FLoRA()):
        play = Play(method, "examples", SGD(lr=0.1))
        play.round(0, (3,))
        network = play.context(1, [3]).network
        assert network is not None
        outputs.append(network.outputs(play.server.model, play.setting.task.federation.x[:9]))
    torch.testing.assert_close(*outputs)
    fresh = play.server.model.x
    for a, b in adapters_of(play.setting.task.layout):
        assert not fresh[b.slice].any()
        assert fresh[a.slice].any()


def test_every_round_begins_with_adapters_of_its_own_and_earlier_ones_stay_merged():
    play = Play(FLoRA(), "examples", SGD(lr=0.1))
    a = adapters_of(play.setting.task.layout)[0].a.slice
    seen = [play.server.model.x[a]]
    products = [play.server.model.buffers]
    for number in range(3):
        play.round(number, (2, 0, 5))
        seen.append(play.server.model.x[a])
        products.append(play.server.model.buffers)
    assert all(not torch.equal(seen[i], seen[j]) for i in range(4) for j in range(i))
    assert [int((p != 0).any()) for p in products] == [0, 1, 1, 1]
    product = merged_of(play.setting.task.layout)[0]
    ranks = [torch.linalg.matrix_rank(p[product.slice].view(product.shape)) for p in products]
    # widths .25, 1 and .25 of four ranks: six ranks a round, of a layer of five units
    assert [int(rank) for rank in ranks] == [0, 5, 5, 5]


class Scaled(Adapted):
    """An adapter whose product is scaled, as those of ``peft`` are."""

    def forward(self, x):
        return self.frozen(x) - 0.5 * self.lora_B(self.lora_A(x))


class Bent(Adapted):
    """A layer that is no sum of a frozen layer and a product."""

    def forward(self, x):
        return self.frozen(x) + self.lora_B(self.lora_A(x)).tanh()


def test_a_product_is_merged_with_the_scale_of_its_layer():
    module = merging(partial(Scaled, 3, 5))
    assert module.merged_scale == -0.5
    torch.manual_seed(0)
    nn.init.normal_(module.lora_B.weight)
    x = torch.randn(7, 3)
    trained = module(x)
    module.merged_product = module.lora_B.weight.detach() @ module.lora_A.weight.detach()
    nn.init.zeros_(module.lora_B.weight)
    torch.testing.assert_close(module(x), trained)


def test_a_layer_whose_product_cannot_be_merged_is_refused():
    with pytest.raises(ModelError, match=r"'0' does not add s B A x .* algorithm = .flexlora"):
        merging(lambda: nn.Sequential(Bent(3, 5)))


BOTH = ("model", "down"), ("upload", "up")
PRUNING = {"name": "hetlora", "gamma": 0.5, "lam": 3.0}
WITHOUT_PRUNING = {"name": "hetlora", "gamma": 1.0}


def network() -> nn.Module:
    return adapted(mlp)


def clients(count: int) -> list[Any]:
    """Return the samples of clients, of six inputs and four classes."""
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(12 + k, 6)).astype(np.float32), np.arange(12 + k) % 4)
        for k in range(count)
    ]


def normed_task() -> Any:
    return own_task(from_clients(clients(6), test_fraction=0.25), partial(adapted, normed))


def keys(method: Any, count: int = 6, **more: Any) -> dict[str, Any]:
    """Return an experiment of clients on a model with adapters of rank 4, 4 (6 + 5) + 4 (5 + 4)
    = 80 numbers."""
    return {
        "task": own_task(from_clients(clients(count), test_fraction=0.25), network),
        "algorithm": method,
        "cohort": 3,
        "stop": {"rounds": 2},
        "local": {"epochs": 2, "batch_size": 4, "optimizer": {"lr": 0.3}},
        "engine": "sequential",
        **more,
    }


def test_weights_are_refused_where_there_is_nothing_that_they_would_weigh():
    """HetLoRA weighs factors by the size of their products; BatchNorm statistics by ``weights``."""
    with pytest.raises(ConfigError, match=r'got "uniform", and HetLoRA weighs.*leave weights out'):
        build(keys("hetlora", weights="uniform"))
    for given in (keys("hetlora", weights="examples"), keys("hetlora")):
        build(given).engine.close()
    build({**keys("hetlora", weights="uniform"), "task": normed_task()}).engine.close()


@pytest.mark.parametrize("method", ["lora_fedavg", "flexlora", "flora", WITHOUT_PRUNING])
def test_what_travels_is_what_is_billed(method):
    """Of rank 4 a share of .5 is two ranks, 40 numbers; clients of all, half and a quarter."""
    capacity = {"name": "levels", "levels": [1.0, 0.5, 0.25]}
    loop = build(keys(method, capacity=capacity))
    widths = loop.examining.widths(loop.state)
    assert len(set(widths.tolist())) > 1
    seen = []
    train = loop.engine.train

    def watched(jobs, download, states, want=frozenset()):
        for result in train(jobs, download, states, want):
            held = result.parts["delta"].held
            seen.append(80 if held is None else int(held.sum()))
            assert seen[-1] == 80 * widths[result.client]
            yield result

    loop.engine.train = watched
    while not loop.done:
        loop.step()
    assert loop.state.ledger.paper_bits == 32 * sum(seen)
    assert len(seen) == 6
    if method != "flora":
        sent = loop.state.ledger.total("model", "down")
        assert sent == 32 * sum(seen)


@pytest.mark.parametrize("method", ["lora_fedavg", "flexlora", "flora", PRUNING])
def test_the_chosen_hold_ranks_by_their_scores(method):
    """The best of three is given all ranks, the others a half and a quarter: 80, 40 and 20
    numbers, less where a client can hold no more, or let go of ranks."""
    within = {"name": "levels", "levels": [1.0, 0.25], "weights": [3.0, 1.0]}
    capacity = {"name": "by_score", "levels": [1.0, 0.5, 0.25], "within": within}
    rows = Rows()
    # without the value nobody is probed, so nobody holds the model before the choice
    selector = {"name": "hetero_select", "w_value": 0.0, "w_direction": 0.0}
    more = {"selector": selector, "capacity": capacity, "stop": {"rounds": 4}}
    loop = build(keys(method, **more), writer=rows)
    can = loop.examining.widths(loop.state)
    assert set(can) == {1.0, 0.25}
    seen = []
    train = loop.engine.train

    def watched(jobs, download, states, want=frozenset()):
        for result in train(jobs, download, states, want):
            sent = result.parts["delta"].held
            seen[-1][result.client] = 80 if sent is None else int(sent.sum())
            yield result

    loop.engine.train = watched
    limited = set()
    while not loop.done:
        can = loop.examining.widths(loop.state)
        seen.append({})
        loop.step()
        row = rows.tables["clients"][-1]
        of = dict(zip(row["client"].tolist(), row["score"].tolist(), strict=True))
        best = sorted(of, key=lambda k: (-of[k], k))
        given = {k: min(can[k], share) for k, share in zip(best, (1, 0.5, 0.25), strict=True)}
        limited |= {given[k] == can[k] for k in best}
        if method is not PRUNING:
            assert seen[-1] == {k: 80 * share for k, share in given.items()}
        bits = dict(zip(row["client"].tolist(), row["bits_up"].tolist(), strict=True))
        heads = {bits[k] - 32 * 80 * given[k] for k in best}
        assert len(heads) == 1
        assert row["width"].tolist() == [given[k] for k in row["client"].tolist()]
        if method != "flora":
            assert row["bits_down"].tolist() == [32 * 80 * given[k] for k in row["client"].tolist()]
    assert limited == {True, False}


def test_a_client_is_sent_the_stacks_that_it_missed():
    """Of one client of one rank a stack has 6 + 5 and 5 + 4 numbers, and the products of the two
    layers have 30 and 20: who missed one stack is sent 20 numbers, who missed two 22 + 18, who
    missed three or more the products' 50. In round 1 nothing is merged, and fresh adapters do not
    travel."""
    sent = {0: 0, 1: 20, 2: 40, 3: 50, 4: 50, 5: 50}
    capacity = {"name": "constant", "width": 0.25}
    loop = build(keys("flora", cohort=1, stop={"rounds": 6}, capacity=capacity))
    last = dict.fromkeys(range(6), 0)
    seen = set()
    for number in range(6):
        before = loop.state.ledger.total("model", "down")
        loop.step()
        kept = loop.state.clients.client_states
        (asked,) = (k for k in kept if int(kept[k]["merged"]) == number)
        missed = number - last[asked]
        last[asked] = number
        seen.add(missed)
        assert loop.state.ledger.total("model", "down") - before == 32 * sent[missed]
        assert loop.state.server.extra[RANKS].tolist() == [[1, 1]] * (number + 1)
    assert len(seen) > 2


def test_who_takes_part_in_every_round_is_sent_the_newest_stack_alone():
    """Of two clients of one rank a stack has 22 and 18 numbers, two rounds have one to send."""
    capacity = {"name": "constant", "width": 0.25}
    loop = build(keys("flora", 2, cohort=2, stop={"rounds": 3}, capacity=capacity))
    while not loop.done:
        loop.step()
    assert loop.state.ledger.total("model", "down") == 2 * 2 * 32 * (22 + 18)


def test_by_deadline_a_client_holds_the_ranks_with_which_its_round_ends_in_time():
    """Two steps of .8 s on 130 weights with all ranks, 90 / 130 and 70 / 130 of it with half and a
    quarter; 80, 40 and 20 numbers up at 1,000 bits a second and down at twice that: 1.6 + 2.56 +
    1.28, 1.107692 + 1.28 + .64 and .861538 + .64 + .32 s. Who is late with the least holds it."""
    ends = 5.44, 3.027692, 1.821538
    slow = {"name": "uniform", "up_mbps": [1e-3, 1e-3], "down_mbps": [2e-3, 2e-3]}
    for seconds, width in (
        (ends[0] + 1e-5, 1.0),
        (ends[0] - 1e-5, 0.5),
        (ends[1] + 1e-5, 0.5),
        (ends[1] - 1e-5, 0.25),
        (1.0, 0.25),
    ):
        capacity = {"name": "by_deadline", "seconds": seconds, "levels": [1.0, 0.5, 0.25]}
        loop = build(
            keys(
                "flexlora",
                capacity=capacity,
                device={"name": "constant", "seconds": 0.8},
                network=slow,
                local={"steps": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
            )
        )
        assert loop.examining.widths(loop.state).tolist() == [width] * 6
    took = loop.step().time_s
    headers = loop.state.ledger.total("upload", "up") / 3 - 32 * 20
    assert took == pytest.approx(ends[2] + headers / 1000, abs=1e-5)


def test_by_deadline_a_client_holds_no_more_than_another_capacity_lets_it():
    """In time for half of the ranks, as above; who has memory for a quarter holds a quarter."""
    in_time = {"name": "by_deadline", "seconds": 5.0, "levels": [1.0, 0.5, 0.25]}
    more = {
        "selector": {"name": "hetero_select", "w_value": 0.0, "w_direction": 0.0},
        "device": {"name": "constant", "seconds": 0.8},
        "network": {"name": "uniform", "up_mbps": [1e-3, 1e-3], "down_mbps": [2e-3, 2e-3]},
        "local": {"steps": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
    }

    def held(capacity: Any) -> list[float]:
        loop = build(keys("flexlora", capacity=capacity, **more))
        assert loop.backend.holding.listed == (1.0, 0.5, 0.25)
        widths: list[float] = loop.examining.widths(loop.state).tolist()
        return widths

    drawn = {"name": "levels", "levels": [1.0, 0.5, 0.25], "weights": [1.0, 0.0, 1.0]}
    assert held(in_time) == [0.5] * 6
    both = held({**in_time, "within": drawn})
    assert both == [min(0.5, share) for share in held(drawn)]
    assert set(both) == {0.5, 0.25}
    assert held({"name": "by_score", "levels": [1.0], "within": {**in_time, "within": drawn}}) == (
        both
    )
    little = {"name": "by_memory", "low": 1e-6, "high": 1e-6}
    with pytest.raises(ConfigError, match="client 0 has 1e-06 MB"):
        build(keys("flexlora", capacity={**in_time, "within": little}, **more))


def test_by_deadline_does_not_count_what_flora_has_merged():
    """As above, whose products stay with the clients."""
    held = [
        build(
            keys(
                name,
                capacity={"name": "by_deadline", "seconds": 3.1, "levels": [1.0, 0.5, 0.25]},
                device={"name": "constant", "seconds": 0.8},
                network={"name": "uniform", "up_mbps": [1e-3, 1e-3], "down_mbps": [2e-3, 2e-3]},
                local={"steps": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
            )
        )
        for name in ("flexlora", "flora")
    ]
    assert [loop.examining.widths(loop.state).tolist() for loop in held] == [[0.5] * 6] * 2


def test_flora_begins_with_adapters_that_change_nothing():
    model = layout(1, True)
    x = torch.tensor([0.5, 0.5, 0.0, 1.0])
    with pytest.raises(ModelError, match="flora begins with adapters that change nothing"):
        Stacking(layout=model).init(ModelState(x, torch.zeros(4), torch.zeros(0).long()), 9)


def test_a_product_is_not_merged_beside_a_weight_of_two_places():
    def tied() -> nn.Module:
        module = nn.Sequential(Adapted(3, 3), nn.Linear(3, 3))
        module[1].weight = module[0].frozen.weight
        return module

    with pytest.raises(ModelError, match="weight of the layer '0' is used in another place"):
        merging(tied)


def test_hetlora_prunes_adapters_of_one_rank():
    unequal = ranked(layout_of(nn.Sequential(Adapted(3, 3), Adapted(3, 3), Narrow())))
    with pytest.raises(ModelError, match=r"have \[2, 4\] ranks; give all one rank, or write gamma"):
        PrunedTraining().bound(unequal)
    assert PrunedTraining(gamma=1.0).bound(unequal).layout == unequal


def test_what_flora_merged_is_no_start_for_adapters():
    weights = {"0.merged_product": torch.zeros(3, 3)}
    with pytest.raises(ModelError, match="has products that flora merged, which no init loads"):
        check(nn.Sequential(Adapted(3, 3)), weights, ["*"], strict=False, source="run")


def test_a_deadline_needs_links_that_are_known_before():
    capacity = {"name": "by_deadline", "seconds": 3.0}
    with pytest.raises(ConfigError, match="network: its links follow the clients' losses"):
        build(keys("flexlora", capacity=capacity, network="inverted"))


def test_a_probe_sends_what_the_client_lacks():
    """In round 2 each candidate lacks one stack of one rank, 20 numbers, or has it; who is then
    asked holds the newest model and is sent nothing."""
    more = {"cohort": 1, "stop": {"rounds": 2}, "capacity": {"name": "constant", "width": 0.25}}
    loop = build(keys("flora", selector={"name": "power_of_choice", "d": 6}, **more))
    while not loop.done:
        loop.step()
    ledger = loop.state.ledger
    assert ledger.total("probe", "down") == 6 * 32 * 20
    assert ledger.total("model", "down") == 0
    assert ledger.total("probe", "up") == 2 * 6 * 32


def test_new_clients_are_sent_all_that_was_merged(tmp_path):
    """Two clients that no round asked; the product of 5 inputs and 3 outputs has 15 numbers, fewer
    than the stacks of two rounds."""
    more = {**ADAPTED, **NEW, "algorithm": "flora", "engine": {"name": "sequential"}}
    run = motley.run({**BASE, **more}, out=tmp_path / "run")
    seen = run.tables["evaluations"].to_pydict()
    last = run.column("rounds", "total_bits")[-1]
    sent = {
        bits - last
        for bits, scope in zip(seen["total_bits"], seen["scope"], strict=True)
        if scope.startswith("new_")
    }
    assert sent == {2 * 32 * 15}


@pytest.mark.parametrize("method", ["flora", PRUNING])
def test_a_run_goes_on_with_what_was_merged_and_pruned(method):
    local = {"steps": 4, "batch_size": 4, "optimizer": {"lr": 0.1}}
    loops = [build(keys(method, stop={"rounds": 5}, local=local)) for _ in range(2)]
    for _ in range(3):
        loops[0].step()
    loops[1].state.restore(loops[0].state.save())
    for loop in loops:
        while not loop.done:
            loop.step()
    one, other = (loop.state for loop in loops)
    assert torch.equal(one.server.model.x, other.server.model.x)
    assert torch.equal(one.server.model.buffers, other.server.model.buffers)
    assert one.server.extra.keys() == other.server.extra.keys()
    assert one.ledger.total_bits == other.ledger.total_bits
    widths = [loop.examining.widths(loop.state) for loop in loops]
    assert np.array_equal(*widths)
    assert method == "flora" or widths[0].min() < 1.0


def test_a_model_without_adapters_is_refused():
    for method in (
        "lora_fedavg",
        "flexlora",
        "ffa_lora",
        "fedsa_lora",
        "flora",
        "fedex_lora",
        "hetlora",
    ):
        with pytest.raises(ModelError, match=r'no low-rank adapters, .* task = \{ name = "hf"'):
            build(
                {
                    "task": {"name": "image", "data": "digits"},
                    "population": 5,
                    "cohort": 2,
                    "stop": {"rounds": 1},
                    "algorithm": method,
                }
            )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"algorithm": "ffa_lora", "capacity": {"name": "constant", "width": 0.5}},
            "under 'ffa_lora' clients train the whole model",
        ),
        ({"aggregator": "median"}, "Median works on whole updates"),
        ({"server": "adam"}, "ServerAdam would move coordinates that nobody trained"),
        ({"compressor": "qsgd"}, "uploads cover part of the model"),
        ({"algorithm": "flexlora", "synchrony": "buffered"}, "a late update changes the factors"),
        (
            {"algorithm": "flora", "task": normed_task(), "recalibrate": {"clients": 2}},
            "under 'flora' buffers are merged products, too",
        ),
        ({"algorithm": "hetlora", "synchrony": "buffered"}, "a late update changes the factors"),
        (
            {"algorithm": "hetlora", "evaluate": {"diagnostics": True}},
            "diagnostics compare the gradients of all clients at one model",
        ),
        ({"algorithm": "flora", "synchrony": "buffered"}, "a late update changes the factors"),
    ],
)
def test_parts_that_do_not_fit_are_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        build({**keys("lora_fedavg"), **more})


def test_by_speed_a_step_of_fewer_ranks_takes_what_its_operations_say():
    """A sample passes 6 x 5 + 5 x 4 = 50 frozen weights and 80 of adapters, 40 with half of the
    ranks: a step takes 90 / 130 = .69 of the time, not a quarter. So of .8 s a step .5 s are too
    long with either, and .6 s are enough for half of the ranks."""
    for step_s, width in ((0.6, 0.5), (0.5, 0.25), (0.81, 1.0)):
        capacity = {"name": "by_speed", "step_s": step_s, "levels": [1.0, 0.5, 0.25]}
        loop = build(
            keys("flexlora", capacity=capacity, device={"name": "constant", "seconds": 0.8})
        )
        assert loop.examining.widths(loop.state).tolist() == [width] * 6
        assert loop.setting.work_share(0.5) == pytest.approx(90 / 130)
