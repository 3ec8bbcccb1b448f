"""A head for each group of clients: against training and averaging written out, what travels, and
what it does not go with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError
from motley.core.ragged import Ragged
from motley.experiments.build import build, prepare
from motley.experiments.config import Experiment
from motley.tasks.flat import FlatModule
from motley.tasks.task import Federation, Task
from motley_flower.deployed.server_app import refuses
from tests.rows import Rows

SIZES, DEPTH = (8, 12, 20), 4 * 3 + 3  # the last layer has 4 rows of 3 weights and a bias
GROUPS = ((0, 1), (2, 3), (2, 3))  # the classes of each client


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 4))


def own(heads: tuple[int, ...] = (0, 0, 1, 1)) -> Task:
    """Three clients, of which the first tells other classes apart than the others."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(3), SIZES)
    y = torch.from_numpy(np.array(GROUPS)[owner, rng.integers(0, 2, 40)])
    ends = np.concatenate([[0], np.cumsum(SIZES)])
    none = Ragged(np.zeros(4, np.int64), np.zeros(0, np.int64))
    rows = Ragged(ends, np.arange(40))
    data = Federation(
        torch.from_numpy(rng.normal(size=(40, 4))), y, rows, y.clone(), none, rows, None, 4
    )
    return Task("own", data, mlp, heads=heads)


KEYS: dict[str, Any] = {
    "task": "own",
    "cohort": 3,
    "stop": {"rounds": 2},
    "evaluate": {"every": 1},
    "dtype": "float64",
    "local": {"batch_size": 20, "optimizer": {"lr": 0.5}},
    "engine": {"name": "threads", "threads": 1},
}


def run(task: Task, **keys: Any):
    rows = Rows()
    loop = build({**KEYS, **keys}, writer=rows, task=task)
    before = loop.state.server.model.x.clone()
    loop.step()
    return loop, before, rows


def stepped(
    x: torch.Tensor, inputs: torch.Tensor, y: torch.Tensor, head: tuple[int, ...]
) -> torch.Tensor:
    """Return the change of the model by one full-batch step on the outputs of a head."""
    net = mlp().double()
    nn.utils.vector_to_parameters(x, net.parameters())
    loss = nn.functional.cross_entropy(net(inputs)[:, list(head)], y - head[0])
    slopes = torch.autograd.grad(loss, list(net.parameters()))
    return -0.5 * torch.cat([g.reshape(-1) for g in slopes])


@pytest.mark.parametrize("engine", ["sequential", "threads", "batched", "vmap"])
def test_heads_are_averaged_within_their_group_and_the_base_over_everybody(engine: str) -> None:
    """Weights by samples: 8, 12 and 20 of 40 in the base, 8 of 8 in the first head, 12 and 20 of 32
    in the second."""
    task = own()
    loop, x, _ = run(task, engine=engine)
    data = task.federation
    deltas = []
    for k, head in enumerate(GROUPS):
        at = torch.from_numpy(data.train[k])
        deltas.append(stepped(x, data.x[at], data.y[at], head))
    base = sum(n / 40 * delta for n, delta in zip(SIZES, deltas, strict=True))
    second = 12 / 32 * deltas[1] + 20 / 32 * deltas[2]
    wanted = base.clone()
    last = slice(15, 27)
    bias = slice(27, 31)
    wanted[last] = torch.cat([deltas[0][15:21], second[21:27]])
    wanted[bias] = torch.cat([deltas[0][27:29], second[29:31]])
    torch.testing.assert_close(loop.state.server.model.x, x + wanted, rtol=1e-10, atol=1e-12)


def test_a_client_is_examined_among_the_classes_of_its_head() -> None:
    task = own()
    loop, _, rows = run(task)
    found = rows.tables["evaluations"][-1]
    data = task.federation
    flat = FlatModule.of(mlp, torch.float64)
    flat.load(loop.state.server.model)
    for k, head in enumerate(GROUPS):
        at = torch.from_numpy(data.test[k])
        outputs = flat.module(data.x[at])[:, list(head)]
        row = found["scope"].index("client") + k
        assert found["accuracy"][row] == pytest.approx(
            (outputs.argmax(1) == data.y[at] - head[0]).double().mean().item()
        )
        assert found["loss"][row] == pytest.approx(
            nn.functional.cross_entropy(outputs, data.y[at] - head[0]).item()
        )


def test_other_heads_do_not_travel() -> None:
    """31 parameters without the 2 x 4 of the other head, both ways."""
    row = run(own())[2].tables["rounds"][0]
    assert row["down_bits"] == row["up_paper_bits"] == 3 * 32 * (31 - 8)


def test_one_head_is_fedavg_bit_for_bit() -> None:
    one, two = (run(own(heads))[0].state.server.model.x for heads in ((0, 0, 0, 0), ()))
    assert torch.equal(one, two)


def test_heads_are_an_option_of_the_task() -> None:
    keys = {
        "task": {
            "name": "image",
            "model": {"name": "mlp", "hidden": [8]},
            "heads": [0] * 5 + [1] * 5,
        },
        "population": 6,
        "cohort": 3,
        "stop": {"rounds": 1},
        "partition": {"name": "label_count", "labels": 2},
    }
    loop = build(keys)
    loop.step()
    assert loop.setting.task.heads == (0,) * 5 + (1,) * 5
    assert (
        Experiment(**keys).run_id()
        != Experiment(**{**keys, "task": {**keys["task"], "heads": [0] * 10}}).run_id()
    )
    assert (
        Experiment(**{**KEYS, "task": own()}).run_id()
        != Experiment(**{**KEYS, "task": own(())}).run_id()
    )


@pytest.mark.parametrize(
    ("heads", "keys", "message"),
    [
        (
            (0, 0, 1),
            {},
            r"task.heads: got 3 numbers; expected the number of a head for each of the 4 classes",
        ),
        ((0, 0, 0, 1), {}, "each for at least two classes, or there is nothing to tell apart"),
        (
            None,
            {"algorithm": "fedper"},
            "under 'fedper' clients do not send one update of the whole model",
        ),
        (
            None,
            {"algorithm": "scaffold", "weights": "uniform"},
            "under 'scaffold' clients do not send one update",
        ),
        (None, {"algorithm": "heterofl"}, "heads go with cross-entropy"),
        (
            None,
            {"algorithm": "moon"},
            "'moon' trains with ContrastiveLoss; heads go with cross-entropy without label "
            "smoothing",
        ),
        (
            None,
            {"loss": {"name": "cross_entropy", "label_smoothing": 0.1}},
            "without label smoothing",
        ),
        (
            None,
            {"server": "adam"},
            "ServerAdam works on whole updates, and clients of different heads update different "
            "rows",
        ),
        (None, {"aggregator": "median", "weights": "uniform"}, "Median works on whole updates"),
        (
            None,
            {"weights": "horvitz_thompson"},
            "a head is divided by the weights of the clients that hold it",
        ),
        (
            None,
            {"compressor": "topk", "budget": {"name": "constant", "average": 0.5}},
            "clients send their own heads alone",
        ),
    ],
)
def test_what_heads_do_not_go_with(
    heads: tuple[int, ...] | None, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, **keys}, task=own() if heads is None else own(heads))


def test_a_model_of_other_outputs_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="the model's last linear layer has 5 rows, and there are 4 classes"
    ):
        build(KEYS, task=replace(own(), model=lambda: nn.Linear(4, 5), layout=None))


def test_heads_are_for_simulations() -> None:
    experiment = Experiment(**{**KEYS, "task": own()})
    assert "only in a simulation" in str(refuses(experiment, prepare(experiment)))


def test_heads_go_with_other_local_objectives() -> None:
    for name in ("fedprox", "ditto"):
        loop, _, _ = run(own(), algorithm=name)
        assert loop.state.server.model.x.isfinite().all()
