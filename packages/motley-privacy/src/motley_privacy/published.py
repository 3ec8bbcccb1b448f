"""What a run publishes, file by file and column by column, and what of it the claim of a private
run covers.

Every file that a run's folder may hold, and every column of it, has one of five kinds:

``public``       depends on no client's data
``noisy``        a counted release, or made of counted releases and public facts alone
``withheld``     a clear number of clients' data, which a private run does not write
``clock``        seconds and steps. They follow clients' numbers of samples where work is counted in
                 epochs, where devices take as long as there are samples, and where all samples are
                 passed over to measure something: the claim does not cover them then
``not covered``  a clear number that is written for the researcher or the server

Columns of the first three kinds are equal in two runs that differ in one client's data and have the
same counted releases, which ``motley audit-privacy`` checks. Reference: docs/privacy.md#released.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any, Literal

from motley.core.files import SECRET

Kind = Literal["public", "noisy", "withheld", "clock", "not covered"]

HEARD = "(reports to the selector)"
"""Stands for a file: what the selector hears of clients, which follows them into cohorts."""

NOT_COVERED: Mapping[str, str] = {
    "evaluations, metrics, reports, trackers": "figures of evaluated models, and numbers of test "
    "samples",
    "seconds and steps": "where they follow numbers of samples",
    "timings, incidents, refusals": "measured seconds; words of what went wrong, which may quote a "
    "client's cell or label; whether a run exists",
    f"clients.safetensors, checkpoints, {SECRET}": "what stays with clients, secrets of the noise, "
    "evaluations",
    "run.json": "checksums of the files",
}
"""What a run's folder holds that the claim does not cover, in words."""


def _columns(kinds: Mapping[Kind, str]) -> dict[str, Kind]:
    """Return column -> kind, given the names of each kind in one text."""
    return {name: kind for kind, names in kinds.items() for name in names.split()}


_EVALUATED: Mapping[Kind, str] = {
    "noisy": "round selections total_bits total_up_paper_bits scope client metric",
    "clock": "time_s paper_s",
    "not covered": "examples loss accuracy value undefined",
}

PUBLISHED: Mapping[str, Mapping[str, Kind]] = {
    HEARD: {"*": "noisy"},
    "rounds.*": _columns(
        {
            "public": "round selections",
            "noisy": "dispatch available probed selected accepted late dropped rejected budget"
            " down_bits up_bits probe_down_bits probe_up_bits up_paper_bits total_bits"
            " total_up_bits total_up_paper_bits notes",
            "clock": "start_s time_s paper_s",
            "withheld": "train_loss update_norm weight_sum",
        }
    ),
    "clients.safetensors": {"*": "not covered"},
    "clients.*": _columns(
        {
            "noisy": "round dispatch client outcome version staleness score download_s upload_s"
            " bits_down bits_up theta up_mbps width",
            "clock": "local_steps start_s compute_s",
            "withheld": "num_examples weight loss update_norm",
        }
    ),
    "choices.*": {"*": "noisy"},
    "evaluations.*": _columns(_EVALUATED),
    "metrics.*": _columns(_EVALUATED),
    "federation.*": _columns(
        {
            "public": "client held_out batch_size up_mbps",
            "clock": "step_s",
            "withheld": "num_train num_validation num_test noise domain cluster labels",
        }
    ),
    "incidents.*": _columns(
        {
            "noisy": "round client event dispatch",
            "clock": "time_s",
            "not covered": "at reason",
        }
    ),
    "claims.*": _columns(
        {
            "noisy": "round client occasion signal",
            "withheld": "claimed true",
        }
    ),
    "privacy.*": _columns({"noisy": "round client signals choices sums"}),
    "timings.*": _columns(
        {
            "public": "round",
            "not covered": "wall_s select_s measure_s plan_s train_s aggregate_s evaluate_s "
            "write_s",
        }
    ),
    "run.json": _columns(
        {
            "public": "name run_id seed config numerics versions citations finished task parameters"
            " command commit personal work control client_state_bytes leaves privacy data nodes"
            " clients secure_aggregation",
            "noisy": "best standstill",
            "not covered": "tables files digest",
        }
    ),
    "preparation.json": {"*": "public"},
    "model.safetensors": {"*": "noisy"},
    "best.safetensors": {"*": "noisy"},
    "checkpoints/checkpoint-*.mtly": {
        "*": "noisy",
        **_columns(
            {
                "clock": "under_way.start_s under_way.asked_s stages.standstill clients.now_s"
                " clients.clock"
                " clients.paper_s"
                " clients.in_flight.timelines.steps clients.in_flight.timelines.start_s"
                " clients.in_flight.timelines.downloaded_s"
                " clients.in_flight.timelines.computed_s"
                " clients.in_flight.timelines.arrives_s"
                " clients.in_flight.columns.paper_arrives_s",
                "not covered": "clients.client_states clients.in_flight.columns.examples"
                " clients.in_flight.columns.weight scores.evaluated scores.peaks"
                " scores.untrained stages.privacy.past tables",
            }
        ),
    },
    "checkpoints/*": {"*": "not covered"},
    "tables.journal": {"*": "not covered"},
    "report*": {"*": "not covered"},
    "paper/*": {"*": "not covered"},
    "tensorboard/*": {"*": "not covered"},
    "wandb/*": {"*": "not covered"},
    "audit.*": {"*": "not covered"},
    "mlflow.json": {"run_id": "public", "uri": "public"},
    "draws.json": {"*": "noisy"},
    SECRET: {"*": "not covered"},
}
"""Pattern of a file -> column -> kind. The first pattern that fits counts, ``*`` stands for all
other columns, and a column with dots is a value inside another one."""


def kind_of(file: str, column: str) -> Kind | None:
    """Return the kind of a column of a file in a run's folder; None if it has none.

    >>> kind_of("clients.parquet", "loss"), kind_of("clients.parquet", "shoe_size")
    ('withheld', None)
    """
    columns = next((kinds for pattern, kinds in PUBLISHED.items() if fnmatch(file, pattern)), {})
    names = column.split(".")
    longest_first = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((columns[name] for name in longest_first if name in columns), columns.get("*"))


def without_clear(table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a table that a private run writes; those left out become empty.

    >>> without_clear("clients", {"client": [3], "loss": [0.5]})
    {'client': [3]}
    """
    kinds = {name: kind_of(f"{table}.parquet", name) for name in columns}
    return {name: value for name, value in columns.items() if kinds[name] != "withheld"}
