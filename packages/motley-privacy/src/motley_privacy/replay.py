"""Find flows that no epsilon bounds: run an experiment in worlds that differ in one client's data,
with the same counted releases, and compare all that is published.

The first world runs and its releases are recorded; every other world runs with these releases
(:mod:`motley_privacy.pinned`), each in a folder of its own. What then differs in a column that is
not on the short list of what the claim does not cover (:mod:`motley_privacy.published`) is a
difference with probability one. Reference: docs/privacy.md#attack.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motley.core import codec
from motley.core.arrays import Ids
from motley.core.errors import ConfigError, UserError
from motley.experiments.build import loop_of, prepare
from motley.experiments.config import Experiment
from motley.experiments.run import run_built, run_record
from motley.experiments.store import RunFolder
from motley.experiments.trackers.running import tracked
from motley.results.schema import TABLES
from motley.results.stream import read_unmarked
from motley.results.writer import remove_streams
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.loop import RoundLoop
from motley.tasks.flat import construct
from motley.tasks.task import Task
from motley_privacy.neighbouring_worlds import CHANGES, Change, Neighbours, neighbours
from motley_privacy.pinned import (
    CertainDifference,
    PinnedRounds,
    RecordedRounds,
    Releases,
    same,
)
from motley_privacy.privacy_plan import PrivacyPlan
from motley_privacy.published import NOT_COVERED, kind_of

_PLAIN = {"log": [], "checkpoint": {"keep": True, "every_s": 1e12}, "client_state": "ram"}
"""Keys that change no result, as all worlds have them; no checkpoint is due by the wall clock,
which a slow machine would show as a difference between worlds."""
_NOISE = bytes(32)
"""The secret of all worlds, which have the same noise and are published by nobody."""
_SHOWN = 12
"""Differences of a world that are printed."""
Columns = Mapping[tuple[str, str], Any]
"""(File, column) -> its value."""
MakeWorlds = Callable[[int | None], Neighbours]
"""Client in whose data worlds differ, None for the usual one -> the worlds."""


class Replay(NamedTuple):
    """What a comparison of worlds found.

    Parameters
    ----------
    differences: change of the client's data -> what differs with certainty, the first round of each
    column.
    clock: columns of seconds and steps that differ.
    client: in whose data the worlds differ.
    entered: sums that it was in.
    files, columns, rounds: how much was compared.
    """

    differences: dict[Change, list[CertainDifference]]
    clock: list[CertainDifference]
    client: int
    entered: int
    files: int
    columns: int
    rounds: int

    @property
    def differs(self) -> bool:
        """Whether anything differs that the claim covers."""
        return any(self.differences.values())

    def sentences(self) -> list[str]:
        """Return the outcome as lines: each difference by file and column, or that there is
        none."""
        where = f"{self.files} files, {self.columns} columns, {self.rounds} rounds"
        lines = []
        for change, differences in self.differences.items():
            if differences:
                world = f"client {self.client}, {change}: {CHANGES[change]}"
                lines.append(f"Difference with probability one. {world}")
                lines += [f"  {difference}" for difference in differences[:_SHOWN]]
                more = len(differences) - _SHOWN
                lines += [f"  and {more} more columns"] * (more > 0)
        if not lines:
            lines.append(
                f"No difference beside the counted releases in {where}, in {len(self.differences)} "
                f"worlds in which client {self.client}, in {self.entered} of the sums, has other "
                f"data ({', '.join(self.differences)})."
            )
        covered = "; ".join(f"{name} ({reason})" for name, reason in NOT_COVERED.items())
        shown = [
            f"Seconds or steps follow its number of samples: {difference}"
            for difference in self.clock[:1]
        ]
        return [*lines, *shown, f"Not covered by the claim, and not compared: {covered}."]

    def record(self) -> dict[str, Any]:
        """Return the outcome for ``audit.json``."""
        by_change = {
            change: [difference._asdict() for difference in differences]
            for change, differences in self.differences.items()
        }
        clock = [difference._asdict() for difference in self.clock]
        fields = {
            name: getattr(self, name)
            for name in self._fields
            if name not in ("differences", "clock")
        }
        return {**fields, "differences": by_change, "clock": clock}


def replay(
    experiment: Experiment,
    data: Path | None = None,
    changes: Sequence[Change] = tuple(CHANGES),
    client: int | None = None,
    make: MakeWorlds | None = None,
) -> Replay:
    """Compare an experiment's run with runs in which one client has other data and all counted
    releases are the same.

    Parameters
    ----------
    data: folder searched first for data packs.
    changes: of the client's data; those that its samples do not allow are left out.
    client: its id; None: the last one, or one that was in the most sums if that was in none.
    make: makes the worlds of a client; None:
    :func:`~motley_privacy.neighbouring_worlds.neighbours`.

    Raises
    ------
    ConfigError: no ``[privacy]``, or what a run refuses.
    """
    if experiment.privacy is None:
        raise ConfigError(
            "there is nothing to audit without it; write e.g. [privacy] with clip, epsilon and "
            "delta",
            "privacy",
        )
    experiment = experiment.replace(_PLAIN)
    with tempfile.TemporaryDirectory(prefix="motley-audit-") as place:

        def made(client: int | None) -> Neighbours:
            return neighbours(experiment, Path(place) / f"files-{client}", data, client)

        worlds, first = _first(experiment, Path(place), make or made, client)
        before = dict(folder_columns(first.path))
        clock: list[CertainDifference] = []
        by_change: dict[Change, list[CertainDifference]] = {}

        def compared(first: _World, worlds: Neighbours, change: Change) -> None:
            """Run another world, and keep what differs from the first one."""
            pinned: Callable[..., PinnedRounds] = partial(
                PinnedRounds, first=first.releases, client=worlds.client, absent=change == "absent"
            )
            path = Path(place) / "other" / change
            changed = _World(experiment, worlds.changed[change], path, pinned)
            differences = _compared(first, changed, dict(folder_columns(first.path)))
            by_change[change] = [
                difference
                for difference in differences
                if kind_of(difference.file, difference.column) != "clock"
            ]
            clock.extend(
                difference
                for difference in differences
                if kind_of(difference.file, difference.column) == "clock"
            )

        for change in [change for change in worlds.changed if change in changes]:
            compared(first, worlds, change)
        if worlds.renamed is not None and "renamed" in changes:
            under_another = _World(experiment, worlds.renamed.first, Path(place) / "renamed")
            under_another.run()
            compared(under_another, worlds.renamed, "renamed")
        files = len({file for file, _ in before})
        entered = int(first.counts[worlds.client])
        rounds = len(first.releases.sums)
        return Replay(
            differences=by_change,
            clock=clock,
            client=worlds.client,
            entered=entered,
            files=files,
            columns=len(before),
            rounds=rounds,
        )


class _World:
    """One world's run: built, and run in a folder.

    Parameters
    ----------
    experiment: of all worlds.
    task: of this world.
    path: of the folder.
    private: makes what records or pins its releases.
    """

    def __init__(
        self,
        experiment: Experiment,
        task: Task,
        path: Path,
        private: Callable[..., RecordedRounds] = RecordedRounds,
    ) -> None:
        self.experiment = experiment
        self.path = path
        ready = prepare(experiment, task=task, secret=_NOISE)
        plan = ready.config.privacy
        if isinstance(plan, PrivacyPlan):
            audited = dataclasses.replace(plan, make_stage=private)
            ready = ready._replace(config=dataclasses.replace(ready.config, privacy=audited))
        self.loop: RoundLoop = loop_of(experiment, ready)
        rounds: Any = self.loop.private
        self.rounds: RecordedRounds = rounds

    @property
    def releases(self) -> Releases:
        """The counted releases so far."""
        return self.rounds.releases

    @property
    def counts(self) -> Ids:
        """How many sums each client was in."""
        return self.rounds.account.sums

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every entry of the model."""
        state = construct(self.loop.setting.task.model, 0).state_dict()
        return {name: tuple(value.shape) for name, value in state.items()}

    def run(self) -> None:
        """Run to the end, and close the engine."""
        experiment = self.experiment
        loop = self.loop
        folder = RunFolder(self.path)
        record = run_record(experiment, loop.config, loop.engine)
        checkpoints = Checkpoints(self.path / "checkpoints", experiment.run_id())
        try:
            with folder.lock(), tracked(experiment, self.path, None) as trackers:
                run_built(
                    experiment=experiment,
                    loop=loop,
                    folder=folder,
                    record=record,
                    checkpoints=checkpoints,
                    trackers=trackers,
                )
            remove_streams(self.path)
        finally:
            loop.engine.close()


def _first(
    experiment: Experiment, place: Path, make: MakeWorlds, client: int | None
) -> tuple[Neighbours, _World]:
    """Return the worlds, and the first of them, run to its end. A client that was not named, and
    was in no sum, is replaced by one that was in the most."""
    worlds = make(client)
    first = _World(experiment, worlds.first, place / "first")
    first.run()
    counts = first.counts
    if client is None and not counts[worlds.client] and counts.any():
        worlds = make(int(np.flatnonzero(counts == counts.max())[-1]))
        first = _World(experiment, worlds.first, place / "first again")
        first.run()
    return worlds, first


def _compared(first: _World, changed: _World, before: Columns) -> list[CertainDifference]:
    """Run another world, and return what differs with certainty."""
    if first.shapes != changed.shapes:
        changed.loop.engine.close()
        first_shapes, changed_shapes = (
            {name: shape for name, shape in here.items() if there.get(name) != shape}
            for here, there in ((first.shapes, changed.shapes), (changed.shapes, first.shapes))
        )
        return [
            CertainDifference(
                "model.safetensors", "shapes", -1, f"{first_shapes} and {changed_shapes}"
            )
        ]
    rounds: Any = changed.rounds
    pinned: PinnedRounds = rounds
    try:
        changed.run()
    except UserError as error:
        return [
            *_firsts(pinned.differences),
            CertainDifference("(run)", "end", pinned.step, str(error)),
        ]
    if len(pinned.releases.sums) < len(first.releases.sums):
        pinned.differences.append(CertainDifference("(run)", "end", pinned.step, "it ends earlier"))
    after = dict(folder_columns(changed.path))
    differences = [
        difference for key in {**before, **after} for difference in _difference(key, before, after)
    ]
    by_round = sorted(differences, key=lambda difference: (difference.round < 0, difference.round))
    return [*_firsts(pinned.differences), *by_round]


def _firsts(differences: Sequence[CertainDifference]) -> list[CertainDifference]:
    """Return the first difference of each column."""
    return list(
        {
            (difference.file, difference.column): difference for difference in reversed(differences)
        }.values()
    )[::-1]


def _difference(
    key: tuple[str, str], before: Columns, after: Columns
) -> Iterator[CertainDifference]:
    """Yield how a column differs, if it does and its kind says that it may not, or that it has no
    kind."""
    (file, column), kind = key, kind_of(*key)
    if kind == "not covered":
        return
    if kind is None:
        yield CertainDifference(file, column, -1, "nothing says whether the claim covers it")
    if key not in before or key not in after:
        yield CertainDifference(file, column, -1, "there in one world alone")
        return
    values = before[key]
    changed = after[key]
    if _same(values, changed):
        return
    if not isinstance(values, list) or len(values) != len(changed):
        yield CertainDifference(file, column, -1, f"{_short(values)} and {_short(changed)}")
        return
    row = next(k for k in range(len(values)) if not _same(values[k], changed[k]))
    rounds = before.get((file, "round"))
    when = rounds[row] if isinstance(rounds, list) else -1
    yield CertainDifference(file, column, when, f"{_short(values[row])} and {_short(changed[row])}")


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are equal to the last bit, NaN being equal to NaN."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return same(left, right)
    return codec.encode(left) == codec.encode(right)


def _short(value: Any) -> str:
    """Return a value in at most 80 characters."""
    if isinstance(value, list) and len(value) > 3:
        return f"{len(value)} rows"
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


# ------------------------------------------------------------------------------------- folders


def folder_columns(folder: Path) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield ((file, column), value) of all that a run's folder holds: the columns of tables, the
    keys of JSON, the entries of models and of checkpoints; other files as their bytes."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        for column, value in _columns(path):
            yield (name, column), value


def _columns(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix in (".parquet", ".arrows"):
        from pyarrow import parquet

        streamed = path.suffix == ".arrows"
        table = read_unmarked(path, TABLES[path.stem]) if streamed else parquet.read_table(path)
        yield from ((name, table.column(name).to_pylist()) for name in table.column_names)
    elif path.suffix == ".json":
        yield from json.loads(path.read_text(encoding="utf-8")).items()
    elif path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        yield from load_file(path).items()
    elif path.suffix == ".mtly":
        yield from _leaves(codec.decode(path.read_bytes()))
    else:
        yield "bytes", path.read_bytes()


def _leaves(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values inside a record by their paths, dots between the keys."""
    if not isinstance(value, Mapping) or not value:
        yield above, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, f"{above}.{key}" if above else str(key))
