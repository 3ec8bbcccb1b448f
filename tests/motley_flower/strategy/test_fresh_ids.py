"""A client that is a new one in every round: without a file of clients its fresh id is tried each
time, with one it is itself."""

from __future__ import annotations

import pytest

from tests.motley_flower import apps
from tests.motley_flower.fake_grid import FakeNode
from tests.motley_flower.keys import client_file, public_key

HONEST = 10
ROUNDS = 30


def attacked(tmp_path, key, **options):
    """Ten clients, and a new node before every round, with an id of its own choice, that stays for
    two rounds."""
    on = apps.grid(HONEST)
    for k, node in enumerate(on.nodes.values()):
        node.public_key = public_key(k)
    count = [0]

    def anew():
        count[0] += 1
        on.nodes.pop(4998 + count[0], None)
        claims = HONEST + 100 + count[0]
        on.nodes[5000 + count[0]] = FakeNode(
            apps.sgd, {"partition-id": claims}, public_key=public_key(key)
        )

    kind = type(apps.fedavg())

    class Renewing(kind):
        def aggregate_train(self, *replies):
            anew()
            return super().aggregate_train(*replies)

    anew()
    strategy = Renewing(fraction_evaluate=0.0)
    coordinator, _ = apps.run(on, "ucb1", m=2, rounds=ROUNDS, strategy=strategy, **options)
    return coordinator


@pytest.mark.parametrize("key", [99, 3])
def test_a_fresh_id_each_round_is_no_client_or_itself(tmp_path, key):
    """The key of a stranger, and that of client 3 at a second node."""
    path = client_file(tmp_path / "clients.toml", [f"site_{k}" for k in range(HONEST)])
    coordinator = attacked(tmp_path, key, clients=path)
    asked = {row.client for row in coordinator.rows}
    assert asked <= set(range(HONEST))
    if key == 99:
        assert any(one.client == -1 for one in coordinator.registry.places.take())


def test_without_a_file_it_is_tried_in_every_round(tmp_path):
    coordinator = attacked(tmp_path, 99)
    tried = {row.round for row in coordinator.rows if row.client >= HONEST}
    # docs/deploy/production.md: an id without the file is worth nothing
    assert len(tried) > ROUNDS * 0.8
