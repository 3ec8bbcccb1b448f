"""Files that experiments read: pictures, a table, texts, measured speeds, links and presence; drawn
from fixed seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

__all__ = ["write"]


def write(folder: Path) -> None:
    """Fill a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    _pictures(folder, rng)
    _table(folder, rng)
    _spelled(folder, np.random.default_rng(2))
    (folder / "texts").mkdir(exist_ok=True)
    for client in range(5):
        text = "it is not what it was and will be " * (3 + client)
        (folder / "texts" / f"{client}.txt").write_text(text, encoding="utf-8")
    speeds = rng.uniform(0.1, 0.9, 7)
    links = rng.uniform(1.0, 9.0, (5, 2))
    _rows(folder / "speeds.csv", "step_s", [[value] for value in speeds.tolist()])
    _rows(folder / "links.csv", "up_mbps,down_mbps", links.tolist())
    _rows(
        folder / "presence.csv",
        "trace,active_s,inactive_s,finish_s",
        [[k, 2.0 * k, 2.0 * k + 6.0, 14.0] for k in range(5)]
        + [[5, 0.0, 3.0, 9.0], [5, 5.0, 8.0, 9.0]],
    )
    laws = [[k, 0.1 * (k + q), 0.2 * q, 0.1 * k] for k in range(4) for q in range(3)]
    _rows(folder / "laws.csv", "client,step_s,up_s,unsure", laws)
    ways = [[k, up, up / 2, 0.1] for k, _, up, _ in laws]
    _rows(folder / "laws-of-links.csv", "client,up_s,down_s,up_unsure", ways)
    stays = [[k, 1 + k, 30.0, 2, 20.0] for k in range(4)]
    _rows(folder / "stays.csv", "client,went,online_s,came,offline_s", stays)
    _rows(folder / "lost.csv", "client,dropped,answered", [[k, 1 + k, 4.0] for k in range(4)])


def _pictures(folder: Path, rng: np.random.Generator) -> None:
    """Coloured squares in four classes, with and without writers; digits of two shapes; LEAF's
    users."""
    y = rng.integers(0, 4, 160)
    x = (rng.uniform(0, 120, (160, 3, 16, 16)) + 30 * y[:, None, None, None]).astype(np.uint8)
    test = np.arange(160) >= 120
    np.savez(folder / "pictures.npz", x=x, y=y, test=test)
    np.savez(folder / "written.npz", x=x[:, :, :6, :6], y=y, client=rng.integers(0, 6, 160))
    for name, count in (("digits.npz", 300), ("more.npz", 90)):
        y = rng.integers(0, 10, count)
        x = (
            rng.uniform(0, 1, (count, 1, 8, 8)).astype(np.float32)
            * (1 + y[:, None, None, None])
            / 10
        )
        np.savez(folder / name, x=x, y=y, test=np.arange(count) >= count - 60)
    for half, count in (("train", 20), ("test", 6)):
        users = [f"user{k}" for k in range(5)]
        data = {
            u: {
                "x": rng.uniform(size=(count, 16)).round(4).tolist(),
                "y": rng.integers(0, 3, count).tolist(),
            }
            for u in users
        }
        (folder / "leaf" / half).mkdir(parents=True, exist_ok=True)
        text = json.dumps({"users": users, "num_samples": [count] * len(users), "user_data": data})
        (folder / "leaf" / half / "all.json").write_text(text, encoding="utf-8")


def _table(folder: Path, rng: np.random.Generator) -> None:
    """Rows of numbers with a word to predict and an owner."""
    rows = []
    for _ in range(120):
        values = rng.normal(size=4).round(4).tolist()
        rows.append([*values, "big" if sum(values) > 0 else "small", f"house-{rng.integers(0, 6)}"])
    _rows(folder / "table.csv", "a,b,c,d,kind,owner", rows)


def _spelled(folder: Path, rng: np.random.Generator) -> None:
    """A table with dates, units, decimal commas, gaps, and words and owners in several
    spellings."""
    rows = ["when;mass;job;kind;owner"]
    for _ in range(150):
        day, month = rng.integers(1, 13, 2).tolist()
        mass = f"1.{rng.integers(100, 999)},{rng.integers(0, 10)} kg"
        job = ("Clerk", "clerk", "NURSE", "cook", "")[rng.integers(0, 5)]
        kind = ("yes", " Yes", "no", "NO ", "perhaps", "")[rng.integers(0, 6)]
        owner = ("Ward A", "ward a ", "Ward B", "Ward C", "ward c")[rng.integers(0, 5)]
        rows.append(f"{day:02}/{month:02}/2023;{mass};{job};{kind};{owner}")
    (folder / "spelled.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _rows(path: Path, heads: str, rows: list[list[object]]) -> None:
    path.write_text(
        "\n".join([heads, *(",".join(str(value) for value in row) for row in rows)]) + "\n",
        encoding="utf-8",
    )
