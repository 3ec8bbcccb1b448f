"""What is settled before the first run: controls, what cannot run, and an empty *stable*."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import motley
from motley.core.components import imports
from motley.core.errors import ConfigError, UserError
from motley.core.files import with_digest
from motley.experiments import controls, registry, sweep
from motley.experiments.config import Experiment, load
from motley.experiments.store import RunFolder
from motley.results import aspects
from motley.results.besides import Besides
from motley.results.labels import group_runs
from motley.results.load import load_all
from motley.results.measures import ends_of
from motley.selectors.uniform import Uniform

ROOT = Path(__file__).parents[3]
PLAIN: dict[str, Any] = {
    "name": "small",
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 2},
    "task": "quadratic",
    "partition": "by_writer",
    "evaluate": {"every": 1},
}
SCAFFOLD = {"algorithm.name": ["fedavg", "scaffold"]}


def controls_of(over: dict[str, Any], seeds: tuple[int, ...] = (0,), **keys: Any) -> Any:
    points = sweep.expand(Experiment(**{**PLAIN, **keys}), over, seeds)
    return controls.controls_of(points)


def named(over: dict[str, Any], **keys: Any) -> list[str]:
    return list(dict.fromkeys(name for name, _ in controls_of(over, **keys).experiments))


def test_the_control_is_the_reference_with_the_other_weights() -> None:
    found = controls_of(SCAFFOLD, seeds=(0, 1))
    assert [(name, one.seed) for name, one in found.experiments] == [
        ("fedavg with equal weights", 0),
        ("fedavg with equal weights", 1),
    ]
    assert all(one.weighting() == "uniform" for _, one in found.experiments)
    expected = Experiment(**PLAIN, weights="uniform")
    assert found.experiments[0][1].run_id() == expected.run_id()


def test_a_control_that_the_grid_has_is_not_added() -> None:
    assert named({**SCAFFOLD, "weights": ["uniform"]}) == []
    grid = [SCAFFOLD, {"weights": ["uniform"]}]
    points = sweep.expand(Experiment(**PLAIN, grid=grid))
    assert not controls.controls_of(points).experiments


def test_two_methods_share_a_control() -> None:
    assert named({"algorithm.name": ["fedavg", "scaffold", "feddyn"]}) == [
        "fedavg with equal weights"
    ]


ONE = {"name": "fedprox", "mu": 0.1}


@pytest.mark.parametrize(
    ("changes", "names", "expected"),
    [
        ({"local.optimizer.lr": 0.3}, ["fedavg with learning rate 0.3"], {}),
        (
            {"local.optimizer": {"name": "adam", "lr": 0.002}},
            ["fedavg with optimizer adam"],
            {"local": {"optimizer": {"name": "adam", "lr": 0.002}}},
        ),
        (
            {"local.optimizer.weight_decay": 0.1},
            ["fedavg with optimizer weight_decay 0.1"],
            {"local": {"optimizer": {"name": "sgd", "lr": 0.05, "weight_decay": 0.1}}},
        ),
        (
            {"local.optimizer.weight_decay": 0.1, "local.optimizer.lr": 0.3},
            [
                "fedavg with learning rate 0.3",
                "fedavg with optimizer weight_decay 0.1",
                "fedavg with learning rate 0.3 and optimizer weight_decay 0.1",
            ],
            {"local": {"optimizer": {"name": "sgd", "lr": 0.3, "weight_decay": 0.1}}},
        ),
        (
            {"local.clip": {"norm": 2.0}},
            ["fedavg with clipping norm 2 of corrected"],
            {"local": {"clip": {"norm": 2.0}}},
        ),
        ({"local.steps": 7}, ["fedavg with local work 7 steps"], {"local": {"steps": 7}}),
        ({"local.epochs": 3}, ["fedavg with local work 3 epochs"], {"local": {"epochs": 3}}),
        (
            {"local.epochs": 3, "local.clip": {"norm": 2.0}},
            [
                "fedavg with clipping norm 2 of corrected",
                "fedavg with local work 3 epochs",
                "fedavg with clipping norm 2 of corrected and local work 3 epochs",
            ],
            {"local": {"epochs": 3, "clip": {"norm": 2.0}}},
        ),
        ({"server": "momentum"}, ["fedavg with server step momentum"], {"server": "momentum"}),
        ({"precision": "bfloat16"}, ["fedavg with precision bfloat16"], {}),
        ({"dtype": "float64"}, ["fedavg with dtype float64"], {}),
    ],
    ids=[
        "rate",
        "optimizer",
        "optimizer's option",
        "both",
        "clipping",
        "steps",
        "epochs",
        "two, and both",
        "server",
        "precision",
        "dtype",
    ],
)
def test_each_setting_has_a_control(
    changes: dict[str, Any], names: list[str], expected: dict[str, Any]
) -> None:
    """The last one has all settings of the other method, and the reference's algorithm."""
    base = Experiment(**PLAIN, local={"optimizer": {"name": "sgd", "lr": 0.05}})
    points = [
        sweep.Point("fedavg", base),
        sweep.Point("fedprox", base.replace({"algorithm": ONE, **changes})),
    ]
    found = controls.controls_of(points)
    assert [name for name, _ in found.experiments] == names
    if expected:
        whole = base.replace({"server": "momentum"} if "server" in expected else {})
        local = {"optimizer": {"name": "sgd", "lr": 0.05}, **expected.get("local", {})}
        assert found.experiments[-1][1].run_id() == whole.replace({"local": local}).run_id()


def test_fine_tuning_is_the_control_of_models_of_their_own() -> None:
    """Ditto's clients train two epochs a round: so long FedAvg is fine-tuned; equal weights are
    Ditto's, too."""
    found = controls_of({"algorithm.name": ["fedavg", "ditto"]}, local={"epochs": 2})
    assert [name for name, _ in found.experiments] == [
        "fedavg with equal weights",
        "fedavg with fine-tuning 2 epochs",
        "fedavg with equal weights and fine-tuning 2 epochs",
    ]
    tuned = found.experiments[1][1].algorithm
    assert (tuned["name"], tuned["epochs"], tuned["steps"]) == ("fine_tuned", 2, 0)
    assert tuned["method"]["name"] == "fedavg"


@pytest.mark.parametrize(
    ("algorithm", "words", "expected"),
    [
        ({"name": "fedbabu", "tune_epochs": 1}, "1 epoch", {"epochs": 1, "steps": 0, "lr": None}),
        ({"name": "fedbabu", "tune_epochs": 5}, "5 epochs", {"epochs": 5, "steps": 0, "lr": None}),
        (
            {"name": "per_fedavg", "alpha": 0.02, "tune_steps": 3},
            "3 steps at rate 0.02",
            {"epochs": 0, "steps": 3, "lr": 0.02},
        ),
        ({"name": "fedbabu", "tune_epochs": 0}, None, None),
    ],
)
def test_who_tunes_before_the_examination_is_held_against_as_much(
    algorithm: dict[str, Any], words: str | None, expected: dict[str, Any] | None
) -> None:
    found = controls_of(
        {"algorithm": ["fedavg", algorithm]}, weights="uniform", task=DIGITS["task"]
    )
    assert [name for name, _ in found.experiments] == (
        [f"fedavg with fine-tuning {words}"] * bool(words)
    )
    for _, control in found.experiments:
        assert {key: control.algorithm[key] for key in ("epochs", "steps", "lr")} == expected


def test_what_no_experiment_can_be_is_said() -> None:
    """A rate that falls to the last round, where the clock ends the runs; with the other's end it
    is an experiment."""
    base = Experiment(**{**PLAIN, "stop": {"virtual_hours": 1.0}})
    falling = {"local.lr_schedule": {"name": "linear", "end": 0.5}, "stop": {"rounds": 5}}
    other = base.replace({"algorithm": ONE, **falling})
    found = controls.controls_of([sweep.Point("fedavg", base), sweep.Point("fedprox", other)])
    assert [name for name, _ in found.experiments] == [
        "fedavg with end of the run rounds 5",
        "fedavg with rate schedule linear and end of the run rounds 5",
    ]
    (refused,) = found.refused
    assert refused.startswith("fedavg with rate schedule linear cannot run (")


def test_what_the_reference_does_not_take_is_left_out_of_all() -> None:
    """Uniform selection has no scores to weigh by; clipping and momentum it takes."""
    bundle = {"local.clip": {"norm": 2.0}, "server": "momentum", "weights": "score"}
    base = Experiment(**PLAIN)
    other = base.replace({"algorithm": ONE, "selector": "hetero_select_v1", **bundle})

    def refusal(name: str, experiment: Experiment) -> UserError | None:
        return ConfigError("no scores", "weights") if experiment.weights == "score" else None

    points = [sweep.Point("fedavg", base), sweep.Point("whole", other)]
    found = controls.controls_of(points, refusal)
    assert [name for name, _ in found.experiments] == [
        "fedavg with clipping norm 2 of corrected",
        "fedavg with selector hetero_select_v1",
        "fedavg with server step momentum",
        "fedavg with clipping norm 2 of corrected, selector hetero_select_v1 and server step "
        "momentum",
    ]
    assert found.refused == ["fedavg with weights by score cannot run (weights: no scores)"]


def test_a_part_that_weighs_otherwise_leaves_the_weights_as_they_are() -> None:
    """Buffered rounds weigh clients equally where nothing is written; the control of the buffer
    alone weighs them by samples, as the reference."""
    base = Experiment(**PLAIN, device={"name": "constant", "seconds": 1.0})
    other = base.replace({"algorithm": "fednova", "synchrony": "buffered"})
    found = controls.controls_of([sweep.Point("a", base), sweep.Point("b", other)])
    assert [(name, one.weighting(), one.synchrony["name"]) for name, one in found.experiments] == [
        ("fedavg with equal weights", "uniform", "synchronous"),
        ("fedavg with synchrony buffered", "examples", "buffered"),
        ("fedavg with equal weights and synchrony buffered", "uniform", "buffered"),
    ]


def test_no_control_is_made_of_models_of_their_own() -> None:
    """Against ditto, fedavg has no fine-tuning: ditto without its models would be fedavg."""
    points = sweep.expand(
        Experiment(**PLAIN, weights="uniform"), {"algorithm": ["ditto", "fedavg"]}
    )
    methods = [controls._method(point.label, point.experiment) for point in points]
    (pair,) = aspects.pairs_of(methods, points[0].label)
    assert [aspect.name for aspect in pair.aspects] == ["fine-tuning"]
    assert not pair.takes(pair.aspects[0])


def test_fedbabu_can_be_run_without_its_tuning() -> None:
    task = DIGITS["task"]
    keys = {**PLAIN, "task": task, "weights": "uniform"}
    points = sweep.expand(Experiment(**keys), {"algorithm": ["fedbabu", "moon"]})
    found = controls.controls_of(points)
    assert [name for name, _ in found.experiments] == ["fedbabu with fine-tuning none"]
    tuned = found.experiments[0][1].algorithm
    assert (tuned["name"], tuned["epochs"], tuned["steps"]) == ("fine_tuned", 0, 0)
    assert tuned["method"]["name"] == "fedbabu"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which runs are begun, by algorithm and weights."""
    real = sweep.run_in
    begun: list[str] = []

    def noted(experiment: Experiment, **options: Any) -> Any:
        begun.append(f"{experiment.algorithm['name']} {experiment.weighting()}")
        return real(experiment, **options)

    monkeypatch.setattr(sweep, "run_in", noted)
    return begun


def compared(out: Path, say: Any = lambda _: None, **options: Any) -> sweep.Comparison:
    def heard(line: str) -> None:
        if not line.startswith("stable will be empty"):
            say(line)

    return motley.compare(
        PLAIN, options.pop("over", SCAFFOLD), [0, 1], out=out, controls=True, say=heard, **options
    )


def test_controls_are_run_once_and_found_again(tmp_path: Path, made: list[str]) -> None:
    lines: list[str] = []
    found = compared(tmp_path, lines.append)
    assert made == ["fedavg examples"] * 2 + ["scaffold uniform"] * 2 + ["fedavg uniform"] * 2
    assert [run.config["algorithm"]["name"] for run in found.runs] == ["fedavg"] * 2 + [
        "scaffold"
    ] * 2
    assert [run.control for run in found.controls] == ["fedavg with equal weights"] * 2
    assert "controls" in repr(found)
    assert lines[0] == (
        "controls: 2 runs beside 4 of the comparison (fedavg with equal weights); how long they "
        "take is said after the first run"
    )
    assert len(lines) == 2
    assert lines[1].startswith("the controls take about ")
    assert lines[1].endswith(" minutes")

    lines.clear()
    made.clear()
    again = compared(tmp_path, lines.append)
    assert made == []
    assert lines == ["controls: all are there already (fedavg with equal weights)"]
    assert [run.meta for run in again.controls] == [run.meta for run in found.controls]

    later = load_all(tmp_path)  # as motley report finds them
    assert list(group_runs(later)) == ["fedavg", "scaffold"]
    (row,) = Besides(group_runs(later), [run for run in later if run.control]).left
    (now,) = Besides(group_runs(found.runs), found.controls).left
    assert row.at_equal["weights"] == now.at_equal["weights"]
    assert row.at_equal["weights"].n == 2


def test_an_interrupted_control_is_resumed(tmp_path: Path, made: list[str]) -> None:
    found = compared(tmp_path)
    folder = RunFolder(found.controls[0].directory)
    record = {**(folder.read() or {}), "finished": False}
    folder.write(record)
    made.clear()
    again = compared(tmp_path)
    assert made == ["fedavg uniform"]
    assert again.controls[0].meta["control"] == "fedavg with equal weights"
    assert with_digest(again.controls[0].meta)  # its record is whole


def test_a_run_of_the_folder_is_no_control_again(tmp_path: Path, made: list[str]) -> None:
    """An earlier comparison of weights has made the control, and the costs of its runs tell how
    long the new ones take."""
    motley.compare(PLAIN, {"weights": ["uniform"]}, [0], out=tmp_path)
    made.clear()
    lines: list[str] = []
    found = compared(tmp_path, lines.append)
    assert made.count("fedavg uniform") == 1  # seed 1
    assert len(found.controls) == 2
    assert lines[0].startswith(
        "controls: 1 runs beside 4 of the comparison (fedavg with equal weights); the controls "
        "take about "
    )


def test_a_control_that_was_a_method_is_a_control(tmp_path: Path) -> None:
    motley.compare(PLAIN, {"weights": ["examples", "uniform"]}, [0, 1], out=tmp_path)
    found = compared(tmp_path)
    assert [run.control for run in found.controls] == ["fedavg with equal weights"] * 2
    assert list(group_runs([*found.runs, *found.controls])) == ["fedavg", "scaffold"]


def test_more_than_a_hundred_controls_are_asked_for(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MOST", 1)
    with pytest.raises(
        ConfigError,
        match=r"^--controls: the controls are 2 runs beside 4 of the comparison, more than 1; run "
        r"them with --yes \(in Python many_controls=True\)",
    ):
        compared(tmp_path)
    assert made == []
    assert len(compared(tmp_path, many_controls=True).controls) == 2


def test_the_example_of_quantity_skew(tmp_path: Path) -> None:
    """Reduced to six clients and two rounds: what is left at equal weights is SCAFFOLD less the
    control, seed by seed, and it sends twice as much up."""
    experiment = load(
        ROOT / "examples" / "quantity_skew.toml", ["population=6", "cohort=3", "stop.rounds=2"]
    ).replace({"grid": {"algorithm": ["fedavg", "scaffold"], "seed": [0, 1]}})
    found = motley.compare(experiment, out=tmp_path, controls=True)
    told = Besides(group_runs(found.runs), found.controls)
    rows = {label: [word for word, _ in cells] for label, cells in told.rows()}
    assert (rows["fedavg"][0], rows["scaffold"][0]) == ("by samples", "equal")
    table = told.table()
    assert table is not None
    up = table.heads.index("up (MB)") - 1
    assert float(rows["scaffold"][up]) == pytest.approx(2 * float(rows["fedavg"][up]), rel=0.02)
    ends = [
        {run.seed: 100 * ends_of(run).final for run in some}
        for some in (found.runs[2:], found.controls)
    ]
    (row,) = told.left
    assert row.at_equal["weights"].mean == pytest.approx(
        sum(ends[0][seed] - ends[1][seed] for seed in (0, 1)) / 2
    )


def test_nothing_to_add_is_said(tmp_path: Path) -> None:
    lines: list[str] = []
    compared(tmp_path, lines.append, over={"selector.name": ["uniform", "power_of_choice"]})
    assert lines == ["controls: nothing to add"]


def test_another_world_is_named_and_no_control_is_made_of_it() -> None:
    """Scaffold has other weights, too: at equal weights it would still have run with no
    failures."""
    base = Experiment(**PLAIN)
    points = [
        sweep.Point("one", base.replace({"failures": {"name": "drop_out", "rate": 0.5}})),
        sweep.Point("other", base.replace({"algorithm": "scaffold"})),
    ]
    found = controls.controls_of(points)
    assert not found.experiments
    assert found.refused == [
        "scaffold, none and fedavg, drop_out were run with different failures: their difference "
        "is not one of methods"
    ]


DIGITS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 1},
}


def test_what_cannot_run_is_said_before_the_first_run(tmp_path: Path, made: list[str]) -> None:
    """SCAFFOLD's option II under Adam, and FLASH's rule without validation samples; of fedavg
    nothing is run until somebody says so."""
    keys = {**DIGITS, "local": {"optimizer": "adam"}}
    over = {"algorithm.name": ["fedavg", "scaffold"], "selector.name": ["uniform", "flash"]}
    with pytest.raises(
        ConfigError,
        match=r"^3 of 4 variants cannot run, so no run was begun: fedavg flash: split\.validation: "
        r"'flash' needs the loss on each client's validation samples.*; scaffold uniform and "
        r"scaffold flash: algorithm: .*not possible under Adam.*; mend them, or go on without with "
        r"--skip-refused \(skip_refused=True\)$",
    ):
        motley.compare(keys, over, out=tmp_path)
    assert made == []
    assert not list(tmp_path.rglob("run.json"))
    left_out = (
        r"^against: 'scaffold, uniform' was left out, for it cannot run; expected one of: "
        "fedavg, uniform$"
    )
    with (
        pytest.warns(UserWarning, match="left out, for it cannot run"),
        pytest.raises(ConfigError, match=left_out),
    ):
        motley.compare(keys, over, out=tmp_path, skip_refused=True, against="scaffold, uniform")
    with pytest.warns(UserWarning, match="left out, for it cannot run: (fedavg flash|scaffold)"):
        found = motley.compare(keys, over, out=tmp_path, skip_refused=True)
    assert made == ["fedavg examples"]
    assert (len(found.runs), found.failures) == (1, [])


def test_one_reason_for_all_is_told_as_it_is(tmp_path: Path) -> None:
    keys = {**DIGITS, "aggregator": "krum"}
    with pytest.raises(ConfigError, match=r"^aggregator: Krum weighs all clients alike"):
        motley.compare(keys, {"cohort": [3, 4]}, out=tmp_path, skip_refused=True)


@dataclass(frozen=True)
class Restless(Uniform):
    """Raises as a rule of one's own may: where its state is made, or where its option is read."""

    patience: int = 1

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ValueError(f"no patience below 0, got {self.patience}")

    @override
    def init(self) -> Any:
        raise KeyError("patience")


def test_a_rule_of_ones_own_that_raises_is_a_variant_that_cannot_run(
    tmp_path: Path, made: list[str]
) -> None:
    over = {"selector": ["uniform", Restless()]}
    reason = r"KeyError: 'patience', in .*test_controls\.py, line \d+, in init"
    with pytest.raises(ConfigError, match=f"^1 of 2 variants cannot run.*: {reason}; mend them"):
        motley.compare(DIGITS, over, out=tmp_path)
    assert made == []
    with pytest.warns(UserWarning, match=f"left out, for it cannot run: .*: {reason}"):
        ran = motley.compare(DIGITS, over, out=tmp_path, skip_refused=True)
    assert (len(ran.runs), ran.failures) == (1, [])


@pytest.fixture
def selectors_kept() -> Iterator[None]:
    """Forget the names of selectors that are imported in a test."""
    names = registry.catalogue("selector")
    before = set(names.targets)
    yield
    for name in set(names.targets) - before:
        del names.targets[name], names._classes[name]


@pytest.mark.usefixtures("selectors_kept")
def test_an_option_that_a_class_of_ones_own_refuses_names_its_key() -> None:
    name = f"{Restless.__module__}:Restless"
    refusal = pytest.raises(
        ConfigError,
        match=r"^selector: Restless\(patience=-1\) cannot be made \(ValueError: no patience "
        r"below 0, got -1, in .*test_controls\.py, line \d+, in __post_init__\)$",
    )
    with imports(True), refusal:
        Experiment(**{**DIGITS, "selector": {"name": name, "patience": -1}})


def test_a_control_that_cannot_run_is_left_out(tmp_path: Path) -> None:
    """Hetero_select weighs by its scores, and uniform selection gives none."""
    lines: list[str] = []
    over = {"selector": ["uniform", "hetero_select_v1"]}
    points = sweep.expand(Experiment(**DIGITS), over)
    scored = points[1].experiment.replace({"weights": "score"})
    grid = [{"selector": ["uniform"]}, {"selector": ["hetero_select_v1"], "weights": ["score"]}]
    assert scored.weighting() == "score"
    found = motley.compare({**DIGITS, "grid": grid}, out=tmp_path, controls=True, say=lines.append)
    assert found.controls == []
    assert any(
        line.startswith(
            "no control: uniform with weights by score cannot run (weights: got "
            "'score', but 'uniform' gives no scores"
        )
        for line in lines
    ), lines


@pytest.mark.parametrize(
    ("rounds", "every", "said"),
    [
        (20, 1, None),
        (19, 1, None),
        (18, 1, "9 evaluations past half .*; a run of at least 19 rounds, with evaluate.every = 1"),
        (20, 2, "5 evaluations past half of the run, .* of 10; write evaluate.every = 1;"),
        (100, 10, "5 evaluations past half of the run, .* of 10; write evaluate.every = 5;"),
        (100, 5, None),
        (3, 10, "1 evaluation past half of the run"),
    ],
)
def test_whether_stable_will_be_empty(rounds: int, every: int, said: str | None) -> None:
    experiment = Experiment(**{**PLAIN, "stop": {"rounds": rounds}, "evaluate": {"every": every}})
    sentence = controls.empty_stable(experiment)
    if said is None:
        assert sentence is None
    else:
        assert sentence is not None
        assert re.search(said, sentence)


def test_a_run_that_ends_by_the_clock_is_not_judged() -> None:
    experiment = Experiment(**{**PLAIN, "stop": {"virtual_hours": 1.0}})
    assert controls.empty_stable(experiment) is None
