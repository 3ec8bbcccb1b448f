"""The table ``[privacy]`` of the experiment file: how it is read, and what a run with it asks for.

Motley finds this module by its entry point (group ``motley.table``) and imports it for an
experiment that has the table alone; :class:`motley.experiments.private_runs.PrivateTraining` says
what it calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, ValidationError

from motley.core.errors import ConfigError
from motley.experiments.error_messages import config_error
from motley.experiments.file_tables import KeyTable, StrictTable
from motley_privacy.all_runs import in_ledger, lines_of
from motley_privacy.options import Privacy
from motley_privacy.private_admission import noise_source, selection_seed, with_privacy
from motley_privacy.run_secret import keep_secret, secret_of

__all__ = [
    "PrivacyFile",
    "in_ledger",
    "keep_secret",
    "lines_of",
    "noise_source",
    "read",
    "secret_of",
    "selection_seed",
    "with_privacy",
]


def _adaptive(value: object) -> object:
    """Return the options of privacy with a clip that adapts, given as a table, in two keys."""
    if isinstance(value, str):
        raise ConfigError(
            f'got {value!r}; expected "off" or a table, e.g. [privacy] with clip, epsilon and '
            "delta",
            "privacy",
        )
    if not isinstance(value, Mapping) or not isinstance(value.get("clip"), Mapping):
        return value
    adaptive = dict(value["clip"])
    return {**value, "clip": adaptive.pop("initial", 0.1), "adaptive": adaptive}


class PrivacyFile(KeyTable):
    """The part of an experiment file that this distribution reads."""

    privacy: Annotated[Privacy, BeforeValidator(_adaptive), StrictTable]
    """``[privacy]``, with ``clip = 1.0`` or ``clip = { initial = 0.1, quantile = 0.5 }``."""


def read(value: object) -> Privacy:
    """Return the options in the table ``[privacy]``.

    Raises
    ------
    ConfigError: anything unknown, of the wrong type, out of range or contradictory.
    """
    try:
        return PrivacyFile.model_validate({"privacy": value}).privacy
    except ValidationError as error:
        raise config_error(error, PrivacyFile) from None
