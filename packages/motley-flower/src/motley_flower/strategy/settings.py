"""The options of a Flower strategy with a selector."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

from motley.core.errors import ConfigError
from motley_flower.client_list import ClientList
from motley_flower.messages import WALL_CLOCK, WallClock


@dataclass(frozen=True)
class SelectionSettings:
    """The options of :func:`~motley_flower.strategy.wrapper.with_selector`.

    Parameters
    ----------
    key: of ``--node-config``, each client's stable whole number.
    query_limit_s: how long nodes may take to answer enrolment and probes.
    wait_s: how long a round waits for more clients where fewer than wanted are connected.
    uploads: ``"as_sent"``: replies must have the names, shapes and dtypes of the model sent;
    ``"any"``: plain finite numbers.
    largest_upload: bytes of one reply's arrays, under ``"any"``.
    max_examples: the largest ``num-examples`` of any client, at enrolment and in replies, or the
    largest of the strategy's own weight. None: a client's replies are bounded by what it said at
    enrolment, of which at most ten times the median of the connected clients counts, and the run
    ends in a sentence where most clients said nothing. A number in the file of clients goes before
    either.
    weights: ``"strategy"``: as the strategy weighs; ``"selector"``: by the cohort's weights,
    normalized by the strategy.
    rounds_done, clients_sent: rounds and dispatches of the selector before this run, if it comes
    from a simulation or an earlier run.
    save: file that holds the selector's bytes after every round; None: none. Where the disk
    refuses, a warning says so.
    clock: the server's.
    longest_pause: how many rounds, at most, a client is left out that did not answer in time: 1
    after the first time, then 2, 4, ...; an answer ends it. Where all are left out, all are
    offered. 0: it is offered at once again.
    link_s: how long the SuperLink may take to answer a call; then the run ends with a sentence.
    classes: how many classes labels have; None: what more than half of the clients say at
    enrolment.
    clients: the file that says which public key is which client; None: a node is the client that it
    says, and an id is worth nothing.

    Raises
    ------
    ConfigError: a value that is not allowed.
    """

    key: str = "partition-id"
    query_limit_s: float = 120.0
    wait_s: float = 120.0
    uploads: Literal["as_sent", "any"] = "as_sent"
    largest_upload: float = 1e9
    max_examples: float | None = None
    weights: Literal["strategy", "selector"] = "strategy"
    rounds_done: int = 0
    clients_sent: int = 0
    save: str | os.PathLike[str] | None = None
    clock: WallClock = WALL_CLOCK
    link_s: float = 300.0
    longest_pause: int = 16
    clients: ClientList | None = None
    classes: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("uploads", ("as_sent", "any")),
            ("weights", ("strategy", "selector")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"got {getattr(self, name)!r}; expected one of {', '.join(map(repr, allowed))}",
                    key=name,
                )
        for name in ("query_limit_s", "wait_s", "largest_upload", "max_examples", "link_s"):
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value < math.inf):
                raise ConfigError(f"got {value!r}; expected a finite number above 0", key=name)
        for name in ("rounds_done", "clients_sent", "longest_pause"):
            check_whole(getattr(self, name), name, least=0)
        if self.classes is not None:
            check_whole(self.classes, "classes", least=1)


def check_whole(value: object, name: str, least: int) -> None:
    """Refuse an option's value that is no whole number of at least ``least``.

    Raises
    ------
    ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ConfigError(f"got {value!r}; expected a whole number of at least {least}", key=name)
