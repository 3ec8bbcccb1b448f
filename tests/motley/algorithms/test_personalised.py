"""Personalized methods: the worked numbers of docs/methods/algorithms.md, and the cases in which
two methods must coincide."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch

from motley.algorithms.apfl import APFL
from motley.algorithms.ditto import Ditto
from motley.algorithms.fedala import AdaptiveMixture, FedALA
from motley.algorithms.fedavg import FedAvg
from motley.algorithms.fedbabu import FedBABU
from motley.algorithms.fedbn import FedBN
from motley.algorithms.fedper import FedPer
from motley.algorithms.fedrep import FedRep
from motley.algorithms.fine_tuned import FineTuned
from motley.algorithms.lg_fedavg import LGFedAvg
from motley.algorithms.local_only import LocalOnly
from motley.algorithms.local_optimisers import SGD, Clip
from motley.algorithms.parts import Method
from motley.algorithms.per_fedavg import PerFedAvg
from motley.algorithms.pfedme import PFedMe
from motley.core.errors import ConfigError
from motley.engines.batches import BatchPlan
from motley.tasks.flat import FlatModule
from motley.testing.algorithms import MODELS, Play
from tests.motley.algorithms.toys import B, Toy

PLAIN, NORMED = MODELS
SOLVERS = {
    "plain": SGD(lr=0.1),
    "momentum": SGD(lr=0.1, momentum=0.9, weight_decay=0.01, clip=Clip(0.5)),
}
HEADS = {"model": B, "start": (1.0, 2.0), "targets": (4.0, 1.0)}


def near(*numbers: float):
    return pytest.approx(list(numbers), rel=1e-12, abs=1e-15)


# ---- worked numbers: toy A has w = 0 and minimum 4, toy B base 1, head 2 and targets 4 and 1; the
# learning rate is 0.1 ----


def test_fedper_by_hand() -> None:
    """Client 1: h = 2 - .1 (2 - 4) 1 = 2.2, b = 1 - .1 (2 - 4) 2 = 1.4; client 2: h = 1.9, b = .8.
    The base becomes 1.1."""
    toy = Toy(FedPer(), **HEADS)
    toy.round()
    assert toy.x == near(1.1)
    assert [toy.examined(k) for k in (0, 1)] == [near(1.1, 2.2), near(1.1, 1.9)]


def test_fedrep_by_hand() -> None:
    """The heads move first, to 2.2 and 1.9; then b = 1 - .1 (2.2 - 4) 2.2 = 1.396 and 1 - .1
    (1.9 - 1) 1.9 = .829."""
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
    """Bases 1.4 and .8, hence 1.1; the head is 2 still, bit for bit. One epoch of fine-tuning at
    target 4: the residual is 2.2 - 4 = -1.8, so b = 1.1 + .1 x 1.8 x 2 = 1.46 and h = 2 + .1 x 1.8
    x 1.1 = 2.198."""
    toy = Toy(FedBABU(tune_epochs=1), **HEADS)
    toy.round()
    assert toy.x == near(1.1)
    assert toy.examined()[1] == 2.0
    assert toy.tuned() == near(1.46, 2.198)
    assert toy.x == near(1.1)


@pytest.mark.parametrize(("lam", "first", "second"), [(1.0, 1.2, 1.36), (0.0, 1.3, 1.57)])
def test_ditto_by_hand(lam: float, first: float, second: float) -> None:
    """v = 1, x = 0, minimum 4. lam = 1: v = 1 - .1 (-3 + 1) = 1.2, then 1.2 - .1 (-2.8 + 1.2) =
    1.36; w = .4, then .76."""
    for steps, own, shared in ((1, first, 0.4), (2, second, 0.76)):
        toy = Toy(Ditto(lam=lam))
        toy.kept[0] = {**toy.first, "x": torch.tensor([1.0]).double()}
        toy.round(steps)
        assert toy.examined() == near(own)
        assert toy.x == near(shared)


@pytest.mark.parametrize(("adaptive", "alpha"), [(False, 0.5), (True, 0.85)])
def test_apfl_by_hand(adaptive: bool, alpha: float) -> None:
    """v = 1, w = 0, alpha = .5: m = .5 and g(m) = -3.5, so v = 1 + .1 x .5 x 3.5 = 1.175 and w =
    .4; adaptive, alpha moves by .1 (1 - 0) 3.5 to .85."""
    toy = Toy(APFL(alpha=0.5, adaptive=adaptive))
    toy.kept[0] = {**toy.first, "x": torch.tensor([1.0]).double()}
    toy.round()
    assert toy.kept[0]["x"].tolist() == near(1.175)
    assert toy.kept[0]["alpha"].tolist() == near(alpha)
    assert toy.x == near(0.4)
    assert toy.examined() == near(alpha * 1.175 + (1 - alpha) * 0.4)


@pytest.mark.parametrize(
    ("theta", "steps", "own", "shared"),
    [
        ("carried", 1, 0.68, 0.068),
        ("carried", 2, 1.03632, 0.164832),
        ("restarted", 2, 0.73644, 0.134844),
    ],
)
def test_pfedme_by_hand(theta: str, steps: int, own: float, shared: float) -> None:
    """lam = 2, lr_p = .1, two inner steps, lr .05: theta = .1 x 4 = .4, then .4 - .1 (-3.6 + .8) =
    .68; w = .05 x 2 x .68. What is kept is theta, not w."""
    toy = Toy(PFedMe(lam=2.0, lr_p=0.1, inner_steps=2, theta=theta), solver=SGD(lr=0.05))
    toy.round(steps)
    assert toy.examined() == near(own)
    assert toy.x == near(shared)


@pytest.mark.parametrize(
    ("eta", "weight", "begin", "after"), [(0.1, 0.2, 1.6, 1.84), (1.0, 0.0, 2.0, 2.2)]
)
def test_fedala_by_hand(eta: float, weight: float, begin: float, after: float) -> None:
    """t = 2, x = 0, W = 1: u = 0 and g = -4, so W = clip(1 - eta 4 x 2); u = 2 - 2 W; a step of .1
    towards 4. The update is relative to x, not to u, and an examination mixes the new model with
    the new x."""
    toy = Toy(FedALA(eta=eta, first_passes=1))
    toy.kept[0] = {**toy.first, "x": torch.tensor([2.0]).double()}
    (done,) = toy.round()
    assert begin == 2 - 2 * weight
    assert toy.kept[0]["weights"].tolist() == near(weight)
    assert toy.kept[0]["x"].tolist() == toy.x == done.parts["delta"].value.tolist() == near(after)


@pytest.mark.parametrize(("learned", "weight"), [(1, 0.92), (0, 0.8432)])
def test_fedala_learns_its_weights_anew_before_an_examination(learned: int, weight: float) -> None:
    """eta = .01, t = 2, x = 0, W = 1, as below: one pass gives .92, the two of the first use .8432,
    and u = 2 - 2 W. Nothing of it is kept, and two examinations of one model draw the same
    batches."""
    toy = Toy(FedALA(eta=0.01, first_passes=2))
    toy.kept[0] = {
        **toy.first,
        "x": torch.tensor([2.0]).double(),
        "learned": torch.tensor([learned]),
    }
    assert toy.prepared() == near(2 - 2 * weight) == toy.prepared()
    assert toy.kept[0]["weights"].tolist() == [1.0]
    toy.kept[0] = {**toy.first, "x": torch.tensor(toy.x).double()}
    assert toy.prepared() == toy.x  # there is nothing to mix


def test_fedala_passes_more_often_in_its_first_use() -> None:
    """eta = .01, t = 2, x = 0: W moves by -.01 (-2)(u - 4) with u = 2 - 2 W. First pass: W = 1 -
    .08 = .92. Second: u = .16 and g = -3.84, so W = .92 - .0768 = .8432. The next participation
    passes once."""
    toy = Toy(FedALA(eta=0.01, first_passes=2))
    toy.kept[0] = {**toy.first, "x": torch.tensor([2.0]).double()}
    toy.round()
    assert toy.kept[0]["weights"].tolist() == near(0.8432)
    assert toy.kept[0]["learned"].tolist() == [1]
    kept = toy.kept[0]
    x = 1.0
    toy.server.model.x.fill_(x)
    own = kept["x"].item()
    begin = own + (x - own) * 0.8432
    toy.round()
    assert toy.kept[0]["weights"].tolist() == near(0.8432 - 0.01 * (begin - 4) * (x - own))


def test_per_fedavg_by_hand() -> None:
    """u = 0 + .1 x 4 = .4, so w = .1 x 3.6 = .36; exact MAML would give .324. Examined after one
    step more: .36 + .364 = .724."""
    toy = Toy(PerFedAvg(alpha=0.1))
    toy.round()
    assert toy.x == near(0.36)
    assert toy.tuned() == near(0.724)


def test_fine_tuning_by_hand() -> None:
    """FedAvg's step from 0 gives .4; two steps of fine-tuning with lr .5 halve the distance to 4
    twice: 2.2, 3.1."""
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


# ---- what a new client does with the model that it receives, by hand ----


@pytest.mark.parametrize(
    ("method", "base", "head"),
    [
        (FedPer(), 1.0, 2.2),
        (FedRep(), 1.0, 2.2),
        (LGFedAvg(), 1.4, 2.0),
        (LocalOnly(), 1.4, 2.2),
        (FedAvg(), 1.4, 2.2),
        (FedBABU(), 1.4, 2.2),
        (PerFedAvg(), 1.4, 2.2),
        (FineTuned(), 1.4, 2.2),
        (FineTuned(method="fedper"), 1.0, 2.2),
    ],
    ids=str,
)
def test_a_new_client_adapts_what_is_its_own_or_else_everything(
    method: Method, base: float, head: float
) -> None:
    """Target 4, base 1 and head 2: h = 2 - .1 (2 - 4) 1 = 2.2 and b = 1 - .1 (2 - 4) 2 = 1.4, where
    they move."""
    assert Toy(method, **HEADS).adapted(1) == near(base, head)


@pytest.mark.parametrize(
    ("method", "first", "second"),
    [
        (Ditto(lam=1.0), 1.3, 1.54),
        (APFL(alpha=0.5), 1.075, 1.148125),
        (FedALA(), 1.3, 1.57),
        (PFedMe(), 1.3, 1.57),
    ],
    ids=str,
)
def test_a_new_clients_own_model_begins_at_the_shared_one(
    method: Method, first: float, second: float
) -> None:
    """x = 1, minimum 4. Ditto: v = 1 + .1 x 3 = 1.3, then 1.3 - .1 (-2.7 + .3) = 1.54. APFL: v =
    1 + .1 x .5 x 3 = 1.15 and the mixture with x is 1.075; then v = 1.15 + .05 x 2.925 = 1.29625.
    The others train x: 1.3, 1.3 + .27."""
    toy = Toy(method, start=(1.0,))
    assert [toy.adapted(1), toy.adapted(2)] == [near(first), near(second)]
    assert toy.x == near(1.0)


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
        FedPer(layers=0),
        FedRep(layers=0),
        FedRep(layers=0, head_epochs=0),
        FedBABU(layers=0),
        Ditto(lam=0.0),
        Ditto(lam=0.7),
        FineTuned(),
        LGFedAvg(keep=2),
        APFL(),
        APFL(adaptive=True),
        FedALA(eta=0.0),
    ],
    ids=str,
)
def test_the_shared_model_is_that_of_fedavg(method, model: str, solver: str) -> None:
    assert_same_server(played(method, model, solver), played(FedAvg(), model, solver))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
def test_without_a_pull_dittos_own_model_is_that_of_local_training(model: str, solver: str) -> None:
    one = played(Ditto(lam=0.0), model, solver)
    two = played(LocalOnly(), model, solver)
    assert one.client_states.keys() == two.client_states.keys()
    for client, kept in two.client_states.items():
        assert all(
            torch.equal(one.client_states[client][name], value) for name, value in kept.items()
        )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("model", MODELS)
def test_apfl_at_its_ends(model: str, solver: str) -> None:
    """alpha = 0 examines FedAvg's model exactly, alpha = 1 the models of local training."""
    zero, one, local = (
        played(method, model, solver) for method in (APFL(alpha=0.0), APFL(alpha=1.0), LocalOnly())
    )
    server = zero.server.model
    for client, kept in local.client_states.items():
        mixed = zero.algorithm.local.examined(
            zero.algorithm.local.download(zero.server), zero.client_states[client]
        )
        own = one.algorithm.local.examined(
            one.algorithm.local.download(one.server), one.client_states[client]
        )
        for name in ("x", "buffers"):
            assert torch.equal(getattr(mixed, name), getattr(server, name))
            assert torch.equal(getattr(own, name), kept[name])


@dataclass(frozen=True)
class OwnStart(Method):
    """FedALA whose weights stay at ``first`` for all parameters."""

    paper = FedALA.paper
    first: float

    def change(self, plain):
        return plain.replace(local=AdaptiveMixture(eta=0.0, tensors=99, first=self.first))


@pytest.mark.parametrize("solver", SOLVERS)
def test_fedala_with_fixed_weights(solver: str) -> None:
    """Weights of 1 examine FedAvg's model, weights of 0 train as local training does."""
    one, zero, local = (
        played(method, PLAIN, solver) for method in (OwnStart(1.0), OwnStart(0.0), LocalOnly())
    )
    assert_same_server(one, played(FedAvg(), PLAIN, solver))
    download = one.algorithm.local.download(one.server)
    for client, kept in local.client_states.items():
        assert torch.equal(
            one.algorithm.local.examined(download, one.client_states[client]).x,
            one.server.model.x,
        )
        assert torch.equal(zero.client_states[client]["x"], kept["x"])


@pytest.mark.parametrize("model", MODELS)
def test_pfedme_with_one_inner_step_is_fedavg(model: str) -> None:
    """With beta 1 and theta restarted, at the learning rate lr lam lr_p = .1 x 2 x .5 = .1."""
    one = played(PFedMe(lam=2.0, lr_p=0.5, inner_steps=1, theta="restarted"), model, "plain")
    torch.testing.assert_close(
        one.server.model.x, played(FedAvg(), model, "plain").server.model.x, rtol=1e-12, atol=1e-14
    )


def test_per_fedavg_without_a_first_step_is_fedavg_on_every_second_batch() -> None:
    play = Play(PerFedAvg(alpha=0.0), "uniform", SGD(lr=0.1))
    (job,), setting = play.jobs(0, (2,)), play.setting
    data = setting.task.federation
    model = FlatModule.of(setting.task.model, torch.float64)
    model.load(play.server.model)
    plan = BatchPlan.draw(setting.key("batches", job), 13, setting.work, 2 * job.steps)
    for step in range(job.steps):
        rows = torch.from_numpy(data.train[2][plan[2 * step + 1]])
        loss = torch.nn.functional.cross_entropy(model.module(data.x[rows]), data.y[rows])
        model.w -= 0.1 * model.gradient(loss)
    (done,) = play.train(0, (2,))
    torch.testing.assert_close(
        done.parts["delta"].value, model.w - play.server.model.x, rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    "method",
    [
        FedPer(layers=0, own_norms=True),
        FedRep(layers=0, own_norms=True),
        FedBABU(layers=0, own_norms=True),
        LGFedAvg(keep=2, own_norms=True),
    ],
    ids=str,
)
def test_own_norms_without_a_head_are_fedbn(method, solver: str) -> None:
    """Server and client states, bit for bit."""
    one = played(method, NORMED, solver)
    two = played(FedBN(), NORMED, solver)
    assert_same_server(one, two)
    assert one.client_states.keys() == two.client_states.keys()
    for client, kept in two.client_states.items():
        assert all(
            torch.equal(one.client_states[client][name], value) for name, value in kept.items()
        )


@pytest.mark.parametrize("method", [FedPer, FedRep, FedBABU, LGFedAvg])
def test_own_norms_of_a_model_without_any_change_nothing(method) -> None:
    one = played(method(own_norms=True), PLAIN, "momentum")
    two = played(method(), PLAIN, "momentum")
    assert_same_server(one, two)
    assert one.algorithm.local.shared is two.algorithm.local.shared


@pytest.mark.parametrize(
    "method", [FedPer(own_norms=True), FedRep(own_norms=True), FedBABU(own_norms=True)], ids=str
)
def test_own_norms_and_the_head_stay_with_the_client(method) -> None:
    """Of 69 parameters the server has the first layer's 35; 10 of BatchNorm and 24 of the head
    stay, and so do the statistics. BatchNorm moves at the clients that took part, FedBABU's head
    nowhere."""
    play = played(method, NORMED, "momentum")
    assert [getattr(play.server.model, name).numel() for name in ("x", "buffers", "counters")] == [
        35,
        0,
        0,
    ]
    for kept in play.client_states.values():
        norms = kept["x"][:10]
        head = kept["x"][10:]
        assert not torch.equal(norms, play.first["x"][:10])
        assert torch.equal(head, play.first["x"][10:]) is isinstance(method, FedBABU)
    assert max(kept["counters"].item() for kept in play.client_states.values()) > 0


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
    with pytest.raises(
        ConfigError,
        match="the clients keep every parameter of this model, so nothing would be shared",
    ):
        Toy(method)


def test_options_are_checked() -> None:
    for make, message in (
        (lambda: FedPer(layers=-1), "got layers = -1; expected a whole number of at least 0"),
        (lambda: FedRep(head_epochs=-1), "got head_epochs = -1"),
        (lambda: FedBABU(tune_epochs=-1), "got tune_epochs = -1"),
        (lambda: LGFedAvg(keep=0), "got keep = 0; expected a whole number of at least 1"),
        (lambda: Ditto(lam=-0.1), "got lam = -0.1; expected a finite number of at least 0"),
        (lambda: APFL(alpha=1.1), "got alpha = 1.1; expected a number from 0 to 1"),
        (lambda: PFedMe(lam=0.0), "got lam = 0.0; expected a positive number"),
        (
            lambda: PFedMe(inner_steps=0),
            "got inner_steps = 0; expected a whole number of at least 1",
        ),
        (lambda: PFedMe(theta="kept"), "got theta = 'kept'; expected 'carried' or 'restarted'"),  # type: ignore[arg-type]
        (lambda: PerFedAvg(alpha=-1.0), "got alpha = -1.0; expected a finite number of at least 0"),
        (lambda: PerFedAvg(tune_steps=-1), "got tune_steps = -1"),
        (lambda: FedALA(eta=-1.0), "got eta = -1.0; expected a finite number of at least 0"),
        (lambda: FedALA(share=0.0), "got share = 0.0; expected a number above 0, at most 1"),
        (lambda: FedALA(tensors=0), "got tensors = 0; expected a whole number of at least 1"),
        (lambda: FineTuned(epochs=-1), "got epochs = -1"),
        (lambda: FineTuned(lr=0.0), "got lr = 0.0; expected a positive number"),
        (lambda: FineTuned(method="fine_tuned"), "expected another method"),
    ):
        with pytest.raises(ConfigError, match=message):
            make()


def test_a_pull_that_overshoots_is_a_caution() -> None:
    said = Toy(Ditto(lam=20.0)).algorithm.local.cautions(SGD(lr=0.1))
    assert said == "lr = 0.1 times lam = 20 is above 1: the pull overshoots its anchor"
    for method, rate in (
        (PFedMe(), "lr_p = 0.09 times lam = 15"),
        (PFedMe(lam=11.0), "lr = 0.1 times lam = 11"),
    ):
        assert str(Toy(method).algorithm.local.cautions(SGD(lr=0.1))).startswith(rate)
    assert Toy(PFedMe(lam=10.0)).algorithm.local.cautions(SGD(lr=0.1)) is None
