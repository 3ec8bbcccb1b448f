"""The desk: where orders are written and answers are opened. What a client sends is held against what was agreed, before it is used.

Every upload has a form that is known when it is asked for: names, sizes and dtypes of its parts, and how many values of the update
travel. An answer that is longer, of another form, for another dispatch, or that holds a number that is not finite is a
:class:`~motley.core.errors.CodecError`: it costs its sender this round, and nobody else anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.adapters.flower.checks import signal_shape
from motley.adapters.flower.deployed.protocol import SPARE, Answer, Order, agreement, form_of, open_answer
from motley.algorithms.base import Part, ServerState
from motley.core.arrays import Floats
from motley.core.errors import CodecError
from motley.core.records import Outcome
from motley.engines.base import REPORTED, Job, TrainResult
from motley.experiments.build import Ready
from motley.experiments.config import Experiment
from motley.rounds.channel import empty_upload
from motley.rounds.in_flight import DISPATCH_COLUMNS, InFlight
from motley.timing.timeline import Timelines
from motley.transport import wire
from motley.transport.packet import PacketSpec

__all__ = ["Flight", "RequestCodec", "columns", "timelines"]


MOST_EXAMPLES = 2**40
"""Training samples that a client may say it has."""


@dataclass(eq=False)
class Flight:
    """One client sent out, and what became of it.

    Parameters
    ----------
    client .. budget: of the order. weight, score: of its update. paper_bits: its upload, as papers count. bits_down: of its letter.
    start_s, expires_s: when it was sent, and when it is given up. message: the mailbox's number of its letter.
    arrives_s: when the answer came; infinite before. compute_s: seconds of work, as the client says. bits_up: of its answer.
    outcome: as soon as that is known. trained: what it sent, checked. scale: for its age.
    """

    client: int
    dispatch: int
    version: int
    round: int
    steps: int
    lr: float
    theta: float
    budget: float
    weight: float
    score: float
    rehearsal: bool
    examples: int
    paper_bits: int
    bits_down: int
    start_s: float
    expires_s: float
    message: str = ""
    arrives_s: float = math.inf
    compute_s: float = math.nan
    bits_up: int = 0
    outcome: Outcome | None = None
    trained: TrainResult | None = field(default=None, repr=False)
    scale: float = 1.0


def timelines(flights: Sequence[Flight]) -> Timelines:
    """As a synchrony sees them: who has not delivered yet arrives never."""
    ints = {n: np.array([getattr(f, n) for f in flights], np.int64) for n in ("client", "dispatch", "version", "steps")}
    start, arrives = (np.array([getattr(f, n) for f in flights], np.float64) for n in ("start_s", "arrives_s"))
    dropped = np.array([f.outcome == Outcome.DROPPED for f in flights], bool)
    return Timelines(**ints, start_s=start, downloaded_s=arrives, computed_s=arrives, arrives_s=arrives, dropped=dropped)


def columns(flights: Sequence[Flight]) -> InFlight:
    """As reports and rows are made of them. READING: a server measures how long an answer took, and the client says how long it
    worked; the rest was under way, and is divided between the way down and the way up as their bytes are."""
    lines = timelines(flights)
    down, up = (np.array([getattr(f, n) for f in flights], np.float64) for n in ("bits_down", "bits_up"))
    whole = np.where(np.isfinite(lines.arrives_s), lines.arrives_s - lines.start_s, np.nan)
    work = np.fmin(np.fmax(np.array([f.compute_s for f in flights], np.float64), 0.0), whole)
    downloaded = lines.start_s + (whole - work) * down / np.maximum(down + up, 1.0)
    computed, arrives = downloaded + work, np.where(np.isfinite(lines.arrives_s), lines.arrives_s, np.nan)
    seen = Timelines(
        lines.client, lines.dispatch, lines.version, lines.steps, lines.start_s, downloaded, computed, arrives, lines.dropped
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = np.where(arrives > computed, up / (arrives - computed) / 1e6, np.nan)
    known: dict[str, NDArray[Any]] = {
        n: np.array([getattr(f, n, 0) for f in flights], dtype) for n, dtype in DISPATCH_COLUMNS.items()
    }
    return InFlight(seen, {**known, "up_mbps": speed})


class RequestCodec:
    """Writes the orders of one run, and opens their answers.

    Parameters
    ----------
    experiment, ready: of the run. server: its state before round 1. run: its name among sites.
    """

    def __init__(self, experiment: Experiment, ready: Ready, server: ServerState, run: str) -> None:
        self.run, self.agreed, self.plan = run, agreement(experiment), ready.plan
        self.setting = ready.plan.setting
        self.whole = empty_upload(self.setting.algorithm.correction, server, ready.model, self.setting.task.layout)
        self.forms = {name: form_of(part.value) for name, part in self.whole.items()}
        self.want = sorted(frozenset(ready.selector.rule.needs().reported) & REPORTED | {"loss", "update_norm"})
        self.enrolled = sorted(ready.selector.rule.needs().enrolled & {"label_histogram"})

    def enrol(self, client: int) -> Order:
        """Tell what you have."""
        return Order("enrol", self.run, self.agreed, client, want=tuple(self.enrolled))

    def probe(self, client: int, round: int, kept: int, wanted: Mapping[str, int | None], model: bytes) -> Order:
        """Measure this model."""
        return Order("probe", self.run, self.agreed, client, round, kept=kept, probed=dict(wanted), model=model)

    def train(self, flight: Flight, kept: int, model: bytes) -> Order:
        """Train this model."""
        return Order(
            "train", self.run, self.agreed, flight.client, flight.round, flight.dispatch, kept, flight.steps, flight.lr,
            flight.theta, flight.budget, tuple(self.want), model=model,
        )  # fmt: skip

    def told(self, order: Order, data: object) -> tuple[int, dict[str, Floats]]:
        """A client's number of samples, and what else it tells at enrolment.

        Raises
        ------
        CodecError: no sound answer to this order.
        """
        classes = self.setting.task.federation.classes or 0
        shapes = {"num_examples": (), **dict.fromkeys(order.want, (classes,))}
        signals = self._signals(order, data, shapes)
        for name, value in signals.items():
            if not (np.isfinite(value).all() and (value >= 0).all() and (value == np.floor(value)).all()):
                raise CodecError(f"got {name} that are not whole numbers of at least 0")
        examples = float(signals["num_examples"])
        if examples > MOST_EXAMPLES:
            raise CodecError(f"got a client with {examples:g} samples; expected at most {MOST_EXAMPLES}")
        return int(examples), {name: signals[name] for name in order.want}

    def measured(self, order: Order, data: object) -> dict[str, Floats]:
        """What a probe measured; as :meth:`told`."""
        size = self.setting.task.layout.size
        return self._signals(order, data, {name: signal_shape(name, size) for name in order.probed})

    def _signals(self, order: Order, data: object, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
        answer = self._answer(order, data, SPARE + 8 * sum(math.prod(shape) for shape in shapes.values()))
        return _checked(answer, shapes)

    def _answer(self, order: Order, data: object, limit: int) -> Answer:
        answer = open_answer(data, limit)
        named, asked = ((a.run, a.client, a.round, a.dispatch) for a in (answer, order))
        if named != asked:
            raise CodecError(f"got the answer to another order (round {answer.round}, dispatch {answer.dispatch})")
        return answer

    def expected(self, flight: Flight) -> dict[str, PacketSpec]:
        """The form of what this client was asked to send."""
        upload_config, job = self.plan.upload_config, Job(flight.client, flight.dispatch, flight.steps, flight.lr)
        if upload_config.plain or "delta" not in self.forms:
            return self.forms
        key, layout = self.setting.key("compress", job), self.setting.task.layout
        return {**self.forms, "delta": upload_config.compressor.spec(flight.theta, layout, key, self.setting.dtype)}

    def trained(self, flight: Flight, data: object) -> tuple[TrainResult, Answer]:
        """What a client sends after training; ``finite`` is False where it says itself that it has nothing to send.

        Raises
        ------
        CodecError: anything but the upload that was asked for.
        """
        forms = self.expected(flight)
        answer = self._answer(self.train(flight, -1, b""), data, wire.length(forms) + SPARE)
        signals = {name: float(value) for name, value in _checked(answer, dict.fromkeys(self.want, ())).items()}
        if not 0 <= answer.steps <= flight.steps:
            raise CodecError(f"got {answer.steps} local steps; expected 0 to {flight.steps}")
        if not answer.finite or (answer.steps and not math.isfinite(signals["loss"])):
            return TrainResult(flight.client, {}, None, answer.steps, signals, False), answer
        packets = wire.decode(answer.upload, forms)
        parts = {
            name: Part(_sound(name, packets[name].dense()).reshape(p.value.shape), p.fold) for name, p in self.whole.items()
        }
        return TrainResult(flight.client, parts, None, answer.steps, signals, True), answer


def _sound(name: str, value: Tensor) -> Tensor:
    """The values of a part, if nothing that a server computes of them overflows: codes times a scale may be infinite, and numbers
    whose squares are would be the end of the model."""
    if value.is_floating_point() and value.numel():
        largest = math.sqrt(torch.finfo(value.dtype).max)
        low, high = (float(end) for end in value.aminmax())  # NaN and infinity come along
        if not -largest <= low <= high <= largest:
            raise CodecError(f"part {name!r} holds a number that is not finite, or larger than {largest:.0e}")
    return value


def _checked(answer: Answer, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    """The signals of an answer by name, in order; all that are asked for, none besides, of these shapes."""
    if answer.signals.keys() != shapes.keys():
        other = ", ".join(_short(answer.signals.keys() ^ shapes.keys()))
        raise CodecError(f"got other signals than were asked for: {other}")
    found = {name: np.asarray(answer.signals[name], np.float64) for name in sorted(shapes)}
    for name, value in found.items():
        if value.shape != shapes[name]:
            raise CodecError(f"got the signal {name!r} of shape {list(value.shape)}; expected {list(shapes[name])}")
    return found


def _short(names: Iterable[str]) -> list[str]:
    return [name[:40] for name in sorted(names)[:4]]
