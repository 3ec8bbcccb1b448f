"""The order in which a step's uploads are added, which does not depend on who adds them.

The uploads that a server step asks for have positions from 0, in order of client id.
:data:`~motley.algorithms.upload.BLOCK` consecutive positions, eight, are summed one upload after
the other; these sums are the leaves of a binary tree over the numbers of blocks: a node is the sum
of its two halves, and a node without a second half is its first. An upload that cannot be used
leaves its position empty.

    positions   0 ... 7    8 ... 15   16 ... 23   24 ... 31   32 ... 39
    block           0          1           2           3           4
    level 1          \\________/             \\_________/            |
    level 2               \\______________________/                 |
    level 3                           \\____________________________/

An accumulator holds the complete nodes from left to right, at most one for each level: adding a
block is adding one to a binary counter. The order depends on nobody's number of workers: whoever
has all uploads of a node has its sum, so that several processes can add parts of the uploads and
the total keeps its bits (docs/scaling.md#crosses).

Worked
------
Four blocks whose sums are 1, 0, 2^-53 and 2^-53: the tree gives (1 + 0) + (2^-53 + 2^-53) = 1 +
2^-52; added one after the other, each 2^-53 is lost to rounding, and the sum is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from motley.algorithms.parts import BLOCK, BlockRun


class _Joins(Protocol):
    def join(self, later: Self) -> None:
        """Add other sums to these, in place."""


Sums = TypeVar("Sums", bound=_Joins)


@dataclass
class SumTree(Generic[Sums]):
    """Partial sums of a step's uploads.

    Parameters
    ----------
    empty: makes the sums of no uploads.

    Attributes
    ----------
    nodes: runs with their sums, from left to right, of falling levels.
    end: position after the last.
    """

    empty: Callable[[], Sums]
    nodes: list[tuple[BlockRun, Sums]] = field(default_factory=list)
    end: int = 0

    def at(self, position: int) -> Sums:
        """Return the sums to which the upload at a position is added; -1: the next position."""
        position = self.end if position < 0 else position
        block = BlockRun(0, position // BLOCK)
        if not self.nodes or self.nodes[-1][0] != block:
            self._complete(block.number)
            self.nodes.append((block, self.empty()))
        self.end = position + 1
        return self.nodes[-1][1]

    def put(self, run: BlockRun, sums: Sums) -> None:
        """Add the sums of a run whose blocks lie behind all earlier ones."""
        self._complete(run.number << run.level)
        self.nodes.append((run, sums))
        self.end = run.positions.stop

    def _complete(self, block: int) -> None:
        """Add nodes together as far as no later block can belong to them, now that ``block``
        comes."""
        while self.nodes:
            (level, number), sums = self.nodes[-1]
            if block >> (level + 1) == number >> 1:
                return
            self.nodes.pop()
            if number % 2 and self.nodes and self.nodes[-1][0] == BlockRun(level, number - 1):
                _, left = self.nodes.pop()
                left.join(sums)
                sums = left
            self.nodes.append((BlockRun(level + 1, number >> 1), sums))

    def folded(self) -> Sums | None:
        """Return the sum of all uploads, None if there is none; the tree is empty afterwards."""
        total: Sums | None = None
        while self.nodes:
            _, sums = self.nodes.pop()
            if total is not None:
                sums.join(total)
            total = sums
        return total
