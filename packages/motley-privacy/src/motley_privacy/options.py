"""The table ``[privacy]`` of the experiment file: clipping, noise, caps, and what a claim is
about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from motley.core.bounds import Count, Positive
from motley.core.errors import ConfigError
from motley.core.records import HISTOGRAM, NoiseLaw

Adjacency = Literal["zero_out", "replace_one", "add_remove"]
Multiplier = Annotated[float, Ge(0.01)]
"""Noise over what it hides; with less there is no bound to speak of, and accountants overflow."""


@dataclass(frozen=True)
class AdaptiveClip:
    """A clip that follows a quantile of the updates' norms (Andrew et al. 2021, arXiv:1905.03871),
    from ``privacy.clip``."""

    quantile: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Share of updates that should not be clipped, gamma."""
    rate: Positive = 0.2
    """Learning rate of the clip's logarithm."""
    noise: Positive | None = None
    """Standard deviation of the noise on the count of updates that are not clipped; left out: the
    divisor over 20."""


@dataclass(frozen=True)
class SignalNoise:
    """How a client clips a scalar signal, or divides its counts of labels by their sum, and adds
    noise before it sends them."""

    multiplier: Multiplier
    """Scale of the noise over the width of the interval: Laplace's b, the Gaussian's standard
    deviation, 1 / eta of Gumbel noise."""
    low: float | None = None
    """Smallest value sent, before noise; not of ``label_histogram``, whose shares lie in [0, 1] and
    differ by 2 at most in sum."""
    high: float | None = None
    """Largest value sent, before noise; as ``low``."""
    noise: NoiseLaw = "laplace"
    """Law of the noise. ``gumbel`` is added by the server, for rules that take the m largest
    values."""

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the values sent, before noise; of shares, without ``low`` and ``high``,
        it is (0, 1)."""
        return 0.0 if self.low is None else self.low, 1.0 if self.high is None else self.high

    @property
    def width(self) -> float:
        """The width of the interval of a scalar; 2 for shares, the largest sum of absolute
        differences of two histograms."""
        return 2.0 if self.low is None else self.interval[1] - self.interval[0]

    @property
    def scale(self) -> float:
        """The scale of the noise, in the signal's unit."""
        return self.multiplier * self.width


@dataclass(frozen=True)
class Privacy:
    """Differential privacy of a client's whole data: what it takes, and what it is about."""

    clip: Positive
    """C, the largest norm of what one client adds to a sum; or a table { initial, quantile, rate,
    noise } for a clip that adapts."""
    delta: Annotated[float, Gt(0), Lt(1)]
    """Of (epsilon, delta)."""
    noise_multiplier: Multiplier | None = None
    """z: standard deviation of the noise on a sum over C; or ``epsilon``."""
    epsilon: Positive | None = None
    """Target: the noise multiplier is calibrated to it."""
    adaptive: AdaptiveClip | None = None
    """How the clip adapts; left out: it is fixed."""
    part_clips: dict[str, Positive] = field(default_factory=dict)
    """C of single parts of an upload, e.g. { dc = 0.1 }; the others have ``clip``. All are clipped
    as one vector."""
    adjacency: Adjacency = "zero_out"
    """``zero_out``: a client's data are replaced by nothing; ``replace_one``: by other data;
    ``add_remove``: it is absent."""
    accountant: Literal["auto", "closed_form", "pld", "rdp"] = "auto"
    """Who adds up: the closed form of Gaussians, privacy loss distributions, or Renyi
    divergences."""
    max_rounds: Count | None = None
    """Most sums that a client's updates may enter; left out: ``stop.rounds``."""
    min_separation: Count = 1
    """A client's update enters at most one of so many successive sums, whose noise is correlated;
    1: noise is independent."""
    max_signals: Count | None = None
    """Most values of each signal that a client may send; left out: ``stop.rounds``."""
    max_examples: Count | None = None
    """Samples at which the weight of a client is capped, under ``weights = "examples"``."""
    cohorts: Literal["seen", "hidden"] = "seen"
    """Whether those against whom the claim holds see the cohorts. Only hidden cohorts amplify
    privacy."""
    sizes: Literal["private", "public"] = "private"
    """Whether each client's number of samples is a secret, or on the roster like its id: then
    neighbours have as many samples, and time may follow them."""
    signal_noise: dict[str, SignalNoise] = field(default_factory=dict)
    """Signal -> interval and noise, e.g. loss = { low = 0.0, high = 5.0, multiplier = 5.0 }; of
    ``label_histogram`` the multiplier."""
    noise_by: Literal["server", "clients"] = "server"
    """Who adds the noise of a sum: the server, which is trusted, or the clients before they
    mask."""
    colluders: Annotated[int, Ge(0)] | None = None
    """Clients that may put together what they know, each its own noise, with the server, under
    ``noise_by = "clients"``; left out: 1, which is the least that bounds what a client learns of
    another."""
    noise_seed: Annotated[int, Ge(-(2**63)), Lt(2**63)] | None = None
    """Seed of the noise, for tests and comparisons: runs with the same one add the same noise, and
    nothing is private against whoever has two of them. Left out: a secret of the operating system,
    kept in the run's folder."""
    data_set: str | None = None
    """Name under which all private runs on these data are added up, in the user's ledger; left out:
    the path of the data. Changes no result."""
    survivors: Count | None = None
    """Fewest clients whose sum is opened, under ``noise_by = "clients"``; left out: more than
    2/3."""

    def __post_init__(self) -> None:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise ConfigError(
                "give either noise_multiplier or epsilon, e.g. epsilon = 8.0",
                "privacy.noise_multiplier",
            )
        for name, noise in self.signal_noise.items():
            check_noise(name, noise)
        alone = {"colluders": self.colluders, "survivors": self.survivors}
        for key in [
            key for key, value in alone.items() if value is not None and self.noise_by == "server"
        ]:
            reason = 'is of noise by clients; write noise_by = "clients", or leave it out'
            raise ConfigError(f"got {alone[key]}, which {reason}", f"privacy.{key}")


def check_noise(name: str, noise: SignalNoise) -> None:
    """Refuse a scalar without an interval, and a histogram with one or with noise other than
    Laplace's.

    Raises
    ------
    ConfigError: one of these.
    """
    key, (low, high) = f"privacy.signal_noise.{name}", noise.interval
    if name == HISTOGRAM:
        if noise.low is not None or noise.high is not None:
            raise ConfigError(
                "shares of labels have no interval to choose; leave low and high out", key
            )
        if noise.noise != "laplace":
            raise ConfigError(
                f'got noise = "{noise.noise}"; expected "laplace" for shares of labels', key
            )
    elif noise.low is None or noise.high is None:
        raise ConfigError(
            "low and high, the interval that values are clipped to, are missing; write e.g. low = "
            "0.0, high = 5.0",
            key,
        )
    elif not low < high:
        raise ConfigError(f"got low = {low:g} and high = {high:g}; expected low below high", key)
