"""Which variants of public data sets an experiment reads, and the refusal of results that are of
other ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motley.core.errors import StoreError
from motley.experiments.config import Experiment
from motley.tasks.public_data.facts import PUBLIC
from motley.tasks.public_data.search import variants


def data_variants(experiment: Experiment, folder: Path | None = None) -> dict[str, str]:
    """Return the public data sets that an experiment names and the variants that would be read now;
    those that are found at all.

    Parameters
    ----------
    folder: searched first.
    """
    names = (
        experiment.task.get("data"),
        experiment.public.data if experiment.public is not None else None,
    )
    return variants(names, folder)


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
            about = PUBLIC[name].variants[now].about
            raise StoreError(
                f"the run {record.get('run_id')} read the variant {before[name]} of {name}, and "
                f"what is found now is {now} ({about}): choose another output folder, or name the "
                "folder with the data of before, --data DIR"
            )
    return record


def download_mb(name: str) -> float | None:
    """Return the size of a public data set's download in units of 10^6 bytes; None for other
    data."""
    return PUBLIC[name].mb if name in PUBLIC else None
