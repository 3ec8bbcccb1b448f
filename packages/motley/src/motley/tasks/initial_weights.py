"""Initial weights from a file: read, checked against a module, and put into every module that a
task makes.

>>> from torch import nn
>>> check(nn.Linear(2, 1), {"weight": torch.zeros(1, 2)}, ["*"], strict=True, source="x.pt")
Traceback (most recent call last):
motley.core.errors.ModelError: x.pt does not fit the Linear: it lacks bias; write \
init = { path = "x.pt", strict = false } to load what fits, or only = ["weight"]
"""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from motley.core.adapters import MERGED
from motley.core.errors import DataError, ModelError, suggest
from motley.core.files import is_file, is_folder
from motley.core.fingerprint import fingerprint
from motley.tasks.flat import construct
from motley.tasks.task import Task
from motley.tasks.weight_files import read_weights

SHOWN = 5
"""Names in a message."""

_CLOCK_NS = 2_000_000_000
"""File systems write times of change in steps of up to two seconds: a younger file is read each
time."""


def file_of(path: str | Path) -> Path:
    """Return the file of weights at a path: the path itself, or the final model of the run whose
    folder it is.

    Raises
    ------
    DataError: there is no such file, or the run is not finished.
    """
    place = Path(path)
    if is_folder(place):
        file = place / "model.safetensors"
        if not is_file(file):
            if (place / "run.json").is_file():
                finished = "is not finished"
            else:
                finished = "is not the folder of a run"
            raise DataError(
                f"{place} {finished} and has no model.safetensors; expected a run's folder, a "
                ".safetensors or a .pt file"
            )
        return file
    if not is_file(place):
        near = suggest(
            place.name,
            [p.name for p in place.parent.iterdir()] if is_folder(place.parent) else [],
        )
        raise DataError(
            f"there is no file {str(place)!r}{near}; expected a run's folder, a .safetensors or a "
            ".pt file"
        )
    return place


def read(path: str | Path, only: Sequence[str] = ("*",)) -> dict[str, Tensor]:
    """Return the tensors of a file by name, on the CPU.

    Parameters
    ----------
    path: a run's folder, a ``.safetensors`` file, or a ``.pt`` file of
    ``torch.save(module.state_dict(), ...)``, which is read without running code from it.
    only: patterns of names; the others are left out.

    Raises
    ------
    DataError: no such file, not weights alone, or a pattern that no name matches.
    """
    file = file_of(path)
    tensors = _tensors(file)
    for pattern in only:
        if not fnmatch.filter(tensors, pattern):
            raise DataError(f"{file} has no name like {pattern!r}; it has {_some(list(tensors))}")
    return {name: value for name, value in tensors.items() if _matches(name, only)}


def _tensors(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            content = read_weights(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except Exception as error:  # whatever damaged files make their readers raise
        reason = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"{file} is not a file of weights alone ({reason}); save them by "
            "torch.save(module.state_dict(), ...) or safetensors"
        ) from None
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) for value in content.values()
    ):
        if isinstance(content, Mapping):
            held = f"keys {_some([str(key) for key in content])}"
        else:
            held = f"a {type(content).__name__}"
        raise DataError(
            f"{file} holds {held}; expected the tensors of module.state_dict() and nothing else"
        )
    return {str(name): value.detach() for name, value in content.items()}


def digest(path: str | Path, only: Sequence[str] = ("*",)) -> str:
    """Return a hash of the names, types and values of the weights that are read, the same for
    either kind of file.

    Raises
    ------
    DataError: as for :func:`read`.
    """
    stat = file_of(path).stat()
    # another change may bear the same time
    fresh = abs(time.time_ns() - stat.st_mtime_ns) < _CLOCK_NS
    return (_digest.__wrapped__ if fresh else _digest)(
        str(path), tuple(only), stat.st_mtime_ns, stat.st_size
    )


@lru_cache(maxsize=64)
def _digest(path: str, only: tuple[str, ...], changed_ns: int, size: int) -> str:
    """Return the digest; read once as long as time of change and size stay."""
    return fingerprint(
        sorted((name, value.contiguous()) for name, value in read(path, only).items())
    )


def check(
    module: nn.Module, weights: Mapping[str, Tensor], only: Sequence[str], strict: bool, source: str
) -> str:
    """Check weights against a module and return what is loaded, in words.

    Parameters
    ----------
    only: patterns of the names that are meant.
    strict: refuse names that the module or the file lacks.
    source: the file, for messages.

    Raises
    ------
    ModelError: names that are missing or too many, other shapes, or nothing that fits.
    """
    own = module.state_dict()
    kind = type(module).__name__
    fitting = [name for name in weights if name in own]
    missing = [name for name in own if name not in weights and _matches(name, only)]
    extra = [name for name in weights if name not in own]
    lists = {"it lacks": missing, "it has": extra}
    if any(name.rpartition(".")[2] == MERGED for name in extra):
        raise ModelError(
            f"{source} has products that flora merged, which no init loads; write the whole model, "
            'motley.load(RUN).module().save_pretrained("FOLDER"), and begin with it, task.base = '
            '"FOLDER"'
        )
    if strict and (missing or extra):
        faults = " and ".join(f"{verb} {_some(names)}" for verb, names in lists.items() if names)
        if fitting:
            hint = f", or only = [{', '.join(f'{name!r}' for name in fitting[:1])}]".replace(
                "'", '"'
            )
        else:
            hint = ""
        raise ModelError(
            f'{source} does not fit the {kind}: {faults}; write init = {{ path = "{source}", '
            f"strict = false }} to load what fits{hint}"
        )
    if not fitting:
        raise ModelError(
            f"{source} has no name of the {kind}; the file has {_some(list(weights))}, the module "
            f"{_some(list(own))}"
        )
    for name in fitting:
        if weights[name].shape != own[name].shape:
            shape, want = (list(value.shape) for value in (weights[name], own[name]))
            raise ModelError(
                f"{source} has {name} of shape {shape}, the {kind} of {want}; leave it out by only "
                "= [...], patterns of the names to load"
            )
    fresh = [name for name in own if name not in weights]
    drawn = f"; drawn as usual: {_some(fresh)}" if fresh else ""
    unused = f"; not used: {_some(extra)}" if extra else ""
    return f"{len(fitting)} of {len(own)} entries of the model from {source}{drawn}{unused}"


def start_from(
    task: Task, path: str | Path, only: Sequence[str] = ("*",), strict: bool = True
) -> Task:
    """Return the task with modules that begin with the weights of a file, frozen ones and buffers
    among them; a note says which.

    Raises
    ------
    DataError, ModelError: as for :func:`read` and :func:`check`.
    """
    weights = read(path, only)
    module = construct(task.model, 0)
    note = check(module, weights, only, strict, source=str(path))
    fitting = {name: weights[name] for name in module.state_dict().keys() & weights.keys()}
    federation = dataclasses.replace(
        task.federation, notes={**task.federation.notes, "initial weights": note}
    )
    return dataclasses.replace(
        task, model=partial(_filled, task.model, fitting), federation=federation
    )


def _filled(model: Callable[[], nn.Module], weights: Mapping[str, Tensor]) -> nn.Module:
    """Return a fresh module with these weights in it."""
    module = model()
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if name in weights:
                value.copy_(weights[name])
    return module


def _matches(name: str, only: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in only)


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(sorted(names)[:SHOWN]) + more
