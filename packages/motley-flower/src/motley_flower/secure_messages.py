"""How messages of secure aggregation travel in Flower's: bytes in one ConfigRecord."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from motley.core.errors import ConfigError, SecureAggregationError, install_hint
from motley.core.records import SIGNALS
from motley_flower.messages import flower

SECURE = "query.motley_secure"
"""The message of the steps before and after training."""
RECORD = "motley_secure"
"""The ConfigRecord that is added to a message to train, and that holds a masked update."""
_KEY = "message"
_RUN = re.compile("[0-9a-f]{32}")


def secure_record(data: bytes, wanted: str = "", run: str = "") -> Any:
    """Return a ConfigRecord with a message of secure aggregation.

    Parameters
    ----------
    wanted: metrics to report with the update, with commas.
    run: name of the run, in a message of the server.
    """
    named = {name: value for name, value in (("wanted", wanted), ("run", run)) if value}
    return flower().ConfigRecord({_KEY: data, **named})


def secure_bytes(content: Any) -> object:
    """Return whatever lies in the place of a message of secure aggregation; None where nothing
    does."""
    record = content.get(RECORD)
    return record.get(_KEY) if isinstance(record, Mapping) else None


def secure_run(content: Any) -> str:
    """Return the name of the run in a message; raises SecureAggregationError where there is none of
    32 hexadecimal digits."""
    record = content.get(RECORD)
    run = record.get("run") if isinstance(record, Mapping) else None
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise SecureAggregationError(
            "the server names no run, and this client keeps a folder for each; install the same "
            "version of Motley at both ends"
        )
    return run


def refuse_single(names: Iterable[str]) -> None:
    """Refuse, at a client that sends masked updates, to report what is made of its own gradient or
    update, whoever asks for it.

    Raises
    ------
    ConfigError: one of these signals is.
    """
    for name in names:
        if name in SIGNALS and SIGNALS[name].single:
            raise ConfigError(
                f"the server asks for {name!r}, which tells of this client's own update; it sends "
                "masked updates, and reports nothing of a single one",
                "secure_aggregation",
            )


def missing_extra(error: ModuleNotFoundError) -> ConfigError:
    """Return the error to raise where the libraries of secure aggregation are not installed."""
    return ConfigError(
        f"secure aggregation needs {error.name}; {install_hint(folder='motley-flower')}",
        "secure_aggregation",
    )
