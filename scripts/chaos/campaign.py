"""Cases of a campaign: one random experiment each, killed several times, resumed until it is done,
and compared."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from same_results import files
from same_results.own import made

from chaos.attempts import Ended, Moment, attempt, commit
from chaos.combinations import Drawing, Entry, Keys, threads_of
from chaos.compare import differences, leftovers

__all__ = ["Campaign", "Row"]

LONGEST_CPU_S = 12.0
"""A drawn experiment that takes longer is drawn again, unless a name that must be drawn is why."""
REDRAWS = 12
MOST_KILLS = 8
FRESH_EVERY = 8
JOBS_EVERY = 17
REPORT_EVERY = 9
"""Every so-manieth case is also run in a fresh process, run as two runs at a time, and reported."""
LAST_KILLS = 3
"""So many kills of a case may come at the end of the run."""
_AT_THE_END = re.compile(
    r"parquet|remove .*arrows|model\.safetensors|clients\.safetensors|run\.json|\.lock|rmdir"
)
_FRESH = (
    "import json, sys; from motley import run; run(json.loads(sys.argv[1]), out=sys.argv[2], "
    "resume=True)"
)


@dataclass
class Row:
    """What happened in one case.

    Parameters
    ----------
    entry: name in the catalogues that was to be drawn. way: ``run``, or ``jobs`` for two runs at a
    time. used: all names of the experiment. lives: folders in which it was run under fire. fresh:
    whether a run in a fresh process was compared, too. kills: when it was killed. mismatches,
    leftovers, orphans, errors: what was not as it should be.
    """

    seed: int
    number: int
    entry: Entry
    keys: Keys
    way: str = "run"
    used: list[Entry] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    lives: int = 0
    fresh: bool = False
    mismatches: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    commit: str = field(default_factory=commit)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.mismatches or self.leftovers or self.orphans or self.errors)

    def line(self) -> str:
        """Return a line about the case; for one that failed, with the command that repeats it."""
        about = (
            f"case {self.number}: {' '.join(self.entry)} ({len(self.used)} names, "
            f"{self.way}), {len(self.kills)} kills"
        )
        if self.good:
            return f"{about}: same"
        wrong = "\n    ".join([*self.mismatches, *self.leftovers, *self.orphans, *self.errors])
        return (
            f"{about}: FAILED\n    {wrong}\n    again: scripts/test-chaos --seed {self.seed} "
            f"--only {self.number}"
        )


class Campaign:
    """Makes cases.

    Parameters
    ----------
    seed: of everything that is drawn. place: folder for files. keep: folder for the files of cases
    that fail.
    """

    def __init__(self, seed: int, place: Path, keep: Path | None = None) -> None:
        self.seed = seed
        self.place = place
        self.keep = keep
        files.write(place / "files")
        self.drawing = Drawing(place / "files")
        looked = attempt(partial(self.drawing.look, place / "users.json"), place)
        if not looked.done:
            raise RuntimeError(looked.said)
        self.drawing.learn(place / "users.json")
        self.entries = self.drawing.entries()
        random.Random(seed).shuffle(self.entries)
        tempfile.tempdir = str(place / "case" / "tmp")

    def case(self, number: int) -> Row:
        """Run one case and return what happened."""
        self.folder = self.place / "case"
        rng = random.Random(f"{self.seed}/{number}")
        row = Row(self.seed, number, self.entries[number % len(self.entries)], {})
        whole = self._undisturbed(row)
        if whole is None:
            row.errors = row.errors or ["no combination was accepted"]
            return row
        self._killed(row, whole, rng)
        if row.good and number % REPORT_EVERY == 0:
            self._reported(row, rng)
        if self.keep is not None and not row.good:
            shutil.copytree(self.folder, self.keep / f"{self.seed}-{number}", dirs_exist_ok=True)
        shutil.rmtree(self.folder)
        return row

    def _undisturbed(self, row: Row) -> Ended | None:
        """Draw an experiment until one runs to its end, and return how it did."""
        for again in range(REDRAWS):
            shutil.rmtree(self.folder, ignore_errors=True)
            (self.folder / "tmp").mkdir(parents=True)
            drawn = attempt(partial(self._draw, row, again), self.folder)
            row.cpu_s += drawn.cpu_s
            if not drawn.done:
                row.errors = [f"drawing: {drawn.said}"]
                continue
            found = json.loads((self.folder / "drawn.json").read_text(encoding="utf-8"))
            row.keys = found["keys"]
            row.used = [tuple(entry) for entry in found["used"]]
            own = found["own"]
            plain = own is None and row.keys["engine"].get("name") != "processes"
            row.way = "jobs" if row.number % JOBS_EVERY == JOBS_EVERY - 1 and plain else "run"
            self.work = partial(_jobs if row.way == "jobs" else _run, row.keys, own)
            whole = attempt(partial(self.work, self.folder / "whole"), self.folder / "whole")
            row.cpu_s += whole.cpu_s
            if not whole.done:
                row.errors = [f"undisturbed: {whole.said}"]
                if whole.bug:
                    return None
                continue
            if whole.cpu_s < LONGEST_CPU_S or again == REDRAWS - 1 or row.entry[0] == "model":
                row.errors = []
                row.fresh = row.number % FRESH_EVERY == 0 and own is None and self._fresh(row)
                return whole
        return None

    def _draw(self, row: Row, again: int) -> None:
        found = self.drawing.draw(random.Random(f"{self.seed}/{row.number}/{again}"), row.entry)
        text = json.dumps({"keys": found.keys, "own": found.own, "used": found.used})
        (self.folder / "drawn.json").write_text(text, encoding="utf-8")

    def _fresh(self, row: Row) -> bool:
        """Compare with a run in a process that nobody forked."""
        if row.way != "run":
            return False
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            _FRESH,
            json.dumps(row.keys),
            str(self.folder / "fresh" / "run"),
        ]
        subprocess.run(
            command, check=True, env={**os.environ, "OMP_NUM_THREADS": threads_of(row.keys)}
        )
        row.mismatches += [f"fresh process {text}" for text in self._against("fresh")]
        return True

    def _against(self, other: str) -> list[str]:
        found = self.folder / "found.json"  # Arrow starts threads, so a child compares
        compared = attempt(
            partial(_compare, self.folder / "whole", self.folder / other, found), found
        )
        return (
            list(json.loads(found.read_text(encoding="utf-8")))
            if compared.done
            else [str(compared.said)]
        )

    def _killed(self, row: Row, whole: Ended, rng: random.Random) -> None:
        """Kill and resume until it is done, ask for it once more, and compare."""
        out = self.folder / "killed"
        usual = {path.name for path in (self.folder / "tmp").iterdir()}
        wanted = rng.randint(6, MOST_KILLS)
        # a run that was done before all kills is begun again
        while row.good and len(row.kills) < wanted:
            shutil.rmtree(out, ignore_errors=True)
            before = len(row.kills)
            self._again_and_again(row, whole, rng, partial(self.work, out), out, wanted - before)
            self._judged(row, out, usual)
            row.lives += 1
            if len(row.kills) == before:
                wanted -= 1

    def _judged(self, row: Row, out: Path, usual: set[str]) -> None:
        """Ask for a finished run once more and compare it."""
        last = attempt(partial(self.work, out), out)
        row.cpu_s += last.cpu_s
        row.errors += [] if last.done else [f"when it was finished: {last.said}"]
        row.mismatches += self._against("killed")
        row.leftovers += leftovers(self.folder / "whole", out)
        temporary = {path.name for path in (self.folder / "tmp").iterdir()} - usual
        row.leftovers += [
            f"left behind in the folder for temporary files: {name}" for name in sorted(temporary)
        ]

    def _again_and_again(
        self,
        row: Row,
        whole: Ended,
        rng: random.Random,
        work: Callable[[], None],
        out: Path,
        kills: int,
    ) -> None:
        """Attempt the work until it is done, with at most so many kills."""
        while True:
            moment = _moment(rng, whole, row, kills) if kills else None
            ended = attempt(work, out, moment)
            row.cpu_s += ended.cpu_s
            row.orphans += [f"still there: {text}" for text in ended.orphans]
            if ended.killed:
                kills -= 1
                row.kills.append(f"{_stage(moment)}: {moment}")
            if ended.bug or (ended.said is not None and not ended.killed):
                row.errors.append(f"after {row.kills[-1:]}: {ended.said}")
                return
            if ended.done:
                return

    def _reported(self, row: Row, rng: random.Random) -> None:
        """Write a report of both runs, one of them under fire; what was measured in wall time is
        made the same before."""
        for name in ("timings.parquet", "run.json"):  # the record names the digests of all tables
            for file in (self.folder / "whole").rglob(name):
                shutil.copy(file, self.folder / "killed" / file.relative_to(self.folder / "whole"))
        whole = attempt(partial(_report, self.folder / "whole"), self.folder / "whole")
        row.errors += [] if whole.done else [f"report: {whole.said}"]
        out = self.folder / "killed"
        if whole.done:
            self._again_and_again(row, whole, rng, partial(_report, out), out, 2)
            row.mismatches += self._against("killed")
            row.leftovers += leftovers(self.folder / "whole", out)


def _moment(rng: random.Random, whole: Ended, row: Row, kills: int) -> Moment:
    """Return when an attempt is killed: with many kills to come while the run goes on, with few to
    come also at its end."""
    if row.way == "jobs" or row.keys["engine"].get("name") == "processes":
        return Moment(wall_s=rng.uniform(0.2, 1.0) * whole.wall_s, worker=rng.random() < 0.5)
    if rng.random() < 0.55:
        going_on = [action for action in whole.actions if not _AT_THE_END.search(action)]
        action = rng.choice(sorted(going_on if going_on and kills > LAST_KILLS else whole.actions))
        return Moment(action, rng.randint(1, rng.randint(1, whole.actions[action])))
    return Moment(cpu_s=rng.uniform(0.1, 1.0) * whole.cpu_s)


def _stage(moment: Moment | None) -> str:
    """Return what a kill came into, for counting."""
    if moment is None or moment.action is None:
        return "a worker process" if moment is not None and moment.worker else "a random moment"
    words = {
        "checkpoints": "a checkpoint or client states",
        "tables.journal": "the journal",
        ".arrows": "a table's stream",
        ".parquet": "a table at the end",
        ".safetensors": "a model",
        "run.json": "the record",
        ".lock": "the lock",
        "report": "a report",
    }
    return next((said for part, said in words.items() if part in moment.action), "another file")


def _run(keys: Keys, own: str | None, out: Path) -> None:
    from motley import run

    os.environ["OMP_NUM_THREADS"] = threads_of(keys)
    given: dict[str, Any] = {} if own is None else {"task": made(own)}
    run(keys, out=out / "run", resume=True, **given)


def _compare(whole: Path, other: Path, out: Path) -> None:
    out.write_text(json.dumps(differences(whole, other)), encoding="utf-8")


def _jobs(keys: Keys, own: str | None, out: Path) -> None:
    from motley import compare

    found = compare(keys, seeds=[keys["seed"], keys["seed"] + 1], out=out, jobs=2)
    if found.failures:
        raise found.failures[0].error


def _report(out: Path) -> None:
    from motley import report

    report(out, out / "report.html")
