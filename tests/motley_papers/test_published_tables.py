"""What the notes say of the published tables, computed again from ``expected.csv``: each phrase
with a number stands in the notes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np
import pytest

from motley.tasks.clustered_regression import ClusteredRegression
from motley_papers.recipe import Recipe, read

SECTION = "**What the published tables themselves say**"


def check(recipe: Recipe, phrases: Iterable[str]) -> None:
    """Assert that each phrase stands in the notes' section on the published tables, line breaks
    apart."""
    _, found, rest = recipe.notes.partition(SECTION)
    assert found
    said = " ".join(re.split(r"\n\n\*\*", rest)[0].split())
    missing = [phrase for phrase in phrases if phrase not in said]
    assert not missing


def printed(recipe: Recipe, exhibit: str, measure: str) -> dict[str, float]:
    return {
        cell: value
        for (e, cell, m), (value, _) in recipe.expected.items()
        if (e, m) == (exhibit, measure)
    }


def spreads(recipe: Recipe, exhibit: str, measure: str) -> dict[str, float]:
    return {
        cell: spread
        for (e, cell, m), (_, spread) in recipe.expected.items()
        if (e, m) == (exhibit, measure)
    }


def test_hetero_select_v1_ablations():
    recipe = read("hetero_select_v1")
    peak = printed(recipe, "table 3", "peak")
    final = printed(recipe, "table 3", "final")
    same = ["gamma 0.7", "eta 0.3", "temperature 1.0", "participation 50 %"]
    twice = ["temperature 2.0", "explorative, mu 0.01"]
    gaps = sorted(peak[cell] - final[cell] for cell in final)
    strong = peak["explorative, mu 0.1"]
    pull = peak["exploitative, mu 0.1"] - peak["exploitative, mu 0.01"]
    temperatures = [cell for cell in peak if cell.startswith("temperature")]
    assert max(temperatures, key=peak.__getitem__) == "temperature 2.0"
    assert max(temperatures, key=final.__getitem__) == "temperature 0.5"
    check(
        recipe,
        [
            "with peaks " + ", ".join(f"{peak[cell]:.2f}" for cell in same),
            "and finals " + ", ".join(f"{final[cell]:.2f}" for cell in same),
            "with peaks " + " and ".join(f"{peak[cell]:.2f}" for cell in twice),
            f"up to {abs(peak[twice[0]] - peak[twice[1]]):.2f} points of peak",
            f"and {max(final[c] for c in same) - min(final[c] for c in same):.2f} of final",
            f"with {peak[twice[1]]:.2f} mu 0.1 gains {strong - peak[twice[1]]:.2f} points",
            f"with {peak[twice[0]]:.2f} it gains {strong - peak[twice[0]]:.2f}, as the "
            f"exploitative strategy does ({pull:.2f})",
            f"in {['no', 'one', 'two', 'three'][sum(gap == 0 for gap in gaps)]} of {len(gaps)} "
            f"rows, and up to {gaps[-1]:.2f} points",
            f"a final of {final['temperature 2.0']:.2f} against {final['temperature 0.5']:.2f} at "
            "temperature 0.5",
            f"(peak {peak['participation 80 %']:.2f} against {peak['participation 50 %']:.2f}, "
            f"final {final['participation 80 %']:.2f} against {final['participation 50 %']:.2f})",
        ],
    )


def test_hetero_select_v1_stability():
    """Counts of six of twelve clients in 100 independent rounds have variance 100 / 4 around their
    fixed mean: deviation 5."""
    recipe = read("hetero_select_v1")
    peak, final, stable, drop = (
        printed(recipe, "table 1", m) for m in ("peak", "final", "stable", "drop")
    )
    assert all(drop[cell] == pytest.approx(peak[cell] - final[cell]) for cell in peak)
    lost = {cell: f"{peak[cell] - stable[cell]:.2f}" for cell in peak}
    assert [cell for cell in peak if final[cell] > stable[cell]] == [
        "hetero_select_v1",
        "hetero_select_v1_multiplicative",
    ]
    all_peak, all_stable, all_drop = (
        printed(recipe, "table 2", m) for m in ("peak", "stable", "drop")
    )
    fm_peak, fm = (
        {c: v for c, v in printed(recipe, "table 4", m).items() if "fashion" in c}
        for m in ("peak", "stable")
    )
    names = ["fedavg", "fedprox", "hetero_select_v1, 50 %"]
    avg, prox, half = (fm[f"fashion_mnist / {name}"] for name in names)
    fell = [fm_peak[f"fashion_mnist / {name}"] - fm[f"fashion_mnist / {name}"] for name in names]
    mnist = printed(recipe, "table 4", "stable")
    check(
        recipe,
        [
            f"Oort loses {lost['oort']} points from its peak, the additive form "
            f"{lost['hetero_select_v1']}, the multiplicative "
            f"{lost['hetero_select_v1_multiplicative']}, random {lost['random']}, Power-of-Choice "
            f"{lost['power_of_choice']}",
            f"({stable['oort']:.2f} against {stable['hetero_select_v1']:.2f})",
            " and ".join(
                f"{final[c] - stable[c]:.2f}"
                for c in ("hetero_select_v1", "hetero_select_v1_multiplicative")
            ),
            f"{drop['hetero_select_v1']:.2f} is called the smallest drop. FedProx with everybody "
            f"has {all_drop['fedprox']:.2f}",
            f"{all_peak['fedprox'] - all_stable['fedprox']:.2f} against {lost['hetero_select_v1']}",
            "deviation of "
            f"{recipe.expected['figure 6', 'hetero_select_v1', 'participation_std'][0]:.2f} is "
            "above",
            f"{math.sqrt(100 * 0.5 * 0.5):.2f} for six of twelve",
            f"({half:.2f} against {avg:.2f} and {prox:.2f})",
            f"lose {fell[2]:.2f} points from their peak where FedAvg loses {fell[0]:.2f} and "
            f"FedProx {fell[1]:.2f}",
            f"({mnist['mnist / hetero_select_v1, 50 %']:.2f} against "
            f"{mnist['mnist / fedprox']:.2f})",
        ],
    )


def test_hetero_select_tables():
    recipe = read("hetero_select")
    seconds = printed(recipe, "table 1", "paper_seconds_to_target")
    mb = printed(recipe, "table 1", "paper_mb_to_target")
    ours = "hetero_select_published"
    fedcg = "fedcg"
    total_s, total_mb = (
        printed(recipe, "table 1", m)[f"cifar100 / {ours}"] for m in ("paper_seconds", "paper_mb")
    )
    rate = {cell: mb[cell] / seconds[cell] for cell in seconds}
    kept = [
        rate[f"cifar100 / {m}"] / rate[f"cifar10 / {m}"]
        for m in ("fedavg", "optrate", "flexcom", "adasample")
    ]
    assert max(abs(ratio - 1) for ratio in kept) < 0.04
    params = [7_850, 11_270_000]  # Table III
    below, above = (100 * sum(_binomial(k) for k in ks) for ks in (range(5), range(17, 101)))
    counts = [
        printed(recipe, "figure 6b", f"participation_{m}")[f"cifar10 / {ours}"]
        for m in ("least", "most")
    ]
    check(
        recipe,
        [
            f"{100 * total_s / seconds[f'cifar100 / {fedcg}']:.1f} % of the time, "
            f"{100 * total_mb / mb[f'cifar100 / {fedcg}']:.1f} % of",
            f"{mb[f'cifar10 / {ours}']:,.0f} against {mb[f'cifar10 / {fedcg}']:,.0f} MB is "
            f"{100 * (1 - mb[f'cifar10 / {ours}'] / mb[f'cifar10 / {fedcg}']):.1f} % less",
            f"{rate['cifar10 / fedcg']:.2f} on CIFAR-10 and {rate['cifar100 / fedcg']:.2f} on "
            "CIFAR-100",
            f"11.27 million over 7,850 is {params[1] / params[0]:,.0f}",
            f"counts run from {counts[0]:.0f} to {counts[1]:.0f} in 100 rounds",
            f"leave {below:.1f} clients below 5 and put {above:.1f} above 16",
        ],
    )


def _binomial(k: int) -> float:
    """The probability that a client is chosen k times in 100 rounds of ten of 100 clients."""
    return math.comb(100, k) * 0.1**k * 0.9 ** (100 - k)


def test_hetero_select_ablations():
    recipe = read("hetero_select")
    measures = (
        "peak",
        "final",
        "rounds_to_target",
        "paper_seconds_to_target",
        "paper_mb_to_target",
    )
    peak, final, rounds, seconds, mb = (printed(recipe, "table 2", m) for m in measures)
    gap = {cell: f"{peak[cell] - final[cell]:.2f}" for cell in peak}
    primary = "shares by score (primary)"
    same_task = [c for c in seconds if "primary" not in c and not c.startswith("psi")]
    assert len(same_task) == 9
    words = ["no", "one", "two", "three", "four", "five", "six", "seven"]
    faster = words[sum(seconds[c] < seconds[primary] for c in same_task)]
    lighter = words[sum(mb[c] < mb[primary] for c in same_task)]
    spread = spreads(recipe, "table 1", "paper_seconds_to_target")[
        "cifar10 / hetero_select_published"
    ]
    near = words[sum(abs(seconds[c] - seconds[primary]) < 2 * spread for c in same_task)]
    fair = "without fairness and staleness"
    uniform = "uniform shares"
    assert {c for c in same_task if seconds[c] > seconds[primary]} == {uniform, "without value"}
    mu0 = [
        c
        for c in peak
        if c == "mu 0" or c in (uniform, "without value", "top-k by magnitude", "one learning rate")
    ]
    assert {gap[c] for c in [*mu0, "equal weights", primary]} == {"0.00"}
    check(
        recipe,
        [
            f"has {gap['without diversity']} there, and also {gap['mu 0.01']} (mu 0.01), "
            f"{gap['mu 0.5']} (mu 0.5), {gap[fair]} (without",
            f"{gap['constant memory 0.90']} (memory of 0.90)",
            f"{gap['psi 0']}, {gap['psi 0.2']}, {gap['psi 0.6']} and {gap['psi 0.8']} at psi 0, "
            "0.2, 0.6 and 0.8",
            f"the table has it {peak['top-k by magnitude'] - peak[primary]:.2f} higher",
            f"after {rounds['top-k by magnitude']:.0f} rounds against {rounds[primary]:.0f}",
            f"{faster} do so in less time than the method itself, and {lighter} with less traffic",
            f"({rounds[fair]:.0f} rounds, {seconds[fair]:,.0f} s, {mb[fair]:,.0f} MB, against "
            f"{rounds[primary]:.0f}, {seconds[primary]:,.0f} and {mb[primary]:,.0f})",
            f"Uniform shares peak {peak[primary] - peak[uniform]:.2f} lower and send "
            f"{mb[uniform] / rounds[uniform]:.1f} MB a round against "
            f"{mb[primary] / rounds[primary]:.1f}",
            f"peaks below psi 0.2 ({peak['psi 0']:.2f} against {peak['psi 0.2']:.2f})",
            f"in {near} of the nine",
        ],
    )


def test_flash_table_1():
    recipe = read("flash")
    value = printed(recipe, "table 1", "peak")
    spread = spreads(recipe, "table 1", "peak")
    cells = {tuple(cell.split(" / ")): found for cell, found in value.items()}
    settings = ("noniid30", "noise15", "noniid30_noise15")
    rules = ["flash", "fedcor", "restless_bandit", "random"]
    mean = {
        (s, r): [v for (a, _, b), v in cells.items() if (a, b) == (s, r)]
        for s in settings
        for r in rules
    }
    flash, fedcor, restless, random = ([sum(mean[s, r]) / 7 for s in settings] for r in rules)
    columns = {
        (s, a): {r: v for (b, c, r), v in cells.items() if (b, c) == (s, a)} for s, a, _ in cells
    }
    behind = [
        column for column, found in columns.items() if max(found, key=found.__getitem__) != "flash"
    ]
    assert behind == [("noniid30", "fedprox"), ("noniid30", "fedbio"), ("noise15", "fedprox")]
    lead = [a - b for a, b in zip(flash, fedcor, strict=True)]
    assert max(lead) < 3.76
    worst = [
        f"({columns[column]['fedcor']:.1f} against {columns[column]['flash']:.1f})"
        for column in behind
    ]
    same = [f"{a - b:.2f}" for a, b in zip(restless, random, strict=True)]
    one = columns["noniid30", "fednova"]["random"] - columns["noniid30", "fedavg"]["random"]
    check(
        recipe,
        [
            f"Spreads of {min(spread.values()):.1f} to {max(spread.values()):.1f} points",
            f"55.9 in the third panel is {fedcor[2]:.2f}",
            f"first in {len(columns) - len(behind)} of {len(columns)} columns",
            f"under FedProx {worst[0]} and FedBiO {worst[1]} with skew, and under FedProx "
            f"{worst[2]} with noise",
            f"{lead[0]:.2f}, {lead[1]:.2f} and {lead[2]:.2f} points above FedCor's",
            f"by {same[0]}, {same[1]} and {same[2]} points",
            f"{one:.1f} points above FedAvg in the first panel",
        ],
    )


def test_flash_in_the_abstract():
    """The largest lead of FLASH's row average, and the averages over settings that stand in the
    claims on aggregations."""
    recipe = read("flash")
    cells = {tuple(c.split(" / ")): v for c, v in printed(recipe, "table 1", "peak").items()}
    settings, aggregations, rules = (dict.fromkeys(axis) for axis in zip(*cells, strict=True))
    row = {
        (s, r): float(np.mean([cells[s, a, r] for a in aggregations]))
        for s in settings
        for r in rules
    }
    ahead = {key: row[key[0], "flash"] - mean for key, mean in row.items()}
    assert max(ahead, key=ahead.__getitem__) == ("noise15", "random")
    check(recipe, [f"at most {ahead['noise15', 'random']:.1f} points above another row's"])
    means = {
        (a, r): float(np.mean([cells[s, a, r] for s in settings]))
        for a in aggregations
        for r in ("flash", "random")
    }
    claims = {claim.source: claim.published for claim in recipe.claim if "Abstract" in claim.source}
    alone = claims["Abstract: outperforms aggregation methods"]
    together = claims["Abstract: aggregation methods gain from being used with FLASH"]
    assert f"{means['fedavg', 'flash']:.1f} on average" in alone
    for name in ("RHFL", "FedBiO", "FedNova", "FedProx", "FedDF", "SCAFFOLD"):
        mean = means[name.lower(), "random"]
        assert f"{name} {mean:.1f}" in alone
        gain = means[name.lower(), "flash"] - mean
        assert f"{gain:.1f} with {name}" in together.replace(" points", "")


def test_flash_skew_is_not_the_dirichlet_law_it_names():
    """At most one share is above one half, so the probability that any of ten is above .8 is ten
    times that of one, Beta(a, 9a)."""
    from scipy.special import betainc

    share = {
        alpha: 1000 * (1 - float(betainc(alpha, 9 * alpha, 0.8)))
        for alpha in (0.06, 0.07, 0.01, 0.1)
    }
    check(
        read("flash"),
        [
            f"has {share[0.06]:.0f} to {share[0.07]:.0f} %, {share[0.01]:.0f} % and "
            f"{share[0.1]:.0f} %"
        ],
    )


def _least(one: float, mean: float, divisor: int) -> float:
    """Return the least that two standard deviations of three values can be, given one and the mean:
    the other two are equal."""
    return 2 * math.sqrt(1.5 * (one - mean) ** 2 / divisor)


def test_fedcvr_bolt_one_seed_against_three():
    recipe = read("fedcvr_bolt")
    pairs = [
        ("table 1", "table 3", "mse"),
        *((f"table 2{p}", f"table 4{p}", "final") for p in "abc"),
    ]
    possible: dict[int, set[str]] = {2: set(), 3: set()}
    cells = 0
    for one, three, measure in pairs:
        single = printed(recipe, one, measure)
        mean = printed(recipe, three, measure)
        deviation = spreads(recipe, three, measure)
        # the same figures, again
        names = [c for c in single if not c.startswith("synthetic_equal")]
        cells += len(names)
        for divisor, found in possible.items():
            found |= {
                c for c in names if _least(single[c], mean[c], divisor) <= deviation[c] * 1.0001
            }
    assert cells == 28
    assert len(possible[3]) == 27
    assert "mnist / active_fl" not in possible[3]
    one = printed(recipe, "table 2b", "final")
    three = printed(recipe, "table 4b", "final")
    active = one["mnist / active_fl"], three["mnist / active_fl"]
    two = spreads(recipe, "table 4b", "final")
    check(
        recipe,
        [
            f"has {active[0]:.2f} with seed 42 and {active[1]:.2f} over three seeds",
            f"at least {_least(*active, 3):.2f} ({_least(*active, 2):.2f} with n - 1)",
            f"printed is {two['mnist / active_fl']:.2f}",
            f"Of the {cells} cells, {len(possible[2])} are possible with n - 1",
            f"leads ActiveFL by {three['mnist / fedcvr_bolt'] - active[1]:.2f} over three seeds",
            f"two deviations are {two['mnist / fedcvr_bolt']:.2f} and "
            f"{two['mnist / active_fl']:.2f}",
        ],
    )


def test_fedcvr_bolt_order_and_gains():
    recipe = read("fedcvr_bolt")
    one = printed(recipe, "table 1", "mse")
    three = printed(recipe, "table 3", "mse")
    spread = spreads(recipe, "table 3", "mse")
    lines = [
        kind
        for kind in dict.fromkeys(cell.rsplit(" / ", 1)[0] for cell in one)
        if kind.endswith("/ noniid")
    ]
    gain = [
        [f"{100 * (1 - t[f'{k} / fedcvr_bolt'] / t[f'{k} / random']):.1f} %" for k in lines]
        for t in (one, three)
    ]
    iid = {cell: v for cell, v in one.items() if cell.startswith("slope / iid")}
    assert max(iid.values()) / min(iid.values()) < 1.002
    first, last = [t["slope / iid / random"] - t["slope / iid / fedcvr_bolt"] for t in (one, three)]
    c1 = printed(recipe, "table 2c", "final")
    c3 = printed(recipe, "table 4c", "final")
    d3 = spreads(recipe, "table 4c", "final")
    s1 = printed(recipe, "table 2a", "final")
    s3 = printed(recipe, "table 4a", "final")
    assert s1["synthetic / active_fl"] > s1["synthetic / power_of_choice"]
    assert s3["synthetic / active_fl"] < s3["synthetic / power_of_choice"]
    check(
        recipe,
        [
            f"headline gains of {gain[0][0]} (printed as 3.0 %) and {gain[0][1]} over random are "
            "one seed",
            f"of three seeds has {gain[1][0]} and {gain[1][1]}",
            f"up to {max(spread.values()):.0f} on 57",
            f"random is first by {-first:.3f}; over three seeds FedCVR-Bolt is first by {last:.4f}",
            f"with spreads of {spread['slope / iid / random']:.1f}",
            f"({c1['cifar10 / active_fl']:.2f}) and behind random over three "
            f"({c3['cifar10 / active_fl']:.2f} against {c3['cifar10 / random']:.2f}, two "
            f"deviations being {d3['cifar10 / active_fl']:.2f})",
        ],
    )


@pytest.mark.parametrize("model", ["slope", "intercept"])
def test_fitted_ranges_give_the_printed_errors_of_the_regression(model):
    """With E z z^T = M_j for the input z of cluster j, the best model w for two clusters of equal
    size has the error mean_j sigma^2 tr M_j + min_w mean_j (theta_j - w)^T M_j (theta_j - w), whose
    minimum is D^T (M_1^-1 + M_2^-1)^-1 D / 2 with D = theta_1 - theta_2. The means of x and of the
    coefficients are uniform: E D D^T = (width^2 / 6) I, and the mean over the x by quadrature."""
    recipe = read("fedcvr_bolt")
    options = dict(recipe.named("table 3, fitted").axes["model"][model]["task"])
    assert options.pop("name") == "clustered_regression"
    law = ClusteredRegression(**options)
    points, weights = np.polynomial.legendre.leggauss(60)
    mean = np.mean(law.mu_x) + np.ptp(law.mu_x) / 2 * points
    assert law.sigma_x[0] == law.sigma_x[1]
    square = mean**2 + law.sigma_x[0] ** 2
    m = square[:, None, None]
    if law.intercept:
        m = np.stack([np.stack([square, mean], -1), np.stack([mean, np.ones(60)], -1)], -2)
    inverse = np.linalg.inv(m)
    joint = np.linalg.inv(inverse[:, None] + inverse[None])
    pairs = weights[:, None] * weights / 4
    apart = (pairs * np.trace(joint, axis1=2, axis2=3)).sum() * np.ptp(law.theta) ** 2 / 12
    noise = law.sigma_theta[0] ** 2 * (weights / 2 * np.trace(m, axis1=1, axis2=2)).sum()
    for data, error in (("iid", noise), ("noniid", noise + apart)):
        printed = recipe.expected["table 3", f"{model} / {data} / random", "mse"][0]
        assert error == pytest.approx(printed, rel=2e-3)
