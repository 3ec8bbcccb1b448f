"""How messages of secure aggregation travel in Flower's: bytes in one ConfigRecord."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motley.adapters.flower.messages import flower
from motley.core.errors import ConfigError

__all__ = ["EXTRA", "RECORD", "SECURE", "missing_extra", "secure_bytes", "secure_record"]

SECURE = "query.motley_secure"
"""The message of the steps before and after training."""
RECORD = "motley_secure"
"""The ConfigRecord that is added to a message to train, and that holds a masked update."""
_KEY = "message"
EXTRA = "pip install 'motley-fl[privacy]'"


def secure_record(data: bytes, wanted: str = "") -> Any:
    """Return a ConfigRecord with a message of secure aggregation; ``wanted``: metrics to report with the update, with commas."""
    return flower().ConfigRecord({_KEY: data, **({"wanted": wanted} if wanted else {})})


def secure_bytes(content: Any) -> object:
    """Return whatever lies in the place of a message of secure aggregation; None where nothing does."""
    record = content.get(RECORD)
    return record.get(_KEY) if isinstance(record, Mapping) else None


def missing_extra(error: ModuleNotFoundError) -> ConfigError:
    """Return the error to raise where the libraries of secure aggregation are not installed."""
    return ConfigError(f"secure aggregation needs {error.name}; expected the extra, {EXTRA}", "secure_aggregation")
