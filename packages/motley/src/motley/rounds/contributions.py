"""What a selection rule makes of all uploads of a server step together, on samples that the server
validates with: the signal ``contribution``.

The rule (:meth:`~motley.selectors.selector.SelectionRule.contributions`) asks for the loss of the
model that any of the uploads alone would have made. That model is the server rule's own step from
the model before the round, on the aggregate of these uploads, at their weights, as they enter the
sum. Under EF21, which sends changes, it is made of the updates themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from typing_extensions import override

from motley.algorithms.parts import ServerContext, ServerState, Upload
from motley.algorithms.weights import divide_by
from motley.core.errors import ConfigError
from motley.core.records import CONTRIBUTION, JointUploads
from motley.rounds.round import Round
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Arrived, Stage
from motley.rounds.state import RunState
from motley.selectors.selector import SelectionRule

ContextOf = Callable[[RunState[Any], Round, Sequence[int]], ServerContext]


class Contributions(Stage):
    """Holds the uploads of a server step, and reports what the rule makes of them.

    Parameters
    ----------
    config: of the run.
    rule: of the selector, which asks for the signal.
    context: returns what the server rule may use in a step on the uploads of some rows.
    """

    name = "contributions"
    single_updates = "the selector asks what any of them together make of the model"

    def __init__(self, config: RunConfig, rule: SelectionRule[Any], context: ContextOf) -> None:
        self.config = config
        self.rule = rule
        self.context = context
        self._uploads: dict[int, Upload] = {}

    @override
    def gather(self, state: RunState[Any], step: Round) -> None:
        self._uploads = {}

    @override
    def upload(self, state: RunState[Any], step: Round, arrived: Arrived) -> Arrived:
        if arrived.received.result.finite:
            parts = {**arrived.upload.parts, **arrived.received.model_update}
            self._uploads[arrived.row] = arrived.upload._replace(parts=parts)
        return arrived

    @override
    def total(self, state: RunState[Any], step: Round) -> Round:
        rows = list(self._uploads)
        if not rows:
            return step
        uploads = self._uploads
        self._uploads = {}
        evaluations = 0

        def loss(members: Collection[int]) -> float:
            nonlocal evaluations
            evaluations += 1
            chosen = {rows[i]: uploads[rows[i]] for i in members}
            return self._loss(self._server_after(state, step, chosen))

        clients = step.landed.dispatches.timelines.client[rows]
        key = self.config.setting.streams.key("server").fold(CONTRIBUTION, step.number)
        values = self.rule.contributions(JointUploads(clients, loss, key.numpy()))
        results = dict(step.results)
        for row, value in zip(rows, values.tolist(), strict=True):
            signals: Mapping[str, Any] = {**results[row].signals, CONTRIBUTION: value}
            results[row] = dataclasses.replace(results[row], signals=signals)
        step = dataclasses.replace(step, results=results)
        return step.noted({"evaluations": float(evaluations)})

    def _server_after(
        self, state: RunState[Any], step: Round, uploads: Mapping[int, Upload]
    ) -> ServerState:
        """Return the server's state after a step on these uploads alone, by row of those that
        landed; without any, as it is."""
        if not uploads:
            return state.server
        algorithm = self.config.setting.algorithm
        accumulator = algorithm.aggregator.init()
        for position, upload in enumerate(uploads.values()):
            accumulator = algorithm.aggregator.add(accumulator, upload._replace(position=position))
        total = algorithm.aggregator.finish(accumulator, divide_by(self.config.weights))
        if not total:  # fewer than the aggregator steps on
            return state.server
        context = self.context(state, step, list(uploads))
        return algorithm.server.update(state.server, total, context)

    def _loss(self, server: ServerState) -> float:
        """Return the mean loss of the model that a state gives to clients, on the server's
        validation samples, in eval mode."""
        context = self.config.server_context
        if context is None or context.network is None or context.criterion is None:
            raise ConfigError("contributions were given no network", "selector")
        if context.validation is None:
            raise ConfigError("contributions were given no samples of the server", "split.server")
        rule = self.config.setting.algorithm.local
        inputs, labels = context.validation
        outputs = context.network.outputs(rule.start(rule.download(server), None), inputs)
        return float(context.criterion.loss(outputs, labels, {}).double().mean())
