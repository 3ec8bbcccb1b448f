"""Runs of the SuperLink's records in the deployment's log, and files that stay small."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import types

import pytest

pytest.importorskip("cryptography")
from motley.core.errors import ConfigError
from motley_flower.operator import calls, tending
from motley_flower.operator.kits import begin


@pytest.fixture
def there(tmp_path):
    return begin(tmp_path / "there", "fl.example.org", ["a"])


def run(number, finished="", how="", app="stranger/foreign"):
    """A record as Flower's control interface lists it."""
    return types.SimpleNamespace(
        run_id=number,
        fab_id=app,
        fab_version="1.0.0",
        fab_hash="f0759a",
        flwr_aid="<id:none>",
        pending_at=f"2026-11-28T22:34:{number:02}+00:00",
        finished_at=finished,
        status=types.SimpleNamespace(status="finished" if finished else "running", sub_status=how),
    )


def lines(there):
    events = (there.folder / "log.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in events]
    return [one for one in told if one["event"] in ("submitted", "ended")]


def test_each_run_and_its_end_is_a_line_once_also_of_a_foreign_app(there):
    log = tending.RunLog(there.clients)
    log.add([run(2), run(1, "2026-11-28T22:35:00+00:00", "stopped")])
    log.add([run(2), run(1, "2026-11-28T22:35:00+00:00", "stopped")])
    again = tending.RunLog(there.clients)  # the server was started again
    again.add([run(2, "2026-11-28T22:36:00+00:00", "completed")])
    found = [(one["event"], one["run"], one.get("how")) for one in lines(there)]
    assert found == [
        ("submitted", 1, None),
        ("ended", 1, "stopped"),
        ("submitted", 2, None),
        ("ended", 2, "completed"),
    ]
    first = lines(there)[0]
    assert (first["app"], first["app_hash"]) == ("stranger/foreign", "f0759a")
    assert first["when"] == "2026-11-28T22:34:01+00:00"


def test_a_log_with_a_line_that_was_cut_short_is_read(there):
    tending.RunLog(there.clients).add([run(1)])
    with (there.folder / "log.jsonl").open("a") as file:
        file.write('{"at": "2026-\n[]\n')
    tending.RunLog(there.clients).add([run(1)])
    assert (there.folder / "log.jsonl").read_text().count('"submitted"') == 1


def test_more_runs_than_one_call_lists_are_all_found(there, monkeypatch):
    """250 runs, newest first, 100 a call; later only as far as the log does not have ends."""
    runs = [run(k % 60, "2026-11-28T23:00:00+00:00", "completed") for k in range(250)]
    for number, one in enumerate(runs):
        one.run_id = number
    asked = []

    class Listing:
        def ParseFromString(self, body):
            skip = int(body)
            self.run_dict = {one.run_id: one for one in runs[::-1][skip : skip + 100]}

    words = types.SimpleNamespace(
        ListRunsRequest=lambda limit, skip: asked.append(skip) or skip, ListRunsResponse=Listing
    )
    monkeypatch.setattr(tending, "flower", lambda name: words)
    monkeypatch.setattr(
        tending, "call", lambda at, path, message: calls.Called(200, str(message).encode())
    )
    tending.tend(there, looks=1)
    assert asked == [0, 100, 200]
    assert len({one["run"] for one in lines(there)}) == 250
    asked.clear()
    tending.tend(there, looks=1)
    assert asked == [0]
    assert len(lines(there)) == 500


def test_a_superlink_that_is_away_is_logged_and_asked_again(there, monkeypatch, caplog):
    naps = []
    monkeypatch.setattr(tending.time, "sleep", naps.append)
    monkeypatch.setattr(
        tending, "_runs", lambda at, log: (_ for _ in ()).throw(ConfigError("away"))
    )
    tending.tend(there, looks=3)
    assert (caplog.text.count("away"), naps) == (3, [tending.LOOK_S] * 2)


def test_a_superlink_that_can_start_no_app_any_more_is_noticed(there, monkeypatch):
    """Its child has ended, and it does not look."""
    monkeypatch.setattr(tending, "_runs", lambda at, log: [])
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    tending.tend(there, looks=1, superlink=os.getpid())
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and left as it is
    with pytest.raises(ConfigError, match=r"starts apps has ended.*start server/start again"):
        tending.tend(there, looks=1, superlink=os.getpid())
    child.wait()
    assert not tending.has_ended_child(os.getpid())


def test_the_proxy_s_logs_are_rotated_and_three_stay(tmp_path):
    """The proxy keeps the file that it opened, and adds to its end."""
    log = tmp_path / "nginx-access.log"
    with log.open("a", buffering=1) as proxy:
        for number in range(5):
            proxy.write(f"{number}" * 10 + "\n")
            tending.rotate(tmp_path, largest=10)
        proxy.write("5" * 9 + "\n")
        tending.rotate(tmp_path, largest=10)
    assert {path.name: path.read_text() for path in tmp_path.glob("nginx-access*")} == {
        "nginx-access.log": "5" * 9 + "\n",
        "nginx-access.log.1": "4" * 10 + "\n",
        "nginx-access.log.2": "3" * 10 + "\n",
        "nginx-access.log.3": "2" * 10 + "\n",
    }


def test_the_database_s_write_ahead_log_is_emptied_when_it_is_large(tmp_path):
    path = tmp_path / "state.db"
    log = tmp_path / "state.db-wal"
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE objects (content BLOB)")
    writer.execute("INSERT INTO objects VALUES (zeroblob(1000000))")
    writer.commit()
    tending.shrink(path, largest=2_000_000)
    assert log.stat().st_size > 1_000_000
    tending.shrink(path, largest=500_000)
    assert log.stat().st_size == 0
    assert writer.execute("SELECT length(content) FROM objects").fetchall() == [(1_000_000,)]
    writer.close()
