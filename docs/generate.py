"""The parts of the pages that are made from the code: keys of the experiment file, components, signals, tables.

A page holds ``<!-- made: NAME -->`` and ``<!-- end -->``; what lies between is written by the function of that name. Run it
after a change of options, signals or columns::

    python docs/generate.py

``tests/docs`` fails while a page and the code disagree.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from motley.core.keys import PURPOSES
from motley.core.records import SIGNALS
from motley.experiments import config, document, registry, tables
from motley.recipes import measuring, pictures, recipe
from motley.results.schema import TABLES
from motley.testing.selectors import CHECKS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(<!-- made: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

ORDER = (
    "selector", "algorithm", "loss", "aggregator", "server", "optimizer", "lr_schedule", "task", "model", "partition",
    "label_noise", "feature_shift", "concept_shift", "drift", "device", "network", "availability", "failures", "synchrony",
    "compressor", "feedback", "allocator", "budget", "engine",
)  # fmt: skip
"""Kinds of component in the order of the pages."""
BUSY = 0.7
"""Load of a machine, before a measurement, from which its figures deserve a remark."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def prose(text: str) -> str:
    """A docstring's sentence as Markdown on one line."""
    text = re.sub(r":(?:class|func|data|meth|mod):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("||", "‖")  # a bar would end the cell of a table


def code(value: object) -> str:
    """A value as it is written in an experiment file."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {code(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


# ---------------------------------------------------------------------------------------------------- the experiment file


def keys() -> str:
    """Every key of the experiment file: the top level, then each table."""
    parts = [_key_table(config.Experiment, "")]
    for name, inner in tables_of(config.Experiment).items():
        parts.append(f"### `{name}`\n\n{prose(inner.__doc__ or '')}\n\n{_key_table(inner, name + '.')}")
    return "\n\n".join(parts)


def tables_of(model: type[BaseModel], prefix: str = "") -> dict[str, type[BaseModel]]:
    """Path -> model of every table below a model that is not a component."""
    found: dict[str, type[BaseModel]] = {}
    for name, field in model.model_fields.items():
        for inner in _arms(field.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found[prefix + name] = inner
                found |= tables_of(inner, f"{prefix}{name}.")
    return found


def _arms(annotation: Any) -> list[Any]:
    """The annotation, or the members of its union, without their metadata."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _arms(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [deep for arm in typing.get_args(annotation) for deep in _arms(arm)]
    return [annotation]


def _key_table(model: type[BaseModel], prefix: str) -> str:
    rows = [
        (f"`{prefix}{name}`", _takes(field), _default(field), prose(field.description or ""))
        for name, field in model.model_fields.items()
    ]
    return table(("key", "takes", "default", "what it says"), rows)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Any: "-"}


def _takes(field: FieldInfo) -> str:
    words = list(dict.fromkeys(_arm(arm) for arm in _arms(field.annotation) if arm is not type(None)))
    words[0] = " and ".join([words[0], *(bound for bound in map(_bound, _metadata(field)) if bound)])
    return " or ".join(words).replace("number and", "number,")


def _arm(arm: Any) -> str:
    origin = typing.get_origin(arm)
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{code(value)}`" for value in typing.get_args(arm))
    if origin is list:
        return f"{_arm(typing.get_args(arm)[0])}, once or several times"
    if origin is dict:
        inner = typing.get_args(arm)[1]
        return (
            "a component"
            if inner is Any
            else "lists of values by key"
            if typing.get_origin(inner) is list
            else "seeds by purpose"
        )
    if isinstance(arm, type) and issubclass(arm, BaseModel):
        return "a table, see below"
    return _WORDS[arm]


def _metadata(field: FieldInfo) -> list[Any]:
    """Bounds, wherever pydantic keeps them."""
    found = list(field.metadata)
    for arm in typing.get_args(field.annotation):
        for item in getattr(arm, "__metadata__", ()):
            found += item.metadata if isinstance(item, FieldInfo) else [item]
    return found


def _bound(item: Any) -> str:
    signs = ((annotated_types.Gt, "gt", "above"), (annotated_types.Ge, "ge", "at least"),
             (annotated_types.Lt, "lt", "below"), (annotated_types.Le, "le", "at most"))  # fmt: skip
    return next((f"{word} {getattr(item, name):g}" for kind, name, word in signs if isinstance(item, kind)), "")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, tables.EngineChoice):
        return f"`{code(value.name)}`"
    if isinstance(value, BaseModel) or value in (None, {}):
        return "-"
    return f"`{code(value)}`"


def purposes() -> str:
    """What randomness is spent on."""
    return ", ".join(f"`{purpose}`" for purpose in PURPOSES) + "."


def presets() -> str:
    """The bundles that ``method`` names."""
    rows = []
    for name in document.presets():
        bundle = document.preset(name)
        rows.append((f"`{name}`", "<br>".join(f"`{key} = {code(value)}`" for key, value in bundle.items())))
    return table(("`method`", "is short for"), rows)


# ---------------------------------------------------------------------------------------------------- components


def components() -> str:
    """Every component with its options, and the names that are known but not built."""
    return "\n\n".join(_kind(kind) for kind in ORDER)


def _kind(kind: str) -> str:
    rows = registry.listing(kind)
    lines = [f"## `{kind}`", table(("name", "what it is", "options"), [_component(r) for r in rows if r["built"]])]
    planned = [f"`{row['name']}`" for row in rows if not row["built"]]
    return "\n\n".join([*lines, *([f"Known, not built yet: {', '.join(planned)}."] if planned else [])])


def _component(row: dict[str, Any]) -> tuple[str, str, str]:
    sees = {"each": " Sees each upload.", "sum": " Sees the sum only.", None: ""}[row["sees"]]
    options = [
        f"`{o['name']}`: {prose(o['accepts']).replace(chr(39), '`')}"
        + (", must be given" if o["required"] else "" if o["default"] is None else f" (`{code(o['default'])}`)")
        for o in row["options"]
        if o["accepts"] != "Clip or none"  # an experiment says it with the key local.clip
    ]
    return f"`{row['name']}`", prose(row["about"]) + sees, "<br>".join(options) or "-"


def contents() -> str:
    """One row per kind: the names that are built."""
    built = {kind: [f"`{row['name']}`" for row in registry.listing(kind) if row["built"]] for kind in ORDER}
    return table(("kind", "names"), [(kind.replace("_", " "), ", ".join(names)) for kind, names in built.items()])


# ---------------------------------------------------------------------------------------------------- signals, tables


def signals() -> str:
    """The table of signals."""
    rows = [(f"`{name}`", s.kind, ", ".join(s.when), s.shape, s.model, s.data, s.mode, s.text) for name, s in SIGNALS.items()]
    return table(("signal", "kind", "when", "shape", "at which model", "on which data", "mode", "what it is"), rows)


def contract() -> str:
    """The points that the contract suite of selectors checks."""
    return "\n".join(f"- {name}" for name in CHECKS)


def columns() -> str:
    """The columns of every table of a run."""
    rows = [(f"`{name}`", ", ".join(f"`{field.name}`" for field in schema)) for name, schema in TABLES.items()]
    return table(("table", "columns"), rows)


# ---------------------------------------------------------------------------------------------------- what was measured


def speed() -> str:
    """Client steps per second and their ratio to the plain loop, from ``benchmarks/measured/engines.json``."""
    found = _measured("engines")
    rows = []
    for row in found["rows"]:
        best = row["best_steps_per_s"]
        loop = max(value for name, value in best.items() if name != "engine")
        goal = f">= {row['goal']:g}" if row["goal"] else "-"
        ratio = f"{row['ratio']:.2f} ({row['median_ratio']:.2f})"
        rows.append((row["workload"], f"`{row['engine']}`", _rate(best["engine"]), _rate(loop), ratio, goal))
    head = ("workload", "engine", "client steps / s", "plain loop", "ratio of the best (of the medians)", "goal")
    return f"{found['cores']} cores, torch {found['torch']}.\n\n{table(head, rows)}"


def scaling() -> str:
    """Every engine beside every other, and the memory of each, from ``benchmarks/measured/scaling.json``."""
    found = _measured("scaling")
    rows = []
    for row in found["rows"]:
        for name, one in row["engines"].items():
            ratio = f"{one['ratio']:.2f} ({one['median_ratio']:.2f})"
            rows.append((row["workload"], f"`{name}`", _rate(one["best_steps_per_s"]), ratio, f"{one['peak_mib']:,.0f}"))
    head = ("workload", "engine", "client steps / s", "to `sequential`: best (median)", "peak, MiB")
    ray = f", Ray {found['ray']}" if found["ray"] else ", without Ray"
    busy = "" if found["load_before"] < BUSY else f" The machine was busy with other work (load {found['load_before']:.1f})."
    return f"{found['cores']} cores, torch {found['torch']}{ray}.{busy}\n\n{table(head, rows)}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def overhead() -> str:
    """Milliseconds a round outside training, peak memory, import time, from ``benchmarks/measured/overhead.json``."""
    found = _measured("overhead")
    rows = [(f"{r['population']:,}", str(r["cohort"]), f"`{r['selector']}`", f"{r['total']:.1f}") for r in found["rounds"]]
    memory, start = found["memory"], found["import"]
    text = (
        f"A whole run with 10,000 clients and the MLP (MNIST) peaks at {memory['peak_mib']:.0f} MiB, "
        f"{memory['grown_after_round_20_mib']:.1f} MiB of them after round 20. "
        f"`import motley` takes {1000 * start['import_s']:.0f} ms, without torch."
    )
    return f"{table(('clients', 'cohort', 'selector', 'ms a round'), rows)}\n\n{text}"


def choosing() -> str:
    """Milliseconds of one choice and bytes of state at each rule's largest size, from ``benchmarks/measured/selection.json``."""
    largest = {(row["rule"], json.dumps(row["options"])): row for row in _measured("selection")["rows"]}  # sizes rise
    rows = []
    for row in largest.values():
        options = "".join(f", `{name} = {value}`" for name, value in row["options"].items())
        cells = (f"{row['clients']:,}", f"{1e3 * row['steady_s']:.3g}", f"{row['peak_bytes'] / 2**20:,.1f}")
        rows.append((f"`{row['rule']}`{options}", *cells, f"{row['state_bytes_per_client']:,.0f}"))
    return table(("rule", "clients", "ms a round", "peak, MiB", "state, bytes a client"), rows)


def uploads() -> str:
    """Bytes of real messages at several theta, and in fewer bits a value, from ``benchmarks/measured/uploads.json``."""
    found = _measured("uploads")
    parts = []
    head = ("theta", "values alone", "`topk`", "its places", "`topk`, `qsgd`", "`randomk`", "Golomb*")
    for model in found["models"]:
        rows = []
        for r in model["rows"]:
            size, kind = r["places"]
            whole = f"{_kilo(r['topk'])} (+{r['topk'] / r['paper'] - 1:.0%})"
            sizes = [_kilo(r[name]) for name in ("topk then qsgd", "randomk", "golomb")]
            rows.append((f"{r['theta']:g}", _kilo(r["paper"]), whole, f"{_kilo(size)}, {kind}" if size else "-", *sizes))
        parts.append(f"{_title(model)}, in kB:\n\n{table(head, rows)}")
    rows = []
    for name in found["models"][0]["whole"]:
        each = [(m["whole"][name], m["parameters"]) for m in found["models"]]
        rows.append((f"`{name}`", *(f"{_kilo(size)} ({8 * size / n:.3g})" for size, n in each)))
    elias = [(m["elias"], m["parameters"]) for m in found["models"]]
    rows.append(("`fedpaq` with Elias codes*", *(f"{_kilo(size)} ({8 * size / n:.2g})" for size, n in elias)))
    parts.append("Every value, in fewer bits, in kB (bits a value):\n\n" + table(("", *map(_title, found["models"])), rows))
    parts.append(f"Heads and checksum of such a message: {found['head']} bytes.")
    return "\n\n".join(parts)


def _title(model: dict[str, Any]) -> str:
    return f"`{model['model']}`, {model['parameters']:,} values"


def _kilo(size: float) -> str:
    return f"{size / 1000:,.0f}" if size >= 1e5 else f"{size / 1000:#.3g}"


def traffic() -> str:
    """Who sent how much in which direction, and how far that took him, from ``benchmarks/measured/traffic.json``."""
    parts = []
    for experiment, found in _measured("traffic").items():
        rows = []
        for r in found["rows"]:
            mb = [_short(r["mb"][kind]) for kind in ("paper", "up", "down", "probe", "total")]
            until = [
                ("" if r["until"][k][1] else "> ") + _short(r["until"][k][0]) for k in ("paper_mb", "traffic_mb", "seconds")
            ]
            rows.append((f"`{r['method']}`", *mb, *until))
        seeds = sorted({seed for r in found["rows"] for seed in r["seeds"]})
        goal = f"{found['target']:.0%}"
        head = ("MB", "papers", "up", "down", "probes", "all", f"papers to {goal}", f"all to {goal}", f"virtual s to {goal}")
        said = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        parts.append(f"`{experiment}`, {found['rows'][0]['rounds']} rounds, {said}:\n\n{table(head, rows)}")
        if "early" in found:
            rows = [
                (
                    f"`{r['method']}`",
                    f"{r['rounds']:.0f}",
                    f"{r['accuracy']:.1%}",
                    _short(r["paper_mb"]),
                    _short(r["traffic_mb"]),
                )
                for r in found["early"]["rows"]
            ]
            head = ("after " + f"{found['early']['seconds']:g} virtual s", "rounds", "accuracy", "MB, papers", "MB, all")
            parts.append(f"The same, early, with the methods that were not run to the end:\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def heterogeneity(name: str) -> str:
    """One table of ``benchmarks/measured/heterogeneity.json``, a panel after the other."""
    found = _measured("heterogeneity")[name]
    panels = list(dict.fromkeys(row["panel"] for row in found["rows"]))
    parts = []
    for panel in panels:
        rows = [row for row in found["rows"] if row["panel"] == panel]
        cells = [dict(cell for column in found["columns"] for cell in _cells(column, row, found)) for row in rows]
        names = [f"`{row['label']}`" + _fewer(len(row["seeds"]), found["seeds"]) for row in rows]
        body = table(("method", *cells[0]), [(name, *cell.values()) for name, cell in zip(names, cells, strict=True)])
        parts.append(f"{panel[:1].upper()}{panel[1:]}:\n\n{body}" if panel else body)
    seeds = (
        f"{found['seeds']} seeds: mean ± standard deviation."
        if found["seeds"] > 1
        else "One seed: small differences mean nothing."
    )
    return "\n\n".join([*parts, seeds])


def _fewer(seeds: int, most: int) -> str:
    return "" if seeds == most else f" ({seeds} seed{'s' if seeds > 1 else ''})"


def _cells(column: str, row: dict[str, Any], found: dict[str, Any]) -> list[tuple[str, str]]:
    """(head, text) of one column, or of the several that one record makes."""
    if column == "difference":
        return [(f"{found['end']} against `{found['base']}` (95 %)", _difference(row.get("difference")))]
    if column == "target":
        way = row["target"]
        text = f"{'' if way['reached'] else '> '}{way['seconds']:,.0f} ({way['seeds']} of {len(row['seeds'])})"
        return [(f"virtual s to {100 * found['target']:g} % (seeds)", text)]
    if column == "times":
        return [(f"at {time:g} s, %", _spread(at)) for time, at in zip(found["times"], row["times"], strict=True)]
    if column == "domains":
        return [(f"{name}, %", _spread(at)) for name, at in row["domains"].items()]
    if column == "steps":
        return [("server steps", f"{row['steps']:,.0f}")]
    if column == "variance":
        return [(column, _spread(row[column], 0))]
    heads = {"worst_decile": "worst tenth, %", "slow": "updates from the slowest quarter, %"}
    return [(heads.get(column, f"{column}, %"), _spread(row[column]))]


def _spread(pair: Sequence[float | None], digits: int = 1) -> str:
    mean, deviation = pair
    if mean is None:
        return "-"
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def _difference(found: dict[str, Any] | None) -> str:
    """Bold where the interval leaves out zero."""
    if found is None:
        return "-"
    mean, low, high = (f"{value:+.1f}".replace("-", "−") for value in found["interval"])
    return f"{mean} ({low} to {high})" if found["verdict"] == "no clear difference" else f"**{mean}** ({low} to {high})"


def recipes() -> str:
    """What can be reproduced."""
    rows = []
    for name in recipe.names():
        found = recipe.read(name)
        shown = "; ".join(exhibit.name for exhibit in found.exhibit)
        minutes = found.scale["small"].minutes
        rows.append((f"`{name}`", prose(found.title), shown, f"{minutes:g}" if minutes else "", str(len(found.claim))))
    return table(("recipe", "paper", "tables and figures", "minutes at `small`", "claims"), rows)


def verdicts() -> str:
    """What was found, from ``motley/recipes/*/measured/*/verdicts.csv``; what two scales of a recipe share stands at ``paper``."""
    parts: list[str] = []
    told: set[tuple[str, ...]] = set()
    for path in sorted((ROOT / "motley" / "recipes").glob("*/measured/*/verdicts.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            found = [row for row in csv.DictReader(file) if row["verdict"] != "not tested"]
        rows = [
            (
                prose(r["claim"]),
                r["published"],
                ": ".join(filter(None, (r["measure"], r["comparison"]))),
                _interval(r),
                r["pairs"],
                r["verdict"],
            )
            for r in found
        ]
        rows = [row for row in rows if (path.parents[2].name, *row) not in told]
        told |= {(path.parents[2].name, *row) for row in rows}
        head = ("claim", "published", "comparison", "difference, 95% interval", "pairs", "verdict")
        if rows:
            parts.append(f"### `{path.parents[2].name}`, {path.parent.name}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _interval(row: dict[str, str]) -> str:
    if row["difference"] == "nan":
        return "–"
    bounds = "" if row["low"] == "nan" else f" [{float(row['low']):.3g}, {float(row['high']):.3g}]"
    return f"{float(row['difference']):+.3g}{bounds}"


def recipe_words() -> str:
    """Measures and pictures of recipes."""
    shown = ", ".join(f"`{name}` ({measure.title})" for name, measure in measuring.MEASURES.items())
    drawn = ", ".join(f"`{name}`" for name in pictures.PICTURES)
    by_measure = ", ".join(f"`{name}:`" for name in pictures.BY_MEASURE)
    return (
        f"Measures: {shown}, `note.NAME.early`, `.late` and `.mean` (what a rule noted under NAME).\n\n"
        f"Pictures: {drawn}; an axis after `curves:`, a measure after {by_measure}."
    )


def _measured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "measured" / f"{name}.json").read_text(encoding="utf-8"))
    return found


MAKERS: dict[str, Callable[[], str]] = {
    maker.__name__: maker
    for maker in (
        keys,
        purposes,
        presets,
        components,
        contents,
        signals,
        contract,
        columns,
        speed,
        scaling,
        overhead,
        choosing,
        uploads,
        traffic,
        recipes,
        verdicts,
        recipe_words,
    )
}


MAKERS |= {f"measured_{name}": partial(heterogeneity, name) for name in _measured("heterogeneity")}


def refreshed(text: str) -> str:
    """The page with every made part made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{MAKERS[found['name']]()}\n\n{found[3]}", text)


def main() -> None:
    """Rewrite the pages that are stale and say which."""
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = refreshed(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
