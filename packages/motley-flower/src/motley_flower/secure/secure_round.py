"""One round of secure aggregation at the server, in two halves: before the clients train, and
after.

Also the check of which updates the sums of several rounds disclose together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from motley.core.arrays import Floats
from motley_flower.secure.encoding import Words
from motley_flower.secure.server import Messages, SecureServer
from motley_flower.secure.terms import SecureTerms

Question = Callable[[Messages], Mapping[int, object]]
"""Sends one message to each of these clients, waits, and returns the answers by client; those that
do not answer are left out."""


class SecureRound:
    """The server's side of one attempt of a round.

    Parameters
    ----------
    terms: of the round.
    register: client -> public key.
    ask: sends a question to clients and returns their answers.
    link: proves that the cohort was drawn; empty without draws.
    """

    def __init__(
        self, terms: SecureTerms, register: Mapping[int, bytes], ask: Question, link: bytes = b""
    ) -> None:
        self.server = SecureServer(terms, register)
        self._ask = ask
        self._link = link

    def open(self) -> Messages:
        """Exchange keys and shares; return the message that each client must have to mask its
        update.

        Raises
        ------
        RoundAbandonedError: too few clients are left.
        """
        server = self.server
        terms = {client: message + self._link for client, message in server.open().items()}
        return server.shares(self._ask(server.keys(self._ask(terms))))

    def close(self, masked: Mapping[int, object]) -> tuple[Floats, int]:
        """Return the weighted mean of the masked updates, [size], and the sum of their weights.

        Raises
        ------
        RoundAbandonedError: too few clients are left, or one told an untruth.
        """
        return self.server.terms.encoding.decode(self.opened(masked))

    def opened(self, masked: Mapping[int, object]) -> Words:
        """Return the sum of the masked vectors as it is, [size + 1], modulo 2^32 or 2^64; raises as
        :meth:`close`."""
        server = self.server
        messages = server.masked(masked)
        if server.terms.options.active:
            messages = server.signatures(self._ask(messages))
        return server.unmask(self._ask(messages))


class CohortHistory:
    """The cohorts whose sums the server knows, and whom they disclose together.

    If updates change slowly, each sum is a linear equation in the clients' updates. A client whose
    unit vector lies in the row space of the participation matrix is then disclosed (So et al.,
    arXiv:2106.03328).

    Parameters
    ----------
    sums: the cohorts that were summed before this process, for a run that goes on.
    """

    def __init__(self, sums: Collection[tuple[int, ...]] = ()) -> None:
        self.sums = list(dict.fromkeys(sums))
        self.disclosed = set(self._in_row_space()) if self.sums else set()

    def add(self, cohort: Collection[int]) -> list[int]:
        """Add the cohort of a sum; return the clients that are disclosed now and were not before,
        sorted.

        >>> history = CohortHistory()
        >>> history.add([0, 1, 2]), history.add([0, 1])
        ([], [2])
        """
        members = tuple(sorted(cohort))
        if members in self.sums:
            return []
        self.sums.append(members)
        new = sorted(set(self._in_row_space()) - self.disclosed)
        self.disclosed |= set(new)
        return new

    def _in_row_space(self) -> list[int]:
        """Return the clients whose unit vectors are combinations of the cohorts: those of length 1
        in the row space."""
        clients = sorted({client for cohort in self.sums for client in cohort})
        matrix = np.array([np.isin(clients, cohort) for cohort in self.sums], np.float64)
        _, sizes, directions = np.linalg.svd(matrix, full_matrices=False)
        # A matrix of zeros and ones: a singular value is 0 but for rounding, or far from it.
        basis = directions[sizes > 1e-9 * sizes[0]]
        return [
            client
            for client, length in zip(clients, np.square(basis).sum(axis=0), strict=True)
            if length > 1 - 1e-9
        ]
