"""How jobs are divided among workers."""

from __future__ import annotations

import pytest

from motley.engines.engine import Job
from motley.engines.placement import ClientSeconds, aligned_runs, makespan, parts_of, uneven


def test_what_a_client_took_is_expected_of_it_by_its_steps():
    """Client 3 took .5 s for 5 steps, client 4 .9 s for 3: .1 and .3 s a step, .2 s for one
    unknown."""
    seconds = ClientSeconds()
    jobs = [Job(3, 0, 5, 0.1), Job(4, 1, 3, 0.1), Job(9, 2, 0, 0.1)]
    assert seconds.expected(jobs) == [5, 3, 0]
    seconds.learn(jobs, [0.5, 0.9, 0.1])
    later = [Job(4, 3, 10, 0.1), Job(3, 4, 2, 0.1), Job(7, 5, 4, 0.1)]
    assert seconds.expected(later) == pytest.approx([3.0, 0.2, 0.8])


@pytest.mark.parametrize("count", [1, 7, 8, 9, 17, 40, 100, 1000])
@pytest.mark.parametrize("workers", [1, 2, 3, 16])
@pytest.mark.parametrize("stacked", [True, False])
def test_parts_cover_every_position_once_with_few_runs(count, workers, stacked):
    parts = parts_of([1.0] * count, workers, stacked)
    assert [i for part in parts for i in part.positions] == list(range(count))
    for part in parts:
        inside = [i for run in part.runs for i in run.positions if i < count]
        assert inside == list(part.positions)
        assert len(part.runs) <= 2 * len(part.positions).bit_length()
    assert len(parts) <= (1 if stacked else 2) * workers


def test_the_last_part_is_one_run_where_the_rest_of_it_is_empty():
    """13 blocks for two workers: blocks 0 to 5 are runs of four and two, 6 to 12 runs of two and
    eight."""
    first, second = parts_of([1.0] * 100, 2, True)
    assert [run.positions for run in first.runs] == [range(32), range(32, 48)]
    assert [run.positions for run in second.runs] == [range(48, 64), range(64, 128)]
    assert aligned_runs(3, 3) == []


def test_the_costliest_part_goes_to_the_worker_that_is_free_first():
    """Three parts of 16 and one of 8 for two workers: 16 + 16 and 16 + 8."""
    assert makespan(parts_of([1.0] * 56, 2, False), 2) == 32


def test_blocks_too_few_for_the_workers_are_uneven():
    """Ten equal clients: eight and two, where five and five were possible. One that takes most of
    the time decides alone."""
    assert uneven([1.0] * 10, 2, True)
    assert not uneven([1.0] * 10, 1, True)
    assert not uneven([1.0] * 100, 2, True)
    assert not uneven([1.0] * 9 + [100.0], 2, True)
    assert not uneven([], 2, True)
