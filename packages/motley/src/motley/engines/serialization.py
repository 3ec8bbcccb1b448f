"""Objects as blocks of bytes for worker processes: large tensors and arrays as they lie in memory,
the rest pickled behind them.

This is the only module that unpickles. Blocks lie in memory that only a run's own processes share;
none is written to a file, and none is read that a process of the run did not write. Tensors read
from a block are views of it: nothing is copied.
"""

from __future__ import annotations

import io
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pickle import PickleBuffer, Pickler, PicklingError, Unpickler, dumps
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

Block = bytearray | memoryview | mmap.mmap
"""Bytes that can be written and viewed."""

_ALIGNMENT = 64
"""Buffers begin at whole cache lines."""
_SMALL = 512
"""Bytes of a buffer that is copied into the pickled part."""
_HEAD = 8
"""Bytes of the position at which the pickled part begins."""


class _Pickler(Pickler):
    """Pickles a tensor as an array, whose memory protocol 5 hands to the buffer callback; each
    tensor once."""

    @override
    def reducer_override(self, obj: object) -> Any:
        if type(obj) is Tensor and not obj.requires_grad:
            data = obj.detach().cpu().contiguous()
            # reshape would keep the stride 0 of an expanded single element
            flat = data.as_strided((data.numel(),), (1,))
            return _tensor, (flat.view(torch.uint8).numpy(), data.dtype, tuple(data.shape))
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            # a worker could not find it
            raise PicklingError("it is defined in the script that is being run")
        return NotImplemented


def _tensor(
    data: np.ndarray[Any, np.dtype[np.uint8]], dtype: torch.dtype, shape: tuple[int, ...]
) -> Tensor:
    return torch.from_numpy(data).view(dtype).reshape(shape)


def wrap(obj: object, allocate: Callable[[int], Block]) -> Block:
    """Write an object into the block that ``allocate`` returns for its number of bytes.

    Raises
    ------
    PicklingError, AttributeError, TypeError: some part of the object cannot be sent.

    Example
    -------
    >>> block = wrap({"x": torch.arange(3.0)}, bytearray)
    >>> unwrap(block)["x"]
    tensor([0., 1., 2.])
    """
    buffers: list[memoryview] = []

    def stays_pickled(buffer: PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _SMALL:
            buffers.append(raw)
        return raw.nbytes < _SMALL

    stream = io.BytesIO()
    _Pickler(stream, 5, buffer_callback=stays_pickled).dump(obj)
    places = []
    end = _ALIGNMENT
    for raw in buffers:
        places.append((end, end + raw.nbytes))
        end += -(-raw.nbytes // _ALIGNMENT) * _ALIGNMENT
    pickled = dumps(places) + stream.getbuffer()
    block = allocate(end + len(pickled))
    view = memoryview(block)
    view[:_HEAD] = end.to_bytes(_HEAD, "little")
    view[end : end + len(pickled)] = pickled
    for raw, (begin, stop) in zip(buffers, places, strict=True):
        view[begin:stop] = raw
    return block


def unwrap(block: Block) -> Any:
    """Return the object in a block; its large tensors are views of the block and must not be
    written if the block is read-only."""
    view = memoryview(block)
    stream = io.BytesIO(view[int.from_bytes(view[:_HEAD], "little") :])
    places = Unpickler(stream).load()  # noqa: S301 - a process of this run wrote it
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return Unpickler(stream, buffers=[view[begin:stop] for begin, stop in places]).load()  # noqa: S301


def to_memory(obj: object) -> int:
    """Write an object into fresh anonymous memory (``memfd_create``) and return its file
    descriptor.

    The memory has no name in ``/dev/shm`` or elsewhere; it is freed with the last process that
    holds it, however that ends.
    """
    descriptor = os.memfd_create("motley", os.MFD_CLOEXEC)

    def allocate(size: int) -> mmap.mmap:
        os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size)

    try:
        wrap(obj, allocate)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def from_memory(descriptor: int) -> Block:
    """Map the memory behind a descriptor and close the descriptor; what is written into the block
    stays private to this process."""
    try:
        return mmap.mmap(
            descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )
    finally:
        os.close(descriptor)


class _References(_Pickler):
    """Notes the modules of the classes and functions that are pickled by their names."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), 5, buffer_callback=lambda _: None)
        self.modules: set[str] = set()

    @override
    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, type | FunctionType) and obj.__module__:
            self.modules.add(obj.__module__)
        return super().reducer_override(obj)


def unsendable(parts: Mapping[str, object]) -> str | None:
    """Return which of these parts, by name, cannot be sent to a worker, with advice; None when all
    can."""
    for name, part in parts.items():
        references = _References()
        try:
            references.dump(part)
        except (PicklingError, AttributeError, TypeError) as error:
            advice = (
                'define it with "def" or "class" at the top of a module of its own and '
                "import it from there"
            )
            return f"{name} cannot be sent to other processes ({error}); {advice}"
        for module in sorted(references.modules):
            if not _can_be_imported(module):
                return (
                    f"{name} cannot be sent to other processes, which cannot import the module "
                    f"{module!r} by its name; put its folder on sys.path and import it from there"
                )
    return None


def _can_be_imported(module: str) -> bool:
    """Return whether another process with the same ``sys.path`` finds the module, or its
    package."""
    top = module.partition(".")[0]
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    return any(find is not None and find(top, None) is not None for find in finders)


def modules_of(obj: object) -> set[str]:
    """Return the full names of the modules that a worker imports to read an object; of one that
    cannot be sent, those found before."""
    references = _References()
    with suppress(PicklingError, AttributeError, TypeError):
        references.dump(obj)
    return references.modules
