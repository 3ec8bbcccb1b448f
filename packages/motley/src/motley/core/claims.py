"""What clients say about themselves, by topic: the signals and columns of reports that only a
client's word stands for.

Signals that the server makes of uploads (``sketch``, ``last_layer``, gradients after training) are
none of them: a client changes these by what it uploads, and ``failures = "corrupted"`` is for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from motley.core.arrays import Floats
from motley.core.records import Outcome, Reports

TOPICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "loss": ("loss", "arrival_loss", "loss_rms", "robust_loss", "val_loss", "test_loss"),
        "num_examples": ("num_examples",),
        "norms": ("grad_norm", "max_grad_norm", "update_norm"),
        "gradients": ("gradient", "gradient_sketch"),
        "label_histogram": ("label_histogram",),
        "durations": (
            *("download_s", "compute_s", "upload_s"),
            *("download_estimate_s", "compute_estimate_s", "upload_estimate_s", "uplink_mbps"),
        ),
        "cosine": ("cosine",),
    }
)
"""Topic -> names of signals and of columns of :class:`~motley.core.records.Reports`."""

MEASURED_BY_SERVER = frozenset({"update_norm", "cosine", "download_s", "compute_s", "upload_s"})
"""Names in :data:`TOPICS` that a server can measure itself, of an upload that it receives and of
its own clock."""

COLUMNS = frozenset({"num_examples", "download_s", "compute_s", "upload_s"})
When = str
"""``enrolled``, ``probed`` or ``reported``."""


def said(reports: Reports) -> tuple[When, dict[str, Floats]]:
    """Return the occasion of these reports, and the values that are the clients' own word by name,
    ``[n]`` or ``[n, d]``.

    All reports of one occasion come together, so that the first tells it. Columns in which every
    number is absent are left out.
    """
    first = int(reports.outcome[0]) if len(reports) else Outcome.ENROLLED
    when = {Outcome.ENROLLED: "enrolled", Outcome.PROBED: "probed"}.get(Outcome(first), "reported")
    server_made = TOPICS["gradients"] if when == "reported" else ()
    values = {}
    for name in (name for names in TOPICS.values() for name in names if name not in server_made):
        if name in COLUMNS and name not in reports.signals:
            value = getattr(reports, name)
        else:
            value = reports.signals.get(name)
        if (
            value is not None
            and len(value)
            and not np.isnan(value[:1] if not value.strides[0] else value).all()
        ):
            values[name] = value
    return when, values


def with_values(reports: Reports, values: Mapping[str, Floats]) -> Reports:
    """Return the reports with other values under these names, in signals and columns alike."""
    signals = {name: values.get(name, value) for name, value in reports.signals.items()}
    names = (
        "version",
        "num_examples",
        "local_steps",
        "staleness",
        "download_s",
        "compute_s",
        "upload_s",
        "bits_up",
        "bits_down",
    )
    columns = {
        name: values[name] if name in values and name in COLUMNS else getattr(reports, name)
        for name in names
    }
    return Reports(reports.ids, reports.outcome, **columns, signals=signals)


def row_sizes(values: Floats) -> Floats:
    """Return the numbers themselves ``[n]``, or the Euclidean norm of each row of ``[n, d]``,
    without overflow where it fits.

    >>> [f"{size:.6g}" for size in row_sizes(np.array([[3e200, 4e200]]))]
    ['5e+200']
    """
    if values.ndim == 1:
        return values
    # Scaled by the largest entry: squares of 1e200 overflow, and those of 1e-200 vanish.
    largest = np.abs(values).max(axis=1, initial=0.0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(scale[:, 0] * np.sqrt(((values / scale) ** 2).sum(axis=1)))
