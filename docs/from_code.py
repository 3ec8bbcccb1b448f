"""Make the parts of the pages that come from the code: keys of the experiment file, components,
signals, columns."""

from __future__ import annotations

import csv
import dataclasses
import tomllib
import types
import typing
from copy import copy
from typing import Any

import annotated_types
from cells import ROOT, code, prose, table
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from motley.core.keys import PURPOSES
from motley.core.records import CONTRIBUTION, SIGNALS, SignalRequirements
from motley.core.server_signals import UPDATE_SIGNALS
from motley.experiments import config, document, file_tables, registry
from motley.results.disclosed import OCCASIONS, signals_in_words
from motley.results.schema import TABLES
from motley.rounds.diagnostics import Diagnostics
from motley.selectors.catalogue import CATALOGUE as SELECTORS
from motley.testing.selectors import CHECKS
from motley.world.measured import table_path
from motley_flower.strategy.reporting import MEASURED_BEFORE, MEASURED_IN_TRAINING
from motley_privacy.privacy_table import PrivacyFile

__all__ = [
    "ORDER",
    "algorithm_leaves",
    "columns",
    "components",
    "contract",
    "deployed_rules",
    "faults",
    "keys",
    "presets",
    "purposes",
    "selection_rules",
    "selector_leaves",
    "signals",
    "under_masks",
    "world_tables",
]

ORDER = (
    "selector",
    "algorithm",
    "loss",
    "aggregator",
    "server",
    "stage",
    "optimizer",
    "lr_schedule",
    "task",
    "model",
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "drift",
    "device",
    "network",
    "availability",
    "capacity",
    "failures",
    "dishonest",
    "synchrony",
    "compressor",
    "feedback",
    "allocator",
    "budget",
    "engine",
)
"""Kinds of component in the order of the pages."""

# ------------------------------------------------------------------------------ the experiment file


def keys() -> str:
    """List every key of the experiment file: the top level, then each table."""
    parts = [_key_table(config.Experiment, "")]
    for name, inner in tables_of(config.Experiment).items():
        parts.append(
            f"### `{name}`\n\n{prose(inner.__doc__ or '')}\n\n{_key_table(inner, name + '.')}"
        )
    return "\n\n".join(parts)


def tables_of(model: type, prefix: str = "") -> dict[str, type]:
    """Return path -> class of every table below a table: a pydantic model or a dataclass, but no
    component."""
    found: dict[str, type] = {}
    for name, field in fields_of(model).items():
        for inner in _arms(field.annotation):
            if _is_table(inner):
                found[prefix + name] = inner
                found |= tables_of(inner, f"{prefix}{name}.")
    return found


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)
    )


def fields_of(model: type) -> dict[str, FieldInfo]:
    """List the keys of a table, each with its type, its default and the text below it in the
    code."""
    if issubclass(model, BaseModel):
        fields = dict(model.model_fields)
        if model is config.Experiment:  # whose table has an owner
            fields["privacy"] = copy(fields["privacy"])
            fields["privacy"].annotation = PrivacyFile.model_fields["privacy"].annotation
        return fields
    schemas = [file.model_json_schema()["$defs"] for file in (config.Experiment, PrivacyFile)]
    texts = {**schemas[0], **schemas[1]}[model.__name__]["properties"]
    hints = typing.get_type_hints(model, include_extras=True)
    found = {}
    for field in dataclasses.fields(model):
        default = ... if field.default is dataclasses.MISSING else field.default
        found[field.name] = FieldInfo.from_annotated_attribute(hints[field.name], default)
        found[field.name].description = texts[field.name].get("description")
    return found


def _arms(annotation: Any) -> list[Any]:
    """Return the annotation, or the members of its union, without their metadata."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _arms(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [deep for arm in typing.get_args(annotation) for deep in _arms(arm)]
    return [annotation]


def _key_table(model: type, prefix: str) -> str:
    rows = [
        (f"`{prefix}{name}`", _takes(field), _default(field), prose(field.description or ""))
        for name, field in fields_of(model).items()
    ]
    return table(("key", "takes", "default", "what it says"), rows)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Any: "-"}


def _takes(field: FieldInfo) -> str:
    words = list(
        dict.fromkeys(_arm(arm) for arm in _arms(field.annotation) if arm is not type(None))
    )
    words[0] = " and ".join(
        [words[0], *(bound for bound in map(_bound, _metadata(field)) if bound)]
    )
    return " or ".join(words).replace("number and", "number,").replace("numbers and", "numbers,")


def _arm(arm: Any) -> str:
    origin = typing.get_origin(arm)
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{code(value)}`" for value in typing.get_args(arm))
    if origin is tuple:
        return f"a list of {_arm(_arms(typing.get_args(arm)[0])[0]).removeprefix('a ')}s"
    if origin is list:
        each = " or ".join(_arm(kind) for kind in _arms(typing.get_args(arm)[0]))
        return f"{each}, once or several times"
    if origin is dict:
        inner = typing.get_args(arm)[1]
        if float in typing.get_args(inner):
            return "numbers by metric"
        return (
            "a component"
            if inner is Any
            else "lists of values by key"
            if list in map(typing.get_origin, typing.get_args(inner))
            else "seeds by purpose"
        )
    if _is_table(arm):
        return "a table, see below"
    return _WORDS[arm]


def _metadata(field: FieldInfo) -> list[Any]:
    """Return the bounds of a field, wherever pydantic keeps them."""
    found = list(field.metadata)
    for arm in typing.get_args(field.annotation):
        for item in getattr(arm, "__metadata__", ()):
            found += item.metadata if isinstance(item, FieldInfo) else [item]
    return found


def _bound(item: Any) -> str:
    signs = (
        (annotated_types.Gt, "gt", "above"),
        (annotated_types.Ge, "ge", "at least"),
        (annotated_types.Lt, "lt", "below"),
        (annotated_types.Le, "le", "at most"),
    )
    return next(
        (f"{word} {getattr(item, name):g}" for kind, name, word in signs if isinstance(item, kind)),
        "",
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, file_tables.EngineChoice):
        return f"`{code(value.name)}`"
    if _is_table(type(value)) or value in (None, {}):
        return "-"
    return f"`{code(value)}`"


def purposes() -> str:
    """List the purposes of random numbers."""
    return ", ".join(f"`{purpose}`" for purpose in PURPOSES) + "."


def presets() -> str:
    """List the presets that ``method`` names."""
    rows = []
    for row in document.preset_rows():
        bundle = "<br>".join(f"`{key} = {code(value)}`" for key, value in row["keys"].items())
        rows.append((f"`{row['name']}`", row["about"], bundle))
    return table(("`method`", "what it does", "is short for"), rows)


# --------------------------------------------------------------------------------------- components


def components() -> str:
    """List every component with its options."""
    rows = [(f"`{kind}`", *_component(row)) for kind in ORDER for row in registry.listing(kind)]
    return table(("kind", "name", "what it is", "options"), rows)


def _component(row: dict[str, Any]) -> tuple[str, str, str]:
    seen = {"each": " Needs each upload.", "sum": " Needs only the sum of uploads.", None: ""}
    sees = "" if row["leaves"] else seen[row["upload_visibility"]]
    sees += (
        f" **Reveals {row['reveals']}, also under secure aggregation.**" if row["reveals"] else ""
    )
    options = [
        f"`{o['name']}`: {prose(o['accepts']).replace(chr(39), '`')}"
        + (
            ", must be given"
            if o["required"]
            else ""
            if o["default"] is None
            else f" (`{code(o['default'])}`)"
        )
        for o in row["options"]
        if o["accepts"] != "Clip or none"  # an experiment says it with the key local.clip
    ]
    return f"`{row['name']}`", prose(row["about"]) + sees, "<br>".join(options) or "-"


def selection_rules() -> str:
    """List every selection rule with what it needs and costs, when it pays and when it hurts."""
    head, *rows = _lines("selection-rules.csv")
    told = [row[0].strip("`") for row in rows]
    rules = registry.catalogue("selector")
    built = [name for name in rules.names() if rules.is_builtin(rules.get(name))]
    assert told == built, "docs/selection-rules.csv has other rules than the registry"
    return table(head, rows)


def faults() -> str:
    """List the faults of a deployment: what one sees, what is lost, and what to do."""
    head, *rows = _lines("deploy/faults.csv")
    return table(head, rows)


def world_tables() -> str:
    """List the measured tables of worlds, where each is from, and what was chosen."""
    sources = tomllib.loads(table_path("").with_name("sources.toml").read_text(encoding="utf-8"))
    rows = [
        (
            f"`{name}`",
            source["what"],
            f"{source['title']}. {source['publisher']}. {source['where']}",
            source["licence"],
            source["chosen"],
        )
        for name, source in sources.items()
    ]
    return table(("table", "holds", "source", "licence", "chosen here"), rows)


def _lines(file: str) -> list[list[str]]:
    """Return the lines of a CSV file in ``docs``, the head first."""
    with (ROOT / "docs" / file).open(encoding="utf-8", newline="") as opened:
        return list(csv.reader(opened))


def selector_leaves() -> str:
    """List what leaves a client under each selector with its default options."""
    rows = [row for row in registry.listing("selector") if row["leaves"]]
    cells = [
        (
            f"`{row['name']}`",
            *(signals_in_words(row["leaves"][when]) for when in OCCASIONS),
            row["leaves"]["choice"],
            row["leaves"]["visibility"],
            prose(row["leaves"]["private"]),
        )
        for row in rows
    ]
    return table(
        ("selector", *OCCASIONS, "choice depends on data", "needs", "differential privacy"), cells
    )


def algorithm_leaves() -> str:
    """List what leaves a client under each algorithm with its default options, beside what the
    selector needs."""
    rows = [row for row in registry.listing("algorithm") if row["leaves"]]
    cells = [
        (
            f"`{row['name']}`",
            signals_in_words(row["leaves"]["reported"]),
            row["leaves"]["visibility"],
            row["reveals"] or "-",
            prose(row["leaves"]["private"]),
        )
        for row in rows
    ]
    return table(
        ("algorithm", "uploaded", "needs", "reveals beside", "differential privacy"), cells
    )


def deployed_rules() -> str:
    """List what a Flower client app must send for each selector with its default options, those
    that ask least first."""
    rules = {name: SELECTORS.build(name) for name in SELECTORS.names()}
    sent = {name: _sent(rule.needs()) for name, rule in rules.items()}
    rows = []
    for name in sorted(rules, key=lambda name: (_APPS.index(_app(sent[name])), name)):
        star = r"\*" if rules[name].single_signals else ""
        cells = (", ".join(f"`{one}`" for one in cell) or "-" for cell in sent[name])
        rows.append((f"`{name}`{star}", _app(sent[name]), *cells))
    return table(
        ("rule", "client app", "once", "before a choice", "with the update", "the server's own"),
        rows,
    )


_APPS = (
    "as it is",
    "one line",
    "one line, with labels",
    "lines of your own",
    "none: [Motley's loop](loop.md) alone",
)


def _app(sent: tuple[list[str], list[str], list[str], list[str]]) -> str:
    """Return what a client app of PyTorch needs to send these signals."""
    once, before, update, own = sent
    if CONTRIBUTION in own:
        return _APPS[4]
    if set(before) - MEASURED_BEFORE or set(update) - MEASURED_IN_TRAINING:
        return _APPS[3]
    return _APPS[2 if once else 1 if before or set(update) - {"local_steps"} else 0]


def _sent(needs: SignalRequirements) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return what a client app sends at enrolment, at a probe and with an update, and what the
    server measures or computes."""
    kinds = {name: SIGNALS[name].kind for name in (*needs.enrolled, *needs.probed, *needs.reported)}
    timed = (
        any(kind == "system" for kind in kinds.values())
        or {"compute_s", "upload_s", "download_s"} & needs.columns
    )
    probed = {name for name in needs.probed if kinds[name] not in ("system", "channel")}
    # which replies have
    once = {
        name for name in needs.enrolled if kinds[name] == "enrolment" and name != "num_examples"
    }
    own = (
        {name for name in needs.probed if kinds[name] == "channel"}
        | needs.reported & {*UPDATE_SIGNALS, CONTRIBUTION}
        | needs.enrolled & {"last_layer"}
    )
    rates = ["learning_rates"] if needs.reported & {"gradient", "gradient_sketch"} else []
    steps = ["local_steps"] if "local_steps" in needs.columns else []
    return (
        sorted(once),
        sorted(probed),
        [*sorted(needs.reported - own), *rates, *steps],
        [*sorted(own), *(["seconds"] if timed else [])],
    )


# ---------------------------------------------------------------------------------- signals, tables


def signals() -> str:
    """List the signals."""
    rows = [
        (f"`{name}`", s.kind, ", ".join(s.when), s.shape, s.model, s.data, s.mode, s.text)
        for name, s in SIGNALS.items()
    ]
    return table(
        (
            "signal",
            "kind",
            "when",
            "shape",
            "at which model",
            "on which data",
            "mode",
            "what it is",
        ),
        rows,
    )


def under_masks() -> str:
    """List what can be learned of clients, and whether it survives secure aggregation."""
    hidden = [f"`{name}`" for name, signal in SIGNALS.items() if signal.single]
    seen = [f"`{name}`" for name, signal in SIGNALS.items() if not signal.single]
    report = "the client reports it beside its update"
    rows = [
        ("signals " + ", ".join(seen), "stays", "it is made of no single update or gradient"),
        (
            "signals " + ", ".join(hidden),
            "**gone**",
            "it is made of one client's update or gradient",
        ),
        (
            "`evaluate.diagnostics`: B², G², drift, errors of compression",
            "**gone**",
            Diagnostics.single_updates,
        ),
        ("column `clients.update_norm`, the mean of it in `rounds`", "**gone**", "as the signal"),
        ("columns `clients.loss` and `num_examples`", "stays", report),
        (
            "who took part, outcomes, seconds, bits",
            "stays",
            "the server sees messages, if not into them",
        ),
        (
            "accuracy of the shared model, also client by client",
            "stays",
            "clients examine it themselves",
        ),
        (
            "which client sent an update that is infinite, reversed or far from the others'",
            "**gone**",
            "of a sum nobody is told apart; clients check their own",
        ),
        (
            "robust means, FedNova, SCAFFOLD, q-FedAvg",
            "refused",
            "they need single uploads, or more than one",
        ),
    ]
    return table(("diagnostic", "under masks", "since"), rows)


def contract() -> str:
    """List the requirements that the contract suite of selectors checks."""
    return "\n".join(f"- {name}" for name in CHECKS)


def columns() -> str:
    """List the columns of every table of a run."""
    rows = [
        (f"`{name}`", ", ".join(f"`{field.name}`" for field in schema))
        for name, schema in TABLES.items()
    ]
    return table(("table", "columns"), rows)
