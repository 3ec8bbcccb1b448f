"""Check the replies of clients before anything is computed from them.

Nothing is unpickled. An array's own header is read before its numbers, so that a header that promises more than was sent, another
shape or Python objects is found out without reserving memory for it. A number that is not finite makes a reply useless: a mean
with it would not be finite either.

Flower's records are used as dictionaries. Every check says in a :class:`~motley.adapters.flower.checks.NodeError` what is wrong.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.checks import AppError, NodeError, number_of, numbers_of, only_metrics, signal_of
from motley.adapters.flower.messages import content_bits
from motley.adapters.flower.node_registry import EXAMPLES
from motley.core.server_signals import Value

__all__ = ["CheckedReply", "ClientResult", "ReplyReader", "array_header", "array_of", "signals_of"]

HEADER_BYTES = 4096
"""Bytes an array may weigh beside its numbers."""

LARGEST_VALUE = math.sqrt(np.finfo(np.float32).max)
"""The largest number in an array: its square is finite, and so are a mean's sums."""

Form = tuple[Any, ...]
"""Names, dtypes and shapes of a reply's records."""


@dataclass(frozen=True)
class ClientResult:
    """What one client's usable reply holds.

    Parameters
    ----------
    weight: the client's weight in the strategy's mean, ``weighted_by_key``. signals: reported by the client, by name.
    steps: local steps; NaN if not reported. arrays: the updated model, by name. form: what must be alike in all replies of a round.
    """

    weight: float
    signals: Mapping[str, Value]
    steps: float
    arrays: Mapping[str, NDArray[Any]]
    form: Form


@dataclass(frozen=True)
class CheckedReply:
    """One client's reply after the checks.

    Parameters
    ----------
    message: Flower's; None if none came. bits: its size. result: what it holds, if it can be used. problem: why it cannot.
    """

    message: Any = None
    bits: float = 0.0
    result: ClientResult | None = None
    problem: NodeError | None = None


@dataclass(frozen=True)
class ReplyReader:
    """Checks of the replies of a round: each alone, then all must be of one form.

    Parameters
    ----------
    wanted: signals that clients themselves must report. weight_key: the strategy's ``weighted_by_key``; None: it has none.
    uploads: ``"as_sent"``: the arrays have the names, shapes and dtypes of the model sent; ``"any"``: any plain finite numbers (trees,
    adapters), whose names and dtypes must be alike in all replies. largest: bytes of one reply's arrays, under ``"any"``.
    """

    wanted: frozenset[str]
    weight_key: str | None = EXAMPLES
    uploads: Literal["as_sent", "any"] = "as_sent"
    largest: float = 1e9

    def read_all(
        self,
        messages: Mapping[int, Any],
        model: Any,
        model_key: str,
        forms: dict[int, Form],
        max_weights: Mapping[int, float] = MappingProxyType({}),
    ) -> dict[int, CheckedReply]:
        """Check all replies of a round.

        Parameters
        ----------
        messages: the replies, by client. model: the ArrayRecord that was sent. model_key: its key. forms: by client, the form of its
        last reply; updated. max_weights: by client, the largest weight that it may have in the mean.
        """
        checked = {
            client: self._read(message, model, model_key, max_weights.get(client, math.inf))
            for client, message in sorted(messages.items())
        }
        results = {client: reply.result for client, reply in checked.items() if reply.result is not None}
        usual = _usual_form(results, forms)
        for client, result in results.items():
            if result.form != usual:
                problem = AppError("the records of the reply are not of the form of the others'")
                checked[client] = CheckedReply(checked[client].message, checked[client].bits, None, problem)
        return checked

    def _read(self, message: Any, model: Any, model_key: str, max_weight: float) -> CheckedReply:
        bits = 0.0
        try:
            bits = content_bits(message.content)
            result = self._result(message.content, model, model_key)
            if result.weight > max_weight:
                raise AppError(f"{self.weight_key!r} is more than the client said at enrolment, or than max_examples")
            return CheckedReply(message, bits, result)
        except NodeError as problem:
            return CheckedReply(message, bits, None, problem)
        except Exception as problem:  # whatever records of a foreign kind may raise
            return CheckedReply(message, bits, None, NodeError(f"the reply cannot be read: {type(problem).__name__}"))

    def _result(self, content: Any, model: Any, model_key: str) -> ClientResult:
        records = content.array_records
        if not records:
            raise AppError("the reply holds no ArrayRecord; expected one")
        metric_key, metrics = only_metrics(content)
        main = model_key if model_key in records else next(iter(records))
        arrays: dict[str, NDArray[Any]] = {}
        forms = []
        for key, record in records.items():
            like = model if self.uploads == "as_sent" and key == main else None
            found = _arrays_of(record, like, self.largest)
            arrays = found if key == main else arrays
            shapes = [(name, str(one.dtype), one.shape if self.uploads == "as_sent" else None) for name, one in found.items()]
            forms.append((key, *sorted(shapes)))
        size = sum(array.size for array in arrays.values())
        weight = self._weight(metrics, self.wanted)
        steps = number_of(metrics["local_steps"], "local_steps") if "local_steps" in metrics else math.nan
        signals = signals_of(metrics, self.wanted | {"loss"}, size)  # a loss is shown in the table, wanted or not
        return ClientResult(weight, signals, steps, arrays, (tuple(forms), metric_key, _lengths(metrics)))

    def _weight(self, metrics: Mapping[str, Any], wanted: frozenset[str]) -> float:
        """Check that all metrics are finite numbers and none is missing; return the weight in the strategy's mean."""
        for name, value in metrics.items():
            _ = numbers_of(value, name) if isinstance(value, list) and value else number_of(value, name)
        missing = sorted(wanted - set(metrics))
        if missing:
            raise AppError(
                f"the reply's MetricRecord lacks {_listed(missing)}; the client app must add what the selector wants"
            )
        if self.weight_key is None:
            return math.nan
        if self.weight_key not in metrics:
            raise AppError(f"the reply's MetricRecord lacks {self.weight_key!r}, by which the strategy weighs")
        weight = number_of(metrics[self.weight_key], self.weight_key)
        if not weight > 0:
            raise NodeError(f"{self.weight_key!r} is {weight:g}; expected a number above 0")
        return weight

    def evaluation_form(self, content: Any, max_weight: float = math.inf) -> Form:
        """Return the form of one client's evaluation, which must be one MetricRecord of finite numbers.

        ``max_weight``: the largest weight that it may have in the mean."""
        key, metrics = only_metrics(content)
        if self._weight(metrics, frozenset()) > max_weight:
            raise NodeError(f"{self.weight_key!r} is {metrics[self.weight_key]:g}; expected at most {max_weight:g}")
        return key, _lengths(metrics)


def _usual_form(results: Mapping[int, ClientResult], forms: dict[int, Form]) -> Form | None:
    """Return the form that most clients sent last, in any round; among equals the most frequent of this round, then the first."""
    forms |= {client: result.form for client, result in results.items()}
    now = [result.form for result in results.values()]
    ever = list(forms.values())
    return max(now, key=lambda form: (ever.count(form), now.count(form)), default=None)


def _lengths(metrics: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, len(value) if isinstance(value, list) else -1) for name, value in metrics.items()))


def signals_of(metrics: Mapping[str, Any], wanted: Iterable[str], model_size: int) -> dict[str, Value]:
    """Return those of the wanted signals that a metric record holds."""
    return {name: signal_of(name, metrics[name], model_size) for name in sorted(wanted) if name in metrics}


def _arrays_of(record: Any, like: Mapping[str, Any] | None, largest: float) -> dict[str, NDArray[Any]]:
    """Return all arrays of a record; ``like``: the record whose names, shapes and dtypes they must have."""
    if like is not None and set(record) != set(like):
        missing, extra = sorted(set(like) - set(record)), sorted(set(record) - set(like))
        raise AppError(f"the arrays are not those sent: missing {_listed(missing)}, more {_listed(extra)}")
    found, left = {}, largest
    for name in like if like is not None else record:
        if like is None:
            found[name] = array_of(record[name], str(name), None, None, left)
        else:
            shape, dtype = tuple(like[name].shape), str(like[name].dtype)
            found[name] = array_of(record[name], str(name), shape, dtype, math.prod(shape) * 8)
        left -= found[name].nbytes
    return found


def _listed(names: Iterable[str]) -> str:
    names = [str(name)[:40] for name in names]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "") if names else "none"


def array_of(array: Any, name: str, shape: tuple[int, ...] | None, dtype: str | None, largest: float) -> NDArray[Any]:
    """Return the numbers of a Flower ``Array``.

    Parameters
    ----------
    name: for messages. shape, dtype: what the array must have; None: any. Floats may differ in width. largest: bytes of its numbers.

    Raises
    ------
    NodeError: the array is anything else, or holds a number that is not finite.
    """
    data, declared = getattr(array, "data", None), getattr(array, "shape", None)
    if getattr(array, "stype", None) != "numpy.ndarray" or not isinstance(data, bytes) or not isinstance(declared, tuple):
        raise NodeError(f"array {name!r} is not of the kind numpy.ndarray")
    if len(data) > largest + HEADER_BYTES:
        raise NodeError(f"array {name!r} weighs {len(data)} bytes; expected at most {int(largest)}")
    found, fortran, kind, begin = array_header(data, name)
    if found != declared or str(kind) != str(array.dtype):
        raise NodeError(f"array {name!r} says it is {array.dtype}{list(declared)} and holds {kind}{list(found)}")
    # floats of another width; and BatchNorm's count of batches, a whole number, of which a strategy's mean makes a float
    allowed = "fiu" if found == () else "f"
    same = dtype is None or str(kind) == dtype or (kind.kind in allowed and np.dtype(dtype).kind == "f")
    if not same or (shape is not None and found != tuple(shape)):
        raise AppError(f"array {name!r} is {kind}{list(found)}; expected {dtype}{list(shape or ())}, as sent")
    size = math.prod(found) if min(found, default=0) >= 0 else -1
    if len(data) - begin != size * kind.itemsize:
        raise NodeError(f"array {name!r} holds {len(data) - begin} bytes for {size} numbers of {kind.itemsize}")
    numbers = np.frombuffer(memoryview(data)[begin:], kind)
    if kind.kind == "f" and size and not -LARGEST_VALUE <= numbers.min() <= numbers.max() <= LARGEST_VALUE:
        raise NodeError(f"array {name!r} holds a number that is not finite, or larger than {LARGEST_VALUE:.0e}")
    return numbers.reshape(found, order="F" if fortran else "C")


def array_header(data: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and the length of the header of an array in NumPy's file format."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = reader(file)
    except Exception as problem:  # whatever reading foreign bytes may raise
        raise NodeError(f"array {name!r} cannot be read: {type(problem).__name__}") from None
    if version not in ((1, 0), (2, 0)) or kind.hasobject or kind.names is not None or kind.kind not in "biuf":
        raise NodeError(f"array {name!r} is of dtype {kind}; expected plain numbers")
    return shape, fortran, kind, file.tell()
