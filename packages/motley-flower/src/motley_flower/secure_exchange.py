"""The server's half of secure aggregation in one run, whichever loop asks the clients."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from motley.selectors.selector import Selector
from motley_flower.secure_messages import missing_extra

try:
    from motley_flower.secure.drawable import DrawTable
    from motley_flower.secure.keyfiles import as_register
    from motley_flower.secure.secure_round import CohortHistory, SecureRound
    from motley_flower.secure.terms import SecureOptions, SecureTerms
    from motley_flower.secure.verifiable_draws import DrawServer
except ModuleNotFoundError as missing:
    raise missing_extra(missing) from None

_LOG = logging.getLogger("motley.flower")

SendRequests = Callable[[Mapping[int, bytes]], Mapping[int, object]]
"""Sends one message to each of these clients, waits, and returns the answers by client."""
Register = Mapping[int, bytes] | str | os.PathLike[str]


class SecureExchange:
    """The draws, the round under way and the cohorts of the sums so far.

    Parameters
    ----------
    options: of the protocol.
    register: client -> public key, or the file.

    Attributes
    ----------
    draws: of cohorts that clients can recompute; None before they have agreed, and without draws.
    history: the cohorts whose sums the server knows.
    """

    def __init__(self, options: SecureOptions, register: Register) -> None:
        self.options = options
        self.register = as_register(register)
        self.history = CohortHistory()
        self.draws: DrawServer | None = None
        self._round: SecureRound | None = None

    def agree(self, selector: Selector[Any], cohort: int, ask: SendRequests) -> DrawServer:
        """Freeze the rule and its numbers, as the selector knows them now, and let the clients
        agree on draws of ``cohort`` clients a round.

        Raises
        ------
        ConfigError: too few clients agree.
        """
        table = DrawTable.of(self.options.draw_rule, selector, sorted(self.register))
        draws = DrawServer(self.register, cohort, self.options.draws, table)
        draws.agree(ask)
        return draws

    def terms(self, run: bytes, round: int, size: int, members: Collection[int]) -> SecureTerms:
        """Return the terms of a round's next attempt.

        Parameters
        ----------
        run: name of the run, 16 bytes.
        size: numbers of an update.
        members: the cohort.

        Raises
        ------
        ConfigError: a cohort that the options do not allow. RoundAbandonedError: the draws know no
        such round.
        """
        if self.draws is not None:
            self.draws.check(round)
        now_ms = time.time_ns() // 10**6
        return SecureTerms(
            run=run,
            round=round,
            attempt=now_ms,
            options=self.options,
            size=size,
            cohort=tuple(members),
        )

    def begin(self, terms: SecureTerms, ask: SendRequests, link: bytes) -> dict[int, bytes]:
        """Exchange keys and shares; return the message that each client must have to mask its
        update. ``link``: proves that the cohort was drawn; empty without draws.

        Raises
        ------
        RoundAbandonedError: too few clients are left.
        """
        begun = SecureRound(terms, self.register, ask, link)
        envelopes = begun.open()
        self._round = begun
        return dict(envelopes)

    def count_sum(self, round: int, survivors: Collection[int]) -> None:
        """Add the cohort of a sum, and warn of clients whose update it and the sums before disclose
        together."""
        for client in self.history.add(survivors):
            _LOG.warning(
                "round %d: the cohorts so far disclose the update of client %d, if updates change "
                "slowly: a combination of the sums is its alone; let fixed groups of clients take "
                "part together",
                round,
                client,
            )
