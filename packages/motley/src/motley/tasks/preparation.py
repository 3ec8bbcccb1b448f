"""Preparations: the map from raw samples, as users have them, to model inputs. Fitted once, saved
with the run, used on new rows. Those of tables and texts are in the distribution ``motley-data``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import DataError
from motley.core.extensions import required_extension
from motley.tasks.fields import Field, in_words, packed


class StatisticsTraffic(NamedTuple):
    """What the one-off exchange of statistics costs: bits down to each client, and bits up from
    each, ``[K]``."""

    down_bits: int
    up_bits: Ids


class Preparation(ABC):
    """The map from raw samples to model inputs."""

    @abstractmethod
    def __call__(self, raw: Any, client: int | None = None) -> Tensor:
        """Return the model inputs of raw samples, ``[n, ...]``; ``client``: by whose own
        statistics, where clients have their own.

        Raises
        ------
        DataError: the samples do not have the form of those that the model was trained on.
        """

    @abstractmethod
    def save(self) -> dict[str, Any]:
        """Return it as JSON values."""


class UnfittedTable(ABC):
    """The input columns of a table, whose preparation is fitted when it is known which rows
    train."""

    @property
    @abstractmethod
    def by_client(self) -> bool:
        """Whether each client has statistics of its own."""

    @abstractmethod
    def fit(
        self,
        rows: Ints,
        owner: Ids,
        train: Bools,
        population: int,
        names: Sequence[str] = (),
        whose: Ids | None = None,
    ) -> FittedTable:
        """Return the model inputs of all rows, by statistics of those that train.

        Parameters
        ----------
        rows, owner: ``[m]`` the rows that clients hold, and whose they are.
        train: ``[m]`` which of them train.
        names: of the clients.
        whose: of all rows, ``[n]``, by whose statistics, where clients have their own.

        Raises
        ------
        DataError: a column without an entry to measure.
        """

    @abstractmethod
    def inputs_of(self, values: Tensor, preparation: Preparation) -> Tensor:
        """Return the model inputs of raw values ``[n, columns]``, by what :meth:`fit` returned."""


class FittedTable(NamedTuple):
    """The model inputs of all rows of a table, the preparation that made them, and what the
    exchange of its statistics costs."""

    x: Tensor
    preparation: Preparation
    traffic: StatisticsTraffic


@dataclass(frozen=True)
class ArrayPreparation(Preparation):
    """``(x - shift) / scale`` of arrays.

    Parameters
    ----------
    shape: of one sample.
    shift, scale: in the units of the raw samples, broadcast against a sample.
    """

    shape: tuple[int, ...]
    shift: Floats
    scale: Floats

    @override
    def __call__(self, raw: Any, client: int | None = None) -> Tensor:
        x = np.asarray(raw.detach().cpu() if isinstance(raw, Tensor) else raw)
        # images without their one channel
        flat = len(self.shape) > 1 and self.shape[0] == 1 and x.shape[1:] == self.shape[1:]
        if x.dtype.kind not in "biuf" or (x.shape[1:] != self.shape and not flat):
            raise DataError(
                f"got samples of shape {list(x.shape)} ({x.dtype}); expected numbers of shape "
                f"{['n', *self.shape]}"
            )
        wide = x.reshape(len(x), *self.shape).astype(np.float64)
        with np.errstate(over="ignore"):
            inputs = ((wide - self.shift) / self.scale).astype(np.float32)
        finite = np.isfinite(inputs).reshape(len(inputs), -1).all(1)
        if not finite.all():
            first, count = int((~finite).argmax()) + 1, int((~finite).sum())
            raise DataError(
                f"sample {first} has NaN, infinity or a number far from those that trained "
                f"(so have {count:,} of {len(x):,}); fill or drop these"
            )
        return torch.from_numpy(inputs)

    @override
    def save(self) -> dict[str, Any]:
        return {
            "kind": "array",
            "shape": list(self.shape),
            "shift": self.shift.tolist(),
            "scale": self.scale.tolist(),
        }


@dataclass(frozen=True)
class FieldsPreparation(Preparation):
    """The map from samples of several inputs, dictionaries or tuples of arrays ``[n, ...]``, to
    vectors."""

    fields: tuple[Field, ...]

    @override
    def __call__(self, raw: Any, client: int | None = None) -> Tensor:
        if not isinstance(raw, Mapping | tuple | list):
            raise DataError(
                f"got {type(raw).__name__}; expected samples with the inputs "
                f"{in_words(self.fields)}"
            )
        names = [field.name for field in self.fields]
        absent = [name for name in names if isinstance(raw, Mapping) and name not in raw]
        if absent:
            raise DataError(
                f"the samples given have no {', '.join(absent)}; expected {in_words(self.fields)}"
            )
        inputs = [raw[name] for name in names] if isinstance(raw, Mapping) else list(raw)
        arrays = [
            np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
            for value in inputs
        ]
        kinds = {"whole": np.int64, "boolean": np.bool_, "float": np.float32}
        if len(arrays) == len(names):
            arrays = [
                np.asarray(values.astype(kinds[field.kind]))
                for field, values in zip(self.fields, arrays, strict=True)
            ]
        packable = dict(zip(names, arrays, strict=True)) if isinstance(raw, Mapping) else arrays
        return torch.from_numpy(packed(packable, self.fields, "the samples given"))

    @override
    def save(self) -> dict[str, Any]:
        return {
            "kind": "fields",
            "fields": [[f.name, list(f.shape), f.kind] for f in self.fields],
        }


def restore_preparation(saved: Mapping[str, Any]) -> Preparation:
    """Return the preparation that :meth:`Preparation.save` returned.

    Raises
    ------
    DataError: it is damaged. ConfigError: the distribution that knows its kind is not installed.
    """
    try:
        kind = saved["kind"]
        if kind == "array":
            shift, scale = (np.asarray(saved[key], np.float64) for key in ("shift", "scale"))
            return ArrayPreparation(tuple(saved["shape"]), shift, scale)
        if kind == "fields":
            return FieldsPreparation(
                tuple(Field(name, tuple(shape), kind) for name, shape, kind in saved["fields"])
            )
        if kind not in ("table", "text"):
            raise ValueError(f"kind {kind!r}")
        restore = required_extension("preparation", kind, wanted=f"the preparation of a {kind}")
        return cast(Preparation, restore(saved))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the saved preparation is damaged ({type(error).__name__} {error})"
        ) from None
