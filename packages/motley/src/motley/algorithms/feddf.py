"""FedDF: the server fuses the clients' models by distilling their ensemble on unlabelled data.

Lin, Kong, Stich, Jaggi: *Ensemble Distillation for Robust Model Fusion in Federated Learning*,
NeurIPS 2020 (arXiv:2006.07242).

    clients as in FedAvg;  teachers w_k = x + Delta_k, frozen, in eval mode;
    student w <- x + sum a_k Delta_k
    J times:   u a batch of public samples,
               q = softmax(1/M sum_k logits_k(u) / T)       (AVGLOGITS)
               w <- Adam(clip_5(grad KL(q || softmax(logits(w; u) / T)))),
               rate lr cosine-annealed over the J steps
    every 100 steps: validation accuracy; stop when 1000 bring no improvement;
               x <- the best student found
    clients that hold models of different architectures (Algorithm 3): a student for each
    architecture a, w_a <- x_a + sum over its clients of a_k Delta_k; the teachers are all clients

Symbols: M accepted clients, J ``steps``, T ``temperature``, a_k the round's weights. The average is
of *logits*: for logits (2, 0) and (0, 0) q is (0.731059, 0.268941), where the average of softmaxes
would be (0.690399, 0.309601).

State: none between rounds. Needs: public unlabelled samples (``public``), and labelled validation
samples of the server (``split.server``), never test data. Gives: one model. Cost: at the server M
passes over the public samples that it uses, and J steps; traffic as FedAvg. The server's work takes
wall time and no virtual time. It needs every single upload.

Deviations and readings
-----------------------
* INTERPRETATION-D one upload is not distilled, its model is taken (the code distils it). A teacher
  with logits that are not finite is left out; where none is left, the average stays.
* The student trains in train mode, so its BatchNorm statistics adapt to the public data;
  ``freeze_statistics`` distils in eval mode (INTERPRETATION-D: dropout is off with it).
* INTERPRETATION-D batches run through a permutation of the public samples, the last short batch
  left out (the code keeps it). The last step is measured too, so that fewer than ``every`` steps
  are. ``keep_average`` lets the average win where no student is better.
* No T^2 factor; teachers are not weighed by n_k. ``steps = 0`` is FedAvg, bit for bit, and FedAvg
  within each architecture where these differ (the experiment's key ``models``).
* READING an architecture without clients in a round is distilled all the same, from its model of
  before. All students see the same batches.
* The constants of the authors' scripts are the defaults, but for ``batch_size``; 10,000 steps a
  round are for a GPU: on a CPU take e.g. ``steps = 100, patience = 50``.
* Published: CIFAR-10 with CIFAR-100 images as public set, 20 clients, participation .4 in words and
  .1 in the script, 40 epochs at rate .1. The KL of the example's q to a uniform student is .110944.

>>> from motley.algorithms.feddf import FedDF
>>> FedDF(steps=100, patience=50, every=10).steps
100
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, client_models, needs_gather
from motley.algorithms.flat_adam import FlatAdam, clipped
from motley.algorithms.group_models import GroupTraining, group_of, joined
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    LocalRule,
    Method,
    NetworkFunction,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.core.arrays import Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState, class_logits
from motley.tasks.transfer import to_device

PAPER = cite("lin2020feddf")


def ensemble(
    teachers: Sequence[ModelState],
    inputs: Tensor,
    network: NetworkFunction,
    temperature: float = 1.0,
) -> Tensor | None:
    """Return the softmax ``[n, C]`` of the mean logits of the teachers whose logits are finite;
    None if there are none."""
    total = None
    count = 0
    for teacher in teachers:
        logits = class_logits(network.outputs(teacher, inputs)).double()
        if bool(torch.isfinite(logits).all()):
            total = logits if total is None else total + logits
            count = count + 1
    if total is None:
        return None
    return torch.softmax(total / (count * temperature), -1)


def divergence(target: Tensor, temperature: float = 1.0) -> Callable[[Tensor], Tensor]:
    """Return the function ``logits -> KL(target || softmax(logits / T))``, mean over the batch;
    target ``[B, C]``; logits ``[B, C]``, or ``[B, 1]`` where one output tells two classes apart."""
    entropy = torch.special.entr(target).sum(-1)

    def loss(logits: Tensor) -> Tensor:
        cross = -(target * torch.log_softmax(class_logits(logits) / temperature, -1)).sum(-1)
        return torch.mean(cross - entropy)

    return loss


@dataclass(frozen=True)
class FedDF(Method, Server):
    """Ensemble distillation at the server; the method is its own server rule.

    Parameters
    ----------
    steps: J, at most so many distillation steps a round.
    patience: steps without a better validation accuracy after which it stops.
    every: steps between measurements of the accuracy.
    batch_size, lr, clip: of the distillation.
    temperature: T.
    freeze_statistics: leave BatchNorm's statistics as averaged.
    keep_average: the average may be the best student.
    """

    paper: ClassVar[Paper] = PAPER
    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    unlike: ClassVar[str] = "feddf"
    steps: int = 10_000
    patience: int = 1_000
    every: int = 100
    batch_size: int = 128
    lr: float = 1e-3
    clip: float = 5.0
    temperature: float = 1.0
    freeze_statistics: bool = False
    keep_average: bool = False

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("patience", 1), ("every", 1), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected at least {least}")
        for name in ("lr", "clip", "temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(aggregator=Gather(), server=self)

    @override
    def local_among(self, local: LocalRule, layouts: tuple[Layout, ...], number: int) -> LocalRule:
        return GroupTraining(layouts, number)

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"public", "validation", "classes"}) if self.steps else frozenset()

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        return needs_gather("FedDF", algorithm)

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        student = step_model(state, total["delta"], total)
        teachers = client_models(state, total)
        if not self.steps or len(teachers) == 1:
            return ServerState(student, state.extra)
        layouts = context.groups
        if context.architectures is None:
            return ServerState(self._distilled([student], teachers, context)[0], state.extra)
        numbers = context.architectures[total["each.client"].numpy()].tolist()
        teachers = [group_of(t, layouts, n) for t, n in zip(teachers, numbers, strict=True)]
        students = [group_of(student, layouts, number) for number in range(len(layouts))]
        return ServerState(joined(self._distilled(students, teachers, context)), state.extra)

    def _distilled(
        self, averages: Sequence[ModelState], teachers: Sequence[ModelState], context: ServerContext
    ) -> Sequence[ModelState]:
        """Return the students, of which each begins with one of the averages."""
        public = context.public
        if context.network is None or public is None or context.validation is None:
            raise ConfigError(
                "FedDF was given no network, no public samples or no validation samples of the "
                "server"
            )
        order = (
            context.key.fold("public")
            .numpy()
            .permutation(len(public))[: self.steps * self.batch_size]
        )
        used = public[to_device(order, public.device)]
        target = ensemble(teachers, used, context.network, self.temperature)
        if target is None:
            return averages
        return [self._student(average, used, target, context) for average in averages]

    def _student(
        self, average: ModelState, used: Tensor, target: Tensor, context: ServerContext
    ) -> ModelState:
        """Return the best student that begins with an average, on the public samples that are used
        and the ensemble's softmax ``[n, C]`` on them."""
        network = context.network
        if network is None or context.validation is None:
            raise ConfigError("FedDF was given no network or no validation samples of the server")
        student = average
        adam = FlatAdam.fresh(average.x)
        best = average
        score = -1.0
        at = 0
        if self.keep_average:
            score = _accuracy(network, average, context.validation)
        for step in range(self.steps):
            rows = to_device(self._batch(context.key, step, len(used)), used.device)
            key = None if self.freeze_statistics else context.key.fold("dropout", step)
            slope = network.loss_gradient(
                student, used[rows], divergence(target[rows].to(used.dtype), self.temperature), key
            )
            if not math.isfinite(slope.loss) or not math.isfinite(float(slope.gradient.norm())):
                break
            lr = self.lr * (1.0 + math.cos(math.pi * step / self.steps)) / 2.0
            x, adam = adam.step(
                student.x, clipped(slope.gradient.to(student.x.device), self.clip), lr
            )
            student = dataclasses.replace(slope.state, x=x)
            if (step + 1) % self.every == 0 or step + 1 == self.steps:
                accuracy = _accuracy(network, student, context.validation)
                if accuracy > score:
                    best = student
                    score = accuracy
                    at = step + 1
                elif step + 1 - at >= self.patience:
                    break
        return best.to(average.x.device)

    def _batch(self, key: Key, step: int, count: int) -> Ints:
        """Return the rows of one step: batches of one permutation of all rows, then of the next."""
        size = min(self.batch_size, count)
        epoch, place = divmod(step, count // size)
        order = key.fold("epoch", epoch).numpy().permutation(count)
        return order[place * size : (place + 1) * size]


def _accuracy(
    network: NetworkFunction, model: ModelState, validation: tuple[Tensor, Tensor]
) -> float:
    inputs, labels = validation
    predicted = class_logits(network.outputs(model, inputs)).argmax(-1)
    return float((predicted == labels).double().mean())
