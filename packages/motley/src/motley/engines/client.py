"""One client's local training on one reusable module: the reference that every batched engine is
compared with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from motley.algorithms.parts import (
    RECEIVED,
    Direction,
    JobContext,
    LocalRule,
    MeasuredFeatures,
    Part,
    Passed,
    Phase,
    PreTrainingSignals,
    Tensors,
)
from motley.core.client_names import client_in_words
from motley.core.errors import EngineError, MotleyError
from motley.core.keys import Key
from motley.engines.batches import BatchPlan
from motley.engines.engine import (
    AdaptInputs,
    DataView,
    Job,
    JobInputs,
    Purpose,
    Setting,
    TrainResult,
)
from motley.engines.last_layer_inputs import FrozenModels
from motley.engines.samples import Samples
from motley.engines.trained_module import Batch, TrainedModule, channels_last, set_training
from motley.tasks.batch_orders import batches_of
from motley.tasks.curvature import hutchinson, rademacher
from motley.tasks.finite import became_non_finite
from motley.tasks.nn import Dropout, set_stream
from motley.tasks.task import ModelState
from motley.tasks.transfer import to_device

TUNING = Phase("tune")
"""The phase of fine-tuning before an examination: plain steps, on batches that no training uses."""

StepHook = Callable[[Mapping[str, object], Tensor, Tensor], None]
"""A function called after each step's backward pass with a description of the step (client,
dispatch, steps, step, inputs), the per-sample losses and the flat gradient; the debug engine checks
them."""


class TrainStats(NamedTuple):
    """Statistics of one client's training; NaN without steps.

    Parameters
    ----------
    steps: taken.
    loss: mean over the steps of the batch's mean loss.
    loss_rms: root mean square of the losses of all samples.
    max_grad_norm: largest norm of a batch's gradient; NaN unless wanted.
    """

    steps: int
    loss: float
    loss_rms: float
    max_grad_norm: float = math.nan

    @classmethod
    def of(cls, losses: list[Tensor], norms: list[Tensor]) -> TrainStats:
        """Summarize the per-sample losses of every step and the gradient norms (empty unless they
        are wanted)."""
        if not losses:
            return cls(0, math.nan, math.nan)
        mean = torch.stack([loss.mean() for loss in losses]).double().mean()
        square = torch.cat(losses).double().square().mean()
        read = [mean, square.sqrt(), *([torch.stack(norms).max()] if norms else [])]
        return cls(len(losses), *torch.stack(read).tolist())  # one wait for the device


CHUNK = {False: 1024, True: 256}
"""Samples per forward pass outside training, without and with convolutions; these keep whole images
of features in memory."""
CHUNK_NUMBERS = 2**20
"""Samples times weights, trained or not, and samples times numbers of a sample, of the longer
forward pass that a very small model takes: passes of 1,024 would take most of their time to
begin."""


def longest_pass(setting: Setting, weights: int = 1) -> int:
    """Return the samples of the longest forward pass outside training of a model of so many
    weights: a power of two, for other sizes may have sums in another order."""
    most = CHUNK_NUMBERS // max(setting.task.federation.x[:1].numel(), weights)
    return 2 ** (most.bit_length() - 1) if most else 1


class Client:
    """Trains and measures any client, one at a time: a module whose parameters view a flat vector,
    and the loop of local steps.

    Parameters
    ----------
    setting: of the run.
    samples: of all clients, read-only.
    step_hook: see :data:`StepHook`.
    """

    def __init__(
        self, setting: Setting, samples: Samples, step_hook: StepHook | None = None
    ) -> None:
        self.setting = setting
        self.samples = samples
        self.step_hook = step_hook
        # gradients are read once: no need to gather them in a flat row
        self._direct = setting.solver.plain and step_hook is None
        self.received = TrainedModule(setting, self._direct)
        self.model = self.received.model
        self.received.channels_last = _supports_channels_last(self.model.module, samples)
        # of the models that phases move beside the received one
        self._own: dict[str, TrainedModule] = {}
        self._current: dict[str, object] = {}
        self.convolves = any(isinstance(m, nn.Conv2d) for m in self.model.module.modules())
        # a GPU wants long operations
        self.chunk = CHUNK[self.convolves] * (1 if setting.device == "cpu" else 4)
        if not self.convolves:
            module = self.model.module
            held = sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
            self.chunk = max(self.chunk, longest_pass(setting, held))
        self._draws = any(isinstance(m, Dropout) for m in self.model.module.modules())
        rule = setting.algorithm.local
        self._prepares = setting.algorithm.loss.prepares
        self._sliced = rule.slicing is not None
        self._sends_features = rule.prototypes is not None
        self._measures = rule.measures_features
        self.separates_clients = setting.separates_clients
        if self.separates_clients:
            self.chunk = setting.evaluation_batch or max(1, len(setting.task.federation.x))
        self.frozen = FrozenModels(setting) if setting.algorithm.loss.whole_model else None

    def train(self, job: Job, inputs: JobInputs, want: frozenset[str]) -> TrainResult:
        """Load the received model, take ``job.steps`` steps, and return the upload and signals.

        Raises
        ------
        EngineError: the model or loss failed for this client; ``context`` carries client, dispatch,
        step and inputs.
        """
        self._current = {"client": job.client, "dispatch": job.dispatch, "steps": job.steps}
        try:
            return self._train(job, inputs, want)
        except MotleyError:
            raise
        except Exception as error:
            client = client_in_words(job.client, self.setting.task.federation.client_names)
            raise EngineError(
                f"the local work of {client} failed: {error}", dict(self._current)
            ) from error

    def _train(self, job: Job, inputs: JobInputs, want: frozenset[str]) -> TrainResult:
        setting = self.setting
        start, ctx, phases = context(setting, job, inputs)
        if self._measures:
            ctx, phases = self._measured(job, ctx, start)
        if self._sliced:
            ctx = dataclasses.replace(ctx, classes=self._classes(job))
        self.model.load(start)
        values: dict[str, Tensor] = {}
        stats = self._steps(job, ctx, phases, values, measured="max_grad_norm" in want)
        own = {
            phase.model: self._own[phase.model].model.state()
            for phase in phases
            if phase.model != RECEIVED
        }
        if self._sends_features:
            values |= self._features(job)._asdict()
        return finish(
            setting,
            job,
            ctx=dataclasses.replace(ctx, models=own, values=values),
            after=self.model.state(),
            stats=stats,
            want=want,
        )

    def adapt(self, job: Job, begun: AdaptInputs, purpose: Purpose = "tune") -> ModelState:
        """Return a client's model after its local work for an examination, on batches that no
        training uses."""
        rule = self.setting.algorithm.local
        values = dict[str, Tensor]()
        begun = begun.on(self.setting.device)
        self.model.load(begun.model)
        ctx = tuning_context(self.setting, job, begun)
        if rule.measures_before_examination and purpose != "tune":
            ctx = dataclasses.replace(ctx, measured=self._features(job))
        phases = phases_for(purpose, rule, ctx)
        self._steps(job, ctx, phases, values, measured=False)
        own = {
            phase.model: self._own[phase.model].model.state()
            for phase in phases
            if phase.model != RECEIVED
        }
        if not own or purpose == "examine":
            return self.model.state()
        client_state = rule.finish(
            self.model.state(), dataclasses.replace(ctx, models=own, values=values)
        )[1]
        return rule.examined(ctx.download, client_state)

    def prepare(self, job: Job, ctx: JobContext, start: ModelState) -> Tensors:
        """Return the per-sample tensors that the loss prepares on the model from which a job
        starts, before step 0."""
        self.model.load(start)
        return self._extras(ctx, job) if self._prepares else {}

    def positions(self, job: Job) -> Tensor:
        """Return the positions of the job's samples in ``samples.training``."""
        part = self.samples.training
        return to_device(part.positions(np.array([job.client]), job.data_view), part.rows.device)

    def _measured(
        self, job: Job, ctx: JobContext, start: ModelState
    ) -> tuple[JobContext, tuple[Phase, ...]]:
        """Return the context of a job with features of its samples, and the phases that know
        them."""
        rule = self.setting.algorithm.local
        self.model.load(rule.measured_model(start, ctx))
        ctx = dataclasses.replace(ctx, measured=self._features(job))
        return ctx, rule.phases(ctx)

    def _features(self, job: Job) -> MeasuredFeatures:
        """Return the features of the job's samples under the loaded model."""
        positions = self.positions(job)
        parts = []
        for rows in torch.split(self.samples.rows[positions], self.chunk):
            self.forward(self.samples.inputs(rows))
            parts.append(self.received.features())
        return MeasuredFeatures(
            torch.cat(parts), self.samples.training.targets(positions, job.data_view)
        )

    def _classes(self, job: Job) -> Tensor | None:
        """Return which classes the job's samples have, bool ``[C]``; None where a target is no
        class."""
        federation = self.setting.task.federation
        if federation.targets != "classes" or federation.classes is None:
            return None
        targets = self.samples.training.targets(self.positions(job), job.data_view)
        return torch.bincount(targets, minlength=federation.classes) > 0

    def _steps(
        self,
        job: Job,
        ctx: JobContext,
        phases: Sequence[Phase],
        values: dict[str, Tensor],
        measured: bool,
    ) -> TrainStats:
        """Take the steps of all phases; return the statistics of those that move the received
        model, with gradient norms if they are to be ``measured``. ``values``: filled with those of
        the phases."""
        extras = self._extras(ctx, job) if self._prepares else {}
        if self.frozen is not None:
            self.frozen.load(self.setting.algorithm.loss.frozen(ctx))
        losses: list[Tensor] = []
        norms: list[Tensor] = []
        for group in _side_by_side(phases):
            values.update({name: value for phase in group for name, value in phase.values.items()})
            moved = [(phase, self._module(phase, values)) for phase in group]
            with ExitStack() as stack:
                for phase, trained in moved:
                    if self._draws:
                        key = phase_key(self.setting, "dropout", job, group[0])
                        set_stream(trained.model.module, key)
                    trained.model.module.train(not phase.still)
                    anchor = trained.model.w.clone() if phase.common else ctx.x
                    stack.enter_context(trained.begin(phase, anchor))
                for step, batches in enumerate(self._batches(job, group[0], extras)):
                    weights = {phase.model: trained.model.w for phase, trained in moved}
                    if group[0].joint is None:
                        step_losses = [
                            self._gradient(trained, batches[0], step)
                            if phase.direction is None
                            else self._directed(
                                direction=phase.direction,
                                trained=trained,
                                batches=batches,
                                weights=weights,
                                values=values,
                                step=step,
                            )
                            for phase, trained in moved
                        ]
                    else:
                        step_losses = self._joint_step(moved, batches[0], values)
                    for (phase, trained), loss in zip(moved, step_losses, strict=True):
                        if phase.reported and phase.model == RECEIVED:
                            losses.append(loss)
                            if measured:
                                norms.append(squared_norms([b.g for b in trained.blocks])[0].sqrt())
                        if not phase.still:
                            lr = job.lr if phase.lr is None else phase.lr
                            trained.step(lr, phase.correction.proximal, step)
        return TrainStats.of(losses, norms)

    def _joint_step(
        self,
        moved: Sequence[tuple[Phase, TrainedModule]],
        batch: Batch,
        values: dict[str, Tensor],
    ) -> list[Tensor]:
        """Return the per-sample losses of each model of a step, detached, where models learn from
        what the others make of the batch; the modules' blocks hold the gradients."""
        with ExitStack() as stack:
            for _, trained in moved:
                stack.enter_context(trained.one_sample(batch))
            passed = {phase.model: self._passed(trained, batch) for phase, trained in moved}
        replaced = dict(values)
        losses = []
        for phase, trained in moved:
            own = passed[phase.model]
            others = {name: each.detached() for name, each in passed.items() if name != phase.model}
            joint = own.losses
            if phase.joint is not None:
                seen = dict(values)
                joint = phase.joint(own, others, seen)
                replaced |= {name: seen[name] for name in values if seen[name] is not values[name]}
            losses.append(trained.gradient_of(joint))
            if self.step_hook is not None:
                self.step_hook(self._current, losses[-1], trained.model.g)
        values.update(replaced)
        return losses

    def _passed(self, trained: TrainedModule, batch: Batch) -> Passed:
        """Return what a module makes of a batch."""
        outputs = trained.outputs(batch.inputs)
        losses = self.setting.algorithm.loss.loss(outputs, batch.targets, batch.extra)
        compared = self.setting.algorithm.local.compares_features
        features = trained.features() if compared else None
        return Passed(losses, outputs, features, batch.targets)

    def _directed(
        self,
        direction: Direction,
        trained: TrainedModule,
        batches: Sequence[Batch],
        weights: Mapping[str, Tensor],
        values: dict[str, Tensor],
        step: int,
    ) -> Tensor:
        """Return the per-sample losses of a step in a direction of the phase's own, detached; the
        module's blocks hold it."""
        losses = []

        def gradient(at: Tensor, batch: int = 0, prepared: bool = True) -> Tensor:
            taken = batches[batch] if prepared else batches[batch]._replace(extra={})
            loss, slope = trained.gradient_at(at, taken, self.frozen)
            losses.append(loss)
            return slope

        seen = {**values, **weights}
        trained.turn(direction(gradient, seen, step))
        values.update({name: seen[name] for name in values})
        if self.step_hook is not None:
            self.step_hook(self._current, losses[0], trained.model.g)
        return losses[0]

    def _module(self, phase: Phase, values: Mapping[str, Tensor]) -> TrainedModule:
        """Return the module of the model that a phase moves, loaded with the model from which it
        begins."""
        if phase.model == RECEIVED:
            trained = self.received
        elif phase.model in self._own:
            trained = self._own[phase.model]
        else:
            setting = self.setting.common if phase.common else self.setting
            trained = self._own[phase.model] = TrainedModule(setting, self._direct)
            trained.channels_last = (
                _supports_channels_last(trained.model.module, self.samples)
                if phase.common
                else self.received.channels_last
            )
        if phase.start is not None:
            trained.model.load(phase.start(values) if callable(phase.start) else phase.start)
        return trained

    def _batches(self, job: Job, phase: Phase, extras: Tensors) -> Iterator[list[Batch]]:
        """Yield the batches of each step of a phase."""
        setting = self.setting
        samples = self.samples
        positions = self.positions(job)
        plan = phase_plan(setting, job, phase, len(positions))
        order = to_device(plan.order, samples.rows.device)
        sizes = plan.sizes.tolist()
        rows = torch.split(samples.rows[positions[order]], sizes)
        targets = torch.split(samples.training.targets(positions[order], job.data_view), sizes)
        prepared = {name: torch.split(value[order], sizes) for name, value in extras.items()}
        augment = (
            phase_key(setting, "augment", job, phase) if samples.transform is not None else None
        )

        def batch(number: int) -> Batch:
            inputs = samples.inputs(
                rows[number], augment.fold(number) if augment is not None else None
            )
            self._current.update(step=number, inputs=inputs)
            return Batch(
                inputs, targets[number], {name: parts[number] for name, parts in prepared.items()}
            )

        for step in range(len(plan) // phase.batches):
            yield [batch(step * phase.batches + i) for i in range(phase.batches)]

    def _gradient(self, trained: TrainedModule, batch: Batch, step: int) -> Tensor:
        """Return the per-sample losses of a step, detached; the module's blocks hold the gradient
        of the batch's mean loss."""
        loss = trained.gradient(batch, self.frozen)
        if self.step_hook is not None:
            self.step_hook(self._current, loss, trained.model.g)
        return loss

    def _extras(self, ctx: JobContext, job: Job) -> Tensors:
        """Return the per-sample tensors that the loss prepares; the model is loaded already."""
        positions = self.positions(job)
        inputs = self.samples.inputs(self.samples.rows[positions])
        return self.setting.algorithm.loss.prepare(
            ctx, self.forward, inputs, self.samples.training.targets(positions, job.data_view)
        )

    def mean_gradient(self, rows: Tensor, targets: Tensor) -> Tensor:
        """Return the gradient of the mean loss over these samples, ``[D]``, of the loaded model in
        eval mode.

        The tensor is overwritten by the next gradient.
        """
        self.model.module.eval()
        self.model.g.zero_()
        for batch, wanted in zip(
            torch.split(rows, self.chunk), torch.split(targets, self.chunk), strict=True
        ):
            outputs = self.received.outputs(self.samples.inputs(batch))
            loss = self.setting.algorithm.loss.loss(outputs, wanted, {}).sum() / len(rows)
            loss.backward()  # type: ignore[no-untyped-call]
        return self.model.g

    def recalibrate(
        self,
        state: ModelState,
        client: int,
        batches: int,
        key: Key,
        data_view: DataView | None,
        cumulative: bool = False,
    ) -> ModelState:
        """Return the model after these batches of a client's samples passed through it in training
        mode without dropout; see :meth:`motley.engines.engine.Engine.recalibrate`."""
        part = self.samples.training
        rows = part.rows[to_device(part.positions(np.array([client]), data_view), part.rows.device)]
        draw = BatchPlan.draw(key, len(rows), self.setting.work, batches)
        drawn = torch.split(rows[to_device(draw.order, rows.device)], draw.sizes.tolist())
        self.model.load(state)
        self.train_mode()
        momenta = [norm.momentum for norm in self.received.norms]
        for norm in self.received.norms if cumulative else ():
            norm.momentum = None
        for batch in drawn:
            if len(batch) > 1 or not self.received.refuses_one:
                self.received.outputs(self.samples.inputs(batch))
        for norm, momentum in zip(self.received.norms, momenta, strict=True):
            norm.momentum = momentum
        return self.model.state()

    def curvature(self, job: Job, inputs: JobInputs, trained: TrainResult) -> Tensors:
        """Return the diagonal of the Hessian at the client's final model for each of
        ``job.layers``, ``[n]`` in the flat order.

        One Hutchinson probe on one training batch, drawn by the job's own key
        (docs/methods/compression.md#curvature), in training mode with the batch's BatchNorm
        statistics, without dropout and augmentation. The local rule's own curvature (FedProx: mu)
        is included. Empty where an operation has no second derivative. The loaded model is
        overwritten.
        """
        setting = self.setting
        model = self.model
        start, _, phases = context(setting, job, inputs)
        update = setting.algorithm.local.update(trained.parts).to(start.x)
        model.load(ModelState(start.x + update, start.buffers, start.counters))
        batch, targets = self._one_batch(job)
        self.train_mode()
        if len(batch) == 1 and self.received.refuses_one:
            model.module.eval()
        both = zip(model.layout, self.received.parameters, strict=True)
        probed = [
            (entry, p)
            for entry, p in both
            if entry.layer in job.layers or (setting.probes_model and job.layers)
        ]
        entries = [entry for entry, _ in probed]
        chosen = [p for _, p in probed]
        probe = rademacher(
            setting.key("compress", job).fold("curvature"), [entry.shape for entry in entries]
        )
        try:
            diagonals = hutchinson(
                self.mean_loss(batch, targets), chosen, probe, float(_pull(phases))
            )
        except RuntimeError as error:
            if "derivative" not in str(error):
                raise
            return {}
        parts: dict[str, list[Tensor]] = {}
        for entry, diagonal in zip(entries, diagonals, strict=True):
            if entry.layer in job.layers:
                parts.setdefault(entry.layer, []).append(diagonal.reshape(-1))
        return {layer: torch.cat(pieces).cpu() for layer, pieces in parts.items()}

    def _one_batch(self, job: Job) -> tuple[Tensor, Tensor]:
        """Draw inputs and targets of one batch for the curvature."""
        samples = self.samples
        positions = self.positions(job)
        draw = BatchPlan.draw(
            self.setting.key("compress", job), len(positions), self.setting.work, 1
        )
        at = positions[to_device(draw.order, positions.device)]
        return samples.inputs(samples.rows[at]), samples.training.targets(at, job.data_view)

    def train_mode(self) -> None:
        """Put the model in training mode without dropout: batches normalize, nothing is drawn."""
        self.model.module.train()
        set_training([m for m in self.model.module.modules() if isinstance(m, Dropout)], False)

    def mean_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of the loaded model in its current mode, with the autograd graph."""
        return self.setting.algorithm.loss.loss(self.received.outputs(inputs), targets, {}).mean()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the loaded model in eval mode, without gradients, computed in
        chunks."""
        self.model.module.eval()
        with torch.no_grad():
            parts = [self.received.outputs(batch) for batch in torch.split(inputs, self.chunk)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def context(
    setting: Setting, job: Job, inputs: JobInputs
) -> tuple[ModelState, JobContext, tuple[Phase, ...]]:
    """Return the model a client starts from, the context of its job, and the phases of its local
    work.

    ``JobContext.x`` is the starting model: the received one after the rule's ``start``.
    """
    download = inputs.download
    client_state = inputs.client_states.get(job.client)
    start = setting.algorithm.local.start(download, client_state)
    examples = int(setting.task.federation.seen[job.client])
    norm = setting.solver.solver_norm(job.steps, 0.0, job.lr)
    signals = inputs.pre_training.get(job.client, PreTrainingSignals())
    ctx = JobContext(
        x=start.x,
        download=download,
        client_state=client_state,
        steps=job.steps,
        lr=job.lr,
        num_examples=examples,
        solver_norm=norm,
        layout=setting.task.layout,
        pre_training=signals,
        mean_examples=setting.mean_examples,
    )
    phases = setting.algorithm.local.phases(ctx)
    pull = _pull(phases)
    if pull:
        norm = setting.solver.solver_norm(job.steps, pull, job.lr)
        ctx = dataclasses.replace(ctx, solver_norm=norm)
    return start, ctx, phases


def _pull(phases: Sequence[Phase]) -> float:
    """Return the strength of the proximal term in the first phase that moves the received model; 0
    if none moves it."""
    return next((phase.correction.proximal for phase in phases if phase.model == RECEIVED), 0.0)


def tuning_context(setting: Setting, job: Job, begun: AdaptInputs) -> JobContext:
    """Return the context of a job before an examination."""
    examples = int(setting.task.federation.seen[job.client])
    model = begun.model
    return JobContext(
        x=model.x,
        download=vars(model) if begun.download is None else begun.download,
        client_state=begun.client_state,
        steps=job.steps,
        lr=job.lr,
        num_examples=examples,
        solver_norm=1.0,
        layout=setting.task.layout,
    )


def phases_for(purpose: Purpose, rule: LocalRule, ctx: JobContext) -> tuple[Phase, ...]:
    """Return the phases of a client's local work before an examination."""
    personal = rule.personal
    if personal is None or purpose == "tune":
        return (TUNING,)
    if purpose == "new":
        return personal.adaptation(ctx)
    before = personal.before_examination
    return () if before is None else before(ctx)


def phase_key(setting: Setting, purpose: str, job: Job, phase: Phase) -> Key:
    """Return the random stream of a job's phase for one purpose."""
    key = setting.key(purpose, job)
    return key.fold(phase.name) if phase.name else key


def phase_plan(setting: Setting, job: Job, phase: Phase, examples: int) -> BatchPlan:
    """Draw the batches of a job's phase, of a client with so many samples; those of the run's own
    streams follow the task's order, where it has one."""
    steps = job.steps
    order = setting.task.batches
    if order is not None and not phase.name:
        taken = range(job.earlier_steps, job.earlier_steps + steps)
        batches = batches_of(order, setting.streams.seed, job.client, taken, examples=examples)
        return BatchPlan.of(batches)
    work = setting.work.of(job.client)
    if phase.epochs is not None:
        # 1e-9: 0.28 * 25 is a bit more than 7 in floats, and would be an eighth step.
        steps = math.ceil(phase.epochs * int(work.batches(examples)) - 1e-9)
    return BatchPlan.draw(
        phase_key(setting, "batches", job, phase), examples, work, steps * phase.batches
    )


def finish(
    setting: Setting,
    job: Job,
    ctx: JobContext,
    after: ModelState,
    stats: TrainStats,
    want: frozenset[str],
) -> TrainResult:
    """Return a job's upload, client state and signals from the model after training and the
    training statistics."""
    rule = setting.algorithm.local
    sent, new_state = rule.finish(after, ctx)
    parts = {name: _on_cpu(part) for name, part in sent.items()}
    client_state = (
        None if new_state is None else {name: value.cpu() for name, value in new_state.items()}
    )
    signals: dict[str, float | NDArray[np.float64]] = {"loss": stats.loss}
    if "loss_rms" in want:
        signals["loss_rms"] = stats.loss_rms
    if "max_grad_norm" in want:
        signals["max_grad_norm"] = stats.max_grad_norm
    if "update_norm" in want:
        signals["update_norm"] = float((after.x - ctx.x).double().norm())
    finite = (not stats.steps or math.isfinite(stats.loss)) and not any(
        became_non_finite(part.value, ctx.download.get(name)) for name, part in parts.items()
    )
    return TrainResult(
        client=job.client,
        parts=parts,
        client_state=client_state,
        steps=stats.steps,
        signals=signals,
        finite=finite,
        unsent=rule.unsent_values(parts) if finite and rule.lengths_follow_values else 0,
    )


def _on_cpu(part: Part) -> Part:
    return part._replace(
        value=part.value.cpu(), held=None if part.held is None else part.held.cpu()
    )


def squared_norms(gradients: Iterable[Tensor]) -> Tensor:
    """Return the squared Euclidean norm of each client's gradient, float64 ``[c]``, from blocks
    ``[c, ...]``."""
    return torch.stack(
        [
            torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1, dtype=torch.float64).square()
            for g in gradients
        ]
    ).sum(0)


def _supports_channels_last(module: nn.Module, samples: Samples) -> bool:
    """Whether a module convolves images and can do so in channels-last format, which is a quarter
    faster on a CPU.

    A module that calls ``view`` on its activations cannot; ``flatten`` and ``reshape`` are fine.
    Tried on two samples."""
    if not any(isinstance(m, nn.Conv2d) for m in module.modules()) or not len(samples.rows):
        return False
    module.eval()
    with torch.no_grad():
        inputs = samples.inputs(samples.rows[:2])
        if inputs.ndim != 4:
            return False
        try:
            module(channels_last(inputs))
        except RuntimeError:
            # any other failure comes back in training, where its error is reported
            return False
    return True


def _side_by_side(phases: Sequence[Phase]) -> list[list[Phase]]:
    """Return the phases in groups that take their steps together."""
    groups: list[list[Phase]] = []
    for phase in phases:
        if phase.beside:
            groups[-1].append(phase)
        else:
            groups.append([phase])
    return groups
