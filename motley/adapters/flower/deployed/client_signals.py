"""A client's own numbers as they leave it in a private run: clipped and with noise of the operating system's generator.

An order names for every signal that it wants how it is clipped and noised; what it does not name is sent as it is. A client whose own
experiment has ``[privacy]`` refuses to send a signal with less noise than that table asks for, or clear. The numbers of enrolment are
released once: asked again, for the same experiment and with the same noise, the client sends the same noisy numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from motley.adapters.flower.deployed.protocol import Noise, Order, Told
from motley.core import codec
from motley.core.errors import CodecError, ConfigError
from motley.core.files import disk_error, private_folder, replacing
from motley.privacy.noise import SystemRandomness, bounded, released
from motley.privacy.options import Privacy, SignalNoise, check_noise

__all__ = ["ClientSignals"]


class ClientSignals:
    """Clips and noises a client's signals as the server's orders ask for.

    Parameters
    ----------
    own: the ``[privacy]`` of the client's experiment, the least that it accepts; None: as the server asks. folder: of the client.
    """

    def __init__(self, own: Privacy | None, folder: Path) -> None:
        self.own, self.folder = own, folder

    def check(self, order: Order) -> None:
        """Refuse an order for signals with less noise than this client's own experiment asks for.

        Raises
        ------
        ConfigError: one of these, with the signal, or noise that cannot be.
        """
        for name, noise in order.noise.items():
            _noise(name, noise)
        if self.own is None:
            return
        for name in (*order.want, *order.probed):
            least, asked = self.own.signal_noise.get(name), order.noise.get(name)
            if least is None:
                raise ConfigError(f"the server asks for {name!r}, and this client's [privacy] has no noise for it", "privacy")
            if asked is None or asked[0] != least.noise or asked[3] < least.multiplier:
                got = "clear" if asked is None else f"with {asked[0]} noise of multiplier {asked[3]:g}"
                raise ConfigError(
                    f"the server asks for {name!r} {got}, and this client's [privacy] for {least.noise} noise of multiplier "
                    f"{least.multiplier:g} at least; give both the same [privacy]",
                    f"privacy.signal_noise.{name}",
                )

    def sent(self, order: Order, signals: Mapping[str, Told]) -> dict[str, Told]:
        """Return these signals as they are sent: with the order's noise, and clear where it names none."""
        return {name: _sent(name, value, order.noise.get(name)) for name, value in signals.items()}

    def enrolled(self, order: Order, signals: Mapping[str, Told]) -> dict[str, Told]:
        """Return the signals of enrolment as :meth:`sent`, the noisy ones as they were sent before.

        Raises
        ------
        StoreError: the disk is full or refuses.
        """
        if not order.noise:
            return self.sent(order, signals)
        path = self.folder / f"enrolled-{order.agreed}-{order.client}.bin"
        kept = _read(path)
        told = {}
        for name, value in signals.items():
            noise, (before, clear, sent) = order.noise.get(name), kept.get(name, (None, value, value))
            told[name] = (
                sent if name in kept and before == noise and np.array_equal(clear, value) else _sent(name, value, noise)
            )
            kept[name] = noise, value, told[name]
        try:
            private_folder(path.parent)
            with replacing(path, private=True) as file:
                file.write(codec.encode(kept))
        except OSError as error:
            raise disk_error(error, path) from None
        return told


def _read(path: Path) -> dict[str, tuple[Noise | None, Told, Told]]:
    """Return noise, clear and sent value of the signals of enrolment, by name; nothing where there is no sound file."""
    try:
        kept: dict[str, tuple[Noise | None, Told, Told]] = codec.decode(path.read_bytes())
    except (OSError, CodecError):
        return {}
    return kept


def _noise(name: str, asked: Noise) -> SignalNoise:
    """Return the noise that an order asks for.

    Raises
    ------
    ConfigError: an interval or a multiplier that cannot be.
    """
    law, low, high, multiplier = asked
    how = SignalNoise(multiplier, low, high, law)
    check_noise(name, how)
    if not (math.isfinite(how.scale) and multiplier > 0):
        raise ConfigError(f"got a multiplier of {multiplier:g}; expected a positive number", f"privacy.signal_noise.{name}")
    return how


def _sent(name: str, value: Told, asked: Noise | None) -> Told:
    """Return a signal with the noise asked for; Gumbel noise is the server's, and the client clips alone."""
    if asked is None:
        return value
    how, row = _noise(name, asked), np.asarray(value, np.float64)[None]
    noisy = bounded(row, how) if how.noise == "gumbel" else released(SystemRandomness(), [0], name, row, how)
    return np.asarray(noisy[0], np.float64)
