"""A loss of one's own as a function of outputs and targets: what it returns is compared, when the
task is made, with what it returns for each sample alone.

A loss that gives a sample the same value whoever else is in the batch is computed for each sample.
Any other is a *batch loss* (a Cox partial likelihood, a contrastive loss, a sum, a mean divided by
class weights), and is trained over whole batches, as torch trains it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as f

from motley.core.arrays import Floats, Ints
from motley.core.errors import ConfigError, ModelError
from motley.core.own_code import definition, place_in_own_code
from motley.tasks.targets import IGNORED, Targets

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""Outputs ``[B, ...]`` and targets ``[B, ...]`` of a batch -> the loss of each sample ``[B]``, or
one value for the batch."""

Over = Literal["sample", "batch"]
"""What a loss looks at: each sample by itself, or the whole batch."""

_JUDGED = 48
"""Samples on which a loss is compared, at most."""


@dataclass(frozen=True)
class SampleBySample:
    """A loss function that returns a batch's mean, as one that returns the loss of each sample:
    batches of one, by vmap."""

    function: LossFunction

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample ``[B]``."""
        each: Tensor = vmap(
            lambda out, target: self.function(out.unsqueeze(0), target.unsqueeze(0))
        )(outputs, targets)
        return each


@dataclass(frozen=True)
class OverBatch:
    """A loss function that looks at its whole batch, as one that returns a value for each sample.

    Where the function returns one value for the batch, every sample has this value, so that their
    mean, and its gradient, are the function's own.

    Parameters
    ----------
    function: the user's.
    declared: whether the user said so, or it was seen on the targets.
    """

    function: LossFunction
    declared: bool = False

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample ``[B]``."""
        value = self.function(outputs, targets)
        if not isinstance(value, Tensor):
            raise _no_tensor(value, self.function)
        return value if value.dim() else value.expand(len(outputs))


def _no_tensor(value: object, function: LossFunction) -> ModelError:
    """Return the error that a loss function returned something else than a tensor."""
    name = definition(function)
    return ModelError(
        f"the loss {f'{name} ' if name else ''}gives {type(value).__name__}; expected a tensor "
        "with one value per sample, or one for the batch"
    )


def plain_function(loss: LossFunction) -> LossFunction:
    """Return the function that the user gave."""
    return loss.function if isinstance(loss, SampleBySample | OverBatch) else loss


def representative(targets: Tensor, kind: Targets, count: int = _JUDGED) -> Ints:
    """Return the positions of at most ``count`` targets, of every kind.

    Half of them differ as much as they can: one sample of every class, or the smallest, the
    largest, the missing ones and those next to zero of every number, then spread evenly. The others
    have much in common, as a loss of pairs or groups needs it: samples of equal targets, and
    neighbours.

    Parameters
    ----------
    targets: ``[n, ...]``.
    kind: of the targets.
    count: of positions, at least 1.

    >>> representative(torch.tensor([5, 5, 5, 7, 5, 7]), "classes", 4).tolist()
    [0, 3, 1, 2]
    """
    values = targets.detach().cpu().numpy()
    rows = np.arange(len(values))
    if kind == "classes":
        first: Sequence[Ints] = [np.sort(np.unique(values, return_index=True)[1])]
    elif kind == "positions":
        missing = (values == IGNORED).sum(1)
        first = [missing.argsort(kind="stable")[[0, -1]]] if len(values) else []
    else:
        columns = values.reshape(len(values), -1).T[:4]
        first = [_ends(column) for column in columns]
        if kind == "multilabel":
            first = [_ends(values.sum(1)), *first]
    even = rows[:: max(1, len(rows) // count)]
    differing = _distinct(np.concatenate([*first, even]))[: (count + 1) // 2]
    alike = [_groups(column) for column in values.reshape(len(values), -1).T[:4]]
    neighbours = rows[: count // 4]
    remaining = _distinct(np.concatenate([*alike, neighbours, even]))
    positions: Ints = _distinct(np.concatenate([differing, remaining]))[:count]
    return positions


def _distinct(positions: Ints) -> Ints:
    """Return positions without repetition, in their order."""
    _, at = np.unique(positions.astype(np.int64), return_index=True)
    distinct: Ints = positions.astype(np.int64)[np.sort(at)]
    return distinct


def _groups(column: Floats) -> Ints:
    """Return the positions of three samples each of the values that occur most."""
    _, which, counts = np.unique(column, return_inverse=True, return_counts=True)
    often = np.argsort(-counts, kind="stable")[:4]
    groups = [np.flatnonzero(which == value)[:3] for value in often if counts[value] > 1]
    joined: Ints = np.concatenate([np.zeros(0, np.int64), *groups])
    return joined


def _ends(column: Floats) -> Ints:
    """Return the positions of the smallest and the largest number, of those next to zero on either
    side, and of one that is missing."""
    order = np.argsort(column, kind="stable")  # what is missing comes last
    finite = order[np.isfinite(column[order])]
    if not len(finite):
        return order[:1]
    zero = int(np.searchsorted(column[finite], 0.0))
    near = finite[[max(zero - 1, 0), min(zero, len(finite) - 1)]]
    return np.concatenate([finite[[0, -1]], near, order[len(finite) :][:1]])


def checked_loss(
    function: LossFunction, outputs: Tensor, targets: Tensor, over: Over | None = None
) -> LossFunction:
    """Return a user's loss as a function that gives each sample's loss ``[B]``: itself,
    :class:`SampleBySample` or :class:`OverBatch`.

    Parameters
    ----------
    function: returns the loss of each sample, or one value for the batch.
    outputs, targets: ``[n, ...]`` of the task's, on which the function is compared; they need not
        belong together.
    over: what the loss looks at; None: what the comparison shows.

    Raises
    ------
    ModelError: the function fails, returns another shape, does not depend on the outputs, or was
        said to be ``over = "sample"`` and is not. ConfigError: ``over`` is neither.
    """
    if over not in (None, "sample", "batch"):
        raise ConfigError(f'got {over!r}; expected "sample" or "batch"', "over")
    count = max(len(targets), 3)
    count += count == outputs.shape[-1]  # as many samples as no output has
    rows = torch.arange(count)
    outputs = outputs.detach()[rows % len(outputs)]
    targets = targets[rows % len(targets)]
    outputs, targets = _exactly(function, outputs, targets)
    value, _ = _tried(function, outputs, targets)
    again, _ = _tried(function, outputs, targets)
    if not torch.equal(value.nan_to_num(), again.nan_to_num()):
        raise ModelError(
            "the loss gives another value when it is called again with the same outputs and "
            "targets (random numbers, a running mean); expected a function of both alone"
        )
    if value.shape not in ((), (count,)):
        raise ModelError(
            f"the loss gives {list(value.shape)} for a batch of {count}; expected one value per "
            f"sample [{count}], or one for the batch"
        )
    if over == "batch":
        return OverBatch(function, declared=True)
    reason = _looks_at_batch(function, outputs, targets)
    if reason is None:
        by_sample: LossFunction = function if value.dim() else SampleBySample(function)
        reason = _unlike(function, by_sample, outputs, targets)
        if reason is None:
            return by_sample
    if over == "sample":
        raise ModelError(
            f'{reason}; say over = "batch", or give a function that returns one value per sample '
            "(reduction='none')"
        )
    warnings.warn(
        f'{reason}: it is trained over whole batches, as torch does; say over = "batch" if that '
        "is meant (a private run must be told so), or give a function that returns one value per "
        "sample (reduction='none')",
        stacklevel=3,
    )
    return OverBatch(function)


def loss_of_logits(function: LossFunction, outputs: Tensor, targets: Tensor) -> str:
    """Return which loss a user's function computes of these outputs ``[B, C]`` and targets:
    ``cross_entropy``, ``bce``, ``nll``; empty: none of them."""
    values: dict[str, LossFunction] = {}
    if targets.dtype == torch.int64 and outputs.dim() == 2 and outputs.shape[1] > 1:
        values = {"cross_entropy": f.cross_entropy, "nll": f.nll_loss}
    elif targets.numel() == outputs.numel():
        values = {
            "bce": lambda o, y: f.binary_cross_entropy_with_logits(o, y.reshape(o.shape).to(o))
        }
    for name, value in values.items():
        try:
            pairs = [(function(o, targets), value(o, targets)) for o in _alike(outputs)]
        except Exception:  # a user's function may raise anything, of numbers that it does not take
            continue
        if all(_close(first.mean(), second) for first, second in pairs):
            return name
    return ""


def _exactly(function: LossFunction, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and targets in float64, where the function takes them and computes so."""
    exact = outputs.double(), targets.double() if targets.is_floating_point() else targets
    try:
        value, _ = _tried(function, *exact)
    except ModelError:  # float32 weights of classes, for example
        return outputs, targets
    return exact if value.dtype == torch.float64 else (outputs, targets)


def _looks_at_batch(function: LossFunction, outputs: Tensor, targets: Tensor) -> str | None:
    """Return the sentence that a loss looks at its whole batch, with the two values that show it;
    None if it gives every sample of any batch what it gives that sample alone."""
    for seen in _alike(outputs):
        try:
            function(seen, targets)
        except Exception:  # numbers near the outputs may be none that the loss takes
            continue
        alone = _alone(function, seen, targets)
        if alone is None:
            return "the loss cannot be computed for a sample alone"
        values, gradients = alone
        for rows in _batches(len(targets)):
            try:
                value, gradient = _tried(function, seen[rows], targets[rows])
            except ModelError:
                return "the loss cannot be computed for some batches"
            expected = values[rows] if value.dim() else values[rows].mean()
            if not (_close(value, expected) and _close(gradient * len(rows), gradients[rows])):
                total = not value.dim() and _close(value, values[rows].sum())
                if total:
                    return "the loss is the sum over its batch"
                return (
                    "the loss of a sample depends on the other samples of its batch (of "
                    f"{len(rows)} together {_shown(value.mean())}, the mean of each alone "
                    f"{_shown(values[rows].mean())})"
                )
    return None


def _alone(
    function: LossFunction, outputs: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return the loss of each sample alone ``[n]``, and its gradient ``[n, ...]``; None if the
    function takes no single sample."""
    values = []
    gradients = []
    for i in range(len(targets)):
        try:
            value, gradient = _tried(function, outputs[i : i + 1], targets[i : i + 1])
        except ModelError:
            return None
        values.append(value.reshape(()))
        gradients.append(gradient)
    return torch.stack(values), torch.cat(gradients)


def _alike(outputs: Tensor) -> Iterator[Tensor]:
    """Yield the outputs, mixtures of them (which stay probabilities, where they are), and numbers
    near them: a new model may give all samples the same."""
    yield outputs
    draws = torch.Generator().manual_seed(0)
    shuffled = outputs[torch.randperm(len(outputs), generator=draws)]
    yield torch.lerp(outputs, shuffled, 0.3)
    yield outputs + torch.randn(outputs.shape, generator=draws).to(outputs.dtype)


def _batches(count: int) -> Iterator[Tensor]:
    """Yield rows of batches: all samples, halves, threes and pairs, in an order of their own."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    for size in dict.fromkeys((count, (count + 1) // 2, 3, 2)):
        yield from (rows for rows in torch.split(order, size)[:8] if len(rows) > 1)


def _unlike(
    function: LossFunction, by_sample: LossFunction, outputs: Tensor, targets: Tensor
) -> str | None:
    """Return why a loss cannot be computed sample by sample although it looks at one sample only;
    None if it can."""
    if by_sample is function:
        return None
    try:
        value, gradient = _tried(by_sample, outputs, targets)
    except ModelError:
        return "torch cannot compute this loss for many samples at once"
    expected, slope = _tried(function, outputs, targets)
    if _close(value.mean(), expected) and _close(gradient, slope):
        return None
    return "torch computes this loss differently for many samples at once"


def _close(first: Tensor, second: Tensor) -> bool:
    loose = torch.float64 not in (first.dtype, second.dtype)
    rtol, atol = (1e-3, 1e-5) if loose else (1e-9, 1e-12)
    return torch.allclose(first.double(), second.double(), rtol=rtol, atol=atol, equal_nan=True)


def _shown(value: Tensor) -> str:
    return f"{float(value):.4g}"


def _of_two_classes(outputs: Tensor, targets: Tensor) -> str:
    """Return what to write where one output tells two classes apart, whose labels are whole
    numbers ``[B]``: torch's binary losses expect numbers of the outputs' shape."""
    if outputs.shape[1:] != (1,) or targets.dim() != 1 or targets.is_floating_point():
        return ""
    return (
        '; of one output for two classes leave the loss out, which is "bce" then '
        "(BCEWithLogitsLoss), or write loss=lambda outputs, labels: "
        "...(outputs[:, 0], labels.float())"
    )


def _tried(function: LossFunction, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the function's value, and the gradient of a batch's loss by the outputs: of the value
    itself, or of the samples' mean.

    A value per sample of a batch of one may come without its dimension.

    Raises
    ------
    ModelError: the function fails, or its value has no gradient.
    """
    with torch.enable_grad():
        leaf = outputs.clone().requires_grad_()
        try:
            # copies of a leaf, as in training: a loss may change what it is given
            copies = leaf.clone(), targets.clone()
            value = function(*copies)
        except Exception as error:  # a user's function may raise anything
            shapes = (
                f"outputs {list(outputs.shape)} and targets {list(targets.shape)} ({targets.dtype})"
            )
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"the loss cannot take {shapes}: {reason}{place_in_own_code(error)}"
                f"{_of_two_classes(outputs, targets)}"
            ) from error
        for name, argument in zip(("outputs", "targets"), copies, strict=True):
            if argument._version:
                raise ModelError(
                    f"the loss changes the {name} that it is given, which metrics and later "
                    f"batches see; write it out of place, {name} = {name} - 1 for {name} -= 1"
                )
        if not isinstance(value, Tensor):
            raise _no_tensor(value, function)
        if not value.requires_grad:
            raise ModelError(
                "the loss does not depend on the outputs in a way that has a gradient (argmax, "
                "detach, item, whole numbers)"
            )
        (gradient,) = torch.autograd.grad(value.mean(), leaf, materialize_grads=True)
    return value.detach(), gradient
