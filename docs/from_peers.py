"""Make the tables and the picture of the comparison with other frameworks from
``benchmarks/measured/peers.json``."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from cells import listed, rate
from from_measurements import measured

__all__ = ["beside_peers", "picture_of_peers"]

TITLES = {
    "motley": "Motley",
    "plain": "plain PyTorch loop",
    "processes": "plain PyTorch processes",
    "flower": "Flower",
    "pfl": "pfl-research",
    "flgo": "FLGo",
    "nvflare": "NVFlare",
    "fedlab": "FedLab",
    "fluke": "fluke",
    "blazefl": "BlazeFL",
    "fedjax": "FedJAX",
}
PLAIN = ("plain", "processes")
"""No frameworks: what PyTorch alone takes."""
SOONER = 5.0
"""Wanted: the first round so many times sooner than the next peer's."""

Row = Mapping[str, Any]


def _rows(best: bool = False) -> dict[str, dict[str, Row]]:
    """Return the rows by workload and peer, workloads in their order: in float32, or each peer's
    faster precision, the fastest peer first."""
    found = measured("peers")
    out: dict[str, dict[str, Row]] = {load["name"]: {} for load in found["workloads"]}
    for row in sorted(found["rows"], key=lambda row: row["round_s"]["median"]):
        if row["precision"] == "float32" or (best and _rounds(row)):
            out[row["workload"]].setdefault(row["peer"], row)
    return out


def _rounds(row: Row) -> bool:
    """Return whether a run in bfloat16 has another model than the same framework's in float32."""
    found = measured("peers")["distances"]
    name = f"{row['workload']}/{row['peer']}"
    return bool(found.get(f"{name}/bfloat16") != found.get(f"{name}/float32"))


def _shown() -> list[str]:
    """Return the peers of which every workload was measured, Motley first."""
    loads = _rows().values()
    return [peer for peer in TITLES if all(peer in rows for rows in loads)]


def _title(peer: str) -> str:
    return f"{TITLES[peer]} {measured('peers')['versions'][peer]}".strip()


def _said(words: str) -> str:
    """Return words as they begin a sentence."""
    return words[0].upper() + words[1:]


def _machine() -> str:
    found = measured("peers")
    return f"{found['machine']}, {found['cores']} cores"


def _instructions() -> str:
    """Return the processor's instructions for bfloat16, and how busy it was before."""
    found = measured("peers")
    kind = f" with {found['instructions']}" if found["instructions"] else ""
    return f"{kind} (load before: {found['load_before']:.2f})"


def beside_peers() -> str:
    """List every figure of every framework, the goals, the models' distances and FLUTE's case."""
    parts = [
        f"{_said(_machine())}{_instructions()}, torch {measured('peers')['torch']}. {_swing()}"
    ]
    for load in measured("peers")["workloads"]:
        parts += [f"**{_said(load['title'])}**, {_work(load)}"]
        parts += ["Equal arithmetic, all in float32:", _equal(load), _verdict(load)]
        parts += ["Each at its best:", _best(load), _best_verdict(load)]
    return "\n\n".join([*parts, _distances(), _flute()])


def _swing() -> str:
    """Say how much a turn differs from the other, by the framework that does the same in both."""
    rows = [row for row in measured("peers")["rows"] if row["peer"] == "motley"]
    largest = max(max(row["turns"]) / min(row["turns"]) for row in rows)
    return (
        "The machine is a shared one: Motley's turns, which are the same run twice, differ by up "
        f"to {100 * (largest - 1):.0f} %. A ratio that is nearer to its goal than that is not "
        "decided by two turns, of which a framework in one process has one on each number of "
        "threads."
    )


def _equal(load: Mapping[str, Any]) -> str:
    """Return the table of one workload in float32, the fastest framework first."""
    rows = _rows()[load["name"]]
    ours = rows["motley"]["round_s"]["median"]
    columns = {
        "framework": "{title}",
        "s a round": "{round_s:median}",
        "client steps / s": "{steps_per_s:median}",
        "to Motley": "{ratio:.1f}",
        "first round, s": "{first_s[median]:.1f}",
        "peak, MiB": "{peak_mib:,.0f}",
        "processes": "{processes}",
    }
    return listed(
        [
            {**row, "title": _title(peer), "ratio": row["round_s"]["median"] / ours}
            for peer, row in rows.items()
        ],
        columns,
    )


def _best(load: Mapping[str, Any]) -> str:
    """Return the table of one workload, each framework in its faster precision."""
    rows = _rows(best=True)[load["name"]]
    equal = _rows()[load["name"]]
    distances = measured("peers")["distances"]
    ours = rows["motley"]["round_s"]["median"]
    lines = [
        {
            **row,
            "title": _title(peer),
            "ratio": row["round_s"]["median"] / ours,
            "over": equal[peer]["round_s"]["median"] / row["round_s"]["median"],
            "distance": distances.get(f"{load['name']}/{peer}/{row['precision']}"),
        }
        for peer, row in rows.items()
    ]
    columns = {
        "framework": "{title}",
        "faster in": "{precision}",
        "client steps / s": "{steps_per_s:median}",
        "to Motley": "{ratio:.1f}",
        "over its float32": "{over:.2f}",
        "distance of the model": "{distance:magnitude}",
    }
    return listed(lines, columns)


def _best_verdict(load: Mapping[str, Any]) -> str:
    rows = _rows(best=True)[load["name"]]
    return f"{_ahead(rows['motley'], _others(rows), 'round_s', 'a round', load['goals'][1])}."


def _others(rows: Mapping[str, Row]) -> dict[str, Row]:
    return {peer: row for peer, row in rows.items() if peer not in ("motley", *PLAIN)}


def _work(load: Mapping[str, Any]) -> str:
    epochs = "epoch" if load["epochs"] == 1 else "epochs"
    return (
        f"{load['parameters']:,} parameters: {load['samples']} samples a client in batches of "
        f"{load['batch']}, {load['epochs']} {epochs}, {load['steps']:,} client steps a round."
    )


def _verdict(load: Mapping[str, Any]) -> str:
    """Say how far Motley is ahead of the next peer, and where one is ahead of Motley."""
    rows = _rows()[load["name"]]
    others = _others(rows)
    said = [_ahead(rows["motley"], others, "round_s", "a round", load["goals"][0])]
    said.append(
        _ahead(rows["motley"], others, "first_s", "the first round from the command", SOONER)
    )
    loop, processes = (
        rows[peer]["round_s"]["median"] / rows["motley"]["round_s"]["median"] for peer in PLAIN
    )
    said.append(
        f"The plain loop takes {loop:.2g} times as long, and in a process for each core "
        f"{processes:.2g} times"
    )
    return f"{'. '.join(said)}."


def _ahead(ours: Row, others: Mapping[str, Row], what: str, title: str, goal: float) -> str:
    peer = min(others, key=lambda name: others[name][what]["median"])
    ratio = others[peer][what]["median"] / ours[what]["median"]
    verdict = (
        "reached"
        if ratio >= goal
        else "not reached"
        if ratio >= 1
        else f"not reached, {TITLES[peer]} is ahead"
    )
    return (
        f"For {title}, the next peer, {TITLES[peer]}, takes {ratio:.2g} times as long as "
        f"Motley (goal {goal:g}: {verdict})"
    )


def _distances() -> str:
    """Return the distances of the models after one round of whole batches."""
    found = measured("peers")
    rows = [
        {
            load["title"]: found["distances"].get(f"{load['name']}/{peer}/float32")
            for load in found["workloads"]
        }
        | {"framework": _title(peer)}
        for peer in _shown()
        if peer != "plain"
    ]
    titles = {load["title"]: f"{{{load['title']}:magnitude}}" for load in found["workloads"]}
    text = (
        "The model after one round of whole batches, two steps a client with learning rate 1, in "
        "float32: its distance from the plain loop's, over how far that has moved from the initial "
        "weights. Above 1e-5, an MLP or CNN has one or two hidden units whose input lies within "
        "rounding of 0, where a ReLU has its kink; the LSTM's weights move by 0.3 % of their norm, "
        "so that rounding of the mean counts."
    )
    return f"{text}\n\n{listed(rows, {'framework': '{framework}', **titles})}"


def _flute() -> str:
    found = measured("peers")["flute"]
    if not found:
        return "FLUTE's case was not run: MNIST was not found."
    times = ", ".join(f"{value:.1f}" for value in found["wall_s"])
    return (
        f"FLUTE's case, from command to end: {times} s in three runs, test accuracy "
        f"{100 * found['accuracy']:.0f} % (published: 200 s for FLUTE and 1,814 s for Flower 1.0 "
        "on processors that are not named, accuracy about 80 %)."
    )


# ---- the picture ----

WIDTH = 480
NAMES = 126
PANEL = 160
BAR = 17
"""Units of the picture: its width, the names left of the bars, a panel's width, a bar with its
gap."""
INK = "#222222"
OURS = "#0072B2"
THEIRS = "#B8BEC6"


def picture_of_peers() -> str:
    """Draw bars: client steps per second of each framework and workload, in float32 on the left
    and each at its best on the right, and for the first one seconds to the first round and peak
    memory."""
    loads = measured("peers")["workloads"]
    rows = _rows()
    panels = [
        (
            title,
            {peer: row["steps_per_s"]["median"] for peer, row in found[load["name"]].items()},
        )
        for load in loads
        for title, found in (
            (load["title"], rows),
            ("each at its best", _rows(best=True)),
        )
    ]
    first = rows[loads[0]["name"]]
    panels.append(
        ("Time to the first round", {peer: row["first_s"]["median"] for peer, row in first.items()})
    )
    panels.append(("Peak memory", {peer: row["peak_mib"] for peer, row in first.items()}))
    heads = {
        0: "Client steps a second: longer is faster",
        len(panels) - 2: f"{loads[0]['title'].capitalize()}: shorter is better",
    }
    small = {
        0: f"Left: all in float32. {_said(_machine())}",
        len(panels) - 2: "In float32, counted from the command; all processes",
    }
    peers = _shown()
    said = []
    parts = []
    y = 0.0
    for at, (title, values) in enumerate(panels):
        if at in heads:
            y += 48
            parts += [_text(8, y - 26, heads[at], 15, bold=True), _text(8, y - 8, small[at], 12)]
        left = NAMES + (PANEL + 18) * (at % 2)
        unit = {"Time to the first round": " s", "Peak memory": " MiB"}.get(title, "")
        parts += [
            _text(left, y + 14, _said(title), 13, bold=True),
            *_bars(left, y + 22, peers, values, unit, at % 2 == 0),
        ]
        said.append(
            f"{title}: " + ", ".join(f"{TITLES[peer]} {rate(values[peer])}{unit}" for peer in peers)
        )
        y += (BAR * len(peers) + 38) * (at % 2)
    return _svg(parts, "Motley beside other frameworks on the same work", "; ".join(said), y)


def _bars(
    left: float, top: float, peers: list[str], values: Mapping[str, float], unit: str, named: bool
) -> list[str]:
    """Return a panel: a bar for each framework with its value, and left of the first column its
    name."""
    longest = max(values[peer] for peer in peers)
    parts = []
    for at, peer in enumerate(peers):
        y = top + BAR * at
        long = max(1.5, (PANEL - 52) * values[peer] / longest)
        if named:
            parts.append(
                _text(
                    left - 8,
                    y + 11.5,
                    TITLES[peer].replace("plain PyTorch", "PyTorch"),
                    12,
                    end=True,
                    bold=peer == "motley",
                )
            )
        parts.append(
            f'<rect x="{left}" y="{y}" width="{long:.1f}" height="13" rx="2" '
            f'fill="{OURS if peer == "motley" else THEIRS}"/>'
        )
        parts.append(
            _text(
                left + long + 4,
                y + 11,
                f"{rate(values[peer])}{unit}",
                11.5,
                bold=peer == "motley",
            )
        )
    return parts


def _svg(parts: list[str], title: str, told: str, height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 '
        f'0 {WIDTH} {height:.0f}" role="img" '
        "aria-labelledby=\"t d\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu "
        "Sans', Arial, sans-serif\">"
    )
    words = [f'<title id="t">{escape(title)}</title>', f'<desc id="d">{escape(told)}.</desc>']
    return "\n".join(
        [
            head,
            *words,
            f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _text(
    x: float, y: float, words: str, size: float, bold: bool = False, end: bool = False
) -> str:
    style = ' font-weight="bold"' * bold + ' text-anchor="end"' * end
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
        f'fill="{INK}"{style}>{escape(words)}</text>'
    )
