"""The phases of clients that train together: one chunk after the other, each of one phase of all of
them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

from motley.algorithms.parts import RECEIVED, JobContext, LocalRule, Phase, Tensors
from motley.core.errors import ContractError
from motley.engines.chunk import Executor, LossSums, PhaseJob
from motley.engines.client import context, finish, phase_plan, phases_for, tuning_context
from motley.engines.engine import AdaptInputs, Job, JobInputs, Purpose, Setting, TrainResult
from motley.engines.samples import Samples
from motley.tasks.task import ModelState

SCHEDULE_PLACES = 4_000_000
"""Places of a chunk's batch schedule at most, padding included: about 100 MB while it is made."""


class LocalRun(NamedTuple):
    """One client's local work: its job, the model from which it starts, the context of the job, its
    phases, and the tensors that the loss prepared for its samples."""

    job: Job
    start: ModelState
    context: JobContext
    phases: tuple[Phase, ...]
    extra: Tensors = MappingProxyType({})

    @classmethod
    def training(cls, setting: Setting, job: Job, inputs: JobInputs) -> LocalRun:
        """Return the run of a job of training."""
        return cls(job, *context(setting, job, inputs))

    @classmethod
    def tuning(cls, setting: Setting, job: Job, model: ModelState, purpose: Purpose) -> LocalRun:
        """Return the run of a job before an examination, of a client whose state is of no use for
        it."""
        ctx = tuning_context(setting, job, AdaptInputs(model))
        return cls(job, model, ctx, phases_for(purpose, setting.algorithm.local, ctx))


def refuses_phases(rule: LocalRule, phases: Sequence[Phase]) -> str | None:
    """Return why phases cannot be computed for many clients at once, or None if they can."""
    if any(phase.direction is not None for phase in phases):
        reason = "takes steps in directions of its own"
    elif any(
        phase.beside or phase.joint or phase.batches > 1 or phase.values or callable(phase.start)
        for phase in phases
    ):
        reason = "has phases that depend on one another"
    elif any(phase.lr is not None or phase.objective is not None for phase in phases):
        reason = "has phases of a learning rate or a loss of their own"
    else:
        return None
    return f"local work under {type(rule).__name__} {reason}, which sequential and threads compute"


def bounded(group: list[int], steps: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield a chunk of clients in halves of halves until each part's batch schedule fits in memory.

    Parameters
    ----------
    group: indices into ``steps``, longest first.
    batch_size: samples of a full batch.
    """
    places = steps[group[0]] * len(group) * batch_size
    if len(group) == 1 or places <= SCHEDULE_PLACES:
        yield group
    else:
        middle = len(group) // 2
        yield from bounded(group[:middle], steps, batch_size)
        yield from bounded(group[middle:], steps, batch_size)


def trained(
    executor: Executor,
    setting: Setting,
    samples: Samples,
    runs: Sequence[LocalRun],
    want: frozenset[str],
) -> list[TrainResult]:
    """Train clients together; return their uploads and signals."""
    models, sums = run_phases(
        executor=executor,
        setting=setting,
        samples=samples,
        runs=runs,
        measured="max_grad_norm" in want,
    )
    results = []
    for run, after, total in zip(runs, models, sums, strict=True):
        own = {name: model for name, model in after.items() if name != RECEIVED}
        ctx = dataclasses.replace(run.context, models=own) if own else run.context
        results.append(
            finish(setting, run.job, ctx, after=after[RECEIVED], stats=total.stats(), want=want)
        )
    return results


def run_phases(
    executor: Executor,
    setting: Setting,
    samples: Samples,
    runs: Sequence[LocalRun],
    measured: bool = False,
) -> tuple[list[dict[str, ModelState]], list[LossSums]]:
    """Run all phases of clients together; return the models of each client by name, and the sums of
    the phases that move the received model, with gradient norms if they are to be ``measured``.

    Raises
    ------
    ContractError: a phase that :func:`refuses_phases` rejects, or clients whose phases differ in
    number or in what moves.
    """
    models = [{RECEIVED: run.start} for run in runs]
    sums = [LossSums() for _ in runs]
    for stage in zip(*(run.phases for run in runs), strict=True):
        reason = refuses_phases(setting.algorithm.local, stage)
        if reason is not None or len({(phase.model, phase.where) for phase in stage}) > 1:
            raise ContractError(
                reason
                or "got clients whose phases move different parameters; use the engine sequential"
            )
        name = stage[0].model
        work = []
        for phase, run, held in zip(stage, runs, models, strict=True):
            held[name] = (
                phase.start if isinstance(phase.start, ModelState) else held.get(name, run.start)
            )
            plan = phase_plan(setting, run.job, phase, int(samples.seen[run.job.client]))
            work.append(
                PhaseJob(
                    job=run.job,
                    phase=phase,
                    plan=plan,
                    start=held[name].x,
                    anchor=run.context.x,
                    extra=run.extra,
                )
            )
        steps = [len(phase_job.plan) for phase_job in work]
        for part in bounded(
            sorted(range(len(work)), key=lambda i: -steps[i]), steps, setting.work.batch_size
        ):
            after, totals = executor.train(
                setting, samples, [work[i] for i in part], measured and name == RECEIVED
            )
            for i, x, loss_sums in zip(part, after, totals, strict=True):
                models[i][name] = dataclasses.replace(models[i][name], x=x)
                sums[i] = sums[i].plus(loss_sums) if name == RECEIVED else sums[i]
    return models, sums
