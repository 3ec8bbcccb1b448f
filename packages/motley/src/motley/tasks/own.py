"""Models of your own, any ``nn.Module``, with federations of your own, which the distribution
``motley-data`` makes.

>>> import numpy as np
>>> from motley.tasks import from_clients
>>> from torch import nn
>>> clients = [(np.random.default_rng(k).normal(size=(20, 3)), np.arange(20) % 2) for k in range(4)]
>>> federation = from_clients(clients, test_fraction=0.25)
>>> task = own_task(federation, lambda: nn.Linear(3, 2))
>>> len(federation), federation.train.sizes.tolist(), task.layout.size
(4, [15, 15, 15, 15], 8)
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.core.arrays import Ints
from motley.core.errors import ConfigError, DataError, ModelError, UserError
from motley.core.fingerprint import UNKNOWN, fingerprint_or_reason
from motley.core.fingerprint import fingerprint as hash_of
from motley.core.keys import Key
from motley.core.own_code import place_in_own_code
from motley.tasks.architectures import Architectures
from motley.tasks.batch_orders import BatchOrder
from motley.tasks.dense_targets import DenseLoss, DenseOutputs
from motley.tasks.fields import Field, TakesFields
from motley.tasks.flat import construct, layout_of
from motley.tasks.logits import as_logits
from motley.tasks.metrics import Metric, MetricFunction, chosen
from motley.tasks.narrow_models import rough_operations
from motley.tasks.nn import class_name, replace_stochastic, require_keyed, set_stream
from motley.tasks.own_loss import (
    LossFunction,
    Over,
    checked_loss,
    loss_of_logits,
    plain_function,
    representative,
)
from motley.tasks.preparation import FieldsPreparation
from motley.tasks.targets import Targets
from motley.tasks.task import Dataset, Federation, Task, TaskSource, Transform, model_input
from motley.tasks.unscaled import warn_of_unscaled

_OPERATIONS = 2_000_000_000
"""Floating-point operations of the forward pass on which a loss is compared, at most."""

__all__ = [
    "Own",
    "fingerprint",
    "outputs_of",
    "own_task",
    "plain_factory",
    "sample_outputs",
]


@dataclass(frozen=True)
class Own(TaskSource):
    """Data and a model made in Python, passed beside the experiment:
    ``motley.run(experiment, task=own_task(...))``.

    Parameters
    ----------
    fingerprint: hash of data, weights and code, set by ``motley.run``, so that the run id depends
    on them.
    """

    has_clients: ClassVar[bool] = True

    fingerprint: str = ""
    made: Task | None = field(init=False, repr=False, compare=False, default=None)
    """The task itself; None in an experiment that was read from a file."""

    @classmethod
    def of(cls, task: Task) -> Own:
        """Return the source that stands for a task in an experiment."""
        own = cls(fingerprint(task))
        object.__setattr__(own, "made", task)
        return own

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        raise ConfigError(
            "this task's data and model are Python objects; use motley.run(experiment, "
            "task=own_task(...))",
            "task",
        )

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        raise ConfigError(
            "this task's data and model are Python objects; use motley.run(experiment, "
            "task=own_task(...))",
            "task",
        )


def fingerprint(task: Task) -> str:
    """Return a hash of a task: its data, initial weights, trainable parameters, structure, and the
    code and values of its functions.

    Weights are those that the factory makes under one fixed seed of torch. Where something has no
    fingerprint (an open file, a lock, a factory that draws from another generator than torch's),
    the result is :data:`~motley.core.fingerprint.UNKNOWN` and the reason.
    """
    # none: the hash of before
    reported = [
        "notes",
        "measured",
        "shares",
        *([] if task.federation.client_names else ["client_names"]),
        *([] if task.federation.own_rows else ["own_rows"]),
        *([] if task.federation.target_shape else ["target_shape"]),
    ]
    data = {
        entry.name: getattr(task.federation, entry.name)
        for entry in fields(task.federation)
        if entry.name not in reported
    }
    parts = {
        entry.name: getattr(task, entry.name)
        for entry in fields(task)
        if entry.name not in ("name", "federation", *(() if task.batches else ("batches",)))
        and (entry.name != "architectures" or task.architectures is not None)
    }
    weights, again = (fingerprint_or_reason(_drawn(task)) for _ in range(2))
    if weights != again:
        return (
            f"{UNKNOWN}the model has other weights each time it is made with the same seed of "
            "torch (numpy.random, random)"
        )
    digests = [weights, *map(fingerprint_or_reason, (data, parts))]
    return next((entry for entry in digests if entry.startswith(UNKNOWN)), hash_of(digests))


def _drawn(task: Task) -> nn.Module | list[nn.Module]:
    """Return a fresh module of a task, or of each of its architectures."""
    if task.architectures is None:
        return construct(task.model, 0)
    return [construct(factory, 0) for factory in task.architectures.factories]


def own_task(
    federation: Federation,
    model: Callable[[], nn.Module] | Sequence[Callable[[], nn.Module]],
    *,
    holders: Callable[[int], int] | None = None,
    loss: str | Mapping[str, Any] | LossFunction | None = None,
    over: Over | None = None,
    metric: str | Metric | MetricFunction | Sequence[Any] | None = None,
    transform: Transform | None = None,
    batches: BatchOrder | None = None,
    name: str = "own",
) -> Task:
    """Return a task of your own data and model.

    Parameters
    ----------
    model: makes a fresh module; torch's dropout layers in it are replaced by layers that draw from
    the job's key. A model of ``transformers`` or ``peft`` becomes a module of one tensor and scores
    (:class:`~motley.tasks.logits.LogitsOf`), which also gives it its attention mask. Or a list of
    such functions, of whose models every client holds one (docs/unlike-models.md).
    holders: with a list, the number of a client's model, from 0, as a function of the client's
    number; None: as the experiment's key ``models`` says, by default in turn.
    loss: name, or name and options (``{"name": "huber", "delta": 2.0}``), or a function of outputs
    ``[B, ...]`` and targets ``[B, ...]`` that returns the loss of each sample ``[B]``, or one value
    for the batch. Unless given, ``cross_entropy`` for classes, ``bce`` for several labels per
    sample or one output for two classes, ``half_squared_error`` for numbers.
    over: what a loss function looks at: ``"sample"``, each sample by itself, or ``"batch"``, the
    whole batch (Cox, contrastive losses, class weights in a mean); None: what is seen when its
    values of batches are compared with those of each sample alone.
    metric: one or several of: names (:mod:`motley.tasks.metrics`), functions of outputs ``[n,
    ...]`` and targets ``[n, ...]`` that return a number, :class:`~motley.tasks.metrics.Metric`,
    objects of torchmetrics. The first is the headline; unless given, ``accuracy`` or, in
    regression, ``loss``, which are always measured.
    transform: maps a raw batch to model input; see :data:`~motley.tasks.task.Transform`.
    batches: a function of the run's seed and a client that yields the positions of each step's
    batch among the client's training samples, through the whole run
    (:mod:`motley.tasks.batch_orders`); None: a new pass in every round.

    Samples of several inputs reach the model as arguments of its ``forward``
    (:class:`~motley.tasks.fields.TakesFields`); of targets per pixel ``[n, H, W]`` model and loss
    see pictures, and metrics that are functions positions ``[n, H * W, C]``.

    Samples of whole numbers (int64: characters, words, categories) reach the model as they are if
    it takes them, for example in an ``nn.Embedding``; a model that does not take them gets
    floating-point numbers.

    Raises
    ------
    ModelError: a random layer that cannot be tied to a key, a module that cannot take the data,
    outputs of the wrong shape, or a loss that fails, has no gradient, or is not what ``over`` says.
    ConfigError: ``over`` beside a loss that is not a function.
    """
    if isinstance(model, list | tuple):
        tasks = [
            own_task(
                federation,
                factory,
                loss=loss,
                over=over,
                metric=metric,
                transform=transform,
                name=name,
                batches=batches,
            )
            for factory in model
        ]
        return _several(tasks, holders)
    if holders is not None:
        raise ConfigError(
            "it says which of several models a client holds, and got one; give a list of functions "
            "that make models, or leave it out",
            "holders",
        )
    _check_given(federation, loss, over)
    several = federation.preparation
    fields = several.fields if isinstance(several, FieldsPreparation) else ()
    factory = _factory(model)
    make = partial(_made, factory, fields) if fields else partial(_made, factory)
    if dense := federation.target_shape:
        make = partial(_dense, make, dense, federation.classes is not None)
    module = construct(make, 0)
    layout = layout_of(module)
    # a loss of one's own may read several columns of a target beside one output: event and time
    own_loss = loss is not None and not isinstance(loss, str | Mapping)
    fewest = 1 if own_loss and federation.targets == "numbers" else None
    federation, outputs = _tried(make, federation, transform, fewest)
    warn_of_unscaled(make, federation, transform)
    kind = federation.targets
    if kind == "numbers" and not own_loss:
        _check_width(class_name(module), outputs.shape[-1], federation.y.shape[-1])
    is_torch_loss = isinstance(loss, nn.CrossEntropyLoss)
    if loss is None:
        loss = _usual_loss(kind, outputs)
    elif not isinstance(loss, str | Mapping):
        if dense:
            loss = DenseLoss(loss, dense, federation.classes is not None)
        loss = _checked(loss, over, make, federation, transform=transform)
    name_of_loss = "cross_entropy" if is_torch_loss else _name_of(loss, outputs, federation)
    if name_of_loss == "bce":
        _warn_of_sigmoid(make, federation, transform)
    else:
        _warn_of_outputs(outputs, name_of_loss)
    usual_metric = "loss" if kind == "numbers" else "accuracy"
    measures = usual_metric if metric is None else metric
    measures = measures if isinstance(measures, list | tuple) else [measures]
    if not measures:
        raise ConfigError("got no metric; leave metric out, or name one", "metric")
    headline, metrics = chosen(measures, kind, federation.classes, key="metric")
    return Task(
        name,
        federation,
        model=make,
        loss=loss,
        metric=headline,
        transform=transform,
        layout=layout,
        metrics=metrics,
        batches=batches,
    )


def _factory(model: Any) -> Callable[[], nn.Module]:
    """Return the function that makes a module; refuse a module."""
    if isinstance(model, nn.Module):
        raise ModelError(
            "got a module; give a function that makes a fresh one, e.g. lambda: "
            "copy.deepcopy(module)"
        )
    if not callable(model):
        raise ModelError(f"got {model!r}; give a function that makes a fresh module")
    return cast("Callable[[], nn.Module]", model)


def _check_given(federation: Federation, loss: Any, over: Over | None) -> None:
    """Refuse what is no federation or no loss."""
    if not isinstance(federation, Federation):
        raise DataError(
            f"got {type(federation).__name__}; expected a federation, e.g. "
            "motley.tasks.from_clients([(x, y), ...])"
        )
    if isinstance(loss, type):
        raise ConfigError(
            f"got the class {loss.__name__}; give an object, {loss.__name__}()", "loss"
        )
    if over is not None and (loss is None or isinstance(loss, str | Mapping)):
        raise ConfigError(
            f"got {over!r} beside the loss {loss!r}; it is for a loss that is a function, leave it "
            "out",
            "over",
        )


def _check_width(kind: str, outputs: int, targets: int) -> None:
    """Refuse a model of another width than the numbers to predict, over which torch would spread
    them."""
    if outputs != targets:
        raise ModelError(
            f"the {kind} gives {outputs} outputs, and a sample has {targets} to predict; give it "
            f"{targets}, or a loss that reads them all"
        )


def _several(tasks: Sequence[Task], holders: Callable[[int], int] | None) -> Task:
    """Return the task whose clients hold the models of these ones, which differ in nothing else."""
    clients = 0 if not tasks or holders is None else len(tasks[0].federation)
    numbers = [holders(k) for k in range(clients)] if callable(holders) else []
    wrong = [number for number in numbers if not isinstance(number, int | np.integer)]
    if wrong or not (holders is None or callable(holders)):
        raise ConfigError(
            f"got {wrong[0] if wrong else holders!r}; expected a function from a client's number "
            "to that of its model, e.g. holders=lambda client: client % 2",
            "holders",
        )
    outputs = [sample_outputs(task)[0].shape[-1] for task in tasks]
    if len(set(outputs)) > 1:
        raise ModelError(
            f"got models with {', '.join(map(str, outputs))} outputs; expected as many of each"
        )
    unlike = Architectures(
        tuple(f"model {i}" for i in range(len(tasks))),
        tuple(task.model for task in tasks),
        tuple(task.layout for task in tasks),
        np.array(numbers, np.int64),
    )
    return tasks[0].with_models(unlike)


def _usual_loss(kind: Targets, outputs: Tensor) -> str:
    """Return the name of the loss for targets of this kind, where none is given."""
    if kind == "multilabel" or (kind == "classes" and outputs.shape[-1] == 1):
        return "bce"
    return "half_squared_error" if kind == "numbers" else "cross_entropy"


def _name_of(
    loss: str | Mapping[str, Any] | LossFunction, outputs: Tensor, federation: Federation
) -> str:
    """Return the name of a loss, of a function's that which its values tell; empty: none."""
    if isinstance(loss, Mapping):
        return str(loss.get("name"))
    if isinstance(loss, str):
        return loss
    return loss_of_logits(plain_function(loss), outputs, _targets(federation)[:2])


def _warn_of_outputs(outputs: Tensor, loss: str) -> None:
    """Warn where outputs ``[B, ..., C]`` are probabilities, of which cross-entropy would make
    probabilities once more, or no logarithms of them, which ``nll`` takes."""
    if loss == "cross_entropy" and outputs.shape[-1] > 1 and bool((outputs >= 0).all()):
        if torch.allclose(outputs.sum(-1), torch.ones(()), atol=1e-4):
            warnings.warn(
                "the model gives probabilities (numbers that sum to 1), and cross_entropy takes "
                "logits, of which it makes probabilities itself; such a model learns slowly: leave "
                "the Softmax at its end out",
                stacklevel=3,
            )
    elif loss == "nll" and not torch.allclose(outputs.exp().sum(-1), torch.ones(()), atol=1e-4):
        warnings.warn(
            "the loss is nll_loss, which takes logarithms of probabilities, and the model's "
            "outputs are none; such a loss is no likelihood: let the model end in "
            "nn.LogSoftmax(-1), or give cross_entropy to the model without the Softmax at its end",
            stacklevel=3,
        )


def _warn_of_sigmoid(
    make: Callable[[], nn.Module], federation: Federation, transform: Transform | None
) -> None:
    """Warn where a model ends in a sigmoid, which the loss ``bce`` would take of it once more."""
    node = construct(make, 0).eval()(_two_samples(federation, transform)).grad_fn
    while node is not None and node.name().startswith(_OF_SHAPE):
        node = node.next_functions[0][0]
    if node is not None and node.name().startswith("Sigmoid"):
        warnings.warn(
            "the model gives probabilities (of a sigmoid), and bce takes logits, of which it makes "
            "probabilities itself; such a model learns slowly: leave the Sigmoid at its end out",
            stacklevel=3,
        )


_OF_SHAPE = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Alias", "ToCopy")
"""What changes a tensor's shape or type alone, as autograd names it."""


def _made(model: Callable[[], nn.Module], fields: Sequence[Field] = ()) -> nn.Module:
    """Return a fresh module of one tensor whose random layers draw from keys."""
    module = model()
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"the function that makes the model gave {type(module).__name__}; expected a "
            "torch.nn.Module"
        )
    return replace_stochastic(_of_one_tensor(module, fields))


def _dense(make: Callable[[], nn.Module], shape: tuple[int, ...], classes: bool) -> nn.Module:
    return DenseOutputs(make(), shape, classes)


def _of_one_tensor(module: nn.Module, fields: Sequence[Field]) -> nn.Module:
    return TakesFields(module, fields) if fields else as_logits(module)


def _plain(model: Callable[[], nn.Module], fields: Sequence[Field] = ()) -> nn.Module:
    return _of_one_tensor(model(), fields)


def plain_factory(model: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Return a task's function that makes modules, without the exchange of layers that draw random
    numbers; the same function where nothing is exchanged."""
    if not isinstance(model, partial) or not model.args:
        return model
    if model.func is _made:
        return partial(_plain, *model.args)
    first, *arguments = model.args
    plain = plain_factory(first) if callable(first) else first
    return model if plain is first else partial(model.func, plain, *arguments, **model.keywords)


def _tried(
    make: Callable[[], nn.Module],
    federation: Federation,
    transform: Transform | None,
    fewest: int | None,
) -> tuple[Federation, Tensor]:
    """Return the federation with samples that the model takes, whole numbers as they are or,
    failing that, as float32; and outputs."""
    integers = federation.x.dtype == torch.int64
    try:
        return federation, _try(make, federation, transform, fewest)
    except ModelError:
        embeds = any(
            isinstance(module, nn.Embedding | nn.EmbeddingBag)
            for module in construct(make, 0).modules()
        )
        if not integers or embeds:  # an embedding's own message says what is wrong with the numbers
            raise
        federation = dataclasses.replace(federation, x=federation.x.float())
    return federation, _try(make, federation, transform, fewest)


def _try(
    make: Callable[[], nn.Module],
    federation: Federation,
    transform: Transform | None,
    fewest: int | None,
) -> Tensor:
    """Return outputs of two samples; two fresh modules that were made with the same seed must give
    the same in training mode, and may pass the same samples again and again."""
    batch = _two_samples(federation, transform)
    want = (
        *(federation.y.shape[1:] if federation.targets == "positions" else ()),
        federation.classes or federation.y.shape[1],
    )
    # one logit tells two classes apart
    least = 1 if federation.targets == "classes" and want == (2,) else fewest or want[-1]
    labelled = federation.targets in ("classes", "positions")
    shortest = 1 if labelled else least
    first = outputs_of(construct(make, 0), batch, want, shortest)
    passed_once = batch.clone()
    second = outputs_of(construct(make, 0), batch, want, shortest)
    if first.shape[-1] < least:
        raise _too_few_outputs(federation, first.shape[-1], want[-1])
    _check_evaluation(construct(make, 0).eval(), batch.clone(), first)
    if not torch.equal(passed_once, batch):  # ReLU(inplace=True) changes it once, and no more
        raise ModelError(
            "the forward of the model changes its input in place (as x -= 1 does), and a batch may "
            "pass more than once; write x = x - 1"
        )
    if not torch.allclose(first, second, equal_nan=True):
        raise ModelError(_why_different(make, batch))
    return first


def _check_evaluation(module: nn.Module, batch: Tensor, trained: Tensor) -> None:
    """Refuse a model, in evaluation mode, that gives something else there than in training."""
    kind = class_name(module)
    try:
        with torch.no_grad():
            outputs = module(batch)
    except Exception as error:  # a user's forward may raise anything
        raise ModelError(
            f"the {kind} cannot take a batch of shape {list(batch.shape)} in evaluation mode: "
            f"{_reason(error)}"
        ) from error
    if not isinstance(outputs, Tensor) or outputs.shape != trained.shape:
        shape = list(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ModelError(
            f"the {kind} gives {shape} in evaluation mode and {list(trained.shape)} in training; "
            "return the scores alone, one tensor, in training and in evaluation"
        )


def _why_different(make: Callable[[], nn.Module], batch: Tensor) -> str:
    """Return why two modules that are made with the same seed give different outputs for a
    batch."""
    module, again = (construct(make, 0) for _ in range(2))
    weights = again.state_dict()
    differs = next(
        (
            name
            for name, value in module.state_dict().items()
            if isinstance(value, Tensor) and _differ(value, weights[name])
        ),
        "",
    )
    if differs:
        return (
            f"the function that makes the model draws {differs!r} anew each time, from another "
            "generator than torch's (numpy.random, random); draw with torch, or once before the "
            "function"
        )
    set_stream(module, Key(0))
    state = module.state_dict()
    with torch.no_grad():
        first = module.train()(batch.clone())
        set_stream(module, Key(0))
        module.load_state_dict(state)
        second = module(batch.clone())
    if _differ(first, second):
        return (
            "the forward of the model gives other outputs for the same batch each time: it draws "
            "random numbers (numpy.random, random), or counts its calls; use a "
            "motley.tasks.nn.Dropout layer instead"
        )
    return (
        "two modules with the same weights give different outputs for the same batch: the function "
        "that makes them gives each another attribute or constant; let it give the same every time"
    )


def _differ(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors are not the same, NaN being the same as NaN."""
    return first.shape != second.shape or not torch.allclose(
        first.double(), second.double(), rtol=0, atol=0, equal_nan=True
    )


def _too_few_outputs(federation: Federation, outputs: int, classes: int) -> UserError:
    """Return the error that a model has fewer outputs than there are classes, with the first label
    that has none."""
    beyond = (federation.y >= outputs).reshape(len(federation.y), -1)
    rows = beyond.any(1).nonzero()[:, 0].tolist()
    sentence = f"the model has {outputs} output{'s' if outputs > 1 else ''}"
    if not rows:
        return ModelError(
            f"{sentence}, and the data has {classes} classes; give the model {classes} outputs"
        )
    label = int(federation.y[rows[0]].reshape(-1)[beyond[rows[0]]][0])
    return DataError(
        f"{federation.row(rows[0])}: got the label {label}, and {sentence}, for labels 0 to "
        f"{outputs - 1} (so in {len(rows)} of {len(beyond)} rows); mend the label, or give the "
        f"model {max(classes, label + 1)} outputs"
    )


def sample_outputs(task: Task) -> tuple[Tensor, Tensor]:
    """Return the outputs of a fresh model in eval mode for two samples, and two targets."""
    batch = _two_samples(task.federation, task.transform)
    with torch.no_grad():
        outputs: Tensor = construct(task.model, 0).eval()(batch)
    return outputs, _targets(task.federation)[:2]


def _targets(federation: Federation) -> Tensor:
    """Return targets that differ as much as they can, at least two."""
    targets = federation.y[torch.from_numpy(_rows(federation))]
    return targets if len(targets) > 1 else targets[[0, 0]]


def _rows(federation: Federation, count: int = 48) -> Ints:
    """Return rows with targets that differ as much as they can, of training samples where there are
    any."""
    rows = federation.train.values if len(federation.train.values) else np.arange(len(federation.y))
    rows = rows[:: max(1, len(rows) // 200_000)]
    chosen: Ints = rows[
        representative(federation.y[torch.from_numpy(rows)], federation.targets, count)
    ]
    return chosen


def _checked(
    function: LossFunction,
    over: Over | None,
    make: Callable[[], nn.Module],
    federation: Federation,
    transform: Transform | None,
) -> LossFunction:
    """Return a user's loss function as :func:`~motley.tasks.own_loss.checked_loss` does, compared
    on the model's own outputs."""
    if isinstance(function, nn.Module) and any(p.requires_grad for p in function.parameters()):
        raise ModelError(
            f"the loss {type(function).__name__} has parameters of its own, which no client would "
            "train or send; make them part of the model"
        )
    module = construct(make, 0).eval()
    work = max(
        rough_operations(module, _samples(federation, transform, _rows(federation, 2))) // 2, 1
    )
    rows = _rows(federation)
    passed = rows[: max(4, min(len(rows), _OPERATIONS // work))]
    with torch.no_grad():
        outputs: Tensor = module(_samples(federation, transform, passed))
    return checked_loss(function, outputs, federation.y[torch.from_numpy(rows)], over)


def _samples(federation: Federation, transform: Transform | None, rows: Ints) -> Tensor:
    """Return the model inputs of some rows."""
    batch = federation.x[torch.from_numpy(rows)]
    return model_input(batch if transform is None else transform(batch, None), torch.float32)


def _two_samples(federation: Federation, transform: Transform | None) -> Tensor:
    mine = federation.train.values[:2]
    # a federation with test samples only
    batch = federation.x[torch.from_numpy(mine)] if len(mine) else federation.x[:2]
    shape = list(batch.shape)
    try:
        batch = transform(batch, None) if transform else batch
        return model_input(
            batch if len(batch) > 1 else batch.repeat(2, *(1,) * (batch.dim() - 1)), torch.float32
        )
    except Exception as error:  # a user's transform may raise or return anything
        raise ModelError(
            f"the transform cannot take a batch of shape {shape}: {_reason(error)}"
        ) from error


def outputs_of(module: nn.Module, batch: Tensor, want: tuple[int, ...], least: int) -> Tensor:
    """Return the module's outputs for a batch, ``[B, *want]``, or another width of at least
    ``least``.

    Raises
    ------
    ModelError: it cannot take the batch, gives another shape, draws from torch's process-wide
    generator, or has no gradient.
    """
    results: list[Any] = []

    def forward(fresh: nn.Module) -> None:
        with torch.enable_grad():
            results.append(fresh(batch))

    kind, takes = class_name(module), f"a batch of shape {list(batch.shape)}"
    if isinstance(module, TakesFields):
        takes = f"{module.in_words} of {len(batch)} samples"
    try:
        require_keyed(module, forward)
    except ModelError:
        raise
    except Exception as error:  # a user's forward may raise anything
        raise ModelError(
            f"the {kind} cannot take {takes}: {_reason(error)}{_of_other_type(module)}"
        ) from error
    out = results[0]
    expected = [len(batch), *want]
    if (
        not isinstance(out, Tensor)
        or list(out.shape[:-1]) != expected[:-1]
        or out.shape[-1] < least
    ):
        shape = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        if not isinstance(out, Tensor):
            why = "; return the scores alone, one tensor, in training and in evaluation"
        elif len(want) > 1:
            why = (
                " (a class per position, [n, T]; labels 0 or 1 [n, C] need multilabel=True; of "
                "one-hot labels give y.argmax(1))"
            )
        elif list(out.shape) == expected[:1]:
            why = "; return a row for each sample, without squeeze: [B, 1] of one output"
        else:
            why = ""
        raise ModelError(
            f"the {kind} gives {shape} for a batch of {len(batch)}; expected {expected}{why}"
        )
    if not out.requires_grad:
        raise ModelError(
            f"the outputs of the {kind} do not depend on its parameters (detach, no_grad, whole "
            "numbers)"
        )
    return out.detach()


_MENDS = {torch.float64: 'dtype = "float64"', torch.bfloat16: 'precision = "bfloat16"'}
"""Type of weights -> the key of an experiment with which products are of that type."""


def _of_other_type(module: nn.Module) -> str:
    """Return that a module's weights are of another type than samples, with what to write; empty
    where they are not."""
    types = {p.dtype for p in module.parameters() if p.is_floating_point()} - {torch.float32}
    if not types:
        return ""
    kind = min(types, key=str)
    name = str(kind).removeprefix("torch.")
    key = _MENDS.get(kind)
    instead = "" if key is None else f", and write {key} in the experiment if that is meant"
    return f"; its weights are {name}, and samples come as float32: let it be float32{instead}"


def _reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    plain = first and isinstance(error, RuntimeError | TypeError | ValueError)
    message = first if plain else f"{type(error).__name__} {first}".strip()
    return f"{message}{place_in_own_code(error)}"
