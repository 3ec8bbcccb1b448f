"""Steps whose uploads travel from workers to the server as sums, and the reasons why other runs' do
not.

A worker adds the uploads of an aligned run of positions and sends one sum; joined in the order of
the runs, sums have the bits that the uploads would have (docs/methods/index.md#sums). So the choice
changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from motley.core.arrays import Ids
from motley.core.components import declares
from motley.engines.engine import Engine, TrainResult
from motley.rounds.backend import ClientBackend
from motley.rounds.in_flight import Landed
from motley.rounds.round import ReceivedUpload
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Stages
from motley.rounds.state import Moment


class Gathering(NamedTuple):
    """What has come of a step's uploads, and those that are still to be added one by one.

    Parameters
    ----------
    total: accumulator of the aggregator.
    results: of the training, by row, without uploads.
    uploads: rows with uploads; none where workers sent sums.
    """

    total: Any
    results: dict[int, TrainResult]
    uploads: Iterable[tuple[int, ReceivedUpload]]


class WorkerSums:
    """Gathers a step's uploads as sums where nothing looks at a single one.

    Parameters
    ----------
    config: of the run.
    engine: computes local work.
    stages: of the run.

    Attributes
    ----------
    reason: why every update travels; None where sums do.
    """

    def __init__(self, config: RunConfig, engine: Engine, stages: Stages) -> None:
        self.aggregator = config.setting.algorithm.aggregator
        self.reason = single_updates(config, stages)
        self._few = engine.refuses_sums([1] * config.synchrony.max_uploads(config.cohort))

    def note(self) -> str | None:
        """Return a sentence for the first lines of a run whose workers send every update; None
        where they send sums."""
        reason = self.reason or self._few
        return None if reason is None else f"every update travels: {reason}"

    def gathered(
        self,
        backend: ClientBackend[Any],
        now: Moment,
        landed: Landed,
        rows: Ids,
    ) -> Gathering:
        """Return the sum of these rows' uploads or, where single ones are asked for, the
        uploads."""
        total = self.aggregator.init()
        results = dict[int, TrainResult]()
        uploads = backend.uploads(now, landed, rows, self.reason is None)
        if uploads.sums is None:
            return Gathering(total, results, uploads.single or ())
        for run, trained, partial in uploads.sums:
            first = run.positions.start
            results.update(zip(rows[first : first + len(trained)].tolist(), trained, strict=True))
            total = self.aggregator.join(total, run, partial)
        return Gathering(total, results, ())


def single_updates(config: RunConfig, stages: Stages) -> str | None:
    """Return what looks at single updates at the server, after "every update travels: "; None:
    nothing."""
    setting = config.setting
    uploads = config.upload_config
    aggregator = setting.algorithm.aggregator
    synchrony = config.synchrony
    name = type(aggregator).__name__
    if aggregator.sees_single_uploads:
        return f"the aggregator {name} needs single updates"
    if not (aggregator.joins and declares(aggregator, "joins", "init", "add")):
        return f"sums of the aggregator {name} cannot be joined"
    for stage in stages.all:
        if stage.single_updates is not None:
            return stage.single_updates
    if uploads.feedback.state_name is not None:
        return f"the error feedback {type(uploads.feedback).__name__} is taken at the server"
    if not uploads.plain:
        return f"the compressor {type(uploads.compressor).__name__} is undone at the server"
    if synchrony.overlaps:
        return f"under {type(synchrony).__name__} a step takes updates of several versions"
    if setting.task.heads:
        return "each client holds heads of its own"
    for stage in stages.upload:
        return f"the stage {type(stage).__name__} looks at them"
    return None
