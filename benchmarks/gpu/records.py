"""JSON files that are whole at every moment, and the rows of a stage in one of them."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["Rows", "machine", "read", "stage_options", "write"]


def stage_options() -> argparse.Namespace:
    """Return what a stage is called with: its folder ``out``, the ``device``, and whether it is to
    run at a tiny scale (``smoke``)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("device")
    parser.add_argument("--smoke", action="store_true")
    return parser.parse_args()


def read(path: Path) -> dict[str, Any]:
    """Return what a file holds; nothing where there is no file."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, value: dict[str, Any]) -> None:
    """Replace a file by another at once, so that a kill leaves one of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(fresh, path)


def machine(device: str) -> dict[str, Any]:
    """Return what the numbers were taken on."""
    import torch

    found = {
        "device": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    if torch.device(device).type == "cuda":
        at = torch.cuda.get_device_properties(torch.device(device))
        found |= {
            "gpu": at.name,
            "gpu_gib": round(at.total_memory / 2**30, 1),
            "cuda": torch.version.cuda,
        }
    return found


class Rows:
    """The rows of one stage by name, in a file that is written after every row."""

    def __init__(self, path: Path, device: str) -> None:
        self.path = path
        self.found: dict[str, Any] = {**read(path), "machine": machine(device)}
        self.found.setdefault("rows", {})

    def __contains__(self, name: str) -> bool:
        return name in self.found["rows"]

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Keep a row."""
        self.found["rows"][name] = row
        write(self.path, self.found)
        print(f"{name}: {row}", flush=True)
