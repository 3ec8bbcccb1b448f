"""What a run on a Ray cluster does in ordinary situations, with seconds.

    scripts/test-ray-chaos situations --label after --out benchmarks/measured/ray_situations.json
    scripts/test-ray-chaos situations --label before --code DIR ...      another checkout's Motley

The cluster has a head of one core and a node of one core. A situation in which nothing happens for
--limit seconds hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from same_results import trees

from chaos.ray_runs import RayRun, same_bits
from tests.motley_ray.ray_nodes import Node, RayNodes

__all__ = ["main"]

Found = dict[str, Any]

READY_S = 12.0
"""Wall seconds that a new actor may take to import what it needs."""


class Situations:
    """The situations, each on a cluster of its own.

    Parameters
    ----------
    place: folder for runs. code: folder with the Motley to run. limit_s: wall seconds after which a
    run hangs.
    """

    def __init__(self, place: Path, code: Path, limit_s: float) -> None:
        self.place = place
        self.code = code
        self.limit_s = limit_s
        self._runs: list[RayRun] = []
        self._undisturbed: RayRun | None = None

    def _run(self, cluster: RayNodes, **more: Any) -> RayRun:
        self._runs.append(
            RayRun(self.place / f"run{len(self._runs)}", cluster.address, code=self.code, **more)
        )
        return self._runs[-1]

    def close(self) -> None:
        """Kill what still runs."""
        for run in self._runs:
            run.kill()

    def _whole(self, cluster: RayNodes) -> RayRun:
        """Return the undisturbed run on two workers of one core."""
        if self._undisturbed is None:
            self._undisturbed = self._run(cluster)
            if self._undisturbed.wait(self.limit_s) is None or not self._undisturbed.ended_well:
                raise RuntimeError(
                    f"the undisturbed run failed: {self._undisturbed.said()[-2000:]}"
                )
        return self._undisturbed

    def two_runs_at_once(self) -> Found:
        """Two runs are started together on two cores."""
        with RayNodes() as cluster:
            cluster.add_node()
            both = [self._run(cluster), self._run(cluster)]
            ends = [one.wait(self.limit_s) for one in both]
            found: Found = {"hangs": None in ends, "ended_well": [one.ended_well for one in both]}
            if None not in ends:
                # one is waited for after the other, so the ends are those of the last rounds
                rounds = [one.rounds() for one in both]
                for name, at in (("first_round", 0), ("each_ended", -1)):
                    found[f"seconds_until_{name}"] = [
                        round(some[at][1] - one.begun_s, 1)
                        for one, some in zip(both, rounds, strict=True)
                    ]
                found["same_bits"] = all(found["ended_well"]) and same_bits(
                    both[0].out, both[1].out
                )
            for one in both:
                one.kill()
            return found

    def one_worker(self) -> Found:
        """``workers = 1`` on two nodes of one core."""
        with RayNodes() as cluster:
            cluster.add_node()
            run = self._run(cluster, workers=1)
            end = run.wait(self.limit_s)
            found = {"hangs": end is None, "ended_well": run.ended_well}
            run.kill()
            return found if end is None else {**found, "seconds": round(end - run.begun_s, 1)}

    def _disturbed(self, blow: Callable[[Node], object]) -> Found:
        """Disturb a node after two rounds; tell how long the next round but one took, and compare
        the bits."""
        with RayNodes() as cluster:
            node = cluster.add_node()
            whole = self._whole(cluster)
            run = self._run(cluster)
            self._wait_used(node, run)
            run.wait(self.limit_s, rounds=2, after_s=time.time())
            blow(node)
            at = time.time()
            after = run.wait(self.limit_s, rounds=2, after_s=at)
            hangs = after is None or run.wait(self.limit_s) is None
            found: Found = {"hangs": hangs, "ended_well": run.ended_well}
            if after is not None:
                found["seconds_until_two_more_rounds"] = round(after - at, 1)
            if run.ended_well:
                found["same_bits"] = same_bits(whole.out, run.out)
                found["incidents"] = _incidents(run.out)
            run.kill()
            return found

    def node_killed(self) -> Found:
        """All processes of a node are killed in mid-run."""
        return self._disturbed(lambda node: node.kill())

    def node_cut_off(self) -> Found:
        """A node's network goes away without a word in mid-run."""
        return self._disturbed(lambda node: node.cut())

    def actor_stopped(self) -> Found:
        """The actor on a node is stopped (SIGSTOP) in mid-run."""
        return self._disturbed(lambda node: [one.suspend() for one in node.actors()])

    def node_stopped(self) -> Found:
        """All processes of a node are stopped (SIGSTOP) in mid-run."""
        return self._disturbed(lambda node: node.stop())

    def raylet_stopped(self) -> Found:
        """Ray's own process of a node is stopped in mid-run; the actor goes on."""
        return self._disturbed(lambda node: node.raylet().suspend())

    def node_joins(self) -> Found:
        """A node joins in mid-run."""
        with RayNodes() as cluster:
            cluster.add_node()
            run = self._run(cluster, rounds=90)
            run.wait(self.limit_s, rounds=2)
            node = cluster.add_node()
            at = time.time()
            used = self._wait_used(node, run)
            found = {
                "is_used": used,
                "seconds_until_used": round(time.time() - at - READY_S, 1) if used else None,
            }
            run.kill()
            return found

    def _wait_used(self, node: Node, run: RayRun) -> bool:
        """Wait until an actor runs on a node; return whether one did while the run went on."""
        limit = time.time() + self.limit_s
        while run.process.poll() is None and time.time() < limit:
            if node.actors():
                time.sleep(READY_S)
                return True
            time.sleep(0.2)
        return False


def _incidents(out: Path) -> list[str]:
    from motley.results.load import load

    return [f"{row['event']}: {row['reason']}" for row in load(out).tables["incidents"].to_pylist()]


NAMES = (
    "two_runs_at_once",
    "node_killed",
    "node_cut_off",
    "one_worker",
    "actor_stopped",
    "node_stopped",
    "raylet_stopped",
    "node_joins",
)


def main(words: list[str]) -> None:
    """Measure the situations and write them under their label."""
    parser = argparse.ArgumentParser(
        prog="scripts/test-ray-chaos situations", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--label", required=True, help="name of the column, e.g. before or after")
    parser.add_argument(
        "--code",
        type=Path,
        default=Path(__file__).parents[2],
        help="checkout with the Motley to run",
    )
    parser.add_argument("--out", type=Path, help="JSON file to which the column is added")
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--only", action="append", choices=NAMES)
    given = parser.parse_args(words)
    code = given.code.resolve()
    # of the nodes
    os.environ["PYTHONPATH"] = os.pathsep.join(
        map(str, (*trees.sources(code), Path(__file__).parents[1]))
    )
    with tempfile.TemporaryDirectory(prefix="ray-situations-") as place:
        situations = Situations(Path(place), code, given.limit)
        for name in given.only or NAMES:
            with closing(situations):
                found = getattr(situations, name)()
            print(name, json.dumps(found, indent=1), flush=True)
            if given.out is not None:
                held = json.loads(given.out.read_text()) if given.out.is_file() else {}
                held.setdefault(name, {})[given.label] = found
                given.out.write_text(json.dumps(held, indent=1) + "\n")
