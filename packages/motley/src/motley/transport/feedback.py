"""Error feedback around any compressor: the client keeps what was not sent and adds it to a later
update.

Stich, Cordonnier, Jaggi: *Sparsified SGD with Memory*, NeurIPS 2018 (memory); Masud, Jahin, Hasan:
HeteRo-Select, arXiv:2508.06692v2 (decay); Richtarik, Sokolov, Fatkhullin: *EF21: A New, Simpler,
Theoretically Better, and Practically Faster Error Feedback*, NeurIPS 2021 (arXiv:2106.05203;
partial participation: arXiv:2110.03294).

    none      v = delta                         keeps nothing
    fixed     v = delta + e,   e <- b (v - C(v))       b = 1: nothing is lost; b < 1: decay
    adaptive  the same with    b(t) = low + (high - low) (1 - theta_t),  0.85 and 0.97;
              theta_t the round's budget
    ef21      v = delta - g,   g <- g + C(v)
              the server keeps the mean of all g: mean <- mean + 1/K sum C(v)

Symbols: ``delta`` update of the trainable parameters, ``C`` the compressor's decoded output, after
quantization; ``e``, ``g`` the client's state ``[D]``, from 0; K all clients.

:func:`compress_update` returns the packet, its decoded vector and the client's next state. The next
state replaces the old one when the upload is accepted: after a lost, late or rejected upload the
old one stays, and e decays only when its client takes part.

Deviations and readings
-----------------------
* For a sparsifier ``sent + kept = v`` holds bit for bit before the decay; at theta = 1, e = 0.
* HeteRo-Select calls b < 1 "the EF21 condition"; EF21 has no decay
  (docs/methods/compression.md#error-feedback).
* INTERPRETATION-D EF21 tracks the update in place of a gradient; a client that does not take part
  keeps g, which still counts in the server's mean (EF21-PP). With a falling learning rate g is in
  old units.
* Random-k scaled up, unit signs, QSGD of few levels and the like do not contract:
  :meth:`Feedback.refuses` says so.
* For top-k by magnitude ``||v - C(v)||^2 <= (1 - kept / D) ||v||^2``; curvature scores can break
  this. Memories of clients that come rarely grow stale: hence the decay.
* Under EF21 the server needs the sum of the uploads only; with partial participation even all
  values sent are not FedAvg.

Worked
------
Two of four values, delta = (4, -3, 2, 1), (0, 1, 1, 1), (1, 0, 0, 0). b = 1: see below; e ends at 0
and everything arrived. b = .9 sends (4, -3, 0, 0), (0, 0, 2.8, 1.9), (1, .9, 0, 0) and loses (0,
.1, .2, .1). The adaptive b is .85 at theta_t = 1, .9364 at .28, .9556 at .12. EF21, target (3, 1),
one value, g = 0: (3, 0), (3, 1), (3, 1).

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Layout
>>> from motley.transport.compressors.topk import TopK
>>> compressor, layout, state = TopK(), Layout(()), None
>>> for delta in ([4.0, -3.0, 2.0, 1.0], [0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]):
...     update = torch.tensor(delta)
...     sent = compress_update(Fixed(1.0), compressor, update, state, 0.5, 0.5, layout, Key(0))
...     state = sent.client_state
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
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.transport.compressors.compressor import NONE, Compressor, Tensors, require_finite
from motley.transport.compressors.topk import TopK
from motley.transport.packet import Codes, Packet


class CompressedUpdate(NamedTuple):
    """One compressed update.

    Parameters
    ----------
    packet: the packet that is sent.
    update: ``[D]``, the update that the server decodes from it.
    client_state: the client's next state, if the upload is accepted; empty if there is nothing to
    keep.
    """

    packet: Packet
    update: Tensor
    client_state: Tensors


class Feedback(ABC):
    """An error-feedback rule. Subclasses are frozen dataclasses of options.

    ``state_name``: name of its vector in the client's state, None if it keeps nothing.
    ``incremental``: whether uploads are increments of a vector that the server tracks, and not
    updates.
    """

    paper: ClassVar[Paper | None] = None
    state_name: ClassVar[str | None] = None  # the name of its vector in the client's memory
    # True: what arrives changes a vector that the server keeps, and is no update itself
    incremental: ClassVar[bool] = False

    @abstractmethod
    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        """Return the vector to compress, ``[D]``, from the update and the client's vector."""

    @abstractmethod
    def next_state(
        self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float
    ) -> Tensor | None:
        """Return the client's next vector, ``[D]``; ``budget``: theta_t of the round."""

    def update_mean(self, mean: Tensor, changes: Tensor, population: int) -> Tensor:
        """Return the mean of all clients' vectors, which the server of an ``incremental`` rule
        tracks, after a step whose unweighted increments add up to ``changes`` ``[D]``."""
        raise NotImplementedError(f"{type(self).__name__} sends no increments")

    def refuses(self, compressor: Compressor, size: int) -> str | None:
        """Return why this rule does not go with a compressor of updates of ``size`` values; None if
        it does."""
        return compressor.refuses_feedback(size) if self.state_name else None


@dataclass(frozen=True)
class NoFeedback(Feedback):
    """No error feedback: what is not sent is lost."""

    @override
    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        return delta

    @override
    def next_state(
        self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float
    ) -> None:
        pass


class _ErrorMemory(Feedback):
    """Error feedback with a residual e: ``v = delta + e``, then ``e <- b (v - C(v))``."""

    state_name: ClassVar[str | None] = "e"

    @abstractmethod
    def factor(self, budget: float) -> float:
        """Return b in a round of budget theta_t."""

    @override
    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        return delta if state is None else delta + state

    @override
    def next_state(
        self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float
    ) -> Tensor:
        if isinstance(packet.places, Tensor) and not isinstance(packet.values, Codes):
            # the same numbers as below, without a dense vector
            left = v.clone().index_fill_(0, packet.places, 0.0)
        else:
            left = v - update
        b = self.factor(budget)
        return left if b == 1.0 else left.mul_(b)


@dataclass(frozen=True)
class Fixed(_ErrorMemory):
    """Error feedback with a constant ``decay`` b: 1 loses nothing, 0.9 is HeteRo-Select's static
    ablation."""

    paper: ClassVar[Paper] = TopK.paper
    decay: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ConfigError(
                f"got decay = {self.decay}; expected above 0, at most 1 (for no error feedback: "
                'feedback = "none")'
            )

    @override
    def factor(self, budget: float) -> float:
        return self.decay


@dataclass(frozen=True)
class Adaptive(_ErrorMemory):
    """Error feedback whose decay factor grows as the budget shrinks: ``low`` at theta = 1, ``high``
    at theta = 0."""

    paper: ClassVar[Paper] = cite("masud2026heteroselect")
    low: float = 0.85
    high: float = 0.97

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high <= 1:
            raise ConfigError(
                f"got low = {self.low}, high = {self.high}; expected 0 < low <= high <= 1, 0.85 "
                "and 0.97 in the paper"
            )

    @override
    def factor(self, budget: float) -> float:
        return self.low + (self.high - self.low) * (1.0 - budget)


@dataclass(frozen=True)
class EF21(Feedback):
    """EF21: compress the difference between the update and a vector that client and server both
    keep."""

    paper: ClassVar[Paper] = cite("richtarik2021ef21")
    state_name: ClassVar[str | None] = "g"
    incremental: ClassVar[bool] = True

    @override
    def vector(self, delta: Tensor, state: Tensor | None) -> Tensor:
        return delta if state is None else delta - state

    @override
    def next_state(
        self, v: Tensor, packet: Packet, update: Tensor, state: Tensor | None, budget: float
    ) -> Tensor:
        # Cloned: the decoded update is the aggregator's, too.
        return update.clone() if state is None else state + update

    def update_mean(self, mean: Tensor, changes: Tensor, population: int) -> Tensor:
        """Return ``mean + changes / population``, the mean of all clients' g."""
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
    delta: ``[D]``.
    client_state: the client's state after its last accepted upload.
    ratio: share of the vector that may be sent.
    budget: theta_t of the round, which sets the adaptive decay.
    key: of the client's dispatch.
    curvature: by layer, if measured.

    Raises
    ------
    CodecError: an update that is not finite, or not after scaling; the client's state does not
    change.
    """
    if feedback.state_name is None or client_state is None:
        state = None
    else:
        state = client_state.get(feedback.state_name)
    v = feedback.vector(delta, state)
    packet = compressor.compress(v, ratio, layout, key, curvature)
    require_finite(packet.values.scales if isinstance(packet.values, Codes) else packet.values)
    update = packet.dense()
    after = feedback.next_state(v, packet, update, state, budget)
    own = {} if feedback.state_name is None or after is None else {feedback.state_name: after}
    return CompressedUpdate(packet, update, {**own, **compressor.next_state(packet, layout)})
