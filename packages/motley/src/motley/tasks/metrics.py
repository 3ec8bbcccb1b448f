"""Metrics: figures of a model on samples, by name (through scikit-learn and SciPy) or as functions
of one's own.

A metric is undefined where its formula says nothing (the AUROC of samples of one class): its value
is NaN.

=====================  ================================================  =======================
name                   figure                                            targets
=====================  ================================================  =======================
``loss``               mean of the task's loss; lower is better          any
``accuracy``           share of right classes, positions or labels       classes, positions,
                                                                         several labels
``balanced_accuracy``  mean over the classes that occur of the share of  classes, positions
                       their samples that is right
``macro_f1``           mean of the F1 scores of the classes that occur   as ``accuracy``
                       or are predicted (of the labels)
``auroc``              mean over classes (or labels) of the area under   classes, several labels
                       the ROC curve, each against the rest by its
                       log-odds; classes that no sample or every sample
                       has are left out
``top5``, ``top<k>``   share of samples whose class is among the k       classes, positions
                       largest outputs
``perplexity``         e to the mean of                                  classes, positions
                       ``-log softmax(outputs)[target]``; lower is
                       better
``mae``, ``rmse``      mean absolute and root mean squared error,        numbers
                       averaged over outputs; lower is better
``r2``                 coefficient of determination, averaged over       numbers
                       outputs
=====================  ================================================  =======================
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ints
from motley.core.errors import ConfigError, ModelError, suggest
from motley.core.own_code import place_in_own_code
from motley.tasks.targets import IGNORED, SAID, Targets

MetricFunction = Callable[[Any, Any], Any]
"""Outputs ``[n, ...]`` and targets ``[n, ...]`` as tensors -> a number."""

COLUMNS = ("accuracy", "loss")
"""The metrics that every evaluation measures."""


@dataclass(frozen=True)
class Metric:
    """A metric of one's own, or one of the names of this module.

    Parameters
    ----------
    name: under which it is reported.
    function: of outputs ``[n, ...]`` and targets ``[n, ...]`` (tensors), returns a number; NaN, or
    a ValueError, means that it is undefined for these samples. None: the metric of this module with
    that name.
    higher_is_better: which values are good.
    share: whether values lie in [0, 1] and are shown in percent.
    """

    name: str
    function: MetricFunction | None = None
    higher_is_better: bool = True
    share: bool = False

    @property
    def needs(self) -> str:
        """What an engine measures for it (:func:`motley.engines.scores.measured`)."""
        return "outputs" if self.function is not None else _rule(self.name).needs

    def value(
        self,
        outputs: NDArray[Any],
        targets: NDArray[Any],
        weight: Ints | None = None,
        of_all: bool = False,
    ) -> float:
        """Return the metric over n samples; NaN where it is undefined.

        Parameters
        ----------
        outputs: what :attr:`needs` says, ``[n, ...]``.
        targets: ``[n, ...]``.
        weight: positions of each sample ``[n]``, where samples have positions.
        of_all: whether these are all samples that are tested on: a function of one's own that
        raises a ValueError then says why in a warning.

        Raises
        ------
        ModelError: a function of one's own fails, or returns something that is no number.
        """
        if not len(targets):
            return float("nan")
        if self.function is not None:
            return _own(self.name, self.function, outputs, targets, of_all=of_all)
        return _rule(self.name).compute(outputs, targets, weight)


def known(targets: Targets) -> list[str]:
    """Return the names of metrics for such targets, ``top5`` for all ``top<k>``."""
    return sorted(
        [
            *(name for name, rule in _RULES.items() if targets in rule.targets),
            *(["top5"] if targets in _CLASSES else []),
        ]
    )


def as_metric(metric: Any) -> Metric:
    """Return a name, a function, an object with ``update``, ``compute`` and ``reset``
    (torchmetrics), or a Metric, as a Metric.

    Raises
    ------
    ModelError: none of these. ConfigError: an unknown name.
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        rule = _rule(metric)
        return Metric(metric, None, rule.higher_is_better, rule.share)
    better = getattr(metric, "higher_is_better", None)
    if all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset")):
        return Metric(_snake(type(metric).__name__), _Accumulated(metric), better is not False)
    if not callable(metric):
        raise ModelError(
            f"got the metric {metric!r}; expected a name, or a function of outputs and targets "
            "that returns a number"
        )
    name = getattr(metric, "__name__", type(metric).__name__)
    return Metric(_snake(name) if name.isidentifier() else "metric", metric, better is not False)


def chosen(
    entries: Sequence[Any],
    targets: Targets,
    classes: int | None,
    own: Iterable[Metric] = (),
    key: str = "metrics",
) -> tuple[str, tuple[Metric, ...]]:
    """Return the name of the first metric, the headline, and all but loss and accuracy.

    Parameters
    ----------
    entries: names, functions or Metrics, at least one.
    own: the task's, which may be named.
    key: of messages.

    Raises
    ------
    ConfigError: an unknown name, one for other targets, or a name twice.
    """
    named = {metric.name: metric for metric in own}
    metrics = []
    for entry in entries:
        if isinstance(entry, str) and entry not in named:
            _check(entry, targets, classes, own=[*named], key=key)
        metrics.append(
            named[entry] if isinstance(entry, str) and entry in named else as_metric(entry)
        )
    names = [metric.name for metric in metrics]
    twice = [
        name
        for name in names
        if names.count(name) > 1
        or (name in COLUMNS and metrics[names.index(name)].function is not None)
    ]
    if twice:
        raise ConfigError(
            f"got two metrics called {twice[0]!r}; give one a name of its own, Metric('name', "
            "function)",
            key,
        )
    return names[0], tuple(metric for metric in metrics if metric.name not in COLUMNS)


def _check(name: str, targets: Targets, classes: int | None, own: Sequence[str], key: str) -> None:
    """Refuse a name that is unknown or means nothing for these targets."""
    fitting = [*own, *known(targets)]
    if not _TOP.fullmatch(name) and name not in _RULES:
        raise ConfigError(
            f"got {name!r}{suggest(name, fitting)}; expected some of: {', '.join(fitting)}", key
        )
    rule = _rule(name)
    if targets not in rule.targets:
        of = " or ".join(dict.fromkeys(SAID[kind] for kind in rule.targets))
        raise ConfigError(
            f"got {name!r}, which is of {of}, and the targets of this task are {SAID[targets]}; "
            f"use some of: {', '.join(fitting)}",
            key,
        )
    top = _TOP.fullmatch(name)
    if top and int(top[1]) >= (classes or 0):
        raise ConfigError(
            f"got {name!r}, and there are {classes} classes; every sample would be right, take a "
            "smaller number",
            key,
        )


# ---------------------------------------------------------------------------------- metrics by name


class _Rule(NamedTuple):
    """What an engine measures, the metric of it, whether more is better, whether it is a share, and
    its kinds of targets."""

    needs: str
    compute: Callable[[NDArray[Any], NDArray[Any], Ints | None], float]
    higher_is_better: bool
    share: bool
    targets: tuple[Targets, ...]


def _mean(outputs: NDArray[Any], targets: NDArray[Any], weight: Ints | None) -> float:
    return float(np.average(outputs, weights=weight))


def _perplexity(outputs: NDArray[Any], targets: NDArray[Any], weight: Ints | None) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(_mean(outputs, targets, weight)))


def _counted(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return targets and predicted classes of all positions in a row; several labels stay
    ``[n, C]``."""
    if targets.dtype.kind == "f":
        return targets.astype(np.int64), outputs.astype(np.int64)
    keep = targets != IGNORED
    return targets[keep], outputs[keep]


def _hits(true: NDArray[Any], predictions: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """Return of every class how often it was predicted rightly, occurs, and was predicted. Counted
    here, for scikit-learn takes 5 ms a client, most of it to look at what it was given."""
    classes = 1 + max(true.max(initial=-1), predictions.max(initial=-1))
    rows = (true[true == predictions], true, predictions)
    hits, occurs, predicted = (np.bincount(row, minlength=classes) for row in rows)
    return hits, occurs, predicted


def _balanced_accuracy(outputs: NDArray[Any], targets: NDArray[Any], weight: Ints | None) -> float:
    hits, occurs, _ = _hits(*_counted(outputs, targets))
    present = occurs > 0
    return float((hits[present] / occurs[present]).mean()) if present.any() else float("nan")


def _macro_f1(outputs: NDArray[Any], targets: NDArray[Any], weight: Ints | None) -> float:
    """Return the mean of 2 TP / (2 TP + FP + FN) over the labels that occur or were predicted."""
    true, predictions = _counted(outputs, targets)
    if true.ndim > 1:
        hits, occurs, predicted = (
            (true & predictions).sum(0),
            true.sum(0),
            predictions.sum(0),
        )
    else:
        hits, occurs, predicted = _hits(true, predictions)
    size = occurs + predicted
    present = size > 0
    return float((2 * hits[present] / size[present]).mean()) if present.any() else float("nan")


def _auroc(outputs: NDArray[Any], targets: NDArray[Any], weight: Ints | None) -> float:
    """Return the mean area under the ROC curves by the rank statistic of Mann and Whitney, ties
    counted as a half."""
    from scipy.stats import rankdata

    scores = outputs.astype(np.float64)
    if targets.ndim > 1:
        positive = targets > 0.5
    else:
        scores = _log_odds(scores)
        positive = targets[:, None] == np.arange(scores.shape[1])
    if np.isnan(scores).any() or np.isposinf(outputs).any():
        return float("nan")
    hits = positive.sum(0)
    mixed = (hits > 0) & (hits < len(scores))
    if not mixed.any():
        return float("nan")
    hits = hits[mixed].astype(np.float64)
    ranks = (rankdata(scores[:, mixed], axis=0) * positive[:, mixed]).sum(0)
    return float(((ranks - hits * (hits + 1) / 2) / (hits * (len(scores) - hits))).mean())


def _log_odds(logits: Floats) -> Floats:
    """Return the log-odds of each class against all others, ``[n, C]``: its logit minus the
    logsumexp of the other logits, computed without the class itself.

    They rank samples as probabilities do, which round to 1, and tie, from a difference of 37 on.
    ``[n, 1]`` is the log-odds of the second of two classes already.
    """
    if logits.shape[1] <= 2:
        with np.errstate(invalid="ignore"):
            second_class = logits if logits.shape[1] == 1 else logits[:, 1:] - logits[:, :1]
        return np.concatenate([-second_class, second_class], axis=1)
    rows = np.arange(len(logits))
    top = logits.argmax(1)
    largest = logits[rows, top]
    rivals = logits.copy()
    rivals[rows, top] = -np.inf
    second = rivals.max(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        # seen from any other class, the largest logit is among the others
        share = np.exp(logits - largest[:, None])
        odds: Floats = logits - (largest[:, None] + np.log(share.sum(1, keepdims=True) - share))
        below = second + np.log(np.exp(rivals - second[:, None]).sum(1))
        odds[rows, top] = np.where(np.isneginf(second), np.inf, largest - below)
    return odds


def _of_sklearn(
    name: str, least: int = 1, **options: Any
) -> Callable[[NDArray[Any], NDArray[Any], Ints | None], float]:
    """Return a metric of numbers of scikit-learn; undefined for fewer than ``least`` samples or
    where it is not finite."""

    def compute(outputs: NDArray[Any], targets: NDArray[Any], weight: Ints | None) -> float:
        from sklearn import metrics

        out = outputs[:, : targets.shape[1]]
        if len(targets) < least or not np.isfinite(out).all():
            return float("nan")
        with np.errstate(all="ignore"):
            value = float(getattr(metrics, name)(targets, out, **options))
        return value if np.isfinite(value) else float("nan")

    return compute


_CLASSES: tuple[Targets, ...] = ("classes", "positions")
_ALL: tuple[Targets, ...] = ("classes", "positions", "multilabel", "numbers")
_NUMBERS: tuple[Targets, ...] = ("numbers",)
_TOP = re.compile(r"top([1-9]\d{0,5})")
_RULES: Mapping[str, _Rule] = {
    "accuracy": _Rule(
        needs="hit",
        compute=_mean,
        higher_is_better=True,
        share=True,
        targets=(*_CLASSES, "multilabel"),
    ),
    "auroc": _Rule(
        needs="outputs",
        compute=_auroc,
        higher_is_better=True,
        share=True,
        targets=("classes", "multilabel"),
    ),
    "balanced_accuracy": _Rule(
        needs="predicted",
        compute=_balanced_accuracy,
        higher_is_better=True,
        share=True,
        targets=_CLASSES,
    ),
    "loss": _Rule(needs="loss", compute=_mean, higher_is_better=False, share=False, targets=_ALL),
    "macro_f1": _Rule(
        needs="predicted",
        compute=_macro_f1,
        higher_is_better=True,
        share=True,
        targets=(*_CLASSES, "multilabel"),
    ),
    "mae": _Rule(
        needs="outputs",
        compute=_of_sklearn("mean_absolute_error"),
        higher_is_better=False,
        share=False,
        targets=_NUMBERS,
    ),
    "perplexity": _Rule(
        needs="nll", compute=_perplexity, higher_is_better=False, share=False, targets=_CLASSES
    ),
    "r2": _Rule(
        needs="outputs",
        compute=_of_sklearn("r2_score", 2, force_finite=False),
        higher_is_better=True,
        share=False,
        targets=_NUMBERS,
    ),
    "rmse": _Rule(
        needs="outputs",
        compute=_of_sklearn("root_mean_squared_error"),
        higher_is_better=False,
        share=False,
        targets=_NUMBERS,
    ),
}


def _rule(name: str) -> _Rule:
    """Return the rule of a name; raise ConfigError for an unknown one."""
    if _TOP.fullmatch(name):
        return _Rule(needs=name, compute=_mean, higher_is_better=True, share=True, targets=_CLASSES)
    if name not in _RULES:
        raise ConfigError(
            f"got {name!r}{suggest(name, [*_RULES, 'top5'])}; expected one of: "
            f"{', '.join(_RULES)}, top5"
        )
    return _RULES[name]


# ----------------------------------------------------------------------------- metrics of one's own


@dataclass(frozen=True)
class _Accumulated:
    """An object that accumulates batches (torchmetrics), as a function of all samples at once."""

    metric: Any

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        fresh = copy.deepcopy(self.metric)
        fresh.reset()
        fresh.update(outputs, targets)
        return fresh.compute()


def _own(
    name: str,
    function: MetricFunction,
    outputs: NDArray[Any],
    targets: Floats | Ints,
    of_all: bool,
) -> float:
    """Return the value of a user's function; a ValueError means that it is undefined, which is told
    of all samples together."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of clients for which it is undefined
            value = function(torch.from_numpy(outputs), torch.from_numpy(targets))
    except ValueError as error:
        if of_all:
            reason = (str(error).splitlines() or ["a ValueError"])[0]
            warnings.warn(
                f"the metric {name!r} is undefined on all samples together: {reason}"
                f"{place_in_own_code(error)}",
                stacklevel=2,
            )
        return float("nan")
    except Exception as error:  # a user's function may raise anything
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        shapes = f"outputs {list(outputs.shape)} and targets {list(targets.shape)}"
        place = place_in_own_code(error)
        raise ModelError(f"the metric {name!r} cannot take {shapes}: {reason}{place}") from error
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ModelError(
            f"the metric {name!r} gives {type(value).__name__}; expected one number"
        ) from None


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
