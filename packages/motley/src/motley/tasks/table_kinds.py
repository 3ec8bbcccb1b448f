"""What a file of a table is by its name."""

from __future__ import annotations

from pathlib import Path

KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".jsonl": "json lines",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xls": "old excel",
    ".arff": "arff",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
}
"""Ending of a file's name in small letters -> what it holds. A text may be compressed: ``.csv.gz``,
``.tsv.gz``."""


def table_kind(path: Path) -> str:
    """Return what a file holds by its name, a value of :data:`KINDS`; empty where it is none of
    them. Files that an operating system hides (``._a.csv``) are none.

    >>> table_kind(Path("a.CSV")), table_kind(Path("a.tsv.gz")), table_kind(Path("._a.csv"))
    ('csv', 'csv', '')
    """
    name = path.name.lower()
    if name.startswith("."):
        return ""
    kind = KINDS.get(Path(name.removesuffix(".gz")).suffix, "")
    return "" if name.endswith(".gz") and kind != "csv" else kind


def is_table_file(path: Path) -> bool:
    """Return whether a file's name is that of a table."""
    return table_kind(path) != ""
