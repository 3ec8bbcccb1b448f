"""Both deployments with a file of clients, in one process: names in tables and reports, refusals as
incidents, private files."""

from __future__ import annotations

import re

import pytest

import motley
from motley.core.errors import ConfigError
from motley_flower import participation
from motley_flower.client_list import ClientList
from motley_flower.deployed import request_codec
from motley_flower.deployed.grid_transport import GridTransport
from motley_flower.deployed.protocol import SPARE
from motley_flower.deployed.request_codec import RequestCodec
from motley_flower.deployed.server_app import _check_proxy, run
from motley_flower.operator.kits import begin
from tests.motley_flower import apps
from tests.motley_flower.client_runtimes import SOON, experiment, federation
from tests.motley_flower.fake_grid import FakeNode
from tests.motley_flower.keys import client_file, public_key

NAMES = ("alder", "birch", "cedar", "dogwood", "elm", "fir")


def modes(folder):
    return {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))}


@pytest.fixture
def path(tmp_path):
    return client_file(tmp_path / "clients.toml", NAMES)


def test_the_own_loop_knows_clients_by_name(tmp_path, path, capsys):
    setup = experiment(algorithm="scaffold")
    grid = federation(setup, tmp_path)
    for k, node in enumerate(grid.nodes.values()):
        node.public_key = public_key(k)
    grid.nodes[99] = FakeNode(grid.nodes[100].app, {"partition-id": 0}, public_key=public_key(50))
    grid.nodes[105].config["partition-id"] = 0  # fir says that it is alder
    transport = GridTransport(grid, clock=grid.clock, clients=ClientList(path))
    done = run(transport, setup, out=tmp_path / "run", limits=SOON)
    assert set(done.column("clients", "client").tolist()) <= {0, 1, 2, 3, 4}
    told = {(row["client"], row["event"]) for row in done.tables["incidents"].to_pylist()}
    assert {(-1, "refused"), (5, "refused")} <= told
    assert done.client_name(1) == "birch"
    assert done.client_name(-1) == "no client"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "birch" in page
    assert 'said">client 1<' not in page
    assert re.search(r"round 1 of 4, asked \w+, \w+ and \w+, ", capsys.readouterr().err)
    assert modes(tmp_path / "run") == {0}
    assert modes(tmp_path / "sites") == {0}


def test_a_strategy_knows_clients_by_name_and_its_files_are_private(tmp_path, path):
    on = apps.grid(3)
    for k, node in enumerate(on.nodes.values()):
        node.public_key = public_key(k)
    on.nodes[7] = FakeNode(apps.sgd, {"partition-id": 1}, public_key=public_key(50))
    coordinator, _ = apps.run(on, rounds=2, out=tmp_path / "run", clients=path)
    table = participation(coordinator).splitlines()
    assert {line.split()[1] for line in table[1:5]} <= set(NAMES)
    done = motley.load(tmp_path / "run")
    told = done.tables["incidents"].to_pylist()
    assert [(row["client"], row["event"]) for row in told] == [(-1, "refused")]
    assert done.meta["clients"]["0"] == "alder"
    assert modes(tmp_path / "run") == {0}
    again, _ = apps.run(apps.grid(0), rounds=2, out=tmp_path / "run", clients=path)
    assert [row.reason for row in again.rows] == [""] * 4


def test_a_file_that_does_not_fit_the_experiment_is_a_sentence(tmp_path, path):
    setup = experiment(population=4)
    grid = federation(setup, tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"names client 4 \(elm\), and the experiment has clients 0 to 3; write population = "
        r"6",
    ):
        run(
            GridTransport(grid, clock=grid.clock, clients=ClientList(path)),
            setup,
            out=tmp_path / "run",
        )
    with pytest.raises(ConfigError, match="got a transport without a file of clients"):
        run(GridTransport(grid, clock=grid.clock), setup, out=tmp_path / "run", clients=path)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"algorithm": {"name": "scaffold"}},
        {
            "compressor": {"name": "topk"},
            "budget": {"name": "constant", "average": 1.0},
            "feedback": {"name": "fixed"},
        },
        {"selector": {"name": "delta"}},
    ],
    ids=["plain", "two parts", "compressed", "probed"],
)
def test_no_answer_is_larger_than_the_largest_that_is_foreseen(keys, tmp_path, monkeypatch):
    """The proxy lets through so much and no more; what is foreseen is at most four times what is
    sent, and some that no model makes larger."""
    setup = experiment(**keys, stop={"rounds": 1})
    grid = federation(setup, tmp_path)
    for k, node in enumerate(grid.nodes.values()):
        node.public_key = public_key(k)
    sent = []
    opened = request_codec.open_answer

    def measured(data, limit):
        sent.append(len(data))
        return opened(data, limit)

    foreseen = []
    largest = RequestCodec.largest_answer
    monkeypatch.setattr(request_codec, "open_answer", measured)
    monkeypatch.setattr(
        RequestCodec, "largest_answer", lambda *words: foreseen.append(largest(*words)) or 0
    )
    transport = GridTransport(
        grid, clock=grid.clock, clients=ClientList(client_file(tmp_path / "clients.toml", NAMES))
    )
    run(transport, setup, out=tmp_path / "out", limits=SOON, clients=tmp_path / "clients.toml")
    assert max(sent) <= foreseen[0] <= 4 * max(sent) + SPARE


def test_an_experiment_that_the_proxy_would_not_let_through_is_a_sentence(tmp_path, monkeypatch):
    there = begin(tmp_path / "there", "fl.example.org", list(NAMES), largest_mb=2)
    listed = there.folder / "clients.toml"
    setup = experiment()
    grid = federation(setup, tmp_path)
    monkeypatch.setattr(RequestCodec, "largest_answer", lambda codec, probed: 2 * 2**20 + 1)
    transport = GridTransport(grid, clock=grid.clock, clients=ClientList(listed))
    said = "has up to 3 MB, and the proxy takes 2; motley deployment limit 3 --dir "
    with pytest.raises(ConfigError, match=said):
        run(transport, setup, out=tmp_path / "out", clients=listed)
    _check_proxy(listed, 2 * 2**20)
    _check_proxy(tmp_path / "clients.toml", 10**12)  # no proxy of ours is beside it
