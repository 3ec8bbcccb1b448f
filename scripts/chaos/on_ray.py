"""The commands of ``scripts/test-ray-chaos``."""

from __future__ import annotations

import sys

from chaos import ray_campaign, ray_situations, ray_traffic

__all__: list[str] = []

COMMANDS = {
    "campaign": ray_campaign.main,
    "situations": ray_situations.main,
    "traffic": ray_traffic.main,
}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        COMMANDS[sys.argv[1]](sys.argv[2:])
    else:
        sys.exit(f"expected one of: {', '.join(COMMANDS)}")
