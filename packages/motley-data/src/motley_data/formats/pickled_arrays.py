"""Pickles that hold nothing but numpy arrays, dictionaries, lists, strings and numbers, read
through an allow-list.

Such pickles name three things of numpy. None of numpy is called for them: harmless stand-ins of
this module take the array's shape, type and bytes. A pickle that names anything else is refused
before that is imported.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

_NUMBERS = frozenset(("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"))
"""Types of numbers that are read, as numpy's pickles name them."""


class _Dtype:
    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        """Take ``(version, byte order, ...)``."""
        order = state[1]
        self.order = order.decode() if isinstance(order, bytes) else order


class PickledArray:
    """The array of a pickle, of which nothing is made yet."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Take ``(version, shape, dtype, fortran order, bytes or list of objects)``."""
        self.state = state

    def numbers(self) -> NDArray[Any]:
        """Return the numbers in the array's shape. Raises ValueError for an array of anything
        else."""
        _, shape, dtype, fortran, raw = self.state
        if (
            not isinstance(dtype, _Dtype)
            or dtype.name not in _NUMBERS
            or not isinstance(raw, bytes)
        ):
            raise ValueError("its array is not of numbers")
        kind = np.dtype(dtype.order.strip("|=") + dtype.name)
        plain = np.dtype(dtype.name)
        return np.frombuffer(raw, kind).reshape(shape, order="F" if fortran else "C").astype(plain)

    def only_object(self) -> Any:
        """Return the object of an array of one object. Raises ValueError for any other."""
        _, _, dtype, _, held = self.state
        single = isinstance(held, list) and len(held) == 1
        if not isinstance(dtype, _Dtype) or dtype.name != "O8" or not single:
            raise ValueError("it holds no array of one object")
        return held[0]


class _NoCall:
    """Stand-in of a class that is only named."""


def _array(*_: Any) -> PickledArray:
    return PickledArray()


def _encoded(text: str, _: str) -> bytes:
    return text.encode("latin1")


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy", "ndarray"): _NoCall,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encoded,
}


class _AllowList(pickle.Unpickler):
    @override
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise ValueError(f"it names {module}.{name}, which is never loaded")
        return _ADMITTED[module, name]


def load(content: bytes, encoding: str = "ASCII") -> Any:
    """Return what a pickle holds, its arrays as :class:`PickledArray`.

    Parameters
    ----------
    encoding: of strings that Python 2 wrote, as of ``pickle.load``.

    Raises
    ------
    ValueError: it names anything but arrays. A damaged pickle raises nearly any other error.
    """
    return _AllowList(io.BytesIO(content), encoding=encoding).load()
