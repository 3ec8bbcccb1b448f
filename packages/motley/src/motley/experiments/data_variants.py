"""Which variants of public data sets an experiment reads, and the refusal of results that are of
other ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motley.core.errors import StoreError
from motley.core.extensions import extension
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
    named = extension("data", "named")
    if named is None:
        return {}
    variants = {name: named.variant_of(name, folder) for name in names if isinstance(name, str)}
    return {name: variant for name, variant in variants.items() if variant is not None}


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
