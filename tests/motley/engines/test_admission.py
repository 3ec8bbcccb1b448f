"""An engine is admitted by comparison with plain PyTorch, and what differs is named."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import motley
from motley.core.errors import ConfigError, ModelError
from motley.engines import ENGINES, admission, resolve_auto
from motley.engines.admission import admit, needs_proof
from motley.rounds.evaluation import evaluate
from motley.tasks import from_clients, own_task
from motley.tasks.models import MODELS
from motley.tasks.own_loss import OverBatch
from tests.motley.engines.test_the_zoo import SHAPES

RNG = np.random.default_rng(0)
SIZES = (8, 12, 9, 7)
CLIENTS = [(RNG.normal(size=(n, 4)).astype(np.float32), np.arange(n) % 3) for n in SIZES]
NUMBERS = [(x, x[:, :1] * 2) for x, _ in CLIENTS]


def built(make: Callable[[], nn.Module], clients: Any = CLIENTS, **more: Any) -> Any:
    """Return the loop of a run with a model of one's own."""
    kind = {"regression": True} if clients is NUMBERS else {"classes": 3}
    given = {key: more.pop(key) for key in ("loss", "over", "transform") if key in more}
    keys: dict[str, Any] = {
        "cohort": 4,
        "stop": {"rounds": 1},
        "local": {"epochs": 1, "batch_size": 5, "optimizer": {"lr": 0.5}},
        "engine": "auto",
        **more,
    }
    task = own_task(from_clients(clients, test=clients, **kind), make, **given)
    return motley.build({"task": "own", **keys}, task=task)


def stepped_by_torch(make: Callable[[], nn.Module]) -> dict[str, Tensor]:
    """Return the weights after one round of one full-batch step of every client, rate 0.5."""
    total: dict[str, Tensor] = {}
    for x, y in CLIENTS:
        module = make()
        F.cross_entropy(module(torch.tensor(x)), torch.tensor(y)).backward()
        for name, weight in module.named_parameters():
            step = len(y) / sum(SIZES) * (weight.detach() - 0.5 * weight.grad)
            total[name] = total.get(name, 0) + step
    return total


def fixed(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Return a factory whose modules all have the first one's weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        state = make().state_dict()

    def again() -> nn.Module:
        module = make()
        module.load_state_dict(state)
        return module

    return again


class Standardised(nn.Module):
    """Looks at the mean and the deviation of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.o((x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt())


class Temperature(nn.Module):
    """A trained number without dimensions, and a parameter of no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        return self.o(x) * self.scale + self.empty.sum()


class Cosine(nn.Module):
    """Weights of unit length, by ``.data`` or in place."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3, bias=False)
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        unit = F.normalize(self.o.weight.data, dim=1)
        if self.in_place:
            self.o.weight.data.copy_(unit)
        else:
            self.o.weight.data = unit
        return 5 * self.o(x)


def halve(parameter: Tensor) -> None:
    """Halve a gradient that has been added up."""
    assert parameter.grad is not None
    parameter.grad /= 2


def halved(kind: str) -> Callable[[], nn.Module]:
    """Return a factory of stacks in which a hook halves a gradient, or what a layer gives."""

    def make() -> nn.Module:
        module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        if kind == "tensor":
            module[0].weight.register_hook(lambda g: g / 2)
        elif kind == "accumulated":
            module[0].weight.register_post_accumulate_grad_hook(halve)
        elif kind == "backward":
            module[2].register_full_backward_hook(lambda m, into, out: (into[0] / 2,))
        else:
            forward = module[0].forward
            module[0].forward = lambda x: forward(x) / 2
        return module

    return make


FULL = {"epochs": 1, "batch_size": 100, "optimizer": {"lr": 0.5}}


@pytest.mark.parametrize(
    "make",
    [
        Standardised,
        Temperature,
        lambda: Cosine(in_place=True),
        lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()),
        *map(halved, ("tensor", "accumulated", "backward", "instance")),
    ],
    ids=["batch", "scalar", "cosine", "relu last", "tensor", "accumulated", "backward", "instance"],
)
@pytest.mark.parametrize("engine", ["auto", "sequential", "threads"])
@pytest.mark.filterwarnings("ignore:.*does not train this model as plain PyTorch does")
def test_a_round_is_what_torch_computes(make: Callable[[], nn.Module], engine: str) -> None:
    make = fixed(make)
    loop = built(make, local=FULL, engine=engine)
    loop.step()
    expected = stepped_by_torch(make)
    model = loop.state.server.model.x
    for entry in loop.setting.task.layout:
        torch.testing.assert_close(
            model[entry.slice].view(entry.shape), expected[entry.name], rtol=1e-4, atol=1e-6
        )


def test_a_dead_relu_at_the_end_moves_nothing() -> None:
    """All outputs are 0 where all targets are 1, and so is the gradient of each."""
    x = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0]], np.float32)

    def make() -> nn.Module:
        module = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
        module[0].weight.data.fill_(-1.0)
        module[0].bias.data.fill_(0.0)
        return module

    clients = [(x, np.ones((3, 1), np.float32))] * 2
    task = own_task(from_clients(clients, test=clients, regression=True), make)
    keys = {"cohort": 2, "stop": {"rounds": 1}, "local": FULL}
    loop = motley.build({"task": "own", **keys}, task=task)
    loop.step()
    assert loop.engine.name == "vmap"
    assert loop.state.server.model.x.tolist() == [-1.0, -1.0, 0.0]


def test_auto_falls_back_and_says_which_parameter_differed() -> None:
    with pytest.warns(UserWarning, match="vmap does not train") as told:
        loop = built(Standardised)
    sentence = (
        "vmap does not train this model as plain PyTorch does (the gradient of 'o.weight' "
        "differs); threads is taken in its place"
    )
    assert str(told[0].message) == sentence
    assert loop.engine.name == "threads"
    assert loop.setting.task.federation.notes["engine"] == sentence


def test_an_engine_asked_for_by_name_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"'vmap' does not train this model as plain PyTorch does: the gradient of 'o.weight' "
        'differs; engine = "auto" chooses an engine that does',
    ):
        built(Standardised, engine="vmap")


def test_weights_bound_anew_are_refused_with_what_to_write() -> None:
    with pytest.raises(
        ModelError,
        match=r"the forward of the Cosine binds the weight 'o.weight' anew.*write into it in "
        r"place: self.o.weight.data.copy_\(\.\.\.\)",
    ):
        built(fixed(lambda: Cosine(in_place=False)))


class Remembering(nn.Module):
    """Counts its calls in an attribute, which no engine could send."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return self.o(x) * (1 + 0.1 * self.calls)


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_no_engine_can_follow_is_refused() -> None:
    message = "no engine trains this model as plain PyTorch does.*changes the attribute 'calls'"
    with pytest.raises(ModelError, match=message):
        built(Remembering)


def noisy(batch: Tensor, key: Any) -> Tensor:
    return batch + 0.1 * torch.randn_like(batch)


def from_numpy(batch: Tensor, key: Any) -> Tensor:
    return batch + torch.from_numpy(np.random.normal(size=tuple(batch.shape))).float()  # noqa: NPY002


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (noisy, "gives other weights under another seed of torch: it draws from torch's"),
        (from_numpy, "under the same seed of torch, give different weights.*draws random numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*does not train this model as plain PyTorch does")
def test_random_numbers_outside_of_the_streams_are_refused(transform: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        built(lambda: nn.Linear(4, 3), transform=transform)


def test_a_cast_inside_is_compared_in_float32_and_told() -> None:
    class Typed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.o = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(x.float())

    notes = built(Typed).setting.task.federation.notes
    assert "float32, since the model cannot be computed in float64" in notes["proof"]


def untracked() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)
    )


def losses_of(loop: Any) -> dict[int, float]:
    """Return each client's loss at the model of a loop, as an evaluation measures it."""
    rows = evaluate(loop.engine, loop.state.server.model, loop.setting.task.federation, True).rows
    places = [i for i, scope in enumerate(rows["scope"]) if scope == "client"]
    return {int(rows["client"][i]): float(rows["loss"][i]) for i in places}


def test_clients_are_evaluated_each_by_itself_where_outputs_depend_on_the_batch() -> None:
    make = fixed(untracked)
    loop = built(make)
    assert "depend on who else is in the batch" in loop.setting.task.federation.notes["evaluation"]
    expected = {
        k: F.cross_entropy(make().eval()(torch.tensor(x)), torch.tensor(y)).item()
        for k, (x, y) in enumerate(CLIENTS)
    }
    assert losses_of(loop) == pytest.approx(expected, rel=1e-5)
    x, y = CLIENTS[3]
    scaled = losses_of(built(make, [*CLIENTS[:3], (2 * x + 1, y)]))
    expected_now = {**expected, 3: scaled[3]}
    assert scaled == pytest.approx(expected_now, rel=1e-5)
    probed = loop.engine.measure(
        np.arange(4), vars(loop.state.server.model), {}, {"loss": None}, motley.Key(0)
    )
    assert probed["loss"] == pytest.approx(list(expected.values()), rel=1e-5)


def test_an_evaluation_takes_as_many_samples_at_a_time_as_it_is_told() -> None:
    make = fixed(untracked)
    loop = built(make, evaluate={"batch_size": 5})
    x, y = CLIENTS[0]  # batches of 5 and 3
    parts = [(x[:5], y[:5]), (x[5:], y[5:])]
    each = [
        len(y) * F.cross_entropy(make().eval()(torch.tensor(x)), torch.tensor(y)).item()
        for x, y in parts
    ]
    assert losses_of(loop)[0] == pytest.approx(sum(each) / 8, rel=1e-5)
    with pytest.raises(ConfigError, match="neither the model nor the loss looks at its whole"):
        built(lambda: nn.Linear(4, 3), evaluate={"batch_size": 5})


def pooled(outputs: Tensor, targets: Tensor) -> Tensor:
    """One minus the correlation of outputs and targets over the batch."""
    a, b = outputs - outputs.mean(), targets - targets.mean()
    return 1 - (a * b).mean() / ((a * a).mean() * (b * b).mean() + 1e-6).sqrt()


@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_a_batch_loss_trains_and_is_evaluated_as_in_torch(engine: str) -> None:
    make = fixed(lambda: nn.Linear(4, 1))
    loop = built(make, NUMBERS, loss=pooled, over="batch", local=FULL, engine=engine)
    assert losses_of(loop) == pytest.approx(
        {
            k: pooled(make()(torch.tensor(x)), torch.tensor(y)).item()
            for k, (x, y) in enumerate(NUMBERS)
        },
        rel=1e-5,
    )
    loop.step()
    assert loop.engine.name == ("threads" if engine == "auto" else engine)
    expected = torch.zeros(4)
    for x, y in NUMBERS:
        module = make()
        pooled(module(torch.tensor(x)), torch.tensor(y)).backward()
        step = module.weight.detach()[0] - 0.5 * module.weight.grad[0]
        expected += len(y) / sum(SIZES) * step
    torch.testing.assert_close(loop.state.server.model.x[:4], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"engine": "vmap"}, "the loss looks at its whole batch"),
        ({"local": {**FULL, "micro_batch": 2}}, "local.micro_batch: the loss looks at its whole"),
    ],
)
def test_what_cuts_batches_declines_a_batch_loss(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(lambda: nn.Linear(4, 1), NUMBERS, loss=pooled, over="batch", **more)


def test_workers_run_the_engine_that_was_admitted() -> None:
    setting = built(Temperature).setting
    assert resolve_auto(setting) == "vmap"
    standardised = built(Standardised, engine="threads").setting
    with pytest.warns(UserWarning, match="vmap does not train"):
        ruled_out = admit(standardised, "processes")
    assert resolve_auto(ruled_out.setting) == "threads"


def test_the_proof_of_a_private_run_sees_none_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    compared = admission._data

    def noting(*args: Any, **more: Any) -> Any:
        work, federation = compared(*args, **more)
        seen.append(federation)
        return work, federation

    monkeypatch.setattr(admission, "_data", noting)
    keys = {
        "weights": "uniform",
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5},
        "selector": "poisson",
    }
    other = [(x + 2, (y + 1) % 3) for x, y in CLIENTS]
    for clients in (CLIENTS, other):
        notes = built(lambda: nn.Linear(4, 3), clients, **keys).setting.task.federation.notes
        assert 'over = "batch"' in notes["proof on"]
    first, second = seen
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.y, second.y)
    assert float(first.x.abs().max()) < 10


def test_only_what_is_not_motleys_own_needs_a_proof() -> None:
    own = {"population": 4, "cohort": 2, "stop": {"rounds": 1}}
    loop = motley.build({**own, "task": {"name": "tabular", "data": "iris"}})
    assert not needs_proof(loop.setting)
    assert needs_proof(built(lambda: nn.Linear(4, 3)).setting)


_LONG = {"alexnet", "cnn", "leaf_cnn", "resnet9", "resnet18", "simple_cnn"}


@pytest.mark.parametrize(
    "model",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in _LONG)) for name in sorted(SHAPES)],
)
def test_the_models_of_the_catalogue_are_proved_here(setting: Any, model: str) -> None:
    """On every engine that takes them."""
    options = MODELS.build(model)
    s = setting(lambda: options.build(SHAPES[model], 4), SHAPES[model], sizes=(5, 4, 3), threads=2)
    comparison = admission._Comparison(s, "sequential", synthetic=False)
    comparison.require_followed()
    assert comparison.mixes
    taken = [
        name
        for name in ("sequential", "threads", "debug", "batched", "vmap")
        if ENGINES.get(name).refuses(comparison.setting) is None
    ]
    assert {name: comparison.difference(name) for name in taken} == dict.fromkeys(taken)


def test_weights_of_another_type_are_told() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.o = nn.Linear(4, 3).bfloat16()

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.o.weight.to(x.dtype), self.o.bias.to(x.dtype))

    sentence = "weights that the model holds as bfloat16 are trained as float32"
    with pytest.warns(UserWarning, match=sentence):
        loop = built(Half)
    assert loop.setting.task.federation.notes["weights"] == sentence


def test_not_finite_numbers_are_compared_as_they_are() -> None:
    nan = torch.tensor([math.nan, -math.inf, 1.0])
    assert admission._unlike(nan, nan.clone(), 1e-9) == 0
    assert admission._unlike(nan, torch.tensor([math.nan, math.inf, 1.0]), 1e-9) == math.inf
    assert admission._unlike(nan, torch.tensor([0.0, -math.inf, 1.0]), 1e-9) == math.inf
    assert admission._unlike(nan, torch.tensor([math.nan, -math.inf, 2.0]), 1e-9) == 0.5


def test_the_samples_compared_are_the_callers_own_to_keep() -> None:
    """A forward that works in place changes no sample of the run."""

    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.o = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x -= 1.0
            return self.o(x)

    setting = built(lambda: nn.Linear(4, 3)).setting
    before = setting.task.federation.x.clone()
    changed = setting.task.with_model(InPlace)
    admit(dataclasses.replace(setting, task=changed), "sequential")
    assert torch.equal(setting.task.federation.x, before)


class Tied(nn.Module):
    """Its head is the embedding, whose forward shortens the rows of the tokens that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3, max_norm=0.5)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table(x).mean(1))


@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_a_forward_that_changes_weights_changes_nobody_elses_evaluation(engine: str) -> None:
    tokens = [(np.full((6, 2), k), np.arange(6) % 5) for k in range(2)]
    make = fixed(Tied)
    task = own_task(from_clients(tokens, test=tokens, classes=5), make)
    keys = {"cohort": 2, "stop": {"rounds": 1}, "local": FULL, "engine": engine}
    loop = motley.build({"task": "own", **keys}, task=task)
    expected = {
        k: F.cross_entropy(make()(torch.tensor(x)), torch.tensor(y)).item()
        for k, (x, y) in enumerate(tokens)
    }
    assert losses_of(loop) == pytest.approx(expected, rel=1e-5)


def test_outputs_that_depend_on_the_batch_are_seen_behind_a_dead_relu() -> None:
    """At the first weights, and near them, a ReLU at the end gives 0 whatever is in the batch; in
    later rounds, and in larger batches of an evaluation, it does not."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.o = nn.Linear(4, 3)
            nn.init.constant_(self.o.bias, -2.0)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.o(x * len(x) * 0.1))

    loop = built(Scaled, local={"epochs": 1, "batch_size": 1}, engine="sequential")
    assert not loop.setting.mixes


def test_padding_with_a_sample_that_shares_nothing_is_seen() -> None:
    """A last batch of one word, its places filled by another word or by the same: only then the
    word counts twice, and the clients that are compared must have such a batch."""
    words = [(np.tile(np.arange(n)[:, None] % 7, (1, 4)), np.arange(n) % 3) for n in (5, 13)]
    task = own_task(from_clients(words, test=words, classes=3), ByFrequency)
    keys = {"cohort": 2, "stop": {"rounds": 1}, "local": {"epochs": 1, "batch_size": 4}}
    with pytest.warns(UserWarning, match="vmap does not train this model"):
        loop = motley.build({"task": "own", **keys}, task=task)
    assert loop.engine.name == "threads"


def test_padding_beside_other_samples_of_a_client_is_seen() -> None:
    """A last batch of one sample beside a full batch: standardized, it is 0 alone, and not beside
    the sample that fills its place."""
    clients = [(x[:n], y[:n]) for (x, y), n in zip(CLIENTS, (3, 6, 2, 2), strict=True)]
    with pytest.warns(UserWarning, match="vmap does not train this model"):
        loop = built(Standardised, clients, local={"epochs": 1, "batch_size": 2})
    assert loop.engine.name == "threads"


def pulled(outputs: Tensor, targets: Tensor) -> Tensor:
    """Samples of one class towards each other; nothing where no two are of one class."""
    same = (targets[:, None] == targets[None]).to(outputs.dtype)
    return (torch.cdist(outputs, outputs).square() * same).mean()


def test_a_loss_of_pairs_is_seen_where_classes_are_many() -> None:
    """Two samples of each of 60 classes: of samples that differ, no two belong together."""
    y = np.repeat(np.arange(60), 2)
    clients = [(RNG.normal(size=(120, 4)).astype(np.float32), y) for _ in range(2)]
    with pytest.warns(UserWarning, match="depends on the other samples of its batch"):
        task = own_task(from_clients(clients), lambda: nn.Linear(4, 60), loss=pulled)
    assert isinstance(task.loss, OverBatch)


class Alternating(nn.Module):
    """One of two heads in each call, and a third that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(4, 3) for _ in range(3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return self.heads[int(self.calls) % 2](x)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
        ("adam", {"lr": 0.01, "weight_decay": 0.0}),
        ("adamw", {"lr": 0.01, "weight_decay": 0.1}),
    ],
)
def test_parameters_without_a_gradient_stand_still_as_in_torch(
    name: str, options: dict[str, float]
) -> None:
    make = fixed(Alternating)
    local = {"epochs": 5, "batch_size": 100, "optimizer": {"name": name, **options}}
    loop = built(make, local=local)
    loop.step()
    assert loop.engine.name == "threads"
    assert (
        "gradient, and torch's optimizers leave it out"
        in (loop.setting.task.federation.notes["unused"])
    )
    kinds: dict[str, Any] = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    total: dict[str, Tensor] = {}
    for x, y in CLIENTS:
        module = make()
        optimizer = kinds[name](module.parameters(), **options)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(module(torch.tensor(x)), torch.tensor(y)).backward()
            optimizer.step()
        for key, weight in module.named_parameters():
            total[key] = total.get(key, 0) + len(y) / sum(SIZES) * weight.detach()
    model = loop.state.server.model.x
    for entry in loop.setting.task.layout:
        torch.testing.assert_close(
            model[entry.slice].view(entry.shape), total[entry.name], rtol=1e-4, atol=1e-5
        )


def test_what_a_forward_keeps_in_an_attribute_is_told() -> None:
    class Warm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.o = nn.Linear(4, 3)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += self.training
            return self.o(x) * (2.0 if self.calls > 10_000 else 1.0)

    with pytest.warns(UserWarning, match="the forward changes the attribute 'calls', which goes"):
        loop = built(Warm)
    assert "neither sent nor stored" in loop.setting.task.federation.notes["kept"]


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x.abs().long().clamp(max=4)).mean(1)


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale = torch.ones(4).to(x)
        return self.o(x * self.scale)


class InDouble(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.o(x.double()).to(x.dtype)


class Smoothed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(x if self.training else x + 0.1 * torch.randn_like(x))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(F.batch_norm(x, None, None, training=True) if self.training else x)


@pytest.mark.parametrize(
    ("make", "more", "message"),
    [
        (Sparse, {}, r"'table.weight' has sparse gradients.*write sparse=False"),
        (Growing, {}, r"the buffer 'scale' changes its shape in training, from \[1\] to \[4\]"),
        (InDouble, {}, 'cannot be computed in float32.*say dtype = "float64"'),
        (Smoothed, {}, "outputs in evaluation mode differ from call to call"),
        (
            Functional,
            {"clients": [(x[:1], y[:1]) for x, y in CLIENTS]},
            "torch refuses a batch of one sample of this model in training",
        ),
    ],
    ids=["sparse", "growing", "double", "smoothed", "functional"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_refusal_says_what_happened(
    make: Callable[[], nn.Module], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        built(make, **more)


class Changing(nn.Module):
    """Two layers, of which the forward does something unusual with the first."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)
        self.how = how
        self.kept: Tensor | None = None
        if how == "begins to train":
            self.a.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.how in ("freezes", "begins to train"):
            self.a.requires_grad_(self.how != "freezes")
        hidden = self.a(x).sigmoid()
        if self.how == "keeps":
            self.kept = hidden.mean() if self.kept is None else self.kept
            hidden = hidden + self.kept
        squared = hidden * hidden
        if self.how == "in place":
            hidden += 1
        return self.b(squared)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            "freezes",
            r"freezes the weight 'a\.bias' \(requires_grad\).*in the function that makes it",
        ),
        ("begins to train", r"begins to train the weight 'a\.bias'.*the function that makes it"),
        ("keeps", r"a second time.*keeps a tensor from one batch to the next: compute it anew"),
        (
            "in place",
            r"this model fails in plain PyTorch: .*write that operation out of place, h = ",
        ),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_a_refusal_by_torch_says_what_to_write(how: str, message: str, engine: str) -> None:
    with pytest.raises(ModelError, match=message):
        built(lambda: Changing(how), engine=engine)


def test_weights_that_are_not_the_modules_are_told() -> None:
    # torch's optimizer leaves them out, too, but in a script of one model it is the model itself
    net = nn.Linear(4, 3)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) + net.weight.pow(2).sum()

    with pytest.warns(UserWarning, match=r"weights of shape \[3, 4\] that are not the module's"):
        loop = built(lambda: nn.Linear(4, 3), loss=loss, engine="sequential")
    assert "neither trained nor sent" in loop.setting.task.federation.notes["outside"]
    net.requires_grad_(False)
    again = built(lambda: nn.Linear(4, 3), loss=loss, engine="sequential")
    assert "outside" not in again.setting.task.federation.notes


def test_a_transform_that_works_in_place_changes_no_sample() -> None:
    def halve_batch(batch: Tensor, key: Any) -> Tensor:
        batch /= 2.0
        return batch

    task = own_task(from_clients(CLIENTS, test=CLIENTS), untracked, transform=halve_batch)
    before = task.federation.x.clone()
    keys = {"cohort": 4, "stop": {"rounds": 1}, "local": FULL}
    motley.build({"task": "own", **keys}, task=task).step()
    assert torch.equal(task.federation.x, before)


class ByFrequency(nn.Module):
    """An embedding whose gradients are divided by how often a token is in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.linspace(-1, 1, 21).view(7, 3))

    def forward(self, x: Tensor) -> Tensor:
        chosen = (x.unsqueeze(-1) == torch.arange(7)).to(self.table.dtype)
        rows = chosen @ self.table
        moving = rows / (chosen @ chosen.sum((0, 1)).clamp(min=1)).unsqueeze(-1)
        return (moving + (rows - moving).detach()).mean(1)


def test_padding_with_the_sample_itself_is_seen() -> None:
    """A client of one sample beside one of five."""
    tokens = [(RNG.integers(0, 7, (n, 4)), np.arange(n) % 3) for n in (5, 1)]
    task = own_task(from_clients(tokens, test=tokens, classes=3), ByFrequency)
    keys = {"cohort": 2, "stop": {"rounds": 1}, "local": {"epochs": 1, "batch_size": 8}}
    with pytest.warns(UserWarning, match="vmap does not train this model"):
        loop = motley.build({"task": "own", **keys}, task=task)
    assert loop.engine.name == "threads"
