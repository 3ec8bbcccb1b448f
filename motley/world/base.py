"""What the world is made of. Every model is a pure function of (key, ids, moment): asking twice gives the same answer.

``moment`` is the round number; a model with ``per = "client"`` ignores it, one with ``per = "round"`` folds it into the key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids
from motley.core.components import require_declared
from motley.core.keys import Key
from motley.core.ragged import Ragged

__all__ = [
    "Appearance",
    "Availability",
    "ConceptShift",
    "Device",
    "Drift",
    "Failures",
    "FeatureShift",
    "LabelNoise",
    "Network",
    "Partition",
    "Partitioned",
    "World",
]


@dataclass(frozen=True)
class Partitioned:
    """Whose each row is: row numbers per client (sorted within a client), and what the partition did, in words.

    ``overlap``: a row may be given to several clients (never twice to one)."""

    rows: Ragged
    notes: Mapping[str, str] = field(default_factory=dict)
    overlap: bool = False


class Partition(ABC):
    """Divides rows among clients. A frozen dataclass of options.

    ``fixes_population``: :meth:`fixed_population` returns a number, because the data itself has clients.
    """

    fixes_population: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        require_declared(cls, Partition, {"fixed_population": "fixes_population"})

    def fixed_population(self, groups: Ids | None) -> int | None:
        """The number of clients where the data fixes it; None (the default) where the experiment chooses."""
        return None

    @abstractmethod
    def split(self, key: Key, labels: Ids, population: int, groups: Ids | None = None) -> Partitioned:
        """Parameters: class of each row ``[n]``, number of clients, natural client of each row or None.

        Raises ConfigError for what cannot be done (named, with the numbers)."""


class LabelNoise(ABC):
    """Wrong labels, drawn once per training sample when the federation is made. Never on test labels."""

    @abstractmethod
    def apply(self, key: Key, labels: Ids, owner: Ids, classes: int, population: int) -> tuple[Ids, Floats]:
        """New labels ``[n]`` and the share of labels meant to be wrong per client ``[population]``."""


@dataclass(frozen=True)
class Appearance:
    """One look per row, ``[n]`` each.

    Parameters
    ----------
    degrees: counter-clockwise. blur: deviation in pixels. contrast, brightness: factors. noise: deviation, white being 1.
    """

    degrees: Floats
    blur: Floats
    contrast: Floats
    brightness: Floats
    noise: Floats

    @classmethod
    def plain(cls, n: int) -> Appearance:
        """Nothing changed."""
        zero, one = np.zeros(n), np.ones(n)
        return cls(zero, zero, one, one, zero)

    def __getitem__(self, which: Ids | slice) -> Appearance:
        return Appearance(*(getattr(self, f.name)[which] for f in fields(self)))

    @property
    def pictures_only(self) -> bool:
        """Whether something asks for more than noise, which any features can have."""
        plain = Appearance.plain(len(self.noise))
        return any((getattr(self, f.name) != getattr(plain, f.name)).any() for f in fields(self) if f.name != "noise")


class FeatureShift(ABC):
    """Features that look different at every client, drawn once; see :func:`motley.world.shift.feature_shift.shifted`."""

    def group(self, key: Key, ids: Ids, population: int) -> Ids:
        """The domain of each client, by which figures can be told; all 0 (the default) where there is nothing to tell."""
        return np.zeros(len(ids), np.int64)

    @abstractmethod
    def looks(self, key: Key, ids: Ids, population: int) -> Appearance:
        """What each client's samples look like ``[len(ids)]``."""


class ConceptShift(ABC):
    """Labels that mean something else at other clients: true ones, for training and testing alike."""

    def group(self, key: Key, ids: Ids) -> Ids:
        """The cluster of each client; all 0 by default."""
        return np.zeros(len(ids), np.int64)

    @abstractmethod
    def tables(self, key: Key, classes: int) -> Ids:
        """What each cluster calls each class ``[J, C]``."""

    def apply(self, key: Key, labels: Ids, owner: Ids, classes: int, population: int) -> tuple[Ids, Ids]:
        """New labels ``[n]`` and the cluster of each client ``[population]``."""
        cluster = self.group(key, np.arange(population))
        return self.tables(key, classes)[cluster[owner], labels], cluster


class Drift(ABC):  # noqa: B024  (each kind says only what moves; nothing does by default)
    """A distribution that moves with time. Data is ordered once, then every dispatch asks for its window and its tables.

    ``moves_window``: :meth:`window` depends on time; ``renames_classes``: :meth:`tables` does. What is not declared is not asked.
    """

    moves_window: ClassVar[bool] = False
    renames_classes: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        require_declared(cls, Drift, {"window": "moves_window", "tables": "renames_classes"})

    def order(self, key: Key, labels: Ids, owner: Ids, classes: int, population: int) -> Ids:
        """Places of the training samples, client by client, in the order in which windows pass over them."""
        return np.argsort(owner, kind="stable")

    def window(self, key: Key, ids: Ids, sizes: Ids, moment: int, time_s: float) -> tuple[Ids, Ids]:
        """The part of its samples that a client sees now: first place and how many, modulo its size ``[len(ids)]`` each. How many
        never changes with time."""
        return np.zeros(len(ids), np.int64), sizes

    def tables(self, key: Key, ids: Ids, classes: int, moment: int, time_s: float) -> Ids:
        """What each client calls each class now ``[len(ids), C]``."""
        return np.broadcast_to(np.arange(classes), (len(ids), classes))


class Device(ABC):
    """How long a client computes."""

    @abstractmethod
    def step_s(self, key: Key, ids: Ids, moment: int, examples: Ids, steps: Ids) -> Floats:
        """Seconds per local step ``[len(ids)]``; ``examples`` and ``steps`` are each client's samples and full local work."""


class Network(ABC):
    """How fast a client sends and receives, in megabits (10^6 bits) a second."""

    @abstractmethod
    def uplink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """Uplink ``[len(ids)]``; infinity is allowed."""

    def wants(self) -> Mapping[str, int | None]:
        """Signals of all clients at the current model that links depend on, and on how many batches (None: all data); nothing is
        the default. The one declared exception to a world that knows nothing of learning."""
        return {}

    def coupled_mbps(self, key: Key, ids: Ids, moment: int, losses: Floats) -> Floats:
        """Uplink of the whole population ``ids`` given everybody's losses ``[len(ids)]``, NaN where unknown."""
        return self.uplink_mbps(key, ids, moment)

    def downlink_mbps(self, key: Key, ids: Ids, moment: int) -> Floats:
        """Downlink ``[len(ids)]``; infinity (the default): the download is free in time; its bytes are billed."""
        return np.full(len(ids), np.inf)


class Availability(ABC):
    """Who can be asked now."""

    @abstractmethod
    def online(self, key: Key, ids: Ids, moment: int, time_s: float) -> NDArray[np.bool_]:
        """One flag per client."""


class Failures(ABC):  # noqa: B024  (each kind says only what fails; nothing is the default)
    """Who breaks off after being asked, and whose update is not what it should be.

    ``corrupts_updates``: :meth:`upload_factor` can differ from 1.
    """

    corrupts_updates: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        require_declared(cls, Failures, {"upload_factor": "corrupts_updates"})

    def drop_at(self, key: Key, ids: Ids, moment: int) -> Floats:
        """Share of the local work after which the client is gone, in [0, 1]; NaN (the default): it stays."""
        return np.full(len(ids), np.nan)

    def upload_factor(self, key: Key, ids: Ids, moment: int) -> Floats:
        """What the client's update is multiplied by before it is sent; 1 (the default): it is honest. NaN spoils it."""
        return np.ones(len(ids))


@dataclass(frozen=True)
class World:
    """The conditions of a run."""

    device: Device
    network: Network
    availability: Availability
    failures: Failures
    drift: Drift = field(default_factory=Drift)
