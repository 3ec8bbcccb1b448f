"""Runs on a Ray cluster under random kills, stops and joins of its nodes, actors and drivers; all
must end in the same bits.

    scripts/test-ray-chaos campaign --runs 30 --disturbances 100 --log build/ray_chaos.jsonl \
        --summary benchmarks/measured/ray_chaos.json       the same command goes on with it

A run whose driver is killed is begun again with the same command. Nothing else is done for a run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from chaos.attempts import commit
from chaos.ray_runs import RayRun, same_bits
from tests.motley_ray.ray_nodes import Node, RayNodes

__all__ = ["main"]

ALGORITHMS = ("fedavg", "scaffold", "fedprox")
ENGINE = {"workers": 3, "worker_cores": 1}
ROUNDS = 24
LIMIT_S = 600.0
NODES = 3
"""Nodes beside the head at most."""
KINDS = (
    "kill an actor",
    "stop an actor",
    "kill a node",
    "stop a node",
    "add a node",
    "kill the driver",
)

Row = dict[str, Any]


class Campaign:
    """The runs of a campaign on one cluster, which is repaired between two runs.

    Parameters
    ----------
    seed: of what is drawn. place: folder for runs.
    """

    def __init__(self, seed: int, place: Path, cluster: RayNodes) -> None:
        self.seed = seed
        self.place = place
        self.cluster = cluster
        self._stopped: list[psutil.Process] = []
        self._whole: dict[str, Path] = {}

    def run(self, number: int, count: int) -> Row:
        """Do one run under so many disturbances and return what came of it."""
        rng = random.Random(f"{self.seed}/{number}")
        algorithm = ALGORITHMS[number % len(ALGORITHMS)]
        whole = self._undisturbed(algorithm)
        run = self._started(self.place / f"run{number}", algorithm)
        done: list[str] = []
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + LIMIT_S and run.process.poll() is None:
            run.wait(rng.uniform(0.5, 5.0))
            if len(done) < count and run.process.poll() is None:
                kind = rng.choice(KINDS)
                did = self._disturb(kind, rng, run)
                done += [kind] if did else []
                if kind == "kill the driver":
                    run = self._started(run.out, algorithm)
        row = {
            "number": number,
            "algorithm": algorithm,
            "disturbances": done,
            "wall_s": round(time.monotonic() - begun_s, 1),
            "commit": commit(),
            "seed": self.seed,
            "hung": run.process.poll() is None,
            "ended_well": run.ended_well,
        }
        run.kill()
        row["same_bits"] = row["ended_well"] and same_bits(whole, run.out)
        if not row["same_bits"]:
            row["said"] = run.said()[-3000:]
        self._repair()
        return row

    def _started(self, out: Path, algorithm: str) -> RayRun:
        return RayRun(out, self.cluster.address, ROUNDS, algorithm, **ENGINE)

    def _undisturbed(self, algorithm: str) -> Path:
        if algorithm not in self._whole:
            run = self._started(self.place / f"whole-{algorithm}", algorithm)
            if run.wait(LIMIT_S) is None or not run.ended_well:
                run.kill()
                raise RuntimeError(f"an undisturbed run failed: {run.said()[-2000:]}")
            self._whole[algorithm] = run.out
        return self._whole[algorithm]

    def _disturb(self, kind: str, rng: random.Random, run: RayRun) -> bool:
        """Do one thing to the cluster or the run; return whether there was something to do it
        to."""
        cluster = self.cluster
        if rng.random() < 0.5 and self._stopped:  # what was stopped goes on, sooner or later
            self._go_on()
        if kind == "kill the driver":
            run.kill()
            return True
        if kind == "add a node":
            return self._added()
        if "actor" in kind:
            actors = [one for node in (cluster.head, *cluster.nodes) for one in node.actors()]
            return bool(actors) and self._strike(kind, [rng.choice(actors)])
        if not cluster.nodes:
            return False
        node = rng.choice(cluster.nodes)
        if kind == "kill a node":
            cluster.nodes.remove(node)
            node.kill()
            return True
        return self._strike(kind, node.processes())

    def _added(self) -> bool:
        if len(self.cluster.nodes) >= NODES:
            return False
        self.cluster.add_node()
        return True

    def _strike(self, kind: str, processes: list[psutil.Process]) -> bool:
        done = 0
        for one in processes:
            try:
                (one.kill if kind.startswith("kill") else one.suspend)()
                done += 1
            except psutil.Error:
                continue
        self._stopped += processes if kind.startswith("stop") else []
        return done > 0

    def _go_on(self) -> None:
        for one in self._stopped:
            if one.is_running():
                one.resume()
        self._stopped = []

    def _repair(self) -> None:
        """Let all that was stopped go on, drop nodes that Ray gave up meanwhile, and have two nodes
        again."""
        self._go_on()
        time.sleep(2.0)
        for node in list(self.cluster.nodes):
            if not _lives(node):
                self.cluster.nodes.remove(node)
                node.kill()
        while len(self.cluster.nodes) < 2:
            self.cluster.add_node()


def _lives(node: Node) -> bool:
    """Return whether Ray's process of the node is still there; one that the cluster had given up
    ends itself."""
    try:
        return node.process.poll() is None and node.raylet().is_running()
    except LookupError:
        return False


def _read(log: Path | None, seed: int) -> list[Row]:
    if log is None or not log.is_file():
        return []
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["seed"] == seed and row["commit"] == commit()]


def _summary(rows: list[Row]) -> Row:
    done = [kind for row in rows for kind in row["disturbances"]]
    return {
        "commit": commit(),
        "runs": len(rows),
        "disturbances": len(done),
        "by kind": dict(Counter(done).most_common()),
        "ended in the same bits": sum(row["same_bits"] for row in rows),
        "hung": sum(row["hung"] for row in rows),
        "failed": [row["number"] for row in rows if not row["same_bits"]],
        "wall_s": round(sum(row["wall_s"] for row in rows), 1),
    }


def main(words: list[str]) -> None:
    """Run a campaign and print what came of it; exit with 1 if a run did not end in the same
    bits."""
    parser = argparse.ArgumentParser(
        prog="scripts/test-ray-chaos campaign", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--runs", type=int, default=30, help="at least so many")
    parser.add_argument(
        "--disturbances", type=int, default=100, help="at least so many, of all runs together"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--log",
        type=Path,
        help="one line of JSON for every run; a campaign goes on where its log ends",
    )
    parser.add_argument("--summary", type=Path, help="file for the campaign's numbers")
    given = parser.parse_args(words)
    rows = _read(given.log, given.seed)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        map(str, (Path(__file__).parents[2], Path(__file__).parents[1]))
    )
    with tempfile.TemporaryDirectory(prefix="ray-chaos-") as place, RayNodes() as cluster:
        campaign = Campaign(given.seed, Path(place), cluster)
        campaign._repair()
        for number in itertools.count():
            left = given.disturbances - sum(len(row["disturbances"]) for row in rows)
            if number >= given.runs and left <= 0:
                break
            if number in {row["number"] for row in rows}:
                continue
            rows.append(campaign.run(number, max(1, -(-left // max(1, given.runs - number)))))
            print(json.dumps(rows[-1]), flush=True)
            if given.log is not None:
                given.log.parent.mkdir(parents=True, exist_ok=True)
                with given.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    text = json.dumps(_summary(rows), indent=1)
    print(text)
    if given.summary is not None:
        given.summary.parent.mkdir(parents=True, exist_ok=True)
        given.summary.write_text(text + "\n", encoding="utf-8")
    sys.exit(any(not row["same_bits"] for row in rows))
