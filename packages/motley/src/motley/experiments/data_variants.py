"""Which variants of public data sets an experiment reads, and the refusal of results that are of
other ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motley.core.errors import StoreError
from motley.core.extensions import extension

if TYPE_CHECKING:
    from motley.experiments.config import Experiment


def data_variants(experiment: Experiment, folder: Path | None = None) -> dict[str, str]:
    """Return the public data sets that an experiment names and the variants that would be read now;
    those that are found at all. None without ``motley-data``, which knows them.

    Parameters
    ----------
    folder: searched first.
    """
    names = (
        experiment.task.get("data"),
        experiment.public.data if experiment.public is not None else None,
    )
    return named_variants(names, folder)


def named_variants(names: Iterable[object], folder: Path | None = None) -> dict[str, str]:
    """Return the variant that would be read now of each public data set among values of ``data``;
    those that are found at all. None without ``motley-data``, which knows them."""
    variants = extension("data", "variants")
    return {} if variants is None else dict(variants(names, folder))


def check_variants(
    record: Mapping[str, Any], experiment: Experiment, folder: Path | None = None
) -> Mapping[str, Any]:
    """Return a run's record, unless the run read another variant of its data than would be read
    now; data not found is not compared.

    Parameters
    ----------
    record: the run's ``run.json``.
    folder: searched first.

    Raises
    ------
    StoreError: another variant.
    """
    before = record.get("data", {})
    for name, now in data_variants(experiment, folder).items():
        if before.get(name, now) != now:
            about = extension("data", "named").about(name, now)
            raise StoreError(
                f"the run {record.get('run_id')} read the variant {before[name]} of {name}, and "
                f"what is found now is {now} ({about}): choose another output folder, or name the "
                "folder with the data of before, --data DIR"
            )
    return record
