"""Whether the last linear layer of a model, by the order in which its layers were made, is the one
that gives its outputs.

Methods that tell a head from a base, compare features or read the last layer of an update find it
by that order (:func:`~motley.algorithms.personal.head_of`). A ``forward`` may call layers in
another order, compute outputs from weights that are no linear layer, or share a layer's weights
with another; such a method would then train, keep or send another part of the model than it says.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from motley.algorithms.parts import LocalRule
from motley.algorithms.personal import PersonalLayers, batch_norm_of, head_of
from motley.core.errors import ConfigError
from motley.engines.engine import Setting
from motley.experiments.config import Experiment
from motley.selectors.selector import Selector
from motley.tasks.flat import construct
from motley.tasks.one_sample import repeated_sample
from motley.tasks.task import Task

_OF_LAST_LAYER = frozenset({"last_layer", "output_bias"})
"""Signals that are read from the last linear layer."""

_MEND = (
    "let the layer that gives the outputs be an nn.Linear with weights of its own (trained, no "
    "parametrization), made last in the module's __init__"
)
_MEND_ADAPTED = (
    "beside adapters the head must be trained whole: name it in modules_to_save of peft's "
    'LoraConfig; the task hf does so with head = "sequence" or "token"'
)


def check_last_layers(
    experiment: Experiment, setting: Setting, rule: LocalRule, selector: Selector[Any]
) -> None:
    """Refuse a model whose last linear layer is not the one that gives its outputs, where the
    method, the loss or the selector reads that layer; warn where a method has no layer to keep.

    Parameters
    ----------
    rule: the algorithm's, before it was bound to the model.

    Raises
    ------
    ConfigError: on the key of the part that reads the layer.
    """
    name = experiment.algorithm["name"]
    layers = rule.head_layers
    readers = {"algorithm": (name, layers)}
    needs = selector.rule.needs()
    if _OF_LAST_LAYER & (needs.reported | needs.enrolled | needs.probed.keys()):
        readers["selector"] = (experiment.selector["name"], 1)
    if setting.task.heads:
        readers["task.heads"] = ("heads", 1)
    if setting.algorithm.loss.whole_model and not layers:
        readers["algorithm"] = (name, 1)
    compares = rule.reads_features or setting.algorithm.loss.whole_model
    for task in setting.task.alike():
        for key, (reader, count) in readers.items():
            reached = _check(task, reader=reader, key=key, layers=count) if count else None
            if reached is not None and compares and key == "algorithm":
                per_class = rule.prototypes is not None or rule.measures_features
                _check_features(reached, name, per_class=per_class)
        if isinstance(rule, PersonalLayers):
            _warn_of_nothing_kept(task, rule, name)


def _warn_of_nothing_kept(task: Task, rule: PersonalLayers, name: str) -> None:
    """Warn where the clients keep no layer of this model."""
    if not rule.kept(task.layout):
        warnings.warn(
            f"{name!r} leaves layers with the clients, and this model has none of them (BatchNorm, "
            "or a head of no layer): it is trained by plain averaging",
            stacklevel=3,
        )
    elif rule.own_norms and not batch_norm_of(task.layout):
        warnings.warn(
            "own_norms leaves BatchNorm with the clients, and this model has none", stacklevel=3
        )


class _Reached(NamedTuple):
    """Parameters on which outputs depend where the inputs of a layer are held fixed, with whether
    they are trained and their dimensions, and the dimensions of its input in each call."""

    parameters: dict[str, tuple[bool, int]]
    inputs: tuple[int, ...]


def _check_features(reached: _Reached, name: str, per_class: bool) -> None:
    """Refuse a last linear layer whose inputs are no features of a sample: it is called several
    times, or of features that are averaged for each class, on several positions."""
    calls = len(reached.inputs)
    if calls > 1 or (per_class and reached.inputs[0] != 2):
        seen = f"{calls} times" if calls > 1 else "on more than one position of a sample"
        raise ConfigError(
            f"{name!r} takes the inputs of the last linear layer for a sample's features, and the "
            f"forward calls it {seen}; call it once, on [B, d]",
            "algorithm",
        )


def _check(task: Task, *, reader: str, key: str, layers: int) -> _Reached | None:
    """Refuse a model in which other weights than the head's act on the outputs after, or beside,
    the head's input; of weights of one dimension alone, as a scale, tell where a method reads the
    head. Return what was seen, if anything could be."""
    layout = task.layout
    linear = list(dict.fromkeys(entry.layer for entry in layout if entry.linear))[-layers:]
    if not linear:
        if key == "algorithm":  # a signal is of the whole model then
            raise ConfigError(
                f"{reader!r} tells the last linear layer from the rest, and this model has no "
                f"linear layer (nn.Linear); {_MEND}",
                key,
            )
        return None
    head = set(head_of(layout, layers))
    reached = _reached(task, linear[0])
    if reached is None:
        return None
    last = linear[-1]
    if not reached.inputs:
        raise ConfigError(
            f"{reader!r} reads the last linear layer, by the order in which layers are made "
            f"{last!r}, and the forward does not call it as a layer; {_MEND}, and call it",
            key,
        )
    within = {entry.layer for entry in layout if entry.name in head}
    beyond = [
        name
        for name, (trained, dimensions) in reached.parameters.items()
        if name not in head
        and (trained or (dimensions > 1 and name.rpartition(".")[0] not in within))
    ]
    matrix = next((name for name in reversed(beyond) if reached.parameters[name][1] > 1), None)
    unused = not any(e.name in reached.parameters for e in layout if e.layer == last and e.linear)
    if matrix is not None or unused:
        fault = (
            f"{matrix!r} acts on the outputs after or beside it" if matrix else "gives no output"
        )
        raise ConfigError(
            f"{reader!r} reads the last linear layer, by the order in which layers are made "
            f"{last!r}, and {fault}; {_MEND_ADAPTED if 'lora_' in last else _MEND}",
            key,
        )
    if beyond and key == "algorithm":
        warnings.warn(
            f"{beyond[0]!r} acts on the outputs after the last linear layer {last!r}, and is no "
            f"part of what {reader!r} takes for the head",
            stacklevel=3,
        )
    return reached


def _reached(task: Task, layer: str) -> _Reached | None:
    """Return the parameters on which the outputs for a sample depend where the layer's input is
    held fixed; None where a scripted module hides its layers."""
    module = construct(task.model, 0).eval()
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        return None
    inputs: list[int] = []

    def hold(
        part: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tensors = [v for v in (*arguments, *named.values()) if isinstance(v, Tensor)]
        inputs.append(tensors[0].dim() if tensors else 0)
        fixed = tuple(map(_detached, arguments))
        return fixed, {name: _detached(value) for name, value in named.items()}

    part = functools.reduce(getattr, layer.split(".") if layer else [], module)
    part.register_forward_pre_hook(hold, with_kwargs=True)
    named = [(name, p) for name, p in module.named_parameters() if p.is_floating_point()]
    trained = [parameter.requires_grad for _, parameter in named]
    for _, parameter in named:  # frozen ones may give the outputs, too
        parameter.requires_grad_(True)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training warns where the forward has something to say
        outputs: Tensor = module(repeated_sample(task, 2))  # BatchNorm may want more than one
    gradients = torch.autograd.grad(outputs.sum(), [p for _, p in named], allow_unused=True)
    reached = {
        name: (mine, parameter.dim())
        for (name, parameter), mine, gradient in zip(named, trained, gradients, strict=True)
        if gradient is not None
    }
    return _Reached(reached, tuple(inputs))


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
