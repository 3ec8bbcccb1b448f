"""Runs grouped by method, with the method that the others are compared with: the *reference*."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from motley.core.errors import ConfigError, suggest
from motley.results.comparison_file import reference_runs
from motley.results.load import Run

USUAL = ("uniform", "fedavg")
"""What methods are compared with where nobody chose: the first whose name is made of these alone,
else the first of all."""


class MethodGroups(dict[str, list[Run]]):
    """Label of a method -> its runs by seed, in the order of rows.

    Parameters
    ----------
    groups: label -> runs.
    against: label of the reference; None takes the one that :func:`motley.compare` was given for
        these runs, else by :data:`USUAL`.
    plain_intervals: whether the interval of each difference is that of one comparison alone; else
        those of a table hold together.

    Raises
    ------
    ConfigError: ``against`` is none of the labels, or ``plain_intervals`` neither true nor false.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[Run]],
        against: str | None = None,
        plain_intervals: bool = False,
    ) -> None:
        super().__init__({label: list(runs) for label, runs in groups.items()})
        if against is not None and against not in self:
            raise unknown_reference(against, self)
        check_flags({"plain_intervals": plain_intervals})
        self.reference = against or _chosen(self) or usual_reference(self)
        self.plain_intervals = plain_intervals


def check_flags(flags: Mapping[str, object]) -> None:
    """Refuse arguments (name -> value) that are neither true nor false: any text would count as
    true.

    Raises
    ------
    ConfigError: one is something else.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"got {value!r}; expected true or false", name)


def unknown_reference(against: str, labels: Sequence[str] | Mapping[str, object]) -> ConfigError:
    """Return the error that no method is called so."""
    return ConfigError(
        f"got {against!r}{suggest(against, labels)}; expected one of the methods: "
        f"{'; '.join(labels)}",
        "against",
    )


def reference_of(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return the label of the method that the others are compared with."""
    return (
        groups.reference if _have_reference(groups) else _chosen(groups) or usual_reference(groups)
    )


def plain_intervals(groups: Mapping[str, Sequence[Run]]) -> bool:
    """Return whether intervals of differences are those of one comparison alone."""
    return _have_reference(groups) and groups.plain_intervals


def method_numbers(groups: Mapping[str, Sequence[Run]]) -> list[int]:
    """Return the number of each method, in the order of rows: it gives the colour. The reference
    has 0, so that it looks the same whatever it is compared with; the others count from 1."""
    labels = labels_by_number(groups)
    return [labels.index(label) for label in groups]


def labels_by_number(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return the labels in the order of their numbers: the reference, then the others."""
    reference = reference_of(groups)
    return [reference, *(label for label in groups if label != reference)]


def _have_reference(groups: Mapping[str, Sequence[Run]]) -> TypeGuard[MethodGroups]:
    return isinstance(groups, MethodGroups)


def _chosen(groups: Mapping[str, Sequence[Run]]) -> str | None:
    """Return the method that the comparison of these runs was asked to compare with."""
    chosen = reference_runs(run.directory for runs in groups.values() for run in runs)
    return next(
        (label for label, runs in groups.items() if any(run.directory in chosen for run in runs)),
        None,
    )


def usual_reference(groups: Iterable[str]) -> str:
    """Return the label of the reference where nobody chose: see :data:`USUAL`; "" of none."""
    labels = list(groups)
    usual = (label for label in labels if {*label.split(", ")} <= {*USUAL})
    return next(usual, next(iter(labels), ""))
