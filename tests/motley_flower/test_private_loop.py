"""A private run on real messages: no clear signal leaves a client, what was asked for is counted,
and the claim says where noise comes from."""

from __future__ import annotations

import dataclasses
import errno
import json
import multiprocessing
import os
import struct
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from motley.core.errors import CodecError, ConfigError, StoreError
from motley.core.files import SECRET
from motley.core.keys import Streams
from motley.core.records import Outcome, SignalRequirements
from motley.engines.local import Sequential
from motley.experiments.build import prepare
from motley.selectors.selector import Selector
from motley.transport import wire
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.client_runtime import ClientRuntime
from motley_flower.deployed.grid_transport import bytes_in
from motley_flower.deployed.protocol import Order, open_answer, pack
from motley_flower.deployed.secure_rounds import secure_refusal
from motley_flower.deployed.server_app import refuses
from motley_flower.secure.terms import SecureOptions
from motley_privacy import run_secret
from motley_privacy.noise import SecretRandomness, SystemRandomness
from motley_privacy.privacy_ledger import PrivacyState
from motley_privacy.private_admission import selection_seed
from motley_privacy.private_rounds import PrivateRounds
from tests.motley_flower.asked_process import asked_in_a_process
from tests.motley_flower.client_runtimes import answers, deploy, experiment, federation

pytest.importorskip("dp_accounting")

UNIT = {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"}
NUMBERS = {
    "loss": {"low": 0.0, "high": 5.0, "multiplier": 20.0},
    "num_examples": {"low": 0.0, "high": 100.0, "multiplier": 20.0},
}
NOISE = {"loss": ("laplace", 0.0, 5.0, 20.0), "num_examples": ("laplace", 0.0, 100.0, 20.0)}


def private(signals=NUMBERS, selector=None, **keys):
    more = keys.pop("privacy", {})
    table = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0, "signal_noise": signals, **more}
    rule = selector or {"name": "power_of_choice", "d": 5}
    return experiment(
        **{"weights": "uniform", "task": UNIT, "selector": rule, "privacy": table, **keys}
    )


def test_a_private_run_is_no_secure_sum():
    setup = experiment(
        task=UNIT, weights="uniform", privacy={"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0}
    )
    assert "the server of a private run clips single uploads and adds the noise itself" in (
        secure_refusal(prepare(setup), SecureOptions(clip=1.0)) or ""
    )


COINS = {"name": "poisson", "rate": 0.5}


def hidden(**keys):
    table = {"signal_noise": {}, "cohorts": "hidden", **keys.pop("privacy", {})}
    return private(selector=COINS, privacy=table, **keys)


def cohorts(done):
    """The clients asked in each round."""
    rows = done.tables["clients"].to_pydict()
    asked = list(zip(rows["round"], rows["client"], strict=True))
    return [sorted(k for t, k in asked if t == number) for number in range(1, 5)]


def drawn(rule, seed):
    """The cohorts of four rounds that whoever has the seed computes."""
    selector = Selector(rule, seed)
    found = []
    for t in range(1, 5):
        ids = selector.select(t, range(6), 6, dispatch=sum(map(len, found))).ids
        found.append(sorted(ids.tolist()))
    return found


def test_hidden_cohorts_come_from_a_secret_of_the_server(tmp_path, monkeypatch):
    """Clients hold the experiment, and its seed; no cohort follows from these."""
    monkeypatch.setattr(run_secret, "new_secret", lambda: bytes(range(32)))
    setup = hidden()
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    rule = setup.part("selector")
    streams = Streams(setup.seed)
    of_seed = selection_seed(setup.privacy, streams, SystemRandomness())
    of_secret = selection_seed(setup.privacy, streams, SecretRandomness(bytes(range(32))))
    assert cohorts(done) == drawn(rule, of_secret)
    assert cohorts(done) != drawn(rule, of_seed)
    assert (done.directory / SECRET).stat().st_mode & 0o777 == 0o600
    assert done.meta["privacy"]["commitment"] == run_secret.commitment(bytes(range(32)))
    claim = " ".join(done.meta["privacy"]["claim"])
    assert "the table of participants or the run's secret.json gets less privacy" in claim
    assert (
        done.column("clients", "dispatch").tolist()
        == (6 * done.column("clients", "round") + done.column("clients", "client")).tolist()
    )


def test_a_server_that_is_started_again_keeps_its_hidden_cohorts(tmp_path):
    setup = hidden()
    grid = federation(setup, tmp_path)

    def stop(done):
        if done.round == 2:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        deploy(grid, setup, tmp_path / "real", told=stop)
    secret = bytes.fromhex(json.loads((tmp_path / "real" / SECRET).read_text())["secret"])
    done = deploy(grid, setup, tmp_path / "real")
    seed = selection_seed(setup.privacy, Streams(setup.seed), SecretRandomness(secret))
    assert cohorts(done) == drawn(setup.part("selector"), seed)


def test_a_selector_that_may_be_known_draws_no_hidden_cohort(tmp_path):
    setup = hidden()
    selector = Selector(setup.part("selector"), 0)
    with pytest.raises(ConfigError, match="selector: got a selector, which draws by its own seed"):
        deploy(federation(setup, tmp_path), setup, tmp_path / "real", selector=selector)


def test_a_private_deployment_counts_and_claims(tmp_path):
    setup = private()
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real", report=True)
    claim = " ".join(done.meta["privacy"]["claim"])
    assert "The server adds the noise of the sums, sees uploads" in claim
    assert "Clients add the noise of their signals before they send them." in claim
    assert "operating system's generator" in claim
    assert "keeps to the noise and the caps in it, over all runs" in claim
    assert (
        "drawn exactly, with the discrete Gaussian and Laplace laws, so that low bits tell nothing."
        in claim
    )
    counts = done.tables["privacy"].to_pydict()
    rows = done.tables["clients"].to_pydict()
    assert (
        counts["sums"] == counts["choices"] == [rows["client"].count(client) for client in range(6)]
    )
    # sizes once, and the losses of d = 5 candidates in 4 rounds
    assert sum(counts["signals"]) == 6 + 5 * 4
    # the server knows none of these
    assert rows["num_examples"] == rows["loss"] == rows["update_norm"] == [None] * 12
    assert done.tables["federation"].to_pydict()["num_train"] == [None] * 6


# ------------------------------------------------------------------------------------- on the wire


def sent_by_clients(setup, folder, monkeypatch):
    """Run a deployment; return all answers' bytes, and the 8 bytes of every clear number: sizes,
    losses, norms, histograms."""
    seen = []
    clear = {}
    measure = Sequential.measure
    train = Sequential.train

    def noted(name, values):
        for value in np.ravel(values):
            clear.setdefault(name, set()).add(struct.pack("<d", float(value)))

    def measured(self, *given, **named):
        found = measure(self, *given, **named)
        for name, value in found.items():
            noted(name, value)
        return found

    def trained(self, *given):
        for result in train(self, *given):
            for name, value in result.signals.items():
                noted(name, value)
            yield result

    monkeypatch.setattr(Sequential, "measure", measured)
    monkeypatch.setattr(Sequential, "train", trained)
    on = federation(setup, folder)
    for node in on.nodes.values():

        def app(message, context, inner=node.app):
            reply = inner(message, context)
            if message.metadata.message_type != "query.motley_enrol":
                seen.append(bytes_in(reply))
            return reply

        node.app = app
    deploy(on, setup, folder / "real")
    data = prepare(setup).config.setting.task.federation
    noted("num_examples", data.train.sizes)
    clear["label_histogram"] = {row.astype("<f8").tobytes() for row in data.histogram()}
    clear["label_histogram"] |= {
        (row / row.sum()).astype("<f8").tobytes() for row in data.histogram()
    }
    return seen, clear


def test_no_clear_number_is_among_the_bytes_that_clients_send(tmp_path, monkeypatch):
    """The rule wants all kinds of signals: a histogram once, losses before the choice, norms of
    updates."""
    signals = {
        "loss": NUMBERS["loss"],
        "update_norm": {"low": 0.0, "high": 2.0, "multiplier": 20.0},
    }
    signals["label_histogram"] = {"multiplier": 20.0}
    v1 = {"selector": "hetero_select_v1", "stop": {"rounds": 2}}
    with monkeypatch.context() as patch:
        seen, clear = sent_by_clients(private(signals, **v1), tmp_path, patch)
    assert {"loss", "update_norm", "num_examples", "label_histogram"} <= clear.keys()
    for name, values in clear.items():
        assert not [value for value in values for data in seen if value in data], name
    names = [sorted(open_answer(data, 10**9).signals) for data in seen]
    assert {tuple(found) for found in names} == {("label_histogram",), ("loss",), ("update_norm",)}
    control, found = sent_by_clients(
        experiment(weights="uniform", **v1), tmp_path / "control", monkeypatch
    )
    # the search does find clear numbers
    for name in ("loss", "update_norm", "num_examples", "label_histogram"):
        assert any(value in data for value in found[name] for data in control), name


def test_a_rule_without_signals_hears_none(tmp_path):
    setup = private({}, "poisson", stop={"rounds": 2})
    on = federation(setup, tmp_path)
    deploy(on, setup, tmp_path / "real")
    asked = [bytes_in(message) for message in on.sent if bytes_in(message)]
    assert len(asked) >= 6
    assert all(b"num_examples" not in data and b"update_norm" not in data for data in asked)


# ------------------------------------------------------------------------------------- the client


def runtime(folder, setup=None):
    return ClientRuntime(setup or experiment(), folder)


def answer(at, kind, client=2, run="run", **asked):
    model = b"" if kind == "enrol" else pack(at.like)
    order = Order(kind, run, at.agreed, client, **{"round": 1, "model": model, **asked})
    return open_answer(at.answer(client, order.seal()), 10**9)


def test_what_is_clipped_and_noised_as_the_order_says(tmp_path):
    """With next to no noise: a size above the interval's end, a loss below its beginning; shares
    sum to one."""
    at = runtime(tmp_path)
    small = {
        "num_examples": ("laplace", 0.0, 5.0, 1e-9),
        "label_histogram": ("laplace", None, None, 1e-9),
    }
    told = answer(at, "enrol", want=("num_examples", "label_histogram"), noise=small).signals
    counts = at.setting.task.federation.histogram()[2]
    assert float(told["num_examples"]) == pytest.approx(5.0, abs=1e-6)
    np.testing.assert_allclose(told["label_histogram"], counts / counts.sum(), atol=1e-6)
    low = {"loss": ("gaussian", 50.0, 60.0, 1e-9)}
    assert float(
        answer(at, "probe", probed={"loss": None}, noise=low).signals["loss"]
    ) == pytest.approx(50.0, abs=1e-6)
    told = answer(at, "train", dispatch=0, steps=2, lr=0.1, want=("loss",), noise=low).signals
    assert {name: round(float(value), 5) for name, value in told.items()} == {"loss": 50.0}


def test_a_clients_noise_is_no_function_of_the_seed(tmp_path):
    at = runtime(tmp_path)
    noise = {"loss": NOISE["loss"]}
    twice = [
        float(answer(at, "probe", probed={"loss": None}, noise=noise).signals["loss"])
        for _ in range(2)
    ]
    assert twice[0] != twice[1]


def test_gumbel_noise_is_left_to_the_server(tmp_path):
    cut = {"loss": ("gumbel", 0.0, 0.5, 20.0)}
    assert (
        float(answer(runtime(tmp_path), "probe", probed={"loss": None}, noise=cut).signals["loss"])
        == 0.5
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {},
            "asks for 'num_examples' clear, and this client's .privacy. for it with laplace noise "
            "of multiplier 20.0 in .0.0, 100.0.;",
        ),
        (
            {"noise": {"num_examples": ("laplace", 0.0, 100.0, 19.0)}},
            "with laplace noise of multiplier 19.0 in .0.0, 100.0., and",
        ),
        (
            {"noise": {"num_examples": ("laplace", 0.0, 100.0, 20.000000001)}},
            "of multiplier 20.000000001 in",
        ),
        (
            {"noise": {"num_examples": ("laplace", 0.0, 100.00000001, 20.0)}},
            "of multiplier 20.0 in .0.0, 100.00000001., and",
        ),
        (
            {"noise": {"num_examples": ("gumbel", 0.0, 100.0, 20.0)}},
            "with gumbel noise of multiplier 20.0 in",
        ),
        (
            {"want": ("label_histogram",)},
            "asks for 'label_histogram', and this client's .privacy. has no noise for it",
        ),
    ],
)
def test_a_client_with_privacy_keeps_to_its_own_noise(tmp_path, asked, said):
    at = runtime(tmp_path, private())
    with pytest.raises(ConfigError, match=said):
        answer(at, "enrol", **{"want": ("num_examples",), **asked})
    assert not list(tmp_path.rglob("*.json"))


def test_a_client_with_privacy_keeps_to_its_own_weights(tmp_path):
    at = runtime(tmp_path, private(weights="examples", privacy={"max_examples": 50}))
    with pytest.raises(
        ConfigError,
        match=r"caps weights at 60 samples, and this client's .privacy. at 50; give both the same",
    ):
        answer(at, "train", dispatch=0, steps=2, lr=0.1, most_examples=60)


# ----------------------------------------------------------------------------- what a client counts

SIZE, LOSS = ({name: NOISE[name]} for name in ("num_examples", "loss"))


def size(folder, setup=None, **asked):
    """The number of samples as a new process of the client sends it."""
    at = runtime(folder, setup or private())
    return float(
        answer(at, "enrol", want=("num_examples",), noise=SIZE, **asked).signals["num_examples"]
    )


def loss(at, **asked):
    return float(answer(at, "probe", probed={"loss": None}, noise=LOSS, **asked).signals["loss"])


def kept(folder):
    (path,) = (folder / ".privacy").glob("*.json")
    return path


def test_enrolment_is_released_once_whatever_the_server_names(tmp_path):
    first = size(tmp_path)
    assert size(tmp_path) == first
    assert size(tmp_path, run="another", round=7, dispatch=3) == first
    kept(tmp_path).unlink()
    assert size(tmp_path) != first


def test_a_round_is_probed_once(tmp_path):
    """Also by another model, on other batches, and in a new process."""
    at = runtime(tmp_path, private())
    first = loss(at)
    assert {loss(at) for _ in range(20)} == {first}
    moved = {
        name: value + (1 if value.is_floating_point() else 0) for name, value in at.like.items()
    }
    assert loss(runtime(tmp_path, private()), model=pack(moved)) == first
    assert loss(at, round=2) != first


def test_no_more_values_than_the_clients_own_cap(tmp_path):
    """Three: two rounds of one run and one of another. Then none, whatever the run's name; what was
    sent is sent again."""
    at = runtime(tmp_path, private(privacy={"max_signals": 3}))
    first = loss(at)
    loss(at, round=2)
    loss(at, run="other")
    for asked in ({"round": 3}, {"run": "third"}, {"round": 10**9}):
        with pytest.raises(
            ConfigError,
            match=r"max_signals: this client has sent 3 values of 'loss', as many as its .privacy. "
            r"allows; remove",
        ):
            loss(at, **asked)
    assert loss(at) == first
    told = {"dispatch": 0, "steps": 2, "lr": 0.1, "want": ("loss",), "noise": LOSS, "round": 1}
    with pytest.raises(ConfigError, match="3 values of 'loss'"):
        answer(at, "train", **told)  # a report is a value, too
    answer(at, "train", **{**told, "want": (), "noise": {}})


def test_no_more_updates_than_the_clients_own_cap(tmp_path):
    """The same round twice is two updates, for a server may sum each of them."""
    at = runtime(tmp_path, private(privacy={"max_rounds": 2}))
    told = {"dispatch": 0, "steps": 2, "lr": 0.1}
    answer(at, "train", **told)
    answer(at, "train", **told)
    with pytest.raises(
        ConfigError,
        match=r"max_rounds: this client has sent 2 updates, as many as its .privacy. allows; "
        r"remove .*json to begin",
    ):
        answer(
            runtime(tmp_path, private(privacy={"max_rounds": 2})),
            "train",
            **{**told, "run": "other", "round": 9},
        )


def test_a_client_needs_a_cap(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"privacy.max_signals: a run without stop.rounds needs a cap; write e.g. max_signals "
        r"= 20",
    ):
        runtime(tmp_path, private(stop={"virtual_hours": 1.0}))


def test_a_cap_that_is_raised_goes_on_counting_and_other_noise_is_another_budget(tmp_path):
    loss(runtime(tmp_path, private(privacy={"max_signals": 1})))
    at = runtime(tmp_path, private(privacy={"max_signals": 2}))
    loss(at, round=2)
    with pytest.raises(ConfigError, match="2 values of 'loss'"):
        loss(at, round=3)
    more = {**NUMBERS, "loss": {**NUMBERS["loss"], "multiplier": 30.0}}
    at = runtime(tmp_path, private(more, privacy={"max_signals": 2}))
    answer(at, "probe", probed={"loss": None}, noise={"loss": ("laplace", 0.0, 5.0, 30.0)}, round=3)
    assert len(list((tmp_path / ".privacy").glob("*.json"))) == 2


def test_a_release_is_on_the_disk_before_it_leaves_and_only_its_owner_reads_it(
    tmp_path, monkeypatch
):
    folder = tmp_path / "site"
    first = loss(runtime(folder, private()))
    path = kept(folder)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.with_suffix(".lock").stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["signals"]["loss"] == {"run probe 1": first}

    def full(*_):
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        loss(runtime(folder, private()), round=2)
    monkeypatch.undo()
    assert loss(runtime(folder, private())) == first


@pytest.mark.parametrize(
    "damage", [b"", b"nothing", b"{}", b'{"updates": 0, "signals": {}}', b"\xff", b"[" * 10**5]
)
def test_a_damaged_ledger_is_no_new_budget(tmp_path, damage):
    at = runtime(tmp_path, private())
    loss(at)
    kept(tmp_path).write_bytes(damage)
    with pytest.raises(
        StoreError,
        match=r"counts what this client has released and cannot be read .*; restore it, or remove "
        r"it to begin",
    ):
        loss(at)


def test_a_counter_that_was_turned_back_by_hand_is_noticed(tmp_path):
    at = runtime(tmp_path, private())
    answer(at, "train", dispatch=0, steps=2, lr=0.1)
    text = kept(tmp_path).read_text()
    kept(tmp_path).write_text(text.replace('"updates": 1', '"updates": 0'))
    with pytest.raises(StoreError, match="its digest differs"):
        answer(at, "train", dispatch=0, steps=2, lr=0.1)


def test_processes_of_one_client_take_turns(tmp_path):
    """Four processes ask on the same four occasions: two are answered, each with one value, and
    five updates leave in all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([asked_in_a_process.__module__])
    start = context.Event()
    out = context.Queue()
    workers = [
        context.Process(target=asked_in_a_process, args=(tmp_path, start, out)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    start.set()
    found = [out.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    told = [value for one in found for value in one.values() if value is not None]
    assert len(told) == 5
    for occasion in ("one", "two", "three", "four"):
        assert len({one[occasion] for one in found} - {None}) <= 1
    assert json.loads(kept(tmp_path).read_text())["updates"] == 5
    assert len(json.loads(kept(tmp_path).read_text())["signals"]["loss"]) <= 2


def test_a_signal_of_many_numbers_has_no_noise_and_does_not_leave(tmp_path):
    noise = {"gradient_sketch": {"low": 0.0, "high": 1.0, "multiplier": 1.0}}
    with pytest.raises(
        ConfigError, match="it is no single number, and noise on whole vectors is not built"
    ):
        answer(
            runtime(tmp_path, private(noise)),
            "probe",
            probed={"gradient_sketch": None},
            noise={"gradient_sketch": ("laplace", 0.0, 1.0, 1.0)},
        )


def test_a_client_without_privacy_does_as_the_server_says_and_counts_nothing(tmp_path):
    at = runtime(tmp_path)
    assert len({loss(at) for _ in range(10)}) == 10
    assert not list(tmp_path.iterdir())


def test_a_server_without_privacy_hears_nothing_of_such_clients(tmp_path, caplog):
    setup = experiment(task=UNIT)
    on = federation(setup, tmp_path)
    node = Node(private(), tmp_path / "sites")
    for k in range(6):
        on.nodes[100 + k].app = partial(answers, node)
    with pytest.raises(ConfigError, match=r"raised ConfigError: at noised_signals.py, line \d+"):
        deploy(on, setup, tmp_path / "real")
    assert "the server asks for 'num_examples' clear" in caplog.text  # the client's own log


@pytest.mark.parametrize(
    ("noise", "error", "said"),
    [
        ({"num_examples": ("laplace", 0.0, 0.0, 1.0)}, ConfigError, "expected low below high"),
        ({"num_examples": ("laplace", 0.0, 1.0, 0.0)}, ConfigError, "got a multiplier of 0"),
        ({"num_examples": ("laplace", 0.0, float("inf"), 1.0)}, ConfigError, "multiplier"),
        ({"num_examples": ("none", 0.0, 1.0, 1.0)}, CodecError, "noise or weights that are none"),
        ({"num_examples": ("laplace", 0.0, 1.0)}, CodecError, "noise or weights that are none"),
        (
            {"num_examples": ["laplace", 0.0, 1.0, 1.0]},
            CodecError,
            "noise or weights that are none",
        ),
    ],
)
def test_noise_that_cannot_be(tmp_path, noise, error, said):
    with pytest.raises(error, match=said):
        answer(runtime(tmp_path), "enrol", want=("num_examples",), noise=noise)


def test_a_client_weighs_its_upload_itself(tmp_path):
    """Client 2 has n samples: with a cap of 2 n its update is multiplied by a half, with a cap
    below n it is whole."""
    at = runtime(tmp_path)
    n = int(at.setting.task.federation.train.sizes[2])
    deltas = []
    for most in (0, n - 1, 2 * n):
        told = answer(at, "train", dispatch=0, steps=2, lr=0.1, most_examples=most)
        deltas.append(wire.decode(told.upload)["delta"].dense().numpy())
    np.testing.assert_array_equal(deltas[0], deltas[1])
    np.testing.assert_allclose(deltas[2], 0.5 * deltas[0], rtol=1e-12)


# ------------------------------------------------------------------------------------- the server


def test_what_was_asked_for_counts_also_without_an_answer(tmp_path):
    """Client 1 answers no request to train: its signals may have left all the same. One sum at
    most."""
    signals = {"update_norm": {"low": 0.0, "high": 2.0, "multiplier": 20.0}}
    signals |= {"loss": NUMBERS["loss"], "label_histogram": {"multiplier": 20.0}}
    setup = private(signals, "hetero_select_v1", cohort=6, stop={"rounds": 1})
    on = federation(setup, tmp_path)
    inner = on.nodes[101].app

    def silent(message, context):
        if message.metadata.message_type == "train.motley":
            raise RuntimeError("lost")
        return inner(message, context)

    on.nodes[101].app = silent
    counts = deploy(on, setup, tmp_path / "real").tables["privacy"].to_pydict()
    assert counts["signals"] == [1 + 1 + 1] * 6  # the histogram, a loss, and the norm of the update
    assert counts["sums"] == [1, 0, 1, 1, 1, 1]


def test_a_signal_at_its_cap_is_asked_for_no_more():
    """Caps of 2 and 1: client 0 may still send both, client 1 the loss alone, client 2 nothing."""
    needs = SignalRequirements(reported=frozenset({"loss"}), enrolled=frozenset({"num_examples"}))
    plan = SimpleNamespace(signal_cap=lambda name: 2 if name in needs.reported else 1)
    counts = {"loss": np.array([1, 1, 2]), "num_examples": np.array([0, 1, 1])}
    state = PrivacyState(1.0, np.zeros(3, np.int64), np.zeros(3, np.int64), counts)
    names = ("loss", "num_examples")
    assert [state.sendable(plan, names, k) for k in range(3)] == [names, ("loss",), ()]
    state.asked(("loss", "update_norm"), np.array([0, 1]))
    assert counts["loss"].tolist() == [2, 2, 2]


def test_weights_of_capped_samples(tmp_path, monkeypatch):
    """Clients multiply by them: to the server all weights are 1, and the tables name none."""
    weights = []
    clipped = PrivateRounds.clipped

    def noted(self, state, upload):
        weights.append(upload.weight)
        return clipped(self, state, upload)

    monkeypatch.setattr(PrivateRounds, "clipped", noted)
    setup = private(weights="examples", privacy={"max_examples": 50}, stop={"rounds": 1})
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    assert weights == [1.0] * 3
    assert done.tables["clients"].to_pydict()["weight"] == [None] * 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"local": {"epochs": 1, "batch_size": 16}}, "write local = { steps = 10 }"),
        (
            {
                "weights": "examples",
                "privacy": {"max_examples": 50, "sizes": "public"},
                "synchrony": "asynchronous",
            },
            'write weights = "uniform"',
        ),
        (
            {
                "selector": "poisson",
                "privacy": {"signal_noise": {}},
                "synchrony": {"name": "deadline", "seconds": 9.0},
            },
            "real clients take as long as their data makes them, and under 'deadline' the time of "
            "one client decides which others",
        ),
        ({"privacy": {"noise_seed": 3}}, "from no seed; leave privacy.noise_seed out"),
        (
            {
                "signals": {},
                "selector": "uniform",
                "privacy": {"cohorts": "hidden", "adjacency": "replace_one"},
            },
            "a fixed number of those that are there is drawn, each more often than the account",
        ),
    ],
)
def test_what_is_refused(changed, said):
    setup = private(**changed)
    assert said in (refuses(setup, prepare(setup)) or "")


# ---------------------------------------------------------------------- answers that cannot be used


def spoilt(on, client, how):
    """Let one client's answers to training be of the wrong form, or say that its numbers are not
    finite."""
    inner = on.nodes[100 + client].app

    def app(message, context):
        reply = inner(message, context)
        if message.metadata.message_type == "train.motley":
            (record,) = reply.content.values()
            (key,) = record
            told = open_answer(record[key], 10**9)
            changed = (
                dataclasses.replace(told, upload=b"", finite=False) if how == "not finite" else None
            )
            record[key] = b"garbage" if changed is None else changed.seal()
        return reply

    on.nodes[100 + client].app = app


HOWS = pytest.mark.parametrize("how", ["not finite", "garbage"])
MORE = {"sizes": "public", "max_rounds": 9, "max_signals": 9}


@HOWS
@pytest.mark.parametrize(
    "synchrony",
    [
        "synchronous",
        {"name": "deadline", "over_select": 1.5},
        {"name": "buffered", "refill": "idle", "buffer": 2},
    ],
    ids=str,
)
def test_an_answer_that_cannot_be_used_changes_what_nobody_else_does(tmp_path, how, synchrony):
    """It counts as a sum, and the same others enter the same sums: nobody in its place, and nobody
    is asked earlier."""
    setup = private({}, "uniform", synchrony=synchrony, cohort=4, privacy=MORE, stop={"rounds": 5})
    members = []
    tables = {}
    for name in ("sound", "spoilt"):
        on = federation(setup, tmp_path / name, delays={k: 1.0 + (k - 1) % 6 for k in range(6)})
        if name == "spoilt":
            spoilt(on, 1, how)
        tables = deploy(on, setup, tmp_path / name / "real").tables
        rows = tables["clients"].to_pydict()
        members.append(list(zip(rows["round"], rows["client"], rows["outcome"], strict=True)))
    assert members[0] == members[1]
    mine = [outcome for _, client, outcome in members[1] if client == 1]
    assert tables["privacy"].to_pydict()["sums"][1] == mine.count("accepted") > 0
    said = tables["incidents"].to_pydict()
    assert (1, "rejected") in set(zip(said["client"], said["event"], strict=True))


@HOWS
def test_an_answer_that_cannot_be_used_is_heard_with_noisy_middles(tmp_path, how, monkeypatch):
    signals = {
        "update_norm": {"low": 0.0, "high": 2.0, "multiplier": 20.0},
        "loss": NUMBERS["loss"],
    }
    rule = {"name": "hetero_select_v1", "probe": "last_report"}
    setup = private(
        {**signals, "label_histogram": {"multiplier": 20.0}},
        rule,
        cohort=6,
        privacy=MORE,
        stop={"rounds": 2},
    )
    on = federation(setup, tmp_path)
    heard = []
    spoilt(on, 1, how)
    observe = Selector.observe
    monkeypatch.setattr(
        Selector,
        "observe",
        lambda self, t, reports: heard.append(reports) or observe(self, t, reports),
    )
    deploy(on, setup, tmp_path / "real")
    steps = [reports for reports in heard if len(reports) and reports.outcome[0] > Outcome.PROBED]
    assert len(steps) == 2
    for reports in steps:
        assert {int(one) for one in reports.outcome} == {int(Outcome.ACCEPTED)}
        for name in signals:
            assert np.isfinite(reports.signal(name)).all()
