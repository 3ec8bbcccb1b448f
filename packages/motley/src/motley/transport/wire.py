"""The wire format: a message of named packets as bytes, and back. No length depends on values.

    head     b"MTLW", version (u8), number of parts (u16), length of everything (u64)
    parts    each: name (u8 length, UTF-8), places (u8), coding (u8), levels (u32), size, sent,
             group, runs or groups (u64 each)
    bodies   each: places, then scales, then values
    digest   blake2b of all before it, 8 bytes

Little-endian. Places: nothing where all are sent; for ``indices`` the cheaper of a list
(``ceil(log2 size)`` bits each) and a bitmap (``size`` bits), or, for plain numbers, all values with
zeros between where even that is cheaper; 16 bytes for each run; 8 bytes for a seed. Codes of b
bits: the sign, then the level. Codes and indices are packed in planes: whole bytes first, the
remaining bits one by one, each plane padded to a byte.

Every message has one form: :func:`decode` refuses padding bits that are set, fields of a part that
its kind does not use unless they are 0, a zero with a sign among codes, and more values between
zeros than were announced, so that ``encode(decode(data)) == data`` for all bytes that it accepts,
and nothing travels in them unseen.

Guarantees: ``len(encode(message)) == length({name: packet.spec})``, so a packet is billed by its
spec before training. ``decode(encode(message))`` gives the same vectors, bit for bit; bytes that
are truncated or changed or hold a number that is not finite raise a
:class:`~motley.core.errors.CodecError`, never a vector.

>>> import torch
>>> data = encode({"delta": Packet(8, torch.tensor([0.5, -2.0]), torch.tensor([1, 6]))})
>>> decode(data)["delta"].dense().tolist()
[0.0, 0.5, 0.0, 0.0, 0.0, 0.0, -2.0, 0.0]
>>> len(data) == length({"delta": PacketSpec(8, 2, "indices")})
True
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.errors import CodecError
from motley.core.keys import Key
from motley.core.untrusted import one_line
from motley.transport.packet import CODINGS, PLACES, Codes, Packet, PacketSpec, group_sizes

VERSION = 1
_MAGIC = b"MTLW"
_HEAD = struct.Struct("<4sBHQ")
_PART = struct.Struct("<BBIQQQQ")
_DIGEST = 8
_CODINGS = tuple(CODINGS)


def encode(message: Mapping[str, Packet], constants: Container[str] = ()) -> bytes:
    """Return the bytes of a message. ``constants``: names of whole parts that may hold numbers that
    are not finite by design (a mask of -inf among a model's buffers).

    Raises
    ------
    CodecError: values that are not finite or of another dtype, places out of order, parts that
    contradict themselves.
    """
    specs = {name: packet.spec for name, packet in message.items()}
    total = length(specs)
    pieces = [_HEAD.pack(_MAGIC, VERSION, len(message), total)]
    for name, spec in specs.items():
        raw = _name(name)
        count = spec.runs if spec.places == "runs" else 0
        group = spec.group
        if isinstance(group, tuple):
            if spec.places == "runs":
                raise CodecError(
                    f"part {name!r} has runs and groups of unequal size; expected one of the two"
                )
            count = len(group)
            group = 2**64 - 1
        kinds = PLACES.index(spec.places), _CODINGS.index(spec.coding)
        pieces += [
            bytes([len(raw)]),
            raw,
            _PART.pack(*kinds, spec.levels, spec.size, spec.sent, group, count),
        ]
    for name, packet in message.items():
        pieces += _body(name, packet, specs[name], name in constants)
    data = b"".join(pieces)
    return data + _digest(data)


def decode(
    data: bytes,
    expected: Mapping[str, PacketSpec] | None = None,
    constants: Container[str] = (),
) -> dict[str, Packet]:
    """Return the message of some bytes. ``expected``: the specs that were agreed on and billed; any
    others are refused. ``constants``: as of :func:`encode`; whoever reads them compares them with
    what it knows.

    Raises
    ------
    CodecError: bytes that were cut off or changed, of another version, of other specs than
    expected, or that hold what :func:`encode` never writes.
    """
    specs, at = _open(data, None if expected is None else len(expected))
    if expected is not None:
        agreed = {name: _announced(spec) for name, spec in expected.items()}
        if specs != agreed:
            mismatched = sorted(
                name for name in specs.keys() | agreed.keys() if specs.get(name) != agreed.get(name)
            )[:2]
            names = one_line(mismatched)
            wanted = [agreed.get(n) for n in mismatched]
            raise CodecError(
                f"parts {names} are not of the spec that was agreed on; expected {wanted}"
            )
    reader = _Reader(memoryview(data), at)
    return {name: _packet(name, spec, reader, name in constants) for name, spec in specs.items()}


def length(specs: Mapping[str, PacketSpec]) -> int:
    """Return the number of bytes of a message of these specs."""
    heads = _HEAD.size + _DIGEST + sum(1 + len(_name(name)) + _PART.size for name in specs)
    return heads + sum(_body_bytes(spec) for spec in specs.values())


def places_bytes(size: int, sent: int) -> tuple[int, int]:
    """Return the bytes of an index list and of a bitmap of ``sent`` of ``size`` places."""
    return _packed(sent, _index_width(size)), math.ceil(size / 8)


# ------------------------------------------------------------------------------------- lengths


def _name(name: str) -> bytes:
    raw = name.encode()
    if not 0 < len(raw) < 256:
        raise CodecError(f"got a part's name of {len(raw)} bytes; expected 1 to 255")
    return raw


def _index_width(size: int) -> int:
    return (size - 1).bit_length() if size > 1 else 0


def _packed(n: int, width: int) -> int:
    return n * (width // 8) + (width % 8) * math.ceil(n / 8)


def _filled(spec: PacketSpec) -> bool:
    """Return whether all values, zeros included, take no more bytes than the values sent with their
    places."""
    if spec.places != "indices":
        return False
    if spec.sent == spec.size:
        return True
    plain = not spec.coding.startswith("codes")
    return plain and (spec.size - spec.sent) * spec.width // 8 <= min(
        places_bytes(spec.size, spec.sent)
    )


def _body_bytes(spec: PacketSpec) -> int:
    count = spec.size if _filled(spec) else spec.sent
    values = (
        _packed(count, spec.width) if spec.coding.startswith("codes") else count * spec.width // 8
    )
    groups = 8 * len(spec.group) if isinstance(spec.group, tuple) else 0
    places = {"all": 0, "indices": 0 if _filled(spec) else min(places_bytes(spec.size, spec.sent))}
    places |= {"runs": 16 * spec.runs, "seed": 8}
    return places[spec.places] + groups + spec.scale_bits // 8 + values


# ------------------------------------------------------------------------------------- writing


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


def _body(name: str, packet: Packet, spec: PacketSpec, constants: bool) -> Iterator[Any]:
    values = packet.values.scales if isinstance(packet.values, Codes) else packet.values
    if not constants and not _finite(values):
        raise CodecError(
            f"part {name!r} holds a number that is not finite; such an update is rejected, never "
            "sent"
        )
    _check(name, spec)
    if _filled(spec):
        yield _plain(packet.dense()) if not isinstance(packet.values, Codes) else b""
    else:
        yield from _written_places(name, packet, spec)
    if isinstance(packet.values, Codes):
        yield from _written_codes(name, packet.values)
    elif not _filled(spec):
        yield _plain(values)


def _written_places(name: str, packet: Packet, spec: PacketSpec) -> Iterator[Any]:
    places = packet.places
    if isinstance(places, Tensor):
        at = places.numpy()
        _check_order(name, at, spec.size)
        listed, mapped = places_bytes(spec.size, spec.sent)
        if listed <= mapped:
            yield from _planes(at, _index_width(spec.size))
        else:
            mask = np.zeros(spec.size, bool)
            mask[at] = True
            yield np.packbits(mask).data
    elif isinstance(places, tuple):
        runs = np.asarray(places, np.int64).reshape(-1, 2)
        _check_runs(name, runs, spec)
        yield runs.astype("<i8").tobytes()
    elif isinstance(places, Key):
        if places.path or not 0 <= places.seed < 2**64:
            raise CodecError(
                f"part {name!r} draws its places from {places}; expected Key(seed), a seed of 64 "
                "bits"
            )
        yield int(places.seed).to_bytes(8, "little")


def _written_codes(name: str, codes: Codes) -> Iterator[Any]:
    q = codes.q.numpy()
    largest = max(codes.levels, 1)
    if q.size and not (-largest <= q.min() and q.max() <= largest and (codes.levels or q.all())):
        raise CodecError(f"part {name!r} has levels outside -{codes.levels}..{codes.levels}")
    sizes = group_sizes(len(q), codes.group)
    if len(codes.scales) != len(sizes) or sizes.sum() != len(q):
        raise CodecError(
            f"part {name!r} has {len(codes.scales)} scales and groups {sizes[:4].tolist()}... for "
            f"{len(q)} values"
        )
    if isinstance(codes.group, tuple):
        yield sizes.astype("<i8").tobytes()
    yield _plain(codes.scales)
    negative = (q < 0).view(np.uint8)
    if codes.levels == 0:
        yield np.packbits(negative).data
        return
    width = codes.levels.bit_length()
    unsigned = np.abs(q).astype(_unsigned(width + 1))
    unsigned |= negative.astype(unsigned.dtype) << width
    yield from _planes(unsigned, width + 1)


def _unsigned(width: int) -> Any:
    """Return the narrowest unsigned dtype of at least this many bits."""
    if width <= 16:
        return np.uint8 if width <= 8 else np.uint16
    return np.uint32 if width <= 32 else np.uint64


def _planes(codes: NDArray[Any], width: int) -> Iterator[Any]:
    """Yield whole bytes, least significant first, then the remaining bits."""
    for byte in range(width // 8):
        yield (codes >> (8 * byte)).astype(np.uint8).data
    top_bits = (codes >> (8 * (width // 8))).astype(np.uint8) if width % 8 else codes
    for bit in range(width % 8):
        yield np.packbits(top_bits & np.uint8(1 << bit)).data


def _plain(values: Tensor) -> Any:
    # Little-endian whatever the machine: bytes are compared, and read elsewhere.
    array = values.contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _finite(values: Tensor) -> bool:
    return (
        not values.numel()
        or not values.is_floating_point()
        or all(math.isfinite(float(v)) for v in values.aminmax())
    )


# ------------------------------------------------------------------------------------- reading


class _Reader:
    """A reader of bytes whose length has been checked."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, n: int) -> memoryview:
        """Return the next ``n`` bytes."""
        piece = self.data[self.at : self.at + n]
        self.at += n
        return piece

    def array(self, dtype: str, n: int) -> NDArray[Any]:
        """Return the next ``n`` numbers."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(n * kind.itemsize), kind).astype(kind.newbyteorder("="))

    def planes(self, n: int, width: int) -> NDArray[Any]:
        """Return the next ``n`` codes of ``width`` bits."""
        out = np.zeros(n, _unsigned(max(width, 1)))
        for byte in range(width // 8):
            out |= np.frombuffer(self.take(n), np.uint8).astype(out.dtype) << (8 * byte)
        top_bits = np.zeros(n, np.uint8)
        for bit in range(width % 8):
            top_bits |= self.bits(n) << bit
        if width % 8:
            out |= top_bits.astype(out.dtype) << (8 * (width // 8))
        return out

    def bits(self, n: int) -> NDArray[np.uint8]:
        """Return the next ``n`` bits, zeros and ones."""
        raw = np.frombuffer(self.take(math.ceil(n / 8)), np.uint8)
        if n % 8 and raw[-1] & (0xFF >> n % 8):
            raise CodecError("got padding bits that are not zero")
        return np.unpackbits(raw, count=n)


def _open(data: bytes, expected_parts: int | None) -> tuple[dict[str, PacketSpec], int]:
    """Return the specs and the position of the bodies, after all checks that need no body; more
    parts than expected are refused before one is read."""
    if data[:4] != _MAGIC[: len(data[:4])] or not data:
        raise CodecError("these bytes are not a message of motley")
    if len(data) < _HEAD.size + _DIGEST:
        raise CodecError(f"these {len(data)} bytes are a message that was cut off in its head")
    _, version, parts, total = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CodecError(f"got a message of version {version}, this motley reads version {VERSION}")
    if total != len(data):
        raise CodecError(
            f"got {len(data)} bytes of a message of {total}: cut off, or changed on the way"
        )
    if _digest(memoryview(data)[:-_DIGEST]) != data[-_DIGEST:]:
        raise CodecError(f"these {len(data)} bytes were changed on the way (checksum differs)")
    if expected_parts is not None and parts > expected_parts:
        raise CodecError(f"got {parts} parts; expected at most {expected_parts}, as was agreed on")
    try:
        specs, at = _specs(data, parts)
        expected = length(specs)
    except (
        struct.error,
        IndexError,
        UnicodeDecodeError,
        OverflowError,
        MemoryError,
    ) as error:
        # a valid checksum, but not written by encode
        raise CodecError(f"these {len(data)} bytes cannot be read: {error}") from error
    if expected != total:
        raise CodecError(f"these {len(data)} bytes announce parts of {expected} bytes in all")
    return specs, at


def _announced(spec: PacketSpec) -> PacketSpec:
    """Return a spec as a head holds it: the sizes of unequal groups are in the body."""
    return replace(spec, group=(0,) * len(spec.group)) if isinstance(spec.group, tuple) else spec


def _specs(data: bytes, parts: int) -> tuple[dict[str, PacketSpec], int]:
    specs: dict[str, PacketSpec] = {}
    at = _HEAD.size
    room = len(data)
    for _ in range(parts):
        end = at + 1 + data[at]
        name = data[at + 1 : end].decode()
        places, coding, levels, size, sent, group, count = _PART.unpack_from(data, end)
        at = end + _PART.size
        if name in specs or size > 2**48 or sent > 8 * len(data) or levels > 2**31 - 1:
            raise CodecError(f"part {name!r} comes twice or has impossible sizes")
        unequal = group == 2**64 - 1
        runs = PLACES[places] == "runs"
        room -= 8 * count  # each run and each group takes at least 8 bytes of the bodies
        if room < 0:
            raise CodecError(f"part {name!r} announces {count} runs or groups")
        coded = _CODINGS[coding].startswith("codes")
        if (
            (not coded and (levels or group))
            or unequal + runs > 1
            or (count and not unequal + runs)
        ):
            raise CodecError(
                f"part {name!r} has levels, groups or runs that its kind of values and places has "
                "not"
            )
        groups: int | tuple[int, ...] = (0,) * count if unequal else group
        specs[name] = PacketSpec(
            size=size,
            sent=sent,
            places=PLACES[places],
            runs=count if runs else 0,
            coding=_CODINGS[coding],
            levels=levels,
            group=groups,
        )
        _check(name, specs[name])
    return specs, at


def _packet(name: str, spec: PacketSpec, reader: _Reader, constants: bool) -> Packet:
    plain = not spec.coding.startswith("codes")
    if plain and _filled(spec):
        values = _numbers(name, reader, spec.coding, n=spec.size, constants=constants)
        return _between_zeros(name, spec, values)
    places = torch.arange(spec.size) if _filled(spec) else _read_places(name, spec, reader)
    if plain:
        values = _numbers(name, reader, spec.coding, spec.sent, constants=constants)
        return Packet(spec.size, values, places)
    return Packet(spec.size, _read_codes(name, spec, reader), places)


def _numbers(name: str, reader: _Reader, coding: str, n: int, constants: bool = False) -> Tensor:
    kind = {"float32": "<f4", "codes32": "<f4", "float64": "<f8", "codes64": "<f8", "int64": "<i8"}[
        coding
    ]
    values = torch.from_numpy(reader.array(kind, n))
    if not constants and not _finite(values):
        raise CodecError(f"part {name!r} holds a number that is not finite")
    return values


def _between_zeros(name: str, spec: PacketSpec, values: Tensor) -> Packet:
    """Return the packet of which all values were written. Which zeros were sent is not written: the
    first are taken."""
    bits = values.view(torch.int64 if values.element_size() == 8 else torch.int32)  # -0.0 was sent
    written = bits != 0
    zeros = spec.sent - int(written.sum())
    if zeros < 0:
        raise CodecError(f"part {name!r} announces {spec.sent} values and has {spec.sent - zeros}")
    written[torch.nonzero(~written)[:zeros, 0]] = True
    at = torch.nonzero(written)[:, 0]
    return Packet(spec.size, values[at], at)


def _read_places(name: str, spec: PacketSpec, reader: _Reader) -> Any:
    if spec.places == "all":
        return None
    if spec.places == "seed":
        return Key(int.from_bytes(reader.take(8), "little"))
    if spec.places == "runs":
        runs = reader.array("<i8", 2 * spec.runs).reshape(-1, 2)
        _check_runs(name, runs, spec)
        return tuple((int(a), int(b)) for a, b in runs)
    listed, mapped = places_bytes(spec.size, spec.sent)
    if listed <= mapped:
        at = reader.planes(spec.sent, _index_width(spec.size)).astype(np.int64)
    else:
        at = np.flatnonzero(reader.bits(spec.size))
    if len(at) != spec.sent:
        raise CodecError(f"part {name!r} announces {spec.sent} values and names {len(at)} places")
    _check_order(name, at, spec.size)
    return torch.from_numpy(at)


def _read_codes(name: str, spec: PacketSpec, reader: _Reader) -> Codes:
    group = spec.group
    if isinstance(group, tuple):
        sizes = reader.array("<i8", len(group))
        possible = ((sizes >= 0) & (sizes <= spec.sent)).all()  # the sum of larger ones could wrap
        if not possible or int(sizes.sum()) != spec.sent:
            raise CodecError(f"part {name!r} has groups that do not hold its {spec.sent} values")
        group = tuple(int(n) for n in sizes)
    scales = _numbers(name, reader, spec.coding, len(group_sizes(spec.sent, group)))
    kind: Any = np.int8
    if spec.levels >= 2**7:
        kind = np.int16 if spec.levels < 2**15 else np.int32
    if spec.levels == 0:
        return Codes(
            torch.from_numpy(1 - 2 * reader.bits(spec.sent).astype(kind)), 0, scales, group
        )
    width = spec.levels.bit_length()
    raw = reader.planes(spec.sent, width + 1)
    level = raw & raw.dtype.type((1 << width) - 1)
    if level.size and int(level.max()) > spec.levels:
        raise CodecError(f"part {name!r} has a level above {spec.levels}")
    if (raw == 1 << width).any():
        raise CodecError(f"part {name!r} has a zero with a sign")
    q = level.astype(kind)
    np.negative(q, out=q, where=(raw >> width).astype(bool))
    return Codes(torch.from_numpy(q), spec.levels, scales, group)


# ------------------------------------------------------------------------------ checks of both ends


def _check(name: str, spec: PacketSpec) -> None:
    all_places = spec.places == "all"
    if spec.sent > spec.size or (all_places and spec.sent != spec.size):
        raise CodecError(
            f"part {name!r} sends {spec.sent} of {spec.size} values as {spec.places!r}"
        )


def _check_order(name: str, at: NDArray[Any], size: int) -> None:
    if len(at) and not (at[0] >= 0 and at[-1] < size and (at[1:] > at[:-1]).all()):
        raise CodecError(f"part {name!r} names places that are not ascending or not below {size}")


def _check_runs(name: str, runs: NDArray[Any], spec: PacketSpec) -> None:
    bounds = runs.reshape(-1)
    ordered = bool((bounds[1:] >= bounds[:-1]).all()) and (
        not len(bounds) or bool(bounds[0] >= 0 and bounds[-1] <= spec.size)
    )
    if not ordered or int((runs[:, 1] - runs[:, 0]).sum()) != spec.sent:
        raise CodecError(f"part {name!r} has runs that do not hold its {spec.sent} values")
