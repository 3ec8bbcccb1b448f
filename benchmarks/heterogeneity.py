"""The tables of methods and of what privacy costs (docs/measured.md), from the runs
of the examples.

    # this file and the others named below, private.toml with --seeds 0,1,2
    motley compare examples/label_skew.toml
    python benchmarks/heterogeneity.py [--runs runs] [OUT.json]

Reads every run below ``runs/<name of the experiment>`` and writes what the page shows: means and
deviations over seeds, differences paired by seed, what the clients get, when a target was reached.
A table whose runs are not there stays as OUT.json has it. Then ``python docs/generate.py`` puts
them into the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motley.results import measures
from motley.results.labels import group_runs
from motley.results.load import Run, load_all
from motley.results.method_groups import MethodGroups
from motley.results.method_rows import (
    Difference,
    End,
    MethodRow,
    TargetRow,
    differences,
    method_rows,
)
from motley.results.number_text import MB

OUT = Path(__file__).with_name("measured") / "heterogeneity.json"


@dataclass(frozen=True)
class Table:
    """One table: the experiment's name, what splits it in panels (key path -> titles by value),
    which columns, compared with whom, and the label of local training alone. ``names``: labels that
    the page shortens; ``by``: a key path whose value is the label."""

    name: str
    columns: tuple[str, ...]
    target: float | None = None
    panel: str = ""
    titles: tuple[tuple[Any, str], ...] = ()
    base: str | None = None
    times: tuple[float, ...] = ()
    local: str = "local_only"
    names: tuple[tuple[str, str], ...] = ()
    by: str = ""


PERSONAL = ("stable", "difference", "worst_decile", "gains", "traffic", "target")
PRIVATE = ("stable", "difference", "worst_decile", "noise", "participation")
CLIENTS = ("stable", "difference", "worst_decile", "variance")
TABLES = {
    "writers_mnist": Table("algorithms-mnist", (*CLIENTS, "target"), target=0.9),
    "writers_femnist": Table("algorithms-femnist", (*CLIENTS, "target"), target=0.7),
    "label_skew": Table("label-skew", (*CLIENTS, "target"), target=0.9),
    "feature_shift": Table("feature-shift", ("stable", "difference", "domains")),
    "quantity_skew": Table(
        "quantity-skew",
        CLIENTS,
        panel="partition.alpha",
        base="fedavg, weights examples",
        titles=((None, "labels even"), (0.3, "labels skewed, too (Dirichlet 0.3)")),
    ),
    "label_noise": Table(
        "label-noise",
        ("final", "peak", "stable", "difference"),
        panel="label_noise.name",
        titles=(("symmetric", "symmetric 0.4 at everybody"), ("beta", "Beta, mean 0.3")),
    ),
    "label_flip": Table(
        "label-flip",
        ("final", "peak", "stable", "difference"),
        panel="partition.name",
        base="fedavg, mean",
        titles=(("iid", "labels dealt evenly"), ("dirichlet", "labels skewed (Dirichlet 0.3)")),
    ),
    "personal_labels": Table("personal-labels", PERSONAL, target=0.9, base="fedavg"),
    "personal_features": Table(
        "personal-features",
        (*PERSONAL, "domains"),
        target=0.8,
        base="fedavg",
        names=(
            ("fine_tuned, method fedbn", "fedbn, fine_tuned"),
            ("fine_tuned, method fedavg", "fine_tuned"),
            ("fedper, own_norms True", "fedper, own_norms"),
            ("fedper, own_norms False", "fedper"),
        ),
    ),
    "personal_concepts": Table("personal-concepts", PERSONAL, target=0.8, base="fedavg"),
    "unequal_capacity": Table(
        "unequal-capacity",
        ("stable", "shared", *PERSONAL[1:]),
        target=0.9,
        base="fedavg",
        names=(
            *(
                (f"hidden [64], {name}", name)
                for name in ("fedavg", "local_only", "fedper", "ditto")
            ),
            *(
                (f"hidden [64], {name}, by_speed", name)
                for name in ("heterofl", "fedrolex", "fjord")
            ),
            ("hidden [64], fine_tuned", "fine_tuned"),
            ("hidden [8], fedavg", "fedavg, 8 units for all"),
        ),
    ),
    "uneven_work": Table("uneven-work", CLIENTS, base="partial drop, fedavg"),
    "asynchronous": Table(
        "asynchronous",
        ("times", "difference", "target", "steps", "slow"),
        target=0.9,
        base="synchronous",
        times=(30.0, 60.0, 120.0),
    ),
    "private_mnist": Table(
        "private",
        PRIVATE,
        panel="privacy.epsilon",
        base="uniform",
        by="selector.name",
        titles=(
            (None, "without privacy"),
            (8.0, "epsilon 8"),
            (4.0, "epsilon 4"),
            (2.0, "epsilon 2"),
        ),
    ),
    "private_femnist": Table(
        "private-femnist",
        PRIVATE,
        panel="privacy.epsilon",
        base="uniform",
        by="selector.name",
        titles=((None, "without privacy"), (8.0, "epsilon 8")),
    ),
}


def collect(table: Table, runs: Sequence[Run]) -> dict[str, Any]:
    """The table's record."""
    rows: list[dict[str, Any]] = []
    end: End = "final"
    for value, title in table.titles or ((None, ""),):
        members = [run for run in runs if not table.panel or _at(run.config, table.panel) == value]
        named = group_runs(members).items()
        groups = {
            _by(some[0].config, table.by) if table.by else dict(table.names).get(label, label): some
            for label, some in named
        }
        known = table.base is None or table.base in groups
        compared = MethodGroups(groups, table.base, plain_intervals=True) if known else {}
        found = {one.label: one for one in differences(compared)} if known else {}
        end = next((one.end for one in found.values()), end)
        rows += [
            {"panel": title, **_row(table, row, groups, found.get(row.label))}
            for row in sorted(method_rows(groups), key=lambda row: -row.end("stable").mean)
        ]
    return {
        "experiment": table.name,
        "columns": table.columns,
        "target": table.target,
        "times": table.times,
        "end": end,
        "base": table.base or "fedavg",
        "seeds": len({run.seed for run in runs}),
        "rows": rows,
    }


def _at(config: Mapping[str, Any], path: str) -> Any:
    node: Any = config
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _by(config: Mapping[str, Any], path: str) -> str:
    """Return the label of a method by one key, and by how far apart the updates of a client are."""
    apart = _at(config, "privacy.min_separation") or 1
    return str(_at(config, path)) + (f", min_separation {apart}" if apart > 1 else "")


def _row(
    table: Table, row: MethodRow, groups: Mapping[str, Sequence[Run]], found: Difference | None
) -> dict[str, Any]:
    runs = groups[row.label]
    spreads = {name: row.end(name) for name in ("final", "peak", "stable")}
    spreads |= {name: row.served(name) for name in ("worst_decile", "variance")}
    out: dict[str, Any] = {"label": row.label, "seeds": list(row.seeds)}
    out |= {name: [_round(one.mean), _round(one.std)] for name, one in spreads.items()}
    out["steps"] = _round(float(np.mean([cost.rounds for cost in row.spent])))
    if found is not None:
        bounds = (found.interval.mean, found.interval.low, found.interval.high)
        out["difference"] = {"interval": [_round(one) for one in bounds], "verdict": found.verdict}
    if table.target is not None:
        way = TargetRow(row.label, runs, table.target)
        time = way.cost("time_s").mean
        out["target"] = {
            "seeds": way.there,
            "seconds": _round(time.value),
            "reached": time.reached,
        }
        out["target"]["mb"] = _round(way.cost("total_bits", MB).mean.value)
    if "shared" in table.columns:
        # all clients use the shared model
        plain = _at(runs[0].config, "algorithm.name") == "fedavg"
        scope = "mean" if plain else "shared_mean"
        ends = [measures.ends(measures.curve(run, scope=scope)).stable for run in runs]
        out["shared"] = _two(measures.spread([100.0 * end for end in ends]))
    if "gains" in table.columns:
        out["gains"] = {
            rival: _gains(runs, groups.get(rival, ()))
            for rival in (table.local, table.base or "fedavg")
        }
        (out["gains"][table.base or "fedavg"] or {}).pop("each", None)  # no page shows it
    if "participation" in table.columns:
        out["participation"] = _participation(runs)
        private = runs[0].meta.get("privacy")
        out["noise"] = private and _round(private["noise_multiplier"])
    if table.times:
        at = [
            100.0 * measures.stepwise(measures.curve(run, "seconds"), table.times) for run in runs
        ]
        out["times"] = [_two(measures.spread(column)) for column in np.transpose(at)]
        out["slow"] = _two(measures.spread([100.0 * _of_the_slow(run) for run in runs]))
    domains = [measures.by_group(run, "domain") for run in runs]
    names = (runs[0].config.get("feature_shift") or {}).get("names") or []
    if names:
        out["domains"] = {
            name: _two(measures.spread([100.0 * one[i] for one in domains]))
            for i, name in enumerate(names)
        }
    return out


def _gains(runs: Sequence[Run], rivals: Sequence[Run]) -> dict[str, Any] | None:
    """Share of the clients that are better off than in the rival's run of the same seed, and every
    client's gain, in percent."""
    of_seed = {run.seed: run for run in rivals}
    pairs = [
        (run, of_seed[run.seed])
        for run in runs
        if run.seed in of_seed and run is not of_seed[run.seed]
    ]
    if not pairs:
        return None
    shares = [100.0 * measures.gains(run, rival).share for run, rival in pairs]
    each = [
        100.0 * (measures.client_metric(run) - measures.client_metric(rival))
        for run, rival in pairs
    ]
    return {
        "share": _two(measures.spread(shares)),
        "each": sorted(round(float(one), 1) for some in each for one in some),
    }


def _participation(runs: Sequence[Run]) -> dict[str, Any]:
    """Gini index of how often clients took part, mean and deviation, and the fewest and most
    updates of a client in any run."""
    found = [measures.participation(run) for run in runs]
    fewest = min(int(one.counts.min()) for one in found)
    most = max(int(one.counts.max()) for one in found)
    return {
        "gini": _two(measures.spread([one.gini for one in found])),
        "fewest": fewest,
        "most": most,
    }


def _of_the_slow(run: Run) -> float:
    """Share of the accepted updates that came from the slowest quarter of the clients."""
    pace = np.asarray(run.column("federation", "step_s"), float)
    slow = np.asarray(run.column("federation", "client"))[pace >= np.quantile(pace, 0.75)]
    who = run.column("clients", "client")[run.column("clients", "outcome") == "accepted"]
    return float(np.isin(who, slow).mean())


def _two(spread: measures.Spread) -> list[float | None]:
    return [_round(spread.mean), _round(spread.std)]


def _round(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("out", type=Path, nargs="?", default=OUT)
    args = parser.parse_args()
    found = json.loads(args.out.read_text(encoding="utf-8")) if args.out.is_file() else {}
    for name, table in TABLES.items():
        folder = args.runs / table.name
        if next(folder.rglob("run.json"), None) is None:
            print(f"{name}: no runs in {folder}")
            continue
        runs = load_all(folder)
        open_runs = [run for run in runs if not run.finished]
        if open_runs:
            print(f"{name}: {len(open_runs)} of {len(runs)} runs are not finished, left out")
        found[name] = collect(table, [run for run in runs if run.finished])
        print(f"{name}: {len(found[name]['rows'])} rows")
    args.out.write_text(
        json.dumps({name: found[name] for name in TABLES if name in found}, indent=1) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
