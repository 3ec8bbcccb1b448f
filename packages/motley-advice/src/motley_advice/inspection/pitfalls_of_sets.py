"""Pitfalls of several runs that are compared, finished or planned by a ``[grid]``: a function each,
found in their keys alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from motley.experiments import registry

Keys = Mapping[str, Any]
"""All keys of one run, as an experiment resolves them."""
_DATA = ("task", "partition", "label_noise", "feature_shift", "concept_shift", "population")
_MADE_OF = (
    "algorithm",
    "loss",
    "aggregator",
    "server",
    "selector",
    "synchrony",
    "compressor",
    "allocator",
    "local",
)
_BRIEF = 3


def pitfalls_of_set(runs: Sequence[Keys]) -> list[str]:
    """Return a sentence for each pitfall that a comparison of these runs commits; nothing for a
    single run."""
    if len(runs) < 2:
        return []
    return [
        sentence for look in PITFALLS_OF_SETS for sentence in [look(runs)] if sentence is not None
    ]


def compared_by_rounds(runs: Sequence[Keys]) -> str | None:
    """Servers that wait beside servers that do not, all ended by rounds."""
    overlapping = {_overlaps(run) for run in runs}
    if overlapping != {True, False} or any(_limits(run) != ["rounds"] for run in runs):
        return None
    return (
        "servers that wait and servers that do not are all ended by rounds, and a round is not the "
        "same work for both; set stop = { virtual_hours = ... } for all and compare by virtual "
        "time and traffic"
    )


def unequal_stops(runs: Sequence[Keys]) -> str | None:
    """Runs of one comparison that end at different limits."""
    stops = _distinct(run.get("stop") for run in runs)
    if len(stops) < 2:
        return None
    shown = " and ".join(
        _brief({name: value for name, value in stop.items() if value is not None})
        for stop in stops[:_BRIEF]
    )
    return (
        f"the runs end at different limits ({shown}), so that their final figures are of "
        "different work; give all the same stop"
    )


def one_seed(runs: Sequence[Keys]) -> str | None:
    """Methods that are compared by one seed each."""
    seeds = _seeds(runs)
    if len(seeds) < 2 or any(len(method_seeds) > 1 for method_seeds in seeds.values()):
        return None
    return (
        "each method has one seed, so that chance cannot be told from a difference; compare "
        "with --seeds 0,1,2"
    )


def unpaired_seeds(runs: Sequence[Keys]) -> str | None:
    """Methods with different seeds."""
    seeds = {frozenset(method_seeds) for method_seeds in _seeds(runs).values()}
    if len(seeds) < 2 or not any(len(method_seeds) > 1 for method_seeds in seeds):
        return None
    return (
        "methods were run with different seeds, so that differences cannot be paired; give all "
        "the same --seeds"
    )


def one_constant_for_all(runs: Sequence[Keys]) -> str | None:
    """A method's constant that is the same on several data sets or client fractions."""
    worlds: dict[str, set[str]] = {}
    values: dict[str, set[str]] = {}
    for run in runs:
        algorithm = run.get("algorithm") or {}
        name = str(algorithm.get("name"))
        options = {key: value for key, value in algorithm.items() if _is_constant(value)}
        if options:
            share = _brief(
                [run.get("cohort"), run.get("participation"), *(run.get(key) for key in _DATA)]
            )
            worlds.setdefault(name, set()).add(share)
            values.setdefault(name, set()).add(_brief(options))
    fixed = [name for name, shares in worlds.items() if len(shares) > 1 and len(values[name]) == 1]
    if not fixed:
        return None
    name = fixed[0]
    option = next(iter(json.loads(next(iter(values[name])))))
    return (
        f"{name!r} has the same constants on {len(worlds[name])} data sets or client fractions, "
        "and constants do not transfer; choose them on validation samples for each: motley "
        f"compare --over algorithm.{option}=..."
    )


def unequal_tuning(runs: Sequence[Keys]) -> str | None:
    """Learning rates tried for one method and not for another."""
    tried: dict[str, set[str]] = {}
    for run in runs:
        name = " and ".join(
            str((run.get(key) or {}).get("name")) for key in ("algorithm", "selector")
        )
        tried.setdefault(name, set()).add(_brief((run.get("local") or {}).get("optimizer")))
    least, most = (pick(tried, key=lambda name: len(tried[name])) for pick in (min, max))
    if len(tried[least]) == len(tried[most]):
        return None
    return (
        f"{most} was tried with {len(tried[most])} local optimizers and {least} with "
        f"{len(tried[least])}; give every method as many values of local.optimizer.lr, and choose "
        "by split.validation"
    )


def chosen_by_test(runs: Sequence[Keys]) -> str | None:
    """Several values of a constant, and no validation samples to choose one by."""
    methods: dict[str, set[str]] = {}
    for run in runs:
        names = _brief([(run.get(key) or {}).get("name") for key in _MADE_OF[:-1]])
        methods.setdefault(names, set()).add(
            _brief([run.get("algorithm"), run.get("local"), run.get("selector")])
        )
    several = any(len(constants) > 1 for constants in methods.values())
    if not several or any((run.get("split") or {}).get("validation") for run in runs):
        return None
    return (
        "one method was run with several constants, and no validation samples are set aside, so "
        "that the best would be chosen by test figures; set split.validation = 0.2 and read the "
        "figure at the best round by validation"
    )


def unlike_tests(runs: Sequence[Keys]) -> str | None:
    """Runs that are tested on different kinds of samples."""
    kinds = {(run.get("split") or {}).get("test") for run in runs}
    if len(kinds) < 2:
        return None
    return (
        "some runs are tested on the clients' own samples and some on a common test set; give "
        "all the same split.test"
    )


def _overlaps(run: Keys) -> bool:
    """Return whether clients of several model versions are in flight at once."""
    name = (run.get("synchrony") or {}).get("name", "synchronous")
    kind: Any = registry.catalogue("synchrony").get(name, "synchrony")
    return bool(kind.overlaps)


def _limits(run: Keys) -> list[str]:
    """Return the names of the limits at which a run ends."""
    return [name for name, value in (run.get("stop") or {}).items() if value is not None]


def _seeds(runs: Sequence[Keys]) -> dict[str, set[int]]:
    """Return the seeds of each method."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(_brief([run.get(key) for key in (*_DATA, *_MADE_OF)]), set()).add(
            int(run.get("seed", 0))
        )
    return seeds


def _is_constant(value: Any) -> bool:
    """Return whether an option is a number that somebody chose; 0 and 1 switch a term off or leave
    it as it is."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value not in (0, 1)


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Return the values without repetition, in their order."""
    return list({_brief(value): value for value in values}.values())


def _brief(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


PITFALLS_OF_SETS: tuple[Callable[[Sequence[Keys]], str | None], ...] = (
    compared_by_rounds,
    unequal_stops,
    one_seed,
    unpaired_seeds,
    one_constant_for_all,
    unequal_tuning,
    chosen_by_test,
    unlike_tests,
)
"""The pitfalls of several runs, in the order in which they are told."""
