"""Motley in a Flower deployment: ``pip install ./packages/motley ./packages/motley-data
./packages/motley-flower`` in a checkout.

A server chooses the clients of any Flower strategy by :func:`with_selector`, or runs a whole
experiment on real clients by :func:`run`; a client app answers by :func:`enrolled`,
:func:`measured` and :func:`wanted`, or by :func:`serve`. Modules are imported when a name is first
used, and Flower when it is first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from motley.core.errors import ConfigError
from motley.core.extensions import distribution_missing

if TYPE_CHECKING:
    from motley_flower.deployed.client_app import serve
    from motley_flower.deployed.own_data import client_task, server_task
    from motley_flower.deployed.server_app import Limits, run
    from motley_flower.strategy.coordinator import SelectionCoordinator
    from motley_flower.strategy.participation import ParticipationRow, participation
    from motley_flower.strategy.query_answers import enrolled, measured, wanted
    from motley_flower.strategy.reporting import with_reports
    from motley_flower.strategy.secure_client import MaskedUpdates
    from motley_flower.strategy.wrapper import with_selector

__all__ = [
    "Limits",
    "MaskedUpdates",
    "ParticipationRow",
    "SelectionCoordinator",
    "client_task",
    "enrolled",
    "measured",
    "participation",
    "run",
    "serve",
    "server_task",
    "wanted",
    "with_reports",
    "with_selector",
]

_MODULES = {
    "strategy.wrapper": ("with_selector",),
    "strategy.secure_client": ("MaskedUpdates",),
    "strategy.reporting": ("with_reports",),
    "strategy.coordinator": ("SelectionCoordinator",),
    "strategy.participation": ("ParticipationRow", "participation"),
    "strategy.query_answers": ("enrolled", "measured", "wanted"),
    "deployed.server_app": ("Limits", "run"),
    "deployed.client_app": ("serve",),
    "deployed.own_data": ("server_task", "client_task"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            try:
                return getattr(importlib.import_module(f"motley_flower.{module}"), name)
            except ModuleNotFoundError as error:
                if sentence := distribution_missing(error):
                    raise ConfigError(sentence) from error
                raise
    raise AttributeError(f"module 'motley_flower' has no attribute {name!r}")
