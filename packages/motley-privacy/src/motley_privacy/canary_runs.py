"""Runs of a private experiment in two worlds: its own data, model and world, with a canary that
sends or does not.

Data, partition, model at the start, batches, devices and links are the same in all trials and known
to the adversary; noise and choices are drawn anew in each. Reference: docs/privacy.md#attack.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.experiments.build import Ready
from motley.rounds.run_config import EvaluationSchedule, Stop
from motley.selectors.selector import Selector
from motley.tasks.task import IGNORED, Federation
from motley_privacy.attacked import Canary, attacked_run
from motley_privacy.audited import AuditedWorlds
from motley_privacy.likelihood_ratios import Observed


@dataclass(frozen=True)
class CanaryRuns(AuditedWorlds):
    """Two worlds of an experiment's own runs.

    Parameters
    ----------
    ready: the parts of a run.
    canary: id of the client.
    wrong: whether its targets are wrong ones, else they are its own.
    stretched: whether its updates are made as long as the clip.
    filled: share of the clip that they had before, of each trial so far.
    """

    attacked: ClassVar[str] = "own data and model"

    ready: Ready = field(kw_only=True)
    canary: int = field(kw_only=True)
    wrong: bool = field(kw_only=True)
    stretched: bool = field(kw_only=True, default=False)
    filled: list[float] = field(kw_only=True, default_factory=list)

    @property
    def opposite(self) -> bool:
        """Whether the canary sends the opposite in the world near, not nothing."""
        return self.plan.options.adjacency == "replace_one"

    @override
    def described(self) -> str:
        task = self.ready.config.setting.task
        labels = "with wrong labels" if self.wrong else "with its own labels"
        if self.opposite:
            sends = "the opposite of what it computes"
        else:
            sends = "nothing: zeros, and the middles of its signals"
        length = ", made as long as the clip" if self.stretched else ""
        return (
            f"Attacked is the experiment itself, on its own data ({task.layout.size:,} weights, "
            f"{self.population} clients, cohort {self.cohort}, {self.rounds} rounds). The canary "
            f"is client {self.canary} {labels}, of which it has "
            f"{task.federation.seen[self.canary]:,}; in the other world it sends {sends}. Its "
            f"updates have {self.share:.0%} of the clip{length}."
        )

    @property
    def share(self) -> float:
        """The mean share of the clip that the canary's updates have, before they are made
        longer."""
        return float(np.mean(self.filled)) if self.filled else 0.0

    @override
    def details(self) -> dict[str, Any]:
        return {
            "canary": self.canary,
            "wrong_labels": self.wrong,
            "weights": self.ready.config.setting.task.layout.size,
            "stretched": self.stretched,
            "share_of_clip": self.share,
        }

    @override
    def observed(self, far: bool, seeds: Iterable[int]) -> Observed:
        draw = self.rule.known_draw(self.cohort, self.population) if self.hidden else None
        canary = Canary(
            client=self.canary,
            far=far,
            opposite=self.opposite,
            rate=draw.rate if draw else None,
            clear=self.clear,
            stretched=self.stretched,
        )
        config, engine, _, model = self.ready
        member = []
        sums = []
        signals = []
        for seed in seeds:
            selector = Selector(self.rule, 2 * seed + far, self.rounds, self.defence)
            seen = attacked_run(
                config=config, engine=engine, selector=selector, model=model, canary=canary
            )
            self.filled.extend(seen.filled)
            member.append(seen.member)
            sums.append(seen.sums)
            signals.append(seen.signals)
        return Observed(
            np.array(member), np.array(sums), np.array(signals) if self.signals_seen else None
        )


def with_canary(ready: Ready, canary: int | None, wrong: bool) -> tuple[Ready, int]:
    """Return the parts of a run that only has a number of rounds and never evaluates, with a
    canary, and its id.

    Parameters
    ----------
    canary: id of the client; None: the one with the most samples.
    wrong: give it wrong targets.

    Raises
    ------
    ConfigError: there is no such client.
    """
    config = ready.config
    federation = config.setting.task.federation
    chosen = int(federation.seen.argmax()) if canary is None else canary
    if not 0 <= chosen < len(federation) or not federation.seen[chosen]:
        message = f"got {chosen}; expected a client with data, from 0 to {len(federation) - 1}"
        raise ConfigError(f"{message}; leave it out for the one with the most samples", "--canary")
    config = replace(config, stop=Stop(rounds=config.stop.rounds), evaluate=EvaluationSchedule())
    engine = ready.engine
    if wrong:
        task = replace(config.setting.task, federation=_with_wrong_targets(federation, chosen))
        config = replace(config, setting=replace(config.setting, task=task))
        engine.close()
        engine = type(engine)(config.setting)
    return ready._replace(config=config, engine=engine), chosen


def _with_wrong_targets(federation: Federation, client: int) -> Federation:
    """Return a federation in which a client's training targets are wrong: the next class, the other
    answer, the opposite number."""
    rows = slice(*federation.train.offsets[client : client + 2].tolist())
    labels = federation.labels.clone()
    labels[rows] = _wrong(labels[rows], federation.classes)
    return replace(federation, labels=labels)


def _wrong(targets: Tensor, classes: int | None) -> Tensor:
    """Return targets that contradict these.

    >>> _wrong(torch.tensor([0, 9]), 10)
    tensor([1, 0])
    """
    if classes is None:
        return -targets
    if targets.is_floating_point():
        return 1.0 - targets
    return torch.where(targets == IGNORED, targets, (targets + 1) % classes)
