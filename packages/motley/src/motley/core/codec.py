"""Binary encoding of frozen dataclasses and arrays: versioned, with a checksum, without pickle.

The bytes: ``b"MTLY"``, a format number (u16), the length of a JSON header (u32), the header, the
arrays' raw bytes, and a 16-byte checksum of everything before it, so that truncated or changed
files are detected. In format 1, which is still read, that was a blake2b digest, which takes 25
times as long.

Anybody can compute the checksum, so :func:`decode` bounds what bytes of a stranger can cost. Every
reference of the header begins where the one before it ends, and the last ends with the payload: no
byte is read twice. Shapes, dtypes and lengths are compared before an array is made, and brackets
inside each other are counted before the header is parsed. Beside the bytes themselves, decoding
takes at most one byte of memory for each byte of the payload and 40 for each of the header.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from motley.core.checksum import checksum
from motley.core.errors import CodecError
from motley.core.untrusted import printable, shortened

FORMAT = 2
MAGIC = b"MTLY"
_HEAD = struct.Struct("<4sHI")
_DEPTH = 200  # brackets inside each other in a header: 66 dictionaries, or 100 lists
_SIDES = 64  # NumPy's own limit
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_DTYPE = re.compile(r"[<>|][biuf](?:1|2|4|8|12|16)")
_NOT_FINITE = {text: float(text) for text in ("nan", "inf", "-inf")}


def encode(value: object) -> bytes:
    """Return the bytes of a value: None, numbers, str, bytes, tuple, list, dict (str or int keys),
    arrays, dataclasses of these.

    Raises
    ------
    CodecError: a value of any other type.
    """
    return b"".join(pieces(value))


def pieces(value: object) -> Iterator[bytes | memoryview]:
    """Yield the bytes of :func:`encode` in pieces, arrays without a copy."""
    blobs = _Blobs()
    body = json.dumps(_pack(value, blobs), separators=(",", ":")).encode()
    _check_depth(body.decode())  # what is written can be read
    hasher = checksum()
    for piece in (_HEAD.pack(MAGIC, FORMAT, len(body)), body, *blobs.parts):
        hasher.update(piece)
        yield piece
    yield hasher.digest()


class _Blobs:
    """Raw bytes of arrays, in the order in which they occur."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.end = 0

    def add(self, raw: bytes | memoryview) -> list[int]:
        """Append bytes and return their offset and length."""
        self.parts.append(raw)
        self.end += len(raw)
        return [self.end - len(raw), len(raw)]


def decode(data: bytes | memoryview, *types: type, header: int | None = None) -> Any:
    """Return the encoded value.

    Parameters
    ----------
    types: every dataclass that may occur; no other type is made.
    header: largest size in bytes of everything but arrays, for bytes of strangers; None: no limit.

    Raises
    ------
    CodecError: truncated or changed bytes, another format, a type that was not named, or what
    :func:`encode` never writes.
    """
    view = memoryview(data)
    raw = view[:-16]
    if len(raw) < _HEAD.size or raw[:4] != MAGIC:
        raise CodecError("these bytes were not written by motley")
    _, version, length = _HEAD.unpack(raw[: _HEAD.size])
    if version not in (1, FORMAT):
        raise CodecError(f"got format {version}, this motley reads formats 1 and {FORMAT}")
    hasher = hashlib.blake2b(raw, digest_size=16) if version == 1 else checksum(raw)
    if hasher.digest() != view[-16:]:
        raise CodecError(f"these {len(data)} bytes are truncated or changed (checksum differs)")
    if header is not None and length > header:
        raise CodecError(f"got a header of {length} bytes; expected at most {header}")
    try:
        body = _parsed(raw[_HEAD.size :], length)
        payload = _Payload(raw[_HEAD.size + length :])
        value = _unpack(body, payload, {t.__qualname__: t for t in types})
        payload.close()
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        why = shortened(printable(str(error)), 200)  # it may quote a stranger
        raise CodecError(f"these {len(data)} bytes cannot be read: {why}") from error
    return value


def _parsed(raw: memoryview, length: int) -> Any:
    """Return the parsed header."""
    if length > len(raw):
        raise ValueError(f"the header has {length} bytes, of which {len(raw)} are there")
    text = str(raw[:length], "ascii")
    _check_depth(text)
    return json.loads(text, parse_constant=_refused)


def _refused(text: str) -> float:
    raise ValueError(f"the header holds {text}")


def _check_depth(text: str) -> None:
    """Refuse a header with too many brackets inside each other, before a parser recurses into
    it."""
    bare = _STRING.sub("", text).encode()
    signs = np.frombuffer(bare, np.uint8)
    steps = np.isin(signs, list(b"[{")).astype(np.int8) - np.isin(signs, list(b"]}"))
    depth = int(np.cumsum(steps, dtype=np.int32).max(initial=0))
    if depth > _DEPTH:
        raise CodecError(
            f"got values inside each other, {depth} brackets deep; expected at most {_DEPTH}"
        )


def _pack(value: Any, blobs: _Blobs) -> Any:
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.generic):
        return _pack(value.item(), blobs)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": repr(value)}
    if isinstance(value, bytes):
        return {"b": blobs.add(value)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise CodecError(f"cannot encode an array of dtype {value.dtype}")
        plain = np.ascontiguousarray(value)
        return {
            "a": blobs.add(plain.reshape(-1).view(np.uint8).data),
            "t": plain.dtype.str,
            "s": list(value.shape),
        }
    if isinstance(value, tuple | list):
        return {
            "l" if isinstance(value, list) else "u": [_pack(element, blobs) for element in value]
        }
    if isinstance(value, Mapping):
        return {"d": [[_pack(key, blobs), _pack(entry, blobs)] for key, entry in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _pack(getattr(value, f.name), blobs) for f in dataclasses.fields(value)}
        return {"c": type(value).__qualname__, "v": fields}
    raise CodecError(f"cannot encode a {type(value).__name__}")


class _Payload:
    """The bytes after the header, which references take in order, without a gap."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, reference: Any) -> memoryview:
        """Return the bytes that a reference names."""
        start, length = reference
        if type(start) is not int or type(length) is not int or length < 0:
            raise ValueError("a reference is not two whole numbers that are not below 0")
        left = len(self.data) - self.at
        if start != self.at or length > left:
            raise ValueError(
                f"a reference names {length} bytes from {start}; expected at most {left} bytes "
                f"from {self.at}: in order, each byte once"
            )
        self.at += length
        return self.data[start : self.at]

    def array(self, reference: Any, dtype: Any, shape: Any) -> np.ndarray[Any, Any]:
        """Return the array of a reference."""
        raw = self.take(reference)
        if not (type(dtype) is str and _DTYPE.fullmatch(dtype)):
            raise ValueError("an array has no dtype of plain numbers")
        sides = isinstance(shape, list) and len(shape) <= _SIDES
        if not sides or any(type(side) is not int or side < 0 for side in shape):
            raise ValueError("an array has no shape of whole numbers that are not below 0")
        kind = np.dtype(dtype)
        if math.prod(shape) * kind.itemsize != len(raw):
            raise ValueError(f"an array of {dtype} and shape {shape} has {len(raw)} bytes")
        # A copy: arrays over a message's bytes are read-only, and would keep all of it in memory.
        return np.frombuffer(raw, kind).reshape(shape).copy()

    def close(self) -> None:
        """Refuse a payload of which no reference has taken the end."""
        if self.at != len(self.data):
            raise ValueError(f"{len(self.data) - self.at} bytes at the end belong to nothing")


def _unpack(node: Any, payload: _Payload, types: Mapping[str, type]) -> Any:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    match node:
        case {"f": str(text), **rest} if not rest:
            return _NOT_FINITE[text]
        case {"b": [_, _] as reference, **rest} if not rest:
            return bytes(payload.take(reference))
        case {"a": [_, _] as reference, "t": dtype, "s": shape, **rest} if not rest:
            return payload.array(reference, dtype, shape)
        case {"l": list(items), **rest} if not rest:
            return _all(items, payload, types)
        case {"u": list(items), **rest} if not rest:
            return tuple(_all(items, payload, types))
        case {"d": list(pairs), **rest} if not rest:
            return {
                _unpack(key, payload, types): _unpack(entry, payload, types) for key, entry in pairs
            }
        case {"c": str(name), "v": dict(fields), **rest} if not rest:
            return _made(name, fields, payload, types)
    raise ValueError("the header has a part of no known form")


def _all(nodes: list[Any], payload: _Payload, types: Mapping[str, type]) -> list[Any]:
    """Return the values of nodes, each in the place of its node, so that only one tree takes
    memory."""
    for at, node in enumerate(nodes):
        nodes[at] = _unpack(node, payload, types)
    return nodes


def _made(
    name: str, fields: Mapping[str, Any], payload: _Payload, types: Mapping[str, type]
) -> Any:
    """Return the dataclass of a name and its fields."""
    if name not in types:
        raise CodecError(
            f"these bytes hold a {shortened(repr(name), 80)}; expected one of: "
            f"{', '.join(sorted(types)) or 'plain values'}"
        )
    expected = {f.name for f in dataclasses.fields(types[name])}
    if set(fields) != expected:
        written = shortened(str(sorted(fields)), 1000)
        raise CodecError(
            f"{name} was written with fields {written}, this motley has {sorted(expected)}"
        )
    return types[name](**{key: _unpack(node, payload, types) for key, node in fields.items()})
