"""HeteRo-Select v2: the settings of its recipe at the scale ``paper``, written out by hand from the
paper, and the sums of what the paper prints."""

from __future__ import annotations

import pytest

from tests.motley_papers.settings_by_hand import (
    Axis,
    Keys,
    Row,
    Sums,
    check_settings,
    check_shown,
    recipe,
    spreads,
    sums,
)

SECONDS = "paper_seconds_to_target"
MB = "paper_mb_to_target"
COMPONENTS = [
    f"chosen.component.{name}" for name in ("value", "direction", "fairness", "staleness")
]
PROTOCOL: Keys = {
    # the FedCG protocol: 100 clients, 10 a round, 100 rounds of 50 steps, 1 to 5 Mb/s up,
    # 0.1 to 0.5 s a step; crop and flip; batches of 32 are not stated
    "population": 100,
    "cohort": 10,
    "stop.rounds": 100,
    "split.test": "global",
    "local.steps": 50,
    "local.epochs": None,
    "local.batch_size": 32,
    "network": {"name": "uniform", "up_mbps": [1.0, 5.0]},
    "device": {"name": "uniform", "low": 0.1, "high": 0.5},
    "task": {"name": "image", "data": "cifar10", "model": "alexnet", "augment": "crop_flip"},
    "partition": {"name": "psi", "psi": 0.4, "variant": "code"},
    # 0.05, falling to a half, for the compared methods, too
    "local.optimizer": {"name": "sgd", "lr": 0.05},
    "local.lr_schedule": {"name": "linear", "end": 0.5},
    "evaluate.every": 1,
    "evaluate.per_client": False,
}
EXAMINED: Keys = {"evaluate.every": 5, "evaluate.diagnostics": True}
TEXT: Keys = {
    "method": "hetero_select",
    "selector": {"name": "hetero_select"},
    "weights": "score",
    "algorithm": {"name": "fedprox", "mu": 0.1},
    "local.clip": {"norm": 2.0, "of": "corrected"},
    "server": {"name": "momentum", "momentum": 0.5},
    "compressor": {"name": "topk", "criterion": "curvature"},
    "feedback": {"name": "adaptive"},
    "allocator": {"name": "by_score"},
    "budget": {"name": "cosine", "average": 0.2, "amplitude": 0.4, "floor": 0.08},
}
CODE: Keys = {
    **TEXT,
    "method": "hetero_select_published",
    "local.optimizer.momentum": 0.9,
    "selector.lr": "score_adaptive",
    "selector.as_published": "code",
    "compressor.guard": "clamp",
    "compressor.rounding": "floor",
    "compressor.probe": "model",
    "allocator.as_published": "code",
    "budget.as_published": "code",
}
"""The released code, which gave the printed figures: of every exhibit without methods."""
LIKE_CODE: Keys = {
    "local.optimizer.momentum": 0.9,
    "local.clip": {"norm": 2.0, "of": "corrected"},
}
AVERAGED: Keys = {"algorithm": {"name": "fedavg"}}
TOP_K: Keys = {**AVERAGED, "compressor": {"name": "topk"}}
FEDCG_SELECTOR = {
    "name": "fedcg",
    "budget": 0.2,
    "least": 0.005,
    "slack": "traffic",
    "time_aware": True,
}
SHARES = {"average": 0.2, "name": "constant"}
CITED: Axis = {
    "fedavg": {**AVERAGED, "weights": "examples"},
    "optrate": {**TOP_K, "allocator": {"name": "optrate"}, "budget": SHARES},
    "flexcom": {**TOP_K, "allocator": {"name": "flexcom"}, "budget": SHARES},
    "adasample": {**AVERAGED, "selector": {"name": "adasample"}, "weights": "selector"},
    "fedcg": {
        **TOP_K,
        "selector": FEDCG_SELECTOR,
        "allocator": {"name": "from_selector", "least": 0.005},
    },
}
"""The methods of Table I that are cited from FedCG's paper, a fifth of the update on average."""
PLAIN: Axis = {name: {"method": name, **keys} for name, keys in CITED.items()}
OTHERS: Axis = {name: {**keys, **LIKE_CODE} for name, keys in PLAIN.items()}
BOTH: Axis = {"hetero_select_published": CODE, "hetero_select": TEXT}
LONG: Keys = {"stop.rounds": 300}
"""The compared methods go on to the target, which 100 rounds may not reach."""


def until(accuracy: float) -> Keys:
    return {"stop.target": {"accuracy": accuracy}, "target": accuracy}


def missing(classes: int) -> Keys:
    return {"partition": {"name": "missing_classes", "missing": classes, "variant": "code"}}


BATCH_NORM: Keys = {
    "precision": "bfloat16",
    "recalibrate": {"batches": 20, "clients": 3, "cumulative": False},
}
"""Statistics anew on 20 batches, by the released code's chain of three clients."""
MNIST: Keys = {
    "task": {"name": "image", "data": "mnist", "model": "logistic_regression"},
    "target": 0.9,
}
CIFAR10: Keys = {"precision": "bfloat16", "target": 0.7}
CIFAR100: Keys = {
    "task.data": "cifar100",
    "task.model": "resnet9",
    **missing(40),
    **BATCH_NORM,
    "target": 0.54,
}
TINY: Keys = {
    "task.data": "tiny-imagenet-200",
    "task.model": "resnet18",
    **missing(80),
    **BATCH_NORM,
    "target": 0.3,
}
SMALL_ONES: Axis = {"mnist": MNIST, "cifar10": CIFAR10}
TO_THE_TARGET: Axis = {
    **{name: {**keys, **LONG} for name, keys in OTHERS.items()},
    "hetero_select_published": {**CODE, "stop.target": None},
    "hetero_select": {**TEXT, "stop.target": None},
}
ON_MNIST: Axis = {**OTHERS, "fedcg, plain": PLAIN["fedcg"], **BOTH}
MU: Axis = {
    "mu 0": {"algorithm.mu": 0.0},
    "mu 0.01": {"algorithm.mu": 0.01},
    "mu 0.1 (primary)": {"algorithm.mu": 0.1},
    "mu 0.5": {"algorithm.mu": 0.5},
}
ALLOCATED: Axis = {
    "uniform shares": {"allocator": {"name": "uniform"}},
    "shares by score (primary)": {"allocator": {"name": "by_score", "as_published": "code"}},
}
TABLE_2: Axis = {
    **ALLOCATED,
    **MU,
    "psi 0": {"partition.psi": 0.0},
    "psi 0.2": {"partition.psi": 0.2},
    "psi 0.4 (primary)": {"partition.psi": 0.4},
    "psi 0.6": {"partition.psi": 0.6},
    "psi 0.8": {"partition.psi": 0.8},
    "without value": {"selector.w_value": 0.0},
    "without diversity": {"selector.w_direction": 0.0},
    "without fairness and staleness": {"selector.w_fairness": 0.0, "selector.w_staleness": 0.0},
    "top-k by magnitude": {"compressor.criterion": "magnitude"},
    "constant memory 0.90": {"feedback": {"name": "fixed", "decay": 0.9}},
    "one learning rate": {"selector.lr": "shared"},
    "equal weights": {"weights": "uniform"},
}
LINKS: Axis = {
    "independent": {},
    **{
        f"inverted, {words}": {
            "network": {"name": "inverted", "law": law, "up_mbps": [1.0, 5.0]},
        }
        for words, law in (("as published", "published"), ("by rank", "rank"))
    },
}


def lower(last: float, targets: tuple[int, ...]) -> list[Axis]:
    """The runs of Table I, asked for lower targets."""
    asked = {f"{percent}": {"target": percent / 100} for percent in targets}
    return [asked, {"fedcg": {**OTHERS["fedcg"], **LONG, "stop.target.accuracy": last}, **BOTH}]


TENTH: Keys = {
    **CIFAR100,
    "target": 0.1,
    "population": 40,
    "cohort": 4,
    "stop.rounds": 40,
    "local.steps": 20,
    "evaluate.every": 4,
}
ROWS = {
    "table 1": Row(
        [{"cifar10": CIFAR10 | until(0.7), "cifar100": CIFAR100 | until(0.54)}, TO_THE_TARGET]
    ),
    "figure 1": Row([{"cifar10": CIFAR10 | until(0.7)}, TO_THE_TARGET]),
    **dict.fromkeys(("table 1, mnist", "figure 1, mnist", "figure 2a"), Row([ON_MNIST], MNIST)),
    "cifar-10 at every accuracy": Row(lower(0.7, (30, 40, 50, 55, 60, 65, 70)), CIFAR10),
    "cifar-100 at every accuracy": Row(lower(0.54, (20, 30, 40, 45, 50, 54)), CIFAR100),
    "table 2": Row([TABLE_2], CIFAR10),
    "table 2, mnist": Row([TABLE_2], MNIST),
    "table 3": Row([{**SMALL_ONES, "cifar100": CIFAR100, "tiny_imagenet": TINY}]),
    "figure 2b": Row([{f"{n}": {"partition.missing": n} for n in (0, 40, 80, 120)}], TINY),
    "figure 3": Row([{**SMALL_ONES, "cifar100": CIFAR100}, BOTH]),
    "figure 4a": Row([SMALL_ONES, ALLOCATED]),
    "figure 4b": Row([SMALL_ONES, MU]),
    "figure 5": Row([{"hetero_select_published": CODE}], TINY),
    **dict.fromkeys(
        ("figure 6a", "figure 6b"), Row([SMALL_ONES, {"hetero_select_published": CODE}])
    ),
    "figure 7": Row([SMALL_ONES, LINKS]),
    "figure 7, mnist": Row([{"mnist": MNIST}, LINKS]),
    "theorem IV.1": Row(
        [{"mnist": MNIST}, {k: PLAIN[k] for k in ("fedavg", "fedcg", "adasample")} | BOTH],
        EXAMINED,
    ),
    "theorem IV.2": Row([BOTH], {**MNIST, "target": None, "evaluate.diagnostics": True}),
    "direction": Row(
        [
            {name: {**keys, "selector.compare_directions": True} for name, keys in BOTH.items()},
            {"mnist": {**MNIST, "target": None}},
        ]
    ),
    "cifar-100, a tenth": Row([{"fedcg": OTHERS["fedcg"], "hetero_select_published": CODE}], TENTH),
}


@pytest.mark.parametrize("exhibit", ROWS)
def test_settings_of_every_cell(exhibit: str) -> None:
    """At ``paper``; what stands in no table here is Motley's default."""
    row = ROWS[exhibit]
    methods = any("method" in keys for axis in row.axes for keys in axis.values())
    check_settings("hetero_select", exhibit, row, PROTOCOL if methods else {**PROTOCOL, **CODE})


def test_every_exhibit_has_a_row() -> None:
    assert {exhibit.name for exhibit in recipe("hetero_select").exhibit} == ROWS.keys()


@pytest.mark.parametrize(
    ("exhibit", "measures", "pictures"),
    [
        ("table 1", f"{SECONDS} {MB} paper_seconds paper_mb drop", ""),
        ("table 2", f"peak final rounds_to_target {SECONDS} {MB}", ""),
        ("table 3", f"peak rounds_to_target {SECONDS} {MB}", ""),
        ("figure 1", f"{SECONDS} {MB}", f"beside:{SECONDS} beside:{MB}"),
        ("figure 2a", "peak", "curves:paper_seconds"),
        ("figure 2b", SECONDS, f"line:{SECONDS}"),
        ("figure 3", "peak final", "curves"),
        ("figure 4a", "peak final", "curves_with_end"),
        ("figure 4b", "peak final", "curves"),
        ("figure 5", f"peak {SECONDS}", "curves"),
        (
            "figure 6a",
            " ".join(f"{name}.{part}" for name in COMPONENTS for part in ("early", "late")),
            "components",
        ),
        ("figure 6b", "participation_least participation_most", "participation"),
        ("figure 7", f"reached rounds_to_target {MB}", "curves curves:paper_bits"),
    ],
)
def test_what_the_paper_shows_is_shown(exhibit: str, measures: str, pictures: str) -> None:
    """What it prints or draws, and as which pictures."""
    check_shown("hetero_select", exhibit, measures, pictures)


OURS = "hetero_select_published"
SPREADS = {
    **{(e, f"cifar10 / {OURS}", SECONDS): 41 for e in ("table 1", "figure 1")},
    **{(e, f"cifar10 / {OURS}", MB): 19 for e in ("table 1", "figure 1")},
    ("table 1", f"cifar100 / {OURS}", "paper_seconds"): 89,
    ("table 1", f"cifar100 / {OURS}", "paper_mb"): 19,
}
"""The only spreads that are printed."""


def test_seeds() -> None:
    """42 to 44 for the primary rows, 42 for the rest."""
    found = recipe("hetero_select")
    three = ("table 1", "figure 1", "figure 3", "figure 6a", "figure 6b")
    one = ("table 2", "table 3", "figure 2b", "figure 4a", "figure 4b", "figure 5", "figure 7")
    assert {name: found.seeds(found.named(name), "paper") for name in (*three, *one)} == {
        **{name: [42, 43, 44] for name in three},
        **{name: [42] for name in one},
    }


PRINTED: Sums = {
    # of Table II, rounds: 86 + 83 + 81 + ... + 83 = 1136, and 86 + 2 * 83 + 3 * 81 +
    # ... + 14 * 83 = 8451
    # row by row, CIFAR-10 before CIFAR-100; HeteRo-Select's figures on CIFAR-100 are totals
    ("table 1", SECONDS): (11, 153094, 731975),
    ("table 1", MB): (11, 140248, 715194),
    ("table 1", "paper_seconds"): (1, 4549, 4549),
    ("table 1", "paper_mb"): (1, 5010, 5010),
    ("figure 1", SECONDS): (6, 46007, 122486),
    ("figure 1", MB): (6, 40560, 108123),
    ("cifar-100 at every accuracy", SECONDS): (1, 10069, 10069),
    ("cifar-100 at every accuracy", MB): (1, 8402, 8402),
    # 18 rows, of which 14 reach 70 %
    ("table 2", "peak"): (18, 1265.91, 12122.97),
    ("table 2", "final"): (18, 1256.95, 12042.99),
    ("table 2", "rounds_to_target"): (14, 1136, 8451),
    ("table 2", SECONDS): (14, 39652, 294232),
    ("table 2", MB): (14, 27837, 207210),
    # the first two rows of Table II, and its third to sixth
    ("figure 4a", "peak"): (2, 145.25, 218.28),
    ("figure 4a", "final"): (2, 145.25, 218.28),
    ("figure 4b", "peak"): (4, 263.88, 645.57),
    ("figure 4b", "final"): (4, 261.32, 638.93),
    # MNIST, CIFAR-10, CIFAR-100, TinyImageNet; CIFAR-100 misses its target
    ("table 3", "peak"): (4, 247.94, 520.44),
    ("table 3", "rounds_to_target"): (3, 167, 408),
    ("table 3", SECONDS): (3, 7653.3, 19810.3),
    ("table 3", MB): (3, 9071.61, 25203.61),
    # the row of MNIST again, and that of TinyImageNet
    **dict.fromkeys([(e, "peak") for e in ("table 1, mnist", "figure 2a")], (1, 91.94, 91.94)),
    ("table 1, mnist", "rounds_to_target"): (1, 5, 5),
    **dict.fromkeys(
        [(e, SECONDS) for e in ("table 1, mnist", "figure 1, mnist", "figure 2a")],
        (1, 118.3, 118.3),
    ),
    **dict.fromkeys([(e, MB) for e in ("table 1, mnist", "figure 1, mnist")], (1, 0.61, 0.61)),
    ("figure 5", "peak"): (1, 33.53, 33.53),
    ("figure 5", SECONDS): (1, 4622, 4622),
    # from 5 to 16 rounds of 100
    ("figure 6b", "participation_least"): (1, 5, 5),
    ("figure 6b", "participation_most"): (1, 16, 16),
}


def test_sums_of_what_was_printed() -> None:
    found = sums("hetero_select")
    assert found.keys() == PRINTED.keys()
    assert not {key for key in found if found[key] != pytest.approx(PRINTED[key], rel=1e-9)}
    assert spreads("hetero_select") == SPREADS
