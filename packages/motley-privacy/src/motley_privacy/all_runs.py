"""The ledger of private runs: what all runs so far release of one data set, added up.

A file for each data set in the user's state folder (``MOTLEY_STATE``, else ``XDG_STATE_HOME`` or
``~/.local/state``, ``/motley/privacy``), which only its owner can read and which nothing publishes.
A data set is known by ``privacy.data_set``, else by the path of its source, so that a changed row
opens no new one. A run enters when it begins, at its caps, under the commitment to its secret, once
however often it is resumed; one that is extended enters with its new caps. Runs on public or
synthetic data, and those with a ``noise_seed``, which are not private, do not enter. One that was
interrupted and goes on to an earlier end keeps its caps, for its rounds so far may have been seen.

Composition. The releases of all runs are those of one client at its caps, chosen by what was
released before, and compose adaptively in one accountant, at the delta and adjacency of the run
that is shown. A cohort that was hidden under another adjacency counts without amplification. Where
no accountant takes all of them, epsilons are summed, each at its share of delta.
"""

from __future__ import annotations

import dataclasses
import fcntl
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, DataError, StoreError
from motley.core.files import changed, disk_error, private_folder, replacing, user_path, with_digest
from motley.core.strict_json import to_json
from motley.experiments.config import Experiment
from motley.experiments.lineage import digest_of
from motley.results.record import read_json
from motley_privacy.accounting import Bound, Release, bound
from motley_privacy.options import Adjacency
from motley_privacy.privacy_plan import PrivacyPlan

_AMPLIFIED = ("poisson", "without_replacement")
_SHOWN: tuple[Adjacency, ...] = ("zero_out", "replace_one")
_NO_NAME = (
    "These data have no name, so other runs on them are not added; give one, e.g. "
    'privacy.data_set = "hospitals".'
)
_PUBLIC = "The data are public or synthetic, and no other run on them is added."
_SEEDED = "A run with a noise_seed is not private, and enters no ledger of private runs."


def _folder() -> Path:
    folder = os.environ.get("MOTLEY_STATE")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return (user_path(folder) if folder else user_path(state) / "motley") / "privacy"


def data_set_of(experiment: Experiment) -> str | None:
    """Return the name of a private experiment's data set: as it is given, else the path of its
    source; None where there is neither."""
    name = None if experiment.privacy is None else experiment.privacy.data_set
    source = experiment.task.get("data")
    if name is not None or not isinstance(source, str):
        return name
    return str(user_path(source).resolve())


def _file(name: str) -> Path:
    """Return the path of the ledger of a data set."""
    return _folder() / f"{digest_of(name)}.json"


def _name(data: str) -> str:
    """Return the name of a data set that is given by its name, if it has a ledger, or by a
    path."""
    path = user_path(data)
    return data if _file(data).exists() or not path.exists() else str(path.resolve())


def _is_public(experiment: Experiment) -> bool:
    """Return whether the data are known by name alone, or made."""
    return not any(key.startswith("task") for key in experiment.data_digests())


def enter_run(experiment: Experiment, plan: PrivacyPlan, committed: str) -> dict[str, Any]:
    """Enter a private run that begins, or goes on, into the ledger of its data set, and return what
    its record says of all runs so far.

    Parameters
    ----------
    plan: of the run.
    committed: the commitment to its secret, by which it is known.

    Raises
    ------
    ConfigError: it would go beyond the budget of the data set. StoreError: the ledger is damaged,
    or the disk refuses.
    """
    options = plan.options
    name = data_set_of(experiment)
    if options.noise_seed is not None:
        return {"sentence": _SEEDED}
    if options.data_set is None and _is_public(experiment):
        return {"sentence": _PUBLIC}
    if name is None:
        return {"sentence": _NO_NAME}
    entry = {
        "name": experiment.name,
        "adjacency": options.adjacency,
        "releases": [dataclasses.asdict(release) for release in plan.releases],
    }
    with _opened(name) as ledger:
        runs = {**ledger["runs"], committed: _most(entry, ledger["runs"].get(committed))}
        _check_budget(name, ledger.get("budget"), runs, options.adjacency)
        ledger["runs"] = runs
    total = all_epsilon(runs, options.delta, options.adjacency)
    which = (
        f"All {len(runs)} private runs so far on these data, this one among them, are together"
        if len(runs) > 1
        else "This run, the only private one so far on these data, is"
    )
    sentence = (
        f"{which} ({total.epsilon:.4g}, {options.delta:g})-differentially private; added up by "
        f"{total.accountant!r}."
    )
    return {
        "runs": len(runs),
        "epsilon": total.epsilon,
        "delta": options.delta,
        "sentence": sentence,
    }


def _most(entry: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a run that goes on, each release as often as it may be now or might have been
    before; one that it had entered otherwise, under an earlier Motley, stays beside those of
    now."""
    left = [] if before is None else list(before["releases"])
    releases = []
    for now in entry["releases"]:
        then = next((old for old in left if {**old, "count": now["count"]} == now), now)
        if then is not now:
            left.remove(then)
        releases.append({**now, "count": max(now["count"], then["count"])})
    return {**entry, "releases": [*releases, *left]}


def in_ledger(
    experiment: Experiment, plan: PrivacyPlan, record: Mapping[str, Any]
) -> dict[str, Any]:
    """Enter a private run as :func:`enter_run` does, and return the ``privacy`` of its record with
    ``all_runs``, whose sentence ends the claim."""
    entered = enter_run(experiment, plan, record["commitment"])
    claim = [*record["claim"], entered.pop("sentence")]
    return {**record, "claim": claim, "all_runs": entered}


def all_epsilon(runs: Mapping[str, Any], delta: float, adjacency: Adjacency) -> Bound:
    """Return epsilon of all runs of a ledger together."""
    each = [_releases(run, adjacency) for run in runs.values()]
    try:
        return bound(_joined(each), delta, adjacency)
    except ConfigError:  # no accountant takes all of them
        return Bound(
            sum(_alone(releases, delta / len(each), adjacency) for releases in each),
            "the sum of epsilons",
        )


def _joined(each: Iterable[tuple[Release, ...]]) -> tuple[Release, ...]:
    """Return the releases of several runs, of like ones a single one with their counts together:
    accountants take as long as there are different releases."""
    counts: Counter[Release] = Counter()
    for release in (release for releases in each for release in releases):
        counts[dataclasses.replace(release, count=1)] += release.count
    return tuple(dataclasses.replace(release, count=count) for release, count in counts.items())


def _alone(releases: tuple[Release, ...], delta: float, adjacency: Adjacency) -> float:
    """Return epsilon of one run; a seen sum moves as far under add-remove as under zero-out."""
    coins = any(release.kind == "poisson" for release in releases)
    here: Adjacency = "zero_out" if adjacency == "add_remove" and not coins else adjacency
    return bound(releases, delta, here).epsilon


def _releases(run: Mapping[str, Any], adjacency: Adjacency) -> tuple[Release, ...]:
    """Return the releases of a run, amplified where it was under the same adjacency alone."""
    releases = [Release(**fields) for fields in run["releases"]]
    if run["adjacency"] == adjacency:
        return tuple(releases)
    return tuple(
        Release("gaussian", release.multiplier, release.count)
        if release.kind in _AMPLIFIED
        else release
        for release in releases
    )


def _check_budget(
    name: str, budget: Mapping[str, float] | None, runs: Mapping[str, Any], adjacency: Adjacency
) -> None:
    if budget is None:
        return
    total = all_epsilon(runs, budget["delta"], adjacency).epsilon
    if total > budget["epsilon"]:
        which = (
            f"with this run all {len(runs)} on {name}"
            if len(runs) > 1
            else f"this run, the first on {name},"
        )
        raise ConfigError(
            f"{which} would have epsilon {total:.4g} at delta "
            f"{budget['delta']:g}, beyond the budget of {budget['epsilon']:g}; use more noise or "
            "fewer rounds, or, if the data may tell more, motley privacy-ledger DATA --budget",
            "privacy",
        )


def set_budget(name: str, epsilon: float, delta: float) -> None:
    """Set the budget of a data set, beyond which no private run begins.

    Raises
    ------
    ConfigError: epsilon or delta of no bound. StoreError: the ledger is damaged, or the disk
    refuses.
    """
    _check_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise ConfigError(f"got {epsilon:g}; expected a number of at least 0", "--budget")
    with _opened(_name(name)) as ledger:
        ledger["budget"] = {"epsilon": epsilon, "delta": delta}


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"got {delta:g}; expected a number between 0 and 1, e.g. 1e-5", "--delta")


def ledgers() -> list[dict[str, Any]]:
    """Return all ledgers: ``data``, ``runs``, and ``budget`` where there is one."""
    return [_read(path) for path in sorted(_folder().glob("*.json"))]


def ledger_lines(data: str | None, delta: float) -> list[str]:
    """Return a line for each data set, or for one: its runs, their epsilon together, its budget.

    Raises
    ------
    ConfigError: there is no such data set, or a delta of no bound.
    """
    _check_delta(delta)
    wanted = [ledger for ledger in ledgers() if data is None or ledger["data"] == _name(data)]
    if data is not None and not wanted:
        names = ", ".join(ledger["data"] for ledger in ledgers()) or "none yet"
        raise ConfigError(f"got {data}; there are: {names}", "DATA")
    lines = [_line(ledger, delta) for ledger in wanted]
    return lines or ["no private run on data that are not public has entered a ledger yet"]


def lines_of(experiments: Iterable[Experiment]) -> list[str]:
    """Return a line for each data set of private experiments that has a ledger, at their delta."""
    deltas = {
        name: experiment.privacy.delta
        for experiment in experiments
        if experiment.privacy is not None and (name := data_set_of(experiment)) is not None
    }
    held = ledgers() if deltas else []
    return [_line(ledger, deltas[ledger["data"]]) for ledger in held if ledger["data"] in deltas]


def _line(ledger: Mapping[str, Any], delta: float) -> str:
    """Return the runs of a ledger, their epsilon together and its budget in words."""
    budget = ledger.get("budget")
    limit = f", budget {budget['epsilon']:g} at {budget['delta']:g}" if budget else ""
    runs = ledger["runs"]
    total = {
        adjacency: all_epsilon(runs, delta, adjacency).epsilon if runs else 0.0
        for adjacency in _SHOWN
    }
    each = ", ".join(f"{value:.4g} ({adjacency})" for adjacency, value in total.items())
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{ledger['data']}: {count}, epsilon {each} at {delta:g}{limit}"


def _read(path: Path) -> dict[str, Any]:
    try:
        held = read_json(path)
        if not isinstance(held, dict) or "runs" not in held or changed(held):
            raise DataError("it was changed after it was written")
    except DataError as error:
        raise StoreError(
            f"{path}, the ledger of the private runs on a data set, cannot be read ({error}); "
            "restore it: without it nobody knows what those runs cost together"
        ) from None
    return {key: value for key, value in held.items() if key != "digest"}


@contextmanager
def _opened(name: str) -> Iterator[dict[str, Any]]:
    """Yield the ledger of a data set while no other process has it, and write what was made of
    it."""
    folder = _folder()
    path = _file(name)
    try:
        private_folder(folder)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise disk_error(error, folder) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        ledger = _read(path) if path.exists() else {"data": name, "runs": {}}
        yield ledger
        with replacing(path, private=True) as file:
            file.write(to_json(with_digest(ledger), indent=1).encode())
    except OSError as error:
        raise disk_error(error, path) from None
    finally:
        os.close(handle)
