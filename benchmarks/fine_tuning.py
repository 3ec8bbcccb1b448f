"""Whether ranks and clients chosen under memory and links save time in federated fine-tuning.

    python benchmarks/fine_tuning.py pretrain CACHE [--steps 1200]
    python benchmarks/fine_tuning.py tune CACHE      # other seeds; writes the plan
    python benchmarks/fine_tuning.py run CACHE [--jobs 1]
    python benchmarks/fine_tuning.py write CACHE     # then: python docs/generate.py

Needs the extra ``hf``. What has finished below CACHE is not run again.

``pretrain`` trains a model of 5.4 million weights (GPT-2's kind, bytes as tokens) on the docstrings
of three installed packages, on one thread of the CPU, for about seven minutes. A model of all other
speakers of Shakespeare was tried first: the texts of the federation taught it nothing more
(perplexity 4.41, 4.39 at best), so nothing could be compared.

32 of Shakespeare's speakers are the federation: they differ in text and amount of it, memory, speed
and links, all drawn by the seed, so the arms are paired. All arms train by FlexLoRA with adapters
of rank 16.

    uniform   every client holds the ranks that all can hold, 4; drawn uniformly
    memory    ranks by memory: 16, 8 or 4; drawn uniformly
    ranks     by memory and such that a client's round ends in the time that a round of ``uniform``
              takes; drawn uniformly
    clients   4 ranks; chosen by Oort
    both      ranks by memory and in the time that a round of ``clients`` takes; chosen by Oort

``ranks`` and ``clients`` differ from ``uniform`` in one thing each.

The plan. ``tune`` takes seeds 100 to 102: the learning rate of ``uniform`` (of two; seeds 100 and
101), the two lengths of a round (means over all three), and the target: the mean perplexity
over clients that has 90 % of what ``uniform`` gains in all rounds (the means of three seeds). The
ranked seeds 0 to 4 are then run once, whatever comes out. Claim: ``both`` reaches the target in at
least 25 % less virtual time than ``uniform``. A run that never reaches it is said to, and an arm
with one has no interval.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).with_name("measured") / "fine_tuning.json"
PLAN = Path(__file__).with_name("fine_tuning_plan.json")
SEEDS = range(5)
TUNED_ON = (100, 101, 102)
RATES = (3e-3, 1e-2)
ARMS = ("uniform", "memory", "ranks", "clients", "both")
GAINED = 0.9
"""Share of what ``uniform`` gains that the target asks for."""

SPEAKERS = 32
LEAST = 4000
"""Characters of a speaker who may be held out."""
TESTED = 3 * 128 + 1
"""Characters, from the beginning of the last fifth of a speaker's text, that are for testing."""
WINDOW = 128
BATCH = 16
LR = 1.5e-3
COHORT = 6
ROUNDS = 12
RANK = 16
LEVELS = [1.0, 0.5, 0.25]
MEMORY = {"name": "by_memory", "low": 62.6, "high": 69.0, "levels": LEVELS, "too_little": "least"}
"""Training takes 66.6, 63.9 and 62.5 MB with 16, 8 and 4 ranks."""
MODEL = {
    "vocab_size": 128,
    "n_positions": WINDOW,
    "n_embd": 384,
    "n_layer": 3,
    "n_head": 4,
    "activation_function": "gelu_pytorch_tanh",
    "bos_token_id": 0,
    "eos_token_id": 0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


def speakers() -> dict[str, str]:
    """Return the text of each speaker of the federation, by name."""
    from motley_data.datasets import load_shakespeare

    found = load_shakespeare(None)
    whole = [train + test for train, test in zip(found.train, found.test, strict=True)]
    long = [k for k, text in enumerate(whole) if len(text) >= LEAST]
    out = np.random.default_rng(2026).choice(long, SPEAKERS, replace=False)
    return {found.names[k].replace("/", "-"): whole[k] for k in sorted(out.tolist())}


def prose() -> str:
    """Return the English that the model learns from: what the modules of three installed packages
    say of themselves, without their examples."""
    told = []
    for package in ("numpy", "scipy", "sklearn"):
        folder = Path(importlib.import_module(package).__file__ or "").parent
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
                if isinstance(node, kinds) and len(text := ast.get_docstring(node) or "") > 200:
                    lines = [line.strip() for line in text.splitlines()]
                    told.append("\n".join(line for line in lines if line[:3] not in (">>>", "...")))
    return "\n".join(told).encode("ascii", "ignore").decode()


def write_speakers(cache: Path, held: Mapping[str, str]) -> None:
    """Write what the federation's clients train on, and what they are tested on."""
    for half in ("train", "test"):
        (cache / "speakers" / half).mkdir(parents=True, exist_ok=True)
    for name, text in held.items():
        cut = len(text) * 4 // 5
        (cache / "speakers" / "train" / f"{name}.txt").write_text(text[:cut], encoding="utf-8")
        test = text[cut : cut + TESTED]
        (cache / "speakers" / "test" / f"{name}.txt").write_text(test, encoding="utf-8")


def pretrain(cache: Path, last: int) -> None:
    """Train the model for so many steps; write it, what it took, and the speakers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    held, others = speakers(), prose()
    write_speakers(cache, held)
    tokens = torch.from_numpy(np.frombuffer(others.encode(), np.uint8).astype(np.int64))
    # torch's fused attention has a slow backward pass in bfloat16 on a CPU
    model = GPT2LMHeadModel(GPT2Config(**MODEL, attn_implementation="eager"))
    weights = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), LR, betas=(0.9, 0.95), weight_decay=0.1)
    began, cpu = time.monotonic(), time.process_time()
    for step in range(last):
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1.0, (step + 1) / 100) * (0.02 + 0.98 * (1 - step / last))
        starts = rng.integers(0, len(tokens) - WINDOW - 1, BATCH)
        batch = torch.stack([tokens[at : at + WINDOW] for at in starts])
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(batch, labels=batch).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    took: dict[str, Any] = {
        "weights": weights,
        "steps": last,
        "tokens": last * BATCH * WINDOW,
        "characters": len(tokens),
        "wall_minutes": round((time.monotonic() - began) / 60, 2),
        "core_minutes": round((time.process_time() - cpu) / 60, 2),
        "perplexity": {
            "last fifth of held-out speakers": perplexity(
                model, [text[len(text) * 4 // 5 :] for text in held.values()]
            ),
            "a part of the training text": perplexity(model, [others[:100_000]]),
        },
    }
    model.save_pretrained(cache / "base")
    (cache / "pretrained.json").write_text(json.dumps(took, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(took, indent=1))


def perplexity(model: Any, some: list[str]) -> float:
    """Return the perplexity of a model on windows of some texts, over all their tokens."""
    import torch

    total, count = 0.0, 0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for text in some:
            tokens = torch.from_numpy(np.frombuffer(text.encode(), np.uint8).astype(np.int64))
            for at in range(0, len(tokens) - 1, WINDOW):
                row = tokens[None, at : at + WINDOW + 1]
                logits = model(row[:, :-1]).logits.float()
                total += float(
                    torch.nn.functional.cross_entropy(logits[0], row[0, 1:], reduction="sum")
                )
                count += row.shape[1] - 1
    return round(math.exp(total / count), 4)


def arm(name: str, rounds_s: Mapping[str, float]) -> dict[str, Any]:
    """Return the keys of an arm; ``rounds_s``: seconds of a round of two of them."""
    oort = {"name": "oort", "batch_size": 4}
    least = {"name": "constant", "width": LEVELS[-1]}
    if name in ("ranks", "both"):
        seconds = rounds_s["uniform" if name == "ranks" else "clients"]
        held: dict[str, Any] = {
            "name": "by_deadline",
            "seconds": seconds,
            "levels": LEVELS,
            "within": MEMORY,
        }
    else:
        held = MEMORY if name == "memory" else least
    return {"capacity": held, "selector": oort if name in ("clients", "both") else "uniform"}


def keys(cache: Path, rate: float) -> dict[str, Any]:
    """Return the federation, without an arm."""
    adamw = {"name": "adamw", "lr": rate}
    return {
        "name": "fine-tuning",
        "cohort": COHORT,
        "stop": {"rounds": ROUNDS},
        "task": {
            "name": "hf",
            "data": str(cache / "speakers"),
            "base": str(cache / "base"),
            "window": WINDOW,
            "rank": RANK,
            "alpha": float(RANK),
            "targets": ["c_attn", "c_proj", "c_fc"],
        },
        "algorithm": "flexlora",
        "local": {"steps": 5, "batch_size": 4, "optimizer": adamw},
        "device": {"name": "log_normal", "median": 0.5, "sigma": 0.7},
        "network": {
            "name": "log_normal",
            "up_mbps": 1.0,
            "down_mbps": 4.0,
            "sigma": 0.8,
            "per": "client",
        },
        "engine": {"name": "sequential", "threads": 1},
        "precision": "bfloat16",
        "evaluate": {"every": 2},
        "metrics": ["perplexity"],
    }


def trained(
    cache: Path, name: str, seed: int, rate: float, rounds_s: Mapping[str, float]
) -> dict[str, Any]:
    """Return what an arm's run of a seed shows; a finished one is read."""
    import motley

    out = cache / f"{name}-{seed}-{rate:g}"
    began = time.process_time()
    given = {**keys(cache, rate), **arm(name, rounds_s), "seed": seed}
    run = motley.run(given, out=out, resume=True, progress=False)
    said = shown(run)
    minutes = out / "core_minutes.json"
    if not minutes.is_file():
        minutes.write_text(json.dumps(round((time.process_time() - began) / 60, 2)))
    print(name, seed, rate, said["perplexity"][-1], minutes.read_text(), flush=True)
    return {
        "arm": name,
        "seed": seed,
        **said,
        "core_minutes": json.loads(minutes.read_text(encoding="utf-8")),
    }


def shown(run: Any) -> dict[str, Any]:
    """Return the numbers of a run: at each evaluation the rounds, the seconds, the megabytes up and
    down so far and the mean perplexity over clients; that of the worst tenth at the end; the mean
    seconds of a round; and how often a client was sent so many ranks, and how many clients.

    The model is the server's, with all ranks, for all: running it takes no memory for training.
    """
    from motley.results import measures
    from motley.results.fairness import client_values

    along = measures.curve(run, scope="shared_mean")
    seconds = measures.curve(run, "seconds", scope="shared_mean").x
    up, down = (
        np.concatenate([[0.0], np.cumsum(np.asarray(run.column("rounds", f"{way}_bits"), float))])
        / 8e6
        for way in ("up", "down")
    )
    at = along.x.astype(int)
    clients = np.asarray(run.column("clients", "client"))
    ranks = np.rint(RANK * np.asarray(run.column("clients", "width"), float)).astype(int)
    most = {k: int(ranks[clients == k].max()) for k in np.unique(clients).tolist()}
    return {
        "round": at.tolist(),
        "seconds": _rounded(seconds),
        "up_mb": _rounded(up[at]),
        "down_mb": _rounded(down[at]),
        "perplexity": _rounded(along.y, 5),
        "worst_tenth": round(
            float(measures.fairness(client_values(run, "shared_client"), False).worst_decile), 5
        ),
        "round_s": round(float(seconds[-1] / at[-1]), 3),
        "sent": {str(rank): count for rank, count in sorted(Counter(ranks.tolist()).items())},
        "clients": {str(rank): count for rank, count in sorted(Counter(most.values()).items())},
    }


def _rounded(values: Any, digits: int = 3) -> list[float]:
    return [round(float(value), digits) for value in values]


def tune(cache: Path) -> None:
    """Choose the learning rate, the lengths of a round and the target, and write the plan."""
    some = TUNED_ON[:2]
    ends = {
        rate: float(
            np.mean([trained(cache, "uniform", k, rate, {})["perplexity"][-1] for k in some])
        )
        for rate in RATES
    }
    rate = min(ends, key=lambda one: ends[one])
    runs = {
        name: [trained(cache, name, seed, rate, {}) for seed in TUNED_ON]
        for name in ("uniform", "clients")
    }
    first, last = (
        float(np.mean([one["perplexity"][at] for one in runs["uniform"]])) for at in (0, -1)
    )
    plan = {
        "rate": rate,
        "tried": {f"{one:g}": round(end, 4) for one, end in ends.items()},
        "round_s": {
            name: round(float(np.mean([one["round_s"] for one in some])), 2)
            for name, some in runs.items()
        },
        "untuned": round(first, 4),
        "target": round(first - GAINED * (first - last), 4),
        "seeds": list(SEEDS),
        "pretrained": json.loads((cache / "pretrained.json").read_text(encoding="utf-8")),
    }
    PLAN.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(plan, indent=1))


def every(cache: Path, jobs: int) -> list[dict[str, Any]]:
    """Return all ranked runs, one seed of all arms before the next."""
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    pairs = [(name, seed) for seed in SEEDS for name in ARMS]
    names, seeds = zip(*pairs, strict=True)
    given = (repeat(cache), names, seeds, repeat(plan["rate"]), repeat(plan["round_s"]))
    if jobs == 1:
        return list(map(trained, *given))
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return list(pool.map(trained, *given))


def reached(run: Mapping[str, Any], target: float) -> int | None:
    """Return the place of the first evaluation of a run on the target; None: there is none."""
    found = (at for at, value in enumerate(run["perplexity"]) if at and value <= target)
    return next(found, None)


def summary(runs: Sequence[Mapping[str, Any]], target: float) -> list[dict[str, Any]]:
    """Return a row for each arm: how many runs reach the target; over these the means of seconds,
    megabytes and rounds up to it; of all runs, paired by seed with those of ``uniform``, the mean
    and the 95 % interval of the time that is saved, in percent (none unless all reach it), and of
    the differences of both perplexities at the end; which ranks were sent."""
    from motley.results import measures

    rows = []
    of = {name: [run for run in runs if run["arm"] == name] for name in ARMS}
    for name, some in of.items():
        assert [one["seed"] for one in some] == [one["seed"] for one in of["uniform"]]
        at = [reached(run, target) for run in some]
        known = [(run, place) for run, place in zip(some, at, strict=True) if place is not None]
        row: dict[str, Any] = {"arm": name, "seeds": len(some), "reached": len(known)}
        for what in ("seconds", "up_mb", "down_mb", "round"):
            values = [run[what][place] for run, place in known]
            row[what] = round(float(np.mean(values)), 2) if values else None
        row["saved"] = None
        base = [reached(run, target) for run in of["uniform"]]
        if name != "uniform" and None not in at and None not in base:
            saved = [
                100 * (1 - run["seconds"][place] / other["seconds"][there])
                for run, place, other, there in zip(some, at, of["uniform"], base, strict=True)
            ]
            row["saved"] = _bounds(measures.paired(saved, np.zeros(len(saved))))
        ends = {
            "perplexity": [run["perplexity"][-1] for run in some],
            "worst_tenth": [run["worst_tenth"] for run in some],
        }
        for what, values in ends.items():
            others = [run[what][-1] if what == "perplexity" else run[what] for run in of["uniform"]]
            row[what] = round(float(np.mean(values)), 4)
            row[f"{what}_difference"] = (
                None if name == "uniform" else _bounds(measures.paired(values, others), 4)
            )
        for what in ("sent", "clients"):
            total: Counter[str] = Counter()
            for run in some:
                total.update(run[what])
            row[what] = {
                str(rank): round(total[str(rank)] / len(some), 1)
                for rank in (int(RANK * level) for level in LEVELS)
            }
        rows.append(row)
    return rows


def _bounds(found: Any, digits: int = 2) -> list[float]:
    return [round(float(value), digits) for value in (found.mean, found.low, found.high)]


def write(cache: Path, out: Path) -> None:
    """Write the numbers of all ranked runs and of the arms."""
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    runs = every(cache, 1)
    rows = summary(runs, plan["target"])
    minutes = round(sum(run["core_minutes"] for run in runs), 1)
    head = json.dumps({"plan": plan, "core_minutes": minutes, "arms": rows}, indent=1)
    lines = ",\n  ".join(json.dumps(run) for run in runs)
    out.write_text(f'{head[:-2]},\n "runs": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    print(json.dumps(rows, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pretrain", "tune", "run", "write"))
    parser.add_argument("cache", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=OUT)
    parser.add_argument("--steps", type=int, default=1200, help="for pretrain")
    parser.add_argument("--jobs", type=int, default=1, help="processes, for run")
    options = parser.parse_args()
    cache = options.cache.resolve()
    if options.what == "pretrain":
        pretrain(cache, options.steps)
    elif options.what == "tune":
        tune(cache)
    elif options.what == "run":
        every(cache, options.jobs)
    else:
        write(cache, options.out)


if __name__ == "__main__":
    main()
