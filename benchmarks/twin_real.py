"""How well a twin predicts real processes: Flower's SuperLink and eight SuperNodes on this machine.

    python benchmarks/twin_real.py record FOLDER [--only 0,6,...] [--side 1]    needs Flower
    python benchmarks/twin_real.py predict FOLDER [OUT.json]                    twins, and the table

What ``record`` finished is not run again; what ``predict`` wrote of federations whose folders are
gone stays.

Every federation is drawn from its number. Client k has 20 to 400 samples, sleeps a number of
seconds per sample (log-normal, sigma 0.7, about 0.05) within what it reports as its work, and per
byte received and sent (log-normal, sigma 0.5, about 50 us down and 200 us up, of 20 kB each). Each
piece of work takes another factor, log-normal with a sigma of the federation between 0.1 and 0.4,
and is three times slower with a probability below 0.1; in one federation of two a factor common to
all clients of a dispatch (log-normal, sigma 0.1 to 0.3) is added. In one federation of two clients
fail after part of their work (raise in their app), each with a rate of its own below 0.15, and
Flower tells the server at once. What happens is a function of federation, rule, client and
dispatch. All clients are there all the time.

``uniform`` is recorded for ten rounds; then it and five other rules really run for five, with
another seed and other chances. What the machine does beside, starting a process of Flower for every
message above all, is in the seconds too. The clients' own program (torch, the model) is loaded
once a run in a process that answers for all eight of them, so that a message costs two seconds of a
core rather than five.

The plan, written before the first run. Federations 0 to 5 may be looked at while the twin is
improved; 6 to 11 are predicted once it is done. They run in the order 0, 6, 1, 7, ..., as many as
there is time for, and all that ran are told. Claims: the median error of the predicted seconds of
five rounds, over federations and rules, is at most 15 %; 70 to 90 % of the true runs lie within
their 80 % intervals; in at least five federations of six, of the four rules that choose a cohort
and wait for it, the one that is predicted to be the fastest takes at most 5 % longer than the
fastest.

Changed since. Before a true run of that rule was seen: ``buffered`` has ``refill = "idle"``,
because deployments refuse the other. Federations 0 and 6 ran alone, with short work of other
programs beside 6 now and then; the others run two at a time (``--side 2``). After 0, 1, 6 and 7 had
been seen: a twin of a deployment lets rules know only what a deployment measures
(``probe.speeds``). What is predicted without it is told beside it (``known``). So 6 and 7 were
looked at for this one change, and 8 to 11 alone are unseen. After all had run: before its first
delivery a deployment tells a rule that probes no time in place of a second for each step and
transfer; what is told here was recorded and predicted with seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from loopback import PROJECT, answers, free_ports, started, until

OUT = Path(__file__).with_name("measured") / "twin_real.json"
SEEN = range(6)
ONCE = range(6, 8)
"""Looked at for one change: see above."""
UNSEEN = range(8, 12)
CHOOSING = ("uniform", "oort", "fedcs", "power_of_choice")
PLANNING = ("oort", "fedcs")
"""Those that are told how long clients take."""
STARTING = threading.Lock()
"""One process after the other: Flower starts an app anew that does not come up in time."""
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
import time
from multiprocessing.connection import Client

from flwr.clientapp import ClientApp

from counted import CLIENTS, KEYS, RULE, SITES
from motley_flower import serve
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.grid_transport import bytes_in, content_of
from motley_flower.messages import flower


def answer(self, message, context):
    client = self.client(context)
    one = CLIENTS[client]
    data = bytes_in(message)
    time.sleep(len(data) * one["down_s"])
    with Client(SITES, "AF_UNIX") as site:
        site.send((client, data))
        reply = site.recv()
    if reply is None:
        raise RuntimeError("this client fails, by its schedule")
    time.sleep(len(reply) * one["up_s"])
    return flower().Message(content_of(reply), reply_to=message)


Node.answer = answer
app = ClientApp()
serve(app, KEYS[RULE])
"""
SITE = """
import random
import sys
import threading
import time
from multiprocessing.connection import Listener
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
from counted import CLIENTS, KEYS, RULE, SITES
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.client_runtime import ClientRuntime

trained = ClientRuntime._train
training = threading.Lock()


def train(self, order):
    one = CLIENTS[order.client]
    draw = random.Random(f"{RULE} {one['seed']} {order.client} {order.dispatch}")
    factor = draw.lognormvariate(0, one["sigma"]) * (3 if draw.random() < one["outliers"] else 1)
    everybody = random.Random(f"{RULE} {one['seed']} {order.dispatch}")
    factor *= everybody.lognormvariate(0, one["common"])
    seconds = one["samples"] * one["sample_s"] * factor
    fails, share = draw.random() < one["fails"], draw.random()
    time.sleep(seconds * share if fails else seconds)
    if fails:
        raise RuntimeError("this client fails, by its schedule")
    with training:
        return trained(self, order)


def answer(connection):
    with connection:
        client, data = connection.recv()
        try:
            reply = runtime.answer(client, data)
        except RuntimeError as error:
            print(client, error, flush=True)
            reply = None
        connection.send(reply)


ClientRuntime._train = train  # within the seconds of work that the client reports
runtime = Node(KEYS[RULE]).runtime(0, {"folder": str(Path(SITES).with_name(f"kept-{RULE}"))})
with Listener(SITES, "AF_UNIX", backlog=len(CLIENTS)) as listener:
    while True:
        threading.Thread(target=answer, args=(listener.accept(),), daemon=True).start()
"""


def clients(number: int) -> list[dict[str, float]]:
    """Return what each client of a federation is like."""
    rng = np.random.default_rng([4711, number])
    alike = {
        "seed": number,
        "sigma": float(rng.uniform(0.1, 0.4)),
        "outliers": float(rng.uniform(0, 0.1)),
        "common": float(rng.uniform(0.1, 0.3)) if rng.random() < 0.5 else 0.0,
    }
    most = 0.15 if rng.random() < 0.5 else 0.0
    return [
        {
            **alike,
            "samples": int(rng.integers(20, 401)),
            "sample_s": float(0.05 * np.exp(0.7 * rng.normal())),
            "up_s": float(2e-4 * np.exp(0.5 * rng.normal())),
            "down_s": float(5e-5 * np.exp(0.5 * rng.normal())),
            "fails": float(rng.uniform(0, most)),
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
        "buffered": {"synchrony": {"name": "buffered", "buffer": 2, "refill": "idle"}},
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


def _ended(process: Popen[bytes]) -> bool:
    return process.poll() is not None


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
    (app / "sites.py").write_text(SITE)
    sites = folder / "sites"
    with started(folder, poll_s=1.0) as start:  # nine looking ten times a second take half a core
        here = ("--insecure", "--host", "127.0.0.1")
        alone = "--disable-runtime-dependency-installation"
        with STARTING:
            start("superlink", "flower-superlink", *here, "--port", str(port), alone)
            until(lambda: answers(port), 240, "the SuperLink does not come up")
            for k, own in enumerate(ports):
                config = f'partition-id={k} folder="{folder}/site-{k}"'
                there = ("--superlink", f"127.0.0.1:{port}", "--port", str(own))
                start(f"node-{k}", "flower-supernode", *here, *there, "--node-config", config)
                until(partial(answers, own), 240, "a SuperNode does not come up")
        for name in ("recorded", *rules(1.0)):
            if (folder / f"{name}.json").exists():
                continue
            shutil.rmtree(folder / name, ignore_errors=True)  # begun, and cut off
            of = {"recorded": keys(number)}
            if name != "recorded":
                changes = rules(round_s(folder))
                of = {rule: {**keys(number), **more} for rule, more in changes.items()}
                more = {"seed": 100 + number, "stop": {"rounds": TRUE_ROUNDS}}
                of = {rule: {**one, **more} for rule, one in of.items()}
            (app / "__init__.py").write_text(
                f"RULE = {name!r}\nCLIENTS = {clients(number)!r}\nKEYS = {of!r}\n"
                f"SITES = {str(sites)!r}\n"
            )
            sites.unlink(missing_ok=True)
            site = start(f"sites-{name}", sys.executable, str(app / "sites.py"))
            until(sites.exists, 240, "the clients' sites do not come up")
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
            until(partial(_ended, run), 3600, f"{name} does not end")
            site.terminate()
            about = {"wall_s": time.time() - began[0], "load": [began[1][0], os.getloadavg()[0]]}
            if not json.loads((folder / name / "run.json").read_text())["finished"]:
                raise SystemExit(f"{name} did not finish: {folder / name}.log")
            (folder / f"{name}.json").write_text(json.dumps(about))
            print(number, name, about, flush=True)


# ------------------------------------------------------------------------------------- predictions


def predict(number: int, folder: Path, seeds: int) -> dict[str, Any]:
    """Return what the twin of a recording says, beside what really happened."""
    import motley
    from motley_advice.twin.make import twin
    from motley_advice.twin.what_if import what_if

    made = twin(folder / "recorded", folder / "twin.toml")
    out: dict[str, Any] = {"fits": made.fits, "rules": {}, "known": {}}
    for name, changes in rules(round_s(folder)).items():
        if not (folder / f"{name}.json").exists():
            continue
        rounds = motley.load(folder / name).tables["rounds"].to_pylist()
        true = rounds[-1]["time_s"] - rounds[0]["start_s"]
        for kind in ("rules", "known") if name in PLANNING else ("rules",):
            told = what_if(
                folder / "twin.toml",
                {key: [value] for key, value in changes.items()},
                range(seeds),
                out=folder / "twins",
                overrides=[
                    f"stop.rounds={TRUE_ROUNDS}",
                    *(["probe.speeds=known"] if kind == "known" else []),
                ],
                progress=False,
            )
            predicted = told.rules[-1].seconds
            out[kind][name] = {
                "true_s": true,
                "true_round_s": [row["time_s"] - row["start_s"] for row in rounds],
                "predicted_s": [predicted.median, predicted.low, predicted.high],
                "within": predicted.holds(true),
                **json.loads((folder / f"{name}.json").read_text()),
            }
            print(number, name, kind, f"true {true:.1f} s, predicted {predicted} s", flush=True)
            if kind == "rules":
                out["recorded_s"] = told.seconds
                out["retrodicted"] = told.holds
    out["known"] = {**out["rules"], **out["known"]}
    return out


def summary(found: Mapping[int, Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """Return what a kind of predictions (``rules``, ``known``) of some federations is worth.

    By rule and for all together: the median error of the predicted seconds and how many true runs
    lie within their intervals; and in how many of those that ran under all rules the one taken for
    the fastest, of those that choose a cohort and wait for it, takes at most 5 % longer than the
    fastest."""
    names = ("all", *rules(1.0))
    out: dict[str, Any] = {
        "federations": len(found),
        "retrodicted": sum(one["retrodicted"] for one in found.values()),
        "rules": {},
    }
    for name in names:
        rows = [
            row
            for one in found.values()
            for rule, row in one[kind].items()
            if name in (rule, "all")
        ]
        if rows:
            errors = [abs(row["predicted_s"][0] / row["true_s"] - 1) for row in rows]
            out["rules"][name] = {
                "true_runs": len(rows),
                "error_s": round(statistics.median(errors), 3),
                "within_s": sum(row["within"] for row in rows),
            }
    whole = [one[kind] for one in found.values() if set(CHOOSING) <= set(one[kind])]
    good = 0
    for one in whole:
        told = min(CHOOSING, key=lambda name: one[name]["predicted_s"][0])
        good += one[told]["true_s"] <= 1.05 * min(one[name]["true_s"] for name in CHOOSING)
    return {**out, "best_within_5_percent": good, "of": len(whole)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("record", "predict"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    order = [number for pair in zip(SEEN, (*ONCE, *UNSEEN), strict=True) for number in pair]
    parser.add_argument("--only", default=",".join(map(str, order)))
    parser.add_argument("--side", type=int, default=1, help="federations at a time")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    numbers = [int(one) for one in options.only.split(",")]
    folders = {number: options.folder.resolve() / str(number) for number in numbers}
    if options.what == "record":
        with ThreadPoolExecutor(options.side) as pool:
            done = [pool.submit(record, number, folder) for number, folder in folders.items()]
        for one in done:
            one.result()
        return
    found = {
        number: predict(number, folder, options.seeds)
        for number, folder in folders.items()
        if (folder / "recorded.json").exists()
    }
    told: dict[str, Any] = {"seeds": options.seeds, "rounds": TRUE_ROUNDS, "nodes": NODES}
    if options.out.exists():
        before = json.loads(options.out.read_text())
        # federations whose folders are gone
        known = {int(number): one for number, one in before["federations"].items()}
        found = dict(sorted((known | found).items()))
    for name, group in (("seen", SEEN), ("once", ONCE), ("unseen", UNSEEN)):
        some = {number: one for number, one in found.items() if number in group}
        if some:
            told[name] = {kind: summary(some, kind) for kind in ("rules", "known")}
            print(name, json.dumps(told[name]))
    told["federations"] = found
    options.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
