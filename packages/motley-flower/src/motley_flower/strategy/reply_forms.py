"""The form of a run's replies: what more than half of the clients send, and never what a single one
sends first.

A reply consists of *entries*: its model, each further ArrayRecord, each number of its MetricRecord
with its length. What more than half of the clients sent last belongs to the form. A reply without
it cannot be used; what a reply has beyond it is left out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motley_flower.checked_numbers import AppError
from motley_flower.messages import flower

Entry = tuple[Any, ...]
"""``("model", arrays)``, ``("record", key, arrays)`` or ``("metric", name, length)``, where arrays
are (name, dtype, shape)."""


def arrays_form(arrays: Mapping[str, Any], shapes: bool) -> Entry:
    """Return names, dtypes and, where they count, shapes of arrays."""
    return tuple(
        sorted(
            (str(name), str(array.dtype), tuple(array.shape) if shapes else ())
            for name, array in arrays.items()
        )
    )


def metric_entries(metrics: Mapping[str, Any]) -> frozenset[Entry]:
    """Return the entries of a MetricRecord; the length of a single number is -1."""
    return frozenset(
        ("metric", name, len(value) if isinstance(value, list) else -1)
        for name, value in metrics.items()
    )


@dataclass(frozen=True)
class ReplyForm:
    """The form of one reply.

    Parameters
    ----------
    model: the entry of the model; empty in an evaluation.
    entries: all others.
    model_key, metric_key: of the two records.
    """

    model: Entry
    entries: frozenset[Entry]
    model_key: str
    metric_key: str


@dataclass(frozen=True)
class RunForm:
    """The form of the replies of a round.

    Parameters
    ----------
    model: the entry that the model must be.
    entries: what every reply must hold beside it.
    tied: entries that half of the clients send.
    model_key, metric_key: what the two records are called.
    """

    model: Entry
    entries: frozenset[Entry]
    tied: frozenset[Entry]
    model_key: str
    metric_key: str

    @classmethod
    def of(
        cls, now: Mapping[int, ReplyForm], last: Mapping[int, ReplyForm], like: ReplyForm
    ) -> RunForm:
        """Return the form of a round.

        Parameters
        ----------
        now: by client, of this round's replies.
        last: by client, of its last reply, this round's included.
        like: what the run asks for: the model as it was sent, and the numbers that must be there.
        """
        counts = Counter(entry for form in last.values() for entry in form.entries)
        return cls(
            _usual(
                [form.model for form in now.values()],
                [form.model for form in last.values()],
                like.model,
            ),
            entries=frozenset(entry for entry, count in counts.items() if 2 * count > len(last)),
            tied=frozenset(entry for entry, count in counts.items() if 2 * count == len(last)),
            model_key=_usual(
                [form.model_key for form in now.values()],
                [form.model_key for form in last.values()],
                like.model_key,
            ),
            metric_key=_usual(
                [form.metric_key for form in now.values()],
                [form.metric_key for form in last.values()],
                like.metric_key,
            ),
        )

    def with_tied(self) -> RunForm:
        """Return the form in which what half of the clients send is asked of all."""
        return dataclasses.replace(self, entries=self.entries | self.tied, tied=frozenset())

    def check(self, form: ReplyForm) -> None:
        """Refuse a reply of another form; raises AppError."""
        if form.model != self.model:
            raise AppError("the arrays of the reply are not of the form of the others'")
        missing = sorted(str(entry[1]) for entry in self.entries - form.entries)
        if missing:
            raise AppError(
                "the records of the reply are not of the form of the others': they lack "
                f"{', '.join(missing[:5])}"
            )

    def fitted(self, content: Any, form: ReplyForm) -> Any:
        """Return the records of a reply without what is beyond the form; the same object where
        nothing is."""
        same_names = (form.model_key, form.metric_key) == (self.model_key, self.metric_key)
        if form.entries == self.entries and same_names:
            return content
        app = flower()
        metric_keys = {entry[1] for entry in self.entries if entry[0] == "metric"}
        records = {name for kind, name, *_ in self.entries if kind == "record"}
        fitted = {}
        for name, record in content.items():
            if name == form.metric_key:
                fitted[self.metric_key] = app.MetricRecord(
                    {key: value for key, value in record.items() if key in metric_keys}
                )
            elif name == form.model_key and form.model:
                fitted[self.model_key] = record
            elif name not in content.array_records or name in records:
                fitted[name] = record
        return app.RecordDict(fitted)


def _usual(now: Sequence[Any], last: Collection[Any], like: Any) -> Any:
    """Return what most clients sent last, of what was sent now; among equals what the run asks for,
    then what most sent now."""
    ever = list(last)
    return max(
        dict.fromkeys(now),
        key=lambda form: (ever.count(form), form == like, now.count(form)),
        default=like,
    )
