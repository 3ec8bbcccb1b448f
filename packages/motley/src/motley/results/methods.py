"""What was run, as a paragraph of LaTeX with citations, and the bibliography that it cites."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from motley.core.paper import Paper
from motley.results import measures
from motley.results.latex import escaped
from motley.results.load import Run, citations
from motley.results.method_groups import plain_intervals
from motley.results.method_rows import differences, intervals_in_words

__all__ = ["bibliography", "methods_text"]

Groups = Mapping[str, Sequence[Run]]
PYTORCH = Paper(
    key="paszke2019pytorch",
    title="PyTorch: An Imperative Style, High-Performance Deep Learning Library",
    authors=(
        "Adam Paszke",
        "Sam Gross",
        "Francisco Massa",
        "Adam Lerer",
        "James Bradbury",
        "Gregory Chanan",
        "Trevor Killeen",
        "Zeming Lin",
        "Natalia Gimelshein",
        "Luca Antiga",
        "Alban Desmaison",
        r"Andreas K{\"o}pf",
        "Edward Yang",
        "Zachary DeVito",
        "Martin Raison",
        "Alykhan Tejani",
        "Sasank Chilamkurthy",
        "Benoit Steiner",
        "Lu Fang",
        "Junjie Bai",
        "Soumith Chintala",
    ),
    venue="Advances in Neural Information Processing Systems (NeurIPS)",
    year=2019,
    url="https://arxiv.org/abs/1912.01703",
)
WORLD = {
    "label_noise": "wrong labels",
    "feature_shift": "feature shift",
    "concept_shift": "concept shift",
    "drift": "drift",
    "device": "computing speed",
    "network": "links",
    "availability": "availability",
    "capacity": "capacity",
    "failures": "failures",
    "dishonest": "lies",
    "synchrony": "synchrony",
    "compressor": "compression of uploads",
    "quantizer": "quantization of uploads",
    "feedback": "error feedback",
    "allocator": "allocation of uploads",
}
"""Keys whose components the paragraph names after the algorithm, where they are not idle."""
IDLE = ("none", "always", "identity", "uncompressed")


def methods_text(groups: Groups) -> str:
    """Return the paragraph: data, partition, clients, work, algorithm, selection, seeds, intervals,
    versions. What the runs did not record is not said."""
    told = _Told(groups)
    sentences = (
        told.data(),
        told.work(),
        told.algorithm(),
        told.selection(),
        told.world(),
        told.evaluation(),
        told.software(),
    )
    return "\n".join(sentence for sentence in sentences if sentence) + "\n"


def bibliography(groups: Groups) -> str:
    """Return the BibTeX of what the runs used, of Motley and of PyTorch; titles keep their
    capitals."""
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
    return (
        "\n\n".join(
            re.sub(r"^  (\w+)( *)= \{(.*)\},?$", _field, entry, flags=re.MULTILINE)
            for entry in entries
        )
        + "\n"
    )


def _field(line: re.Match[str]) -> str:
    """Return a field of an entry with LaTeX's special letters escaped; a title in two braces, so
    that no style changes its case."""
    name, space, text = line.groups()
    if name != "url":
        text = re.sub(r"(?<!\\)([&%#_])", r"\\\1", text)
    return (
        f"  {name}{space}= {{{{{text}}}}},"
        if name == "title" and not text.startswith("{")
        else f"  {name}{space}= {{{text}}},"
    )


class _Told:
    """The sentences of the paragraph, from the records of the runs; a sentence for which the
    records hold nothing is empty."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.runs = [run for members in groups.values() for run in members]
        self.cited: dict[tuple[str, str], str] = {}  # (key, name) -> key of a paper
        self.keys = list(
            dict.fromkeys(
                str(paper["key"]) for run in self.runs for paper in run.meta.get("citations", [])
            )
        )
        for run in self.runs:
            for paper in run.meta.get("citations", []):
                for key in paper.get("of", []):
                    self.cited[key, str(_name(_at(run.config, key)))] = paper["key"]

    def data(self) -> str:
        """Data, clients and partition."""
        own = any(_at(run.config, "task.name") == "own" for run in self.runs)
        notes = _joined(
            dict(run.meta.get("task") or {}).get("notes", {}).get("data") for run in self.runs
        )
        data = (
            "data of our own"
            if own
            else escaped(notes) or self._named("task.data") or self._named("task")
        )
        if not data:
            return ""
        sizes = _joined(_clients(run) for run in self.runs)
        partition = self._named("partition")
        clients = f"The data of {sizes} clients" if sizes else "The clients' data"
        divided = f"{clients} follow the partition {partition}." if partition and not own else ""
        divided = f"They are those of {sizes} clients." if own and sizes else divided
        return " ".join(filter(None, (f"We use {data}.", divided, self._shares())))

    def _shares(self) -> str:
        """The samples of all clients and of a common test set, and the shares that train nobody;
        empty where they are not recorded."""
        counted = [found for run in self.runs if (found := _samples(run))]
        if len(counted) < len(self.runs):
            return ""
        held = []
        for part, words in (("test", "are for the test"), ("validation", "for validation")):
            shares = [100 * found[part] / sum(found.values()) for found in counted]
            if max(shares) > 0:
                held.append(f"{_range(shares, '.1f')}\\,\\% {words}")
        return (
            f"Of the {_range([sum(found.values()) for found in counted], '.0f')} samples, "
            f"{' and '.join(held)}."
            if held
            else ""
        )

    def work(self) -> str:
        """Model, rounds, cohort and local work."""
        model = self._named("task.model")
        size = _joined(run.meta.get("parameters") for run in self.runs)
        about = (
            f"The model is {model}" + (f" with {size} parameters" if size else "") + "."
            if model
            else ""
        )
        return " ".join(filter(None, (about, self._rounds(), self._local())))

    def _rounds(self) -> str:
        """How many rounds there were, and when the server steps."""
        done = [rounds for run in self.runs if (rounds := run.tables["rounds"].num_rows)]
        length = f"The runs have {_counted(done, 'round')}" if done else ""
        kinds = {str(_name(_at(run.config, "synchrony"))) for run in self.runs}
        flying = _values(self.runs, "cohort")
        buffers = _values(self.runs, "synchrony.buffer")
        if kinds == {"buffered"}:
            step = (
                f"up to {flying} clients train at a time, and the server steps on a buffer of "
                f"{buffers} updates"
            )
        elif kinds == {"asynchronous"}:
            step = f"up to {flying} clients train at a time, and the server steps on every update"
        else:
            sent = (
                [asked for run in self.runs for asked in _asked(run)]
                if not kinds & {"buffered", "asynchronous"}
                else []
            )
            step = (
                f"{_counted(sent, 'client')} a round {'is' if max(sent) == 1 else 'are'} sent the "
                "model"
                if sent
                else ""
            )
        said = "; ".join(filter(None, (length, step)))
        return f"{said[0].upper()}{said[1:]}." if said else ""

    def _local(self) -> str:
        """The clients' local work; empty where it is not recorded."""
        steps = _values(self.runs, "local.steps")
        epochs = _values(self.runs, "local.epochs")
        batch = _values(self.runs, "local.batch_size")
        optimizer = self._named("local.optimizer")
        much = [
            _plural(number, unit) for number, unit in ((steps, "step"), (epochs, "epoch")) if number
        ]
        if not much:
            return ""
        of = f" in batches of {_plural(batch, 'sample')}" if batch else ""
        return (
            f"A client trains for {' / '.join(much)}{of}{f' by {optimizer}' if optimizer else ''}."
        )

    def algorithm(self) -> str:
        """Algorithm, with an aggregator, server and loss of its own."""
        name = self._named("algorithm")
        parts = [
            f"{key} {named}"
            for key in ("loss", "aggregator", "server")
            if (named := self._named(key))
        ]
        return (
            f"The algorithm is {name}{', with ' + ', '.join(parts) if parts else ''}."
            if name
            else ""
        )

    def selection(self) -> str:
        """Selectors."""
        name = self._named("selector")
        return f"Clients are selected by {name}." if name else ""

    def world(self) -> str:
        """What of the clients' world is not idle."""
        parts = [
            f"{words}: {named}" for key, words in WORLD.items() if (named := self._named(key, IDLE))
        ]
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
            f"The {escaped(metric)} {where} {verb} evaluated "
            f"{'after every round' if every == '1' else f'every {every} rounds'}"
            if every
            else f"The {escaped(metric)} {where} {verb} reported"
        )
        if len(seeds) < 2:
            return f"{often}, with seed {seeds[0]}."
        listed = ", ".join(map(str, seeds[:-1])) + f" and {seeds[-1]}"
        return (
            f"{often}, with seeds {listed}. Numbers are means over seeds with the two-sided "
            "95\\,\\% interval of Student's $t$ of the mean; differences are paired by seed. "
            f"{self._compared()}The untrained model (round 0) counts in no final, peak or stable "
            "value."
        )

    def _compared(self) -> str:
        """The reference, and of how many comparisons the intervals hold together; empty where
        nothing is compared."""
        found = differences(self.groups)
        if not found:
            return ""
        together = escaped(intervals_in_words(len(found), plain_intervals(self.groups))).replace(
            " \\%", "\\,\\%"
        )
        bases = [escaped(one) for one in dict.fromkeys(one.base for one in found)]
        within = " of the same data, clients and devices" if len(bases) > 1 else ""
        return f"Differences are to {'; '.join(bases)}{within}. {together} ".replace("  ", " ")

    def software(self) -> str:
        """Versions."""
        motley = _versions(self.runs, "motley")
        torch = _versions(self.runs, "torch")
        # of runs that do not say what a paper is of
        others = [key for key in self.keys if key not in self.cited.values()]
        also = rf" The methods are those of~\cite{{{','.join(others)}}}." if others else ""
        made = (
            rf"Motley~{escaped(motley)}~\cite{{motley}} on "
            rf"PyTorch~{escaped(torch)}~\cite{{{PYTORCH.key}}}"
        )
        return f"All runs were made with {made}.{also}"

    def _named(self, key: str, idle: Sequence[str] = ()) -> str:
        """Return the components of a key in all runs: name, citation, options."""
        found: dict[str, Any] = {
            repr(value): value for run in self.runs if (value := _at(run.config, key)) is not None
        }
        texts = [
            self._component(key, value) for value in found.values() if _name(value) not in idle
        ]
        return " / ".join(dict.fromkeys(texts))

    def _component(self, key: str, value: Any) -> str:
        name = str(_name(value))
        paper = self.cited.get((key, name))
        options = value if isinstance(value, Mapping) and key != "task" else {}
        told = [
            f"{option} {_shown(one)}"
            for option, one in options.items()
            if option != "name" and _told(one)
        ]
        cite = rf"~\cite{{{paper}}}" if paper else ""
        return rf"\texttt{{{escaped(name)}}}{cite}" + (
            f" ({escaped(', '.join(told))})" if told else ""
        )


def _clients(run: Run) -> int | None:
    """Return the number of clients: those of the table ``federation``, else as the experiment
    says."""
    return run.tables["federation"].num_rows or run.config.get("population") or None


def _samples(run: Run) -> dict[str, float]:
    """Return the number of samples by what they are for, those of a common test set among them;
    empty where it is not recorded."""
    parts = {
        part: np.asarray(run.column("federation", f"num_{part}"), float)
        for part in ("train", "validation", "test")
    }
    if not len(parts["train"]) or np.isnan(parts["train"]).any() or np.isnan(parts["test"]).any():
        return {}
    found = {part: float(np.nansum(numbers)) for part, numbers in parts.items()}
    common = (
        run.newest("evaluations")
        .filter(pc.equal(run.newest("evaluations")["scope"], "global"))["examples"]
        .drop_null()
    )
    if len(common):
        found["test"] += common[0].as_py()
    return found if sum(found.values()) and found["test"] else {}


def _asked(run: Run) -> list[float]:
    """Return the number of clients sent out in each round; of a run that does not record it what
    the experiment says."""
    sent = np.asarray(run.column("rounds", "selected"), float)
    sent = sent[np.isfinite(sent)]
    return (
        sent.tolist()
        if len(sent)
        else [float(cohort)]
        if (cohort := run.config.get("cohort"))
        else []
    )


def _range(values: Sequence[float], form: str) -> str:
    """Return one number, or the least and the greatest of several, without idle decimals."""
    texts = [format(value, form) for value in (min(values), max(values))]
    texts = [text.rstrip("0").rstrip(".") if "." in text else text for text in texts]
    return " to ".join(dict.fromkeys(texts))


def _counted(numbers: Sequence[float], unit: str) -> str:
    """Return ``60 rounds`` or ``40 to 60 rounds``."""
    return _plural(_range(numbers, ".0f"), unit)


def _plural(number: str, unit: str) -> str:
    return f"{number} {unit}" + ("" if number == "1" else "s")


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
    return escaped(
        _joined(_shown(value) for run in runs if (value := _at(run.config, key)) is not None)
    )


def _versions(runs: Sequence[Run], name: str) -> str:
    return (
        _joined((run.meta.get("versions") or {}).get(name) for run in runs)
        or "(version not recorded)"
    )
