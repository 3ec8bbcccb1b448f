"""A property of the whole federation that nodes report: no single node's word decides it.

>>> classes = Majority[int]()
>>> print(classes.decide([3], awaited=10), classes.decide([3, *[10] * 6], awaited=10))
None 10
>>> print(classes.decide([3] * 50, awaited=10))
10
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class Majority(Generic[T]):
    """What more than half of the nodes say; decided once, it stays.

    Parameters
    ----------
    value: what the run's configuration says; None: the nodes decide.
    """

    def __init__(self, value: T | None = None) -> None:
        self.value = value

    def decide(self, answers: Collection[T], awaited: int) -> T | None:
        """Return what is decided; None as long as nothing is.

        Parameters
        ----------
        answers: by each node that has answered.
        awaited: how many clients the run waits for; more than half of them, and of those that have
        answered, must agree, and at least two where the run waits for two or more.
        """
        if self.value is None and answers:
            most, votes = Counter(answers).most_common(1)[0]
            if votes >= min(2, awaited) and 2 * votes > max(len(answers), awaited):
                self.value = most
        return self.value
