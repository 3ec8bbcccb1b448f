"""pFedFDA: heads that are made of class means and a covariance of features; each client mixes the
server's with its own as its samples in two folds ask for.

Mclaughlin, Su: *Personalized Federated Learning via Feature Distribution Adaptation*, NeurIPS 2024
(arXiv:2411.00329).

    head(mu, S, p)  S' = (1 - e) S + e tr(S) / d I;   W = mu S'^-1
                    b_c = log p_c - mu_c . W_c / 2
    own(Z)          mu_c the mean of the features of class c, the server's of a class without any
                    S = sum |z - mu_y><z - mu_y| / (n - 1) + e + r I
    mixed(Z)        mu = s own mu + (1 - s) server's mu;   S = t own S + (1 - t) server's S
                    s, t in [0, 1]: the sum over two folds of Z of the mean cross entropy of one
                    under the head of the other's own, mixed, is least
    client k        p_c = share of class c among its samples + e, divided by their sum
                    base: the job's steps on l, under head(server's, p), which stands still;
                    Z the features of every batch, as it passes
                    sends the change of the base, and mixed(Z) less what it received
    server          adds the means of these changes to base, mu and S
    examined        the newest base under head(mixed(Z), p), with the newest mu and S and Z the
                    features of all samples; a class of at most two keeps the server's mean

Symbols: z [d] the input of the last linear layer, the head; l the loss of the task; e = 1e-4; r
``ridge``; s and t are one number under ``interpolation = "one"``, and 1 under ``local``. State:
the head that a client made in its last round, with which it is probed. At the server mu [C, d] and
S [d, d], whose upper triangle travels. Traffic: the base, mu and S, both ways. Time: the job's
steps. Every client is examined with a head made anew, also one that never took part; so is a new
client, whose epochs take no steps.

Deviations and readings
-----------------------
* The formulas are those of the authors' code (commit 73c7c40: ``train``, ``solve_beta``,
  ``compute_mle_statistics``, ``lda_classify``, ``evaluate_personalized``); of the paper's text only
  the beginning could be read, so no equation is cited by number.
* READING the code adds the number e to every entry of S, and the identity; e times the identity may
  have been meant, which would be ``ridge = 1e-4`` but for the number.
* READING s and t are where Newton's steps from 1/2 end, to rounding; the code takes ten of L-BFGS
  and stops at a slope of 1e-3. Where it has no fold, no class having two samples, both are 0.
* READING every other feature of a class is in a fold, in the order in which they pass; the code
  draws folds. Classes of one feature are in neither, as there.
* READING S of a single sample is that of none; the code divides by 0.
* READING mu begins as the weights of a further draw of the head, scaled to lie in [0, 1]; the code
  draws uniform numbers.
* INTERPRETATION-D before an examination features are of all samples; the code leaves out the rest
  that fills no batch. No features of augmented samples are measured there.
* The last round of the code asks all clients; here it is a round as any.
* Published: SGD .01 with momentum .5 and decay 5e-4, five epochs.

Worked
------
One feature, e = 0. Features 0 and 2 of class 0 and 3 of class 1: mu = (1, 3), the squares sum to 2,
S = 2 / 2 + 1 = 2. With the server's mu = (0, 2), S = 1 and s = t = 1/2, mu = (.5, 2.5), S = 1.5:
W = (1/3, 5/3), b = (-1/12, -25/12) + log p.

>>> import torch
>>> gaussians = Gaussians(torch.tensor([[0.5], [2.5]]), torch.tensor([[1.5]]))
>>> weight, bias = gaussians.head(torch.ones(2))
>>> weight.flatten().tolist(), bias.tolist()  # doctest: +ELLIPSIS
([0.333..., 1.666...], [-0.083..., -2.083...])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.fedper import PersonalHead
from motley.algorithms.fedproto import class_sums
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    MeasuredFeatures,
    Method,
    Part,
    Passed,
    Phase,
    Server,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.algorithms.personal import head_of, last_linear, require_head
from motley.core.errors import ConfigError
from motley.core.layout import Entry, Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

Interpolation = Literal["two", "one", "local"]
SMALL = 1e-4
FEATURES, TARGETS = "passed_features", "passed_targets"


class Gaussians(NamedTuple):
    """The distributions of the features of classes.

    Parameters
    ----------
    means: ``[C, d]``.
    covariance: that of all classes ``[d, d]``.
    """

    means: Tensor
    covariance: Tensor

    def shrunk(self) -> Tensor:
        """Return the covariance moved a little towards a multiple of the identity."""
        size = len(self.covariance)
        level = self.covariance.diagonal().mean() * torch.eye(size).to(self.covariance)
        return torch.lerp(self.covariance, level, SMALL)

    def head(self, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight ``[C, d]`` and bias ``[C]`` of the classifier under a prior ``[C]``."""
        weight = torch.linalg.solve_ex(self.shrunk(), self.means.mT)[0].mT
        return weight, prior.log() - (self.means * weight).sum(1) / 2

    def mixed(self, other: Gaussians, shares: Tensor) -> Gaussians:
        """Return the mixture with another: of the means so much of these as ``shares`` has first,
        of the covariance as it has last."""
        return Gaussians(
            torch.lerp(other.means, self.means, shares[0]),
            torch.lerp(other.covariance, self.covariance, shares[-1]),
        )


def prior_of(targets: Tensor, classes: int) -> Tensor:
    """Return the prior of classes, float64 ``[C]``: their shares of these targets, none 0; of no
    targets all alike."""
    counts = torch.bincount(targets, minlength=classes).double()
    shares = counts / counts.sum().clamp(min=1) + SMALL
    return shares / shares.sum()


def own_gaussians(
    measured: MeasuredFeatures, server: Gaussians, ridge: float, fewest: int = 1
) -> Gaussians:
    """Return the distributions of a client's own features; a class of fewer than ``fewest`` has the
    server's mean."""
    sums, counts = class_sums(server.means, measured)
    counts = counts.unsqueeze(1)
    means = torch.where(counts > 0, sums / counts.clamp(min=1), server.means)
    apart = measured.features.double() - means[measured.targets]
    square = apart.mT @ apart / max(len(apart) - 1, 1)
    covariance = square + SMALL + ridge * torch.eye(len(square)).to(square)
    return Gaussians(torch.where(counts >= fewest, means, server.means), covariance)


class Fold(NamedTuple):
    """Features to test, in the axes in which the own and the server's covariance are both diagonal.

    Parameters
    ----------
    features: ``[n, d]``.
    targets: ``[n]``.
    own, server: means ``[C, d]``.
    ratios: variances of the own covariance by the server's ``[d]``.
    """

    features: Tensor
    targets: Tensor
    own: Tensor
    server: Tensor
    ratios: Tensor

    @classmethod
    def of(cls, tested: MeasuredFeatures, own: Gaussians, server: Gaussians) -> Fold:
        """Return the fold for these distributions."""
        root = torch.linalg.cholesky(server.shrunk())
        inner = torch.linalg.solve_triangular(root, own.shrunk(), upper=False)
        inner = torch.linalg.solve_triangular(root, inner.mT, upper=False)
        ratios, axes = torch.linalg.eigh(inner)
        axes = torch.linalg.solve_triangular(root.mT, axes, upper=True)
        return cls(
            tested.features.double() @ axes,
            tested.targets,
            own.means @ axes,
            server.means @ axes,
            ratios,
        )

    def loss(self, shares: Tensor, log_prior: Tensor) -> Tensor:
        """Return the mean cross entropy under the head of the mixture."""
        means = torch.lerp(self.server, self.own, shares[0])
        weight = means / (1 + shares[-1] * (self.ratios - 1))
        logits = self.features @ weight.mT - (means * weight).sum(1) / 2 + log_prior
        return cross_entropy(logits, self.targets)


def best_shares(
    measured: MeasuredFeatures, server: Gaussians, prior: Tensor, ridge: float, count: int
) -> Tensor:
    """Return how much of the own means and covariance the mixture has, ``[count]``."""
    member = one_hot(measured.targets, len(prior))
    place = (member.cumsum(0) * member).sum(1) - 1
    paired = member.sum(0)[measured.targets] > 1
    _, no_inverse = torch.linalg.cholesky_ex(server.shrunk())
    if not paired.any() or no_inverse or not measured.features.isfinite().all():
        return prior.new_zeros(count)
    halves = [
        MeasuredFeatures(measured.features[rows], measured.targets[rows])
        for rows in (paired & (place % 2 == 0), paired & (place % 2 == 1))
    ]
    folds = [
        Fold.of(tested, own_gaussians(other, server, ridge), server)
        for tested, other in (halves, halves[::-1])
    ]
    log_prior = prior.log()

    def loss(shares: Tensor) -> Tensor:
        return folds[0].loss(shares, log_prior) + folds[1].loss(shares, log_prior)

    return least_in_unit_box(loss, prior.new_full((count,), 0.5))


@torch.enable_grad()
def least_in_unit_box(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return the point ``[m]`` of numbers from 0 to 1 at which a smooth function is least near
    ``start``, by Newton's steps."""
    point = start
    for _ in range(50):
        leaf = point.clone().requires_grad_()
        value = loss(leaf)
        (slope,) = torch.autograd.grad(value, leaf, create_graph=True)
        rows = [torch.autograd.grad(each, leaf, retain_graph=True)[0] for each in slope]
        slope, most = slope.detach(), value.detach() + 1e-12
        held = ((point <= 0) & (slope > 0)) | ((point >= 1) & (slope < 0))
        (free,) = (~held).nonzero(as_tuple=True)
        curvatures, axes = torch.linalg.eigh(torch.stack(rows)[free][:, free])
        along = axes.mT @ slope[free] / curvatures.abs().clamp(min=1e-9)
        step = torch.zeros_like(point).index_copy(0, free, axes @ along)
        after = (point - step).clamp(0, 1)
        while (after - point).abs().max() > 1e-12 and not loss(after) <= most:
            step = step / 2
            after = (point - step).clamp(0, 1)
        moved, point = (after - point).abs().max(), after
        if moved <= 1e-8:  # as far again as its square
            break
    return point


def triangle(square: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix ``[d, d]`` in one vector."""
    rows, columns = torch.triu_indices(*square.shape, device=square.device)
    return square[rows, columns]


def gaussians_of(tensors: Tensors) -> Gaussians:
    """Return the distributions that a server keeps and sends, float64."""
    upper = tensors["covariance"].double()
    size = isqrt(2 * len(upper))
    rows, columns = torch.triu_indices(size, size, device=upper.device)
    square = upper.new_zeros(size, size)
    square[rows, columns] = upper
    square[columns, rows] = upper
    return Gaussians(tensors["means"].double(), square)


def keep_features(own: Passed, others: Mapping[str, Passed], values: dict[str, Tensor]) -> Tensor:
    """Return the losses as they are, and add the batch's features and targets to the values; see
    :class:`motley.algorithms.phases.JointLoss`."""
    if own.features is None or own.targets is None:
        raise TypeError("features are gathered, and there are none")
    values[FEATURES] = torch.cat([values[FEATURES], own.features.detach()])
    values[TARGETS] = torch.cat([values[TARGETS], own.targets])
    return own.losses


@dataclass(frozen=True)
class GaussianHead(PersonalHead):
    """Local training of the base under a head made of the server's distributions of features; the
    client uploads how far those of its own, mixed with these, are from them."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "means", "covariance"})
    measures_features: ClassVar[bool] = True
    compares_features: ClassVar[bool] = True
    measures_before_examination: ClassVar[bool] = True
    interpolation: Interpolation = "two"
    ridge: float = 1.0

    @property
    @override
    def whole_batches(self) -> bool:
        return True

    @override
    def bound(self, layout: Layout) -> LocalRule:
        require_head(layout, "pFedFDA")
        shapes = [entry.shape for entry in _head(layout)]
        if [len(shape) for shape in shapes] != [2, 1]:
            raise ConfigError(
                "pFedFDA makes a head of a weight [C, d] and a bias [C], and the last linear layer "
                f"of this model has parameters of shape {', '.join(map(str, shapes))}; let it be a "
                "plain nn.Linear with a bias",
                "algorithm",
            )
        return super().bound(layout)

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), **server.extra}

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        none = self._no_features(context)
        base = frozenset(entry.name for entry in self.layout) - self.kept(self.layout)
        return (
            Phase(
                start=self._received_under(gaussians_of(context.download), context),
                where=base,
                joint=keep_features,
                values={FEATURES: none.features, TARGETS: none.targets},
            ),
        )

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        server = gaussians_of(context.download)
        none = self._no_features(context)
        passed = MeasuredFeatures(
            context.values.get(FEATURES, none.features), context.values.get(TARGETS, none.targets)
        )
        mixed = self._mixed(passed, context, fewest=1)
        parts, state = super().finish(self._under(mixed, after, context), context)
        covariance = triangle(mixed.covariance - server.covariance)
        return {
            **parts,
            "means": Part((mixed.means - server.means).to(after.x), "mean"),
            "covariance": Part(covariance.to(after.x), "mean"),
        }, state

    @override
    def adaptation(self, context: JobContext) -> tuple[Phase, ...]:
        measured = context.measured or self._no_features(context)
        mixed = self._mixed(measured, context, fewest=3)
        return (Phase("examined", start=self._received_under(mixed, context), epochs=0),)

    @property
    @override
    def before_examination(self) -> Callable[[JobContext], tuple[Phase, ...]]:
        return self.adaptation

    def _mixed(self, features: MeasuredFeatures, context: JobContext, fewest: int) -> Gaussians:
        """Return the distributions of a client's features, mixed with those that it received."""
        server = gaussians_of(context.download)
        own = own_gaussians(features, server, self.ridge, fewest)
        if self.interpolation == "local":
            return own
        count = 2 if self.interpolation == "two" else 1
        return own.mixed(
            server, best_shares(features, server, self._prior(context), self.ridge, count)
        )

    def _received_under(self, gaussians: Gaussians, context: JobContext) -> ModelState:
        """Return the received base under the head of these distributions."""
        return self._under(gaussians, self.start(context.download, context.client_state), context)

    def _under(self, gaussians: Gaussians, model: ModelState, context: JobContext) -> ModelState:
        """Return a model with the head of these distributions under the client's prior."""
        x = model.x.clone()
        for entry, value in zip(
            _head(self.layout), gaussians.head(self._prior(context)), strict=True
        ):
            x[entry.slice] = value.flatten().to(x)
        return dataclasses.replace(model, x=x)

    def _prior(self, context: JobContext) -> Tensor:
        measured = context.measured or self._no_features(context)
        return prior_of(measured.targets, last_linear(self.layout)[0])

    def _no_features(self, context: JobContext) -> MeasuredFeatures:
        features = context.x.new_zeros(0, last_linear(self.layout)[1])
        return MeasuredFeatures(features, features.new_zeros(0, dtype=torch.int64))

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.server, GaussianMean):
            name = type(algorithm.server).__name__
            return (
                "clients upload distributions of features, of which the server rule "
                f"{name} makes nothing; leave server out"
            )
        if algorithm.loss.whole_model:
            name = type(algorithm.loss).__name__
            return f"pFedFDA trains by outputs, and {name} compares features; leave loss out"
        if weights in ("horvitz_thompson", "selector"):
            return (
                "the server adds changes of a covariance, which stays one under weights that sum "
                f'to 1; got weights = "{weights}", use "examples" or "uniform"'
            )
        return None


def _head(layout: Layout) -> list[Entry]:
    """Return the parameters of the last linear layer."""
    names = head_of(layout, 1)
    return [entry for entry in layout if entry.name in names]


@dataclass(frozen=True)
class GaussianMean(Average):
    """The mean of bases and of distributions of features; ``layout`` and ``draw`` are set by
    :meth:`bound`."""

    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value
    draw: Callable[[int], ModelState] | None = None

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"classes"})

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return dataclasses.replace(self, layout=layout, draw=draw)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, GaussianHead):
            return None
        name = type(algorithm.local).__name__
        return f"pFedFDA averages distributions of features, of which {name} uploads none"

    @override
    def refuses_privacy(self) -> str | None:
        return "heads invert its covariance, which noise may leave without an inverse"

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        if self.draw is None:
            raise ConfigError("pFedFDA's server draws its first means from a head; bind it first")
        entry = _head(self.layout)[0]
        weight = self.draw(1).x[entry.slice].view(entry.shape)
        low, high = weight.min(), weight.max()
        if low == high:
            raise ConfigError(
                "pFedFDA draws its first class means from the initial weights of the head, which "
                "are all equal, so no class would differ from another; let them be random",
                "algorithm",
            )
        size = entry.shape[1]
        return ServerState(
            model,
            {
                "means": (weight - low) / (high - low),
                "covariance": triangle(torch.eye(size).to(model.x)),
            },
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        extra = {
            name: (value.double() + total[name]).to(value.dtype)
            for name, value in state.extra.items()
        }
        return ServerState(super().update(state, total, context).model, extra)


@dataclass(frozen=True)
class PFedFDA(Method):
    """Heads made of class means and a covariance of features, the server's mixed with the client's
    own.

    Parameters
    ----------
    interpolation: whether means and covariance are mixed by ``two`` numbers, by ``one``, or the
    ``local`` ones alone are taken.
    ridge: what is added to the variances of a client's features.
    """

    paper: ClassVar[Paper] = cite("mclaughlin2024pfedfda")
    interpolation: Interpolation = "two"
    ridge: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.ridge < float("inf"):
            raise ConfigError(f"got ridge = {self.ridge}; expected a positive number")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = GaussianHead(interpolation=self.interpolation, ridge=self.ridge)
        return plain.replace(local=local, server=GaussianMean())
