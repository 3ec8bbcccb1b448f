"""Interfaces of everything that makes clients differ: data partitions, shifts, devices, networks,
availability, failures and lies.

Every model is a pure function of (key, ids, round, time): the same question always has the same
answer, so nothing is saved. ``round_index`` is the number of the round, from 1; a model with
``per = "client"`` ignores it, one with ``per = "round"`` folds it into the key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal

import numpy as np

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.components import overrides
from motley.core.keys import Key
from motley.core.ragged import Ragged


@dataclass(frozen=True)
class Partitioned:
    """The result of a partition.

    Parameters
    ----------
    rows: row numbers of each client, sorted within a client.
    notes: what the partition did, for readers of the results.
    overlap: a row may belong to several clients (never twice to one).
    """

    rows: Ragged
    notes: Mapping[str, str] = field(default_factory=dict)
    overlap: bool = False


class Partition(ABC):
    """A rule that divides samples among clients: a frozen dataclass of options."""

    @property
    def fixes_population(self) -> bool:
        """Whether :meth:`fixed_population` may return a number, because the data itself has
        clients."""
        return overrides(self, Partition, "fixed_population")

    @property
    def uses_classes(self) -> bool:
        """Whether samples are divided by their classes, so that each needs one."""
        return False

    @property
    def in_file_order(self) -> bool:
        """Whether the parts depend on the order of the rows in the original files, in which
        :meth:`split` then gets them."""
        return False

    def fixed_population(self, groups: Ids | None) -> int | None:
        """Return the number of clients if the data determines it; None (the default) if the
        experiment does."""
        return None

    @abstractmethod
    def split(
        self, key: Key, labels: Ints, population: int, groups: Ids | None = None
    ) -> Partitioned:
        """Divide the rows among the clients.

        Parameters
        ----------
        labels: class of each row ``[n]``.
        population: number of clients.
        groups: natural client of each row ``[n]``, or None.

        Raises
        ------
        ConfigError: the data does not allow it; the message names the numbers.
        """


class LabelNoise(ABC):
    """Wrong labels, drawn once per training sample when the federation is made; test labels stay
    clean."""

    @abstractmethod
    def apply(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> tuple[Ints, Floats]:
        """Return the new labels ``[n]`` and the intended share of wrong labels per client
        ``[population]``.

        ``numbers``: of each row ``[n]``, where clients came with their rows: what is drawn for a
        row is then a function of its number (:func:`motley.world.draws.row_uniform`), so that no
        client's rows change another's. None: of a pool.
        """


@dataclass(frozen=True)
class Appearance:
    """How each sample is transformed; one number per row and transformation, ``[n]`` each.

    Parameters
    ----------
    degrees: rotation, counter-clockwise.
    blur: standard deviation in pixels.
    contrast, brightness: factors.
    noise: standard deviation, where white is 1.
    """

    degrees: Floats
    blur: Floats
    contrast: Floats
    brightness: Floats
    noise: Floats

    @classmethod
    def plain(cls, n: int) -> Appearance:
        """Return the appearance of ``n`` samples that are not transformed."""
        zero = np.zeros(n)
        unit = np.ones(n)
        return cls(degrees=zero, blur=zero, contrast=unit, brightness=unit, noise=zero)

    def __getitem__(self, which: Ids | slice) -> Appearance:
        return Appearance(*(getattr(self, f.name)[which] for f in fields(self)))

    @property
    def needs_images(self) -> bool:
        """Whether any row asks for more than noise, which can be added to any features."""
        plain = Appearance.plain(len(self.noise))
        return any(
            (getattr(self, f.name) != getattr(plain, f.name)).any()
            for f in fields(self)
            if f.name != "noise"
        )


class FeatureShift(ABC):
    """Features that differ between clients, drawn once; applied by
    :func:`motley.world.shift.feature_shift.shifted`."""

    def group(self, key: Key, ids: Ids, population: int) -> Ints:
        """Return the domain of each client ``[len(ids)]``, by which results can be reported; all 0
        by default."""
        return np.zeros(len(ids), np.int64)

    @abstractmethod
    def appearance(self, key: Key, ids: Ids, population: int) -> Appearance:
        """Return how each client's samples are transformed, one row per client ``[len(ids)]``."""


class ConceptShift(ABC):
    """Classes that carry other labels at other clients: true labels, for training and testing
    alike."""

    def group(self, key: Key, ids: Ids) -> Ints:
        """Return the cluster of each client ``[len(ids)]``; all 0 by default."""
        return np.zeros(len(ids), np.int64)

    @abstractmethod
    def tables(self, key: Key, classes: int) -> Ints:
        """Return the label of each class in each cluster ``[J, C]``."""

    def apply(
        self, key: Key, labels: Ints, owner: Ids, classes: int, population: int
    ) -> tuple[Ints, Ints]:
        """Return the new labels ``[n]`` and the cluster of each client ``[population]``."""
        cluster = self.group(key, np.arange(population))
        return self.tables(key, classes)[cluster[owner], labels], cluster


class Drift(ABC):  # noqa: B024  (each kind overrides what changes; by default nothing does)
    """A data distribution that changes during the run. Samples are ordered once; every dispatch
    asks for windows and tables."""

    @property
    def moves_window(self) -> bool:
        """Whether :meth:`window` may depend on time."""
        return overrides(self, Drift, "window")

    @property
    def renames_classes(self) -> bool:
        """Whether :meth:`tables` may depend on time."""
        return overrides(self, Drift, "tables")

    @property
    def follows_time(self) -> bool:
        """Whether anything here depends on ``time_s``; a class that does not say otherwise is taken
        to do so."""
        return self.moves_window or self.renames_classes

    def order(
        self,
        key: Key,
        labels: Ints,
        owner: Ids,
        classes: int,
        population: int,
        numbers: Ints | None = None,
    ) -> Ints:
        """Return positions of the training samples ``[n]``, client by client, in the order in which
        windows pass over them; ``numbers`` as of :meth:`LabelNoise.apply`."""
        return np.argsort(owner, kind="stable")

    def window(
        self, key: Key, ids: Ids, sizes: Ints, round_index: int, time_s: float
    ) -> tuple[Ints, Ints]:
        """Return the part of its samples that each client uses now: first position and length,
        ``[len(ids)]`` each.

        Positions wrap around at the client's size; the length never changes with time.
        """
        return np.zeros(len(ids), np.int64), sizes

    def tables(self, key: Key, ids: Ids, classes: int, round_index: int, time_s: float) -> Ints:
        """Return the label of each class at each client now, ``[len(ids), C]``."""
        return np.broadcast_to(np.arange(classes), (len(ids), classes))


class Device(ABC):
    """How long a client computes.

    ``follows_examples``: seconds per step depend on the number of samples, so that time tells it. A
    class that does not say otherwise is taken to do so, because private runs rely on it.
    """

    follows_examples: ClassVar[bool] = True

    @abstractmethod
    def step_s(self, key: Key, ids: Ids, round_index: int, examples: Ints, steps: Ints) -> Floats:
        """Return the seconds per local step ``[len(ids)]``; ``examples`` and ``steps``: each
        client's samples and full local work."""


class Network(ABC):
    """How fast a client sends and receives, in megabits (10^6 bits) a second."""

    @abstractmethod
    def uplink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        """Return the uplink of each client ``[len(ids)]``; infinity is allowed."""

    def wants(self) -> Mapping[str, int | None]:
        """Return the signals that links depend on: name -> number of batches to measure on (None:
        all data); none by default.

        They are measured at all clients on the current model. This is the one way in which a world
        depends on learning.
        """
        return {}

    def coupled_mbps(self, key: Key, ids: Ids, round_index: int, losses: Floats) -> Floats:
        """Return the uplink of the whole population ``ids`` given all clients' losses
        ``[len(ids)]``, NaN where unknown."""
        return self.uplink_mbps(key, ids, round_index)

    def downlink_mbps(self, key: Key, ids: Ids, round_index: int) -> Floats:
        """Return the downlink ``[len(ids)]``; infinity (the default): downloads take no time, but
        their traffic is counted."""
        return np.full(len(ids), np.inf)


class Availability(ABC):
    """Which clients are online."""

    @property
    def follows_time(self) -> bool:
        """Whether :meth:`online` depends on ``time_s``; a class that does not say otherwise is
        taken to do so."""
        return True

    @abstractmethod
    def online(self, key: Key, ids: Ids, round_index: int, time_s: float) -> Bools:
        """Return whether each client is online ``[len(ids)]``."""

    def back_s(self, key: Key, ids: Ids, round_index: int, time_s: float) -> float:
        """Return the moment from ``time_s`` on at which one of these clients is online, or at which
        it is worth looking again: by default at once where only the round counts, else a second
        later."""
        there = self.online(key, ids, round_index, time_s).any()
        return time_s if there or not self.follows_time else time_s + 1.0


class Failures(ABC):  # noqa: B024  (each kind overrides what fails; by default nothing does)
    """Which clients drop out after being dispatched, and which updates are corrupted."""

    @property
    def corrupts_updates(self) -> bool:
        """Whether :meth:`upload_factor` may differ from 1."""
        return overrides(self, Failures, "upload_factor")

    @property
    def nobody_delivers(self) -> bool:
        """Whether it is certain that no client ever delivers anything."""
        return False

    def drop_at(self, key: Key, ids: Ids, round_index: int) -> Floats:
        """Return the share of the local work after which each client drops out, in [0, 1]; NaN (the
        default): it does not."""
        return np.full(len(ids), np.nan)

    def upload_factor(self, key: Key, ids: Ids, round_index: int) -> Floats:
        """Return the factor on each client's update before it is sent; 1 (the default): honest;
        NaN: a non-finite update."""
        return np.ones(len(ids))


class Dishonest(ABC):  # noqa: B024  (each kind overrides how clients lie; by default none does)
    """Which clients lie about themselves, about what, and what they claim."""

    @property
    def lies(self) -> bool:
        """Whether :meth:`claims` may differ from the truth."""
        return overrides(self, Dishonest, "claims")

    @property
    def hears_others(self) -> bool:
        """Whether :meth:`goal` depends on what honest clients say."""
        return overrides(self, Dishonest, "goal")

    def liars(self, key: Key, ids: Ids, round_index: int) -> Bools:
        """Return which of these clients lie in this round ``[len(ids)]``; 0 is enrolment before
        round 1."""
        return np.zeros(len(ids), bool)

    def topics(self) -> frozenset[str]:
        """Return the topics of :data:`motley.core.claims.TOPICS` that they lie about."""
        return frozenset()

    def goal(self, heard: Floats) -> float:
        """Return the one number that liars orient themselves by, given the appeal of honest
        clients' numbers ``[k]``, k >= 1; NaN (the default): none."""
        return np.nan

    def claims(self, appeal: Floats, goal: float) -> Floats:
        """Return the appeal of what liars claim, given that of the truth ``[n]``; ``goal`` is NaN
        before anything was heard."""
        return appeal


class Capacity(ABC):
    """How much a client can hold: a share of the model's width, for methods whose clients train
    slices of it, or a batch size. ``measure``: what :meth:`level` looks at of each level, the time
    or the bytes that a step takes, or the seconds of a client's whole round."""

    measure: ClassVar[Literal["time", "bytes", "round", "nothing"]] = "time"
    requires: ClassVar[frozenset[str]] = frozenset()
    """Columns of the selector's cohort that :meth:`chosen` needs."""

    def chosen(self, ids: Ids, scores: Floats) -> Floats:
        """Return the largest share of the width that each client of a cohort is given, ``[m]``,
        whatever it could hold; ``scores``: the selector's, ``[m]``."""
        return np.ones(len(ids))

    @property
    def outer(self) -> Capacity | None:
        """The capacity that this one lies within, whose shares of the width are limits, too; None:
        there is none."""
        return None

    @property
    def chain(self) -> list[Capacity]:
        """This capacity and those that it lies within: a client holds the least that they give."""
        return [self, *([] if self.outer is None else self.outer.chain)]

    @property
    @abstractmethod
    def levels(self) -> tuple[float, ...]:
        """The shares of the width that a client may hold, falling; of no meaning with
        :attr:`batch_sizes`."""

    @property
    @abstractmethod
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes that a client may hold, falling; empty where widths differ."""

    @abstractmethod
    def level(self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats) -> Ids:
        """Return the number of each client's level ``[len(ids)]``, from 0.

        Parameters
        ----------
        step_s: seconds of a local step of the whole model on a whole batch, for each of these
        clients in this round.
        cost: share of these seconds that a step takes at each level, falling; where :attr:`measure`
        says so the bytes that training takes, or the seconds of each client's round, ``[len(ids),
        levels]``.
        """

    def widths(
        self, key: Key, ids: Ids, round_index: int, step_s: Floats, cost: Floats | None = None
    ) -> Floats:
        """Return the share of the width of each client ``[len(ids)]``, in (0, 1]; ``step_s``,
        ``cost``: see :meth:`level`, the squares of the levels by default."""
        if self.batch_sizes:
            return np.ones(len(ids))
        levels = np.array(self.levels)
        return np.asarray(
            levels[
                self.level(
                    key, ids, round_index, step_s, np.square(levels) if cost is None else cost
                )
            ],
            np.float64,
        )

    def held_batch_sizes(
        self, key: Key, ids: Ids, step_s: Floats, batch_size: int, cost: Floats | None = None
    ) -> Ids:
        """Return the samples that each client takes in a step ``[len(ids)]``, at most
        ``batch_size``, the same in every round, where there are :attr:`batch_sizes`; ``step_s``,
        ``cost``: see :meth:`level`, of round 1, the shares of the batch by default."""
        sizes = np.minimum(self.batch_sizes, batch_size)
        share = sizes / batch_size if cost is None else cost
        return np.asarray(sizes[self.level(key, ids, 1, step_s, share)], np.int64)


@dataclass(frozen=True)
class World:
    """The conditions of a run: one model of each kind; without a ``capacity`` every client holds
    the whole model."""

    device: Device
    network: Network
    availability: Availability
    failures: Failures
    drift: Drift = field(default_factory=Drift)
    dishonest: Dishonest = field(default_factory=Dishonest)
    capacity: Capacity | None = None
