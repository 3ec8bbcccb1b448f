"""Binary encoding of frozen dataclasses and arrays: versioned, with a checksum, without pickle.

The bytes: ``b"MTLY"``, a format number (u16), the length of a JSON header (u32), the header, the arrays' raw bytes, and
a 16-byte blake2b digest of everything before it, so that truncated or changed files are detected.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from motley.core.errors import CodecError

__all__ = ["FORMAT", "MAGIC", "decode", "encode", "pieces"]

FORMAT = 1
MAGIC = b"MTLY"
_HEAD = struct.Struct("<4sHI")


def encode(value: object) -> bytes:
    """Return the bytes of a value: None, numbers, str, bytes, tuple, list, dict (str or int keys), arrays, dataclasses of these.

    Raises
    ------
    CodecError: a value of any other type.
    """
    return b"".join(pieces(value))


def pieces(value: object) -> Iterator[bytes | memoryview]:
    """Yield the bytes of :func:`encode` in pieces, arrays without a copy."""
    blobs = _Blobs()
    body = json.dumps(_pack(value, blobs), separators=(",", ":")).encode()
    digest = hashlib.blake2b(digest_size=16)
    for piece in (_HEAD.pack(MAGIC, FORMAT, len(body)), body, *blobs.parts):
        digest.update(piece)
        yield piece
    yield digest.digest()


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
    types: every dataclass that may occur; no other type is made. header: largest size in bytes of everything but arrays, which
    takes many times its length in memory; None: no limit.

    Raises
    ------
    CodecError: truncated or changed bytes, another format, or a type that was not named.
    """
    view = memoryview(data)
    raw, digest = view[:-16], view[-16:]
    if len(raw) < _HEAD.size or raw[:4] != MAGIC:
        raise CodecError("these bytes were not written by motley")
    if hashlib.blake2b(raw, digest_size=16).digest() != digest:
        raise CodecError(f"these {len(data)} bytes are truncated or changed (checksum differs)")
    _, version, length = _HEAD.unpack(raw[: _HEAD.size])
    if version != FORMAT:
        raise CodecError(f"got format {version}, this motley reads format {FORMAT}")
    if header is not None and length > header:
        raise CodecError(f"got a header of {length} bytes; expected at most {header}")
    try:
        body = json.loads(bytes(raw[_HEAD.size : _HEAD.size + length]))
        return _unpack(body, raw[_HEAD.size + length :], {t.__qualname__: t for t in types})
    except (KeyError, IndexError, TypeError, ValueError) as error:  # a valid checksum around a body that encode never writes
        raise CodecError(f"these {len(data)} bytes cannot be read: {error}") from error


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
        return {"a": blobs.add(plain.reshape(-1).view(np.uint8).data), "t": plain.dtype.str, "s": list(value.shape)}
    if isinstance(value, tuple | list):
        return {"l" if isinstance(value, list) else "u": [_pack(item, blobs) for item in value]}
    if isinstance(value, Mapping):
        return {"d": [[_pack(key, blobs), _pack(item, blobs)] for key, item in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {f.name: _pack(getattr(value, f.name), blobs) for f in dataclasses.fields(value)}
        return {"c": type(value).__qualname__, "v": items}
    raise CodecError(f"cannot encode a {type(value).__name__}")


def _unpack(node: Any, data: memoryview, types: Mapping[str, type]) -> Any:
    if not isinstance(node, dict):
        return node
    if "f" in node:
        return float(node["f"])
    if "b" in node:
        return bytes(data[node["b"][0] : sum(node["b"])])
    if "a" in node:
        raw = data[node["a"][0] : sum(node["a"])]
        return np.frombuffer(raw, dtype=np.dtype(node["t"])).reshape(node["s"]).copy()
    if "l" in node:
        return [_unpack(item, data, types) for item in node["l"]]
    if "u" in node:
        return tuple(_unpack(item, data, types) for item in node["u"])
    if "d" in node:
        return {_unpack(key, data, types): _unpack(item, data, types) for key, item in node["d"]}
    name = node["c"]
    if name not in types:
        raise CodecError(f"these bytes hold a {name!r}; expected one of: {', '.join(sorted(types)) or 'plain values'}")
    known = {f.name for f in dataclasses.fields(types[name])}
    if set(node["v"]) != known:
        raise CodecError(f"{name} was written with fields {sorted(node['v'])}, this motley has {sorted(known)}")
    return types[name](**{key: _unpack(item, data, types) for key, item in node["v"].items()})
