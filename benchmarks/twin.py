"""How well a twin predicts rules that were never tried: simulations stand for the truth.

    python benchmarks/twin.py [--federations 12] [--seeds 10] [OUT.json]

Each federation has 8 to 20 clients and a law of speeds, links and absences that is not the twin's:
log-normal with outliers, two kinds of clients, exponential; day and night, coins, chains. Ten
rounds under ``uniform`` are recorded, the twin is made of them, and predicts the seconds and bits
of ten rounds under six rules. Then the federation itself runs under each rule, with the same
clients and other chances. Every finished federation is written to OUT.json; what is there already
is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.keys import Key
from motley.experiments.run import run
from motley.results.load import load
from motley.twin.make import twin
from motley.twin.records import read
from motley.twin.what_if import what_if
from motley.world import DEVICES, NETWORKS
from motley.world.base import Device, Network

OUT = Path(__file__).with_name("measured") / "twin.json"
ROUNDS = 10


def _moments(key: Key, ids: Ids, round_index: int, sigma: float, outliers: float) -> Floats:
    """Return the factor of each client in a round: log-normal, five times as much for a share."""
    moment = key.fold("moment", round_index)
    jitter = np.exp(sigma * moment.normal(ids)[:, 0])
    out = moment.fold("outlier").uniform(ids)[:, 0] < outliers
    return np.asarray(np.where(out, 5.0, 1.0) * jitter, np.float64)


@dataclass(frozen=True)
class OutlyingDevice(Device):
    """Speeds of the clients of ``world`` that jitter, with outliers; ``kinds``: a fifth of the
    clients is eight times slower, and the others are alike."""

    follows_examples: ClassVar[bool] = False

    world: int
    kinds: bool = False
    sigma: float = 0.25
    outliers: float = 0.05

    @override
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        own = Key(self.world).fold("speed")
        slow = np.where(own.uniform(ids)[:, 0] < 0.2, 8.0, 1.0)
        usual = slow if self.kinds else np.exp(0.7 * own.normal(ids)[:, 0])
        return 0.1 * usual * _moments(key, ids, round_index, self.sigma, self.outliers)


@dataclass(frozen=True)
class OutlyingNetwork(Network):
    """Links of the clients of ``world`` that jitter, with outliers."""

    world: int

    @override
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        usual = np.exp(0.8 * Key(self.world).fold("link").normal(ids)[:, 0])
        return 0.005 * usual / _moments(key.fold("up"), ids, round_index, 0.4, 0.05)

    @override
    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        return 4 * self.uplink_mbps(key.fold("down"), ids, round_index)


DEVICES.register("outlying", OutlyingDevice)
NETWORKS.register("outlying", OutlyingNetwork)


def federation(number: int) -> dict[str, Any]:
    """Return the keys of one true federation under the recorded rule."""
    clients = (8, 12, 16, 20)[number % 4]
    devices: tuple[dict[str, Any], ...] = (
        {"name": "outlying", "world": number},
        {"name": "outlying", "world": number, "kinds": True, "sigma": 0.1},
        {"name": "shifted_exponential", "a_t": 0.002, "lambda_t": 0.004},
    )
    networks: tuple[dict[str, Any], ...] = (
        {"name": "outlying", "world": number},
        {"name": "uniform", "up_mbps": [0.002, 0.02]},
    )
    absences: tuple[dict[str, Any], ...] = (
        {"name": "day_night", "share": 0.6, "day_s": 60.0},
        {"name": "bernoulli", "p": 0.95, "low": 0.4},
        {"name": "always"},
        {"name": "markov", "p": 0.2, "q": 0.1, "slot_s": 5.0, "amplitude": 0.5, "day_s": 60.0},
    )
    fails: dict[str, Any] = {"name": "drop_out", "rate": 0.2, "low": 0.0}
    return {
        "name": f"federation {number}",
        "seed": number,
        "pin": dict.fromkeys(("data", "partition", "split", "shift", "available"), number),
        "population": clients,
        "cohort": clients // 4 + 1,
        "stop": {"rounds": ROUNDS},
        "task": {"name": "synthetic", "dim": 10, "classes": 4},
        "local": {"epochs": 1, "batch_size": 32},
        "evaluate": {"every": ROUNDS},
        "synchrony": {"name": "synchronous", "idle_s": 5.0},
        "device": devices[number % 3],
        "network": networks[(number // 3) % 2],
        "availability": absences[(number // 2) % 4],
        "failures": fails if number % 2 else {"name": "none"},
    }


def rules(round_s: float, cohort: int) -> dict[str, dict[str, Any]]:
    """Return the rules that are predicted; ``round_s``: mean seconds of a recorded round."""
    return {
        "uniform": {},
        "oort": {"selector": {"name": "oort"}},
        "fedcs": {"selector": {"name": "fedcs", "deadline": 0.7 * round_s}},
        "power_of_choice": {"selector": {"name": "power_of_choice"}},
        "deadline": {"synchrony": {"name": "deadline", "seconds": 0.7 * round_s, "idle_s": 5.0}},
        "buffered": {
            "synchrony": {"name": "buffered", "buffer": max(cohort // 2, 1), "idle_s": 5.0}
        },
    }


def one(number: int, seeds: int, folder: Path) -> dict[str, Any]:
    """Return prediction and truth of every rule for one federation."""
    keys = federation(number)
    run(keys, out=folder / "recorded", progress=False)
    made = twin(folder / "recorded", folder / "twin.toml")
    found = read(folder / "recorded")
    round_s = float(np.mean(np.diff([0.0, *found.run.column("rounds", "time_s")])))
    out: dict[str, Any] = {"clients": keys["population"], "fits": made.fits, "rules": {}}
    for name, changes in rules(round_s, keys["cohort"]).items():
        over = {key: [value] for key, value in changes.items()}
        told = what_if(
            folder / "twin.toml", over, range(seeds), out=folder / "twins", progress=False
        )
        predicted = told.rules[-1]
        true = {**keys, **changes, "seed": 1000 + number}
        run(true, out=folder / f"true-{name}", progress=False)
        rounds = load(folder / f"true-{name}").tables["rounds"]
        truth = {k: rounds[c].to_pylist()[-1] for k, c in (("s", "time_s"), ("bits", "total_bits"))}
        out["rules"][name] = {
            "true_s": truth["s"],
            "predicted_s": predicted.seconds.median,
            "within_s": predicted.seconds.holds(truth["s"]),
            "width_s": predicted.seconds.high / predicted.seconds.low,
            "true_bits": truth["bits"],
            "predicted_bits": predicted.bits.median,
            "within_bits": predicted.bits.holds(truth["bits"]),
        }
        out["retrodicted"] = told.holds
    return out


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the median error of the seconds of a round and the share of truths within the
    intervals, by rule and for all rules together."""
    names = list(next(iter(found.values()))["rules"])
    rows = {name: [one["rules"][name] for one in found.values()] for name in names}
    rows["all"] = [row for some in rows.values() for row in some]
    errors = {
        name: [abs(row["predicted_s"] / row["true_s"] - 1) for row in some]
        for name, some in rows.items()
    }
    return {
        name: {
            "median_error_s": round(statistics.median(errors[name]), 3),
            "within_s": sum(row["within_s"] for row in some),
            "median_high_over_low_s": round(statistics.median(row["width_s"] for row in some), 2),
            "median_error_bits": round(
                statistics.median(
                    abs(row["predicted_bits"] / row["true_bits"] - 1) for row in some
                ),
                3,
            ),
            "within_bits": sum(row["within_bits"] for row in some),
            "of": len(some),
        }
        for name, some in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--federations", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    before = json.loads(options.out.read_text()) if options.out.exists() else {"federations": {}}
    found = before["federations"]
    for number in range(options.federations):
        if str(number) in found:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[str(number)] = one(number, options.seeds, Path(folder))
        told = {
            "seeds": options.seeds,
            "rounds": ROUNDS,
            "retrodicted": sum(one["retrodicted"] for one in found.values()),
            "summary": summary(found),
            "federations": found,
        }
        options.out.write_text(json.dumps(told, indent=1) + "\n")
        print(number, json.dumps(told["summary"]["all"]), flush=True)
    print(json.dumps({k: v for k, v in told.items() if k != "federations"}, indent=1))


if __name__ == "__main__":
    main()
