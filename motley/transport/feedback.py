"""Error feedback, written once around every compressor: what was not sent waits at the client.

Stich, Cordonnier, Jaggi: *Sparsified SGD with Memory*, NeurIPS 2018 (memory); Masud, Jahin, Hasan: HeteRo-Select, arXiv:2508.06692v2
(decay); Richtarik, Sokolov, Fatkhullin: *EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback*, NeurIPS
2021. Reference: docs/methods/compression.md#error-feedback, docs/methods/compression.md#ef21.

    none      v = delta                         keeps nothing
    fixed     v = delta + e,   e <- b (v - C(v))              b = 1: nothing is ever lost; b < 1 forgets
    adaptive  the same with    b(t) = low + (high - low) (1 - theta_t),  0.85 and 0.97;  theta_t the round's budget
    ef21      v = delta - g,   g <- g + C(v)                  the server keeps the mean of all g: mean <- mean + 1/K sum C(v)

Symbols: ``delta`` update of the trainable parameters, ``C`` the compressor's decoded output, quantised values included; ``e``, ``g``
client memory ``[D]``, from 0; K all clients.

:func:`compress_update` returns the packet, its decoded vector and the client's next state. The next state replaces the old one when
the upload is accepted: after a lost, late or rejected upload the old one stays, and e decays only when its client takes part.

Deviations and readings
-----------------------
* For a sparsifier ``sent + kept = v`` holds bit for bit before the decay; at theta = 1, e = 0.
* HeteRo-Select calls b < 1 "the EF21 condition"; EF21 has no decay (docs/methods/compression.md#error-feedback).
* INTERPRETATION-D EF21 tracks the update in place of a gradient; who is absent keeps g, and still counts in the server's mean
  (EF21-PP). With a falling learning rate g is in old units.
* Random-k scaled up, unit signs and the like do not contract: :meth:`Feedback.refuses` says so.

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Layout
>>> from motley.transport.compressors.topk import TopK
>>> layout, memory = Layout(()), None
>>> for delta in ([4.0, -3.0, 2.0, 1.0], [0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]):
...     sent = compress_update(Fixed(1.0), TopK(), torch.tensor(delta), memory, 0.5, 0.5, layout, Key(0))
...     memory = sent.client_state
...     sent.update.tolist()
[4.0, -3.0, 0.0, 0.0]
[0.0, 0.0, 3.0, 2.0]
[1.0, 1.0, 0.0, 0.0]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper
from motley.transport.compressors.base import NONE, Compressor, Tensors, require_finite
from motley.transport.compressors.topk import TopK
from motley.transport.packet import Codes, Packet

__all__ = ["EF21", "Adaptive", "CompressedUpdate", "Feedback", "Fixed", "NoFeedback", "compress_update"]


class CompressedUpdate(NamedTuple):
    """One compressed update.

    Parameters
    ----------
    packet: what travels. update: ``[D]`` what the server reads from it. memory: the client's next one, if the upload is accepted;
    empty when there is nothing to keep.
    """

    packet: Packet
    update: Tensor
    client_state: Tensors


class Feedback(ABC):
    """What a client does with what it did not send. Subclasses are frozen dataclasses of options."""

    paper: ClassVar[Paper | None] = None
    state_name: ClassVar[str | None] = None  # the name of its vector in the client's memory
    incremental: ClassVar[bool] = False  # True: what arrives changes a vector that the server keeps, and is no update itself

    @abstractmethod
    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        """What is compressed, ``[D]``."""

    @abstractmethod
    def next_state(self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float) -> Tensor | None:
        """What is kept, ``[D]``; ``budget``: theta_t of the round."""

    def update_mean(self, mean: Tensor, changes: Tensor, population: int) -> Tensor:
        """Where it is ``incremental``, the server's side: the mean of all clients' vectors after a step whose changes, unweighted, add
        up to ``changes`` ``[D]``."""
        raise NotImplementedError(f"{type(self).__name__} sends no changes")

    def refuses(self, compressor: Compressor) -> str | None:
        """Why it cannot go around this compressor; None when it can."""
        return compressor.refuses_feedback() if self.state_name else None


@dataclass(frozen=True)
class NoFeedback(Feedback):
    """What is not sent is lost."""

    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        """The update."""
        return delta

    def next_state(self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float) -> None:
        """Nothing."""


class _Memory(Feedback):
    """``v = delta + e``."""

    state_name: ClassVar[str | None] = "e"

    @abstractmethod
    def factor(self, budget: float) -> float:
        """b, in the round whose budget is theta_t."""

    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        """The update and the memory."""
        return delta if state is None else delta + state

    def next_state(self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float) -> Tensor:
        """``b (v - C(v))``."""
        if isinstance(packet.places, Tensor) and not isinstance(packet.values, Codes):
            left = v.clone().index_fill_(0, packet.places, 0.0)  # the same numbers as below, without the dense detour
        else:
            left = v - update
        b = self.factor(budget)
        return left if b == 1.0 else left.mul_(b)


@dataclass(frozen=True)
class Fixed(_Memory):
    """Memory with a constant ``decay`` b: 1 keeps everything, 0.9 is HeteRo-Select's static ablation."""

    paper: ClassVar[Paper] = TopK.paper
    decay: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ConfigError(f'got decay = {self.decay}; expected above 0, at most 1 (to keep nothing: feedback = "none")')

    def factor(self, budget: float) -> float:
        """``decay``."""
        return self.decay


@dataclass(frozen=True)
class Adaptive(_Memory):
    """Memory whose decay follows the budget: the less is sent, the longer it is remembered; ``low``, ``high``: at theta 1 and 0."""

    paper: ClassVar[Paper] = Paper(
        "masud2025heteroselect",
        "HeteRo-Select: Informativeness as the Participation Driver in Federated Learning",
        ("Md. Akmol Masud", "Md Abrar Jahin", "Mahmud Hasan"),
        "arXiv preprint arXiv:2508.06692v2",
        2025,
        "https://arxiv.org/abs/2508.06692v2",
    )
    low: float = 0.85
    high: float = 0.97

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high <= 1:
            raise ConfigError(
                f"got low = {self.low}, high = {self.high}; expected 0 < low <= high <= 1, 0.85 and 0.97 in the paper"
            )

    def factor(self, budget: float) -> float:
        """b(t)."""
        return self.low + (self.high - self.low) * (1.0 - budget)


@dataclass(frozen=True)
class EF21(Feedback):
    """Compresses the change of a vector that client and server both keep."""

    paper: ClassVar[Paper] = Paper(
        "richtarik2021ef21",
        "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback",
        ("Peter Richt{\\'a}rik", "Igor Sokolov", "Ilyas Fatkhullin"),
        "Advances in Neural Information Processing Systems (NeurIPS)",
        2021,
        "https://arxiv.org/abs/2106.05203",
    )
    state_name: ClassVar[str | None] = "g"
    incremental: ClassVar[bool] = True

    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        """How far the update is from g."""
        return delta if state is None else delta - state

    def next_state(self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float) -> Tensor:
        """``g + C(v)``."""
        return update.clone() if state is None else state + update

    def update_mean(self, mean: Tensor, changes: Tensor, population: int) -> Tensor:
        """The server's side: the mean over all clients' g after a round whose changes, unweighted, add up to ``changes`` ``[D]``."""
        return (mean.double() + changes.double() / population).to(mean.dtype)


def compress_update(
    feedback: Feedback,
    compressor: Compressor,
    delta: Tensor,
    client_state: Mapping[str, Tensor] | None,
    ratio: float,
    budget: float,
    layout: Layout,
    key: Key,
    curvature: Tensors = NONE,
) -> CompressedUpdate:
    """Compress one client's update.

    Parameters
    ----------
    delta: ``[D]``. memory: what the client kept of its last accepted upload. theta: its share. budget: theta_t of the round, which
    sets the adaptive decay. key: of the client's dispatch. extras: curvature by layer, if it was wanted.

    Raises
    ------
    CodecError: an update that is not finite, or no longer is when it is scaled; nothing of it reaches the memory.
    """
    state = None if feedback.state_name is None or client_state is None else client_state.get(feedback.state_name)
    v = feedback.vector(delta, state)
    packet = compressor.compress(v, ratio, layout, key, curvature)
    require_finite(packet.values.scales if isinstance(packet.values, Codes) else packet.values)
    update = packet.dense()
    after = feedback.next_state(v, packet, update, state, budget)
    own = {} if feedback.state_name is None or after is None else {feedback.state_name: after}
    return CompressedUpdate(packet, update, {**own, **compressor.next_state(packet, layout)})
