"""Models of the clients' own: what each client's model has besides the shared one, in one file of
the run's folder.

``clients.safetensors`` holds the ids ``clients`` ``[n]`` of the clients that have a model of their
own, and for each entry of the model that differs between clients its values ``model/<name>``
``[n, ...]``; everything else is as in ``model.safetensors``. The id -1 stands for the clients that
are not named, where these do not use the shared model either.

Where clients hold models of different architectures, ``holders`` ``[K]`` has the number of each
client's, and all clients of the architecture a are in ``a/clients`` and, whole, ``a/model/<name>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from torch import Tensor

from motley.core.errors import StoreError
from motley.core.files import disk_error
from motley.results.marks import checked
from motley.rounds.evaluation import Personal
from motley.rounds.loop import RoundLoop
from motley.tasks.flat import FlatModule
from motley.tasks.weight_files import save_weights

FILE: Final = "clients.safetensors"
_OTHERS: Final = -1
LIMIT_BYTES: Final = 2 * 2**30
"""Models of clients that would take more are not stored."""


def save_client_models(loop: RoundLoop, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Save what the models of clients have of their own; nothing where all clients have the shared
    model, or where it would take more than ``limit_bytes``.

    Raises
    ------
    StoreError: the disk is full or refuses.
    """
    personal = loop.personal_models(loop.final_server)
    if personal is None:
        return
    if loop.setting.task.architectures is not None:
        _write(_unlike_models(loop, personal, limit_bytes), folder)
        return
    flat = FlatModule.of(loop.setting.task.model, loop.setting.dtype)
    flat.load(loop.newcomer_model())
    shared = {name: value.clone() for name, value in flat.module.state_dict().items()}
    clients = _with_own_models(loop, personal)
    own = []
    spent = 0
    for model in personal(clients):
        flat.load(model)
        entries = {
            name: value
            for name, value in flat.module.state_dict().items()
            if not torch.equal(value, shared[name])
        }
        spent += sum(value.nbytes for value in entries.values())
        if spent > limit_bytes:
            _write({}, folder)
            return
        own.append({name: value.clone() for name, value in entries.items()})
    names = [name for name in shared if any(name in entries for entries in own)]
    tensors = {
        f"model/{name}": torch.stack([entries.get(name, shared[name]) for entries in own])
        for name in names
    }
    _write({"clients": torch.tensor(clients, dtype=torch.int64), **tensors}, folder)


def _write(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the file; without tensors, remove what the same run wrote when it was shorter."""
    try:
        if tensors:
            save_weights(tensors, folder / FILE)
        else:
            (folder / FILE).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, folder / FILE) from None


def _unlike_models(loop: RoundLoop, personal: Personal, limit_bytes: int) -> dict[str, Tensor]:
    """Return the models of all clients by architecture; nothing where they would take more."""
    setting = loop.setting
    holders = [setting.kind_of(k) for k in range(len(loop.federation))]
    tensors = {"holders": torch.tensor(holders, dtype=torch.int64)}
    spent = 0
    for number, kind in enumerate(setting.kinds):
        clients = [k for k, held in enumerate(holders) if held == number]
        if not clients:
            continue
        flat = FlatModule.of(kind.task.model, kind.dtype)
        entries = []
        for model in personal(clients):
            flat.load(model)
            entries.append({name: v.clone() for name, v in flat.module.state_dict().items()})
            spent += sum(value.nbytes for value in entries[-1].values())
            if spent > limit_bytes:
                return {}
        tensors[f"{number}/clients"] = torch.tensor(clients, dtype=torch.int64)
        for name in entries[0]:
            tensors[f"{number}/model/{name}"] = torch.stack([entry[name] for entry in entries])
    return tensors


def _with_own_models(loop: RoundLoop, personal: Personal) -> list[int]:
    """Return the clients whose models are stored: all of them where they are fine-tuned, chosen or
    made before an examination, else those that took part."""
    rule = loop.algorithm.local
    everybody = rule.choice is not None or rule.measures_before_examination
    if loop.algorithm.tuning is not None or everybody:
        return list(range(len(loop.federation)))
    (newest,), first = personal([_OTHERS]), loop.newcomer_model()
    same = all(
        torch.equal(getattr(newest, name), getattr(first, name))
        for name in ("x", "buffers", "counters")
    )
    return [*sorted(loop.state.clients.client_states), *([] if same else [_OTHERS])]


def client_entries(folder: Path, record: Mapping[str, Any], client: int) -> dict[str, Tensor]:
    """Return what a client's model has of its own; empty for a client with the shared model.

    Parameters
    ----------
    record: of the run, which says what the file must be.

    Raises
    ------
    StoreError: the file is not there. DataError: it was changed.
    """
    path = folder / FILE
    if not path.is_file():
        raise StoreError(
            f"{path} is not there: the models of clients are written at the end of a simulation, "
            f"if they take at most {LIMIT_BYTES // 2**30} GiB"
        )
    with safe_open(checked(folder, record, FILE), "pt") as file:
        prefix = ""
        if "holders" in file.keys():  # noqa: SIM118 - not a mapping
            prefix = f"{int(file.get_tensor('holders')[client])}/"
        ids = file.get_tensor(f"{prefix}clients").tolist()
        stored = client if client in ids else _OTHERS
        if stored not in ids:
            return {}
        at = ids.index(stored)
        own = f"{prefix}model/"
        names = [name for name in file.keys() if name.startswith(own)]  # noqa: SIM118
        return {name.removeprefix(own): file.get_slice(name)[at] for name in names}


def holder_of(folder: Path, record: Mapping[str, Any], client: int) -> int:
    """Return the number of the architecture of a client's model, of those that the run lists;
    parameters and errors as of :func:`client_entries`."""
    if not (folder / FILE).is_file():
        client_entries(folder, record, client)  # refuses
    with safe_open(checked(folder, record, FILE), "pt") as file:
        return int(file.get_tensor("holders")[client])
