"""Audits of private experiments: bounds that are respected, clear signals that are found out, and
files that are refused."""

from __future__ import annotations

import json

import pytest

import motley_privacy.privacy_attack as audits
from motley.cli import call
from motley.core.errors import ConfigError
from motley_privacy import private_rounds
from motley_privacy.privacy_attack import audit, own_runs, stand_in

pytest.importorskip("dp_accounting")

NOISE = {"low": 0.0, "high": 5.0, "multiplier": 20.0}
PRIVACY = {"clip": 0.5, "noise_multiplier": 20.0, "delta": 1e-5, "adjacency": "replace_one"}
SIGNALS = {"loss": NOISE, "num_examples": NOISE}


def keys(selector="uniform", rounds=3, **privacy):
    return {
        "task": {"name": "quadratic"},
        "population": 8,
        "cohort": 4,
        "stop": {"rounds": rounds},
        "weights": "uniform",
        "selector": selector,
        "local": {"steps": 2},
        "privacy": {**PRIVACY, **privacy},
    }


# a second round only where it is another one than the first
RUNS = pytest.mark.parametrize(
    "given",
    [
        keys(rounds=2),
        keys(rounds=2, adjacency="zero_out", max_rounds=2),
        keys({"name": "poisson", "rate": 0.5}, rounds=1, cohorts="hidden"),
        keys("power_of_choice", rounds=1, signal_noise=SIGNALS, max_signals=2),
        keys(
            "power_of_choice",
            rounds=1,
            signal_noise={"loss": {**NOISE, "noise": "gumbel"}, "num_examples": NOISE},
        ),
        keys(rounds=2, clip={"initial": 0.5, "noise": 20.0}),
    ],
    ids=["uniform", "caps", "hidden", "noisy", "gumbel", "adaptive"],
)
BOTH = pytest.mark.parametrize("quadratic", [False, True], ids=["own", "stand-in"])


@BOTH
@RUNS
def test_no_bound_is_exceeded(given, quadratic):
    said = []
    found = audit(given, trials=100, say=said.append, quadratic=quadratic)
    assert found.attack.epsilon <= found.record["bound"]
    rounds = given["stop"]["rounds"]
    assert said[0].startswith(f"100 trials of {rounds} rounds in each of two worlds, about ")
    assert found.record["attacked"] == ("quadratic stand-in" if quadratic else "own data and model")


def test_hardly_any_noise_is_found_out():
    """z = 0.01: the sum shows the canary's update, so every trial is told apart."""
    found = audit({**keys(noise_multiplier=0.01), "cohort": 8}, trials=100, quadratic=True)
    assert found.attack.epsilon == found.attack.ceiling


def test_a_false_account_is_found_out(monkeypatch):
    """Noise a thousandth of what the account believes: the attack finds more than the bound, and
    says so."""
    real = private_rounds.noised_sum
    monkeypatch.setattr(
        private_rounds,
        "noised_sum",
        lambda total, empty, deviation, **named: real(
            total=total, empty=empty, deviation=deviation / 1e3, **named
        ),
    )
    found = audit({**keys(rounds=1), "cohort": 8}, trials=100)
    assert found.attack.epsilon > found.record["bound"]
    assert "The attack found more than the bound" in found.sentences[-1]


@BOTH
def test_clear_signals_are_found_out_and_have_no_bound(quadratic):
    """Both worlds' losses are told apart by who is chosen; what the updates alone would claim is
    refuted."""
    given = keys(
        {"name": "power_of_choice", "d": 8}, rounds=3 if quadratic else 1, signal_noise=SIGNALS
    ) | {"cohort": 2}
    found = audit(given, trials=100, clear=True, quadratic=quadratic)
    assert found.record["bound"] is None
    assert found.attack.epsilon > found.record["updates_alone"]
    assert "none, for signals leave without noise" in found.sentences[1]


def test_the_same_seed_gives_the_same_audit_and_another_one_another():
    records = [
        audit(keys(rounds=1), trials=100, seed=seed, quadratic=True).attack for seed in (1, 1, 2)
    ]
    near = [record.near.tolist() for record in records]
    assert near[0] == near[1] != near[2]


def test_the_same_seeds_give_the_same_runs_and_others_others():
    worlds = own_runs(keys("power_of_choice", signal_noise=SIGNALS))
    first, again, other = (
        worlds.observed(True, seeds) for seeds in (range(3), range(3), range(3, 6))
    )
    assert first.sums.tolist() == again.sums.tolist() != other.sums.tolist()
    assert first.signals.tolist() == again.signals.tolist() != other.signals.tolist()


def test_caps_keep_the_canary_out():
    for worlds in (stand_in(keys(max_rounds=1, rounds=4)), own_runs(keys(max_rounds=1, rounds=4))):
        assert worlds.observed(True, range(20)).member.sum(1).max() == 1


def test_the_canary_has_the_most_samples_and_wrong_labels_unless_it_is_named():
    given = keys() | {
        "task": {"name": "quadratic", "minima": [5.0] * 8, "examples": [1, 1, 3, 1, 1, 1, 1, 1]}
    }
    chosen = own_runs(given)
    named = own_runs(given, canary=1, wrong=False)
    first, second = (worlds.ready.config.setting.task.federation for worlds in (chosen, named))
    assert (chosen.canary, named.canary) == (2, 1)
    assert first.labels.flatten().tolist() == [5.0, 5.0, -5.0, -5.0, -5.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    assert second.labels.flatten().tolist() == [5.0] * 10
    assert "client 2 with wrong labels, of which it has 3" in chosen.described()


def test_ten_minutes_of_trials_unless_their_number_is_given(monkeypatch):
    """Trials of 1 s in both worlds: 600 fit, and 500 is the largest number of the list that
    does."""
    monkeypatch.setattr(audits, "_trial_s", lambda worlds, first: 1.0)
    monkeypatch.setattr(
        audits,
        "_observed",
        lambda worlds, first, count, say: 2 * (worlds.observed(True, range(4)),),
    )
    assert audit(keys(rounds=1)).record["trials"] == 500


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (
            {**keys(), "privacy": None},
            {},
            r"privacy: there is nothing to audit without it; write e.g. \[privacy\]",
        ),
        (
            {**keys(max_rounds=2), "stop": {"virtual_hours": 5.0}},
            {},
            r"stop.rounds: a trial has a number of rounds",
        ),
        (keys(), {"trials": 99}, r"--trials: got 99; expected at least 100"),
        (keys(), {"clear": True}, r"--clear-signals: 'uniform' needs no signal of clients' data"),
        (
            keys("divfl"),
            {"clear": True, "quadratic": True},
            r"--stand-in: 'divfl' needs 'gradient_sketch', several numbers",
        ),
        (
            keys(),
            {"canary": 8},
            r"--canary: got 8; expected a client with data, from 0 to 7; leave it out",
        ),
        (keys("power_of_choice"), {}, r"privacy.signal_noise: 'power_of_choice' needs 'loss'"),
        (
            keys(),
            {"trials": 10**9},
            r"--trials: 1000000000 trials of each world would take about .* --stand-in",
        ),
    ],
)
def test_what_cannot_be_audited_is_refused(given, options, message):
    with pytest.raises(ConfigError, match=message):
        audit({key: value for key, value in given.items() if value is not None}, **options)


FILE = """
task = { name = "quadratic" }
population = 8
cohort = 4
stop = { rounds = 1 }
weights = "uniform"
selector = "uniform"
local = { steps = 2 }
"""
TABLE = "[privacy]\nclip = 0.5\nnoise_multiplier = 20.0\ndelta = 1e-5\n"


@pytest.mark.parametrize(
    ("more", "attacked"), [([], "own data and model"), (["--stand-in"], "quadratic stand-in")]
)
@pytest.mark.usefixtures("drawn")
def test_the_command_prints_the_claim_and_writes_numbers_and_a_picture(
    tmp_path, capsys, more, attacked
):
    file = tmp_path / "x.toml"
    out = tmp_path / "out"
    file.write_text(FILE + TABLE)
    assert (
        call(
            ["audit-privacy", str(file), "--trials", "100", "--seed", "3", "--out", str(out), *more]
        )
        == 0
    )
    said = capsys.readouterr()
    assert "motley: 100 trials of 1 rounds in each of two worlds" in said.err
    record = json.loads((out / "audit.json").read_text())
    assert f"at most {record['bound']:.4g} at the caps" in said.out
    assert "A low eps_hat proves nothing" in said.out
    assert (record["seed"], record["trials"], record["attacked"]) == (3, 100, attacked)
    assert (out / "audit.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (FILE, [], "privacy: there is nothing to audit without it"),
        (FILE + TABLE, ["--trials", "3"], "--trials: got 3; expected at least 100"),
        (
            FILE + TABLE,
            ["--stand-in", "--canary", "1"],
            "--canary: the stand-in's canary is its own",
        ),
        (FILE + TABLE, ["--seed", "-1"], "'--seed'"),
        (FILE + TABLE, ["--out", "x.toml"], "cannot write into x.toml: it is no folder"),
        (FILE + TABLE, ["--stand-in", "--out", "x.toml/y"], "cannot write into x.toml/y: Not a"),
    ],
)
def test_a_mistake_at_the_command_is_one_sentence(
    tmp_path, monkeypatch, capsys, text, more, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(text)
    assert call(["audit-privacy", "x.toml", "--trials", "100", *more]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(("z", "found_out"), [(4.0, False), (0.01, True)])
def test_noise_by_clients_is_attacked_with_the_colluders_knowledge(z, found_out):
    """The server subtracts one colluder's noise; with hardly any noise every trial is told
    apart."""
    all_four = {"population": 4, "cohort": 4}
    given = keys(rounds=1, noise_multiplier=z, noise_by="clients", colluders=1) | all_four
    found = audit(given, trials=100, stretched=True)
    assert found.attack.epsilon <= found.record["bound"]
    assert (found.attack.epsilon == found.attack.ceiling) is found_out


def test_noise_by_clients_has_no_stand_in():
    with pytest.raises(ConfigError, match=r"the stand-in has no masks.* leave it out"):
        stand_in(keys(noise_by="clients"))
