"""A private run on real messages: no clear signal leaves a client, what was asked for is counted, and the claim says where noise
comes from."""

from __future__ import annotations

import struct
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from motley.adapters.flower.deployed.client_app import Node
from motley.adapters.flower.deployed.client_runtime import ClientRuntime
from motley.adapters.flower.deployed.grid_transport import bytes_in
from motley.adapters.flower.deployed.protocol import Order, open_answer, pack
from motley.adapters.flower.deployed.secure_rounds import secure_refusal
from motley.adapters.flower.deployed.server_app import refuses
from motley.core.errors import CodecError, ConfigError
from motley.core.records import SignalRequirements
from motley.engines.local import Sequential
from motley.experiments.build import prepare
from motley.privacy.ledger import PrivacyState
from motley.rounds.private import PrivateRounds
from motley.secure.terms import SecureOptions
from motley.transport import wire
from tests.adapters.flower.client_runtimes import answers, deploy, experiment, federation

pytest.importorskip("dp_accounting")

NUMBERS = {
    "loss": {"low": 0.0, "high": 5.0, "multiplier": 20.0},
    "num_examples": {"low": 0.0, "high": 100.0, "multiplier": 20.0},
}
NOISE = {"loss": ("laplace", 0.0, 5.0, 20.0), "num_examples": ("laplace", 0.0, 100.0, 20.0)}


def private(signals=NUMBERS, selector=None, **keys):
    more = keys.pop("privacy", {})
    table = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0, "signal_noise": signals, **more}
    return experiment(
        **{"weights": "uniform", "selector": selector or {"name": "power_of_choice", "d": 5}, "privacy": table, **keys}
    )


def test_a_private_run_is_no_secure_sum():
    setup = experiment(weights="uniform", privacy={"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0})
    assert "the server of a private run clips single uploads and adds the noise itself" in (
        secure_refusal(prepare(setup), SecureOptions(clip=1.0)) or ""
    )


def test_a_private_deployment_counts_and_claims(tmp_path):
    setup = private()
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real", report=True)
    claim = " ".join(done.meta["privacy"]["claim"])
    assert "The server adds the noise of the sums, sees uploads" in claim
    assert "Clients add the noise of their signals before they send them." in claim
    assert "operating system's generator" in claim
    counts = done.tables["privacy"].to_pydict()
    rows = done.tables["clients"].to_pydict()
    assert counts["sums"] == counts["choices"] == [rows["client"].count(client) for client in range(6)]
    assert sum(counts["signals"]) == 6 + 5 * 4  # sizes once, and the losses of d = 5 candidates in 4 rounds
    assert rows["num_examples"] == rows["loss"] == rows["update_norm"] == [None] * 12  # the server knows none of these
    assert done.tables["federation"].to_pydict()["num_train"] == [None] * 6


# ------------------------------------------------------------------------------------- on the wire


def sent_by_clients(setup, folder, monkeypatch):
    """Run a deployment; return all answers' bytes, and the 8 bytes of every clear number: sizes, losses, norms, histograms."""
    seen, clear = [], {}
    measure, train = Sequential.measure, Sequential.train

    def noted(name, values):
        for value in np.ravel(values):
            clear.setdefault(name, set()).add(struct.pack("<d", float(value)))

    def measured(self, *given):
        found = measure(self, *given)
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
    clear["label_histogram"] |= {(row / row.sum()).astype("<f8").tobytes() for row in data.histogram()}
    return seen, clear


def test_no_clear_number_is_among_the_bytes_that_clients_send(tmp_path, monkeypatch):
    """The rule wants all kinds of signals: a histogram once, losses before the choice, norms of updates."""
    signals = {"loss": NUMBERS["loss"], "update_norm": {"low": 0.0, "high": 2.0, "multiplier": 20.0}}
    signals["label_histogram"] = {"multiplier": 20.0}
    v1 = {"selector": "hetero_select_v1", "stop": {"rounds": 2}}
    with monkeypatch.context() as patch:
        seen, clear = sent_by_clients(private(signals, **v1), tmp_path, patch)
    assert {"loss", "update_norm", "num_examples", "label_histogram"} <= clear.keys()
    for name, values in clear.items():
        assert not [value for value in values for data in seen if value in data], name
    names = [sorted(open_answer(data, 10**9).signals) for data in seen]
    assert {tuple(found) for found in names} == {("label_histogram",), ("loss",), ("update_norm",)}
    control, found = sent_by_clients(experiment(weights="uniform", **v1), tmp_path / "control", monkeypatch)
    for name in ("loss", "update_norm", "num_examples", "label_histogram"):  # the search does find clear numbers
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


def answer(at, kind, client=2, **asked):
    model = b"" if kind == "enrol" else pack(at.like)
    order = Order(kind, "run", at.agreed, client, **{"round": 1, "model": model, **asked})
    return open_answer(at.answer(client, order.seal()), 10**9)


def test_what_is_clipped_and_noised_as_the_order_says(tmp_path):
    """With next to no noise: a size above the interval's end, a loss below its beginning; shares sum to one."""
    at = runtime(tmp_path)
    small = {"num_examples": ("laplace", 0.0, 5.0, 1e-9), "label_histogram": ("laplace", None, None, 1e-9)}
    told = answer(at, "enrol", want=("num_examples", "label_histogram"), noise=small).signals
    counts = at.setting.task.federation.histogram()[2]
    assert float(told["num_examples"]) == pytest.approx(5.0, abs=1e-6)
    np.testing.assert_allclose(told["label_histogram"], counts / counts.sum(), atol=1e-6)
    low = {"loss": ("gaussian", 50.0, 60.0, 1e-9)}
    assert float(answer(at, "probe", probed={"loss": None}, noise=low).signals["loss"]) == pytest.approx(50.0, abs=1e-6)
    told = answer(at, "train", dispatch=0, steps=2, lr=0.1, want=("loss",), noise=low).signals
    assert {name: round(float(value), 5) for name, value in told.items()} == {"loss": 50.0}


def test_a_clients_noise_is_no_function_of_the_seed(tmp_path):
    at, noise = runtime(tmp_path), {"loss": NOISE["loss"]}
    twice = [float(answer(at, "probe", probed={"loss": None}, noise=noise).signals["loss"]) for _ in range(2)]
    assert twice[0] != twice[1]


def test_gumbel_noise_is_left_to_the_server(tmp_path):
    cut = {"loss": ("gumbel", 0.0, 0.5, 20.0)}
    assert float(answer(runtime(tmp_path), "probe", probed={"loss": None}, noise=cut).signals["loss"]) == 0.5


def test_enrolment_is_released_once(tmp_path):
    """Asked again by a server that was started again, in another process: the same number, until the noise is another."""

    def told(noise):
        return float(answer(runtime(tmp_path), "enrol", want=("num_examples",), noise=noise).signals["num_examples"])

    noise = {"num_examples": NOISE["num_examples"]}
    first = told(noise)
    assert told(noise) == first
    assert told({"num_examples": ("laplace", 0.0, 100.0, 30.0)}) != first
    (file,) = tmp_path.glob("enrolled-*-2.bin")
    file.write_bytes(b"nothing")
    assert told(noise) != first


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "asks for 'num_examples' clear, and this client's .privacy. for laplace noise of multiplier 20 at least"),
        ({"noise": {"num_examples": ("laplace", 0.0, 100.0, 19.0)}}, "with laplace noise of multiplier 19, and"),
        ({"noise": {"num_examples": ("gumbel", 0.0, 100.0, 20.0)}}, "with gumbel noise of multiplier 20, and"),
        ({"want": ("label_histogram",)}, "asks for 'label_histogram', and this client's .privacy. has no noise for it"),
    ],
)
def test_a_client_with_privacy_sends_no_clear_signal(tmp_path, asked, said):
    at = runtime(tmp_path, private())
    with pytest.raises(ConfigError, match=said):
        answer(at, "enrol", **{"want": ("num_examples",), **asked})
    answer(at, "enrol", want=("num_examples",), noise={"num_examples": ("laplace", 0.0, 5.0, 25.0)})  # more noise is welcome


def test_a_server_without_privacy_hears_nothing_of_such_clients(tmp_path):
    setup = experiment()
    on = federation(setup, tmp_path)
    node = Node(private(), tmp_path / "sites")
    for k in range(6):
        on.nodes[100 + k].app = partial(answers, node)
    with pytest.raises(ConfigError, match=r"the server asks for 'num_examples' clear"):
        deploy(on, setup, tmp_path / "real")


@pytest.mark.parametrize(
    ("noise", "error", "said"),
    [
        ({"num_examples": ("laplace", 0.0, 0.0, 1.0)}, ConfigError, "expected low below high"),
        ({"num_examples": ("laplace", 0.0, 1.0, 0.0)}, ConfigError, "got a multiplier of 0"),
        ({"num_examples": ("laplace", 0.0, float("inf"), 1.0)}, ConfigError, "multiplier"),
        ({"num_examples": ("none", 0.0, 1.0, 1.0)}, CodecError, "noise or weights that are none"),
        ({"num_examples": ("laplace", 0.0, 1.0)}, CodecError, "noise or weights that are none"),
        ({"num_examples": ["laplace", 0.0, 1.0, 1.0]}, CodecError, "noise or weights that are none"),
    ],
)
def test_noise_that_cannot_be(tmp_path, noise, error, said):
    with pytest.raises(error, match=said):
        answer(runtime(tmp_path), "enrol", want=("num_examples",), noise=noise)


def test_a_client_weighs_its_upload_itself(tmp_path):
    """Client 2 has n samples: with a cap of 2 n its update is multiplied by a half, with a cap below n it is whole."""
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
    """Client 1 answers no request to train: its signals may have left all the same. One sum at most."""
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
    weights, clipped = [], PrivateRounds.clipped

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
            {"weights": "examples", "privacy": {"max_examples": 50, "max_rounds": 9}, "synchrony": "asynchronous"},
            'write weights = "uniform"',
        ),
    ],
)
def test_what_is_refused(changed, said):
    setup = private(**changed)
    assert said in (refuses(setup, prepare(setup)) or "")
