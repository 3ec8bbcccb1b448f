"""Runs that would never end: refused where that is certain, else ended with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import motley
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds import standstill

STILL = 20


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "MOST_STILL_STEPS", STILL)


def keys(**more: Any) -> dict[str, Any]:
    """Six clients of two samples, two steps of 1 s each."""
    base: dict[str, Any] = {
        "task": {"name": "quadratic", "minima": [1.0] * 6, "examples": [2] * 6},
        "population": 6,
        "cohort": 2,
        "partition": "by_writer",
        "engine": "sequential",
        "local": {"batch_size": 1},
        "device": {"name": "constant", "seconds": 1.0},
        "evaluate": {"every": 10**6, "per_client": False},
    }
    return {**base, **more}


def ended(**more: Any) -> Any:
    loop = build(Experiment(**keys(**more)))
    for _ in range(1_000):
        if loop.done:
            return loop
        loop.step()
    raise AssertionError(f"not ended after {loop.state.version} rounds")


def test_a_crashed_federation_runs_to_its_hour() -> None:
    """Everybody crashes in round 1, after 2 s at most; every round lasts the idle minute: 60
    rounds to the hour."""
    loop = ended(failures={"name": "crash", "rate": 1.0}, stop={"virtual_hours": 1.0})
    assert (loop.state.version, loop.state.clients.now_s) == (60, 3600.0)
    assert loop.standstill is None


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (
            {"failures": {"name": "crash", "rate": 0.9}, "stop": {"uplink_gb": 1.0}},
            "stop.uplink_gb: in the last 20 rounds nothing was uploaded;",
        ),
        (
            {"failures": {"name": "crash", "rate": 0.9}, "stop": {"target": {"loss": 1e-9}}},
            "stop.target: in the last 20 rounds no update was accepted;",
        ),
        (
            # nobody is fast enough for the rule's own deadline, so it chooses nobody
            {"selector": {"name": "fedcs", "deadline": 1.0}, "stop": {"virtual_hours": 1.0}},
            "stop.virtual_hours: in the last 20 rounds no virtual time passed;",
        ),
        (
            {
                "selector": {"name": "fedcs", "deadline": 1.0},
                "stop": {"virtual_hours": 1.0, "uplink_gb": 1.0},
            },
            "stop.virtual_hours and stop.uplink_gb: in the last 20 rounds no virtual time passed "
            "and nothing was uploaded;",
        ),
    ],
    ids=["crash-uplink", "crash-target", "nobody-chosen", "both"],
)
@pytest.mark.usefixtures("soon")
def test_a_run_that_stands_still_ends_with_a_sentence(more: dict[str, Any], what: str) -> None:
    loop = ended(**more)
    version = loop.state.version
    assert loop.standstill == (
        f"ended after round {version} without having reached {what} look at device, network, "
        "failures and synchrony, or write stop.rounds, too"
    )
    assert version >= STILL


@pytest.mark.usefixtures("soon")
def test_the_record_the_result_and_the_terminal_say_it_and_a_later_end_goes_on(
    tmp_path: Path,
) -> None:
    crash = keys(failures={"name": "crash", "rate": 0.9}, stop={"uplink_gb": 1.0}, seed=3)
    with pytest.warns(UserWarning, match=r"ended after round \d+ without having reached"):
        done = motley.run(crash, out=tmp_path / "run")
    said = json.loads((tmp_path / "run" / "run.json").read_text())["standstill"]
    assert done.finished
    assert done.standstill == said
    assert said in repr(done)
    rounds = done.tables["rounds"].num_rows
    whole = keys(failures={"name": "crash", "rate": 0.9}, stop={"rounds": rounds + 3}, seed=3)
    with pytest.warns(UserWarning, match="no upload was accepted"):
        longer = motley.run(whole, out=tmp_path / "run", resume=True)
    assert longer.standstill is None
    assert longer.tables["rounds"].num_rows == rounds + 3
    with pytest.warns(UserWarning, match="no upload was accepted"):
        direct = motley.run(whole, out=tmp_path / "direct")
    assert longer.tables["rounds"].equals(direct.tables["rounds"])


@pytest.mark.usefixtures("soon")
def test_a_kill_forgets_no_still_step() -> None:
    crash = keys(failures={"name": "crash", "rate": 0.9}, stop={"uplink_gb": 1.0})
    whole = ended(**{k: crash[k] for k in ("failures", "stop")})
    first = build(Experiment(**crash))
    for _ in range(15):
        first.step()
    saved = first.save()
    again = build(Experiment(**crash))
    again.restore(saved)
    while not again.done:
        again.step()
    assert again.state.version == whole.state.version


@pytest.mark.usefixtures("soon")
def test_a_night_in_which_nobody_is_there_is_no_standstill() -> None:
    """Of the day of 6,000 s 60 s are online: 30 rounds of two uploads of 32 bits, then 99 rounds of
    a minute with nobody, then one round more for the last of 1,970 bits."""
    loop = ended(
        availability={"name": "day_night", "share": 0.01, "spread": 0.0, "day_s": 6000.0},
        stop={"uplink_gb": 1970 / 8e9},
    )
    assert loop.standstill is None
    assert loop.state.version == 30 + 99 + 1


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("synchrony", "steps"),
    [({"name": "asynchronous"}, 50), ({"name": "buffered", "buffer": 1}, 50)],
)
def test_steps_at_one_moment_are_no_standstill(synchrony: dict[str, Any], steps: int) -> None:
    """50 clients of 10 s each arrive together, each a step of its own: 50 steps at 10 s, at 20 s,
    ...; with two steps of local work at 20, 40, 60 s. The first step at 60 s reaches the minute."""
    loop = ended(
        task={"name": "quadratic", "minima": [1.0] * steps, "examples": [2] * steps},
        population=steps,
        cohort=steps,
        local={"steps": 2, "batch_size": 1},
        device={"name": "constant", "seconds": 10.0},
        synchrony=synchrony,
        stop={"virtual_hours": 60 / 3600},
    )
    assert loop.standstill is None
    assert (loop.state.version, loop.state.clients.now_s) == (2 * steps + 1, 60.0)


@pytest.mark.usefixtures("soon")
def test_stale_updates_that_arrive_together_are_no_standstill() -> None:
    """Of 30 that arrive together 29 are too stale; the first of every 30 moves the model."""
    loop = build(
        Experiment(
            **keys(
                task={"name": "quadratic", "minima": [1.0] * 30, "examples": [2] * 30},
                population=30,
                cohort=30,
                synchrony={"name": "asynchronous", "max_staleness": 0},
                stop={"target": {"loss": 1e-9}},
            )
        )
    )
    while loop.state.version < 91:
        loop.step()
    assert (loop.standstill, loop.state.model_updates) == (None, 4)


def test_a_run_that_never_meets_a_client_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Online from 61 to 119 s of every hour, and asked at each full minute."""
    monkeypatch.setattr(standstill, "MOST_IDLE_STEPS", 70)
    file = tmp_path / "trace.csv"
    file.write_text("trace,active_s,inactive_s,finish_s\n0,61,119,3600\n")
    loop = ended(availability={"name": "trace", "file": str(file)}, stop={"uplink_gb": 1.0})
    assert loop.standstill == (
        "ended after round 70 without having reached stop.uplink_gb: in the last 70 rounds nothing "
        "was uploaded, as no client was online; look at availability, change synchrony.idle_s, or "
        "write stop.rounds, too"
    )
    assert loop.state.clients.now_s == 70 * 60.0


@pytest.mark.usefixtures("soon")
def test_the_same_limit_set_higher_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    def to(hours: float) -> dict[str, Any]:
        return keys(
            selector={"name": "fedcs", "deadline": 1.0}, stop={"virtual_hours": hours}, seed=3
        )

    with pytest.warns(UserWarning, match="ended after round 20 without"):
        motley.run(to(1.0), out=tmp_path / "run")
    with pytest.warns(UserWarning, match="ended after round 20 without"):
        longer = motley.run(to(2.0), out=tmp_path / "run", resume=True)
    with pytest.warns(UserWarning, match="ended after round 20 without"):
        direct = motley.run(to(2.0), out=tmp_path / "direct")
    assert longer.finished
    assert longer.standstill == direct.standstill
    for name in ("rounds", "clients", "evaluations"):
        assert longer.tables[name].equals(direct.tables[name])


def test_without_idle_time_a_night_is_one_round() -> None:
    """Online for the first 60 s of 6,000 s: 30 rounds of 2 s, and the next lasts until the
    morning."""
    loop = ended(
        availability={"name": "day_night", "share": 0.01, "spread": 0.0, "day_s": 6000.0},
        synchrony={"name": "synchronous", "idle_s": 0.0},
        stop={"virtual_hours": 2.0},
    )
    # 30 rounds of 2 s to 60 s, one to 6000 s, 30 to 6060 s, one to 12000 s
    assert (loop.state.version, loop.state.clients.now_s) == (62, pytest.approx(12_000.0))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"device": {"name": "constant", "seconds": 0.0}, "stop": {"virtual_hours": 1.0}},
            r"stop.virtual_hours: got 1, and no virtual time ever passes: devices take 0 s and "
            r'there is no network; write e.g. device = \{ name = "constant", seconds = 0.1 \}',
        ),
        (
            {"algorithm": "local_only", "stop": {"uplink_gb": 1.0}},
            r"stop.uplink_gb: got 1, and under 'local_only' clients upload nothing; write "
            r"stop = \{ rounds = 100 \}",
        ),
        (
            {"failures": {"name": "drop_out", "rate": 1.0}, "stop": {"target": {"loss": 0.1}}},
            r"failures.rate: under 'drop_out' with rate = 1 no client ever delivers",
        ),
        (
            {"failures": {"name": "crash", "rate": 1.0}, "stop": {"uplink_gb": 1.0}},
            r"failures.rate: under 'crash' with rate = 1 no client ever delivers",
        ),
    ],
    ids=["no-time", "no-upload", "drop-out", "crash"],
)
def test_what_is_certain_never_to_end_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Experiment(**keys(**more)))
