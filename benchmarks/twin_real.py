"""How well a twin predicts real processes: Flower's SuperLink and eight SuperNodes on this machine.

    python benchmarks/twin_real.py record FOLDER [--only 0,1]    real runs, resumable; needs Flower
    python benchmarks/twin_real.py predict FOLDER [OUT.json]     the twins, and the table

Every federation is drawn from its number: client k has 20 to 400 samples, sleeps a number of
seconds per sample (log-normal, sigma 0.7, about 0.02) within what it reports as its work, and per
byte received and sent (log-normal, sigma 0.5, about 40 us up and 10 us down). Each piece of work
takes another factor, log-normal with sigma 0.2, and one in twenty is three times slower. By a
schedule drawn from federation, rule, client and dispatch a client fails after part of its work
(raises in its app) with a rate of its own below 0.15; Flower then tells the server at once. All
clients are there all the time.

``uniform`` is recorded for ten rounds; then it and five other rules really run for five. What
the machine does beside, starting a process for every message above all, is in the seconds too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from loopback import PROJECT, answers, free_ports, started, until

OUT = Path(__file__).with_name("measured") / "twin_real.json"
NODES = 8
ROUNDS = 10
TRUE_ROUNDS = 5
COHORT = 3
PARAMETERS = 5000
SERVER = """
from pathlib import Path

from flwr.serverapp import ServerApp

from counted import KEYS
from motley_flower import Limits, run

app = ServerApp()


@app.main()
def main(grid, context):
    out = Path(context.run_config["out"])
    limits = Limits(start_s=300, work_s=300, query_s=300, poll_s=0.1)
    run(grid, KEYS[out.name], out=out, limits=limits, report=False)
"""
CLIENT = """
import random
import time

from flwr.clientapp import ClientApp

from counted import CLIENTS, KEYS, RULE
from motley_flower import serve
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.client_runtime import ClientRuntime
from motley_flower.deployed.grid_transport import bytes_in

trained = ClientRuntime._train
answered = Node.answer


def train(self, order):
    one = CLIENTS[order.client]
    draw = random.Random(f"{RULE} {one['seed']} {order.client} {order.dispatch}")
    factor = draw.lognormvariate(0, 0.2) * (3 if draw.random() < 0.05 else 1)
    seconds = one["samples"] * one["sample_s"] * factor
    fails, share = draw.random() < one["fails"], draw.random()
    time.sleep(seconds * share if fails else seconds)
    if fails:
        raise RuntimeError("this client fails, by its schedule")
    return trained(self, order)


def answer(self, message, context):
    one = CLIENTS[self.client(context)]
    time.sleep(len(bytes_in(message)) * one["down_s"])
    reply = answered(self, message, context)
    time.sleep(len(bytes_in(reply)) * one["up_s"])
    return reply


ClientRuntime._train = train  # within the seconds of work that the client reports
Node.answer = answer
app = ClientApp()
serve(app, KEYS[RULE])
"""


def clients(number: int) -> list[dict[str, float]]:
    """Return what each client of a federation is like."""
    rng = np.random.default_rng([4711, number])
    return [
        {
            "seed": number,
            "samples": int(rng.integers(20, 401)),
            "sample_s": float(0.02 * np.exp(0.7 * rng.normal())),
            "up_s": float(4e-5 * np.exp(0.5 * rng.normal())),
            "down_s": float(1e-5 * np.exp(0.5 * rng.normal())),
            "fails": float(rng.uniform(0, 0.15)) if number % 2 else 0.0,
        }
        for _ in range(NODES)
    ]


def rules(round_s: float) -> dict[str, dict[str, Any]]:
    """Return the rules; ``round_s``: mean seconds of a recorded round."""
    return {
        "uniform": {},
        "oort": {"selector": {"name": "oort"}},
        "fedcs": {"selector": {"name": "fedcs", "deadline": 0.7 * round_s}},
        "power_of_choice": {"selector": {"name": "power_of_choice"}},
        "deadline": {"synchrony": {"name": "deadline", "seconds": 0.7 * round_s}},
        "buffered": {"synchrony": {"name": "buffered", "buffer": 2}},
    }


def keys(number: int) -> dict[str, Any]:
    """Return the experiment of a federation under the recorded rule."""
    return {
        "name": f"real {number}",
        "seed": number,
        "population": NODES,
        "cohort": COHORT,
        "stop": {"rounds": ROUNDS},
        "task": {
            "name": "quadratic",
            "dim": PARAMETERS,
            "examples": [int(one["samples"]) for one in clients(number)],
        },
        "local": {"epochs": 1, "batch_size": 32},
        "engine": {"name": "sequential", "threads": 1},
        "evaluate": {"every": ROUNDS},
    }


# --------------------------------------------------------------------------------- real processes


def round_s(folder: Path) -> float:
    """Return the mean seconds of a recorded round."""
    import motley

    found = motley.load(folder / "recorded").tables["rounds"].to_pylist()
    return float((found[-1]["time_s"] - found[0]["start_s"]) / len(found))


def record(number: int, folder: Path) -> None:
    """Run what has not run yet of a federation: first the recording, then every rule."""
    port, *ports = free_ports(1 + NODES)
    app = folder / "app" / "counted"
    app.mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home" / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = '
        f'"127.0.0.1:{port}"\ninsecure = true\n'
    )
    (folder / "app" / "pyproject.toml").write_text(PROJECT)
    (app / "server.py").write_text(SERVER)
    (app / "client.py").write_text(CLIENT)
    with started(folder) as start:
        here = ("--insecure", "--host", "127.0.0.1")
        alone = "--disable-runtime-dependency-installation"
        start("superlink", "flower-superlink", *here, "--port", str(port), alone)
        until(lambda: answers(port), 240, "the SuperLink does not come up")
        for k, own in enumerate(ports):
            config = f'partition-id={k} folder="{folder}/site-{k}"'
            there = ("--superlink", f"127.0.0.1:{port}", "--port", str(own))
            start(f"node-{k}", "flower-supernode", *here, *there, "--node-config", config)
        until(lambda: all(map(answers, ports)), 240, "the SuperNodes do not come up")
        for name in ("recorded", *rules(1.0)):
            if (folder / f"{name}.json").exists():
                continue
            of = {"recorded": keys(number)}
            if name != "recorded":
                changes = rules(round_s(folder))
                of = {rule: {**keys(number), **more} for rule, more in changes.items()}
                more = {"seed": 100 + number, "stop": {"rounds": TRUE_ROUNDS}}
                of = {rule: {**one, **more} for rule, one in of.items()}
            (app / "__init__.py").write_text(
                f"RULE = {name!r}\nCLIENTS = {clients(number)!r}\nKEYS = {of!r}\n"
            )
            began = time.time(), os.getloadavg()
            run = start(
                name,
                "flwr",
                "run",
                str(folder / "app"),
                "here",
                "--stream",
                "-c",
                f'out="{folder / name}"',
            )
            until(lambda run=run: run.poll() is not None, 1500, f"{name} does not end")
            about = {"wall_s": time.time() - began[0], "load": [began[1][0], os.getloadavg()[0]]}
            if not json.loads((folder / name / "run.json").read_text())["finished"]:
                raise SystemExit(f"{name} did not finish: {folder / name}.log")
            (folder / f"{name}.json").write_text(json.dumps(about))
            print(number, name, about, flush=True)


# ------------------------------------------------------------------------------------- predictions


def predict(number: int, folder: Path, seeds: int) -> dict[str, Any]:
    """Return what the twin of a recording says, beside what really happened."""
    import motley
    from motley.twin.make import twin
    from motley.twin.what_if import what_if

    made = twin(folder / "recorded", folder / "twin.toml")
    out: dict[str, Any] = {"fits": made.fits, "rules": {}}
    for name, changes in rules(round_s(folder)).items():
        if not (folder / f"{name}.json").exists():
            continue
        over = {key: [value] for key, value in changes.items()}
        told = what_if(
            folder / "twin.toml",
            over,
            range(seeds),
            out=folder / "twins",
            overrides=[f"stop.rounds={TRUE_ROUNDS}"],
            progress=False,
        )
        rounds = motley.load(folder / name).tables["rounds"].to_pylist()
        predicted = told.rules[-1].seconds
        true = rounds[-1]["time_s"] - rounds[0]["start_s"]
        out["rules"][name] = {
            "true_s": true,
            "true_round_s": [row["time_s"] - row["start_s"] for row in rounds],
            "predicted_s": [predicted.median, predicted.low, predicted.high],
            "within": predicted.holds(true),
            **json.loads((folder / f"{name}.json").read_text()),
        }
        print(number, name, f"true {true:.1f} s, predicted {predicted} s", flush=True)
    out["recorded_s"] = told.seconds
    out["retrodicted"] = told.holds
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("record", "predict"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--only", default="0,1")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    numbers = [int(one) for one in options.only.split(",")]
    folders = {number: options.folder.resolve() / str(number) for number in numbers}
    if options.what == "record":
        for number, folder in folders.items():
            record(number, folder)
        return
    found = {
        number: predict(number, folder, options.seeds)
        for number, folder in folders.items()
        if (folder / "recorded.json").exists()
    }
    rows = [row for one in found.values() for row in one["rules"].values()]
    errors = [abs(row["predicted_s"][0] / row["true_s"] - 1) for row in rows]
    told = {
        "seeds": options.seeds,
        "rounds": TRUE_ROUNDS,
        "nodes": NODES,
        "median_error": round(statistics.median(errors), 3),
        "within": sum(row["within"] for row in rows),
        "of": len(rows),
        "federations": found,
    }
    options.out.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps({key: one for key, one in told.items() if key != "federations"}))


if __name__ == "__main__":
    main()
