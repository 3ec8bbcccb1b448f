"""The folder of a run: one holder, one record, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from motley.core.errors import StoreError
from motley.experiments import store
from motley.experiments.config import Experiment
from motley.experiments.store import (
    RunFolder,
    default_folder,
    describe,
    ensure_space,
    source_commit,
)
from motley.experiments.sweep import compare

PLAIN = Experiment(population=10, cohort=2, stop={"rounds": 3}, task="quadratic")
HOLDER = """
import sys, time
from motley.experiments.store import RunFolder
with RunFolder(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_default_folder_is_told_by_name_and_id() -> None:
    assert default_folder(PLAIN) == Path("runs") / "experiment" / PLAIN.run_id()
    assert default_folder(PLAIN, Path("x")).parts[0] == "x"


# ----------------------------------------------------------------------------- one holder at a time


def test_a_folder_in_use_is_refused_with_a_sentence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with (
        folder.lock(),
        pytest.raises(StoreError, match=rf"in use by another run \(process {os.getpid()}\)"),
        folder.lock(),
    ):
        pass
    with folder.lock():
        pass


def test_a_folder_in_use_by_another_process(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder.path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"process {holder.pid}"), folder.lock():
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert (folder.path / ".lock").exists()  # it could not clean up, and it holds nothing any more
    with folder.lock():
        pass


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    (folder.path / ".lock").symlink_to(precious)
    with pytest.raises(StoreError, match=r"\.lock is a symbolic link; remove it"), folder.lock():
        pass
    assert precious.read_text() == "mine"


def test_what_a_killed_process_had_still_to_remove_makes_a_run_unfinished(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write({**describe(PLAIN, {}, {}, 3), "finished": True})
    assert folder.finished(PLAIN)
    (tmp_path / ".lock").write_text("17")
    assert not folder.finished(PLAIN)
    assert folder.state(PLAIN, True) == "finished"  # nothing is computed again


def test_nothing_stays_where_nothing_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "a" / "b")
    with pytest.raises(ZeroDivisionError), folder.lock():
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_stays_and_the_lock_goes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs")
    with folder.lock():
        folder.write({"run_id": "x"})
    assert [path.name for path in folder.path.iterdir()] == ["run.json"]


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="is, or lies below, a file"), RunFolder(path).lock():
            pass
        with pytest.raises(StoreError, match="is, or lies below, a file"):
            RunFolder(path).check()


def test_a_folder_is_looked_at_before_any_run_of_a_sweep(tmp_path: Path) -> None:
    RunFolder(tmp_path / "new" / "below").check()
    assert not list(tmp_path.iterdir())  # nothing is made
    with pytest.raises(StoreError, match="File name too long"):
        compare(PLAIN, {}, out=tmp_path / ("a" * 300))


# ------------------------------------------------------------------------------- begin, go on, done


def test_states_of_a_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    record = describe(PLAIN, {}, {}, 7)
    other = PLAIN.replace({"seed": 1})
    assert folder.state(PLAIN, resume=False) == folder.state(PLAIN, resume=True) == "new"
    folder.write({**record, "name": "first"})
    assert folder.state(PLAIN, resume=True) == "interrupted"
    assert not folder.finished(PLAIN)
    with pytest.raises(StoreError, match="holds this run, interrupted; go on with --resume"):
        folder.state(PLAIN, resume=False)
    a = PLAIN.run_id()
    b = other.run_id()
    with pytest.raises(
        StoreError,
        match=rf"holds another run \(first, {a}\); this one is {b}: choose another output folder",
    ):
        folder.state(other, resume=True)
    folder.write({**record, "finished": True})
    assert folder.state(PLAIN, resume=False) == folder.state(PLAIN, resume=True) == "finished"
    assert folder.finished(PLAIN)
    assert not folder.finished(PLAIN.replace({"stop.rounds": 4}))
    assert folder.state(PLAIN.replace({"stop.rounds": 4}), resume=True) == "ended"
    assert folder.state(PLAIN, resume=True, name=a) == "finished"


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(
        StoreError,
        match=r"holds files that are no run \(thesis\.tex, \.\.\.\); choose a new or empty folder",
    ):
        RunFolder(tmp_path).state(PLAIN, resume=False)


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_a_damaged_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(StoreError, match=r"run\.json (cannot be read|holds list)"):
        RunFolder(tmp_path).read()


# --------------------------------------------------------------------------------------- the record


def test_the_record_says_all_that_is_needed_to_run_it_again() -> None:
    record = json.loads(
        json.dumps(
            describe(
                PLAIN, {"threads": 2}, {"metric": "loss", "classes": []}, 7, command="motley run x"
            )
        )
    )
    assert set(record) == {
        "name",
        "run_id",
        "seed",
        "config",
        "numerics",
        "versions",
        "citations",
        "finished",
        "task",
        "parameters",
        "command",
        "commit",
    }
    assert Experiment(**record["config"]).run_id() == record["run_id"]
    assert record["finished"] is False
    assert record["command"] == "motley run x"
    assert {"python", "numpy", "torch"} <= set(record["versions"])
    assert record["citations"][0]["bibtex"].startswith("@inproceedings{mcmahan2017")


@pytest.mark.parametrize("program", ["/venv/bin/motley", "/somewhere/motley/__main__.py"])
def test_the_command_is_what_one_would_type(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program, "run", "my file.toml"])
    assert describe(PLAIN, {}, {}, 7)["command"] == "motley run 'my file.toml'"


def test_no_commit_outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe(PLAIN, {}, {}, 0)["commit"] is None


def test_the_commit_and_whether_something_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=e@x")
        return subprocess.run(
            ["git", *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    monkeypatch.chdir(tmp_path)
    git("init")
    (tmp_path / "file").write_text("one")
    assert source_commit() is None  # nothing is committed
    git("add", "file")
    git("commit", "-m", "first")
    head = git("rev-parse", "HEAD")
    (tmp_path / "new").write_text("does not count")
    assert source_commit() == head
    (tmp_path / "file").write_text("two")
    assert source_commit() == f"{head}+"


def test_a_full_disk_leaves_the_record_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.write({"run_id": "a"})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        folder.write({"run_id": "b"})
    assert folder.read() == {"run_id": "a"}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_too_little_room_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_space(tmp_path, 1)
    usage: Any = shutil.disk_usage(tmp_path)._replace(free=3 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StoreError, match="has 3 MiB free and this run needs about 32"):
        ensure_space(tmp_path)


def test_versions_are_looked_up_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(store.metadata, "version", lambda name: asked.append(name) or "7")  # type: ignore[func-returns-value]
    store._version.cache_clear()
    try:
        first = store.installed_versions("flwr")
        second = store.installed_versions()
    finally:
        store._version.cache_clear()
    # Python's own version stands in no metadata
    assert len(asked) == len(set(asked)) == len(first) - 1
    assert (first["torch"], second["torch"], "flwr" in second) == ("7", "7", False)
