"""Checksums: they find bytes that were lost or changed, ten gigabytes of them in a second.

They are XXH3 with 128 bits. Anybody can make other bytes of the same checksum, as anybody can
compute the checksum of other bytes: none of them says who wrote something.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from motley.core.side_by_side import side_by_side

Checksum = xxhash.xxh3_128


def checksum(data: bytes | memoryview = b"") -> Checksum:
    """Return the checksum of bytes, to which more can be added by ``update``."""
    return Checksum(data)


def checksums(blocks: Sequence[bytes | memoryview]) -> list[bytes]:
    """Return the checksum of each block, 16 bytes, which threads take side by side."""
    return list(side_by_side(lambda block: Checksum(block).digest(), blocks))
