"""How often motley inspect names an odd client, in the right kind, and how often it names a clean
one.

    # faults planted at one client of real tables
    python benchmarks/inspect_outlying.py odd [--seeds 40]
    # federations of 10 to 1,000 clients without any fault
    python benchmarks/inspect_outlying.py clean [--seeds 100]
    # federations in which every client's columns are offset a little
    python benchmarks/inspect_outlying.py shifted [--seeds 20]

Each writes its table into ``benchmarks/measured/inspect_outlying.json``. The tables are
scikit-learn's; rows are divided equally, in unequal parts, or by a Dirichlet law over classes. The
fault is planted at a client drawn among those that hold 15 rows or more. ``plain`` is a detector
that has no federation to think of: on the pooled rows, a two-sided test of one client against the
rest at 5 % after Bonferroni over clients and columns (Mann-Whitney for columns, Fisher's exact test
on the errors of logistic regression for labels, (1 - share)^n for an absent class).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact, mannwhitneyu
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from motley.core.keys import Key
from motley_advice.heterogeneity.client_data import of_arrays
from motley_advice.heterogeneity.duplicates import certain_copies, sample_hashes
from motley_advice.heterogeneity.outlying import outlying_clients

OUT = Path(__file__).parent / "measured" / "inspect_outlying.json"
Rng = np.random.Generator
Array = NDArray[Any]

TABLES = {"breast_cancer": 10, "wine": 6, "digits": 20, "diabetes": 10}
"""Table -> number of clients."""
SKEWS: dict[str, float] = {"equal": 0.0, "unequal": 0.0, "Dirichlet 0.3": 0.3, "Dirichlet 0.1": 0.1}
FAULTS: dict[str, tuple[float, ...]] = {
    "units": (100.0, 10.0, 2.54, 0.5),
    "offset": (1.0, 2.0, 4.0),
    "constant column": (1.0,),
    "swapped labels": (1.0, 0.8),
    "random labels": (1.0, 0.5),
    "copied data": (1.0, 0.5, 0.2),
    "absent class": (1.0,),
}


def table(name: str) -> tuple[Array, Array]:
    """Return the columns and classes of a table; of numbers their fifths."""
    given = getattr(datasets, f"load_{name}")()
    y = np.asarray(given.target)
    if name == "diabetes":
        y = np.searchsorted(np.quantile(y, [0.2, 0.4, 0.6, 0.8]), y)
    return np.asarray(given.data, np.float64), y.astype(np.int64)


def divided(y: Array, clients: int, skew: str, rng: Rng) -> Array:
    """Return the client of each row."""
    if skew == "equal":
        return np.asarray(rng.permutation(np.arange(len(y)) % clients))
    if skew == "unequal":
        return rng.choice(clients, len(y), p=rng.dirichlet(np.full(clients, 2.0)))
    owner = np.zeros(len(y), np.int64)
    for label in range(int(y.max()) + 1):
        at = np.flatnonzero(y == label)
        owner[at] = rng.choice(clients, len(at), p=rng.dirichlet(np.full(clients, SKEWS[skew])))
    return owner


def planted(
    kind: str, strength: float, x: Array, y: Array, owner: Array, rng: Rng
) -> tuple[Array, Array, Array, int]:
    """Return the rows with a fault of one client, and that client."""
    x = x.copy()
    y = y.copy()
    owner = owner.copy()
    sizes = np.bincount(owner)
    odd = int(rng.choice(np.flatnonzero(sizes >= min(15, np.sort(sizes)[-3]))))
    mine = np.flatnonzero(owner == odd)
    classes = int(y.max()) + 1
    j = int(rng.choice([j for j in range(x.shape[1]) if len(np.unique(x[:, j])) > 10]))
    some = mine[rng.random(len(mine)) < strength]
    if kind == "units":
        x[mine, j] *= strength
    elif kind == "offset":
        x[mine, j] += strength * x[:, j].std()
    elif kind == "constant column":
        x[mine, j] = np.median(x[:, j])
    elif kind == "swapped labels":  # of two classes some rows, of several some classes in a ring
        held = np.argsort(-np.bincount(y[mine], minlength=classes))[
            : max(2, round(strength * classes))
        ]
        renamed = np.arange(classes)
        renamed[held] = np.roll(held, 1)
        y[some if classes == 2 else mine] = renamed[y[some if classes == 2 else mine]]
    elif kind == "random labels":
        y[some] = rng.integers(classes, size=len(some))
    elif kind == "copied data":
        other = int(rng.choice([k for k in np.unique(owner) if k != odd]))
        source = rng.choice(np.flatnonzero(owner == other), len(some))
        x[some], y[some] = x[source], y[source]
    elif kind == "absent class":
        kept = ~((owner == odd) & (y == np.bincount(y[mine]).argmax()))
        x = x[kept]
        y = y[kept]
        owner = owner[kept]
    return x, y, owner, odd


def found(x: Array, y: Array, owner: Array, seed: int) -> list[tuple[int, str]]:
    """Return the clients that are named, with the kind."""
    data = of_arrays(x, y, owner)
    ids = np.unique(owner)
    hashes = sample_hashes(data)
    told, _ = outlying_clients(data, hashes, certain_copies(data, hashes), Key(seed))
    return [(int(ids[one.client]), one.kind) for one in told]


def plain(kind: str, x: Array, y: Array, owner: Array, odd: int) -> bool | None:
    """Return whether the plain detector finds the client; None where there is none for this
    kind."""
    own = owner == odd
    clients = len(np.unique(owner))
    if kind in ("units", "offset", "constant column"):
        many = clients * x.shape[1]
        tests = (
            mannwhitneyu(x[own, j], x[~own, j]).pvalue
            for j in range(x.shape[1])
            if np.ptp(x[:, j]) > 0
        )
        return min(tests) < 0.05 / many
    if kind in ("swapped labels", "random labels"):
        model = make_pipeline(
            QuantileTransformer(n_quantiles=100), LogisticRegression(max_iter=200)
        )
        wrong = cross_val_predict(model, x, y, cv=3) != y
        counts = [[int((wrong & part).sum()), int((~wrong & part).sum())] for part in (own, ~own)]
        return bool(fisher_exact(counts, "greater").pvalue < 0.05 / clients)
    if kind == "absent class":
        here, there = (np.bincount(y[part], minlength=int(y.max()) + 1) for part in (own, ~own))
        chance = (1 - there[here == 0] / there.sum()) ** here.sum()
        return bool((chance < 0.05 / (clients * len(here))).any())
    return None


def odd(seeds: int) -> list[dict[str, Any]]:
    """Plant every fault at every strength in every table and skew."""
    rows = []
    for name, clients in TABLES.items():
        x, y = table(name)
        for skew in list(SKEWS)[:3]:
            for kind, strengths in FAULTS.items():
                if name == "diabetes" and kind in ("swapped labels", "random labels"):
                    continue  # fifths of a number cannot be told from the columns
                for strength in strengths:
                    rows.append(
                        {
                            "table": name,
                            "skew": skew,
                            "kind": kind,
                            "strength": strength,
                            **_odd(x, y, clients, skew, kind, strength, seeds),
                        }
                    )
                    print(rows[-1], flush=True)
    return rows


def _odd(
    x: Array, y: Array, clients: int, skew: str, kind: str, strength: float, seeds: int
) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 7])
        px, py, owner, at = planted(kind, strength, x, y, divided(y, clients, skew, rng), rng)
        told = found(px, py, owner, seed)
        mine = {one for k, one in told if k == at}
        easy = plain(kind, px, py, owner, at)
        counts["named"] += bool(mine)
        counts["right kind"] += kind in mine
        counts["plain"] += bool(easy)
        counts["plain and named"] += bool(easy) and bool(mine)
        counts["another named"] += any(k != at and kind != "copied data" for k, _ in told)
        kinds.update(mine)
    return {"seeds": seeds, **counts, "kinds": dict(kinds)}


def _digits(clients: int, rng: Rng) -> tuple[Array, Array]:
    x, y = table("digits")
    at = rng.choice(len(y), 20 * clients, replace=True)
    return x[at] + rng.normal(size=(len(at), x.shape[1])), y[at]


def _cancer(clients: int, rng: Rng) -> tuple[Array, Array]:
    x, y = table("breast_cancer")
    at = rng.choice(len(y), 20 * clients, replace=True)
    return x[at] * np.exp(0.05 * rng.normal(size=(len(at), x.shape[1]))), y[at]


def clean(seeds: int) -> list[dict[str, Any]]:
    """Count federations without a fault in which a client is named; large ones are drawn with
    replacement and blurred."""
    real = [
        ("breast_cancer", 10, seeds),
        ("breast_cancer", 30, seeds),
        ("wine", 10, seeds),
        ("diabetes", 20, seeds),
        ("digits", 40, seeds // 2),
    ]
    cases: list[tuple[str, int, Callable[[Rng], tuple[Array, Array]], int]] = [
        *(
            (name, clients, lambda rng, name=name: table(name), times)
            for name, clients, times in real
        ),
        ("breast_cancer, blurred", 100, lambda rng: _cancer(100, rng), seeds // 2),
        ("digits, blurred", 100, lambda rng: _digits(100, rng), seeds // 4),
        ("breast_cancer, blurred", 1000, lambda rng: _cancer(1000, rng), seeds // 5),
    ]
    rows = []
    for name, clients, make, times in cases:
        for skew in SKEWS:
            named = Counter[str]()
            begin = time.perf_counter()
            for seed in range(times):
                rng = np.random.default_rng([seed, 11])
                x, y = make(rng)
                told = found(x, y, divided(y, clients, skew, rng), seed)
                named["federations"] += bool(told)
                named.update({kind for _, kind in told})
            seconds = (time.perf_counter() - begin) / times
            rows.append(
                {
                    "table": name,
                    "clients": clients,
                    "skew": skew,
                    "seeds": times,
                    "seconds": round(seconds, 2),
                    "named": dict(named),
                }
            )
            print(rows[-1], flush=True)
    return rows


def shifted(seeds: int) -> list[dict[str, Any]]:
    """Count federations in which a client is named although all clients differ alike: each has
    offsets of its own, drawn from one normal law, in all columns of many values or in one."""
    rows = []
    for name in ("breast_cancer", "wine", "diabetes"):
        given, y = table(name)
        many = np.array([len(np.unique(column)) > 10 for column in given.T])
        for skew in ("equal", "unequal"):
            for columns in ("all columns", "one column"):
                for size in (0.05, 0.15, 0.3, 0.6):
                    named = 0
                    for seed in range(seeds):
                        rng = np.random.default_rng([seed, 5])
                        owner = divided(y, TABLES[name], skew, rng)
                        moved = many.copy()
                        if columns == "one column":
                            moved[:] = np.arange(len(many)) == rng.choice(np.flatnonzero(many))
                        offsets = rng.normal(size=(TABLES[name], len(many))) * size * moved
                        x = given + (offsets * given.std(axis=0))[owner]
                        named += bool(found(x, y, owner, seed))
                    rows.append(
                        {
                            "table": name,
                            "clients": TABLES[name],
                            "skew": skew,
                            "columns": columns,
                            "deviation": size,
                            "seeds": seeds,
                            "named": named,
                        }
                    )
                    print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("odd", "clean", "shifted"))
    parser.add_argument("--seeds", type=int, default=0)
    given = parser.parse_args()
    make, seeds = {"odd": (odd, 40), "clean": (clean, 100), "shifted": (shifted, 20)}[given.what]
    rows = make(given.seeds or seeds)
    known = json.loads(OUT.read_text()) if OUT.exists() else {}
    OUT.write_text(json.dumps({**known, given.what: rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
