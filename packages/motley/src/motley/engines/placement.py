"""How a step's jobs are divided among workers: by what each is expected to take.

Where clients are trained one by one, that is the seconds that a client took before; a client's bits
do not depend on its chunk. Where a chunk is trained as one stack, chunks follow from steps alone,
since another stack may round otherwise. Neither the order of calls nor the worker changes a result.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from motley.algorithms.parts import BLOCK, BlockRun
from motley.engines.engine import Job

UNEVEN = 1.25
"""Sums travel where the busiest worker has at most so many times its share of the work."""
EVEN = 1.1
"""A division that is no more uneven than this is not divided further."""
MOST_PARTS = 2
"""Parts for every worker at most: each sends at least one sum."""


class ClientSeconds:
    """Wall seconds per local step that clients took in this run."""

    def __init__(self) -> None:
        self._each: dict[int, float] = {}

    def learn(self, jobs: Sequence[Job], seconds: Sequence[float]) -> None:
        """Remember how long jobs took."""
        for job, duration_s in zip(jobs, seconds, strict=True):
            if job.steps:
                self._each[job.client] = duration_s / job.steps

    def expected(self, jobs: Sequence[Job]) -> list[float]:
        """Return the seconds that jobs are expected to take; of a client that is not known, by the
        mean of the others. Where none is known: its steps."""
        step_seconds = [self._each[job.client] for job in jobs if job.client in self._each]
        usual = sum(step_seconds) / len(step_seconds) if step_seconds else 1.0
        return [job.steps * self._each.get(job.client, usual) for job in jobs]


class PlannedCall(NamedTuple):
    """Consecutive blocks of positions that one call trains.

    Parameters
    ----------
    runs: whose sums it sends.
    positions: of its jobs.
    cost: expected.
    """

    runs: list[BlockRun]
    positions: range
    cost: float


def aligned_runs(first: int, last: int) -> list[BlockRun]:
    """Return the fewest aligned runs that make up the blocks from ``first`` to before ``last``.

    >>> [run.positions for run in aligned_runs(3, 8)]
    [range(24, 32), range(32, 64)]
    """
    runs = []
    while first < last:
        level = 0
        # a run of 2^n blocks begins at a multiple of 2^n: only such sums are nodes of the tree
        while not first & (1 << level) and first + (2 << level) <= last:
            level += 1
        runs.append(BlockRun(level, first >> level))
        first += 1 << level
    return runs


def parts_of(
    costs: Sequence[float], workers: int, stacked: bool, least: int = 1
) -> list[PlannedCall]:
    """Divide a step's positions into parts of about equal costs.

    Parameters
    ----------
    costs: of the positions.
    stacked: whether a part is trained at once, which asks for large ones.
    least: parts at least, if there are so many blocks.
    """
    blocks = [sum(costs[at : at + BLOCK]) for at in range(0, len(costs), BLOCK)]
    best: list[PlannedCall] = []
    for times in range(1, 1 + (1 if stacked else MOST_PARTS)):
        count = min(max(least, times * workers), len(blocks))
        parts = _cut(blocks, count, len(costs))
        if not best or makespan(parts, workers) < makespan(best, workers):
            best = parts
        if makespan(best, workers) <= EVEN * _share(costs, workers):
            break
    return best


def uneven(costs: Sequence[float], workers: int, stacked: bool) -> bool:
    """Return whether blocks are too few for the workers, so that some would wait for others."""
    busiest = makespan(parts_of(costs, workers, stacked), workers)
    return busiest > UNEVEN * _share(costs, workers)


def _share(costs: Sequence[float], workers: int) -> float:
    """Return what the busiest worker has at least where each position can go to any of them."""
    return max(sum(costs) / workers, max(costs, default=0.0))


def makespan(parts: Sequence[PlannedCall], workers: int) -> float:
    """Return the cost of the busiest worker, where the costliest part that is left goes to the
    worker that is free first."""
    busy = [0.0] * workers
    for part in sorted(parts, key=lambda call: -call.cost):
        heapq.heapreplace(busy, busy[0] + part.cost)
    return max(busy)


def _cut(blocks: Sequence[float], count: int, positions: int) -> list[PlannedCall]:
    """Cut blocks into ``count`` consecutive parts of about equal costs."""
    ends = list(itertools.accumulate(blocks))
    cuts = [0]
    for part in range(1, count):
        wanted = ends[-1] * part / count
        room = range(cuts[-1] + 1, len(blocks) - (count - part) + 1)  # every part has a block
        cuts.append(min(room, key=lambda cut: abs(ends[cut - 1] - wanted)))
    cuts.append(len(blocks))
    # blocks beyond the last are empty
    padded = 1 << (len(blocks) - 1).bit_length() if blocks else 0
    calls = []
    for first, last in itertools.pairwise(cuts):
        runs = aligned_runs(first, padded if last == len(blocks) else last)
        own = range(first * BLOCK, min(last * BLOCK, positions))
        calls.append(PlannedCall(runs, own, sum(blocks[first:last])))
    return calls
