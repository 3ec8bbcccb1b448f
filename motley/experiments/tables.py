"""The small tables of the experiment file, and what their values may be.

>>> from motley.experiments.tables import Stop
>>> Stop(rounds=200).rounds
200
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from motley.core.errors import ConfigError
from motley.core.work import LocalWork

__all__ = [
    "Checkpointing",
    "Clip",
    "Count",
    "EngineChoice",
    "Examination",
    "Grids",
    "Local",
    "Log",
    "Positive",
    "Probe",
    "Public",
    "PublicKey",
    "Recalibration",
    "Record",
    "Split",
    "Stop",
    "Target",
    "Weights",
    "Whole",
    "named",
]

Whole = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Weights = Literal["examples", "uniform", "horvitz_thompson", "score", "selector", "selector_ratio"]


def named(value: object) -> object:
    """A bare name as a component."""
    return {"name": value} if isinstance(value, str) else value


def _sgd(value: object) -> object:
    """An optimiser's options without a name are SGD's, so that ``--set local.optimizer.lr=0.05`` is enough."""
    return {"name": "sgd", **value} if isinstance(value, Mapping) else named(value)


_RECORD = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}]}
)
Grids = Annotated[list[dict[str, list[Any]]], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
"""Key path -> values, once or several times."""
Record = Annotated[dict[str, Any], BeforeValidator(named), _RECORD]
"""A component: ``{ name = "...", option = ... }``, or its bare name."""


class Table(BaseModel):
    """A table of the experiment file: no key that is not known, nothing changed after it was made."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Target(Table):
    """What is good enough, on the global test set where there is one, else on the mean over the clients' own. One is needed."""

    accuracy: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    """Share of correct answers, reached from below."""
    loss: Positive | None = None
    """Mean loss, reached from above (for tasks without accuracy)."""


class Stop(Table):
    """When a run ends: at the first of the limits given. At least one is needed."""

    rounds: Count | None = None
    """Rounds (server steps)."""
    virtual_hours: Positive | None = None
    """Hours of virtual time; the run ends with the first server step at or after it."""
    uplink_gb: Positive | None = None
    """Uploaded traffic in 10^9 bytes."""
    target: Target | None = None
    """End as soon as an examination reaches this."""


class Split(Table):
    """Which samples train, validate and test."""

    test: Literal["client", "global"] = "client"
    """``client``: halves are merged, each client tests on ``test_fraction`` of its own; ``global``: the data's test half."""
    test_fraction: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.2
    """Share of each client's samples that tests (``test = "client"``)."""
    validation: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.0
    """Share of each client's training samples that is set aside."""
    server: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.0
    """Share of the samples to divide that the server keeps, with clean labels, to validate with (``feddf``, ``fedbio``)."""


def _share(value: object) -> object:
    """A bare number as a share."""
    return {"share": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class Recalibration(Table):
    """BatchNorm statistics made after each server step by clients that took part; uploads leave theirs out."""

    batches: Count = 20
    """Batches in all."""
    clients: Count = 3
    """At most so many clients, those sent out first."""


class Public(Table):
    """Samples without labels that everybody sees (``feddf``, ``rhfl``): a ``share`` of the task's own, or other ``data``."""

    share: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    """Share of the samples to divide that is held back; a bare number will do."""
    data: str | None = None
    """Another data set of the same shape, scaled like the task's: its training half."""
    examples: Count = 5000
    """At most so many of ``data``, drawn at random."""


PublicKey = Annotated[Public | None, BeforeValidator(_share)]
"""``public = 0.1`` or ``public = { data = "cifar100", examples = 5000 }``."""


class Clip(Table):
    """Clipping of local gradients."""

    norm: Positive
    """Largest Euclidean norm of a step's gradient."""
    of: Literal["gradient", "corrected"] = "corrected"
    """Before the algorithm's correction is added, or after."""


class Stragglers(Table):
    """Clients that end part of their epochs only, FedProx's variable local work."""

    share: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.5
    """Share of every cohort; they end a uniform number of whole epochs below ``epochs``, the same under every method."""
    partial: Literal["keep", "drop"] = "keep"
    """What becomes of their results: FedProx keeps them, FedAvg drops them."""


class Local(Table):
    """The local work of a client in a round: either ``epochs`` or ``steps`` (neither given: one epoch)."""

    epochs: Count | None = None
    """Passes over the client's own data."""
    steps: Count | None = None
    """Steps whatever the client's size."""
    batch_size: Count = 32
    """Samples per step; the last short batch of an epoch is kept."""
    max_steps: Count | None = None
    """Cap on the steps of a round."""
    optimizer: Annotated[dict[str, Any], BeforeValidator(_sgd), _RECORD] = Field(
        default_factory=lambda: {"name": "sgd", "lr": 0.01}
    )
    """The local optimiser."""
    clip: Clip | None = None
    """Gradient clipping; none by default."""
    stragglers: Stragglers | None = None
    """Who ends only part of the epochs; nobody by default."""
    lr_schedule: Record = Field(default_factory=lambda: {"name": "constant"})
    """Factor on the local learning rate, by round."""

    def work(self, drop_single: bool = False) -> LocalWork:
        """The same as plain numbers for planner and engines."""
        epochs = 1 if self.epochs is None and self.steps is None else self.epochs
        return LocalWork(self.batch_size, epochs, self.steps, self.max_steps, drop_single)


def _batches(value: object) -> object:
    if value is None or value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ConfigError(f"got {value!r}; expected a whole number of at least 1, or 'all'", "probe.batches")


class Probe(Table):
    """How closely a selector's probe measures."""

    batches: Annotated[int | Literal["all"] | None, BeforeValidator(_batches)] = None
    """Batches of the run's batch size per client; ``all``: its whole training data; left out: what the selector asks for."""


class EngineChoice(Table):
    """How local work is computed. Never changes what is learned beyond rounding, so it is not part of the run's id."""

    name: str = "auto"
    """``auto``, or the name of an engine."""
    device: str = "cpu"
    """Where: ``cpu``, ``cuda``, ``cuda:1``, ``mps``."""
    threads: Count | None = None
    """Cores this run may use; left out: all the process may."""
    workers: Count | None = None
    """Worker processes that share these cores (``processes``, ``ray``); left out: one for every core."""
    address: str | None = None
    """Of a running cluster, ``auto`` for the one of this machine (``ray``); left out: one is started here."""


class Examination(Table):
    """When the model is examined: every so many server steps, and at the end."""

    every: Count = 10
    """Server steps between examinations."""
    per_client: Flag = True
    """One row per client, too."""
    diagnostics: Flag = False
    """Measure in these steps, and in the first, what papers assume: how far clients' gradients and models lie apart, what
    compression loses. Costs wall time (a gradient of every client), no virtual time and no traffic, and changes no result."""


class Checkpointing(Table):
    """When a checkpoint is written: at the first round where either is due."""

    every_rounds: Count = 10
    """Rounds between checkpoints."""
    every_s: Positive = 30.0
    """Wall seconds between checkpoints."""


class Log(Table):
    """Where else numbers go."""

    tensorboard: Flag = False
    """Write the evaluations and round figures for TensorBoard into the run's folder (needs ``motley-fl[tensorboard]``)."""
