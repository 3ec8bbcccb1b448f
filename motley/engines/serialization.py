"""Objects on their way to a worker and back: one block of bytes, tensors and arrays in it as they lie in memory.

The rest of the object, classes and numbers, is pickled behind them. A block lives in memory that only a run's own processes
share; none is ever written to a file, and none is read that a process of the run did not write. Whoever unwraps a block gets
tensors that look into it: nothing is copied.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from pickle import Pickler, PicklingError, Unpickler
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Block", "unsendable", "unwrap", "wrap"]

Block = bytearray | memoryview
"""Bytes that can be written and looked into."""

_LINE = 64
"""Where tensors begin: at whole cache lines."""
_SMALL = 512
"""Bytes of an array that are not worth a place of their own."""
_HEAD = 8
"""Bytes that say where the pickled rest begins."""


class _Packer(Pickler):
    """Notes tensors and arrays instead of pickling them; each once, however often it occurs."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self.found: dict[int, tuple[Any, Tensor]] = {}
        self._kept: list[object] = []  # so that no id comes to mean another object
        self.end = _LINE

    def persistent_id(self, obj: object) -> object:
        """Kind, place, type and shape of a tensor or array; None for everything else."""
        if type(obj) is Tensor and not obj.requires_grad:
            place = self._place(obj, lambda: obj.detach().cpu().contiguous())
            return "tensor", place, obj.dtype, tuple(obj.shape)
        if type(obj) is np.ndarray and obj.nbytes >= _SMALL and obj.dtype.kind in "biuf":
            place = self._place(obj, lambda: _bytes_of(obj))
            return "array", place, obj.dtype.str, obj.shape
        return None

    def _place(self, obj: object, data: Callable[[], Tensor]) -> int:
        if id(obj) not in self.found:
            found = data()
            self.found[id(obj)] = (self.end, found)
            self._kept.append(obj)
            self.end += -(-found.nbytes // _LINE) * _LINE
        place: int = self.found[id(obj)][0]
        return place

    def reducer_override(self, obj: object) -> Any:
        """Refuse what a worker could not find again."""
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise PicklingError("it is defined in the script that is being run")
        return NotImplemented


class _Unpacker(Unpickler):
    def __init__(self, file: io.BytesIO, block: Block) -> None:
        super().__init__(file)
        self._block = block
        self._made: dict[int, Any] = {}

    def persistent_load(self, pid: tuple[str, int, Any, tuple[int, ...]]) -> Any:
        """A tensor or array that looks into the block; the same object wherever it occurred."""
        kind, place, dtype, shape = pid
        if 0 in shape:
            return torch.empty(shape, dtype=dtype) if kind == "tensor" else np.empty(shape, dtype)
        if place not in self._made:
            count = int(np.prod(shape, dtype=np.int64))
            if kind == "tensor":
                self._made[place] = torch.frombuffer(self._block, dtype=dtype, count=count, offset=place).reshape(shape)
            else:
                size = count * np.dtype(dtype).itemsize
                seen = torch.frombuffer(self._block, dtype=torch.uint8, count=size, offset=place)
                self._made[place] = seen.numpy().view(dtype).reshape(shape)
        return self._made[place]


def _bytes_of(array: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())


def wrap(obj: object, allocate: Callable[[int], Block]) -> Block:
    """The object in a block of so many bytes as ``allocate`` is asked for.

    Raises
    ------
    PicklingError, AttributeError, TypeError: something in it cannot be sent.

    Example
    -------
    >>> block = wrap({"x": torch.arange(3.0)}, bytearray)
    >>> unwrap(block)["x"]
    tensor([0., 1., 2.])
    """
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(obj)
    rest = file.getbuffer()
    block = allocate(packer.end + len(rest))
    view = memoryview(block)
    view[:_HEAD] = packer.end.to_bytes(_HEAD, "little")
    view[packer.end : packer.end + len(rest)] = rest
    for place, data in packer.found.values():
        if data.numel():
            torch.frombuffer(block, dtype=torch.uint8, count=data.nbytes, offset=place).copy_(
                data.reshape(-1).view(torch.uint8)
            )
    return block


def unwrap(block: Block) -> Any:
    """What was wrapped; its tensors look into the block and must not be written where it cannot be."""
    view = memoryview(block)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return _Unpacker(io.BytesIO(view[int.from_bytes(view[:_HEAD], "little") :]), block).load()


def unsendable(parts: Mapping[str, object]) -> str | None:
    """The first of these, by name, that cannot be sent to a worker, and the way out; None when all can."""
    for name, part in parts.items():
        try:
            _Packer(io.BytesIO()).dump(part)
        except (PicklingError, AttributeError, TypeError) as error:
            advice = 'define it with "def" or "class" at the top of a module of its own and import it from there'
            return f"{name} cannot be sent to other processes ({error}); {advice}"
    return None
