"""The workshop: the jobs of the accepted, each on its own version, with its own memory and batches, and what they send."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from motley.algorithms.base import Tensors, Upload
from motley.engines.base import Job, TrainResult
from motley.rounds.aggregation import Numbered, corrupted
from motley.rounds.data_drift import DriftView
from motley.rounds.in_flight import InFlight
from motley.rounds.server_signals import ServerSignals
from motley.rounds.upload import UploadPipeline

__all__ = ["Train", "uploads"]

Train = Callable[[Sequence[Job], Tensors], Iterator[TrainResult]]
"""Jobs of one version and what they received -> what they send, in their order."""


def uploads(
    landed: InFlight,
    accepted: NDArray[np.int64],
    downloads: Mapping[int, Tensors],
    train: Train,
    decoded: ServerSignals,
    results: dict[int, TrainResult],
    tides: DriftView,
    press: UploadPipeline,
) -> Numbered:
    """Train the accepted (rows of ``landed``), version by version, and yield what is sound, and its row, in order of client id (one
    version streams). ``results`` takes in what came of each row, without its upload. ``tides``: what clients saw when sent out.
    ``press``: what becomes of updates on their way."""
    versions = landed.timelines.version[accepted]
    kept: dict[int, Upload] = {}
    for version in np.unique(versions):
        chosen = accepted[versions == version]
        lines, lr = landed.timelines[chosen], landed.columns["lr"][chosen]
        seen = tides.seen(landed.take(chosen))
        planned = zip(lines.client, lines.dispatch, lines.steps, lr, seen, strict=True)
        theta = landed.columns["theta"][chosen].tolist()
        jobs = [
            Job(int(c), int(d), int(s), float(r), data_view, press.layers(share, int(d), int(c)))
            for (c, d, s, r, data_view), share in zip(planned, theta, strict=True)
        ]
        download = downloads[int(version)]
        stream = press.through(corrupted(train(jobs, download), landed.columns["factor"][chosen]), landed.take(chosen))
        for i, rate, (done, meant) in zip(chosen.tolist(), lr.tolist(), stream, strict=True):
            made = decoded.signals({**done.parts, **meant}, download, rate * done.steps) if done.finite else {}
            results[i] = dataclasses.replace(done, parts={}, signals={**done.signals, **made})
            if done.finite:
                kept[i] = Upload(done.parts, float(landed.columns["weight"][i]), client=done.client)
                if len(chosen) == len(accepted):
                    yield i, kept.pop(i)
    for i in sorted(kept):
        yield i, kept[i]
