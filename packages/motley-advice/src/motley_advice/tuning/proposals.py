"""The values of a trial: proposed by Optuna, and kept in one journal for all methods of a study.

A proposal is a function of (seed, method, number of the trial, results of the trials before): for
every trial the sampler begins anew, from a key of its own. So a search that was interrupted goes on
as if nothing had happened.

The journal is a text file to which lines are appended, each durable before the next: a kill leaves
at most half a line at its end, which is taken away. SQLite would do the same, with a database
engine and its migrations in between.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from motley.core.errors import ConfigError, StoreError, install_hint
from motley.core.files import disk_error, no_file
from motley.core.keys import Key
from motley_advice.tuning.spaces import NumberSpace, Space

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import JournalStorage

SPREAD = 8
"""The first trials, which are spread evenly over the spaces; from then on Optuna's TPE proposes."""
_ATTEMPTS = 10
"""Proposals of values that were tried already, before the first that was not tried is taken."""


def need_optuna() -> None:
    """Refuse to tune without Optuna.

    Raises
    ------
    ConfigError: it is not installed.
    """
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        sentence = "tuning needs Optuna, which is not installed; run: "
        raise ConfigError(sentence + install_hint("tune", "motley-advice")) from None


@contextmanager
def opened(path: Path) -> Iterator[JournalStorage]:
    """Yield the storage in a journal of which the caller has the folder to itself; Optuna is silent
    until the end.

    Raises
    ------
    StoreError: the journal is damaged, or the disk is full or refuses, then or later.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    class Backend(JournalFileBackend):
        """The journal's file, whose errors are sentences."""

        @override
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            try:
                super().append_logs(logs)
            except OSError as error:
                raise disk_error(error, path) from None

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        try:
            _mend(path)
            storage = JournalStorage(Backend(str(path)))
        except OSError as error:
            raise disk_error(error, path) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, type(error).__name__) from None
        yield storage
    finally:
        optuna.logging.set_verbosity(level)


def _mend(path: Path) -> None:
    """Remove what a killed process left: its lock, and half a line at the end.

    Raises
    ------
    StoreError: another line is no line of a journal, or the file is none.
    """
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    reason = no_file(path)
    if reason == "does not exist":
        return
    if reason is not None:
        raise StoreError(
            f"{path} {reason}; expected a study's journal: choose another output folder"
        )
    raw = path.read_bytes()
    complete = raw[: raw.rfind(b"\n") + 1]
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            sound = "op_code" in json.loads(line)
        except (ValueError, TypeError):
            sound = False
        if not sound:
            raise _damaged(path, f"line {number}")
    if len(complete) < len(raw):
        with path.open("r+b") as file:
            file.truncate(len(complete))


def _damaged(path: Path, where: str) -> StoreError:
    return StoreError(
        f"{path} is damaged ({where}); remove the study's folder {path.parent}, or choose another "
        "output folder"
    )


class Proposals:
    """The trials of one method.

    Parameters
    ----------
    storage: of the study's folder.
    name: of the method.
    spaces: by key.
    key: of the study.
    objectives: their number.
    own_values: the values that the file has, which the first trial takes where the spaces have
    them.
    """

    def __init__(
        self,
        storage: JournalStorage,
        name: str,
        spaces: Mapping[str, Space],
        key: Key,
        objectives: int,
        own_values: Mapping[str, Any],
    ) -> None:
        import optuna

        self._study: Study
        try:
            self._study = optuna.load_study(study_name=name, storage=storage)
        except KeyError:
            self._study = optuna.create_study(
                storage=storage, study_name=name, directions=["minimize"] * objectives
            )
        self._spaces = spaces
        self._objectives = objectives
        self._own_values = own_values
        self._key = key
        self._own_key = key.fold(name)
        self._values: list[dict[str, Any]] = []
        self._numbers: list[int] = []
        self._told: list[bool] = []
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state == optuna.trial.TrialState.FAIL:
                continue
            if set(trial.params) == set(spaces) and not self._known(trial.params):
                self._add(trial.number, trial.params, trial.state.is_finished())
            else:  # a process was killed while it was made
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

    def _add(self, number: int, params: Mapping[str, Any], finished: bool) -> None:
        self._values.append({key: space.value(params[key]) for key, space in self._spaces.items()})
        self._numbers.append(number)
        self._told.append(finished)

    def _known(self, params: Mapping[str, Any]) -> bool:
        return {
            key: space.value(params[key]) for key, space in self._spaces.items()
        } in self._values

    def told(self, number: int) -> bool:
        """Return whether the result of a trial is known."""
        return number < len(self._told) and self._told[number]

    def values(self, number: int) -> dict[str, Any]:
        """Return key -> value of a trial; the next one is proposed if it is new."""
        import optuna

        if number < len(self._values):
            return self._values[number]
        for attempt in range(_ATTEMPTS + 1):
            trial = self._asked(number, attempt)
            if not self._known(trial.params):
                self._add(trial.number, trial.params, False)
                return self._values[number]
            self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        raise AssertionError("a value that was not tried is proposed at last")

    def _asked(self, number: int, attempt: int) -> Any:
        """Return a new trial of Optuna's, whose values depend on the trials told, its number and
        the attempt alone."""
        import optuna

        seed = self._own_key.fold(number, attempt).words()[0] % 2**32
        fixed: dict[str, Any] = {}
        if attempt == _ATTEMPTS:
            fixed = self._untried(number)
        elif number < SPREAD and not attempt:
            fixed = self._spread(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed,
                multivariate=self._objectives == 1,
                constant_liar=True,
                n_startup_trials=4,
            )
            self._study.sampler = (
                optuna.samplers.PartialFixedSampler(fixed, sampler) if fixed else sampler
            )
            return self._study.ask(
                {key: _distribution(space) for key, space in self._spaces.items()}
            )

    def _spread(self, number: int) -> dict[str, Any]:
        """Return the params of one of the first trials: the file's own values, then points spread
        evenly (Kronecker's sequence with the generalized golden ratio, from a random start)."""
        own = {key: space.number(self._own_values.get(key)) for key, space in self._spaces.items()}
        if not number and None not in own.values():
            return {key: _param(space, own[key] or 0.0) for key, space in self._spaces.items()}
        ratio = 2.0
        for _ in range(50):
            ratio = (1 + ratio) ** (1 / (len(self._spaces) + 1))
        params = {}
        for place, (key, space) in enumerate(self._spaces.items(), 1):
            start = float(self._key.fold("spread", key).uniform([0])[0, 0])
            params[key] = _param(space, space.at((start + number * ratio**-place) % 1.0))
        return params

    def _untried(self, number: int) -> dict[str, Any]:
        """Return the first combination that was not tried, from a random one on; only spaces
        without a continuum come here."""
        sizes = [space.size or 1000 for space in self._spaces.values()]
        total = 1
        for size in sizes:
            total *= size
        start = int(self._own_key.fold("untried", number).uniform([0])[0, 0] * total)
        for position in range(total):
            left = (start + position) % total
            params = {}
            for (key, space), size in zip(self._spaces.items(), sizes, strict=True):
                left, at = divmod(left, size)
                params[key] = _param(space, space.at((at + 0.5) / size))
            if not self._known(params):
                return params
        return {}

    def tell(self, number: int, orders: Sequence[float], record: Mapping[str, Any]) -> None:
        """Keep the outcome of a trial's first part: what it is compared by, smaller is better, and
        its record."""
        self.keep(number, 0, record)
        self._study.tell(self._numbers[number], list(orders))
        self._told[number] = True

    def keep(self, number: int, rung: int, record: Mapping[str, Any]) -> None:
        """Keep the record of a trial's part up to the rung."""
        self._study.set_user_attr(f"trial {number} rung {rung}", dict(record))

    def kept(self, number: int, rung: int) -> dict[str, Any] | None:
        """Return the record of a trial's part up to the rung; None where it has not been run."""
        record: dict[str, Any] | None = self._study.user_attrs.get(f"trial {number} rung {rung}")
        return record


def _distribution(space: Space) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(space, NumberSpace):
        return CategoricalDistribution(tuple(range(len(space.values))))
    if space.integer:
        return IntDistribution(int(space.low), int(space.high))
    return FloatDistribution(space.low, space.high, log=space.log)


def _param(space: Space, number: float) -> Any:
    """Return a number of the search in the type of its distribution."""
    return float(number) if isinstance(space, NumberSpace) and not space.integer else int(number)
