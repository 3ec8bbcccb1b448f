"""How well a twin predicts rules that were never tried: simulations stand for the truth.

    python benchmarks/twin.py [--only 0,1,...] [--seeds 10] [--again] [OUT.json]

Each federation has 8 to 20 clients and laws of speeds, links and absences that are not the twin's.
Those of federations 0 to 5 were looked at while the twin was made: log-normal with outliers, two
kinds of clients, exponential; day and night, coins. Those of 6 to 11 are of other kinds, and were
run when the twin was done: gamma, Pareto, spells of slowness, three kinds; sessions with
log-normal lengths, nights at nearly one hour. Those of 12 and 13 share a load: a log-normal factor
of sigma 0.4, common to all clients of a round, beside one of 0.15 of each client's own.

Ten rounds under ``uniform`` are recorded; who is online is recorded as a deployment does it, when
the server looks. The twin is made of them, and predicts the seconds and bits of ten rounds under
six rules. Then the federation itself runs five times under each rule, with the same clients and
other chances, at another hour of its day. Every finished federation is written to OUT.json; what is
there already is not run again (``--again``: the twins are, the true runs not).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from scipy.special import gammaincinv
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.keys import Key
from motley.experiments.run import run
from motley.results.load import load
from motley.results.schema import TABLES
from motley.world import AVAILABILITY, DEVICES, FAILURES, NETWORKS
from motley.world.interfaces import Availability, Device, Failures, Network
from motley_advice.twin.make import twin
from motley_advice.twin.what_if import what_if

OUT = Path(__file__).with_name("measured") / "twin.json"
ROUNDS = 10
TUNED = range(6)
UNSEEN = range(6, 12)
LOADED = range(12, 14)
TRUE_RUNS = 5
CHOOSING = ("uniform", "oort", "fedcs", "power_of_choice")


def _moments(key: Key, ids: Ids, round_index: int, sigma: float, outliers: float) -> Floats:
    """Return the factor of each client in a round: log-normal, five times as much for a share."""
    moment = key.fold("moment", round_index)
    jitter = np.exp(sigma * moment.normal(ids)[:, 0])
    out = moment.fold("outlier").uniform(ids)[:, 0] < outliers
    return np.asarray(np.where(out, 5.0, 1.0) * jitter, np.float64)


@dataclass(frozen=True)
class WorldDevice(Device):
    """Seconds per step of the clients of ``world``, by one of the laws of the module."""

    follows_examples: ClassVar[bool] = False

    world: int
    law: str

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        own = Key(self.world).fold("speed")
        now = key.fold("moment", round_index)
        place, normal = own.uniform(ids)[:, 0], own.normal(ids)[:, 0]
        if self.law == "outliers":
            factor = np.exp(0.7 * normal) * _moments(key, ids, round_index, 0.25, 0.05)
        elif self.law == "kinds":
            factor = np.where(place < 0.2, 8.0, 1.0) * _moments(key, ids, round_index, 0.1, 0.05)
        elif self.law == "exponential":
            factor = 0.4 - 0.8 * np.log(now.uniform(ids)[:, 0])
        elif self.law == "gamma":
            factor = gammaincinv(2.0, place) * gammaincinv(4.0, now.uniform(ids)[:, 0]) / 6
        elif self.law == "pareto":
            factor = np.select([place < 0.4, place < 0.8], [1.0, 2.0], 6.0)
            factor = factor * now.uniform(ids)[:, 0] ** (-1 / 2.5) / 1.6
        elif self.law == "load":
            everybody = key.fold("load", round_index).normal(np.zeros(1, np.int64))[0, 0]
            factor = np.exp(0.7 * normal + 0.4 * everybody)
            factor = factor * _moments(key, ids, round_index, 0.15, 0.0)
        else:  # spells of three rounds
            spell = key.fold("spell", round_index // 3).uniform(ids)[:, 0] < 0.2
            factor = np.exp(0.5 * normal) * np.where(spell, 4.0, 1.0)
            factor = factor * (0.8 + 0.4 * now.uniform(ids)[:, 0])
        return np.asarray(0.1 * factor, np.float64)


@dataclass(frozen=True)
class WorldNetwork(Network):
    """Links of the clients of ``world``, by one of the laws of the module."""

    world: int
    law: str

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        own = Key(self.world).fold("link")
        now = key.fold("up")
        chance = now.fold("moment", round_index).uniform(ids)[:, 0]
        if self.law == "outliers":
            usual = np.exp(0.8 * own.normal(ids)[:, 0])
            return 0.005 * usual / _moments(now, ids, round_index, 0.4, 0.05)
        if self.law == "uniform":
            return 0.002 + 0.018 * chance
        usual = np.minimum(own.uniform(ids)[:, 0] ** (-1 / 1.5), 20.0)
        return np.asarray(0.003 * usual * (0.5 + chance), np.float64)

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return 4 * self.uplink_mbps(key.fold("down"), ids, round_index)


SEEN: list[tuple[float, set[int]]] = []
"""When the server looked who is online, and whom it saw."""


@dataclass(frozen=True)
class WorldAvailability(Availability):
    """Presence of the clients of ``world``, by one of the laws of the module; a run begins at an
    hour of its own."""

    world: int
    law: str

    @override
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        own = Key(self.world).fold("presence")
        place = own.uniform(ids)[:, 0]
        at = time_s + 1000 * float(key.fold("begin").uniform(np.arange(1))[0, 0])
        if self.law == "always":
            found = np.ones(len(ids), bool)
        elif self.law == "coins":
            now = key.fold("slot", int(at // 5.0)).uniform(ids)[:, 0]
            found = now < 0.4 + 0.55 * place
        elif self.law == "sessions":
            found = np.array([self._session(key.fold("of", int(k)), at) for k in ids])
        else:
            spread = {"day": 1.0, "night": 0.4}[self.law]
            found = (at / 60.0 - spread * place) % 1.0 < 0.6
        SEEN.append((time_s, set(np.asarray(ids)[found].tolist())))
        return found

    def _session(self, key: Key, at: float) -> bool:
        """Return whether a client is online in alternating sessions, of about 20 and 10 s."""
        lengths = np.exp(key.numpy().normal(size=400)) * np.tile([20.0, 10.0], 200)
        return bool(np.searchsorted(np.cumsum(lengths), at) % 2 == 0)


@dataclass(frozen=True)
class WorldFailures(Failures):
    """Drop-outs of the clients of ``world``, each with a rate of its own below ``rate``."""

    world: int
    rate: float

    @override
    def drop_at(self, key: Key, ids: Ids, round_index: int) -> Floats:
        fails, share = key.fold("drop", round_index).uniform(ids, 2).T
        rate = self.rate * Key(self.world).fold("rate").uniform(ids)[:, 0]
        return np.where(fails < rate, share, np.nan)


DEVICES.register("world", WorldDevice)
NETWORKS.register("world", WorldNetwork)
AVAILABILITY.register("world", WorldAvailability)
FAILURES.register("world", WorldFailures)


def federation(number: int) -> dict[str, Any]:
    """Return the keys of one true federation under the recorded rule."""
    seen = number not in UNSEEN
    laws = (
        ("outliers", "kinds", "exponential") if seen else ("gamma", "pareto", "spells"),
        ("outliers", "uniform") if seen else ("pareto", "uniform"),
        ("day", "coins", "always") if seen else ("sessions", "night", "always"),
    )
    device, network, availability = (law[number % len(law)] for law in laws)
    if number in LOADED:
        device = "load"
    if number // 3 % 2:  # the second time with another one
        availability = laws[2][(number + 1) % 3]
    clients = (8, 12, 16, 20)[number % 4]
    return {
        "name": f"federation {number}",
        "seed": number,
        "pin": dict.fromkeys(("data", "partition", "split", "shift"), number),
        "population": clients,
        "cohort": clients // (4 if number % 2 else 3) + 1,
        "stop": {"rounds": ROUNDS},
        "task": {"name": "synthetic", "dim": 10, "classes": 4},
        "local": {"epochs": 1, "batch_size": 32},
        "engine": "sequential",
        "evaluate": {"every": ROUNDS},
        "synchrony": {"name": "synchronous", "idle_s": 2.0},
        "device": {"name": "world", "world": number, "law": device},
        "network": {"name": "world", "world": number, "law": network},
        "availability": {"name": "world", "world": number, "law": availability},
        "failures": {"name": "world", "world": number, "rate": 0.2 if number % 2 else 0.0},
    }


def note_presence(folder: Path, seen: Sequence[tuple[float, set[int]]], population: int) -> None:
    """Write to a run's incidents who went and came between two looks."""
    rows: list[dict[str, Any]] = []
    before = set(range(population))
    for at, now in seen:
        for client in sorted(before ^ now):
            event = "connected" if client in now else "disconnected"
            rows.append({"round": 1, "time_s": at, "client": client, "event": event})
        before = now
    table = pa.Table.from_pylist(rows, schema=TABLES["incidents"])
    parquet.write_table(table, folder / "incidents.parquet")
    record = json.loads((folder / "run.json").read_text())
    for key in ("tables", "files", "digest"):  # of the tables before
        del record[key]
    (folder / "run.json").write_text(json.dumps(record))


def rules(round_s: float, cohort: int) -> dict[str, dict[str, Any]]:
    """Return the rules that are predicted; ``round_s``: mean seconds of a recorded round."""
    return {
        "uniform": {},
        "oort": {"selector": {"name": "oort"}},
        "fedcs": {"selector": {"name": "fedcs", "deadline": 0.7 * round_s}},
        "power_of_choice": {"selector": {"name": "power_of_choice"}},
        "deadline": {"synchrony": {"name": "deadline", "seconds": 0.7 * round_s, "idle_s": 2.0}},
        "buffered": {
            "synchrony": {"name": "buffered", "buffer": max(cohort // 2, 1), "idle_s": 2.0}
        },
    }


def truth(number: int, folder: Path) -> dict[str, Any]:
    """Record a federation, and run it under every rule: seconds and bits of each run."""
    keys = federation(number)
    SEEN.clear()
    run(keys, out=folder / "recorded", progress=False)
    note_presence(folder / "recorded", SEEN, keys["population"])
    round_s = load(folder / "recorded").tables["rounds"]["time_s"].to_pylist()[-1] / ROUNDS
    out: dict[str, Any] = {"clients": keys["population"], "round_s": round_s, "rules": {}}
    for name, changes in rules(round_s, keys["cohort"]).items():
        ends = []
        for seed in range(TRUE_RUNS):
            again = {**keys, **changes, "seed": 1000 * (seed + 1) + number}
            where = folder / f"true-{name}-{seed}"
            run(again, out=where, progress=False)
            ends.append(load(where).tables["rounds"].to_pylist()[-1])
        out["rules"][name] = {
            "true_s": [end["time_s"] for end in ends],
            "true_bits": [end["total_bits"] for end in ends],
        }
    return out


def predict(number: int, found: dict[str, Any], seeds: int, folder: Path) -> None:
    """Add what the twin of a recorded federation predicts."""
    made = twin(folder / "recorded", folder / "twin.toml")
    found["fits"] = made.fits
    for name, changes in rules(found["round_s"], federation(number)["cohort"]).items():
        over = {key: [value] for key, value in changes.items()}
        told = what_if(
            folder / "twin.toml", over, range(seeds), out=folder / "twins", progress=False
        )
        for unit, one in (("s", told.rules[-1].seconds), ("bits", told.rules[-1].bits)):
            found["rules"][name][f"predicted_{unit}"] = [one.median, one.low, one.high]
        found["retrodicted"] = told.holds


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return, by rule and for all rules together: the median error of predicted seconds of a true
    run, that of the other true runs' median (nobody who does not know chance can do better), and
    the share of true runs within the intervals."""
    names = list(next(iter(found.values()))["rules"])
    rows = {name: [one["rules"][name] for one in found.values()] for name in names}
    rows["all"] = [row for some in rows.values() for row in some]
    out = {}
    for name, some in rows.items():
        runs = len(some) * TRUE_RUNS
        out[name] = {"true_runs": runs}
        for unit in ("s", "bits"):
            errors, others, centres, inside = [], [], [], 0
            for row in some:
                middle, low, high = row[f"predicted_{unit}"]
                true = row[f"true_{unit}"]
                errors += [abs(middle / one - 1) for one in true]
                centres.append(abs(middle / statistics.median(true) - 1))
                inside += sum(low * (1 - 1e-9) <= one <= high * (1 + 1e-9) for one in true)
                rest = [true[:at] + true[at + 1 :] for at in range(len(true))]
                others += [
                    abs(statistics.median(few) / one - 1)
                    for few, one in zip(rest, true, strict=True)
                ]
            out[name] |= {
                f"error_{unit}": round(statistics.median(errors), 3),
                f"error_of_median_{unit}": round(statistics.median(centres), 3),
                f"error_of_chance_{unit}": round(statistics.median(others), 3),
                f"within_{unit}": round(inside / runs, 3),
            }
        widths = [row["predicted_s"][2] / row["predicted_s"][1] for row in some]
        out[name]["high_over_low_s"] = round(statistics.median(widths), 2)
    return out


def best(found: Mapping[str, Any]) -> int:
    """Return in how many federations the rule that the twin takes for the fastest, of those that
    choose a whole cohort and wait for it, is within 5 % of the fastest in truth."""
    good = 0
    for one in found.values():
        true = {name: statistics.median(one["rules"][name]["true_s"]) for name in CHOOSING}
        told = min(CHOOSING, key=lambda name: one["rules"][name]["predicted_s"][0])
        good += true[told] <= 1.05 * min(true.values())
    return good


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--only", default=",".join(map(str, [*TUNED, *UNSEEN, *LOADED])))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    before = json.loads(options.out.read_text()) if options.out.exists() else {"federations": {}}
    found = before["federations"]
    for number in map(int, options.only.split(",")):
        if str(number) in found and not options.again:
            continue
        with tempfile.TemporaryDirectory() as folder:
            kept = options.keep and options.keep / str(number)
            if kept and kept.exists():
                shutil.copytree(kept / "recorded", Path(folder) / "recorded")
                found[str(number)] = json.loads((kept / "truth.json").read_text())
            else:
                found[str(number)] = truth(number, Path(folder))
                if kept:
                    shutil.copytree(Path(folder) / "recorded", kept / "recorded")
                    (kept / "truth.json").write_text(json.dumps(found[str(number)]))
            predict(number, found[str(number)], options.seeds, Path(folder))
        told: dict[str, Any] = {"seeds": options.seeds, "rounds": ROUNDS, "true_runs": TRUE_RUNS}
        for name, numbers in (("tuned", TUNED), ("unseen", UNSEEN), ("loaded", LOADED)):
            some = {key: one for key, one in found.items() if int(key) in numbers}
            if some:
                told[name] = {
                    "federations": len(some),
                    "retrodicted": sum(one["retrodicted"] for one in some.values()),
                    "best_within_5_percent": best(some),
                    "rules": summary(some),
                }
                print(number, name, json.dumps(told[name]["rules"]["all"]), flush=True)
        options.out.write_text(json.dumps({**told, "federations": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
