"""Any Flower strategy, with a Motley selector: who is asked comes from the selector, everything else from the strategy.

    strategy = with_selector(FedAdam(...), motley.selectors.build("oort"), m=10)
    strategy.start(grid, initial_arrays, num_rounds=50)
    strategy.motley.rows                      # who took part, and what became of it

The strategy is copied into a class that inherits from its own. Its ``configure_train`` sees a grid of the chosen nodes alone, so
that whatever it samples there is chosen; where it leaves some of them out, what it wrote to the others is sent to these, too.
``aggregate_train`` gets the replies that passed the checks, sorted by client. See ``docs/deploy.md``.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from motley.adapters.flower.messages import CLOCK, Clock, Grid, exchange, flower
from motley.adapters.flower.strategy.coordinator import SelectionCoordinator
from motley.adapters.flower.strategy.settings import Settings
from motley.core.errors import ConfigError
from motley.selectors.base import Selector

__all__ = ["with_selector"]

PATIENCE_S = 5.0
"""How long a strategy may wait for nodes that will not come: the grid it sees does not change."""


def with_selector(
    strategy: Any,
    selector: Selector[Any],
    m: int,
    *,
    key: str = "partition-id",
    query_limit_s: float = 120.0,
    wait_s: float = 120.0,
    uploads: Literal["as_sent", "any"] = "as_sent",
    largest_upload: float = 1e9,
    weights: Literal["strategy", "selector"] = "strategy",
    rounds_done: int = 0,
    clients_sent: int = 0,
    save: str | os.PathLike[str] | None = None,
    clock: Clock = CLOCK,
) -> Any:
    """A strategy like this one whose clients are chosen by ``selector``, ``m`` a round.

    Parameters
    ----------
    strategy: of Flower's Message API. It is copied; its fractions and minima of training are the selector's business now, and
    ``min_available_nodes`` is how many clients a round waits for, at most ``wait_s``. key .. clock: see
    :class:`~motley.adapters.flower.strategy.settings.Settings`.

    Raises
    ------
    ConfigError: something that is no strategy, or a selector that no deployment can serve.
    """
    lacks = [name for name in ("configure_train", "aggregate_train", "start") if not callable(getattr(strategy, name, None))]
    if isinstance(strategy, type) or lacks:
        raise ConfigError(
            f"got {strategy!r:.80}; expected a Flower strategy of the Message API, such as flwr.serverapp.strategy.FedAvg()"
        )
    if isinstance(strategy, _Chosen):
        raise ConfigError("this strategy has a selector already; give the strategy it was made of")
    settings = Settings(key, query_limit_s, wait_s, uploads, largest_upload, weights, rounds_done, clients_sent, save, clock)
    name = f"{type(strategy).__name__}With{type(selector.rule).__name__}"
    kind: Any = type(name, (_Chosen, type(strategy)), {})
    wrapped = kind.__new__(kind)
    vars(wrapped).update(vars(strategy))
    wrapped.motley = SelectionCoordinator(selector, m, settings, _innermost(strategy, "weighted_by_key"))
    return wrapped


def _chain(strategy: Any) -> Iterator[Any]:
    """A strategy and those it wraps (differential privacy)."""
    while callable(getattr(strategy, "configure_train", None)):
        yield strategy
        strategy = getattr(strategy, "strategy", None)


def _innermost(strategy: Any, name: str, default: Any = None) -> Any:
    return next((getattr(one, name) for one in _chain(strategy) if hasattr(one, name)), default)


@contextlib.contextmanager
def _fitted(strategy: Any, **values: float) -> Iterator[None]:
    """Attributes of the strategy (and of those it wraps) for a moment; those it does not have stay away."""
    before = [(one, name, vars(one)[name]) for one in _chain(strategy) for name in values if name in vars(one)]
    for one, name, _ in before:
        setattr(one, name, values[name])
    try:
        yield
    finally:
        for one, name, value in before:
            setattr(one, name, value)


class _WaitsError(Exception):
    """A strategy waits for nodes that will not come."""


class _View:
    """A grid of some of the nodes."""

    def __init__(self, grid: Grid, nodes: Sequence[int], clock: Clock) -> None:
        self._grid, self._nodes, self._clock = grid, list(nodes), clock
        self._end_s = clock.now() + PATIENCE_S
        self._looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def get_node_ids(self) -> list[int]:
        """The nodes it shows; an error for who keeps asking."""
        self._looks += 1
        if self._looks > 2 and self._clock.now() > self._end_s:
            raise _WaitsError
        return list(self._nodes)

    def get_nodes(self) -> list[Any]:
        """The same, with what Flower knows of them."""
        self.get_node_ids()
        there = {node.node_id: node for node in self._grid.get_nodes()}  # type: ignore[attr-defined]
        return [there[node] for node in self._nodes if node in there]


class _Watched:
    """A grid whose exchanges are noted: who answered, when, and who did not."""

    def __init__(self, grid: Grid, chooser: SelectionCoordinator) -> None:
        self._grid, self._chooser = grid, chooser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """Flower's own, with a limit."""
        if timeout is None:
            raise ConfigError(
                "got no time-out for an exchange; expected start(..., timeout=seconds): nothing waits without a limit"
            )
        answers = exchange(self._grid, list(messages), timeout, self._chooser.clock)
        self._chooser.note(answers)
        return [answer.reply for answer in answers if answer.reply is not None]


class _Chosen:
    """What is put before a strategy's own methods."""

    motley: SelectionCoordinator

    def _start(self, grid: Grid, *args: Any, **options: Any) -> Any:
        return super().start(_Watched(grid, self.motley), *args, **options)  # type: ignore[misc]

    start = _start

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        """The strategy's messages, to the chosen."""
        chooser = self.motley
        least = max(_innermost(self, "min_available_nodes", 0), chooser.m)
        chosen = chooser.open(grid, arrays, _innermost(self, "arrayrecord_key", "arrays"), least)
        if not chosen:
            return []
        view = _View(grid, list(chosen), chooser.clock)
        n = len(chosen)
        with _fitted(self, fraction_train=1.0, min_train_nodes=n, min_available_nodes=n):
            try:
                messages = list(super().configure_train(server_round, arrays, config, view))  # type: ignore[misc]
            except _WaitsError:
                raise ConfigError(
                    f"the strategy waits for more nodes than the {n} chosen in round {server_round}; expected one that takes the "
                    f"nodes of the grid it is given (a minimum of nodes of its own? choose m = {chooser.m} to fit it)"
                ) from None
        return chooser.address(messages)

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """The strategy's step on what passed the checks; then the selector is told."""
        replies = list(replies)
        chooser = self.motley
        good = chooser.read(replies)
        failed = [reply for reply in replies if reply.has_error()]
        kept = self._kept() if chooser.rehearsal else None
        arrays = metrics = None
        try:
            if good or failed:
                arrays, metrics = super().aggregate_train(server_round, [*good, *failed])  # type: ignore[misc]
        except flower("serverapp.exception").InconsistentMessageReplies as problem:
            chooser.refuse(str(problem))
        if kept is not None:
            vars(self).update(kept)
        return (arrays if chooser.close(arrays) else None), metrics

    def _kept(self) -> dict[str, Any]:
        """The strategy as it is, for after a rehearsal."""
        return copy.deepcopy({name: value for name, value in vars(self).items() if name != "motley"})

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        """The strategy's messages, to whom it likes of those who are there."""
        chooser = self.motley
        chooser.look(grid)
        nodes = [chooser.register.node_of[client] for client in chooser.register.clients.tolist()]
        if not nodes:
            return []
        least = min(_innermost(self, "min_evaluate_nodes", 0), len(nodes))
        with _fitted(self, min_evaluate_nodes=least, min_available_nodes=least):
            try:
                return list(super().configure_evaluate(server_round, arrays, config, _View(grid, nodes, chooser.clock)))  # type: ignore[misc]
            except _WaitsError:
                return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> Any:
        """The strategy's mean of the evaluations that passed the checks."""
        replies = list(replies)
        good = self.motley.evaluations([reply for reply in replies if not reply.has_error()])
        try:
            return super().aggregate_evaluate(server_round, [*good, *(r for r in replies if r.has_error())])  # type: ignore[misc]
        except flower("serverapp.exception").InconsistentMessageReplies:
            return None
