"""A private run whose counted releases are those of another run, so that all else that differs
shows.

Two worlds are the same run but for one client's data. The first records every counted release: what
the selector hears of signals, and every noised sum. In the second world the releases have the
values of the first (whatever its noise must have been for that). If clients' data reach nothing but
counted releases, the second world is then equal to the first, bit for bit, in all that is
published. Whatever differs is known with certainty to those who see it, and no epsilon bounds it.

Beside it, each release is compared with what the second world would have released with the same
noise: it may move as far as the account says, and the signals and updates of other clients may not
move.
Reference: docs/privacy.md#attack.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Parts, Upload
from motley.core.arrays import Ids
from motley.core.records import SIGNALS, Outcome, Reports
from motley_privacy.privacy_ledger import PrivacyState
from motley_privacy.privacy_plan import PrivacyPlan
from motley_privacy.private_rounds import PrivateRounds
from motley_privacy.published import HEARD
from motley_privacy.sums import UPDATES_OF_A_SUM

_EXCESS = 1e-3
"""Share by which a release may move further than the account says, for rounding alone."""
_ROUNDING = 1e-4
"""Share of the clip by which another client's update may move, for the order of its sums alone."""


class CertainDifference(NamedTuple):
    """What differs between two worlds with certainty.

    Parameters
    ----------
    file, column: where it shows.
    round: the first round in which it does; -1: no round is known.
    said: both values, or by how much a release moved, in words.
    """

    file: str
    column: str
    round: int
    said: str

    def __str__(self) -> str:
        """Return it as one line."""
        when = f", round {self.round}" if self.round >= 0 else ""
        return f"{self.file}: {self.column}{when}: {self.said}"


@dataclass
class Releases:
    """The counted releases of a run, in their order.

    Parameters
    ----------
    heard: reports as the selector heard them.
    sums: what each server step stepped on, and the clip after it.
    uploads: clipped uploads by server step and client.
    """

    heard: list[Reports] = field(default_factory=list)
    sums: list[tuple[dict[str, Tensor], float]] = field(default_factory=list)
    uploads: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=dict)


class RecordedRounds(PrivateRounds):
    """The privacy of a run in the first of two worlds, whose releases are recorded.

    Parameters
    ----------
    plan, empty: as in :class:`~motley_privacy.private_rounds.PrivateRounds`.
    """

    def __init__(self, plan: PrivacyPlan, empty: Parts) -> None:
        super().__init__(plan, empty)
        self.releases = Releases()
        self.step = 1  # the server step under way

    @override
    def heard(self, state: PrivacyState, reports: Reports) -> Reports:
        heard = super().heard(state, reports)
        self.releases.heard.append(heard)
        return heard

    @override
    def clipped(self, state: PrivacyState, upload: Upload) -> Upload:
        sent = super().clipped(state, upload)
        self.releases.uploads[self.step, upload.client] = _summed(sent.parts)
        return sent

    @override
    def noised(
        self,
        state: PrivacyState,
        step: int,
        total: dict[str, Tensor],
        note: Callable[[dict[str, float]], None],
    ) -> dict[str, Tensor]:
        noised = super().noised(state, step, total, note)
        released = {name: value.clone() for name, value in noised.items()}
        self.releases.sums.append((released, state.clip))
        self.step = step + 1
        return noised


class PinnedRounds(RecordedRounds):
    """The privacy of a run in the second of two worlds, whose releases are those of the first.

    Parameters
    ----------
    plan, empty: as in :class:`~motley_privacy.private_rounds.PrivateRounds`.
    first: the releases of the first world.
    client: in whose data the worlds differ.
    absent: whether it has no data here, and sends zeros and the middles of its signals.

    Attributes
    ----------
    differences: of what the selector hears, and releases that moved further than the account says.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        empty: Parts,
        first: Releases,
        client: int,
        absent: bool,
    ) -> None:
        super().__init__(plan, empty)
        self.first = first
        self.client = client
        self.absent = absent
        self.differences: list[CertainDifference] = []

    @property
    def _factor(self) -> float:
        """What one client may move, over the clip or over the width of a signal's interval."""
        return 1.0 if self.absent else 2.0

    def _differs(self, column: str, sentence: str, file: str = HEARD) -> None:
        self.differences.append(CertainDifference(file, column, self.step, sentence))

    @override
    def heard(self, state: PrivacyState, reports: Reports) -> Reports:
        if self.absent:
            reports = self._silent(reports)
        heard = super().heard(state, reports)
        at = len(self.releases.heard) - 1
        if at >= len(self.first.heard):
            self._differs("occasions", "more reports than in the first world")
            return heard
        pinned = self.first.heard[at]
        if not np.array_equal(heard.ids, pinned.ids):
            self._differs("ids", f"{pinned.ids.tolist()} and {heard.ids.tolist()}")
            return heard
        differences = list(self._compared(pinned, heard))
        self.differences += differences
        return pinned

    def _silent(self, reports: Reports) -> Reports:
        """Return the reports without the client's own numbers."""
        noisy = self.plan.options.signal_noise
        own = {name: value.copy() for name, value in reports.signals.items() if name in noisy}
        for value in own.values():
            value[reports.ids == self.client] = np.nan
        return dataclasses.replace(reports, signals={**reports.signals, **own})

    def _compared(self, first: Reports, second: Reports) -> Iterator[CertainDifference]:
        """Yield what differs between the same reports in both worlds beside the noisy signals, and
        signals that moved too far."""
        occasion = Outcome(int(first.outcome[0])).name.lower() if len(first) else "none"
        numbers = [f.name for f in dataclasses.fields(Reports) if f.name not in ("ids", "signals")]
        for name in numbers:
            first_values = getattr(first, name)
            second_values = getattr(second, name)
            if not same(first_values, second_values):
                yield self._at(f"{name}, with {occasion}", first.ids, first_values, second_values)
        for name in sorted({*first.signals, *second.signals}):
            first_values = first.signal(name)
            second_values = second.signal(name)
            noisy = name in self.plan.options.signal_noise
            gone = np.isnan(first_values), np.isnan(second_values)
            if not same(*((first_values, second_values) if not noisy else gone)):
                yield self._at(f"{name}, with {occasion}", first.ids, first_values, second_values)
            elif noisy:
                yield from self._moved(name, first.ids, first_values, second_values)

    def _at(
        self, column: str, ids: Ids, first_values: Any, second_values: Any
    ) -> CertainDifference:
        rows = [k for k in range(len(ids)) if not same(first_values[k], second_values[k])]
        k = rows[0] if rows else 0
        sentence = f"client {ids[k]} has {first_values[k]} and {second_values[k]}"
        more = f", and {len(rows) - 1} others differ" if len(rows) > 1 else ""
        return CertainDifference(HEARD, column, self.step, sentence + more)

    def _moved(
        self, name: str, ids: Ids, first_values: Any, second_values: Any
    ) -> Iterator[CertainDifference]:
        """Yield noisy signals that moved, with the same noise, further than the account says."""
        how = self.plan.options.signal_noise[name]
        limits = np.where(ids == self.client, 0.5 * self._factor * how.width, _ROUNDING * how.width)
        if not SIGNALS[name].scalar:  # shares are cut and divided after the noise; others stay
            limits = np.where(ids == self.client, np.inf, _ROUNDING)
        by = (
            np.nan_to_num(np.abs(first_values - second_values))
            .reshape(len(ids), -1)
            .max(axis=1, initial=0.0)
        )
        for k in np.flatnonzero(by > limits * (1.0 + _EXCESS)):
            sentence = (
                f"the value of client {ids[k]} moved by {by[k]:.4g}, and {limits[k]:.4g} are "
                "counted"
            )
            yield CertainDifference(HEARD, name, self.step, sentence)

    @override
    def clipped(self, state: PrivacyState, upload: Upload) -> Upload:
        if self.absent and upload.client == self.client:
            zeros = {
                name: part._replace(value=torch.zeros_like(part.value))
                for name, part in upload.parts.items()
                if part.fold in UPDATES_OF_A_SUM
            }
            return super().clipped(state, upload._replace(parts={**upload.parts, **zeros}))
        sent = super().clipped(state, upload)
        before = self.first.uploads.get((self.step, upload.client))
        if before is not None and upload.client != self.client:
            by = self._length(before, _summed(sent.parts))
            if by > _ROUNDING * state.clip:
                sentence = f"the update of client {upload.client}, another one, moved by {by:.4g}"
                self._differs("a client's update", sentence, "(sums)")
        return sent

    @override
    def noised(
        self,
        state: PrivacyState,
        step: int,
        total: dict[str, Tensor],
        note: Callable[[dict[str, float]], None],
    ) -> dict[str, Tensor]:
        clip = state.clip
        noised = super().noised(state, step, total, note)
        at = len(self.releases.sums) - 1
        if at >= len(self.first.sums):
            self._differs("occasions", "more sums than in the first world", "(sums)")
            return noised
        pinned, clip_after = self.first.sums[at]
        by = self._length(pinned, noised, self.plan.divisor)
        most = self._factor * clip
        if not by <= most * (1.0 + _EXCESS):
            sentence = f"the sum moved by {by:.4g}, and {most:.4g} are counted"
            self._differs("sum", sentence, "(sums)")
        how = self.plan.options.adaptive
        if how is not None:
            counted = abs(math.log(state.clip / clip_after)) / how.rate * self.plan.divisor
            if counted > 0.5 * self._factor * (1.0 + _EXCESS):
                sentence = f"the count moved by {counted:.4g}, and {0.5 * self._factor} is counted"
                self._differs("count of unclipped updates", sentence, "(sums)")
        state.clip = clip_after
        return {name: value.clone() for name, value in pinned.items()}

    def _length(
        self,
        first_sum: Mapping[str, Tensor],
        second_sum: Mapping[str, Tensor],
        divisor: float = 1.0,
    ) -> float:
        """Return how far two sums lie apart as one vector, each part over its share of the clip; a
        part that is absent is zero."""
        squares = 0.0
        for name, part in self.empty.items():
            if part.fold not in UPDATES_OF_A_SUM or not part.value.numel():
                continue
            share = self.plan.shares.get(name, 1.0)
            times = divisor if part.fold == "mean" else 1.0
            nothing = torch.zeros_like(part.value, dtype=torch.float64)
            apart = first_sum.get(name, nothing).double() - second_sum.get(name, nothing).double()
            squares += float((apart * times / share).square().sum())
        return math.sqrt(squares)


def _summed(parts: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return copies of the parts of an upload that enter a private sum."""
    return {n: p.value.detach().clone() for n, p in parts.items() if p.fold in UPDATES_OF_A_SUM}


def same(left: Any, right: Any) -> bool:
    """Return whether two arrays are equal to the last bit of their values, NaN being equal to
    NaN."""
    first = np.asarray(left)
    second = np.asarray(right)
    if first.shape != second.shape:
        return False
    numbers = first.dtype.kind == "f" and second.dtype.kind == "f"
    return bool(np.array_equal(first, second, equal_nan=numbers))
