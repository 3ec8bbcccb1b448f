"""Bytes of a saved selector with 100,000 lists inside each other end the program that reads them.

python benchmarks/privacy_attacks/nesting.py
"""

from __future__ import annotations

import hashlib
import json
import struct

from motley.core import codec
from motley.core.errors import MotleyError
from motley.selectors.oort import Oort
from motley.selectors.selector import Selector


def sealed(header: bytes) -> bytes:
    raw = struct.pack("<4sHI", b"MTLY", 1, len(header)) + header
    return raw + hashlib.blake2b(raw, digest_size=16).digest()


def main() -> None:
    depth = 100_000
    deep = sealed(b"[" * depth)
    saved = codec.decode(Selector(Oort(), 1, 10).to_bytes())
    endings = []
    for data in (
        deep,
        codec.encode({**saved, "state": deep}),
        codec.encode({**saved, "options": 1.5}),
    ):
        try:
            Selector.from_bytes(data)
            endings.append("read")
        except MotleyError as error:
            endings.append(f"refused ({type(error).__name__})")
        except Exception as error:  # whatever a caller does not expect
            endings.append(type(error).__name__)
    broken = [one for one in endings if one.endswith("Error")]
    figure = f"{len(broken)} of 3 hostile selectors end the program: {', '.join(endings)}"
    print(
        json.dumps(
            {
                "fault": "deep nesting in Selector.from_bytes",
                "succeeded": bool(broken),
                "figure": figure,
            }
        )
    )


if __name__ == "__main__":
    main()
