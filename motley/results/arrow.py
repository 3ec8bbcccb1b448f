"""Columns as a simulation has them (scalars, lists, NumPy arrays) into record batches of a known schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from motley.core.errors import ContractError, suggest

__all__ = ["to_batch"]


def to_batch(table: str, schema: pa.Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """One record batch of ``schema``.

    Scalars (also strings and None) are repeated to the length of the others; columns not given are null; NaN becomes null,
    so that equality of tables and means in SQL do what one expects.

    Raises
    ------
    ContractError: a column the table has not, columns of unequal lengths, or values of another type. These are ours to mend.
    """
    known = schema.names
    for name in columns:
        if name not in known:
            raise ContractError(f"table {table!r} has no column {name!r}{suggest(name, known)}; it has {', '.join(known)}")
    sizes = {name: len(value) for name, value in columns.items() if not _is_scalar(value)}
    if len(set(sizes.values())) > 1:
        raise ContractError(f"the columns given for table {table!r} have unequal lengths: {sizes}")
    rows = next(iter(sizes.values()), 1)
    arrays = [_array(table, field, columns.get(field.name), rows) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str) or (not isinstance(value, Sequence) and np.ndim(value) == 0)


def _array(table: str, field: pa.Field, value: Any, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, field.type)
    try:
        if pa.types.is_list(field.type):
            return _lists(value, field.type)
        if isinstance(value, str):
            return pa.array([value] * rows, field.type)
        if np.ndim(value) == 0:
            value = np.full(rows, value)
        elif isinstance(value, np.ndarray):
            value = value.copy()  # Arrow may keep a view, and the caller may write into its array before the flush
        if pa.types.is_integer(field.type):
            _check_whole(np.asarray(value))
        return pa.array(value, field.type, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError) as error:
        raise ContractError(f"column {table}.{field.name} holds {field.type}, and these values are not: {error}") from error


def _check_whole(values: np.ndarray) -> None:
    """Arrow would cut 1.5 to 1 without a word."""
    if values.dtype.kind == "f" and np.any(np.nan_to_num(values % 1)):
        raise ValueError("not whole numbers")


def _lists(value: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(value, np.ndarray) and value.ndim == 2:  # [n, C], the common case
        offsets = np.arange(len(value) + 1, dtype=np.int32) * np.int32(value.shape[1])
        return pa.ListArray.from_arrays(offsets, pa.array(value.ravel(), kind.value_type))
    return pa.array([None if row is None else np.asarray(row) for row in value], kind)
