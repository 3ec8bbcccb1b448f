"""The kinds of component and their listings."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Literal

import pytest

from motley.core.errors import ConfigError
from motley.core.paper import Paper
from motley.core.records import SignalRequirements
from motley.experiments import registry
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.selectors import CATALOGUE
from motley.selectors.uniform import Uniform


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("selectors", "selector"),
        ("Selector", "selector"),
        ("label-noise", "label_noise"),
        ("synchronies", "synchrony"),
        ("losses", "loss"),
    ],
)
def test_kinds_are_found_in_singular_and_plural(word: str, kind: str) -> None:
    assert registry.kind_of(word) == kind


def test_an_unknown_kind_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError,
        match=r"there is no kind 'selectrs' \(did you mean 'selectors'\?\); expected one of: "
        r"aggregator",
    ):
        registry.kind_of("selectrs")


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_kind_has_a_listing_that_json_can_hold(kind: str) -> None:
    rows = json.loads(json.dumps(registry.listing(kind)))
    assert [row["name"] for row in rows] == registry.catalogue(kind).names()
    assert rows
    for row in rows:
        assert row["about"], f"{kind} {row['name']} has no docstring"


def test_a_listing_shows_options_and_what_is_seen() -> None:
    row = next(row for row in registry.listing("selector") if row["name"] == "power_of_choice")
    assert row["upload_visibility"] in ("sum", "each")
    assert {
        "name": "d",
        "accepts": "a whole number or none",
        "required": False,
        "default": None,
    } in row["options"]
    assert row["paper"]
    rates = next(row for row in registry.listing("network") if row["name"] == "constant")["options"]
    assert rates[0]["required"]


def test_build_makes_the_component_with_the_default_key() -> None:
    assert registry.build("selector", "uniform").variant == "uniform_wor"
    with pytest.raises(ConfigError, match=r"^selector\.name: got 'unifrom'"):
        registry.build("selector", "unifrom")


def test_plain_writes_out_every_option() -> None:
    assert registry.plain(registry.build("algorithm", "fedprox")) == {
        "mu": 0.1,
        "adaptive": False,
        "step": 0.1,
        "patience": 5,
    }


def test_papers_come_once_each() -> None:
    fedprox = registry.build("algorithm", "fedprox")
    found = registry.papers(
        [fedprox, object(), registry.build("algorithm", {"name": "fedprox", "mu": 1})]
    )
    assert [type(paper) for paper in found] == [Paper]


@dataclasses.dataclass(frozen=True)
class Wants(Uniform):
    """A rule that wants to be told one signal at one moment."""

    signal: str = "loss"
    when: Literal["enrolled", "probed", "reported"] = "reported"

    def needs(self) -> SignalRequirements:
        return SignalRequirements(
            **{
                self.when: {self.signal: None}
                if self.when == "probed"
                else frozenset({self.signal})
            }
        )


@pytest.mark.parametrize(
    ("signal", "when", "told"),
    [
        ("label_histogram", "enrolled", True),
        ("uplink_mbps", "enrolled", True),
        ("loss", "enrolled", False),
        ("loss", "probed", True),
        ("uplink_mbps", "probed", True),
        ("gradient", "probed", True),
        ("sketch", "probed", False),
        ("update_norm", "reported", True),
        ("sketch", "reported", True),
        ("uplink_mbps", "reported", False),
    ],
)
def test_a_signal_nobody_can_tell_is_refused(
    signal: str, when: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOGUE.targets, "wants", f"{__name__}:Wants")
    keys = {
        "task": {"name": "synthetic"},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "partition": "by_writer",
    }
    experiment = Experiment(**keys, selector={"name": "wants", "signal": signal, "when": when})
    with (
        contextlib.nullcontext()
        if told
        else pytest.raises(ConfigError, match=f"'wants' needs the signal '{signal}' {when}")
    ):
        build(experiment)
