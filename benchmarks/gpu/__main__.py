"""The command: runs the stages one after the other, each in a process of its own; see
:mod:`benchmarks.gpu`."""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.gpu.records import read, write
from benchmarks.gpu.stages import PACKAGES, STAGES, Options, Stage, missing
from benchmarks.gpu.summary import summary

ROOT = Path(__file__).resolve().parents[2]
_BEAT_S = 0.5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make gpu", description="Everything that waits for a GPU, resumable."
    )
    names = [stage.name for stage in STAGES]
    parser.add_argument(
        "--out", type=Path, default=Path("build/gpu"), help="folder of everything that is written"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--minutes",
        type=float,
        default=40.0,
        help="of this call; what is left waits for the next call",
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="STAGE", help=", ".join(names)
    )
    parser.add_argument(
        "--again", nargs="+", choices=names, default=[], metavar="STAGE", help="begin these anew"
    )
    parser.add_argument(
        "--longer", type=float, default=1.0, metavar="FACTOR", help="times each stage's own limit"
    )
    parser.add_argument("--peer", default=sys.executable, help="a Python that has pfl-research")
    parser.add_argument("--smoke", action="store_true", help="every stage at a tiny scale")
    parser.add_argument("--dry-run", action="store_true", help="say what would be run")
    return parser.parse_args()


def refused(device: str) -> str | None:
    """Return why nothing can be run here, in one sentence; None if it can."""
    lacking = missing(PACKAGES)
    if lacking:
        return (
            f"{sys.executable} has no {', '.join(lacking)}; install them, or put them in a "
            "folder named in PYTHONPATH."
        )
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} sees no CUDA device here; `--smoke --device cpu` tries "
            "every stage on the CPU."
        )
    return None


def skipped(stage: Stage, options: Options) -> str | None:
    """Return why a stage cannot be run here; None if it can."""
    lacking = missing(stage.needs)
    if lacking:
        return f"no {', '.join(lacking)} in {sys.executable}"
    if stage.name == "peer":
        found = subprocess.run(
            [options.peer, "-c", "import pfl, torch"], capture_output=True, check=False
        )
        return (
            None
            if found.returncode == 0
            else f"no pfl-research in {options.peer}; name a Python that has it, --peer PYTHON"
        )
    if stage.name == "recipes" and not options.smoke:
        from motley_data.public_data.search import search

        if next(search("cifar10"), None) is None:
            return "no CIFAR-10 here; name the folder that has it, MOTLEY_DATA=folder"
    return None


def _die_with_parent() -> None:
    """Let a killed command leave no stage behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def write_entry_points(folder: Path) -> None:
    """Write what an installer would of each distribution: a checkout that is not installed has no
    entry points, by which Motley finds data by name and reports."""
    for file in sorted(ROOT.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        groups = project.get("entry-points", {})
        if not groups:
            continue
        info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        about = f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {project['version']}\n"
        (info / "METADATA").write_text(about, encoding="utf-8")
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[{group}]", *(f"{name} = {where}" for name, where in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(stage: Stage, options: Options, state: dict[str, Any], path: Path, until: float) -> None:
    """Run a stage until it ends, or until its own limit or the moment ``until``; its state is
    written all the while."""
    at = state["stages"].setdefault(stage.name, {"seconds": 0.0, "calls": 0})
    left = min(60 * stage.minutes - at["seconds"], until - time.monotonic())
    before = at["seconds"]
    at |= {"status": "running", "calls": at["calls"] + 1}
    write(path, state)
    begin = time.monotonic()
    write_entry_points(options.out / "entry_points")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [
                str(ROOT),
                *map(str, sorted(ROOT.glob("packages/*/src"))),
                str(options.out.resolve() / "entry_points"),
                os.environ.get("PYTHONPATH", ""),
            ]
        ),
        "PYTHONUNBUFFERED": "1",
    }
    with open(options.out / f"{stage.name}.log", "ab") as log:
        child = subprocess.Popen(
            stage.command(options),
            cwd=ROOT,
            stdout=log,
            stderr=log,
            env=environment,
            preexec_fn=_die_with_parent,
        )
        while child.poll() is None and time.monotonic() - begin < left:
            time.sleep(_BEAT_S)
            at["seconds"] = before + time.monotonic() - begin
            write(path, state)
        over = child.poll() is None
        if over:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    at["seconds"] = before + time.monotonic() - begin
    spent = at["seconds"] >= 60 * stage.minutes - 1
    at["status"] = (
        ("limit" if spent else "interrupted")
        if over
        else "done"
        if child.returncode == 0
        else "failed"
    )
    at["returncode"] = child.returncode
    write(path, state)


def known(stage: Stage, state: dict[str, Any]) -> str | None:
    """Return ``done`` or ``limit`` for a stage that is not to be run again; None for one that waits
    or goes on."""
    at = state["stages"].get(stage.name, {})
    if at.get("status") == "limit" and at["seconds"] < 60 * stage.minutes - 1:
        return None
    return at.get("status") if at.get("status") in ("done", "limit") else None


def forget(stage: Stage, state: dict[str, Any], out: Path) -> None:
    """Take away what a stage has found."""
    state["stages"].pop(stage.name, None)
    (out / f"{stage.name}.json").unlink(missing_ok=True)
    shutil.rmtree(out / stage.name, ignore_errors=True)


def step(stage: Stage, options: Options, state: dict[str, Any], path: Path, until: float) -> str:
    """Run a stage unless it is over, cannot be run, or the call's time is over; return what became
    of it."""
    if known(stage, state) is not None:
        return state["stages"][stage.name]["status"]
    why = skipped(stage, options)
    if why is not None:
        state["stages"][stage.name] = {"status": "skipped", "why": why, "seconds": 0.0, "calls": 0}
        return f"skipped, {why}"
    if time.monotonic() >= until:
        return "waits for the next call"
    print(f"{stage.name}: {stage.what}", flush=True)
    run(stage, options, state, path, until)
    return state["stages"][stage.name]["status"]


def main() -> int:
    given = arguments()
    reason = refused(given.device)
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    options = Options(given.out.resolve(), given.device, given.smoke, given.peer)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "state.json"
    until = time.monotonic() + 60 * given.minutes
    state = read(path) or {"device": given.device, "smoke": given.smoke, "stages": {}}
    if (state["device"], state["smoke"]) != (given.device, given.smoke):
        print(
            f"{given.out} holds another device or scale; name another folder, --out DIR.",
            file=sys.stderr,
        )
        return 2
    for one in STAGES:
        stage = dataclasses.replace(one, minutes=given.longer * one.minutes)
        if stage.name in given.only and given.dry_run:
            said = known(stage, state) or skipped(stage, options) or "would run"
            print(
                f"{stage.name}: {said}, at most {stage.minutes:g} min: "
                f"{' '.join(stage.command(options))}"
            )
        elif stage.name in given.only:
            if stage.name in given.again:
                forget(stage, state, options.out)
            print(f"{stage.name}: {step(stage, options, state, path, until)}", flush=True)
            write(path, state)
            (options.out / "summary.md").write_text(summary(options.out, state))
    print("nothing was run" if given.dry_run else f"written to {options.out / 'summary.md'}")
    waiting = [
        name
        for name in given.only
        if state["stages"].get(name, {}).get("status") not in ("done", "limit", "skipped")
    ]
    return 0 if given.dry_run or not waiting else 1


if __name__ == "__main__":
    raise SystemExit(main())
