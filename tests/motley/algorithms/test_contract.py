"""Every method keeps the contract: a new method joins by one row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

from motley.algorithms import CATALOGUE
from motley.algorithms.apfl import APFL
from motley.algorithms.ca2fl import CA2FL
from motley.algorithms.ditto import Ditto, OwnModel
from motley.algorithms.fedadamw import FedAdamW
from motley.algorithms.fedala import FedALA
from motley.algorithms.fedas import FedAS
from motley.algorithms.fedau import FedAU
from motley.algorithms.fedavg import FedAvg
from motley.algorithms.fedavgm import FedAvgM
from motley.algorithms.fedawe import FedAWE
from motley.algorithms.fedbabu import FedBABU
from motley.algorithms.fedbio import FedBiO
from motley.algorithms.fedbn import FedBN
from motley.algorithms.feddf import FedDF
from motley.algorithms.feddyn import FedDyn
from motley.algorithms.fedex_lora import FedExLoRA
from motley.algorithms.fedexp import FedExP
from motley.algorithms.fedgh import FedGH
from motley.algorithms.fedkd import FedKD
from motley.algorithms.fedlc import FedLC
from motley.algorithms.fedmd import FedMD
from motley.algorithms.fedmuon import FedMuon
from motley.algorithms.fednova import FedNova
from motley.algorithms.fedopt import FedAdagrad, FedAdam, FedYogi
from motley.algorithms.fedpac import FedPAC
from motley.algorithms.fedper import FedPer
from motley.algorithms.fedproto import FedProto
from motley.algorithms.fedprox import FedProx
from motley.algorithms.fedrep import FedRep
from motley.algorithms.fedrod import FedRoD
from motley.algorithms.fedrolex import FedRolex
from motley.algorithms.fedsa_lora import FedSALoRA
from motley.algorithms.fedsam import FedLESAM, FedSAM
from motley.algorithms.fedswa import FedMoSWA, FedSWA
from motley.algorithms.ffa_lora import FFALoRA
from motley.algorithms.fiarse import FIARSE
from motley.algorithms.fine_tuned import FineTuned
from motley.algorithms.fjord import FjORD
from motley.algorithms.flash_robust import RobustTraining
from motley.algorithms.flexlora import FlexLoRA
from motley.algorithms.flora import FLoRA
from motley.algorithms.fml import FML
from motley.algorithms.heterofl import HeteroFL
from motley.algorithms.hetlora import HetLoRA
from motley.algorithms.ifca import IFCA
from motley.algorithms.lg_fedavg import LGFedAvg
from motley.algorithms.local_only import LocalOnly
from motley.algorithms.local_optimisers import SGD, Adam, Clip
from motley.algorithms.lora_fedavg import LoRAFedAvg
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.mifa import MIFA, FedVARP
from motley.algorithms.moon import Moon
from motley.algorithms.moon_fednova import MoonFedNova
from motley.algorithms.parts import LocalRule, Loss, Method, Part, PersonalRule, Server
from motley.algorithms.per_fedavg import PerFedAvg
from motley.algorithms.pfedfda import PFedFDA
from motley.algorithms.pfedme import PFedMe
from motley.algorithms.qfedavg import QFedAvg
from motley.algorithms.rhfl import RHFL
from motley.algorithms.scaffold import ControlVariates, Scaffold
from motley.core.errors import EngineError
from motley.tasks.task import ModelState
from motley.testing.algorithms import CHECKS, Play, check_algorithm

MOMENTUM = SGD(lr=0.1, momentum=0.9, weight_decay=0.01)
ROWS = [
    (FedAvg(), None, None),
    (FedAvg(server_lr=0.5), "uniform", MOMENTUM),
    (FedProx(mu=0.5), None, SGD(lr=0.1, clip=Clip(1.0))),
    (FedProx(mu=1.0, adaptive=True), None, None),
    (FedAvgM(), None, None),
    (FedAdagrad(), None, None),
    (FedAdam(), None, None),
    (FedAdam(bias_correction="flower"), None, None),
    (FedYogi(), None, None),
    (FedExP(), None, None),
    (FedBN(), None, None),
    (FedBN(), "uniform", MOMENTUM),
    (FedNova(), None, None),
    (FedNova(mu=0.1, server_momentum=0.5), None, MOMENTUM),
    (Scaffold(), None, None),
    (Scaffold(server_lr=0.5), None, SGD(lr=0.1, momentum=0.9, clip=Clip(1.0, "gradient"))),
    (Scaffold(option="I"), None, Adam(lr=0.1)),
    (Scaffold(), "examples", MOMENTUM),
    (FedDyn(alpha=0.1), None, None),
    (FedDyn(alpha=0.1), "examples", None),
    (FedSAM(rho=0.5), None, MOMENTUM),
    (FedLESAM(rho=0.5), None, None),
    (FedLC(), None, None),
    (FedRoD(), None, MOMENTUM),
    (MIFA(), None, MOMENTUM),
    (FedVARP(), None, None),
    (MIFA(), "examples", None),
    (FedVARP(), "examples", MOMENTUM),
    (FedAU(), None, MOMENTUM),
    (FedAU(cutoff=1), "examples", None),
    (FedAWE(), None, MOMENTUM),
    (FedAWE(server_lr=0.5), "examples", None),
    (FedAdamW(), None, SGD(lr=0.01)),
    (FedAdamW(moments="coordinates", first_moment="run"), "examples", SGD(lr=0.01)),
    (FedMuon(), None, None),
    (FedMuon(form="code"), "examples", None),
    (FedSWA(), None, None),
    (FedMoSWA(), None, None),
    (FedMoSWA(rho=1.0, gamma=0.4), "examples", None),
    (CA2FL(), None, MOMENTUM),
    (CA2FL(server_lr=0.5), "examples", None),
    (RobustTraining(), None, None),
    (Moon(mu=5.0), None, None),
    (Moon(), "uniform", MOMENTUM),
    (MoonFedNova(), None, None),
    (MoonFedNova(mu=5.0), "uniform", MOMENTUM),
    (FedDF(steps=6, every=2, patience=4, batch_size=16), None, None),
    (FedBiO(), None, None),
    (FedBiO(reset=True, floor=0.0), "uniform", MOMENTUM),
    (RHFL(batch_size=16), None, None),
    (RHFL(batch_size=16), "examples", MOMENTUM),
    (RHFL(mode="kd", batch_size=16), None, None),
    (RHFL(mode="kd", batch_size=16, exchange="batch", adam="kept"), None, MOMENTUM),
    (FedDyn(alpha=0.1), None, Adam(lr=0.1)),
    (FedNova(mu=0.1), None, Adam(lr=0.1)),
    (FedProx(mu=0.5), None, Adam(lr=0.1)),
    (QFedAvg(), None, None),
    (QFedAvg(q=0.5), None, MOMENTUM),
    (QFedAvg(q=0.5), "examples", None),
    (LocalOnly(), None, None),
    (FedGH(), None, None),
    (FedGH(lr=0.5, epochs=2, batch_size=3), None, MOMENTUM),
    (FedKD(), None, MOMENTUM),
    (FedKD(t_start=0.5, t_end=0.6, rounds=2), "examples", None),
    (FML(), None, MOMENTUM),
    (FML(alpha=1.0, beta=0.2), "examples", None),
    (FedMD(samples=40, batch_size=16), None, None),
    (FedMD(samples=40, batch_size=16, epochs=2), None, MOMENTUM),
    (FedProto(), None, None),
    (FedProto(lam=5.0, prototype_weights="uniform"), "uniform", MOMENTUM),
    (FedPAC(), None, None),
    (FedPAC(lam=3.0, head_epochs=2, head_lr=0.3), "uniform", MOMENTUM),
    (FedAS(), None, None),
    (FedAS(align_epochs=2, align_lr=0.1), None, MOMENTUM),
    (PFedFDA(), None, None),
    (PFedFDA(interpolation="one", ridge=0.1), "uniform", MOMENTUM),
    (FedPer(), None, None),
    (FedRep(head_epochs=1, own_norms=True), None, MOMENTUM),
    (FedBABU(own_norms=True), None, None),
    (FedRep(head_epochs=2), None, MOMENTUM),
    (LGFedAvg(), "examples", None),
    (FedBABU(), "examples", None),
    (Ditto(lam=0.5), "examples", None),
    (Ditto(lam=0.5), "uniform", MOMENTUM),
    (APFL(adaptive=True), None, MOMENTUM),
    (PFedMe(lam=1.0, lr_p=0.1, inner_steps=2), None, None),
    (PerFedAvg(alpha=0.1), None, None),
    (FedALA(first_passes=2), None, MOMENTUM),
    (HeteroFL(), None, MOMENTUM),
    (HeteroFL(mask=False), "examples", None),
    (FIARSE(), None, MOMENTUM),
    (FIARSE(scope="layer", average="moved"), "examples", None),
    (FedRolex(), None, MOMENTUM),
    (FedRolex(), "examples", None),
    (IFCA(k=3), "examples", MOMENTUM),
    (IFCA(average="gradients", shared_base=True), "uniform", None),
    (FjORD(widths=(1.0, 0.5, 0.25)), None, MOMENTUM),
    (FjORD(widths=(1.0, 0.5, 0.25), distil=True), None, None),
    (LoRAFedAvg(), None, MOMENTUM),
    (LoRAFedAvg(measure_bias=True), None, None),
    (FFALoRA(), None, MOMENTUM),
    (FedSALoRA(), None, MOMENTUM),
    (FlexLoRA(), None, None),
    (FLoRA(), None, MOMENTUM),
    (FedExLoRA(), None, MOMENTUM),
    (FedExLoRA(residual_ranks=1), None, None),
    (HetLoRA(gamma=0.5, lam=0.1), None, MOMENTUM),
    (HetLoRA(gamma=1.0), None, None),
    (FineTuned({"name": "fedprox", "mu": 0.1}), None, None),
]


@pytest.mark.parametrize(
    ("method", "weights", "solver"), ROWS, ids=lambda value: type(value).__name__
)
def test_method_keeps_the_contract(method, weights, solver):
    check_algorithm(method, weights, solver)


@dataclass(frozen=True)
class Wrapped(LocalRule):
    """Another local rule, delegated to."""

    inner: LocalRule = field(default_factory=LocalRule)

    def __getattribute__(self, name):
        own = name in ("inner", "bound") or name.startswith("__")
        return object.__getattribute__(self, name) if own else getattr(self.inner, name)

    def bound(self, layout):
        return Wrapped(self.inner.bound(layout))


@dataclass(frozen=True)
class Wrapping(FedAvg):
    """A method whose local rule is wrapped."""

    method: Method = field(default_factory=FedAvg)

    def change(self, plain):
        algorithm = self.method.change(plain)
        return algorithm.replace(local=Wrapped(algorithm.local))


@pytest.mark.parametrize(
    "method", [FedBN(), RHFL(mode="kd", batch_size=16)], ids=lambda value: type(value).__name__
)
def test_a_wrapper_behaves_like_the_rule_that_it_wraps(method):
    """What a rule can do is asked of the object, never of its class."""
    check_algorithm(Wrapping(method=method))
    plain, wrapped = (
        Play(m, "uniform", SGD(lr=0.1), "an MLP with BatchNorm").run()
        for m in (method, Wrapping(method=method))
    )
    assert torch.equal(plain.server.model.x, wrapped.server.model.x)
    assert plain.client_states.keys() == wrapped.client_states.keys()


def test_every_method_of_the_catalogue_has_a_row():
    assert {type(method) for method, _, _ in ROWS} >= {
        CATALOGUE.get(name) for name in CATALOGUE.builtin
    }


# ---- the suite itself: each broken method below must be caught, by the check that is there for it
# ----


@dataclass(frozen=True)
class Aliased(ControlVariates):
    """Writes into the variate that all new clients share."""

    def finish(self, after, ctx):
        parts, client_state = super().finish(after, ctx)
        ctx.client_state["c"].copy_(client_state["c"])
        return parts, client_state


@dataclass(frozen=True)
class Talkative(ControlVariates):
    """Uploads what it does not declare."""

    def finish(self, after, ctx):
        parts, client_state = super().finish(after, ctx)
        return {**parts, "more": Part(torch.zeros(3), "sum")}, client_state


@dataclass(frozen=True)
class Extrapolates(ControlVariates):
    """Sends a variance that is none: buffers scaled as if they were an update."""

    def finish(self, after, ctx):
        parts, client_state = super().finish(after, ctx)
        buffers = parts["buffers"].value
        return {
            **parts,
            "buffers": Part(buffers - 2 * ctx.download["buffers"], "convex"),
        }, client_state


@dataclass(frozen=True)
class Remembers(ControlVariates):
    """Keeps outside of all states how many clients it trained."""

    trained: list = field(default_factory=list)

    def finish(self, after, ctx):
        self.trained.append(1)
        parts, client_state = super().finish(after, ctx)
        return {**parts, "dc": Part(parts["dc"].value * len(self.trained), "sum")}, client_state


@dataclass(frozen=True)
class Unheard(ControlVariates):
    """Says how clients are examined, and not that they use models of their own."""

    def examined(self, download, client_state):
        return ModelState(download["x"] - client_state["c"], *list(download.values())[1:3])


@dataclass(frozen=True)
class Unasked(ControlVariates):
    """Says how new clients adapt models of their own, which nobody has."""

    def adaptation(self, context):
        return ()


@dataclass(frozen=True)
class Undeclared(OwnModel):
    """Starts from the client's own model, and does not say so."""

    def start(self, download, client_state):
        return super().start(client_state or download, None)


@dataclass(frozen=True)
class Alike(PersonalRule):
    """Says that clients use models of their own, which all have the shared one."""


@dataclass(frozen=True)
class Broken(Scaffold):
    """SCAFFOLD with another local rule."""

    kind: str = "Aliased"
    kinds: ClassVar = {
        "Aliased": Aliased,
        "Talkative": Talkative,
        "Extrapolates": Extrapolates,
        "Remembers": Remembers,
        "Unheard": Unheard,
        "Unasked": Unasked,
        "Undeclared": Undeclared,
        "Alike": Alike,
    }

    def change(self, plain):
        rule = self.kinds[self.kind]()
        made = super().change(plain) if isinstance(rule, ControlVariates) else plain
        return made.replace(local=rule)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Aliased", "states of the other"),
        ("Talkative", "uploads are what was declared"),
        ("Extrapolates", "running variance below 0"),
        ("Remembers", "resume in mid-run: went on after round 1"),
        ("Unheard", "declares is personal = False"),
        ("Unasked", "nobody calls adaptation of Unasked; extend PersonalRule"),
        ("Undeclared", "declares starts_own = False"),
        ("Alike", "declares is personal = True"),
    ],
)
def test_broken_methods_are_caught(kind, message):
    with pytest.raises(AssertionError, match=message):
        check_algorithm(Broken(kind=kind))


@dataclass(frozen=True)
class KeepsOnes(CrossEntropy):
    """Makes a tensor for its first batch, which has another shape where clients train together."""

    kept: dict = field(default_factory=dict, compare=False)

    def loss(self, outputs, targets, extra):
        ones = self.kept.setdefault("ones", torch.ones_like(outputs[..., 0, 0]))
        return super().loss(outputs, targets, extra) * ones[..., None]


@dataclass(frozen=True)
class Keeping(FedAvg):
    """FedAvg with such a loss."""

    def change(self, plain):
        return super().change(plain).replace(loss=KeepsOnes())


def test_a_loss_that_one_engine_alone_can_use_is_caught():
    """What it keeps from the reference's run is of no help to another engine."""
    with pytest.raises(EngineError, match=r"work of clients \[2, 5, 0\] failed: .*size"):
        check_algorithm(Keeping())


def test_each_point_has_a_name_and_is_told():
    assert len(CHECKS) >= 8


@pytest.mark.parametrize(
    ("base", "method", "capability"),
    [
        (Loss, "prepare", "prepares"),
        (Server, "extra_exchange", "asks_clients"),
        (Server, "update_with_clients", "asks_clients"),
    ],
)
def test_what_a_part_can_do_is_read_from_what_it_overrides(base, method, capability):
    must = {"loss": lambda self: None, "update": lambda self: None}
    assert getattr(type("Plain", (base,), must)(), capability) is False
    assert getattr(type("Able", (base,), {**must, method: lambda self: None})(), capability) is True
