"""What of the registry the list of experiments does not use: names of components, and words and
switches of their options.

python -m same_results.coverage TREE
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from same_results import files, trees
from same_results.digests import asked, filled
from same_results.experiments import EXPERIMENTS
from same_results.renames import Renames

__all__ = ["components", "main", "missing"]

ELSEWHERE = {("engine", "ray")}
"""Components that have tests of their own, in an environment of their own."""
SAME_KIND = {"quantizer": "compressor"}
"""Keys that hold a component of another key's kind."""


def missing(tree: Path) -> list[str]:
    """Sentences about what no experiment uses."""
    registry = trees.registry(tree)
    used = list(_used(tree))
    out = []
    for kind in registry.KINDS:
        for row in registry.listing(kind):
            if (kind, row["name"]) in ELSEWHERE:
                continue
            here = [
                options for other, name, options in used if (other, name) == (kind, row["name"])
            ]
            if not here:
                out.append(f"{kind} {row['name']}")
                continue
            for option in row["options"]:
                given = [options.get(option["name"], option.get("default")) for options in here]
                words = [value for value in _values(option["accepts"]) if value not in given]
                out += [f"{kind} {row['name']}: {option['name']} = {value}" for value in words]
    return out


def _values(accepts: str) -> list[Any]:
    """The words that an option takes, or true and false."""
    if accepts == "true or false":
        return [True, False]
    if accepts.startswith("one of "):
        return [ast.literal_eval(word) for word in accepts.removeprefix("one of ").split(", ")]
    return []


def _used(tree: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Kind, name and options of every component in the experiments, as often as it is there."""
    import motley

    renames = Renames.read()
    old = trees.is_old(tree)
    with tempfile.TemporaryDirectory() as place:
        files.write(Path(place))
        for name, case in EXPERIMENTS.items():
            if "grid" not in case.keys:
                experiment = motley.Experiment(**filled(asked(name, old, renames), Path(place)))
                yield from components(experiment.resolved())


def components(table: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            if "name" in value:
                yield SAME_KIND.get(key, key), value["name"], value
            yield from components(value)


def main() -> None:
    """Print what is missing; exit with 1 if there is something."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", type=Path)
    warnings.simplefilter("ignore")
    found = missing(parser.parse_args().tree)
    for line in found:
        print(f"not used: {line}")
    print(f"{len(EXPERIMENTS)} experiments; {len(found)} names and words that none of them uses")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
