"""From a run's folder to a twin, and what it predicts."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from motley.cli import call
from motley.core.errors import ConfigError, DataError, StoreError
from motley.experiments.config import Experiment
from motley.experiments.config import load as load_experiment
from motley.experiments.run import run
from motley.results.load import load_all
from motley.results.schema import TABLES
from motley_advice.twin.make import twin
from motley_advice.twin.what_if import Predicted, _keys, predicted, what_if

SPEEDS = (0.5, 1.0, 2.0, 4.0)


@pytest.fixture(scope="module")
def constant(tmp_path_factory):
    """Four clients of constant speeds and links, eight rounds of three of them."""
    folder = tmp_path_factory.mktemp("constant")
    (folder / "speed.csv").write_text("step_s\n" + "\n".join(map(str, SPEEDS)) + "\n")
    (folder / "links.csv").write_text("up_mbps,down_mbps\n0.001,0.01\n0.002,0.02\n")
    keys = {
        "task": {"name": "quadratic", "examples": [20, 40, 60, 80]},
        "local": {"epochs": 1, "batch_size": 10},
        "population": 4,
        "cohort": 3,
        "stop": {"rounds": 8},
        "algorithm": {"name": "fedprox", "mu": 0.1},
        "device": {"name": "trace", "file": str(folder / "speed.csv")},
        "network": {"name": "trace", "file": str(folder / "links.csv")},
    }
    run(keys, out=folder / "run", progress=False)
    twin(folder / "run", folder / "twin.toml")
    return folder, keys


def test_constant_clients_are_given_back(constant):
    """Under every rule and seed of the recorded clients, the twin takes as long as they do."""
    folder, keys = constant
    names = ["uniform", "oort"]
    found = what_if(
        folder / "twin.toml",
        {"selector.name": iter(names)},
        iter([0, 1]),
        out=folder / "twins",
        progress=False,
    )
    assert found.holds
    for rule, name in zip(found.rules, names, strict=True):
        for_real = []
        for seed in (0, 1):
            again = {**keys, "selector": {"name": name}, "seed": seed, "pin": {"data": 0}}
            real = run(again, out=folder / name / str(seed), progress=False)
            for_real.append(float(real.column("rounds", "time_s")[-1]))
        assert rule.recorded == (name == "uniform")
        assert rule.seconds.median == pytest.approx(np.exp(np.mean(np.log(for_real))), rel=1e-9)
    assert found.rules[0].bits.holds(found.bits)
    assert "within its 80% interval" in found.sentence()
    assert [row.label for row in found.table().rows][:2] == [
        "recorded",
        "uniform (the recorded rule)",
    ]


def test_no_prediction_draws_the_cohorts_of_the_recording(constant):
    """The recorded seed would ask the recorded clients in the same order."""
    folder, _ = constant
    recorded = load_all(folder / "run")[0]
    found = what_if(folder / "twin.toml", out=folder / "ten-twins", progress=False)
    runs = load_all(found.directory)
    assert recorded.seed == 0
    assert sorted(twin_run.seed for twin_run in runs) == list(range(1, 11))


def test_a_recorded_rule_that_is_not_given_back_is_said(constant):
    folder, _ = constant
    for name in ("twin.toml", "twin.json"):
        (folder / f"odd-{name}").write_text((folder / name).read_text())
    record = json.loads((folder / "odd-twin.json").read_text())
    record["seconds"] = [9 * one for one in record["seconds"]]
    (folder / "odd-twin.json").write_text(json.dumps(record))
    found = what_if(folder / "odd-twin.toml", None, [0, 1], out=folder / "twins", progress=False)
    assert not found.holds
    assert "OUTSIDE its 80% interval" in found.sentence()


def test_the_twin_keeps_the_experiment(constant):
    folder, _ = constant
    made = load_experiment(folder / "twin.toml")
    assert made.algorithm["name"] == "fedprox"
    assert made.part("device").files_digest()
    assert made.pin["data"] == 0
    assert made.weights is None


# ------------------------------------------------------------------------- folders written by hand


def rows_of(**changes):
    """Return the columns of a Flower strategy's table: two clients in three rounds, whole seconds
    alone."""
    columns = {
        "round": [1, 1, 2, 2, 3, 3],
        "dispatch": range(6),
        "client": [0, 1] * 3,
        "outcome": ["accepted"] * 6,
        "num_examples": [64, 320] * 3,
        "start_s": [0, 0, 7, 7, 13, 13],
        "compute_s": [2.0, 6.0, 2.0, 5.0, 2.0, 7.0],
        "bits_down": [1000.0] * 6,
        "bits_up": [3000.0] * 6,
    }
    return {**columns, **changes}


def recorded(folder, clients, ends=(7.0, 13.0, 21.0), rounds=(1, 2, 3), more=None):
    """Write a run's folder as an older version did: a record and Parquet files."""
    tables = {
        "clients": clients,
        "rounds": {
            "round": rounds,
            "start_s": [0.0, *ends[:-1]],
            "time_s": ends,
            "available": [2] * len(ends),
            "total_bits": [8000.0 * (k + 1) for k in range(len(ends))],
        },
        **(more or {}),
    }
    folder.mkdir(parents=True)
    for name, columns in tables.items():
        schema = pa.schema([TABLES[name].field(column) for column in columns])
        table = pa.table({key: list(values) for key, values in columns.items()}, schema)
        parquet.write_table(table, folder / f"{name}.parquet")
    record = {
        "name": "hospital",
        "config": {"task": {"name": "Flower app"}, "cohort": 2, "selector": {"name": "uniform"}},
        "task": {"metric": "accuracy", "notes": {"deployment": "real"}},
        "clients": {"0": "north", "1": "south"},
        "finished": True,
    }
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def test_a_flower_strategy_becomes_clients_of_its_sizes(tmp_path):
    """Clients take 2 and 6 s for 2 and 10 batches of 32, so 1 and 0.6 s each; of a round's 7 s the
    server itself takes 1 s."""
    clients = rows_of(compute_s=[2.0, 6.0] * 3, start_s=[0, 0, 7, 7, 14, 14])
    made = twin(recorded(tmp_path / "run", clients, (7.0, 14.0, 21.0)), tmp_path / "twin.toml")
    assert made.stand_in
    assert any("accuracy cannot" in sentence for sentence in made.unknown)
    keys = load_experiment(tmp_path / "twin.toml")
    assert keys.task["examples"] == [64, 320]
    assert keys.network == {"name": "none"}
    assert keys.availability == {"name": "always"}
    assert keys.probe.speeds == "known"  # a strategy has estimates of its own
    law = np.loadtxt(tmp_path / "twin-device.csv", delimiter=",", skiprows=1)
    assert law[:, 1] == pytest.approx(np.where(law[:, 0] == 0, 1.0, 0.6))
    assert json.loads((tmp_path / "twin.json").read_text())["server_s"] == 1.0
    found = what_if(tmp_path / "twin.toml", None, [0, 1], out=tmp_path / "runs", progress=False)
    assert found.rules[0].seconds.median == pytest.approx(21.0)
    assert found.holds
    assert found.bits == 24_000
    assert found.rules[0].bits.median == pytest.approx(24_000)
    with pytest.raises(ConfigError, match="no accuracy can be predicted; leave the target out"):
        what_if(tmp_path / "twin.toml", None, range(3), target=0.8)


def test_nodes_that_went_and_came_do_so_at_their_own_rates(tmp_path):
    """Of 42 s of two clients, client 1 is offline for 9: the one change of all, in 33 s online and
    9 s offline, is added to each client's."""
    events = {
        "round": [1, 2],
        "time_s": [5.0, 14.0],
        "client": [1, 1],
        "event": ["disconnected", "connected"],
    }
    folder = recorded(tmp_path / "run", rows_of(), more={"incidents": events})
    made = twin(folder, tmp_path / "twin.toml")
    rates = np.loadtxt(tmp_path / "twin-availability.csv", delimiter=",", skiprows=1)
    assert rates.tolist() == [[0, 1, 21 + 33, 1, 0 + 9], [1, 2, 12 + 33, 2, 9 + 9]]
    assert load_experiment(tmp_path / "twin.toml").availability["name"] == "recorded"
    assert any("2 times a node went or came" in sentence for sentence in made.fits)


@pytest.mark.parametrize(
    ("clients", "options", "sentence"),
    [
        ({"outcome": ["accepted", "dropped"] * 3}, {}, "1 clients were asked and never answered "),
        ({"client": [0, 2] * 3}, {}, r"1 clients were never asked \(south\)"),
        ({"compute_s": [2.0, 6, 2, -5, 2, 7]}, {}, "1 of 6 dispatches have negative seconds"),
        ({}, {"rounds": (1, 2, 5)}, "2 of 5 rounds are missing in the records, the first is round"),
        (
            {"outcome": ["accepted", "late"] * 3, "compute_s": [2.0, None] * 3},
            {},
            "Of 3 late answers the seconds are not known; they count as the time",
        ),
        ({"num_examples": [64, None] * 3}, {}, "Of 1 of 2 clients the number of samples is not"),
        (
            {"outcome": ["accepted", "dropped"] + ["accepted"] * 4},
            {},
            "After how much of its work a client dropped out is not recorded",
        ),
    ],
)
def test_what_the_records_lack_is_said(tmp_path, clients, options, sentence):
    folder = recorded(tmp_path / "run", rows_of(**clients), **options)
    made = twin(folder, tmp_path / "twin.toml")
    assert any(re.search(sentence, one) for one in made.unknown), made.unknown


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"compute_s": [None] * 6}, {}, "holds no answer with its seconds: nobody answered"),
        ({"compute_s": [-1.0] * 6}, {}, "holds no answer with its seconds: .*its clock jumped"),
        ({}, {"ends": (7.0,), "rounds": (1,)}, "holds one round, which does not tell chance from"),
        ({}, {"ends": (), "rounds": ()}, "holds no recorded rounds; give the folder of a run"),
    ],
)
def test_records_that_say_too_little_are_refused(tmp_path, columns, options, message):
    if not options.get("ends", (1,)):
        folder = tmp_path / "run"
        folder.mkdir()
        (folder / "run.json").write_text("{}")
    else:
        folder = recorded(tmp_path / "run", rows_of(**columns), **options)
    with pytest.raises(DataError, match=message):
        twin(folder, tmp_path / "twin.toml")
    assert not (tmp_path / "twin.toml").exists()


def test_an_experiment_of_another_version_is_a_sentence(tmp_path):
    folder = recorded(tmp_path / "run", rows_of())
    record = json.loads((folder / "run.json").read_text())
    record["config"] |= {"task": "quadratic", "population": 2, "stop": {"rounds": 3}, "memory": 1}
    record["config"]["task"] = {"name": "quadratic"}
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(
        ConfigError, match=r"recorded experiment is not one of this version .memory"
    ):
        twin(folder, tmp_path / "twin.toml")


def test_bad_calls(tmp_path, constant, capsys):
    folder, _ = constant
    with pytest.raises(StoreError, match="there is no folder"):
        twin(tmp_path / "nowhere", tmp_path / "twin.toml")
    with pytest.raises(ConfigError, match=r"--out: got 'twin.csv'; expected the name of a .toml"):
        twin(folder / "run", "twin.csv")
    with pytest.raises(DataError, match=r"there is no file .*none.toml'; motley twin RUN --out"):
        what_if(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"--seeds: got 1 seed.s., which give no interval"):
        what_if(folder / "twin.toml", None, [0])
    with pytest.raises(ConfigError, match="--target: got nan; expected a finite number"):
        what_if(folder / "twin.toml", target=float("nan"))
    with pytest.raises(ConfigError, match="target: got 80 for accuracy; expected a share above 0"):
        what_if(folder / "twin.toml", target=80, overrides=["task=image", "partition=iid"])
    with pytest.raises(ConfigError, match="target: got -8 for loss; expected a positive number"):
        what_if(folder / "twin.toml", target=-8)
    (tmp_path / "a.toml").write_text("")
    (tmp_path / "a.json").write_text("{}")
    assert call(["what-if", str(tmp_path / "a.toml")]) == 2
    assert "is not what motley twin writes (KeyError" in capsys.readouterr().err
    (tmp_path / "a.json").write_text('{"seconds": [], "bits": []}')
    with pytest.raises(DataError, match=r"twin writes .ValueError: 0 rounds have seconds, 0 bits"):
        what_if(tmp_path / "a.toml")
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"twin writes .RecursionError"):
        what_if(tmp_path / "a.toml")


def test_the_commands(constant, capsys):
    folder, keys = constant
    file = str(folder / "twin.toml")
    assert call(["twin", str(folder / "run"), "--out", file]) == 0
    told = capsys.readouterr().out
    assert "Seconds per local step: 24 values of 4 clients; of 6 in the last third" in told
    assert "What cannot be known from these records:" in told
    command = ["what-if", file, "--seeds", "0,1", "--over", "selector.name=uniform,oort"]
    assert call([*command, "--out", str(folder / "twins")]) == 0  # as in the test above
    out, err = capsys.readouterr()
    assert "oort" in out
    assert "motley: under the recorded rule the twin takes" in err
    record = json.loads((folder / "twins" / "prediction.json").read_text())
    assert [rule["recorded"] for rule in record["rules"]] == [True, False]
    assert record["rules"][0]["to_target_s"]["median"] is None
    page = folder / "page.md"
    beside = ["--predicted", str(folder / "twins" / "prediction.json"), "--out", str(page)]
    again = {**keys, "selector": {"name": "oort"}}
    run(again, out=folder / "used", progress=False)
    for name, said in (("run", "what the twin was fitted to"), ("used", "within the interval")):
        assert call(["report", str(folder / name), *beside]) == 0
        assert said in page.read_text()


def test_a_prediction_over_the_probe_is_found_by_a_deployment():
    """Its config says that speeds are known, for the key is of simulations; the twin's, that they
    are measured."""
    config = Experiment(
        population=4,
        cohort=2,
        stop={"rounds": 1},
        task="quadratic",
        probe={"batches": 2, "speeds": "measured"},
    ).resolved()
    deployed = {**config, "probe": {**config["probe"], "speeds": "known"}}
    for one in (config, deployed):
        assert one["probe"] in _keys(config, ["probe"])["probe"]
    assert deployed["probe"] != config["probe"]
    other = {**deployed["probe"], "batches": 3}
    assert other not in _keys(config, ["probe"])["probe"]


def test_intervals_of_predictions_by_hand():
    """Logarithms 0 and 2: mean 1, s = sqrt 2, t of one degree of freedom at 0.9 is 3.0777."""
    half = 3.0776835 * np.sqrt(2) * np.sqrt(1.5)
    found = predicted([1.0, np.exp(2)])
    assert found.low == pytest.approx(np.exp(1 - half))
    assert found.high == pytest.approx(np.exp(1 + half))
    assert predicted([0.0, 3.0]) == Predicted(1.5, 0.0, 3.0)
    assert found.holds(1.0)
    assert not found.holds(1e6)


def test_a_private_twin_says_that_its_runs_release_more(tmp_path, monkeypatch):
    """Ten runs on the clients' data to learn how long rounds take, without a word."""
    pytest.importorskip("dp_accounting")
    monkeypatch.setenv("MOTLEY_STATE", str(tmp_path / "state"))
    private = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 8.0, "data_set": "clinics"}
    keys = {
        "task": "quadratic",
        "population": 4,
        "cohort": 2,
        "partition": "by_writer",
        "local": {"steps": 1},
        "stop": {"rounds": 3},
        "weights": "uniform",
        "privacy": private,
    }
    run(keys, out=tmp_path / "run", progress=False)
    twin(tmp_path / "run", tmp_path / "twin.toml")
    with pytest.warns(UserWarning, match="each of its 2 runs trains on the clients' data"):
        what_if(tmp_path / "twin.toml", None, [1, 2], out=tmp_path / "runs", progress=False)
