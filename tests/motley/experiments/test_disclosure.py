"""What leaves a client, held row by row to the table of selectors that docs/privacy.md starts from.

Each row: enrolled, probed, reported (columns of reports beside signals as ``t``), the choice, and
whether single uploads are seen.
"""

from __future__ import annotations

import pytest

from motley.algorithms import CATALOGUE as ALGORITHMS
from motley.core.records import SignalRequirements
from motley.experiments import registry
from motley.experiments.disclosure import selector_disclosure
from motley.selectors import CATALOGUE
from motley.selectors.adasample import AdaSample
from motley.selectors.feel import FEEL
from motley.selectors.flash import FLASH
from motley.selectors.hetero_select import HeteroSelect
from motley.selectors.power_of_choice import PowerOfChoice
from motley.selectors.uniform import Uniform

T = {
    "download_s",
    "compute_s",
    "upload_s",
    "local_steps",
    "bits_up",
    "download_estimate_s",
    "compute_estimate_s",
    "upload_estimate_s",
}
N = {"num_examples"}
G = {"gradient_sketch"}
TABLE = {  # rule: enrolled, probed, reported, choice, visibility; "t" stands for any of T
    "active_fl": (N, {"loss"}, {"arrival_loss"}, "yes", "sum"),
    # max_grad_norm with `refresh`; with pilots see below
    "adasample": (N, {"grad_norm", "t"}, set(), "yes", "each"),
    "clustered_sampling": (N, set(), G, "yes", "each"),
    "delta": (N, {"loss", *G}, set(), "yes", "each"),
    "divfl": (set(), G, G, "yes", "each"),
    "fedcbs": ({"label_histogram"}, set(), set(), "on labels", "sum"),
    "fedcg": (set(), {"t"}, G, "yes", "each"),
    "fedcor": (N, {"loss"}, set(), "yes", "sum"),
    "fedcs": (set(), {"t"}, set(), "on sizes, through seconds", "sum"),
    "fedcvr_bolt": (N | {"last_layer"}, set(), {"last_layer"}, "yes", "each"),
    "fedstas": (set(), G, set(), "yes", "each"),
    "feel": (N, {"grad_norm", "t"}, set(), "yes", "each"),
    "flash": (set(), {"robust_loss", "val_loss"}, {"t"}, "yes", "sum"),
    "greedyfed": (set(), set(), {"contribution"}, "yes", "each"),
    "hics_fl": (set(), set(), {"output_bias"}, "yes", "each"),
    "linucb": (set(), {"robust_loss", "val_loss"}, {"t"}, "yes", "sum"),
    "neural_bandit": (set(), {"robust_loss", "val_loss"}, {"t"}, "yes", "sum"),
    # since the table was made, the default compares kept updates at the choice; `direction =
    # "cosine"` reports as the table says
    "hetero_select": (set(), {"loss", "last_update_cosine"}, set(), "yes", "each"),
    "hetero_select_v1": ({"label_histogram"}, {"loss"}, {"update_norm"}, "yes", "each"),
    "oort": (N | {"t"}, set(), {"loss_rms", "t"}, "yes", "sum"),
    "poisson": (set(), set(), set(), "no", "sum"),
    "power_of_choice": (N, {"loss"}, set(), "yes", "sum"),
    "pyramidfl": (N | {"t", "uplink_mbps"}, set(), {"loss_rms", "update_norm", "t"}, "yes", "each"),
    "restless_bandit": (set(), set(), {"arrival_loss", "t"}, "yes", "sum"),
    "ucb1": (set(), set(), {"arrival_loss", "t"}, "yes", "sum"),
    # the table says that TiFL's choice depends on data through the tier alone; a tier's choice is a
    # choice of clients, hence "yes"
    "tifl": ({"t"}, {"val_loss"}, {"t"}, "yes", "sum"),
    "uniform": (set(), set(), set(), "no", "sum"),
}


def short(sent):
    return {"t" if name in T else name for name in sent}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_the_row_of_the_table(name):
    found, (enrolled, probed, reported, choice, visibility) = (
        selector_disclosure(CATALOGUE.get(name)()),
        TABLE[name],
    )
    assert (short(found.enrolled), short(found.probed), short(found.reported)) == (
        enrolled,
        probed,
        reported,
    )
    assert (found.choice, found.visibility) == (choice, visibility)


def test_every_selector_has_a_row():
    assert set(CATALOGUE.names()) == set(TABLE)


@pytest.mark.parametrize("signal", ["update_norm", "sketch", "grad_norm", "loss", "num_examples"])
def test_a_rule_that_asks_for_numbers_made_of_single_updates_cannot_hide_it(signal):
    """Nothing is declared beside ``needs``, so a rule of one's own says the same as ours."""

    class Asking(Uniform):
        def needs(self):
            return SignalRequirements(reported=frozenset({signal}))

    single = signal in ("update_norm", "sketch", "grad_norm")
    assert Asking().single_signals == ((signal,) if single else ())
    assert selector_disclosure(Asking()).visibility == ("each" if single else "sum")


def test_variants_say_what_they_send():
    assert selector_disclosure(Uniform("weighted_wr")).choice == "on sizes"
    assert selector_disclosure(Uniform(unbiased=True)).enrolled == {"num_examples": "size"}
    assert selector_disclosure(PowerOfChoice("rpow_d")).reported == {"loss": "data"}
    assert set(selector_disclosure(AdaSample(pilots=True)).reported) >= {
        "max_grad_norm",
        "arrival_loss",
    }
    assert "update_norm" in selector_disclosure(FEEL(norm_source="stale")).reported
    assert {"robust_loss", "val_loss"} <= set(
        selector_disclosure(FLASH(probe="last_report")).reported
    )
    assert selector_disclosure(HeteroSelect("cosine")).reported == {"cosine": "data"}


def test_the_initial_last_layer_is_public():
    found = selector_disclosure(CATALOGUE.get("fedcvr_bolt")())
    assert (found.enrolled["last_layer"], found.reported["last_layer"]) == ("public", "data")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("uniform", "as it is"),
        ("power_of_choice", "noise on loss, num_examples, or Gumbel noise"),
        ("oort", "noise on loss_rms, num_examples, fixed local.steps"),
        ("fedcs", "fixed local.steps"),
        ("divfl", "no: it needs 'gradient_sketch', a whole vector of every client"),
        ("fedcbs", "noise on label_histogram"),
        (
            "hetero_select",
            "no: it needs 'last_update_cosine', which the server makes of a clear upload, unless "
            "w_direction = 0",
        ),
        ("hetero_select_v1", "noise on label_histogram, loss, update_norm"),
    ],
)
def test_what_privacy_takes(name, said):
    assert selector_disclosure(CATALOGUE.get(name)()).private == said


def test_options_can_spare_a_rule_what_the_server_makes_of_uploads():
    assert selector_disclosure(HeteroSelect(w_direction=0.0)).private == "noise on loss"
    compared = HeteroSelect(w_direction=0.0, compare_directions=True)
    assert selector_disclosure(compared).private.endswith(", unless compare_directions = false")


def test_algorithms_say_what_is_uploaded_and_who_must_see_it():
    rows = {row["name"]: row["leaves"] for row in registry.listing("algorithm") if row["leaves"]}
    assert set(rows) == {
        name
        for name in ALGORITHMS.names()
        if all(o.default is not ... for o in ALGORITHMS.options(name))
    }
    assert rows["scaffold"]["reported"] == {"dc": "data", "delta": "data"}
    admitted = {name for name, row in rows.items() if row["private"] == "clipped and noised"}
    assert {
        "fedavg",
        "fedprox",
        "scaffold",
        "fednova",
        "fedadam",
        "feddyn",
        "fedavgm",
        "fedper",
        "ditto",
    } <= admitted
    assert (
        not {
            "feddf",
            "rhfl",
            "fedbio",
            "ifca",
            "fedpac",
            "fedproto",
            "heterofl",
            "fedrolex",
            "fiarse",
            "fjord",
            "qfedavg",
        }
        & admitted
    )
    assert {name for name, row in rows.items() if row["visibility"] == "each"} >= {
        "feddf",
        "fedbio",
    }


def test_a_listing_says_it_and_the_old_label_is_gone():
    from motley.cli import _lines

    row = next(row for row in registry.listing("selector") if row["name"] == "active_fl")
    text = "\n".join(_lines(row))
    assert "sees the sum" not in text
    assert "    probed               loss" in text
    assert "    choice on data       yes" in text
