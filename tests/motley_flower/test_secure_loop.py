"""Motley's own loop under secure aggregation: the simulation but for rounding, whoever drops out;
what is refused."""

from __future__ import annotations

import json
import logging
import re
from functools import partial

import numpy as np
import pytest
from safetensors.torch import load_file

import motley
from motley.core.errors import ConfigError
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.grid_transport import bytes_in
from motley_flower.deployed.protocol import Order, open_order
from motley_flower.deployed.secure_rounds import ClientSecrets
from motley_flower.secure.keyfiles import new_identity
from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.terms import HEADER, SecureOptions
from motley_flower.secure_messages import refuse_single
from tests.motley_flower.client_runtimes import answers, columns, deploy, experiment
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

OPTIONS = SecureOptions(clip=1.0, bits=24)
LEVEL = 2.0 / (2**24 - 1)


@pytest.fixture
def keys(tmp_path):
    register = {k: new_identity(tmp_path / f"key-{k}") for k in range(6)}
    (tmp_path / "register.json").write_text(json.dumps(register))
    return tmp_path


def setting(**keys):
    return experiment(**{"weights": "uniform", "cohort": 5, "stop": {"rounds": 3}, **keys})


def federation(setup, keys, failing=None, options=OPTIONS, delays=None, cap=None):
    """Nodes 100, 101, ...; ``failing``: client -> (kind of order, step of secure aggregation or
    None) at which its app raises."""
    node = Node(
        setup,
        keys / "clients",
        secrets=ClientSecrets(options, keys / "key-{client}", keys / "register.json", cap),
    )

    def app(client, message, context):
        kind, step = ({} if failing is None else failing).get(client, ("", None))
        if message.metadata.message_type != "query.motley_enrol":
            order = open_order(bytes_in(message))
            if order.kind == kind and (step is None or order.secure[0] == step):
                raise RuntimeError("lost")
        return answers(node, message, context)

    made = {
        k: FakeNode(partial(app, k), {"partition-id": k}, (delays or {}).get(k, 1.0))
        for k in range(setup.population)
    }
    return FakeGrid({100 + k: node for k, node in made.items()})


def secured(grid, setup, keys, options=OPTIONS, **more):
    register = keys / "register.json"
    return deploy(grid, setup, keys / "real", secure_aggregation=options, register=register, **more)


def apart(first, second):
    """The largest difference between two runs' models."""
    one, two = (load_file(run.directory / "model.safetensors") for run in (first, second))
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def test_it_is_the_simulation_but_for_rounding(keys):
    setup = setting()
    real = secured(federation(setup, keys), setup, keys)
    simulated = motley.run(setup, out=keys / "simulated")
    assert (
        columns(real, "clients")["client"].tolist()
        == columns(simulated, "clients")["client"].tolist()
    )
    assert set(real.column("clients", "outcome")) == {"accepted"}
    # three rounds of local steps carry a rounding on
    assert 0 < apart(real, simulated) < 100 * LEVEL
    # no number of a single update leaves a client
    assert np.isnan(columns(real, "clients")["update_norm"]).all()


@pytest.mark.parametrize("algorithm", ["fedavg", {"name": "feddyn", "alpha": 1.0}])
def test_weights_by_samples(keys, algorithm):
    setup = setting(weights="examples", algorithm=algorithm)
    options = SecureOptions(clip=1.0, bits=24, max_weight=2000, modulus_bits=64)
    real = secured(federation(setup, keys, options=options), setup, keys, options)
    assert apart(real, motley.run(setup, out=keys / "simulated")) < 100 * LEVEL


@pytest.mark.parametrize(
    ("kind", "step"), [("secure", 1), ("secure", 2), ("train", None), ("secure", 4), ("secure", 5)]
)
def test_a_client_that_is_lost_at_any_message(keys, kind, step):
    setup = setting(cohort=6, stop={"rounds": 1})
    real = secured(federation(setup, keys, {2: (kind, step)}), setup, keys)
    told = dict(
        zip(
            real.column("clients", "client").tolist(),
            real.column("clients", "outcome"),
            strict=True,
        )
    )
    assert told.pop(2) == ("accepted" if step in (4, 5) else "dropped")
    assert set(told.values()) == {"accepted"}


def test_garbage_envelopes_cost_their_sender_its_part_and_name_it(keys, monkeypatch):
    honest = SecureClient.share

    def share(self, message):
        answer = honest(self, message)
        return answer[:HEADER] + bytes(len(answer) - HEADER) if self.client == 2 else answer

    monkeypatch.setattr(SecureClient, "share", share)
    setup = setting(cohort=6, stop={"rounds": 1})
    real = secured(federation(setup, keys), setup, keys)
    told = dict(
        zip(
            real.column("clients", "client").tolist(),
            real.column("clients", "outcome"),
            strict=True,
        )
    )
    assert told == {**dict.fromkeys(range(6), "accepted"), 2: "rejected"}
    why = columns(real, "incidents")["reason"].tolist()
    assert "its envelopes could not be opened by clients 0, 1, 3, 4, 5" in why


def sends_random(kind, monkeypatch):
    """Let client 2 send a random vector of the right length in round 2 in place of its update."""
    honest = SecureClient.mask

    def mask(self, message, vector):
        if self.client != 2 or self.terms.round != 2:
            return honest(self, message, vector)
        words = np.frombuffer(np.random.default_rng(1).bytes(vector.nbytes), vector.dtype).copy()
        if kind == "any words":
            return honest(self, message, vector)[: -vector.nbytes] + words.tobytes()
        words >>= 8 if kind == "within the clip" else 0
        words[-1] = 1  # its weight
        return honest(self, message, words)

    monkeypatch.setattr(SecureClient, "mask", mask)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("any words", r"the sum of 6 clients has a weight of \d+, which they cannot send within"),
        ("any words of its weight", "a sum of weight 6 lies outside of what clients can send"),
    ],
)
def test_a_random_vector_costs_the_round_and_leaves_the_model(keys, kind, said, monkeypatch):
    sends_random(kind, monkeypatch)
    setup = setting(cohort=6, evaluate={"every": 1})
    real = secured(federation(setup, keys), setup, keys)
    rounds = columns(real, "rounds")
    assert rounds["accepted"].tolist() == [6, 0, 6]
    assert rounds["rejected"].tolist() == [0, 6, 0]
    told = columns(real, "incidents")
    assert sorted(told["client"].tolist()) == list(range(6))  # nobody can tell who it was
    for why in told["reason"].tolist():
        assert re.match(said, why)
    figures = columns(real, "evaluations")
    for name in ("loss", "accuracy"):
        before, after = (figures[name][figures["round"] == number] for number in (1, 2))
        assert before.tolist() == after.tolist()


def test_a_random_vector_within_the_clip_passes_and_moves_the_model(keys, monkeypatch):
    """As docs/deploy/secure-aggregation.md says. Of six updates one is uniform over [-1, 1]: its
    part of the mean deviates by 1 / (6 sqrt(3)), beside which the others' are small."""
    setup = setting(cohort=6, stop={"rounds": 2})
    simulated = motley.run(setup, out=keys / "simulated")
    sends_random("within the clip", monkeypatch)
    real = secured(federation(setup, keys), setup, keys)
    assert set(real.column("clients", "outcome")) == {"accepted"}
    one, two = (load_file(run.directory / "model.safetensors") for run in (real, simulated))
    moved = np.concatenate([(one[name] - two[name]).flatten().numpy() for name in one])
    assert moved.std() == pytest.approx(1 / (6 * np.sqrt(3)), rel=0.06)


def test_the_claim_is_in_the_record_and_in_the_log(keys, caplog):
    caplog.set_level(logging.INFO, "motley.flower")
    setup = setting(cohort=6, stop={"rounds": 1})
    claim = secured(federation(setup, keys), setup, keys).meta["secure_aggregation"]["claim"]
    assert claim == (
        "of every cohort of 6, 5 clients must remain; no single update is opened to a server that "
        "may send anything and works together with up to 3 clients of the cohort"
    )
    assert claim in caplog.text


def test_a_late_client_has_dropped_out_of_the_sum(keys):
    setup = setting(
        cohort=5,
        stop={"rounds": 1},
        synchrony={"name": "deadline", "seconds": 30.0, "over_select": 1.2},
    )
    on = federation(setup, keys)
    inner = on.nodes[104].app

    def slow(message, context):
        order = message.metadata.message_type != "query.motley_enrol" and open_order(
            bytes_in(message)
        )
        on.nodes[104].delay_s = 1.0
        if order and order.kind == "secure" and order.secure[0] == 2:
            on.nodes[104].delay_s = 60.0  # of the next message, to train
        return inner(message, context)

    on.nodes[104].app = slow
    real = secured(on, setup, keys)
    told = dict(
        zip(
            real.column("clients", "client").tolist(),
            real.column("clients", "outcome"),
            strict=True,
        )
    )
    assert told.pop(4) == "late"
    assert set(told.values()) == {"accepted"}


def test_below_the_threshold_the_model_stays(keys):
    setup = setting(cohort=6, stop={"rounds": 1})
    on = federation(setup, keys, dict.fromkeys((1, 3), ("train", None)))
    real = secured(on, setup, keys)
    told = dict(
        zip(
            real.column("clients", "client").tolist(),
            real.column("clients", "outcome"),
            strict=True,
        )
    )
    assert told == {
        0: "rejected",
        1: "dropped",
        2: "rejected",
        3: "dropped",
        4: "rejected",
        5: "rejected",
    }
    assert real.column("rounds", "accepted").tolist() == [0]
    assert any("nothing is unmasked" in why for why in real.column("incidents", "reason").tolist())
    steps = [
        open_order(bytes_in(m)).secure[:1]
        for m in on.sent
        if m.metadata.message_type == "query.motley" and bytes_in(m)
    ]
    assert bytes([4]) not in steps
    assert bytes([5]) not in steps


def test_a_server_that_is_killed_goes_on_with_fresh_keys(keys):
    setup = setting(stop={"rounds": 4})
    on = federation(setup, keys)

    def stop_after_two(done):
        if done.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        secured(on, setup, keys, told=stop_after_two)
    done = secured(on, setup, keys)
    assert done.finished
    assert set(done.column("clients", "outcome")) == {"accepted"}
    assert apart(done, motley.run(setup, out=keys / "simulated")) < 100 * LEVEL


def test_what_sums_disclose_is_warned_of_across_a_kill(keys, caplog):
    """The sum of all six, and after the kill that of five, disclose the sixth."""
    setup = setting(cohort=6, stop={"rounds": 2})
    failing = {}
    on = federation(setup, keys, failing)

    def stop_after_one(done):
        failing[4] = "train", None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        secured(on, setup, keys, told=stop_after_one)
    assert "the cohorts so far disclose" not in caplog.text
    secured(on, setup, keys)
    assert "round 2: the cohorts so far disclose the update of client 4" in caplog.text


def test_a_client_with_secrets_sends_nothing_in_the_clear(keys):
    setup = setting(stop={"rounds": 1})
    on = federation(setup, keys)
    real = deploy(on, setup, keys / "real")
    assert set(real.column("clients", "outcome")) == {"dropped"}
    assert any(
        "asks for clear updates, and this client sends masked ones" in why
        for why in real.column("incidents", "reason").tolist()
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "train", "want": ("update_norm",), "secure": b"1"},
        {"kind": "probe", "probed": {"gradient": None}},
        {"kind": "probe", "probed": {"grad_norm": 1}},
    ],
    ids=["update_norm", "gradient", "grad_norm"],
)
def test_a_client_with_secrets_reports_nothing_of_a_single_update(keys, asked):
    """Whatever a server says that it is: its own refusal of such rules protects nobody."""
    setup = setting(stop={"rounds": 1})
    secrets = ClientSecrets(OPTIONS, keys / "key-{client}", keys / "register.json", None)
    runtime = Node(setup, keys / "clients", secrets=secrets).runtime(0, {})
    order = Order(run="r-1", agreed=runtime.agreed, client=0, **asked)
    with pytest.raises(ConfigError, match="tells of this client's own update"):
        runtime.answer(0, order.seal())


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ("feel", "grad_norm"),
        ("pyramidfl", "update_norm"),
        ("fedcvr_bolt", "last_layer"),
        ("divfl", "gradient_sketch"),
    ],
)
def test_both_ends_refuse_numbers_of_single_updates_before_round_1(keys, rule, asked):
    """The server names these alone of what a rule needs; a client still tells of its loss."""
    with pytest.raises(ConfigError, match=rf"needs numbers of single updates \({asked}\)"):
        secured(FakeGrid(), setting(selector=rule), keys)
    refuse_single(["loss", "num_examples"])
    with pytest.raises(ConfigError, match=f"asks for '{asked}', which tells of this client's own"):
        refuse_single(["loss", asked])


def test_a_model_with_batch_norm_is_refused(keys):
    setup = setting(
        task={"name": "image", "data": "digits", "model": {"name": "digits_mlp", "norm": "batch"}}
    )
    with pytest.raises(ConfigError, match="the statistics of BatchNorm would stay"):
        secured(FakeGrid(), setup, keys)


def test_the_secrets_of_a_client_are_its_own(keys):
    setup = setting(stop={"rounds": 1})
    secured(federation(setup, keys), setup, keys)
    files = list((keys / "clients").rglob("secure-*.bin"))
    assert len(files) == 5
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"selector": "divfl"}, {}, "DivFL needs numbers of single updates"),
        ({"algorithm": "scaffold"}, {}, "clients send more than an update"),
        (
            {"algorithm": "qfedavg"},
            {},
            "secure_aggregation: this experiment has no secure sum: the algorithm needs single "
            "updates",
        ),
        ({"compressor": "qsgd"}, {}, "compressed updates cannot be masked"),
        (
            {"synchrony": {"name": "buffered", "buffer": 2, "refill": "idle"}},
            {},
            "Buffered has no cohort that is summed as a whole",
        ),
        ({"weights": "examples"}, {}, 'weights = "examples" and max_weight = 1 do not go together'),
        ({}, {"max_weight": 5}, 'weights = "uniform" and max_weight = 5 do not go together'),
        ({"cohort": 2}, {}, "got a cohort of 2; expected 3 to 200"),
        (
            {"cohort": 4, "synchrony": {"name": "deadline", "over_select": 1.5}},
            {},
            "over_select asks 6 clients, of which 5 must remain, and the server steps when 4 have "
            "delivered; lower over_select",
        ),
        ({"weights": "examples"}, {"max_weight": 2000}, "overflows 32; set modulus_bits = 64"),
    ],
)
def test_what_is_refused(keys, changed, options, message):
    setup = setting(**changed)
    chosen = SecureOptions(**{"clip": 1.0, "bits": 20, "max_weight": 1, **options})
    with pytest.raises(ConfigError, match=message):
        secured(FakeGrid(), setup, keys, chosen)
