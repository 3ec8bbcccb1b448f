"""The files of a recorded run: the record, the tables, the checkpoints, the model and the
selector."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from motley.core.errors import ContractError, StoreError
from motley.core.files import disk_error, replacing
from motley.core.strict_json import to_json
from motley.experiments.registry import record_of
from motley.experiments.store import RunFolder, ensure_space, installed_versions, source_commit
from motley.results.load import load, read_table
from motley.results.marks import Mark, pack_marks, unpack_marks
from motley.results.writer import Writer, remove_streams, to_batch
from motley.results.written_report import write_report
from motley.rounds.checkpoint import Checkpoints
from motley_flower.real_run import REAL
from motley_flower.recorded.history import History

if TYPE_CHECKING:
    from motley_flower.strategy.coordinator import SelectionCoordinator

_SAME = ("selector", "algorithm", "cohort", "seed", "horizon")
"""Keys of the record by which a run is known again."""


class RunFiles:
    """The files of one run.

    Parameters
    ----------
    path: the run's folder.
    coordinator: of the run.
    strategy: name of its class.

    Attributes
    ----------
    history: what the strategy's loop was given; that of the run which :meth:`open` returned.
    """

    def __init__(self, path: Path, coordinator: SelectionCoordinator, strategy: str) -> None:
        self.path = path
        self.coordinator = coordinator
        self.strategy = strategy
        self._folder = RunFolder(path)
        self._record: dict[str, Any] = {}
        self._metric: str | None = None
        self._writer: Writer | None = None
        self._marks: Mapping[str, Mark] = {}
        self.history = History(path, None)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder within a block, for this process alone.

        Raises
        ------
        StoreError: another process holds it, or it cannot be written.
        """
        with self._folder.lock():
            try:
                yield
            finally:
                if self._writer is not None:
                    self._writer.close()
                self.history.close()

    def open(
        self, rounds: int | None, model: Any, attributes: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Begin the run, or return the last checkpoint of one that goes on.

        Parameters
        ----------
        rounds: of the strategy's loop; None where it does not say.
        model: the first model, an ArrayRecord.

        Raises
        ------
        StoreError: the folder holds something else, or a run with another selector, strategy or
        number of clients.
        """
        self._writer = None
        before = self._folder.held()
        now = self._described(rounds, model, attributes)
        if before is not None:
            _check_same(self.path, before, now)
        ensure_space(self.path)
        self._record = now
        saved = None if before is None else self._checkpoints.load()
        self.history = History(
            self.path, None if saved is None else saved["tables"].pop("history", None)
        )
        if before is not None and before.get("finished"):
            if saved is None:
                raise StoreError(
                    f"{self.path} holds this run, finished, without its last checkpoint; choose "
                    "another folder"
                )
            self._marks = unpack_marks(before["tables"])
            if rounds is not None and saved["trained"] >= rounds:
                return saved
        elif saved is not None:
            self._marks = saved["tables"]
        if before is not None:
            self._metric = (
                before["task"]["metric"] if saved is not None and saved["trained"] else None
            )
            self._record["task"]["metric"] = before["task"]["metric"]
        self._folder.write(self._record)
        self._writer = Writer(self.path, None if before is None else self._marks)
        return saved

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints", str(self._record["run_id"]))

    def _described(
        self, rounds: int | None, model: Any, attributes: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the record of a run that is not finished yet."""
        selector = self.coordinator.selector
        rule = self.coordinator.selector.rule
        numbers = {
            name: value
            for values in attributes
            for name, value in values.items()
            if type(value) in (int, float, bool)
        }
        paper = rule.paper
        config = {
            "name": self.path.resolve().name,
            "seed": selector.seed,
            "cohort": self.coordinator.m,
            "selector": record_of("selector", rule),
            "algorithm": {"name": self.strategy, **numbers},
            "horizon": selector.horizon if rule.needs().horizon else None,
            "stop": {"rounds": rounds},
            "task": {"name": "Flower app"},
        }
        identity = json.dumps([config[key] for key in _SAME], sort_keys=True)
        parameters = None
        if model is not None:
            parameters = sum(math.prod(array.shape) for array in model.values())
        return {
            "name": config["name"],
            "run_id": f"{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}-strategy",
            "seed": selector.seed,
            "config": config,
            "numerics": {},
            "finished": False,
            "command": "",
            "commit": source_commit(),
            "versions": installed_versions("flwr"),
            "citations": [
                {**dataclasses.asdict(paper), "bibtex": paper.bibtex(), "of": ["selector"]}
            ],
            "task": {"metric": "accuracy", "notes": REAL},
            **(
                {"clients": {str(k): named for k, named in names.items()}}
                if (names := self.coordinator.names)
                else {}
            ),
            "parameters": parameters,
            **(
                {}
                if self.coordinator.secure is None
                else self.coordinator.secure.options.record(self.coordinator.m)
            ),
        }

    def rows(
        self, table: str, waiting: Iterable[tuple[str, Mapping[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Return the rows of a table, and after them those that wait to be written."""
        rows: list[dict[str, Any]] = read_table(self.path, table, self._marks).to_pylist()
        return rows + [
            row for name, columns in waiting if name == table for row in as_rows(table, columns)
        ]

    def _opened(self) -> Writer:
        if self._writer is None:
            raise ContractError(f"{self.path} is not open")
        return self._writer

    # ------------------------------------------------------------------------ while the run goes on

    def add(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Write rows (table, columns).

        Raises
        ------
        StoreError: the disk refuses.
        """
        writer = self._opened()
        for table, columns in rows:
            writer.add(table, columns)
        writer.flush()

    def tells(self, metrics: Mapping[str, float]) -> None:
        """Note the names of metrics; the first of accuracy and loss that is measured leads the
        report."""
        metric = next((name for name in ("accuracy", "loss") if name in metrics), None)
        if self._metric is None and metric is not None:
            self._metric = self._record["task"]["metric"] = metric
            self._folder.write(self._record)

    def save(self, number: int, state: Mapping[str, Any], model: Any = None) -> None:
        """Write a checkpoint and, where a model is given, the files of it and of the selector.

        Raises
        ------
        StoreError: the disk refuses; the checkpoints before are untouched.
        """
        self._checkpoints.save(number, state, self._opened().sync() | self.history.sync())
        if model is not None and all(array.stype == "numpy.ndarray" for array in model.values()):
            self._replace(
                "model.safetensors",
                save({name: np.ascontiguousarray(array.numpy()) for name, array in model.items()}),
            )
        self._replace("selector.bin", self.coordinator.selector.to_bytes())

    def _replace(self, name: str, data: bytes) -> None:
        try:
            with replacing(self.path / name) as file:
                file.write(data)
        except OSError as error:
            raise disk_error(error, self.path / name) from None

    # ----------------------------------------------------------------------------------- at the end

    def finish(self, step: int, state: Callable[[], Mapping[str, Any]]) -> None:
        """Compact the tables and record that the run is finished; nothing where it was before."""
        if self._writer is None:
            return
        written = self._writer.finish()
        self._checkpoints.save(2 * step, state(), written | self.history.sync())
        population = len(self.coordinator.registry.enrolled)
        config = {**self._record["config"], "population": population or None}
        self._folder.write(
            {**self._record, "config": config, "tables": pack_marks(written), "finished": True}
        )
        remove_streams(self.path)
        self._checkpoints.prune(1)

    def report(self) -> Path | None:
        """Return the report, written where there is none of the run as it is; None where
        ``motley-report`` is not installed."""
        page = self.path / "report.html"
        if self._writer is None and page.exists():
            return page
        return write_report([load(self.path)], page)


def as_rows(table: str, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of columns as the table will have them: single values repeated, absent ones
    and NaN None."""
    batch: list[dict[str, Any]] = to_batch(table, columns).to_pylist()
    return batch


def _check_same(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise where a folder holds another run than the one that is begun.

    Raises
    ------
    StoreError: it does, with what differs.
    """
    held, new = (
        {key: described.get("config", {}).get(key) for key in _SAME}
        for described in (json.loads(to_json(record)) for record in (before, now))
    )
    for key in _SAME:
        pairs = [(key, held[key], new[key])]
        if isinstance(held[key], Mapping) and isinstance(new[key], Mapping):
            pairs = [
                (f"{key}.{name}", held[key].get(name), new[key].get(name))
                for name in {**held[key], **new[key]}
            ]
        for name, old, wanted in pairs:
            if old != wanted:
                held_here = f"{path} holds a run with {name} = {json.dumps(old)}"
                raise StoreError(
                    f"{held_here}, and this one has {name} = {json.dumps(wanted)}; choose another "
                    "folder"
                )
    if before.get("run_id") != now["run_id"]:
        raise StoreError(
            f"{path} holds another run ({before.get('name')}, {before.get('run_id')}); choose "
            "another folder"
        )
