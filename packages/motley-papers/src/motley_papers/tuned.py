"""Tuned settings of a recipe: ``tuned.toml``, which goes on top of the axis values of
``recipe.toml``."""

from __future__ import annotations

import copy
from typing import Any

from motley.core.errors import ConfigError, suggest
from motley.experiments import document


def with_tuned(keys: dict[str, Any], where: str, text: str) -> dict[str, Any]:
    """Return a recipe's keys with tuned settings on top of those of the axis values they name, in
    every exhibit that has them.

    Parameters
    ----------
    where: the file, for messages.
    text: tables ``[AXIS."VALUE"]`` of settings; "" changes nothing.

    Raises
    ------
    ConfigError: a value that no exhibit has.
    """
    left = copy.deepcopy(keys)
    for axis, values in document.parse(text, where).items() if text else ():
        if not isinstance(values, dict) or not all(
            isinstance(settings, dict) for settings in values.values()
        ):
            raise ConfigError(
                f'{where}: got {axis} = {values!r}; expected a table [AXIS."VALUE"] of settings'
            )
        axes = [
            exhibit["axes"][axis]
            for exhibit in left.get("exhibit", [])
            if axis in exhibit.get("axes", {})
        ]
        for value, settings in values.items():
            there = [values_of_axis for values_of_axis in axes if value in values_of_axis]
            if not there:
                close = suggest(value, [name for values_of_axis in axes for name in values_of_axis])
                raise ConfigError(
                    f'{where}: no exhibit has {axis} {value!r}{close}; remove [{axis}."{value}"]'
                )
            for values_of_axis in there:
                values_of_axis[value] = {**values_of_axis[value], **settings}
    return left
