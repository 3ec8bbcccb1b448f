"""Check the replies of clients before anything is computed from them.

Nothing is unpickled. An array's own header is read before its numbers, so that a header that
promises more than was sent, another shape or Python objects is found out without reserving memory
for it. A number that is not finite makes a reply useless: a mean with it would not be finite
either.

Flower's records are used as dictionaries. Every check says in a
:class:`~motley_flower.checked_numbers.NodeError` what is wrong.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.core.outliers import LARGEST_NUMBER, excessive
from motley.core.server_signals import Value
from motley.core.untrusted import one_line
from motley_flower.checked_numbers import (
    AppError,
    NodeError,
    check_names,
    number_of,
    numbers_of,
    only_metrics,
    signal_of,
)
from motley_flower.messages import content_bits, flower
from motley_flower.node_registry import EXAMPLES
from motley_flower.strategy.reply_forms import (
    Entry,
    ReplyForm,
    RunForm,
    arrays_form,
    metric_entries,
)

HEADER_BYTES = 4096
"""Bytes an array may weigh beside its numbers."""

MOST_METRICS = 10_000
"""Numbers and lists in one reply's MetricRecord."""


class WeightBound(NamedTuple):
    """How much one client's word on its weight in a mean counts.

    Parameters
    ----------
    most: a reply that says more is refused.
    counts: what is above it counts as much.
    """

    most: float = math.inf
    counts: float = math.inf


_UNBOUNDED = WeightBound()


@dataclass(frozen=True)
class ClientResult:
    """What one client's usable reply holds.

    Parameters
    ----------
    weight: the client's weight in the strategy's mean, ``weighted_by_key``.
    signals: reported by the client, by name.
    steps: local steps; NaN if not reported.
    arrays: the updated model, by name.
    form: of the reply's records.
    """

    weight: float
    signals: Mapping[str, Value]
    steps: float
    arrays: Mapping[str, NDArray[Any]]
    form: ReplyForm


@dataclass(frozen=True)
class CheckedReply:
    """One client's reply after the checks.

    Parameters
    ----------
    message: Flower's; None if none came.
    bits: its size.
    result: what it holds, if it can be used.
    problem: why it cannot.
    content: the message's records as the client sent them.
    counts: the largest weight that it counts with.
    """

    message: Any = None
    bits: float = 0.0
    result: ClientResult | None = None
    problem: NodeError | None = None
    content: Any = None
    counts: float = math.inf


@dataclass(frozen=True)
class ReplyReader:
    """Checks of the replies of a round: each alone, then all must be of the run's form.

    Parameters
    ----------
    wanted: signals that clients themselves must report.
    weight_key: the strategy's ``weighted_by_key``; None: it has none.
    uploads: ``"as_sent"``: the arrays have the names, shapes and dtypes of the model sent;
    ``"any"``: any plain finite numbers (trees, adapters), whose names and dtypes must be alike in
    all replies.
    largest: bytes of one reply's arrays, under ``"any"``.
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
        forms: dict[int, ReplyForm],
        bounds: Mapping[int, WeightBound] = MappingProxyType({}),
        first_dtypes: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[dict[int, CheckedReply], RunForm]:
        """Check all replies of a round; return them by client, and the form that they have.

        Parameters
        ----------
        messages: the replies, by client.
        model: the ArrayRecord that was sent.
        model_key: its key.
        forms: by client, the form of its last reply; updated.
        bounds: by client, of its weight in the mean.
        first_dtypes: by name, the dtype of an array that was no float before a strategy's mean
        made a float of it; clients go on to send the former.
        """
        checked = {
            client: self._read(
                message, model, model_key, bounds.get(client, _UNBOUNDED), first_dtypes
            )
            for client, message in sorted(messages.items())
        }
        checked = self._without_excessive(checked)
        now = {
            client: reply.result.form
            for client, reply in checked.items()
            if reply.result is not None
        }
        forms |= now
        like = ReplyForm(
            ("model", arrays_form(model, self.uploads == "as_sent")),
            frozenset(),
            model_key,
            "metrics",
        )
        form = RunForm.of(now, forms, like)
        return self.fit(checked, form), form

    def fit(self, checked: Mapping[int, CheckedReply], form: RunForm) -> dict[int, CheckedReply]:
        """Return the replies with nothing beyond a form, and refuse those that lack some of it;
        what a weight counts is cut."""
        fitted = {}
        for client, reply in checked.items():
            fitted[client] = reply
            if reply.result is None:
                continue
            try:
                form.check(reply.result.form)
                content = form.fitted(reply.content, reply.result.form)
                content = self.cut(content, reply.result.weight, reply.counts)
                if content is not reply.message.content:
                    reply.message.content = content
            except AppError as problem:
                fitted[client] = replace(reply, result=None, problem=problem)
        return fitted

    def _without_excessive(self, checked: Mapping[int, CheckedReply]) -> dict[int, CheckedReply]:
        """Return the replies, of which those are refused that hold a number far beyond the others':
        a strategy's mean and its weights are made of them. The weight has bounds of its own."""
        numbers = {
            client: {
                name: value
                for name, value in next(iter(reply.content.metric_records.values())).items()
                if name != self.weight_key
            }
            for client, reply in checked.items()
            if reply.result is not None
        }
        named = excessive(numbers)
        replies = dict(checked)
        for client, why in named.items():
            replies[client] = replace(checked[client], result=None, problem=NodeError(why))
        return replies

    def cut(self, content: Any, weight: float, counts: float) -> Any:
        """Return records whose weight in the mean is at most ``counts``; the same object where it
        is."""
        if not weight > counts:
            return content
        app = flower()
        key = next(iter(content.metric_records))
        metrics = app.MetricRecord({**content.metric_records[key], self.weight_key: counts})
        return app.RecordDict({**dict(content.items()), key: metrics})

    def _read(
        self,
        message: Any,
        model: Any,
        model_key: str,
        bound: WeightBound,
        first_dtypes: Mapping[str, str],
    ) -> CheckedReply:
        bits = 0.0
        try:
            bits = content_bits(message.content)
            result = self._result(message.content, model, model_key, first_dtypes)
            if result.weight > bound.most:
                raise AppError(
                    f"{self.weight_key!r} is more than the client said at enrolment, or than "
                    "max_examples; expected the same number at both, and max_examples above all"
                )
            return CheckedReply(
                message=message,
                bits=bits,
                result=result,
                problem=None,
                content=message.content,
                counts=bound.counts,
            )
        except NodeError as problem:
            return CheckedReply(message, bits, None, problem)
        except Exception as problem:  # whatever records of a foreign kind may raise
            return CheckedReply(
                message,
                bits,
                None,
                NodeError(f"the reply cannot be read: {type(problem).__name__}"),
            )

    def _result(
        self, content: Any, model: Any, model_key: str, first_dtypes: Mapping[str, str]
    ) -> ClientResult:
        records = content.array_records
        shapes = self.uploads == "as_sent"
        if not records:
            raise AppError("the reply holds no ArrayRecord; expected one")
        check_names(content)
        metric_key, metrics = only_metrics(content)
        main = model_key if model_key in records else next(iter(records))
        arrays: dict[str, NDArray[Any]] = {}
        record_entries: list[Entry] = []
        for key, record in records.items():
            record_arrays = _arrays_of(
                record, model if shapes and key == main else None, self.largest, first_dtypes
            )
            if key == main:
                arrays = record_arrays
            else:
                record_entries.append(("record", key, arrays_form(record_arrays, shapes)))
        size = sum(array.size for array in arrays.values())
        weight = self._weight(metrics, self.wanted)
        if "local_steps" in metrics:
            steps = number_of(metrics["local_steps"], "local_steps")
        else:
            steps = math.nan
        # a loss is shown in the table, wanted or not
        signals = signals_of(metrics, self.wanted | {"loss"}, size)
        form = ReplyForm(
            ("model", arrays_form(arrays, shapes)),
            metric_entries(metrics) | set(record_entries),
            main,
            metric_key,
        )
        return ClientResult(weight=weight, signals=signals, steps=steps, arrays=arrays, form=form)

    def _weight(self, metrics: Mapping[str, Any], wanted: frozenset[str]) -> float:
        """Check that all metrics are finite numbers and none is missing; return the weight in the
        strategy's mean."""
        if len(metrics) > MOST_METRICS:
            raise NodeError(
                f"the reply's MetricRecord has {len(metrics)} numbers; expected at most "
                f"{MOST_METRICS}"
            )
        for name, value in metrics.items():
            if isinstance(value, list) and value:
                _ = numbers_of(value, name)
            else:
                _ = number_of(value, name)
        missing = sorted(wanted - set(metrics))
        if missing:
            raise AppError(
                f"the reply's MetricRecord lacks {', '.join(missing[:5])}; the client app must add "
                "what the selector wants"
            )
        if self.weight_key is None:
            return math.nan
        if self.weight_key not in metrics:
            raise AppError(
                f"the reply's MetricRecord lacks {self.weight_key!r}, by which the strategy "
                f"weighs; it has {_listed(sorted(metrics))}: rename one in the client app, or give "
                "the strategy that name, weighted_by_key="
            )
        weight = number_of(metrics[self.weight_key], self.weight_key)
        if not weight > 0:
            raise NodeError(f"{self.weight_key!r} is {weight:g}; expected a number above 0")
        return weight

    def evaluations(
        self, messages: Mapping[int, Any], bounds: Mapping[int, WeightBound]
    ) -> dict[int, CheckedReply]:
        """Check the replies to a federated evaluation, each of which must be one MetricRecord of
        finite numbers; parameters as for :meth:`read_all`."""
        checked = {}
        for client, message in sorted(messages.items()):
            bound = bounds.get(client, _UNBOUNDED)
            try:
                key, metrics = only_metrics(message.content)
                weight = self._weight(metrics, frozenset())
                if weight > bound.most:
                    raise NodeError(
                        f"{self.weight_key!r} is {weight:g}; expected at most {bound.most:g}"
                    )
                result = ClientResult(
                    weight=weight,
                    signals={},
                    steps=math.nan,
                    arrays={},
                    form=ReplyForm((), metric_entries(metrics), "", key),
                )
                checked[client] = CheckedReply(
                    message=message,
                    bits=0.0,
                    result=result,
                    problem=None,
                    content=message.content,
                    counts=bound.counts,
                )
            except NodeError as problem:
                checked[client] = CheckedReply(message, 0.0, None, problem)
            except Exception as problem:  # whatever records of a foreign kind may raise
                checked[client] = CheckedReply(
                    message, 0.0, None, NodeError(f"it cannot be read: {type(problem).__name__}")
                )
        checked = self._without_excessive(checked)
        now = {
            client: reply.result.form
            for client, reply in checked.items()
            if reply.result is not None
        }
        return self.fit(checked, RunForm.of(now, now, ReplyForm((), frozenset(), "", "metrics")))


def signals_of(
    metrics: Mapping[str, Any], wanted: Iterable[str], model_size: int
) -> dict[str, Value]:
    """Return those of the wanted signals that a metric record holds."""
    return {
        name: signal_of(name, metrics[name], model_size)
        for name in sorted(wanted)
        if name in metrics
    }


def _arrays_of(
    record: Any, like: Mapping[str, Any] | None, largest: float, first_dtypes: Mapping[str, str]
) -> dict[str, NDArray[Any]]:
    """Return all arrays of a record; ``like``: the record whose names, shapes and dtypes they must
    have, or the dtypes of the first model."""
    if like is not None and set(record) != set(like):
        missing = sorted(set(like) - set(record))
        extra = sorted(set(record) - set(like))
        raise AppError(
            f"the arrays are not those sent: missing {_listed(missing)}, more {_listed(extra)}"
        )
    arrays = {}
    left = largest
    for name in like if like is not None else record:
        if like is None:
            arrays[name] = array_of(
                record[name], name=str(name), shape=None, dtype=None, largest=left
            )
        else:
            shape = tuple(like[name].shape)
            dtype = str(like[name].dtype)
            if str(record[name].dtype) == first_dtypes.get(name):
                dtype = first_dtypes[name]
            arrays[name] = array_of(
                record[name], name=str(name), shape=shape, dtype=dtype, largest=math.prod(shape) * 8
            )
        left -= arrays[name].nbytes
    return arrays


def _listed(names: Iterable[str]) -> str:
    names = [one_line(name, 40) for name in names]
    if not names:
        return "none"
    return ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "")


def array_of(
    array: Any, name: str, shape: tuple[int, ...] | None, dtype: str | None, largest: float
) -> NDArray[Any]:
    """Return the numbers of a Flower ``Array``.

    Parameters
    ----------
    name: for messages.
    shape, dtype: what the array must have; None: any. Floats may differ in width.
    largest: bytes of its numbers.

    Raises
    ------
    NodeError: the array is anything else, or holds a number that is not finite.
    """
    data = getattr(array, "data", None)
    declared = getattr(array, "shape", None)
    if (
        getattr(array, "stype", None) != "numpy.ndarray"
        or not isinstance(data, bytes)
        or not isinstance(declared, tuple)
    ):
        raise NodeError(f"array {one_line(name)} is not of the kind numpy.ndarray")
    if len(data) > largest + HEADER_BYTES:
        raise NodeError(
            f"array {one_line(name)} weighs {len(data)} bytes; expected at most {int(largest)}"
        )
    header_shape, fortran, kind, begin = array_header(data, name)
    if header_shape != declared or str(kind) != str(array.dtype):
        raise NodeError(
            f"array {one_line(name)} says it is {array.dtype}{list(declared)} and holds "
            f"{kind}{list(header_shape)}"
        )
    # floats of another width; and BatchNorm's count of batches, a whole number, of which a
    # strategy's mean makes a float
    allowed = "fiu" if header_shape == () else "f"
    same = (
        dtype is None
        or str(kind) == dtype
        or (kind.kind in allowed and np.dtype(dtype).kind == "f")
    )
    if not same or (shape is not None and header_shape != tuple(shape)):
        raise AppError(
            f"array {one_line(name)} is {kind}{list(header_shape)}; expected "
            f"{dtype}{list(shape or ())}, as sent"
        )
    size = math.prod(header_shape) if min(header_shape, default=0) >= 0 else -1
    if len(data) - begin != size * kind.itemsize:
        raise NodeError(
            f"array {one_line(name)} holds {len(data) - begin} bytes for {size} numbers of "
            f"{kind.itemsize}"
        )
    numbers = np.frombuffer(memoryview(data)[begin:], kind)
    if (
        kind.kind == "f"
        and size
        and not -LARGEST_NUMBER <= float(numbers.min()) <= float(numbers.max()) <= LARGEST_NUMBER
    ):
        raise NodeError(
            f"array {one_line(name)} holds a number that is not finite, or larger than "
            f"{LARGEST_NUMBER:.0e}"
        )
    return numbers.reshape(header_shape, order="F" if fortran else "C")


def array_header(data: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and the length of the header of an array in NumPy's file
    format."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            reader = np.lib.format.read_array_header_1_0
        else:
            reader = np.lib.format.read_array_header_2_0
        shape, fortran, kind = reader(file)
    except Exception as problem:  # whatever reading foreign bytes may raise
        raise NodeError(
            f"array {one_line(name)} cannot be read: {type(problem).__name__}"
        ) from None
    if (
        version not in ((1, 0), (2, 0))
        or kind.hasobject
        or kind.names is not None
        or kind.kind not in "biuf"
    ):
        raise NodeError(f"array {one_line(name)} is of dtype {kind}; expected plain numbers")
    return shape, fortran, kind, file.tell()
