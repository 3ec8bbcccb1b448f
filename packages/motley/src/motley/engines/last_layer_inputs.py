"""The inputs of a model's last linear layer, for losses that compare features of several models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from motley.core.errors import ModelError
from motley.core.layout import Layout
from motley.engines.engine import Setting
from motley.tasks.flat import FlatModule
from motley.tasks.precision import products, widened
from motley.tasks.task import ModelState


class FeatureHook:
    """Records the input of a module's last linear layer (the last by registration, as
    :attr:`Layout.last_layer`).

    Parameters
    ----------
    module: gets a forward hook; nothing else of it changes.
    layout: of the module.

    Raises
    ------
    ModelError: the layer was scripted, and takes no hooks.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self._features: Tensor | None = None
        last = [entry.layer for entry in layout if entry.linear][-1]
        layer = functools.reduce(getattr, last.split(".") if last else [], module)
        if isinstance(layer, torch.jit.ScriptModule):
            raise ModelError(
                f"layer {last!r} was scripted (torch.jit), and a loss that compares features reads "
                "its inputs; hand the module over as it was before torch.jit"
            )
        layer.register_forward_pre_hook(self._record)

    def _record(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._features = inputs[0]

    def take(self) -> Tensor:
        """Return the features ``[B, d]`` of the last forward pass."""
        features = self._features
        self._features = None
        if features is None:
            raise RuntimeError(
                "the model's last linear layer was not called in its forward pass, so there are no "
                "features"
            )
        return widened(features.flatten(1))


class FrozenModels:
    """Further models in eval mode and without gradients; their modules are made once and loaded for
    every job.

    Parameters
    ----------
    setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._made: list[tuple[FlatModule, FeatureHook]] = []
        self._loaded = 0

    def load(self, states: Sequence[ModelState]) -> None:
        """Load these models in place of the previous ones."""
        task = self._setting.task
        while len(self._made) < len(states):
            model = FlatModule.of(task.model, self._setting.dtype, self._setting.device)
            model.module.eval()
            self._made.append((model, FeatureHook(model.module, model.layout)))
        self._loaded = len(states)
        for (model, _), state in zip(self._made, states, strict=False):
            model.load(state)

    def features(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the features ``[B, d]`` of each model for the same inputs."""
        out = []
        with torch.no_grad():
            for model, hook in self._made[: self._loaded]:
                with products(self._setting.precision, self._setting.device):
                    model.module(inputs)
                out.append(hook.take())
        return tuple(out)
