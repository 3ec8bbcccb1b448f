"""Random numbers as a function of (seed, purpose, round or dispatch, client): no generator is ever
saved.

A :class:`Key` is a seed and a path. Folding extends the path; drawing from a key changes nothing,
so the same key gives the same numbers in any process, in any order, after any restart. Two ways to
draw:

* :meth:`Key.numpy`, a counter-based generator (Philox) for work that happens once a round;
* :meth:`Key.uniform`, :meth:`Key.normal`, :meth:`Key.exponential`: one row per client id, by the
  counter hash below, so that 10^5 clients cost milliseconds and a client's numbers do not depend on
  the other ids.

The counter hash. Let ``(k0, k1)`` be the two little-endian 64-bit words of ``blake2b(seed, path)``
(128 bits) and let ``mix`` be the 64-bit finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
All arithmetic is modulo 2^64:

    word(id, j) = mix(mix(id * 0x9E3779B97F4A7C15 + k0) ^ (k1 + j * 0xD1B54A32D192ED03))
    uniform     = ((word >> 12) + 0.5) * 2^-52                     strictly inside (0, 1)

``tests/motley/core/test_keys.py`` checks golden bits; changing them changes results and needs a
changelog line.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random import Philox
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from motley.core.errors import ConfigError, suggest
from motley.core.side_by_side import by_rows

PURPOSES = (
    "init",
    "partition",
    "split",
    "shift",
    "device",
    "network",
    "available",
    "fail",
    "select",
    "probe",
    "batches",
    "local",
    "augment",
    "dropout",
    "compress",
    "data",
    "server",
    "privacy",
)
"""The purposes of random numbers. The seed of a single purpose can be fixed:
``pin = { partition = 7 }``."""

Inverse = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_STRIDE = np.uint64(0xD1B54A32D192ED03)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def _number(part: int | str) -> int:
    return _number_of(part) if isinstance(part, str) else int(part)


@lru_cache(maxsize=1024)
def _number_of(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


_WORDS = struct.Struct("<QQ")


def _bytes(number: int) -> bytes:
    return int(number).to_bytes(16, "little", signed=True)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer, in place."""
    z ^= z >> np.uint64(30)
    z *= _MIX1
    z ^= z >> np.uint64(27)
    z *= _MIX2
    z ^= z >> np.uint64(31)
    return z


def _uniform(
    counter: NDArray[np.uint64], k0: np.uint64, columns: NDArray[np.uint64]
) -> NDArray[np.float64]:
    words = _mix(_mix(counter * _GOLDEN + k0)[:, None] ^ columns[None, :])
    words >>= np.uint64(12)
    return (words.astype(np.float64) + 0.5) * 2.0**-52


class _PhiloxKey(ISeedSequence):
    """The key of a Philox generator: two words. Given as ``Philox(key=...)``, NumPy reads entropy
    of the operating system beside it, which takes most of the time and is never used."""

    def __init__(self, words: tuple[int, int]) -> None:
        self.words = words

    @override
    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        """Return the words, which are what a Philox generator asks for."""
        return np.array(self.words, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Key:
    """A node in the tree of random streams.

    Parameters
    ----------
    seed: any integer.
    path: the folded parts, as integers.

    Example
    -------
    >>> key = Key(0).fold("partition")
    >>> bool((key.uniform([3, 5]) == key.uniform([5, 3])[::-1]).all())
    True
    """

    seed: int
    path: tuple[int, ...] = ()

    def fold(self, *parts: int | str) -> Key:
        """Return the key with a longer path. Strings are hashed by blake2, never by ``hash()``."""
        return Key(self.seed, self.path + tuple(_number(part) for part in parts))

    def words(self) -> tuple[int, int]:
        """Return 128 bits of this key as two unsigned 64-bit integers."""
        digest = hashlib.blake2b(digest_size=16)
        for number in (self.seed, len(self.path), *self.path):
            digest.update(_bytes(number))
        first, second = _WORDS.unpack(digest.digest())
        return first, second

    def numpy(self) -> np.random.Generator:
        """Return a new counter-based generator; costs about 5 microseconds."""
        return np.random.Generator(Philox(_PhiloxKey(self.words())))  # type: ignore[arg-type]

    def rewound(self, generator: np.random.Generator, numbers: Iterable[int]) -> Iterator[int]:
        """Yield each number after making a generator of :meth:`numpy` the one of ``fold(number)``,
        in a tenth of the time."""
        start = hashlib.blake2b(digest_size=16)
        for part in (self.seed, len(self.path) + 1, *self.path):
            start.update(_bytes(part))
        # plain numbers are taken over faster than arrays
        key: dict[str, tuple[int, ...]] = {"counter": (0, 0, 0, 0)}
        state = {
            "bit_generator": "Philox",
            "state": key,
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        for number in numbers:
            # What all keys of a sequence have in common is hashed once.
            digest = start.copy()
            digest.update(_bytes(number))
            key["key"] = _WORDS.unpack(digest.digest())
            generator.bit_generator.state = state
            yield number

    def uniform(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return uniform numbers strictly inside (0, 1), shape ``[len(ids), n]``; row i depends on
        ``ids[i]`` alone."""
        return self._drawn(ids, n, lambda drawn: drawn)

    def normal(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return standard normal numbers by inversion (AS 241), shape ``[len(ids), n]``."""
        return self._drawn(ids, n, normal_quantile)

    def _drawn(self, ids: ArrayLike, n: int, inverse: Inverse) -> NDArray[np.float64]:
        """Return what a function makes of each uniform number."""
        k0, k1 = (np.uint64(word) for word in self.words())
        counter = np.atleast_1d(np.asarray(ids)).astype(np.int64, copy=False).view(np.uint64)
        with np.errstate(over="ignore"):
            columns = k1 + np.arange(n, dtype=np.uint64) * _STRIDE
            return by_rows(
                lambda chunk: inverse(_uniform(chunk, k0, columns)), counter, np.float64, (n,)
            )

    def exponential(self, ids: ArrayLike, n: int = 1) -> NDArray[np.float64]:
        """Return exponential numbers of mean 1 by inversion, shape ``[len(ids), n]``."""
        return -np.log(self.uniform(ids, n))


# Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988): relative accuracy about 1e-16.
_A = (
    2509.0809287301226727,
    33430.575583588128105,
    67265.770927008700853,
    45921.953931549871457,
    13731.693765509461125,
    1971.5909503065514427,
    133.14166789178437745,
    3.387132872796366608,
)
_B = (
    5226.495278852545925,
    28729.085735721942674,
    39307.89580009271061,
    21213.794301586595867,
    5394.1960214247511077,
    687.1870074920579083,
    42.313330701600911252,
    1.0,
)
_C = (
    7.7454501427834140764e-4,
    0.0227238449892691845833,
    0.24178072517745061177,
    1.27045825245236838258,
    3.64784832476320460504,
    5.7694972214606914055,
    4.6303378461565452959,
    1.42343711074968357734,
)
_D = (
    1.05075007164441684324e-9,
    5.475938084995344946e-4,
    0.0151986665636164571966,
    0.14810397642748007459,
    0.68976733498510000455,
    1.6763848301838038494,
    2.05319162663775882187,
    1.0,
)
_E = (
    2.01033439929228813265e-7,
    2.71155556874348757815e-5,
    0.0012426609473880784386,
    0.026532189526576123093,
    0.29656057182850489123,
    1.7848265399172913358,
    5.4637849111641143699,
    6.6579046435011037772,
)
_F = (
    2.04426310338993978564e-15,
    1.4215117583164458887e-7,
    1.8463183175100546818e-5,
    7.868691311456132591e-4,
    0.0148753612908506148525,
    0.13692988092273580531,
    0.59983220655588793769,
    1.0,
)


def normal_quantile(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard normal quantiles of probabilities strictly inside (0, 1), in their shape
    (AS 241)."""
    q = p - 0.5
    r = 0.180625 - q * q
    out = q * np.polyval(_A, r) / np.polyval(_B, r)
    far = np.abs(q) > 0.425
    if far.any():
        tail = np.sqrt(-np.log(np.minimum(p[far], 1.0 - p[far])))
        middle = tail - 1.6
        end = tail - 5.0
        value = np.where(
            tail <= 5.0,
            np.polyval(_C, middle) / np.polyval(_D, middle),
            np.polyval(_E, end) / np.polyval(_F, end),
        )
        out[far] = np.copysign(value, q[far])
    return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Streams:
    """The random streams of a run, one per purpose: one seed for all, and fixed seeds for single
    purposes.

    Example
    -------
    >>> pinned, other = Streams(0, {"partition": 7}), Streams(1, {"partition": 7})
    >>> pinned.key("partition") == other.key("partition")
    True
    """

    seed: int = 0
    pin: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for purpose in self.pin:
            if purpose not in PURPOSES:
                raise ConfigError(
                    f"got {purpose!r}{suggest(purpose, PURPOSES)}; allowed: {', '.join(PURPOSES)}",
                    key="pin",
                )

    def key(self, purpose: str) -> Key:
        """Return the root key of one purpose; ``purpose`` must be one of :data:`PURPOSES`."""
        if purpose not in PURPOSES:
            raise KeyError(purpose)
        return Key(self.pin.get(purpose, self.seed)).fold(purpose)
