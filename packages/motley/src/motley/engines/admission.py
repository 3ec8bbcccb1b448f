"""Admission of an engine by proof: before a run's first round, the engine and plain PyTorch train
the same few steps of the run's own model, loss and transform on some of its samples.

Plain PyTorch is ``module(x)``, the loss, ``backward()`` and a step of SGD, on the module as
its factory makes it. Compared are, in float64, the step of every parameter, every buffer, the loss
of training, the gradient of a probe, and the outputs in evaluation mode; at the initial weights and
at moved ones; for clients side by side with a full batch, the short last batch that the run will
have, and a batch of one where that occurs. Layers that draw random numbers draw none (their masks
are tested by themselves). What agrees to 1e-9 is admitted; what does not is named.

Components of Motley's own are proved once, by its tests (:func:`needs_proof`).
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import LocalRule, Phase
from motley.algorithms.task_loss import FunctionLoss, loss_of
from motley.core.arrays import Ints
from motley.core.errors import ConfigError, ModelError
from motley.core.keys import Key, Streams
from motley.core.own_code import is_motley, place_in_own_code
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines import ENGINES, resolve_auto
from motley.engines.client import phase_key, phase_plan
from motley.engines.distributed import Distributed
from motley.engines.engine import Engine, Job, Setting, TrainResult
from motley.engines.local import LocalEngine
from motley.tasks.flat import FlatModule, ModelState, construct, is_refusal_of_one, placed
from motley.tasks.narrow_models import rough_operations
from motley.tasks.nn import Dropout
from motley.tasks.own import plain_factory
from motley.tasks.own_loss import OverBatch, plain_function, representative
from motley.tasks.random_samples import random_samples
from motley.tasks.task import Federation, model_input

_LR = 0.05
_EXACT = 1e-9
"""Relative difference that rounding may leave in float64."""
_ROUNDED = 1e-3
"""The same in float32."""
_SMALL = 10_000_000
"""Operations of a sample's forward pass up to which the steps have the run's own batches."""
_MEDIUM = 20_000_000
"""The same up to which evaluation and probe are compared on more than the samples of a step."""
_MOST = {1_000_000: 32, _SMALL: 8, _MEDIUM: 3, sys.maxsize: 2}
"""Operations of a sample's forward pass -> samples of a compared batch, at most."""
_TRIES = 16
"""Models near the initial one that are tried, each farther away, for one whose outputs are not
all 0."""
_LARGE = 100_000_000
"""Weights above which one step of one client is compared, in the run's own type."""


class Admission(NamedTuple):
    """The outcome of a proof.

    Parameters
    ----------
    setting: of the run, with what was learnt: engines that are ruled out, and whether samples of
    several clients may share a forward pass.
    notes: sentences for the run's record, by subject.
    """

    setting: Setting
    notes: Mapping[str, str]


def needs_proof(setting: Setting) -> bool:
    """Return whether model, loss or transform are not Motley's own."""
    task = setting.task
    if isinstance(loss_of(task), FunctionLoss):
        return True
    parts: list[object] = [setting.algorithm.loss, setting.algorithm.loss.within()]
    if task.transform is not None:
        parts.append(task.transform)
    if any(not _own(type(part)) for part in parts):
        return True
    module = construct(task.model, 0)
    kinds = {type(layer) for layer in module.modules()}
    return plain_factory(task.model) is not task.model or not all(map(_own, kinds))


def _own(kind: type) -> bool:
    return is_motley(kind.__module__) or kind.__module__.startswith("torch.nn.modules.")


def undropped(factory: Callable[[], nn.Module]) -> nn.Module:
    """Return a fresh module whose random layers drop nothing."""
    module = factory()
    for layer in module.modules():
        if isinstance(layer, Dropout | _DropoutNd):
            layer.p = 0.0
        if isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
            layer.dropout = 0.0
    return module


def admit(setting: Setting, engine_name: str, synthetic: bool = False) -> Admission:
    """Return the setting with the engines ruled out that do not train the run's model as torch
    does.

    Parameters
    ----------
    engine_name: the engine in the experiment, ``auto`` too.
    synthetic: compare on random samples of the same shapes, so that the outcome says nothing of
    anybody's data.

    Raises
    ------
    ModelError: the model cannot be followed by any engine; the message says what to write.
    ConfigError: the engine that was asked for by name does not train it as torch does.
    """
    kind: type[Engine] = ENGINES.get(
        "sequential" if engine_name == "auto" else engine_name, "engine"
    )
    by_name = engine_name != "auto" and not issubclass(kind, Distributed)
    trial = _Comparison(setting, engine_name if by_name else resolve_auto(setting), synthetic)
    if not trial.possible:
        return Admission(setting, {})
    trial.require_followed()
    trial.require_type()
    notes = dict(trial.notes)
    _note_types(setting, notes)
    _note_kept(trial, notes)
    _note_outside(trial, notes)
    setting = _skipping(setting, trial, notes)
    if by_name and engine_name in setting.ruled_out:
        raise ConfigError(
            f"{engine_name!r} does not train this model as plain PyTorch does: "
            f'{setting.ruled_out[engine_name]}; engine = "auto" chooses an engine that does',
            "engine",
        )
    if not trial.mixes:
        setting = dataclasses.replace(setting, mixes=False)
        if setting.evaluation_batch is None:
            notes["evaluation"] = (
                "outputs of this model depend on who else is in the batch: each client is "
                "evaluated by itself, on all its samples at once"
            )
        else:
            notes["evaluation"] = (
                "outputs of this model depend on who else is in the batch: each client is "
                f"evaluated by itself, {setting.evaluation_batch} samples at a time"
            )
    if by_name:
        reason = None if kind.refuses(setting) else trial.difference(engine_name)
        if reason is not None:
            trial.require_repeatable()
            if trial.one_by_one:
                return _again(
                    setting=setting,
                    engine_name=engine_name,
                    synthetic=synthetic,
                    reason=reason,
                    trial=trial,
                )
            raise ConfigError(
                f"{engine_name!r} does not train this model as plain PyTorch does: {reason}; "
                'engine = "auto" chooses an engine that does',
                "engine",
            )
        return Admission(setting, notes)
    while (reason := trial.difference(name := resolve_auto(setting))) is not None:
        trial.require_repeatable()
        if name in ("threads", "sequential"):
            return _again(
                setting=setting,
                engine_name=engine_name,
                synthetic=synthetic,
                reason=reason,
                trial=trial,
            )
        setting = dataclasses.replace(setting, ruled_out={**setting.ruled_out, name: reason})
        now = resolve_auto(setting)
        notes["engine"] = (
            f"{name} does not train this model as plain PyTorch does ({reason}); {now} is taken "
            "in its place"
        )
        warnings.warn(notes["engine"], stacklevel=2)
    return Admission(setting, notes)


def _again(
    setting: Setting, engine_name: str, synthetic: bool, reason: str, trial: _Comparison
) -> Admission:
    """Compare once more with the user's loss as one of whole batches.

    Raises
    ------
    ModelError: it is none, or that does not help.
    """
    over_batch = _over_batch(setting)
    if over_batch is None:
        raise _nobody(reason, trial)
    try:
        admission = admit(over_batch, engine_name, synthetic)
    except (ModelError, ConfigError):
        raise _nobody(reason, trial) from None
    message = (
        "the loss looks at its whole batch on these samples: it is trained over whole batches, as "
        'torch does; say over = "batch"'
    )
    warnings.warn(message, stacklevel=3)
    return admission._replace(notes={**admission.notes, "loss": message})


def _note_types(setting: Setting, notes: dict[str, str]) -> None:
    """Say where weights of another type than torch's default are trained in the run's own."""
    weights = [p for p in construct(setting.task.model, 0).parameters() if p.requires_grad]
    types = {p.dtype for p in weights} - {torch.float32, setting.dtype}
    if types:
        names = " and ".join(sorted(str(kind).removeprefix("torch.") for kind in types))
        own = str(setting.dtype).removeprefix("torch.")
        notes["weights"] = f"weights that the model holds as {names} are trained as {own}"
        warnings.warn(notes["weights"], stacklevel=3)


def _nobody(reason: str, trial: _Comparison) -> ModelError:
    """Return the error that no engine trains the model, with what was seen to cause it."""
    unsent = [name for outcome in trial.outcomes for name in outcome.unsent]
    loss = loss_of(trial.run.task)
    if unsent:
        advice = (
            f"; the forward changes {unsent[0]}, which no client sends: keep it in a registered, "
            "persistent buffer"
        )
    elif trial.run.work.micro_batch is not None:
        advice = "; leave local.micro_batch out, with which parts of a batch pass by themselves"
    elif isinstance(loss, FunctionLoss) and loss.over == "sample":
        advice = '; if the loss looks at its whole batch, say over = "batch"'
    else:
        advice = ""
    return ModelError(f"no engine trains this model as plain PyTorch does: {reason}{advice}")


def _note_kept(trial: _Comparison, notes: dict[str, str]) -> None:
    """Say what the forward changes and no client sends."""
    unsent = list(dict.fromkeys(name for outcome in trial.outcomes for name in outcome.unsent))
    if unsent:
        notes["kept"] = (
            f"the forward changes {', '.join(unsent)}, which goes on from client to client in one "
            "process, and is neither sent nor stored; keep it in a registered buffer if outputs "
            "depend on it"
        )
        warnings.warn(notes["kept"], stacklevel=4)


def _note_outside(trial: _Comparison, notes: dict[str, str]) -> None:
    """Say on which trainable weights the loss depends that are not the module's."""
    outside = list(dict.fromkeys(shape for each in trial.outcomes for shape in each.outside))
    if outside:
        notes["outside"] = (
            f"the loss of a batch depends on trainable weights of shape {', '.join(outside)} that "
            "are not the module's: they are neither trained nor sent. Register their layers in the "
            "module (nn.ModuleList in place of a list) and reach them through it, or detach() what "
            "they give if that is meant"
        )
        warnings.warn(notes["outside"], stacklevel=4)


def _skipping(setting: Setting, trial: _Comparison, notes: dict[str, str]) -> Setting:
    """Return the setting in which parameters without a gradient are left out, where the optimizer
    moves them otherwise: by decay, momentum or Adam's moments."""
    if setting.solver.plain:
        return setting
    setting = dataclasses.replace(setting, skips_unused=True)
    unused = sorted({name for outcome in trial.outcomes for name in outcome.unused})
    if not unused:
        return setting
    reason = f"some steps give {unused[0]!r} no gradient, and torch's optimizers leave it out then"
    notes["unused"] = reason
    ruled_out = {**setting.ruled_out, "batched": reason, "vmap": reason}
    return dataclasses.replace(setting, ruled_out=ruled_out)


def _over_batch(setting: Setting) -> Setting | None:
    """Return the setting with the user's loss as one of whole batches; None where it is none, or
    the user said what it looks at."""
    loss = setting.task.loss
    inside = setting.algorithm.loss
    if not isinstance(inside, FunctionLoss) or not callable(loss) or isinstance(loss, OverBatch):
        return None
    over_batch = OverBatch(plain_function(loss))
    task = dataclasses.replace(setting.task, loss=over_batch)
    algorithm = setting.algorithm.replace(loss=dataclasses.replace(inside, function=over_batch))
    return dataclasses.replace(setting, task=task, algorithm=algorithm)


@dataclass(frozen=True)
class _Outcome:
    """What a client's training led to.

    Parameters
    ----------
    steps: changes of the parameters by name.
    buffers: buffers and counters by name.
    loss: mean over the steps.
    unused: parameters to which some step gave no gradient.
    unsent: what the forward changed and no client sends: attributes and buffers that are not
    persistent.
    outside: shapes of trainable weights that had a part in the loss and are not the module's.
    """

    steps: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    loss: float
    unused: frozenset[str]
    unsent: tuple[str, ...]
    outside: tuple[str, ...]


class _Difference(NamedTuple):
    """What differs from torch, in words, and by how much of the largest value."""

    subject: str
    share: float


class _Comparison:
    """The steps that an engine and plain PyTorch both take.

    Parameters
    ----------
    setting: of the run.
    first: the engine that is compared first.
    synthetic: see :func:`admit`.

    Attributes
    ----------
    one_by_one: whether that engine trains client by client.
    slow: whether the model takes so long that less is compared.
    possible: whether there is a training sample to compare on.
    notes: what was compared otherwise than usual.
    mixes: whether outputs in evaluation mode are the same whoever else is in the batch.
    """

    def __init__(self, setting: Setting, first: str, synthetic: bool) -> None:
        self.run = setting
        self.one_by_one = first in ("sequential", "threads", "debug")
        self.synthetic = synthetic
        self.draw = 0
        self.notes: dict[str, str] = {}
        self.possible = bool(setting.task.federation.seen.any())
        self.dtype = torch.float64
        if not self.possible:
            return
        self.factory = partial(undropped, plain_factory(setting.task.model))
        self.work = _work_of_sample(setting)
        self.large = setting.task.layout.size > _LARGE
        self.slow = self.large or self.work > _MEDIUM
        if self.large:
            self._fall_back(
                f"one step of one client in {setting.dtype}, since the model has more than 10^8 "
                f"weights; it takes {_gigabytes(setting)} beside the run's own memory".replace(
                    "torch.", ""
                )
            )

    # what is compared ---------------------------------------------------------------------------

    @cached_property
    def setting(self) -> Setting:
        """The setting in which engines are compared: plain local steps on some of the samples."""
        run = self.run
        paired = self.slow and not self.one_by_one
        work, federation = _data(
            run,
            synthetic=self.synthetic,
            most=3 if paired else self._most,
            brief=self.slow,
            paired=paired,
        )
        task = dataclasses.replace(
            run.task,
            model=partial(undropped, run.task.model),
            federation=federation,
            metrics=(),
            batches=None,
        )
        loss = run.algorithm.loss.within()
        if loss.whole_model or loss.prepares:
            loss = loss_of(run.task)
        return Setting(
            task=task,
            algorithm=run.algorithm.replace(local=LocalRule(), loss=loss),
            solver=SGD(lr=_LR),
            work=work,
            streams=Streams(0),
            dtype=self.dtype,
            device=run.device,
            threads=1,  # all clients side by side in one stack
            mixes=self.mixes,
        )

    @property
    def _most(self) -> int:
        """Samples of a batch at most."""
        return next(most for work, most in _MOST.items() if self.work <= work)

    @cached_property
    def jobs(self) -> list[Job]:
        """The jobs of all clients."""
        sizes = self.setting.task.federation.seen
        steps = self.setting.work.total(sizes).tolist()
        return [Job(client=k, dispatch=k, steps=n, lr=_LR) for k, n in enumerate(steps)]

    @property
    def skipped(self) -> int:
        """How many first jobs plain PyTorch leaves out: of a model that takes long the first, whose
        training can only be seen in what it leaves behind for the second."""
        return 1 if self.slow and self.one_by_one and len(self.jobs) > 1 else 0

    @cached_property
    def states(self) -> list[ModelState]:
        """The models from which the clients start: the initial one, and one whose weights have
        moved; of a model that takes long the second alone."""
        first = FlatModule(construct(self.setting.task.model, 0), self.dtype).state()
        draws = torch.Generator().manual_seed(self.draw)
        x = first.x.clone()
        for entry in self.setting.task.layout:
            own = x[entry.slice]
            if own.numel():
                scale = 0.3 * (1 + self.draw) * (float(own.abs().mean()) + 0.05)
                own += scale * (torch.rand(own.shape, generator=draws) - 0.5)
        moved = ModelState(x, first.buffers, first.counters)
        return [first, moved] if self.work <= _SMALL else [moved]

    # plain PyTorch ------------------------------------------------------------------------------

    def _module(self, state: ModelState) -> nn.Module:
        """Return a fresh module as its factory makes it, with these weights."""
        return self._filled(placed(construct(self.factory, 0), self.dtype, self.run.device), state)

    def _filled(self, module: nn.Module, state: ModelState) -> nn.Module:
        """Return a module with these weights."""
        layout = self.setting.task.layout
        parameters = dict(module.named_parameters())
        buffers = dict(module.named_buffers())
        with torch.no_grad():
            for entries, values, tensors in (
                (layout.entries, state.x, parameters),
                (layout.buffers, state.buffers, buffers),
                (layout.counters, state.counters, buffers),
            ):
                for entry in entries:
                    tensors[entry.name].copy_(values[entry.slice].view(entry.shape))
        return module

    def _inputs(self, rows: Tensor, key: Key | None) -> Tensor:
        """Return model inputs of some samples, which nothing else holds."""
        task = self.setting.task
        raw = task.federation.x[rows].clone()
        transformed = raw if task.transform is None else task.transform(raw, key)
        return model_input(transformed, self.dtype, self.run.device)

    def _targets(self, rows: Tensor) -> Tensor:
        """Return the targets of some samples."""
        y = self.setting.task.federation.y[rows].to(self.run.device)
        return y.to(self.dtype) if y.is_floating_point() else y

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a batch: the user's own function, or Motley's."""
        loss = self.setting.algorithm.loss
        if isinstance(loss, FunctionLoss):
            value = plain_function(loss.function)(outputs, targets)
        else:
            value = loss.loss(outputs, targets, {})
        return value.mean()

    def _batches(self, job: Job) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and targets of a job's steps."""
        setting = self.setting
        rows = torch.from_numpy(setting.task.federation.train[job.client])
        plan = phase_plan(setting, job, Phase(), len(rows))
        key = phase_key(setting, "augment", job, Phase())
        for step in range(len(plan)):
            batch = rows[torch.from_numpy(plan[step])]
            yield self._inputs(batch, key.fold(step)), self._targets(batch)

    def _by_torch(self, job: Job, state: ModelState, seed: int = 0) -> _Outcome | None:
        """Return what a job leads to in plain PyTorch, torch's own generator seeded; None where
        torch refuses a batch of one sample."""
        module = self._module(state).train()
        held = _not_sent(module)
        unused: set[str] = set()
        outside: dict[str, None] = {}
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        before = {name: p.detach().clone() for name, p in parameters.items()}
        losses = []
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            for inputs, targets in self._batches(job):
                module.zero_grad()
                try:
                    loss = self._loss(module(inputs), targets)
                    outside |= dict.fromkeys(_outside(loss, module, parameters))
                    torch.autograd.backward(loss)
                except Exception as error:  # a user's module may raise anything
                    if len(inputs) == 1 and is_refusal_of_one(error):
                        return None
                    raise _Failed(_first_line(error)) from error
                _require_same_trained(module, parameters)
                # the step of torch.optim.SGD, whose first use imports a compiler: half a second
                with torch.no_grad():
                    for name, parameter in parameters.items():
                        if parameter.grad is None:
                            unused.add(name)
                        elif parameter.grad.is_sparse:
                            raise ModelError(
                                f"the parameter {name!r} has sparse gradients, which no engine "
                                "steps; write sparse=False"
                            )
                        else:
                            parameter.add_(parameter.grad, alpha=-_LR)
                losses.append(float(loss.detach()))
        now = dict(module.named_parameters())
        layout = self.setting.task.layout
        buffers = dict(module.named_buffers())
        for entry in (*layout.buffers, *layout.counters):
            if buffers[entry.name].shape != entry.shape:
                raise ModelError(
                    f"the buffer {entry.name!r} changes its shape in training, from "
                    f"{list(entry.shape)} to {list(buffers[entry.name].shape)}, and a model's "
                    "state has one size; register it with its final shape"
                )
        now_held = _not_sent(module)
        return _Outcome(
            steps={name: now[name].detach().cpu() - before[name].cpu() for name in parameters},
            buffers={
                entry.name: buffers[entry.name].detach().cpu().clone() for entry in layout.buffers
            }
            | {entry.name: buffers[entry.name].detach().cpu().clone() for entry in layout.counters},
            loss=float(np.mean(losses)) if losses else math.nan,
            unused=frozenset(unused),
            unsent=tuple(
                name for name, value in held.items() if not _alike(value, now_held.get(name))
            ),
            outside=tuple(outside),
        )

    @cached_property
    def expected(self) -> list[list[_Outcome | None]]:
        """What plain PyTorch leads to, for each state and job."""
        skipped: list[_Outcome | None] = [None] * self.skipped
        jobs = self.jobs[self.skipped :]
        return [skipped + [self._by_torch(job, state) for job in jobs] for state in self.states]

    @property
    def outcomes(self) -> list[_Outcome]:
        """Those of all states and jobs that plain PyTorch took."""
        return [outcome for each in self.expected for outcome in each if outcome is not None]

    @cached_property
    def _in_evaluation(self) -> nn.Module:
        """A module in evaluation mode with the weights of the last state."""
        return self._module(self.states[-1]).eval()

    def _examined(self, clients: Sequence[int]) -> Tensor | None:
        """Return the outputs of clients' samples in one batch, in evaluation mode, at the last
        state; None where torch refuses a batch of one sample."""
        train = self.setting.task.federation.train
        most = 1 if self.slow else self._most
        rows = torch.from_numpy(np.concatenate([train[k][:most] for k in clients]))
        with torch.no_grad():
            try:
                # weights that a forward changes, as an embedding with max_norm does, begin anew
                module = self._filled(self._in_evaluation, self.states[-1])
                outputs: Tensor = module(self._inputs(rows, None))
            except ValueError as error:
                if len(rows) == 1 and is_refusal_of_one(error):
                    return None
                raise
        return outputs.detach().cpu()

    @cached_property
    def examined(self) -> dict[int, Tensor]:
        """The outputs of each client's samples alone, in evaluation mode."""
        outputs = {k: self._examined([k]) for k in range(len(self.setting.task.federation))}
        return {client: value for client, value in outputs.items() if value is not None}

    @cached_property
    def probed(self) -> dict[int, Tensor]:
        """Each client's gradient ``[D]`` in evaluation mode, on all its samples at once; empty for
        a model that has none in this mode."""
        by_client: dict[int, Tensor] = {}
        for client in self.examined:
            rows = torch.from_numpy(self.setting.task.federation.train[client])
            module = self._module(self.states[-1]).eval()
            loss = self._loss(module(self._inputs(rows, None)), self._targets(rows))
            if not loss.requires_grad:
                return {}
            torch.autograd.backward(loss)
            gradients = [
                torch.zeros_like(p) if p.grad is None else p.grad
                for p in module.parameters()
                if p.requires_grad
            ]
            by_client[client] = torch.cat([g.reshape(-1) for g in gradients]).cpu()
        return by_client

    # whether it can be followed at all ------------------------------------------------------------

    def require_followed(self) -> None:
        """Compare plain PyTorch with itself.

        Raises
        ------
        ModelError: it fails, draws random numbers outside of Motley's streams, or binds weights
        anew.
        """
        self.mixes = True
        try:
            self.expected  # noqa: B018 - computed here, where it may fail
        except _Failed as error:
            if self.dtype == torch.float64 and error.advice is None:
                self._fall_back(f"float32, since the model cannot be computed in float64 ({error})")
                return self.require_followed()
            name = str(self.dtype).removeprefix("torch.")
            type_of_weights = "" if error.advice else f" in {name}, to which weights are converted,"
            raise ModelError(
                f"training this model{type_of_weights} fails in plain PyTorch: {error}"
                f"{error.advice or ''}"
            ) from error
        outputs = self.examined.values()  # of nobody where torch refuses every batch of one
        if outputs and self.draw < _TRIES and not any(bool((o != 0).any()) for o in outputs):
            # behind a ReLU without a gradient all outputs are 0, whatever they are computed from
            self.draw += 1
            self._forget()
            return self.require_followed()
        self.mixes = self._do_mix()
        if not self.mixes:
            del self.setting
        return None

    def require_type(self) -> None:
        """Pass two samples through the model in the run's own type.

        Raises
        ------
        ModelError: it cannot be computed in it.
        """
        if self.run.dtype == self.dtype:
            return
        module = placed(construct(self.factory, 0), self.run.dtype, self.run.device).train()
        rows = torch.from_numpy(self.setting.task.federation.train[0][:2])
        task = self.setting.task
        raw = task.federation.x[rows].clone()
        transformed = raw if task.transform is None else task.transform(raw, None)
        with torch.no_grad():
            try:
                module(model_input(transformed, self.run.dtype, self.run.device))
            except Exception as error:  # a user's module may raise anything
                if is_refusal_of_one(error):
                    return
                name = str(self.run.dtype).removeprefix("torch.")
                raise ModelError(
                    f"the model cannot be computed in {name}, to which trained weights are "
                    f'converted ({_first_line(error)}); say dtype = "float64" if it computes in '
                    "float64 itself"
                ) from error

    def _fall_back(self, precision: str) -> None:
        """Compare in float32 from here on, and note why."""
        self.dtype = self.run.dtype if self.large else torch.float32
        self.notes["proof"] = f"the engine was compared with plain PyTorch in {precision}"
        self._forget("setting", "jobs")

    def _forget(self, *more: str) -> None:
        """Let go of what was computed at the weights that were compared."""
        for name in ("states", "expected", "examined", "probed", "_in_evaluation", *more):
            self.__dict__.pop(name, None)

    def _require_in_place(self, flat: FlatModule) -> None:
        """Refuse a model whose forward bound weights anew."""
        names = flat.bound_anew()
        if names:
            raise ModelError(
                f"the forward of the {type(flat.module).__name__} binds the weight {names[0]!r} "
                "anew, so that it is no longer the weight that is trained and sent (.data = ..., "
                "vector_to_parameters, a new nn.Parameter); write into it in place: "
                f"self.{names[0]}.data.copy_(...)"
            )

    def require_repeatable(self) -> None:
        """Compare two trainings in plain PyTorch.

        Raises
        ------
        ModelError: they differ, since random numbers are drawn outside of Motley's streams.
        """
        first = self.expected[0][self.skipped :]
        job = self.jobs[self.skipped]
        reseeded = self._by_torch(job, self.states[0], seed=1)
        if first[0] is None or reseeded is None:
            return
        if _same(first[0], reseeded):
            self._require_repeatable_outputs(job)
            return
        again = self._by_torch(job, self.states[0])
        if again is not None and _same(first[0], again):
            raise ModelError(
                "training this model in plain PyTorch gives other weights under another seed of "
                "torch: it draws from torch's process-wide generator (F.dropout, torch.rand), "
                "which cannot be tied to a client's own seed; use a motley.tasks.nn.Dropout layer, "
                "and in a transform its key"
            )
        raise ModelError(
            "two trainings of this model in plain PyTorch, from the same weights and under the "
            "same seed of torch, give different weights: the model, the loss or the transform "
            "draws random numbers outside torch (numpy.random, random) or remembers what it saw "
            "before; draw from a motley.tasks.nn.Dropout layer or the transform's key, and keep "
            "what is remembered in registered buffers"
        )

    def _require_repeatable_outputs(self, job: Job) -> None:
        """Refuse a model whose outputs in evaluation mode differ from call to call."""
        seen: list[Tensor] = []
        with torch.random.fork_rng(devices=[]):
            for seed in range(2):
                torch.default_generator.manual_seed(seed)
                outputs = self._examined([job.client])
                seen += [] if outputs is None else [outputs]
        if len(seen) == 2 and _unlike(seen[0], seen[1], self._tolerance):
            raise ModelError(
                "outputs in evaluation mode differ from call to call: the model draws random "
                "numbers there, and an evaluation has no stream for them; draw in training alone"
            )

    def _do_mix(self) -> bool:
        """Return whether outputs are the same whoever else is in the batch."""
        if len(self.examined) < len(self.setting.task.federation):
            return False
        together = self._examined(sorted(self.examined))
        joined = torch.cat([self.examined[k] for k in sorted(self.examined)])
        return together is not None and not _unlike(joined, together, self._tolerance)

    # engines --------------------------------------------------------------------------------------

    @property
    def _tolerance(self) -> float:
        return _EXACT if self.dtype == torch.float64 else _ROUNDED

    def difference(self, name: str) -> str | None:
        """Return what an engine trains or measures differently from plain PyTorch, in words without
        data; None if nothing."""
        difference = self._difference(name)
        if difference is None or self.dtype != torch.float64 or difference.share > 1e-4:
            return None if difference is None else difference.subject
        # as small as a cast to float32 inside the model makes it
        if not self._rounds_inside():
            return difference.subject
        again = copy.copy(self)
        again.notes = {}
        again._fall_back("float32, since the model rounds to it inside")
        again.require_followed()
        rounded = again._difference(name)
        if rounded is None:
            self.notes.update(again.notes)
            return None
        return difference.subject

    def _rounds_inside(self) -> bool:
        """Return whether some number in a forward pass in float64 is of fewer bits."""
        rows = torch.from_numpy(self.setting.task.federation.train[0][:2])
        module = self._module(self.states[-1]).eval()
        inputs = self._inputs(rows, None)
        with _NumberTypes() as seen, torch.no_grad():
            self._loss(module(inputs), self._targets(rows))
        return bool(seen.types & {torch.float32, torch.float16, torch.bfloat16})

    def _difference(self, name: str) -> _Difference | None:
        try:
            engine: LocalEngine = ENGINES.get(name)(self.setting)
        except Exception as error:  # what an engine cannot take ends in many ways
            return _Difference(f"it fails ({_first_line(error)})", math.inf)
        try:
            return self._compared(engine)
        except ModelError:
            raise
        except Exception as error:
            if is_refusal_of_one(error):
                raise ModelError(
                    "torch refuses a batch of one sample of this model in training: "
                    f"{_first_line(error)}; take a batch size that leaves no single sample, or "
                    "BatchNorm layers, whose last batch of one is left out"
                ) from error
            return _Difference(f"it fails ({_first_line(error)})", math.inf)
        finally:
            engine.close()

    def _compared(self, engine: LocalEngine) -> _Difference | None:
        difference = self._of_steps(engine) or self._of_examination(engine)
        self._require_in_place(engine.client.model)
        return difference

    def _of_steps(self, engine: Engine) -> _Difference | None:
        """Return how the local work of clients differs from that of torch."""
        for state, expected in zip(self.states, self.expected, strict=True):
            download = {"x": state.x, "buffers": state.buffers, "counters": state.counters}
            results = list(engine.train(self.jobs, download, {}))
            for result, outcome in zip(results, expected, strict=True):
                if outcome is None:
                    continue
                difference = self._of_training(result, outcome, state)
                if difference is not None:
                    return difference
        return None

    def _of_training(
        self, result: TrainResult, outcome: _Outcome, state: ModelState
    ) -> _Difference | None:
        """Return how a client's upload and loss differ from those of torch."""
        layout = self.setting.task.layout
        delta = result.parts["delta"].value
        largest = max((_size(step) for step in outcome.steps.values()), default=0.0)
        tolerance = self._tolerance
        for entry in layout:
            step = outcome.steps[entry.name]
            floor = 1e-3 * tolerance * largest + 1e-5 * tolerance * _size(state.x[entry.slice])
            share = _unlike(delta[entry.slice].view(entry.shape), step, tolerance, floor)
            if share:
                return _Difference(f"the gradient of {entry.name!r} differs", share)
        for entries, values in (
            (layout.buffers, result.parts["buffers"].value),
            (layout.counters, result.parts["counters"].value),
        ):
            for entry in entries:
                value = values[entry.slice].view(entry.shape)
                share = _unlike(value, outcome.buffers[entry.name], tolerance)
                if share:
                    return _Difference(f"the buffer {entry.name!r} differs after training", share)
        loss = torch.tensor([float(result.signals["loss"]), outcome.loss], dtype=torch.float64)
        share = _unlike(loss[:1], loss[1:], tolerance)
        return _Difference("the loss in training differs", share) if share else None

    def _of_examination(self, engine: Engine) -> _Difference | None:
        """Return how outputs in evaluation mode and the gradient of a probe differ from those of
        torch."""
        state = self.states[-1]
        federation = self.setting.task.federation
        clients = sorted(self.examined)
        parts = [federation.train[k][: len(self.examined[k])] for k in clients]
        sizes = np.array([len(part) for part in parts])
        measured = engine.evaluate(
            state,
            np.concatenate(parts),
            labels=None,
            want=frozenset({"outputs"}),
            sizes=sizes,
        )
        outputs = torch.from_numpy(np.asarray(measured["outputs"]))
        expected = torch.cat([self.examined[k] for k in clients])
        share = _unlike(outputs, expected, self._tolerance)
        if share:
            return _Difference("outputs in evaluation mode differ", share)
        if self.slow or not self.probed:
            return None
        download = {"x": state.x, "buffers": state.buffers, "counters": state.counters}
        gradient = engine.measure(
            np.array(clients), download, client_states={}, want={"gradient": None}, key=Key(0)
        )
        for i, client in enumerate(clients):
            own = torch.from_numpy(gradient["gradient"][i])
            floor = 1e-3 * self._tolerance * _size(self.probed[client])
            for entry in self.setting.task.layout:
                share = _unlike(
                    own[entry.slice], self.probed[client][entry.slice], self._tolerance, floor
                )
                if share:
                    return _Difference(
                        f"the gradient of {entry.name!r} in evaluation mode differs", share
                    )
        return None


class _NumberTypes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the types of what operations of torch return inside it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        parts = out if isinstance(out, tuple | list) else (out,)
        self.types |= {part.dtype for part in parts if isinstance(part, Tensor)}
        return out


_ADVICE = {
    "backward through the graph a second time": "the forward or the loss keeps a tensor from one "
    "batch to the next: compute it anew in each batch, or keep it with detach()",
    "modified by an inplace operation": "write that operation out of place, h = h + 1 for h += 1",
    "a leaf Variable that requires grad is being used": "write the operation out of place, or on a "
    "copy of the weight",
}
"""Words of torch's errors that no type of number mends -> what to write."""


class _Failed(Exception):  # noqa: N818 - never leaves this module
    """Plain PyTorch cannot train the model; the text says why.

    Attributes
    ----------
    advice: what to write, where the error is of a kind that another type of numbers does not mend.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason.rstrip("."))
        matches = [advice for words, advice in _ADVICE.items() if words in reason]
        self.advice = f"; {matches[0]}" if matches else None


def _outside(loss: Tensor, module: nn.Module, before: Mapping[str, nn.Parameter]) -> list[str]:
    """Return the shapes of trainable weights that have a part in a loss and are not the module's,
    also not such as its forward bound anew."""
    own = {id(p) for p in (*before.values(), *module.parameters())}
    shapes = []
    seen = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter) and id(leaf) not in own:
            shapes.append(str(list(leaf.shape)))
        waiting += [following for following, _ in node.next_functions]
    return shapes


def _require_same_trained(module: nn.Module, before: Mapping[str, nn.Parameter]) -> None:
    """Refuse a forward that freezes weights, or lets go of frozen ones."""
    now = {name for name, p in module.named_parameters() if p.requires_grad}
    changed = sorted(now ^ before.keys())
    if changed:
        verb = "freezes" if changed[0] in before else "begins to train"
        raise ModelError(
            f"the forward of the {type(module).__name__} {verb} the weight {changed[0]!r} "
            "(requires_grad), and what is trained and sent is fixed when the model is made: set "
            "requires_grad in the function that makes it"
        )


def _first_line(error: Exception) -> str:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"{first}{place_in_own_code(error)}"


def _not_sent(module: nn.Module) -> dict[str, object]:
    """Return what a module holds beside its state: numbers in attributes, and buffers that are not
    persistent."""
    unsent: dict[str, object] = {}
    for name, layer in module.named_modules():
        for key, value in vars(layer).items():
            if key != "training" and isinstance(value, bool | int | float):
                unsent[f"the attribute {f'{name}.{key}'.strip('.')!r}"] = value
    sent = module.state_dict(keep_vars=True).keys()
    for name, buffer in module.named_buffers():
        if name not in sent:
            unsent[f"the buffer {name!r}, which is not persistent"] = buffer.detach().clone()
    return unsent


def _alike(first: object, second: object) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        first, second = (t.to_dense() if t.is_sparse else t for t in (first, second))
        return first.shape == second.shape and not _unlike(first, second, 0.0)
    return first == second


def _size(value: Tensor) -> float:
    """Return the largest finite magnitude."""
    finite = value[value.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _unlike(value: Tensor, expected: Tensor, tolerance: float, floor: float = 0.0) -> float:
    """Return by how much of the largest expected number a tensor differs, 0 where that is within
    the tolerance or the ``floor``; infinity where shapes or what is not finite differ."""
    value, expected = value.detach().cpu().double(), expected.detach().cpu().double()
    if value.shape != expected.shape:
        return math.inf
    if not value.numel():
        return 0.0
    difference = float((value - expected).abs().max())
    if math.isfinite(difference):
        largest = float(expected.abs().max())
    else:
        odd = ~expected.isfinite()
        where = value[odd].nan_to_num(), expected[odd].nan_to_num()
        if not torch.equal(odd, ~value.isfinite()) or not torch.equal(*where):
            return math.inf
        largest = _size(expected)
        difference = _size((value - expected)[~odd])
    if difference <= tolerance * largest + floor:
        return 0.0
    return difference / largest if largest else math.inf


def _same(first: _Outcome, second: _Outcome) -> bool:
    pairs = [(first.steps[name], second.steps[name]) for name in first.steps]
    pairs += [(first.buffers[name], second.buffers[name]) for name in first.buffers]
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def _work_of_sample(setting: Setting) -> int:
    """Return the operations of a sample's forward pass; 0 where they cannot be counted."""
    data = setting.task.federation
    raw = data.x[torch.from_numpy(data.train.values[:2])]  # one has no deviation
    try:
        transformed = (
            raw if setting.task.transform is None else setting.task.transform(raw.clone(), None)
        )
        module = construct(setting.task.model, 0)
        inputs = model_input(transformed.clone(), torch.float32, "cpu")
        return rough_operations(module, inputs) // len(raw)
    except Exception:  # which comes back, with its message, where the steps are compared
        return 2 * setting.task.layout.size


def _gigabytes(setting: Setting) -> str:
    """Return the memory of two further copies of the model with gradients, in words."""
    return f"{4 * setting.task.layout.size * setting.dtype.itemsize / 1e9:.1f} GB"


def _data(
    setting: Setting, *, synthetic: bool, most: int, brief: bool, paired: bool
) -> tuple[LocalWork, Federation]:
    """Return the work and the samples of the clients that are compared: one with a full batch and a
    short one, one with full ones beside it, one with a short one alone, and one that ends with a
    single sample, each where the run has such batches; of a model that takes long two clients, and
    a third where they are computed side by side."""
    data = setting.task.federation
    work = setting.work
    held = np.unique(data.seen[data.seen > 0])
    last = (held - 1) % work.batch_size + 1
    full = int(min(work.batch_size, held.max()))
    short = last[(last > 1) & (last < full)]
    size = min(full, most)
    few = min(int(short.min()), size - 1) if len(short) and size > 2 else 0
    # places beyond a batch repeat its client's first sample: of this very batch, or of another
    alone = size > 1 and bool((held == 1).any())
    left = size > 1 and not work.drop_single and bool(((last == 1) & (held > 1)).any())
    # (where an engine counts what recurs in a batch, as scale_grad_by_freq asks for, a sample
    # beside itself differs for certain, and beside another only if they have something in common)
    if brief:
        sizes = [size, few or (1 if alone or left else size)]
        sizes += [size + 1] * (paired and left and not few)
    else:
        sizes = [size + few, 2 * size if few or left else size]
        sizes += [few] * bool(few) + [1] * (alone or left) + [size + 1] * left
    micro = work.micro_batch
    small = LocalWork(
        batch_size=size,
        epochs=1,
        drop_single=work.drop_single,
        micro_batch=None if micro is None else max(1, min(micro, size // 2)),
    )
    total = sum(sizes)
    if synthetic:
        x, y = random_samples(setting.task, total)
    else:
        positions = np.resize(_positions(data, total), total)
        x = data.x[torch.from_numpy(data.train.values[positions])]
        y = data.labels[torch.from_numpy(positions)]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    rows = Ragged.of([np.arange(a, b) for a, b in itertools.pairwise(ends)])
    nothing: Ints = np.zeros(0, np.int64)
    federation = dataclasses.replace(
        data,
        x=x,
        y=y,
        train=rows,
        labels=y,
        validation=Ragged.of([nothing] * len(sizes)),
        test=Ragged.of([nothing] * len(sizes)),
        global_test=None,
        noise=np.zeros(0),
        notes={},
        validation_labels=None,
        server=None,
        public=None,
        domain=nothing,
        cluster=nothing,
        window=None,
        preparation=None,
        statistics=None,
        held_out=None,
        measured={},
        client_names=(),
    )
    return small, federation


def _positions(data: Federation, count: int) -> Ints:
    """Return positions of training samples with targets that differ as much as they can."""
    every = np.arange(len(data.train.values))[:: max(1, len(data.train.values) // 200_000)]
    chosen: Ints = every[representative(data.labels[torch.from_numpy(every)], data.targets, count)]
    return chosen
