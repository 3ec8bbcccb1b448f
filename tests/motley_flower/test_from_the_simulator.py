"""The same bytes in the simulator and in a deployment."""

from __future__ import annotations

import numpy as np
import pytest

from motley.core.records import Report
from motley.experiments.build import build as simulate
from motley.experiments.config import Experiment
from motley.selectors import Selector, build
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import fedavg, grid, model

N = 12
M = 4


@pytest.mark.parametrize("name", ["oort", "hetero_select_v1", "power_of_choice", "flash", "ucb1"])
def test_twenty_rounds_simulated_then_deployed(name, tmp_path):
    experiment = Experiment(
        task={"name": "synthetic"},
        population=N,
        cohort=M,
        stop={"rounds": 40},
        selector=name,
        local={"steps": 2},
        split={"test": "client", "test_fraction": 0.2, "validation": 0.2},
        device={"name": "uniform", "low": 0.1, "high": 0.5},
    )
    simulation = simulate(experiment)
    while simulation.state.draw_index < 20:
        simulation.step()
    (tmp_path / "selector.bin").write_bytes(simulation.state.selector.to_bytes())

    there = Selector.from_bytes((tmp_path / "selector.bin").read_bytes())
    on = grid(N)
    sent = simulation.state.dispatch
    wrapped = with_selector(
        fedavg(),
        there,
        M,
        clock=on.clock,
        rounds_done=20,
        clients_sent=sent,
        save=tmp_path / "after.bin",
    )
    chosen = []
    select = there.select

    def noted(*args):
        chosen.append(args)
        return select(*args)

    there.select = noted

    if name in ("oort", "ucb1"):  # these probe nothing: told the same so far, they choose the same
        choice = sorted(simulation.state.selector.select(21, range(N), M, sent).ids.tolist())
        wrapped.start(on, model(), num_rounds=1, timeout=50)
        assert sorted(row.client for row in wrapped.motley.rows) == choice
        assert chosen[0][0] == 21
        assert chosen[0][1].tolist() == list(range(N))
        assert chosen[0][2:] == (M, sent)
    wrapped.start(on, model(), num_rounds=3, timeout=50)
    assert all(args[0] > 20 for args in chosen)
    assert {row.outcome for row in wrapped.motley.rows} == {"accepted"}
    assert (tmp_path / "after.bin").read_bytes() == there.to_bytes()
    again = Selector.from_bytes((tmp_path / "after.bin").read_bytes())
    assert (
        again.select(40, range(N), M, 0).ids.tolist()
        == there.select(40, range(N), M, 0).ids.tolist()
    )


def test_probed_alike_the_choice_is_the_simulators():
    """Both are told the same losses; the deployment through messages."""
    on = grid(N)
    known = build("hetero_select_v1", seed=5)
    deployed = build("hetero_select_v1", seed=5)
    wrapped = with_selector(fedavg(), deployed, M, clock=on.clock)
    heard = []
    observe = deployed.observe

    def listening(round, reports):
        heard.append((round, list(reports)))
        observe(round, heard[-1][1])

    deployed.observe = listening
    wrapped.start(on, model(), num_rounds=5, timeout=50)
    sent = 0
    for t in range(1, 6):
        for at, reports in heard:
            if (at == 0 and t == 1) or (at == t and reports[0].outcome.name == "PROBED"):
                known.observe(at, reports)
        choice = sorted(known.select(t, np.arange(N), M, sent).ids.tolist())
        sent += len(choice)
        assert choice == sorted(row.client for row in wrapped.motley.rows if row.round == t)
        known.observe(t, [report for at, reports in heard if at == t for report in told(reports)])
    assert known.to_bytes() == deployed.to_bytes()


def told(reports: list[Report]) -> list[Report]:
    return [report for report in reports if report.outcome.name != "PROBED"]
