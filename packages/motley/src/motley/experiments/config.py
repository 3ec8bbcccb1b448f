"""The experiment: one table of keys, which is checked completely before anything is computed.

Every fault is a :class:`~motley.core.errors.ConfigError` that names the key, what was got, what is
allowed and the nearest spelling. Components (``{ name = "...", option = ... }``) are checked
against the dataclass they name, through the catalogues.

>>> keys = {"task": "quadratic", "population": 10, "stop": {"rounds": 1}}
>>> Experiment(**keys, participation=0.5).cohort_size(10)
5
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from torch import nn
from torch.utils.data import DataLoader, Dataset

from motley.algorithms.fedavg import plain_fedavg
from motley.algorithms.schedules import FunctionSchedule, as_schedule
from motley.algorithms.task_loss import with_own_loss
from motley.algorithms.torch_optimizer import as_solver
from motley.algorithms.weights import Weighting
from motley.core.components import OwnComponent, UnknownOptionError, imports, own_components
from motley.core.errors import ConfigError, suggest
from motley.core.extensions import extension, not_installed
from motley.core.files import files_digest, is_file
from motley.core.fingerprint import UNKNOWN, fingerprint_or_reason
from motley.core.keys import PURPOSES
from motley.core.own_code import is_motley
from motley.core.paper import Paper
from motley.core.records import SIGNALS
from motley.core.untrusted import printable
from motley.experiments import document, registry
from motley.experiments.error_messages import config_error, device_hint, with_right_place
from motley.experiments.file_tables import (
    Checkpointing,
    Count,
    DefenceKey,
    EngineChoice,
    Grids,
    GuardKey,
    InitialWeights,
    Local,
    LogKey,
    ModelsKey,
    Names,
    PrivacyKey,
    Probe,
    PublicKey,
    Record,
    StrictTable,
    Tuned,
    Whole,
    at_path,
    named,
)
from motley.experiments.folder_names import MOST_NAME_BYTES
from motley.experiments.lineage import digest_of, lineage_id
from motley.experiments.shown import ShownExperiment
from motley.rounds.guard import Guard
from motley.rounds.run_config import EvaluationSchedule, Recalibrate, Stop
from motley.tasks.federate import Split
from motley.tasks.held_out import held_out_count
from motley.tasks.metrics import as_metric
from motley.tasks.own import Own
from motley.tasks.precision import Precision
from motley.tasks.task import Task, TaskSource

if TYPE_CHECKING:  # the types of components, by key
    from motley.algorithms.local_optimisers import Solver
    from motley.algorithms.parts import Aggregator, Loss, Method, Server
    from motley.algorithms.schedules import Schedule
    from motley.rounds.stage import StageOptions
    from motley.selectors.selector import SelectionRule
    from motley.timing.synchrony import Synchrony
    from motley.transport.allocators.allocator import Allocator
    from motley.transport.budgets import Budget
    from motley.transport.compressors.compressor import Compressor
    from motley.transport.feedback import Feedback
    from motley.world.interfaces import (
        Availability,
        Capacity,
        ConceptShift,
        Device,
        Dishonest,
        Drift,
        Failures,
        FeatureShift,
        LabelNoise,
        Network,
        Partition,
    )

_COMPONENTS = (
    "task",
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "drift",
    "algorithm",
    "loss",
    "aggregator",
    "server",
    "selector",
    "device",
    "network",
    "availability",
    "capacity",
    "failures",
    "dishonest",
    "synchrony",
    "compressor",
    "quantizer",
    "feedback",
    "allocator",
    "budget",
    "stage",
)
_LOCAL = {"local.optimizer": "optimizer", "local.lr_schedule": "lr_schedule"}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"optimizer": as_solver, "lr_schedule": as_schedule}
"""Kinds of which a plain function may stand for a component, and what makes the component."""
_KINDS = {**{key: key for key in _COMPONENTS}, **_LOCAL, "quantizer": "compressor"}
"""Key of a component -> its kind."""


class Experiment(ShownExperiment, BaseModel):
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
    models: ModelsKey = None
    """Models of different architectures, of which every client holds one, in place of
    ``task.model``; left out: all hold the same."""
    init: Annotated[InitialWeights | None, BeforeValidator(at_path)] = None
    """The model begins with the weights of a run or file; a bare path will do. Left out: with
    random ones."""
    split: Annotated[Split, StrictTable] = Field(default_factory=Split)
    """Which samples train, validate and test."""
    partition: Record = Field(default_factory=lambda: {"name": "iid"})
    """How samples are divided among clients. Tasks that come with clients of their own keep them
    unless this says otherwise."""
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
    """The learning algorithm: loss, local rule, aggregator and server of one paper."""
    loss: Record | None = None
    """Instead of the algorithm's."""
    aggregator: Record | None = None
    """Instead of the algorithm's."""
    server: Record | None = None
    """Instead of the algorithm's."""
    weights: Weighting | None = None
    """How much each update counts; left out: as the algorithm or synchrony was published, else
    ``examples``."""
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
    capacity: Record | None = None
    """The share of the model's width that a client can hold, under algorithms whose clients train
    slices; left out: all of it."""
    failures: Record = Field(default_factory=lambda: {"name": "none"})
    """How clients fail during a round."""
    dishonest: Record = Field(default_factory=lambda: {"name": "none"})
    """Which clients lie about themselves, and what they claim."""
    synchrony: Record = Field(default_factory=lambda: {"name": "synchronous"})
    """When the server steps."""
    compressor: Record = Field(default_factory=lambda: {"name": "identity"})
    """Compression of updates."""
    quantizer: Record | None = None
    """Quantizer of the values that the compressor sends: a second compressor, one that shortens
    values."""
    feedback: Record = Field(default_factory=lambda: {"name": "none"})
    """Error feedback: how clients make up for what compression left out."""
    allocator: Record = Field(default_factory=lambda: {"name": "uniform"})
    """How the upload budget is divided among the clients of a round."""
    budget: Record = Field(default_factory=lambda: {"name": "constant"})
    """The mean share of an update that a client may send in a round."""
    stage: Record | None = None
    """Something that cuts through every round, called after what the other keys ask for; left out:
    nothing."""
    public: PublicKey = None
    """Samples without labels that all clients and the server may use."""
    recalibrate: Annotated[Recalibrate, StrictTable] | None = None
    """Estimate BatchNorm statistics anew after each server step; left out: clients' own are
    averaged."""
    guard: GuardKey = Field(default_factory=Guard)
    """Which steps the server refuses because they would ruin the model: ``off``, or how large a
    step may be."""
    defence: DefenceKey = None
    """How far the selector believes what clients say of themselves: ``off``, ``on``, or what it
    does."""
    privacy: PrivacyKey = None
    """Differential privacy of clients: clip, noise and caps; left out or "off": none."""
    engine: Annotated[EngineChoice, BeforeValidator(named)] = Field(default_factory=EngineChoice)
    """How local work is computed; a bare name will do."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of parameters and arithmetic; traffic always counts 32-bit values."""
    precision: Precision = "float32"
    """Of matrix products and convolutions: ``bfloat16`` computes them in bfloat16 and all else in
    float32."""
    evaluate: Annotated[EvaluationSchedule, StrictTable] = Field(default_factory=EvaluationSchedule)
    """When the model is evaluated."""
    metrics: Names = Field(default_factory=list)
    """What is measured beside loss and accuracy, a name or several: the first is the headline. Left
    out: the task's own."""
    client_state: Literal["ram", "disk"] = "ram"
    """Where the state that clients keep between rounds is stored; changes no result."""
    checkpoint: Checkpointing = Field(default_factory=Checkpointing)
    """When a checkpoint is written."""
    log: LogKey = Field(default_factory=list)
    """Trackers beside the tables: ``tensorboard``, ``mlflow``, ``wandb``; a name or several.
    Changes no result."""
    tuned: Tuned | None = None
    """How ``motley tune``, which writes it, chose values of this file. Changes no result."""
    grid: Grids = Field(default_factory=list)
    """Key path -> values, for compare: every combination; of each, where several are given
    (``[[grid]]``). With a ``name``, a grid can be chosen (``--grid``). A plain run leaves grids
    aside."""

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _parts: dict[str, Any] = PrivateAttr(default_factory=dict)
    _own: dict[str, Any] = PrivateAttr(default_factory=dict)
    _classes: dict[tuple[str, str], type] = PrivateAttr(default_factory=dict)
    _code: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, data: Any, handler: ModelWrapValidatorHandler[Experiment]) -> Experiment:
        """Lay the keys over the preset, check each key, then check them together."""
        _check_names(data)
        data = document.of_python(data)
        if isinstance(data, Mapping) and isinstance(data.get("task"), Task):
            # its fingerprint is worked out once
            data = {**data, "task": Own.of(with_own_loss(data["task"]))}
        original = document.limited_copy(data) if isinstance(data, Mapping) else {}
        if isinstance(data, Mapping) and isinstance(data.get("method"), str):
            data = document.lay_over(document.preset(data["method"]), data)
        _check_split(data)
        _check_model(data)
        if isinstance(data, Mapping) and registry.has_clients(data.get("task")):
            data = {"partition": "by_writer", **data}
        with own_components() as built:
            data, objects = (
                _without_objects(_with_names(cls, data))
                if isinstance(data, Mapping)
                else (data, {})
            )
            try:
                self = handler(data)
            except ValidationError as error:
                raise config_error(error, cls) from None
            self._given.update(original)
            self._check_sizes()
            self._parts.update(_build(self, objects))
        self._check_magnitudes()
        self._check_parts()
        self._keep_own(built)
        return self

    def _keep_own(self, built: Iterable[OwnComponent]) -> None:
        """Keep the components that are not Motley's own, also those that others name, and the names
        by which this process has their classes."""
        direct = {
            key: part for key, part in self._parts.items() if registry.is_own(_KINDS[key], part)
        }
        inside = {
            f"{key}.{name}": part
            for _, name, key, part in built
            # inside another one the class of a distribution of Motley's counts by its name
            if not is_motley(type(part).__module__)
            and not any(part is other for other in direct.values())
        }
        self._own.update({**direct, **inside})
        self._code.update({key: fingerprint_or_reason(part) for key, part in self._own.items()})
        classes = {
            **{(_KINDS[key], self._name(key)): type(part) for key, part in direct.items()},
            **{(kind, name): type(part) for kind, name, _, part in built},
        }
        if self.engine.name != "auto":
            engine = registry.catalogue("engine").get(self.engine.name)
            classes["engine", self.engine.name] = engine
        self._classes.update(
            {
                named: cls
                for named, cls in classes.items()
                if not registry.catalogue(named[0]).is_builtin(cls)
            }
        )

    def _check_sizes(self) -> None:
        self._check_name()
        self._check_seeds()
        if self.local.optimizer.get("clip") is not None:
            raise ConfigError(
                "clipping has a key of its own; write local.clip = { norm = ... }",
                "local.optimizer.clip",
            )
        if self.stop.target is not None and not self.stop.target:
            raise ConfigError(
                "say what is good enough, e.g. target = { accuracy = 0.9 }", "stop.target"
            )
        self._check_metrics()
        limits = [f.name for f in dataclasses.fields(Stop) if f.name != "metric"]
        if self.stop.metric is not None and self.stop.patience is None:
            raise ConfigError(
                f"got {self.stop.metric!r} and no patience, whose metric it is; write stop = "
                f'{{ patience = 10, metric = "{self.stop.metric}" }}',
                "stop.metric",
            )
        if all(getattr(self.stop, name) is None for name in limits):
            raise ConfigError(
                f"a run needs an end; give at least one of: {', '.join(limits)}", "stop"
            )
        if self.public is not None and (self.public.share is None) == (self.public.data is None):
            raise ConfigError(
                "say where the samples come from: either a share or data, e.g. public = 0.1",
                "public",
            )
        if self.cohort is not None and self.participation is not None:
            raise ConfigError(
                "got both cohort and participation; give one of them", "participation"
            )
        if self.cohort is None and self.participation is None:
            raise ConfigError(
                "got neither cohort nor participation; say how many clients a round asks, e.g. "
                "cohort = 10",
                "cohort",
            )
        if self.population is not None:
            self.cohort_size(self.population)
        self._check_stragglers()
        if self.precision == "bfloat16" and self.dtype != "float32":
            raise ConfigError(
                f"got 'bfloat16' with dtype = {self.dtype!r}; expected weights of float32: leave "
                "dtype out",
                "precision",
            )
        self.local.work()
        if self.init is not None:
            _ = self.init.hashed  # the file is there, and as it was

    def _check_stragglers(self) -> None:
        """Refuse stragglers of work that has no whole epochs which they could leave out."""
        stragglers = self.local.stragglers
        if stragglers is None:
            return
        work = self.local.work()
        if work.epochs is None:
            raise ConfigError(
                "stragglers end whole epochs, and this work is counted in steps; give local.epochs",
                "local.stragglers",
            )
        if stragglers.share and work.epochs == 1:
            raise ConfigError(
                f"got share = {stragglers.share} of work of one epoch, of which nobody ends less; "
                "expected local.epochs of at least 2: set it, or leave local.stragglers out",
                "local.stragglers",
            )

    def _check_magnitudes(self) -> None:
        """Refuse numbers of the training that its type does not hold."""
        largest = float(np.finfo(self.dtype).max)
        clip = self.local.clip
        tables = {
            "algorithm": self.algorithm,
            "loss": self.loss,
            "aggregator": self.aggregator,
            "server": self.server,
            "local.optimizer": self.local.optimizer,
            "local.lr_schedule": self.local.lr_schedule,
            "local.clip": clip and vars(clip),
        }
        for table_key, table in tables.items():
            for key, value in _numbers(table_key, table):
                if largest < abs(value) < math.inf:
                    number = f"{value:g}" if abs(value) < 2**1023 else "a number above 1e307"
                    raise ConfigError(
                        f"got {number}; expected at most {largest:.2g}, the largest number of "
                        f"{self.dtype}",
                        key,
                    )

    def _check_name(self) -> None:
        """Refuse a name that no folder can have, or that would command a terminal."""
        if printable(self.name) != self.name or "\n" in self.name:
            raise ConfigError(
                f"got {self.name!r}, with a control character; expected text of one line that can "
                "be printed",
                "name",
            )
        size = len(self.name.encode())
        if size > MOST_NAME_BYTES:
            raise ConfigError(
                f"got a name of {size} bytes; expected at most {MOST_NAME_BYTES}, for it names a "
                "folder",
                "name",
            )

    def _check_seeds(self) -> None:
        if "privacy" in self.pin:
            raise ConfigError(
                "the noise of a private run comes from no seed; for tests and comparisons write "
                f"privacy.noise_seed = {self.pin['privacy']}, with which nothing is private",
                "pin.privacy",
            )
        for purpose in self.pin:
            if purpose not in PURPOSES:
                purposes = ", ".join(PURPOSES)
                raise ConfigError(
                    f"there is no such purpose{suggest(purpose, PURPOSES)}; expected one of: "
                    f"{purposes}",
                    f"pin.{purpose}",
                )
        for key, seed in {
            "seed": self.seed,
            **{f"pin.{purpose}": seed for purpose, seed in self.pin.items()},
        }.items():
            if not -(2**63) <= seed < 2**63:
                raise ConfigError(f"got {seed}; expected a whole number of at most 64 bits", key)

    def _check_metrics(self) -> None:
        """Refuse unknown metrics, unless a task of one's own may have them, and shares above 1."""
        targets = self.stop.target or {}
        keys = {
            **dict.fromkeys(self.metrics, "metrics"),
            **{name: f"stop.target.{name}" for name in targets},
            **({} if self.stop.metric is None else {self.stop.metric: "stop.metric"}),
        }
        for name, key in keys.items():
            try:
                share = as_metric(name).share
            except ConfigError as error:
                if self.task["name"] != "own":
                    raise ConfigError(str(error), key) from None
                continue
            if share and targets.get(name, 0.0) > 1:
                raise ConfigError(f"got {targets[name]:g}; expected at most 1", key)

    def _check_parts(self) -> None:
        """Refuse an unknown number of clients, and an unknown last round where a component depends
        on it."""
        natural = self._parts["partition"].fixes_population
        makes_clients = getattr(type(self._parts["task"]), "makes_clients", False)
        if self.population is None and (makes_clients or not natural):
            raise ConfigError(
                "this key is missing; say how many clients there are, e.g. population = 100",
                "population",
            )
        rounds = self.stop.rounds
        schedule = self._parts["local.lr_schedule"]
        schedule.factor(1, rounds)
        if isinstance(schedule, FunctionSchedule):
            schedule.check(rounds)
        if rounds is None and self._parts["selector"].needs().horizon:
            name = self.selector["name"]
            raise ConfigError(
                f"selector {name!r} anneals towards the last round and must know it; give "
                "stop.rounds",
                "stop.rounds",
            )

    def cohort_size(self, population: int) -> int:
        """Return m, the cohort size, for a population; ``participation`` is rounded to the nearest
        client, at least one. Clients that are held out do not count.

        Raises
        ------
        ConfigError: the cohort is larger than the population.
        """
        held_out = held_out_count(population, self.split.holdout_clients)
        pool = population - held_out
        without = f" without the {held_out} held out" if held_out else ""
        if self.cohort is None:
            return max(1, round((self.participation or 1.0) * pool))
        if self.cohort > pool:
            raise ConfigError(
                f"got {self.cohort}, more than the population of {pool}{without}; expected at most "
                f"{pool}",
                "cohort",
            )
        return self.cohort

    if TYPE_CHECKING:

        @overload
        def part(self, key: Literal["task"]) -> TaskSource: ...
        @overload
        def part(self, key: Literal["partition"]) -> Partition: ...
        @overload
        def part(self, key: Literal["label_noise"]) -> LabelNoise: ...
        @overload
        def part(self, key: Literal["feature_shift"]) -> FeatureShift: ...
        @overload
        def part(self, key: Literal["concept_shift"]) -> ConceptShift: ...
        @overload
        def part(self, key: Literal["drift"]) -> Drift: ...
        @overload
        def part(self, key: Literal["algorithm"]) -> Method: ...
        @overload
        def part(self, key: Literal["loss"]) -> Loss | None: ...
        @overload
        def part(self, key: Literal["aggregator"]) -> Aggregator | None: ...
        @overload
        def part(self, key: Literal["server"]) -> Server | None: ...
        @overload
        def part(self, key: Literal["selector"]) -> SelectionRule[Any]: ...
        @overload
        def part(self, key: Literal["device"]) -> Device: ...
        @overload
        def part(self, key: Literal["network"]) -> Network: ...
        @overload
        def part(self, key: Literal["availability"]) -> Availability: ...
        @overload
        def part(self, key: Literal["capacity"]) -> Capacity | None: ...
        @overload
        def part(self, key: Literal["failures"]) -> Failures: ...
        @overload
        def part(self, key: Literal["dishonest"]) -> Dishonest: ...
        @overload
        def part(self, key: Literal["synchrony"]) -> Synchrony: ...
        @overload
        def part(self, key: Literal["compressor"]) -> Compressor: ...
        @overload
        def part(self, key: Literal["quantizer"]) -> Compressor | None: ...
        @overload
        def part(self, key: Literal["feedback"]) -> Feedback: ...
        @overload
        def part(self, key: Literal["allocator"]) -> Allocator: ...
        @overload
        def part(self, key: Literal["budget"]) -> Budget: ...
        @overload
        def part(self, key: Literal["stage"]) -> StageOptions | None: ...
        @overload
        def part(self, key: Literal["local.optimizer"]) -> Solver: ...
        @overload
        def part(self, key: Literal["local.lr_schedule"]) -> Schedule: ...
        @overload
        def part(self, key: str) -> Any: ...

    def part(self, key: str) -> Any:
        """Return the component of a key (``"selector"``, ``"local.optimizer"``); None where the key
        is left out."""
        return self._parts.get(key)

    @property
    def own_task(self) -> Task | None:
        """The task that was made in Python and given as an object; None for a task that is
        named."""
        return getattr(self._parts["task"], "made", None)

    def papers(self) -> list[Paper]:
        """Return the publications of the components that this experiment uses."""
        return registry.papers(self._parts[key] for key in sorted(self._parts))

    def replace(self, changes: Mapping[str, Any]) -> Experiment:
        """Return the experiment with some keys (dotted paths) changed, checked again."""
        return Experiment(**document.set_keys(self._given, changes))

    def resolved(self) -> dict[str, Any]:
        """Return every key but ``grid`` with defaults written out, as JSON values; they make the
        same Experiment again."""
        out = self.model_dump(mode="json", exclude={"grid"})
        for key, built in self._parts.items():
            table, _, last = key.rpartition(".")
            (out[table] if table else out)[last] = {
                "name": self._name(key),
                **registry.plain(built),
            }
        if "model" in out["task"]:
            out["task"]["model"] = named(out["task"]["model"])
        if self.models is not None:
            out["task"].pop("model", None)
            out["models"]["of"] = [
                {"name": record["name"], **registry.plain(registry.build("model", record))}
                for record in self.models.of
            ]
        work = self.local.work()
        out["local"] |= {"epochs": work.epochs, "steps": work.steps}
        init = None if self.init is None else {**out["init"], "digest": self.init.hashed}
        if self.privacy is not None and "fingerprint" in out["task"]:
            out["task"]["fingerprint"] = ""  # a hash of data, and these keys are published
        return {
            **out,
            "init": init,
            "weights": self.weighting(),
            "probe": {"batches": self._probe_batches(), "speeds": self.probe.speeds},
        }

    def weighting(self) -> Weighting:
        """Return how much each update counts: as ``weights`` says, else as usual."""
        return self.weights or self.usual_weighting()

    def usual_weighting(self) -> Weighting:
        """Return how much each update counts where ``weights`` is left out: as the algorithm was
        published, or by samples."""
        published: Any = (
            self._parts["algorithm"].change(plain_fedavg()).weights
            or self._parts["synchrony"].published_weights
        )
        return published or "examples"

    def _probe_batches(self) -> int | Literal["all"] | None:
        """Return the batches of a probe, as the selector wants them where the key is left out; None
        if it wants none, or several."""
        probed = self._parts["selector"].needs().probed
        wanted = {
            batches
            for name, batches in probed.items()
            if name in SIGNALS and SIGNALS[name].kind == "learning"
        }
        return self.probe.batches or next(
            (batches or "all" for batches in wanted if len(wanted) == 1), None
        )

    def run_id(self) -> str:
        """Return twelve hex digits of a hash of everything that changes a round: not name, method,
        engine, client_state, checkpoint, log, tuned or grid; of stop only the number of rounds,
        and that only where a component looks at it (:meth:`horizon_keys`). Of a private run it is
        no function of the data, which :meth:`data_digests` has."""
        # code in place of the options of what is not Motley's own
        more = {**self._code, **self._file_digests()}
        if self.privacy is not None:
            more = {key: code for key, code in self._code.items() if key != "task"}
        lineage = lineage_id({**self.resolved(), **more})
        return digest_of([lineage, self.stop.rounds]) if self.horizon_keys() else lineage

    def data_digests(self) -> dict[str, str]:
        """Return hashes of the data that this experiment reads and of its own task, by key. What is
        checked against them of a private run is never published."""
        own = {
            "task.fingerprint": str(self.task.get("fingerprint", "")),
            "task.code": self._code.get("task", ""),
        }
        return {**self._file_digests(), **{key: digest for key, digest in own.items() if digest}}

    def _file_digests(self) -> dict[str, str]:
        """Return hashes of the user's own files that components read (a table, texts, a trace), by
        key; a component with such files has the method ``files_digest``, which returns a hash of
        them, empty for data known by name."""
        digests = {
            f"{key}.files": part.files_digest()
            for key, part in {**self._parts, **self._own}.items()
            if hasattr(part, "files_digest")  # isinstance of a protocol: a quarter of the id's time
        }
        for key, part in self._own.items():
            digests |= _named_files(key, part)
        return {key: digest for key, digest in digests.items() if digest}

    @property
    def own_code(self) -> Mapping[str, str]:
        """By key, the fingerprints of the code of components that are not Motley's own, with those
        that another component names: ``algorithm.method.NAME``."""
        return self._code

    def own_parts(self) -> list[object]:
        """Return what may hold code that is not Motley's: components, their options, and the model,
        loss, metrics and transform of an own task."""
        parts: list[object] = []
        for part in self._own.values():
            parts += [part, *registry.options_of(part).values()]
        task = self.own_task
        if task is not None:
            functions = [metric.function for metric in task.metrics]
            parts += [task.model, task.loss, task.transform, *functions]
        return parts

    def result_id(self) -> str:
        """Return twelve hex digits of a hash of the run id and of when the run ends."""
        return digest_of([self.run_id(), dataclasses.asdict(self.stop)])

    def horizon_keys(self) -> list[str]:
        """Return the keys whose components look at the planned number of rounds: a longer run is
        then another one from round 1."""
        looks = {
            "selector": self._parts["selector"].needs().horizon,
            "local.lr_schedule": self._parts["local.lr_schedule"].horizon,
            "budget": self._parts["budget"].horizon,
            "privacy.epsilon": self.privacy is not None and self.privacy.epsilon is not None,
            "evaluate.diagnostics": self.evaluate.diagnostics
            and not self.evaluate.due(self.stop.rounds or 0),
        }
        return [key for key, yes in looks.items() if yes]

    def unknown(self) -> str | None:
        """Return why the run id does not cover everything that changes results: an object without a
        fingerprint; None if it does."""
        reasons = (
            str(reason) for reason in (self.task.get("fingerprint", ""), *self._code.values())
        )
        return next(
            (reason.removeprefix(UNKNOWN) for reason in reasons if reason.startswith(UNKNOWN)), None
        )

    def _name(self, key: str) -> str:
        value: Any = self
        for step in key.split("."):
            value = getattr(value, step)
        return str(value["name"])

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Restore the state, and the names of its classes in this process."""
        super().__setstate__(state)
        for (kind, name), cls in self._classes.items():
            registry.catalogue(kind).add(name, cls)


def _numbers(key: str, value: object) -> Iterator[tuple[str, int | float]]:
    """Yield the numbers of a value, of the tables and lists in it, too, after their keys."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _numbers(f"{key}.{name}", entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _numbers(key, entry)
    elif isinstance(value, int | float):
        yield key, value


def _check_split(keys: Any) -> None:
    """Refuse a column by which rows are divided where it is none of the task's.

    Raises
    ------
    ConfigError: has the line to write.
    """
    split = keys.get("split") if isinstance(keys, Mapping) else None
    test = split.get("test") if isinstance(split, Mapping) else None
    if isinstance(test, Mapping):
        raise ConfigError(
            "got a table; a column by which each client's rows are divided is the task's: task = "
            '{ name = "tabular", data = "all.csv", test = { last = 0.2, by = "day" } }',
            "split.test",
        )


def _check_names(keys: Any) -> None:
    """Refuse samples or a model in memory where the name of a task or of its data is expected.

    Raises
    ------
    ConfigError: has the line to write.
    """
    task = keys.get("task") if isinstance(keys, Mapping) else None
    data = task.get("data") if isinstance(task, Mapping) else None
    for key, value in (("task", task), ("task.data", data)):
        if isinstance(value, str | Task | TaskSource):  # NumPy's texts are arrays, too
            continue
        arrays = any(hasattr(value, name) for name in ("__array__", "columns", "column_names"))
        if arrays or isinstance(value, Dataset | DataLoader | nn.Module):
            size = getattr(value, "shape", None)
            shape = "" if size is None else f" {list(size)}"
            raise ConfigError(
                f"got {type(value).__name__}{shape}; this key is a name or a path, and what is in "
                "memory is given beside the keys: motley.run(keys, task=own_task(federation, "
                "model)), where federation is from_arrays(x, y, clients) or from_clients(datasets) "
                "of motley.tasks",
                key,
            )


def _check_model(keys: Any) -> None:
    """Refuse a list of models where one is expected.

    Raises
    ------
    ConfigError: has the line to write.
    """
    task = keys.get("task") if isinstance(keys, Mapping) else None
    model = task.get("model") if isinstance(task, Mapping) else None
    if isinstance(model, list | tuple):
        raise ConfigError(
            "got a list; models of different architectures, of which every client holds one, have "
            'a key of their own: models = ["cnn", "mlp"]',
            "task.model",
        )


def _with_names(model: type[Experiment], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys with the default's name in every component of which only options are given:
    ``budget = { average = 0.2 }``."""
    out = dict(keys)
    for key in _COMPONENTS:
        value = out.get(key)
        if not isinstance(value, Mapping) or "name" in value:
            continue
        default = model.model_fields[key].get_default(call_default_factory=True)
        if isinstance(default, Mapping):
            options = {option.name for option in registry.catalogue(key).options(default["name"])}
            # "none" has none, or they are another component's: a name is missing
            named = bool(options) and (
                bool(options & set(value)) or not _of_another(registry.catalogue(key), value)
            )
            out[key] = {**default, **value} if named else value
    return out


def _of_another(catalogue: Any, options: Mapping[str, Any]) -> bool:
    """Return whether some component of a kind has all of these options."""
    return any(catalogue.has_options(name, options) for name in catalogue.names())


def _without_objects(keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys with a record in place of every component that is given as an object, and the
    components by key.

    Raises
    ------
    ConfigError: an object that is no component of the key's kind.
    """
    out = document.copied(keys)
    objects = {}
    for key, kind in {**_KINDS, "task.model": "model"}.items():
        table, _, last = key.rpartition(".")
        holder = out.get(table) if table else out
        value = holder.get(last) if isinstance(holder, dict) else None
        if (
            not isinstance(holder, dict)
            or value is None
            or isinstance(value, str | Mapping | list | tuple | int | float)
        ):
            continue
        if kind in _FUNCTIONS:
            value = _FUNCTIONS[kind](value)
        component = value if isinstance(value, Own) else registry.build(kind, value, key)
        if isinstance(component, Own) and component.made is not None:
            out["split"] = split_of_own(component.made, keys.get("split"))
        model = getattr(component, "model", None) if key == "task" else None
        if dataclasses.is_dataclass(model) and not registry.is_own("model", model):
            component = dataclasses.replace(component, model=registry.record_of("model", model))
        if key == "task.model" and registry.is_own(kind, component):
            holder[last] = component  # the task makes the module of it
            continue
        holder[last] = registry.record_of(kind, component)
        if key != "task.model":
            objects[key] = component
    return out, objects


OF_ONES_OWN = "the federation is your own, and this key would change nothing in it"


def split_of_own(task: Task, split: Any) -> dict[str, Any]:
    """Return the key ``split`` of an experiment with a task of one's own, whose federation is
    divided already.

    Raises
    ------
    ConfigError: the key asks for another division.
    """
    test = "client" if task.federation.global_test is None else "global"
    written = split if isinstance(split, Mapping) else {}
    for entry in dataclasses.fields(Split):
        key = f"split.{entry.name}"
        value = written.get(entry.name, entry.default)
        own = test if entry.name == "test" else entry.default
        if entry.name == "holdout_clients" or value in (entry.default, own):
            continue
        remedy = f"leave it out, and write {entry.name} where it is made, as in from_clients"
        if entry.name == "test":
            remedy = f"its tests are {test!r}"
        elif entry.name == "server":
            remedy = "leave it out, and write dataclasses.replace(federation, server=(x, labels))"
        elif entry.name == "halves":
            remedy = "leave it out"
        raise ConfigError(f"{OF_ONES_OWN}; {remedy}", key)
    held = written.get("holdout_clients")
    return {"test": test} if held is None else {"test": test, "holdout_clients": held}


def _task_of(data: str) -> str | None:
    """Return the task that reads a data set of this name; None where no set has it."""
    if data == "digits":
        return "image"
    named = extension("data", "named")
    task: str | None = None if named is None else named.task_of(data)
    return task


def _check_places(experiment: Experiment) -> None:
    """Refuse a data set that is written as the task, and a processor that is written as the model
    of clients' speed or the engine."""
    data = str(experiment.task.get("name", ""))
    tasks = registry.catalogue("task")
    if data not in tasks.names() and data not in tasks.beside:
        reads = _task_of(data)
        if reads is not None:
            line = f'write task = {{ name = "{reads}", data = "{data}" }}'
            raise ConfigError(f"got {data!r}, a data set; {line}", "task.name")
        if ":" not in data and extension("data", "named") is None:
            near = suggest(data, tasks.names())
            names = ", ".join(tasks.names())
            reader = not_installed("data", "what reads other data sets")
            raise ConfigError(
                f"got {data!r}{near}; expected one of: {names}; {reader}", "task.name"
            )
    for key, record in (
        ("device", experiment.device),
        ("engine", {"name": experiment.engine.name}),
    ):
        hint = device_hint(str(record.get("name", "")))
        if hint:
            raise ConfigError(f"got {record['name']!r}{hint}", key)


def _build(experiment: Experiment, objects: Mapping[str, Any]) -> dict[str, Any]:
    """Build every component once, which checks its name and options; those given as objects are
    taken as they are."""
    _check_places(experiment)
    parts = {}
    for key, kind in _KINDS.items():
        if "." not in key:
            record = getattr(experiment, key)
        else:
            record = getattr(experiment.local, key.partition(".")[2])
        if record is None:
            continue
        if key in objects:
            parts[key] = objects[key]
        else:
            try:
                parts[key] = registry.build(kind, record, key)
            except UnknownOptionError as error:
                raise with_right_place(error, Experiment) from None
    if experiment.models is not None:
        if "model" in experiment.task:
            raise ConfigError(
                "got task.model and models; give one of them: with models, leave task.model out",
                "models",
            )
        for i, record in enumerate(experiment.models.of):
            if registry.is_own("model", registry.build("model", record, f"models.of[{i}]")):
                raise ConfigError(
                    f"got {record['name']!r}, a model of your own; give own_task a list of models",
                    f"models.of[{i}]",
                )
    for kind, record in _nested(experiment, parts["task"]).items():
        registry.build(kind, record, f"task.{kind}")
    if experiment.engine.name != "auto":
        registry.catalogue("engine").get(experiment.engine.name, "engine")
    return parts


def _nested(experiment: Experiment, task: Any) -> dict[str, Any]:
    """Return by kind the records of the components that the task itself makes later: its model, and
    the model and the loss that a task of one's own names by default, whose code counts as the
    task's does."""
    nested = {"model": task.model} if "model" in experiment.task else {}
    if not registry.is_own("task", task):
        return nested
    for kind, given in (("model", experiment.models), ("loss", experiment.loss)):
        record = getattr(task, kind, None)
        name = record.get("name") if isinstance(record, Mapping) else record
        if given is not None or not isinstance(name, str):
            continue
        if ":" in name or name in registry.catalogue(kind).names():
            nested[kind] = record
    return nested


def load(path: str | Path, overrides: Iterable[str] = (), allow_import: bool = False) -> Experiment:
    """Return the experiment in a TOML file.

    Parameters
    ----------
    path: the file.
    overrides: settings like ``"local.optimizer.lr=0.05"``; values are TOML, or plain text.
    allow_import: let components be named ``"module:Class"``, which imports the module.

    Raises
    ------
    ConfigError: no such file, not TOML (with file and line), or anything :class:`Experiment`
    refuses.
    """
    with imports(allow_import):
        return Experiment(**document.override(document.read(Path(path)), overrides))


def _named_files(key: str, part: object) -> dict[str, str]:
    """Return hashes of the files that the options of a component name."""
    if not dataclasses.is_dataclass(part):
        return {}
    options = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {
        f"{key}.{name}.file": files_digest(value)
        for name, value in options.items()
        if isinstance(value, str | Path) and Path(value).suffix and is_file(Path(value))
    }
