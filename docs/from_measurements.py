"""Make the parts of the pages that come from measurements, ``benchmarks/measured/*.json``."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from cells import (
    ROOT,
    difference,
    listed,
    prose,
    rate,
    short,
    signed,
    table,
    with_bounds,
    with_deviation,
)

from motley.results.measures import (
    Interval,
    Spread,
    interval,
    level_together,
    paired,
    spread,
)

__all__ = [
    "choosing",
    "client_noise_cost",
    "cluster_prediction",
    "cluster_situations",
    "cluster_traffic",
    "comparison_errors",
    "comparison_rules",
    "csv_table",
    "defence_cost",
    "explained",
    "fine_tuning",
    "floor",
    "fuzzed_models",
    "gpu",
    "heterogeneity",
    "inspect_outlying",
    "later_methods",
    "later_methods_twice",
    "liars",
    "loopback",
    "measured",
    "measured_worlds",
    "overhead",
    "precision",
    "precision_accuracy",
    "privacy_attacks",
    "private_cost",
    "speed",
    "traffic",
    "tuned",
    "tuned_best",
    "twin",
    "twin_real",
    "unlike_models",
    "uploads",
    "very_many",
    "whole_comparison",
    "whole_grids",
]

BUSY = 0.7
"""Load of a machine, before a measurement, from which its figures deserve a remark."""


@cache
def measured(name: str) -> dict[str, Any]:
    """Return the file that a benchmark has written."""
    found: dict[str, Any] = json.loads(
        (ROOT / "benchmarks" / "measured" / f"{name}.json").read_text(encoding="utf-8")
    )
    return found


def speed() -> str:
    """List client steps per second and their ratio to the plain loop, from
    ``benchmarks/measured/engines.json``."""
    found = measured("engines")
    rows = [
        {**row, "loop": max(v for k, v in row["best_steps_per_s"].items() if k != "engine")}
        for row in found["rows"]
    ]
    columns = {
        "workload": "{workload}",
        "engine": "`{engine}`",
        "client steps / s": "{best_steps_per_s[engine]:rate}",
        "plain loop": "{loop:rate}",
        "ratio of the best (of the medians)": "{ratio:.2f} ({median_ratio:.2f})",
        "goal": "{goal:goal}",
    }
    return f"{found['cores']} cores, torch {found['torch']}.\n\n{listed(rows, columns)}"


def precision() -> str:
    """List client steps per second in both precisions, from
    ``benchmarks/measured/precision.json``."""
    found = measured("precision")
    columns = {
        "workload": "{workload}",
        "engine": "`{engine}`",
        "float32, client steps / s": "{best_steps_per_s[float32]:rate}",
        "bfloat16": "{best_steps_per_s[bfloat16]:rate}",
        "ratio of the best (of the medians)": "{ratio:.2f} ({median_ratio:.2f})",
        "goal": "{goal:goal}",
    }
    load = found["load_before"]
    busy = "" if load < BUSY else f" The load before was {load:.1f}."
    head = f"One thread, `{found['instructions']}`, torch {found['torch']}.{busy}"
    return f"{head}\n\n{listed(found['rows'], columns)}"


def precision_accuracy() -> str:
    """Compare where runs in both precisions end, from
    ``benchmarks/measured/precision_accuracy.json``."""
    columns = {
        "experiment": "{experiment}",
        "seeds": "{seeds:count}",
        "float32, %": "{float32:mean}",
        "bfloat16, %": "{bfloat16:mean}",
        "difference, points": "{difference:+.2f}",
        "95 % of it, paired": "{interval[0]:+.2f} to {interval[1]:+.2f}",
    }
    return listed(measured("precision_accuracy")["rows"], columns)


def fine_tuning() -> str:
    """Say what ranks and clients chosen under memory and links save, from
    ``benchmarks/measured/fine_tuning.json``."""
    found = measured("fine_tuning")
    plan = found["plan"]
    words = {
        "uniform": ("4 for all", "uniform"),
        "memory": ("by memory", "uniform"),
        "ranks": ("by memory and time", "uniform"),
        "clients": ("4 for all", "Oort"),
        "both": ("by memory and time", "Oort"),
    }
    rows, held = [], []
    for row in found["arms"]:
        costs = [
            "-" if row[what] is None else f"{row[what]:,.0f}"
            for what in ("seconds", "up_mb", "down_mb")
        ]
        ends = [
            _beside(row[what], row[f"{what}_difference"]) for what in ("perplexity", "worst_tenth")
        ]
        saved = "-" if row["saved"] is None else with_bounds(row["saved"], 0)
        there = f"{row['reached']} of {row['seeds']}"
        rows.append((*words[row["arm"]], there, costs[0], saved, *costs[1:], *ends))
        held.append(
            (
                *words[row["arm"]],
                *(f"{row['clients'][rank]:.1f}" for rank in row["sent"]),
                *(f"{row['sent'][rank]:.0f}" for rank in row["sent"]),
            )
        )
    head = (
        *("ranks", "clients", "reached", "virtual s", "saved, %", "MB up", "MB down"),
        *("perplexity at the end", "worst tenth"),
    )
    ranks = list(found["arms"][0]["sent"])
    heads = (
        *("ranks", "clients"),
        *(f"clients that got at most {rank}" for rank in ranks),
        *(f"times {rank} were sent" for rank in ranks),
    )
    arms = {row["arm"]: row for row in found["arms"]}
    mean, low, high = (-value for value in arms["both"]["saved"])  # of time more, so high first
    verdict = "holds" if mean <= -25 else "fails"
    times = arms["memory"]["seconds"] / arms["uniform"]["seconds"]
    said = (
        "The claim, that ranks and clients chosen together reach the target in at least 25 % less "
        f"time than 4 ranks for all, {verdict}: {mean:+.0f} % of time [{high:+.0f}, {low:+.0f}]. "
        f"Ranks by memory alone take {times:.1f} times as long, and learn no more"
    ).replace("-", "−")
    weights = plan["pretrained"]["weights"] / 1e6
    return (
        f"{said}. A model of {weights:.1f} million weights starts at a mean perplexity of "
        f"{plan['untuned']:.2f} over 32 speakers it has not seen; the target is "
        f"{plan['target']:.2f}. Means of {len(plan['seeds'])} seeds, with paired 95 % intervals "
        f"of the time saved and of the differences at the end.\n\n{table(head, rows)}\n\n"
        f"{table(heads, held)}"
    )


def unlike_models() -> str:
    """Say what clients with models of different architectures gain by exchange, from
    ``benchmarks/measured/unlike_models.json``."""
    rows = measured("unlike_models")["methods"]
    alone = next(row for row in rows if row["method"] == "local_only")
    words = {"fedavg": "`fedavg`, smallest model", "rhfl": '`rhfl`, `mode = "kd"`'}
    out = []
    sure: dict[str, list[str]] = {"ahead of": [], "behind": []}
    for row in rows:
        name = words.get(row["method"], f"`{row['method']}`")
        gain = paired(row["mean"], alone["mean"])
        ahead = "-" if row is alone else with_bounds((gain.mean, gain.low, gain.high), 1)
        each = [f"{sum(row[what]) / len(row[what]):.1f}" for what in ("mean", "worst")]
        if gain.low > 0 or gain.high < 0:
            sure["ahead of" if gain.low > 0 else "behind"].append(name)
        out.append((name, *each, ahead, f"{row['megabytes']:,.1f}"))
    head = ("method", "mean client, %", "worst client, %", "ahead of local training", "MB")
    said = [
        f"surely {where} local training: {', '.join(names) or 'none'}"
        for where, names in sure.items()
    ]
    sentence = "; ".join(said)
    return f"{table(head, out)}\n\n{sentence[0].upper()}{sentence[1:]}."


def _beside(value: float, difference: Sequence[float] | None) -> str:
    return f"{value:.2f}" + ("" if difference is None else f"; {with_bounds(difference, 2)}")


def floor() -> str:
    """Say where the time of a local step goes on one core, and its bound, from
    ``benchmarks/measured/floor.json``."""
    found = measured("floor")
    rows = [
        {**row, "reached": row["gflop_per_step"] / row["ms_per_step"] * 1e3}
        for row in found["rows"]
    ]
    columns = {
        "workload": "{workload}",
        "engine": "`{engine}`",
        "ms a step": "{ms_per_step:.3g}",
        "products": "{shares[products]:share}",
        "gathering": "{shares[gathering]:share}",
        "other operations": "{shares[other]:share}",
        "outside of operations": "{shares[outside]:share}",
        "GFLOP/s": "{reached:.0f} of {gflops:.0f}",
    }
    copied = max(row["gb_per_s"] for row in rows)
    return (
        f"torch {found['torch']}; memory is copied with up to {copied:.0f} GB/s, read and "
        f"written.\n\n{listed(rows, columns)}"
    )


def gpu() -> str:
    """Say what was found on a GPU, with the steps a second beside a plain loop's, from
    ``benchmarks/measured/gpu.json``."""
    found = measured("gpu")
    rows = []
    for name, row in found["workloads"].items():
        speeds = row["median_steps_per_s"]
        engines = [
            rate(speeds[engine]) if engine in speeds else "-"
            for engine in ("sequential", "batched", "vmap")
        ]
        rows.append((name, *engines, rate(speeds["loop"]), f"{row['median_ratio']:.2f}"))
    head = ("workload", "`sequential`", "`batched`", "`vmap`", "plain loop", "best / loop")
    machine = found["machine"]
    agreement = found["agreement"]
    kept = "; ".join(
        f"`{engine}` {'gave' if same else 'did not give'} the same bits twice"
        for engine, same in agreement["twice"].items()
    )
    seconds = found["pfl_cifar10"]["vmap"]["seconds_a_round"]
    return (
        f"One {machine['gpu']}, torch {machine['torch']}, CUDA {machine['cuda']}, commit "
        f"{found['commit']}. All {found['tests']['passed']} tests marked `gpu` passed. "
        f"{agreement['agree']} of {agreement['compared']} pairs of an experiment and an engine "
        "end with the model of the CPU in float64, to a relative "
        f"{agreement['largest_difference']:.1e} at most; not compared: "
        f"{'; '.join(agreement['not_compared'])}. In float32, {kept}. A round "
        f"of pfl-research's CIFAR-10 benchmark took {seconds:.2f} s with `vmap`, on random images. "
        "Client steps a second, medians:"
        f"\n\n{table(head, rows)}"
    )


def fuzzed_models() -> str:
    """Count what became of random models in each engine, from
    ``benchmarks/measured/fuzz_models.json``."""
    found = measured("fuzz_models")
    columns = {
        "engine": "`{name}`",
        "equal to torch": "{equal:,}",
        "equal, with the next engine": "{fell back:,}",
        "a batch of one that torch refuses": "{rule:,}",
        "refused in a sentence": "{refused:,}",
        "differs, as a sentence says": "{told:,}",
        "differs silently, or crashes": "{silent:,}",
    }
    none = dict.fromkeys(("equal", "fell back", "rule", "refused", "told"), 0)
    rows = [
        {**none, **n, "name": name, "silent": n.get("different", 0) + n.get("crashed", 0)}
        for name, n in found["engines"].items()
    ]
    return f"{found['cases']:,} models, commit {found['commit']}:\n\n{listed(rows, columns)}"


def cluster_prediction() -> str:
    """Predict rounds on larger clusters from the speed of one worker in
    ``benchmarks/measured/scaling.json``."""
    found = measured("scaling")
    (row,) = (one for one in found["rows"] if one["workload"] == _PREDICTED)
    each = row["engines"]["ray"]["median_steps_per_s"] / found["cores"]
    steps = row["client_steps"] // row["clients"]
    weights = row["weights"]
    rows = []
    for nodes in (1, 64):
        workers = nodes * _NODE_CORES
        training = -(-_COHORT // workers) * steps / each
        sums = workers * _SUMS * 8 * weights
        updates = _COHORT * 4 * weights
        up = min(sums, updates) / _LINK
        down = nodes * 4 * weights / _LINK
        rows.append(
            (
                str(nodes),
                f"{workers:,}",
                f"{training:.2f}",
                f"{up:.2f}",
                f"{down + max(training, up):.2f}",
            )
        )
    head = ("nodes", "workers", "training, s", "sums through the link, s", "a round, s")
    said = (
        f"**Predicted, not measured,** from {each:.1f} steps a second and core that Ray took of "
        f"the {_PREDICTED} ({row['weights']:,} weights) on {found['cores']} cores: nodes of "
        f"{_NODE_CORES} such cores, {_COHORT:,} clients a round of {steps} steps, a link of 10 "
        f"Gbit/s to the run's process, {_SUMS} sums from each worker. Left out: aggregation, "
        "evaluation, unequal clients, cores that slow one another."
    )
    return f"{said}\n\n{table(head, rows)}"


def cluster_traffic() -> str:
    """List what travels in a round, as predicted and as counted, from
    ``benchmarks/measured/ray_traffic.json``."""
    found = measured("ray_traffic")
    rows = [
        (
            said,
            formula,
            *(f"{found[method][kind][way] / 1e6:.3g}" for kind in ("predicted", "counted")),
        )
        for said, formula, method, way in (
            (
                "model to the workers",
                "4 D, once on a machine and once to each node",
                "fedavg",
                "down",
            ),
            ("sums back, in float64", "8 D S", "fedavg", "up"),
            ("or updates back, where every update travels", "4 D m", "every update", "up"),
            ("SCAFFOLD to the workers", "8 D, and memories, 4 D m", "scaffold", "down"),
            ("SCAFFOLD back", "16 D S, and memories; or 12 D m", "scaffold", "up"),
        )
    ]
    return table(("a round", "bytes", "predicted, MB", "counted, MB"), rows)


_SITUATIONS = {
    "two_runs_at_once": "two runs are started together",
    "node_killed": "all processes of a node are killed",
    "node_cut_off": "a node is cut off the network without a word",
    "one_worker": "`workers = 1` on two nodes of one core",
    "actor_stopped": "a worker is stopped (SIGSTOP)",
    "node_stopped": "all processes of a node are stopped",
    "raylet_stopped": "Ray's own process of a node is stopped",
    "node_joins": "a node joins",
}


def cluster_situations() -> str:
    """List what runs on a cluster do in ordinary situations, before and now, from
    ``benchmarks/measured/ray_situations.json``."""
    found = measured("ray_situations")
    rows = [
        (said, *(_situation(found[name][label]) for label in ("before", "after")))
        for name, said in _SITUATIONS.items()
    ]
    return table(("situation", "before", "now"), rows)


def _situation(found: dict[str, Any]) -> str:
    """Return what came of a situation in words."""
    if found.get("hangs"):
        return "nothing for 120 s"
    if "is_used" in found:
        seconds = found["seconds_until_used"]
        return f"is used after {seconds:g} s" if found["is_used"] else "is never used"
    if "seconds" in found:
        return f"ends after {found['seconds']:g} s"
    if "seconds_until_two_more_rounds" in found:
        said = f"two more rounds after {found['seconds_until_two_more_rounds']:g} s"
    else:
        first, second = (
            "{} and {} s".format(*found[key])
            for key in ("seconds_until_first_round", "seconds_until_each_ended")
        )
        said = f"first rounds after {first}, ends after {second}"
    return f"{said}, same bits" if found["same_bits"] else f"{said}, OTHER BITS"


_PREDICTED = "two-conv CNN, batch 32"
_NODE_CORES = 16
_COHORT = 10_240
_LINK = 1.25e9
_SUMS = 3
"""Assumptions: cores of a node, clients of a round, bytes a second of the link, sums of a
worker."""


def loopback() -> str:
    """Put the ledger's bytes beside those on the wire, for one client and round, from
    ``benchmarks/measured/loopback.json``."""
    found = measured("loopback")
    rows = []
    beside = []
    times = []
    for model in found["models"]:
        n = found["nodes"] * len(model["rounds"])
        names = ("ledger_down", "counted_down", "ledger_up", "counted_up", "loopback")
        mean = {name: sum(row[name] for row in model["rounds"]) / n for name in names}
        over = {way: mean[f"counted_{way}"] - mean[f"ledger_{way}"] for way in ("down", "up")}
        beside.append((mean["loopback"] / (mean["ledger_down"] + mean["ledger_up"]), over))
        cells = [f"{mean[name]:,.0f}" for name in names[:4]]
        more = [
            f"{over[way]:,.0f} ({_percent(over[way] / mean[f'ledger_{way}'])})"
            for way in ("down", "up")
        ]
        rows.append((f"{model['parameters']:,}", *cells[:2], more[0], *cells[2:], more[1]))
        times += [row["seconds"] for row in model["rounds"]]
    idle = [
        sum(m["idle_bytes_per_s"][way] for m in found["models"])
        / len(found["models"])
        / found["nodes"]
        for way in ("down", "up")
    ]
    down, up = (max(over[way] for _, over in beside) / 1e3 for way in ("down", "up"))
    text = (
        f"Bytes of one client in one round, means over {found['nodes']} clients and "
        f"{len(found['models'][0]['rounds'])} rounds, Flower {found['flwr']}. Flower adds at most "
        f"{down:.1f} kB down and {up:.1f} kB up to a client's round, whatever the size of the "
        f"model; the polls of the {min(times):.0f} to {max(times):.0f} s that a round took are "
        f"among them. A connected node without work costs {idle[0]:.0f} bytes a second down and "
        f"{idle[1]:.0f} up, {sum(idle) * 86400 / 1e6:.0f} MB a day. On the machine's own loopback "
        f"interface, {beside[-1][0]:.1f} times the ledger's bytes passed in a round of the largest "
        "model, because Flower's processes hand every message on to each other there."
    )
    heads = (
        "parameters",
        "ledger, down",
        "counted, down",
        "overhead",
        "ledger, up",
        "counted, up",
        "overhead",
    )
    return f"{table(heads, rows)}\n\n{text}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def overhead() -> str:
    """List milliseconds a round outside training, peak memory, import time and what commands
    spend, from ``benchmarks/measured/overhead.json``."""
    found = measured("overhead")
    columns = {
        "clients": "{population:,}",
        "cohort": "{cohort}",
        "selector": "`{selector}`",
        "ms a round": "{total:.1f}",
    }
    memory = found["memory"]
    start = found["import"]
    spent = found["commands"]
    text = (
        f"A whole run with 10,000 clients and the MLP (MNIST) peaks at {memory['peak_mib']:.0f} "
        f"MiB, {memory['grown_after_round_20_mib']:.1f} MiB of them after round 20. "
        f"`import motley` takes {1000 * start['import_s']:.0f} ms, without torch, and `motley "
        f"--help` {start['help_s']:.2f} s; a run of one round on scikit-learn's digits takes "
        f"{start['one_round_s']:.1f} s from the command to its end, of which importing torch takes "
        f"{start['torch_s']:.1f} ({start['machine']}).\n\n"
        f"Processor time of whole commands there: `motley inspect` of a table of 2,175 rows "
        f"{spent['inspect_s']:.1f} s; `motley compare` of six runs of ten rounds "
        f"{spent['compare_s']:.1f} s, and {spent['compare_again_s']:.1f} s when all are finished; "
        f"`motley report` of 27 runs {spent['report_s']:.1f} s."
    )
    return f"{listed(found['rounds'], columns)}\n\n{text}"


def whole_comparison() -> str:
    """Set 25 runs of ``motley compare`` beside a plain loop over their clients' steps, from
    ``benchmarks/measured/comparison.json``."""
    found = measured("comparison")
    motley, loop = found["motley"], found["loop"]
    rows = [
        (name, f"{spent['wall_s']:.1f}", f"{spent['processor_s']:.1f}")
        for name, spent in (
            ("`motley compare`, from the command to the report", motley),
            ("plain PyTorch, one thread on each core, training alone", loop),
        )
    ]
    load = found["load_before"]
    busy = (
        ""
        if load < BUSY
        else f" The load before was {load:.1f}: other work took a part of the cores, and seconds "
        "on the clock are no measurement."
    )
    turns = "one turn" if found["turns"] == 1 else f"medians of {found['turns']} turns"
    wall, processor = (f"{loop[name] / motley[name]:.2f}" for name in ("wall_s", "processor_s"))
    text = (
        f"{found['rounds']} rounds of each run, {found['client_steps']:,} client steps; "
        f"{found['machine']}, {found['cores']} cores, "
        f"{turns}: the loop takes {wall} times as long, and {processor} "
        f"times as much of the processors.{busy}"
    )
    return f"{table(('', 'seconds', 'processor seconds'), rows)}\n\n{text}"


def whole_grids() -> str:
    """Set the same runs by shell loops over other frameworks beside ``motley compare``, from
    ``benchmarks/measured/whole_grids.json``."""
    figures = measured("whole_grids")
    motley = figures["motley"]
    share = figures["seeds"] / 5
    own_s = motley["wall_s"] / motley["client_steps"]
    rows = [("`motley compare`", f"{motley['wall_s']:.0f}", f"{1 / own_s:,.0f}", "1")]
    for loop in figures["loops"]:
        version = figures["versions"][loop["peer"]]
        form = "one run after the other" if loop["form"] == "alone" else "a run on each core"
        step_s = loop["wall_s"] / loop["client_steps"]
        rows.append(
            (
                f"{_TITLES[loop['peer']]} {version}, {form}",
                f"{loop['wall_s'] / share:.0f}",
                f"{1 / step_s:,.0f}",
                f"{step_s / own_s:.1f}",
            )
        )
    made = "all 25 runs" if share == 1 else f"{figures['seeds'] * 5} runs, taken for 25"
    load = figures["load_before"]
    busy = "" if load < BUSY else f" The load before was {load:.1f}."
    text = f"{figures['machine']}, {figures['cores']} cores; of the loops {made}.{busy}"
    heads = ("25 runs", "seconds", "client steps a second", "seconds a step, Motley 1")
    return f"{table(heads, rows)}\n\n{text}"


_TITLES = {"flower": "Flower", "flgo": "FLGo", "fluke": "fluke"}


def _mapped_mib(found: dict[str, Any]) -> float:
    """Return the MiB of a client's samples, which are mapped into memory."""
    return float(found["samples"] * (found["width"] * 4 + 8) / 2**20)


def very_many() -> str:
    """List what runs with millions of clients cost, and how memory went over many rounds, from
    ``benchmarks/measured/million.json``, ``millions.json``, ``hundred_millions.json`` and
    ``long_runs.json``."""
    sizes = [measured(name) for name in ("million", "millions", "hundred_millions")]
    rows = [
        {
            **found,
            **run,
            "rule": name,
            "millions": found["clients"] / 1e6,
            "own": run["peak_mib"] - found["clients"] * _mapped_mib(found),
            "checkpoint_mb": run["checkpoint_bytes"] / 1e6,
        }
        for found in sizes
        for name, run in found["runs"].items()
    ]
    columns = {
        "million clients (samples × numbers)": "{millions:g} ({samples} × {width})",
        "rule": "`{rule}`",
        "to the end of round 1, s": "{to_round_1_s:.1f}",
        "a round outside training, s": "{outside_s:.2f}",
        "peak, MiB (without what is mapped)": "{peak_mib:,.0f} ({own:,.0f})",
        "checkpoint": "{checkpoint_mb:.1f} MB, {checkpoint_s:.2f} s",
        "to end, s": "{finish_s:.1f}",
        "to resume, s": "{resume_s:.1f}",
    }
    some = measured("millions")
    peaks = {name: run["peak_mib"] for name, run in some["runs"].items()}
    beside = (peaks["hetero_select_v1"] - peaks["oort"]) * 2**20 / some["clients"]
    long = measured("long_runs")
    curves = "; ".join(
        f"`{name}` {run['mib'][0]:.1f}, {run['mib'][9]:.1f}, {run['mib'][-1]:.1f}"
        for name, run in long["long"].items()
    )
    count = next(iter(long["long"].values()))["rounds"]
    machines = "; ".join(
        f"{found['clients'] / 1e6:g} million on {found['machine']}, {found['cores']} cores"
        for found in sizes
    )
    return (
        f"{listed(rows, columns)}\n\nClients and machine: {machines}. A "
        "checkpoint is written whole, and so seldom that all of them take a twentieth of a run at "
        f"most. Memory ends first: `hetero_select_v1` takes {beside:.0f} bytes a client more than "
        "`oort` at the peak, with 100 million clients more than 24 GB, which was not run."
        f"\n\nResident memory in MiB of {long['clients']:,} clients, ten a round, after "
        f"{count // 20:,}, {count // 2:,} and {count:,} rounds: {curves}. `hetero_select` keeps "
        "the last update of each client that ever took part."
    )


def privacy_attacks() -> str:
    """List what each attack got before its fault was mended, and whether it still does."""
    rows = [
        {
            "name": name,
            "got": prose(re.split(r"[;(]|: round|, e\.g\.", row["before"]["figure"])[0].strip()),
            "now": "yes" if row["now"]["succeeded"] else "no",
        }
        for name, row in measured("privacy_attacks").items()
    ]
    columns = {"script": "`{name}`", "what it got before": "{got}", "now": "{now}"}
    return listed(rows, columns)


def choosing() -> str:
    """List milliseconds of one choice and bytes of state at each rule's largest size, from
    ``benchmarks/measured/selection.json``."""
    # sizes rise
    largest = {
        (row["rule"], json.dumps(row["options"])): row for row in measured("selection")["rows"]
    }
    rows = [
        {
            **row,
            "with": "".join(f", `{name} = {value}`" for name, value in row["options"].items()),
            "ms": 1e3 * row["steady_s"],
            "mib": row["peak_bytes"] / 2**20,
        }
        for row in largest.values()
    ]
    columns = {
        "rule": "`{rule}`{with}",
        "clients": "{clients:,}",
        "ms a round": "{ms:.3g}",
        "peak, MiB": "{mib:,.1f}",
        "state, bytes a client": "{state_bytes_per_client:,.0f}",
    }
    return listed(rows, columns)


def later_methods() -> str:
    """List what the methods that came after the league gained beside what they stand beside, from
    ``benchmarks/measured/later_methods.json``."""
    rows = []
    for row in measured("later_methods")["told"]:
        options = ", ".join(
            f"`{name} = {value}`" for name, value in row["setting"].items() if name != "name"
        )
        gain = ""
        if "gain" in row:
            mean, low, high = row["gain"]
            gain = f"{signed(mean)} [{signed(low)}, {signed(high)}]"
        beside = row.get("reference", "")
        score = f"{row['stable']:.1f}"
        rows.append((row["environment"], row["entrant"], options, score, beside, gain))
    return table(("environment", "entrant", "chosen", "stable, %", "beside", "points"), rows)


def later_methods_twice() -> str:
    """Say of each method that was measured in two small sets of data whether it helps, from
    ``benchmarks/measured/later_methods.json``."""
    gains: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in measured("later_methods")["told"]:
        world, _, data = row["environment"].rpartition(", ")
        if "gain" in row and data in ("digits", "table"):
            gains.setdefault((row["entrant"], row["reference"], world), {})[data] = row["gain"]
    lines = []
    for (entrant, reference, world), by_data in gains.items():
        bounds = [by_data[data] for data in ("digits", "table")]
        verdict = "is undecided"
        if all(low > 0 for _, low, _ in bounds):
            verdict = "helps"
        elif all(high < 0 for *_, high in bounds):
            verdict = "loses"
        on_digits, on_table = (with_bounds(each, 1) for each in bounds)
        beside = reference if reference.startswith("FedAvg") else f"`{reference}`"
        lines.append(
            f"- `{entrant}` {verdict} beside {beside} (*{world}*): {on_digits} points on digits, "
            f"{on_table} on the table."
        )
    return "\n".join(lines)


def measured_worlds() -> str:
    """List what methods gain where speeds differ by the league's laws and by measurements, from
    ``benchmarks/measured/measured_worlds.json``."""
    told = measured("measured_worlds")["told"]
    cells = {(row["entrant"], row["world"]): row for row in told}
    worlds = list(dict.fromkeys(world for _, world in cells))
    rows = []
    for entrant in dict.fromkeys(entrant for entrant, _ in cells):
        row = [f"`{entrant}`" if entrant != "FedAvg" else "FedAvg, stable"]
        for world in worlds:
            cell = cells[entrant, world]
            shown = f"{cell['stable']:.1f} %"
            if "gain" in cell:
                mean, low, high = cell["gain"]
                shown = f"{signed(mean)} [{signed(low)}, {signed(high)}]"
            row.append(f"{shown}; {cell['rounds']:.0f}")
        rows.append(row)
    return table(("points; rounds", *worlds), rows)


def liars() -> str:
    """List who was chosen and what was lost when clients lied, without and with a defence, from
    ``benchmarks/measured/liars.json``."""
    runs = {tuple(run[name] for name in _CASE): run for run in measured("liars")["runs"]}
    cells = {case[:-1] for case in runs}
    seeds = sorted(
        seed for seed in {case[-1] for case in runs} if all((*cell, seed) in runs for cell in cells)
    )

    def both(value: str, *cell: Any) -> list[float]:
        """Return the mean over seeds in percent, without and with the defence."""
        return [
            100.0 * sum(runs[(*cell, defence, seed)][value] for seed in seeds) / len(seeds)
            for defence in ("off", "on")
        ]

    costs = _defence_costs()
    parts = []
    for strategy, title in _LIES.items():
        shares = sorted({share for _, kind, share, _ in cells if kind == strategy})
        rows = []
        for rule in sorted({cell[0] for cell in cells}):
            honest, _ = both("accuracy", rule, "honest", 0.0)
            row = [f"`{rule}`", f"{honest:.1f}", _with_ends(costs[rule])]
            for share in shares:
                picks = both("picks", rule, strategy, share)
                ends = both("accuracy", rule, strategy, share)
                row += [
                    " → ".join(f"{one:.0f}" for one in picks),
                    " → ".join(signed(one - honest) for one in ends),
                ]
            rows.append(tuple(row))
        lies = [f"{share:.0%} lie: {what}" for share in shares for what in ("picks, %", "points")]
        parts.append(
            f"{title}:\n\n{table(('rule', 'honest, %', 'defence alone, points', *lies), rows)}"
        )
    said = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    return "\n\n".join(
        [
            *parts,
            f"Means over {said}; the end is the mean of the last three evaluations. The defence "
            "alone has 95 % intervals, paired by seed and not corrected for the number of rules.",
        ]
    )


def _defence_costs() -> dict[str, Interval]:
    """Return rule -> what the defence gains among honest clients, in points, with its 95 % interval
    over seeds."""
    ends = {
        (run["rule"], run["defence"], run["seed"]): 100.0 * run["accuracy"]
        for run in measured("liars")["runs"]
        if run["strategy"] == "honest"
    }
    seeds = sorted({seed for _, _, seed in ends})
    return {
        rule: interval(
            spread(
                [
                    ends[rule, "on", seed] - ends[rule, "off", seed]
                    for seed in seeds
                    if {(rule, "on", seed), (rule, "off", seed)} <= ends.keys()
                ]
            )
        )
        for rule in sorted({rule for rule, _, _ in ends})
    }


def _with_ends(one: Interval) -> str:
    return f"{one.mean:+.1f} [{one.low:+.1f}, {one.high:+.1f}]".replace("-", "−")


def defence_cost() -> str:
    """Tell what the defence costs among honest clients: the largest costs and gains, and how many
    intervals exclude zero."""
    costs = _defence_costs()
    sure = [rule for rule, one in costs.items() if one.low > 0 or one.high < 0]
    by_mean = sorted(costs, key=lambda rule: costs[rule].mean)
    shown = [*by_mean[:3], *by_mean[-4:]]
    told = ", ".join(f"`{rule}` {_with_ends(costs[rule])}" for rule in shown)
    seeds = min(one.n for one in costs.values())
    alone = f" ({', '.join(f'`{rule}`' for rule in sure)})" if sure else ""
    return (
        f"- **Among honest clients {seeds} seeds tell hardly any cost of the defence**: of "
        f"{len(costs)} rules the interval of {len(sure)}{alone} excludes zero, not corrected for "
        f"their number. The largest costs and gains, in points: {told}."
    )


_CASE = ("rule", "strategy", "share", "defence", "seed")
_LIES = {
    "constant": "`constant`: everything that a client can lie about is 1e308, updates are honest",
    "coalition": "`coalition`: everything is the 0.95 quantile of what the honest say, and liars "
    "flip the sign of their update",
}


def uploads() -> str:
    """List bytes of real messages at several theta, and in fewer bits a value, from
    ``benchmarks/measured/uploads.json``."""
    found = measured("uploads")
    parts = []
    head = (
        "theta",
        "values alone",
        "`topk`",
        "its places",
        "`topk`, `qsgd`",
        "`randomk`",
        "Golomb*",
    )
    for model in found["models"]:
        rows = []
        for r in model["rows"]:
            size, kind = r["places"]
            whole = f"{_kilo(r['topk'])} (+{r['topk'] / r['paper'] - 1:.0%})"
            sizes = [_kilo(r[name]) for name in ("topk then qsgd", "randomk", "golomb")]
            rows.append(
                (
                    f"{r['theta']:g}",
                    _kilo(r["paper"]),
                    whole,
                    f"{_kilo(size)}, {kind}" if size else "-",
                    *sizes,
                )
            )
        parts.append(f"{_title(model)}, in kB:\n\n{table(head, rows)}")
    rows = []
    for name in found["models"][0]["whole"]:
        each = [(m["whole"][name], m["parameters"]) for m in found["models"]]
        rows.append((f"`{name}`", *(f"{_kilo(size)} ({8 * size / n:.3g})" for size, n in each)))
    elias = [(m["elias"], m["parameters"]) for m in found["models"]]
    rows.append(
        (
            "`fedpaq` with Elias codes*",
            *(f"{_kilo(size)} ({8 * size / n:.2g})" for size, n in elias),
        )
    )
    parts.append(
        "Every value, in fewer bits, in kB (bits a value):\n\n"
        + table(("", *map(_title, found["models"])), rows)
    )
    parts.append(f"Heads and checksum of such a message: {found['head']} bytes.")
    return "\n\n".join(parts)


def _title(model: dict[str, Any]) -> str:
    return f"`{model['model']}`, {model['parameters']:,} values"


def _kilo(size: float) -> str:
    return f"{size / 1000:,.0f}" if size >= 1e5 else f"{size / 1000:#.3g}"


def traffic() -> str:
    """List the traffic by direction and method, and the accuracy reached with it, from
    ``benchmarks/measured/traffic.json``."""
    parts = []
    for experiment, found in measured("traffic").items():
        goal = f"{found['target']:.0%}"
        columns = {
            "MB": "`{method}`",
            "papers": "{mb[paper]:short}",
            "up": "{mb[up]:short}",
            "down": "{mb[down]:short}",
            "probes": "{mb[probe]:short}",
            "all": "{mb[total]:short}",
            f"papers to {goal}": "{until[paper_mb]:until}",
            f"all to {goal}": "{until[traffic_mb]:until}",
            f"virtual s to {goal}": "{until[seconds]:until}",
        }
        seeds = sorted({seed for row in found["rows"] for seed in row["seeds"]})
        plural = "s" if len(seeds) > 1 else ""
        parts.append(
            f"`{experiment}`, {found['rows'][0]['rounds']} rounds, seed{plural} "
            f"{', '.join(map(str, seeds))}:\n\n{listed(found['rows'], columns)}"
        )
        if "early" in found:
            columns = {
                f"after {found['early']['seconds']:g} virtual s": "`{method}`",
                "rounds": "{rounds:.0f}",
                "accuracy": "{accuracy:.1%}",
                "MB, papers": "{paper_mb:short}",
                "MB, all": "{traffic_mb:short}",
            }
            parts.append(
                "The same, early, with the methods that were not run to the "
                f"end:\n\n{listed(found['early']['rows'], columns)}"
            )
    return "\n\n".join(parts)


def heterogeneity(name: str) -> str:
    """Make one table of ``benchmarks/measured/heterogeneity.json``, panel by panel."""
    found = measured("heterogeneity")[name]
    panels = list(dict.fromkeys(row["panel"] for row in found["rows"]))
    parts = []
    for panel in panels:
        rows = _together([row for row in found["rows"] if row["panel"] == panel])
        cells = [
            dict(cell for column in found["columns"] for cell in _cells(column, row, found))
            for row in rows
        ]
        names = [f"`{row['label']}`" + _fewer(len(row["seeds"]), found["seeds"]) for row in rows]
        body = table(
            ("method", *cells[0]),
            [(name, *cell.values()) for name, cell in zip(names, cells, strict=True)],
        )
        parts.append(f"{panel[:1].upper()}{panel[1:]}:\n\n{body}" if panel else body)
    seeds = (
        f"{found['seeds']} seeds: mean ± standard deviation."
        if found["seeds"] > 1
        else "One seed: small differences mean nothing."
    )
    return "\n\n".join([*parts, seeds])


def private_cost() -> str:
    """Put stable accuracies and those of the worst tenth without and with privacy side by side."""
    panels = ("without privacy", "epsilon 8", "epsilon 4", "epsilon 2")
    rows = []
    for name, title in (("private_mnist", "MNIST"), ("private_femnist", "FEMNIST")):
        found = measured("heterogeneity")[name]["rows"]
        cells = {(row["label"], row["panel"]): row for row in found}
        order = sorted(
            {row["label"] for row in found}, key=lambda one: -cells[one, "epsilon 8"]["stable"][0]
        )
        for label in order:
            plain = label.partition(",")[0]  # without privacy nothing is kept apart
            texts = [
                _cost_cell(cells.get((label, one)) or cells.get((plain, one))) for one in panels
            ]
            rows.append((title, f"`{label}`", *texts))
    return table(("data", "rule", *panels), rows)


def _cost_cell(row: dict[str, Any] | None) -> str:
    return "-" if row is None else f"{with_deviation(row['stable'])} ({row['worst_decile'][0]:.0f})"


def client_noise_cost() -> str:
    """Put accuracies under noise by the server and by clients side by side, from
    ``benchmarks/measured/client_noise_cost.json``."""
    found = measured("client_noise_cost")["rows"]
    cells = {(row["noise_by"], row["epsilon"]): row for row in found}
    budgets = sorted({row["epsilon"] for row in found}, reverse=True)
    rows = []
    for name in dict.fromkeys(row["noise_by"] for row in found):
        texts = [name]
        for epsilon in budgets:
            row = cells[name, epsilon]
            texts.append(f"{row['accuracy']:.1f} ± {row['deviation']:.1f}")
            texts.append(f"{row['of_a_full_sum']:.2f}")
        rows.append(tuple(texts))
    heads = [head for one in budgets for head in (f"epsilon {one:g}, %", "z of a full sum")]
    return table(("noise by", *heads), rows)


def tuned(name: str) -> str:
    """Make one table of ``benchmarks/measured/tuned.json``: each method with the values that its
    tuning chose."""
    found = measured("tuned")[name]
    columns = {
        "method": "`{label}`",
        "chosen": "{chosen}",
        "validation, %": "{validation:.1f}",
        "stable, %": "{stable:spread}",
        f"stable against `{found['base']}` (95 %)": "{difference:difference}",
        "worst tenth, %": "{worst_decile:spread}",
    }
    rows = sorted(_tested(found), key=lambda row: -row["stable"][0])
    seeds, tests = (", ".join(map(str, found[key])) for key in ("seeds", "test_seeds"))
    return (
        f"{listed(rows, columns)}\n\n{found['trials']} trials a method, each with seeds {seeds}: "
        f"{found['run_equivalents']:.2g} run-equivalents; tested with seeds {tests}: mean ± "
        "standard deviation."
    )


def tuned_best() -> str:
    """Put the best of every tuned comparison beside its reference, a row each."""
    rows = []
    for name, found in measured("tuned").items():
        best = max(_tested(found), key=lambda row: row["stable"][0])
        (base,) = (row for row in found["rows"] if row["label"] == found["base"])
        link = f"[{name.replace('_', ' ')}](#{name.replace('_', '-')})"
        rows.append({**best, "link": link, "base": base})
    columns = (
        ("what differs", "{link}"),
        ("best", "`{label}`"),
        ("stable, %", "{stable:spread}"),
        ("reference", "`{base[label]}`"),
        ("stable, %", "{base[stable]:spread}"),
        ("difference (95 %)", "{difference:difference}"),
    )
    return listed(rows, columns)


def _fewer(seeds: int, most: int) -> str:
    return "" if seeds == most else f" ({seeds} seed{'s' if seeds > 1 else ''})"


def _cells(column: str, row: dict[str, Any], found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (head, text) of one column, or of the several that one record makes."""
    if column == "difference":
        return [(f"{found['end']} against `{found['base']}` (95 %)", difference(row["difference"]))]
    if column == "target":
        way = row["target"]
        text = (
            f"{'' if way['reached'] else '> '}{way['seconds']:,.0f} ({way['seeds']} of "
            f"{len(row['seeds'])})"
        )
        return [(f"virtual s to {100 * found['target']:g} % (seeds)", text)]
    if column == "traffic":
        text = f"{'' if row['target']['reached'] else '> '}{short(row['target']['mb'])}"
        return [(f"MB to {100 * found['target']:g} %", text)]
    if column == "gains":
        heads = {
            "local_only": "better off than alone, %",
            found["base"]: f"better off than with `{found['base']}`, %",
        }
        return [
            (heads[rival], "-" if one is None else with_deviation(one["share"], 0))
            for rival, one in row["gains"].items()
        ]
    if column == "times":
        return [
            (f"at {time:g} s, %", with_deviation(at))
            for time, at in zip(found["times"], row["times"], strict=True)
        ]
    if column == "domains":
        return [(f"{name}, %", with_deviation(at)) for name, at in row["domains"].items()]
    if column == "participation":
        who = row[column]
        return [
            ("updates of a client", f"{who['fewest']} to {who['most']}"),
            ("Gini of them", with_deviation(who["gini"], 2)),
        ]
    if column == "noise":
        return [("noise multiplier", "-" if row[column] is None else f"{row[column]:.2f}")]
    if column == "steps":
        return [("server steps", f"{row['steps']:,.0f}")]
    if column == "variance":
        return [(column, with_deviation(row[column], 0))]
    heads = {
        "shared": "whole shared model, %",
        "worst_decile": "worst tenth, %",
        "slow": "updates from the slowest quarter, %",
    }
    return [(heads.get(column, f"{column}, %"), with_deviation(row[column]))]


def _tested(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a tuned comparison, whose differences are over its test seeds."""
    return _together([{**row, "seeds": found["test_seeds"]} for row in found["rows"]])


def _together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table with intervals of their differences that hold together; plain ones
    are stored."""
    comparisons = sum("difference" in row for row in rows)
    widened = [
        _widened(row["difference"]["interval"], comparisons, row["seeds"])
        if "difference" in row
        else None
        for row in rows
    ]
    return [{**row, "difference": wide} for row, wide in zip(rows, widened, strict=True)]


def _widened(
    plain: Sequence[float], comparisons: int, seeds: Sequence[int]
) -> tuple[float, float, float]:
    """Return mean and bounds of a plain interval over seeds as one of so many comparisons."""
    unit = Spread(0.0, 1.0, len(seeds))
    factor = interval(unit, level_together(comparisons)).high / interval(unit).high
    mean, low, high = plain
    return mean, mean - factor * (mean - low), mean + factor * (high - mean)


def csv_table(name: str) -> str:
    """Show a file of ``docs``, ``name.csv``, as a table."""
    with (ROOT / "docs" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return table(head, rows)


def comparison_errors() -> str:
    """List how many tables of comparisons without any difference have a wrong verdict, from
    ``benchmarks/measured/families.json``."""
    found = measured("families")
    cells = {(row["kind"], row["methods"], row["seeds"]): row for row in found["rows"]}
    seeds = sorted({row["seeds"] for row in found["rows"]})
    rows = []
    for kind, methods in dict.fromkeys((row["kind"], row["methods"]) for row in found["rows"]):
        each = [cells[kind, methods, n] for n in seeds]
        shares = [f"{100 * row['plain']:.1f} → {100 * row['together']:.1f}" for row in each]
        most = max(100 * row["bold"] for row in each)
        rows.append((kind, str(methods), *shares, f"{most:.1f}"))
    heads = ("numbers over seeds", "methods", *(f"{n} seeds" for n in seeds), "bold, at most")
    said = f"{found['tables']:,} tables each; `python benchmarks/families.py` makes them anew."
    return f"{table(heads, rows)}\n\n{said}"


def comparison_rules() -> str:
    """Put other rules for tables of ten methods beside the one of reports, from
    ``benchmarks/measured/families.json``."""
    found = measured("families")
    together = {
        (row["kind"], row["methods"], row["seeds"]): row["together"] for row in found["rows"]
    }
    tried = [row for row in found["tried"] if row["flipped"] is not None]
    rows = [
        (
            row["kind"],
            f"{100 * together[row['kind'], row['methods'], row['seeds']]:.1f}",
            *(f"{100 * row[rule]:.1f}" for rule in ("single", "pooled", "flipped")),
        )
        for row in tried
    ]
    lengths = {row["seeds"]: row["factors"] for row in found["tried"]}
    factors = [
        (
            f"half of an interval in standard errors, {n} seeds",
            *(f"{lengths[n][rule]:.2f}" for rule in ("together", "single", "pooled")),
            "–",
        )
        for n in lengths
    ]
    heads = (
        f"{tried[0]['methods']} methods, {tried[0]['seeds']} seeds",
        "Bonferroni",
        "Dunnett, a variance each",
        "Dunnett, one variance",
        "signs flipped",
    )
    return table(heads, [*rows, *factors])


def explained() -> str:
    """Put the causes of the page's example and what each carries, from
    ``benchmarks/measured/explain.json``."""
    example = measured("explain")
    notes = " ".join(f"{note[:1].upper()}{note[1:]}." for note in example["notes"])
    return f"{table(example['heads'], example['rows'])}\n\n{example['note']} {notes}"


def twin() -> str:
    """Put the predictions of twins beside true federations, from
    ``benchmarks/measured/twin.json``."""
    found = measured("twin")
    groups = {"tuned": "laws looked at", "unseen": "other laws", "loaded": "shared load"}
    some = [found[name] for name in groups]
    rows = []
    for name in found["tuned"]["rules"]:
        cells = [f"`{name}`" if name != "all" else "all"]
        for one in some:
            rule = one["rules"][name]
            error, chance, within = (
                f"{rule[key]:.0%}" for key in ("error_s", "error_of_chance_s", "within_s")
            )
            cells.append(f"{error} ({chance}), {within}")
        rows.append(cells)
    held, best = (
        ", ".join(f"{one[key]} of {one['federations']}" for one in some)
        for key in ("retrodicted", "best_within_5_percent")
    )
    bits = ", ".join(f"{one['rules']['all']['within_bits']:.0%}" for one in some)
    said = (
        f"In the same order: what was recorded lay within the twin's interval in {held}; of the "
        f"first four rules the one predicted to be fastest was within 5 % of the truly fastest in "
        f"{best}; of the true runs' bits {bits} lay within their intervals."
    )
    return f"{table(('rule', *groups.values()), rows)}\n\n{said}"


def twin_real() -> str:
    """Put the predictions of twins beside what federations of real processes did, from
    ``benchmarks/measured/twin_real.json``."""
    found = measured("twin_real")
    groups = {"seen": "looked at", "once": "looked at for the change", "unseen": "not looked at"}
    some = {(name, kind): found[name][kind] for name in groups for kind in ("rules", "known")}
    rows = []
    for name in found["once"]["rules"]["rules"]:
        cells = [f"`{name}`" if name != "all" else "all"]
        for one in some.values():
            rule = one["rules"][name]
            cells.append(f"{rule['error_s']:.0%}, {rule['within_s']} of {rule['true_runs']}")
        rows.append(cells)
    heads = [
        "the same, without it" if kind == "known" else f"{groups[name]} ({one['federations']})"
        for (name, kind), one in some.items()
    ]
    held, best, many = (
        sum(found[name]["rules"][key] for name in groups)
        for key in ("retrodicted", "best_within_5_percent", "of")
    )
    said = (
        f"The first five recorded rounds took as long as the interval says in {held} of {many}. Of "
        f"the rules that choose a cohort and wait for it, the one predicted to be the fastest took "
        f"at most 5 % longer than the fastest in {best} of {many}."
    )
    return f"{table(('rule', *heads), rows)}\n\n{said}"


def inspect_outlying() -> str:
    """Tell how often planted faults are named and clean federations are, from
    ``benchmarks/measured/inspect_outlying.json``."""
    found = measured("inspect_outlying")
    sums: dict[tuple[str, float], Counter[str]] = {}
    for row in found["odd"]:
        numbers = {
            name: row.get(name, 0)
            for name in (
                "seeds",
                "named",
                "right kind",
                "plain",
                "plain and named",
                "another named",
            )
        }
        sums.setdefault((row["kind"], row["strength"]), Counter()).update(numbers)
    rows = []
    for (kind, strength), one in sums.items():
        both = f"{one['plain and named']} of {one['plain']}" if one["plain"] else "-"
        share = [
            f"{one[name] / one['seeds']:.0%}" for name in ("named", "right kind", "another named")
        ]
        rows.append((kind, f"{strength:g}", str(one["seeds"]), *share[:2], both, share[2]))
    heads = (
        "planted",
        "strength",
        "federations",
        "client named",
        "with its kind",
        "of those a plain detector finds",
        "another named",
    )
    clean = [
        (
            f"{row['table']}, {row['clients']} clients, {row['skew']}",
            row["named"]["federations"],
            row["seeds"],
        )
        for row in found["clean"]
    ]
    splits: dict[tuple[str, str], Counter[str]] = {}
    for row in found["odd"]:
        for kind in (row["kind"], f"{row['kind']}, {row['strength']:g}"):
            splits.setdefault((kind, row["skew"]), Counter()).update(
                {name: row.get(name, 0) for name in ("seeds", "named", "plain", "plain and named")}
            )
    skews = list(dict.fromkeys(row["skew"] for row in found["odd"]))
    by_split = [
        (
            what,
            *(
                f"{one['plain and named']} of {one['plain']}"
                if what.startswith(("units", "offset", "swapped", "random", "absent"))
                else f"{one['named'] / one['seeds']:.0%} named"
                for one in (splits[what, skew] for skew in skews)
            ),
        )
        for what in (
            *(f"units, {strength}" for strength in ("100", "10", "2.54", "0.5")),
            *("offset", "swapped labels", "random labels"),
            *("constant column", "copied data", "absent class"),
        )
    ]
    named = sum(row[1] for row in clean)
    total = sum(row[2] for row in clean)
    worst = max(clean, key=lambda row: row[1] / row[2])
    slow = max(found["clean"], key=lambda row: row["clients"])
    return (
        "`python benchmarks/inspect_outlying.py odd` plants a fault at one client of "
        "scikit-learn's breast cancer (10 clients), wine (6), digits (20) and diabetes (10, "
        "columns alone), divided equally, in unequal parts and by Dirichlet 0.3. Strengths: the "
        "factor of a unit, an offset in deviations, the share of labels or samples (of several "
        "classes: of the classes). The plain detector tests one client against the rest on the "
        f"pooled rows.\n\n{table(heads, rows)}\n\nBy split: of those that a plain detector "
        "finds, how many are named; where there is none, the share named.\n\n"
        f"{table(('planted', *skews), by_split)}\n\n`python benchmarks/inspect_outlying.py clean`: "
        f"of {total:,} clean federations of 10 to {slow['clients']:,} clients, equal, unequal, "
        f"Dirichlet 0.3 and 0.1, {named} had a client named ({named / total:.1%}); most often of "
        f"{worst[0]}: {worst[1]} of {worst[2]}. {slow['clients']:,} clients of 20 rows take "
        f"{slow['seconds']:.1f} s of one core."
    )
