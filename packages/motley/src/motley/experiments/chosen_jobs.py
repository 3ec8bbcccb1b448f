"""How many runs of a comparison go side by side where nobody says it.

A run whose engine fills one core leaves the others idle, so that several go on at a time, each in a
process of its own; a run that shares its products among all cores keeps them. Every engine divides
its work by the number of all cores and computes such a run on one torch thread, so that the results
have the same bits either way. Runs of engines that train many clients at once on a GPU go on in one
process (:mod:`.joint_runs`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from motley.core.usable_cores import cores
from motley.engines.local import on_one_thread
from motley.engines.samples import device_bytes
from motley.engines.serialization import unsendable
from motley.experiments.shared_samples import shared_samples
from motley.rounds.client_state import free_memory
from motley.rounds.run_config import RunConfig
from motley.tasks.flat import construct
from motley.tasks.kept_data import kept_bytes
from motley.tasks.transfer import free_bytes

WORTH_S = 8.0
WORTH_FORKED_S = 1.0
"""Seconds that all runs take by :attr:`RunSize.seconds`, below which they stay in one process: a
worker takes two to three seconds to start, or one that is forked a tenth of a second."""
ROUND_S = 4e-3
STEP_S = 3e-5
PRODUCTS_PER_S = 2e10
"""A guess at one core, which decides nothing but whether starting workers is worth it: of a round,
of a client's step, and multiplications with additions a second."""
MOST_JOINT = 32
"""Runs that train together at most."""
_JOINT = ("batched", "vmap")
_IN_ONE_PROCESS = ("batched", "sequential", "threads", "vmap")


class RunSize(NamedTuple):
    """What a run needs.

    Parameters
    ----------
    one_core: whether its engine computes on one core of this machine.
    seconds: that it takes, roughly.
    samples: GPU -> bytes that its samples take there, where its engine trains clients of several
    runs together; empty elsewhere.
    """

    one_core: bool
    seconds: float
    samples: Mapping[str, int] = MappingProxyType({})


def size_of(plan: RunConfig, engine: str) -> RunSize:
    """Return what a run needs, by its plan and the name of its engine."""
    setting = plan.setting
    one_core = (
        engine in _IN_ONE_PROCESS
        and setting.device == "cpu"
        and on_one_thread(construct(setting.task.model, 0), setting.task.layout.size)
    )
    held = float(np.mean(setting.task.federation.seen))
    steps = setting.work.steps or (setting.work.epochs or 1) * -(-held // setting.work.batch_size)
    samples = min(setting.work.batch_size, held)
    step_s = STEP_S + 3 * samples * setting.task.layout.size / PRODUCTS_PER_S
    rounds = plan.stop.rounds or np.inf
    joins = engine in _JOINT and torch.device(setting.device).type == "cuda"
    taken = {setting.device: device_bytes(setting.task, setting.dtype)} if joins else {}
    return RunSize(one_core, rounds * (ROUND_S + plan.cohort * steps * step_s), taken)


def joint_runs(sizes: Sequence[RunSize | None]) -> int:
    """Return how many runs go on at a time in one process where two or more compute on a GPU with
    an engine that trains clients of several runs together, as far as its memory reaches; else 1."""
    joining = [size.samples for size in sizes if size is not None and size.samples]
    if len(joining) < 2:
        return 1
    fit = [
        (free_bytes(device) or 0) // (2 * taken)
        for samples in joining
        for device, taken in samples.items()
    ]
    return max(1, min(len(sizes), MOST_JOINT, *fit))


def chosen_jobs(
    sizes: Sequence[RunSize | None], calls: Sequence[Mapping[str, Any]], worth_s: float = WORTH_S
) -> int:
    """Return how many runs go on at a time: one for every core where each fills one, as far as
    memory reaches, and where that saves more than it costs; else 1.

    Parameters
    ----------
    sizes: of the runs that are not finished; None where it is not known.
    calls: what workers would be sent, which not every object of a user's can be.
    worth_s: seconds of all runs from which on workers are worth their start.
    """
    jobs = min(cores(), len(sizes), _fit_in_memory())
    if jobs < 2 or not all(size is not None and size.one_core for size in sizes):
        return 1
    seconds = sum(size.seconds for size in sizes if size is not None)
    if seconds < worth_s or any(map(unsendable, calls)):
        return 1
    return jobs


def _fit_in_memory() -> int:
    """Return how many processes as large as this one, which has read the samples, fit into twice
    the memory that they take now, less the samples that all share; as many as there may be where it
    is not known."""
    free = free_memory()
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        if free is not None:
            taken = pages * os.sysconf("SC_PAGE_SIZE")
            shared = 0 if shared_samples() is None else kept_bytes()
            # samples that are mapped already are no longer among what is taken
            return int(free // (taken + max(0, taken - shared)))
    return cores()
