"""Several runs at a time: the same bits as one after the other, failures and lost workers told, all
ended together."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from motley.core.errors import ConfigError, NumericsError
from motley.experiments import parallel
from motley.experiments.parallel import job_workers_kept, on_free_core, run_jobs, share_among
from motley.experiments.run import run
from motley.experiments.store import RunFolder
from motley.experiments.sweep import compare
from tests.motley.experiments.acts import act
from tests.motley.resume.conftest import assert_same
from tests.places import PYTHONPATH

ROOT = Path(__file__).parents[3]
KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 10,
    "cohort": 5,
    "stop": {"rounds": 3},
    "partition": {"name": "dirichlet", "alpha": 0.5},
}


@pytest.fixture(scope="module")
def waiting_workers() -> Iterator[dict[int, list[Any]]]:
    """Jobs -> workers that wait for the next test, for a new interpreter costs seconds."""
    workers: dict[int, list[Any]] = {}
    yield workers
    parallel._end([worker for waiting in workers.values() for worker in waiting])


@pytest.fixture
def kept_workers(waiting_workers: dict[int, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are served by the workers of earlier tests, each of which has one of two cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(parallel, "_kept", waiting_workers)


@pytest.mark.usefixtures("kept_workers")
def test_two_at_a_time_are_as_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits, in the same order, with the same failures: Krum is refused where a run is
    built, for it weighs all clients alike, and here not before.

    With two cores, a run alone cuts its cohort into two chunks; one that has half the cores must
    cut it in the same way.
    """
    monkeypatch.setattr("motley.experiments.controls.BuildCheck.of", lambda *_: None)
    over = {"aggregator": ["krum", "mean"], "selector.name": ["uniform", "power_of_choice"]}
    alone, both = (
        compare(KEYS, over, [0], out=str(tmp_path / name), jobs=jobs)
        for name, jobs in (("alone", 1), ("both", 2))
    )
    assert [(f.point.label, str(f.error)) for f in both.failures] == [
        (f.point.label, str(f.error)) for f in alone.failures
    ]
    assert [failure.point.label for failure in both.failures] == [
        "krum uniform",
        "krum power_of_choice",
    ]
    assert isinstance(both.failures[0].error, ConfigError)
    assert len(alone.runs) == len(both.runs) == 2
    for one, other in zip(alone.runs, both.runs, strict=True):
        assert one.directory.relative_to(tmp_path / "alone") == other.directory.relative_to(
            tmp_path / "both"
        )
        assert {key: one.meta[key] for key in ("numerics", "command")} == {
            key: other.meta[key] for key in ("numerics", "command")
        }
        assert_same(one, other)


def test_a_model_whose_last_bits_depend_on_its_share_of_the_cores_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what is larger is computed on all cores inside one operation
    monkeypatch.setattr("motley.engines.local.SMALL", 10)
    monkeypatch.setattr("motley.core.usable_cores._shared", (2, 1))
    with pytest.warns(
        UserWarning,
        match=r"on 1 of 2 threads, so the last bits may differ .*; engine.threads = 1 gives the "
        r"same",
    ):
        shared = run(KEYS, out=tmp_path / "two")
    assert (shared.meta["numerics"]["threads"], shared.meta["numerics"]["torch_threads"]) == (2, 1)
    alone = run({**KEYS, "engine": {"name": "auto", "threads": 1}}, out=tmp_path / "one")
    assert (alone.meta["numerics"]["threads"], alone.meta["numerics"]["torch_threads"]) == (1, 1)

    folder = RunFolder(tmp_path / "two")
    folder.write({**(folder.read() or {}), "finished": False})
    monkeypatch.setattr("motley.core.usable_cores._shared", (2, 2))
    with pytest.raises(
        NumericsError,
        match=r"began with torch_threads = 1 and .* with 2, .*; give the --jobs that it began "
        r"with, or",
    ):
        run(KEYS, out=tmp_path / "two", resume=True)


@pytest.mark.usefixtures("kept_workers")
def test_a_lost_worker_costs_its_run_alone() -> None:
    ways = ["warns", "dies", "raises", "fine"]
    with pytest.warns(UserWarning, match="^number 0 is odd$"):
        ended = dict(run_jobs(2, act, [{"number": i, "way": way} for i, way in enumerate(ways)]))
    assert sorted(ended) == [0, 1, 2, 3]
    assert ended[0] is ended[3] is None
    said = (
        "its worker process ended by SIGKILL in the middle of the run; if memory ran out, run "
        "fewer at a time (jobs)"
    )
    assert str(ended[1]) == said
    assert isinstance(ended[2], ZeroDivisionError)
    assert re.search(r"acts\.py., line \d+, in act", ended[2].__notes__[0])


@pytest.mark.usefixtures("kept_workers")
def test_a_worker_warns_of_a_thing_once() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(2):
            assert all(
                error is None for _, error in run_jobs(1, act, [{"number": 1, "way": "warns"}] * 2)
            )
    assert [str(one.message) for one in heard] == ["number 1 is odd"]


def _workers() -> set[int]:
    """The process ids of the workers of this process."""
    found = psutil.Process().children()
    return {
        one.pid
        for one in found
        if one.status() != psutil.STATUS_ZOMBIE and "motley.experiments.parallel" in one.cmdline()
    }


def test_closing_ends_the_workers() -> None:
    others = _workers()
    ended = run_jobs(
        2, act, [{"number": i, "way": way} for i, way in enumerate(["fine", "sleeps"])]
    )
    assert next(ended) == (0, None)
    workers = _workers() - others
    ended.close()
    assert len(workers) == 2
    assert not _workers() & workers


def test_workers_that_nobody_keeps_end_with_the_last_call() -> None:
    others = _workers()
    for _ in run_jobs(1, act, [{"number": 0, "way": "fine"}]):
        assert len(_workers() - others) == 1
    assert _workers() == others


def test_workers_that_are_kept_serve_the_next_call_and_end_with_the_block() -> None:
    """The second call needs one of the two; of the third one dies, and the other serves on."""
    assert (share_among(4, 2), share_among(2, 5)) == (2, 2)
    others = _workers()
    with job_workers_kept():
        assert share_among(4, 2) == 4
        assert dict(run_jobs(2, act, [{"number": i, "way": "fine"} for i in range(2)])) == {
            0: None,
            1: None,
        }
        first = _workers() - others
        assert dict(run_jobs(2, act, [{"number": 0, "way": "fine"}])) == {0: None}
        assert _workers() - others == first
        ended = dict(run_jobs(2, act, [{"number": 0, "way": "dies"}, {"number": 1, "way": "fine"}]))
        assert ended[0] is not None
        assert ended[1] is None
        (left,) = _workers() - others
        assert left in first
    assert not _workers() & first


@pytest.mark.usefixtures("kept_workers")
@pytest.mark.parametrize(("calls", "ended_before"), [(1, []), (2, [1]), (3, [2])])
def test_work_waits_for_a_core_that_is_free(calls: int, ended_before: list[int]) -> None:
    """With two jobs: once, as soon as one run alone is left; not where there is only one run."""
    ended: list[int] = []
    done_at: list[int] = []
    with on_free_core(lambda: done_at.append(len(ended))):
        for number, error in run_jobs(
            min(2, calls), act, [{"number": i, "way": "fine"} for i in range(calls)]
        ):
            assert error is None
            ended.append(number)
    assert done_at == ended_before
    assert parallel._free_core_work is None


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^jobs: the task cannot be sent .*; or run one after the other \(jobs = 1\)$",
    ):
        next(run_jobs(2, act, [{"task": lambda: 0}]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs: got 0; expected at least 1"),
        ({"jobs": 2, "on_ray": "auto"}, "jobs: runs are spread over a cluster"),
    ],
)
def test_other_numbers_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(KEYS, out=tmp_path, **options)


QUADRATIC = """
name = "small"
population = 6
cohort = 2
stop = { rounds = 1000000 }
task = "quadratic"
partition = "by_writer"
"""


def test_a_worker_that_is_still_starting_ends_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    worker = parallel._WorkerProcess(1, 1)
    worker.give(0, len, {})
    time.sleep(0.3)  # by now it imports, and Python would answer with a traceback
    worker.interrupt()
    worker.end(time.monotonic() + 60)
    assert not worker.alive
    assert capfd.readouterr().err == ""


def test_control_c_ends_all_and_keeps_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(QUADRATIC)
    command = [
        sys.executable,
        "-m",
        "motley",
        "compare",
        "q.toml",
        "--seeds",
        "0,1",
        "--jobs",
        "2",
        "--out",
        "out",
        "--no-report",
    ]
    options: Any = {
        "cwd": tmp_path,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    options["env"] = {**os.environ, "PYTHONPATH": PYTHONPATH}
    hear: Any = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - shells in the background have it ignored
    with subprocess.Popen(command, preexec_fn=hear, start_new_session=True, **options) as process:
        while len(list(tmp_path.glob("out/small/*/checkpoints/*"))) < 2 and process.poll() is None:
            time.sleep(0.005)
        (server,) = psutil.Process(process.pid).children()
        workers = server.children()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.endswith(
        "motley: interrupted; what was finished is kept: the same command goes on where it "
        "stopped\n"
    )
    assert "Traceback" not in err
    assert len(workers) == 2
    assert not any(worker.is_running() for worker in (server, *workers))
    records = [json.loads(path.read_text()) for path in tmp_path.glob("out/small/*/run.json")]
    assert [record["finished"] for record in records] == [False] * len(records)
