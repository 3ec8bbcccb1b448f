"""The secret of a private run: what its noise is drawn from, where it lies, and what a run without
it may still do."""

import itertools
import json
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import motley
from motley.cli import app
from motley.core.errors import ConfigError, NumericsError, StoreError
from motley.core.files import SECRET
from motley.experiments import run as running
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.store import RunFolder, default_folder
from motley.experiments.trackers import running as trackers
from motley.experiments.trackers.tracker import TrackedRun
from motley.tasks.own import own_task
from motley.tasks.weight_files import read_weights
from motley_data.own_federation import from_arrays
from motley_privacy import private_admission, run_secret
from motley_privacy.noise import SecretRandomness, entropy_of, noise_steps
from motley_privacy.published import kind_of
from motley_privacy.run_secret import commitment, forget_secret, keep_secret, read_secret

pytest.importorskip("dp_accounting")

KEYS = {
    "task": "quadratic",
    "partition": "by_writer",
    "population": 8,
    "cohort": 3,
    "weights": "uniform",
    "local": {"steps": 2},
    "stop": {"rounds": 4},
    "checkpoint": {"every_rounds": 1},
    "privacy": {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 1.0},
}
FIXED = bytes(range(32))


def model(folder):
    return {
        name: value.tolist() for name, value in read_weights(folder / "model.safetensors").items()
    }


def private(**more):
    return {**KEYS, "privacy": {**KEYS["privacy"], **more}}


class Interrupted(Exception):
    pass


def interrupt(done):
    if done.round == 2:
        raise Interrupted


def interrupted(folder, keys=KEYS):
    with pytest.raises(Interrupted):
        motley.run(keys, out=folder, on_round=interrupt)
    return folder


# ------------------------------------------------------------------------------------- the noise


def test_two_runs_of_one_file_have_other_noise_and_the_same_rest(tmp_path):
    one, two = (motley.run(KEYS, out=tmp_path / name) for name in ("one", "two"))
    assert model(tmp_path / "one") != model(tmp_path / "two")
    assert one.tables["clients"].column("client") == two.tables["clients"].column("client")
    assert one.meta["run_id"] == two.meta["run_id"]
    assert one.meta["privacy"]["noise"] == "secret"
    assert "from a secret of the operating system" in " ".join(one.meta["privacy"]["claim"])


def test_two_cohorts_of_one_grid_do_not_cancel_their_noise(monkeypatch):
    """The sums of all eight and of seven clients, times their divisors, differ by one clipped
    update of at most 1 under the same noise, and by noise of deviation 1000 root 2 without."""
    secrets = itertools.cycle([FIXED, bytes(32)])
    monkeypatch.setattr(private_admission, "new_secret", lambda: next(secrets))

    def sums(**privacy):
        keys = private(clip=1.0, noise_multiplier=1000.0, **privacy)
        moved = []
        for cohort in (7, 8):
            loop = build({**keys, "stop": {"rounds": 1}, "cohort": cohort})
            start = loop.state.server.model.x.clone()
            loop.step()
            moved.append(cohort * (loop.state.server.model.x - start))
        return float(torch.linalg.vector_norm(moved[1] - moved[0]))

    assert sums(noise_seed=3) <= 1.01
    assert sums() > 100.0


def test_the_noise_of_a_seed_is_for_comparisons_and_the_claim_says_so(tmp_path):
    one, _ = (motley.run(private(noise_seed=5), out=tmp_path / name) for name in ("one", "two"))
    assert model(tmp_path / "one") == model(tmp_path / "two")
    assert one.meta["privacy"]["noise"] == "noise_seed"
    claim = " ".join(one.meta["privacy"]["claim"])
    assert "nothing is private against whoever has two of them" in claim
    assert "also under other seeds" in claim
    assert "deviations over seeds hold none of the noise" in claim
    assert "drawn as quantiles in float64" in claim
    assert one.meta["run_id"] != Experiment(**private(noise_seed=6)).run_id()


def test_the_seed_of_a_run_does_not_decide_on_its_noise():
    with pytest.raises(ConfigError, match=r"pin\.privacy: .* write privacy\.noise_seed = 7"):
        Experiment(**KEYS, pin={"privacy": 7})
    fixed, other = (build({**private(noise_seed=1), "seed": seed}) for seed in (0, 1))
    assert fixed.config.privacy.source == other.config.privacy.source


def test_hidden_cohorts_come_from_the_secret():
    """Two runs of one file and seed draw other cohorts; one with the same secret draws the same."""
    hidden = {**private(cohorts="hidden", adjacency="replace_one"), "selector": "uniform"}

    def cohorts(secret):
        selector = build(hidden, secret=secret).state.selector
        return [selector.select(t, range(8), 3).ids.tolist() for t in range(1, 9)]

    assert cohorts(FIXED) == cohorts(FIXED)
    assert cohorts(FIXED) != cohorts(bytes(32))
    loop = build(hidden, secret=FIXED)
    assert loop.state.selector.seed != build(KEYS, secret=FIXED).state.selector.seed
    assert loop.state.selector.seed not in _numbers(loop.save())


def _numbers(value):
    """Yield the whole numbers of a state that is saved."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, int):
        yield value


def test_bytes_of_a_secret_are_those_of_shake_and_blake():
    """By hashlib alone: the secret of a path is a keyed BLAKE2b hash, its bytes are SHAKE-256."""
    import hashlib

    step = hashlib.blake2b(b"text step", key=FIXED, digest_size=32).digest()
    third = hashlib.blake2b(b"number 3", key=step, digest_size=32).digest()
    source = SecretRandomness(FIXED).fold("step", 3)
    assert source.secret == third
    following = entropy_of(source)
    assert following(5) == hashlib.shake_256(third + bytes(8)).digest(5)
    assert following(5) == hashlib.shake_256(third + bytes([1]) + bytes(7)).digest(5)
    assert SecretRandomness(FIXED).fold("3").secret != SecretRandomness(FIXED).fold(3).secret
    assert "secret" not in repr(source)


def test_noise_of_a_secret_has_the_law_of_the_account():
    """The variance of 20,000 discrete Gaussians is sigma^2 within four standard errors, 4 %."""
    drawn = noise_steps(SecretRandomness(FIXED), np.arange(20_000), "gaussian", 1000)
    assert abs(np.var(drawn) / 1000**2 - 1) < 4 * np.sqrt(2 / 20_000)
    u = SecretRandomness(FIXED).uniform([3, 5], 2)
    assert u.shape == (2, 2)
    assert ((u > 0) & (u < 1)).all()


# ------------------------------------------------------------------------------------- the file


def test_the_secret_is_in_one_file_that_its_owner_alone_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(run_secret, "new_secret", lambda: FIXED)
    for keys in (KEYS, private(cohorts="hidden", adjacency="replace_one")):
        folder = tmp_path / str(len(str(keys)))
        motley.run(keys, out=folder)
        assert stat.S_IMODE((folder / SECRET).stat().st_mode) == 0o600
        files = {path for path in folder.rglob("*") if path.is_file()}
        seed = (int.from_bytes(SecretRandomness(FIXED).fold("select").secret[:8], "little")) >> 1
        for hidden in (FIXED, FIXED.hex().encode(), str(seed).encode(), seed.to_bytes(8, "little")):
            holders = [path.name for path in files if hidden in path.read_bytes()]
            assert holders in ([], [SECRET])
        assert json.loads((folder / SECRET).read_text())["secret"] == FIXED.hex()
    assert kind_of(SECRET, "secret") == "not covered"


def test_the_secret_is_there_before_noise_is_drawn(tmp_path, monkeypatch):
    seen = []

    def run_built(experiment, loop, folder, *more, **keys):
        seen.append((folder.path / SECRET).is_file())
        return original(experiment, loop, folder, *more, **keys)

    original = running.run_built
    monkeypatch.setattr(running, "run_built", run_built)
    motley.run(KEYS, out=tmp_path / "run")
    assert seen == [True]


def test_a_run_that_was_killed_before_its_record_begins_anew(tmp_path):
    keep_secret(tmp_path, FIXED, {})
    done = motley.run(KEYS, out=tmp_path)
    assert done.meta["privacy"]["commitment"] != commitment(FIXED)


@pytest.mark.parametrize(
    "more", [{}, {"min_separation": 2, "max_rounds": 2}, {"noise_by": "clients"}]
)
def test_a_run_goes_on_with_its_own_noise_to_the_bit(tmp_path, monkeypatch, more):
    keys = {**private(**more), "cohort": 4}
    monkeypatch.setattr(run_secret, "new_secret", lambda: FIXED)
    motley.run(keys, out=tmp_path / "whole")
    interrupted(tmp_path / "again", keys)
    monkeypatch.undo()
    motley.run(keys, out=tmp_path / "again", resume=True)
    assert model(tmp_path / "again") == model(tmp_path / "whole")


def test_a_copy_without_the_secret_does_not_go_on(tmp_path):
    folder = interrupted(tmp_path / "run")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(SECRET))
    with pytest.raises(
        StoreError, match=r"has no secret\.json, .* can neither go on nor be taken for"
    ):
        motley.run(KEYS, out=copy, resume=True)
    assert not (copy / SECRET).exists()
    motley.run(KEYS, out=folder, resume=True)


def test_a_secret_of_another_run_or_a_damaged_one_is_refused(tmp_path):
    folder = interrupted(tmp_path / "run")
    text = (folder / SECRET).read_text()
    keep_secret(folder, FIXED, {})
    with pytest.raises(StoreError, match="is not the secret that this run began with"):
        motley.run(KEYS, out=folder, resume=True)
    for wrong in (text.replace("a", "b").replace("1", "2"), "{}", "[1]", "", text[:40]):
        (folder / SECRET).write_text(wrong)
        with pytest.raises(StoreError, match="is damaged, and this private run cannot go on"):
            motley.run(KEYS, out=folder, resume=True)
    (folder / SECRET).write_text(text)
    record = json.loads((folder / "run.json").read_text())
    assert read_secret(folder, record["privacy"]["commitment"], {}).hex() in text
    motley.run(KEYS, out=folder, resume=True)


def test_a_deleted_secret_ends_a_run_and_leaves_its_results(tmp_path):
    done = motley.run(KEYS, out=tmp_path / "run")
    said = CliRunner().invoke(app, ["forget-noise", str(done.directory)])
    assert said.exit_code == 0, said.output
    assert "tables and models stay" in said.output
    assert not (done.directory / SECRET).exists()
    assert not (done.directory / "checkpoints").exists()
    assert motley.load(done.directory).tables["rounds"].num_rows == 4
    with pytest.raises(StoreError, match=r"has no secret\.json"):
        motley.run({**KEYS, "stop": {"rounds": 6}}, out=done.directory, resume=True)
    with pytest.raises(StoreError, match="expected the folder of a private run"):
        forget_secret(done.directory)


def test_the_secrets_of_a_folder_of_runs_are_deleted_together(tmp_path):
    """Of a study its own secret alone was deleted, and it was told that the noise is forgotten."""
    for name in ("runs/one", "test/two"):
        motley.run(KEYS, out=tmp_path / "study" / name)
    keep_secret(tmp_path / "study", FIXED, {})
    done = CliRunner().invoke(app, ["forget-noise", str(tmp_path / "study")])
    assert done.exit_code == 0, done.output
    assert list(tmp_path.rglob(SECRET)) == []
    assert done.output.count("tables and models") == 3
    assert motley.load(tmp_path / "study" / "runs" / "one").finished
    nothing = CliRunner().invoke(app, ["forget-noise", str(tmp_path / "study")])
    assert "expected the folder of a private run, or of such runs" in str(nothing.exception)


def test_noise_of_a_seed_is_not_said_to_be_forgotten(tmp_path):
    motley.run(KEYS, out=tmp_path / "one")
    motley.run(private(noise_seed=3), out=tmp_path / "two")
    done = CliRunner().invoke(app, ["forget-noise", str(tmp_path)])
    assert "two is made from privacy.noise_seed, which its run.json" in str(done.exception)
    assert "one: the secret of the noise" in done.output.replace("\n", "")
    assert not (tmp_path / "one" / SECRET).exists()


def test_a_private_run_goes_on_under_its_own_numerics_alone(tmp_path):
    folder = interrupted(tmp_path / "run")
    keys = {**KEYS, "dtype": "float32"}
    record = json.loads((folder / "run.json").read_text())
    numerics = {**record["numerics"], "torch": "0.1"}
    RunFolder(folder).write({**record, "numerics": numerics})
    with pytest.raises(NumericsError, match="a private run goes on under the same numerics alone"):
        motley.run(keys, out=folder, resume=True, allow_other_numerics=True)


# ------------------------------------------------------------------------------------- the data

TABLE = {
    "name": "tabular",
    "data": "d.csv",
    "client": "site",
    "label": "y",
    "classes": ["no", "yes"],
    "scale": "none",
}


def table(labels):
    """Write a table of eight clients, of whom the first has these labels."""
    rows = ["site,x,y"]
    for k in range(8):
        given = labels if k == 0 else ["no", "yes", "no"]
        rows += [f"h{k},{0.1 * k + 0.5 * j:.3f},{label}" for j, label in enumerate(given)]
    Path("d.csv").write_text("\n".join(rows) + "\n")
    keys = {key: value for key, value in KEYS.items() if key != "population"}
    return {**keys, "task": TABLE}


def strings(value):
    """Yield all text in a value of JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


def test_no_id_of_a_private_run_is_a_function_of_its_data(tmp_path, monkeypatch):
    """All candidates for one client's labels have one id, one folder and one record."""
    monkeypatch.chdir(tmp_path)
    ids = set()
    configs = set()
    for labels in itertools.product(("no", "yes"), repeat=3):
        experiment = Experiment(**table(labels))
        ids.add((experiment.run_id(), experiment.result_id(), str(default_folder(experiment))))
        configs.add(json.dumps(experiment.resolved(), sort_keys=True))
        assert experiment.data_digests().keys() == {"task.files"}
    assert len(ids) == len(configs) == 1
    clear = {
        Experiment(**{**table(labels), "privacy": "off"}).run_id()
        for labels in (("no",) * 3, ("yes",) * 3)
    }
    assert len(clear) == 2


def test_what_is_published_holds_no_hash_of_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []

    @dataclass(frozen=True)
    class Told(TrackedRun):
        def __post_init__(self):
            told.append(self)

    monkeypatch.setattr(trackers, "TrackedRun", Told)
    # what a tracker would get, without one
    monkeypatch.setattr(trackers.Trackers, "begin", lambda self, start: self._run())
    done = motley.run(table(["no", "yes", "yes"]), out="run")
    experiment = Experiment(**table(["no", "yes", "yes"]))
    (digest,) = experiment.data_digests().values()
    assert digest not in set(strings(done.meta))
    assert told
    assert digest not in str(told)
    kept = json.loads(Path("run", SECRET).read_text())["data"]
    holders = [
        p.name for p in Path("run").rglob("*") if p.is_file() and kept.encode() in p.read_bytes()
    ]
    assert holders == [SECRET]


def test_a_task_of_ones_own_leaves_no_hash_of_its_data(tmp_path):
    """Its fingerprint is a hash of the samples."""

    def made(shift):
        x = np.arange(48, dtype=np.float32).reshape(24, 2) / 48 + shift
        data = from_arrays(x, np.arange(24) % 2, client=np.arange(24) % 4, classes=2)
        return own_task(data, lambda: torch.nn.Linear(2, 2))

    keys = {
        key: value for key, value in KEYS.items() if key not in ("task", "partition", "population")
    }
    done = motley.run(keys, out=tmp_path / "run", task=made(0.0))
    assert done.config["task"]["fingerprint"] == ""
    assert running.with_own(keys, made(0.0)).run_id() == done.meta["run_id"]
    assert running.with_own(keys, made(0.5)).run_id() == done.meta["run_id"]
    motley.run(keys, out=tmp_path / "run", task=made(0.0))  # is loaded
    with pytest.raises(StoreError, match="is of other data than these"):
        motley.run(keys, out=tmp_path / "run", task=made(0.5))


def test_a_folder_of_other_data_is_refused_and_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interrupted(Path("half"), table(["no", "no", "no"]))
    motley.run(table(["no", "no", "no"]), out="run")
    assert RunFolder("run").finished(Experiment(**table(["no", "no", "no"])))
    changed = table(["no", "no", "yes"])
    assert not RunFolder("run").finished(Experiment(**changed))
    for folder in ("run", "half"):
        for resume in (False, True):
            with pytest.raises(
                StoreError, match=r"other data than these; .* another output folder"
            ):
                motley.run(changed, out=folder, resume=resume)
    again = table(["no", "no", "no"])
    motley.run(again, out="half", resume=True)
    forget_secret(Path("run"))
    with pytest.raises(StoreError, match=r"has no secret\.json"):
        motley.run(again, out="run")


def test_a_sweep_does_not_load_runs_of_other_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for labels, failed in ((["no"] * 3, 0), (["yes"] * 3, 2), (["no"] * 3, 0)):
        done = motley.compare(table(labels), over={"cohort": [3, 4]}, out="cmp")
        assert [len(done.runs), len(done.failures)] == [2 - failed, failed]
        assert all("other data than these" in str(one.error) for one in done.failures)
