"""Feature shift: features are transformed differently at every client; labels stay.

A shift is drawn once per client and changes its training, validation and own test samples alike,
before pixels are standardized; a common test set stays as it is. Four kinds:

* noise: client i of K has Gaussian noise of standard deviation ``sigma i / (K - 1)``;
* niid_bench: the same, which is NIID-Bench's code, or as its paper has it;
* transform (INTERPRETATION): every client has its own rotation, blur, contrast and brightness,
  drawn once;
* domains: every client has one of a few named appearances, as FedBN's clients have one of several
  sets of digits; the domains have equally many clients, and results can be reported by domain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError, suggest
from motley.core.keys import Key
from motley.world.draws import check_positive
from motley.world.interfaces import Appearance, FeatureShift
from motley.world.shift.appearance import transformed

DOMAINS: dict[str, dict[str, float]] = {
    "plain": {},
    "inverted": {"contrast": -1.0},
    "dim": {"brightness": 0.4},
    "blurred": {"blur": 1.5},
    "rotated": {"degrees": 90.0},
    "noisy": {"noise": 0.3},
}
"""The named appearances, and the transformations of each."""

_CHUNK = 2048
_MAX_BLUR = 100.0


@dataclass(frozen=True)
class NoFeatureShift(FeatureShift):
    """Features are not transformed."""

    @override
    def appearance(self, key: Key, ids: Ids, population: int) -> Appearance:
        return Appearance.plain(len(ids))


@dataclass(frozen=True)
class PixelNoise(FeatureShift):
    """Noise that grows with the client's id: client i of K has standard deviation
    ``sigma i / (K - 1)``, so client 0 has none.

    Parameters
    ----------
    sigma: standard deviation of the last client, where white is 1 (features of a table: in their
    own units).

    Example
    -------
    >>> PixelNoise(0.2).appearance(Key(0), np.arange(3), 3).noise.tolist()
    [0.0, 0.1, 0.2]
    """

    sigma: float = 0.1

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma, "(of the noisiest client)")

    @override
    def appearance(self, key: Key, ids: Ids, population: int) -> Appearance:
        noise = self.sigma * np.asarray(ids, np.float64) / max(population - 1, 1)
        return replace(Appearance.plain(len(ids)), noise=noise)


@dataclass(frozen=True)
class NiidBenchNoise(FeatureShift):
    """The noise-based feature imbalance of NIID-Bench, with clients i = 0 .. K - 1.

    Li, Diao, Chen, He: *Federated Learning on Non-IID Data Silos: An Experimental Study*, ICDE 2022
    (arXiv:2102.02079); Xtra-Computing/NIID-Bench ``61b901a``, ``experiments.py`` and ``utils.py``.
    Its partition is ``niid_bench`` of kind ``iid``.

        code     standard deviation sigma i / (K - 1)
        paper    variance sigma (i + 1) / K, the parties being P_1 .. P_K

    Deviations: there noise is drawn anew whenever an image is read, here once for each; its common
    test set is the union of one noisy copy for each client, here it has no noise (the clients' own
    test samples have their client's). Its ``noise_type = space``, noise in one square of the image
    for each client, ends in an index beyond the image from the fourth of ten clients on, and is not
    here.

    Parameters
    ----------
    sigma: its ``noise``, where white is 1.
    as_published: ``code`` or ``paper``.

    Example
    -------
    >>> NiidBenchNoise(0.1).appearance(Key(0), np.array([0, 9]), 10).noise.tolist()
    [0.0, 0.1]
    """

    sigma: float = 0.1
    as_published: Literal["code", "paper"] = "code"

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma, "(of the noisiest client)")
        if self.as_published not in ("code", "paper"):
            raise ConfigError(
                f"got as_published = {self.as_published!r}; expected 'code' or 'paper'"
            )

    @override
    def appearance(self, key: Key, ids: Ids, population: int) -> Appearance:
        if self.as_published == "code":
            return PixelNoise(self.sigma).appearance(key, ids, population)
        variance = self.sigma * (np.asarray(ids, np.float64) + 1) / population
        return replace(Appearance.plain(len(ids)), noise=np.sqrt(variance))


@dataclass(frozen=True)
class ImageTransforms(FeatureShift):
    """Every client has its own transformations, drawn uniformly from the given ranges (lowest,
    highest).

    Parameters
    ----------
    brightness, contrast: factors.
    degrees: rotation, counter-clockwise.
    blur: standard deviation in pixels.
    """

    brightness: tuple[float, float] = (0.6, 1.4)
    degrees: tuple[float, float] = (-30.0, 30.0)
    blur: tuple[float, float] = (0.0, 1.5)
    contrast: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        for name, minimum in (
            ("brightness", 0.0),
            ("degrees", -np.inf),
            ("blur", 0.0),
            ("contrast", -np.inf),
        ):
            low, high = getattr(self, name)
            if not (minimum <= low <= high < np.inf and np.isfinite(low)):
                above = f" of at least {minimum:g}" if np.isfinite(minimum) else ""
                raise ConfigError(
                    f"got {name} = [{low}, {high}]; expected the lowest and the highest, "
                    f"finite{above}"
                )
        if self.blur[1] > _MAX_BLUR:
            raise ConfigError(
                f"got blur = {list(self.blur)}; expected a deviation of at most {_MAX_BLUR:g} "
                "pixels"
            )

    @override
    def appearance(self, key: Key, ids: Ids, population: int) -> Appearance:
        drawn = key.fold("look").uniform(ids, 4).T
        ranges = (self.degrees, self.blur, self.contrast, self.brightness)
        degrees, blur, contrast, brightness = (
            low + (high - low) * u for (low, high), u in zip(ranges, drawn, strict=True)
        )
        return Appearance(
            degrees=degrees,
            blur=blur,
            contrast=contrast,
            brightness=brightness,
            noise=np.zeros(len(ids)),
        )


@dataclass(frozen=True)
class Domains(FeatureShift):
    """Every client has one of a few named appearances, at random, equally many clients each (up to
    one).

    Parameters
    ----------
    names: of :data:`DOMAINS`: ``plain``, ``inverted``, ``dim``, ``blurred``, ``rotated`` (by 90
    degrees), ``noisy``.

    Example
    -------
    >>> np.bincount(Domains().group(Key(0), np.arange(20), 20)).tolist()
    [5, 5, 5, 5]
    """

    names: tuple[str, ...] = ("plain", "inverted", "dim", "blurred")

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in DOMAINS:
                raise ConfigError(
                    f"got {name!r} in names{suggest(name, DOMAINS)}; expected some of: "
                    f"{', '.join(DOMAINS)}"
                )
        if not self.names or len(set(self.names)) != len(self.names):
            raise ConfigError(
                f"got names = {list(self.names)}; expected at least one name, each once"
            )

    @override
    def group(self, key: Key, ids: Ids, population: int) -> Ints:
        """Return the position of each client's domain in ``names``."""
        place = np.argsort(np.argsort(key.fold("domain").uniform(np.arange(population))[:, 0]))
        return place[ids] % len(self.names)

    @override
    def appearance(self, key: Key, ids: Ids, population: int) -> Appearance:
        which = self.group(key, ids, population)
        plain = Appearance.plain(len(self.names))
        table = {
            f: np.array([DOMAINS[name].get(f, getattr(plain, f)[0]) for name in self.names])
            for f in vars(plain)
        }
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
    """Return the clients' samples with each client's transformations; the input is not changed.

    Parameters
    ----------
    x: float ``[n, ...]`` in any units.
    owner: the client of each ``[n]``.
    population: K.
    black, white: the values of black and white in these units, a number or one per channel ``[C]``
    (standardized pixels: ``-mean / deviation`` and ``(1 - mean) / deviation``).
    rows: numbers of the samples ``[n]``, which determine the noise; None: 0 .. n - 1.

    Raises
    ------
    ConfigError: images are needed and ``x`` is not ``[n, C, H, W]``, or the result overflows.
    """
    of_client = shift.appearance(key, np.arange(population), population)
    if of_client.needs_images and x.ndim != 4:
        raise ConfigError(
            f'this shift transforms images [n, C, H, W], the data is {list(x.shape)}; use "noise" '
            "or leave it out",
            "feature_shift",
        )
    rows = np.arange(len(x)) if rows is None else rows
    shape = (1, -1, *(1,) * (x.ndim - 2))
    low, high = (
        np.asarray(v, np.float32).reshape(shape if np.ndim(v) else ()) for v in (black, white)
    )
    out = np.empty(x.shape, np.float32)
    for begin in range(0, len(x), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        unit = (x[part] - low) / (high - low)
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            out[part] = (
                transformed(key.fold("noise"), unit, of_client[owner[part]], rows[part])
                * (high - low)
                + low
            )
        if not np.isfinite(out[part]).all():
            raise ConfigError(
                "with these options features overflow 32-bit numbers; use smaller values",
                "feature_shift",
            )
    return out
