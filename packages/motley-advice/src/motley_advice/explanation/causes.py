"""What differs between two experiments as they are executed, grouped into causes that can be
changed one at a time.

Documents of resolved experiments are compared, in which every default is written out. A component
of another name comes with its options; ``local.epochs`` and ``local.steps`` stand for one another;
what a selector has probed goes with the selector. Whatever else can only change together is found
by trying: two causes of which one without the other is no experiment become one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from motley.core.errors import UserError
from motley.experiments import document
from motley.experiments.lineage import result_keys
from motley.results.aspects import ASPECTS, in_list, value_at
from motley_advice.explanation.shapley import Combination, planned_combinations

READING = "reading"
"""The table of a document that says how the figure is read off a run; no key of an experiment."""
_TOGETHER = (
    frozenset({"cohort", "participation"}),
    frozenset({"local.epochs", "local.steps"}),
    frozenset({"selector", "probe.batches"}),
)
"""Keys that are one setting, or of which one follows another."""
_WHOLE = ("stop", "init")
"""Tables whose keys are one setting."""
_LISTED = 5
"""Seeds of which a key's values are listed."""
_MEASURED = ("evaluate", "metrics")
"""Keys that say what is measured, and when: they change no model, but may end a run."""

Document = Mapping[str, Any]
Refusal = Callable[[Sequence["Cause"], Combination], UserError | None]


@dataclass(frozen=True)
class KeyDifference:
    """One row of what differs: a key and its values in A and B, None where a key is left out."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Cause:
    """Keys that change together.

    Parameters
    ----------
    name: in words.
    keys: paths in the document.
    rows: what differs below these keys, key by key.
    reason: why several keys that can be written apart change together; "" where there is none.
    """

    name: str
    keys: tuple[str, ...]
    rows: tuple[KeyDifference, ...]
    reason: str = ""


def leaves(a: Any, b: Any, path: str = "") -> Iterator[KeyDifference]:
    """Yield the differing values of two documents, key by key down to plain values."""
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        tables = [value if isinstance(value, Mapping) else {} for value in (a, b)]
        for key in dict.fromkeys([*tables[0], *tables[1]]):
            below = f"{path}.{key}" if path else str(key)
            yield from leaves(tables[0].get(key), tables[1].get(key), below)
        plain = [None if isinstance(value, Mapping) else value for value in (a, b)]
        if plain != [None, None]:
            yield KeyDifference(path, *plain)
    elif a != b:
        yield KeyDifference(path, a, b)


def _differing(a: Any, b: Any, path: str) -> Iterator[str]:
    """Yield the paths of the smallest tables and values that can be exchanged one by one: of a
    component of another name the whole component."""
    both = isinstance(a, Mapping) and isinstance(b, Mapping)
    alike = both and a.get("name") == b.get("name") != "own"
    if alike and path not in _WHOLE:
        for key in dict.fromkeys([*a, *b]):
            yield from _differing(a.get(key), b.get(key), f"{path}.{key}")
    elif a != b:
        yield path


def causes_of(
    a: Sequence[Document], b: Sequence[Document], cohort_alike: bool = False
) -> list[Cause]:
    """Return the causes for which two experiments can have different results, before any that can
    only change together are joined.

    Parameters
    ----------
    a, b: resolved experiments, with a table ``reading``: that of each seed where more than the key
    ``seed`` goes with it, else one. What differs with any seed is a cause.
    cohort_alike: whether both ask equally many clients a round, however that is written.
    """
    groups: list[list[str]] = []
    for path in _paths(a, b, cohort_alike):
        group = next((held for held in groups if {path, held[0]} in _TOGETHER), None)
        if group is None:
            groups.append([path])
        else:
            group.append(path)
    return [
        Cause(
            _name(group[0]),
            tuple(group),
            tuple(row for path in group for row in _rows(a, b, path)),
        )
        for group in groups
    ]


def _paths(a: Sequence[Document], b: Sequence[Document], cohort_alike: bool) -> list[str]:
    """Return what differs with any seed and can change the figure; of a table that differs as a
    whole with one of them the whole."""
    paths = dict.fromkeys(
        path
        for first, second in zip(a, b, strict=True)
        for path in _counted_paths(first, second)
        if not (cohort_alike and path in ("cohort", "participation"))
    )
    return [path for path in paths if not any(path.startswith(f"{held}.") for held in paths)]


def _counted_paths(a: Document, b: Document) -> Iterator[str]:
    """Yield what differs and can change the figure; of what is measured, and when, what decides on
    the best round or on the end of a run."""
    measured = set(_measured_that_counts(a, b))
    counting = [_counting(side, measured) for side in (a, b)]
    for key in dict.fromkeys([*counting[0], *counting[1]]):
        yield from _differing(counting[0].get(key), counting[1].get(key), key)


def _measured_that_counts(a: Document, b: Document) -> Iterator[str]:
    """Yield the keys of what is measured that can change the figure of A or of B.

    Every figure is of ``evaluate.batch_size`` samples at a time, which only a model or a loss takes
    that looks at its whole batch. ``stop.target`` and ``stop.patience`` end a run at an evaluation;
    the latter waits for the headline, the first of ``metrics``, unless ``stop.metric`` is given."""
    yield "evaluate.batch_size"
    ends = [side["stop"] for side in (a, b)]
    best = "best" in (value_at(a, f"{READING}.round"), value_at(b, f"{READING}.round"))
    if best or any(end.get("target") or end.get("patience") for end in ends):
        yield "evaluate.every"
    waits = any(end.get("patience") and not end.get("metric") for end in ends)
    if waits and _headline(a) != _headline(b):
        yield "metrics"


def _headline(side: Document) -> Any:
    """Return the metric that is asked for first; None where none is."""
    return next(iter(side.get("metrics") or ()), None)


def _rows(a: Sequence[Document], b: Sequence[Document], path: str) -> list[KeyDifference]:
    """Return what differs below a path with any seed, key by key; a value that is another one with
    another seed as the values of all, ``0, 1, 2 by seed``."""
    held = [
        {row.key: row for row in leaves(value_at(first, path), value_at(second, path), path)}
        for first, second in zip(a, b, strict=True)
    ]
    return [
        KeyDifference(key, _by_seed(a, key), _by_seed(b, key))
        for key in dict.fromkeys(key for rows in held for key in rows)
    ]


def _by_seed(documents: Sequence[Document], key: str) -> Any:
    """Return the value of a key, or in words those of all seeds."""
    values = [value_at(document, key) for document in documents]
    plain = [None if isinstance(value, Mapping) else value for value in values]
    if all(value == plain[0] for value in plain):
        return plain[0]
    more = ", ..." if len(plain) > _LISTED else ""
    return f"{', '.join(map(str, plain[:_LISTED]))}{more} by seed"


def harmless_of(a: Document, b: Document, causes: Sequence[Cause]) -> list[KeyDifference]:
    """Return what differs and is in none of the causes: it cannot change the figure."""
    counted = {row.key for cause in causes for row in cause.rows}
    return [row for row in leaves(a, b) if row.key not in counted | {"seed"}]


def _counting(side: Document, measured: Collection[str]) -> dict[str, Any]:
    """Return the keys of a document that can change the figure; ``measured``: those of what is
    measured, and when."""
    keys = {k: v for k, v in result_keys(side).items() if k not in (*_MEASURED, "seed")}
    evaluate = {
        option: value
        for option, value in (side.get("evaluate") or {}).items()
        if f"evaluate.{option}" in measured
    }
    metrics = {"metrics": side.get("metrics")} if "metrics" in measured else {}
    return {**keys, "stop": side["stop"], "evaluate": evaluate, **metrics}


def _name(path: str) -> str:
    """Return a key in words: the name of the aspect whose first key it is, else the key."""
    words = {aspect.keys[0]: aspect.name for aspect in ASPECTS}
    words |= {f"{READING}.round": "which round", f"{READING}.scope": "whose average"}
    return words.get(path, path)


def combined(
    a: Document, b: Document, causes: Sequence[Cause], combination: Combination
) -> dict[str, Any]:
    """Return A's document with B's values of the causes of a combination."""
    out = document.copied(a)
    for number in combination:
        for path in causes[number].keys:
            table, _, last = path.rpartition(".")
            mine: Any = value_at(out, table) if table else out
            theirs: Any = value_at(b, table) if table else b
            if not isinstance(mine, dict):
                continue  # the table differs with another seed, and neither has it with this one
            mine.pop(last, None)
            if last in theirs:
                mine[last] = theirs[last]
    return out


def joined(causes: Sequence[Cause], refusal: Refusal) -> list[Cause]:
    """Return the causes, those joined of which one without the other is no experiment.

    Parameters
    ----------
    refusal: returns why a combination of some causes cannot run; None if it can. Both ends can.
    """
    joined_causes = list(causes)
    while True:
        combinations = planned_combinations(len(joined_causes))
        refused = {
            combination: reason
            for combination in combinations
            if (reason := refusal(joined_causes, combination)) is not None
        }
        if not refused:
            return joined_causes
        joined_causes = _one_joined(joined_causes, refused)


def _one_joined(causes: Sequence[Cause], refused: Mapping[Combination, UserError]) -> list[Cause]:
    """Return the causes with the two joined that most of the refused combinations keep apart; of
    equals those that the refusal names."""
    combination, reason = next(iter(refused.items()))

    def apart(pair: Sequence[int]) -> tuple[int, int]:
        splits = sum((pair[0] in other) != (pair[1] in other) for other in refused)
        words = {key.partition(".")[0] for i in pair for key in causes[i].keys}
        return splits, sum(word in str(reason) for word in words)

    outside = [number for number in range(len(causes)) if number not in combination]
    pairs = [sorted(pair) for pair in product(sorted(combination), outside)]
    kept, taken = max(pairs, key=apart)
    members = (causes[kept], causes[taken])
    names = [cause.name for cause in members]
    tried = in_list([causes[number].name for number in sorted(combination)])
    reasons = [
        *filter(None, (cause.reason for cause in members)),
        f"{names[0]} and {names[1]} change together, for A with {tried} of B is no experiment "
        f"({reason})",
    ]
    pair = Cause(
        name=" with ".join(names),
        keys=(*members[0].keys, *members[1].keys),
        rows=(*members[0].rows, *members[1].rows),
        reason="; ".join(reasons),
    )
    return [
        pair if number == kept else cause for number, cause in enumerate(causes) if number != taken
    ]
