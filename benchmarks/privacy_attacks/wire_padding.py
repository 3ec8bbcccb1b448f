"""A client hides a text in bits and fields of its upload that nothing uses; the server reads the
same vector either way.

python benchmarks/privacy_attacks/wire_padding.py
"""

from __future__ import annotations

import json

import torch

from motley.core.errors import CodecError
from motley.transport.packet import Codes, Packet
from motley.transport.wire import _digest, decode, encode

FIELDS = 15 + 2  # where the fields of a part named by one letter begin
TRIES = 512


def sealed(data: bytearray) -> bytes:
    data[-8:] = _digest(bytes(data[:-8]))
    return bytes(data)


def read(data: bytes) -> torch.Tensor | None:
    try:
        return decode(data)["d"].dense()
    except CodecError:
        return None


def main() -> None:
    signs = encode({"d": Packet(1, Codes(torch.ones(1, dtype=torch.int8), 0, torch.ones(1)))})
    numbers = encode({"d": Packet(2, torch.tensor([1.0, 2.0]))})
    sound = [read(signs), read(numbers)]
    read_alike = 0
    for secret in range(1, TRIES // 4):  # seven padding bits behind one sign
        bad = bytearray(signs)
        bad[-9] |= secret
        found = read(sealed(bad))
        read_alike += found is not None and torch.equal(found, sound[0])
    for secret in range(1, TRIES // 4):  # the levels and the group of plain numbers
        for at in (FIELDS + 2, FIELDS + 22, FIELDS + 30):
            bad = bytearray(numbers)
            bad[at] = secret
            found = read(sealed(bad))
            read_alike += found is not None and torch.equal(found, sound[1])
    figure = (
        f"{read_alike} of {4 * (TRIES // 4 - 1)} messages with hidden bits are read as the "
        "same vector"
    )
    print(
        json.dumps(
            {
                "fault": "padding and unused fields of the wire",
                "succeeded": read_alike > 0,
                "figure": figure,
            }
        )
    )


if __name__ == "__main__":
    main()
