"""Top-k: the coordinates of the largest scores are sent, unchanged; the rest is left to error
feedback.

Stich, Cordonnier, Jaggi: *Sparsified SGD with Memory*, NeurIPS 2018 (magnitude); Masud, Jahin,
Hasan: *HeteRo-Select: Informativeness as the Participation Driver in Heterogeneous Federated
Learning*, arXiv:2508.06692v2 (curvature).

    kept = max(1, min(D, ceil(theta D - 1e-6)));
    the coordinates of the largest s_i are sent, ties to the lowest index
    magnitude   s_i = v_i^2
    curvature   s_i = v_i^2 / (|H_ii| + eps)  on Q layers of the client,  v_i^2 elsewhere;
                all layers in one top-k
    rescale     on those layers s_i times  sum v^2 / sum (v^2 / (|H| + eps)):
                a layer keeps its total score (INTERPRETATION-D)
    p_l = (1 - lambda) q_l / sum q + lambda / L
                Q layers, drawn without replacement, one after the other

Symbols: ``v`` update plus residual ``[D]``; ``H_ii`` one Hutchinson probe at the client's final
model (``curvature``, by layer); ``q_l`` share of layer l that the client's previous mask picked
(``density``), or the layer's share of the mask (``count``).

State, per client: ``picked`` ``[L]``, coordinates of each layer in the previous mask. No mask, or
an empty one: uniform layers.
Cost: O(D); under curvature a double backward pass over one batch.

Deviations and readings
-----------------------
* READING a layer is a module with parameters of its own (weight and bias together), in the order of
  the flat vector.
* READING ``share = "density"``, as the authors' code has it; HeteRo-Select v2's text allows the
  layer's share of the mask (``"count"``), too.
* Literal scores inflate the Q layers where |H| is well below 1
  (docs/methods/compression.md#curvature); that is the paper's method and the default.
* Compared are roots, ``|v| / sqrt(|H| + eps)``: the same order, and squares of small updates cannot
  underflow into ties.
* ``guard = "clamp"`` is the authors' code (docs/methods/hetero-select.md#code, row 2):
  ``max(|H|, 1e-6)`` for ``|H| + eps``; ``rounding = "floor"`` is its
  ``kept = max(1, floor(theta D))`` (docs/methods/hetero-select.md#code, row 1).
* ``probe = "model"`` is the code's, too: one probe of the whole model, of which the Q layers are
  used. Each entry has the same mean, and also the noise of the other layers' mixed derivatives; a
  probe of the ``layers`` alone sets these to zero and costs less.
* ``per_tensor = true`` keeps a share theta of each parameter tensor, at least one value each, as
  FLSim prunes (docs/methods/compression.md#contract); by default all of the vector competes at
  once.
* A layer whose curvature was not measured (a kernel without double backward) competes with v^2. No
  curvature is wanted at theta = 1, where it could not matter.
* INTERPRETATION eps = 1e-6 (the text names none; the code's clamp has this value).
* Curvature costs two to three passes over one batch, and is skipped in the warm-up; magnitude alone
  is slightly better in the paper's own ablation (Table II; its text says worse).

Worked
------
v = (3, 2, 1), H = (10, 1, .1): s = (.9, 4, 10), the order reversed. Mask shares (.6, .3, .1, 0), L
= 4, lambda = .2: p = (.53, .29, .13, .05). Sizes (1000, 10), picked (100, 5): density (.1667,
.8333), count (.9524, .0476).

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Entry, Layout
>>> v, h = torch.tensor([3.0, -2.0, 1.0, 0.5]), {"a": torch.tensor([10.0, 1.0])}
>>> layout = Layout((Entry("a.weight", "a", (2,), 0), Entry("b.weight", "b", (2,), 2)))
>>> TopK().compress(v, 0.5, layout, Key(0)).indices().tolist()
[0, 1]
>>> TopK(criterion="curvature").compress(v, 0.5, layout, Key(0), h).indices().tolist()
[1, 2]
>>> TopK(criterion="curvature", rescale=True).compress(v, 0.5, layout, Key(0), h).indices().tolist()
[0, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from motley.core.errors import ConfigError, ContractError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.transport.compressors.compressor import Sparsifier, Tensors, coding_of, kept_of
from motley.transport.compressors.largest import largest
from motley.transport.packet import Packet, PacketSpec


@dataclass(frozen=True)
class TopK(Sparsifier):
    """The share ``theta`` of coordinates with the largest scores.

    Parameters
    ----------
    criterion: the score.
    layers: Q, number of layers whose curvature is measured.
    uniform: lambda, uniform share of the layers' probabilities.
    share: statistic of the previous mask that gives the probabilities.
    rescale, guard, rounding, eps, per_tensor, probe: see the module.
    """

    paper: ClassVar[Paper] = cite("stich2018sparsified")
    criterion: Literal["magnitude", "curvature"] = "magnitude"
    rescale: bool = False
    layers: int = 3
    uniform: float = 0.2
    share: Literal["density", "count"] = "density"
    guard: Literal["add", "clamp"] = "add"
    rounding: Literal["ceil", "floor"] = "ceil"
    eps: float = 1e-6
    per_tensor: bool = False
    probe: Literal["layers", "model"] = "layers"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("criterion", ("magnitude", "curvature")),
            ("share", ("density", "count")),
            ("guard", ("add", "clamp")),
            ("rounding", ("ceil", "floor")),
            ("probe", ("layers", "model")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)!r}; expected {allowed[0]!r} or "
                    f"{allowed[1]!r}"
                )
        if self.layers < 1:
            raise ConfigError(
                f"got layers = {self.layers}; expected at least 1 (no layers at all is criterion = "
                '"magnitude")'
            )
        if not 0 <= self.uniform <= 1:
            raise ConfigError(
                f"got uniform = {self.uniform}; expected a share between 0 and 1, 0.2 in the paper"
            )
        if not 0 < self.eps < math.inf:
            raise ConfigError(
                f"got eps = {self.eps}; expected a small positive number, it keeps flat directions "
                "finite"
            )

    def kept(self, ratio: float, size: int) -> int:
        """Return how many of ``size`` competing coordinates are sent."""
        if self.rounding == "floor" and ratio < 1:
            return max(min(size, 1), math.floor(ratio * size + 1e-6))
        return kept_of(ratio, size)

    @override
    def spec(
        self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32
    ) -> PacketSpec:
        sent = sum(self.kept(ratio, b - a) for a, b in self._pools(layout.size, layout))
        return PacketSpec(layout.size, sent, "indices", coding=coding_of(dtype))

    @override
    def choose(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors
    ) -> Packet:
        pools = self._pools(len(v), layout)
        if ratio == 1:
            return Packet(len(v), v, torch.arange(len(v)))
        roots = self.roots(v, layout, curvature).numpy()
        chosen = [a + largest(roots[a:b], self.kept(ratio, b - a)) for a, b in pools]
        at = torch.from_numpy(chosen[0] if len(chosen) == 1 else np.concatenate(chosen))
        return Packet(len(v), v[at], at)

    def _pools(self, size: int, layout: Layout) -> list[tuple[int, int]]:
        """Return the ranges of coordinates that compete with each other."""
        return [(e.slice.start, e.slice.stop) for e in layout] if self.per_tensor else [(0, size)]

    def roots(self, v: Tensor, layout: Layout, curvature: Tensors) -> Tensor:
        """Return the square roots of the scores, ``[D]``."""
        out = v.abs()
        if self.criterion == "magnitude":
            return out
        for layer, place in layout.layers.items():
            if layer in curvature:
                out[place] = self._curved(v[place], curvature[layer].cpu())
        return out

    def _curved(self, v: Tensor, diagonal: Tensor) -> Tensor:
        """Return the square roots of one layer's scores, computed in float64 because 1 / eps is
        large."""
        if diagonal.shape != v.shape:
            raise ContractError(
                f"got a curvature of shape {list(diagonal.shape)} for a layer of {len(v)} "
                "parameters"
            )
        h = torch.nan_to_num(diagonal.double().abs(), nan=0.0, posinf=math.inf)
        root = (
            v.double().abs()
            / (h.clamp(min=self.eps) if self.guard == "clamp" else h + self.eps).sqrt()
        )
        if self.rescale:
            mine = float(root.square().sum())
            total = float(v.double().square().sum())
            root *= math.sqrt(total / mine) if mine else 1.0
        return root.to(v.dtype)

    def curvature_layers(
        self, ratio: float, layout: Layout, key: Key, client_state: Tensors | None
    ) -> tuple[str, ...]:
        """Return Q layers drawn with :meth:`layer_probabilities`, in the order of the layout."""
        if self.criterion == "magnitude" or self.kept(ratio, layout.size) == layout.size:
            return ()
        names = list(layout.layers)
        p = self.layer_probabilities(layout, client_state)
        with np.errstate(divide="ignore"):
            # the Q shortest times: successive draws
            times = key.fold("layers").exponential(np.arange(len(names)))[:, 0] / p
        # In the layout's order, not in that of the draw: both ends then know where a layer lies.
        return tuple(names[i] for i in np.sort(np.argsort(times, kind="stable")[: self.layers]))

    @property
    @override
    def probes_model(self) -> bool:
        return self.probe == "model"

    def layer_probabilities(
        self, layout: Layout, client_state: Tensors | None
    ) -> NDArray[np.float64]:
        """Return the layers' probabilities in the first draw, ``[L]``."""
        sizes = _layer_sizes(layout)
        if client_state is None or "picked" not in client_state:
            q = np.zeros(len(sizes))
        else:
            q = client_state["picked"].double().numpy()
        if self.share == "density":
            q = q / np.maximum(sizes, 1)
        if not q.sum() > 0:
            return np.full(len(sizes), 1.0 / len(sizes))
        mixed: NDArray[np.float64] = (1.0 - self.uniform) * q / q.sum() + self.uniform / len(sizes)
        return mixed

    def next_state(self, packet: Packet, layout: Layout) -> Tensors:
        """Return ``picked``; nothing under magnitude."""
        if self.criterion == "magnitude":
            return {}
        ends = np.cumsum(_layer_sizes(layout))
        below = np.searchsorted(packet.indices().numpy(), ends)
        return {"picked": torch.from_numpy(np.diff(below, prepend=0).astype(np.float64))}

    def initial_state(self, layout: Layout) -> Tensors:
        """Return a mask without coordinates; nothing under magnitude."""
        if self.criterion == "magnitude":
            return {}
        return {"picked": torch.zeros(len(_layer_sizes(layout)), dtype=torch.float64)}


def _layer_sizes(layout: Layout) -> NDArray[np.int64]:
    """Return the number of parameters of each layer; layers must follow each other in the flat
    vector."""
    places = list(layout.layers.values())
    starts = [0, *(place.stop for place in places)]
    if [place.start for place in places] != starts[:-1] or starts[-1] != layout.size:
        raise ContractError(
            "the layers of this model do not follow each other in the flat vector; use criterion = "
            "'magnitude'"
        )
    return np.array([place.stop - place.start for place in places])
