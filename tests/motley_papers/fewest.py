"""Few of many experiments that use all that these use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from motley.experiments.config import Experiment


def distinct(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Return few of many experiments that together use every component, word and flag of all,
    chosen greedily."""
    left = [(experiment, set(_choices(experiment.resolved()))) for experiment in experiments]
    seen: set[tuple[str, ...]] = set()
    out = []
    while left := [(experiment, choices) for experiment, choices in left if not choices <= seen]:
        most, choices = max(left, key=lambda candidate: len(candidate[1] - seen))
        seen |= choices
        out.append(most)
    return out


def _choices(keys: Mapping[str, Any], owner: str = "") -> Iterator[tuple[str, ...]]:
    for key, value in keys.items():
        if isinstance(value, Mapping):
            yield from _choices(
                value,
                f"{owner}{value.get('name', '')}/{key}" if "name" in value else f"{owner}/{key}",
            )
        elif (
            isinstance(value, str | bool)
            and key not in ("data", "model")
            and (owner or key not in ("name", "method"))
        ):
            yield owner, key, str(value)
