"""A sample of the compositions that ``scripts/compose`` draws from the registry: all are checked,
some run, again, and resumed."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from motley.experiments import registry

DRAWN = 120
RUN_EVERY = 24
RESUMED_EVERY = 60
"""Compositions, and which of them run whole, and also again and from a checkpoint: all of each
would take a minute."""


def test_compositions_run_or_are_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else comes out is a fault; what it prints repeats with ``scripts/compose``, less the
    parts that are drawn there too."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3] / "scripts")])
    from chaos.compose import Search  # type: ignore[import-not-found]
    from chaos.compositions import RefusedError  # type: ignore[import-not-found]

    for kind in registry.KINDS:  # other tests register components of their own
        catalogue = registry.catalogue(kind)
        monkeypatch.setitem(vars(catalogue), "targets", dict(catalogue.builtin))
    search = Search(7, tmp_path, shares=(0.03,), forks=False)
    faults = {}
    refused = 0
    for number in range(DRAWN):
        rng, entry = search.turn(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a composition may be unwise
            try:
                composition = search.drawn.draw(rng, entry)
            except RefusedError:
                refused += 1
                continue
            if number % RUN_EVERY == 0:
                came = search.tried(composition, 0.5, once=number % RESUMED_EVERY != 0)
                if came.fault:
                    faults[number] = (came.fault, composition.keys)
    assert not faults
    assert refused < DRAWN / 10
