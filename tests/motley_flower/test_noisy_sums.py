"""Noise by clients in Motley's own loop: the simulation but for rounding and noise, caps that a
killed server and a new run cannot undo, terms that are the client's own, and what is refused."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError, SecureAggregationError
from motley.experiments.build import prepare
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.client_runtime import ClientRuntime
from motley_flower.deployed.client_sums import NoisySums
from motley_flower.deployed.grid_transport import bytes_in
from motley_flower.deployed.protocol import agreement, open_answer, open_order
from motley_flower.deployed.secure_rounds import ClientSecrets, secure_refusal
from motley_flower.secure.keyfiles import new_identity
from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.terms import SecureOptions, SecureTerms
from motley_privacy import distributed_noise
from motley_privacy.distributed_noise import ClientNoise
from tests.motley_flower.client_runtimes import answers, deploy, experiment
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.test_secure_loop import apart

pytest.importorskip("dp_accounting")
OPTIONS = SecureOptions(clip=0.5)
PRIVACY = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 1.0, "noise_by": "clients"}


@pytest.fixture
def keys(tmp_path):
    register = {k: new_identity(tmp_path / f"key-{k}") for k in range(6)}
    (tmp_path / "register.json").write_text(json.dumps(register))
    return tmp_path


def setting(privacy=None, **more):
    table = {**PRIVACY, **(privacy or {})}
    task = {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"}
    keys = {
        "task": task,
        "weights": "uniform",
        "cohort": 6,
        "stop": {"rounds": 2},
        "privacy": table,
    }
    return experiment(**{**keys, **more})


def federation(setup, keys, options=OPTIONS, seen=None):
    """Nodes 100, 101, ...; answers to orders to train go into ``seen``."""
    register = keys / "register.json"
    secrets = ClientSecrets(options, keys / "key-{client}", register)
    node = Node(setup, keys / "clients", secrets=secrets)

    def app(message, context):
        reply = answers(node, message, context)
        if seen is not None and message.metadata.message_type == "train.motley":
            order = open_order(bytes_in(message))
            seen.append((order.client, open_answer(bytes_in(reply), 10**9)))
        return reply

    return FakeGrid({100 + k: FakeNode(app, {"partition-id": k}) for k in range(6)})


def secured(grid, setup, keys, out="real", options=OPTIONS, **more):
    register = keys / "register.json"
    return deploy(grid, setup, keys / out, secure_aggregation=options, register=register, **more)


def spent(keys):
    """How many sums each client has counted on its disk."""
    return [int(path.read_text()) for path in sorted((keys / "clients").glob("sums-*"))]


# ------------------------------------------------------------------------------------- rounds


def test_without_the_noise_it_is_the_simulation_but_for_rounding(keys, monkeypatch):
    zeros = lambda n, sigma, entropy: np.zeros(n, np.int64)  # noqa: E731
    monkeypatch.setattr(distributed_noise, "discrete_gaussian", zeros)
    setup = setting()
    real = secured(federation(setup, keys), setup, keys)
    simulated = motley.run(setup, out=keys / "simulated")
    grid = prepare(setup).config.privacy.client_noise.grid
    assert set(real.column("clients", "outcome")) == {"accepted"}
    assert 0 < apart(real, simulated) < 100 * grid  # local steps of round 2 carry a rounding on


def test_with_the_noise_the_claim_is_against_the_server(keys):
    setup = setting()
    done = secured(federation(setup, keys), setup, keys)
    said = " ".join(done.meta["privacy"]["claim"])
    assert "against the server itself, also together with 1 of its clients" in said
    assert "generators of the clients' operating systems" in said
    assert done.tables["privacy"].to_pydict()["sums"] == [2] * 6
    assert spent(keys) == [2] * 6


def test_the_sum_that_the_server_opens_has_the_noise_of_all_six(keys, monkeypatch):
    """z = 3 over four of six: the sum has noise of deviation 3 * 0.5 * sqrt(6/4); of
    2,410 numbers the standard error is 1.5 %. The updates, of norm 0.5 at most, are nothing
    beside it."""
    setup = setting({"noise_multiplier": 3.0}, stop={"rounds": 1})
    moved = []
    noise = prepare(setup).config.privacy.client_noise
    opened = ClientNoise.opened

    def noted(self, total):
        moved.append(opened(self, total))
        return moved[-1]

    monkeypatch.setattr(ClientNoise, "opened", noted)
    secured(federation(setup, keys), setup, keys)
    assert len(moved) == 1
    assert moved[0].std() == pytest.approx(3.0 * 0.5 * np.sqrt(6 / 4), rel=0.06)
    assert noise.honest == 4


def test_a_random_vector_costs_the_round(keys, monkeypatch):
    """Words of the right length and weight in place of one client's update and noise."""
    honest = SecureClient.mask

    def mask(self, message, vector):
        if self.client == 2:
            words = np.random.default_rng(1).bytes(vector.nbytes - vector.itemsize)
            vector = np.frombuffer(words + vector[-1:].tobytes(), vector.dtype)
        return honest(self, message, vector)

    monkeypatch.setattr(SecureClient, "mask", mask)
    setup = setting(stop={"rounds": 1})
    done = secured(federation(setup, keys), setup, keys)
    assert set(done.column("clients", "outcome")) == {"rejected"}
    assert len(done.tables["incidents"]) == 6
    for why in done.column("incidents", "reason"):
        assert re.match("a number of the sum is beyond the .* steps that 6 clients and their", why)


def test_an_update_that_is_not_finite_leaves_as_noise_and_nobody_sees_it(keys):
    """A learning rate beyond all bounds: every update overflows, every client is accepted, and no
    answer says so."""
    local = {"steps": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 1e200}}
    setup = setting(stop={"rounds": 1}, local=local)
    seen = []
    done = secured(federation(setup, keys, seen=seen), setup, keys)
    assert set(done.column("clients", "outcome")) == {"accepted"}
    assert [answer.finite for _, answer in seen] == [True] * 6
    assert [answer.steps for _, answer in seen] == [3] * 6


# ------------------------------------------------------------------------------------- the cap


def test_a_killed_server_gets_no_sum_beyond_the_cap(keys):
    setup = setting({"max_rounds": 2}, stop={"rounds": 3})
    on = federation(setup, keys)

    def stop_after_one(done):
        if done.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        secured(on, setup, keys, told=stop_after_one)
    assert spent(keys) == [1] * 6
    secured(on, setup, keys)
    assert spent(keys) == [2] * 6


def test_a_server_that_forgets_or_makes_up_a_run_gets_none_either(keys):
    """All its folders gone, so that it has a new run, the clients' counts stay: nobody takes part
    in a third sum, and the model stays."""
    setup = setting({"max_rounds": 2})
    secured(federation(setup, keys), setup, keys)
    seen = []
    done = secured(federation(setup, keys, seen=seen), setup, keys, "new")
    assert spent(keys) == [2] * 6
    assert seen == []
    assert set(done.column("clients", "outcome")) == {"dropped"}


def terms(n=6, size=10, options=OPTIONS):
    return SecureTerms(b"r" * 16, 1, 1, options, size, tuple(range(n)))


def sums(folder, cap=3, **more):
    given = {"clip": 0.5, "size": 10, "clients": 6, "survivors": 5, "colluders": 0}
    noise = ClientNoise(**{**given, "noise_multiplier": 1.0, **more})
    return NoisySums(noise, cap, folder, "agreed")


def test_processes_of_one_client_share_its_cap(tmp_path):
    """Twenty at once, each with files of its own: three get a sum."""

    def one(_):
        try:
            return len(sums(tmp_path).words(0, terms(), torch.ones(10)))
        except SecureAggregationError:
            return 0

    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(one, range(20))) == [0] * 17 + [11] * 3
    assert len(sums(tmp_path).words(1, terms(), torch.ones(10))) == 11  # another client's own
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("sums-*"))


def test_a_count_that_cannot_be_read_is_no_zero(tmp_path):
    sums(tmp_path).words(0, terms(), torch.ones(10))
    (tmp_path / "sums-agreed-0").write_bytes(b"\x00garbage")
    with pytest.raises(
        SecureAggregationError, match="expected the number of this client's sums so far: write that"
    ):
        sums(tmp_path).check(0, None)


@pytest.mark.parametrize(
    ("n", "more", "said"),
    [
        (
            4,
            {},
            "the round opens a sum of 3 of 4 clients; .privacy. counts on the noise of 5 of at "
            "most 6",
        ),
        (
            6,
            {"survivors": 6},
            "the round opens a sum of 5 of 6 clients; .privacy. counts on the noise of 6",
        ),
        (7, {}, "of 7 clients"),
    ],
)
def test_a_client_enters_no_sum_with_less_noise_than_it_counts_on(tmp_path, n, more, said):
    with pytest.raises(SecureAggregationError, match=said):
        sums(tmp_path, **more).words(0, terms(n), torch.ones(10))
    assert not list(tmp_path.glob("sums-*"))


# ------------------------------------------------------------------------------------- refusals


def test_less_than_the_clients_own_noise_is_another_experiment(keys, caplog):
    """The server's file has half of the noise, ten times the clip, or a longer run."""
    own = setting()
    changed = ({"noise_multiplier": 0.5}, {"clip": 5.0}, {"survivors": 6})
    others = [setting(one) for one in changed] + [setting(stop={"rounds": 3})]
    assert len({agreement(one) for one in (own, *others)}) == 5
    server = setting({"noise_multiplier": 0.5})
    with pytest.raises(ConfigError, match=r"raised ConfigError: at client_runtime.py, line \d+"):
        secured(federation(own, keys), server, keys)
    assert "the server runs another experiment" in caplog.text  # the clients' own log


def test_agreements_without_noise_by_clients_are_what_they_were():
    plain = experiment(weights="uniform")
    server = experiment(
        weights="uniform", privacy={"clip": 0.5, "delta": 1e-5, "noise_multiplier": 1.0}
    )
    assert agreement(plain) == agreement(server)


def test_neither_end_goes_without_masks(keys):
    setup = setting()
    with pytest.raises(
        ConfigError, match=r"give run\(...\) secure_aggregation=SecureOptions\(clip=0.5\)"
    ):
        deploy(federation(setup, keys), setup, keys / "real")
    with pytest.raises(
        ConfigError, match=r"give serve\(...\) secure_aggregation=SecureOptions\(clip=0.5\)"
    ):
        ClientRuntime(setup, keys / "clients")


@pytest.mark.parametrize(
    ("privacy", "options", "said"),
    [
        (
            {},
            {"clip": 0.1},
            r"its clip is 0.1 and that of \[privacy\], which clients use, 0.5; write "
            r"SecureOptions\(clip=0.5\)",
        ),
        ({}, {"modulus_bits": 64}, r"write SecureOptions\(..., modulus_bits=32\)"),
        (
            {"survivors": 6},
            {},
            r"counts on the noise of 6 of at most 6; write SecureOptions\(..., threshold=0.9167\)",
        ),
        ({"noise_by": "server"}, {}, 'let clients do both, privacy.noise_by = "clients"'),
    ],
)
def test_what_is_refused(privacy, options, said):
    chosen = SecureOptions(**{"clip": 0.5, **options})
    assert re.search(said, secure_refusal(prepare(setting(privacy)), chosen))


def test_the_threshold_that_is_named_is_enough():
    chosen = SecureOptions(clip=0.5, threshold=0.9167)
    assert secure_refusal(prepare(setting({"survivors": 6})), chosen) is None
