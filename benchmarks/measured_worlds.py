"""The league's row of unequal speeds once more, where speeds differ as measurements say.

    MOTLEY_DATA=... python benchmarks/measured_worlds.py [OUT.json]

The plan, written before any run. The environment is the league's *speed of devices and links
(strong), with skewed labels*, base, model, budget of virtual time and tuned rates included: 60
rounds or 180 virtual seconds. It runs in three worlds: with the league's own laws, as phones of
AI Benchmark's list in India, and as players' computers in Germany; the median device needs the
league's 0.02 s for a step in all three. The entrants are uniform FedAvg, three rules that know of
speeds, and the method that the league names there. The seeds 10 to 14 chose nothing. Told are the
differences to uniform FedAvg of the same world and seeds in ``stable``, the mean of the last ten
evaluations of the mean accuracy over clients, in percent points, with the 95 % interval of a paired
t over five seeds; nothing is corrected. The question is whether a sign or an order that the laws
show is another in a measured world.

The last two worlds, and the count of rounds, were added after the first three had been looked at,
to see whether devices or links cause what differs there.

Every finished run is written to OUT.json at once; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from later_methods import league_run, stable

from motley.results.measures import paired

OUT = Path(__file__).with_name("measured") / "measured_worlds.json"
SEEDS = (10, 11, 12, 13, 14)

Keys = dict[str, Any]


def world(table: str, country: str) -> Keys:
    """Return the keys of a measured world whose median device is as fast as the league's."""
    device = {"name": "measured", "table": table, "median_s": 0.02}
    return {"device": device, "network": {"name": "measured", "country": country}}


WORLDS: dict[str, Keys] = {
    "the league's laws": {},
    "phones in India": world("phones_2020", "IN"),
    "players' computers in Germany": world("pcs_2022", "DE"),
    "only their devices": {"device": world("pcs_2022", "DE")["device"]},
    "only their links": {"network": world("pcs_2022", "DE")["network"]},
}
ENTRANTS: dict[str, Keys] = {
    "FedAvg": {},
    "fedcs": {"selector": {"name": "fedcs", "deadline": 5.0}},
    "oort": {"selector": {"name": "oort", "alpha": 0.5}},
    "pyramidfl": {"selector": "pyramidfl"},
    "fedrod": {"algorithm": {"name": "fedrod", "gamma": 1.0}},
}


def main() -> None:
    """Run what is missing, and tell the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    runs = json.loads(out.read_text(encoding="utf-8"))["runs"] if out.is_file() else []
    known = {(row["world"], row["entrant"], row["seed"]): row for row in runs}
    told: list[Keys] = []

    def written() -> None:
        lists = {
            name: ",\n".join(map(json.dumps, rows))
            for name, rows in {"told": told, "runs": runs}.items()
        }
        body = ",\n".join(f'"{name}": [\n{rows}\n]' for name, rows in lists.items())
        out.write_text(f"{{\n{body}\n}}\n", encoding="utf-8")

    for seed in SEEDS:
        for name, keys in WORLDS.items():
            for entrant, more in ENTRANTS.items():
                if (name, entrant, seed) in known:
                    continue
                began = time.process_time()
                run = league_run("speeds-strong, labels", {**keys, **more}, seed)
                row = {"world": name, "entrant": entrant, "seed": seed}
                row |= {
                    "stable": round(stable(run), 3),
                    "rounds": len(run.column("rounds", "round")),
                }
                runs.append({**row, "cpu_s": round(time.process_time() - began, 1)})
                known[name, entrant, seed] = runs[-1]
                written()
    for name in WORLDS:
        ends = {e: [known[name, e, seed]["stable"] for seed in SEEDS] for e in ENTRANTS}
        for entrant, values in ends.items():
            rounds = statistics.mean(known[name, entrant, seed]["rounds"] for seed in SEEDS)
            row = {"world": name, "entrant": entrant, "stable": round(statistics.mean(values), 2)}
            row |= {"rounds": round(rounds, 1)}
            if entrant != "FedAvg":
                gain = paired(values, ends["FedAvg"])
                row["gain"] = [gain.mean, gain.low, gain.high]
            told.append(row)
            print(json.dumps(row), flush=True)
    written()


if __name__ == "__main__":
    main()
