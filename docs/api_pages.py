"""Write one page for every public object: its signature, its docstring, its source, and the pages
whose examples use it.

What is public stands in :data:`GROUPS`. ``tests/repository/docs`` compares it with the packages'
``__all__`` and with what the pages import.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from cells import ROOT, prose, table

__all__ = ["FOLDER", "GROUPS", "api", "menu", "pages", "public", "used"]

FOLDER = ROOT / "docs" / "api"
GROUPS = {
    "Running": (
        "motley.run",
        "motley.compare",
        "motley.tune",
        "motley.explain",
        "motley.inspect",
        "motley.build",
        "motley.register",
        "motley.Experiment",
        "motley.rounds.loop.RoundLoop",
        "motley.rounds.run_config.RoundSummary",
        "motley.experiments.config.load",
        "motley_advice.tuning.outcome.TuningResult",
        "motley_advice.tuning.outcome.TunedMethod",
        "motley_advice.explanation.explaining.Explanation",
        "motley_advice.explanation.explanation_plan.ExplanationPlan",
        "motley_advice.inspection.inspected.Inspected",
        "motley_advice.inspection.federation.InspectedFederation",
        "motley_advice.heterogeneity.measure.measure",
        "motley_advice.heterogeneity.measure.measure_arrays",
        "motley_advice.heterogeneity.findings.Inspection",
        "motley_advice.heterogeneity.findings.Finding",
        "motley_advice.heterogeneity.findings.OutlyingClient",
    ),
    "Results": (
        "motley.load",
        "motley.load_all",
        "motley.frame",
        "motley.report",
        "motley.Run",
        "motley.TrainedRun",
        "motley.experiments.trained.ClientModel",
        "motley.results.load.citations",
        "motley.results.labels.group_runs",
        "motley.results.measures",
        "motley.results.tables",
        "motley_report.plots",
        "motley_report.sections",
        "motley_report.page",
        "motley.results.blocks",
    ),
    "Selectors": (
        "motley.selectors.build",
        "motley.Selector",
        "motley.selectors.Defence",
        "motley.SelectionRule",
        "motley.SelectionContext",
        "motley.Cohort",
        "motley.SignalRequirements",
        "motley.Outcome",
        "motley.Report",
        "motley.Reports",
        "motley.testing.selectors.check_selector",
    ),
    "Algorithms and other parts": (
        "motley.algorithms.parts.Algorithm",
        "motley.algorithms.parts.Method",
        "motley.algorithms.parts.LocalRule",
        "motley.algorithms.parts.PersonalRule",
        "motley.rounds.stage.Stage",
        "motley.rounds.stage.StageOptions",
        "motley.algorithms.parts.Aggregator",
        "motley.algorithms.parts.Server",
        "motley.algorithms.parts.ServerState",
        "motley.algorithms.parts.ServerContext",
        "motley.algorithms.parts.Slicing",
        "motley.algorithms.parts.Prototypes",
        "motley.algorithms.parts.Choice",
        "motley.algorithms.parts.GradientCorrection",
        "motley.algorithms.parts.JobContext",
        "motley.algorithms.fedavg.Average",
        "motley.algorithms.personal.PersonalLayers",
        "motley.testing.algorithms.check_algorithm",
        "motley.world.interfaces.Device",
        "motley.timing.timeline.plan",
        "motley.transport.ledger.Ledger",
    ),
    "Your own data": (
        "motley.tasks.from_arrays",
        "motley.tasks.from_clients",
        "motley.tasks.from_files",
        "motley.from_flower",
        "motley.tasks.own_task",
        "motley.tasks.Metric",
        "motley_data.table_options.TableOptions",
        "motley.tasks.batch_orders.Carried",
        "motley.tasks.batch_orders.TorchLoaders",
    ),
    "In a Flower deployment": (
        "motley_flower.with_selector",
        "motley_flower.strategy.settings.SelectionSettings",
        "motley_flower.SelectionCoordinator",
        "motley_flower.participation",
        "motley_flower.ParticipationRow",
        "motley_flower.with_reports",
        "motley_flower.enrolled",
        "motley_flower.wanted",
        "motley_flower.measured",
        "motley_flower.run",
        "motley_flower.serve",
        "motley_flower.Limits",
        "motley_flower.server_task",
        "motley_flower.client_task",
    ),
    "Secure aggregation": (
        "motley_flower.MaskedUpdates",
        "motley_flower.secure.terms.SecureOptions",
        "motley_flower.secure.keyfiles.new_identity",
        "motley_flower.secure.keyfiles.as_register",
        "motley_flower.secure.verifiable_draws.verify_draws",
    ),
    "Shared records": (
        "motley.Key",
        "motley.core.keys.Streams",
        "motley.core.sketch.Sketch",
        "motley.ClientTable",
        "motley.Layout",
        "motley.Paper",
    ),
    "Errors": tuple(
        f"motley.{name}Error"
        for name in (
            "Motley",
            "User",
            "Config",
            "Data",
            "Model",
            "Store",
            "Numerics",
            "Engine",
            "Codec",
            "Contract",
        )
    ),
}
"""Heading -> the public objects below it, by the names under which they are imported."""
MEMBERS = {
    "motley.Experiment": (
        "replace",
        "resolved",
        "run_id",
        "result_id",
        "horizon_keys",
        "papers",
        "part",
        "cohort_size",
    )
}
"""Objects of which not all members are shown."""
SHOWN = {
    "motley_advice.heterogeneity.measure.measure": "inspect.md",
    "motley_advice.heterogeneity.measure.measure_arrays": "inspect.md",
    "motley_advice.heterogeneity.findings.Inspection": "inspect.md",
    "motley_advice.heterogeneity.findings.Finding": "inspect.md",
    "motley_advice.heterogeneity.findings.OutlyingClient": "inspect.md",
    "motley_advice.inspection.inspected.Inspected": "inspect.md",
    "motley_advice.inspection.federation.InspectedFederation": "inspect.md",
    "motley.rounds.run_config.RoundSummary": "experiment-file.md#objects",
    "motley.Run": "results.md",
    "motley.TrainedRun": "results.md",
    "motley.experiments.trained.ClientModel": "results.md",
    "motley.results.load.citations": "results.md",
    "motley.SelectionRule": "add-a-selector.md",
    "motley.SelectionContext": "add-a-selector.md",
    "motley_data.table_options.TableOptions": "table-files.md",
    "motley_advice.tuning.outcome.TuningResult": "tuning.md",
    "motley_advice.tuning.outcome.TunedMethod": "tuning.md",
    "motley_flower.strategy.settings.SelectionSettings": "deploy/your-app.md",
    "motley_flower.SelectionCoordinator": "deploy/your-app.md",
    "motley_flower.ParticipationRow": "deploy/your-app.md",
    **dict.fromkeys((name for name in GROUPS["Errors"]), "quick-start.md#the-same-from-python"),
}
"""Objects that no example names -> the section that shows them at work."""
USED = ("motley", "motley_advice", "motley_data")
"""Packages of which all that an example imports has a page."""
FENCE = re.compile(r"^( *)```python[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def public() -> list[str]:
    """Return the names of all public objects."""
    return [name for names in GROUPS.values() for name in names]


def resolve(name: str) -> object:
    """Return the object of a dotted name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(resolve(module), last)


def _file(name: str) -> str:
    """Return an object's file; ``motley.Run`` and ``motley.run`` must differ also where the case of
    letters does not count."""
    return f"{name}-class.md" if inspect.isclass(resolve(name)) else f"{name}.md"


def used(text: str) -> Iterator[str]:
    """Yield the dotted names below :data:`USED` that a page's Python blocks import, or reach from
    ``motley`` by attributes."""
    for fence in FENCE.finditer(text):
        for node in ast.walk(ast.parse(re.sub(rf"^{fence[1]}", "", fence[2], flags=re.MULTILINE))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in USED:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif (
                isinstance(node, ast.Attribute)
                and (found := ast.unparse(node)).startswith("motley.")
                and "(" not in found
            ):
                yield found


def guides() -> list[Path]:
    """Return the pages that are written by hand."""
    return [
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.parent not in (FOLDER, ROOT / "docs" / "methods")
    ]


@lru_cache(maxsize=1)
def _examples() -> dict[int, list[Path]]:
    """Return, by the object's identity, the pages whose examples use it."""
    found: dict[int, list[Path]] = {}
    for page in guides():
        names = set(used(page.read_text(encoding="utf-8")))
        for name in sorted(names | {name.rpartition(".")[0] for name in names} - {"motley"}):
            try:
                seen = found.setdefault(id(resolve(name)), [])
            except AttributeError:  # an attribute of an object: motley.Outcome.PROBED
                continue
            if page not in seen:
                seen.append(page)
    return found


def _title(page: Path) -> str:
    heading = re.search(
        r"^# (.+?)(?: \{#.*)?$", page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return heading[1] if heading else page.stem


def _summary(name: str) -> str:
    """Return the first sentence of an object's docstring."""
    text = prose(inspect.getdoc(resolve(name)) or "").partition("\n\n")[0].replace("\n", " ")
    return re.split(r"[.:;]\s", text + " ")[0].rstrip(".:; ") + "." if text else ""


def pages() -> dict[Path, str]:
    """Return the text of every object's page, by file."""
    made = {}
    for name in public():
        thing = resolve(name)
        lines = [
            f"::: {name}",
            "    options:",
            "      heading_level: 1",
            "      show_root_full_path: true",
        ]
        if name in MEMBERS:
            lines.append(f"      members: [{', '.join(MEMBERS[name])}]")
        if isinstance(thing, ModuleType):
            lines.append("      show_root_toc_entry: false")
        found = [
            f"[{_title(page)}](../{page.relative_to(ROOT / 'docs').as_posix()})"
            for page in _examples().get(id(thing), ())
        ]
        shown = ["", f"**Used in the examples of** {', '.join(found)}."] if found else []
        if not found and name in SHOWN:
            page = ROOT / "docs" / SHOWN[name].partition("#")[0]
            shown = ["", f"**See** [{_title(page)}](../{SHOWN[name]})."]
        made[FOLDER / _file(name)] = "\n".join([*lines, *shown, ""])
    return made


def api() -> str:
    """List the public objects in groups, each with the first sentence of its docstring."""
    parts = []
    for heading, names in GROUPS.items():
        rows = [(f"[`{name}`]({_file(name)})", _summary(name)) for name in names]
        parts.append(f"## {heading}\n\n{table(('name', 'what it is'), rows)}")
    return "\n\n".join(parts)


def menu() -> str:
    """Return the API's part of the site's menu."""
    lines = ["      - api/index.md"]
    for heading, names in GROUPS.items():
        lines.append(f"      - {heading}:")
        lines += [f"          - {_label(name)}: api/{_file(name)}" for name in names]
    return "\n".join(lines)


def _label(name: str) -> str:
    """Return an object's name in the menu: the last part, or all below ``motley`` where another
    object ends alike."""
    alike = [other for other in public() if other.rpartition(".")[2] == name.rpartition(".")[2]]
    return name.removeprefix("motley.") if len(alike) > 1 else name.rpartition(".")[2]
