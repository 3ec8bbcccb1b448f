"""Features that look different at every client (optimisation-and-compression D8); labels stay.

A shift is drawn once per client and changes its training, validation and own test samples alike, before pixels are standardised; a
common test set stays as it is. Three kinds:

* noise (NIID-Bench): client i of K sees Gaussian noise of deviation ``sigma i / (K - 1)``;
* transform (INTERPRETATION): every client has its own rotation, blur, contrast and brightness, drawn once;
* domains: every client belongs to one of a few named looks, as FedBN's clients to one of several sets of digits; the domains have
  equally many clients, and figures can be told by domain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Ids
from motley.core.errors import ConfigError, suggest
from motley.core.keys import Key
from motley.world.base import Appearance, FeatureShift
from motley.world.draws import check_positive
from motley.world.shift.appearance import seen

__all__ = ["DOMAINS", "Domains", "Noise", "Plain", "Transform", "shifted"]

DOMAINS: dict[str, dict[str, float]] = {
    "plain": {},
    "inverted": {"contrast": -1.0},
    "dim": {"brightness": 0.4},
    "blurred": {"blur": 1.5},
    "rotated": {"degrees": 90.0},
    "noisy": {"noise": 0.3},
}
"""The named looks, and what each changes."""

_CHUNK = 2048
_HAZE = 100.0


@dataclass(frozen=True)
class Plain(FeatureShift):
    """Features as they are."""

    def looks(self, key: Key, ids: Ids, population: int) -> Appearance:
        """Nothing changed."""
        return Appearance.plain(len(ids))


@dataclass(frozen=True)
class Noise(FeatureShift):
    """Noise that grows with the client's number: client i of K has deviation ``sigma i / (K - 1)``, so client 0 has none.

    Parameters
    ----------
    sigma: deviation of the last client, white being 1 (features of a table: in their own units).

    Example
    -------
    >>> Noise(0.2).looks(Key(0), np.arange(3), 3).noise.tolist()
    [0.0, 0.1, 0.2]
    """

    sigma: float = 0.1

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma, "(of the noisiest client)")

    def looks(self, key: Key, ids: Ids, population: int) -> Appearance:
        """Nothing but noise."""
        noise = self.sigma * np.asarray(ids, np.float64) / max(population - 1, 1)
        return replace(Appearance.plain(len(ids)), noise=noise)


@dataclass(frozen=True)
class Transform(FeatureShift):
    """A look of its own for every client, uniform in the given ranges (lowest, highest).

    Parameters
    ----------
    brightness, contrast: factors. degrees: rotation, counter-clockwise. blur: deviation in pixels.
    """

    brightness: tuple[float, float] = (0.6, 1.4)
    degrees: tuple[float, float] = (-30.0, 30.0)
    blur: tuple[float, float] = (0.0, 1.5)
    contrast: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        for name, least in (("brightness", 0.0), ("degrees", -np.inf), ("blur", 0.0), ("contrast", -np.inf)):
            low, high = getattr(self, name)
            if not (least <= low <= high < np.inf and np.isfinite(low)):
                above = f" of at least {least:g}" if np.isfinite(least) else ""
                raise ConfigError(f"got {name} = [{low}, {high}]; expected the lowest and the highest, finite{above}")
        if self.blur[1] > _HAZE:
            raise ConfigError(f"got blur = {list(self.blur)}; expected a deviation of at most {_HAZE:g} pixels")

    def looks(self, key: Key, ids: Ids, population: int) -> Appearance:
        """Four draws per client."""
        drawn = key.fold("look").uniform(ids, 4).T
        ranges = (self.degrees, self.blur, self.contrast, self.brightness)
        degrees, blur, contrast, brightness = (low + (high - low) * u for (low, high), u in zip(ranges, drawn, strict=True))
        return Appearance(degrees, blur, contrast, brightness, np.zeros(len(ids)))


@dataclass(frozen=True)
class Domains(FeatureShift):
    """Every client in one of a few looks, dealt at random, equally many clients in each (up to one).

    Parameters
    ----------
    names: of :data:`DOMAINS`: ``plain``, ``inverted``, ``dim``, ``blurred``, ``rotated`` (by 90 degrees), ``noisy``.

    Example
    -------
    >>> np.bincount(Domains().group(Key(0), np.arange(20), 20)).tolist()
    [5, 5, 5, 5]
    """

    names: tuple[str, ...] = ("plain", "inverted", "dim", "blurred")

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in DOMAINS:
                raise ConfigError(f"got {name!r} in names{suggest(name, DOMAINS)}; expected some of: {', '.join(DOMAINS)}")
        if not self.names or len(set(self.names)) != len(self.names):
            raise ConfigError(f"got names = {list(self.names)}; expected at least one look, each once")

    def group(self, key: Key, ids: Ids, population: int) -> Ids:
        """Each client's place in ``names``."""
        place = np.argsort(np.argsort(key.fold("domain").uniform(np.arange(population))[:, 0]))
        return place[ids] % len(self.names)

    def looks(self, key: Key, ids: Ids, population: int) -> Appearance:
        """That of the client's domain."""
        which = self.group(key, ids, population)
        plain = Appearance.plain(len(self.names))
        table = {f: np.array([DOMAINS[name].get(f, getattr(plain, f)[0]) for name in self.names]) for f in vars(plain)}
        return Appearance(**table)[which]


def shifted(
    shift: FeatureShift,
    key: Key,
    x: NDArray[np.float32],
    owner: Ids,
    population: int,
    black: ArrayLike = 0.0,
    white: ArrayLike = 1.0,
    rows: Ids | None = None,
) -> NDArray[np.float32]:
    """The clients' samples as they see them; the input stays as it is.

    Parameters
    ----------
    x: float ``[n, ...]`` in any units. owner: the client of each ``[n]``. population: K.
    black, white: what 0 and 1 are in these units, a number or one per channel ``[C]`` (standardised pixels: ``-mean / deviation``
    and ``(1 - mean) / deviation``). rows: numbers of the samples ``[n]``, which key the noise; None: their places here.

    Raises
    ------
    ConfigError: pictures are wanted and ``x`` is not ``[n, C, H, W]``, or so much is wanted that no number can hold it.
    """
    of_client = shift.looks(key, np.arange(population), population)
    if of_client.pictures_only and x.ndim != 4:
        raise ConfigError(
            f'this shift changes pictures [n, C, H, W], the data is {list(x.shape)}; use "noise" or leave it out',
            "feature_shift",
        )
    rows = np.arange(len(x)) if rows is None else rows
    shape = (1, -1, *(1,) * (x.ndim - 2))
    low, high = (np.asarray(v, np.float32).reshape(shape if np.ndim(v) else ()) for v in (black, white))
    out = np.empty(x.shape, np.float32)
    for begin in range(0, len(x), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        unit = (x[part] - low) / (high - low)
        with np.errstate(over="ignore", invalid="ignore"):  # said below
            out[part] = seen(key.fold("noise"), unit, of_client[owner[part]], rows[part]) * (high - low) + low
        if not np.isfinite(out[part]).all():
            raise ConfigError("with these options features overflow 32-bit numbers; give less of it", "feature_shift")
    return out
