"""Stage ``recipes``: the rows of the papers' tables that take too long without a GPU, those worth
most first.

A run that is broken off goes on from its checkpoint. After every exhibit its report is written from
the runs that are finished.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.gpu.records import Rows, stage_options
from motley_papers import output
from motley_papers.reproduce import reproduce


class Part(NamedTuple):
    """Some rows of one exhibit: which values of its axes, and which seeds; none: the recipe's."""

    recipe: str
    exhibit: str
    only: dict[str, list[str]]
    seeds: tuple[int, ...] = ()


ORDER = (
    Part("hetero_select", "table 1", {"data": ["cifar10"]}, (42,)),
    Part("hetero_select", "table 2", {}),
    Part("hetero_select_v1", "table 1", {}, (0,)),
    Part("fedcvr_bolt", "table 4c", {}),
    Part("hetero_select", "figure 7", {"data": ["cifar10"]}),
    Part("hetero_select", "table 1", {"data": ["cifar10"]}),
    Part("hetero_select_v1", "table 2", {}, (0,)),
    Part("hetero_select", "table 1", {"data": ["cifar100"]}, (42,)),
    Part("flash", "table 1", {"setting": ["noniid30_noise15"], "aggregation": ["fedavg"]}, (0,)),
)
"""The headline comparison with one seed and its ablations first; further seeds, then the larger
networks."""


def main() -> None:
    options = stage_options()
    rows = Rows(options.out / "recipes.json", options.device)
    failed = 0
    for part in ORDER[:1] if options.smoke else ORDER:
        name = (
            f"{part.recipe}, {part.exhibit}, {part.only or 'all'}, "
            f"{list(part.seeds) or 'all seeds'}"
        )
        if name in rows:
            continue
        only = {"method": ["fedavg", "hetero_select"]} if options.smoke else part.only
        found = reproduce(
            part.recipe,
            [part.exhibit],
            scale="smoke" if options.smoke else "paper",
            only=only,
            progress=True,
            seeds=None if options.smoke else part.seeds or None,
            out=options.out / "recipes" / part.recipe,
            overrides=[f"engine.device={options.device}"],
        )
        output.write(found)
        failed += len(found.failures)
        if not found.failures:
            rows.add(name, {"runs": found.planned, "report": str(found.directory / "report.html")})
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
