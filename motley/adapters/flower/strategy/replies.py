"""What a client sends is looked at before anything is made of it.

Nothing is unpickled. An array's own header is read before its numbers, so that a header that promises more than was sent, another
shape or Python objects is found out without reserving memory for it. A number that is not finite makes a reply useless: a mean
with it would be.

Every function takes Flower's records for what they are used as, dictionaries, and says in a :class:`NodeError` what is wrong.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.checks import AppError, NodeError, number_of, numbers_of, only_metrics, signal_of
from motley.adapters.flower.node_registry import EXAMPLES

__all__ = ["SPARE", "Upload", "Uploads", "array_of", "arrays_of", "signals_of"]

UploadForm = Literal["as_sent", "any"]
Value = float | NDArray[np.float64]
SPARE = 4096
"""Bytes an array may weigh beside its numbers: the header."""


@dataclass(frozen=True)
class Upload:
    """One client's usable reply.

    Parameters
    ----------
    weight: its ``weighted_by_key``. signals: what it says of itself, by the signals' names. steps: local steps, if told.
    arrays: its arrays, by name; those of the record that answers the model. form: what must be alike in all replies of a round.
    """

    weight: float
    signals: Mapping[str, Value]
    steps: float
    arrays: Mapping[str, NDArray[Any]]
    form: tuple[Any, ...]


def array_of(array: Any, name: str, shape: tuple[int, ...] | None, dtype: str | None, largest: float) -> NDArray[Any]:
    """The numbers of a Flower ``Array``; of this shape and dtype, where given, and of at most so many bytes.

    Raises
    ------
    NodeError: it is anything else, or holds a number that is not finite.
    """
    data, said = getattr(array, "data", None), getattr(array, "shape", None)
    if getattr(array, "stype", None) != "numpy.ndarray" or not isinstance(data, bytes) or not isinstance(said, tuple):
        raise NodeError(f"array {name!r} is not of the kind numpy.ndarray")
    if len(data) > largest + SPARE:
        raise NodeError(f"array {name!r} weighs {len(data)} bytes; expected at most {int(largest)}")
    header = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(header)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found, fortran, kind = reader(header)
    except Exception as problem:  # whatever reading foreign bytes may raise
        raise NodeError(f"array {name!r} cannot be read: {type(problem).__name__}") from None
    if version not in ((1, 0), (2, 0)) or kind.hasobject or kind.names is not None or kind.kind not in "biuf":
        raise NodeError(f"array {name!r} is of dtype {kind}; expected plain numbers")
    if found != said or str(kind) != str(array.dtype):
        raise NodeError(f"array {name!r} says it is {array.dtype}{list(said)} and holds {kind}{list(found)}")
    same = dtype is None or str(kind) == dtype or (kind.kind == "f" == np.dtype(dtype).kind)  # floats may differ in width
    if not same or (shape is not None and found != tuple(shape)):
        raise AppError(f"array {name!r} is {kind}{list(found)}; expected {dtype}{list(shape or ())}, as sent")
    size = math.prod(found)
    if len(data) - header.tell() != size * kind.itemsize:
        raise NodeError(f"array {name!r} holds {len(data) - header.tell()} bytes for {size} numbers of {kind.itemsize}")
    numbers = np.frombuffer(data, kind, offset=header.tell())
    if kind.kind == "f" and not np.isfinite(numbers).all():
        raise NodeError(f"array {name!r} holds a number that is not finite")
    return numbers.reshape(found, order="F" if fortran else "C")


def arrays_of(record: Any, like: Mapping[str, Any] | None, largest: float) -> dict[str, NDArray[Any]]:
    """All arrays of a record; ``like``: the record whose names, shapes and dtypes they must have.

    Raises
    ------
    NodeError: one is missing, too many, or not what it should be.
    """
    if like is not None and set(record) != set(like):
        missing, extra = sorted(set(like) - set(record)), sorted(set(record) - set(like))
        raise AppError(f"the arrays are not those sent: missing {_few(missing)}, more {_few(extra)}")
    out, left = {}, largest
    for name in like if like is not None else record:
        if like is None:
            out[name] = array_of(record[name], str(name), None, None, left)
        else:
            shape, dtype = tuple(like[name].shape), str(like[name].dtype)
            out[name] = array_of(record[name], str(name), shape, dtype, math.prod(shape) * 8)
        left -= out[name].nbytes
    return out


def _few(names: Iterable[str]) -> str:
    listed = [str(name)[:40] for name in names]
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} others" if len(listed) > 5 else "") if listed else "none"


def signals_of(metrics: Mapping[str, Any], wanted: Iterable[str], size: int) -> dict[str, Value]:
    """Those of the wanted signals that are there, checked.

    Raises
    ------
    NodeError: one is not what it should be.
    """
    return {name: signal_of(name, metrics[name], size) for name in sorted(wanted) if name in metrics}


def _lengths(numbers: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, len(value) if isinstance(value, list) else -1) for name, value in numbers.items()))


@dataclass
class Uploads:
    """The door through which replies come: each is checked alone, then all must be of one form.

    Parameters
    ----------
    wanted: signals that clients themselves must send. weight_key: of the strategy, ``weighted_by_key``.
    form: ``"as_sent"``: the arrays have the names, shapes and dtypes of the model sent; ``"any"``: any plain finite numbers (trees,
    adapters), whose names and dtypes must be alike in all replies. largest: bytes of one reply's arrays, under ``"any"``.
    """

    wanted: frozenset[str]
    weight_key: str | None = EXAMPLES
    form: UploadForm = "as_sent"
    largest: float = 1e9
    votes: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def read(self, content: Any, sent: Any, record_key: str | None) -> Upload:
        """One reply, checked; ``sent``: the ArrayRecord it answers. ``record_key``: the name under which that went out.

        Raises
        ------
        NodeError: it cannot be used.
        """
        arrays = content.array_records
        if not arrays:
            raise AppError("the reply holds no ArrayRecord; expected one")
        metric_key, numbers = only_metrics(content)
        main = record_key if record_key in arrays else next(iter(arrays))
        found: dict[str, NDArray[Any]] = {}
        forms = []
        for key, record in arrays.items():
            like = sent if self.form == "as_sent" and key == main else None
            read = arrays_of(record, like, self.largest)
            found = read if key == main else found
            shapes = [(name, str(array.dtype), array.shape if self.form == "as_sent" else None) for name, array in read.items()]
            forms.append((key, *sorted(shapes)))
        size = sum(array.size for array in found.values())
        signals, weight, steps = self._numbers(numbers, size, self.wanted)
        return Upload(weight, signals, steps, found, (tuple(forms), metric_key, _lengths(numbers)))

    def _numbers(self, numbers: Mapping[str, Any], size: int, wanted: frozenset[str]) -> tuple[dict[str, Value], float, float]:
        for name, value in numbers.items():
            _ = numbers_of(value, name) if isinstance(value, list) and value else number_of(value, name)
        missing = sorted(wanted - set(numbers))
        if missing:
            raise AppError(f"the reply's MetricRecord lacks {_few(missing)}; the client app must add what the selector wants")
        weight = math.nan
        if self.weight_key is not None:
            if self.weight_key not in numbers:
                raise AppError(f"the reply's MetricRecord lacks {self.weight_key!r}, by which the strategy weighs")
            weight = number_of(numbers[self.weight_key], self.weight_key)
            if not weight > 0:
                raise NodeError(f"{self.weight_key!r} is {weight:g}; expected a number above 0")
        steps = number_of(numbers["local_steps"], "local_steps") if "local_steps" in numbers else math.nan
        return signals_of(numbers, wanted | {"loss"}, size), weight, steps  # a loss is worth a line in a table

    def evaluation(self, content: Any) -> tuple[Any, ...]:
        """The form of one client's evaluation, checked: one MetricRecord of finite numbers.

        Raises
        ------
        NodeError: it cannot be used.
        """
        key, numbers = only_metrics(content)
        self._numbers(numbers, 0, frozenset())
        return key, _lengths(numbers)

    def alike(self, uploads: Mapping[int, Upload]) -> tuple[Any, ...] | None:
        """The form that counts in this round: the one that most clients have, of all rounds; then of this one; then the first."""
        self.votes |= {client: upload.form for client, upload in uploads.items()}
        best: tuple[Any, ...] | None = None
        rank = (-1, -1)
        for client in sorted(uploads):
            form = uploads[client].form
            mine = (sum(f == form for f in self.votes.values()), sum(u.form == form for u in uploads.values()))
            if mine > rank:
                best, rank = form, mine
        return best
