"""Models of ``transformers`` and ``peft`` as modules of one tensor and scores; imports neither."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn
from typing_extensions import override

from motley.core.adapters import MERGED
from motley.core.errors import ModelError
from motley.tasks.merged import fold_in

TOKENS = "input_ids"
MASK = "attention_mask"


class LogitsOf(nn.Module):
    """A ``transformers`` model, with or without adapters, as a module from one tensor to scores:
    from tokens ``[B, T]`` or pictures ``[B, C, H, W]``, whichever the model's ``forward`` takes
    first, to ``[B, C]`` or a score per position ``[B, T, C]``.

    Where ``forward`` names an ``attention_mask`` and the configuration a ``pad_token_id``, the
    tokens of that id at either end of a row are masked out, as a tokenizer's own mask does.

    Parameters
    ----------
    model: with a head, whose output has ``logits``.
    inputs: names of what the rows of a sample ``[R, T]`` hold, as a tokenizer gives it, e.g.
    ``("input_ids", "attention_mask", "token_type_ids")`` for pairs of sentences; empty: a sample is
    the model's one input.

    ``save_pretrained(folder)`` writes what ``transformers`` and ``peft`` read: of a model with
    adapters ``adapter_config.json`` and the adapters' weights, for
    ``peft.PeftModel.from_pretrained(base, folder)``; of one into which adapters were merged
    (:mod:`motley.tasks.merged`) the whole model, for ``transformers``.

    Raises
    ------
    ModelError: ``forward`` has no input of a name.
    """

    adapts: ClassVar[bool] = True
    """Messages name the class of :attr:`model`."""

    def __init__(self, model: nn.Module, inputs: Sequence[str] = ()) -> None:
        super().__init__()
        self.model = model
        base: Any = model
        if hasattr(model, "get_base_model"):  # peft's own forward names less, and passes all on
            base = model.get_base_model()  # type: ignore[operator]
        named = set(inspect.signature(base.forward).parameters)
        unknown = [name for name in inputs if name not in named]
        if unknown:
            names = ", ".join(sorted(named - {"self", "kwargs", "labels"}))
            raise ModelError(
                f"the {type(base).__name__} has no input {unknown[0]!r}; expected some of: {names}"
            )
        self.inputs = tuple(inputs)
        self._main = str(getattr(base, "main_input_name", TOKENS))
        masked = MASK in named and TOKENS in (inputs or (self._main,)) and MASK not in inputs
        self._padding = getattr(base.config, "pad_token_id", None) if masked else None
        self._options = {"use_cache": False} if "use_cache" in named else {}

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map samples ``[B, ...]`` to scores ``[B, C]`` or ``[B, T, C]``.

        Raises
        ------
        ModelError: the model gives no logits, or a sample has another number of rows than there are
        names.
        """
        inputs = dict(zip(self.inputs, x.unbind(1), strict=False)) or {self._main: x}
        if self.inputs and len(self.inputs) != x.shape[1]:
            raise ModelError(
                f"a sample has {x.shape[1]} rows; expected one for each of {', '.join(self.inputs)}"
            )
        if self._padding is not None:
            inputs[MASK] = _between_padding(inputs[TOKENS], self._padding)
        out = self.model(**inputs, **self._options)
        if not hasattr(out, "logits"):
            raise ModelError(
                f"the {type(self.model).__name__} gives {type(out).__name__}, which has no logits; "
                "take the model with its head, such as AutoModelForSequenceClassification"
            )
        logits: Tensor = out.logits
        return logits

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the adapters, or the model if it has none of its own, into a folder."""
        model = self.model
        if any(hasattr(layer, MERGED) for layer in model.modules()):
            model = copy.deepcopy(model)
            fold_in(model)
            model = model.merge_and_unload()  # type: ignore[operator]
        model.save_pretrained(str(folder))  # type: ignore[operator]


def as_logits(module: nn.Module) -> nn.Module:
    """Return a model of ``transformers`` or ``peft`` as a module of one tensor and scores; any
    other module as it is."""
    of_library = any(kind.__module__.startswith("transformers.") for kind in type(module).__mro__)
    adapted = type(module).__module__.startswith("peft.")
    return LogitsOf(module) if of_library or adapted else module


def _between_padding(tokens: Tensor, padding: int) -> Tensor:
    """Return which tokens ``[B, T]`` are none of the paddings before or after a row's own, int64 0
    or 1; the same id between them is one of the row's own (GPT-2 pads with the end of a text)."""
    own = tokens != padding
    begun = own.cumsum(-1) > 0
    goes_on = own.flip(-1).cumsum(-1).flip(-1) > 0
    return (begun & goes_on).long()
