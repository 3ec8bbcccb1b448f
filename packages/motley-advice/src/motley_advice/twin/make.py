"""Make the twin of a recorded federation: an experiment file, and beside it the tables that its
components read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.csv_text import csv_text
from motley.core.errors import ConfigError, UserError
from motley.core.files import disk_error, replacing, user_path
from motley.core.records import Cohort
from motley.core.strict_json import to_json
from motley.core.untrusted import printable
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.document import to_toml
from motley.results.measures import costs
from motley.rounds.planning import LinkLoads
from motley.timing import SYNCHRONY
from motley_advice.twin.fit import LEVEL, Law, beta_counts, fitted, held_out, presence
from motley_advice.twin.predictions import elapsed_s
from motley_advice.twin.recorded_clients import Records, read

NO_TASK = ("Flower app", "own")
"""Recorded tasks that only their own program can build."""
BATCH = 32
"""Samples of a local step where the records do not say what a step is."""
PINNED = ("data", "partition", "split", "shift")
"""Purposes whose seed stays that of the recording: its clients keep their samples."""
BY_TWIN = ("device", "network", "availability", "failures")
"""Keys of the experiment that the twin sets."""
LEFT = ("grid", "log", "checkpoint", "engine", "client_state", "name")
"""Keys that say nothing about the federation."""


@dataclass(frozen=True)
class Twin:
    """A twin as it was written.

    Parameters
    ----------
    path: of the experiment file.
    fits: a sentence on each law and how many later answers it held.
    unknown: sentences on what the records cannot tell.
    stand_in: the recorded data is not there.
    """

    path: Path
    fits: tuple[str, ...]
    unknown: tuple[str, ...]
    stand_in: bool


def twin(directory: str | Path, out: str | Path, data: Path | None = None) -> Twin:
    """Fit the clients that a run recorded and write their twin.

    Beside ``out``, say ``twin.toml``, come the tables ``twin-device.csv`` and so on, and
    ``twin.json``, which holds what was recorded.

    Parameters
    ----------
    directory: folder of a simulation, of a deployment, or of a Flower strategy (its ``out=``).
    out: the experiment file.
    data: folder searched first for data, where the recorded task needs some.

    Raises
    ------
    UserError: no such run, records that say too little, an experiment that cannot be built here, or
    a file that cannot be written; in one sentence.
    """
    path = user_path(out)
    if path.suffix != ".toml":
        raise ConfigError(f"got {str(out)!r}; expected the name of a .toml file", "--out")
    records = read(directory)
    stand_in = _named(records) is None
    keys = _stand_in(records) if stand_in else _recorded(records)
    undivided = stand_in or records.undivided
    # a rule knows no more; Flower's strategies do
    if records.run.deployed and not records.undivided:
        keys["probe"] = {**(keys.get("probe") or {}), "speeds": "measured"}
    maker = _Maker(records, path, undivided, _passes(keys, records, data))
    keys |= maker.components()
    notes = (*records.notes, *_cannot(stand_in, undivided), *maker.notes)
    _checked(keys)
    recorded = {
        "source": str(directory),
        "seconds": _ends(records),
        "bits": [float(bits) for bits in records.run.column("rounds", "total_bits").tolist()],
        "dispatched": costs(records.run).dispatched,
        "server_s": _server_s(records),
        "never_accepted": _never_accepted(records),
        "stand_in": stand_in,
    }
    _write(path.with_suffix(".json"), to_json(recorded, indent=1) + "\n")
    lines = (_HEAD.format(directory), *maker.fits, *notes)
    comment = "".join(f"# {printable(' '.join(line.split()))}\n" for line in lines)
    _write(path, comment + "\n" + to_toml(keys))
    return Twin(path, tuple(maker.fits), tuple(notes), stand_in)


_HEAD = "The twin of {}; what it can predict, and what it cannot: docs/twin.md."


def _ends(records: Records) -> list[float]:
    """Return when each recorded round ended, in seconds since the run began."""
    return [float(end) for end in elapsed_s(records.run)]


def _server_s(records: Records) -> float:
    """Return the seconds of a usual round in which no client was waited for: sending, aggregating
    and evaluating. Simulations have none."""
    if not records.run.deployed:
        return 0.0
    lengths_s = np.diff([0.0, *_ends(records)])
    rounds = records.run.column("rounds", "round").tolist()
    waited = [
        float(np.nanmax(records.seconds[records.round == number], initial=0.0)) for number in rounds
    ]
    return max(0.0, float(np.nanmedian(lengths_s - waited)))


def _never_accepted(records: Records) -> list[str]:
    accepted = records.client[records.outcome == "accepted"]
    missing = np.setdiff1d(np.arange(records.population), accepted)
    return [records.run.client_name(int(client)) for client in missing]


def _named(records: Records) -> str | None:
    """Return the recorded task's name; None where only its own program can build it."""
    task = records.run.config.get("task")
    name = task.get("name") if isinstance(task, Mapping) else None
    return None if name in (None, *NO_TASK) else str(name)


def _recorded(records: Records) -> dict[str, Any]:
    """Return the keys of the recorded experiment, to which the twin's components are added."""
    config = records.run.config
    keys = {key: value for key, value in config.items() if key not in (*BY_TWIN, *LEFT)}
    pin = dict.fromkeys(PINNED, records.run.seed) | dict(config.get("pin") or {})
    rounds = int(records.run.column("rounds", "round").max())
    keys |= {"name": f"twin of {records.run.name}", "pin": pin, "stop": {"rounds": rounds}}
    free = {key: value for key, value in keys.items() if key != "weights"}
    # another rule then weighs as it was published
    same = _checked(free).weighting() == keys.get("weights")
    return free if same else keys


def _checked(keys: Mapping[str, Any]) -> Experiment:
    try:
        return Experiment(**keys)
    except UserError as error:
        raise ConfigError(
            f"the recorded experiment is not one of this version ({error}); record rounds with "
            "this version, or make the twin with the one that recorded them"
        ) from None


def _stand_in(records: Records) -> dict[str, Any]:
    """Return the keys of an experiment with clients of the recorded sizes and without their
    data."""
    config = records.run.config
    selector = config.get("selector") or {"name": "uniform"}
    dispatches = np.bincount(records.round)
    return {
        "name": f"twin of {records.run.name}",
        "seed": records.run.seed,
        "population": records.population,
        "cohort": min(int(config.get("cohort") or dispatches.max()), records.population),
        "stop": {"rounds": int(records.run.column("rounds", "round").max())},
        "task": {"name": "quadratic", "examples": np.maximum(records.sizes, 1).tolist()},
        "local": {"epochs": 1, "batch_size": BATCH},
        "selector": dict(selector),
    }


def _cannot(stand_in: bool, undivided: bool) -> list[str]:
    """Return what no records of this kind can tell, a sentence each."""
    sentences = [
        "The latency of a link is part of its rate, because messages of one size do not tell them "
        "apart; what a compressor saves in time is therefore an upper bound.",
        "What slows several rounds in a row, and seconds of computing together with those of "
        "messages, is not fitted.",
    ]
    if stand_in:
        sentences.append(
            "The clients' data is not here: time, traffic and participation can be predicted, "
            "accuracy cannot, nor what a rule does with losses or labels."
        )
    if undivided:
        sentences.append(
            "Of an answer only its whole time is known, or used: all of it counts as computing, "
            "and no rule can tell slow links from slow devices."
        )
    return sentences


def _passes(keys: Mapping[str, Any], records: Records, data: Path | None) -> Floats:
    """Return the recorded work of each dispatch in steps of the device, ``[n]``; what an
    algorithm or a selector computes beside its local steps counts, too."""
    plain: dict[str, Any] = {**keys, "device": {"name": "constant", "seconds": 1.0}}
    plain["local"] = {**(keys.get("local") or {}), "stragglers": None}
    plain.pop("synchrony", None)
    try:
        planner = build(plain, data).backend.planner  # type: ignore[attr-defined]
    except UserError as error:
        raise ConfigError(
            f"the recorded experiment cannot be built here ({error}); give what it needs, for "
            "instance --data, or run this where it was recorded"
        ) from None
    steps = np.where(np.isnan(records.steps), planner.full_steps[records.client], records.steps)
    if records.undivided or _named(records) is None:  # nothing says what a step was: the twin's own
        steps = planner.full_steps[records.client]
    free = np.full(len(steps), np.inf)
    nothing = np.zeros(len(steps), np.int64)
    lines = planner.timelines(
        Cohort(records.client, local_steps=steps.astype(np.int64)),
        LinkLoads(nothing, free, nothing, free),
        dispatch=nothing,
        version=0,
        round=1,
        now_s=0.0,
        extra_steps=nothing.astype(float),
    )
    passes: Floats = lines.computed_s - lines.downloaded_s
    return passes


class _Maker:
    """Fits the components of a twin and writes their tables.

    Parameters
    ----------
    records: what was recorded.
    path: of the experiment file.
    undivided: an answer's seconds are taken as a whole.
    passes: the work of each dispatch in local steps.
    """

    def __init__(self, records: Records, path: Path, undivided: bool, passes: Floats) -> None:
        self.records = records
        self.path = path
        self.undivided = undivided
        self.passes = passes
        self.fits: list[str] = []
        self.notes: list[str] = []

    def components(self) -> dict[str, Any]:
        """Return the components by key."""
        return {
            "device": self._device(),
            "network": {"name": "none"} if self.undivided else self._network(),
            "availability": self._availability(),
            "failures": self._failures(),
        }

    def _device(self) -> dict[str, Any]:
        seconds = self.records.seconds if self.undivided else self.records.compute_s
        law = self._law("seconds per local step", seconds, self.passes)
        table = self._table("device", {"step_s": law.quantiles}, {"unsure": law.unsure})
        return {**table, "values": law.values, **_in_common(law)}

    def _network(self) -> dict[str, Any]:
        records = self.records
        up = self._law("seconds per megabit up", records.upload_s, records.bits_up / 1e6)
        down = self._law("seconds per megabit down", records.download_s, records.bits_down / 1e6)
        if not up.quantiles.any() and not down.quantiles.any():
            return {"name": "none"}
        laws = {"up_s": up.quantiles, "down_s": down.quantiles}
        single = {"up_unsure": up.unsure, "down_unsure": down.unsure}
        timed = [law for law in (up, down) if law.quantiles.any()]
        values = min(law.values for law in timed)
        table = self._table("network", laws, single)
        # a deployment's server divides the seconds of both ways by their bytes
        common = _in_common(max(timed, key=lambda law: law.common))
        return {**table, "values": values, "together": records.run.deployed, **common}

    def _law(self, quantity: str, seconds: Floats, amount: Floats) -> Law:
        """Return the law of seconds per amount, over the dispatches that have both."""
        records = self.records
        recorded = np.isfinite(seconds) & (amount > 0)
        if not recorded.any():
            self.notes.append(f"Nothing is recorded of {quantity}; they count as none.")
            nothing = np.zeros(1, np.int64)
            return fitted(np.zeros(1), nothing, nothing, records.population)
        values = seconds[recorded] / amount[recorded]
        clients = records.client[recorded]
        if len(np.unique(clients)) == len(clients):
            self.notes.append(
                f"No client has two values of {quantity}: all that varies counts as the clients', "
                "nothing as chance."
            )
        rounds = records.round[recorded]
        inside, count = held_out(values, clients, rounds, records.population)
        law = fitted(values, clients, rounds, records.population)
        self.fits.append(
            f"{quantity.capitalize()}: {len(values)} values of {len(np.unique(clients))} clients; "
            f"of {count} in the last third of the rounds {inside} lie within the {LEVEL:.0%} "
            f"intervals of the rounds before; {law.common:.0%} of what varies within clients is "
            "common to a round."
        )
        return law

    def _failures(self) -> dict[str, Any]:
        records = self.records
        dropped = ~records.answered
        self.fits.append(f"Drop-out: {int(dropped.sum())} of {len(dropped)} dispatches.")
        if not dropped.any():
            self.notes.append(
                f"Nobody dropped out; in {len(dropped)} dispatches a rate of up to "
                f"{min(1.0, 3 / len(dropped)):.1%} can remain unseen."
            )
            return {"name": "none"}
        self.notes.append(
            "After how much of its work a client dropped out is not recorded; any share of it is "
            "taken for equally likely."
        )
        lost, answered = beta_counts(dropped, records.client, records.population)
        return self._table("failures", {}, {"dropped": lost, "answered": answered})

    # --------------------------------------------------------------------------------- availability

    def _availability(self) -> dict[str, Any]:
        """Return who is online when: a chain of two states, of each client where it is recorded who
        went and came, else the same for all clients, of how many were available."""
        recorded = self._presence()
        if recorded is not None:
            return recorded
        run = self.records.run
        online = np.asarray(run.column("rounds", "available"), float)
        online = online[np.isfinite(online)]
        everybody = self.records.population
        overlaps = _overlaps(run.config.get("synchrony"))
        if not len(online) or overlaps or online.min() >= everybody:
            why = "all clients were, in every round"
            if overlaps:
                why = "clients stay in flight over rounds, so counts do not tell who was away"
            elif not len(online):
                why = "nothing is recorded of it"
            self.fits.append(f"Availability: {why}; all clients are taken to be available.")
            return {"name": "always"}
        share = float(np.clip(online.mean() / everybody, 0.5 / everybody, 1.0))
        p, q = _two_states(online, share)
        begins = np.asarray(run.column("rounds", "start_s"), float)
        gaps = np.diff(begins[np.isfinite(begins)])
        slot = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 60.0
        self.fits.append(
            f"Availability: {share:.0%} of the clients on average, in slots of {slot:.3g} s; "
            f"neighbouring slots correlate by {1 - p - q:.2f}."
        )
        self.notes.append(
            "Which clients were available is not recorded, only how many: all are taken for alike, "
            "and no hour of the day is known."
        )
        return {"name": "markov", "p": p, "q": q, "slot_s": slot}

    def _presence(self) -> dict[str, Any] | None:
        """Return the rates at which nodes went and came, where that is recorded; None without."""
        incidents = self.records.run.tables["incidents"].to_pylist()
        rows = [
            (row["client"], row["event"] == "connected", row["time_s"])
            for row in sorted(incidents, key=lambda row: float(row["time_s"] or 0.0))
            if row["event"] in ("connected", "disconnected") and row["client"] is not None
        ]
        if not rows:
            return None
        end = float(np.nanmax(np.asarray(self.records.run.column("rounds", "time_s"), float)))
        rates = presence(rows, end, self.records.population)
        stays = [
            float(np.median(rates[seconds] / rates[count]))
            for count, seconds in (("went", "online_s"), ("came", "offline_s"))
        ]
        self.fits.append(
            f"Availability: {len(rows)} times a node went or came; clients stay about "
            f"{stays[0]:.3g} s, and are away for {stays[1]:.3g} s, at no hour in particular."
        )
        return {**self._table("availability", {}, rates), "slot_s": min(stays) / 10}

    # --------------------------------------------------------------------------------------- tables

    def _table(
        self, key: str, laws: Mapping[str, Floats], single: Mapping[str, Floats]
    ) -> dict[str, Any]:
        """Write columns of quantiles ``[K, P]`` and of one number a client ``[K]``."""
        points = next((law.shape[1] for law in laws.values()), 1)
        clients: Ids = np.repeat(np.arange(self.records.population), points)
        columns = [law.reshape(-1) for law in laws.values()]
        columns += [np.repeat(values, points) for values in single.values()]
        heads = ("client", *laws, *single)
        rows = zip(clients.tolist(), *(column.tolist() for column in columns), strict=True)
        return self._written(key, "recorded", [heads, *rows])

    def _written(self, key: str, name: str, rows: Sequence[Sequence[object]]) -> dict[str, Any]:
        file = self.path.with_name(f"{self.path.stem}-{key}.csv")
        _write(file, csv_text(rows))
        return {"name": name, "file": str(file)}


def _in_common(law: Law) -> dict[str, Any]:
    """Return the option that says how far clients' seconds in a round go together."""
    return {"common": round(law.common, 3)} if round(law.common, 3) else {}


def _overlaps(synchrony: Any) -> bool:
    """Return whether a recorded synchrony keeps clients in flight over rounds; a Flower strategy
    has none, and waits for all."""
    return synchrony is not None and bool(SYNCHRONY.build(synchrony).overlaps)


def _two_states(online: Floats, share: float) -> tuple[float, float]:
    """Return the probabilities p, q of a slot that switch a client on and off: the mean share is
    p / (p + q), and counts of neighbouring rounds correlate by 1 - p - q, taken within 0 and 0.95.

    >>> _two_states(np.array([2.0, 4.0, 2.0, 4.0]), 0.5)
    (0.5, 0.5)
    """
    off = online - online.mean()
    total = float((off**2).sum())
    stays = float(np.clip((off[1:] * off[:-1]).sum() / total, 0.0, 0.95)) if total else 0.0
    return share * (1 - stays), (1 - share) * (1 - stays)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise disk_error(error, path) from None
