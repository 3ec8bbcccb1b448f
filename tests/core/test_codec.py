"""Bytes: round trips, and every way in which bytes can be wrong."""

import enum
import hashlib
import json
import struct
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from motley.core.codec import FORMAT, decode, encode
from motley.core.errors import CodecError
from motley.core.table import ClientTable
from motley.testing.selectors import assert_same_state

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)
ARRAYS = hnp.arrays(
    st.sampled_from(["<f8", "<f4", "<i8", "|i1", "<u4", "|b1", ">f8", "<f2"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
)


@dataclass(frozen=True)
class Inner:
    values: np.ndarray
    note: str = ""


@dataclass(frozen=True)
class Outer:
    inner: Inner
    table: ClientTable = field(default_factory=lambda: ClientTable({"a": np.nan}))
    pair: tuple[int, float] = (1, 2.0)


@given(PLAIN)
def test_plain_values_round_trip(value):
    assert_same_state(decode(encode(value)), value)


@given(ARRAYS)
def test_arrays_round_trip_with_dtype_shape_and_bits(array):
    again = decode(encode(array))
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == np.ascontiguousarray(array).tobytes()
    assert again.flags.writeable


def test_arrays_need_not_be_contiguous():
    array = np.arange(24.0).reshape(4, 6)[::2, ::-3]
    assert decode(encode(array)).tolist() == array.tolist()


def test_dataclasses_round_trip():
    table = ClientTable({"a": np.nan}).put([3, 1], {"a": [0.5, -0.0]})
    value = Outer(Inner(np.arange(3), "x"), table)
    again = decode(encode(value), Outer, Inner, ClientTable)
    assert_same_state(again, value)
    assert encode(again) == encode(value)


class Colour(enum.IntEnum):
    RED = 1


def test_numbers_of_numpy_and_enums_become_plain():
    assert decode(encode([np.float32(0.5), np.int8(3), np.bool_(True), Colour.RED, np.float64("inf")])) == [
        0.5,
        3,
        True,
        1,
        float("inf"),
    ]


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_is_noticed(at, flip):
    data = bytearray(encode({"state": np.arange(20.0), "seed": 3}))
    data[at % len(data)] ^= flip
    with pytest.raises(CodecError, match=r"truncated or changed|not written by motley"):
        decode(bytes(data))


def test_any_truncation_is_noticed():
    data = encode({"state": np.arange(5.0)})
    for length in range(len(data)):
        with pytest.raises(CodecError, match=r"truncated or changed|not written by motley"):
            decode(data[:length])


def test_types_must_be_named():
    data = encode(Outer(Inner(np.arange(3))))
    with pytest.raises(CodecError, match="these bytes hold a 'Outer'; expected one of: plain values"):
        decode(data)
    with pytest.raises(CodecError, match="these bytes hold a 'ClientTable'; expected one of: Inner, Outer"):
        decode(data, Outer, Inner)


def test_other_fields_are_refused():
    def version(*names):
        return dataclass(frozen=True)(
            type("State", (), {"__annotations__": dict.fromkeys(names, int), "__qualname__": "State"})
        )

    with pytest.raises(CodecError, match=r"State was written with fields \['a', 'b'\], this motley has \['a', 'c'\]"):
        decode(encode(version("a", "b")(1, 2)), version("a", "c"))


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, 1j, np.array(["text"]), np.array([None]), np.array([1j]), Inner, lambda: 0]
)
def test_what_cannot_be_encoded(value):
    with pytest.raises(CodecError, match="cannot encode a"):
        encode(value)


def forged(body, blobs=b"", version=FORMAT):
    text = json.dumps(body).encode()
    raw = struct.pack("<4sHI", b"MTLY", version, len(text)) + text + blobs
    return raw + hashlib.blake2b(raw, digest_size=16).digest()


@pytest.mark.parametrize(
    "body",
    [
        {"a": [0, 800], "t": "<f8", "s": [100]},
        {"a": [0, 8], "t": "|O", "s": [1]},
        {"a": [0, 8], "t": "nonsense", "s": [1]},
        {"x": 1},
        {"b": []},
        {"d": [[1]]},
    ],
)
def test_a_forged_body_with_a_sound_checksum(body):
    with pytest.raises(CodecError, match="cannot be read"):
        decode(forged(body, bytes(8)))


def test_another_format_and_no_json():
    with pytest.raises(CodecError, match="got format 2, this motley reads format 1"):
        decode(forged(1, version=2))
    raw = struct.pack("<4sHI", b"MTLY", FORMAT, 3) + b"{{{"
    with pytest.raises(CodecError, match="cannot be read"):
        decode(raw + hashlib.blake2b(raw, digest_size=16).digest())
    with pytest.raises(CodecError, match="not written by motley"):
        decode(b"PK\x03\x04" + bytes(60))


def test_golden_bytes_of_a_small_value():
    """Header MTLY, format 1, length 4, the JSON "true", then the digest of these 14 bytes."""
    raw = b"MTLY" + b"\x01\x00" + b"\x04\x00\x00\x00" + b"true"
    assert encode(True) == raw + hashlib.blake2b(raw, digest_size=16).digest()
