"""A fixed sample of the experiments that ``scripts/test-random`` compares with themselves."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from motley.engines.processes import workers_kept
from motley.experiments import registry, store
from motley.experiments.trackers import running

DRAWN = 60
SEED = 11


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The generator, of small experiments, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3] / "scripts")])
        from chaos.random_checks import Checks  # type: ignore[import-not-found]

        for kind in registry.KINDS:  # other tests register components of their own
            catalogue = registry.catalogue(kind)
            patch.setitem(vars(catalogue), "targets", dict(catalogue.builtin))
        # looked for once, which is half of the time of a small run
        versions = cache(store.installed_versions)
        patch.setattr(store, "installed_versions", versions)
        patch.setattr(running, "installed_versions", versions)
        patch.setattr(store, "source_commit", cache(store.source_commit))
        with workers_kept():  # checked and run, an experiment would start its workers twice
            yield Checks(SEED, tmp_path_factory.mktemp("checks"), shares=(0.03,), forks=False)


@pytest.mark.parametrize("number", range(DRAWN))
def test_a_random_experiment_is_the_same_in_every_way(checks: Any, number: int) -> None:
    """What differs, or is no sentence for users, is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an experiment may be unwise
        row = checks.one(number)
    assert not row.fault, row.text()
