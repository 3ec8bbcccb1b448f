"""Signals that the server computes from decoded uploads (:mod:`motley.core.server_signals`), in
torch's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Part, Parts, Tensors
from motley.core.arrays import Floats, Ids
from motley.core.last_updates import LastUpdates
from motley.core.records import SignalRequirements
from motley.core.saved_state import built, save
from motley.core.server_signals import (
    LAST_UPDATE,
    UPDATE_SIGNALS,
    Value,
    next_consensus,
    update_signals,
)
from motley.engines.engine import REPORTED, Setting
from motley.rounds.round import Round
from motley.rounds.stage import Arrived, Stage
from motley.rounds.state import RunState

SERVER_SIGNALS = (UPDATE_SIGNALS - REPORTED) | {LAST_UPDATE}
"""Signals that are computed from decoded uploads; the norm of its update is known to the engine."""


class UploadSignals(Stage):
    """Computes the signals of decoded uploads in one run.

    Parameters
    ----------
    needs: of the selection rule; names other than :data:`SERVER_SIGNALS` are ignored.
    setting: what is trained.
    last_updates: the store of clients' last updates; None: RAM.

    Attributes
    ----------
    consensus: the running consensus update ``[D]``, None before the first.
    last_updates: each participant's last update, where the selector compares it with the consensus
    update; empty otherwise.
    """

    name = "signals"

    def __init__(
        self,
        needs: SignalRequirements,
        setting: Setting,
        last_updates: LastUpdates | None = None,
    ) -> None:
        self.consensus: Tensor | None = None
        self.last_updates = LastUpdates() if last_updates is None else last_updates
        self.wanted = sorted(needs.reported & SERVER_SIGNALS)
        self.keeps = LAST_UPDATE in needs.probed
        if self.wanted or self.keeps:
            signal_names = " and ".join(self.wanted or ["last updates"])
            self.single_updates = (
                f"the selector asks {signal_names}, which the server computes from single updates"
            )
        self.setting = setting
        self.layout = setting.task.layout

    @override
    def save(self, state: RunState[Any]) -> Mapping[str, Any]:
        return {"consensus": save(self.consensus), "last_updates": self.last_updates.save()}

    @override
    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        self.consensus = built(Tensor | None, saved["consensus"], "consensus")
        self.last_updates.restore(saved["last_updates"])

    def of(self, client: int, parts: Parts, download: Tensors, rates: float) -> dict[str, Value]:
        """Return the wanted signals of one upload by name, and stage its update where last updates
        are kept.

        Parameters
        ----------
        parts: decoded.
        download: what the client was sent.
        rates: sum of its local steps' learning rates.
        """
        rule = self.setting.algorithm.local
        sent = rule.update(parts)
        if self.keeps:
            self.last_updates.stage(client, sent.detach().cpu().numpy())
        update = sent.cpu().double()
        choice = rule.choice
        x = rule.start(download, None if choice is None else choice.of(parts)).x
        at = self.layout.last_layer
        streams = self.setting.streams
        return update_signals(
            wanted=self.wanted,
            update=update,
            rates=rates,
            last_layer=lambda: x[at].cpu().double() + update[at],
            output_bias=self.layout.output_bias,
            consensus=self.consensus,
            streams=streams,
            norm=Tensor.norm,
        )

    def before_choice(self, ids: Ids) -> dict[str, Floats]:
        """Return the signals of candidates that the server knows without asking them, ``[n]``
        each."""
        consensus = None if self.consensus is None else self.consensus.numpy()
        return {LAST_UPDATE: self.last_updates.cosines(ids, consensus)} if self.keeps else {}

    @override
    def gather(self, state: RunState[Any], step: Round) -> None:
        """Forget the updates of a step that was refused or rehearsed."""
        self.last_updates.discard()

    @override
    def upload(self, state: RunState[Any], step: Round, arrived: Arrived) -> Arrived:
        result = arrived.received.result
        if not result.finite:
            return arrived
        rates = float(step.landed.dispatches.columns["lr"][arrived.row]) * result.steps
        parts = {**result.parts, **arrived.received.model_update}
        signals = self.of(result.client, parts, arrived.download, rates)
        return arrived._replace(signals={**arrived.signals, **signals})

    @override
    def after(self, state: RunState[Any], step: Round) -> None:
        """Move the consensus update, keep the staged updates."""
        if self.keeps or "cosine" in self.wanted:
            total = step.total["delta"]
            rule = self.setting.algorithm.local
            if not rule.sends_whole:  # single updates are compared as changes of a whole model
                total = rule.update({"delta": Part(total, "mean")})
            # Of doubles on the CPU this copies nothing by itself, and the first total becomes the
            # average as it is.
            moved = total.cpu().double().clone()
            self.consensus = next_consensus(self.consensus, moved)
            self.last_updates.commit()
