"""Which client a node's configuration says that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motley.core.errors import ConfigError

LARGEST_ID = 2**53 - 1
"""Metrics may be read as floats, and two larger ids could become the same."""


def client_of_node(config: Mapping[str, Any], key: str) -> int:
    """Return the client that a node is by its configuration, a whole number from 0.

    Parameters
    ----------
    config: the node's, of ``--node-config``.
    key: of the client's id.

    Raises
    ------
    ConfigError: the configuration does not say, or says no whole number up to
    :data:`LARGEST_ID`.
    """
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_ID:
        raise ConfigError(
            f'got {key} = {value!r:.60}; start the node with --node-config "{key}=<whole number>", '
            f"from 0 to {LARGEST_ID}"
        )
    return value
