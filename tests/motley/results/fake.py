"""Runs that never ran: small, repeatable tables shaped like those of a federation of 30 clients."""

from pathlib import Path

import numpy as np

from motley.results.load import Run
from motley.results.schema import TABLES
from motley.results.writer import Writer, remove_streams

CITATION = """@misc{mcmahan2017,
  title = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  author = {McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and \
y Arcas, Blaise Aguera},
  url = {https://arxiv.org/abs/1602.05629},
  year = {2017},
}"""
METHODS = {"uniform": (0.86, 0.6), "power_of_choice": (0.83, 2.2), "hetero_select_v1": (0.89, 1.2)}


def meta(
    selector="uniform",
    seed=0,
    finished=True,
    clients=30,
    test="client",
    metric="accuracy",
    classes=10,
):
    config = {
        "name": "who to ask on digits",
        "seed": seed,
        "population": clients,
        "cohort": 6,
        "stop": {"rounds": 60},
        "task": {"name": "image", "data": "digits", "model": "mlp"},
        "split": {"test": test, "test_fraction": 0.2},
        "partition": {"name": "dirichlet", "alpha": 0.1},
        "selector": {"name": selector}
        | ({"candidates": 12} if selector == "power_of_choice" else {}),
        "algorithm": {"name": "fedprox", "mu": 0.1},
        "local": {"epochs": 5, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05}},
        "engine": "batched",
    }
    return {
        "name": config["name"],
        "run_id": f"{selector[:4]}{seed}",
        "seed": seed,
        "config": config,
        "numerics": {
            "torch": "2.8.0",
            "isa": "AVX2",
            "threads": 2,
            "engine": "batched",
            "device": "cpu",
        },
        "versions": {"motley": "0.1.0", "python": "3.12.3", "torch": "2.8.0", "numpy": "2.4.6"},
        "citations": [{"key": "mcmahan2017", "bibtex": CITATION}],
        "finished": finished,
        "task": {
            "metric": metric,
            "classes": [str(c) for c in range(classes)],
            "notes": {"clients left out": 2},
        },
        "parameters": 55050,
        "command": f"motley compare demo.toml --set seed={seed}",
    }


def write(
    directory: Path, selector="uniform", seed=0, rounds=60, per_client=True, rejected=0, **options
) -> Path:
    """A whole run's tables in ``directory`` and no run.json; see `run` for a loaded one."""
    info = meta(selector, seed, **options)
    clients = info["config"]["population"]
    classes = len(info["task"]["classes"])
    rng = np.random.default_rng([seed, len(selector)])
    level, skew = METHODS.get(selector, (0.8, 1.0))
    with Writer(directory) as writer:
        labels = np.stack(
            [
                rng.multinomial(rng.integers(30, 90), rng.dirichlet([0.1] * classes))
                for _ in range(clients)
            ]
        )
        noise = np.where(rng.random(clients) < 0.33, rng.uniform(0.1, 0.4, clients), 0.0)
        speed = rng.uniform(0.01, 0.1, clients)
        num = labels.sum(1)
        writer.add(
            "federation",
            {
                "client": np.arange(clients),
                "num_train": num,
                "num_test": num // 5,
                "labels": labels,
                "noise": noise,
                "step_s": speed,
                "up_mbps": rng.uniform(1, 10, clients),
            },
        )
        odds = rng.permutation(np.arange(1, clients + 1) ** skew) + 1.0
        time_s = bits = paper = 0.0
        for r in range(1, rounds + 1):
            chosen = np.sort(rng.choice(clients, 6, replace=False, p=odds / odds.sum()))
            outcome = ["rejected" if r <= rejected and i == 0 else "accepted" for i in range(6)]
            model = 55050 * 32.0
            start = time_s
            time_s = time_s + 20 * speed[chosen].max() + 1
            probing = 6 * model if selector == "power_of_choice" else 0.0
            bits = bits + 12 * model + probing
            paper = paper + 6 * model
            writer.add(
                "clients",
                {
                    "round": r,
                    "client": chosen,
                    "outcome": outcome,
                    "local_steps": 20,
                    "bits_up": model,
                },
            )
            writer.add(
                "rounds",
                {
                    "round": r,
                    "selections": r,
                    "start_s": start,
                    "time_s": time_s,
                    "selected": 6,
                    "available": clients,
                    "rejected": outcome.count("rejected"),
                    "accepted": outcome.count("accepted"),
                    "late": 0,
                    "dropped": 0,
                    "down_bits": 6 * model,
                    "up_bits": 6 * model,
                    "probe_down_bits": probing,
                    "probe_up_bits": 0.0,
                    "up_paper_bits": 6 * model,
                    "total_bits": bits,
                    "total_up_bits": paper,
                    "total_up_paper_bits": paper,
                },
            )
            accuracy = np.clip(level * (1 - np.exp(-r / 9)) + rng.normal(0, 0.012 * skew), 0, 1)
            at = {
                "round": r,
                "selections": r,
                "time_s": time_s,
                "total_bits": bits,
                "total_up_paper_bits": paper,
            }
            headline = {"client": -1, "loss": 2.3 * (1 - accuracy), "accuracy": accuracy}
            for scope in (
                ("mean",) if info["config"]["split"]["test"] == "client" else ("mean", "global")
            ):
                writer.add("evaluations", at | headline | {"scope": scope})
            if per_client and r % 10 == 0:
                each = np.clip(accuracy + rng.normal(0, 0.12, clients) - noise / 3, 0, 1)
                rows = {
                    "scope": "client",
                    "client": np.arange(clients),
                    "accuracy": each,
                    "loss": 2.3 * (1 - each),
                }
                writer.add("evaluations", at | rows)
            writer.add(
                "timings",
                {"round": r, "wall_s": 0.05, "train_s": 0.04, "select_s": 0.001, "write_s": 0.0005},
            )
            writer.flush()
        writer.finish()
    remove_streams(directory)
    return directory


def table(name, /, **columns):
    """A table of the schema from lists; columns not given are null."""
    rows = len(next(iter(columns.values())))
    schema = TABLES[name]
    import pyarrow as pa

    return pa.table(
        [pa.array(columns.get(f.name, [None] * rows), f.type) for f in schema], schema=schema
    )


def run(config=None, task=None, seed=0, **tables):
    """A loaded run from hand-made tables."""
    info = {
        "name": "by hand",
        "seed": seed,
        "config": config or {},
        "task": task or {"metric": "accuracy"},
        "finished": True,
    }
    empty = {name: schema.empty_table() for name, schema in TABLES.items()}
    return Run(Path("by-hand"), info, empty | tables)


REAL = {"metric": "accuracy", "notes": {"deployment": "real clients"}}


def two_rounds(**more):
    """A deployment of two rounds. Round 1 from 10 to 130 s: clients 0 and 1 answer, 2 is lost.
    Round 2 until 190 s: 0 in time, 1 late, and its upload comes afterwards. Down 3 messages of 1
    MB, then 2; up 2 of 0.5 MB, then 1."""
    mb = 8e6
    rounds = table(
        "rounds",
        round=[1, 2],
        selections=[1, 2],
        start_s=[10.0, 130.0],
        time_s=[130.0, 190.0],
        down_bits=[3 * mb, 2 * mb],
        up_bits=[mb, 0.5 * mb],
        probe_down_bits=[0.0, 0.0],
        probe_up_bits=[0.0, 0.0],
        total_bits=[4 * mb, 6.5 * mb],
        total_up_paper_bits=[mb, 1.5 * mb],
    )
    clients = table(
        "clients",
        round=[1, 1, 1, 2, 2],
        client=[0, 1, 2, 0, 1],
        outcome=["accepted", "accepted", "dropped", "accepted", "late"],
        download_s=[2.0, 4.0, None, 4.0, None],
        compute_s=[10.0, 50.0, None, 30.0, None],
        upload_s=[1.0, 2.0, None, 2.0, None],
        bits_down=[mb] * 5,
        bits_up=[mb / 2, mb / 2, None, mb / 2, None],
    )
    evaluations = table(
        "evaluations",
        round=[0, 1, 2],
        selections=[0, 1, 2],
        time_s=[10.0, 130.0, 190.0],
        total_bits=[0.0, 4 * mb, 6.5 * mb],
        total_up_paper_bits=[0.0, mb, 1.5 * mb],
        scope=["mean"] * 3,
        client=[-1] * 3,
        loss=[2.0, 1.0, 0.5],
        accuracy=[0.1, 0.6, 0.8],
    )
    incidents = table(
        "incidents",
        round=[1, 2, 2],
        time_s=[70.0, 185.0, 186.0],
        at=["2026-01-02T03:04:05Z"] * 3,
        client=[2, 1, 2],
        event=["lost", "answered late", "connected"],
        dispatch=[3, 5, None],
        reason=["no <answer> within 60 s", "after 55 s", "its node is connected"],
    )
    federation = table("federation", client=[0, 1, 2, 3])
    tables = {
        "rounds": rounds,
        "clients": clients,
        "evaluations": evaluations,
        "incidents": incidents,
        "federation": federation,
    }
    return run(task=REAL, **(tables | more))


def of_losses(losses, each=(), method="fedavg", seed=0, scopes=None, **meta):
    """A run whose headline is a loss, in the mean over clients: ``losses`` after rounds 0, 1, ...
    of 60 s and 1 MB. After the last ``each`` is that of every client, and ``scopes`` (name ->
    value) further means. NaN is a model that is ruined."""
    last = len(losses) - 1
    rows = [(number, "mean", -1, loss) for number, loss in enumerate(losses)]
    rows += [(last, "client", client, loss) for client, loss in enumerate(each)]
    rows += [(last, scope, -1, loss) for scope, loss in (scopes or {}).items()]
    numbers, names, ids, values = zip(*rows, strict=True)
    done = list(range(1, last + 1))

    def spent(after):
        return {
            "time_s": [60.0 * number for number in after],
            "total_bits": [8e6 * number for number in after],
            "total_up_paper_bits": [4e6 * number for number in after],
        }

    made = run(
        {"algorithm": {"name": method}},
        {"metric": "loss"},
        seed,
        evaluations=table(
            "evaluations",
            round=numbers,
            scope=names,
            client=ids,
            loss=[None if value != value else value for value in values],
            **spent(numbers),
        ),
        rounds=table("rounds", round=done, selections=done, **spent(done)),
        federation=table("federation", client=list(range(len(each))), num_test=[30] * len(each)),
    )
    made.meta.update(meta)
    return made
