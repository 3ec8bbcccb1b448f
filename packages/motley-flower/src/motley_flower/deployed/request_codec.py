"""Writes requests and reads answers: what a client sends is checked against what was agreed, before
it is used.

The form of every upload is known when it is requested: names, sizes and dtypes of its parts, and
how many values of the update travel. An answer that is longer, of another form, for another
dispatch, or that holds a number that is not finite is a :class:`~motley.core.errors.CodecError`: it
costs its sender this round, and no other client anything.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from motley.algorithms.parts import Part, Parts
from motley.core.arrays import Floats
from motley.core.errors import CodecError
from motley.core.outliers import LARGEST_NUMBER
from motley.core.records import HISTOGRAM, SignalRequirements
from motley.core.untrusted import one_line
from motley.engines.engine import REPORTED, Job, TrainResult
from motley.experiments.config import Experiment
from motley.rounds.run_config import RunConfig
from motley.tasks.finite import without_constants
from motley.transport import wire
from motley.transport.packet import PacketSpec
from motley_flower.checked_numbers import signal_shape
from motley_flower.deployed.dispatches import DeployedDispatch
from motley_flower.deployed.private_plan import plan_of
from motley_flower.deployed.protocol import (
    CONSTANTS,
    SPARE,
    Answer,
    Noise,
    Order,
    agreement,
    open_answer,
    packet_spec,
)
from motley_flower.deployed.ranks import narrowed, widened
from motley_flower.messages import SHARE

MOST_EXAMPLES = 2**40
"""Training samples that a client may say it has."""


class RequestCodec:
    """Writes the requests of one run, and reads their answers.

    Parameters
    ----------
    experiment, config: of the run.
    requirements: signals that the selector needs.
    parts: of a whole upload.
    masked: bytes of an upload under secure aggregation; None: uploads are read one by one.
    """

    def __init__(
        self,
        experiment: Experiment,
        config: RunConfig,
        requirements: SignalRequirements,
        parts: Parts,
        masked: int | None = None,
    ) -> None:
        self.agreed = agreement(experiment)
        self.config = config
        self.setting = config.setting
        self.whole = parts
        self.specs = {name: packet_spec(part.value) for name, part in parts.items()}
        self.masked = masked
        self.private = config.privacy is not None
        always: set[str] = set()
        if not self.private:
            always = {"loss", "update_norm"} if masked is None else {"loss"}
        self.want = tuple(sorted(frozenset(requirements.reported) & REPORTED | always))
        enrolled = {"num_examples", HISTOGRAM} & requirements.enrolled
        if self.setting.algorithm.local.slicing is not None:
            enrolled |= {SHARE}
        self.enrolled = tuple(sorted(enrolled if self.private else {*enrolled, "num_examples"}))
        self.noise: dict[str, Noise] = {}
        self.most_examples = 0
        plan = plan_of(config)
        if plan is not None:
            options = plan.options
            self.noise = {
                name: (how.noise, how.low, how.high, how.multiplier)
                for name, how in options.signal_noise.items()
            }
            self.most_examples = options.max_examples or 0

    def largest_answer(self, probed: Collection[str]) -> int:
        """Return the bytes that a client's answer may have, at most; ``probed``: signals that a
        client may be asked to measure before training."""
        upload = wire.length(self.specs) if self.masked is None else self.masked
        if not self.config.upload_config.plain:
            upload = 2 * upload  # every number with its place
        size = self.setting.task.layout.size
        measured = 8 * sum(math.prod(signal_shape(name, size)) for name in probed)
        return SPARE + max(upload, measured)

    def enrol(self, run: str, client: int) -> Order:
        """Return the request to report what a client has."""
        return Order(
            "enrol", run, self.agreed, client, want=self.enrolled, noise=self._noise(self.enrolled)
        )

    def probe(
        self,
        run: str,
        client: int,
        round: int,
        accepted: int,
        wanted: Mapping[str, int | None],
        model: bytes,
        width: float,
    ) -> Order:
        """Return the request to measure a model; ``accepted``: number of the client's last accepted
        dispatch, -1 for none; ``width``: share of the ranks that the model has."""
        noise = self._noise(wanted)
        return Order(
            kind="probe",
            run=run,
            agreed=self.agreed,
            client=client,
            round=round,
            kept=accepted,
            width=width,
            probed=dict(wanted),
            noise=noise,
            model=model,
        )

    def secure(self, run: str, client: int, round: int, data: bytes) -> Order:
        """Return a step of secure aggregation."""
        return Order(
            kind="secure", run=run, agreed=self.agreed, client=client, round=round, secure=data
        )

    def read_secure(self, order: Order, data: object) -> bytes:
        """Return a client's answer to a step of secure aggregation; raises as
        :meth:`read_enrolment`."""
        return self._read(order, data, SPARE + (self.masked or 0)).upload

    def train(
        self, run: str, dispatch: DeployedDispatch, accepted: int, model: bytes, secure: bytes = b""
    ) -> Order:
        """Return the request to train a model; ``secure``: what the client needs to mask its
        update."""
        return Order(
            kind="train",
            run=run,
            agreed=self.agreed,
            client=dispatch.client,
            round=dispatch.draw_index,
            dispatch=dispatch.dispatch,
            kept=accepted,
            steps=dispatch.steps,
            lr=dispatch.lr,
            theta=dispatch.theta,
            budget=dispatch.budget,
            width=dispatch.width,
            want=dispatch.want,
            noise=self._noise(dispatch.want),
            most_examples=self.most_examples,
            model=model,
            secure=secure,
        )

    def _phase_steps(self, dispatch: DeployedDispatch) -> int:
        """Return the steps that a client takes beside those it is asked for."""
        batches = self.setting.work.batches([dispatch.examples], np.array([dispatch.client]))
        return math.ceil(self.setting.algorithm.local.phase_epochs * int(batches[0]) - 1e-9)

    def _noise(self, names: Iterable[str]) -> dict[str, Noise]:
        return {name: self.noise[name] for name in names if name in self.noise}

    def read_enrolment(self, order: Order, data: object) -> tuple[int, dict[str, Floats]]:
        """Return a client's number of samples, and what else it reports at enrolment.

        In a private run the number is unknown, and 1; whatever is reported has noise.

        Raises
        ------
        CodecError: no sound answer to this request.
        """
        classes = self.setting.task.federation.classes or 0
        shapes = {name: (classes,) if name == HISTOGRAM else () for name in order.want}
        signals = self._read_signals(order, data, shapes)
        if self.private:
            for name, value in signals.items():
                # of a histogram nothing may be left
                if np.isinf(value).any() or (np.isnan(value).any() and name != HISTOGRAM):
                    raise CodecError(f"got {name} that are not finite")
            return 1, {name: np.atleast_1d(value) for name, value in signals.items()}
        share = float(signals.get(SHARE, 1.0))
        if not 0 < share <= 1:
            raise CodecError(f"got a client that holds the share {share:g}; expected one in (0, 1]")
        for name, value in signals.items():
            if name != SHARE and not (
                np.isfinite(value).all() and (value >= 0).all() and (value == np.floor(value)).all()
            ):
                raise CodecError(f"got {name} that are not whole numbers of at least 0")
        examples = float(signals["num_examples"])
        if examples > MOST_EXAMPLES:
            raise CodecError(
                f"got a client with {examples:g} samples; expected at most {MOST_EXAMPLES}"
            )
        counts = signals.get(HISTOGRAM, np.zeros(0))
        if (counts > examples).any():
            raise CodecError(
                f"got {counts.max():g} samples of one label from a client with {examples:g} samples"
            )
        reported = {HISTOGRAM, SHARE}.intersection(order.want)
        return int(examples), {name: np.atleast_1d(signals[name]) for name in sorted(reported)}

    def read_measured(self, order: Order, data: object) -> dict[str, Floats]:
        """Return what a probe measured; raises as :meth:`read_enrolment`."""
        size = self.setting.task.layout.size
        return self._read_signals(
            order, data, {name: signal_shape(name, size) for name in order.probed}
        )

    def read_trained(
        self, run: str, dispatch: DeployedDispatch, data: object, buffers: Tensor | None = None
    ) -> tuple[TrainResult, Answer]:
        """Return what a client sends after training; ``finite`` is False where it says itself that
        it has nothing to send. ``buffers``: of the server's model; numbers that are not finite in
        them may come back.

        Raises
        ------
        CodecError: anything but the upload that was requested.
        """
        specs = self.expected(dispatch)
        length = wire.length(specs) if self.masked is None else self.masked
        answer = self._read(self.train(run, dispatch, -1, b""), data, length + SPARE)
        checked = _checked(answer, dict.fromkeys(dispatch.want, ()))
        # those at their cap are not asked for
        signals = {name: float(checked.get(name, np.nan)) for name in self.want}
        most = dispatch.steps + self._phase_steps(dispatch)
        if not 0 <= answer.steps <= most:
            raise CodecError(f"got {answer.steps} local steps; expected 0 to {most}")
        result = partial(
            TrainResult,
            client=dispatch.client,
            client_state=None,
            steps=answer.steps,
            signals=signals,
        )
        if not answer.finite or (
            answer.steps and not math.isfinite(signals.get("loss", 0.0)) and "loss" in dispatch.want
        ):
            return result(parts={}, finite=False), answer
        if self.masked is not None:
            dispatch.masked = answer.upload
            return result(parts={}, finite=True), answer
        packets = wire.decode(answer.upload, specs, CONSTANTS)
        before = dict.fromkeys(CONSTANTS, buffers)
        values = {
            name: _sound(name, packets[name].dense(), before.get(name)) for name in self.whole
        }
        held = None
        if dispatch.width < 1:
            layout = self.setting.task.layout
            values["delta"], held = widened(values["delta"], layout, dispatch.width)
        parts = {
            name: Part(
                values[name].reshape(p.value.shape), p.fold, held if name == "delta" else None
            )
            for name, p in self.whole.items()
        }
        return result(parts=parts, finite=True), answer

    def expected(self, dispatch: DeployedDispatch) -> dict[str, PacketSpec]:
        """Return how each part of the upload that this client was asked for is written."""
        job = Job(dispatch.client, dispatch.dispatch, dispatch.steps, dispatch.lr)
        upload = self.config.upload_config
        layout = self.setting.task.layout
        if dispatch.width < 1:
            delta = narrowed(self.whole["delta"].value, layout, dispatch.width)
            return {**self.specs, "delta": packet_spec(delta)}
        if upload.plain or "delta" not in self.specs:
            return self.specs
        key = self.setting.key("compress", job)
        return {
            **self.specs,
            "delta": upload.compressor.spec(dispatch.theta, layout, key, self.setting.dtype),
        }

    def _read_signals(
        self, order: Order, data: object, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Floats]:
        answer = self._read(
            order, data, SPARE + 8 * sum(math.prod(shape) for shape in shapes.values())
        )
        return _checked(answer, shapes)

    def _read(self, order: Order, data: object, limit: int) -> Answer:
        answer = open_answer(data, limit)
        named, requested = ((a.run, a.client, a.round, a.dispatch) for a in (answer, order))
        if named != requested:
            received, expected = (
                f"client {a.client}, round {a.round}, dispatch {a.dispatch}"
                for a in (answer, order)
            )
            origin = "" if answer.run == order.run else " of another deployment"
            raise CodecError(
                f"got the answer to another request{origin} ({received}); expected {expected}"
            )
        return answer


def _sound(name: str, value: Tensor, before: Tensor | None) -> Tensor:
    """Return the values of a part, if nothing that a server computes from them overflows: codes
    times a scale may be infinite, and so may the square of a number. Numbers that are not finite
    and the same ``before`` do not count.

    Raises
    ------
    CodecError: a value that is not finite, or too large.
    """
    if value.is_floating_point() and value.numel():
        largest = math.sqrt(torch.finfo(value.dtype).max)
        changed = without_constants(value, before)
        low, high = (float(end) for end in changed.aminmax())  # NaN and infinity come along
        if not -largest <= low <= high <= largest:
            raise CodecError(
                f"part {name!r} holds a number that is not finite, or larger than {largest:.0e}"
            )
    return value


def _checked(answer: Answer, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    """Return the signals of an answer by name, sorted: exactly those asked for, of these shapes."""
    if answer.signals.keys() != shapes.keys():
        differing = ", ".join(
            one_line(name, 40) for name in sorted(answer.signals.keys() ^ shapes.keys())[:4]
        )
        raise CodecError(f"got other signals than were asked for: {differing}")
    signals = {name: np.asarray(answer.signals[name], np.float64) for name in sorted(shapes)}
    for name, value in signals.items():
        if value.shape != shapes[name]:
            raise CodecError(
                f"got the signal {name!r} of shape {list(value.shape)}; expected "
                f"{list(shapes[name])}"
            )
        # a loss that is infinite says that training diverged, and its upload is not finite either
        infinite = np.isinf(value).any() and name != "loss"
        if infinite or (np.abs(value[np.isfinite(value)]) > LARGEST_NUMBER).any():
            raise CodecError(f"got the signal {name!r} with a number above {LARGEST_NUMBER:.2g}")
    return signals
