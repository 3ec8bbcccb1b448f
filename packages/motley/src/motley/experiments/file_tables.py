"""The tables of the experiment file that no other package needs, and the types of their values.

A table that the simulation itself uses is a plain dataclass of the package concerned (``Stop``,
``Split``, ``Clip``, ``Stragglers``, ...); it stands here and in
:class:`motley.experiments.config.Experiment` as ``Annotated[Stop, StrictTable]``.

>>> Local(clip={"norm": 1.0}).clip
Clip(norm=1.0, of='corrected')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    Strict,
    WithJsonSchema,
)

from motley.algorithms.local_optimisers import Clip
from motley.core import bounds
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.extensions import required_extension
from motley.core.files import no_file
from motley.core.work import LocalWork
from motley.experiments.trackers import TRACKERS
from motley.rounds.guard import Guard
from motley.selectors.defence import Defence
from motley.tasks import initial_weights
from motley.timing.stragglers import Stragglers

Whole = Annotated[int, Strict()]
Count = Annotated[bounds.Count, Strict()]
Positive = Annotated[bounds.Positive, Strict(), AllowInfNan(False)]
Flag = Annotated[bool, Strict()]


def named(value: object) -> object:
    """Return a bare name as a component."""
    return {"name": value} if isinstance(value, str) else value


def _sgd(value: object) -> object:
    """Return an optimizer's options; options without a name are SGD's, so that
    ``--set local.optimizer.lr=0.05`` is enough."""
    return {"name": "sgd", **value} if isinstance(value, Mapping) else named(value)


def _grids(value: object) -> list[object]:
    """Return one table or several as a list."""
    grids = value if isinstance(value, list) else [value]
    names: list[str] = []
    for grid in grids:
        if not isinstance(grid, Mapping):
            raise ConfigError(f"got {grid!r}; expected a table", "grid")
        for key, values in grid.items():
            if key == "name" and isinstance(values, str):
                names.append(values)
            elif not isinstance(values, list | tuple):
                raise ConfigError(f"got {values!r}; expected a list", f"grid.{key}")
    if len(set(names)) < len(names):
        raise ConfigError(
            f"two grids are called {max(names, key=names.count)!r}; give each a name of its own",
            "grid.name",
        )
    return grids


_RECORD = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        ]
    }
)
Grids = Annotated[list[dict[str, list[Any] | str]], BeforeValidator(_grids)]
"""Key path -> values, once or several times; ``name`` is what a grid is called."""
Names = Annotated[
    list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]
"""Names, or a single one."""
Record = Annotated[dict[str, Any], BeforeValidator(named), _RECORD]
"""A component: ``{ name = "...", option = ... }``, or its bare name."""


class KeyTable(BaseModel):
    """Base of a table of the experiment file: unknown keys are refused, and nothing can be changed
    afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class StrictTable:
    """Annotation of a field whose type is a plain dataclass: pydantic then takes numbers, flags and
    texts as they are, without converting a text to a number or a number to a flag, and refuses
    infinite numbers."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Return pydantic's schema of the dataclass with every leaf made strict."""
        schema = handler(source)
        _make_strict(schema, handler)
        return schema


def _make_strict(schema: Any, handler: GetCoreSchemaHandler) -> None:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "definition-ref":  # a dataclass inside the dataclass
            _make_strict(handler.resolve_ref_schema(schema), handler)
        if kind in ("int", "float", "bool", "str"):
            schema["strict"] = True
        if kind == "float":
            schema["allow_inf_nan"] = False
    parts = schema if isinstance(schema, list) else []
    for part in schema.values() if isinstance(schema, dict) else parts:
        _make_strict(part, handler)


def _share(value: object) -> object:
    """Return a bare number as a share."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"share": value}
    return value


class Public(KeyTable):
    """Samples without labels that everybody may use (``feddf``, ``rhfl``): a ``share`` of the
    task's own, or other ``data``."""

    share: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    """Share of the samples to divide that is held back; a bare number will do."""
    data: str | None = None
    """Another data set of the same shape, scaled like the task's: its training half."""
    examples: Count = 5000
    """At most so many of ``data``, drawn at random."""


PublicKey = Annotated[Public | None, BeforeValidator(_share)]
"""``public = 0.1`` or ``public = { data = "cifar100", examples = 5000 }``."""


def _models(value: object) -> object:
    """Return a bare list of models as the key ``of``."""
    return {"of": value} if isinstance(value, list | tuple) else value


class Models(KeyTable):
    """Models of different architectures, of which every client holds one for good."""

    of: list[Record] = Field(default_factory=list)
    """The models, names or records as of ``task.model``; left out for an own task, which has its
    own."""
    share: list[Annotated[float, Ge(0), Strict(), AllowInfNan(False)]] | None = None
    """Share of the clients that hold each model, with ``by = "client"``, 0: nobody; left out:
    alike."""
    by: Literal["client", "capacity", "group"] = "client"
    """Who holds which: ``client``, models are dealt to clients in the order of their ids;
    ``capacity``, the first that the ``capacity`` lets a client hold, which has a level for each
    model; ``group``, by the groups of ``feature_shift`` or ``concept_shift``."""


ModelsKey = Annotated[Models | None, BeforeValidator(_models)]
"""``models = ["cnn", "mlp"]`` or ``models = { of = ["cnn", "mlp"], share = [0.7, 0.3] }``."""


def _guard(value: object) -> object:
    """Return the guard's options for ``"on"``, and None for ``"off"``."""
    if isinstance(value, str) and value not in ("on", "off"):
        raise ConfigError(
            f'got {value!r}; expected "on", "off" or {{ factor = 1000, window = 20 }}', "guard"
        )
    return {"on": {}, "off": None}[value] if isinstance(value, str) else value


GuardKey = Annotated[
    Guard | None,
    BeforeValidator(_guard),
    StrictTable,
    PlainSerializer(lambda guard: "off" if guard is None else asdict(guard)),
]
"""``guard = "on"``, ``"off"`` or ``{ factor = 1000, window = 20 }``."""


def _defence(value: object) -> object:
    """Return the defence's options for ``"on"``, and None for ``"off"``; a part of it that is
    ``"off"`` is None."""
    if isinstance(value, str) and value not in ("on", "off"):
        raise ConfigError(
            f'got {value!r}; expected "off", "on" or {{ outliers = 3.0, cap = 2.0 }}', "defence"
        )
    if isinstance(value, Mapping):
        return {name: None if part == "off" else part for name, part in value.items()}
    return {"on": {}, "off": None}[value] if isinstance(value, str) else value


DefenceKey = Annotated[
    Defence | None,
    BeforeValidator(_defence),
    StrictTable,
    PlainSerializer(
        lambda defence: (
            "off"
            if defence is None
            else {k: "off" if v is None else v for k, v in asdict(defence).items()}
        )
    ),
]
"""``defence = "off"``, ``"on"`` or ``{ outliers = 3.0, clip = 0.95, cap = "off" }``."""


def _privacy(value: object) -> object:
    """Return the options in ``[privacy]``, as the distribution that owns the table reads them; None
    for ``"off"``."""
    if value is None or value == "off":
        return None
    return required_extension("table", "privacy", "privacy").read(value)


PrivacyKey = Annotated[
    Any,
    BeforeValidator(_privacy),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string", "const": "off"}]}),
]
"""``[privacy]``; ``privacy = "off"`` in a grid: none."""


class Local(KeyTable):
    """The local work of a client in a round: either ``epochs`` or ``steps`` (neither given: one
    epoch)."""

    epochs: Count | None = None
    """Passes over the client's own data."""
    steps: Count | None = None
    """Steps whatever the client's size."""
    batch_size: Count = 32
    """Samples per step; the last short batch of an epoch is kept."""
    max_steps: Count | None = None
    """Cap on the steps of a round."""
    micro_batch: Count | None = None
    """Samples that pass through the model at a time, where a batch does not fit into memory; the
    step is that of the whole batch, up to rounding."""
    optimizer: Annotated[dict[str, Any], BeforeValidator(_sgd), _RECORD] = Field(
        default_factory=lambda: {"name": "sgd", "lr": 0.01}
    )
    """The local optimizer."""
    clip: Annotated[Clip, StrictTable] | None = None
    """Gradient clipping; none by default."""
    stragglers: Annotated[Stragglers, StrictTable] | None = None
    """Who ends only part of the epochs; nobody by default."""
    lr_schedule: Record = Field(default_factory=lambda: {"name": "constant"})
    """Factor on the local learning rate, by round."""

    def work(self, drop_single: bool = False) -> LocalWork:
        """Return the local work as plain numbers for planner and engines."""
        epochs = 1 if self.epochs is None and self.steps is None else self.epochs
        work = LocalWork(
            batch_size=self.batch_size,
            epochs=epochs,
            steps=self.steps,
            max_steps=self.max_steps,
            drop_single=drop_single,
        )
        return replace(work, micro_batch=self.micro_batch)


def _batches(value: object) -> object:
    if (
        value is None
        or value == "all"
        or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
    ):
        return value
    raise ConfigError(
        f"got {value!r}; expected a whole number of at least 1, or 'all'", "probe.batches"
    )


class Probe(KeyTable):
    """How much a selector is told before it chooses."""

    batches: Annotated[int | Literal["all"] | None, BeforeValidator(_batches)] = None
    """Batches of the run's batch size per client; ``all``: its whole training data; left out: what
    the selector asks for."""
    speeds: Literal["known", "measured"] = "known"
    """How long clients will take: ``known``, what they take in this round; ``measured``, what they
    took when they delivered last, and of who never did the mean of the others, which is all that a
    deployment knows; a deadline's partial work follows it, too."""


class EngineChoice(KeyTable):
    """How local work is computed. Changes results by rounding at most, so it is not part of the
    run's id."""

    name: str = "auto"
    """``auto``, or the name of an engine."""
    device: str = "cpu"
    """Device of the computation: ``cpu``, ``cuda``, ``cuda:1``, ``mps``."""
    threads: Count | None = None
    """Cores this run may use; left out: all the process may."""
    products: Literal["torch", "openblas"] | None = None
    """Library that multiplies the matrices of a stack of linear layers (``batched``): PyTorch's, or
    the OpenBLAS of NumPy and SciPy; left out: the one that is faster on this kind of processor."""
    workers: Count | None = None
    """Worker processes that share these cores (``processes``, ``ray``); left out: one for every
    core."""
    worker_cores: Count | None = None
    """Cores of each worker (``ray``); left out: as many as fit. With ``workers`` it fixes how the
    work is divided, and so the bits, on a cluster of any size: where fewer workers fit, fewer do
    the same work."""
    address: str | None = None
    """Address of a running cluster, ``auto`` for the one of this machine (``ray``); left out: one
    is started here."""
    gpu_share: Annotated[Positive, Le(1)] | None = None
    """Share of a GPU that each worker takes (``ray`` with ``device = "cuda"``); left out: a whole
    one."""
    wait_s: Positive | None = None
    """Wall seconds to wait for a cluster that has no room for a single worker (``ray``); left out:
    600."""
    differing_nodes: Literal["skip", "refuse"] | None = None
    """What becomes of a run if a node of the cluster has other code or libraries than this process
    (``ray``): ``skip``, as where it is left out, goes on without the node; ``refuse`` ends the run
    before it begins."""


class Checkpointing(KeyTable):
    """When a checkpoint is written: in the first round where either interval has passed."""

    every_rounds: Count = 10
    """Rounds between checkpoints."""
    every_s: Positive = 30.0
    """Wall seconds between checkpoints."""
    keep: Flag = True
    """Keep the last checkpoint of a finished run, so that it can be extended."""


class Tuned(KeyTable):
    """How values of this file were chosen; ``motley tune`` writes it. Changes no result: it is for
    who compares the run with others."""

    values: dict[str, Any]
    """The chosen values, by key."""
    method: dict[str, Any] = Field(default_factory=dict)
    """The keys of the method that they were chosen for."""
    trials: Count
    """Trials of the method."""
    seeds: list[Whole]
    """Seeds of each trial."""
    run_equivalents: Annotated[float, Strict()]
    """What the trials cost, with one run to its end as the unit."""
    objective: list[str]
    """By what they were chosen, on validation samples."""
    spaces: dict[str, str] = Field(default_factory=dict)
    """From which values, by key."""
    study: str = ""
    """The study's id."""


class InitialWeights(KeyTable):
    """Weights that the model begins with, instead of random ones."""

    path: str
    """A run's folder, or a file of weights (``.safetensors``, ``.pt``); a bare path will do for the
    table."""
    only: list[str] = Field(default_factory=lambda: ["*"])
    """Patterns of the names that are loaded, e.g. ``["backbone.*"]``."""
    strict: Flag = True
    """Refuse names that the file or the model lacks."""
    digest: str | None = None
    """Hash of the weights, filled in by itself; part of the run id, which the path is not."""

    @property
    def hashed(self) -> str:
        """The hash of the weights as they are now; where the file is gone, the ``digest`` that is
        given.

        Raises
        ------
        ConfigError: they have another hash than the ``digest`` that is given, or there is neither
        file nor digest.
        """
        if self.digest is not None and no_file(Path(self.path)) == "does not exist":
            return self.digest
        try:
            now = initial_weights.digest(self.path, self.only)
        except DataError as error:
            raise ConfigError(str(error), "init") from None
        if self.digest not in (None, now):
            raise ConfigError(
                f"the weights in {self.path} have the digest {now}, not {self.digest}: they are "
                "others than in the run before; leave digest out to begin with these",
                "init.digest",
            )
        return now


def at_path(value: object) -> object:
    """Return a bare path of weights as a table, also one to which ``--set init.only=...`` has added
    keys."""
    if isinstance(value, Mapping) and "name" in value and "path" not in value:
        return {"path" if key == "name" else key: entry for key, entry in value.items()}
    return {"path": str(value)} if isinstance(value, str | PathLike) else value


def _trackers(value: object) -> object:
    """Return the trackers, each once; a table of names and flags, as experiments had, is those that
    are on."""
    if isinstance(value, Mapping) and "name" not in value:
        value = [name for name, on in value.items() if on]
    entries = list(value) if isinstance(value, list | tuple) else [value]
    trackers = [_tracker(entry) for entry in entries]
    names = [tracker if isinstance(tracker, str) else tracker["name"] for tracker in trackers]
    return list(dict(zip(names, trackers, strict=True)).values())


def _tracker(value: object) -> str | dict[str, Any]:
    """Return a tracker's name or, of one that is to connect to its server, its table."""
    table = dict(value) if isinstance(value, Mapping) and "name" in value else {"name": value}
    name = table["name"]
    if name not in TRACKERS.names():
        hint = suggest(name, TRACKERS.names()) if isinstance(name, str) else ""
        names = ", ".join(TRACKERS.names())
        raise ConfigError(
            f'got {name!r}{hint}; expected some of: {names}, e.g. log = ["tensorboard"]', "log"
        )
    keys = ("name", "online", *_ONLINE_KEYS.get(name, ()))
    for key in table:
        if key not in keys:
            raise ConfigError(
                f"got {key!r}{suggest(key, keys)}; expected some of: {', '.join(keys)}",
                f"log.{name}",
            )
    online = table.get("online", False)
    if not isinstance(online, bool):
        raise ConfigError(f"got {online!r}; expected true or false", f"log.{name}.online")
    if online and name not in _ONLINE_KEYS:
        raise ConfigError(
            f"{name} writes files and has no server; leave online out", f"log.{name}.online"
        )
    if not online and len(table) > 1 + ("online" in table):
        raise ConfigError(
            f"{', '.join(sorted(set(table) - {'name', 'online'}))} is for a server; write "
            "online = true beside it, or leave it out",
            f"log.{name}",
        )
    if online and name == "mlflow":
        _check_server(table)
    return table if online else name


def _check_server(table: Mapping[str, Any]) -> None:
    """Refuse an address that is none, or one with a password, which run.json would show."""
    uri = table.get("uri")
    if not isinstance(uri, str) or not uri.startswith(("http://", "https://")):
        raise ConfigError(
            f'got {uri!r}; expected the address of the server, e.g. uri = "http://127.0.0.1:5000"',
            "log.mlflow.uri",
        )
    if "@" in uri:
        raise ConfigError(
            "an address with a name or password would stand in run.json; set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment",
            "log.mlflow.uri",
        )
    register = table.get("register", "model")
    if not isinstance(register, str) or not register or set(register) & set("/:"):
        raise ConfigError(
            f'got {register!r}; expected a name without / and :, e.g. register = "digits"',
            "log.mlflow.register",
        )


_ONLINE_KEYS: Mapping[str, tuple[str, ...]] = {"mlflow": ("uri", "register"), "wandb": ()}
"""Trackers that can connect to a server, and what else their tables may say then."""

LogKey = Annotated[list[str | dict[str, Any]], BeforeValidator(_trackers)]
"""Trackers, or a single one: names, or tables ``{ name = "wandb", online = true }``."""
