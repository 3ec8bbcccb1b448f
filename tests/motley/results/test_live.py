"""Runs are followed while they are written: how far they are, and what is half written."""

import json
import os
import sys
from math import isnan
from pathlib import Path

import pytest

from motley.cli import call
from motley.results.journal import FILE
from motley.results.live import LiveFolder, in_words
from motley.results.writer import Writer

sys.path.insert(0, str(Path(__file__).parent))
import fake

NOBODY = 2**31 - 1
"""A number that no process has."""


def a_round(number):
    """Round ``number``: 0.5 s of wall time each, 2 from round 3 on; accuracy 0.1, 0.2, ..."""
    at = {
        "round": number,
        "selections": number,
        "time_s": 10.0 * number,
        "total_bits": 8e6 * number,
    }
    return {
        "rounds": at | {"total_up_paper_bits": 0.0},
        "evaluations": at | {"scope": "mean", "client": -1, "loss": 1.0, "accuracy": number / 10},
        "timings": {"round": number, "wall_s": 0.5 if number < 3 else 2.0},
    }


class Living:
    """A run that goes on in ``folder``: one writes rounds and ends it."""

    def __init__(self, folder, selector="uniform", seed=0, pid=None):
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / ".lock").write_text(str(os.getpid() if pid is None else pid))
        self.meta = fake.meta(selector, seed, finished=False)
        (folder / "run.json").write_text(json.dumps(self.meta))
        self.writer = Writer(folder)
        self.done = 0

    def rounds(self, many):
        for number in range(self.done + 1, self.done + many + 1):
            for table, row in a_round(number).items():
                self.writer.add(table, row)
            self.writer.flush()
        self.done += many

    def end(self):
        self.writer.finish()
        (self.folder / "run.json").write_text(json.dumps({**self.meta, "finished": True}))
        (self.folder / ".lock").unlink()


def test_how_far_a_run_is(tmp_path):
    """60 rounds are planned. After 4 of 0.5, 0.5, 2 and 2 s a round takes 1.25 s on average: 56 x
    1.25 = 70 s are left. After 12 the last ten took 2 s each: 48 x 2 = 96 s."""
    run = Living(tmp_path / "a")
    folder = LiveFolder(tmp_path)
    (before,) = folder.look()
    assert (before.state, before.rounds, before.planned, before.seed) == ("preparing", 0, 60, 0)
    assert isnan(before.score)
    run.rounds(4)
    (now,) = folder.look()
    assert (now.state, now.rounds, now.metric, now.time_s, now.wall_s, now.left_s) == (
        "going on",
        4,
        "accuracy",
        40.0,
        5.0,
        70.0,
    )
    assert (now.score, now.best, now.megabytes) == pytest.approx((40.0, 40.0, 4.0))
    run.rounds(8)
    assert folder.look()[0].left_s == 96.0
    run.end()
    (ended,) = folder.look()
    assert (ended.state, ended.rounds, isnan(ended.left_s)) == ("finished", 12, True)


def test_whose_process_is_gone_has_stopped(tmp_path):
    """A lock names a process; one that is not here may be on another machine, as long as something
    is written."""
    run = Living(tmp_path / "a", pid=NOBODY)
    run.rounds(2)
    assert LiveFolder(tmp_path).look()[0].state == "going on"
    for path in (tmp_path / "a").iterdir():
        os.utime(path, (1e9, 1e9))
    (found,) = LiveFolder(tmp_path).look()
    assert (found.state, found.rounds, isnan(found.left_s)) == ("stopped", 2, True)


def test_what_is_half_written_counts_as_before(tmp_path):
    run = Living(tmp_path / "a")
    folder = LiveFolder(tmp_path)
    run.rounds(3)
    assert folder.look()[0].rounds == 3
    run.rounds(1)
    record = tmp_path / "a" / "run.json"
    stream = tmp_path / "a" / "rounds.arrows"
    whole = record.read_bytes()
    rows = stream.read_bytes()
    record.write_bytes(whole[:20])
    assert folder.look()[0].rounds == 3
    record.write_bytes(whole)
    stream.write_bytes(rows[:-9])
    assert folder.look()[0].rounds == 3
    stream.write_bytes(rows)
    with (tmp_path / "a" / FILE).open("ab") as journal:
        journal.write(b"{")  # a record that is being appended
    assert folder.look()[0].rounds == 4
    begun = tmp_path / "b"
    begun.mkdir()
    (begun / ".lock").write_text(str(os.getpid()))
    assert [(one.label, one.state, one.seed) for one in folder.look()][1] == (
        "b",
        "preparing",
        None,
    )
    (begun / ".lock").unlink()
    assert len(folder.look()) == 1


def test_looking_changes_nothing(tmp_path):
    run = Living(tmp_path / "a")
    run.rounds(2)
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    folder = LiveFolder(tmp_path)
    assert folder.changes() == folder.changes()
    folder.look()
    assert before == {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    was = folder.changes()
    run.rounds(1)
    assert folder.changes() != was


def test_the_command_prints_how_far_they_are(tmp_path, capsys):
    Living(tmp_path / "a").rounds(4)
    ended = Living(tmp_path / "b", "power_of_choice", 1)
    ended.rounds(2)
    ended.end()
    Living(tmp_path / "c", seed=2, pid="damaged").rounds(1)
    os.utime(tmp_path / "c" / ".lock", (1e9, 1e9))
    for path in (tmp_path / "c").iterdir():
        os.utime(path, (1e9, 1e9))
    assert call(["watch", str(tmp_path), "--once"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (
        " ".join(lines[0])
        == "1 of 3 runs finished, 1 goes on, 1 stopped; 70 s left of those that go on"
    )
    assert ["method", "seed", "round", "accuracy", "best", "MB", "took", "left"] in lines
    assert ["uniform", "0", "4", "of", "60", "40.00", "40.00", "4.00", "5", "s", "70", "s"] in lines
    assert ["power_of_choice", "1", "2", "20.00", "20.00", "2.00", "1", "s", "finished"] in lines
    assert ["uniform", "2", "1", "of", "60", "10.00", "10.00", "1.00", "0", "s", "stopped"] in lines


def test_scores_in_several_metrics_are_not_headed_by_one_of_them(tmp_path, capsys):
    Living(tmp_path / "a").rounds(1)
    losses = Living(tmp_path / "b", seed=1)
    losses.rounds(1)
    losses.meta["task"]["metric"] = "loss"
    losses.end()
    assert call(["watch", str(tmp_path), "--once"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["method", "seed", "round", "score", "best", "MB", "took", "left"] in lines


def test_bad_input_is_one_sentence(tmp_path, capsys):
    for words, said in (
        (["watch", str(tmp_path / "none"), "--once"], "there is no folder "),
        (
            ["watch", str(tmp_path), "--once"],
            f"there are no runs in {tmp_path}: no folder below it has a run.json",
        ),
    ):
        assert call(words) == 2
        assert said in capsys.readouterr().err


def test_spans_in_words():
    assert [in_words(s) for s in (0.4, 89.4, 90, 5360, 5400, 86400, float("nan"))] == [
        "0 s",
        "89 s",
        "2 min",
        "89 min",
        "1 h 30 min",
        "24 h 0 min",
        "",
    ]


def test_the_newest_figure_of_a_ruined_run_is_none(tmp_path):
    run = Living(tmp_path / "a")
    run.rounds(2)
    at = {"round": 3, "selections": 3, "time_s": 30.0, "total_bits": 24e6}
    rows = {"scope": "mean", "client": -1, "loss": float("nan"), "accuracy": float("nan")}
    run.writer.add("evaluations", at | rows)
    run.writer.flush()
    (now,) = LiveFolder(tmp_path).look()
    assert isnan(now.score)
    assert now.best == 20.0
