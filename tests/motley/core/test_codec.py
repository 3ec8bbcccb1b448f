"""Bytes: round trips, and every way in which bytes can be wrong."""

import enum
import hashlib
import json
import random
import struct
import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from motley.core.checksum import checksum
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
    assert decode(
        encode([np.float32(0.5), np.int8(3), np.bool_(True), Colour.RED, np.float64("inf")])
    ) == [
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
    with pytest.raises(CodecError, match=r"truncated or changed|not written by motley|got format"):
        decode(bytes(data))


def test_any_truncation_is_noticed():
    data = encode({"state": np.arange(5.0)})
    for length in range(len(data)):
        with pytest.raises(CodecError, match=r"truncated or changed|not written by motley"):
            decode(data[:length])


def test_types_must_be_named():
    data = encode(Outer(Inner(np.arange(3))))
    with pytest.raises(
        CodecError, match="these bytes hold a 'Outer'; expected one of: plain values"
    ):
        decode(data)
    with pytest.raises(
        CodecError, match="these bytes hold a 'ClientTable'; expected one of: Inner, Outer"
    ):
        decode(data, Outer, Inner)


def test_other_fields_are_refused():
    def version(*names):
        return dataclass(frozen=True)(
            type(
                "State", (), {"__annotations__": dict.fromkeys(names, int), "__qualname__": "State"}
            )
        )

    with pytest.raises(
        CodecError,
        match=r"State was written with fields \['a', 'b'\], this motley has \['a', 'c'\]",
    ):
        decode(encode(version("a", "b")(1, 2)), version("a", "c"))


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, 1j, np.array(["text"]), np.array([None]), np.array([1j]), Inner, lambda: 0],
)
def test_what_cannot_be_encoded(value):
    with pytest.raises(CodecError, match="cannot encode a"):
        encode(value)


def forged(body, blobs=b"", version=FORMAT):
    text = json.dumps(body).encode()
    raw = struct.pack("<4sHI", b"MTLY", version, len(text)) + text + blobs
    return raw + checksum(raw).digest()


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
    with pytest.raises(CodecError, match="got format 3, this motley reads formats 1 and 2"):
        decode(forged(1, version=3))
    raw = struct.pack("<4sHI", b"MTLY", FORMAT, 3) + b"{{{"
    with pytest.raises(CodecError, match="cannot be read"):
        decode(raw + checksum(raw).digest())
    with pytest.raises(CodecError, match="not written by motley"):
        decode(b"PK\x03\x04" + bytes(60))


def test_golden_bytes_of_a_small_value():
    """Header MTLY, format 2, length 4, the JSON "true", then the checksum of these 14 bytes."""
    raw = b"MTLY" + b"\x02\x00" + b"\x04\x00\x00\x00" + b"true"
    assert encode(True) == raw + checksum(raw).digest()


def test_what_was_written_in_format_1_is_read():
    raw = b"MTLY" + b"\x01\x00" + b"\x04\x00\x00\x00" + b"true"
    assert decode(raw + hashlib.blake2b(raw, digest_size=16).digest()) is True
    with pytest.raises(CodecError, match="truncated or changed"):
        decode(raw + checksum(raw).digest())


def test_the_checksum_is_xxh3_with_128_bits():
    """Its authors' value for no bytes at all; and bytes may come in parts."""
    assert checksum().hexdigest() == "99aa06d3014798d86001c324468d497f"
    whole = checksum(bytes(range(256)))
    parts = checksum(bytes(range(100)))
    parts.update(bytes(range(100, 256)))
    assert parts.digest() == whole.digest()


# ------------------------------------------------------------------------------------ hostile bytes


def forged_text(text, blobs=b""):
    raw = struct.pack("<4sHI", b"MTLY", FORMAT, len(text)) + text + blobs
    return raw + checksum(raw).digest()


def peak_of(data, header=None):
    """The largest memory that decoding takes beside the bytes themselves, and how it ended."""
    tracemalloc.start()
    try:
        decode(data, Inner, Outer, ClientTable, header=header)
        ending = "read"
    except CodecError as error:
        ending = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, ending


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            [{"b": [0, 8]}, {"b": [0, 8]}],
            "names 8 bytes from 0; expected at most 0 bytes from 8: in order, each byte once",
        ),
        ([{"b": [0, 5]}, {"b": [4, 4]}], "names 4 bytes from 4; expected at most 3 bytes from 5"),
        ([{"b": [4, 4]}, {"b": [0, 4]}], "names 4 bytes from 4; expected at most 8 bytes from 0"),
        ([{"b": [0, 4]}], "4 bytes at the end belong to nothing"),
        ([{"b": [0, 10**30]}], "expected at most 8 bytes"),
        ([{"b": [0, -1]}], "not two whole numbers"),
        ([{"b": [0, True]}], "not two whole numbers"),
        ([{"b": [0, 8.0]}], "not two whole numbers"),
        ([{"a": [0, 8], "t": "<f8", "s": [-1]}], "no shape of whole numbers that are not below 0"),
        ([{"a": [0, 8], "t": "<f8", "s": [1] * 65}], "no shape"),
        ([{"a": [0, 8], "t": "<f8", "s": 1}], "no shape"),
        ([{"a": [0, 8], "t": "<f4", "s": [1]}], r"an array of <f4 and shape \[1\] has 8 bytes"),
        ([{"a": [0, 8], "t": "<f8", "s": [2**62, 2**62]}], "has 8 bytes"),
        ([{"a": [0, 8], "t": "V8", "s": [1]}], "no dtype of plain numbers"),
        ([{"a": [0, 8], "t": "f8,f8", "s": [1]}], "no dtype of plain numbers"),
        ([{"b": [0, 8], "more": 1}], "a part of no known form"),
        ([[1]], "a part of no known form"),
        ([{"l": "ab"}, {"b": [0, 8]}], "a part of no known form"),
    ],
)
def test_what_no_encoder_writes_is_refused(body, message):
    with pytest.raises(CodecError, match=f"these .* bytes cannot be read: .*{message}"):
        decode(forged({"l": body}, bytes(8)))


@pytest.mark.parametrize(
    "text", [b"NaN", b'{"f":"1e3"}', '"\u00e4"'.encode(), "1".encode("utf-16"), b"1 2"]
)
def test_a_header_in_other_words_is_refused(text):
    with pytest.raises(CodecError, match="cannot be read"):
        decode(forged_text(text))


def test_a_header_that_is_longer_than_the_bytes_is_refused():
    raw = struct.pack("<4sHI", b"MTLY", FORMAT, 2**32 - 1) + b"true"
    with pytest.raises(CodecError, match="the header has 4294967295 bytes, of which 4 are there"):
        decode(raw + checksum(raw).digest())


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"l":[' * 101 + b"]}" * 101, b'{"d":[[0,' * 500]
)
def test_deep_nesting_is_refused_before_anything_recurses(text):
    with pytest.raises(CodecError, match=r"brackets deep; expected at most 200"):
        decode(forged_text(text))


def test_brackets_in_texts_are_no_nesting_and_what_is_too_deep_is_not_written():
    assert decode(encode(["[" * 1000, '"\\' + "{" * 1000])) == ["[" * 1000, '"\\' + "{" * 1000]
    deep = 0
    for _ in range(100):
        deep = [deep]
    assert decode(encode(deep)) == deep
    with pytest.raises(CodecError, match="brackets deep; expected at most 200"):
        encode([deep])


def test_a_header_that_names_the_same_bytes_1300_times_takes_no_memory():
    """A header of 64 KiB beside 1 MB: read, the references would make 1.3 GB."""
    blob = bytes(2**20)
    references = [{"a": [0, len(blob)], "t": "|u1", "s": [len(blob)]}] * 1300
    data = forged({"l": references}, blob)
    peak, ending = peak_of(data, header=len(data) - len(blob))
    assert "in order, each byte once" in ending
    assert peak < 3 * len(data)


def bound(data):
    """What the module promises: a byte for each byte of the payload, 40 for each of the header, and
    what any call takes."""
    length = min(struct.unpack("<I", data[6:10])[0], len(data) - 26)
    return len(data) + 39 * length + 20_000


@pytest.mark.parametrize(
    "unit",
    [
        '{"u":[]}',
        '{"l":[]}',
        '{"d":[]}',
        '{"d":[[0,0]]}',
        '{"":{}}',
        "{}",
        "[[]]",
        '"ab"',
        '""',
        '"\\ud83d"',
        "1.5",
        "[]",
        '{"f":"nan"}',
        '{"b":[0,0]}',
        '{"a":[0,0],"t":"<f8","s":[0]}',
        '{"c":"Inner","v":{}}',
        '{"":0}',
        '"\\""',
        "99999999999",
    ],
)
def test_the_most_costly_headers_stay_within_the_bound(unit):
    for body in (
        f'{{"l":[{",".join([unit] * 3000)}]}}',
        f"[{','.join([unit] * 3000)}",
        unit * 3000,
    ):
        data = forged_text(body.encode())
        assert peak_of(data)[0] < bound(data), body[:80]


def test_mutations_take_no_more_memory_than_the_bound_and_raise_nothing_else():
    """4,000 changes of bytes and of parts of headers under a sound checksum, from a seed."""
    rng = random.Random(40)
    value = {
        "table": ClientTable({"a": np.nan}).put([3, 1], {"a": [0.5, -0.0]}),
        "inner": Inner(np.arange(400.0)),
        3: b"x" * 900,
        "odd": (
            None,
            True,
            -1,
            2.5,
            float("inf"),
            "text",
            [np.zeros((0, 3)), np.ones((2, 3), "<f4")],
            {"k": (1, 2)},
        ),
    }
    sound = encode(value)
    length = struct.unpack("<I", sound[6:10])[0]
    header = sound[10 : 10 + length]
    blobs = sound[10 + length : -16]
    parts = [
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b'"',
        b"0",
        b"-",
        b"9" * 40,
        b"1e999",
        b'{"b":[0,900]}',
        b'{"l":[]}',
        b"true",
        b'{"a":[0,3200],"t":"<f8","s":[400]}',
        b"null",
        b"3200",
        b"[0,900]",
        b"\\",
    ]
    endings = {"read": 0, "refused": 0}
    for _ in range(4000):
        changed = bytearray(header)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(changed))
            cut = rng.choice([0, 0, 1, 1, 2, 5, 20])
            part = rng.choice(
                [
                    *parts,
                    bytes([rng.randrange(256)]),
                    bytes(changed[at : at + 40]) * rng.choice([1, 1, 50]),
                ]
            )
            changed[at : at + cut] = part
        data = forged_text(
            bytes(changed), blobs[: rng.choice([len(blobs), len(blobs), rng.randrange(len(blobs))])]
        )
        peak, ending = peak_of(data)
        assert peak < bound(data)
        endings["read" if ending == "read" else "refused"] += 1
    assert endings["refused"] > 3000
    assert endings["read"] > 10
