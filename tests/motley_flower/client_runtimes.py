"""Federations of sites in this process: every client a node of the fake grid."""

from __future__ import annotations

from functools import partial

import numpy as np
from safetensors.torch import load_file

from motley.experiments.config import Experiment
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.grid_transport import GridTransport
from motley_flower.deployed.server_app import Limits, run
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

BASE = {
    "name": "deployed",
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 4},
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "split": {"test": "global"},
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "local": {"steps": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "evaluate": {"every": 1},
    "engine": "sequential",
    "dtype": "float64",
}
SOON = Limits(start_s=30.0, work_s=600.0, query_s=60.0, poll_s=0.25, look_s=2.0)


def experiment(**keys):
    return Experiment(**{**BASE, **keys})


def answers(node, message, context):
    """As a ClientApp: by the kind of message."""
    return (
        node.enrol(message, context)
        if message.metadata.message_type == "query.motley_enrol"
        else node.answer(message, context)
    )


def federation(setup, folder, delays=None, task=None):
    """A grid whose nodes 100, 101, ... are clients 0, 1, ..."""
    nodes = {}
    node = Node(setup, folder / "sites", task)
    for client in range(setup.population):
        delay = (delays or {}).get(client, 1.0)
        nodes[100 + client] = FakeNode(partial(answers, node), {"partition-id": client}, delay)
    return FakeGrid(nodes)


def deploy(grid, setup, out, limits=SOON, **more):
    """Run to the end; time is the grid's. No report unless asked for: drawing one takes longer than
    the run."""
    return run(
        GridTransport(grid, clock=grid.clock),
        setup,
        out=out,
        limits=limits,
        **{"report": False, **more},
    )


def columns(run, table):
    """Columns by name; words as arrays of str."""
    found = run.tables[table].to_pydict()
    return {
        name: np.array([np.nan if v is None else v for v in values])
        for name, values in found.items()
        if name != "labels"
    }


def same_model(first, second):
    one, two = (load_file(run.directory / "model.safetensors") for run in (first, second))
    assert one.keys() == two.keys()
    return all((one[name] == two[name]).all() for name in one)
