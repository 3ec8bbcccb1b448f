"""Names and numbers of findings as readers see them, on the terminal and on the page."""

from __future__ import annotations

from math import isfinite, isnan

from motley.results.blocks import DASH
from motley.results.number_text import short_number
from motley_advice.heterogeneity.findings import Finding

_TITLES = {
    "size_gini": "sizes: Gini",
    "largest_share": "sizes: largest share",
    "label_divergence": "labels: divergence",
    "missing_classes": "labels: missing classes",
    "label_distance": "labels: distance",
    "effective_classes": "labels: in effect",
    "label_noise": "labels: hard or wrong",
    "label_noise_spread": "labels: hard or wrong, spread",
    "step_s": "seconds per local step",
    "up_mbps": "uplink",
    "probe_all_bytes": "probing all: traffic",
    "probe_all_s": "probing all: time",
    "round_s": "length of a round",
    "waiting": "waiting in a round",
    "B2": "B^2",
    "B2_after": "B^2 after the rounds",
}
_SCALES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def title(name: str) -> str:
    """Return a finding's name for readers.

    >>> title("speed_spread"), title("size_gini"), title("drift_after")
    ('speed spread', 'sizes: Gini', 'drift after the rounds')
    """
    plain = name.replace("_", " ")
    return _TITLES.get(name, f"{plain} the rounds" if plain.endswith(" after") else plain)


def value_text(finding: Finding, value: float | None = None) -> str:
    """Return a finding's value, or another number of its kind, with its unit; a dash where it was
    not measured."""
    value = finding.value if value is None else value
    if isnan(value):
        return DASH
    if not isfinite(value):
        return "no limit"
    if finding.unit == "bytes":
        return bytes_in_words(value)
    if finding.unit == "groups":
        return f"{value:.0f} group{'s' * (value != 1)}"
    if finding.unit in ("", "share", "cosine", "distance", finding.name):
        unit = ""
    else:
        unit = f" {finding.unit}"
    return short_number(value) + unit


def interval_text(finding: Finding) -> str:
    """Return ``low to high``; nothing without an interval."""
    if isnan(finding.low) or isnan(finding.high):
        return ""
    return f"{value_text(finding, finding.low)} to {value_text(finding, finding.high)}"


def bytes_in_words(size: float) -> str:
    """Return a number of bytes in words.

    >>> bytes_in_words(0), bytes_in_words(4100), bytes_in_words(2.5e9)
    ('0 bytes', '4.10 kB', '2.50 GB')
    """
    for scale, unit in _SCALES:
        if size >= scale:
            return f"{short_number(size / scale)} {unit}"
    return f"{size:.0f} bytes"
