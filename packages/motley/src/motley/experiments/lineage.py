"""The id of a run: a hash of everything that changes a round."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["digest_of", "lineage_id", "result_keys"]

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


_LATER_OF_TASKS = (
    *("alphabet", "classes", "fixed", "test"),
    *("numbers", "drop_rows", "sep", "comment", "sheet", "decimal", "thousands", "units", "dates"),
    *("trim", "fold", "rename"),
)
"""Options of tasks that change nothing where they are left out, and did not always exist."""


_LATER: Mapping[str, Mapping[str, Any]] = {
    "algorithm.fedrolex": {"absent_rows": "as_mask"},
    "algorithm.heterofl": {"absent_rows": "as_mask"},
    "device.recorded": {"common": 0.0},
    "network.recorded": {"common": 0.0},
    "evaluate": {"batch_size": None},
    "local": {"micro_batch": None},
    "partition.iid": {"sizes": ()},
    "privacy": {"noise_seed": None},
    "probe": {"speeds": "known"},
    "selector.active_fl": {"drawn": None, "floor": 0.0},
    "selector.delta": {"form": "loss"},
    "selector.fedcvr_bolt": {
        "covariance": "zero",
        "step": "mean",
        "clustering": "ng_jordan_weiss",
        "among": 0,
    },
    "selector.fedstas": {"spread": "deviation", "standardise": False},
    "selector.oort": {"split": "fedscale"},
    "selector.power_of_choice": {"sampling": "by_size"},
    "selector.pyramidfl": {"split": "fedscale"},
    "split": {"halves": "both"},
    "synchrony": {"refill": "idle"},
    "task": {"encoding": "utf-8", "header_rows": 1},
}
"""Options of tables, and of single components, that did not always exist, and their values that
change nothing."""


def lineage_id(config: Mapping[str, Any]) -> str:
    """Return a hash of a resolved experiment (also one in a ``run.json``) without what changes no
    round, and without its end."""
    return digest_of(result_keys(config))


def result_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a resolved experiment that change a round; of initial weights the digest,
    not the path."""
    init = (config.get("init") or {}).get("digest")
    counts = {
        key: value
        for key, value in config.items()
        if key not in _NO_RESULT and not (key == "privacy" and value is None)
    }
    task = counts.get("task")
    if isinstance(task, Mapping):  # as it was when there were no such options
        counts["task"] = {
            key: value for key, value in task.items() if value or key not in _LATER_OF_TASKS
        }
    if isinstance(counts.get("privacy"), Mapping):
        counts["privacy"] = {k: v for k, v in counts["privacy"].items() if k != "data_set"}
    for key, value in counts.items():
        if isinstance(value, Mapping):
            later = {**_LATER.get(key, {}), **_LATER.get(f"{key}.{value.get('name')}", {})}
            counts[key] = {
                option: chosen
                for option, chosen in value.items()
                if option not in later or _as_tuple(chosen) != later[option]
            }
    return {**counts, "init": init}


def _as_tuple(value: Any) -> Any:
    """Return a list as a tuple, as which a resolved experiment has it before it is a JSON value."""
    return tuple(value) if isinstance(value, list) else value


def digest_of(value: object) -> str:
    """Return twelve hex digits of a hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
