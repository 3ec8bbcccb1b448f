"""What a run asks of the distribution that trains in private: it owns the table ``[privacy]``, is
found by its entry point (group ``motley.table``), and imported where an experiment has the table
alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from motley.core.extensions import required_extension
from motley.core.keys import Streams
from motley.experiments.config import Experiment
from motley.rounds.run_config import PrivatePlan, RunConfig
from motley.selectors.selector import Selector


class PrivateTraining(Protocol):
    """The module that the entry point ``privacy`` names. Options are those of ``[privacy]``."""

    PrivacyFile: type[BaseModel]
    """The part of an experiment file that it reads, whose only key is ``privacy``."""

    def read(self, value: object) -> Any:
        """Return the options in the table.

        Raises
        ------
        ConfigError: anything unknown, of the wrong type, out of range or contradictory.
        """

    def noise_source(self, options: Any, secret: bytes | None) -> Any:
        """Return what a simulation draws its noise from; a secret of None is a new one."""

    def selection_seed(self, options: Any, streams: Streams, source: Any) -> int:
        """Return the seed of the selector; ``source``: of the noise."""

    def with_privacy(
        self, experiment: Experiment, config: RunConfig, selector: Selector[Any], source: Any
    ) -> RunConfig:
        """Return the configuration of a run with its plan of privacy.

        Raises
        ------
        ConfigError: parts for which no bound is known, or numbers with which there is none.
        """

    def secret_of(self, folder: Path, record: Mapping[str, Any], data: Mapping[str, str]) -> bytes:
        """Return the secret that a run began with; a new one for a run without a record.

        Parameters
        ----------
        record: ``run.json``.
        data: hashes of the data.

        Raises
        ------
        StoreError: there is none, it is another run's, or the run is of other data.
        """

    def keep_secret(self, folder: Path, secret: bytes, data: Mapping[str, str]) -> str:
        """Write the secret of a run that begins into its folder, and return the commitment to
        it."""

    def in_ledger(
        self, experiment: Experiment, plan: PrivatePlan, record: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Enter a run into the ledger of its data set, and return the ``privacy`` of its record
        with what all runs on them release.

        Raises
        ------
        ConfigError: it would go beyond the budget of the data set.
        """

    def lines_of(self, experiments: Iterable[Experiment]) -> list[str]:
        """Return a line for each data set of experiments that has a ledger."""


def private_training() -> PrivateTraining:
    """Return the module that trains in private.

    Raises
    ------
    ConfigError: it is not installed.
    """
    module: PrivateTraining = required_extension("table", "privacy", "privacy")
    return module
