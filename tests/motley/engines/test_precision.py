"""Matrix products and convolutions in bfloat16, everything around them in float32, on every
engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from motley.algorithms.ditto import OwnModel
from motley.algorithms.fedprox import Proximal
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.moon import ContrastiveLoss, PreviousModel
from motley.algorithms.parts import GradientCorrection, LocalRule
from motley.core.errors import ContractError
from motley.core.keys import Key
from motley.engines import stacked
from motley.engines.batched import Batched, Vmap
from motley.engines.local import Debug, Sequential, Threads
from motley.tasks import precision
from motley.tasks.flat import FlatNetwork
from motley.tasks.models import MODELS as ZOO
from motley.tasks.precision import products, slower, uncomputable, widened
from motley.tasks.task import ModelState

from .conftest import TwoProcesses
from .test_engines_agree import ACCEPTS, SOLVERS, normed, tanh
from .test_engines_agree import MODELS as SMALL

EPSILON = 2.0**-8
"""Distance between neighbouring numbers of bfloat16, as a share: it keeps 8 bits."""


def mlp():
    """Return layers that are wide enough for ``batched`` to compute them in bfloat16, and one that
    is not."""
    return nn.Sequential(
        nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 20, bias=False), nn.ReLU(), nn.Linear(20, 4)
    )


MODELS = {**SMALL, "mlp": (mlp, (6,))}
CLIENT_BY_CLIENT = (Debug, Threads)
"""Engines with the operations of the reference, so with its bits."""


def half(setting, *args, **options):
    """Return a setting in bfloat16."""
    return replace(setting(*args, **options, dtype=torch.float32), precision="bfloat16")


def trained(engine, setting, work, sent, states=None):
    made = engine(setting)
    found = list(
        made.train(
            work, sent, states or {}, frozenset({"loss_rms", "update_norm", "max_grad_norm"})
        )
    )
    made.close()
    return found


def distance(a, b):
    """Return how far two updates lie apart, as a share of the first's length."""
    one, two = (result.parts["delta"].value for result in (a, b))
    return float((one - two).norm() / one.norm())


PAIRS = [
    (engine, model)
    for engine, models in {**ACCEPTS, Debug: tuple(MODELS)}.items()
    for model in models
]


@pytest.mark.parametrize(("engine", "model"), PAIRS)
@pytest.mark.parametrize("solver", ["plain", "momentum"])
def test_engines_agree_to_a_few_roundings(setting, jobs, download, engine, model, solver):
    """Engines that train client by client have the reference's bits. Others round the same products
    in another order; over up to ten steps with the large rate of 0.1, updates stay within 16
    roundings (6 %) of the reference's, or of those in float32: where an input of a ReLU lies within
    rounding of 0, one of the two in bfloat16 is on its other side."""
    s = half(setting, *MODELS[model], solver=SOLVERS[solver][0], local=Proximal(0.3), threads=2)
    sent = download(s)
    work = jobs(s)
    exact = trained(Sequential, replace(s, precision="float32"), work, sent)
    for a, b, c in zip(
        trained(Sequential, s, work, sent), trained(engine, s, work, sent), exact, strict=True
    ):
        if engine in CLIENT_BY_CLIENT:
            assert all(torch.equal(a.parts[name].value, b.parts[name].value) for name in a.parts)
            assert b.signals == pytest.approx(a.signals, rel=1e-12, nan_ok=True)
        elif a.steps:
            assert min(distance(a, b), distance(c, b)) < 16 * EPSILON
            assert b.signals["loss"] == pytest.approx(a.signals["loss"], rel=4 * EPSILON)


@pytest.mark.parametrize(
    "cut", [1, None], ids=["fewer samples than the clients have", "all samples"]
)
def test_a_stack_adds_offset_and_proximal_term_to_its_float32_weights(setting, jobs, download, cut):
    """Offsets of 0.1 everywhere and a proximal term move the weights as they do client by
    client."""

    class Both(LocalRule):
        def correction(self, context):
            return GradientCorrection(0.5, torch.full_like(context.x, 0.1))

    s = half(setting, mlp, local=Both(), threads=1)
    sent = download(s)
    work = jobs(s, cut=cut)
    for a, b in zip(
        trained(Sequential, s, work, sent), trained(Batched, s, work, sent), strict=True
    ):
        assert distance(a, b) < 4 * EPSILON


@pytest.mark.parametrize("engine", [Sequential, Batched, Vmap])
def test_training_is_near_that_in_float32_and_not_the_same(setting, jobs, download, engine):
    s = half(setting, mlp, threads=1)
    sent = download(s)
    work = jobs(s, cut=1)
    whole = trained(engine, replace(s, precision="float32"), work, sent)
    for a, b in zip(whole, trained(engine, s, work, sent), strict=True):
        if a.steps:
            assert 0.0 < distance(a, b) < 16 * EPSILON


@pytest.mark.parametrize("engine", [Sequential, Threads, Batched, Vmap, TwoProcesses])
def test_the_same_bits_twice(setting, jobs, download, engine):
    s = half(setting, mlp, solver=SOLVERS["adam"][0], threads=2)
    sent = download(s)
    work = jobs(s)
    for a, b in zip(trained(engine, s, work, sent), trained(engine, s, work, sent), strict=True):
        assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)


class Products(TorchDispatchMode):
    """Records the types of the operands of products and convolutions, and of what the loss sees."""

    def __init__(self):
        super().__init__()
        self.types: set[torch.dtype] = set()
        self.losses: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward"):
            self.types |= {
                value.dtype for value in args if isinstance(value, torch.Tensor) and value.dim() > 1
            }
        if name == "_log_softmax":
            self.losses.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["mlp", "conv", "normed", "tanh"])
def test_products_are_in_bfloat16_and_losses_in_float32(setting, jobs, download, name):
    s = half(setting, *MODELS[name])
    engine = Sequential(s)
    sent = download(s)
    seen = Products()
    with seen:
        list(engine.train(jobs(s)[:2], sent, {}))
        engine.evaluate(ModelState(**sent), np.arange(5))
        engine.measure(np.arange(3), sent, {}, {"loss": None, "gradient": None}, Key(0))
    assert seen.types == {torch.bfloat16}
    assert seen.losses == {torch.float32}


def test_products_of_stacks_are_in_bfloat16_but_for_thin_layers(
    setting, jobs, download, monkeypatch
):
    seen = []
    for name in ("bmm", "baddbmm"):
        real = getattr(torch, name)
        monkeypatch.setattr(
            stacked.torch, name, lambda *a, real=real, **k: seen.append(a) or real(*a, **k)
        )
    s = half(setting, mlp, threads=1)
    trained(Batched, s, jobs(s), download(s))
    thin = [args for args in seen if any(4 in t.shape[1:] for t in args)]
    wide = [args for args in seen if not any(4 in t.shape[1:] for t in args)]
    assert {t.dtype for args in thin for t in args} == {torch.float32}
    assert {t.dtype for args in wide for t in args} == {torch.bfloat16}


@pytest.mark.parametrize("engine", [Sequential, Threads, Batched, Vmap])
@pytest.mark.parametrize("solver", ["plain", "momentum", "adam"])
def test_weights_gradients_and_solver_state_stay_float32(
    setting, jobs, download, monkeypatch, engine, solver
):
    solved = SOLVERS[solver][0]
    seen = []
    real = type(solved).step

    def step(self, blocks, *rest):
        seen.extend(t.dtype for block in blocks for t in block if t is not None)
        return real(self, blocks, *rest)

    monkeypatch.setattr(type(solved), "step", step)
    s = half(setting, mlp, solver=solved, local=OwnModel(0.5), threads=1)
    whole = ModelState(**download(s))
    bound = s.algorithm.local
    sent = bound.download(s.algorithm.server.init(bound.sent(whole), 8))
    found = trained(engine, s, jobs(s), sent, {k: bound.initial_state(whole) for k in range(8)})
    kept = [
        value
        for one in found
        for value in (*(part.value for part in one.parts.values()), *one.client_state.values())
    ]
    assert {t.dtype for t in kept if t.is_floating_point()} == {torch.float32}
    assert set(seen) <= {torch.float32}
    assert seen or (engine is Batched and solver == "plain")  # which adds to the weights itself


@pytest.mark.parametrize("chosen", ["float32", "bfloat16"])
@pytest.mark.parametrize("engine", [Sequential, Threads, Batched, Vmap])
def test_the_caller_s_autocast_changes_nothing(setting, jobs, download, engine, chosen):
    """torch's autocast belongs to a thread: results must not depend on which thread computes
    them."""
    s = replace(setting(mlp, dtype=torch.float32, threads=2), precision=chosen)
    sent = download(s)
    want = {"loss": None, "gradient": None}

    def results():
        made = engine(s)
        uploads = [one.parts["delta"].value for one in made.train(jobs(s), sent, {})]
        numbers = [
            made.evaluate(ModelState(**sent), np.arange(9))["loss"],
            *made.measure(np.arange(3), sent, {}, want, Key(0)).values(),
        ]
        made.close()
        return uploads, numbers

    before = results()
    with torch.autocast("cpu", torch.bfloat16):
        inside = results()
        assert torch.is_autocast_enabled("cpu")
    assert all(torch.equal(a, b) for a, b in zip(before[0], inside[0], strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(before[1], inside[1], strict=True))


def test_features_are_compared_in_float32(setting, jobs, download):
    s = half(
        setting, normed, (1, 6, 6), loss=ContrastiveLoss(CrossEntropy()), local=PreviousModel()
    )
    sent = download(s)
    seen = []
    engine = Sequential(s)
    real = engine.client.received.features
    engine.client.received.features = lambda: seen.append(real()) or seen[-1]
    assert all(one.finite for one in engine.train(jobs(s), sent, {}))
    assert {value.dtype for value in seen} == {torch.float32}


@pytest.mark.parametrize("name", ["leaf_lstm", "transformer"])
def test_models_of_sequences_are_near_float32(name):
    torch.manual_seed(0)
    module = ZOO.build(name).build((20,), 30)
    x = torch.randint(0, 30, (4, 20))
    if uncomputable("bfloat16", "cpu", module) is not None:  # what is refused is what fails
        with (
            pytest.raises(RuntimeError, match="primitive"),
            products("bfloat16", "cpu"),
            torch.no_grad(),
        ):
            module(x)
        return
    with torch.no_grad():
        whole = module(x)
        with products("bfloat16", "cpu"):
            rounded = module(x)
    assert rounded.dtype == torch.bfloat16
    assert float((widened(rounded) - whole).norm() / whole.norm()) < 4 * EPSILON


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(9), nn.GroupNorm(3, 9), nn.Softmax(-1), nn.LogSoftmax(-1)]
)
def test_normalisation_and_softmax_are_computed_in_float32(layer):
    with products("bfloat16", "cpu"):
        hidden = nn.Linear(4, 9)(torch.randn(3, 4))
        assert hidden.dtype == torch.bfloat16
        assert layer(hidden).dtype == torch.float32
    assert layer(hidden.float()).dtype == torch.float32


def test_a_network_of_a_server_rule_computes_in_the_run_s_precision():
    network = FlatNetwork(tanh, precision="bfloat16")
    state = network.flat.state()
    x = torch.randn(5, 6)
    seen = Products()
    with seen:
        assert network.outputs(state, x).dtype == torch.float32
        assert (
            network.loss_gradient(state, x, lambda out: out.square().sum()).gradient.dtype
            == torch.float32
        )
    assert seen.types == {torch.bfloat16}


def test_float64_weights_are_refused(setting):
    with pytest.raises(
        ContractError, match=r"precision bfloat16 needs weights of torch.float32, got torch.float64"
    ):
        replace(setting(mlp), precision="bfloat16")


def test_a_processor_without_instructions_is_named(monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_instructions", lambda device: None)
    assert slower("float32", "cpu") is None
    assert slower("bfloat16", "cpu") == (
        "this processor has no instructions for bfloat16 (avx512_bf16, amx_bf16, bf16 of ARM), so "
        'precision = "bfloat16" is slower here than "float32"'
    )
