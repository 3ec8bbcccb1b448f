"""Models of the clients' own: what each client's model has besides the shared one, in one file of the run's folder.

``clients.safetensors`` holds the ids ``clients`` ``[n]`` of the clients that have a model of their own, and for each entry of the
model that differs between clients its values ``model/<name>`` ``[n, ...]``; everything else is as in ``model.safetensors``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from motley.core.errors import StoreError
from motley.core.files import replacing
from motley.results.stream import disk_error
from motley.rounds.evaluation import personal_models
from motley.rounds.loop import RoundLoop
from motley.tasks.flat import FlatModule

__all__ = ["FILE", "LIMIT_BYTES", "client_entries", "save_client_models"]

FILE: Final = "clients.safetensors"
LIMIT_BYTES: Final = 2 * 2**30
"""Models of clients that would take more are not stored."""


def save_client_models(loop: RoundLoop, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Save what the models of clients have of their own; nothing where all clients have the shared model, or where it would take more
    than ``limit_bytes``.

    Raises
    ------
    StoreError: the disk is full or refuses.
    """
    states = loop.state.clients.client_states
    personal = personal_models(loop.algorithm.correction, loop.final_server, states)
    if personal is None or not loop.backend.holds_client_states:
        return
    flat = FlatModule.of(loop.setting.task.model, loop.setting.dtype)
    flat.load(loop.newcomer_model())
    shared = {name: value.clone() for name, value in flat.module.state_dict().items()}
    clients, own, spent = sorted(states), [], 0
    for client in clients:
        flat.load(personal(client))
        entries = {name: value for name, value in flat.module.state_dict().items() if not torch.equal(value, shared[name])}
        spent += sum(value.nbytes for value in entries.values())
        if spent > limit_bytes:
            (folder / FILE).unlink(missing_ok=True)  # of the same run when it was shorter
            return
        own.append({name: value.clone() for name, value in entries.items()})
    names = [name for name in shared if any(name in entries for entries in own)]
    tensors = {f"model/{name}": torch.stack([entries.get(name, shared[name]) for entries in own]) for name in names}
    try:
        with replacing(folder / FILE) as file:
            file.write(serialize({"clients": torch.tensor(clients, dtype=torch.int64), **tensors}))
    except OSError as error:
        raise disk_error(error, folder / FILE) from None


def client_entries(folder: Path, client: int) -> dict[str, Tensor]:
    """Return what a client's model has of its own; empty for a client that never took part.

    Raises
    ------
    StoreError: the file is not there.
    """
    path = folder / FILE
    if not path.is_file():
        raise StoreError(
            f"{path} is not there: the models of clients are written at the end of a simulation, if they take at most "
            f"{LIMIT_BYTES // 2**30} GiB"
        )
    with safe_open(path, "pt") as file:
        at = (file.get_tensor("clients") == client).nonzero()
        if not len(at):
            return {}
        names = [name for name in file.keys() if name != "clients"]  # noqa: SIM118 - not a mapping
        return {name.removeprefix("model/"): file.get_slice(name)[int(at[0])] for name in names}
