"""Let a strategy make its step on clients' replies, and refuse a step that ruins the model or the
strategy.

A step is *sound* where the new model has the names and shapes of the model sent, all its numbers
are finite, and so are the numbers that the strategy keeps. Where it is not, or where the strategy
raises, the strategy is put back, the replies that spoil it are named, and the step is made again
without them: those with which alone a step is not sound, else those whose updates stand out
(:mod:`motley.core.outliers`). Where that does not help, the model of before stays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from motley.core.errors import UserError
from motley.core.outliers import outlying_of_arrays
from motley.core.untrusted import one_line
from motley_flower.messages import flower
from motley_flower.strategy.attributes import nested
from motley_flower.strategy.coordinator import SelectionCoordinator

_NOT_KEPT = ("motley", "strategy")
"""Attributes that are no part of a strategy's own state."""


@dataclass(frozen=True)
class _Attempt:
    """What a step came to: the model and the metrics, why they are not sound (empty where they
    are), and what was raised."""

    arrays: Any = None
    metrics: Any = None
    problem: str = ""
    error: Exception | None = None


class GuardedStep:
    """The step of one round.

    Parameters
    ----------
    strategy: whose state is put back after a step that is not sound.
    coordinator: of the run; is told whose replies are rejected.
    aggregate: given replies, returns the strategy's new model and metrics.
    """

    def __init__(
        self,
        strategy: Any,
        coordinator: SelectionCoordinator,
        aggregate: Callable[[list[Any]], tuple[Any, Any]],
    ) -> None:
        self._strategies = list(nested(strategy))
        self._coordinator = coordinator
        self._aggregate = aggregate
        self._current = coordinator.opened
        self._before = [_copied(vars(inner)) for inner in self._strategies]

    def take(self, replies: list[Any]) -> tuple[Any, Any]:
        """Return the new model and the metrics; None for both where no sound step can be made.

        Raises
        ------
        Exception: what the strategy raises whatever it is given.
        """
        first = self._attempt(replies)
        if not first.problem:
            return first.arrays, first.metrics
        for find in (self._spoiling_alone, self._standing_out):
            named = find(replies)
            remaining = [reply for reply in replies if self._client(reply) not in named]
            if not named or not remaining:
                continue
            again = self._attempt(remaining)
            if not again.problem:
                self._coordinator.blame(
                    f"{first.problem}; the step was made again without it", named
                )
                return again.arrays, again.metrics
        return self._last_resort(first)

    def put_back(self) -> None:
        """Give the strategy the state that it had before the step."""
        for inner, before in zip(self._strategies, self._before, strict=True):
            now = vars(inner)
            for name in [name for name in now if name not in before and name not in _NOT_KEPT]:
                del now[name]
            now.update(_copied(before))

    def _last_resort(self, first: _Attempt) -> tuple[Any, Any]:
        """Try the form of replies that the strategy may need, else keep the model of before."""
        if first.error is not None:
            tied = self._coordinator.with_tied_form()
            if tied:
                again = self._attempt(tied)
                if not again.problem:
                    return again.arrays, again.metrics
            if not isinstance(
                first.error, flower("serverapp.exception").InconsistentMessageReplies
            ):
                raise first.error
            self._coordinator.refuse(str(first.error))
        else:
            self._coordinator.reject(
                f"{first.problem}; no reply stands out, and the model of before stays"
            )
        return None, None

    def _attempt(self, replies: list[Any]) -> _Attempt:
        """Make a step; a strategy whose step is not sound is put back. The replies stay as they
        are: some strategies empty them."""
        contents = [(reply, reply.content) for reply in replies]
        for reply, content in contents:
            reply.content = _copy_of(content)
        try:
            arrays, metrics = self._aggregate(replies)
            attempt = _Attempt(arrays, metrics, self._unsound(arrays))
        except UserError:
            raise
        except Exception as error:  # whatever a strategy raises at what clients send
            attempt = _Attempt(
                problem=f"with it the strategy raises {type(error).__name__}: "
                f"{one_line(str(error))}",
                error=error,
            )
        for reply, content in contents:
            reply.content = content
        if attempt.problem:
            self.put_back()
        return attempt

    def _unsound(self, arrays: Any) -> str:
        """Return what is wrong with a step in words; empty where it is sound, or where the strategy
        made none."""
        if arrays is None:
            return ""
        like = self._current.model if self._coordinator.settings.uploads == "as_sent" else None
        if like is not None and {k: tuple(v.shape) for k, v in arrays.items()} != {
            k: tuple(v.shape) for k, v in like.items()
        }:
            return "with it the model gets other names or shapes than were sent"
        if not all(_finite(array.numpy()) for array in arrays.values()):
            return "with it the model gets numbers that are not finite"
        for inner, before in zip(self._strategies, self._before, strict=True):
            for name, value in vars(inner).items():
                if name not in _NOT_KEPT and not _finite(value) and _finite(before.get(name)):
                    return f"with it the strategy's {name!r} gets numbers that are not finite"
        return ""

    def _client(self, reply: Any) -> int:
        return self._current.clients[reply.metadata.src_node_id]

    def _spoiling_alone(self, replies: list[Any]) -> list[int]:
        """Return the clients with whose reply alone no step is sound."""
        spoil = []
        for reply in replies if len(replies) > 1 else ():
            if self._attempt([reply]).problem:
                spoil.append(self._client(reply))
            self.put_back()
        return spoil

    def _standing_out(self, replies: list[Any]) -> list[int]:
        """Return the clients whose updates stand out."""
        clients = [self._client(reply) for reply in replies]
        results = [self._current.checked[client].result for client in clients]
        sent = {name: array.numpy() for name, array in self._current.model.items()}
        if self._coordinator.settings.uploads != "as_sent" or self._coordinator.secure is not None:
            return []
        updates = [
            [
                np.subtract(result.arrays[name], sent[name], dtype=np.float64)
                for result in results
                if result
            ]
            for name in sent
        ]
        return [clients[i] for i in outlying_of_arrays(updates)]


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a strategy's attributes; what cannot be copied stays the same object."""
    # One memo for all: two attributes that are one object stay one object.
    memo: dict[int, Any] = {}
    copies = {}
    for name, value in state.items():
        if name in _NOT_KEPT:
            continue
        try:
            copies[name] = copy.deepcopy(value, memo)
        except Exception:  # whatever an object that cannot be copied may raise
            copies[name] = value
    return copies


def _copy_of(content: Any) -> Any:
    """Return a reply's records whose arrays may be taken out."""
    app = flower()
    taken = {
        name: app.ArrayRecord(dict(record.items()))
        for name, record in content.array_records.items()
    }
    return app.RecordDict({**dict(content.items()), **taken})


def _finite(value: Any) -> bool:
    """Return whether all numbers in an array, or in arrays in lists and dicts, are finite."""
    if isinstance(value, float | np.ndarray | np.generic):
        return not np.issubdtype(np.asarray(value).dtype, np.inexact) or bool(
            np.isfinite(value).all()
        )
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_finite, value))
    return _finite(value.numpy()) if hasattr(value, "stype") else True
