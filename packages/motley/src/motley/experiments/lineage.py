"""The id of a run: a hash of everything that changes a round."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_NO_RESULT = (
    "name",
    "method",
    "engine",
    "client_state",
    "checkpoint",
    "log",
    "stop",
    "tuned",
    "grid",
)


def lineage_id(config: Mapping[str, Any]) -> str:
    """Return a hash of a resolved experiment (also one in a ``run.json``) without what changes no
    round, and without its end."""
    return digest_of(result_keys(config))


def result_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a resolved experiment that change a round; of initial weights the digest,
    not the path. A key that is left out (None) counts as absent, so that a new one renames no run
    without it."""
    counts = {
        key: value for key, value in config.items() if key not in _NO_RESULT and value is not None
    }
    if "init" in counts:
        counts["init"] = counts["init"].get("digest")
    if "privacy" in counts:
        counts["privacy"] = {k: v for k, v in counts["privacy"].items() if k != "data_set"}
    return counts


def digest_of(value: object) -> str:
    """Return twelve hex digits of a hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
