"""Sweeps: which runs, in which folders, and what happens when one fails."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

import motley
from motley.core.arrays import Ids, Ints
from motley.core.errors import ConfigError, DataError
from motley.core.files import with_digest
from motley.core.keys import Key
from motley.experiments import sweep
from motley.experiments.config import Experiment
from motley.experiments.parallel import job_workers_kept
from motley.experiments.store import RunFolder
from motley.results.labels import frame, group_runs
from motley.results.live import LiveFolder
from motley.results.load import load_all
from motley.world.interfaces import Partitioned
from motley.world.partition.basic import IID

PLAIN = {
    "name": "small",
    "population": 6,
    "cohort": 2,
    "stop": {"rounds": 2},
    "task": "quadratic",
    "partition": "by_writer",
}
RULES = {"selector.name": ["uniform", "power_of_choice"]}


def test_every_combination_becomes_a_run() -> None:
    points = sweep.expand(Experiment(**PLAIN), {**RULES, "local.epochs": [1, 2]}, seeds=[0, 1])
    assert len({point.experiment.run_id() for point in points}) == 8
    assert [(point.label, point.experiment.seed) for point in points[:3]] == [
        ("uniform epochs=1", 0),
        ("uniform epochs=1", 1),
        ("uniform epochs=2", 0),
    ]
    assert all(point.experiment.grid == [] for point in points)


def test_the_grid_of_the_file_is_run_and_may_be_overruled() -> None:
    experiment = Experiment(**PLAIN, grid={**RULES, "seed": [0, 1, 2]})
    assert len(sweep.expand(experiment)) == 6
    assert len(sweep.expand(experiment, {"selector.name": ["uniform"]}, seeds=[5])) == 1


def test_seeds_given_twice_are_refused() -> None:
    experiment = Experiment(**PLAIN, grid={"seed": [7]})
    twice = r"seeds: got \[2\], and over the key seed \[0, 1\]; give one of the two"
    with pytest.raises(ConfigError, match=twice):
        sweep.expand(experiment, {"seed": [0, 1]}, seeds=[2])
    for over, seeds in (({"seed": [0, 1]}, None), (None, [0, 1])):
        points = sweep.expand(experiment, over, seeds)
        assert [point.experiment.seed for point in points] == [0, 1]


def test_several_grids_are_run_one_after_the_other_and_common_runs_once() -> None:
    """Two learning rates, then two rules: the rule and rate that the file has are in both."""
    experiment = Experiment(
        **PLAIN, grid=[{"local.optimizer.lr": [0.01, 0.1]}, {"selector.name": ["uniform", "oort"]}]
    )
    plain = Experiment(**PLAIN)
    assert (plain.selector["name"], plain.part("local.optimizer").lr) == ("uniform", 0.01)
    points = sweep.expand(experiment, seeds=[0, 1])
    assert [(point.label, point.experiment.seed) for point in points] == [
        ("lr=0.01", 0),
        ("lr=0.01", 1),
        ("lr=0.1", 0),
        ("lr=0.1", 1),
        ("oort", 0),
        ("oort", 1),
    ]
    assert len(sweep.expand(experiment, over={"cohort": [1]})) == 3


NAMED = [
    {
        "name": "rates",
        "selector.name": ["uniform", "oort"],
        "local.optimizer.lr": [0.1],
        "cohort": [3],
    },
    {
        "name": "rules",
        "selector.name": ["uniform", "power_of_choice"],
        "local.optimizer.lr": [0.01],
        "cohort": [3],
    },
]


def test_grids_are_chosen_by_name() -> None:
    experiment = Experiment(**PLAIN, grid=NAMED)
    assert len(sweep.expand(experiment, seeds=[0, 1])) == 8
    chosen = sweep.expand(experiment, {"cohort": [1, 2]}, seeds=[0], grids=["rules"])
    assert [(point.label, point.experiment.cohort) for point in chosen] == [
        ("uniform cohort=1", 1),
        ("uniform cohort=2", 2),
        ("power_of_choice cohort=1", 1),
        ("power_of_choice cohort=2", 2),
    ]
    with pytest.raises(
        ConfigError,
        match=r"^grid: there is no grid 'ruls' \(did you mean 'rules'\?\); expected one of: rates, "
        r"rules$",
    ):
        sweep.expand(experiment, grids=["ruls"])
    with pytest.raises(
        ConfigError, match=r"^grid: there is no grid 'rules'; none has a name; write name = "
    ):
        sweep.expand(Experiment(**PLAIN, grid=RULES), grids=["rules"])
    with pytest.raises(ConfigError, match=r"^grid.name: two grids are called 'rates'"):
        Experiment(**PLAIN, grid=[NAMED[0], NAMED[0]])


def test_labels_show_what_differs_and_folders_do_not_depend_on_the_other_runs() -> None:
    """All runs share the cohort; the rules of one grid share the rate, which tells them from those
    of the other."""
    both = sweep.expand(Experiment(**PLAIN, grid=NAMED))
    assert [point.label for point in both] == [
        "uniform lr=0.1",
        "oort lr=0.1",
        "uniform lr=0.01",
        "power_of_choice lr=0.01",
    ]
    one = sweep.expand(Experiment(**PLAIN, grid=NAMED), grids=["rules"])
    assert [point.label for point in one] == ["uniform", "power_of_choice"]
    assert [point.folder(Path("r")) for point in one] == [
        point.folder(Path("r")) for point in both[2:]
    ]
    assert one[0].folder(Path("r")).parent.name == "uniform-lr=0.01-cohort=3"


def test_labels_are_unique() -> None:
    """Two keys may end in the same word, and two components may have the same name: the whole keys
    then tell the runs apart."""
    over = {"server.lr": [0.1, 0.2], "local.optimizer.lr": [0.1, 0.2], "cohort": [3]}
    points = sweep.expand(Experiment(**PLAIN, server="adam"), over)
    assert [point.label for point in points][:2] == [
        "server.lr=0.1 local.optimizer.lr=0.1",
        "server.lr=0.1 local.optimizer.lr=0.2",
    ]
    grids = [
        {"compressor": ["topk"]},
        {"compressor": ["topk"], "quantizer": ["qsgd"]},
        {"quantizer": ["qsgd"]},
    ]
    assert [point.label for point in sweep.expand(Experiment(**PLAIN, grid=grids))] == [
        "topk",
        "topk qsgd",
        "qsgd",
    ]
    grids = [{"compressor": ["topk"]}, {"quantizer": ["topk"]}]
    points = sweep.expand(Experiment(**PLAIN, budget={"average": 0.5}, grid=grids))
    assert [point.label for point in points] == ["compressor = topk", "quantizer = topk"]


def test_without_a_grid_there_is_one_run_called_like_the_experiment() -> None:
    (point,) = sweep.expand(Experiment(**PLAIN))
    assert point.label == "small"
    assert point.folder(Path("runs")) == Path("runs") / "small" / point.experiment.run_id()


def test_options_meet_the_component_they_are_meant_for() -> None:
    points = sweep.expand(
        Experiment(**PLAIN), {"selector.d": [3, 4], "selector.name": ["power_of_choice"]}
    )
    assert [point.experiment.selector for point in points] == [
        {"name": "power_of_choice", "d": d} for d in (3, 4)
    ]


def test_whole_components_and_presets_can_be_compared() -> None:
    points = sweep.expand(
        Experiment(**PLAIN), {"selector": ["uniform", {"name": "power_of_choice", "d": 3}]}
    )
    assert [point.label for point in points] == ["uniform", "power_of_choice d=3"]
    points = sweep.expand(Experiment(**PLAIN), {"method": ["fedavg", "fedprox"]})
    assert [point.experiment.algorithm["name"] for point in points] == ["fedavg", "fedprox"]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"selector.name": []}, r"^selector\.name: got no values"),
        (
            {"selector.name": ["uniform", "unifrom"]},
            r"^selector\.name: got 'unifrom' \(did you mean 'uniform'\?\)",
        ),
        (
            {"selektor.name": ["uniform"]},
            r"^selektor: there is no such key \(did you mean 'selector'\?\)",
        ),
        ({"seed": [1, 1]}, r"^grid: the same run occurs twice \(seed=1\)"),
        ({"cohort": [2, 7]}, r"^cohort: got 7, more than the population of 6"),
    ],
)
def test_a_wrong_variant_is_refused_before_anything_runs(
    over: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep.compare(PLAIN, over)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=x,y", ["x", "y"]),
        ("a.b=1,2.5,true", [1, 2.5, True]),
        ("a.b=[1, 5],[1, 10]", [[1, 5], [1, 10]]),
        ('a.b="x,y"', ["x,y"]),
        ('a.b={name = "u", d = 2},v', [{"name": "u", "d": 2}, "v"]),
    ],
)
def test_values_are_divided_at_commas_outside_brackets(text: str, values: list[Any]) -> None:
    assert sweep.parse_over(text) == ("a.b", values)


@pytest.mark.parametrize("text", ["a.b", "a.b=", "a.b=1,,2", "a.b=1,"])
def test_over_needs_key_and_values(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected key=value"):
        sweep.parse_over(text)


# ------------------------------------------------------------------------------------------ running


def test_a_comparison_runs_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep.compare(PLAIN, RULES, seeds=[0, 1], out=tmp_path, progress=True)
    assert [run.finished for run in first.runs] == [True] * 4
    assert not first.failures
    assert {run.directory.parent.name for run in first.runs} == {"uniform", "power_of_choice"}

    monkeypatch.setattr(sweep, "run_in", None)  # nothing is run again
    again = sweep.compare(PLAIN, RULES, seeds=[0, 1], out=tmp_path)
    assert [run.meta for run in again.runs] == [run.meta for run in first.runs]


def test_a_failed_run_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = sweep.run_in

    def broken(experiment: Experiment, **options: Any) -> Any:
        if experiment.seed == 0:
            raise DataError("the samples of 0 are gone")
        return real(experiment, **options)

    monkeypatch.setattr(sweep, "run_in", broken)
    found = sweep.compare(PLAIN, seeds=[0, 1], out=tmp_path, progress=True)
    assert [run.seed for run in found.runs] == [1]
    assert [(failure.point.experiment.seed, str(failure.error)) for failure in found.failures] == [
        (0, "the samples of 0 are gone")
    ]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("stable will be empty: 1 evaluation past half of the run")
    assert lines[2] == "run 1 of 2: small seed 0, failed: the samples of 0 are gone"
    assert lines[4].startswith("run 2 of 2: small seed 1, finished after round 2 of 2, loss ")


def test_a_reference_that_failed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sweep.run_in

    def broken(experiment: Experiment, **options: Any) -> Any:
        if experiment.selector["name"] == "uniform":
            raise DataError("its samples are gone")
        return real(experiment, **options)

    monkeypatch.setattr(sweep, "run_in", broken)
    with pytest.warns(UserWarning, match="no run of uniform, the reference, was finished: nothing"):
        sweep.compare(PLAIN, RULES, out=tmp_path, against="uniform")


def test_the_folder_remembers_the_grids_order_and_the_reference(tmp_path: Path) -> None:
    over = {"selector.name": ["uniform", "oort", "power_of_choice"]}
    found = sweep.compare(PLAIN, over, out=tmp_path, against="oort")
    order = [run.config["selector"]["name"] for run in load_all(tmp_path)]
    assert order == over["selector.name"]
    assert [one.label for one in LiveFolder(tmp_path).look()] == order
    assert list(dict.fromkeys(frame(tmp_path, "rounds")["label"].to_pylist())) == order
    assert group_runs(found.runs).reference == group_runs(load_all(tmp_path)).reference == "oort"
    # another grid in the folder stands first, and what was chosen stays
    sweep.compare(PLAIN, {"selector.name": ["power_of_choice", "uniform"]}, out=tmp_path)
    assert list(group_runs(load_all(tmp_path))) == ["power_of_choice", "uniform", "oort"]
    assert group_runs(load_all(tmp_path)).reference == "oort"


def test_added_seeds_keep_the_reference_that_was_chosen(tmp_path: Path) -> None:
    over = {"selector.name": ["uniform", "oort"]}
    sweep.compare(PLAIN, over, [0, 1], out=tmp_path, against="oort")
    lines: list[str] = []
    added = sweep.compare(PLAIN, over, [2, 3], out=tmp_path, say=lines.append)
    assert group_runs(added.runs).reference == "oort"
    assert group_runs(load_all(tmp_path)).reference == "oort"
    said = f"compared with oort, as before in {tmp_path}; choose another with --against"
    assert lines[0] == said
    # a moved part of the folder has none of the runs that were chosen
    part = tmp_path / "part"
    for name in ("uniform", "oort"):
        (part / name).mkdir(parents=True)
        for run in added.runs:
            if run.directory.parent.name == name:
                run.directory.rename(part / name / run.directory.name)
    (tmp_path / "comparison.json").rename(part / "comparison.json")
    assert group_runs(load_all(part)).reference == "oort"


def test_the_usual_reference_stays_when_methods_are_added(tmp_path: Path) -> None:
    sweep.compare(PLAIN, {"selector.name": ["oort"]}, out=tmp_path)  # one method has no reference
    sweep.compare(PLAIN, {"selector.name": ["power_of_choice", "oort"]}, out=tmp_path)
    lines: list[str] = []
    sweep.compare(PLAIN, RULES, out=tmp_path, say=lines.append)
    assert lines[0].startswith("compared with power_of_choice, as before in ")
    lines.clear()
    sweep.compare(PLAIN, {"selector.name": ["uniform", "ucb1"]}, out=tmp_path, say=lines.append)
    assert lines[0] == (
        f"the reference of {tmp_path} is power_of_choice, of which nothing is run now: these runs "
        "are compared with uniform"
    )
    assert group_runs(load_all(tmp_path)).reference == "power_of_choice"


def test_a_reference_that_no_method_is_called_is_refused_before_anything_is_run(
    tmp_path: Path,
) -> None:
    message = r"^against: got 'uniforn' \(did you mean 'uniform'\?\); expected one of the methods: "
    with pytest.raises(ConfigError, match=message + "uniform; power_of_choice"):
        sweep.compare(PLAIN, RULES, out=tmp_path / "new", against="uniforn")
    with pytest.raises(ConfigError, match=r"^against: got 3; expected one of the methods: uniform"):
        sweep.compare(PLAIN, RULES, out=tmp_path / "new", against=3)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["controls", "many_controls", "skip_refused"])
def test_a_flag_that_is_no_flag_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: got 'no'; expected true or false$"):
        sweep.compare(PLAIN, RULES, out=tmp_path, **{name: "no"})  # type: ignore[arg-type]


def test_an_interrupted_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sweep.run_in
    asked = []

    def watched(experiment: Experiment, **options: Any) -> Any:
        asked.append(options["resume"])
        return real(experiment, **options)

    monkeypatch.setattr(sweep, "run_in", watched)
    (run,) = sweep.compare(PLAIN, out=tmp_path).runs
    folder = RunFolder(run.directory)
    folder.write({**(folder.read() or {}), "finished": False})
    (again,) = sweep.compare(PLAIN, out=tmp_path).runs
    assert asked == [True, True]
    assert again.finished
    assert again.tables["rounds"].equals(run.tables["rounds"])


def test_control_c_ends_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(experiment: Experiment, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run_in", stopped)
    with pytest.raises(KeyboardInterrupt):
        sweep.compare(PLAIN, seeds=[0, 1], out=tmp_path)


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_of_another_torch_are_resumed_where_it_is_allowed(jobs: int, tmp_path: Path) -> None:
    over = {"selector.name": ["uniform", "oort"]}
    sweep.compare(PLAIN, over, out=tmp_path)
    for path in tmp_path.rglob("run.json"):
        record = json.loads(path.read_text())
        path.write_text(
            json.dumps(with_digest({**record, "numerics": {**record["numerics"], "torch": "1.0"}}))
        )
    longer = {**PLAIN, "stop": {"rounds": 4}}
    with job_workers_kept():
        refused = sweep.compare(longer, over, out=tmp_path, jobs=jobs)
        found = sweep.compare(longer, over, out=tmp_path, jobs=jobs, allow_other_numerics=True)
    assert [
        "or give --allow-other-numerics" in str(failure.error) for failure in refused.failures
    ] == [True, True]
    assert [run.tables["rounds"].num_rows for run in found.runs] == [4, 4]


LONG = {
    "name": "oort",
    "exploration": 0.9012345678901234,
    "exploration_decay": 0.9812345678901234,
    "exploration_min": 0.2012345678901234,
    "cutoff": 0.9512345678901234,
    "clip": 0.9012345678901234,
    "alpha": 2.0123456789012345,
    "blacklist_share": 0.3012345678901234,
}


def test_runs_whose_names_are_too_long_for_a_folder_have_folders_of_their_own(
    tmp_path: Path,
) -> None:
    """``stop`` stands at the end of the name, and is no part of a run id."""
    done = sweep.compare(PLAIN, {"selector": [LONG], "stop.rounds": [3, 1, 2]}, out=tmp_path)
    assert not done.failures
    assert [run.tables["rounds"].num_rows for run in done.runs] == [3, 1, 2]
    assert len({run.directory for run in done.runs}) == 3
    assert len({run.directory.name for run in done.runs}) == 1


def test_two_runs_in_one_folder_are_refused_before_the_first(tmp_path: Path) -> None:
    points = [
        sweep.Point(f"rounds {end}", Experiment(**{**PLAIN, "stop": {"rounds": end}}))
        for end in (1, 2)
    ]
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(
        ConfigError,
        match=r"^the runs 'rounds 1' and 'rounds 2' would be written into the same folder .*link; "
        "run each of them with an --out of its own$",
    ):
        sweep.run_points(points, [tmp_path / "run", tmp_path / "link"], None)
    assert not (tmp_path / "run").exists()


def test_a_grid_may_be_an_array(tmp_path: Path) -> None:
    keys = {
        "task": {"name": "synthetic", "examples": 10},
        "population": 4,
        "cohort": 1,
        "stop": {"rounds": 1},
    }
    points = sweep.expand(Experiment(**keys), {"cohort": np.array([1, 2])}, seeds=np.arange(2))
    listed = sweep.expand(Experiment(**keys), {"cohort": [1, 2]}, seeds=[0, 1])
    assert [point.label for point in points] == [point.label for point in listed]
    assert [point.experiment.seed for point in points] == [0, 1, 0, 1]


@dataclass(frozen=True)
class BrokenPartition(IID):
    """Code of a user's that raises an error when a run is built."""

    @override
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        raise ZeroDivisionError("of one's own")


@pytest.mark.parametrize("jobs", [1, None])
def test_an_error_of_own_code_is_a_failure_of_each_seed(jobs: int | None, tmp_path: Path) -> None:
    keys = {**PLAIN, "task": "synthetic", "partition": BrokenPartition()}
    compared = motley.compare(keys, seeds=[0, 1], out=tmp_path, jobs=jobs)
    assert not compared.runs
    assert [type(failure.error) for failure in compared.failures] == [ZeroDivisionError] * 2


def test_iterators_are_taken_as_lists_are(tmp_path: Path) -> None:
    """An iterator can be gone through once alone."""
    keys = {**PLAIN, "stop": {"rounds": 1}}
    experiment = Experiment(**keys, grid={"local.epochs": [3]})
    points = sweep.expand(Experiment(**keys), {"cohort": map(int, "12")}, seeds=iter(np.arange(2)))
    listed = sweep.expand(Experiment(**keys), {"cohort": [1, 2]}, seeds=[0, 1])
    assert [(point.label, point.experiment) for point in points] == [
        (point.label, point.experiment) for point in listed
    ]
    replaced = r"the values given take its place, \[1, 2\]"
    with pytest.warns(UserWarning, match=replaced):
        compared = motley.compare(
            experiment, {"local.epochs": map(int, "12")}, (s for s in (0, 1)), out=tmp_path, jobs=1
        )
    assert not compared.failures
    assert len(compared.runs) == 4
    with pytest.raises(ConfigError, match=r"^seed: got no values; give at least one"):
        motley.compare(keys, seeds=iter(()), out=tmp_path)


def test_a_run_that_learned_nothing_says_so_from_python(tmp_path: Path) -> None:
    """A deadline that no client keeps: the model is the first one."""
    keys = {
        "task": {"name": "synthetic", "examples": 10},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 2},
        "synchrony": {"name": "deadline", "seconds": 1e-9},
    }
    sentence = r"no upload was accepted in 2 of 2 rounds \(rounds 1, 2\).*4 late"
    with pytest.warns(UserWarning, match=sentence):
        motley.run(keys, out=tmp_path / "alone")
    with pytest.warns(UserWarning, match=f"seed 0: {sentence}"):
        motley.compare(keys, {"selector.name": ["uniform"]}, out=tmp_path / "beside")
