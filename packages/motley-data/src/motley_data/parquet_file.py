"""Parquet files, read unless they unpack to far more than they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motley.core.errors import DataError
from motley.core.files import check_file

_SUSPICIOUS = 2**30
_MOST_PACKED = 1000
"""A file that unpacks to more bytes than the first and more than so many times its own size is
refused."""


def read_parquet(path: Path) -> Any:
    """Return a Parquet file as an Arrow table, unless it takes far more memory than it has bytes.

    Raises
    ------
    DataError: it would take more than 1 GiB and more than 1,000 times its size. ArrowException,
    OSError: it cannot be read.
    """
    from pyarrow import parquet

    check_file(path)
    metadata = parquet.read_metadata(path)
    size = path.stat().st_size
    written = sum(
        metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
    )
    unpacked = max(8 * metadata.num_rows * metadata.num_columns, written)
    if unpacked > max(_SUSPICIOUS, _MOST_PACKED * size):
        raise DataError(
            f"{path} of {size:,} bytes unpacks to about {unpacked:,}, more than "
            f"{_SUSPICIOUS / 2**30:.0f} GiB and {_MOST_PACKED:,} times its size; if it is sound, "
            "write it with compression='none' and use_dictionary=False, and it is read"
        )
    return parquet.read_table(path)
