"""The figures in the sentences of docs/measured.md, docs/choosing-clients.md,
docs/privacy.md and docs/engines.md are those of the measured files and of the code."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import pytest

from benchmarks.gpu.stages import STAGES
from motley import engines
from motley.engines import stacked

ROOT = Path(__file__).resolve().parents[3]


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _measured(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "measured" / f"{name}.json").read_text())


def _rows(file: str, experiment: str, panel: str | None = None) -> dict[str, dict[str, Any]]:
    """Label -> row of one experiment (of one panel)."""
    rows = _measured(file)[experiment]["rows"]
    return {row["label"]: row for row in rows if panel is None or row["panel"] == panel}


def _lead(rows: dict[str, dict[str, Any]], one: str, other: str, end: str = "stable") -> float:
    """By how many points one method is above another."""
    return float(rows[one][end][0] - rows[other][end][0])


def _surely(rows: dict[str, dict[str, Any]], verdict: str) -> set[str]:
    return {
        label for label, row in rows.items() if row.get("difference", {}).get("verdict") == verdict
    }


ALGORITHMS = _page("measured.md")
CHOOSING = _page("choosing-clients.md")


def test_how_the_methods_were_tuned() -> None:
    for found in _measured("tuned").values():
        assert f"tuned with {found['trials']} trials a method" in ALGORITHMS
        assert f"tested on {len(found['test_seeds'])} other seeds" in ALGORITHMS
        assert not set(found["seeds"]) & set(found["test_seeds"])


def test_labels_differ() -> None:
    rows = _rows("tuned", "label_skew")
    points = [_lead(rows, one, "fedavg") for one in ("feddyn", "fedadam")]
    worst = [_lead(rows, one, "fedavg", "worst_decile") for one in ("feddyn", "fedadam")]
    assert (
        f"by {points[0]:.1f} and {points[1]:.1f} points, and by {worst[0]:.1f} and "
        f"{worst[1]:.1f} for the worst tenth" in ALGORITHMS
    )
    assert _surely(rows, "better") == {"feddyn", "fedadam", "moon"}
    assert _surely(rows, "worse") == {"fedavgm"}


def test_writers() -> None:
    mnist, femnist = _rows("tuned", "writers_mnist"), _rows("heterogeneity", "writers_femnist")
    first, second = (_lead(rows, "fedadam", "fedavg") for rows in (mnist, femnist))
    assert f"ahead by {first:.1f} points on MNIST" in ALGORITHMS
    assert f"by {second:.1f} on FEMNIST" in ALGORITHMS
    others = [
        _lead(rows, one, "fedavg") for rows in (mnist, femnist) for one in {*rows} - {"fedadam"}
    ]
    assert max(others) < 0.2
    assert _lead(mnist, "qfedavg", "fedavg", "worst_decile") < 0
    fell = f"fell to {femnist['scaffold']['worst_decile'][0]:.1f} % for the worst tenth on FEMNIST"
    assert fell in ALGORITHMS


def test_features_sizes_and_corrupted_clients() -> None:
    domains = _rows("heterogeneity", "feature_shift")["fedbn"]["domains"]
    ends = {name: pair[0] for name, pair in domains.items()}
    assert f"stayed {ends['plain'] - min(ends.values()):.0f} points behind the plain" in ALGORITHMS
    sizes = _rows("heterogeneity", "quantity_skew", "labels even")
    cost = _lead(sizes, "fedavg, weights examples", "fedavg, weights uniform")
    assert f"Equal weights cost {cost:.1f} points" in ALGORITHMS
    behind = _lead(_rows("tuned", "quantity_skew"), "fedavg", "fednova")
    assert f"was behind by {behind:.1f} points" in ALGORITHMS
    flipped = _rows("tuned", "label_flip")
    robust = [f"fedavg, {one}" for one in ("multi_krum", "median", "trimmed_mean", "norm_bound")]
    leads = [_lead(flipped, one, "fedavg, mean") for one in robust]
    assert f"all four were {min(leads):.1f} to {max(leads):.1f} points above" in ALGORITHMS
    assert _surely(flipped, "better") == set(robust)


def test_uneven_work_and_speeds() -> None:
    work = _rows("tuned", "uneven_work")
    keep, drop = "partial keep, fedavg", "partial drop, fedavg"
    assert (
        f"worth {_lead(work, keep, drop):.1f} points, and "
        f"{_lead(work, keep, drop, 'worst_decile'):.1f} for the worst tenth" in ALGORITHMS
    )
    assert f"`fedprox` added {_lead(work, 'partial keep, fedprox', keep):.1f} points" in ALGORITHMS
    behind = _lead(work, keep, "partial keep, fednova")
    assert f"`fednova` was {behind:.1f} behind" in ALGORITHMS
    speeds = _rows("heterogeneity", "asynchronous")
    quick = ("buffered", "asynchronous", "deadline, late partial")
    until = [speeds[one]["target"]["seconds"] for one in quick]
    waiting = speeds["synchronous"]["target"]["seconds"]
    assert (
        f"after {min(until):.0f} to {max(until):.0f} virtual seconds, and waiting for the slowest "
        f"after {waiting:.0f}" in ALGORITHMS
    )
    late, patient = (speeds[one]["slow"][0] for one in ("deadline, late drop", "synchronous"))
    assert (
        f"took {late:.0f} % of its updates from the slowest quarter of clients in place of "
        f"{patient:.0f} %" in ALGORITHMS
    )
    assert speeds["deadline, late drop"]["difference"]["verdict"] == "no clear difference"


def test_personal_models() -> None:
    labels = _rows("tuned", "personal_labels")
    assert max(labels, key=lambda one: labels[one]["stable"][0]) == "fine_tuned"
    assert _surely(labels, "better") == {"fine_tuned", "fedala", "per_fedavg"}
    gains = _rows("heterogeneity", "personal_labels")["fine_tuned"]["gains"]["local_only"]["each"]
    assert f"one was {-min(gains):.0f} points worse off than alone" in ALGORITHMS
    concepts = _rows("tuned", "personal_concepts")
    lead = _lead(concepts, "ifca", "local_only")
    assert f"was {lead:.1f} points above training alone" in ALGORITHMS
    for one in ("fine_tuned", "fedper", "fedala", "fedrep", "apfl", "ditto"):
        assert _lead(concepts, one, "local_only") > 0, one
    for one in ("pfedme", "per_fedavg", "fedbabu"):
        assert _lead(concepts, one, "local_only") < 0, one
    features = _rows("tuned", "personal_features")
    below = [
        _lead(features, "local_only", one)
        for one in ("fedavg", "fedper", "fedrep", "fedala", "per_fedavg")
    ]
    assert f"stayed {min(below):.0f} to {max(below):.0f} points below" in ALGORITHMS
    for one in ("ifca", "fedper, own_norms", "fedbn", "fine_tuned"):
        assert _lead(features, one, "local_only") > 0, one
    for rows in (concepts, features):
        assert "epochs = 5" in rows["fine_tuned"]["chosen"]


def test_capacity() -> None:
    rows = _rows("tuned", "unequal_capacity")
    narrow = "fedavg, 8 units for all"
    assert f"accuracy was {_lead(rows, 'fjord', narrow):.1f} points above" in ALGORITHMS
    behind = _lead(rows, narrow, "fedrolex")
    assert f"`fedrolex` was {behind:.1f} points below the narrow model" in ALGORITHMS
    for one in ("fine_tuned", "ditto", "fedper", "local_only"):
        assert _lead(rows, one, "fedavg") < 0, one


def test_liars() -> None:
    found = _measured("liars")
    cells: dict[tuple[str, str, float, str], list[dict[str, float]]] = defaultdict(list)
    for run in found["runs"]:
        cells[run["rule"], run["strategy"], run["share"], run["defence"]].append(run)
    rules = {rule for rule, *_ in cells}
    assert (
        f"for {found['clients']} clients and {len({r['seed'] for r in found['runs']})} seeds"
        in (CHOOSING)
    )

    def at(value: str, rule: str, strategy: str, share: float, defence: str) -> float:
        return 100 * mean(run[value] for run in cells[rule, strategy, share, defence])

    def picks(share: float, defence: str, strategy: str = "constant") -> dict[str, float]:
        return {rule: at("picks", rule, strategy, share, defence) for rule in rules}

    led = picks(0.1, "off")
    most = ("power_of_choice", "delta", "fedstas", "feel", "adasample", "fedcs")
    assert {rule for rule in rules if led[rule] > 80} == set(most)
    assert f"at least {min(led[rule] for rule in most):.0f} % of the picks" in CHOOSING
    often = [led[rule] for rule in ("active_fl", "oort", "pyramidfl")]
    assert f"{min(often):.0f} to {max(often):.0f} % of those of `active_fl`" in CHOOSING
    assert f"at most {max(picks(0.1, 'on').values()):.0f} % of any rule's picks" in CHOOSING
    assert f"at up to {max(picks(0.3, 'on').values()):.0f} % of the picks" in CHOOSING
    lost = [
        at("accuracy", rule, "honest", 0.0, "off") - at("accuracy", rule, "constant", 0.1, "on")
        for rule in rules
    ]
    assert max(lost) < 3
    calm = max(
        value
        for rule in ("uniform", "restless_bandit", "tifl", "ucb1")
        for value in (led[rule], picks(0.1, "on")[rule])
    )
    assert f"at most {calm:.0f} % of their picks lie" in CHOOSING
    together = picks(0.1, "on", "coalition")
    assert f"a tenth of liars gets at most {max(together.values()):.0f} % of the picks" in CHOOSING
    assert picks(0.1, "off", "coalition")["fedcbs"] == 100


def test_what_the_defence_costs_is_told_with_its_interval() -> None:
    """By hand from the runs: mean and t interval of the differences of three seeds."""
    ends = {
        (run["rule"], run["defence"], run["seed"]): 100 * run["accuracy"]
        for run in _measured("liars")["runs"]
        if run["strategy"] == "honest"
    }
    sure = []
    for rule in sorted({rule for rule, _, _ in ends}):
        gains = [ends[rule, "on", seed] - ends[rule, "off", seed] for seed in range(3)]
        half = 4.302652729911275 * stdev(gains) / 3**0.5
        middle = mean(gains)
        sure += [rule] if abs(middle) > half else []
        if rule in ("oort", "active_fl", "pyramidfl", "fedcg", "linucb", "neural_bandit", "divfl"):
            said = f"{middle:+.1f} [{middle - half:+.1f}, {middle + half:+.1f}]".replace("-", "−")
            assert f"`{rule}` {said}" in CHOOSING
    assert sure == ["neural_bandit"]
    assert "the interval of 1 (`neural_bandit`) excludes zero" in CHOOSING


def test_whom_to_ask_first_follows_from_the_league(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand from the stored rows: the highest median of those never far behind uniform, and the
    most where speeds differ."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import from_league

    path = ROOT / "benchmarks/measured/recipes/league/small/measured.csv"
    scores: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["exhibit"], row["measure"]) == ("shared", "stable"):
                place, rule = row["cell"].split(" / ")
                scores[place, rule][row["seed"]] = float(row["value"])

    def gain(place: str, rule: str) -> float:
        ours, other = scores[place, rule], scores[place, "uniform FedAvg"]
        return mean(ours[seed] - other[seed] for seed in ("0", "1"))

    places = sorted({place for place, _ in scores})
    rules = {"power_of_choice", "oort", "active_fl", "tifl", "fedcbs", "divfl", "ucb1", "linucb"}
    gains = {rule: {place: gain(place, rule) for place in places} for rule in rules}
    calm = {rule: median(one.values()) for rule, one in gains.items() if min(one.values()) > -2.5}
    slow = [place for place in places if place.startswith("speeds")]
    quick = {rule: mean(one[place] for place in slow) for rule, one in gains.items()}
    assert from_league.start_here() == (max(calm, key=calm.__getitem__), max(quick, key=quick.get))
    assert "power_of_choice" not in calm
    steady, fast = from_league.start_here()
    assert f'"selector.name" = ["uniform", "{steady}", "{fast}"]' in CHOOSING


def test_a_choice_among_a_million() -> None:
    took = [
        row["steady_s"] for row in _measured("selection")["rows"] if row["clients"] == 1_000_000
    ]
    assert f"takes less than {max(took) + 0.005:.2f} s" in CHOOSING


def test_what_privacy_costs() -> None:
    page = _page("privacy.md")
    for epsilon in (8, 4, 2):
        rows = _rows("heterogeneity", "private_mnist", f"epsilon {epsilon}")
        more, low, high = rows["uniform, min_separation 5"]["difference"]["interval"]
        assert f"+{more:.1f} [{low:.1f}, {high:.1f}] at {epsilon}" in page.replace(
            " points [", " ["
        ).replace("at epsilon", "at")
    heard = [_lead(rows, "uniform", one) for one in ("oort", "power_of_choice", "hetero_select")]
    assert f"up to {max(heard):.1f} points at epsilon 2" in page
    ends = [
        _rows("heterogeneity", "private_femnist", panel)["uniform"]["stable"][0]
        for panel in ("without privacy", "epsilon 8")
    ]
    assert f"`uniform` reaches {ends[0]:.1f} % without privacy and {ends[1]:.1f} % at" in page
    noise = {
        (row["epsilon"], row["noise_by"]): f"{row['accuracy']:.1f} ± {row['deviation']:.1f}"
        for row in _measured("client_noise_cost")["rows"]
    }
    colluders = "clients, 33 colluders"
    assert f"{noise[8.0, 'server']} becomes {noise[8.0, colluders]} at epsilon 8" in page
    assert f"{noise[2.0, 'server']} becomes {noise[2.0, colluders]} at 2" in page


def test_what_attacks_on_privacy_found() -> None:
    page = _page("privacy.md")
    found = _measured("test_privacy")
    assert not found["failed"]
    assert (
        f"{found['compared']} were compared in {found['worlds']:,} worlds, {found['refused']:,} "
        "refused, and none differed" in page
    )
    attack = _measured("privacy_attack")
    assert f"{attack['trials']:,} trials of each world" in page
    assert f"the ceiling of {attack['ceiling']:.1f}" in page
    bounded = [row for row in attack["rows"] if row["bound"] is not None]
    assert all(row["eps_hat"] <= row["bound"] for row in bounded)
    assert f"leave the choice out ({attack['naive']['updates_alone']:.1f})" in page


def test_the_bounds_of_engines() -> None:
    page = _page("engines.md")
    assert engines._SMALL == 10**5
    assert "models of at most 10^5 weights" in page
    assert f"fewer than {stacked._THIN} outputs" in page
    gpu = _page("gpu.md")
    for stage in STAGES:
        (line,) = [line for line in gpu.splitlines() if line.startswith(f"| `{stage.name}` |")]
        limit = "the rest" if stage.name == "recipes" else f"{stage.minutes:g}"
        assert line.endswith(f"| {limit} |"), line
