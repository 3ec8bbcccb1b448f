"""The ledger of private runs: all that was released of one data set, added up."""

import json
import stat
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import motley
from motley.cli import app
from motley.core.errors import ConfigError, StoreError
from motley.core.files import with_digest
from motley.core.strict_json import to_json
from motley.experiments.config import Experiment
from motley.results.disclosed import claims
from motley.tasks.own import own_task
from motley_advice.tuning.results import worries
from motley_data.own_federation import from_arrays
from motley_privacy.accounting import Release, bound
from motley_privacy.all_runs import all_epsilon, ledgers, set_budget

dp_accounting = pytest.importorskip("dp_accounting")

TABLE = {
    "name": "tabular",
    "data": "d.csv",
    "client": "site",
    "label": "y",
    "classes": ["no", "yes"],
    "scale": "none",
}
PRIVACY = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 8.0}
KEYS = {
    "task": TABLE,
    "partition": "by_writer",
    "cohort": 3,
    "weights": "uniform",
    "local": {"steps": 1},
    "stop": {"rounds": 2},
    "privacy": PRIVACY,
}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A user's state folder, and a table of six clients in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOTLEY_STATE", str(tmp_path / "state"))
    write("no")
    return tmp_path / "state" / "privacy"


def write(label):
    rows = [
        "site,x,y",
        *(f"h{k},{k + j},{label if k else 'yes'}" for k in range(6) for j in range(3)),
    ]
    Path("d.csv").write_text("\n".join(rows))


def private(**more):
    return {**KEYS, "privacy": {**PRIVACY, **more}}


def told(done):
    return done.meta["privacy"]["all_runs"], done.meta["privacy"]["claim"][-1]


def test_runs_on_one_data_set_are_added_up():
    """Two sums with z = 8 in each run: n sums have the epsilon of one Gaussian of 8 / root n."""
    for number in (1, 2, 3):
        all_runs, said = told(motley.run(KEYS, out=f"run {number}"))
        expected = dp_accounting.get_epsilon_gaussian(8.0 / np.sqrt(2 * number), 1e-5)
        assert all_runs["runs"] == number
        assert all_runs["epsilon"] == pytest.approx(expected, rel=1e-9)
        begins = (
            f"All {number} private runs so far on these data, this one among them, are together ("
            if number > 1
            else "This run, the only private one so far on these data, is ("
        )
        assert said.startswith(begins)


def test_a_changed_row_opens_no_new_ledger():
    motley.run(KEYS, out="one")
    write("yes")
    all_runs, _ = told(motley.run(KEYS, out="two"))
    assert all_runs["runs"] == 2
    assert [one["data"] for one in ledgers()] == [str(Path("d.csv").resolve())]


def test_a_run_that_goes_on_is_counted_once_and_a_longer_one_with_its_caps():
    def stop(done):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        motley.run(KEYS, out="run", on_round=stop)
    all_runs, _ = told(motley.run(KEYS, out="run", resume=True))
    assert all_runs["runs"] == 1
    longer = {**KEYS, "stop": {"rounds": 8}}
    all_runs, _ = told(motley.run(longer, out="run", resume=True))
    assert all_runs["runs"] == 1
    assert all_runs["epsilon"] == pytest.approx(
        dp_accounting.get_epsilon_gaussian(8.0 / np.sqrt(8), 1e-5)
    )


@pytest.mark.parametrize("made", [1, 3])
def test_an_interrupted_run_that_is_to_end_earlier_keeps_its_caps(made):
    """Of eight rounds ``made`` were; also where it is refused to end after two."""

    def stop(done):
        if done.round == made:
            raise RuntimeError

    longer = {**KEYS, "stop": {"rounds": 8}, "checkpoint": {"every_rounds": 1}}
    with pytest.raises(RuntimeError):
        motley.run(longer, out="run", on_round=stop)
    with suppress(StoreError):
        motley.run({**longer, "stop": {"rounds": 2}}, out="run", resume=True)
    (ledger,) = ledgers()
    assert all_epsilon(ledger["runs"], 1e-5, "zero_out").epsilon == pytest.approx(
        dp_accounting.get_epsilon_gaussian(8.0 / np.sqrt(8), 1e-5)
    )


def test_what_a_run_had_entered_otherwise_stays_beside_what_it_enters_now(state):
    """As a Motley did that counted a signal, and sums at a larger multiplier."""

    def stop(done):
        raise RuntimeError

    keys = {**KEYS, "stop": {"rounds": 8}, "checkpoint": {"every_rounds": 1}}
    with pytest.raises(RuntimeError):
        motley.run(keys, out="run", on_round=stop)
    (path,) = state.glob("*.json")
    ledger = {key: value for key, value in json.loads(path.read_text()).items() if key != "digest"}
    (run,) = ledger["runs"].values()
    (now,) = run["releases"]
    run["releases"] = [{**now, "multiplier": z, "count": 3} for z in (16.0, 32.0)]
    path.write_text(to_json(with_digest(ledger)))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            motley.run(keys, out="run", resume=True, on_round=stop)
        (run,) = ledgers()[0]["runs"].values()
        assert [(each["multiplier"], each["count"]) for each in run["releases"]] == [
            (8.0, 8),
            (16.0, 3),
            (32.0, 3),
        ]


def test_every_run_of_a_grid_counts():
    done = motley.compare(KEYS, over={"cohort": [2, 3]}, seeds=[0, 1], out="cmp")
    assert sorted(told(one)[0]["runs"] for one in done.runs) == [1, 2, 3, 4]


def test_a_comparison_shows_the_total_after_its_last_seed():
    runs = motley.compare(KEYS, seeds=[0, 1, 2], out="cmp").runs
    (claim,) = claims({"fedavg": sorted(runs, key=lambda run: told(run)[0]["runs"])})
    assert claim.items[-1].startswith("All 3 private runs so far on these data")


def test_tuning_shows_the_total_of_its_trials_and_tests():
    """Four runs of two sums with z = 8: eight sums."""
    rates = {"local.optimizer.lr": [0.1, 0.2, 0.3]}
    tuned = motley.tune(KEYS, over=rates, trials=3, seeds=[0], test_seeds=[1], out="tuned")
    epsilon = dp_accounting.get_epsilon_gaussian(8.0 / np.sqrt(8), 1e-5)
    total = f"d.csv: 4 runs, epsilon {epsilon:.4g} (zero_out)"
    assert total in worries(tuned)[-1]
    assert total in Path("tuned", "report.html").read_text()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({**KEYS, "task": "quadratic", "population": 6}, "The data are public or synthetic"),
        (private(noise_seed=3), "A run with a noise_seed is not private"),
    ],
)
def test_runs_that_are_counted_apart(keys, said, state):
    all_runs, last = told(motley.run(keys, out="run"))
    assert last.startswith(said)
    assert all_runs == {}
    assert not state.exists()


def test_data_without_a_name_are_told_and_a_name_adds_them_up():
    x = np.arange(48, dtype=np.float32).reshape(24, 2) / 48
    data = from_arrays(x, np.arange(24) % 2, client=np.arange(24) % 4, classes=2)
    task = own_task(data, lambda: torch.nn.Linear(2, 2))
    keys = {key: value for key, value in KEYS.items() if key not in ("task", "partition")}
    _, last = told(motley.run(keys, out="one", task=task))
    assert last.startswith("These data have no name, so other runs on them are not added")
    named = {**keys, "privacy": {**PRIVACY, "data_set": "hospitals"}}
    assert told(motley.run(named, out="two", task=task))[0]["runs"] == 1
    assert told(motley.run(private(data_set="hospitals"), out="three"))[0]["runs"] == 2
    assert Experiment(**KEYS).run_id() == Experiment(**private(data_set="hospitals")).run_id()


def test_a_run_beyond_the_budget_is_refused_before_it_begins():
    one = dp_accounting.get_epsilon_gaussian(8.0 / np.sqrt(2), 1e-5)
    two = dp_accounting.get_epsilon_gaussian(8.0 / np.sqrt(4), 1e-5)
    set_budget("d.csv", 0.5 * (one + two), 1e-5)
    motley.run(KEYS, out="one")
    with pytest.raises(
        ConfigError, match=rf"privacy: with this run all 2 on .* epsilon {two:.4g} .* budget of"
    ):
        motley.run(KEYS, out="two")
    assert not Path("two").exists()
    assert [len(held["runs"]) for held in ledgers()] == [1]


def test_the_ledger_is_its_owners_alone_and_a_damaged_one_is_refused(state):
    motley.run(KEYS, out="one")
    (path,) = state.glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "runs": {}}))
    with pytest.raises(StoreError, match="nobody knows what those runs cost together"):
        motley.run(KEYS, out="two")
    assert not Path("two").exists()


def test_runs_of_other_kinds_are_added_up_too():
    """Hidden cohorts of another adjacency count as seen ones; where no accountant takes all,
    epsilons at a share of delta are summed."""
    seen = {"adjacency": "zero_out", "releases": [vars(Release("gaussian", 4.0, 5))]}
    coins = {"adjacency": "zero_out", "releases": [vars(Release("poisson", 4.0, 5, rate=0.1))]}
    together = all_epsilon({"a": seen, "b": coins}, 1e-5, "replace_one")
    assert together.epsilon == bound((Release("gaussian", 4.0, 10),), 1e-5, "replace_one").epsilon
    fixed = Release("without_replacement", 4.0, 5, population=100, rate=0.1)
    drawn = Release("poisson", 4.0, 5, rate=0.1)
    mixed = {
        name: {"adjacency": "replace_one", "releases": [vars(one)]}
        for name, one in (("a", fixed), ("b", drawn))
    }
    total = all_epsilon(mixed, 1e-5, "replace_one")
    parts = [bound((one,), 5e-6, "replace_one").epsilon for one in (fixed, drawn)]
    assert total.epsilon == sum(parts)
    assert total.accountant == "the sum of epsilons"


def test_the_command_shows_ledgers_and_sets_budgets():
    run = CliRunner().invoke
    assert "no private run on data that are not public" in run(app, ["privacy-ledger"]).output
    motley.run(KEYS, out="one")
    said = run(app, ["privacy-ledger", "d.csv", "--budget", "3"]).output
    epsilon = dp_accounting.get_epsilon_gaussian(8.0 / np.sqrt(2), 1e-5)
    assert f"1 run, epsilon {epsilon:.4g} (zero_out)" in said.replace("\n", "")
    assert "budget 3 at 1e-05" in said.replace("\n", "")


def test_a_first_run_beyond_the_budget():
    set_budget("hospitals", 0.01, 1e-5)
    with pytest.raises(ConfigError, match=r"this run, the first on hospitals, would have epsilon"):
        motley.run(private(data_set="hospitals"), out="one")


def test_the_state_folder_may_be_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MOTLEY_STATE", "~/state")
    motley.run(KEYS, out="run")
    assert list((tmp_path / "home" / "state" / "privacy").iterdir())
    assert not (tmp_path / "~").exists()


def test_a_folder_called_like_a_data_set_does_not_take_its_budget():
    """The name of a ledger counts before a path of the working directory."""
    run = CliRunner().invoke
    named = private(data_set="hospitals")
    motley.run(named, out="one")
    Path("hospitals").mkdir()
    said = run(app, ["privacy-ledger", "hospitals", "--budget", "0.7"]).output
    assert said.startswith("hospitals: 1 run,")
    with pytest.raises(ConfigError, match=r"all 2 on hospitals .* the budget of 0\.7"):
        motley.run(named, out="two")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--delta", "2"], "--delta: got 2; expected a number between 0 and 1"),
        (["--delta", "0"], "--delta: got 0; expected"),
        (["d.csv", "--budget", "3", "--delta", "7"], "--delta: got 7; expected"),
        (["d.csv", "--budget", "inf"], "--budget: got inf; expected a number of at least 0"),
    ],
)
def test_a_budget_that_is_no_bound_is_refused(more, said, state):
    """It stood in the ledger, and every later run on the data ended in a traceback."""
    done = CliRunner().invoke(app, ["privacy-ledger", *more])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(said)
    assert not state.exists()


def test_like_releases_of_many_runs_are_composed_at_once(monkeypatch):
    """A study of a hundred trials took an accountant a hundred times as long, at every run."""
    composed = []
    monkeypatch.setattr(
        "motley_privacy.all_runs.bound", lambda releases, *_: composed.append(releases)
    )
    coins = Release("poisson", 4.0, 5, population=1000, rate=0.1, largest=130)
    loss = Release("laplace", 10.0, 2)
    runs = [(coins, loss), (coins, loss), (coins,)]
    all_epsilon(
        {
            str(number): {"adjacency": "zero_out", "releases": [vars(one) for one in releases]}
            for number, releases in enumerate(runs)
        },
        1e-5,
        "zero_out",
    )
    assert composed == [(Release(**{**vars(coins), "count": 15}), Release("laplace", 10.0, 4))]
