"""What is fixed about the privacy of a run: multipliers, divisor, caps and the releases that the
claim adds up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from motley.algorithms.parts import Parts
from motley.core.keys import Key
from motley.core.records import SignalRequirements
from motley.rounds.stage import PrivateStage
from motley_privacy.accounting import Bound, Release
from motley_privacy.claim import claim
from motley_privacy.distributed_noise import ClientNoise
from motley_privacy.noise import NoiseOrigin, SecretRandomness, Source, SystemRandomness
from motley_privacy.options import Privacy


@dataclass(frozen=True)
class PrivacyPlan:
    """The privacy of a run.

    Parameters
    ----------
    options: the table of the experiment.
    needs: what the rule needs of clients.
    noise_multiplier: z of a sum, the count of unclipped updates included.
    update_multiplier: z of the updates alone.
    divisor: the fixed number that sums are divided by.
    count_noise: deviation of the noise on the count, where the clip adapts.
    max_rounds, max_signals: caps per client.
    releases: of a client at its caps.
    bound: their epsilon.
    shares: part of an upload -> its clip over ``privacy.clip``, 1 where left out.
    client_noise: what clients add before they mask; None: the server adds the noise.
    make_stage: makes the stage of a run of this plan and of an upload whose model did not move; an
    audit has its own.
    source: what a simulation draws its noise from.
    """

    options: Privacy
    needs: SignalRequirements
    noise_multiplier: float
    update_multiplier: float
    divisor: float
    count_noise: float
    max_rounds: int
    max_signals: int
    releases: tuple[Release, ...]
    bound: Bound
    make_stage: Callable[[PrivacyPlan, Parts], PrivateStage] = field(compare=False)
    shares: Mapping[str, float] = field(default_factory=dict)
    client_noise: ClientNoise | None = None
    source: Source | Key = field(default_factory=SystemRandomness, repr=False, compare=False)

    @property
    def noised_by_clients(self) -> bool:
        """Whether clients add the noise of a sum."""
        return self.client_noise is not None

    @property
    def cohorts_hidden(self) -> bool:
        """Whether the account counts on cohorts that nobody sees."""
        return self.options.cohorts == "hidden"

    def stage(self, empty: Parts) -> PrivateStage:
        """Return a new stage of this plan; ``empty``: an upload whose model did not move."""
        return self.make_stage(self, empty)

    def signal_cap(self, name: str) -> int:
        """Return how often a client sends a signal at most: once at enrolment, else ``max_signals``
        times."""
        return self.max_signals if name in self.needs.probed or name in self.needs.reported else 1

    def origin(self, simulated: bool) -> NoiseOrigin:
        """Return where the noise of a simulation or a deployment comes from."""
        if not simulated:
            return "system"
        return "noise_seed" if isinstance(self.source, Key) else "secret"

    def claim(self, simulated: bool) -> tuple[str, ...]:
        """Return the claim in sentences. ``simulated``: whether the clients are."""
        caps = {name: self.signal_cap(name) for name in self.options.signal_noise}
        origin = self.origin(simulated)
        return claim(
            self.options,
            self.bound,
            self.max_rounds,
            signals=caps,
            origin=origin,
            by_clients=self.client_noise,
        )

    def record(self, simulated: bool, secret: bytes | None = None) -> dict[str, Any]:
        """Return the claim for ``run.json``.

        Parameters
        ----------
        simulated: whether the clients are.
        secret: that the noise is drawn from, to which the record holds a commitment.
        """
        options = self.options
        by_clients = self.client_noise
        return {
            "epsilon": self.bound.epsilon,
            "delta": options.delta,
            "adjacency": options.adjacency,
            "accountant": self.bound.accountant,
            "noise_multiplier": self.noise_multiplier,
            "clip": options.clip,
            "divisor": self.divisor,
            "max_rounds": self.max_rounds,
            "max_signals": self.max_signals,
            "cohorts": options.cohorts,
            "sizes": options.sizes,
            "noise": self.origin(simulated),
            "claim": list(self.claim(simulated)),
            **({} if by_clients is None else {"noise_by": "clients", **by_clients.record()}),
            **({} if secret is None else {"commitment": SecretRandomness(secret).commitment}),
        }
