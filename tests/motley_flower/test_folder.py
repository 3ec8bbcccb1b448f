"""What a deployment leaves: the tables of a simulation, what went wrong with clients, its report;
and what it prints meanwhile."""

from __future__ import annotations

import pytest

import motley
from motley.experiments.progress import OneRun
from motley.results.schema import TABLES
from motley_report.report import report
from tests.motley_flower.client_runtimes import deploy, experiment, federation


def incidents(done):
    """(client, event, reason) in order."""
    rows = done.tables["incidents"].to_pylist()
    return [(row["client"], row["event"], row["reason"]) for row in rows]


def test_it_is_a_run_s_folder_with_a_report(tmp_path, capsys):
    setup = experiment(stop={"rounds": 3})
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real", report=True)
    left = sorted(path.name for path in (tmp_path / "real").iterdir())
    tables = [f"{name}.parquet" for name in TABLES]
    assert left == sorted(
        [*tables, "model.safetensors", "preparation.json", "report.html", "run.json"]
    )
    assert done.tables["incidents"].num_rows == 0
    assert motley.load(tmp_path / "real").finished
    assert [
        len(frame) for frame in (motley.frame([done], "rounds"), motley.frame([done], "clients"))
    ] == [3, 9]
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0]
        == f"deployed, begun, tables in {tmp_path / 'real'}; waiting for the 6 clients, at most 30 "
        "s"
    )
    asked = done.column("clients", "client")[:3].tolist()
    whole = done.column("rounds", "total_bits")[0] / 8e6
    first = (done.column("evaluations", "round") == 1) & (
        done.column("evaluations", "scope") == "global"
    )
    accuracy = done.column("evaluations", "accuracy")[first][0]
    said = (
        f"asked {asked[0]}, {asked[1]} and {asked[2]}, 3 accepted, accuracy {accuracy:#.3g}, "
        f"{whole:.3g} MB, "
    )
    assert lines[1].startswith(f"deployed, round 1 of 3, {said}")
    assert len(lines) == 4
    assert done.meta["command"] == ""  # Flower's holds a token
    page = (tmp_path / "real" / "report.html").read_text()
    assert "How the clients did" in page
    assert "irtual" not in page.split("What was run")[0]


def test_who_was_lost_when_and_why_is_in_a_table(tmp_path):
    """Client 2's node is killed after 27 s, in a round of 5 s: its message ends when the heartbeat
    is missed, 20 s later.

    It comes back as another node, which is said, too."""
    setup = experiment(population=3, cohort=3, stop={"rounds": 14})
    grid = federation(setup, tmp_path, dict.fromkeys(range(3), 5.0))
    grid.heartbeat_s = 20.0
    grid.events = [(27.0, lambda: grid.kill(102)), (75.0, lambda: grid.revive(102, 200))]
    done = deploy(grid, setup, tmp_path / "real")
    found = incidents(done)
    assert {client for client, _, _ in found} == {2}
    assert sorted(event for _, event, _ in found) == [
        "changed",
        "connected",
        "disconnected",
        "lost",
    ]
    assert "its node is gone" in next(reason for _, event, reason in found if event == "lost")
    rows = done.tables["incidents"].to_pylist()
    lost = next(row for row in rows if row["event"] == "lost")
    dropped = next(row for row in done.tables["clients"].to_pylist() if row["outcome"] == "dropped")
    assert (lost["round"], lost["dispatch"]) == (dropped["round"], dropped["dispatch"])
    assert 40 < lost["time_s"] < 55
    assert all(row["at"].endswith("Z") for row in rows)


def test_uploads_that_cannot_be_used_have_a_reason(tmp_path):
    from tests.motley_flower.fake_grid import flower

    setup = experiment(population=3, cohort=3, stop={"rounds": 2})
    grid = federation(setup, tmp_path)
    good = grid.nodes[101].app

    def spoils(message, context):
        answer = good(message, context)
        if message.metadata.message_type == "train.motley":
            answer.content["motley"] = flower().ConfigRecord({"message": b"no message"})
        return answer

    grid.nodes[101].app = spoils
    done = deploy(grid, setup, tmp_path / "real")
    found = incidents(done)
    assert [(client, event) for client, event, _ in found] == [(1, "rejected")] * 2
    assert all(reason for _, _, reason in found)


def test_who_never_came_is_told(tmp_path):
    setup = experiment(population=4, cohort=3, stop={"rounds": 2})
    grid = federation(setup, tmp_path)
    del grid.nodes[103]
    found = incidents(deploy(grid, setup, tmp_path / "real"))
    assert found == [(3, "disconnected", "it was not there within 30 s, and the run began")]


class KilledError(BaseException):
    """As if the process were gone."""


def test_a_killed_server_leaves_a_folder_that_is_read_and_goes_on(tmp_path, capsys):
    setup = experiment(stop={"rounds": 4})

    def told(done):
        if done.round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        deploy(federation(setup, tmp_path), setup, tmp_path / "real", told=told)
    cut = motley.load(tmp_path / "real")
    assert not cut.finished
    assert cut.column("rounds", "round").tolist() == [1, 2]
    page = report([cut], tmp_path / "report.html").read_text()
    assert "not finished" in page
    capsys.readouterr()
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real", report=True)
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0]
        == f"deployed, resumed at round 3 of 4, tables in {tmp_path / 'real'}; waiting for the "
        "clients that it knows, at most 30 s"
    )
    assert lines[1].startswith("deployed, round 3 of 4, asked ")
    assert done.column("rounds", "round").tolist() == [1, 2, 3, 4]
    assert (tmp_path / "real" / "report.html").exists()


def test_nothing_is_printed_where_it_is_not_wanted(tmp_path, capsys):
    setup = experiment(stop={"rounds": 2})
    deploy(federation(setup, tmp_path / "a"), setup, tmp_path / "a" / "real", progress=False)

    class Steps(OneRun):
        def __init__(self):
            self.steps = []

        def round(self, done):
            self.steps.append(done.round)

    steps = Steps()
    deploy(federation(setup, tmp_path / "b"), setup, tmp_path / "b" / "real", progress=steps)
    assert steps.steps == [1, 2]
    assert capsys.readouterr().err == ""
