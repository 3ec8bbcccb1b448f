"""Models of one's own beside plain PyTorch: ``module(x)``, the loss, ``backward()`` and ``step()``
on each client's data, and the mean of what comes out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import motley
from motley.core.errors import ModelError
from motley.tasks import from_clients, own_task

State = dict[str, torch.Tensor]
LR = 0.3


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write runs into a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def rows(sizes: Sequence[int], *shape: int) -> list[tuple[Any, Any]]:
    """Return samples of three classes, by client."""
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(n, *shape)).astype(np.float32), np.arange(n) % 3) for n in sizes]


def started(make: Callable[[], nn.Module]) -> tuple[Callable[[], nn.Module], State]:
    """Return a function that makes the module with the same weights each time, and its state."""
    torch.manual_seed(0)
    first = copy.deepcopy(make().state_dict())

    def again() -> nn.Module:
        module = make()
        module.load_state_dict(first)
        return module

    return again, first


def trained(make: Callable[[], nn.Module], data: Any, **keys: Any) -> motley.Run:
    """Return a run of one round over all clients, each with its whole data in a batch, twice."""
    local = {"epochs": 2, "batch_size": 1000, "optimizer": {"lr": LR}, **keys.pop("local", {})}
    experiment = {"cohort": len(data), "stop": {"rounds": 1}, "local": local, **keys}
    return motley.run(experiment, task=own_task(from_clients(data, test=data), make))


def of_torch(make: Callable[[], nn.Module], data: Any) -> State:
    """Return what plain PyTorch makes of the same round; counters are their maximum."""
    after = []
    for x, y in data:
        module = make().train()
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], LR)
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()
            optimizer.step()
        after.append(module.state_dict())
    share = [len(y) / sum(len(y) for _, y in data) for _, y in data]
    return {
        name: sum(w * one[name] for w, one in zip(share, after, strict=True))
        if value.is_floating_point()
        else torch.stack([one[name] for one in after]).amax(0)
        for name, value in after[0].items()
    }


def assert_same(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-5, msg=name)


# ------------------------------------------------------------------------- scripted, sparse


class Normed(nn.Module):
    """A module that counts its batches in a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 5)
        self.n = nn.BatchNorm1d(5)
        self.o = nn.Linear(5, 3)
        self.register_buffer("batches", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.batches += 1
        return self.o(torch.relu(self.n(self.a(x))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


SCRIPTED: dict[str, Callable[[], nn.Module]] = {
    "scripted": lambda: torch.jit.script(mlp()),
    "with BatchNorm": lambda: torch.jit.script(Normed()),
    "traced": lambda: torch.jit.trace(mlp(), torch.zeros(2, 4)),
    "a scripted part": lambda: nn.Sequential(torch.jit.script(nn.Linear(4, 5)), nn.Linear(5, 3)),
}


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("kind", SCRIPTED)
def test_scripted_modules_train_as_torch_does(kind: str) -> None:
    make, _ = started(SCRIPTED[kind])
    data = rows((5, 9), 4)
    assert_same(trained(make, data).module().state_dict(), of_torch(make, data))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_loss_that_compares_features_needs_a_module_that_was_not_scripted() -> None:
    with pytest.raises(ModelError, match=r"layer '2' was scripted \(torch.jit\)"):
        trained(SCRIPTED["scripted"], rows((5, 9), 4), algorithm="moon")


class Mixed(nn.Module):
    """A sparse constant before a linear layer."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)
        matrix = torch.diag(torch.tensor([2.0, 1.0, 0.5, 1.0])).to_sparse()
        self.register_buffer("matrix", matrix, persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(torch.sparse.mm(self.matrix, x.t()).t())


def test_sparse_buffers_are_constants_or_refused() -> None:
    data = rows((5, 9), 4)
    make, _ = started(lambda: Mixed(persistent=False))
    assert_same(trained(make, data).module().state_dict(), of_torch(make, data))
    expected = r"buffer 'matrix' is sparse.* write register_buffer\('matrix', ..., persistent=False"
    with pytest.raises(ModelError, match=expected):
        trained(lambda: Mixed(persistent=True), data)


# --------------------------------------------------------------------- batches of one sample


def pictures() -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))


@pytest.mark.parametrize("engine", ["sequential", "threads", "processes"])
def test_one_picture_of_several_pixels_is_normalised_by_itself(engine: str) -> None:
    make, first = started(pictures)
    data = rows((1, 1), 2, 4, 4)
    run = trained(partial(loaded, pictures, first), data, engine=engine)
    assert_same(run.module().state_dict(), of_torch(make, data))


def loaded(make: Callable[[], nn.Module], state: State) -> nn.Module:
    module = make()
    module.load_state_dict(state)
    return module


class KeptInEvaluation(nn.Module):
    """BatchNorm of a pretrained part, which users keep in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.o = nn.Linear(4, 3)

    def train(self, mode: bool = True) -> KeptInEvaluation:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(self.norm(x))


@pytest.mark.parametrize(
    ("make", "shape", "steps"),
    [
        # clients of 5, 9, 1 and 8 samples in batches of 4
        (pictures, (2, 4, 4), [2, 3, 1, 2]),
        (KeptInEvaluation, (4,), [2, 3, 1, 2]),
        (lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)), (4,), [1, 2, 1, 2]),
    ],
)
def test_a_last_batch_of_one_is_left_out_where_torch_refuses_it(
    make: Callable[[], nn.Module], shape: tuple[int, ...], steps: list[int]
) -> None:
    run = trained(make, rows((5, 9, 1, 8), *shape), local={"epochs": 1, "batch_size": 4})
    clients = sorted(run.tables["clients"].to_pylist(), key=lambda row: row["client"])
    assert [row["local_steps"] for row in clients] == steps


def test_normalisation_without_a_layer_leaves_a_last_batch_of_one_out() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.o = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.o(F.batch_norm(x, None, None, training=True) if self.training else x)

    run = trained(Functional, rows((5, 9), 4), local={"epochs": 1, "batch_size": 4})
    assert run.column("clients", "local_steps").tolist() == [1, 2]


def test_pictures_estimate_statistics_in_batches_of_one() -> None:
    """A chain of one client: the mean of two pictures, one after the other, with momentum 1/10."""
    data = rows((2,), 2, 4, 4)
    local = {"epochs": 1, "batch_size": 1, "optimizer": {"lr": 1e-9}}
    run = trained(pictures, data, local=local, recalibrate={"batches": 2})
    means = torch.from_numpy(data[0][0]).mean((2, 3))
    found = run.module().state_dict()["0.running_mean"]
    order = [0.9 * 0.1 * means[i] + 0.1 * means[1 - i] for i in (0, 1)]
    assert any(torch.allclose(found, one, atol=1e-6) for one in order)


# ---------------------------------------------------- numbers that are not finite by design


class Masked(nn.Module):
    """A linear layer that reads the places of a mask that are finite."""

    def __init__(self, mask: Sequence[float], persistent: bool = True) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.o = nn.Linear(4, 3)
        self.register_buffer("mask", torch.tensor(mask), persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(torch.where(self.mask.isfinite(), self.norm(x), 0.0))


MASK = (0.0, 0.0, -torch.inf, torch.nan)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"algorithm": "ifca"},
        {"algorithm": "fedvarp"},
        {"algorithm": "fedbn"},
        {"aggregator": "median", "weights": "uniform"},
        {"compressor": "qsgd"},
        {"synchrony": "asynchronous"},
        {"recalibrate": {"batches": 3}},
    ],
    ids=str,
)
def test_a_mask_that_is_not_finite_rejects_no_upload(keys: dict[str, Any], tmp_path: Path) -> None:
    """A constant of the module (persistent=False) is the reference."""
    data = rows((8, 12, 9, 7), 4)
    found = {}
    for persistent in (True, False):
        make = partial(Masked, MASK, persistent)
        run = trained(make, data, stop={"rounds": 3}, evaluate={"every": 1}, **keys)
        losses = [row["loss"] for row in run.tables["evaluations"].to_pylist()]
        accepted = run.column("rounds", "accepted").tolist()
        found[persistent] = losses, accepted, run.column("rounds", "rejected").tolist()
    assert found[True] == found[False]
    assert sum(found[True][1]) > 0
    assert sum(found[True][2]) == 0


class Worse(Masked):
    """A mask whose first place becomes NaN in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mask[0] = torch.nan
        return self.o(x)


def test_a_buffer_that_becomes_nan_is_rejected() -> None:
    with pytest.warns(UserWarning, match=r"no upload was accepted .* 2 rejected"):
        run = trained(lambda: Worse(MASK), rows((5, 9), 4))
    assert run.column("rounds", "rejected").tolist() == [2]


class Smallest(Masked):
    """The smallest input so far, which begins at infinity."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mask = torch.minimum(self.mask, x.detach().amin(0))
        return self.o(x)


def test_a_buffer_that_begins_at_infinity_may_become_finite() -> None:
    data = rows((5, 9), 4)
    make, _ = started(lambda: Smallest([torch.inf] * 4))
    run = trained(make, data)
    assert run.column("rounds", "accepted").tolist() == [2]
    assert_same(run.module().state_dict(), of_torch(make, data))


def test_weights_that_are_trained_must_begin_finite() -> None:
    class Infinite(nn.Module):
        def __init__(self, trained: bool) -> None:
            super().__init__()
            self.o = nn.Linear(4, 3)
            self.p = nn.Parameter(torch.tensor([-torch.inf]), requires_grad=trained)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.o(x)

    with pytest.raises(ModelError, match=r"parameter 'p' begins with numbers that are not finite"):
        trained(lambda: Infinite(True), rows((5, 9), 4))
    run = trained(lambda: Infinite(False), rows((5, 9), 4))
    assert run.column("rounds", "accepted").tolist() == [2]


# ------------------------------------------------------------------------- buffers of every type


class Kinds(nn.Module):
    """Constants of every type, float64 statistics, and a frozen weight of float64."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.tensor(0.1).double(), requires_grad=False)
        numbers = torch.tensor([2.0**24 + 1, 0.1, 1 / 3], dtype=torch.float64)
        self.register_buffer("numbers", numbers)
        for kind in (torch.float16, torch.bfloat16, torch.int32, torch.bool):
            self.register_buffer(
                "of_" + str(kind).removeprefix("torch."), torch.full((2,), 1.1).to(kind)
            )
        self.register_buffer("batches", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.batches += 1
            self.mean.mul_(0.9).add_(0.1 * x.detach().double().mean(0))
        return self.o(self.norm(x)) * float(self.scale)


@pytest.mark.parametrize(
    "keys",
    [
        {"engine": "sequential"},
        {"engine": "threads"},
        {"engine": "processes"},
        {"compressor": "qsgd"},
        {"algorithm": "fedper"},
    ],
    ids=str,
)
def test_buffers_keep_their_types_and_numbers(keys: dict[str, Any]) -> None:
    make, first = started(Kinds)
    data = rows((5, 9, 14, 7), 4)
    found = trained(partial(loaded, Kinds, first), data, **keys).module().state_dict()
    expected = of_torch(make, data)
    for name, value in first.items():
        assert found[name].dtype == value.dtype, name
    for name in ("numbers", "of_float16", "of_bfloat16", "of_int32", "of_bool", "scale"):
        assert torch.equal(found[name], first[name]), name
    for name in ("batches", "mean"):
        torch.testing.assert_close(found[name], expected[name], atol=1e-12, rtol=1e-12)
    if "engine" in keys:
        torch.testing.assert_close(found["o.weight"], expected["o.weight"])


class Frozen(nn.Module):
    """Frozen parts of float64 and bfloat16 that compute in their own types."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)
        self.before = nn.Linear(4, 4).to(kind).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(self.before(x.to(self.before.weight.dtype)).float())


@pytest.mark.parametrize(
    ("kind", "engine"), [(torch.float64, "vmap"), (torch.bfloat16, "threads")], ids=str
)
def test_frozen_parts_compute_in_their_own_types(kind: torch.dtype, engine: str) -> None:
    make, first = started(lambda: Frozen(kind))
    data = rows((5, 9), 4)
    run = trained(make, data)
    assert run.meta["numerics"]["engine"] == engine
    expected = {**of_torch(make, data), **{n: v for n, v in first.items() if "before" in n}}
    assert_same(run.module().state_dict(), expected)


@pytest.mark.parametrize("engine", ["sequential", "batched", "vmap"])
def test_a_loss_that_adds_outputs_up_has_slopes_in_one_place_of_memory(engine: str) -> None:
    """The loss rises by 1 with every output, so that a bias falls by LR in each of two steps."""
    data = rows([4, 6], 3)
    make, first = started(partial(nn.Linear, 3, 3))
    task = own_task(
        from_clients(data, test=data), make, loss=lambda outputs, targets: outputs.sum(1)
    )
    local = {"steps": 2, "batch_size": 2, "optimizer": {"lr": LR}}
    keys = {"cohort": 2, "stop": {"rounds": 1}, "local": local, "engine": engine}
    after = motley.run(keys, task=task).module().state_dict()
    torch.testing.assert_close(after["bias"], first["bias"] - 2 * LR)
