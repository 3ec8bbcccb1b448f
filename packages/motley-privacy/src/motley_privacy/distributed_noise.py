"""Noise that clients add before they mask, so that the sum is private although nobody is trusted.

Kairouz, Liu, Steinke: *The Distributed Discrete Gaussian Mechanism for Federated Learning with
Secure Aggregation*, ICML 2021 (arXiv:2102.06387). With clip C, z the noise multiplier, D numbers,
n clients asked, of whom t must remain and c may collude with the server, and s = t - c:

    grid      g = C / S, S = 1024 ceil(sqrt(D))     C is S steps of the grid
    clip      |x| <= (S - ceil(sqrt(D)) - 1) g      0.1 % below C
    round     each number up or down at random      moves x by less than sqrt(D) g, so |x| <= C
    noise     sigma = ceil(z S / sqrt(s)) steps     a discrete Gaussian on each number
    reduce    modulo 2^w, centred                   w = 32 if n S + 16 sqrt(n) sigma < 2^31, else 64

Every sum that can be opened holds s vectors of clients that do not collude. Their noise has
variance s sigma^2 >= (z S)^2, and what further clients add is independent of it, so it costs
nothing. A sum of s discrete Gaussians is not one, but nearly: :func:`distance`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.core.errors import ConfigError, ContractError, RoundAbandonedError
from motley_privacy.discrete import Entropy, Integers, discrete_gaussian

_STEPS = 2**10
"""Steps of the grid that C has, over the square root of D: rounding costs 1 / 1024 of the clip."""
_LEAST = 4
"""Smallest sigma in steps: from here a sum of discrete Gaussians is one but for 1e-66."""
_TAIL = 16
"""Deviations of noise that never are exceeded: 2 exp(-16^2 / 2) is 5e-56 for one number."""
_EXACT = 2**52
"""Sums of whole numbers below it are exact in float64, as a simulation adds them."""


def fewest_survivors(clients: int, colluders: int) -> int:
    """Return the default of t for n clients, c of whom may collude: the least of the secure sum.

    More than two thirds, and so many that ``c < 2 t - n``, without which a server that breaks the
    protocol can open two sums of one round.

    >>> fewest_survivors(100, 0), fewest_survivors(100, 40)
    (67, 71)
    """
    return max(2 * clients // 3 + 1, (clients + colluders) // 2 + 1)


def distance(clients: int, sigma: float) -> float:
    """Return a bound on the log-ratio of the sum of discrete Gaussians to the one of its variance.

    Adding the (k+1)-th discrete Gaussian to k of them leaves, by completing the square, the
    next one times ``sum over x of exp(-(x - mu)^2 / (2 h))``, ``h = sigma^2 k / (k+1)``, with a
    mu that depends on the number. Poisson's formula makes this a constant times
    ``1 + sum over j of 2 exp(-2 pi^2 h j^2) cos(2 pi j mu)``, within 1 +- u_k,
    ``u_k = 2 sum over j of exp(-2 pi^2 h j^2)``. Both laws sum to 1, so the factors' range
    bounds their ratio: the sum over k < s of ``ln((1 + u_k) / (1 - u_k))``.

    Parameters
    ----------
    clients: s, how many are added.
    sigma: of each; where it is too small for a bound, it is inf.
    """
    k = np.arange(1, clients)
    first = np.exp(-2.0 * math.pi**2 * float(sigma) ** 2 * k / (k + 1.0))
    u = 2.0 * first / (1.0 - first)  # j^2 >= j: no more than a geometric series
    return float(np.sum(np.log1p(u) - np.log1p(-u))) if (u < 1.0).all() else math.inf


@dataclass(frozen=True)
class ClientNoise:
    """What each client does to its update before it is masked, and what makes the sum private.

    Parameters
    ----------
    clip: C.
    size: D.
    clients: n, asked at most.
    survivors: t, the fewest whose sum is opened.
    colluders: c.
    noise_multiplier: z, of the noise of t - c clients.

    Raises
    ------
    ConfigError: too few survivors, or too little or too much noise.
    """

    clip: float
    size: int
    clients: int
    survivors: int
    colluders: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        n = self.clients
        t = self.survivors
        c = self.colluders
        if not c + 2 <= t <= n or c >= 2 * t - n:
            least = max(c + 2, (n + c) // 2 + 1)
            mend = (
                f"write survivors = {least}" if least <= n else "lower colluders, or raise cohort"
            )
            raise ConfigError(
                f"got survivors = {t} of {n} clients with colluders = {c}; expected {least} to "
                f"{n}, so that two honest clients are in every sum and no two sums are opened; "
                f"{mend}",
                "privacy.survivors",
            )
        if self.sigma < _LEAST:
            raise ConfigError(
                f"the noise of one client is {self.sigma} steps of the grid; expected at least "
                f"{_LEAST}, below which sums of discrete noise need another account; raise it",
                "privacy.noise_multiplier",
            )
        if self.largest >= _EXACT:
            raise ConfigError(
                "sums of such vectors and noise are no longer exact; lower noise_multiplier",
                "privacy.noise_multiplier",
            )

    @property
    def honest(self) -> int:
        """The fewest clients in an opened sum whose noise nobody else knows, s."""
        return self.survivors - self.colluders

    @property
    def _root(self) -> int:
        return math.isqrt(self.size - 1) + 1

    @property
    def sensitivity(self) -> int:
        """C in steps of the grid, S."""
        return _STEPS * self._root

    @property
    def grid(self) -> float:
        """One step of the grid, g."""
        return self.clip / self.sensitivity

    @property
    def sigma(self) -> int:
        """The parameter of one client's noise, in steps of the grid."""
        return math.ceil(self.noise_multiplier * self.sensitivity / math.sqrt(self.honest))

    @property
    def largest(self) -> int:
        """The largest number of a sum, in steps: n clients at the clip, and 16 deviations of noise.

        A discrete Gaussian has the tails of a Gaussian of the same sigma (Canonne et al., 2020), so
        2^60 numbers of sums all stay below it but with probability 6e-38.
        """
        return self.clients * self.sensitivity + math.ceil(
            _TAIL * math.sqrt(self.clients) * self.sigma
        )

    @property
    def modulus_bits(self) -> int:
        """w, 32 where :attr:`largest` fits into half of the modulus, else 64."""
        return 32 if self.largest < 2**31 else 64

    @property
    def multiplier(self) -> float:
        """z of the account, zero-out: a sum is ``1 / (2 z^2)``-zCDP against server and colluders.

        With P the law of the noise, Q the discrete Gaussian and e the distance, a vector of D
        numbers has D_a(P, Q) and D_a(Q, P) <= a D e^2 / 2 (pure e-privacy, each number), and Q
        against Q moved by at most S has a S^2 / (2 s sigma^2). The square roots of rho add up (Bun
        and Steinke 2016, Lemma 5.2): ``1 / z = S / (sqrt(s) sigma) + 2 e sqrt(D)``.
        """
        spread = math.sqrt(self.honest) * self.sigma
        return 1.0 / (
            self.sensitivity / spread
            + 2.0 * distance(self.honest, self.sigma) * math.sqrt(self.size)
        )

    def record(self) -> dict[str, Any]:
        """Return what ``run.json`` says of it; ``full_multiplier``: z of a sum that nobody left."""
        return {
            "survivors": self.survivors,
            "colluders": self.colluders,
            "grid": self.grid,
            "client_sigma": self.sigma,
            "modulus_bits": self.modulus_bits,
            "full_multiplier": self.sigma * math.sqrt(self.clients) / self.sensitivity,
        }

    def refuses(self, threshold: int, cohort: int) -> str | None:
        """Return why a round of the secure sum lacks this privacy, in a sentence; None: it has it.

        Parameters
        ----------
        threshold: clients that must remain, of the round.
        cohort: its clients. What holds for the fewest of the most, ``c < 2 t - n``, then holds for
        both.
        """
        if threshold < self.survivors or cohort > self.clients:
            return (
                f"the round opens a sum of {threshold} of {cohort} clients; [privacy] counts on "
                f"the noise of {self.survivors} of at most {self.clients}"
            )
        return None

    def encode(self, update: Floats, entropy: Entropy) -> Integers:
        """Return an update in steps of the grid: clipped, rounded, with noise, modulo 2^w, centred.

        An update that is not finite counts as zeros, so that nobody sees that it is not.
        """
        return self._centred(
            self.rounded(update, entropy) + discrete_gaussian(self.size, self.sigma, entropy)
        )

    def rounded(self, update: Floats, entropy: Entropy) -> Integers:
        """Return an update of at most S steps in norm; its expectation is the clipped update."""
        vector = np.asarray(update, np.float64).reshape(-1)
        if vector.shape != (self.size,):
            raise ContractError(f"got an update of {len(vector)} numbers; expected {self.size}")
        # zeros take them, too
        words = np.frombuffer(entropy(8 * self.size), "<u8") >> np.uint64(11)
        peak = float(np.max(np.abs(vector)))
        if not math.isfinite(peak) or peak == 0.0:
            return np.zeros(self.size, np.int64)
        unit = vector / peak  # no square of it overflows
        length = float(np.linalg.norm(unit))
        most = self.sensitivity - self._root - 1
        factor = min(peak / self.grid, most / length)
        steps = np.floor(unit * factor + words * 2.0**-53).astype(np.int64)
        if int(np.sum(steps * steps)) > self.sensitivity**2:
            raise ContractError("a rounded update is longer than the clip; nothing of it is sent")
        return steps

    def words(self, update: Floats, entropy: Entropy) -> NDArray[Any]:
        """Return an update as a client masks it: its numbers modulo 2^w, and 1 for the client."""
        encoded = np.append(self.encode(update, entropy), 1)
        return encoded.astype(f"<u{self.modulus_bits // 8}")

    def opened(self, total: NDArray[Any]) -> Floats:
        """Return the sum of updates and noise from a sum of encoded ones, modulo 2^w, [D].

        Raises
        ------
        RoundAbandonedError: a number that honest clients never reach.
        """
        steps = self._centred(total.astype(np.int64))
        if len(steps) and int(np.max(np.abs(steps))) > self.largest:
            raise RoundAbandonedError(
                f"a number of the sum is beyond the {self.largest} steps that {self.clients} "
                "clients and their noise reach: a client told an untruth; the round is abandoned"
            )
        return steps.astype(np.float64) * self.grid

    def _centred(self, steps: Integers) -> Integers:
        """Return whole numbers modulo 2^w, from -2^(w-1) to 2^(w-1) - 1."""
        if self.modulus_bits == 64:
            return steps
        return ((steps + 2**31) & (2**32 - 1)) - 2**31
