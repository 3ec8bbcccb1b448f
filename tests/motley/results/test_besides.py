"""What differs beside the method, from hand-made tables: settings, costs, sentences, and what is
left of a difference."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
import fake

from motley.results.aspects import (
    ASPECTS,
    ComparedMethod,
    pairs_of,
    world_sentences,
)
from motley.results.besides import Besides
from motley.results.labels import group_runs, label_runs
from motley.results.load import Run
from motley.results.method_rows import differences
from motley.results.terminal import terminal_tables
from motley_report.besides_section import besides_section
from motley_report.print_files import write_print_files
from motley_report.report import report

MB = 8e6
CONFIG: dict[str, Any] = {
    "name": "hand",
    "population": 4,
    "cohort": 2,
    "task": {"name": "image", "data": "digits"},
    "local": {
        "epochs": 1,
        "steps": None,
        "batch_size": 10,
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0, "clip": None},
        "clip": None,
    },
    "algorithm": {"name": "fedavg", "server_lr": 1.0},
    "selector": {"name": "uniform"},
    "weights": "examples",
}


def made(accuracies: tuple[float, ...], seed: int = 0, mb: float = 1.0, **changes: Any) -> Run:
    """A run of one client with 25 samples, five steps a round and ``mb`` MB up a round; the
    accuracies of its rounds."""
    rounds = list(range(1, len(accuracies) + 1))
    bits = [number * mb * MB for number in rounds]
    at = {"round": rounds, "selections": rounds, "time_s": [60.0 * n for n in rounds]}
    many = len(rounds)
    return fake.run(
        {**CONFIG, "seed": seed, **changes},
        seed=seed,
        rounds=fake.table(
            "rounds",
            **at,
            probed=[0] * many,
            total_bits=bits,
            total_up_bits=bits,
        ),
        clients=fake.table(
            "clients",
            round=rounds,
            client=[0] * many,
            outcome=["accepted"] * many,
            num_examples=[25] * many,
            local_steps=[5] * many,
        ),
        evaluations=fake.table(
            "evaluations",
            **at,
            total_bits=bits,
            scope=["mean"] * many,
            client=[-1] * many,
            accuracy=list(accuracies),
        ),
    )


SCAFFOLD = {"algorithm": {"name": "scaffold"}, "weights": "uniform"}
FEDAVG_RUNS = [made((0.5, 0.80), 0), made((0.5, 0.82), 1)]
SCAFFOLD_RUNS = [
    made((0.4, 0.60), 0, mb=2.0, **SCAFFOLD),
    made((0.5, 0.64), 1, mb=2.0, **SCAFFOLD),
]
NAMED = "fedavg with equal weights"


def control(run: Run) -> Run:
    return replace(run, meta={**run.meta, "control": NAMED})


CONTROLS = [
    control(made((0.3, 0.61), 0, weights="uniform")),
    control(made((0.3, 0.62), 1, weights="uniform")),
]


def printed(tables: list[Any]) -> str:
    console = Console(width=200)
    with console.capture() as held:
        for table in tables:
            console.print(table)
    return held.get()


def words(runs: list[Run], controls: list[Run] | None = None) -> dict[str, dict[str, str]]:
    """Method -> title -> words of the table."""
    table = Besides(group_runs(runs), controls or []).table()
    assert table is not None
    return {
        row.label: dict(zip(table.heads[1:], (cell.text for cell in row.cells), strict=True))
        for row in table.rows
    }


def test_weights_and_traffic_are_named_and_nothing_else() -> None:
    assert words([*FEDAVG_RUNS, *SCAFFOLD_RUNS]) == {
        "fedavg": {"weights": "by samples", "up (MB)": "2.00"},
        "scaffold": {"weights": "equal", "up (MB)": "4.00"},
    }
    found = Besides(group_runs([*FEDAVG_RUNS, *SCAFFOLD_RUNS]))
    assert found.sentences() == [
        "scaffold weighs clients equally; fedavg with equal weights is not in this comparison"
    ]


def test_traffic_beside_models_and_uploads_is_told() -> None:
    """Two rounds of 1 MB up; what goes down to estimate statistics anew, 3 MB a round, is in the
    totals alone."""
    run = made((0.5, 0.8), algorithm={"name": "fedprox"})
    rounds = run.tables["rounds"]
    at = rounds.schema.get_field_index("total_bits")
    totals = fake.table("rounds", total_bits=[4 * MB, 8 * MB])["total_bits"]
    more = replace(
        run, tables={**run.tables, "rounds": rounds.set_column(at, "total_bits", totals)}
    )
    assert words([made((0.5, 0.8)), more]) == {
        "fedavg": {"down (MB)": "0"},
        "fedprox": {"down (MB)": "6.00"},
    }


def test_what_is_left_by_hand() -> None:
    """Whole: -20 and -18 points, mean -19; their deviation is sqrt(2), so half of the interval is
    t(1, 97.5 %) = 12.7062. At equal weights: -1 and +2, mean 0.5, half 12.7062 x 1.5. At equal
    traffic, 2 MB: scaffold's first round against fedavg's second, -40 and -32, mean -36, half
    12.7062 x 4."""
    found = Besides(group_runs([*FEDAVG_RUNS, *SCAFFOLD_RUNS]), CONTROLS)
    (row,) = found.left
    assert found.end == "final"
    assert row.label == "scaffold"
    for interval, mean, half in (
        (row.total, -19.0, 12.7062),
        (row.at_equal["weights"], 0.5, 19.0593),
        (row.at_equal["traffic"], -36.0, 50.8248),
    ):
        assert interval.mean == pytest.approx(mean)
        assert interval.high - interval.mean == pytest.approx(half, rel=1e-4)
        assert interval.n == 2
    assert list(row.at_equal) == ["weights", "traffic"]  # time is the same
    assert found.sentences() == []  # the reference with equal weights is there
    table = found.left_table()
    assert table is not None
    assert table.heads == ("method", "compared", "difference", "95% interval", "seeds")
    assert [[cell.text for cell in line.cells] for line in table.rows][:2] == [
        ["as a whole", "\u221219.00", "\u221231.71 to \u22126.29", "2"],
        ["at equal weights", "+0.50", "\u221218.56 to +19.56", "2"],
    ]


def test_all_lines_of_a_method_are_over_the_same_seeds() -> None:
    """Seed 2 has no control, and seed 3 has not ended: of the whole, too, seeds 0 and 1 are left,
    -20 and -18, without the +50 of seed 2. A control of one seed alone is no line and takes no seed
    from the others."""
    runs = [
        *FEDAVG_RUNS,
        *SCAFFOLD_RUNS,
        made((0.5, 0.3), 2),
        made((0.5, 0.8), 2, mb=2.0, **SCAFFOLD),
        made((0.5, 0.3), 3),
        unfinished(made((0.5, 0.8), 3, mb=2.0, **SCAFFOLD)),
    ]
    found = Besides(group_runs(runs), CONTROLS)
    (row,) = found.left
    assert (row.total.mean, row.total.n, row.seeds) == (pytest.approx(-19.0), 2, 3)
    assert {title: one.n for title, one in row.at_equal.items()} == {"weights": 2, "traffic": 2}
    table = found.left_table()
    assert table is not None
    assert "over the seeds that all of them have: 2 of 3 for scaffold." in table.note
    (row,) = Besides(group_runs(runs), CONTROLS[:1]).left
    assert {title: one.n for title, one in row.at_equal.items()} == {"traffic": 3}
    assert row.total.mean == pytest.approx((-20 - 18 + 50) / 3)


def test_the_whole_stands_on_the_footing_of_the_budgets() -> None:
    """Of 20 rounds, means of the last ten: .51 and .43, the whole is -8 points; by the last
    evaluation +10. At equal traffic, 20 MB, scaffold's tenth round against fedavg's last: -20, so
    that 30 points come with the traffic."""
    runs = [
        *(made((*[0.5] * 19, 0.6), seed) for seed in (0, 1)),
        *(made((*[0.4] * 19, 0.7), seed, mb=2.0, **SCAFFOLD) for seed in (0, 1)),
    ]
    found = Besides(group_runs(runs))
    assert found.end == "stable"
    table = found.left_table()
    assert table is not None
    assert [[cell.text for cell in line.cells][:2] for line in table.rows] == [
        ["as a whole", "−8.00"],
        ["as a whole, last evaluation", "+10.00"],
        ["at equal traffic, last evaluation", "−20.00"],
    ]
    assert "subtract it from the whole by the last" in table.note


def test_a_budget_before_the_first_evaluation_is_told(tmp_path: Path) -> None:
    """Fedavg sends 2 MB in all, scaffold 30 in its first round."""
    runs = [*FEDAVG_RUNS, *(made((0.4, 0.6), seed, mb=30.0, **SCAFFOLD) for seed in (0, 1))]
    table = Besides(group_runs(runs)).left_table()
    assert table is not None
    assert [cell.text for cell in table.rows[1].cells] == ["at equal traffic", "–", "–", "0"]
    assert "– where a run has no evaluation before that." in table.note
    folder = write_print_files(group_runs(runs), tmp_path / "paper", ["latex"])
    assert r"scaffold & at equal traffic & -- & 0 \\" in (folder / "left.tex").read_text()


def test_of_several_settings_each_and_all_that_are_there_are_told() -> None:
    """Scaffold clips, too: at equal weights +0.5, at equal clipping -15, with both -4 points."""
    clipped = {**CONFIG["local"], "clip": {"norm": 2.0}}
    runs = [
        replace(run, meta={**run.meta, "config": {**run.config, "local": clipped}})
        for run in SCAFFOLD_RUNS
    ]
    settings = {"clip": {"local": clipped}, "both": {"local": clipped, "weights": "uniform"}}
    ends = {"clip": (0.75, 0.79), "both": (0.64, 0.68)}
    more = [
        control(made((0.3, end), seed, **settings[name]))
        for name, pair in ends.items()
        for seed, end in enumerate(pair)
    ]
    found = Besides(group_runs([*FEDAVG_RUNS, *runs]), [*CONTROLS, *more])
    (row,) = found.left
    means = {title: one.mean for title, one in row.at_equal.items() if title != "traffic"}
    assert means == pytest.approx({"weights": 0.5, "clipping": -15.0, "settings, all": -4.0})
    assert next(reversed(row.at_equal)) == "traffic"


def test_one_difference_has_one_interval() -> None:
    """Of two comparisons each interval has 97.5 %: t(1, 98.75 %) = 25.4517 times a deviation of
    sqrt(2) / sqrt(2) = 1. Plain ones have 12.7062 on both tables."""
    prox = {"algorithm": {"name": "fedprox"}}
    runs = [*FEDAVG_RUNS, *SCAFFOLD_RUNS, *(made((0.5, 0.8), s, mb=2.0, **prox) for s in (0, 1))]
    for plain, half in ((False, 25.4517), (True, 12.7062)):
        groups = group_runs(runs, plain_intervals=plain)
        found = Besides(groups)
        (row,) = [row for row in found.left if row.label == "scaffold"]
        (verdict,) = [one for one in differences(groups) if one.label == "scaffold"]
        for one in (row.total, verdict.interval):
            assert (one.mean, one.n) == (pytest.approx(-19.0), 2)
            assert one.high - one.mean == pytest.approx(half, rel=1e-4)
        table = found.left_table()
        assert table is not None
        assert ("one of the 2 differences that hold together" in table.note) != plain


def test_all_that_a_reference_takes_is_named() -> None:
    """Of scaffold's weights, clipping and cohort there is a control with the first two."""
    clipped = {**CONFIG["local"], "clip": {"norm": 2.0}}
    two = {"local": clipped, "weights": "uniform"}
    runs = [
        *FEDAVG_RUNS,
        *(made((0.4, 0.6), s, **{**SCAFFOLD, **two, "cohort": 3}) for s in (0, 1)),
    ]
    both = [control(made((0.3, 0.64), s, **two)) for s in (0, 1)]
    (row,) = Besides(group_runs(runs), both).left
    assert {title: one.mean for title, one in row.at_equal.items()} == {
        "weights and clipping": pytest.approx(-4.0)
    }


def test_a_control_that_has_not_ended_removes_nothing_yet() -> None:
    begun = [replace(run, meta={**run.meta, "finished": False}) for run in CONTROLS]
    found = Besides(group_runs([*FEDAVG_RUNS, *SCAFFOLD_RUNS]), begun)
    assert [list(row.at_equal) for row in found.left] == [["traffic"]]
    assert "fedavg with equal weights is not in this comparison" in found.sentences()[0]


def test_a_method_of_the_grid_is_a_control_too() -> None:
    """Fedavg with equal weights is compared by itself, and scaffold with it."""
    uniform = [made((0.3, 0.61), 0, weights="uniform"), made((0.3, 0.62), 1, weights="uniform")]
    groups = {"examples": FEDAVG_RUNS, "uniform weights": uniform, "scaffold": SCAFFOLD_RUNS}
    found = Besides(groups)
    (row,) = found.left  # of the same method with other weights, nothing is to be made equal
    assert row.label == "scaffold"
    assert row.at_equal["weights"].mean == pytest.approx(0.5)
    assert found.sentences() == []


def test_samples_are_those_of_the_steps_that_were_made() -> None:
    """Of 25 samples in batches of ten, an epoch is three steps: five steps are an epoch and two
    batches, 45 samples. In two rounds 90, beside 50 of two epochs of three steps."""
    short = made((0.5, 0.8), algorithm={"name": "fedprox", "mu": 0.1})
    steps = short.tables["clients"].set_column(
        short.tables["clients"].column_names.index("local_steps"), "local_steps", [[3, 3]]
    )
    short = replace(short, tables={**short.tables, "clients": steps})
    assert words([made((0.5, 0.8)), short]) == {
        "fedavg": {"local steps": "10", "samples seen": "90"},
        "fedprox": {"local steps": "6", "samples seen": "50"},
    }


def test_late_work_is_not_seen() -> None:
    """In the second round fedprox's client was late: of ten steps and 90 samples half."""
    late = made((0.5, 0.8), algorithm={"name": "fedprox", "mu": 0.1})
    rows = late.tables["clients"]
    outcomes = rows.set_column(
        rows.column_names.index("outcome"), "outcome", [["accepted", "late"]]
    )
    late = replace(late, tables={**late.tables, "clients": outcomes})
    shown = words([made((0.5, 0.8)), late])
    assert [(row["local steps"], row["samples seen"]) for row in shown.values()] == [
        ("10", "90"),
        ("5", "45"),
    ]


def test_one_percent_is_no_difference() -> None:
    near = made((0.5, 0.8), mb=1.009, algorithm={"name": "fedprox", "mu": 0.1})
    far = made((0.5, 0.8), mb=1.011, algorithm={"name": "fedprox", "mu": 0.1})
    assert Besides(group_runs([made((0.5, 0.8)), near])).table() is None
    assert not besides_section(group_runs([made((0.5, 0.8)), near])).blocks
    assert words([made((0.5, 0.8)), far])["fedprox"] == {"up (MB)": "2.02"}


def unfinished(run: Run) -> Run:
    return replace(run, meta={**run.meta, "finished": False})


def test_costs_are_those_of_the_seeds_that_both_finished() -> None:
    """Fedprox has another seed, and one that has not ended: of seed 0, which both have, both sent
    2 MB. Where seed 0 differs, it alone is shown."""
    prox = {"algorithm": {"name": "fedprox", "mu": 0.1}}
    others = [unfinished(made((0.5,), 1, **prox)), made((0.5, 0.8), 2, mb=5.0, **prox)]
    alike = group_runs([*FEDAVG_RUNS, made((0.5, 0.8), 0, **prox), *others])
    assert Besides(alike).table() is None
    runs = [*FEDAVG_RUNS, made((0.5, 0.8), 0, mb=3.0, **prox), *others]
    assert words(runs) == {"fedavg": {"up (MB)": "2.00"}, "fedprox": {"up (MB)": "6.00"}}
    table = Besides(group_runs(runs)).table()
    assert table is not None
    assert "means over the 1 seed of 3 that all finished" in table.note


def test_without_a_seed_in_common_costs_are_not_compared() -> None:
    runs = [made((0.5, 0.8), 0), made((0.5, 0.8), 1, mb=3.0, **SCAFFOLD)]
    assert words(runs) == {"fedavg": {"weights": "by samples"}, "scaffold": {"weights": "equal"}}
    table = Besides(group_runs(runs)).table()
    assert table is not None
    assert "no seed is finished in all" in table.note


@pytest.mark.parametrize(
    ("change", "names", "title", "cells"),
    [
        (
            {"optimizer": {**CONFIG["local"]["optimizer"], "lr": 0.3}},
            ["learning rate"],
            "learning rate",
            ("0.1", "0.3"),
        ),
        (
            {"optimizer": {**CONFIG["local"]["optimizer"], "momentum": 0.9}},
            ["momentum"],
            "momentum",
            ("none", "0.9"),
        ),
        (
            {"optimizer": {"name": "adam", "lr": 0.001}},
            ["optimizer"],
            "optimizer",
            ("sgd", "adam"),
        ),
        ({"clip": {"norm": 2.0}}, ["clipping"], "clipping", ("none", "norm 2")),
        ({"epochs": 3}, ["local work"], "local work", ("1 epoch", "3 epochs")),
        ({"epochs": None, "steps": 7}, ["local work"], "local work", ("1 epoch", "7 steps")),
        ({"batch_size": 5}, ["batch size"], "batch size", ("10", "5")),
    ],
)
def test_settings_of_local_work(
    change: dict[str, Any], names: list[str], title: str, cells: tuple[str, str]
) -> None:
    other = {"algorithm": {"name": "fedprox"}, "local": {**CONFIG["local"], **change}}
    found = Besides(group_runs([made((0.5, 0.8)), made((0.5, 0.8), **other)]))
    assert [aspect.name for aspect in found.aspects] == names
    shown = words([made((0.5, 0.8)), made((0.5, 0.8), **other)])
    assert tuple(row[title] for row in shown.values()) == cells


@pytest.mark.parametrize(
    ("title", "one", "other", "cells"),
    [
        (  # what all have is not told
            "compression",
            {"allocator": {"name": "uniform"}},
            {"allocator": {"name": "uniform"}, "compressor": {"name": "topk"}},
            ("none", "topk"),
        ),
        (
            "compression",
            {"compressor": {"name": "topk", "budget": 0.5, "values": "kept"}},
            {
                "compressor": {"name": "topk", "budget": 0.05, "values": "kept"},
            },
            ("topk budget 0.5", "topk budget 0.05"),
        ),
        (
            "compression",
            {"compressor": {"name": "topk"}, "budget": {"name": "constant", "value": 0.5}},
            {"compressor": {"name": "topk"}, "budget": {"name": "constant", "value": 0.1}},
            ("topk, budget constant value 0.5", "topk, budget constant value 0.1"),
        ),
        (
            "local work",
            {"local": {"epochs": 1, "stragglers": {"share": 0.2, "partial": "keep"}}},
            {"local": {"epochs": 1, "stragglers": {"share": 0.2, "partial": "drop"}}},
            ("1 epoch, stragglers partial keep", "1 epoch, stragglers partial drop"),
        ),
        (
            "optimizer",
            {"local": {"optimizer": {"name": "sgd", "weight_decay": 0.0}}},
            {"local": {"optimizer": {"name": "sgd", "weight_decay": 0.1}}},
            ("weight_decay 0", "weight_decay 0.1"),
        ),
        (
            "split",
            {"split": {"test": "client", "validation": 0.0}},
            {"split": {"test": "client", "validation": 0.2}},
            ("validation 0", "validation 0.2"),
        ),
        (
            "server step",
            {},
            {"server": {"name": "average", "lr": 0.5}},
            ("the algorithm's", "average lr 0.5"),
        ),
        (
            "server step",
            {"server": {"name": "average", "lr": 1.0}},
            {"server": {"name": "average", "lr": 0.5}},
            ("average lr 1", "average lr 0.5"),
        ),
    ],
)
def test_a_component_is_told_with_the_option_that_differs(
    title: str, one: dict[str, Any], other: dict[str, Any], cells: tuple[str, str]
) -> None:
    runs = [made((0.5, 0.8), **one), made((0.5, 0.8), algorithm={"name": "fedprox"}, **other)]
    assert tuple(row[title] for row in words(runs).values()) == cells


def test_a_setting_is_not_named_twice() -> None:
    prox = {"algorithm": {"name": "fedprox"}}
    fast = {**CONFIG["local"], "optimizer": {**CONFIG["local"]["optimizer"], "momentum": 0.5}}
    runs = [made((0.5, 0.8)), made((0.5, 0.8), local={**fast, "batch_size": 5}, cohort=3, **prox)]
    assert [line.partition("; ")[2] for line in Besides(group_runs(runs)).sentences()] == [
        "fedavg with momentum 0.5 is not in this comparison",
        "fedavg with batch size 5 is not in this comparison",
        "fedavg with cohort 3 is not in this comparison",
    ]


def _besides(**changes: Any) -> list[str]:
    """The aspects that are told of an experiment beside the plain one."""
    methods = [
        ComparedMethod.of("fedavg", CONFIG),
        ComparedMethod.of("other", {**CONFIG, **changes}, bool(changes.get("personal"))),
    ]
    return [aspect.name for pair in pairs_of(methods, "fedavg") for aspect in pair.aspects]


def test_how_often_methods_were_evaluated_is_told() -> None:
    """The best of four evaluations is more than the best of one."""
    mine = made((0.5, 0.5), algorithm={"name": "scaffold"}, evaluate={"every": 4})
    besides = Besides({"a": [made((0.5, 0.5), evaluate={"every": 1})], "b": [mine]})
    told = [("a", [("every round", False)]), ("b", [("every 4 rounds", True)])]
    assert besides.rows() == told
    by_two = {"every": 1, "batch_size": 2}
    mine = made((0.5, 0.5), algorithm={"name": "scaffold"}, evaluate=by_two)
    besides = Besides({**besides.groups, "b": [mine]})
    assert besides.rows()[1][1] == [("every round, 2 samples at a time", True)]


def test_pinned_seeds_are_another_world() -> None:
    mine = made((0.5, 0.5), algorithm={"name": "scaffold"}, pin={"partition": 7})
    besides = Besides({"a": [made((0.5, 0.5), pin={})], "b": [mine]})
    assert besides.rows()[1][1] == [("partition 7", True)]
    assert besides.sentences() == [
        "b and a were run with different pin: their difference is not one of methods"
    ]
    both = {"pin": {"partition": 7}}
    besides = Besides({"a": [made((0.5, 0.5), **both)], "b": [mine]})
    assert besides.table() is None


def test_what_makes_the_method_is_no_confound() -> None:
    assert _besides(selector={"name": "oort"}) == []
    # a selector beside an algorithm that is another
    assert _besides(selector={"name": "oort"}, algorithm={"name": "fedprox"}) == ["selector"]
    assert _besides(selector={"name": "oort"}, weights="selector") == ["weights"]
    assert _besides(server={"name": "momentum"}) == []
    assert _besides(server={"name": "momentum"}, weights="uniform") == ["weights"]
    # settings alone are compared on purpose
    assert _besides(weights="uniform") == []
    assert _besides(weights="uniform", cohort=3) == []
    # a server beside an algorithm that is another
    assert _besides(algorithm={"name": "fedprox"}, server={"name": "momentum"}) == ["server step"]


def test_models_of_their_own_are_held_against_fine_tuning() -> None:
    """Ditto trains an epoch a round; the reference, fine-tuned for an epoch, is its control."""
    ditto = {"algorithm": {"name": "ditto"}, "personal": True}
    assert _besides(**ditto) == ["fine-tuning"]
    tuned = {"name": "fine_tuned", "method": "fedavg", "epochs": 1, "steps": 0, "lr": None}
    assert _besides(algorithm=tuned) == []  # fine-tuning is the method
    assert _besides(algorithm={**tuned, "method": {"name": "fedprox"}}) == ["fine-tuning"]
    one, other, plain = (
        ComparedMethod.of(str(number), {**CONFIG, **changes}, personal)
        for number, (changes, personal) in enumerate(
            [({"algorithm": tuned}, True), (ditto, True), ({}, False)]
        )
    )
    (tuning,) = [aspect for aspect in ASPECTS if aspect.name == "fine-tuning"]
    assert one.is_control(plain, other, [tuning])
    assert [tuning.in_words(method.keys, []) for method in (one, other, plain)] == [
        "1 epoch",
        "models of their own",
        "none",
    ]
    runs = [made((0.5, 0.8)), made((0.5, 0.8), algorithm={"name": "ditto"})]
    runs[1] = replace(runs[1], meta={**runs[1].meta, "personal": True})
    assert Besides(group_runs(runs)).sentences() == [
        "ditto has models of their own; fedavg with fine-tuning 1 epoch is not in this comparison"
    ]


def test_equal_fine_tuning_is_as_long_as_the_method_s_own() -> None:
    """FedBABU tunes 20 epochs: FedAvg tuned for one is no control of it."""
    babu = ComparedMethod.of(
        "fedbabu", {**CONFIG, "algorithm": {"name": "fedbabu", "tune_epochs": 20}}, True
    )
    plain = ComparedMethod.of("fedavg", CONFIG)
    (tuning,) = [aspect for aspect in ASPECTS if aspect.name == "fine-tuning"]
    for epochs in (1, 20):
        tuned = {"name": "fine_tuned", "method": "fedavg", "epochs": epochs, "steps": 0, "lr": None}
        control = ComparedMethod.of("tuned", {**CONFIG, "algorithm": tuned}, True)
        assert control.is_control(plain, babu, [tuning]) == (epochs == 20)
    assert tuning.in_words(babu.keys, []) == "20 epochs"


def test_methods_are_compared_within_their_world() -> None:
    """Two data sets: each scaffold with the fedavg of its own data."""
    moved = {"task": {"name": "image", "data": "mnist"}}
    runs = [
        *FEDAVG_RUNS,
        *SCAFFOLD_RUNS,
        *(made((0.5, 0.7), seed, **moved) for seed in (0, 1)),
        *(made((0.4, 0.6), seed, mb=2.0, **moved, **SCAFFOLD) for seed in (0, 1)),
    ]
    found = Besides(group_runs(runs))
    pairs = [(pair.method.label, pair.reference.label) for pair in found.pairs]
    assert [(one.split(", ")[-1], other.split(", ")[-1]) for one, other in pairs] == [
        ("scaffold", "fedavg")
    ] * 2
    assert ["mnist" in one for pair in pairs for one in pair] == [False, False, True, True]
    (line,) = found.sentences()
    assert line.endswith(
        "scaffold weigh clients equally; fedavg with equal weights is not in this comparison"
    )


def test_a_method_alone_in_its_world_is_held_against_the_reference_and_it_is_said() -> None:
    """Fedavg under failures, scaffold without and in another precision: precision and weights are
    settings, failures are not of the method. Nothing is left to tell at equal settings."""
    failures = {"failures": {"name": "drop_out", "rate": 0.5}}
    runs = [
        *(made((0.5, 0.7), seed, precision="float32", **failures) for seed in (0, 1)),
        *(made((0.4, 0.6), seed, mb=2.0, precision="bfloat16", **SCAFFOLD) for seed in (0, 1)),
    ]
    groups = group_runs(runs)
    first, other = groups
    found = Besides(groups)
    (pair,) = found.pairs
    assert (pair.method.label, pair.reference.label, pair.world) == (other, first, ("failures",))
    assert words(runs) == {
        first: {
            "failures": "drop_out",
            "weights": "by samples",
            "precision": "float32",
            "up (MB)": "2.00",
        },
        other: {
            "failures": "none",
            "weights": "equal",
            "precision": "bfloat16",
            "up (MB)": "4.00",
        },
    }
    assert found.sentences() == [
        f"{other} and {first} were run with different failures: their difference is not one of "
        "methods"
    ]
    assert found.left == []
    assert found.left_table() is None


def test_worlds_that_differ_in_the_same_are_one_sentence() -> None:
    methods = [
        ComparedMethod.of("a", CONFIG),
        ComparedMethod.of("b", {**CONFIG, "network": {"name": "lte"}}),
        ComparedMethod.of("c", {**CONFIG, "network": {"name": "wifi"}}),
        ComparedMethod.of("d", {**CONFIG, "label_noise": {"name": "pairs"}, "population": 5}),
    ]
    assert world_sentences(pairs_of(methods, "a")) == [
        "b, c and a were run with different network: their differences are not of methods",
        "d and a were run with different population and label noise: their difference is not one "
        "of methods",
    ]


def test_where_much_differs_between_few_methods_these_are_columns(tmp_path: Path) -> None:
    """Weights, clipping, compression, server step, end of the run, and traffic."""
    bundle = {
        "local": {**CONFIG["local"], "clip": {"norm": 2.0}},
        "server": {"name": "momentum", "lr": 1.0},
        "compressor": {"name": "topk"},
        "feedback": {"name": "adaptive"},
        "cohort": 3,
        **SCAFFOLD,
    }
    groups = group_runs([made((0.5, 0.8)), made((0.4, 0.6), mb=2.0, **bundle)])
    table = Besides(groups).table()
    assert table is not None
    assert table.heads == ("", *groups)
    assert {row.label: [cell.text for cell in row.cells] for row in table.rows} == {
        "weights": ["by samples", "equal"],
        "clipping": ["none", "norm 2"],
        "server step": ["the algorithm's", "momentum"],
        "compression": ["none", "topk, feedback adaptive"],
        "cohort": ["2", "3"],
        "up (MB)": ["2.00", "4.00"],
    }
    assert [[cell.best for cell in row.cells] for row in table.rows] == [[False, True]] * 6
    text = (write_print_files(groups, tmp_path / "paper", ["latex"]) / "besides.tex").read_text()
    assert r"Clipping & none & \textbf{norm 2} \\" in text


def test_several_methods_with_one_setting_are_one_sentence() -> None:
    runs = [
        *FEDAVG_RUNS,
        *SCAFFOLD_RUNS,
        *(made((0.4, 0.6), s, algorithm={"name": "mifa"}, weights="uniform") for s in (0, 1)),
    ]
    assert Besides(group_runs(runs)).sentences() == [
        "scaffold and mifa weigh clients equally; fedavg with equal weights is not in this "
        "comparison"
    ]


def test_algorithm_and_selector_at_once_are_told() -> None:
    """Of fedprox with oort, what is left beside fedavg with oort is fedprox's: 80 and 82 less 70
    and 74."""
    bundle = {"algorithm": {"name": "fedprox", "mu": 0.2}, "selector": {"name": "oort"}}
    both = [*FEDAVG_RUNS, *(made((0.5, end), s, **bundle) for s, end in enumerate((0.8, 0.82)))]
    assert words(both) == {
        "fedavg, uniform": {"algorithm": "fedavg server_lr 1", "selector": "uniform"},
        "fedprox, oort": {"algorithm": "fedprox mu 0.2", "selector": "oort"},
    }
    assert Besides(group_runs(both)).sentences() == [
        "fedprox, oort has selector oort; fedavg with selector oort is not in this comparison"
    ]
    oort = [made((0.5, end), s, selector={"name": "oort"}) for s, end in enumerate((0.7, 0.74))]
    found = Besides(group_runs([*both, *oort]))
    assert found.sentences() == []
    assert {row.label: row.at_equal["selector"].mean for row in found.left} == {
        "fedprox": pytest.approx(9.0)
    }


def test_a_setting_that_came_with_another_one_is_not_there_alone() -> None:
    """Fedavg, buffered has equal weights, too, as fednova, buffered has: it is the reference with
    both."""
    buffered = {"synchrony": {"name": "buffered"}, "weights": "uniform"}
    runs = [
        *(made((0.5, 0.8), seed, synchrony={"name": "synchronous"}) for seed in (0, 1)),
        *(made((0.5, 0.7), seed, algorithm={"name": "fednova"}, **buffered) for seed in (0, 1)),
        *(made((0.5, 0.6), seed, **buffered) for seed in (0, 1)),
    ]
    found = Besides(group_runs(runs))
    of_nova = [line for line in found.sentences() if line.startswith("fednova")]
    assert of_nova == [
        "fednova weighs clients equally; fedavg with equal weights alone is not in this comparison",
        "fednova has synchrony buffered; fedavg with synchrony buffered alone is not in "
        "this comparison",
    ]
    (row,) = [row for row in found.left if row.label == "fednova"]
    assert {title: one.mean for title, one in row.at_equal.items()} == {
        "settings, all": pytest.approx(10.0)
    }


def test_no_control_is_missed_that_nobody_can_run() -> None:
    """Ditto has models of its own, whoever is held against it."""
    ditto = made((0.5, 0.8), algorithm={"name": "ditto"})
    runs = [made((0.5, 0.8)), replace(ditto, meta={**ditto.meta, "personal": True})]
    found = Besides(group_runs(runs, against="ditto"))
    assert [aspect.name for aspect in found.aspects] == ["fine-tuning"]
    assert found.sentences() == []
    assert not found.lacks_controls


TUNED = {
    "values": {"local.optimizer.lr": 0.1},
    "method": {"algorithm.name": "fedprox"},
    "trials": 20,
    "seeds": [0],
    "run_equivalents": 20.0,
    "objective": ["headline"],
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tuned": TUNED}, "20 trials, 20 run-equivalents"),
        (
            {"tuned": {**TUNED, "values": {"local.optimizer.lr": 0.3}}},
            "changed since (20 trials, 20 run-equivalents)",
        ),
        (
            {"tuned": {**TUNED, "method": {"algorithm.name": "scaffold"}}},
            "for another method (20 trials, 20 run-equivalents)",
        ),
    ],
    ids=["as chosen", "changed", "of another"],
)
def test_whether_a_method_was_tuned_and_the_reference_not(
    changes: dict[str, Any], said: str
) -> None:
    other = made((0.5, 0.8), algorithm={"name": "fedprox"}, **changes)
    shown = words([made((0.5, 0.8)), other])
    assert {label: row["tuned"] for label, row in shown.items()} == {
        "fedavg": "no",
        "fedprox": said,
    }
    assert Besides(group_runs([made((0.5, 0.8)), other])).sentences() == [
        f"fedprox was tuned ({said}), and of fedavg no tuning is recorded"
    ]


def test_the_reference_at_a_rate_that_was_tuned_for_its_rival_is_told() -> None:
    """Both have the rate that was chosen for fedprox; one seed of fedavg has none."""
    budget = "20 trials, 20 run-equivalents"
    prox = made((0.5, 0.8), algorithm={"name": "fedprox"}, tuned=TUNED)
    assert Besides(group_runs([made((0.5, 0.8), tuned=TUNED), prox])).sentences() == [
        f"fedprox was tuned otherwise ({budget}) than fedavg (for another method ({budget}))"
    ]
    mixed = [made((0.5, 0.8), 0, tuned=TUNED), made((0.5, 0.8), 1)]
    assert words([*mixed, prox])["fedavg"]["tuned"] == f"for another method ({budget}); no"


def test_who_took_part_is_told_where_it_is_not_the_rule() -> None:
    """The same rule, and in the second round another client; under another rule that is the
    method."""
    other = made((0.5, 0.8), algorithm={"name": "fedprox"})
    rows = other.tables["clients"]
    place = rows.column_names.index("client")
    other = replace(
        other, tables={**other.tables, "clients": rows.set_column(place, "client", [[0, 1]])}
    )
    shown = words([made((0.5, 0.8)), other])
    assert shown["fedprox"]["who took part"] == "2 updates, Gini 0.50"
    oort = replace(
        other, meta={**other.meta, "config": {**CONFIG, "seed": 0, "selector": {"name": "oort"}}}
    )
    assert Besides(group_runs([made((0.5, 0.8)), oort])).table() is None


def test_private_runs_have_no_clear_numbers() -> None:
    run = made((0.5, 0.8), algorithm={"name": "fedprox"}, mb=2.0)
    rows = run.tables["clients"]
    empty = fake.table(
        "clients",
        round=rows["round"].to_pylist(),
        client=rows["client"].to_pylist(),
        outcome=rows["outcome"].to_pylist(),
    )
    private = replace(run, tables={**run.tables, "clients": empty})
    assert words([made((0.5, 0.8)), private])["fedprox"] == {"up (MB)": "4.00"}


def test_controls_are_no_methods_anywhere(tmp_path: Path) -> None:
    runs = [*FEDAVG_RUNS, *SCAFFOLD_RUNS, *CONTROLS]
    assert list(group_runs(runs)) == ["fedavg", "scaffold"]
    assert label_runs(runs) == ["fedavg"] * 2 + ["scaffold"] * 2 + [NAMED] * 2
    assert [len(some) for some in group_runs(CONTROLS).values()] == [2]  # a report on them alone
    tables = printed(terminal_tables(runs))
    assert "besides the method" in tables
    assert "what is left of the difference" in tables
    assert "\u221218.56 to +19.56" in tables
    assert NAMED not in tables
    html = report(runs, tmp_path / "page.html").read_text()
    markdown = report(runs, tmp_path / "page.md").read_text()
    for page in (html, markdown):
        assert "Besides the method" in page
        assert "at equal weights" in page
        assert "\u221218.56 to +19.56" in page
    assert "scaffold weighs clients equally" not in html
    assert "scaffold weighs clients equally; fedavg with equal weights is not in this" in (
        report([*FEDAVG_RUNS, *SCAFFOLD_RUNS], tmp_path / "bare.html").read_text()
    )


def test_print_has_both_tables(tmp_path: Path) -> None:
    groups = group_runs([*FEDAVG_RUNS, *SCAFFOLD_RUNS])
    folder = write_print_files(groups, tmp_path / "paper", ["latex", "csv"], controls=CONTROLS)
    beside = (folder / "besides.tex").read_text()
    assert r"scaffold & \textbf{equal} & \textbf{4.00} \\" in beside
    left = (folder / "left.tex").read_text()
    assert r"Method & Compared & Difference (points) & Pairs (seeds) \\" in left
    assert r"scaffold & as a whole & $-19.00 \pm 12.71$ & 2 \\" in left
    assert r"scaffold & at equal weights & $0.500 \pm 19.059$ & 2 \\" in left
    assert r"\input{besides}" in (folder / "example.tex").read_text()
    rows = (folder / "left.csv").read_text().splitlines()
    assert rows[1].startswith("scaffold,as a whole,-19.")
    bare = write_print_files(groups, tmp_path / "bare", ["latex"])
    assert (
        "fedavg with equal weights is not in this comparison" in (bare / "besides.tex").read_text()
    )


def test_a_line_has_the_number_of_its_method() -> None:
    """The reference has 0 wherever it stands: the page colours and hides lines by it."""
    found = Besides(group_runs([*SCAFFOLD_RUNS, *FEDAVG_RUNS]), CONTROLS)
    for table in (found.table(), found.left_table()):
        assert table is not None
        assert {(row.label, row.method) for row in table.rows} <= {("fedavg", 0), ("scaffold", 1)}
