"""The shelf: what a client keeps between rounds, in a file on its site's own disk; it never leaves the site.

A site does not know whether its upload was accepted. So the file holds two memories, the one that counts and the one that would follow
from the last upload, and the server's next order says which dispatch of this client was accepted last::

    order.kept    the memory that counts now
    -1            none: the first memory, the same for every client
    ``last``      it stays: the upload after it was late, lost or rejected
    ``next``      it is taken over
    another       lost (a new disk, a restored backup): begun anew, and the server is told

A file is written new and switched, so a kill in the middle of a write loses nothing. A server that goes on from its last state names
what that state knows, which lies here still. A file that is damaged counts as lost.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from motley.algorithms.base import ClientState
from motley.results.stream import disk_error

__all__ = ["ClientStateFile"]

_LOG = logging.getLogger("motley.flower")
_LAST, _NEXT = "last", "next"


class ClientStateFile:
    """The memories of one client in one run.

    Parameters
    ----------
    folder: of the site. run, client: whose. first: what every client keeps at first; None for methods that keep nothing.
    """

    def __init__(self, folder: Path, run: str, client: int, first: ClientState | None) -> None:
        self.path = folder / run / f"client-{client}.safetensors"
        self.first = first
        self._last: tuple[int, ClientState | None] = (-1, first)

    def take(self, kept: int) -> tuple[ClientState | None, bool]:
        """The memory of dispatch ``kept``, and whether it should be here and is not."""
        if self.first is None:
            return None, False
        if kept < 0:
            self._last = (-1, self.first)
            return self.first, False
        found = self._read()
        forgot = kept not in found
        self._last = (kept, self.first if forgot else found[kept])
        return self._last[1], forgot

    def put(self, dispatch: int, memory: ClientState | None) -> None:
        """What follows from an upload that is about to be sent, beside what :meth:`take` gave.

        Raises
        ------
        StoreError: the disk is full or refuses.
        """
        if self.first is None or memory is None:
            return
        kept, last = self._last
        tensors = {f"{_NEXT}.{name}": _own(value) for name, value in memory.items()}
        tensors |= {f"{_LAST}.{name}": _own(value) for name, value in (last or {}).items()}
        fresh = self.path.with_suffix(f".{os.getpid()}.new")  # a letter of a killed server may be worked off beside this one
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, fresh, {_LAST: str(kept), _NEXT: str(dispatch)})
            with fresh.open("rb") as file:
                os.fsync(file.fileno())
            fresh.replace(self.path)
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise disk_error(error if isinstance(error, OSError) else OSError(str(error)), self.path) from None

    def _read(self) -> dict[int, ClientState]:
        """By dispatch, the memories that are sound."""
        if not self.path.exists():
            return {}
        try:
            with safe_open(self.path, "pt") as file:
                about = file.metadata() or {}
                found = {int(about[which]): self._memory(file, which) for which in (_LAST, _NEXT)}
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            _LOG.warning("%s is damaged (%s); its client begins anew", self.path, error)
            return {}
        return found

    def _memory(self, file: safe_open, which: str) -> ClientState:
        memory = {name: file.get_tensor(f"{which}.{name}") for name in self.first or {}}  # type: ignore[no-untyped-call]
        for name, like in (self.first or {}).items():
            if memory[name].shape != like.shape or memory[name].dtype != like.dtype:
                raise ValueError(f"{name} has another shape or dtype than its method's")
        return memory


def _own(value: Tensor) -> Tensor:
    """A tensor that shares its memory with no other, as the file wants it."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)
