"""Methods are called by what differs between their experiments."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from motley.results.labels import group_runs, label_runs

sys.path.insert(0, str(Path(__file__).parent))
import fake


def labels(*configs):
    return label_runs([fake.run(config) for config in configs])


def test_components_go_by_name_and_seed_is_ignored():
    uniform = {"seed": 0, "name": "a", "selector": {"name": "uniform"}}
    choice = {
        "seed": 1,
        "name": "b",
        "engine": "threads",
        "selector": {"name": "power_of_choice", "candidates": 5},
    }
    assert labels(uniform, choice, choice | {"seed": 7}) == [
        "uniform",
        "power_of_choice",
        "power_of_choice",
    ]


def test_options_are_added_where_they_tell_runs_apart():
    def config(name, **options):
        return {"selector": {"name": name} | options}

    got = labels(
        config("uniform"),
        config("power_of_choice", candidates=5),
        config("power_of_choice", candidates=9),
    )
    assert got == ["uniform", "power_of_choice, candidates 5", "power_of_choice, candidates 9"]


def test_what_a_component_sets_is_no_difference_of_its_own():
    def config(algorithm, weights):
        return {"algorithm": {"name": algorithm}, "weights": weights}

    assert labels(config("fedavg", "examples"), config("feddyn", "uniform")) == ["fedavg", "feddyn"]
    got = labels(
        config("fedavg", "examples"), config("fedavg", "uniform"), config("feddyn", "uniform")
    )
    assert got == ["weights examples", "fedavg, weights uniform", "feddyn"]  # one of the second


def test_plain_keys_and_keys_of_one_name():
    assert labels({"cohort": 5}, {"cohort": 10}) == ["cohort 5", "cohort 10"]
    got = labels(
        {"algorithm": {"mu": 0.1}, "server": {"mu": 1}},
        {"algorithm": {"mu": 0.2}, "server": {"mu": 2}},
    )
    assert got == ["algorithm.mu 0.1, server.mu 1", "algorithm.mu 0.2, server.mu 2"]


def test_nothing_differs():
    assert labels({"cohort": 5, "seed": 0}, {"cohort": 5, "seed": 1}) == ["by hand", "by hand"]
    assert labels({"method": "fedcg", "seed": 0}, {"method": "fedcg", "seed": 1}) == [
        "fedcg",
        "fedcg",
    ]


def test_what_cannot_change_results_makes_no_other_method():
    plain = {"method": None, "log": {"tensorboard": False}, "selector": {"name": "uniform"}}
    logged = plain | {"method": "fedavg", "log": {"tensorboard": True}}
    assert labels(plain, logged) == ["by hand", "by hand"]


def test_groups_are_ordered_by_seed():
    runs = [fake.run({"cohort": c}, seed=s) for c, s in ((5, 2), (10, 0), (5, 1))]
    assert {
        label: [run.seed for run in members] for label, members in group_runs(runs).items()
    } == {
        "cohort 5": [1, 2],
        "cohort 10": [0],
    }


def test_presets_go_by_their_name_and_differ_among_their_own():
    def config(method, mu, name="uniform"):
        return {
            "method": method,
            "algorithm": {"name": "fedprox", "mu": mu},
            "selector": {"name": name},
        }

    got = labels(config("a", 0.1), config("b", 0.5, "oort"), config("b", 1.0, "oort"))
    assert got == ["a", "b, mu 0.5", "b, mu 1.0"]
    assert labels(config("a", 0.1), config(None, 0.1, "oort"), config(None, 0.2, "oort")) == [
        "a",
        "mu 0.1",
        "mu 0.2",
    ]
    assert labels(config("a", 0.1), config("a", 0.2)) == ["mu 0.1", "mu 0.2"]


def test_an_ablation_is_called_by_what_it_changes():
    def config(mu=0.1, allocator="by_score", weights="score"):
        return {
            "method": "x",
            "algorithm": {"name": "fedprox", "mu": mu},
            "allocator": {"name": allocator},
            "weights": weights,
        }

    got = labels(
        config(),
        config(mu=0.0),
        config(mu=0.5),
        config(allocator="uniform"),
        config(weights="uniform"),
    )
    assert got == ["x", "mu 0.0", "mu 0.5", "uniform", "weights uniform"]
    crossed = [config(mu, allocator) for mu in (0.0, 0.1) for allocator in ("uniform", "by_score")]
    assert labels(*crossed)[0] == "mu 0.0, uniform"


def test_the_run_that_an_ablation_changes_has_the_name_of_its_components_and_values():
    def config(**changes):
        base = {
            "algorithm": {"name": "fedprox", "mu": 0.1},
            "selector": {"name": "flash", "alpha": 0.3, "beta": 0.2},
            "cohort": 5,
        }
        return base | {
            key: base.get(key, {}) | value if isinstance(value, dict) else value
            for key, value in changes.items()
        }

    got = labels(config(), config(selector={"alpha": 0.0}), config(selector={"beta": 0.0}))
    assert got == ["flash", "alpha 0.0", "beta 0.0"]
    got = labels(config(), config(algorithm={"mu": 0.0}), config(cohort=9))
    assert got == ["fedprox, cohort 5", "mu 0.0", "cohort 9"]
    # what others add, it has not: its algorithm is its name
    private = {"epsilon": 2.0}
    assert labels(config(), config(privacy=private), config(drift={"name": "steps"})) == [
        "fedprox",
        "epsilon 2.0",
        "steps",
    ]


def test_a_component_called_like_a_preset_is_another_method():
    def config(method, name, cohort=5):
        return {"method": method, "selector": {"name": name}, "cohort": cohort}

    got = labels(config("oort", "flash"), config(None, "uniform"), config(None, "oort"))
    assert got == ["oort, flash", "uniform", "oort"]


def test_options_that_come_with_a_component_elsewhere_are_left_to_its_name():
    """Noise on signals that only one rule needs is told by the rule's name, unless it differs among
    runs of that rule."""

    def config(name, noise=None, **more):
        return {
            "selector": {"name": name},
            "privacy": {"epsilon": 2.0} | ({"noise": noise} if noise else {}) | more,
        }

    assert labels(config("uniform"), config("oort", 4.0)) == ["uniform", "oort"]
    assert labels(config("uniform"), config("oort", 4.0), config("oort", 5.0)) == [
        "uniform",
        "oort, noise 4.0",
        "oort, noise 5.0",
    ]
    both = labels(
        config("uniform"), config("uniform", 4.0), config("oort", 4.0), config("flude", 5.0)
    )
    assert both == ["uniform", "uniform, noise 4.0", "oort", "flude"]


def test_runs_that_differ_never_share_a_label():
    """A run that lacks what others have is no run of theirs."""

    def config(name, **more):
        return {"selector": {"name": name}} | more

    assert labels(config("uniform"), config("uniform", noise=4.0), config("oort", noise=4.0)) == [
        "uniform",
        "uniform, noise 4.0",
        "oort",
    ]
    private = {"epsilon": 2.0, "clip": 1.0}
    got = labels(
        config("uniform"),
        config("uniform", privacy=private),
        config("oort"),
        config("oort", privacy=private),
    )
    assert got == ["uniform, no privacy", "uniform, privacy", "oort, no privacy", "oort, privacy"]


def test_private_runs_beside_others_are_called_so():
    """Not by each of their keys; and the name of a data set in the ledger makes no method."""

    def config(**privacy):
        return {"algorithm": {"name": "fedavg"}, "privacy": privacy or None}

    private = {"epsilon": 2.0, "clip": 1.0}
    assert labels(config(), config(**private)) == ["fedavg", "privacy"]
    named = config(**private, data_set="hospitals")
    assert labels(config(**private), named) == ["by hand", "by hand"]
    assert labels(config(), config(**private), named) == ["fedavg", "privacy", "privacy"]


def test_of_a_table_that_some_runs_have_not_only_what_differs_is_told():
    def config(name, epsilon=None):
        return {"selector": {"name": name}} | (
            {"privacy": {"epsilon": epsilon, "clip": 1.0}} if epsilon else {}
        )

    got = labels(
        config("uniform"),
        config("uniform", 2.0),
        config("uniform", 4.0),
        config("oort"),
        config("oort", 2.0),
        config("oort", 4.0),
    )
    assert got == [
        "uniform",
        "uniform, epsilon 2.0",
        "uniform, epsilon 4.0",
        "oort",
        "oort, epsilon 2.0",
        "oort, epsilon 4.0",
    ]


def test_what_is_pinned_tells_runs_of_one_seed_apart():
    def runs(*pins):
        return [
            fake.run({"algorithm": {"name": name}, "pin": pin, "evaluate": {"every": 1}}, seed=seed)
            for name in ("fedavg", "scaffold")
            for pin in pins
            for seed in (0, 1)
        ]

    assert label_runs(runs({"partition": 1}, {"partition": 2}))[::2] == [
        "fedavg, pin.partition 1",
        "fedavg, pin.partition 2",
        "scaffold, pin.partition 1",
        "scaffold, pin.partition 2",
    ]
    assert set(label_runs(runs({"partition": 1}))) == {"fedavg", "scaffold"}
    assert label_runs(runs({}, {"partition": 2}))[::2][:2] == [
        "fedavg, no pin.partition",
        "fedavg, pin.partition 2",
    ]


def test_how_often_is_evaluated_tells_runs_of_one_seed_apart():
    def run(every, seed):
        return fake.run({"evaluate": {"every": every}}, seed=seed)

    assert label_runs([run(1, 0), run(2, 0)]) == [
        "by hand, evaluate.every 1",
        "by hand, evaluate.every 2",
    ]
    assert label_runs([run(1, 0), run(2, 1)]) == ["by hand", "by hand"]


def test_a_run_in_two_folders_counts_once():
    def run(folder, seed, finished=True, notes=None):
        made = fake.run(seed=seed, task={"metric": "accuracy", "notes": notes or {}})
        meta = {**made.meta, "run_id": f"id{seed}", "finished": finished}
        return replace(made, directory=Path(folder), meta=meta)

    runs = [run("a/0", 0, finished=False), run("a/1", 1), run("b/0", 0), run("b/1", 1)]
    said = r"2 runs lie each in two folders .*, and each counts once: a/0 is b/0 again"
    with pytest.warns(UserWarning, match=said):
        groups = group_runs(runs)
    assert [str(one.directory) for one in groups["by hand"]] == ["b/0", "a/1"]
    real = {"deployment": "real clients"}
    again = [run("a/0", 0, notes=real), run("b/0", 0, notes=real)]
    assert len(group_runs(again)["by hand"]) == 2  # two deployments of one experiment


@pytest.mark.parametrize(("noise", "runs"), [("secret", 2), ("noise_seed", 1)])
def test_private_runs_with_noise_of_their_own_are_not_the_same(noise, runs):
    """They have one run id, and were called the same run, of which one was left out."""

    def run(folder, commitment):
        made = fake.run(seed=0)
        privacy = {"noise": noise, "commitment": commitment}
        meta = {**made.meta, "run_id": "id0", "privacy": privacy}
        return replace(made, directory=Path(folder), meta=meta)

    once = [run("one", "a"), run("two", "b")]
    with nullcontext() if runs == 2 else pytest.warns(UserWarning, match="1 run lies in two"):
        assert len(group_runs(once)["by hand"]) == runs
    with pytest.warns(UserWarning, match="two is one again"):
        assert len(group_runs([run("one", "a"), run("two", "a")])["by hand"]) == 1
