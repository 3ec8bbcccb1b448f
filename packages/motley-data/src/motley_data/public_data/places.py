"""The folders that may hold public data, in the order in which they are searched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from motley.core.files import user_path

CACHE = Path("~/.cache/motley")
"""Where downloads go unless ``MOTLEY_DATA`` names a folder."""


def places(folder: Path | str | None = None) -> Iterator[Path]:
    """Yield the folders that may hold data, in search order: ``folder``, ``MOTLEY_DATA``, ``data``
    and ``../shared/data`` beside the current folder and beside the checkout, ``~/.cache/motley``,
    ``TORCHVISION_DATA``, and Keras' folder."""
    if folder is not None:
        yield user_path(folder)
    if os.environ.get("MOTLEY_DATA"):
        yield user_path(os.environ["MOTLEY_DATA"])
    for base in (Path.cwd(), *Path(__file__).resolve().parents[5:6]):
        yield base / "data"
        yield base.parent / "shared" / "data"
    yield CACHE.expanduser()
    if os.environ.get("TORCHVISION_DATA"):
        yield user_path(os.environ["TORCHVISION_DATA"])
    yield Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "datasets"


def hubs() -> Iterator[Path]:
    """Yield the folder of the Hugging Face cache: ``HF_HUB_CACHE``, ``HF_HOME/hub`` or
    ``~/.cache/huggingface/hub``."""
    home = Path(
        os.environ.get("HF_HOME")
        or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    )
    yield Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
