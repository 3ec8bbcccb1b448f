"""The experiment: one table of keys, which is checked completely before anything is computed.

Every fault is a :class:`~motley.core.errors.ConfigError` that names the key, what was got, what is allowed and the nearest
spelling. Components (``{ name = "...", option = ... }``) are checked against the dataclass they name, through the catalogues.

>>> Experiment(task="quadratic", population=10, participation=0.5, stop={"rounds": 1}).cohort_size(10)
5
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from motley.algorithms.weights import Weighting
from motley.core.errors import ConfigError, suggest
from motley.core.fingerprint import UNKNOWN
from motley.core.keys import PURPOSES
from motley.core.paper import Paper
from motley.experiments import document, registry
from motley.experiments.error_messages import config_error, renamed
from motley.experiments.tables import (
    Checkpointing,
    Count,
    EngineChoice,
    Grids,
    Local,
    Log,
    Probe,
    PublicKey,
    Record,
    StrictTable,
    Whole,
    named,
)
from motley.rounds.config import EvaluationSchedule, Recalibrate, Stop
from motley.tasks.federate import Split

__all__ = ["Experiment", "load"]

_COMPONENTS = (
    "task", "partition", "label_noise", "feature_shift", "concept_shift", "drift", "algorithm", "loss", "aggregator", "server",
    "selector", "device", "network", "availability", "failures", "synchrony", "compressor", "quantizer", "feedback", "allocator",
    "budget",
)  # fmt: skip
_LOCAL = {"local.optimizer": "optimizer", "local.lr_schedule": "lr_schedule"}
_NO_RESULT = ("name", "method", "engine", "client_state", "checkpoint", "log")


class Experiment(BaseModel):
    """The complete description of a run: the keys of the experiment file.

    Raises
    ------
    ConfigError: anything unknown, of the wrong type, out of range or contradictory.

    Example
    -------
    >>> Experiment(population=0, cohort=1, stop={"rounds": 1}, task="image")
    Traceback (most recent call last):
    motley.core.errors.ConfigError: population: got 0; expected at least 1
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = "experiment"
    """Name of the run; part of its folder, not of its id."""
    seed: Whole = 0
    """Seed of all randomness."""
    pin: dict[str, Whole] = Field(default_factory=dict)
    """Seeds of single purposes that stay when ``seed`` changes, e.g. ``{ partition = 7 }``."""
    population: Count | None = None
    """N, the number of clients; natural partitions fix it themselves."""
    cohort: Count | None = None
    """m, the number of clients selected per round; or ``participation``."""
    participation: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    """m / N; or ``cohort``."""
    stop: Annotated[Stop, StrictTable]
    """When the run ends."""
    method: str | None = None
    """A preset: a bundle of the components below, under the keys given here."""
    task: Record
    """Model, data and metric."""
    split: Annotated[Split, StrictTable] = Field(default_factory=Split)
    """Which samples train, validate and test."""
    partition: Record = Field(default_factory=lambda: {"name": "iid"})
    """How samples are divided among clients. Tasks that come with clients of their own keep them unless this says otherwise."""
    label_noise: Record = Field(default_factory=lambda: {"name": "none"})
    """Wrong training labels."""
    feature_shift: Record = Field(default_factory=lambda: {"name": "none"})
    """Features that look different at every client."""
    concept_shift: Record = Field(default_factory=lambda: {"name": "none"})
    """Labels that mean something else at some clients."""
    drift: Record = Field(default_factory=lambda: {"name": "none"})
    """A distribution that moves with time."""
    local: Local = Field(default_factory=Local)
    """The local work of a client in a round."""
    algorithm: Record = Field(default_factory=lambda: {"name": "fedavg"})
    """The learning algorithm: loss, correction, aggregator and server of one paper."""
    loss: Record | None = None
    """Instead of the algorithm's."""
    aggregator: Record | None = None
    """Instead of the algorithm's."""
    server: Record | None = None
    """Instead of the algorithm's."""
    weights: Weighting | None = None
    """How much each update counts; left out: as the algorithm was published, else ``examples``."""
    selector: Record = Field(default_factory=lambda: {"name": "uniform"})
    """The rule that selects the clients of a round."""
    probe: Probe = Field(default_factory=Probe)
    """How closely a selector's probe measures."""
    device: Record = Field(default_factory=lambda: {"name": "constant"})
    """How long a client computes, in seconds per local step."""
    network: Record = Field(default_factory=lambda: {"name": "none"})
    """How fast a client sends and receives, in megabits a second."""
    availability: Record = Field(default_factory=lambda: {"name": "always"})
    """When clients are available."""
    failures: Record = Field(default_factory=lambda: {"name": "none"})
    """How clients fail during a round."""
    synchrony: Record = Field(default_factory=lambda: {"name": "synchronous"})
    """When the server steps."""
    compressor: Record = Field(default_factory=lambda: {"name": "identity"})
    """Compression of updates."""
    quantizer: Record | None = None
    """Quantizer of the values that the compressor sends: a second compressor, one that shortens values."""
    feedback: Record = Field(default_factory=lambda: {"name": "none"})
    """Error feedback: how clients make up for what compression left out."""
    allocator: Record = Field(default_factory=lambda: {"name": "uniform"})
    """How the upload budget is divided among the clients of a round."""
    budget: Record = Field(default_factory=lambda: {"name": "constant"})
    """The mean share of an update that a client may send in a round."""
    public: PublicKey = None
    """Samples without labels that all clients and the server may use."""
    recalibrate: Annotated[Recalibrate, StrictTable] | None = None
    """Estimate BatchNorm statistics anew after each server step; left out: clients' own are averaged."""
    engine: Annotated[EngineChoice, BeforeValidator(named)] = Field(default_factory=EngineChoice)
    """How local work is computed; a bare name will do."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of parameters and arithmetic; traffic always counts 32-bit values."""
    evaluate: Annotated[EvaluationSchedule, StrictTable] = Field(default_factory=EvaluationSchedule)
    """When the model is evaluated."""
    client_state: Literal["ram", "disk"] = "ram"
    """Where the state that clients keep between rounds is stored; changes no result."""
    checkpoint: Checkpointing = Field(default_factory=Checkpointing)
    """When a checkpoint is written."""
    log: Log = Field(default_factory=Log)
    """Further outputs."""
    grid: Grids = Field(default_factory=list)
    """Key path -> values, for compare and sweep: every combination; of each, where several are given (``[[grid]]``). A plain run
    leaves it aside."""

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _parts: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, data: Any, handler: ModelWrapValidatorHandler[Experiment]) -> Experiment:
        """Lay the keys over the preset, check each key, then check them together."""
        given = copy.deepcopy(dict(data)) if isinstance(data, Mapping) else {}
        if isinstance(data, Mapping) and isinstance(data.get("method"), str):
            data = document.lay_over(document.preset(data["method"]), data)
        if isinstance(data, Mapping) and _has_clients(data.get("task")):
            data = {"partition": "by_writer", **data}
        try:
            self = handler(data)
        except ValidationError as error:
            raise config_error(error, cls) from None
        self._given.update(given)
        self._check_sizes()
        self._parts.update(_build(self))
        self._check_parts()
        return self

    def _check_sizes(self) -> None:
        for purpose in self.pin:
            if purpose not in PURPOSES:
                known = ", ".join(PURPOSES)
                raise ConfigError(
                    f"there is no such purpose{suggest(purpose, PURPOSES)}; expected one of: {known}", f"pin.{purpose}"
                )
        for key, seed in {"seed": self.seed, **{f"pin.{purpose}": seed for purpose, seed in self.pin.items()}}.items():
            if not -(2**63) <= seed < 2**63:
                raise ConfigError(f"got {seed}; expected a whole number of at most 64 bits", key)
        if self.local.optimizer.get("clip") is not None:
            raise ConfigError("clipping has a key of its own; write local.clip = { norm = ... }", "local.optimizer.clip")
        if self.stop.target is not None and self.stop.target.empty:
            raise ConfigError("say what is good enough, e.g. target = { accuracy = 0.9 }", "stop.target")
        if self.stop == Stop():
            limits = ", ".join(f.name for f in dataclasses.fields(Stop))
            raise ConfigError(f"a run needs an end; give at least one of: {limits}", "stop")
        if self.public is not None and (self.public.share is None) == (self.public.data is None):
            raise ConfigError("say where the samples come from: either a share or data, e.g. public = 0.1", "public")
        if self.cohort is not None and self.participation is not None:
            raise ConfigError("got both cohort and participation; give one of them", "participation")
        if self.cohort is None and self.participation is None:
            raise ConfigError(
                "got neither cohort nor participation; say how many clients a round asks, e.g. cohort = 10", "cohort"
            )
        if self.population is not None:
            self.cohort_size(self.population)
        if self.local.stragglers is not None and self.local.steps is not None:
            raise ConfigError(
                "stragglers end whole epochs, and this work is counted in steps; give local.epochs", "local.stragglers"
            )
        self.local.work()

    def _check_parts(self) -> None:
        """Refuse an unknown number of clients, and an unknown last round where a component depends on it."""
        natural = self._parts["partition"].fixes_population
        made = getattr(type(self._parts["task"]), "makes_clients", False)
        if self.population is None and (made or not natural):
            raise ConfigError("this key is missing; say how many clients there are, e.g. population = 100", "population")
        rounds = self.stop.rounds
        self._parts["local.lr_schedule"].factor(1, rounds)
        if rounds is None and self._parts["selector"].needs().horizon:
            name = self.selector["name"]
            raise ConfigError(
                f"selector {name!r} anneals towards the last round and must know it; give stop.rounds", "stop.rounds"
            )

    def cohort_size(self, population: int) -> int:
        """Return m, the cohort size, for a population; ``participation`` is rounded to the nearest client, at least one.

        Raises
        ------
        ConfigError: the cohort is larger than the population.
        """
        if self.cohort is None:
            return max(1, round((self.participation or 1.0) * population))
        if self.cohort > population:
            raise ConfigError(
                f"got {self.cohort}, more than the population of {population}; expected at most {population}", "cohort"
            )
        return self.cohort

    def part(self, key: str) -> Any:
        """Return the component of a key (``"selector"``, ``"local.optimizer"``); None where the key is left out."""
        return self._parts.get(key)

    def papers(self) -> list[Paper]:
        """Return the publications of the components that this experiment uses."""
        return registry.papers(self._parts[key] for key in sorted(self._parts))

    def cited_for(self, paper: Paper) -> list[str]:
        """Return the keys of the components that a publication describes, e.g. ``["selector"]``."""
        return [key for key, part in sorted(self._parts.items()) if getattr(type(part), "paper", None) == paper]

    def replace(self, changes: Mapping[str, Any]) -> Experiment:
        """Return the experiment with some keys (dotted paths) changed, checked again."""
        return Experiment(**document.set_keys(self._given, changes))

    def resolved(self) -> dict[str, Any]:
        """Return every key but ``grid`` with defaults written out, as JSON values; they make the same Experiment again."""
        out = self.model_dump(mode="json", exclude={"grid"})
        for key, built in self._parts.items():
            table, _, last = key.rpartition(".")
            (out[table] if table else out)[last] = {"name": self._record(key)["name"], **registry.plain(built)}
        if "model" in out["task"]:
            out["task"]["model"] = named(out["task"]["model"])
        work = self.local.work()
        out["local"] |= {"epochs": work.epochs, "steps": work.steps}
        return out

    def run_id(self) -> str:
        """Return twelve hex digits of a hash of everything that changes results: not name, method, engine, client_state, checkpoint,
        log or grid."""
        hashed = {key: value for key, value in self.resolved().items() if key not in _NO_RESULT}
        text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def unknown(self) -> str | None:
        """Return why the run id does not cover everything that changes results: an object without a fingerprint; None if it does."""
        reason = self.task.get("fingerprint", "")
        return str(reason).removeprefix(UNKNOWN) if str(reason).startswith(UNKNOWN) else None

    def _record(self, key: str) -> dict[str, Any]:
        value: Any = self
        for step in key.split("."):
            value = getattr(value, step)
        return dict(value)


def _has_clients(task: Any) -> bool:
    """Return whether a task comes with clients of its own, which a partition would mix."""
    name = task.get("name") if isinstance(task, Mapping) else task
    kinds = registry.catalogue("task")
    kind = kinds.get(name) if isinstance(name, str) and name in kinds.targets else None
    return any(getattr(kind, flag, False) for flag in ("makes_clients", "has_clients"))


def _build(experiment: Experiment) -> dict[str, Any]:
    """Build every component once, which checks its name and options."""
    parts = {}
    for key, kind in {**{key: key for key in _COMPONENTS}, **_LOCAL, "quantizer": "compressor"}.items():
        record = getattr(experiment, key) if "." not in key else getattr(experiment.local, key.partition(".")[2])
        if record is not None:
            parts[key] = registry.build(kind, record, key)
    if "model" in experiment.task:  # a nested component, which the task itself makes later
        registry.build("model", experiment.task["model"], "task.model")
    if experiment.engine.name != "auto":
        hint = renamed("engine", experiment.engine.name)
        if hint:
            raise ConfigError(f"got {experiment.engine.name!r}{hint}", "engine")
        registry.catalogue("engine").get(experiment.engine.name, "engine")
    return parts


def load(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Return the experiment in a TOML file.

    Parameters
    ----------
    path: the file.
    overrides: settings like ``"local.optimizer.lr=0.05"``; values are TOML, or plain text.

    Raises
    ------
    ConfigError: no such file, not TOML (with file and line), or anything :class:`Experiment` refuses.
    """
    return Experiment(**document.override(document.read(Path(path)), overrides))
