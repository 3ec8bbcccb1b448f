"""What a client keeps between rounds, in a file on its own disk; it never leaves the client.

A client does not know whether its upload was accepted. So the file holds two states, the current
one and the one that would follow from the last upload, and the server's next order says which
dispatch of this client was accepted last::

    order.kept    the current state
    -1            the initial state, the same for every client
    ``last``      it stays: the upload after it was late, lost or rejected
    ``next``      it is taken over
    another       lost (a new disk, a restored backup): the client begins anew, and the server is
                  told

A file is written new and then replaces the old one, so a kill in the middle of a write loses
nothing; what such a kill leaves is removed by the next write. A server that goes on from its last
checkpoint names a dispatch of that checkpoint, whose state still lies here. A file that does not
agree with its digest counts as lost."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from motley.algorithms.parts import ClientState
from motley.core.files import disk_error, private_folder, replacing, sync_folder

_LOG = logging.getLogger("motley.flower")
_LAST = "last"
_NEXT = "next"
_DIGEST = "digest"


class ClientStateFile:
    """The states of one client in one run.

    Parameters
    ----------
    folder: of the client.
    run: the deployment.
    first: the initial state; None for methods that keep nothing.
    """

    def __init__(self, folder: Path, run: str, client: int, first: ClientState | None) -> None:
        self.path = folder / run / f"client-{client}.safetensors"
        self.first = first
        self._last: tuple[int, ClientState | None] = (-1, first)

    def take(self, dispatch: int) -> tuple[ClientState | None, bool]:
        """Return the state after ``dispatch``, and whether it should be here and is not."""
        if self.first is None:
            return None, False
        if dispatch < 0:
            self._last = (-1, self.first)
            return self.first, False
        states = self._read()
        forgot = dispatch not in states
        self._last = (dispatch, self.first if forgot else states[dispatch])
        return self._last[1], forgot

    def put(self, dispatch: int, state: ClientState | None) -> None:
        """Write the state that follows from an upload about to be sent, beside the one that
        :meth:`take` returned.

        Raises
        ------
        StoreError: the disk is full or refuses.
        """
        if self.first is None or state is None:
            return
        last_dispatch, last = self._last
        tensors = {f"{_NEXT}.{name}": _own(value) for name, value in state.items()}
        tensors |= {f"{_LAST}.{name}": _own(value) for name, value in (last or {}).items()}
        about = {_LAST: str(last_dispatch), _NEXT: str(dispatch)}
        data = save(tensors, {**about, _DIGEST: _digest(tensors, about)})
        try:
            private_folder(self.path.parent)
            self._remove_leftovers()
            with replacing(self.path, self._fresh(os.getpid()), private=True) as file:
                file.write(data)
            sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from None

    def _fresh(self, process: int | str) -> Path:
        """Return the name under which a process writes, by its number; an order of a killed server
        may be under way, too."""
        return self.path.with_suffix(f".{process}.new")

    def _remove_leftovers(self) -> None:
        """Remove what processes that were killed in the middle of a write left."""
        for left in self.path.parent.glob(self._fresh("*").name):
            try:
                os.kill(int(left.suffixes[-2][1:]), 0)
            except ProcessLookupError:
                left.unlink(missing_ok=True)
            except (OSError, OverflowError, ValueError):  # another user's process, or no number
                continue

    def _read(self) -> dict[int, ClientState]:
        """Return the sound states by dispatch."""
        if not self.path.exists():
            return {}
        try:
            with safe_open(self.path, "pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            if about.pop(_DIGEST, None) != _digest(tensors, about):
                raise ValueError("its digest differs")
            states = {int(about[which]): self._state(tensors, which) for which in (_LAST, _NEXT)}
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            _LOG.warning("%s is damaged (%s); its client begins anew", self.path, error)
            return {}
        return states

    def _state(self, tensors: Mapping[str, Tensor], which: str) -> ClientState:
        state = {name: tensors[f"{which}.{name}"] for name in self.first or {}}
        for name, like in (self.first or {}).items():
            if state[name].shape != like.shape or state[name].dtype != like.dtype:
                raise ValueError(f"{name} has another shape or dtype than its method's")
        return state


def _own(value: Tensor) -> Tensor:
    """Return a tensor that shares its storage with no other, as the file format needs it."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """Return a hash of all that a file holds."""
    named = {name: [str(value.dtype), *value.shape] for name, value in tensors.items()}
    digest = hashlib.blake2b(json.dumps([named, about], sort_keys=True).encode(), digest_size=8)
    for name in sorted(tensors):
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
