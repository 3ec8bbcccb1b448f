"""Observe the rounds of a strategy with a selector: print a line about each.

A round is open from its choice to its last evaluation, of which a strategy's loop gives no sign: it
ends when the next begins, or with the loop.
:class:`~motley_flower.recorded.recorded_run.RecordedRun` observes rounds to write them into a run's
folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from motley.core.records import Outcome
from motley.core.round_line import round_line
from motley.core.untrusted import printable
from motley_flower.messages import WallClock
from motley_flower.strategy.strategy_state import OpenRound

Metrics = Mapping[str, Any]


def named_metrics(metrics: Metrics) -> dict[str, float]:
    """Return the single numbers of a metric record, a loss and an accuracy under these names.

    >>> named_metrics({"eval_acc": 0.5, "eval_loss": 2.0, "num-examples": 10})
    {'num-examples': 10.0, 'loss': 2.0, 'accuracy': 0.5}
    """
    numbers = {
        str(name): float(value) for name, value in metrics.items() if isinstance(value, int | float)
    }
    for name, endings in (("loss", ("loss",)), ("accuracy", ("accuracy", "acc"))):
        like = next((key for key in numbers if key.lower().endswith(endings)), None)
        if name not in numbers and like is not None:
            numbers[name] = numbers.pop(like)
    return numbers


class _Selection(Protocol):
    """What an observer reads of a run's coordinator."""

    clock: WallClock
    current: OpenRound | None

    @property
    def names(self) -> Mapping[int, str]:
        """The clients' names by id."""

    @property
    def traffic(self) -> Mapping[str, float]:
        """Bits sent so far, by purpose and direction."""


class RoundObserver:
    """Prints a line about every round on standard error.

    Parameters
    ----------
    coordinator: of the run.
    title: first word of each line.
    shown: whether lines are printed.

    Attributes
    ----------
    rounds: of the strategy's loop; None where it does not say.
    step: number of the round that is open, or was last; 0 before round 1.
    asked, accepted: clients asked in it, and how many of their updates were used.
    score: newest metric with its name.
    model: of a run that goes on in its folder, as it was after its last round; None: there is none.
    """

    def __init__(self, coordinator: _Selection, title: str, shown: bool = True) -> None:
        self.coordinator = coordinator
        self.title = title
        self.shown = shown
        self.rounds: int | None = None
        self.step = 0
        self.score = ""
        self.asked = list[int]()
        self.accepted = 0
        self.model: Any = None
        self._open = False
        self._zero_s = coordinator.clock.now()

    @property
    def now_s(self) -> float:
        """Seconds of wall time since the run began."""
        return self.coordinator.clock.now() - self._zero_s

    def say(self, text: str) -> None:
        """Print a line about the run."""
        if self.shown:
            sys.stderr.write(f"{self.title}, {printable(text)}\n")
            sys.stderr.flush()

    @contextmanager
    def going(self, strategy: Any, arguments: dict[str, Any]) -> Iterator[None]:
        """Observe a strategy's loop within a block.

        Parameters
        ----------
        arguments: the arguments of its ``start``, by name; its function of evaluation is replaced
        by one that is observed.
        """
        self.rounds = arguments.get("num_rounds")
        self.step = 0
        evaluate = arguments.get("evaluate_fn")
        if evaluate is not None:
            arguments["evaluate_fn"] = lambda step, arrays: self.evaluate(evaluate, step, arrays)
        yield
        self.end_round()

    def evaluate(self, evaluate: Callable[[int, Any], Any], step: int, arrays: Any) -> Any:
        """Return what the caller's function says of the model after a round."""
        metrics = evaluate(step, arrays)
        if metrics is not None:
            self.evaluated(step, metrics)
        return metrics

    # --------------------------------------------------------------------- what a round consists of

    def replays_training(self, step: int) -> bool:
        """Return whether a round was trained before, by a server that was killed since."""
        return False

    def replays_evaluation(self, step: int) -> bool:
        """Return whether a round was evaluated by clients before, by a server that was killed
        since."""
        return False

    def training(self, step: int) -> tuple[Any, Any]:
        """Return the model and the metrics of a round that is replayed."""
        raise NotImplementedError

    def evaluation(self, step: int) -> Any:
        """Return the clients' metrics of a round that is replayed."""
        raise NotImplementedError

    def begin_round(self, step: int) -> None:
        """Note that a round begins."""
        self.end_round()
        self.step = step
        self.asked = []
        self.accepted = 0
        self._open = True

    def trained(self, step: int, arrays: Any, metrics: Metrics | None) -> None:
        """Note a round's training: the new model, None for the model of before, and the strategy's
        metrics."""
        current = self.coordinator.current
        reports = [] if current is None else current.reports
        self.asked = [report.id for report in reports]
        self.accepted = sum(
            report.outcome in (Outcome.ACCEPTED, Outcome.REHEARSED) for report in reports
        )

    def evaluated_by_clients(self, step: int, metrics: Metrics | None) -> None:
        """Note the strategy's metrics of the clients' evaluations."""
        if metrics is not None:
            self._score(metrics)

    def evaluated(self, step: int, metrics: Metrics) -> None:
        """Note the server's own metrics of the model."""
        self._score(metrics)

    def end_round(self) -> None:
        """Note that the open round, if there is one, is over."""
        if not self._open:
            return
        self._open = False
        spent = {"total_bits": sum(self.coordinator.traffic.values()), "time_s": self.now_s}
        self.say(
            round_line(
                self.step,
                self.rounds,
                asked=self.asked,
                accepted=self.accepted,
                score=self.score,
                names=self.coordinator.names,
                **spent,
            )
        )

    def _score(self, metrics: Metrics) -> None:
        numbers = named_metrics(metrics)
        name = next((name for name in ("accuracy", "loss") if name in numbers), None)
        self.score = self.score if name is None else f"{name} {numbers[name]:#.3g}"
