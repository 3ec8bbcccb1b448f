"""What cuts through every round: privacy, the guard, signals of uploads, diagnostics, an idea of
your own.

A run has a list of stages in a fixed order, made once with the loop
(:class:`~motley.rounds.loop.RoundLoop`) from what the experiment asks for. The loop calls them at
the places below; only a stage that overrides a place is called there. A stage owns what it
remembers: it saves and restores that itself, under its name.

    available   choose      which of the available clients may be asked
    cohort      choose      the cohort, in place of the selector's choice
    chosen      choose      the cohort is known, nobody has trained
    weights     dispatch    raw weights of the updates of a cohort
    collected   collect     the dispatches that end with the step are known
    gather      learn       uploads are added from here on; again after a refused step
    upload      learn       one upload before it is added
    total       learn       the aggregate before the server steps on it
    after       learn       the server has stepped
    blamed      learn       what a refused step has shown of clients
    landed      report      the reports on all that ended with the step, before anybody hears them
    ended       report      the step has ended, for everybody who took part in it
    reports     report      what the selector hears of clients; tables show all
    evaluated   examine     the figures of the server's model
    result      examine     the server's state that counts as the run's, now
    models      examine     further models, which are examined beside the server's
    rows        report      rows of tables
    written     report      which columns of a table are written
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from motley.algorithms.parts import ServerState, Tensors, Upload
from motley.core.arrays import Floats, Ids
from motley.core.components import overrides
from motley.core.errors import ConfigError, ContractError
from motley.core.records import Cohort, Reports
from motley.core.server_signals import Value
from motley.rounds.round import LandedReports, ReceivedUpload, Round
from motley.rounds.run_config import RunConfig
from motley.rounds.state import RunState
from motley.tasks.task import ModelState


class Arrived(NamedTuple):
    """One upload on its way into the sum.

    Parameters
    ----------
    row: of the landed dispatches.
    received: as the server decoded it.
    download: the message that its client trained from.
    upload: as it enters the sum.
    signals: that the server computes of it.
    """

    row: int
    received: ReceivedUpload
    download: Tensors
    upload: Upload
    signals: Mapping[str, Value] = {}


class Blamed(NamedTuple):
    """What a refused step has shown of clients.

    Parameters
    ----------
    rows: of the landed dispatches.
    event: what becomes of their uploads, or of the clients.
    reason: in words.
    """

    rows: Ids
    event: Literal["rejected", "set aside"]
    reason: str


class ChosenCohort(NamedTuple):
    """A cohort that is chosen and not sent out yet.

    Parameters
    ----------
    available: ids ``[n]`` that it was chosen from, sorted.
    cohort: the chosen.
    download: the message that they will be sent.
    """

    available: Ids
    cohort: Cohort
    download: Tensors


class Stage:
    """Something that the round loop calls at the places above.

    A stage belongs to one run. What evolves in it is in its attributes, which it makes in
    :meth:`init`, saves and restores."""

    name: ClassVar[str] = ""
    """Under which checkpoints keep what it remembers; left out, the name of its class."""

    single_updates: str | None = None
    """Why every update must travel to the server, after "every update travels: "; None: sums
    may."""

    def init(self, config: RunConfig, server: ServerState) -> None:
        """Make ready, before round 1 and before anything is restored.

        Parameters
        ----------
        config: what is fixed about the run.
        server: the server's state before round 1.
        """

    def save(self, state: RunState[Any]) -> Mapping[str, Any]:
        """Return what evolves, by name: plain values, arrays and tensors."""
        return {}

    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned, tensors as arrays."""

    def available(self, state: RunState[Any], ids: Ids) -> Ids:
        """Return which of these clients may be asked now."""
        return ids

    def cohort(self, state: RunState[Any], available: Ids, count: int) -> Cohort | None:
        """Return a cohort of at most ``count`` of the available clients in place of one that the
        selector chooses; None: the selector chooses."""
        return None

    def chosen(self, state: RunState[Any], step: Round, choice: ChosenCohort) -> Round:
        """Return the round with notes, whose cohort is about to be sent out."""
        return step

    def weights(self, state: RunState[Any], ids: Ids, weights: Floats) -> Floats:
        """Return the raw weights ``[m]`` of the updates of a cohort that is sent out now."""
        return weights

    def collected(self, state: RunState[Any], step: Round) -> None:
        """Take in which dispatches end with this step, and how."""

    def gather(self, state: RunState[Any], step: Round) -> None:
        """Forget what a gathering of the step's uploads before has left: they are added anew."""

    def upload(self, state: RunState[Any], step: Round, arrived: Arrived) -> Arrived:
        """Return one upload before it is added to the sum."""
        return arrived

    def total(self, state: RunState[Any], step: Round) -> Round:
        """Return the round after its uploads were added, with what the server steps on."""
        return step

    def after(self, state: RunState[Any], step: Round) -> None:
        """Take in that the server has stepped on the round's total."""

    def blamed(self, state: RunState[Any], step: Round, blamed: Blamed) -> None:
        """Take note of what a refused step has shown of clients."""

    def landed(self, state: RunState[Any], reports: LandedReports) -> LandedReports:
        """Return the reports on all dispatches that ended with a step, as tables and everybody get
        them."""
        return reports

    def ended(self, state: RunState[Any], step: Round, reports: LandedReports) -> Round:
        """Return the round with notes, after its step has ended.

        Parameters
        ----------
        reports: on all dispatches that ended with it.
        """
        return step

    def reports(self, state: RunState[Any], reports: Reports) -> Reports:
        """Return reports as the selector hears them."""
        return reports

    def evaluated(
        self, state: RunState[Any], scores: Mapping[str, float], due: bool
    ) -> Mapping[str, float]:
        """Return notes of the round, after the server's model was evaluated.

        Parameters
        ----------
        scores: by metric, on the common test set or the mean over clients.
        due: whether the experiment asks for it; else it is only because the run ends.
        """
        return {}

    def result(self, server: ServerState) -> ServerState:
        """Return the server's state that is the run's result, if the run ends now."""
        return server

    def models(self, state: RunState[Any]) -> Mapping[str, ModelState]:
        """Return further models by the scope that their rows of the table ``evaluations`` get."""
        return {}

    def rows(self, state: RunState[Any], last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return tables and their columns to be written with this round.

        Parameters
        ----------
        last: whether the run ends with it.
        """
        return ()

    def written(self, table: str, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns of some rows of a table that are written; those left out stay
        empty."""
        return columns


class PrivateStage(Stage):
    """The stage of a private run, which its plan makes."""

    def begin(self, population: int, simulated: bool) -> None:
        """Make ready, before round 1.

        Parameters
        ----------
        population: K.
        simulated: whether all noise comes from the plan's source; else it comes from the operating
        system, and clients add their own.
        """


class StageOptions(ABC):
    """The options of a stage that an experiment names (key ``stage``); a frozen dataclass."""

    @abstractmethod
    def make(self) -> Stage:
        """Return a new stage for one run."""


class Stages:
    """The stages of a run, in their order; those that are called at a place, under its name.

    Parameters
    ----------
    stages: of which no two have one name.

    Raises
    ------
    ConfigError: two stages have one name, or one saves what it does not restore.
    """

    available: tuple[Stage, ...]
    cohort: tuple[Stage, ...]
    chosen: tuple[Stage, ...]
    weights: tuple[Stage, ...]
    collected: tuple[Stage, ...]
    gather: tuple[Stage, ...]
    upload: tuple[Stage, ...]
    total: tuple[Stage, ...]
    after: tuple[Stage, ...]
    blamed: tuple[Stage, ...]
    landed: tuple[Stage, ...]
    ended: tuple[Stage, ...]
    reports: tuple[Stage, ...]
    evaluated: tuple[Stage, ...]
    result: tuple[Stage, ...]
    models: tuple[Stage, ...]
    rows: tuple[Stage, ...]
    written: tuple[Stage, ...]

    def __init__(self, stages: Iterable[Stage] = ()) -> None:
        self.all = tuple(stages)
        for place in type(self).__annotations__:
            called = tuple(stage for stage in self.all if overrides(stage, Stage, place))
            setattr(self, place, called)
        names = [stage.name or type(stage).__name__ for stage in self.all]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two stages are named {name!r}; name each once", "stage")
        for name, stage in zip(names, self.all, strict=True):
            both = overrides(stage, Stage, "save"), overrides(stage, Stage, "restore")
            if both[0] != both[1]:
                raise ConfigError(
                    f"the stage {name!r} has one of save and restore, and would begin anew where "
                    "a run is resumed; write both",
                    "stage",
                )
        self._kept = {
            name: stage
            for name, stage in zip(names, self.all, strict=True)
            if overrides(stage, Stage, "save")
        }

    def save(self, state: RunState[Any]) -> dict[str, Any]:
        """Return what the stages remember, by their names.

        Raises
        ------
        ContractError: a stage returns something else than values by name.
        """
        saved = {name: stage.save(state) for name, stage in self._kept.items()}
        for name, values in saved.items():
            if not isinstance(values, Mapping):
                raise ContractError(
                    f"save of the stage {name!r} returned {type(values).__name__}; expected a "
                    "mapping of what it remembers, by name"
                )
        return saved

    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned; a stage that was not in the run then (of another
        end, say) begins now."""
        for name, stage in self._kept.items():
            if name in saved:
                stage.restore(state, saved[name])
