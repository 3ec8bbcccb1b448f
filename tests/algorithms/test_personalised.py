"""Personalised methods: the worked numbers of docs/methods/algorithms.md, and the cases in which two methods must coincide."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from motley.algorithms.ditto import Ditto
from motley.algorithms.fedavg import FedAvg
from motley.algorithms.fedbabu import FedBABU
from motley.algorithms.fedper import FedPer
from motley.algorithms.fedrep import FedRep
from motley.algorithms.fine_tuned import FineTuned
from motley.algorithms.lg_fedavg import LGFedAvg
from motley.algorithms.local import SGD, Clip
from motley.algorithms.local_only import LocalOnly
from motley.core.errors import ConfigError
from motley.testing.algorithms import MODELS, Play
from tests.algorithms.toys import B, Toy

PLAIN, NORMED = MODELS
SOLVERS = {"plain": SGD(lr=0.1), "momentum": SGD(lr=0.1, momentum=0.9, weight_decay=0.01, clip=Clip(0.5))}
HEADS = {"model": B, "start": (1.0, 2.0), "targets": (4.0, 1.0)}


def near(*numbers: float):
    return pytest.approx(list(numbers), rel=1e-12, abs=1e-15)


# ---- worked numbers: toy A has w = 0 and minimum 4, toy B base 1, head 2 and targets 4 and 1; the learning rate is 0.1 ----


def test_fedper_by_hand() -> None:
    """Client 1: h = 2 - .1 (2 - 4) 1 = 2.2, b = 1 - .1 (2 - 4) 2 = 1.4; client 2: h = 1.9, b = .8. The base becomes 1.1."""
    toy = Toy(FedPer(), **HEADS)
    toy.round()
    assert toy.x == near(1.1)
    assert [toy.examined(k) for k in (0, 1)] == [near(1.1, 2.2), near(1.1, 1.9)]


def test_fedrep_by_hand() -> None:
    """The heads move first, to 2.2 and 1.9; then b = 1 - .1 (2.2 - 4) 2.2 = 1.396 and 1 - .1 (1.9 - 1) 1.9 = .829."""
    toy = Toy(FedRep(head_epochs=1), **HEADS)
    toy.round()
    assert toy.x == near((1.396 + 0.829) / 2)
    assert [toy.examined(k)[1] for k in (0, 1)] == near(2.2, 1.9)


def test_lg_fedavg_by_hand() -> None:
    """As FedPer, but the heads are averaged, to 2.05, and the bases stay."""
    toy = Toy(LGFedAvg(), **HEADS)
    toy.round()
    assert toy.x == near(2.05)
    assert [toy.examined(k) for k in (0, 1)] == [near(1.4, 2.05), near(0.8, 2.05)]


def test_fedbabu_by_hand() -> None:
    """Bases 1.4 and .8, hence 1.1; the head is 2 still, bit for bit. One epoch of fine-tuning at target 4: the residual is
    2.2 - 4 = -1.8, so b = 1.1 + .1 x 1.8 x 2 = 1.46 and h = 2 + .1 x 1.8 x 1.1 = 2.198."""
    toy = Toy(FedBABU(tune_epochs=1), **HEADS)
    toy.round()
    assert toy.x == near(1.1)
    assert toy.examined()[1] == 2.0
    assert toy.tuned() == near(1.46, 2.198)
    assert toy.x == near(1.1)


@pytest.mark.parametrize(("lam", "first", "second"), [(1.0, 1.2, 1.36), (0.0, 1.3, 1.57)])
def test_ditto_by_hand(lam: float, first: float, second: float) -> None:
    """v = 1, x = 0, minimum 4. lam = 1: v = 1 - .1 (-3 + 1) = 1.2, then 1.2 - .1 (-2.8 + 1.2) = 1.36; w = .4, then .76."""
    for steps, own, shared in ((1, first, 0.4), (2, second, 0.76)):
        toy = Toy(Ditto(lam=lam))
        toy.kept[0] = {**toy.first, "x": torch.tensor([1.0]).double()}
        toy.round(steps)
        assert toy.examined() == near(own)
        assert toy.x == near(shared)


def test_fine_tuning_by_hand() -> None:
    """FedAvg's step from 0 gives .4; two steps of fine-tuning with lr .5 halve the distance to 4 twice: 2.2, 3.1."""
    toy = Toy(FineTuned(epochs=1, steps=1, lr=0.5))
    toy.round()
    assert toy.x == near(0.4)
    assert toy.tuned() == near(3.1)


def test_local_training_by_hand() -> None:
    """Two rounds of one step: .4, then .76; the server holds nothing."""
    toy = Toy(LocalOnly())
    for after in (0.4, 0.76):
        done = toy.round()
        assert toy.examined() == near(after)
    assert toy.x == []
    assert {name: part.value.numel() for name, part in done[0].parts.items()} == dict.fromkeys(
        ("delta", "buffers", "counters"), 0
    )


# ---- cases that must coincide, bit for bit ----


@cache
def played(method, model: str, solver: str) -> Play:
    return Play(method, "examples", SOLVERS[solver], model).run()


def assert_same_server(one: Play, two: Play) -> None:
    for name, value in vars(two.server.model).items():
        assert torch.equal(getattr(one.server.model, name), value), name


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "method",
    [
        FedPer(layers=0), FedRep(layers=0), FedRep(layers=0, head_epochs=0), FedBABU(layers=0), Ditto(lam=0.0), Ditto(lam=0.7),
        FineTuned(), LGFedAvg(keep=2),
    ],
    ids=str,
)  # fmt: skip
def test_the_shared_model_is_that_of_fedavg(method, model: str, solver: str) -> None:
    assert_same_server(played(method, model, solver), played(FedAvg(), model, solver))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
def test_without_a_pull_dittos_own_model_is_that_of_local_training(model: str, solver: str) -> None:
    one, two = played(Ditto(lam=0.0), model, solver), played(LocalOnly(), model, solver)
    assert one.client_states.keys() == two.client_states.keys()
    for client, kept in two.client_states.items():
        assert all(torch.equal(one.client_states[client][name], value) for name, value in kept.items())


def test_heads_first_with_no_epochs_is_a_base_alone() -> None:
    """FedRep without head epochs trains the base at the initial heads, as FedBABU does."""
    one, two = (played(method, PLAIN, "momentum") for method in (FedRep(head_epochs=0), FedBABU()))
    assert_same_server(one, two)


def test_a_phase_writes_nothing_outside_of_its_parameters() -> None:
    """Momentum and decay would move a head that stands still."""
    play = played(FedBABU(), NORMED, "momentum")
    assert all(torch.equal(kept["x"], play.first["x"]) for kept in play.client_states.values())


# ---- what goes together ----


@pytest.mark.parametrize("method", [FedPer(), FedRep(), FedBABU()], ids=str)
def test_a_model_without_a_base_is_refused(method) -> None:
    with pytest.raises(ConfigError, match="the clients keep every parameter of this model, so nothing would be shared"):
        Toy(method)


def test_options_are_checked() -> None:
    for make, message in (
        (lambda: FedPer(layers=-1), "got layers = -1; expected a whole number of at least 0"),
        (lambda: FedRep(head_epochs=-1), "got head_epochs = -1"),
        (lambda: FedBABU(tune_epochs=-1), "got tune_epochs = -1"),
        (lambda: LGFedAvg(keep=0), "got keep = 0; expected a whole number of at least 1"),
        (lambda: Ditto(lam=-0.1), "got lam = -0.1; expected a finite number of at least 0"),
        (lambda: FineTuned(epochs=-1), "got epochs = -1"),
        (lambda: FineTuned(lr=0.0), "got lr = 0.0; expected a positive number"),
        (lambda: FineTuned(method="fine_tuned"), "expected another method"),
    ):
        with pytest.raises(ConfigError, match=message):
            make()


def test_a_pull_that_overshoots_is_a_caution() -> None:
    said = Toy(Ditto(lam=20.0)).algorithm.correction.cautions(SGD(lr=0.1))
    assert said == "lr = 0.1 times lam = 20 is above 1: the pull overshoots its anchor"
