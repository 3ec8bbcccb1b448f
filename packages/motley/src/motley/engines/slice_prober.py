"""Probes of clients that received slices of a model: each is measured on a module of its own width,
at this width's cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motley.algorithms.parts import Tensors
from motley.core.arrays import Floats, Ints
from motley.core.keys import Key
from motley.core.sketch import Sketch
from motley.engines.engine import DataView, Slices
from motley.engines.prober import Prober
from motley.engines.sliced_client import SlicedClient


def measure_slices(
    prober: Prober,
    client: SlicedClient,
    clients: Ints,
    download: Tensors,
    want: Mapping[str, int | None],
    key: Key,
    data_view: DataView | None,
    slices: Slices,
) -> dict[str, Floats]:
    """Return the wanted signals of clients, each measured on its slice of the received model; see
    :meth:`Engine.measure`.

    Parameters
    ----------
    prober: of the whole model.
    client: has the modules of all widths.
    slices: of each of the clients.
    """
    size = prober.setting.task.layout.size
    sketch = Sketch.signal("gradient_sketch", prober.setting.streams, size)
    lengths: dict[str, tuple[int, ...]] = {"gradient": (size,), "gradient_sketch": (sketch.width,)}
    signals = {name: np.full((len(clients), *lengths.get(name, ())), np.nan) for name in want}
    for width in np.unique(slices.widths).tolist():
        at = np.flatnonzero(slices.widths == width)
        own = client.at(width)
        received = client.received_slice(download, width, slices.offset)
        held = received.get("held")
        narrow = Prober(own.setting, prober.samples, own, inner=prober.inner, held=held)
        view = None if data_view is None else data_view[at]
        for name, batches in want.items():
            measured = "gradient" if name == "gradient_sketch" else name
            values = narrow.measure(
                clients[at],
                download=received,
                client_states={},
                want={measured: batches},
                key=key,
                data_view=view,
            )[measured]
            if measured == "gradient":
                values = client.full_gradients(values, width, slices.offset)
            signals[name][at] = (
                [sketch.of(row) for row in values] if name == "gradient_sketch" else values
            )
    return signals
