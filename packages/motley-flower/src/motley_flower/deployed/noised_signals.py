"""A client's own numbers as they leave it in a private run: clipped and with noise of the operating
system's generator.

A client whose own experiment has ``[privacy]`` sends signals with exactly that table's noise, and
no more values and updates than its caps, whatever the server asks:
:mod:`~motley_flower.deployed.client_ledger` counts them. A client without ``[privacy]`` does as the
server says: a signal has the noise that the order names for it, none where it names none, and
nothing is counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from motley.core.errors import ConfigError
from motley.core.extensions import required_extension
from motley.core.records import HISTOGRAM
from motley.experiments.config import Experiment
from motley.experiments.lineage import digest_of
from motley_flower.deployed.client_ledger import ClientLedger
from motley_flower.deployed.protocol import Noise, Order, Told, agreement

if TYPE_CHECKING:
    from motley_privacy.options import Privacy, SignalNoise


class ClientSignals:
    """Clips and noises a client's signals, and counts what leaves it.

    Parameters
    ----------
    experiment: the client's own.
    folder: of the client.

    Raises
    ------
    ConfigError: its ``[privacy]`` has no cap, and it has no number of rounds.
    """

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.own: Privacy | None = experiment.privacy
        self.folder = folder
        if self.own is None:
            return
        from motley_privacy.private_admission import cap, sum_cap

        rounds = experiment.stop.rounds
        self._caps = (
            cap("max_signals", self.own.max_signals, rounds),
            sum_cap(self.own, rounds),
        )
        noise = {name: dataclasses.astuple(how) for name, how in self.own.signal_noise.items()}
        self._terms = f"{agreement(experiment)}-{digest_of(noise)}"

    def check(self, order: Order) -> None:
        """Refuse an order for anything but what this client's own experiment allows.

        Raises
        ------
        ConfigError: other noise, or none; a cap that is reached; noise that cannot be. StoreError:
        as of the client's ledger.
        """
        for name, noise in order.noise.items():
            _noise(name, noise)
        if self.own is None or order.kind == "secure":
            return
        public = {"num_examples"} if self.own.sizes == "public" else set()
        public -= self.own.signal_noise.keys()
        names = {name: None for name in (*order.want, *order.probed) if name not in public}
        for name in names:
            own = self.own.signal_noise.get(name)
            requested = order.noise.get(name)
            if own is None:
                raise ConfigError(
                    f"the server asks for {name!r}, and this client's [privacy] has no noise for "
                    "it",
                    "privacy",
                )
            if requested != (own.noise, own.low, own.high, own.multiplier):
                raise ConfigError(
                    f"the server asks for {name!r} {_words(requested)}, and this client's "
                    f"[privacy] for it {_words((own.noise, own.low, own.high, own.multiplier))}; "
                    "give both the same [privacy]",
                    f"privacy.signal_noise.{name}",
                )
        if order.kind == "train" and order.most_examples != (self.own.max_examples or 0):
            raise ConfigError(
                f"the server caps weights at {order.most_examples} samples, and this client's "
                f"[privacy] at {self.own.max_examples or 0}; give both the same [privacy]",
                "privacy.max_examples",
            )
        self._ledger(order).check(_occasion(order), names, order.kind == "train")

    def sent(self, order: Order, signals: Mapping[str, Told]) -> dict[str, Told]:
        """Return these signals as they are sent, and count them, and the update of an order to
        train.

        Raises
        ------
        ConfigError: a cap is reached, or the signal is no single number. StoreError: as of the
        client's ledger.
        """
        draws = {
            name: partial(_sent, name, value, order.noise.get(name))
            for name, value in signals.items()
        }
        if self.own is None:
            return {name: draw() for name, draw in draws.items()}
        return self._ledger(order).release(_occasion(order), draws, order.kind == "train")

    def _ledger(self, order: Order) -> ClientLedger:
        return ClientLedger(self.folder, self._terms, order.client, *self._caps)


def _occasion(order: Order) -> str:
    """Return the occasion on which each signal leaves once: enrolment, whatever the run, or a
    round's probe or training."""
    return "enrol" if order.kind == "enrol" else f"{order.run} {order.kind} {order.round}"


def _words(noise: Noise | None) -> str:
    """Return noise as words of a message."""
    if noise is None:
        return "clear"
    law, low, high, multiplier = noise
    interval = "" if low is None or high is None else f" in [{low!r}, {high!r}]"
    return f"with {law} noise of multiplier {multiplier!r}{interval}"


def _noise(name: str, requested: Noise) -> SignalNoise:
    """Return the noise that an order asks for.

    Raises
    ------
    ConfigError: an interval or a multiplier that cannot be, or noise that comes with a
    distribution that is not installed.
    """
    required_extension("table", "privacy", f"privacy.signal_noise.{name}")
    from motley_privacy.options import SignalNoise, check_noise

    law, low, high, multiplier = requested
    how = SignalNoise(multiplier, low, high, law)
    check_noise(name, how)
    if not (math.isfinite(how.scale) and multiplier > 0):
        raise ConfigError(
            f"got a multiplier of {multiplier:g}; expected a positive number",
            f"privacy.signal_noise.{name}",
        )
    return how


def _sent(name: str, value: Told, requested: Noise | None) -> Told:
    """Return a signal with the noise asked for; Gumbel noise is the server's, and the client clips
    alone."""
    if requested is None:
        return value
    how = _noise(name, requested)
    from motley_privacy.noise import SystemRandomness, bounded, released

    row = np.asarray(value, np.float64)[None]
    if row.ndim != (2 if name == HISTOGRAM else 1):
        raise ConfigError(
            "it is no single number, and noise on whole vectors is not built",
            f"privacy.signal_noise.{name}",
        )
    if how.noise == "gumbel":
        noisy = bounded(row, how)
    else:
        noisy = released(source=SystemRandomness(), ids=[0], name=name, value=row, how=how)
    return np.asarray(noisy[0], np.float64)
