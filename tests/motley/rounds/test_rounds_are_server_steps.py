"""A round is a server step, in every table and summary, also where a server asks for clients more
often than it steps."""

import numpy as np
import pytest

import motley
from motley.results import measures
from motley.results.labels import group_runs
from motley.results.method_rows import TargetRow
from motley.results.tables import costs, to_target
from motley.results.terminal import terminal_tables
from motley_report.print_tables import print_tables
from tests.rows import Rows

KEYS = {
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 8},
    "task": {"name": "quadratic", "dim": 4, "examples": [1, 2, 3, 4, 5, 6]},
    "partition": "by_writer",
    "evaluate": {"every": 2},
    "device": {"name": "uniform", "low": 0.1, "high": 2.0},
    "engine": {"name": "sequential", "threads": 1},
}
BUFFERED = {"name": "buffered", "buffer": 2}
EQUAL = {"name": "quadratic", "dim": 4, "examples": [4] * 6}


@pytest.fixture(scope="module")
def buffered(tmp_path_factory):
    return motley.run(
        KEYS | {"synchrony": BUFFERED},
        out=tmp_path_factory.mktemp("buffered") / "run",
        progress=False,
    )


def test_every_table_counts_server_steps_and_selections_are_a_column(buffered):
    """Eight steps of two uploads each, of three clients in flight that are replaced one by one:
    more selections than rounds."""
    rounds = buffered.tables["rounds"]
    evaluations = buffered.tables["evaluations"]
    assert rounds["round"].to_pylist() == list(range(1, 9))
    assert (np.diff(rounds["selections"].to_pylist()) >= 1).any()
    assert rounds["selections"].to_pylist()[-1] > 8
    assert sorted(set(evaluations["round"].to_pylist())) == [0, 2, 4, 6, 8]
    at = dict(zip(rounds["round"].to_pylist(), rounds["selections"].to_pylist(), strict=True)) | {
        0: 0
    }
    assert evaluations["selections"].to_pylist() == [
        at[number] for number in evaluations["round"].to_pylist()
    ]
    for table in ("clients", "timings"):
        assert set(buffered.column(table, "round").tolist()) == set(range(1, 9))


@pytest.mark.parametrize(
    "synchrony",
    [BUFFERED, "asynchronous", {"name": "deadline", "seconds": 5.0}, "synchronous"],
    ids=str,
)
def test_selections_are_the_calls_of_select_and_no_more(synchrony, monkeypatch):
    """A server step without a selection, of two clients that arrive together, draws anew and
    selects nobody."""
    rows = Rows()
    asked = []
    loop = motley.build(
        KEYS
        | {"synchrony": synchrony, "device": {"name": "constant", "seconds": 1.0}, "task": EQUAL},
        writer=rows,
    )
    select = type(loop.state.selector).select

    def counted(self, draw, *words, **named):
        asked.append(draw)
        return select(self, draw, *words, **named)

    monkeypatch.setattr(type(loop.state.selector), "select", counted)
    told = []
    while not loop.done:
        done = loop.step()
        told.append((done.round, done.selections, len(asked)))
    assert [number for number, _, _ in told] == list(range(1, 9))
    assert all(selections == calls for _, selections, calls in told)
    assert [row["selections"] for row in rows.tables["rounds"]] == [
        selections for _, selections, _ in told
    ]
    assert asked == sorted(set(asked))  # no two selections draw under one number


def test_targets_and_costs_speak_of_rounds_and_show_selections_beside(buffered):
    """The target is the loss of the second last evaluation that is due, that of round 6."""
    along = measures.trained(measures.curve(buffered))
    target = float(along.y[2])
    assert along.x.tolist() == [2, 4, 6, 8]
    assert (np.diff(along.y) < 0).all()
    way = TargetRow("buffered", [buffered], target)
    spent = measures.costs(buffered)
    asked = float(buffered.column("rounds", "selections")[5])
    assert tuple(way.cost(kind).mean.value for kind in ("rounds", "selections")) == (6.0, asked)
    assert (spent.rounds, spent.selections) == (8, buffered.column("rounds", "selections")[-1])
    assert spent.dispatched == buffered.column("rounds", "dispatch")[-1]
    assert spent.dispatched > buffered.tables["clients"].num_rows  # some are in flight at the end
    groups = group_runs([buffered])
    page = to_target(groups, target)
    latex = {table.name: table for table in print_tables(groups, target)}
    assert (page.heads[2:4], [cell.value for cell in page.rows[0].cells[1:3]]) == (
        ("rounds", "selections"),
        [6.0, asked],
    )
    assert [title for title, _ in latex["target"].heads[1:3]] == ["Rounds", "Selections"]
    assert [cell.mean for cell in latex["target"].rows[0][1][1:3]] == [6.0, asked]
    assert [title for title, _ in latex["costs"].heads[:2]] == ["Rounds", "Selections"]
    assert costs(groups).heads[1:3] == ("rounds", "selections")
    assert [column.header for column in terminal_tables([buffered], target)[-1].columns[2:4]] == [
        "rounds",
        "selections",
    ]


def test_a_run_with_one_selection_a_round_shows_no_second_count(tmp_path):
    run = motley.run(KEYS, out=tmp_path / "run", progress=False)
    assert run.column("rounds", "selections").tolist() == run.column("rounds", "round").tolist()
    groups = group_runs([run])
    assert "selections" not in costs(groups).heads
    assert "selections" not in to_target(groups, 1.0).heads
    assert "Selections" not in {
        title for table in print_tables(groups, 1.0) for title, _ in table.heads
    }
    caption = terminal_tables([run])[0].caption
    assert "no stable value (–) where a run has fewer than ten evaluations past its half" in str(
        caption
    )
