"""Write the rounds of a Flower strategy with a selector into a run's folder, and go on there after
the server was killed.

Flower's loop always begins at round 1. A server that is started again therefore *replays* the
rounds that its folder holds: no client is asked, the strategy's methods return what they returned
then, and at the last of these rounds the model of that round. The rounds after it are the
strategy's own. So any loop over numbered rounds goes on, and its result is that of a run that was
never killed.

A checkpoint is written when a round is trained, before anybody evaluates it, and again when the
round is over.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from motley.core.errors import ConfigError, StoreError
from motley.core.files import user_path
from motley.core.round_line import round_of
from motley_flower.node_registry import LOG
from motley_flower.real_run import stopping_in_a_sentence
from motley_flower.recorded.history import HistoryEntry
from motley_flower.recorded.plain_values import AttributeValues, attributes_of, pack, unpack
from motley_flower.recorded.run_files import RunFiles
from motley_flower.recorded.run_tables import (
    client_rows,
    evaluation_rows,
    federation_rows,
    incident_rows,
    mean_metrics,
    noted_rows,
    round_row,
    traffic_columns,
)
from motley_flower.recorded.selection_state import (
    participation_rows,
    restore_selection,
    save_selection,
)
from motley_flower.strategy.participation import ExchangeRow
from motley_flower.strategy.round_observer import Metrics, RoundObserver, named_metrics
from motley_flower.strategy.strategy_state import OpenRound

if TYPE_CHECKING:
    import os

    from motley_flower.strategy.coordinator import SelectionCoordinator

_KINDS = ("training", "clients", "server")


class RecordedRun(RoundObserver):
    """Records the rounds of one run.

    Parameters
    ----------
    out: the run's folder.
    strategy: name of its class. See :class:`~motley_flower.strategy.round_observer.RoundObserver`.

    Attributes
    ----------
    trained_step, ended_step: the last round that was trained, and the last that is over.
    """

    coordinator: SelectionCoordinator

    def __init__(
        self,
        coordinator: SelectionCoordinator,
        out: str | os.PathLike[str],
        strategy: str,
        shown: bool = True,
    ) -> None:
        super().__init__(coordinator, user_path(out).resolve().name, shown)
        self.files = RunFiles(user_path(out), coordinator, strategy)
        self.trained_step = self.ended_step = 0
        self._replay = (0, -1)  # rounds up to which training, and evaluation, are replayed
        # of the rounds that are replayed
        self._history: dict[str, dict[int, Any]] = {kind: {} for kind in _KINDS}
        self._exchanges = 0  # that the history has
        # of the open round, written when it is over
        self._rows: list[tuple[str, dict[str, Any]]] = []
        self._row: dict[str, Any] | None = None
        self._counted: dict[str, float] = {}
        self._start_s = 0.0
        self._written: set[int] = set()
        self._attributes = AttributeValues(None, [])

    @override
    @contextmanager
    def going(self, strategy: Any, arguments: dict[str, Any]) -> Iterator[None]:
        self.rounds = arguments.get("num_rounds")
        if self._attributes.strategy is None:
            self._attributes = AttributeValues.of(strategy)
        with self.files.held():
            saved = self.files.open(
                self.rounds, arguments.get("initial_arrays"), attributes_of(strategy)
            )
            if saved is not None:
                self._restore(saved)
            self._announce(saved is not None)
            with stopping_in_a_sentence(self.files.path):
                with self._quiet_replay(), super().going(strategy, arguments):
                    yield
                self.files.finish(self.trained_step, self._saved)
        page = self.files.report()
        where = f"tables in {self.files.path}" if page is None else f"report in {page}"
        self.say(f"finished after round {self.ended_step}, {where}")

    @contextmanager
    def _quiet_replay(self) -> Iterator[None]:
        """Keep what Flower's loop logs of replayed rounds out of its log."""
        log = logging.getLogger("flwr")

        def later(record: logging.LogRecord) -> bool:
            return self._open or self.trained_step == 0 or record.levelno > logging.INFO

        log.addFilter(later)
        try:
            yield
        finally:
            log.removeFilter(later)

    def _announce(self, resumed: bool) -> None:
        """Say where the run begins, or begins again."""
        where = f"resumed at {round_of(self.ended_step + 1, self.rounds)}" if resumed else "begun"
        if resumed and self.trained_step > self.ended_step:
            where += ", which is trained and not evaluated yet"
        if resumed and self.rounds is not None and self.ended_step >= self.rounds:
            where = f"finished before, after round {self.ended_step}"
        self.say(f"{where}, tables in {self.files.path}")

    # ----------------------------------------------------------------------------- rounds of before

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Take over a checkpoint.

        Raises
        ------
        ConfigError: the run cannot go on from it. StoreError: it goes further than the strategy's
        loop.
        """
        self._check_resumable(saved)
        rows = participation_rows(
            *(self.files.rows(table, saved["rows"]) for table in ("clients", "incidents"))
        )
        restore_selection(self.coordinator, saved["selection"], rows, saved["trained"])
        self.trained_step = saved["trained"]
        self.ended_step = saved["ended"]
        self.model = unpack(saved["model"])
        self._replay = (self.trained_step, self.ended_step)
        self._history = {kind: {} for kind in _KINDS}
        exchanges = []
        for entry in self.files.history.entries():
            if entry.kind == "exchange":
                exchanges.append(ExchangeRow(*entry.value))
            else:
                self._history[entry.kind][entry.round] = unpack(entry.value)
        self.coordinator.state.exchanges[:] = exchanges
        self._exchanges = len(exchanges)
        self._rows = list(saved["rows"])
        self._row = saved["row"]
        self._counted = saved["counted"]
        self._zero_s = self.coordinator.clock.now() - saved["now_s"]
        self._start_s = saved["start_s"]
        self._written = set(saved["written"])
        self.score = saved["score"]
        self.asked = saved["asked"]
        self.accepted = saved["accepted"]
        self._attributes.restore(saved["strategy"])

    def _check_resumable(self, saved: Mapping[str, Any]) -> None:
        path = self.files.path
        trained = saved["trained"]
        if self.rounds is not None and trained > self.rounds:
            raise StoreError(
                f"{path} holds {trained} rounds already, and num_rounds is {self.rounds}; choose "
                "another folder"
            )
        if trained == self.rounds:
            return
        anew = _ANEW.format(path=path)
        if saved["lost"]:
            raise ConfigError(
                f"{_kept(self.files.strategy, saved['lost'])}, and it was lost with the server; "
                f"{anew}"
            )
        if saved["unsure"]:
            LOG.warning(
                "%s: what changed inside since round 1 begins anew",
                _kept(self.files.strategy, saved["unsure"]),
            )

    def _saved(self) -> dict[str, Any]:
        """Return everything from which the run goes on but its history, as plain values and
        arrays; the history gets what is new."""
        exchanges = self.coordinator.state.exchanges
        for row in exchanges[self._exchanges :]:
            self.files.history.add(HistoryEntry("exchange", row.round, dataclasses.astuple(row)))
        self._exchanges = len(exchanges)
        attributes, lost, unsure = self._attributes.changed()
        if lost and self.trained_step == 1 == self.ended_step:
            LOG.warning(
                "%s: a server that is started again cannot go on with it",
                _kept(self.files.strategy, lost),
            )
        return {
            "trained": self.trained_step,
            "ended": self.ended_step,
            "model": pack(self.model),
            "now_s": self.now_s,
            "rows": self._rows,
            "row": self._row,
            "counted": self._counted,
            "start_s": self._start_s,
            "score": self.score,
            "asked": self.asked,
            "accepted": self.accepted,
            "written": sorted(self._written),
            "selection": save_selection(self.coordinator),
            "strategy": attributes,
            "lost": lost,
            "unsure": unsure,
        }

    @override
    def replays_training(self, step: int) -> bool:
        return step <= self._replay[0]

    @override
    def replays_evaluation(self, step: int) -> bool:
        return step <= self._replay[1]

    @override
    def training(self, step: int) -> tuple[Any, Any]:
        if step == self._replay[0] > self._replay[1]:
            self.step, self._open = step, True  # its evaluation is still to come
            self.coordinator.current = OpenRound(None, self.model, "")  # type: ignore[arg-type]
        return (self.model if step == self._replay[0] else None), self._history["training"].get(
            step
        )

    @override
    def evaluation(self, step: int) -> Any:
        return self._history["clients"].get(step)

    @override
    def evaluate(self, evaluate: Callable[[int, Any], Any], step: int, arrays: Any) -> Any:
        if self.replays_evaluation(step):
            return self._history["server"].get(step)
        return super().evaluate(evaluate, step, arrays)

    # -------------------------------------------------------------------------------- rounds of now

    @override
    def begin_round(self, step: int) -> None:
        super().begin_round(step)
        if self.trained_step == 0 and self._rows:
            self._commit()  # the untrained model was evaluated
        self._start_s = self.now_s

    @override
    def trained(self, step: int, arrays: Any, metrics: Metrics | None) -> None:
        super().trained(step, arrays, metrics)
        coordinator = self.coordinator
        self.trained_step = step
        self.model = self.model if arrays is None else arrays
        if metrics is not None:
            self.files.history.add(HistoryEntry("training", step, pack(metrics)))
        new = sorted(coordinator.registry.enrolled.keys() - self._written)
        self._written.update(new)
        tables = {
            "clients": client_rows(coordinator, step, self._zero_s),
            "choices": noted_rows(coordinator, step),
            "incidents": incident_rows(coordinator, step, self.now_s),
            "federation": federation_rows(coordinator, new),
        }
        self._rows += [(table, rows) for table, rows in tables.items() if rows.get("client")]
        self._row = round_row(coordinator, step, self._start_s)
        self.files.save(2 * step - 1, self._saved())

    @override
    def evaluated_by_clients(self, step: int, metrics: Metrics | None) -> None:
        super().evaluated_by_clients(step, metrics)
        if metrics is None:
            return
        self.files.history.add(HistoryEntry("clients", step, pack(metrics)))
        each = self.coordinator.evaluations
        self._measured(
            step,
            {
                "client": each,
                "mean": {-1: mean_metrics(each.values(), self.coordinator.reader.weight_key)},
            },
        )
        self._measured(step, {"pooled": {-1: metrics}})

    @override
    def evaluated(self, step: int, metrics: Metrics) -> None:
        super().evaluated(step, metrics)
        self.files.history.add(HistoryEntry("server", step, pack(metrics)))
        self._measured(step, {"global": {-1: metrics}})

    def _measured(self, step: int, records: Mapping[str, Mapping[int, Metrics]]) -> None:
        """Add the rows of metric records by scope and client."""
        place = {
            "round": step,
            "selections": self.trained_step,
            "time_s": self.now_s,
            "total_bits": sum(self.coordinator.traffic.values()),
        }
        for scope, by_client in records.items():
            for client, metrics in by_client.items():
                where = {**place, "scope": scope, "client": client}
                self._rows += evaluation_rows(metrics, where, self.coordinator.reader.weight_key)
                self.files.tells(named_metrics(metrics))

    @override
    def end_round(self) -> None:
        over = self._open
        super().end_round()
        if over:
            self.ended_step = self.step
            self._commit()

    def _commit(self) -> None:
        """Write the open round's rows and a checkpoint after them."""
        if self._row is not None:
            traffic = self.coordinator.traffic
            row = {**self._row, **traffic_columns(traffic, self._counted), "time_s": self.now_s}
            self._rows += [
                ("rounds", row),
                ("timings", {"round": row["round"], "wall_s": self.now_s - self._start_s}),
            ]
            self._counted = dict(traffic)
            self._row = None
        self.files.add(self._rows)
        self._rows = []
        self.files.save(2 * self.ended_step, self._saved(), self.model)


def _kept(strategy: str, attributes: list[str]) -> str:
    return (
        f"{strategy} keeps {' and '.join(attributes)} from round to round, which no file can hold"
    )


_ANEW = (
    "begin another run in a new folder from {path}/model.safetensors and {path}/selector.bin, with "
    "rounds_done and clients_sent (docs/deploy/your-app.md)"
)
