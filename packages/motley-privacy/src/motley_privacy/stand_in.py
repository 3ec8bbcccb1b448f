"""The quadratic stand-in for a private experiment: its selector, caps, clip and noise, on losses
that cost nothing.

Kept are the experiment's population, cohort, rounds, rule and what ``[privacy]`` says, all by the
objects that a run uses. Data and model are those of :mod:`motley_privacy.two_worlds`; every client
is available and answers in time. Reference: docs/privacy.md#attack.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from typing_extensions import override

from motley.algorithms.parts import Part, Upload
from motley.core.arrays import Floats, Ids
from motley.core.keys import Streams
from motley.core.records import SIGNALS, Outcome, Reports
from motley.selectors.selector import Selector
from motley_privacy.audited import AuditedWorlds
from motley_privacy.likelihood_ratios import Observed, gaussian_ratio, laplace_ratio
from motley_privacy.options import SignalNoise
from motley_privacy.private_rounds import PrivateRounds
from motley_privacy.two_worlds import DIMENSIONS, LARGEST_LOSS, clipped_rows, optima, server_rate

_CLEAR = SignalNoise(multiplier=1.0, low=0.0, high=1.0)  # the interval of signals without noise


@dataclass(frozen=True)
class StandIn(AuditedWorlds):
    """Two worlds of an experiment's quadratic stand-in that differ in client 0."""

    attacked: ClassVar[str] = "quadratic stand-in"

    @override
    def described(self) -> str:
        return (
            f"Attacked is a quadratic stand-in with the experiment's selector, {self.population} "
            f"clients, cohort {self.cohort}, {self.rounds} rounds, clip, noise and caps; not its "
            "data and model. All clients are available and answer in time."
        )

    @override
    def observed(self, far: bool, seeds: Iterable[int]) -> Observed:
        trials = [_Trial(self, far, seed).run() for seed in seeds]
        member, sums, signals = (np.array(column) for column in zip(*trials, strict=True))
        return Observed(member & (not self.hidden), sums, signals if self.signals_seen else None)


class _Trial:
    """One run of the stand-in in one world."""

    def __init__(self, worlds: StandIn, far: bool, seed: int) -> None:
        near_o, far_o, common = optima(worlds.population)
        self.worlds = worlds
        self.far = far
        self.pair = np.stack([near_o, far_o])
        self.centres = np.concatenate([(far_o if far else near_o)[None], common])
        # the near world's canary has no data
        self.zero = worlds.plan.options.adjacency != "replace_one"
        empty = {"delta": Part(torch.zeros(DIMENSIONS, dtype=torch.float64), "mean")}
        plan = replace(worlds.plan, source=Streams(2 * seed + far).key("privacy"))
        self.private = PrivateRounds(plan, empty)
        self.private.begin(worlds.population, simulated=True)
        self.state = self.private.account
        self.selector = Selector(worlds.rule, 2 * seed + far, worlds.rounds, worlds.defence)
        deviation = worlds.plan.update_multiplier * self.state.clip
        self.rate = server_rate(deviation, worlds.plan.divisor, worlds.rounds)
        self.model = np.zeros(DIMENSIONS)
        self.signals = 0.0

    def run(self) -> tuple[list[bool], float, float]:
        """Return the canary's membership per round, and the log-likelihood ratios of sums and of
        signals."""
        worlds = self.worlds
        everybody = np.arange(self.worlds.population)
        needs = self.worlds.rule.needs()
        self._tell(0, everybody, Outcome.ENROLLED, needs.enrolled)
        member = []
        sums = 0.0
        for t in range(1, worlds.rounds + 1):
            ids = self.state.below_caps(worlds.plan, everybody)
            candidates = self.selector.probe(t, ids, worlds.cohort)
            if len(candidates):
                self._tell(t, candidates, Outcome.PROBED, needs.probed)
            cohort = np.sort(self.selector.select(t, ids, worlds.cohort).ids)
            member.append(bool(len(cohort)) and int(cohort[0]) == 0)
            sums += self._step(t, cohort)
            self._tell(t, cohort, Outcome.ACCEPTED, needs.reported)
        return member, sums, self.signals

    def _tell(self, t: int, ids: Ids, outcome: Outcome, names: Iterable[str]) -> None:
        """Let the selector observe signals of these clients, clipped and noised, and note what they
        say of the canary."""
        options = self.worlds.plan.options
        clear = self.worlds.clear
        shares = self._shares(self.centres)[ids]
        if self.zero and not self.far:
            # absent counts as the middle
            shares = np.where(ids == 0, 0.5 if clear else np.nan, shares)
        names = [name for name in sorted(names) if SIGNALS[name].kind != "system"]
        intervals = {name: options.signal_noise.get(name, _CLEAR) for name in names}
        signals = {
            name: noise.interval[0] + noise.width * shares for name, noise in intervals.items()
        }
        planned = {
            n: np.ones(len(ids))
            for n in self.worlds.rule.needs().enrolled
            if SIGNALS[n].kind == "system"
        }
        numbers: Any = dict.fromkeys(
            ("download_s", "compute_s", "upload_s", "local_steps", "num_examples", "bits_up"), 1.0
        )
        reports = Reports(ids, outcome, **numbers, signals={**signals, **planned})  # type: ignore[arg-type]
        heard = reports if clear else self.private.heard(self.state, reports)
        if self.worlds.signals_seen and len(ids) and ids[0] == 0:
            self.signals += sum(
                self._ratio(float(heard.signal(name)[0]), noise)
                for name, noise in intervals.items()
            )
        self.selector.observe(t, heard)

    def _shares(self, centres: Floats) -> Floats:
        """Return the losses of clients with these optima, as shares of the largest."""
        return np.asarray(
            np.minimum(0.5 * ((centres - self.model) ** 2).sum(-1) / LARGEST_LOSS, 1.0)
        )

    def _ratio(self, seen: float, how: SignalNoise) -> float:
        """Return the log-likelihood ratio of one noisy signal of the canary; 0 if a cap kept it
        from sending."""
        if not np.isfinite(seen):
            return 0.0
        near, far = how.interval[0] + how.width * self._shares(self.pair)
        near = 0.5 * sum(how.interval) if self.zero else near
        if how.noise == "laplace":
            return float(laplace_ratio(seen, near, far, how.scale))
        return float(gaussian_ratio(np.array([seen]), np.array([near]), np.array([far]), how.scale))

    def _step(self, t: int, cohort: Ids) -> float:
        """Take a server step on a cohort's noised sum, and return the sum's log-likelihood
        ratio."""
        plan = self.worlds.plan
        clip = self.state.clip
        self.private.capped(self.state, cohort, np.ones(len(cohort)))
        self.state.enter(cohort)
        raw = self.centres - self.model
        if self.zero and not self.far:
            raw[0] = 0.0
        bounded = clipped_rows(raw, clip)
        # the library's clip, slower one by one, agrees
        real = cohort if plan.options.adaptive else cohort[cohort == 0]
        for k in real:
            upload = Upload({"delta": Part(torch.from_numpy(raw[k]), "mean")}, 1.0, client=int(k))
            bounded[k] = self.private.clipped(self.state, upload).parts["delta"].value.numpy()
        total = bounded[cohort].sum(0)
        sent = {"delta": torch.from_numpy(total)} if len(cohort) else {}
        moved = self.private.noised(self.state, t, sent, lambda _: None)["delta"].numpy()
        near, far = clipped_rows(self.pair - self.model, clip)
        near = np.zeros(DIMENSIONS) if self.zero else near
        self.model = self.model + self.rate * moved
        seen = moved * plan.divisor
        deviation = plan.update_multiplier * clip
        # whose sum it is, is not known: the part of it along the canary's difference
        if self.worlds.hidden:
            expected = plan.divisor / self.worlds.population * bounded[1:].sum(0)
            return float((seen - expected) @ (far - near)) / deviation**2
        if not len(cohort) or cohort[0] != 0:
            return 0.0
        return float(gaussian_ratio(seen - bounded[cohort[1:]].sum(0), near, far, deviation))
