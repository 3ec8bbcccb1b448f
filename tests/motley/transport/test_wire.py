"""The wire: what is billed is what is encoded, what is decoded is what was sent, and damaged bytes
give an error.

Worked numbers: docs/methods/compression.md#qsgd.
"""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import CodecError, ContractError
from motley.core.keys import Key
from motley.transport.packet import Codes, Packet, PacketSpec, drawn, group_sizes
from motley.transport.wire import _digest, decode, encode, length, places_bytes


@st.composite
def packets(draw) -> Packet:
    """Any packet that a compressor could make, and some that none does."""
    size = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["all", "indices", "runs", "seed"]))
    runs: tuple[tuple[int, int], ...] = ()
    if kind == "runs":
        cuts = np.sort(rng.integers(0, size + 1, 2 * draw(st.integers(0, 4))))
        runs = tuple((int(a), int(b)) for a, b in cuts.reshape(-1, 2))
        kept = sum(b - a for a, b in runs)
    else:
        kept = size if kind == "all" else draw(st.integers(0, size))
    places = {
        "all": None,
        "indices": torch.from_numpy(np.sort(rng.choice(size, kept, replace=False)))
        if size
        else torch.zeros(0).long(),
        "runs": runs,
        "seed": Key(draw(st.integers(0, 2**64 - 1))),
    }[kind]
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    coding = draw(st.sampled_from(["float", "int", "codes", "signs"]))
    if coding == "float":
        values = torch.from_numpy(
            rng.standard_normal(kept) * draw(st.sampled_from([0.0, 1.0, 1e30, 1e-40]))
        ).to(dtype)
    elif coding == "int":
        values = torch.from_numpy(rng.integers(-(2**62), 2**62, kept))
    else:
        group = draw(st.sampled_from([0, 1, 7] + ([] if kind == "runs" else ["cut"])))
        if group == "cut":
            cut = int(rng.integers(0, kept + 1))
            group = (cut, kept - cut)
        scales = torch.from_numpy(np.abs(rng.standard_normal(len(group_sizes(kept, group))))).to(
            dtype
        )
        if coding == "signs":
            values = Codes(
                torch.from_numpy(rng.choice([-1, 1], kept).astype(np.int8)), 0, scales, group
            )
        else:
            levels = draw(st.sampled_from([1, 2, 3, 4, 15, 127, 128, 255, 40_000]))
            q = rng.integers(-levels, levels + 1, kept)
            kind_q = np.int8 if levels < 128 else np.int16 if levels < 2**15 else np.int32
            values = Codes(torch.from_numpy(q.astype(kind_q)), levels, scales, group)
    return Packet(size, values, places)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=9).filter(lambda s: s.isprintable()), packets(), max_size=3
    )
)
def test_what_is_decoded_is_what_was_sent_and_as_long_as_its_forms(
    message: dict[str, Packet],
) -> None:
    data = encode(message)
    assert len(data) == length({name: packet.spec for name, packet in message.items()})
    back = decode(data)
    assert list(back) == list(message)
    for name, packet in message.items():
        assert back[name].size == packet.size
        assert torch.equal(back[name].dense(), packet.dense())
        assert back[name].dense().dtype == packet.dense().dtype
    assert encode(back) == data


def test_no_length_depends_on_values() -> None:
    rng = np.random.default_rng(0)
    for kept in (0, 1, 40, 400, 1000):
        lengths = set()
        for scale in (0.0, 1e-30, 1.0, 1e30):
            at = torch.from_numpy(np.sort(rng.choice(1000, kept, replace=False)))
            lengths.add(len(encode({"delta": Packet(1000, torch.randn(kept) * scale, at)})))
        assert lengths == {length({"delta": PacketSpec(1000, kept, "indices")})}


def test_the_cheaper_of_index_list_and_bitmap_is_taken() -> None:
    """N = 1024: an index has 10 bits. A list of kappa indices takes kappa + 2 ceil(kappa / 8) bytes
    (a byte plane and two bit planes), a bitmap 128: equal at kappa = 102 (102 + 26). Plain numbers
    with zeros between take 4 (N - kappa) bytes more than the kept ones: no more than the bitmap
    from kappa = 992 on."""
    assert places_bytes(1024, 100) == (126, 128)
    empty = length({"d": PacketSpec(1024, 0, "indices")})
    for kept, places in (
        (1, 3),
        (64, 80),
        (102, 128),
        (103, 128),
        (500, 128),
        (992, 128),
        (1000, 96),
        (1024, 0),
    ):
        assert length({"d": PacketSpec(1024, kept, "indices")}) - empty == 4 * kept + places


def test_a_length_by_hand() -> None:
    """Head 4 + 1 + 2 + 8 = 15, digest 8. A part: 1 + 5 letters of name, 1 + 1 + 4 + 4 * 8 = 38.
    Body: 2 indices below 8 are 3 bit planes of a byte each, but a bitmap is 1 byte; 2 values are 8
    bytes. 15 + 8 + 6 + 38 + 1 + 8 = 76."""
    assert length({"delta": PacketSpec(8, 2, "indices")}) == 76
    assert length({}) == 23
    assert length({"delta": PacketSpec(8, 2, "seed")}) == 83
    assert length({"delta": PacketSpec(8, 5, "runs", 2)}) == 15 + 8 + 44 + 32 + 20


@pytest.mark.parametrize(("levels", "bits"), [(0, 1), (1, 2), (4, 4), (15, 5), (255, 9)])
def test_bits_per_value_of_codes(levels: int, bits: int) -> None:
    """s = 1, 4, 15, 255 take 2, 4, 5, 9 bits a value; signs one."""
    form = PacketSpec(800, 800, coding="codes32", levels=levels)
    assert form.width == bits
    assert form.values_bits() == 800 * bits + 32
    assert length({"d": form}) == length({"d": PacketSpec(800, 0, "indices")}) + 100 * bits + 4


MESSAGE = {
    "delta": Packet(40, torch.tensor([0.5, -2.0, 3.0]), torch.tensor([1, 6, 39])),
    "codes": Packet(
        9,
        Codes(
            torch.tensor([1, -1, 0, 2, 3, -3, 0, 0, 1], dtype=torch.int8),
            3,
            torch.tensor([1.0, 2.0]),
            5,
        ),
    ),
    "seed": Packet(9, torch.tensor([1.0]), Key(77)),
    "runs": Packet(9, torch.tensor([1.0, 2.0]), ((3, 5),)),
    "counters": Packet(2, torch.tensor([2**40, -1])),
}


def test_every_truncation_is_told() -> None:
    data = encode(MESSAGE)
    for n in range(len(data)):
        with pytest.raises(CodecError):
            decode(data[:n])
    with pytest.raises(CodecError, match=f"got {len(data) - 1} bytes of a message of {len(data)}"):
        decode(data[:-1])
    with pytest.raises(CodecError, match="cut off"):
        decode(data + b"\0")


def test_every_flipped_bit_is_told() -> None:
    data = encode(MESSAGE)
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(CodecError):
            decode(bytes(bad))


def test_foreign_bytes_and_other_versions_are_told() -> None:
    with pytest.raises(CodecError, match="not a message of motley"):
        decode(b"")
    with pytest.raises(CodecError, match="not a message of motley"):
        decode(b"GET / HTTP/1.1\r\n" * 10)
    bad = bytearray(encode(MESSAGE))
    bad[4] = 2
    with pytest.raises(CodecError, match="version 2, this motley reads version 1"):
        decode(bytes(bad))


@settings(max_examples=150, deadline=None)
@given(st.integers(15, 10_000), st.integers(0, 255))
def test_a_hostile_body_under_a_sound_checksum_is_no_other_error(at: int, byte: int) -> None:
    """Whoever can compute a checksum can write anything: still a CodecError or a vector of the
    announced size, never a crash."""
    bad = bytearray(encode(MESSAGE))
    bad[15 + at % (len(bad) - 23)] = byte
    bad[-8:] = _digest(bytes(bad[:-8]))
    try:
        back = decode(bytes(bad))
    except CodecError:
        return
    for packet in back.values():
        if packet.size < 10**6:
            assert torch.isfinite(packet.dense().double()).all()


def resealed(data: bytes, at: int, piece: bytes) -> bytes:
    """A message with some bytes changed and a sound checksum."""
    bad = bytearray(data)
    start = at % len(bad)
    bad[start : start + len(piece)] = piece
    return bytes(bad[:-8]) + _digest(bytes(bad[:-8]))


@settings(max_examples=60, deadline=None)
@given(packets(), st.integers(0, 2**32 - 1))
def test_every_message_that_is_read_has_one_form(packet: Packet, seed: int) -> None:
    """6,000 changes of one to three bytes under a sound checksum: what is read is written in the
    same bytes."""
    rng = np.random.default_rng(seed)
    sound = encode({"d": packet})
    for _ in range(100):
        bad = bytearray(sound)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(15, len(bad) - 8))
            bad[at] = int(
                rng.choice(
                    [bad[at] ^ (1 << int(rng.integers(8))), int(rng.integers(256)), 0, 1, 255]
                )
            )
        bad[-8:] = _digest(bytes(bad[:-8]))
        try:
            back = decode(bytes(bad))
        except CodecError:
            continue
        assert encode(back) == bytes(bad)


SIGNS = Codes(torch.tensor([1, -1, 1], dtype=torch.int8), 0, torch.ones(1))
LEVELS = Codes(torch.tensor([1, 0, -1], dtype=torch.int8), 1, torch.ones(1))
PART = 15 + 2  # where the fields of a part named by one letter begin


@pytest.mark.parametrize(
    ("packet", "at", "piece", "message"),
    [
        (Packet(3, SIGNS), -9, b"\x41", "padding bits that are not zero"),
        (Packet(3, LEVELS), -9, b"\x21", "padding bits that are not zero"),
        (
            Packet(9, torch.ones(5), torch.arange(5)),
            -30,
            b"\xf8\x01",
            "padding bits that are not zero",
        ),
        (
            Packet(100, torch.ones(1), torch.tensor([3])),
            -13,
            b"\x81",
            "padding bits that are not zero",
        ),
        (Packet(3, LEVELS), -9, b"\x60", "part 'd' has a zero with a sign"),
        (
            Packet(3, torch.ones(3)),
            PART + 2,
            b"\x01",
            "part 'd' has levels, groups or runs that its kind",
        ),
        (
            Packet(3, torch.ones(3)),
            PART + 22,
            b"\x01",
            "part 'd' has levels, groups or runs that its kind",
        ),
        (
            Packet(3, torch.ones(3)),
            PART + 22,
            b"\xff" * 8,
            "part 'd' has levels, groups or runs that its kind",
        ),
        (
            Packet(3, torch.ones(3)),
            PART + 30,
            b"\x01",
            "part 'd' has levels, groups or runs that its kind",
        ),
        (
            Packet(3, LEVELS, ((0, 3),)),
            PART + 22,
            b"\xff" * 8,
            "part 'd' has levels, groups or runs that its kind",
        ),
        (Packet(4, torch.tensor([1.0, 0.0, 2.0]), torch.arange(3)), -12, b"\0\0\x80\x3f", None),
        (
            Packet(40, torch.ones(39), torch.arange(39)),
            -12,
            b"\0\0\x80\x3f",
            "part 'd' announces 39 values and has 40",
        ),
    ],
)
def test_bits_and_fields_that_nothing_uses_are_zero(
    packet: Packet, at: int, piece: bytes, message: str | None
) -> None:
    sound = encode({"d": packet})
    assert encode(decode(sound)) == sound
    bad = resealed(sound, at, piece)
    if message is None:
        assert encode(decode(bad)) == bad
        return
    with pytest.raises(CodecError, match=message):
        decode(bad)


def test_sizes_of_groups_whose_sum_wraps_are_refused() -> None:
    data = encode(
        {"d": Packet(3, Codes(torch.ones(3, dtype=torch.int8), 1, torch.ones(3), (1, 1, 1)))}
    )
    with pytest.raises(CodecError, match="groups that do not hold its 3 values"):
        decode(resealed(data, PART + 38, struct.pack("<3q", 2**62, 2**62, 3 - 2**63)))
    with pytest.raises(CodecError, match="groups that do not hold its 3 values"):
        decode(resealed(data, PART + 38, struct.pack("<3q", 2**63 - 1, 2**63 - 1, 5)))


def test_what_heads_announce_takes_no_memory() -> None:
    """A thousand parts that each announce as many groups, or as many values with a scale each, as
    the whole message could hold."""
    filler = bytes(200_000)
    for kept, group, count in ((0, 2**64 - 1, 25_000), (1_600_000, 1, 0)):
        part = struct.pack("<BBIQQQQ", 3, 3, 1, 2**40, kept, group, count)
        body = b"".join(
            b"\x02" + struct.pack("<H", n + 0x2020).replace(b"\x80", b"!") + part for n in range(90)
        )
        data = (
            struct.pack("<4sBHQ", b"MTLW", 1, 90, 15 + len(body) + len(filler) + 8) + body + filler
        )
        data += _digest(data)
        tracemalloc.start()
        with pytest.raises(CodecError):
            decode(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 * len(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused_at_both_ends(value: float) -> None:
    with pytest.raises(CodecError, match="part 'delta' holds a number that is not finite"):
        encode({"delta": Packet(3, torch.tensor([1.0, value, 0.0]))})
    with pytest.raises(CodecError, match="not finite"):
        encode(
            {"delta": Packet(1, Codes(torch.ones(1, dtype=torch.int8), 1, torch.tensor([value])))}
        )
    data = bytearray(encode({"delta": Packet(1, torch.tensor([1.0]))}))
    data[-12:-8] = struct.pack("<f", value)
    data[-8:] = _digest(bytes(data[:-8]))
    with pytest.raises(CodecError, match="not finite"):
        decode(bytes(data))


def test_a_level_that_does_not_exist_is_told() -> None:
    """s = 2 has 2 bits of level, so 3 can be written by whoever computes a checksum: the first bit
    plane of the one value."""
    data = bytearray(
        encode({"d": Packet(1, Codes(torch.tensor([2], dtype=torch.int8), 2, torch.ones(1)))})
    )
    data[-11] = 0x80
    data[-8:] = _digest(bytes(data[:-8]))
    with pytest.raises(CodecError, match="a level above 2"):
        decode(bytes(data))


def test_a_receiver_that_knows_the_forms_takes_no_others() -> None:
    data = encode(MESSAGE)
    forms = {name: packet.spec for name, packet in MESSAGE.items()}
    forms["cut"] = PacketSpec(3, 3, coding="codes32", levels=1, group=(1, 2))
    cut = Packet(3, Codes(torch.ones(3, dtype=torch.int8), 1, torch.ones(2), (1, 2)))
    assert decode(encode({**MESSAGE, "cut": cut}), forms).keys() == forms.keys()
    with pytest.raises(CodecError, match=r"parts \['cut'\] are not of the spec that was agreed on"):
        decode(data, forms)
    with pytest.raises(CodecError, match=r"parts \['delta'\]"):
        decode(
            data,
            {
                **{n: f for n, f in forms.items() if n != "cut"},
                "delta": PacketSpec(41, 3, "indices"),
            },
        )


def test_contradictions_are_refused() -> None:
    one = torch.tensor([1.0, 1.0])
    with pytest.raises(CodecError, match="not ascending"):
        encode({"d": Packet(9, one, torch.tensor([3, 3]))})
    with pytest.raises(CodecError, match="not ascending or not below 9"):
        encode({"d": Packet(9, one, torch.tensor([3, 9]))})
    with pytest.raises(CodecError, match="sends 2 of 9 values as 'all'"):
        encode({"d": Packet(9, one)})
    with pytest.raises(CodecError, match="runs that do not hold its 2 values"):
        encode({"d": Packet(9, one, ((0, 3),))})
    with pytest.raises(CodecError, match="levels outside"):
        encode({"d": Packet(1, Codes(torch.tensor([3], dtype=torch.int8), 2, torch.ones(1)))})
    with pytest.raises(CodecError, match="2 scales"):
        encode({"d": Packet(1, Codes(torch.tensor([1], dtype=torch.int8), 2, torch.ones(2)))})
    with pytest.raises(CodecError, match="float16"):
        encode({"d": Packet(2, one.half())})
    with pytest.raises(CodecError, match="name of 0 bytes"):
        encode({"": Packet(2, one)})
    with pytest.raises(CodecError, match="seed of 64 bits"):
        encode({"d": Packet(9, one, Key(0).fold("a"))})


def test_an_empty_message_an_empty_vector_and_zeros() -> None:
    assert decode(encode({})) == {}
    assert decode(encode({"d": Packet(0, torch.zeros(0))}))["d"].dense().shape == (0,)
    zero = decode(encode({"d": Packet(5, torch.zeros(0), torch.zeros(0).long())}))["d"]
    assert zero.dense().tolist() == [0.0] * 5
    assert decode(encode({"d": Packet(1, torch.tensor([-0.0]))}))[
        "d"
    ].dense().signbit().tolist() == [True]


def test_places_drawn_from_a_seed_are_uniform_and_the_same_at_both_ends() -> None:
    counts = torch.zeros(10)
    for seed in range(3000):
        at = drawn(Key(seed), 10, 3)
        assert len(at) == 3
        assert (at[1:] > at[:-1]).all()
        counts[at] += 1
    assert (counts / 3000 - 0.3).abs().max() < 4 * (0.3 * 0.7 / 3000) ** 0.5
    assert drawn(Key(5), 12, 4).tolist() == GOLDEN  # part of the format: a change is a new version
    long = drawn(Key(1), 300_000, 1000)
    assert len(torch.unique(long)) == 1000
    with pytest.raises(ContractError, match="got 4 of 3 places"):
        drawn(Key(0), 3, 4)


@pytest.mark.parametrize(("size", "kept"), [(1000, 300), (1000, 999), (70_000, 30_000)])
def test_places_drawn_are_those_of_the_smallest_numbers(size: int, kept: int) -> None:
    luck = Key(2).uniform(np.arange(size))[:, 0]
    smallest = np.sort(np.argsort(luck)[:kept])
    assert drawn(Key(2), size, kept).tolist() == smallest.tolist()


GOLDEN = [1, 2, 4, 6]
