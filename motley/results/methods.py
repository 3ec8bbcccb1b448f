"""What was run, as a paragraph of LaTeX with citations, and the bibliography that it cites."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from motley.core.paper import Paper
from motley.results import measures
from motley.results.latex import escaped
from motley.results.load import Run, citations

__all__ = ["bibliography", "methods_text"]

Groups = Mapping[str, Sequence[Run]]
PYTORCH = Paper(
    key="paszke2019pytorch",
    title="PyTorch: An Imperative Style, High-Performance Deep Learning Library",
    authors=(
        "Adam Paszke", "Sam Gross", "Francisco Massa", "Adam Lerer", "James Bradbury", "Gregory Chanan", "Trevor Killeen",
        "Zeming Lin", "Natalia Gimelshein", "Luca Antiga", "Alban Desmaison", r"Andreas K{\"o}pf", "Edward Yang",
        "Zachary DeVito", "Martin Raison", "Alykhan Tejani", "Sasank Chilamkurthy", "Benoit Steiner", "Lu Fang", "Junjie Bai",
        "Soumith Chintala",
    ),
    venue="Advances in Neural Information Processing Systems (NeurIPS)",
    year=2019,
    url="https://arxiv.org/abs/1912.01703",
)  # fmt: skip
WORLD = {
    "label_noise": "wrong labels", "feature_shift": "feature shift", "concept_shift": "concept shift", "drift": "drift",
    "device": "computing speed", "network": "links", "availability": "availability", "capacity": "capacity", "failures": "failures",
    "dishonest": "lies",
    "synchrony": "synchrony", "compressor": "compression of uploads", "quantizer": "quantization of uploads",
    "feedback": "error feedback", "allocator": "allocation of uploads",
}  # fmt: skip
"""Keys whose components the paragraph names after the algorithm, where they are not idle."""
IDLE = ("none", "always", "identity", "uncompressed")


def methods_text(groups: Groups) -> str:
    """Return the paragraph: data, partition, clients, work, algorithm, selection, seeds, intervals, versions."""
    told = _Told(groups)
    sentences = (told.data(), told.work(), told.algorithm(), told.selection(), told.world(), told.evaluation(), told.software())
    return "\n".join(sentence for sentence in sentences if sentence) + "\n"


def bibliography(groups: Groups) -> str:
    """Return the BibTeX of what the runs used, of Motley and of PyTorch; titles keep their capitals."""
    runs = [run for members in groups.values() for run in members]
    motley = "\n".join(
        [
            "@misc{motley,",
            "  title        = {Motley: federated learning where clients differ},",
            "  author       = {{The Motley contributors}},",
            f"  note         = {{Version {_versions(runs, 'motley')}}},",
            "}",
        ]
    )
    entries = [*citations(runs), motley, PYTORCH.bibtex()]
    return "\n\n".join(re.sub(r"^  (\w+)( *)= \{(.*)\},?$", _field, entry, flags=re.MULTILINE) for entry in entries) + "\n"


def _field(line: re.Match[str]) -> str:
    """Return a field of an entry with LaTeX's special letters escaped; a title in two braces, so that no style changes its case."""
    name, space, text = line.groups()
    if name != "url":
        text = re.sub(r"(?<!\\)([&%#_])", r"\\\1", text)
    return (
        f"  {name}{space}= {{{{{text}}}}}," if name == "title" and not text.startswith("{") else f"  {name}{space}= {{{text}}},"
    )


class _Told:
    """The sentences of the paragraph, from the records of the runs; a sentence for which the records hold nothing is empty."""

    def __init__(self, groups: Groups) -> None:
        self.runs = [run for members in groups.values() for run in members]
        self.cited: dict[tuple[str, str], str] = {}  # (key, name) -> key of a paper
        self.keys = list(dict.fromkeys(str(paper["key"]) for run in self.runs for paper in run.meta.get("citations", [])))
        for run in self.runs:
            for paper in run.meta.get("citations", []):
                for key in paper.get("of", []):
                    self.cited[key, str(_name(_at(run.config, key)))] = paper["key"]

    def data(self) -> str:
        """Data, clients and partition."""
        notes = _joined(dict(run.meta.get("task") or {}).get("notes", {}).get("data") for run in self.runs)
        data = escaped(notes) or self._named("task.data") or self._named("task")
        sizes = _joined(run.config.get("population") for run in self.runs)
        partition = self._named("partition")
        if not data:
            return ""
        clients = f" The data of {sizes} clients" if sizes else " The clients' data"
        divided = f"{clients} follow the partition {partition}." if partition else ""
        held = [(f"{100 * float(share):g}", what) for key, what in _SPLIT.items() if (share := _same(self.runs, key))]
        kept = " Of the samples, " + " and ".join(f"{share}\\,\\% {what}" for share, what in held) + "." if held else ""
        return f"We use {data}.{divided}{kept}"

    def work(self) -> str:
        """Model, rounds, cohort and local work."""
        model, size = self._named("task.model"), _joined(run.meta.get("parameters") for run in self.runs)
        rounds, cohort = _values(self.runs, "stop.rounds"), _values(self.runs, "cohort")
        share = _values(self.runs, "participation")
        asked = f"{cohort} clients" if cohort else f"a share of {share} of the clients" if share else "the clients"
        about = f"The model is {model}" + (f" with {size} parameters" if size else "") + ". " if model else ""
        sooner = any(_at(run.config, f"stop.{end}") for run in self.runs for end in ("target", "virtual_hours", "uplink_gb"))
        limit = f"In each of {'at most ' if sooner else ''}{rounds} rounds" if rounds else "In each round"
        epochs, steps = _values(self.runs, "local.epochs"), _values(self.runs, "local.steps")
        much = f"{steps} steps" if steps else f"{epochs or 1} epochs"
        batch, optimizer = _values(self.runs, "local.batch_size"), self._named("local.optimizer")
        by = f" by {optimizer}" if optimizer else ""
        return f"{about}{limit}, {asked} train for {much} in batches of {batch or 32} samples{by}."

    def algorithm(self) -> str:
        """Algorithm, with an aggregator, server and loss of its own."""
        name = self._named("algorithm")
        parts = [f"{key} {named}" for key in ("loss", "aggregator", "server") if (named := self._named(key))]
        return f"The algorithm is {name}{', with ' + ', '.join(parts) if parts else ''}." if name else ""

    def selection(self) -> str:
        """Selectors."""
        name = self._named("selector")
        return f"Clients are selected by {name}." if name else ""

    def world(self) -> str:
        """What of the clients' world is not idle."""
        parts = [f"{words}: {named}" for key, words in WORLD.items() if (named := self._named(key, IDLE))]
        return f"Simulated conditions: {'; '.join(parts)}." if parts else ""

    def evaluation(self) -> str:
        """Evaluations, seeds, and how intervals are made."""
        seeds = sorted({run.seed for run in self.runs})
        names = measures.metrics_of(self.runs[0])
        metric = names[0] if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"
        verb = "is" if len(names) < 2 else "are"
        where = (
            "averaged over the clients' own test sets"
            if measures.written_scope(self.runs[0]) == "mean"
            else "on the global test set"
        )
        every = _values(self.runs, "evaluate.every")
        often = (
            f"The {escaped(metric)} {where} {verb} evaluated every {every} rounds"
            if every
            else f"The {escaped(metric)} {where} {verb} reported"
        )
        if len(seeds) < 2:
            return f"{often}, with seed {seeds[0]}."
        listed = ", ".join(map(str, seeds[:-1])) + f" and {seeds[-1]}"
        return (
            f"{often}, with seeds {listed}. Numbers are means over seeds with the two-sided 95\\,\\% interval of Student's $t$ of the "
            "mean; differences are paired by seed. The untrained model (round 0) counts in none."
        )

    def software(self) -> str:
        """Versions."""
        motley, torch = _versions(self.runs, "motley"), _versions(self.runs, "torch")
        others = [key for key in self.keys if key not in self.cited.values()]  # of runs that do not say what a paper is of
        also = rf" The methods are those of~\cite{{{','.join(others)}}}." if others else ""
        made = rf"Motley~{escaped(motley)}~\cite{{motley}} on PyTorch~{escaped(torch)}~\cite{{{PYTORCH.key}}}"
        return f"All runs were made with {made}.{also}"

    def _named(self, key: str, idle: Sequence[str] = ()) -> str:
        """Return the components of a key in all runs: name, citation, options."""
        found: dict[str, Any] = {repr(value): value for run in self.runs if (value := _at(run.config, key)) is not None}
        texts = [self._component(key, value) for value in found.values() if _name(value) not in idle]
        return " / ".join(dict.fromkeys(texts))

    def _component(self, key: str, value: Any) -> str:
        name = str(_name(value))
        paper = self.cited.get((key, name))
        options = value if isinstance(value, Mapping) and key != "task" else {}
        told = [f"{option} {_shown(one)}" for option, one in options.items() if option != "name" and _told(one)]
        cite = rf"~\cite{{{paper}}}" if paper else ""
        return rf"\texttt{{{escaped(name)}}}{cite}" + (f" ({escaped(', '.join(told))})" if told else "")


_SPLIT = {"split.test_fraction": "are for the test", "split.validation": "of a client's own for validation"}


def _at(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _name(value: Any) -> Any:
    return value.get("name", "") if isinstance(value, Mapping) else value


def _told(value: Any) -> bool:
    return value is not None and value is not False and not isinstance(value, Mapping)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(map(_shown, value)) if len(value) == 2 else ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _joined(values: Any) -> str:
    """Return distinct values, joined where runs differ; nothing where none has any."""
    return " / ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _values(runs: Sequence[Run], key: str) -> str:
    return escaped(_joined(_shown(value) for run in runs if (value := _at(run.config, key)) is not None))


def _same(runs: Sequence[Run], key: str) -> Any:
    """Return the value that all runs share; None where they differ."""
    found = {repr(value): value for value in (_at(run.config, key) for run in runs)}
    return next(iter(found.values())) if len(found) == 1 else None


def _versions(runs: Sequence[Run], name: str) -> str:
    return _joined((run.meta.get("versions") or {}).get(name) for run in runs) or "(version not recorded)"
