"""The privacy of a run's rounds, a stage of private runs alone: what the selector hears, who may be
asked, and how uploads become a noised sum."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Parts, Upload
from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, RoundAbandonedError
from motley.core.keys import Key
from motley.core.records import HISTOGRAM, Outcome, Reports
from motley.core.saved_state import restore_fields, save_fields
from motley.rounds.round import LandedReports, Round
from motley.rounds.stage import Arrived, PrivateStage
from motley.rounds.state import RunState
from motley_privacy.discrete import Entropy
from motley_privacy.distributed_noise import ClientNoise
from motley_privacy.noise import Source, SystemRandomness, entropy_of, noise, released
from motley_privacy.privacy_ledger import PrivacyState
from motley_privacy.privacy_plan import PrivacyPlan
from motley_privacy.published import without_clear
from motley_privacy.sums import (
    UPDATES_OF_A_SUM,
    clipped,
    moves,
    next_clip,
    noised_sum,
    noisy_count,
)

SECONDS = 2.0**-20
"""Step of the durations of a private run, in seconds; those of the last bits are far smaller."""

_SENT = (Outcome.ENROLLED, Outcome.PROBED, Outcome.ACCEPTED, Outcome.REJECTED, Outcome.REHEARSED)


class PrivateRounds(PrivateStage):
    """Clips, noises and counts what clients release, as a run's plan says.

    Parameters
    ----------
    plan: of the run.
    empty: an upload whose model did not move.

    Attributes
    ----------
    account: the clip and the counts of the run.
    """

    name = "privacy"
    single_updates = "each is clipped at the server"

    def __init__(self, plan: PrivacyPlan, empty: Parts) -> None:
        bounded = ("delta",) if plan.client_noise is not None else UPDATES_OF_A_SUM
        for name, part in empty.items():
            how = name if plan.client_noise is not None else part.fold
            if part.value.numel() and how not in bounded:
                raise ConfigError(
                    f"clients also send {name!r} ({part.fold}), to which no noise is added; use an "
                    "algorithm that sends nothing but its update, or leave privacy out",
                    "privacy",
                )
            if how == "weighted_sum" and plan.options.max_examples is not None:
                raise ConfigError(
                    f"clients also send {name!r}, which is weighed by their clear numbers of "
                    'samples after the clip; write weights = "uniform", and leave max_examples out',
                    "weights",
                )
        self.plan = plan
        self.empty = empty
        self.source: Source | Key = SystemRandomness()
        # whether clients clip, noise, count and weigh what they send themselves, as real ones do
        self.local = True
        self._uploads, self._unclipped = 0, 0  # of the step under way

    @override
    def begin(self, population: int, simulated: bool) -> None:
        self.local = not simulated
        if simulated:
            self.source = self.plan.source
        self.account = PrivacyState.begin(self.plan, population)

    @override
    def save(self, state: RunState[Any]) -> Mapping[str, Any]:
        return save_fields(self.account)

    @override
    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        restore_fields(self.account, saved)

    @override
    def available(self, state: RunState[Any], ids: Ids) -> Ids:
        """Return the available clients that have reached no cap."""
        return self.account.below_caps(self.plan, ids)

    @override
    def weights(self, state: RunState[Any], ids: Ids, weights: Floats) -> Floats:
        return self.capped(self.account, ids, weights)

    @override
    def collected(self, state: RunState[Any], step: Round) -> None:
        self.account.enter(step.landed.dispatches.timelines.client[step.accepted])

    @override
    def landed(self, state: RunState[Any], reports: LandedReports) -> LandedReports:
        """Return reports whose durations are whole steps of :data:`SECONDS`.

        A duration is the difference of two moments, and its last bits follow the moments: a clock
        that follows one client's number of samples would tell of it in the durations of all."""

        def rounded(seconds: Floats) -> Floats:
            return np.rint(seconds / SECONDS) * SECONDS

        return dataclasses.replace(
            reports,
            download_s=rounded(reports.download_s),
            compute_s=rounded(reports.compute_s),
            upload_s=rounded(reports.upload_s),
        )

    @override
    def reports(self, state: RunState[Any], reports: Reports) -> Reports:
        return self.heard(self.account, reports)

    @override
    def upload(self, state: RunState[Any], step: Round, arrived: Arrived) -> Arrived:
        return arrived._replace(upload=self.clipped(self.account, arrived.upload))

    @override
    def total(self, state: RunState[Any], step: Round) -> Round:
        notes: dict[str, float] = {}
        noised = self.noised(self.account, step.number, step.total, notes.update)
        return dataclasses.replace(step.noted(notes), total=noised)

    @override
    def rows(self, state: RunState[Any], last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        return [("privacy", self.account.rows())] if last else ()

    @override
    def written(self, table: str, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        return without_clear(table, columns)

    def capped(self, state: PrivacyState, ids: Ids, weights: Floats) -> Floats:
        """Count a choice of these clients, and return their raw weights, capped:
        ``min(n, n_max) / n_max`` where a cap is given.

        Real clients multiply their uploads by it themselves, so that it is 1 here."""
        state.choices[ids] += 1
        most = self.plan.options.max_examples
        if most is None:
            return weights
        return np.ones_like(weights) if self.local else np.minimum(weights, most) / most

    def heard(self, state: PrivacyState, reports: Reports) -> Reports:
        """Return the reports as the rule hears them: what it needs alone, numbers of clients' data
        bounded and noised.

        A number that is absent, because it is not finite, counts as the middle of its interval; a
        client at its cap sends none. Real clients have done all this themselves but Gumbel noise,
        which is the server's."""
        if not len(reports):
            return reports
        needs = self.plan.needs
        first = reports.outcome[0]
        occasion = {Outcome.ENROLLED: needs.enrolled, Outcome.PROBED: needs.probed}.get(
            Outcome(int(first)), needs.reported
        )
        # also where nobody sent a number
        always = self.plan.options.signal_noise.keys() - {HISTOGRAM}
        signals = {
            name: reports.signal(name)
            for name in sorted(occasion)
            if name in always | reports.signals.keys()
        }
        sent = np.isin(reports.outcome, [int(outcome) for outcome in _SENT])
        noisy = {
            name: self._noisy(state, reports.ids, name, value, sent=sent)
            for name, value in signals.items()
            if name in self.plan.options.signal_noise
        }
        released = Reports(
            reports.ids,
            reports.outcome,
            version=reports.version,
            num_examples=reports.num_examples,
            local_steps=reports.local_steps,
            staleness=reports.staleness,
            download_s=reports.download_s,
            compute_s=reports.compute_s,
            upload_s=reports.upload_s,
            bits_up=reports.bits_up,
            bits_down=reports.bits_down,
            signals={**signals, **noisy},
        )
        return released.keep(needs.columns)

    def _noisy(self, state: PrivacyState, ids: Ids, name: str, value: Floats, sent: Any) -> Floats:
        """Return one signal ``[n]``, or ``[n, C]`` shares of labels, noised, NaN where a client
        sends none, and count it."""
        how = self.plan.options.signal_noise[name]
        count = state.signals[name]
        if self.local:
            if how.noise == "gumbel":
                return value + how.scale * noise(self.source, ids, how.noise)
            return value
        sends = sent & (count[ids] < self.plan.signal_cap(name))
        # grows with every call, so that no noise comes twice
        source = self.source.fold("signal", name, int(count.sum()))
        count[ids[sends]] += 1
        noisy = released(source=source, ids=ids, name=name, value=value, how=how)
        return np.where(sends if noisy.ndim == 1 else sends[:, None], noisy, np.nan)

    @property
    def by_clients(self) -> ClientNoise | None:
        """What clients add before they mask; None: the server adds the noise."""
        return self.plan.client_noise

    def clipped(self, state: PrivacyState, upload: Upload) -> Upload:
        """Return an upload as it enters the sum: weighted and clipped as one vector, and where
        clients add the noise, in whole numbers with it. Real clients have done that before they
        masked it."""
        if self.by_clients is not None:
            self._uploads += 1
            return upload if self.local else self._encoded(state, upload, self.by_clients)
        bounded, below = clipped(upload, state.clip, self.plan.shares, self.plan.update_multiplier)
        if moves(upload):
            self._uploads = self._uploads + 1
            self._unclipped = self._unclipped + below
        return bounded

    def _encoded(self, state: PrivacyState, upload: Upload, noise: ClientNoise) -> Upload:
        """Return an upload as a client masks it; one that is not finite has no parts, and counts as
        zeros."""
        part = upload.parts.get("delta", self.empty["delta"])
        entropy = self._client_entropy(state, upload.client)
        masked = noise.encode(part.value.detach().cpu().double().numpy(), entropy)
        value = (
            torch.from_numpy(masked).to(part.value.device, torch.float64).reshape(part.value.shape)
        )
        return upload._replace(
            parts={**upload.parts, "delta": part._replace(value=value)}, weight=1.0
        )

    def _client_entropy(self, state: PrivacyState, client: int) -> Entropy:
        """Return the bytes of a client's rounding and noise, whose path grows with its sums, so
        that no noise comes twice."""
        return entropy_of(self.source.fold("client", client, int(state.sums[client])))

    def _opened(self, total: dict[str, Tensor], noise: ClientNoise) -> dict[str, Tensor]:
        """Return the sum that clients have noised, over the fixed divisor; nothing where it is not
        opened."""
        count = self._uploads
        self._uploads = 0
        if count < noise.survivors or "delta" not in total:
            return {}
        value = total["delta"]
        if not self.local:
            masked_sum = value.cpu().numpy().reshape(-1).astype(np.int64)
            try:
                opened = noise.opened(masked_sum)
            except RoundAbandonedError:
                return {}
            value = torch.from_numpy(opened).to(value.device).reshape(value.shape)
        return {**total, "delta": value / self.plan.divisor}

    def noised(
        self,
        state: PrivacyState,
        step: int,
        total: dict[str, Tensor],
        note: Callable[[dict[str, float]], None],
    ) -> dict[str, Tensor]:
        """Return what server step ``step`` steps on, with noise and a fixed divisor; note a clip
        that adapts."""
        plan = self.plan
        state.step += 1
        if self.by_clients is not None:
            return self._opened(total, self.by_clients)
        deviation = plan.update_multiplier * state.clip
        source = self.source.fold("step", step)
        bands = plan.options.min_separation
        noised = noised_sum(
            total=total,
            empty=self.empty,
            deviation=deviation,
            shares=plan.shares,
            divisor=plan.divisor,
            source=source,
            past=state.past,
            bands=bands,
        )
        adaptive = plan.options.adaptive
        if adaptive is not None:
            note({"clip": state.clip})
            count = noisy_count(
                self._unclipped, self._uploads, plan.count_noise, source.fold("count")
            )
            state.clip = next_clip(
                clip=state.clip,
                count=count,
                divisor=plan.divisor,
                rate=adaptive.rate,
                quantile=adaptive.quantile,
            )
        self._uploads = 0
        self._unclipped = 0
        return noised
