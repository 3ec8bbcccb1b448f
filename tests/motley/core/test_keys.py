"""Keys: golden bits against an independent implementation in Python's integers, laws, independence
of rows."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.keys import PURPOSES, Key, Streams
from tests.places import PYTHONPATH

MASK = (1 << 64) - 1


def mix(z):
    """SplitMix64's finalizer, on Python integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def words(seed, *path):
    """blake2b over seed, length of the path, path: 16 little-endian signed bytes each; strings
    folded by blake2b to 8 bytes."""
    numbers = [
        int.from_bytes(hashlib.blake2b(p.encode(), digest_size=8).digest(), "little")
        if isinstance(p, str)
        else p
        for p in path
    ]
    text = b"".join(
        int(n).to_bytes(16, "little", signed=True) for n in (seed, len(numbers), *numbers)
    )
    raw = hashlib.blake2b(text, digest_size=16).digest()
    return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")


def uniform(seed, path, client, column):
    """word = mix(mix(id * golden + k0) ^ (k1 + j * stride)), the number ((word >> 12) + 1/2) /
    2^52."""
    k0, k1 = words(seed, *path)
    inner = mix(((client & MASK) * 0x9E3779B97F4A7C15 + k0) & MASK)
    word = mix(inner ^ ((k1 + column * 0xD1B54A32D192ED03) & MASK))
    return ((word >> 12) + 0.5) * 2.0**-52


def test_mix_is_splitmix64():
    """The reference generator's first outputs from seed 1234567: state += golden, then mix."""
    state = 1234567
    out = []
    for _ in range(3):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        out.append(mix(state))
    assert out == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(
    st.integers(-(2**100), 2**100),
    st.lists(st.one_of(st.integers(0, 2**64 - 1), st.text(max_size=5)), max_size=4),
)
def test_words_equal_the_definition(seed, path):
    assert Key(seed).fold(*path).words() == words(seed, *path)


@given(
    st.integers(0, 2**64),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_uniform_equals_the_definition_bit_for_bit(seed, ids, n):
    got = Key(seed).fold("device", 3).uniform(ids, n)
    assert got.shape == (len(ids), n)
    assert got.tolist() == [[uniform(seed, ("device", 3), k, j) for j in range(n)] for k in ids]


def test_golden_bits():
    """Written down once: a change here changes everybody's results and needs a changelog line."""
    key = Key(0).fold("partition")
    assert key.words() == GOLDEN_WORDS
    assert [x.hex() for x in key.uniform([0, 1, -1], 2).ravel()] == GOLDEN_UNIFORM
    assert key.numpy().bit_generator.random_raw(2).tolist() == GOLDEN_PHILOX


GOLDEN_WORDS = (16262419171580963183, 743260964094506441)
GOLDEN_UNIFORM = [
    "0x1.6fe13d1cdf60dp-1",
    "0x1.ff9e17189be4cp-3",
    "0x1.4d696e6b2f57bp-1",
    "0x1.5bbe13f63f41dp-1",
    "0x1.7974e8a9f9789p-1",
    "0x1.f48bd0fc6fd27p-1",
]
GOLDEN_PHILOX = [93995827472509827, 10941639570283216304]


def test_numbers_lie_strictly_inside():
    """The smallest and largest possible words give 2^-53 and 1 - 2^-53, both exact in float64."""
    assert (0 + 0.5) * 2.0**-52 == 2.0**-53
    assert ((MASK >> 12) + 0.5) * 2.0**-52 == 1 - 2.0**-53 < 1


def test_a_clients_numbers_depend_on_nobody_else():
    key = Key(5).fold("network", 9)
    alone = key.uniform([77], 3)
    together = key.uniform(np.arange(1000), 3)
    assert np.array_equal(alone[0], together[77])
    assert np.array_equal(key.uniform(np.arange(1000), 1)[:, 0], together[:, 0])
    assert np.array_equal(key.normal([3, 1]), key.normal([1, 3])[::-1])
    assert key.uniform([], 3).shape == (0, 3)
    assert key.uniform(np.arange(4, dtype=np.int32)).tolist() == key.uniform([0, 1, 2, 3]).tolist()


def test_folding():
    key = Key(3)
    assert key.fold("a", 1) == key.fold("a").fold(1) == key.fold("a", np.int64(1))
    assert (
        len(
            {
                key.fold(*path).words()
                for path in [(), (0,), (0, 0), (1,), ("a",), ("b",), ("a", 0), (-1,)]
            }
        )
        == 8
    )
    assert Key(3).fold("select") == Key(3).fold("select")
    assert key == Key(3)  # folding changed nothing


def test_same_in_another_process():
    code = (
        "from motley.core.keys import Key; print(Key(2).fold('probe', 4).uniform([9])[0, "
        "0].hex(), hash('probe') and '')"
    )
    here = Key(2).fold("probe", 4).uniform([9])[0, 0].hex()
    for salt in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": salt, "PYTHONPATH": PYTHONPATH},
        )
        assert done.stdout.split()[0] == here


def test_generators_are_fresh_each_time():
    key = Key(1).fold("select", 2)
    assert np.array_equal(key.numpy().random(5), key.numpy().random(5))
    assert not np.array_equal(key.numpy().random(5), key.fold(0).numpy().random(5))


def test_a_generator_has_no_children_drawn_from_the_operating_system():
    with pytest.raises(TypeError, match="does not implement spawning"):
        Key(1).numpy().spawn(1)


def test_a_generator_is_rewound_to_another_keys_beginning():
    """Also one that has a half of a word left over, and numbers in its buffer."""
    generator = Key(1).numpy()
    key = Key(3).fold("client")
    numbers = [4, 0, 2**70, -5]
    met = []
    for number in key.rewound(generator, numbers):
        fresh = key.fold(number).numpy()
        assert np.array_equal(
            generator.integers(0, 7, 3, dtype=np.uint32), fresh.integers(0, 7, 3, dtype=np.uint32)
        )
        assert np.array_equal(generator.standard_normal(9), fresh.standard_normal(9))
        met.append(number)
    assert met == numbers


def test_normal_quantile_against_scipy():
    """AS 241 is good to about 1e-16 relative; all three branches: centre, middle tail, far tail."""
    from scipy import stats

    from motley.core.keys import normal_quantile

    p = np.concatenate(
        [np.linspace(1e-3, 1 - 1e-3, 999), 10.0 ** -np.arange(1.0, 16), [2.0**-53, 1 - 2.0**-53]]
    )
    np.testing.assert_allclose(normal_quantile(p), stats.norm.ppf(p), rtol=2e-14, atol=1e-15)
    key = Key(0).fold("shift")
    np.testing.assert_allclose(
        key.normal(np.arange(500), 2),
        stats.norm.ppf(key.uniform(np.arange(500), 2)),
        rtol=2e-14,
        atol=1e-15,
    )


def test_laws():
    """Kolmogorov-Smirnov on 40,000 numbers each; neighbours' ids and columns uncorrelated."""
    from scipy import stats

    key = Key(11).fold("device")
    ids = np.arange(20_000)
    assert stats.kstest(key.uniform(ids, 2).ravel(), "uniform").pvalue > 1e-3
    assert stats.kstest(key.normal(ids, 2).ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(key.exponential(ids, 2).ravel(), "expon").pvalue > 1e-3
    u = key.uniform(ids, 2)
    for a, b in [
        (u[:, 0], u[:, 1]),
        (u[1:, 0], u[:-1, 0]),
        (u[:, 0], Key(12).fold("device").uniform(ids)[:, 0]),
    ]:
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / 20_000**0.5


def test_streams_pin_single_purposes():
    plain = Streams(0)
    pinned = Streams(0, {"partition": 7})
    other = Streams(1, {"partition": 7})
    assert (
        pinned.key("partition")
        == other.key("partition")
        == Key(7).fold("partition")
        != plain.key("partition")
    )
    for purpose in PURPOSES:
        if purpose != "partition":
            assert pinned.key(purpose) == plain.key(purpose) != other.key(purpose)
    assert len({plain.key(purpose).words() for purpose in PURPOSES}) == len(PURPOSES)


def test_unknown_purposes():
    with pytest.raises(
        ConfigError,
        match=r"pin: got 'partion' \(did you mean 'partition'\?\); allowed: init, partition",
    ):
        Streams(0, {"partion": 1})
    with pytest.raises(KeyError, match="weather"):
        Streams(0).key("weather")


@pytest.mark.parametrize("n", [1, 3])
def test_many_ids_are_drawn_in_blocks_with_the_same_bits(n):
    ids = np.random.default_rng(1).integers(-5, 10**7, 2**16 + 11)
    for law in (Key(5).uniform, Key(5).normal, Key(5).exponential):
        whole = law(ids, n)
        assert whole.shape == (len(ids), n)
        some = [law(ids[first : first + 1000], n) for first in range(0, len(ids), 1000)]
        assert np.concatenate(some).tobytes() == whole.tobytes()
