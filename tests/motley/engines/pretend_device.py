"""A device that is pretended on the CPU, for tests of code that is meant for a GPU on machines
without one.

Inside ``with PretendDevice() as device`` torch takes the device ``privateuseone:0``. Its tensors
lie in the CPU's memory and are computed by the CPU, so that numbers are what they are without it,
but their storages carry a mark: a tensor becomes marked where code moves it to the device or makes
it there, and whatever is computed from marked tensors is marked. ``tensor.device`` answers as it
would on a GPU. An operation on a marked and an unmarked tensor raises, as CUDA does; an unmarked
tensor without dimensions may take part, as on CUDA, except where tensors are joined.

What waits for the device is recorded: reading a number (``item``, ``float``, ``bool``, ``tolist``),
copies to the host, copies from the host but those with ``non_blocking = True``, and operations
whose result's shape depends on the numbers (``nonzero``, masks as indices).
:attr:`PretendDevice.steps` has those between the first and the last local step of a phase.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import motley
from motley.engines.chunk import Chunk
from motley.engines.client import Client
from motley.engines.cores import ThreadPool

__all__ = ["DEVICE", "MixedDevices", "PretendDevice", "on_device"]

DEVICE = "privateuseone:0"
LIBRARY = f"{Path(motley.__file__).parent}{os.sep}"
_GET_DEVICE = torch.Tensor.device.__get__  # type: ignore[attr-defined]
_NO_TENSORS = (torch.device, torch.dtype, torch.Size, int, float, bool, type(None))
_JOINED = ("cat", "stack", "gather", "index_select")
"""Operations that take no tensor of the host, not even one without dimensions."""
_WAITS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "is_nonzero",
    "bincount",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "multinomial",
    "linalg_eigh",
    "_linalg_eigh",
    "_linalg_svd",
    "linalg_lstsq",
)


class MixedDevices(AssertionError):
    """Tensors of the device and of the host met in one operation, or a tensor of the device was
    taken for one of the host."""


def on_device(value: Tensor) -> bool:
    """Return whether a tensor lies on the pretended device."""
    return _mark(value) == "device"


def _plain(value: Tensor) -> Tensor:
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value


def _mark(value: Tensor) -> str:
    """Return ``device``, ``host``, or ``unborn``: made by torch itself from nothing, and not yet
    met by any other tensor."""
    mark: str = getattr(_plain(value).untyped_storage(), "pretended", "host")
    return mark


def _set(value: Tensor, mark: str) -> None:
    _plain(value).untyped_storage().pretended = mark


def _tensors(*values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += _tensors(*value)
        elif isinstance(value, dict):
            found += _tensors(*value.values())
    return found


class _Generator(torch.Generator):
    """A generator of the host that says that it is the device's."""

    def __new__(cls, device: Any = "cpu") -> Any:
        found = super().__new__(
            cls, "cpu" if torch.device(device) == torch.device(DEVICE) else device
        )
        found.pretended = torch.device(device)
        return found

    @property
    def device(self) -> torch.device:
        return self.pretended


class _Functions(TorchFunctionMode):
    """Carries out what Python asks of torch, with the pretended device taken out of the
    arguments."""

    def __init__(self, owner: PretendDevice) -> None:
        super().__init__()
        self.owner = owner

    def _made(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Make tensors on the device."""
        generator = kwargs.get("generator")
        if generator is not None and generator.device != torch.device(DEVICE):
            raise MixedDevices(f"{name} on the device with a generator of the host")
        out = func(*args, **{**kwargs, "device": "cpu"})
        if name in ("tensor", "as_tensor"):
            self.owner.wait(f"torch.{name} on the device")
        for value in _tensors(out):
            _set(value, "device")
        return out

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if func == _GET_DEVICE:
            return torch.device(DEVICE) if on_device(first) else func(*args)
        if name in ("numpy", "__array__", "tolist") and first is not None and on_device(first):
            if name != "tolist":
                raise MixedDevices(f"{name} of a tensor on the device")
            self.owner.wait(name)
        if name == "cpu" and first is not None:
            return self.owner.move(first, torch.device("cpu"), lambda: func(*args, **kwargs), False)
        if name == "to" and first is not None:
            return self._to(func, first, args[1:], dict(kwargs))
        wanted = kwargs.get("device") if name != "_parse_to" else None  # the arguments of Module.to
        if wanted is not None and torch.device(wanted) == torch.device(DEVICE):
            return self._made(func, name, args, kwargs)
        out = func(*args, **kwargs)
        if not isinstance(out, _NO_TENSORS):
            for value in _tensors(out):
                if _mark(value) == "unborn":
                    _set(value, "host")
        return out

    def _to(self, func: Any, first: Tensor, args: Any, kwargs: dict[str, Any]) -> Any:
        rest = list(args)
        target = kwargs.pop("device", None)
        if rest and isinstance(rest[0], str | torch.device):
            target = rest.pop(0)
        elif rest and rest[0] is None:
            rest.pop(0)
        elif rest and isinstance(rest[0], Tensor):
            other = rest.pop(0)
            target = torch.device(DEVICE) if on_device(other) else torch.device("cpu")
            kwargs["dtype"] = other.dtype
        if target is None:
            return func(first, *rest, **kwargs)
        waits_not = kwargs.get("non_blocking", False) or (len(rest) > 1 and rest[1] is True)
        target = torch.device(target)
        place = "cpu" if target == torch.device(DEVICE) else target
        return self.owner.move(
            first, target, lambda: func(first, place, *rest, **kwargs), waits_not
        )


class _Operations(TorchDispatchMode):
    """Looks at every operation, those of backward passes too."""

    def __init__(self, owner: PretendDevice) -> None:
        super().__init__()
        self.owner = owner

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: every operation would pass through torch's compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._overloadpacket.__name__
        if name == "copy_" and _mark(args[0]) != _mark(args[1]):
            if (
                args[1].dim()
                and "unborn" not in (_mark(args[0]), _mark(args[1]))
                and not (len(args) > 2 and args[2])
            ):
                self.owner.wait("copy_ between host and device")
            return func(*args, **kwargs)
        given = _tensors(args, kwargs)
        storages = [value.untyped_storage() for value in given]
        marks = [getattr(storage, "pretended", "host") for storage in storages]
        mark = "device" if "device" in marks else "host" if "host" in marks else "unborn"
        if mark == "device":
            if any(
                there == "host" and (value.dim() or name in _JOINED)
                for value, there in zip(given, marks, strict=True)
            ):
                shapes = ", ".join(
                    f"{'device' if there == 'device' else 'host'} {list(value.shape)}"
                    for value, there in zip(given, marks, strict=True)
                )
                raise MixedDevices(f"{func} of {shapes} at {_where()}")
            self._look_for_waits(name, args)
        out = func(*args, **kwargs)
        if mark == "host":
            return out
        if mark == "device":
            for storage in storages:
                if getattr(storage, "pretended", "host") == "unborn":
                    storage.pretended = mark
        for value in _tensors(out):
            made = value.untyped_storage()
            if all(made is not storage for storage in storages):
                made.pretended = mark
        return out

    def _look_for_waits(self, name: str, args: Any) -> None:
        if name in _WAITS:
            self.owner.wait(name)
        elif name.startswith(("index", "_index_put")):
            masked = any(
                value.dtype in (torch.bool, torch.uint8)
                for value in _tensors(args[1])
                if len(args) > 1
            )
            filled = (
                name != "index"
                and len(args) > 2
                and isinstance(args[2], Tensor)
                and args[2].numel() == 1
            )
            if masked and not filled:
                self.owner.wait(name)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage() is b.untyped_storage()


def _where() -> str:
    """Return the three innermost lines of the library that are being run."""
    lines: list[str] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None and len(lines) < 3:
        name = frame.f_code.co_filename
        if name.startswith(LIBRARY):
            lines.append(f"{name.removeprefix(LIBRARY)}:{frame.f_lineno}")
        frame = frame.f_back
    return "; ".join(reversed(lines))


class PretendDevice:
    """The pretended device; see the module's docstring.

    Attributes
    ----------
    waits: what waited for the device, with the lines of the library. steps: those of them between
    local steps. moved: numbers that went to the device.
    """

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.steps: list[str] = []
        self.moved = 0
        self._stepping = 0
        self._kept: list[tuple[Any, str, Any]] = []
        self._modes = (_Functions(self), _Operations(self))

    def wait(self, what: str) -> None:
        """Record something that waits for the device."""
        found = f"{what} at {_where()}"
        self.waits.append(found)
        if self._stepping:
            self.steps.append(found)

    def move(
        self, value: Tensor, target: torch.device, copy: Callable[[], Tensor], waits_not: bool
    ) -> Tensor:
        """Return a copy of a tensor on another device, or what ``copy`` returns where it lies there
        already."""
        to_device = target == torch.device(DEVICE)
        if on_device(value) == to_device:
            return copy()
        if not waits_not or not to_device:
            self.wait("copy to the device" if to_device else "copy to the host")
        out = copy()
        if _same(_plain(out), _plain(value)):
            out = out.clone()
        self.moved += value.numel() if to_device else 0
        _set(out, "device" if to_device else "host")
        return out

    def __enter__(self) -> PretendDevice:
        self._patch(torch, "Generator", _Generator)
        self._patch(torch, "autocast", _autocast)
        self._patch(ThreadPool, "map", _one_by_one)
        self._patch(Client, "_batches", self._watched(Client._batches))
        self._patch(Chunk, "steps", self._watched(Chunk.steps))
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)
        while self._kept:
            setattr(*self._kept.pop())

    def _patch(self, owner: Any, name: str, value: Any) -> None:
        self._kept.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _watched(self, steps: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """Return a generator of local steps during which the device knows that steps are being
        taken."""

        def watched(*args: Any) -> Iterator[Any]:
            inside = False
            try:
                for step in steps(*args):
                    if not inside:
                        inside = True
                        self._stepping = self._stepping + 1
                    yield step
            finally:
                self._stepping -= inside

        return watched


_AUTOCAST = torch.autocast


def _autocast(kind: str, *args: Any, **options: Any) -> Any:
    """Return autocast on the CPU for the device."""
    return _AUTOCAST("cpu" if kind == torch.device(DEVICE).type else kind, *args, **options)


def _one_by_one(pool: Any, work: Any, items: Any, ahead: int | None = None) -> Iterator[Any]:
    """Take the place of :meth:`ThreadPool.map` in this thread, since a mode of torch is one
    thread's."""
    return (pool._run(work, item) for item in items)
