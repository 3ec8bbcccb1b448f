"""Verdicts on numbers worked by hand. With three pairs the t interval has two degrees of freedom:
half width = 4.302653 s / sqrt 3."""

from math import nan

import pytest
from scipy.stats import ttest_rel

from motley.results.measures import Censored
from motley_papers.power import resolvable
from motley_papers.recipe import Claim, Exhibit
from motley_papers.recipe_claim import Protocol
from motley_papers.sequential import SpendingPlan
from motley_papers.verdict_tables import counted_words, headline, verdict_table
from motley_papers.verdicts import corrected, judge

METHODS = {"a": {}, "b": {}, "c": {}}
TABLE = Exhibit(name="table 1", title="", measures=["final"], axes={"method": METHODS})
CROSSED = Exhibit(
    name="table 2",
    title="",
    measures=["final"],
    axes={"setting": {"x": {}, "y": {}}, "method": METHODS},
)


def values(measure="final", **cells):
    """``a=[1, 2]`` or ``x_a=[1, 2]``: one number a seed; a pair ``(1, False)`` is a lower bound;
    None is missing."""
    out = {}
    for name, numbers in cells.items():
        seeds = {}
        for seed, n in enumerate(numbers):
            if n is not None:
                seeds[seed] = (
                    Censored(float(n[0]), n[1])
                    if isinstance(n, tuple)
                    else Censored(float(n), True)
                )
        out[measure, tuple(name.split("_"))] = seeds
    return out


def claim(exhibit="table 1", **keys):
    return Claim(text="a is best", exhibit=exhibit, **keys)


A_OVER_B = {"higher": {"method": "a"}, "than": {"method": "b"}}


@pytest.mark.parametrize(
    ("a", "verdict"),
    [
        ([12, 13, 14], "confirmed"),  # differences 2, 3, 4: 3 - 2.484 > 0
        ([11, 12, 13], "undecided"),  # 1, 2, 3: 2 - 2.484 < 0
        ([8, 7, 6], "contradicted"),  # -2, -3, -4
        ([12], "not tested"),  # one pair has no interval
        ([], "not tested"),
    ],
)
def test_higher(a, verdict):
    found = judge(claim(**A_OVER_B), TABLE, values(a=a, b=[10, 10, 10]))
    assert found.verdict == verdict


def test_a_mean_over_cells_of_which_one_has_no_run_is_not_tested():
    """In setting y there is no a: the mean over x alone would be about something else."""
    seen = values(x_a=[12, 13, 14], x_b=[10, 10, 10], y_b=[10, 10, 10])
    over_settings = claim("table 2", **A_OVER_B)
    planned = CROSSED.cells("small")
    assert judge(over_settings, CROSSED, seen, planned=planned).verdict == "not tested"
    whole = seen | values(y_a=[12, 13, 14])
    assert judge(over_settings, CROSSED, whole, planned=planned).verdict == "confirmed"
    in_x = claim("table 2", where={"setting": "x"}, **A_OVER_B)
    assert judge(in_x, CROSSED, seen, planned=planned).verdict == "confirmed"


def test_a_seed_that_diverged_leaves_no_verdict_on_the_others():
    planned = TABLE.cells("small")
    rival = values(b=[10, 10, 10, 10])
    whole = rival | values(a=[12, 13, 14, 13])
    assert judge(claim(**A_OVER_B), TABLE, whole, planned=planned).verdict == "confirmed"
    diverged = rival | values(a=[12, 13, 14, nan])
    assert judge(claim(**A_OVER_B), TABLE, diverged, planned=planned).verdict == "not tested"


def test_a_seed_without_one_of_two_measures_leaves_no_verdict_on_the_others():
    """A run that diverged has a best value, and none at the end."""
    sides = {"higher": {"measure": "peak"}, "than": {"measure": "final"}, "where": {"method": "a"}}
    for end, verdict in ((11, "confirmed"), (nan, "not tested")):
        seen = values("peak", a=[15, 16, 17, 16]) | values(a=[12, 13, 13, end])
        judged = judge(claim(**sides), TABLE, seen, planned=TABLE.cells("small"))
        assert judged.verdict == verdict


def test_spreads_over_seeds_are_compared_by_deviations_from_the_median():
    """a lies at its median 10 and .1, .1, .2, .2 from it, b at 20 and 1, 1, 2, 2: deviations
    differ by 0, .9, .9, 1.8, 1.8, mean 1.08 with s = .753, half width 2.776445 s / sqrt 5 = .935;
    the means, which differ by 10, do not count, nor what is printed of them. Numbers 0, 1 and 5 lie
    1, 0 and 4 from their median, 5/3 on average; from their mean they would lie 2, 1 and 3."""
    spreads = {"of": "spread", "lower": {"method": "a"}, "than": {"method": "b"}}
    seen = values(a=[10, 10.1, 9.9, 10.2, 9.8], b=[20, 21, 19, 22, 18])
    found = judge(claim(**spreads), TABLE, seen, {("final", ("a",)): 5.0, ("final", ("b",)): 1.0})
    (contrast,) = found.contrasts
    assert found.verdict == "confirmed"
    assert (contrast.ours.mean, contrast.rival.mean) == (pytest.approx(0.12), pytest.approx(1.2))
    assert contrast.interval.mean == pytest.approx(-1.08)
    assert contrast.interval.high == pytest.approx(-1.08 + 0.93497, abs=1e-4)
    assert contrast.printed != contrast.printed  # spreads are not printed number by number
    (row,) = verdict_table([found]).rows
    assert row.cells[5].text.startswith("deviation over seeds of final (%): ")
    turned = {"of": "spread", "lower": {"method": "b"}, "than": {"method": "a"}}
    assert judge(claim(**turned), TABLE, seen).verdict == "contradicted"
    (skewed,) = judge(claim(**spreads), TABLE, values(a=[0, 1, 5], b=[7, 7, 7])).contrasts
    assert (skewed.ours.mean, skewed.rival.mean) == (pytest.approx(5 / 3), 0)


def test_the_interval_is_student_s():
    (one,) = judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10])).contrasts
    half = 4.302652729911275 / 3**0.5
    assert (one.interval.low, one.interval.high) == (
        pytest.approx(3 - half),
        pytest.approx(3 + half),
    )
    assert (one.ours.mean, one.rival.mean, one.label) == (13, 10, "a against b")


def test_how_many_times_the_other_side_ours_is():
    (plain,) = verdict_table(
        [judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10]))]
    ).rows
    assert plain.cells[5].text == "final (%): +3.00 [0.52, 5.48], x 1.3"
    seen = values("mse_log", a=[0.5, 1.5, 2.5], b=[1.5, 2.5, 3.5])  # a third at every seed: e^-1
    (logarithm,) = verdict_table([judge(claim(measure="mse_log", **A_OVER_B), TABLE, seen)]).rows
    assert logarithm.cells[5].text.startswith("ln test MSE: −1.0")
    assert logarithm.cells[5].text.endswith("], x 0.368")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        # the other side is 10 at least
        ([12, 13, 14], [(10, False)] * 3, "at most +3.00 [0.52, 5.48], x 1.3"),
        ([(12, False), 13, 14], [10, 10, 10], "at least +3.00 [0.52, 5.48], x 1.3"),
        # nothing follows from two lower bounds
        ([(12, False), 13, 14], [10, 10, (10, False)], "–"),
    ],
)
def test_a_difference_with_a_lower_bound_is_a_bound(a, b, said):
    (row,) = verdict_table([judge(claim(**A_OVER_B), TABLE, values(a=a, b=b))]).rows
    assert row.cells[5].text.removeprefix("final (%): ") == said


def test_against_a_number_both_are_told():
    (row,) = verdict_table(
        [judge(claim(below=12.0, where={"method": "a"}), TABLE, values(a=[12, 13, 14]))]
    ).rows
    assert row.cells[5].text == "final (%): 13.00, that is +1.00 [−1.48, 3.48] from 12"


def test_lower_is_higher_turned_round():
    turned = {"lower": {"method": "b"}, "than": {"method": "a"}}
    for a in ([12, 13, 14], [11, 12, 13], [8, 7, 6]):
        seen = values(a=a, b=[10, 10, 10])
        assert (
            judge(claim(**turned), TABLE, seen).verdict
            == judge(claim(**A_OVER_B), TABLE, seen).verdict
        )


def test_seeds_are_paired_and_lonely_ones_left_out():
    (one,) = judge(
        claim(**A_OVER_B), TABLE, values(a=[12, None, 14, 15], b=[10, 10, 10, None])
    ).contrasts
    assert (one.interval.n, one.interval.mean) == (2, 3)


def test_each_of_several_must_hold():
    both = {"higher": {"method": "a"}, "than": {"method": ["b", "c"]}}
    seen = values(a=[12, 13, 14], b=[10, 10, 10], c=[12, 12, 12])
    found = judge(claim(**both), TABLE, seen)
    assert [one.verdict for one in found.contrasts] == ["confirmed", "undecided"]
    assert found.verdict == "undecided"
    assert (
        judge(claim(**both), TABLE, values(a=[12, 13, 14], b=[10, 10, 10])).verdict == "not tested"
    )


def test_a_margin_lets_a_method_be_a_little_worse():
    seen = values(a=[9.9, 10.0, 9.8], b=[10, 10, 10])  # -0.1 +- 0.248
    assert judge(claim(**A_OVER_B), TABLE, seen).verdict == "undecided"
    assert judge(claim(**A_OVER_B, margin=0.5), TABLE, seen).verdict == "confirmed"
    assert (
        judge(claim(**A_OVER_B, margin=0.5), TABLE, values(a=[8, 8.1, 8.2], b=[10, 10, 10])).verdict
        == "contradicted"
    )


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([2, 3, 4], [(10, False)] * 3, "confirmed"),  # b takes longer still
        # a may take any time
        ([(2, False), (3, False), (4, False)], [10, 10, 10], "undecided"),
        # a takes longer still
        ([(20, False), (21, False), (22, False)], [10, 10, 10], "contradicted"),
        ([20, 21, 22], [(10, False)] * 3, "undecided"),
    ],
)
def test_a_lower_bound_proves_in_one_direction_only(a, b, verdict):
    faster = {"lower": {"method": "a"}, "than": {"method": "b"}}
    assert judge(claim(**faster), TABLE, values(a=a, b=b)).verdict == verdict


def test_other_axes_are_averaged_within_a_seed():
    seen = values(x_a=[12, 13, 14], y_a=[8, 9, 10], x_b=[10, 10, 10], y_b=[10, 10, 10])
    (one,) = judge(claim("table 2", **A_OVER_B), CROSSED, seen).contrasts
    # means 10, 11, 12 against 10
    assert (one.interval.n, one.interval.mean) == (3, pytest.approx(1.0))


def test_or_paired_cell_by_cell():
    seen = values(x_a=[12, 13], y_a=[13, 14], x_b=[10, 10], y_b=[10, 10])
    (one,) = judge(claim("table 2", **A_OVER_B, pair="cell"), CROSSED, seen).contrasts
    assert (one.interval.n, one.interval.mean, one.verdict) == (4, 3, "confirmed")


def test_cells_that_only_one_side_has_do_not_count():
    seen = values(x_a=[12, 13, 14], x_b=[10, 10, 10], y_b=[0, 0, 0])
    (one,) = judge(claim("table 2", **A_OVER_B), CROSSED, seen).contrasts
    assert (one.interval.mean, one.rival.mean) == (3, 10)


def test_where_asks_for_each_place_apart():
    # -2.5 + 1.79 < 0
    seen = values(x_a=[12, 13, 14], y_a=[8, 7.5, 7], x_b=[10, 10, 10], y_b=[10, 10, 10])
    found = judge(claim("table 2", **A_OVER_B, where={"setting": ["x", "y"]}), CROSSED, seen)
    assert [one.verdict for one in found.contrasts] == ["confirmed", "contradicted"]
    assert [one.label for one in found.contrasts] == ["a against b (x)", "a against b (y)"]


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ({"below": 12}, "confirmed"),
        ({"below": 9}, "contradicted"),
        ({"above": 10}, "undecided"),
    ],
)
def test_against_a_number(keys, verdict):
    # 10.5 +- 1.242
    found = judge(claim(where={"method": "a"}, **keys), TABLE, values(a=[10, 10.5, 11]))
    assert found.verdict == verdict


def test_two_measures_of_the_same_cells():
    keys = {"higher": {"measure": "peak"}, "than": {"measure": "final"}, "where": {"method": "a"}}
    seen = values("peak", a=[12, 13, 14]) | values("final", a=[10, 10, 10])
    (one,) = judge(claim(**keys), TABLE, seen).contrasts
    assert (one.verdict, one.label) == ("confirmed", "peak (%) against final (%) (a)")


def test_the_p_value_is_that_of_the_interval():
    # differences 2, 3, 4: t = 3 sqrt 3; with two degrees of freedom p = 1 - t / sqrt(t^2 + 2)
    (one,) = judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10])).contrasts
    assert 2 * one.sides.confirms == pytest.approx(1 - 27**0.5 / 29**0.5)
    assert one.sides.confirms + one.sides.refutes == pytest.approx(1)
    # no worse by more than 1: the mean lies 4 above -1
    (one,) = judge(
        claim(**A_OVER_B, margin=1), TABLE, values(a=[12, 13, 14], b=[10, 10, 10])
    ).contrasts
    assert 2 * one.sides.confirms == pytest.approx(1 - 48**0.5 / 50**0.5)


def test_holm_takes_back_what_chance_could_have_done():
    # two-sided 0.0351
    better = judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10]))
    equal = judge(claim(**A_OVER_B), TABLE, values(a=[12, 12, 13], b=[12, 13, 12]))
    (alone,), (first, _) = corrected([better]), corrected([better, equal])
    assert (alone.alone, alone.verdict) == ("confirmed", "confirmed")
    assert (first.alone, first.verdict) == ("confirmed", "undecided")
    assert alone.after_holm.confirms == pytest.approx(2 * better.sides.confirms)
    assert first.after_holm.confirms == pytest.approx(4 * better.sides.confirms)


def test_the_papers_claims_are_corrected_without_ours():
    seen = values(a=[12, 13, 14], b=[10, 10, 10])
    theirs, ours = corrected(
        [
            judge(claim(source="Table 1", **A_OVER_B), TABLE, seen),
            judge(claim(**A_OVER_B), TABLE, seen),
        ]
    )
    assert theirs.after_holm == ours.after_holm
    assert theirs.verdict == ours.verdict == "confirmed"


def test_on_other_data_a_claim_is_not_contradicted():
    seen = values(a=[8, 7, 6], b=[10, 10, 10])
    other = Protocol.read("other data: digits for CIFAR-10")
    printed = {("final", ("a",)): 70.0, ("final", ("b",)): 69.0}
    elsewhere, here = (
        judge(claim(**A_OVER_B), TABLE, seen, printed, protocol=p)
        for p in (other, Protocol("whole"))
    )
    assert (elsewhere.verdict, elsewhere.size) == ("not seen here", "")
    assert (here.verdict, here.size) == ("contradicted", "above")


def test_theory_stands_apart_from_what_a_papers_experiment_claims():
    seen = values(a=[12, 13, 14], b=[10, 10, 10])
    judged = [
        judge(claim(source="s", **A_OVER_B), TABLE, seen, protocol=Protocol.read(text))
        for text in ("whole", "theory: a lemma about any data")
    ]
    assert headline(judged) == {"confirmed": 1}
    (text,) = counted_words(judged)
    assert "with the whole protocol 1 confirmed; on theory, with data of ours 1 conf" in text.text


def test_what_nothing_measured_tests_is_not_tested():
    found = judge(
        claim(untested="means over all clients", **A_OVER_B),
        TABLE,
        values(a=[12, 13, 14], b=[10, 10, 10]),
    )
    assert (found.verdict, found.contrasts) == ("not tested", [])
    assert corrected([found])[0].verdict == "not tested"


def test_the_interval_of_best_of_two_is_that_of_the_weaker():
    both = {"higher": {"method": "a"}, "than": {"method": ["b", "c"]}}
    # 2, 3, 4 and 1, 2, 3
    found = judge(claim(**both), TABLE, values(a=[12, 13, 14], b=[10, 10, 10], c=[11, 11, 11]))
    assert (found.interval.mean, found.alone) == (2, "undecided")
    assert found.interval.low == pytest.approx(2 - 4.302653 / 3**0.5)
    assert found.interval.high == pytest.approx(2 + 6.205347 / 3**0.5)  # t at 1 - 0.05 / 4


@pytest.mark.parametrize(
    ("printed", "size"),
    [(5.2, "inside"), (2.9, "too wide"), (4.9, "too wide"), (-9.0, "below"), (9.0, "above")],
)
def test_the_size(printed, size):
    """The interval, 3 -+ 4.303 / sqrt 3, is 4.97 long: what is smaller and lies inside may as well
    be nothing."""
    paper = {("final", ("a",)): 70.0 + printed, ("final", ("b",)): 70.0}
    found = judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10]), paper)
    assert (found.printed, found.size) == (pytest.approx(printed), size)
    bound = judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, (14, False)], b=[10, 10, 10]), paper)
    assert bound.size == ""


def test_of_a_claim_that_is_lower_the_size_keeps_its_sign():
    # printed: 2,264 less; measured: more, and the interval excludes what is printed
    keys = {"lower": {"method": "a"}, "than": {"method": "b"}}
    paper = {("final", ("a",)): 2906.0, ("final", ("b",)): 5170.0}
    found = judge(
        claim(**keys), TABLE, values(a=[2793.5, 2800, 2790], b=[2436.5, 2700, 2500]), paper
    )
    assert (found.printed, found.size, found.verdict) == (-2264, "below", "undecided")


@pytest.mark.parametrize(
    ("a", "verdict"),
    [
        ([11, 11, 11], "undecided"),  # three equal counts: t = sqrt 6 on the least deviation
        ([11] * 5, "confirmed"),  # t = sqrt 10, above 2.776
        ([10, 10, 10], "undecided"),
    ],
)
def test_equal_counts_do_not_prove_everything(a, verdict):
    found = judge(claim(**A_OVER_B), TABLE, values(a=a, b=[10] * len(a)))
    assert found.verdict == verdict
    assert found.sides.confirms > 0.01


def test_looks_widen_the_interval_and_their_p_values_agree():
    seen = values(a=[12, 13, 14, 12, 13, 14], b=[10] * 6)
    one = judge(claim(**A_OVER_B), TABLE, seen)
    twice = judge(claim(**A_OVER_B), TABLE, seen, looks=SpendingPlan((3, 6), each=False))
    assert twice.interval.high > one.interval.high
    assert twice.sides.confirms == pytest.approx(one.sides.confirms / 0.16)
    assert twice.contrasts[0].looks.ends == (3, 6)


def test_what_the_seeds_resolve_and_what_the_printed_difference_needs():
    printed = {("final", ("a",)): 70.0, ("final", ("b",)): 69.0}
    (one,) = judge(
        claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10]), printed
    ).contrasts
    # the noncentral t with two degrees of freedom: 5.6535 / sqrt 3 deviations of 1
    assert one.resolves == pytest.approx(5.6535 / 3**0.5, rel=1e-4)
    assert one.printed == 1
    assert one.needs == 10  # 0.996 with ten pairs, 1.061 with nine
    (row,) = verdict_table(
        [judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10]), printed)]
    ).rows
    assert [cell.text for cell in row.cells[6:]] == [
        "printed 1.00: too wide",
        "3.26",
        "10",
        "–",
    ]
    (bare,) = judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10])).contrasts
    assert str(bare.needs) == "nan"


def test_printed_numbers_of_the_cells_that_both_sides_have():
    printed = {("final", ("x", "a")): 3.0, ("final", ("x", "b")): 1.0, ("final", ("y", "a")): 50.0}
    seen = values(x_a=[12, 13], y_a=[8, 9], x_b=[10, 10], y_b=[10, 10])
    (one,) = judge(claim("table 2", **A_OVER_B), CROSSED, seen, printed).contrasts
    assert one.printed == 2


def test_an_undecided_claim_says_how_many_pairs_would_decide():
    """Differences 1, 2, 3: mean 2, deviation 1. Alone five pairs find 2 in 80 % of cases (1.67
    resolved with five, 2.11 with four); of two claims the level is half."""
    found = judge(claim(**A_OVER_B), TABLE, values(a=[11, 12, 13], b=[10, 10, 10]))
    (one,) = found.contrasts
    assert (found.verdict, one.decided_by(1)) == ("undecided", 5)
    assert resolvable(1.0, 5) < 2 < resolvable(1.0, 4)
    assert resolvable(1.0, one.decided_by(2), 0.025) < 2
    assert resolvable(1.0, one.decided_by(2) - 1, 0.025) > 2
    (row,) = verdict_table([found]).rows
    assert row.cells[-1].text == "5"


def test_after_a_plan_of_looks_less_of_the_error_is_left():
    looks = SpendingPlan((2, 3), each=False)
    seen = values(a=[11, 12, 13], b=[10, 10, 10])
    (one,) = judge(claim(**A_OVER_B), TABLE, seen, looks=looks).contrasts
    many = one.decided_by(1)
    level = 0.05 * 0.8 * 0.2**2  # the second lengthening
    assert resolvable(1.0, many, level) <= 2 < resolvable(1.0, many - 1, level)
    # the plain interval is that of one look; the other has 0.8 %, with two degrees of freedom t =
    # 11.11
    assert (one.plain.low, one.plain.high) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)
    assert one.interval.low == pytest.approx(2 - 11.113 / 3**0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("ours", "printed", "decidable"),
    [
        ({"higher": {"method": "a"}, "than": {"method": "b"}}, 4.0, True),  # 3.264 are resolved
        ({"higher": {"method": "a"}, "than": {"method": "b"}}, 3.0, False),
        ({"higher": {"method": "a"}, "than": {"method": "b"}}, None, None),
        ({"below": 4.0, "where": {"method": "a"}, "measure": "drop"}, None, True),  # 4 - 0
        ({"below": 3.0, "where": {"method": "a"}, "measure": "drop"}, None, False),
        ({"below": 3.0, "where": {"method": "a"}}, None, None),  # accuracies have no end here
    ],
)
def test_whether_so_many_pairs_could_decide(ours, printed, decidable):
    """With a deviation of 1 three pairs resolve 5.6535 / sqrt 3 = 3.264."""
    measure = ours.get("measure", "final")
    seen = values(measure, a=[12, 13, 14], b=[10, 10, 10])
    paper = {}
    if printed is not None:
        paper = {(measure, ("a",)): 70.0 + printed, (measure, ("b",)): 70.0}
    assert judge(claim(**ours), TABLE, seen, paper).decidable is decidable


def test_a_counterexample_needs_no_runs_and_is_not_corrected_for():
    seen = values(a=[12, 13, 14], b=[10, 10, 10])
    broken = judge(claim(counterexample="2 is even and prime", **A_OVER_B), TABLE, seen)
    better = judge(claim(**A_OVER_B), TABLE, seen)
    first, second = corrected([broken, better])
    assert (first.alone, first.verdict) == ("false as stated", "false as stated")
    assert first.contrasts == []
    assert (second.verdict, second.family) == ("confirmed", 1)
    (row, _) = verdict_table([broken, better]).rows
    assert row.cells[5].text == "2 is even and prime"


def test_the_rule_of_many_claims_by_hand_and_by_scipy():
    """Two claims, so four one-sided hypotheses: Holm multiplies the smallest p value by 4, the next
    by 3. Differences 2, 3, 4 have t = 3 sqrt 3, p = .0175; two claims, tested on two sides and
    counted once each, would confirm the second, 1 x .0351 <= .05; here it is 3 x .0175 > .05."""
    sure = judge(claim(**A_OVER_B), TABLE, values(a=[30, 31, 32], b=[10, 10, 10]))
    less = judge(claim(**A_OVER_B), TABLE, values(a=[12, 13, 14], b=[10, 10, 10]))
    p = [
        float(ttest_rel(a, [10, 10, 10], alternative=side).pvalue)
        for a in ([30, 31, 32], [12, 13, 14])
        for side in ("greater", "less")
    ]
    assert [side for one in (sure, less) for side in one.sides] == pytest.approx(p)
    found = corrected([sure, less])
    by_hand = [4 * p[0], 1.0, 3 * p[2], 1.0]
    assert [side for one in found for side in one.after_holm] == pytest.approx(by_hand)
    assert by_hand[2] == pytest.approx(0.0527, abs=1e-4)
    assert [one.alone for one in found] == ["confirmed", "confirmed"]
    assert [one.verdict for one in found] == ["confirmed", "undecided"]
