"""Public data sets by name, for tasks; :mod:`motley_data.public_data` searches, checks and reads
them."""

from __future__ import annotations

from pathlib import Path

from motley.tasks.task import Dataset
from motley_data.formats.texts import TextClients
from motley_data.public_data import facts, reading

DATASETS = facts.IMAGES
"""Names of the image sets."""


def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Return a data set by name: pixels uint8 ``[n, C, H, W]`` as in the originals, training half
    first.

    Raises
    ------
    DataError: the data is missing or corrupt.
    """
    return reading.load(name, folder)


def load_shakespeare(folder: Path | None = None) -> TextClients:
    """Return Shakespeare's plays by role: from the pack, from LEAF's JSON or from the table of
    windows on the Hugging Face hub.

    Raises
    ------
    DataError: the data is missing or corrupt.
    """
    return reading.load_texts("shakespeare", folder)
