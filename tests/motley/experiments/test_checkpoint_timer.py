"""When checkpoints are due."""

from motley.experiments.file_tables import Checkpointing
from motley.experiments.run import LONG_S, PAUSE, CheckpointTimer


def test_by_rounds_or_by_seconds():
    timer = CheckpointTimer(Checkpointing(every_rounds=10, every_s=30.0), begun_s=0.0, ended_s=0.5)
    assert [timer.due(version, 1.0) for version in (9, 10, 11, 20)] == [False, True, False, True]
    assert [timer.due(9, now) for now in (30.0, 31.0)] == [False, True]


def test_one_that_takes_long_is_spaced_out():
    """40 s of writing: not again before 760 s have passed, although 30 would be asked and a tenth
    round comes along."""
    timer = CheckpointTimer(
        Checkpointing(every_rounds=10, every_s=30.0), begun_s=100.0, ended_s=140.0
    )
    assert not timer.due(10, 140.0 + PAUSE * 40.0 - 1.0)
    assert timer.due(10, 140.0 + PAUSE * 40.0)
    assert timer.due(11, 140.0 + PAUSE * 40.0)
    assert CheckpointTimer(Checkpointing(), begun_s=0.0, ended_s=0.9 * LONG_S).due(10, 2.0)
