"""Models of ``transformers`` and ``peft`` as modules of tokens and scores; imports neither."""

from __future__ import annotations

import copy
from pathlib import Path

from torch import Tensor, nn
from typing_extensions import override

from motley.core.adapters import MERGED
from motley.tasks.merged import fold_in

__all__ = ["LogitsOf", "as_logits"]


class LogitsOf(nn.Module):
    """A ``transformers`` model, with or without adapters, as a module from tokens ``[B, T]`` to
    scores ``[B, T, C]``.

    ``save_pretrained(folder)`` writes what ``transformers`` and ``peft`` read: of a model with
    adapters ``adapter_config.json`` and the adapters' weights, for
    ``peft.PeftModel.from_pretrained(base, folder)``; of one into which adapters were merged
    (:mod:`motley.tasks.merged`) the whole model, for ``transformers``.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map tokens ``[B, T]`` to scores ``[B, T, C]``; position t sees positions 0 .. t alone."""
        out: Tensor = self.model(input_ids=x, use_cache=False).logits
        return out

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the adapters, or the model if it has none of its own, into a folder."""
        model = self.model
        if any(hasattr(layer, MERGED) for layer in model.modules()):
            model = copy.deepcopy(model)
            fold_in(model)
            model = model.merge_and_unload()  # type: ignore[operator]
        model.save_pretrained(str(folder))  # type: ignore[operator]


def as_logits(module: nn.Module) -> nn.Module:
    """Return a model of ``transformers`` or ``peft`` as a module of tokens and scores; any other
    module as it is."""
    of_library = any(kind.__module__.startswith("transformers.") for kind in type(module).__mro__)
    adapted = type(module).__module__.startswith("peft.")
    return LogitsOf(module) if of_library or adapted else module
