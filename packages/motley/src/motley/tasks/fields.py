"""Samples of several inputs (a picture and a table, tokens and their mask) as one vector each, and
modules that take them apart again.

All of Motley handles a batch as one tensor. Whole numbers among floating-point ones are kept as
such up to 2^24, which float32 holds exactly.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from motley.core.errors import DataError, ModelError

_EXACT = 2**24
"""Up to this number float32 holds all whole numbers."""


class Field(NamedTuple):
    """One input of a sample.

    Parameters
    ----------
    name: its key in a dictionary; empty in a tuple.
    shape: of one sample's.
    kind: whole numbers, booleans, or floating-point numbers.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["whole", "boolean", "float"]


def fields_of(inputs: Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]) -> tuple[Field, ...]:
    """Return the inputs of samples that are dictionaries or tuples of arrays ``[n, ...]``.

    Bytes (uint8) count as floating-point numbers, as a model takes them.
    """
    named = inputs.items() if isinstance(inputs, Mapping) else (("", values) for values in inputs)
    kinds: dict[str, Literal["whole", "boolean"]] = {"b": "boolean", "i": "whole", "u": "whole"}
    return tuple(
        Field(
            str(name),
            tuple(values.shape[1:]),
            "float" if values.dtype == np.uint8 else kinds.get(values.dtype.kind, "float"),
        )
        for name, values in named
    )


def packed(
    inputs: Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]],
    fields: Sequence[Field],
    where: str,
) -> NDArray[Any]:
    """Return samples as vectors ``[n, W]``: int64 where no input is of floating-point numbers, else
    float32.

    Parameters
    ----------
    inputs: arrays ``[n, ...]``.
    fields: that the samples of all clients have.
    where: the samples, for messages.

    Raises
    ------
    DataError: other inputs, or whole numbers that float32 does not hold exactly.
    """
    received = fields_of(inputs)
    if received != tuple(fields):
        raise DataError(
            f"{where}: got the inputs {in_words(received)}; expected {in_words(fields)}"
        )
    arrays = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
    kind = np.float32 if any(field.kind == "float" for field in fields) else np.int64
    for field, values in zip(fields, arrays, strict=True):
        most = int(np.abs(values).max(initial=0)) if field.kind == "whole" else 0
        if kind == np.float32 and most > _EXACT:
            raise DataError(
                f"{where}: the input {field.name or 'of whole numbers'} has numbers up to "
                f"{most:,}, and beside floating-point inputs they are exact up to {_EXACT:,}; "
                "number them anew from 0"
            )
    flat = [np.asarray(values).reshape(len(values), -1).astype(kind) for values in arrays]
    return np.concatenate(flat, axis=1)


def in_words(fields: Sequence[Field]) -> str:
    """Return inputs in words."""
    kinds = {"whole": "whole numbers", "boolean": "booleans", "float": "floats"}
    return ", ".join(
        f"{field.name + ' ' if field.name else ''}{list(field.shape)} of {kinds[field.kind]}"
        for field in fields
    )


class TakesFields(nn.Module):
    """A module of several inputs as one of a vector ``[B, W]`` per sample.

    Inputs with names are keyword arguments of the module's ``forward``, those of a tuple its
    arguments in their order; where ``forward`` takes a single argument, it is the whole dictionary
    or tuple. Of a result with ``logits`` these are taken.

    Raises
    ------
    ModelError: ``forward`` takes other arguments.
    """

    adapts: ClassVar[bool] = True
    """Messages name the class of :attr:`model`."""

    def __init__(self, model: nn.Module, fields: Sequence[Field]) -> None:
        super().__init__()
        self.model = model
        self.fields = tuple(fields)
        base: Any = model
        if hasattr(model, "get_base_model"):
            base = model.get_base_model()  # type: ignore[operator]
        parameters = list(inspect.signature(base.forward).parameters.values())
        self._options = (
            {"use_cache": False} if any(p.name == "use_cache" for p in parameters) else {}
        )
        self._whole = self._takes_whole(parameters, type(base).__name__)

    def _takes_whole(self, parameters: list[inspect.Parameter], kind: str) -> bool:
        """Return whether ``forward`` takes all inputs as one argument."""
        names = [field.name for field in self.fields]
        places = [
            p
            for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"
        ]
        needed = [p for p in places if p.default is p.empty]
        if names[0]:
            all_named = set(names) <= {p.name for p in parameters} or any(
                p.kind is p.VAR_KEYWORD for p in parameters
            )
            if all_named and {p.name for p in needed} <= set(names):
                return False
        elif any(p.kind is p.VAR_POSITIONAL for p in parameters) or (
            len(needed) <= len(names) <= len(places)
        ):
            return False
        if len(needed) <= 1 and places:
            return True
        takes = ", ".join(p.name for p in places) or "no argument"
        inputs = ", ".join(names) if names[0] else f"a tuple of {len(names)}"
        raise ModelError(
            f"the forward of the {kind} takes {takes}, and a sample has the inputs {inputs}; give "
            "it these arguments, or a single one for all"
        )

    @property
    def in_words(self) -> str:
        """What the module takes."""
        whole = "a dictionary" if self.fields[0].name else "a tuple"
        return f"{f'{whole} of ' if self._whole else ''}the inputs {in_words(self.fields)}"

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map vectors ``[B, W]`` to the module's outputs."""
        parts = torch.split(x, [math.prod(field.shape) for field in self.fields], dim=1)
        inputs = [
            _restored(part.reshape(len(x), *field.shape), field.kind)
            for part, field in zip(parts, self.fields, strict=True)
        ]
        if not self.fields[0].name:
            out = self.model(tuple(inputs)) if self._whole else self.model(*inputs)
        else:
            named = {field.name: values for field, values in zip(self.fields, inputs, strict=True)}
            out = self.model(named) if self._whole else self.model(**named, **self._options)
        scores: Tensor = getattr(out, "logits", out)
        return scores


def _restored(values: Tensor, kind: str) -> Tensor:
    if kind == "whole":
        return values.long()
    return values != 0 if kind == "boolean" else values


def random_fields(fields: Sequence[Field], count: int, most: int, draws: torch.Generator) -> Tensor:
    """Return random vectors ``[count, W]`` of samples with these inputs: whole numbers below
    ``most``, booleans that are all true, normal numbers."""
    parts = []
    for field in fields:
        shape = (count, math.prod(field.shape))
        if field.kind == "whole":
            parts.append(torch.randint(0, most, shape, generator=draws))
        elif field.kind == "boolean":
            parts.append(torch.ones(shape, dtype=torch.int64))
        else:
            parts.append(torch.randn(shape, generator=draws))
    if any(field.kind == "float" for field in fields):
        return torch.cat([part.float() for part in parts], 1)
    return torch.cat(parts, 1)
