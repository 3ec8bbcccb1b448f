"""A run under attack: one client, the canary, sends what its world says, and what an adversary sees
of it becomes a likelihood ratio.

Two worlds are the same run with another canary. In the world *far* it sends what it computes. In
the world *near* it sends nothing (zeros, and the middles of its signals' intervals), or the
opposite (the update turned round, signals mirrored in their intervals). The adversary knows data,
start, model, everybody else's messages, and what the canary computes; it sees the noised sums, and
signals and cohorts unless these are hidden. Reference: docs/privacy.md#attack.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Parts, Upload
from motley.core.arrays import Floats, Ids
from motley.core.errors import ContractError
from motley.core.keys import Streams
from motley.core.records import SIGNALS, Cohort, Reports
from motley.engines.engine import Engine
from motley.rounds.run_config import RunConfig
from motley.rounds.simulated import simulation
from motley.selectors.selector import Selector
from motley.tasks.task import ModelState
from motley_privacy.correlated import coefficients
from motley_privacy.distributed_noise import ClientNoise
from motley_privacy.likelihood_ratios import gaussian_ratio, laplace_ratio, mixture_ratio
from motley_privacy.noise import bounded
from motley_privacy.options import SignalNoise
from motley_privacy.privacy_ledger import PrivacyState
from motley_privacy.privacy_plan import PrivacyPlan
from motley_privacy.private_rounds import PrivateRounds
from motley_privacy.sums import UPDATES_OF_A_SUM, clipped


class Canary(NamedTuple):
    """The client in which two worlds differ, in one of them.

    Parameters
    ----------
    client: its id.
    far: whether it sends what it computes.
    opposite: whether it sends the opposite otherwise, not nothing.
    rate: probability with which it is drawn, where cohorts are hidden; None: they are seen.
    clear: whether signals have no noise.
    stretched: whether its update is made as long as the clip, the longest that the account covers.
    """

    client: int
    far: bool
    opposite: bool = False
    rate: float | None = None
    clear: bool = False
    stretched: bool = False

    @property
    def near(self) -> float:
        """Factor on the canary's clipped upload in the world near."""
        return -1.0 if self.opposite else 0.0


class AttackedRounds(PrivateRounds):
    """The privacy of a run in one of two worlds, seen by an adversary.

    Parameters
    ----------
    plan, empty: as in :class:`~motley_privacy.private_rounds.PrivateRounds`.
    canary: of this world.
    selector: of the run, which says whether the canary is drawn where cohorts are hidden.

    Attributes
    ----------
    member: of each server step, whether the canary was chosen since the one before.
    sums, signals: log-likelihood ratios, far over near, of the noised sums and of the canary's
    noisy signals.
    filled: share of the clip that each of the canary's updates has.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        empty: Parts,
        canary: Canary,
        selector: Selector[Any],
    ) -> None:
        super().__init__(plan, empty)
        self.canary = canary
        self.selector = selector
        self.member: list[bool] = []
        self.sums = 0.0
        self.signals = 0.0
        self.filled: list[float] = []
        self._chosen = False
        self._update: dict[str, Tensor] = {}  # what the canary would add to the sum under way
        # noise and update of the newest sums
        self._past: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
        self._count = 0.0  # ... and to the centred count of updates that are not clipped
        # client -> what it added to its update in the sum under way
        self._noises: dict[int, Floats] = {}

    @override
    def capped(self, state: PrivacyState, ids: Ids, weights: Floats) -> Floats:
        self._chosen |= bool((ids == self.canary.client).any())
        return super().capped(state, ids, weights)

    @property
    def _factor(self) -> float:
        """Factor on the canary's clipped upload in this world and step."""
        absent = isinstance(self.selector, _Accompanied) and not self.selector.drawn
        if absent:
            return 0.0
        return 1.0 if self.canary.far else self.canary.near

    @override
    def clipped(self, state: PrivacyState, upload: Upload) -> Upload:
        if upload.client != self.canary.client:
            return super().clipped(state, upload)
        bounds = state.clip, self.plan.shares, self.plan.update_multiplier
        bounded, below = clipped(upload, *bounds)
        self.filled.append(_length(bounded, self.plan.shares) / state.clip)
        if self.canary.stretched and self.filled[-1]:
            bounded, below = clipped(_times(bounded, 2.0 / self.filled[-1]), *bounds)
        self._update = {
            name: part.value
            for name, part in bounded.parts.items()
            if part.fold in UPDATES_OF_A_SUM
        }
        self._count = below - 0.5
        if self._factor:  # who sends nothing is not counted
            self._uploads = self._uploads + 1
            self._unclipped = self._unclipped + below
        sent = {
            name: bounded.parts[name]._replace(value=self._factor * value)
            for name, value in self._update.items()
        }
        bounded = bounded._replace(parts={**bounded.parts, **sent})
        # it sends noise in both worlds
        return bounded if self.by_clients is None else super().clipped(state, bounded)

    @override
    def _encoded(self, state: PrivacyState, upload: Upload, noise: ClientNoise) -> Upload:
        masked = super()._encoded(state, upload, noise)
        entropy = self._client_entropy(state, upload.client)
        clear = upload.parts["delta"].value.double().numpy()
        added = masked.parts["delta"].value.numpy().reshape(-1) - noise.rounded(clear, entropy)
        self._noises[upload.client] = np.asarray(added * noise.grid, np.float64)
        return masked

    def _left(
        self, noise: ClientNoise, noised: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], float]:
        """Return the noise that hides the canary from a server with the colluders of the plan, and
        its deviation; nothing where the sum was not opened."""
        unknown = [k for k in self._noises if k != self.canary.client][noise.colluders :]
        noises = [self._noises[k] for k in (self.canary.client, *unknown) if k in self._noises]
        self._noises = {}
        total = {"delta": torch.from_numpy(np.sum(noises, axis=0))} if noised else {}
        return total, noise.sigma * noise.grid * math.sqrt(len(noises))

    @override
    def noised(
        self,
        state: PrivacyState,
        step: int,
        total: dict[str, Tensor],
        note: Callable[[dict[str, float]], None],
    ) -> dict[str, Tensor]:
        plan = self.plan
        clip = state.clip
        count = self._unclipped - 0.5 * self._uploads
        noised = super().noised(state, step, total, note)
        deviation = plan.update_multiplier * clip
        if self.by_clients is None:
            noise = {
                name: value * self._divisor(plan, name) - total.get(name, 0.0)
                for name, value in noised.items()
            }
        else:
            noise, deviation = self._left(self.by_clients, noised)
        self._past = [(noise, self._update), *self._past][: plan.options.min_separation]
        if noise and any(update for _, update in self._past):
            far, near = (
                self._likelihood(plan, f, deviation)
                + self._count_likelihood(
                    plan=plan, factor=f, before=clip, after=state.clip, count=count
                )
                for f in (1.0, self.canary.near)
            )
            rate = self.canary.rate
            self.sums += (
                far - near if rate is None else mixture_ratio(far, rate) - mixture_ratio(near, rate)
            )
        self.member.append(self._chosen and self.canary.rate is None)
        self._chosen = False
        self._update = {}
        return noised

    def _divisor(self, plan: PrivacyPlan, name: str) -> float:
        return plan.divisor if self.empty[name].fold == "mean" else 1.0

    def _likelihood(self, plan: PrivacyPlan, factor: float, deviation: float) -> float:
        """Return how much likelier the noised sums are, as a logarithm, with the canary's updates
        times ``factor`` than without them.

        Where noise is correlated, its independent part in this sum is seen, which the canary's
        newest update moves, too."""
        log_ratio = 0.0
        weights = coefficients(plan.options.min_separation)
        for name in self._past[0][0]:
            seen = 0.0
            moved = 0.0
            for weight, (noise, update) in zip(weights, self._past, strict=False):
                own = update[name].flatten().numpy() if name in update else 0.0
                # what the others sent is known
                seen = seen + weight * (noise[name].flatten().numpy() + self._factor * own)
                moved = moved + weight * factor * own
            if not np.isscalar(moved):
                spread = weights[0] * deviation * plan.shares.get(name, 1.0)
                log_ratio += float(gaussian_ratio(seen, 0.0, moved, spread))
        return log_ratio

    def _count_likelihood(
        self, plan: PrivacyPlan, factor: float, before: float, after: float, count: float
    ) -> float:
        """Return the same of the noisy count of updates that are not clipped, which a clip that
        adapts shows."""
        how = plan.options.adaptive
        if how is None or not factor:
            return 0.0
        share = how.quantile - math.log(after / before) / how.rate
        others_count = count - (self._count if self._factor else 0.0)
        seen = (share - 0.5) * plan.divisor - others_count
        return float(
            gaussian_ratio(np.array([seen]), 0.0, np.array([self._count]), plan.count_noise)
        )

    @override
    def heard(self, state: PrivacyState, reports: Reports) -> Reports:
        rows = np.flatnonzero(reports.ids == self.canary.client)
        sent = reports if self.canary.far or not len(rows) else self._near(reports, int(rows[0]))
        heard = sent if self.canary.clear else super().heard(state, sent)
        if len(rows) and not self.canary.clear:
            for name, how in self.plan.options.signal_noise.items():
                if name in heard.signals and SIGNALS[name].scalar:
                    self.signals += self._signal_ratio(
                        heard.signal(name)[rows], reports.signal(name)[rows], how
                    )
        return heard

    def _near(self, reports: Reports, row: int) -> Reports:
        """Return the reports with the canary's signals of the world near."""
        return dataclasses.replace(
            reports,
            signals={
                name: self._near_signal(name, value, row) for name, value in reports.signals.items()
            },
        )

    def _near_signal(self, name: str, value: Floats, row: int) -> Floats:
        """Return one signal of n clients with the canary's value of the world near: NaN counts as
        the middle."""
        if SIGNALS[name].kind == "system":
            return value
        out = value.copy()
        other_values = np.delete(value, row, axis=0)
        noise = self.plan.options.signal_noise
        if self.canary.clear:  # there is no interval
            out[row] = np.median(other_values, axis=0) if len(other_values) else 0.0
        elif not self.canary.opposite or name not in noise:
            out[row] = np.nan
        elif SIGNALS[name].scalar:
            out[row] = _mirrored(value[row : row + 1], noise[name])[0]
        else:
            out[row] = value[row][::-1]
        return out

    def _signal_ratio(self, seen: Floats, computed: Floats, how: SignalNoise) -> float:
        """Return the log-likelihood ratio of a noisy signal ``[1]``; 0 if none was sent, or if the
        noise is the server's."""
        if not np.isfinite(seen).all() or how.noise == "gumbel":
            return 0.0
        far = bounded(computed, how)
        if self.canary.opposite:
            near = _mirrored(computed, how)
        else:
            near = np.full(1, 0.5 * sum(how.interval))
        if how.noise == "laplace":
            return float(laplace_ratio(seen, near, far, how.scale)[0])
        return float(gaussian_ratio(seen, near, far, how.scale))


def _times(upload: Upload, factor: float) -> Upload:
    """Return an upload whose parts that enter a sum are longer by a factor."""
    real = {name: part for name, part in upload.parts.items() if part.fold in UPDATES_OF_A_SUM}
    longer = {name: part._replace(value=factor * part.value) for name, part in real.items()}
    return upload._replace(parts={**upload.parts, **longer})


def _length(upload: Upload, shares: Mapping[str, float]) -> float:
    """Return the norm of the parts that enter a sum as one vector, each over its share of the
    clip."""
    real = [
        (name, part.value) for name, part in upload.parts.items() if part.fold in UPDATES_OF_A_SUM
    ]
    return math.sqrt(
        sum(float((value / shares.get(name, 1.0)).square().sum()) for name, value in real)
    )


def _mirrored(value: Floats, how: SignalNoise) -> Floats:
    """Return values mirrored in the interval of their signal."""
    return sum(how.interval) - bounded(value, how)


class _Accompanied(Selector[Any]):
    """A selector whose cohorts always hold the canary, last, so that its update is known also in
    rounds that it does not enter.

    ``drawn``: whether the rule chose it in the newest cohort.
    """

    canary = -1
    drawn = False

    @override
    def select(
        self,
        draw: int,
        available_ids: ArrayLike,
        m: int,
        dispatch: int = 0,
        step: int | None = None,
    ) -> Cohort:
        cohort = super().select(draw, available_ids, m, dispatch=dispatch, step=step)
        self.drawn = bool((cohort.ids == self.canary).any())
        return Cohort(np.append(cohort.ids[cohort.ids != self.canary], self.canary))


def attacked_run(
    config: RunConfig, engine: Engine, selector: Selector[Any], model: ModelState, canary: Canary
) -> AttackedRounds:
    """Run to the end in the canary's world, and return what an adversary saw.

    Parameters
    ----------
    config: of the run, which has a plan of privacy and a number of rounds.
    selector: new; its seed is that of noise and choices, all else comes from ``config``.

    Raises
    ------
    ContractError: there is no plan of privacy.
    """
    plan = config.privacy
    if not isinstance(plan, PrivacyPlan):
        raise ContractError("a run under attack has a plan of privacy")
    if canary.rate is not None:
        selector = _Accompanied(selector.rule, selector.seed, selector.horizon)
        selector.canary = canary.client

    def attacked_stage(plan: PrivacyPlan, empty: Parts) -> AttackedRounds:
        return AttackedRounds(plan, empty, canary, selector)

    source = Streams(selector.seed).key("privacy")
    attacked_plan = dataclasses.replace(plan, source=source, make_stage=attacked_stage)
    config = dataclasses.replace(config, privacy=attacked_plan)
    loop = simulation(config, engine, selector, model, evaluates=False)
    while not loop.done:
        loop.step()
    rounds: Any = loop.private
    attacked: AttackedRounds = rounds
    return attacked
