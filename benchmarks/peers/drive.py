"""Compare Motley with other frameworks on identical work: seconds a round, client steps per second,
memory, time to the first round.

    # environments, comparison of models, measurement
    python benchmarks/peers/drive.py [--only PEER/WORKLOAD] [--fresh]
    # only benchmarks/measured/peers.json, from what is there
    python benchmarks/peers/drive.py --stage collect

Each peer has a file of its own beside this one, ``with_PEER.py``, and an environment of its own,
built from ``requirements/PEER.txt``. A run is a process; runs take turns, workload by workload and
peer by peer, and what is finished is not run again. ``work.py`` holds the work itself. Data are
random numbers, since no step's cost depends on them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import collect
import tree
from work import PRECISIONS, WORKLOADS, Run, Workload, write_data

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "peers"
TURNS = 2
LIMIT_S = 240


@dataclass(frozen=True)
class Peer:
    """A framework: its file is ``with_NAME.py``; ``package`` is what its environment installs, ""
    for this one.

    ``threads``: it works in one process, on one core in the first turn and on all cores in the
    second. ``share``: of the rounds.
    ``turns``: how often it is measured.
    """

    name: str
    package: str = ""
    threads: bool = False
    share: float = 1.0
    turns: int = TURNS

    def rounds(self, load: Workload) -> int:
        """Return the rounds of a timed run: the first holds the start, so at least three."""
        return max(3, round(self.share * load.rounds))


PEERS = {
    peer.name: peer
    for peer in (
        Peer("plain", threads=True),
        Peer("processes"),
        Peer("motley"),
        Peer("flower", "flwr"),
        Peer("pfl", "pfl", threads=True),
        Peer("flgo", "flgo", threads=True),
        Peer("nvflare", "nvflare", share=0.25, turns=1),
        Peer("fedlab", "fedlab", threads=True),
        Peer("fluke", "fluke-fl", threads=True),
        Peer("blazefl", "blazefl", threads=True),
        Peer("fedjax", "fedjax", share=0.5),
    )
}


# ---- environments ----


def python_of(peer: Peer) -> Path:
    """Return the interpreter that a peer runs in."""
    return HERE / f".venv-{peer.name}" / "bin" / "python" if peer.package else Path(sys.executable)


def build(peer: Peer) -> None:
    """Build a peer's environment from its pinned versions, if it is not there or was built from
    others."""
    if not peer.package:
        return
    pinned = HERE / "requirements" / f"{peer.name}.txt"
    python = python_of(peer)
    stamp = python.parents[1] / ".built"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == pinned.read_text(encoding="utf-8"):
        return
    print(f"building {python.parents[1].relative_to(ROOT)} (minutes, once)", flush=True)
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "setuptools", "wheel"], check=True)  # FedLab comes as source
    # --no-deps: some peers ask for torchvision, which no workload needs, and Flower for a certifi
    # that may not be out yet. BlazeFL asks for Python 3.12, whose syntax it does not use
    whatever = ("--no-deps", "--no-build-isolation", "--ignore-requires-python")
    subprocess.run([*pip, *whatever, "--requirement", str(pinned)], check=True)
    shutil.copyfile(pinned, stamp)


def versions() -> dict[str, str]:
    """Return the version of every peer: peer -> version, "" for the plain loops and for Motley of
    this checkout."""
    return {peer.name: _version(peer) for peer in PEERS.values()}


def _version(peer: Peer) -> str:
    lines = (
        (HERE / "requirements" / f"{peer.name}.txt").read_text(encoding="utf-8").splitlines()
        if peer.package
        else []
    )
    return next(
        (line.partition("==")[2] for line in lines if line.startswith(f"{peer.package}==")), ""
    )


# ---- runs ----


def planned(only: str) -> Iterator[tuple[Peer, str, str, int]]:
    """Yield peer, workload, precision and turn of every run in the order in which they are made."""
    peers, _, loads = only.partition("/")
    for turn in range(TURNS):
        for load in WORKLOADS:
            for peer in (peer for peer in PEERS.values() if turn < peer.turns):
                if (not peers or peer.name in peers.split(",")) and (
                    not loads or load in loads.split(",")
                ):
                    for precision in PRECISIONS:
                        yield peer, load, precision, turn


def name_of(peer: Peer, load: str, precision: str, turn: int | str) -> str:
    """Return the name of a run: of its record, and of the folder that it writes to."""
    return f"{load}-{peer.name}-{precision}-{turn}"


def record_path(peer: Peer, load: str, precision: str, turn: int | str) -> Path:
    """Return the file of a run's record."""
    return RESULTS / "runs" / f"{name_of(peer, load, precision, turn)}.json"


def make(peer: Peer, run: Run, turn: int | str, load_before: float) -> None:
    """Make one run in a process of its own and write its record, unless it is there or the run
    fails.

    A run that did not take the steps that it had to take has failed. ``load_before``: of the
    machine, before the first run of all.
    """
    path = record_path(peer, run.load.name, run.precision, turn)
    if path.is_file():
        return
    shutil.rmtree(run.out, ignore_errors=True)
    run.out.mkdir(parents=True)
    command = [str(python_of(peer)), str(HERE / f"with_{peer.name}.py"), *run.arguments()]
    # OpenBLAS chooses its kernels itself, as on a user's machine
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")
    }
    if not peer.package:
        sources = [ROOT, *sorted(ROOT.glob("packages/*/src"))]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, sources))
    start = time.monotonic()
    with (run.out / "log").open("w") as log:
        found = tree.watched(command, environment, run.out, log, LIMIT_S)
    wall = time.monotonic() - start
    steps = (
        json.loads((run.out / "steps.json").read_text())
        if (run.out / "steps.json").is_file()
        else None
    )
    if found.code != 0 or steps != run.steps:
        print(
            f"{path.stem} failed: exit {found.code}, {steps} of {run.steps} steps; see "
            f"{run.out / 'log'}",
            flush=True,
        )
        return
    marks = [float(line) - start for line in (run.out / "marks").read_text().split()]
    record: dict[str, Any] = {
        "peer": peer.name,
        "workload": run.load.name,
        "precision": run.precision,
        "turn": turn,
        "parallel": run.parallel,
        "steps": steps,
        "marks_s": marks,
        "peak_mib": found.peak_mib,
        "processes": found.processes,
        "wall_s": wall,
        "load_before": load_before,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps(record), encoding="utf-8")
    path.with_suffix(".part").rename(path)
    print(
        f"{time.strftime('%H:%M:%S')} {path.stem}: first round {marks[0]:.1f} s, "
        f"{found.peak_mib:,.0f} MiB, {wall:.0f} s",
        flush=True,
    )


def compare(only: str, load_before: float) -> None:
    """Make one round of whole batches with every peer, for which the order of samples does not
    matter, and keep the models: of the plain loop, of this checkout, and of peers whose distance is
    not known."""
    known = collect.known_distances(versions())
    for peer, load, precision, turn in planned(only):
        name = f"{load}/{peer.name}/{precision}"
        if turn == 0 and (not peer.package or name not in known):
            run = Run(
                WORKLOADS[load],
                RESULTS / "data",
                RESULTS / "out" / name_of(peer, load, precision, "whole"),
                1,
                whole=True,
                precision=precision,
            )
            make(peer, run, "whole", load_before)


def measure(only: str, load_before: float) -> None:
    """Make every run that is to be timed."""
    for peer, load, precision, turn in planned(only):
        run = Run(
            WORKLOADS[load],
            RESULTS / "data",
            RESULTS / "out" / name_of(peer, load, precision, turn),
            peer.rounds(WORKLOADS[load]),
            parallel=peer.threads and turn % 2 == 1,
            precision=precision,
        )
        make(peer, run, turn, load_before)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="PEER/WORKLOAD",
        help="peers, workloads or both, separated by commas",
    )
    parser.add_argument(
        "--stage",
        choices=("build", "compare", "measure", "flute", "collect"),
        help="only this; default: all",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="measure again what was measured before"
    )
    options = parser.parse_args()
    # so that the processes of a run end with the driver
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.fresh:
        for path in [record_path(*run) for run in planned(options.only)] + [
            RESULTS / "flute.json"
        ] * (not options.only):
            path.unlink(missing_ok=True)
    write_data(RESULTS / "data")
    stages = (
        (options.stage,) if options.stage else ("build", "compare", "measure", "flute", "collect")
    )
    if "build" in stages:
        for peer in {peer.name: peer for peer, *_ in planned(options.only)}.values():
            build(peer)
    load_before = round(os.getloadavg()[0], 2)
    if "compare" in stages:
        compare(options.only, load_before)
    if "measure" in stages:
        measure(options.only, load_before)
    if "flute" in stages and not options.only:
        collect.flute(RESULTS / "flute.json", LIMIT_S)
    if "collect" in stages:
        collect.write(RESULTS, versions())


if __name__ == "__main__":
    main()
