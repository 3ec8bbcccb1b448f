"""Draw compositions of everything that the registry offers, and run each whole, again, and killed
and resumed.

    # a search; the same command goes on with it
    scripts/compose [--count 1000] [--minutes 10] [--seed 0] [--log FILE]
    # one composition of a search again
    scripts/compose --seed 0 --only 17

A fault is whatever is no sentence for users: a crash while an experiment is checked or runs, a
second run with other bits, a run that was killed and, resumed, ends with other bits, and one that
hangs. Each distinct fault is printed with the smallest experiment found that shows it. No file of a
run is torn here: ``scripts/test-chaos`` kills at any moment, this after a server step.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from same_results import files

from chaos.attempts import adopt_orphans, attempt, commit
from chaos.combinations import Entry, Keys, threads_of
from chaos.compare import differences, leftovers
from chaos.compositions import (
    SHARES,
    SLOW,
    Composition,
    Compositions,
    RefusedError,
    checked,
    laid,
    own_task,
)
from motley import run
from motley.core.errors import UserError
from motley.experiments import document, store
from motley.experiments.trackers import running

for _module in (
    "torch._dynamo",
    "sklearn.datasets",
    "sklearn.metrics",
    "scipy.optimize",
    "dp_accounting",
):
    # once, and not in the process of every batch: the first takes seconds
    importlib.import_module(_module)

__all__ = ["LeftError", "Row", "Search", "between", "main", "quick", "run_whole", "summary"]

BATCH = 40
"""Compositions that one process runs, one after the other."""
OTHERS = 0.95
"""Share of the turns of components that take seconds which others have instead."""
HUNG_S = 600
"""Wall seconds after which a composition has hung."""
SHRINKS = 40
"""Runs that making an experiment smaller may take."""


class HungError(BaseException):
    """Raised in a composition that takes too long."""


@dataclass
class Row:
    """What came of one composition.

    Parameters
    ----------
    entry: that it had to use. came: ``ran``, ``refused`` (by the checks, however it was mended),
    ``stopped`` (by a sentence for users while it ran) or ``fault``. refusals: how often it was
    refused and mended before it was accepted. parts: axes that were drawn.
    said: the last refusal, or what stopped it. fault: what went wrong, alike for alike faults.
    keys, own: the smallest experiment that shows it. trace: of the error. kind: what it was
    compared with. command: that repeats it.
    """

    seed: int
    number: int
    entry: Entry
    came: str = "ran"
    refusals: int = 0
    parts: list[str] = field(default_factory=list)
    said: str = ""
    fault: str = ""
    keys: Keys = field(default_factory=dict)
    own: str | None = None
    trace: str = ""
    wall_s: float = 0.0
    kind: str = ""
    command: str = "scripts/compose"
    commit: str = field(default_factory=commit)

    def text(self) -> str:
        """Return the fault, the experiment that shows it, and the command that repeats it."""
        task = "" if self.own is None else f"# task: same_results.own.made({self.own!r})\n"
        again = f"{self.command} --seed {self.seed} --only {self.number}"
        return (
            f"{self.came.upper()} "
            f"{self.fault or self.said}\n{task}{document.to_toml(self.keys)}# "
            f"{again}\n{self.trace}"
        )


class _Came(NamedTuple):
    """What came of running an experiment: as in :class:`Row`."""

    came: str = "ran"
    said: str = ""
    fault: str = ""
    trace: str = ""


class Search:
    """Draws compositions and runs them.

    Parameters
    ----------
    seed: of everything that is drawn. place: folder for files. shares: as for
    :class:`Compositions`. forks: whether a run is killed in a process of its own; else it is left
    by an error in this one, which writes less than a kill may lose.
    """

    command: ClassVar[str] = "scripts/compose"

    def __init__(
        self, seed: int, place: Path, shares: tuple[float, ...] = SHARES, forks: bool = True
    ) -> None:
        self.seed = seed
        self.place = place
        self.forks = forks
        files.write(place / "files")
        self.drawn = Compositions(place / "files", shares)
        self.entries = self.drawn.entries()
        random.Random(seed).shuffle(self.entries)

    def turn(self, number: int) -> tuple[random.Random, Entry]:
        """Return the generator of a composition, and the component that it must use."""
        rng = random.Random(f"{self.seed}/{number}")
        entry = self.entries[number % len(self.entries)]
        if entry in SLOW and rng.random() < OTHERS:
            entry = rng.choice([other for other in self.entries if other not in SLOW])
        return rng, entry

    def one(self, number: int, known: frozenset[str] = frozenset()) -> Row:
        """Draw and run one composition; a fault that is not ``known`` is shown by the smallest
        experiment that is found."""
        began, rng, entry = time.monotonic(), *self.turn(number)
        row = Row(self.seed, number, entry, command=self.command)
        try:
            with _limited():
                composition = self.drawn.draw(rng, entry)
        except RefusedError as error:
            row.came = "refused"
            row.said = str(error)
        except BaseException as error:
            composition = getattr(error, "composition", None)
            self._judge(row, composition, _fault("while it was checked", error), known)
        else:
            self._judge(row, composition, self.tried(composition, rng.random()), known)
        row.wall_s = round(time.monotonic() - began, 3)
        return row

    def _judge(
        self, row: Row, composition: Composition | None, came: _Came, known: frozenset[str]
    ) -> None:
        """Write down what came of a composition."""
        row.came, row.said, row.fault, row.trace = came
        if composition is None:
            return
        row.parts = sorted(composition.parts)
        row.refusals = len(composition.refused)
        row.own = composition.own
        if came.came == "stopped":
            row.keys = composition.keys
        if came.fault:
            small = composition if came.fault in known else self._shrunk(composition, came.fault)
            row.keys = small.keys

    def _shrunk(self, composition: Composition, fault: str) -> Composition:
        """Return the composition without the parts that a fault does not need."""
        axes = [axis for axis in composition.parts if axis not in ("base", "data")]
        for axis in axes[:SHRINKS]:
            parts = {name: part for name, part in composition.parts.items() if name != axis}
            less = dataclasses.replace(composition, parts=parts, keys=laid(parts.values()))
            if self.tried(less, 0.5, check=True).fault == fault:
                composition = less
        return composition

    def tried(
        self, composition: Composition, when: float, check: bool = False, once: bool = False
    ) -> _Came:
        """Run an experiment and what it is compared with (:meth:`stages`). ``when``: share of its
        server steps at which it is killed; ``check``: whether it was not checked before; ``once``:
        whether it runs whole alone."""
        folder = self.place / f"run-{os.getpid()}"
        stage = "while it was checked"
        found: list[str] = []
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with _limited():
                if check:
                    checked(composition.keys, composition.own)
                stage = "while it ran"
                stages = self.stages(composition, folder, when)
                for begins, found in itertools.islice(stages, 1) if once else stages:
                    stage = begins
                    if found:
                        break
        except UserError as error:
            return (
                _Came("stopped", str(error))
                if stage in ("while it was checked", "while it ran")
                else _fault(stage, error)
            )
        except BaseException as error:
            return _fault(stage, error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return _Came("fault", fault=f"{stage}: {_alike('; '.join(found))}") if found else _Came()

    def stages(
        self, composition: Composition, folder: Path, when: float
    ) -> Iterator[tuple[str, list[str]]]:
        """Run an experiment whole, again, and killed and resumed; yield what begins next, and what
        was found before."""
        steps = run_whole(composition, folder / "whole")
        yield "when it ran again", []
        run_whole(composition, folder / "again")
        yield "when it ran again", between(folder, "again")
        yield from self.interrupted(composition, folder, 1 + int(when * steps))

    def interrupted(
        self, composition: Composition, folder: Path, step: int
    ) -> Iterator[tuple[str, list[str]]]:
        """Kill an experiment after a server step and resume it; compare it with the whole one."""
        yield "while it was killed", []
        (_killed if self.forks and not _has_threads() else _left)(
            composition, folder / "killed", step
        )
        yield "when it was resumed", []
        run_whole(composition, folder / "killed")
        yield "when it was resumed", between(folder, "killed")


def run_whole(
    composition: Composition, out: Path, last: int = 0, end: Callable[[], None] | None = None
) -> int:
    """Run an experiment in its folder and return its server steps; ``end`` is called after the step
    ``last``."""
    steps = 0

    def heard(_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == last and end is not None:
            end()

    os.environ["OMP_NUM_THREADS"] = threads_of(composition.keys)
    task = None if composition.own is None else own_task(composition.own)
    run(composition.keys, out=out, resume=True, task=task, on_round=heard)
    return steps


def _killed(composition: Composition, out: Path, step: int) -> None:
    """Run an experiment in a process that is killed after a server step.

    Raises
    ------
    RuntimeError: it ended otherwise.
    """
    child = os.fork()
    if child == 0:
        try:
            gc.disable()
            run_whole(composition, out, step, partial(os.kill, os.getpid(), signal.SIGKILL))
        finally:
            traceback.print_exc()
            os._exit(1)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    if not os.WIFSIGNALED(status):
        raise RuntimeError("the run in a forked process came to another end")


def _has_threads() -> bool:
    """Return whether this process has threads, as torch keeps some after a run of a large model on
    several: a fork of it would wait for ever for threads that it has not."""
    return len(os.listdir("/proc/self/task")) != 1


class LeftError(BaseException):
    """Raised in a run that is left in its middle."""


def _left(composition: Composition, out: Path, step: int) -> None:
    """Run an experiment and leave it after a server step."""

    def leave() -> None:
        raise LeftError

    with suppress(LeftError):
        run_whole(composition, out, step, leave)


def between(folder: Path, other: str) -> list[str]:
    """Return what differs between the runs ``whole`` and ``other`` of a folder."""
    return [
        *differences(folder / "whole", folder / other),
        *leftovers(folder / "whole", folder / other),
    ]


def _fault(stage: str, error: BaseException) -> _Came:
    """Return a fault, named by where and how it ended."""
    ours = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "/motley/" in frame.filename
    ]
    where = f" ({Path(ours[-1].filename).name}, {ours[-1].name})" if ours else ""
    fault = f"{stage}: {type(error).__name__}: {_alike(str(error))}{where}"
    return _Came("fault", str(error), fault, "".join(traceback.format_exception(error))[-3000:])


def _alike(text: str) -> str:
    """Return a sentence without its numbers, so that alike faults are told alike."""
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", text)[:300]


@contextmanager
def _limited() -> Iterator[None]:
    """End the block with :class:`HungError` when it takes too long."""

    def ring(*_: Any) -> None:
        raise HungError(f"it hung for {HUNG_S} s")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(HUNG_S)
    try:
        yield
    finally:
        signal.alarm(0)


# ------------------------------------------------------------------------------------- a search


def quick() -> None:
    """Look for versions and the commit once, not once for each run: half of the time of a tiny
    one."""
    running.installed_versions = store.installed_versions = cache(store.installed_versions)
    store.source_commit = cache(store.source_commit)
    warnings.simplefilter("ignore")
    gc.collect()
    gc.freeze()  # what a forked process does not look through stays shared with it


def summary(rows: list[Row], entries: int) -> dict[str, Any]:
    """Return the numbers of a search."""
    faults = Counter(row.fault for row in rows if row.fault)
    came = Counter(row.came for row in rows)
    return {
        "compositions": len(rows),
        "ran": came["ran"],
        "refused": came["refused"],
        "stopped by a sentence": came["stopped"],
        "faults": came["fault"],
        "ran, of all": round(came["ran"] / max(1, len(rows)), 3),
        "accepted as drawn, of all": round(
            sum(not row.refusals and row.came != "refused" for row in rows) / max(1, len(rows)), 3
        ),
        "refusals on the way": sum(row.refusals for row in rows),
        "names drawn": len({tuple(row.entry) for row in rows if row.came == "ran"}),
        "names there are": entries,
        "parts of one, mean": round(sum(len(row.parts) for row in rows) / max(1, len(rows)), 1),
        **({"compared with": _kinds(rows)} if any(row.kind for row in rows) else {}),
        "wall_s": round(sum(row.wall_s for row in rows), 1),
        "distinct faults": dict(faults.most_common()),
    }


def _kinds(rows: list[Row]) -> dict[str, int]:
    """Return how many compositions that ran were compared with what."""
    return dict(Counter(row.kind for row in rows if row.kind and row.came == "ran").most_common())


class Log:
    """The rows of a file, which several processes may lengthen; each line is read once."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self._seed = seed
        self._read_to = 0
        self._rows: list[Row] = []

    def rows(self) -> list[Row]:
        """Return the rows of this seed, those that were written since the last call included."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]  # another process may be writing the last line
        self._read_to += len(whole)
        rows = [Row(**json.loads(line)) for line in whole.splitlines()]
        self._rows += [row for row in rows if row.seed == self._seed]
        return self._rows


def _batch(
    search: Search, numbers: list[int], log: Path, known: frozenset[str], ends: float
) -> None:
    """Run compositions one after the other, and write a line for each."""
    quick()
    for number in numbers:
        if time.monotonic() > ends:
            return
        row = search.one(number, known)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(row)) + "\n")
        if row.came == "stopped" or (row.fault and row.fault not in known):
            print(row.text(), flush=True)  # a sentence that comes after the first round comes late
            known |= {row.fault}
        if _has_threads():
            return  # the others go on in a process that can be forked


def _arguments(prog: str, text: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=prog, description=text.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--count",
        type=int,
        default=1000,
        help="compositions of this seed in all, those in the log included",
    )
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="begin no composition after so many"
    )
    parser.add_argument(
        "--only",
        type=int,
        action="append",
        help="number of a composition to run again; may be repeated",
    )
    parser.add_argument(
        "--part",
        default="0/1",
        help="I/N: every N-th composition; several such processes may share one log",
    )
    parser.add_argument(
        "--log",
        type=Path,
        help="one line of JSON for each composition; a search goes on where its log ends",
    )
    parser.add_argument("--summary", type=Path, help="file for the numbers")
    return parser.parse_args()


def _go(given: argparse.Namespace, search: Search, log: Log) -> None:
    """Run batches, each in a process of its own, until all compositions are in the log."""
    ends, (part, parts) = time.monotonic() + 60.0 * given.minutes, map(int, given.part.split("/"))
    while time.monotonic() < ends:
        rows = log.rows()
        done = {row.number for row in rows}
        wanted = given.only or range(part, given.count, parts)
        todo = list(itertools.islice((number for number in wanted if number not in done), BATCH))
        if not todo:
            return
        known = frozenset(row.fault for row in rows if row.fault)
        ended = attempt(
            partial(_batch, search, todo, log.path, known, ends),
            search.place,
            limit_s=BATCH * HUNG_S,
        )
        done = {row.number for row in log.rows()}
        left = [number for number in todo if number not in done]
        if not ended.done and left:  # the process died in the first that is left
            row = Row(
                given.seed,
                left[0],
                search.entries[left[0] % len(search.entries)],
                "fault",
                command=search.command,
                fault=f"it died: {ended.said}",
            )
            print(row.text(), flush=True)
            with log.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")


def main(kind: type[Search] = Search, text: str = __doc__ or "") -> None:
    """Search, and print what was found; exit with 1 if there was a fault."""
    given = _arguments(kind.command, text)
    for name in ("log", "summary"):
        if getattr(given, name) is not None:
            setattr(given, name, getattr(given, name).resolve())
            getattr(given, name).parent.mkdir(parents=True, exist_ok=True)
    adopt_orphans()
    # no disk is slow enough to matter
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="compose-", dir=memory) as place:
        os.chdir(place)
        search = kind(given.seed, Path(place))
        kept = given.log is not None and not given.only
        log = Log(given.log if kept else Path(place) / "log.jsonl", given.seed)
        _go(given, search, log)
        rows = log.rows()
    text = json.dumps(
        {"commit": commit(), "seed": given.seed, **summary(rows, len(set(search.entries)))},
        indent=1,
    )
    print(text)
    if given.summary is not None:
        given.summary.write_text(text + "\n", encoding="utf-8")
    sys.exit(any(row.fault for row in rows))


if __name__ == "__main__":
    main()
